package storage_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
	"tiney/storage"
)

// top returns the top links as "alias clicks".
func (r *rig) top(s *storage.Links, owner string, window clicks.Window, limit int) string {
	r.t.Helper()
	links, counts, _, err := s.Clicks.Top(ctx, owner, nil, window, limit)
	should(r.t, err)
	var all []string
	for i, l := range links {
		if l.LongURL != "https://example.com/"+string(l.Name) {
			r.t.Errorf("it is %+v", l)
		}
		all = append(all, fmt.Sprint(l.Name, " ", counts[i]))
	}
	return strings.Join(all, ", ")
}

// putHours writes the row of a link that was clicked in these hours of a day.
func (r *rig) putHours(day clicks.Day, alias string, byHour map[int]int64) {
	r.t.Helper()
	var text []string
	var sum int64
	for hour, n := range byHour {
		text = append(text, fmt.Sprintf("[%d,%d,0]", hour, n))
		sum += n
	}
	r.putClick(day, alias, "p", sum, rawtables.Entity{"Hours": "[" + strings.Join(text, ",") + "]"})
}

func TestTopLinks(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t) // at 14:30
	today := r.today()
	now := r.clock.Now()
	for _, l := range []link.Link{
		{Name: "steady", Owner: "ann"}, {Name: "old", Owner: "ann"},
		{Name: "edge", Owner: "bob"}, {Name: "tie1", Owner: "bob"}, {Name: "tie2"},
		{Name: "disabled", Disabled: true},
		{Name: "deleted", Owner: "ann", DeletedAt: now},
		// aliases that were other links' until yesterday, and until today
		{Name: "again", Owner: "ann", CountedFrom: today.Start()},
		{Name: "fresh", Owner: "ann", CountedFrom: (today + 1).Start()},
		{Name: "bots", Owner: "ann"}, {Name: "claimed", Owner: "ann"},
	} {
		l.LongURL, l.CreatedAt = "https://example.com/"+string(l.Name), now.Add(-time.Hour)
		r.PutLink(l)
		if l.Name == "claimed" { // listed among bob's links too, by a create that was cut short
			l.Owner = "bob"
			r.Put(r.Owners, rawtables.Owner(l))
		}
	}
	r.Put(r.Links, rawtables.Link(link.Link{Name: "gone", GoneReason: link.StateExpired,
		GoneAt: now}))
	r.putHours(today, "steady", map[int]int64{0: 1, 14: 2})
	r.putClick(today, "steady", "q", 3, nil)
	r.putHours(today-1, "steady", map[int]int64{14: 4, 13: 100})
	r.putHours(today-1, "edge", map[int]int64{13: 1000, 14: 5, 23: 6})
	r.putHours(today-6, "edge", map[int]int64{0: 1})
	r.putHours(today-7, "edge", map[int]int64{23: 10_000})
	r.putHours(today-2, "old", map[int]int64{23: 9})
	r.putHours(today-29, "old", map[int]int64{0: 20})
	r.putHours(today-30, "old", map[int]int64{23: 100_000})
	r.putHours(today, "tie1", map[int]int64{1: 7})
	r.putHours(today, "tie2", map[int]int64{1: 7})
	r.putClick(today, "again", "p", 1, countedFrom(today))
	r.putHours(today-1, "again", map[int]int64{20: 5000})
	r.putHours(today-3, "again", map[int]int64{20: 5000})
	r.putHours(today, "fresh", map[int]int64{1: 900})
	r.putHours(today, "disabled", map[int]int64{1: 2})
	r.putHours(today, "deleted", map[int]int64{1: 900})
	r.putHours(today, "gone", map[int]int64{1: 900})
	r.putHours(today, "unknown", map[int]int64{1: 900})
	r.putHours(today, "claimed", map[int]int64{1: 3})
	r.putClick(today, "bots", "p", 0, nil)
	r.putHours(today, clicks.All, map[int]int64{1: 100_000})
	r.putHours(today, clicks.OwnerName("ann"), map[int]int64{1: 50_000})
	r.putHours(today, "no alias", map[int]int64{1: 999})
	r.putClick(today, "old", "bad", -5, nil)
	for _, when := range []string{"at first", "rolled up"} {
		s := r.open(withCache)
		for _, test := range []struct {
			owner  string
			window clicks.Window
			limit  int
			want   string
		}{
			{"", clicks.LastDay, 100, "edge 11, steady 10, tie1 7, tie2 7, claimed 3, " +
				"disabled 2, again 1"},
			{"", clicks.LastDay, 3, "edge 11, steady 10, tie1 7"},
			{"", clicks.LastWeek, 100, "edge 1012, steady 110, old 9, tie1 7, tie2 7, " +
				"claimed 3, disabled 2, again 1"},
			{"", clicks.LastMonth, 100, "edge 11012, steady 110, old 29, tie1 7, tie2 7, " +
				"claimed 3, disabled 2, again 1"},
			{"ann", clicks.LastWeek, 100, "steady 110, old 9, claimed 3, again 1"},
			{"ann", clicks.LastMonth, 2, "steady 110, old 29"},
			{"ann", clicks.LastDay, 1, "steady 10"},
			{"bob", clicks.LastDay, 100, "edge 11, tie1 7"},
			{"eve", clicks.LastWeek, 100, ""},
		} {
			if got := r.top(s, test.owner, test.window, test.limit); got != test.want {
				t.Errorf("%s: %s's %d of %s: got %s, want %s", when, test.owner, test.limit,
					test.window, got, test.want)
			}
		}
		// The same for some links, also for deleted ones, but not for earlier links with the alias.
		var some []link.Link
		for _, a := range []link.Name{"edge", "again", "deleted", "fresh", "bots", "old",
			"steady"} {
			l, err := s.Read(ctx, a)
			must(t, err)
			some = append(some, l)
		}
		for window, want := range map[clicks.Window]string{
			clicks.LastDay:   "[11 1 900 0 0 0 10]",
			clicks.LastWeek:  "[1012 1 900 0 0 9 110]",
			clicks.LastMonth: "[11012 1 900 0 0 29 110]",
		} {
			totals, err := s.Clicks.InWindow(ctx, some, window)
			var counts []int64
			for _, total := range totals {
				counts = append(counts, total.Clicks)
			}
			if got := fmt.Sprint(counts); err != nil || got != want {
				t.Errorf("%s: in %s: got %s, %v, want %s", when, window, got, err, want)
			}
		}
		must(t, rollUp(ctx, r, s))
	}
	if days, _ := r.ClickTables(); len(days) != 2 {
		t.Errorf("these days were not rolled up: %v", days)
	}

	// What was read before midnight is shown for a minute, and then what the day before has.
	s := r.open(withCache)
	r.clock.Advance((today + 1).Start().Add(-time.Second).Sub(r.clock.Now()))
	for _, test := range []struct{ when, want string }{
		{"a second before midnight", "tie1 7, tie2 7, edge 6"},
		{"half a minute later", "tie1 7, tie2 7, edge 6"},
		{"a minute later", "tie1 7, tie2 7, steady 6"},
	} {
		if got := r.top(s, "", clicks.LastDay, 3); got != test.want {
			t.Errorf("%s: got %s", test.when, got)
		}
		r.clock.Advance(30 * time.Second)
	}
}

