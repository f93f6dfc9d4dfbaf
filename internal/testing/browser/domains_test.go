package browser

import (
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"tiney/internal/link"
	"tiney/internal/testing/testutil"
)

// serveDomains starts a service of two domains, and returns the URL of the one that is not the
// default. Browsers resolve its name to this machine.
func serveDomains(t *testing.T, settings ...string) (s *site, other string) {
	t.Helper()
	s = serve(t, append(settings, "DOMAINS=go.localhost:$PORT")...)
	return s, strings.Replace(s.url, "127.0.0.1", "go.localhost", 1)
}

// choose sets a field that has a list of values, as its user does.
func (p *Page) choose(selector, value string) {
	p.t.Helper()
	Eval[any](p, find(selector)+".value = "+quote(value)+`, ["input", "change"].forEach((kind) => `+
		find(selector)+`.dispatchEvent(new Event(kind, { bubbles: true })))`)
	if got := p.Value(selector); got != value {
		p.t.Errorf("%s has no value %q", selector, value)
	}
}

// Somebody opens an alias that nobody has, and makes its link, in the domain that it was asked for.
// They sign in on the way, with a key and with the keyboard alone.
func TestUnknownAliasIsOffered(t *testing.T) {
	t.Parallel()
	s, other := serveDomains(t)
	key := s.keyOf(t, "ada")
	for from, name := range map[string]string{s.url: "handbook",
		other: "handbook@" + strings.TrimPrefix(other, "http://")} {
		p := chromium.New(t)
		p.Width(320)
		if status := p.Open(from + "/handbook/"); status != 404 {
			t.Errorf("%s: an unknown alias is %d", from, status)
		}
		p.Check("an unknown alias")
		look(t, p, "unknown")
		p.to("main .button:not([hidden])")
		p.Go(func() { p.Press(kb.Enter) })
		p.wantFocus("key")
		p.Press(key + kb.Enter)
		p.wantFocus("longUrl")
		if got := Eval[string](p, `location.href`); got != s.url+"/manage#/new" {
			t.Errorf("%s: the form is at %s", from, got)
		}
		p.Check("the form, filled in")
		look(t, p, "manage-new-offered")
		if got := p.Text("#prefix") + p.Value("#alias"); got != strings.TrimPrefix(from,
			"http://")+"/handbook" {
			t.Errorf("%s: the form is for %s", from, got)
		}
		p.Press("example.com/the-handbook" + kb.Enter)
		p.Await("#link-short", strings.TrimPrefix(from, "http://")+"/handbook")
		if got := Eval[string](p, "location.hash"); got != "#/link/"+name {
			t.Errorf("%s: the link is at %s", from, got)
		}
		if l := s.read(t, name); l.LongURL != "https://example.com/the-handbook" ||
			l.Owner != "ada" {
			t.Errorf("%s: the link is %+v", from, l)
		}
		// Nothing is left to fill in, so that nobody makes the same link again.
		Eval[any](p, "void history.back()")
		p.wantFocus("longUrl")
		if got := p.Value("#alias"); got != "" {
			t.Errorf("%s: the next form has %q", from, got)
		}
	}
	p := s.manage(t, key)
	p.GoTo("#/new?alias=mine&domain=elsewhere.example", "#form-problem",
		"No links of elsewhere.example are made here.")
	if got := p.Value("#domain") + p.Value("#alias"); got != strings.TrimPrefix(s.url,
		"http://")+"mine" {
		t.Errorf("the form has %s", got)
	}
}

