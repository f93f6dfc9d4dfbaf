package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/table"
)

// Open takes one of the openings that a link has left, and returns the link as it was before. It
// calls permit with the link as it is in its table, or with its tombstone. If permit returns an
// error, Open takes nothing and returns that error. Open calls permit again when the link has
// changed meanwhile. Of a link without MaxOpens it takes nothing either.
//
// However many callers, here and in other processes, open a link at the same time, Open returns
// without an error at most as often as the link has openings left, and as often unless a response
// of storage is lost. After link.ErrUnavailable, one may be used up. Other errors: those of permit,
// link.ErrNotFound, link.ErrDamaged.
func (s *Links) Open(ctx context.Context, a link.Name, permit func(link.Link) error) (link.Link,
	error) {
	until, ctx, cancel := s.config.startWrite(ctx)
	defer cancel()
	a, err := s.resolve(ctx, a)
	if err != nil {
		return link.Link{}, err
	}
	leave, err := s.turns.take(ctx, a)
	if err != nil {
		return link.Link{}, err
	}
	defer leave()
	for {
		l, err := s.open(ctx, until, a, permit)
		if !errors.Is(err, table.ErrChanged) {
			return l, err
		}
	}
}

// open tries once. table.ErrChanged: the link has changed meanwhile, and nothing was taken.
func (s *Links) open(ctx context.Context, until deadline, a link.Name,
	permit func(link.Link) error) (link.Link, error) {
	was, err := s.links.get(ctx, a)
	if err == nil {
		err = permit(was.Link)
	}
	if err != nil || was.MaxOpens == 0 {
		return was.Link, err
	}
	if err := until.inTime(); err != nil {
		return link.Link{}, err
	}
	next := was
	next.Link = was.Opened(s.config.Now())
	if next.openID, err = s.config.newID(); err != nil {
		return link.Link{}, err
	}
	if next.UsedUp() {
		// The row that leads the reaper to the link. A crash after it leaves one that does not fit
		// its link, which the reaper drops.
		if _, err := s.expiry.put(ctx, s.soon(guardAfter), a); err != nil {
			return link.Link{}, err
		}
		if err := until.inTime(); err != nil {
			return link.Link{}, err
		}
	}
	again, err := s.links.open(ctx, was.etag, next)
	if again && errors.Is(err, table.ErrChanged) {
		err = s.tell(ctx, was, next)
	}
	if next.UsedUp() && until.stopped() {
		// A reaper may have dropped the row before the link was over.
		ctx, cancel := lateTime(ctx)
		defer cancel()
		if _, err := s.expiry.put(ctx, s.soon(guardAfter), a); err != nil {
			s.config.Log.Error(telemetry.LogCreateTooLate, "left",
				"a link that is used up without its expiry row", "alias", a, "error", err)
		}
	}
	return was.Link, err
}

// tell finds out what became of an opening that was sent more than once. table.ErrChanged: it was
// not applied.
func (s *Links) tell(ctx context.Context, was, next linkRow) error {
	there, err := s.links.get(ctx, next.Name)
	switch {
	case err != nil && !decided(err):
		return err
	case err == nil && there.openID == next.openID:
		return nil
	case err == nil && there.openID == was.openID:
		return table.ErrChanged
	}
	return fmt.Errorf("%w: %w", link.ErrUnavailable, errOverwritten)
}

// turns has the openings and edits of one link wait for each other, within this process. Otherwise
// most of those that come at once would be in vain.
type turns struct {
	mu sync.Mutex
	of map[link.Name]*turn
}

type turn struct {
	taken chan struct{} // holds one value while somebody has the turn
	users int           // that have it or wait for it
}

// take waits for the turn of a link, which leave ends. Error: link.ErrUnavailable.
func (t *turns) take(ctx context.Context, a link.Name) (leave func(), err error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = map[link.Name]*turn{}
	}
	its := t.of[a]
	if its == nil {
		its = &turn{taken: make(chan struct{}, 1)}
		t.of[a] = its
	}
	its.users++
	t.mu.Unlock()
	gone := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if its.users--; its.users == 0 {
			delete(t.of, a)
		}
	}
	select {
	case its.taken <- struct{}{}:
		return func() { <-its.taken; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, fmt.Errorf("link %s: %w: others change it: %w", a, link.ErrUnavailable,
			ctx.Err())
	}
}

// Indexed returns the link that the index names for the long URL and the owner of l, whatever its
// state. Errors: link.ErrNotFound, link.ErrDamaged, link.ErrUnavailable.
func (s *Links) Indexed(ctx context.Context, l link.Link) (link.Link, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	seen, err := s.index.get(ctx, indexKey(l))
	if errors.Is(err, table.ErrGone) {
		return link.Link{}, link.ErrNotFound
	}
	if err != nil {
		return link.Link{}, err
	}
	a, ok := link.ParseName(seen.alias)
	if !ok {
		return link.Link{}, link.ErrNotFound
	}
	there, err := s.read(ctx, a)
	if err == nil && (there.LongURL != l.LongURL || there.Owner != l.Owner) {
		return link.Link{}, link.ErrNotFound
	}
	return there.Link, err
}
