package browser

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/chromedp/chromedp/kb"

	"tiney/internal/testing/testutil"
)

// A long URL comes with the address, from a bookmarklet, or from an app that shares it.
func TestFilledInFromElsewhere(t *testing.T) {
	t.Parallel()
	s, p := serve(t), chromium.New(t)
	const long = "https://example.com/a?b=1&c=%20#d"
	for _, query := range []string{"?longUrl=", "#longUrl=", "?title=x&url=", "?text=Look:%20"} {
		p.Open(s.url + "/manage") // so that the next address is another page's
		p.Open(s.url + "/" + query + url.QueryEscape(long))
		p.AwaitTrue(find("#url") + ".value === " + quote(long) + ` && location.href === ` +
			quote(s.url+"/"))
	}
	p.Click("#drag summary")
	p.Await("#bookmarklet", "Shorten with tiney")
	p.Check("a bookmarklet")
	p.Click("#bookmarklet")
	p.Await("#toast", "Drag it to your bookmarks")
	code := Eval[string](p, find("#bookmarklet")+".href")
	if !strings.HasPrefix(code, "javascript:") || strings.Contains(code, "script src") {
		t.Errorf("the bookmarklet is %s", code)
	}
	opened := func(code string) string {
		text, err := url.PathUnescape(strings.TrimPrefix(code, "javascript:"))
		if err != nil {
			t.Fatal(err)
		}
		return Eval[string](p, `(() => { let to; const open = (url) => { to = url; }; `+text+
			`; return to; })()`)
	}
	if got := opened(code); got != s.url+"/#longUrl="+url.QueryEscape(s.url+"/") {
		t.Errorf("it opens %s", got)
	}
	// Nothing of the page's own address but its path is in the bookmarklet.
	for _, query := range []string{`?x=%22+(window.harmed=1)+%22`, `?x="+(window.harmed=1)+"`,
		`?x=%2522%2b(window.harmed=1)%2b%2522`, `?%27-(window.harmed=1)-%27#%22-(window.harmed=1)-%22`,
		`?x=%0awindow.harmed=1//`} {
		p.Open(s.url + "/manage")
		p.Open(s.url + "/" + query)
		p.Click("#drag summary")
		p.Await("#bookmarklet", "Shorten with tiney")
		if got := Eval[string](p, find("#bookmarklet")+".href"); got != code {
			t.Errorf("with %s it is %s", query, got)
		}
	}

	key := s.keyOf(t, "ada")
	m := s.manage(t, key)
	m.Open(s.url + "/manage?x=%22+(window.harmed=1)+%22#/new")
	m.AwaitTrue(find("#longUrl") + "?.checkVisibility()")
	m.Click("#drag summary")
	m.Await("#bookmarklet", "Shorten with tiney")
	withQuery := Eval[string](m, find("#bookmarklet")+".href")
	m.Open(s.url + "/manage")
	m.GoTo("#/new?alias=docs&title=The%20docs&longUrl="+url.QueryEscape(long), "#link-title", "New")
	m.AwaitTrue(find("#longUrl") + ".value === " + quote(long) + " && " + find("#title") +
		`.value === "The docs" && ` + find("#alias") + `.value === "docs"`)
	m.Click("#drag summary")
	m.Await("#bookmarklet", "Shorten with tiney")
	m.Check("a bookmarklet beside the form")
	if code = Eval[string](m, find("#bookmarklet")+".href"); code != withQuery {
		t.Errorf("with a query it is %s, without %s", withQuery, code)
	}
	for title, encoded := range map[string]string{"A & b": "A%20%26%20b", "half \\ud83d": "half%20%EF%BF%BD"} {
		Eval[any](p, `document.title = "`+title+`"`)
		if got, want := opened(code), s.url+"/manage#/new?longUrl="+url.QueryEscape(Eval[string](p,
			"location.href"))+"&title="+encoded; got != want {
			t.Errorf("it opens %s, want %s", got, want)
		}
	}
	m.Click("#save")
	m.Await("#link-short", "/docs")
	m.Open(s.url + "/manage?title=A&text=see+https://example.com/shared+there")
	m.AwaitTrue(find("#longUrl") + `?.value === "https://example.com/shared" && !location.search`)

	// A text that is shared has the URL in a sentence.
	for text, want := range map[string]string{
		"Look: https://example.com/a.": "https://example.com/a", "https://example.com/a?b=c, d": "https://example.com/a?b=c",
		"(https://example.com/a).": "https://example.com/a", "“https://example.com/a”!": "https://example.com/a",
		"https://en.wikipedia.org/wiki/A_(b).":          "https://en.wikipedia.org/wiki/A_(b)",
		"(see https://en.wikipedia.org/wiki/A_(b))":     "https://en.wikipedia.org/wiki/A_(b)",
		"HTTPS://EXAMPLE.com/A":                         "HTTPS://EXAMPLE.com/A",
		"more at www.example.com/a, and b":              "www.example.com/a",
		"Www.Example.com…":                              "Www.Example.com",
		"「https://example.com/あ」を見て":                    "https://example.com/あ",
		"看https://example.com/a。":                       "https://example.com/a",
		"<https://example.com/a>":                       "https://example.com/a",
		"https://example.com/a\u200b":                   "https://example.com/a",
		"*https://example.com/a*":                       "https://example.com/a",
		"https://example.com/a/":                        "https://example.com/a/",
		"http://[2001:db8::1]":                          "http://[2001:db8::1]",
		"[http://[2001:db8::1]]":                        "http://[2001:db8::1]",
		"https://example.com/a-_=&b#":                   "https://example.com/a-_=&b#",
		"https://example.com/a!? https://example.com/b": "https://example.com/a",
		"ann@www.example.com":                           "", "awww.example.com": "", "nothing": "", "": "", "https://": "", "https://.": "https://",
		"看www.example.com、": "www.example.com", "“www.example.com/a”b": "www.example.com/a",
	} {
		if got := Eval[string](m, `import([...document.querySelectorAll("link[rel=modulepreload]")][0]`+
			`.href.replace("page", "longurl")).then(({ given }) => given({ search: "?text=" + `+
			`encodeURIComponent(`+quote(text)+`), hash: "" }).longUrl)`); got != want {
			t.Errorf("%q has %q, want %q", text, got, want)
		}
	}
}

