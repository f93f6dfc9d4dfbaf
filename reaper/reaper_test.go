package reaper_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tiney/clicks"
	"tiney/internal/ingest"
	"tiney/link"
	"tiney/reaper"
	"tiney/telemetry"
)

// lock is free, or fails with err.
type lock struct{ err error }

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

func TestRun(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	untilStopped := func(ctx context.Context) (link.ReapResult, error) {
		<-ctx.Done()
		return link.ReapResult{Deleted: 2}, context.Cause(ctx)
	}
	for result, test := range map[string]struct {
		lock     error
		reap     reap
		stopping context.Context
		summary  string
		failed   bool
		level    string
	}{
		telemetry.ResultDone: {
			reap: func(context.Context) (link.ReapResult, error) {
				return link.ReapResult{Deleted: 3, Dropped: 2, Failed: 1, Backlog: time.Hour, Complete: true}, nil
			},
			summary: "deleted 3 links and 2 expiry rows without a link, failed at 1, complete: true", level: "INFO",
		},
		telemetry.ResultFailed: {
			reap:   func(context.Context) (link.ReapResult, error) { return link.ReapResult{}, link.ErrUnavailable },
			failed: true, level: "ERROR",
		},
		telemetry.ResultHeld:    {lock: link.ErrLockHeld, summary: "another instance is reaping", failed: true, level: "INFO"},
		telemetry.ResultStopped: {reap: untilStopped, stopping: stopped, summary: "stopped with the process", level: "INFO"},
	} {
		t.Run(result, func(t *testing.T) {
			e := ingest.Start()
			defer e.Close()
			to, err := telemetry.ParseConnection(e.ConnectionString())
			if err != nil {
				t.Fatal(err)
			}
			metrics := new(telemetry.Metrics)
			metrics.ReaperBacklogAge.Set(99)
			sender := telemetry.Start(telemetry.Config{Connection: to, Metrics: new(telemetry.Metrics), SamplingPercent: 100, Hosted: true, Log: slog.New(slog.DiscardHandler)})
			var log strings.Builder
			rp := &reaper.Reaper{Lock: lock{test.lock}, Links: test.reap, Clicks: rollUp(rollUpNothing), Limit: time.Minute, Stopping: t.Context(), Metrics: metrics, Sender: sender,
				Log: telemetry.NewLogger(&log, slog.LevelInfo)}
			if test.stopping != nil {
				rp.Stopping = test.stopping
			}
			operation := telemetry.Begin(t.Context(), "reaper", nil, true)
			summary, err := rp.Run(&operation)
			if summary != test.summary || (err != nil) != test.failed {
				t.Errorf("got %q, %v", summary, err)
			}
			if lines := strings.Split(strings.TrimSpace(log.String()), "\n"); len(lines) != 1 || !strings.Contains(lines[0], `"level":"`+test.level+`"`) {
				t.Errorf("logged %q", lines)
			}
			// A run that knows nothing of the backlog leaves what is known of it.
			if got := metrics.ReaperBacklogAge.Value(); got != 99 && result != telemetry.ResultDone || got != 3600 && result == telemetry.ResultDone {
				t.Errorf("the backlog is %d", got)
			}
			sender.Close(time.Minute)
			events := e.Items("EventData")
			if len(events) != 1 {
				t.Fatalf("%d events, want 1", len(events))
			}
			d := events[0].Data.BaseData
			if d.Name != "ReaperRun" || d.Properties["Result"] != result || d.Properties["Complete"] != fmt.Sprint(result == telemetry.ResultDone) ||
				events[0].Operation() != operation.ID() || events[0].Tags["ai.operation.name"] != "reaper" {
				t.Errorf("got %+v in %s", d, events[0].Operation())
			}
			for _, name := range []string{"Deleted", "Dropped", "Failed", "BacklogSeconds", "DurationMs"} {
				if _, there := d.Measurements[name]; !there {
					t.Errorf("%s is missing", name)
				}
			}
		})
	}
}
