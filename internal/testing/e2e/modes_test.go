package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tiney/internal/link"
	"tiney/internal/testing/funchost"
	"tiney/internal/testing/oidcprovider"
	"tiney/internal/testing/testutil"
)

// mode is a way to run the app.
type mode struct {
	hosted, proxies, frontEnd bool
	address                   string // the header with the client's address
	// query and path are what redirects add to the long URLs after forwardedQuery and
	// forwardedPath. Hosts change both, unless the platform's front end repeats what was sent.
	query, path string
}

const (
	forwardedQuery = "/docs?a=1&a=2&b=x+y&c"
	forwardedPath  = "/docs/a%2Fb/%2Bc?x"
)

var modes = map[string]mode{
	"on its own": {address: "X-Forwarded-For", query: "?a=1&a=2&b=x+y&c", path: "/a%2Fb/%2Bc?x"},
	"behind a host that forwards": {hosted: true, address: "X-Forwarded-For",
		query: "?a=1,2&b=x%20y&c=", path: "/a%2Fb/+c?x="},
	"behind a host that forwards, with a front end": {hosted: true, frontEnd: true,
		query: "?a=1&a=2&b=x+y&c", path: "/a%2Fb/%2Bc?x"},
	// A proxying host replaces X-Forwarded-For. The services of Azure in front of it set CLIENT-IP.
	"behind a host that proxies": {hosted: true, proxies: true, address: "Client-Ip",
		query: "?a=1&a=2&b=x+y&c", path: "/a%252Fb/+c?x"},
	"behind a host that proxies, with a front end": {hosted: true, proxies: true, frontEnd: true,
		query: "?a=1&a=2&b=x+y&c", path: "/a%2Fb/%2Bc?x"},
}

// served is the app in one of its modes.
type served struct {
	*site
	mode     mode
	host     *funchost.Host // nil if there is none
	base     string
	provider *oidcprovider.Provider
}

// TestEveryMode uses all that a host can change, once in each way to run the app. What the app does
// in all cases is tested in package functions.
func TestEveryMode(t *testing.T) {
	t.Parallel()
	provider := oidcprovider.Start(t, oidcprovider.Options{Alg: "ES256"})
	for name, m := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := served{site: newSite(t), mode: m, provider: provider}
			settings := []string{"DOMAINS=go.example, http://go.example:8080",
				"ALIAS_CASE=insensitive",
				"RATE_SHORTEN_PER_MINUTE=30", "CLIENT_ADDRESS_HEADER=" + m.address,
				"CLIENT_ADDRESS_HOPS=1", "OIDC_ISSUER=" + provider.Issuer(),
				"OIDC_CLIENT_ID=" + oidcprovider.ClientID, "OIDC_ADMIN_ROLE=boss",
				"OIDC_GROUPS_CLAIM=groups"}
			const both = link.ForwardQuery | link.ForwardPath
			for _, l := range []link.Link{
				{Name: "live", LongURL: "https://example.com/live?a=<b>"},
				{Name: "umlaut", LongURL: "https://bücher.example:8080/ü"},
				{Name: "expired", LongURL: "https://example.com/expired"},
				{Name: "docs", Spelling: "Docs", LongURL: "https://main.example/p", Forward: both},
				{Name: "docs@go.example", LongURL: "https://go.test/p", Forward: both},
				{Name: "docs@go.example:8080", LongURL: "https://port.test/p", Forward: both},
			} {
				l.ExpiresAt = time.Now().Add(time.Hour)
				if l.Name == "expired" {
					l.ExpiresAt = time.Now().Add(-time.Hour)
				}
				v.PutLink(l)
			}
			if m.hosted {
				v.host = v.hostedAs(funchost.Options{Proxy: m.proxies, FrontEnd: m.frontEnd},
					emulator.ConnectionString(), settings...)
				v.base = v.host.URL()
			} else {
				v.base = v.standalone(emulator.ConnectionString(), settings...).url
			}
			awaitReady(t, v.base)
			t.Run("domains and forwarding", v.domains)
			if m.frontEnd {
				return
			}
			t.Run("exchanges", v.exchanges)
			t.Run("rules", v.rules)
			t.Run("guarded links", v.guarded)
			t.Run("sign-in", v.signIn)
			t.Run("assistants", v.assistants)
			t.Run("limits", v.limits)
			t.Run("owners", v.owners)
		})
	}
}

