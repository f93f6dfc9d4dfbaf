package storage_test

import (
	"context"
	"errors"
	"fmt"
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

// errRefused is why an opening of a link that has ended leads nowhere.
var errRefused = errors.New("it leads nowhere")

// openOne opens the link "one".
func openOne(ctx context.Context, r *rig, s *storage.Links) error {
	_, err := s.Open(ctx, "one", func(l link.Link) error {
		if l.State(r.clock.Now()) != link.StateLive {
			return errRefused
		}
		return nil
	})
	return err
}

// openUp opens the link "one", which may be used up.
func openUp(ctx context.Context, r *rig, s *storage.Links) error {
	return openedOr(openOne(ctx, r, s))
}

// setMaxOpens returns an operation that says how often the link "one" may be opened from now on;
// zero: no limit.
func setMaxOpens(n int64) doing {
	return edit(func(now time.Time, l link.Link) (link.Link, error) {
		return link.Rules{}.Edit(l, link.Patch{MaxOpens: &n}, link.Actor{Admin: true, Own: true},
			now)
	})
}

func setTitle(title string) doing {
	return edit(func(now time.Time, l link.Link) (link.Link, error) {
		l.Title, l.UpdatedAt = title, now
		return l, nil
	})
}

// times returns an operation that is another one, several times.
func times(n int, do doing) doing { return both(slices.Repeat([]doing{do}, n)...) }

// opens is what the row of the link "one" says of its openings.
type opens struct {
	max, left     any
	id, end, kept any
}

func (r *rig) opens() opens {
	r.t.Helper()
	row := r.row(r.Links, "on", "one")
	if row == nil {
		r.t.Fatal("there is no link")
	}
	return opens{row["MaxOpens"], row["OpensLeft"], row["OpenId"], row["ExpiresAtUtc"],
		row["ExpiresAtUtcKept"]}
}

func (r *rig) wantLeft(want float64) {
	r.t.Helper()
	if got := r.opens(); got.left != want {
		r.t.Errorf("%v openings are left, want %v", got.left, want)
	}
}

// leads reports whether an expiry row of the link "one" is due at a time.
func (r *rig) leads(at time.Time) bool {
	due := rawtables.Due("one", at)
	return r.row(r.Expiry, due["PartitionKey"].(string), due["RowKey"].(string)) != nil
}

// soon is when the expiry row of a last opening is due.
func (r *rig) soon() time.Time { return r.clock.Now().Add(2*time.Minute + time.Second) }

// onNth returns a function for Before that does something at the nth call of an operation on a
// table, and a fault to that call.
func onNth(n int64, operation, table string, fault faultproxy.Fault,
	do func()) func(faultproxy.Call) faultproxy.Fault {
	var seen atomic.Int64
	return func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation != operation || c.Target != table || seen.Add(1) != n {
			return faultproxy.None
		}
		if do != nil {
			do()
		}
		return fault
	}
}

// updateEntity is a merge, a replacement or an upsert.
const updateEntity = "UpdateEntity"

// onFirstWrite lets the first write of the link meet a fault, and does something before its retry,
// unless that is nil.
func (r *rig) onFirstWrite(fault faultproxy.Fault, meanwhile doing, other *storage.Links) {
	lost := false
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		switch {
		case c.Operation != updateEntity || c.Target != r.Links:
		case !lost:
			lost = true
			return fault
		case meanwhile != nil:
			must(r.t, meanwhile(ctx, r, other))
			meanwhile = nil
		}
		return faultproxy.None
	})
}

// wantUnknown checks the error of what has lost a response. It is nil unless nobody can know what
// came of it.
func (r *rig) wantUnknown(unknown bool, err error) {
	r.t.Helper()
	if unknown != errors.Is(err, link.ErrUnavailable) || !unknown && err != nil {
		r.t.Errorf("got %v", err)
	}
}

