package storage_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/teststore"
	"tiney/storage"
)

type doing = func(context.Context, *rig, *storage.Links) error

func both(all ...doing) doing {
	return func(ctx context.Context, r *rig, s *storage.Links) error {
		for _, do := range all {
			if err := do(ctx, r, s); err != nil {
				return err
			}
		}
		return nil
	}
}

// What an instance does whose clock is late, so that a link that is over is not, for it.
var (
	restoreLate = edit(func(now time.Time, l link.Link) (link.Link, error) {
		l.DeletedAt, l.UpdatedAt = time.Time{}, now
		return l, nil
	})
	claimLate = edit(func(now time.Time, l link.Link) (link.Link, error) {
		if l.Owner != "" {
			return l, errNotMine
		}
		return l.Claimed(link.Actor{By: "a"}, "a", false, now), nil
	})
)

var errNotMine = errors.New("another's")

// either is what may become of one of two operations that cross.
var either = []error{nil, link.ErrNotFound, link.ErrNotDeleted, link.ErrDeleted, link.ErrShared,
	link.ErrAliasTaken, errNotMine}

// crossings are operations that meet on the same link or URL: the second one is done whole at some
// point of the first one.
var crossings = map[string]struct {
	before        func(*rig, *storage.Links)
	first, second doing
	check         func(t *testing.T, r *rig, s *storage.Links) // unless the first one died
}{
	"two edits of the target": {there("a", url1, 0), setURL(url2), setURL(url3),
		leadsTo(url2, url3)},
	"two edits of target and end": {there("a", url1, time.Hour), setURL(url2),
		setEnd(5 * time.Hour), leadsTo(url2)},
	"two edits of the end": {there("a", url1, time.Hour), setEnd(5 * time.Hour),
		setEnd(0), leadsTo(url1)},
	"there and back": {there("a", url1, 0), setURL(url2),
		both(setURL(url3), setURL(url1)), leadsTo(url2, url1)},
	"edit, and the old URL is taken": {there("a", url1, 0), setURL(url2), create("a", "", url1, 0),
		leadsTo(url2)},
	"edit, and the new URL is taken": {there("a", url1, 0), setURL(url2), create("a", "", url2, 0),
		leadsTo(url2)},
	"create, and an edit to its URL": {there("a", url1, 0), create("a", "", url2, 0), setURL(url2),
		leadsTo(url2)},
	"edit of what is deleted":  {there("a", url1, 0), setURL(url2), deleteOne, nil},
	"delete of what is edited": {there("a", url1, 0), deleteOne, setURL(url2), nil},
	"delete, and a create": {there("", url1, time.Hour), deleteOne,
		create("", "", url1, time.Hour), nil},
	"create, and a delete": {there("", url1, time.Hour), create("", "", url1, time.Hour),
		deleteOne, nil},
	"restore, and a create": {there("a", url1, 0, deleteOne), restoreOne,
		create("a", "", url1, 0), leadsTo(url1)},
	"create, and a restore": {there("a", url1, 0, deleteOne), create("a", "", url1, 0),
		restoreOne, leadsTo(url1)},
	"two restores, and another URL": {there("a", url1, 0, deleteOne, unindexed), restoreOne,
		both(restoreOne, setURL(url2)), nil},
	"two restores, and a claim": {there("", url1, time.Hour, deleteOne, unindexed), restoreOne,
		both(restoreOne, claim("a", false)), nil},
	"restore, a create and a delete": {there("a", url1, 0, deleteOne), restoreOne,
		both(create("a", "", url1, 0), restoreOne, deleteOne), nil},
	"claim, and an import": {there("", url1, time.Hour), claim("a", false),
		importing("", url1, time.Hour), nil},
	"import, and a claim": {there("", url1, time.Hour, unindexed),
		importing("", url1, time.Hour), claim("a", false), nil},
	"import, and another URL": {there("", url1, time.Hour, unindexed),
		importing("", url1, time.Hour), setURL(url2), nil},
	"two creates": {nil, create("a", "", url1, 0),
		create("a", "", url1, time.Hour), nil},
	"two creates of an alias": {nil, create("a", "one", url1, time.Hour),
		create("b", "one", url1, 0), nil},
	"restore at the last moment": {there("a", url1, 0, deleteOne,
		later(teststore.DeletedKeep-time.Second)), restoreOne, both(later(2*time.Second), reap),
		nil},
	"reap, restored late": {there("a", url1, 0, deleteOne, later(teststore.DeletedKeep)),
		reap, restoreLate, nil},
	"reap, renewed late": {there("a", url1, time.Hour, later(time.Hour)), reap,
		setEnd(5 * time.Hour), nil},
	"reap, no end any more": {there("a", url1, time.Hour, later(time.Hour)), reap,
		setEnd(0), nil},
	"reap, deleted late": {there("a", url1, time.Hour, later(time.Hour)), reap,
		deleteOne, nil},
	"reap, claimed late": {there("", url1, time.Hour, later(time.Hour)), reap,
		claimLate, nil},
	"reap, and a create": {there("", url1, time.Hour, later(time.Hour)), reap,
		create("", "", url1, time.Hour), nil},
	"reap, and another title": {there("a", url1, time.Hour, later(time.Hour)), reap,
		edit(func(_ time.Time, l link.Link) (link.Link, error) {
			l.Title = "late"
			return l, nil
		}), nil},
	"reap by a guard, and an edit back": {there("a", url1, 0, brokenOff(setURL(url2)),
		later(time.Hour)), reap, both(setURL(url1), giveOne), givesItAgain},
	"two reapers": {there("a", url1, time.Hour, later(time.Hour)), reap, reap, nil},
	"two reapers of a tombstone": {there("a", url1, time.Hour, later(time.Hour), reap,
		later(teststore.TombstoneKeep)), reap, reap, nil},
	"renewed, and a reaper": {there("a", url1, time.Hour, later(time.Hour-time.Second)),
		setEnd(5 * time.Hour), both(later(2*time.Second), reap), nil},
	"deleted, and a reaper": {there("a", url1, time.Hour, later(time.Hour-time.Second)),
		deleteOne, both(later(2*time.Second), reap), nil},
	"claimed, and a reaper": {there("", url1, time.Hour, later(time.Hour-time.Second)),
		claim("a", false), both(later(2*time.Second), reap), nil},
	"create, and a reaper": {there("", url1, time.Hour, later(time.Hour-time.Second)),
		create("", "", url1, time.Hour), both(later(2*time.Second), reap), nil},
	"roll up, and a reaper": {there("a", url1, time.Hour, clicked, later(time.Hour)), rollUp,
		reap, nil},
	"claim, and a create": {there("", url1, time.Hour), claim("a", false),
		create("", "", url1, time.Hour), claimed},
	"create, and a claim": {there("", url1, time.Hour), create("", "", url1, time.Hour),
		claim("a", false), claimed},
	"two claims": {there("", url1, time.Hour), claim("a", false), claim("b", true),
		nil},
	"transfer, and back": {there("a", url1, 0), transfer("b"),
		both(transfer("b"), transfer("a")), leadsTo(url1)},
	"transfer, back, and two creates": {there("a", url1, 0), transfer("b"),
		both(transfer("b"), create("a", "", url1, 0), transfer("a"), create("a", "", url1, 0)),
		givesOne("a")},
	"create, and a transfer there and back": {there("a", url1, 0), create("a", "", url1, 0),
		both(transfer("b"), transfer("a"), create("a", "", url1, 0)), givesOne("a")},
	"create, and transfers to its owner": {there("a", url1, 0), create("b", "", url1, 0),
		both(transfer("b"), create("b", "", url1, 0)), givesOne("b")},
	"transfer, and a create of the new owner": {there("a", url1, 0), transfer("b"),
		create("b", "", url1, 0), givesOne("b")},
	"transfer, and a create of the old owner": {there("a", url1, 0), transfer("b"),
		create("a", "", url1, 0), givesOne("a")},
	"transfers to two": {there("", url1, time.Hour), transfer("a"), transfer("b"), leadsTo(url1)},
	"reaper of a guard, and a transfer back": {there("a", url1, 0, brokenOff(transfer("b")),
		later(time.Hour)), reap, transfer("a"), leadsTo(url1)},
	"reaper of a guard, and transfers": {there("a", url1, 0, brokenOff(transfer("b")),
		later(time.Hour)), reap, both(transfer("a"), transfer("b"), create("b", "", url1, 0)),
		leadsTo(url1)},
	"reap, transferred late": {there("a", url1, time.Hour, later(time.Hour)), reap, transfer("b"),
		nil},
	"reap, transferred there and back": {there("a", url1, time.Hour, later(time.Hour)), reap,
		both(transfer("b"), transfer("a")), nil},
	"transferred, and a reaper": {there("a", url1, time.Hour, later(time.Hour-time.Second)),
		transfer("b"), both(later(2*time.Second), reap), nil},
	"claim, and a delete": {there("", url1, time.Hour), claim("a", false), deleteOne, nil},
	"delete, and a claim": {there("", url1, time.Hour), deleteOne, claim("a", false), nil},
}

