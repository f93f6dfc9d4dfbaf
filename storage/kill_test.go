package storage_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/teststore"
	"tiney/storage"
)

// dying is the context of a process that is about to be killed: it tries nothing twice.
var dying = faultproxy.WithTries(hasty, policy.RetryOptions{MaxRetries: -1,
	TryTimeout: time.Minute})

// persistent is the context of an operation that tries each call more often than the product does.
var persistent = faultproxy.WithTries(hasty, policy.RetryOptions{
	MaxRetries: 10, RetryDelay: 10 * time.Millisecond, MaxRetryDelay: 50 * time.Millisecond,
	TryTimeout: time.Minute,
})

// Who edits, in these tests: "a" and "b" are owners.
const url1, url2, url3 = "https://example.com/1", "https://example.com/2", "https://example.com/3"

// An operation is one that writes, on links that are there before it. It can be done by any
// instance, and repeated.
type operation struct {
	before func(r *rig, s *storage.Links) // makes the links, and puts the clock forward
	do     func(ctx context.Context, r *rig, s *storage.Links) error
}

// edit returns an operation on the link "one".
func edit(change func(now time.Time, l link.Link) (link.Link, error)) func(context.Context, *rig,
	*storage.Links) error {
	return func(ctx context.Context, r *rig, s *storage.Links) error {
		_, err := s.Edit(ctx, "one", false, func(l link.Link) (link.Link, error) {
			return change(r.clock.Now(), l)
		})
		return err
	}
}

func setURL(url string) func(context.Context, *rig, *storage.Links) error {
	return edit(func(now time.Time, l link.Link) (link.Link, error) {
		l.LongURL, l.UpdatedAt = url, now
		return l, nil
	})
}

func setEnd(life time.Duration) func(context.Context, *rig, *storage.Links) error {
	return edit(func(now time.Time, l link.Link) (link.Link, error) {
		if l.UsedUp() {
			return l, nil // no owner may do that
		}
		l.ExpiresAt = time.Time{}
		if life > 0 {
			l.ExpiresAt = now.Truncate(time.Hour).Add(life) // the same if it is repeated
		}
		l.UpdatedAt = now
		return l, nil
	})
}

var (
	deleteOne = edit(func(now time.Time, l link.Link) (link.Link, error) {
		return l.Deleted(link.Actor{Own: true}, now)
	})
	takeDown = edit(func(now time.Time, l link.Link) (link.Link, error) {
		return l.Deleted(link.Actor{Admin: true}, now)
	})
	disableByAdmin = edit(func(now time.Time, l link.Link) (link.Link, error) {
		if !l.DeletedAt.IsZero() {
			return l, nil
		}
		return link.Rules{}.Edit(l, link.Patch{Disabled: new(true)}, link.Actor{Admin: true}, now)
	})
	restoreOne = edit(func(now time.Time, l link.Link) (link.Link, error) {
		if l.DeletedAt.IsZero() {
			return l, nil
		}
		return l.Restored(link.Actor{Own: true}, teststore.DeletedKeep, now)
	})
)

func claim(owner string, keepExpiry bool) func(context.Context, *rig, *storage.Links) error {
	return func(ctx context.Context, r *rig, s *storage.Links) error {
		errs, err := editAll(ctx, s, []link.Name{"one"}, func(_ int, l link.Link) (link.Link,
			error) {
			if l.Owner != "" || l.State(r.clock.Now()) != link.StateLive {
				return l, nil
			}
			return l.Claimed(link.Actor{By: owner}, owner, keepExpiry, r.clock.Now()), nil
		})
		if err != nil {
			return err
		}
		return errs[0]
	}
}

// transfer returns an operation that gives the link to an owner, whoever has it.
func transfer(to string) func(context.Context, *rig, *storage.Links) error {
	return edit(func(now time.Time, l link.Link) (link.Link, error) {
		if l.Owner == to {
			return l, nil // done before, and perhaps deleted since
		}
		return link.Rules{}.Edit(l, link.Patch{Owner: &to}, link.Actor{Admin: true}, now)
	})
}

func create(owner string, a link.Name, url string, life time.Duration) func(context.Context, *rig,
	*storage.Links) error {
	return func(ctx context.Context, r *rig, s *storage.Links) error {
		_, _, err := s.Create(ctx, r.wish(owner, a, url, life), "")
		if errors.Is(err, link.ErrAliasTaken) && owner == "" {
			return nil // done before: there is no telling
		}
		return err
	}
}

