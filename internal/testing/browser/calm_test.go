package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
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
	s := serve(t, "TABLE_CONNECTION=memory")
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
	s := serve(t, "TABLE_CONNECTION=memory")
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
	s := serve(t, "TABLE_CONNECTION=memory")
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
	s := serve(t, "TABLE_CONNECTION=memory")
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
	s := serve(t, "TABLE_CONNECTION=memory")
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
		"/manage#/": "#list-rows > li", "/manage#/link/one03": "#stats .empty"} {
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
	s := serve(t, "TABLE_CONNECTION=memory")
	p := s.manage(t, s.keyOf(t, "ada"))
	features := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
		{Name: "forced-colors", Value: "active"}}}
	if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, features); err != nil {
		t.Fatal(err)
	}
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
	s := serve(t, "TABLE_CONNECTION=memory", "SITE_NAME=Acme", "SITE_NOTICE=Abuse: abuse@example.com")
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
	s := serve(t, "TABLE_CONNECTION=memory")
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
	s := serve(t, "TABLE_CONNECTION=memory", "RATE_API_PER_MINUTE=40")
	ada := s.keyOf(t, "ada")
	var file strings.Builder
	for i := range 100 {
		fmt.Fprintf(&file, `{"alias":"n%02d","longUrl":"https://example.com/%d"}`+"\n", i, i)
	}
	s.as(t, ada, "POST", "/api/import", file.String())
	p := s.manage(t, ada)
	p.GoTo("#/?order=oldest", "#list-count", "100 links")
	p.Click("#list-rows [data-part=pick]")
	for _, what := range []string{"disable", "enable", "delete"} {
		p.Await("#picked-all", "Select all")
		p.Click("#picked-all")
		p.Await("#picked-count", "First 100 selected")
		p.choose("#picked-what", what)
		p.Click("#picked-go")
		p.Await("#toast", "100 links "+what+"d")
	}
	p.Click("#picked-undo")
	p.Await("#toast", "Undone: 100 links restored")
	if got := s.as(t, ada, "GET", "/api/links/n42", ""); got["deletedAtUtc"] != nil ||
		got["disabled"] != false {
		t.Errorf("got %v", got)
	}
}
