package storage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tiney/internal/link"

	"golang.org/x/sync/singleflight"
)

const (
	// keptFor is how long what was read is kept in memory: the counts of all links together, the
	// oldest day that is not rolled up, and an owner's links that were clicked.
	keptFor = time.Minute
	// maxKept is how many answers of a kind are kept. Answers beyond that are read each time.
	maxKept = 1000
)

// kept keeps what was read for a minute, up to maxKept values. Concurrent callers with the same key
// share one read, and a caller that gives up does not end it. The result of a read that failed is
// not kept. The zero value is ready for use.
type kept[T any] struct {
	reading singleflight.Group
	mu      sync.Mutex
	values  map[string]keptValue[T]
}

type keptValue[T any] struct {
	value T
	at    time.Time // when its read began
}

func (k *kept[T]) get(ctx context.Context, key string, config *Config,
	read func(context.Context) (T, error)) (value T, err error) {
	if v, ok := k.fresh(key, config); ok {
		return v, nil
	}
	result := shared(ctx, &k.reading, key, config.Timeout, func(ctx context.Context) (T, error) {
		if v, ok := k.fresh(key, config); ok { // by a read that ended since the first look
			return v, nil
		}
		v := keptValue[T]{at: config.Now()}
		var err error
		if v.value, err = read(ctx); err == nil {
			k.keep(key, v)
		}
		return v.value, err
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

func (k *kept[T]) fresh(key string, config *Config) (T, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, ok := k.values[key]
	age := config.Now().Sub(v.at)
	return v.value, ok && age >= 0 && age < keptFor
}

func (k *kept[T]) keep(key string, v keptValue[T]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.values == nil {
		k.values = map[string]keptValue[T]{}
	}
	if _, again := k.values[key]; !again && len(k.values) >= maxKept {
		return
	}
	k.values[key] = v
	time.AfterFunc(keptFor, func() { // a value is large, and nobody may ask for it again
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.values[key].at == v.at {
			delete(k.values, key)
		}
	})
}