// importing returns an operation that imports the link "one", which ends in so long, or never if
// that is zero.
func importing(owner, url string, life time.Duration) func(context.Context, *rig,
	*storage.Links) error {
	return func(ctx context.Context, r *rig, s *storage.Links) error {
		l := r.wish(owner, "one", url, 0)
		// the same if it is repeated
		l.CreatedAt, l.Before = l.CreatedAt.Truncate(time.Hour), link.Count{Clicks: 7}
		if life != 0 {
			l.ExpiresAt = l.CreatedAt.Add(life)
		}
		got := s.Import(ctx, []link.Link{l})
		if errors.Is(got[0].Err, link.ErrAliasTaken) {
			return nil // done before, and reaped
		}
		return got[0].Err
	}
}

func reap(ctx context.Context, r *rig, s *storage.Links) error {
	done, err := s.Reap(ctx)
	if err == nil && done.Failed > 0 {
		err = fmt.Errorf("%w: %d rows failed", link.ErrUnavailable, done.Failed)
	}
	return err
}

// wish is a link to be made, for ever if life is zero.
func (r *rig) wish(owner string, a link.Name, url string, life time.Duration) link.Link {
	l := link.Link{Name: a, Owner: owner, LongURL: url, CreatedAt: r.clock.Now(),
		StatusCode: link.DefaultStatusCode}
	if life > 0 {
		l.ExpiresAt = l.CreatedAt.Add(life)
	}
	return l
}

// there returns the making of a link "one" before an operation. It is in the index, as if the alias
// had been drawn.
func there(owner, url string, life time.Duration, more ...func(context.Context, *rig,
	*storage.Links) error) func(*rig, *storage.Links) {
	return func(r *rig, s *storage.Links) {
		r.t.Helper()
		l := r.wish(owner, "one", url, life)
		if owner == "" {
			l.ClaimHash = "its hash"
		}
		if _, _, err := s.Create(ctx, l, ""); err != nil {
			r.t.Fatal(err)
		}
		r.Put(r.Index, rawtables.Index(l)) // which a create with a chosen alias leaves alone
		for _, do := range more {
			must(r.t, do(ctx, r, s))
		}
	}
}

func later(d time.Duration) func(context.Context, *rig, *storage.Links) error {
	return func(_ context.Context, r *rig, _ *storage.Links) error {
		r.clock.Advance(d)
		return nil
	}
}

// used returns the making of a link "one" that may be opened once, and was.
func used(life time.Duration, more ...doing) func(*rig, *storage.Links) {
	return there("a", url1, life, slices.Concat([]doing{setMaxOpens(1), openOne}, more)...)
}

