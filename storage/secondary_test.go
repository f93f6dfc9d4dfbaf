package storage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/azurite"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
	"tiney/storage"
	"tiney/storage/table"
)

// twoRegions is a rig whose account has a copy in a second region, which is another emulator.
type twoRegions struct {
	*rig
	second *faultproxy.Proxy
	copies *rawtables.Tables
}

func newTwoRegions(t *testing.T, other place) twoRegions {
	t.Helper()
	r := newRig(t)
	r.Make()
	second := other.newProxy()
	copies := rawtables.On(t, other.direct, r.prefix())
	copies.Make()
	r.config.OpenCopy = r.through(second)
	return twoRegions{r, second, copies}
}

// always makes all calls of a proxy meet a fault.
func always(p *faultproxy.Proxy, fault faultproxy.Fault) {
	p.Before(func(faultproxy.Call) faultproxy.Fault { return fault })
}

func TestSecondary(t *testing.T) {
	t.Parallel()
	other := newMemory(time.Now)
	if !*inMemory {
		server, err := azurite.StartAnywhere(t.Context())
		must(t, err)
		t.Cleanup(server.Stop)
		other = newAzurite(t, server.Ports)
	}

	const now, before = "https://example.com/now", "https://example.com/before"
	for _, test := range []struct {
		name      string
		primary   faultproxy.Fault
		secondary faultproxy.Fault
		copied    link.State // of the copy; "none": it is behind, and there is none
		want      string     // where the link leads, or a state
		err       error
		asked     bool // the secondary
	}{
		{"all is well", faultproxy.None, faultproxy.None, link.StateLive, now, nil, false},
		{"the primary refuses", faultproxy.Refuse, faultproxy.None, link.StateLive, before, nil,
			true},
		{"the primary is busy", faultproxy.ServerBusy, faultproxy.None, link.StateLive, before, nil,
			true},
		{"the primary is frozen", faultproxy.Freeze, faultproxy.None, link.StateLive, before, nil,
			true},
		{"an expired link", faultproxy.Refuse, faultproxy.None, link.StateExpired, "expired", nil,
			true},
		{"a disabled link", faultproxy.Refuse, faultproxy.None, link.StateDisabled, "disabled", nil,
			true},
		{"a deleted link", faultproxy.Refuse, faultproxy.None, link.StateDeleted, "deleted", nil,
			true},
		{"the secondary is behind", faultproxy.Refuse, faultproxy.None, "none", "",
			link.ErrUnavailable, true},
		{"both refuse", faultproxy.Refuse, faultproxy.Refuse, link.StateLive, "",
			link.ErrUnavailable, true},
		{"both are frozen", faultproxy.Freeze, faultproxy.Freeze, link.StateLive, "",
			link.ErrUnavailable, true},
	} {
		for _, cache := range []*storage.CacheConfig{nil, withCache} {
			t.Run(fmt.Sprintf("%s, cache %t", test.name, cache != nil), func(t *testing.T) {
				t.Parallel()
				r := newTwoRegions(t, other)
				r.PutLink(link.Link{Name: "abcdef", LongURL: now})
				copied := link.Link{Name: "abcdef", LongURL: before,
					Disabled: test.copied == link.StateDisabled}
				switch test.copied {
				case link.StateExpired:
					copied.ExpiresAt = r.clock.Now().Add(-time.Hour)
				case link.StateDeleted:
					copied.DeletedAt = r.clock.Now()
				}
				if test.copied != "none" {
					r.copies.PutLink(copied)
				}
				s := r.open(cache)
				always(r.proxy, test.primary)
				always(r.second, test.secondary)
				begin := time.Now()
				l, err := s.Get(hasty, "abcdef")
				if took := time.Since(begin); took > table.Timeout+slack {
					t.Errorf("it took %v", took)
				}
				got := l.LongURL
				if state := l.State(r.clock.Now()); err == nil && state != link.StateLive {
					got = string(state)
				}
				if got != test.want || !errors.Is(err, test.err) {
					t.Errorf("it leads to %q, %v, want %q, %v", got, err, test.want, test.err)
				}
				calls := r.second.Calls()
				if (len(calls) > 0) != test.asked ||
					slices.ContainsFunc(calls, func(c faultproxy.Call) bool { return c.Operation != "GetEntity" }) {
					t.Errorf("the secondary was called: %v", calls)
				}
			})
		}
	}

	t.Run("slow primary", func(t *testing.T) {
		t.Parallel()
		r := newTwoRegions(t, other)
		r.PutLink(link.Link{Name: "abcdef", LongURL: now})
		s := r.open(withCache)
		r.proxy.Before(func(faultproxy.Call) faultproxy.Fault {
			time.Sleep(2 * time.Second)
			return faultproxy.None
		})
		// The copy does not have the link yet, and says nothing by that.
		if l, err := s.Get(ctx, "abcdef"); err != nil || l.LongURL != now ||
			len(r.second.Calls()) == 0 {
			t.Errorf("got %+v, %v, calls %v", l, err, r.second.Calls())
		}
		if _, err := s.Get(ctx, "nobody"); !errors.Is(err, link.ErrNotFound) {
			t.Errorf("of a link that the primary knows not to exist: %v", err)
		}
	})

	// What a slow primary calls ended is not what the copy says, but for the first one who asks.
	for _, ended := range []link.Link{{Name: "abcdef", LongURL: now, DeletedAt: time.Now()},
		{Name: "abcdef", LongURL: now, Disabled: true}} {
		for _, cache := range []*storage.CacheConfig{nil, withCache} {
			t.Run(fmt.Sprintf("slow primary knows that it is disabled %t, cache %t", ended.Disabled,
				cache != nil), func(t *testing.T) {
				t.Parallel()
				r := newTwoRegions(t, other)
				r.PutLink(ended)
				r.copies.PutLink(link.Link{Name: "abcdef", LongURL: now})
				s := r.open(cache)
				r.proxy.Before(func(faultproxy.Call) faultproxy.Fault {
					time.Sleep(1800 * time.Millisecond)
					return faultproxy.None
				})
				s.Get(ctx, "abcdef")
				time.Sleep(time.Second) // the primary's response arrives
				r.clock.Advance(6 * time.Second)
				for range 2 {
					if l, err := s.Get(ctx, "abcdef"); err != nil ||
						l.State(r.clock.Now()) == link.StateLive {
						t.Errorf("got %+v, %v", l, err)
					}
				}
				always(r.proxy, faultproxy.Refuse)
				if l, err := s.Get(ctx, "abcdef"); !errors.Is(err, link.ErrUnavailable) {
					t.Errorf("in an outage after that: %+v, %v", l, err)
				}
				// When the copy must have caught up, it is right.
				r.clock.Advance(time.Hour)
				if l, err := s.Get(ctx, "abcdef"); err != nil || !l.Stale || l.LongURL != now {
					t.Errorf("an hour later: %+v, %v", l, err)
				}
			})
		}
	}

	t.Run("ping of a frozen primary", func(t *testing.T) {
		t.Parallel()
		r := newTwoRegions(t, other)
		s := r.open(nil)
		always(r.proxy, faultproxy.Freeze)
		brief, cancel := context.WithTimeout(ctx, 2*time.Second) // as /api/ready has it
		defer cancel()
		if err := s.Ping(brief); !errors.Is(err, link.ErrSecondaryOnly) {
			t.Errorf("got %v", err)
		}
	})

	// What the secondary said is served at once for some seconds, but never as fresh: once the
	// primary is back, it is asked.
	t.Run("afterwards", func(t *testing.T) {
		t.Parallel()
		r := newTwoRegions(t, other)
		r.PutLink(link.Link{Name: "abcdef", LongURL: now})
		r.copies.PutLink(link.Link{Name: "abcdef", LongURL: before})
		s := r.open(withCache)
		always(r.proxy, faultproxy.Refuse)
		get := func() {
			t.Helper()
			if l, err := s.Get(ctx, "abcdef"); err != nil || l.LongURL != before || !l.Stale {
				t.Fatalf("got %+v, %v", l, err)
			}
		}
		testutil.Eventually(t, "it is cached", func() bool { get(); return r.metrics.CacheStaleHit.Value() > 0 })
		calls, primary := len(r.second.Calls()), len(r.proxy.Calls())
		get()
		if n := len(r.second.Calls()); n != calls ||
			int64(n) != r.metrics.RedirectSecondary.Value() || len(r.proxy.Calls()) != primary {
			t.Errorf("%d calls to the secondary, %d before, %d links of it; %d to the primary, "+
				"%d before", n, calls, r.metrics.RedirectSecondary.Value(),
				len(r.proxy.Calls()), primary)
		}
		always(r.proxy, faultproxy.None)
		r.clock.Advance(6 * time.Second)
		if l, err := s.Get(ctx, "abcdef"); err != nil || l.LongURL != now || l.Stale {
			t.Errorf("with the primary back, got %+v, %v", l, err)
		}
	})

	t.Run("writes and other reads", func(t *testing.T) {
		t.Parallel()
		r := newTwoRegions(t, other)
		r.PutLink(link.Link{Name: "abcdef", LongURL: now})
		r.copies.PutLink(link.Link{Name: "abcdef", LongURL: now})
		s := r.open(withCache)
		always(r.proxy, faultproxy.Refuse)
		if _, _, err := s.Create(ctx, r.want(now, time.Hour), ""); !errors.Is(err,
			link.ErrUnavailable) {
			t.Errorf("Create: %v", err)
		}
		if _, err := s.Read(ctx, "abcdef"); !errors.Is(err, link.ErrUnavailable) {
			t.Errorf("Read: %v", err)
		}
		if calls := r.second.Calls(); len(calls) > 0 {
			t.Errorf("the secondary was called: %v", calls)
		}
		if err := s.Ping(ctx); !errors.Is(err, link.ErrSecondaryOnly) {
			t.Errorf("Ping: %v", err)
		}
		always(r.second, faultproxy.Refuse)
		if err := s.Ping(ctx); !errors.Is(err, link.ErrUnavailable) ||
			errors.Is(err, link.ErrSecondaryOnly) {
			t.Errorf("Ping, with both down: %v", err)
		}
		always(r.proxy, faultproxy.None)
		if err := s.Ping(ctx); err != nil {
			t.Errorf("Ping: %v", err)
		}
	})

	// A process that starts in the outage knows the blocked hosts too, until it can ask for those
	// of now.
	t.Run("blocked hosts", func(t *testing.T) {
		t.Parallel()
		for _, fault := range []faultproxy.Fault{faultproxy.Refuse, faultproxy.Freeze} {
			r := newTwoRegions(t, other)
			r.copies.Put(r.copies.State, rawtables.Entity{"PartitionKey": "blocked",
				"RowKey": "example.com"})
			r.Put(r.State, rawtables.Entity{"PartitionKey": "blocked", "RowKey": "example.org"})
			r.config.ChangesEvery = time.Second
			s := r.instance()
			always(r.proxy, fault)
			testutil.Eventually(t, "the host is blocked", func() bool {
				return s.Blocked.Has(ctx, "https://example.com/")
			})
			always(r.proxy, faultproxy.None)
			r.clock.Advance(time.Minute)
			testutil.Eventually(t, "the first region's hosts are blocked", func() bool {
				r.clock.Advance(time.Second)
				_, _ = s.Get(ctx, "abcdef") // has the changes polled, as any request
				return s.Blocked.Has(ctx, "https://example.org/") &&
					!s.Blocked.Has(ctx, "https://example.com/")
			})
		}
	})

	t.Run("hosts that were blocked before they are read", func(t *testing.T) {
		t.Parallel()
		r := newTwoRegions(t, other)
		r.copies.Put(r.copies.State, r.blocked("a.example"))
		r.copies.Put(r.copies.State, r.blocked("b.example"))
		r.Put(r.State, r.blocked("a.example"))
		s := r.instance()
		always(r.second, faultproxy.Freeze)
		r.proxy.Before(faultproxy.On("QueryEntities", r.State, faultproxy.ServerBusy))
		want := func(what string, blocked, unblocked []string) {
			t.Helper()
			for _, host := range blocked {
				testutil.Eventually(t, what+": "+host+" is blocked", func() bool {
					r.clock.Advance(5 * time.Second)
					return s.Blocked.Has(ctx, "https://"+host)
				})
			}
			for _, host := range unblocked {
				if s.Blocked.Has(ctx, "https://"+host) {
					t.Errorf("%s: %s is blocked", what, host)
				}
			}
		}
		r.unblock(s, "a.example")
		r.block(s, "c.example")
		if !s.Blocked.Has(ctx, "https://c.example") {
			t.Error("a process does not know what it has blocked")
		}
		always(r.second, faultproxy.None)
		want("from the copy", []string{"b.example", "c.example"}, []string{"a.example"})
		r.proxy.Reset()
		testutil.Eventually(t, "those of the copy go", func() bool {
			r.clock.Advance(5 * time.Second)
			return !s.Blocked.Has(ctx, "https://b.example")
		})
		want("from the first region", []string{"c.example"}, []string{"a.example"})
	})

	t.Run("without its table", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		r.Make()
		r.config.OpenCopy = other.direct
		s := r.open(nil)
		always(r.proxy, faultproxy.Refuse)
		if _, err := s.Get(ctx, "abcdef"); !errors.Is(err, link.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
}

// In any case, the secondary serves a link in every spelling, and says nothing of a spelling that
// it could not look for.
func TestSecondaryInAnyCase(t *testing.T) {
	t.Parallel()
	r := newTwoRegions(t, newMemory(time.Now))
	r.config.AnyCase = true
	s := r.open(withCache)
	l := link.Link{Name: "docs", LongURL: "https://example.com/", CreatedAt: r.clock.Now()}
	r.copies.PutLink(l)
	always(r.proxy, faultproxy.Refuse)
	if got, err := s.Get(ctx, "DOCS"); err != nil || !got.Stale || got.Name != "docs" {
		t.Errorf("got %+v, %v", got, err)
	}
	always(r.second, faultproxy.Refuse)
	if got, err := s.Get(ctx, "Docs"); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("with no region: %+v, %v", got, err)
	}
}
