package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tiney/internal/azurite"
	"tiney/internal/faultproxy"
	"tiney/internal/freeport"
	"tiney/internal/funchost"
	"tiney/internal/linkstest"
	"tiney/internal/pack"
	"tiney/internal/rawtables"
	"tiney/link"
)

// What the end-to-end tests share: one Azurite, and the app as it is laid out to be run and deployed, but for the race
// detector in its executable.
var (
	emulator azurite.Ports
	app      string
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if app, err = os.MkdirTemp("", "tiney-app-"); err == nil {
			defer os.RemoveAll(app)
			err = pack.Dir("../..", app, pack.Target{OS: runtime.GOOS, Arch: runtime.GOARCH, Race: true})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return azurite.ForTests(func(ports azurite.Ports) int {
			emulator = ports
			return m.Run()
		})
	}())
}

var ctx = context.Background()

// site is one set of tables with processes that serve from it, each with a way to storage that can be tampered with.
type site struct {
	t *testing.T
	*rawtables.Tables
	prefix string
	app    string // where the app is laid out
}

var sites atomic.Int64

func newSite(t *testing.T) *site {
	t.Helper()
	prefix := fmt.Sprintf("E%d", sites.Add(1))
	s := &site{t: t, prefix: prefix, app: app, Tables: rawtables.Open(t, emulator.ConnectionString(), prefix)}
	s.Make()
	return s
}

// environment is all that a process of the site gets, the additional settings included.
func (s *site) environment(connectionString string, more ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"GORACE=halt_on_error=1", // a race ends the process, which no test takes for granted
		"AzureWebJobsStorage=" + connectionString,
		"SHORTURL_TABLE_NAME=" + s.Links, "URLINDEX_TABLE_NAME=" + s.Index, "EXPIRYINDEX_TABLE_NAME=" + s.Expiry,
		"GC_BLOB_LOCK_CONTAINER=" + strings.ToLower(s.prefix) + "-locks",
		"BaseUrl=https://tiney.to",
	}, more...)
}

func (s *site) proxy() *faultproxy.Proxy {
	p := faultproxy.Start(emulator)
	s.t.Cleanup(p.Close)
	return p
}

// hosted starts the app behind the host double.
func (s *site) hosted(proxy bool, connectionString string, more ...string) *funchost.Host {
	s.t.Helper()
	h, err := funchost.Start(ctx, funchost.Options{ScriptRoot: s.app, Env: s.environment(connectionString, more...), Proxy: proxy, Output: s.t.Output()})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(h.Close)
	return h
}

// process is the executable on its own.
type process struct {
	cmd    *exec.Cmd
	url    string
	output *lockedBuffer
	exited chan struct{}
}

type lockedBuffer struct {
	mu   sync.Mutex
	said bytes.Buffer // not embedded: its ReadFrom would go round the lock
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.said.String()
}

// start starts the executable on its own, on a free port, and does not wait for it.
func (s *site) start(connectionString string, more ...string) *process {
	s.t.Helper()
	port, err := freeport.Find()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &process{cmd: exec.Command(filepath.Join(s.app, "handler")), url: fmt.Sprintf("http://127.0.0.1:%d", port), output: new(lockedBuffer), exited: make(chan struct{})}
	p.cmd.Env = s.environment(connectionString, append([]string{fmt.Sprintf("PORT=%d", port)}, more...)...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.exited) }()
	s.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.exited
		if s.t.Failed() {
			s.t.Logf("a process said:\n%s", p.output)
		}
	})
	return p
}

// alone starts the executable on its own and waits until it answers.
func (s *site) alone(connectionString string, more ...string) *process {
	s.t.Helper()
	p := s.start(connectionString, more...)
	eventually(s.t, "it answers", func() bool {
		answer, err := http.Get(p.url + "/api/health")
		if err != nil {
			return false
		}
		answer.Body.Close()
		return true
	})
	return p
}

func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// answer is what came back for a request.
type answer struct {
	status int
	header http.Header
	body   string
}

var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       time.Minute,
}

