package reaper_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/reaper"
	"tiney/internal/telemetry"
	"tiney/internal/testing/ingest"
)

// lock is free, or fails with err.
type lock struct{ err error }

func (l lock) Held(context.Context) (bool, error) { return l.err != nil, nil }

func (l lock) Do(ctx context.Context, work func(context.Context) error) error {
	if l.err != nil {
		return l.err
	}
	return work(ctx)
}

type reap func(context.Context) (link.ReapResult, error)

func (r reap) Reap(ctx context.Context) (link.ReapResult, error) { return r(ctx) }

type rollUp func(context.Context) (clicks.RollUpResult, error)

func (r rollUp) RollUp(ctx context.Context) (clicks.RollUpResult, error) { return r(ctx) }

func rollUpNothing(context.Context) (clicks.RollUpResult, error) {
	return clicks.RollUpResult{Complete: true}, nil
}

// runs are the recorded runs.
type runs []link.ReapRun

func (r *runs) Record(_ context.Context, run link.ReapRun) { *r = append(*r, run) }

func (r *runs) Stats(context.Context) (stats link.ReapStats, err error) {
	for _, run := range *r {
		stats.Add(run)
	}
	return stats, nil
}

func TestRun(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	untilStopped := func(ctx context.Context) (link.ReapResult, error) {
		<-ctx.Done()
		return link.ReapResult{Deleted: 2}, context.Cause(ctx)
	}
	reapThree := func(context.Context) (link.ReapResult, error) {
		return link.ReapResult{Deleted: 3, Dropped: 2, Failed: 1, Backlog: time.Hour,
			Complete: true}, nil
	}
	for name, test := range map[string]struct {
		result   string
		lock     error
		rollUp   rollUp
		reap     reap
		stopping context.Context
		summary  string
		failed   bool
		line     string          // of the log
		recorded *link.ReapStats // nil: nothing
	}{
		"done": {
			result: telemetry.ResultDone, reap: reapThree,
			summary: "deleted 3 links and 2 expiry rows without a link, failed at 1, " +
				"complete: true",
			line:     `"INFO","msg":"reaper: done"`,
			recorded: &link.ReapStats{DeletedTotal: 3, Successful: 1},
		},
		"storage is down": {
			result: telemetry.ResultFailed, reap: func(context.Context) (link.ReapResult, error) {
				return link.ReapResult{}, link.ErrUnavailable
			},
			failed: true, line: `"ERROR","msg":"` + telemetry.LogReaperFailed,
			recorded: &link.ReapStats{Failed: 1},
		},
		"the lock is unknown": {
			result: telemetry.ResultFailed, lock: link.ErrUnavailable,
			failed: true, line: `"ERROR","msg":"` + telemetry.LogReaperFailed,
			recorded: &link.ReapStats{Failed: 1},
		},
		"the roll-up fails": {
			result: telemetry.ResultFailed, reap: reapThree,
			rollUp: func(context.Context) (clicks.RollUpResult, error) {
				return clicks.RollUpResult{}, link.ErrUnavailable
			},
			failed: true, line: `"ERROR","msg":"` + telemetry.LogClicksNotRolledUp,
			recorded: &link.ReapStats{DeletedTotal: 3, Failed: 1},
		},
		"the roll-up panics": {
			result: telemetry.ResultFailed, reap: reapThree,
			rollUp: func(context.Context) (clicks.RollUpResult, error) { panic("a bug") },
			failed: true, line: `"ERROR","msg":"` + telemetry.LogClicksNotRolledUp,
			recorded: &link.ReapStats{DeletedTotal: 3, Failed: 1},
		},
		"held": {
			result: telemetry.ResultHeld, lock: link.ErrLockHeld,
			summary: "another instance is reaping", failed: true, line: `"INFO"`,
		},
		"stopped": {
			result: telemetry.ResultStopped, reap: untilStopped, stopping: stopped,
			summary: "stopped with the process", line: `"INFO"`,
			recorded: &link.ReapStats{DeletedTotal: 2, Successful: 1},
		},
		"stopped in the roll-up": {
			result: telemetry.ResultStopped, reap: untilStopped, stopping: stopped,
			summary: "stopped with the process", line: `"INFO"`,
			rollUp: func(ctx context.Context) (clicks.RollUpResult, error) {
				<-ctx.Done()
				return clicks.RollUpResult{}, context.Cause(ctx)
			},
			recorded: &link.ReapStats{DeletedTotal: 2, Successful: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			result := test.result
			e := ingest.Start()
			defer e.Close()
			to, err := telemetry.ParseConnection(e.ConnectionString())
			if err != nil {
				t.Fatal(err)
			}
			metrics := new(telemetry.Metrics)
			metrics.ReaperBacklogAge.Set(99)
			sender := telemetry.Start(telemetry.Config{Connection: to,
				Metrics: new(telemetry.Metrics), SamplingPercent: 100, Hosted: true,
				Log: slog.New(slog.DiscardHandler)})
			var log strings.Builder
			var recorded runs
			rp := &reaper.Reaper{Lock: lock{test.lock}, Links: test.reap,
				Clicks: rollUp(rollUpNothing), Runs: &recorded, Limit: time.Minute,
				Stopping: t.Context(), Metrics: metrics, Sender: sender,
				Log: telemetry.NewLogger(&log, slog.LevelInfo)}
			if test.rollUp != nil {
				rp.Clicks = test.rollUp
			}
			if test.stopping != nil {
				rp.Stopping = test.stopping
			}
			operation := telemetry.Begin(t.Context(), "reaper", nil, true)
			summary, err := rp.Run(&operation)
			if summary != test.summary || (err != nil) != test.failed {
				t.Errorf("got %q, %v", summary, err)
			}
			if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 1 ||
				!strings.Contains(lines[0], `"level":`+test.line) {
				t.Errorf("logged %q", lines)
			}
			if test.recorded == nil != (len(recorded) == 0) {
				t.Errorf("recorded %+v", recorded)
			} else if len(recorded) > 0 {
				stats, err := rp.Stats(t.Context())
				if stats.Last.At.IsZero() || stats.Took != stats.Last.Took ||
					stats.Last.Deleted != stats.DeletedTotal ||
					stats.Running != (test.lock != nil) {
					t.Errorf("recorded %+v", stats)
				}
				stats.Last, stats.Took, stats.Running = link.ReapRun{}, 0, false
				if err != nil || stats != *test.recorded {
					t.Errorf("recorded %+v, %v, want %+v", stats, err, *test.recorded)
				}
			}
			// A run that does not know the backlog leaves the metric as it was.
			backlog := int64(99)
			if test.recorded != nil && test.recorded.DeletedTotal == 3 {
				backlog = 3600
			}
			if got := metrics.ReaperBacklogAge.Value(); got != backlog {
				t.Errorf("the backlog is %d", got)
			}
			sender.Close(time.Minute)
			events := e.Items("EventData")
			if len(events) != 1 {
				t.Fatalf("%d events, want 1", len(events))
			}
			d := events[0].Data.BaseData
			if d.Name != "ReaperRun" || d.Properties["Result"] != result ||
				d.Properties["Complete"] != fmt.Sprint(d.Measurements["Deleted"] == 3) ||
				events[0].Operation() != operation.ID() ||
				events[0].Tags["ai.operation.name"] != "reaper" {
				t.Errorf("got %+v in %s", d, events[0].Operation())
			}
			for _, name := range []string{"Deleted", "Dropped", "Failed", "BacklogSeconds",
				"DurationMs"} {
				if _, there := d.Measurements[name]; !there {
					t.Errorf("%s is missing", name)
				}
			}
		})
	}
}

