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

	"tiney/internal/link"
)

func TestParseAlias(t *testing.T) {
	for s, want := range map[string]bool{
		"a":                      true,
		"0":                      true,
		"AZaz09-_":               true,
		strings.Repeat("x", 33):  true,
		strings.Repeat("x", 100): true,
		strings.Repeat("x", 101): false,
		"":                       false,
		"a.b":                    false,
		"a/b":                    false,
		"a b":                    false,
		"a|b":                    false,
		"é":                      false,
		"a\x00":                  false,
		"favicon.ico":            false,
		"a%62":                   false,
	} {
		a, ok := link.ParseAlias(s)
		if ok != want || ok && string(a) != s {
			t.Errorf("ParseAlias(%q) = %q, %t, want %t", s, a, ok, want)
		}
	}
}

func TestPastedAlias(t *testing.T) {
	for pasted, want := range map[string]string{
		"abc": "abc", "abc.": "abc", "\u200b abc\ufeff)": "abc", "abc”": "abc", "abc」。": "abc",
		"abc*": "abc", "abc~`|>": "abc", "abc-": "abc-", "abc_.": "abc_", "-abc": "-abc",
		"abc\u00ad": "abc", "abc\ufe0f": "abc", "abc\u3164": "abc", "abc\u202c\u2069": "abc",
		"abc־": "abc", "abc՝": "abc", "abc؟": "abc", "abc།": "abc", "abc¿": "abc", "abc%": "abc",
		"abc(": "abc", "abc@": "abc", "abc\\": "abc", "abc+": "abc+", "abc+!": "abc+",
		"abcé": "abcé", "abc٣": "abc٣", "abcは": "abcは", "abc=": "abc=", "abc😀": "abc😀",
		"abc\x00": "abc\x00", "abc\xff": "abc\xff", "(abc)": "(abc", "abc/": "abc/", "abc/.": "abc/",
		"abc e\u0301": "abc e\u0301", "": "", ".": "", " ": "", "a b.": "a b",
	} {
		if got, cut := link.PastedAlias(pasted); got != want || cut {
			t.Errorf("%q is %q, %t, want %q", pasted, got, cut, want)
		}
	}
	for pasted, want := range map[string]string{"abc?": "abc", "abc?x=1#y": "abc", "abc#?": "abc",
		"abc&gt;": "abc", "abc&": "abc", "abc)?x": "abc", "abc/?x": "abc/", "?x": "", "abc #é": "abc"} {
		if got, cut := link.PastedAlias(pasted); got != want || !cut {
			t.Errorf("%q is %q, %t, want %q", pasted, got, cut, want)
		}
	}
}

func TestReserved(t *testing.T) {
	for a, want := range map[link.Alias]bool{"api": true, "Manage": true, "ADMIN": true,
		"runtime": true, "apis": false, "ap": false, "6GV88b": false} {
		if got := a.Reserved(); got != want {
			t.Errorf("%s: %t", a, got)
		}
	}
	// If a reserved alias is drawn, another one is drawn.
	var draws []byte
	for _, c := range []byte("aDmInadmit") {
		draws = append(draws, byte(strings.IndexByte(
			"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", c)))
	}
	if a, err := link.NewAlias(bytes.NewReader(draws), 5, false); err != nil || a != "admit" {
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
		if string(a) != s || len(s) < 1 || len(s) > 32 ||
			strings.Trim(s, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"+
				"abcdefghijklmnopqrstuvwxyz-_") != "" {
			t.Fatalf("%q is no alias", s)
		}
	})
}

func TestNewAliasLeavesOutBytesThatWouldFavourSomeCharacters(t *testing.T) {
	// The bytes 248 to 255 are drawn again. 247 is the largest that keeps all characters equally
	// likely.
	a, err := link.NewAlias(bytes.NewReader([]byte{255, 248, 0, 247, 61, 9, 10, 35, 36, 123}), 6, false)
	if err != nil || a != "0zz9AZ" {
		t.Errorf("got %q, %v, want 0zz9AZ", a, err)
	}
	if _, err := link.NewAlias(iotest.ErrReader(io.ErrUnexpectedEOF), 6, false); !errors.Is(err,
		io.ErrUnexpectedEOF) {
		t.Errorf("got %v from a source that fails, want its error", err)
	}
}

