package functions_test

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"tiney/functions"
	"tiney/internal/link"
)

// withDomains gives the service the domains go.example, go.example:8080 and bücher.example, besides
// tiney.to.
func withDomains(c *functions.Config) {
	c.Rules.Domains = map[link.Domain]link.Base{}
	for _, url := range []string{"https://go.example", "http://go.example:8080",
		"https://xn--bcher-kva.example"} {
		base, err := link.ParseBase(url)
		if err != nil {
			panic(err)
		}
		c.Rules.Domains[base.Domain()] = base
	}
}

// spellings has the domains of withDomains, and what a caller may call each of them in a request.
var spellings = map[string][]string{
	"tiney.to": {"tiney.to", "TINEY.TO", "tiney.to.", "Tiney.To:443", "tiney.to:80",
		"tiney.to.:0443"},
	"go.example": {"go.example", "Go.Example", "go.example.", "go.example:443",
		"GO.example.:80"},
	"go.example:8080": {"go.example:8080", "GO.EXAMPLE:8080", "go.example.:8080",
		"go.example:08080"},
	"xn--bcher-kva.example": {"xn--bcher-kva.example", "b\u00fccher.example",
		"B\u00dcCHER.example.", "XN--BCHER-kva.example", "bu\u0308cher.example:443"},
}

// noDomains can be no domain in any service.
var noDomains = []string{"", ".", "go example", "go.example/", "https://go.example", "go.example:",
	"go.example:0", "go.example:65536", "go.example:x", "a@go.example", "go.example,tiney.to", "*",
	"xn--", "go.example:443:443", "go.example?", "go_\u0000.example", "[::1"}

// shortURLs are the starts of the short URLs of domains.
var shortURLs = map[string]string{"tiney.to": "https://tiney.to/",
	"go.example": "https://go.example/", "go.example:8080": "http://go.example:8080/",
	"old.example":           "https://old.example/",
	"xn--bcher-kva.example": "https://xn--bcher-kva.example/"}

// These find links in responses.
var (
	namesIn = regexp.MustCompile(`"alias":"([\w-]+)","domain":"([^"]+)","shortUrl":"([^"]+)"`)

	namesWithClicks = regexp.MustCompile(`"alias":"([\w-]+)","domain":"([^"]+)","clicks":(\d+)`)
)

// wantLink checks the members of a link that say where it is.
func wantLink(t *testing.T, w *httptest.ResponseRecorder, status int, alias, domain string) {
	t.Helper()
	got := members(t, w)
	if w.Code != status || got["alias"] != `"`+alias+`"` || got["domain"] != `"`+domain+`"` ||
		got["shortUrl"] != `"`+shortURLs[domain]+alias+`"` {
		t.Errorf("got %d %s, want %d, %s of %s", w.Code, w.Body, status, alias, domain)
	}
}

