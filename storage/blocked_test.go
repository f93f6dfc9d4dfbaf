package storage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
	"tiney/storage"
)

const (
	badHost = link.Host("example.com") // of url1
	readOne = "GetEntity ShortUrlsState"
	readAll = poll // a query of the same table
)

// blocked is the row of a blocked host as another program writes it.
func (r *rig) blocked(h link.Host) rawtables.Entity {
	return rawtables.Entity{"PartitionKey": "blocked", "RowKey": string(h),
		"CreatedAtUtc":            r.clock.Now().Format(time.RFC3339),
		"CreatedAtUtc@odata.type": "Edm.DateTime"}
}

func (r *rig) block(s *storage.Links, h link.Host) {
	r.t.Helper()
	must(r.t, s.Blocked.Add(ctx, h))
}

func (r *rig) unblock(s *storage.Links, h link.Host) {
	r.t.Helper()
	must(r.t, s.Blocked.Remove(ctx, h))
}

// wantBlocked checks whether a store takes url1 for blocked. On a busy machine it may still be
// reading.
func (r *rig) wantBlocked(what string, s *storage.Links, want bool) {
	r.t.Helper()
	testutil.Eventually(r.t, fmt.Sprintf("%s: blocked: %t", what,
		want), func() bool { return s.Blocked.Has(ctx, url1) == want })
}

// wantAllCalls checks what calls something makes, in whatever order: on a busy machine nobody waits
// until a poll has ended.
func (r *rig) wantAllCalls(what string, want []string, do func()) {
	r.t.Helper()
	got := r.calls(func() {
		do()
		testutil.Eventually(r.t, what, func() bool { return len(r.proxy.Calls()) >= len(want) })
	})
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		r.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestRowsOfBlockedHosts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	r.wantCalls("block", []string{"UpdateEntity ShortUrlsState",
		"InsertEntity ShortUrlsState"}, func() { r.block(s, "[2001:db8::1]") })
	now := r.clock.Now().UTC()
	want := []rawtables.Entity{r.blocked("[2001:db8::1]"), {"PartitionKey": "change|" +
		now.Format("200601021504"), "RowKey": now.Format("05|") + "host|[2001:db8::1]"}}
	if got := r.Rows(r.State); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	r.wantCalls("unblock", []string{"UpdateEntity ShortUrlsState", readOne,
		"DeleteEntity ShortUrlsState"}, func() { r.unblock(s, "[2001:db8::1]") })
	if got := r.Rows(r.State); fmt.Sprint(got) != fmt.Sprint(want[1:]) {
		t.Errorf("got %v, want %v", got, want[1:])
	}
}

// A host that one instance blocks is blocked everywhere within 15 seconds, whatever another one
// does first by then.
func TestABlockedHostIsKnownEverywhere(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		cache   *storage.CacheConfig
		refuses func(*rig, *storage.Links) bool
	}{
		"redirect": {withCache, func(_ *rig, s *storage.Links) bool {
			s.Get(ctx, "one")
			return s.Blocked.Has(ctx, url1)
		}},
		"redirect without a cache": {nil, func(_ *rig, s *storage.Links) bool {
			s.Get(ctx, "one")
			return s.Blocked.Has(ctx, url1)
		}},
		"shorten": {withCache, func(r *rig, s *storage.Links) bool {
			_, _, err := s.Create(ctx, r.want(url1, time.Hour), "")
			return errors.Is(err, link.ErrBlocked)
		}},
		"import": {nil, func(r *rig, s *storage.Links) bool {
			return errors.Is(s.Import(ctx, []link.Link{r.wish("", "two", url1, time.Hour)})[0].Err,
				link.ErrBlocked)
		}},
		"try of an import": {nil, func(r *rig, s *storage.Links) bool {
			l := r.wish("", "two", url1, time.Hour)
			return errors.Is(s.TryImport(ctx, []link.Link{l}, map[link.Name]uint64{})[0].Err,
				link.ErrBlocked)
		}},
		"edit": {nil, func(r *rig, s *storage.Links) bool {
			return errors.Is(setURL(fmt.Sprint(url1, rand.Int()))(ctx, r, s), link.ErrBlocked)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := followed(t)
			here, elsewhere := r.open(withCache), r.open(test.cache)
			there("", "https://example.org/", time.Hour)(r, here)
			r.block(here, badHost)
			r.wantBlocked("here", here, true)
			r.clock.Advance(past)
			testutil.Eventually(t, "it is refused elsewhere", func() bool {
				return test.refuses(r, elsewhere)
			})
			r.unblock(here, badHost)
			r.wantBlocked("here", here, false)
			r.clock.Advance(past)
			testutil.Eventually(t, "it is not refused any more", func() bool {
				return !test.refuses(r, elsewhere)
			})
		})
	}
}

