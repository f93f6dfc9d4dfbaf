package functions_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/bits"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/internal/testing/teststore"
	"tiney/internal/testing/testutil"
	"tiney/storage"
)

// rig has all functions, over a store in memory.
type rig struct {
	t testing.TB
	http.Handler
	fake    *teststore.Store
	keys    keys
	clicks  recorded
	lock    *fakeLock
	clock   *testutil.Clock
	metrics *telemetry.Metrics
	log     *bytes.Buffer
}

// fakeLock responds, unless fail is set. Then it hangs.
type fakeLock struct{ fail error }

func (l *fakeLock) Ping(ctx context.Context) error {
	if l.fail != nil {
		<-ctx.Done()
	}
	return l.fail
}

// run is a reaper whose Run is the function.
type run func(context.Context) (string, error)

func (f run) Run(ctx context.Context) (string, error) { return f(ctx) }

func (run) Stats(context.Context) (link.ReapStats, error) { return link.ReapStats{}, nil }

const invocation = "4c1e0d7a-5a55-4f0e-9d35-0f6d3b5f9f0c"

// hostAddress is the address at which the Functions host would reach the process.
const hostAddress = "127.0.0.1:49152"

func newRig(t testing.TB, change ...func(*functions.Config)) *rig {
	t.Helper()
	return newRigOn(t, func(*storage.Config) {}, change...)
}

// withCache gives a store a cache, in which only links are.
func withCache(c *storage.Config) {
	c.Cache = &storage.CacheConfig{Bytes: 1 << 20, Fresh: time.Hour, Stale: time.Hour}
}

// newRigOn is newRig with a store that is configured otherwise.
func newRigOn(t testing.TB, store func(*storage.Config), change ...func(*functions.Config)) *rig {
	t.Helper()
	r := &rig{t: t, clock: testutil.NewClock(), metrics: new(telemetry.Metrics),
		keys: keys{of: map[string]string{}}, lock: new(fakeLock), log: new(bytes.Buffer)}
	r.fake = teststore.Open(t, r.clock, store)
	r.clicks.Clicks, r.clicks.store = r.fake.Clicks, r.fake
	base, err := link.ParseBase("https://tiney.to")
	if err != nil {
		t.Fatal(err)
	}
	log := telemetry.NewLogger(r.log, slog.LevelDebug)
	config := functions.Config{
		Settings: functions.Settings{
			HostAddress: hostAddress,
			Rules: link.Rules{
				Base: base, DefaultTTL: 30 * 24 * time.Hour, MaxTTL: 90 * 24 * time.Hour},
			DeletedKeep: teststore.DeletedKeep,
			Addresses:   access.Addresses{Header: "X-Forwarded-For", Hops: 1},
			CountClicks: clicks.ModeFull, CountsKept: 400, PublicStats: true, MCP: true,
			SiteName: "tiney",
		},
		Links: r.fake, Keys: r.fake.Keys, Blocked: r.fake.Blocked, Clicks: &r.clicks,
		Callers: access.New(access.Config{AdminKey: adminKey}, r.fake.Keys, r.clock.Now),
		Reaper:  run(func(context.Context) (string, error) { return "ran", nil }),
		Version: "v1.2.3", Tables: r.fake, Lock: r.lock, Now: r.clock.Now, Random: rand.Reader,
		Log: log, Metrics: r.metrics,
	}
	for _, c := range change {
		c(&config)
	}
	r.Handler = functions.New(config)
	return r
}

func (r *rig) do(method, target, body string, header ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	req := httptest.NewRequest(method, "http://internal.example"+target, strings.NewReader(body))
	req.RequestURI = target // as clients send it
	if method == "POST" || method == "PATCH" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	return r.send(req)
}

func (r *rig) send(req *http.Request) *httptest.ResponseRecorder {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w
}

func (r *rig) get(target string, header ...string) *httptest.ResponseRecorder {
	r.t.Helper()
	return r.do("GET", target, "", header...)
}

func (r *rig) shorten(body string) *httptest.ResponseRecorder {
	r.t.Helper()
	return r.do("POST", "/api/shorten", body)
}

func (r *rig) wantMetrics(want map[string]float64) {
	r.t.Helper()
	got := map[string]float64{}
	for _, s := range r.metrics.Snapshot() {
		if s.Sum != 0 && !strings.HasSuffix(s.Name, "_ms") {
			got[s.Name] = s.Sum
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Errorf("metrics %v, want %v", got, want)
	}
}

// wantStatus checks the status of a response, of what if it is one of several.
func wantStatus(t testing.TB, w *httptest.ResponseRecorder, status int, what ...any) {
	t.Helper()
	if w.Code != status {
		t.Errorf("%v: got %d %v %.1000s, want %d", what, w.Code, w.Header(), w.Body, status)
	}
}

// wantJSON checks that a response is a 200 with this JSON, which nobody caches.
func wantJSON(t testing.TB, w *httptest.ResponseRecorder, want string, what ...any) {
	t.Helper()
	if got := strings.TrimSpace(w.Body.String()); w.Code != 200 || got != want ||
		w.Header().Get("Content-Type") != "application/json" ||
		w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("%v: got %d %v\n%s, want\n%s", what, w.Code, w.Header(), got, want)
	}
}

// wantProblem checks that a response is a problem with this status and kind.
func wantProblem(t *testing.T, w *httptest.ResponseRecorder, status int, kind, field string) {
	t.Helper()
	var p struct {
		Type, Title, Detail, Field string
		Status                     int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Errorf("%v in %s", err, w.Body)
	}
	if w.Code != status || p.Status != status || p.Type != "/problems/"+kind || p.Field != field ||
		p.Title == "" || p.Detail == "" {
		t.Errorf("got %d %s, want %d %s with field %q", w.Code, w.Body, status, kind, field)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("Content-Type %q", got)
	}
	if got := w.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
}

func TestShorten(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	w := r.shorten(`{"longUrl":"https://example.com/?a=<b>&c","expiresInSeconds":3600}`)
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	alias, _ := got["alias"].(string)
	want := map[string]any{
		"alias": alias, "domain": "tiney.to", "shortUrl": "https://tiney.to/" + alias,
		"longUrl":      "https://example.com/?a=<b>&c",
		"createdAtUtc": now.Format(time.RFC3339),
		"expiresAtUtc": now.Add(time.Hour).Format(time.RFC3339), "claimToken": got["claimToken"],
	}
	token, _ := got["claimToken"].(string)
	if l, err := r.fake.Read(t.Context(), link.Name(alias)); err != nil ||
		!strings.HasPrefix(token, "tnc_") || l.ClaimHash != access.Hash(token) {
		t.Errorf("%+v, %v is not the link of the claim token %q", l, err, token)
	}
	five, _, _ := strings.Cut(w.Body.String(), `,"claimToken":`)
	if w.Code != http.StatusCreated || fmt.Sprint(got) != fmt.Sprint(want) ||
		w.Header().Get("Location") != "https://tiney.to/"+alias {
		t.Errorf("got %d %v %v, want 201 %v", w.Code, w.Header(), got, want)
	}
	r.clock.Advance(time.Minute)
	again := r.shorten(`{"longUrl":"https://example.com/?a=<b>&c","expiresInSeconds":3600}`)
	if again.Code != http.StatusOK || again.Body.String() != five+"}\n" ||
		again.Header().Get("Location") != "" {
		t.Errorf("again: got %d %v %s, want 200 and the same body without a claim token",
			again.Code, again.Header(), again.Body)
	}
	r.wantMetrics(map[string]float64{"shorten.created": 1, "shorten.deduplicated": 1})
}

