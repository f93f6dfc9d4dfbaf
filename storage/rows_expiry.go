package storage

import (
	"context"
	"errors"
	"slices"
	"time"

	"tiney/internal/link"
	"tiney/storage/table"

	"github.com/go-json-experiment/json"
)

// expiryEntity is a row of ShortUrlsExpiryIndex on the wire. It leads the reaper to an expired
// link.
type expiryEntity struct {
	PartitionKey      string
	RowKey            string
	AliasPartitionKey string
	AliasRowKey       string
	ExpiresAt         time.Time `json:"ExpiresAtUtc,omitzero"`
	ExpiresAtType     string    `json:"ExpiresAtUtc@odata.type,omitzero"`
	CreateID          string    `json:"CreateId,omitzero"`
	// In a guard: the link moves from the old key of the index to the new one.
	OldIndexKey string     `json:",omitzero"`
	NewIndexKey string     `json:",omitzero"`
	ETag        table.ETag `json:"odata.etag,omitzero"` // in listings only
}

// Expiry rows sort by time. A partition is a day, and a key in it is "HHmmss|alias".
const (
	expiryDay    = "20060102"
	expirySecond = "150405"
)

func expiryKey(at time.Time, a link.Name) (partition, key string) {
	at = at.UTC()
	return at.Format(expiryDay), at.Format(expirySecond) + "|" + string(a)
}

// newExpiry returns the row that makes the reaper look at a link at the given time.
func newExpiry(at time.Time, a link.Name) expiryEntity {
	e := expiryEntity{AliasPartitionKey: linkPartition(a), AliasRowKey: string(a)}
	e.PartitionKey, e.RowKey = expiryKey(at, a)
	e.ExpiresAt, e.ExpiresAtType = table.DateTime(at)
	return e
}

// expiryTable is the ShortUrlsExpiryIndex table.
type expiryTable struct{ rows *table.Store }

// expiryRow is a row that the reaper may have to handle.
type expiryRow struct {
	table.Key
	alias     link.Name
	expiresAt time.Time
	keys      []string // in a guard: keys of the index that the reaper checks too
}

// insert adds the row by which a link ends, before the link itself. table.ErrExists: the row
// belongs to another link, so the alias counts as taken.
//
// It returns the ETag by which the row may be deleted again. The ETag is "" if only the reaper may
// delete the row.
func (t *expiryTable) insert(ctx context.Context, r linkRow, at time.Time) (table.ETag, error) {
	e := newExpiry(at, r.Name)
	e.CreateID = r.createID
	return t.rows.InsertBefore(ctx, table.Encode(e), e.PartitionKey, e.RowKey, r.createID)
}

// put makes sure that the reaper looks at a link at the given time, and returns the ETag of the
// expiry row for that time. The row may have been there before.
func (t *expiryTable) put(ctx context.Context, at time.Time, a link.Name) (table.ETag, error) {
	r, err := t.rows.Write(ctx, table.Upsert, table.Encode(newExpiry(at, a)), "")
	return r.ETag, err
}

// delete deletes the row by which a link ends at the given time if its ETag is still this one, and
// does nothing without an ETag. table.ErrChanged: somebody has written the row anew.
func (t *expiryTable) delete(ctx context.Context, at time.Time, a link.Name,
	etag table.ETag) error {
	if etag == "" {
		return nil
	}
	partition, key := expiryKey(at, a)
	return t.rows.Delete(ctx, table.Key{Partition: partition, Row: key, ETag: etag})
}

// insertFree adds a row that makes the reaper look at a link at the row's time, or in the first
// free second after it. It does not overwrite a row that is there, because the link may end by that
// row.
func (t *expiryTable) insertFree(ctx context.Context, e expiryEntity) (table.Key, error) {
	for {
		e.PartitionKey, e.RowKey = expiryKey(e.ExpiresAt, link.Name(e.AliasRowKey))
		r, err := t.rows.Write(ctx, table.Insert, table.Encode(e), "")
		if !errors.Is(err, table.ErrExists) {
			return table.Key{Partition: e.PartitionKey, Row: e.RowKey, ETag: r.ETag}, err
		}
		e.ExpiresAt = e.ExpiresAt.Add(time.Second)
	}
}

// expired lists the rows of links that had expired at cutoff, oldest first, in pages of at most
// size rows, until page returns an error. It reads only ranges of whole partitions: all days before
// cutoff's day, then that day up to cutoff's second.
func (t *expiryTable) expired(ctx context.Context, cutoff time.Time, size int,
	page func([]expiryRow) error) error {
	day, second := cutoff.UTC().Format(expiryDay), cutoff.UTC().Format(expirySecond)
	for _, r := range []table.Range{{Before: day},
		{Partition: day, Before: table.Beyond(second + "|")}} {
		q := table.Query{Range: r, PageSize: size, ETags: true}
		if err := t.rows.List(ctx, q, func(rows [][]byte) error {
			return page(decodeExpired(rows))
		}); err != nil {
			return err
		}
	}
	return nil
}

func decodeExpired(entities [][]byte) []expiryRow {
	rows := make([]expiryRow, 0, len(entities))
	for _, data := range entities {
		var e expiryEntity
		// A row that does not parse has a zero expiry and no ETag, so the reaper counts it as
		// failed.
		_ = json.Unmarshal(data, &e)
		r := expiryRow{Key: table.Key{Partition: e.PartitionKey, Row: e.RowKey, ETag: e.ETag},
			alias: link.Name(e.AliasRowKey), expiresAt: e.ExpiresAt.UTC()}
		for _, key := range []string{e.OldIndexKey, e.NewIndexKey} {
			if len(key) == len(indexKey(link.Link{})) && !slices.Contains(r.keys, key) {
				r.keys = append(r.keys, key)
			}
		}
		rows = append(rows, r)
	}
	return rows
}