// operations are all ways to write, from all states that they differ for.
var operations = map[string]operation{
	"create":                      {nil, create("", "", url1, time.Hour)},
	"create, owner's":             {nil, create("a", "", url1, 0)},
	"create, owner's with an end": {nil, create("a", "", url1, time.Hour)},
	"create, chosen":              {nil, create("", "one", url1, time.Hour)},
	"create, chosen by an owner":  {nil, create("a", "one", url1, time.Hour)},
	"create, known":               {there("", url1, time.Hour), create("", "", url1, time.Hour)},
	"create, expired before": {there("", url1, time.Hour, later(2*time.Hour)),
		create("", "", url1, time.Hour)},
	"create, deleted before":      {there("a", url1, 0, deleteOne), create("a", "", url1, 0)},
	"import":                      {nil, importing("a", url1, 0)},
	"import, no owner":            {nil, importing("", url1, 0)},
	"import, with an end":         {nil, importing("a", url1, time.Hour)},
	"import, no owner and an end": {nil, importing("", url1, time.Hour)},
	"import, ended before":        {nil, importing("a", url1, -time.Hour)},
	"import, ended":               {nil, importing("", url1, -10*time.Second)},
	"import, known":               {there("", url1, time.Hour), importing("", url1, time.Hour)},
	"import, URL taken": {func(r *rig, s *storage.Links) {
		r.create(s, url1, time.Hour)
	}, importing("", url1, time.Hour)},
	"edit, target":             {there("a", url1, 0), setURL(url2)},
	"edit, target of no owner": {there("", url1, time.Hour), setURL(url2)},
	"edit, target that is taken": {there("a", url1, 0, create("a", "two", url2, time.Hour)),
		setURL(url2)},
	"edit, end":             {there("a", url1, time.Hour), setEnd(5 * time.Hour)},
	"edit, first end":       {there("a", url1, 0), setEnd(5 * time.Hour)},
	"edit, no end any more": {there("a", url1, time.Hour), setEnd(0)},
	"edit, end of an expired link": {there("a", url1, time.Hour, later(2*time.Hour)),
		setEnd(5 * time.Hour)},
	"edit, target and end": {there("a", url1, time.Hour),
		edit(func(now time.Time, l link.Link) (link.Link, error) {
			l.LongURL, l.ExpiresAt, l.Title = url2, now.Truncate(time.Hour).Add(5*time.Hour), "both"
			return l, nil
		})},
	"edit, title": {there("a", url1, time.Hour),
		edit(func(_ time.Time, l link.Link) (link.Link, error) {
			l.Title = "a title"
			return l, nil
		})},
	"open":                                {there("a", url1, time.Hour, setMaxOpens(9)), openUp},
	"open, last":                          {there("a", url1, time.Hour, setMaxOpens(1)), openUp},
	"open, last of a link without an end": {there("a", url1, 0, setMaxOpens(2), openOne), openUp},
	"open, used up":                       {used(time.Hour), openUp},
	"maxOpens":                            {there("a", url1, time.Hour), setMaxOpens(2)},
	"maxOpens, again": {there("a", url1, time.Hour, setMaxOpens(2), openOne),
		setMaxOpens(2)},
	"maxOpens, no more":         {there("a", url1, 0, setMaxOpens(2)), setMaxOpens(0)},
	"maxOpens, used up":         {used(5 * time.Hour), setMaxOpens(2)},
	"maxOpens, used up, no end": {used(0), setMaxOpens(0)},
	"title, used up":            {used(time.Hour), setTitle("x")},
	"delete, used up":           {used(0), deleteOne},
	"restore, used up":          {used(0, deleteOne), restoreOne},
	"delete":                    {there("a", url1, 0), deleteOne},
	"delete, with an end":       {there("", url1, time.Hour), deleteOne},
	"restore":                   {there("a", url1, 0, deleteOne), restoreOne},
	"restore, with an end":      {there("", url1, time.Hour, deleteOne), restoreOne},
	"restore, expired meanwhile": {there("a", url1, time.Hour, deleteOne, later(2*time.Hour), reap),
		restoreOne},
	"restore, URL taken": {there("a", url1, 0, deleteOne, create("a", "", url1, time.Hour)),
		restoreOne},
	"claim":           {there("", url1, time.Hour), claim("a", false)},
	"claim, end kept": {there("", url1, time.Hour), claim("a", true)},
	"claim, shared": {there("", url1, time.Hour, create("", "", url1, time.Hour)),
		claim("a", false)},
	"transfer": {there("a", url1, 0), transfer("b")},
	"transfer, nobody's": {there("", url1, time.Hour, create("", "", url1, time.Hour)),
		transfer("b")},
	"transfer, expired": {there("a", url1, time.Hour, later(2*time.Hour)), transfer("b")},
	"transfer, URL taken": {there("a", url1, time.Hour, create("b", "", url1, time.Hour)),
		transfer("b")},
	"transfer, not in the index": {there("a", url1, 0, unindexed), transfer("b")},
	"transfer, in place of a deleted one": {there("b", url1, 0, deleteOne, later(time.Hour),
		renamed, create("a", "one", url1, 0)), transfer("b")},
	"transfer, and another URL and end": {there("a", url1, time.Hour),
		edit(func(now time.Time, l link.Link) (link.Link, error) {
			l.LongURL, l.ExpiresAt = url2, now.Truncate(time.Hour).Add(5*time.Hour)
			l.Owner, l.UpdatedAt = "b", now
			return l, nil
		})},
	"take down":                 {there("a", url1, 0, unindexed), takeDown},
	"take down by disabling":    {there("a", url1, 0), disableByAdmin},
	"take down what is deleted": {there("a", url1, 0, unindexed, deleteOne), takeDown},
	"reap":                      {there("", url1, time.Hour, later(2*time.Hour)), reap},
	"reap, owner's":             {there("a", url1, time.Hour, later(2*time.Hour)), reap},
	"reap, used up": {used(5*time.Hour,
		later(3*time.Minute)), reap},
	"reap, opened again": {used(0, setMaxOpens(1),
		later(3*time.Minute)), reap},
	"reap, deleted": {there("a", url1, 0, deleteOne, later(teststore.DeletedKeep)),
		reap},
	"reap, tombstone": {there("a", url1, time.Hour, later(2*time.Hour), reap,
		later(teststore.TombstoneKeep)), reap},
	"reap, extended": {there("a", url1, time.Hour, setEnd(5*time.Hour), func(_ context.Context,
		r *rig, _ *storage.Links) error {
		l := r.wish("a", "one", url1, time.Minute) // of an edit that was stopped
		r.Put(r.Expiry, rawtables.Expiry(l))
		r.clock.Advance(2 * time.Minute)
		return nil
	}), reap},
	"reap, clicked": {there("a", url1, time.Hour, clicked, rollUp, later(2*time.Hour), reap,
		later(teststore.TombstoneKeep)), reap},
	"reap, several": {func(r *rig, s *storage.Links) {
		r.expired(5, time.Hour, "due")
	}, reap},
}

