package functions_test

import (
	"context"
	"encoding/xml"
	"html"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/link"
)

// wantPage checks the headers of a page, and that it loads nothing from elsewhere and nothing that
// does not exist. It may call the origins. Each origin has a space in front.
func wantPage(t *testing.T, w *httptest.ResponseRecorder, origins ...string) {
	t.Helper()
	referrers := "no-referrer"
	if strings.Contains(w.Body.String(), ` method="post"`) { // its origin has to be sent
		referrers = "same-origin"
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Cache-Control": "no-store",
		"X-Content-Type-Options": "nosniff", "Referrer-Policy": referrers,
		"Cross-Origin-Opener-Policy": "same-origin",
		"Content-Length":             strconv.Itoa(w.Body.Len()),
		"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; " +
			"img-src 'self' data:; connect-src 'self'" + strings.Join(origins, "") +
			"; manifest-src 'self'" +
			"; form-action 'self'; " +
			"base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; " +
			"trusted-types 'none'",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if body := w.Body.String(); !strings.HasPrefix(body, "<!doctype html>\n") ||
		!strings.HasSuffix(body, "</html>\n") || strings.Contains(body, `src="http`) {
		t.Errorf("got %s", body)
	}
}

const multipartForm = `--b
Content-Disposition: form-data; name="longUrl"

https://example.com/
--b--
`

func TestHome(t *testing.T) {
	r := newRig(t)
	r.fake.Fail(link.ErrUnavailable) // it asks no store
	w := r.get("/")
	wantPage(t, w)
	if w.Code != 200 || !strings.Contains(w.Body.String(), "https://tiney.to/api/shorten") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	// without scripts, too
	filled := r.get("/?longUrl=https://example.com/%3Fa%3D1%26b%22").Body.String()
	if !strings.Contains(filled, `value="https://example.com/?a=1&amp;b&#34;"`) {
		t.Errorf("it does not have the long URL of its query: %s", filled)
	}
	// Nothing else counts, however long.
	if page := r.do("GET", "/", strings.ReplaceAll(multipartForm, "\n", "\r\n"), "Content-Type",
		"multipart/form-data; boundary=b").Body.String(); page != w.Body.String() {
		t.Errorf("a body made it %s", page)
	}
	file := regexp.MustCompile(`="\./(manage/[\w.]+(?:css|js))"`)
	for _, m := range file.FindAllStringSubmatch(w.Body.String(), -1) {
		upper := "/MANAGE" + strings.TrimPrefix(m[1], "manage")
		for _, target := range []string{"/" + m[1], upper} {
			a := r.get(target)
			if a.Code != 200 ||
				a.Header().Get("Cache-Control") != "public, max-age=31536000, immutable" ||
				a.Header().Get("X-Content-Type-Options") != "nosniff" ||
				!strings.HasPrefix(a.Header().Get("Content-Type"), "text/") || a.Body.Len() == 0 {
				t.Errorf("%s: got %d %v", target, a.Code, a.Header())
			}
		}
		plain := r.get("/" + m[1]).Body.Len()
		for accepted, is := range map[string]bool{"gzip, deflate, br": true, "br;q=1.0, GZIP": true,
			"": false, "identity": false, "gzip;q=0": false, "xgzip": false} {
			a := r.do("GET", "/"+m[1], "", "Accept-Encoding", accepted)
			if got := a.Header().Get("Content-Encoding") == "gzip" && a.Body.Len() < plain/2+200; got != is ||
				a.Header().Get("Vary") != "Accept-Encoding" ||
				a.Header().Get("Content-Length") != strconv.Itoa(a.Body.Len()) {
				t.Errorf("%s for %q: %d of %d bytes, %v", m[1], accepted, a.Body.Len(), plain,
					a.Header())
			}
		}
		other := regexp.MustCompile(`[0-9a-f]{12}`).ReplaceAllString(m[1], "0123456789ab")
		if a := r.get("/" + other); a.Code != 200 || a.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s, as another build names it: got %d %v", other, a.Code, a.Header())
		}
	}
	for _, target := range []string{"/manage//", "/manage/home.js", "/manage/home.html",
		"/manage/../home.go", "/manage/x/home.0123456789ab.js"} {
		wantProblem(t, r.get(target), 404, "not-found", "")
	}
}