func TestShortenOfALinkWithoutAnExpiry(t *testing.T) {
	r := newRig(t)
	r.fake.Put(link.Link{Name: "forever", LongURL: "https://example.com/"})
	w := r.shorten(`{"longUrl":"https://example.com/"}`)
	const want = `{"alias":"forever","domain":"tiney.to",` +
		`"shortUrl":"https://tiney.to/forever",` +
		`"longUrl":"https://example.com/","createdAtUtc":null,"expiresAtUtc":null}`
	wantJSON(t, w, want)
}

func TestShortenBodies(t *testing.T) {
	const url = `"longUrl":"https://example.com/"`
	in := testutil.NewClock().Now().Add(time.Hour)
	soon, soonElsewhere := in.Format(time.RFC3339),
		in.In(time.FixedZone("", 9*3600)).Format("2006-01-02T15:04:05.999Z07:00")
	for name, body := range map[string]string{
		"spaces around":              " \n{ " + url + " }\n ",
		"escapes":                    `{"long\u0055rl":"https:\/\/example.com\/\u00fc"}`,
		"surrogate pair":             `{"longUrl":"https://example.com/\ud83d\ude00"}`,
		"replacement character":      `{"longUrl":"https://example.com/\uFFFD"}`,
		"null lifetime":              `{` + url + `,"expiresInSeconds":null}`,
		"whole number as a fraction": `{` + url + `,"expiresInSeconds":60.0}`,
		"whole number with exponent": `{` + url + `,"expiresInSeconds":6e1}`,
		"longest lifetime":           `{` + url + `,"expiresInSeconds":7776000}`,
		"null for all that can be": `{` + url +
			`,"alias":null,"expiresAtUtc":null,"statusCode":null,"title":null,"tags":null}`,
		"all that can be given": `{` + url + `,"alias":"Mine_-9","expiresAtUtc":"` + soon +
			`","statusCode":308,"title":"ü","tags":["a","a"]}`,
		"brackets in a string":  `{` + url + `,"title":"\"` + strings.Repeat(`[{`, 80) + `\\"}`,
		"an end with an offset": `{` + url + `,"expiresAtUtc":"` + soonElsewhere + `"}`,
		"one of two ends is null": `{` + url + `,"expiresAtUtc":"` + soon +
			`","expiresInSeconds":null}`,
	} {
		wantStatus(t, newRig(t).shorten(body), 201, name)
	}
	for problem, bodies := range map[string]map[string]string{
		"400 body ": {
			"empty":                  "",
			"not JSON":               "longUrl=https://example.com/",
			"cut off":                `{` + url,
			"null":                   "null",
			"a string":               `"https://example.com/"`,
			"an array":               `[{` + url + `}]`,
			"two objects":            `{` + url + `}{` + url + `}`,
			"something after":        `{` + url + `} x`,
			"name not UTF-8":         "{\"long\xffUrl\":1}",
			"two byte order marks":   "\ufeff\ufeff{" + url + "}",
			"byte order mark inside": "{\ufeff" + url + "}",
			"UTF-16":                 "\xff\xfe{\x00}\x00",
			"lists in lists":         `{"longUrl":` + strings.Repeat("[", 16000),
			"nested deeply":          `{"longUrl":` + strings.Repeat(`{"":`, 32),
		},
		"400 body slug": {
			"unknown field": `{` + url + `,"slug":"mine"}`,
		},
		"400 body LongURL": {
			"other capitals": `{"LongURL":"https://example.com/"}`,
		},
		"400 body longUrl": {
			"twice":              `{` + url + `,` + url + `}`,
			"not UTF-8":          "{\"longUrl\":\"https://example.com/\xff\"}",
			"half a character":   `{"longUrl":"https://example.com/\ud83d"}`,
			"line break in text": "{\"longUrl\":\"https://example.com/\n\"}",
		},
		"400 long-url longUrl": {
			"no URL":          `{}`,
			"null URL":        `{"longUrl":null}`,
			"URL is a number": `{"longUrl":7}`,
			"nested":          `{"longUrl":{"longUrl":1}}`,
			"bad URL":         `{"longUrl":"ftp://example.com/"}`,
			"our own URL":     `{"longUrl":"http://TINEY.to:1/x"}`,
		},
		"400 body longUrl.0.0": {
			"nested, not JSON": `{"longUrl":` + strings.Repeat("[", 31) + "x",
		},
		"400 body " + strings.Repeat("x", 100): {
			"long name": `{"` + strings.Repeat("x", 1000) + `":1}`,
		},
		"400 expires-at-utc expiresAtUtc": {
			"two ends": `{` + url + `,"expiresAtUtc":"` + soon +
				`","expiresInSeconds":3600}`,
			"end a day":             `{` + url + `,"expiresAtUtc":"2099-01-01"}`,
			"end without an offset": `{` + url + `,"expiresAtUtc":"2099-01-01T00:00:00"}`,
			"end a number":          `{` + url + `,"expiresAtUtc":1893456000}`,
			"end in the past":       `{` + url + `,"expiresAtUtc":"2020-01-01T00:00:00Z"}`,
			"end too late":          `{` + url + `,"expiresAtUtc":"9999-01-01T00:00:00Z"}`,
		},
		"400 alias alias": {
			"alias of a path":   `{` + url + `,"alias":"a/b"}`,
			"reserved alias":    `{` + url + `,"alias":"Manage"}`,
			"empty alias":       `{` + url + `,"alias":""}`,
			"alias is a number": `{` + url + `,"alias":7}`,
		},
		"400 status-code statusCode": {
			"status code":         `{` + url + `,"statusCode":303}`,
			"status code in text": `{` + url + `,"statusCode":"301"}`,
		},
		"400 title title": {
			"title too long":  `{` + url + `,"title":"` + strings.Repeat("é", 201) + `"}`,
			"title is a list": `{` + url + `,"title":[]}`,
		},
		"400 tags tags": {
			"tags are a text": `{` + url + `,"tags":"a,b"}`,
			"a tag is null":   `{` + url + `,"tags":[null]}`,
			"an empty tag":    `{` + url + `,"tags":[""]}`,
		},
		"400 tags tags.1": {
			"a tag is a number": `{` + url + `,"tags":["a",1]}`,
		},
		"400 expires-in-seconds expiresInSeconds": {
			"lifetime in a string": `{` + url + `,"expiresInSeconds":"60"}`,
			"lifetime a fraction":  `{` + url + `,"expiresInSeconds":60.5}`,
			"lifetime true":        `{` + url + `,"expiresInSeconds":true}`,
			"lifetime too short":   `{` + url + `,"expiresInSeconds":59}`,
			"lifetime negative":    `{` + url + `,"expiresInSeconds":-1}`,
			"lifetime too long":    `{` + url + `,"expiresInSeconds":7776001}`,
			"lifetime enormous":    `{` + url + `,"expiresInSeconds":1e400}`,
			"lifetime very small":  `{` + url + `,"expiresInSeconds":-9223372036854775809}`,
		},
		"413 body-too-large ": {
			"too large":            `{` + url + `,"x":"` + strings.Repeat("x", 32<<10) + `"}`,
			"too much white space": `{` + url + `}` + strings.Repeat(" ", 32<<10),
		},
	} {
		want := strings.Split(problem, " ")
		status, _ := strconv.Atoi(want[0])
		for name, body := range bodies {
			t.Run(name, func(t *testing.T) {
				r := newRig(t)
				wantProblem(t, r.shorten(body), status, want[1], want[2])
				r.wantMetrics(map[string]float64{"shorten.rejected": 1})
			})
		}
	}
}

