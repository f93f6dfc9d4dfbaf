package browser

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp/kb"

	"tiney/internal/link"
	"tiney/internal/testing/oidcprovider"
	"tiney/internal/testing/testutil"
)

// team is a service whose owners sign in with a provider that sends their groups.
type team struct {
	*site
	host string // the start of all owners, before the first |
}

func serveTeam(t *testing.T, settings ...string) team {
	t.Helper()
	provider := oidcprovider.Start(t, oidcprovider.Options{})
	s := serve(t, append(settings, "OIDC_ISSUER="+provider.Issuer(), "OIDC_CLIENT_ID="+
		oidcprovider.ClientID, "OIDC_GROUPS_CLAIM=groups", "OIDC_SCOPES=openid groups")...)
	provider.Redirect(t, s.url+"/manage")
	return team{s, strings.TrimPrefix(provider.Issuer(), "http://")}
}

// signIn opens an address of the service, and signs a member of groups in there. Groups are JSON.
func (s team) signIn(p *Page, address, user, groups string) {
	p.t.Helper()
	p.Open(s.url + address)
	p.wantFocus("provider-go")
	p.Press(kb.Enter)
	p.AwaitTrue(find("[name=user]") + " !== null")
	p.Fill("[name=user]", user)
	p.Fill("[name=claims]", `{"groups":`+groups+`}`)
	p.Press(kb.Enter)
	p.Await("#who", user)
}

// rows returns the aliases in the list.
func rows(p *Page) string {
	p.t.Helper()
	return Eval[string](p, `[...document.querySelectorAll("#list-rows .what > a")].map((a) => `+
		`a.textContent.split("/")[1]).join(" ")`)
}

// narrow checks a state in a narrow window.
func narrow(t *testing.T, p *Page, state, picture string) {
	t.Helper()
	p.Width(320)
	p.Check(state + ", narrow")
	look(t, p, picture)
	p.Width(1100)
}

