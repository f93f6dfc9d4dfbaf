package storage_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/teststore"
	"tiney/storage"
)

// day returns a time on the day that is n days from the clock's.
func (r *rig) day(n int) time.Time {
	return r.clock.Now().Truncate(dayLong).Add(time.Duration(n)*dayLong + time.Hour)
}

// wantTotals checks which totals there are, but for the months that they name.
func (r *rig) wantTotals(want ...rawtables.Entity) {
	r.t.Helper()
	lines := func(rows []rawtables.Entity) string {
		var all []string
		for _, e := range rows {
			delete(e, "Months")
			all = append(all, fmt.Sprint(e))
		}
		slices.Sort(all)
		return strings.Join(all, "\n")
	}
	if got, want := lines(r.Rows(r.ClickTotals)), lines(want); got != want {
		r.t.Errorf("totals:\n%s\nwant:\n%s", got, want)
	}
}

func rollUp(ctx context.Context, _ *rig, s *storage.Links) error {
	done, err := s.Clicks.RollUp(ctx)
	if err == nil && (!done.Complete || done.Damaged > 0) {
		err = fmt.Errorf("%w: %+v", link.ErrUnavailable, done)
	}
	return err
}

// clicked makes the link "one" have been clicked on, by two processes, on two days that are over,
// for the link that it is now.
func clicked(_ context.Context, r *rig, s *storage.Links) error {
	l, err := s.Read(ctx, "one")
	if err != nil {
		return err
	}
	l.CountedFrom = r.day(-3)
	r.Put(r.Links, rawtables.Link(l))
	from := l.CountedFrom
	r.PutClicks(r.day(-3), rawtables.Clicks("one", "p-1", r.day(-3), 3, 1).From(from))
	r.PutClicks(r.day(-2), rawtables.Clicks("one", "p-1", r.day(-2), 2, 0).From(from),
		rawtables.Clicks("one", "q-1", r.day(-2), 1, 1).From(from))
	r.clicked = true
	return nil
}

