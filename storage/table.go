package storage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"golang.org/x/sync/singleflight"

	"tiney/link"
)

// table is one Azure table. Its calls create the table if it is missing, and return the errors of errors.go.
type table struct {
	name     string
	client   *aztables.Client
	ensuring singleflight.Group
}

// ensure creates the table unless it exists. Concurrent callers share one call; one caller's cancellation must not fail
// the others, and none waits for longer than its own ctx allows.
func (t *table) ensure(ctx context.Context) error {
	created := t.ensuring.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
		defer cancel()
		return nil, safely(func() error {
			ctx, _ := withCall(ctx, "CreateTable "+t.name)
			_, err := t.client.CreateTable(ctx, nil)
			if response := (*azcore.ResponseError)(nil); errors.As(err, &response) && response.ErrorCode == "TableAlreadyExists" {
				err = nil
			}
			return classify("CreateTable "+t.name, err)
		})
	})
	select {
	case done := <-created:
		return done.Err
	case <-ctx.Done():
		return classify("CreateTable "+t.name, ctx.Err())
	}
}

// do makes one call. If the table is missing, it creates it and calls again, so that the first request after a start, or
// after somebody deleted the table, is slower instead of failing. Tries is how often the last call was sent: if more than
// once, an earlier try may have been applied although its response never came.
func (t *table) do(ctx context.Context, operation string, send func(context.Context) error) (tries int, err error) {
	once := func() (int, error) {
		ctx, c := withCall(ctx, operation+" "+t.name)
		err := classify(c.name, send(ctx))
		return c.tries, err
	}
	tries, err = once()
	if !errors.Is(err, errNoTable) {
		return tries, err
	}
	if err := t.ensure(ctx); err != nil {
		return tries, err
	}
	return once()
}

// get reads one row. errGone: the table was read, and the row is not there.
func (t *table) get(ctx context.Context, partition, key string) (data []byte, etag azcore.ETag, err error) {
	_, err = t.do(ctx, "GetEntity", func(ctx context.Context) error {
		resp, err := t.client.GetEntity(ctx, partition, key, nil)
		data, etag = resp.Value, resp.ETag
		return err
	})
	return data, etag, err
}

// ping asks for a row whose key no link can have.
func (t *table) ping(ctx context.Context) error {
	_, _, err := t.get(ctx, "-", "-")
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// clock returns the storage service's time, in whole seconds.
func (t *table) clock(ctx context.Context) (time.Time, error) {
	var resp *http.Response
	if err := t.ping(policy.WithCaptureResponse(ctx, &resp)); err != nil {
		return time.Time{}, err
	}
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("the clock of %s: %w: %w", t.name, link.ErrUnavailable, err)
	}
	return at, nil
}

// insert adds a row. errExists: a row with that key is there. retried: it may be there by an earlier try of this very
// call whose response was lost.
func (t *table) insert(ctx context.Context, entity []byte) (etag azcore.ETag, retried bool, err error) {
	tries, err := t.do(ctx, "InsertEntity", func(ctx context.Context) error {
		resp, err := t.client.AddEntity(ctx, entity, nil)
		etag = resp.ETag
		return err
	})
	return etag, tries > 1, err
}

// update overwrites a row if it is unchanged since it was read. errChanged: it is not.
func (t *table) update(ctx context.Context, entity []byte, read azcore.ETag, mode aztables.UpdateMode) (etag azcore.ETag, err error) {
	_, err = t.do(ctx, "UpdateEntity", func(ctx context.Context) error {
		resp, err := t.client.UpdateEntity(ctx, entity, &aztables.UpdateEntityOptions{IfMatch: &read, UpdateMode: mode})
		etag = resp.ETag
		return err
	})
	if errors.Is(err, errGone) {
		err = fmt.Errorf("%w: %w", errChanged, err)
	}
	return etag, err
}

