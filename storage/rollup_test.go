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

	"tiney/clicks"
	"tiney/internal/faultproxy"
	"tiney/internal/linkstest"
	"tiney/internal/rawtables"
	"tiney/link"
	"tiney/storage"
)

// day returns a time on the day that is n days from the clock's.
func (r *rig) day(n int) time.Time {
	return r.clock.Now().Truncate(dayLong).Add(time.Duration(n)*dayLong + time.Hour)
}

// wantTotals checks which totals there are.
func (r *rig) wantTotals(want ...rawtables.Entity) {
	r.t.Helper()
	lines := func(rows []rawtables.Entity) string {
		var all []string
		for _, e := range rows {
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
	for _, e := range []rawtables.Entity{
		rawtables.Clicks("one", "p", r.day(-3), 3, 1), rawtables.Clicks("one", "p", r.day(-2), 2,
			0), rawtables.Clicks("one", "q", r.day(-2), 1, 1),
	} {
		r.Put(r.Clicks, e)
	}
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
			from := r.day(-5)
			for _, l := range []link.Link{
				{Alias: "one", LongURL: url1, CountedFrom: from},
				// sorts before and after "one"
				{Alias: "on", LongURL: url1, CountedFrom: from, Disabled: true},
				{Alias: "deleted", LongURL: url1, CountedFrom: from, DeletedAt: from},
				{Alias: "old", LongURL: url1},
				{Alias: "reused", LongURL: url1, CountedFrom: r.day(-2)},
				{Alias: "late", LongURL: url1, CountedFrom: r.day(-1)},
				{Alias: "known", LongURL: url1, CountedFrom: from},
				{Alias: "tomb", GoneReason: link.StateExpired, GoneAt: from},
			} {
				r.Put(r.Links, rawtables.Link(l))
			}
			r.Put(r.Expiry, rawtables.Due("deleted", from.Add(linkstest.DeletedKeep)))
			r.Put(r.Expiry, rawtables.Due("tomb", from))
			r.Put(r.Links, rawtables.Entity{"PartitionKey": "da", "RowKey": "damaged"})
			r.Put(r.Links, rawtables.Entity{"PartitionKey": "da", "RowKey": "damaged2"})
			r.PutAll(r.ClickTotals, []rawtables.Entity{
				rawtables.Totals("reused", r.day(-4), 100, 100, r.day(-20)), // of the link before
				rawtables.Totals("known", r.day(-3), 100, 10, from),
				rawtables.Totals("damaged2", r.day(-4), 100, 10, from),
				rawtables.Totals("lost", r.day(-4), 1, 1, from),
			})
			for _, n := range []int{-keepDays - 1, -keepDays, -3, -2, -1, 0} {
				for _, alias := range []string{"one", "on", "deleted", "old", "reused", "late",
					"known", "tomb", "damaged", "damaged2", "nobody", "lost", "*"} {
					r.Put(r.Clicks, rawtables.Clicks(alias, "p-1", r.day(n), 10, 1))
					if n == -2 {
						r.Put(r.Clicks, rawtables.Clicks(alias, "p-2", r.day(n), 0, 2))
						r.Put(r.Clicks, rawtables.Clicks(alias, "q-1", r.day(n), 5, 0))
					}
				}
				r.Put(r.State, rawtables.VisitorKey(r.day(n)))
			}
			r.Put(r.Clicks, rawtables.Entity{"PartitionKey": r.day(-3).Format("20060102") + "-0",
				"RowKey": "it's another program's"})
			r.Put(r.Clicks, rawtables.Entity{"PartitionKey": "2020", "RowKey": "one|p"})

			want := []rawtables.Entity{
				rawtables.Totals("one", r.day(-2), 25, 4, from),
				rawtables.Totals("on", r.day(-2), 25, 4, from),
				rawtables.Totals("deleted", r.day(-2), 25, 4, from),
				rawtables.Totals("old", r.day(-2), 45, 6, time.Time{}),
				rawtables.Totals("reused", r.day(-2), 15, 3, r.day(-2)),
				rawtables.Totals("known", r.day(-2), 115, 13, from),
				rawtables.Totals("damaged", r.day(-2), 45, 6, time.Time{}),
				rawtables.Totals("damaged2", r.day(-2), 125, 14, from),
				rawtables.Totals("*", r.day(-2), 45, 6, time.Time{}),
			}
			for range 2 {
				if err := rollUp(ctx, r, s); err != nil {
					t.Fatal(err)
				}
				r.wantTotals(want...)
				r.WantNoLeak(storage.LinkDamaged, storage.ClicksDamaged)
			}
			// Four days but the oldest, of which one has three rows and one the row of another
			// program.
			if got := len(r.Rows(r.Clicks)); got != 13*(5+2)+1 {
				t.Errorf("%d rows of clicks are left", got)
			}
			// the keys of today and yesterday, and the progress
			if got := len(r.Rows(r.State)); got != 2+1 {
				t.Errorf("%d rows of state are left", got)
			}
			r.proxy.Reset()
			if done, err := s.Clicks.RollUp(ctx); err != nil ||
				done != (clicks.RollUpResult{Complete: true}) || len(r.proxy.Calls()) != 1 {
				t.Errorf("with nothing to do: %+v, %v, %v", done, err, r.proxy.Calls())
			}
			// A day later, there is one day more.
			r.clock.Advance(dayLong)
			if done, err := s.Clicks.RollUp(ctx); err != nil || done.Added != 10 {
				t.Errorf("a day later: %+v, %v", done, err)
			}
			want[0] = rawtables.Totals("one", r.day(-2), 35, 5, from)
			if got := r.Rows(r.ClickTotals); !slices.ContainsFunc(
				got, func(e rawtables.Entity) bool { return maps.Equal(e, want[0]) }) {
				t.Errorf("got %v, want %v among them", got, want[0])
			}
		})
	}
}

