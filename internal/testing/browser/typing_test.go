package browser

import (
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp/kb"
)

// PressAt presses the mouse button at the position of an element, and releases it at the same
// position. If the page has moved the element meanwhile, the element gets no click.
func (p *Page) PressAt(selector string) {
	p.t.Helper()
	at := Eval[struct{ X, Y float64 }](p, `(() => {
		const e = `+find(selector)+`;
		e.scrollIntoView({ block: "center" });
		const r = e.getBoundingClientRect();
		return { x: r.x + r.width / 2, y: r.y + r.height / 2 };
	})()`)
	for _, kind := range []input.DispatchMouseEventType{
		input.DispatchMouseEventTypeMousePressed, input.DispatchMouseEventTypeMouseReleased,
	} {
		Call(p, input.DispatchMouseEvent, input.DispatchMouseEventParams{Type: kind, X: at.X,
			Y: at.Y, Button: input.MouseButtonLeft, ClickCount: 1})
		p.drawn()
	}
}

// Hold withholds the responses to requests of a method from the page until Release.
func (p *Page) Hold(method string) {
	p.t.Helper()
	Eval[any](p, `void ((real) => {
		window.fetch = async (url, options) => {
			const response = await real(url, options);
			if (options.method === `+quote(method)+`)
				await new Promise((release) => { window.release = release; });
			return response;
		};
		window.free = () => { window.fetch = real; window.release(); delete window.release; };
	})(window.fetch)`)
}

// Release waits until a response is withheld, and passes it on.
func (p *Page) Release() {
	p.t.Helper()
	p.AwaitTrue("window.release")
	Eval[any](p, "void window.free()")
}

// A typed tag that was not confirmed is not lost, and does not move the element that is clicked
// next.
func TestManageTagsThatAreBeingTyped(t *testing.T) {
	t.Parallel()
	s := serve(t)
	key := s.keyOf(t, "ada")
	s.put(t, key, "mine", "")
	p := s.manage(t, key)
	tags := func(alias string, want ...string) {
		t.Helper()
		if got := s.read(t, alias).Tags; !slices.Equal(got, want) {
			t.Errorf("the tags of %s are %q, want %q", alias, got, want)
		}
	}
	p.openLink("mine")
	p.Await("#stats-body", "No clicks") // their arrival moves the form
	p.Fill("#new-tag", "old")           // the first tag needs a line of its own
	p.PressAt("#save")
	p.Await("#toast", "Saved")
	tags("mine", "old")
	p.Fill("#new-tag", "half")
	p.PressAt(`[aria-label="Remove the tag old"]`)
	p.AwaitTrue("!" + find(`[aria-label="Remove the tag old"]`))
	if got := p.Value("#new-tag"); got != "half" || p.Text("#discard") == "" {
		t.Errorf("the field has %q, and %q discards it", got, p.Text("#discard"))
	}
	p.PressAt("#save")
	p.Await("#link-tags", "half")
	tags("mine", "half")

	p.GoTo("#/new", "#link-title", "New link")
	p.Fill("#longUrl", "https://example.com/other")
	p.Fill("#alias", "other")
	p.Fill("#new-tag", "first")
	p.PressAt("#save")
	p.Await("#link-short", "/other")
	tags("other", "first")
}

