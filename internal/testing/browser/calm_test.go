package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp/kb"

	"tiney/internal/testing/testutil"
)

// box returns the left and the right edge and the height of an element.
func (p *Page) box(selector string) (box [3]float64) {
	p.t.Helper()
	b := Eval[[]float64](p, `(() => { const b = `+find(selector)+
		`.getBoundingClientRect(); return [b.left, b.right, b.height]; })()`)
	return [3]float64(b)
}

// A key that can only read is offered nothing that would be refused.
func TestReadOnlyKey(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.keyOf(t, "ada")
	s.put(t, ada, "mine", "")
	reader, _ := s.as(t, ada, "POST", "/api/keys", `{"name":"reads","access":"read"}`)["key"].(string)
	p := s.manage(t, reader)
	p.Await("#reads", "This key can only read")
	visible := func(selector string) bool {
		return Eval[bool](p, `[...document.querySelectorAll(`+quote(selector)+
			`)].some((e) => e.checkVisibility({ visibilityProperty: true }))`)
	}
	hidden := func(selectors ...string) {
		t.Helper()
		for _, selector := range selectors {
			if visible(selector) {
				t.Errorf("%s is offered", selector)
			}
		}
	}
	if !visible(`#list-rows [data-do="copy"]`) {
		t.Error("a row has no button to copy")
	}
	hidden(`[href^="#/new"]`, "#list-rows [data-part=pick]", `#list-rows [data-do="edit"]`,
		`#list-rows [data-do="able"]`, `#list-rows [data-do="delete"]`)
	p.Check("a list for a key that can only read")
	p.GoTo("#/link/mine?edit", "#link-short", "/mine")
	p.AwaitTrue(find("#stats") + ".checkVisibility()")
	hidden("#link-edit", "#link-disable", "#link-delete", "#form", "#give")
	p.GoTo("#/new", "#list-title", "Links")
	p.GoTo("#/keys", "#keys-rows", "the key you are using")
	hidden("#key-new", "#keys-rows button")
	p.GoTo("#/move", "#export-title", "Export")
	hidden("#import")
	if !visible("#export-go") {
		t.Error("there is no export")
	}
}

// Somebody who revokes the key that they use is told, and signed out.
func TestRevokeTheOwnKey(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.keyOf(t, "ada")
	s.as(t, ada, "POST", "/api/keys", `{"name":"another"}`)
	p := s.manage(t, ada)
	p.GoTo("#/keys", "#keys-rows", "another")
	if n := strings.Count(p.Text("#keys-rows"), "the key you are using"); n != 1 {
		t.Errorf("%d keys are the one in use", n)
	}
	p.Click(`[aria-label="Revoke ada's key"]`)
	p.Click(`[aria-label="Revoke and sign out: ada's key"]`)
	p.Await("#signin-says", "You are signed out")
}

// What is done stays until somebody closes it, and messages do not follow to other views.
func TestWhatIsDoneCanBeClosed(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.keyOf(t, "ada")
	s.put(t, ada, "one", "")
	p := s.manage(t, ada)
	p.Click("#list-rows [data-part=pick]")
	p.Await("#picked-count", "1 link selected")
	p.choose("#picked-what", "delete")
	if got := p.Text("#picked-go"); got != "Delete 1 link" {
		t.Errorf("the button says %q", got)
	}
	p.choose("#picked-what", "disable")
	p.Click("#picked-go")
	p.AwaitTrue(find("#picked-undo") + ".checkVisibility()")
	p.Await("#toast", "1 link disabled")
	p.Click("#picked-none")
	p.AwaitTrue("!" + find("#picked") + ".checkVisibility()")
	p.Click(`#list-rows [data-do="able"]`)
	p.Await("#toast", "Enabled")
	p.GoTo("#/keys", "#keys-rows", "ada's key")
	if got := p.Text("#toast"); got != "" {
		t.Errorf("the next view says %q", got)
	}
}