func TestShortenInADomain(t *testing.T) {
	for domain, all := range spellings {
		for i, spelled := range all {
			r := newRig(t, withDomains)
			body := fmt.Sprintf(`{"longUrl":"https://example.com/","alias":"mine","domain":%q}`,
				spelled)
			w := r.as("ann", "POST", "/api/shorten", body)
			wantLink(t, w, 201, "mine", domain)
			if got := w.Header().Get("Location"); got != shortURLs[domain]+"mine" {
				t.Errorf("%s: Location %s", spelled, got)
			}
			name := link.Name("mine@" + domain)
			if domain == "tiney.to" {
				name = "mine"
			}
			if _, err := r.fake.Read(t.Context(), name); err != nil {
				t.Errorf("%s: there is no %s: %v", spelled, name, err)
			}
			body = fmt.Sprintf(`{"longUrl":"https://example.com/%d","domain":%q}`, i, spelled)
			many := r.bulk("ann", body).Results[0]
			if many.Status != 201 || !strings.Contains(string(many.Link), `"domain":"`+domain+`"`) {
				t.Errorf("%s: bulk: %d %s", spelled, many.Status, many.Link)
			}
			if w := r.shorten(body); w.Code != 201 || members(t, w)["domain"] != `"`+domain+`"` {
				t.Errorf("%s: by nobody: %d %s", spelled, w.Code, w.Body)
			}
		}
	}
	r := newRig(t, withDomains)
	wantLink(t, r.as("ann", "POST", "/api/shorten",
		`{"longUrl":"https://example.com/","alias":"null","domain":null}`), 201, "null", "tiney.to")
	refused := []string{`7`, `[]`, `["go.example"]`, `{}`, `true`, `"other.example"`,
		`"go.example:8081"`, `"www.go.example"`, `"old.example"`}
	for _, no := range noDomains {
		refused = append(refused, strings.ReplaceAll(fmt.Sprintf("%q", no), `\x00`, `\u0000`))
	}
	for _, value := range refused {
		t.Run(value, func(t *testing.T) {
			body := `{"longUrl":"https://example.com/","domain":` + value + `}`
			wantProblem(t, r.shorten(body), 400, "domain", "domain")
			wantProblem(t, r.as("ann", "POST", "/api/shorten", body), 400, "domain", "domain")
			if got := r.bulk("ann", body).Results[0]; got.Status != 400 ||
				!strings.Contains(string(got.Problem), `"type":"/problems/domain"`) {
				t.Errorf("bulk: got %d %s", got.Status, got.Problem)
			}
		})
	}
}

// Each owner has one live link per URL in each domain, and so have all callers without credentials
// together. An alias is taken in its own domain only.
func TestOneLinkPerURLOwnerAndDomain(t *testing.T) {
	r := newRig(t, withDomains)
	names := map[string]bool{}
	for _, who := range []string{"", "ann", "bob"} {
		for domain := range spellings {
			body := `{"longUrl":"https://example.com/","domain":"` + domain + `"}`
			first := r.as(who, "POST", "/api/shorten", body)
			again := r.as(who, "POST", "/api/shorten", body)
			alias := strings.Trim(members(t, first)["alias"], `"`)
			wantLink(t, first, 201, alias, domain)
			wantLink(t, again, 200, alias, domain)
			names[alias+"@"+domain] = true
		}
	}
	if len(names) != 12 {
		t.Errorf("made %v", names)
	}
	for domain := range spellings {
		shorten := func(who, url string) *httptest.ResponseRecorder {
			return r.as(who, "POST", "/api/shorten", fmt.Sprintf(
				`{"longUrl":%q,"alias":"same","domain":%q}`, url, domain))
		}
		wantLink(t, shorten("ann", "https://example.com/1"), 201, "same", domain)
		wantLink(t, shorten("ann", "https://example.com/1"), 200, "same", domain)
		wantProblem(t, shorten("ann", "https://example.com/2"), 409, "alias-taken", "")
		wantProblem(t, shorten("bob", "https://example.com/1"), 409, "alias-taken", "")
	}
}

func TestDomainsOfOwnersOnly(t *testing.T) {
	r := newRig(t, withDomains, func(c *functions.Config) { c.DomainsOwnersOnly = true })
	stranger, _ := claimToken(t)
	in := func(domain string) string {
		return `{"longUrl":"https://example.com/","domain":"` + domain + `"}`
	}
	for _, domain := range []string{"go.example", "GO.EXAMPLE:8080"} {
		wantProblem(t, r.shorten(in(domain)), 401, "credentials-missing", "")
		wantProblem(t, r.as(stranger, "POST", "/api/shorten", in(domain)), 403, "owner-needed", "")
		wantStatus(t, r.as("ann", "POST", "/api/shorten", in(domain)), 201, "an owner")
	}
	wantStatus(t, r.shorten(in("Tiney.to")), 201, "the default domain")
	wantProblem(t, r.shorten(in("other.example")), 400, "domain", "domain")
}

