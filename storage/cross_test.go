package storage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/internal/faultproxy"
	"tiney/internal/linkstest"
	"tiney/link"
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
		return l.Claimed("a", false, now), nil
	})
)

var errNotMine = errors.New("another's")

// either is what may become of one of two operations that cross.
var either = []error{nil, link.ErrNotFound, link.ErrNotDeleted, link.ErrDeleted, link.ErrShared, link.ErrAliasTaken, errNotMine}

// crossings are operations that meet on the same link or URL: the second one is done whole at some point of the first one.
var crossings = map[string]struct {
	before        func(*rig, *storage.Links)
	first, second doing
	check         func(t *testing.T, r *rig, s *storage.Links) // unless the first one died
}{
	"two edits of the target":        {there("a", url1, 0), setURL(url2), setURL(url3), leadsTo(url2, url3)},
	"two edits of target and end":    {there("a", url1, time.Hour), setURL(url2), setEnd(5 * time.Hour), leadsTo(url2)},
	"two edits of the end":           {there("a", url1, time.Hour), setEnd(5 * time.Hour), setEnd(0), leadsTo(url1)},
	"there and back":                 {there("a", url1, 0), setURL(url2), both(setURL(url3), setURL(url1)), leadsTo(url2, url1)},
	"edit, and the old URL is taken": {there("a", url1, 0), setURL(url2), create("a", "", url1, 0), leadsTo(url2)},
	"edit, and the new URL is taken": {there("a", url1, 0), setURL(url2), create("a", "", url2, 0), leadsTo(url2)},
	"create, and an edit to its URL": {there("a", url1, 0), create("a", "", url2, 0), setURL(url2), leadsTo(url2)},
	"edit of what is deleted":        {there("a", url1, 0), setURL(url2), deleteOne, nil},
	"delete of what is edited":       {there("a", url1, 0), deleteOne, setURL(url2), nil},
	"delete, and a create":           {there("", url1, time.Hour), deleteOne, create("", "", url1, time.Hour), nil},
	"create, and a delete":           {there("", url1, time.Hour), create("", "", url1, time.Hour), deleteOne, nil},
	"restore, and a create":          {there("a", url1, 0, deleteOne), restoreOne, create("a", "", url1, 0), leadsTo(url1)},
	"create, and a restore":          {there("a", url1, 0, deleteOne), create("a", "", url1, 0), restoreOne, leadsTo(url1)},
	"two creates":                    {nil, create("a", "", url1, 0), create("a", "", url1, time.Hour), nil},
	"two creates of an alias":        {nil, create("a", "one", url1, time.Hour), create("b", "one", url1, 0), nil},
	"restore at the last moment":     {there("a", url1, 0, deleteOne, later(linkstest.DeletedKeep-time.Second)), restoreOne, both(later(2*time.Second), reap), nil},
	"reap, restored late":            {there("a", url1, 0, deleteOne, later(linkstest.DeletedKeep)), reap, restoreLate, nil},
	"reap, renewed late":             {there("a", url1, time.Hour, later(time.Hour)), reap, setEnd(5 * time.Hour), nil},
	"reap, no end any more":          {there("a", url1, time.Hour, later(time.Hour)), reap, setEnd(0), nil},
	"reap, deleted late":             {there("a", url1, time.Hour, later(time.Hour)), reap, deleteOne, nil},
	"reap, claimed late":             {there("", url1, time.Hour, later(time.Hour)), reap, claimLate, nil},
	"reap, and a create":             {there("", url1, time.Hour, later(time.Hour)), reap, create("", "", url1, time.Hour), nil},
	"reap, and another title": {there("a", url1, time.Hour, later(time.Hour)), reap, edit(func(_ time.Time, l link.Link) (link.Link, error) {
		l.Title = "late"
		return l, nil
	}), nil},
	"two reapers":                {there("a", url1, time.Hour, later(time.Hour)), reap, reap, nil},
	"two reapers of a tombstone": {there("a", url1, time.Hour, later(time.Hour), reap, later(linkstest.TombstoneKeep)), reap, reap, nil},
	"renewed, and a reaper":      {there("a", url1, time.Hour, later(time.Hour-time.Second)), setEnd(5 * time.Hour), both(later(2*time.Second), reap), nil},
	"deleted, and a reaper":      {there("a", url1, time.Hour, later(time.Hour-time.Second)), deleteOne, both(later(2*time.Second), reap), nil},
	"claimed, and a reaper":      {there("", url1, time.Hour, later(time.Hour-time.Second)), claim("a", false), both(later(2*time.Second), reap), nil},
	"create, and a reaper":       {there("", url1, time.Hour, later(time.Hour-time.Second)), create("", "", url1, time.Hour), both(later(2*time.Second), reap), nil},
	"roll up, and a reaper":      {there("a", url1, time.Hour, clicked, later(time.Hour)), rollUp, reap, nil},
	"claim, and a create":        {there("", url1, time.Hour), claim("a", false), create("", "", url1, time.Hour), claimed},
	"create, and a claim":        {there("", url1, time.Hour), create("", "", url1, time.Hour), claim("a", false), claimed},
	"two claims":                 {there("", url1, time.Hour), claim("a", false), claim("b", true), nil},
	"claim, and a delete":        {there("", url1, time.Hour), claim("a", false), deleteOne, nil},
	"delete, and a claim":        {there("", url1, time.Hour), deleteOne, claim("a", false), nil},
}