func TestTopLinksFromMemory(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	today := r.today()
	for i := range 30 {
		alias := fmt.Sprintf("top%02d", i)
		r.PutLink(link.Link{Name: link.Name(alias), LongURL: "https://example.com/" + alias,
			Owner: "ann", CreatedAt: r.clock.Now(), Title: alias})
		r.putClick(today, alias, "p", int64(100-i), nil)
	}
	s := r.open(withCache)
	const want = "top00 100, top01 99, top02 98"
	var all sync.WaitGroup
	for i := range 10 { // all at once
		all.Go(func() {
			if got := r.top(s, []string{"", "ann"}[i%2], clicks.LastDay, 3); got != want {
				t.Errorf("got %s", got)
			}
		})
	}
	all.Wait()
	// One pass for all of them, which looks for yesterday in its month; and ann's list. The links
	// that are shown are read each time. The cache takes a moment to have what was read to find
	// them.
	if names, queries, gets := r.callsOf("QueryTables"), r.callsOf("QueryEntities"),
		r.callsOf("GetEntity"); names != 1 || queries != 2*16+1 || gets < 10*3 || gets > 2*10*3 {
		t.Errorf("%d lists of tables, %d queries and %d reads of links, want 1, 33 and 30 to 60",
			names, queries, gets)
	}
	onlyShown := func() bool { return len(r.proxy.Calls()) == 3 && r.callsOf("GetEntity") == 3 }
	testutil.Eventually(t, "the cache has them", func() bool {
		r.proxy.Reset()
		return r.top(s, "", clicks.LastDay, 3) == want && onlyShown()
	})
	if links, _, _, err := s.Clicks.Top(ctx, "", nil, clicks.LastDay, 1); err != nil ||
		links[0].Title != "top00" {
		t.Errorf("what a cache leaves out: got %+v, %v", links, err)
	}
	r.putClick(today, "top29", "new", 1000, nil)
	r.clock.Advance(time.Minute - time.Nanosecond)
	r.proxy.Reset()
	if got := r.top(s, "", clicks.LastDay, 3); got != want || !onlyShown() {
		t.Errorf("within a minute: got %s after %v", got, r.proxy.Calls())
	}
	r.proxy.Reset()
	if got := r.top(s, "ann", clicks.LastDay, 3); got != want || !onlyShown() {
		t.Errorf("an owner's: got %s after %v", got, r.proxy.Calls())
	}
	r.proxy.Reset()
	if got := r.top(s, "bob", clicks.LastDay, 3); got != "" || len(r.proxy.Calls()) != 1 {
		t.Errorf("of another owner: got %s after %v", got, r.proxy.Calls())
	}
	r.clock.Advance(time.Nanosecond)
	if got := r.top(s, "", clicks.LastDay, 1); got != "top29 1071" {
		t.Errorf("after a minute: got %s", got)
	}
	r.clock.Advance(-time.Hour) // a clock that was put back
	r.proxy.Reset()
	if r.top(s, "", clicks.LastDay, 1); r.callsOf("QueryEntities") != 32 {
		t.Errorf("%d calls", len(r.proxy.Calls()))
	}
}

