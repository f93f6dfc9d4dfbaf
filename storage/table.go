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

// table is one Azure table. Its calls make the table where it is missing, and return the errors of errors.go.
type table struct {
	name   string
	client *aztables.Client
	making singleflight.Group
}

// make makes the table unless it exists. Any number of callers at once make one call, which is nobody's own: one that
// hangs up does not fail the others, and each waits for no longer than its own ctx lets it.
func (t *table) make(ctx context.Context) error {
	made := t.making.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
		defer cancel()
		return nil, safely(func() error {
			ctx, _ := withCall(ctx, "CreateTable "+t.name)
			_, err := t.client.CreateTable(ctx, nil)
			if answer := (*azcore.ResponseError)(nil); errors.As(err, &answer) && answer.ErrorCode == "TableAlreadyExists" {
				err = nil
			}
			return classify("CreateTable "+t.name, err)
		})
	})
	select {
	case done := <-made:
		return done.Err
	case <-ctx.Done():
		return classify("CreateTable "+t.name, ctx.Err())
	}
}

// do runs one call, and once more where the table had to be made first: a process that has just started, or a table
// that somebody deleted, costs the first request a moment instead of an error. Tries is how often the call was sent
// (the last one, if there were two): more than once means that an earlier try may have been applied although its answer
// never came.
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
	if err := t.make(ctx); err != nil {
		return tries, err
	}
	return once()
}

// get reads one row. link.ErrNotFound: the table was read, and it is not there.
func (t *table) get(ctx context.Context, partition, key string) (data []byte, etag azcore.ETag, err error) {
	_, err = t.do(ctx, "GetEntity", func(ctx context.Context) error {
		answer, err := t.client.GetEntity(ctx, partition, key, nil)
		data, etag = answer.Value, answer.ETag
		return err
	})
	if errors.Is(err, errGone) {
		err = fmt.Errorf("%w (%v)", link.ErrNotFound, err)
	}
	return data, etag, err
}

// check asks for a row that no table of ours can hold.
func (t *table) check(ctx context.Context) error {
	_, _, err := t.get(ctx, "-", "-")
	if errors.Is(err, link.ErrNotFound) {
		return nil
	}
	return err
}

// clock asks what time it is where the table is, to the second.
func (t *table) clock(ctx context.Context) (time.Time, error) {
	var answer *http.Response
	if err := t.check(policy.WithCaptureResponse(ctx, &answer)); err != nil {
		return time.Time{}, err
	}
	at, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("the clock of %s: %w: %w", t.name, link.ErrUnavailable, err)
	}
	return at, nil
}

// insert adds a row. errExists: a row of that key is there. retried: the row may be there by an earlier try of this
// very call whose answer was lost.
func (t *table) insert(ctx context.Context, entity []byte) (etag azcore.ETag, retried bool, err error) {
	tries, err := t.do(ctx, "InsertEntity", func(ctx context.Context) error {
		answer, err := t.client.AddEntity(ctx, entity, nil)
		etag = answer.ETag
		return err
	})
	return etag, tries > 1, err
}

// update writes over a row that still is as it was read. errChanged: it is not.
func (t *table) update(ctx context.Context, entity []byte, read azcore.ETag, mode aztables.UpdateMode) (etag azcore.ETag, err error) {
	_, err = t.do(ctx, "UpdateEntity", func(ctx context.Context) error {
		answer, err := t.client.UpdateEntity(ctx, entity, &aztables.UpdateEntityOptions{IfMatch: &read, UpdateMode: mode})
		etag = answer.ETag
		return err
	})
	if errors.Is(err, errGone) {
		err = fmt.Errorf("%w: %w", errChanged, err)
	}
	return etag, err
}