// Text typed while an edit is being saved stays, and the page treats it as separate from that edit.
func TestManageTypingWhileSaving(t *testing.T) {
	t.Parallel()
	s := serve(t)
	key := s.keyOf(t, "ada")
	s.put(t, key, "mine", "")
	s.put(t, key, "other", `,"title":"Other"`)
	p := s.manage(t, key)
	title := func(alias, want string) {
		t.Helper()
		if got := s.read(t, alias).Title; got != want {
			t.Errorf("the title of %s is %q, want %q", alias, got, want)
		}
	}
	open := func(alias string) {
		t.Helper()
		p.openLink(alias)
		p.Await("#stats-body", "No clicks") // their arrival moves the form
	}
	open("mine")
	p.Fill("#title", "First")
	p.Hold("PATCH")
	p.PressAt("#save")
	p.AwaitTrue("window.release")
	p.Fill("#new-tag", "half")
	p.to("#title")
	p.Press(kb.End + " and")
	p.Release()
	p.Await("#toast", "Saved, but for what you typed meanwhile")
	p.Press(" more") // the cursor is where it was
	if got := p.Value("#title") + ", " + p.Value("#new-tag"); got != "First and more, half" {
		t.Errorf("what was typed became %q", got)
	}
	title("mine", "First")
	p.Await("#discard", "Discard")
	p.PressAt("#save")
	p.AwaitTrue(find("#link-title") + `.textContent === "First and more"`)
	title("mine", "First and more")

	// The same holds if another view is shown by then.
	p.Fill("#title", "Second")
	p.Hold("PATCH")
	p.PressAt("#save")
	p.AwaitTrue("window.release")
	p.Fill("#title", "Second and third")
	open("other")
	p.Release()
	p.Await("#toast", "Saved")
	if got := p.Value("#title") + p.Text("#link-title"); got != "OtherOther" {
		t.Errorf("the other link has become %q", got)
	}
	title("mine", "Second")
	open("mine")
	p.Await("#discard", "Discard")
	if got := p.Value("#title"); got != "Second and third" {
		t.Errorf("what was typed became %q", got)
	}
	p.Click("#discard")
	if got := p.Value("#title"); got != "Second" {
		t.Errorf("it was saved as %q", got)
	}
	p.Hold("PATCH")
	p.Click("#link-disable")
	p.AwaitTrue("window.release")
	open("other")
	p.Release()
	p.AwaitTrue("!" + find("#link-disable") + ".ariaBusy")
	if got := p.Text("#link-state"); got != "Live" {
		t.Errorf("the other link is %s", got)
	}

	// Text typed while a new link is being made is kept at that link.
	p.GoTo("#/new", "#link-title", "New link")
	p.Fill("#longUrl", "https://example.com/new")
	p.Fill("#alias", "new")
	p.Hold("POST")
	p.PressAt("#save")
	p.AwaitTrue("window.release")
	p.Fill("#title", "Meanwhile")
	p.Release()
	p.Await("#link-short", "/new")
	p.Await("#toast", "What you typed is there, and not saved yet.")
	p.Await("#discard", "Discard")
	if got := p.Value("#title"); got != "Meanwhile" || s.read(t, "new").Title != "" {
		t.Errorf("what was typed became %q", got)
	}
	p.GoTo("#/new", "#link-title", "New link")
	if got := p.Value("#longUrl") + p.Value("#title"); got != "" {
		t.Errorf("the next link begins with %q", got)
	}
}

// Somebody makes a link of a URL that already has one. The page keeps what they typed, at that
// link.
func TestManageNewLinkOfAURLThatHasOne(t *testing.T) {
	t.Parallel()
	s := serve(t)
	key := s.keyOf(t, "ada")
	s.put(t, key, "mine", `,"title":"Before"`)
	s.as(t, key, "POST", "/api/shorten", `{"longUrl":"https://example.com/drawn","title":"Before"}`)
	p := s.manage(t, key)
	p.GoTo("#/new", "#link-title", "New link")
	p.Fill("#longUrl", "example.com/drawn")
	p.Fill("#title", "After")
	p.Fill("#new-tag", "tag")
	Eval[any](p, find("#expiresAtUtc")+`.value = "2040-05-06T07:08"`)
	p.PressAt("#save")
	p.Await("#toast", "You had a link of this URL already. What you typed is there, and not "+
		"saved yet.")
	p.Await("#link-title", "Before")
	p.Await("#discard", "Discard")
	got := strings.Join([]string{p.Value("#longUrl"), p.Value("#title"), p.Text("#chips bdi"),
		p.Value("#expiresAtUtc")}, " ")
	if got != "https://example.com/drawn After tag 2040-05-06T07:08" {
		t.Errorf("the form has %q", got)
	}
	p.Check("a link that was there")
	p.PressAt("#save")
	p.Await("#link-title", "After")
	alias := Eval[string](p, `location.hash.split("/")[2]`)
	if l := s.read(t, alias); l.Title != "After" || !slices.Equal(l.Tags, []string{"tag"}) ||
		l.ExpiresAtUTC == "" {
		t.Errorf("the link is %+v", l)
	}
}

// Somebody types the next URL while a link is being made. The URL and the focus stay.
func TestTypingWhileShortening(t *testing.T) {
	t.Parallel()
	s, p := serve(t), chromium.New(t)
	p.Open(s.url)
	p.Hold("POST")
	p.Fill("#url", "https://example.com/first")
	p.Fill("#alias", "first")
	p.to("#url")
	p.Press(kb.Enter)
	p.AwaitTrue("window.release")
	p.Fill("#url", "https://example.com/")
	p.Release()
	p.Await("#short", "/first")
	p.Press("second")
	if got := p.Value("#url") + p.Value("#alias"); got != "https://example.com/second" {
		t.Errorf("the form has %q", got)
	}
	p.Press(kb.Enter)
	p.AwaitTrue(find("#long") + `.textContent === "https://example.com/second"`)
	p.wantFocus("copy")
	if got := p.Value("#url"); got != "" {
		t.Errorf("the form has %q", got)
	}
}
