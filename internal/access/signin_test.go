package access_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"tiney/internal/access"
	"tiney/internal/testing/oidcprovider"
	"tiney/internal/testing/testutil"
)

func TestHowPeopleSignIn(t *testing.T) {
	t.Parallel()
	a := access.New(access.Config{}, nil, testutil.NewClock().Now)
	if got := a.SignIn(context.Background()); got.Issuer != "" || got.Origins != nil {
		t.Errorf("without a provider: %+v", got)
	}
	for name, test := range map[string]struct {
		tokens string // the token endpoint; "": the provider's own
		want   []string
	}{
		"the provider's own": {"", nil},
		"elsewhere": {"https://Tokens.example.com:8443/oauth/token?x=1",
			[]string{"https://Tokens.example.com:8443"}},
		"not https":                {"http://tokens.example.com/", nil},
		"no URL":                   {"javascript:alert(1)", nil},
		"more than a policy holds": {"https://a;script-src/", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _, a := start(t, oidcprovider.Options{Alg: "ES256"})
			p.Intercept(func(w http.ResponseWriter, r *http.Request, provider http.Handler) {
				if test.tokens == "" || r.URL.Path != "/.well-known/openid-configuration" {
					provider.ServeHTTP(w, r)
					return
				}
				recorded := httptest.NewRecorder()
				provider.ServeHTTP(recorded, r)
				var metadata map[string]any
				if err := json.Unmarshal(recorded.Body.Bytes(), &metadata); err != nil {
					t.Error(err)
				}
				metadata["token_endpoint"] = test.tokens
				_ = json.NewEncoder(w).Encode(metadata)
			})
			for range 2 { // the provider is asked once
				got := a.SignIn(context.Background())
				if want := append([]string{p.Issuer()}, test.want...); got.Issuer != p.Issuer() ||
					got.ClientID != oidcprovider.ClientID || got.Scopes != "openid groups" ||
					!slices.Equal(got.Origins, want) {
					t.Errorf("got %+v, want %v", got, want)
				}
			}
			wantFetches(t, name, p, 1)
			wantOwner(t, name, p, a, p.SignIn(t, "ada"), "ada") // its key came along
			wantFetches(t, name, p, 1)
		})
	}
}

// A page does not wait long for a provider, and a later page asks the provider again.
func TestHowPeopleSignInWhileTheProviderIsSilent(t *testing.T) {
	t.Parallel()
	p, clock, a := start(t, oidcprovider.Options{Alg: "ES256"})
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	p.Intercept(func(http.ResponseWriter, *http.Request, http.Handler) { <-ended })
	began := time.Now()
	if got := a.SignIn(context.Background()); got.Issuer != p.Issuer() ||
		!slices.Equal(got.Origins, []string{p.Issuer()}) {
		t.Errorf("got %+v", got)
	}
	if took := time.Since(began); took < time.Second || took > 4*time.Second {
		t.Errorf("it took %v", took)
	}
	p.Down()
	clock.Advance(time.Minute)
	a.SignIn(context.Background())
	wantFetches(t, "while the first is under way", p, 1)
}
