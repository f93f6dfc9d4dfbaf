package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

const (
	// editTries is how often a link without MaxOpens is read and written, because another edit came
	// between. An owner who keeps editing a link must not keep an admin from taking it down.
	editTries = 20
	// editConcurrency is how many links EditAll edits at the same time.
	editConcurrency = 16
)

// Edit changes a link. It reads the link with its history, calls change, which returns what the
// link is to become, and writes that if the link is still as it was read. Otherwise it begins
// again, up to editTries times in all, unless once is set, and as long as it has time if the link
// has MaxOpens. If change returns an error, Edit writes nothing and returns that error. If change
// returns the link as it was, Edit writes nothing either. Edit may call change more than once, so
// change must have no other effect.
//
// When Edit returns without an error, the change is durable, and every process knows of it within
// 15 seconds. Edit takes at most Timeout, and a second more to repair if the process was stopped
// for too long. A client that disconnects does not cut it short. Errors: those of change;
// link.ErrBlocked about a URL that the link did not have before; link.ErrNotFound, also for a
// tombstone; link.ErrConflict; link.ErrDamaged; link.ErrUnavailable.
func (s *Links) Edit(ctx context.Context, a link.Name, once bool,
	change func(link.Link) (link.Link, error)) (link.Link, error) {
	until, ctx, cancel := s.config.startWrite(ctx)
	defer cancel()
	a, err := s.resolve(ctx, a)
	if err != nil {
		return link.Link{}, err
	}
	e := &editing{s: s, until: until, once: once}
	return e.edit(ctx, a, change)
}

// EditAll edits several links as Edit does, and announces all of them first. Edits of the same link
// come one after the other, in their order. EditAll returns the outcome of each edit, or an error
// if it did nothing at all. All edits together take at most as long as one Edit, because other
// processes look for an announcement for about a minute only.
func (s *Links) EditAll(ctx context.Context, edits []link.Edit) ([]link.EditResult, error) {
	until, ctx, cancel := s.config.startWrite(ctx)
	defer cancel()
	aliases := make([]link.Name, len(edits))
	if err := concurrent.Each(ctx, len(edits), concurrent.InRequest, func(ctx context.Context,
		i int) (err error) {
		aliases[i], err = s.resolve(ctx, edits[i].Name)
		return err
	}); err != nil {
		return nil, err
	}
	at := map[link.Name][]int{}
	var names []string
	for i, a := range aliases {
		if at[a] == nil {
			names = append(names, string(a))
		}
		at[a] = append(at[a], i)
	}
	for some := range slices.Chunk(names, table.MaxBatch) {
		if err := s.changes.announce(ctx, some...); err != nil {
			return nil, err
		}
	}
	edited := make([]link.EditResult, len(edits))
	var all errgroup.Group
	all.SetLimit(editConcurrency)
	for _, name := range names {
		a := link.Name(name)
		all.Go(func() error {
			for _, i := range at[a] {
				edited[i].Err = concurrent.Safely(func() (err error) {
					e := &editing{s: s, until: until, once: edits[i].Once, announced: true}
					edited[i].Link, err = e.edit(ctx, a, edits[i].Change)
					return err
				})
			}
			return nil
		})
	}
	_ = all.Wait()
	return edited, nil
}

// errOverwritten means that it cannot be known whether a write was applied, since the link was
// changed after it.
var errOverwritten = errors.New("the response was lost, and the link has been changed since")

// editing is one Edit at work.
type editing struct {
	s         *Links
	until     deadline
	once      bool   // change the link as it was read first, or not at all
	announced bool   // to other processes
	leave     func() // ends the turn; nil: it has none
}

func (e *editing) edit(ctx context.Context, a link.Name, change func(link.Link) (link.Link,
	error)) (link.Link, error) {
	defer func() {
		if e.leave != nil {
			e.leave()
		}
	}()
	var l linkRow
	var err error
	for tries := 1; ; tries++ {
		l, err = e.try(ctx, a, change)
		// An opening is no other version of a link with MaxOpens, and change looks at the version.
		// Openings may come between until the time is over.
		if !errors.Is(err, table.ErrChanged) || e.leave == nil && (e.once || tries == editTries) {
			break
		}
	}
	if errors.Is(err, table.ErrChanged) {
		err = link.ErrConflict
	}
	return l.Link, err
}

// try reads, changes and writes the link once. table.ErrChanged: another edit came in between.
func (e *editing) try(ctx context.Context, a link.Name, change func(link.Link) (link.Link,
	error)) (linkRow, error) {
	read := func() (linkRow, error) { return alive(e.s.links.whole(ctx, a)) }
	was, err := read()
	if err == nil && was.MaxOpens > 0 && e.leave == nil {
		if e.leave, err = e.s.turns.take(ctx, a); err == nil {
			was, err = read()
		}
	}
	if err != nil {
		return linkRow{}, err
	}
	next := was
	if next.Link, err = change(was.Link); err != nil {
		return linkRow{}, err
	}
	if !next.Changed(was.Link) {
		e.s.cache.forget(a) // another process may have made this change, unknown to this one
		return was, nil
	}
	if err := e.s.Blocked.permit(ctx, was.Link, next.Link); err != nil {
		return linkRow{}, err
	}
	if next.editID, err = e.s.config.newID(); err != nil {
		return linkRow{}, err
	}
	if err := e.until.inTime(); err != nil {
		return linkRow{}, err
	}
	if !e.announced {
		if err := e.s.changes.announce(ctx, string(a)); err != nil {
			return linkRow{}, err
		}
		e.announced = true
	}
	m, err := e.prepare(ctx, was, &next)
	if err == nil {
		// A crash here leaves an expiry row that does not fit its link. The reaper drops it.
		err = e.until.inTime()
	}
	var written linkRow
	var again bool // the write was sent more than once
	if err == nil {
		e.s.cache.forget(a)
		written, again, err = e.s.links.replace(ctx, was.etag, next)
		e.s.cache.forget(a)
		if late := e.until.inTime(); late != nil {
			e.s.repair(ctx, e.until, e.s.dueAt(next.Link), was.Link, next.Link, true)
			if err == nil {
				err = late
			}
		}
	}
	if err != nil {
		sets := next.MaxOpens != was.MaxOpens || next.OpensLeft != was.OpensLeft
		switch changed := errors.Is(err, table.ErrChanged); {
		case changed && again && (e.once || sets):
			// The edit may have been applied, its response lost, and another edit applied after it.
			// If it set OpensLeft, openings may have come after it, too.
			err = fmt.Errorf("%w: %w", link.ErrUnavailable, errOverwritten)
		case changed && !again && m.guard.ETag != "":
			// This try has changed nothing. If its guard stayed, the next try, and the edits of
			// others, would have to find a free second after it. A transfer has added a row to the
			// list of the new owner, which stays: another transfer may rely on it by now.
			_ = e.s.expiry.rows.Delete(ctx, m.guard)
		}
		return linkRow{}, err
	}
	e.finish(ctx, was, written, m)
	return written, nil
}

