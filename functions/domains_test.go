package functions_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/link"
	"tiney/storage"
)

// put makes links whose names are also what they lead to.
func (r *rig) put(names ...link.Name) {
	for _, name := range names {
		r.fake.Put(link.Link{Name: name, LongURL: "https://example.com/" + string(name), Owner: "ann"})
	}
}

const browser = "text/html,application/xhtml+xml,*/*;q=0.8"

func wantLocation(t *testing.T, what string, w *httptest.ResponseRecorder, want string) {
	t.Helper()
	if got := w.Header().Get("Location"); got != want ||
		w.Code != http.StatusFound != (want == "") {
		t.Errorf("%s: got %d to %q, want %q", what, w.Code, got, want)
	}
}

func TestWhichDomainARequestIsFor(t *testing.T) {
	const main, go80, go8080 = "https://example.com/abc", "https://example.com/abc@go.example",
		"https://example.com/abc@go.example:8080"
	for name, test := range map[string]struct {
		hosted bool
		header string // DOMAIN_HEADER
		send   []string
		want   string
	}{
		"the default":            {false, "", []string{"Host", "tiney.to"}, main},
		"none that is known":     {false, "", []string{"Host", "other.example"}, main},
		"a domain":               {false, "", []string{"Host", "go.example"}, go80},
		"its port":               {false, "", []string{"Host", "go.example:443"}, go80},
		"in capitals":            {false, "", []string{"Host", "GO.Example.:80"}, go80},
		"another port":           {false, "", []string{"Host", "go.example:8080"}, go8080},
		"no port of one":         {false, "", []string{"Host", "go.example:8081"}, main},
		"one that is forwarded":  {false, "", []string{"X-Forwarded-Host", "go.example"}, main},
		"a host that forwards":   {true, "", []string{"Host", "go.example"}, go80},
		"one that a client says": {true, "", []string{"X-Forwarded-Host", "go.example"}, main},
		"a host that proxies": {true, "", []string{"Host", hostAddress, "X-Forwarded-Host",
			"Go.example"}, go80},
		"one of two": {true, "", []string{"Host", hostAddress, "X-Forwarded-Host",
			"go.example, tiney.to"}, main},
		"no host":  {true, "", []string{"Host", hostAddress}, main},
		"a header": {false, "X-Tiney-Host", []string{"X-Tiney-Host", "go.example:8080"}, go8080},
		"not the header": {true, "X-Tiney-Host", []string{"Host", hostAddress, "X-Forwarded-Host",
			"go.example"}, main},
		"no header": {false, "X-Tiney-Host", []string{"Host", "go.example"}, main},
	} {
		r := newRig(t, withDomains, func(c *functions.Config) {
			c.DomainHeader = test.header
			if !test.hosted {
				c.HostAddress = ""
			}
		})
		r.put("abc", "abc@go.example", "abc@go.example:8080")
		wantLocation(t, name, r.get("/abc", test.send...), test.want)
	}
	r := newRig(t, withDomains)
	r.put("abc", "abc@go.example")
	req := httptest.NewRequest("GET", "/abc", nil)
	req.Header["X-Forwarded-Host"] = []string{"go.example", "go.example"}
	req.Host = hostAddress
	wantLocation(t, "two lines", r.send(req), main)
	calls := r.fake.Calls()
	if w := r.get("/abc@go.example"); w.Code != 404 || r.fake.Calls() != calls {
		t.Errorf("a name is looked up: %d", w.Code)
	}
	wantStatus(t, r.get("/api/openapi.json", "Host", "go.example"), 200, "the API of a domain")
}

