// Package rawtables reads and writes the three tables in tests as another program would: through the SDK alone, with
// the rows' format written out here anew.
package rawtables

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/data/aztables"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"golang.org/x/sync/errgroup"

	"tiney/link"
)

// Tables are one set of tables.
type Tables struct {
	t                testing.TB
	connectionString string
	service          *aztables.ServiceClient
	// The names of the tables.
	Links, Index, Expiry string
}

// Open opens the tables whose names begin with prefix.
func Open(t testing.TB, connectionString, prefix string) *Tables {
	t.Helper()
	service, err := aztables.NewServiceClientFromConnectionString(connectionString, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Tables{t: t, connectionString: connectionString, service: service, Links: prefix + "ShortUrls", Index: prefix + "UrlIndex", Expiry: prefix + "ShortUrlsExpiryIndex"}
}

// Entity is a row as it is on the wire.
type Entity map[string]any

func (e Entity) time(name string, t time.Time) {
	if !t.IsZero() {
		e[name], e[name+"@odata.type"] = t.UTC().Format(time.RFC3339), "Edm.DateTime"
	}
}

// Rows returns all rows of a table.
func (r *Tables) Rows(table string) []Entity {
	r.t.Helper()
	var all []Entity
	pager := r.service.NewClient(table).NewListEntitiesPager(nil)
	for pager.More() {
		page, err := pager.NextPage(context.Background())
		if err != nil {
			r.t.Fatal(err)
		}
		for _, data := range page.Entities {
			var e Entity
			if err := json.Unmarshal(data, &e); err != nil {
				r.t.Fatal(err)
			}
			delete(e, "odata.etag")
			delete(e, "Timestamp")
			all = append(all, e)
		}
	}
	return all
}

// Make makes the tables.
func (r *Tables) Make() {
	r.t.Helper()
	for _, table := range []string{r.Links, r.Index, r.Expiry} {
		if _, err := r.service.CreateTable(context.Background(), table, nil); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Remove removes the tables.
func (r *Tables) Remove() {
	r.t.Helper()
	for _, table := range []string{r.Links, r.Index, r.Expiry} {
		if _, err := r.service.DeleteTable(context.Background(), table, nil); err != nil {
			r.t.Fatal(err)
		}
	}
}

// RemoveContainer removes a blob container of the same account.
func (r *Tables) RemoveContainer(name string) {
	r.t.Helper()
	c, err := container.NewClientFromConnectionString(r.connectionString, name, nil)
	if err == nil {
		_, err = c.Delete(context.Background(), nil)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// Put writes a row in the place of what is there.
func (r *Tables) Put(table string, e Entity) {
	r.t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.service.NewClient(table).UpsertEntity(context.Background(), data, &aztables.UpsertEntityOptions{UpdateMode: aztables.UpdateModeReplace}); err != nil {
		r.t.Fatal(err)
	}
}

// Drop deletes a row that is there.
func (r *Tables) Drop(table string, e Entity) {
	r.t.Helper()
	if _, err := r.service.NewClient(table).DeleteEntity(context.Background(), e["PartitionKey"].(string), e["RowKey"].(string), nil); err != nil {
		r.t.Fatal(err)
	}
}

// Link returns the row of a link.
func Link(l link.Link) Entity {
	e := Entity{"PartitionKey": partition(l.Alias), "RowKey": string(l.Alias), "LongUrl": l.LongURL, "IsDisabled": l.Disabled}
	e.time("CreatedAtUtc", l.CreatedAt)
	e.time("ExpiresAtUtc", l.ExpiresAt)
	return e
}

func partition(a link.Alias) string {
	if len(a) == 1 {
		return "xx"
	}
	return strings.ToLower(string(a[:2]))
}

// Index returns the index row of a link.
func Index(l link.Link) Entity {
	sum := sha256.Sum256([]byte(l.LongURL))
	hash := hex.EncodeToString(sum[:])
	e := Entity{"PartitionKey": hash[:8], "RowKey": hash, "Alias": string(l.Alias), "LongUrl": l.LongURL}
	e.time("ExpiresAtUtc", l.ExpiresAt)
	return e
}

// Expiry returns the expiry row of a link.
func Expiry(l link.Link) Entity {
	e := Entity{"PartitionKey": l.ExpiresAt.UTC().Format("20060102"), "RowKey": l.ExpiresAt.UTC().Format("150405") + "|" + string(l.Alias),
		"AliasPartitionKey": partition(l.Alias), "AliasRowKey": string(l.Alias)}
	e.time("ExpiresAtUtc", l.ExpiresAt)
	return e
}

// PutLink writes a link with all its rows.
func (r *Tables) PutLink(l link.Link) {
	r.t.Helper()
	r.Put(r.Links, Link(l))
	r.Put(r.Index, Index(l))
	if !l.ExpiresAt.IsZero() {
		r.Put(r.Expiry, Expiry(l))
	}
}

// PutMany writes count links that expired at the given time. The tables must not have any of them yet.
func (r *Tables) PutMany(count int, at time.Time) {
	r.t.Helper()
	var writes errgroup.Group
	writes.SetLimit(32) // row by row: Azurite takes the longer for a batch, the more rows there are
	for i := range count {
		writes.Go(func() error {
			l := link.Link{Alias: link.Alias(fmt.Sprintf("due%07d", i)), LongURL: fmt.Sprintf("https://example.com/%d", i), CreatedAt: at.Add(-time.Hour), ExpiresAt: at}
			for table, e := range map[string]Entity{r.Links: Link(l), r.Index: Index(l), r.Expiry: Expiry(l)} {
				data, err := json.Marshal(e)
				if err != nil {
					return err
				}
				if _, err := r.service.NewClient(table).AddEntity(context.Background(), data, nil); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := writes.Wait(); err != nil {
		r.t.Fatal(err)
	}
}

// Age moves the expiry of every row by d into the past, as if d had gone by.
func (r *Tables) Age(d time.Duration) {
	r.t.Helper()
	for _, table := range []string{r.Links, r.Index, r.Expiry} {
		for _, e := range r.Rows(table) {
			at, err := time.Parse(time.RFC3339, fmt.Sprint(e["ExpiresAtUtc"]))
			if err != nil {
				continue // never expires
			}
			at = at.Add(-d)
			if table == r.Expiry {
				r.Drop(table, e)
				e["PartitionKey"], e["RowKey"] = at.Format("20060102"), at.Format("150405")+"|"+e["AliasRowKey"].(string)
			}
			e.time("ExpiresAtUtc", at)
			r.Put(table, e)
		}
	}
}

// WantRows checks how many rows each table has.
func (r *Tables) WantRows(links, index, expiry int) {
	r.t.Helper()
	l, i, e := r.Rows(r.Links), r.Rows(r.Index), r.Rows(r.Expiry)
	if len(l) != links || len(i) != index || len(e) != expiry {
		r.t.Errorf("%d links, %d index rows, %d expiry rows; want %d, %d, %d\n%v\n%v\n%v", len(l), len(i), len(e), links, index, expiry, l, i, e)
	}
}

// WantNoLeak checks that there are no Leaks.
func (r *Tables) WantNoLeak() {
	r.t.Helper()
	for _, leak := range r.Leaks() {
		r.t.Error(leak)
	}
}

// Leaks returns what the reaper would never find: links with an expiry that have no expiry row for it, and index rows
// that name no link.
func (r *Tables) Leaks() []string {
	r.t.Helper()
	var leaks []string
	due, links := map[string]bool{}, map[string]bool{}
	for _, e := range r.Rows(r.Expiry) {
		due[fmt.Sprint(e["AliasRowKey"], e["ExpiresAtUtc"])] = true
	}
	for _, e := range r.Rows(r.Links) {
		links[e["RowKey"].(string)] = true
		if e["ExpiresAtUtc"] != nil && !due[fmt.Sprint(e["RowKey"], e["ExpiresAtUtc"])] {
			leaks = append(leaks, fmt.Sprintf("link %v has no expiry row", e))
		}
	}
	for _, e := range r.Rows(r.Index) {
		if !links[e["Alias"].(string)] {
			leaks = append(leaks, fmt.Sprintf("index row %v names no link", e))
		}
	}
	return leaks
}

// Disable disables a link, if it is there.
func (r *Tables) Disable(alias string) {
	r.t.Helper()
	data, err := json.Marshal(Entity{"PartitionKey": partition(link.Alias(alias)), "RowKey": alias, "IsDisabled": true})
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = r.service.NewClient(r.Links).UpdateEntity(context.Background(), data, nil) // merges
	if failed := (*azcore.ResponseError)(nil); err != nil && !(errors.As(err, &failed) && failed.StatusCode == http.StatusNotFound) {
		r.t.Error(err)
	}
}
