package link_test

import (
	"fmt"
	"net/netip"
	"regexp"
	"runtime"
	"strings"
	"testing"

	whatwg "github.com/nlnwa/whatwg-url/url"

	"tiney/internal/link"
)

// spellings maps spellings of hosts that browsers accept to the hosts that browsers understand by
// them.
var spellings = map[string]string{
	"example.com":                     "example.com",
	"EXAMPLE.Com":                     "example.com",
	"example.com.":                    "example.com",
	"example.com..":                   "example.com",
	"a..example":                      "a..example",
	"com":                             "com",
	"localhost":                       "localhost",
	"a_b.example":                     "a_b.example",
	"-a-.example":                     "-a-.example",
	"bücher.example":                  "xn--bcher-kva.example",
	"BÜCHER.example":                  "xn--bcher-kva.example",
	"bu\u0308cher.example":            "xn--bcher-kva.example", // decomposed
	"b%C3%BCcher.example":             "xn--bcher-kva.example",
	"XN--BCHER-KVA.example":           "xn--bcher-kva.example",
	"straße.example":                  "xn--strae-oqa.example",
	"fuẞball.example":                 "xn--fuball-cta.example",
	"FUẞBALL。example":                 "xn--fuball-cta.example",
	"fu%E1%BA%9Eball.example":         "xn--fuball-cta.example",
	"fu%e1%Ba%9eball.example":         "xn--fuball-cta.example",
	"%e1%ba%9eẞ.example":              "xn--zcaa.example",
	"例え。テスト":                          "xn--r8jz45g.xn--zckzah",
	"ｅｘａｍｐｌｅ．com":                     "example.com",
	"ex\u00adample.com":               "example.com",
	"ex%61mple.com":                   "example.com",
	"127.0.0.1":                       "127.0.0.1",
	"127.0.0.1.":                      "127.0.0.1",
	"127.1":                           "127.0.0.1",
	"127.0.1":                         "127.0.0.1",
	"2130706433":                      "127.0.0.1",
	"0x7f000001":                      "127.0.0.1",
	"0X7F.1":                          "127.0.0.1",
	"0177.0.0.01":                     "127.0.0.1",
	"017700000001":                    "127.0.0.1",
	"１２７．０．０．１":                       "127.0.0.1",
	"%31%32%37.0.0.1":                 "127.0.0.1",
	"4":                               "0.0.0.4",
	"0x":                              "0.0.0.0",
	"[::1]":                           "[::1]",
	"[0:0:0:0:0:0:0:1]":               "[::1]",
	"[2001:DB8:0:0::0001]":            "[2001:db8::1]",
	"[::ffff:127.0.0.1]":              "127.0.0.1",
	"[::FFFF:7f00:1]":                 "127.0.0.1",
	"[0:0:0:0:0:ffff:7f00:0001]":      "127.0.0.1",
	"[::127.0.0.1]":                   "[::7f00:1]",
	"a·b.example":                     "xn--ab-0ea.example",
	strings.Repeat("a.", 125) + "com": strings.Repeat("a.", 125) + "com",

	strings.Repeat("a.", 125) + "com.": strings.Repeat("a.", 125) + "com",
}