func TestBlockedHostsAreReadAsLittleAsPossible(t *testing.T) {
	t.Parallel()
	r := followed(t)
	r.Make()
	var rows []rawtables.Entity
	for i := range 1000 {
		rows = append(rows, r.blocked(link.Host(fmt.Sprintf("n%d.example", i))))
	}
	r.PutAll(r.State, rows)
	many := r.instance()
	get := func() { many.Get(ctx, "nobody") }
	r.wantCalls("the first who need them", []string{readAll}, func() {
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() { r.wantBlocked("none", many, false) })
		}
		all.Wait()
	})
	r.wantCalls("once they are read", nil, func() {
		if err := many.Blocked.Read(ctx); err != nil ||
			!many.Blocked.Has(ctx, "https://a.n999.example") {
			t.Errorf("got %v", err)
		}
	})
	r.wantAllCalls("nothing has changed", []string{read}, get)
	other := r.other()
	r.block(other, badHost)
	r.block(other, "a.example")
	r.clock.Advance(past)
	// 1,000 and two are more than a page.
	r.wantAllCalls("two have changed", []string{poll, readAll, readAll, read}, get)
	r.wantBlocked("two have changed", many, true)
	r.clock.Advance(2 * time.Minute)
	r.wantAllCalls("once more, as windows overlap", []string{poll, readAll, readAll, read}, get)
	r.clock.Advance(2 * time.Minute)
	r.wantAllCalls("they changed long ago", []string{poll, read}, get)
	if !many.Blocked.Has(ctx, "https://a.example/") ||
		!many.Blocked.Has(ctx, "https://n0.example/") {
		t.Error("not all are known")
	}
}

// A read that fails fails no poll, so what is cached still counts as right. The next poll repeats
// it, also when it finds no announcement any more.
func TestBlockedHostsThatCannotBeReadAgain(t *testing.T) {
	t.Parallel()
	r := followed(t)
	s := r.open(withCache)
	r.block(r.other(), badHost)
	r.clock.Advance(2 * time.Minute) // so that only this poll finds the announcement
	r.wantAllCalls("the hosts cannot be read", []string{poll, readAll, read}, func() {
		var queries atomic.Int64
		r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
			if c.Operation == "QueryEntities" && !morePolled(c) && queries.Add(1) > 1 {
				return faultproxy.TooManyRequests
			}
			return faultproxy.None
		})
		s.Get(ctx, "nobody")
	})
	r.wantBlocked("the hosts cannot be read", s, false)
	testutil.Eventually(t, "the poll has ended", func() bool {
		return r.metrics.ChangesPolls.Value() > 0
	})
	if failed := r.metrics.ChangesFailed.Value(); failed > 0 {
		t.Errorf("%d polls failed", failed)
	}
	r.cached(s, "nobody")
	r.clock.Advance(10 * time.Minute)
	r.wantAllCalls("the next poll", []string{poll, readAll, read}, func() { s.Get(ctx, "nobody") })
	r.wantBlocked("the next poll", s, true)
	r.clock.Advance(past)
	r.wantAllCalls("the one after that", []string{poll}, func() { s.Get(ctx, "nobody") })
}

