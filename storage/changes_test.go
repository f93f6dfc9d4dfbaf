package storage_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
	"tiney/storage"
	"tiney/storage/table"
)

// past is more than the time after which a process that serves from its cache asks for the changes
// of others.
const past = 15*time.Second + 1

// followed returns a rig whose instances ask for changes.
func followed(t *testing.T) *rig {
	r := newRig(t)
	r.config.ChangesEvery = 5 * time.Second
	return r
}

// cached waits until an instance serves an alias without a call.
func (r *rig) cached(s *storage.Links, a link.Name) {
	r.t.Helper()
	testutil.Eventually(r.t, "it is cached", func() bool {
		return len(r.calls(func() { s.Get(ctx, a) })) == 0
	})
}

const poll, read = "QueryEntities ShortUrlsState", "GetEntity ShortUrls"

func (r *rig) wantCalls(what string, want []string, do func()) {
	r.t.Helper()
	if got := r.calls(do); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		r.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// What one instance has cached, and another one changes, is right within 15 seconds.
func TestAChangeIsSeenEverywhere(t *testing.T) {
	t.Parallel()
	now := func(r *rig) time.Time { return r.clock.Now() }
	for name, test := range map[string]struct {
		before func(*rig, *storage.Links)
		change doing
		want   func(*rig, link.Link) bool
	}{
		"target": {there("a", url1, 0),
			setURL(url2), func(_ *rig, l link.Link) bool { return l.LongURL == url2 }},
		"end": {there("a", url1, time.Hour),
			setEnd(0), func(_ *rig, l link.Link) bool { return l.ExpiresAt.IsZero() }},
		"delete": {there("a", url1, time.Hour),
			deleteOne, func(r *rig, l link.Link) bool {
				return l.State(now(r)) == link.StateDeleted
			}},
		"restore": {there("a", url1, time.Hour, deleteOne),
			restoreOne, func(r *rig, l link.Link) bool {
				return l.State(now(r)) == link.StateLive
			}},
		"claim": {there("", url1, time.Hour), claim("b", false), func(_ *rig, l link.Link) bool {
			return l.Owner == "b"
		}},
		"chosen alias": {nil, create("a", "one", url1, 0), func(_ *rig, l link.Link) bool {
			return l.LongURL == url1
		}},
		"nobody's, too": {nil, create("", "one", url1, time.Hour), func(_ *rig, l link.Link) bool {
			return l.LongURL == url1
		}},
		"disabled": {there("a", url1, 0),
			edit(func(_ time.Time, l link.Link) (link.Link, error) {
				l.Disabled = true
				return l,
					nil
			}),
			func(_ *rig, l link.Link) bool { return l.Disabled }},
		"status code": {there("a", url1, 0),
			edit(func(_ time.Time, l link.Link) (link.Link, error) {
				l.StatusCode = 308
				return l,
					nil
			}),
			func(_ *rig, l link.Link) bool { return l.StatusCode == 308 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := followed(t)
			here, elsewhere := r.open(withCache), r.open(withCache)
			if test.before != nil {
				test.before(r, here)
			}
			if name != "restore" { // what is deleted is not cached
				r.cached(elsewhere, "one")
			}
			r.cached(here, "another")
			must(t, test.change(ctx, r, here))
			if l, err := here.Get(ctx, "one"); err != nil || !test.want(r, l) {
				t.Errorf("here: got %+v, %v", l, err)
			}
			r.clock.Advance(past)
			if l, err := elsewhere.Get(ctx, "one"); err != nil || !test.want(r, l) {
				t.Errorf("elsewhere: got %+v, %v", l, err)
			}
		})
	}
}

// An instance acknowledges a change that another one has made before. It writes nothing, but shows
// the change at once.
func TestAChangeThatAnotherInstanceHasMade(t *testing.T) {
	t.Parallel()
	r := followed(t)
	here, elsewhere := r.open(withCache), r.open(withCache)
	there("a", url1, 0)(r, here)
	r.cached(elsewhere, "one")
	for _, s := range []*storage.Links{here, elsewhere} {
		must(t, setURL(url2)(ctx, r, s))
	}
	if l, err := elsewhere.Get(ctx, "one"); err != nil || l.LongURL != url2 {
		t.Errorf("got %+v, %v", l, err)
	}
}

// A delete overtakes the response of a write that came before it. Found by
// internal/testing/simulation.
func TestAChangeThatOvertakesAShare(t *testing.T) {
	t.Parallel()
	r := followed(t)
	exact := *withCache
	exact.Exact = true
	s := r.open(&exact)
	there("", url1, time.Hour)(r, s)
	var deleting atomic.Bool
	r.proxy.After(func(c faultproxy.Call) {
		if c.Operation == "UpdateEntity" && c.Target == r.Links && !deleting.Swap(true) {
			should(t, deleteOneByAdmin(ctx, r, s))
		}
	})
	if err := create("", "", url1, time.Hour)(ctx, r, s); err != nil || !deleting.Load() {
		t.Fatal(err)
	}
	if l, err := s.Get(ctx, "one"); err != nil || l.State(r.clock.Now()) != link.StateDeleted {
		t.Errorf("got %+v, %v", l, err)
	}
}

func TestChangesAreAskedForAsLittleAsPossible(t *testing.T) {
	t.Parallel()
	r := followed(t)
	s := r.open(withCache)
	there("a", url1, 0)(r, s)
	r.cached(s, "one")
	get := func() {
		if l, err := s.Get(ctx, "one"); err != nil || l.LongURL != url1 {
			t.Errorf("got %+v, %v", l, err)
		}
	}
	r.clock.Advance(past - 1)
	r.wantCalls("after 15 seconds", nil, get)
	r.clock.Advance(1)
	// Its own changes are of the last minute, so it forgets those links, too.
	r.wantCalls("past 15 seconds", []string{poll, read}, get)
	r.cached(s, "one")
	r.clock.Advance(2 * time.Minute)
	r.wantCalls("after two minutes", []string{poll, read}, get)
	r.cached(s, "one")
	r.clock.Advance(2 * time.Minute)
	r.wantCalls("after four minutes", []string{poll}, get)
	r.clock.Advance(past)
	r.wantCalls("all who come at once", []string{poll}, func() {
		release := make(chan struct{})
		r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { <-release; return faultproxy.None })
		var all sync.WaitGroup
		var waiting atomic.Int64
		for range 100 {
			all.Go(func() { s.Get(storage.WatchedContext{Context: ctx, Waiting: &waiting}, "one") })
		}
		testutil.Eventually(t, "all wait for the poll", func() bool { return waiting.Load() == 100 })
		close(release)
		all.Wait()
	})
}

