package storage_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/storage/counts"
)

// clickRig is a rig whose processes count clicks, and that knows what they must have counted.
type clickRig struct {
	*rig
	counted map[string]int64 // clicks of people by alias, and of all together as clicks.All
	bots    int64
	created int64
	people  int
	late    atomic.Int64 // batches for days whose rows may not be written any more
}

// newClickRig makes a rig with tables, whose clock stands at noon.
func newClickRig(t *testing.T) *clickRig {
	r := &clickRig{rig: newRig(t), counted: map[string]int64{}}
	r.config.Clicks = counts.Settings{Mode: clicks.ModeFull, FlushEvery: 10 * time.Second,
		KeepDays: 400}
	r.clock.Advance(24*time.Hour - time.Duration((r.clock.Now().Unix()+12*3600)%86400)*time.Second)
	r.Make()
	return r
}

// process starts another process.
func (r *clickRig) process() *counts.Clicks { return r.instance().Clicks }

// click is a click of each of the aliases, by somebody else each time.
func (r *clickRig) click(c *counts.Clicks, aliases ...string) {
	r.clickAt(c, r.clock.Now(), aliases...)
}

func (r *clickRig) clickAt(c *counts.Clicks, at time.Time, aliases ...string) {
	for _, a := range aliases {
		r.people++
		r.counted[a]++
		r.counted[clicks.All]++
		c.Click(link.Link{Name: link.Name(a)}, clicks.Click{At: at, Took: 3 * time.Millisecond,
			Visitor: visitor(r.people),
			Names: [clicks.Dimensions]string{"example.org", "DE", "Firefox", "Linux", "desktop",
				"1", "news"}})
	}
}

func visitor(i int) clicks.Visitor {
	return clicks.NewVisitor(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}),
		"an agent")
}

// flush flushes without a fault.
func (r *clickRig) flush(c *counts.Clicks) {
	r.t.Helper()
	r.faults(nil)
	must(r.t, patiently(func() error { return c.Flush(ctx) }))
}

// faults has the proxy do something to calls from now on, and counts the batches that are late.
func (r *clickRig) faults(do func(faultproxy.Call) faultproxy.Fault) {
	r.proxy.Reset()
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		day, ok := clicks.ParseDay(strings.TrimPrefix(c.Target, r.Clicks))
		if ok && c.Operation == "SubmitTransaction" &&
			!r.clock.Now().Before((day + 1).Start().Add(23*time.Hour)) {
			r.late.Add(1)
		}
		if do == nil {
			return faultproxy.None
		}
		return do(c)
	})
}

// saved returns the clicks that the rows have, by alias, of one day or of all days if it is "".
func (r *clickRig) saved(day string) map[string]int64 {
	r.t.Helper()
	sums := map[string]int64{}
	for alias, days := range r.Clicked() {
		for d, c := range days {
			if day == "" || d == day {
				sums[alias] += c.Clicks
			}
		}
	}
	return sums
}

// want checks that the rows have all that was counted, and no more.
func (r *clickRig) want(when string) {
	r.t.Helper()
	if got := r.saved(""); !maps.Equal(got, r.counted) {
		r.t.Errorf("%s: saved %v, counted %v", when, got, r.counted)
	}
	var bots, created int64
	for _, c := range r.Clicked()[clicks.All] {
		bots += c.Bots
		created += c.Created
	}
	if bots != r.bots || created != r.created {
		r.t.Errorf("%s: saved %d bots and %d links, counted %d and %d", when, bots, created, r.bots,
			r.created)
	}
	if late := r.late.Load(); late > 0 {
		r.t.Errorf("%s: %d batches were sent for days that may have been rolled up", when, late)
	}
}

// wantDay checks the clicks of a day.
func (r *clickRig) wantDay(when string, at time.Time, want map[string]int64) {
	r.t.Helper()
	if got := r.saved(clicks.DayOf(at).String()); !maps.Equal(got, want) {
		r.t.Errorf("%s, %v: saved %v, want %v", when, clicks.DayOf(at), got, want)
	}
}

// impatient returns the context of calls that are tried again so often, the first time soon.
func impatient(again int32) context.Context {
	return faultproxy.WithTries(hasty, policy.RetryOptions{MaxRetries: again,
		RetryDelay: time.Millisecond, TryTimeout: 300 * time.Millisecond})
}