func TestShortenMediaTypes(t *testing.T) {
	const body = `{"longUrl":"https://example.com/"}`
	r := newRig(t)
	wantStatus(t, r.shorten("\ufeff"+body), 201, "with a byte order mark")
	for coding, status := range map[string]int{"": 201, "identity": 201, "Identity": 201,
		" identity , identity": 201, "gzip": 415, "br": 415, "x": 415, "identity, gzip": 415,
		"deflate,gzip": 415} {
		w := newRig(t).do("POST", "/api/shorten", body, "Content-Type", "application/json",
			"Content-Encoding", coding)
		if w.Code != status {
			t.Errorf("Content-Encoding %q: got %d %s, want %d", coding, w.Code, w.Body, status)
		}
		if status == 415 {
			wantProblem(t, w, 415, "media-type", "")
			if w.Header().Get("Accept-Encoding") != "identity" {
				t.Errorf("%q: got %v", coding, w.Header())
			}
		}
	}
	for contentType, status := range map[string]int{
		"application/json; charset=utf8":    201,
		"application/json;charset=UTF8":     201,
		`application/json; charset="utf-8"`: 201,
		"application/json; charset=utf-16":  415,
		"application/json; charset=utf":     415,
		"application/json":                  201,
		"Application/JSON; charset=UTF-8":   201,
		"application/json; charset=latin-1": 415,
		"text/json":                         415,
		"application/x-www-form-urlencoded": 415,
		"":                                  415,
	} {
		r := newRig(t)
		w := r.do("POST", "/api/shorten", body, "Content-Type", contentType)
		if w.Code != status {
			t.Errorf("%q: got %d %s, want %d", contentType, w.Code, w.Body, status)
		}
		if status == 415 {
			wantProblem(t, w, 415, "media-type", "")
		}
	}
}

func TestShortenFailures(t *testing.T) {
	const body = `{"longUrl":"https://example.com/"}`
	t.Run("storage is down", func(t *testing.T) {
		r := newRig(t)
		r.fake.Fail(fmt.Errorf("with a secret: %w", link.ErrUnavailable))
		w := r.shorten(body)
		wantProblem(t, w, 503, "storage-unavailable", "")
		if w.Header().Get("Retry-After") != "5" || strings.Contains(w.Body.String(), "secret") {
			t.Errorf("got %v %s", w.Header(), w.Body)
		}
		r.wantMetrics(map[string]float64{})
	})
	t.Run("ten aliases were taken", func(t *testing.T) {
		r := newRigOn(t, func(c *storage.Config) { c.Random = onlyZeros{} })
		r.fake.Put(link.Link{Name: "000000", LongURL: "https://example.com/a"})
		wantProblem(t, r.shorten(body), 500, "aliases-taken", "")
	})
	t.Run("the link is disabled", func(t *testing.T) {
		r := newRig(t)
		r.fake.Put(link.Link{Name: "abcdef", LongURL: "https://example.com/", Disabled: true})
		wantProblem(t, r.shorten(body), 403, "target-disabled", "")
		r.fake.Put(link.Link{Name: "anns", LongURL: "https://example.com/anns", Owner: "ann",
			Disabled: true})
		w := r.as("ann", "POST", "/api/shorten", `{"longUrl":"https://example.com/anns"}`)
		wantProblem(t, w, 403, "target-disabled", "")
		r.wantMetrics(map[string]float64{"shorten.rejected": 2})
	})
	t.Run("something unknown", func(t *testing.T) {
		r := newRig(t)
		r.fake.Fail(errors.New("with a secret"))
		w := r.shorten(body)
		wantProblem(t, w, 500, "internal", "")
		if strings.Contains(w.Body.String(), "secret") ||
			!strings.Contains(r.log.String(), "with a secret") {
			t.Errorf("got %s, logged %s", w.Body, r.log)
		}
	})
	t.Run("a body that does not arrive", func(t *testing.T) {
		r := newRig(t)
		req := httptest.NewRequest("POST", "/api/shorten", io.MultiReader(strings.NewReader(body),
			failingReader{}))
		req.Header.Set("Content-Type", "application/json")
		wantProblem(t, r.send(req), 400, "body", "")
	})
}

// onlyZeros is a source of randomness from which every alias is "000000".
type onlyZeros struct{}

func (onlyZeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestRedirect(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	for _, l := range []link.Link{
		{Name: "abcdef", LongURL: "https://example.com/?q=<a>&b#c", ExpiresAt: now.Add(time.Hour)},
		{Name: "ABCDEF", LongURL: "https://example.com/upper"},
		{Name: "x", LongURL: "https://bücher.example/ü"},
		{Name: "expired", LongURL: "https://example.com/e", ExpiresAt: now},
		{Name: "disabled", LongURL: "https://example.com/d", Disabled: true},
		{Name: "reaper", LongURL: "https://example.com/r"},
		{Name: "unclean", LongURL: "https://example.com/\r\nSet-Cookie: a=b"},
	} {
		r.fake.Put(l)
	}
	for target, location := range map[string]string{
		"/abcdef":     "https://example.com/?q=<a>&b#c",
		"/abcdef?x=y": "https://example.com/?q=<a>&b#c",
		"/ABCDEF":     "https://example.com/upper",
		"/%61bcdef":   "https://example.com/?q=<a>&b#c",
		"/x":          "https://xn--bcher-kva.example/%C3%BC",
		"/reaper":     "https://example.com/r",
		"/unclean":    "https://example.com/%0D%0ASet-Cookie:%20a=b",
	} {
		for _, method := range []string{"GET", "HEAD"} {
			w := r.do(method, target, "")
			if w.Code != http.StatusFound || w.Header().Get("Location") != location ||
				w.Header().Get("Cache-Control") != "no-store" ||
				w.Header().Get("X-Robots-Tag") != "noindex" || w.Body.Len() != 0 {
				t.Errorf("%s %s: got %d %v %q, want %s", method, target, w.Code, w.Header(), w.Body,
					location)
			}
		}
	}
	r.wantMetrics(map[string]float64{"redirect.found": 14})
	wantProblem(t, r.get("/expired"), 410, "link-expired", "")
	wantProblem(t, r.get("/disabled"), 410, "link-disabled", "")
	wantProblem(t, r.get("/nobody"), 404, "not-found", "")
	r.wantMetrics(map[string]float64{"redirect.found": 14, "redirect.gone": 2,
		"redirect.not_found": 1})
	r.fake.Fail(link.ErrUnavailable)
	wantProblem(t, r.get("/abcdef"), 503, "storage-unavailable", "")
	r.wantMetrics(map[string]float64{"redirect.found": 14, "redirect.gone": 2,
		"redirect.not_found": 1})
	r.fake.Fail(link.ErrDamaged)
	wantProblem(t, r.get("/abcdef"), 410, "link-damaged", "")
	r.wantMetrics(map[string]float64{"redirect.found": 14, "redirect.gone": 3,
		"redirect.not_found": 1})
	if !strings.Contains(r.log.String(), `"level":"ERROR","msg":"`+telemetry.LogLinkCorrupt) {
		t.Errorf("logged %s", r.log)
	}
}

func TestRedirectStatusCodes(t *testing.T) {
	r := newRig(t)
	for code, want := range map[int]int{0: 302, 301: 301, 302: 302, 307: 307, 308: 308} {
		r.fake.Put(link.Link{Name: "abcdef", LongURL: "https://example.com/", StatusCode: code})
		if w := r.get("/abcdef"); w.Code != want || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%d: got %d %v", code, w.Code, w.Header())
		}
	}
}

