package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

// Reap ends the links that were over before the buffer began, oldest first. It deletes their rows
// in all tables, and leaves a tombstone for the configured time. It finds them by their expiry
// rows, those of past days included, so that a reaper that was down for weeks catches up. It holds
// one page of expiry rows in memory. It also deletes old announcements of changes.
//
// A link that was extended loses only the old expiry row. A row that fails is counted and logged,
// and the others go on. Any number of Reaps may run at once, in any number of processes, and each
// may be stopped at any point: the next one finds what is left.
//
// That ctx's time is over is no error. Errors: link.ErrUnavailable, or the cause of the end of ctx,
// both with what was done until then.
func (s *Links) Reap(ctx context.Context) (link.ReapResult, error) {
	now, err := s.reapTime(ctx)
	r := &reaping{s: s, now: now, cutoff: now.Add(-s.config.Reap.Buffer)}
	if err == nil {
		err = s.expiry.expired(ctx, r.cutoff,
			s.config.Reap.PageSize, func(page []expiryRow) error { return r.page(ctx, page) })
	}
	if err == nil {
		err = s.changes.drop(ctx, now)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	r.done.Complete = err == nil
	if !r.done.Complete && r.done.Backlog == 0 && !r.seen.IsZero() {
		// Rows come oldest first, so what was not listed expired later.
		r.done.Backlog = now.Sub(r.seen)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = nil
	}
	return r.done, err
}

// reapTime returns the time that Reap takes for now: the local time or, with StorageClock, the
// earlier of the local and the storage service's time.
func (s *Links) reapTime(ctx context.Context) (time.Time, error) {
	now := s.config.Now()
	if !s.config.Reap.StorageClock {
		return now, nil
	}
	return s.expiry.rows.Earlier(ctx, now)
}

// reaping is one Reap at work.
type reaping struct {
	s      *Links
	now    time.Time
	cutoff time.Time
	seen   time.Time // the latest expiry of a row that was listed

	mu   sync.Mutex
	done link.ReapResult
}

// dueRow is an expiry row that is due, and its link.
type dueRow struct {
	expiryRow
	link linkRow
	read time.Time // when the link was read
	over bool      // the link's time is over, so it is to end now
	gone bool      // the link has ended: only the expiry row is left
	tomb []byte    // the expiry row of the tombstone that replaces the link; nil: none does
}

// page reaps one page of rows, in groups of one partition that fit into a batch.
func (r *reaping) page(ctx context.Context, page []expiryRow) error {
	var group []*dueRow
	for i, e := range page {
		if e.expiresAt.After(r.seen) {
			r.seen = e.expiresAt
		}
		// Its key says that it is due, but the property counts.
		if !e.expiresAt.After(r.cutoff) {
			group = append(group, &dueRow{expiryRow: e})
		}
		if len(group) == table.MaxBatch || i == len(page)-1 || page[i+1].Partition != e.Partition {
			r.group(ctx, group)
			group = nil
		}
	}
	return ctx.Err()
}

// group reaps some rows of one partition. It reads all their links first. So one batch can write
// the expiry rows of all tombstones, and another one can delete the rows of all links that have
// ended.
func (r *reaping) group(ctx context.Context, rows []*dueRow) {
	r.eachOf(ctx, rows, func(d *dueRow) error { return r.look(ctx, d) })
	var over, again []*dueRow
	seen := map[link.Name]bool{}
	for _, d := range rows {
		switch {
		case !d.over:
		case seen[d.alias]:
			again = append(again, d)
		default:
			seen[d.alias] = true
			over = append(over, d)
		}
	}
	r.endLinks(ctx, over)
	// A link may have several rows that are due. The first one has ended it, and the others now
	// lead nowhere.
	r.eachOf(ctx, again, func(d *dueRow) error { return r.look(ctx, d) })
}

// endLinks ends the links of some rows, all of different links, and deletes the rows.
func (r *reaping) endLinks(ctx context.Context, over []*dueRow) {
	over = r.prepareTombstones(ctx, over)
	r.eachOf(ctx, over, func(d *dueRow) error { return r.endLink(ctx, d) })
	over = slices.DeleteFunc(over, func(d *dueRow) bool { return !d.gone })
	if len(over) > 1 && ctx.Err() == nil {
		var keys []table.Key
		for _, d := range over {
			keys = append(keys, d.Key)
		}
		err := r.s.expiry.rows.DeleteBatch(ctx, keys)
		if err == nil {
			for _, d := range over {
				r.count(ctx, d, nil)
			}
			return
		}
		if ctx.Err() == nil {
			r.s.config.Log.Warn(telemetry.LogBatchRefused, "partition", keys[0].Partition, "rows",
				len(keys), "error", err)
		}
	}
	r.eachOf(ctx, over, func(d *dueRow) error { return r.drop(ctx, d) })
}

// eachOf calls do for each row, inBackground rows at a time, and counts the rows that fail.
func (r *reaping) eachOf(ctx context.Context, rows []*dueRow, do func(*dueRow) error) {
	var all errgroup.Group
	all.SetLimit(concurrent.InBackground)
	for _, d := range rows {
		all.Go(func() error {
			err := ctx.Err()
			if err == nil {
				err = concurrent.Safely(func() error { return do(d) })
			}
			if err != nil {
				d.over, d.gone = false, false
				r.count(ctx, d, err)
			}
			return nil
		})
	}
	_ = all.Wait()
}

// count counts the result of a row. A link counts as deleted once its expiry row is deleted too.
func (r *reaping) count(ctx context.Context, d *dueRow, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case err == nil && d.gone && d.link.GoneReason == link.StateLive:
		r.done.Deleted++
		return
	case err == nil:
		r.done.Dropped++
		return
	case errors.Is(err, table.ErrChanged):
		return // another process works on it, and the next run sees the result
	}
	if !d.expiresAt.IsZero() {
		r.done.Backlog = max(r.done.Backlog, r.now.Sub(d.expiresAt))
	}
	if ctx.Err() != nil {
		return // cut short, not failed
	}
	r.done.Failed++
	r.s.config.Log.Error(telemetry.LogLinkNotReaped, "partition", d.Partition, "row", d.Row,
		"error", err)
}