// unindexed takes the link's row of the index away, as if another link had been there that is gone.
func unindexed(_ context.Context, r *rig, _ *storage.Links) error {
	for _, row := range r.Rows(r.Index) {
		r.Drop(r.Index, row)
	}
	return nil
}

// renamed gives the alias of the link "one" away: what is there of it is that of "two" now.
func renamed(_ context.Context, r *rig, _ *storage.Links) error {
	for table, key := range map[string]string{r.Links: "RowKey", r.Index: "Alias"} {
		for _, row := range r.Rows(table) {
			r.Drop(table, row)
			row[key] = "two"
			if table == r.Links {
				row["PartitionKey"] = "tw"
			}
			r.Put(table, row)
		}
	}
	for _, table := range []string{r.Owners, r.Expiry} {
		for _, row := range r.Rows(table) {
			r.Drop(table, row)
			row["RowKey"] = strings.Replace(row["RowKey"].(string), "|one", "|two", 1)
			if table == r.Expiry {
				row["AliasPartitionKey"], row["AliasRowKey"] = "tw", "two"
			}
			r.Put(table, row)
		}
	}
	return nil
}

// list returns an operation that lists the links of an owner.
func list(owner string) doing {
	return func(ctx context.Context, _ *rig, s *storage.Links) error {
		_, _, err := s.List(ctx, owner, "", 1000, all)
		return err
	}
}