// callsOf counts the calls of an operation.
func (r *rig) callsOf(operation string) (n int) {
	for _, c := range r.proxy.Calls() {
		if c.Operation == operation {
			n++
		}
	}
	return n
}

// Links that are deleted after the top links were found are not shown any more.
func TestTopLinksThatAreDeleted(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	for i, alias := range []string{"first", "second", "third"} {
		r.PutLink(link.Link{Name: link.Name(alias), LongURL: "https://example.com/" + alias,
			Owner: "ann", CreatedAt: r.clock.Now()})
		r.putClick(r.today(), alias, "p", int64(10-i), nil)
	}
	s := r.open(withCache)
	if got := r.top(s, "ann", clicks.LastDay, 2); got != "first 10, second 9" {
		t.Errorf("got %s", got)
	}
	s.WaitForCache()
	remove := func(l link.Link) (link.Link, error) { l.DeletedAt = r.clock.Now(); return l, nil }
	if err := patiently(func() error {
		_, err := s.Edit(ctx, "first", false, remove)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.proxy.Reset()
	if got := r.top(s, "ann", clicks.LastDay, 2); got != "second 9, third 8" ||
		r.callsOf("QueryEntities") != 0 {
		t.Errorf("deleted: got %s after %v", got, r.proxy.Calls())
	}
}

// Lists of owners that are too many to be kept are read anew.
func TestTopLinksOfManyOwners(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	s := r.open(withCache)
	for i := range 1000 {
		r.top(s, fmt.Sprint("owner", i), clicks.LastDay, 1)
	}
	r.proxy.Reset()
	for range 2 {
		r.top(s, "ann", clicks.LastDay, 1)
	}
	r.top(s, "owner0", clicks.LastDay, 1)
	if n := len(r.proxy.Calls()); n != 2 {
		t.Errorf("%d calls, want one each for the last owner", n)
	}
}

// What has many clicks and no link any more ends the search, not the storage account.
func TestTopLinksAmongDeletedOnes(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	r.PutLink(link.Link{Name: "last", LongURL: "https://example.com/last",
		CreatedAt: r.clock.Now()})
	s := r.open(withCache)
	for i := range 1100 {
		for range 2 {
			s.Clicks.Click(link.Link{Name: link.Name(fmt.Sprintf("gone%04d", i))},
				visit(r.clock.Now(), 1))
		}
	}
	s.Clicks.Click(link.Link{Name: "last"}, visit(r.clock.Now(), 1))
	r.flush(s)
	r.proxy.Reset()
	var links []link.Link
	err := patiently(func() (err error) {
		links, _, _, err = s.Clicks.Top(ctx, "", nil, clicks.LastDay, 1)
		return err
	})
	if n := r.callsOf("GetEntity"); err != nil || len(links) != 0 || n < 1000 || n > 1000+32 {
		t.Errorf("got %v, %v after %d reads of links", links, err, n)
	}
}

// The result of a pass is as old as the pass, and kept for a minute, or ten times as long as the
// pass took.
func TestTopLinksAreKept(t *testing.T) {
	t.Parallel()
	for took, kept := range map[time.Duration]time.Duration{0: time.Minute,
		5 * time.Second: time.Minute, 30 * time.Second: 5 * time.Minute} {
		r := newStatsRig(t)
		r.PutLink(link.Link{Name: "ab", LongURL: "https://example.com/ab"})
		r.putClick(r.today(), "ab", "p", 1, nil)
		s := r.instance()
		r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
			if c.Operation == "QueryTables" {
				r.clock.Advance(took)
			}
			return faultproxy.None
		})
		begun := r.clock.Now()
		ask := func(when string, want int64, wantAsOf time.Time) {
			t.Helper()
			_, counts, asOf, err := s.Clicks.Top(ctx, "", nil, clicks.LastWeek, 1)
			if err != nil || len(counts) != 1 || counts[0] != want || !asOf.Equal(wantAsOf) {
				t.Errorf("took %v, %s: got %v as of %v, %v; want %d as of %v", took, when, counts,
					asOf, err, want, wantAsOf)
			}
		}
		ask("at first", 1, begun)
		r.putClick(r.today(), "ab", "q", 10, nil)
		r.clock.Advance(kept - time.Nanosecond)
		ask("kept", 1, begun)
		r.clock.Advance(time.Nanosecond)
		ask("after that", 11, begun.Add(took+kept))
	}
}

