package linkstest

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"tiney/internal/link"
)

// conformTeams tests the history of links, links that change hands, and links that an admin took
// down.
func conformTeams(t *testing.T, start starter) {
	const url, url2 = "https://example.com/", "https://example.com/2"
	admin := link.Actor{By: "root", Admin: true}
	patch := func(t *testing.T, s Store, clock *Clock, a link.Name, p link.Patch) (link.Link, error) {
		return s.Edit(t.Context(), a, false, func(l link.Link) (link.Link, error) {
			return link.Rules{}.Edit(l, p, admin, clock.Now())
		})
	}
	remove := func(t *testing.T, s Store, clock *Clock, a link.Name) {
		t.Helper()
		if _, err := s.Edit(t.Context(), a, false, func(l link.Link) (link.Link, error) {
			return l.Deleted(admin, clock.Now())
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a link has its history", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		l := create(t, s, owned(want(url, 0), "a"))
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
		clock.Advance(DeletedKeep)
		if done, err := s.Reap(t.Context()); err != nil || done.Deleted != 1 {
			t.Errorf("reaped %+v, %v", done, err)
		}
		if got, err := s.History(t.Context(), l.Name); !errors.Is(err, link.ErrNotFound) {
			t.Errorf("its tombstone has %+v, %v", got, err)
		}
	})
	t.Run("a link goes to another owner", func(t *testing.T) {
		for _, from := range []string{"", "a"} {
			s, clock, want := start(t, rand.Reader)
			w := owned(want(url, time.Hour), from)
			l := create(t, s, w)
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
			if got := of(t, s, owned(want(url, time.Hour), "b")); got != l.Name {
				t.Errorf("its new owner is given %s", got)
			}
			if got := of(t, s, w); got == l.Name {
				t.Error("its former owner is given it")
			}
		}
	})
	t.Run("an owner who has a link of the URL keeps being given it", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		theirs := create(t, s, owned(want(url, 0), "b"))
		l := create(t, s, owned(want(url, 0), "a"))
		if _, err := patch(t, s, clock, l.Name, link.Patch{Owner: new("b")}); err != nil {
			t.Fatal(err)
		}
		if got := of(t, s, owned(want(url, 0), "b")); got != theirs.Name {
			t.Errorf("its new owner is given %s, and not %s", got, theirs.Name)
		}
		remove(t, s, clock, theirs.Name)
	})
	t.Run("a link takes the place of one that leads nowhere", func(t *testing.T) {
		s, clock, want := start(t, rand.Reader)
		theirs := create(t, s, owned(want(url, 0), "b"))
		if _, err := s.Edit(t.Context(), theirs.Name, false, func(l link.Link) (link.Link, error) {
			return l.Deleted(link.Actor{By: "b", Own: true}, clock.Now())
		}); err != nil {
			t.Fatal(err)
		}
		l := create(t, s, owned(want(url, 0), "a"))
		if _, err := patch(t, s, clock, l.Name, link.Patch{Owner: new("b")}); err != nil {
			t.Fatal(err)
		}
		if got := of(t, s, owned(want(url, 0), "b")); got != l.Name {
			t.Errorf("its new owner is given %s, and not %s", got, l.Name)
		}
	})
	// What an admin took down stays down, but bars no URL: shorten goes by the index as always.
	t.Run("a link that was taken down does not bar its URL", func(t *testing.T) {
		for _, owner := range []string{"", "a"} {
			for _, disable := range []bool{true, false} {
				s, clock, want := start(t, rand.Reader)
				w := owned(want(url, time.Hour), owner)
				down := create(t, s, w)
				elsewhere := create(t, s, owned(want(url2, time.Hour), owner))
				if !disable {
					remove(t, s, clock, down.Name)
				} else if _, err := patch(t, s, clock, down.Name,
					link.Patch{Disabled: new(true)}); err != nil {
					t.Fatal(err)
				}
				clock.Advance(settle)
				switch _, created, err := s.Create(t.Context(), w, ""); {
				case disable && !errors.Is(err, link.ErrDisabled), !disable && (err != nil || !created):
					t.Errorf("owner %q, disabled %t: created %t, %v", owner, disable, created, err)
				}
				create(t, s, chosen(w, "chosen"))
				done := s.Import(t.Context(), []link.Link{chosen(w, "import"), chosen(w, down.Name)})
				if !done[0].Created {
					t.Errorf("an import: %+v", done[0])
				}
				if err := done[1].Err; disable && err != nil || !disable && !errors.Is(err, link.ErrLocked) {
					t.Errorf("an import of what was taken down: %v", err)
				}
				if _, err := s.Edit(t.Context(), elsewhere.Name, false,
					func(l link.Link) (link.Link, error) {
						l.LongURL = url
						return l, nil
					}); err != nil {
					t.Errorf("an edit: %v", err)
				}
				if l, err := s.Read(t.Context(), down.Name); err != nil || !l.Locked {
					t.Errorf("it is %+v, %v", l, err)
				}
			}
		}
	})
}
