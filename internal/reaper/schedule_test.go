package reaper_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tiney/internal/link"
	"tiney/internal/reaper"
	"tiney/internal/telemetry"
)

type reaps struct {
	start time.Time
	at    []time.Duration
}

func (r *reaps) Reap(context.Context) (link.ReapResult, error) {
	r.at = append(r.at, time.Since(r.start))
	return link.ReapResult{Complete: true}, nil
}

// In the bubble of synctest, time starts at midnight UTC on 1 January 2000.
func TestRunRegularly(t *testing.T) {
	for name, test := range map[string]struct {
		held []bool // by run: whether another instance holds the lock
		want []time.Duration
	}{
		"free": {nil, []time.Duration{2 * time.Second, 15 * time.Minute,
			30 * time.Minute, 45 * time.Minute}},
		"held at the start": {[]bool{true}, []time.Duration{67 * time.Second, 15 * time.Minute,
			30 * time.Minute, 45 * time.Minute}},
		"held for longer": {[]bool{true, true}, []time.Duration{15 * time.Minute,
			30 * time.Minute, 45 * time.Minute}},
		"held at another time": {[]bool{false, true}, []time.Duration{2 * time.Second,
			30 * time.Minute, 45 * time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &reaps{start: time.Now()}
				lock := &scriptedLock{held: test.held}
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour-time.Second)
				defer cancel()
				rp := &reaper.Reaper{Lock: lock, Links: r, Clicks: rollUp(rollUpNothing),
					Runs: new(runs), Limit: time.Minute, Stopping: ctx,
					Log: slog.New(slog.DiscardHandler), Metrics: new(telemetry.Metrics)}
				rp.RunRegularly(15*time.Minute, time.Now)
				if !slices.Equal(r.at, test.want) {
					t.Errorf("ran at %v, want %v", r.at, test.want)
				}
			})
		})
	}
}

type scriptedLock struct {
	lock
	held []bool
}

func (l *scriptedLock) Do(ctx context.Context, work func(context.Context) error) error {
	if len(l.held) > 0 {
		held := l.held[0]
		l.held = l.held[1:]
		if held {
			return link.ErrLockHeld
		}
	}
	return work(ctx)
}