// An owner of links in two domains makes, finds, edits and deletes them. The same alias in both is
// two links.
func TestManageDomains(t *testing.T) {
	t.Parallel()
	s, other := serveDomains(t, "CLICKS_FLUSH_SECONDS=1")
	host := strings.TrimPrefix(other, "http://")
	key := s.keyOf(t, "ada")
	s.put(t, key, "both", "")
	p := s.manage(t, key)
	p.GoTo("#/new", "#link-title", "New link")
	p.to("#longUrl")
	p.Press("https://example.com/docs/" + kb.Tab + kb.ArrowDown + kb.Tab + "both" + kb.Tab + "Other")
	if got := p.Text("#prefix"); got != host+"/" {
		t.Errorf("the alias follows %s", got)
	}
	for _, box := range []string{"#options summary", "#forward", "#forward-path"} {
		p.to(box)
		p.Press(" ")
	}
	p.AwaitTrue(find("#rules-add") + ".checkVisibility()") // which comes with its script
	p.tour("a new link in a domain")
	p.Width(320)
	p.Check("a new link in a domain, narrow")
	look(t, p, "manage-new-domain")
	p.to("#save")
	p.Press(" ")
	p.Await("#link-short", host+"/both")
	p.Await("#link-about", "appends the query and the path")
	p.Check("a link in a domain, narrow")
	look(t, p, "manage-link-domain")
	p.Width(1100)
	if p.Text("#domain-field") != "" {
		t.Error("it offers to move a link")
	}
	p.AwaitTrue(find("#link-qr") + ".naturalWidth > 0")
	if got := scan(t, p.Shot("#link-qr")); got != other+"/both" {
		t.Errorf("the QR code says %q", got)
	}
	p.edit()
	p.Await("#stats-body", "No clicks")
	p.to("#forward-path")
	p.Press(" ")
	p.Await("#discard", "Discard")
	p.to("#title")
	p.Press(" and more" + kb.Enter)
	p.Await("#toast", "Saved")
	p.Await("#link-about", "appends the query")
	name := "both@" + host
	if l := s.read(t, name); l.Title != "Other and more" || strings.Join(l.Forward, " ") != "query" {
		t.Errorf("the link is %+v", l)
	}
	if l := s.read(t, "both"); l.Title != "" || len(l.Forward) != 0 {
		t.Errorf("the other one is %+v", l)
	}
	p.Click("#link-delete")
	p.Await("#link-state", "Deleted")
	p.Click("#link-undo")
	p.Await("#link-state", "Live")

	// The list shows where a link is, and can be limited to a domain.
	rows := func() string {
		return Eval[string](p, `[...document.querySelectorAll("#list-rows .what > a")].map((a) => `+
			`a.textContent).join(" ")`)
	}
	both := strings.TrimPrefix(s.url, "http://") + "/both"
	p.GoTo("#/", "#list-count", "2 links")
	p.AwaitTrue(find("#list-rows .clicks") + `.textContent === "0 clicks"`)
	if got := rows(); got != host+"/both "+both {
		t.Errorf("listed are %s", got)
	}
	p.tour("a list with domains")
	p.choose("#of-domain", host)
	p.Await("#list-count", "1 link")
	if got := rows(); got != host+"/both" {
		t.Errorf("in the domain are %s", got)
	}
	p.Width(320)
	p.Check("a list of a domain, narrow")
	look(t, p, "manage-list-domain")
	p.Width(1100)
	p.choose("#of-domain", strings.TrimPrefix(s.url, "http://"))
	p.AwaitTrue(find("#list-rows .what > a") + `.textContent === ` + quote(both))
	p.choose("#order", "24h")
	p.choose("#of-domain", host)
	p.Await("#list-empty", "No clicks in the last")
	p.Check("top links of a domain")

	// An admin opens anybody's link of a domain by its short URL.
	admin := s.manage(t, adminKey)
	admin.Fill("#q", other+"/both")
	admin.Await("#list-empty", "Open "+name+" (any owner)")
	admin.Click("#list-empty .button:last-child")
	admin.Await("#link-about", "owner ada")
	admin.Go(func() { admin.Click("#link-preview") })
	admin.Await("main", "leads to")
}

// Links of a domain that was taken out of the settings are listed and edited. Names may be so long
// that one call cannot take those of a page.
func TestManageRetiredDomain(t *testing.T) {
	t.Parallel()
	s := serveStored(t)
	retired := strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + ".example"
	s.fill(50, func(_ int, l *link.Link) { l.Name += link.Name("@" + retired) })
	p := s.manage(t, s.keyOf(t, "ada"))
	p.Await("#list-rows", retired+"/link49")
	p.AwaitTrue(`[...document.querySelectorAll("#list-rows .clicks")].filter((e) => ` +
		`e.textContent === "0 clicks").length === 50`)
	p.Width(320)
	p.Check("long names, narrow")
	look(t, p, "manage-retired")
	p.Click("#list-rows .what > a")
	p.Await("#link-short", retired+"/link49")
	p.edit()
	p.Fill("#title", "Retired")
	p.Press(kb.Enter)
	p.Await("#toast", "Saved")
	p.Check("a link with a long name, narrow")
	if l := s.read(t, "link49@"+retired); l.Title != "Retired" {
		t.Errorf("the link is %+v", l)
	}
}

