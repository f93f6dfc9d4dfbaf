package storage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tiney/link"
	"tiney/telemetry"
)

// reapConcurrency is how many expired links are deleted at the same time: enough to hide the latency of a storage call,
// and few enough to leave the instance's one core and its connections to the requests.
const reapConcurrency = 16

// ReapConfig bounds the work of the reaper.
type ReapConfig struct {
	Buffer   time.Duration // how long past its expiry a link is kept; zero is fine
	Limit    time.Duration // how long one Reap may take
	PageSize int           // expiry rows per page, at most 1000
	// StorageClock makes Reap go by the storage service's clock if Now is ahead of it: what it deletes is gone for good,
	// and the clock of a machine can be wrong.
	StorageClock bool
}

// errReapLimit ends a run that has used up its time.
var errReapLimit = errors.New("the run has used up its time")

// Reap deletes the links that expired longer than the buffer ago, oldest first, with their rows in all three tables. It
// finds them by their expiry rows, those of past days included, so that a reaper that was down for weeks catches up. It
// holds one page of expiry rows in memory.
//
// A link that was given a later expiry keeps everything but the old expiry row. A row that fails is counted and logged,
// and stops nothing. Any number of Reaps may run at once, in any number of processes, and each may be stopped at any
// point: what is left is found by the next one.
//
// A run that reaches its time limit is no error. Errors: link.ErrUnavailable, or the cause of the end of ctx, both with
// what was done until then.
func (s *Links) Reap(ctx context.Context) (link.ReapResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.config.Reap.Limit, errReapLimit)
	defer cancel()
	now, err := s.reapTime(ctx)
	r := &reaping{Links: s, now: now, cutoff: now.Add(-s.config.Reap.Buffer)}
	if err == nil {
		err = s.expiry.expired(ctx, r.cutoff, s.config.Reap.PageSize, func(page []expiryRow) error { return r.page(ctx, page) })
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	r.done.Complete = err == nil
	if !r.done.Complete && r.done.Backlog == 0 && !r.seen.IsZero() {
		r.done.Backlog = now.Sub(r.seen) // rows come oldest first: what was not listed expired later
	}
	if errors.Is(err, errReapLimit) {
		err = nil
	}
	return r.done, exported(err)
}

// reapTime returns the time that Reap goes by: the earlier of local and storage time, if StorageClock is set.
func (s *Links) reapTime(ctx context.Context) (time.Time, error) {
	now := s.config.Now()
	if !s.config.Reap.StorageClock {
		return now, nil
	}
	there, err := s.expiry.clock(ctx)
	if err == nil && there.Before(now) {
		now = there
	}
	return now, err
}

// reaping is one Reap at work.
type reaping struct {
	*Links
	now    time.Time
	cutoff time.Time
	seen   time.Time // the latest expiry of a row that was listed

	mu        sync.Mutex
	done      link.ReapResult
	unbatched []expiryRow // rows of the page that are left to delete one by one; their links are gone
}

// batch is some rows of one page and one partition. Once all of them have been handled, one call deletes those whose links
// were deleted.
type batch struct {
	open     int         // rows that are still being handled
	unlinked []expiryRow // rows whose links were deleted
}

// page reaps one page of rows.
func (r *reaping) page(ctx context.Context, page []expiryRow) error {
	batches := make([]*batch, len(page)) // of each row
	for i, e := range page {
		if e.expiresAt.After(r.seen) {
			r.seen = e.expiresAt
		}
		if i > 0 && e.partition == page[i-1].partition && batches[i-1].open < batchSize {
			batches[i] = batches[i-1]
		} else {
			batches[i] = new(batch)
		}
		batches[i].open++
	}
	r.eachOf(page, func(i int, e expiryRow) { r.handle(ctx, e, batches[i]) })
	r.eachOf(r.unbatched, func(_ int, e expiryRow) { r.deleteOne(ctx, e) })
	r.unbatched = nil
	return ctx.Err()
}

// eachOf calls do for each row, reapConcurrency of them at a time. A row that fails is counted by do.
func (r *reaping) eachOf(rows []expiryRow, do func(i int, e expiryRow)) {
	var all errgroup.Group
	all.SetLimit(reapConcurrency)
	for i, e := range rows {
		all.Go(func() error {
			do(i, e)
			return nil
		})
	}
	_ = all.Wait()
}