// Whatever becomes of one call of a flush, the rows have what was counted when a later one has
// succeeded, and keep it.
func TestAFlushBreaksOffAtAnyPoint(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ctx   context.Context
		fault faultproxy.Fault
		late  bool // the call is held up, and arrives after the next flush
		kill  bool // the process is killed before the call
	}{
		"killed":                      {ctx: dying, fault: faultproxy.Refuse, kill: true},
		"refused":                     {ctx: dying, fault: faultproxy.ServerBusy},
		"refused once":                {ctx: ctx, fault: faultproxy.ServerBusy},
		"applied, its response lost":  {ctx: dying, fault: faultproxy.DropResponse},
		"applied, and repeated":       {ctx: ctx, fault: faultproxy.DropResponse},
		"late, and given up":          {ctx: impatient(-1), late: true},
		"late, and repeated":          {ctx: impatient(2), late: true},
		"applied, its response empty": {ctx: ctx, fault: faultproxy.EmptyResponse},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newClickRig(t)
			var lost int64
			for n, met := 1, true; met; n++ {
				met = false
				for _, before := range []bool{false, true} { // with rows that are there, or not
					r.clock.Advance(24 * time.Hour)
					c := r.process()
					r.click(c, "a", "b", "c", "a")
					if before {
						r.flush(c)
						r.click(c, "a", "b", "d")
					}
					flushed := map[string]int64{}
					if before {
						flushed = r.saved("")
					}
					release := make(chan struct{})
					r.faults(func(call faultproxy.Call) faultproxy.Fault {
						switch {
						case test.kill:
							return kill(n)(call)
						case call.N == n && test.late:
							<-release
						case call.N == n:
							return test.fault
						}
						return faultproxy.None
					})
					begun := time.Now()
					err := c.Flush(test.ctx)
					calls := len(r.proxy.Calls())
					met = met || calls >= n
					switch {
					case err != nil && !errors.Is(err, link.ErrUnavailable), err != nil &&
						calls < n && time.Since(begun) < 200*time.Millisecond:
						t.Errorf("got %v", err)
					case test.kill:
						r.proxy.Wait()
						saved := r.saved("")
						for alias, counted := range r.counted {
							if saved[alias] > counted || saved[alias] < flushed[alias] {
								t.Errorf("%s: saved %d, of %d that were flushed before and %d "+
									"counted", alias, saved[alias], flushed[alias], counted)
							}
						}
						lost += r.counted[clicks.All] - saved[clicks.All]
						if err == nil && !maps.Equal(saved, r.counted) {
							t.Errorf("no process was killed: saved %v, counted %v", saved, r.counted)
						}
						r.counted = saved
					default:
						r.click(c, "a", "e")
						r.flush(c)
						close(release)
						r.proxy.Wait()
						r.want("flushed again")
						r.click(c, "a", "b")
						r.flush(c)
						r.want("and once more")
					}
					if t.Failed() {
						t.Fatalf("call %d of %d, flushed before: %t", n, calls, before)
					}
				}
			}
			if test.kill {
				t.Logf("%d clicks were lost with their processes, and %d saved", lost,
					r.counted[clicks.All])
			}
		})
	}
}

// The process is stopped between two calls of a flush, for ten minutes or more than a day.
func TestAFlushIsStoppedAtAnyPoint(t *testing.T) {
	t.Parallel()
	for _, stopped := range []time.Duration{10 * time.Minute, 13 * time.Hour, 26 * time.Hour,
		100 * time.Hour} {
		for name, fault := range map[string]faultproxy.Fault{"goes on": faultproxy.None,
			"has lost a response": faultproxy.DropResponse} {
			t.Run(fmt.Sprintf("%v, and %s", stopped, name), func(t *testing.T) {
				t.Parallel()
				r := newClickRig(t)
				for n, met := 1, true; met; n++ {
					c := r.process()
					r.click(c, "a", "b", "c")
					if n%2 == 0 {
						r.flush(c)
						r.click(c, "a", "b", "d")
					}
					r.faults(faultproxy.Fail(n, fault))
					var flushing atomic.Bool
					r.proxy.After(func(call faultproxy.Call) {
						if call.N == n && fault == faultproxy.None || call.N == n+1 &&
							fault != faultproxy.None {
							r.clock.Advance(stopped)
							flushing.Store(call.Rows > 0)
						}
					})
					if err := c.Flush(dying); err != nil && !errors.Is(err, link.ErrUnavailable) {
						t.Errorf("got %v", err)
					}
					met = len(r.proxy.Calls()) >= n
					if flushing.Load() && r.late.Load() < 4 {
						// they were sent before that, with the one after which it was stopped
						r.late.Store(0)
					}
					r.click(c, "a", "e")
					r.faults(nil)
					// a write that has failed may be under way for a while
					for c.Flush(ctx) != nil {
						r.clock.Advance(6 * time.Minute)
					}
					if r.want("flushed again"); t.Failed() {
						t.Fatalf("stopped at call %d", n)
					}
					r.clock.Advance(time.Hour)
				}
			})
		}
	}
}