// A process that starts waits for the hosts, but not for long, and goes on if they cannot be read.
func TestBlockedHostsAtTheStart(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faultproxy.Fault{"busy": faultproxy.ServerBusy,
		"refused": faultproxy.Refuse, "frozen": faultproxy.Freeze} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.Make()
			r.Put(r.State, r.blocked(badHost))
			s := r.instance()
			var asked atomic.Int64
			r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
				asked.Add(1)
				return fault
			})
			begun := time.Now()
			r.wantBlocked("while storage fails", s, false)
			if took := time.Since(begun); took > slack {
				t.Errorf("waited %v", took)
			}
			before := asked.Load()
			if fault != faultproxy.Freeze {
				for range 100 {
					r.wantBlocked("and again", s, false)
				}
				if asked.Load() != before {
					t.Error("it was tried again at once")
				}
			}
			r.proxy.Reset()
			if fault == faultproxy.Freeze { // what is under way ends by itself
				testutil.Eventually(t, "they are known", func() bool {
					return s.Blocked.Has(ctx, url1)
				})
				return
			}
			r.clock.Advance(5 * time.Second)
			r.wantBlocked("five seconds later", s, true)
			should(t, r.instance().Blocked.Read(ctx))
		})
	}
}

// What is known stays known while storage fails, and what has changed is known when that is over.
func TestBlockedHostsInAnOutage(t *testing.T) {
	t.Parallel()
	r := followed(t)
	r.Make()
	r.Put(r.State, r.blocked(badHost))
	s, other := r.open(withCache), r.other()
	r.cached(s, "nobody")
	r.unblock(other, badHost)
	r.block(other, "a.example")
	r.proxy.Before(faultproxy.On("", r.State, faultproxy.ServerBusy))
	for range 3 {
		r.clock.Advance(past)
		s.Get(ctx, "nobody")
	}
	r.wantBlocked("in the outage", s, true)
	if s.Blocked.Has(ctx, "https://a.example/") {
		t.Error("known in the outage")
	}
	if err := s.Blocked.Add(ctx, "b.example"); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if err := s.Blocked.Remove(ctx, badHost); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if _, err := s.Blocked.List(ctx); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	r.proxy.Reset()
	r.clock.Advance(past)
	s.Get(ctx, "nobody")
	r.wantBlocked("after the outage", s, false)
	if !s.Blocked.Has(ctx, "https://a.example/") || s.Blocked.Has(ctx, "https://b.example/") {
		t.Error("after the outage the hosts are not those of the table")
	}
}

// After more than half an hour without a poll, changes may have been dropped that were told of.
func TestBlockedHostsAfterALongTime(t *testing.T) {
	t.Parallel()
	r := followed(t)
	s := r.open(withCache)
	r.block(r.other(), badHost)
	r.clock.Advance(2 * time.Hour)
	must(t, reap(ctx, r, r.other()))
	if rows := r.Rows(r.State); len(rows) != 1 {
		t.Fatalf("rows: %v", rows)
	}
	// The first read fails, and the next poll repeats it.
	var queries atomic.Int64
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == "QueryEntities" && queries.Add(1) == 2 {
			return faultproxy.TooManyRequests
		}
		return faultproxy.None
	})
	testutil.Eventually(t, "all are read again", func() bool {
		r.clock.Advance(past)
		s.Get(ctx, "nobody")
		return s.Blocked.Has(ctx, url1)
	})
	if queries.Load() < 4 {
		t.Errorf("known after %d queries", queries.Load())
	}
}

func TestBlockedHostsWithoutPolls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(withCache)
	r.block(r.other(), badHost)
	r.clock.Advance(2 * time.Hour)
	s.Get(ctx, "nobody")
	r.wantBlocked("before a restart", s, false)
	r.wantBlocked("after it", r.open(withCache), true)
}