// An operator's name and notice are on the pages, and in the manifest of the installed app.
func TestOperatorsOwn(t *testing.T) {
	t.Parallel()
	s, p := serve(t, "SITE_NAME=Go & Co", "SITE_NOTICE=Imprint: https://example.com/imprint",
		"HOME_URL=https://example.com/"), chromium.New(t)
	p.Open(s.url + "/manage")
	p.AwaitTrue(`document.title === "Sign in – Go & Co"`)
	p.Await("footer", "Imprint")
	p.Check("an operator's own")
	got, err := testutil.Send("GET", s.url+"/manage/manifest.webmanifest", "")
	if err != nil || got.Status != 200 || !strings.Contains(got.Body, `"action":"../manage"`) ||
		!strings.Contains(got.Body, "Go & Co") ||
		got.Header.Get("Content-Type") != "application/manifest+json" {
		t.Errorf("the manifest is %+v, %v", got, err)
	}
	p.AwaitTrue(`fetch(document.querySelector("link[rel=manifest]").href).then((r) => r.ok)`)
}

// signedIn opens another tab of somebody who is signed in, at an address of /manage.
func (s *site) signedIn(t *testing.T, p *Page, hash string) *Page {
	t.Helper()
	tab := p.Tab(t)
	s.asksOthers(tab, hash)
	return tab
}

