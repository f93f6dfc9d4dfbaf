package storage_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
	"tiney/storage"
)

func TestRowsOfALinkOfADomain(t *testing.T) {
	r := newRig(t)
	s := r.open(nil)
	for owner, key := range map[string]string{
		// printf '@go.example\n\nhttps://example.com/' | sha256sum
		"": "f7221384ae85e865d598fa86aa06f8e9d20313645972a6a7df9b73b27172072b",
		// printf '@go.example\nann\nhttps://example.com/' | sha256sum
		"ann": "c15ac5a4f69cbf51f3d9323c725d9ade30ae353b2940e24da0f2f664dcb981d5",
	} {
		want := r.want("https://example.com/", time.Hour)
		want.Name, want.Owner = domain.Name(""), owner
		l, created, err := s.Create(ctx, want, "")
		if err != nil || !created || l.Name.Domain() != domain {
			t.Fatalf("%+v, %t, %v", l, created, err)
		}
		partition := strings.ToLower(string(l.Name[:2]))
		row := r.row(r.Links, partition, string(l.Name))
		index := r.row(r.Index, key[:8], key)
		if row == nil || index == nil || index["Alias"] != string(l.Name) {
			t.Errorf("%s has the row %v and the index row %v", l.Name, row, index)
		}
		expiry := r.row(r.Expiry, l.ExpiresAt.Format("20060102"),
			l.ExpiresAt.Format("150405")+"|"+string(l.Name))
		if expiry == nil || expiry["AliasPartitionKey"] != partition ||
			expiry["AliasRowKey"] != string(l.Name) {
			t.Errorf("%s has the expiry row %v", l.Name, expiry)
		}
	}
}

// row returns a row of a table, or nil.
func (r *rig) row(table, partition, key string) rawtables.Entity {
	for _, e := range r.Rows(table) {
		if e["PartitionKey"] == partition && e["RowKey"] == key {
			return e
		}
	}
	return nil
}

// One alias and one URL have a link of their own in each domain.
func TestDomainsAreApart(t *testing.T) {
	r := newRig(t)
	s := r.open(withCache)
	var links []link.Link
	for _, d := range []link.Domain{"", domain, "go.example:81"} {
		for _, alias := range []link.Alias{"", "docs"} {
			want := r.want("https://example.com/", 0)
			want.ExpiresAt, want.Owner, want.Name = time.Time{}, "ann", d.Name(alias)
			l, created, err := s.Create(ctx, want, "")
			if err != nil || !created || l.Name.Domain() != d {
				t.Fatalf("%q in %q: %+v, %t, %v", alias, d, l, created, err)
			}
			links = append(links, l)
			if again, created, err := s.Create(ctx, want, ""); err != nil || created ||
				again.Name != l.Name {
				t.Errorf("again: %+v, %t, %v", again, created, err)
			}
		}
	}
	if _, err := s.Edit(ctx, domain.Name("docs"), false, func(l link.Link) (link.Link, error) {
		return l.Deleted(link.Actor{Own: true}, r.clock.Now())
	}); err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		state := link.StateLive
		if l.Name == domain.Name("docs") {
			state = link.StateDeleted
		}
		if got, err := s.Get(ctx, l.Name); err != nil || got.State(r.clock.Now()) != state {
			t.Errorf("%s: %+v, %v", l.Name, got, err)
		}
	}
	listed, _, err := s.List(ctx, "ann", "", 100, all)
	if err != nil || len(listed) != len(links) {
		t.Errorf("%d links are listed, %v", len(listed), err)
	}
	all, _, damaged, err := s.All(ctx, "", 1000)
	if err != nil || len(all) != len(links) || damaged != 0 {
		t.Errorf("%d links, %d damaged, %v", len(all), damaged, err)
	}
	r.WantNoLeak()
}

