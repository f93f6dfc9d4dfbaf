// Package memtable is package table in memory: the same calls, errors, ETags, batches and pages,
// for tests and simulations, and for a first try without storage.
package memtable

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tiney/internal/link"
	"tiney/storage/table"
)

// Service is the tables of a storage account.
type Service struct {
	// DropTakes is how long a table that was dropped cannot be created again, as in Azure. Zero: it
	// can at once, as in Azurite. It is set before the first call.
	DropTakes time.Duration

	now func() time.Time // of its clock

	mu      sync.Mutex
	tables  map[string]*rows     // by name
	dropped map[string]time.Time // when a table was, by its name
	writes  int64                // so far, which makes ETags
}

// New returns a Service without tables.
func New(now func() time.Time) *Service {
	return &Service{now: now, tables: map[string]*rows{}, dropped: map[string]time.Time{}}
}

// Table returns one table, which need not exist.
func (s *Service) Table(name string) table.Table { return &Table{name, s} }

// Table is one table of a Service. Its methods are those of table.Table.
type Table struct {
	name    string
	service *Service
}

// ended returns the error of a call whose time is over.
func ended(ctx context.Context, call string) error { return table.Classify(call, ctx.Err()) }

// do makes one call. Rows is the table as it is.
func (t *Table) do(ctx context.Context, operation string, call func(*rows) error) error {
	if err := ended(ctx, operation+" "+t.name); err != nil {
		return err
	}
	t.service.mu.Lock()
	defer t.service.mu.Unlock()
	err := table.ErrNoTable
	if there := t.service.tables[t.name]; there != nil {
		err = call(there)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", operation, t.name, err)
	}
	return nil
}

// Name returns the name of the table.
func (t *Table) Name() string { return t.name }