// What a row does not offer leaves its place free, so that the same stands below the same.
func TestActionsStandBelowEachOther(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.keyOf(t, "ada")
	s.put(t, ada, "gone", "")
	s.put(t, ada, "live", `,"tags":["a long tag","another one","and a third one","and more"]`)
	s.as(t, ada, "DELETE", "/api/links/gone", "")
	p := s.manage(t, ada)
	p.Size(1280, 800)
	p.GoTo("#/?state=deleted", "#list-rows", "gone")
	restore := p.box(`#list-rows [data-do="restore"]`)
	edit := p.box(`#list-rows [data-do="edit"]`)
	p.GoTo("#/", "#list-rows", "live")
	if got := p.box(`#list-rows [data-do="edit"]`); got != edit {
		t.Errorf("Edit is at %v, and of a deleted link at %v", got, edit)
	}
	if got := p.box(`#list-rows [data-do="delete"]`); got != restore {
		t.Errorf("Delete is at %v, and Restore at %v", got, restore)
	}
	// No tag is cut.
	if cut := Eval[int](p, `[...document.querySelectorAll("#list-rows .tag")].filter((tag) => { const a = `+
		`tag.getBoundingClientRect(), b = tag.parentElement.getBoundingClientRect(); `+
		`return a.top < b.bottom - 1 && (a.right > b.right + 1 || a.bottom > b.bottom + 1); }).length`); cut > 0 {
		t.Errorf("%d tags are cut", cut)
	}
}

// shifts returns how far a view has moved while it was loaded, as Chromium measures it.
func (p *Page) shifts() float64 {
	p.t.Helper()
	return Eval[float64](p, `new Promise((done) => { let sum = 0; new PerformanceObserver((all) => { `+
		`for (const one of all.getEntries()) sum += one.value; }).observe({ type: "layout-shift", `+
		`buffered: true }); setTimeout(() => done(sum), 300); })`)
}

func TestNothingMovesWhileItLoads(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.keyOf(t, "ada")
	for i := range 20 {
		s.put(t, ada, fmt.Sprintf("one%02d", i), "")
	}
	p := chromium.New(t)
	p.Open(s.url + "/")
	p.Press("https://example.com/claimed" + kb.Enter) // may be taken over
	p.AwaitTrue(find("#result") + ".checkVisibility()")
	p.Open(s.url + "/manage")
	p.AwaitTrue(find("#key") + "?.checkVisibility()")
	p.Press(ada + kb.Enter)
	p.Await("#claims-title", "can be yours")
	for view, ready := range map[string]string{
		"/manage#/": "#list-rows li", "/manage#/link/one03": "#stats .empty"} {
		p.Open(s.url + "/robots.txt")
		p.Open(s.url + view)
		p.AwaitTrue("Boolean(" + find(ready) + "?.checkVisibility())")
		if moved := p.shifts(); moved > 0.05 {
			t.Errorf("%s moves by %.3f", view, moved)
		}
	}
}

// With a person's own colours, the current view can be told, too.
func TestForcedColours(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := s.manage(t, s.keyOf(t, "ada"))
	Emulate(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "forced-colors", Value: "active"}}})
	colours := Eval[[]string](p, `[...document.querySelectorAll("#tabs a")].slice(0, 2)`+
		`.map((a) => getComputedStyle(a).borderBottomColor)`)
	if colours[0] == colours[1] {
		t.Errorf("all views have the same colour, %s", colours[0])
	}
	p.Check("forced colours")
}

// Without scripts, nothing is offered that needs them, and the cursor is where the mistake is.
func TestWithoutScriptsAllIsThere(t *testing.T) {
	t.Parallel()
	s := serve(t, "SITE_NAME=Acme", "SITE_NOTICE=Abuse: abuse@example.com")
	p := chromium.New(t)
	p.NoScripts()
	p.Open(s.url + "/?longUrl=https://example.com/shared")
	p.AllowScripts()
	if got := p.Value("#url"); got != "https://example.com/shared" {
		t.Errorf("the field has %q", got)
	}
	if Eval[bool](p, find("#drag")+".checkVisibility()") {
		t.Error("the bookmark button is offered")
	}
	if box := p.box("footer a"); box[2] < 24 {
		t.Errorf("the link of the notice is %v px high", box[2])
	}
	p.NoScripts()
	p.Press(kb.Tab + kb.Tab + "a b" + kb.Enter)
	p.AllowScripts()
	p.AwaitTrue(find("#alias") + ".ariaInvalid === 'true'")
	p.wantFocus("alias")
}