// While all are read, some change, here and elsewhere.
func TestHostsThatAreBlockedWhileAllAreRead(t *testing.T) {
	t.Parallel()
	r := followed(t)
	r.Make()
	r.Put(r.State, r.blocked("b.example"))
	r.Put(r.State, r.blocked("c.example"))
	s, other := r.instance(), r.other()
	var begun atomic.Bool
	r.proxy.After(func(c faultproxy.Call) { // the rows are read, and not known yet
		if !begun.Swap(true) {
			r.block(s, "a.example")
			r.unblock(s, "b.example")
			r.unblock(other, "c.example")
			r.block(other, badHost)
		}
	})
	must(t, s.Blocked.Read(ctx))
	if !s.Blocked.Has(ctx, "https://a.example/") || s.Blocked.Has(ctx, "https://b.example/") {
		t.Error("its own changes are lost")
	}
	r.clock.Advance(past)
	s.Get(ctx, "nobody")
	r.wantBlocked("elsewhere", s, true)
	if !s.Blocked.Has(ctx, "https://a.example/") || s.Blocked.Has(ctx, "https://b.example/") ||
		s.Blocked.Has(ctx, "https://c.example/") {
		t.Error("not what the table has")
	}
}

// A poll that runs while all hosts are read finds a change that the pages lack. They are read again
// at once: the next poll may be too late.
func TestAHostThatIsAnnouncedWhileAllAreRead(t *testing.T) {
	t.Parallel()
	r := followed(t)
	r.Make()
	s, other := r.instance(), r.other()
	var begun atomic.Bool
	r.proxy.After(func(faultproxy.Call) { // the rows are read, and not known yet
		if !begun.Swap(true) {
			r.block(other, badHost)
			r.clock.Advance(past)
			s.Get(ctx, "nobody")
		}
	})
	must(t, s.Blocked.Read(ctx))
	if !s.Blocked.Has(ctx, url1) {
		t.Error("it is not blocked")
	}
}

// A redirect does not wait long for hosts that are read again. A write does.
func TestWritesWaitForHostsThatHaveChanged(t *testing.T) {
	t.Parallel()
	r := followed(t)
	s, other := r.open(withCache), r.other()
	r.wantBlocked("before", s, false)
	r.block(other, badHost)
	r.clock.Advance(past)
	slow := make(chan struct{})
	var queries atomic.Int64
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == "QueryEntities" && !morePolled(c) && queries.Add(1) == 2 {
			<-slow // the first one was the poll
		}
		return faultproxy.None
	})
	s.Get(ctx, "nobody")
	r.wantBlocked("while the hosts are read", s, false)
	time.AfterFunc(time.Second, func() { close(slow) })
	if _, _, err := s.Create(ctx, r.want(url1, time.Hour), ""); !errors.Is(err, link.ErrBlocked) {
		t.Errorf("got %v", err)
	}
}

// A process stands still for ten minutes at any call of a change. If it says after that that the
// change is made, other processes know it within 15 seconds.
func TestHostsThatAreBlockedTooLate(t *testing.T) {
	t.Parallel()
	for _, blocks := range []bool{true, false} {
		t.Run(fmt.Sprint("block: ", blocks), func(t *testing.T) {
			t.Parallel()
			for n, met := 1, true; met && !t.Failed(); n++ {
				r := followed(t)
				s, other := r.open(nil), r.other()
				change := s.Blocked.Add
				if !blocks {
					r.block(s, badHost)
					change = s.Blocked.Remove
				}
				poll := func() { // twice, since a poll may only begin a read
					for range 2 {
						r.clock.Advance(past)
						other.Get(ctx, "nobody")
					}
				}
				poll()
				r.wantBlocked("before", other, !blocks)
				r.proxy.Reset()
				calls := 0
				r.proxy.Before(func(faultproxy.Call) faultproxy.Fault {
					if calls++; calls == n {
						poll()
						r.clock.Advance(10 * time.Minute)
						poll()
					}
					return faultproxy.None
				})
				err := change(ctx, badHost)
				r.proxy.Before(nil)
				if met = calls >= n; err == nil {
					poll()
					r.wantBlocked(fmt.Sprintf("still at call %d", n), other, blocks)
				}
			}
		})
	}
}