// Browsers without scripts send a form. It follows the rules of shorten, and counts like shorten.
func TestForm(t *testing.T) {
	const longURL = `https://example.com/"><img src=x onerror=alert(1)>`
	r := newRig(t)
	post := func(form url.Values) *httptest.ResponseRecorder {
		t.Helper()
		w := r.do("POST", "/", form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
		wantPage(t, w)
		return w
	}
	short := regexp.MustCompile(`id="short" href="(https://tiney\.to/(\w+))"`)
	for i, test := range []struct {
		form   url.Values
		status int
		says   string
	}{
		{url.Values{"longUrl": {"  https://example.com/a "}, "alias": {""},
			"expiresInSeconds": {"3600"}}, 201, "Your short link"},
		{url.Values{"longUrl": {"https://example.com/a"}}, 200, "had a link already"},
		{url.Values{"longUrl": {"example.com/a"}, "alias": {" mine "}}, 201, "Your short link"},
		{url.Values{"longUrl": {"https://example.com/b"}, "alias": {"mine"}}, 409,
			`id="alias-error">There is a link with this alias`},
		{url.Values{"longUrl": {"https://example.com/b"}, "alias": {"a b"}}, 400,
			`id="alias-error">An alias has`},
		{url.Values{"longUrl": {"https://example.com/b"}, "expiresInSeconds": {"59"}}, 400,
			`id="life-error">The lifetime must be`},
		{url.Values{"longUrl": {"https://example.com/b"}, "expiresInSeconds": {"x"}}, 400,
			`id="life-error">The lifetime must be`},
		{url.Values{}, 400, `id="url-error">The URL is missing`},
		{url.Values{"longUrl": {longURL}}, 400, `id="url-error">The URL contains white space`},
		{url.Values{"longUrl": {"https://example.com/\xff"}}, 400,
			`id="url-error">The URL is not valid UTF-8`},
		{url.Values{"longUrl": {"ftp://example.com/"}}, 400,
			`id="url-error">The URL must start with http`},
		{url.Values{"longUrl": {"mailto:ann@example.com"}}, 400,
			`id="url-error">The URL must start with http`},
		{url.Values{"longUrl": {"ann@example.com:8080"}}, 400,
			`id="url-error">The URL contains a user name`},
		{url.Values{"longUrl": {"“example.com/a”."}, "alias": {"\u200b“quoted”"}}, 201,
			"Your short link"},
		{url.Values{"longUrl": {"https//example.com/a"}}, 400,
			`id="url-error">The URL must start with http`},
		{url.Values{"longUrl": {"https://https//example.com/a"}}, 400,
			`id="url-error">The URL has its scheme twice`},
		{url.Values{"longUrl": {"https://“example.com”/a"}}, 400,
			`id="url-error">The URL&#39;s host contains a mark`},
	} {
		w := post(test.form)
		body := w.Body.String()
		if w.Code != test.status || !strings.Contains(body, test.says) {
			t.Errorf("%d: got %d %s, want %d with %s", i, w.Code, body, test.status, test.says)
		}
		m := short.FindStringSubmatch(body)
		switch {
		case test.status < 300 && (m == nil || !strings.Contains(body, `src="api/links/`+m[2]+
			`/qr"`)):
			t.Errorf("%d: there is no link or no QR code in %s", i, body)
		case test.status > 300 && (m != nil || !strings.Contains(body, `value="`+
			html.EscapeString(strings.ToValidUTF8(test.form.Get("longUrl"), "\uFFFD"))+`"`)):
			t.Errorf("%d: it does not have what was typed: %s", i, body)
		}
		if m != nil && r.get("/"+m[2]).Header().Get("Location") != "https://example.com/a" {
			t.Errorf("%d: %s does not lead there", i, m[1])
		}
	}
	r.wantMetrics(map[string]float64{"shorten.created": 3, "shorten.deduplicated": 1,
		"shorten.rejected": 13, "redirect.found": 4})

	r.fake.Put(link.Link{Name: "off", LongURL: "https://example.com/off", Disabled: true})
	if w := post(url.Values{"longUrl": {"https://example.com/off"}}); w.Code != 403 ||
		!strings.Contains(w.Body.String(), "<strong>This URL&#39;s link is disabled</strong>") {
		t.Errorf("disabled: got %d %s", w.Code, w.Body)
	}
	r.fake.Fail(link.ErrUnavailable)
	w := post(url.Values{"longUrl": {"https://example.com/new"}, "alias": {"kept"},
		"expiresInSeconds": {"86400"}})
	if body := w.Body.String(); w.Code != 503 || w.Header().Get("Retry-After") != "5" ||
		!strings.Contains(body, "<strong>Try again in a moment</strong>") ||
		!strings.Contains(body, `value="https://example.com/new"`) ||
		!strings.Contains(body, `value="kept"`) ||
		!strings.Contains(body, `value="86400" selected>`) {
		t.Errorf("storage is down: got %d %v %s", w.Code, w.Header(), body)
	}
	if !strings.Contains(r.log.String(), link.ErrUnavailable.Error()) {
		t.Errorf("the log does not say why: %s", r.log)
	}

	wantProblem(t, r.do("POST", "/", `{"longUrl":"https://example.com/"}`), 415, "media-type", "")
	for _, body := range []string{"longUrl=%zz", "a;b"} {
		wantProblem(t, r.do("POST", "/", body, "Content-Type", "application/x-www-form-urlencoded"),
			400, "body", "")
	}
	wantProblem(t, r.do("POST", "/", strings.Repeat("x", 32<<10+1), "Content-Type",
		"application/x-www-form-urlencoded"), 413, "body-too-large", "")
}

// The home page of another domain makes links of that domain. The page of an unknown alias offers
// to make it in its domain. People sign in at the default domain.
func TestPagesOfDomains(t *testing.T) {
	r := newRig(t, withDomains, func(c *functions.Config) {
		c.Rules.ExtraSchemes = []string{"mailto", "tel"}
	})
	form := func(host string, header ...string) *httptest.ResponseRecorder {
		return r.do("POST", "/", "longUrl=example.com&alias=mine", append([]string{"Host", host,
			"Content-Type", "application/x-www-form-urlencoded"}, header...)...)
	}
	wantStatus(t, form("go.example", "Origin", "https://evil.example"), 403, "another website's")
	w := form("go.example", "Origin", "https://go.example")
	wantPage(t, w)
	if l, err := r.fake.Read(t.Context(), "mine@go.example"); err != nil || w.Code != 201 ||
		l.LongURL != "https://example.com" ||
		!strings.Contains(w.Body.String(), `src="api/links/mine@go.example/qr"`) {
		t.Errorf("the form makes %+v (%v): %d %s", l, err, w.Code, w.Body)
	}
	for _, test := range []struct{ host, target, want string }{
		{"tiney.to", "/", `data-default="tiney.to" data-domain="" data-main="" ` +
			`data-schemes="mailto tel"`},
		{"go.example", "/", `data-domain="go.example" data-main="https://tiney.to"`},
		{"tiney.to", "/mine", `href="./manage#/new?alias=mine">Make this link`},
		{"go.example", "/nobody",
			`href="https://tiney.to/manage#/new?alias=nobody&amp;domain=go.example">Make this`},
		{"go.example", "/no.alias", ` hidden>Make this link`},
		{"tiney.to", "/mine+", ` hidden>Make this link`},
		{"go.example", "/mine+", `src="./api/links/mine@go.example/qr"`},
		{"tiney.to", "/manage", `data-default="tiney.to" data-schemes="mailto tel"`},
	} {
		w := r.get(test.target, "Host", test.host, "Accept", "text/html")
		wantPage(t, w)
		if !strings.Contains(w.Body.String(), test.want) {
			t.Errorf("%s%s lacks %s: %s", test.host, test.target, test.want, w.Body)
		}
	}
	w = r.get("/manage", "Host", "go.example")
	if to := w.Header().Get("Location"); w.Code != 302 || to != "https://tiney.to/manage" {
		t.Errorf("its /manage is %d %s", w.Code, to)
	}
	r = newRig(t, withDomains, func(c *functions.Config) { c.DomainsOwnersOnly = true })
	wantStatus(t, form("go.example"), 401, "owners only")
	wantStatus(t, form("tiney.to"), 201, "owners only, the default domain")
}

// No other website can make links through the browsers of its visitors. Our own form and programs
// can make links.
func TestFormsOfOtherWebsites(t *testing.T) {
	for _, test := range []struct {
		base   string
		header http.Header
		ours   bool
	}{
		{"https://tiney.to", nil, true}, // curl
		{"https://tiney.to", http.Header{"Sec-Fetch-Site": {"same-origin"}}, true},
		{"https://tiney.to", http.Header{"Sec-Fetch-Site": {"none"}}, true},
		{"https://tiney.to", http.Header{"Sec-Fetch-Site": {"same-origin"},
			"Origin": {"http://127.0.0.1:7071"}}, true},
		{"https://tiney.to", http.Header{"Sec-Fetch-Site": {"cross-site"},
			"Origin": {"https://tiney.to"}}, false},
		{"https://tiney.to", http.Header{"Sec-Fetch-Site": {"same-site"}}, false},
		{"https://tiney.to", http.Header{"Sec-Fetch-Site": {"Same-Origin"}}, false},
		{"https://tiney.to", http.Header{"Sec-Fetch-Site": {""}}, false},
		{"https://tiney.to", http.Header{"Sec-Fetch-Site": {"same-origin", "cross-site"}}, false},
		{"https://tiney.to", http.Header{"Sec-Fetch-Site": {"same-origin, cross-site"}}, false},
		{"https://tiney.to", http.Header{"Origin": {"https://tiney.to"}}, true},
		{"https://tiney.to", http.Header{"Origin": {"https://evil.example"}}, false},
		{"https://tiney.to", http.Header{"Origin": {"https://tiney.to:8443"}}, false},
		{"https://tiney.to", http.Header{"Origin": {"http://tiney.to"}}, false},
		// this is the name in Host
		{"https://tiney.to", http.Header{"Origin": {"https://internal.example"}}, false},
		{"https://tiney.to", http.Header{"Origin": {"http://internal.example"}}, false},
		{"https://tiney.to", http.Header{"Origin": {"null"}}, false},
		{"https://tiney.to", http.Header{"Origin": {""}}, false},
		{"https://tiney.to", http.Header{"Origin": {"https://tiney.to", "https://evil.example"}},
			false},
		{"https://tiney.to", http.Header{"Origin": {"https://tiney.to, https://evil.example"}},
			false},
		{"HTTP://Bücher.example:80/go/", http.Header{"Origin": {"http://xn--bcher-kva.example"}},
			true},
		{"HTTP://Bücher.example:80/go/", http.Header{"Origin": {"http://bücher.example:80"}},
			false},
	} {
		r := newRig(t, func(c *functions.Config) { c.Rules.Base, _ = link.ParseBase(test.base) })
		req := httptest.NewRequest("POST", "http://internal.example/",
			strings.NewReader("longUrl=https%3A%2F%2Fexample.com"))
		req.Header = http.Header{"Content-Type": {"application/x-www-form-urlencoded"},
			"Accept": {"text/html"}}
		maps.Copy(req.Header, test.header)
		w := r.send(req)
		if test.ours && w.Code != 201 || !test.ours && (w.Code != 403 || r.fake.Calls() != 0 ||
			!strings.Contains(w.Body.String(), "another website&#39;s</h1>")) {
			t.Errorf("%v, %v: got %d %s", test.base, test.header, w.Code, w.Body)
		}
	}
	r := newRig(t)
	wantProblem(t, r.do("POST", "/", "not read", "Sec-Fetch-Site", "cross-site"), 403, "cross-site",
		"")
	r.wantMetrics(map[string]float64{"shorten.rejected": 1})
}

func TestFormForOwnersOnly(t *testing.T) {
	r := newRig(t, func(c *functions.Config) { c.OwnersOnly = true })
	home := r.get("/")
	if !strings.Contains(home.Body.String(), `aria-label="New short link" hidden>`) {
		t.Errorf("anybody is shown the form: %s", home.Body)
	}
	// Credentials count only below /api/.
	w := r.do("POST", "/", "longUrl=https://example.com/", "Content-Type",
		"application/x-www-form-urlencoded", "Authorization", "Bearer "+adminKey)
	wantPage(t, w)
	if w.Code != 401 || w.Header().Get("WWW-Authenticate") != "Bearer" || r.fake.Calls() != 0 {
		t.Errorf("got %d %v, %d calls", w.Code, w.Header(), r.fake.Calls())
	}
}

// Pages refer to everything by relative paths, whatever path a proxy in front puts before theirs.
func TestProblemPagesFindTheirAssets(t *testing.T) {
	r := newRig(t, func(c *functions.Config) {
		c.Rules.Base, _ = link.ParseBase("https://example.com/go")
	})
	for target, root := range map[string]string{"/nobody": "./", "/nobody+": "./",
		"/a/b/c": "../../", "/a%2Fb": "./", "/manage/x": "../"} {
		w := r.get(target, "Accept", "text/html")
		wantPage(t, w)
		if body := w.Body.String(); w.Code != 404 ||
			!strings.Contains(body, `rel="stylesheet" href="`+root+`manage/style.`) ||
			!strings.Contains(body, `class="button" href="`+root+`">`) {
			t.Errorf("%s: got %d %s", target, w.Code, body)
		}
	}
}

// The page for a path of thousands of slashes is no longer than others. It could be, because a page
// repeats its reference to the root.
func TestADeepPathMakesNoLongPage(t *testing.T) {
	r := newRig(t)
	page := func(target string) string {
		w := r.get(target, "Accept", "text/html")
		wantPage(t, w)
		return w.Body.String()
	}
	deep, flat := page(strings.Repeat("/", 30_000)), page("/nobody")
	if len(deep) > len(flat)+100 || !strings.Contains(deep, `href="/manage/style.`) {
		t.Errorf("a page of %d bytes, and %d for a short path:\n%s", len(deep), len(flat),
			deep[:2000])
	}
}

type provider struct {
	functions.Callers
	signIn access.SignIn
}

func (p provider) SignIn(context.Context) access.SignIn { return p.signIn }

func TestManage(t *testing.T) {
	r := newRig(t)
	r.fake.Fail(link.ErrUnavailable) // it asks no store
	for target, root := range map[string]string{"/manage": "./", "/MANAGE": "./", "/manage/": "../",
		"/manage?code=x&state=y": "./"} {
		w := r.get(target)
		wantPage(t, w)
		body := w.Body.String()
		for _, want := range []string{`data-issuer="" data-client="" data-scopes=""`,
			`data-base="https://tiney.to"`, `rel="stylesheet" href="` + root + `manage/manage.`,
			`<script type="module" src="` + root + `manage/manage.`, "Managing needs JavaScript",
			`<meta name="robots" content="noindex">`} {
			if w.Code != 200 || !strings.Contains(body, want) {
				t.Errorf("%s: got %d, without %s", target, w.Code, want)
			}
		}
	}
	wantStatus(t, r.do("HEAD", "/manage", ""), 200, "HEAD")
	wantProblem(t, r.do("POST", "/manage", ""), 405, "method", "")

	r = newRig(t, func(c *functions.Config) {
		c.Callers = provider{c.Callers, access.SignIn{Issuer: "https://login.example.com/x",
			ClientID: `a"b`, Scopes: "openid x&y", Origins: []string{"https://login.example.com",
				"https://tokens.example.com"}}}
	})
	w := r.get("/manage")
	wantPage(t, w, " https://login.example.com", " https://tokens.example.com")
	if !strings.Contains(w.Body.String(),
		`data-issuer="https://login.example.com/x" data-client="a&#34;b" `+
			`data-scopes="openid x&amp;y"`) {
		t.Errorf("got %s", w.Body)
	}
	wantPage(t, r.get("/")) // no other page may call it
}

// Browsers open an alias of the domain that was asked.
func TestOpenSearch(t *testing.T) {
	r := newRig(t, withDomains, func(c *functions.Config) { c.SiteName = "Müller & Söhne, Links" })
	for host, base := range map[string]string{"tiney.to": "https://tiney.to",
		"go.example": "https://go.example"} {
		w := r.get("/opensearch.xml", "Host", host)
		var got struct {
			ShortName string
			URL       struct {
				Template string `xml:"template,attr"`
			} `xml:"Url"`
		}
		if err := xml.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 ||
			w.Header().Get("Content-Type") != "application/opensearchdescription+xml" ||
			got.ShortName != "Müller & Söhne, " || got.URL.Template != base+"/{searchTerms}" {
			t.Errorf("%s: got %d %v %s, %v", host, w.Code, w.Header(), w.Body, err)
		}
	}
	if home := r.get("/").Body.String(); !strings.Contains(home, `href="opensearch.xml"`) {
		t.Error("the home page does not name it")
	}
}