func TestListDomains(t *testing.T) {
	const tiney = `{"domain":"tiney.to","baseUrl":"https://tiney.to","default":true}`
	r := newRig(t, withDomains)
	want := `{"items":[` + tiney +
		`,{"domain":"go.example","baseUrl":"https://go.example","default":false},` +
		`{"domain":"go.example:8080","baseUrl":"http://go.example:8080","default":false},` +
		`{"domain":"xn--bcher-kva.example","baseUrl":"https://xn--bcher-kva.example",` +
		`"default":false}]}`
	for _, who := range []string{"ann", "admin"} {
		wantJSON(t, r.as(who, "GET", "/api/domains", "", "Host", "go.example"), want)
	}
	stranger, _ := claimToken(t)
	wantProblem(t, r.get("/api/domains"), 401, "credentials-missing", "")
	wantProblem(t, r.as(stranger, "GET", "/api/domains", ""), 403, "owner-needed", "")
	wantProblem(t, r.as("ann", "POST", "/api/domains", ""), 405, "method", "")
	w := newRig(t).as("ann", "GET", "/api/domains", "")
	wantJSON(t, w, `{"items":[`+tiney+`]}`)
	w = newRig(t, func(c *functions.Config) {
		c.Rules.Base, _ = link.ParseBase("http://LocalHost:7071/s/")
	}).as("ann", "GET", "/api/domains", "")
	wantJSON(t, w, `{"items":[{"domain":"localhost:7071","baseUrl":"http://LocalHost:7071/s",`+
		`"default":true}]}`)
}

// No link may lead to a domain, whatever the port. A link that leads there already stays.
func TestDomainsAreNoTargets(t *testing.T) {
	r := newRig(t, withDomains)
	r.fake.Put(link.Link{Name: "old", LongURL: "https://go.example/old", Owner: "ann"})
	r.fake.Put(link.Link{Name: "anns", LongURL: "https://example.com/", Owner: "ann"})
	for _, target := range []string{"https://go.example/x", "http://GO.example.:1/",
		"https://tiney.to:8080/", "http://go.example:8080", "https://b\u00fccher.example/",
		"http://xn--bcher-kva.example:81/"} {
		body := `{"longUrl":"` + target + `"}`
		wantProblem(t, r.shorten(body), 400, "long-url", "longUrl")
		wantProblem(t, r.as("ann", "POST", "/api/shorten",
			strings.Replace(body, "}", `,"domain":"go.example"}`, 1)), 400, "long-url", "longUrl")
		wantProblem(t, r.as("ann", "PATCH", "/api/links/anns", body), 400, "long-url", "longUrl")
		r.wantResults(target, r.imports("ann", "", line("imported", target, "")),
			"1 400 imported long-url longUrl")
	}
	for _, target := range []string{"https://www.go.example/", "https://old.example/"} {
		wantStatus(t, r.shorten(`{"longUrl":"`+target+`"}`), 201, target)
	}
	wantStatus(t, r.get("/old"), 302)
	wantStatus(t, r.as("ann", "PATCH", "/api/links/old", `{"title":"T"}`), 200)
}

// linksInDomains stores the link "same" of ann in tiney.to, in go.example, and in old.example,
// which is no domain of the service any more. In go.example there is also "nobodys", of which it
// returns the claim token.
func linksInDomains(t *testing.T, r *rig) (token string) {
	t.Helper()
	now := r.clock.Now()
	for i, name := range []link.Name{"same", "same@go.example", "same@old.example"} {
		r.fake.Put(link.Link{Name: name, LongURL: fmt.Sprint("https://example.com/", i),
			Owner: "ann", CreatedAt: now, Tags: []string{"t"}})
	}
	token, hash := claimToken(t)
	r.fake.Put(link.Link{Name: "nobodys@go.example", LongURL: "https://example.com/",
		ClaimHash: hash, CreatedAt: now})
	return token
}

