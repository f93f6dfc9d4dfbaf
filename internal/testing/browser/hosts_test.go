package browser

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"

	"tiney/internal/link"
)

// exceptions say where our host of a link and the browser's host of it may differ, one of them
// being empty. Either we refuse to make the link, or browsers refuse the URL and Location leads to
// the host that our checks use.
var exceptions = map[string]func(c rune, theirs string) bool{
	"symbols and spaces within other characters, which we refuse": func(_ rune,
		theirs string) bool {
		return strings.ContainsAny(theirs, "!\"#$%&'()*+,/:;<=>?@[\\]^_`{|}~")
	},
	"characters newer than our tables, which we refuse": func(c rune, _ string) bool {
		return unicode.Is(unicode.Cn, c)
	},
	"characters that Unicode 16 maps or ignores, and we refuse": func(c rune, _ string) bool {
		return unicode.Is(sinceUnicode16, c)
	},
	"Hebrew symbols in Latin, which browsers take in punycode only": func(c rune,
		theirs string) bool {
		return 0x2135 <= c && c <= 0x2138 && theirs == ""
	},
}

var sinceUnicode16 = &unicode.RangeTable{
	R16: []unicode.Range16{{0x04c0, 0x04c0, 1}, {0x10a0, 0x10c5, 1}, {0x115f, 0x1160, 1},
		{0x17b4, 0x17b5, 1}, {0x1806, 0x1806, 1}, {0x180e, 0x180e, 1}, {0x2061, 0x2063, 1},
		{0x206a, 0x206f, 1}, {0x2132, 0x2132, 1}, {0x2183, 0x2183, 1}, {0x3164, 0x3164, 1},
		{0xffa0, 0xffa0, 1}},
	R32: []unicode.Range32{{0x1d173, 0x1d17a, 1}, {0x2f868, 0x2f868, 1}, {0x2f874, 0x2f874, 1},
		{0x2f91f, 0x2f91f, 1}, {0x2f95f, 0x2f95f, 1}, {0x2f9bf, 0x2f9bf, 1}},
}

// hostOf is a JavaScript function. It returns the host of a URL, or "" if the URL is not valid.
const hostOf = `((url) => { try { return new URL(url).hostname } catch { return "" } })`

// hostsOf is a JavaScript function. For each character from one to another, it returns the hosts of
// two URLs that have the character within a label: one raw and one percent-encoded.
const hostsOf = `((from, to) => {
  const host = (label) => ` + hostOf + `("http://" + label + ".example");
  const hosts = [];
  for (let c = from; c < to; c++) {
    const raw = c < 0xd800 || c > 0xdfff ? String.fromCodePoint(c) : "";
    hosts.push(host("fu" + raw + "ball"), host("fu" + encodeURIComponent(raw) + "ball"));
  }
  return hosts.join(" "); // which is in no host
})`

// TestHostsAreThoseOfBrowsers checks hosts with every character. The host that a browser sees
// counts for blocked hosts, and Location must lead to it. Planes without characters are left out.
func TestHostsAreThoseOfBrowsers(t *testing.T) {
	base, err := link.ParseBase("https://tiney.to")
	if err != nil {
		t.Fatal(err)
	}
	rules := link.Rules{Base: base, DefaultTTL: time.Hour, MaxTTL: time.Hour}
	p := chromium.New(t)
	const batch = 0x8000
	for _, plane := range []rune{0, 1, 2, 3, 14} {
		for from := plane << 16; from < (plane+1)<<16; from += batch {
			call := fmt.Sprintf("%s(%d, %d)", hostsOf, from, from+batch)
			theirs := strings.Split(Eval[string](p, call), " ")
			if len(theirs) != 2*batch {
				t.Fatalf("%d hosts of %d characters", len(theirs), batch)
			}
			for i := range rune(batch) {
				c := from + i
				if c < 0x80 || unicode.Is(unicode.Cs, c) { // of ASCII, many end the host
					continue
				}
				raw := "http://fu" + string(c) + "ball.example"
				encoded := "http://fu" + url.QueryEscape(string(c)) + "ball.example"
				wantHost(t, rules, c, raw, theirs[2*i])
				wantHost(t, rules, c, encoded, theirs[2*i+1])
				// Location returns the other spelling or the browser's spelling for nearly all of
				// them. The browser resolves the few others.
				l := link.Location(raw)
				if l == "http://"+theirs[2*i] || l == encoded && theirs[2*i] == theirs[2*i+1] {
					continue
				}
				at := Eval[string](p, hostOf+"("+quote(l)+")")
				if at != theirs[2*i] && (theirs[2*i] != "" || at != string(link.HostOf(raw))) {
					t.Errorf("%U: Location(%q) = %q leads to %q, and the URL to %q",
						c, raw, l, at, theirs[2*i])
				}
			}
		}
	}
}

func wantHost(t *testing.T, rules link.Rules, c rune, longURL, theirs string) {
	ours := string(link.HostOf(longURL))
	if ours == theirs {
		return
	}
	_, err := rules.New(link.Wish{LongURL: longURL}, time.Now())
	if ours == "" && err == nil || ours != "" && theirs != "" {
		t.Errorf("%U: the host of %q is %q, and the browser's %q", c, longURL, ours, theirs)
		return
	}
	for _, is := range exceptions {
		if is(c, theirs) {
			return
		}
	}
	t.Errorf("%U: no exception: the host of %q is %q, and the browser's %q", c, longURL, ours,
		theirs)
}
