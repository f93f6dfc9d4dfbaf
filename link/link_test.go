package link_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"tiney/link"
)

func TestParseAlias(t *testing.T) {
	for s, want := range map[string]bool{
		"a":                     true,
		"0":                     true,
		"AZaz09-_":              true,
		strings.Repeat("x", 32): true,
		strings.Repeat("x", 33): false,
		"":                      false,
		"a.b":                   false,
		"a/b":                   false,
		"a b":                   false,
		"a|b":                   false,
		"é":                     false,
		"a\x00":                 false,
		"favicon.ico":           false,
		"a%62":                  false,
	} {
		a, ok := link.ParseAlias(s)
		if ok != want || ok && string(a) != s {
			t.Errorf("ParseAlias(%q) = %q, %t, want %t", s, a, ok, want)
		}
	}
}

func TestReserved(t *testing.T) {
	for a, want := range map[link.Alias]bool{"api": true, "Manage": true, "ADMIN": true, "runtime": true, "apis": false, "ap": false, "6GV88b": false} {
		if got := a.Reserved(); got != want {
			t.Errorf("%s: %t", a, got)
		}
	}
	// A reserved one that is drawn is drawn again.
	var draws []byte
	for _, c := range []byte("aDmInadmit") {
		draws = append(draws, byte(strings.IndexByte("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", c)))
	}
	if a, err := link.NewAlias(bytes.NewReader(draws), 5); err != nil || a != "admit" {
		t.Errorf("drew %q, %v", a, err)
	}
}

func FuzzAlias(f *testing.F) {
	f.Add("abc")
	f.Add("a|b")
	f.Fuzz(func(t *testing.T, s string) {
		a, ok := link.ParseAlias(s)
		if !ok {
			return
		}
		if string(a) != s || len(s) < 1 || len(s) > 32 || strings.Trim(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_") != "" {
			t.Fatalf("%q is no alias", s)
		}
	})
}

func TestNewAliasLeavesOutBytesThatWouldFavourSomeCharacters(t *testing.T) {
	// 255 to 248 are drawn again; 247 is the last of the fair ones.
	a, err := link.NewAlias(bytes.NewReader([]byte{255, 248, 0, 247, 61, 9, 10, 35, 36, 123}), 6)
	if err != nil || a != "0zz9AZ" {
		t.Errorf("got %q, %v, want 0zz9AZ", a, err)
	}
	if _, err := link.NewAlias(iotest.ErrReader(io.ErrUnexpectedEOF), 6); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v where there is no randomness, want its error", err)
	}
}

func TestNewAliasDrawsEveryCharacterAsOften(t *testing.T) {
	const draws, length, alphabet = 62_000, 6, 62
	counts := map[byte]int{}
	for range draws {
		a, err := link.NewAlias(rand.Reader, length)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := link.ParseAlias(string(a)); !ok || len(a) != length {
			t.Fatalf("drew %q", a)
		}
		for i := range len(a) {
			counts[a[i]]++
		}
	}
	// Pearson's statistic with 61 degrees of freedom: above 150 once in 10^9 runs. Taking all 256 byte values modulo
	// 62 would make it about 6,000 here.
	const expected = float64(draws) * length / alphabet
	var chi2 float64
	for _, n := range counts {
		chi2 += (float64(n) - expected) * (float64(n) - expected) / expected
	}
	if len(counts) != alphabet || chi2 > 150 {
		t.Errorf("%d characters, chi² %.0f", len(counts), chi2)
	}
}

func TestLifetimes(t *testing.T) {
	r := rules(t, "https://tiney.to")
	seconds := func(n int64) *int64 { return &n }
	created := time.Date(2026, 9, 1, 3, 15, 0, 0, time.UTC)
	for name, test := range map[string]struct {
		ttl  *int64
		want time.Duration // 0: refused
	}{
		"none asked for": {nil, 30 * 24 * time.Hour},
		"shortest":       {seconds(60), time.Minute},
		"too short":      {seconds(59), 0},
		"zero":           {seconds(0), 0},
		"negative":       {seconds(-60), 0},
		"longest":        {seconds(90 * 86400), 90 * 24 * time.Hour},
		"too long":       {seconds(90*86400 + 1), 0},
		"overflow":       {seconds(1 << 62), 0},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := r.New("https://example.com", test.ttl, now.In(time.FixedZone("", 3600)))
			var invalid *link.InvalidError
			if errors.As(err, &invalid) != (test.want == 0) {
				t.Fatalf("got %v", err)
			}
			if err != nil {
				if invalid.Field != link.FieldLifetime || !strings.Contains(invalid.Detail, "from 60 to 7776000") {
					t.Errorf("got %+v", invalid)
				}
				return
			}
			if l.CreatedAt != created || l.ExpiresAt != created.Add(test.want) {
				t.Errorf("from %v to %v, want %v from %v", l.CreatedAt, l.ExpiresAt, test.want, created)
			}
		})
	}
	r.MaxTTL = time.Hour
	if l, err := r.New("https://example.com", nil, now); err != nil || l.ExpiresAt.Sub(l.CreatedAt) != time.Hour {
		t.Errorf("the default lifetime exceeds the ceiling: %v, %v", l, err)
	}
}

func TestExpired(t *testing.T) {
	l := link.Link{ExpiresAt: now}
	for at, want := range map[time.Time]bool{
		now.Add(-time.Nanosecond): false,
		now:                       true,
		now.Add(time.Second):      true,
	} {
		if got := l.Expired(at); got != want {
			t.Errorf("at %v: %t, want %t", at, got, want)
		}
	}
	if (link.Link{}).Expired(now) {
		t.Error("a link without an expiry expired")
	}
}

func TestParseBase(t *testing.T) {
	for raw, want := range map[string]string{
		"https://tiney.to":        "https://tiney.to",
		"https://tiney.to/":       "https://tiney.to",
		"http://localhost:7071":   "http://localhost:7071",
		"https://example.com/s/":  "https://example.com/s",
		"https://bücher.example/": "https://xn--bcher-kva.example",
		"":                        "",
		"tiney.to":                "",
		"ftp://tiney.to":          "",
		"https://":                "",
		"https://u@tiney.to":      "",
		"https://tiney.to?x":      "",
		"https://tiney.to/#x":     "",
		"https://tiney.to /":      "",
		"https://a<b":             "",
		"https://tiney.to:99999":  "",
	} {
		base, err := link.ParseBase(raw)
		if (err != nil) != (want == "") || base.String() != want {
			t.Errorf("ParseBase(%q) = %q, %v, want %q", raw, base, err, want)
		}
	}
	base, _ := link.ParseBase("https://example.com/s/")
	if got := base.ShortURL("abc"); got != "https://example.com/s/abc" {
		t.Errorf("ShortURL is %q", got)
	}
}
