package e2e

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/teststore"
	"tiney/internal/testing/testutil"
)

// exchange is a request and the response that it must get.
type exchange struct {
	name, method, target, body string
	headers                    []string
	status                     int
	contentType, contains      string
	location                   string
	// hostStatus is the status of the host's own response, which has no body, if the host does not
	// pass the request to the app.
	hostStatus int
}

const (
	page    = "text/html; charset=utf-8"
	problem = "application/problem+json"
	browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	good    = `{"longUrl":"https://example.com/?a=1&a=2#<x>","expiresInSeconds":3600}`
)

var form = []string{"Content-Type", "application/x-www-form-urlencoded"}

// exchanges are made in this order: the second shorten of a URL finds the link of the first one.
var exchanges = []exchange{
	{name: "home", method: "GET", target: "/", status: 200, contentType: page,
		contains: "https://tiney.to/api/shorten"},
	{name: "home, HEAD", method: "HEAD", target: "/", status: 200, contentType: page},
	{name: "home, POST", method: "POST", target: "/", status: 415, contentType: problem},
	{name: "home, OPTIONS", method: "OPTIONS", target: "/", status: 204},
	{name: "home, PUT", method: "PUT", target: "/", status: 405, contentType: problem},
	{name: "home, a form", method: "POST", target: "/",
		body: "longUrl=https%3A%2F%2Fexample.com%2Fform&alias=", headers: form, status: 201,
		contentType: page, contains: "Your short link"},
	{name: "home, a form of another website", method: "POST", target: "/",
		body: "longUrl=https%3A%2F%2Fexample.com%2Fevil", headers: append(form, "Sec-Fetch-Site",
			"cross-site"), status: 403, contentType: problem, contains: "cross-site"},
	{name: "home, the same in a browser", method: "POST", target: "/",
		body: "longUrl=https%3A%2F%2Fexample.com%2Fevil", headers: append(form, "Origin",
			"https://evil.example", "Accept", browser), status: 403, contentType: page,
		contains: "another website"},
	{name: "home, a wrong form", method: "POST", target: "/",
		body: "longUrl=ftp%3A%2F%2Fexample.com", headers: form, status: 400, contentType: page,
		contains: `value="ftp://example.com"`},
	{name: "an asset", method: "GET", target: "/manage/style.0123456789ab.css", status: 200,
		contentType: "text/css; charset=utf-8", contains: ":root {"},
	{name: "an asset in other case", method: "HEAD", target: "/Manage/home.0123456789ab.js",
		status: 200, contentType: "text/javascript; charset=utf-8"},
	{name: "no asset", method: "GET", target: "/manage/home.go",
		headers: []string{"Accept", browser}, status: 404, contentType: page,
		contains: `href="../manage/style.`},
	{name: "POST on an asset", method: "POST", target: "/manage/x", status: 405,
		contentType: problem, hostStatus: 404},
	{name: "health", method: "GET", target: "/api/health", status: 200,
		contentType: "application/json", contains: `{"status":"healthy","timestamp":"20`},
	{name: "ready", method: "GET", target: "/api/ready", status: 200,
		contentType: "application/json", contains: `"status":"ready"`},
	{name: "favicon", method: "GET", target: "/favicon.ico", status: 204},
	{name: "robots", method: "GET", target: "/robots.txt", status: 200,
		contentType: "text/plain; charset=utf-8", contains: "User-agent: *"},

	{name: "new", method: "POST", target: "/api/shorten", body: good, status: 201,
		contentType: "application/json", contains: `"longUrl":"https://example.com/?a=1&a=2#<x>"`},
	{name: "known", method: "POST", target: "/api/shorten", body: good, status: 200,
		contentType: "application/json", contains: `"shortUrl":"https://tiney.to/`},
	{name: "with charset", method: "POST", target: "/api/shorten", body: good,
		headers: []string{"Content-Type", "application/json; charset=utf-8"}, status: 200},
	{name: "forged host", method: "POST", target: "/api/shorten", body: good,
		headers: []string{"Host", "evil.example", "X-Forwarded-Host", "evil.example"}, status: 200,
		contains: `"shortUrl":"https://tiney.to/`},
	{name: "no body", method: "POST", target: "/api/shorten", status: 400, contentType: problem,
		contains: `"type":"/problems/body"`},
	{name: "not JSON", method: "POST", target: "/api/shorten", body: "x", status: 400,
		contentType: problem},
	{name: "not UTF-8", method: "POST", target: "/api/shorten",
		body: "{\"longUrl\":\"https://example.com/\xff\"}", status: 400, contentType: problem},
	{name: "unknown field", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com","Alias":"x"}`, status: 400, contentType: problem,
		contains: `"field":"Alias"`},
	{name: "bad URL", method: "POST", target: "/api/shorten", body: `{"longUrl":"http://1.2.3.08"}`,
		status: 400, contentType: problem, contains: `"field":"longUrl"`},
	{name: "our own URL", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://TINEY.to.:444/x"}`, status: 400, contentType: problem,
		contains: `"field":"longUrl"`},
	{name: "bad lifetime", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com","expiresInSeconds":59}`, status: 400,
		contentType: problem, contains: `"field":"expiresInSeconds"`},
	{name: "disabled target", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/disabled"}`, status: 403, contentType: problem,
		contains: "target-disabled"},
	{name: "blocked target", method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://A.EVIL.example.:80/"}`, status: 403, contentType: problem,
		contains: "target-blocked"},
	{name: "a form", method: "POST", target: "/api/shorten", body: "longUrl=x",
		headers: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415,
		contentType: problem},
	{name: "too large", method: "POST", target: "/api/shorten", body: strings.Repeat(" ", 16<<10) +
		good, status: 413, contentType: problem},
	{name: "GET on shorten", method: "GET", target: "/api/shorten", status: 405,
		contentType: problem},
	{name: "OPTIONS on shorten", method: "OPTIONS", target: "/api/shorten", status: 204},
	{name: "unknown path of the API, browser", method: "GET", target: "/api/nothing/here",
		headers: []string{"Accept", browser}, status: 404, contentType: problem},
	{name: "QR code", method: "GET", target: "/api/links/live/qr", status: 200,
		contentType: "image/svg+xml", contains: "<svg "},
	{name: "QR code, PNG", method: "GET", target: "/api/links/live/qr?format=png&size=100",
		status: 200, contentType: "image/png"},
	{name: "QR code, too small", method: "GET", target: "/api/links/live/qr?size=1", status: 400,
		contentType: problem, contains: `"field":"size"`},

	{name: "redirect", method: "GET", target: "/live", status: 302,
		location: "https://example.com/live?a=<b>"},
	{name: "redirect, query ignored", method: "GET", target: "/live?a=1&a=2", status: 302,
		location: "https://example.com/live?a=<b>"},
	{name: "redirect, HEAD", method: "HEAD", target: "/live", status: 302,
		location: "https://example.com/live?a=<b>"},
	{name: "redirect, browser", method: "GET", target: "/live",
		headers: []string{"Accept", browser}, status: 302,
		location: "https://example.com/live?a=<b>"},
	{name: "redirect, pasted with punctuation", method: "GET", target: "/live).", status: 302,
		location: "https://example.com/live?a=<b>"},
	{name: "preview", method: "GET", target: "/live+", status: 200, contentType: "application/json",
		contains: `"longUrl":"https://example.com/live?a=<b>"`},
	{name: "preview, browser", method: "GET", target: "/live+",
		headers: []string{"Accept", browser}, status: 200, contentType: page,
		contains: `<bdi dir="ltr">example.com</bdi>`},
	{name: "redirect to non-ASCII", method: "GET", target: "/q", status: 302,
		location: "https://xn--bcher-kva.example:8080/%C3%BC"},
	{name: "redirect of a row by another program", method: "GET", target: "/Other-1", status: 302,
		location: "https://example.com/other"},
	{name: "unknown", method: "GET", target: "/nobody", status: 404, contentType: problem,
		contains: "not-found"},
	{name: "unknown, other case", method: "GET", target: "/LIVE", status: 404,
		contentType: problem},
	{name: "unknown, browser", method: "GET", target: "/nobody",
		headers: []string{"Accept", browser}, status: 404, contentType: page,
		contains: "No such link"},
	{name: "no alias", method: "GET", target: "/a.b", status: 404, contentType: problem},
	{name: "too long for an alias", method: "GET", target: "/" + strings.Repeat("a", 101),
		status: 404, contentType: problem},
	{name: "several segments", method: "GET", target: "/a/b/c", status: 404, contentType: problem},
	{name: "several segments, browser", method: "GET", target: "/.well-known/security.txt",
		headers: []string{"Accept", browser}, status: 404, contentType: page,
		contains: "No such link"},
	{name: "empty segment", method: "GET", target: "/live//x", status: 404, contentType: problem,
		hostStatus: 404},
	{name: "empty segment before an alias", method: "GET", target: "//live", status: 404,
		contentType: problem, hostStatus: 404},
	{name: "path of the API that its route does not match", method: "GET", target: "/api/a!b",
		headers: []string{"Accept", browser}, status: 404, contentType: problem},
	{name: "path that the host cleans", method: "GET", target: "/x/../live", status: 404,
		contentType: problem, hostStatus: 302},
	{name: "path of the API in another case", method: "POST", target: "/API/Shorten", body: good,
		status: 200},
	{name: "path of the API with a slash", method: "GET", target: "/api/health/", status: 200},
	{name: "expired", method: "GET", target: "/expired", status: 410, contentType: problem,
		contains: "link-expired"},
	{name: "expired, browser", method: "GET", target: "/expired",
		headers: []string{"Accept", browser}, status: 410, contentType: page},
	{name: "disabled", method: "GET", target: "/disabled", status: 410, contentType: problem,
		contains: "link-disabled"},
	{name: "blocked", method: "GET", target: "/blocked", status: 410, contentType: problem,
		contains: "link-blocked"},
	{name: "blocked, browser", method: "GET", target: "/blocked",
		headers: []string{"Accept", browser}, status: 410, contentType: page,
		contains: "This link is blocked"},
	{name: "blocked, preview", method: "GET", target: "/blocked+", status: 410,
		contentType: problem, contains: "link-blocked"},
	{name: "POST on an alias", method: "POST", target: "/live", status: 405, contentType: problem,
		hostStatus: 404},
	{name: "DELETE on an alias", method: "DELETE", target: "/live", status: 405,
		contentType: problem, hostStatus: 404},
	{name: "the timer's endpoint", method: "POST", target: "/reaper", body: "{}", status: 405,
		contentType: problem, hostStatus: 404},
}