// TestSpellings: in any case, an alias leads to its link in every spelling, and a row that is older
// than the setting has its own spelling only, and is found first.
func TestSpellings(t *testing.T) {
	r := newRig(t)
	old := r.open(nil)
	make := func(s *storage.Links, alias string, url string) (link.Link, error) {
		rules := link.Rules{AnyCase: s != old, DefaultTTL: time.Hour, MaxTTL: time.Hour}
		want, err := rules.New(link.Wish{LongURL: url, Owner: "ann", Alias: &alias}, r.clock.Now())
		must(t, err)
		l, _, err := s.Create(ctx, want, "")
		return l, err
	}
	if _, err := make(old, "Docs", "https://old.example/"); err != nil {
		t.Fatal(err)
	}
	r.config.AnyCase = true
	s := r.open(withCache)
	if l, err := make(s, "Docs", "https://old.example/"); err != nil || l.Name != "Docs" {
		t.Errorf("the same again: %+v, %v", l, err)
	}
	if _, err := make(s, "Docs", "https://new.example/"); !errors.Is(err, link.ErrAliasTaken) {
		t.Errorf("the spelling of the old row: %v", err)
	}
	l, err := make(s, "DOCS", "https://new.example/")
	if err != nil || l.Name != "docs" || l.Alias() != "DOCS" {
		t.Errorf("another spelling: %+v, %v", l, err)
	}
	if again, err := make(s, "docS", "https://new.example/"); err != nil || again.Alias() != "DOCS" {
		t.Errorf("a third spelling: %+v, %v", again, err)
	}
	for _, test := range []struct {
		asked link.Name
		name  link.Name
	}{{"Docs", "Docs"}, {"docs", "docs"}, {"DOCS", "docs"}, {"dOCs", "docs"}} {
		for _, read := range []func(context.Context, link.Name) (link.Link, error){s.Get, s.Read,
			s.Get} {
			if got, err := read(ctx, test.asked); err != nil || got.Name != test.name ||
				got.Alias() != map[link.Name]link.Alias{"Docs": "Docs", "docs": "DOCS"}[test.name] {
				t.Errorf("%s leads to %+v, %v", test.asked, got, err)
			}
		}
		testutil.Eventually(t, string(test.asked)+" is cached", func() bool {
			got, ok := s.Cached(ctx, test.asked, false)
			return ok && got.Name == test.name
		})
	}
	var mu sync.Mutex
	edits := map[link.Name]int{}
	if errs, err := editAll(ctx, s, []link.Name{"Docs", "DOCS", "docs", "dOcS", "none"},
		func(_ int, l link.Link) (link.Link, error) {
			mu.Lock()
			defer mu.Unlock()
			edits[l.Name]++
			l.Title += "x"
			return l, nil
		}); err != nil || errors.Join(errs[:4]...) != nil || !errors.Is(errs[4], link.ErrNotFound) ||
		edits["Docs"] != 1 || edits["docs"] != 3 {
		t.Errorf("edited %v, %v, %v", edits, errs, err)
	}
	done := s.Import(ctx, []link.Link{
		{Name: "docs", Spelling: "Docs", LongURL: "https://old.example/"},
		{Name: "docs", Spelling: "Docs", LongURL: "https://other.example/"},
		{Name: "made", Spelling: "Made", LongURL: "https://one.example/"},
		{Name: "made", Spelling: "MADE", LongURL: "https://two.example/"},
	})
	if done[0].Err != nil || done[0].Created || done[0].Link.Name != "Docs" ||
		!errors.Is(done[1].Err, link.ErrAliasTaken) || !done[2].Created ||
		!errors.Is(done[3].Err, link.ErrAliasTaken) {
		t.Errorf("imported %+v", done)
	}
	r.Put(r.Links, rawtables.Link(link.Link{Name: "Gone", GoneReason: link.StateDeleted,
		GoneAt: r.clock.Now()}))
	r.Put(r.Expiry, rawtables.Due("Gone", r.clock.Now().Add(time.Hour)))
	told := map[link.Name]link.State{}
	if done, err := s.Check(ctx, storage.CheckConfig{Found: func(f storage.Finding) {
		t.Errorf("%+v", f)
	}, Link: func(l link.Link) { told[l.Name] = l.GoneReason }}); err != nil || done.Found != 0 ||
		!maps.Equal(told, map[link.Name]link.State{"Docs": link.StateLive, "docs": link.StateLive,
			"made": link.StateLive, "Gone": link.StateDeleted}) {
		t.Errorf("%+v, %v, %v", done, told, err)
	}
}

// A cold look-up of a spelling with capitals is two reads, and a warm one none. An outage stops no
// spelling that was asked for before, and a change is right in each.
func TestCallsForASpelling(t *testing.T) {
	r := newRig(t)
	r.config.AnyCase = true
	s := r.open(withCache)
	want := r.want("https://example.com/", 24*time.Hour)
	want.Name, want.Spelling = "docs", "Docs"
	if _, _, err := r.other().Create(ctx, want, ""); err != nil {
		t.Fatal(err)
	}
	get := func(a link.Name, wantErr error, calls int) {
		t.Helper()
		var got link.Link
		var err error
		if made := r.calls(func() { got, err = s.Get(ctx, a) }); len(made) != calls {
			t.Errorf("%s: %q, want %d", a, made, calls)
		}
		if !errors.Is(err, wantErr) || err == nil && got.Alias() != "Docs" {
			t.Errorf("%s: %+v, %v", a, got, err)
		}
		// The cache takes a moment.
		testutil.Eventually(t, string(a)+" is cached", func() bool {
			return len(r.calls(func() { _, _ = s.Get(ctx, a) })) == 0
		})
	}
	get("DOCS", nil, 2)
	get("DOCS", nil, 0)
	get("docs", nil, 0)
	get("Docs", nil, 1)
	get("None", link.ErrNotFound, 2)
	get("None", link.ErrNotFound, 0)
	get("none", link.ErrNotFound, 0)
	get("NONE", link.ErrNotFound, 1)
	r.clock.Advance(2 * time.Minute) // what leads nowhere is not kept longer than any such alias
	get("None", link.ErrNotFound, 2)
	r.clock.Advance(30 * time.Minute) // both are stale, and asked for again
	get("DOCS", nil, 2)
	r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { return faultproxy.Refuse })
	r.clock.Advance(70 * time.Minute)
	if got, err := s.Get(ctx, "DOCS"); err != nil || !got.Stale || got.Alias() != "Docs" {
		t.Errorf("in an outage: %+v, %v", got, err)
	}
}
