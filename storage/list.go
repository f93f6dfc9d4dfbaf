package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"tiney/link"
)

const (
	maxPage         = 1000 // how many rows the service returns at a time
	listReads       = 1000 // how many links one List reads at most
	listPage        = 200  // how many rows it asks for at a time if those of the first query do not do
	listChunk       = 128  // how many links it reads before it looks what is still wanted
	listConcurrency = 32   // how many links, or keys, are read at the same time
	maxRowKey       = 1024 // bytes, the service's own limit
)

// List returns up to limit, which is at least 1, of an owner's links for which keep is true, the newest first, as they are in
// the table. It begins after a position, "" for the start, and returns the position of the last link that it looked at, or ""
// if there are no more. It looks at 1,000 links at most, and at fewer if storage is slow, so that it may return fewer than limit
// although there are more. Keep is called for one link after the other.
//
// Without a filter it makes one call more than there are links in the page. It also deletes rows that lead nowhere.
// Errors: link.ErrPosition if after cannot be a position, link.ErrUnavailable.
func (s *Links) List(ctx context.Context, owner, after string, limit int, keep func(link.Link) bool) (links []link.Link, next string, err error) {
	if len(after) > maxRowKey || !utf8.ValidString(after) || strings.ContainsFunc(after, unicode.IsControl) {
		return nil, "", link.ErrPosition
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	strays := newStrays(ctx, &s.owners.table, &s.config)
	var rows []listedRow // that were not looked at yet
	more := true         // of them in the table
	deadline, _ := ctx.Deadline()
	// After half of its time it looks no further. The rest is for what was begun, and for the statistics
	// of the links.
	end := s.config.Now().Add(time.Until(deadline) / 2)
	for looked := 0; looked < listReads && !s.config.Now().After(end); {
		if len(rows) == 0 {
			wanted := min(listPage, listReads-looked)
			if looked == 0 {
				wanted = min(limit, maxPage-1)
			}
			filter := fmt.Sprintf("PartitionKey eq '%s' and RowKey gt '%s'", ownerPartition(owner), strings.ReplaceAll(after, "'", "''"))
			if rows, err = s.owners.rows(ctx, filter, wanted+1); err != nil { // one more tells whether there are more
				return nil, "", exported(err)
			}
			more = len(rows) > wanted
			rows = rows[:min(len(rows), wanted)]
		}
		n := min(len(rows), max(limit-len(links), listConcurrency), listChunk)
		found, err := s.readListed(ctx, owner, rows[:n], strays)
		if err != nil {
			return nil, "", exported(err)
		}
		for i, l := range found {
			after = rows[i].key
			if l.Alias != "" && keep(l) {
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

// readListed reads the links that rows lead to. A row that leads to none of the owner's has a link without an alias in its
// place.
func (s *Links) readListed(ctx context.Context, owner string, rows []listedRow, strays *strays) ([]link.Link, error) {
	links := make([]link.Link, len(rows))
	err := eachListed(ctx, len(rows), func(ctx context.Context, i int) error {
		_, name, _ := strings.Cut(rows[i].key, "|")
		a, ok := link.ParseAlias(name)
		if ok {
			r, err := s.read(ctx, a)
			switch {
			case err == nil && r.Owner == owner && ownerKey(r.Link) == rows[i].key:
				links[i] = r.Link
				return nil
			case errors.Is(err, link.ErrDamaged):
				return nil // for somebody to repair
			case err != nil && !errors.Is(err, link.ErrNotFound):
				return err
			}
		}
		// No link, a tombstone, or a link that has another row: if a create fails, its caller may have repeated it.
		strays.drop(ctx, rows[i])
		return nil
	})
	return links, err
}

// eachListed calls do for each of n rows, listConcurrency of them at a time, until one returns an error.
func eachListed(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(listConcurrency)
	for i := range n {
		all.Go(func() error { return safely(func() error { return do(ctx, i) }) })
	}
	return all.Wait()
}

// listedRow is a row that came with a query.
type listedRow struct {
	rowKey
	writtenAt time.Time // by the clock of the storage service
	data      []byte
}

// errEnough ends a query that has returned as many rows as are wanted.
var errEnough = errors.New("there are enough rows")

// rows lists the rows that match a filter, at least size of them unless there are fewer.
func (t *table) rows(ctx context.Context, filter string, size int) (rows []listedRow, err error) {
	err = t.list(ctx, filter, min(size, maxPage), func(entities [][]byte) error {
		page, err := t.decode(entities)
		if err != nil {
			return err
		}
		rows = append(rows, page...)
		if len(rows) >= size { // the service may return fewer at a time, even none, although there are more
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return rows, err
}

// decode reads what all rows of a query have.
func (t *table) decode(entities [][]byte) ([]listedRow, error) {
	rows := make([]listedRow, 0, len(entities))
	for _, data := range entities {
		var e struct {
			PartitionKey, RowKey string
			ETag                 azcore.ETag `json:"odata.etag"`
			Timestamp            time.Time
		}
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, fmt.Errorf("a row of %s: %w: %w", t.name, link.ErrUnavailable, err)
		}
		rows = append(rows, listedRow{rowKey{e.PartitionKey, e.RowKey, e.ETag}, e.Timestamp, data})
	}
	return rows, nil
}

// strays deletes rows that list something and lead nowhere. Such a row is inserted before what it leads to, so that one is
// left alone that is not older than a minute, many times what a create takes.
type strays struct {
	table  *table
	before func() (time.Time, error) // rows that were written before that are old
}

const strayAge = time.Minute

// newStrays has to be called before the rows are listed, or a process that was stopped since would take young ones for old.
func newStrays(ctx context.Context, t *table, config *Config) *strays {
	now := config.Now()
	return &strays{t, sync.OnceValues(func() (before time.Time, err error) {
		if config.Reap.StorageClock {
			now, err = t.earlier(ctx, now)
		}
		return now.Add(-strayAge), err
	})}
}

// drop deletes a row that leads nowhere, if it is old, and reports whether it is. It is best effort: the
// next list finds the row again.
func (s *strays) drop(ctx context.Context, r listedRow) (old bool) {
	before, err := s.before()
	if old = err == nil && r.writtenAt.Before(before); old {
		_ = s.table.delete(ctx, r.partition, r.key, r.etag)
	}
	return old
}
