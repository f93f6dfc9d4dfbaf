package storage_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/teststore"
	"tiney/internal/testing/testutil"
	"tiney/storage"
)

// A link is in the list of its owner at any moment, whoever transfers it, lists links or reaps
// meanwhile. Here the storage service's clock is that of the process, so that young rows are young.
func TestALinkIsAlwaysInItsOwnersList(t *testing.T) {
	if !*inMemory {
		t.Skip("the emulator's clock cannot be set")
	}
	t.Parallel()
	old := later(time.Hour)
	guarded := there("a", url1, 0, old, brokenOff(transfer("b")), old)
	for name, c := range map[string]struct {
		before        func(*rig, *storage.Links)
		first, second doing
	}{
		"lists":           {there("a", url1, 0, old), transfer("b"), both(list("a"), list("b"))},
		"list, transfer":  {there("a", url1, 0, old), list("a"), both(transfer("b"), transfer("a"))},
		"back, and lists": {there("a", url1, 0, old), transfer("b"), both(transfer("b"), transfer("a"), list("b"), list("a"))},
		"two":             {there("a", url1, 0, old), transfer("b"), transfer("c")},
		"stale row":       {there("a", url1, 0, brokenOff(transfer("b")), old), transfer("a"), both(list("a"), list("b"))},
		"reaper, back":    {guarded, reap, transfer("a")},
		"back, reaper":    {guarded, transfer("a"), reap},
		"on, reaper":      {guarded, transfer("c"), reap},
		"reaper, there":   {guarded, reap, both(transfer("a"), transfer("b"))},
	} {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, dies: %t", name, dies), func(t *testing.T) {
				t.Parallel()
				clock := testutil.NewClock()
				r := newRigAt(t, newMemory(clock.Now))
				r.clock, r.config.Now, r.Now = clock, clock.Now, clock.Now
				r.leaveTombstones(teststore.TombstoneKeep)
				r.Make()
				other := r.other()
				r.atEachCall(dies, func(n int) []faultproxy.Call {
					s := r.instance()
					c.before(r, other)
					r.proxy.Before(func(call faultproxy.Call) faultproxy.Fault {
						r.wantListed()
						if call.N == n {
							should(t, c.second(ctx, r, other))
							r.wantListed()
						}
						if dies && call.N >= n {
							return faultproxy.Refuse
						}
						return faultproxy.None
					})
					if err := c.first(lifeOf(dies), r, s); err != nil && !dies {
						t.Error(err)
					}
					r.wantListed()
					calls := r.proxy.Calls()
					r.proxy.Reset()
					// A guard is due, and after that, lists delete what leads nowhere.
					for _, do := range []doing{later(10 * time.Minute), reap, later(2 * time.Hour),
						list("a"), list("b"), list("c")} {
						should(t, do(ctx, r, other))
						r.wantListed()
					}
					if rows := r.Rows(r.Owners); len(rows) != 1 {
						t.Errorf("left %v", rows)
					}
					r.endAll(other)
					return calls
				})
			})
		}
	}
}

// wantListed checks that the list of its owner has the link "one".
func (r *rig) wantListed() {
	r.t.Helper()
	for _, row := range r.Rows(r.Links) {
		owner, _ := row["Owner"].(string)
		want := rawtables.Owner(link.Link{Owner: owner})["PartitionKey"]
		if row["GoneReason"] == nil && !slices.ContainsFunc(r.Rows(r.Owners), func(listed rawtables.Entity) bool {
			return listed["PartitionKey"] == want
		}) {
			r.t.Errorf("it is %q's, and not in the list", owner)
		}
	}
}

// An expired link that goes to another owner and back while it is reaped stays in its owner's list.
func TestAnExpiredLinkThatChangesHandsWhileItIsReaped(t *testing.T) {
	t.Parallel()
	r, other := newCrashRig(t)
	r.atEachTwoCalls(func(first, second int) (one, two bool) {
		there("a", url1, time.Hour, later(time.Hour))(r, other)
		r.proxy.Before(func(call faultproxy.Call) faultproxy.Fault {
			to := ""
			switch call.N {
			case first:
				one, to = true, "b"
			case first + second:
				two, to = true, "a"
			}
			if to != "" {
				if err := transfer(to)(ctx, r, other); err != nil &&
					!errors.Is(err, link.ErrNotFound) {
					t.Error(err)
				}
			}
			return faultproxy.None
		})
		should(t, reap(ctx, r, r.instance()))
		r.proxy.Reset()
		r.wantListed()
		r.endAll(other)
		return one, two
	})
}

// A transfer that nothing disturbs leaves no row in the former owner's list.
func TestATransferTakesTheFormerRow(t *testing.T) {
	t.Parallel()
	r, s := newCrashRig(t)
	there("a", url1, 0)(r, s)
	must(t, transfer("b")(ctx, r, s))
	if rows := r.Rows(r.Owners); len(rows) != 1 {
		t.Errorf("left %v", rows)
	}
	r.endAll(s)
}