// A reaper that was down for a year, or whose storage was, catches up, however often it is killed
// meanwhile.
func TestRollUpOfAYear(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.Reap.PageSize = 100
	r.config.Clicks.KeepDays, r.KeepDays = 30, 30
	s := r.open(nil)
	const days = 366
	var rows, want []rawtables.Entity
	for i, alias := range []string{"daily", "rare", "*"} {
		var sum, bots int64
		var last time.Time
		from := time.Time{}
		if alias != "*" {
			from = r.day(-300 - i)
			r.Put(r.Links, rawtables.Link(link.Link{Alias: link.Alias(alias), LongURL: url1,
				CountedFrom: from}))
		}
		for n := -days; n <= 0; n += 1 + 10*i {
			rows = append(rows, rawtables.Clicks(alias, "p-1", r.day(n), int64(-n), 1))
			if n <= -2 && !r.day(n).Before(from) {
				sum, bots, last = sum+int64(-n), bots+1, r.day(n)
			}
		}
		want = append(want, rawtables.Totals(alias, last, sum, bots, from))
	}
	for n := -days; n < 0; n += 20 {
		r.Put(r.State, rawtables.VisitorKey(r.day(n)))
	}
	r.PutAll(r.Clicks, rows)
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
		r.WantNoLeak(storage.VisitorKeyOld) // it may have been killed before it deleted them
	}
	r.wantTotals(want...)
	r.WantNoLeak()
	// Five pages of rows, and in each of them a few calls for an alias; the rows that are too old
	// take a batch per partition.
	if all > 700 {
		t.Errorf("%d calls", all)
	}
	if err := rollUp(ctx, r, s); err != nil {
		t.Error(err)
	}
	r.wantTotals(want...)
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

// counted is what links were clicked on in a test, and what their totals must be.
type counted struct {
	r    *rig
	sums map[string]int64
	want map[string]rawtables.Entity
}

func newCounted(r *rig) *counted {
	return &counted{r, map[string]int64{}, map[string]rawtables.Entity{}}
}

// round lets three days go by, on two of which links are clicked on, one of them for the first
// time.
func (c *counted) round(n int) {
	c.r.t.Helper()
	c.r.clock.Advance(3 * dayLong)
	fresh := fmt.Sprintf("fresh%d", n)
	for _, alias := range []string{"one", fresh} {
		c.r.Put(c.r.Links, rawtables.Link(link.Link{Alias: link.Alias(alias), LongURL: url1,
			CountedFrom: time.Unix(0, 0)}))
	}
	c.r.Put(c.r.Clicks, rawtables.Clicks("nobody", fmt.Sprint(n), c.r.day(-keepDays-1), 1, 1))
	c.click("one", "p", -3, int64(n))
	c.click("one", "p", -2, 10)
	c.click("one", "q", -2, 100)
	c.click(fresh, "p", -3, 1000)
	c.click("*", "p", -2, 2000)
	c.r.Put(c.r.State, rawtables.VisitorKey(c.r.day(-2)))
}

// click lets a link have been clicked on so often on one day. Of each link, days come in their
// order.
func (c *counted) click(alias, process string, day int, clicks int64) {
	c.r.t.Helper()
	from := time.Unix(0, 0)
	if alias == "*" {
		from = time.Time{}
	}
	c.r.Put(c.r.Clicks, rawtables.Clicks(alias, process, c.r.day(day), clicks, 0))
	c.sums[alias] += clicks
	c.want[alias] = rawtables.Totals(alias, c.r.day(day), c.sums[alias], 0, from)
}

func (c *counted) check() {
	c.r.t.Helper()
	c.r.wantTotals(slices.Collect(maps.Values(c.want))...)
	c.r.WantNoLeak()
}