func TestRollUp(t *testing.T) {
	t.Parallel()
	for _, pageSize := range []int{1000, 3, 1} {
		t.Run(fmt.Sprintf("pages of %d", pageSize), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.config.Reap.PageSize = pageSize
			s := r.open(nil)
			from, never := r.day(-5), time.Time{}
			for _, l := range []link.Link{
				{Name: "one", LongURL: url1, CountedFrom: from},
				// sorts before and after "one"
				{Name: "on", LongURL: url1, CountedFrom: from, Disabled: true},
				{Name: "deleted", LongURL: url1, CountedFrom: from, DeletedAt: from},
				{Name: "old", LongURL: url1},
				{Name: "reused", LongURL: url1, CountedFrom: r.day(-2)},
				{Name: "known", LongURL: url1, CountedFrom: from},
				{Name: "tomb", GoneReason: link.StateExpired, GoneAt: from},
				{Name: "knowntomb", GoneReason: link.StateExpired, GoneAt: from},
			} {
				r.Put(r.Links, rawtables.Link(l))
			}
			for alias, at := range map[link.Name]time.Time{"tomb": from, "knowntomb": from,
				"deleted": from.Add(teststore.DeletedKeep)} {
				r.Put(r.Expiry, rawtables.Due(alias, at))
			}
			r.Put(r.Links, rawtables.Entity{"PartitionKey": "da", "RowKey": "damaged"})
			r.Put(r.Links, rawtables.Entity{"PartitionKey": "da", "RowKey": "damaged2"})
			r.PutAll(r.ClickTotals, []rawtables.Entity{
				rawtables.Totals("reused", r.day(-4), 100, 100, r.day(-20)), // of the link before
				rawtables.Totals("known", r.day(-3), 100, 10, from),
				rawtables.Totals("knowntomb", r.day(-4), 100, 10, from),
				rawtables.Totals("damaged2", r.day(-4), 100, 10, from),
			})
			owner := clicks.OwnerName("ann")
			for _, n := range []int{-3, -2, -1, 0} {
				at := r.day(n)
				for name, from := range map[string]time.Time{"one": from, "on": from,
					"deleted": from, "old": never, "reused": r.day(-2), "known": from,
					"tomb": from, "knowntomb": from, "damaged": from, "damaged2": from,
					"nobody": from, "*": never, owner: never} {
					r.PutClicks(at, rawtables.Clicks(name, "p-1", at, 10, 1).From(from))
					if n == -2 {
						r.PutClicks(at, rawtables.Clicks(name, "p-2", at, 0, 2).From(from),
							rawtables.Clicks(name, "q-1", at, 5, 0).From(from))
					}
				}
				// of earlier links that had the aliases, one on the day of the next one
				r.PutClicks(at, rawtables.Clicks("one", "r-1", at, 1000, 0).From(r.day(-9)),
					rawtables.Clicks("old", "r-1", at, 1000, 0).From(r.day(-9)),
					rawtables.Clicks("reused", "r-1", at, 1000, 0).From(r.day(-20)))
				r.Put(r.State, rawtables.VisitorKey(at))
			}
			r.PutClicks(r.day(-keepDays - 60)) // an empty table of a day that is not kept
			r.PutClicks(r.day(-3), rawtables.Entity{"PartitionKey": "0",
				"RowKey": "it's another program's"})

			want := []rawtables.Entity{
				rawtables.Totals("one", r.day(-2), 25, 4, from),
				rawtables.Totals("on", r.day(-2), 25, 4, from),
				rawtables.Totals("deleted", r.day(-2), 25, 4, from),
				rawtables.Totals("old", r.day(-2), 25, 4, never),
				rawtables.Totals("reused", r.day(-2), 25, 4, r.day(-2)),
				rawtables.Totals("known", r.day(-2), 115, 13, from),
				rawtables.Totals("knowntomb", r.day(-2), 125, 14, from),
				rawtables.Totals("damaged", r.day(-2), 25, 4, from),
				rawtables.Totals("damaged2", r.day(-2), 125, 14, from),
				rawtables.Totals("*", r.day(-2), 25, 4, never),
				rawtables.Totals(owner, r.day(-2), 25, 4, never),
			}
			monthly := map[string]map[string]int64{}
			for _, e := range want {
				monthly[e["RowKey"].(string)] = map[string]int64{
					r.day(-3).Format("20060102"): 10, r.day(-2).Format("20060102"): 15}
			}
			for i := range 2 {
				done, err := s.Clicks.RollUp(ctx)
				if err != nil || !done.Complete || done.Damaged != int64(1-i) {
					t.Fatalf("got %+v, %v", done, err)
				}
				r.wantTotals(want...)
				if got := r.Monthly(); fmt.Sprint(got) != fmt.Sprint(monthly) {
					t.Errorf("months %v, want %v", got, monthly)
				}
				r.WantNoLeak(storage.LinkDamaged)
			}
			if days, _ := r.ClickTables(); len(days) != 2 {
				t.Errorf("these days are left: %v", days)
			}
			// the keys of today and yesterday
			if got := len(r.Rows(r.State)); got != 2 {
				t.Errorf("%d rows of state are left", got)
			}
			r.proxy.Reset()
			if done, err := s.Clicks.RollUp(ctx); err != nil ||
				done != (clicks.RollUpResult{Complete: true}) || len(r.proxy.Calls()) != 1 {
				t.Errorf("with nothing to do: %+v, %v, %v", done, err, r.proxy.Calls())
			}
			// A day later, there is one day more.
			r.clock.Advance(dayLong)
			if done, err := s.Clicks.RollUp(ctx); err != nil || done.Added != int64(len(want)) {
				t.Errorf("a day later: %+v, %v", done, err)
			}
			want[0] = rawtables.Totals("one", r.day(-2), 35, 5, from)
			got := r.Rows(r.ClickTotals)
			for _, e := range got {
				delete(e, "Months")
			}
			if !slices.ContainsFunc(got,
				func(e rawtables.Entity) bool { return maps.Equal(e, want[0]) }) {
				t.Errorf("got %v, want %v among them", got, want[0])
			}
		})
	}
}

