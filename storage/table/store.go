package table

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/singleflight"

	"tiney/internal/link"
	"tiney/storage/concurrent"
)

// Table is one table of an account, in Azure (see Service) or in memory (package memtable). Each
// error is one of this package, or a link.ErrUnavailable, which is true of all of them.
type Table interface {
	Name() string
	// Get reads one row, or these properties of it. ErrGone: the table was read, and the row is not
	// there.
	Get(ctx context.Context, partition, key string, properties ...string) (row []byte,
		etag ETag, err error)
	Write(ctx context.Context, w Write) (Result, error)
	// Batch makes up to MaxBatch writes of different rows of one partition in one call: all of them
	// or none. No error says which row is to blame, and an earlier try whose response was lost may
	// have been applied. again: as in Result. ErrExists, ErrGone, ErrChanged: one of the rows was
	// not as it had to be.
	Batch(ctx context.Context, writes []Write) (again bool, err error)
	// List lists rows, page by page, until page returns an error. A page may have fewer rows than
	// asked for, even none, although there are more. ErrNoTable: there is no table.
	List(ctx context.Context, q Query, page func(rows [][]byte) error) error
	// Create creates the table. One that exists already is fine. It fails for a while after Drop,
	// and not with ErrNoTable, which callers of other methods respond to with a Create.
	Create(ctx context.Context) error
	// Drop deletes the table with all its rows. One that does not exist is fine. The service goes
	// on deleting it for 40 s or more. Until then the table is gone for all calls, and Create
	// fails.
	Drop(ctx context.Context) error
	// Names returns the names of the account's tables that begin with prefix in any case, in their
	// order.
	Names(ctx context.Context, prefix string) ([]string, error)
	// Clock returns the service's time, in whole seconds. It is the cheapest way to find out that
	// the table responds.
	Clock(ctx context.Context) (time.Time, error)
}

// Store is a Table that is created when it is found missing. So the first request after a start, or
// after the table was deleted, is slower instead of failing.
type Store struct {
	Table    Table
	Timeout  time.Duration
	ReadOnly bool // nothing is created in it
	// MayCreate reports whether the table may be created now; nil: always
	MayCreate func() bool
	ensuring  singleflight.Group
}

// Reading returns the table as one in which nothing is created.
func (t *Store) Reading() *Store {
	return &Store{Table: t.Table, Timeout: t.Timeout, ReadOnly: true}
}

// Ensure creates the table unless it exists. Concurrent callers share one call, and no caller waits
// longer than its own ctx allows.
func (t *Store) Ensure(ctx context.Context) error {
	created := concurrent.Share(ctx, &t.ensuring, "", t.Timeout, func(ctx context.Context) (any,
		error) {
		return nil, t.Table.Create(ctx)
	})
	select {
	case done := <-created:
		return done.Err
	case <-ctx.Done():
		return fmt.Errorf("creating %s: %w in time: %w", t.Table.Name(), link.ErrUnavailable,
			ctx.Err())
	}
}

// made makes a call. If the table is missing, it creates the table and makes the call once more.
func (t *Store) made(ctx context.Context, call func() error) error {
	err := call()
	if !errors.Is(err, ErrNoTable) || t.ReadOnly || t.MayCreate != nil && !t.MayCreate() {
		return err
	}
	if err := t.Ensure(ctx); err != nil {
		return err
	}
	return call()
}

// Get reads one row: all properties, or only those given. ErrGone: the row is not there.
func (t *Store) Get(ctx context.Context, partition, key string, properties ...string) (row []byte,
	etag ETag, err error) {
	err = t.made(ctx, func() error {
		row, etag, err = t.Table.Get(ctx, partition, key, properties...)
		return err
	})
	return row, etag, err
}

// Clock returns the storage service's time, in whole seconds. It is the cheapest call that there
// is.
func (t *Store) Clock(ctx context.Context) (at time.Time, err error) {
	err = t.made(ctx, func() error {
		at, err = t.Table.Clock(ctx)
		return err
	})
	return at, err
}

// Ping returns an error unless the table responds.
func (t *Store) Ping(ctx context.Context) error {
	_, err := t.Clock(ctx)
	return err
}

// Earlier returns now, or the storage service's time if that is earlier.
func (t *Store) Earlier(ctx context.Context, now time.Time) (time.Time, error) {
	there, err := t.Clock(ctx)
	if err == nil && there.Before(now) {
		now = there
	}
	return now, err
}

// Write makes one write. Only a Replace or Merge goes by the ETag.
func (t *Store) Write(ctx context.Context, kind Kind, row []byte, read ETag) (r Result,
	err error) {
	err = t.made(ctx, func() error {
		again := r.Again
		r, err = t.Table.Write(ctx, Write{Kind: kind, Row: row, Read: read})
		r.Again = r.Again || again
		return err
	})
	return r, err
}

// Put writes a row in place of what was read, or inserts it if read is "". ErrChanged: what
// is there is not what was read.
func (t *Store) Put(ctx context.Context, row []byte, read ETag) (Result, error) {
	if read != "" {
		return t.Write(ctx, Replace, row, read)
	}
	r, err := t.Write(ctx, Insert, row, "")
	if errors.Is(err, ErrExists) {
		err = fmt.Errorf("%w: %w", ErrChanged, err)
	}
	return r, err
}

// InsertOnce inserts a row that contains the id of the operation that creates it. ErrExists:
// the row that is there has another id, or is gone before its id could be read.
func (t *Store) InsertOnce(ctx context.Context, row []byte, partition, key, id string) (
	Result, error) {
	r, err := t.Write(ctx, Insert, row, "")
	if r.Again && errors.Is(err, ErrExists) {
		data, etag, readErr := t.Get(ctx, partition, key, "CreateId")
		var there struct {
			CreateID string `json:"CreateId"`
		}
		switch {
		case readErr != nil && !errors.Is(readErr, ErrGone):
			return r, readErr
		case json.Unmarshal(data, &there) == nil && there.CreateID == id:
			r.ETag, err = etag, nil // an earlier try was applied, and its response was lost
		}
	}
	return r, err
}