func TestOpeningsAtOnce(t *testing.T) {
	t.Parallel()
	for _, faults := range []bool{false, true} {
		t.Run(fmt.Sprintf("with responses lost: %t", faults), func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			s := r.instance()
			there("a", url1, time.Hour, setMaxOpens(7))(r, other)
			if faults {
				r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
					return []faultproxy.Fault{faultproxy.None, faultproxy.DropResponse,
						faultproxy.Refuse}[c.N%3]
				})
			}
			var opened, refused, unknown atomic.Int64
			var all sync.WaitGroup
			for i := range 24 {
				all.Go(func() {
					switch err := openOne(ctx, r, []*storage.Links{s, other}[i%2]); {
					case err == nil:
						opened.Add(1)
					case errors.Is(err, errRefused):
						refused.Add(1)
					case errors.Is(err, link.ErrUnavailable):
						unknown.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			all.Wait()
			r.proxy.Reset()
			if n := opened.Load(); n > 7 || !faults && n != 7 || n+unknown.Load() < 7 ||
				!faults && unknown.Load() > 0 {
				t.Errorf("opened %d times, refused %d times, %d unknown", n, refused.Load(),
					unknown.Load())
			}
			for range 7 { // what is left, if anything
				_ = openOne(ctx, r, other)
			}
			r.wantLeft(0)
			r.endAll(other)
			if s.Turns()+other.Turns() > 0 {
				t.Error("turns are left")
			}
		})
	}
}

func TestTheLastOpeningEndsTheLink(t *testing.T) {
	t.Parallel()
	for name, life := range map[string]time.Duration{"for ever": 0, "for hours": 5 * time.Hour,
		"until the row of its last opening": 2*time.Minute + time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			s := r.open(withCache)
			there("a", url1, life, setMaxOpens(2), openOne)(r, other)
			before := r.opens()
			if l, err := s.Get(ctx, "one"); err != nil || l.OpensLeft != 1 || l.UsedUp() {
				t.Errorf("before: %+v, %v", l, err)
			}
			must(t, openOne(ctx, r, other))
			after := r.opens()
			now := r.clock.Now().UTC().Format(time.RFC3339)
			if after.left != 0.0 || after.kept != before.end || after.id == before.id ||
				!strings.HasPrefix(fmt.Sprint(after.end), now[:len(now)-1]) {
				t.Errorf("%+v, and then %+v", before, after)
			}
			// It was not served from the cache.
			if l, err := s.Get(ctx, "one"); err != nil || l.State(r.clock.Now()) != link.StateExpired {
				t.Errorf("after: %+v, %v", l, err)
			}
			if err := openOne(ctx, r, s); !errors.Is(err, errRefused) {
				t.Errorf("opened once more: %v", err)
			}
			if !r.leads(r.soon()) {
				t.Errorf("its expiry rows are %v", r.Rows(r.Expiry))
			}
			r.WantNoLeak()
			r.clock.Advance(2 * time.Minute)
			must(t, reap(ctx, r, other))
			if row := r.Rows(r.Links)[0]; row["GoneReason"] != nil {
				t.Errorf("reaped too early: %v", row)
			}
			r.clock.Advance(time.Second)
			must(t, reap(ctx, r, other))
			if row := r.Rows(r.Links)[0]; row["GoneReason"] != "expired" || row["MaxOpens"] != nil {
				t.Errorf("not reaped: %v", row)
			}
			if err := openOne(ctx, r, s); !errors.Is(err, errRefused) {
				t.Errorf("the tombstone is opened: %v", err)
			}
			r.clock.Advance(5 * time.Hour)
			must(t, reap(ctx, r, other))
			r.endAll(other)
		})
	}
}

