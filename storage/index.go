package storage

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

// indexTries is how often the index is read and written again because others write it meanwhile.
const indexTries = 5

// guardAfter is how long after its insert a guard is due, and at which age an expiry row without
// its link goes, or a row that lists a missing key. That is after the Timeout of its operation,
// after the minute in which storage may still apply an abandoned try, and after the half minute by
// which the reaper's clock may be ahead.
const guardAfter = 2 * time.Minute

// guard inserts an expiry row that makes the reaper look at a link once the writes that follow are
// over. It names the rows of the index that lead to the link as it was, and as it is to become. The
// caller deletes it after the writes, unless one of them may arrive late.
func (s *Links) guard(ctx context.Context, was, next link.Link) (table.Key, error) {
	return s.guardIn(ctx, guardAfter, was, next)
}

func (s *Links) guardIn(ctx context.Context, after time.Duration, was, next link.Link) (table.Key,
	error) {
	e := newExpiry(s.soon(after), next.Name)
	e.OldIndexKey, e.NewIndexKey = indexKey(was), indexKey(next)
	return s.expiry.insertFree(ctx, e)
}

// guardLate inserts a guard although the time of the operation may be over.
func (s *Links) guardLate(ctx context.Context, was, next link.Link) error {
	ctx, cancel := lateTime(ctx)
	defer cancel()
	_, err := s.guard(ctx, was, next)
	return err
}

// repair is for a process that was stopped, in the middle of a write, for longer than its operation
// may take. Even if the write returned an error, it may have been applied after the reaper was
// there. repair writes the expiry row of the link anew, since a reaper that found no link may be
// about to delete the old one, and a guard if the index may lead to the link. due is zero if the
// link has no end. It writes both at once: a slow response to one must not keep the other from
// being written in time.
func (s *Links) repair(ctx context.Context, until deadline, due time.Time, was, next link.Link,
	indexed bool) {
	if !until.stopped() {
		return
	}
	ctx, cancel := lateTime(ctx)
	defer cancel()
	var both errgroup.Group
	write := func(left string, do func() error) {
		both.Go(func() error {
			if err := concurrent.Safely(do); err != nil {
				s.config.Log.Error(telemetry.LogCreateTooLate, "left", left, "alias", next.Name,
					"error", err)
			}
			return nil
		})
	}
	if !due.IsZero() {
		write("a link without its expiry row", func() error {
			_, err := s.expiry.put(ctx, due, next.Name)
			return err
		})
	}
	if indexed {
		write("perhaps an index row without its link, or of another URL", func() error {
			_, err := s.guard(ctx, was, next)
			return err
		})
	}
	_ = both.Wait()
}

// endsSoon reports whether a reaper may end a link before a guard is due. Such a reaper may have
// looked for a row of the index just before that row was inserted.
func (s *Links) endsSoon(l link.Link) bool {
	end := s.end(l)
	return !end.IsZero() && end.Before(s.config.Now().Add(guardAfter))
}

// release takes a link that was read out of the index, if the row of a key leads to it, and
// reports whether it did. table.ErrChanged: the link is not as it was.
//
// A link that is to be live again stays out of the index until it is live. Otherwise a create that
// has read the row, and has found the link deleted or expired, could replace the row after another
// create was given the renewed link: one URL would have two links. Likewise, an edit that goes back
// to a URL takes away the old row, which the edit before it may be about to delete. release reads
// the link again after its row, so that a row stays that another process has inserted since.
func (s *Links) release(ctx context.Context, l linkRow, key string) (released bool, err error) {
	seen, err := s.index.get(ctx, key)
	if errors.Is(err, table.ErrGone) || err == nil && seen.alias != string(l.Name) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := s.unchanged(ctx, l); err != nil {
		return false, err
	}
	err = s.index.rows.Delete(ctx,
		table.Key{Partition: indexPartition(key), Row: key, ETag: seen.etag})
	if errors.Is(err, table.ErrChanged) {
		return false, nil // a create was faster, and others are given its link
	}
	return err == nil, err
}