// More names with one hash than a roll-up has in memory at a time. It finds all rows of each.
func TestRollUpOfManyNames(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	var rows, want []rawtables.Entity
	for i := 0; len(want) < 510; i++ {
		name := clicks.OwnerName(fmt.Sprint(i))
		total := rawtables.Totals(name, r.day(-2), 5, 1, time.Time{})
		if total["PartitionKey"] == "00" {
			want = append(want, total)
			rows = append(rows, rawtables.Clicks(name, "p-1", r.day(-2), 2, 0),
				rawtables.Clicks(name, "q-1", r.day(-2), 3, 1))
		}
	}
	r.PutClicks(r.day(-2), rows...)
	if err := rollUp(ctx, r, s); err != nil {
		t.Error(err)
	}
	r.wantTotals(want...)
	if got := r.Monthly(); len(got) != len(want) {
		t.Errorf("%d names have a month, want %d", len(got), len(want))
	}
}

// A reaper that was down for a year, or whose storage was, catches up, however often it is killed
// meanwhile. Months that are not kept go.
func TestRollUpOfAYear(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.Clicks.KeepDays, r.KeepDays = 30, 30
	s := r.open(nil)
	const days = 366
	var want []rawtables.Entity
	for i, alias := range []string{"daily", "rare", "*"} {
		var sum, bots int64
		var last time.Time
		from := time.Time{}
		if alias != "*" {
			from = r.day(-days)
			r.Put(r.Links, rawtables.Link(link.Link{Name: link.Name(alias), LongURL: url1,
				CountedFrom: from}))
		}
		for n := -days; n <= 0; n += 1 + 10*i {
			r.PutClicks(r.day(n), rawtables.Clicks(alias, "p-1", r.day(n), int64(-n), 1).From(from))
			if n <= -2 {
				sum, bots, last = sum+int64(-n), bots+1, r.day(n)
			}
		}
		want = append(want, rawtables.Totals(alias, last, sum, bots, from))
	}
	for n := -days; n < 0; n += 20 {
		r.Put(r.State, rawtables.VisitorKey(r.day(n)))
	}
	all := 0
	for n := 8; ; n *= 2 {
		r.proxy.Before(kill(n))
		err := rollUp(dying, r, r.instance())
		calls := len(r.proxy.Calls())
		r.proxy.Reset()
		if all += min(n, calls); calls < n {
			if err != nil {
				t.Error(err)
			}
			break
		}
		// it may have been killed before it deleted them
		r.WantNoLeak(storage.VisitorKeyOld, storage.ClicksOld)
	}
	r.wantTotals(want...)
	r.WantNoLeak()
	// A day takes a call for each partition, and a few more.
	if all > days*30 {
		t.Errorf("%d calls", all)
	}
	if err := rollUp(ctx, r, s); err != nil {
		t.Error(err)
	}
	r.wantTotals(want...)
	if open, months := r.ClickTables(); len(open) != 2 || len(months) > 3 {
		t.Errorf("these are left: %v, %v", open, months)
	}
}

// ways are what may become of a process's nth call, and whether the process ends with it.
var ways = map[string]struct {
	fault func(n int) func(faultproxy.Call) faultproxy.Fault
	dies  bool
}{
	"killed":           {kill, true},
	"response lost":    {func(n int) func(faultproxy.Call) faultproxy.Fault { return faultproxy.Fail(n, faultproxy.DropResponse) }, false},
	"failed":           {func(n int) func(faultproxy.Call) faultproxy.Fault { return faultproxy.Fail(n, faultproxy.ServerBusy) }, true},
	"failed, but done": {func(n int) func(faultproxy.Call) faultproxy.Fault { return faultproxy.Fail(n, faultproxy.DropResponse) }, true},
}