func TestChangesAreFollowed(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.ChangesEvery = time.Millisecond // by the machine's clock; the rig's stands still
	follow := func() (*storage.Links, *telemetry.Metrics) {
		r.config.Metrics = new(telemetry.Metrics)
		s := r.open(withCache)
		ctx, cancel := context.WithCancel(ctx)
		var ended sync.WaitGroup
		ended.Go(func() { s.FollowChanges(ctx) })
		t.Cleanup(func() { cancel(); ended.Wait() })
		return s, r.config.Metrics
	}
	busy, busyMetrics := follow()
	idle, idleMetrics := follow()
	there("a", url1, 0)(r, r.other())
	get := func(s *storage.Links, url string) func() bool {
		return func() bool { l, err := s.Get(ctx, "one"); return err == nil && l.LongURL == url }
	}
	testutil.Eventually(t, "both have the link", func() bool {
		return get(busy, url1)() &&
			get(idle, url1)()
	})
	must(t, setURL(url2)(ctx, r, r.other()))
	testutil.Eventually(t, "both have the change", func() bool {
		return get(busy, url2)() &&
			get(idle, url2)()
	})

	// From now on one of them gets no requests.
	r.clock.Advance(past)
	before := idleMetrics.ChangesPolls.Value()
	testutil.Eventually(t, "the other one has asked a hundred times", func() bool {
		busy.Get(ctx, "one")
		return busyMetrics.ChangesPolls.Value() >= before+100
	})
	if got := idleMetrics.ChangesPolls.Value() - before; got > 1 { // one may have been under way
		t.Errorf("an idle process has asked %d times", got)
	}
}

