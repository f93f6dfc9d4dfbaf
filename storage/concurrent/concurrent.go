// Package concurrent runs calls at the same time, for storage.
package concurrent

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
)

// Each calls do for 0 to n-1, at most limit calls at the same time, or all of them if limit
// is negative. It returns the first error, which ends the context of the other calls. It turns a
// panic into an error.
func Each(ctx context.Context, n, limit int, do func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(limit)
	for i := range n {
		all.Go(func() error { return Safely(func() error { return do(ctx, i) }) })
	}
	return all.Wait()
}

// Share makes one call for concurrent callers with the same key. The call has a time limit of its
// own, since the first caller may give up before the others do. It turns a panic into an error.
func Share[T any](ctx context.Context, group *singleflight.Group, key string, limit time.Duration,
	call func(context.Context) (T, error)) <-chan singleflight.Result {
	return group.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		var value T
		err := Safely(func() (err error) {
			value, err = call(ctx)
			return err
		})
		return value, err
	})
}

// How many rows are read at the same time.
const (
	InRequest = 32
	// InBackground is for the reaper, the roll-up and the check: enough to hide the latency of a
	// call to storage, and few enough to leave the instance's one core and its connections to the
	// requests.
	InBackground = 16
)

// Mutex is a lock that may be held across calls to storage. It is no sync.Mutex, because
// testing/synctest does not see that all goroutines wait while one of them waits for a sync.Mutex.
type Mutex chan struct{}

// NewMutex returns a Mutex that is not locked.
func NewMutex() Mutex { return make(Mutex, 1) }

// Lock waits until nobody else holds m.
func (m Mutex) Lock() { m <- struct{}{} }

// Unlock lets the next one have m.
func (m Mutex) Unlock() { <-m }

// Safely turns a panic of f into an error. It is for goroutines that no request's recovery reaches:
// the SDK is known to panic over responses that it does not expect.
func Safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f()
}