// brokenOff returns an operation whose process dies right after it has written the link.
func brokenOff(do doing) doing {
	return func(_ context.Context, r *rig, _ *storage.Links) error {
		s := r.instance()
		written := false
		r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
			if written {
				return faultproxy.Refuse
			}
			written = c.Operation == "UpdateEntity" && c.Target == r.Links
			return faultproxy.None
		})
		err := do(dying, r, s)
		r.proxy.Reset()
		if !written {
			return fmt.Errorf("it has not written the link: %w", err)
		}
		return nil
	}
}

// giveOne shortens url1 for owner a. givesItAgain checks that it is given the same link again.
func giveOne(ctx context.Context, r *rig, s *storage.Links) error {
	l, _, err := s.Create(ctx, r.wish("a", "", url1, 0), "")
	r.given = l.Name
	return err
}

func givesItAgain(t *testing.T, r *rig, s *storage.Links) {
	t.Helper()
	if l, _, err := s.Create(ctx, r.wish("a", "", url1, 0), ""); err != nil || l.Name != r.given {
		t.Errorf("its URL has %+v, %v, and had %s", l, err, r.given)
	}
}

// givesOne checks that an owner is given one link of the URL, which is listed.
func givesOne(owner string) func(t *testing.T, r *rig, s *storage.Links) {
	return func(t *testing.T, r *rig, s *storage.Links) {
		var given []link.Name
		for range 2 {
			l, _, err := s.Create(ctx, r.wish(owner, "", url1, 0), "")
			if err != nil {
				t.Errorf("its URL: %v", err)
			}
			given = append(given, l.Name)
		}
		links, _, err := s.List(ctx, owner, "", 10, all)
		if err != nil || given[0] != given[1] || !slices.ContainsFunc(links,
			func(l link.Link) bool { return l.Name == given[0] }) {
			t.Errorf("%s is given %s, and has %+v, %v", owner, given, links, err)
		}
	}
}