func TestChangesThatCannotBeAskedFor(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fault faultproxy.Fault
		ctx   context.Context
		tries int
	}{
		"busy": {faultproxy.ServerBusy, ctx, 3}, "limiting": {faultproxy.TooManyRequests, ctx, 1},
		"frozen": {faultproxy.Freeze, ctx, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := followed(t)
			s := r.open(withCache)
			there("a", url1, 0)(r, s)
			r.clock.Advance(10 * time.Minute)
			r.cached(s, "one")
			// get gets the link, and returns how often it waited.
			get := func(s *storage.Links, want string) int64 {
				t.Helper()
				var waits atomic.Int64
				l, err := s.Get(storage.WatchedContext{Context: test.ctx, Waiting: &waits}, "one")
				if err != nil || l.LongURL != want {
					t.Errorf("got %+v, %v, want %s", l, err, want)
				}
				return waits.Load()
			}
			polls := func(n int) (all []string) {
				for range n {
					all = append(all, poll)
				}
				return all
			}
			r.clock.Advance(past)
			// A poll that is frozen outlives its requests; it sets this last of all.
			defer testutil.Eventually(t, "the poll has ended", func() bool { return r.metrics.ChangesAge.Value() > 0 || test.fault != faultproxy.Freeze })
			begun := time.Now()
			fail := func() { r.proxy.Before(faultproxy.On("QueryEntities", r.State, test.fault)) }
			r.wantCalls("the first one", append(polls(test.tries), read), func() {
				fail()
				if waits := get(s, url1); waits != 2 {
					t.Errorf("waited %d times, want for the poll and for the table", waits)
				}
			})
			must(t, setURL(url2)(ctx, r, r.other()))
			for range 3 {
				r.wantCalls("nobody waits until the next one is due", []string{read}, func() {
					fail()
					if waits := get(s, url2); waits != 1 {
						t.Errorf("waited %d times, want for the table alone", waits)
					}
				})
			}
			r.clock.Advance(5 * time.Second)
			if test.fault == faultproxy.Freeze {
				if time.Since(begun) > table.Timeout/2 {
					return // on a machine that slow, the first one may have ended
				}
				test.tries = 0 // it is still under way
			}
			r.wantCalls("the next one", append(polls(test.tries), read), func() {
				fail()
				get(s, url2)
			})
			r.wantCalls("and then", []string{read}, func() {
				fail()
				if waits := get(s, url2); waits != 1 {
					t.Errorf("waited %d times, want for the table alone", waits)
				}
			})
			// The table fails as well: it is an outage, and the link is served as it was last
			// known.
			r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { return faultproxy.Refuse })
			get(s, url2)
			r.proxy.Reset()
			if test.fault == faultproxy.Freeze {
				return
			}
			r.clock.Advance(5 * time.Minute)
			r.wantCalls("when it is over", []string{poll, read}, func() { get(s, url2) })
			r.cached(s, "one")
			if polls, failed := r.metrics.ChangesPolls.Value(),
				r.metrics.ChangesFailed.Value(); failed < 2 || polls <= failed {
				t.Errorf("%d polls, %d failed", polls, failed)
			}
		})
	}
}

// Rows are kept for an hour. After half of it without a poll, nothing that was cached is trusted.
func TestAProcessThatDidNotAskForHalfAnHour(t *testing.T) {
	t.Parallel()
	r := followed(t)
	s := r.open(&storage.CacheConfig{Bytes: 10 << 20, Fresh: 3 * time.Hour, Negative: 3 * time.Hour,
		Stale: time.Hour})
	there("a", url1, 0)(r, s)
	r.clock.Advance(10 * time.Minute)
	for _, a := range []link.Name{"one", "nobody"} {
		r.cached(s, a)
	}
	r.clock.Advance(30 * time.Minute)
	r.wantCalls("after 30 minutes", []string{poll}, func() { s.Get(ctx, "one") })
	r.wantCalls("not found, after 30 minutes", nil, func() { s.Get(ctx, "nobody") })
	r.clock.Advance(30*time.Minute + 1)
	// the second one is for the blocked hosts
	r.wantCalls("after more", []string{poll, poll, read}, func() { s.Get(ctx, "one") })
	r.wantCalls("not found, after more", []string{read}, func() { s.Get(ctx, "nobody") })
	for _, a := range []link.Name{"one", "nobody"} {
		r.clock.Advance(time.Second) // what is cached at the very instant counts as older
		r.cached(s, a)
	}
	r.clock.Advance(31 * time.Minute)
	r.proxy.Before(faultproxy.On("GetEntity", r.Links, faultproxy.Refuse))
	if l, err := s.Get(ctx, "one"); err != nil || l.LongURL != url1 {
		t.Errorf("in an outage after that: got %+v, %v", l, err)
	}
	if _, err := s.Get(ctx, "nobody"); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("not found, in an outage: %v", err)
	}
}

