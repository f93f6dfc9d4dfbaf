package main

import (
	"context"
	"fmt"
	"os"

	"tiney/internal/ingest"
)

// modes are the ways to run the service, with and without telemetry.
var modes = []struct {
	name         string
	hosted, send bool
	against      string
}{
	{name: "on its own, without", hosted: false, send: false},
	{name: "on its own, with", hosted: false, send: true, against: "on its own, without"},
	{name: "behind the host, without", hosted: true, send: false},
	{name: "behind the host, with", hosted: true, send: true, against: "behind the host, without"},
}

// cost measures what telemetry costs a cached redirect.
func (b *bench) cost(ctx context.Context) (string, error) {
	var subjects []subject
	for _, m := range modes {
		subjects = append(subjects, subject{m.name, m.against, func(ctx context.Context) (values, error) {
			var more []string
			if m.send {
				to := ingest.Start()
				defer to.Close()
				more = append(more, "APPLICATIONINSIGHTS_CONNECTION_STRING="+to.ConnectionString())
			}
			s, err := b.start(ctx, m.hosted, more...)
			if err != nil {
				return nil, err
			}
			defer s.stop()
			return b.throughput(ctx, s)
		}})
	}
	r, err := interleave(ctx, b.rounds, subjects)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d rounds of %v each, %s with %d connections.\n\n", b.rounds, b.length, b.generator(), b.connections) +
		r.table([]column{
			{head: "redirects/s", value: "req/s"},
			{head: "p50 ms", value: "p50", digits: 2},
			{head: "p99 ms", value: "p99", digits: 2},
			{head: "CPU µs each", value: "µs", digits: 1},
			{head: "redirects/s, with to without", value: "req/s", digits: 3, of: ratio, atLeast: 0.95},
			{head: "CPU, with to without", value: "µs", digits: 3, of: ratio},
			{head: "CPU % of others", value: "others"},
		}), nil
}

const (
	cacheHitRow = "a link found in the cache"
	negativeHit = "no such link, found in the cache"
	netRow      = "deadlines of a request, by net"
	deadlineRow = "deadlines of a request, ours"
)

// allocations runs Go benchmarks: of a cached redirect through ServeHTTP, without a network, and of two pieces of it.
func (b *bench) allocations(ctx context.Context) (string, error) {
	var redirects []string
	for _, m := range modes {
		redirects = append(redirects, m.name)
	}
	r := new(results)
	for round := range b.rounds {
		for _, run := range []struct {
			name, in string
			rows     []string // the benchmark's own, in its order
			against  func(i int) string
		}{
			{"CachedRedirect", "./handler", redirects, func(i int) string { return modes[i].against }},
			{"CacheHit", "./storage", []string{cacheHitRow, negativeHit}, func(int) string { return "" }},
			{"Deadlines", "./handler", []string{netRow, deadlineRow}, func(i int) string { return []string{"", netRow}[i] }},
		} {
			quiet(ctx)
			said, err := runGoBenchmark(ctx, run.name, run.in, "-benchmem")
			if err != nil {
				return "", err
			}
			lines, err := goBenchmarks(said, "ns/op", "B/op", "allocs/op")
			if err != nil {
				return "", err
			}
			if len(lines) != len(run.rows) {
				return "", fmt.Errorf("go test said:\n%s", said)
			}
			for i, line := range lines {
				fmt.Fprintf(os.Stderr, "round %d of %d, %s: %v\n", round+1, b.rounds, line.name, line.values)
				r.add(run.rows[i], run.against(i), line.values)
			}
		}
	}
	hit := []string{cacheHitRow, negativeHit}
	return fmt.Sprintf("%d rounds.\n\n", b.rounds) + r.table([]column{
		{head: "ns", value: "ns/op", atMost: 250, rows: hit},
		{head: "bytes", value: "B/op"},
		{head: "allocations", value: "allocs/op", atMost: 4, rows: redirects},
		{head: "ns, to the one before without", value: "ns/op", digits: 3, of: ratio},
		{head: "allocations, less the one before without", value: "allocs/op", of: difference, atMost: 0.5},
	}), nil
}
