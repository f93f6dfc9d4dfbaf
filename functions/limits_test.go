package functions_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/link"
	"tiney/internal/telemetry"
)

// limited makes a rig with limits and a cache.
func limited(t *testing.T, rates access.Rates) *rig {
	return newRigOn(t, withCache, func(c *functions.Config) { c.Rates = rates })
}

// from sends a request from an address.
func (r *rig) from(address, method, target, body string,
	header ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	return r.do(method, target, body, append([]string{"X-Forwarded-For", address}, header...)...)
}

const (
	ann = "203.0.113.7"
	ben = "203.0.113.8"
)

// wantLimited checks that a response refuses a request that is past a limit.
func wantLimited(t *testing.T, w *httptest.ResponseRecorder, limit string, rate, wait int) {
	t.Helper()
	wantProblem(t, w, http.StatusTooManyRequests, "rate-limited", "")
	for name, want := range map[string]string{
		"Retry-After":      fmt.Sprint(wait),
		"RateLimit-Policy": fmt.Sprintf(`"%s";q=%d;w=60`, limit, rate),
		"RateLimit":        fmt.Sprintf(`"%s";r=0;t=%d`, limit, wait),
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestShortenIsLimited(t *testing.T) {
	r := limited(t, access.Rates{access.LimitShorten: 30, access.LimitAPI: 1})
	token, _ := claimToken(t)
	shorten := func(address string, header ...string) *httptest.ResponseRecorder {
		return r.from(address, "POST", "/api/shorten", `{"longUrl":"https://example.com/"}`,
			header...)
	}
	for i := range 30 {
		switch w := shorten(ann, "Authorization", "Bearer "+token); {
		case i == 0 && w.Code != 201, i > 0 && w.Code != 200:
			t.Fatalf("%d: got %d %s", i, w.Code, w.Body)
		}
	}
	calls := r.fake.Calls()
	wantLimited(t, shorten(ann), "shorten", 30, 2)
	wantLimited(t, shorten(ann, "Authorization", "Bearer "+token), "shorten", 30, 2)
	wantLimited(t, r.from(ann, "POST", "/api/shorten", "not read"), "shorten", 30, 2)
	if r.fake.Calls() != calls {
		t.Error("the store was asked past the limit")
	}
	wantStatus(t, shorten(ben), 200, "somebody else")
	r.clock.Advance(1500 * time.Millisecond)
	wantLimited(t, shorten(ann), "shorten", 30, 1)
	r.clock.Advance(500 * time.Millisecond)
	wantStatus(t, shorten(ann), 200, "after 2 s")
	wantLimited(t, shorten(ann), "shorten", 30, 2)
	r.wantMetrics(map[string]float64{"shorten.created": 1, "shorten.deduplicated": 31,
		"shorten.rejected": 5, "limit.refused": 5})
	wantStatus(t, r.from(ann, "GET", "/api/stats", ""), 200, "another call")
}

// The form counts towards the limit of shorten, and the page shows what was typed.
func TestTheFormIsLimited(t *testing.T) {
	r := limited(t, access.Rates{access.LimitShorten: 1})
	post := func() *httptest.ResponseRecorder {
		return r.from(ann, "POST", "/", "longUrl=https%3A%2F%2Fexample.com%2Ftyped&alias=mine",
			"Content-Type", "application/x-www-form-urlencoded")
	}
	if w := post(); w.Code != 201 {
		t.Fatalf("got %d %s", w.Code, w.Body)
	}
	calls := r.fake.Calls()
	w := post()
	for _, want := range []string{`value="https://example.com/typed"`, `value="mine"`,
		"Too many requests", "in 60 seconds"} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if w.Code != 429 || w.Header().Get("Retry-After") != "60" ||
		!strings.HasPrefix(w.Header().Get("Content-Type"), "text/html") || r.fake.Calls() != calls {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	wantLimited(t, r.from(ann, "POST", "/api/shorten", `{"longUrl":"https://example.com/"}`),
		"shorten", 1, 60)
	wantStatus(t, r.from(ann, "GET", "/", ""), 200, "GET /")
}

// Every request with an owner's credentials counts for the owner, whatever its address, and for
// nobody else.
func TestOwnersAreLimited(t *testing.T) {
	r := limited(t, access.Rates{1, 1, 5, 1})
	r.fake.Put(link.Link{Name: "hers", LongURL: "https://example.com/", Owner: "cleo"})
	for i, request := range []string{"POST /api/shorten", "GET /api/links/hers",
		"GET /api/links/nothing", "POST /api/shorten", "GET /api/stats"} {
		method, target, _ := strings.Cut(request, " ")
		if w := r.as("cleo", method, target, `{"longUrl":"https://example.com/new"}`,
			"X-Forwarded-For", []string{ann, ben}[i%2]); w.Code == 429 {
			t.Errorf("%s: got 429", request)
		}
	}
	for _, address := range []string{ann, ben} {
		calls := r.fake.Calls()
		wantLimited(t, r.as("cleo", "GET", "/api/links/hers", "", "X-Forwarded-For", address),
			"api", 5, 12)
		wantLimited(t, r.as("cleo", "POST", "/api/shorten", `{"longUrl":"https://example.com/"}`,
			"X-Forwarded-For", address), "api", 5, 12)
		wantLimited(t, r.as("cleo", "GET", "/api/openapi.json", "", "X-Forwarded-For", address),
			"api", 5, 12)
		if r.fake.Calls() != calls {
			t.Error("the store was asked past the limit")
		}
		if w := r.from(address, "POST", "/api/shorten",
			`{"longUrl":"https://example.com/"}`); w.Code == 429 {
			t.Errorf("%s without credentials got 429", address)
		}
		wantStatus(t, r.as("dora", "GET", "/api/me", "", "X-Forwarded-For", address), 200,
			"another owner")
	}
}

func TestCallsWithoutCredentialsAreLimited(t *testing.T) {
	r := limited(t, access.Rates{access.LimitAPI: 3})
	token, _ := claimToken(t)
	r.from(ann, "GET", "/api/stats", "")
	r.from(ann, "GET", "/api/links", "") // 401
	r.from(ann, "GET", "/api/links/abcdef/qr", "")
	calls := r.fake.Calls()
	for request, header := range map[string][]string{
		"GET /api/stats":               nil,
		"GET /api/links":               nil,
		"GET /api/openapi.json":        nil,
		"GET /api/links/abcdef/qr":     {"X-Api-Key", "not looked at"},
		"GET /api/links/abcdef":        {"Authorization", "Bearer " + token},
		"DELETE /API/links/abcdef/":    {"Authorization", "Bearer " + token},
		"GET /api/admin/cleanup/stats": nil,
	} {
		method, target, _ := strings.Cut(request, " ")
		wantLimited(t, r.from(ann, method, target, "", header...), "api", 3, 20)
	}
	if r.fake.Calls() != calls {
		t.Error("the store was asked past the limit")
	}
	for range 100 {
		for request, status := range map[string]int{"GET /api/health": 200, "GET /api/ready": 200,
			"HEAD /api/health": 200, "GET /": 200, "GET /manage": 200,
			"GET /api/nothing": 404, "OPTIONS /api/links": 204, "POST /api/shorten": 400,
			"GET /favicon.ico": 204} {
			method, target, _ := strings.Cut(request, " ")
			if w := r.from(ann, method, target, ""); w.Code != status {
				t.Fatalf("%s: got %d, want %d", request, w.Code, status)
			}
		}
	}
}

// Guesses of the admin key are limited even without other limits. Correct credentials are accepted.
func TestGuessesOfTheAdminKeyAreLimited(t *testing.T) {
	r := limited(t, access.Rates{})
	unknown := unknownKey(t)
	present := func(address, secret string) *httptest.ResponseRecorder {
		return r.from(address, "GET", "/api/me", "", "Authorization", "Bearer "+secret)
	}
	for i := range 100 {
		wantProblem(t, present(ann, unknown), 401, "credentials-invalid", "")
		if i < 30 {
			wantProblem(t, present(ann, adminKey+fmt.Sprint(i)), 401, "credentials-invalid", "")
		}
	}
	for _, guess := range []string{adminKey + "30", adminKey + ",", "tny_", "a.b.c"} {
		wantLimited(t, present(ann, guess), "guess", 30, 2)
	}
	wantProblem(t, present(ben, adminKey+"30"), 401, "credentials-invalid", "")
	wantStatus(t, present(ann, adminKey), 200, "the admin key")
	wantStatus(t, r.from(ann, "GET", "/api/me", ""), 200, "no credentials")
	wantStatus(t, r.as("ada", "GET", "/api/me", "", "X-Forwarded-For", ann), 200, "a key")
	r.clock.Advance(2 * time.Second)
	wantProblem(t, present(ann, adminKey+"30"), 401, "credentials-invalid", "")
	wantLimited(t, present(ann, adminKey+"31"), "guess", 30, 2)
}

// A flood of unknown aliases causes no more look-ups than the limit allows, even if all requests
// come at once. It does not affect other clients.
func TestUnknownAliasesAreLimited(t *testing.T) {
	r := limited(t, access.Rates{access.LimitUnknown: 60})
	for _, name := range []link.Name{"cached", "cold"} {
		r.fake.Put(link.Link{Name: name, LongURL: "https://example.com/" + string(name)})
	}
	r.fake.Cache("cached")
	for i := range 100 { // existing and impossible aliases never count
		stored := fmt.Sprint("stored", i)
		r.fake.Put(link.Link{Name: link.Name(stored), LongURL: "https://example.com/stored"})
		for target, status := range map[string]int{"/cached": 302, "/" + stored: 302,
			"/" + stored + "+": 200,
			"/wp-login.php":    404, "/admin": 404, "/a.b/c": 404, "/.env+": 404} {
			if w := r.from(ann, "GET", target, ""); w.Code != status {
				t.Fatalf("%s: got %d", target, w.Code)
			}
		}
	}
	before := r.fake.Calls()
	var all sync.WaitGroup
	var notFound, refused, others atomic.Int64
	for i := range 32 {
		all.Go(func() {
			for j := range 100 {
				switch w := r.from(ann, "GET", fmt.Sprintf("/no%d_%d%s", i, j,
					[]string{"", "+", "."}[j%3]), ""); w.Code {
				case 404:
					notFound.Add(1)
				case 429:
					refused.Add(1)
				default:
					t.Errorf("got %d", w.Code)
				}
			}
			if w := r.from(fmt.Sprintf("198.51.100.%d", i), "GET",
				fmt.Sprint("/nobody", i), ""); w.Code == 404 {
				others.Add(1)
			}
		})
	}
	all.Wait()
	if calls := r.fake.Calls() - before; notFound.Load() != 60 || refused.Load() != 3140 ||
		others.Load() != 32 || calls != 60+32 {
		t.Errorf("%d were not found, %d refused, %d of others not found; %d look-ups",
			notFound.Load(), refused.Load(), others.Load(), calls)
	}

	before = r.fake.Calls()
	wantLimited(t, r.from(ann, "GET", "/nobody", ""), "unknown", 60, 1)
	wantLimited(t, r.from(ann, "HEAD", "/nobody+", ""), "unknown", 60, 1)
	wantLimited(t, r.from(ann, "GET", "/cold", ""), "unknown", 60, 1)
	for target, status := range map[string]int{"/cached": 302, "/cached+": 200, "/cached.": 302} {
		wantStatus(t, r.from(ann, "GET", target, ""), status, target)
	}
	page := r.from(ann, "GET", "/nobody", "", "Accept", "text/html")
	if page.Code != 429 || !strings.HasPrefix(page.Header().Get("Content-Type"), "text/html") ||
		page.Header().Get("Retry-After") != "1" ||
		!strings.Contains(page.Body.String(), "repeat it in 1 second.") {
		t.Errorf("got %d %v %s", page.Code, page.Header(), page.Body)
	}
	if r.fake.Calls() != before {
		t.Error("the store was asked past the limit")
	}
	r.clock.Advance(time.Second)
	wantProblem(t, r.from(ann, "GET", "/nobody", ""), 404, "not-found", "")
	wantLimited(t, r.from(ann, "GET", "/nobody", ""), "unknown", 60, 1)
}

// An alias that cannot be looked up does not count as unknown.
func TestAnOutageIsNotLimited(t *testing.T) {
	r := limited(t, access.Rates{access.LimitUnknown: 1})
	r.fake.Fail(link.ErrUnavailable)
	r.fake.FailKeys(link.ErrUnavailable)
	for range 10 {
		wantProblem(t, r.from(ann, "GET", "/nobody", ""), 503, "storage-unavailable", "")
		wantProblem(t, r.from(ann, "GET", "/api/me", "", "X-Api-Key", unknownKey(t)), 503,
			"credentials-unchecked", "")
	}
}

// Aliases that clients ask for with made-up claim tokens count towards LimitUnknown.
func TestUnknownAliasesOfClaimTokensAreLimited(t *testing.T) {
	r := limited(t, access.Rates{access.LimitUnknown: 3})
	token, hash := claimToken(t)
	r.fake.Put(link.Link{Name: "mine", LongURL: "https://example.com/", ClaimHash: hash})
	for i := range 10 {
		other, _ := claimToken(t)
		w := r.from(ann, "GET", "/api/links/mine", "", "Authorization", "Bearer "+token)
		guessed := r.from(ann, []string{"GET", "DELETE"}[i%2], fmt.Sprintf("/api/links/no%d", i),
			"", "Authorization", "Bearer "+other)
		if i < 3 {
			if w.Code != 200 {
				t.Errorf("got %d", w.Code)
			}
			wantProblem(t, guessed, 404, "not-found", "")
			continue
		}
		wantLimited(t, guessed, "unknown", 3, 20)
		wantLimited(t, w, "unknown", 3, 20)
	}
}

func TestRefusedCredentialsAreLimited(t *testing.T) {
	r := limited(t, access.Rates{access.LimitUnknown: 4})
	known := r.as("cleo", "GET", "/api/me", "")
	if known.Code != 200 {
		t.Fatalf("got %d", known.Code)
	}
	for _, header := range [][]string{{"X-Api-Key", unknownKey(t)},
		{"Authorization", "Digest dXNlcjpwYXNz"}, {"X-Api-Key", "tny_x"},
		{"Authorization", "Bearer " + unknownKey(t)}} {
		wantProblem(t, r.from(ann, "POST", "/api/shorten", "", header...), 401,
			"credentials-invalid", "")
	}
	lookups := r.fake.Lookups()
	for _, request := range []string{"GET /api/me", "POST /api/shorten", "GET /api/links/abcdef",
		"GET /api/keys"} {
		method, target, _ := strings.Cut(request, " ")
		wantLimited(t, r.from(ann, method, target, "", "X-Api-Key", unknownKey(t)), "unknown", 4,
			15)
		wantLimited(t, r.from(ann, method, target, "", "Authorization", "Bearer tny_x"), "unknown",
			4, 15)
	}
	if r.fake.Lookups() != lookups {
		t.Errorf("%d keys were looked up past the limit", r.fake.Lookups()-lookups)
	}
	wantLimited(t, r.from(ann, "GET", "/nobody", ""), "unknown", 4, 15)
	for _, who := range []string{"", "cleo", "admin"} { // authenticated without a look-up
		wantStatus(t, r.as(who, "GET", "/api/me", "", "X-Forwarded-For", ann), 200, who)
	}
	wantProblem(t, r.from(ben, "GET", "/api/me", "", "X-Api-Key", unknownKey(t)), 401,
		"credentials-invalid", "")
	if refused := r.metrics.SigninsRefused.Value(); refused != 5 {
		t.Errorf("%d counted as refused", refused)
	}
}

func TestRedirectsAreLimited(t *testing.T) {
	r := limited(t, access.Rates{access.LimitRedirect: 2})
	r.fake.Put(link.Link{Name: "cached", LongURL: "https://example.com/"})
	r.fake.Cache("cached")
	r.from(ann, "GET", "/cached", "")
	r.from(ann, "HEAD", "/nobody", "")
	calls := r.fake.Calls()
	wantLimited(t, r.from(ann, "GET", "/cached", ""), "redirect", 2, 30)
	wantLimited(t, r.from(ann, "GET", "/nobody", ""), "redirect", 2, 30)
	wantLimited(t, r.from(ann, "GET", "/cached+", ""), "redirect", 2, 30)
	wantLimited(t, r.from(ann, "GET", "/nobody+", ""), "redirect", 2, 30)
	// these paths are not aliases
	for _, request := range []string{"GET /favicon.ico", "GET /robots.txt", "GET /a.b/c",
		"GET /api+"} {
		method, target, _ := strings.Cut(request, " ")
		if w := r.from(ann, method, target, ""); w.Code == 429 {
			t.Errorf("%s got 429", request)
		}
	}
	wantStatus(t, r.from(ben, "GET", "/cached+", ""), 200, "somebody else's preview")
	if w := r.from(ben, "GET", "/cached", ""); w.Code != 302 || r.fake.Calls() != calls {
		t.Errorf("somebody else got %d", w.Code)
	}
	wantLimited(t, r.from(ben, "GET", "/cached", ""), "redirect", 2, 30) // the preview has counted
	if got := len(r.clicks.clicked["cached"]); got != 2 {
		t.Errorf("%d clicks, want 2", got)
	}
}

// A client is one client, whatever it writes into the header and however the entries of the proxies
// are laid out.
func TestForgedAddressesAreOneClient(t *testing.T) {
	const forged, proxies = 40, 3
	for hops := 1; hops <= proxies; hops++ {
		r := newRig(t, func(c *functions.Config) {
			c.Rates = access.Rates{access.LimitUnknown: 5}
			c.Addresses.Hops = hops
		})
		behind := []string{ann, "192.0.2.1", "192.0.2.2"}[:hops] // what the proxies write
		status := map[int]int{}
		for i := range forged {
			invented := fmt.Sprintf("9.9.9.%d", i)
			entries := append([]string{}, behind...)
			for range i % 4 { // entries by the client, before those of the proxies
				entries = append([]string{invented}, entries...)
			}
			req := httptest.NewRequest("GET", "http://internal.example/nobody", nil)
			switch i % 3 {
			case 0:
				req.Header["X-Forwarded-For"] = []string{strings.Join(entries, ", ")}
			case 1: // one line per entry
				req.Header["X-Forwarded-For"] = entries
			case 2: // with an empty line, too
				req.Header["X-Forwarded-For"] = append([]string{"", "unknown,, " + invented},
					strings.Join(entries, ","))
			}
			for _, other := range []string{"Forwarded", "X-Real-Ip", "Client-Ip",
				"X-Azure-Clientip", "True-Client-Ip", "Cf-Connecting-Ip"} {
				req.Header.Set(other, invented)
			}
			w := r.send(req)
			status[w.Code]++
		}
		if status[404] != 5 || status[429] != forged-5 {
			t.Errorf("%d proxies: got %v", hops, status)
		}
		req := httptest.NewRequest("GET", "http://internal.example/nobody", nil)
		req.Header.Set("X-Forwarded-For", strings.Join(append([]string{ann, ben}, behind[1:]...),
			","))
		if w := r.send(req); w.Code != 404 {
			t.Errorf("%d proxies: somebody else got %d", hops, w.Code)
		}
	}
}

// Without the header, all clients behind the host would be one client. So they are not limited, and
// ready and the log say so. Owners and clients with an address are limited.
func TestClientsWithoutAnAddress(t *testing.T) {
	r := newRig(t, func(c *functions.Config) {
		c.Rates = access.Rates{1, 1, 1, 1}
		c.Addresses.Hosted = true
	})
	request := func(header ...string) (status []int) {
		for _, target := range []string{"GET /nobody", "POST /api/shorten", "GET /api/stats"} {
			method, path, _ := strings.Cut(target, " ")
			req := httptest.NewRequest(method, "http://internal.example"+path,
				strings.NewReader(`{"longUrl":"https://example.com/"}`))
			req.RemoteAddr = "127.0.0.1:4711"
			req.Header.Set("Content-Type", "application/json")
			for pair := range slices.Chunk(header, 2) {
				req.Header.Set(pair[0], pair[1])
			}
			w := r.send(req)
			status = append(status, w.Code)
		}
		return status
	}
	if w := r.get("/api/ready"); strings.Contains(w.Body.String(), "addresses") {
		t.Errorf("before: %s", w.Body)
	}
	request("X-Forwarded-For", ann)
	if got := request("X-Forwarded-For", ann); !slices.Equal(got, []int{429, 429, 429}) {
		t.Errorf("with an address: got %v", got)
	}
	if got := strings.Count(r.log.String(), telemetry.LogClientAddressMissing); got != 0 {
		t.Errorf("%d lines", got)
	}
	for range 3 {
		if got := request(); !slices.Equal(got, []int{404, 200, 200}) {
			t.Errorf("without one: got %v", got)
		}
	}
	if got := strings.Count(r.log.String(), telemetry.LogClientAddressMissing); got != 1 {
		t.Errorf("%d lines in\n%s", got, r.log)
	}
	if w := r.get("/api/ready"); w.Code != 200 ||
		!strings.Contains(w.Body.String(), `"addresses":"missing"`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	r.as("cleo", "GET", "/api/me", "")
	wantLimited(t, r.as("cleo", "GET", "/api/me", ""), "api", 1, 60)
}

// An IPv6 /64 is one client.
func TestIPv6ClientsAreLimitedByNetwork(t *testing.T) {
	r := limited(t, access.Rates{access.LimitUnknown: 1})
	for address, status := range map[string][2]int{"[2001:db8::%d]:4711": {404, 429},
		"2001:db8:0:%d::1": {404, 404}, "::ffff:203.0.113.%d": {404, 404}} {
		for i, want := range status {
			if w := r.from(fmt.Sprintf(address, i+1), "GET", "/nobody", ""); w.Code != want {
				t.Errorf("%s: got %d, want %d", fmt.Sprintf(address, i+1), w.Code, want)
			}
		}
	}
	wantStatus(t, r.from("203.0.113.1", "GET", "/nobody", ""), 429,
		"IPv4 that was mapped into IPv6")
}

// probing returns a rig that allows three probes, with links of several owners.
func probing(t *testing.T) (r *rig, token string) {
	r = limited(t, access.Rates{access.LimitProbes: 3})
	token, hash := claimToken(t)
	at := r.clock.Now()
	for _, l := range []link.Link{
		{Name: "own", Owner: "ann"},
		{Name: "own-off", Owner: "ann", Disabled: true},
		{Name: "bobs", Owner: "bob"},
		{Name: "bobs-gone", Owner: "bob", DeletedAt: at},
		{Name: "nobodys", ClaimHash: hash},
		{Name: "nobodys2", ClaimHash: hash},
	} {
		l.LongURL, l.CreatedAt = "https://example.com/", at
		r.fake.Put(l)
	}
	r.fake.Put(link.Link{Name: "tomb", GoneReason: link.StateExpired, GoneAt: at})
	return r, token
}

// Dry runs tell an owner about no more aliases of others than the limit of the day. Past that limit
// they do not tell that an alias is free, either.
func TestDryRunsTellLittleOfOthers(t *testing.T) {
	const url, other = "https://example.com/", "https://example.org/"
	r, _ := probing(t)
	r.block("evil.example")
	first := line("own", url, "") + line("free", url, "") + line("bobs", other, "") +
		line("free", other, "") + line("bobs-gone", url, "") +
		line("own-off", other, "") + line("evil", "https://evil.example/", "")
	second := line("free2", url, "") + line("tomb", url, "") + line("free3", url, "") +
		line("nobodys", url, "") + line("bobs", url, "") +
		line("own", url, "") + line("own", other, "") + line("evil", "https://evil.example/", "") +
		line("no/alias", url, "")
	told := []string{"1 200 own", "2 201 free", "3 409 bobs alias-taken", "4 409 free alias-taken",
		"5 409 bobs-gone alias-taken", "6 409 own-off alias-taken",
		"7 403 evil target-blocked longUrl"}
	r.wantResults("within the limit", r.imports("ann", "?dryRun=true", first), told...)
	spent := []string{"1 429 free2 rate-limited", "2 429 tomb rate-limited",
		"3 429 free3 rate-limited", "4 429 nobodys rate-limited",
		"5 429 bobs rate-limited", "6 200 own", "7 409 own alias-taken",
		"8 403 evil target-blocked longUrl", "9 400 no/alias alias alias"}
	past := append([]string{"1 201 free2", "2 409 tomb alias-taken"}, spent[2:]...)
	r.wantResults("past it", r.imports("ann", "?dryRun=true", second), past...)
	r.wantResults("after it", r.imports("ann", "?dryRun=true", second), spent...)
	if w := r.as("ann", "POST", "/api/import?dryRun=true", second); w.Code != 200 ||
		strings.Count(w.Body.String(), "again in 28800 seconds.") != 5 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	// Other owners and admins are not affected, nor is the same owner after a wait.
	r.wantResults("another owner", r.imports("cleo", "?dryRun=true", line("bobs", other, "")),
		"1 409 bobs alias-taken")
	for range 5 {
		r.wantResults("an admin", r.imports("admin", "?dryRun=true", line("bobs", other, "")),
			"1 409 bobs alias-taken")
	}
	r.clock.Advance(8 * time.Hour)
	r.wantResults("eight hours later", r.imports("ann", "?dryRun=true", line("bobs", other, "")+
		line("free", url, "")), "1 409 bobs alias-taken", "2 429 free rate-limited")
	// An import that is not a dry run does not count, and says what it does.
	r.wantResults("in earnest", r.imports("ann", "", line("bobs", other, "")+line("free", url, "")),
		"1 409 bobs alias-taken", "2 201 free")
}

// Claims with wrong tokens count towards the same limit. Claims with right tokens do not count.
func TestClaimsTellLittleOfOthers(t *testing.T) {
	r, token := probing(t)
	claims := func(who string, claims ...string) string {
		t.Helper()
		var body, results []string
		for _, c := range claims {
			alias, token, _ := strings.Cut(c, " ")
			body = append(body, fmt.Sprintf(`{"alias":%q,"claimToken":%q}`, alias, token))
		}
		w := r.as(who, "POST", "/api/claims", `{"claims":[`+strings.Join(body, ",")+`]}`)
		var got struct{ Results []struct{ Result string } }
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 {
			t.Fatalf("got %d %s, %v", w.Code, w.Body, err)
		}
		for _, c := range got.Results {
			results = append(results, c.Result)
		}
		return strings.Join(results, ", ")
	}
	for _, test := range []struct{ who, got, want string }{
		{"within the limit", claims("ann", "bobs x", "free x", "own x", "nobodys x", "a/b x"),
			"invalid, gone, already yours, invalid, gone"},
		{"past it", claims("ann", "free x", "bobs-gone "+token, "free x", "bobs x", "own x",
			"nobodys x", "nobodys "+token, "tomb x", "a/b x"),
			"gone, invalid, later, later, already yours, later, claimed, later, gone"},
		{"a dry run then", strings.Join(r.imports("ann", "?dryRun=true",
			line("free", "https://example.com/", "")), ""), "1 429 free rate-limited"},
		{"another owner", claims("cleo", "bobs x", "free x", "nobodys2 "+token),
			"invalid, gone, claimed"},
		{"an admin", claims("admin", "bobs x", "bobs x", "bobs x", "bobs x"),
			"invalid, invalid, invalid, invalid"},
	} {
		if test.got != test.want {
			t.Errorf("%s: got %s, want %s", test.who, test.got, test.want)
		}
	}
	r.clock.Advance(24 * time.Hour)
	if got := claims("ann", "bobs x", "bobs x", "bobs x",
		"bobs x"); got != "invalid, invalid, invalid, later" {
		t.Errorf("a day later: got %s", got)
	}
	all := limited(t, access.Rates{})
	if results := all.imports("ann", "?dryRun=true", line("free", "https://example.com/",
		"")); results[0] != "1 201 free" {
		t.Errorf("without a limit: %v", results)
	}
}

// Whoever asks whether aliases are free finds few that are somebody else's.
func TestFreeAliases(t *testing.T) {
	r := limited(t, access.Rates{access.LimitProbes: 2})
	r.fake.Put(link.Link{Name: "anns", LongURL: "https://example.com/", Owner: "ann"})
	r.fake.Put(link.Link{Name: "bobs", LongURL: "https://example.com/", Owner: "bob"})
	r.fake.Put(link.Link{Name: "tomb", GoneReason: link.StateDeleted, GoneAt: r.clock.Now()})
	ask := func(who, alias string) *httptest.ResponseRecorder {
		return r.as(who, http.MethodGet, "/api/aliases/"+alias, "")
	}
	want := func(who, alias, body string) {
		t.Helper()
		wantJSON(t, ask(who, alias), body, alias, who)
	}
	const free, taken = `{"free":true}`, `{"free":false}`
	for range 4 { // none of these costs anything
		want("ann", "nobodys", free)
		want("ann", "anns", taken)
		want("ann", "nobodys@tiney.to", free)
	}
	for _, malformed := range []string{"api", "Manage", "a.b", strings.Repeat("a", 101), "%20"} {
		wantProblem(t, ask("ann", malformed), 400, "alias", "alias")
	}
	wantProblem(t, ask("ann", "a@other.example"), 400, "domain", "domain")
	want("ann", "bobs", taken)
	want("ann", "tomb", taken)
	// From now on the response does not tell which aliases are free, but for one's own.
	for _, alias := range []string{"bobs", "nobodys"} {
		if w := ask("ann", alias); w.Code != 429 || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s: got %d %v", alias, w.Code, w.Header())
		}
	}
	want("ann", "anns", taken)
	want("bob", "nobodys", free)
	want("admin", "bobs", taken)
	r.fake.Fail(link.ErrDamaged) // whose it is cannot be told
	for range 2 {
		wantProblem(t, ask("cleo", "damaged"), 410, "link-damaged", "")
	}
	wantStatus(t, ask("cleo", "damaged"), 429, "damaged")
	r.fake.Fail(link.ErrUnavailable)
	wantProblem(t, ask("bob", "nobodys"), 503, "storage-unavailable", "")
}

// What somebody does with keys of groups counts for that person, too, and for the group.
func TestGroupsMultiplyNoLimit(t *testing.T) {
	groups := []string{"crew", "ops", "sales"}
	r := newRig(t, func(c *functions.Config) {
		c.Rates = access.Rates{access.LimitProbes: 2, access.LimitAPI: 40}
		c.Callers = memberships{c.Callers, map[string][]string{"ann": groups, "ben": {"crew"}}}
	})
	r.fake.Put(link.Link{Name: "bobs", LongURL: "https://example.com/", Owner: "bob"})
	keyOf := func(maker, owner string) string {
		t.Helper()
		w := r.as(maker, "POST", "/api/keys", fmt.Sprintf(`{"name":"k","owner":%q}`, owner))
		key := strings.Trim(members(t, w)["key"], `"`)
		if w.Code != 201 || key == "" {
			t.Fatalf("%s makes a key of %s: %d %s", maker, owner, w.Code, w.Body)
		}
		return key
	}
	probe := func(who string) int { return r.as(who, "GET", "/api/aliases/bobs", "").Code }
	first := keyOf("ann", "crew")
	second := keyOf(first, "crew") // made with a key of the group
	others := keyOf("ann", "ops")
	bens, admins := keyOf("ben", "crew"), keyOf("admin", "sales")
	if probe(first) != 200 || probe(others) != 200 {
		t.Fatal("refused too early")
	}
	for name, key := range map[string]string{"by the same key": first, "made with it": second,
		"of another group": others, "of a third": keyOf("ann", "sales"), "of her own": "ann",
		"of her own, made with a key": keyOf("ann", "ann")} {
		if got := probe(key); got != 429 {
			t.Errorf("another key %s: got %d", name, got)
		}
	}
	if got := probe(admins); got != 200 {
		t.Errorf("a key that an admin made: got %d", got)
	}
	if a, b, c := probe(bens), probe(bens), probe("ben"); a != 200 || b != 429 || c != 200 {
		t.Errorf("another member's key of the group: got %d %d, and for the member %d", a, b, c)
	}
	// So do all calls of the API: ann, her keys, and what those make share her 40 a minute.
	r.clock.Advance(time.Hour)
	told := 0
	for i := range 60 {
		if w := r.as([]string{first, second, others, "ann"}[i%4], "GET", "/api/me", ""); w.Code == 200 {
			told++
		}
	}
	if told != 40 {
		t.Errorf("%d calls of 60 got an answer, want 40", told)
	}
	wantStatus(t, r.as(bens, "GET", "/api/me", ""), 200, "another member's key of the group")
}

// Every limit that refuses has a counter of refused requests.
func TestLimitsAreCounted(t *testing.T) {
	var names []string
	for of := range len(access.Rates{}) { // a new one, too
		if name := access.Limit(of).String(); name != "" {
			names = append(names, name)
		}
	}
	if got := append(names, telemetry.LimitBusy); !slices.Equal(got, telemetry.Limits) {
		t.Errorf("there are the limits %q, and counters of %q", got, telemetry.Limits)
	}
	for _, name := range names {
		new(telemetry.Metrics).LimitRefused(name).Add(1) // panics if there is no counter
	}
}
