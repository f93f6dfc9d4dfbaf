package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"tiney/link"
	"tiney/storage/table"
	"tiney/telemetry"
)

const (
	// editTries is how often a link is read and written again because another edit came between.
	editTries = 5
	// editConcurrency is how many links EditAll edits at the same time.
	editConcurrency = 16
)

// Edit changes a link: it reads it, lets change say what it is to become, and writes that if the
// link is still the one that was read. Otherwise it begins again, a few times, but not if once is
// set. If change returns an error, nothing is written, and Edit returns that error; if it returns
// the link as it was, nothing is written either. Change may be called more than once, and must do
// nothing else.
//
// When it returns without an error, the change is durable, and within 15 seconds every process
// knows of it. It takes at most Timeout, and a second more to repair if the process was stopped for
// too long. A client that disconnects does not cut it short. Errors: those of change,
// link.ErrBlocked of another long URL, link.ErrNotFound, also for a tombstone, link.ErrConflict,
// link.ErrDamaged, link.ErrUnavailable.
func (s *Links) Edit(ctx context.Context, a link.Alias, once bool,
	change func(link.Link) (link.Link, error)) (link.Link, error) {
	until, ctx, cancel := s.config.startWrite(ctx)
	defer cancel()
	e := &editing{s: s, until: until, once: once}
	return e.edit(ctx, a, change)
}

// EditAll edits several links as Edit does, announcing all of them first; change gets the index of
// the link. An alias may be there more than once. It returns the error of each, or one error if it
// did nothing at all. All of them together take as long as one Edit may: other processes look for
// an announcement for about a minute only.
func (s *Links) EditAll(ctx context.Context, aliases []link.Alias,
	change func(i int, l link.Link) (link.Link, error)) ([]error, error) {
	at := map[link.Alias][]int{}
	var names []string
	for i, a := range aliases {
		if at[a] == nil {
			names = append(names, string(a))
		}
		at[a] = append(at[a], i)
	}
	until, ctx, cancel := s.config.startWrite(ctx)
	defer cancel()
	for some := range slices.Chunk(names, table.MaxBatch) {
		if err := s.changes.tell(ctx, some...); err != nil {
			return nil, err
		}
	}
	errs := make([]error, len(aliases))
	var all errgroup.Group
	all.SetLimit(editConcurrency)
	for _, name := range names {
		a := link.Alias(name)
		all.Go(func() error {
			for _, i := range at[a] {
				errs[i] = table.Safely(func() error {
					e := &editing{s: s, until: until, told: true}
					_, err := e.edit(ctx, a, func(l link.Link) (link.Link,
						error) {
						return change(i, l)
					})
					return err
				})
			}
			return nil
		})
	}
	_ = all.Wait()
	return errs, nil
}

// errOverwritten: it is not known whether a write was applied, since the link has been changed
// after it.
var errOverwritten = errors.New("the response was lost, and the link has been changed since")

// editing is one Edit at work.
type editing struct {
	s     *Links
	until deadline
	once  bool // the link is to be as it is read first, or not to be changed
	told  bool // other processes know that the link is about to change
}

func (e *editing) edit(ctx context.Context, a link.Alias, change func(link.Link) (link.Link,
	error)) (link.Link, error) {
	var l linkRow
	var err error
	for range editTries {
		if l, err = e.try(ctx, a, change); e.once || !errors.Is(err, table.ErrChanged) {
			break
		}
	}
	if errors.Is(err, table.ErrChanged) {
		err = link.ErrConflict
	}
	return l.Link, err
}

// try reads, changes and writes the link once. table.ErrChanged: another edit came between.
func (e *editing) try(ctx context.Context, a link.Alias, change func(link.Link) (link.Link,
	error)) (linkRow, error) {
	was, err := e.s.read(ctx, a)
	if err != nil {
		return linkRow{}, err
	}
	next := was
	if next.Link, err = change(was.Link); err != nil {
		return linkRow{}, err
	}
	if !next.Changed(was.Link) {
		e.s.cache.forget(a) // another process has made this change, and this one may not know of it
		return was, nil
	}
	if next.LongURL != was.LongURL {
		if err := e.s.Blocked.permit(ctx, next.LongURL); err != nil {
			return linkRow{}, err
		}
	}
	if next.editID, err = e.s.config.newID(); err != nil {
		return linkRow{}, err
	}
	if err := e.until.inTime(); err != nil {
		return linkRow{}, err
	}
	if !e.told {
		if err := e.s.changes.tell(ctx, string(a)); err != nil {
			return linkRow{}, err
		}
		e.told = true
	}
	guard, enters, err := e.prepare(ctx, was, &next)
	if err == nil {
		// A crash here leaves an expiry row whose link says otherwise, which the reaper drops.
		err = e.until.inTime()
	}
	var written linkRow
	if err == nil {
		e.s.cache.forget(a)
		written, err = e.s.links.replace(ctx, was.etag, next)
		e.s.cache.forget(a)
		if late := e.until.inTime(); late != nil {
			e.repair(ctx, was, next)
			if err == nil {
				err = late
			}
		}
	}
	if err != nil {
		switch changed := errors.Is(err, table.ErrChanged); {
		case changed && written.retried && e.once:
			// The edit may have been applied, its response lost, and another edit applied after it.
			err = fmt.Errorf("%w: %w", link.ErrUnavailable, errOverwritten)
		case changed && !written.retried && guard.etag != "":
			// This try has changed nothing. The next one, and those of others, would have to find a
			// free second beyond the row.
			_ = e.s.expiry.delete(ctx, guard)
		}
		return linkRow{}, err
	}
	e.tidy(ctx, was, written, guard, enters)
	return written, nil
}