// asksOthers opens an address of /manage in a tab. The tab asks the others for the key, and waits
// for 300 ms. A busy machine may take longer, so it may ask again.
func (s *site) asksOthers(tab *Page, hash string) {
	tab.t.Helper()
	tries := 0
	testutil.Eventually(tab.t, "another tab is signed in", func() bool {
		tries++
		tab.Open(fmt.Sprintf("%s/manage?try=%d%s", s.url, tries, hash))
		tab.AwaitTrue(find("#who") + " || " + find("#key-form") + "?.checkVisibility()")
		return Eval[bool](tab, find("#who")+" !== null")
	})
}

// Where pages may not use the local storage, signing out signs out the other open tabs too.
func TestSignOutWithoutLocalStorage(t *testing.T) {
	t.Parallel()
	s := serve(t)
	key := s.keyOf(t, "ada")
	s.put(t, key, "mine", "")
	first := s.manage(t, key)
	second := s.signedIn(t, first, "")
	second.Await("#list-rows", "/mine")
	Eval[any](second, `void (Object.defineProperty(window, "localStorage", { get() { throw new Error("not allowed"); } }))`)
	second.Click("#sign-out")
	second.Await("#signin-says", "You are signed out")
	first.AwaitTrue(find("#key-form") + "?.checkVisibility()")
}

// A tab signs in a second one, and signing out of one signs out all.
func TestManageTabs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	key := s.keyOf(t, "ada")
	s.put(t, key, "mine", "")
	first := s.manage(t, key)
	second := s.signedIn(t, first, "")
	second.Await("#list-rows", "/mine")
	third := s.signedIn(t, first, "#/new")
	third.AwaitTrue(find("#longUrl") + "?.checkVisibility()")
	third.Fill("#longUrl", "https://example.com/typed")
	away, home := s.signedIn(t, first, ""), s.signedIn(t, first, "")
	for _, p := range []*Page{away, home} {
		p.Await("#list-rows", "/mine")
		p.Open(s.url + "/nobody")
	}
	second.Click("#sign-out")
	second.Await("#signin-says", "You are signed out")
	first.AwaitTrue(find("#key-form") + "?.checkVisibility()")
	if Eval[bool](first, `sessionStorage.getItem("tiney.credential") !== null`) {
		t.Error("a tab kept the key")
	}
	// A tab that was elsewhere meanwhile is signed out when it comes back, whatever page it opens.
	home.Open(s.url)
	if got := Eval[string](home, `import(performance.getEntriesByType("resource").map((e) => `+
		`e.name).find((name) => name.includes("/page."))).then((m) => `+
		`String(m.credential()))`); got != "null" {
		t.Errorf("another page of the service has %s", got)
	}
	away.Open(s.url + "/manage#/claims?mine=" + "tnc_" + strings.Repeat("a", 43))
	away.Await("#signin-says", "You are signed out")
	if got := Eval[string](away, `JSON.stringify(sessionStorage)`); strings.Contains(got, key) ||
		!strings.Contains(got, "tnc_a") {
		t.Errorf("a tab that was elsewhere has %s", got)
	}
	// What was typed in another tab stays.
	third.Await("#again", "Your session has ended")
	third.Press(key + kb.Enter)
	third.AwaitTrue("!" + find("#again") + ".open")
	if got := third.Value("#longUrl"); got != "https://example.com/typed" {
		t.Errorf("what was typed became %q", got)
	}
	third.Click("#save")
	third.Await("#toast", "Your link is ready")
	// A tab that was signed out asks nobody, not even when it is loaded again.
	second.Open(s.url + "/manage?again")
	second.AwaitTrue(find("#key-form") + "?.checkVisibility()")
	// A tab that signs in after that stays signed in.
	second.Press(key + kb.Enter)
	second.Await("#list-rows", "/mine")
	second.Open(s.url + "/manage?again")
	second.Await("#list-rows", "/mine")
	// Without another tab the form appears soon.
	alone := chromium.New(t)
	alone.Open(s.url + "/manage")
	alone.AwaitTrue(find("#key-form") + "?.checkVisibility()")
}