// Whatever becomes of a roll-up, the next one leaves the sum of the days.
func TestRollUpThatBreaksOff(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			c := newCounted(r)
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
// the other one is a year ahead.
func TestRollUpsThatCross(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		late, dies bool
	}{"both live": {}, "one dies": {dies: true}, "one is late": {late: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			c := newCounted(r)
			for n, met := 1, true; met && !t.Failed(); n++ {
				c.round(n)
				r.meet(n, test.dies, func() {
					if test.late {
						r.clock.Advance((keepDays + 10) * dayLong)
						c.click("one", "p", -2, 10_000)
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
					r.PutLink(link.Link{Alias: "one", LongURL: url1,
						CreatedAt: at.Add(-3 * dayLong), ExpiresAt: at, CountedFrom: r.day(-3)})
					r.Put(r.Clicks, rawtables.Clicks("one", fmt.Sprint(n), r.day(-2), 1, 0))
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
	for _, alias := range []string{"one", "two", "three"} {
		r.Put(r.Links, rawtables.Link(link.Link{Alias: link.Alias(alias), LongURL: url1}))
		r.Put(r.Clicks, rawtables.Clicks(alias, "p", r.day(-2), 2, 1))
	}
	r.Put(r.ClickTotals, rawtables.Entity{"PartitionKey": "tw", "RowKey": "two", "Clicks": true})
	damaged := rawtables.Clicks("three", "q", r.day(-2), 1, 1)
	delete(damaged, "Clicks@odata.type")
	damaged["Clicks"] = "many"
	r.Put(r.Clicks, damaged)
	for i, last := range []string{"9999-12-31T23:59:59-01:00", "never"} { // as texts
		damaged := rawtables.Clicks("three", fmt.Sprint(i), r.day(-2), 1, 1)
		delete(damaged, "LastAtUtc@odata.type")
		damaged["LastAtUtc"] = last
		r.Put(r.Clicks, damaged)
	}
	r.Put(r.Clicks, rawtables.Clicks("three", "negative", r.day(-2), -1, 1))
	r.Put(r.State, rawtables.Entity{"PartitionKey": "rollup", "RowKey": "progress", "Partition": 7})
	done, err := s.Clicks.RollUp(ctx)
	if want := (clicks.RollUpResult{Added: 2, Damaged: 5, Complete: true}); err != nil ||
		done != want {
		t.Errorf("got %+v, %v, want %+v", done, err, want)
	}
	r.wantTotals(rawtables.Totals("one", r.day(-2), 2, 1, time.Time{}),
		rawtables.Totals("three", r.day(-2), 2, 1, time.Time{}),
		rawtables.Entity{"PartitionKey": "tw", "RowKey": "two", "Clicks": true})
}

// A link that fails stops the roll-up, which goes on from there later; so does the end of its time,
// which is no error.
func TestRollUpThatIsStopped(t *testing.T) {
	r := newRigAt(t, newAzurite(t, emulator)) // whose reads take about as long as each other
	s := r.open(nil)
	var rows, want []rawtables.Entity
	for i := range 60 {
		alias := fmt.Sprintf("link%02d", i)
		r.Put(r.Links, rawtables.Link(link.Link{Alias: link.Alias(alias), LongURL: url1}))
		rows = append(rows, rawtables.Clicks(alias, "p", r.day(-2), 1, 0))
		want = append(want, rawtables.Totals(alias, r.day(-2), 1, 0, time.Time{}))
	}
	r.PutAll(r.Clicks, rows)
	on := func(n int64, fault faultproxy.Fault) { // to all reads of totals after the nth
		var reads atomic.Int64
		r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
			if c.Operation == "GetEntity" && c.Target == r.ClickTotals && reads.Add(1) > n {
				return fault
			}
			return faultproxy.None
		})
	}
	on(30, faultproxy.ServerBusy)
	if done, err := s.Clicks.RollUp(dying); !errors.Is(err, link.ErrUnavailable) ||
		done.Added == 0 || done.Added > 30 || done.Complete {
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
	again := slices.DeleteFunc(r.proxy.Calls(), func(c faultproxy.Call) bool { return c.Operation != "GetEntity" || c.Target != r.ClickTotals })
	if len(again) >= len(rows) {
		t.Errorf("%d reads of totals: it began anew", len(again))
	}
	r.wantTotals(want...)
}

// The process's clock is ahead, and its day is not over.
func TestRollUpGoesByTheClockOfStorage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.Reap.StorageClock = true
	s := r.open(nil)
	r.Put(r.Links, rawtables.Link(link.Link{Alias: "one", LongURL: url1}))
	today := rawtables.Clicks("one", "p", r.day(0), 1, 0)
	r.Put(r.Clicks, today)
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
