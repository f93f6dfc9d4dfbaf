package browser

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp/kb"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/oidcprovider"
	"tiney/internal/testing/testutil"
)

// as sends a request to the API with a credential, and returns the members of the response. The
// test fails if the status is not 2xx.
func (s *site) as(t *testing.T, token, method, target, body string) map[string]any {
	t.Helper()
	var members map[string]any
	testutil.Eventually(t, method+" "+target, func() bool {
		got, err := testutil.Send(method, s.url+target, body, "Authorization", "Bearer "+token,
			"Content-Type", "application/json")
		if err != nil || got.Status == 503 { // a busy machine
			return false
		}
		if got.Status/100 != 2 {
			t.Fatalf("%s %s: %+v", method, target, got)
		}
		_ = json.Unmarshal([]byte(got.Body), &members)
		return true
	})
	return members
}

// clickTwice clicks a button while storage is down and awaits the notice of that. Then it clicks
// again with storage back, and awaits the text done.
func (s *site) clickTwice(p *Page, button, notice, done string) {
	s.down(true)
	p.Click(button)
	p.Await(notice, "Try again in a moment")
	s.down(false)
	p.Click(button)
	p.Await("#toast", done)
}

// stored is a link as an admin reads it. Null members are "".
type stored struct {
	LongURL, Title, Owner, ExpiresAtUTC string
	Tags, Forward                       []string
	StatusCode                          int
}