// A tab gives others its key only while it is visible, or was within a minute, and never the admin
// key.
func TestManageTellsOtherTabs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	const hide = `void (Object.defineProperty(document, "hidden", { configurable: true, ` +
		`value: true }), document.dispatchEvent(new Event("visibilitychange")))`
	// The clock of the page stands still, since a busy machine may take a minute for the tabs.
	const later = `void (Date.now = ((at) => () => at)(Date.now() + %d))`
	p := s.manage(t, s.keyOf(t, "ada"))
	other := p.Tab(t)
	signedIn := func(is bool) {
		t.Helper()
		if is {
			s.asksOthers(other, "")
		} else {
			other.Open(s.url + "/manage")
			other.AwaitTrue(find("#key-form") + "?.checkVisibility()")
		}
		other.Open(s.url + "/nobody") // it is a new tab again
		Eval[any](other, "void sessionStorage.clear()")
	}
	Eval[any](p, fmt.Sprintf(later, 0))
	signedIn(true)
	Eval[any](p, hide)
	signedIn(true)
	Eval[any](p, fmt.Sprintf(later, 45_000))
	signedIn(true)
	Eval[any](p, fmt.Sprintf(later, 15_001))
	signedIn(false)
	p = s.manage(t, adminKey)
	other = p.Tab(t)
	signedIn(false)
	Eval[any](p, hide)
	signedIn(false)
}

// A file of 2,500 links is checked, imported in parts, and exported again.
func TestManageImportAndExport(t *testing.T) {
	t.Parallel()
	s := serve(t)
	key := s.keyOf(t, "ada")
	var file strings.Builder
	file.WriteString("alias,longUrl,note\n")
	for i := range 2500 {
		switch {
		case i == 1500:
			file.WriteString("bad alias,https://example.com/,x\n")
		case i%100 == 0:
			fmt.Fprintf(&file, "n%d,https://example.com/%[1]d,\"two\nlines, \"\"quoted\"\"\"\n", i)
		default:
			fmt.Fprintf(&file, "n%d,https://example.com/%[1]d,plain\n", i)
		}
	}
	p := s.manage(t, key)
	p.GoTo("#/move", "#import-title", "Import")
	p.Check("import and export")
	look(t, p, "manage-import")
	p.Click("#import-check")
	p.Await("#import-wrong", "Choose a file, or paste its text")
	Eval[any](p, find("#import-text")+".value = "+quote(file.String()))
	Eval[any](p, `(() => { const real = fetch; let calls = 0; window.fetch = (url, options) => `+
		`String(url).includes("/api/import") && calls++ === 1 ? new Response(JSON.stringify({ type: `+
		`"/problems/rate-limited", title: "Too many", status: 429, detail: "Wait" }), { status: 429, `+
		`headers: { "Retry-After": "2" } }) : real(url, options); })()`)
	p.Click("#import-check")
	p.Await("#import-says", "It goes on in 2 seconds")
	p.Await("#import-says", "2,500 links checked: 2,499 would be made, 0 there already, 1 with a problem.")
	// Line breaks in quotes count: 15 records before it have two lines.
	p.Await("#import-rows", "1,517")
	p.Await("#import-rows", "Invalid alias")
	if got := p.Value("#import-format"); got != "csv" {
		t.Errorf("the format is %s", got)
	}
	p.Check("a checked file")
	look(t, p, "manage-import-checked")
	p.Click("#import-go")
	p.Await("#import-says", "2,500 links imported: 2,499 made, 0 there already, 1 with a problem.")
	Eval[any](p, `(() => { const make = URL.createObjectURL; URL.createObjectURL = (blob) => { `+
		`window.saved = blob; return make(blob); }; })()`)
	saved := func() string { return Eval[string](p, "window.saved.text()") }
	p.Click("#import-save")
	p.Await("#toast", "Saved as a file")
	if got := saved(); strings.Count(got, `"made"`) != 2499 || !strings.Contains(got, `"1517"`) {
		t.Errorf("the results are %.200s", got)
	}
	// Again, and stopped: what is left is said.
	Eval[any](p, `(() => { const real = fetch; window.fetch = async (url, options) => { if (`+
		`String(url).includes("/api/import")) `+find("#import-stop")+`.click(); return real(url, `+
		`options); }; })()`)
	p.Click("#import-check")
	p.Await("#import-says", "1,000 links checked: 0 would be made, 1,000 there already, 0 with a "+
		"problem. Left are the lines from 1,012 to 2,525.")

	p.Click("#export-go")
	p.Await("#export-says", "2,499 links exported.")
	if got := saved(); strings.Count(got, "https://example.com/") != 2499 ||
		strings.Count(got, "alias,") != 1 {
		t.Errorf("the export is %.200s", got)
	}
	p.choose("#export-format", "ndjson")
	p.GoTo("#/move?q=n1234", "#export-what", "q n1234")
	p.Click("#export-go")
	p.Await("#export-says", "1 link exported.")
	p.Width(320)
	p.Check("import and export, narrow")
	look(t, p, "manage-import-narrow")
}

