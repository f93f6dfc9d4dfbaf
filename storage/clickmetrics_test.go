package storage_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/internal/testing/faultproxy"
)

// TestFlushesAreMeasured: not while nothing is counted, or an idle process would send metrics. The
// first that fails in an outage is logged, and it may have run out of time; one that is cancelled
// is not.
func TestFlushesAreMeasured(t *testing.T) {
	r := newRig(t)
	var log bytes.Buffer
	r.config.Log = slog.New(slog.NewTextHandler(&log, nil))
	s := r.open(nil)
	flush := func(ctx context.Context, flushes int64, age float64, logged int) {
		t.Helper()
		log.Reset()
		_ = s.Clicks.Flush(ctx) // what it returns is tested elsewhere
		var got []telemetry.Sample
		for _, m := range r.metrics.Take() {
			if m.Name == "clicks.flush_ms" && m.Count == flushes || m.Name == "clicks.age_s" &&
				m.Sum == age {
				got = append(got, m)
			}
		}
		if len(got) != int(2*flushes) {
			t.Errorf("metrics %+v, want %d flushes, and an age of %v s", got, flushes, age)
		}
		if n := strings.Count(log.String(), telemetry.LogClicksNotSaved); n != logged {
			t.Errorf("logged %d times, want %d: %s", n, logged, log.String())
		}
	}
	flush(ctx, 0, 0, 0)

	s.Clicks.Click(link.Link{Name: "abc123"}, clicks.Click{At: r.clock.Now()})
	stopped, cancel := context.WithCancel(hasty)
	cancel()
	flush(stopped, 1, 0, 0)

	r.proxy.Before(faultproxy.On("SubmitTransaction", r.Day(r.clock.Now()), faultproxy.Freeze))
	r.clock.Advance(10 * time.Second)
	brief, cancel := context.WithTimeout(hasty, 100*time.Millisecond)
	defer cancel()
	flush(brief, 1, 10, 1)

	r.proxy.Before(faultproxy.On("SubmitTransaction", r.Day(r.clock.Now()), faultproxy.Refuse))
	r.clock.Advance(10 * time.Second)
	flush(ctx, 1, 20, 0)

	r.proxy.Before(nil)
	flush(ctx, 1, 0, 0)
}
