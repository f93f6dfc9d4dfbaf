package link_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	whatwg "github.com/nlnwa/whatwg-url/url"

	"tiney/internal/link"
)

var now = time.Date(2026, 9, 1, 3, 15, 0, 999, time.UTC)

func rules(t testing.TB, base string) link.Rules {
	t.Helper()
	b, err := link.ParseBase(base)
	if err != nil {
		t.Fatal(err)
	}
	return link.Rules{Base: b, DefaultTTL: 30 * 24 * time.Hour, MaxTTL: 90 * 24 * time.Hour}
}

func TestLongURLsThatAreAccepted(t *testing.T) {
	for name, test := range map[string]struct{ longURL, location string }{
		"plain":                       {"https://example.com/page", ""},
		"http":                        {"http://example.com", ""},
		"scheme in capitals":          {"HtTpS://example.com/", ""},
		"host in capitals":            {"https://EXAMPLE.com/Path", ""},
		"port, query and fragment":    {"https://example.com:8443/a?b=c&d=%zz#e", ""},
		"query right after the host":  {"https://example.com?q", ""},
		"fragment right after host":   {"https://example.com#top", ""},
		"characters to be left alone": {`https://example.com/"<>{}|^'` + "`", ""},
		"dots and double slashes":     {"https://example.com//a/../b/./c", ""},
		"another URL in its path": {"https://web.archive.org/web/2020/http://user@example.com/",
			""},
		"an at sign in the path":    {"https://example.com/@user?x=a@b", ""},
		"loopback":                  {"http://127.0.0.1:3000/", ""},
		"private host of one label": {"http://intranet/wiki", ""},
		"private address":           {"http://10.0.0.1/", ""},
		"IPv6":                      {"http://[2001:db8::1]:8080/", ""},
		"underscore in the host":    {"http://a_b.example/", ""},
		"trailing dot":              {"https://example.com./", ""},
		"punycode":                  {"https://xn--bcher-kva.example/", ""},
		"non-ASCII host": {"https://bücher.example/",
			"https://xn--bcher-kva.example/"},
		"capital sharp s": {"https://fuẞball.example/ẞ",
			"https://xn--fuball-cta.example/%E1%BA%9E"},
		"capital sharp s, encoded": {"https://fu%E1%BA%9Eball.example/", ""},
		"non-ASCII host with a port": {"https://bücher.example:8080?q",
			"https://xn--bcher-kva.example:8080?q"},
		"non-ASCII path": {"https://example.com/ü/東京?q=é#ß",
			"https://example.com/%C3%BC/%E6%9D%B1%E4%BA%AC?q=%C3%A9#%C3%9F"},
		"non-ASCII everywhere": {"HTTPS://BÜCHER.example/ü%20%zz",
			"HTTPS://xn--bcher-kva.example/%C3%BC%20%zz"},
		"full-width host":       {"https://ｅｘａｍｐｌｅ.com/", "https://example.com/"},
		"ideographic full stop": {"https://example。com/", "https://example.com/"},
		"right-to-left mark in a path": {"https://example.com/\u200fa",
			"https://example.com/%E2%80%8Fa"},
		"the replacement character": {"https://example.com/\ufffd",
			"https://example.com/%EF%BF%BD"},
		"host that only begins like us": {"https://tiney.to.example.com/", ""},
		"host above us":                 {"https://to/", ""},
		"longest host":                  {"https://" + strings.Repeat("a.", 125) + "com/", ""},
		"longest host, and a dot":       {"https://" + strings.Repeat("a.", 125) + "com./", ""},
		"address in other notation":     {"http://0x7f.1:80/", ""},
		"emoji":                         {"https://💩.la/", "https://xn--ls8h.la/"},
		"emoji of several characters":   {"https://❤️.example/", "https://xn--qei.example/"},
		"middle dot in Catalan":         {"https://col·legi.cat/", "https://xn--collegi-xma.cat/"},
		"middle dot in Japanese": {"https://ア・イ.example/",
			"https://xn--ccke4x.example/"},
		"gershayim and geresh": {"https://צה״ל.co.il/צ׳", "https://xn--8dbq2a9c.co.il/%D7%A6%D7%B3"},
		"tsheg in Tibetan":     {"https://བོད་ལ.example/", "https://xn--nbd3loa8c0g.example/"},
		"its ASCII form":       {"https://xn--collegi-xma.cat/", ""},
		"hyphens":              {"https://a--b-c.example/", ""},
		"full-width hyphen and dot": {"https://ａ－ｂ．example/",
			"https://a-b.example/"},
		"half-width dots":         {"https://ア･イ｡example/", "https://xn--ccke4x.example/"},
		"symbols":                 {"https://a+b$c=d~e.example/", ""},
		"http below a name":       {"https://http.example/https//x", ""},
		"http as a part":          {"https://xhttps/http//x", ""},
		"http as a top level":     {"https://example.https/", ""},
		"two slashes in the path": {"https://example.com:80//x", ""},
		"colon without a port":    {"https://example.com:/x//", ""},
		"quotes behind the host":  {"https://example.com/“a”?q=‘b’#«c»", "https://example.com/%E2%80%9Ca%E2%80%9D?q=%E2%80%98b%E2%80%99#%C2%ABc%C2%BB"},
		"as long as can be": {"https://example.com/" +
			strings.Repeat("a", link.MaxLongURLBytes-20), ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := rules(t, "https://tiney.to").New(link.Wish{LongURL: test.longURL}, now)
			if err != nil {
				t.Fatalf("refused: %v", err)
			}
			if l.LongURL != test.longURL {
				t.Errorf("stored as %q, not as it was sent", l.LongURL)
			}
			want := test.location
			if want == "" {
				want = test.longURL
			}
			if got := link.Location(l.LongURL); got != want {
				t.Errorf("Location is %q, want %q", got, want)
			}
		})
	}
}