// Two reapers end a link that leaves no tombstone, and an import makes its alias anew meanwhile,
// with the date and so the row in the list that it had.
func TestTwoReapersAndAnImport(t *testing.T) {
	t.Parallel()
	for _, days := range []time.Duration{0, 30} {
		t.Run(fmt.Sprintf("tombstones for %d days", days), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.config.TombstoneFor = days * dayLong
			r.Make()
			other, i := r.other(), newRestingImport(r)
			i.atEachTwoCalls(func(n, m int) (met bool) {
				l := r.wish("a", "one", url1, time.Hour)
				r.PutLink(l)
				r.clock.Advance(2*time.Hour + days*dayLong) // its tombstone would be over, too
				l.ExpiresAt = time.Time{}
				r.meet(n, false, func() {
					met = true
					_, _ = other.Reap(ctx)
					i.begin(l, m)
				})
				_, _ = r.instance().Reap(ctx)
				i.end()
				r.wantListed()
				return met
			})
		})
	}
}

// restingImport is the import of a link by an instance of its own, which rests before one of its
// calls.
type restingImport struct {
	r        *rig
	proxy    *faultproxy.Proxy
	importer *storage.Links

	rests      bool          // the call was made
	goOn, done chan struct{} // done is nil if the import has not begun
}

func newRestingImport(r *rig) *restingImport {
	i := &restingImport{r: r, proxy: r.newProxy()}
	through := r.config.Open
	r.config.Open = r.through(i.proxy)
	i.importer = r.instance()
	r.config.Open = through
	return i
}

// begin begins the import of a link, and returns when it rests before its nth call, or is done.
func (i *restingImport) begin(l link.Link, n int) {
	resting := make(chan struct{})
	i.done = make(chan struct{})
	i.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.N == n {
			close(resting)
			<-i.goOn
		}
		return faultproxy.None
	})
	go func() {
		defer close(i.done)
		importPatiently(i.importer, []link.Link{l})
	}()
	select {
	case <-resting:
		i.rests = true
	case <-i.done:
	}
}

// end lets the import go on, and waits until it is done.
func (i *restingImport) end() {
	close(i.goOn)
	if i.done != nil {
		<-i.done
	}
	i.r.proxy.Reset()
	i.proxy.Reset()
}

// atEachTwoCalls plays what happens on empty tables if the import begins right before a process's
// nth call, and rests before its own mth call, for each two of their calls. play reports whether
// the process has made its call.
func (i *restingImport) atEachTwoCalls(play func(n, m int) (met bool)) {
	i.r.t.Helper()
	i.r.atEachTwoCalls(func(n, m int) (met, rests bool) {
		i.r.Remove()
		i.r.Make()
		i.rests, i.goOn, i.done = false, make(chan struct{}), nil
		met = play(n, m)
		return met, i.rests
	})
}

// The history of links, links that change hands, and links that an admin took down.
func TestLinksOfOthers(t *testing.T) { eachWay(t, testOthers) }