// named returns aliases whose rows of a day are all in one partition, which others are not in.
func named(n int) (aliases []string) {
	for i := 0; len(aliases) < n; i++ {
		a := fmt.Sprintf("alias-%d", i)
		if sum := sha256.Sum256([]byte(a)); sum[0]>>4 == 5 {
			aliases = append(aliases, a)
		}
	}
	return aliases
}

// batches returns the batches of counts that were sent, but for those of all links together.
func (r *clickRig) batches() (all []faultproxy.Call) {
	for _, c := range r.proxy.Calls() {
		if c.Operation == "SubmitTransaction" && c.Partition == "5" {
			all = append(all, c)
		}
	}
	return all
}

func TestBatchesOfCounts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		aliases, visitors int
		want              []int // rows
	}{
		"one row":          {1, 1, []int{1}},
		"a full batch":     {100, 1, []int{100}},
		"one row more":     {101, 1, []int{100, 1}},
		"as large as rows": {90, 6000, []int{0, 0}}, // as many as there is room for
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newClickRig(t)
			c, aliases := r.process(), named(test.aliases)
			r.click(c, "first")
			r.flush(c) // makes the day's key
			r.counted, r.bots = map[string]int64{"first": 1, clicks.All: 1}, 0
			for i, a := range aliases {
				for n := range test.visitors {
					k := clicks.Click{At: r.clock.Now(), Visitor: visitor(i + n)}
					if n < 50 {
						for d := range k.Names {
							k.Names[d] = fmt.Sprintf("%064d", n)
						}
					}
					c.Click(link.Link{Name: link.Name(a)}, k)
				}
				r.counted[a] += int64(test.visitors)
				r.counted[clicks.All] += int64(test.visitors)
			}
			r.flush(c)
			got := r.batches()
			if len(got) != len(test.want) {
				t.Fatalf("batches %v, want %d", got, len(test.want))
			}
			for i, rows := range test.want {
				if rows != 0 && got[i].Rows != rows || got[i].Bytes > 3<<20+1<<17 {
					t.Errorf("a batch of %d rows with %d bytes, want %d rows in at most 3 MiB",
						got[i].Rows, got[i].Bytes, rows)
				}
				t.Logf("a batch of %d rows, %d bytes", got[i].Rows, got[i].Bytes)
			}
			if test.visitors > 1 && got[0].Bytes < 3<<20-1<<17 {
				t.Errorf("%d bytes are not near 3 MiB", got[0].Bytes)
			}
			r.want("flushed")
		})
	}
}

// A flush of 10,000 links of a day takes at most 116 batches, and one of nothing takes no call.
func TestCallsOfAFlush(t *testing.T) {
	t.Parallel()
	r := newClickRig(t)
	c := r.process()
	if err := c.Flush(ctx); err != nil || len(r.proxy.Calls()) != 0 {
		t.Errorf("nothing was counted: %v, %v", r.proxy.Calls(), err)
	}
	for i := range 10_000 {
		c.Click(link.Link{Name: link.Name(strconv.Itoa(i))}, clicks.Click{At: r.clock.Now(), Bot: true})
	}
	// Azurite takes too long for so many
	r.faults(faultproxy.On("SubmitTransaction", "", faultproxy.Lie))
	// flushes that are cut short, each in up to four batches, on a machine that takes half a minute
	cut := -1
	if err := patiently(func() error { cut++; return c.Flush(ctx) }); err != nil {
		t.Fatal(err)
	}
	calls, rows, batches := r.proxy.Calls(), 0, 0
	for _, call := range calls {
		if rows += call.Rows; call.Rows > 0 {
			batches++
		}
	}
	t.Logf("%d batches; %d flushes were cut short", batches, cut)
	if batches > 116+4*cut || len(calls) > batches+3+3*cut || rows < 10_001 || rows > 10_016+
		400*cut {
		t.Errorf("%d calls, %d of them batches, for %d rows", len(calls), batches, rows)
	}
	r.faults(nil)
	if err := c.Flush(ctx); err != nil || len(r.proxy.Calls()) != 0 {
		t.Errorf("all was saved: %v, %v", r.proxy.Calls(), err)
	}
}

