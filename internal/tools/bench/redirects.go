package main

import (
	"context"
	"fmt"
	"os/exec"
	"time"
)

const (
	turns         = 5               // of one second each, for each server in each round
	storageTime   = 3 * time.Second // the length of a load that waits for storage
	manyLinks     = 21_000          // a little more than the default cache of 10 MB holds
	manyRedirects = 1_000_000
	noClicks      = "CLICKS=off" // the cost of counting clicks is measured separately
)

// redirects measures redirects, and the memory after many of them.
func (b *bench) redirects(ctx context.Context) (string, error) {
	paths, err := b.putLinks(ctx, manyLinks)
	if err != nil {
		return "", err
	}
	file, err := b.file("paths", paths)
	if err != nil {
		return "", err
	}
	visits, err := b.visits("visits", paths[:1], 1_000)
	if err != nil {
		return "", err
	}
	one := load{file: visits}
	hit := load{file: visits, counted: "cache.hit"}
	hosted := b.service(true, noClicks)
	compared := []subject{
		{"net/http, alike", b.bareHTTP(paths[0], "alike"), one},
		{"bare net/http", b.bareHTTP(paths[0]), one},
		{"cached, on its own", b.service(false), hit},
		{"cached, behind the host", b.service(true), hit},
		{"cached, " + noClicks, hosted, hit},
		{"no such link, cached", hosted, load{path: "/nobody", fails: true,
			counted: "cache.negative_hit"}},
	}
	if _, err := exec.LookPath("nginx"); err == nil {
		compared = append(compared, subject{"nginx, return 302", b.nginx, one})
	}
	// The service reads a link from storage again if it is requested more than a second later.
	miss := subject{"not cached", b.service(true, noClicks, "CACHE_DURATION_SECONDS=1"),
		load{file: file, counted: "cache.miss"}}

	var rates, memory results
	for range b.rounds {
		if err := b.takeTurns(ctx, &rates, paths[0], compared); err != nil {
			return "", err
		}
		v, err := b.alone(ctx, miss, 0)
		if err != nil {
			return "", err
		}
		rates.add(miss.name, v)
	}
	full := subject{"behind the host", hosted, load{file: file, counted: "redirect.found"}}
	v, err := b.alone(ctx, full, manyRedirects)
	if err != nil {
		return "", err
	}
	memory.add(full.name, v)
	cached := []string{compared[2].name, compared[3].name}
	return fmt.Sprintf("Rounds: %d, of %d turns, or of %v if not cached.\n\n", b.rounds, turns,
		storageTime) +
		rates.table(append(loadColumns, column{head: "CPU, to net/http alike",
			value: "µs to first", digits: 3, atMost: 1.08, rows: cached},
			column{head: "requests/s, to net/http alike", value: "req/s to first", digits: 3,
				atLeast: 0.93, rows: cached})) +
		fmt.Sprintf("\nOne run of %d redirects to %d links in turns.\n\n", manyRedirects,
			manyLinks) +
		memory.table([]column{
			{head: "MB after", value: "MB", digits: 1, atMost: 45},
			{head: "MB at most", value: "most", digits: 1},
			{head: "MB in the cache, as it counts", value: "cache", digits: 1, atLeast: 9.5},
			{head: "hit ratio", value: "hits", digits: 3},
		}), nil
}

// takeTurns starts the subjects, each of which redirects from path. It puts each under load for one
// second at a time, each right after the first subject. The speed of a machine changes within
// seconds, but is about the same in two neighbouring seconds.
func (b *bench) takeTurns(ctx context.Context, rates *results, path string,
	subjects []subject) error {
	servers := make([]*server, len(subjects))
	for i, of := range subjects {
		var err error
		if servers[i], err = b.start(ctx, of, path); err != nil {
			return err
		}
		defer servers[i].stop()
		if _, err := servers[i].put(ctx, time.Second); err != nil { // to warm up
			return err
		}
	}
	for range turns {
		for _, s := range servers[1:] {
			first, err := servers[0].put(ctx, time.Second)
			if err != nil {
				return err
			}
			v, err := s.put(ctx, time.Second)
			if err != nil {
				return err
			}
			v["req/s to first"] = v["req/s"] / first["req/s"]
			v["µs to first"] = v["µs"] / first["µs"]
			rates.add(servers[0].name, first)
			rates.add(s.name, v)
		}
	}
	for _, s := range servers {
		if _, err := s.stopCounted(); err != nil {
			return err
		}
	}
	return nil
}

// alone measures a service under loads of storageTime, at least one, until it has served so many
// requests. The figures are those of the last load. A load of a second comes first, to warm up.
func (b *bench) alone(ctx context.Context, of subject, requests float64) (values, error) {
	s, err := b.start(ctx, of, "/api/ready")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	v, err := s.put(ctx, time.Second)
	for more := true; more && err == nil; more = s.requests < requests {
		v, err = s.put(ctx, storageTime)
	}
	if err != nil {
		return nil, err
	}
	v["MB"], v["most"] = s.memory("VmRSS"), s.memory("VmHWM")
	counts, err := s.stopCounted()
	v["cache"] = counts["cache.bytes"] / (1 << 20)
	v["hits"] = counts["cache.hit"] / (counts["cache.hit"] + counts["cache.miss"])
	return v, err
}
