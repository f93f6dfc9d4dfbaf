package access_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tiney/internal/access"
	"tiney/internal/testing/oidcprovider"
	"tiney/internal/testing/testutil"
)

// start starts a provider, and an authenticator that accepts its tokens.
func start(t testing.TB, o oidcprovider.Options) (*oidcprovider.Provider, *testutil.Clock,
	*access.Authenticator) {
	t.Helper()
	p, clock := oidcprovider.Start(t, o), testutil.NewClock()
	return p, clock, signIn(t, p, clock)
}

type claims = jwt.MapClaims

// signIn returns an authenticator that accepts the tokens of p, at the clock's time. It waits for
// the provider's keys longer than the product does, because a busy machine may stand still for a
// while.
func signIn(t testing.TB, p *oidcprovider.Provider, clock *testutil.Clock) *access.Authenticator {
	t.Helper()
	return signInWith(t, access.OIDCConfig{Issuer: p.Issuer(), ClientID: oidcprovider.ClientID,
		AdminRole: "admin", Scopes: "openid groups"}, clock)
}

func signInWith(t testing.TB, c access.OIDCConfig, clock *testutil.Clock) *access.Authenticator {
	t.Helper()
	a := access.New(access.Config{OIDC: &c}, &keys{}, clock.Now)
	a.SetFetchLimit(time.Minute)
	return a
}

func owner(p *oidcprovider.Provider, user string) string {
	return strings.TrimPrefix(p.Issuer(), "http://") + "|" + user
}

// bearer returns the caller that sends a token.
func bearer(t testing.TB, a *access.Authenticator, token string) (access.Caller, error) {
	t.Helper()
	return a.Caller(t.Context(), headers("Authorization: Bearer "+token))
}

// wantOwner checks that a token belongs to a user.
func wantOwner(t testing.TB, what string, p *oidcprovider.Provider, a *access.Authenticator, token,
	user string) {
	t.Helper()
	if got, err := bearer(t, a, token); err != nil || got.Owner != owner(p, user) {
		t.Errorf("%s: %+v, %v; wanted the owner %s", what, got, err, owner(p, user))
	}
}

// wantError checks that a token is refused for this reason, and that the error does not quote it.
func wantError(t testing.TB, what string, a *access.Authenticator, token string, want error) {
	t.Helper()
	got, err := bearer(t, a, token)
	if !isNobody(got) || !errors.Is(err, want) {
		t.Errorf("%s: %+v, %v; wanted %v", what, got, err, want)
	}
	for part := range strings.SplitSeq(token, ".") {
		if err != nil && len(part) > 8 && strings.Contains(err.Error(), part) {
			t.Errorf("%s: the error quotes the token: %v", what, err)
		}
	}
}

func TestSignIn(t *testing.T) {
	for _, alg := range []string{"RS256", "ES256"} {
		t.Run(alg, func(t *testing.T) {
			t.Parallel()
			p := oidcprovider.Start(t, oidcprovider.Options{Alg: alg})
			a := signIn(t, p, testutil.NewClock())
			if p.Fetches() > 0 {
				t.Error("the provider was asked before anybody came")
			}
			for name, c := range map[string]struct {
				user  string
				roles []string
				want  access.Caller
			}{
				"a person": {"ada", nil, access.Caller{Owner: owner(p, "ada"),
					Name: "ada"}},
				"an admin": {"grace", []string{"reader", "admin"},
					access.Caller{Owner: owner(p, "grace"), Name: "grace", Admin: true}},
				"with other roles": {"joan", []string{"Admin", "administrator"},
					access.Caller{Owner: owner(p, "joan"), Name: "joan"}},
				"almost a group": {"group", nil, access.Caller{Owner: owner(p, "group"),
					Name: "group"}},
				"another case": {"Group|x", nil, access.Caller{Owner: owner(p, "Group|x"),
					Name: "Group|x"}},
				"a subject with a bar": {"db|17", nil, access.Caller{Owner: owner(p, "db|17"),
					Name: "db|17"}},
			} {
				if got, err := bearer(t, a, p.SignIn(t, c.user, c.roles...)); err != nil ||
					!reflect.DeepEqual(got, c.want) {
					t.Errorf("%s: %+v, %v; wanted %+v", name, got, err, c.want)
				}
			}
			if p.Fetches() != 1 {
				t.Errorf("the provider was asked for its keys %d times", p.Fetches())
			}
		})
	}
}

