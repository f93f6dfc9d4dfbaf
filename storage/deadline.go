package storage

import (
	"context"
	"fmt"
	"time"

	"tiney/link"
)

// deadline is the time until which an operation may write.
type deadline struct {
	at  time.Time // wall clock
	now func() time.Time
}

// startWrite begins an operation that writes. It ends in the time that ctx has left, Timeout at
// most, but a client that disconnects does not cut it short, which would leave things half done.
func (c *Config) startWrite(ctx context.Context) (deadline, context.Context, context.CancelFunc) {
	left := c.Timeout
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	return deadline{c.Now().Round(0).Add(left), c.Now}, ctx, cancel
}

// inTime returns an error if the operation must not write any more. The context's deadline alone
// would not do: a process that was stopped and resumed may send a write before its timers run.
func (d deadline) inTime() error {
	// Round(0) leaves wall clock time: the monotonic clock stands still while a machine is
	// suspended.
	if now := d.now().Round(0); now.After(d.at) {
		return fmt.Errorf("%w: the time for it is over", link.ErrUnavailable)
	}
	return nil
}

// stopped reports whether the process stood still in the middle of the operation, for so long that
// a reaper may have come between two of its writes. Those whose time is merely over need no repair.
func (d deadline) stopped() bool { return d.now().Round(0).After(d.at.Add(stoppedAfter)) }

// stoppedAfter, with Timeout and the half minute between clocks, is less than a link's shortest
// life.
const stoppedAfter = 15 * time.Second