func TestChangesAreOff(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(withCache)
	there("a", url1, 0)(r, s)
	r.cached(s, "one")
	must(t, setURL(url2)(ctx, r, r.other()))
	r.clock.Advance(10 * time.Minute)
	r.wantCalls("while it is fresh", nil, func() { s.Get(ctx, "one") })
	r.clock.Advance(5 * time.Minute)
	r.wantCalls("afterwards", []string{read}, func() {
		if l, err := s.Get(ctx, "one"); err != nil || l.LongURL != url2 {
			t.Errorf("got %+v, %v", l, err)
		}
	})
	s.FollowChanges(ctx) // returns at once
}

// manyAliases are names that nobody has, of more than one page, and in the order of their keys
// before "one".
func manyAliases() (all []link.Name) {
	for i := range 1100 {
		all = append(all, link.Name(fmt.Sprintf("n%04d", i)))
	}
	return all
}

// A poll reads the announcements since one minute before the last successful poll began, to the
// second, and no earlier ones.
func TestRowsOfAPoll(t *testing.T) {
	t.Parallel()
	r := followed(t)
	// so that a minute begins among the rows
	r.clock.Advance(r.clock.Now().Truncate(time.Minute).Add(time.Minute + 20*time.Second +
		300*time.Millisecond).Sub(r.clock.Now()))
	s := r.open(withCache)
	begun := r.clock.Now()
	seen := map[string]bool{}
	for ago := range 180 {
		at := begun.Add(-time.Duration(ago) * time.Second).UTC()
		name := fmt.Sprintf("n%03d", ago)
		r.Put(r.State, rawtables.Entity{"PartitionKey": "change|" + at.Format("200601021504"),
			"RowKey": at.Format("05|") + name})
		r.cached(s, link.Name(name))
	}
	s.Get(ctx, "other") // polls
	r.clock.Advance(past)
	r.wantCalls("the poll", []string{poll, read}, func() { s.Get(ctx, "one more") })
	for ago := range 180 {
		name := fmt.Sprintf("n%03d", ago)
		if calls := r.calls(func() { s.Get(ctx, link.Name(name)) }); len(calls) > 0 {
			seen[name] = true
		}
	}
	for ago := range 180 {
		if name := fmt.Sprintf("n%03d", ago); seen[name] != (ago <= 60) {
			t.Errorf("%d s before the last poll: read %t", ago, seen[name])
		}
	}
}

