package counts

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"tiney/internal/link"
	"tiney/storage/concurrent"

	"golang.org/x/sync/singleflight"
)

const (
	// keptFor is how long a statistic is kept in memory.
	keptFor = time.Minute
	// maxKept is how many values of a kind are kept. Values beyond that are read each time.
	maxKept = 1000
)

// kept keeps what was read for a minute from the start of its read, up to maxKept values.
// Concurrent callers with the same key share one read, and a caller that gives up does not end it.
// The result of a read that failed is not kept. The zero value is ready for use.
type kept[T any] struct {
	limit time.Duration     // of a read; zero: the config's Timeout
	until func(T) time.Time // when a value has to be read again; nil: after keptFor

	reading singleflight.Group
	mu      sync.Mutex
	values  map[string]keptValue[T]
}

type keptValue[T any] struct {
	value     T
	at, until time.Time // at: when its read began
}

func (k *kept[T]) get(ctx context.Context, key string, config *Config,
	read func(context.Context) (T, error)) (value T, err error) {
	if v, ok := k.fresh(key, config); ok {
		return v, nil
	}
	limit := cmp.Or(k.limit, config.Timeout)
	result := concurrent.Share(ctx, &k.reading, key, limit, func(ctx context.Context) (T, error) {
		begin := config.Now()
		if v, ok := k.fresh(key, config); ok { // by a read that ended since the first look
			return v, nil
		}
		value, err := read(ctx)
		if err == nil {
			k.keep(key, value, begin, config.Now())
		}
		return value, err
	})
	select {
	case got := <-result:
		value, _ = got.Val.(T)
		return value, got.Err
	case <-ctx.Done():
		return value, fmt.Errorf("reading statistics: %w in time: %w", link.ErrUnavailable,
			ctx.Err())
	}
}

// fresh returns the value that is kept. It drops one that is out of date, since values take memory.
func (k *kept[T]) fresh(key string, config *Config) (T, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.values[key]
	now := config.Now()
	if ok = ok && !now.Before(v.at) && now.Before(v.until); !ok {
		delete(k.values, key)
	}
	return v.value, ok
}

func (k *kept[T]) keep(key string, value T, begin, end time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.values == nil {
		k.values = map[string]keptValue[T]{}
	}
	if len(k.values) >= maxKept {
		return
	}
	v := keptValue[T]{value, begin, begin.Add(keptFor)}
	if k.until != nil {
		v.until = k.until(value)
	}
	k.values[key] = v
	time.AfterFunc(v.until.Sub(end), func() { // a value is large, and may not be asked for again
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.values[key].at == v.at {
			delete(k.values, key)
		}
	})
}