// clickedLinks has the clicks of links in a test, and the totals that they must have.
type clickedLinks struct {
	r    *rig
	sums map[string]int64
	want map[string]rawtables.Entity
}

func newClickedLinks(r *rig) *clickedLinks {
	return &clickedLinks{r, map[string]int64{}, map[string]rawtables.Entity{}}
}

// round lets three days go by, on two of which links are clicked on, one of them for the first
// time.
func (c *clickedLinks) round(n int) {
	c.r.t.Helper()
	c.r.clock.Advance(3 * dayLong)
	fresh := fmt.Sprintf("fresh%d", n)
	for _, alias := range []string{"one", fresh} {
		c.r.Put(c.r.Links, rawtables.Link(link.Link{Name: link.Name(alias), LongURL: url1,
			CountedFrom: time.Unix(0, 0)}))
	}
	c.click("one", "p-1", -3, int64(n))
	c.click("one", "p-1", -2, 10)
	c.click("one", "q-1", -2, 100)
	c.click(fresh, "p-1", -3, 1000)
	c.click("*", "p-1", -2, 2000)
	c.r.Put(c.r.State, rawtables.VisitorKey(c.r.day(-2)))
}

// click lets a link have been clicked on so often on one day. Of each link, days come in their
// order.
func (c *clickedLinks) click(alias, process string, day int, clicks int64) {
	c.r.t.Helper()
	from := time.Unix(0, 0)
	if alias == "*" {
		from = time.Time{}
	}
	c.r.PutClicks(c.r.day(day),
		rawtables.Clicks(alias, process, c.r.day(day), clicks, 0).From(from))
	c.sums[alias] += clicks
	c.want[alias] = rawtables.Totals(alias, c.r.day(day), c.sums[alias], 0, from)
}

func (c *clickedLinks) check() {
	c.r.t.Helper()
	c.r.wantTotals(slices.Collect(maps.Values(c.want))...)
	for name, days := range c.r.Monthly() {
		sum := int64(0)
		for _, n := range days {
			sum += n
		}
		if sum != c.sums[name] {
			c.r.t.Errorf("the months of %s have %v, want %d", name, days, c.sums[name])
		}
	}
	c.r.WantNoLeak()
	// Within what is kept, no month goes.
	if days, _ := c.r.ClickTables(); len(days) > 0 {
		c.r.t.Errorf("these days are left: %v", days)
	}
}

// Whatever becomes of a roll-up, the next one leaves the sum of the days.
func TestRollUpThatBreaksOff(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			c := newClickedLinks(r)
			for n, met := 1, true; met && !t.Failed(); n++ {
				c.round(n)
				r.proxy.Before(way.fault(n))
				life, begun := lifeOf(way.dies), time.Now()
				err := rollUp(life, r, r.instance())
				met = len(r.proxy.Calls()) >= n
				r.proxy.Reset()
				if err != nil && (!errors.Is(err, link.ErrUnavailable) || !way.dies &&
					!tooSlow(err, begun)) {
					t.Errorf("call %d: %v", n, err)
				}
				if way.dies || err != nil {
					if err := patiently(func() error { return rollUp(ctx, r, other) }); err != nil {
						t.Errorf("call %d, again: %v", n, err)
					}
				}
				c.check()
			}
		})
	}
}