func TestMaxOpensGivesTheEndBack(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{0, 4} {
		for _, life := range []time.Duration{0, 5 * time.Hour} {
			t.Run(fmt.Sprint(n, life), func(t *testing.T) {
				t.Parallel()
				r, other := newCrashRig(t)
				there("a", url1, life, setMaxOpens(1))(r, other)
				end := r.opens().end
				must(t, openOne(ctx, r, other))
				r.clock.Advance(time.Minute)
				at := r.wish("", "", url1, life).ExpiresAt.Add(-time.Minute)
				if life > 0 {
					r.Drop(r.Expiry, rawtables.Due("one", at))
				}
				r.proxy.Before(onNth(1, updateEntity, r.Links, faultproxy.None, func() {
					guarded := slices.ContainsFunc(r.Rows(r.Expiry), func(row rawtables.Entity) bool {
						return row["NewIndexKey"] == rawtables.IndexKey("a", url1)
					})
					if !guarded || life > 0 && !r.leads(at) {
						t.Errorf("before it was written, its expiry rows are %v", r.Rows(r.Expiry))
					}
				}))
				must(t, setMaxOpens(n)(ctx, r, r.instance()))
				r.proxy.Reset()
				got := r.opens()
				want := opens{float64(n), float64(n), got.id, end, nil}
				if n == 0 {
					want = opens{end: end}
				}
				if got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
				leadsTo(url1)(t, r, other)
				r.clock.Advance(2 * time.Minute) // the row of the last opening is due
				must(t, reap(ctx, r, other))
				leadsTo(url1)(t, r, other)
				for range n {
					must(t, openOne(ctx, r, other))
				}
				if err := openOne(ctx, r, other); err != nil != (n > 0) {
					t.Errorf("afterwards: %v", err)
				}
				r.endAll(other)
			})
		}
	}
}

// Whatever else changes a link writes back what openings have made of it.
func TestOtherEditsKeepOpenings(t *testing.T) {
	t.Parallel()
	for name, opened := range map[string]int{"opened before": 1, "used up": 2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			there("a", url1, 5*time.Hour, setMaxOpens(2), times(opened, openOne))(r, other)
			want := r.opens()
			for i, do := range []doing{setTitle("new"), setURL(url2), transfer("b"), deleteOne,
				restoreOne, disableByAdmin} {
				must(t, do(ctx, r, other))
				if got := r.opens(); got != want {
					t.Errorf("edit %d: got %+v, want %+v", i, got, want)
				}
			}
			r.endAll(other)
		})
	}
}

// Deleted meanwhile, a link that is used up is not reaped as an expired one, and has ended when it
// is restored.
func TestAUsedUpLinkIsDeletedAndRestored(t *testing.T) {
	t.Parallel()
	r, other := newCrashRig(t)
	there("a", url1, 5*time.Hour, setMaxOpens(1), openOne, deleteOne, later(10*time.Minute), reap,
		restoreOne)(r, other)
	if l, err := other.Read(ctx, "one"); err != nil || l.State(r.clock.Now()) != link.StateExpired {
		t.Errorf("restored: %+v, %v", l, err)
	}
	r.WantNoLeak()
	must(t, both(later(10*time.Minute), reap)(ctx, r, other))
	if row := r.Rows(r.Links)[0]; row["GoneReason"] != "expired" {
		t.Errorf("not reaped: %v", row)
	}
	r.endAll(other)
}

// However many openings by other processes come between, an edit of the version that it has read is
// made: openings are no other version.
func TestAnEditAmongManyOpenings(t *testing.T) {
	t.Parallel()
	r, other := newCrashRig(t)
	there("a", url1, 5*time.Hour, setMaxOpens(100))(r, other)
	opened := 0
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == updateEntity && c.Target == r.Links && opened < 30 {
			opened++
			must(t, openOne(ctx, r, other))
		}
		return faultproxy.None
	})
	l, err := r.instance().Edit(ctx, "one", true, func(l link.Link) (link.Link, error) {
		l.Title = "new"
		return l, nil
	})
	if err != nil || l.Title != "new" || l.OpensLeft != 70 {
		t.Errorf("got %+v, %v", l, err)
	}
}

