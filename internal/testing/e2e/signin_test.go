package e2e

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tiney/internal/telemetry"
	"tiney/internal/testing/oidcprovider"
	"tiney/internal/testing/testutil"
)

func TestSignIn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := oidcprovider.Start(t, oidcprovider.Options{})
	settings := []string{"OIDC_ISSUER=" + p.Issuer(), "OIDC_CLIENT_ID=" + oidcprovider.ClientID,
		"OIDC_ADMIN_ROLE=boss"}
	bases := map[string]string{
		"on its own": s.standalone(emulator.ConnectionString(), settings...).url,
		"behind a host that forwards": s.hosted(false, emulator.ConnectionString(),
			settings...).URL(),
		"behind a host that proxies": s.hosted(true, emulator.ConnectionString(),
			settings...).URL(),
	}
	ada, boss := p.SignIn(t, "ada", "admin"), p.SignIn(t, "eve", "reader", "boss")
	expired, early := p.Claims("ada"), p.Claims("ada")
	expired["exp"] = time.Now().Add(-2 * time.Minute).Unix()
	early["nbf"] = time.Now().Add(time.Hour).Unix()
	another := oidcprovider.Start(t, oidcprovider.Options{})
	host := strings.TrimPrefix(p.Issuer(), "http://")
	for where, base := range bases {
		for name, test := range map[string]struct {
			token string
			want  map[string]any
		}{
			"an owner": {ada, map[string]any{"owner": host + "|ada", "admin": false,
				"name": "ada"}},
			"an admin":         {boss, map[string]any{"owner": host + "|eve", "admin": true}},
			"expired":          {p.Key().Sign(t, expired, nil), nil},
			"not yet valid":    {p.Key().Sign(t, early, nil), nil},
			"another audience": {p.SignInTo(t, oidcprovider.OtherClientID, "ada"), nil},
			"another provider": {another.SignIn(t, "ada"), nil},
			"another's key":    {another.Key().Sign(t, p.Claims("ada"), nil), nil},
			"no signature":     {unsigned(t, p.Claims("ada")), nil},
			"spoiled":          {ada[:len(ada)-8] + "AAAAAAAA", nil},
			"no end":           {p.Key().Sign(t, without(p.Claims("ada"), "exp"), nil), nil},
			"critical extension": {p.Key().Sign(t, p.Claims("ada"),
				map[string]any{"crit": []string{"x"}}), nil},
		} {
			got := caller{t, base, test.token}.send("GET", "/api/me", "")
			if test.want == nil && got.Status != 401 || test.want != nil &&
				(got.Status != 200 || !matches(members(got), test.want)) {
				t.Errorf("%s, %s: got %+v, want %v", where, name, got, test.want)
			}
		}
		if got := get(t, base+"/api/me", "X-Api-Key", ada); got.Status != 401 {
			t.Errorf("%s, a token as an API key: got %+v", where, got)
		}
	}
	// A user who signs in anywhere has the same links and keys everywhere.
	one, two := caller{t, bases["on its own"], ada}, caller{t, bases["behind a host that forwards"],
		p.SignIn(t, "ada")}
	one.must(201, "POST", "/api/shorten", `{"longUrl":"https://example.com/","alias":"adas"}`)
	two.must(200, "PATCH", "/api/links/adas", `{"title":"mine"}`)
	key, _ := two.must(201, "POST", "/api/keys", `{"name":"for a script"}`)["key"].(string)
	caller{t, bases["behind a host that proxies"], key}.must(204, "DELETE", "/api/links/adas", "")
	if got := (caller{t, bases["on its own"], p.SignIn(t, "bob")}).send("POST",
		"/api/links/adas/restore", ""); got.Status != 404 {
		t.Errorf("somebody else: got %+v", got)
	}
	caller{t, bases["on its own"], boss}.must(200, "POST", "/api/links/adas/restore", "")
}

func without(claims jwt.MapClaims, name string) jwt.MapClaims {
	delete(claims, name)
	return claims
}

func unsigned(t *testing.T, claims jwt.MapClaims) string {
	token, err := jwt.NewWithClaims(jwt.SigningMethodNone,
		claims).SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// While a provider is down and its keys are not known, signing in is a 503. Once its keys are
// known, its users do not notice that it is down.
func TestSignInWhileTheProviderIsDown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := oidcprovider.Start(t, oidcprovider.Options{Alg: "ES256"})
	ada := p.SignIn(t, "ada")
	p.Down()
	process := s.standalone(emulator.ConnectionString(), "OIDC_ISSUER="+p.Issuer(),
		"OIDC_CLIENT_ID="+oidcprovider.ClientID)
	me := func(token string) testutil.Response {
		return caller{t, process.url, token}.send(http.MethodGet, "/api/me", "")
	}
	if got := me(ada); got.Status != 503 || got.Header.Get("Retry-After") == "" ||
		!strings.Contains(got.Body, "credentials-unchecked") {
		t.Errorf("while it is down: %+v", got)
	}
	if got := me(adminKey); got.Status != 200 {
		t.Errorf("the admin key meanwhile: %+v", got)
	}
	if _, status := shorten(t, process.url, "https://example.com/"); status != 201 {
		t.Errorf("shorten without credentials meanwhile: %d", status)
	}
	p.Up()
	testutil.Eventually(t, "its users are known again", func() bool {
		return me(ada).Status == 200
	})
	p.Down()
	if got := me(ada); got.Status != 200 {
		t.Errorf("down once more: %+v", got)
	}
	p.Rotate(t, false) // like a provider that restarts and has lost its keys
	p.Up()
	testutil.Eventually(t, "its new key is known", func() bool {
		return me(p.SignIn(t, "ada")).Status == 200
	})
	if log := process.output.String(); !strings.Contains(log,
		"the sign-in provider does not respond") || strings.Contains(log, ada) {
		t.Errorf("the log:\n%s", log)
	}
}