// leadsTo checks that the link is live and has one of these URLs, and that its owner is given a
// link of that.
func leadsTo(urls ...string) func(t *testing.T, r *rig, s *storage.Links) {
	return func(t *testing.T, r *rig, s *storage.Links) {
		l, err := s.Read(ctx, "one")
		if err != nil || !slices.Contains(urls, l.LongURL) ||
			l.State(r.clock.Now()) != link.StateLive {
			t.Errorf("got %+v, %v, want it to lead to %s", l, err, urls)
		}
		got, created, err := s.Create(ctx, r.wish(l.Owner, "", l.LongURL, 0), "")
		if err != nil || got.LongURL != l.LongURL {
			t.Errorf("its URL: got %+v, created %t, %v", got, created, err)
		}
	}
}

// lacksNothing checks that owner a is given the link by its URL, and has it in the list.
func lacksNothing(t *testing.T, r *rig, s *storage.Links) {
	t.Helper()
	if l, created, err := s.Create(ctx, r.wish("a", "", url1, 0), ""); err != nil || created ||
		l.Name != "one" {
		t.Errorf("its URL has %+v, created %t, %v", l, created, err)
	}
	if links, _, err := s.List(ctx, "a", "", 10, all); err != nil || len(links) != 1 {
		t.Errorf("listed %+v, %v", links, err)
	}
}

// claimed checks that the link is the owner's, and that nobody else is given it from now on.
func claimed(t *testing.T, r *rig, s *storage.Links) {
	l, err := s.Read(ctx, "one")
	if err != nil || l.Owner != "a" || !l.ExpiresAt.IsZero() {
		t.Errorf("got %+v, %v, want it claimed", l, err)
	}
	if got, _, err := s.Create(ctx, r.wish("", "", url1, time.Hour), ""); err != nil ||
		got.Name == "one" {
		t.Errorf("a stranger is given %+v, %v", got, err)
	}
	if got, _, err := s.Create(ctx, r.wish("a", "", url1, time.Hour), ""); err != nil ||
		got.Name != "one" {
		t.Errorf("its owner is given %+v, %v", got, err)
	}
}

// Two operations meet at every point, and one of them may die there. Whatever comes of them,
// nothing is left once all has ended.
func TestOperationsThatCross(t *testing.T) {
	t.Parallel()
	for name, c := range crossings {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the first dies: %t", name, dies), func(t *testing.T) {
				t.Parallel()
				r, other := newCrashRig(t)
				r.atEachCall(dies, func(n int) []faultproxy.Call {
					s := r.instance()
					if c.before != nil {
						c.before(r, other)
					}
					var second error
					r.meet(n, dies, func() { second = c.second(ctx, r, other) })
					begun := time.Now()
					first := c.first(lifeOf(dies), r, s)
					calls := r.ended()
					for i, err := range []error{first, second} {
						if !(dies && i == 0) && !isOne(err, either) && !tooSlow(err, begun) {
							t.Errorf("got %v and %v", first, second)
						}
					}
					if c.check != nil && !dies && len(calls) >= n && second == nil && first == nil {
						c.check(t, r, other)
					}
					r.endAll(other)
					return calls
				})
			})
		}
	}
}

// lifeOf returns the context of a process that may die.
func lifeOf(dies bool) context.Context {
	if dies {
		return dying
	}
	return ctx
}

func isOne(err error, of []error) bool {
	return slices.ContainsFunc(of, func(one error) bool { return errors.Is(err, one) })
}

