package functions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/robfig/cron/v3"

	"tiney/link"
	"tiney/telemetry"
)

const (
	// reapSoonAfter is how long after the start of a process of its own the first run is: a reaper that was down has
	// something to catch up with, and the first requests go before it.
	reapSoonAfter = 2 * time.Second
	// reapAgainAfter is when a first run that found the lock held tries again: by then the lock of a process that was
	// killed, most likely this one's predecessor, has run out.
	reapAgainAfter = 65 * time.Second
)

// Reaper takes expired links away, one process at a time.
type Reaper struct {
	// Lock keeps other instances from doing the same work. Do runs work while it holds the lock and ends work's
	// context if it loses it, or returns link.ErrLockHeld.
	Lock interface {
		Do(ctx context.Context, work func(context.Context) error) error
	}
	// Links are what is reaped. Reap takes away what has expired, as far as its time allows; it does no harm where it
	// runs twice at once. The error is link.ErrUnavailable or the cause of the end of ctx.
	Links interface {
		Reap(ctx context.Context) (link.Reaped, error)
	}
	// Stopping ends when the process is about to: a run ends then too, and gives its lock back.
	Stopping context.Context
	Log      *slog.Logger
	Metrics  *telemetry.Metrics
	Sender   *telemetry.Sender // gets an event for each run; nil: nobody does
}

var errStopping = errors.New("the process is stopping")

// Run reaps once and says in words what came of it. That another instance holds the lock is link.ErrLockHeld.
func (rp *Reaper) Run(ctx context.Context) (string, error) {
	start := time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(rp.Stopping, func() { cancel(errStopping) })()
	var done link.Reaped
	err := rp.Lock.Do(ctx, func(ctx context.Context) (err error) {
		done, err = rp.Links.Reap(ctx)
		return err
	})
	if errors.Is(err, link.ErrLockHeld) {
		const held = "another instance is reaping"
		rp.Log.Info("reaper: " + held)
		rp.report(ctx, telemetry.ResultHeld, done, time.Since(start))
		return held, err
	}
	took := time.Since(start)
	rp.Metrics.ReaperDeleted.Add(done.Deleted)
	rp.Metrics.ReaperFailed.Add(done.Failed)
	rp.Metrics.ReaperDuration.Observe(took)
	if done.Complete || done.Backlog > 0 {
		rp.Metrics.ReaperBacklogAge.Set(int64(done.Backlog / time.Second)) // else the run knows nothing of it
	}
	line := rp.Log.With("deleted", done.Deleted, "dropped", done.Dropped, "failed", done.Failed,
		"backlogSeconds", int64(done.Backlog/time.Second), "complete", done.Complete, "ms", took.Milliseconds())
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		line.Info("reaper: stopped with the process")
		rp.report(ctx, telemetry.ResultStopped, done, took)
		return "stopped with the process", nil
	}
	if err != nil {
		line.Error("reaper: the run was cut short", "error", err)
		rp.report(ctx, telemetry.ResultFailed, done, took)
		return "", err
	}
	line.Info("reaper: done")
	rp.report(ctx, telemetry.ResultDone, done, took)
	return fmt.Sprintf("deleted %d links and %d expiry rows without a link, failed at %d, complete: %t",
		done.Deleted, done.Dropped, done.Failed, done.Complete), nil
}

func (rp *Reaper) report(ctx context.Context, result string, done link.Reaped, took time.Duration) {
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

// answer is the timer trigger: the Functions host posts here when it is time. It takes a run that fails for a failed
// invocation, and a lock that is held for a quiet one.
func (rp *Reaper) answer(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r)
	if err != nil {
		return err
	}
	var invocation struct {
		Data struct{ Timer struct{ IsPastDue bool } }
	}
	if err := json.Unmarshal(body, &invocation); err != nil {
		return badRequest("body", "The body is not as expected", "The body must be a timer's invocation, as the Functions host sends it.", "")
	}
	if invocation.Data.Timer.IsPastDue {
		rp.Log.Info("reaper: this run is late, an earlier one was missed")
	}
	// A run may take minutes, and the server's time limits are for requests: the one for reading would end this
	// request's context.
	conn := http.NewResponseController(w)
	if err := errors.Join(conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{})); err != nil {
		return fmt.Errorf("lifting the time limits of a reaper's run: %w", err)
	}
	said, err := rp.Run(ctx)
	if err != nil && !errors.Is(err, link.ErrLockHeld) {
		return err
	}
	setHeaders(w, "application/json")
	// All three are there: the host waits for the outputs until its time limit where it gets an empty object.
	writeJSON(w, struct {
		Outputs     struct{}
		Logs        []string
		ReturnValue any
	}{Logs: []string{said}})
	return nil
}

// RunOnSchedule reaps until Stopping ends: soon after it is called, and then at the times that function.json gives to the
// Functions host, in UTC as the host has it. It is for a process without that host. It returns an error at once if it
// cannot read the schedule.
func (rp *Reaper) RunOnSchedule(now func() time.Time) error {
	schedule, err := reaperSchedule()
	if err != nil {
		return err
	}
	wait := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-rp.Stopping.Done():
			return false
		}
	}
	if !wait(reapSoonAfter) {
		return nil
	}
	if err := rp.runAlone(); errors.Is(err, link.ErrLockHeld) {
		if !wait(reapAgainAfter) {
			return nil
		}
		_ = rp.runAlone() // logged there
	}
	for {
		at := now().UTC()
		if !wait(schedule.Next(at).Sub(at)) {
			return nil
		}
		_ = rp.runAlone()
	}
}

// runAlone runs without a host, and reports the run as the host does where it is one.
func (rp *Reaper) runAlone() error {
	operation := telemetry.Begin(context.Background(), "reaper", nil, false) // Run minds Stopping
	start := time.Now()
	_, err := rp.Run(&operation)
	rp.Sender.Request(&operation, telemetry.Request{
		Success: err == nil || errors.Is(err, link.ErrLockHeld), Start: start, Duration: time.Since(start),
	})
	return err
}

func reaperSchedule() (cron.Schedule, error) {
	all, err := bindings("reaper")
	if err != nil {
		return nil, err
	}
	for _, b := range all {
		if b.Type == "timerTrigger" {
			// The host's six fields: seconds come first.
			parser := cron.NewParser(cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
			return parser.Parse(b.Schedule)
		}
	}
	return nil, errors.New("reaper/function.json has no timer")
}