// No new, edited or imported link may lead to this service, by whatever name.
func TestOtherHostsOfOurs(t *testing.T) {
	r := rules(t, "https://tiney.to")
	r.OtherHosts = []link.Host{"site.azurewebsites.net", "bücher.example", "203.0.113.7"}
	r.OtherHosts[1], _ = link.ParseHost("BÜCHER.example")
	for longURL, ours := range map[string]bool{
		"https://site.azurewebsites.net/abc":          true,
		"http://Site.AzureWebsites.NET.:8443?x":       true,
		"https://ｓｉｔｅ.azurewebsites.net/":             true,
		"https://bücher.example/":                     true,
		"https://xn--bcher-kva.example:80/":           true,
		"http://0xcb.0x7107/":                         true,
		"https://tiney.to/":                           true,
		"https://other.azurewebsites.net/":            false,
		"https://scm.site.azurewebsites.net/":         false,
		"https://azurewebsites.net/":                  false,
		"https://example.com/site.azurewebsites.net/": false,
	} {
		there := link.Link{Name: "abc", LongURL: "https://example.com/", Owner: "o"}
		moved := there
		moved.LongURL = longURL
		_, made := r.New(link.Wish{LongURL: longURL}, now)
		_, edited := r.Edit(there, link.Patch{LongURL: &longURL}, link.Actor{Admin: true}, now)
		_, imported := r.Import(moved, "", now)
		for what, err := range map[string]error{"new": made, "edited": edited,
			"imported": imported} {
			if ours {
				wantInvalid(t, err, link.FieldLongURL)
			} else if err != nil {
				t.Errorf("%s, %s: %v", longURL, what, err)
			}
		}
	}
}