func TestStatisticsOfDays(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := s.manage(t, s.keyOf(t, "ada"))
	p.GoTo("#/clicks", "#stats-body", "No clicks")
	p.choose("#stats-range", "free day")
	p.AwaitTrue(find("#stats-from") + ".checkVisibility()")
	if from, to := p.Value("#stats-from"), p.Value("#stats-to"); from == "" || to <= from {
		t.Errorf("from %q to %q", from, to)
	}
	p.GoTo("#/move", "#import-title", "Import")
	p.Fill("#import-text", "hello world\nand nothing else")
	p.Click("#import-check")
	p.Await("#import-wrong", "We don't recognise this file")
	p.choose("#import-format", "csv")
	p.Fill("#import-text", "longUrl,alias\n")
	p.Click("#import-check")
	p.Await("#import-wrong", "There is no link in this file.")
}

// A change of many links is a few calls, so that the next ones are within the limit, too.
func TestManyLinksAreChangedInAFewCalls(t *testing.T) {
	t.Parallel()
	s := serve(t, "RATE_API_PER_MINUTE=60")
	ada := s.keyOf(t, "ada")
	var file strings.Builder
	for i := range 300 {
		fmt.Fprintf(&file, `{"alias":"n%03d","longUrl":"https://example.com/%d"}`+"\n", i, i)
	}
	s.as(t, ada, "POST", "/api/import", file.String())
	p := s.manage(t, ada)
	p.GoTo("#/", "#list-count", " links")
	p.Click("#list-rows [data-part=pick]")
	for _, what := range []string{"disable", "enable", "delete"} {
		p.Await("#picked-all", "Select all")
		p.Click("#picked-all") // also those that are not listed yet
		p.Await("#picked-count", "300 links selected")
		p.choose("#picked-what", what)
		p.Click("#picked-go")
		p.Await("#toast", "300 links "+what+"d")
	}
	p.Click("#picked-undo")
	p.Await("#toast", "Undone: 300 links restored")
	if got := s.as(t, ada, "GET", "/api/links/n042", ""); got["deletedAtUtc"] != nil ||
		got["disabled"] != false {
		t.Errorf("got %v", got)
	}
}

// What was typed stays when people go back while the link loads again, and where a view cannot be
// loaded.
func TestTypedTextStays(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.keyOf(t, "ada")
	s.put(t, ada, "mine", "")
	p := s.manage(t, ada)
	p.openLink("mine")
	p.Fill("#title", "typed")
	Eval[any](p, "history.back()")
	p.Await("#list-rows", "/mine")
	p.Hold("GET")
	Eval[any](p, "history.forward()")
	p.AwaitTrue("window.release && " + find("#link-wait") + ".checkVisibility()")
	Eval[any](p, "history.back()")
	p.AwaitTrue(find("#list") + ".checkVisibility()")
	p.Release()
	stays := func(where string) {
		t.Helper()
		p.GoTo("#/link/mine?edit", "#link-short", "/mine")
		p.AwaitTrue(find("#form") + ".checkVisibility()")
		if got := p.Value("#title"); got != "typed" {
			t.Errorf("%s: the title is %q", where, got)
		}
	}
	stays("back, forward, back")
	p.Offline(true)
	p.GoTo("#/keys", "#failed-problem", "Try again in a moment")
	p.Offline(false)
	p.Go(func() { p.Click("#failed-problem button") })
	p.AwaitTrue(find("#key-new") + "?.checkVisibility()")
	stays("a view that could not be loaded")
	// Escape leaves a form in which nothing is typed, and no other.
	p.Press(kb.Escape)
	p.AwaitTrue(find("#form") + ".checkVisibility()")
	p.Click("#discard")
	p.Press(kb.Escape)
	p.wantFocus("link-edit")
	p.AwaitTrue("!" + find("#form") + ".checkVisibility()")
}

func TestWhatANewLinkLeadsTo(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := s.manage(t, s.keyOf(t, "ada"))
	p.GoTo("#/new", "#link-title", "New link")
	p.wantFocus("longUrl")
	p.Press("https://example.com/")
	p.Click(`[data-days="30"]`)
	p.wantFocus("expiresAtUtc")
	if days := Eval[float64](p, `(new Date(`+find("#expiresAtUtc")+
		`.value) - Date.now()) / 86_400_000`); days < 29.9 || days > 30.1 {
		t.Errorf("the link ends in %g days", days)
	}
	p.Click("#save")
	p.wantFocus("link-copy")
	p.Press(kb.Enter)
	p.AwaitTrue(find("#link-copy") + `.textContent === "Copied ✓"`)
	p.AwaitTrue(find("#link-copy") + `.textContent === "Copy"`)
}

