package browser

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"tiney/internal/link"
	"tiney/internal/testing/testutil"
)

// stops are the controls that Tab has to reach, in page order. If a dialog is open, only its
// controls count.
const stops = `[...(document.querySelector("dialog[open]") ?? document)
	.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex]")]
	.filter((e) => e.tabIndex >= 0 && !e.disabled && e.checkVisibility())`

// tour goes through all controls with Tab, then back with Shift and Tab, and returns their names.
// It fails the test if a control is left out, comes in another order, does not show that it has the
// focus, or keeps the focus.
func (p *Page) tour(state string) (names []string) {
	p.t.Helper()
	names = Eval[[]string](p, `(window.stops = `+stops+
		`).map((e) => e.id || e.ariaLabel || e.textContent.trim())`)
	seen := func() int {
		p.t.Helper()
		at := Eval[struct {
			Index int
			Shown bool
		}](p, `(() => {
			const e = document.activeElement, r = e.getBoundingClientRect();
			const outlined = (e) => getComputedStyle(e).outlineStyle === "solid" &&
				parseFloat(getComputedStyle(e).outlineWidth) >= 2;
			return { index: window.stops.indexOf(e),
				shown: (outlined(e) || outlined(e.parentElement)) &&
				r.width > 0 && r.bottom > 0 && r.top < innerHeight };
		})()`)
		if at.Index >= 0 && !at.Shown {
			p.t.Errorf("%s: nobody sees that the focus is on %q", state, names[at.Index])
		}
		return at.Index
	}
	for _, back := range []bool{false, true} {
		var options []chromedp.KeyOption
		if back {
			options = append(options, chromedp.KeyModifiers(chromedp.ModifierShift))
		} else {
			Eval[any](p, `window.stops[0].focus()`)
		}
		for i := range names[1:] {
			from, to := i, i+1
			if back {
				from, to = len(names)-1-i, len(names)-2-i
			}
			at := from
			// A date and time field has one stop for each part.
			for presses := 0; at == from && presses < 10; presses++ {
				p.Press(kb.Tab, options...)
				at = seen()
			}
			if at != to {
				p.t.Fatalf("%s: from %q, with Shift %t, the focus goes to %q, and not to %q", state,
					names[from], back, p.Focused(), names[to])
			}
		}
	}
	return names
}

// to focuses a control, as if somebody had reached it with Tab.
func (p *Page) to(selector string) {
	p.t.Helper()
	p.AwaitTrue(find(selector) + "?.checkVisibility()")
	Eval[any](p, find(selector)+".focus()")
}

func TestKeyboard(t *testing.T) {
	t.Parallel()
	s, p := serve(t), chromium.New(t)
	p.Open(s.url)
	p.wantFocus("url")
	p.tour("empty")
	p.to("#url")
	p.Press("https://example.com/a" + kb.Tab + " ") // the button, by Space
	p.Await("#result", "Your short link")
	p.wantFocus("copy")
	p.Press(" ")
	p.Await("#toast", "Copied")
	names := strings.Join(p.tour("result"), ", ")
	want := "tiney/, account, url, shorten, alias, life, short, copy, preview, svg, png, "
	if !strings.HasPrefix(names, want) ||
		!strings.HasSuffix(names, ", Sign in, Bookmark button, Use the API") {
		t.Errorf("the order is %s", names)
	}
	p.to("#life")
	p.Press(kb.ArrowDown)
	if got := p.Value("#life"); got != "3600" {
		t.Errorf("the arrow chooses %q", got)
	}
	const row = "#links li:first-child "
	p.to(row + `[data-part="copy"]`)
	p.Press(kb.Enter)
	p.Await("#toast", "Copied")
	p.to(row + `[data-part="delete"]`)
	p.Press(" ")
	p.Await(row, "Deleted")
	p.AwaitTrue(`document.activeElement.dataset.part === "undo"`)
	p.tour("deleted")
	p.to(row + `[data-part="undo"]`)
	p.Press(" ")
	p.AwaitTrue(`document.activeElement.dataset.part === "delete"`)
	p.to("details:last-of-type summary")
	p.Press(" ")
	p.Await("details:last-of-type", "curl ")
	p.tour("from a program")
	p.to("#url")
	// Enter is pressed in another field than the wrong one.
	p.Press("ftp://example.com/" + kb.Tab + kb.Tab + "other" + kb.Enter)
	p.Await("#url-error", "http")
	p.wantFocus("url")
	p.tour("an error")
	p.Fill("#url", "https://example.com/b")
	p.Press(kb.Enter)
	p.Await("#short", "/other")
	p.to("#preview")
	p.Go(func() { p.Press(kb.Enter) })
	if got := strings.Join(p.tour("the preview"),
		", "); got != "tiney/, account, Go there, SVG, PNG" {
		t.Errorf("the order is %s", got)
	}
	p.Open(s.url + "/nobody")
	if got := strings.Join(p.tour("an error page"), ", "); got != "tiney/, account, "+
		"Make this link, Shorten a URL" {
		t.Errorf("the order is %s", got)
	}
	p.to("#account")
	p.Go(func() { p.Press(kb.Enter) })
	p.wantFocus("key")
}