func send(method, url, body string, header ...string) (answer, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	got, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer got.Body.Close()
	said, err := io.ReadAll(got.Body)
	return answer{got.StatusCode, got.Header, string(said)}, err
}

func must(t *testing.T, method, url, body string, header ...string) answer {
	t.Helper()
	a, err := send(method, url, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return a
}

type shortened struct {
	Alias, ShortURL, LongURL   string
	CreatedAtUTC, ExpiresAtUTC time.Time
}

// shorten asks for a short link; a status of 0 means that no answer came.
func shorten(t *testing.T, base, longURL string) (shortened, int) {
	t.Helper()
	a, err := send(http.MethodPost, base+"/api/shorten", fmt.Sprintf(`{"longUrl":%q}`, longURL))
	if err != nil {
		return shortened{}, 0
	}
	var l shortened
	if a.status == 200 || a.status == 201 {
		if err := json.Unmarshal([]byte(a.body), &l); err != nil {
			t.Error(err)
		}
	}
	return l, a.status
}

// modes are the ways to run the app. Behind the host, what no route matches never reaches it.
var modes = map[string]func(s *site) (base string, hosted bool){
	"behind a host that forwards": func(s *site) (string, bool) { return s.hosted(false, emulator.ConnectionString()).URL(), true },
	"behind a host that proxies":  func(s *site) (string, bool) { return s.hosted(true, emulator.ConnectionString()).URL(), true },
	"on its own":                  func(s *site) (string, bool) { return s.alone(emulator.ConnectionString()).url, false },
}

// exchange is a request and what must come back.
type exchange struct {
	name, method, target, body string
	header                     []string
	status                     int
	contentType, contains      string
	location                   string
	hostStatus                 int // where a host in front answers itself, without a body
}

const (
	page    = "text/html; charset=utf-8"
	problem = "application/problem+json"
	browser = "text/html,application/xhtml+xml,*/*;q=0.8"
	good    = `{"longUrl":"https://example.com/?a=1&a=2#<x>","expiresInSeconds":3600}`
)

// everyAnswer is in this order since the second shorten of a URL finds the first one's link.
var everyAnswer = []exchange{
	{name: "home", method: "GET", target: "/", status: 200, contentType: page, contains: "https://tiney.to/api/shorten"},
	{name: "home, HEAD", method: "HEAD", target: "/", status: 200, contentType: page},
	{name: "home, POST", method: "POST", target: "/", status: 405, contentType: problem, hostStatus: 404},
	{name: "health", method: "GET", target: "/api/health", status: 200, contentType: "application/json", contains: `{"status":"healthy","timestamp":"20`},
	{name: "ready", method: "GET", target: "/api/ready", status: 200, contentType: "application/json", contains: `"status":"ready"`},
	{name: "favicon", method: "GET", target: "/favicon.ico", status: 204},
	{name: "robots", method: "GET", target: "/robots.txt", status: 200, contentType: "text/plain; charset=utf-8", contains: "User-agent: *"},

	{name: "new", method: "POST", target: "/api/shorten", body: good, status: 201, contentType: "application/json", contains: `"longUrl":"https://example.com/?a=1&a=2#<x>"`},
	{name: "known", method: "POST", target: "/api/shorten", body: good, status: 200, contentType: "application/json", contains: `"shortUrl":"https://tiney.to/`},
	{name: "with charset", method: "POST", target: "/api/shorten", body: good, header: []string{"Content-Type", "application/json; charset=utf-8"}, status: 200},
	{name: "forged host", method: "POST", target: "/api/shorten", body: good, header: []string{"Host", "evil.example", "X-Forwarded-Host", "evil.example"}, status: 200, contains: `"shortUrl":"https://tiney.to/`},
	{name: "no body", method: "POST", target: "/api/shorten", status: 400, contentType: problem, contains: `"type":"/problems/body"`},
	{name: "not JSON", method: "POST", target: "/api/shorten", body: "x", status: 400, contentType: problem},
	{name: "not UTF-8", method: "POST", target: "/api/shorten", body: "{\"longUrl\":\"https://example.com/\xff\"}", status: 400, contentType: problem},
	{name: "unknown field", method: "POST", target: "/api/shorten", body: `{"longUrl":"https://example.com","alias":"x"}`, status: 400, contentType: problem, contains: `"field":"alias"`},
	{name: "bad URL", method: "POST", target: "/api/shorten", body: `{"longUrl":"http://1.2.3.08"}`, status: 400, contentType: problem, contains: `"field":"longUrl"`},
	{name: "our own URL", method: "POST", target: "/api/shorten", body: `{"longUrl":"https://TINEY.to.:444/x"}`, status: 400, contentType: problem, contains: `"field":"longUrl"`},
	{name: "bad lifetime", method: "POST", target: "/api/shorten", body: `{"longUrl":"https://example.com","expiresInSeconds":59}`, status: 400, contentType: problem, contains: `"field":"expiresInSeconds"`},
	{name: "disabled target", method: "POST", target: "/api/shorten", body: `{"longUrl":"https://example.com/disabled"}`, status: 403, contentType: problem, contains: "target-disabled"},
	{name: "a form", method: "POST", target: "/api/shorten", body: "longUrl=x", header: []string{"Content-Type", "application/x-www-form-urlencoded"}, status: 415, contentType: problem},
	{name: "too large", method: "POST", target: "/api/shorten", body: strings.Repeat(" ", 16<<10) + good, status: 413, contentType: problem},
	{name: "GET on shorten", method: "GET", target: "/api/shorten", status: 405, contentType: problem, hostStatus: 404},

	{name: "redirect", method: "GET", target: "/live", status: 302, location: "https://example.com/live?a=<b>"},
	{name: "redirect, query ignored", method: "GET", target: "/live?a=1&a=2", status: 302, location: "https://example.com/live?a=<b>"},
	{name: "redirect, HEAD", method: "HEAD", target: "/live", status: 302, location: "https://example.com/live?a=<b>"},
	{name: "redirect, browser", method: "GET", target: "/live", header: []string{"Accept", browser}, status: 302, location: "https://example.com/live?a=<b>"},
	{name: "redirect to non-ASCII", method: "GET", target: "/q", status: 302, location: "https://xn--bcher-kva.example:8080/%C3%BC"},
	{name: "redirect of another program", method: "GET", target: "/Other-1", status: 302, location: "https://example.com/other"},
	{name: "unknown", method: "GET", target: "/nobody", status: 404, contentType: problem, contains: "not-found"},
	{name: "unknown, other case", method: "GET", target: "/LIVE", status: 404, contentType: problem},
	{name: "unknown, browser", method: "GET", target: "/nobody", header: []string{"Accept", browser}, status: 404, contentType: page, contains: "No such link"},
	{name: "no alias", method: "GET", target: "/a.b", status: 404, contentType: problem},
	{name: "too long for an alias", method: "GET", target: "/" + strings.Repeat("a", 33), status: 404, contentType: problem},
	{name: "several segments", method: "GET", target: "/a/b/c", status: 404, contentType: problem, hostStatus: 404},
	{name: "path to be cleaned", method: "GET", target: "/x/../live", status: 404, contentType: problem, hostStatus: 404},
	{name: "expired", method: "GET", target: "/expired", status: 410, contentType: problem, contains: "link-expired"},
	{name: "expired, browser", method: "GET", target: "/expired", header: []string{"Accept", browser}, status: 410, contentType: page},
	{name: "disabled", method: "GET", target: "/disabled", status: 410, contentType: problem, contains: "link-disabled"},
	{name: "POST on an alias", method: "POST", target: "/live", status: 405, contentType: problem, hostStatus: 404},
	{name: "DELETE on an alias", method: "DELETE", target: "/live", status: 405, contentType: problem, hostStatus: 404},
	{name: "the timer's endpoint", method: "POST", target: "/reaper", body: "{}", status: 405, contentType: problem, hostStatus: 404},
}

func TestEveryAnswerInEveryMode(t *testing.T) {
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for mode, start := range modes {
		t.Run(mode, func(t *testing.T) {
			s := newSite(t)
			for _, l := range []link.Link{
				{Alias: "live", LongURL: "https://example.com/live?a=<b>", ExpiresAt: future},
				{Alias: "q", LongURL: "https://bücher.example:8080/ü"},
				{Alias: "expired", LongURL: "https://example.com/expired", ExpiresAt: past},
				{Alias: "disabled", LongURL: "https://example.com/disabled", Disabled: true},
			} {
				s.PutLink(l)
			}
			s.Put(s.Links, rawtables.Entity{"PartitionKey": "ot", "RowKey": "Other-1", "LongUrl": "https://example.com/other", "Clicks": 3, "Owner": "x"})
			base, hosted := start(s)
			eventually(t, "it is ready", func() bool { return must(t, http.MethodGet, base+"/api/ready", "").status == 200 })
			for _, e := range everyAnswer {
				t.Run(e.name, func(t *testing.T) { e.check(t, base, hosted) })
			}
		})
	}
}

func (e exchange) check(t *testing.T, base string, hosted bool) {
	got := must(t, e.method, base+e.target, e.body, e.header...)
	if hosted && e.hostStatus != 0 {
		if got.status != e.hostStatus || got.body != "" {
			t.Errorf("got %+v, want the host's own %d", got, e.hostStatus)
		}
		return
	}
	if got.status != e.status || !strings.Contains(got.body, e.contains) {
		t.Errorf("got %+v", got)
	}
	if location := got.header.Get("Location"); location != e.location && e.status == 302 {
		t.Errorf("Location %q, want %q", location, e.location)
	}
	if contentType := got.header.Get("Content-Type"); e.contentType != "" && contentType != e.contentType {
		t.Errorf("Content-Type %q, want %q", contentType, e.contentType)
	}
}

func TestAChunkedBody(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct {
		base string
		want int
	}{
		{s.hosted(false, emulator.ConnectionString()).URL(), 500}, // by the host, which cannot forward one
		{s.hosted(true, emulator.ConnectionString()).URL(), 201},
		{s.alone(emulator.ConnectionString()).url, 200},
	} {
		req, err := http.NewRequest(http.MethodPost, test.base+"/api/shorten", io.MultiReader(strings.NewReader(`{"longUrl":"https://example.com/"}`)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		got, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != test.want {
			t.Errorf("got %d, want %d", got.StatusCode, test.want)
		}
	}
}

// A link from its making to its end, as its users see it.
func TestALinksLife(t *testing.T) {
	for mode, start := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			base, _ := start(s)
			l, status := shorten(t, base, "https://example.com/page")
			if status != 201 || l.ShortURL != "https://tiney.to/"+l.Alias || !l.ExpiresAtUTC.Equal(l.CreatedAtUTC.Add(30*24*time.Hour)) {
				t.Fatalf("got %d %+v", status, l)
			}
			if got := must(t, http.MethodGet, base+"/"+l.Alias, ""); got.status != 302 || got.header.Get("Location") != "https://example.com/page" {
				t.Errorf("got %+v", got)
			}
			s.WantRows(1, 1, 1)
			for life := 6 * time.Second; ; life *= 2 {
				short := link.Link{Alias: link.Alias(fmt.Sprintf("short-%.0f", life.Seconds())), LongURL: "https://example.com/short",
					ExpiresAt: time.Now().Add(life).Truncate(time.Second)}
				s.PutLink(short)
				url := base + "/" + string(short.Alias)
				got := must(t, http.MethodGet, url, "")
				if !time.Now().Before(short.ExpiresAt) && life < time.Minute {
					continue // the machine is too slow to see it alive
				}
				if got.status != 302 {
					t.Errorf("while it lives: %+v", got)
				}
				eventually(t, "the link expires", func() bool { return must(t, http.MethodGet, url, "").status == 410 })
				break
			}
		})
	}
}