// delete deletes a row that still is as it was read; a row that is gone is fine. errChanged: it was written since.
func (t *table) delete(ctx context.Context, partition, key string, read azcore.ETag) error {
	if read == "" {
		// The SDK would send "*", and take away whatever is there now.
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
	// get returns the link of an alias, disabled and expired ones included, or link.ErrNotFound. A cache may answer
	// from memory, for both, and serves a row marked stale where storage fails.
	get(ctx context.Context, a link.Alias) (row, error)
	// insert makes the link durable before it returns. Where the alias is taken by another link it returns errExists;
	// after any other error the link may or may not be there.
	insert(ctx context.Context, l link.Link) (row, error)
	// delete takes the link away unless its row has changed since it was read (errChanged). Safe to repeat.
	delete(ctx context.Context, r row) error
}

// linkTable is the ShortUrls table.
type linkTable struct{ table }

func (t *linkTable) get(ctx context.Context, a link.Alias) (row, error) {
	data, etag, err := t.table.get(ctx, linkPartition(a), string(a))
	if err != nil {
		return row{}, err
	}
	return decodeLink(data, a, etag)
}

func (t *linkTable) insert(ctx context.Context, l link.Link) (row, error) {
	etag, retried, err := t.table.insert(ctx, encodeLink(l))
	if errors.Is(err, errExists) && retried {
		// Ours, if an earlier try was applied and only its answer got lost.
		there, readErr := t.get(ctx, l.Alias)
		if errors.Is(readErr, link.ErrUnavailable) {
			return row{}, readErr
		}
		if readErr == nil && sameLink(there.Link, l) {
			etag, err = there.etag, nil
		}
	}
	return row{Link: l, etag: etag, retried: retried}, err
}

func sameLink(a, b link.Link) bool {
	return a.Alias == b.Alias && a.LongURL == b.LongURL && a.CreatedAt.Equal(b.CreatedAt) && a.ExpiresAt.Equal(b.ExpiresAt)
}

func (t *linkTable) delete(ctx context.Context, r row) error {
	return t.table.delete(ctx, linkPartition(r.Alias), string(r.Alias), r.etag)
}

// indexTable is the UrlIndex table.
type indexTable struct{ table }

// indexRow is what the index knows of a long URL. The zero indexRow stands for no row.
type indexRow struct {
	alias     string    // as it stands in the row; another program may have written anything
	expiresAt time.Time // the row's own word on it; zero: it has none
	etag      azcore.ETag
}

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

// put makes the index name l for its long URL: by an insert where seen is no row, else in the place of seen and no
// other. errChanged: the index is not as seen any more, or an earlier try of this very call was applied.
func (t *indexTable) put(ctx context.Context, l link.Link, seen indexRow) error {
	if seen.etag == "" {
		_, _, err := t.insert(ctx, encodeIndex(l))
		if errors.Is(err, errExists) {
			err = fmt.Errorf("%w: %w", errChanged, err)
		}
		return err
	}
	mode := aztables.UpdateModeMerge // keeps what other programs have put there
	if l.ExpiresAt.IsZero() {
		mode = aztables.UpdateModeReplace // the only way to take the old expiry out
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

// insert adds the expiry row of a link, before the link itself. errExists: that row is another link's, so its alias
// must be taken for taken.
//
// It returns the ETag by which the row may be deleted again, or "" where it has to be left to the reaper.
func (t *expiryTable) insert(ctx context.Context, l link.Link) (azcore.ETag, error) {
	entity := encodeExpiry(l)
	etag, retried, err := t.table.insert(ctx, entity)
	if !errors.Is(err, errExists) || !retried {
		return etag, err
	}
	// Most likely ours, by an earlier try. But it could be the row of another create that drew this alias for this
	// very second, and that may still put its link beside it, or delete the row when it loses its race. So it is
	// adopted: writing it once more gives it a new ETag, which no other create can delete it by, and this one never
	// deletes it either. Whichever link ends up there has its expiry row.
	partition, key := expiryKey(l)
	_, read, err := t.get(ctx, partition, key)
	if err == nil {
		_, err = t.update(ctx, entity, read, aztables.UpdateModeMerge)
	}
	if errors.Is(err, errChanged) || errors.Is(err, link.ErrNotFound) {
		err = errExists
	}
	return "", err
}

func (t *expiryTable) delete(ctx context.Context, r expiryRow) error {
	return t.table.delete(ctx, r.partition, r.key, r.etag)
}

// batchSize is how many rows a batch may have: the service's own limit.
const batchSize = 100

// deleteBatch deletes some rows of one partition, at most batchSize, in one call: all of them if each still is as it was
// read, else none. No error says which row is to blame, and an earlier try whose answer was lost may have been applied:
// what to do after any error is to delete them one by one.
func (t *expiryTable) deleteBatch(ctx context.Context, rows []expiryRow) error {
	var actions []aztables.TransactionAction
	for _, r := range rows {
		// Without an ETag there is nothing to go by; and a quote in a key, which the SDK escapes elsewhere, it does not
		// escape in a batch.
		if r.etag == "" || strings.Contains(r.partition+r.key, "'") {
			return fmt.Errorf("SubmitTransaction %s: a row that is not fit for a batch: %w", t.name, link.ErrUnavailable)
		}
		entity, err := json.Marshal(map[string]string{"PartitionKey": r.partition, "RowKey": r.key})
		if err != nil {
			return err
		}
		actions = append(actions, aztables.TransactionAction{ActionType: aztables.TransactionTypeDelete, Entity: entity, IfMatch: &r.etag})
	}
	_, err := t.do(ctx, "SubmitTransaction", func(ctx context.Context) error {
		return safely(func() error { // the SDK panics over an empty answer
			_, err := t.client.SubmitTransaction(ctx, actions, nil)
			return err
		})
	})
	return err
}

// expired lists the rows of links whose life was over at cutoff, oldest first, a page of at most size rows at a time,
// until the page function returns an error. It reads ranges of whole partitions only: all days before cutoff's, then
// cutoff's own up to its second.
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
			answer, err := pager.NextPage(called)
			err = classify(c.name, err)
			if errors.Is(err, errNoTable) {
				if err := t.make(ctx); err != nil {
					return err
				}
				break // it is empty; and a pager that has failed never recovers
			}
			if err != nil {
				return err
			}
			if err := page(decodeExpired(answer.Entities)); err != nil {
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
		// A row that does not parse keeps a zero expiry and no ETag, and is counted as failed by whoever handles it.
		_ = json.Unmarshal(data, &e)
		rows = append(rows, expiryRow{partition: e.PartitionKey, key: e.RowKey, etag: e.ETag,
			alias: link.Alias(e.AliasRowKey), expiresAt: orZero(e.ExpiresAt)})
	}
	return rows
}