// Whoever renews a link is not undone by a reaper that has already begun to end it, nor is the link
// left without what leads to it, even if that reaper dies.
func TestALinkThatIsRenewedWhileItIsReaped(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("the reaper dies: %t", dies), func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			r.atEachCall(dies, func(n int) []faultproxy.Call {
				s := r.instance()
				there("a", url1, time.Hour, later(time.Hour))(r, other)
				var renewed error
				r.meet(n, dies, func() { renewed = setEnd(5*time.Hour)(ctx, r, other) })
				first := reap(lifeOf(dies), r, s)
				calls := r.ended()
				if first != nil && !dies {
					t.Error(first)
				}
				// the next one
				should(t, patiently(func() error { return reap(ctx, r, other) }))
				if len(calls) >= n && renewed == nil {
					lacksNothing(t, r, other)
				}
				r.endAll(other)
				return calls
			})
		})
	}
}

// A reaper that has read a link stands still, while it is extended and the next reaper handles its
// row. Then it goes on, and finds that it has lost the lock, or dies. The link loses nothing by
// that, or gets it back.
func TestAStalledReaperThatLosesItsLock(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("dies: %t", dies), func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			for meet, met := 1, true; met; meet++ {
				met = false
				for end, calls := meet, meet; end <= calls; end++ {
					s := r.instance()
					there("a", url1, time.Hour, later(time.Hour))(r, other)
					life, lose := context.WithCancelCause(lifeOf(dies))
					var renewed error
					r.proxy.Before(func(call faultproxy.Call) faultproxy.Fault {
						if call.N == meet {
							met = true
							renewed = both(setEnd(5*time.Hour), later(70*time.Second), reap)(ctx, r,
								other)
						}
						if call.N >= end {
							lose(errors.New("the lock is lost"))
							if dies {
								return faultproxy.Refuse
							}
						}
						return faultproxy.None
					})
					_, _ = s.Reap(life)
					calls = len(r.proxy.Calls())
					r.ended()
					lose(nil)
					for range 2 { // any number of further runs
						r.clock.Advance(15 * time.Minute)
						if err := patiently(func() error {
							return reap(ctx, r, other)
						}); err != nil {
							t.Error(err)
						}
					}
					if met && renewed == nil {
						lacksNothing(t, r, other)
					} else if met && !isOne(renewed, either) {
						t.Error(renewed)
					}
					r.endAll(other)
					if t.Failed() {
						t.Fatalf("they met at call %d, and it ended at %d", meet, end)
					}
				}
			}
		})
	}
}

// A create that has found a link deleted, expired or another owner's meets what makes it live
// again, or its own owner's, which at some point meets another create: both creates get one link.
func TestARenewalBetweenTwoCreates(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		owner string
		operation
	}{
		"restored":                {"a", operation{there("a", url1, time.Hour, deleteOne), restoreOne}},
		"restored, without owner": {"", operation{there("", url1, time.Hour, deleteOne), restoreOne}},
		"extended": {"a", operation{there("a", url1, time.Hour, later(time.Hour)),
			setEnd(5 * time.Hour)}},
		"extended, without owner": {"", operation{there("", url1, time.Hour, later(time.Hour)),
			setEnd(5 * time.Hour)}},
		"transferred back": {"a", operation{there("a", url1, time.Hour, brokenOff(transfer("b"))),
			transfer("a")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			give := func(s *storage.Links) link.Name {
				l, _, err := s.Create(ctx, r.wish(test.owner, "", url1, time.Hour), "")
				should(t, err)
				return l.Name
			}
			r.atEachTwoCalls(func(first, second int) (one, two bool) {
				test.before(r, other)
				var given link.Name
				renewed := false
				r.proxy.Before(func(call faultproxy.Call) faultproxy.Fault {
					switch {
					case call.N == first:
						one = true
						if err := test.do(ctx, r, r.instance()); err != nil && !isOne(err, either) {
							t.Error(err)
						}
						renewed = true
					case call.N == first+second && !renewed:
						two = true
						given = give(other)
					}
					return faultproxy.None
				})
				got := give(r.instance())
				r.ended()
				if two && got != given {
					t.Errorf("given %s and %s", got, given)
				}
				if again := give(other); again != got {
					t.Errorf("given %s, and now %s", got, again)
				}
				r.endAll(other)
				return one, two
			})
		})
	}
}