// Under `func start` nobody has to say where the service is reached.
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
	h := s.hosted(true, emulator.ConnectionString())
	bases := []string{h.URL(), s.alone(emulator.ConnectionString()).url}
	inTime := true // no call can have been tried again, which leaves an expiry row to the reaper
	for round := range 3 {
		start := time.Now()
		var aliases sync.Map
		linkstest.CreateAtOnce(t, 64, func(i int) (link.Link, bool, error) {
			l, status := shorten(t, bases[i%2], fmt.Sprintf("https://example.com/%d", round))
			switch status {
			case 200, 201:
				aliases.Store(l.Alias, true)
				return link.Link{Alias: link.Alias(l.Alias)}, status == 201, nil
			case 503:
				return link.Link{}, false, link.ErrUnavailable
			}
			return link.Link{}, false, fmt.Errorf("got %d", status)
		})
		inTime = inTime && time.Since(start) < time.Second
		aliases.Range(func(a, _ any) bool {
			for _, base := range bases {
				if got := must(t, http.MethodGet, base+"/"+a.(string), ""); got.status != 302 {
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
	if _, err := h.FireTimer(ctx, "reaper"); err != nil {
		t.Error(err)
	}
	s.WantRows(0, 0, 0)
}

// killAt kills a host's process at its nth storage call of the kinds that count, before it reaches storage or after it
// was applied.
func killAt(p *faultproxy.Proxy, h *funchost.Host, n int, after bool, counts func(faultproxy.Call) bool) {
	p.Reset()
	seen := 0
	var mu sync.Mutex
	die := func(c faultproxy.Call) bool {
		mu.Lock()
		defer mu.Unlock()
		if !counts(c) {
			return false
		}
		if seen++; seen != n {
			return false
		}
		h.Kill()
		return true
	}
	if after {
		p.After(func(c faultproxy.Call) { die(c) })
		return
	}
	p.Before(func(c faultproxy.Call) faultproxy.Fault {
		if die(c) {
			return faultproxy.Refuse
		}
		return faultproxy.None
	})
}

func onEntities(c faultproxy.Call) bool {
	return strings.HasSuffix(c.Operation, "Entity") || c.Operation == "SubmitTransaction"
}

func TestKilledAtEveryStorageCallOfACreate(t *testing.T) {
	for _, replace := range []bool{false, true} {
		calls := 4
		if replace {
			calls = 5 // the stale index row's link is read too
		}
		for n := 1; n <= calls; n++ {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("replacing=%t, call %d, after=%t", replace, n, after), func(t *testing.T) {
					s := newSite(t)
					if replace {
						s.PutLink(link.Link{Alias: "stale", LongURL: "https://example.com/page", ExpiresAt: time.Now().Add(-time.Hour)})
					}
					p := s.proxy()
					h := s.hosted(false, p.ConnectionString())
					kept, status := shorten(t, h.URL(), "https://example.com/kept")
					if status != 201 {
						t.Fatalf("got %d", status)
					}
					killAt(p, h, n, after, onEntities)
					told, status := shorten(t, h.URL(), "https://example.com/page")
					if status == 201 {
						t.Errorf("acknowledged by a process that was killed: %+v", told)
					}
					p.Reset()
					s.WantNoLeak()
					if err := h.Restart(ctx); err != nil {
						t.Fatal(err)
					}
					again, status := shorten(t, h.URL(), "https://example.com/page")
					if status != 201 && status != 200 {
						t.Errorf("after the restart: %d", status)
					}
					for _, l := range []shortened{kept, again} {
						if got := must(t, http.MethodGet, h.URL()+"/"+l.Alias, ""); got.status != 302 || got.header.Get("Location") != l.LongURL {
							t.Errorf("%s: got %+v", l.Alias, got)
						}
					}
					s.Age(40 * 24 * time.Hour)
					s.WantNoLeak()
					if _, err := h.FireTimer(ctx, "reaper"); err != nil {
						t.Error(err)
					}
					s.WantRows(0, 0, 0)
				})
			}
		}
	}
}

func TestKilledAtEveryStorageCallOfAReap(t *testing.T) {
	// One read for the time, two reads and two deletes for each of the three links that are due, and a delete and a batch
	// for their expiry rows of two days.
	for n := 1; n <= 15; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d, after=%t", n, after), func(t *testing.T) {
				s := newSite(t)
				at := time.Now().Add(-10 * 24 * time.Hour)
				due := []link.Link{
					{Alias: "due", LongURL: "https://example.com/due", ExpiresAt: at},
					{Alias: "dueToo", LongURL: "https://example.com/due/too", ExpiresAt: at},
					{Alias: "dueBefore", LongURL: "https://example.com/due/before", ExpiresAt: at.Add(-24 * time.Hour)},
				}
				for _, l := range due {
					s.PutLink(l)
				}
				p := s.proxy()
				h := s.hosted(false, p.ConnectionString())
				live, status := shorten(t, h.URL(), "https://example.com/live")
				if status != 201 {
					t.Fatalf("got %d", status)
				}
				killAt(p, h, n, after, onEntities)
				if _, err := h.FireTimer(ctx, "reaper"); err == nil {
					t.Error("the run ended although its process was killed")
				}
				p.Reset()
				s.WantNoLeak()
				if err := h.Restart(ctx); err != nil {
					t.Fatal(err)
				}
				// The lease of the killed process stands for a minute. Another lock stands for the waiting.
				got, err := h.FireTimer(ctx, "reaper")
				if err != nil || len(got.Logs) != 1 || got.Logs[0] != "another instance is reaping" {
					t.Errorf("while the lease stands: %+v, %v", got, err)
				}
				other := s.hosted(false, emulator.ConnectionString(), "GC_BLOB_LOCK_BLOB=another.lock")
				if _, err := other.FireTimer(ctx, "reaper"); err != nil {
					t.Error(err)
				}
				s.WantRows(1, 1, 1)
				if got := must(t, http.MethodGet, h.URL()+"/"+live.Alias, ""); got.status != 302 {
					t.Errorf("the live link: %+v", got)
				}
				for _, l := range due {
					if got := must(t, http.MethodGet, h.URL()+"/"+string(l.Alias), ""); got.status != 404 {
						t.Errorf("the expired link %s: %+v", l.Alias, got)
					}
				}
			})
		}
	}
}