// unchanged returns table.ErrChanged if a link is not as it was read.
func (s *Links) unchanged(ctx context.Context, l linkRow) error {
	now, err := s.links.get(ctx, l.Name)
	if err == nil && now.etag != l.etag || errors.Is(err, link.ErrNotFound) {
		return table.ErrChanged
	}
	return err
}

// claim makes the index lead to a link, unless it leads to another link of the same long URL and
// owner that is live, scheduled or disabled. If the link was changed meanwhile, the edit that did
// so may not have seen the row, so claim takes the row back. late: a write may still arrive, or the
// link was changed, so the guard of the link has to stay.
//
// seen is the row as it was read; the zero indexRow if there is none, or it is not known. The
// caller must have a guard: a crash before the second look may leave a row that leads to a link of
// another URL.
func (s *Links) claim(ctx context.Context, l link.Link, seen indexRow) (late bool, err error) {
	for range indexTries {
		added, again, err := s.index.put(ctx, l, seen)
		late = late || again
		if errors.Is(err, table.ErrChanged) {
			// Somebody else has written the row, or has taken it away. Or this has written it, and
			// the response was lost.
			late = late || seen.etag != ""
			var free bool
			seen, free, err = s.holder(ctx, l)
			switch {
			case err != nil:
				return late, err
			case free:
				continue
			case seen.alias != string(l.Name):
				return late, nil
			}
			added = seen.etag
		}
		if err != nil {
			return late, err
		}
		moved, err := s.takeBack(ctx, l, added)
		return late || moved, err
	}
	return true, nil
}

// claimGuarded is claim for callers that have no guard.
func (s *Links) claimGuarded(ctx context.Context, l link.Link) error {
	seen, free, err := s.holder(ctx, l)
	if err != nil || !free {
		return err
	}
	return s.guarded(ctx, l, func() (late bool, err error) { return s.claim(ctx, l, seen) })
}

// takeBack drops a row of the index that was just written for a link, if the link has moved to
// another URL or owner meanwhile. The edit that did so may not have seen the row.
func (s *Links) takeBack(ctx context.Context, l link.Link, added table.ETag) (moved bool,
	err error) {
	there, err := s.links.get(ctx, l.Name)
	if err != nil && !decided(err) || err == nil && there.LongURL == l.LongURL &&
		there.Owner == l.Owner {
		return false, err
	}
	return true, s.index.drop(ctx, indexKey(l), added)
}

// holder reads the index row of the link's long URL and owner. free: this link may take it, since
// there is no row, which then has no ETag, or the row leads to no live, scheduled or disabled link.
func (s *Links) holder(ctx context.Context, l link.Link) (seen indexRow, free bool, err error) {
	seen, err = s.index.get(ctx, indexKey(l))
	switch {
	case errors.Is(err, table.ErrGone):
		return indexRow{}, true, nil
	case err != nil || seen.alias == string(l.Name):
		return seen, false, err
	}
	a, ok := link.ParseName(seen.alias)
	if !ok {
		return seen, true, nil
	}
	there, err := s.links.get(ctx, a)
	if err != nil || there.LongURL != l.LongURL || there.Owner != l.Owner {
		free = err == nil || decided(err)
		if free {
			err = nil
		}
		return seen, free, err
	}
	state := there.State(s.config.Now())
	return seen, !state.LiveOrScheduled() && state != link.StateDisabled, nil
}

// guarded writes the row of the index that leads to a link. Before that it inserts a guard, by
// which the reaper finds the row if the process dies before write has looked at the link once more.
// The guard stays if the row may arrive late, or the reaper may end the link before the row
// arrives.
func (s *Links) guarded(ctx context.Context, l link.Link,
	write func() (late bool, err error)) error {
	guard, err := s.guard(ctx, l, l)
	if err != nil {
		return err
	}
	begun := s.config.Now().Round(0)
	late, err := write()
	if s.config.Now().Round(0).Sub(begun) > guardAfter/2 {
		// The process stood still, and a reaper may have handled the guard before the row came.
		return cmp.Or(err, s.guardLate(ctx, l, l))
	}
	if err == nil && !late && !s.endsSoon(l) {
		_ = s.expiry.rows.Delete(ctx, guard) // if this fails, the reaper deletes it
	}
	return err
}