// The table of results says what links lack, without being asked to show all lines. So does the
// file of the results.
func TestManageImportLeavesBehind(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := s.manage(t, s.keyOf(t, "ada"))
	p.GoTo("#/move", "#import-title", "Import")
	Eval[any](p, find("#import-text")+".value = "+quote(`{"links":[`+
		`{"slug":"s1","url":"https://example.com/1","password":"x","geo":{"EU":"https://example.com/eu"}},`+
		`{"slug":"s2","url":"https://example.com/2"}]}`))
	p.Click("#import-check")
	p.Await("#import-says", "2 links checked: 2 would be made, 0 there already, 0 with a problem. "+
		"1 link lacks something that the file has.")
	p.Await("#import-rows", "would be made; left behind: password, rules")
	if got := p.Text("#import-rows"); strings.Contains(got, "s2") {
		t.Errorf("the table has %q", got)
	}
	p.Click("#import-go")
	p.Await("#import-rows", "made; left behind: password, rules")
	Eval[any](p, `(() => { const make = URL.createObjectURL; URL.createObjectURL = (blob) => { `+
		`window.saved = blob; return make(blob); }; })()`)
	p.Click("#import-save")
	p.Await("#toast", "Saved as a file")
	if got := Eval[string](p, "window.saved.text()"); !strings.Contains(got,
		`"made; left behind: password, rules"`) {
		t.Errorf("the results are %s", got)
	}
	p.Width(320)
	p.Check("what is left behind, narrow")
}

