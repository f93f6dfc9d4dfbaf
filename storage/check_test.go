package storage_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/storage"
)

// check checks the tables and returns what was found, each as "damage row", and with a "+" in front
// if it was mended.
func check(ctx context.Context, s *storage.Links, repair bool) (found []string,
	done storage.CheckResult, err error) {
	done, err = s.Check(ctx, storage.CheckConfig{Repair: repair, Found: func(f storage.Finding) {
		sign := ""
		if f.Mended {
			sign = "+"
		}
		if f.Err != nil && err == nil {
			err = f.Err
		}
		found = append(found, fmt.Sprintf("%s%s %s", sign, f.Damage, f.Row))
	}})
	slices.Sort(found)
	return found, done, err
}

// wellDone is a set of rows of which none is damaged, whatever they look like.
func (r *rig) wellDone() {
	r.t.Helper()
	now := r.clock.Now().Truncate(time.Second)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	live := link.Link{Name: "live", LongURL: url1, CreatedAt: in(-time.Hour),
		ExpiresAt: in(time.Hour)}
	r.PutLink(live)
	r.PutLink(link.Link{Name: "own", Owner: "a", LongURL: url1, CreatedAt: in(-time.Hour)})
	twin := link.Link{Name: "chosen", Owner: "a", LongURL: url1, CreatedAt: in(-time.Hour)}
	r.Put(r.Links, rawtables.Link(twin))
	r.Put(r.Owners, rawtables.Owner(twin))
	// Ends that another setting had when they were written, or an import.
	deleted := link.Link{Name: "deleted", Owner: "a", LongURL: url2, CreatedAt: in(-time.Hour),
		DeletedAt: in(-time.Minute)}
	r.PutLink(deleted)
	r.Put(r.Expiry, rawtables.Due(deleted.Name, in(time.Hour)))
	tomb := link.Link{Name: "tomb", GoneReason: link.StateDeleted, GoneAt: in(-time.Hour)}
	r.Put(r.Links, rawtables.Link(tomb))
	r.Put(r.Expiry, rawtables.Due(tomb.Name, in(100*24*time.Hour)))
	over := link.Link{Name: "over", LongURL: url3, CreatedAt: in(-time.Hour),
		ExpiresAt: in(-time.Hour)}
	r.Put(r.Links, rawtables.Link(over))
	r.Put(r.Expiry, rawtables.Due(over.Name, in(time.Minute)))
	// These are used up, one of them just now, by a clock that is ahead. The expiry row of
	// another's last opening is that of its kept end, too.
	for name, end := range map[link.Name][2]time.Duration{"used1": {0, time.Hour},
		"used2": {30 * time.Second, time.Hour}, "used3": {0, 2*time.Minute + time.Second},
		"used4": {0, 0}} {
		used := link.Link{Name: name, LongURL: url3, CreatedAt: in(-time.Hour),
			ExpiresAt: in(end[0]), Guard: link.Guard{MaxOpens: 2}}
		if end[1] > 0 {
			used.EndKept = in(end[1])
			r.Put(r.Expiry, rawtables.Due(name, used.EndKept))
		}
		r.Put(r.Links, rawtables.Link(used))
		r.Put(r.Expiry, rawtables.Due(name, in(end[0]+2*time.Minute+time.Second)))
	}
	// A reaper has begun with this one, and crashed.
	begun := link.Link{Name: "begun", Owner: "b", LongURL: url3, CreatedAt: in(-2 * time.Hour),
		ExpiresAt: in(-time.Minute)}
	r.Put(r.Links, rawtables.Link(begun))
	r.Put(r.Expiry, rawtables.Expiry(begun))
	// It came earlier to this one's row than to that of its longer life.
	r.Put(r.Expiry, rawtables.Due(live.Name, in(-time.Minute)))
	// An edit of this one's URL broke off.
	moved := live
	moved.LongURL = url2
	r.Put(r.Index, rawtables.Index(moved))
	move := rawtables.Due(live.Name, in(2*time.Minute))
	move["OldIndexKey"], move["NewIndexKey"] = rawtables.IndexKey("", url2),
		rawtables.IndexKey("", url1)
	r.Put(r.Expiry, move)
	// What processes have counted of a link that is gone stays until it is rolled up.
	owner := clicks.OwnerName("a")
	for _, name := range []string{"live", "deleted", "gone", owner, "*"} {
		r.PutClicks(r.day(-3), rawtables.Clicks(name, "p-1", r.day(-3), 5, 1))
		if name != "gone" {
			r.Put(r.ClickTotals, rawtables.Totals(name, r.day(-4), 5, 1, time.Time{}))
			r.PutMonth(r.day(-4), rawtables.Rolled(name, r.day(-4), 5, 1))
		}
	}
	r.Put(r.State, rawtables.VisitorKey(r.day(0)))
	r.Put(r.State, rawtables.Entity{"PartitionKey": "rollup", "RowKey": "progress",
		"Day": r.day(-3).Format("20060102"), "Next": "0123456789abcdeg"})
	r.Put(r.State, rawtables.Entity{"PartitionKey": "change|" +
		in(-time.Minute).Format("200601021504"), "RowKey": "live"})
	r.Put(r.State, rawtables.Entity{"PartitionKey": "another's", "RowKey": "row"})
	key := strings.Repeat("f", 64)
	r.Put(r.Keys, rawtables.Entity{"PartitionKey": "key", "RowKey": key, "Owner": "d", "Name": "x"})
	r.Put(r.Keys, rawtables.Entity{"PartitionKey": "key", "RowKey": strings.Repeat("e", 64),
		"RevokedAtUtc":            in(-time.Hour).Format(time.RFC3339),
		"RevokedAtUtc@odata.type": "Edm.DateTime"})
}