// drop deletes an expiry row that is not needed any more.
func (r *reaping) drop(ctx context.Context, d *dueRow) error {
	err := r.s.expiry.rows.Delete(ctx, d.Key)
	if err == nil {
		r.count(ctx, d, nil)
	}
	return err
}

// look reads the link of a due row. If the link is gone or not over, it deletes the row.
// table.ErrChanged: the row has changed since it was read.
func (r *reaping) look(ctx context.Context, d *dueRow) error {
	a, ok := link.ParseName(string(d.alias))
	if !ok || d.expiresAt.IsZero() {
		return fmt.Errorf("expiry row: %w", link.ErrDamaged)
	}
	seen, err := r.readGuarded(ctx, d) // before the link: see dropStale
	if err != nil {
		return err
	}
	// Not from the cache, which may be older than another process' write.
	d.read = r.s.config.Now().Round(0) // wall clock time
	d.link, err = r.s.links.get(ctx, a)
	if err != nil && !errors.Is(err, link.ErrNotFound) {
		return err
	}
	if err != nil && d.expiresAt.After(r.now.Add(link.MinTTL-guardAfter)) {
		// The row was written at least MinTTL before it is due. Until guardAfter has passed since
		// then, the insert of its link may still arrive. The next run looks again.
		return nil
	}
	if err := r.dropStale(ctx, d, seen); err != nil {
		return err
	}
	end := r.s.end(d.link.Link)
	if d.over = err == nil && !end.IsZero() && !end.After(r.cutoff); d.over {
		return nil
	}
	if err == nil {
		if d.link.GoneReason == link.StateLive && len(d.keys) == 0 {
			// A later run looks once more. A stalled reaper may still delete the index and list
			// rows of the renewed link, and die before it notices.
			l := d.link.Link
			if _, err := r.s.guardIn(ctx, lookAgainAfter, l, l); err != nil {
				return err
			}
		}
		if err := r.keep(ctx, d.link, end); err != nil {
			return err
		}
	}
	// A reaper that was killed may have left what is rolled up of a link that is gone.
	if err := r.s.Clicks.Drop(ctx, a); err != nil {
		return err
	}
	// At once, not with its group: a create that is much too late may be about to insert the link,
	// and would rely on the row that it finds.
	return r.drop(ctx, d)
}

// lookAgainAfter is longer than a reaper that has read a link may take to end it.
const lookAgainAfter = 5 * time.Minute

// keep writes the rows that a link may lack that ends later than one of its expiry rows says. It
// may have been renewed while a reaper, which then crashed, was deleting it. Only that expiry row
// leads to it.
func (r *reaping) keep(ctx context.Context, l linkRow, end time.Time) error {
	if !end.IsZero() {
		if _, err := r.s.expiry.put(ctx, end, l.Name); err != nil {
			return err
		}
	}
	if r.s.rowsOf(l.Link).index == "" || !l.DeletedAt.IsZero() {
		return nil // the index need not lead to a tombstone or a deleted link
	}
	return r.s.claimGuarded(ctx, l.Link)
}

// readGuarded reads the rows of the index that a guard names, one for each of its keys.
func (r *reaping) readGuarded(ctx context.Context, d *dueRow) (seen []indexRow, err error) {
	for _, key := range d.keys {
		row, err := r.s.index.get(ctx, key)
		if err != nil && !errors.Is(err, table.ErrGone) {
			return nil, err
		}
		seen = append(seen, row)
	}
	return seen, nil
}

// dropStale deletes the rows of the index that a guard names if they lead to the link and do not
// fit its present URL and owner. They were read before the link: an edit that makes them fit writes
// them anew, after the link.
func (r *reaping) dropStale(ctx context.Context, d *dueRow, seen []indexRow) error {
	for i, key := range d.keys {
		l := d.link.Link
		if seen[i].alias != string(d.alias) || l.LongURL != "" && key == indexKey(l) {
			continue
		}
		if err := r.s.index.drop(ctx, key, seen[i].etag); err != nil {
			return err
		}
	}
	return nil
}