// delete deletes a row if it is unchanged since it was read; a row that is gone is fine. errChanged: it was written since.
func (t *table) delete(ctx context.Context, partition, key string, read azcore.ETag) error {
	if read == "" {
		// The SDK would send "*", and delete whatever is there now.
		return fmt.Errorf("DeleteEntity %s: no ETag: %w", t.name, errChanged)
	}
	_, err := t.do(ctx, "DeleteEntity", func(ctx context.Context) error {
		_, err := t.client.DeleteEntity(ctx, partition, key, &aztables.DeleteEntityOptions{IfMatch: &read})
		return err
	})
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// linkRows is the ShortUrls table as the rest of the package sees it: the table itself, or the cache in front of it.
type linkRows interface {
	// get returns the link of an alias, disabled and expired ones included. A cache may serve a link, or that there is
	// none, from memory, and serves a stale link while storage fails.
	// Errors: link.ErrNotFound, link.ErrDamaged, or any other, which says nothing about the link.
	get(ctx context.Context, a link.Alias) (linkRow, error)
	// insert makes the link durable before it returns. errExists: the alias is another link's. After any other error the
	// link may or may not be there.
	insert(ctx context.Context, l link.Link) (linkRow, error)
	// delete deletes the link unless its row has changed since it was read (errChanged). It is safe to repeat.
	delete(ctx context.Context, r linkRow) error
}

// linkTable is the ShortUrls table.
type linkTable struct{ table }

func (t *linkTable) get(ctx context.Context, a link.Alias) (linkRow, error) {
	data, etag, err := t.table.get(ctx, linkPartition(a), string(a))
	if errors.Is(err, errGone) {
		return linkRow{}, link.ErrNotFound
	}
	if err != nil {
		return linkRow{}, err
	}
	return decodeLink(data, a, etag)
}

func (t *linkTable) insert(ctx context.Context, l link.Link) (linkRow, error) {
	etag, retried, err := t.table.insert(ctx, encodeLink(l))
	if errors.Is(err, errExists) && retried {
		// Ours, if an earlier try was applied and only its response was lost.
		there, readErr := t.get(ctx, l.Alias)
		switch {
		case readErr == nil && sameLink(there.Link, l):
			etag, err = there.etag, nil
		case readErr != nil && !decided(readErr):
			return linkRow{}, readErr
		}
	}
	return linkRow{Link: l, etag: etag, retried: retried}, err
}

// decided reports whether the error of a linkRows.get says something about the link.
func decided(err error) bool {
	return errors.Is(err, link.ErrNotFound) || errors.Is(err, link.ErrDamaged)
}

func sameLink(a, b link.Link) bool {
	return a.Alias == b.Alias && a.LongURL == b.LongURL && a.CreatedAt.Equal(b.CreatedAt) && a.ExpiresAt.Equal(b.ExpiresAt)
}

func (t *linkTable) delete(ctx context.Context, r linkRow) error {
	return t.table.delete(ctx, linkPartition(r.Alias), string(r.Alias), r.etag)
}

// indexTable is the UrlIndex table.
type indexTable struct{ table }

// indexRow is the index row of a long URL. The zero indexRow stands for no row.
type indexRow struct {
	alias     string    // as the row has it; another program may have written anything
	expiresAt time.Time // as the row has it; zero: none
	etag      azcore.ETag
}

// get reads the index row of a long URL. errGone: there is none.
func (t *indexTable) get(ctx context.Context, longURL string) (indexRow, error) {
	partition, key := indexKey(longURL)
	data, etag, err := t.table.get(ctx, partition, key)
	if err != nil {
		return indexRow{}, err
	}
	var e indexEntity
	if err := json.Unmarshal(data, &e); err != nil {
		return indexRow{etag: etag}, nil // names no alias, so it is stale and will be replaced
	}
	return indexRow{alias: e.Alias, expiresAt: orZero(e.ExpiresAt), etag: etag}, nil
}

// put makes the index name l for its long URL: by an insert if seen is no row, else in place of seen and of no other.
// errChanged: the index is not as seen any more, or an earlier try of this very call was applied.
func (t *indexTable) put(ctx context.Context, l link.Link, seen indexRow) error {
	if seen.etag == "" {
		_, _, err := t.insert(ctx, encodeIndex(l))
		if errors.Is(err, errExists) {
			err = fmt.Errorf("%w: %w", errChanged, err)
		}
		return err
	}
	mode := aztables.UpdateModeMerge // keeps the properties of other programs
	if l.ExpiresAt.IsZero() {
		mode = aztables.UpdateModeReplace // the only way to remove the old expiry
	}
	_, err := t.update(ctx, encodeIndex(l), seen.etag, mode)
	return err
}

func (t *indexTable) delete(ctx context.Context, longURL string, r indexRow) error {
	partition, key := indexKey(longURL)
	return t.table.delete(ctx, partition, key, r.etag)
}

// expiryTable is the ShortUrlsExpiryIndex table.
type expiryTable struct{ table }

// expiryRow is a row that the reaper may have to handle.
type expiryRow struct {
	partition, key string
	etag           azcore.ETag
	alias          link.Alias
	expiresAt      time.Time
}

// insert adds the expiry row of a link, before the link itself. errExists: the row belongs to another link, so the
// alias counts as taken.
//
// It returns the ETag by which the row may be deleted again, or "" if that has to be left to the reaper.
func (t *expiryTable) insert(ctx context.Context, l link.Link) (azcore.ETag, error) {
	entity := encodeExpiry(l)
	etag, retried, err := t.table.insert(ctx, entity)
	if !errors.Is(err, errExists) || !retried {
		return etag, err
	}
	// Most likely ours, by an earlier try. But it could be the row of another create that drew this alias for this very
	// second, and that may still insert its link, or delete the row when it loses its race. So the row is adopted: writing
	// it once more gives it a new ETag, by which no other create can delete it, and this one never deletes it either.
	// Whichever link ends up there has its expiry row.
	partition, key := expiryKey(l)
	_, read, err := t.get(ctx, partition, key)
	if err == nil {
		_, err = t.update(ctx, entity, read, aztables.UpdateModeMerge)
	}
	if errors.Is(err, errChanged) || errors.Is(err, errGone) {
		err = errExists
	}
	return "", err
}

func (t *expiryTable) delete(ctx context.Context, r expiryRow) error {
	return t.table.delete(ctx, r.partition, r.key, r.etag)
}

// batchSize is how many rows a batch may have, the service's own limit.
const batchSize = 100

// deleteBatch deletes up to batchSize rows of one partition in one call: all of them if each is unchanged since it was
// read, else none. No error says which row is to blame, and an earlier try whose response was lost may have been applied:
// after any error, delete them one by one.
func (t *expiryTable) deleteBatch(ctx context.Context, rows []expiryRow) error {
	var actions []aztables.TransactionAction
	for _, r := range rows {
		// Without an ETag the delete would be unconditional. And in a batch the SDK does not escape quotes in keys.
		if r.etag == "" || strings.Contains(r.partition+r.key, "'") {
			return fmt.Errorf("SubmitTransaction %s: a row that is not fit for a batch: %w", t.name, link.ErrUnavailable)
		}
		entity := encode(map[string]string{"PartitionKey": r.partition, "RowKey": r.key})
		actions = append(actions, aztables.TransactionAction{ActionType: aztables.TransactionTypeDelete, Entity: entity, IfMatch: &r.etag})
	}
	_, err := t.do(ctx, "SubmitTransaction", func(ctx context.Context) error {
		return safely(func() error { // the SDK panics over an empty response
			_, err := t.client.SubmitTransaction(ctx, actions, nil)
			return err
		})
	})
	return err
}

// expired lists the rows of links that had expired at cutoff, oldest first, in pages of at most size rows, until page
// returns an error. It reads ranges of whole partitions only: all days before cutoff's, then cutoff's own up to its
// second.
func (t *expiryTable) expired(ctx context.Context, cutoff time.Time, size int, page func([]expiryRow) error) error {
	day, second := cutoff.UTC().Format(expiryDay), cutoff.UTC().Format(expirySecond)
	for _, filter := range []string{
		fmt.Sprintf("PartitionKey lt '%s'", day),
		fmt.Sprintf("PartitionKey eq '%s' and RowKey lt '%s'", day, second+afterBar),
	} {
		pager := t.client.NewListEntitiesPager(&aztables.ListEntitiesOptions{
			Filter: &filter,
			Top:    to.Ptr(int32(size)),
			Format: to.Ptr(aztables.MetadataFormatFull), // the one that is documented to carry ETags
		})
		for pager.More() {
			called, c := withCall(ctx, "QueryEntities "+t.name)
			resp, err := pager.NextPage(called)
			err = classify(c.name, err)
			if errors.Is(err, errNoTable) {
				if err := t.ensure(ctx); err != nil {
					return err
				}
				break // it is empty; and a pager that has failed never recovers
			}
			if err != nil {
				return err
			}
			if err := page(decodeExpired(resp.Entities)); err != nil {
				return err
			}
		}
	}
	return nil
}

func decodeExpired(entities [][]byte) []expiryRow {
	rows := make([]expiryRow, 0, len(entities))
	for _, data := range entities {
		var e expiryEntity
		// A row that does not parse has a zero expiry and no ETag, and is counted as failed by whoever handles it.
		_ = json.Unmarshal(data, &e)
		rows = append(rows, expiryRow{partition: e.PartitionKey, key: e.RowKey, etag: e.ETag,
			alias: link.Alias(e.AliasRowKey), expiresAt: orZero(e.ExpiresAt)})
	}
	return rows
}
