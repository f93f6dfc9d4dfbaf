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
	visits       = 100_000 // that are drawn, and then sent over and over
	visitTime    = 20 * time.Second
	visitRest    = time.Minute // until the counts are saved, and most of them forgotten
	withClicks   = "CLICKS=full"
)

// clicks measures the cost of counting clicks: on many links under requests that resemble real
// traffic, and on one cached link.
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
	for _, mode := range []string{noClicks, withClicks} {
		v, err := b.visited(ctx, mode, many)
		if err != nil {
			return "", err
		}
		life.add(mode, v)
	}
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
		fmt.Sprintf("\n%d links. One run of %v each, and %v of rest after clicks.\n\n",
			visitedLinks, visitTime, visitRest) +
		life.table(append(loadColumns,
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

// visited measures a service under the requests in file, and counts what its flushes write.
func (b *bench) visited(ctx context.Context, mode, file string) (values, error) {
	proxy := faultproxy.Start(b.storage)
	defer proxy.Close()
	s, err := b.start(ctx, subject{mode, b.service(true, mode, "AzureWebJobsStorage="+
		proxy.ConnectionString()), load{file: file, counted: "redirect.found"}}, "/api/ready")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	before := s.memory("VmRSS")
	v, err := s.put(ctx, visitTime)
	if err != nil {
		return nil, err
	}
	if mode != noClicks {
		time.Sleep(visitRest)
	}
	v["before"], v["after"], v["most"] = before, s.memory("VmRSS"), s.memory("VmHWM")
	v["batches"], v["rows"] = 0, 0
	_, err = s.stopCounted()
	for _, call := range proxy.Calls() {
		if call.Operation == "SubmitTransaction" { // only a flush sends it
			v["batches"]++
			v["rows"] += float64(call.Rows)
		}
	}
	return v, err
}