// The response for a link that is gone says why. Its page also says since when, if that is known.
// The preview says the same.
func TestLinksThatAreGone(t *testing.T) {
	r := newRig(t)
	// the 1st of March in UTC
	at := time.Date(2024, 2, 29, 23, 59, 59, 0, time.FixedZone("", -3600))
	for i, test := range []struct {
		l    link.Link
		kind string
		says string
	}{
		{link.Link{ExpiresAt: at}, "link-expired",
			"came to the end of its life on 1 March 2024 (UTC). Ask "},
		{link.Link{DeletedAt: at, Disabled: true}, "link-deleted",
			"was deleted on 1 March 2024 (UTC). Ask "},
		{link.Link{DeletedAt: at, ExpiresAt: at.AddDate(-1, 0, 0)}, "link-deleted",
			"was deleted on 1 March 2024"},
		{link.Link{Disabled: true}, "link-disabled", "has been disabled. Ask "},
		{link.Link{GoneReason: link.StateExpired, GoneAt: at}, "link-expired",
			"life on 1 March 2024"},
		{link.Link{GoneReason: link.StateDeleted, GoneAt: at}, "link-deleted",
			"deleted on 1 March 2024"},
	} {
		test.l.Name = "abcdef"
		if test.l.GoneReason == link.StateLive {
			test.l.LongURL = "https://example.com/"
		}
		r.fake.Put(test.l)
		w := r.get("/abcdef")
		wantProblem(t, w, 410, test.kind, "")
		if preview := r.get("/abcdef+"); preview.Code != 410 ||
			preview.Body.String() != w.Body.String() {
			t.Errorf("%d: the preview says %d %s, not %s", i, preview.Code, preview.Body, w.Body)
		}
		page := r.get("/abcdef", "Accept", "text/html")
		if !strings.Contains(page.Body.String(), test.says) {
			t.Errorf("%d: the page does not say %q: %s", i, test.says, page.Body)
		}
	}
	r.wantMetrics(map[string]float64{"redirect.gone": 12}) // the previews do not count
}

func TestPreview(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	r.fake.Put(link.Link{Name: "abcdef", LongURL: "https://example.com/ü", CreatedAt: now,
		ExpiresAt: now.Add(time.Hour), Owner: "ann", Title: "a secret", StatusCode: 308})
	want := `{"alias":"abcdef","domain":"tiney.to","shortUrl":"https://tiney.to/abcdef",` +
		`"longUrl":"https://example.com/ü","createdAtUtc":"` + now.Format(time.RFC3339) +
		`","expiresAtUtc":"` + now.Add(time.Hour).Format(time.RFC3339) + "\",\"forward\":[]," +
		"\"targets\":[\"https://example.com/ü\"]}\n"
	for _, target := range []string{"/abcdef+", "/abcdef%2B", "/abcdef+?x=y"} {
		for _, method := range []string{"GET", "HEAD"} {
			w := r.do(method, target, "")
			if w.Code != 200 || w.Body.String() != want ||
				w.Header().Get("Content-Type") != "application/json" ||
				w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%s %s: got %d %v %s, want %s", method, target, w.Code, w.Header(), w.Body,
					want)
			}
		}
	}
	calls := r.fake.Calls()
	for _, target := range []string{"/+", "/api+", "/a.b+", "/abcdef++", "/abcdef+é",
		"/favicon.ico+"} {
		wantProblem(t, r.get(target), 404, "not-found", "")
	}
	if r.fake.Calls() != calls {
		t.Error("an impossible alias was looked up")
	}
	wantProblem(t, r.get("/nobody+"), 404, "not-found", "")
	wantProblem(t, r.do("POST", "/abcdef+", ""), 405, "method", "")
	page := r.get("/abcdef+", "Accept", "text/html")
	if body := page.Body.String(); page.Code != 200 || page.Header().Get("Vary") != "Accept" ||
		strings.Contains(body, "a secret") ||
		!strings.Contains(body, "<strong><bdi dir=\"ltr\">example.com</bdi></strong><bdi "+
			"dir=\"ltr\">/ü</bdi>") || !strings.Contains(body, "https://example.com/%C3%BC") ||
		!strings.Contains(body, now.Add(time.Hour).Format("2 January 2006, 15:04 UTC")) {
		t.Errorf("a browser gets %d %v %s", page.Code, page.Header(), body)
	}
	wantPage(t, page)
	r.fake.Put(link.Link{Name: "hides", LongURL: "https://example.com%2eevil.example/"})
	if body := r.get("/hides+", "Accept", "text/html").Body.String(); !strings.Contains(body,
		`<div><dt>In ASCII</dt><dd class="target" dir="ltr">https://example.com.evil.example/</dd>`) {
		t.Errorf("a host that is percent-encoded is shown as %s", body)
	}
	w := r.get("/nobody+", "Accept", "text/html")
	if !strings.HasPrefix(w.Body.String(), "<!doctype html>") {
		t.Errorf("a browser gets %s", w.Body)
	}
	r.fake.Fail(link.ErrUnavailable)
	wantProblem(t, r.get("/abcdef+"), 503, "storage-unavailable", "")
	r.fake.Fail(link.ErrDamaged)
	wantProblem(t, r.get("/abcdef+"), 410, "link-damaged", "")
	if n := r.metrics.RedirectFound.Value() + r.metrics.RedirectGone.Value(); n != 0 {
		t.Errorf("%d previews were counted as redirects", n)
	}
}

