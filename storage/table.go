package storage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/go-json-experiment/json"
	"golang.org/x/sync/singleflight"

	"tiney/link"
)

// table is one Azure table. Its calls create the table if it is missing, and return the errors of errors.go.
type table struct {
	name     string
	client   *aztables.Client
	readOnly bool // nothing is created in it
	ensuring singleflight.Group
}

// shared makes a call once for all who want the same at the same time, with a time of its own, since the caller who was first
// may give up when others have not. A panic is an error.
func shared[T any](ctx context.Context, group *singleflight.Group, key string, call func(context.Context) (T, error)) <-chan singleflight.Result {
	return group.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
		defer cancel()
		var value T
		err := safely(func() (err error) {
			value, err = call(ctx)
			return err
		})
		return value, err
	})
}

// ensure creates the table unless it exists. Concurrent callers share one call, and none waits for longer than its own ctx
// allows.
func (t *table) ensure(ctx context.Context) error {
	created := shared(ctx, &t.ensuring, "", func(ctx context.Context) (any, error) {
		ctx, _ = withCall(ctx, "CreateTable "+t.name)
		_, err := t.client.CreateTable(ctx, nil)
		if response := (*azcore.ResponseError)(nil); errors.As(err, &response) && response.ErrorCode == "TableAlreadyExists" {
			err = nil
		}
		return nil, classify("CreateTable "+t.name, err)
	})
	select {
	case done := <-created:
		return done.Err
	case <-ctx.Done():
		return classify("CreateTable "+t.name, ctx.Err())
	}
}

// do makes one call. If the table is missing, it creates it and calls again, so that the first request after a start, or
// after somebody deleted the table, is slower instead of failing. Tries is how often a call was sent: if more than
// once, an earlier try may have been applied although its response never came.
func (t *table) do(ctx context.Context, operation string, send func(context.Context) error) (tries int, err error) {
	once := func() (int, error) {
		ctx, c := withCall(ctx, operation+" "+t.name)
		err := classify(c.name, send(ctx))
		return c.tries, err
	}
	tries, err = once()
	if !errors.Is(err, errNoTable) || t.readOnly {
		return tries, err
	}
	if err := t.ensure(ctx); err != nil {
		return tries, err
	}
	again, err := once()
	return max(tries, again), err
}

// get reads one row, as the service has written it. errGone: the table was read, and the row is not there.
func (t *table) get(ctx context.Context, partition, key string) (data []byte, etag azcore.ETag, err error) {
	resp, err := t.read(ctx, partition, key)
	if err == nil {
		etag = azcore.ETag(resp.Header.Get("ETag"))
		data, err = runtime.Payload(resp) // the SDK has read it, and keeps it there
	}
	return data, etag, err
}

// read returns the response for a row, also where that says that there is none. What the SDK itself
// returns went through a map, in which a Double of 3.0 is a 3, and a 3 is written back as an Int32.
func (t *table) read(ctx context.Context, partition, key string) (resp *http.Response, err error) {
	_, err = t.do(ctx, "GetEntity", func(ctx context.Context) error {
		_, err := t.client.GetEntity(policy.WithCaptureResponse(ctx, &resp), partition, key, nil)
		return err
	})
	return resp, err
}

// ask asks for a row whose key no link can have.
func (t *table) ask(ctx context.Context) (*http.Response, error) {
	resp, err := t.read(ctx, "-", "-")
	if errors.Is(err, errGone) {
		err = nil
	}
	return resp, err
}

func (t *table) ping(ctx context.Context) error {
	_, err := t.ask(ctx)
	return err
}

// clock returns the storage service's time, in whole seconds.
func (t *table) clock(ctx context.Context) (time.Time, error) {
	resp, err := t.ask(ctx)
	if err != nil {
		return time.Time{}, err
	}
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return time.Time{}, fmt.Errorf("the clock of %s: %w: %w", t.name, link.ErrUnavailable, err)
	}
	return at, nil
}

