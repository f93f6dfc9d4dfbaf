package link_test

import (
	"strings"
	"testing"

	"tiney/internal/link"
)

func base(t testing.TB, raw string) link.Base {
	t.Helper()
	b, err := link.ParseBase(raw)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func withDomains(t testing.TB) link.Rules {
	r := rules(t, "https://tiney.to/s")
	r.Domains = map[link.Domain]link.Base{"go.example": base(t, "https://go.example"),
		"go.example:8080": base(t, "http://go.example:8080"), "[::1]:81": base(t, "http://[::1]:81")}
	return r
}

const maxNameLength = link.MaxAliasLength + len("@") + 253 + len(":65535")

func TestParseDomain(t *testing.T) {
	for spelled, want := range map[string]link.Domain{
		"go.example": "go.example", "Go.Example.": "go.example", "GO.EXAMPLE:443": "go.example",
		"go.example:80": "go.example", "go.example.:8080": "go.example:8080",
		"go.example:08080": "go.example:8080", "bücher.example": "xn--bcher-kva.example",
		"127.1": "127.0.0.1", "[0:0::1]:81": "[::1]:81", "localhost:7071": "localhost:7071",
		"": "", "go.example:": "", "go.example:0": "", "go.example:65536": "", "go.example:+1": "",
		"https://go.example": "", "go.example/": "", "a@go.example": "", "go.example:a": "",
		"go example": "", "*.example": "", "go.ex'ample": "", "::1": "", "a,b": "",
		strings.Repeat("a.", 127) + "a": "", strings.Repeat("a.", 126) + "a": link.Domain(
			strings.Repeat("a.", 126) + "a"),
	} {
		if got, ok := link.ParseDomain(spelled); ok != (want != "") || ok && got != want {
			t.Errorf("%q is %q, %t, want %q", spelled, got, ok, want)
		}
	}
}

// FuzzParseDomain: a domain is its own spelling, also as a Host header, and can be part of a name.
func FuzzParseDomain(f *testing.F) {
	for _, s := range []string{"Go.Example.:443", "[2001:DB8::1]:8080", "bücher.example", "1.2.3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spelled string) {
		d, ok := link.ParseDomain(spelled)
		if !ok {
			return
		}
		if again, ok := link.ParseDomain(string(d)); !ok || again != d || link.HostDomain(string(d)) != d {
			t.Fatalf("%q is %q, which is %q, %t, and as a Host %q", spelled, d, again, ok,
				link.HostDomain(string(d)))
		}
		name, ok := link.ParseName(string(d.Name("Abc")))
		if !ok || name.Alias() != "Abc" || name.Domain() != d || len(name) > maxNameLength ||
			name.Lower() != d.Name("abc") {
			t.Fatalf("%q has the name %q, %t", spelled, name, ok)
		}
	})
}

func TestHostDomain(t *testing.T) {
	for host, want := range map[string]link.Domain{
		"go.example": "go.example", "GO.example:443": "go.example", "go.example.": "go.example",
		"go.example.:80": "go.example", "Go.example.:8080": "go.example:8080", "[::1]:81": "[::1]:81",
		"[::1]": "[::1]", "": "", ":80": "",
	} {
		if got := link.HostDomain(host); got != want {
			t.Errorf("%q is %q, want %q", host, got, want)
		}
	}
}

// A key of Table Storage has at most 512 characters, and some rows have a name and up to 64 more.
func TestTheLongestNameFitsIntoAKey(t *testing.T) {
	longest := strings.Repeat("a", link.MaxAliasLength) + "@" + strings.Repeat("a.", 126) + "a:65535"
	if _, ok := link.ParseName(longest); !ok || len(longest) != maxNameLength ||
		len(longest) > 512-64 {
		t.Errorf("%d characters, %t", len(longest), ok)
	}
}