// pieces are what a redirect of a link with forward is made of: the path and query that are
// requested, and where that leads.
func TestForwarding(t *testing.T) {
	r := newRig(t, func(c *functions.Config) { c.RedirectMaxAge = time.Hour })
	for name, forward := range map[link.Name]link.Forward{"none": 0, "query": link.ForwardQuery,
		"path": link.ForwardPath, "both": link.ForwardQuery | link.ForwardPath} {
		r.fake.Put(link.Link{Name: name, LongURL: "https://example.com/p/?a#f", Forward: forward})
	}
	r.fake.Put(link.Link{Name: "gone", LongURL: "https://example.com/", ExpiresAt: r.clock.Now(),
		Forward: link.ForwardPath})
	for target, want := range map[string]string{
		"/none":                  "https://example.com/p/?a#f",
		"/none/":                 "https://example.com/p/?a#f",
		"/none?x":                "https://example.com/p/?a#f",
		"/none/x":                "",
		"/query?x=%2F&y":         "https://example.com/p/?a&x=%2F&y#f",
		"/query/?x":              "https://example.com/p/?a&x#f",
		"/query?":                "https://example.com/p/?a#f",
		"/query?\"{é}":           "https://example.com/p/?a&%22%7B%C3%A9%7D#f",
		"/query/x":               "",
		"/path?x":                "https://example.com/p/?a#f",
		"/path/x/?y":             "https://example.com/p/x/?a#f",
		"/both/x%2Fy/%C3%a9?z#h": "https://example.com/p/x%2Fy/%C3%a9?a&z%23h#f",
		"/both.,/":               "https://example.com/p/?a#f",
		"/both.,/x":              "",
		"/b%6Fth/x":              "https://example.com/p/x?a#f",
		"/both//x":               "",
		"/both//":                "",
		"/both/../x":             "",
		"/both/x/%2e%2E":         "",
		"/both/..%2fx":           "",
		"/both/..;/x":            "",
		"/both/..%5cx":           "",
		"/both/%252e%252e/x":     "",
		"/both/a;b/%252Ex":       "https://example.com/p/a;b/%252Ex?a#f",
		"/both%2Fx":              "",
		"/both/@evil.example":    "https://example.com/p/@evil.example?a#f",
	} {
		w := r.get(target)
		wantLocation(t, target, w, want)
		if want != "" && strings.HasPrefix(target, "/none") ==
			(w.Header().Get("Cache-Control") == "no-store") {
			t.Errorf("%s: Cache-Control %q", target, w.Header().Get("Cache-Control"))
		}
	}
	wantProblem(t, r.get("/gone/x"), 410, "link-expired", "")
	req := httptest.NewRequest("GET", "http://tiney.to/both/x%22%2fy", nil)
	req.RequestURI = `http://tiney.to/both/x"%2fy?z` // as a proxy sends it
	req.URL.RawPath = `/both/x"%2fy`
	wantLocation(t, "an absolute URL", r.send(req), "https://example.com/p/x%22%2fy?a#f")
	clicked := len(r.clicks.clicked["both"])
	long := "/both/" + strings.Repeat("x", 9000)
	wantProblem(t, r.get(long), 414, "too-long", "")
	if w := r.get(long, "Accept", browser); w.Code != 414 || !strings.Contains(w.Body.String(), "<h1>") {
		t.Errorf("a browser got %d %s", w.Code, w.Body)
	}
	if len(r.clicks.clicked["both"]) != clicked || clicked == 0 {
		t.Error("what is too long was counted")
	}
	// The Location of a link that forwards nothing is never too long.
	clicked = len(r.clicks.clicked["none"])
	r.get("/none?" + strings.Repeat("x", 9000))
	if len(r.clicks.clicked["none"]) != clicked+1 {
		t.Error("a click was not counted")
	}
	wantStatus(t, r.do("POST", "/both/x", ""), 405, "POST")
	for target, want := range map[string]string{
		"/both+?x=1":     `"longUrl":"https://example.com/p/?a&x=1#f"`,
		"/both+/x?y":     `"longUrl":"https://example.com/p/x?a&y#f"`,
		"/both+":         `"forward":["query","path"]`,
		"/none+/x":       `"status":404`,
		"/both+/../x":    `"status":404`,
		"/both%2B/x/?&z": `"longUrl":"https://example.com/p/x/?a&&z#f"`,
	} {
		if w := r.get(target); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s, want %s", target, w.Code, w.Body, want)
		}
	}
	if w := r.get("/both+/x?<y>", "Accept", browser); w.Code != 200 ||
		!strings.Contains(w.Body.String(), "?a&amp;%3Cy%3E#f") {
		t.Errorf("a preview: %d %s", w.Code, w.Body)
	}
}

// A rest that leads nowhere counts as an unknown alias.
func TestUnknownRestsAreLimited(t *testing.T) {
	r := newRigOn(t, withCache, func(c *functions.Config) {
		c.Rates = access.Rates{access.LimitUnknown: 2}
	})
	r.put("abc")
	r.fake.Cache("abc")
	for i, want := range []int{404, 404, 429} {
		wantStatus(t, r.get("/abc/x", "X-Forwarded-For", "192.0.2.1"), want, i)
	}
	wantStatus(t, r.get("/abc", "X-Forwarded-For", "192.0.2.1"), 302, "the alias itself")
	r.wantMetrics(map[string]float64{"redirect.not_found": 2, "redirect.found": 1, "limit.refused": 1})
}

