package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
)

const (
	// secondaryAfter is how long the primary may be silent before the secondary is asked for a
	// link: a little longer than its first try takes.
	secondaryAfter = 1500 * time.Millisecond
	// secondaryPing is the same for a Ping, which has to end within two seconds.
	secondaryPing = time.Second
	// endedFor is for how long a link that the primary has called ended is not looked for in the
	// secondary, which is mostly less behind, and endedCount of how many links that is known.
	endedFor   = 15 * time.Minute
	endedCount = 10_000
)

var errSilent = fmt.Errorf("%w: silent for %v", link.ErrUnavailable, secondaryAfter)

// errNotInSecondary, beside the failure of the primary, says that the secondary has no such link.
// The primary may have one.
var errNotInSecondary = errors.New("the secondary has no such link")

// secondary is the copy of the links in the storage account's second region, which is some minutes
// behind and can only be read. It is asked when the primary fails, and by nothing but redirects,
// previews and pings: what it says may be out of date, and what is written has to go by what is so.
type secondary struct {
	config *Config
	links  *linkTable
	cache  *cache // of both
	reads  singleflight.Group
	warned atomic.Bool // of the outage

	mu    sync.Mutex
	ended map[link.Name]time.Time // when the primary has last said so, which no cache keeps
}

// get asks the primary for a link and, once that has failed or been silent for secondaryAfter, the
// secondary too. The first one that has the link wins, and only the primary knows that there is
// none.
func (s *secondary) get(ctx context.Context, a link.Name, primary func(context.Context,
	link.Name) (linkRow, error)) (linkRow, error) {
	type response struct {
		linkRow
		error
	}
	first := make(chan response, 1)
	go func() {
		// what it says late is of use too
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Timeout)
		defer cancel()
		var got response
		got.error = concurrent.Safely(func() (err error) {
			got.linkRow, err = primary(ctx, a)
			return err
		})
		s.note(a, got.linkRow, got.error)
		first <- got
	}()
	silent := time.NewTimer(secondaryAfter)
	defer silent.Stop()
	var (
		failure error
		lacks   error
		second  <-chan singleflight.Result
	)
	for asked := false; !asked || first != nil || second != nil; {
		select {
		case got := <-first:
			if got.error == nil || decided(got.error) {
				if !got.cached && s.warned.Load() {
					s.warned.Store(false)
				}
				return got.linkRow, got.error
			}
			failure, first = got.error, nil
		case <-silent.C:
		case got := <-second:
			if got.Err == nil {
				return s.found(a, got.Val.(secondRow), cmp.Or(failure, errSilent)), nil
			}
			if errors.Is(got.Err, link.ErrNotFound) {
				lacks = errNotInSecondary
			}
			second = nil
		case <-ctx.Done():
			return linkRow{}, cmp.Or(failure, fmt.Errorf("reading link %s: %w in time: %w", a,
				link.ErrUnavailable, ctx.Err()))
		}
		if !asked && ctx.Err() == nil && !s.hasEnded(a) {
			second = s.read(ctx, a)
		}
		asked = true
	}
	if lacks != nil {
		failure = fmt.Errorf("%w; %w", failure, lacks)
	}
	return linkRow{}, failure
}

// note keeps that the primary has called a link ended. Else a primary that is merely slow would
// have the secondary redirect to it again and again.
func (s *secondary) note(a link.Name, r linkRow, err error) {
	if r.cached || err != nil && !decided(err) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.config.Now(); err == nil && r.State(now).LiveOrScheduled() {
		delete(s.ended, a)
	} else {
		if s.ended == nil || len(s.ended) >= endedCount {
			s.ended = map[link.Name]time.Time{}
		}
		s.ended[a] = now
	}
}

func (s *secondary) hasEnded(a link.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.ended[a]
	return ok && s.config.Now().Sub(at) < endedFor
}

// secondRow is what the secondary says, and how often the alias had been forgotten before it was
// asked.
type secondRow struct {
	linkRow
	forgotten uint32
}

// read asks the secondary. Concurrent callers for one link share a read.
func (s *secondary) read(ctx context.Context, a link.Name) <-chan singleflight.Result {
	return concurrent.Share(ctx, &s.reads, string(a),
		s.config.Timeout, func(ctx context.Context) (got secondRow, err error) {
			got.forgotten = s.cache.forgottenCount(a)
			got.linkRow, err = s.links.get(ctx, a)
			return got, err
		})
}

func (s *secondary) found(a link.Name, r secondRow, why error) linkRow {
	s.config.Metrics.RedirectSecondary.Add(1)
	if !s.warned.Swap(true) { // once per outage
		s.config.Log.Warn(telemetry.LogSecondary, "error", why)
	}
	s.cache.putStale(a, r.linkRow, r.forgotten)
	r.Stale = true
	return r.linkRow
}

// ping reports, with an error, how much of storage responds: link.ErrSecondaryOnly if it is the
// secondary alone.
func (s *secondary) ping(ctx context.Context, primary func(context.Context) error) error {
	first := make(chan error, 1)
	go func() { first <- concurrent.Safely(func() error { return primary(ctx) }) }()
	silent := time.NewTimer(secondaryPing)
	defer silent.Stop()
	var failure error
	select {
	case failure = <-first:
		if failure == nil {
			return nil
		}
		first = nil
	case <-silent.C:
	}
	other := concurrent.Safely(func() error { return s.links.rows.Ping(ctx) })
	if first != nil {
		failure = <-first
	}
	if failure != nil && other == nil {
		return errors.Join(link.ErrSecondaryOnly, failure)
	}
	return failure
}