// prepare writes what has to be there before the link is written. It returns the guard of the
// index, if that is to change: it stays if anything fails, and by it the reaper puts the index in
// order. Enters: the link is to enter the index, wherever it was.
func (e *editing) prepare(ctx context.Context, was linkRow, next *linkRow) (guard rowKey,
	enters bool, err error) {
	if !next.ExpiresAt.Equal(was.ExpiresAt) {
		next.expiryETag = ""
	}
	if due := e.s.due(next.Link); !due.IsZero() && !e.s.end(next.Link).Equal(e.s.end(was.Link)) {
		etag, err := e.s.expiry.put(ctx, due, next.Alias)
		if err != nil {
			return rowKey{}, false, err
		}
		if due.Equal(next.ExpiresAt) {
			next.expiryETag = etag
		}
	}
	over := was.Expired(e.s.config.Now()) && !next.ExpiresAt.Equal(was.ExpiresAt)
	restored := next.DeletedAt.IsZero() && !was.DeletedAt.IsZero()
	claimed := next.Owner != was.Owner
	before, after := indexKey(was.Link), indexKey(next.Link)
	if before == after && !over && !restored {
		return rowKey{}, false, nil
	}
	if guard, err = e.s.guard(ctx, next.Alias, before, after); err != nil {
		return rowKey{}, false, err
	}
	if claimed {
		if err := e.s.owners.put(ctx, *next); err != nil {
			return guard, false, err
		}
	}
	withdrawn, err := e.s.withdraw(ctx, was, after)
	return guard, withdrawn || restored || claimed, err
}

// tidy does what is left to do after the link was written. It is best effort: what it cannot do,
// the reaper does.
func (e *editing) tidy(ctx context.Context, was, next linkRow, guard rowKey, enters bool) {
	left := func(err error) bool {
		if err != nil {
			e.s.config.Log.Warn(telemetry.LogEditLeft, "alias", next.Alias, "error", err)
		}
		return err != nil
	}
	if !next.ExpiresAt.Equal(was.ExpiresAt) && was.expiryETag != "" &&
		was.ExpiresAt.After(e.s.config.Now().Add(link.MinTTL)) {
		// By an ETag that was known before the link was written: if another edit has made the link
		// end then again, the row has another one by now. A row that is due, or nearly, is left: a
		// reaper may have deleted what leads to the link and then crashed, and the reaper that
		// finds the row puts that back.
		partition, key := expiryKey(was.ExpiresAt, was.Alias)
		if err := e.s.expiry.delete(ctx, rowKey{partition, key, was.expiryETag}); !errors.Is(err,
			table.ErrChanged) {
			left(err)
		}
	}
	if guard.etag == "" {
		return // the index is as it was
	}
	late, err := e.lead(ctx, was.Link, next.Link, enters)
	if !left(err) && !late && !e.s.endsSoon(next.Link) {
		left(e.s.expiry.delete(ctx, guard))
	}
}

// lead makes the index lead to a link by its new key, if it enters or the old key did. late: the
// guard has to stay.
func (e *editing) lead(ctx context.Context, was, next link.Link, enters bool) (late bool,
	err error) {
	key := indexKey(was)
	if key == indexKey(next) {
		if enters {
			return e.s.enterIndex(ctx, next)
		}
		return false, nil
	}
	old, err := e.s.index.get(ctx, key)
	if err != nil && !errors.Is(err, table.ErrGone) {
		return false, err
	}
	led := err == nil && old.alias == string(was.Alias)
	if led || enters {
		if late, err = e.s.enterIndex(ctx, next); err != nil {
			return late, err
		}
	}
	if !led {
		// Its create may be about to enter it by the old key.
		return late || e.s.config.Now().Sub(was.CreatedAt) < guardAfter, nil
	}
	there, err := e.s.links.get(ctx, was.Alias)
	if err != nil && !decided(err) || err == nil && indexKey(there.Link) == key {
		return true, err // it has gone back
	}
	return late, e.s.index.drop(ctx, key, old.etag)
}

// repair is for a process that was stopped in the middle of the write of the link for longer than
// an edit may take: the write may have been applied after the reaper had dropped the expiry rows of
// the new state, even if it returned an error.
func (e *editing) repair(ctx context.Context, was, next linkRow) {
	if !e.until.stopped() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	var err error
	if due := e.s.due(next.Link); !due.IsZero() {
		_, err = e.s.expiry.put(ctx, due, next.Alias)
	}
	if err == nil && next.Owner != "" {
		err = e.s.owners.put(ctx, next)
	}
	if err == nil {
		_, err = e.s.guard(ctx, next.Alias, indexKey(was.Link), indexKey(next.Link))
	}
	if err != nil {
		e.s.config.Log.Error(telemetry.LogCreateTooLate, "left", "a link without its expiry row",
			"alias", next.Alias, "error", err)
	}
}
