package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"tiney/internal/link"
	"tiney/storage/table"
)

// ownerEntity is a row of ShortUrlsByOwner on the wire. It lists a link in the list of its owner.
type ownerEntity struct {
	PartitionKey string
	RowKey       string
	CreateID     string `json:"CreateId"`
}

// ownerPartition returns the partition of an owner's rows. It is a hash, because an owner may have
// characters that a key may not have.
func ownerPartition(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:16])
}

// ownerKey returns the key of a link in the list of its owner. The keys sort the newest link first.
func ownerKey(l link.Link) string {
	return fmt.Sprintf("%010d|%s", 9999999999-l.CreatedAt.Unix(), l.Name)
}

// ownerTable is the ShortUrlsByOwner table.
type ownerTable struct{ rows *store }

// insert adds a row to the list of an owner, before its link is there. table.ErrExists: the row
// belongs to another link.
//
// It returns the ETag by which the row may be deleted again. The ETag is "" if only a list of the
// owner's links may delete the row.
func (t *ownerTable) insert(ctx context.Context, r rowKey, createID string) (table.ETag, error) {
	return t.rows.insertBefore(ctx, encode(ownerEntity{r.partition, r.key, createID}), r.partition,
		r.key, createID)
}

// put adds a row to the list of an owner. If it is there already, it gets another ETag, so that
// no caller that has read it before deletes it.
func (t *ownerTable) put(ctx context.Context, r rowKey, createID string) error {
	_, err := t.rows.write(ctx, table.Upsert, encode(ownerEntity{r.partition, r.key, createID}), "")
	return err
}

// read returns a row with its ETag, which is "" if the row is not there. A zero row is not read.
func (t *ownerTable) read(ctx context.Context, r rowKey) (_ rowKey, err error) {
	if r.key != "" {
		_, r.etag, err = t.rows.get(ctx, r.partition, r.key)
	}
	if errors.Is(err, table.ErrGone) {
		err = nil
	}
	return r, err
}

// delete deletes a row that was read, or that insert has added, unless it has no ETag. If that
// fails, or the row has changed, the row stays, perhaps without its link: see List.
func (t *ownerTable) delete(ctx context.Context, r rowKey) error {
	if r.etag == "" {
		return nil
	}
	err := t.rows.delete(ctx, r)
	if errors.Is(err, table.ErrChanged) {
		err = nil
	}
	return err
}
