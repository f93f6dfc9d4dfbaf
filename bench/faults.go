package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"tiney/internal/ingest"
)

// failures are what can be wrong with the ingestion endpoint.
var failures = []struct {
	name string
	fail func(*ingest.Endpoint)
}{
	{"takes all", func(*ingest.Endpoint) {}},
	{"refuses", (*ingest.Endpoint).Refuse},
	{"freezes", (*ingest.Endpoint).Freeze},
	{"answers 429", func(e *ingest.Endpoint) { e.Fail(ingest.Answer{Status: 429}) }},
	{"answers 500", func(e *ingest.Endpoint) { e.Fail(ingest.Answer{Status: 500}) }},
	{"answers 402", func(e *ingest.Endpoint) { e.Fail(ingest.Answer{Status: 402}) }},
}

const withoutTelemetry = "no telemetry"

// faults measures what an ingestion endpoint that fails does to redirects, to the memory of the process, and to what
// arrives in the end. The service is on its own, where it has the most to tell: each request.
func (b *bench) faults(ctx context.Context) (string, error) {
	var subjects []subject
	for _, f := range failures {
		subjects = append(subjects,
			subject{withoutTelemetry, "", func(ctx context.Context) (values, error) { return b.fault(ctx, nil) }},
			subject{f.name, withoutTelemetry, func(ctx context.Context) (values, error) { return b.fault(ctx, f.fail) }})
	}
	r, err := interleave(ctx, b.faultRounds, subjects)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d rounds of %v each, %d redirects and %d new links a second over %d connections.\n\n", b.faultRounds, b.faultLength, b.rate, b.shortens, b.connections) +
		r.table([]column{
			{head: "p50 ms", value: "p50", digits: 2},
			{head: "p99 ms", value: "p99", digits: 2},
			{head: "p99 to that without", value: "p99", digits: 2, of: ratio, atMost: 1.5},
			{head: "MB at the end", value: "MB", digits: 1},
			{head: "MB more than without", value: "MB", digits: 1, of: difference, atMost: 20},
			{head: "MB at most", value: "most", digits: 1},
			{head: "s until all metrics are there", value: "healed", digits: 1},
			{head: "counts that are off", value: "off", atMost: 0.5},
			{head: "items dropped", value: "dropped"},
			{head: "CPU % of others", value: "others"},
		}), nil
}

// fault puts the service under load while the endpoint fails, and then heals it. Without a way to fail, there is no
// telemetry.
func (b *bench) fault(ctx context.Context, fail func(*ingest.Endpoint)) (values, error) {
	var (
		to   *ingest.Endpoint
		more []string
	)
	if fail != nil {
		to = ingest.Start()
		defer to.Close()
		more = append(more, "APPLICATIONINSIGHTS_CONNECTION_STRING="+to.ConnectionString())
	}
	s, err := b.start(ctx, false, more...)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	s.found += len(b.steady(ctx, s, time.Second).took) // to warm up, and the metrics of this are to arrive
	if fail != nil {
		fail(to)
	}
	made := b.makeLinks(ctx, s, b.faultLength)
	load := b.steady(ctx, s, b.faultLength)
	s.found += len(load.took)
	created, err := made()
	if err = errors.Join(load.err, err, ctx.Err()); err != nil {
		return nil, fmt.Errorf("%d redirects failed: %w", load.failed, err)
	}
	v := values{"p50": load.percentile(50), "p99": load.percentile(99)}
	if v["MB"], v["most"], err = memory(s.cmd.Process.Pid); err != nil {
		return nil, err
	}
	if fail == nil {
		return v, nil
	}

	to.Heal()
	healed := time.Now()
	for {
		got := to.Metrics()
		v["healed"], v["dropped"] = time.Since(healed).Seconds(), got["telemetry.dropped"].Value
		v["off"] = abs(got["redirect.found"].Value-float64(s.found)) + abs(got["shorten.created"].Value-float64(created))
		if v["off"] == 0 || time.Since(healed) > time.Minute || ctx.Err() != nil {
			return v, ctx.Err()
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// makeLinks makes links at a steady rate, each with a handful of calls to storage, until the function that it returns has
// been called and has said how many.
func (b *bench) makeLinks(ctx context.Context, s *service, length time.Duration) func() (created int64, err error) {
	var (
		all      sync.WaitGroup
		created  atomic.Int64
		rejected atomic.Pointer[error]
	)
	all.Go(func() {
		end, every := time.After(length), time.NewTicker(time.Second/time.Duration(b.shortens))
		defer every.Stop()
		for n := 0; ; n++ {
			select {
			case <-every.C:
			case <-end:
				return
			case <-ctx.Done():
				return
			}
			all.Go(func() {
				status, _, err := s.send(http.MethodPost, "/api/shorten", fmt.Sprintf(`{"longUrl":"https://example.com/%d/%d"}`, s.cmd.Process.Pid, n))
				if err == nil && status != http.StatusCreated {
					err = fmt.Errorf("shorten was answered with %d", status)
				}
				if err != nil {
					rejected.Store(&err)
					return
				}
				created.Add(1)
			})
		}
	})
	return func() (int64, error) {
		all.Wait()
		if err := rejected.Load(); err != nil {
			return 0, *err
		}
		return created.Load(), nil
	}
}

func abs(x float64) float64 { return max(x, -x) }