// A path names a link by its alias and, unless it is in the default domain, its domain. A domain
// that is retired is one as well.
func TestDomainsInPaths(t *testing.T) {
	for domain, all := range map[string][]string{
		"tiney.to": {"same", "same@tiney.to", "same@TINEY.TO.", "same@tiney.to:443",
			"same%40tiney.to", "%73ame@tiney%2Eto"},
		"go.example": {"same@go.example", "same%40go.example", "same@Go.Example.%3A443",
			"same%40GO.EXAMPLE%3A80", "same@go%2eexample"},
		"old.example": {"same@old.example", "same%40OLD.example:80"},
	} {
		for _, spelled := range all {
			r := newRig(t, withDomains)
			linksInDomains(t, r)
			path := "/api/links/" + spelled
			wantLink(t, r.as("ann", "GET", path, ""), 200, "same", domain)
			wantLink(t, r.as("ann", "GET", path+"/", "", "Host", "go.example"), 200, "same", domain)
			wantLink(t, r.as("ann", "PATCH", path, `{"title":"T"}`), 200, "same", domain)
			stats := members(t, r.as("ann", "GET", path+"/stats", ""))
			if stats["alias"] != `"same"` || stats["domain"] != `"`+domain+`"` {
				t.Errorf("%s: statistics %v", spelled, stats)
			}
			wantProblem(t, r.as("bob", "GET", path, ""), 404, "not-found", "")
			wantStatus(t, r.as("ann", "DELETE", path, ""), 204, spelled)
			deleted := 0
			for _, name := range []link.Name{"same", "same@go.example", "same@old.example"} {
				l, err := r.fake.Read(t.Context(), name)
				if err != nil {
					t.Fatal(err)
				}
				if !l.DeletedAt.IsZero() {
					deleted++
				}
			}
			if deleted != 1 {
				t.Errorf("%s: %d links were deleted", spelled, deleted)
			}
			wantLink(t, r.as("ann", "POST", path+"/restore", ""), 200, "same", domain)
			code := r.get(path + "/qr")
			if same := r.get("/api/links/same@" + domain + "/qr"); code.Code != 200 ||
				code.Body.String() != same.Body.String() {
				t.Errorf("%s: QR code %d", spelled, code.Code)
			}
		}
	}
	r := newRig(t, withDomains)
	token := linksInDomains(t, r)
	wantLink(t, r.as(token, "GET", "/api/links/nobodys@GO.example", ""), 200, "nobodys",
		"go.example")
	wantProblem(t, r.as(token, "GET", "/api/links/nobodys", ""), 404, "not-found", "")
	if a, b := r.get("/api/links/same/qr").Body.String(),
		r.get("/api/links/same@go.example/qr").Body.String(); a == b {
		t.Error("QR codes of two domains are the same")
	}
}

// A name that is none is a 404, and so is one of a domain or in a domain that has no such link.
func TestWrongDomainsInPaths(t *testing.T) {
	r := newRig(t, withDomains)
	linksInDomains(t, r)
	wrong := []string{"same@@go.example", "@go.example", "same@go.example@", "a.b@go.example",
		"api@go.example", "same@go.example@old.example"}
	for _, no := range noDomains {
		wrong = append(wrong, "same@"+no)
	}
	calls := 0
	missing := []string{"same@other.example", "same@go.example:8080", "x@go.example"}
	for i, name := range slices.Concat(wrong, missing) {
		path := "/api/links/" + url.PathEscape(name)
		r.as("ann", "GET", "/api/me", "")
		calls = r.fake.Calls()
		for method, suffix := range map[string]string{"GET": "", "DELETE": "", "PATCH": "",
			"HEAD": "/stats", "POST": "/restore"} {
			if w := r.as("ann", method, path+suffix, `{}`); method == "HEAD" && w.Code != 404 {
				t.Errorf("%q: HEAD is %d", name, w.Code)
			} else if method != "HEAD" {
				wantProblem(t, w, 404, "not-found", "")
			}
		}
		if i > len(wrong) { // a code of a domain that there is needs no link
			continue
		}
		wantProblem(t, r.get(path+"/qr"), 404, "not-found", "")
		if i < len(wrong) && r.fake.Calls() != calls {
			t.Errorf("%q was looked up", name)
		}
	}
	// No alias has an @ in a short URL.
	calls = r.fake.Calls()
	for _, target := range []string{"/same@go.example", "/same%40go.example", "/same@go.example+"} {
		for _, host := range []string{"tiney.to", "go.example"} {
			wantProblem(t, r.get(target, "Host", host), 404, "not-found", "")
		}
	}
	if r.fake.Calls() != calls {
		t.Error("an alias with @ was looked up")
	}
}

