package browser

import (
	"bytes"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"
	"github.com/makiuchi-d/gozxing"
	"github.com/makiuchi-d/gozxing/qrcode"

	"tiney/internal/link"
)

// scan reads a QR code from a picture.
func scan(t *testing.T, picture []byte) string {
	t.Helper()
	img, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		t.Fatal(err)
	}
	bitmap, err := gozxing.NewBinaryBitmapFromImage(img)
	if err != nil {
		t.Fatal(err)
	}
	// A screenshot is neither turned nor bent. Without the hint, the reader looks for a code that
	// may be, and rarely finds a wrong one.
	result, err := qrcode.NewQRCodeReader().Decode(bitmap,
		map[gozxing.DecodeHintType]any{gozxing.DecodeHintType_PURE_BARCODE: true})
	if err != nil {
		t.Fatalf("it cannot be scanned: %v", err)
	}
	return result.GetText()
}

// look saves a picture of a page in the folder BROWSER_SHOTS, for people to look at.
func look(t *testing.T, p *Page, name string) {
	t.Helper()
	if dir := os.Getenv("BROWSER_SHOTS"); dir != "" {
		for _, dark := range []bool{true, false} {
			p.Dark(dark)
			file := filepath.Join(dir, name+map[bool]string{true: "-dark"}[dark]+".png")
			if err := os.WriteFile(file, p.Screen(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

const awaitPicture = `document.querySelector("#qr").complete && ` +
	`document.querySelector("#qr").naturalWidth > 0`

// The first page has little to load. Its main thread works for less than 200 ms until it takes
// input. This is the thread's own time. It is not parallel, since other tests make the caches of a
// processor cold, and a thread slow.
func TestFirstLoad(t *testing.T) {
	s := serveStored(t)
	for target, most := range map[string]struct {
		ready           string // the element that is visible once scripts have run
		requests, bytes int
	}{"/": {"#history", 4, 30 << 10}, "/manage": {"#signin", 10, 80 << 10}} {
		var p *Page
		var busy time.Duration
		for range 5 { // on a busy machine, a thread takes longer now and then
			p = chromium.Fresh(t)
			before := p.Busy()
			p.Open(s.url + target)
			p.AwaitTrue(find(most.ready) + ".checkVisibility()")
			if busy = p.Busy() - before; busy <= 200*time.Millisecond {
				break
			}
		}
		load := Eval[struct{ Requests, Bytes int }](p, `(() => {
			const all = [...performance.getEntriesByType("navigation"),
				...performance.getEntriesByType("resource")];
			return { requests: all.length,
				bytes: all.reduce((sum, e) => sum + e.decodedBodySize, 0) };
		})()`)
		t.Logf("%s: %+v, %v", target, load, busy)
		if load.Requests > most.requests || load.Requests < 3 || load.Bytes > most.bytes ||
			load.Bytes < 10<<10 || busy > 200*time.Millisecond || busy <= 0 {
			t.Errorf("%s takes %+v and %v", target, load, busy)
		}
	}
}

// Somebody shortens a URL with the keyboard alone, as soon as the page is open: they type a URL,
// press Enter, and press Enter again to copy.
func TestShorten(t *testing.T) {
	t.Parallel()
	s, p := serveStored(t), chromium.New(t)
	p.Open(s.url)
	p.AwaitTrue(`document.querySelector("#history").checkVisibility()`)
	p.Check("empty")
	look(t, p, "empty")

	target := httptest.NewServer(http.NotFoundHandler())
	defer target.Close()
	longURL := strings.Replace(target.URL, "127.0.0.1", "localhost", 1) +
		"/a/long/path?with=a&query#part"
	p.wantFocus("url")
	p.Press(longURL + kb.Enter)
	p.Await("#result", "Your short link")
	p.AwaitTrue(awaitPicture)
	p.Check("result")
	look(t, p, "result")
	short := s.url + "/" + Eval[string](p, `document.querySelector("#result").dataset.alias`)
	if got := p.Text("#short"); "http://"+got != short {
		t.Errorf("it shows %q", got)
	}
	if got := scan(t, p.Shot("#qr")); got != short {
		t.Errorf("the QR code says %q, want %q", got, short)
	}
	p.wantFocus("copy")
	p.Press(kb.Enter)
	p.Await("#toast", "Copied")
	if got := Eval[string](p, "navigator.clipboard.readText()"); got != short {
		t.Errorf("copied %q, want %q", got, short)
	}
	if status, location := s.status(t, strings.TrimPrefix(short, s.url)); status != 302 ||
		location != longURL {
		t.Errorf("it leads to %d %s", status, location)
	}
	for id, want := range map[string]string{"svg": "image/svg+xml", "png": "image/png"} {
		got := Eval[string](p, `fetch(document.querySelector("#`+id+
			`").href).then((r) => r.headers.get("Content-Type") + " " + document.querySelector("#`+
			id+`").download)`)
		if want += " " + strings.TrimPrefix(short, s.url+"/") + "." + id; got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}

	// Tab reaches all other controls too, in their visible order.
	var order []string
	Eval[any](p, `document.querySelector("#url").focus()`)
	for range 16 {
		order = append(order, p.Focused())
		p.Press(kb.Tab)
	}
	name := strings.TrimPrefix(short, "http://")
	want := fmt.Sprintf("url, shorten, alias, life, short, copy, preview, svg, png, %s, Copy "+
		"%[1]s, Delete %[1]s, Sign in, Bookmark button, Use the API", name)
	if got := strings.Join(order, ", "); !strings.HasPrefix(got, want) {
		t.Errorf("the order is %s, want %s", got, want)
	}

	p.Go(func() { p.Click("#preview") })
	if got := p.Text(".target"); got != longURL {
		t.Errorf("the preview shows %q", got)
	}
	if status := p.Go(func() { p.Click("main .primary") }); status != 404 ||
		Eval[string](p, "location.href") != longURL {
		t.Error("the preview does not lead there")
	}
}

// Every page says where links are kept in memory, and is as accessible as without.
func TestInMemory(t *testing.T) {
	t.Parallel()
	s, p := serve(t), chromium.New(t)
	for _, target := range []string{"/", "/manage", "/nothing"} {
		p.Open(s.url + target)
		p.Await("aside", "links are gone when it stops")
		p.AwaitTrue(`[...document.querySelectorAll("h1")].some((h) => h.checkVisibility())`)
		p.Check(target + " in memory")
	}
}

// A problem is described at its field, which gets the focus. Nothing typed is lost. It can be
// corrected and sent again.
func TestProblems(t *testing.T) {
	t.Parallel()
	s, p := serveStored(t), chromium.New(t)
	s.PutLink(link.Link{Name: "taken", LongURL: "https://example.com/other",
		ExpiresAt: time.Now().Add(time.Hour)})
	s.PutLink(link.Link{Name: "off", LongURL: "https://example.com/off", Disabled: true})
	p.Open(s.url)
	wrong := func(field, says string) {
		t.Helper()
		p.Await("#"+field+"-error", says)
		p.wantFocus(field)
		if !Eval[bool](p, find("#"+field)+`.ariaInvalid === "true" && `+find("#"+field)+
			`.getAttribute("aria-describedby") === "`+field+`-error"`) {
			t.Errorf("%s: the field does not say so", says)
		}
	}
	p.wantFocus("url")
	p.Press(kb.Enter)
	wrong("url", "Paste the long URL here first.")
	p.Press("http://1.2.3.08/")
	if got := p.Text("#url-error"); got != "" {
		t.Errorf("it still says %q", got)
	}
	p.Press(kb.Enter)
	wrong("url", "The URL is not valid for a browser")
	p.Fill("#url", "example.com/page")
	p.Fill("#alias", "not one")
	p.Press(kb.Enter)
	wrong("alias", "An alias has 1 to 100 of the characters")
	p.Fill("#alias", "taken")
	p.Press(kb.Enter)
	wrong("alias", "There is a link with this alias")
	p.Check("alias taken")
	look(t, p, "taken")
	p.Fill("#alias", "free")
	p.Press(kb.Enter)
	p.Await("#short", "/free")
	if _, location := s.status(t, "/free"); location != "https://example.com/page" {
		t.Errorf("it leads to %s", location)
	}
	p.Fill("#url", "https://example.com/off")
	p.Press(kb.Enter)
	wrong("url", "The link of this URL is disabled, so the URL gets no new one. Choose an alias")
	if got := p.Text("#result"); got != "" {
		t.Errorf("beside the error is %q", got)
	}
	p.Fill("#url", "mailto:ann@example.com")
	p.Press(kb.Enter)
	wrong("url", "The URL must start with http:// or https://.")
	p.Fill("#url", "example.com:8080/port")
	p.Press(kb.Enter)
	p.AwaitTrue(find("#long") + `.textContent === "https://example.com:8080/port"`)
}

// What is pasted around a URL goes, with scripts and without. What is mistyped is reported.
func TestPastedURLs(t *testing.T) {
	t.Parallel()
	s, p := serve(t), chromium.New(t)
	// As for the form without scripts.
	data, err := os.ReadFile("../../../functions/testdata/pasted.json")
	if err != nil {
		t.Fatal(err)
	}
	p.Open(s.url)
	p.wantFocus("url")
	if wrong := Eval[string](p, `import(document.querySelector("link[rel=modulepreload]").href.replace("page", "longurl"))`+
		`.then(({ complete }) => Object.entries(`+string(data)+`).filter(([text, want]) => `+
		`complete(text) !== want).map(([text]) => text + " becomes " + complete(text)).join("\n"))`); wrong != "" {
		t.Error(wrong)
	}
	hostile := strings.Repeat("(", 4000) + strings.Repeat(".", 4000)
	if got := Eval[string](p, `import(document.querySelector("link[rel=modulepreload]").href.replace("page", "longurl"))`+
		`.then(({ complete }) => complete("`+hostile+`"))`); got != "https://"+hostile[8:] {
		t.Errorf("%d characters are left", len(got)) // each mark takes as long as the rest
	}
	longest := strings.Repeat("a", link.MaxAliasLength)
	p.Fill("#url", "https://example.com/longest")
	p.Fill("#alias", longest)
	p.Press(kb.Enter)
	p.Await("#links", "/"+longest)
	for _, scripts := range []bool{true, false} {
		if !scripts {
			p.NoScripts()
		}
		for text, test := range map[string]struct{ field, want string }{
			"“https://example.com/p”":    {"long", "https://example.com/p"},
			"\u200b(example.com/A_(b)).": {"long", "https://example.com/A_(b)"},
			"https//example.com/a":       {"url-error", "The URL must start with http"},
			"https://https//example.com": {"url-error", "The URL has its scheme twice"},
			"https://“example.com”":      {"url-error", "The URL's host contains a mark"},
		} {
			p.Open(s.url)
			p.Fill("#url", text)
			p.Fill("#alias", fmt.Sprintf("“%d%t”", len(text), scripts))
			if submit := func() { p.Press(kb.Enter) }; scripts {
				submit()
			} else {
				p.Go(submit)
			}
			p.Await("#"+test.field, test.want)
			if test.field == "long" {
				if status, location := s.status(t, fmt.Sprintf("/%d%t", len(text), scripts)); status != 302 ||
					location != test.want {
					t.Errorf("%s, scripts %t: leads to %s", text, scripts, location)
				}
			} else if got := Eval[string](p, find("#url")+".value"); got != text {
				t.Errorf("%s, scripts %t: typed became %s", text, scripts, got)
			}
		}
	}
}

// A proxy may answer instead of the service. The page shows no part of such an answer as a link.
func TestResponsesOfSomebodyElse(t *testing.T) {
	t.Parallel()
	s := serve(t)
	key := s.keyOf(t, "ada")
	s.put(t, key, "mine", "")
	p := s.manage(t, key)
	p.openLink("mine")
	home := chromium.New(t)
	home.Open(s.url)
	home.wantFocus("url")
	home.Press("https://example.com/typed")
	p.Fill("#title", "typed")
	p.Agree(true) // to leave the page although something is typed
	for _, body := range []string{"", "{}", "null", `"text"`, "<p>Sign in to this network</p>"} {
		for _, page := range []*Page{p, home} {
			Eval[any](page, `void (window.fetch = async () => new Response(`+quote(body)+
				`, { status: 201 }))`)
		}
		home.Press(kb.Enter)
		home.Await("#problem", "Unreadable response")
		got := home.Value("#url") + home.Text("#result") + home.Text("#links")
		if got != "https://example.com/typed" {
			t.Errorf("%q: the page has %q", body, got)
		}
		home.Fill("#url", "https://example.com/typed")
		home.AwaitTrue(find("#problem") + `.innerText === ""`)
		p.Click("#save")
		p.Await("#form-problem", "Unreadable response")
		if got := p.Value("#title") + p.Text("#link-title"); got != "typedmine" {
			t.Errorf("%q: the page has %q", body, got)
		}
		p.GoTo("#/", "#list-problem", "Unreadable response")
		p.GoTo("#/link/mine", "#link-problem", "Unreadable response")
		Eval[any](p, "void location.reload()")
		p.AwaitTrue("Boolean(" + find("#link-edit") + "?.checkVisibility())")
		p.edit()
		p.AwaitTrue(find("#title") + `.value === ""`)
		p.Fill("#title", "typed")
	}
}

// Screen readers announce a status only if its element was there before the text.
func TestStatusesAreThereBeforeTheirTexts(t *testing.T) {
	t.Parallel()
	s, p := serve(t), chromium.New(t)
	for path, ready := range map[string]string{"/": "#history", "/manage": "#signin"} {
		p.Open(s.url + path)
		p.AwaitTrue(find(ready) + ".checkVisibility()")
		got := Eval[string](p, `[...document.querySelectorAll("[role=status]")]
			.filter((e) => !e.closest("[hidden]"))
			.map((e) => [e.id, e.textContent, e.checkVisibility(), e.offsetHeight].join())
			.join(" ")`)
		want := map[string]string{"/": "toast,,true,0",
			"/manage": "signin-says,,true,0 toast,,true,0"}[path]
		if got != want {
			t.Errorf("%s has %s, want %s", path, got, want)
		}
	}
}

// A browser can delete and restore its latest links. Nobody else can.
func TestHistory(t *testing.T) {
	t.Parallel()
	s, p := serve(t), chromium.New(t)
	p.Open(s.url)
	const longURL = "https://example.com/mine"
	shorten := func(longURL, title string) string {
		t.Helper()
		p.Fill("#url", longURL)
		p.Press(kb.Enter)
		p.Await("#result-title", title)
		p.AwaitTrue(`document.querySelector("#long").textContent === ` + quote(longURL))
		return Eval[string](p, `document.querySelector("#result").dataset.alias`)
	}
	alias := shorten(longURL, "Your short link")
	if again := shorten(longURL, "This URL had a link already"); again != alias {
		t.Errorf("the same URL got another link, %s", again)
	}
	p.Open(s.url) // it remembers
	p.Await("#links", "/"+alias)
	if n := Eval[int](p, `document.querySelectorAll("#links li").length`); n != 1 {
		t.Errorf("%d links are listed", n)
	}
	const row = "#links li:first-child "
	p.Click(row + `[data-part="delete"]`)
	p.Await(row, "Deleted")
	p.Check("deleted")
	look(t, p, "deleted")
	if status, _ := s.status(t, "/"+alias); status != 410 {
		t.Errorf("a deleted link responds with %d", status)
	}
	p.AwaitTrue(`document.activeElement.ariaLabel?.startsWith("Undo ")`)
	// After the next link and after a reload, it can still be restored. It cannot be taken over.
	other := shorten("https://example.com/next", "Your short link")
	p.Open(s.url + "/manage")
	p.wantFocus("key")
	p.Press(s.keyOf(t, "ada") + kb.Enter)
	p.Await("#claims-links", "/"+other)
	if got := p.Text("#claims-links"); strings.Contains(got, alias) {
		t.Errorf("it offers %s", got)
	}
	Eval[any](p, "void sessionStorage.clear()")
	p.Open(s.url)
	p.Await("#links", "Deleted")
	if got := p.Text("#links li:nth-child(2)"); !strings.Contains(got, alias) ||
		!strings.HasSuffix(got, "Undo") {
		t.Errorf("the second one is %s", got)
	}
	p.Click(`#links li:nth-child(2) [data-part="undo"]`)
	p.Await("#links li:nth-child(2)", "Until")
	if status, _ := s.status(t, "/"+alias); status != 302 {
		t.Errorf("a restored link responds with %d", status)
	}
	p.Open(s.url)
	p.Await("#links", "/"+alias)
	p.Click(`#links [aria-label$="/` + other + `"][data-part="delete"]`)
	p.Await(row, "Deleted")
	// It disappears from the list once it can no longer be restored.
	Eval[any](p, `localStorage.setItem("tiney.links",
		localStorage.getItem("tiney.links").replace(/("deletedAtUtc":")[^"]*/,
		(_, name) => name + new Date(Date.now() - 604_800_000).toISOString()))`)
	p.Open(s.url)
	p.Await("#links", "/"+alias)
	if got := p.Text("#links"); strings.Contains(got, other) {
		t.Errorf("listed are %s", got)
	}

	// Somebody else is given the link and cannot delete it. From then on, nobody can.
	second := chromium.New(t)
	second.Open(s.url)
	second.Press(longURL + kb.Enter)
	second.Await("#result-title", "This URL had a link already")
	if got := second.Text(row + `[data-part="delete"]`); got != "" ||
		second.Text(row+`[data-part="copy"]`) != "Copy" {
		t.Errorf("somebody else may %q", got)
	}
	p.Click(row + `[data-part="delete"]`)
	p.Await(row, "Others were given this link too")
	p.Check("shared")

	// The row of a link that is gone stays, without an undo, until the page is loaded again.
	Eval[any](p, `localStorage.setItem("tiney.links", JSON.stringify([
		{ alias: "nobody", shortUrl: location.origin + "/nobody",
		longUrl: "https://example.com/", expiresAtUtc: null,
		claimToken: "tnc_" + "0".repeat(43) },
		...Array.from({ length: 11 }, (_, i) => ({ alias: "a" + i,
		shortUrl: location.origin + "/a" + i, longUrl: "https://example.com/" + i,
		expiresAtUtc: null })),
		{ alias: "old", shortUrl: location.origin + "/old", longUrl: "https://example.com/old",
		expiresAtUtc: "2020-01-01T00:00:00Z" }, { alias: "<img>" }, null]))`)
	p.Open(s.url)
	p.Await("#more", "Show all 12")
	if n := Eval[int](p, `document.querySelectorAll("#links li").length`); n != 10 {
		t.Errorf("%d links are listed", n)
	}
	p.Click("#more")
	p.Await("#links", "/a10")
	// The focus is on the first of the added links.
	p.AwaitTrue(`document.activeElement.textContent.endsWith("/a9")`)
	p.Click(row + `[data-part="delete"]`)
	p.Await(row, "Deleted for good")
	if got := p.Text(row + ".actions"); got != "" {
		t.Errorf("a link that is gone can be %q", got)
	}
	p.Open(s.url)
	p.Await("#links", "/a0")
	if got := p.Text("#links"); strings.Contains(got, "/nobody") || strings.Contains(got, "/old") {
		t.Errorf("listed are %s", got)
	}
}

func TestStorageIsDown(t *testing.T) {
	t.Parallel()
	s, p := serveStored(t), chromium.New(t)
	p.Open(s.url)
	p.Fill("#url", "https://example.com/typed")
	p.Fill("#alias", "kept")
	s.down(true)
	Eval[any](p, `new MutationObserver(() => { window.wasBusy = true; })`+
		`.observe(document.querySelector("#shorten"), { attributeFilter: ["aria-busy"] }), null`)
	p.Press(kb.Enter)
	p.Await("#problem", "Try again in a moment")
	if !Eval[bool](p, `window.wasBusy && !document.querySelector("#shorten").ariaBusy`) {
		t.Error("the button does not show that it is at work, or still does")
	}
	p.Check("storage is down")
	look(t, p, "down")
	if got := Eval[string](p, `[document.querySelector("#url").value, `+
		`document.querySelector("#alias").value].join()`); got != "https://example.com/typed,kept" {
		t.Errorf("what was typed became %q", got)
	}
	p.Offline(true)
	p.Click("#shorten")
	p.Await("#problem", "You are offline")
	p.Offline(false)
	p.AwaitTrue(`document.querySelector("#problem").innerText === ""`)
	s.down(false)
	p.Click("#shorten")
	p.Await("#short", "/kept")

	s.down(true)
	if status := p.Open(s.url + "/unread"); status != 503 {
		t.Errorf("an alias that cannot be read is %d", status)
	}
	p.Check("503")
	look(t, p, "503")
	s.PutLink(link.Link{Name: "unread", LongURL: s.url + "/",
		ExpiresAt: time.Now().Add(time.Hour)})
	s.down(false)
	if status := p.Go(func() { p.Click("main .primary") }); status != 200 {
		t.Errorf("trying again leads to %d", status)
	}
	p.Await("h1", "Make a long link short")
}

// A client that sends too many requests sees when to try again. Typed text stays.
func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	s, p := serve(t, "RATE_SHORTEN_PER_MINUTE=1", "RATE_UNKNOWN_PER_MINUTE=1"), chromium.New(t)
	p.Open(s.url)
	p.Fill("#url", "https://example.com/first")
	p.Press(kb.Enter)
	p.Await("#result", "Your short link")
	p.Fill("#url", "https://example.com/second")
	p.Press(kb.Enter)
	p.Await("#problem", "repeat it in ")
	if got := p.Value("#url"); got != "https://example.com/second" {
		t.Errorf("what was typed became %q", got)
	}
	p.Check("too many requests")
	if first, second := p.Open(s.url+"/nobody"), p.Open(s.url+"/nobody-else"); first != 404 ||
		second != 429 {
		t.Errorf("got %d and %d", first, second)
	}
	p.Await("main", "repeat it in ")
	p.Check("429")
	look(t, p, "429")
}

func TestWithoutScripts(t *testing.T) {
	t.Parallel()
	s, p := serveStored(t), chromium.New(t)
	s.PutLink(link.Link{Name: "taken", LongURL: "https://example.com/other",
		ExpiresAt: time.Now().Add(time.Hour)})
	p.NoScripts()
	p.Open(s.url)
	if p.Text("#history") != "" || p.Text("#copy") != "" {
		t.Error("it shows what needs scripts")
	}
	p.Press("example.com/typed" + kb.Tab + kb.Tab + "taken")
	if status := p.Go(func() { p.Press(kb.Enter) }); status != 409 {
		t.Errorf("a taken alias is %d", status)
	}
	p.Check("alias taken, without scripts")
	look(t, p, "noscript-taken")
	if got := Eval[string](p, `document.querySelector("#url").value`); got != "example.com/typed" ||
		!strings.HasPrefix(p.Text("#alias-error"), "There is a link with this alias") {
		t.Errorf("what was typed became %q", got)
	}
	p.Fill("#alias", "free")
	if status := p.Go(func() { p.Press(kb.Enter) }); status != 201 {
		t.Errorf("a new link is %d", status)
	}
	p.AwaitTrue(awaitPicture)
	p.Check("result, without scripts")
	look(t, p, "noscript-result")
	if got := scan(t, p.Shot("#qr")); got != s.url+"/free" {
		t.Errorf("the QR code says %q", got)
	}
	if _, location := s.status(t, "/free"); location != "https://example.com/typed" ||
		p.Text("#copy") != "" {
		t.Errorf("it leads to %s", location)
	}
}

// No part of a URL is treated as markup, no matter who wrote it. No URL is too long, or in a script
// too unusual, for a narrow window.
func TestURLsAreText(t *testing.T) {
	t.Parallel()
	const markup = `<img/src="x"onerror="window.harmed=1"><script>window.harmed=1</script>`
	s, p := serveStored(t), chromium.New(t)
	p.Width(320)
	p.Open(s.url)
	p.Check("empty, narrow")
	look(t, p, "narrow-empty")
	for name, longURL := range map[string]string{
		"markup":        "https://example.com/" + markup,
		"right to left": "https://דוגמה.example/שלום/ניסיון?ערך=1&b=مثال",
		"long":          "https://example.com/" + strings.Repeat("x", 4000),
	} {
		p.Open(s.url)
		p.AwaitTrue(find("#history") + ".checkVisibility()")
		Eval[any](p, find("#url")+".value = "+quote(longURL)+"; "+find("#alias")+".focus()")
		p.Press(kb.Enter)
		p.Await("#result", "Your short link")
		p.AwaitTrue(awaitPicture)
		if got := Eval[string](p, `document.querySelector("#links .long").textContent + `+
			`document.querySelector("#long").textContent`); got != longURL+longURL {
			t.Errorf("%s: it shows %q", name, got)
		}
		p.Check(name + ", narrow")
		look(t, p, "narrow-"+strings.ReplaceAll(name, " ", "-"))
		p.Go(func() { p.Click("#preview") })
		if got := Eval[string](p, `document.querySelector(".target").textContent`); got != longURL {
			t.Errorf("%s: the preview shows %q", name, got)
		}
		p.Check("preview of " + name)
		look(t, p, "narrow-preview-"+strings.ReplaceAll(name, " ", "-"))
	}
	// Next are a row that another program wrote, and texts that another page stored.
	s.PutLink(link.Link{Name: "row", LongURL: `https://"><img src=x onerror="window.harmed=1">` +
		markup})
	p.Open(s.url + "/row+")
	p.Check("preview of a row by another program")
	Eval[any](p, `localStorage.setItem("tiney.links", JSON.stringify([{ alias: "x", shortUrl: `+
		`"https://x.example/" + `+quote(markup)+`, longUrl: `+quote(markup)+`, expiresAtUtc: null },
		{ alias: "y", shortUrl: "https://x.example/y", longUrl: "", expiresAtUtc: `+quote(markup)+` }]))`)
	p.Open(s.url)
	p.Await("#links", "<img")
	p.NoScripts()
	p.Open(s.url)
	p.Fill("#url", markup+" ")
	p.Fill("#alias", markup)
	p.Go(func() { p.Press(kb.Enter) })
	if got := Eval[string](p, find("#url")+".value"); got != markup {
		t.Errorf("typed was %q", got)
	}
	if Eval[bool](p, `"harmed" in window || document.querySelectorAll("img:not(#qr), `+
		`script:not([src])").length > 0`) {
		t.Error("a text became markup")
	}
}

// Browsers send no Sec-Fetch-Site if our site is not on https. Then the service tells our own forms
// from those of other sites by the origin.
func TestFormsOfOtherWebsites(t *testing.T) {
	t.Parallel()
	for name, host := range map[string]string{"a secure context": "127.0.0.1",
		"none": "tiney.test"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The service's address is known only after it has started.
			var service atomic.Pointer[httputil.ReverseProxy]
			front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				// The service responds without waiting for the body. Then a Go server drops the
				// rest, which ReverseProxy would still send.
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(bytes.NewReader(body))
				service.Load().ServeHTTP(w, r)
			}))
			defer front.Close()
			here := strings.Replace(front.URL, "127.0.0.1", host, 1)
			to, err := url.Parse(serve(t, "BaseUrl="+here).url)
			if err != nil {
				t.Fatal(err)
			}
			proxy := httputil.NewSingleHostReverseProxy(to)
			proxy.ModifyResponse = func(r *http.Response) error {
				// Outside of a secure context, Chromium logs an error about this header.
				r.Header.Del("Cross-Origin-Opener-Policy")
				return nil
			}
			service.Store(proxy)
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				_ *http.Request) {
				w.Header().Set("Content-Type", "text/html")
				fmt.Fprintf(w, `<title>other</title><form method="post" action="%s/"><input `+
					`name="longUrl" value="https://example.com/"><button>Go</button></form>`, here)
			}))
			defer other.Close()
			p := chromium.New(t)
			p.NoScripts()
			p.Open(strings.Replace(other.URL, "127.0.0.1", "evil.test", 1))
			if status := p.Go(func() { p.Click("button") }); status != 403 {
				t.Errorf("another website's form makes a %d", status)
			}
			p.Await("main", "Another website")
			p.Check("403")
			p.Open(here)
			p.Fill("#url", "https://example.com/form")
			if status := p.Go(func() { p.Press(kb.Enter) }); status != 201 {
				t.Errorf("our own makes a %d", status)
			}
		})
	}
}