// hash is that of a key which nobody has.
var hash = strings.Repeat("0123456789abcdef", 4)

// damages are damaged rows, and what is to be found. What a repair mends has a "+".
func damages(r *rig) map[string]struct {
	plant func()
	want  []string
} {
	now := r.clock.Now().Truncate(time.Second)
	later, tomorrow, inAYear := now.Add(time.Hour), now.Add(24*time.Hour), now.AddDate(1, 0, 0)
	l := link.Link{Name: "x1", LongURL: "https://example.com/x", CreatedAt: now,
		ExpiresAt: tomorrow}
	with := func(change func(*link.Link)) link.Link {
		changed := l
		change(&changed)
		return changed
	}
	used := func(end, kept time.Time) link.Link {
		return with(func(l *link.Link) {
			l.MaxOpens, l.ExpiresAt, l.EndKept = 2, end, kept
		})
	}
	own := with(func(l *link.Link) { l.Owner, l.ExpiresAt = "a", time.Time{} })
	put := func(rows ...any) func() {
		return func() {
			for i := 0; i < len(rows); i += 2 {
				r.Put(rows[i].(string), rows[i+1].(rawtables.Entity))
			}
		}
	}
	changed := func(e rawtables.Entity, name string, value any) rawtables.Entity {
		e = maps.Clone(e)
		if e[name] = value; value == nil {
			delete(e, name)
		}
		delete(e, name+"@odata.type") // by which the service would refuse the value
		return e
	}
	key := rawtables.Entity{"PartitionKey": "key", "RowKey": hash, "Owner": "c", "Name": "x"}
	livesKey := fmt.Sprint(rawtables.Clicks("live", "p-2", now, 1, 0)["RowKey"])
	move := rawtables.Due(l.Name, later)
	move["OldIndexKey"], move["NewIndexKey"] = rawtables.IndexKey("", l.LongURL),
		rawtables.IndexKey("", url3)
	ownerKey := rawtables.Owner(own)["RowKey"].(string)
	indexKey, ownKey := rawtables.Index(l)["RowKey"].(string),
		rawtables.Index(own)["RowKey"].(string)
	expiryKey := rawtables.Expiry(l)["RowKey"].(string)
	old := now.Add(-3 * time.Hour).Format("200601021504")
	type damage = struct {
		plant func()
		want  []string
	}
	return map[string]damage{
		"a link without its expiry row": {put(r.Links, rawtables.Link(l)),
			[]string{"+link-without-expiry x1"}},
		"a link with a later expiry row": {put(r.Links, rawtables.Link(l), r.Expiry,
			rawtables.Due(l.Name, tomorrow.Add(time.Second))),
			[]string{"+link-without-expiry x1"}},
		"an expired link without its expiry row": {put(r.Links,
			rawtables.Link(with(func(l *link.Link) { l.ExpiresAt = now }))),
			[]string{"+link-without-expiry x1"}},
		"a deleted link without its expiry row": {put(r.Links,
			rawtables.Link(with(func(l *link.Link) {
				l.DeletedAt, l.ExpiresAt = now,
					time.Time{}
			}))), []string{"+link-without-expiry x1"}},
		"a deleted link with its first expiry row": {put(r.Links,
			rawtables.Link(with(func(l *link.Link) { l.DeletedAt, l.ExpiresAt = now, inAYear })),
			r.Expiry, rawtables.Due(l.Name, inAYear)), []string{"+link-without-expiry x1"}},
		"a tombstone without its expiry row": {put(r.Links,
			rawtables.Link(link.Link{Name: "x1", GoneReason: link.StateExpired, GoneAt: now})),
			[]string{"+link-without-expiry x1"}},
		"a used up link without its expiry row": {put(r.Links, rawtables.Link(used(now, tomorrow)),
			r.Expiry, rawtables.Due(l.Name, tomorrow)), []string{"+link-without-expiry x1"}},
		"a used up link that never ended, without any": {put(r.Links,
			rawtables.Link(used(now, time.Time{}))), []string{"+link-without-expiry x1"}},
		"a used up link that was deleted, without its expiry row": {put(r.Links,
			rawtables.Link(with(func(l *link.Link) {
				*l = used(now, inAYear)
				l.DeletedAt = now
			})), r.Expiry, rawtables.Due(l.Name, inAYear)), []string{"+link-without-expiry x1"}},
		"a used up link that has not ended": {put(r.Links,
			rawtables.Link(used(tomorrow, time.Time{})), r.Expiry, rawtables.Expiry(l)),
			[]string{"+link-not-ended x1"}},
		"a used up link that never ends": {put(r.Links,
			rawtables.Link(used(time.Time{}, tomorrow))), []string{"+link-not-ended x1"}},
		"a used up link without all three": {put(r.Links,
			rawtables.Link(with(func(l *link.Link) {
				*l = used(tomorrow, time.Time{})
				l.Owner = "a"
			}))), []string{"+link-not-listed x1", "+link-not-ended x1", "+link-without-expiry x1"}},
		"an owner's link that no list has": {put(r.Links, rawtables.Link(own)),
			[]string{"+link-not-listed x1"}},
		"a link without both": {put(r.Links,
			rawtables.Link(with(func(l *link.Link) { l.Owner = "a" }))),
			[]string{"+link-not-listed x1", "+link-without-expiry x1"}},
		"a link without a URL": {put(r.Links,
			changed(rawtables.Link(own), "LongUrl", nil), r.Owners, rawtables.Owner(own), r.Index,
			rawtables.Index(own)), []string{"link-damaged x1"}},
		"a link whose end is no time": {put(r.Links,
			changed(rawtables.Link(own), "ExpiresAtUtc", "soon")), []string{"link-damaged x1"}},
		"a link in another partition": {put(r.Links,
			changed(rawtables.Link(l), "PartitionKey", "x2")), []string{"link-damaged x1"}},
		"a link of no alias": {put(r.Links,
			changed(rawtables.Link(l), "RowKey", "x 1")), []string{"link-damaged x 1"}},
		"an index row without its link": {put(r.Index, rawtables.Index(l)),
			[]string{"+index-without-link " + indexKey}},
		"an index row of a tombstone": {put(r.Index,
			changed(rawtables.Index(l), "Alias", "tomb")), []string{"+index-without-link " +
			indexKey}},
		"an index row of no alias": {put(r.Index,
			changed(rawtables.Index(l), "Alias", 7)), []string{"+index-without-link " + indexKey}},
		"an index row of a link of another URL": {put(r.Index,
			changed(rawtables.Index(l), "Alias", "live")), []string{"+index-of-another-link " +
			indexKey}},
		"an index row of another owner's link": {put(r.Index, changed(rawtables.Index(own),
			"Alias", "live")), []string{"+index-of-another-link " + ownKey}},
		"an index row in another partition": {put(r.Index,
			changed(rawtables.Index(l), "PartitionKey", "x")),
			[]string{"index-damaged " + indexKey}},
		"an expiry row without its link": {put(r.Expiry, rawtables.Expiry(l)),
			[]string{"+expiry-without-link " + expiryKey}},
		"a link that went in the middle of an edit": {put(r.Expiry, move, r.Index,
			rawtables.Index(l)), []string{"+expiry-without-link " + move["RowKey"].(string)}},
		"an expiry row of no alias": {put(r.Expiry, changed(rawtables.Expiry(l),
			"AliasRowKey", "x 1")), []string{"expiry-damaged " + expiryKey}},
		"an expiry row without a time": {put(r.Expiry, changed(rawtables.Expiry(l),
			"ExpiresAtUtc", nil)), []string{"expiry-damaged " + expiryKey}},
		"an expiry row on another day": {put(r.Expiry, changed(rawtables.Expiry(l),
			"PartitionKey", "20990101")), []string{"expiry-damaged " + expiryKey}},
		"a listed link that is not there": {put(r.Owners, rawtables.Owner(own)),
			[]string{"+listed-without-link " + ownerKey}},
		"a listed link of nobody": {put(r.Owners, changed(rawtables.Owner(own),
			"RowKey", "0000000001|live")), []string{"+listed-without-link 0000000001|live"}},
		"a listed link of another time": {put(r.Owners, changed(rawtables.Owner(own),
			"RowKey", "0000000001|own")), []string{"+listed-without-link 0000000001|own"}},
		"a listed link of no alias": {put(r.Owners, changed(rawtables.Owner(own),
			"RowKey", "x")), []string{"+listed-without-link x"}},
		"a key without an owner": {put(r.Keys, changed(key, "Owner", nil)),
			[]string{"key-damaged " + hash}},
		"a key in another partition": {put(r.Keys, changed(key, "PartitionKey",
			"key|01")), []string{"key-damaged " + hash}},
		"another program's row among keys": {put(r.Keys,
			rawtables.Entity{"PartitionKey": "x", "RowKey": "y"}), []string{"key-damaged y"}},
		"another program's row of lists": {put(r.Owners,
			rawtables.Entity{"PartitionKey": "x", "RowKey": "y"}),
			[]string{"listed-without-link y"}},
		"totals of no alias": {put(r.ClickTotals,
			rawtables.Totals("x 1", r.day(-3), 1, 0, time.Time{})), []string{"totals-damaged x 1"}},
		"totals of no owner": {put(r.ClickTotals,
			rawtables.Totals("@1", r.day(-3), 1, 0, time.Time{})), []string{"totals-damaged @1"}},
		"totals in another partition": {put(r.ClickTotals,
			changed(rawtables.Totals("live", r.day(-3), 1, 0, time.Time{}), "PartitionKey", "li")),
			[]string{"totals-damaged live"}},
		"a revoked key keeps its place for too long": {put(r.Keys, rawtables.Entity{
			"PartitionKey": "key", "RowKey": hash, "RevokedAtUtc": now.Add(-3 * time.Hour).
					Format(time.RFC3339), "RevokedAtUtc@odata.type": "Edm.DateTime"}),
			[]string{"+key-revoked " + hash}},
		"an old announcement": {put(r.State,
			rawtables.Entity{"PartitionKey": "change|" + old, "RowKey": "x1"}),
			[]string{"+change-old x1"}},
		"the key of a day long ago": {put(r.State, rawtables.VisitorKey(r.day(-4))),
			[]string{"+visitor-key-old key"}},
		"progress of no day": {put(r.State,
			rawtables.Entity{"PartitionKey": "rollup", "RowKey": "progress", "Day": "x",
				"Next": strings.Repeat("0", 16)}), []string{"state-damaged progress"}},
		"progress of no partitions": {put(r.State,
			rawtables.Entity{"PartitionKey": "rollup", "RowKey": "progress",
				"Day": r.day(-3).Format("20060102"), "Next": strings.Repeat("h", 16)}),
			[]string{"state-damaged progress"}},
		"unreadable statistics": {put(r.State,
			rawtables.Entity{"PartitionKey": "reaper", "RowKey": "statistics", "FailedRuns": "x"}),
			[]string{"state-damaged statistics"}},
		"an unreadable blocked host": {put(r.State,
			rawtables.Entity{"PartitionKey": "blocked", "RowKey": "example.com",
				"CreatedAtUtc": "x"}), []string{"state-damaged example.com"}},
		"a day that is not rolled up": {func() {
			r.PutClicks(r.day(-5), rawtables.Clicks("live", "p-1", r.day(-5), 1, 0))
		}, []string{"clicks-old "}},
		"a month that is not kept any more": {func() {
			at := r.day(-keepDays - 4 - 31)
			r.PutMonth(at, rawtables.Rolled("live", at, 1, 0))
		}, []string{"clicks-old "}},
		"clicks of another program": {func() {
			r.PutClicks(r.day(-1), rawtables.Entity{"PartitionKey": "x", "RowKey": "x1|p"})
		}, []string{"clicks-damaged x1|p"}},
		"clicks in another partition": {func() {
			r.PutClicks(r.day(-1), changed(rawtables.Clicks("live", "p-2", r.day(-1), 1, 0),
				"PartitionKey", "x"))
		}, []string{"clicks-damaged " + livesKey}},
		"clicks that are no number": {func() {
			r.PutClicks(r.day(0), changed(rawtables.Clicks("live", "p-2", r.day(0), 1, 0),
				"Clicks", "x"))
		}, []string{"clicks-damaged " + livesKey}},
		"a month of a link that is not there": {func() {
			r.PutMonth(r.day(-4), rawtables.Rolled("gone", r.day(-4), 1, 0))
		}, []string{"+month-without-link gone"}},
		"a month of no alias": {func() {
			r.PutMonth(r.day(-4), rawtables.Rolled("x 1", r.day(-4), 1, 0))
		}, []string{"month-damaged x 1"}},
		"a month in another partition": {func() {
			r.PutMonth(r.day(-4), changed(rawtables.Rolled("live", r.day(-4), 1, 0),
				"PartitionKey", "li"))
		}, []string{"month-damaged live"}},
		"a month that cannot be unpacked": {func() {
			r.PutMonth(r.day(-40), changed(rawtables.Rolled("live", r.day(-40), 1, 0),
				"Counts", "x"))
		}, []string{"month-damaged live"}},
		"totals of a link that is not there": {put(r.ClickTotals,
			rawtables.Totals("gone", r.day(-3), 1, 0, time.Time{})),
			[]string{"+totals-without-link gone"}},
		"totals that are no number": {put(r.ClickTotals,
			changed(rawtables.Totals("live", r.day(-3), 1, 0, time.Time{}), "Bots", "x")),
			[]string{"totals-damaged live"}},
	}
}