// move is how an edit changes the rows that lead to a link.
type move struct {
	guard  table.Key // without an ETag if they do not change
	claims bool      // put this link into the index after the write
	listed table.Key // of a transfer: the row in the list of the former owner, as it was
}

// prepare writes what has to be there before the link is written. If the rows that lead to the link
// are to change, it writes a guard before them. The guard stays if anything fails, and by it the
// reaper puts the index in order.
func (e *editing) prepare(ctx context.Context, was linkRow, next *linkRow) (m move, err error) {
	if !next.ExpiresAt.Equal(was.ExpiresAt) {
		next.expiryETag = ""
	}
	before, after := e.s.rowsOf(was.Link), e.s.rowsOf(next.Link)
	if due := e.s.dueAt(next.Link); !due.IsZero() && !after.end.Equal(before.end) {
		etag, err := e.s.expiry.put(ctx, due, next.Name)
		if err != nil {
			return m, err
		}
		if due.Equal(next.ExpiresAt) {
			next.expiryETag = etag
		}
	}
	over := was.Expired(e.s.config.Now()) && !next.ExpiresAt.Equal(was.ExpiresAt)
	restored := next.DeletedAt.IsZero() && !was.DeletedAt.IsZero()
	transferred := after.listed != before.listed
	if before.index == after.index && !over && !restored {
		return m, nil // what leads to the link stays as it is
	}
	if transferred {
		if m.listed, err = e.s.owners.read(ctx, before.listed); err != nil {
			return m, err
		}
	}
	if m.guard, err = e.s.guard(ctx, was.Link, next.Link); err != nil {
		return move{}, err
	}
	if transferred && after.listed.Row != "" {
		// Written even if it is there: a transfer the other way may be about to delete it.
		if err := e.s.owners.put(ctx, after.listed, next.createID); err != nil {
			return m, err
		}
	}
	released, err := e.s.release(ctx, was, after.index)
	m.claims = released || restored || transferred
	return m, err
}

// finish removes the rows that only the old state needed, once the link is written. It is best
// effort: the reaper does the rest.
func (e *editing) finish(ctx context.Context, was, next linkRow, m move) {
	left := func(err error) bool {
		if err != nil {
			e.s.config.Log.Warn(telemetry.LogEditLeft, "alias", next.Name, "error", err)
		}
		return err != nil
	}
	if !next.ExpiresAt.Equal(was.ExpiresAt) &&
		was.ExpiresAt.After(e.s.config.Now().Add(link.MinTTL)) {
		// The delete carries an ETag that was known before the link was written: if another edit
		// has given the link this end again, the row has another ETag by now. A row that is due, or
		// nearly due, is left. A reaper may have deleted what leads to the link and then crashed,
		// and the next reaper that finds the row puts that back.
		err := e.s.expiry.delete(ctx, was.ExpiresAt, was.Name, was.expiryETag)
		if !errors.Is(err, table.ErrChanged) {
			left(err)
		}
	}
	if m.guard.ETag == "" {
		return // the edit does not change what leads to the link
	}
	late, err := e.reindex(ctx, was.Link, next.Link, m.claims)
	left(e.s.owners.delete(ctx, m.listed)) // as it was before: a transfer back has written it anew
	if !left(err) && !late && !e.s.endsSoon(next.Link) {
		left(e.s.expiry.rows.Delete(ctx, m.guard))
	}
}

// reindex makes the index lead to a link by its new key, if claims is true or the index led to the
// link by its old key. late: the guard has to stay.
func (e *editing) reindex(ctx context.Context, was, next link.Link, claims bool) (late bool,
	err error) {
	key := indexKey(was)
	if key == indexKey(next) {
		if claims {
			return e.s.claim(ctx, next, indexRow{})
		}
		return false, nil
	}
	old, err := e.s.index.get(ctx, key)
	if err != nil && !errors.Is(err, table.ErrGone) {
		return false, err
	}
	led := err == nil && old.alias == string(was.Name)
	if led || claims {
		if late, err = e.s.claim(ctx, next, indexRow{}); err != nil {
			return late, err
		}
	}
	if !led {
		// The create of the link may be about to enter it under the old key.
		return late || e.s.config.Now().Sub(was.CreatedAt) < guardAfter, nil
	}
	there, err := e.s.links.get(ctx, was.Name)
	if err != nil && !decided(err) || err == nil && indexKey(there.Link) == key {
		return true, err // another edit has gone back to the old key
	}
	return late, e.s.index.drop(ctx, key, old.etag)
}
