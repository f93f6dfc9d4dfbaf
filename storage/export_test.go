package storage

import (
	"context"
	"sync/atomic"
	"time"
)

// On a busy machine the emulator may stand still for longer than people wait.
func init() { changesWait, staleWait = 2*time.Second, 2*time.Second }

// KeepMost has at most so many links of a partition of a day kept in memory, of the days that are read from now on.
func (c *Clicks) KeepMost(n int) { c.mostActive = n }

// TableURL returns where the tables are.
func (c Connection) TableURL() string { return c.tables }

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

// WaitForCache returns when all that was to be cached is: ristretto does that a moment later.
func (s *Links) WaitForCache() { s.cache.entries.Wait() }
