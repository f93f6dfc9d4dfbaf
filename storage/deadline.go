package storage

import (
	"context"
	"fmt"
	"time"

	"tiney/internal/link"
)

// deadline is the time until which an operation may write.
type deadline struct {
	at  time.Time // wall clock
	now func() time.Time
}

// startWrite begins an operation that writes. The operation ends in the time that ctx has left,
// Timeout at most. A client that disconnects does not cut it short, since that would leave things
// half done.
func (c *Config) startWrite(ctx context.Context) (deadline, context.Context, context.CancelFunc) {
	left := c.Timeout
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	return deadline{c.Now().Round(0).Add(left), c.Now}, ctx, cancel
}

// inTime returns an error if the operation must not write any more. The context's deadline alone is
// not enough: a process that was stopped and resumed may send a write before its timers run.
func (d deadline) inTime() error {
	// Round(0) leaves only the wall clock time: the monotonic clock stands still while a machine is
	// suspended.
	if now := d.now().Round(0); now.After(d.at) {
		return fmt.Errorf("%w: the time for it is over", link.ErrUnavailable)
	}
	return nil
}

// stopped reports whether the process stood still in the middle of the operation for so long that a
// reaper may have come between two of its writes. An operation whose time is merely over needs no
// repair.
func (d deadline) stopped() bool { return d.now().Round(0).After(d.at.Add(stoppedAfter)) }

// lateTime gives an operation whose time is over a second more, for what repairs it.
func lateTime(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), time.Second)
}

// stoppedAfter plus Timeout plus the half minute by which clocks may differ is less than the
// shortest life of a link.
const stoppedAfter = 15 * time.Second
