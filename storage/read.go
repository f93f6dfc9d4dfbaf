package storage

import (
	"context"
	"errors"

	"github.com/go-json-experiment/json"

	"tiney/internal/link"
	"tiney/storage/table"
)

// Cached returns the link of an alias if it is cached, live or scheduled, and right, except for
// changes of the last seconds. If stale is true, it also returns a link that would be served if
// storage were down. The link may lack what Link says a cache leaves out. Cached makes no call,
// except a poll of changes after an idle time.
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
	if lower := s.otherSpelling(a); lower != "" && s.cache.absent(a, stale) {
		return s.Cached(ctx, lower, stale)
	}
	return link.Link{}, false
}

// otherSpelling returns the name in lower case, under which a link is looked for that is not there
// by the name itself. It returns "" if there is no other name to look for.
func (s *Links) otherSpelling(a link.Name) link.Name {
	if s.config.AnyCase {
		if lower := a.Lower(); lower != a {
			return lower
		}
	}
	return ""
}

// resolve returns the name by which the table has the link of a name. Error: link.ErrUnavailable.
func (s *Links) resolve(ctx context.Context, a link.Name) (link.Name, error) {
	lower := s.otherSpelling(a)
	if lower == "" {
		return a, nil
	}
	switch _, err := s.links.get(ctx, a); {
	case errors.Is(err, link.ErrNotFound):
		return lower, nil
	case err != nil && !decided(err):
		return "", err
	}
	return a, nil
}

// spelled reads the row that has the very spelling of a link that somebody wants, if that differs
// from the name of the link. Only a row that is older than AnyCase can have it. Errors:
// link.ErrNotFound, link.ErrDamaged, link.ErrUnavailable.
func (s *Links) spelled(ctx context.Context, l link.Link) (linkRow, error) {
	if l.Spelling == "" {
		return linkRow{}, link.ErrNotFound
	}
	return s.links.get(ctx, l.Name.Domain().Name(l.Spelling))
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
	begun, forgotten := s.config.Now(), s.cache.forgottenCount(a)
	r, err := get(ctx, a)
	missing := errors.Is(err, link.ErrNotFound)
	if lower := s.otherSpelling(a); lower != "" && (missing || errors.Is(err, errNotInSecondary)) {
		if r, err = get(ctx, lower); err == nil && missing {
			s.cache.putAbsent(a, begun, forgotten)
		}
	}
	if err != nil {
		return link.Link{}, err
	}
	return r.Link, nil
}

// Read returns the link of an alias from its table, whatever its state, without its history. A
// tombstone counts as no link. Errors: link.ErrNotFound, link.ErrDamaged, link.ErrUnavailable.
func (s *Links) Read(ctx context.Context, a link.Name) (link.Link, error) {
	return s.readBy(ctx, a, s.links.get)
}

// History returns a link with its history. Its errors are those of Read.
func (s *Links) History(ctx context.Context, a link.Name) (link.Link, error) {
	return s.readBy(ctx, a, s.links.whole)
}

func (s *Links) readBy(ctx context.Context, a link.Name,
	get func(context.Context, link.Name) (linkRow, error)) (link.Link, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	a, err := s.resolve(ctx, a)
	if err != nil {
		return link.Link{}, err
	}
	r, err := alive(get(ctx, a))
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
	return alive(s.links.get(ctx, a))
}

// alive returns link.ErrNotFound for a tombstone.
func alive(r linkRow, err error) (linkRow, error) {
	if err == nil && r.GoneReason != link.StateLive {
		return linkRow{}, link.ErrNotFound
	}
	return r, err
}

// known is what counts know of links.
type known struct{ s *Links }

// Current reads a link from its table.
func (k known) Current(ctx context.Context, a link.Name) (link.Link, error) {
	r, err := k.s.read(ctx, a)
	return r.Link, err
}

// Cached reads a link, from the cache if there is one.
func (k known) Cached(ctx context.Context, a link.Name) (link.Link, error) {
	r, err := alive(k.s.get(ctx, a))
	return r.Link, err
}

// Owned calls page with the names of an owner's links, newest first, as table.Store.List does.
func (k known) Owned(ctx context.Context, owner string, page func([]link.Name) error) error {
	q := table.Query{Range: table.Range{Partition: ownerPartition(owner)},
		Properties: []string{"RowKey"}}
	return k.s.owners.rows.List(ctx, q, func(rows [][]byte) error {
		var names []link.Name
		for _, data := range rows {
			var e struct{ RowKey string }
			_ = json.Unmarshal(data, &e) // another program's row lists nothing
			if a, ok := listedName(e.RowKey); ok {
				names = append(names, a)
			}
		}
		return page(names)
	})
}