// InsertBefore is InsertOnce for a row that leads to a link which is inserted after it. It returns
// the ETag by which the row may be deleted if that fails. The ETag is "" if the row must not be
// deleted, since an earlier try of its insert may arrive after the delete.
func (t *Store) InsertBefore(ctx context.Context, row []byte, partition, key, id string) (
	ETag, error) {
	r, err := t.InsertOnce(ctx, row, partition, key, id)
	if r.Again {
		return "", err
	}
	return r.ETag, err
}

// Key is the key of a row, and the ETag by which it was read.
type Key struct {
	Partition, Row string
	ETag           ETag
}

// Delete deletes a row if it is unchanged since it was read. A row that is gone is no error.
// ErrChanged: the row was written since.
func (t *Store) Delete(ctx context.Context, r Key) error {
	w := NewDelete(r.Partition, r.Row, r.ETag)
	_, err := t.Write(ctx, w.Kind, w.Row, w.Read)
	return err
}

// DeleteBatch deletes up to MaxBatch rows of one partition in one call: all of them if each
// is unchanged since it was read, otherwise none. After any error, delete them one by one.
func (t *Store) DeleteBatch(ctx context.Context, rows []Key) error {
	writes := make([]Write, len(rows))
	for i, r := range rows {
		writes[i] = NewDelete(r.Partition, r.Row, r.ETag)
	}
	_, err := t.Batch(ctx, writes)
	return err
}

// UpsertBatch upserts up to MaxBatch rows of one partition in one call: all of them or none.
func (t *Store) UpsertBatch(ctx context.Context, rows [][]byte) (again bool, err error) {
	writes := make([]Write, len(rows))
	for i, row := range rows {
		writes[i] = Write{Kind: Upsert, Row: row}
	}
	return t.Batch(ctx, writes)
}

// Batch makes up to MaxBatch writes in one call, as that of a Table.
func (t *Store) Batch(ctx context.Context, writes []Write) (again bool, err error) {
	err = t.made(ctx, func() error {
		sentAgain, err := t.Table.Batch(ctx, writes)
		again = again || sentAgain
		return err
	})
	return again, err
}

// ErrEnough ends a List that has returned as many rows as are wanted.
var ErrEnough = errors.New("there are enough rows")

// List lists rows, page by page, until page returns an error, which List returns unless it is
// ErrEnough. A table that is missing is empty.
func (t *Store) List(ctx context.Context, q Query, page func(rows [][]byte) error) error {
	err := t.Table.List(ctx, q, page)
	switch {
	case errors.Is(err, ErrEnough):
		return nil
	case errors.Is(err, ErrNoTable) && !t.ReadOnly:
		return t.Ensure(ctx)
	}
	return err
}

// Listed is a row that a query has returned.
type Listed struct {
	Key
	WrittenAt time.Time // by the clock of the storage service
	Data      []byte
}

// First lists the first rows of a range with their ETags. It returns at least size rows, unless the
// range has fewer.
func (t *Store) First(ctx context.Context, r Range, size int) (rows []Listed, err error) {
	q := Query{Range: r, ETags: true, PageSize: min(size, MaxPage)}
	err = t.List(ctx, q, func(page [][]byte) error {
		some, err := t.Decode(page)
		if err != nil {
			return err
		}
		rows = append(rows, some...)
		// the service may return a page with fewer rows, even none, although there are more
		if len(rows) >= size {
			return ErrEnough
		}
		return nil
	})
	return rows, err
}

// Decode reads the keys, ETags and times that the rows of a query have.
func (t *Store) Decode(page [][]byte) ([]Listed, error) {
	rows := make([]Listed, 0, len(page))
	for _, data := range page {
		var e struct {
			PartitionKey, RowKey string
			ETag                 ETag `json:"odata.etag"`
			Timestamp            time.Time
		}
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, fmt.Errorf("a row of %s: %w: %w", t.Table.Name(), link.ErrUnavailable, err)
		}
		rows = append(rows, Listed{Key{e.PartitionKey, e.RowKey, e.ETag}, e.Timestamp, data})
	}
	return rows, nil
}

// DeleteRange deletes the rows of a range, each page after page was called with it, unless page is
// nil. ErrChanged: one was written since it was listed.
func (t *Store) DeleteRange(ctx context.Context, r Range,
	page func(rows []Listed) error) error {
	q := Query{Range: r, Properties: []string{"PartitionKey", "RowKey", "Timestamp"},
		ETags: true}
	return t.List(ctx, q, func(listed [][]byte) error {
		rows, err := t.Decode(listed)
		if err == nil && page != nil {
			err = page(rows)
		}
		for err == nil && len(rows) > 0 {
			var batch []Key
			for _, r := range rows[:min(len(rows), MaxBatch)] {
				if r.Partition == rows[0].Partition {
					batch = append(batch, r.Key)
				}
			}
			err, rows = t.deleteEach(ctx, batch), rows[len(batch):]
		}
		return err
	})
}

// deleteEach deletes up to MaxBatch rows of one partition in one call, or one by one if that
// fails.
func (t *Store) deleteEach(ctx context.Context, rows []Key) error {
	if err := t.DeleteBatch(ctx, rows); err == nil {
		return nil
	}
	for _, r := range rows { // another process may have deleted one of them
		if err := t.Delete(ctx, r); err != nil {
			return err
		}
	}
	return nil
}