// A link that is deleted or used up keeps the expiry row of the end that it had, since it may get
// that back. Nothing of it is left once the link is reaped.
func TestReapLeavesNoRowOfAKeptEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]doing{"deleted": deleteOne,
		"used up":              both(setMaxOpens(1), openOne),
		"used up, and deleted": both(both(setMaxOpens(1), openOne), deleteOne),
	} {
		for _, tombstones := range []time.Duration{0, teststore.TombstoneKeep} {
			t.Run(fmt.Sprint(name, ", tombstones for ", tombstones), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.leaveTombstones(tombstones)
				s := r.open(nil)
				there("a", url1, 1000*dayLong, end)(r, s)
				kept := r.clock.Now().Add(1000 * dayLong)
				if !r.leads(kept) {
					t.Error("its end has no row")
				}
				must(t, both(later(31*dayLong), reap)(ctx, r, s))
				if r.leads(kept) {
					t.Error("the row of the end that it kept is left")
				}
				// Now a link with this alias and end may be made.
				must(t, both(later(tombstones+30*dayLong), reap)(ctx, r, s))
				r.WantRows(0, 0, 0)
				if found := r.Check(); len(found) > 0 {
					t.Errorf("found %q", found)
				}
			})
		}
	}
}

func TestAnOpeningWhoseResponseIsLost(t *testing.T) {
	t.Parallel()
	for _, n := range []int64{1, 3} {
		for name, test := range map[string]struct {
			fault     faultproxy.Fault
			meanwhile doing
			unknown   bool
			taken     float64
		}{
			"applied":                      {faultproxy.DropResponse, nil, false, 1},
			"not applied":                  {faultproxy.Refuse, nil, false, 1},
			"applied, and an edit":         {faultproxy.DropResponse, setTitle("x"), false, 1},
			"not applied, and an edit":     {faultproxy.Refuse, setTitle("x"), false, 1},
			"applied, and an opening":      {faultproxy.DropResponse, openUp, true, 2},
			"not applied, and an opening":  {faultproxy.Refuse, openUp, true, 1},
			"applied, and it is unlimited": {faultproxy.DropResponse, setMaxOpens(0), true, 0},
		} {
			if n == 1 && name == "applied, and an opening" {
				test.unknown, test.taken = false, 1 // the other one is refused
			}
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				t.Parallel()
				r, other := newCrashRig(t)
				there("a", url1, time.Hour, setMaxOpens(n+2), times(2, openOne))(r, other)
				s := r.instance()
				r.onFirstWrite(test.fault, test.meanwhile, other)
				r.wantUnknown(test.unknown, openOne(ctx, r, s))
				r.proxy.Reset()
				if got := r.opens(); test.taken > 0 && got.left != float64(n)-test.taken {
					t.Errorf("%v are left of %d", got.left, n)
				}
				r.endAll(other)
			})
		}
	}
}

// A setting whose response is lost is not written again after another edit: openings may have come
// between, too.
func TestASettingWhoseResponseIsLost(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		meanwhile doing
		unknown   bool
		left      float64
	}{
		"alone":                   {nil, false, 2},
		"an opening":              {openOne, false, 1},
		"an edit":                 {setTitle("x"), true, 2},
		"an opening, and an edit": {both(openOne, setTitle("x")), true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			there("a", url1, time.Hour, setMaxOpens(1), openOne)(r, other)
			r.onFirstWrite(faultproxy.DropResponse, test.meanwhile, other)
			r.wantUnknown(test.unknown, setMaxOpens(2)(ctx, r, r.instance()))
			r.proxy.Reset()
			r.wantLeft(test.left)
			r.endAll(other)
		})
	}
}

// An opening is no other version of a link: an edit of the version that it names tries again.
func TestAnEditOfAVersionMeetsOpenings(t *testing.T) {
	t.Parallel()
	changed := errors.New("it has another version")
	for name, test := range map[string]struct {
		meanwhile doing
		want      error
		title     string
	}{
		"an opening":      {openOne, nil, "mine"},
		"three openings":  {times(3, openOne), nil, "mine"},
		"another edit":    {setTitle("another's"), changed, "another's"},
		"another setting": {setMaxOpens(9), changed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			there("a", url1, time.Hour, setMaxOpens(5))(r, other)
			read, err := other.Read(ctx, "one")
			must(t, err)
			r.proxy.Before(onNth(1, updateEntity, r.Links, faultproxy.None, func() {
				must(t, test.meanwhile(ctx, r, other))
			}))
			_, err = r.instance().Edit(ctx, "one", true, func(l link.Link) (link.Link, error) {
				if l.Version != read.Version {
					return l, changed
				}
				l.Title = "mine"
				return l, nil
			})
			r.proxy.Reset()
			if !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if l, err := other.Read(ctx, "one"); err != nil || l.Title != test.title {
				t.Errorf("it is %+v, %v", l, err)
			}
			r.endAll(other)
		})
	}
}