// Members of a group choose whose links they look at and make. The choice is in the address, and
// all views follow it.
func TestManageLinksOfAGroup(t *testing.T) {
	t.Parallel()
	s := serveTeam(t, "CLICKS_FLUSH_SECONDS=1")
	ops := s.host + "|group|ops & co"
	ada := chromium.New(t)
	ada.Open(s.url)
	ada.Fill("#url", "https://example.com/claimed")
	ada.Fill("#alias", "claimed")
	ada.Press(kb.Enter)
	ada.Await("#result", "Your short link")
	s.signIn(ada, "/manage", "ada", `["dev","ops & co"]`)
	ada.Await("#list-empty", "No links yet")
	if got := Eval[string](ada, `[...document.querySelectorAll("#owner option")].map((o) => `+
		`o.textContent).join()`); got != "You,Group dev,Group ops & co" {
		t.Errorf("she can choose %s", got)
	}
	ada.Await("#claims", "Owner: you")
	ada.to("#owner")
	ada.Press(kb.ArrowDown + kb.ArrowDown)
	ada.Await("#list-empty", "No links of the group ops & co yet.")
	ada.wantFocus("owner")
	ada.Await("#claims", "Owner: the group ops & co")
	names := strings.Join(ada.tour("an empty list of a group"), ", ")
	const order = "Links, Statistics, API keys, Import, export, owner, New link, claims-keep"
	if !strings.Contains(names, order) {
		t.Errorf("the order is %s", names)
	}
	narrow(t, ada, "an empty list of a group", "manage-group-empty")
	ada.to("#claims-take")
	ada.Press(" ")
	ada.Await("#toast", "1 link belongs to the group ops & co now.")
	if l := s.read(t, "claimed"); l.Owner != ops {
		t.Errorf("what she took over is %+v", l)
	}

	// A new link.
	ada.to("#list .head a")
	ada.Press(kb.Enter)
	ada.wantFocus("longUrl")
	ada.Await("#form-of", "Owner: the group ops & co")
	narrow(t, ada, "a new link of a group", "manage-group-new")
	ada.Press("https://example.com/handbook" + kb.Tab + "handbook" + kb.Enter)
	ada.Await("#link-about", "owner: the group ops & co")
	if l := s.read(t, "handbook"); l.Owner != ops {
		t.Errorf("the link is %+v", l)
	}
	s.visit(t, "handbook", firefox, "")

	// The address has the choice: it survives a reload, and another member can open it.
	ada.Click("#link-back")
	testutil.Eventually(t, "both links are listed", func() bool {
		return rows(ada) == "handbook claimed"
	})
	address := Eval[string](ada, "location.hash")
	Eval[any](ada, "void location.reload()")
	ada.AwaitTrue(`performance.getEntriesByType("navigation")[0].type === "reload"`)
	ada.Await("#list-count", "2 links")
	if got := ada.Value("#owner"); got != ops {
		t.Errorf("after a reload she looks at %q", got)
	}
	bob := chromium.New(t)
	s.signIn(bob, "/manage", "bob", `["ops & co"]`)
	bob.Await("#list-empty", "No links yet")
	bob.Open(s.url + "/manage?again" + address)
	bob.Await("#list-count", "2 links")
	bob.Check("a list of a group")
	bob.Fill("#q", "hand")
	bob.Await("#list-count", "1 match")
	bob.Click("#list-rows .what > a")
	bob.edit()
	bob.Fill("#title", "The handbook")
	bob.Fill("#new-tag", "team,")
	bob.Press(kb.Enter)
	bob.Await("#toast", "Saved")
	bob.Click("#link-back") // to the filtered list
	bob.Await("#list-count", "1 match")
	if got := bob.Value("#q") + " of " + bob.Value("#owner"); got != "hand of "+ops {
		t.Errorf("back in the list he sees %s", got)
	}
	bob.Click("#list-rows .tag")
	bob.AwaitTrue(`location.hash.endsWith("tag=team")`)
	bob.Await("#list-count", "1 match") // of the group still

	// Somebody outside the group is refused, and somebody without any group is shown nothing new.
	eve := chromium.New(t)
	s.signIn(eve, "/manage", "eve", `["dev"]`)
	eve.Open(s.url + "/manage?again" + address)
	eve.Await("#list-problem", "a group that you belong to")
	eve.Check("a list of somebody else's group")
	eve.choose("#owner", "")
	eve.Await("#list-empty", "No links yet")
	eve.Click("#sign-out")
	eve.Await("#signin-says", "You are signed out")
	eve.Fill("#key", s.keyOf(t, "eve"))
	eve.Press(kb.Enter)
	eve.Await("#list-empty", "No links yet")
	if got := eve.Text("#owner-field"); got != "" {
		t.Errorf("somebody without groups is shown %s", got)
	}

	// Clicks and top links.
	ada.Click(`#tabs [href^="#/clicks"]`)
	testutil.Eventually(t, "the click counts for the group", func() bool {
		ada.Click("#stats-again")
		ada.AwaitTrue("!" + find("#stats-body") + ".ariaBusy")
		return strings.HasPrefix(ada.Text("#stats-figures"), "Clicks\n1\n")
	})
	ada.to("#owner")
	ada.Press(kb.ArrowUp + kb.ArrowUp)
	ada.Await("#stats-body", "No clicks in this time")
	ada.wantFocus("owner")
	if got := Eval[string](ada, "location.hash"); got != "#/clicks" {
		t.Errorf("her own clicks are at %s", got)
	}
	ada.GoTo("#/?order=24h", "#list-empty", "No clicks in the last 24 hours")
	ada.choose("#owner", ops)
	ada.Await("#list-rows", "/handbook")
	ada.Click("#list-rows .what > a")
	ada.Await("#link-title", "The handbook")

	// The address of a link names no owner. Its page leads to the links of the link's group.
	ada.Open(s.url + "/manage?once-more#/link/handbook")
	ada.Await("#link-short", "/handbook")
	ada.Click("#link-back")
	ada.Await("#list-count", "2 links")

	// Keys.
	ada.Click(`#tabs [href^="#/keys"]`)
	ada.Await("#keys-empty", "No keys yet")
	ada.Await("#key-new", "Leave empty for a year, the most for a group's key")
	ada.to("#key-name")
	ada.Press("for the wiki" + kb.Enter)
	ada.Await("#new-key", "it is not shown again")
	key := ada.Text("#new-key-text")
	narrow(t, ada, "a new key of a group", "manage-group-key")
	if got := s.as(t, key, "GET", "/api/me", "")["owner"]; got != ops {
		t.Errorf("the key is %v's", got)
	}
	ada.Await("#keys-rows", "by you")
	ada.choose("#owner", "")
	ada.Await("#keys-empty", "No keys yet")
	ada.Await("#key-new", "Leave empty for never")
	bob.GoTo("#/keys?owner="+strings.ReplaceAll(ops, "&", "%26"), "#keys-rows", "by "+s.host+"|ada")
	if got := bob.Text("#keys-rows"); strings.Contains(got, "by you") {
		t.Errorf("he sees Ada's key as %s", got)
	}
	year := fmt.Sprint(time.Now().Year() + 1)
	if got := bob.Text("#keys-rows"); !strings.Contains(got, "expires") || !strings.Contains(got,
		year) {
		t.Errorf("he sees the key %s", got)
	}

	// An admin names any owner, in other views than the list too. What is typed there stays.
	admin := chromium.New(t)
	admin.Open(s.url + "/manage")
	admin.wantFocus("provider-go")
	admin.Fill("#key", adminKey)
	admin.Press(kb.Enter)
	admin.Await("#list-empty", "Name an owner above to see theirs")
	admin.Fill("#owner", ops)
	admin.Await("#list-count", "2 links")
	admin.wantFocus("owner")
	admin.Click(`#list .head a`)
	admin.Await("#form-of", "Owner: the group ops & co")
	admin.wantFocus("longUrl")
	admin.Press("https://example.com/bobs" + kb.Tab + "bobs")
	admin.Fill("#owner", "bob")
	admin.Press(kb.Enter)
	admin.Await("#form-of", "Owner: bob")
	admin.wantFocus("owner")
	admin.tour("an admin's new link")
	narrow(t, admin, "an admin's new link", "manage-admin-new")
	admin.Click("#save")
	admin.Await("#link-about", "owner bob")
	if l := s.read(t, "bobs"); l.Owner != "bob" || l.LongURL != "https://example.com/bobs" {
		t.Errorf("the admin made %+v", l)
	}
	admin.Click(`#tabs [href^="#/?"]`)
	admin.Await("#list-count", "link")
	admin.choose("#order", "24h")
	admin.Await("#list-empty", "No clicks in the last")
	admin.Fill("#owner", "")
	admin.Await("#list-rows", "/handbook") // of everybody
	if !Eval[bool](admin, find("#q")+".disabled && "+find("#tag")+".disabled && "+find("#state")+
		".disabled") {
		t.Error("filters look as if they did something")
	}
	admin.Click(`#tabs [href="#/keys"]`)
	admin.Await("#keys-rows", ops+" · ")
	admin.Fill("#key-owner", ops)
	admin.Await("#key-new", "the most for a group's key")
	if got := admin.Text("#owner-field"); got != "" {
		t.Errorf("beside all keys it asks for the owner: %s", got)
	}
}