// putExchanged writes the links that the exchanges use.
func putExchanged(s *site) {
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for _, l := range []link.Link{
		{Name: "live", LongURL: "https://example.com/live?a=<b>", ExpiresAt: future},
		{Name: "q", LongURL: "https://bücher.example:8080/ü"},
		{Name: "expired", LongURL: "https://example.com/expired", ExpiresAt: past},
		{Name: "disabled", LongURL: "https://example.com/disabled", Disabled: true},
		{Name: "blocked", LongURL: "http://a.evil.example/"},
	} {
		s.PutLink(l)
	}
	s.Put(s.State, rawtables.Entity{"PartitionKey": "blocked", "RowKey": "evil.example"})
	s.Put(s.Links, rawtables.Entity{"PartitionKey": "ot", "RowKey": "Other-1",
		"LongUrl": "https://example.com/other", "Clicks": 3, "Owner": "x"})
}

func TestExchangesInEveryMode(t *testing.T) {
	for mode, start := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			putExchanged(s)
			base, hosted := start(s)
			awaitReady(t, base)
			for _, e := range exchanges {
				if strings.Contains(mode, "forwards") { // such a host rewrites Location
					e.location = strings.NewReplacer("<", "%3C", ">", "%3E").Replace(e.location)
				}
				t.Run(e.name, func(t *testing.T) { e.check(t, base, hosted) })
			}
		})
	}
}

