package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/useragents"
)

const (
	visitedLinks = 100_000
	visits       = 200_000     // that are drawn, and then sent once
	visitTime    = time.Second // of one load
	visitRest    = time.Minute // until the counts are saved, and most of them forgotten
	withClicks   = "CLICKS=full"
)

// clicks measures the cost of counting clicks: on many links under requests that resemble real
// traffic, and on one cached link. Both modes get the same requests: in the same time, the faster
// one would get more of them, and find more of their links in its cache.
func (b *bench) clicks(ctx context.Context) (string, error) {
	paths, err := b.putLinks(ctx, visitedLinks)
	if err != nil {
		return "", err
	}
	one, err := b.visits("one", paths[:1], 1_000)
	if err != nil {
		return "", err
	}
	many, err := b.visits("many", paths, visits)
	if err != nil {
		return "", err
	}
	var rates, life results
	without, err := b.visited(ctx, noClicks, many, &life)
	if err != nil {
		return "", err
	}
	with, err := b.visited(ctx, withClicks, many, &life)
	if err != nil {
		return "", err
	}
	life.add(withClicks, values{"µs to off": with / without})
	hit := load{file: one, counted: "cache.hit"}
	for range b.rounds {
		if err := b.takeTurns(ctx, &rates, paths[0], []subject{
			{noClicks, b.service(true, noClicks), hit},
			{withClicks, b.service(true), hit},
		}); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("One link. Rounds: %d, of %d turns.\n\n", b.rounds, turns) +
		rates.table(append(loadColumns, column{head: "requests/s, to " + noClicks,
			value: "req/s to first", digits: 3, atLeast: 0.97, rows: []string{withClicks}})) +
		fmt.Sprintf("\n%d links. The same %d requests each, and %v of rest after clicks.\n\n",
			visitedLinks, visits, visitRest) +
		life.table(append(loadColumns,
			column{head: "CPU, to " + noClicks, value: "µs to off", digits: 2, atMost: 1.25,
				rows: []string{withClicks}},
			column{head: "MB before", value: "before", digits: 1},
			column{head: "MB at most", value: "most", digits: 1},
			column{head: "MB after", value: "after", digits: 1, atMost: 55,
				rows: []string{withClicks}},
			column{head: "calls", value: "batches"},
			column{head: "rows written", value: "rows"})), nil
}

// visits writes a file of requests for paths, as people and bots send them. One in 100 is a bot's.
// A few links get most of the requests, and so do a few of the referring sites. Each request has an
// address of its own.
func (b *bench) visits(name string, paths []string, count int) (file string, err error) {
	people, err := useragents.People(".")
	if err != nil {
		return "", err
	}
	bots, err := useragents.Bots(".")
	if err != nil {
		return "", err
	}
	random := rand.New(rand.NewPCG(3, 4))
	popular := rand.NewZipf(random, 1.01, 1, uint64(len(paths)-1))
	known := rand.NewZipf(random, 1.01, 1, 999)
	lines := make([]string, count)
	for i := range lines {
		agent := people[random.IntN(len(people))].UserAgent
		if i%100 == 0 {
			agent = bots[random.IntN(len(bots))]
		}
		address := netip.AddrFrom4([4]byte{byte(1 + random.IntN(220)), byte(random.IntN(256)),
			byte(random.IntN(256)), byte(random.IntN(256))})
		lines[i] = strings.Join([]string{paths[popular.Uint64()], agent,
			fmt.Sprintf("https://site%d.example/news", known.Uint64()), address.String()}, "\t")
	}
	return b.file(name, lines)
}

// visited measures a service under the requests in file, and counts what its flushes write. It
// returns the processor time of a request, in microseconds.
func (b *bench) visited(ctx context.Context, mode, file string, life *results) (float64, error) {
	proxy := faultproxy.Start(b.storage)
	defer proxy.Close()
	s, err := b.start(ctx, subject{mode, b.service(true, mode, "AzureWebJobsStorage="+
		proxy.ConnectionString()), load{file: file, counted: "redirect.found"}}, "/api/ready")
	if err != nil {
		return 0, err
	}
	defer s.stop()
	all := values{"before": s.memory("VmRSS")}
	used := processorTime(s.cmd.Process.Pid)
	for s.requests < visits {
		v, err := s.put(ctx, visitTime)
		if err != nil {
			return 0, err
		}
		delete(v, "µs") // that of all follows
		life.add(mode, v)
	}
	if mode != noClicks {
		time.Sleep(visitRest)
	}
	used = processorTime(s.cmd.Process.Pid) - used // with the last flush
	all["µs"] = float64(used.Microseconds()) / s.requests
	all["after"], all["most"] = s.memory("VmRSS"), s.memory("VmHWM")
	all["batches"], all["rows"] = 0, 0
	_, err = s.stopCounted()
	for _, call := range proxy.Calls() {
		if call.Operation == "SubmitTransaction" { // only a flush sends it
			all["batches"]++
			all["rows"] += float64(call.Rows)
		}
	}
	life.add(mode, all)
	return all["µs"], err
}