// earlier returns now, or the storage service's time if that is earlier.
func (t *table) earlier(ctx context.Context, now time.Time) (time.Time, error) {
	there, err := t.clock(ctx)
	if err == nil && there.Before(now) {
		now = there
	}
	return now, err
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

// create inserts a row that carries the id of whoever creates it. errExists: the row there carries another one. errGone: there
// was a row, and it cannot be told whose.
//
// It returns the ETag by which the row may be deleted again, or "" if it may not: an earlier try of the insert may still
// arrive after that.
func (t *table) create(ctx context.Context, entity []byte, partition, key, id string) (azcore.ETag, error) {
	etag, retried, err := t.insert(ctx, entity)
	if !retried {
		return etag, err
	}
	if errors.Is(err, errExists) {
		var data []byte
		if data, _, err = t.get(ctx, partition, key); err != nil {
			return "", err
		}
		var there struct {
			CreateID string `json:"CreateId"`
		}
		if json.Unmarshal(data, &there) != nil || there.CreateID != id {
			return "", errExists
		}
	}
	return "", err
}

// upsert writes a row's properties, whether there is a row with that key or not. The row gets a new ETag, so that nobody
// can delete it by an older one.
func (t *table) upsert(ctx context.Context, entity []byte) (etag azcore.ETag, err error) {
	_, err = t.do(ctx, "UpsertEntity", func(ctx context.Context) error {
		resp, err := t.client.UpsertEntity(ctx, entity, &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeMerge})
		etag = resp.ETag
		return err
	})
	return etag, err
}