// A reaper that has read an expired link meets its extension, after which it was given to somebody:
// it is given to the next one.
func TestALinkThatIsGivenWhileItIsReaped(t *testing.T) {
	t.Parallel()
	r, other := newCrashRig(t)
	r.atEachTwoCalls(func(first, second int) (one, two bool) {
		there("a", url1, time.Hour, later(time.Hour))(r, other)
		var given, again link.Link
		var renewed error
		r.proxy.Before(func(call faultproxy.Call) faultproxy.Fault {
			switch {
			case call.N == first:
				one = true
				if renewed = setEnd(5*time.Hour)(ctx, r, other); renewed == nil {
					given, _, renewed = other.Create(ctx, r.wish("a", "", url1, 0), "")
				}
			case call.N == first+second && renewed == nil:
				two = true
				again, _, _ = other.Create(ctx, r.wish("a", "", url1, 0), "")
			}
			return faultproxy.None
		})
		should(t, reap(ctx, r, r.instance()))
		r.ended()
		if one && !isOne(renewed, either) || two && given.Name != again.Name {
			t.Errorf("given %s, then %s, %v", given.Name, again.Name, renewed)
		}
		r.endAll(other)
		return one, two
	})
}

// However edits meet, once the reaper was there the index leads to the link by its URL.
func TestALinkKeepsItsPlaceInTheIndex(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		operation
		second doing
	}{
		"there and back": {operation{there("a", url1, 0), setURL(url2)},
			setURL(url1)},
		"restore, and another URL": {operation{there("a", url1, 0, deleteOne), restoreOne},
			setURL(url2)},
		"claim, and another URL": {operation{there("", url1, 0), claim("a", false)},
			setURL(url2)},
		"another URL, and a claim": {operation{there("", url1, 0), setURL(url2)},
			claim("a", false)},
		"another URL, and a deletion": {operation{there("a", url1, 0), setURL(url2)},
			both(deleteOne, restoreOne)},
		"create, and another URL": {operation{nil, create("a", "", url1, 0)}, anyURL(url2)},
		"create, and there and back": {operation{nil, create("a", "", url1, 0)},
			both(anyURL(url2), anyURL(url1))},
		"another URL, and a third one": {operation{there("a", url1, 0), setURL(url2)},
			setURL(url3)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			r.atEachCall(false, func(n int) []faultproxy.Call {
				r.begin(test.operation, other)
				r.meet(n, false, func() {
					rows := r.Rows(r.Links)
					if len(rows) > 0 && rows[0]["DeletedAtUtc"] == nil {
						if err := test.second(ctx, r, other); !isOne(err, either) {
							t.Error(err)
						}
					}
				})
				err := test.do(ctx, r, r.instance())
				calls := r.ended()
				if !isOne(err, either) {
					t.Error(err)
				}
				for range 2 {
					r.clock.Advance(10 * time.Minute)
					should(t, patiently(func() error { return reap(ctx, r, other) }))
				}
				row := r.Rows(r.Links)[0]
				l, created, err := other.Create(ctx, r.wish(fmt.Sprint(cmp.Or(row["Owner"], "")),
					"", row["LongUrl"].(string), 0), "")
				if err != nil || created || string(l.Name) != row["RowKey"] {
					t.Errorf("%v: got %+v, created %t, %v", row, l, created, err)
				}
				r.endAll(other)
				return calls
			})
		})
	}
}

// A create stands still between its reads, for longer than it takes a link to settle that is
// restored meanwhile.
func TestACreateThatStoodStill(t *testing.T) {
	t.Parallel()
	r, other := newCrashRig(t)
	there("a", url1, 0, deleteOne)(r, other)
	var given link.Link
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == "GetEntity" && c.Target == r.Links && given.Name == "" {
			var err error
			if given, _, err = other.Create(ctx, r.wish("a", "", url1, 0), ""); err == nil {
				err = restoreOne(ctx, r, other)
			}
			should(t, err)
			r.clock.Advance(10 * time.Minute)
		}
		return faultproxy.None
	})
	l, _, err := r.instance().Create(ctx, r.wish("a", "", url1, 0), "")
	if err == nil && l.Name != given.Name {
		t.Errorf("given %s, and then %s", given.Name, l.Name)
	}
}