// unsigned returns what a check finds that repairs nothing.
func unsigned(want []string) []string {
	all := slices.Clone(want)
	for i := range all {
		all[i] = strings.TrimPrefix(all[i], "+")
	}
	slices.Sort(all)
	return all
}

func TestCheckFinds(t *testing.T) {
	t.Parallel()
	covered := map[storage.Damage]bool{}
	for name := range damages(newRig(t)) {
		r, s := newCrashRig(t)
		d := damages(r)[name]
		for _, want := range d.want {
			kind, _, _ := strings.Cut(strings.TrimPrefix(want, "+"), " ")
			covered[storage.Damage(kind)] = true
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.wellDone()
			found, done, err := check(ctx, s, true)
			if err != nil || found != nil || done.Overdue != 2 ||
				!done.OldestDue.Equal(r.clock.Now().Truncate(time.Second).Add(-time.Minute)) ||
				done.Twins != 1 {
				t.Fatalf("all is well: found %q, %+v, %v", found, done, err)
			}
			d.plant()
			before := r.everything()
			want := unsigned(d.want)
			if found, done, err := check(ctx, s, false); err != nil || !slices.Equal(found, want) ||
				done.Mended != 0 || int(done.Found) != len(want) ||
				int(done.Strays) != strings.Count(strings.Join(d.want, ""), "+listed-without-link") {
				t.Errorf("found %q, %+v, %v, want %q", found, done, err, want)
			}
			if after := r.everything(); !reflect.DeepEqual(after, before) {
				t.Errorf("a check without repair has changed the tables:\n%v\n%v", before, after)
			}
			slices.Sort(d.want)
			if found, done, err := check(ctx, s, true); err != nil ||
				!slices.Equal(found, d.want) || done.Failed != 0 {
				t.Errorf("repaired %q, %+v, %v, want %q", found, done, err, d.want)
			}
			want = unsigned(slices.DeleteFunc(d.want, func(f string) bool { return f[0] == '+' }))
			if found, _, err := check(ctx, s, true); err != nil || !slices.Equal(found, want) {
				t.Errorf("after that, found %q, %v, want %q", found, err, want)
			}
			// What was there before is there still, and works.
			for alias, want := range map[link.Name]string{"live": url1, "own": url1,
				"deleted": url2} {
				if l, err := s.Read(ctx, alias); err != nil || l.LongURL != want {
					t.Errorf("%s: %+v, %v", alias, l, err)
				}
			}
		})
	}
	operations, err := os.ReadFile("../docs/operations.md")
	must(t, err)
	source, err := os.ReadFile("check.go")
	must(t, err)
	kinds := regexp.MustCompile(` Damage = "(.*)"`).FindAllStringSubmatch(string(source), -1)
	for _, kind := range kinds {
		if !covered[storage.Damage(kind[1])] ||
			strings.Count(string(operations), "| `"+kind[1]+"` |") != 1 {
			t.Errorf("no row of this kind is planted, or docs/operations.md does not explain it: %s",
				kind[1])
		}
	}
	if len(covered) != len(kinds) || len(kinds) < 10 {
		t.Errorf("%v are not the kinds of damage, %v", covered, kinds)
	}
}

