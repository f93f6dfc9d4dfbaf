package storage

import (
	"context"

	"tiney/link"
)

// Cached returns the link of an alias if it is cached, live and right, except for changes of the
// last seconds. If stale is true, it also returns a link that would be served if storage were down.
// The link may lack what Link says a cache leaves out. Cached makes no call, except a poll of
// changes after an idle time.
func (s *Links) Cached(ctx context.Context, a link.Name, stale bool) (l link.Link, ok bool) {
	if s.cache == nil {
		return link.Link{}, false
	}
	if e := s.cache.hit(ctx, a); e != nil {
		return e.link(), true
	}
	if stale {
		if e := s.cache.stale(ctx, a); e != nil {
			return e.row(true).Link, true
		}
	}
	return link.Link{}, false
}

// Get returns the link of an alias, or its tombstone, whatever its state: the caller decides what
// it is worth. The link may come from the cache, as in Cached. Errors: link.ErrNotFound,
// link.ErrDamaged, link.ErrUnavailable.
func (s *Links) Get(ctx context.Context, a link.Name) (link.Link, error) {
	if s.cache == nil { // the cache limits its reads itself
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.config.Timeout)
		defer cancel()
		s.changes.current(ctx, s.config.Now()) // keeps the blocked hosts up to date
	}
	get := s.get
	if s.second != nil {
		get = func(ctx context.Context, a link.Name) (linkRow, error) {
			return s.second.get(ctx, a, s.get)
		}
	}
	r, err := get(ctx, a)
	if err != nil {
		return link.Link{}, err
	}
	return r.Link, nil
}

// Read returns the link of an alias from its table, whatever its state. A tombstone counts as no
// link. Errors: link.ErrNotFound, link.ErrDamaged, link.ErrUnavailable.
func (s *Links) Read(ctx context.Context, a link.Name) (link.Link, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	r, err := s.read(ctx, a)
	return r.Link, err
}

// get reads a link or a tombstone from the cache if there is one, otherwise from the table.
func (s *Links) get(ctx context.Context, a link.Name) (linkRow, error) {
	if s.cache == nil {
		return s.links.get(ctx, a)
	}
	return s.cache.get(ctx, a)
}

// read reads a link from the table. A tombstone counts as no link.
func (s *Links) read(ctx context.Context, a link.Name) (linkRow, error) {
	r, err := s.links.get(ctx, a)
	if err == nil && r.GoneReason != link.StateLive {
		return linkRow{}, link.ErrNotFound
	}
	return r, err
}
