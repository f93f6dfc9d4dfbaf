package storage

import (
	"cmp"
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

const (
	aliasTries = 10 // how many aliases a create draws before it fails
	// clockSkew is how far the clocks of other processes may be behind. A click on a new link must
	// not count for a day before the link's CountedFrom.
	clockSkew  = time.Minute
	shareTries = 5 // how often a link is read again while others change it
)

// Create makes a link like want.
//
// Links of other domains than want's do not count. If want has an alias, Create looks for a link by
// that alias only. If want has an owner who already has a live link of that alias and URL, Create
// returns that link, and created is false. The index does not name the new link.
//
// If want has no alias, Create looks for a live link of its long URL and its owner, or, if want has
// no owner, for a live link of that URL without an owner. If there is one, Create returns it, and
// created is false; otherwise Create draws an alias. However many callers, here and in other
// processes, want a link for one URL at the same time, they all get the same link, and created is
// true for one of them. If want has a start, a password or MaxOpens, only a link with the same
// three will do, and the index does not name the new link.
//
// A scheduled link counts as live in all of this.
//
// If Create returns an existing link without owner, it marks the link as Shared, unless claimHash
// is the ClaimHash of that link. If the link ends much too early for the caller, it gets the wanted
// end: otherwise a stranger could make a URL's link short-lived for all.
//
// When Create returns without an error, the link is durable. After an error it is safe to repeat.
// Create takes at most Timeout, and a second more to repair if the process was stopped for too
// long. A client that disconnects does not cut it short. Errors: link.ErrBlocked,
// link.ErrDisabled, link.ErrAliasTaken, link.ErrAliasesTaken, link.ErrUnavailable.
func (s *Links) Create(ctx context.Context, want link.Link, claimHash string) (l link.Link,
	created bool, err error) {
	until, ctx, cancel := s.config.startWrite(ctx)
	defer cancel()
	if err := s.Blocked.permit(ctx, link.Link{}, want); err != nil {
		return link.Link{}, false, err
	}
	c := &creation{s: s, until: until, want: want, claimHash: claimHash}
	if want.Name.Alias() != "" {
		return c.createChosen(ctx)
	}
	return c.create(ctx)
}

// creation is one Create at work.
type creation struct {
	s         *Links
	until     deadline
	want      link.Link
	claimHash string    // hash of the caller's claim token
	takeOver  bool      // take over rows that are in the way but belong to no link
	notBefore time.Time // earliest time at which the expiry row is due; zero: no limit

	own       linkRow    // the link that was inserted for want
	ownExpiry table.ETag // of own's expiry row; "" if only the reaper may delete that row
	// of own's row in its owner's list; "" if this create must not delete that row
	ownListed table.ETag
}

func (c *creation) create(ctx context.Context) (l link.Link, created bool, err error) {
	seen, l, err := c.find(ctx)
	if !errors.Is(err, errStale) {
		return l, false, err
	}
	if err := c.insert(ctx); err != nil {
		return link.Link{}, false, err
	}
	if !c.indexed() {
		return c.own.Link, true, nil
	}
	return c.enter(ctx, seen)
}

// indexed reports whether the index is to name the link that is wanted. It is not, if the link is
// no match for callers who want a link of its URL and nothing else.
func (c *creation) indexed() bool {
	return c.want.Name.Alias() == "" && c.want.StartsAt.IsZero() && !c.want.Guarded()
}

// find returns the link that the index names for the wanted URL: the own link or a live one.
// errStale: the index names no such link; seen is the row that says so, and is zero if there is no
// row. link.ErrDisabled: it names a disabled link of the URL.
func (c *creation) find(ctx context.Context) (seen indexRow, l link.Link, err error) {
	for {
		if err := c.until.inTime(); err != nil {
			return indexRow{}, link.Link{}, err
		}
		seen, err = c.s.index.get(ctx, indexKey(c.want))
		switch {
		case errors.Is(err, table.ErrGone):
			// there was no row, or the reaper has deleted a stale one
			return indexRow{}, link.Link{}, errStale
		case err != nil:
			return indexRow{}, link.Link{}, err
		case c.own.Name != "" && seen.alias == string(c.own.Name):
			return seen, c.own.Link, nil
		}
		if l, err = c.live(ctx, seen); !errors.Is(err, errMoved) {
			return seen, l, err
		}
	}
}

// createChosen inserts the wanted link under the alias that its caller chose.
func (c *creation) createChosen(ctx context.Context) (l link.Link, created bool, err error) {
	// Some process may have cached that there is no such link.
	if err := c.s.changes.announce(ctx, string(c.want.Name)); err != nil {
		return link.Link{}, false, err
	}
	there, err := c.insertChosen(ctx)
	switch {
	case err == nil:
		return c.own.Link, true, nil
	case !errors.Is(err, table.ErrExists):
		return link.Link{}, false, err
	case c.want.Owner != "" && there.Owner == c.want.Owner && there.LongURL == c.want.LongURL &&
		there.State(c.s.config.Now()).LiveOrScheduled():
		return there.Link, false, nil
	}
	return link.Link{}, false, link.ErrAliasTaken
}

// insertChosen inserts the wanted link under its own alias. table.ErrExists: the alias is taken, by
// the link or tombstone that insertChosen returns, or by a row that is damaged or has gone since.
func (c *creation) insertChosen(ctx context.Context) (there linkRow, err error) {
	there, err = c.s.spelled(ctx, c.want)
	switch {
	case err == nil || errors.Is(err, link.ErrDamaged):
		return there, table.ErrExists
	case !errors.Is(err, link.ErrNotFound):
		return linkRow{}, err
	}
	for {
		if err := c.insertAs(ctx, c.want); !errors.Is(err, table.ErrExists) {
			return c.own, err
		}
		there, err := c.s.links.get(ctx, c.want.Name)
		switch {
		case errors.Is(err, link.ErrNotFound) && !c.takeOver:
			// The rows were left behind by a create that broke off, which this create may repeat,
			// or they belong to a create that is under way. The create that inserts the link gets
			// them.
			c.takeOver = true
		case err == nil || decided(err):
			return there, table.ErrExists
		default:
			return linkRow{}, err
		}
	}
}

var (
	errStale = errors.New("the index row is stale")       // the row names no live link for this URL
	errMoved = errors.New("the index names another link") // or none by now
)

// live returns the link that the index row names, if it is a live link of the wanted URL and owner.
// errStale: it is not. link.ErrDisabled: it is disabled. errMoved: the caller has to read the row
// again.
func (c *creation) live(ctx context.Context, seen indexRow) (link.Link, error) {
	a, ok := link.ParseName(seen.alias)
	if !ok {
		return link.Link{}, errStale
	}
	for range shareTries {
		// Before an alias is promised, the table decides. For seconds, this process may have a link
		// cached as it was before its owner claimed, edited or deleted it elsewhere. The alias must
		// redirect from here too, so what was read is cached.
		now, forgotten := c.s.config.Now(), c.s.cache.forgottenCount(a)
		r, err := c.s.links.get(ctx, a)
		if err == nil {
			c.s.cache.replace(r, now, forgotten)
		}
		switch {
		case err != nil && decided(err):
			return link.Link{}, errStale
		case err != nil:
			return link.Link{}, err
		case r.LongURL != c.want.LongURL, r.Owner != c.want.Owner:
			return link.Link{}, errStale
		case !c.indexed() && (!r.StartsAt.Equal(c.want.StartsAt) ||
			r.MaxOpens != c.want.MaxOpens || r.Password != c.want.Password):
			return link.Link{}, errStale
		case r.State(now) == link.StateDisabled:
			return link.Link{}, link.ErrDisabled
		case !r.State(now).LiveOrScheduled():
			return link.Link{}, errStale
		}
		if err := c.until.inTime(); err != nil {
			return link.Link{}, err // the process stood still, and the link may have settled since
		}
		if unsettled(r.Link, now) {
			// The link may have been renewed after its row was read, and the row taken away before
			// the renewal. Then another create may have put its own link there and been
			// acknowledged.
			switch again, err := c.s.index.get(ctx, indexKey(c.want)); {
			case errors.Is(err, table.ErrGone), err == nil && again.alias != seen.alias:
				return link.Link{}, errMoved
			case err != nil:
				return link.Link{}, err
			}
		}
		// From now on others rely on the link. A claim that comes first changes the row, and then
		// this write fails, and the link is looked at again.
		switch {
		case r.Owner == "" && r.EndsEarly(c.want.ExpiresAt, now):
			l, err := c.extend(ctx, r, seen)
			if !errors.Is(err, link.ErrConflict) && !decided(err) {
				return l, err
			}
		case r.Shared || r.Owner != "" || c.claimHash != "" && c.claimHash == r.ClaimHash:
			return r.Link, nil
		default:
			forgotten := c.s.cache.forgottenCount(a)
			shared, err := c.s.links.share(ctx, r)
			if err == nil {
				c.s.cache.replace(shared, now, forgotten)
				return shared.Link, nil
			}
			if !errors.Is(err, table.ErrChanged) {
				return link.Link{}, err
			}
		}
	}
	return link.Link{}, table.ErrChanged
}

// extend gives a link that was read, and that the index names, the wanted end, and marks it as
// shared. link.ErrConflict: it has changed since it was read, or has ended. errMoved: the index has
// changed.
func (c *creation) extend(ctx context.Context, r linkRow, seen indexRow) (link.Link, error) {
	e := &editing{s: c.s, until: c.until, once: true}
	l, err := e.edit(ctx, r.Name, func(l link.Link) (link.Link, error) {
		now := c.s.config.Now()
		if l.Version != r.Version || !l.State(now).LiveOrScheduled() {
			return l, link.ErrConflict
		}
		l = l.Extended(c.want.ExpiresAt, now)
		l.Shared = l.Shared || c.claimHash == "" || c.claimHash != l.ClaimHash
		return l, nil
	})
	if err != nil {
		return l, err
	}
	// The link may have expired meanwhile, before it was written. A create that has read it then is
	// about to put its own link into the index, or has done so. Only one of the two writes
	// succeeds.
	return l, c.s.guarded(ctx, l, func() (late bool, err error) {
		added, late, err := c.s.index.put(ctx, l, seen)
		if errors.Is(err, table.ErrChanged) {
			return late, errMoved
		}
		if err != nil {
			return late, err
		}
		moved, err := c.s.takeBack(ctx, l, added)
		if moved {
			err = cmp.Or(err, errMoved)
		}
		return late, err
	})
}

// insert inserts the wanted link under a fresh alias. It inserts the link's other rows first.
func (c *creation) insert(ctx context.Context) error {
	for range aliasTries {
		a, err := link.NewAlias(c.s.config.Random, c.s.config.AliasLength, c.s.config.AnyCase)
		if err != nil {
			return err
		}
		l := c.want
		l.Name = c.want.Name.Domain().Name(a)
		if err = c.insertAs(ctx, l); !errors.Is(err, table.ErrExists) {
			return err
		}
		c.s.config.Metrics.ShortenAliasCollision.Add(1)
	}
	return link.ErrAliasesTaken
}

// insertAs inserts one link, with its expiry row and its row in its owner's list. table.ErrExists:
// the alias is taken, and insertAs leaves nothing behind, except perhaps rows that may belong to
// another link.
func (c *creation) insertAs(ctx context.Context, l link.Link) error {
	if err := c.until.inTime(); err != nil {
		return err
	}
	id, err := c.s.config.newID()
	if err != nil {
		return err
	}
	l.CountedFrom = clicks.DayOf(c.s.config.Now().Add(-clockSkew)).Start()
	c.own, c.ownExpiry, c.ownListed = linkRow{Link: l, createID: id}, "", ""
	if err := c.insertBefore(ctx); err != nil {
		if errors.Is(err, table.ErrExists) {
			c.dropBefore(ctx)
		}
		return err
	}
	// A crash here leaves rows without a link. The reaper drops the expiry row when it is due, and
	// a list of the owner's links drops the other row.
	if err := c.until.inTime(); err != nil {
		return err
	}
	c.own.expiryETag = c.ownExpiry
	begun, forgotten := c.s.config.Now(), c.s.cache.forgottenCount(l.Name)
	var again bool
	c.own, again, err = c.s.links.insert(ctx, c.own)
	if err == nil {
		c.s.cache.replace(c.own, begun, forgotten)
	}
	if late := c.until.inTime(); late != nil {
		c.repair(ctx)
		return late
	}
	if again {
		// An earlier try that is stuck on its way may still be applied after this create has undone
		// the insert.
		c.ownExpiry, c.ownListed = "", ""
	}
	if errors.Is(err, table.ErrExists) {
		c.dropBefore(ctx)
	}
	return err
}

// expiryAt returns when the expiry row of the own link is due. Zero: it has none.
func (c *creation) expiryAt() time.Time {
	if !c.own.ExpiresAt.IsZero() && c.own.ExpiresAt.Before(c.notBefore) {
		return c.notBefore
	}
	return c.own.ExpiresAt
}

// insertBefore inserts what has to be there before the link. table.ErrExists: one of the rows
// belongs to another link.
func (c *creation) insertBefore(ctx context.Context) error {
	rows := c.s.rowsOf(c.own.Link)
	// A row that is taken over is written anew, so that the create that inserted it cannot delete
	// it by its ETag any more. This create does not delete it either: in the end, the link may be
	// that of either of the two creates.
	expiry := func() (err error) {
		if !rows.end.IsZero() {
			c.ownExpiry, err = c.s.expiry.insert(ctx, c.own, c.expiryAt())
		}
		if c.takeOver && errors.Is(err, table.ErrExists) {
			_, err = c.s.expiry.put(ctx, c.expiryAt(), c.own.Name)
		}
		return err
	}
	listed := func() (err error) {
		if rows.listed.Row != "" {
			c.ownListed, err = c.s.owners.insert(ctx, rows.listed, c.own.createID)
		}
		if c.takeOver && errors.Is(err, table.ErrExists) {
			err = c.s.owners.put(ctx, rows.listed, c.own.createID)
		}
		return err
	}
	if c.want.Name.Alias() != "" {
		// The rows are inserted one after the other: many callers may want the alias at this very
		// second, and most of them end here.
		if err := expiry(); err != nil {
			return err
		}
		return listed()
	}
	var both errgroup.Group
	both.Go(func() error { return concurrent.Safely(expiry) })
	both.Go(func() error { return concurrent.Safely(listed) })
	return both.Wait()
}

// dropBefore deletes what insertBefore has inserted.
func (c *creation) dropBefore(ctx context.Context) {
	left := func(err error) {
		// ErrChanged means that another create has taken over the row
		if err != nil && !errors.Is(err, table.ErrChanged) {
			c.s.config.Log.Warn(telemetry.LogExpiryRowLeft, "alias", c.own.Name, "error", err)
		}
	}
	listed := c.s.rowsOf(c.own.Link).listed
	listed.ETag = c.ownListed
	left(c.s.owners.delete(ctx, listed))
	left(c.s.expiry.delete(ctx, c.expiryAt(), c.own.Name, c.ownExpiry))
}

// enter makes the index name the inserted link and returns that link. If the index names another
// live link by then, enter undoes the insert and returns the other link instead.
func (c *creation) enter(ctx context.Context, seen indexRow) (l link.Link, created bool,
	err error) {
	for guarded := false; ; {
		// A crash here leaves a link that no response has named. It expires like any other. If it
		// never expires, its owner sees it.
		if err := c.until.inTime(); err != nil {
			return link.Link{}, false, err
		}
		if !guarded && c.s.endsSoon(c.own.Link) {
			// The reaper may end the link before the row of the index arrives, also if this process
			// dies meanwhile.
			if _, err := c.s.guard(ctx, c.own.Link, c.own.Link); err != nil {
				return link.Link{}, false, err
			}
			guarded = true
		}
		_, late, err := c.s.index.put(ctx, c.own.Link, seen)
		if !guarded && (late || err != nil && !errors.Is(err, table.ErrChanged)) {
			// The row may still arrive after the own link has moved on, or is gone. By the guard,
			// the reaper finds the row.
			if err := c.s.guardLate(ctx, c.own.Link, c.own.Link); err != nil {
				c.s.config.Log.Warn(telemetry.LogIndexRowLate, "alias", c.own.Name, "error", err)
			}
		}
		if overdue := c.until.inTime(); overdue != nil {
			c.repair(ctx)
			return link.Link{}, false, overdue
		}
		if err == nil {
			return c.own.Link, true, nil
		}
		if !errors.Is(err, table.ErrChanged) {
			// The index may name the link or not. The link stays: the next caller finds it in the
			// index, or it expires.
			return link.Link{}, false, err
		}
		seen, l, err = c.find(ctx)
		switch {
		case errors.Is(err, errStale):
			continue
		case err == nil && l.Name == c.own.Name:
			return l, true, nil // an earlier try was applied, and its response was lost
		case err == nil, errors.Is(err, link.ErrDisabled):
			c.undo(ctx)
		}
		return l, false, err
	}
}

// undo deletes the own link, and after it the rows that were inserted before it. So a crash in
// between leaves no link without these rows. It is best effort: if it fails, the reaper deletes
// them when their time has come.
func (c *creation) undo(ctx context.Context) {
	defer c.s.cache.forget(c.own.Name)
	c.s.cache.forget(c.own.Name)
	if err := c.s.links.delete(ctx, c.own); err != nil {
		c.s.config.Log.Warn(telemetry.LogLinkLeft, "alias", c.own.Name, "error", err)
		return
	}
	c.dropBefore(ctx)
}

// repair does not undo the own link: other creates may have found it by its index row and returned
// it.
func (c *creation) repair(ctx context.Context) {
	c.s.repair(ctx, c.until, c.expiryAt(), c.own.Link, c.own.Link, c.indexed())
}