func TestManageKeyboard(t *testing.T) {
	t.Parallel()
	s := serveStored(t, "CHANGES_SECONDS=1", "CLICKS_FLUSH_SECONDS=1")
	key, other := s.keyOf(t, "ada"), s.keyOf(t, "ada")
	for i := range 51 {
		s.PutLink(link.Link{Name: link.Name(fmt.Sprintf("link%02d", i)),
			LongURL: fmt.Sprintf("https://example.com/%d", i), Owner: "ada", Tags: []string{"tag"}})
	}
	p := chromium.New(t)
	p.Open(s.url)
	p.wantFocus("url")
	p.Press("https://example.com/mine" + kb.Tab + kb.Tab + "mine" + kb.Enter)
	p.Await("#result", "Your short link")
	p.Open(s.url + "/manage")
	p.wantFocus("key")
	if got := strings.Join(p.tour("sign in"), ", "); got != "tiney/, key, key-go" {
		t.Errorf("the order is %s", got)
	}
	p.to("#key")
	p.Press(key + kb.Tab + " ")
	p.Await("#list-count", " links")
	Eval[any](p, "scrollTo(0, document.body.scrollHeight)")
	p.Await("#list-count", "51 links")
	p.to("#claims-keep")
	p.Press(" ")
	if !Eval[bool](p, find("#claims-keep")+".checked") {
		t.Error("Space does not check a box")
	}
	names := strings.Join(p.tour("the list, with claims"), ", ")
	if want := "tiney/, sign-out, Links, Statistics, API keys, Import, export, New link, claims-keep, " +
		"claims-take, claims-not, q, tag, state, order, Select "; !strings.HasPrefix(names, want) {
		t.Errorf("the order is %s", names)
	}
	p.to("#claims-take")
	p.Press(" ")
	p.Await("#toast", "1 link is yours now.")
	p.wantFocus("list-title")
	p.to("#state")
	p.Press(kb.ArrowDown)
	p.AwaitTrue(`location.hash.endsWith("state=live")`)
	p.wantFocus("state")
	p.to("#list-rows .tag")
	p.Press(kb.Enter)
	p.AwaitTrue(`location.hash.endsWith("tag=tag")`)
	p.wantFocus("list-title")
	p.to("#q")
	p.Press("/mine")
	p.Await("#list-empty", "No links match") // among the links with the tag
	p.tour("nothing found")
	p.to("#list-empty a")
	p.Press(kb.Enter)
	p.wantFocus("list-title")
	p.to(`#list-rows [data-do="copy"]`)
	p.Press(" ")
	p.Await("#toast", "Copied")

	// A link.
	p.GoTo("#/link/mine", "#stats-body", "No clicks")
	p.wantFocus("link-title")
	p.edit()
	p.to("#new-tag")
	p.Press("one,two,")
	names = strings.Join(p.tour("a link"), ", ")
	if want := "tiney/, sign-out, Links, Statistics, API keys, Import, export, link-back, link-short, " +
		"link-copy, link-edit, link-preview, link-disable, link-delete, link-svg, link-png, " +
		"link-code, stats-range, stats-again, stats-csv, Edit, longUrl, title, Remove the tag one, Remove the tag two, new-tag, expiresAtUtc, 7 days, 30 days, 90 days, never, " +
		"Campaign (utm parameters), More options, save, discard, History"; names != want {
		t.Errorf("the order is %s", names)
	}
	p.to(`[aria-label="Remove the tag one"]`)
	p.Press(" ")
	p.wantFocus("new-tag")
	p.Press(kb.Enter) // saves, since there is no tag to add
	p.Await("#toast", "Saved")
	p.wantFocus("new-tag")
	p.to("#never")
	p.Press(" ")
	p.wantFocus("expiresAtUtc")
	p.to("#title")
	p.Press("typed")
	p.to("#discard")
	p.Press(" ")
	p.wantFocus("longUrl")
	p.to("#link-copy")
	p.Press(" ")
	p.Await("#toast", "Copied")
	for _, state := range []string{"Disabled", "Live"} {
		p.to("#link-disable")
		p.Press(" ")
		p.Await("#link-state", state)
		p.wantFocus("link-disable")
	}
	p.to("#link-delete")
	p.Press(kb.Enter)
	p.wantFocus("link-undo")
	p.tour("a deleted link")
	p.to("#link-undo")
	p.Press(" ")
	p.wantFocus("link-delete")
	s.visit(t, "mine", firefox, "")
	testutil.Eventually(t, "the click is shown", func() bool {
		p.to("#stats-again")
		p.Press(" ")
		p.AwaitTrue("!" + find("#stats-body") + ".ariaBusy")
		return p.Text("#stats summary") != ""
	})
	p.to("#stats-range")
	p.Press(kb.ArrowUp)
	p.Await("#stats summary", "7 days")
	p.to("#stats summary")
	p.Press(" ")
	p.Await("#stats table", "Day (UTC)")
	if got := strings.Join(p.tour("the statistics"), ", "); !strings.Contains(got,
		"stats-csv, Clicks: one day, As a table: 7 days, Clicks as a table, Edit, longUrl") {
		t.Errorf("the order is %s", got)
	}

	// The dialog of an ended session keeps the focus until it is closed. Then it returns the focus.
	p.to("#title")
	p.Press("typed")
	s.as(t, key, "DELETE", "/api/keys/"+s.idOf(t, key), "")
	for _, close := range []string{kb.Escape, kb.Tab + kb.Tab + " "} {
		p.to("#save")
		p.Press(" ")
		p.Await("#again", "Your session has ended")
		p.wantFocus("key")
		if got := strings.Join(p.tour("the dialog"), ", "); got != "key, key-go, again-not" {
			t.Errorf("the order is %s", got)
		}
		p.to("#key")
		p.Press(close)
		p.Await("#form-problem", "this was not done")
		p.wantFocus("save")
	}
	p.Press(kb.Enter)
	p.wantFocus("key")
	p.Press(other + kb.Enter)
	p.Await("#toast", "Saved")
	p.wantFocus("save")

	// Keys.
	p.to(`#tabs [href="#/keys"]`)
	p.Press(kb.Enter)
	p.wantFocus("keys-title")
	p.Await("#keys-rows", "ada's key")
	p.to("#key-name")
	p.Press("new" + kb.Enter)
	p.wantFocus("new-key-copy")
	p.Await("#keys-rows li:first-child", "new")
	names = strings.Join(p.tour("a new key"), ", ")
	if !strings.Contains(names, "new-key-copy, new-key-done, key-name, key-expires, "+
		"key-access, key-make, Revoke ") {
		t.Errorf("the order is %s", names)
	}
	p.to("#new-key-done")
	p.Press(" ")
	p.wantFocus("keys-title")
	p.to("#keys-rows li:first-child button")
	p.Press(" ")
	p.AwaitTrue(`document.activeElement.textContent === "Revoke for good"`)
	p.tour("about to revoke a key")
	p.to("#keys-rows li:first-child button:last-child")
	p.Press(" ")
	p.AwaitTrue(`document.activeElement.textContent === "Revoke"`)
	p.Press(" ")
	p.AwaitTrue(`document.activeElement.textContent === "Revoke for good"`)
	p.Press(" ")
	p.Await("#toast", "Revoked")
	p.wantFocus("keys-title")
	p.to("#tabs a:nth-child(2)")
	p.Press(kb.Enter)
	p.wantFocus("link-title")
	p.to("#sign-out")
	p.Press(" ")
	p.Await("#signin-says", "You are signed out")
	p.wantFocus("key")
}

