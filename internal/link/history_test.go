package link_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"tiney/internal/link"
)

// said returns a history as people read it.
func said(h link.History) string {
	var s []string
	for _, c := range h {
		s = append(s, fmt.Sprintf("%s by %q, before %s", c.What, c.By, c.Before))
	}
	return strings.Join(s, "\n")
}

func TestHistory(t *testing.T) {
	r := rules(t, "https://tiney.example")
	ann := link.Actor{By: "ann", Own: true}
	l := link.Link{Name: "abc", LongURL: "https://example.com/?a=1&b=<2>", StatusCode: 302,
		Title: "t", Owner: "ann", ExpiresAt: second.Add(time.Hour), Shared: true, ClaimHash: "h",
		StartsAt: second, GoneURL: "https://example.com/gone"}
	step := func(next link.Link, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		l = next
	}
	step(r.Edit(l, link.Patch{Title: new(string), Tags: &[]string{"x"}, StatusCode: new(int64(301)),
		End: &link.End{}}, ann, now))
	step(r.Edit(l, link.Patch{}, ann, now))
	step(r.Edit(l, link.Patch{LongURL: new("https://example.com/2"), Owner: new("a|group|b"),
		Forward: &[]string{"query"}, Disabled: new(true), StartsAt: new(time.Time),
		GoneURL: new(string)}, link.Actor{By: "root", Admin: true}, now))
	if l.ClaimHash != "" || !l.Shared || l.ExpiresAt != (time.Time{}) {
		t.Errorf("transferred, and now %+v", l)
	}
	step(l.Deleted(link.Actor{By: "root", Admin: true}, now))
	step(l.Restored(link.Actor{By: "root", Admin: true}, time.Hour, now))
	l.Owner, l.History = "", l.History[:3]
	step(l.Claimed(link.Actor{By: "bob"}, "bob", true, now), nil)
	want := `claimed by "bob", before {"owner":null}
restored by "root", before {"deletedAtUtc":"2026-09-01T12:00:00Z"}
deleted by "root", before {"deletedAtUtc":null}
transferred by "root", before {"disabled":false,"forward":[],` +
		`"goneUrl":"https://example.com/gone",` +
		`"longUrl":"https://example.com/?a=1&b=<2>","owner":"ann",` +
		`"startsAtUtc":"2026-09-01T12:00:00Z"}`
	want = strings.ReplaceAll(want, "2026-09-01T12:00:00Z", second.Format(time.RFC3339))
	if got := said(l.History); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if again := link.ParseHistory(l.History.JSON()); said(again) != want ||
		!again[0].At.Equal(second) {
		t.Errorf("read again:\n%s", said(again))
	}
	if strings.Contains(l.History.JSON(), `\u`) {
		t.Errorf("escaped: %s", l.History.JSON())
	}
}

// A history has 50 changes and 30,000 UTF-16 units at most, and always the newest change.
func TestHistoryIsBounded(t *testing.T) {
	r := rules(t, "https://tiney.example")
	for name, url := range map[string]string{
		"many":      "https://example.com/",
		"long":      "https://example.com/" + strings.Repeat("a", 1500),
		"two units": "https://example.com/" + strings.Repeat("😀", 500),
	} {
		l := link.Link{Name: "abc", LongURL: url, Owner: "o", StatusCode: 302}
		var err error
		for i := range 60 {
			l, err = r.Edit(l, link.Patch{LongURL: new(fmt.Sprint(url, i))}, link.Actor{Own: true},
				now.Add(time.Duration(i)*time.Second))
			if err != nil {
				t.Fatal(err)
			}
			units := len(utf16.Encode([]rune(l.History.JSON())))
			if len(l.History) > 50 || units > 30_000 || len(l.History) < min(i+1, 14) ||
				!l.History[0].At.Equal(second.Add(time.Duration(i)*time.Second)) {
				t.Fatalf("%s: %d changes, %d units", name, len(l.History), units)
			}
		}
		if name == "many" && len(l.History) != 50 {
			t.Errorf("%d changes", len(l.History))
		}
	}
	// A row may have anything that another program wrote, and can still be edited.
	for name, l := range map[string]link.Link{
		"URL":   {LongURL: "https://example.com/" + strings.Repeat("a", 32_700)},
		"title": {LongURL: "https://example.com/", Title: strings.Repeat("\x01", 6_000)},
		"tags":  {LongURL: "https://example.com/", Tags: slices.Repeat([]string{"tag"}, 6_000)},
	} {
		edited, err := r.Edit(l, link.Patch{LongURL: new("https://example.com/new"), Title: new(""),
			Tags: &[]string{}}, link.Actor{Own: true}, now)
		if units := len(utf16.Encode([]rune(edited.History.JSON()))); err != nil || units > 30_000 ||
			len(edited.History) != 1 || len(link.ParseHistory(edited.History.JSON())) != 1 {
			t.Errorf("%s: %d changes, %d units, %v", name, len(edited.History), units, err)
		}
	}
}

