package link_test

import (
	"encoding/hex"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	whatwg "github.com/nlnwa/whatwg-url/url"

	"tiney/internal/link"
)

const both = link.ForwardQuery | link.ForwardPath

func TestTarget(t *testing.T) {
	for _, test := range []struct {
		longURL     string
		forward     link.Forward
		rest, query string
		want        string // "": nothing is there
	}{
		{"https://a.example", 0, "", "", "https://a.example"},
		{"https://a.example", 0, "", "q", "https://a.example"},
		{"https://a.example", 0, "/x", "", ""},
		{"https://a.example", link.ForwardQuery, "/x", "", ""},
		{"https://a.example", link.ForwardPath, "", "q", "https://a.example"},

		{"https://a.example", both, "", "q", "https://a.example?q"},
		{"https://a.example?", both, "", "q", "https://a.example?q"},
		{"https://a.example?a", both, "", "q", "https://a.example?a&q"},
		{"https://a.example?a&", both, "", "q", "https://a.example?a&q"},
		{"https://a.example?a", both, "", "", "https://a.example?a"},
		{"https://a.example?", both, "", "", "https://a.example?"},
		{"https://a.example#f", both, "", "q", "https://a.example?q#f"},
		{"https://a.example#f?a", both, "", "q", "https://a.example?q#f?a"},
		{"https://a.example/?a=1#f", both, "", "a=1&b=%zz+x", "https://a.example/?a=1&a=1&b=%zz+x#f"},
		{"https://a.example", both, "", "é#\"<>\\^`{|} \x7f\n'[]",
			"https://a.example?%C3%A9%23%22%3C%3E%5C%5E%60%7B%7C%7D%20%7F%0A'[]"},

		{"https://a.example", both, "/x", "", "https://a.example/x"},
		{"https://a.example/", both, "/x", "", "https://a.example/x"},
		{"https://a.example/p", both, "/x", "", "https://a.example/p/x"},
		{"https://a.example/p/", both, "/x", "", "https://a.example/p/x"},
		{"https://a.example/p//", both, "/x/", "", "https://a.example/p//x/"},
		{"https://a.example/p?a#f", both, "/x//y", "q", "https://a.example/p/x//y?a&q#f"},
		{"https://a.example?a/b", both, "/x", "", "https://a.example/x?a/b"},
		{"https://ü.example/ü", both, "/%2F%c3%BC;é", "", "https://ü.example/ü/%2F%c3%BC;%C3%A9"},
		{"https://a.example", both, "/a\\b|{}", "", "https://a.example/a%5Cb%7C%7B%7D"},
		{"https://a.example", both, "/@evil.example/%2F%5c;..a/%252fb%", "",
			"https://a.example/@evil.example/%2F%5c;..a/%252fb%"},
		{"https://a.example", both, "/...", "", "https://a.example/..."},
		{"https://a.example", both, "/..a/.well-known/a.", "", "https://a.example/..a/.well-known/a."},
		{"https://a.example", both, "/a;b=1;c/%2e%2e%2e/%25%2e2e", "",
			"https://a.example/a;b=1;c/%2e%2e%2e/%25%2e2e"},
		{"https://a.example", both, "/%25252e/..%2/..%zz/%c0%ae", "",
			"https://a.example/%25252e/..%2/..%zz/%c0%ae"},
		{"https://a.example", both, "//x", "", ""},
		{"https://a.example", both, "//", "", ""},
		{"https://a.example", both, "/.", "", ""},
		{"https://a.example", both, "/..", "", ""},
		{"https://a.example", both, "/x/../y", "", ""},
		{"https://a.example", both, "/x/%2e./y", "", ""},
		{"https://a.example", both, "/x/%2E%2e", "", ""},
		{"https://a.example", both, "/%2E/x", "", ""},
		{"https://a.example", both, "/..;/x", "", ""},
		{"https://a.example", both, "/..;a=b/x", "", ""},
		{"https://a.example", both, "/x;/../y", "", ""},
		{"https://a.example", both, "/x/..;", "", ""},
		{"https://a.example", both, "/x;..", "", ""},
		{"https://a.example", both, "/..%3b/x", "", ""},
		{"https://a.example", both, "/%2e%2e%3Ba/x", "", ""},
		{"https://a.example", both, "/..%2f", "", ""},
		{"https://a.example", both, "/..%2Fx", "", ""},
		{"https://a.example", both, "/x%2f..", "", ""},
		{"https://a.example", both, "/x%2f.%2fy", "", ""},
		{"https://a.example", both, "/..%5c", "", ""},
		{"https://a.example", both, "/..%5Cx", "", ""},
		{"https://a.example", both, "/..\\x", "", ""},
		{"https://a.example", both, "/x\\.", "", ""},
		{"https://a.example", both, "/%252e%252e/x", "", ""},
		{"https://a.example", both, "/%252E/x", "", ""},
		{"https://a.example", both, "/.%252e/x", "", ""},
		{"https://a.example", both, "/..%252fx", "", ""},
		{"https://a.example", both, "/..%255cx", "", ""},
		{"https://a.example", both, "/..%253bx", "", ""},
		{"https://a.example", both, "/%2%65%2%65/x", "", ""},
		{"https://a.example", both, "/x/%25%32e", "", ""},

		// What another program may have written is appended to only if it is a URL with a host.
		{"mailto:a@a.example", both, "", "subject=x", "mailto:a@a.example"},
		{"mailto:a@a.example", both, "/x", "", ""},
		{"https:a.example", both, "/x", "", ""},
		{"//a.example", both, "/x", "", ""},
	} {
		l := link.Link{LongURL: test.longURL, Forward: test.forward}
		got, ok := l.Target(test.rest, test.query)
		if got != test.want || ok != (test.want != "") {
			t.Errorf("%s (%v) with %s?%s leads to %q, %t, want %q", test.longURL,
				test.forward.Names(), test.rest, test.query, got, ok, test.want)
		}
	}
}

