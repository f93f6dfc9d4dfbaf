package storage

import (
	"cmp"
	"context"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"

	"tiney/internal/link"
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

// Same reports whether two links are the same in everything that a cache knows of them.
func Same(a, b link.Link) bool {
	for _, l := range []*link.Link{&a, &b} {
		l.StatusCode = cmp.Or(l.StatusCode, link.DefaultStatusCode)
		// Not compared are the day on which the store made the link, and whether it comes from a
		// cache.
		l.CountedFrom, l.Stale = time.Time{}, false
		// A cache does not know these.
		l.UpdatedAt, l.Title, l.Tags, l.ClaimHash, l.Before, l.Version = time.Time{}, "", nil, "",
			link.Count{}, ""
		l.Locked, l.History = false, nil
	}
	return reflect.DeepEqual(a, b)
}

// Turns returns how many links there are that somebody opens or edits, or waits for that.
func (s *Links) Turns() int {
	s.turns.mu.Lock()
	defer s.turns.mu.Unlock()
	return len(s.turns.of)
}