func TestPathsThatAreNoAliasAreNotLookedUp(t *testing.T) {
	r := newRig(t)
	for _, target := range []string{
		"/a.b", "/a%20b", "/" + strings.Repeat("a", 101), "/é", "/a%00", "/%2e%2e", "/wp-login.php",
		"//", "//abcdef", "/abcdef@go.example", "/./abcdef", "/a%2Fb", "/api",
		"/api/", "/api/nothing", "/api//health", "/api/./health",
		"/https://example.com/", "/Admin", "/RUNTIME.", "/...",
	} {
		wantProblem(t, r.get(target), 404, "not-found", "")
	}
	if got := r.fake.Calls(); got != 0 {
		t.Errorf("%d look-ups", got)
	}
}

func TestALinkPastedWithItsPunctuation(t *testing.T) {
	r := newRig(t)
	r.fake.Put(link.Link{Name: "abcdef", LongURL: "https://example.com/"})
	r.fake.Put(link.Link{Name: "both", LongURL: "https://example.com/p",
		Forward: link.ForwardPath | link.ForwardQuery})
	r.fake.Put(link.Link{Name: "query", LongURL: "https://example.com/p", Forward: link.ForwardQuery})
	for _, behind := range []string{"%20", "%20%0A", "%C2%A0", "%E3%80%80", "%E2%80%8B", "%EF%BB%BF",
		"%C2%AD", "%E2%81%A0", "%E2%80%8F", "*", "**", "~", "%3E", "%3E,", "%60", "%7C", "%E2%80%9D",
		"%E2%80%9C", "%C2%BB.", "%E3%80%8D", "%E3%80%82", "%EF%BC%8C", "%EF%BC%89", "%E2%80%A6",
		"%D8%8C", "%E0%A5%A4", "%3F", "%3Futm=1", "%3Fu=https://example.com/a/b", "%23top", "&x=1",
		"&gt;", "&amp;x", "%26gt;", ")%3Fx", "%22%3E", "/.", "/)", "/%20", "/%E2%80%8B", "/%E2%80%9D.",
		"/%3Fx", "/&gt;"} {
		for before, to := range map[string]string{"/abcdef": "https://example.com/",
			"/%20abcdef": "https://example.com/", "/query": "https://example.com/p"} {
			w := r.get(before + behind)
			if strings.Contains(before, "%20") && strings.HasPrefix(behind, "/") {
				wantLocation(t, before+behind, w, "")
			} else {
				wantLocation(t, before+behind, w, to)
			}
		}
		// What is behind the slash is forwarded as it came.
		want := "https://example.com/p"
		if behind == "/." {
			want = ""
		} else if strings.HasPrefix(behind, "/") {
			want += behind
		}
		wantLocation(t, "/both"+behind, r.get("/both"+behind), want)
	}
	for _, target := range []string{"/%20abcdef", "/%E2%80%8Babcdef%E2%80%8B", "/%EF%BB%BF%20abcdef.",
		"/abcdef+.", "/abcdef+%20", "/abcdef%2B)", "/%20abcdef+", "/abcdef+%3Fx"} {
		if w := r.get(target); w.Code != 302 && (w.Code != 200 || !strings.Contains(target, "+") &&
			!strings.Contains(target, "%2B")) {
			t.Errorf("%s: got %d", target, w.Code)
		}
	}
	for _, target := range []string{"/abcdef%C3%A9", "/abcdef%D9%A3", "/abcdef%E3%81%AF", "/abcdef=",
		"/abcdef$", "/abcdef%F0%9F%98%80", "/abcdef%20x", "/abcdef.x", "/(abcdef)", "/%22abcdef%22",
		"/*abcdef*", "/abcdef%00", "/abcdef%FF", "/abcdef%0Ax", "/abcdef,/x", "/%E2%80%9Cabcdef",
		"/abcdef/x)", "/abcdef//", "/abcdef/%2F", "/query/x", "/query/)x", "/%3Fabcdef", "/&abcdef"} {
		wantProblem(t, r.get(target), 404, "not-found", "")
	}
	// A query as such is forwarded as it came.
	for target, want := range map[string]string{"/both?x=1).": "https://example.com/p?x=1).",
		"/both).?x%20": "https://example.com/p?x%20", "/both/a).?b,": "https://example.com/p/a).?b,",
		"/query/)?x*": "https://example.com/p?x*", "/both%3Fa/b?c": "https://example.com/p?c"} {
		wantLocation(t, target, r.get(target), want)
	}
	for _, target := range []string{"/abcdef.", "/abcdef,", "/abcdef;", "/abcdef:", "/abcdef!",
		"/abcdef%3F", "/abcdef)", "/abcdef]", "/abcdef%7D", "/abcdef'", "/abcdef%22).",
		"/abcdef...", "/abcdef"} {
		wantStatus(t, r.get(target), 302, target)
	}
	wantProblem(t, r.get("/.abcdef"), 404, "not-found", "")
}

func TestMethods(t *testing.T) {
	r := newRig(t)
	r.fake.Put(link.Link{Name: "abcdef", LongURL: "https://example.com/"})
	for _, test := range []struct{ method, target, allow string }{
		{"POST", "/abcdef", "GET, HEAD"},
		{"DELETE", "/abcdef", "GET, HEAD"},
		{"OPTIONS", "/abcdef", "GET, HEAD"},
		{"POST", "/abcdef/", "GET, HEAD"},
		{"POST", "/abcdef/rest", "GET, HEAD"},
		{"POST", "/abcdef/../reaper", "GET, HEAD"},
		{"OPTIONS", "//abcdef", "GET, HEAD"},
		{"PUT", "/", "GET, HEAD, POST, OPTIONS"},
		{"TRACE", "/", "GET, HEAD, POST, OPTIONS"},
		{"POST", "/manage", "GET, HEAD"},
		{"DELETE", "/manage/x", "GET, HEAD"},
		{"GET", "/api/shorten", "POST, OPTIONS"},
		{"GET", "/API/Shorten/", "POST, OPTIONS"},
		{"PUT", "/api/shorten", "POST, OPTIONS"},
		{"POST", "/api/health", "GET, HEAD, OPTIONS"},
		{"POST", "/api/ready", "GET, HEAD, OPTIONS"},
		{"POST", "/favicon.ico", "GET, HEAD"},
	} {
		w := r.do(test.method, test.target, "")
		wantProblem(t, w, 405, "method", "")
		if got := w.Header().Get("Allow"); got != test.allow {
			t.Errorf("%s %s: Allow %q, want %q", test.method, test.target, got, test.allow)
		}
	}
	// Proxies ask so whether the service is there, some without a Host.
	for _, host := range []string{"tiney.to", "10.0.0.1:8080", ""} {
		if w := r.do("OPTIONS", "/", "", "Host", host); w.Code != 204 || w.Body.Len() > 0 ||
			w.Header().Get("Allow") != "GET, HEAD, POST, OPTIONS" {
			t.Errorf("OPTIONS / of %q: %d, %v %s", host, w.Code, w.Header(), w.Body)
		}
	}
}

