package clicks_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"tiney/internal/clicks"
)

var referrerTests = []struct{ name, header, want string }{
	{"none", "", "(direct)"},
	{"an origin", "https://www.example.com/", "www.example.com"},
	{"an origin without a slash", "https://www.example.com", "www.example.com"},
	{"a page", "http://example.com/a/b?q=1#x", "example.com"},
	{"a query alone", "https://example.com?q=https://example.org/", "example.com"},
	{"a fragment alone", "https://example.com#@example.org", "example.com"},
	{"a port", "http://example.com:8080/", "example.com"},
	{"an empty port", "http://example.com:/", "example.com"},
	{"a port that is no number", "http://example.com:http/", clicks.Other},
	{"two ports", "http://example.com:80:80/", clicks.Other},
	{"upper case", "HTTPS://WWW.Example.COM/Path", "www.example.com"},
	{"user information", "https://user:pass@example.com:443/", "example.com"},
	{"a host as user information", "https://example.org@example.com/", "example.com"},
	{"an at sign in the path", "https://example.com/@user", "example.com"},
	{"a backslash", `https://example.com\@example.org/`, "example.com"},
	{"a trailing dot", "https://example.com./", "example.com"},
	{"a trailing dot before a port", "https://example.com.:443/", "example.com"},
	{"two trailing dots", "https://example.com../", clicks.Other},
	{"a leading dot", "https://.example.com/", clicks.Other},
	{"two dots", "https://example..com/", clicks.Other},
	{"a dot alone", "https://./", clicks.Other},
	{"one label", "http://intranet/", "intranet"},
	{"an address of IPv4", "http://192.0.2.1/", "192.0.2.1"},
	{"an address of IPv6", "http://[2001:db8::1]/", clicks.Other},
	{"an address of IPv6 with a port", "http://[::1]:80/", clicks.Other},
	{"Punycode", "https://xn--bcher-kva.example/", "xn--bcher-kva.example"},
	{"not ASCII", "https://bücher.example/", clicks.Other},
	{"encoded", "https://b%C3%BCcher.example/", clicks.Other},
	{"an underscore", "https://a_b.example/", clicks.Other},
	{"HTML", "https://<script>alert(1)</script>/", clicks.Other},
	{"a control character", "https://example\x00.com/", clicks.Other},
	{"white space", "https://example.com /", clicks.Other},
	{"64 bytes", "https://" + strings.Repeat("a", 60) + ".com/", strings.Repeat("a", 60) + ".com"},
	{"64 bytes and a trailing dot", "https://" + strings.Repeat("a", 60) + ".com./",
		strings.Repeat("a", 60) + ".com"},
	{"65 bytes", "https://" + strings.Repeat("a", 61) + ".com/", clicks.Other},
	{"a path of 32 KiB", "https://example.com/" + strings.Repeat("a", 32<<10), "example.com"},
	{"user information of 32 KiB", "https://" + strings.Repeat("a", 32<<10) + "@example.com/",
		clicks.Other},
	{"user information that is cut", "https://example.com:" + strings.Repeat("1", 600) +
		"@example.org/", clicks.Other},
	{"a host alone", "example.com", clicks.Other},
	{"no host", "https:///path", clicks.Other},
	{"a scheme alone", "https://", clicks.Other},
	{"one slash", "https:/example.com/", clicks.Other},
	{"no scheme", "//example.com/", clicks.Other},
	{"an app", "android-app://com.google.android.gm/", clicks.Other},
	{"a letter that folds to s", "http\u017f://example.com/", clicks.Other},
	{"a script", "javascript:alert('https://example.com/')", clicks.Other},
}

func TestReferrer(t *testing.T) {
	for _, test := range referrerTests {
		t.Run(test.name, func(t *testing.T) {
			if got := clicks.Referrer(test.header); got != test.want {
				t.Errorf("Referrer(%q) = %q, want %q", test.header, got, test.want)
			}
		})
	}
}

var hostName = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*$`)

func FuzzReferrer(f *testing.F) {
	for _, test := range referrerTests {
		f.Add(test.header)
	}
	upper := func(r rune) rune {
		if 'a' <= r && r <= 'z' {
			return r - 'a' + 'A'
		}
		return r
	}
	f.Fuzz(func(t *testing.T, header string) {
		got := clicks.Referrer(header)
		if got != "(direct)" && got != clicks.Other &&
			(len(got) > 64 || !hostName.MatchString(got)) || (got == "(direct)") != (header == "") {
			t.Fatalf("Referrer(%q) = %q", header, got)
		}
		if shouted := clicks.Referrer(strings.Map(upper, header)); shouted != got {
			t.Errorf("Referrer(%q) = %q, and in upper case %q", header, got, shouted)
		}
		// net/url finds the same host if it can parse the URL. It does not take a backslash for a
		// slash.
		u, err := url.Parse(header)
		if err != nil || strings.Contains(header, `\`) {
			return
		}
		host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
		isHost := (u.Scheme == "http" || u.Scheme == "https") && len(u.Host) < 400 &&
			len(host) <= 64 && hostName.MatchString(host)
		if isHost && u.User == nil && got != host || got != clicks.Other && got != "(direct)" &&
			got != host {
			t.Errorf("Referrer(%q) = %q, and net/url finds %q", header, got, host)
		}
	})
}

func BenchmarkReferrer(b *testing.B) {
	for _, test := range []struct{ name, header, want string }{
		{"usual", "https://www.example.com/", "www.example.com"},
		{"a port and a path", "https://www.example.com:8443/a/long/path?with=a&query",
			"www.example.com"},
		{"upper case", "https://WWW.EXAMPLE.COM/", "www.example.com"},
		{"hostile", "https://" + strings.Repeat("a", 32<<10), clicks.Other},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got := clicks.Referrer(test.header); got != test.want {
					b.Fatal(got)
				}
			}
		})
	}
}
