package linkstest

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
)

// Store is a store of links that the suite can test.
type Store interface {
	Create(ctx context.Context, want link.Link, presented string) (l link.Link, created bool,
		err error)
	Get(ctx context.Context, a link.Name) (link.Link, error)
	Read(ctx context.Context, a link.Name) (link.Link, error)
	History(ctx context.Context, a link.Name) (link.Link, error)
	Import(ctx context.Context, links []link.Link) []link.Imported
	Edit(ctx context.Context, a link.Name, once bool, change func(link.Link) (link.Link,
		error)) (link.Link, error)
	EditAll(ctx context.Context, aliases []link.Name, change func(i int, l link.Link) (link.Link,
		error)) (errs []error, err error)
	List(ctx context.Context, owner, after string, limit int,
		keep func(link.Link) bool) (links []link.Link, next string, err error)
	Reap(ctx context.Context) (link.ReapResult, error)
}

// Subject is a store without links, with the access to it that tests need. It keeps deleted links
// for DeletedKeep and tombstones for TombstoneKeep.
type Subject struct {
	Store
	// Put writes a link without the store's knowledge, and replaces an existing one.
	Put     func(link.Link)
	Blocked BlockedHosts
}

// Same reports whether two links are the same in everything that a cache knows of them.
func Same(a, b link.Link) bool {
	for _, l := range []*link.Link{&a, &b} {
		l.StatusCode = cmp.Or(l.StatusCode, link.DefaultStatusCode)
		// Not compared are the day on which the store made the link, and whether it comes from a
		// cache.
		l.CountedFrom, l.Stale = time.Time{}, false
	}
	return reflect.DeepEqual(cached(a), cached(b))
}

// settle is longer than any cache in front of a store keeps an entry without asking again.
const settle = 20 * time.Minute