// Two roll-ups meet at every call, and one of them may die there, or stand still for so long that
// the other one is days ahead.
func TestRollUpsThatCross(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		late, dies bool
	}{"both live": {}, "one dies": {dies: true}, "one is late": {late: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := newCrashRig(t)
			r.config.Clicks.KeepDays, r.KeepDays = 3650, 3650
			other, c := r.other(), newClickedLinks(r)
			for n, met := 1, true; met && !t.Failed(); n++ {
				c.round(n)
				r.meet(n, test.dies, func() {
					if test.late {
						r.clock.Advance(10 * dayLong)
						c.click("one", "p-1", -2, 10_000)
					}
					if err := patiently(func() error { return rollUp(ctx, r, other) }); err != nil {
						t.Errorf("the second, at call %d: %v", n, err)
					}
				})
				err := rollUp(lifeOf(test.dies), r, r.instance())
				met = len(r.proxy.Calls()) >= n
				r.proxy.Wait()
				r.proxy.Reset()
				if err != nil && !test.dies {
					t.Errorf("call %d: %v", n, err)
				}
				if !met {
					if err := rollUp(ctx, r, other); err != nil {
						t.Error(err)
					}
				}
				c.check()
			}
		})
	}
}

// A link is removed, or removed and its alias given to another one, at any point of a roll-up or of
// another removal, and a roll-up made at any point of a removal: no totals are left of the first
// link, and those of the other one stay.
func TestRollUpOfALinkThatGoes(t *testing.T) {
	t.Parallel()
	reuse := func(ctx context.Context, r *rig, s *storage.Links) error {
		r.clock.Advance(dayLong)
		if err := reap(ctx, r, s); err != nil {
			return err
		}
		_, _, err := s.Create(ctx, r.wish("a", "one", url2, time.Minute), "")
		r.Put(r.ClickTotals, rawtables.Totals("one", r.day(0), 7, 0, r.day(0))) // as an import does
		return err
	}
	for name, test := range map[string]struct {
		first, second doing
		reused        bool
	}{
		"roll-up, and a removal": {rollUp, reap, false},
		"roll-up, and a reuse":   {rollUp, reuse, true},
		"removal, and a roll-up": {reap, rollUp, false},
		"removal, and a reuse":   {reap, reuse, true},
	} {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dies: %t", name, dies), func(t *testing.T) {
				t.Parallel()
				r := newRig(t) // without tombstones
				r.Make()
				// else midnight may come: what a link is counted from is the day a minute ago
				r.clock.Advance(r.day(1).Sub(r.clock.Now()))
				other := r.other()
				for n, met := 1, true; met && !t.Failed(); n++ {
					at := r.clock.Now()
					r.PutLink(link.Link{Name: "one", LongURL: url1,
						CreatedAt: at.Add(-3 * dayLong), ExpiresAt: at, CountedFrom: r.day(-3)})
					r.PutClicks(r.day(-2),
						rawtables.Clicks("one", "p-1", r.day(-2), 1, 0).From(r.day(-3)))
					r.meet(n, dies, func() {
						if err := patiently(func() error {
							return test.second(ctx, r, other)
						}); err != nil {
							t.Errorf("the second: %v", err)
						}
					})
					err := test.first(lifeOf(dies), r, r.instance())
					met = len(r.proxy.Calls()) >= n
					r.proxy.Wait()
					r.proxy.Reset()
					if err != nil && !dies {
						t.Errorf("the first: %v", err)
					}
					if met && test.reused {
						r.wantTotals(rawtables.Totals("one", r.day(0), 7, 0, r.day(0)))
					}
					for _, do := range []doing{rollUp, later(time.Minute), reap,
						later(10 * time.Minute), reap} {
						if err := patiently(func() error { return do(ctx, r, other) }); err != nil {
							t.Error(err)
						}
					}
					r.WantNoLeak()
					r.WantNothing()
					if t.Failed() {
						t.Fatalf("they met at call %d", n)
					}
					r.clock.Advance(dayLong)
				}
			})
		}
	}
}