func TestReaperCatchesUpBehindTheHostAndOnItsOwn(t *testing.T) {
	backlog := func(s *site) {
		for d := range 10 {
			for i := range 5 {
				s.PutLink(link.Link{Alias: link.Alias(fmt.Sprintf("due-%d-%d", d, i)), LongURL: fmt.Sprintf("https://example.com/%d/%d", d, i),
					ExpiresAt: time.Now().Add(-time.Duration(d)*24*time.Hour - time.Minute)})
			}
		}
		s.PutLink(link.Link{Alias: "forever", LongURL: "https://example.com/forever"})
		s.PutLink(link.Link{Alias: "live", LongURL: "https://example.com/live", ExpiresAt: time.Now().Add(time.Hour)})
	}
	t.Run("behind the host", func(t *testing.T) {
		s := newSite(t)
		backlog(s)
		h := s.hosted(true, emulator.ConnectionString())
		for _, timer := range []funchost.Timer{{PastDue: true}, {NullStatus: true}, {FirstRun: true}} {
			if got, err := h.FireTimerWith(ctx, "reaper", timer); err != nil || len(got.Logs) != 1 || !strings.HasPrefix(got.Logs[0], "deleted ") {
				t.Errorf("got %+v, %v", got, err)
			}
			s.WantRows(2, 2, 1)
		}
	})
	t.Run("on its own", func(t *testing.T) {
		s := newSite(t)
		backlog(s)
		p := s.alone(emulator.ConnectionString())
		eventually(t, "the first run is over", func() bool { return strings.Contains(p.output.String(), `"msg":"reaper: done","deleted":50`) })
		s.WantRows(2, 2, 1)
	})
}