func TestRedirectsThatOthersMayCache(t *testing.T) {
	r := newRigOn(t, withCache, func(c *functions.Config) { c.RedirectMaxAge = 10 * time.Minute })
	now := r.clock.Now()
	want := func(a, want string) {
		t.Helper()
		w := r.get("/" + a)
		if got := w.Header().Get("Cache-Control"); w.Code != 302 || got != want {
			t.Errorf("%s: %d, %q, want %q", a, w.Code, got, want)
		}
	}
	for a, test := range map[string]struct {
		expires time.Time
		want    string
	}{
		"forever": {time.Time{}, "public, max-age=600"},
		"long":    {now.Add(2 * time.Hour), "public, max-age=600"},
		"short":   {now.Add(90 * time.Second), "public, max-age=90"},
		"nearly":  {now.Add(time.Second), "public, max-age=1"},
	} {
		r.fake.Put(link.Link{Name: link.Name(a), LongURL: "https://example.com/" + a,
			ExpiresAt: test.expires})
		r.fake.Cache(link.Name(a))
		want(a, test.want)
	}
	r.clock.Advance(time.Millisecond)
	want("nearly", "no-store")
	r.clock.Advance(time.Hour)
	r.fake.Fail(link.ErrUnavailable) // what is cached is stale
	want("forever", "no-store")
	want("long", "no-store")
	if got := r.get("/nobody").Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("not found: %q", got)
	}
}

// A cache in front keeps redirects of domains apart by the header that names the domain.
func TestRedirectsVaryByTheDomainHeader(t *testing.T) {
	for _, test := range []struct {
		header  string
		age     time.Duration
		domains bool
		want    []string
	}{
		{"X-Tiney-Host", time.Hour, true, []string{"X-Tiney-Host"}},
		{"X-Tiney-Host", time.Hour, false, nil},
		{"X-Tiney-Host", 0, true, nil},
		{"", time.Hour, true, nil},
	} {
		r := newRig(t, func(c *functions.Config) {
			c.DomainHeader, c.RedirectMaxAge = test.header, test.age
			if test.domains {
				withDomains(c)
			}
		})
		r.put("abc")
		if got := r.get("/abc").Header()["Vary"]; !slices.Equal(got, test.want) {
			t.Errorf("%+v: got %q", test, got)
		}
	}
}

func TestBrowsersGetPages(t *testing.T) {
	r := newRig(t)
	r.fake.Put(link.Link{Name: "expired", LongURL: "https://example.com/",
		ExpiresAt: r.clock.Now()})
	const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
	page := func(target string, status int) {
		t.Helper()
		w := r.get(target, "Accept", browser)
		if w.Code != status || w.Header().Get("Content-Type") != "text/html; charset=utf-8" ||
			!strings.HasPrefix(w.Body.String(), "<!doctype html>") ||
			w.Header().Get("Vary") != "Accept" || w.Header().Get("Content-Security-Policy") == "" ||
			w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: got %d %v %s", target, w.Code, w.Header(), w.Body)
		}
	}
	page("/nobody", 404)
	page("/a.b", 404)
	page("/x/y", 404)
	page("/manage/nothing", 404)
	page("/expired", 410)
	r.fake.Fail(link.ErrUnavailable)
	page("/nobody", 503)
	wantProblem(t, r.do("POST", "/nobody", "", "Accept", browser), 405, "method", "")
	r.fake.Fail(nil)

	for accept, html := range map[string]bool{
		"":                                  false,
		"*/*":                               false,
		"text/html":                         true,
		"text/*":                            false,
		"application/json, text/html":       true,
		"application/json, text/html;q=0.9": false,
		"application/problem+json;q=0.5, text/html;q=0.6": true,
		"text/html;q=0":                  false,
		"text/html, */*":                 true,
		"text/html;q=0.1, */*":           false,
		"application/*, text/html;q=0.5": false,
		"text/html;q=x":                  false,
		"nonsense, text/html":            true,
	} {
		got := strings.HasPrefix(r.get("/nobody", "Accept", accept).Header().Get("Content-Type"),
			"text/html")
		if got != html {
			t.Errorf("Accept %q: page %t, want %t", accept, got, html)
		}
	}
	// A cache in front may drop Accept. Then Sec-Fetch-Mode counts.
	for mode, html := range map[string]bool{"navigate": true, "cors": false} {
		got := strings.HasPrefix(r.get("/nobody", "Sec-Fetch-Mode",
			mode).Header().Get("Content-Type"), "text/html")
		if got != html {
			t.Errorf("Sec-Fetch-Mode %s without Accept: page %t, want %t", mode, got, html)
		}
	}
	wantProblem(t, r.get("/nobody", "Sec-Fetch-Mode", "navigate", "Accept", "application/json"),
		404, "not-found", "")
}

// If short URLs are https, every response says that the host must be reached by https only.
func TestStrictTransportSecurity(t *testing.T) {
	for base, seconds := range map[string]int{"HTTPS://tiney.to/go": 31536000,
		"https://tiney.to": 0, "http://tiney.to": 31536000} {
		r := newRig(t, func(c *functions.Config) {
			c.Rules.Base, _ = link.ParseBase(base)
			c.StrictTransport = time.Duration(seconds) * time.Second
		})
		r.fake.Put(link.Link{Name: "live", LongURL: "https://example.com/"})
		var want []string
		if base[0] == 'H' {
			want = []string{"max-age=31536000"}
		}
		for _, request := range []string{"GET /live", "GET /nobody", "GET /", "GET /api/health",
			"OPTIONS /api/links",
			"GET /favicon.ico", "POST /live", "POST /api/shorten", "GET /api/links"} {
			method, target, _ := strings.Cut(request, " ")
			got := r.do(method, target, "").Header()["Strict-Transport-Security"]
			if !slices.Equal(got, want) {
				t.Errorf("%s, %s: got %q, want %q", base, request, got, want)
			}
		}
	}
}

// A domain that is reached by http may not be able to do anything else, and the other way round.
func TestStrictTransportSecurityOfADomain(t *testing.T) {
	for _, base := range []string{"http://tiney.to", "https://tiney.to"} {
		r := newRig(t, withDomains, func(c *functions.Config) {
			c.Rules.Base, _ = link.ParseBase(base)
			c.StrictTransport = time.Hour
		})
		r.put("abc", "abc@go.example", "abc@go.example:8080")
		for host, want := range map[string]bool{"tiney.to": base[4] == 's', "go.example": true,
			"go.example:8080": false, "other.example": base[4] == 's'} {
			for _, target := range []string{"/abc", "/nobody", "/", "/api/health"} {
				got := r.get(target, "Host", host).Header().Get("Strict-Transport-Security")
				if got != map[bool]string{true: "max-age=3600"}[want] {
					t.Errorf("%s of %s beside %s: got %q", target, host, base, got)
				}
			}
		}
	}
}