func TestNames(t *testing.T) {
	for s, want := range map[string]bool{"abc": true, "abc@go.example": true, "a@[::1]:81": true,
		"": false, "@go.example": false, "abc@": false, "abc@Go.example": false, "abc@a@b": false,
		"a/b@go.example": false, "abc@go example": false, "abc@a/b": false} {
		if n, ok := link.ParseName(s); ok != want || string(n) != s {
			t.Errorf("%q: %q, %t", s, n, ok)
		}
	}
	r := withDomains(t)
	for spelled, want := range map[string]link.Name{
		"abc": "abc", "abc@Go.Example": "abc@go.example", "abc@tiney.to:443": "abc",
		"abc@go.example:8080": "abc@go.example:8080", "abc@retired.example": "abc@retired.example",
		"api": "", "API@go.example": "", "abc@": "", "abc@a b": "", "abc@a@b": "", "": "",
	} {
		if got, ok := r.ParseName(spelled); got != want || ok != (want != "") {
			t.Errorf("%q is %q, %t, want %q", spelled, got, ok, want)
		}
	}
	for pasted, want := range map[string]link.Name{
		"https://tiney.to/s/abc": "abc", "go.example/abc": "abc@go.example",
		"https://GO.example:8080/abc": "abc@go.example:8080", "other.example/abc": "",
	} {
		if got, ok := r.NameOf(pasted); got != want || ok != (want != "") {
			t.Errorf("%q is %q, %t, want %q", pasted, got, ok, want)
		}
	}
	for name, want := range map[link.Name]string{
		"abc": "https://tiney.to/s/Abc", "abc@go.example": "https://go.example/Abc",
		"abc@go.example:8080":     "http://go.example:8080/Abc",
		"abc@retired.example:444": "https://retired.example:444/Abc",
	} {
		if got := r.ShortURL(link.Link{Name: name, Spelling: "Abc"}); got != want {
			t.Errorf("%q has the short URL %q, want %q", name, got, want)
		}
	}
}

func TestNoDomainIsATarget(t *testing.T) {
	r := withDomains(t)
	for _, url := range []string{"https://go.example/", "http://GO.example.:1234/x", "http://[::1]/"} {
		if _, err := r.New(link.Wish{LongURL: url, Owner: "ann"}, now); err == nil {
			t.Errorf("%s is a target", url)
		}
	}
	if _, err := r.New(link.Wish{LongURL: "https://below.go.example/"}, now); err != nil {
		t.Error(err)
	}
}

func TestAnyCase(t *testing.T) {
	r := withDomains(t)
	r.AnyCase = true
	alias := func(s string) *string { return &s }
	for _, test := range []struct {
		wish     link.Wish
		name     link.Name
		spelling link.Alias
	}{
		{link.Wish{Alias: alias("Docs")}, "docs", "Docs"},
		{link.Wish{Alias: alias("docs")}, "docs", ""},
		{link.Wish{Alias: alias("DoCS"), Domain: "go.example"}, "docs@go.example", "DoCS"},
		{link.Wish{Domain: "go.example"}, "@go.example", ""},
		{link.Wish{}, "", ""},
	} {
		test.wish.LongURL = "https://a.example/"
		l, err := r.New(test.wish, now)
		if err != nil || l.Name != test.name || l.Spelling != test.spelling {
			t.Errorf("%+v: %+v, %v", test.wish, l, err)
		}
		if test.name.Alias() != "" && l.Alias() != link.Alias(*test.wish.Alias) {
			t.Errorf("%q is shown as %q", *test.wish.Alias, l.Alias())
		}
	}
	for range 100 {
		a, err := link.NewAlias(strings.NewReader(strings.Repeat("Kz\xff09q!~x", 10)), 6, true)
		if err != nil || a != a.Lower() {
			t.Fatal(a, err)
		}
	}
	if _, ok := link.ParseAlias("\u212Aelvin"); ok { // it is a k to strings.ToLower
		t.Error("the Kelvin sign is a k")
	}
}