// exchange is a request and the response that it must get.
type exchange struct {
	name, method, target, body string
	headers                    []string
	status                     int
	contentType, contains      string // contains is in the body, or in Location
	// hostStatus is the status of the host's own response, which has no body, if the host does not
	// pass the request to the app.
	hostStatus int
}

const (
	page    = "text/html; charset=utf-8"
	problem = "application/problem+json"
	plain   = "application/json"
	browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	good    = `{"longUrl":"https://example.com/?a=1&a=2#<x>","expiresInSeconds":3600}`
	target  = "https://example.com/live?a=<b>"
)

var form = []string{"Content-Type", "application/x-www-form-urlencoded"}

// exchanges are made in this order: the second shorten of a URL finds the link of the first one.
var exchanges = []exchange{
	{name: "home", method: "GET", target: "/", status: 200, contentType: page,
		contains: "https://tiney.to/api/shorten"},
	{name: "home, HEAD", method: "HEAD", target: "/", status: 200, contentType: page},
	{name: "home, OPTIONS", method: "OPTIONS", target: "/", status: 204},
	{name: "home, PUT", method: "PUT", target: "/", status: 405, contentType: problem},
	{name: "home, a form", method: "POST", target: "/",
		body: "longUrl=https%3A%2F%2Fexample.com%2Fform&alias=", headers: form, status: 201,
		contentType: page, contains: "Your short link"},
	{name: "home, a form of another website", method: "POST", target: "/",
		body: "longUrl=https%3A%2F%2Fexample.com%2Fevil", headers: append(form, "Origin",
			"https://evil.example", "Accept", browser), status: 403, contentType: page,
		contains: "another website"},
	{name: "an asset", method: "GET", target: "/manage/style.0123456789ab.css", status: 200,
		contentType: "text/css; charset=utf-8", contains: ":root {"},
	{name: "an asset in other case", method: "HEAD", target: "/Manage/home.0123456789ab.js",
		status: 200, contentType: "text/javascript; charset=utf-8"},
	{name: "no asset", method: "GET", target: "/manage/home.go",
		headers: []string{"Accept", browser}, status: 404, contentType: page,
		contains: `href="../manage/style.`},
	{name: "POST on an asset", method: "POST", target: "/manage/x", status: 405,
		contentType: problem, hostStatus: 404},
	{name: "health", method: "GET", target: "/api/health/", status: 200,
		contentType: plain, contains: `{"status":"healthy","timestamp":"20`},
	{name: "ready", method: "HEAD", target: "/api/ready", status: 200, contentType: plain},
	{name: "favicon", method: "GET", target: "/favicon.ico", status: 204},
	{name: "robots", method: "GET", target: "/robots.txt", status: 200,
		contentType: "text/plain; charset=utf-8", contains: "User-agent: *"},
	{name: "metadata", method: "GET", target: "/.well-known/oauth-protected-resource",
		status: 200, contentType: plain, contains: `"resource":"https://tiney.to/api/mcp"`},
	{name: "metadata of the tools, HEAD", method: "HEAD",
		target: "/.well-known/oauth-protected-resource/api/mcp", status: 200, contentType: plain},
	{name: "metadata, OPTIONS", method: "OPTIONS",
		target: "/.well-known/oauth-protected-resource/api/mcp", status: 405, contentType: problem,
		hostStatus: 404},

	{name: "new", method: "POST", target: "/api/shorten", body: good, status: 201,
		contentType: plain, contains: `"longUrl":"https://example.com/?a=1&a=2#<x>"`},
	{name: "known", method: "POST", target: "/API/Shorten", body: good, status: 200,
		headers:     []string{"Content-Type", "application/json; charset=utf-8"},
		contentType: plain, contains: `"shortUrl":"https://tiney.to/`},
	{name: "forged host", method: "POST", target: "/api/shorten", body: good,
		headers: []string{"Host", "evil.example", "X-Forwarded-Host", "evil.example"}, status: 200,
		contains: `"shortUrl":"https://tiney.to/`},
	{name: "no body", method: "POST", target: "/api/shorten", status: 400, contentType: problem,
		contains: `"type":"/problems/body"`},
	{name: "too large", method: "POST", target: "/api/shorten", body: strings.Repeat(" ", 32<<10) +
		good, status: 413, contentType: problem},
	{name: "GET on shorten", method: "GET", target: "/api/shorten", status: 405,
		contentType: problem},
	{name: "OPTIONS on shorten", method: "OPTIONS", target: "/api/shorten", status: 204},
	{name: "unknown path of the API, browser", method: "GET", target: "/api/nothing/here",
		headers: []string{"Accept", browser}, status: 404, contentType: problem},
	{name: "path of the API that its route does not match", method: "GET", target: "/api/a!b",
		headers: []string{"Accept", browser}, status: 404, contentType: problem},
	{name: "QR code", method: "GET", target: "/api/links/live/qr", status: 200,
		contentType: "image/svg+xml", contains: "<svg "},

	{name: "redirect", method: "GET", target: "/live?a=1&a=2", status: 302, contains: target},
	{name: "redirect, HEAD", method: "HEAD", target: "/LIVE/", status: 302, contains: target},
	{name: "redirect, pasted with punctuation", method: "GET", target: "/live).", status: 302,
		contains: target},
	{name: "redirect to non-ASCII", method: "GET", target: "/umlaut", status: 302,
		contains: "https://xn--bcher-kva.example:8080/%C3%BC"},
	{name: "path that the host cleans", method: "GET", target: "/x/../live", status: 404,
		contentType: problem, hostStatus: 302},
	{name: "preview", method: "GET", target: "/live+", status: 200, contentType: plain,
		contains: `"longUrl":"` + target + `"`},
	{name: "preview, browser", method: "GET", target: "/live+",
		headers: []string{"Accept", browser}, status: 200, contentType: page,
		contains: `<bdi dir="ltr">example.com</bdi>`},
	{name: "expired", method: "GET", target: "/expired", status: 410, contentType: problem,
		contains: "link-expired"},
	{name: "unknown", method: "GET", target: "/nobody", status: 404, contentType: problem,
		contains: "not-found"},
	{name: "no alias", method: "GET", target: "/a.b", status: 404, contentType: problem},
	{name: "several segments, browser", method: "GET", target: "/.well-known/security.txt",
		headers: []string{"Accept", browser}, status: 404, contentType: page,
		contains: "No such link"},
	{name: "empty segment", method: "GET", target: "/live//x", status: 404, contentType: problem,
		hostStatus: 404},
	{name: "empty segment before an alias", method: "GET", target: "//live", status: 404,
		contentType: problem, hostStatus: 404},
	{name: "POST on an alias", method: "POST", target: "/live", status: 405, contentType: problem,
		hostStatus: 404},
	{name: "the timer's endpoint", method: "POST", target: "/reaper", body: "{}", status: 405,
		contentType: problem, hostStatus: 404},
}