// unescapedTwice decodes percent-encoding twice, by a means of its own.
func unescapedTwice(s string) string {
	for range 2 {
		s = regexp.MustCompile(`%[0-9a-fA-F]{2}`).ReplaceAllStringFunc(s, func(code string) string {
			c, _ := hex.DecodeString(code[1:])
			return string(c)
		})
	}
	return s
}

// FuzzTarget: whatever follows an alias, a browser goes to the scheme and the host of the long URL,
// and to a path that begins with that of the long URL, also where a server decodes the rest twice
// or ends segments at other characters. What is sent is printable ASCII, and the rest as it came.
func FuzzTarget(f *testing.F) {
	for _, longURL := range []string{"https://a.example", "https://a.example/p/?a#f",
		"http://[::1]:8080/p?", "https://ü.example/ä", "HTTPS://A.example:443/%2e%2e/p//"} {
		for _, rest := range []string{"", "/", "/x", "//evil.example", "/..", "/x/%2e%2E/y",
			"/\\evil.example", "/@evil.example", "/%00", "/?x", "/#x", "/\t.", "/.\n./x", "/..;/x", "/..%2f", "/..%5c", "/%252e%252e/x", "/x\\..", "/a;.%253b"} {
			f.Add(longURL, rest, "a=1&b", byte(3))
			f.Add(longURL, rest, "#é\\", byte(2))
		}
	}
	r := rules(f, "https://tiney.to")
	dots := regexp.MustCompile(`(^|[/\\;])\.\.?([/\\;]|$)`)
	plain := regexp.MustCompile(`^[!$%&'()*+,./0-9:;=?@A-Z\[\]_a-z~-]*$`)
	f.Fuzz(func(t *testing.T, longURL, rest, query string, forward byte) {
		l, err := r.New(link.Wish{LongURL: longURL, Owner: "ann"}, now)
		if err != nil || len(rest) > 1000 || len(query) > 1000 ||
			rest != "" && (rest[0] != '/' || strings.Contains(rest, "?")) {
			return
		}
		l.Forward = link.Forward(forward & 3)
		to, ok := l.Target(rest, query)
		if !ok {
			if rest == "" || l.Forward&link.ForwardPath != 0 && strings.Trim(rest, "./%2eE") != "" &&
				!strings.HasPrefix(rest, "//") && !strings.Contains(rest, ".") &&
				!strings.Contains(unescapedTwice(rest), ".") {
				t.Fatalf("%q with %q leads nowhere", longURL, rest)
			}
			return
		}
		if dots.MatchString(unescapedTwice(rest)) {
			t.Fatalf("%q with %q leads to %q", longURL, rest, to)
		}
		if plain.MatchString(rest) && !strings.Contains(to, rest) {
			t.Fatalf("%q with %q leads to %q", longURL, rest, to)
		}
		location := link.Location(to)
		if strings.ContainsFunc(location, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
			t.Fatalf("the location is %q", location)
		}
		was, err := whatwg.Parse(link.Location(longURL))
		if err != nil {
			t.Fatal(err)
		}
		is, err := whatwg.Parse(location)
		if err != nil {
			t.Fatalf("%q with %q and %q: %v", longURL, rest, query, err)
		}
		if is.Protocol() != was.Protocol() || is.Host() != was.Host() ||
			is.Username() != was.Username() || is.Password() != was.Password() ||
			is.Hash() != was.Hash() ||
			!strings.HasPrefix(is.Pathname(), strings.TrimSuffix(was.Pathname(), "/")) ||
			!strings.HasPrefix(is.Search(), was.Search()) {
			t.Fatalf("%q with %q and %q leads to %q", longURL, rest, query, location)
		}
	})
}

