package storage_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/rawtables"
)

// All links are there once, however many rows a page has.
func TestAll(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	var want []string
	for i, a := range []link.Name{"-", "_", "a", "Z", "--", "ab1", "AB1", "aB2", "Ab3", "abc",
		"ab", "zz", "__", "0", "deleted", "ended", "disabled"} {
		l := link.Link{Name: a, LongURL: fmt.Sprintf("https://example.com/%d", i),
			Owner: []string{"", "a"}[i%2], CreatedAt: r.clock.Now().Add(-time.Hour)}
		switch a {
		case "deleted":
			l.DeletedAt = r.clock.Now()
		case "ended":
			l.ExpiresAt = r.clock.Now().Add(-time.Minute)
		case "disabled":
			l.Disabled = true
		}
		r.PutLink(l)
		want = append(want, string(a))
	}
	slices.Sort(want)
	for _, e := range []rawtables.Entity{
		rawtables.Link(link.Link{Name: "tomb", GoneReason: link.StateExpired,
			GoneAt: r.clock.Now()}),
		{"PartitionKey": "ab", "RowKey": "zz", "LongUrl": "not where it belongs"},
		{"PartitionKey": "a b", "RowKey": "not an alias"},
		{"PartitionKey": "ab", "RowKey": "abDamaged"},
	} {
		r.Put(r.Links, e)
	}
	for _, limit := range []int{1, 2, 3, 7, 1000} {
		var got []string
		damaged := 0
		for after := ""; ; {
			links, next, bad, err := s.All(ctx, after, limit)
			if err != nil || len(links) > limit {
				t.Fatalf("got %d links, %v", len(links), err)
			}
			damaged += bad
			for _, l := range links {
				got = append(got, string(l.Name))
				if full, err := s.Read(ctx, l.Name); err != nil || full.LongURL != l.LongURL ||
					full.Owner != l.Owner || full.Disabled != l.Disabled ||
					!full.DeletedAt.Equal(l.DeletedAt) || !full.ExpiresAt.Equal(l.ExpiresAt) {
					t.Errorf("got %+v, want %+v, %v", l, full, err)
				}
			}
			if after = next; next == "" {
				break
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) || damaged != 1 {
			t.Errorf("%d at a time: got %q and %d damaged, want %q", limit, got, damaged, want)
		}
	}
	if links, next, _, err := s.All(ctx, "zz", 10); err != nil || len(links) != 0 || next != "" {
		t.Errorf("after the last: %v, %q, %v", links, next, err)
	}
	for _, after := range []string{"0000000001|a", "a b", "'", "ü", "\x00",
		strings.Repeat("a", 101)} {
		if _, _, _, err := s.All(ctx, after, 10); !errors.Is(err, link.ErrPosition) {
			t.Errorf("%q: got %v", after, err)
		}
	}
}
