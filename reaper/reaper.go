// Package reaper is the work that runs by the clock: it deletes expired links, in one process at a time. Behind the
// Functions host, a timer trigger runs it; without the host, it has a schedule of its own.
package reaper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"tiney/link"
	"tiney/telemetry"
)

// Locker keeps instances from doing the same work. Do runs work while it holds the lock and ends work's context if it
// loses it. If another instance holds the lock, it returns link.ErrLockHeld.
type Locker interface {
	Do(ctx context.Context, work func(context.Context) error) error
}

// Links are what is reaped. Reap deletes what has expired, as far as its time allows, and does no harm if two run at
// once. The error is link.ErrUnavailable or the cause of the end of ctx.
type Links interface {
	Reap(ctx context.Context) (link.ReapResult, error)
}

// Reaper deletes expired links. Every field is required unless it says otherwise.
type Reaper struct {
	Lock  Locker
	Links Links
	// Stopping ends when the process is about to: a run ends then too, and releases the lock.
	Stopping context.Context
	Log      *slog.Logger
	Metrics  *telemetry.Metrics
	Sender   *telemetry.Sender // gets an event for each run; nil disables it
}

var errStopping = errors.New("the process is stopping")

// Run reaps once and returns a summary in words. The error is link.ErrLockHeld if another instance is reaping.
func (rp *Reaper) Run(ctx context.Context) (summary string, err error) {
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(rp.Stopping, func() { cancel(errStopping) })()
	var done link.ReapResult
	err = rp.Lock.Do(ctx, func(ctx context.Context) (err error) {
		done, err = rp.Links.Reap(ctx)
		return err
	})
	took := time.Since(start)
	if errors.Is(err, link.ErrLockHeld) {
		const held = "another instance is reaping"
		rp.Log.Info("reaper: " + held)
		rp.report(ctx, telemetry.ResultHeld, done, took)
		return held, err
	}
	rp.Metrics.ReaperDeleted.Add(done.Deleted)
	rp.Metrics.ReaperFailed.Add(done.Failed)
	rp.Metrics.ReaperDuration.Observe(took)
	if done.Complete || done.Backlog > 0 {
		rp.Metrics.ReaperBacklogAge.Set(int64(done.Backlog / time.Second)) // otherwise the run knows nothing of it
	}
	log := rp.Log.With("deleted", done.Deleted, "dropped", done.Dropped, "failed", done.Failed,
		"backlogSeconds", int64(done.Backlog/time.Second), "complete", done.Complete, "ms", took.Milliseconds())
	switch {
	case err != nil && errors.Is(context.Cause(ctx), errStopping):
		log.Info("reaper: stopped with the process")
		rp.report(ctx, telemetry.ResultStopped, done, took)
		return "stopped with the process", nil
	case err != nil:
		log.Error(telemetry.LogReaperFailed, "error", err)
		rp.report(ctx, telemetry.ResultFailed, done, took)
		return "", err
	}
	log.Info("reaper: done")
	rp.report(ctx, telemetry.ResultDone, done, took)
	return fmt.Sprintf("deleted %d links and %d expiry rows without a link, failed at %d, complete: %t",
		done.Deleted, done.Dropped, done.Failed, done.Complete), nil
}

func (rp *Reaper) report(ctx context.Context, result string, done link.ReapResult, took time.Duration) {
	rp.Sender.Event(ctx, telemetry.Event{
		Name: telemetry.EventReaperRun,
		Properties: map[string]string{
			telemetry.PropertyResult:   result,
			telemetry.PropertyComplete: strconv.FormatBool(done.Complete),
		},
		Measurements: map[string]float64{
			telemetry.MeasurementDeleted:  float64(done.Deleted),
			telemetry.MeasurementDropped:  float64(done.Dropped),
			telemetry.MeasurementFailed:   float64(done.Failed),
			telemetry.MeasurementBacklog:  done.Backlog.Seconds(),
			telemetry.MeasurementDuration: float64(took.Milliseconds()),
		},
	})
}