// Members give links to themselves and to their groups, and an admin to anybody. The page
// says what that means before they do it.
func TestManageGiveALink(t *testing.T) {
	t.Parallel()
	s := serveTeam(t)
	ops := s.host + "|group|ops"
	p := chromium.New(t)
	s.signIn(p, "/manage#/new", "ada", `["ops","dev"]`)
	p.wantFocus("longUrl")
	p.Press("https://example.com/mine" + kb.Tab + "mine" + kb.Enter)
	p.Await("#link-about", "owner: you")
	p.edit()
	p.Fill("#title", "typed")
	p.to("#give summary")
	p.Press(" ")
	if got := Eval[string](p, find("#new-owner")+".innerText"); got != "Group ops\nGroup dev" {
		t.Errorf("she can give it to %s", got)
	}
	names := strings.Join(p.tour("a link to give"), ", ")
	if want := ", Give it to another owner, new-owner, give-ask, History"; !strings.HasSuffix(names,
		want) {
		t.Errorf("the order is %s", names)
	}
	p.to("#give-ask")
	p.Press(" ")
	p.wantFocus("give-go")
	p.Await("#give-says", "It leaves your links and goes to the links of the group ops. Everybody "+
		"in that group can change it then. Its end, clicks and history stay.")
	p.tour("about to give")
	narrow(t, p, "about to give", "manage-give")
	p.to("#give-not")
	p.Press(" ")
	p.wantFocus("give-ask")
	if got := s.read(t, "mine").Owner; got != s.host+"|ada" {
		t.Errorf("kept, it is %s's", got)
	}
	p.Press(" ")
	p.wantFocus("give-go")
	p.Press(" ")
	p.Await("#toast", "Given to the group ops")
	p.Await("#link-about", "owner: the group ops")
	if got := s.read(t, "mine").Owner; got != ops {
		t.Errorf("it is %s's", got)
	}
	if got := p.Value("#title"); got != "typed" {
		t.Errorf("what was typed became %q", got)
	}
	p.Click("#link-back")
	p.Await("#list-empty", "No links yet")
	p.choose("#owner", ops)
	p.Await("#list-count", "1 link")

	// Somebody else in the group has changed it meanwhile.
	p.Click("#list-rows .what > a")
	p.edit()
	s.as(t, adminKey, "PATCH", "/api/links/mine", `{"tags":["new"]}`)
	p.Click("#give summary")
	p.Click("#give-ask")
	p.Await("#give-says", "It leaves the links of the group ops and goes to your links. Only you")
	p.Click("#give-go")
	p.Await("#give-problem", "The link was changed meanwhile")
	p.Await("#link-tags", "new")
	p.Click("#give-ask")
	p.Click("#give-go")
	p.Await("#toast", "Given to you")

	// An admin gives any link to anybody, one that nobody owns too.
	if _, err := testutil.Send("POST", s.url+"/api/shorten",
		`{"longUrl":"https://example.com/nobodys","alias":"nobodys"}`, "Content-Type",
		"application/json"); err != nil {
		t.Fatal(err)
	}
	admin := chromium.New(t)
	admin.Open(s.url + "/manage#/link/nobodys")
	admin.wantFocus("provider-go")
	admin.Fill("#key", adminKey)
	admin.Press(kb.Enter)
	admin.Await("#link-about", "without an owner")
	admin.Click("#give summary")
	admin.Click("#give-ask")
	admin.Await("#new-owner-error", "Name the new owner")
	admin.wantFocus("new-owner")
	admin.Press(strings.Repeat("x", 401) + kb.Enter)
	admin.Await("#give-says", "It has no owner and goes to the links of xxx")
	admin.Click("#give-go")
	admin.Await("#new-owner-error", "400")
	narrow(t, admin, "a wrong owner", "manage-give-wrong")
	admin.Fill("#new-owner", "bob")
	admin.Press(kb.Enter)
	admin.Await("#give-says", "goes to the links of bob. Only they can change it then.")
	admin.Click("#give-go")
	admin.Await("#link-about", "owner bob")
	if got := s.read(t, "nobodys").Owner; got != "bob" {
		t.Errorf("it is %s's", got)
	}
	bob := chromium.New(t)
	bob.Open(s.url + "/manage#/link/nobodys")
	bob.wantFocus("provider-go")
	bob.Fill("#key", s.keyOf(t, "bob"))
	bob.Press(kb.Enter)
	bob.Await("#link-about", "expires ") // its end stays
	if got := bob.Text("#give"); got != "" {
		t.Errorf("somebody without groups is shown %s", got)
	}
}