// Storage does not respond for minutes. Each flush tries each partition once and no more, and no
// count gets more than one row more by it.
func TestCountsWaitForStorage(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faultproxy.Fault{"refused": faultproxy.Refuse,
		"applied, without responses": faultproxy.DropResponse} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newClickRig(t)
			c := r.process()
			aliases := named(20)
			r.click(c, aliases...)
			r.flush(c)
			r.faults(faultproxy.On("", r.Day(r.clock.Now()), fault))
			for range 10 {
				r.click(c, aliases...)
				r.click(c, "another")
				if err := c.Flush(dying); !errors.Is(err, link.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
				r.clock.Advance(time.Minute)
			}
			if n := len(r.batches()); n != 10 {
				t.Errorf("%d batches of one partition in 10 flushes", n)
			}
			r.flush(c)
			r.want("storage responds again")
			for alias, days := range r.Clicked() {
				for _, counted := range days {
					if counted.Rows > 2 && alias != clicks.All {
						t.Errorf("%s has %d rows", alias, counted.Rows)
					}
				}
			}
			r.click(c, aliases[0])
			r.flush(c)
			r.want("after that")
			if dropped := r.metrics.ClicksDropped.Value(); dropped != 0 {
				t.Errorf("%d clicks were dropped", dropped)
			}
		})
	}
}

// Storage does not respond for so long that a day may be rolled up: what is not saved of it counts
// as of today, once, whatever became of the last write.
func TestCountsOfADayThatIsOver(t *testing.T) {
	t.Parallel()
	const none = -1
	for name, test := range map[string]struct {
		before bool             // something was saved
		fault  faultproxy.Fault // of the last write; none: there was none
		late   bool             // its call arrives when storage responds again
		// noon, when storage responds again; the last write is three minutes before
		after time.Duration
		first int64 // clicks of the first day, of 5 or, with those saved before, 8
	}{
		"in time": {true, none, false, 34 * time.Hour, 8},
		"late": {true, none, false, 35*time.Hour + 2*time.Minute,
			3},
		"late, never written": {false, none, false, 35*time.Hour + 2*time.Minute,
			0},
		"late, days later": {true, none, false, 135*time.Hour + 2*time.Minute,
			3},
		"in time, not applied": {true, faultproxy.Refuse, false, 34 * time.Hour, 8},
		"in time, applied": {true, faultproxy.DropResponse, false,
			34 * time.Hour, 8},
		"late, not applied": {true, faultproxy.Refuse, false, 35*time.Hour +
			2*time.Minute, 3},
		"late, applied": {true, faultproxy.DropResponse, false,
			35*time.Hour + 2*time.Minute, 6},
		"late, applied, never written before": {false, faultproxy.DropResponse, false,
			35*time.Hour + 2*time.Minute, 3},
		"late, refused, never written before": {false, faultproxy.Refuse, false, 35*time.Hour +
			2*time.Minute, 0},
		"late, and so was its call": {true, faultproxy.None, true, 35*time.Hour +
			2*time.Minute, 6},
		"late, so was its call, and the first": {false, faultproxy.None, true, 35*time.Hour +
			2*time.Minute, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newClickRig(t)
			c, noon, late, release := r.process(), r.clock.Now(), test.late, make(chan struct{})
			r.PutClicks(noon) // other processes have made the table
			if test.before {
				r.click(c, "a", "a", "a")
				r.flush(c)
			}
			r.click(c, "a", "a", "a")
			if test.fault != none {
				r.clock.Advance(test.after - 3*time.Minute)
				r.faults(func(call faultproxy.Call) faultproxy.Fault {
					if call.Target != r.Day(noon) {
						return faultproxy.None
					}
					if test.late {
						<-release
					}
					return test.fault
				})
				given := dying
				if test.late {
					given = impatient(-1)
				}
				if err := c.Flush(given); !errors.Is(err, link.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
			}
			r.clickAt(c, noon, "a", "a")
			r.clock.Advance(test.after - r.clock.Now().Sub(noon))
			r.faults(nil)
			for c.Flush(ctx) != nil { // a write that has failed may be under way for a while
				if late {
					close(release)
					late = false
					r.proxy.Wait()
				}
				r.clock.Advance(6 * time.Minute)
			}
			r.want("storage responds again")
			first := map[string]int64{"a": test.first, clicks.All: test.first}
			if test.first == 0 {
				first = map[string]int64{}
			}
			r.wantDay("the first", noon, first)
			r.click(c, "a")
			r.flush(c)
			r.want("after that")
		})
	}
}

