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

// subject is a server that is measured under a load.
type subject struct {
	name string
	command
	load
}

// redirects measures redirects, and the memory after many of them.
func (b *bench) redirects(ctx context.Context) (string, error) {
	expires := time.Now().AddDate(0, 0, 30)
	links := makeLinks(manyLinks, func(int) time.Time { return expires })
	t, err := b.newTables(ctx, links, true)
	if err != nil {
		return "", err
	}
	var paths []string
	for _, l := range links {
		paths = append(paths, "/"+string(l.Name))
	}
	file, err := b.file("paths", paths)
	if err != nil {
		return "", err
	}
	path := paths[0]
	bare := subject{"bare net/http", b.bareHTTP(path), load{path: path}}
	own := subject{"cached, on its own", b.service(t, false, noClicks),
		load{path: path, counted: "cache.hit"}}
	hosted := subject{"cached, behind the host", b.service(t, true, noClicks),
		load{path: path, counted: "cache.hit"}}
	none := subject{"no such link, cached", b.service(t, true, noClicks),
		load{path: "/nobody", fails: true, counted: "cache.negative_hit"}}
	// The service reads a link from storage again if it is requested more than a second later.
	miss := subject{"not cached", b.service(t, true, noClicks, "CACHE_DURATION_SECONDS=1"),
		load{file: file, counted: "cache.miss"}}
	compared, note := []subject{bare, own, hosted, none},
		"nginx is not installed, and not compared.\n\n"
	if _, err := exec.LookPath("nginx"); err == nil {
		compared, note = []subject{bare, {"nginx, return 302", b.nginx(), bare.load}, own, hosted,
			none}, ""
	}

	var rates, memory results
	for range b.rounds {
		if err := b.takeTurns(ctx, &rates, path, compared); err != nil {
			return "", err
		}
	}
	for range b.rounds {
		v, err := b.once(ctx, miss, manyLinks/2)
		if err != nil {
			return "", err
		}
		rates.add(miss.name, v)
	}
	v, err := b.fillCache(ctx, subject{hosted.name, hosted.command,
		load{file: file, counted: "redirect.found"}})
	if err != nil {
		return "", err
	}
	memory.add("behind the host", v)
	return fmt.Sprintf("Rounds: %d, of %d turns, or of %v if not cached.\n\n%s", b.rounds, turns,
		storageTime, note) +
		rates.table([]column{
			{head: "requests/s", value: "req/s"},
			{head: "p50 ms", value: "p50", digits: 2},
			{head: "p99 ms", value: "p99", digits: 2},
			{head: "CPU µs each", value: "µs", digits: 1},
			{head: "requests/s, to bare net/http", value: "req/s to first", digits: 3,
				atLeast: 0.88, rows: []string{own.name, hosted.name}},
		}) +
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
	turn := func(i int) (values, error) {
		v, err := servers[i].put(ctx, subjects[i].load, time.Second, 0)
		if err != nil {
			err = fmt.Errorf("%s: %w", subjects[i].name, err)
		}
		return v, err
	}
	for i, s := range subjects {
		var err error
		if servers[i], err = b.startReady(ctx, s.command, path); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		defer servers[i].stop()
		if _, err := turn(i); err != nil { // to warm up
			return err
		}
	}
	for range turns {
		for i := 1; i < len(subjects); i++ {
			first, err := turn(0)
			if err != nil {
				return err
			}
			v, err := turn(i)
			if err != nil {
				return err
			}
			v["req/s to first"] = v["req/s"] / first["req/s"]
			rates.add(subjects[0].name, first)
			rates.add(subjects[i].name, v)
		}
	}
	for i, s := range servers {
		if _, err := s.stopCounted(subjects[i].counted); err != nil {
			return fmt.Errorf("%s: %w", subjects[i].name, err)
		}
	}
	return nil
}

// once measures a service under one load. It warms up with the first lines of the load's file.
func (b *bench) once(ctx context.Context, of subject, skip int) (values, error) {
	s, err := b.startReady(ctx, of.command, "/api/ready")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	if _, err := s.put(ctx, of.load, time.Second, 0); err != nil {
		return nil, err
	}
	v, err := s.put(ctx, of.load, storageTime, skip)
	if err == nil {
		_, err = s.stopCounted(of.counted)
	}
	return v, err
}

// fillCache measures the memory of a service with a full cache after many redirects.
func (b *bench) fillCache(ctx context.Context, of subject) (values, error) {
	s, err := b.startReady(ctx, of.command, "/api/ready")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	for s.requests < manyRedirects {
		if _, err := s.put(ctx, of.load, 10*time.Second, int(s.requests)); err != nil {
			return nil, err
		}
	}
	v := values{}
	if v["MB"], v["most"], err = memory(s.cmd.Process.Pid); err != nil {
		return nil, err
	}
	counts, err := s.stopCounted(of.counted)
	v["cache"] = counts["cache.bytes"] / (1 << 20)
	v["hits"] = counts["cache.hit"] / (counts["cache.hit"] + counts["cache.miss"])
	return v, err
}