// The page of a link shows who did what, and puts a former long URL back.
func TestManageHistory(t *testing.T) {
	t.Parallel()
	s := serveStored(t)
	key := s.keyOf(t, "ada")
	s.put(t, key, "mine", "")
	p := s.manage(t, key)
	p.openLink("mine")
	p.to("#past summary")
	p.Press(" ")
	p.Await("#past", "No changes yet.")
	p.Check("no history")
	p.Fill("#longUrl", "https://example.com/"+strings.Repeat("long", 100))
	p.Fill("#title", "<b>New</b>")
	Eval[any](p, find("#expiresAtUtc")+`.value = "2040-05-06T07:08"`)
	p.Click("#save")
	p.Await("#past-rows", "Edited by you")
	p.Await("#past-rows", "was https://example.com/mine")
	for _, want := range []string{"Title\nwas none", "Expires\nwas never"} {
		if got := p.Text("#past-rows"); !strings.Contains(got, want) {
			t.Errorf("without %q: %s", want, got)
		}
	}
	if p.Text("#past-empty") != "" {
		t.Error("it says that there are no changes")
	}
	s.as(t, adminKey, "PATCH", "/api/links/mine", `{"title":null}`)
	p.Click("#link-disable")
	p.Await("#link-wrong", "The link was changed meanwhile")
	p.Await("#past-rows", "Edited by admin")
	p.Await("#past-rows", "was <b>New</b>")
	p.Click("#link-disable")
	p.Await("#past-rows", "Disabled by you")
	p.Click("#link-disable")
	p.Await("#past-rows", "Enabled by you")
	p.Click("#link-delete")
	p.Await("#past-rows", "Deleted by you")
	if got := Eval[int](p, `document.querySelectorAll("#past-rows button").length`); got != 0 {
		t.Errorf("a deleted link has %d things to put back", got)
	}
	p.Click("#link-undo")
	p.Await("#past-rows", "Restored by you")
	p.Fill("#title", "typed")
	names := strings.Join(p.tour("a history"), ", ")
	if !strings.HasSuffix(names, "History, Put it back: https://example.com/mine") {
		t.Errorf("the order is %s", names)
	}
	narrow(t, p, "a history", "manage-history")

	// Somebody edits the link meanwhile, so that putting back is refused once.
	s.as(t, key, "PATCH", "/api/links/mine", `{"statusCode":301}`)
	p.to("#past-rows button")
	p.Press(" ")
	p.Await("#back-problem", "The link was changed meanwhile")
	p.Await("#past-rows", "Redirect\nwas 302")
	p.to("#past-rows button")
	p.Press(" ")
	p.Await("#toast", "Put back: it leads there again")
	p.AwaitTrue(`document.activeElement === ` + find("#past summary"))
	p.Await("#link-long", "https://example.com/mine")
	if l := s.read(t, "mine"); l.LongURL != "https://example.com/mine" || l.StatusCode != 301 {
		t.Errorf("the link is %+v", l)
	}
	if title, to := p.Value("#title"), p.Value("#longUrl"); title != "typed" ||
		to != "https://example.com/mine" {
		t.Errorf("the form has %s and %s", title, to)
	}
	p.AwaitTrue(`document.querySelectorAll("#past-rows li").length === 8`)
	if got := Eval[string](p, `[...document.querySelectorAll("#past-rows button")].map((b) => `+
		`b.ariaLabel.slice(0, 35)).join()`); got != "Put it back: https://example.com/lo" {
		t.Errorf("it offers %s", got)
	}
	s.as(t, adminKey, "PUT", "/api/blocked/example.com", "")
	p.Click("#past-rows button")
	p.Await("#back-problem", "blocked")
	s.as(t, adminKey, "DELETE", "/api/blocked/example.com", "")

	// A hand-over and a claim, as an admin reads them.
	s.as(t, adminKey, "PATCH", "/api/links/mine", `{"owner":"bob"}`)
	made, err := testutil.Send("POST", s.url+"/api/shorten",
		`{"longUrl":"https://example.com/claimed","alias":"claimed"}`, "Content-Type",
		"application/json")
	if err != nil || made.Status != 201 {
		t.Fatalf("%+v, %v", made, err)
	}
	token := "tnc_" + strings.Split(strings.Split(made.Body, "tnc_")[1], `"`)[0]
	s.as(t, token, "DELETE", "/api/links/claimed", "")
	s.as(t, token, "POST", "/api/links/claimed/restore", "")
	s.as(t, key, "POST", "/api/claims", `{"claims":[{"alias":"claimed","claimToken":"`+token+`"}]}`)
	admin := s.manage(t, adminKey)
	for alias, wants := range map[string][]string{
		"mine": {"Given from ada to bob by you", "Edited by ada"},
		"claimed": {"Taken over by ada", "Expires\nwas ",
			"Restored by whoever had its claim token"},
	} {
		admin.openLink(alias)
		if admin.Text("#past-rows") != "" {
			t.Errorf("%s: it shows the history before anybody asks", alias)
		}
		admin.Click("#past summary")
		for _, want := range wants {
			admin.Await("#past-rows", want)
		}
	}
	s.down(true)
	admin.GoTo("#/", "#list-title", "Links")
	s.down(false)
	admin.openLink("mine")
	s.down(true)
	admin.Click("#past summary")
	admin.Await("#past-problem", "Try again in a moment")
	s.down(false)
	admin.Click("#past-problem button")
	admin.Await("#past-rows", "Given from ada to bob by you")
}

