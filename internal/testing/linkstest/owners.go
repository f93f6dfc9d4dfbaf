package linkstest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/internal/link"
)

// starter opens a store.
type starter func(t *testing.T, random io.Reader) (Subject, *Clock, wisher)

// owned returns a link with an owner.
func owned(l link.Link, owner string) link.Link {
	l.Owner = owner
	return l
}

// chosen returns a link with an alias that its maker has chosen.
func chosen(l link.Link, a link.Name) link.Link {
	l.Name = a
	return l
}

// of creates a link of a URL or finds the existing one, and returns its name.
func of(t *testing.T, s Store, want link.Link) link.Name {
	t.Helper()
	l, _, err := s.Create(t.Context(), want, "")
	if err != nil {
		t.Fatal(err)
	}
	return l.Name
}

// all keeps every link of a list.
func all(link.Link) bool { return true }

// conformOwners tests chosen aliases, owners and their lists.
func conformOwners(t *testing.T, start starter) {
	const url = "https://example.com/"
	t.Run("a link is read as it was made", func(t *testing.T) {
		s, _, want := start(t, rand.Reader)
		plain, full := want(url, time.Hour), owned(chosen(want(url, 0), "Mine_-9"), "somebody")
		plain.ClaimHash = strings.Repeat("c1", 32)
		full.StatusCode, full.Title, full.Tags = 308, "A title: ü 東京", []string{"b", "a,b", `"'`}
		for _, w := range []link.Link{plain, full} {
			l := create(t, s, w)
			got, err := s.Read(t.Context(), l.Name)
			if got.Version == "" {
				t.Error("it has no version")
			}
			w.Name, w.Version, w.CountedFrom = l.Name, got.Version, got.CountedFrom
			if err != nil || !reflect.DeepEqual(got, w) {
				t.Errorf("got %+v, %v, want %+v", got, err, w)
			}
			if got, err := s.Get(t.Context(), l.Name); err != nil || !Same(got, w) {
				t.Errorf("Get: got %+v, %v, want %+v", got, err, w)
			}
		}
		if _, err := s.Read(t.Context(), "nobody"); !errors.Is(err, link.ErrNotFound) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("every owner has a link of a URL", func(t *testing.T) {
		s, _, want := start(t, rand.Reader)
		first := map[string]link.Link{}
		for _, owner := range []string{"", "a", "b", "admin", "login.example.com|a"} {
			first[owner] = create(t, s, owned(want(url, time.Hour), owner))
		}
		for owner, l := range first {
			l.Shared = owner == ""
			if got, created, err := s.Create(t.Context(), owned(want(url, time.Hour), owner),
				""); err != nil || created || !Same(got, l) {
				t.Errorf("%q again: got %+v, created %t, %v, want %+v", owner, got, created, err, l)
			}
		}
	})
	t.Run("any number of creates of one owner make one link", func(t *testing.T) {
		s, _, want := start(t, rand.Reader)
		CreateAtOnce(t, 16, func(int) (link.Link, bool, error) {
			return s.Create(t.Context(), owned(want(url, 0), "a"), "")
		})
	})
	t.Run("a link is shared with callers who do not present its claim token", func(t *testing.T) {
		s, _, want := start(t, rand.Reader)
		w := want(url, time.Hour)
		w.ClaimHash = "its hash"
		l := create(t, s, w)
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
		own := create(t, s, owned(want(url, 0), "a"))
		if got, _, err := s.Create(t.Context(), owned(want(url, 0), "a"), ""); err != nil ||
			got.Name != own.Name || got.Shared {
			t.Errorf("its owner again: got %+v, %v", got, err)
		}
		// A link without a claim token belongs to nobody: no hash matches its missing one.
		other := create(t, s, want(url+"2", time.Hour))
		if got, _, err := s.Create(t.Context(), want(url+"2", time.Hour), ""); err != nil ||
			got.Name != other.Name || !got.Shared {
			t.Errorf("without a token: got %+v, %v", got, err)
		}
	})
	t.Run("a chosen alias is given out once", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		mine := create(t, s, owned(chosen(want(url, time.Hour), "mine"), "a"))
		create(t, s, chosen(want(url, time.Hour), "nobodys"))
		if mine.Name != "mine" {
			t.Errorf("got the alias %s", mine.Name)
		}
		if got, created, err := s.Create(t.Context(), owned(chosen(want(url, 0), "mine"), "a"),
			""); err != nil || created || !Same(got, mine) {
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
		create(t, s, owned(chosen(want(url, 0), "MINE"), "a")) // another alias, by its case
		// A URL's chosen alias is not returned to callers who choose none.
		if l := create(t, s, owned(want(url, 0), "a")); l.Name == "mine" {
			t.Error("the chosen alias is in the index")
		}
		clock.Advance(time.Hour)
		taken("its own, expired", owned(chosen(want(url, 0), "mine"), "a"))
		if _, err := s.Reap(t.Context()); err != nil {
			t.Fatal(err)
		}
		taken("its own, reaped", owned(chosen(want(url, 0), "mine"), "a"))
	})
	t.Run("any number of creates of one chosen alias make one link", func(t *testing.T) {
		s, _, want := start(t, rand.Reader)
		CreateAtOnce(t, 16, func(int) (link.Link, bool, error) {
			return s.Create(t.Context(), owned(chosen(want(url, 0), "mine"), "a"), "")
		})
		if links, _, err := s.List(t.Context(), "a", "", 100, all); err != nil || len(links) != 1 {
			t.Errorf("listed %+v, %v", links, err)
		}
	})
	t.Run("an owner's links are listed, newest first", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		var made []link.Name
		for i := range 7 {
			if i%3 != 0 { // some are made in the same second
				clock.Advance(time.Second)
			}
			w := owned(want(fmt.Sprint(url, i), time.Hour), "a")
			w.Title = fmt.Sprint("title ", i)
			made = append(made, create(t, s, w).Name)
		}
		create(t, s, owned(want(url, 0), "b"))
		create(t, s, want(url, time.Hour))

		list := func(owner string, limit int, keep func(link.Link) bool) (listed []link.Link) {
			t.Helper()
			for after, pages := "", 0; pages == 0 || after != ""; pages++ {
				links, next, err := s.List(t.Context(), owner, after, limit, keep)
				if err != nil || len(links) > limit || pages > 10 {
					t.Fatalf("page %d: got %d links, %q, %v", pages, len(links), next, err)
				}
				listed, after = append(listed, links...), next
			}
			return listed
		}
		for _, limit := range []int{1, 2, 6, 7, 8, 100} {
			listed := list("a", limit, all)
			var aliases []link.Name
			for i, l := range listed {
				aliases = append(aliases, l.Name)
				if i > 0 && l.CreatedAt.After(listed[i-1].CreatedAt) {
					t.Errorf("%d a page: %s is newer than the one before it", limit, l.Name)
				}
				if read, err := s.Read(t.Context(), l.Name); err != nil ||
					!reflect.DeepEqual(read, l) {
					t.Errorf("listed %+v, read %+v, %v", l, read, err)
				}
			}
			if slices.Sort(aliases); !slices.Equal(aliases, slices.Sorted(slices.Values(made))) {
				t.Errorf("%d a page: %v", limit, aliases)
			}
		}
		if some := list("a", 2, func(l link.Link) bool { return l.Title > "title 3" }); len(
			some) != 3 {
			t.Errorf("of three, these are kept: %+v", some)
		}
		if none := list("c", 10, all); len(none) != 0 {
			t.Errorf("somebody without links has %+v", none)
		}
		clock.Advance(2 * time.Hour)
		if expired := list("a", 10, all); len(expired) != 7 {
			t.Errorf("%d are left once they have expired", len(expired))
		}
		if _, err := s.Reap(t.Context()); err != nil {
			t.Fatal(err)
		}
		if reaped := list("a", 10, all); len(reaped) != 0 {
			t.Errorf("tombstones are listed: %+v", reaped)
		}
	})
}

// conformEdits tests how links change.
func conformEdits(t *testing.T, start starter) {
	const url = "https://example.com/"
	setTitle := func(title string) func(link.Link) (link.Link, error) {
		return func(l link.Link) (link.Link, error) { l.Title = title; return l, nil }
	}
	// edit applies a change that must succeed.
	edit := func(t *testing.T, s Store, a link.Name, change func(*link.Link)) link.Link {
		t.Helper()
		l, err := s.Edit(t.Context(), a, false, func(l link.Link) (link.Link, error) {
			change(&l)
			return l, nil
		})
		if err != nil {
			t.Fatalf("editing %s: %v", a, err)
		}
		return l
	}

	t.Run("an edit is seen at once", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		l := create(t, s, owned(want(url, time.Hour), "a"))
		if _, err := s.Get(t.Context(), l.Name); err != nil { // so that a cache has it
			t.Fatal(err)
		}
		read, err := s.Read(t.Context(), l.Name)
		if err != nil {
			t.Fatal(err)
		}
		w := read
		w.LongURL, w.ExpiresAt, w.StatusCode, w.Title, w.Tags, w.UpdatedAt = url+"2",
			clock.Now().Add(2*time.Hour), 301, "new", []string{"x"}, clock.Now()
		got := edit(t, s, l.Name, func(l *link.Link) { *l = w })
		if got.Version == read.Version || got.Version == "" {
			t.Errorf("version %q after %q", got.Version, read.Version)
		}
		w.Version = got.Version
		again, err := s.Read(t.Context(), l.Name)
		if err != nil || !reflect.DeepEqual(got, w) || !reflect.DeepEqual(again, w) {
			t.Errorf("got %+v, then %+v, %v, want %+v", got, again, err, w)
		}
		if got, err := s.Get(t.Context(), l.Name); err != nil || !Same(got, w) {
			t.Errorf("Get: got %+v, %v", got, err)
		}
		none := edit(t, s, l.Name, func(l *link.Link) {
			l.Title, l.Tags, l.ExpiresAt = "", nil, time.Time{}
		})
		if again, err := s.Read(t.Context(), l.Name); err != nil || again.Title != "" ||
			again.Tags != nil || !again.ExpiresAt.IsZero() || !reflect.DeepEqual(again, none) {
			t.Errorf("what is taken away is there: %+v, %v", again, err)
		}
	})
	t.Run("an edit that changes nothing writes nothing", func(t *testing.T) {
		s, _, want := start(t, rand.Reader)
		l := create(t, s, owned(want(url, 0), "a"))
		before, err := s.Read(t.Context(), l.Name)
		if err != nil {
			t.Fatal(err)
		}
		if got := edit(t, s, l.Name, func(*link.Link) {}); !reflect.DeepEqual(got, before) {
			t.Errorf("got %+v, want %+v", got, before)
		}
		refused := errors.New("refused")
		if _, err := s.Edit(t.Context(), l.Name, false, func(l link.Link) (link.Link, error) {
			l.Title = "lost"
			return l, refused
		}); !errors.Is(err, refused) {
			t.Errorf("got %v", err)
		}
		if after, err := s.Read(t.Context(), l.Name); err != nil ||
			!reflect.DeepEqual(after, before) {
			t.Errorf("got %+v, %v, want %+v", after, err, before)
		}
		if _, err := s.Edit(t.Context(), "nobody", false, setTitle("x")); !errors.Is(err,
			link.ErrNotFound) {
			t.Errorf("an unknown alias: got %v", err)
		}
	})
	t.Run("edits that cross are repeated, or refused", func(t *testing.T) {
		s, _, want := start(t, rand.Reader)
		l := create(t, s, owned(want(url, 0), "a"))
		// crossed edits a link while others edit it the given number of times.
		crossed := func(title string, once bool, others int) (calls int, err error) {
			_, err = s.Edit(t.Context(), l.Name, once, func(l link.Link) (link.Link, error) {
				if calls++; calls <= others {
					edit(t, s, l.Name, func(l *link.Link) {
						l.Tags = append(l.Tags, fmt.Sprint(title, calls))
					})
				}
				l.Title = title
				return l, nil
			})
			return calls, err
		}
		if calls, err := crossed("four", false, 4); err != nil || calls != 5 {
			t.Errorf("four others: %d calls, %v", calls, err)
		}
		if calls, err := crossed("many", false, 20); !errors.Is(err, link.ErrConflict) ||
			calls != 20 {
			t.Errorf("20 others: %d calls, %v", calls, err)
		}
		if calls, err := crossed("once", true, 1); !errors.Is(err, link.ErrConflict) || calls != 1 {
			t.Errorf("once, and another: %d calls, %v", calls, err)
		}
		if calls, err := crossed("alone", true, 0); err != nil || calls != 1 {
			t.Errorf("once, alone: %d calls, %v", calls, err)
		}
		if got, err := s.Read(t.Context(), l.Name); err != nil || got.Title != "alone" ||
			len(got.Tags) != 25 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("a link of another URL is found by that", func(t *testing.T) {
		s, _, want := start(t, rand.Reader)
		l := create(t, s, owned(want(url+"old", 0), "a"))
		taken := create(t, s, owned(want(url+"taken", 0), "a"))
		edit(t, s, l.Name, func(l *link.Link) { l.LongURL = url + "new" })
		if got := of(t, s, owned(want(url+"new", 0), "a")); got != l.Name {
			t.Errorf("the new URL has %s, want %s", got, l.Name)
		}
		if got := of(t, s, owned(want(url+"old", 0), "a")); got == l.Name {
			t.Error("the old URL has it still")
		}
		edit(t, s, l.Name, func(l *link.Link) { l.LongURL = url + "taken" })
		if got := of(t, s, owned(want(url+"taken", 0), "a")); got != taken.Name {
			t.Errorf("a URL that has a link has now %s", got)
		}
		edit(t, s, taken.Name, func(l *link.Link) { l.LongURL = url + "other" })
		edit(t, s, taken.Name, func(l *link.Link) { l.LongURL = url + "taken" })
		if got := of(t, s, owned(want(url+"taken", 0), "a")); got != taken.Name {
			t.Errorf("there and back: the URL has %s, want %s", got, taken.Name)
		}
	})
	t.Run("a disabled link can be enabled", func(t *testing.T) {
		s, _, want := start(t, rand.Reader)
		l := create(t, s, owned(want(url, 0), "a"))
		edit(t, s, l.Name, func(l *link.Link) { l.Disabled = true })
		if got, err := s.Get(t.Context(), l.Name); err != nil || !got.Disabled {
			t.Errorf("got %+v, %v", got, err)
		}
		if _, _, err := s.Create(t.Context(), owned(want(url, 0), "a"), ""); !errors.Is(err,
			link.ErrDisabled) {
			t.Errorf("got %v", err)
		}
		edit(t, s, l.Name, func(l *link.Link) { l.Disabled = false })
		if got, err := s.Get(t.Context(), l.Name); err != nil || got.Disabled {
			t.Errorf("got %+v, %v", got, err)
		}
		if got := of(t, s, owned(want(url, 0), "a")); got != l.Name {
			t.Errorf("its URL has %s", got)
		}
	})
	t.Run("a disabled link that is deleted, too", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		for _, owner := range []string{"", "a"} {
			w := owned(want(url, time.Hour), owner)
			l := create(t, s, w)
			edit(t, s, l.Name, func(l *link.Link) { l.Disabled = true })
			edit(t, s, l.Name, func(l *link.Link) { l.DeletedAt = clock.Now() })
			if _, created, err := s.Create(t.Context(), w, ""); err != nil || !created {
				t.Errorf("owner %q: created %t, %v", owner, created, err)
			}
		}
		clock.Advance(time.Hour)
		if _, created, err := s.Create(t.Context(), want(url, time.Hour), ""); err != nil ||
			!created {
			t.Errorf("past its end: created %t, %v", created, err)
		}
	})
	// reap runs the reaper, and returns the states of links after that.
	reap := func(t *testing.T, s Store, now time.Time, aliases ...link.Name) string {
		t.Helper()
		if done, err := s.Reap(t.Context()); err != nil || !done.Complete || done.Failed > 0 {
			t.Fatalf("reaped %+v, %v", done, err)
		}
		var states []string
		for _, a := range aliases {
			l, err := s.Get(t.Context(), a)
			_, readErr := s.Read(t.Context(), a)
			switch {
			case errors.Is(err, link.ErrNotFound) && errors.Is(readErr, link.ErrNotFound):
				states = append(states, "unknown")
			case err != nil:
				t.Fatalf("%s: %v", a, err)
			case l.GoneReason == link.StateLive && readErr == nil:
				states = append(states, "link:"+string(l.State(now)))
			case errors.Is(readErr, link.ErrNotFound):
				states = append(states, "tombstone:"+string(l.State(now)))
				if _, err := s.Edit(t.Context(), a, false, setTitle("x")); !errors.Is(err,
					link.ErrNotFound) {
					t.Errorf("editing the tombstone %s: %v", a, err)
				}
			default:
				t.Fatalf("%s: got %+v, and reads %v", a, l, readErr)
			}
		}
		return strings.Join(states, " ")
	}
	t.Run("the reaper goes by a link's present end", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		var a []link.Name
		for i := range 4 {
			a = append(a, create(t, s, owned(want(fmt.Sprint(url, i), 2*time.Hour), "a")).Name)
		}
		edit(t, s, a[0], func(l *link.Link) { l.ExpiresAt = l.ExpiresAt.Add(-time.Hour) })
		edit(t, s, a[2], func(l *link.Link) { l.ExpiresAt = l.ExpiresAt.Add(time.Hour) })
		edit(t, s, a[3], func(l *link.Link) { l.ExpiresAt = time.Time{} })
		for _, want := range []string{"link: link: link: link:",
			"tombstone:expired link: link: link:",
			"tombstone:expired tombstone:expired link: link:",
			"tombstone:expired tombstone:expired tombstone:expired link:"} {
			if got := reap(t, s, clock.Now(), a...); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			clock.Advance(time.Hour)
		}
		edit(t, s, a[3], func(l *link.Link) { l.ExpiresAt = clock.Now().Add(time.Hour) })
		clock.Advance(time.Hour)
		if got := reap(t, s, clock.Now(), a[3]); got != "tombstone:expired" {
			t.Errorf("got %s", got)
		}
		clock.Advance(TombstoneKeep + 24*time.Hour)
		if got := reap(t, s, clock.Now(), a...); got != "unknown unknown unknown unknown" {
			t.Errorf("got %s once tombstones are due", got)
		}
	})
	t.Run("an expired link can be extended until it is reaped", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		l := create(t, s, owned(want(url, time.Hour), "a"))
		clock.Advance(time.Hour)
		edit(t, s, l.Name, func(l *link.Link) { l.ExpiresAt = clock.Now().Add(time.Hour) })
		if got := reap(t, s, clock.Now(), l.Name); got != "link:" {
			t.Errorf("got %s", got)
		}
		if got := of(t, s, owned(want(url, 0), "a")); got != l.Name {
			t.Errorf("its URL has %s", got)
		}
	})
	t.Run("a deleted link can be restored until it is reaped", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		back, gone := create(t, s, want(url+"back", 0)),
			create(t, s, owned(want(url+"gone", time.Hour), "a"))
		for _, l := range []link.Link{back, gone} {
			edit(t, s, l.Name, func(l *link.Link) { l.DeletedAt = clock.Now() })
			if got, err := s.Get(t.Context(), l.Name); err != nil ||
				got.State(clock.Now()) != link.StateDeleted {
				t.Errorf("got %+v, %v", got, err)
			}
		}
		clock.Advance(2 * time.Hour) // past the end of one of them
		if got := reap(t, s, clock.Now(), back.Name,
			gone.Name); got != "link:deleted link:deleted" {
			t.Errorf("got %s", got)
		}
		if links, _, err := s.List(t.Context(), "a", "", 10, all); err != nil || len(links) != 1 {
			t.Errorf("listed %+v, %v", links, err)
		}
		edit(t, s, back.Name, func(l *link.Link) { l.DeletedAt = time.Time{} })
		if got := of(t, s, want(url+"back", 0)); got != back.Name {
			t.Errorf("the URL of the restored link has %s", got)
		}
		clock.Advance(DeletedKeep)
		if got := reap(t, s, clock.Now(), back.Name,
			gone.Name); got != "link: tombstone:deleted" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("the URL of a deleted link gets another one, which stays", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		first := create(t, s, want(url, 0))
		edit(t, s, first.Name, func(l *link.Link) { l.DeletedAt = clock.Now() })
		second := create(t, s, want(url, 0))
		edit(t, s, first.Name, func(l *link.Link) { l.DeletedAt = time.Time{} })
		if got := of(t, s, want(url, 0)); got != second.Name || got == first.Name {
			t.Errorf("the URL has %s, of %s and %s", got, first.Name, second.Name)
		}
	})
	t.Run("a restored link is found by its URL", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		l := create(t, s, owned(chosen(want(url, 0), "mine"), "a")) // not in the index yet
		edit(t, s, l.Name, func(l *link.Link) { l.DeletedAt = clock.Now() })
		edit(t, s, l.Name, func(l *link.Link) { l.DeletedAt = time.Time{} })
		if got := of(t, s, owned(want(url, 0), "a")); got != l.Name {
			t.Errorf("its URL has %s", got)
		}
	})
	t.Run("claimed links have an owner", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		var a []link.Name
		for i := range 3 {
			w := want(fmt.Sprint(url, i), time.Hour)
			w.ClaimHash = fmt.Sprint("hash ", i)
			a = append(a, create(t, s, w).Name)
		}
		if _, err := s.Get(t.Context(), a[0]); err != nil { // so that a cache has it
			t.Fatal(err)
		}
		refused, twice := errors.New("refused"), errors.New("claimed twice")
		errs, err := s.EditAll(t.Context(), []link.Name{a[0], "nobody", a[1], a[0],
			a[2]}, func(i int, l link.Link) (link.Link, error) {
			switch {
			case i == 2:
				return l, refused
			case l.Owner != "":
				return l, twice
			}
			return l.Claimed(link.Actor{By: "a"}, "a", i == 4, clock.Now()), nil
		})
		if err != nil || len(errs) != 5 || errs[0] != nil ||
			!errors.Is(errs[1], link.ErrNotFound) || !errors.Is(errs[2], refused) ||
			!errors.Is(errs[3], twice) || errs[4] != nil {
			t.Fatalf("got %v, %v", errs, err)
		}
		if got, err := s.Get(t.Context(), a[0]); err != nil || got.Owner != "a" ||
			!got.ExpiresAt.IsZero() {
			t.Errorf("got %+v, %v", got, err)
		}
		if got, err := s.Read(t.Context(), a[0]); err != nil || got.ClaimHash != "" ||
			!got.UpdatedAt.Equal(clock.Now()) {
			t.Errorf("read %+v, %v", got, err)
		}
		links, _, err := s.List(t.Context(), "a", "", 10, all)
		if err != nil || len(links) != 2 {
			t.Errorf("listed %+v, %v", links, err)
		}
		for _, i := range []int{0, 2} {
			if got := of(t, s, owned(want(fmt.Sprint(url, i), 0), "a")); got != a[i] {
				t.Errorf("link %d: its owner is given %s, want %s", i, got, a[i])
			}
			if got := of(t, s, want(fmt.Sprint(url, i), time.Hour)); got == a[i] {
				t.Errorf("link %d: somebody else is given it", i)
			}
		}
		if got := of(t, s, want(url+"1", time.Hour)); got != a[1] {
			t.Errorf("what was not claimed is not given any more, but %s", got)
		}
		clock.Advance(time.Hour)
		if got := reap(t, s, clock.Now(),
			a...); got != "link: tombstone:expired tombstone:expired" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("edits of no links at all", func(t *testing.T) {
		s, _, _ := start(t, rand.Reader)
		errs, err := s.EditAll(context.Background(), nil, func(int, link.Link) (link.Link, error) {
			panic("called")
		})
		if err != nil || len(errs) != 0 {
			t.Errorf("got %v, %v", errs, err)
		}
	})
}