// A client past its limit gets a cached link also in a spelling that nobody asked for before, and
// an older link that has that very spelling.
func TestSpellingsPastTheLimit(t *testing.T) {
	for _, anyCase := range []bool{false, true} {
		r := newRigOn(t, func(c *storage.Config) {
			withCache(c)
			c.AnyCase = anyCase
		}, func(c *functions.Config) {
			c.Rates = access.Rates{access.LimitUnknown: 1}
			c.Rules.AnyCase = anyCase
		}, withDomains)
		r.put("docs", "docs@go.example", "DOCS", "other")
		r.fake.Cache("docs")
		r.fake.Cache("docs@go.example")
		get := func(target, host string) *httptest.ResponseRecorder {
			return r.get(target, "X-Forwarded-For", "192.0.2.1", "Host", host)
		}
		get("/nobody", "")
		for target, want := range map[string]string{"/docs": "docs", "/Docs": "docs", "/DOCS": "DOCS",
			"/OTHER": "", "/other": "", "/Nobody": ""} {
			for host, suffix := range map[string]string{"tiney.to": "", "go.example": "@go.example"} {
				want := want
				if want == "DOCS" && suffix != "" {
					want = "docs"
				}
				if !anyCase && target != "/docs" {
					want = ""
				}
				w := get(target, host)
				if want == "" {
					wantProblem(t, w, 429, "rate-limited", "")
					continue
				}
				wantLocation(t, target+suffix, w, "https://example.com/"+want+suffix)
			}
		}
	}
}

// What the platform's front end says of a URL is believed where it is about the same alias.
func TestRawURLHeader(t *testing.T) {
	const header = "X-Waws-Unencoded-Url"
	for _, hosted := range []bool{true, false} {
		r := newRig(t, func(c *functions.Config) {
			if !hosted {
				c.HostAddress = ""
			}
		})
		r.fake.Put(link.Link{Name: "abc", LongURL: "https://example.com",
			Forward: link.ForwardQuery | link.ForwardPath})
		r.put("plain")
		for _, test := range []struct{ target, sent, want string }{
			{"/abc/x", "/abc/%2Bx?a&a=%zz", "https://example.com/%2Bx?a&a=%zz"},
			{"/abc/x", "/%61bc/y", "https://example.com/y"},
			{"/abc", "/abc/", "https://example.com"},
			{"/abc?q", "/abc", "https://example.com"},
			{"/abc/x?q", "/other/y", "https://example.com/x?q"},
			{"/abc/x?q", "/x/../abc/y", "https://example.com/x?q"},
			{"/abc/x?q", "https://tiney.to/abc/y", "https://example.com/x?q"},
			{"/abc/x?q", "", "https://example.com/x?q"},
			{"/abc/y", "/abc/x/../y", ""},
			{"/plain", "/plain/x?y", "https://example.com/plain"},
		} {
			want := test.want
			if path, query, has := strings.Cut(test.target, "?"); !hosted {
				want = "https://example.com" + strings.TrimPrefix(path, "/abc")
				if has {
					want += "?" + query
				}
			}
			wantLocation(t, fmt.Sprint(hosted, test), r.get(test.target, header, test.sent), want)
		}
	}
}

func fallbacks(c *functions.Config) {
	withDomains(c)
	c.HomeURL, c.UnknownURL, c.GoneURL = "https://home.example/{domain}",
		"https://unknown.example/{domain}?{alias}", "https://gone.example/#{alias}"
}

