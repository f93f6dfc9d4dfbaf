package storage_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/teststore"
	"tiney/storage"
)

// What other programs keep in a link's row goes back as it came. Azure tells a Double by its
// decimal point alone, where Azurite names the type.
func TestAnEditKeepsWhatIsNotOurs(t *testing.T) {
	kept := map[string]string{"Weight": `3.0`, "Ratio": `0.5`, "Far": `1E+300`, "Count": `3`,
		"Big":            `"9007199254740993"`,
		"Big@odata.type": `"Edm.Int64"`, "Note": `"\u00fc <&> /"`}
	row := `{"odata.metadata":"x","PartitionKey":"on","RowKey":"one","Timestamp":"2026-01-01T00:00:00Z","LongUrl":"` + url1 + `","IsDisabled":false,"Owner":"a"`
	for name, value := range kept {
		row += fmt.Sprintf(`,%q:%s`, name, value)
	}
	var put map[string]json.RawMessage
	azure := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		links := strings.Contains(r.URL.Path, "ShortUrls(")
		switch {
		case r.Method == http.MethodGet && links:
			w.Header().Set("ETag", "the first")
			w.Header().Set("Content-Type",
				"application/json;odata=minimalmetadata;streaming=true;charset=utf-8")
			_, _ = io.WriteString(w, row+"}")
			return
		case r.Method == http.MethodPut && links && r.Header.Get("If-Match") == "the first":
			if err := json.Unmarshal(body, &put); err != nil ||
				r.Header.Get("Content-Type") != "application/json" {
				t.Errorf("%v, %q", err, r.Header)
			}
		}
		w.Header().Set("ETag", "the second")
		w.WriteHeader(http.StatusNoContent)
	}))
	defer azure.Close()
	r := newRig(t)
	r.config.Open = connect(t, fmt.Sprintf(
		"AccountName=a;AccountKey=AAAA;TableEndpoint=%s;BlobEndpoint=%[1]s", azure.URL), nil)
	r.config.Tables.Links = "ShortUrls"
	s, err := storage.Open(r.config)
	must(t, err)
	if _, err := s.Edit(ctx, "one", false, func(l link.Link) (link.Link, error) {
		l.Title = "new"
		return l, nil
	}); err != nil {
		t.Fatal(err)
	}
	if string(put["Title"]) != `"new"` {
		t.Errorf("got %s", put)
	}
	for name, value := range kept {
		var got, want any
		_, _ = json.Unmarshal(put[name], &got), json.Unmarshal([]byte(value), &want)
		if string(put[name]) != value && (value[0] != '"' || got != want) {
			t.Errorf("%s came as %s, and is written as %s", name, value, put[name])
		}
	}
}

func TestEditsOfALink(t *testing.T) { eachWay(t, testEdits) }