// newLateRig makes a rig with a process that has saved three clicks on "a" and one on "b" in rows
// of a day that is over for 24 hours, two more on "a" and one on "b" that are not saved, and one on
// "never", a count that was never sent.
func newLateRig(t *testing.T) (r *clickRig, c *counts.Clicks, first time.Time) {
	r = newClickRig(t)
	c, first = r.process(), r.clock.Now()
	r.click(c, "a", "a", "a", "b")
	r.flush(c)
	r.click(c, "a", "a", "b", "never")
	r.clock.Advance(36 * time.Hour)
	return r, c, first
}

// What is late counts for today: where the row is there, what it lacks.
func TestLateCounts(t *testing.T) {
	t.Parallel()
	r, c, first := newLateRig(t)
	r.flush(c)
	r.want("late")
	r.wantDay("the first", first, map[string]int64{"a": 3, "b": 1, clicks.All: 4})
	r.wantDay("today", r.clock.Now(), map[string]int64{"a": 2, "b": 1, "never": 1, clicks.All: 4})
	r.flush(c)
	if calls := r.proxy.Calls(); len(calls) != 0 || r.metrics.ClicksDropped.Value() != 0 {
		t.Errorf("%d clicks were dropped; all is saved: %v", r.metrics.ClicksDropped.Value(), calls)
	}
}

// A day is rolled up, and its table is gone: what may be in it is dropped, and counted. What was
// never sent counts for today. Nobody makes the table again.
func TestLateCountsOfADayThatIsRolledUp(t *testing.T) {
	t.Parallel()
	r, c, first := newLateRig(t)
	r.PutLink(link.Link{Name: "a", LongURL: url1})
	must(t, rollUp(ctx, r.rig, r.instance()))
	before := r.metrics.ClicksDropped.Value()
	r.flush(c)
	r.wantDay("the first", first, map[string]int64{})
	r.wantDay("today", r.clock.Now(), map[string]int64{"never": 1})
	// what was not saved of a and of b; the sum of all links has the same clicks
	if n := r.metrics.ClicksDropped.Value() - before; n != 2+1 {
		t.Errorf("%d clicks were dropped, want 3", n)
	}
	day := clicks.DayOf(first).String()
	if got := r.Monthly(); got["a"][day] != 3 || got[clicks.All][day] != 4 || got["b"] != nil {
		t.Errorf("rolled up: %v", got)
	}
	if days, _ := r.ClickTables(); len(days) != 1 || days[0] != r.Day(r.clock.Now()) {
		t.Errorf("tables of %v", days)
	}
	r.click(c, "a")
	r.flush(c)
	r.wantDay("today", r.clock.Now(), map[string]int64{"a": 1, "never": 1, clicks.All: 1})
}

// A row of a late day cannot be read: what may be in it is dropped. One that is gone from its table
// was never there.
func TestLateCountsWithoutTheirRows(t *testing.T) {
	t.Parallel()
	r, c, first := newLateRig(t)
	for _, row := range r.Rows(r.Day(first)) {
		switch strings.Split(row["RowKey"].(string), "!")[1] {
		case "a":
			row["Hours"] = "damaged"
			r.Put(r.Day(first), row)
		case "b":
			r.Drop(r.Day(first), row)
		}
	}
	r.flush(c)
	r.DropTable(r.Day(first))
	r.wantDay("today", r.clock.Now(), map[string]int64{"b": 2, "never": 1, clicks.All: 4})
	if n := r.metrics.ClicksDropped.Value(); n != 2 {
		t.Errorf("%d clicks were dropped, want 2", n)
	}
}