func TestMoreChangesThanAPageHolds(t *testing.T) {
	t.Parallel()
	r := followed(t)
	s := r.open(withCache)
	there("a", url1, 0)(r, s)
	r.cached(s, "one")
	r.clock.Advance(10 * time.Minute)
	r.wantCalls("before", []string{poll, read}, func() { s.Get(ctx, "one") })
	r.cached(s, "one")
	other := r.other()
	for _, a := range manyAliases() {
		r.Put(r.State, rawtables.Entity{"PartitionKey": "change|" +
			r.clock.Now().UTC().Format("200601021504"), "RowKey": "00|" + string(a)})
	}
	if _, err := editAll(ctx, other, []link.Name{"one"}, func(_ int, l link.Link) (link.Link,
		error) {
		l.LongURL = url2
		return l, nil
	}); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(past)
	polls := r.metrics.ChangesPolls.Value()
	calls := r.calls(func() {
		if l, err := s.Get(ctx, "one"); err != nil || l.LongURL != url2 {
			t.Errorf("got %+v, %v", l, err)
		}
		// On a busy machine the poll takes longer than a request waits for it.
		testutil.Eventually(t, "the poll has ended", func() bool { return r.metrics.ChangesPolls.Value() > polls })
	})
	pages := len(r.proxy.Calls()) - 1
	if slices.Sort(calls); !slices.Equal(slices.Compact(calls), []string{read, poll}) || pages != 3 {
		t.Errorf("after that: %q, %d pages", calls, pages)
	}
	if failed := r.metrics.ChangesFailed.Value(); failed != 0 {
		t.Errorf("%d polls have failed", failed)
	}

	// When nobody needs them any more, the reaper drops them, also where somebody else drops one of
	// them, or it gets no response.
	r.clock.Advance(30 * time.Minute)
	must(t, setURL(url3)(ctx, r, other))
	r.clock.Advance(31 * time.Minute)
	var first sync.Once
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == batch && c.Target == r.State && c.Rows == 100 {
			first.Do(func() {
				partition, _ := url.PathUnescape(c.Partition)
				r.Drop(r.State, rawtables.Entity{"PartitionKey": partition, "RowKey": "00|n0042"})
			})
		}
		return faultproxy.None
	})
	for range 2 {
		if done, err := s.Reap(ctx); err != nil || !done.Complete {
			t.Errorf("got %+v, %v", done, err)
		}
	}
	if rows := r.Rows(r.State); len(rows) != 1 || !strings.HasSuffix(rows[0]["RowKey"].(string), "|one") {
		t.Errorf("%d rows are left: %v", len(rows), rows[:min(len(rows), 3)])
	}
	r.clock.Advance(time.Hour)
	for _, fault := range []faultproxy.Fault{faultproxy.ServerBusy, faultproxy.None} {
		r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
			if c.Target == r.State && c.Operation != "QueryEntities" {
				return fault
			}
			return faultproxy.None
		})
		done, err := s.Reap(ctx)
		if failed := errors.Is(err, link.ErrUnavailable); failed != (fault != faultproxy.None) ||
			done.Complete == failed {
			t.Errorf("%v: got %+v, %v", fault, done, err)
		}
	}
	if rows := r.Rows(r.State); len(rows) != 0 {
		t.Errorf("left: %v", rows)
	}
}

// A read is under way while its link is changed, and its response arrives when the change is known
// here.
func TestAReadThatWasUnderWayIsNotCached(t *testing.T) {
	t.Parallel()
	for name, byOther := range map[string]bool{"changed elsewhere": true, "changed here": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := followed(t)
			s := r.open(withCache)
			there("a", url1, 0)(r, r.other())
			var begun atomic.Bool
			r.proxy.After(func(c faultproxy.Call) {
				if c.Operation != "GetEntity" || c.Target != r.Links || begun.Swap(true) {
					return
				}
				who := s
				if byOther {
					who = r.other()
				}
				should(t, setURL(url2)(ctx, r, who))
				r.clock.Advance(past)
				if _, err := s.Get(ctx, "another"); !errors.Is(err, link.ErrNotFound) {
					t.Error(err)
				}
			})
			if _, err := s.Get(ctx, "one"); err != nil {
				t.Error(err)
			}
			if l, err := s.Get(ctx, "one"); err != nil || l.LongURL != url2 {
				t.Errorf("got %+v, %v", l, err)
			}
		})
	}
}

// A process stands still while a response is on its way to it, for longer than changes are kept.
// What the response says is as old as its call, and is not cached as fresh.
func TestAResponseThatIsOlderThanChangesAreKept(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		operation
		call string
	}{
		"of a read": {operation{there("a", url1, 0), func(ctx context.Context, _ *rig,
			s *storage.Links) error {
			_, err := s.Get(ctx, "one")
			return err
		}}, "GetEntity"},
		"of a create": {operation{nil, create("a", "one", url1, 0)}, "InsertEntity"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := followed(t)
			s, other := r.open(withCache), r.other()
			r.begin(test.operation, other)
			var begun atomic.Bool
			r.proxy.After(func(c faultproxy.Call) {
				if c.Operation != test.call || c.Target != r.Links || begun.Swap(true) {
					return
				}
				r.clock.Advance(time.Minute)
				should(t, setURL(url2)(ctx, r, other))
				r.clock.Advance(31 * time.Minute)
				// the first request gets a poll
				if _, err := s.Get(ctx, "another"); !errors.Is(err, link.ErrNotFound) {
					t.Error(err)
				}
				r.clock.Advance(time.Millisecond)
			})
			if err := test.do(ctx, r, s); err != nil && !errors.Is(err, link.ErrUnavailable) {
				t.Error(err)
			}
			s.WaitForCache()
			for range 3 {
				r.clock.Advance(10 * time.Second)
				if l, err := s.Get(ctx, "one"); err != nil || l.LongURL != url2 {
					t.Errorf("got %+v, %v", l, err)
				}
			}
		})
	}
}