// A process is killed at any point of a change, or gets no response, and somebody repeats it.
func TestBlockedHostsWithFaultsAtAnyPoint(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		blocks bool
		do     func(context.Context, *storage.Links) error
	}{
		"block": {true, func(ctx context.Context, s *storage.Links) error {
			return s.Blocked.Add(ctx, badHost)
		}},
		"unblock": {false, func(ctx context.Context, s *storage.Links) error {
			return s.Blocked.Remove(ctx, badHost)
		}},
	} {
		for fault, dies := range map[faultproxy.Fault]bool{faultproxy.Refuse: true,
			faultproxy.DropResponse: false} {
			t.Run(fmt.Sprint(name, ", killed: ", dies), func(t *testing.T) {
				t.Parallel()
				for n := 1; ; n++ {
					r := followed(t)
					s, other := r.open(nil), r.open(nil)
					if !test.blocks {
						r.block(s, badHost)
						r.clock.Advance(past)
						other.Get(ctx, "nobody")
						r.proxy.Reset()
					}
					r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
						if c.N == n || dies && c.N > n {
							return fault
						}
						return faultproxy.None
					})
					of := ctx
					if dies {
						of = dying
					}
					err := test.do(of, s)
					met := len(r.proxy.Calls()) >= n
					r.proxy.Reset()
					r.clock.Advance(past)
					if err == nil {
						other.Get(ctx, "nobody")
						r.wantBlocked("once it is done, elsewhere", other, test.blocks)
					} else if !dies || !met {
						t.Errorf("got %v", err)
					}
					isThere := slices.ContainsFunc(
						r.Rows(r.State), func(e rawtables.Entity) bool { return e["PartitionKey"] == "blocked" })
					if err := test.do(ctx, other); err != nil &&
						!(errors.Is(err, link.ErrNotBlocked) && !isThere) {
						t.Errorf("again: %v", err)
					}
					r.clock.Advance(past)
					s.Get(ctx, "nobody")
					r.wantBlocked("by itself", s, test.blocks)
					r.wantBlocked("elsewhere", other, test.blocks)
					if t.Failed() {
						t.Fatalf("call %d", n)
					}
					if !met {
						return
					}
				}
			})
		}
	}
}