// A link stays in its domain.
func TestDomainIsNotEdited(t *testing.T) {
	r := newRig(t, withDomains)
	linksInDomains(t, r)
	for _, value := range []string{`"go.example"`, `"tiney.to"`, `null`, `""`, `7`, `{}`} {
		for _, name := range []string{"same", "same@go.example"} {
			wantProblem(t, r.as("ann", "PATCH", "/api/links/"+name,
				`{"title":"T","domain":`+value+`}`), 400, "domain", "domain")
		}
	}
	if w := r.as("ann", "GET", "/api/links/same", ""); members(t, w)["title"] != "null" {
		t.Errorf("it was edited: %s", w.Body)
	}
}

func TestClaimsInDomains(t *testing.T) {
	r := newRig(t, withDomains)
	token, hash := claimToken(t)
	for _, name := range []link.Name{"a", "a@go.example", "b@go.example", "a@old.example"} {
		r.fake.Put(link.Link{Name: name, LongURL: "https://example.com/" + string(name),
			ClaimHash: hash})
	}
	var claims, want []string
	for _, c := range []struct{ alias, domain, shown, result string }{
		{"a", `"Go.Example."`, "go.example", "claimed"},
		{"a", `"go.example:443"`, "go.example", "already yours"},
		{"a", `null`, "tiney.to", "claimed"},
		{"a", `"TINEY.TO"`, "tiney.to", "already yours"},
		{"b", `"tiney.to"`, "tiney.to", "gone"},
		{"b", `"b\u00fccher.example"`, "xn--bcher-kva.example", "gone"},
		{"b", `"other.example"`, "other.example", "gone"},
		{"b", `""`, "", "gone"},
		{"b", `"go example"`, "go example", "gone"},
		{"a", `"old.example"`, "old.example", "gone"}, // unknown, like any that is not configured
		{"b@go.example", `null`, "tiney.to", "gone"},
		{"b", `"go.example"`, "go.example", "claimed"},
	} {
		claims = append(claims, fmt.Sprintf(`{"alias":"%s","domain":%s,"claimToken":"%s"}`, c.alias,
			c.domain, token))
		want = append(want, fmt.Sprintf(`{"alias":"%s","domain":"%s","result":"%s"}`, c.alias,
			c.shown, c.result))
	}
	w := r.as("ann", "POST", "/api/claims", `{"claims":[`+strings.Join(claims, ",")+`]}`)
	wantJSON(t, w, `{"results":[`+strings.Join(want, ",")+`]}`)
	wantProblem(t, r.as("ann", "POST", "/api/claims", `{"claims":[{"alias":"a","domain":7}]}`), 400,
		"body", "claims.0.domain")
	wantProblem(t, r.as("ann", "GET", "/api/links/a@old.example", ""), 404, "not-found", "")
}