func (v served) exchanges(t *testing.T) {
	for _, e := range exchanges {
		if v.mode.hosted && !v.mode.proxies && e.status == 302 { // such a host rewrites Location
			e.contains = strings.NewReplacer("<", "%3C", ">", "%3E").Replace(e.contains)
		}
		t.Run(e.name, func(t *testing.T) {
			got := caller{t, v.base, ""}.patiently(e.method, e.target, e.body, e.headers...)
			if v.mode.hosted && e.hostStatus != 0 {
				if got.Status != e.hostStatus || got.Body != "" {
					t.Errorf("got %+v, want the host's own %d", got, e.hostStatus)
				}
				return
			}
			text := got.Body
			if e.status == 302 {
				text = got.Header.Get("Location")
			}
			if got.Status != e.status || !strings.Contains(text, e.contains) ||
				e.contentType != "" && (got.Header.Get("Content-Type") != e.contentType ||
					got.Header.Get("X-Content-Type-Options") != "nosniff") ||
				got.Header.Get("Strict-Transport-Security") != "max-age=31536000" {
				t.Errorf("got %+v, want %d %s with %q", got, e.status, e.contentType, e.contains)
			}
		})
	}
}

// Domains are known by Host or, behind a proxying host, by X-Forwarded-Host.
func (v served) domains(t *testing.T) {
	for host, to := range map[string]string{"tiney.to": "https://main.example/p",
		"other.example": "https://main.example/p", "GO.example.:443": "https://go.test/p",
		"go.example:8080": "https://port.test/p"} {
		for target, follows := range map[string]string{forwardedQuery: v.mode.query,
			forwardedPath: v.mode.path, "/DOCS/": ""} {
			got := caller{t, v.base, ""}.must(302, "GET", target, "", "Host", host)
			if got["Location"] != to+follows {
				t.Errorf("%s of %s leads to %s, want %s", target, host, got["Location"], to+follows)
			}
		}
	}
}