// Conform tests the stores that open returns. They must draw six characters from random for an
// alias.
func Conform(t *testing.T, open func(t *testing.T, now func() time.Time,
	random io.Reader) Subject) {
	ctx := context.Background()
	start := func(t *testing.T, random io.Reader) (Subject, *Clock, wisher) {
		clock := NewClock()
		return open(t, clock.Now, random), clock, func(url string, life time.Duration) link.Link {
			l := link.Link{LongURL: url, CreatedAt: clock.Now(), StatusCode: link.DefaultStatusCode}
			if life > 0 {
				l.ExpiresAt = clock.Now().Add(life)
			}
			return l
		}
	}
	conformOwners(t, start)
	conformTeams(t, start)
	conformEdits(t, start)
	conformBlocked(t, start)

	t.Run("a link is found as it was made", func(t *testing.T) {
		s, _, want := start(t, rand.Reader)
		for _, url := range []string{
			"https://example.com/", "https://example.com/?a=b&c=<d>'\"",
			"https://bücher.example/東京", "https://example.com/" + strings.Repeat("x", 4000),
		} {
			w := want(url, time.Hour)
			l := create(t, s, w)
			if _, ok := link.ParseAlias(string(l.Name)); !ok || len(l.Name) != 6 {
				t.Errorf("alias %q", l.Name)
			}
			w.Name = l.Name
			got, err := s.Get(ctx, l.Name)
			if err != nil || !Same(got, w) || !Same(l, w) {
				t.Errorf("made %+v, got %+v, %v, want %+v", l, got, err, w)
			}
		}
	})
	t.Run("an unknown alias is not found", func(t *testing.T) {
		s, _, _ := start(t, rand.Reader)
		for range 2 {
			for _, a := range []link.Name{"nobody", "x", "-", "_-_"} {
				if _, err := s.Get(ctx, a); !errors.Is(err, link.ErrNotFound) {
					t.Errorf("%s: got %v", a, err)
				}
			}
		}
	})
	t.Run("aliases differ by case", func(t *testing.T) {
		s, _, want := start(t, rand.Reader)
		upper, lower := want("https://example.com/upper", time.Hour),
			want("https://example.com/lower", time.Hour)
		upper.Name, lower.Name = "ABcdef", "abcdef"
		s.Put(upper)
		s.Put(lower)
		for _, w := range []link.Link{upper, lower} {
			if got, err := s.Get(ctx, w.Name); err != nil || !Same(got, w) {
				t.Errorf("%s: got %+v, %v", w.Name, got, err)
			}
		}
	})
	t.Run("a URL keeps its link while it lives", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		first := create(t, s, want("https://example.com/", time.Hour))
		clock.Advance(59 * time.Minute)
		again, created, err := s.Create(ctx, want("https://example.com/", time.Minute), "")
		first.Shared = true
		if err != nil || created || !Same(again, first) {
			t.Errorf("got %+v, created %t, %v, want %+v", again, created, err, first)
		}
		clock.Advance(time.Minute)
		second := create(t, s, want("https://example.com/", time.Hour))
		if second.Name == first.Name {
			t.Errorf("the alias %s was given out twice", first.Name)
		}
		if got, err := s.Get(ctx, first.Name); err == nil && !got.Expired(clock.Now()) {
			t.Errorf("the first link is alive: %+v", got)
		}
	})
	t.Run("URLs are compared byte for byte", func(t *testing.T) {
		s, _, want := start(t, rand.Reader)
		a := create(t, s, want("https://example.com/a", time.Hour))
		b := create(t, s, want("https://example.com/A", time.Hour))
		c := create(t, s, want("https://example.com/a?", time.Hour))
		if a.Name == b.Name || b.Name == c.Name || a.Name == c.Name {
			t.Errorf("%s, %s and %s must differ", a.Name, b.Name, c.Name)
		}
	})
	t.Run("a taken alias is not given out again", func(t *testing.T) {
		// The second link draws the first one's alias nine times, and then its own.
		random := Draws(strings.Repeat("aaaaaa", 10), "bbbbbb")
		s, _, want := start(t, random)
		first := create(t, s, want("https://example.com/1", time.Hour))
		second := create(t, s, want("https://example.com/2", 2*time.Hour))
		if first.Name == second.Name {
			t.Fatalf("both got %s", first.Name)
		}
		if got, err := s.Get(ctx, first.Name); err != nil || !Same(got, first) {
			t.Errorf("got %+v, %v, want %+v", got, err, first)
		}
	})
	t.Run("ten taken aliases in a row are an error", func(t *testing.T) {
		random := Draws(strings.Repeat("aaaaaa", 11))
		s, _, want := start(t, random)
		create(t, s, want("https://example.com/1", time.Hour))
		if _, _, err := s.Create(ctx, want("https://example.com/2", 2*time.Hour),
			""); !errors.Is(err, link.ErrAliasesTaken) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("any number of creates of one URL make one link", func(t *testing.T) {
		s, _, want := start(t, rand.Reader)
		CreateAtOnce(t, 32, func(int) (link.Link, bool, error) {
			return s.Create(ctx, want("https://example.com/", time.Hour), "")
		})
	})
	t.Run("who asks for a later end gets it", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		const url = "https://example.com/"
		l := create(t, s, want(url, 10*time.Minute))
		for _, c := range []struct{ asked, ends time.Duration }{
			{9 * time.Minute, 10 * time.Minute}, {11 * time.Minute, 10 * time.Minute},
			{12 * time.Minute, 12 * time.Minute}, {10 * time.Hour, 10 * time.Hour},
			{11 * time.Hour, 10 * time.Hour}, {time.Minute, 10 * time.Hour},
		} {
			w := want(url, c.asked)
			end := clock.Now().Truncate(time.Second).Add(c.ends)
			got, created, err := s.Create(ctx, w, "")
			if err != nil || created || got.Name != l.Name || !got.Shared ||
				got.ExpiresAt.Sub(end).Abs() > time.Second {
				t.Errorf("%v: got %+v, %t, %v", c.asked, got, created, err)
			}
			if read, err := s.Read(ctx, l.Name); err != nil || !read.ExpiresAt.Equal(got.ExpiresAt) {
				t.Errorf("%v: it is %+v, %v", c.asked, read, err)
			}
		}
		w := owned(want(url, time.Hour), "a")
		create(t, s, w)
		w.ExpiresAt = w.ExpiresAt.Add(time.Hour)
		if got, _, err := s.Create(ctx, w, ""); err != nil || !got.ExpiresAt.Before(w.ExpiresAt) {
			t.Errorf("an owner: got %+v, %v", got, err)
		}
	})
	t.Run("a disabled link is told as such and its URL gets no other", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		l := create(t, s, want("https://example.com/", time.Hour))
		l.Disabled = true
		s.Put(l)
		clock.Advance(settle)
		if got, err := s.Get(ctx, l.Name); err != nil || !Same(got, l) {
			t.Errorf("got %+v, %v", got, err)
		}
		w := want("https://example.com/", time.Hour)
		if _, _, err := s.Create(ctx, w, ""); !errors.Is(err, link.ErrDisabled) {
			t.Errorf("got %v, want %v", err, link.ErrDisabled)
		}
		create(t, s, chosen(w, "chosen"))
		create(t, s, owned(w, "somebody"))
		l.Disabled = false
		s.Put(l)
		l.Shared = true
		if got, created, err := s.Create(ctx, want("https://example.com/", time.Minute),
			""); err != nil || created || !Same(got, l) {
			t.Errorf("enabled again: got %+v, %t, %v", got, created, err)
		}
		l.Disabled = true
		s.Put(l)
		clock.Advance(time.Hour)
		create(t, s, want("https://example.com/", time.Hour))
	})
	t.Run("a link without an expiry stays", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		l := create(t, s, want("https://example.com/", 0))
		clock.Advance(100 * 365 * 24 * time.Hour)
		if done, err := s.Reap(ctx); err != nil || done.Deleted != 0 {
			t.Errorf("reaped %+v, %v", done, err)
		}
		if got, err := s.Get(ctx, l.Name); err != nil || !Same(got, l) {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("the reaper takes what has expired and nothing else", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		var links []link.Link
		for i := range 20 {
			links = append(links, create(t, s, want(fmt.Sprintf("https://example.com/%d", i),
				time.Duration(i+1)*time.Hour)))
		}
		if done, err := s.Reap(ctx); err != nil || done != (link.ReapResult{Complete: true}) {
			t.Errorf("nothing is due: got %+v, %v", done, err)
		}
		clock.Advance(10 * time.Hour)
		if done, err := s.Reap(ctx); err != nil ||
			done != (link.ReapResult{Deleted: 10, Complete: true}) {
			t.Errorf("ten are due: got %+v, %v", done, err)
		}
		for i, l := range links {
			got, err := s.Get(ctx, l.Name)
			if gone := (link.Link{Name: l.Name, GoneReason: link.StateExpired,
				GoneAt: l.ExpiresAt}); i < 10 && (err != nil || !Same(got, gone)) {
				t.Errorf("link %d: got %+v, %v, want a tombstone", i, got, err)
			}
			if i >= 10 && (err != nil || !Same(got, l)) {
				t.Errorf("link %d: got %+v, %v", i, got, err)
			}
		}
		if done, err := s.Reap(ctx); err != nil || done != (link.ReapResult{Complete: true}) {
			t.Errorf("again: got %+v, %v", done, err)
		}
		create(t, s, want("https://example.com/0", time.Hour))
	})
}

