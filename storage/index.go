package storage

import (
	"context"
	"errors"
	"time"

	"tiney/link"
	"tiney/storage/table"
)

// guardAfter is how long after its insert a guard is due, and at which age a row goes whose link is
// missing. That is after the Timeout of its operation, after the minute in which storage may still
// apply an abandoned try, and after the half minute by which the reaper's clock may be ahead.
const guardAfter = 2 * time.Minute

// guard inserts an expiry row that makes the reaper look at a link, and at the rows of the index
// with these keys, one or two, once the writes that follow are over. The caller deletes the expiry
// row after these writes, unless one of them may still arrive late.
func (s *Links) guard(ctx context.Context, a link.Name, keys ...string) (rowKey, error) {
	e := newExpiry(s.soon(guardAfter), a)
	e.OldIndexKey, e.NewIndexKey = keys[0], keys[len(keys)-1]
	return s.expiry.insertFree(ctx, e)
}

// endsSoon reports whether a reaper may end a link before a guard is due. Such a reaper may have
// looked for a row of the index just before that row was inserted.
func (s *Links) endsSoon(l link.Link) bool {
	end := s.end(l)
	return !end.IsZero() && end.Before(s.config.Now().Add(guardAfter))
}

// withdraw takes a link that was read out of the index, if the row of a key leads to it, and
// reports whether it did. table.ErrChanged: the link is not as it was.
//
// A link that is to be live again stays out of the index until it is live. Otherwise a create that
// has read the row, and has found the link deleted or expired, could replace the row after another
// create was given the renewed link: one URL would have two links. Likewise, an edit that goes back
// to a URL takes away the old row, which the edit before it may be about to delete. withdraw reads
// the link again after its row, so that a row stays that another process has inserted since.
func (s *Links) withdraw(ctx context.Context, l linkRow, key string) (withdrawn bool, err error) {
	seen, err := s.index.get(ctx, key)
	if errors.Is(err, table.ErrGone) || err == nil && seen.alias != string(l.Name) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	now, err := s.links.get(ctx, l.Name)
	if err == nil && now.etag != l.etag || errors.Is(err, link.ErrNotFound) {
		err = table.ErrChanged
	}
	if err != nil {
		return false, err
	}
	err = s.index.rows.delete(ctx, rowKey{indexPartition(key), key, seen.etag})
	if errors.Is(err, table.ErrChanged) {
		return false, nil // a create was faster, and others are given its link
	}
	return err == nil, err
}

// enterIndex makes the index lead to a link, unless it leads to another link of the same long URL
// and owner. If the link was changed meanwhile, the edit that did so may not have seen the row, so
// enterIndex takes the row back. late: an insert may still arrive, or the link was changed, so the
// guard of the link has to stay.
//
// The caller must have a guard: a crash before the second look may leave a row that leads to a link
// of another URL.
func (s *Links) enterIndex(ctx context.Context, l link.Link) (late bool, err error) {
	added, late, err := s.index.enter(ctx, l)
	if err != nil || added == "" {
		return late, err
	}
	there, err := s.links.get(ctx, l.Name)
	if err != nil && !decided(err) || err == nil && there.LongURL == l.LongURL &&
		there.Owner == l.Owner {
		return late, err
	}
	return true, s.index.drop(ctx, indexKey(l), added)
}

// enterGuarded is enterIndex for callers that have no guard. It reads the index first, since most
// often there is a row.
func (s *Links) enterGuarded(ctx context.Context, l link.Link) error {
	key := indexKey(l)
	if _, err := s.index.get(ctx, key); !errors.Is(err, table.ErrGone) {
		return err
	}
	guard, err := s.guard(ctx, l.Name, key)
	if err != nil {
		return err
	}
	late, err := s.enterIndex(ctx, l)
	if err == nil && !late && !s.endsSoon(l) {
		_ = s.expiry.delete(ctx, guard) // if this fails, the reaper deletes it
	}
	return err
}