// TestHostileTokens sends tokens that are right except for one thing. The provider's own key has
// signed most of them.
func TestHostileTokens(t *testing.T) {
	t.Parallel()
	for _, alg := range []string{"RS256", "ES256"} {
		t.Run(alg, func(t *testing.T) {
			t.Parallel()
			p, clock := oidcprovider.Start(t, oidcprovider.Options{Alg: alg}), testutil.NewClock()
			other := oidcprovider.Start(t, oidcprovider.Options{Alg: alg})
			a := signIn(t, p, clock)
			key, now := p.Key(), clock.Now()
			right := p.SignIn(t, "ada")
			header, payload, signature := strings.Split(right, ".")[0],
				strings.Split(right, ".")[1], strings.Split(right, ".")[2]

			// with signs the right claims with these changes; nil removes a claim.
			with := func(spoiled claims) string {
				claims := p.Claims("ada")
				maps.Copy(claims, spoiled)
				maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
				return key.Sign(t, claims, nil)
			}
			headed := func(h map[string]any) string { return key.Sign(t, p.Claims("ada"), h) }
			by := func(method jwt.SigningMethod, secret any, h map[string]any) string {
				token := jwt.NewWithClaims(method, p.Claims("ada"))
				token.Header["kid"] = key.ID
				maps.Copy(token.Header, h)
				signed, err := token.SignedString(secret)
				if err != nil {
					t.Fatal(err)
				}
				return signed
			}
			encode := func(s string) string {
				return base64.RawURLEncoding.EncodeToString([]byte(s))
			}
			public, err := x509.MarshalPKIXPublicKey(key.Private.Public())
			if err != nil {
				t.Fatal(err)
			}
			rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
			if err != nil {
				t.Fatal(err)
			}
			ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			p384Key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
			if err != nil {
				t.Fatal(err)
			}
			stranger := oidcprovider.Key{ID: key.ID, Private: ecKey}
			if alg == "RS256" {
				stranger.Private = rsaKey
			}

			for name, token := range map[string]string{
				"signed in":               right,
				"signed here":             with(nil),
				"for this service by azp": with(claims{"azp": oidcprovider.ClientID}),
				"for several, made for this one": with(claims{"aud": []string{"another",
					oidcprovider.ClientID}, "azp": oidcprovider.ClientID}),
				"for a list of one": with(
					claims{"aud": []string{oidcprovider.ClientID}}),
				"made within the leeway": with(
					claims{"iat": now.Add(59 * time.Second).Unix()}),
				"made at an unknown time": with(claims{"iat": nil}),
				"ended within the leeway": with(
					claims{"exp": now.Add(-59 * time.Second).Unix()}),
				"from within the leeway": with(
					claims{"nbf": now.Add(59 * time.Second).Unix()}),
				"of no type":                     headed(map[string]any{"typ": nil}),
				"of its type in lower case":      headed(map[string]any{"typ": "jwt"}),
				"without the key's name":         headed(map[string]any{"kid": nil}),
				"with a header's unknown member": headed(map[string]any{"x": "y"}),
			} {
				wantOwner(t, name, p, a, token, "ada")
			}

			nullAzp := p.Claims("ada")
			nullAzp["azp"] = nil

			for name, token := range map[string]string{
				"for another service":            p.SignInTo(t, oidcprovider.OtherClientID, "ada"),
				"of another provider":            other.SignIn(t, "ada"),
				"of another issuer, by this key": with(claims{"iss": other.Issuer()}),
				"of the issuer with a slash":     with(claims{"iss": p.Issuer() + "/"}),
				"of no issuer":                   with(claims{"iss": nil}),
				"of an issuer that is a list":    with(claims{"iss": []string{p.Issuer()}}),
				"for nobody":                     with(claims{"aud": nil}),
				"for an empty list":              with(claims{"aud": []string{}}),
				"for a service alike":            with(claims{"aud": oidcprovider.ClientID + "x"}),
				"for a number":                   with(claims{"aud": 1}),
				"for several services": with(claims{"aud": []string{"another",
					oidcprovider.ClientID}}),
				"for several, made for another": with(claims{"aud": []string{oidcprovider.ClientID,
					"another"}, "azp": "another"}),
				"made for another service": with(claims{"azp": oidcprovider.OtherClientID}),
				"made for a list of services": with(
					claims{"azp": []string{oidcprovider.ClientID}}),
				"made for null": key.Sign(t, nullAzp, nil),
				"made in the future": with(
					claims{"iat": now.Add(2 * time.Minute).Unix()}),
				"made at a time that is a text": with(claims{"iat": "0"}),
				"with events of a logout": with(claims{"jti": "1", "nonce": nil, "events": members{
					"http://schemas.openid.net/event/backchannel-logout": members{}}}),
				"ended":                 with(claims{"exp": now.Add(-time.Minute).Unix()}),
				"without an end":        with(claims{"exp": nil}),
				"whose end is zero":     with(claims{"exp": 0}),
				"whose end is a text":   with(claims{"exp": "4102444800"}),
				"not valid yet":         with(claims{"nbf": now.Add(2 * time.Minute).Unix()}),
				"whose start is a text": with(claims{"nbf": "0"}),

				"without a subject":          with(claims{"sub": nil}),
				"with a Subject":             with(claims{"sub": nil, "Sub": "ada"}),
				"with an empty subject":      with(claims{"sub": ""}),
				"whose subject is a number":  with(claims{"sub": 1}),
				"whose subject is a list":    with(claims{"sub": []string{"ada"}}),
				"whose subject is long":      with(claims{"sub": strings.Repeat("a", 256)}),
				"whose subject is not ASCII": with(claims{"sub": "adä"}),
				"with a line's end in it":    with(claims{"sub": "ada\n"}),
				"with a zero byte in it":     with(claims{"sub": "ada\x00"}),
				"whose subject is a group":   with(claims{"sub": "group|ada"}),
				"whose subject is no name":   with(claims{"sub": "group|"}),

				"by another key under its name": stranger.Sign(t, p.Claims("ada"), nil),
				"by a key that it brings along": stranger.Sign(t, p.Claims("ada"),
					map[string]any{"kid": nil, "jwk": stranger.JWK(t), "jku": other.Issuer() +
						"/jwks"}),
				"by a key of an unknown name":    headed(map[string]any{"kid": "unknown"}),
				"by a key whose name is no text": headed(map[string]any{"kid": 1}),
				"by a key whose name is a list":  headed(map[string]any{"kid": []string{key.ID}}),
				"of alg none": by(jwt.SigningMethodNone,
					jwt.UnsafeAllowNoneSignatureType, nil),
				"of alg none, with a signature": encode(`{"alg":"none"}`) + "." + payload + "." +
					signature,
				"of alg None": encode(`{"alg":"None"}`) + "." + payload + ".",
				"of alg nOnE, with the key": encode(`{"alg":"nOnE","kid":"`+key.ID+`"}`) +
					"." + payload + ".",
				"of no alg": encode(`{"kid":"`+key.ID+`"}`) + "." + payload +
					"." + signature,
				"of two algs": encode(`{"alg":["`+alg+`"],"kid":"`+key.ID+`"}`) +
					"." + payload + "." + signature,
				"of an alg in lower case": headed(
					map[string]any{"alg": strings.ToLower(alg)}),
				"of HS256, by the public key": by(jwt.SigningMethodHS256, public, nil),
				"of HS256, by it in PEM": by(jwt.SigningMethodHS256,
					pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), nil),
				"of HS256, by nothing": by(jwt.SigningMethodHS256, []byte{}, nil),
				"that says HS256":      headed(map[string]any{"alg": "HS256"}),
				"of the other alg taken, under its name": map[string]string{
					"RS256": by(jwt.SigningMethodES256, ecKey, nil),
					"ES256": by(jwt.SigningMethodRS256, rsaKey, nil)}[alg],
				"of ES384": by(jwt.SigningMethodES384, p384Key, nil),
				"of EdDSA": headed(map[string]any{"alg": "EdDSA"}),
				"of PS256": by(jwt.SigningMethodPS256, rsaKey, nil),
				"of RS512": by(jwt.SigningMethodRS512, rsaKey, nil),

				"with an unknown crit": headed(map[string]any{"crit": []string{"x"}, "x": true}),
				"with a known one": headed(map[string]any{"crit": []string{"exp"},
					"exp": 0}),
				"with b64": headed(map[string]any{"crit": []string{"b64"},
					"b64": false}),
				"with an empty crit":      headed(map[string]any{"crit": []string{}}),
				"that is a logout token":  headed(map[string]any{"typ": "logout+jwt"}),
				"that is an access token": headed(map[string]any{"typ": "at+jwt"}),

				"with other claims": header + "." + encode(`{"iss":"`+p.Issuer()+
					`","aud":"tiney","sub":"grace","exp":4102444800}`) + "." + signature,
				"with another header": encode(`{"alg":"`+alg+`","kid":"`+key.ID+`","x":1}`) +
					"." + payload + "." + signature,
				"with half a signature": header + "." + payload + "." +
					signature[:len(signature)/2],
				"without a signature": header + "." + payload + ".",
				"with a signature of zeros": header + "." + payload + "." +
					base64.RawURLEncoding.EncodeToString(make([]byte,
						base64.RawURLEncoding.DecodedLen(len(signature)))),
				"with one part more":      right + "." + signature,
				"with one part less":      header + "." + payload,
				"of five parts":           "eyJhbGciOiJSU0EtT0FFUCJ9.a.b.c.d",
				"of dots":                 "..",
				"with padding":            header + "." + payload + "=." + signature,
				"whose claims are a list": header + "." + encode(`[]`) + "." + signature,
				"whose claims are null":   header + "." + encode(`null`) + "." + signature,
				"whose header is null":    encode(`null`) + "." + payload + "." + signature,
				"whose header is no JSON": encode(`{`) + "." + payload + "." + signature,
				"longer than 24 KiB":      with(claims{"roles": strings.Repeat("r", 18<<10)}),
			} {
				wantError(t, name, a, token, access.ErrInvalid)
			}

			// The same token at the end of its life and after it. It was made at the real time,
			// which is not before the clock's time.
			clock.Advance(time.Hour + 58*time.Second)
			wantOwner(t, "in its leeway", p, a, right, "ada")
			clock.Advance(time.Hour)
			wantError(t, "after its life", a, right, access.ErrInvalid)
		})
	}
}