// Each condition of a rule is asked of the client, not of a host or a proxy.
func (v served) rules(t *testing.T) {
	caller{t, v.base, adminKey}.must(201, "POST", "/api/shorten", `{"longUrl":"https://example.com/",`+
		`"alias":"ruled","rules":[{"untilUtc":"2026-01-01T00:00:00Z","longUrl":"https://a.example/past"},`+
		`{"countries":["US"],"longUrl":"https://a.example/us"},`+
		`{"systems":["iOS"],"longUrl":"https://a.example/ios"},`+
		`{"devices":["mobile"],"longUrl":"https://a.example/mobile"},`+
		`{"languages":["pt"],"fromUtc":"2026-01-01T00:00:00Z","longUrl":"https://a.example/pt"},`+
		`{"languages":["de"],"percent":99,"longUrl":"https://a.example/de"}]}`)
	const android = "Mozilla/5.0 (Linux; Android 16; K) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Chrome/142.0.0.0 Mobile Safari/537.36"
	for _, client := range []struct{ agent, address, languages, want string }{
		{visitors[0].agent, "8.8.8.8", "de", "https://a.example/us"},
		{visitors[1].agent, "84.128.0.1", "", "https://a.example/ios"},
		{android, "84.128.0.1", "", "https://a.example/mobile"},
		{visitors[0].agent, "84.128.0.1", "en;q=0.5, pt-BR", "https://a.example/pt"},
		{visitors[0].agent, "84.128.0.1", "en, pt", "https://example.com/"},
		{"curl/8.5.0", "10.0.0.1", "", "https://example.com/"},
	} {
		got := caller{t, v.base, ""}.must(302, "GET", "/ruled", "", "User-Agent", client.agent,
			v.mode.address, client.address, "Accept-Language", client.languages)
		if got["Location"] != client.want || got["Cache-Control"] != "no-store" {
			t.Errorf("%+v is led to %v", client, got)
		}
	}
	for range 100 { // all of them fail with a probability of 1 in 10^200
		got := caller{t, v.base, ""}.must(302, "GET", "/ruled", "", "Accept-Language", "de")
		if got["Location"] == "https://a.example/de" {
			return
		}
	}
	t.Error("99 percent are none")
}