// everything returns all rows of all tables.
func (r *rig) everything() (all []rawtables.Entity) {
	r.t.Helper()
	days, months := r.ClickTables()
	for _, table := range slices.Concat([]string{r.Links, r.Index, r.Expiry, r.Owners, r.Keys,
		r.State, r.ClickTotals}, days, months) {
		all = append(all, r.Rows(table)...)
	}
	return all
}

// What was written within the last minute may be a part of what is not complete yet.
func TestCheckLeavesWhatIsYoung(t *testing.T) {
	t.Parallel()
	for name := range damages(newRig(t)) {
		r, s := newCrashRig(t)
		d := damages(r)[name]
		if kinds := strings.Join(d.want, ""); strings.Contains(kinds, "-damaged") ||
			strings.Contains(kinds, "clicks-old") { // a table, by the day in its name
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.wellDone()
			d.plant()
			before := r.everything()
			young := func(age time.Duration) storage.CheckResult {
				done, err := s.Check(ctx, storage.CheckConfig{Repair: true, MinAge: age,
					Found: func(f storage.Finding) { t.Logf("%+v", f) }})
				must(t, err)
				return done
			}
			// Rows of lists are young for an hour in any case, and are not counted as such.
			counted := !strings.Contains(strings.Join(d.want, ""), "listed-without-link")
			if done := young(time.Hour); done.Found != 0 || done.Young == 0 && counted {
				t.Errorf("got %+v", done)
			}
			if after := r.everything(); !reflect.DeepEqual(after, before) {
				t.Errorf("young rows were changed:\n%v\n%v", before, after)
			}
			if done := young(-time.Hour); int(done.Found) != len(d.want) || done.Young != 0 {
				t.Errorf("an hour later: got %+v", done)
			}
		})
	}
}