func TestFallbacks(t *testing.T) {
	r := newRig(t, fallbacks)
	r.put("live", "disabled", "deleted", "expired", "blocked")
	past := r.clock.Now()
	r.fake.Put(link.Link{Name: "disabled", LongURL: "https://example.com/", Disabled: true})
	r.fake.Put(link.Link{Name: "deleted", LongURL: "https://example.com/", DeletedAt: past})
	r.fake.Put(link.Link{Name: "expired", LongURL: "https://example.com/", ExpiresAt: past})
	r.fake.Put(link.Link{Name: "tomb", GoneReason: link.StateDeleted, GoneAt: past})
	r.fake.Put(link.Link{Name: "blocked", LongURL: "https://evil.example/"})
	r.block("evil.example")
	for target, test := range map[string]struct {
		want    string
		browser int // the status if there is no fallback
		others  int
	}{
		"/":             {"https://home.example/go.example", 0, 302},
		"/Unknown":      {"https://unknown.example/go.example?Unknown", 0, 404},
		"/unknown/":     {"https://unknown.example/go.example?unknown", 0, 404},
		"/unknown.":     {"https://unknown.example/go.example?unknown", 0, 404},
		"/unknown/rest": {"https://unknown.example/go.example?unknown", 0, 404},
		"/no@alias":     {"", 404, 404},
		"/api":          {"", 404, 404},
		"/unknown+":     {"", 404, 404},
	} {
		const passedOn = "X-Azure-Functions-InvocationId"
		w := r.get(target, "Accept", browser, "Host", "go.example", passedOn, invocation)
		wantLocation(t, target, w, test.want)
		if w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: Cache-Control %q", target, w.Header().Get("Cache-Control"))
		}
		if test.browser != 0 && w.Code != test.browser {
			t.Errorf("%s: %d", target, w.Code)
		}
		wantStatus(t, r.get(target, "Host", "go.example", passedOn, invocation), test.others,
			target)
	}
	for alias, want := range map[string]string{
		"live/rest": "https://unknown.example/tiney.to?live", "expired": "https://gone.example/#expired",
		"expired/x": "https://gone.example/#expired", "deleted": "https://gone.example/#deleted",
		"tomb": "https://gone.example/#tomb", "disabled": "", "blocked": "",
	} {
		wantLocation(t, alias, r.get("/"+alias, "Accept", browser), want)
	}
	wantStatus(t, r.get("/expired+", "Accept", browser), 410, "a preview")
	wantStatus(t, r.get("/", "Host", hostAddress), 200, "the Functions host itself gets")
	r = newRig(t, fallbacks, func(c *functions.Config) { c.HostAddress = "" })
	wantStatus(t, r.do("HEAD", "/", ""), 302, "HEAD /")
	if w := r.do("POST", "/", "longUrl=https://example.com", "Content-Type",
		"application/x-www-form-urlencoded"); w.Code != 405 ||
		w.Header().Get("Allow") != "GET, HEAD, OPTIONS" {
		t.Errorf("POST /: %d, %s", w.Code, w.Header().Get("Allow"))
	}
	if w := r.do("OPTIONS", "/", ""); w.Code != 204 || w.Body.Len() > 0 ||
		w.Header().Get("Allow") != "GET, HEAD, OPTIONS" {
		t.Errorf("OPTIONS /: %d, %v %s", w.Code, w.Header(), w.Body)
	}
	wantStatus(t, r.get("/manage"), 200, "/manage")
	// Limits come first, and an outage is one.
	limited := newRig(t, fallbacks, func(c *functions.Config) {
		c.Rates = access.Rates{access.LimitUnknown: 1}
	})
	limited.get("/unknown", "Accept", browser, "X-Forwarded-For", "192.0.2.1")
	wantStatus(t, limited.get("/unknown", "Accept", browser, "X-Forwarded-For", "192.0.2.1"), 429,
		"too many")
	r.fake.Fail(link.ErrUnavailable)
	wantStatus(t, r.get("/unknown", "Accept", browser), 503, "in an outage")
}

// hit is a store that has every link of go.example cached.
type hit struct{ functions.Links }

func (hit) Cached(_ context.Context, name link.Name, _ bool) (link.Link, bool) {
	return link.Link{Name: "abc@go.example", LongURL: "https://example.com/"}, len(name) > 4
}

// A cached redirect of another domain allocates one thing more than one of the default domain: the
// name of its link.
func TestADomainAllocatesItsName(t *testing.T) {
	measure := func(name, host string) float64 {
		r := newRig(t, withDomains, func(c *functions.Config) {
			c.CountClicks = "off"
			c.Links = hit{}
		})
		req := httptest.NewRequest("GET", "/"+name, nil)
		req.Host = host
		wantStatus(t, r.send(req), 302, host)
		w := nowhere{http.Header{}}
		return testing.AllocsPerRun(1000, func() {
			clear(w.header)
			r.ServeHTTP(w, req)
		})
	}
	var d, of float64
	for range 5 { // the average is rounded down, and the runtime allocates now and then
		if d, of = measure("abcdef", "tiney.to"), measure("abc", "go.example"); of <= d+1 {
			return
		}
	}
	t.Errorf("%v allocations, %v of the default domain", of, d)
}