// If the admin key is the one that everybody knows, only requests to a name of this machine are
// served.
func TestLocalOnly(t *testing.T) {
	for _, test := range []struct {
		hosted    bool
		host      string
		forwarded []string // X-Forwarded-Host
		served    bool
	}{
		{false, "localhost:7071", nil, true},
		{false, "localhost", nil, true},
		{false, "127.0.0.1:7071", nil, true},
		{false, "[::1]:7071", nil, true},
		{false, "evil.example:7071", nil, false},
		{false, "localhost.evil.example", nil, false},
		{false, "go.localhost:7071", nil, true},
		{false, "A.Go.LocalHost", nil, true},
		{false, "evillocalhost", nil, false},
		{false, "go.localhost.evil.example:7071", nil, false},
		{false, "evil.example:go.localhost", nil, false},
		{false, "evil.example/.localhost", nil, false},
		{true, hostAddress, []string{"go.localhost:7071"}, true},
		{true, hostAddress, []string{"evil.example, go.localhost"}, false},
		{true, hostAddress, []string{"evil.example,go.localhost"}, false},
		{false, "192.168.0.7:7071", nil, false},
		{false, "", nil, false},
		{true, hostAddress, nil, true}, // the host's own requests
		{true, "localhost:7071", nil, true},
		{true, "evil.example", nil, false},
		{true, "evil.example", []string{"localhost:7071"}, false},
		{true, hostAddress, []string{"localhost:7071"}, true},
		{true, hostAddress, []string{"evil.example"}, false},
		{true, hostAddress, []string{"localhost, evil.example"}, false},
		{true, hostAddress, []string{"localhost", "evil.example"}, false},
	} {
		r := newRig(t, func(c *functions.Config) {
			if c.LocalOnly = true; !test.hosted {
				c.HostAddress = ""
			}
		})
		for target, status := range map[string]int{"/api/me": 200, "/": 200, "/nobody": 404,
			"/api/nothing": 404} {
			req := httptest.NewRequest("GET", target, nil)
			req.Host = test.host
			req.Header.Set("X-Api-Key", adminKey)
			req.Header["X-Forwarded-Host"] = test.forwarded
			if w := r.send(req); test.served && w.Code != status {
				t.Errorf("%+v: %s is %d", test, target, w.Code)
			} else if !test.served {
				wantProblem(t, w, 403, "foreign-host", "")
			}
		}
	}
	wantStatus(t, newRig(t).do("GET", "/api/me", "", "Host", "tiney.to"), 200, "with another key")
}

func TestWellKnownNames(t *testing.T) {
	r := newRig(t)
	r.fake.Fail(errors.New("must not be asked"))
	if w := r.get("/favicon.ico"); w.Code != 204 ||
		w.Header().Get("Cache-Control") != "public, max-age=86400" {
		t.Errorf("favicon.ico: %d %v", w.Code, w.Header())
	}
	if w := r.get("/robots.txt"); w.Code != 200 ||
		!strings.HasPrefix(w.Body.String(), "User-agent: *\n") {
		t.Errorf("robots.txt: %d %s", w.Code, w.Body)
	}
	r.wantMetrics(map[string]float64{})
}

func TestHealth(t *testing.T) {
	r := newRig(t)
	r.fake.Fail(errors.New("must not be asked"))
	w := r.get("/api/health")
	want := fmt.Sprintf(`{"status":"healthy","timestamp":%q,"version":"v1.2.3"}`+"\n",
		r.clock.Now().Format(time.RFC3339))
	if w.Code != 200 || w.Body.String() != want ||
		w.Header().Get("Content-Type") != "application/json" {
		t.Errorf("got %d %v %s, want %s", w.Code, w.Header(), w.Body, want)
	}
}

func TestReady(t *testing.T) {
	type answer struct {
		Status string
		Checks map[string]struct {
			Status       string
			Milliseconds *int64
		}
	}
	r := newRig(t)
	ask := func(code int, status, tables, lock string) {
		t.Helper()
		start := time.Now()
		w := r.get("/api/ready")
		var a answer
		if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
			t.Fatal(err)
		}
		if w.Code != code || a.Status != status || a.Checks["tables"].Status != tables ||
			a.Checks["lock"].Status != lock || a.Checks["lock"].Milliseconds == nil ||
			len(a.Checks) != 2 {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
		if (w.Header().Get("Retry-After") != "") != (code == 503) {
			t.Errorf("%d with Retry-After %q", code, w.Header().Get("Retry-After"))
		}
		// a failing lock hangs until its context ends
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("took %v", took)
		}
	}
	ask(200, "ready", "ok", "ok")
	if w := r.get("/api/ready"); strings.Contains(w.Body.String(), "storage") {
		t.Errorf("not in memory: %s", w.Body)
	}
	r.fake.Fail(errors.New("a secret"))
	ask(200, "ready", "ok", "ok") // checked a moment ago
	r.clock.Advance(time.Second)
	ask(503, "unavailable", "failed", "ok")
	r.clock.Advance(time.Second)
	ask(503, "unavailable", "failed", "ok")
	if got := strings.Count(r.log.String(), telemetry.LogNotReady); got != 1 {
		t.Errorf("%d lines for one outage", got)
	}
	// In an outage of the primary region the lock fails too. Redirects work all the same.
	r.fake.Fail(link.ErrSecondaryOnly)
	r.lock.fail = errors.New("it hangs")
	r.clock.Advance(time.Second)
	ask(200, "degraded", "secondary", "failed")
	r.fake.Fail(nil)
	r.clock.Advance(time.Second)
	ask(503, "unavailable", "ok", "failed")
}

// counted counts the checks of a part of storage. Each check waits until it may go on.
type counted struct {
	checks atomic.Int64
	goOn   chan struct{}
}

func (c *counted) Ping(context.Context) error {
	c.checks.Add(1)
	<-c.goOn
	return nil
}

func TestReadyChecksOnceForAllWhoAsk(t *testing.T) {
	c := &counted{goOn: make(chan struct{})}
	r := newRig(t, func(config *functions.Config) { config.Tables = c })
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			wantStatus(t, r.get("/api/ready"), 200)
		})
	}
	for c.checks.Load() == 0 {
		runtime.Gosched()
	}
	close(c.goOn)
	all.Wait()
	if got := c.checks.Load(); got != 1 {
		t.Errorf("%d checks, want 1", got)
	}
}

func TestPanicIsA500AndALine(t *testing.T) {
	r := newRig(t, func(c *functions.Config) { c.Links = nil })
	wantProblem(t, r.get("/abcdef"), 500, "internal", "")
	if got := r.log.String(); !strings.Contains(got, `"msg":"panic"`) ||
		!strings.Contains(got, "redirect.go") {
		t.Errorf("logged %s", got)
	}
}

// cut is a response whose body cannot be written.
type cut struct{ *httptest.ResponseRecorder }

func (cut) Write([]byte) (int, error) { panic("in the middle") }

func TestPanicAfterPartOfAResponseAbortsTheConnection(t *testing.T) {
	r := newRig(t)
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("recovered %v", p)
		}
		if got := r.log.String(); !strings.Contains(got, "in the middle") ||
			!strings.Contains(got, `"status":500`) {
			t.Errorf("logged %s", got)
		}
	}()
	r.ServeHTTP(cut{httptest.NewRecorder()}, httptest.NewRequest("GET", "/api/health", nil))
}

