package access_test

import (
	"errors"
	"maps"
	"testing"
	"time"

	"tiney/internal/access"
	"tiney/internal/testing/oidcprovider"
)

// Access tokens for the API are accepted beside ID tokens, if the settings name their audience. One
// that lacks the scope is not invalid: its program may ask for another one.
func TestAccessTokens(t *testing.T) {
	t.Parallel()
	p, clock, without := start(t, oidcprovider.Options{Alg: "ES256"})
	invalid := access.ErrInvalid
	const api, scope = "https://go.example/api/mcp", "api://go.example/Links.Write"
	config := access.OIDCConfig{Issuer: p.Issuer(), ClientID: oidcprovider.ClientID,
		APIAudience: api}
	with := signInWith(t, config, clock)
	config.APIScope, config.SubjectClaim = scope, "oid"
	scoped := signInWith(t, config, clock)
	type header = map[string]any
	at := header{"typ": "at+jwt"}
	for name, test := range map[string]struct {
		claims      claims
		header      header
		with, scope error // what the two authenticators say
	}{
		"for the API":        {claims{"scope": "openid " + scope}, at, nil, nil},
		"of the long type":   {claims{"scope": scope}, header{"typ": "Application/AT+JWT"}, nil, nil},
		"of the type JWT":    {claims{"scope": scope}, header{"typ": "JWT"}, nil, nil},
		"of no type":         {claims{"scope": scope}, header{"typ": nil}, nil, nil},
		"in a list":          {claims{"aud": []string{"x", api}, "scope": scope}, at, nil, nil},
		"of another client":  {claims{"azp": "x", "client_id": "y", "scope": scope}, at, nil, nil},
		"as Entra has it":    {claims{"scp": "User.Read Links.Write"}, at, nil, nil},
		"with a list":        {claims{"scp": []string{"a", scope}}, at, nil, nil},
		"with a short list":  {claims{"scp": []any{1, "Links.Write"}}, at, nil, nil},
		"without a scope":    {claims{}, at, nil, access.ErrScope},
		"a short scope":      {claims{"scope": "Links.Write"}, at, nil, access.ErrScope},
		"a longer scope":     {claims{"scope": scope + "x"}, at, nil, access.ErrScope},
		"a scope in a list":  {claims{"scope": []string{scope}}, at, nil, access.ErrScope},
		"a number for scope": {claims{"scope": 1, "scp": 2}, at, nil, access.ErrScope},
		"an audience alike":  {claims{"aud": api + "/"}, at, invalid, invalid},
		"another case":       {claims{"aud": "https://GO.example/api/mcp"}, at, invalid, invalid},
		"of another type":    {claims{}, header{"typ": "logout+jwt"}, invalid, invalid},
		"of an empty type":   {claims{}, header{"typ": ""}, invalid, invalid},
		"with events":        {claims{"events": members{}}, at, invalid, invalid},
		"ended": {claims{"exp": clock.Now().Add(-time.Hour).Unix()}, at, invalid,
			invalid},
		"of another issuer": {claims{"iss": "https://x.example"}, at, invalid, invalid},
		"without oid":       {claims{"oid": nil}, at, nil, invalid},
		"without sub":       {claims{"sub": nil, "scope": scope}, at, invalid, nil},
		"for the client, too": {claims{"aud": []string{api, oidcprovider.ClientID}}, at, invalid,
			invalid},
		"an ID token for the API, too": {claims{"aud": []string{api, oidcprovider.ClientID},
			"azp": oidcprovider.ClientID}, nil, nil, nil},
	} {
		all := p.Claims("ada")
		delete(all, "azp")
		all["aud"], all["oid"] = api, "ada"
		maps.Copy(all, test.claims)
		maps.DeleteFunc(all, func(_ string, value any) bool { return value == nil })
		token := p.Key().Sign(t, all, test.header)
		for _, want := range []struct {
			what string
			a    *access.Authenticator
			err  error
		}{{name, with, test.with}, {name + ", with a scope", scoped, test.scope}} {
			if want.err == nil {
				wantOwner(t, want.what, p, want.a, token, "ada")
			} else {
				wantError(t, want.what, want.a, token, want.err)
			}
		}
		if _, err := bearer(t, without, token); all["azp"] == nil && !errors.Is(err, invalid) {
			t.Errorf("%s, without the setting: %v", name, err)
		}
	}
	// Only what follows the last slash of a URI is a short form.
	for scope, scp := range map[string]any{"Links/Write": "Write", "api://x/": []any{1, ""}} {
		config := config
		config.APIScope, config.SubjectClaim = scope, ""
		all := p.Claims("ada")
		all["aud"], all["scp"] = api, scp
		wantError(t, scope, signInWith(t, config, clock), p.Key().Sign(t, all, at), access.ErrScope)
	}
	// What is asked for as an ID token needs no scope, and its owner comes from the same claim.
	id := p.Claims("ada")
	id["oid"] = "ada"
	wantOwner(t, "an ID token", p, scoped, p.Key().Sign(t, id, nil), "ada")
	wantError(t, "an ID token without oid", scoped, p.SignIn(t, "ada"), invalid)
}
