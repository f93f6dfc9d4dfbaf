package e2e

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tiney/internal/testing/oidcprovider"
)

// teams is a walk through the transfer of links, their history, and what admins take down. Ada and
// Bob have keys.
var teams = []step{
	{name: "for somebody else", as: "ADA", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/","owner":"bob"}`, status: 403,
		want: `{"type":"/problems/forbidden","field":"owner"}`},
	{name: "for Bob, by the admin", as: "ADMIN", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/","alias":"docs","owner":"bob"}`, status: 201},
	{name: "it is Bob's", as: "BOB", method: "PATCH", target: "/api/links/docs",
		body: `{"title":"Docs"}`, status: 200, want: `{"owner":"bob","locked":false}`, keep: "TAG=Etag"},
	{name: "giving it to Ada", as: "BOB", method: "PATCH", target: "/api/links/docs",
		body: `{"owner":"ada"}`, status: 403, want: `{"field":"owner"}`},
	{name: "giving it to nobody", as: "ADMIN", method: "PATCH", target: "/api/links/docs",
		body: `{"owner":null}`, status: 400, want: `{"field":"owner"}`},
	{name: "the admin gives it to Ada", as: "ADMIN", method: "PATCH", target: "/api/links/docs",
		body: `{"owner":"ada"}`, headers: []string{"If-Match", "$TAG"}, status: 200,
		want: `{"owner":"ada","title":"Docs"}`},
	{name: "it is not Bob's", as: "BOB", method: "GET", target: "/api/links/docs", status: 404},
	{name: "nor in his list", as: "BOB", method: "GET", target: "/api/links", status: 200,
		want: `{"items":[]}`},
	{name: "but in Ada's", as: "ADA", method: "GET", target: "/api/links", status: 200,
		want: `{"items":[{"alias":"docs"}]}`},
	{name: "and for her URL", as: "ADA", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/"}`, status: 200, want: `{"alias":"docs"}`},
	{name: "it leads there as before", method: "GET", target: "/docs", status: 302},
	{name: "its history", as: "ADA", method: "GET", target: "/api/links/docs/history", status: 200,
		want: `{"items":[{"by":"admin","what":"transferred","before":{"owner":"bob"}},` +
			`{"by":"bob","what":"edited","before":{"title":null}}]}`},
	{name: "its history, for Bob", as: "BOB", method: "GET", target: "/api/links/docs/history",
		status: 404},
	{name: "its history, below an unknown name", as: "ADA", method: "GET",
		target: "/api/links/nobody/history", status: 404},

	{name: "nobody's", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/free"}`, status: 201,
		keep: "FREE=alias CLAIM=claimToken"},
	{name: "claimed for somebody else", as: "ADA", method: "POST", target: "/api/claims",
		body:   `{"claims":[{"alias":"$FREE","claimToken":"$CLAIM"}],"owner":"bob"}`,
		status: 403, want: `{"field":"owner"}`},
	{name: "claimed for Bob", as: "ADMIN", method: "POST", target: "/api/claims",
		body:   `{"claims":[{"alias":"$FREE","claimToken":"$CLAIM"}],"owner":"bob"}`,
		status: 200, want: `{"results":[{"result":"claimed"}]}`},
	{name: "more of nobody's", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/free"}`, status: 201,
		keep: "GIVEN=alias CLAIM=claimToken"},
	{name: "given to Ada", as: "ADMIN", method: "PATCH", target: "/api/links/$GIVEN",
		body: `{"owner":"ada"}`, status: 200, want: `{"owner":"ada"}`},
	{name: "its token is void", as: "CLAIM", method: "DELETE", target: "/api/links/$GIVEN",
		status: 403},

	{name: "taken down", as: "ADMIN", method: "PATCH", target: "/api/links/docs",
		body: `{"disabled":true}`, status: 200, want: `{"locked":true}`},
	{name: "it leads nowhere", method: "GET", target: "/docs", status: 410},
	{name: "enabling it", as: "ADA", method: "PATCH", target: "/api/links/docs",
		body: `{"disabled":false}`, status: 403, want: `{"type":"/problems/link-locked"}`},
	{name: "deleting it", as: "ADA", method: "DELETE", target: "/api/links/docs", status: 403},
	{name: "another of that URL", as: "ADA", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/"}`, status: 403,
		want: `{"type":"/problems/target-disabled"}`},
	{name: "Bob's own", as: "BOB", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/"}`, status: 201, keep: "BOBS=alias"},
	{name: "gone", as: "ADMIN", method: "DELETE", target: "/api/links/docs", status: 204},
	{name: "gone again", as: "ADA", method: "DELETE", target: "/api/links/docs", status: 204},
	{name: "restoring it", as: "ADA", method: "POST", target: "/api/links/docs/restore",
		status: 403, want: `{"type":"/problems/link-locked"}`},
	{name: "the admin restores it", as: "ADMIN", method: "POST", target: "/api/links/docs/restore",
		status: 200, want: `{"locked":true,"disabled":true}`},
	{name: "the admin enables it", as: "ADMIN", method: "PATCH", target: "/api/links/docs",
		body: `{"disabled":false}`, status: 200, want: `{"locked":false}`},
	{name: "it is Ada's again", as: "ADA", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/"}`, status: 200, want: `{"alias":"docs"}`},
	{name: "and she can delete it", as: "ADA", method: "DELETE", target: "/api/links/docs",
		status: 204},
}

// TestTeams takes the walk, and then checks that no row leads to a link that it does not fit.
func TestTeams(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hosted(true, emulator.ConnectionString())
	key := func(owner, name string) step {
		return step{name: owner + "'s key", as: "ADMIN", method: "POST", target: "/api/keys",
			body: `{"name":"x","owner":"` + owner + `"}`, status: 201, keep: name + "=key"}
	}
	kept := take(t, h.URL(), append([]step{key("ada", "ADA"), key("bob", "BOB")}, teams...))
	s.WantNoLeak()
	for _, link := range []struct{ as, alias string }{{"BOB", "FREE"}, {"BOB", "BOBS"},
		{"ADA", "GIVEN"}} {
		caller{t, h.URL(), kept[link.as]}.must(204, "DELETE", "/api/links/"+kept[link.alias], "")
	}
	for _, d := range []time.Duration{8 * 24 * time.Hour, 31 * 24 * time.Hour} {
		s.Age(d)
		if _, err := h.FireTimer(ctx, "reaper"); err != nil {
			t.Error(err)
		}
	}
	s.WantNothing()
}

// Members of a group hand links to it and take them back. Their processes share the tables alone.
func TestLinksOfGroups(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := oidcprovider.Start(t, oidcprovider.Options{})
	settings := []string{"OIDC_ISSUER=" + p.Issuer(), "OIDC_CLIENT_ID=" + oidcprovider.ClientID,
		"OIDC_GROUPS_CLAIM=groups"}
	one := s.standalone(emulator.ConnectionString(), settings...).url
	two := s.hosted(false, emulator.ConnectionString(), settings...).URL()
	member := func(base, user string, groups ...string) caller {
		return caller{t, base, p.SignInWith(t, user, jwt.MapClaims{"groups": groups})}
	}
	ann, bob, eve := member(one, "ann", "Büro & Co"), member(two, "bob", "Büro & Co"),
		member(two, "eve", "others")
	host := strings.TrimPrefix(p.Issuer(), "http://")
	group := host + "|group|Büro & Co"
	ann.must(201, "POST", "/api/shorten", `{"longUrl":"https://example.com/1","alias":"one"}`)
	ann.must(201, "POST", "/api/shorten",
		`{"longUrl":"https://example.com/2","alias":"two","owner":"`+group+`"}`)
	ann.must(200, "PATCH", "/api/links/one", `{"owner":"`+group+`"}`)
	query := "?owner=" + url.QueryEscape(group)
	if got := bob.must(200, "GET", "/api/links"+query, "")["items"]; !matches(got,
		[]any{map[string]any{"alias": "two"}, map[string]any{"alias": "one"}}) && !matches(got,
		[]any{map[string]any{"alias": "one"}, map[string]any{"alias": "two"}}) {
		t.Errorf("the group has %v", got)
	}
	if got := bob.send("GET", "/api/export"+query, ""); got.Status != 200 ||
		strings.Count(got.Body, "\n") != 2 {
		t.Errorf("its export: %+v", got)
	}
	for target, want := range map[string]int{"/api/links" + query: 403, "/api/export" + query: 403,
		"/api/links/one/history": 404, "/api/links/two": 404} {
		if got := eve.send("GET", target, ""); got.Status != want {
			t.Errorf("%s for somebody else: %+v", target, got)
		}
	}
	bob.must(200, "PATCH", "/api/links/one", `{"owner":"`+host+`|bob","title":"One"}`)
	if got := ann.send("GET", "/api/links/one", ""); got.Status != 404 {
		t.Errorf("what Bob has taken is still hers: %+v", got)
	}
	if got := bob.must(200, "GET", "/api/links/one/history", "")["items"]; !matches(got, []any{
		map[string]any{"by": host + "|bob", "what": "transferred",
			"before": map[string]any{"owner": group}},
		map[string]any{"by": host + "|ann", "what": "transferred",
			"before": map[string]any{"owner": host + "|ann"}}}) {
		t.Errorf("its history: %v", got)
	}
}