// wisher returns a link that is made now and expires after life. If life is zero, it never expires.
type wisher func(url string, life time.Duration) link.Link

// create makes a link.
func create(t *testing.T, s Store, want link.Link) link.Link {
	t.Helper()
	l, created, err := s.Create(t.Context(), want, "")
	if err != nil || !created {
		t.Fatalf("Create: created %t, %v", created, err)
	}
	return l
}

// CreateAtOnce makes the given number of concurrent calls of create, which must make one link. It
// checks that all calls get the same link, and that at most one of them reports making it. If
// storage did not respond to a call in time, as on a busy machine, CreateAtOnce repeats the call as
// its caller would. If there was no such call, exactly one must report making the link.
func CreateAtOnce(t *testing.T, calls int, create func(call int) (link.Link, bool, error)) {
	t.Helper()
	var all sync.WaitGroup
	var created, late atomic.Int64
	var aliases sync.Map
	for call := range calls {
		all.Go(func() {
			l, made, err := create(call)
			for end := time.Now().Add(time.Minute); errors.Is(err, link.ErrUnavailable) &&
				time.Now().Before(end); {
				late.Add(1)
				l, made, err = create(call)
			}
			if err != nil {
				t.Error(err)
				return
			}
			if made {
				created.Add(1)
			}
			aliases.Store(l.Name, true)
		})
	}
	all.Wait()
	var different []any
	aliases.Range(func(a, _ any) bool { different = append(different, a); return true })
	if n := created.Load(); n > 1 || n == 0 && late.Load() == 0 || len(different) != 1 {
		t.Errorf("%d made, aliases %v, want one; %d calls were late", n, different, late.Load())
	}
}
