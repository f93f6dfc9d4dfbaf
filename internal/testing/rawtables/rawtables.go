// Package rawtables reads and writes the tables in tests as another program would. It uses only the
// SDK, and has its own definition of the rows' format.
package rawtables

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"
	"golang.org/x/sync/errgroup"

	"tiney/internal/link"
	"tiney/internal/testing/azurite"
	"tiney/storage"
	"tiney/storage/counts"
	storagetable "tiney/storage/table"
)

// Tables are one set of tables.
type Tables struct {
	t    testing.TB
	open func(name string) storagetable.Table

	connectionString string // "" in memory

	storage.Tables // their names
	// Leaks uses these values: how long deleted links and tombstones are kept, for how many days
	// clicks are kept, and the current time.
	DeletedKeep, TombstoneFor time.Duration
	KeepDays                  int
	Now                       func() time.Time
}

// Open opens the tables of an account whose names begin with prefix. Leaks uses the default
// settings.
func Open(t testing.TB, connectionString, prefix string) *Tables {
	t.Helper()
	open, err := azurite.Tables(connectionString)
	if err != nil {
		t.Fatal(err)
	}
	tables := On(t, open, prefix)
	tables.connectionString = connectionString
	return tables
}

// On is Open with a function that opens tables.
func On(t testing.TB, open func(name string) storagetable.Table, prefix string) *Tables {
	return &Tables{
		t: t, open: open,
		Tables: storage.Tables{Links: prefix + "ShortUrls", Index: prefix + "UrlIndex",
			Expiry: prefix + "ShortUrlsExpiryIndex", Owners: prefix + "ShortUrlsByOwner",
			Keys: prefix + "ShortUrlsKeys", State: prefix + "ShortUrlsState",
			Clicks: prefix + "ShortUrlsClicks", ClickTotals: prefix + "ShortUrlsClickTotals"},
		DeletedKeep: 7 * 24 * time.Hour, TombstoneFor: 30 * 24 * time.Hour, KeepDays: 400,
		Now: time.Now,
	}
}

// day is the format of days in rows.
const day = "20060102"

// Entity is a row as it is on the wire.
type Entity map[string]any

func (e Entity) time(name string, t time.Time) {
	if !t.IsZero() {
		e[name], e[name+"@odata.type"] = t.UTC().Format(time.RFC3339), "Edm.DateTime"
	}
}

// at returns a time of the row, or zero if there is none.
func (e Entity) at(name string) time.Time {
	at, _ := time.Parse(time.RFC3339, fmt.Sprint(e[name]))
	return at
}

func (e Entity) text(name string) string {
	text, _ := e[name].(string)
	return text
}