// endAll ends all links that are there, lets time pass until nothing has to be kept, and checks
// that nothing is.
func (r *rig) endAll(s *storage.Links) {
	r.t.Helper()
	must := func(do func() error) {
		r.t.Helper()
		must(r.t, patiently(do))
	}
	if r.clicked {
		must(func() error { return rollUp(ctx, r, s) })
	}
	r.clock.Advance(2 * time.Hour) // lists delete rows that lead nowhere once they are an hour old
	if len(r.Rows(r.Owners)) > 0 {
		must(func() error { return both(list("a"), list("b"))(ctx, r, s) })
	}
	r.WantNoLeak()
	for _, row := range r.Rows(r.Links) {
		if row["GoneReason"] != nil || row["ExpiresAtUtc"] != nil || row["DeletedAtUtc"] != nil {
			continue
		}
		must(func() error {
			_, err := s.Edit(ctx, link.Name(row["RowKey"].(string)),
				false, func(l link.Link) (link.Link, error) {
					return l.Deleted(link.Actor{Admin: true, Own: true}, r.clock.Now())
				})
			return err
		})
	}
	for _, d := range []time.Duration{teststore.DeletedKeep + dayLong, teststore.DeletedKeep +
		teststore.TombstoneKeep} {
		r.clock.Advance(d)
		must(func() error { return reap(ctx, r, s) })
	}
	r.WantNothing()
}

// kill makes the proxy let through the calls of a process until it is killed, right before its nth
// call: to storage that is the same as right after the call before.
func kill(n int) func(faultproxy.Call) faultproxy.Fault {
	return func(c faultproxy.Call) faultproxy.Fault {
		if c.N < n {
			return faultproxy.None
		}
		return faultproxy.Refuse
	}
}

// reads reports whether a call changes nothing.
func reads(c faultproxy.Call) bool {
	return c.Operation == "GetEntity" || c.Operation == "QueryEntities"
}

// atEachCall plays what happens right before a process's nth call, for each n, and once without
// that. play returns the calls of the process. One that dies before a call leaves what it leaves if
// it dies before the call before, if that one reads: where it dies, such calls are left out.
func (r *rig) atEachCall(dies bool, play func(n int) []faultproxy.Call) {
	r.t.Helper()
	at := func(n int) []faultproxy.Call {
		calls := play(n)
		if r.t.Failed() {
			r.t.Fatalf("at call %d of %v", n, calls)
		}
		return calls
	}
	if !dies {
		for n := 1; len(at(n)) >= n; n++ {
		}
		return
	}
	calls := at(math.MaxInt)
	for i := range calls {
		if i == 0 || !reads(calls[i-1]) {
			at(i + 1)
		}
	}
}

// atEachTwoCalls plays what happens at two calls, for each two numbers of them. play reports which
// of the calls were made. The second number begins anew with each first one.
func (r *rig) atEachTwoCalls(play func(first, second int) (one, two bool)) {
	r.t.Helper()
	for first, one := 1, true; one; first++ {
		for second, two := 1, true; two; second++ {
			if one, two = play(first, second); r.t.Failed() {
				r.t.Fatalf("at calls %d and %d", first, second)
			}
		}
	}
}