// A long URL may have any scheme that the service lets owners use, and a host with a port is none.
func TestManageExtraSchemes(t *testing.T) {
	t.Parallel()
	s := serve(t, "EXTRA_SCHEMES=mailto tel")
	key := s.keyOf(t, "ada")
	p := s.manage(t, key)
	for typed, want := range map[string]string{"mailto:ada@example.com": "mailto:ada@example.com",
		"TEL:112": "TEL:112", "example.com:8080/x": "https://example.com:8080/x"} {
		p.GoTo("#/new", "#link-title", "New link")
		p.wantFocus("longUrl")
		p.Press(typed + kb.Enter)
		p.AwaitTrue(find("#link-card") + ".checkVisibility()")
		if got := p.Text("#link-long"); got != want {
			t.Errorf("%s leads to %s", typed, got)
		}
	}
	p.edit()
	p.Fill("#longUrl", "tel:12345")
	p.Press(kb.Enter)
	p.Await("#link-long", "tel:12345")
	for _, box := range []string{"#options summary", "#forward"} {
		p.to(box)
		p.Press(" ")
	}
	p.Click("#save")
	p.Await("#forward-error", "Only a link to an http or https URL")
	p.wantFocus("forward")
	p.Check("a link that cannot append")
}

// The form on a domain's page makes links of that domain, also without scripts. Who signs in from
// there can take over the links that they made there.
func TestClaimsOfAnotherDomain(t *testing.T) {
	t.Parallel()
	s, other := serveDomains(t)
	host := strings.TrimPrefix(other, "http://")
	key := s.keyOf(t, "ada")
	p := chromium.New(t)
	p.NoScripts()
	p.Open(other)
	p.Fill("#url", "https://example.com/form")
	p.Fill("#alias", "form")
	if status := p.Go(func() { p.Press(kb.Enter) }); status != 201 {
		t.Errorf("the form makes a %d", status)
	}
	p.AwaitTrue(awaitPicture)
	if got := scan(t, p.Shot("#qr")); got != other+"/form" {
		t.Errorf("the QR code says %q", got)
	}
	p.AllowScripts()
	p.Open(other)
	for _, alias := range []string{"one", "two", "gone", "old"} {
		p.wantFocus("url")
		p.Press("https://example.com/" + alias)
		p.Fill("#alias", alias)
		p.Press(kb.Enter)
		p.Await("#short", host+"/"+alias)
		p.to("#url")
	}
	p.AwaitTrue(awaitPicture)
	if got := scan(t, p.Shot("#qr")); got != other+"/old" {
		t.Errorf("the QR code says %q", got)
	}
	p.Click(`#links li:first-child [data-part="delete"]`) // "old", which is handed over to nobody
	p.Await("#links li:first-child", "Deleted")
	s.as(t, adminKey, "DELETE", "/api/links/gone@"+host, "")
	if status, _ := s.status(t, "/one"); status != 404 {
		t.Errorf("in the default domain, it is a %d", status)
	}

	// The link to sign in has no token before somebody presses it.
	if got := Eval[string](p, `[...document.links].map((a) => a.href).join(" ")`); strings.Contains(
		got, "tnc_") {
		t.Errorf("the links are %s", got)
	}
	p.to("#claim a")
	p.Go(func() { p.Press(kb.Enter) })
	p.wantFocus("key")
	if got := Eval[string](p, "location.href"); got != s.url+"/manage#/" {
		t.Errorf("the address is %s", got)
	}
	Eval[any](p, "void location.reload()") // as after a sign-in with a provider
	p.AwaitTrue(`performance.getEntriesByType("navigation")[0].type === "reload"`)
	p.wantFocus("key")
	p.Press(key + kb.Enter)
	p.Await("#claims-title", "These 2 links can be yours")
	p.Await("#claims-links", host+"/one → https://example.com/one")
	if got := p.Text("#claims-links"); strings.Contains(got, "/old") ||
		strings.Contains(got, "/gone") {
		t.Errorf("offered are %s", got)
	}
	p.Check("claims of another domain")
	look(t, p, "manage-claims-domain")
	p.Click("#claims-take")
	p.Await("#toast", "2 links are yours now.")
	p.Await("#list-count", "2 links")
	for _, alias := range []string{"one", "two"} {
		if l := s.read(t, alias+"@"+host); l.Owner != "ada" || l.ExpiresAtUTC != "" {
			t.Errorf("%s is %+v", alias, l)
		}
	}
	if got := Eval[string](p, `JSON.stringify([sessionStorage, localStorage])`); strings.Contains(got,
		"tnc_") {
		t.Errorf("the tokens are still there: %s", got)
	}

	// Pressed once more, the link offers nothing that is taken over already.
	p.Open(other)
	p.AwaitTrue(find("#claim") + ".checkVisibility()")
	p.Go(func() { p.Click("#account") })
	p.Await("#list-count", "2 links")
	if got := p.Text("#claims"); got != "" {
		t.Errorf("it offers %s", got)
	}
}