// A flush makes the table of a day that ended less than 23 hours ago, and of no other.
func TestTablesThatAFlushMakes(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, 23*time.Hour - time.Second, 23 * time.Hour} {
		r := newClickRig(t)
		c, noon := r.process(), r.clock.Now()
		r.click(c, "a")
		r.clock.Advance(12*time.Hour + after)
		r.flush(c)
		r.want("flushed")
		day := noon
		if after >= 23*time.Hour {
			day = r.clock.Now()
		}
		if days, months := r.ClickTables(); len(days) != 1 || days[0] != r.Day(day) ||
			len(months) > 0 {
			t.Errorf("after %v: tables of %v and %v", after, days, months)
		}
	}
}

// Clicks of a link that has another owner, or of another link with the alias, go on in rows of
// their own, and each owner has the clicks that came to them.
func TestClicksOfOtherLinksAndOwners(t *testing.T) {
	t.Parallel()
	r := newClickRig(t)
	c := r.process()
	yesterday := r.clock.Now().Add(-24 * time.Hour)
	for _, l := range []link.Link{{}, {CountedFrom: yesterday}, {Owner: "ann"},
		{CountedFrom: yesterday, Owner: "ann"}, {CountedFrom: yesterday, Owner: "bob"}} {
		l.Name = "a"
		for range 2 {
			c.Click(l, clicks.Click{At: r.clock.Now()})
			r.flush(c)
		}
	}
	ann, bob := clicks.OwnerName("ann"), clicks.OwnerName("bob")
	r.wantDay("today", r.clock.Now(), map[string]int64{"a": 10, ann: 4, bob: 2, clicks.All: 10})
	from := map[any]int{}
	for _, row := range r.Rows(r.Day(r.clock.Now())) {
		name := strings.Split(row["RowKey"].(string), "!")[1]
		from[fmt.Sprint(name, row["CountedFrom"])]++
	}
	day := clicks.DayOf(yesterday).String()
	if want := (map[any]int{"a<nil>": 2, "a" + day: 3, ann + "<nil>": 1, bob + "<nil>": 1,
		"*<nil>": 1}); !maps.Equal(from, want) {
		t.Errorf("rows %v, want %v", from, want)
	}
}

// Clicks before and after midnight count for their days, also those that are counted when all else
// of the day is forgotten.
func TestMidnight(t *testing.T) {
	t.Parallel()
	r := newClickRig(t)
	c, noon := r.process(), r.clock.Now()
	r.clock.Advance(12*time.Hour - time.Second)
	r.click(c, "a", "b")
	r.flush(c)
	lastSecond := r.clock.Now()
	r.click(c, "a")
	r.clock.Advance(time.Second)
	r.click(c, "a", "c")
	r.flush(c)
	r.flush(c)
	for range 2 {
		r.clickAt(c, lastSecond, "a")
		r.flush(c)
	}
	r.want("after midnight")
	r.wantDay("the first", noon, map[string]int64{"a": 4, "b": 1, clicks.All: 5})
	r.wantDay("the second", r.clock.Now(), map[string]int64{"a": 1, "c": 1, clicks.All: 2})
	if rows := r.Clicked()["a"][clicks.DayOf(noon).String()].Rows; rows < 2 {
		t.Errorf("%d rows: what was forgotten went on in the row it had", rows)
	}
}

// Two processes need a day's key at the same time, and responses are lost: both get the same.
func TestKeyOfADay(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faultproxy.Fault{"at the same time": faultproxy.None,
		"without a response": faultproxy.DropResponse, "refused": faultproxy.Refuse} {
		for given, ctx := range map[string]context.Context{"repeated": ctx, "given up": dying} {
			t.Run(name+", "+given, func(t *testing.T) {
				t.Parallel()
				r := newClickRig(t)
				one, two := r.process(), r.process()
				var inserts atomic.Int64
				var both sync.WaitGroup
				both.Add(2)
				r.faults(func(call faultproxy.Call) faultproxy.Fault {
					if call.Operation == "InsertEntity" && call.Target == r.State &&
						inserts.Add(1) <= 2 {
						both.Done()
						both.Wait() // both have found none
						return fault
					}
					return faultproxy.None
				})
				r.click(one, "a")
				r.people-- // the same person
				r.click(two, "a")
				var flushes sync.WaitGroup
				for _, c := range []*counts.Clicks{one, two} {
					flushes.Go(func() {
						if err := c.Flush(ctx); err != nil && !errors.Is(err, link.ErrUnavailable) {
							t.Error(err)
						}
					})
				}
				flushes.Wait()
				r.want("with a key or without")
				r.flush(one)
				r.flush(two)
				r.want("flushed again")
				got := r.Clicked()["a"][clicks.DayOf(r.clock.Now()).String()]
				if len(got.Visitors) != 1 || len(r.Rows(r.State)) != 1 {
					t.Errorf("%d visitors, want 1; %d keys", len(got.Visitors),
						len(r.Rows(r.State)))
				}
			})
		}
	}
}