func TestLongURLsThatAreRefused(t *testing.T) {
	for name, longURL := range map[string]string{
		"empty":                  "",
		"no scheme":              "example.com",
		"scheme alone":           "https:",
		"no slashes":             "https:example.com",
		"one slash":              "https:/example.com",
		"three slashes":          "https:///example.com",
		"other scheme":           "ftp://example.com/",
		"script":                 "javascript:alert(1)",
		"script with slashes":    "javascript://example.com/%0aalert(1)",
		"data":                   "data:text/html,hi",
		"relative scheme":        "//example.com",
		"no host":                "https://",
		"no host, port":          "https://:80/",
		"a host of a dot":        "http://./",
		"no host, query":         "https://?q",
		"space in front":         " https://example.com",
		"space at the end":       "https://example.com ",
		"space in the path":      "https://example.com/a b",
		"newline":                "https://example.com/a\nb",
		"carriage return":        "https://example.com/a\r\nSet-Cookie: x",
		"tab in the scheme":      "ht\ttps://example.com",
		"NUL":                    "https://example.com/\x00",
		"DEL":                    "https://example.com/\x7f",
		"C1 control":             "https://example.com/\u0085",
		"no-break space":         "https://example.com/\u00a0",
		"line separator":         "https://example.com/\u2028",
		"ideographic space":      "https://example.com/\u3000",
		"backslash for slash":    `https:\\example.com`,
		"backslash in the path":  `https://example.com/a\b`,
		"user name":              "https://user@example.com/",
		"user name and password": "https://user:secret@example.com/",
		"empty user name":        "https://@example.com/",
		"IPv4 part out of range": "http://1.2.3.256/",
		"IPv4 part not octal":    "http://1.2.3.08",
		"forbidden in a host":    "http://a<b",
		"percent-encoded NUL":    "http://a%00b/",
		"percent-encoded slash":  "http://a%2fb/",
		"full-width slash":       "http://example.com／@tiney.to",
		"IPv6 not closed":        "http://[::1",
		"IPv6 in two brackets":   "http://[[::1]]/",
		"IPv6 with a zone":       "http://[fe80::1%25eth0]/",
		"port too large":         "http://example.com:65536/",
		"port not a number":      "http://example.com:http/",
		"bad punycode":           "https://xn--a/",
		"soft hyphen for a host": "https://\u00ad/",
		"not UTF-8":              "https://example.com/\xff",
		"signed address":         "http://-①/",
		"signed address, other":  "http://-2130706433\u2060/",
		"address in full width":  "http://１27.0.0.1/",
		"empty punycode label":   "https://z。xn--/",
		"empty punycode, first":  "http://XN--.ẞ/",
		"host too long":          "https://" + strings.Repeat("a.", 125) + "name/",
		"host too long to parse": "https://" + strings.Repeat("東", 1300),
		"too long": "https://example.com/" +
			strings.Repeat("a", link.MaxLongURLBytes-19),
		"too long once encoded":   "https://example.com/" + strings.Repeat("東", 1000),
		"ourselves":               "https://tiney.to/abc",
		"ourselves in capitals":   "HTTPS://TINEY.TO/abc",
		"ourselves over http":     "http://tiney.to",
		"ourselves, other port":   "https://tiney.to:8443/abc",
		"ourselves, trailing dot": "https://tiney.to./abc",
		"ourselves, full width":   "https://ｔｉｎｅｙ.to/abc",
		"ourselves, percent":      "https://t%69ney.to/abc",
		"ourselves, soft hyphen":  "https://ti\u00adney.to/abc",
		"ourselves, other dot":    "https://tiney。to/abc",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rules(t, "https://tiney.to").New(link.Wish{LongURL: longURL}, now)
			var invalid *link.InvalidError
			if !errors.As(err, &invalid) {
				t.Fatalf("got %v, want it refused", err)
			}
			if invalid.Field != link.FieldLongURL || invalid.Detail == "" {
				t.Errorf("got %+v", invalid)
			}
			if len(longURL) > 12 && strings.Contains(invalid.Error(), longURL[8:]) {
				t.Errorf("%q quotes the URL", invalid)
			}
		})
	}
}

