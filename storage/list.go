package storage

import (
	"context"
	"errors"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tiney/internal/link"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

const (
	listReads = 1000 // the most links that one List reads
	// how many rows it asks for at a time, after its first query
	listPage  = 200
	listChunk = 128 // how many links it reads before it checks how many are still wanted
	// strayAfter is the age at which a row is deleted that leads to no link of its owner. It is
	// longer than a process stands still between two calls: a transfer or a create writes the row
	// before the link.
	strayAfter = time.Hour
)

// List returns up to limit of an owner's links for which keep is true, newest first, as they are in
// the table. limit must be at least 1. List begins after a position, "" for the start. It returns
// the position of the last link that it looked at, or "" if there are no more links. It looks at
// 1,000 links at most, and at fewer if storage is slow. So it may return fewer than limit although
// there are more. It calls keep for one link after the other.
//
// Without a filter it makes one call more than there are links in the page. Rows that lead to no
// link of the owner are not shown. Nothing but List deletes them, once they are strayAfter old.
// Errors: link.ErrPosition if after cannot be a position, link.ErrUnavailable.
func (s *Links) List(ctx context.Context, owner, after string, limit int,
	keep func(link.Link) bool) (links []link.Link, next string, err error) {
	if len(after) > table.MaxKey || !utf8.ValidString(after) ||
		strings.ContainsFunc(after, unicode.IsControl) {
		return nil, "", link.ErrPosition
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	strays := newStrays(s)
	var rows []table.Listed // rows that were not looked at yet
	more := true            // the table may have more rows
	deadline, _ := ctx.Deadline()
	// After half of its time it looks at no more links. The other half is for the calls that it has
	// begun and for the statistics of the links.
	end := s.config.Now().Add(time.Until(deadline) / 2)
	for looked := 0; looked < listReads && !s.config.Now().After(end); {
		if len(rows) == 0 {
			wanted := min(listPage, listReads-looked)
			if looked == 0 {
				wanted = min(limit, table.MaxPage-1)
			}
			r := table.Range{Partition: ownerPartition(owner), After: after}
			// one row more than wanted shows whether there are more
			if rows, err = s.owners.rows.First(ctx, r, wanted+1); err != nil {
				return nil, "", err
			}
			more = len(rows) > wanted
			rows = rows[:min(len(rows), wanted)]
		}
		n := min(len(rows), max(limit-len(links), concurrent.InRequest), listChunk)
		found, err := s.readListed(ctx, owner, rows[:n], strays)
		if err != nil {
			return nil, "", err
		}
		for i, l := range found {
			if i > 0 && ctx.Err() != nil { // keep takes time, too
				return links, after, nil
			}
			after = rows[i].Row
			if l.Name != "" && keep(l) {
				links = append(links, l)
			}
			if len(links) == limit && (i < len(rows)-1 || more) {
				return links, after, nil
			}
		}
		looked += n
		if rows = rows[n:]; len(rows) == 0 && !more {
			return links, "", nil
		}
	}
	return links, after, nil
}

// readListed reads the links that rows lead to. If a row leads to no link of the owner, the result
// has a link without an alias in its place.
func (s *Links) readListed(ctx context.Context, owner string, rows []table.Listed,
	strays *strays) ([]link.Link, error) {
	links := make([]link.Link, len(rows))
	err := concurrent.Each(ctx, len(rows), concurrent.InRequest, func(ctx context.Context,
		i int) error {
		a, ok := listedName(rows[i].Row)
		if ok {
			r, err := s.read(ctx, a)
			switch {
			case err == nil && r.Owner == owner && ownerKey(r.Link) == rows[i].Row:
				links[i] = r.Link
				return nil
			case errors.Is(err, link.ErrDamaged):
				return nil // "handler check" reports it
			case err != nil && !errors.Is(err, link.ErrNotFound):
				return err
			}
		}
		// The row leads to no link, to a tombstone, or to a link that has another row: if a create
		// fails, its caller may have repeated it.
		strays.drop(ctx, rows[i])
		return nil
	})
	return links, err
}

// strays deletes rows of owners' lists that lead to no link. Such a row is inserted before its
// link, so strays leaves young rows alone.
type strays struct {
	s   *Links
	now time.Time // when the rows were listed, or earlier

	asking concurrent.Mutex
	before time.Time // rows written before this are old; zero: not known yet
}

// newStrays must be called before the rows are listed. Otherwise a process that was stopped in
// between would take young rows for old ones.
func newStrays(s *Links) *strays {
	return &strays{s: s, now: s.config.Now(), asking: concurrent.NewMutex()}
}

// drop deletes a row that leads nowhere, if the row is old. It is best effort: the next list finds
// the row again.
func (d *strays) drop(ctx context.Context, r table.Listed) {
	if before, err := d.oldBefore(ctx); err == nil && r.WrittenAt.Before(before) {
		_ = d.s.owners.rows.Delete(ctx, r.Key)
	}
}

func (d *strays) oldBefore(ctx context.Context) (before time.Time, err error) {
	d.asking.Lock()
	defer d.asking.Unlock()
	if d.before.IsZero() {
		now := d.now
		if d.s.config.Reap.StorageClock {
			if now, err = d.s.owners.rows.Earlier(ctx, now); err != nil {
				return time.Time{}, err
			}
		}
		d.before = now.Add(-strayAfter)
	}
	return d.before, nil
}
