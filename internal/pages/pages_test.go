package pages

import (
	"compress/gzip"
	"fmt"
	"html"
	"image/png"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

const hostile = `</title><script>alert("{{.Root}}")</script><img src=x onerror=alert(1)>&'`

var (
	site = Site{Name: "tiney", Base: "https://tiney.to", DefaultTTL: 30 * 24 * time.Hour,
		MaxTTL: 90 * 24 * time.Hour}
	example = Link{Alias: "abc", ShortURL: "https://tiney.to/abc", Name: "abc",
		LongURL: "https://example.com/", ASCII: "https://example.com/"}
)

// all returns every page in every state, with text in each place that takes a text from outside.
func all(text string) map[string][]byte {
	l := Link{Alias: "abc", ShortURL: "https://tiney.to/abc", LongURL: "https://" + text,
		ASCII: text}
	return map[string][]byte{
		"home":  site.Home(Form{}),
		"made":  site.Home(Form{Made: &l, New: true}),
		"found": site.Home(Form{Made: &l}),
		"wrong URL": site.Home(Form{LongURL: text, Alias: text, Lifetime: text, Title: "Wrong",
			Detail: text, Field: "longUrl"}),
		"wrong alias": site.Home(Form{LongURL: text, Alias: text, Title: "Wrong", Detail: text,
			Field: "alias"}),
		"wrong life": site.Home(Form{LongURL: text, Alias: text, Title: "Wrong", Detail: text,
			Field: "expiresInSeconds"}),
		"problem": site.Home(Form{LongURL: text, Title: text, Detail: text}),
		"owners only": Site{Base: "https://tiney.to", OwnersOnly: true, DefaultTTL: time.Hour,
			MaxTTL: time.Hour}.Home(Form{}),
		"preview": site.Preview("/abc+", l),
		"preview, host": site.Preview("/abc+/x", Link{Alias: "abc", ShortURL: "https://tiney.to/abc",
			LongURL: text}),
		"manage": site.Manage("/manage/", text, text, text),
		"404":    site.Problem("/a/b", 404, text, text, Offer{}),
		"offer": site.Problem("/abc", 404, text, text, Offer{Alias: "abc", Domain: text,
			Main: "https://tiney.to"}),
		"503":               site.Problem("/abc", 503, text, text, Offer{}),
		"an operator's own": Site{Name: text, Notice: text, Base: "https://tiney.to"}.Home(Form{}),
		"memory": Site{Base: "https://tiney.to", Memory: true}.Problem("/abc", 404, text, text,
			Offer{}),
	}
}

// wantAll checks that a page has all of these.
func wantAll(t *testing.T, page []byte, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(string(page), want) {
			t.Errorf("it lacks %s:\n%s", want, page)
		}
	}
}

var (
	element = regexp.MustCompile(`(?s)<!doctype html>|` +
		`</?([a-z][a-z0-9]*)((?:\s+[a-z-]+(?:="[^"<>]*")?)*)\s*>`)
	quoted = regexp.MustCompile(`"[^"]*"`)
	inline = regexp.MustCompile(`(?i)\s(?:on[a-z]+|style)=`)
)

// A page without its elements must be text only. So no text from outside can be an element, or
// break out of one.
func TestPagesHoldTextsEscaped(t *testing.T) {
	plain := all("example.com/x")
	for name, page := range all(hostile) {
		text, page := element.ReplaceAllString(string(page), ""), string(page)
		if strings.ContainsAny(text, "<>") {
			t.Errorf("%s: an element that is not one of ours, or is not closed, in\n%s", name, text)
		}
		if strings.Contains(strings.ReplaceAll(page, html.EscapeString(`"{{.Root}}"`), ""), "{{") {
			t.Errorf("%s: something is left to fill in\n%s", name, page)
		}
		if len(element.FindAllString(page, -1)) != len(element.FindAllString(string(plain[name]),
			-1)) {
			t.Errorf("%s: a text makes other elements of it:\n%s", name, page)
		}
		if inline.MatchString(quoted.ReplaceAllString(strings.Join(element.FindAllString(page, -1),
			""), "")) {
			t.Errorf("%s: it has an inline script or style", name)
		}
		if n := strings.Count(page, "<script"); strings.Contains(page, "<style") || n > 1 ||
			n == 1 && !regexp.MustCompile(
				`<script type="module" src="(\./manage/home|\.\./manage/manage)\.`).MatchString(
				page) {
			t.Errorf("%s: it has another style or script than its own", name)
		}
	}
	if escaped := html.EscapeString(hostile); !strings.Contains(string(all(hostile)["wrong URL"]),
		`value="`+escaped+`"`) ||
		!strings.Contains(string(all(hostile)["404"]), `<p class="lead">`+escaped+"</p>") {
		t.Error("a text is not what it was")
	}
}