// handle handles one expiry row, and deletes its batch after the last row of that.
func (r *reaping) handle(ctx context.Context, e expiryRow, b *batch) {
	var deleted bool
	if !e.expiresAt.After(r.cutoff) { // its key says that it is due, but the property is what counts
		err := safely(func() (err error) {
			deleted, err = r.reapOne(ctx, e)
			return err
		})
		if !deleted {
			r.count(ctx, e, false, err)
		}
	}
	r.mu.Lock()
	if deleted {
		b.unlinked = append(b.unlinked, e)
	}
	b.open--
	last := b.open == 0
	r.mu.Unlock()
	if last {
		r.deleteAll(ctx, b.unlinked)
	}
}

// deleteAll deletes, in one call, rows whose links are gone. If that fails, because a row was changed or is gone already,
// it leaves them to be deleted one by one.
func (r *reaping) deleteAll(ctx context.Context, rows []expiryRow) {
	if len(rows) > 1 && ctx.Err() == nil {
		err := r.expiry.deleteBatch(ctx, rows)
		if err == nil {
			for _, e := range rows {
				r.count(ctx, e, true, nil)
			}
			return
		}
		if ctx.Err() == nil {
			r.config.Log.Warn(telemetry.LogBatchRefused, "partition", rows[0].partition, "rows", len(rows), "error", err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unbatched = append(r.unbatched, rows...)
}

// deleteOne deletes a row whose link is deleted.
func (r *reaping) deleteOne(ctx context.Context, e expiryRow) {
	err := ctx.Err()
	if err == nil {
		err = safely(func() error { return r.expiry.delete(ctx, e) })
	}
	r.count(ctx, e, true, err)
}

// count counts the result of a row: a link counts as deleted once its expiry row is deleted too.
func (r *reaping) count(ctx context.Context, e expiryRow, deleted bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil && deleted:
		r.done.Deleted++
		return
	case err == nil:
		r.done.Dropped++
		return
	case errors.Is(err, errChanged):
		return // another process works on it: the next run sees the result
	}
	if !e.expiresAt.IsZero() {
		r.done.Backlog = max(r.done.Backlog, r.now.Sub(e.expiresAt))
	}
	if ctx.Err() != nil {
		return // cut short, not failed
	}
	r.done.Failed++
	r.config.Log.Error(telemetry.LogLinkNotReaped, "partition", e.partition, "row", e.key, "error", err)
}

// reapOne handles one due expiry row. If it deletes the link, it leaves the row to the batch; if the link is gone or not
// due, it deletes the row itself. errChanged: a row has changed since it was read.
func (r *reaping) reapOne(ctx context.Context, e expiryRow) (deleted bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	a, ok := link.ParseAlias(string(e.alias))
	if !ok || e.expiresAt.IsZero() {
		return false, fmt.Errorf("expiry row: %w", link.ErrDamaged)
	}
	// From the table itself: the cache may be older than another program's write.
	l, err := r.links.get(ctx, a)
	switch {
	case errors.Is(err, link.ErrNotFound):
		// At once, and not with its batch: a create that comes much too late may be about to insert the link, and would leave
		// alone the row that it finds there.
		return false, r.expiry.delete(ctx, e)
	case err != nil:
		return false, err
	case !l.Expired(r.cutoff):
		// It was extended, or made to last for ever. Its new expiry row, if it has one, stands elsewhere.
		return false, r.expiry.delete(ctx, e)
	}
	// A crash after one of these deletes leaves the expiry row, and the next run goes on from there.
	seen, err := r.index.get(ctx, l.LongURL)
	if err == nil && seen.alias == string(a) {
		if seen.expiresAt.After(r.cutoff) {
			return false, r.halfExtended(ctx, a)
		}
		err = r.index.delete(ctx, l.LongURL, seen)
	}
	if err != nil && !errors.Is(err, errGone) {
		return false, err
	}
	if err := r.rows.delete(ctx, l); err != nil {
		return false, err
	}
	return true, nil
}

// halfExtended is for an expired link whose index row has a later expiry. Either another program has extended the link
// since it was read, and the next run sees that; or it has extended the index row only, and somebody has to repair it.
func (r *reaping) halfExtended(ctx context.Context, a link.Alias) error {
	l, err := r.links.get(ctx, a)
	if err == nil && l.Expired(r.cutoff) {
		return fmt.Errorf("link %s has expired, and its index row has a later expiry: %w", a, link.ErrDamaged)
	}
	return errChanged
}