// The owner of a link that was taken down sees that, and is offered nothing that is refused. An
// admin sees how that ends.
func TestManageTakedown(t *testing.T) {
	t.Parallel()
	s := serveStored(t)
	key := s.keyOf(t, "ada")
	for _, alias := range []string{"off", "gone"} {
		s.PutLink(link.Link{Name: link.Name(alias), LongURL: "https://example.com/" + alias,
			Owner: "ada", CreatedAt: time.Now()})
	}
	p, admin := s.manage(t, key), s.manage(t, adminKey)
	admin.GoTo("#/link/off", "#link-state", "Live")
	admin.Click("#link-disable")
	admin.Await("#toast", "Taken down: only an admin can enable it")
	admin.Await("#link-state", "Taken down")
	admin.Await("#link-locked", "That ends when you enable it.")
	admin.Check("a link that was taken down, for an admin")
	admin.GoTo("#/link/gone", "#link-state", "Live")
	admin.Click("#link-delete")
	admin.Await("#toast", "Deleted and taken down")
	admin.Await("#link-locked", "That ends when you restore it.")

	const why = "The people who run this service took this link down; only they can change it."
	p.GoTo("#/?state=disabled", "#list-rows", "/off")
	p.Await("#list-rows .badge", "Taken down")
	p.Check("a list with a link that was taken down")
	for _, alias := range []string{"off", "gone"} {
		p.openLink(alias)
		p.Await("#link-locked", why)
		if got := p.Text("#link-disable") + p.Text("#link-delete") + p.Text("#link-undo") +
			p.Text("#give"); got != "" {
			t.Errorf("%s: it offers %s", alias, got)
		}
		const enabled = `document.querySelectorAll("#form :enabled:not(option)").length`
		if got := Eval[int](p, enabled); got != 0 {
			t.Errorf("%s: %d fields take changes that are refused", alias, got)
		}
		p.Click("#past summary")
		p.Await("#past-rows", map[string]string{"off": "Disabled by admin",
			"gone": "Deleted by admin"}[alias])
		narrow(t, p, "a link that was taken down", "manage-locked-"+alias)
	}

	// It is taken down while its owner types.
	s.PutLink(link.Link{Name: "typed", LongURL: "https://example.com/typed", Owner: "ada",
		CreatedAt: time.Now()})
	p.openLink("typed")
	p.Fill("#title", "typed")
	s.as(t, adminKey, "PATCH", "/api/links/typed", `{"disabled":true}`)
	p.Press(kb.Enter)
	p.Await("#conflict", "Taken down")
	p.Check("taken down meanwhile")
	p.Press(kb.Enter) // keep what is typed
	p.Await("#link-locked", why)
	if got := p.Value("#title"); got != "typed" {
		t.Errorf("what was typed became %q", got)
	}

	admin.Click("#link-undo")
	admin.Await("#link-state", "Live")
	admin.GoTo("#/link/off", "#link-state", "Taken down")
	admin.Click("#link-disable")
	admin.Await("#link-state", "Live")
	if got := admin.Text("#link-locked"); got != "" {
		t.Errorf("it still says %s", got)
	}
	p.GoTo("#/link/off", "#link-state", "Live")
	p.edit()
	p.Fill("#title", "Mine again")
	p.Press(kb.Enter)
	p.Await("#toast", "Saved")
}