// update overwrites a row if it is unchanged since it was read. errChanged: it is not; if retried, perhaps by an earlier
// try of this very call.
func (t *table) update(ctx context.Context, entity []byte, read azcore.ETag, mode aztables.UpdateMode) (etag azcore.ETag, retried bool, err error) {
	tries, err := t.do(ctx, "UpdateEntity", func(ctx context.Context) error {
		resp, err := t.client.UpdateEntity(withBody(ctx, entity), entity, &aztables.UpdateEntityOptions{IfMatch: &read, UpdateMode: mode})
		etag = resp.ETag
		return err
	})
	if errors.Is(err, errGone) {
		err = fmt.Errorf("%w: %w", errChanged, err)
	}
	return etag, tries > 1, err
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

// batchSize is how many rows a batch may have, the service's own limit.
const batchSize = 100

// rowKey is the key of a row, and the ETag by which it was read.
type rowKey struct {
	partition, key string
	etag           azcore.ETag
}

// deleteBatch deletes up to batchSize rows of one partition in one call: all of them if each is unchanged since it was
// read, else none. No error says which row is to blame, and an earlier try whose response was lost may have been applied:
// after any error, delete them one by one.
func (t *table) deleteBatch(ctx context.Context, rows []rowKey) error {
	var actions []aztables.TransactionAction
	for _, r := range rows {
		// Without an ETag the delete would be unconditional. And in a batch the SDK does not escape quotes in keys.
		if r.etag == "" || strings.Contains(r.partition+r.key, "'") {
			return fmt.Errorf("SubmitTransaction %s: a row that is not fit for a batch: %w", t.name, link.ErrUnavailable)
		}
		entity := encode(map[string]string{"PartitionKey": r.partition, "RowKey": r.key})
		actions = append(actions, aztables.TransactionAction{ActionType: aztables.TransactionTypeDelete, Entity: entity, IfMatch: &r.etag})
	}
	_, err := t.submit(ctx, actions)
	return err
}

// upsertBatch upserts up to batchSize rows of one partition, whose keys have no quotes, in one call: all of them or none.
// retried: an earlier try, without a response, may still arrive.
func (t *table) upsertBatch(ctx context.Context, entities [][]byte) (retried bool, err error) {
	var actions []aztables.TransactionAction
	for _, entity := range entities {
		actions = append(actions, aztables.TransactionAction{ActionType: aztables.TransactionTypeInsertMerge, Entity: entity})
	}
	return t.submit(ctx, actions)
}

func (t *table) submit(ctx context.Context, actions []aztables.TransactionAction) (retried bool, err error) {
	tries, err := t.do(ctx, "SubmitTransaction", func(ctx context.Context) error {
		return safely(func() error { // the SDK panics over an empty response
			_, err := t.client.SubmitTransaction(ctx, actions, nil)
			return err
		})
	})
	return tries > 1, err
}

// list lists the rows that match a filter, in the order of their keys and with their ETags, in pages of at most size rows,
// until page returns an error.
func (t *table) list(ctx context.Context, filter string, size int, page func(entities [][]byte) error) error {
	return t.query(ctx, aztables.ListEntitiesOptions{
		Filter: &filter,
		Top:    to.Ptr(int32(size)),
		Format: to.Ptr(aztables.MetadataFormatFull), // the one that is documented to carry ETags
	}, page)
}

// scan lists the rows that match a filter as list does, 1,000 at a time, but with these columns only, or all if that is "",
// and without ETags. A column that a row lacks may be null.
func (t *table) scan(ctx context.Context, filter, columns string, page func(entities [][]byte) error) error {
	options := aztables.ListEntitiesOptions{Filter: &filter, Format: to.Ptr(aztables.MetadataFormatNone)}
	if columns != "" {
		options.Select = &columns
	}
	return t.query(ctx, options, page)
}

func (t *table) query(ctx context.Context, options aztables.ListEntitiesOptions, page func(entities [][]byte) error) error {
	err := t.queryExisting(ctx, options, page)
	if errors.Is(err, errNoTable) && !t.readOnly {
		return t.ensure(ctx) // it is empty
	}
	return err
}

// queryExisting is a query that does not make the table. errNoTable: there is none.
func (t *table) queryExisting(ctx context.Context, options aztables.ListEntitiesOptions, page func(entities [][]byte) error) error {
	pager := t.client.NewListEntitiesPager(&options)
	for pager.More() {
		called, c := withCall(ctx, "QueryEntities "+t.name)
		resp, err := pager.NextPage(called)
		err = classify(c.name, err)
		if err == nil {
			err = page(resp.Entities)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deleteAll deletes the rows that match a filter. A row that was written since it was listed is an error, errChanged.
func (t *table) deleteAll(ctx context.Context, filter string) error {
	options := aztables.ListEntitiesOptions{Filter: &filter, Select: to.Ptr("PartitionKey,RowKey,Timestamp"), Format: to.Ptr(aztables.MetadataFormatFull)}
	return t.query(ctx, options, func(entities [][]byte) error {
		rows, err := t.decode(entities)
		for err == nil && len(rows) > 0 {
			var batch []rowKey
			for _, r := range rows[:min(len(rows), batchSize)] {
				if r.partition == rows[0].partition {
					batch = append(batch, r.rowKey)
				}
			}
			err, rows = t.deleteEach(ctx, batch), rows[len(batch):]
		}
		return err
	})
}

// deleteEach deletes up to batchSize rows of one partition, one by one if it cannot be done in one call.
func (t *table) deleteEach(ctx context.Context, rows []rowKey) error {
	if err := t.deleteBatch(ctx, rows); err == nil {
		return nil
	}
	for _, r := range rows { // another process may have deleted one of them
		if err := t.delete(ctx, r.partition, r.key, r.etag); err != nil {
			return err
		}
	}
	return nil
}

// linkTable is the ShortUrls table.
type linkTable struct{ table }

// get reads the row of an alias, a link or a tombstone. Errors: link.ErrNotFound, link.ErrDamaged, or any other, which says
// nothing about the link.
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

// decided reports whether the error of a get says something about the link.
func decided(err error) bool {
	return errors.Is(err, link.ErrNotFound) || errors.Is(err, link.ErrDamaged)
}

// insert makes the link durable before it returns. errExists: the alias is another link's. After any other error the link
// may or may not be there.
func (t *linkTable) insert(ctx context.Context, r linkRow) (linkRow, error) {
	etag, retried, err := t.table.insert(ctx, encodeLink(r))
	if errors.Is(err, errExists) && retried {
		// Ours, if an earlier try was applied and only its response was lost.
		there, readErr := t.get(ctx, r.Alias)
		switch {
		case readErr == nil && there.createID == r.createID:
			etag, err = there.etag, nil
		case readErr != nil && !decided(readErr):
			return r, readErr
		}
	}
	r.etag, r.Version, r.retried = etag, string(etag), retried
	return r, err
}

// replace writes next over the row that was read, if that is unchanged. errChanged: it is not.
func (t *linkTable) replace(ctx context.Context, read azcore.ETag, next linkRow) (linkRow, error) {
	etag, retried, err := t.update(ctx, encodeLink(next), read, aztables.UpdateModeReplace)
	if errors.Is(err, errChanged) && retried {
		there, readErr := t.get(ctx, next.Alias)
		switch {
		case readErr == nil && (there.editID == next.editID && next.editID != "" || there.GoneReason != "" && next.GoneReason != ""):
			return there, nil // an earlier try was applied, and its response lost
		case readErr != nil && !decided(readErr):
			return linkRow{}, readErr
		}
	}
	next.etag, next.Version, next.retried = etag, string(etag), retried
	return next, err
}

// share sets Shared in the row that was read, if that is unchanged. errChanged: it is not, or this was done already.
func (t *linkTable) share(ctx context.Context, r linkRow) (linkRow, error) {
	entity := encode(struct {
		PartitionKey, RowKey string
		Shared               bool
	}{linkPartition(r.Alias), string(r.Alias), true})
	etag, _, err := t.update(ctx, entity, r.etag, aztables.UpdateModeMerge)
	r.etag, r.Version, r.Shared = etag, string(etag), true
	return r, err
}

func (t *linkTable) delete(ctx context.Context, r linkRow) error {
	return t.table.delete(ctx, linkPartition(r.Alias), string(r.Alias), r.etag)
}

// indexTable is the UrlIndex table.
type indexTable struct{ table }

// indexRow is a row of the index. The zero indexRow stands for no row.
type indexRow struct {
	alias string // as the row has it; another program may have written anything
	etag  azcore.ETag
}

// get reads the row of a key. errGone: there is none.
func (t *indexTable) get(ctx context.Context, key string) (indexRow, error) {
	data, etag, err := t.table.get(ctx, indexPartition(key), key)
	if err != nil {
		return indexRow{}, err
	}
	var e indexEntity
	_ = json.Unmarshal(data, &e) // a row that does not parse names no alias, so it is stale and will be replaced
	return indexRow{alias: e.Alias, etag: etag}, nil
}

// put makes the index name l: by an insert if seen is no row, else in place of seen and of no other. errChanged: the index
// is not as seen any more, or an earlier try of this very call was applied. late: an insert may still arrive.
func (t *indexTable) put(ctx context.Context, l link.Link, seen indexRow) (late bool, err error) {
	if seen.etag == "" {
		_, retried, err := t.insert(ctx, encodeIndex(l))
		if errors.Is(err, errExists) {
			err = fmt.Errorf("%w: %w", errChanged, err)
		}
		return retried, err
	}
	mode := aztables.UpdateModeMerge // keeps the properties of other programs
	if l.ExpiresAt.IsZero() {
		mode = aztables.UpdateModeReplace // the only way to remove the old expiry
	}
	_, _, err = t.update(ctx, encodeIndex(l), seen.etag, mode)
	return false, err // a try that arrives late finds another ETag
}

// enter makes the index name l unless it names another link, and returns the ETag of the row if it was added. late: an
// insert may still arrive.
func (t *indexTable) enter(ctx context.Context, l link.Link) (added azcore.ETag, late bool, err error) {
	etag, retried, err := t.insert(ctx, encodeIndex(l))
	if !errors.Is(err, errExists) {
		return etag, retried, err
	}
	if !retried {
		return "", false, nil
	}
	there, err := t.get(ctx, indexKey(l)) // an earlier try may have been applied
	switch {
	case err != nil && !errors.Is(err, errGone):
		return "", true, err
	case there.alias != string(l.Alias):
		return "", true, nil
	}
	return there.etag, true, nil
}

// remove deletes the row of a key if it names the alias. A row that is gone, or that came to name another one, is fine.
func (t *indexTable) remove(ctx context.Context, key string, a link.Alias) error {
	seen, err := t.get(ctx, key)
	if err == nil && seen.alias == string(a) {
		err = t.drop(ctx, key, seen.etag)
	}
	if errors.Is(err, errGone) {
		return nil
	}
	return err
}

// drop deletes the row of a key as it was read. One that was written since stays, and is fine.
func (t *indexTable) drop(ctx context.Context, key string, read azcore.ETag) error {
	err := t.delete(ctx, indexPartition(key), key, read)
	if errors.Is(err, errChanged) {
		return nil
	}
	return err
}

// ownerTable is the ShortUrlsByOwner table.
type ownerTable struct{ table }

// insert lists a link among those of its owner, before the link itself is there. errExists: the row is another link's.
//
// It returns the ETag by which the row may be deleted again, or "" if that has to be left to who lists the links.
func (t *ownerTable) insert(ctx context.Context, r linkRow) (azcore.ETag, error) {
	partition, key := ownerPartition(r.Owner), ownerKey(r.Link)
	return t.create(ctx, encode(ownerEntity{PartitionKey: partition, RowKey: key, CreateID: r.createID}), partition, key, r.createID)
}

// put lists a link that exists, unless it is listed already.
func (t *ownerTable) put(ctx context.Context, r linkRow) error {
	_, err := t.upsert(ctx, encode(ownerEntity{PartitionKey: ownerPartition(r.Owner), RowKey: ownerKey(r.Link), CreateID: r.createID}))
	return err
}

func (t *ownerTable) delete(ctx context.Context, l link.Link, read azcore.ETag) error {
	return t.table.delete(ctx, ownerPartition(l.Owner), ownerKey(l), read)
}

// expiryTable is the ShortUrlsExpiryIndex table.
type expiryTable struct{ table }

// expiryRow is a row that the reaper may have to handle.
type expiryRow struct {
	rowKey
	alias     link.Alias
	expiresAt time.Time
	keys      []string // of the index, whose rows are looked at too: those of a guard
	again     bool     // it stands in for one whose link was found to be renewed
}

// insert adds the row by which a link ends, before the link itself. errExists: the row belongs to another link, so the
// alias counts as taken.
//
// It returns the ETag by which the row may be deleted again, or "" if that has to be left to the reaper.
func (t *expiryTable) insert(ctx context.Context, r linkRow, at time.Time) (azcore.ETag, error) {
	e := newExpiry(at, r.Alias)
	e.CreateID = r.createID
	etag, err := t.create(ctx, encode(e), e.PartitionKey, e.RowKey, r.createID)
	if errors.Is(err, errGone) {
		err = errExists // most likely ours, but it could be the row of another create of this alias for this very second
	}
	return etag, err
}

// put makes sure that the reaper looks at a link at the given time, and returns the ETag of the row for it. The row may
// have been there before.
func (t *expiryTable) put(ctx context.Context, at time.Time, a link.Alias) (azcore.ETag, error) {
	return t.upsert(ctx, encode(newExpiry(at, a)))
}

// insertFree adds a row that makes the reaper look at a link at the row's time, or in the first free
// second after it: the row that is there may be the one by which the link ends.
func (t *expiryTable) insertFree(ctx context.Context, e expiryEntity) (rowKey, error) {
	for {
		e.PartitionKey, e.RowKey = expiryKey(e.ExpiresAt, link.Alias(e.AliasRowKey))
		etag, _, err := t.table.insert(ctx, encode(e))
		if !errors.Is(err, errExists) {
			return rowKey{e.PartitionKey, e.RowKey, etag}, err
		}
		e.ExpiresAt = e.ExpiresAt.Add(time.Second)
	}
}

func (t *expiryTable) delete(ctx context.Context, r rowKey) error {
	return t.table.delete(ctx, r.partition, r.key, r.etag)
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
		if err := t.list(ctx, filter, size, func(entities [][]byte) error { return page(decodeExpired(entities)) }); err != nil {
			return err
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
		r := expiryRow{rowKey: rowKey{e.PartitionKey, e.RowKey, e.ETag}, alias: link.Alias(e.AliasRowKey), expiresAt: e.ExpiresAt.UTC(), again: e.Again}
		for _, key := range []string{e.OldIndexKey, e.NewIndexKey} {
			if len(key) == len(indexKey(link.Link{})) {
				r.keys = append(r.keys, key)
			}
		}
		rows = append(rows, r)
	}
	return rows
}
