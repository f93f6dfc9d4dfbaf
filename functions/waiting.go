package functions

import (
	"context"
	"sync"
	"time"
)

const (
	// waitTime is how long a request waits for storage, for all its calls together.
	waitTime = 5 * time.Second
	// manyTime is the time after which a request for many links begins no further link. Each link
	// has a waitTime of its own. With that, and a second to repair, the response is written within
	// the server's 30 s.
	manyTime = 20 * time.Second
)

// waiting is the context of a request. It ends when the request's time is over. The time begins
// when the request is routed, stands still while the client sends the body, and is over after
// manyTime in any case.
//
// It does not end when the client disconnects. Otherwise a stranger could break off requests to ask
// for any number of aliases: a look-up that does not end counts for no limit, and its link is
// cached all the same. And it would look as if storage failed.
//
// Most redirects wait for nothing, so waiting makes a timer only when it is asked for one.
type waiting struct {
	context.Context // of the operation

	mu          sync.Mutex
	end, latest time.Time
	timed       context.Context // nil without a timer
	cancel      context.CancelFunc
}

// begin starts the time, which is over after limit.
func (w *waiting) begin(ctx context.Context, limit time.Duration) {
	now := time.Now()
	w.Context, w.end, w.latest = ctx, now.Add(limit), now.Add(manyTime)
}

// stop ends the context with its request.
func (w *waiting) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timed != nil {
		w.cancel()
	}
}

// putOff puts the end off by a duration, and stops the timer. This ends all contexts that were made
// from this one before.
func (w *waiting) putOff(by time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timed != nil {
		w.cancel()
		w.timed = nil
	}
	if w.end = w.end.Add(by); w.end.After(w.latest) {
		w.end = w.latest
	}
}

func (w *waiting) timer() context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timed == nil {
		w.timed, w.cancel = context.WithDeadline(context.WithoutCancel(w.Context), w.end)
	}
	return w.timed
}

// Deadline returns when the time is over.
func (w *waiting) Deadline() (time.Time, bool) { return w.timer().Deadline() }

// Done returns a channel that is closed when the time is over.
func (w *waiting) Done() <-chan struct{} { return w.timer().Done() }

// Err returns why the context has ended.
func (w *waiting) Err() error { return w.timer().Err() }

// Value returns the values of the operation. If there is a timer, Value asks the timer. Package
// context then sees that a context made from this one needs no goroutine of its own.
func (w *waiting) Value(key any) any {
	w.mu.Lock()
	ctx := w.timed
	w.mu.Unlock()
	if ctx == nil {
		ctx = w.Context
	}
	return ctx.Value(key)
}