func (e exchange) check(t *testing.T, base string, hosted bool) {
	got := request(t, e.method, base+e.target, e.body, e.headers...)
	if hosted && e.hostStatus != 0 {
		if got.Status != e.hostStatus || got.Body != "" {
			t.Errorf("got %+v, want the host's own %d", got, e.hostStatus)
		}
		return
	}
	if got.Status != e.status || !strings.Contains(got.Body, e.contains) {
		t.Errorf("got %+v, want %d with %q", got, e.status, e.contains)
	}
	if location := got.Header.Get("Location"); location != e.location && e.status == 302 {
		t.Errorf("Location %q, want %q", location, e.location)
	}
	if hsts := got.Header.Get("Strict-Transport-Security"); hsts != "max-age=31536000" {
		t.Errorf("Strict-Transport-Security %q", hsts)
	}
	if contentType := got.Header.Get("Content-Type"); e.contentType != "" &&
		contentType != e.contentType {
		t.Errorf("Content-Type %q, want %q", contentType, e.contentType)
	}
}

var updateResponses = flag.Bool("e2e.update", false, "write testdata/responses.txt anew")

// Without credentials, responses are byte for byte what they were before credentials existed,
// except for the claim token of a new link, the domain, and the day since when a link leads nowhere.
func TestResponsesWithoutCredentials(t *testing.T) {
	const file = "testdata/responses.txt"
	s := newSite(t)
	putExchanged(s)
	base := s.standalone(emulator.ConnectionString(), "HSTS_SECONDS=0").url
	awaitReady(t, base)
	var got []string
	for _, e := range exchanges {
		r := request(t, e.method, base+e.target, e.body, e.headers...)
		if contentType := r.Header.Get("Content-Type"); contentType != page &&
			!strings.HasPrefix(contentType, "image/") && !strings.Contains(e.name, "asset") {
			got = append(got, fmt.Sprintf("### %s\n%s", e.name, shape(r)))
		}
	}
	if *updateResponses {
		if err := os.WriteFile(file, []byte(strings.Join(got, "")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range strings.SplitAfter(string(want), "\n\n\n") {
		if got := strings.Join(got[min(i, len(got)):min(i+1, len(got))], ""); got != want {
			t.Errorf("got\n%swant\n%s", got, want)
		}
	}
}

// varying has the parts of responses that differ from run to run, and their replacements.
var varying = []struct {
	what    *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`,"claimToken":"tnc_[0-9A-Za-z]{43}"`), ""},
	{regexp.MustCompile(`"alias":"[0-9A-Za-z]{6}"`), `"alias":"ALIAS6"`},
	{regexp.MustCompile(`https://tiney\.to/[0-9A-Za-z]{6}\b`), "https://tiney.to/ALIAS6"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`), "TIME"},
	{regexp.MustCompile(`"version":"[^"]*"`), `"version":"VERSION"`},
	{regexp.MustCompile(`"milliseconds":\d+`), `"milliseconds":0`},
}

// shape returns a response without the parts that differ from run to run.
func shape(r testutil.Response) string {
	r.Header.Del("Date")
	r.Header.Del("Content-Length")
	var text strings.Builder
	fmt.Fprintln(&text, r.Status)
	_ = r.Header.Write(&text) // sorted
	shape := strings.ReplaceAll(strings.TrimSpace(text.String()+"\n"+r.Body), "\r", "") + "\n\n\n"
	for _, v := range varying {
		shape = v.what.ReplaceAllString(shape, v.instead)
	}
	return shape
}

func TestChunkedBody(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct {
		base string
		want int
	}{
		// This is the host's own response: it cannot forward such a body.
		{s.hosted(false, emulator.ConnectionString()).URL(), 500},
		{s.hosted(true, emulator.ConnectionString()).URL(), 201},
		{s.standalone(emulator.ConnectionString()).url, 200},
	} {
		req, err := http.NewRequest(http.MethodPost, test.base+"/api/shorten",
			io.MultiReader(strings.NewReader(`{"longUrl":"https://example.com/"}`)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := testutil.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.want {
			t.Errorf("got %d, want %d", resp.StatusCode, test.want)
		}
	}
}

// A link lives from its creation to its expiry, as its users see it.
func TestLinkLifecycle(t *testing.T) {
	t.Parallel()
	for mode, start := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			base, _ := start(s)
			l, status := shorten(t, base, "https://example.com/page")
			if status != 201 || l.ShortURL != "https://tiney.to/"+l.Alias ||
				!l.ExpiresAtUTC.Equal(l.CreatedAtUTC.Add(30*24*time.Hour)) {
				t.Fatalf("got %d %+v", status, l)
			}
			if got := get(t, base+"/"+l.Alias); got.Status != 302 ||
				got.Header.Get("Location") != "https://example.com/page" {
				t.Errorf("got %+v", got)
			}
			s.WantRows(1, 1, 1)
			for life := 3 * time.Second; ; life *= 2 {
				short := link.Link{Name: link.Name(fmt.Sprintf("short-%.0f", life.Seconds())),
					LongURL:   "https://example.com/short",
					ExpiresAt: time.Now().Add(life).Truncate(time.Second)}
				s.PutLink(short)
				url := base + "/" + string(short.Name)
				got := get(t, url)
				if !time.Now().Before(short.ExpiresAt) && life < time.Minute {
					continue // it expired before the request was served: try a longer life
				}
				if got.Status != 302 {
					t.Errorf("before its expiry: %+v", got)
				}
				testutil.Eventually(t, "the link expires", func() bool {
					return get(t, url).Status == 410
				})
				break
			}
		})
	}
}