// leadsTo checks that the link is live and has one of these URLs, and that its owner is given a link of that.
func leadsTo(urls ...string) func(t *testing.T, r *rig, s *storage.Links) {
	return func(t *testing.T, r *rig, s *storage.Links) {
		l, err := s.Read(ctx, "one")
		if err != nil || !slices.Contains(urls, l.LongURL) || l.State(r.clock.Now()) != link.StateLive {
			t.Errorf("got %+v, %v, want it to lead to %s", l, err, urls)
		}
		got, created, err := s.Create(ctx, r.wish(l.Owner, "", l.LongURL, 0), "")
		if err != nil || got.LongURL != l.LongURL {
			t.Errorf("its URL: got %+v, created %t, %v", got, created, err)
		}
	}
}

// claimed checks that the link is the owner's, and that nobody else is given it from now on.
func claimed(t *testing.T, r *rig, s *storage.Links) {
	l, err := s.Read(ctx, "one")
	if err != nil || l.Owner != "a" || !l.ExpiresAt.IsZero() {
		t.Errorf("got %+v, %v, want it claimed", l, err)
	}
	if got, _, err := s.Create(ctx, r.wish("", "", url1, time.Hour), ""); err != nil || got.Alias == "one" {
		t.Errorf("a stranger is given %+v, %v", got, err)
	}
	if got, _, err := s.Create(ctx, r.wish("a", "", url1, time.Hour), ""); err != nil || got.Alias != "one" {
		t.Errorf("its owner is given %+v, %v", got, err)
	}
}

// Two operations meet at every point, and one of them may die there. Whatever comes of them, nothing is left once all has
// ended.
func TestOperationsThatCross(t *testing.T) {
	t.Parallel()
	for name, c := range crossings {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the first dies: %t", name, dies), func(t *testing.T) {
				t.Parallel()
				r, other := newCrashRig(t)
				atEachCall(dies, func(n int) []faultproxy.Call {
					s := r.instance()
					if c.before != nil {
						c.before(r, other)
					}
					var second error
					r.meet(n, dies, func() { second = c.second(ctx, r, other) })
					begun := time.Now()
					first := c.first(lifeOf(dies), r, s)
					calls := r.proxy.Calls()
					r.proxy.Wait()
					r.proxy.Reset()
					for i, err := range []error{first, second} {
						if !(dies && i == 0) && !isOne(err, either) && !tooSlow(err, begun) {
							t.Errorf("got %v and %v", first, second)
						}
					}
					if c.check != nil && !dies && len(calls) >= n && second == nil && first == nil {
						c.check(t, r, other)
					}
					r.endAll(other)
					if t.Failed() {
						t.Fatalf("they met at call %d of %v", n, calls)
					}
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

// Whoever renews a link is not undone by a reaper that has already begun to end it, nor is the link left without what leads to
// it, even if that reaper dies.
func TestALinkThatIsRenewedWhileItIsReaped(t *testing.T) {
	t.Parallel()
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprintf("the reaper dies: %t", dies), func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			atEachCall(dies, func(n int) []faultproxy.Call {
				s := r.instance()
				there("a", url1, time.Hour, later(time.Hour))(r, other)
				var renewed error
				r.meet(n, dies, func() { renewed = setEnd(5*time.Hour)(ctx, r, other) })
				first := reap(lifeOf(dies), r, s)
				calls := r.proxy.Calls()
				r.proxy.Wait()
				r.proxy.Reset()
				if first != nil && !dies {
					t.Error(first)
				}
				if err := patiently(func() error { return reap(ctx, r, other) }); err != nil { // the next one
					t.Error(err)
				}
				if len(calls) >= n && renewed == nil {
					l, created, err := other.Create(ctx, r.wish("a", "", url1, 0), "")
					if err != nil || created || l.Alias != "one" {
						t.Errorf("its URL has %+v, created %t, %v", l, created, err)
					}
					if links, _, err := other.List(ctx, "a", "", 10, func(link.Link) bool { return true }); err != nil || len(links) != 1 {
						t.Errorf("listed %+v, %v", links, err)
					}
				}
				r.endAll(other)
				if t.Failed() {
					t.Fatalf("they met at call %d of %v", n, calls)
				}
				return calls
			})
		})
	}
}

// A process stands still at some point of an operation, for longer than links live and rows are kept for it, and its call
// arrives after that.
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
					r.leaveTombstones(linkstest.TombstoneKeep)
					r.Make()
					other, s := r.other(), r.instance()
					r.begin(op, other)
					r.meet(n, false, func() {
						r.clock.Advance(10 * time.Minute)
						if err := patiently(func() error { return reap(ctx, r, other) }); err != nil {
							t.Error(err)
						}
					})
					err := op.do(ctx, r, s)
					all = len(r.proxy.Calls()) < n
					return func() {
						r.proxy.Wait()
						r.proxy.Reset()
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