func TestStorageThatIsDownAtTheStartAndComesUp(t *testing.T) {
	ports, err := azurite.FreePorts()
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	p := s.alone(ports.ConnectionString())
	for target, want := range map[string]int{"/": 200, "/api/health": 200, "/favicon.ico": 204, "/a.b": 404, "/nobody": 503, "/api/ready": 503} {
		if got := must(t, http.MethodGet, p.url+target, ""); got.status != want || want == 503 && got.header.Get("Retry-After") == "" {
			t.Errorf("%s: got %+v, want %d", target, got, want)
		}
	}
	if got := must(t, http.MethodPost, p.url+"/api/shorten", `{"longUrl":"https://example.com/"}`); got.status != 503 || got.header.Get("Retry-After") != "5" {
		t.Errorf("shorten: got %+v", got)
	}
	storage, err := azurite.Start(ctx, ports, "", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer storage.Stop()
	var l shortened
	eventually(t, "a link is made after it came up", func() (made bool) {
		var status int
		l, status = shorten(t, p.url, "https://example.com/")
		return status == 201 || status == 200 // the answer to the first one may have been late
	})
	if got := must(t, http.MethodGet, p.url+"/"+l.Alias, ""); got.status != 302 {
		t.Errorf("got %+v", got)
	}
	eventually(t, "the container for the lock is made", func() bool { return must(t, http.MethodGet, p.url+"/api/ready", "").status == 200 })
}

func TestStopFinishesWhatRuns(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(signal.String(), func(t *testing.T) {
			s := newSite(t)
			proxy := s.proxy()
			p := s.alone(proxy.ConnectionString())
			eventually(t, "it is ready", func() bool { return must(t, http.MethodGet, p.url+"/api/ready", "").status == 200 })
			reached, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			proxy.Reset()
			proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
				if c.Operation == "InsertEntity" && c.Target == s.Links {
					once.Do(func() { close(reached); <-release })
				}
				return faultproxy.None
			})
			done := make(chan int, 1)
			go func() {
				_, status := shorten(t, p.url, "https://example.com/")
				done <- status
			}()
			<-reached
			if err := p.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it takes no more connections", func() bool {
				conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
				if err == nil {
					conn.Close()
				}
				return err != nil
			})
			close(release)
			if status := <-done; status != 201 {
				t.Errorf("the request that ran got %d, want 201", status)
			}
			<-p.exited
			if code := p.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if !strings.Contains(p.output.String(), `"shorten.created":1`) {
				t.Errorf("the last line does not tell what was done:\n%s", p.output)
			}
			s.WantRows(1, 1, 1)
		})
	}
}

