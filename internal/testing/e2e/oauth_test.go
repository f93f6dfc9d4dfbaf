package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tiney/internal/testing/funchost"
	"tiney/internal/testing/oidcprovider"
)

// Clients from elsewhere that know nothing but an address get to its tools: they find the provider,
// register, sign a user in, and act for this user. The proxy in front is at the address.
func TestAssistantsSignIn(t *testing.T) {
	t.Parallel()
	provider := oidcprovider.Start(t, oidcprovider.Options{Alg: "ES256"})
	for name, m := range modes {
		if m.frontEnd {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var behind atomic.Pointer[url.URL] // known only after the front is
			var mu sync.Mutex
			var responses []string
			went := func() (all []string) { // since the last call
				mu.Lock()
				defer mu.Unlock()
				all, responses = responses, nil
				return all
			}
			front := httptest.NewServer(&httputil.ReverseProxy{
				Rewrite: func(r *httputil.ProxyRequest) {
					r.SetURL(behind.Load())
					r.Out.Host = r.In.Host
				},
				ModifyResponse: func(r *http.Response) error {
					mu.Lock()
					defer mu.Unlock()
					responses = append(responses, fmt.Sprint(r.Request.URL.Path, " ", r.StatusCode))
					return nil
				}})
			t.Cleanup(front.Close)
			v := served{site: newSite(t), mode: m, provider: provider}
			address := front.URL + "/api/mcp"
			settings := []string{"BaseUrl=" + front.URL, "OIDC_ISSUER=" + provider.Issuer(),
				"OIDC_CLIENT_ID=" + oidcprovider.ClientID, "OIDC_API_AUDIENCE=" + address,
				"OIDC_API_SCOPE=links.write"}
			if m.hosted {
				v.base = v.hostedAs(funchost.Options{Proxy: m.proxies}, emulator.ConnectionString(),
					settings...).URL()
			} else {
				v.base = v.standalone(emulator.ConnectionString(), settings...).url
			}
			awaitReady(t, v.base)
			to, err := url.Parse(v.base)
			if err != nil {
				t.Fatal(err)
			}
			behind.Store(to)
			ada := strings.TrimPrefix(provider.Issuer(), "http://") + "|ada"
			for client, revision := range clients {
				went() // what came before
				alias := v.useTools(t, client, revision, address, "", "ada")
				if way := went(); len(way) < 2 || !slices.Equal(way[:2], []string{"/api/mcp 401",
					"/.well-known/oauth-protected-resource/api/mcp 200"}) {
					t.Errorf("%s went to %q", client, way)
				}
				admin := caller{t, v.base, adminKey}
				if got := admin.must(200, "GET", "/api/links/"+alias, ""); got["owner"] != ada {
					t.Errorf("%s made %v, want the owner %s", client, got, ada)
				}
			}
			// The same user is the same owner at the page.
			page := caller{t, v.base, provider.SignIn(t, "ada")}
			if got := page.must(200, "GET", "/api/me", ""); got["owner"] != ada {
				t.Errorf("the page's user is %v", got)
			}
			for what, test := range map[string]struct {
				resource, scope string
				status          int
				challenge       string
			}{
				"for the address": {address, "links.write", 200, ""},
				"for another address": {address + "/", "links.write", 401,
					`Bearer resource_metadata="` + front.URL +
						`/.well-known/oauth-protected-resource/api/mcp", error="invalid_token"`},
				"without the scope": {address, "links.read", 403,
					`Bearer error="insufficient_scope", scope="links.write"`},
			} {
				got := caller{t, v.base, provider.AccessToken(t, "ada", test.resource, test.scope)}.
					patiently("POST", "/api/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`)
				if got.Status != test.status || got.Header.Get("WWW-Authenticate") != test.challenge ||
					got.Status == 403 && !strings.Contains(got.Body, "/problems/insufficient-scope") {
					t.Errorf("a token %s: got %+v", what, got)
				}
			}
		})
	}
}
