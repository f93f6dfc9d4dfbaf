package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"tiney/internal/testing/testutil"
)

// many returns a service with so many links of ada, the newest of which is number n-1. Every
// hundredth has the tag rare.
func many(t *testing.T, n int) (s *site, key string) {
	t.Helper()
	s = serve(t)
	key = s.keyOf(t, "ada")
	now := time.Now().UTC()
	for from := 0; from < n; from += 1000 {
		var file strings.Builder
		for i := from; i < min(n, from+1000); i++ {
			tags := `"site"`
			if i%100 == 0 {
				tags += `,"rare"`
			}
			fmt.Fprintf(&file, `{"alias":"n%04d","longUrl":"https://example.com/page/%d",`+
				`"title":"Page number %[2]d","tags":[%s],"createdAtUtc":%q}`+"\n", i, i, tags,
				now.Add(time.Duration(i-n)*time.Minute).Format(time.RFC3339))
		}
		s.as(t, key, "POST", "/api/import", file.String())
	}
	return s, key
}

// shown returns the aliases of the rows of the list.
func (p *Page) shown() []string {
	p.t.Helper()
	return strings.Fields(Eval[string](p, `[...document.querySelectorAll("#list-rows .what > a")]`+
		`.map((a) => a.textContent.split("/")[1]).join(" ")`))
}

// visible returns how many rows are on the screen as a whole.
func (p *Page) visible() int {
	p.t.Helper()
	return Eval[int](p, `[...document.querySelectorAll("#list-rows li")].filter((li) => `+
		`li.getBoundingClientRect().bottom <= innerHeight).length`)
}

func TestManageListOfThousands(t *testing.T) {
	t.Parallel()
	s, key := many(t, 5000)
	p := s.manage(t, key)
	p.Await("#list-count", " links")
	p.Size(1280, 850)
	if n := p.visible(); n < 12 {
		t.Errorf("%d rows on a large screen", n)
	}
	p.Check("a long list")
	look(t, p, "manage-long-list")
	p.Size(390, 844)
	if n := p.visible(); n < 6 {
		t.Errorf("%d rows on a phone", n)
	}
	p.Check("a long list on a phone")
	look(t, p, "manage-long-list-phone")
	p.Click(`#list-rows li:nth-child(2) [data-do="menu"]`)
	p.Await("#list-rows .open .menu", "QR code")
	p.Check("the menu of a row")
	look(t, p, "manage-row-menu")
	p.Press(kb.Escape)
	p.AwaitTrue(`!document.querySelector("#list-rows .open") && document.activeElement.matches(` +
		`"#list-rows li:nth-child(2) [data-do=menu]")`)
	p.Size(1280, 850)

	// It goes on by itself.
	for range 3 {
		before := len(p.shown())
		Eval[any](p, "scrollTo(0, document.body.scrollHeight)")
		p.AwaitTrue(fmt.Sprintf(`document.querySelectorAll("#list-rows li").length > %d`, before))
	}
	// A link is found by words, in one look.
	p.Fill("#q", "number 1234")
	p.Await("#list-count", "1 match")
	if got := fmt.Sprint(p.shown()); got != "[n1234]" {
		t.Errorf("found %s", got)
	}
	p.Fill("#q", strings.TrimPrefix(s.url, "http://")+"/n4321")
	testutil.Eventually(t, "a short URL is found", func() bool {
		return fmt.Sprint(p.shown()) == "[n4321]"
	})
	// A short page goes on until it has enough.
	p.Fill("#q", "")
	p.Fill("#tag", "RARE, site")
	p.AwaitTrue(`document.querySelectorAll("#list-rows li").length >= 50`)
	p.Await("#list-count", "matches")
	if hash := Eval[string](p, "location.hash"); !strings.Contains(hash, "tag=RARE&tag=site") {
		t.Errorf("the address is %s", hash)
	}
	p.GoTo("#/?tag=rare", "#list-count", "50 matches")
	p.AwaitTrue(`document.querySelectorAll("#known-tags option").length === 2`)
	p.Fill("#tag", "rare, s")
	p.AwaitTrue(`[...document.querySelectorAll("#known-tags option")].some((o) => ` +
		`o.value === "rare, site")`)
	p.GoTo("#/?tag=rare", "#list-count", "50 matches")

	// Somebody stops a search that finds nothing.
	Eval[any](p, `(() => { const real = fetch; let calls = 0; window.fetch = async (url, options) => `+
		`{ if (String(url).includes("/api/links?") && ++calls > 1) await new Promise((go) => `+
		`{ window.goOn = go; }); return real(url, options); }; })()`)
	p.Fill("#q", "nothing")
	p.Await("#list-count", "0 found, 1,000 searched…")
	p.Check("a search that goes on")
	p.Click("#list-stop")
	Eval[any](p, "goOn()")
	p.Await("#list-more", "Search on")
	p.AwaitTrue(find("#list-more") + " === document.activeElement")
	p.Await("#list-count", "2,000 searched")
}