func TestWhatCannotBeToldIsNotDone(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]doing{
		"edit": setURL(url2), "claims": claim("a", false), "chosen alias": create("a", "two", url2,
			0), "delete": deleteOne,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := r.open(withCache)
			there("", url1, time.Hour)(r, s)
			before := fmt.Sprint(r.Rows(r.Links), r.Rows(r.Index), r.Rows(r.Expiry),
				r.Rows(r.Owners))
			r.proxy.Before(faultproxy.On("", r.State, faultproxy.ServerBusy))
			if err := do(ctx, r, s); !errors.Is(err, link.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			if after := fmt.Sprint(r.Rows(r.Links), r.Rows(r.Index), r.Rows(r.Expiry),
				r.Rows(r.Owners)); after != before {
				t.Errorf("left %s, want %s", after, before)
			}
			if l, err := s.Get(ctx, "one"); err != nil || l.LongURL != url1 {
				t.Errorf("got %+v, %v", l, err)
			}
		})
	}
}

// The table of changes is made when it is missing, by whoever needs it first.
func TestTheTableOfChangesIsMissing(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]doing{
		"one change": setURL(url2),
		"several": func(ctx context.Context, r *rig, s *storage.Links) error {
			_, err := editAll(ctx, s, []link.Name{"one", "two"}, func(_ int,
				l link.Link) (link.Link, error) {
				l.LongURL = url2
				return l, nil
			})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := followed(t)
			there("a", url1, 0)(r, r.open(nil))
			r.DropTable(r.State)
			s := r.other()
			should(t, do(ctx, r, s))
			if l, err := s.Read(ctx, "one"); err != nil || l.LongURL != url2 {
				t.Errorf("got %+v, %v", l, err)
			}
			cached := r.open(withCache)
			r.DropTable(r.State)
			r.clock.Advance(past)
			if l, err := cached.Get(ctx, "one"); err != nil || l.LongURL != url2 {
				t.Errorf("got %+v, %v", l, err)
			}
			if done, err := s.Reap(ctx); err != nil || !done.Complete {
				t.Errorf("got %+v, %v", done, err)
			}
		})
	}
}

// Others look for what was announced for about a minute, so what takes longer than an edit may is
// not done any more.
func TestEditsThatWereAnnouncedTooLongAgo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	there("", url1, time.Hour)(r, s)
	r.proxy.After(func(c faultproxy.Call) {
		if c.Operation == "UpdateEntity" && c.Target == r.Links {
			r.clock.Advance(table.Timeout + time.Second)
		}
	})
	errs, err := editAll(ctx, s, []link.Name{"one", "one"}, func(i int, l link.Link) (link.Link,
		error) {
		l.Title = fmt.Sprint("title ", i)
		return l, nil
	})
	if err != nil || !errors.Is(errs[0], link.ErrUnavailable) ||
		!errors.Is(errs[1], link.ErrUnavailable) {
		t.Errorf("got %v, %v", errs, err)
	}
	if l, err := s.Read(ctx, "one"); err != nil || l.Title != "title 0" {
		t.Errorf("got %+v, %v", l, err)
	}
}

// A link that is cached before its start starts on time, and leads afterwards where it is to.
func TestACachedLinkStartsLater(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(withCache)
	there("a", url1, 0)(r, s)
	starts := r.clock.Now().Add(time.Hour).UTC().Truncate(time.Second)
	if _, err := s.Edit(ctx, "one", false, func(l link.Link) (link.Link, error) {
		l.StartsAt, l.GoneURL = starts, "https://example.com/over"
		return l, nil
	}); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(time.Second) // what was read at the very instant of a change is not cached
	r.cached(s, "one")
	l, ok := s.Cached(ctx, "one", false)
	if !ok || !l.StartsAt.Equal(starts) || l.GoneURL != "https://example.com/over" {
		t.Errorf("got %+v, %t", l, ok)
	}
}