// Under `func start`, the base URL is the host's own if it is not set.
func TestBaseUrlUnderTheCoreTools(t *testing.T) {
	s := newSite(t)
	h := s.hosted(true, emulator.ConnectionString(), "BaseUrl=")
	l, status := shorten(t, h.URL(), "https://example.com/")
	if status != 201 || l.ShortURL != h.URL()+"/"+l.Alias {
		t.Errorf("got %d %+v, want a short URL at %s", status, l, h.URL())
	}
}

func TestConcurrentShortensOnTwoProcesses(t *testing.T) {
	s := newSite(t)
	s.TombstoneFor = 0
	h := s.hosted(true, emulator.ConnectionString())
	bases := []string{h.URL(), s.standalone(emulator.ConnectionString()).url}
	// inTime says that no storage call was retried. A retry may leave an expiry row to the reaper.
	inTime := true
	for round := range 3 {
		start := time.Now()
		var aliases sync.Map
		teststore.CreateAtOnce(t, 64, func(i int) (link.Link, bool, error) {
			l, status := shorten(t, bases[i%2], fmt.Sprintf("https://example.com/%d", round))
			switch status {
			case 200, 201:
				aliases.Store(l.Alias, true)
				return link.Link{Name: link.Name(l.Alias)}, status == 201, nil
			case 503:
				return link.Link{}, false, link.ErrUnavailable
			}
			return link.Link{}, false, fmt.Errorf("got %d", status)
		})
		inTime = inTime && time.Since(start) < time.Second
		aliases.Range(func(a, _ any) bool {
			for _, base := range bases {
				if got := get(t, base+"/"+a.(string)); got.Status != 302 {
					t.Errorf("%s: %+v", a, got)
				}
			}
			return true
		})
		if index := len(s.Rows(s.Index)); index != round+1 {
			t.Errorf("%d index rows, want %d", index, round+1)
		}
		if inTime {
			s.WantRows(round+1, round+1, round+1)
		}
	}
	s.WantNoLeak()
	s.Age(40 * 24 * time.Hour)
	// The timer's run waits until the process without a host has done its first run.
	testutil.Eventually(t, "the reaper runs", func() bool {
		got, err := h.FireTimer(ctx, "reaper")
		return err == nil && len(got.Logs) == 1 && strings.HasPrefix(got.Logs[0], "deleted ")
	})
	s.WantRows(0, 0, 0)
}