// The first try of an insert into the index is stuck until its link has moved on, or is no more.
func TestAnIndexRowThatIsLate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		operation
		then  doing
		fails bool // no other try gets a response
	}{
		"killed create, then the end": {operation{nil, create("a", "", url1, time.Minute)},
			both(later(61*time.Second), reap), true},
		"failed create, then another URL": {operation{nil, create("a", "", url1, 0)}, anyURL(url2),
			true},
		"failed create, then the end": {operation{nil, create("a", "", url1, time.Minute)},
			both(later(61*time.Second), reap), true},
		"create, then another URL": {operation{nil, create("a", "", url1, 0)}, anyURL(url2),
			false},
		"create, then the end": {operation{nil, create("a", "", url1, time.Minute)},
			both(later(2*time.Minute), reap), false},
		"edit, then another URL": {operation{there("a", url1, 0), setURL(url2)},
			setURL(url3), false},
		"edit, then the end": {operation{there("a", url1, time.Minute), setURL(url2)},
			both(later(61*time.Second), reap), false},
		"restore, then another URL": {operation{there("a", url1, 0, deleteOne), restoreOne},
			setURL(url2), false},
		"restore, then the end": {operation{there("a", url1, time.Minute, deleteOne),
			restoreOne}, both(later(61*time.Second), reap), false},
		"claim, then another URL": {operation{there("", url1, time.Hour),
			claim("a", false)}, setURL(url2), false},
		"import, then another URL": {operation{nil, importing("", url1, 0)}, setURL(url2),
			false},
		"reap, then another URL": {operation{there("a", url1, time.Hour, setEnd(5*time.Hour),
			unindexed, func(_ context.Context, r *rig, _ *storage.Links) error {
				// of an edit that was stopped
				r.Put(r.Expiry, rawtables.Expiry(r.wish("a", "one", url1, time.Minute)))
				r.clock.Advance(2 * time.Minute)
				return nil
			}), reap}, setURL(url2), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			s := r.instance()
			r.begin(test.operation, other)
			arrive, arrived := make(chan struct{}), make(chan struct{})
			var inserts atomic.Int64
			r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
				if c.Operation == "InsertEntity" && c.Target == r.Index {
					if inserts.Add(1) == 1 {
						<-arrive
						defer close(arrived)
						return faultproxy.DropResponse
					}
					if test.fails {
						return faultproxy.Refuse
					}
				}
				if inserts.Load() > 0 && strings.HasPrefix(name, "killed") {
					return faultproxy.Refuse
				}
				return faultproxy.None
			})
			if err := test.do(hasty, r, s); (err != nil) != test.fails {
				t.Error(err)
			}
			should(t, test.then(ctx, r, other))
			close(arrive)
			<-arrived
			r.ended()
			r.clock.Advance(10 * time.Minute)
			should(t, patiently(func() error { return reap(ctx, r, other) }))
			r.WantNoLeak()
			r.endAll(other)
		})
	}
}

// The insert of a link may be applied a minute after its client has given it up. Until then, no
// list and no reaper takes the rows away that it needs.
func TestALinkThatArrivesTooLate(t *testing.T) {
	t.Parallel()
	for name, life := range map[string]time.Duration{"for ever": 0, "for a minute": time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			arrive, arrived := make(chan struct{}), make(chan struct{})
			var inserts atomic.Int64
			r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
				if c.Operation != "InsertEntity" || c.Target != r.Links {
					return faultproxy.None
				}
				if inserts.Add(1) > 1 {
					return faultproxy.Refuse
				}
				r.clock.Advance(4 * time.Second)
				<-arrive
				defer close(arrived)
				return faultproxy.DropResponse
			})
			if _, _, err := r.instance().Create(hasty, r.wish("a", "", url1, life), ""); err == nil {
				t.Error("it got a response")
			}
			r.clock.Advance(57 * time.Second)
			should(t, list("a")(ctx, r, other))
			should(t, reap(ctx, r, other))
			close(arrive)
			<-arrived
			r.ended()
			r.clock.Advance(10 * time.Minute)
			should(t, reap(ctx, r, other))
			r.WantNoLeak()
			r.endAll(other)
		})
	}
}

