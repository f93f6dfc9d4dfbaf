package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/singleflight"

	"tiney/internal/link"
	"tiney/storage/table"
)

// Table is all that this package knows of a table, whether it is in Azure (package table, whose
// Table says what each method does) or in memory (package memtable).
//
// Every error is a link.ErrUnavailable.
type Table interface {
	Name() string
	Get(ctx context.Context, partition, key string, properties ...string) (row []byte,
		etag table.ETag, err error)
	Write(ctx context.Context, w table.Write) (table.Result, error)
	Batch(ctx context.Context, writes []table.Write) (again bool, err error)
	List(ctx context.Context, q table.Query, page func(rows [][]byte) error) error
	Create(ctx context.Context) error
	Drop(ctx context.Context) error
	// Names lists tables of the same account.
	Names(ctx context.Context, prefix string) ([]string, error)
	Clock(ctx context.Context) (time.Time, error)
}

// store is a table that is created when it is found missing. So the first request after a start, or
// after the table was deleted, is slower instead of failing.
type store struct {
	table    Table
	timeout  time.Duration
	readOnly bool // nothing is created in it
	// mayCreate reports whether the table may be created now; nil: always
	mayCreate func() bool
	ensuring  singleflight.Group
}

// ensure creates the table unless it exists. Concurrent callers share one call, and no caller waits
// longer than its own ctx allows.
func (t *store) ensure(ctx context.Context) error {
	created := shared(ctx, &t.ensuring, "", t.timeout, func(ctx context.Context) (any, error) {
		return nil, t.table.Create(ctx)
	})
	select {
	case done := <-created:
		return done.Err
	case <-ctx.Done():
		return fmt.Errorf("creating %s: %w in time: %w", t.table.Name(), link.ErrUnavailable,
			ctx.Err())
	}
}

// made makes a call. If the table is missing, it creates the table and makes the call once more.
func (t *store) made(ctx context.Context, call func() error) error {
	err := call()
	if !errors.Is(err, table.ErrNoTable) || t.readOnly || t.mayCreate != nil && !t.mayCreate() {
		return err
	}
	if err := t.ensure(ctx); err != nil {
		return err
	}
	return call()
}

// get reads one row: all properties, or only those given. table.ErrGone: the row is not there.
func (t *store) get(ctx context.Context, partition, key string, properties ...string) (row []byte,
	etag table.ETag, err error) {
	err = t.made(ctx, func() error {
		row, etag, err = t.table.Get(ctx, partition, key, properties...)
		return err
	})
	return row, etag, err
}

// clock returns the storage service's time, in whole seconds. It is the cheapest call that there
// is.
func (t *store) clock(ctx context.Context) (at time.Time, err error) {
	err = t.made(ctx, func() error {
		at, err = t.table.Clock(ctx)
		return err
	})
	return at, err
}

func (t *store) ping(ctx context.Context) error {
	_, err := t.clock(ctx)
	return err
}

// earlier returns now, or the storage service's time if that is earlier.
func (t *store) earlier(ctx context.Context, now time.Time) (time.Time, error) {
	there, err := t.clock(ctx)
	if err == nil && there.Before(now) {
		now = there
	}
	return now, err
}

// write makes one write. Only a Replace or Merge goes by the ETag.
func (t *store) write(ctx context.Context, kind table.Kind, row []byte, read table.ETag) (
	table.Result, error) {
	return t.do(ctx, table.Write{Kind: kind, Row: row, Read: read})
}

func (t *store) do(ctx context.Context, w table.Write) (r table.Result, err error) {
	err = t.made(ctx, func() error {
		again := r.Again
		r, err = t.table.Write(ctx, w)
		r.Again = r.Again || again
		return err
	})
	return r, err
}

// put writes a row in place of what was read, or inserts it if read is "". table.ErrChanged: what
// is there is not what was read.
func (t *store) put(ctx context.Context, row []byte, read table.ETag) (table.Result, error) {
	if read != "" {
		return t.write(ctx, table.Replace, row, read)
	}
	r, err := t.write(ctx, table.Insert, row, "")
	if errors.Is(err, table.ErrExists) {
		err = fmt.Errorf("%w: %w", table.ErrChanged, err)
	}
	return r, err
}

// insertOnce inserts a row that contains the id of the operation that creates it. table.ErrExists:
// the row that is there has another id, or is gone before its id could be read.
func (t *store) insertOnce(ctx context.Context, row []byte, partition, key, id string) (
	table.Result, error) {
	r, err := t.write(ctx, table.Insert, row, "")
	if r.Again && errors.Is(err, table.ErrExists) {
		data, etag, readErr := t.get(ctx, partition, key, "CreateId")
		var there struct {
			CreateID string `json:"CreateId"`
		}
		switch {
		case readErr != nil && !errors.Is(readErr, table.ErrGone):
			return r, readErr
		case json.Unmarshal(data, &there) == nil && there.CreateID == id:
			r.ETag, err = etag, nil // an earlier try was applied, and its response was lost
		}
	}
	return r, err
}