// Statistics show no numbers before these are there. Then they are compared with those of the days
// before.
func TestStatisticsWhileTheyLoad(t *testing.T) {
	t.Parallel()
	s := serve(t, "CLICKS_FLUSH_SECONDS=1")
	ada := s.keyOf(t, "ada")
	s.put(t, ada, "mine", "")
	for range 3 {
		s.visit(t, "mine", firefox, "https://news.example/")
	}
	testutil.Eventually(t, "the clicks are counted", func() bool {
		return s.as(t, ada, "GET", "/api/links/mine/stats", "")["clicks"] == 3.0
	})
	p := s.manage(t, ada)
	Eval[any](p, `(() => { const real = fetch; window.fetch = async (url, options) => { `+
		`if (!String(url).includes("/api/stats/links")) return real(url, options); `+
		`if (String(url).includes("&to=")) return new Response('{"series":[],"clicks":2}'); `+
		`await new Promise((go) => { window.go = go; }); return real(url, options); }; })()`)
	p.GoTo("#/clicks", "#link-title", "Statistics")
	p.AwaitTrue("window.go && " + find("#stats-body .wait") + ".checkVisibility()")
	if got := p.Text("#stats-body"); got != "" {
		t.Errorf("before the response it says %q", got)
	}
	Eval[any](p, "go()")
	p.Await("#stats-figures", "+50% on the 30 days before")
	p.Check("statistics that are compared")
}

func TestAFileThatIsDropped(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := s.manage(t, s.keyOf(t, "ada"))
	p.GoTo("#/move", "#import-title", "Import")
	Eval[any](p, `(() => { const dataTransfer = new DataTransfer(); dataTransfer.items.add(new File([`+
		`"alias,longUrl\na,https://example.com/\na b,https://example.com/\n"], "links.csv")); for (const `+
		`type of ["dragover", "drop"]) if (`+find("#import")+`.dispatchEvent(new DragEvent(type, `+
		`{ dataTransfer, bubbles: true, cancelable: true }))) throw new Error(type); })()`)
	p.Click("#import-check")
	p.Await("#import-go", "Import 1 link")
	p.Await("#import-rows", "a b") // beside what is wrong with it
	p.Click("#import-go")
	p.Await("#import-links", "Show the link")
	p.Click("#import-links")
	p.Await("#list-count", "1 link")
}

// What belongs together is in line, and paper has what the numbers are of.
func TestInLine(t *testing.T) {
	t.Parallel()
	s := serve(t, "CLICKS_FLUSH_SECONDS=1")
	ada := s.keyOf(t, "ada")
	s.put(t, ada, "mine", "")
	s.visit(t, "mine", firefox, "https://news.example/")
	s.visit(t, "mine", "curl/8.0", "")
	testutil.Eventually(t, "the clicks are counted", func() bool {
		stats := s.as(t, ada, "GET", "/api/links/mine/stats", "")
		return stats["clicks"] == 1.0 && stats["bots"] == 1.0
	})
	p := s.manage(t, ada)
	p.Size(1280, 850)
	// left and bottom are those of the text or the border of elements, in pixels.
	in := func(edge string, selectors ...string) {
		t.Helper()
		want := 0.0
		for i, selector := range selectors {
			at := Eval[float64](p, `(() => { const e = `+find(selector)+`, range = document.createRange(); `+
				`range.selectNodeContents(e); return (e.matches("svg, img, input, select, dl") ? e : `+
				`range).getBoundingClientRect().`+edge+`; })()`)
			if i == 0 {
				want = at
			} else if at < want-1 || at > want+1 {
				t.Errorf("%s of %s is at %g, that of %s at %g", edge, selector, at, selectors[0], want)
			}
		}
	}
	p.Await("#list-rows .clicks", "click")
	in("left", "#list-columns > :nth-child(2)", "#list-rows .what > a > :last-child")
	p.GoTo("#/link/mine", "#stats-body", "news.example")
	in("left", "#stats-title", "#stats-figures", ".clicks figcaption", ".clicks svg", ".bots svg")
	in("right", ".clicks svg", ".bots svg")
	Emulate(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	for _, selector := range []string{"#link-title", "#link-short", "#stats-title", "#stats-range"} {
		if !Eval[bool](p, find(selector)+".checkVisibility()") {
			t.Errorf("%s is not printed", selector)
		}
	}
	p.GoTo("#/", "#list-title", "Links")
	p.AwaitTrue(find("#list-rows .host") + ".getBoundingClientRect().width > 10")
	Emulate(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{})
	p.GoTo("#/new", "#many-open", "Many at once")
	p.Click("#many-open")
	p.AwaitTrue(find("#many-tags") + ".checkVisibility()")
	in("bottom", "#many-name", "#many-tags")
}

// Fingers need targets of 24 pixels at least.
func TestTouchTargets(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.keyOf(t, "ada")
	s.put(t, ada, "mine", `,"tags":["one","two"],"title":"Mine"`)
	p := s.manage(t, ada)
	Emulate(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: 390, Height: 850, DeviceScaleFactor: 1, Mobile: true})
	Emulate(p, emulation.SetTouchEmulationEnabled,
		emulation.SetTouchEmulationEnabledParams{Enabled: true})
	p.AwaitTrue(`matchMedia("(pointer: coarse)").matches`)
	for hash, selector := range map[string]string{"#/": "#list-rows", "#/link/mine?edit": "#form",
		"#/keys": "#keys-rows"} {
		p.GoTo(hash, selector, "")
		p.AwaitTrue(find(selector) + `.checkVisibility() && ` + find(selector) + `.clientHeight > 40`)
		if small := Eval[[]string](p, `[...document.querySelectorAll("main :is(a, button, input, `+
			`select, summary)")].filter((e) => e.checkVisibility({ visibilityProperty: true }) && `+
			`!e.closest("p")).map((e) => [e.outerHTML.slice(0, 80), e.getBoundingClientRect()])`+
			`.filter(([, r]) => r.width && Math.min(r.width, r.height) < 24)`+
			`.map(([html, r]) => html + " " + r.width + " x " + r.height)`); len(small) > 0 {
			t.Errorf("at %s are small targets: %s", hash, strings.Join(small, "\n"))
		}
	}
}