func testOthers(t *testing.T, start starter) {
	const url, url2 = "https://example.com/", "https://example.com/2"
	admin := link.Actor{By: "root", Admin: true}
	patch := func(t *testing.T, s *way, clock *testutil.Clock, a link.Name,
		p link.Patch) (link.Link, error) {
		return s.Edit(t.Context(), a, false, func(l link.Link) (link.Link, error) {
			return link.Rules{}.Edit(l, p, admin, clock.Now())
		})
	}
	remove := func(t *testing.T, s *way, clock *testutil.Clock, a link.Name) {
		t.Helper()
		if _, err := s.Edit(t.Context(), a, false, func(l link.Link) (link.Link, error) {
			return l.Deleted(admin, clock.Now())
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a link has its history", func(t *testing.T) {
		s, clock, want := start(t)
		l := s.create(t, owned(want(url, 0), "a"))
		title := "t"
		for _, p := range []link.Patch{{Title: &title}, {Title: &title}, {Disabled: new(true)}} {
			if _, err := patch(t, s, clock, l.Name, p); err != nil {
				t.Fatal(err)
			}
		}
		remove(t, s, clock, l.Name)
		got, err := s.History(t.Context(), l.Name)
		if err != nil || len(got.History) != 3 || got.History[0].What != link.Deleted ||
			string(got.History[1].Before) != `{"disabled":false}` ||
			string(got.History[2].Before) != `{"title":null}` || got.History[2].By != "root" ||
			!got.History[2].At.Equal(clock.Now()) {
			t.Errorf("got %+v, %v", got.History, err)
		}
		if read, err := s.Read(t.Context(), l.Name); err != nil || read.History != nil ||
			read.Version != got.Version || !read.Locked {
			t.Errorf("Read: got %+v, %v", read, err)
		}
		clock.Advance(teststore.DeletedKeep)
		if done, err := s.Reap(t.Context()); err != nil || done.Deleted != 1 {
			t.Errorf("reaped %+v, %v", done, err)
		}
		if got, err := s.History(t.Context(), l.Name); !errors.Is(err, link.ErrNotFound) {
			t.Errorf("its tombstone has %+v, %v", got, err)
		}
	})
	t.Run("a link goes to another owner", func(t *testing.T) {
		for _, from := range []string{"", "a"} {
			s, clock, want := start(t)
			w := owned(want(url, time.Hour), from)
			l := s.create(t, w)
			if got, err := patch(t, s, clock, l.Name, link.Patch{Owner: new("b")}); err != nil ||
				got.Owner != "b" || !got.ExpiresAt.Equal(l.ExpiresAt) {
				t.Fatalf("got %+v, %v", got, err)
			}
			clock.Advance(settle)
			if got, err := s.Get(t.Context(), l.Name); err != nil || got.Owner != "b" {
				t.Errorf("it is %q's, %v", got.Owner, err)
			}
			for owner, has := range map[string]int{"a": 0, "b": 1} {
				if links, _, err := s.List(t.Context(), owner, "", 10, all); err != nil ||
					len(links) != has {
					t.Errorf("%s's list has %+v, %v", owner, links, err)
				}
			}
			if got := s.of(t, owned(want(url, time.Hour), "b")); got != l.Name {
				t.Errorf("its new owner is given %s", got)
			}
			if got := s.of(t, w); got == l.Name {
				t.Error("its former owner is given it")
			}
		}
	})
	t.Run("an owner who has a link of the URL keeps being given it", func(t *testing.T) {
		s, clock, want := start(t)
		theirs := s.create(t, owned(want(url, 0), "b"))
		l := s.create(t, owned(want(url, 0), "a"))
		if _, err := patch(t, s, clock, l.Name, link.Patch{Owner: new("b")}); err != nil {
			t.Fatal(err)
		}
		if got := s.of(t, owned(want(url, 0), "b")); got != theirs.Name {
			t.Errorf("its new owner is given %s, and not %s", got, theirs.Name)
		}
		remove(t, s, clock, theirs.Name)
	})
	t.Run("a link takes the place of one that leads nowhere", func(t *testing.T) {
		s, clock, want := start(t)
		theirs := s.create(t, owned(want(url, 0), "b"))
		if _, err := s.Edit(t.Context(), theirs.Name, false, func(l link.Link) (link.Link, error) {
			return l.Deleted(link.Actor{By: "b", Own: true}, clock.Now())
		}); err != nil {
			t.Fatal(err)
		}
		l := s.create(t, owned(want(url, 0), "a"))
		if _, err := patch(t, s, clock, l.Name, link.Patch{Owner: new("b")}); err != nil {
			t.Fatal(err)
		}
		if got := s.of(t, owned(want(url, 0), "b")); got != l.Name {
			t.Errorf("its new owner is given %s, and not %s", got, l.Name)
		}
	})
	// What an admin took down stays down, but bars no URL: shorten goes by the index as always.
	t.Run("a link that was taken down does not bar its URL", func(t *testing.T) {
		for _, owner := range []string{"", "a"} {
			for _, disable := range []bool{true, false} {
				s, clock, want := start(t)
				w := owned(want(url, time.Hour), owner)
				down := s.create(t, w)
				elsewhere := s.create(t, owned(want(url2, time.Hour), owner))
				if !disable {
					remove(t, s, clock, down.Name)
				} else if _, err := patch(t, s, clock, down.Name,
					link.Patch{Disabled: new(true)}); err != nil {
					t.Fatal(err)
				}
				clock.Advance(settle)
				switch _, created, err := s.Create(t.Context(), w, ""); {
				case disable && !errors.Is(err, link.ErrDisabled),
					!disable && (err != nil || !created):
					t.Errorf("owner %q, disabled %t: created %t, %v", owner, disable, created, err)
				}
				s.create(t, chosen(w, "chosen"))
				done := s.Import(t.Context(), []link.Link{chosen(w, "import"),
					chosen(w, down.Name.Alias())})
				if !done[0].Created {
					t.Errorf("an import: %+v", done[0])
				}
				if err := done[1].Err; disable && err != nil ||
					!disable && !errors.Is(err, link.ErrLocked) {
					t.Errorf("an import of what was taken down: %v", err)
				}
				s.edit(t, elsewhere.Name, func(l *link.Link) { l.LongURL = url })
				if l, err := s.Read(t.Context(), down.Name); err != nil || !l.Locked {
					t.Errorf("it is %+v, %v", l, err)
				}
			}
		}
	})
}