// A guarded link shows its page, opens by form and by JSON, and no more often than it may.
func (v served) guarded(t *testing.T) {
	admin, nobody := caller{t, v.base, adminKey}, caller{t, v.base, ""}
	admin.must(201, "POST", "/api/shorten", `{"longUrl":"https://example.com/guarded",`+
		`"alias":"guarded","password":"open sesame","maxOpens":5}`)
	got := nobody.patiently("GET", "/GUARDED?utm_source=News", "", "Accept", browser)
	policy := got.Header.Get("Content-Security-Policy")
	if got.Status != 200 || strings.Contains(got.Body, "example.com") ||
		!strings.Contains(got.Body, `action="./api/links/guarded/open?utm_source=news"`) ||
		!strings.Contains(policy, "form-action 'self' http: https:;") {
		t.Errorf("the page is %+v", got)
	}
	for _, path := range []string{"/guarded", "/guarded+"} {
		if got := nobody.must(403, "GET", path, ""); got["type"] != "/problems/link-guarded" {
			t.Errorf("%s: %v", path, got)
		}
	}
	const open = "/api/links/guarded/open"
	nobody.must(403, "POST", open, `{"password":"another one"}`, "Content-Type", plain)
	foreign := append([]string{"Sec-Fetch-Site", "cross-site"}, form...)
	nobody.must(403, "POST", open, "password=open+sesame", foreign...)
	led := 0
	for status := 303; status == 303; { // a 503 may use one up
		got := nobody.patiently("POST", open, "password=open+sesame", form...)
		if status = got.Status; status != 303 {
			break
		}
		led++
		if to := got.Header.Get("Location"); to != "https://example.com/guarded" {
			t.Fatalf("it leads to %s", to)
		}
	}
	if left := admin.must(200, "GET", "/api/links/guarded", "")["opensLeft"]; left != 0.0 ||
		led == 0 || led > 5 {
		t.Errorf("it led %d times of 5, and %v are left", led, left)
	}
}

// A token is a header of many KB if its user is in many groups.
func (v served) signIn(t *testing.T) {
	host := strings.TrimPrefix(v.provider.Issuer(), "http://")
	me := func(token string) map[string]any {
		return members(caller{t, v.base, token}.patiently("GET", "/api/me", ""))
	}
	var names []string
	for i := range 200 {
		names = append(names, fmt.Sprintf("Büro %081d", i))
	}
	token := v.provider.SignInWith(t, "ada", jwt.MapClaims{"groups": names})
	got := me(token)
	groups, _ := got["groups"].([]any)
	if len(token) < 23<<10 || got["owner"] != host+"|ada" || got["admin"] != false ||
		len(groups) != len(names) || groups[0] != host+"|group|"+names[0] {
		t.Errorf("by a token of %d bytes: %v", len(token), got)
	}
	if got := me(v.provider.SignIn(t, "eve", "reader", "boss")); got["admin"] != true {
		t.Errorf("an admin: %v", got)
	}
	if got := me(token[:len(token)-8] + "AAAAAAAA"); got["type"] != "/problems/credentials-invalid" {
		t.Errorf("a spoiled token: %v", got)
	}
	// A host that forwards joins two lines into one.
	req, err := http.NewRequest(http.MethodGet, v.base+"/api/me", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header["Authorization"] = []string{"Bearer " + token, "Bearer " + adminKey}
	resp, err := testutil.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close(); resp.StatusCode != 400 {
		t.Errorf("two credentials: %s", resp.Status)
	}
}

// clients are those that internal/testing/mcp pins, and the revision of the protocol that each says
// it got.
var clients = map[string]string{"@modelcontextprotocol/sdk": "",
	"@modelcontextprotocol/client": "2026-07-28"}

func (v served) assistants(t *testing.T) {
	for client, revision := range clients {
		v.useTools(t, client, revision, v.base+"/api/mcp", adminKey)
	}
}

// useTools lets a client from elsewhere call every tool at an address, with a key, or with "" and a
// user. It returns the alias of the link that it made.
func (v served) useTools(t *testing.T, client, revision, address string, who ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "node",
		append([]string{"../mcp/client.mjs", client, address}, who...)...)
	command.Stderr = t.Output()
	out, err := command.Output()
	var got struct {
		Protocol     string
		Capabilities map[string]map[string]any
		Tools        []string
		Results      []struct {
			Tool              string
			IsError           bool
			Content           []struct{ Text string }
			StructuredContent struct{ Alias string }
		}
	}
	if err == nil {
		err = json.Unmarshal(out, &got)
	}
	if err != nil || got.Protocol != revision || len(got.Tools) != 8 ||
		got.Capabilities["tools"] == nil || len(got.Capabilities["tools"]) > 0 {
		t.Fatalf("%s: %s, %v", client, out, err)
	}
	var results []string
	for _, r := range got.Results {
		var text struct{ Type string }
		_ = json.Unmarshal([]byte(r.Content[0].Text), &text)
		results = append(results, fmt.Sprint(r.Tool, " ", r.IsError, " ", text.Type))
	}
	const want = "shorten false \ngetLink false \neditLink false \n" +
		"editLink true /problems/precondition\nlistLinks false \n" +
		"getLinkStatistics false \ngetTopLinks false \ndeleteLink false \n" +
		"restoreLink false \ngetLink true /problems/not-found"
	if got := strings.Join(results, "\n"); got != want {
		t.Errorf("%s: got %s\n%s", client, got, out)
	}
	return got.Results[0].StructuredContent.Alias
}