func TestErrorPages(t *testing.T) {
	t.Parallel()
	s, p := serveStored(t), chromium.New(t)
	past := time.Now().Add(-time.Hour)
	for _, l := range []link.Link{
		{Name: "expired", LongURL: "https://example.com/", ExpiresAt: past},
		{Name: "disabled", LongURL: "https://example.com/1", Disabled: true},
		{Name: "deleted", LongURL: "https://example.com/2", DeletedAt: past},
		{Name: "live", LongURL: "https://example.com/3"},
	} {
		s.PutLink(l)
	}
	for target, want := range map[string]struct {
		status int
		says   string
	}{
		"/nobody":   {404, "No such link"},
		"/a/b/c":    {404, "No such link"},
		"/expired":  {410, "This link has expired"},
		"/expired+": {410, "This link has expired"},
		"/disabled": {410, "This link is disabled"},
		"/deleted":  {410, "This link has been deleted"},
		"/live+":    {200, "example.com"},
	} {
		if status := p.Open(s.url + target); status != want.status || p.Text("h1") != want.says {
			t.Errorf("%s: %d %s", target, status, p.Text("h1"))
		}
		p.Check(target)
		look(t, p, "page"+strings.ReplaceAll(target, "/", "-"))
		if want.status != 200 {
			p.Go(func() { p.Click(".button:last-child") })
			p.Await("h1", "Make a long link short")
		}
	}
}

