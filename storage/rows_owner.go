package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

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

// listedName returns the name of the link that the key of a row leads to. Rows of other programs
// may have any key.
func listedName(key string) (link.Name, bool) {
	_, name, _ := strings.Cut(key, "|")
	return link.ParseName(name)
}

// ownerTable is the ShortUrlsByOwner table.
type ownerTable struct{ rows *table.Store }

// insert adds a row to the list of an owner, before its link is there. table.ErrExists: the row
// belongs to another link.
//
// It returns the ETag by which the row may be deleted again. The ETag is "" if only a list of the
// owner's links may delete the row.
func (t *ownerTable) insert(ctx context.Context, r table.Key, createID string) (table.ETag, error) {
	row := table.Encode(ownerEntity{r.Partition, r.Row, createID})
	return t.rows.InsertBefore(ctx, row, r.Partition, r.Row, createID)
}

// put adds a row to the list of an owner. If it is there already, it gets another ETag, so that
// no caller that has read it before deletes it.
func (t *ownerTable) put(ctx context.Context, r table.Key, createID string) error {
	row := table.Encode(ownerEntity{r.Partition, r.Row, createID})
	_, err := t.rows.Write(ctx, table.Upsert, row, "")
	return err
}

// read returns a row with its ETag, which is "" if the row is not there. A zero row is not read.
func (t *ownerTable) read(ctx context.Context, r table.Key) (_ table.Key, err error) {
	if r.Row != "" {
		_, r.ETag, err = t.rows.Get(ctx, r.Partition, r.Row)
	}
	if errors.Is(err, table.ErrGone) {
		err = nil
	}
	return r, err
}

// delete deletes a row that was read, or that insert has added, unless it has no ETag. If that
// fails, or the row has changed, the row stays, perhaps without its link: see List.
func (t *ownerTable) delete(ctx context.Context, r table.Key) error {
	if r.ETag == "" {
		return nil
	}
	err := t.rows.Delete(ctx, r)
	if errors.Is(err, table.ErrChanged) {
		err = nil
	}
	return err
}