// A tick and a key press take little longer beside thousands of rows than beside 50. The least of
// several times is compared, and not with a clock, since a busy machine is slow now and then.
func TestManyRowsAreQuick(t *testing.T) {
	const rows = 2000
	s, key := many(t, rows)
	p := s.manage(t, key)
	p.Size(390, 844)
	loaded := `document.querySelectorAll("#list-rows li").length`
	least := func(does func()) (least time.Duration) {
		for n := range 20 {
			before := p.Busy()
			does()
			p.drawn()
			if took := p.Busy() - before; n == 0 || took < least {
				least = took
			}
		}
		return least
	}
	measure := func() (tick, press time.Duration) {
		p.to("#list-rows [data-part=pick]")
		p.Press(" ")
		p.Await("#picked-count", "1 link selected") // what it needs is loaded
		p.to("#list-rows li:nth-child(3) [data-part=pick]")
		tick = least(func() { p.Press(" ") })
		p.openLink("n0003")
		p.Await("#stats-body", "No clicks")
		p.to("#title")
		press = least(func() { p.Press("a") })
		p.Click("#discard")
		p.GoTo("#/", "#list-count", " links")
		return tick, press
	}
	tick, press := measure()
	testutil.Eventually(t, "all rows are loaded", func() bool {
		Eval[any](p, "scrollTo(0, document.body.scrollHeight)")
		p.drawn()
		return Eval[int](p, loaded) == rows
	})
	Eval[any](p, "scrollTo(0, 0)")
	ticks, presses := measure()
	if n := Eval[int](p, loaded); n != rows {
		t.Errorf("%d rows are there afterwards", n)
	}
	t.Logf("a tick takes %v and %v, a key press %v and %v", tick, ticks, press, presses)
	if ticks > 3*tick {
		t.Errorf("a tick takes %v, and %v with %d rows", tick, ticks, rows)
	}
	if presses > press*3/2 {
		t.Errorf("a key press takes %v, and %v with %d rows", press, presses, rows)
	}
}

// The links with the most clicks are an order of the list.
func TestManageListByClicks(t *testing.T) {
	t.Parallel()
	s := serve(t, "CLICKS_FLUSH_SECONDS=1")
	key := s.keyOf(t, "ada")
	s.put(t, key, "older", `,"tags":["a"],"expiresInSeconds":86400`)
	s.put(t, key, "newer", "")
	s.visit(t, "older", firefox, "")
	testutil.Eventually(t, "the click is counted", func() bool {
		return s.as(t, key, "GET", "/api/links/older/stats", "")["clicks"] == 1.0
	})
	p := s.manage(t, key)
	p.Fill("#q", "new")
	p.Await("#list-count", "1 match")
	p.choose("#order", "7d")
	p.AwaitTrue(find("#list-rows .clicks") + `.textContent === "0 clicks"`)
	if got := fmt.Sprint(p.shown()); got != "[newer]" {
		t.Errorf("by clicks, filtered: %s", got)
	}
	p.Fill("#q", "")
	p.Await("#list-count", "The 1 link with the most clicks, counted")
	if got := fmt.Sprint(p.shown()); got != "[older]" {
		t.Errorf("by clicks: %s", got)
	}
	p.AwaitTrue(find("#list-rows .clicks") + `.textContent === "1 click"`)
	p.Check("top links")
	look(t, p, "manage-top")
	p.Fill("#q", "new")
	p.choose("#order", "")
	p.AwaitTrue(find("#list-count") + `.textContent === "1 match"`)
	if got := fmt.Sprint(p.shown()); got != "[newer]" {
		t.Errorf("by age: %s", got)
	}
	// Other orders have all filters.
	p.choose("#order", "clicks")
	p.AwaitTrue(find("#list-rows .clicks") + `.textContent === "0 clicks"`)
	if got := fmt.Sprint(p.shown()); got != "[newer]" {
		t.Errorf("by all clicks, filtered: %s", got)
	}
	for _, order := range []string{"ends", "clicks"} {
		p.GoTo("#/?order="+order, "#list-count", "2 links")
		p.AwaitTrue(`document.querySelectorAll("#list-rows li").length === 2`)
		if got := fmt.Sprint(p.shown()); got != "[older newer]" {
			t.Errorf("%s: %s", order, got)
		}
	}
	// The former address.
	p.GoTo("#/top", "#list-count", "with the most clicks")
	if hash := Eval[string](p, "location.hash"); hash != "#/?order=24h" {
		t.Errorf("the address is %s", hash)
	}
}

