package storage_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/linkstest"
	"tiney/internal/testing/rawtables"
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
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				clock := linkstest.NewClock()
				r := newRigAt(t, newMemory(clock.Now))
				r.clock, r.config.Now, r.Now = clock, clock.Now, clock.Now
				r.leaveTombstones(linkstest.TombstoneKeep)
				r.Make()
				other := r.other()
				atEachCall(dies, func(n int) []faultproxy.Call {
					s := r.instance()
					c.before(r, other)
					r.proxy.Before(func(call faultproxy.Call) faultproxy.Fault {
						r.wantListed()
						if call.N == n {
							if err := c.second(ctx, r, other); err != nil {
								t.Error(err)
							}
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
						if err := do(ctx, r, other); err != nil {
							t.Error(err)
						}
						r.wantListed()
					}
					if rows := r.Rows(r.Owners); len(rows) != 1 {
						t.Errorf("left %v", rows)
					}
					if t.Failed() {
						t.Fatalf("dies: %t, at call %d of %v", dies, n, calls)
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
	for first, met := 1, true; met; first++ {
		met = false
		for second, both := 1, true; both; second++ {
			both = false
			there("a", url1, time.Hour, later(time.Hour))(r, other)
			r.proxy.Before(func(call faultproxy.Call) faultproxy.Fault {
				to := ""
				switch call.N {
				case first:
					met, to = true, "b"
				case first + second:
					both, to = true, "a"
				}
				if to != "" {
					if err := transfer(to)(ctx, r, other); err != nil &&
						!errors.Is(err, link.ErrNotFound) {
						t.Error(err)
					}
				}
				return faultproxy.None
			})
			if err := reap(ctx, r, r.instance()); err != nil {
				t.Error(err)
			}
			r.proxy.Reset()
			r.wantListed()
			r.endAll(other)
			if t.Failed() {
				t.Fatalf("they met at calls %d and %d", first, second)
			}
		}
	}
}

// A transfer that nothing disturbs leaves no row in the former owner's list.
func TestATransferTakesTheFormerRow(t *testing.T) {
	t.Parallel()
	r, s := newCrashRig(t)
	there("a", url1, 0)(r, s)
	if err := transfer("b")(ctx, r, s); err != nil {
		t.Fatal(err)
	}
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
		r := newRig(t)
		r.config.TombstoneFor = days * dayLong
		r.Make()
		other := r.other()
		way := r.newProxy()
		through := r.config.Open
		r.config.Open = r.through(way)
		importer := r.instance()
		r.config.Open = through
		for n, met := 1, true; met; n++ {
			for m, rests := 1, true; rests; m++ {
				r.Remove()
				r.Make()
				l := r.wish("a", "one", url1, time.Hour)
				r.PutLink(l)
				r.clock.Advance(2*time.Hour + days*dayLong) // its tombstone would be over, too
				l.ExpiresAt = time.Time{}
				met, rests = false, false
				resting, reaped, done := make(chan bool), make(chan bool), make(chan bool)
				way.Before(func(c faultproxy.Call) faultproxy.Fault {
					if c.N == m {
						close(resting)
						<-reaped
					}
					return faultproxy.None
				})
				r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
					if c.N == n {
						met = true
						_, _ = other.Reap(ctx)
						go func() {
							defer close(done)
							importPatiently(importer, []link.Link{l})
						}()
						select {
						case <-resting:
							rests = true
						case <-done:
						}
					}
					return faultproxy.None
				})
				_, _ = r.instance().Reap(ctx)
				close(reaped)
				if met {
					<-done
				}
				r.proxy.Reset()
				way.Reset()
				r.wantListed()
				if t.Failed() {
					t.Fatalf("tombstones of %d days: at call %d of the reaper, and %d of the import",
						days, n, m)
				}
			}
		}
	}
}
