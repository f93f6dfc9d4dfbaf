package storage

import (
	"context"
	"maps"
	"sync/atomic"
)

// KeepMost cuts the days that are in memory down to so many links each.
func (c *Clicks) KeepMost(n int) {
	c.perDay.mu.Lock()
	defer c.perDay.mu.Unlock()
	for _, v := range c.perDay.values {
		links := maps.Clone(v.value.links)
		clear(v.value.links)
		v.value.add(links, n)
	}
}

// WatchedContext counts how often somebody begins to wait for its end, among other things: who gets a link through a
// cache does so once, when it has joined the read of it.
type WatchedContext struct {
	context.Context
	Waiting *atomic.Int64
}

// Done is the context's own.
func (c WatchedContext) Done() <-chan struct{} {
	c.Waiting.Add(1)
	return c.Context.Done()
}