func FuzzParseHistory(f *testing.F) {
	f.Add(`[["2026-09-01T12:00:00Z",null,"edited",{"title":null}]]`)
	f.Add(`[["2026-09-01T12:00:00Z","a","edited",[]],7,["x"],[]]`)
	f.Add(`{}`)
	f.Add(`[["9999-12-31T23:59:59-01:00","a","edited",{}]]`)
	f.Add("[[\"2026-09-01T12:00:00Z\",\"\xff\",\"edited\",{\"title\":\"\xff\"}]]")
	f.Fuzz(func(t *testing.T, text string) {
		h := link.ParseHistory(link.ParseHistory(text).JSON()) // its UTF-8 is valid
		if again := link.ParseHistory(h.JSON()); said(again) != said(h) {
			t.Errorf("%q: read\n%s\nand again\n%s", text, said(h), said(again))
		}
	})
}

// Whatever an admin took down stays down until an admin says otherwise.
func TestTakedown(t *testing.T) {
	r := rules(t, "https://tiney.example")
	var (
		own   = link.Actor{By: "ann", Own: true}
		admin = link.Actor{By: "root", Admin: true}
		both  = link.Actor{By: "ann", Admin: true, Own: true}
		on    = link.Patch{Disabled: new(false)}
		off   = link.Patch{Disabled: new(true)}
	)
	edit := func(by link.Actor, p link.Patch) func(link.Link) (link.Link, error) {
		return func(l link.Link) (link.Link, error) { return r.Edit(l, p, by, now) }
	}
	remove := func(by link.Actor) func(link.Link) (link.Link, error) {
		return func(l link.Link) (link.Link, error) { return l.Deleted(by, now) }
	}
	restore := func(by link.Actor) func(link.Link) (link.Link, error) {
		return func(l link.Link) (link.Link, error) { return l.Restored(by, time.Hour, now) }
	}
	type steps = []func(link.Link) (link.Link, error)
	for name, test := range map[string]struct {
		do     steps
		locked bool
		err    error // of the last step
	}{
		"an owner disables":                       {do: steps{edit(own, off)}},
		"an owner deletes":                        {do: steps{remove(own)}},
		"an admin disables their own":             {do: steps{edit(both, off)}},
		"an admin deletes their own":              {do: steps{remove(both)}},
		"an admin edits":                          {do: steps{edit(admin, link.Patch{Title: new("x")})}},
		"an admin disables":                       {do: steps{edit(admin, off)}, locked: true},
		"an admin deletes":                        {do: steps{remove(admin)}, locked: true},
		"an admin disables what is disabled":      {do: steps{edit(own, off), edit(admin, off)}, locked: true},
		"an admin deletes what is deleted":        {do: steps{remove(own), remove(admin)}, locked: true},
		"the owner enables":                       {do: steps{edit(admin, off), edit(own, on)}, err: link.ErrLocked},
		"the owner edits":                         {do: steps{edit(admin, off), edit(own, link.Patch{})}, err: link.ErrLocked},
		"the owner deletes":                       {do: steps{edit(admin, off), remove(own)}, err: link.ErrLocked},
		"the owner deletes again":                 {do: steps{remove(admin), remove(own)}, locked: true},
		"the owner edits what is deleted":         {do: steps{remove(admin), edit(own, on)}, err: link.ErrLocked},
		"the owner restores":                      {do: steps{remove(admin), restore(own)}, err: link.ErrLocked},
		"the owner restores what is not deleted":  {do: steps{edit(admin, off), restore(own)}, err: link.ErrLocked},
		"the admin enables":                       {do: steps{edit(admin, off), edit(admin, on)}},
		"the admin restores":                      {do: steps{remove(admin), restore(admin)}},
		"the admin restores what is disabled too": {do: steps{edit(admin, off), remove(admin), restore(admin)}, locked: true},
		"an admin restores what its owner had disabled": {
			do: steps{edit(own, off), remove(admin), restore(admin)}, locked: true},
		"an admin gives it to somebody": {
			do: steps{edit(admin, off), edit(admin, link.Patch{Owner: new("bob")})}, locked: true},
		"an admin who owns it enables it": {do: steps{edit(admin, off), edit(both, on)}},
	} {
		l := link.Link{Name: "abc", LongURL: "https://example.com/", Owner: "ann", StatusCode: 302,
			ExpiresAt: second.Add(time.Hour)}
		var err error
		for i, do := range test.do {
			next, stepErr := do(l)
			if err = stepErr; err != nil && i < len(test.do)-1 {
				t.Fatalf("%s: step %d: %v", name, i, err)
			}
			if err == nil {
				l = next
			}
		}
		if !errors.Is(err, test.err) || test.err == nil && l.Locked != test.locked {
			t.Errorf("%s: locked is %t, error %v", name, l.Locked, err)
		}
	}
}
