package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"tiney/internal/link"
	"tiney/storage/table"

	"github.com/go-json-experiment/json"
)

// indexEntity is a row of UrlIndex on the wire. It leads from a long URL to its one live link.
type indexEntity struct {
	PartitionKey  string
	RowKey        string
	Alias         string
	LongURL       string    `json:"LongUrl"`
	ExpiresAt     time.Time `json:"ExpiresAtUtc,omitzero"`
	ExpiresAtType string    `json:"ExpiresAtUtc@odata.type,omitzero"`
}

// indexKey returns the key of a link in the index: a hash of its long URL and, if it has an owner,
// of the owner too. In a domain that is not the default one, it is always a hash of all three.
func indexKey(l link.Link) string {
	named := l.LongURL
	domain := l.Name.Domain()
	if l.Owner != "" || domain != "" {
		named = l.Owner + "\n" + l.LongURL
	}
	if domain != "" {
		named = "@" + string(domain) + "\n" + named
	}
	sum := sha256.Sum256([]byte(named))
	return hex.EncodeToString(sum[:])
}

func encodeIndex(l link.Link) []byte {
	key := indexKey(l)
	e := indexEntity{PartitionKey: indexPartition(key), RowKey: key, Alias: string(l.Name),
		LongURL: l.LongURL}
	e.ExpiresAt, e.ExpiresAtType = table.DateTime(l.ExpiresAt)
	return table.Encode(e)
}

func indexPartition(key string) string { return key[:8] }

// indexTable is the UrlIndex table.
type indexTable struct{ rows *table.Store }

// indexRow is a row of the index. The zero indexRow stands for no row.
type indexRow struct {
	alias string // as it is in the row; another program may have written anything
	etag  table.ETag
}

// get reads the row of a key. table.ErrGone: there is no such row.
func (t *indexTable) get(ctx context.Context, key string) (indexRow, error) {
	data, etag, err := t.rows.Get(ctx, indexPartition(key), key)
	if err != nil {
		return indexRow{}, err
	}
	var e indexEntity
	// a row that does not parse names no alias, so it is stale and will be replaced
	_ = json.Unmarshal(data, &e)
	return indexRow{alias: e.Alias, etag: etag}, nil
}

// put makes the index name l. If seen is no row, it inserts a row; otherwise it replaces seen and
// no other row. It returns the ETag of the row. table.ErrChanged: the index has changed since seen
// was read, or an earlier try of this very call was applied. late: an insert may still arrive. A
// late try of another write finds another ETag.
func (t *indexTable) put(ctx context.Context, l link.Link, seen indexRow) (etag table.ETag,
	late bool, err error) {
	var r table.Result
	if row := encodeIndex(l); seen.etag != "" && !l.ExpiresAt.IsZero() {
		// keeps the properties of other programs
		r, err = t.rows.Write(ctx, table.Merge, row, seen.etag)
	} else {
		r, err = t.rows.Put(ctx, row, seen.etag) // only a replace can remove the row's expiry
	}
	return r.ETag, r.Again && seen.etag == "", err
}

// drop deletes the row of a key as it was read. A row that was written since stays, which is no
// error.
func (t *indexTable) drop(ctx context.Context, key string, read table.ETag) error {
	err := t.rows.Delete(ctx, table.Key{Partition: indexPartition(key), Row: key, ETag: read})
	if errors.Is(err, table.ErrChanged) {
		return nil
	}
	return err
}