// Anybody can make people open an address with claim tokens. It takes nothing from them and gives
// them nothing that they do not choose, and a text in it stays a text.
func TestAddressesWithClaimTokensAreHarmless(t *testing.T) {
	t.Parallel()
	s, other := serveDomains(t)
	host := strings.TrimPrefix(other, "http://")
	key := s.keyOf(t, "ada")
	p := s.manage(t, key)
	p.Open(s.url)
	p.Fill("#url", "https://example.com/mine")
	p.Press(kb.Enter)
	p.Await("#result", "Your short link")
	Eval[any](p, `void sessionStorage.clear()`) // which made an owner's link
	p.Open(s.url)
	p.Fill("#url", "https://example.com/kept")
	p.Fill("#alias", "kept")
	p.Press(kb.Enter)
	p.Await("#short", "/kept")
	before := Eval[string](p, `localStorage.getItem("tiney.links")`)

	theirs, err := testutil.Send("POST", s.url+"/api/shorten",
		`{"longUrl":"https://evil.example/","alias":"login","domain":"`+host+`"}`,
		"Content-Type", "application/json")
	if err != nil || theirs.Status != 201 {
		t.Fatalf("%+v (%v)", theirs, err)
	}
	token := regexp.MustCompile(`tnc_\w+`).FindString(theirs.Body)
	wrong := "tnc_" + strings.Repeat("0", 43)
	address := "/manage#/claims?kept=" + wrong + "&login@" + host + "=" + token +
		"&%3Cimg%20src=x%3E=" + wrong + "&../../api/keys=" + wrong + "&x=tnc_short&__proto__=" + wrong +
		strings.Repeat("&a="+token, 500)
	p.Open(s.url + address)
	p.wantFocus("key")
	if got := Eval[string](p, "location.hash"); got != "#/" {
		t.Errorf("the address keeps %s", got)
	}
	p.Press(key + kb.Enter)
	p.Await("#claims-title", "These 2 links can be yours")
	p.Await("#claims-links", "/kept → https://example.com/kept")
	p.Await("#claims-links", "/login → https://evil.example/")
	if l := s.read(t, "login@"+host); l.Owner != "" {
		t.Errorf("%s owns it without having asked for it", l.Owner)
	}
	if now := Eval[string](p, `localStorage.getItem("tiney.links")`); now != before {
		t.Errorf("the browser had %s, and has %s", before, now)
	}
	p.Click("#claims-not")
	p.wantFocus("list-title")

	// The same in a page that is open already.
	Eval[any](p, "void (location.hash = "+quote(strings.TrimPrefix(address, "/manage"))+")")
	p.Await("#claims-title", "These 2 links can be yours")
	if got := Eval[string](p, "location.hash"); got != "#/" {
		t.Errorf("the address keeps %s", got)
	}
	p.Click("#sign-out")
	p.Await("#signin-says", "You are signed out")
	if got := Eval[string](p, `JSON.stringify(sessionStorage)`); strings.Contains(got, "tnc_") {
		t.Errorf("signed out, the tab still has %s", got)
	}
}

// The preview shows what is appended, and leads there.
func TestPreviewOfWhatIsAppended(t *testing.T) {
	t.Parallel()
	s, p := serve(t), chromium.New(t)
	s.put(t, s.keyOf(t, "ada"), "docs", `,"forward":["query","path"]`)
	p.Open(s.url + `/docs+?a=b&c="d"`)
	if got := p.Text(".target"); got != "https://example.com/docs?a=b&c=%22d%22" {
		t.Errorf("the preview shows %s", got)
	}
	href := Eval[string](p, find("main .primary")+".href")
	if href != s.url+"/docs?a=b&c=%22d%22" {
		t.Errorf("it leads to %s", href)
	}
	if _, to := s.status(t, strings.TrimPrefix(href, s.url)); to != p.Text(".target") {
		t.Errorf("it leads to %s", to)
	}
	p.Check("a preview with a query")
	p.Open(s.url + "/docs+/a/b?c=d")
	if got := p.Text(".target"); got != "https://example.com/docs/a/b?c=d" {
		t.Errorf("the preview shows %s", got)
	}
	if got := Eval[string](p, find("main .primary")+".href"); got != s.url+"/docs/a/b?c=d" {
		t.Errorf("it leads to %s", got)
	}
	p.AwaitTrue(`document.styleSheets.length === 1 && ` + find("img") + `.naturalWidth > 0`)
	p.Check("a preview with a path")
}