func TestListsOfADomain(t *testing.T) {
	r := newRig(t, withDomains)
	linksInDomains(t, r)
	r.fake.Put(link.Link{Name: "more@go.example", LongURL: "https://example.com/more", Owner: "ann",
		CreatedAt: r.clock.Now()})
	listed := func(query string) string {
		t.Helper()
		w := r.as("ann", "GET", "/api/links?"+query, "")
		var names []string
		for _, m := range namesIn.FindAllStringSubmatch(w.Body.String(), -1) {
			names = append(names, m[1]+"@"+m[2])
		}
		slices.Sort(names)
		if w.Code != 200 {
			t.Errorf("%s: got %d %s", query, w.Code, w.Body)
		}
		return strings.Join(names, " ")
	}
	const all = "more@go.example same@go.example same@old.example same@tiney.to"
	if got := listed(""); got != all {
		t.Errorf("all: got %s", got)
	}
	for query, want := range map[string]string{
		"domain=tiney.to":                               "same@tiney.to",
		"domain=Tiney.To.:443":                          "same@tiney.to",
		"domain=go.example":                             "more@go.example same@go.example",
		"domain=GO.example%3A80&tag=t":                  "same@go.example",
		"domain=go.example&q=more":                      "more@go.example",
		"domain=go.example:8080":                        "",
		"domain=old.example":                            "same@old.example",
		"domain=never.example":                          "",
		"domain=b%C3%BCcher.example":                    "",
		"q=go.example/same":                             "same@go.example",
		"q=https://GO.example/same&domain=go.example":   "same@go.example",
		"q=https://go.example/same&domain=tiney.to":     "",
		"q=https://go.example/same/%3Futm=1%23x":        "same@go.example",
		"q=tiney.to/same":                               "same@tiney.to",
		"q=http://go.example:8080/same":                 "",
		"q=same&domain=old.example&state=live&limit=1":  "same@old.example",
		"q=https://go.example/same&domain=go.example:1": "",
	} {
		if got := listed(query); got != want {
			t.Errorf("%s: got %s, want %s", query, got, want)
		}
	}
	// A cursor is that of one domain, or of all of them.
	cursors := map[string]string{}
	for _, domain := range []string{"", "go.example"} {
		query := url.Values{"limit": {"1"}}
		if domain != "" {
			query.Set("domain", domain)
		}
		_, cursors[domain] = r.list("ann", query)
	}
	if cursors[""] == "" || cursors["go.example"] == "" {
		t.Fatalf("cursors %q", cursors)
	}
	query := "domain=Go.Example.&cursor=" + cursors["go.example"]
	if got := listed(query); got != "same@go.example" {
		t.Errorf("the next page: %s", got)
	}
	for query, field := range map[string]string{
		"cursor=" + cursors["go.example"]:                        "cursor",
		"domain=tiney.to&cursor=" + cursors["go.example"]:        "cursor",
		"domain=go.example&cursor=" + cursors[""]:                "cursor",
		"domain=tiney.to&cursor=" + cursors[""]:                  "cursor",
		"domain=go.example:8080&cursor=" + cursors["go.example"]: "cursor",
		"domain=go.example&domain=go.example":                    "domain",
	} {
		wantProblem(t, r.as("ann", "GET", "/api/links?"+query, ""), 400, "parameter", field)
	}
	for _, no := range noDomains {
		for _, path := range []string{"/api/links", "/api/export", "/api/stats/top",
			"/api/stats/links"} {
			t.Run(path+no, func(t *testing.T) {
				wantProblem(t, r.as("ann", "GET", path+"?domain="+url.QueryEscape(no), ""), 400,
					"parameter", "domain")
			})
		}
		wantProblem(t, r.as("ann", "POST", "/api/import?domain="+url.QueryEscape(no), ""), 400,
			"parameter", "domain")
	}
}

func TestExportsOfADomain(t *testing.T) {
	skipIfRaced(t)
	synctest.Test(t, testExportsOfADomain) // however busy the machine is
}