// Rows returns all rows of a table.
func (r *Tables) Rows(table string) []Entity {
	r.t.Helper()
	var all []Entity
	typed := storagetable.Query{ETags: true} // without ETags, rows come without types too
	err := r.open(table).List(patient, typed, func(page [][]byte) error {
		for _, data := range page {
			var e Entity
			if err := json.Unmarshal(data, &e); err != nil {
				return err
			}
			maps.DeleteFunc(e, func(name string, _ any) bool {
				return strings.HasPrefix(name, "odata.") || strings.HasPrefix(name, "Timestamp")
			})
			all = append(all, e)
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return all
}

func (r *Tables) all() []string {
	return []string{r.Links, r.Index, r.Expiry, r.Owners, r.Keys, r.State, r.ClickTotals}
}

// Make makes the tables, but for those of clicks per day and month.
func (r *Tables) Make() {
	r.t.Helper()
	for _, table := range r.all() {
		if err := r.open(table).Create(patient); err != nil {
			r.t.Fatal(err)
		}
	}
}

// Remove removes the tables that are there.
func (r *Tables) Remove() {
	r.t.Helper()
	days, months := r.ClickTables()
	for _, table := range slices.Concat(r.all(), days, months) {
		r.DropTable(table)
	}
}

// DropTable removes one table if it is there.
func (r *Tables) DropTable(name string) {
	r.t.Helper()
	if err := r.open(name).Drop(patient); err != nil {
		r.t.Fatal(err)
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

// Put writes a row, and replaces an existing one.
func (r *Tables) Put(table string, e Entity) {
	r.t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		r.t.Fatal(err)
	}
	err = r.write(table, storagetable.Replace, data)
	if errors.Is(err, storagetable.ErrChanged) || errors.Is(err, storagetable.ErrNoTable) {
		err = r.add(table, e)
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *Tables) write(table string, kind storagetable.Kind, row []byte) error {
	_, err := r.open(table).Write(patient, storagetable.Write{Kind: kind, Row: row,
		Read: storagetable.Any})
	return err
}

// Drop deletes a row, which must exist.
func (r *Tables) Drop(table string, e Entity) {
	r.t.Helper()
	partition, key := e["PartitionKey"].(string), e["RowKey"].(string)
	w := storagetable.NewDelete(partition, key, storagetable.Any)
	if _, err := r.open(table).Write(patient, w); err != nil {
		r.t.Fatal(err)
	}
}

// Link returns the row of a link or of a tombstone. Unset fields of the link are not in the row.
func Link(l link.Link) Entity {
	e := Entity{"PartitionKey": partition(l.Name), "RowKey": string(l.Name)}
	if l.GoneReason != link.StateLive {
		e["GoneReason"] = string(l.GoneReason)
		e.time("GoneAtUtc", l.GoneAt)
		if l.GoneURL != "" {
			e["GoneUrl"] = string(l.GoneURL)
		}
		return e
	}
	e["LongUrl"], e["IsDisabled"] = l.LongURL, l.Disabled
	for name, text := range map[string]string{"Owner": l.Owner, "Title": l.Title,
		"ClaimHash": l.ClaimHash, "Spelling": string(l.Spelling), "History": l.History.JSON(),
		"GoneUrl": string(l.GoneURL), "Password": l.Password} {
		if text != "" {
			e[name] = text
		}
	}
	if l.StatusCode != 0 {
		e["StatusCode"] = l.StatusCode
	}
	for name, set := range map[string]bool{"Shared": l.Shared, "Locked": l.Locked} {
		if set {
			e[name] = true
		}
	}
	for name, n := range map[string]int64{"ClicksBefore": l.Before.Clicks,
		"BotsBefore": l.Before.Bots} {
		if n != 0 {
			e[name], e[name+"@odata.type"] = strconv.FormatInt(n, 10), "Edm.Int64"
		}
	}
	if !l.CountedFrom.IsZero() {
		e["CountedFrom"] = l.CountedFrom.Format(day)
	}
	if len(l.Tags) > 0 {
		tags, _ := json.Marshal(l.Tags)
		e["Tags"] = string(tags)
	}
	if l.Forward != 0 {
		forward, _ := json.Marshal(l.Forward.Names())
		e["Forward"] = string(forward)
	}
	if len(l.Rules) > 0 {
		rules, _ := json.Marshal(l.Rules)
		e["Rules"] = string(rules)
	}
	if l.MaxOpens > 0 {
		e["MaxOpens"], e["OpensLeft"] = l.MaxOpens, l.OpensLeft
		if l.OpensLeft < l.MaxOpens {
			e["OpenId"] = "of an opening"
		}
		e.time("ExpiresAtUtcKept", l.EndKept)
	}
	e.time("CreatedAtUtc", l.CreatedAt)
	e.time("ExpiresAtUtc", l.ExpiresAt)
	e.time("StartsAtUtc", l.StartsAt)
	e.time("UpdatedAtUtc", l.UpdatedAt)
	e.time("DeletedAtUtc", l.DeletedAt)
	e.time("LastClickBeforeUtc", l.Before.LastAt)
	return e
}

func partition(name link.Name) string {
	a, _, _ := strings.Cut(string(name), "@")
	if len(a) == 1 {
		return "xx"
	}
	return strings.ToLower(a[:2])
}

// IndexKey returns the key of a long URL of the default domain in the index, for an owner, or for
// "" if it has none.
func IndexKey(owner, longURL string) string {
	if owner != "" {
		longURL = owner + "\n" + longURL
	}
	sum := sha256.Sum256([]byte(longURL))
	return hex.EncodeToString(sum[:])
}

// Index returns the index row of a link.
func Index(l link.Link) Entity {
	hash := IndexKey(l.Owner, l.LongURL)
	if _, domain, is := strings.Cut(string(l.Name), "@"); is {
		hash = IndexKey("@"+domain+"\n"+l.Owner, l.LongURL)
	}
	e := Entity{"PartitionKey": hash[:8], "RowKey": hash, "Alias": string(l.Name),
		"LongUrl": l.LongURL}
	e.time("ExpiresAtUtc", l.ExpiresAt)
	return e
}

// Expiry returns the expiry row for the end of a link.
func Expiry(l link.Link) Entity { return Due(l.Name, l.ExpiresAt) }

// Due returns the expiry row that makes the reaper look at a link at the given time.
func Due(a link.Name, at time.Time) Entity {
	e := Entity{"PartitionKey": at.UTC().Format(day), "RowKey": at.UTC().Format("150405") + "|" +
		string(a),
		"AliasPartitionKey": partition(a), "AliasRowKey": string(a)}
	e.time("ExpiresAtUtc", at)
	return e
}

func ownerPartition(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return hex.EncodeToString(sum[:])[:32]
}

// Owner returns a link's row in its owner's list.
func Owner(l link.Link) Entity {
	return Entity{"PartitionKey": ownerPartition(l.Owner), "RowKey": fmt.Sprintf("%010d|%s",
		9999999999-l.CreatedAt.Unix(), l.Name)}
}

// VisitorKey returns the row of the visitor key for the day of at.
func VisitorKey(at time.Time) Entity {
	return Entity{"PartitionKey": "salt|" + at.UTC().Format(day), "RowKey": "key",
		"Key": strings.Repeat("0f", 16)}
}

// PutAll adds rows to a table, which must not have any of them yet.
func (r *Tables) PutAll(table string, rows []Entity) {
	r.t.Helper()
	var writes errgroup.Group
	writes.SetLimit(32) // single rows: Azurite's batches get slower with the number of rows
	for _, e := range rows {
		writes.Go(func() error { return r.add(table, e) })
	}
	if err := writes.Wait(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *Tables) add(table string, e Entity) error {
	data, err := json.Marshal(e)
	if err == nil {
		err = r.write(table, storagetable.Insert, data)
	}
	return err
}

// PutLink writes a link with all its rows, or a tombstone without an expiry row.
func (r *Tables) PutLink(l link.Link) {
	r.t.Helper()
	r.Put(r.Links, Link(l))
	if l.GoneReason != link.StateLive {
		return
	}
	r.Put(r.Index, Index(l))
	if !l.ExpiresAt.IsZero() {
		r.Put(r.Expiry, Expiry(l))
	}
	if l.Owner != "" {
		r.Put(r.Owners, Owner(l))
	}
}

// PutMany writes count links that expired at the given time. The tables must not have any of them
// yet.
func (r *Tables) PutMany(count int, at time.Time) {
	r.t.Helper()
	rows := map[string][]Entity{}
	for i := range count {
		l := link.Link{Name: link.Name(fmt.Sprintf("due%07d", i)),
			LongURL: fmt.Sprintf("https://example.com/%d", i), CreatedAt: at.Add(-time.Hour),
			ExpiresAt: at}
		for table, e := range map[string]Entity{r.Links: Link(l), r.Index: Index(l),
			r.Expiry: Expiry(l)} {
			rows[table] = append(rows[table], e)
		}
	}
	for table, all := range rows {
		r.PutAll(table, all)
	}
}

// Age moves the ends in all rows into the past by d, as if that time had passed.
func (r *Tables) Age(d time.Duration) {
	r.t.Helper()
	for _, table := range []string{r.Links, r.Index, r.Expiry} {
		for _, e := range r.Rows(table) {
			aged := false
			for _, name := range []string{"ExpiresAtUtc", "ExpiresAtUtcKept", "StartsAtUtc",
				"DeletedAtUtc", "GoneAtUtc"} {
				at := e.at(name)
				if at.IsZero() {
					continue
				}
				at, aged = at.Add(-d), true
				if table == r.Expiry {
					r.Drop(table, e)
					e["PartitionKey"], e["RowKey"] = at.Format(day), at.Format("150405")+"|"+
						e["AliasRowKey"].(string)
				}
				e.time(name, at)
			}
			if aged {
				r.Put(table, e)
			}
		}
	}
}

// WantRows checks the numbers of link, index and expiry rows.
func (r *Tables) WantRows(links, index, expiry int) {
	r.t.Helper()
	l, i, e := r.Rows(r.Links), r.Rows(r.Index), r.Rows(r.Expiry)
	if len(l) != links || len(i) != index || len(e) != expiry {
		r.t.Errorf("%d links, %d index rows, %d expiry rows; want %d, %d, %d\n%v\n%v\n%v", len(l),
			len(i), len(e), links, index, expiry, l, i, e)
	}
}

// WantNoLeak checks that there are no Leaks except damage of the given kinds.
func (r *Tables) WantNoLeak(but ...storage.Damage) {
	r.t.Helper()
	for _, leak := range r.Leaks(but...) {
		r.t.Error(leak)
	}
}

// WantNothing checks that no row of any link is left, except the counts of each day.
func (r *Tables) WantNothing() {
	r.t.Helper()
	_, months := r.ClickTables()
	for _, table := range append(months, r.Links, r.Index, r.Expiry, r.Owners, r.ClickTotals) {
		for _, row := range r.Rows(table) {
			if name := row.text("RowKey"); name != allLinks && !strings.HasPrefix(name, "@") {
				r.t.Errorf("%s has %v", table, row)
			}
		}
	}
}

// allLinks stands for the alias in rows about the whole service, and an @ begins what stands for it
// in those about an owner.
const allLinks = "*"

// patient gives a try as much time as its call has, for busy machines.
var patient = policy.WithRetryOptions(context.Background(), policy.RetryOptions{
	MaxRetries: 2, TryTimeout: time.Minute,
})

// Leaks returns what Check finds, except for some kinds of damage, and except for what a crash
// leaves to the reaper: expiry rows without their links, and announcements of changes.
func (r *Tables) Leaks(but ...storage.Damage) []string {
	r.t.Helper()
	return r.Check(append(but, storage.ExpiryWithoutLink, storage.ChangeOld)...)
}

// Check returns what storage's own check finds in rows of any age, except for some kinds of damage.
func (r *Tables) Check(but ...storage.Damage) []string {
	r.t.Helper()
	links, err := storage.Open(storage.Config{
		Open: r.open, Timeout: storagetable.Timeout, Random: rand.Reader, Tables: r.Tables,
		Clicks: counts.Settings{KeepDays: r.KeepDays}, DeletedKeep: r.DeletedKeep,
		TombstoneFor: r.TombstoneFor, Now: r.Now,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	var found []string
	_, err = links.Check(patient, storage.CheckConfig{Found: func(f storage.Finding) {
		if !slices.Contains(but, f.Damage) {
			found = append(found, fmt.Sprintf("%s: %s %s/%s: %s", f.Damage, f.Table, f.Partition,
				f.Row, f.Detail))
		}
	}})
	if err != nil {
		r.t.Fatal(err)
	}
	return found
}

// Disable disables a link if it exists.
func (r *Tables) Disable(alias string) {
	r.t.Helper()
	data, err := json.Marshal(Entity{"PartitionKey": partition(link.Name(alias)), "RowKey": alias,
		"IsDisabled": true})
	if err != nil {
		r.t.Fatal(err)
	}
	err = r.write(r.Links, storagetable.Merge, data)
	if err != nil && !errors.Is(err, storagetable.ErrChanged) {
		r.t.Error(err)
	}
}