// anyURL leads the one link that there is elsewhere.
func anyURL(url string) doing {
	return func(ctx context.Context, r *rig, s *storage.Links) error {
		_, err := s.Edit(ctx, link.Name(r.Rows(r.Links)[0]["RowKey"].(string)),
			false, func(l link.Link) (link.Link, error) {
				l.LongURL, l.UpdatedAt = url, r.clock.Now()
				return l, nil
			})
		return err
	}
}

// However short the time is for which deleted links are kept, a reaper that comes between the
// writes of a delete finds the link later, though the clocks of both are wrong.
func TestADeleteThatIsKeptShorterThanItTakes(t *testing.T) {
	t.Parallel()
	for _, keep := range []time.Duration{time.Second, 30 * time.Second} {
		for _, tombstone := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprint(keep, tombstone), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				r.leaveTombstones(tombstone)
				r.config.DeletedKeep, r.DeletedKeep = keep, keep
				r.Make()
				other, s := r.other(), r.instance()
				there("a", url1, 0)(r, other)
				r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
					if c.Operation == "UpdateEntity" && c.Target == r.Links {
						r.clock.Advance(35 * time.Second) // so far is the reaper's clock ahead
						should(t, reap(ctx, r, other))
						r.clock.Advance(-31 * time.Second)
					}
					return faultproxy.None
				})
				should(t, deleteOne(ctx, r, s))
				r.ended()
				r.WantNoLeak()
				for range 3 {
					r.clock.Advance(2 * time.Hour)
					should(t, reap(ctx, r, other))
				}
				r.WantNothing()
			})
		}
	}
}

// A process stands still at some point of an operation, for longer than links live and rows are
// kept for it, and its call arrives after that.
func TestAnOperationThatWasStoppedTooLong(t *testing.T) {
	t.Parallel()
	for name, op := range operations {
		if strings.HasPrefix(name, "reap") {
			continue // the lock and the limit of a run are what keeps a reaper from that
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n, all := 1, false; !all; n++ {
				untilRepaired(t, func(r *rig) (check func()) {
					r.leaveTombstones(teststore.TombstoneKeep)
					r.Make()
					other, s := r.other(), r.instance()
					r.begin(op, other)
					r.meet(n, false, func() {
						r.clock.Advance(90 * time.Minute) // links of an hour end
						if err := patiently(func() error {
							return reap(ctx, r, other)
						}); err != nil {
							t.Error(err)
						}
					})
					err := op.do(ctx, r, s)
					all = len(r.proxy.Calls()) < n
					return func() {
						r.ended()
						if !isOne(err, append([]error{link.ErrUnavailable}, either...)) {
							t.Errorf("got %v", err)
						}
						r.endAll(other)
						if t.Failed() {
							t.Fatalf("stopped at call %d", n)
						}
					}
				})
			}
		})
	}
}

// A caller asks for a later end of a link whose end passes meanwhile, and another one shortens the
// URL then. Both are given the same link.
func TestALinkThatIsExtendedAtItsEnd(t *testing.T) {
	t.Parallel()
	r, other := newCrashRig(t)
	r.atEachCall(false, func(n int) []faultproxy.Call {
		there("", url1, time.Hour, later(time.Hour-time.Second))(r, other)
		var late link.Link
		var lateErr error
		r.meet(n, false, func() {
			r.clock.Advance(2 * time.Second)
			late, _, lateErr = other.Create(ctx, r.wish("", "", url1, 5*time.Hour), "")
		})
		l, _, err := r.instance().Create(ctx, r.wish("", "", url1, 5*time.Hour), "")
		calls := r.ended()
		if len(calls) >= n && err == nil && lateErr == nil && l.Name != late.Name {
			t.Errorf("given %+v and %+v", l, late)
		}
		r.endAll(other)
		return calls
	})
}
