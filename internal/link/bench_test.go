package link_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"tiney/internal/link"
)

func BenchmarkParseAlias(b *testing.B) {
	for _, test := range []struct {
		name, s string
		ok      bool
	}{
		{"usual", "6GV88b", true},
		{"longest", strings.Repeat("x", link.MaxAliasLength), true},
		{"impossible", "favicon.ico", false},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := link.ParseAlias(test.s); ok != test.ok {
					b.Fatal(ok)
				}
			}
		})
	}
}

func BenchmarkNewAlias(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := link.NewAlias(rand.Reader, 6, false); err != nil {
			b.Fatal(err)
		}
	}
}

// targets are long URLs that differ in how long it takes to check them.
var targets = []struct{ name, longURL string }{
	{"usual", "https://example.com/a/long/path?with=a&query"},
	{"longest", "https://example.com/" +
		strings.Repeat("x", link.MaxLongURLBytes-len("https://example.com/"))},
	{"non-ASCII", "https://bücher.example/straße?größe=übergroß#fuß"},
}

func BenchmarkRules(b *testing.B) {
	r := rules(b, "https://tiney.to")
	hour := int64(time.Hour / time.Second)
	for _, target := range targets {
		b.Run(target.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.New(link.Wish{LongURL: target.longURL,
					End: link.End{Seconds: &hour}}, now); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkLocation(b *testing.B) {
	for _, target := range targets {
		b.Run(target.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				link.Location(target.longURL)
			}
		})
	}
}