func TestParseHost(t *testing.T) {
	for spelled, want := range spellings {
		if got, ok := link.ParseHost(spelled); !ok || string(got) != want {
			t.Errorf("%q: got %q, %t, want %q", spelled, got, ok, want)
		}
		if got, ok := link.ParseHost(want); !ok || string(got) != want {
			t.Errorf("%q: got %q, %t", want, got, ok)
		}
		for _, longURL := range []string{"https://%s", "http://%s/a/b", "HTTPS://%s:8443?q",
			"https://%s#top", "https://user:pass@%s/", `http:\\%s\@example.org`, "https:%s",
			"//%s/", "http:///%s:80"} {
			if longURL = fmt.Sprintf(longURL, spelled); string(link.HostOf(longURL)) != want {
				t.Errorf("%q: got %q, want %q", longURL, link.HostOf(longURL), want)
			}
		}
	}
	for name, spelled := range map[string]string{
		"empty":                   "",
		"a dot":                   ".",
		"a port":                  "example.com:80",
		"an empty port":           "example.com:",
		"a port of an address":    "[::1]:80",
		"an encoded port":         "example.com%3A80",
		"a full-width colon":      "example.com：80",
		"a path":                  "example.com/a",
		"a slash":                 "example.com/",
		"an encoded slash":        "example.com%2Fa",
		"a backslash":             `example.com\a`,
		"a query":                 "example.com?q",
		"a fragment":              "example.com#top",
		"a URL":                   "https://example.com",
		"a user name":             "user@example.com",
		"no user name":            "@example.com",
		"a list":                  "*.example.com",
		"a quote":                 "it's.example",
		"quotes":                  "“example.com”",
		"encoded quotes":          "%22example.com%22",
		"a quote in punycode":     "xn--https-hw3b.example",
		"a sentence's end":        "example.com…",
		"a space":                 "exa mple.com",
		"a space at the end":      "example.com ",
		"a tab":                   "exa\tmple.com",
		"a line feed":             "example.com\n",
		"an ideographic space":    "\u3000",
		"an encoded NUL":          "a%00b",
		"not UTF-8":               "a\xff",
		"a bare %":                "a%b",
		"less than":               "a<b",
		"bad punycode":            "xn--a",
		"empty punycode":          "z.xn--",
		"a soft hyphen":           "\u00ad",
		"IPv6 without brackets":   "::1",
		"IPv6 in two brackets":    "[[::1]]",
		"IPv6, not closed":        "[::1",
		"IPv6, not opened":        "::1]",
		"IPv6 with a zone":        "[fe80::1%25eth0]",
		"IPv6 with a name behind": "[::1].example",
		"brackets without colons": "[127.0.0.1]",
		"brackets behind a name":  "example[::1]",
		"too large":               "1.2.3.256",
		"not octal":               "1.2.3.08",
		"too many numbers":        "1.2.3.4.5",
		"a name before a number":  "example.1",
		"a signed number":         "-1",
		"a signed number, other":  "-①",
		"too long":                strings.Repeat("a.", 125) + "name",
		"too long, with a dot":    strings.Repeat("a.", 125) + "name.",
		"too long to parse":       strings.Repeat("東", 1300),
	} {
		if got, ok := link.ParseHost(spelled); ok {
			t.Errorf("%s: got %q", name, got)
		}
	}
}

// These are texts that another program may have written.
func TestHostOfWhatIsNoValidTarget(t *testing.T) {
	for longURL, want := range map[string]link.Host{
		"":                              "",
		"x":                             "",
		"/path":                         "",
		"example.com":                   "",
		"example.com/https://a.example": "",
		"mailto:a@example.com":          "",
		"ftp:/example.com/":             "",
		"ftp://Example.com:1/x":         "example.com", // owners may have extra schemes
		"https:":                        "",
		"https://":                      "",
		"http://:80/":                   "",
		"http://example.com:http/":      "",
		"http://1.2.3.256/":             "",
		"http://exa mple.com/":          "",
		"http://a@b@example.com:80/":    "example.com",
		"https://it's.example/":         "it's.example",
		"https:\xe8%80%80":              "xn--uw0a",
		"https://b\xc3%bccher.example/": "xn--bcher-kva.example",
		"https://“https://a.example":    "xn--https-hw3b",
		"http://example.com:80@b.test":  "b.test",
		`https:/\example.com`:           "example.com",
		`\\example.com`:                 "example.com",
	} {
		if got := link.HostOf(longURL); got != want {
			t.Errorf("%q: got %q, want %q", longURL, got, want)
		}
	}
}