// Names returns the names of the Service's tables that begin with prefix in any case, in order.
func (t *Table) Names(ctx context.Context, prefix string) (names []string, err error) {
	if err := ended(ctx, "QueryTables"); err != nil {
		return nil, err
	}
	t.service.mu.Lock()
	defer t.service.mu.Unlock()
	for name := range t.service.tables {
		if strings.HasPrefix(strings.ToLower(name), strings.ToLower(prefix)) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// Create creates the table. One that exists already is fine. It fails until DropTakes is over.
func (t *Table) Create(ctx context.Context) error {
	if err := ended(ctx, "CreateTable "+t.name); err != nil {
		return err
	}
	t.service.mu.Lock()
	defer t.service.mu.Unlock()
	if t.service.tables[t.name] != nil {
		return nil
	}
	if at, ok := t.service.dropped[t.name]; ok && t.service.now().Sub(at) < t.service.DropTakes {
		return fmt.Errorf("CreateTable %s: %w (409 TableBeingDeleted)", t.name,
			link.ErrUnavailable)
	}
	t.service.tables[t.name] = new(rows)
	return nil
}

// Drop deletes the table with all its rows. One that does not exist is fine.
func (t *Table) Drop(ctx context.Context) error {
	if err := ended(ctx, "DeleteTable "+t.name); err != nil {
		return err
	}
	t.service.mu.Lock()
	defer t.service.mu.Unlock()
	if t.service.tables[t.name] != nil {
		delete(t.service.tables, t.name)
		t.service.dropped[t.name] = t.service.now()
	}
	return nil
}

// Clock returns the service's time, in whole seconds.
func (t *Table) Clock(ctx context.Context) (at time.Time, err error) {
	err = t.do(ctx, "GetEntity", func(*rows) error {
		at = t.service.now().UTC().Truncate(time.Second)
		return nil
	})
	return at, err
}

// Get reads one row, or these properties of it. table.ErrGone: the row is not there.
func (t *Table) Get(ctx context.Context, partition, key string, properties ...string) (
	data []byte, etag table.ETag, err error) {
	err = t.do(ctx, "GetEntity", func(all *rows) error {
		r := all.get(partition, key)
		if r == nil {
			return table.ErrGone
		}
		data, etag = r.encode(t.name, properties, single), r.etag
		return nil
	})
	return data, etag, err
}

// Write makes one write.
func (t *Table) Write(ctx context.Context, w table.Write) (table.Result, error) {
	return w.Do(t.name, func() (result table.Result, err error) {
		err = t.do(ctx, w.Kind.Operation(), func(all *rows) error {
			r, err := t.service.prepare(all, w)
			if err == nil {
				result.ETag = r.etag
				all.put(r, w.Kind == table.Delete)
			}
			return err
		})
		return result, err
	})
}

// Batch makes up to table.MaxBatch writes of different rows of one partition: all of them or none.
func (t *Table) Batch(ctx context.Context, writes []table.Write) (bool, error) {
	return false, t.do(ctx, "SubmitTransaction", func(all *rows) error {
		size := 0
		keys := map[string]bool{}
		var next []*row
		for _, w := range writes {
			if w.Conditional() && w.Read == "" {
				return fmt.Errorf("%w: a write without an ETag", link.ErrUnavailable)
			}
			r, err := t.service.prepare(all, w)
			if err != nil {
				return err
			}
			size += len(w.Row)
			if next = append(next, r); r.partition != next[0].partition || keys[r.key] {
				return refused("InvalidInput")
			}
			keys[r.key] = true
		}
		if len(writes) == 0 || len(writes) > table.MaxBatch || size > maxBatch {
			return refused("InvalidInput")
		}
		for i, r := range next {
			all.put(r, writes[i].Kind == table.Delete)
		}
		return nil
	})
}

// prepare returns the row that a write makes, or that it deletes.
func (s *Service) prepare(all *rows, w table.Write) (*row, error) {
	r, err := decode(w.Row)
	if err != nil {
		return nil, err
	}
	there := all.get(r.partition, r.key)
	switch {
	case w.Kind == table.Insert && there != nil:
		return nil, table.ErrExists
	case w.Conditional() && there == nil:
		return nil, table.ErrGone
	case w.Conditional() && w.Read != table.Any && w.Read != there.etag:
		return nil, table.ErrChanged
	}
	if there != nil && (w.Kind == table.Upsert || w.Kind == table.Merge) {
		r.merge(there)
	}
	if err := r.small(); err != nil {
		return nil, err
	}
	s.writes++
	r.timestamp = s.now().UTC().Format("2006-01-02T15:04:05.0000000Z")
	r.etag = table.ETag(`W/"datetime'` + r.timestamp + "-" + strconv.FormatInt(s.writes, 36) + `'"`)
	return r, nil
}

// List lists rows, page by page, until page returns an error. It goes on after the last key of a
// page, with the rows that are there by then.
func (t *Table) List(ctx context.Context, q table.Query, page func(rows [][]byte) error) error {
	for from := (Position{}); ; {
		rows, next, err := t.Page(ctx, q, from)
		if err == nil {
			err = page(rows)
		}
		if err != nil || next == (Position{}) {
			return err
		}
		from = next
	}
}

// Position is a place in a listing: right after the row with these keys. The zero Position is the
// start.
type Position struct{ Partition, Key string }

// Page returns one page of a listing, and the position of the next one, the zero Position if there
// is none.
func (t *Table) Page(ctx context.Context, q table.Query, from Position) (
	data [][]byte, next Position, err error) {
	err = t.do(ctx, "QueryEntities", func(all *rows) error {
		if q.PageSize < 0 || q.PageSize > table.MaxPage {
			return refused("InvalidInput")
		}
		found, more := all.list(q.Range, from, cmp.Or(q.PageSize, table.MaxPage))
		f := plain
		if q.ETags {
			f = full
		}
		data = make([][]byte, len(found))
		for i, r := range found {
			data[i] = r.encode(t.name, q.Properties, f)
			if more {
				next = Position{r.partition, r.key}
			}
		}
		return nil
	})
	return data, next, err
}