func TestExtraSchemes(t *testing.T) {
	r := withDomains(t)
	r.ExtraSchemes = []string{"mailto", "tel", "msteams", "ftp", "facetime", "ssh", "sip", "spotify",
		"obsidian", "slack", "zoommtg"}
	for url, want := range map[string]bool{
		"mailto:a@a.example": true, "MAILTO:a@a.example?subject=x": true, "tel:+123": true,
		"msteams://teams.example/l?x": true, "msteams:/l/x": true, "mailto:ü": true,
		"ftp://files.example/x": true, "ftp:files.example": false, "ftp:/go.example": false,
		"FTP:///files.example": false, "mailto:": false, "tel:/": false, "msteams://": false, "sms:1": false, "mailto": false,
		"mailto:?x": false, "mailto:#x": false, "mailto:?#a=b": false, "msteams:///?x": false,
		"mailto:?subject=x": true, "MAILTO:?subject=x&body=y#z": true, "msteams://?x=y": true,
		"mailto:a b": false, "mailto:a\\b": false, "mailto:\u0085": false, "javascript:1": false,
		"msteams://go.example/x": false, "msteams://TINEY.to:1/x": false,
		"msteams://ann@go.example": false, "msteams://a:b@tiney.to:22/x": false,
		"msteams:///go.example/": false, "msteams://g%6F.example.": false, "mailto://GO.example": false,
		"tel://[::1]": false, "ftp://ann:secret@go.example/": false, "ftp://go.example:x/": true,
		// Apps have rules of their own for what follows the scheme.
		"msteams://a:b@teams.example/": true, "msteams://" + strings.Repeat("a", 300) + "/": true,
		"tel://+15550100": true, "tel://*21#": true, "tel:*21*5550100#": true, "msteams://call": true,
		"facetime://ann@example.com": true, "facetime:ann@example.com": true,
		"ssh://git@host": true, "ssh://git@host:22/repo.git": true, "ssh://[fe80::1%25eth0]/": true,
		"ssh://-1": true, "ssh://host:70000": true, "ssh://“host”": true, "ssh://http//x": true,
		"mailto:ann@example.com,bob@example.com": true, "sip:ann@[2001:db8::1]": true,
		"spotify:track:4uLU6hMCjMI75M1A2tKUQC": true, "obsidian://open?vault=a&file=b": true,
		"slack://channel?team=T1&id=C1": true, "zoommtg://zoom.us/join?confno=1": true,
	} {
		if _, err := r.New(link.Wish{LongURL: url, Owner: "ann"}, now); (err == nil) != want {
			t.Errorf("%s, of an owner: %v", url, err)
		}
		if _, err := r.Import(link.Link{Name: "a", LongURL: url}, "", now); (err == nil) != want {
			t.Errorf("%s, imported: %v", url, err)
		}
		l := link.Link{Name: "a", LongURL: "https://a.example/"}
		if _, err := r.Edit(l, link.Patch{LongURL: &url}, link.Actor{Own: true}, now); (err == nil) != want {
			t.Errorf("%s, by an edit: %v", url, err)
		}
		if _, err := r.New(link.Wish{LongURL: url}, now); err == nil || strings.Contains(err.Error(),
			"mailto") {
			t.Errorf("%s, of nobody: %v", url, err)
		}
	}
	// A link whose scheme is not in the setting any more can be edited, but for its long URL.
	r.ExtraSchemes = nil
	l := link.Link{Name: "a", LongURL: "mailto:a@a.example"}
	title := "x"
	if _, err := r.Edit(l, link.Patch{LongURL: &l.LongURL, Title: &title}, link.Actor{Own: true}, now); err != nil {
		t.Error(err)
	}
}

func TestFallback(t *testing.T) {
	r := withDomains(t)
	for raw, wrong := range map[string]bool{
		"https://a.example/{alias}?d={domain}#{alias}": false, "https://a.example/{other}": true,
		"https://a.example/{Alias}": true, "https://a.example/?{}": true,
		"https://a.example/?{domain}{domains}": true, "https://a.example/%7Bother%7D": false,
		"https://a.example/{": true, "https://a.example/}": true,
		"https://a.example/{al{alias}ias}": true,
		"https://{alias}.example/":         true, "https://a.example:{domain}/": true, "{alias}": true,
		"https://go.example/{alias}": true, "https://tiney.to/": true, "mailto:a@a.example": true,
		"a.example": true, "https://a.example/ x": true,
		"https://a.example/" + strings.Repeat("{alias}", 81):   false,
		"https://a.example/" + strings.Repeat("{alias}", 82):   true,
		"https://a.example/?" + strings.Repeat("{domain}", 32): true,
	} {
		if _, err := r.ParseFallback(raw, true); (err != nil) != wrong {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if _, err := r.ParseFallback("https://a.example/{alias}", false); err == nil {
		t.Error("{alias} where none was asked for")
	}
	f, err := r.ParseFallback("https://ü.example/{alias}?{domain}&{alias}", true)
	if got := f.Location("A-b_", "go.example:8080"); err != nil ||
		got != "https://xn--tda.example/A-b_?go.example%3A8080&A-b_" {
		t.Errorf("%s, %v", got, err)
	}
	if got := f.Location("a/?#&%{domain}é", "[::1]"); got !=
		"https://xn--tda.example/a%2F%3F%23%26%25%7Bdomain%7D%C3%A9?%5B%3A%3A1%5D&"+
			"a%2F%3F%23%26%25%7Bdomain%7D%C3%A9" {
		t.Error(got)
	}
}
