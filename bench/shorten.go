package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tiney/internal/faultproxy"
)

// knownURLs is how many URLs have their link already where known ones are shortened: few enough for any cache.
const knownURLs = 500

// shortens are the kinds of requests.
var shortens = []struct {
	name        string
	known, long bool
}{
	{"new", false, false},
	{"new, 2,000 characters", false, true},
	{"known", true, false},
	{"known, 2,000 characters", true, true},
}

// shorten measures how fast links are made and found again, beside the same calls by the SDK alone.
func (b *bench) shorten(ctx context.Context) (string, error) {
	calls, err := b.sameCalls(ctx)
	if err != nil {
		return "", err
	}
	var subjects []subject
	for _, kind := range shortens {
		for _, raw := range []bool{true, false} {
			name, against := kind.name+", raw SDK", ""
			if !raw {
				name, against = kind.name, name
			}
			subjects = append(subjects, subject{name, against, func(ctx context.Context) (values, error) {
				v, err := b.shortenOnce(ctx, raw, kind.known, kind.long)
				if err == nil {
					v["calls"] = float64(calls[kind.known])
				}
				return v, err
			}})
		}
	}
	r, err := interleave(ctx, b.rounds, subjects)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d rounds of %v each, %d connections.\n\n", b.rounds, b.length, b.connections) +
		r.table([]column{
			{head: "requests/s", value: "req/s"},
			{head: "p50 ms", value: "p50", digits: 2},
			{head: "p99 ms", value: "p99", digits: 2},
			{head: "CPU µs each", value: "µs", digits: 1},
			{head: "calls each", value: "calls"},
			{head: "new, requests/s to the raw SDK's", value: "new/s", digits: 3, of: ratio, atLeast: 0.9},
			{head: "known, requests/s to the raw SDK's", value: "known/s", digits: 3, of: ratio},
			{head: "CPU, to the raw SDK's", value: "µs", digits: 3, of: ratio},
			{head: "CPU % of others", value: "others"},
		}), nil
}

// shortenOnce has one side shorten URLs, in tables of its own, as fast as the answers come.
func (b *bench) shortenOnce(ctx context.Context, raw, known, long bool) (values, error) {
	t, err := newTables(ctx, b.emulator.ConnectionString())
	if err != nil {
		return nil, err
	}
	s, err := b.startOn(ctx, raw, t)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	var sent atomic.Int64
	next, want := func() int { return int(sent.Add(1)) }, http.StatusCreated
	if known {
		made := b.shortenAll(ctx, s, next, long, http.StatusCreated, func() bool { return sent.Load() < knownURLs })
		if made.err != nil {
			return nil, fmt.Errorf("%d links could not be made: %w", made.failed, made.err)
		}
		next, want = func() int { return 1 + int(sent.Add(1)%knownURLs) }, http.StatusOK
	}
	during := func(length time.Duration) func() bool {
		end := time.Now().Add(length)
		return func() bool { return time.Now().Before(end) }
	}
	b.shortenAll(ctx, s, next, long, want, during(time.Second)) // to warm up
	used := processorTime(s.cmd.Process.Pid)
	load := b.shortenAll(ctx, s, next, long, want, during(b.length))
	used = processorTime(s.cmd.Process.Pid) - used
	if err := errors.Join(load.err, ctx.Err()); err != nil {
		return nil, fmt.Errorf("%d requests failed: %w", load.failed, err)
	}
	n := float64(len(load.took))
	v := values{"req/s": n / b.length.Seconds(), "p50": load.percentile(50), "p99": load.percentile(99), "µs": float64(used.Microseconds()) / n}
	v["new/s"] = v["req/s"]
	if known {
		v["known/s"] = v["req/s"]
		delete(v, "new/s")
	}
	return v, t.drop(ctx)
}

// shortenAll shortens the URLs of the given numbers while there is more to do.
func (b *bench) shortenAll(ctx context.Context, s *service, next func() int, long bool, want int, more func() bool) (all tally) {
	var (
		mu   sync.Mutex
		load sync.WaitGroup
	)
	for range b.connections {
		load.Go(func() {
			var own tally
			for more() && ctx.Err() == nil {
				body, start := shortenBody(next(), long), time.Now()
				status, said, err := s.send(http.MethodPost, "/api/shorten", body)
				if err == nil && status != want {
					err = fmt.Errorf("shorten was answered with %d: %s", status, said)
				}
				if err != nil {
					own.failed, own.err = own.failed+1, err
					continue
				}
				own.took = append(own.took, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			all.add(own)
		})
	}
	load.Wait()
	return all
}

// shortenBody asks for a link for the nth URL. The days of their ends are spread, for Azurite's sake; see due.
func shortenBody(n int, long bool) string {
	url := fmt.Sprintf("https://example.com/a/long/path?with=a&query=%d", n)
	if long {
		const parameter = "&session=a1B2c3-d4_E5f6.g7H8"
		url += strings.Repeat(parameter, (2000-len(url))/len(parameter))
	}
	return fmt.Sprintf(`{"longUrl":%q,"expiresInSeconds":%d}`, url, (1+n%89)*24*60*60)
}

// sameCalls says how many calls to storage it takes to shorten a new URL and a known one, having seen that both sides make
// the same ones in the same order.
func (b *bench) sameCalls(ctx context.Context) (calls map[bool]int, err error) {
	var seen [2][2][]string
	for i, raw := range []bool{true, false} {
		if seen[i], err = b.shortenCalls(ctx, raw); err != nil {
			return nil, err
		}
	}
	if !slices.Equal(seen[0][0], seen[1][0]) || !slices.Equal(seen[0][1], seen[1][1]) {
		return nil, fmt.Errorf("the raw side calls %q, the service calls %q", seen[0], seen[1])
	}
	return map[bool]int{false: len(seen[0][0]), true: len(seen[0][1])}, nil
}

// shortenCalls returns the calls that one side makes for a new URL, and for a known one whose link is cached.
func (b *bench) shortenCalls(ctx context.Context, raw bool) (calls [2][]string, err error) {
	proxy := faultproxy.Start(b.emulator)
	defer proxy.Close()
	t, err := newTables(ctx, proxy.ConnectionString())
	if err != nil {
		return calls, err
	}
	s, err := b.startOn(ctx, raw, t)
	if err != nil {
		return calls, err
	}
	defer s.stop()
	for i, want := range []int{http.StatusCreated, http.StatusOK, http.StatusOK} { // the first one that is known may come before the cache has it
		proxy.Reset()
		status, said, err := s.send(http.MethodPost, "/api/shorten", shortenBody(1, false))
		if err != nil || status != want {
			return calls, fmt.Errorf("shorten was answered with %d: %s (%v)", status, said, err)
		}
		kind := min(i, 1)
		calls[kind] = nil
		for _, c := range proxy.Calls() {
			if c.Operation != "CreateTable" { // of the start
				calls[kind] = append(calls[kind], c.Operation+" "+t.role(c.Target))
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	return calls, t.drop(ctx)
}