// While the key cannot be made, clicks are saved, and visitors wait: until after midnight too.
func TestVisitorsWaitForStorage(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faultproxy.Fault{"refused": faultproxy.Refuse,
		"frozen": faultproxy.Freeze} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newClickRig(t)
			c, noon := r.process(), r.clock.Now()
			r.clock.Advance(12*time.Hour - time.Minute)
			r.click(c, "a", "a", "b")
			r.faults(faultproxy.On("", r.State, fault))
			begun := time.Now()
			if err := c.Flush(dying); !errors.Is(err, link.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(begun); took > slack {
				t.Errorf("counts waited %v for a key", took)
			}
			r.want("without a key")
			r.clock.Advance(2 * time.Minute)
			r.click(c, "a")
			r.flush(c)
			r.want("with a key")
			got := r.Clicked()["a"]
			if first, second := got[clicks.DayOf(noon).String()],
				got[clicks.DayOf(r.clock.Now()).String()]; len(first.Visitors) != 2 ||
				len(second.Visitors) != 1 {
				t.Errorf("%d visitors on the first day, %d on the second", len(first.Visitors),
					len(second.Visitors))
			}
			r.flush(c)
			if calls := r.proxy.Calls(); len(calls) != 0 {
				t.Errorf("all is saved: %v", calls)
			}
		})
	}
}

func TestClickModes(t *testing.T) {
	t.Parallel()
	for mode, want := range map[clicks.Mode]int{clicks.ModeTotals: 2, clicks.ModeOff: 0} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			r := newClickRig(t)
			r.config.Clicks.Mode = mode
			c := r.process()
			c.Click(link.Link{Name: "a"}, clicks.Click{At: r.clock.Now()})
			c.Created(1)
			r.flush(c)
			rows := 0
			for _, days := range r.Clicked() {
				rows += len(days)
			}
			if rows != want || want == 0 && len(r.proxy.Calls()) != 0 {
				t.Errorf("%d rows, want %d; %v", rows, want, r.proxy.Calls())
			}
			if keys := r.Rows(r.State); len(keys) != 0 {
				t.Errorf("a key was made: %v", keys)
			}
		})
	}
}

// Clicks come while counts are written, calls fail, and the process stops: the last flush loses
// nothing.
func TestClicksWhileFlushing(t *testing.T) {
	t.Parallel()
	r := newClickRig(t)
	c := r.process()
	rng := rand.New(rand.NewPCG(1, 2))
	var mu sync.Mutex
	r.faults(func(faultproxy.Call) faultproxy.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch p := rng.IntN(20); p {
		case 0:
			return faultproxy.Refuse
		case 1, 2:
			return faultproxy.DropResponse
		}
		return faultproxy.None
	})
	running, stop := context.WithCancel(ctx)
	var flushing, clicking sync.WaitGroup
	flushing.Go(func() { c.FlushRegularly(running) })
	flushing.Go(func() { // more often than that does
		for running.Err() == nil {
			_ = c.Flush(running)
		}
	})
	var counts [10]atomic.Int64
	for i := range 4 {
		clicking.Go(func() {
			for n := range 1000 {
				alias := (i + n) % len(counts)
				c.Click(link.Link{Name: link.Name(fmt.Sprint("a", alias))}, clicks.Click{At: r.clock.Now(),
					Visitor: visitor(n)})
				c.Click(link.Link{Name: "bots"}, clicks.Click{At: r.clock.Now(), Bot: true})
				c.Created(1)
				counts[alias].Add(1)
				time.Sleep(100 * time.Microsecond)
			}
		})
	}
	clicking.Wait()
	stop() // in the middle of a flush, perhaps
	flushing.Wait()
	for i := range counts {
		r.counted[fmt.Sprint("a", i)] = counts[i].Load()
		r.counted[clicks.All] += counts[i].Load()
	}
	r.counted["bots"], r.bots, r.created = 0, 4000, 4000
	r.flush(c)
	r.want("at the end")
	var rows int
	for _, c := range r.Clicked()["a0"] {
		rows += c.Rows
	}
	t.Logf("%d rows of one alias", rows)
}