func TestHostsCover(t *testing.T) {
	for blocked, test := range map[string]struct{ covered, others string }{
		"example.com": {"https://example.com https://EXAMPLE.com./ http://a.example.com:8080/x " +
			"https://a.b.example.com https://.example.com",
			"https://example.org https://notexample.com https://com https://example.com.org " +
				"https://a.example/https://example.com"},
		"com": {"https://com https://example.com",
			"https://example.org https://a.com.example"},
		"bücher.example": {"https://bücher.example/ https://xn--bcher-kva.example " +
			"https://A.BÜCHER.example", "https://bucher.example"},
		"fuẞball.example": {"https://fußball.example https://fuẞball.example " +
			"https://a.fu%e1%ba%9eball.example", "https://fussball.example"},
		"127.1": {"http://127.0.0.1/ http://0x7f.1:80 http://2130706433 " +
			"http://[::ffff:127.0.0.1]/", "http://127.0.0.2 http://a.127.0.0.1 http://[::1] " +
			"http://1.127.0.0.1"},
		"0.0.0.1":          {"http://1/ http://0.1", "http://1.0.0.1 http://5.0.0.0.1"},
		"[::ffff:1.2.3.4]": {"http://1.2.3.4 http://[::ffff:102:304]", "http://[::102:304]"},
		"[2001:db8::1]":    {"http://[2001:DB8:0::1]:80/", "http://[2001:db8::2] http://2001.db8"},
	} {
		host, ok := link.ParseHost(blocked)
		if !ok {
			t.Fatal(blocked)
		}
		hosts := link.Hosts{"else.example": {}, host: {}}
		for longURL := range strings.FieldsSeq(test.covered) {
			if !hosts.Cover(longURL) {
				t.Errorf("%s does not cover %s", blocked, longURL)
			}
		}
		for longURL := range strings.FieldsSeq(test.others) {
			if hosts.Cover(longURL) {
				t.Errorf("%s covers %s", blocked, longURL)
			}
		}
	}
	if link.Hosts(nil).Cover("https://example.com") {
		t.Error("none covers one")
	}
}

// HostOf returns the host to which a browser goes when it is redirected, and every spelling of a
// host gives the same Host.
func FuzzHost(f *testing.F) {
	for spelled := range spellings {
		f.Add("https://" + spelled + ":80/")
		f.Add(spelled)
	}
	for _, seed := range []string{`\\a.example\b`, "https:a.example",
		"http://u:p@a.example:1?@b.example", "http://a:1@b.example", "http://xn--/",
		"https://a.1x/", "//1.2.3", "http://a.example.:x", "http://ẞ%e1%bA%9e/%e1%ba%9e"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if h, ok := link.ParseHost(s); ok {
			if again, ok := link.ParseHost(string(h)); !ok || again != h {
				t.Fatalf("%q is %q, which is %q, %t", s, h, again, ok)
			}
			if of := link.HostOf("https://" + s + "/"); of != h {
				t.Fatalf("%q is %q, but leads to %q", s, h, of)
			}
		}
		// If the Location has no host, a browser stays at the service and keeps its scheme.
		at, err := whatwg.ParseRef("http://tiney.to/alias", inBrowsers(link.Location(s)))
		if err != nil || at.Hostname() == "tiney.to" || at.Protocol() != "http:" &&
			at.Protocol() != "https:" {
			return
		}
		want, ok := link.ParseHost(at.Hostname())
		_, notAddress := netip.ParseAddr(string(want)) // this parser takes a signed number for one
		if got := link.HostOf(s); ok && got != want && (got != "" || notAddress != nil) {
			t.Fatalf("%q leads to %q, and counts as %q", s, want, got)
		}
	})
}

// inBrowsers replaces what browsers, but not this parser, convert to ß.
func inBrowsers(s string) string {
	return regexp.MustCompile(`ẞ|(?i:%e1%ba%9e)`).ReplaceAllString(s, "ß")
}

// TestMemoryOfHosts checks how much memory 100,000 hosts take, which docs/architecture.md states.
func TestMemoryOfHosts(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	hosts := link.Hosts{}
	for i := range 100_000 {
		hosts[link.Host(fmt.Sprintf("%shost-%d.example", "a.name.of.usual.length."[:i%23],
			i))] = struct{}{}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if took := after.HeapAlloc - before.HeapAlloc; took > 8_000_000 {
		t.Errorf("%d hosts take %d bytes", len(hosts), took)
	}
	runtime.KeepAlive(hosts)
}

func BenchmarkHostsCover(b *testing.B) {
	hosts := link.Hosts{}
	for _, n := range []int{0, 10, 100_000} {
		for i := len(hosts); i < n; i++ {
			hosts[link.Host(fmt.Sprintf("host-%d.example", i))] = struct{}{}
		}
		for _, target := range append(targets, struct{ name, longURL string }{"address",
			"http://192.0.2.1/"},
			struct{ name, longURL string }{"127 labels", "https://" + strings.Repeat("a.", 125) +
				"com"}) {
			b.Run(fmt.Sprintf("%d hosts, %s", n, target.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if hosts.Cover(target.longURL) {
						b.Fatal("covered")
					}
				}
			})
		}
	}
}