// A link that was just edited says nothing of what is older.
func TestCheckLeavesWhatBelongsToAYoungLink(t *testing.T) {
	t.Parallel()
	r, s := newCrashRig(t)
	l := r.wish("a", "one", url1, time.Hour)
	r.Put(r.Owners, rawtables.Owner(r.wish("b", "one", url1, 0)))
	r.Put(r.Index, rawtables.Index(r.wish("a", "one", url2, 0)))
	r.Put(r.Index, rawtables.Index(r.wish("a", "nobody", url3, 0)))
	time.Sleep(1200 * time.Millisecond) // Azurite's times are too coarse for less
	begin := time.Now()
	r.Put(r.Links, rawtables.Link(l))
	done, err := s.Check(ctx, storage.CheckConfig{Repair: true, MinAge: r.clock.Now().Sub(begin),
		Found: func(f storage.Finding) {
			if f.Damage != storage.IndexWithoutLink {
				t.Errorf("found %+v", f)
			}
		}})
	if err != nil || done.Mended != 1 || done.Young != 3 {
		t.Errorf("got %+v, %v", done, err)
	}
}

// A check that is killed at any point has done no harm, and the next one finds the rest.
func TestCheckKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	r, other := newCrashRig(t)
	repair := func() (storage.CheckResult, error) {
		r.Remove()
		r.Make()
		r.wellDone()
		for name, d := range damages(r) {
			switch name {
			case "a link without its expiry row", "an index row without its link",
				"a listed link that is not there", "the key of a day long ago",
				"a revoked key keeps its place for too long", "totals of a link that is not there",
				"a month of a link that is not there":
				d.plant()
			}
		}
		_, done, err := check(dying, r.instance(), true)
		return done, err
	}
	if done, err := repair(); err != nil || done.Found != done.Mended || done.Found < 4 {
		t.Errorf("unharmed: %+v, %v", done, err)
	}
	writes := 0
	for _, call := range r.proxy.Calls() {
		// a kill before it leaves what one before the last write leaves
		if call.Operation == "GetEntity" || call.Operation == "QueryEntities" {
			continue
		}
		writes++
		r.proxy.Reset()
		r.proxy.Before(kill(call.N))
		done, err := repair()
		r.proxy.Reset()
		if !errors.Is(err, link.ErrUnavailable) && (err != nil || done.Failed == 0) {
			t.Fatalf("killed before call %d: %v", call.N, err)
		}
		for _, again := range []bool{false, true} {
			if found, _, err := check(ctx, other, true); err != nil || again && found != nil {
				t.Fatalf("killed before call %d: found %q, %v", call.N, found, err)
			}
		}
	}
	if writes < 4 {
		t.Errorf("killed before %d writes", writes)
	}
}