// The buttons of a row do what they say, and keep the focus in the row.
func TestManageRows(t *testing.T) {
	t.Parallel()
	s := serve(t)
	key := s.keyOf(t, "ada")
	s.put(t, key, "one", "")
	s.put(t, key, "two", "")
	p := s.manage(t, key)
	p.Size(1280, 850)
	p.Await("#list-rows", "/one")
	button := func(alias, what string) string {
		return fmt.Sprintf(`#list-rows li:has([href="#/link/%s"]) [data-do="%s"]`, alias, what)
	}
	focused := func(alias, what string) {
		t.Helper()
		p.AwaitTrue(`document.activeElement === ` + find(button(alias, what)))
	}
	p.Click(button("one", "able"))
	p.Await("#toast", "Disabled")
	focused("one", "able")
	if s.as(t, key, "GET", "/api/links/one", "")["disabled"] != true {
		t.Error("it is not disabled")
	}
	p.Click(button("one", "able"))
	p.Await("#toast", "Enabled")
	p.Click(button("two", "delete"))
	p.Await("#toast", "Deleted")
	focused("two", "restore")
	p.Check("a deleted row")
	p.Press(kb.Enter)
	p.Await("#toast", "Restored")
	focused("two", "delete")
	p.Click(button("one", "copy"))
	p.Await("#toast", "Copied")
	p.Click(button("one", "qr"))
	p.Await("#qr-title", "/one")
	p.AwaitTrue(find("#qr-image") + ".complete && " + find("#qr-image") + ".naturalWidth > 0")
	p.Check("a QR code")
	look(t, p, "manage-qr")
	p.choose("#qr-size", "2000")
	p.choose("#qr-margin", "0")
	p.choose("#qr-level", "H")
	p.Click(`#qr-form [name="source"]`)
	if href := Eval[string](p, find("#qr-png")+".href"); !strings.HasSuffix(href,
		"/api/links/one/qr?size=2000&margin=0&level=H&fg=000000&bg=ffffff&source=qr&format=png") {
		t.Errorf("the PNG is at %s", href)
	}
	p.Click("#qr-copy")
	p.Await("#toast", "Copied as an image")
	Eval[any](p, `(() => { window.ClipboardItem = undefined; })()`)
	p.Click("#qr-copy")
	p.Await("#qr-wrong", "Download the PNG instead")
	p.Press(kb.Escape)
	focused("one", "qr")
	// On a phone, the button of the menu has the focus afterwards.
	p.Size(390, 844)
	p.Click(button("one", "menu"))
	p.Click(button("one", "qr"))
	p.Await("#qr-title", "/one")
	p.Press(kb.Escape)
	focused("one", "menu")
	p.Click(button("one", "menu"))
	p.Click(button("one", "able"))
	p.Await("#toast", "Disabled")
	focused("one", "menu")
	p.Size(1280, 850)
	p.Click(button("two", "edit"))
	p.Await("#link-short", "/two")
}