// Only these attributes may take a text that somebody else may have chosen, because escaping does
// not make a URL or a script harmless.
func TestNamesInPagesStandWhereTextsAreHarmless(t *testing.T) {
	list, err := filepath.Glob("*.html")
	if err != nil || len(list) < 4 {
		t.Fatalf("the pages are %v (%v)", list, err)
	}
	attribute := regexp.MustCompile(`\s([a-z-]+)="([^"]*\{\{[^"]*)"`)
	names := regexp.MustCompile(`\{\{\.(\w+)\}\}`)
	// The root and the start come from the service, an alias has only letters, digits, - and _, a
	// name also a domain, and a short URL is the service's own. What was asked stands after an
	// alias, and the query in a fragment.
	safe := []string{"href Root", "href Start", "href Query", "href Alias", "href Asked",
		"href ResultAlias", "href Name", "href ResultName", "src Root", "src Name", "action Root",
		"action Name", "action Query", "href Again", "href ShortURL",
		"download Alias", "download ResultAlias", "value LongURL", "value Alias", "data-keep Keep",
		"data-base Base", "data-issuer Issuer", "data-client Client", "data-scopes Scopes",
		"data-default Default", "data-name Name", "data-domain Domain", "data-main Main", "data-schemes Schemes"}
	for _, name := range list {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range attribute.FindAllStringSubmatch(string(text), -1) {
			for _, in := range names.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(safe, m[1]+" "+in[1]) {
					t.Errorf("%s: %s", name, m[0])
				}
			}
		}
		if m := regexp.MustCompile(`=\s*'?\{\{`).FindString(string(text)); m != "" {
			t.Errorf("%s: a value without double quotes: %s", name, m)
		}
	}
}