// Marks that are pasted together with a URL are part of no host, in whatever spelling.
func TestMarksInHosts(t *testing.T) {
	for _, host := range []string{"“example.com”", "example.com”", "„example.com", "‘example.com’",
		"«example.com»", "example.com›", "'example.com'", "it's.example", "(example.com)",
		"example.com)", "{example.com}", "「example.com」", "（example.com）", "【example.com】",
		"example.com,", "example.com;", "example.com!", "example.com…", "example.com、",
		"example.com，b", "ex&ample.com", "*.example.com", "example.com—", "ex–ample.com",
		"ex‐ample.com", "ex־ample.com", "example.com\u2060”", "¿example.com", "example․com", "ex†ample.com",
		"example.com،", "example.com۔", "example।com", "ex%E2%80%9Cample.com", "%22example.com%22",
		"example.com%E2%80%A6", "ex%2Cample.com", "xn--https-hw3b", "xn--https-hw3b.example", "“[::1]”",
		"XN--HTTPS-HW3B.example", "“https", "example.com”:8080", "ｅxample．com；",
		"example.com`", "`example.com", "ex`ample.com", "example.com%60"} {
		for _, longURL := range []string{"https://" + host + "/", "HTTP://" + host, "https://" + host + "?“q”"} {
			_, err := rules(t, "https://tiney.to").New(link.Wish{LongURL: longURL, Owner: "ann"}, now)
			var invalid *link.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != link.FieldLongURL {
				t.Errorf("%s: %v", longURL, err)
			} else if !strings.Contains(invalid.Detail, "a mark that no domain can have (U+") &&
				!strings.Contains(invalid.Detail, "not valid for a browser") {
				t.Errorf("%s: %v", longURL, err)
			}
		}
	}
}

// A scheme that is there twice, or lacks its colon, is a host of its own.
func TestMistypedSchemes(t *testing.T) {
	for longURL, told := range map[string]bool{
		"https://https://example.com/": true, "https://http://example.com": true,
		"http://https://example.com/a": true, "http://http//example.com/a": true,
		"https://https//example.com/a": true, "HTTPS://HTTPS//example.com": true,
		"https://https/example.com": true, "https://https": true, "https://http?a": true,
		"https://https:443/": true, "https://http:/example.com": true, "https://https.//a.example": true,
		"https://ｈｔｔｐｓ//a.example": true, "https://h%74tps//a.example": true,
		"https://https:8443//a.example": true, "https://http./": true, "http://https.:80/": true,
		"https://ftp://example.com/": true, "https://mailto://ann@example.com": true,
		"https://example.com://a": true, "https://example.com.://a": true, "http://[::1]://a": true,
		"https://https：//example.com": false, "https://https;//example.com": false,
		"https://https%3A//example.com": false, "https://https:example.com": false,
		"https://://example.com": false, "https:https://example.com": false,
		"https//example.com": false, "https:://example.com": false, "htps://example.com": false,
		"ttps://example.com": false, "https;//example.com": false, "https:///https://a.example": false,
	} {
		_, err := rules(t, "https://tiney.to").New(link.Wish{LongURL: longURL, Owner: "ann"}, now)
		var invalid *link.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != link.FieldLongURL ||
			strings.Contains(invalid.Detail, "twice, or one without its colon") != told {
			t.Errorf("%s: %v", longURL, err)
		}
	}
}

// An address with another scheme is refused only for its scheme, whatever stands before its @.
func TestOtherSchemesAreToldSo(t *testing.T) {
	for _, longURL := range []string{"mailto:ann@example.com", "ftp://ann:secret@example.com/",
		"ann@example.com"} {
		_, err := rules(t, "https://tiney.to").New(link.Wish{LongURL: longURL}, now)
		var invalid *link.InvalidError
		if !errors.As(err, &invalid) ||
			invalid.Detail != "The URL must start with http:// or https://." {
			t.Errorf("%s: %v", longURL, err)
		}
	}
}

func TestOurselvesInEverySpelling(t *testing.T) {
	for base, longURL := range map[string]string{
		"https://bücher.example":         "https://xn--bcher-kva.example/a",
		"https://xn--bcher-kva.example/": "https://BÜCHER.example:1/a",
		"http://127.0.0.1:7071":          "http://0x7f.1/a",
		"http://[::1]:7071":              "http://[0:0:0:0:0:0:0:1]/a",
		"https://example.com./s":         "https://example.com/a",
		"https://fuẞball.example/s":      "https://fu%e1%ba%9eball.example/a",
		"https://fußball.example":        "https://FUẞBALL.example/a",
	} {
		if _, err := rules(t, base).New(link.Wish{LongURL: longURL}, now); err == nil {
			t.Errorf("base %s: %s is not recognised as the same host", base, longURL)
		}
	}
}