func TestCheckMeetsOperations(t *testing.T) {
	t.Parallel()
	// What is wrong with the link "one" before, or with the rows that it would have.
	for damage, plant := range map[string]func(r *rig, l link.Link){
		"its expiry row is gone": func(r *rig, l link.Link) {
			r.Drop(r.Expiry, rawtables.Expiry(l))
		},
		"its list lacks it": func(r *rig, l link.Link) {
			r.Drop(r.Owners, rawtables.Owner(l))
		},
		"an index row of another URL names it": func(r *rig, l link.Link) {
			l.LongURL = url2
			r.Put(r.Index, rawtables.Index(l))
		},
		"it is gone, and its rows are there": func(r *rig, l link.Link) {
			r.Drop(r.Links, rawtables.Link(l))
		},
	} {
		for _, name := range []string{"create, chosen by an owner", "edit, target",
			"edit, target and end", "edit, end", "delete, with an end", "restore, with an end",
			"claim, end kept", "reap, owner's"} {
			op := operations[name]
			t.Run(damage+"/"+name, func(t *testing.T) {
				t.Parallel()
				r, other := newCrashRig(t)
				for n, met := 1, true; met; n++ {
					r.begin(op, other)
					l := r.wish("a", "one", url1, time.Hour)
					if op.before == nil {
						r.PutLink(l)
						r.Drop(r.Links, rawtables.Link(l)) // what a create has left that broke off
						r.Drop(r.Index, rawtables.Index(l))
					} else if l, _ = other.Read(ctx, "one"); strings.Contains(damage, "expiry") &&
						l.ExpiresAt.IsZero() || strings.Contains(damage, "list") && l.Owner == "" {
						return
					}
					if op.before != nil {
						plant(r, l)
					}
					met = false
					var calls atomic.Int64
					r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
						if c.Operation != "QueryEntities" && calls.Add(1) == int64(n) {
							met = true
							// What it says does not matter: its link may be gone.
							_ = patiently(func() error { return op.do(ctx, r, other) })
						}
						return faultproxy.None
					})
					_, _, err := check(ctx, r.instance(), true)
					r.proxy.Reset()
					if err != nil && !strings.Contains(err.Error(), "meanwhile") {
						t.Error(err)
					}
					if _, _, err := check(ctx, other, true); err != nil {
						t.Error(err)
					}
					if found, _, err := check(ctx, other, false); err != nil || found != nil {
						t.Errorf("left %q, %v", found, err)
					}
					r.endAll(other)
					if t.Failed() {
						t.Fatalf("before call %d", n)
					}
				}
			})
		}
	}
}