func testEdits(t *testing.T, start starter) {
	const url = "https://example.com/"
	setTitle := func(title string) func(link.Link) (link.Link, error) {
		return func(l link.Link) (link.Link, error) { l.Title = title; return l, nil }
	}

	t.Run("an edit is seen at once", func(t *testing.T) {
		s, clock, want := start(t)
		l := s.create(t, owned(want(url, time.Hour), "a"))
		if _, err := s.Get(t.Context(), l.Name); err != nil { // so that a cache has it
			t.Fatal(err)
		}
		read, err := s.Read(t.Context(), l.Name)
		must(t, err)
		w := read
		w.LongURL, w.ExpiresAt, w.StatusCode, w.Title, w.Tags, w.UpdatedAt = url+"2",
			clock.Now().Add(2*time.Hour), 301, "new", []string{"x"}, clock.Now()
		got := s.edit(t, l.Name, func(l *link.Link) { *l = w })
		if got.Version == read.Version || got.Version == "" {
			t.Errorf("version %q after %q", got.Version, read.Version)
		}
		w.Version = got.Version
		again, err := s.Read(t.Context(), l.Name)
		if err != nil || !reflect.DeepEqual(got, w) || !reflect.DeepEqual(again, w) {
			t.Errorf("got %+v, then %+v, %v, want %+v", got, again, err, w)
		}
		if got, err := s.Get(t.Context(), l.Name); err != nil || !storage.Same(got, w) {
			t.Errorf("Get: got %+v, %v", got, err)
		}
		none := s.edit(t, l.Name, func(l *link.Link) {
			l.Title, l.Tags, l.ExpiresAt = "", nil, time.Time{}
		})
		if again, err := s.Read(t.Context(), l.Name); err != nil || again.Title != "" ||
			again.Tags != nil || !again.ExpiresAt.IsZero() || !reflect.DeepEqual(again, none) {
			t.Errorf("what is taken away is there: %+v, %v", again, err)
		}
	})
	t.Run("an edit that changes nothing writes nothing", func(t *testing.T) {
		s, _, want := start(t)
		l := s.create(t, owned(want(url, 0), "a"))
		before, err := s.Read(t.Context(), l.Name)
		must(t, err)
		if got := s.edit(t, l.Name, func(*link.Link) {}); !reflect.DeepEqual(got, before) {
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
		if _, err := s.Edit(t.Context(), s.name("nobody"), false, setTitle("x")); !errors.Is(err,
			link.ErrNotFound) {
			t.Errorf("an unknown alias: got %v", err)
		}
	})
	t.Run("edits that cross are repeated, or refused", func(t *testing.T) {
		s, _, want := start(t)
		l := s.create(t, owned(want(url, 0), "a"))
		// crossed edits a link while others edit it the given number of times.
		crossed := func(title string, once bool, others int) (calls int, err error) {
			_, err = s.Edit(t.Context(), l.Name, once, func(l link.Link) (link.Link, error) {
				if calls++; calls <= others {
					s.edit(t, l.Name, func(l *link.Link) {
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
	t.Run("several edits have a result each, and those of a link their order", func(t *testing.T) {
		s, _, want := start(t)
		one := s.create(t, owned(want(url, 0), "a")).Name
		two := s.create(t, owned(want(url+"2", 0), "a")).Name
		add := func(title string) func(link.Link) (link.Link, error) {
			return func(l link.Link) (link.Link, error) { l.Title += title; return l, nil }
		}
		crossed := func(title string) func(link.Link) (link.Link, error) {
			calls := 0
			return func(l link.Link) (link.Link, error) {
				if calls++; calls == 1 {
					s.edit(t, two, func(l *link.Link) { l.Tags = append(l.Tags, title) })
				}
				l.Title += title
				return l, nil
			}
		}
		got, err := s.EditAll(t.Context(), []link.Edit{{Name: one, Change: add("a")},
			{Name: two, Change: crossed("b")}, {Name: one, Once: true, Change: add("c")},
			{Name: two, Once: true, Change: crossed("d")}, {Name: two, Change: add("")}})
		if err != nil || len(got) != 5 || !errors.Is(got[3].Err, link.ErrConflict) {
			t.Fatalf("got %+v, %v", got, err)
		}
		for i, title := range map[int]string{0: "a", 1: "b", 2: "ac", 4: "b"} {
			if got[i].Err != nil || got[i].Link.Title != title {
				t.Errorf("%d: got %+v", i, got[i])
			}
		}
		for i, name := range map[int]link.Name{2: one, 4: two} {
			if now, err := s.Read(t.Context(), name); err != nil ||
				now.Version != got[i].Link.Version {
				t.Errorf("%s: got %+v, %v, want %+v", name, now, err, got[i].Link)
			}
		}
	})
	t.Run("a link of another URL is found by that", func(t *testing.T) {
		s, _, want := start(t)
		l := s.create(t, owned(want(url+"old", 0), "a"))
		taken := s.create(t, owned(want(url+"taken", 0), "a"))
		s.edit(t, l.Name, func(l *link.Link) { l.LongURL = url + "new" })
		if got := s.of(t, owned(want(url+"new", 0), "a")); got != l.Name {
			t.Errorf("the new URL has %s, want %s", got, l.Name)
		}
		if got := s.of(t, owned(want(url+"old", 0), "a")); got == l.Name {
			t.Error("the old URL has it still")
		}
		s.edit(t, l.Name, func(l *link.Link) { l.LongURL = url + "taken" })
		if got := s.of(t, owned(want(url+"taken", 0), "a")); got != taken.Name {
			t.Errorf("a URL that has a link has now %s", got)
		}
		s.edit(t, taken.Name, func(l *link.Link) { l.LongURL = url + "other" })
		s.edit(t, taken.Name, func(l *link.Link) { l.LongURL = url + "taken" })
		if got := s.of(t, owned(want(url+"taken", 0), "a")); got != taken.Name {
			t.Errorf("there and back: the URL has %s, want %s", got, taken.Name)
		}
	})
	t.Run("a disabled link can be enabled", func(t *testing.T) {
		s, _, want := start(t)
		l := s.create(t, owned(want(url, 0), "a"))
		s.edit(t, l.Name, func(l *link.Link) { l.Disabled = true })
		if got, err := s.Get(t.Context(), l.Name); err != nil || !got.Disabled {
			t.Errorf("got %+v, %v", got, err)
		}
		if _, _, err := s.Create(t.Context(), owned(want(url, 0), "a"), ""); !errors.Is(err,
			link.ErrDisabled) {
			t.Errorf("got %v", err)
		}
		s.edit(t, l.Name, func(l *link.Link) { l.Disabled = false })
		if got, err := s.Get(t.Context(), l.Name); err != nil || got.Disabled {
			t.Errorf("got %+v, %v", got, err)
		}
		if got := s.of(t, owned(want(url, 0), "a")); got != l.Name {
			t.Errorf("its URL has %s", got)
		}
	})
	t.Run("a disabled link that is deleted, too", func(t *testing.T) {
		s, clock, want := start(t)
		for _, owner := range []string{"", "a"} {
			w := owned(want(url, time.Hour), owner)
			l := s.create(t, w)
			s.edit(t, l.Name, func(l *link.Link) { l.Disabled = true })
			s.edit(t, l.Name, func(l *link.Link) { l.DeletedAt = clock.Now() })
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
	reap := func(t *testing.T, s *way, now time.Time, aliases ...link.Name) string {
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
		s, clock, want := start(t)
		var a []link.Name
		for i := range 4 {
			a = append(a, s.create(t, owned(want(fmt.Sprint(url, i), 2*time.Hour), "a")).Name)
		}
		s.edit(t, a[0], func(l *link.Link) { l.ExpiresAt = l.ExpiresAt.Add(-time.Hour) })
		s.edit(t, a[2], func(l *link.Link) { l.ExpiresAt = l.ExpiresAt.Add(time.Hour) })
		s.edit(t, a[3], func(l *link.Link) { l.ExpiresAt = time.Time{} })
		for _, want := range []string{"link: link: link: link:",
			"tombstone:expired link: link: link:",
			"tombstone:expired tombstone:expired link: link:",
			"tombstone:expired tombstone:expired tombstone:expired link:"} {
			if got := reap(t, s, clock.Now(), a...); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
			clock.Advance(time.Hour)
		}
		s.edit(t, a[3], func(l *link.Link) { l.ExpiresAt = clock.Now().Add(time.Hour) })
		clock.Advance(time.Hour)
		if got := reap(t, s, clock.Now(), a[3]); got != "tombstone:expired" {
			t.Errorf("got %s", got)
		}
		clock.Advance(teststore.TombstoneKeep + 24*time.Hour)
		if got := reap(t, s, clock.Now(), a...); got != "unknown unknown unknown unknown" {
			t.Errorf("got %s once tombstones are due", got)
		}
	})
	t.Run("an expired link can be extended until it is reaped", func(t *testing.T) {
		s, clock, want := start(t)
		l := s.create(t, owned(want(url, time.Hour), "a"))
		clock.Advance(time.Hour)
		s.edit(t, l.Name, func(l *link.Link) { l.ExpiresAt = clock.Now().Add(time.Hour) })
		if got := reap(t, s, clock.Now(), l.Name); got != "link:" {
			t.Errorf("got %s", got)
		}
		if got := s.of(t, owned(want(url, 0), "a")); got != l.Name {
			t.Errorf("its URL has %s", got)
		}
	})
	t.Run("a deleted link can be restored until it is reaped", func(t *testing.T) {
		s, clock, want := start(t)
		back, gone := s.create(t, want(url+"back", 0)),
			s.create(t, owned(want(url+"gone", time.Hour), "a"))
		for _, l := range []link.Link{back, gone} {
			s.edit(t, l.Name, func(l *link.Link) { l.DeletedAt = clock.Now() })
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
		s.edit(t, back.Name, func(l *link.Link) { l.DeletedAt = time.Time{} })
		if got := s.of(t, want(url+"back", 0)); got != back.Name {
			t.Errorf("the URL of the restored link has %s", got)
		}
		clock.Advance(teststore.DeletedKeep)
		if got := reap(t, s, clock.Now(), back.Name,
			gone.Name); got != "link: tombstone:deleted" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("the URL of a deleted link gets another one, which stays", func(t *testing.T) {
		s, clock, want := start(t)
		first := s.create(t, want(url, 0))
		s.edit(t, first.Name, func(l *link.Link) { l.DeletedAt = clock.Now() })
		second := s.create(t, want(url, 0))
		s.edit(t, first.Name, func(l *link.Link) { l.DeletedAt = time.Time{} })
		if got := s.of(t, want(url, 0)); got != second.Name || got == first.Name {
			t.Errorf("the URL has %s, of %s and %s", got, first.Name, second.Name)
		}
	})
	t.Run("a restored link is found by its URL", func(t *testing.T) {
		s, clock, want := start(t)
		l := s.create(t, owned(chosen(want(url, 0), "mine"), "a")) // not in the index yet
		s.edit(t, l.Name, func(l *link.Link) { l.DeletedAt = clock.Now() })
		s.edit(t, l.Name, func(l *link.Link) { l.DeletedAt = time.Time{} })
		if got := s.of(t, owned(want(url, 0), "a")); got != l.Name {
			t.Errorf("its URL has %s", got)
		}
	})
	t.Run("claimed links have an owner", func(t *testing.T) {
		s, clock, want := start(t)
		var a []link.Name
		for i := range 3 {
			w := want(fmt.Sprint(url, i), time.Hour)
			w.ClaimHash = fmt.Sprint("hash ", i)
			a = append(a, s.create(t, w).Name)
		}
		if _, err := s.Get(t.Context(), a[0]); err != nil { // so that a cache has it
			t.Fatal(err)
		}
		refused, twice := errors.New("refused"), errors.New("claimed twice")
		errs, err := editAll(t.Context(), s, []link.Name{a[0], s.name("nobody"), a[1], a[0],
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
			if got := s.of(t, owned(want(fmt.Sprint(url, i), 0), "a")); got != a[i] {
				t.Errorf("link %d: its owner is given %s, want %s", i, got, a[i])
			}
			if got := s.of(t, want(fmt.Sprint(url, i), time.Hour)); got == a[i] {
				t.Errorf("link %d: somebody else is given it", i)
			}
		}
		if got := s.of(t, want(url+"1", time.Hour)); got != a[1] {
			t.Errorf("what was not claimed is not given any more, but %s", got)
		}
		clock.Advance(time.Hour)
		if got := reap(t, s, clock.Now(),
			a...); got != "link: tombstone:expired tombstone:expired" {
			t.Errorf("got %s", got)
		}
	})
	t.Run("edits of no links at all", func(t *testing.T) {
		s, _, _ := start(t)
		errs, err := editAll(context.Background(), s, nil, func(int, link.Link) (link.Link, error) {
			panic("called")
		})
		if err != nil || len(errs) != 0 {
			t.Errorf("got %v, %v", errs, err)
		}
	})
}

// editAll edits several links by the same function, which gets the index of the edit, and returns
// the errors of the edits.
func editAll(ctx context.Context, s interface {
	EditAll(ctx context.Context, edits []link.Edit) ([]link.EditResult, error)
}, names []link.Name, change func(i int, l link.Link) (link.Link, error)) ([]error, error) {
	edits := make([]link.Edit, len(names))
	for i, name := range names {
		edits[i] = link.Edit{Name: name, Change: func(l link.Link) (link.Link, error) {
			return change(i, l)
		}}
	}
	edited, err := s.EditAll(ctx, edits)
	errs := make([]error, len(edited))
	for i := range edited {
		errs[i] = edited[i].Err
	}
	return errs, err
}