func TestLocationOfAnythingIsPrintableASCII(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "",
		"not a URL at all\r\n":    "not%20a%20URL%20at%20all%0D%0A",
		"http://ex ample.com/ü":   "http://ex%20ample.com/%C3%BC",
		"http://\xff\xfe/":        "http://%FF%FE/",
		"http://bü<cher.example/": "http://b%C3%BC<cher.example/",
		"mailto:ü@example.com":    "mailto:%C3%BC@example.com",
		// too long to be parsed
		"http://" + strings.Repeat("ü", 1300): "http://" + strings.Repeat("%C3%BC", 1300),
	} {
		if got := link.Location(in); got != want {
			t.Errorf("Location(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestASCII(t *testing.T) {
	for in, want := range map[string]string{
		"https://example.com/a":               "https://example.com/a",
		"HTTPS://Example.COM.:80/a":           "HTTPS://Example.COM.:80/a",
		"https://bücher.example:8080/ü":       "https://xn--bcher-kva.example:8080/%C3%BC",
		"https://evil%2eexample/":             "https://evil.example/",
		"https://example.com%2Eevil.example/": "https://example.com.evil.example/",
		"https://%65vil.example:81?q#%2e":     "https://evil.example:81?q#%2e",
		"https://b%C3%BCcher.example/%2e":     "https://xn--bcher-kva.example/%2e",
		"https://evil%E3%80%82example":        "https://evil.example",
		"http://2130706433/":                  "http://127.0.0.1/",
		"http://0x7f.1:80":                    "http://127.0.0.1:80",
		"http://[::FFFF:7f00:1]/":             "http://127.0.0.1/",
		"http://[2001:DB8:0::1]:80/":          "http://[2001:db8::1]:80/",
		"https://example.com@evil%2eexample/": "https://example.com@evil%2eexample/",
		"https://1.2.3.256/":                  "https://1.2.3.256/",
		"mailto:a%2eb@example.com":            "mailto:a%2eb@example.com",
		"not a URL%2e":                        "not%20a%20URL%2e",
	} {
		if got := link.ASCII(in); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
}

func FuzzLongURL(f *testing.F) {
	for _, seed := range []string{
		"https://example.com/page?q=1#x", "http://1.2.3.08", "http://a<b",
		"https://bücher.example:8080/ü", "http://[::1]:80/",
		"https://user:pass@example.com", "https://tiney。to", "http://0x7f.1/",
		"https://example.com／a", "http://xn--a/", "http://-1/", "http://1.2.3.+4/",
		"https://fuẞball.example", "https://%E1%bA%9E%E1/",
	} {
		f.Add(seed)
	}
	r := rules(f, "https://tiney.to")
	f.Fuzz(func(t *testing.T, longURL string) {
		location := link.Location(longURL)
		for i := range len(location) {
			if location[i] <= ' ' || location[i] >= 0x7f {
				t.Fatalf("Location(%q) = %q is not printable ASCII", longURL, location)
			}
		}
		l, err := r.New(link.Wish{LongURL: longURL}, now)
		if err != nil {
			return
		}
		if l.LongURL != longURL {
			t.Fatalf("%q is stored as %q", longURL, l.LongURL)
		}
		if len(location) > link.MaxLocationBytes {
			t.Fatalf("Location(%q) has %d bytes", longURL, len(location))
		}
		// A browser that follows the Location must reach the host that was checked.
		sent, err := whatwg.Parse(inBrowsers(longURL))
		if err != nil {
			t.Fatalf("%q is accepted but does not parse: %v", longURL, err)
		}
		followed, err := whatwg.Parse(inBrowsers(location))
		if err != nil {
			t.Fatalf("the Location %q of %q does not parse: %v", location, longURL, err)
		}
		if sent.Host() != followed.Host() || sent.Protocol() != followed.Protocol() {
			t.Fatalf("%q leads to %s, its Location %q to %s", longURL, sent.Host(), location,
				followed.Host())
		}
		if host := strings.TrimRight(followed.Hostname(), "."); host == "tiney.to" || host == "" {
			t.Fatalf("%q leads to %q", longURL, host)
		}
		if followed.Username() != "" || followed.Password() != "" {
			t.Fatalf("%q carries a user name", longURL)
		}
	})
}