func TestParseForward(t *testing.T) {
	for _, test := range []struct {
		names []string
		want  []string
		ok    bool
	}{
		{nil, []string{}, true},
		{[]string{"path", "query", "path"}, []string{"query", "path"}, true},
		{[]string{"path"}, []string{"path"}, true},
		{[]string{"Query", "PATH"}, []string{"query", "path"}, true},
		{[]string{"query "}, nil, false},
		{[]string{"query", ""}, nil, false},
	} {
		f, err := link.ParseForward(test.names)
		if (err == nil) != test.ok || test.ok && !slices.Equal(f.Names(), test.want) {
			t.Errorf("%q: %v, %v", test.names, f.Names(), err)
		}
	}
}

func TestForwardNeedsHTTP(t *testing.T) {
	r := rules(t, "https://tiney.to")
	r.ExtraSchemes = []string{"mailto"}
	invalid := func(err error) bool {
		var wrong *link.InvalidError
		return errors.As(err, &wrong) && wrong.Field == link.FieldForward
	}
	wish := link.Wish{LongURL: "mailto:a@a.example", Owner: "ann", Forward: []string{"query"}}
	if _, err := r.New(wish, now); !invalid(err) {
		t.Errorf("made: %v", err)
	}
	wish.LongURL = "https://a.example"
	l, err := r.New(wish, now)
	if err != nil || l.Forward != link.ForwardQuery {
		t.Fatalf("%+v, %v", l, err)
	}
	to := "mailto:a@a.example"
	if _, err := r.Edit(l, link.Patch{LongURL: &to}, link.Actor{Own: true}, now); !invalid(err) {
		t.Errorf("edited: %v", err)
	}
	if l, err := r.Edit(l, link.Patch{LongURL: &to, Forward: new([]string)}, link.Actor{Own: true}, now); err != nil ||
		l.Forward != 0 || l.LongURL != to {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := r.Import(link.Link{Name: "a", LongURL: to, Forward: both}, "", now); !invalid(err) {
		t.Errorf("imported: %v", err)
	}
	l.Shared = true
	if _, err := r.Edit(l, link.Patch{Forward: new([]string)}, link.Actor{Own: true}, now); !errors.Is(err,
		link.ErrShared) {
		t.Errorf("shared: %v", err)
	}
	if l, err := r.Edit(l, link.Patch{Forward: new([]string)}, link.Actor{Admin: true}, now); err != nil || l.Forward != 0 {
		t.Errorf("shared, by an admin: %v, %v", l.Forward, err)
	}
}
