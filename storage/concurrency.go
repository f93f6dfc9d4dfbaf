package storage

import (
	"context"
	"time"

	"tiney/storage/table"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
)

// concurrently calls do for 0 to n-1, at most limit calls at the same time, or all of them if limit
// is negative. It returns the first error, which ends the context of the other calls. It turns a
// panic into an error.
func concurrently(ctx context.Context, n, limit int,
	do func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(limit)
	for i := range n {
		all.Go(func() error { return table.Safely(func() error { return do(ctx, i) }) })
	}
	return all.Wait()
}

// shared makes one call for concurrent callers with the same key. The call has a time limit of its
// own, since the first caller may give up before the others do. It turns a panic into an error.
func shared[T any](ctx context.Context, group *singleflight.Group, key string, limit time.Duration,
	call func(context.Context) (T, error)) <-chan singleflight.Result {
	return group.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
		defer cancel()
		var value T
		err := table.Safely(func() (err error) {
			value, err = call(ctx)
			return err
		})
		return value, err
	})
}

// inBackground is how many links the reaper, the roll-up and the check work on at the same time:
// enough to hide the latency of a storage call, and few enough to leave the instance's one core and
// its connections to the requests.
const inBackground = 16

// mutex is a lock that may be held across calls to storage. It is no sync.Mutex, because
// testing/synctest does not see that all goroutines wait while one of them waits for a sync.Mutex.
type mutex chan struct{}

func newMutex() mutex   { return make(mutex, 1) }
func (m mutex) lock()   { m <- struct{}{} }
func (m mutex) unlock() { <-m }