// A process stands still in the last opening, and a reaper takes its expiry row away meanwhile.
func TestALastOpeningThatStoodStill(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault   faultproxy.Fault
		unknown bool
	}{
		"in time":               {faultproxy.None, false},
		"its response is lost":  {faultproxy.DropResponse, false},
		"no response ever came": {faultproxy.EmptyResponse, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			untilRepaired(t, func(r *rig) (check func()) {
				r.Make()
				other := r.other()
				there("a", url1, 0, setMaxOpens(1))(r, other)
				r.proxy.Before(onNth(1, updateEntity, r.Links, test.fault, func() {
					r.clock.Advance(10 * time.Minute)
					must(t, reap(ctx, r, other))
					if rows := r.Rows(r.Expiry); len(rows) > 0 && rows[0]["OldIndexKey"] == nil {
						t.Errorf("the reaper has left %v", rows)
					}
				}))
				err := openOne(ctx, r, r.instance())
				return func() {
					r.proxy.Reset()
					r.wantUnknown(test.unknown, err)
					if r.wantLeft(0); !r.leads(r.soon()) {
						t.Errorf("its expiry rows are %v", r.Rows(r.Expiry))
					}
					r.endAll(other)
				}
			})
		})
	}
	t.Run("before its merge", func(t *testing.T) {
		t.Parallel()
		r, other := newCrashRig(t)
		there("a", url1, 0, setMaxOpens(1))(r, other)
		r.proxy.Before(onNth(1, updateEntity, r.Expiry, faultproxy.None, func() {
			r.clock.Advance(10 * time.Second)
		}))
		if err := openOne(ctx, r, r.instance()); !errors.Is(err, link.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
		r.proxy.Reset()
		r.wantLeft(1)
		r.endAll(other)
	})
}

// Openings and edits of one link wait for each other in an instance, and an opening does not wait
// for longer than its time. Those of other links wait for nobody.
func TestOpeningsTakeTurns(t *testing.T) {
	t.Parallel()
	r, other := newCrashRig(t)
	there("a", url1, time.Hour, setMaxOpens(5))(r, other)
	two := r.wish("a", "two", url2, 0)
	two.MaxOpens, two.OpensLeft = 2, 2
	_, _, err := other.Create(ctx, two, "")
	must(t, err)
	s := r.instance()
	holds, release := make(chan struct{}), make(chan struct{})
	r.proxy.Before(onNth(1, updateEntity, r.Links, faultproxy.None, func() {
		close(holds)
		<-release
	}))
	var all sync.WaitGroup
	var done atomic.Int64
	start := func(do doing) {
		all.Go(func() {
			should(t, do(ctx, r, s))
			done.Add(1)
		})
	}
	start(openOne)
	<-holds
	start(openOne)
	start(setTitle("new"))
	if _, err := s.Open(ctx, "two", func(link.Link) error { return nil }); err != nil {
		t.Errorf("another link: %v", err)
	}
	hurried, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := openOne(hurried, r, s); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("an opening that has no time: %v", err)
	}
	writes := 0
	for _, c := range r.proxy.Calls() {
		if !reads(c) && c.Target == r.Links && c.Partition == "on" {
			writes++
		}
	}
	if writes != 1 || done.Load() != 0 {
		t.Errorf("%d writes, %d are done, and one has the turn", writes, done.Load())
	}
	close(release)
	all.Wait()
	r.proxy.Reset()
	r.wantLeft(3)
	if s.Turns() > 0 {
		t.Error("turns are left")
	}
	r.endAll(other)
}