// A proxy in front may add a path of its own before the service's path.
func TestBehindAPath(t *testing.T) {
	t.Parallel()
	var service atomic.Pointer[httputil.ReverseProxy]
	front := httptest.NewServer(http.StripPrefix("/go",
		http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			service.Load().ServeHTTP(w, r)
		})))
	t.Cleanup(front.Close)
	s, p := serve(t, "BaseUrl="+front.URL+"/go"), chromium.New(t)
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	service.Store(httputil.NewSingleHostReverseProxy(to))
	p.Open(front.URL + "/go/")
	p.Press("https://example.com/" + kb.Tab + kb.Tab + "mine" + kb.Enter)
	p.Await("#short", "/go/mine")
	p.AwaitTrue(awaitPicture)
	if got := scan(t, p.Shot("#qr")); got != front.URL+"/go/mine" {
		t.Errorf("the QR code says %q", got)
	}
	p.Go(func() { p.Click("#preview") })
	p.Await(".eyebrow", "leads to")
	styled := `document.styleSheets.length === 1 && document.styleSheets[0].cssRules.length > 50 ` +
		`&& [...document.images].every((i) => i.naturalWidth > 0)`
	p.AwaitTrue(styled)
	p.Open(front.URL + "/go/a/b/c")
	p.AwaitTrue(styled)
	p.Go(func() { p.Click(".button:not([hidden])") })
	p.Await("#links", "/go/mine")
}