func testExportsOfADomain(t *testing.T) {
	r := newRig(t, withDomains)
	linksInDomains(t, r)
	now := r.clock.Now()
	for i := range 1001 {
		r.fake.Put(link.Link{Name: link.Name(fmt.Sprintf("many%d@go.example", i)),
			LongURL: "https://example.com/many", Owner: "ann", CreatedAt: now})
	}
	for _, test := range []struct {
		who, query string
		links      int
		start      string // of their short URLs
	}{
		{"ann", "", 1004, "https://"},
		{"ann", "domain=tiney.to", 1, "https://tiney.to/"},
		{"ann", "domain=GO.example.", 1002, "https://go.example/"},
		{"ann", "domain=old.example", 1, "https://old.example/"},
		{"ann", "domain=never.example", 0, ""},
		{"admin", "owner=*&domain=tiney.to", 1, "https://tiney.to/"},
		{"admin", "owner=*&domain=go.example", 1003, "https://go.example/"},
		{"admin", "owner=*&domain=old.example", 1, "https://old.example/"},
		{"admin", "owner=*&domain=never.example", 0, ""},
		{"admin", "owner=*", 1005, "https://"},
	} {
		lines, _ := r.exported(test.who, "/api/export?"+test.query)
		if len(lines) != test.links {
			t.Errorf("%+v: %d links", test, len(lines))
		}
		for _, line := range lines {
			if !strings.Contains(line, `"shortUrl":"`+test.start) {
				t.Fatalf("%+v: %s", test, line)
			}
		}
	}
	// An export says the domain of each link, and an import makes the link there again.
	lines, _ := r.exported("ann", "/api/export?format=csv&domain=old.example")
	other := newRig(t, withDomains)
	if got := other.imports("admin", "?format=csv", strings.Join(lines, "")); !slices.Equal(got,
		[]string{"2 201 same"}) {
		t.Errorf("imported %q from %q", got, lines)
	}
	wantLink(t, other.as("ann", "GET", "/api/links/same@old.example", ""), 200, "same",
		"old.example")
	// A cursor is that of one domain, or of all of them.
	first := r.as("ann", "GET", "/api/export?domain=go.example", "")
	target, err := url.Parse(next(first))
	if err != nil || target.Query().Get("domain") != "go.example" {
		t.Fatalf("next is %v, %v", target, err)
	}
	cursor := target.Query().Get("cursor")
	for _, query := range []string{"cursor=" + cursor, "domain=tiney.to&cursor=" + cursor} {
		wantProblem(t, r.as("ann", "GET", "/api/export?"+query, ""), 400, "parameter", "cursor")
	}
	lines, _ = r.exported("ann", "/api/export?domain=Go.Example&cursor="+cursor)
	if len(lines) != 2 {
		t.Errorf("the rest has %d links", len(lines))
	}
}