func TestManageSeveralLinks(t *testing.T) {
	t.Parallel()
	s, key := many(t, 120)
	p := s.manage(t, key)
	p.Size(1280, 850)
	p.Await("#list-count", " links")
	box := func(i int) string { return fmt.Sprintf("#list-rows li:nth-child(%d) [data-part=pick]", i) }
	Eval[any](p, `window.top0 = document.querySelector("#list-rows").getBoundingClientRect().top`)
	p.Click(box(1))
	p.Await("#picked-count", "1 link selected")
	p.Click(box(3))
	p.Await("#picked-count", "2 links selected")
	p.Check("a selection")
	if !Eval[bool](p, `document.querySelector("#list-rows").getBoundingClientRect().top === top0`) {
		t.Error("the selection moves the rows")
	}
	Eval[any](p, "scrollTo(0, document.body.scrollHeight)")
	p.AwaitTrue(`document.querySelector("#picked").getBoundingClientRect().bottom <= innerHeight`)
	Eval[any](p, "scrollTo(0, 0)")
	look(t, p, "manage-selection")
	do := func(what string) {
		t.Helper()
		p.choose("#picked-what", what)
		p.Click("#picked-go")
	}
	link := func(alias, member string) string {
		return fmt.Sprint(s.as(t, key, "GET", "/api/links/"+alias, "")[member])
	}
	do("tag")
	p.Await("#picked-wrong", "Type one or more tags")
	p.Fill("#picked-tags", "Site, new")
	do("tag")
	p.Await("#toast", "2 links tagged")
	if got := link("n0119", "tags") + link("n0117", "tags") + link("n0118", "tags"); got !=
		"[site new][site new][site]" {
		t.Errorf("the tags are %s", got)
	}
	p.Click("#picked-undo")
	p.Await("#toast", "Undone: 2 links restored")
	if got := link("n0119", "tags"); got != "[site]" {
		t.Errorf("after undo the tags are %s", got)
	}
	// What changed elsewhere since is not undone.
	p.Click(box(1))
	p.Click(box(2))
	do("disable")
	p.Await("#toast", "2 links disabled")
	s.as(t, key, "PATCH", "/api/links/n0118", `{"title":"changed"}`)
	p.Click("#picked-undo")
	p.Await("#toast", "Undone: 1 link restored, 1 link not")
	p.Await("#picked-failed", "/n0118")
	p.Await("#picked-count", "1 link selected")
	if got := link("n0119", "disabled") + link("n0118", "disabled"); got != "false true" &&
		got != "falsetrue" {
		t.Errorf("disabled: %s", got)
	}
	p.Check("a failed undo")
	// An undo that was stopped goes on.
	p.Click("#picked-none")
	p.Click(box(4))
	p.Click(box(5))
	do("disable")
	p.Await("#toast", "2 links disabled")
	Eval[any](p, `(() => { const real = window.real = fetch; window.fetch = (url, options) => `+
		`options?.method === "PATCH" ? new Response(JSON.stringify({ type: "/problems/rate-limited", `+
		`title: "Too many", status: 429, detail: "Wait" }), { status: 429, headers: { "Retry-After": `+
		`"60" } }) : real(url, options); })()`)
	p.Click("#picked-undo")
	p.Await("#picked-says", "It goes on in")
	p.Click("#picked-stop")
	p.Await("#toast", "Undone: 0 links restored, 2 links not")
	Eval[any](p, "(() => { window.fetch = real; })()")
	p.Click("#picked-undo")
	p.Await("#toast", "Undone: 2 links restored")
	if got := link("n0116", "disabled") + link("n0115", "disabled"); got != "falsefalse" {
		t.Errorf("disabled: %s", got)
	}
	p.Click(box(2))
	// The service asks to wait.
	Eval[any](p, `(() => { const real = fetch; let calls = 0; window.fetch = (url, options) => `+
		`options?.method === "PATCH" && calls++ === 0 ? new Response(JSON.stringify({ type: `+
		`"/problems/rate-limited", title: "Too many", status: 429, detail: "Wait" }), { status: 429, `+
		`headers: { "Retry-After": "2" } }) : real(url, options); })()`)
	do("delete")
	p.Await("#picked-says", "It goes on in ")
	p.Await("#toast", "1 link deleted")
	p.Click("#picked-undo")
	p.Await("#toast", "Undone: 1 link restored")
	if got := link("n0118", "deletedAtUtc") + link("n0118", "disabled"); got != "<nil>true" {
		t.Errorf("restored: %s", got)
	}
	Eval[any](p, `(() => { const make = URL.createObjectURL; URL.createObjectURL = (blob) => { `+
		`window.saved = blob; return make(blob); }; })()`)
	p.Click(box(1))
	do("ndjson")
	p.Await("#toast", "1 link saved as a file")
	if got := Eval[string](p, "window.saved.text()"); !strings.Contains(got, `"alias":"n0119"`) {
		t.Errorf("saved %s", got)
	}
	do("csv")
	testutil.Eventually(t, "the table is saved", func() bool {
		return strings.HasPrefix(Eval[string](p, "window.saved.text()"), "alias,shortUrl,longUrl")
	})
	p.Click("#picked-all")
	p.Await("#picked-count", "120 links selected")
	p.to(box(1))
	p.Press(kb.ArrowDown)
	p.AwaitTrue(find(box(2)) + " === document.activeElement")
	p.Press(kb.Escape)
	p.AwaitTrue(`!document.querySelector("#list-rows :checked")`)
}