func (s *site) read(t *testing.T, alias string) (l stored) {
	t.Helper()
	members, err := json.Marshal(s.as(t, adminKey, "GET", "/api/links/"+alias, ""))
	if err == nil {
		err = json.Unmarshal(members, &l)
	}
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// keyOf makes an owner a key.
func (s *site) keyOf(t *testing.T, owner string) string {
	t.Helper()
	key, _ := s.as(t, adminKey, "POST", "/api/keys",
		fmt.Sprintf(`{"name":"%s's key","owner":%[1]q}`, owner))["key"].(string)
	return key
}

// put makes a link that belongs to the key's owner. more has further members of the request.
func (s *site) put(t *testing.T, key, alias, more string) {
	t.Helper()
	s.as(t, key, "POST", "/api/shorten",
		fmt.Sprintf(`{"longUrl":"https://example.com/%s","alias":%[1]q%s}`, alias, more))
}

// fill puts links of ada, the oldest of which is link00.
func (s *site) fill(links int, change func(i int, l *link.Link)) {
	for i := range links {
		alias := fmt.Sprintf("link%02d", i)
		l := link.Link{Name: link.Name(alias), LongURL: "https://example.com/" + alias,
			Owner: "ada", CreatedAt: time.Now().Add(time.Duration(i-60) * time.Second)}
		change(i, &l)
		s.PutLink(l)
	}
}

// awaitClicks reads the statistics of a view until they have clicks.
func (p *Page) awaitClicks() {
	p.t.Helper()
	testutil.Eventually(p.t, "the click is shown", func() bool {
		p.Click("#stats-again")
		p.AwaitTrue("!" + find("#stats-body") + ".ariaBusy")
		return p.Text("#stats summary") != ""
	})
}

// manage opens /manage in a browser, and signs in with a key.
func (s *site) manage(t *testing.T, key string) *Page {
	t.Helper()
	p := chromium.New(t)
	p.Open(s.url + "/manage")
	p.wantFocus("key")
	p.Press(key + kb.Enter)
	p.Await("#list-title", "Links")
	p.AwaitTrue("!" + find("#list-rows") + `.ariaBusy`)
	return p
}

// GoTo goes to another view of /manage by its address, which begins with #, and waits for a text.
func (p *Page) GoTo(hash, selector, part string) {
	p.t.Helper()
	Eval[any](p, "void (location.hash = "+quote(hash)+")")
	p.Await(selector, part)
}

// openLink goes to the view of a link, and waits for its form, which comes last.
func (p *Page) openLink(alias string) {
	p.t.Helper()
	p.GoTo("#/link/"+alias+"?edit", "#link-short", "/"+alias)
	p.AwaitTrue(find("#form") + ".checkVisibility()")
}

// edit opens the form of the link that is shown.
func (p *Page) edit() {
	p.t.Helper()
	p.AwaitTrue(find("#link-edit") + ".checkVisibility()")
	p.Click("#link-edit")
	p.AwaitTrue(find("#form") + ".checkVisibility()")
}

// Value returns what is in a field.
func (p *Page) Value(selector string) string {
	p.t.Helper()
	return Eval[string](p, find(selector)+".value")
}

// wantFocus waits until an element has the focus.
func (p *Page) wantFocus(id string) {
	p.t.Helper()
	p.AwaitTrue(`document.activeElement?.id === ` + quote(id))
}

// Somebody signs in and makes a link of their own with the keyboard alone.
func TestManageSignInAndMakeALink(t *testing.T) {
	t.Parallel()
	s, p := serveStored(t), chromium.New(t)
	key := s.keyOf(t, "ada")
	p.Open(s.url + "/manage")
	p.wantFocus("key")
	p.Check("sign in")
	look(t, p, "manage-signin")
	p.Press(kb.Enter)
	p.Await("#key-error", "Paste your API key here")
	p.Press("tny_wrong" + kb.Enter)
	p.Await("#key-error", "This key is not valid")
	p.Check("sign in, wrong")
	p.Fill("#key", "tnc_"+strings.Repeat("0", 43))
	p.Press(kb.Enter)
	p.Await("#key-error", "claim token of a single link")
	p.Fill("#key", key)
	p.Press(kb.Enter)
	p.Await("#list-empty", "No links yet")
	p.Await("#who", "ada")
	if p.Text(`[href="#/cleanup"]`)+p.Text("#owner-field") != "" {
		t.Error("an owner is shown what is an admin's")
	}
	p.Check("no links")
	look(t, p, "manage-empty")

	p.Click("#list-empty .button")
	p.wantFocus("longUrl")
	p.Check("new link")
	p.Press(kb.Enter)
	p.Await("#longUrl-error", "Paste the long URL here first")
	p.Press("example.com/handbook" + kb.Tab + "not one" + kb.Tab + "The handbook" + kb.Tab +
		"team, other" + kb.Enter + kb.Enter)
	p.Await("#alias-error", "An alias has 1 to 100")
	p.wantFocus("alias")
	p.Check("new link, wrong")
	look(t, p, "manage-new")
	p.Fill("#alias", "handbook")
	p.Press(kb.Enter)
	p.Await("#link-short", "/handbook")
	p.Await("#link-long", "https://example.com/handbook")
	p.Await("#link-title", "The handbook")
	p.Await("#link-tags", "other")
	p.Await("#toast", "Your link is ready")
	if got := Eval[string](p, "document.title"); got != "handbook – tiney" {
		t.Errorf("the title is %q", got)
	}
	p.Click("#link-copy")
	p.Await("#toast", "Copied")
	if got := Eval[string](p, "navigator.clipboard.readText()"); got != s.url+"/handbook" {
		t.Errorf("copied %q", got)
	}
	p.AwaitTrue(find("#link-qr") + ".naturalWidth > 0")
	if got := scan(t, p.Shot("#link-qr")); got != s.url+"/handbook" {
		t.Errorf("the QR code says %q", got)
	}
	for id, want := range map[string]string{"svg": "image/svg+xml handbook.svg",
		"png": "image/png handbook.png"} {
		got := Eval[string](p, `fetch(document.querySelector("#link-`+id+
			`").href).then((r) => r.headers.get("Content-Type") + " " + `+
			`document.querySelector("#link-`+id+`").download)`)
		if got != want {
			t.Errorf("%s: %q", id, got)
		}
	}
	if l := s.read(t, "handbook"); l.Owner != "ada" || l.Title != "The handbook" ||
		!slices.Equal(l.Tags, []string{"team", "other"}) || l.ExpiresAtUTC != "" {
		t.Errorf("the link is %+v", l)
	}
	p.GoTo("#/new", "#link-title", "New link")
	p.Press("https://example.com/other" + kb.Tab + "handbook" + kb.Enter)
	p.Await("#alias-error", "There is a link with this alias")

	// Somebody who signs out is asked about typed text that is not saved, in whichever view it is.
	p.GoTo("#/", "#list-title", "Links")
	p.Click("#sign-out")
	p.AwaitTrue(find("#list") + ".checkVisibility()")
	p.GoTo("#/new", "#link-title", "New link")
	asked := strings.Join(p.Agree(true), "; ")
	if asked != "What you typed is not saved. Sign out, and lose it?" ||
		p.Value("#alias") != "handbook" {
		t.Errorf("the browser asked %q, and the alias is %q", asked, p.Value("#alias"))
	}
	p.Click("#sign-out")
	p.Await("#signin-says", "You are signed out")
	left := Eval[string](p, `JSON.stringify(sessionStorage) + document.body.innerText`)
	if strings.Contains(left, "tny_") || strings.Contains(left, "handbook") {
		t.Errorf("something is left: %s", left)
	}
	p.GoTo("#/link/handbook", "#signin-title", "Sign in")
}

func TestManageList(t *testing.T) {
	t.Parallel()
	s := serveStored(t)
	key := s.keyOf(t, "ada")
	s.fill(55, func(i int, l *link.Link) {
		if i%10 == 0 {
			l.Title, l.Tags = "Tenth ΣΊΣΥΦΟΣ", []string{"ten", "round"}
		}
	})
	s.as(t, key, "PATCH", "/api/links/link20", `{"disabled":true}`)
	s.as(t, key, "DELETE", "/api/links/link30", "")
	s.put(t, s.keyOf(t, "bob"), "bobs", "")
	p := s.manage(t, key)
	p.Await("#list-count", " links")
	rows := func() string {
		return Eval[string](p, `[...document.querySelectorAll("#list-rows li > .what > `+
			`a")].map((a) => a.textContent.split("/")[1]).join(" ")`)
	}
	if got := rows(); !strings.HasPrefix(got, "link54 link53") || strings.Contains(got, "link30") {
		t.Errorf("listed are %s", got)
	}
	p.Check("list")
	Eval[any](p, "scrollTo(0, document.body.scrollHeight)")
	p.Await("#list-count", "54 links")
	if p.Text("#list-more") != "" {
		t.Error("it offers more")
	}
	p.GoTo("#/link/link02", "#link-short", "/link02")
	p.Click("#link-back")
	for i, test := range []struct{ field, value, want string }{
		{"q", "ink0", "link09 link08 link07 link06 link05 link04 link03 link02 link01 link00"},
		{"q", "σίσυφος", "link50 link40 link20 link10 link00"},
		{"tag", "ten", "link50 link40 link20 link10 link00"},
		{"state", "disabled", "link20"},
		{"state", "deleted", "link30"},
	} {
		// The list keeps what was loaded before, but starts again after another search.
		p.GoTo("#/", "#list-count", map[bool]string{true: "54 links",
			false: " links"}[i == 0])
		if test.field == "state" {
			Eval[any](p, find("#state")+".value = "+quote(test.value)+`, `+find("#state")+
				`.dispatchEvent(new Event("input", { bubbles: true }))`)
		} else {
			p.Fill("#"+test.field, test.value)
		}
		testutil.Eventually(t, test.value+" is found", func() bool { return rows() == test.want })
	}
	p.Await("#list-rows", "Deleted")
	p.Check("list of deleted links")
	p.Click("#list-rows .what > a")
	p.Await("#link-state", "Deleted")
	p.Click("#link-back") // to the filtered list
	p.Await("#list-count", "1 link")
	p.Click(`#list-rows .tag`)
	p.Await("#list-count", "5 matches")
	if p.Value("#tag") != "ten" && p.Value("#tag") != "round" || p.Value("#state") != "" {
		t.Errorf("the tag is %q, the state %q", p.Value("#tag"), p.Value("#state"))
	}
	p.Fill("#q", "nothing is like this")
	p.Await("#list-empty", "No links match")
	p.Check("nothing found")
	look(t, p, "manage-nothing")
	p.Click("#list-empty .button")
	p.Await("#list-count", " links")

	// A short URL finds its link, both as copied and as displayed.
	for _, pasted := range []string{s.url + "/link07", strings.TrimPrefix(s.url, "http://") +
		"/link07"} {
		p.Fill("#q", pasted)
		testutil.Eventually(t, pasted+" is found", func() bool { return rows() == "link07" })
		p.Fill("#q", "nothing is like this")
		p.Await("#list-empty", "No links match")
	}

	// An admin sees any owner's links.
	admin := s.manage(t, adminKey)
	admin.Await("#list-empty", "Name an owner above to see theirs")
	admin.Fill("#owner", "bob")
	admin.Await("#list-rows", "/bobs")
	admin.Check("an admin's list")
	look(t, admin, "manage-admin")
	admin.AwaitTrue(`[...document.querySelectorAll("#known-owners option")].map((o) => o.value)` +
		`.sort().join() === "ada,bob"`)
	admin.Fill("#q", "link07")
	admin.Await("#list-empty", "Open link07 (any owner)")
	admin.Fill("#q", s.url+"/link08")
	admin.Await("#list-empty", "Open link08 (any owner)")
	admin.Click("#list-empty .button:last-child")
	admin.Await("#link-about", "owner ada")
}

// After going back from a link, the list has its scroll position and its focus again.
func TestManageBackToTheList(t *testing.T) {
	t.Parallel()
	s := serveStored(t)
	s.fill(55, func(int, *link.Link) {})
	p := s.manage(t, s.keyOf(t, "ada"))
	visit := func(link string) {
		t.Helper()
		Eval[any](p, find(link)+`.scrollIntoView({ block: "center" })`)
		y := Eval[float64](p, "scrollY")
		p.Click(link)
		p.Await("#link-state", "Live")
		p.AwaitTrue("scrollY === 0")
		p.wantFocus("link-title")
		Eval[any](p, "void history.back()")
		p.AwaitTrue(find("#list-rows") + ".checkVisibility()")
		// A short list is loaded again.
		p.AwaitTrue(fmt.Sprintf(`!%s.ariaBusy && document.activeElement === %s && scrollY === %v`,
			find("#list-rows"), find(link), y))
		if y == 0 {
			t.Errorf("the list is not scrolled to %s", link)
		}
	}
	visit(`#list-rows a[href="#/link/link20"]`)
	Eval[any](p, "scrollTo(0, document.body.scrollHeight)")
	p.Await("#list-count", "55 links")
	visit(`#list-rows a[href="#/link/link02"]`)
	p.Click(`#list-rows a[href="#/link/link01"]`)
	p.wantFocus("link-title")
	Eval[any](p, `void `+find("#tabs a")+`.click()`)
	p.AwaitTrue(`document.activeElement === ` + find(`#list-rows a[href="#/link/link01"]`))
	p.GoTo("#/?q=07", "#list-count", "1 match")
	p.wantFocus("list-title")
}

// An address that names no view shows the list, even if JavaScript objects have a property of that
// name.
func TestManageAddresses(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := s.manage(t, s.keyOf(t, "ada"))
	for _, name := range []string{"constructor", "__proto__", "toString", "nothing", "link",
		"link/a.b"} {
		p.GoTo("#/new", "#link-title", "New link")
		p.GoTo("#/"+name, "#list-empty", "No links yet")
	}
}

// Times are in the reader's time zone, which is named. Days are in UTC, and labelled so.
func TestManageTimes(t *testing.T) {
	t.Parallel()
	s := serve(t, "CLICKS_FLUSH_SECONDS=1")
	key := s.keyOf(t, "ada")
	s.put(t, key, "clicked", `,"expiresAtUtc":"2040-05-06T20:08:00Z"`)
	s.visit(t, "clicked", firefox, "")
	p := chromium.New(t)
	Emulate(p, emulation.SetTimezoneOverride,
		emulation.SetTimezoneOverrideParams{TimezoneID: "Asia/Kabul"})
	p.Open(s.url + "/manage#/link/clicked")
	p.wantFocus("key")
	p.Press(key + kb.Enter)
	p.Await("#link-about", "expires May 7, 2040, 12:38 AM GMT+4:30")
	p.edit()
	if got := p.Text("#expires-hint") + ": " +
		p.Value("#expiresAtUtc"); got != "Asia/Kabul time. Leave empty for never.: 2040-05-07T00:38" {
		t.Errorf("the field says %s", got)
	}
	p.awaitClicks()
	if got := p.Text("#stats-figures"); !strings.Contains(got, "Daily visitors") ||
		!strings.Contains(Eval[string](p, find("#stats-figures time")+".title"), "GMT+4:30") {
		t.Errorf("the figures are %s", got)
	}
	p.Click("#stats summary")
	for value, want := range map[string]*regexp.Regexp{
		"30 day": regexp.MustCompile(`^Clicks, by day \(UTC\); Day \(UTC\); [A-Z]\w\w \d+$`),
		"1 hour": regexp.MustCompile(`^Clicks, by hour \(Asia/Kabul\); Hour \(Asia/Kabul\); .*, ` +
			`04:30 AM$`),
	} {
		Eval[any](p, find("#stats-range")+".value = "+quote(value)+`,
			`+find("#stats-range")+`.dispatchEvent(new Event("change", { bubbles: true }))`)
		p.AwaitTrue("!" + find("#stats-body") + ".ariaBusy")
		if got := Eval[string](p, `["#stats figcaption", "#stats th", "#stats tbody th"]
			.map((s) => document.querySelector(s).firstChild.textContent).join("; ")`); !want.MatchString(got) {
			t.Errorf("%s: %s", value, got)
		}
	}
	p.GoTo("#/keys", "#keys-rows", "last used on ")
	got := p.Text("#keys-rows") + p.Text("#key-new")
	if !strings.Contains(got, " (UTC) ") || !strings.Contains(got, "GMT+4:30") ||
		!strings.Contains(got, "Asia/Kabul time") {
		t.Errorf("keys have %s", got)
	}
}

// A printed page has all of the statistics and no controls.
func TestManageOnPaper(t *testing.T) {
	t.Parallel()
	s := serve(t, "CLICKS_FLUSH_SECONDS=1")
	key := s.keyOf(t, "ada")
	s.put(t, key, "clicked", "")
	s.visit(t, "clicked", firefox, "")
	p := s.manage(t, key)
	p.GoTo("#/link/clicked", "#link-short", "/clicked")
	p.awaitClicks()
	p.Click("#stats summary")
	p.Await("#stats table", "Day (UTC)")
	p.Check("the table is open")
	Emulate(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	const pressable = `[...document.querySelectorAll("button, .button, input, nav, #form, #link-back")]
		.filter((e) => e.checkVisibility()).map((e) => e.outerHTML).join()`
	if got := Eval[string](p, pressable); got != "" {
		t.Errorf("to press there is %s", got)
	}
	cut := Eval[int](p, find("#stats .scroll")+".scrollHeight - "+find("#stats .scroll")+
		".clientHeight")
	if cut != 0 || p.Text("#stats tbody tr:last-child") == "" {
		t.Errorf("the table is cut by %d pixels", cut)
	}
	p.Open(s.url)
	p.AwaitTrue(find("#history") + ".checkVisibility()")
	if got := Eval[string](p, pressable); got != "" {
		t.Errorf("to press there is %s", got)
	}
}

func TestManageEdit(t *testing.T) {
	t.Parallel()
	s := serveStored(t)
	key := s.keyOf(t, "ada")
	s.put(t, key, "mine", `,"title":"Before","tags":["with, a comma"]`)
	p := s.manage(t, key)
	p.Click("#list-rows .what > a")
	p.Await("#link-title", "Before")
	p.wantFocus("link-title")
	p.Check("a link")
	style := func(of, name string) string {
		return Eval[string](p, "getComputedStyle("+find(of)+")."+name)
	}
	if style("#link-delete", "color") == style("#link-preview", "color") {
		t.Error("Delete looks like Preview")
	}
	if p.Text("#discard") != "" {
		t.Error("there is nothing to discard")
	}
	p.edit()
	p.Fill("#longUrl", "http://1.2.3.08/")
	p.Press(kb.Enter)
	p.Await("#longUrl-error", "The URL is not valid for a browser")
	p.wantFocus("longUrl")
	p.Check("an edit that is wrong")
	p.Fill("#longUrl", "example.com/after")
	p.Fill("#title", "After")
	p.Fill("#new-tag", "new")
	p.Press(kb.Enter)
	p.Await("#chips", "new")
	Eval[any](p, find("#expiresAtUtc")+`.value = "2040-05-06T07:08"`)
	Eval[any](p, find("#statusCode")+`.value = "301"`)
	p.Click("#save")
	p.Await("#toast", "Saved")
	p.Await("#link-title", "After")
	l := s.read(t, "mine")
	at := Eval[string](p, `new Date("2040-05-06T07:08").toISOString().replace(".000", "")`)
	if l.LongURL != "https://example.com/after" || l.Title != "After" || l.StatusCode != 301 ||
		!slices.Equal(l.Tags, []string{"with, a comma", "new"}) || l.ExpiresAtUTC != at {
		t.Errorf("it became %+v, with %s", l, at)
	}
	p.Click("#save")
	p.Await("#toast", "Nothing has changed")
	p.Click("#never")
	p.Click(`#chips [aria-label="Remove the tag new"]`)
	p.Press(kb.Tab)
	Eval[any](p, find("#title")+`.select()`)
	p.Press("\b" + kb.Enter)
	p.Await("#toast", "Saved")
	p.Await("#link-about", "never expires")
	if l := s.read(t, "mine"); l.ExpiresAtUTC != "" ||
		!slices.Equal(l.Tags, []string{"with, a comma"}) {
		t.Errorf("it became %+v", l)
	}

	// Typed text stays while the user looks at another view.
	p.Fill("#longUrl", "https://example.com/typed")
	p.GoTo("#/keys", "#keys-rows", "ada's key")
	p.openLink("mine")
	if got := p.Value("#longUrl"); got != "https://example.com/typed" {
		t.Errorf("what was typed became %q", got)
	}

	// Somebody else edits it too.
	s.as(t, key, "PATCH", "/api/links/mine",
		`{"title":"<b>Theirs</b>","longUrl":"https://example.com/theirs"}`)
	p.Click("#save")
	p.Await("#conflict", "this link was changed meanwhile")
	p.Await("#conflict", "<b>Theirs</b> (it was")
	p.Await("#conflict", "https://example.com/theirs (it was https://example.com/after)")
	p.wantFocus("keep-typed")
	if got := p.Text("#toast"); got != "" {
		t.Errorf("it says %q as well", got)
	}
	if style("#conflict", "backgroundColor") != style("#link-wrong", "backgroundColor") {
		t.Error("what was not saved looks as if it were")
	}
	p.Check("a conflict")
	look(t, p, "manage-conflict")
	p.Press(kb.Enter)
	p.wantFocus("save")
	if p.Value("#longUrl") != "https://example.com/typed" || p.Value("#title") != "<b>Theirs</b>" {
		t.Errorf("the form has %q and %q", p.Value("#longUrl"), p.Value("#title"))
	}
	p.Press(kb.Enter)
	p.Await("#toast", "Saved")
	if l := s.read(t, "mine"); l.LongURL != "https://example.com/typed" ||
		l.Title != "<b>Theirs</b>" {
		t.Errorf("it became %+v", l)
	}
	p.Fill("#title", "Mine")
	s.as(t, key, "PATCH", "/api/links/mine", `{"title":"Theirs"}`)
	p.Click("#save")
	p.Await("#conflict", "this link was changed meanwhile")
	p.Click("#drop-typed")
	p.Await("#link-title", "Theirs")
	if got := p.Value("#title"); got != "Theirs" || p.Text("#conflict") != "" {
		t.Errorf("the form has %q", got)
	}

	// Disable, enable, delete, undo.
	s.as(t, key, "PATCH", "/api/links/mine", `{"title":"Once more"}`)
	p.Fill("#longUrl", "https://example.com/unsaved")
	p.Click("#link-disable")
	p.Await("#link-wrong", "Here it is as it is now")
	p.Await("#link-title", "Once more")
	p.Click("#link-disable")
	p.Await("#link-state", "Disabled")
	if status, _ := s.status(t, "/mine"); status != 410 ||
		p.Value("#longUrl") != "https://example.com/unsaved" {
		t.Errorf("a disabled link is %d, the form has %q", status, p.Value("#longUrl"))
	}
	p.Check("disabled")
	p.Click("#link-disable")
	p.Await("#link-state", "Live")
	p.Click("#link-delete")
	p.Await("#link-state", "Deleted")
	p.wantFocus("link-undo")
	p.Check("deleted")
	look(t, p, "manage-deleted")
	if status, _ := s.status(t, "/mine"); status != 410 {
		t.Errorf("a deleted link is %d", status)
	}
	p.Press(kb.Enter)
	p.Await("#link-state", "Live")
	p.wantFocus("link-delete")
	if status, _ := s.status(t, "/mine"); status != 302 && status != 301 {
		t.Errorf("a restored link is %d", status)
	}
	if got := p.Value("#longUrl"); got != "https://example.com/unsaved" {
		t.Errorf("what was typed became %q", got)
	}
	p.Click("#discard")
	if got := p.Value("#longUrl"); got != "https://example.com/typed" {
		t.Errorf("after discarding it has %q", got)
	}

	for alias, want := range map[string]string{"nobody": "No such link", "bobs": "No such link"} {
		if alias == "bobs" {
			s.put(t, s.keyOf(t, "bob"), alias, "")
		}
		p.GoTo("#/link/"+alias, "#link-problem", want)
		p.Check(want)
		if p.Text("#form")+p.Text("#link-card") != "" {
			t.Errorf("%s: something of another link is shown", alias)
		}
	}

	// A link that the service has given to somebody else as well.
	s.PutLink(link.Link{Name: "shared", LongURL: "https://example.com/shared", Owner: "ada",
		Shared: true})
	p.GoTo("#/link/shared", "#link-shared", "it cannot end earlier, be disabled or be deleted")
	p.Check("shared")
	look(t, p, "manage-shared")
	if p.Text("#link-disable")+p.Text("#link-delete") != "" || !Eval[bool](p, find("#longUrl")+
		".readOnly") {
		t.Error("it offers what is refused")
	}
	p.edit()
	Eval[any](p, find("#expiresAtUtc")+`.value = "2040-05-06T07:08"`)
	p.Click("#save")
	p.Await("#form-problem", "This link is shared")
	admin := s.manage(t, adminKey)
	admin.GoTo("#/link/shared", "#link-shared", "you, an admin, can")
	admin.Click("#link-disable")
	admin.Await("#link-state", "Taken down")
	admin.GoTo("#/new", "#link-title", "New link") // nothing of that link is left in the form
	if Eval[bool](admin, find("#longUrl")+".readOnly || "+find("#longUrl")+`.value !== ""`) {
		t.Error("the form is still that of the other link")
	}
}

const (
	firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	iphone  = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 " +
		"(KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1"
	bot = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
)

func (s *site) visit(t *testing.T, alias, agent, referrer string) {
	t.Helper()
	if got, err := testutil.Send("GET", s.url+"/"+alias, "", "User-Agent", agent, "Referer",
		referrer); err != nil || got.Status != 302 {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestManageStatistics(t *testing.T) {
	t.Parallel()
	s := serveStored(t, "CLICKS_FLUSH_SECONDS=1")
	key := s.keyOf(t, "ada")
	s.put(t, key, "clicked", "")
	p := chromium.New(t)
	// The link is opened directly, since the clicks in the list may be a minute old.
	p.Open(s.url + "/manage#/link/clicked")
	p.wantFocus("key")
	p.Press(key + kb.Enter)
	p.Await("#stats-body", "No clicks in this time")
	p.Check("no clicks")
	s.visit(t, "clicked", firefox, "https://news.example/story")
	p.Await("#stats-figures", "Daily visitors") // the first click shows by itself
	p.Await("#stats-body", "news.example")
	s.visit(t, "clicked", firefox, `https://<img src=x onerror=alert(1)>/`)
	s.visit(t, "clicked", iphone, "")
	s.visit(t, "clicked", bot, "")
	figures := func() string {
		p.Click("#stats-again")
		p.AwaitTrue(`!` + find("#stats-body") + `.ariaBusy`)
		return Eval[string](p, `[...document.querySelectorAll("#stats-figures dd")].slice(0, 3)`+
			`.map((dd) => dd.textContent).join()`)
	}
	// clicks, visitors, bots
	testutil.Eventually(t, "all clicks are counted", func() bool { return figures() == "3,2,1" })
	for _, want := range []string{"Firefox\n2", "Safari\n1", "Linux\n2", "iOS\n1", "desktop\n2",
		"mobile\n1", "news.example\n1", "(direct)\n1", "(other)\n1", "(unknown)\n3"} {
		if got := p.Text(".dimensions"); !strings.Contains(got, want) {
			t.Errorf("without %q:\n%s", want, got)
		}
	}
	p.Check("statistics")
	look(t, p, "manage-statistics")
	bars := func(chart string) string {
		return Eval[string](p, `(() => { const bars = [...document.querySelectorAll(`+
			quote(chart+" .bar")+`)]; return bars.length + ": " + bars.filter((b) => `+
			`b.getBoundingClientRect().height > 0).length; })()`)
	}
	if people, bots := bars(".chart.clicks"), bars(".chart.bots"); people != "30: 1" ||
		bots != "30: 1" {
		t.Errorf("the charts have %s and %s bars", people, bots)
	}
	label := Eval[string](p, `document.querySelector(".chart.clicks svg").ariaLabel`)
	if !strings.HasPrefix(label, "Clicks, by day (UTC): 3 in all, peak 3 on ") {
		t.Errorf("the chart is described as %q", label)
	}
	p.Click("#stats summary")
	p.Await("#stats table", "Day (UTC)")
	if got := Eval[string](p, `[...document.querySelector("#stats tbody tr:last-child")`+
		`.cells].slice(1).map((c) => c.textContent).join()`); got != "3,1,2" {
		t.Errorf("today is %s in the table", got)
	}
	p.Check("statistics as a table")
	choose := func(value, awaits string) {
		t.Helper()
		Eval[any](p, find("#stats-range")+".value = "+quote(value)+`, `+find("#stats-range")+
			`.dispatchEvent(new Event("change", { bubbles: true }))`)
		p.AwaitTrue(`document.querySelectorAll(".chart.clicks .bar").length === ` + awaits)
	}
	choose("7 hour", "168")
	choose("1 hour", "24")
	p.Await("#stats table", "–") // it is still open; visitors are counted by day
	figures()
	p.Await("#stats table", "–")
	choose("365 day", "365")
	p.Check("a year of statistics")

	Eval[any](p, `(() => { const make = URL.createObjectURL; URL.createObjectURL = (blob) => { `+
		`window.saved = blob; return make(blob); }; })()`)
	choose("7 day", "7")
	p.Click("#stats-csv")
	p.Await("#toast", "Saved as a file")
	if got := Eval[string](p, `window.saved.text()`); !strings.HasPrefix(got,
		"at,clicks,bots,visitors\r\n") || !strings.HasSuffix(got, "T00:00:00Z,3,1,2\r\n") ||
		strings.Count(got, "\n") != 8 {
		t.Errorf("the file is %q", got)
	}

	// The first response is that the links are not known yet.
	p.GoTo("#/", "#list-rows", "/clicked")
	Eval[any](p, `(() => { const real = fetch; let calls = 0; window.fetch = (url, options) => `+
		`String(url).includes("/api/stats/top") && calls++ === 0 ? new Response(JSON.stringify(`+
		`{ type: "/problems/computing", title: "Not yet", status: 503, detail: "" }), `+
		`{ status: 503, headers: { "Retry-After": "5" } }) : real(url, options); })()`)
	p.choose("#order", "24h")
	p.Await("#list-count", "Being computed")
	p.Check("top links that are being computed")
	p.Await("#list-count", "with the most clicks, counted ")
	p.Click("#list-rows .what > a")
	p.Await("#link-short", "/clicked")
	p.Click("#link-back")
	p.Await("#list-rows .clicks", "click")

	p.GoTo("#/clicks", "#stats-body", "Firefox")
	testutil.Eventually(t, "all clicks of all links are counted", func() bool {
		return figures() == "3,2,1"
	})
	if got := p.Text("#link-title") + p.Text("#link-card") + p.Text("#form"); got != "Statistics" {
		t.Errorf("with the clicks of all links it shows %q", got)
	}
	p.Check("statistics of all links")
	look(t, p, "manage-all-clicks")

	p.Width(320)
	p.GoTo("#/link/clicked", "#stats-body", "Firefox")
	p.Check("statistics, narrow")
	look(t, p, "manage-narrow-statistics")
}

// The list does not depend on clicks.
func TestManageListWithoutClicks(t *testing.T) {
	t.Parallel()
	s := serveStored(t)
	key := s.keyOf(t, "ada")
	s.put(t, key, "mine", "")
	others := []string{s.Links, s.Owners, s.Keys, s.State}
	s.storage.Before(func(c faultproxy.Call) faultproxy.Fault {
		if slices.Contains(others, c.Target) {
			return faultproxy.None
		}
		return faultproxy.Refuse
	})
	p := s.manage(t, key)
	p.Await("#list-rows", "/mine")
	p.Await("#list-rows .clicks", "–")
	if got := Eval[string](p, find("#list-rows .clicks")+".title"); !strings.Contains(got,
		"cannot be read") {
		t.Errorf("the reason is %q", got)
	}
	p.Check("a list without clicks")
	s.down(false)
	p.GoTo("#/keys", "#keys-rows", "ada's key")
	p.GoTo("#/", "#list-rows", "/mine")
	p.AwaitTrue(find("#list-rows .clicks") + `.textContent === "0 clicks"`)
}

func TestManageKeys(t *testing.T) {
	t.Parallel()
	s := serve(t)
	p := s.manage(t, s.keyOf(t, "ada"))
	p.Offline(true)
	p.GoTo("#/keys", "#failed-problem", "did not respond")
	if Eval[bool](p, `document.querySelector("#key-new") !== null`) {
		t.Error("a form that nothing would take is there")
	}
	p.Offline(false)
	p.Open(s.url + "/manage?again#/keys")
	p.Await("#keys-rows", "ada's key")
	p.Click("#key-make")
	p.Await("#key-name-error", "Give the key a name")
	p.wantFocus("key-name")
	p.Fill("#key-name", `for <img src=x onerror="harmed=1">`)
	p.Press(kb.Enter)
	p.Await("#new-key", "it is not shown again")
	p.wantFocus("new-key-copy")
	key := p.Text("#new-key-text")
	p.Check("a new key")
	p.Click("#new-key-assistant summary")
	if settings := p.Text("#new-key-mcp"); !strings.Contains(settings, key) ||
		!strings.Contains(settings, s.url+"/api/mcp") {
		t.Errorf("an assistant's settings are %s", settings)
	}
	p.Check("an assistant's settings")
	p.Click("#new-key-mcp-copy")
	p.Await("#toast", "Copied")
	Eval[any](p, find("#new-key-copy")+`.focus()`)
	look(t, p, "manage-key")
	p.Press(kb.Enter)
	p.Await("#toast", "Copied")
	if got := Eval[string](p, "navigator.clipboard.readText()"); got != key ||
		s.as(t, key, "GET", "/api/me", "")["owner"] != "ada" {
		t.Errorf("copied %q", got)
	}
	p.Click("#new-key-done")
	p.AwaitTrue(`!document.body.textContent.includes("` + key + `")`)
	p.AwaitTrue(`document.querySelectorAll("#keys-rows li").length === 2`)
	p.Check("keys")
	p.Click(`#keys-rows [aria-label^="Revoke for <img"]`) // the key may be as old as the other one
	p.wantFocus("")
	p.Check("about to revoke a key")
	p.Press(kb.Tab + kb.Enter) // keep
	p.AwaitTrue(`document.activeElement.textContent === "Revoke"`)
	p.Press(kb.Enter + kb.Enter)
	p.Await("#toast", "Revoked")
	p.AwaitTrue(`document.querySelectorAll("#keys-rows li").length === 1`)
	if got, err := testutil.Send("GET", s.url+"/api/me", "", "Authorization", "Bearer "+
		key); err != nil || got.Status != 401 {
		t.Errorf("the key is %+v, %v", got, err)
	}

	admin := s.manage(t, adminKey)
	admin.GoTo("#/keys", "#keys-rows", "owner ada · read and write · ")
	admin.Fill("#key-name", "of Bob's")
	admin.Click("#key-make")
	admin.Await("#key-owner-error", "Name the owner")
	admin.Check("an admin's keys")
	if admin.box(`[for="key-expires"]`)[2] > 30 ||
		admin.box("#key-access")[1]-admin.box("#key-access")[0] < 160 {
		t.Error("a label of the form has two lines, or its fields are too narrow")
	}
	admin.Fill("#key-owner", "bob")
	Eval[any](admin, find("#key-expires")+`.value = "2040-05-06T07:08"`)
	Eval[any](admin, find("#key-access")+`.value = "read"`)
	admin.Click("#key-make")
	admin.Await("#keys-rows", "owner bob · read only · ")
	if got := s.as(t, admin.Text("#new-key-text"), "GET", "/api/me", ""); got["owner"] != "bob" {
		t.Errorf("the key is %v's", got)
	}
	if got := admin.Text("#keys-rows li:first-child"); !strings.Contains(got, "2040") {
		t.Errorf("it is %q", got)
	}
}

// An admin blocks the host of a reported link, finds it among many hosts, and unblocks it.
func TestManageBlocked(t *testing.T) {
	t.Parallel()
	s := serveStored(t)
	s.put(t, s.keyOf(t, "ada"), "bad", "")
	target := s.read(t, "bad").LongURL
	p := s.manage(t, adminKey)
	p.Click(`[href="#/blocked"]`)
	p.Await("#blocked-empty", "No host is blocked")
	p.Check("no blocked hosts")
	p.Fill("#host", "example.com:80")
	p.Press(kb.Enter)
	p.Await("#blocked-problem", "Name one host")
	p.Check("no host")
	p.Fill("#host", target)
	p.Press(kb.Enter)
	p.Await("#toast", "Blocked ")
	p.Await("#blocked-rows", "blocked ")
	if status, _ := s.status(t, "/bad"); status != 410 {
		t.Errorf("its link is %d", status)
	}
	for n := range 201 {
		s.as(t, adminKey, "PUT", fmt.Sprintf("/api/blocked/%d.example.net", n), "")
	}
	p.GoTo("#/", "#list-title", "Links")
	p.GoTo("#/blocked", "#blocked-more", "And 2 more hosts")
	p.Fill("#host", "199.")
	p.AwaitTrue(find("#blocked-rows") + ".children.length === 1")
	p.Check("blocked hosts")
	look(t, p, "manage-blocked")
	s.clickTwice(p, "#blocked-rows button", "#blocked-problem", "Unblocked 199.example.net")
	p.wantFocus("blocked-title")
	p.Fill("#host", "example.com")
	p.Click("#blocked-rows button")
	p.Await("#toast", "Unblocked example.com")
	if status, _ := s.status(t, "/bad"); status != 302 {
		t.Errorf("its link is %d", status)
	}
	owner := s.manage(t, s.keyOf(t, "bob"))
	if owner.Text(`[href="#/blocked"]`) != "" {
		t.Error("an owner sees the tab")
	}
	owner.GoTo("#/blocked", "#list-title", "Links")
}

func TestManageCleanup(t *testing.T) {
	t.Parallel()
	s := serveStored(t)
	p := s.manage(t, adminKey)
	p.Click(`[href="#/cleanup"]`)
	p.Await("#cleanup-figures", "Runs that succeeded")
	testutil.Eventually(t, "the run at the start is shown", func() bool {
		p.GoTo("#/", "#list-title", "Links")
		p.GoTo("#/cleanup", "#cleanup-title", "Maintenance")
		p.AwaitTrue("!" + find("#cleanup-wait") + ".checkVisibility()")
		return regexp.MustCompile(`Runs that succeeded\n[1-9]`).MatchString(p.Text("#cleanup-figures"))
	})
	if got := p.Text("#cleanup-figures"); !strings.Contains(got, "idle") ||
		!strings.Contains(got, "Runs that failed\n0\n") || !strings.Contains(got, " ms") ||
		strings.Contains(got, "none yet") {
		t.Errorf("it shows\n%s", got)
	}
	p.Check("clean-up")
	look(t, p, "manage-cleanup")
	owner := s.manage(t, s.keyOf(t, "ada"))
	owner.GoTo("#/cleanup", "#list-title", "Links")
}

// Somebody can take over the links that their browser made before they signed in.
func TestManageClaims(t *testing.T) {
	t.Parallel()
	s, p := serveStored(t), chromium.New(t)
	key := s.keyOf(t, "ada")
	for _, longURL := range []string{"https://example.com/1", "https://example.com/2",
		"https://example.com/3"} {
		p.Open(s.url)
		p.Fill("#url", longURL)
		p.Press(kb.Enter)
		p.AwaitTrue(`document.querySelector("#long").textContent === ` + quote(longURL))
	}
	aliases := Eval[[]string](p, `JSON.parse(localStorage.getItem("tiney.links")).map((l) => `+
		`l.alias)`)
	s.as(t, adminKey, "DELETE", "/api/links/"+aliases[0], "")
	p.Go(func() { p.Click("#account") })
	p.wantFocus("key")
	p.Press(key + kb.Enter)
	p.Await("#claims", "These 3 links can be yours")
	p.Await("#claims-links", "/"+aliases[2])
	p.Check("claims")
	look(t, p, "manage-claims")
	s.clickTwice(p, "#claims-take", "#claims-problem", "2 links are yours now, 1 had ended.")
	p.Await("#list-count", "2 links")
	p.Await("#list-rows", "/"+aliases[2])
	if p.Text("#claims") != "" {
		t.Error("it still offers them")
	}
	for _, alias := range aliases[1:] {
		if l := s.read(t, alias); l.Owner != "ada" || l.ExpiresAtUTC != "" {
			t.Errorf("%s is %+v", alias, l)
		}
	}
	p.Open(s.url)
	p.Await("#links", "Never expires")
	if got := p.Text("#links"); strings.Contains(got, aliases[0]) ||
		Eval[bool](p, `localStorage.getItem("tiney.links").includes("tnc_")`) {
		t.Errorf("the browser still has %s", got)
	}

	// Somebody who declines is not asked again in that session. When they do take over links, they
	// can let them expire as planned.
	s.as(t, key, "DELETE", "/api/links/"+aliases[1], "")
	other := chromium.New(t)
	other.Open(s.url)
	other.Fill("#url", "https://example.com/4")
	other.Press(kb.Enter)
	other.Await("#result", "Your short link")
	other.Open(s.url + "/manage")
	other.wantFocus("key")
	other.Press(key + kb.Enter)
	other.Await("#claims", "This link can be yours")
	other.Click("#claims-not")
	other.wantFocus("list-title")
	other.Open(s.url + "/manage")
	other.Await("#list-rows", "/"+aliases[2])
	if other.Text("#claims") != "" {
		t.Error("it asks again")
	}
	other.Click("#sign-out")
	other.wantFocus("key")
	other.Press(key + kb.Enter)
	other.Await("#claims", "This link can be yours")
	other.Click("#claims-keep")
	other.Click("#claims-take")
	other.Await("#toast", "1 link is yours now.")
	alias := Eval[string](other, `JSON.parse(localStorage.getItem("tiney.links"))[0].alias`)
	if l := s.read(t, alias); l.Owner != "ada" || l.ExpiresAtUTC == "" {
		t.Errorf("it is %+v", l)
	}

	// The next user of the browser sees the links that nobody owns, and none that somebody owns.
	other.Open(s.url)
	other.Fill("#url", "https://example.com/5")
	other.Press(kb.Enter)
	other.Await("#result", "Never expires")
	Eval[any](other, `localStorage.setItem("tiney.links", JSON.stringify([
		...JSON.parse(localStorage.getItem("tiney.links")),
		{ alias: "nobodys", shortUrl: location.origin + "/nobodys",
		longUrl: "https://example.com/6", expiresAtUtc: null }]))`)
	other.Go(func() { other.Click("#account") })
	other.Await("#list-count", "3 links")
	other.Click("#sign-out")
	other.Await("#signin-says", "You are signed out")
	if got := Eval[string](other, `JSON.parse(localStorage.getItem("tiney.links")).map((l) => `+
		`l.alias).join()`); got != "nobodys" {
		t.Errorf("the browser keeps %s", got)
	}
}

func TestManageSignInWithAProvider(t *testing.T) {
	t.Parallel()
	provider := oidcprovider.Start(t, oidcprovider.Options{})
	s := serve(t, "OIDC_ISSUER="+provider.Issuer(), "OIDC_CLIENT_ID="+oidcprovider.ClientID,
		"OIDC_GROUPS_CLAIM=groups", "OIDC_SCOPES=openid groups")
	provider.Redirect(t, s.url+"/manage")
	p := chromium.New(t)
	signIn := func(user, roles string) {
		t.Helper()
		p.Click("#provider-go")
		p.Await("button", "Sign in")
		p.AwaitTrue(find("[name=user]") + " !== null")
		p.Fill("[name=user]", user)
		p.Fill("[name=roles]", roles)
		p.Fill("[name=claims]", `{"groups":["ops"]}`)
		p.Press(kb.Enter)
	}
	p.Open(s.url + "/manage#/keys")
	p.Await("#provider-go", "Sign in with "+strings.TrimPrefix(provider.Issuer(), "http://"))
	p.wantFocus("provider-go")
	p.Check("sign in with a provider")
	look(t, p, "manage-provider")
	provider.Down()
	p.Press(kb.Enter)
	p.Await("#signin-says", "did not respond")
	p.Check("the provider is down")
	provider.Up()
	signIn("ada", "")
	p.Await("#who", "ada")
	p.Await("#keys-empty", "No keys yet") // where they wanted to go
	if got := Eval[string](p, "location.search + location.hash"); got != "#/keys" {
		t.Errorf("the address has %q", got)
	}
	// The provider sends groups only to a client that asks for the scope groups.
	if got := s.as(t, Eval[string](p, `sessionStorage.getItem("tiney.credential")`), "GET", "/api/me",
		"")["groups"]; !reflect.DeepEqual(got, []any{strings.TrimPrefix(provider.Issuer(), "http://") +
		"|group|ops"}) {
		t.Errorf("signed in with the groups %v", got)
	}

	// A session ends while somebody types: from then on, the service gets a token that has expired.
	p.GoTo("#/new", "#link-title", "New link")
	p.wantFocus("longUrl")
	p.Press("https://example.com/typed" + kb.Tab + "typed" + kb.Tab + "A title" + kb.Tab + "tag" +
		kb.Enter)
	claims := provider.Claims("ada")
	claims["exp"] = time.Now().Add(-2 * time.Minute).Unix() // the leeway is one
	Eval[any](p, `void ((real) => { window.fetch = (url, options) => { if (options?.headers?.`+
		`Authorization) options.headers.Authorization = `+quote("Bearer "+provider.Key().Sign(t,
		claims, nil))+`; return real(url, options); }; })(fetch)`)
	p.Click("#save")
	p.Await("#again", "Your session has ended")
	p.wantFocus("provider-go")
	p.Check("the session has ended, with a provider")
	p.Press(kb.Enter) // a user who is still signed in there comes right back
	p.AwaitTrue(find("#chips") + `?.textContent.includes("tag") && !` + find("#again") + ".open")
	p.Await("#who", "ada")
	if got := p.Value("#longUrl") + " " + p.Value("#alias") + " " +
		p.Value("#title"); got != "https://example.com/typed typed A title" {
		t.Errorf("what was typed became %q", got)
	}
	p.Click("#save")
	p.Await("#link-title", "A title")

	// Signing out does not sign out of the provider, unless the user asks for that too.
	p.Click("#sign-out")
	p.Await("#signin-says", "You are signed out. "+strings.TrimPrefix(provider.Issuer(), "http://")+
		" may still know you. Sign out there too")
	p.Check("signed out")
	look(t, p, "manage-signed-out")
	p.Go(func() { p.Click("#end") })
	p.Go(func() { p.Click("button[value=yes]") })
	p.Open(s.url + "/manage")
	p.Await("#provider-go", "Sign in with ")
	if got := p.Text("#signin-says"); got != "" {
		t.Errorf("it still says %q", got)
	}
	signIn("ada", "") // the provider asks her again
	p.Await("#who", "ada")
	provider.Down()
	p.Click("#sign-out")
	p.AwaitTrue(find("#signin-says") + `?.innerText.endsWith(" may still know you.")`)
	provider.Up()

	// A response that comes from somewhere else, or a second time, signs nobody in.
	for query, want := range map[string]string{
		"code=abc&state=made-up":                    "did not begin in this tab",
		"error=access_denied&state=made-up":         "did not begin in this tab",
		"code=abc&state=x&iss=https://evil.example": "did not begin in this tab",
	} {
		p.Open(s.url + "/manage?" + query)
		p.Await("#signin-says", want)
	}
	Eval[any](p, `sessionStorage.setItem("tiney.flow", JSON.stringify({ state: "s", nonce: "n", `+
		`verifier: "v".repeat(43), hash: "" }))`)
	p.Open(s.url + "/manage?error=access_denied&error_description=%3Cimg%20src%3Dx%3E&state=s")
	p.Await("#signin-says", "The provider says: <img src=x>")
	Eval[any](p, `sessionStorage.setItem("tiney.flow", JSON.stringify({ state: "s", nonce: "n", `+
		`verifier: "v".repeat(43), hash: "" }))`)
	p.Open(s.url + "/manage?code=made-up&state=s")
	p.Await("#signin-says", "The provider says: ")

	// An admin by role.
	boss := chromium.New(t)
	p = boss
	p.Open(s.url + "/manage")
	p.wantFocus("provider-go")
	signIn("eve", "reader admin")
	p.Await(`[href="#/cleanup"]`, "Maintenance")
}

// A user whose key is revoked while they work signs in again. Then the page completes what they
// did.
func TestManageSessionEnds(t *testing.T) {
	t.Parallel()
	s := serve(t, "CHANGES_SECONDS=1")
	key, other := s.keyOf(t, "ada"), s.keyOf(t, "ada")
	s.put(t, key, "mine", "")
	p := s.manage(t, key)
	p.openLink("mine")
	p.Fill("#title", "typed")
	p.Await("#stats-body", "No clicks in this time")
	s.as(t, key, "DELETE", "/api/keys/"+fmt.Sprint(s.idOf(t, key)), "")
	// The page asked for these statistics by itself, not ada, so no dialog interrupts her.
	p.Await("#stats-problem", "Try again")
	if Eval[bool](p, find("#again")+".open") {
		t.Error("what the page does by itself has her sign in")
	}
	p.Click("#save")
	p.Await("#again", "Your session has ended")
	p.wantFocus("key")
	p.Check("the session has ended")
	look(t, p, "manage-ended")
	p.Press(kb.Escape)
	p.Await("#form-problem", "this was not done")
	if got := p.Value("#title"); got != "typed" {
		t.Errorf("what was typed became %q", got)
	}
	p.Click("#save")
	p.Await("#again", "Your session has ended")
	p.Fill("#key", key)
	p.Press(kb.Enter)
	p.Await("#key-error", "This key is not valid")
	p.Fill("#key", other)
	p.Press(kb.Enter)
	p.Await("#toast", "Saved")
	if l := s.read(t, "mine"); l.Title != "typed" {
		t.Errorf("the title is %q", l.Title)
	}

	// Another user who signs in then sees none of it.
	p.Fill("#title", "a secret")
	s.as(t, other, "DELETE", "/api/keys/"+fmt.Sprint(s.idOf(t, other)), "")
	p.Click("#save")
	p.Await("#again", "Your session has ended")
	p.Press(s.keyOf(t, "bob") + kb.Enter)
	p.Await("#who", "bob")
	p.Await("#link-problem", "No such link")
	if l := s.read(t, "mine"); l.Title != "typed" ||
		Eval[bool](p, `document.body.textContent.includes("a secret") || `+find("#title")+
			`.value !== ""`) {
		t.Errorf("bob has saved %q, or sees it", l.Title)
	}

	// If the provider signs in another user, they do not see what was typed before either.
	bob := s.keyOf(t, "bob")
	Eval[any](p, `sessionStorage.setItem("tiney.draft", JSON.stringify({ owner: "ada", typed: `+
		`[["", { longUrl: "https://example.com/secret" }]] }))`)
	Eval[any](p, `sessionStorage.setItem("tiney.credential", `+quote(bob)+`)`)
	p.Open(s.url + "/manage?again#/new")
	p.wantFocus("longUrl")
	if got := p.Value("#longUrl"); got != "" ||
		Eval[bool](p, `sessionStorage.getItem("tiney.draft") !== null`) {
		t.Errorf("bob sees %q", got)
	}

	// A page comes back from the browser's cache after its user has signed out.
	p.GoTo("#/", "#list-title", "Links")
	Eval[any](p, `void (sessionStorage.clear(), window.dispatchEvent(new `+
		`PageTransitionEvent("pageshow", { persisted: true })))`)
	p.wantFocus("key")
	p.Await("#signin-title", "Sign in")

	// A session has ended before the page is opened.
	Eval[any](p, `sessionStorage.setItem("tiney.credential", "tny_expired")`)
	p.Open(s.url + "/manage")
	p.Await("#signin-says", "Your session has ended")
	p.Check("sign in again")
}

// Proxies that compress change the tags of links, or drop them. Edits work, and see other edits.
func TestManageBehindAProxyThatCompresses(t *testing.T) {
	t.Parallel()
	s := serve(t)
	key := s.keyOf(t, "ada")
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(h http.Header, tag string){
		"nginx": func(h http.Header, tag string) { h.Set("ETag", "W/"+tag) },
		"apache": func(h http.Header, tag string) {
			h.Set("ETag", strings.TrimSuffix(tag, `"`)+`-gzip"`)
		},
		"none": func(h http.Header, _ string) { h.Del("ETag") },
	} {
		proxy := httputil.NewSingleHostReverseProxy(to)
		proxy.ModifyResponse = func(r *http.Response) error {
			if tag := r.Header.Get("ETag"); tag != "" {
				change(r.Header, tag)
			}
			return nil
		}
		front := httptest.NewServer(proxy)
		t.Cleanup(front.Close)
		s.put(t, key, name, "")
		p := (&site{url: front.URL}).manage(t, key)
		p.openLink(name)
		for _, title := range []string{"first", "second"} {
			p.Fill("#title", title)
			p.Click("#save")
			p.Await("#link-title", title)
			p.AwaitTrue(find("#discard") + ".hidden")
		}
		time.Sleep(time.Second) // updatedAtUtc has whole seconds
		s.as(t, key, "PATCH", "/api/links/"+name, `{"title":"theirs"}`)
		p.Fill("#title", "mine")
		p.Click("#save")
		p.Await("#conflict", "theirs (it was second)")
		p.Click("#keep-typed")
		p.Click("#save")
		p.Await("#toast", "Saved")
		if l := s.read(t, name); l.Title != "mine" {
			t.Errorf("%s: the title is %q", name, l.Title)
		}
		p.GoTo("#/", "#list-title", "Links")
		p.Await("#list-rows", "/"+name)
		p.AwaitTrue("!" + find("#list-rows") + ".ariaBusy")
		pick := fmt.Sprintf("#list-rows li:has(a[href$=%q]) [data-part=pick]", "/"+name)
		p.Click(pick)
		p.Await("#picked-count", "1 link selected")
		p.choose("#picked-what", "disable")
		p.Click("#picked-go")
		p.Await("#toast", "1 link disabled")
		p.Click("#picked-undo")
		p.Await("#toast", "Undone: 1 link restored")
		p.Click(pick)
		p.Await("#picked-count", "1 link selected")
		p.choose("#picked-what", "delete")
		p.Click("#picked-go")
		p.Await("#toast", "1 link deleted")
	}
}

// If only the first response lacks the tag of a link, the edit has that of the second.
func TestManageBehindAProxyThatCompressesOnce(t *testing.T) {
	t.Parallel()
	s := serve(t)
	key := s.keyOf(t, "ada")
	s.put(t, key, "mine", "")
	to, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	var keeps atomic.Bool
	matched := make(chan string, 1)
	proxy := httputil.NewSingleHostReverseProxy(to)
	proxy.ModifyResponse = func(r *http.Response) error {
		if !keeps.Load() {
			r.Header.Del("ETag")
		}
		if r.Request.Method == "PATCH" {
			matched <- r.Request.Header.Get("If-Match")
		}
		return nil
	}
	front := httptest.NewServer(proxy)
	t.Cleanup(front.Close)
	p := (&site{url: front.URL}).manage(t, key)
	p.openLink("mine")
	keeps.Store(true)
	p.Fill("#title", "first")
	p.Click("#save")
	p.Await("#link-title", "first")
	if got := <-matched; got == "" {
		t.Error("the edit has no If-Match")
	}
}

// idOf returns the id of a key.
func (s *site) idOf(t *testing.T, key string) string {
	t.Helper()
	items, _ := s.as(t, key, "GET", "/api/keys", "")["items"].([]any)
	for _, item := range items {
		if k, _ := item.(map[string]any); k["last4"] == key[len(key)-4:] {
			return fmt.Sprint(k["id"])
		}
	}
	t.Fatalf("no such key among %v", items)
	return ""
}

func TestManageWhileStorageIsDown(t *testing.T) {
	t.Parallel()
	s := serveStored(t, "CACHE_ENABLED=false")
	s.put(t, s.keyOf(t, "ada"), "mine", "")
	key := s.keyOf(t, "ada") // which nobody has used, so that storage has to be asked
	p := chromium.New(t)
	p.Open(s.url + "/manage")
	p.wantFocus("key")
	s.down(true)
	p.Press(key + kb.Enter)
	p.Await("#key-error", "cannot be checked at the moment")
	p.Check("signing in while storage is down")
	s.down(false)
	p.Click("#key-go")
	p.Await("#list-rows", "/mine")
	s.down(true)
	p.Fill("#q", "in")
	p.Await("#list-problem", "Try again in a moment")
	p.Check("the list while storage is down")
	look(t, p, "manage-down")
	s.down(false)
	p.Click("#list-problem button")
	p.Await("#list-count", "1 match")
	if got := p.Value("#q"); got != "in" {
		t.Errorf("the search is %q", got)
	}

	p.openLink("mine")
	p.Fill("#title", "typed")
	s.down(true)
	p.Press(kb.Enter)
	p.Await("#form-problem", "Try again in a moment")
	p.Check("an edit while storage is down")
	p.Click("#link-delete")
	p.Await("#link-wrong", "Try again in a moment")
	p.GoTo("#/keys", "#keys-problem", "Try again in a moment")
	p.GoTo("#/?order=24h", "#list-problem", "Try again in a moment")
	p.GoTo("#/link/mine", "#link-problem", "Try again in a moment")
	p.Check("a link while storage is down")
	s.down(false)
	p.Click("#link-problem button")
	p.edit()
	if got := p.Value("#title"); got != "typed" {
		t.Errorf("what was typed became %q", got)
	}
	p.Await("#stats-body", "No clicks") // their arrival moves the form
	p.Offline(true)
	p.Click("#save")
	p.Await("#form-problem", "You are offline")
	p.Offline(false)
	p.Click("#save")
	p.Await("#toast", "Saved")
}

// No part of a URL, a title or a tag is treated as markup, no matter who wrote it. Nothing is too
// long, or in a script too unusual, for a narrow window.
func TestManageTextsAreText(t *testing.T) {
	t.Parallel()
	const markup = `<img src=x onerror="window.harmed=1"><script>window.harmed=1</script>`
	s := serveStored(t)
	key := s.keyOf(t, "ada")
	s.PutLink(link.Link{Name: "markup", LongURL: "https://example.com/" + markup, Title: markup,
		Tags: []string{markup[:50]}, Owner: "ada", CreatedAt: time.Now()})
	links := map[string]string{
		"markup": "https://example.com/" + markup,
		"rtl":    "https://דוגמה.example/שלום/ניסיון?ערך=1&b=مثال",
		"long":   "https://example.com/" + strings.Repeat("x", 4000),
	}
	titles := map[string]string{"markup": markup, "rtl": "שלום (world) مثال!",
		"long": strings.Repeat("W", 200)}
	for _, alias := range []string{"rtl", "long"} {
		s.as(t, key, "POST", "/api/shorten",
			fmt.Sprintf(`{"longUrl":%q,"alias":%q,"title":%q,"tags":[%q,"שלום"]}`, links[alias],
				alias, titles[alias], strings.Repeat("w", 50)))
	}
	p := s.manage(t, key)
	p.Width(320)
	p.GoTo("#/?q=e", "#list-rows", "/rtl")
	if n := Eval[int](p, `document.querySelectorAll("#list-rows li").length`); n < 2 {
		t.Errorf("%d links are listed", n)
	}
	p.Check("list, narrow")
	look(t, p, "manage-narrow-list")
	for _, alias := range slices.Sorted(maps.Keys(links)) {
		p.openLink(alias)
		if got := Eval[string](p, find("#link-title")+".textContent"); got != titles[alias] {
			t.Errorf("%s: the title is %q", alias, got)
		}
		if got := Eval[string](p, find("#link-long")+".textContent"); got != links[alias] ||
			p.Value("#longUrl") != got {
			t.Errorf("%s: the URL is %q", alias, got)
		}
		p.Check(alias + ", narrow")
		look(t, p, "manage-narrow-"+alias)
	}
	for hash, text := range map[string]string{"#/new": "New link", "#/keys": "Make a key"} {
		p.GoTo(hash, ".view:not([hidden])", text)
		p.Check(hash + ", narrow")
	}
	Eval[any](p, `localStorage.setItem("tiney.links", JSON.stringify([{ alias: "x", shortUrl: `+
		`"https://x.example/" + `+quote(markup)+`, longUrl: `+quote(markup)+`, expiresAtUtc: `+
		`null, claimToken: "tnc_" + "0".repeat(43) }]))`)
	p.Open(s.url + "/manage?again#/?q=" + "%3Cimg%20src%3Dx%3E")
	p.Await("#claims-links", "<img")
	p.Await("#list-empty", "No links match")
	if Eval[bool](p, `"harmed" in window || document.querySelectorAll("img:not([id]), `+
		`script:not([src])").length > 0`) {
		t.Error("a text became markup")
	}
}

func TestManageWithoutScripts(t *testing.T) {
	t.Parallel()
	s, p := serve(t), chromium.New(t)
	p.NoScripts()
	p.Open(s.url + "/manage")
	p.Await("h1", "Managing needs JavaScript")
	look(t, p, "manage-noscript")
	// axe-core is a script, so it does not see the content of noscript.
	Eval[any](p, `void `+find("noscript")+`.replaceWith(...`+find("noscript")+`.childNodes)`)
	p.Check("without scripts")
	if got := p.Text("#signin") + p.Text("#tabs"); got != "" {
		t.Errorf("it shows what needs scripts: %s", got)
	}
}