func TestNewAliasDrawsEveryCharacterAsOften(t *testing.T) {
	const draws, length, alphabet = 62_000, 6, 62
	counts := map[byte]int{}
	for range draws {
		a, err := link.NewAlias(rand.Reader, length, false)
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
	// Pearson's statistic with 61 degrees of freedom: above 150 once in 10^9 runs. Taking all 256
	// byte values modulo 62 would make it about 6,000 here.
	const expected = float64(draws) * length / alphabet
	var chi2 float64
	for _, n := range counts {
		chi2 += (float64(n) - expected) * (float64(n) - expected) / expected
	}
	if len(counts) != alphabet || chi2 > 150 {
		t.Errorf("%d characters, chi² %.0f", len(counts), chi2)
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
	for raw, want := range map[string]string{
		"https://tiney.to/s/":             "https://tiney.to",
		"HTTPS://Tiney.TO:443":            "https://tiney.to",
		"http://localhost:7071":           "http://localhost:7071",
		"http://bücher.example:80/":       "http://xn--bcher-kva.example",
		"https://[2001:DB8:0::1]:8443/s/": "https://[2001:db8::1]:8443",
	} {
		if base, _ := link.ParseBase(raw); base.Origin() != want {
			t.Errorf("the origin of %s is %s, want %s", raw, base.Origin(), want)
		}
	}
	base, _ := link.ParseBase("https://example.com/s/")
	rules := link.Rules{Base: base}
	if got := rules.ShortURL(link.Link{Name: "abc"}); got != "https://example.com/s/abc" {
		t.Errorf("ShortURL is %q", got)
	}
}

func TestNameOf(t *testing.T) {
	for _, test := range []struct {
		base, pasted string
		want         link.Name
	}{
		{"https://tiney.to", "https://tiney.to/Menu", "Menu"},
		{"https://tiney.to", "HTTP://Tiney.TO/Menu", "Menu"},
		{"https://tiney.to", "tiney.to/Menu", "Menu"},
		{"https://example.com/s", "example.com/s/abc", "abc"},
		{"http://localhost:7071", "localhost:7071/abc", "abc"},
		{"https://tiney.to", "https://tiney.to/Menu/", "Menu"},
		{"https://tiney.to", "https://tiney.to/Menu?utm=1", "Menu"},
		{"https://tiney.to", "tiney.to/Menu#x", "Menu"},
		{"https://tiney.to", "tiney.to/Menu/?a/b#c?d", "Menu"},
		{"https://tiney.to", "tiney.to/Menu//", ""},
		{"https://tiney.to", "tiney.to/?Menu", ""},
		{"https://tiney.to", "tiney.to?Menu", ""},
		{"https://tiney.to", "Menu?x", ""},
		{"https://tiney.to", "Menu", ""},
		{"https://tiney.to", "tiney.to", ""},
		{"https://tiney.to", "tiney.to/", ""},
		{"https://tiney.to", "tiney.to/a/b", ""},
		{"https://tiney.to", "ftp://tiney.to/abc", ""},
		{"https://tiney.to", "other.to/abc", ""},
		{"https://tiney.to", "tiney.to.example/abc", ""},
		{"https://example.com/s", "example.com/abc", ""},
		{"http://localhost:7071", "localhost/abc", ""},
	} {
		base, err := link.ParseBase(test.base)
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := (link.Rules{Base: base}).NameOf(test.pasted); got != test.want || ok != (test.want != "") {
			t.Errorf("%s has %q of %s, %t", test.base, got, test.pasted, ok)
		}
	}
}