// The members of a group share its keys, also behind either kind of host. A key still works when
// its maker has left; then another member revokes it.
func TestGroups(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := oidcprovider.Start(t, oidcprovider.Options{Alg: "ES256"})
	settings := []string{"OIDC_ISSUER=" + p.Issuer(), "OIDC_CLIENT_ID=" + oidcprovider.ClientID,
		"OIDC_GROUPS_CLAIM=groups", "OIDC_SCOPES=openid groups"}
	own := s.standalone(emulator.ConnectionString(), settings...)
	bases := []string{own.url,
		s.hosted(false, emulator.ConnectionString(), settings...).URL(),
		s.hosted(true, emulator.ConnectionString(), settings...).URL()}
	host := strings.TrimPrefix(p.Issuer(), "http://")
	in := func(user string, groups ...string) string {
		t.Helper()
		return p.SignInWith(t, user, jwt.MapClaims{"groups": groups})
	}
	var names []string
	var many []any
	for i := range 200 {
		names = append(names, fmt.Sprintf("Büro s3cr3t %074d", i))
		many = append(many, host+"|group|"+names[i])
	}
	big := in("big", names...)
	if len(big) < 23<<10 {
		t.Errorf("the token has %d bytes only", len(big))
	}
	overage := p.SignInWith(t, "eve", jwt.MapClaims{"_claim_names": map[string]any{"groups": "src1"},
		"_claim_sources": map[string]any{"src1": map[string]any{"endpoint": p.Issuer() + "/me"}}})
	const ops = "/Büro/ops"
	group := host + "|group|" + ops
	ann, bob := in("ann", ops, "sales"), in("bob", ops)
	for _, base := range bases {
		for token, want := range map[string][]any{big: many, bob: {group}, in("cleo"): {}, overage: {},
			ann: {group, host + "|group|sales"}} {
			got := caller{t, base, token}.must(200, "GET", "/api/me", "")["groups"]
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: got the groups %v, want %v", base, got, want)
			}
		}
	}
	// A value that is too long, or is not a string, is no group.
	odd := p.SignInWith(t, "odd", jwt.MapClaims{"groups": []any{1, strings.Repeat("s3cr3t", 22)}})
	if got := (caller{t, own.url, odd}).must(200, "GET", "/api/me", "")["groups"]; !reflect.DeepEqual(
		got, []any{}) {
		t.Errorf("got the groups %v", got)
	}

	// body is a body with an owner.
	body := func(owner string) string { return `{"name":"for a script","owner":"` + owner + `"}` }
	created := caller{t, bases[1], ann}.must(201, "POST", "/api/keys", body(group))
	if ends, err := time.Parse(time.RFC3339, created["expiresAtUtc"].(string)); err != nil ||
		created["owner"] != group || created["createdBy"] != host+"|ann" ||
		time.Until(ends) > 365*24*time.Hour || time.Until(ends) < 364*24*time.Hour {
		t.Errorf("got %v, %v", created, err)
	}
	if got := (caller{t, bases[1], bob}).send("POST", "/api/keys",
		body(host+"|group|sales")); got.Status != 403 {
		t.Errorf("for another's group: got %+v", got)
	}
	key := caller{t, bases[2], created["key"].(string)}
	key.must(201, "POST", "/api/shorten", `{"longUrl":"https://example.com/","alias":"of-ops"}`)
	if got := key.must(200, "GET", "/api/links/of-ops", "")["owner"]; got != group {
		t.Errorf("its link belongs to %v", got)
	}

	// Ann leaves the group. That takes effect with her next token.
	revoke := "/api/keys/" + created["id"].(string)
	left := caller{t, own.url, in("ann", "sales")}
	if got := left.must(200, "GET", "/api/keys", "")["items"]; !reflect.DeepEqual(got, []any{}) {
		t.Errorf("who has left sees %v", got)
	}
	if got := left.send("DELETE", revoke, ""); got.Status != 403 {
		t.Errorf("who has left revokes: got %+v", got)
	}
	caller{t, own.url, ann}.must(200, "GET", "/api/keys", "") // the token before has not ended
	if got := key.must(200, "GET", "/api/me", ""); got["owner"] != group ||
		!reflect.DeepEqual(got["groups"], []any{}) {
		t.Errorf("the key is %v", got)
	}
	other := caller{t, own.url, bob}
	listed, _ := other.must(200, "GET", "/api/keys", "")["items"].([]any)
	if len(listed) != 1 || !matches(listed[0], map[string]any{"id": created["id"],
		"createdBy": host + "|ann"}) {
		t.Errorf("another member sees %v", listed)
	}
	other.must(204, "DELETE", revoke, "")
	testutil.Eventually(t, "the key is refused everywhere", func() bool {
		return key.send("GET", "/api/me", "").Status == 401
	})

	log := own.output.String()
	for _, reason := range []string{"too many", "not a string", "128 printable"} {
		if n := strings.Count(log, reason); n != 1 || !strings.Contains(log,
			telemetry.LogGroupsLost) {
			t.Errorf("the log says %q %d times:\n%s", reason, n, log)
		}
	}
	if strings.Contains(log, "s3cr3t") || strings.Contains(log, ops) {
		t.Errorf("the log names groups:\n%s", log)
	}
}