// A link may start later, and lead somewhere else once it has ended.
func TestManageStartAndAfterwards(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := s.manage(t, s.keyOf(t, "ada"))
	p.GoTo("#/new", "#link-title", "New link")
	p.wantFocus("longUrl")
	p.Press("https://example.com/")
	p.Click("#options summary")
	p.Fill("#goneUrl", "https://example.com/")
	Eval[any](p, find("#startsAtUtc")+`.value = "2040-05-06T07:08"`)
	p.Check("a new link with more options")
	p.Click("#save")
	p.Await("#goneUrl-error", "It must differ from where the link leads")
	p.wantFocus("goneUrl")
	p.Fill("#goneUrl", "example.com/over")
	p.Press(kb.Enter)
	p.Await("#link-state", "Scheduled")
	p.Await("#link-about", "starts May 6, 2040")
	p.edit()
	if got := p.Value("#goneUrl") + " " + p.Value("#startsAtUtc"); got !=
		"https://example.com/over 2040-05-06T07:08" {
		t.Errorf("the form has %s", got)
	}
	p.Width(320)
	p.Check("a link with more options, narrow")
	p.Width(1100)
	p.Fill("#goneUrl", "")
	p.Press(kb.Enter)
	p.Await("#toast", "Saved")
	p.GoTo("#/?state=scheduled", "#list-count", "1 link")
	p.Await("#list-rows .badge", "Scheduled")
	p.GoTo("#/?state=live", "#list-empty", "No links match")
}

// An admin without links sees those of everybody that are clicked most, and whose they are.
func TestAdminsSeeEverybodys(t *testing.T) {
	t.Parallel()
	s := serve(t, "CLICKS_FLUSH_SECONDS=1")
	ada := s.keyOf(t, "ada")
	s.put(t, ada, "popular", "")
	s.visit(t, "popular", firefox, "")
	testutil.Eventually(t, "the click is counted", func() bool {
		return s.as(t, ada, "GET", "/api/links/popular/stats", "")["clicks"] == 1.0
	})
	p := s.manage(t, adminKey)
	p.Await("#list-empty", "No links of your own yet")
	p.Click("#list-empty a:not(.primary)")
	p.Await("#list-rows", "popular")
	p.Check("everybody's most clicked links")
	p.Click(`#list-rows [aria-label="Links of ada"]`)
	p.AwaitTrue(`location.hash === "#/?owner=ada"`)
	p.Await("#list-count", "1 link")
}
