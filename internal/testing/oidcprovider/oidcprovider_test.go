package oidcprovider_test

import (
	"slices"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"tiney/internal/testing/oidcprovider"
)

// TestSignIn checks the provider with the JWT library alone, before the service's code relies on
// it.
func TestSignIn(t *testing.T) {
	for _, alg := range []string{"RS256", "ES256"} {
		t.Run(alg, func(t *testing.T) {
			t.Parallel()
			p := oidcprovider.Start(t, oidcprovider.Options{Alg: alg})
			check := func(what, token string) {
				t.Helper()
				claims := jwt.MapClaims{}
				_, err := jwt.ParseWithClaims(token, claims, func(token *jwt.Token) (any, error) {
					if token.Header["kid"] != p.Key().ID {
						t.Errorf("%s: signed with the key %v, wanted %s", what, token.Header["kid"],
							p.Key().ID)
					}
					return p.Key().Private.Public(), nil
				}, jwt.WithValidMethods([]string{alg}), jwt.WithIssuer(p.Issuer()),
					jwt.WithAudience(oidcprovider.ClientID),
					jwt.WithSubject("ada"), jwt.WithExpirationRequired())
				if err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if roles, ok := claims["roles"].([]any); what != "signed here" &&
					(!ok || !slices.Equal(roles, []any{"admin", "reader"})) {
					t.Errorf("%s: the roles are %v", what, claims["roles"])
				}
			}
			check("signed in", p.SignIn(t, "ada", "admin", "reader"))
			check("signed here", p.Key().Sign(t, p.Claims("ada"), nil))
			p.Rotate(t, true)
			check("signed in with a new key", p.SignIn(t, "ada", "admin", "reader"))
		})
	}
}