func TestHostsAreBlocked(t *testing.T) {
	r := newRig(t)
	s := r.open(nil)
	first := r.clock.Now()
	// All characters that a host may have besides letters and digits, and an address.
	const odd = "it's-_!\"$&()+,;=`{}~.example"
	for _, h := range []link.Host{"example.com", odd, "[2001:db8::1]"} {
		must(t, s.Blocked.Add(t.Context(), h))
	}
	r.clock.Advance(time.Hour)
	must(t, s.Blocked.Add(t.Context(), "example.com")) // it keeps its first time
	want := fmt.Sprint([]link.BlockedHost{{Host: "[2001:db8::1]", CreatedAt: first},
		{Host: "example.com", CreatedAt: first}, {Host: odd, CreatedAt: first}})
	if got, err := s.Blocked.List(t.Context()); err != nil || fmt.Sprint(got) != want {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for longURL, want := range map[string]bool{
		"https://example.com/": true, "https://a.EXAMPLE.com.:80/": true,
		"http://[2001:db8:0::1]": true, "https://a." + odd: true,
		"https://example.org/": false, "https://com/": false,
	} {
		if got := s.Blocked.Has(t.Context(), longURL); got != want {
			t.Errorf("%s: got %t", longURL, got)
		}
	}
	must(t, s.Blocked.Remove(t.Context(), "example.com"))
	must(t, s.Blocked.Remove(t.Context(), odd))
	for _, h := range []link.Host{"example.com", odd, "a.example", "db8::1"} {
		if err := s.Blocked.Remove(t.Context(), h); !errors.Is(err, link.ErrNotBlocked) {
			t.Errorf("%s, not blocked: %v", h, err)
		}
	}
	if got, err := s.Blocked.List(t.Context()); err != nil || len(got) != 1 ||
		s.Blocked.Has(t.Context(), "https://example.com/") ||
		s.Blocked.Has(t.Context(), "https://"+odd) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestNoLinkIsMadeThatLeadsToABlockedHost(t *testing.T) { eachWay(t, testBlocked) }

func testBlocked(t *testing.T, start starter) {
	t.Run("no link is made that leads to a blocked host", func(t *testing.T) {
		const bad, good = "https://a.example.com/", "https://example.org/"
		s, clock, want := start(t)
		known, owners := s.create(t, want(bad, time.Hour)), s.create(t, owned(want(bad, 0), "a"))
		other := s.create(t, owned(want(good, 0), "a"))
		blocked := func(what string, err error) {
			t.Helper()
			if !errors.Is(err, link.ErrBlocked) {
				t.Errorf("%s: got %v", what, err)
			}
		}
		shorten := func(w link.Link) error { _, _, err := s.Create(t.Context(), w, ""); return err }
		edit := func(a link.Name, change func(*link.Link)) error {
			_, err := s.Edit(t.Context(), a, false, func(l link.Link) (link.Link, error) {
				change(&l)
				return l, nil
			})
			return err
		}
		must(t, s.Blocked.Add(t.Context(), "example.com"))
		blocked("a known URL", shorten(want(bad, time.Hour)))
		blocked("its owner's", shorten(owned(want(bad, time.Hour), "a")))
		blocked("a new URL", shorten(want(bad+"new", time.Hour)))
		blocked("a chosen alias", shorten(chosen(want(bad, time.Hour), "mine")))
		gone := want(good+"gone", time.Hour)
		gone.GoneURL = bad
		about := func(field link.Field, what string, err error) {
			t.Helper()
			var is *link.BlockedError
			if !errors.As(err, &is) || is.Field != field {
				t.Errorf("%s: got %v", what, err)
			}
		}
		toBad := []link.TargetRule{{Name: "1", Percent: 1, LongURL: good},
			{Name: "2", Percent: 1, LongURL: bad}}
		ruled := want(good+"ruled", time.Hour)
		ruled.Rules = toBad
		about(link.FieldGoneURL, "a gone URL", shorten(gone))
		about("rules[1].longUrl", "a rule", shorten(ruled))
		about(link.FieldGoneURL, "an edit of the gone URL",
			edit(other.Name, func(l *link.Link) { l.GoneURL = bad }))
		about("rules[1].longUrl", "an edit of the rules",
			edit(other.Name, func(l *link.Link) { l.Rules = toBad }))
		gone.Name, gone.CreatedAt = s.name("gone"), clock.Now()
		ruled.Name, ruled.CreatedAt = s.name("ruled"), clock.Now()
		for i, done := range s.Import(t.Context(), []link.Link{gone, ruled}) {
			about([]link.Field{link.FieldGoneURL, "rules[1].longUrl"}[i], "an import", done.Err)
		}
		blocked("an edit", edit(other.Name, func(l *link.Link) { l.LongURL = bad }))
		// A link that leads there already can be read, disabled, deleted, restored, claimed, and
		// moved to another URL.
		for _, change := range []func(*link.Link){
			func(l *link.Link) { l.Disabled, l.GoneURL = true, good },
			func(l *link.Link) { l.DeletedAt = clock.Now() },
			func(l *link.Link) { l.DeletedAt = time.Time{} },
			func(l *link.Link) { l.LongURL = good + "2" },
		} {
			should(t, edit(owners.Name, change))
		}
		if err := edit(known.Name, func(l *link.Link) {
			*l = l.Claimed(link.Actor{By: "b"}, "b", true, clock.Now())
		}); err != nil {
			t.Error(err)
		}
		if l, err := s.Get(t.Context(), known.Name); err != nil || l.LongURL != bad {
			t.Errorf("got %+v, %v", l, err)
		}
		must(t, s.Blocked.Remove(t.Context(), "example.com"))
		s.create(t, chosen(want(bad, time.Hour), "mine"))
	})
}
