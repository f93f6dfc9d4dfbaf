// Package reaper does the work that runs by the clock: it rolls up clicks and deletes expired
// links. It runs in one process at a time. Behind the Functions host, a timer trigger runs it.
// Without the host, it has a schedule of its own.
package reaper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strconv"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
)

// Locker keeps instances from doing the same work at the same time.
type Locker interface {
	// Do runs work while it holds the lock. It ends work's context if it loses the lock. If another
	// instance holds the lock, Do returns link.ErrLockHeld.
	Do(ctx context.Context, work func(context.Context) error) error
	// Held reports whether some instance holds the lock. Error: link.ErrUnavailable.
	Held(ctx context.Context) (bool, error)
}

// Links are the links to reap. Reap deletes expired links and stops when the deadline of ctx
// passes, which is not an error. Two concurrent calls do no harm. The error is link.ErrUnavailable,
// or the cause if ctx was canceled.
type Links interface {
	Reap(ctx context.Context) (link.ReapResult, error)
}

// Clicks are the clicks to roll up. RollUp adds the counts of days that are over to the totals of
// their links. Deadlines, concurrent calls and errors are as with Reap.
type Clicks interface {
	RollUp(ctx context.Context) (clicks.RollUpResult, error)
}

// Runs keeps statistics of the runs of all instances.
type Runs interface {
	// Record adds a run, even if ctx has ended. If that fails, it adds the run after the next one.
	Record(ctx context.Context, r link.ReapRun)
	// Stats returns the statistics. Error: link.ErrUnavailable.
	Stats(ctx context.Context) (link.ReapStats, error)
}

// Reaper deletes expired links. Every field is required unless it says otherwise.
type Reaper struct {
	Lock   Locker
	Links  Links
	Clicks Clicks
	Runs   Runs
	Limit  time.Duration // how long a run may take; the roll-up gets at most half of it
	// Stopping ends when the process is about to end. A run then ends too, and releases the lock.
	Stopping context.Context
	Log      *slog.Logger
	Metrics  *telemetry.Metrics
	Sender   *telemetry.Sender // gets an event for each run; nil disables it
}

var errStopping = errors.New("the process is stopping")

// Run rolls up and reaps once, and returns a summary in words. The error is link.ErrLockHeld if
// another instance is reaping.
func (rp *Reaper) Run(ctx context.Context) (summary string, err error) {
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(rp.Stopping, func() { cancel(errStopping) })()
	var (
		done   link.ReapResult
		rolled clicks.RollUpResult
		open   error // why clicks are not rolled up
	)
	err = rp.Lock.Do(ctx, func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, rp.Limit)
		defer cancel()
		rolled, open = rp.rollUp(ctx)
		done, err = rp.Links.Reap(ctx)
		return err
	})
	took := time.Since(start)
	result := telemetry.ResultDone
	defer func() { rp.report(ctx, result, done, took) }()
	if errors.Is(err, link.ErrLockHeld) {
		const held = "another instance is reaping"
		rp.Log.Info("reaper: " + held)
		result = telemetry.ResultHeld
		return held, err
	}
	rp.Metrics.ReaperDeleted.Add(done.Deleted)
	rp.Metrics.ReaperFailed.Add(done.Failed)
	rp.Metrics.ReaperDuration.Observe(took)
	if done.Complete || done.Backlog > 0 {
		// Otherwise the run does not know the backlog.
		rp.Metrics.ReaperBacklogAge.Set(int64(done.Backlog / time.Second))
	}
	message := telemetry.LogReaperFailed
	if err == nil {
		message = telemetry.LogClicksNotRolledUp
	}
	err = errors.Join(err, open)
	stopped := err != nil && errors.Is(context.Cause(ctx), errStopping)
	rp.Runs.Record(ctx, link.ReapRun{At: start, Took: took, Deleted: done.Deleted,
		Failed: err != nil && !stopped})
	log := rp.Log.With("deleted", done.Deleted, "dropped", done.Dropped, "failed", done.Failed,
		"backlogSeconds", int64(done.Backlog/time.Second), "rolledUp", rolled.Added, "complete",
		done.Complete, "ms", took.Milliseconds())
	switch {
	case stopped:
		log.Info("reaper: stopped with the process")
		result = telemetry.ResultStopped
		return "stopped with the process", nil
	case err != nil:
		log.Error(message, "error", err)
		result = telemetry.ResultFailed
		return "", err
	}
	log.Info("reaper: done")
	return fmt.Sprintf("deleted %d links and %d expiry rows without a link, failed at %d, "+
		"complete: %t",
		done.Deleted, done.Dropped, done.Failed, done.Complete), nil
}

// rollUp rolls up the clicks. It turns a panic into an error, so that links are reaped whatever
// goes wrong.
func (rp *Reaper) rollUp(ctx context.Context) (done clicks.RollUpResult, err error) {
	ctx, cancel := context.WithTimeout(ctx, rp.Limit/2)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return rp.Clicks.RollUp(ctx)
}

// Stats returns the statistics of the runs of all instances. Error: link.ErrUnavailable.
func (rp *Reaper) Stats(ctx context.Context) (link.ReapStats, error) {
	stats, err := rp.Runs.Stats(ctx)
	if err == nil {
		stats.Running, err = rp.Lock.Held(ctx)
	}
	return stats, err
}

func (rp *Reaper) report(ctx context.Context, result string, done link.ReapResult,
	took time.Duration) {
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
