// Package linkstest tests stores of links: one suite that all of them must pass, and a fake that passes it too, for
// tests of what stands above them.
package linkstest

import (
	"context"
	"io"
	"sync"
	"time"

	"tiney/link"
)

// Clock is a clock that stands still until it is told otherwise.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// NewClock returns a clock that stands at a whole second near the real time, since a storage service has its own.
func NewClock() *Clock { return &Clock{at: time.Now().UTC().Truncate(time.Second)} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Advance puts the clock forward.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// Fake keeps links in memory.
type Fake struct {
	now    func() time.Time
	random io.Reader

	mu    sync.Mutex
	links map[link.Alias]link.Link
	index map[string]link.Alias
	fail  error
	gets  int
}

// NewFake makes a fake without links.
func NewFake(now func() time.Time, random io.Reader) *Fake {
	return &Fake{now: now, random: random, links: map[link.Alias]link.Link{}, index: map[string]link.Alias{}}
}

// Fail makes all calls fail with err, until it is called with nil.
func (f *Fake) Fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = err
}

// Gets returns how often Get was called.
func (f *Fake) Gets() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gets
}

// Put puts a link there as it is, as another program would.
func (f *Fake) Put(l link.Link) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.links[l.Alias] = l
	f.index[l.LongURL] = l.Alias
}

// Get returns a link.
func (f *Fake) Get(_ context.Context, a link.Alias) (link.Link, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gets++
	if f.fail != nil {
		return link.Link{}, f.fail
	}
	l, ok := f.links[a]
	if !ok {
		return link.Link{}, link.ErrNotFound
	}
	return l, nil
}

// Create makes a link or returns the one that its URL has.
func (f *Fake) Create(_ context.Context, want link.Link) (link.Link, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return link.Link{}, false, f.fail
	}
	if l, ok := f.links[f.index[want.LongURL]]; ok && l.LongURL == want.LongURL && !l.Expired(f.now()) {
		if l.Disabled {
			return link.Link{}, false, link.ErrDisabled
		}
		return l, false, nil
	}
	for range 10 {
		a, err := link.NewAlias(f.random, 6)
		if err != nil {
			return link.Link{}, false, err
		}
		if _, taken := f.links[a]; taken {
			continue
		}
		want.Alias = a
		f.links[a] = want
		f.index[want.LongURL] = a
		return want, true, nil
	}
	return link.Link{}, false, link.ErrAliasesTaken
}

// Reap deletes what has expired.
func (f *Fake) Reap(context.Context) (link.ReapResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fail != nil {
		return link.ReapResult{}, f.fail
	}
	done := link.ReapResult{Complete: true}
	for a, l := range f.links {
		if !l.Expired(f.now()) {
			continue
		}
		delete(f.links, a)
		if f.index[l.LongURL] == a {
			delete(f.index, l.LongURL)
		}
		done.Deleted++
	}
	return done, nil
}

// Ping fails if the fake was told to.
func (f *Fake) Ping(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fail
}