// Files are read as they are on disk: in their encoding, page after page, and up to a line that was
// cut. A file that cannot be read says why, and one without a link says that.
func TestManageReadsFiles(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := s.manage(t, s.keyOf(t, "ada"))
	p.GoTo("#/move", "#import-title", "Import")
	wide := func(mark, text string, order binary.AppendByteOrder) string {
		b := []byte(mark)
		for _, unit := range utf16.Encode([]rune(text)) {
			b = order.AppendUint16(b, unit)
		}
		return string(b)
	}
	entry := func(alias string) string {
		return fmt.Sprintf(`{"address":%q,"target":"https://example.com/\"}{\"/%[1]s"}`, alias)
	}
	page := func(aliases ...string) string {
		for i, alias := range aliases {
			aliases[i] = entry(alias)
		}
		return `{"total":3,"limit":2,"data":[` + strings.Join(aliases, ",") + `]}`
	}
	const rows = "alias,longUrl,title\r\nü1,https://example.com/,\r\nb,https://example.com/ü,ü😽\r\n"
	const checked = "2 links checked: 1 would be made, 0 there already, 1 with a problem."
	many := func(n int) (text string) {
		for i := range n {
			text += page(fmt.Sprintf("m%d", 2*i), fmt.Sprintf("m%d", 2*i+1))
		}
		return text
	}
	for name, test := range map[string]struct{ file, says, wrong string }{
		"UTF-8":                 {rows, checked, ""},
		"UTF-8 with a mark":     {"\ufeff" + rows, checked, ""},
		"UTF-16, little-endian": {wide("\xff\xfe", rows, binary.LittleEndian), checked, ""},
		"UTF-16, big-endian":    {wide("\xfe\xff", rows, binary.BigEndian), checked, ""},
		"UTF-16 without a mark": {wide("", "alias,longUrl\na,b\n", binary.BigEndian), "",
			"without a byte order mark"},
		"Windows-1252": {"alias,longUrl\na,https://example.com/\xfc\n", "", `in Excel as "CSV UTF-8"`},
		"half a pair": {wide("\xff\xfe", rows, binary.LittleEndian) + "=\xd8\n\x00", "",
			"no text in UTF-8"},
		"half a unit": {wide("\xff\xfe", rows, binary.LittleEndian) + "a", "", "no text in UTF-8"},
		"a workbook":  {"PK\x03\x04\x14\x00\x08\x08\x08\x00\xb5\xef", "", "no text in UTF-8"},
		"joined":      {"\ufeff" + rows + "\ufeff" + rows, "4 links checked", ""},

		"a page":        {page("a", "b"), "2 links checked: 2 would be made", ""},
		"pages":         {page("a", "b") + page("c"), "3 links checked: 3 would be made", ""},
		"pages by line": {page("a", "b") + "\n" + page("c") + "\n", "3 links checked: 3", ""},
		"pages with marks": {"\ufeff" + page("a") + "\r\n\ufeff" + page("b", "c"),
			"3 links checked: 3", ""},
		"pages as lists":      {"[" + entry("a") + "] [" + entry("b") + "]", "2 links checked: 2", ""},
		"many pages":          {many(1100), "2,200 links checked: 2,200 would be made", ""},
		"pages, none of them": {page("a") + `{"error":"Too many"}` + page("b"), "", "in place of a page"},
		"no page":             {`{"error":"Too many"}`, "", "We don't recognise this file"},
		"no page, wide":       {"{\n\"error\":\"Too many\"}", "", "no list of links"},
		"half a page":         {page("a") + page("b")[:50], "", "cannot be read"},
		"Sink": {`{"version":"1.0","links":[{"url":"https://example.com/","slug":"s1"}]}`,
			"1 link checked: 1 would be made", ""},

		"hello":         {"hello world", "", "There is no link in this file."},
		"only names":    {"alias,longUrl\n", "", "There is no link in this file."},
		"empty":         {"", "", "There is no link in this file."},
		"an empty list": {`{"data":[]}{"data":[]}`, "", "There is no link in this file."},
		"another text":  {"hello\nworld\n", "", "We don't recognise this file"},
		"a cut line":    {"alias,longUrl,title\na,https://example.com/\nb,https://exa", checked, ""},
		"a quote that never ends": {"alias,longUrl,title\na,https://example.com/,\nb,\"https://e\nc,d\n",
			checked, ""},
	} {
		Eval[any](p, fmt.Sprintf(`(() => { const files = new DataTransfer(), input = %s; `+
			`files.items.add(new File([Uint8Array.from(atob("%s"), (c) => c.charCodeAt(0))], "a.txt")); `+
			`input.files = files.files; input.dispatchEvent(new Event("input", { bubbles: true })); `+
			`%s.textContent = ""; })()`, find("#import-file"),
			base64.StdEncoding.EncodeToString([]byte(test.file)), find("#import-says")))
		p.Click("#import-check")
		p.AwaitTrue(find("#import-progress") + ".hidden && (" + find("#import-wrong") +
			".textContent + " + find("#import-says") + ".textContent) !== ''")
		says, wrong := p.Text("#import-says"), p.Text("#import-wrong")
		if !strings.HasPrefix(says, test.says) || !strings.Contains(wrong, test.wrong) ||
			(says == "") != (test.says == "") || (wrong == "") != (test.wrong == "") {
			t.Errorf("%s: says %q, wrong %q", name, says, wrong)
		}
	}
}