func TestStartsThatFail(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := newSite(t)
	for name, test := range map[string]struct {
		connection string
		more       []string
		says       []string
	}{
		"two settings are wrong": {emulator.ConnectionString(), []string{"ALIAS_LENGTH=2", "CACHE_SIZE_MB=no"}, []string{"these settings are wrong", "ALIAS_LENGTH must be", "CACHE_SIZE_MB must be"}},
		"no storage is named":    {"", nil, []string{"AzureWebJobsStorage is required"}},
		"the port is taken":      {emulator.ConnectionString(), []string{"PORT=" + strings.Split(taken.Addr().String(), ":")[1]}, []string{"cannot listen on 127.0.0.1:", "PORT"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.start(test.connection, test.more...)
			<-p.exited
			if code := p.cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			for _, says := range test.says {
				if !strings.Contains(p.output.String(), says) {
					t.Errorf("it does not say %q:\n%s", says, p.output)
				}
			}
		})
	}
}

func TestRequestsThatAreTooMuch(t *testing.T) {
	s := newSite(t)
	p := s.alone(emulator.ConnectionString())
	got, err := send(http.MethodGet, p.url+"/nobody", "", "X-Much", strings.Repeat("x", 64<<10))
	if err != nil || got.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 64 KiB: %+v, %v", got, err)
	}
	// A body that says it is endless is refused without being read to its end.
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /api/shorten HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000000000\r\n\r\n")
	go func() {
		for {
			if _, err := conn.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}()
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	first := make([]byte, len("HTTP/1.1 413"))
	if _, err := io.ReadFull(conn, first); err != nil && !errors.Is(err, syscall.ECONNRESET) || err == nil && string(first) != "HTTP/1.1 413" {
		t.Errorf("got %q, %v", first, err)
	}
}