// Top links and the statistics of several links can be those of one domain.
func TestStatisticsOfADomain(t *testing.T) {
	r := newRig(t, withDomains)
	linksInDomains(t, r)
	for _, name := range []link.Name{"same", "same@go.example", "same@old.example"} {
		l, err := r.fake.Read(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		r.clicks.Click(l, clicker(r.clock.Now(), "192.0.2.1", "a.example"))
		if l.Name == "same@go.example" {
			r.clicks.Click(l, clicker(r.clock.Now(), "192.0.2.1", "a.example"))
		}
	}
	for query, want := range map[string]string{
		"":                      "same@go.example same@tiney.to same@old.example",
		"&domain=TINEY.TO":      "same@tiney.to",
		"&domain=go.example.":   "same@go.example",
		"&domain=old.example":   "same@old.example",
		"&domain=never.example": "",
	} {
		w := r.as("ann", "GET", "/api/stats/top?window=30d"+query, "")
		var names []string
		for _, m := range namesIn.FindAllStringSubmatch(w.Body.String(), -1) {
			names = append(names, m[1]+"@"+m[2])
			if m[3] != shortURLs[m[2]]+m[1] {
				t.Errorf("short URL %s", m[3])
			}
		}
		if got := strings.Join(names, " "); w.Code != 200 || got != want {
			t.Errorf("%s: got %d %s, want %s", query, w.Code, w.Body, want)
		}
	}
	for query, want := range map[string]string{
		"":                      `{"owner":"ann","from"`,
		"?domain=Go.Example":    `{"domain":"go.example","owner":"ann","from"`,
		"?domain=old.example":   `{"domain":"old.example","owner":"ann","from"`,
		"?domain=tiney.to&tag=": `{"domain":"tiney.to","owner":"ann","from"`,
		"?domain=never.example": `{"domain":"never.example","owner":"ann","from"`,
	} {
		w := r.as("ann", "GET", "/api/stats/links"+query, "")
		total := map[string]string{"": "4", "?domain=Go.Example": "2", "?domain=never.example": "0"}
		counted := members(t, w)["clicks"]
		if w.Code != 200 || !strings.HasPrefix(w.Body.String(), want) ||
			total[query] != "" && counted != total[query] {
			t.Errorf("%s: got %d %s", query, w.Code, w.Body)
		}
	}
	wantProblem(t, r.as("ann", "GET", "/api/stats/links?domain=go.example&interval=hour", ""), 400,
		"parameter", "interval")
	w := r.as("ann", "GET", "/api/stats/clicks?alias=same@GO.example,same,same@go.example:443,"+
		"same@old.example,same@never.example,same@a@b,same@tiney.to", "")
	var names []string
	for _, m := range namesWithClicks.FindAllStringSubmatch(w.Body.String(), -1) {
		names = append(names, m[1]+"@"+m[2]+" "+m[3])
	}
	if got := strings.Join(names, ", "); got != "same@go.example 2, same@tiney.to 1, "+
		"same@old.example 1" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

// importedInto is imports, with the domain of each line that has one.
func (r *rig) importedInto(who, query, file string) (results []string) {
	r.t.Helper()
	for _, i := range r.importFile(who, query, file) {
		text := i.String()
		if i.Problem == nil {
			text += " " + i.Domain
		}
		results = append(results, text)
	}
	return results
}

func TestImportIntoDomains(t *testing.T) {
	const target = "https://example.com/"
	row := func(alias, domain string) string {
		return line(alias, target+alias, `,"domain":`+domain)
	}
	file := row("a", `"Go.Example."`) + row("b", `null`) + row("c", `""`) +
		row("d", `"old.example"`) + row("e", `"go example"`) + row("a", `"tiney.to"`) +
		line("f", target, "") + row("a", `"go.example:443"`)
	for who, want := range map[string][]string{
		"ann": {"1 201 a go.example", "2 201 b tiney.to", "3 201 c tiney.to",
			"4 400 d domain domain", "5 400 e domain domain", "6 201 a tiney.to",
			"7 201 f tiney.to", "8 200 a go.example"},
		"admin": {"1 201 a go.example", "2 201 b tiney.to", "3 201 c tiney.to",
			"4 201 d old.example", "5 400 e domain domain", "6 201 a tiney.to", "7 201 f tiney.to",
			"8 200 a go.example"},
	} {
		for _, query := range []string{"?dryRun=true", "?format=ndjson"} {
			r := newRig(t, withDomains)
			r.wantResults(who+query, r.importedInto(who, query, file), want...)
		}
	}
	// The parameter is for all lines.
	r := newRig(t, withDomains)
	r.wantResults("into one domain", r.importedInto("ann", "?domain=GO.EXAMPLE:8080", file),
		"1 201 a go.example:8080", "2 201 b go.example:8080", "3 201 c go.example:8080",
		"4 201 d go.example:8080", "5 201 e go.example:8080", "6 200 a go.example:8080",
		"7 201 f go.example:8080", "8 200 a go.example:8080")
	r.wantResults("into the default domain", r.importedInto("ann", "?domain=tiney.to", file)[:2],
		"1 201 a tiney.to", "2 201 b tiney.to")
	for _, domain := range []string{"other.example", "old.example"} {
		wantProblem(t, r.as("ann", "POST", "/api/import?domain="+domain, file), 400, "parameter",
			"domain")
	}
	wantProblem(t, r.as("ann", "POST", "/api/import?domain=tiney.to&domain=tiney.to", file), 400,
		"parameter", "domain")
	// Other programs had domains of their own.
	for format, other := range map[string]string{
		"golink": `{"Short":"g","Long":"https://example.com/g"}`,
		"shlink": "shortCode,shortUrl,longUrl,domain\n" +
			"g,https://old.example/g,https://example.com/g,old.example\n",
		"dub": "link,url\nhttps://old.example/g,https://example.com/g\n",
	} {
		for _, who := range []string{"ann", "admin"} {
			r := newRig(t, withDomains)
			got := r.importedInto(who, "?format="+format, other)
			if len(got) != 1 || !strings.HasSuffix(got[0], " 201 g tiney.to") {
				t.Errorf("%s: got %q", format, got)
			}
			got = r.importedInto(who, "?domain=go.example&format="+format, other)
			if len(got) != 1 || !strings.HasSuffix(got[0], " 201 g go.example") {
				t.Errorf("%s into a domain: got %q", format, got)
			}
		}
	}
}