// A repair of an owner's list meets the end of the link, and an import that makes the very same one
// again: they come before each call of the repair, and the import rests before each call of its own
// until the repair is done. Its link is listed in the end.
func TestCheckMeetsImports(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.Make()
	other, i := r.other(), newRestingImport(r)
	i.atEachTwoCalls(func(n, m int) (met bool) {
		l := r.wish("a", "one", url1, 0)
		r.PutLink(l)
		r.Drop(r.Owners, rawtables.Owner(l))
		var calls atomic.Int64
		r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
			if c.Operation != "QueryEntities" && calls.Add(1) == int64(n) {
				met = true
				r.Drop(r.Links, rawtables.Link(l))
				i.begin(l, m)
			}
			return faultproxy.None
		})
		if _, _, err := check(ctx, r.instance(), true); err != nil &&
			!strings.Contains(err.Error(), "meanwhile") {
			t.Error(err)
		}
		i.end()
		links, _, err := other.List(ctx, "a", "", 10, all)
		if found, _, err := check(ctx, other, false); err != nil || found != nil {
			t.Errorf("left %q, %v", found, err)
		}
		if err != nil || len(links) != 1 {
			t.Errorf("listed %v, %v", links, err)
		}
		return met
	})
}

// A link that a repair has ended is as if it had been opened for the last time: it is reaped soon,
// unless it gets back its end.
func TestCheckEndsWhatIsUsedUp(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprintf("opened again: %t", again), func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			there("a", url1, 5*time.Hour, setMaxOpens(2))(r, other)
			row := r.Rows(r.Links)[0]
			row["OpensLeft"] = 0
			r.Put(r.Links, row)
			before := r.opens()
			// A repair is killed before it writes the link.
			r.proxy.Before(faultproxy.On(updateEntity, r.Links, faultproxy.Refuse))
			if found, done, _ := check(dying, r.instance(), true); done.Failed != 1 ||
				r.opens() != before {
				t.Errorf("killed, it found %q, %+v", found, done)
			}
			r.proxy.Reset()
			// The first try of the repair is applied, and its response lost.
			r.proxy.Before(onNth(1, updateEntity, r.Links, faultproxy.DropResponse, nil))
			found, _, err := check(ctx, r.instance(), true)
			r.proxy.Reset()
			if err != nil || !slices.Equal(found, []string{"+link-not-ended one"}) {
				t.Errorf("found %q, %v", found, err)
			}
			if got := r.opens(); got.kept != before.end || !r.leads(r.soon()) {
				t.Errorf("%+v, and then %+v", before, got)
			}
			if again {
				must(t, setMaxOpens(1)(ctx, r, other))
				if got := r.opens(); got.end != before.end || got.left != 1.0 {
					t.Errorf("opened again, it is %+v", got)
				}
			}
			must(t, both(later(3*time.Minute), reap)(ctx, r, other))
			if gone := r.Rows(r.Links)[0]["GoneReason"] != nil; gone == again {
				t.Errorf("it is %v", r.Rows(r.Links))
			}
			r.endAll(other)
		})
	}
}

