package functions_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/link"
)

const adminKey = "the-admin-key-has-32-characters-!"

// keys are the API keys that tests sign in with, by owner.
type keys struct{ of map[string]string }

// putKey makes an API key, with which as signs in for who.
func (r *rig) putKey(who string, k access.Key) {
	r.t.Helper()
	secret := unknownKey(r.t)
	k.Hash = access.Hash(secret)
	if err := r.fake.Beside.Keys.Create(r.t.Context(), k); err != nil {
		r.t.Fatal(err)
	}
	r.keys.of[who] = secret
}

// as sends a request with the credentials of who: none if it is "", the admin key if it is "admin",
// who itself if it starts with "tn", and otherwise an API key of the owner who.
func (r *rig) as(who, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	secret := who
	switch {
	case who == "":
		return r.do(method, target, body, header...)
	case who == "admin":
		secret = adminKey
	case strings.HasPrefix(who, "tn"):
	default:
		if r.keys.of[who] == "" {
			r.putKey(who, access.Key{Owner: who, Name: who + "'s key"})
		}
		secret = r.keys.of[who]
	}
	return r.do(method, target, body, append([]string{"Authorization", "Bearer " + secret},
		header...)...)
}

// claimToken returns a claim token and its hash.
func claimToken(t testing.TB) (token, hash string) {
	t.Helper()
	token, err := access.NewClaimToken(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return token, access.Hash(token)
}

// apiRoutes has all routes below /api/, and who may use each: "anyone", "holders" (also of a claim
// token), "owners" or "admins". "public" routes ignore credentials.
var apiRoutes = map[string]string{
	"GET /api/health":                   "public",
	"GET /api/ready":                    "public",
	"GET /api/links/abcdef/qr":          "public",
	"POST /api/links/abcdef/open":       "public",
	"POST /api/shorten":                 "anyone",
	"GET /api/openapi.json":             "anyone",
	"GET /api/domains":                  "owners",
	"GET /api/aliases/abcdef":           "owners",
	"GET /api/tags":                     "owners",
	"GET /api/me":                       "anyone",
	"GET /api/links":                    "owners",
	"GET /api/links/abcdef":             "holders",
	"POST /api/links/bulk":              "owners",
	"PATCH /api/links/bulk":             "owners",
	"PATCH /api/links/abcdef":           "owners",
	"DELETE /api/links/abcdef":          "holders",
	"POST /api/links/abcdef/restore":    "holders",
	"GET /api/links/abcdef/stats":       "holders",
	"GET /api/links/abcdef/history":     "owners",
	"GET /api/stats/links":              "owners",
	"GET /api/stats/clicks":             "owners",
	"GET /api/stats/top":                "owners",
	"GET /api/stats":                    "anyone",
	"POST /api/claims":                  "owners",
	"GET /api/export":                   "owners",
	"POST /api/import":                  "owners",
	"POST /api/mcp":                     "owners",
	"POST /api/keys":                    "owners",
	"GET /api/keys":                     "owners",
	"DELETE /api/keys/0123456789abcdef": "owners",
	"PUT /api/blocked/example.com":      "admins",
	"DELETE /api/blocked/example.com":   "admins",
	"GET /api/blocked":                  "admins",
	"GET /api/admin/cleanup/stats":      "admins",
}

func TestEveryRouteLooksAtCredentials(t *testing.T) {
	token, _ := claimToken(t)
	for request, who := range apiRoutes {
		method, target, _ := strings.Cut(request, " ")
		for name, test := range map[string]struct {
			header    []string
			status    int
			kind      string
			challenge string
			but       string // the routes for these callers respond otherwise
		}{
			"none": {nil, 401, "credentials-missing", "Bearer", "anyone"},
			"a malformed": {[]string{"Authorization", "Bearer tny_x"}, 401, "credentials-invalid",
				`Bearer error="invalid_token"`, ""},
			"an unknown": {[]string{"X-Api-Key", unknownKey(t)}, 401, "credentials-invalid",
				`Bearer error="invalid_token"`, ""},
			"another kind": {[]string{"Authorization", "Digest username=ada"}, 401,
				"credentials-invalid", `Bearer error="invalid_token"`, ""},
			"a proxy's": {[]string{"Authorization", "Basic dXNlcjpwYXNz"}, 401,
				"credentials-missing", "Bearer", "anyone"},
			"an unknown beside a proxy's": {[]string{"X-Api-Key", unknownKey(t), "Authorization",
				"Basic dXNlcjpwYXNz"}, 401, "credentials-invalid",
				`Bearer error="invalid_token"`, ""},
			"two": {[]string{"Authorization", "Bearer " + adminKey, "X-Api-Key", adminKey},
				400, "credentials-ambiguous", "", ""},
			"claim token": {[]string{"Authorization", "Bearer " + token}, 403, "owner-needed", "",
				"anyone holders"},
		} {
			r := newRig(t)
			w := r.do(method, target, "not read", test.header...)
			switch {
			case strings.HasSuffix(target, "/open"): // it reads the body, and is public
				if w.Code != 400 || strings.Contains(w.Body.String(), "credentials") {
					t.Errorf("%s with %s: got %d %s", request, name, w.Code, w.Body)
				}
			case who == "public":
				if w.Code != 200 {
					t.Errorf("%s with %s: got %d %s", request, name, w.Code, w.Body)
				}
			case strings.Contains(test.but, who):
				if w.Code == test.status {
					t.Errorf("%s with %s: got %d %s", request, name, w.Code, w.Body)
				}
			default:
				wantProblem(t, w, test.status, test.kind, "")
				if got := w.Header().Get("WWW-Authenticate"); got != test.challenge {
					t.Errorf("%s with %s: WWW-Authenticate %q, want %q", request, name, got,
						test.challenge)
				}
				if r.fake.Calls() != 0 {
					t.Errorf("%s with %s: the store was asked", request, name)
				}
				refused := r.metrics.SigninsRefused.Value() == 1
				if refused != (test.kind == "credentials-invalid") {
					t.Errorf("%s with %s: counted %t as refused", request, name, refused)
				}
				rejected := r.metrics.ShortenRejected.Value() == 1
				if rejected != (target == "/api/shorten") {
					t.Errorf("%s with %s: counted %t as rejected", request, name, rejected)
				}
			}
		}
	}
}

func unknownKey(t testing.TB) string {
	t.Helper()
	key, err := access.NewKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestCredentialsThatCannotBeChecked(t *testing.T) {
	for request, who := range apiRoutes {
		method, target, _ := strings.Cut(request, " ")
		r := newRig(t)
		r.fake.FailKeys(fmt.Errorf("with a secret: %w", link.ErrUnavailable))
		w := r.do(method, target, "", "X-Api-Key", unknownKey(t))
		if who == "public" {
			// Storage is ready if all of it responds.
			if (w.Code == 200) == (request == "GET /api/ready") && w.Code != 404 {
				t.Errorf("%s: got %d", request, w.Code)
			}
			continue
		}
		wantProblem(t, w, 503, "credentials-unchecked", "")
		if w.Header().Get("Retry-After") == "" || strings.Contains(w.Body.String(), "secret") ||
			r.fake.Calls() != 0 {
			t.Errorf("%s: got %v %s", request, w.Header(), w.Body)
		}
		if !strings.Contains(r.log.String(), `"msg":"storage is unavailable"`) {
			t.Errorf("%s: logged %s", request, r.log)
		}
	}
	r := newRig(t, func(c *functions.Config) { c.Callers = noProvider{} })
	wantProblem(t, r.get("/api/me"), 503, "credentials-unchecked", "")
	if !strings.Contains(r.log.String(), "the sign-in provider does not respond") {
		t.Errorf("logged %s", r.log)
	}
}

type noProvider struct{}

func (noProvider) SignIn(context.Context) access.SignIn { return access.SignIn{} }

func (noProvider) Caller(context.Context, http.Header) (access.Caller, error) {
	return access.Caller{}, fmt.Errorf("%w: its keys are not known", access.ErrUnavailable)
}

// Responses at paths that do not exist, or that are outside of the API, do not depend on the
// caller.
func TestCredentialsThatAreNotLookedAt(t *testing.T) {
	for request, status := range map[string]int{
		"GET /abcdef":                 302,
		"GET /abcdef+":                200,
		"GET /nobody":                 404,
		"GET /":                       200,
		"GET /api/nothing":            404,
		"PUT /api/links/abcdef":       405,
		"GET /api/shorten":            405,
		"OPTIONS /api/links/abcdef":   204,
		"GET /api/keys/0123456789abc": 405,
	} {
		r := newRig(t)
		r.fake.Put(link.Link{Name: "abcdef", LongURL: "https://example.com/"})
		method, target, _ := strings.Cut(request, " ")
		if w := r.do(method, target, "", "X-Api-Key", unknownKey(t)); w.Code != status ||
			r.fake.Lookups() != 0 {
			t.Errorf("%s: got %d and %d look-ups, want %d", request, w.Code, r.fake.Lookups(),
				status)
		}
	}
}

func TestMe(t *testing.T) {
	r := newRig(t)
	token, _ := claimToken(t)
	for who, want := range map[string]string{
		"":    `{"owner":null}`,
		token: `{"owner":null}`,
		"ann": `{"owner":"ann","groups":[],"admin":false,"name":"ann's key",` +
			`"access":"write"}`,
		"admin": `{"owner":"admin","groups":[],"admin":true,"name":null,"access":"write"}`,
	} {
		wantJSON(t, r.as(who, "GET", "/API/me/", ""), want, who)
	}
}

// A key that has expired or was revoked is refused at the next request.
func TestKeysEnd(t *testing.T) {
	r := newRig(t)
	r.putKey("ann", access.Key{Owner: "ann", ExpiresAt: r.clock.Now().Add(time.Second)})
	wantStatus(t, r.as("ann", "GET", "/api/me", ""), 200)
	r.clock.Advance(time.Second)
	wantProblem(t, r.as("ann", "GET", "/api/me", ""), 401, "credentials-invalid", "")
	if !strings.Contains(r.log.String(), "has expired") {
		t.Errorf("the log does not say why: %s", r.log)
	}
}

func TestOnlyOwnersMayShorten(t *testing.T) {
	r := newRig(t, func(c *functions.Config) { c.OwnersOnly = true })
	token, _ := claimToken(t)
	const body = `{"longUrl":"https://example.com/"}`
	wantProblem(t, r.shorten(body), 401, "credentials-missing", "")
	wantProblem(t, r.shorten("not read"), 401, "credentials-missing", "")
	wantProblem(t, r.as(token, "POST", "/api/shorten", body), 403, "owner-needed", "")
	r.wantMetrics(map[string]float64{"shorten.rejected": 3})
	for _, who := range []string{"ann", "admin"} {
		wantStatus(t, r.as(who, "POST", "/api/shorten", body), 201, who)
	}
}

func TestNoRandomness(t *testing.T) {
	r := newRig(t, func(c *functions.Config) { c.Random = failingReader{} })
	wantProblem(t, r.shorten(`{"longUrl":"https://example.com/"}`), 500, "internal", "")
	wantProblem(t, r.as("ann", "POST", "/api/keys", `{"name":"x"}`), 500, "internal", "")
	if keys, err := r.fake.Keys.List(t.Context(), nil); err != nil || len(keys) != 1 ||
		r.fake.Calls() != 0 {
		t.Error("something was made without a secret")
	}
	if !strings.Contains(r.log.String(), "drawing a secret") {
		t.Errorf("logged %s", r.log)
	}
}