// Clients are distinguished by their addresses, and a forged address in front does not help.
func (v served) limits(t *testing.T) {
	const url = `{"longUrl":"https://example.com/"}`
	shorten := func(address string) testutil.Response {
		return request(t, "POST", v.base+"/api/shorten", url, v.mode.address, address)
	}
	start, made := time.Now(), 0
	var last testutil.Response
	for last.Status != 429 && made < 300 {
		if last = shorten(fmt.Sprintf("198.51.100.%d, 203.0.113.7", made)); last.Status != 429 {
			made++
		}
	}
	if most := 31 + int(time.Since(start)/(2*time.Second)); made < 30 || made > most ||
		last.Header.Get("Retry-After") == "" || last.Header.Get("Content-Type") != problem ||
		last.Header.Get("Ratelimit-Policy") != `"shorten";q=30;w=60` {
		t.Errorf("one client was answered %d times, want 30 to %d, and then got %+v", made, most, last)
	}
	if got := shorten("203.0.113.8"); got.Status != 200 && got.Status != 503 {
		t.Errorf("another client got %+v", got)
	}
}

// owners makes a link, and takes it through all that owners, holders of claim tokens and admins can
// do, up to its end. Nothing is left of it then.
func (v served) owners(t *testing.T) {
	admin, nobody := caller{t, v.base, adminKey}, caller{t, v.base, ""}
	ann, bob := owner(t, v.base, "ann"), owner(t, v.base, "bob")
	leads := func(status int, location any) {
		t.Helper()
		if got := nobody.must(status, "GET", "/plan", ""); got["Location"] != location {
			t.Errorf("it leads to %v, want %v", got["Location"], location)
		}
	}
	const path, moved = "/api/links/plan", "https://example.com/moved"
	made := ann.must(201, "POST", "/api/shorten", `{"longUrl":"https://example.com/plan",`+
		`"alias":"Plan","statusCode":308,"title":"A plan","tags":["work"]}`)
	if made["shortUrl"] != "https://tiney.to/Plan" || made["claimToken"] != nil ||
		made["Location"] != made["shortUrl"] {
		t.Errorf("made %v", made)
	}
	read := ann.must(200, "GET", path, "")
	tag := read["Etag"].(string)
	ann.must(200, "PATCH", path, `{"longUrl":"`+moved+`"}`, "If-Match", `"x,y", `+tag)
	ann.must(412, "PATCH", path, `{"title":"lost"}`, "If-Match", tag)
	leads(308, moved)
	if got := ann.must(200, "GET", "/API/Links/?q=MOVED&tag=work", ""); !matches(got["items"],
		[]any{map[string]any{"alias": "Plan", "title": "A plan"}}) {
		t.Errorf("listed %v", got)
	}

	token := nobody.must(201, "POST", "/api/shorten", `{"longUrl":"https://example.com/n"}`)
	claim := fmt.Sprintf(`{"claims":[{"alias":%q,"claimToken":%q}]}`, token["alias"],
		token["claimToken"])
	if got := ann.must(200, "POST", "/api/claims", claim); !matches(got["results"],
		[]any{map[string]any{"result": "claimed"}}) {
		t.Errorf("claimed %v", got)
	}
	if got := ann.must(200, "POST", "/api/links/bulk", `{"links":[{"longUrl":"no"},`+
		`{"longUrl":"https://example.com/bulk","domain":"go.example"}]}`); !matches(got["results"],
		[]any{map[string]any{"status": 400.0}, map[string]any{}}) {
		t.Errorf("in bulk: %v", got)
	}
	if got := ann.must(200, "POST", "/api/import?format=csv", "alias,longUrl\nfar,https://e.org/\n",
		"Content-Type", "text/csv"); !matches(got["results"], []any{map[string]any{"alias": "far"}}) {
		t.Errorf("imported %v", got)
	}
	file := ann.send("GET", "/api/export?domain=go.example", "")
	if strings.Count(file.Body, "\n") != 1 || !strings.Contains(file.Body, "example.com/bulk") ||
		!strings.Contains(file.Header.Get("Content-Disposition"), "links.ndjson") {
		t.Errorf("exported %+v", file)
	}

	admin.must(200, "PATCH", path, `{"owner":"bob"}`)
	ann.must(404, "GET", path, "")
	if got := bob.must(200, "GET", path+"/history", ""); !matches(got["items"], []any{
		map[string]any{"by": "admin", "what": "transferred"},
		map[string]any{"by": "ann", "what": "edited"}}) {
		t.Errorf("its history is %v", got)
	}
	if got := admin.must(200, "PATCH", path, `{"disabled":true}`); got["locked"] != true {
		t.Errorf("taken down: %v", got)
	}
	bob.must(403, "PATCH", path, `{"disabled":false}`)
	leads(410, nil)
	admin.must(200, "PATCH", path, `{"disabled":false}`)
	// The Functions host lets these spellings through.
	for alias, spelling := range map[string]string{"umlaut": "B%C3%9CCHER.example",
		"plan": "Example.COM."} {
		admin.must(204, "PUT", "/api/blocked/"+spelling, "")
		nobody.must(410, "GET", "/"+alias, "")
		admin.must(204, "DELETE", "/api/blocked/"+spelling, "")
	}
	admin.must(204, "PUT", "/api/blocked/[2001:DB8::1]", "")
	if got := admin.must(200, "GET", "/api/blocked", ""); !matches(got["items"],
		[]any{map[string]any{"host": "[2001:db8::1]"}}) {
		t.Errorf("blocked are %v", got)
	}
	leads(308, moved)
	bob.must(204, "DELETE", path, "")
	leads(410, nil)
	bob.must(200, "POST", path+"/restore", "")
	leads(308, moved)
	bob.must(204, "DELETE", path, "")
	for _, c := range []caller{ann, admin} { // the admin has those of the assistants
		for _, item := range c.must(200, "GET", "/api/links", "")["items"].([]any) {
			l := item.(map[string]any)
			c.must(204, "DELETE", fmt.Sprintf("/api/links/%v@%v", l["alias"], l["domain"]), "")
		}
	}
	keys := bob.must(200, "GET", "/api/keys", "")["items"].([]any)
	bob.must(204, "DELETE", "/api/keys/"+keys[0].(map[string]any)["id"].(string), "")
	bob.must(401, "GET", "/api/me", "")
	v.WantNoLeak()

	if v.host == nil {
		return
	}
	const day = 24 * time.Hour
	for _, d := range []time.Duration{8 * day, 40 * day, 31 * day} {
		v.Age(d)
		if _, err := v.host.FireTimer(ctx, "reaper"); err != nil {
			t.Error(err)
		}
		v.WantNoLeak()
	}
	v.WantNothing()
	if got := admin.must(200, "GET", "/api/admin/cleanup/stats", ""); got["successfulRuns"] != 3.0 ||
		got["failedRuns"] != 0.0 || got["deletedTotal"].(float64) < 10 {
		t.Errorf("the reaper's runs: %v", got)
	}
}