// A host that forwards turns a response that comes before the body is read into a 500 of its own; a
// host that proxies does not. Other clients' bodies are read too, up to a limit.
func TestRefusedBodiesAreReadToTheirEndBehindAHostThatForwards(t *testing.T) {
	for _, test := range []struct {
		address string
		id      string // in the header of a host that proxies
		left    bool
	}{{hostAddress, "", false}, {hostAddress, "forged", false}, {hostAddress, invocation, true},
		{"", "", true}} {
		r := newRig(t, func(c *functions.Config) { c.HostAddress = test.address })
		for contentType, status := range map[string]int{"application/json": 413,
			"text/plain": 415} {
			body := strings.NewReader(strings.Repeat("x", 8<<20))
			req := httptest.NewRequest("POST", "/api/shorten", body)
			req.Header.Set("Content-Type", contentType)
			req.Header.Set("X-Azure-Functions-InvocationId", invocation)
			req.Header.Set("X-Ms-Invocation-Id", test.id)
			if w := r.send(req); w.Code != status || (body.Len() > 0) != test.left ||
				body.Len() > 4<<20 {
				t.Errorf("%+v: got %d with %d bytes left", test, w.Code, body.Len())
			}
		}
	}
}

// If the rest of a refused body arrives too late, it is never taken for another request.
func TestTheRestOfABodyIsNoRequest(t *testing.T) {
	for _, start := range []string{
		"Transfer-Encoding: chunked\r\n\r\n10000\r\nabc", "Content-Length: 300000\r\n\r\n" +
			strings.Repeat("x", 100_000),
	} {
		s := httptest.NewUnstartedServer(
			newRig(t, func(c *functions.Config) { c.HostAddress = "" }))
		s.Config.ReadTimeout = 300 * time.Millisecond
		s.Start()
		defer s.Close()
		conn, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "POST /api/import HTTP/1.1\r\nHost: x\r\n"+
			start); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		go func() { // more of the body, until the connection is closed
			for err := error(nil); err == nil; time.Sleep(20 * time.Millisecond) {
				_, err = io.WriteString(conn, "GET /api/health HTTP/1.1\r\nHost: x\r\n\r\n")
			}
		}()
		got, _ := io.ReadAll(conn)
		if strings.Count(string(got), "HTTP/1.1 ") != 1 ||
			!strings.HasPrefix(string(got), "HTTP/1.1 401 ") {
			t.Errorf("%.30q: got %s", start, got)
		}
	}
}

func TestAHostThatForwardsIsLoggedOnce(t *testing.T) {
	for _, test := range []struct {
		agent, proxy string
		want         int
	}{
		{"curl/8 Azure-Functions-Host/4.1037.0", "", 1},
		{"curl/8 Azure-Functions-Host/4.1037.0", "forged", 1},
		{"curl/8 Azure-Functions-Host/4.1037.0", invocation, 0}, // the client wrote the agent
		{"curl/8", "", 0},
		{"Azure-Functions-Host/4.1037.0", "", 0},
	} {
		r := newRig(t)
		for range 2 {
			r.get("/abcdef", "User-Agent", test.agent, "X-Azure-Functions-InvocationId", invocation,
				"X-Ms-Invocation-Id", test.proxy)
		}
		if got := strings.Count(r.log.String(), telemetry.LogLocationRewritten); got != test.want {
			t.Errorf("%+v: %d lines", test, got)
		}
	}
}

func TestLostClientAddressesAreLoggedOnce(t *testing.T) {
	const proxying, forwarding = invocation, ""
	forwarded := access.Addresses{Header: "X-Forwarded-For", Hops: 1}
	for _, test := range []struct {
		proxy     string
		addresses access.Addresses
		want      int
	}{
		{proxying, forwarded, 1},
		{proxying, access.Addresses{Header: "x-forwarded-for", Hops: 3}, 1},
		{proxying, access.Addresses{Header: "Client-Ip", Hops: 1}, 0},
		{proxying, access.Addresses{Header: "X-Forwarded-For"}, 0},
		{forwarding, forwarded, 0},
		{"forged", forwarded, 0},
	} {
		r := newRig(t, func(c *functions.Config) { c.Addresses = test.addresses })
		for range 2 {
			r.get("/abcdef", "User-Agent", "curl/8", "X-Azure-Functions-InvocationId", invocation,
				"X-Ms-Invocation-Id", test.proxy, "X-Forwarded-For", "203.0.113.7")
		}
		if got := strings.Count(r.log.String(), telemetry.LogClientAddressLost); got != test.want ||
			strings.Contains(r.log.String(), "203.0.113.7") {
			t.Errorf("%+v: %d lines: %s", test, got, r.log)
		}
	}
	r := newRig(t, func(c *functions.Config) { c.HostAddress, c.Addresses = "", forwarded })
	r.get("/abcdef", "X-Azure-Functions-InvocationId", invocation, "X-Ms-Invocation-Id", invocation)
	if strings.Contains(r.log.String(), telemetry.LogClientAddressLost) {
		t.Errorf("without a host: %s", r.log)
	}
}

func TestLogHasOneLineARequestWithoutItsPath(t *testing.T) {
	r := newRig(t)
	r.get("/https://example.com/secret?x", "X-Azure-Functions-InvocationId",
		"forged, 4c1e0d7a-5a55-4f0e-9d35-0f6d3b5f9f0c")
	r.do("FORGED", "/abcdef", "")
	lines := strings.Split(strings.TrimSpace(r.log.String()), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], `"method":"other"`) {
		t.Errorf("logged %q", lines)
	}
	if lines = lines[:1]; len(lines) != 1 || strings.Contains(lines[0], "secret") ||
		strings.Contains(lines[0], "forged") ||
		!strings.Contains(lines[0], `"status":404`) ||
		!strings.Contains(lines[0], `"invocation":"4c1e0d7a-5a55-4f0e-9d35-0f6d3b5f9f0c"`) {
		t.Errorf("logged %q", lines)
	}
}

func FuzzShortenBody(f *testing.F) {
	f.Add([]byte(`{"longUrl":"https://example.com/","expiresInSeconds":60}`))
	f.Add([]byte(`{"longUrl":"https://example.com/\ud800","expiresInSeconds":6e1}`))
	f.Add([]byte(`{"longUrl":null}{}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := newRig(t)
		w := r.shorten(string(body))
		if !slices.Contains([]int{201, 400, 413}, w.Code) {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		if w.Code != 201 {
			return
		}
		// encoding/json reads an accepted body in the same way, and the link leads to that long
		// URL.
		var sent, got struct{ LongURL, Alias string }
		if err := json.Unmarshal(body, &sent); err != nil {
			t.Fatalf("accepted %q: %v", body, err)
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.LongURL != sent.LongURL {
			t.Fatalf("%q became %q, %v", sent.LongURL, got.LongURL, err)
		}
		followed := r.get("/" + got.Alias)
		if followed.Header().Get("Location") != link.Location(sent.LongURL) {
			t.Fatalf("%q leads to %q", sent.LongURL, followed.Header().Get("Location"))
		}
	})
}

var raced bool // set by race_test.go

// skipIfRaced skips a test of very many requests under the race detector, which takes long for each
// goroutine. make check runs the test without it, too.
func skipIfRaced(t *testing.T) {
	if raced {
		t.Skip("the race detector takes time and memory")
	}
}

// skipIfSlow leaves a test of what requests take to make check, which runs it with 64 bits and
// without the race detector.
func skipIfSlow(t *testing.T) {
	skipIfRaced(t)
	if testing.Short() || bits.UintSize == 32 {
		t.Skip("it takes long")
	}
}