func TestClaims(t *testing.T) {
	t.Parallel()
	p, clock, a := start(t, oidcprovider.Options{Alg: "ES256"})
	longest := strings.Repeat("~ ", 127) + "|"
	for name, c := range map[string]struct {
		claims claims
		want   access.Caller
	}{
		"a role of a list": {claims{"roles": []string{"reader", "admin"}},
			access.Caller{Admin: true}},
		"a role alone": {claims{"roles": "admin"},
			access.Caller{Admin: true}},
		"a list in a text": {claims{"roles": "admin reader"}, access.Caller{}},
		"another case":     {claims{"roles": []string{"ADMIN"}}, access.Caller{}},
		"a role in a list": {claims{"roles": [][]string{{"admin"}}},
			access.Caller{}},
		"a mixed list": {claims{"roles": []any{1, nil, map[string]any{},
			"admin"}}, access.Caller{Admin: true}},
		"a role as a member": {claims{"roles": map[string]any{"admin": true}},
			access.Caller{Admin: true}},
		"roles by the claim of another name": {claims{"Roles": "admin", "role": "admin",
			"groups": []string{"admin"}}, access.Caller{}},

		"a name": {claims{"name": "Ada Lovelace",
			"preferred_username": "ada@example.org"}, access.Caller{Name: "Ada Lovelace"}},
		"a user name": {claims{"preferred_username": "ada@example.org"},
			access.Caller{Name: "ada@example.org"}},
		"an empty name": {claims{"name": " ", "preferred_username": "ada@example.org"},
			access.Caller{Name: "ada@example.org"}},
		"a name that is none": {claims{"name": 1}, access.Caller{}},
		"any language's":      {claims{"name": "Ада Лавлейс"}, access.Caller{Name: "Ада Лавлейс"}},
		"a long one": {claims{"name": strings.Repeat("ü", 101)},
			access.Caller{Name: strings.Repeat("ü", 100)}},
		"an unprintable one": {claims{"name": "\u202eA\nd\x1b[0ma\u200b"},
			access.Caller{Name: "Ad[0ma"}},

		"the longest subject": {claims{"sub": longest}, access.Caller{Owner: owner(p, longest)}},
	} {
		claims := p.Claims("ada")
		maps.Copy(claims, c.claims)
		if c.want.Owner == "" {
			c.want.Owner = owner(p, "ada")
		}
		if got, err := bearer(t, a, p.Key().Sign(t, claims, nil)); err != nil ||
			!reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; wanted %+v", name, got, err, c.want)
		}
	}

	// Without an admin role no token makes an admin, not even a token with a role named "".
	none := signInWith(t, access.OIDCConfig{Issuer: p.Issuer(), ClientID: oidcprovider.ClientID},
		clock)
	claims := p.Claims("ada")
	claims["roles"] = []string{"", "admin"}
	if got, err := bearer(t, none, p.Key().Sign(t, claims, nil)); err != nil || got.Admin {
		t.Errorf("without an admin role: %+v, %v", got, err)
	}
	// In X-Api-Key, a token is not accepted.
	got, err := a.Caller(t.Context(), headers("X-Api-Key: "+p.SignIn(t, "ada")))
	if !isNobody(got) || !errors.Is(err, access.ErrInvalid) {
		t.Errorf("in X-Api-Key: %+v, %v", got, err)
	}
}
