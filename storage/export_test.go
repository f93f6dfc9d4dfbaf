package storage

import (
	"context"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"
)

// WatchedContext counts how often somebody begins to wait for its end, among other things: who gets
// a link through a cache does so once, when it has joined the read of it.
type WatchedContext struct {
	context.Context
	Waiting *atomic.Int64
}

// Done is the context's own.
func (c WatchedContext) Done() <-chan struct{} {
	c.Waiting.Add(1)
	return c.Context.Done()
}

// WaitForCache returns when all that was to be cached is: ristretto does that a moment later.
func (s *Links) WaitForCache() { s.cache.wait() }

func (c *cache) wait() { c.entries.(*ristretto.Cache[string, *entry]).Wait() }
