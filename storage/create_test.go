package storage_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/teststore"
	"tiney/storage"
)

func TestALinkOfAURL(t *testing.T) { eachWay(t, testURL) }

func testURL(t *testing.T, start starter) {
	t.Run("a link is found as it was made", func(t *testing.T) {
		s, _, want := start(t)
		for _, url := range []string{
			"https://example.com/", "https://example.com/?a=b&c=<d>'\"",
			"https://bücher.example/東京", "https://example.com/" + strings.Repeat("x", 4000),
		} {
			w := want(url, time.Hour)
			l := s.create(t, w)
			if _, ok := link.ParseAlias(string(l.Alias())); !ok || len(l.Alias()) != 6 {
				t.Errorf("alias %q", l.Name)
			}
			w.Name = l.Name
			got, err := s.Get(t.Context(), l.Name)
			if err != nil || !storage.Same(got, w) || !storage.Same(l, w) {
				t.Errorf("made %+v, got %+v, %v, want %+v", l, got, err, w)
			}
		}
	})
	t.Run("an unknown alias is not found", func(t *testing.T) {
		s, _, _ := start(t)
		for range 2 {
			for _, a := range []link.Alias{"nobody", "x", "-", "_-_"} {
				if _, err := s.Get(t.Context(), s.name(a)); !errors.Is(err, link.ErrNotFound) {
					t.Errorf("%s: got %v", a, err)
				}
			}
		}
	})
	t.Run("aliases differ by case", func(t *testing.T) {
		s, _, want := start(t)
		upper, lower := want("https://example.com/upper", time.Hour),
			want("https://example.com/lower", time.Hour)
		upper.Name, lower.Name = s.name("ABcdef"), s.name("abcdef")
		s.Put(upper)
		s.Put(lower)
		for _, w := range []link.Link{upper, lower} {
			if got, err := s.Get(t.Context(), w.Name); err != nil || !storage.Same(got, w) {
				t.Errorf("%s: got %+v, %v", w.Name, got, err)
			}
		}
	})
	t.Run("a URL keeps its link while it lives", func(t *testing.T) {
		s, clock, want := start(t)
		first := s.create(t, want("https://example.com/", time.Hour))
		clock.Advance(59 * time.Minute)
		again, created, err := s.Create(t.Context(), want("https://example.com/", time.Minute), "")
		first.Shared = true
		if err != nil || created || !storage.Same(again, first) {
			t.Errorf("got %+v, created %t, %v, want %+v", again, created, err, first)
		}
		clock.Advance(time.Minute)
		second := s.create(t, want("https://example.com/", time.Hour))
		if second.Name == first.Name {
			t.Errorf("the alias %s was given out twice", first.Name)
		}
		if got, err := s.Get(t.Context(), first.Name); err == nil && !got.Expired(clock.Now()) {
			t.Errorf("the first link is alive: %+v", got)
		}
	})
	t.Run("URLs are compared byte for byte", func(t *testing.T) {
		s, _, want := start(t)
		a := s.create(t, want("https://example.com/a", time.Hour))
		b := s.create(t, want("https://example.com/A", time.Hour))
		c := s.create(t, want("https://example.com/a?", time.Hour))
		if a.Name == b.Name || b.Name == c.Name || a.Name == c.Name {
			t.Errorf("%s, %s and %s must differ", a.Name, b.Name, c.Name)
		}
	})
	t.Run("a taken alias is not given out again", func(t *testing.T) {
		// The second link draws the first one's alias nine times, and then its own.
		s, _, want := start(t, strings.Repeat("aaaaaa", 10), "bbbbbb")
		first := s.create(t, want("https://example.com/1", time.Hour))
		second := s.create(t, want("https://example.com/2", 2*time.Hour))
		if first.Name == second.Name {
			t.Fatalf("both got %s", first.Name)
		}
		if got, err := s.Get(t.Context(), first.Name); err != nil || !storage.Same(got, first) {
			t.Errorf("got %+v, %v, want %+v", got, err, first)
		}
	})
	t.Run("ten taken aliases in a row are an error", func(t *testing.T) {
		s, _, want := start(t, strings.Repeat("aaaaaa", 11))
		s.create(t, want("https://example.com/1", time.Hour))
		if _, _, err := s.Create(t.Context(), want("https://example.com/2", 2*time.Hour),
			""); !errors.Is(err, link.ErrAliasesTaken) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("who asks for a later end gets it", func(t *testing.T) {
		s, clock, want := start(t)
		const url = "https://example.com/"
		l := s.create(t, want(url, 10*time.Minute))
		for _, c := range []struct{ asked, ends time.Duration }{
			{9 * time.Minute, 10 * time.Minute}, {11 * time.Minute, 10 * time.Minute},
			{12 * time.Minute, 12 * time.Minute}, {10 * time.Hour, 10 * time.Hour},
			{11 * time.Hour, 10 * time.Hour}, {time.Minute, 10 * time.Hour},
		} {
			w := want(url, c.asked)
			end := clock.Now().Truncate(time.Second).Add(c.ends)
			got, created, err := s.Create(t.Context(), w, "")
			if err != nil || created || got.Name != l.Name || !got.Shared ||
				got.ExpiresAt.Sub(end).Abs() > time.Second {
				t.Errorf("%v: got %+v, %t, %v", c.asked, got, created, err)
			}
			if read, err := s.Read(t.Context(), l.Name); err != nil ||
				!read.ExpiresAt.Equal(got.ExpiresAt) {
				t.Errorf("%v: it is %+v, %v", c.asked, read, err)
			}
		}
		w := owned(want(url, time.Hour), "a")
		s.create(t, w)
		w.ExpiresAt = w.ExpiresAt.Add(time.Hour)
		if got, _, err := s.Create(t.Context(), w, ""); err != nil ||
			!got.ExpiresAt.Before(w.ExpiresAt) {
			t.Errorf("an owner: got %+v, %v", got, err)
		}
	})
	t.Run("a disabled link is told as such and its URL gets no other", func(t *testing.T) {
		s, clock, want := start(t)
		l := s.create(t, want("https://example.com/", time.Hour))
		l.Disabled = true
		s.Put(l)
		clock.Advance(settle)
		if got, err := s.Get(t.Context(), l.Name); err != nil || !storage.Same(got, l) {
			t.Errorf("got %+v, %v", got, err)
		}
		w := want("https://example.com/", time.Hour)
		if _, _, err := s.Create(t.Context(), w, ""); !errors.Is(err, link.ErrDisabled) {
			t.Errorf("got %v, want %v", err, link.ErrDisabled)
		}
		s.create(t, chosen(w, "chosen"))
		s.create(t, owned(w, "somebody"))
		l.Disabled = false
		s.Put(l)
		l.Shared = true
		if got, created, err := s.Create(t.Context(), want("https://example.com/", time.Minute),
			""); err != nil || created || !storage.Same(got, l) {
			t.Errorf("enabled again: got %+v, %t, %v", got, created, err)
		}
		l.Disabled = true
		s.Put(l)
		clock.Advance(time.Hour)
		s.create(t, want("https://example.com/", time.Hour))
	})
}

func TestLinksOfOwners(t *testing.T) { eachWay(t, testOwners) }

func testOwners(t *testing.T, start starter) {
	const url = "https://example.com/"
	t.Run("a link is read as it was made", func(t *testing.T) {
		s, _, want := start(t)
		plain, full := want(url, time.Hour), owned(chosen(want(url, 0), "Mine_-9"), "somebody")
		plain.ClaimHash = strings.Repeat("c1", 32)
		full.StatusCode, full.Title, full.Tags = 308, "A title: ü 東京", []string{"b", "a,b", `"'`}
		full.StartsAt, full.GoneURL = full.CreatedAt.Add(time.Minute), "https://x.example/{alias}"
		for _, w := range []link.Link{plain, full} {
			l := s.create(t, w)
			got, err := s.Read(t.Context(), l.Name)
			if got.Version == "" {
				t.Error("it has no version")
			}
			w.Name, w.Version, w.CountedFrom = l.Name, got.Version, got.CountedFrom
			if err != nil || !reflect.DeepEqual(got, w) {
				t.Errorf("got %+v, %v, want %+v", got, err, w)
			}
			if got, err := s.Get(t.Context(), l.Name); err != nil || !storage.Same(got, w) {
				t.Errorf("Get: got %+v, %v, want %+v", got, err, w)
			}
		}
		if _, err := s.Read(t.Context(), s.name("nobody")); !errors.Is(err, link.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("every owner has a link of a URL", func(t *testing.T) {
		s, _, want := start(t)
		first := map[string]link.Link{}
		for _, owner := range []string{"", "a", "b", "admin", "login.example.com|a"} {
			first[owner] = s.create(t, owned(want(url, time.Hour), owner))
		}
		for owner, l := range first {
			l.Shared = owner == ""
			if got, created, err := s.Create(t.Context(), owned(want(url, time.Hour), owner),
				""); err != nil || created || !storage.Same(got, l) {
				t.Errorf("%q again: got %+v, created %t, %v, want %+v", owner, got, created, err, l)
			}
		}
	})
	t.Run("any number of creates of one owner make one link", func(t *testing.T) {
		s, _, want := start(t)
		teststore.CreateAtOnce(t, 16, func(int) (link.Link, bool, error) {
			return s.Create(t.Context(), owned(want(url, 0), "a"), "")
		})
	})
	t.Run("a link is shared with callers who do not present its claim token", func(t *testing.T) {
		s, _, want := start(t)
		w := want(url, time.Hour)
		w.ClaimHash = "its hash"
		l := s.create(t, w)
		for _, test := range []struct {
			presented string
			shared    bool
		}{{"its hash", false}, {"another hash", true}, {"its hash", true}, {"", true}} {
			got, created, err := s.Create(t.Context(), want(url, time.Hour), test.presented)
			if err != nil || created || got.Name != l.Name || got.Shared != test.shared {
				t.Errorf("presenting %q: got %+v, created %t, %v", test.presented, got, created,
					err)
			}
			if read, err := s.Read(t.Context(), l.Name); err != nil ||
				read.Shared != test.shared || read.ClaimHash != "its hash" ||
				!read.UpdatedAt.IsZero() {
				t.Errorf("presenting %q: read %+v, %v", test.presented, read, err)
			}
		}
		own := s.create(t, owned(want(url, 0), "a"))
		if got, _, err := s.Create(t.Context(), owned(want(url, 0), "a"), ""); err != nil ||
			got.Name != own.Name || got.Shared {
			t.Errorf("its owner again: got %+v, %v", got, err)
		}
		// A link without a claim token belongs to nobody: no hash matches its missing one.
		other := s.create(t, want(url+"2", time.Hour))
		if got, _, err := s.Create(t.Context(), want(url+"2", time.Hour), ""); err != nil ||
			got.Name != other.Name || !got.Shared {
			t.Errorf("without a token: got %+v, %v", got, err)
		}
	})
	t.Run("a scheduled link counts as live", func(t *testing.T) {
		s, clock, want := start(t)
		starts := clock.Now().Add(time.Hour)
		later := func(starts time.Time) link.Link {
			l := owned(want(url, 0), "a")
			l.StartsAt = starts
			return l
		}
		alone := s.create(t, later(starts)).Name
		plain := s.create(t, owned(want(url, 0), "a")).Name
		if got := s.of(t, owned(want(url, 0), "a")); got != plain || got == alone {
			t.Errorf("the index has %s, not %s", got, plain)
		}
		s.edit(t, plain, func(l *link.Link) { l.StartsAt = starts })
		// A restored link enters the index if that is free.
		s.edit(t, alone, func(l *link.Link) { l.DeletedAt = clock.Now() })
		s.edit(t, alone, func(l *link.Link) { l.DeletedAt = time.Time{} })
		for range 2 { // before the start, and at it
			for _, w := range []link.Link{later(starts), later(time.Time{})} {
				if got := s.of(t, w); got != plain {
					t.Errorf("starts at %v: got %s, not %s", w.StartsAt, got, plain)
				}
			}
			if got := s.create(t, later(starts.Add(time.Second))); got.Name == plain {
				t.Error("another start: got the same link")
			}
			clock.Advance(time.Hour)
		}
		mine := later(starts.Add(time.Hour))
		if a := chosen(mine, "mine"); s.create(t, a).Name != s.of(t, a) {
			t.Error("by its alias: another link")
		}
	})
	t.Run("a tombstone keeps the gone URL, unless its link was taken down", func(t *testing.T) {
		s, clock, want := start(t)
		sends := owned(want(url, time.Hour), "a")
		sends.GoneURL = "https://example.org/{alias}"
		kept, down := s.create(t, sends), s.create(t, chosen(sends, "down"))
		s.edit(t, down.Name, func(l *link.Link) { l.Disabled, l.Locked = true, true })
		clock.Advance(time.Hour)
		for _, state := range []link.State{link.StateLive, link.StateExpired} { // before and after
			l, err := s.Get(t.Context(), kept.Name)
			if err != nil || l.GoneReason != state || l.GoneURL != sends.GoneURL {
				t.Errorf("got %+v, %v", l, err)
			}
			if _, err := s.Reap(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if l, err := s.Get(t.Context(), down.Name); err != nil || l.GoneURL != "" ||
			l.GoneReason != link.StateExpired {
			t.Errorf("taken down: got %+v, %v", l, err)
		}
	})
	t.Run("a chosen alias is given out once", func(t *testing.T) {
		s, clock, want := start(t)
		mine := s.create(t, owned(chosen(want(url, time.Hour), "mine"), "a"))
		s.create(t, chosen(want(url, time.Hour), "nobodys"))
		if mine.Name != s.name("mine") {
			t.Errorf("got the alias %s", mine.Name)
		}
		if got, created, err := s.Create(t.Context(), owned(chosen(want(url, 0), "mine"), "a"),
			""); err != nil || created || !storage.Same(got, mine) {
			t.Errorf("the same again: got %+v, created %t, %v", got, created, err)
		}
		taken := func(what string, want link.Link) {
			t.Helper()
			if l, created, err := s.Create(t.Context(), want, "a hash"); !errors.Is(err,
				link.ErrAliasTaken) || created {
				t.Errorf("%s: got %+v, %t, %v", what, l, created, err)
			}
		}
		taken("another URL", owned(chosen(want(url+"2", 0), "mine"), "a"))
		taken("another owner", owned(chosen(want(url, 0), "mine"), "b"))
		taken("nobody", chosen(want(url, time.Hour), "mine"))
		taken("nobody's, by nobody", chosen(want(url, time.Hour), "nobodys"))
		s.create(t, owned(chosen(want(url, 0), "MINE"), "a")) // another alias, by its case
		// A URL's chosen alias is not returned to callers who choose none.
		if l := s.create(t, owned(want(url, 0), "a")); l.Name == mine.Name {
			t.Error("the chosen alias is in the index")
		}
		clock.Advance(time.Hour)
		taken("its own, expired", owned(chosen(want(url, 0), "mine"), "a"))
		if _, err := s.Reap(t.Context()); err != nil {
			t.Fatal(err)
		}
		taken("its own, reaped", owned(chosen(want(url, 0), "mine"), "a"))
	})
}
