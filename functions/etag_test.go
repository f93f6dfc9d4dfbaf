package functions

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"tiney/internal/link"
)

// FuzzETags: a header that can be read means what its tags say, in however many lines they come.
func FuzzETags(f *testing.F) {
	for _, seed := range []string{"*", `"a"`, `W/"a", "b,c"`, `,"a" , ,`, `"a" "b"`, `"\x80"`,
		`*,"a"`, `"`, `W/`, ""} {
		f.Add(seed)
	}
	mine := etagOf("1")
	f.Fuzz(func(t *testing.T, header string) {
		tags, err := parseETags([]string{header})
		if err != nil {
			if tags.any || tags.list != nil {
				t.Fatalf("%q is an error, and %+v", header, tags)
			}
			return
		}
		if tags.any != (strings.Trim(header, " \t") == "*") || tags.any == (tags.list != nil) {
			t.Fatalf("%q is %+v", header, tags)
		}
		if tags.any {
			return
		}
		for _, tag := range tags.list {
			if opaque := strings.TrimPrefix(tag, "W/"); len(opaque) < 2 || opaque[0] != '"' ||
				strings.Count(opaque, `"`) != 2 || !strings.HasSuffix(opaque, `"`) ||
				!strings.Contains(header, tag) {
				t.Fatalf("%q has the tag %q", header, tag)
			}
		}
		// Only commas and white space are left out.
		if left := strings.NewReplacer(",", "", " ", "", "\t",
			"").Replace(header); left != strings.NewReplacer(",", "", " ", "", "\t",
			"").Replace(strings.Join(tags.list, "")) {
			t.Fatalf("%q became %q", header, tags.list)
		}
		if again, err := parseETags(tags.list); err != nil || !slices.Equal(again.list, tags.list) {
			t.Fatalf("%q by line: %+v, %v", tags.list, again, err)
		}
		both, err := parseETags([]string{header, mine})
		if err != nil || !both.match(mine) || tags.match(mine) &&
			!strings.Contains(header, strings.TrimSuffix(mine, `"`)) {
			t.Fatalf("%q and ours: %+v, %v", header, both, err)
		}
	})
}

// FuzzCursor: a cursor leads to the position that it was made for. No other text leads anywhere by
// accident.
func FuzzCursor(f *testing.F) {
	f.Add("7999999999|abc", "ann", "", "", "", "AAAA")
	f.Add("7999999999|abc", "ann", "q\x00", "tag", "live", "")
	// The last character of this cursor has four unused bits.
	cursor := filter{owner: "ann"}.cursor("ab")
	f.Add("ab", "ann", "", "", "", cursor[:len(cursor)-1]+string(cursor[len(cursor)-1]+1))
	f.Fuzz(func(t *testing.T, position, owner, q, tag, state, other string) {
		of := filter{owner: owner, q: q, state: state, tags: []string{tag}}
		if position != "" {
			cursor := of.cursor(position)
			if got, ok := of.position(cursor); !ok || got != position {
				t.Fatalf("%q became %q, %t", position, got, ok)
			}
			for _, change := range []func(f *filter){
				func(f *filter) { f.owner += "x" },
				func(f *filter) { f.q, f.tags = q+tag, nil },
				func(f *filter) { f.state, f.tags = "", []string{tag + state} },
				func(f *filter) { f.owner, f.q = q, owner },
				func(f *filter) { f.tags = append(f.tags, tag) },
				func(f *filter) { f.export = "all" },
				func(f *filter) { f.domain = new(link.Domain) },
			} {
				wrong := of
				change(&wrong)
				if got, ok := wrong.position(cursor); ok && !reflect.DeepEqual(wrong, of) {
					t.Fatalf("%+v takes the cursor of %+v for %q", wrong, of, got)
				}
			}
		}
		if got, ok := of.position(other); ok && other != "" && of.cursor(got) != other {
			t.Fatalf("%q is a cursor, and stands for %q", other, got)
		}
	})
}