// prepareTombstones inserts the expiry rows of the tombstones that are to replace links. It returns
// the rows for which that succeeded.
func (r *reaping) prepareTombstones(ctx context.Context, rows []*dueRow) []*dueRow {
	byDay := map[string][]*dueRow{}
	for _, d := range rows {
		if end := r.s.end(r.tombstone(d.link.Link)); d.link.GoneReason == link.StateLive &&
			end.After(r.now) && r.s.config.TombstoneFor > 0 {
			row := newExpiry(end, d.alias)
			d.tomb = table.Encode(row)
			byDay[row.PartitionKey] = append(byDay[row.PartitionKey], d)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byDay)) {
		day := byDay[name]
		var entities [][]byte
		for _, d := range day {
			entities = append(entities, d.tomb)
		}
		err := ctx.Err()
		if err == nil {
			_, err = r.s.expiry.rows.UpsertBatch(ctx, entities)
		}
		if err == nil {
			continue
		}
		for _, d := range day { // they fail together, and the next run tries again
			d.over = false
			r.count(ctx, d, err)
		}
	}
	return slices.DeleteFunc(rows, func(d *dueRow) bool { return !d.over })
}

// tombstone returns the tombstone of a link. That of a link that was taken down sends nobody where
// its owner wants.
func (r *reaping) tombstone(l link.Link) link.Link {
	t := link.Link{Name: l.Name, GoneReason: link.StateExpired, GoneAt: l.ExpiresAt}
	if !l.DeletedAt.IsZero() {
		t.GoneReason, t.GoneAt = link.StateDeleted, l.DeletedAt
	}
	if !l.Locked {
		t.GoneURL = l.GoneURL
	}
	return t
}

// endLink deletes the link's row of the index, then the link, or replaces it by its tombstone, and
// then its row in its owner's list and that of an end to come. A crash in between leaves the expiry
// row, by which the next run goes on, or the row in the list, which the next list deletes, or the
// row of the end, which the reaper drops then. table.ErrChanged: the link was renewed, or may have
// been.
func (r *reaping) endLink(ctx context.Context, d *dueRow) error {
	if r.s.config.Now().Round(0).Sub(d.read) > lookAgainAfter/2 {
		return table.ErrChanged // the process stood still; another reaper may have dropped the row
	}
	// The end of the run, such as the loss of the lock, does not cut this short: what leads to a
	// link that turns out to be renewed has to be put back.
	life, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.s.config.Timeout)
	defer cancel()
	err := r.unlink(life, d)
	if err == nil {
		d.gone = true
		return nil
	}
	// An edit was perhaps faster. What leads to the link is put back now, or by the run that
	// handles the expiry row again.
	life, cancel = context.WithTimeout(context.WithoutCancel(ctx), r.s.config.Timeout)
	defer cancel()
	if now, readErr := r.s.read(life, d.alias); readErr == nil && now.etag != d.link.etag {
		if keepErr := r.keep(life, now, time.Time{}); keepErr != nil {
			return keepErr
		}
	}
	return err
}

func (r *reaping) unlink(ctx context.Context, d *dueRow) (err error) {
	l, rows := d.link, r.s.rowsOf(d.link.Link)
	// The ETag is of before the link ends: who makes the alias anew, or gives the renewed link
	// away, writes the row of the list anew.
	listed, err := r.s.owners.read(ctx, rows.listed)
	if err != nil {
		return err
	}
	if listed.ETag != "" && d.tomb == nil {
		// Another reaper may have freed the alias, and the row may be that of a new link.
		if err := r.s.unchanged(ctx, l); err != nil {
			return err
		}
	}
	if rows.index != "" {
		if _, err := r.s.release(ctx, l, rows.index); err != nil {
			return err
		}
	}
	r.s.cache.forget(l.Name)
	if d.tomb != nil {
		_, _, err = r.s.links.replace(ctx, l.etag, linkRow{Link: r.tombstone(l.Link)})
	} else if err = r.s.links.delete(ctx, l); err == nil {
		// A roll-up that writes more of its clicks meanwhile finds that the link is gone, and takes
		// that away again.
		err = r.s.Clicks.Drop(ctx, l.Name)
	}
	r.s.cache.forget(l.Name)
	if err == nil {
		_ = r.s.owners.delete(ctx, listed) // if this fails, a list deletes it
		r.dropKept(ctx, l)
	}
	return err
}

// dropKept deletes the expiry row of the end that a link has kept, which was deleted or used up
// before it. Whoever needs the row for a new link with the alias has written it anew. If this
// fails, the row goes when it is due.
func (r *reaping) dropKept(ctx context.Context, l linkRow) {
	kept := l.ExpiresAt
	if l.UsedUp() {
		kept = l.EndKept
	}
	if kept.After(r.now) {
		_ = r.s.expiry.delete(ctx, kept, l.Name, l.expiryETag)
	}
}