// The roll-up gets at most half of a run's time, and the links get the rest. Running out of time is
// not a failure.
func TestRunSharesItsTime(t *testing.T) {
	for name, test := range map[string]struct{ rollUp, reap time.Duration }{
		"both take long":    {time.Hour, 2 * time.Minute},
		"a fast roll-up":    {time.Second, 4*time.Minute - time.Second},
		"a roll-up of half": {2*time.Minute - time.Second, 2*time.Minute + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var rolled, reaped time.Duration
				untilEnd := func(ctx context.Context, longest time.Duration) time.Duration {
					start := time.Now()
					select {
					case <-ctx.Done():
					case <-time.After(longest):
					}
					return time.Since(start)
				}
				rp := &reaper.Reaper{Lock: lock{}, Runs: new(runs), Limit: 4 * time.Minute,
					Stopping: t.Context(),
					Metrics:  new(telemetry.Metrics), Log: slog.New(slog.DiscardHandler),
					Clicks: rollUp(func(ctx context.Context) (clicks.RollUpResult, error) {
						rolled = untilEnd(ctx, test.rollUp)
						return clicks.RollUpResult{}, nil
					}),
					Links: reap(func(ctx context.Context) (link.ReapResult, error) {
						reaped = untilEnd(ctx, time.Hour)
						return link.ReapResult{}, nil
					}),
				}
				if _, err := rp.Run(t.Context()); err != nil ||
					rolled != min(test.rollUp, 2*time.Minute) || reaped != test.reap {
					t.Errorf("rolled up for %v, reaped for %v, want %v; %v", rolled, reaped,
						test.reap, err)
				}
			})
		})
	}
}