func TestFilesArePlain(t *testing.T) {
	risky := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|` +
		`new Function|setAttribute\("on|https?://[a-z]|@import|url\(|javascript:`)
	for _, name := range assetNames {
		text := mustRead(name)
		if m := risky.FindString(text); m != "" && !strings.HasSuffix(name, ".html") &&
			(name != "bookmarklet.js" || m != "javascript:") { // the bookmarklet
			t.Errorf("%s has %s", name, m)
		}
		if strings.HasSuffix(name, ".html") && (inline.MatchString(text) ||
			strings.ContainsAny(element.ReplaceAllString(text, ""), "<>{}") ||
			regexp.MustCompile(`<(?:script|style|link|base|meta)|javascript:`).MatchString(text)) {
			t.Errorf("%s has more than elements that do nothing by themselves", name)
		}
		a, current, ok := AssetAt(hashed(name))
		bare := names.Replace(text)
		if strings.HasSuffix(name, ".js") { // without its comments
			bare = strings.Join(slices.DeleteFunc(strings.SplitAfter(bare, "\n"), func(line string) bool {
				text := strings.TrimSpace(line)
				return text == "" || strings.HasPrefix(text, "//")
			}), "")
		}
		if strings.HasSuffix(name, ".png") {
			bare = text
		}
		if !ok || !current || a.Type == "" || a.Body != bare {
			t.Errorf("%s is not at its name with a hash", name)
		}
		if r, err := gzip.NewReader(strings.NewReader(a.Gzip)); a.Gzip != "" {
			if plain, readErr := io.ReadAll(r); err != nil || readErr != nil || string(plain) != bare {
				t.Errorf("%s is another file when compressed: %v, %v", name, err, readErr)
			}
		} else if !strings.HasSuffix(name, ".png") {
			t.Errorf("%s is not compressed", name)
		}
		for _, m := range regexp.MustCompile(`(?:from |\()"\./([^"]+)"`).FindAllStringSubmatch(a.Body,
			-1) {
			if _, current, _ := AssetAt(m[1]); !current {
				t.Errorf("%s loads %s, which is not there", name, m[1])
			}
		}
	}
}

func TestFind(t *testing.T) {
	current := hashed("style.css")
	if !regexp.MustCompile(`^style\.[0-9a-f]{12}\.css$`).MatchString(current) {
		t.Errorf("the name is %s", current)
	}
	for name, want := range map[string][2]bool{ // current, found
		current:              {true, true},
		"style.0123abcd.css": {false, true}, // another build's
		"home.0123abcd.js":   {false, true},
		"style.css":          {},
		"style.x.js":         {},
		"home.html":          {},
		"":                   {},
		"a.b.c.d":            {},
	} {
		if _, current, ok := AssetAt(name); current != want[0] || ok != want[1] {
			t.Errorf("%q: current %t, found %t", name, current, ok)
		}
	}
}

// TestFirstLoadIsSmall adds up what a browser loads for a page: the page and the files that it
// names.
func TestFirstLoadIsSmall(t *testing.T) {
	for name, test := range map[string]struct {
		page            []byte
		least, requests int
		bytes           int
	}{
		"home": {site.Home(Form{}), 3, 4, 30_000},
		"manage": {site.Manage("/manage", "https://login.example.com", "tiney", "openid"), 5, 10,
			80_000},
	} {
		page := string(test.page)
		size, requests, zipped := len(page), 1, len(Gzip(page))
		for _, m := range regexp.MustCompile(`manage/([\w.]+\.(?:css|js))"`).FindAllStringSubmatch(
			page, -1) {
			a, current, ok := AssetAt(m[1])
			if !ok || !current {
				t.Errorf("%s: %s is not there", name, m[1])
			}
			size, requests, zipped = size+len(a.Body), requests+1, zipped+len(a.Gzip)
			for _, m := range regexp.MustCompile(`from "\./([^"]+)"`).FindAllStringSubmatch(a.Body,
				-1) {
				if !strings.Contains(page, m[1]) {
					t.Errorf("%s: the page does not name %s, which would be loaded late", name,
						m[1])
				}
			}
		}
		t.Logf("%s: %d bytes in %d requests, %d with gzip", name, size, requests, zipped)
		if size > test.bytes || zipped > 30_000 || requests > test.requests || requests < test.least {
			t.Errorf("%s: %d bytes in %d requests", name, size, requests)
		}
		if strings.Contains(page, `src="" `) || !strings.Contains(page, `rel="icon" href="data:`) {
			t.Errorf("%s: the page makes a browser ask for more", name)
		}
	}
}

func TestPolicyWith(t *testing.T) {
	if got := PolicyWith(); got != Policy {
		t.Errorf("with nothing more: %s", got)
	}
	want := strings.Replace(Policy, "connect-src 'self';",
		"connect-src 'self' https://a.example https://b.example:8443;", 1)
	if got := PolicyWith("https://a.example", "https://b.example:8443"); got != want ||
		got == Policy {
		t.Errorf("with two origins: %s", got)
	}
}

func TestRoot(t *testing.T) {
	for path, want := range map[string]string{"/": "./", "/abc+": "./", "/a/b": "../",
		"/a/b/": "../../", "/a%2Fb": "./", "*": "./", "": "./",
		strings.Repeat("/", 17): strings.Repeat("../", 16), strings.Repeat("/", 18): "/"} {
		if got := rootFrom(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestForm(t *testing.T) {
	wantAll(t, site.Home(Form{}), `<option value="">30 days</option>`+
		`<option value="3600">1 hour</option><option value="86400">1 day</option>`+
		`<option value="604800">7 days</option><option value="7776000">90 days</option></select>`,
		"curl https://tiney.to/api/shorten", ">tiney.to/</span>")
	short := Site{Base: "http://x", DefaultTTL: 90 * time.Minute, MaxTTL: 2 * time.Hour}
	if got := string(short.lifetimes(
		"3600")); got != `<option value="">90 minutes</option>`+
		`<option value="3600" selected>1 hour</option>` {
		t.Error(got)
	}
	if owners := string(all("")["owners only"]); !strings.Contains(owners,
		`aria-label="New short link" hidden>`) || strings.Contains(owners, `class="card" hidden>`) {
		t.Errorf("owners only: %s", owners)
	}
	wantAll(t, site.Home(Form{LongURL: "x", Alias: "a b", Title: "Wrong", Detail: "No spaces.",
		Field: "alias"}), `value="x"`, `value="a b"`,
		`aria-describedby="alias-error" aria-invalid="true" autofocus>`,
		`id="alias-error">No spaces.</p>`, `id="url-error"></p>`, `role="alert"></div>`)
}

// A page names the service, whatever else its title says.
func TestTitlesNameTheService(t *testing.T) {
	named := Site{Base: "https://go.example", Name: "Acme Links"}
	for title, page := range map[string][]byte{
		"Acme Links: short links":              named.Home(Form{}),
		"Your links – Acme Links":              named.Manage("/manage", "", "", ""),
		"Preview of go.example/a – Acme Links": named.Preview("/a+", Link{ShortURL: "https://go.example/a"}),
		"Not found – Acme Links":               named.Problem("/b", 404, "Not found", "", Offer{}),
	} {
		if !strings.Contains(string(page), "<title>"+title+"</title>") {
			t.Errorf("no title %q in %s", title, page)
		}
	}
}

func TestPreviewShowsTheHost(t *testing.T) {
	for longURL, want := range map[string]string{
		"https://example.com/a?b#c":                 "example.com",
		"http://[2001:db8::1]:8080?x":               "[2001:db8::1]:8080",
		"https://example.com":                       "example.com",
		"https://bank.example@evil.example/":        "evil.example", // a row of another program
		`https://a.example\@bank.example/`:          "a.example",
		"https://evil.example/https://bank.example": "evil.example",
		"nonsense": "",
	} {
		before, host, after := split(longURL)
		if host != want || before+host+after != longURL {
			t.Errorf("%s: %q %q %q", longURL, before, host, after)
		}
	}
	l := example
	l.Created, l.Expires = time.Date(2026, 11, 22, 3, 48, 36, 0, time.UTC),
		time.Date(2026, 11, 22, 4, 48, 36, 0, time.UTC)
	wantAll(t, site.Preview("/abc+", l), "22 November 2026, 03:48 UTC",
		"22 November 2026, 04:48 UTC", `<div hidden><dt>In ASCII`,
		"https://<strong><bdi dir=\"ltr\">example.com</bdi></strong>",
		`href="./abc" rel="noreferrer">Go there`, `src="./api/links/abc/qr"`,
		`<meta name="robots" content="noindex">`)
	l.Asked, l.Name = "/b?c=d", "abc@go.example"
	wantAll(t, site.Preview("/abc+/b", l), `href="../abc/b?c=d" rel`,
		`src="../api/links/abc@go.example/qr"`, `href="../manage"`)
	l.Expires, l.ASCII = time.Time{}, "https://xn--exmple-cua.com/"
	wantAll(t, site.Preview("/abc+", l), "<dd>never</dd>", "<div><dt>In ASCII</dt>")
}

func TestEveryPageSaysThatLinksGoWithTheService(t *testing.T) {
	memory := site
	memory.Memory = true
	pagesOf := func(s Site) []string {
		return []string{string(s.Home(Form{})), string(s.Manage("/manage", "", "", "")),
			string(s.Preview("/abc+", example)), string(s.Problem("/abc", 404, "", "", Offer{}))}
	}
	for i, page := range pagesOf(memory) {
		if !strings.Contains(page, string(inMemory)) ||
			strings.Contains(pagesOf(site)[i], string(inMemory)) {
			t.Errorf("not so: %s", page)
		}
	}
}

// A page of another domain than the default one, whose form makes links of that domain.
func TestOtherDomain(t *testing.T) {
	other := site
	other.Default, other.Domain, other.Base, other.Main = "tiney.to", "go.example:8080",
		"http://go.example:8080", "https://tiney.to"
	l := example
	l.Name = "abc@go.example:8080"
	wantAll(t, other.Home(Form{Made: &l}), `data-default="tiney.to" `+
		`data-domain="go.example:8080" data-main="https://tiney.to"`, ">go.example:8080/</span>",
		"curl http://go.example:8080/api/shorten",
		`{"domain": "go.example:8080",`,
		`src="api/links/abc@go.example:8080/qr"`, `href="api/links/abc@go.example:8080/qr?size=600"`)
}

func TestProblemOffersTheLink(t *testing.T) {
	for path, test := range map[string]struct {
		offer Offer
		want  string
	}{
		"/abc":  {Offer{Alias: "abc"}, `href="./manage#/new?alias=abc">Make this link`},
		"/abc/": {Offer{Alias: "abc"}, `href="../manage#/new?alias=abc">Make this link`},
		"/a-b": {Offer{Alias: "a-b", Domain: "go.example:8080", Main: "https://tiney.to/go"},
			`href="https://tiney.to/go/manage#/new?alias=a-b&amp;domain=go.example%3A8080">Make`},
		"/a/b": {Offer{}, ` hidden>Make this link`},
	} {
		wantAll(t, site.Problem(path, 404, "No such link", "Check it.", test.offer), test.want,
			`href="`+rootFrom(path)+`">Shorten a URL`)
	}
}

// In the operator's notice, URLs and mail addresses are links, and everything else is text.
func TestNotice(t *testing.T) {
	for text, want := range map[string]string{
		"":       "",
		"Be <b>": "Be &lt;b&gt;",
		"See https://example.com/a?b=1&c.": `See <a href="https://example.com/a?b=1&amp;c">` +
			"https://example.com/a?b=1&amp;c</a>.",
		"Run by us. Privacy policy: https://example.com/p, imprint: http://example.com": "Run by us. " +
			`<a href="https://example.com/p">Privacy policy</a>, ` +
			`<a href="http://example.com">imprint</a>`,
		"Mail: ann+x@example.com!":  `<a href="mailto:ann+x@example.com">Mail</a>!`,
		"javascript://example.com/": "javascript://example.com/",
		`a@b.c"><script>`:           `<a href="mailto:a@b.c">a@b.c</a>&#34;&gt;&lt;script&gt;`,
		"{{.Root}} x: https://e.example/{{.Name}}": `{{.<a href="https://e.example/{{.Name}}">` +
			"Root}} x</a>",
	} {
		if want != "" {
			want = `<footer class="quiet">` + want + "</footer>\n"
		}
		if got := string(notice(text)); got != want {
			t.Errorf("%q: got %s\nwant %s", text, got, want)
		}
	}
	own := site
	own.Name, own.Notice = "Go & Co", "Imprint: https://example.com/"
	for _, page := range [][]byte{own.Home(Form{}), own.Manage("/manage", "", "", ""),
		own.Preview("/abc+", example), own.Problem("/abc", 404, "", "", Offer{})} {
		if !strings.Contains(string(page), `<a href="https://example.com/">Imprint</a></footer>`) ||
			!strings.Contains(string(page), "Go &amp; Co<b>/</b>") || strings.Contains(string(page),
			"tiney<") {
			t.Errorf("not the operator's: %s", page)
		}
	}
}

func TestManifest(t *testing.T) {
	own := site
	own.Name = `Go "&" Co`
	for elsewhere, start := range map[bool]string{false: "../", true: "../manage"} {
		own.Elsewhere = elsewhere
		var m struct {
			Name  string `json:"name"`
			Scope string `json:"scope"`
			Start string `json:"start_url"`
			Icons []struct {
				Src   string `json:"src"`
				Sizes string `json:"sizes"`
			} `json:"icons"`
			Share struct {
				Action string            `json:"action"`
				Method string            `json:"method"`
				Params map[string]string `json:"params"`
			} `json:"share_target"`
		}
		if err := json.Unmarshal(own.Manifest(), &m); err != nil || m.Name != own.Name ||
			m.Start != start || m.Scope != "../" || m.Share.Action != start ||
			m.Share.Method != "GET" || len(m.Share.Params) != 3 || len(m.Icons) != 3 {
			t.Errorf("%s, %v", own.Manifest(), err)
		}
		for _, icon := range m.Icons {
			a, current, ok := AssetAt(icon.Src)
			config, err := png.DecodeConfig(strings.NewReader(a.Body))
			if !ok || !current || a.Type != "image/png" || err != nil ||
				fmt.Sprintf("%dx%[1]d", config.Width) != icon.Sizes {
				t.Errorf("%+v: %v, %+v, %v", icon, a.Type, config, err)
			}
		}
	}
}