// insertBefore is insertOnce for a row that leads to a link which is inserted after it. It returns
// the ETag by which the row may be deleted if that fails. The ETag is "" if the row must not be
// deleted, since an earlier try of its insert may arrive after the delete.
func (t *store) insertBefore(ctx context.Context, row []byte, partition, key, id string) (
	table.ETag, error) {
	r, err := t.insertOnce(ctx, row, partition, key, id)
	if r.Again {
		return "", err
	}
	return r.ETag, err
}

// rowKey is the key of a row, and the ETag by which it was read.
type rowKey struct {
	partition, key string
	etag           table.ETag
}

// delete deletes a row if it is unchanged since it was read. A row that is gone is no error.
// table.ErrChanged: the row was written since.
func (t *store) delete(ctx context.Context, r rowKey) error {
	_, err := t.do(ctx, table.NewDelete(r.partition, r.key, r.etag))
	return err
}

// deleteBatch deletes up to table.MaxBatch rows of one partition in one call: all of them if each
// is unchanged since it was read, otherwise none. After any error, delete them one by one.
func (t *store) deleteBatch(ctx context.Context, rows []rowKey) error {
	writes := make([]table.Write, len(rows))
	for i, r := range rows {
		writes[i] = table.NewDelete(r.partition, r.key, r.etag)
	}
	_, err := t.batch(ctx, writes)
	return err
}

// upsertBatch upserts up to table.MaxBatch rows of one partition in one call: all of them or none.
func (t *store) upsertBatch(ctx context.Context, rows [][]byte) (again bool, err error) {
	writes := make([]table.Write, len(rows))
	for i, row := range rows {
		writes[i] = table.Write{Kind: table.Upsert, Row: row}
	}
	return t.batch(ctx, writes)
}

func (t *store) batch(ctx context.Context, writes []table.Write) (again bool, err error) {
	err = t.made(ctx, func() error {
		sentAgain, err := t.table.Batch(ctx, writes)
		again = again || sentAgain
		return err
	})
	return again, err
}

// list lists rows, page by page, until page returns an error. A table that is missing is empty.
func (t *store) list(ctx context.Context, q table.Query, page func(rows [][]byte) error) error {
	err := t.table.List(ctx, q, page)
	if errors.Is(err, table.ErrNoTable) && !t.readOnly {
		return t.ensure(ctx)
	}
	return err
}

// listedRow is a row that a query has returned.
type listedRow struct {
	rowKey
	writtenAt time.Time // by the clock of the storage service
	data      []byte
}

// errEnough ends a query that has returned as many rows as are wanted.
var errEnough = errors.New("there are enough rows")

// first lists the first rows of a range with their ETags. It returns at least size rows, unless the
// range has fewer.
func (t *store) first(ctx context.Context, r table.Range, size int) (rows []listedRow, err error) {
	q := table.Query{Range: r, ETags: true, PageSize: min(size, table.MaxPage)}
	err = t.list(ctx, q, func(page [][]byte) error {
		some, err := t.decode(page)
		if err != nil {
			return err
		}
		rows = append(rows, some...)
		// the service may return a page with fewer rows, even none, although there are more
		if len(rows) >= size {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return rows, err
}

// decode reads the keys, ETags and times that the rows of a query have.
func (t *store) decode(page [][]byte) ([]listedRow, error) {
	rows := make([]listedRow, 0, len(page))
	for _, data := range page {
		var e struct {
			PartitionKey, RowKey string
			ETag                 table.ETag `json:"odata.etag"`
			Timestamp            time.Time
		}
		if err := json.Unmarshal(data, &e); err != nil {
			return nil, fmt.Errorf("a row of %s: %w: %w", t.table.Name(), link.ErrUnavailable, err)
		}
		rows = append(rows, listedRow{rowKey{e.PartitionKey, e.RowKey, e.ETag}, e.Timestamp, data})
	}
	return rows, nil
}

// deleteRange deletes the rows of a range, each page after page was called with it, unless page is
// nil. table.ErrChanged: one was written since it was listed.
func (t *store) deleteRange(ctx context.Context, r table.Range,
	page func(rows []listedRow) error) error {
	q := table.Query{Range: r, Properties: []string{"PartitionKey", "RowKey", "Timestamp"},
		ETags: true}
	return t.list(ctx, q, func(listed [][]byte) error {
		rows, err := t.decode(listed)
		if err == nil && page != nil {
			err = page(rows)
		}
		for err == nil && len(rows) > 0 {
			var batch []rowKey
			for _, r := range rows[:min(len(rows), table.MaxBatch)] {
				if r.partition == rows[0].partition {
					batch = append(batch, r.rowKey)
				}
			}
			err, rows = t.deleteEach(ctx, batch), rows[len(batch):]
		}
		return err
	})
}

// deleteEach deletes up to table.MaxBatch rows of one partition in one call, or one by one if that
// fails.
func (t *store) deleteEach(ctx context.Context, rows []rowKey) error {
	if err := t.deleteBatch(ctx, rows); err == nil {
		return nil
	}
	for _, r := range rows { // another process may have deleted one of them
		if err := t.delete(ctx, r); err != nil {
			return err
		}
	}
	return nil
}