// The list has keys of its own, and the row that was just ticked is in sight at 200 %.
func TestKeysOfTheList(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.keyOf(t, "ada")
	for i := range 30 {
		s.put(t, ada, fmt.Sprintf("one%02d", i), `,"tags":["tag"]`)
	}
	p := s.manage(t, ada)
	p.to("#list-rows [data-part=pick]")
	p.Press("/")
	p.wantFocus("q")
	p.Press("c") // text, here
	p.Await("#list-empty", "No links match")
	p.Fill("#q", "")
	p.Await("#list-count", "30 links")
	p.AwaitTrue("!" + find("#list-rows") + ".ariaBusy")
	p.to("#list-rows li:nth-child(25) [data-part=open]")
	p.Press(kb.ArrowDown) // to the next part of the list
	p.AwaitTrue(`document.activeElement.matches("ul + ul li:first-child [data-part=open]")`)
	p.Press(kb.ArrowUp)
	p.AwaitTrue(`document.activeElement.matches("li:nth-child(25) [data-part=open]")`)
	p.Press("c")
	p.wantFocus("longUrl")
	p.GoTo("#/", "#list-count", "30 links")

	p.Size(640, 400)
	for i := 2; i < 12; i++ {
		p.to(fmt.Sprintf("#list-rows li:nth-child(%d) [data-part=pick]", i))
		p.Press(" ")
		p.Await("#picked-count", fmt.Sprintf("%d link", i-1))
		p.drawn()
		if !Eval[bool](p, `document.activeElement.closest("li").getBoundingClientRect().bottom <= `+
			find("#picked")+`.getBoundingClientRect().top + 1`) {
			t.Errorf("row %d is below the bar", i)
		}
	}
}