// Days that are no longer kept do not count, even while their tables are there.
func TestTopLinksOfDaysThatAreNotKept(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	r.config.Clicks.KeepDays = 5
	r.PutLink(link.Link{Name: "ab", LongURL: "https://example.com/ab"})
	for day := r.today() - 7; day <= r.today(); day++ {
		r.putClick(day, "ab", "p", 1, nil)
	}
	for _, when := range []string{"at first", "rolled up"} {
		for _, window := range []clicks.Window{clicks.LastWeek, clicks.LastMonth} {
			if got := r.top(r.instance(), "", window, 1); got != "ab 6" {
				t.Errorf("%s, %s: got %s", when, window, got)
			}
		}
		r.mustRollUp()
	}
}

// A call that waits too long says so. The pass goes on, and a later call finds its result; callers
// with other owners wait for the same pass.
func TestTopLinksThatTakeLong(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	r.config.Timeout = 200 * time.Millisecond
	for _, owner := range []string{"ann", "bob"} {
		r.PutLink(link.Link{Name: link.Name(owner), Owner: owner,
			LongURL: "https://example.com/" + owner})
		r.putClick(r.today(), owner, "p", 1, nil)
	}
	s := r.instance()
	release := make(chan struct{})
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == "QueryTables" {
			<-release
		}
		return faultproxy.None
	})
	for _, owner := range []string{"", "ann", "bob"} {
		if _, _, _, err := s.Clicks.Top(ctx, owner, nil, clicks.LastDay, 1); !errors.Is(err,
			link.ErrUnavailable) {
			t.Errorf("%q: got %v", owner, err)
		}
	}
	if _, err := s.Clicks.InWindow(ctx, nil, clicks.LastDay); !errors.Is(err, clicks.ErrComputing) {
		t.Errorf("in a window: got %v", err)
	}
	left, leave := context.WithCancel(ctx)
	leave()
	if _, _, _, err := s.Clicks.Top(left, "", nil, clicks.LastDay, 1); !errors.Is(err,
		link.ErrUnavailable) {
		t.Errorf("who left got %v", err)
	}
	close(release)
	for owner, want := range map[string]string{"": "ann 1, bob 1", "ann": "ann 1", "bob": "bob 1"} {
		if err := patiently(func() error {
			_, _, _, err := s.Clicks.Top(ctx, owner, nil, clicks.LastDay, 2)
			return err
		}); err != nil {
			t.Errorf("%q: %v", owner, err)
		}
		if got := r.top(s, owner, clicks.LastDay, 2); got != want {
			t.Errorf("%q: got %s, want %s", owner, got, want)
		}
	}
	if n := r.callsOf("QueryTables"); n != 1 {
		t.Errorf("%d passes", n)
	}
}