// An opening or an edit of openings meets everything else at each of its calls, and may die there.
// Openings that were acknowledged are never more than there were, and without a death as many lead
// somewhere. Then the link has ended, and is reaped soon.
func TestOpeningsThatCross(t *testing.T) {
	t.Parallel()
	firsts := map[string]struct {
		n, sets int64 // openings before, and those that it sets
		do      func(count doing) doing
	}{
		"an opening":       {3, 0, func(count doing) doing { return count }},
		"the last opening": {1, 0, func(count doing) doing { return count }},
		"a setting":        {1, 2, func(doing) doing { return setMaxOpens(2) }},
		"a title":          {2, 0, func(doing) doing { return setTitle("first") }},
		"an end":           {2, 0, func(doing) doing { return setEnd(7 * time.Hour) }},
		"a deletion":       {2, 0, func(doing) doing { return both(deleteOne, restoreOne) }},
		"a reaper":         {2, 0, func(doing) doing { return reap }},
	}
	seconds := map[string]struct {
		sets int64
		do   func(count doing) doing
	}{
		"an opening": {0, func(count doing) doing { return count }},
		"openings":   {0, func(count doing) doing { return times(4, count) }},
		"a setting":  {2, func(doing) doing { return setMaxOpens(2) }},
		"openings, and one": {1, func(count doing) doing {
			return both(times(4, count), setMaxOpens(1))
		}},
		"a title":    {0, func(doing) doing { return setTitle("second") }},
		"an end":     {0, func(doing) doing { return setEnd(7 * time.Hour) }},
		"a deletion": {0, func(doing) doing { return both(deleteOne, restoreOne) }},
		"a reaper":   {0, func(doing) doing { return both(later(3*time.Minute), reap) }},
	}
	for firstName, first := range firsts {
		for secondName, second := range seconds {
			for _, dies := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, and %s, the first dies: %t", firstName, secondName, dies),
					func(t *testing.T) {
						t.Parallel()
						r, other := newCrashRig(t)
						var opened int64
						count := func(ctx context.Context, r *rig, s *storage.Links) error {
							err := openOne(ctx, r, s)
							if err == nil {
								opened++
							}
							return openedOr(err)
						}
						r.atEachCall(dies, func(n int) []faultproxy.Call {
							s := r.instance()
							opened = 0
							there("a", url1, 5*time.Hour, setMaxOpens(first.n))(r, other)
							var secondErr error
							r.meet(n, dies, func() { secondErr = second.do(count)(ctx, r, other) })
							begun := time.Now()
							err := first.do(count)(lifeOf(dies), r, s)
							calls := r.ended()
							for i, err := range []error{err, secondErr} {
								stood := secondName == "a reaper" && errors.Is(err, link.ErrUnavailable)
								if !(dies && i == 0) && !isOne(err, either) && !stood &&
									!tooSlow(err, begun) {
									t.Errorf("got %v, and %v", err, secondErr)
								}
							}
							row := r.Rows(r.Links)[0]
							if row["DeletedAtUtc"] != nil { // it died before it could restore it
								must(t, restoreOne(ctx, r, other))
							}
							reaped := row["GoneReason"] != nil
							met := len(calls) >= n
							for !reaped && openOne(ctx, r, other) == nil {
								if opened++; opened > 20 {
									break
								}
							}
							most, least := first.n+first.sets, first.n
							if met {
								most += second.sets
							}
							if first.sets > 0 || met && second.sets > 0 {
								least = 1
							}
							if opened > most || !dies && opened < least && !reaped {
								t.Errorf("opened %d times, of %d to %d", opened, least, most)
							}
							if l, err := other.Read(ctx, "one"); err == nil &&
								l.State(r.clock.Now()) != link.StateExpired {
								t.Errorf("it is %+v", l)
							}
							must(t, patiently(func() error {
								return both(later(5*time.Minute), reap)(ctx, r, other)
							}))
							if row = r.Rows(r.Links)[0]; row["GoneReason"] != "expired" {
								t.Errorf("not reaped: %v", row)
							}
							r.endAll(other)
							return calls
						})
					})
			}
		}
	}
}

// openedOr returns the error of an opening, nil if the link leads nowhere any more.
func openedOr(err error) error {
	if errors.Is(err, errRefused) {
		return nil
	}
	return err
}
