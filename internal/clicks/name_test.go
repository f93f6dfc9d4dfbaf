package clicks

import (
	"strings"
	"testing"
	"time"
)

// IsName accepts each name that a click can have, and refuses texts that only a stranger can have
// written.
func TestIsName(t *testing.T) {
	for _, name := range []string{
		"Chrome", "Edge", "Firefox", "Safari", "Opera", "Samsung Internet", "Windows", "macOS",
		"Linux", "Android", "iOS", "ChromeOS", "desktop", "mobile", "tablet",
		"DE", "(unknown)", Other, Referrer(""), Referrer("https://xn--bcher-kva.Example:8080/"),
		Referrer("http://192.0.2.1/"), Referrer("https://" + strings.Repeat("a", maxHostName) +
			"/"),
	} {
		if !IsName(Referrers, name) {
			t.Errorf("%q is none", name)
		}
	}
	for _, text := range []string{"", "<b>", "a\x00b", "a\nb", "bücher.example", "=1+1", "@SUM",
		`"`, "'", "a/b", strings.Repeat("a", maxHostName+1), "\xff"} {
		if IsName(Referrers, text) {
			t.Errorf("%q is one", text)
		}
	}
}

// A name among targets is what the owner of a link has chosen, or one of the fixed ones.
func TestIsNameOfARule(t *testing.T) {
	for _, name := range []string{Itself, Other, "1", "Größe XL", "=1+1", strings.Repeat("ü", maxRule)} {
		if !IsName(Targets, name) {
			t.Errorf("%q is none", name)
		}
	}
	for _, text := range []string{"", "(x)", "a\nb", "\xff", strings.Repeat("ü", maxRule+1)} {
		if IsName(Targets, text) {
			t.Errorf("%q is one", text)
		}
	}
}

func TestDayOf(t *testing.T) {
	for text, want := range map[string]string{
		"1970-01-01T00:00:00Z": "19700101", "1969-12-31T23:59:59Z": "19691231",
		"1969-12-31T00:00:00Z": "19691231", "0001-01-01T00:00:00Z": "00010101",
		"2026-03-01T00:30:00+01:00": "20260228", "2024-02-29T23:59:59.999999999Z": "20240229",
		"9999-12-31T23:59:59Z": "99991231",
	} {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		if got := DayOf(at); got.String() != want {
			t.Errorf("%s is on %s, want %s", text, got, want)
		}
	}
	if !DayOf(time.Time{}).Start().IsZero() {
		t.Error("the zero time has no day of its own")
	}
}
