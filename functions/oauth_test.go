package functions_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tiney/functions"
	"tiney/internal/access"
)

// An assistant that knows only the address gets to the provider: a 401 names the metadata, and
// these name the provider. The two are those of BaseUrl, whatever host was asked.
func TestAssistantsFindTheProvider(t *testing.T) {
	withOAuth := func(c *functions.Config) {
		c.OAuth = functions.OAuth{Issuer: "https://login.example/", Scopes: []string{"openid", "x"}}
	}
	const metadata = `resource_metadata="https://tiney.to/.well-known/oauth-protected-resource` +
		`/api/mcp"`
	r := newRig(t, withDomains, withOAuth)
	for _, path := range []string{"", "/api/mcp"} {
		for _, host := range []string{"tiney.to", "go.example"} {
			w := r.get("/.well-known/oauth-protected-resource"+path, "Host", host,
				"Authorization", "x", "Origin", "https://assistant.example")
			const want = `{"resource":"https://tiney.to/api/mcp",` +
				`"authorization_servers":["https://login.example/"],` +
				`"bearer_methods_supported":["header"],"scopes_supported":["openid","x"]}`
			wantJSON(t, w, want, path, host)
			if got := w.Header().Get("Access-Control-Allow-Origin"); got != "*" {
				t.Errorf("%s of %s: it is for %q", path, host, got)
			}
		}
	}
	for request, want := range map[string]int{
		"HEAD /.well-known/oauth-protected-resource":         200,
		"OPTIONS /.well-known/oauth-protected-resource":      405,
		"GET /.well-known/oauth-protected-resource/":         404,
		"GET /.well-known/oauth-protected-resource/API/mcp":  404,
		"GET /.well-known/oauth-protected-resource/api/mcp/": 404,
		"GET /.well-known/oauth-authorization-server":        404,
	} {
		method, path, _ := strings.Cut(request, " ")
		wantStatus(t, r.do(method, path, ""), want, request)
	}
	if r.fake.Calls() != 0 {
		t.Error("storage was asked")
	}
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for want, header := range map[string][]string{
		"Bearer " + metadata:                             nil,
		"Bearer " + metadata + `, error="invalid_token"`: {"Authorization", "Bearer x"},
	} {
		w := r.do("POST", "/api/mcp", ping, append(header, "Content-Type", "application/json")...)
		if got := w.Header().Values("WWW-Authenticate"); w.Code != 401 || len(got) != 1 ||
			got[0] != want {
			t.Errorf("%q: got %d %q, want %s", header, w.Code, got, want)
		}
	}
	if got := r.get("/api/links").Header().Get("WWW-Authenticate"); got != "Bearer" {
		t.Errorf("another 401 says %s", got)
	}
	for name, change := range map[string]func(*functions.Config){
		"without a provider": func(*functions.Config) {},
		"MCP=off":            func(c *functions.Config) { withOAuth(c); c.MCP = false },
	} {
		r := newRig(t, change)
		for _, path := range []string{"", "/api/mcp"} {
			w := r.get("/.well-known/oauth-protected-resource" + path)
			wantProblem(t, w, 404, "not-found", "")
		}
		w := r.do("POST", "/api/mcp", ping, "Content-Type", "application/json")
		if got := w.Header().Get("WWW-Authenticate"); strings.Contains(got, "resource") {
			t.Errorf("%s: a 401 says %s", name, got)
		}
	}
}

// scopeless is a provider whose tokens lack the scope.
type scopeless struct{ functions.Callers }

func (scopeless) Caller(context.Context, http.Header) (access.Caller, error) {
	return access.Caller{}, fmt.Errorf("a token: %w", access.ErrScope)
}

// A token without the scope is refused by the response that lets its program ask for another one.
// It is no guess.
func TestTokenWithoutTheScope(t *testing.T) {
	r := newRig(t, func(c *functions.Config) {
		c.Callers = scopeless{c.Callers}
		c.Rates = access.Rates{access.LimitUnknown: 1}
		c.OAuth = functions.OAuth{Issuer: "https://login.example/", Scope: "api://x/Links.Write"}
	})
	for range 3 {
		for _, path := range []string{"/api/me", "/api/mcp"} {
			w := r.do(map[string]string{"/api/me": "GET", "/api/mcp": "POST"}[path], path, "{}",
				"Content-Type", "application/json", "Authorization", "Bearer x")
			wantProblem(t, w, 403, "insufficient-scope", "")
			if got := w.Header().Get("WWW-Authenticate"); got !=
				`Bearer error="insufficient_scope", scope="api://x/Links.Write"` {
				t.Errorf("%s: got %s", path, got)
			}
		}
	}
}
