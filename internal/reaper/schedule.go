package reaper

import (
	"context"
	"errors"
	"time"

	"tiney/internal/link"
	"tiney/internal/telemetry"
)

const (
	// firstAfter is how long after the start of a process its first run begins. That is after the
	// first requests, but soon, because a reaper that was down has work to catch up with.
	firstAfter = 2 * time.Second
	// againAfter is how long after a first run that found the lock held the next one begins. By
	// then, if a killed process held the lock, most likely this one's predecessor, its lease has
	// run out.
	againAfter = 65 * time.Second
)

// RunRegularly reaps soon after it is called, and then whenever the time in UTC is a multiple of
// every, until Stopping ends. It is for a process without the Functions host.
func (rp *Reaper) RunRegularly(every time.Duration, now func() time.Time) {
	wait := firstAfter
	for first := true; ; first = false {
		select {
		case <-time.After(wait):
		case <-rp.Stopping.Done():
			return
		}
		err := rp.runAndReport() // logged by Run
		at := now()
		wait = at.Truncate(every).Add(every).Sub(at)
		if first && errors.Is(err, link.ErrLockHeld) {
			wait = againAfter
		}
	}
}

// runAndReport runs once and reports the run as a request, as the Functions host does for its
// invocations.
func (rp *Reaper) runAndReport() error {
	// The context need not end: Run respects Stopping.
	operation := telemetry.Begin(context.Background(), "reaper", nil, false)
	start := time.Now()
	_, err := rp.Run(&operation)
	rp.Sender.Request(&operation, telemetry.Request{
		Success: err == nil || errors.Is(err, link.ErrLockHeld), Start: start,
		Duration: time.Since(start),
	})
	return err
}
