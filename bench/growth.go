package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"time"

	"tiney/internal/azurite"
	"tiney/link"
)

const (
	cacheRounds   = 3
	tableShortens = 300 // new links in one round, which are deleted after it
)

// growth measures what becomes of the cache and of the tables as there are more links.
func (b *bench) growth(ctx context.Context) (string, error) {
	if b.mostLinks < 1 {
		return "", fmt.Errorf("-most-links %d: the largest tables need a link", b.mostLinks)
	}
	ofCache, err := b.cacheGrowth(ctx)
	if err != nil {
		return "", err
	}
	ofTables, err := b.tableGrowth(ctx)
	if err != nil {
		return "", err
	}
	return ofCache + "\n" + ofTables, nil
}

// cacheGrowth runs the Go benchmark of the cache.
func (b *bench) cacheGrowth(ctx context.Context) (string, error) {
	r, rounds := new(results), min(b.rounds, cacheRounds)
	for round := range rounds {
		quiet(ctx)
		said, err := runGoBenchmark(ctx, "CacheGrowth", "./storage", "-benchtime", "1x")
		if err != nil {
			return "", err
		}
		lines, err := cacheGrowthLines(said)
		if err != nil {
			return "", err
		}
		for _, line := range lines {
			fmt.Fprintf(os.Stderr, "round %d of %d, %s: %v\n", round+1, rounds, line.name, line.values)
			r.add(line.name, "", line.values)
		}
	}
	return fmt.Sprintf("%d rounds.\n\n", rounds) + r.table([]column{
		{head: "hit ratio", value: "hit-ratio", digits: 3},
		{head: "links held", value: "held"},
		{head: "bytes of memory a link", value: "B/link"},
		{head: "MB of memory, all in all", value: "heap-MB", digits: 1},
		{head: "evicted per 1,000 gets", value: "evicted/1000", digits: 1},
		{head: "ns a get", value: "ns/get"},
	}), nil
}

// cacheGrowthLines reads the benchmark's figures from what go test says.
func cacheGrowthLines(said string) ([]goBenchmark, error) {
	all, err := goBenchmarks(said, "hit-ratio", "held", "B/link", "heap-MB", "evicted/get", "ns/get")
	for i, line := range all {
		var links, mb int
		if _, err := fmt.Sscanf(line.name, "CacheGrowth/links=%d/MB=%d", &links, &mb); err != nil {
			return nil, fmt.Errorf("%s: %w", line.name, err)
		}
		all[i].name = fmt.Sprintf("%s links, %d MB", thousands(float64(links)), mb)
		line.values["evicted/1000"] = 1000 * line.values["evicted/get"]
	}
	return all, err
}

// tableGrowth measures what a miss and a new link take where the tables hold so many. Each size has an emulator of its
// own, so that it is as large as it would be, and no other is.
func (b *bench) tableGrowth(ctx context.Context) (string, error) {
	var subjects []subject
	sizes := []int{min(1_000, b.mostLinks), min(10_000, b.mostLinks), b.mostLinks}
	for _, size := range slices.Compact(sizes) {
		emulator, err := azurite.StartAnywhere(ctx)
		if err != nil {
			return "", err
		}
		defer emulator.Stop()
		t, err := newTables(ctx, emulator.ConnectionString())
		if err != nil {
			return "", err
		}
		start := time.Now()
		if err := t.put(size, alive, t.insert(ctx), t.names()...); err != nil {
			return "", err
		}
		fmt.Fprintf(os.Stderr, "put %d links in %v\n", size, time.Since(start).Round(time.Second))
		name, against := thousands(float64(size))+" links", ""
		if len(subjects) > 0 {
			against = subjects[0].name
		}
		subjects = append(subjects, subject{name, against, func(ctx context.Context) (values, error) { return b.tableRound(ctx, t, size) }})
	}
	r, err := interleave(ctx, b.rounds, subjects)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d rounds: misses for %v, and then %d new links, one after the other, over one connection.\n\n", b.rounds, b.length, tableShortens) +
		r.table([]column{
			{head: "miss, p50 ms", value: "miss p50", digits: 2},
			{head: "p99 ms", value: "miss p99", digits: 2},
			{head: "p50, to the first row", value: "miss p50", digits: 2, of: ratio},
			{head: "new link, p50 ms", value: "new p50", digits: 2},
			{head: "p99 ms", value: "new p99", digits: 2},
			{head: "p50, to the first row", value: "new p50", digits: 2, of: ratio},
			{head: "CPU % of others", value: "others"},
		}), nil
}

func (b *bench) tableRound(ctx context.Context, t *tables, size int) (values, error) {
	s, err := b.startOn(ctx, false, t, "CACHE_ENABLED=false")
	if err != nil {
		return nil, err
	}
	defer s.stop()

	var missed tally
	c := newConnection(s.address, "")
	defer c.close()
	miss := func(until time.Time) {
		for now := time.Now(); now.Before(until) && ctx.Err() == nil; now = time.Now() {
			c.ask("/" + string(aliasOf(rand.IntN(size))))
			missed.get(c, now)
		}
	}
	miss(time.Now().Add(time.Second)) // to warm up
	missed.took = nil
	miss(time.Now().Add(b.length))
	if err := errors.Join(missed.err, ctx.Err()); err != nil {
		return nil, fmt.Errorf("%d redirects failed: %w", missed.failed, err)
	}

	var took tally
	var made []link.Link
	for range tableShortens {
		want := fmt.Sprintf("https://example.com/new/%016x", rand.Uint64())
		start := time.Now()
		status, said, err := s.send(http.MethodPost, "/api/shorten", fmt.Sprintf(`{"longUrl":%q}`, want))
		took.took = append(took.took, time.Since(start))
		if err != nil || status != http.StatusCreated {
			return nil, fmt.Errorf("shorten was answered with %d (%v)", status, err)
		}
		var l struct {
			Alias        link.Alias
			ExpiresAtUtc time.Time
		}
		if err := json.Unmarshal(said, &l); err != nil {
			return nil, err
		}
		made = append(made, link.Link{Alias: l.Alias, LongURL: want, ExpiresAt: l.ExpiresAtUtc})
	}
	for _, l := range made {
		if err := t.remove(ctx, l); err != nil {
			return nil, err
		}
	}
	return values{
		"miss p50": missed.percentile(50), "miss p99": missed.percentile(99),
		"new p50": took.percentile(50), "new p99": took.percentile(99),
	}, nil
}