func TestOwnersOnly(t *testing.T) {
	t.Parallel()
	s, p := serve(t, "SHORTEN_ACCESS=owners"), chromium.New(t)
	p.Open(s.url)
	p.Await("#members", "sign in")
	if p.Text("#form") != "" || p.Text("#history") != "" {
		t.Error("the form is shown to somebody who may not use it")
	}
	p.Check("owners only")
	look(t, p, "owners")
	// A signed-in user may use it until the session is over.
	Eval[any](p, `sessionStorage.setItem("tiney.credential", `+quote(adminKey)+`)`)
	p.Open(s.url)
	p.AwaitTrue(find("#form") + ".checkVisibility()")
	p.Fill("#url", "https://example.com/mine")
	p.Press(kb.Enter)
	p.Await("#result", "Never expires")
	p.Click(`#links [data-part="delete"]`)
	p.Await("#links", "Deleted")
	Eval[any](p, `sessionStorage.setItem("tiney.credential", "tny_expired")`)
	p.Fill("#url", "https://example.com/typed")
	p.Press(kb.Enter)
	p.Await("#problem", "Your session has ended, or your key is not valid any more. Sign in again.")
	if got := p.Text("#problem"); strings.Contains(got, "Bearer") {
		t.Errorf("people are told %q", got)
	}
	p.Check("the session is over")
	if got := Eval[string](p, find("#url")+".value"); got != "https://example.com/typed" {
		t.Errorf("what was typed became %q", got)
	}
}