func TestRollUpOfDamagedRows(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	for _, alias := range []string{"one", "two", "three", "four"} {
		r.Put(r.Links, rawtables.Link(link.Link{Name: link.Name(alias), LongURL: url1}))
		r.PutClicks(r.day(-2), rawtables.Clicks(alias, "p-1", r.day(-2), 2, 1))
	}
	two := rawtables.Totals("two", r.day(-3), 1, 0, time.Time{})
	delete(two, "Clicks@odata.type")
	two["Clicks"] = true
	r.Put(r.ClickTotals, two)
	four := rawtables.Totals("four", r.day(-2), 0, 0, time.Time{})
	if err := r.direct(r.Month(r.day(-2))).Create(ctx); err != nil {
		t.Fatal(err)
	}
	r.Put(r.Month(r.day(-2)), rawtables.Entity{"PartitionKey": four["PartitionKey"],
		"RowKey": "four", "Counts": "not packed"})
	for i, change := range []func(rawtables.Entity){
		func(e rawtables.Entity) { delete(e, "Clicks@odata.type"); e["Clicks"] = "many" },
		func(e rawtables.Entity) {
			delete(e, "LastAtUtc@odata.type")
			e["LastAtUtc"] = "9999-12-31T23:59:59-01:00"
		},
		func(e rawtables.Entity) { delete(e, "LastAtUtc@odata.type"); e["LastAtUtc"] = "never" },
		func(e rawtables.Entity) { e["Clicks"] = "-1" },
		func(e rawtables.Entity) { e["Hours"] = "[" },
		func(e rawtables.Entity) { e["RowKey"] = "g!three!p" },
	} {
		damaged := rawtables.Clicks("three", fmt.Sprintf("q-%d", i), r.day(-2), 1, 1)
		change(damaged)
		r.PutClicks(r.day(-2), damaged)
	}
	for _, progress := range []rawtables.Entity{{"Day": 7}, {"Day": r.day(-2).Format("20060102")},
		{"Day": r.day(-2).Format("20060102"), "Next": "ffff"}} {
		progress["PartitionKey"], progress["RowKey"] = "rollup", "progress"
		r.Put(r.State, progress)
	}
	done, err := s.Clicks.RollUp(ctx)
	if want := (clicks.RollUpResult{Added: 3, Damaged: 8, Complete: true}); err != nil ||
		done != want {
		t.Errorf("got %+v, %v, want %+v", done, err, want)
	}
	r.wantTotals(rawtables.Totals("one", r.day(-2), 2, 1, time.Time{}),
		rawtables.Totals("three", r.day(-2), 2, 1, time.Time{}),
		rawtables.Totals("four", r.day(-2), 2, 1, time.Time{}), two)
}

// A group that fails is tried again, and then stops the roll-up, which goes on from there later; so
// does the end of its time, which is no error.
func TestRollUpThatIsStopped(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	var rows, want []rawtables.Entity
	for i := range 200 {
		alias := fmt.Sprintf("link%03d", i)
		r.Put(r.Links, rawtables.Link(link.Link{Name: link.Name(alias), LongURL: url1}))
		rows = append(rows, rawtables.Clicks(alias, "p-1", r.day(-2), 1, 0))
		want = append(want, rawtables.Totals(alias, r.day(-2), 1, 0, time.Time{}))
	}
	r.PutClicks(r.day(-2), rows...)
	on := func(n int64, fault faultproxy.Fault) { // to all batches of totals after the nth
		var batches atomic.Int64
		r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
			if c.Operation == "SubmitTransaction" && c.Target == r.ClickTotals &&
				batches.Add(1) > n {
				return fault
			}
			return faultproxy.None
		})
	}
	on(30, faultproxy.TooManyRequests)
	if done, err := s.Clicks.RollUp(dying); !errors.Is(err, link.ErrUnavailable) ||
		done.Added == 0 || done.Added > 199 || done.Complete {
		t.Errorf("got %+v, %v", done, err)
	}
	on(10, faultproxy.Freeze)
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if done, err := s.Clicks.RollUp(limited); err != nil || done.Complete {
		t.Errorf("got %+v, %v", done, err)
	}
	lost := errors.New("the lock is lost")
	stopped, stop := context.WithCancelCause(ctx)
	stop(lost)
	if _, err := s.Clicks.RollUp(stopped); !errors.Is(err, lost) {
		t.Errorf("got %v, want %v", err, lost)
	}
	r.proxy.Reset()
	if err := rollUp(ctx, r, s); err != nil {
		t.Error(err)
	}
	again := 0
	for _, c := range r.proxy.Calls() {
		if c.Operation == "SubmitTransaction" && c.Target == r.ClickTotals {
			again++
		}
	}
	if again > 200-40 {
		t.Errorf("%d batches of totals: it began anew", again)
	}
	r.wantTotals(want...)
}