// A process is killed at any point of any operation. Whatever that leaves behind harms nobody, can
// be done again, and is found when its time has come.
func TestKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	for name, op := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			again := false // done again, each second time
			r.atEachCall(true, func(n int) []faultproxy.Call {
				s := r.instance()
				r.begin(op, other)
				r.proxy.Before(kill(n))
				begun := time.Now()
				err := op.do(dying, r, s)
				calls := r.proxy.Calls()
				r.proxy.Reset()
				if len(calls) < n && err != nil && !tooSlow(err, begun) {
					t.Fatalf("unharmed: %v", err)
				}
				if again = !again; again {
					r.clock.Advance(time.Second)
					if err := patiently(func() error { return op.do(ctx, r, other) }); err != nil {
						t.Errorf("done again: %v", err)
					}
				}
				r.endAll(other)
				return calls
			})
		})
	}
}

// begin makes what an operation needs.
func (r *rig) begin(op operation, s *storage.Links) {
	r.t.Helper()
	if op.before != nil {
		op.before(r, s)
	}
}

// The response to a call is lost: the operation succeeds, and leaves what it would have left
// otherwise.
func TestAResponseIsLostAtAnyPoint(t *testing.T) {
	t.Parallel()
	for name, op := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			want := ""
			// at first no response is lost, then those to all reads, and then that to each write
			points := []int{0, -1}
			for i := 0; i < len(points); i++ {
				n, lost := points[i], atomic.Bool{}
				s := r.instance()
				r.begin(op, other)
				r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
					if c.N == n || n == -1 && reads(c) && lost.CompareAndSwap(false, true) {
						return faultproxy.DropResponse
					}
					if reads(c) {
						lost.Store(false)
					}
					return faultproxy.None
				})
				life, begun := ctx, time.Now()
				if n == -1 {
					life = persistent
				}
				err := op.do(life, r, s)
				slow := tooSlow(err, begun)
				if err != nil && !slow {
					t.Errorf("got %v", err)
				}
				calls := r.proxy.Calls()
				r.proxy.Reset()
				if got := r.shape(); slow {
				} else if want == "" {
					want = got
				} else if got != want {
					t.Errorf("left %s, want %s", got, want)
				}
				if i == 0 {
					for _, c := range calls {
						if !reads(c) {
							points = append(points, c.N)
						}
					}
				}
				r.endAll(other)
				if t.Failed() {
					t.Fatalf("call %d of %v", n, calls)
				}
			}
		})
	}
}

// One call fails for good, applied or not, and storage works again: what the operation does about
// it leaves nothing behind.
func TestACallFailsAtAnyPoint(t *testing.T) {
	t.Parallel()
	for name, op := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			for n, met := 1, true; met; n++ {
				for _, fault := range []faultproxy.Fault{faultproxy.ServerBusy,
					faultproxy.DropResponse} {
					s := r.instance()
					r.begin(op, other)
					r.proxy.Before(faultproxy.Fail(n, fault))
					if err := op.do(dying, r, s); err != nil &&
						!errors.Is(err, link.ErrUnavailable) {
						t.Errorf("got %v", err)
					}
					calls := r.proxy.Calls()
					met = len(calls) >= n
					r.proxy.Reset()
					r.endAll(other)
					if t.Failed() {
						t.Fatalf("call %d, response lost: %t", n, fault == faultproxy.DropResponse)
					}
					if !met || reads(calls[n-1]) {
						break // a read whose response is lost is one that has failed
					}
				}
			}
		})
	}
}

// counted returns the clicks that totals have, and those that days of months have.
func (r *rig) counted() (all []string) {
	r.t.Helper()
	for _, row := range r.Rows(r.ClickTotals) {
		all = append(all, fmt.Sprint(row["Clicks"], " since ever"))
	}
	for _, days := range r.Monthly() {
		for _, n := range days {
			all = append(all, fmt.Sprint(n, " on a day"))
		}
	}
	return all
}

// shape tells what links, index rows, owners' rows and counts there are, whatever their aliases and
// times. Expiry rows may be left over.
func (r *rig) shape() string {
	r.t.Helper()
	var all []string
	for _, row := range r.Rows(r.Links) {
		all = append(all, fmt.Sprint(row["LongUrl"], row["Owner"], row["Shared"], row["Title"],
			row["GoneReason"], row["OpensLeft"], row["DeletedAtUtc"] != nil,
			row["ExpiresAtUtc"] != nil, row["ExpiresAtUtcKept"] != nil))
	}
	for _, row := range r.Rows(r.Index) {
		all = append(all, fmt.Sprint(row["RowKey"]))
	}
	for _, row := range r.Rows(r.Owners) {
		all = append(all, fmt.Sprint(row["PartitionKey"]))
	}
	all = append(all, r.counted()...)
	slices.Sort(all)
	return strings.Join(all, "\n")
}
