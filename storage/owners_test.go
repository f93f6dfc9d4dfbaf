package storage_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/teststore"
	"tiney/storage"
)

// What each operation costs, at most. The calls are sorted: some are made at the same time.
func TestStorageCallsOfOwnersOperations(t *testing.T) {
	t.Parallel()
	const (
		getIndex, insertIndex, deleteIndex = "GetEntity UrlIndex", "InsertEntity UrlIndex",
			"DeleteEntity UrlIndex"
		insertLink, update                    = "InsertEntity ShortUrls", "UpdateEntity ShortUrls"
		insertExpiry, putExpiry, deleteExpiry = "InsertEntity ShortUrlsExpiryIndex",
			"UpdateEntity ShortUrlsExpiryIndex", "DeleteEntity ShortUrlsExpiryIndex"
		getOwner, insertOwner, putOwner, deleteOwner = "GetEntity ShortUrlsByOwner",
			"InsertEntity ShortUrlsByOwner", "UpdateEntity ShortUrlsByOwner",
			"DeleteEntity ShortUrlsByOwner"
		tell = "UpdateEntity ShortUrlsState"
	)
	for name, test := range map[string]struct {
		operation
		want []string
	}{
		"owner's new link": {operation{nil, create("a", "", url1, time.Hour)},
			[]string{getIndex, insertExpiry, insertOwner, insertLink, insertIndex}},
		"owner's, never to end": {operation{nil, create("a", "", url1, 0)},
			[]string{getIndex, insertOwner, insertLink, insertIndex}},
		"owner's known URL": {operation{there("a", url1, 0), create("a", "", url1, 0)},
			[]string{getIndex, read}},
		"chosen": {operation{nil, create("", "one", url1, time.Hour)},
			[]string{tell, insertExpiry, insertLink}},
		"chosen by an owner": {operation{nil, create("a", "one", url1, time.Hour)},
			[]string{tell, insertExpiry, insertOwner, insertLink}},
		"known URL, first time": {operation{there("", url1, time.Hour),
			create("", "", url1, time.Hour)}, []string{getIndex, read, update}},
		"known URL, later": {operation{there("", url1, time.Hour,
			create("", "", url1, time.Hour)), create("", "", url1, time.Hour)},
			[]string{getIndex, read}},
		"known URL, just restored": {operation{there("a", url1, 0, deleteOne, restoreOne),
			create("a", "", url1, 0)}, []string{getIndex, read, getIndex}},
		"edit": {operations["edit, title"], []string{read, tell, update}},
		"edit of the end": {operations["edit, end"], []string{read, tell, putExpiry,
			update, deleteExpiry}},
		"edit of the target": {operations["edit, target"], []string{read, tell,
			insertExpiry, getIndex, update, getIndex, insertIndex, read, read, deleteIndex, deleteExpiry}},
		"edit that changes nothing": {operation{there("a", url1, 0), setURL(url1)}, []string{read}},
		"delete": {operations["delete"], []string{read, tell, putExpiry,
			update}},
		"delete again": {operation{there("a", url1, 0, deleteOne), deleteOne},
			[]string{read}},
		"restore": {operations["restore, with an end"],
			[]string{read, tell, putExpiry, insertExpiry, getIndex, read, deleteIndex, update,
				insertIndex, read, deleteExpiry}},
		"claim": {operations["claim"], []string{tell, read, insertExpiry,
			putOwner, getIndex, update, deleteExpiry, getIndex, insertIndex, read, read,
			deleteIndex, deleteExpiry}},
		"reap an owner's link": {operation{there("a", url1, time.Hour, later(time.Hour)), reap},
			[]string{read, getOwner, getIndex, read, deleteIndex, deleteOwner,
				"SubmitTransaction ShortUrlsExpiryIndex", update, deleteExpiry}},
		"reap a tombstone": {operation{tombstone, reap},
			[]string{read, "DeleteEntity ShortUrls", "GetEntity ShortUrlsClickTotals",
				deleteExpiry}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.leaveTombstones(teststore.TombstoneKeep)
			s := r.open(nil)
			r.begin(test.operation, r.other())
			got := r.calls(func() {
				should(t, test.do(ctx, r, s))
			})
			// what a run of the reaper costs whatever is due
			got = slices.DeleteFunc(got, func(c string) bool {
				return strings.HasPrefix(c, "QueryEntities") ||
					c == "SubmitTransaction ShortUrlsState"
			})
			slices.Sort(got)
			slices.Sort(test.want)
			if !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// tombstone leaves one that is due.
func tombstone(r *rig, s *storage.Links) {
	r.t.Helper()
	if err := both(create("a", "one", url1, time.Hour), later(time.Hour), reap,
		later(teststore.TombstoneKeep))(ctx, r, s); err != nil {
		r.t.Fatal(err)
	}
}

func TestManyWantOneAlias(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string]func(i int) string{
		"nobody": func(int) string { return "" },
		"owners": func(i int) string { return fmt.Sprint("owner ", i) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			instances := []*storage.Links{r.open(withCache), r.open(withCache), r.open(withCache)}
			var created, taken, late atomic.Int64
			var all sync.WaitGroup
			for i := range 64 {
				all.Go(func() {
					for {
						l, made, err := instances[i%3].Create(ctx,
							r.wish(owner(i), "one", fmt.Sprint(url1, i), time.Hour), "")
						switch {
						// on a busy machine; its caller tries again
						case errors.Is(err, link.ErrUnavailable):
							late.Add(1)
							continue
						case errors.Is(err, link.ErrAliasTaken):
							taken.Add(1)
						case err != nil || l.LongURL != fmt.Sprint(url1, i):
							t.Errorf("got %+v, created %t, %v", l, made, err)
						default:
							created.Add(1)
						}
						return
					}
				})
			}
			all.Wait()
			r.WantNoLeak()
			if late.Load() > 0 {
				return // one of these may have made the link, and been told that it is taken
			}
			if created.Load() != 1 || taken.Load() != 63 {
				t.Errorf("%d created, %d taken", created.Load(), taken.Load())
			}
			links, index, expiry, owners := len(r.Rows(r.Links)), len(r.Rows(r.Index)),
				len(r.Rows(r.Expiry)), len(r.Rows(r.Owners))
			if want := min(len(owner(0)), 1); links != 1 || index != 0 || expiry != 1 ||
				owners != want {
				t.Errorf("%d links, %d index rows, %d expiry rows, %d owners' rows", links, index,
					expiry, owners)
			}
		})
	}
}

func TestEditorsAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	instances := []*storage.Links{r.open(withCache), r.open(withCache)}
	there("a", url1, 0)(r, instances[0])
	// add adds a tag, on whichever instance.
	add := func(i int, once bool) error {
		_, err := instances[i%2].Edit(ctx, "one", once, func(l link.Link) (link.Link, error) {
			l.Tags = append(slices.Clone(l.Tags), fmt.Sprint(i))
			return l, nil
		})
		return err
	}
	const editors = 8
	var all sync.WaitGroup
	for i := range editors {
		all.Go(func() {
			for { // whoever loses too often is told, and tries again
				switch err := add(i, false); {
				case err == nil:
					return
				case !errors.Is(err, link.ErrConflict) && !errors.Is(err, link.ErrUnavailable):
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	l, err := instances[0].Read(ctx, "one")
	tags := slices.Sorted(slices.Values(l.Tags))
	if err != nil || !slices.Equal(slices.Compact(tags), []string{"0", "1", "2", "3", "4", "5", "6",
		"7"}) {
		t.Errorf("got %+v, %v", l, err)
	}

	// Both have read the link before one of them writes it.
	var met sync.WaitGroup
	met.Add(2)
	var conflicts atomic.Int64
	for i := range 2 {
		all.Go(func() {
			_, err := instances[i].Edit(ctx, "one", true, func(l link.Link) (link.Link, error) {
				met.Done()
				met.Wait()
				l.Title = fmt.Sprint(i)
				return l, nil
			})
			if errors.Is(err, link.ErrConflict) {
				conflicts.Add(1)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if conflicts.Load() != 1 {
		t.Errorf("%d conflicts of two editors, want one", conflicts.Load())
	}
}

// The response to a write is lost, the write was applied: that is no conflict, not even with
// oneself.
func TestAnEditWhoseResponseIsLostIsDoneOnce(t *testing.T) {
	t.Parallel()
	for _, once := range []bool{false, true} {
		t.Run(fmt.Sprintf("once: %t", once), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := r.open(withCache)
			there("a", url1, time.Hour)(r, s)
			calls, lost := 0, false
			r.proxy.Before(onNth(1, updateEntity, r.Links, faultproxy.DropResponse, func() {
				lost = true
			}))
			l, err := s.Edit(ctx, "one", once, func(l link.Link) (link.Link, error) {
				calls++
				l.Title += "+"
				return l, nil
			})
			if err != nil || l.Title != "+" || calls != 1 || !lost {
				t.Errorf("got %+v, %v, change was called %d times, a response lost: %t", l, err,
					calls, lost)
			}
			if again, err := s.Read(ctx, "one"); err != nil || again.Title != "+" ||
				again.Version != l.Version {
				t.Errorf("read %+v, %v", again, err)
			}
		})
	}
}

// A claim takes the link out of the index before it writes the link. Where it cannot write that, it
// puts it back.
func TestAClaimThatFailsAtItsLastWrite(t *testing.T) {
	t.Parallel()
	for _, disabled := range []bool{false, true} {
		t.Run(fmt.Sprintf("disabled: %t", disabled), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := r.open(nil)
			there("", url1, time.Hour, edit(func(_ time.Time, l link.Link) (link.Link, error) {
				l.Disabled = disabled
				return l, nil
			}))(r, s)
			r.proxy.Before(faultproxy.On("UpdateEntity", r.Links, faultproxy.ServerBusy))
			_, err := s.Edit(ctx, "one", false, func(l link.Link) (link.Link, error) {
				return l.Claimed(link.Actor{By: "a"}, "a", false, r.clock.Now()), nil
			})
			if !errors.Is(err, link.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			r.proxy.Reset()
			l, created, err := s.Create(ctx, r.wish("", "", url1, time.Hour), "")
			if want := map[bool]error{true: link.ErrDisabled}[disabled]; !errors.Is(err, want) ||
				created || !disabled && l.Name != "one" {
				t.Errorf("its URL has %+v, created %t, %v", l, created, err)
			}
			r.endAll(s)
		})
	}
}

// Two callers of one instance want the same links at the same time, some of them twice.
func TestClaimsOfTwoOwnersAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(withCache)
	var aliases []link.Name
	for i := range 20 {
		l := r.create(s, fmt.Sprint(url1, i), time.Hour)
		aliases = append(aliases, l.Name, l.Name)
	}
	claimed := map[string]int{}
	var mu sync.Mutex
	var both sync.WaitGroup
	for _, owner := range []string{"a", "b"} {
		both.Go(func() {
			errs, err := editAll(ctx, s, aliases, func(_ int, l link.Link) (link.Link, error) {
				if l.Owner != "" {
					return l, errNotMine
				}
				return l.Claimed(link.Actor{By: owner}, owner, false, r.clock.Now()), nil
			})
			should(t, err)
			mu.Lock()
			defer mu.Unlock()
			for i, err := range errs {
				if err == nil {
					claimed[owner]++
				} else if !errors.Is(err, errNotMine) {
					t.Errorf("%s, link %d: %v", owner, i, err)
				}
			}
		})
	}
	both.Wait()
	if claimed["a"]+claimed["b"] != 20 {
		t.Errorf("claimed: %v, want 20", claimed)
	}
	for owner, n := range claimed {
		if links, _, err := s.List(ctx, owner, "", 100, all); err != nil || len(links) != n {
			t.Errorf("%s has claimed %d, and is listed %d, %v", owner, n, len(links), err)
		}
	}
	r.endAll(s)
}

// Another program's rows, such as the original one's, keep what this one does not know, through
// every operation.
func TestRowsOfOtherProgramsSurviveEdits(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(withCache)
	unknown := rawtables.Entity{
		"CreatedBy": "somebody@example.com", "Clicks": "9007199254740993",
		"Clicks@odata.type":      "Edm.Int64",
		"LastSeenUtc":            "2024-02-29T12:00:00.1234567Z",
		"LastSeenUtc@odata.type": "Edm.DateTime",
		"Id":                     "c9da6455-213d-42c9-9a79-3e9149a57833",
		"Id@odata.type":          "Edm.Guid", "Weight": 1.5,
		"Whole": 2.0, "Whole@odata.type": "Edm.Double",
		"Raw": "AQID", "Raw@odata.type": "Edm.Binary", "Small": 7, "Yes": true,
		"Text": "ü\"\\\n\u2028<>&", "Empty": "",
	}
	row := rawtables.Link(link.Link{Name: "one", LongURL: url1, CreatedAt: r.clock.Now()})
	maps.Copy(row, unknown)
	r.Put(r.Links, row)
	r.Put(r.Index, rawtables.Index(link.Link{Name: "one", LongURL: url1}))
	// asStored is what the row has of these, as storage says it.
	asStored := func() string {
		t.Helper()
		of := rawtables.Entity{}
		for _, there := range r.Rows(r.Links) {
			for name := range there {
				_, known := unknown[strings.TrimSuffix(name, "@odata.type")]
				if known && there["RowKey"] == "one" {
					of[name] = there[name]
				}
				if strings.HasPrefix(name, "odata.") {
					t.Errorf("the row has a property %s", name)
				}
			}
		}
		text, _ := json.Marshal(of)
		return string(text)
	}
	want := asStored()
	if !strings.Contains(want, `"Clicks":"9007199254740993"`) ||
		!strings.Contains(want, "Edm.Guid") {
		t.Fatalf("the row has %s", want)
	}
	for i, do := range []doing{
		create("", "", url1, time.Hour), // shares it
		setURL(url2), setEnd(2 * time.Hour), setEnd(0), deleteOneByAdmin, restoreOne,
		claim("a", false), setURL(url3), later(time.Second), deleteOneByAdmin, restoreOne,
	} {
		if err := do(ctx, r, s); err != nil {
			t.Fatalf("operation %d: %v", i, err)
		}
		if got := asStored(); got != want {
			t.Errorf("after operation %d: %s, want %s", i, got, want)
		}
		if _, err := s.Get(ctx, "one"); err != nil {
			t.Error(err)
		}
	}
	if l, err := s.Read(ctx, "one"); err != nil || l.Owner != "a" || !l.Shared ||
		l.LongURL != url3 {
		t.Errorf("got %+v, %v", l, err)
	}
	r.endAll(s)
}

var deleteOneByAdmin = edit(func(now time.Time, l link.Link) (link.Link, error) {
	return l.Deleted(link.Actor{Admin: true, Own: true}, now)
})

// Rows of the version before owners, with nothing but what that wrote, work in every operation.
func TestRowsOfTheVersionBeforeOwners(t *testing.T) {
	t.Parallel()
	for name, op := range operations {
		if op.before == nil || strings.HasPrefix(name, "reap, ") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := r.open(withCache)
			op.before(r, r.other())
			for _, table := range []string{r.Links, r.Expiry} {
				for _, row := range r.Rows(table) {
					for _, added := range []string{"CreateId", "EditId", "ExpiryETag",
						"UpdatedAtUtc", "UpdatedAtUtc@odata.type"} {
						delete(row, added)
					}
					r.Put(table, row)
				}
			}
			should(t, op.do(ctx, r, s))
			r.endAll(s)
		})
	}
}

func TestTombstones(t *testing.T) {
	t.Parallel()
	const keep = 30 * dayLong
	for name, test := range map[string]struct {
		before func(*rig, *storage.Links)
		reason link.State
		since  time.Duration // before the reaper comes
	}{
		"expired": {there("a", url1, time.Hour, later(2*time.Hour)),
			link.StateExpired, time.Hour},
		"deleted": {there("a", url1, 0, deleteOne,
			later(teststore.DeletedKeep+time.Hour)), link.StateDeleted, teststore.DeletedKeep +
			time.Hour},
		"deleted, and expired in between": {there("a", url1, time.Hour, deleteOne,
			later(teststore.DeletedKeep+time.Hour)), link.StateDeleted, teststore.DeletedKeep +
			time.Hour},
		"disabled, and expired": {there("a", url1, time.Hour,
			edit(func(_ time.Time, l link.Link) (link.Link, error) {
				l.Disabled = true
				return l,
					nil
			}), later(2*time.Hour)),
			link.StateExpired, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.leaveTombstones(keep)
			s, other := r.open(withCache), r.open(withCache)
			test.before(r, s)
			if _, err := other.Get(ctx, "one"); err != nil {
				t.Error(err)
			}
			since := r.clock.Now().Add(-test.since)
			done, err := s.Reap(ctx)
			if err != nil || done.Deleted != 1 || done.Failed != 0 {
				t.Errorf("got %+v, %v", done, err)
			}
			want := link.Link{Name: "one", GoneReason: test.reason, GoneAt: since}
			gone := func() {
				t.Helper()
				for _, s := range []*storage.Links{s, r.other()} {
					if got, err := s.Get(ctx, "one"); err != nil || !storage.Same(got, want) {
						t.Errorf("got %+v, %v, want %+v", got, err, want)
					}
					if _, err := s.Read(ctx, "one"); !errors.Is(err, link.ErrNotFound) {
						t.Errorf("read: %v", err)
					}
					if err := restoreOne(ctx, r, s); !errors.Is(err, link.ErrNotFound) {
						t.Errorf("restored: %v", err)
					}
					for _, owner := range []string{"", "a", "b"} {
						if _, _, err := s.Create(ctx, r.wish(owner, "one", url1, time.Hour),
							""); !errors.Is(err, link.ErrAliasTaken) {
							t.Errorf("%q wants the alias: %v", owner, err)
						}
					}
				}
			}
			gone()
			r.WantNoLeak()
			row := r.Rows(r.Links)[0]
			delete(row, "Timestamp@odata.type")
			if rest := rawtables.Link(want); fmt.Sprint(row) != fmt.Sprint(rest) {
				t.Errorf("the row is %v, want %v", row, rest)
			}
			end := want.GoneAt.Add(keep)
			if test.reason == link.StateDeleted {
				end = end.Add(teststore.DeletedKeep)
			}
			r.clock.Advance(end.Sub(r.clock.Now()) - time.Second)
			if done, err := s.Reap(ctx); err != nil || done.Deleted != 0 {
				t.Errorf("a second before its end: %+v, %v", done, err)
			}
			gone()
			r.clock.Advance(time.Second + time.Minute)
			if done, err := s.Reap(ctx); err != nil || done.Deleted != 0 || done.Dropped == 0 {
				t.Errorf("at its end: %+v, %v", done, err)
			}
			r.WantRows(0, 0, len(r.Rows(r.Expiry)))
			if _, _, err := s.Create(ctx, r.wish("b", "one", url2, 0), ""); err != nil {
				t.Errorf("the alias is free again: %v", err)
			}
			r.clock.Advance(time.Hour)
			r.endAll(s)
		})
	}
}

// What is kept for how long can be set otherwise while links and tombstones are there.
func TestKeepTimesThatAreChanged(t *testing.T) {
	t.Parallel()
	with := func(r *rig, deleted, tombstone time.Duration) *storage.Links {
		r.DeletedKeep, r.config.DeletedKeep = deleted, deleted
		r.leaveTombstones(tombstone)
		return r.other()
	}
	for name, test := range map[string]struct {
		deleted, tombstone time.Duration
	}{
		"longer": {10 * dayLong, 60 * dayLong}, "shorter": {dayLong, dayLong},
		"no tombstones any more": {dayLong, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := with(r, 7*dayLong, 30*dayLong)
			r.open(nil)
			there("a", url1, 0, deleteOne)(r, s)
			must(t, create("b", "two", url2, time.Hour)(ctx, r, s))
			r.clock.Advance(time.Hour)
			should(t, reap(ctx, r, s))
			deletedAt := r.clock.Now().Add(-time.Hour)
			s = with(r, test.deleted, test.tombstone)
			// states of the link that was deleted, and of the tombstone, after a reaper at this
			// time
			for _, at := range []time.Duration{7 * dayLong, 10 * dayLong, 30 * dayLong,
				60 * dayLong, 70 * dayLong} {
				r.clock.Advance(deletedAt.Add(at).Add(time.Hour).Sub(r.clock.Now()))
				should(t, reap(ctx, r, s))
				one, err := s.Get(ctx, "one")
				want := link.ErrNotFound
				if at < test.deleted+test.tombstone {
					want = nil
				}
				if !errors.Is(err, want) || want == nil &&
					(one.GoneReason == "") != (at < test.deleted) {
					t.Errorf("after %v: got %+v, %v", at, one, err)
				}
				two, err := s.Get(ctx, "two")
				// It was due after 30 days, at first: until then nobody looks at it.
				want = link.ErrNotFound
				if at < max(test.tombstone, 30*dayLong) {
					want = nil
				}
				if !errors.Is(err, want) {
					t.Errorf("after %v: got %+v, %v", at, two, err)
				}
			}
			r.endAll(s)
		})
	}
}

// A link can have several expiry rows that are due at once: one run of the reaper does with them,
// whatever their days.
func TestReapALinkWithSeveralRows(t *testing.T) {
	t.Parallel()
	for _, tombstones := range []time.Duration{0, teststore.TombstoneKeep} {
		t.Run(fmt.Sprint("tombstones for ", tombstones), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.leaveTombstones(tombstones)
			s := r.open(nil)
			links := r.expired(5, 2*time.Hour, "due")
			for _, l := range links[:3] {
				for _, age := range []time.Duration{time.Hour, time.Minute, dayLong} {
					r.Put(r.Expiry, rawtables.Due(l.Name, r.clock.Now().Add(-age)))
				}
			}
			done, err := s.Reap(ctx)
			if want := (link.ReapResult{Deleted: 5, Dropped: 9, Complete: true}); err != nil ||
				done != want {
				t.Errorf("got %+v, %v, want %+v", done, err, want)
			}
			rows := map[bool]int{true: 5}[tombstones > 0]
			r.WantRows(rows, 0, rows)
			r.WantNoLeak()
		})
	}
}

// The reaper was away for longer than tombstones are kept: it leaves none of what was over so long
// ago.
func TestReapAfterTombstonesWereDue(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.leaveTombstones(dayLong)
	s := r.open(nil)
	r.expired(3, 3*dayLong, "due")
	r.expired(2, time.Hour, "new")
	done, err := s.Reap(ctx)
	if want := (link.ReapResult{Deleted: 5, Complete: true}); err != nil || done != want {
		t.Errorf("got %+v, %v, want %+v", done, err, want)
	}
	r.WantRows(2, 0, 2)
	r.WantNoLeak()
}

// The rows of a day's tombstones are written in one call. Where that fails, their links stay for
// the next run, and others do not.
func TestTombstonesThatCannotBePrepared(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faultproxy.Fault{
		"busy": faultproxy.ServerBusy, "responses lost": faultproxy.DropResponse,
		"a response is empty": faultproxy.EmptyResponse,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.leaveTombstones(10 * dayLong)
			s := r.open(nil)
			r.expired(3, dayLong, "one")
			r.expired(2, 2*dayLong, "two")
			day := r.clock.Now().Add(9 * dayLong).Format("20060102")
			r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
				if c.Operation == batch && c.Partition == day {
					return fault
				}
				return faultproxy.None
			})
			done, err := s.Reap(ctx)
			if want := (link.ReapResult{Deleted: 2, Failed: 3, Backlog: dayLong,
				Complete: true}); err != nil || done != want {
				t.Errorf("got %+v, %v, want %+v", done, err, want)
			}
			r.WantNoLeak()
			r.proxy.Reset()
			done, err = s.Reap(ctx)
			if want := (link.ReapResult{Deleted: 3, Complete: true}); err != nil || done != want {
				t.Errorf("the next run: got %+v, %v, want %+v", done, err, want)
			}
			r.endAll(s)
		})
	}
}
