package linkstest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"tiney/internal/link"
)

// BlockedHosts are the hosts that no link of a store may lead to.
type BlockedHosts interface {
	Has(ctx context.Context, longURL string) bool
	Add(ctx context.Context, h link.Host) error
	Remove(ctx context.Context, h link.Host) error
	List(ctx context.Context) ([]link.BlockedHost, error)
}

// conformBlocked tests that no link to a blocked host is made.
func conformBlocked(t *testing.T, start starter) {
	t.Run("hosts are blocked", func(t *testing.T) {
		s, clock, _ := start(t, rand.Reader)
		first := clock.Now()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		// All characters that a host may have besides letters and digits, and an address.
		const odd = "it's-_!\"$&()+,;=`{}~.example"
		for _, h := range []link.Host{"example.com", odd, "[2001:db8::1]"} {
			must(s.Blocked.Add(t.Context(), h))
		}
		clock.Advance(time.Hour)
		must(s.Blocked.Add(t.Context(), "example.com")) // it keeps its first time
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
		must(s.Blocked.Remove(t.Context(), "example.com"))
		must(s.Blocked.Remove(t.Context(), odd))
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
	})
	t.Run("no link is made that leads to a blocked host", func(t *testing.T) {
		const bad, good = "https://a.example.com/", "https://example.org/"
		s, clock, want := start(t, rand.Reader)
		known, owners := create(t, s, want(bad, time.Hour)), create(t, s, owned(want(bad, 0), "a"))
		other := create(t, s, owned(want(good, 0), "a"))
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
		if err := s.Blocked.Add(t.Context(), "example.com"); err != nil {
			t.Fatal(err)
		}
		blocked("a known URL", shorten(want(bad, time.Hour)))
		blocked("its owner's", shorten(owned(want(bad, time.Hour), "a")))
		blocked("a new URL", shorten(want(bad+"new", time.Hour)))
		blocked("a chosen alias", shorten(chosen(want(bad, time.Hour), "mine")))
		blocked("an edit", edit(other.Name, func(l *link.Link) { l.LongURL = bad }))
		// A link that leads there already can be read, disabled, deleted, restored, claimed, and
		// moved to another URL.
		for _, change := range []func(*link.Link){
			func(l *link.Link) { l.Disabled = true },
			func(l *link.Link) { l.DeletedAt = clock.Now() },
			func(l *link.Link) { l.DeletedAt = time.Time{} },
			func(l *link.Link) { l.LongURL = good + "2" },
		} {
			if err := edit(owners.Name, change); err != nil {
				t.Error(err)
			}
		}
		if err := edit(known.Name, func(l *link.Link) {
			*l = l.Claimed(link.Actor{By: "b"}, "b", true, clock.Now())
		}); err != nil {
			t.Error(err)
		}
		if l, err := s.Get(t.Context(), known.Name); err != nil || l.LongURL != bad {
			t.Errorf("got %+v, %v", l, err)
		}
		if err := s.Blocked.Remove(t.Context(), "example.com"); err != nil {
			t.Fatal(err)
		}
		create(t, s, chosen(want(bad, time.Hour), "mine"))
	})
}

// Blocked keeps blocked hosts in memory.
type Blocked struct {
	now func() time.Time

	mu    sync.Mutex
	hosts map[link.Host]time.Time
	fail  error
}

// Fail makes all calls except Has fail with err, until it is called with nil.
func (b *Blocked) Fail(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

// Has reports whether a long URL leads to a blocked host or to a subdomain of one.
func (b *Blocked) Has(_ context.Context, longURL string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.hosts) == 0 {
		return false
	}
	hosts := link.Hosts{}
	for h := range b.hosts {
		hosts[h] = struct{}{}
	}
	return hosts.Cover(longURL)
}

// Add blocks a host.
func (b *Blocked) Add(_ context.Context, h link.Host) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, there := b.hosts[h]; !there && b.fail == nil {
		b.hosts[h] = b.now()
	}
	return b.fail
}

// Remove unblocks a host.
func (b *Blocked) Remove(_ context.Context, h link.Host) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, there := b.hosts[h]; !there && b.fail == nil {
		return link.ErrNotBlocked
	}
	if b.fail == nil {
		delete(b.hosts, h)
	}
	return b.fail
}

// List returns the blocked hosts.
func (b *Blocked) List(context.Context) (all []link.BlockedHost, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range slices.Sorted(maps.Keys(b.hosts)) {
		all = append(all, link.BlockedHost{Host: h, CreatedAt: b.hosts[h]})
	}
	return all, b.fail
}