// The clock of who has opened a link for the last time was ahead. The repair moves the end of the
// link, and leaves the end that it kept.
func TestCheckKeepsAnEndThatWasKept(t *testing.T) {
	t.Parallel()
	r, other := newCrashRig(t)
	there("a", url1, 5*time.Hour, setMaxOpens(1), later(time.Hour), openOne, later(-time.Hour))(r, other)
	before := r.opens()
	found, _, err := check(ctx, r.instance(), true)
	if err != nil || !slices.Equal(found, []string{"+link-not-ended one"}) {
		t.Errorf("found %q, %v", found, err)
	}
	if got := r.opens(); got.kept != before.kept || got.end == before.end {
		t.Errorf("%+v, and then %+v", before, got)
	}
}

func TestCheckOfMissingTables(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.instance()
	r.Make()
	r.DropTable(r.Keys)
	r.DropTable(r.Index)
	_, _, err := check(ctx, s, true)
	if err == nil || !strings.Contains(err.Error(), "do not exist: "+r.Keys+", "+r.Index) {
		t.Errorf("got %v", err)
	}
	if _, _, again := check(ctx, s, true); again == nil || again.Error() != err.Error() {
		t.Errorf("the check has made them: %v", again)
	}
}

func TestCheckStops(t *testing.T) {
	t.Parallel()
	r, s := newCrashRig(t)
	r.wellDone()
	r.Put(r.Links, rawtables.Link(r.wish("", "x1", url1, time.Hour)))
	ctx, cancel := context.WithCancelCause(ctx)
	cause := errors.New("somebody has pressed Ctrl-C")
	done, err := s.Check(ctx, storage.CheckConfig{Found: func(storage.Finding) { cancel(cause) }})
	if !errors.Is(err, cause) || done.Found != 1 {
		t.Errorf("got %+v, %v", done, err)
	}
}