// A group that storage fails is tried again, some times.
func TestRollUpIsPatient(t *testing.T) {
	t.Parallel()
	r := newRigAt(t, newMemory(time.Now)) // since the proxy of Azurite does not tell batches of inserts apart
	s := r.open(nil)
	r.Put(r.Links, rawtables.Link(link.Link{Name: "one", LongURL: url1}))
	r.PutClicks(r.day(-2), rawtables.Clicks("one", "p-1", r.day(-2), 1, 0))
	failures := 0
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == "SubmitTransaction" && c.Target == r.ClickTotals && failures < 3 {
			failures++
			return faultproxy.TooManyRequests
		}
		return faultproxy.None
	})
	if err := rollUp(dying, r, s); err != nil || failures != 3 {
		t.Errorf("got %v after %d failures", err, failures)
	}
	r.wantTotals(rawtables.Totals("one", r.day(-2), 1, 0, time.Time{}))
}

// The process's clock is ahead, and its day is not over.
func TestRollUpGoesByTheClockOfStorage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.Reap.StorageClock = true
	s := r.open(nil)
	r.Put(r.Links, rawtables.Link(link.Link{Name: "one", LongURL: url1}))
	r.PutClicks(r.day(0), rawtables.Clicks("one", "p-1", r.day(0), 1, 0))
	for _, ahead := range []time.Duration{10 * dayLong, -20 * dayLong} {
		r.clock.Advance(ahead)
		if err := rollUp(ctx, r, s); err != nil {
			t.Error(err)
		}
		r.wantTotals()
	}
	r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { return faultproxy.Refuse })
	if _, err := s.Clicks.RollUp(ctx); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("no storage: %v", err)
	}
}

// A roll-up is killed after it has written the totals of a link, which ends then. The next one
// takes away all months that the totals name, and not only that of the day.
func TestRollUpTakesAllMonthsAway(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.leaveTombstones(10 * dayLong)
	r.Make()
	from, old := r.day(-100), r.day(-70)
	r.Put(r.Links, rawtables.Link(link.Link{Name: "one", GoneReason: link.StateExpired,
		GoneAt: r.clock.Now()}))
	r.Put(r.Expiry, rawtables.Due("one", r.clock.Now().Add(10*dayLong)))
	r.PutMonth(old, rawtables.Rolled("one", old, 5, 0).From(from))
	totals := rawtables.Totals("one", old, 5, 0, from)
	totals["Months"] = old.UTC().Format("200601")
	r.Put(r.ClickTotals, totals)
	r.PutClicks(r.day(-2), rawtables.Clicks("one", "p-1", r.day(-2), 1, 0).From(from))
	batches := 0
	r.proxy.Before(func(call faultproxy.Call) faultproxy.Fault {
		if call.Operation == batch {
			batches++
		}
		if batches >= 2 {
			return faultproxy.Refuse
		}
		return faultproxy.None
	})
	if err := rollUp(dying, r, r.instance()); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("it was not killed: %v", err)
	}
	r.proxy.Reset()
	if err := rollUp(ctx, r, r.instance()); err != nil {
		t.Error(err)
	}
	r.clock.Advance(11 * dayLong)
	if err := reap(ctx, r, r.instance()); err != nil {
		t.Error(err)
	}
	r.WantNothing()
	r.WantNoLeak()
}
