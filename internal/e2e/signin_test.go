package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tiney/internal/oidcprovider"
	"tiney/internal/testutil"
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
		"/api/links/adas/restore", ""); got.Status != 403 {
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
