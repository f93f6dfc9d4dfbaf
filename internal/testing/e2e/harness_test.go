// Package e2e tests the executable from outside, as it is deployed. It runs behind a double of the
// Functions host and on its own, with Azurite as its storage.
package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/testing/azurite"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/freeport"
	"tiney/internal/testing/funchost"
	"tiney/internal/testing/openapi"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
	"tiney/internal/tools/pack"
)

// All tests share one Azurite and one app. The app is laid out as for a deployment. Unless tests
// are to be short, its executable is built with the race detector, which needs a C compiler. These
// tests themselves do without.
var (
	emulator azurite.Ports
	app      string
	deployed func() (dir string, err error) // lays the app out without the race detector, once
)

func TestMain(m *testing.M) {
	flag.Parse() // for testing.Short
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "tiney-app-")
		if err == nil {
			defer os.RemoveAll(dir)
			app = filepath.Join(dir, "app")
			err = pack.Dir("../../..", app, pack.Target{OS: runtime.GOOS, Arch: runtime.GOARCH,
				Race: !testing.Short()})
		}
		deployed = sync.OnceValues(func() (string, error) {
			dir := filepath.Join(dir, "deployed")
			return dir, pack.Dir("../../..", dir, pack.Target{OS: runtime.GOOS,
				Arch: runtime.GOARCH})
		})
		var document *openapi.Document
		if err == nil {
			document, err = openapi.Load("../../..")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		// Every exchange is checked against the API's description.
		var wrong atomic.Int64
		testutil.Client.Transport = &openapi.Transport{RoundTripper: http.DefaultTransport,
			Document: document, Skip: notTheServices, Report: func(err error) {
				wrong.Add(1)
				fmt.Fprintln(os.Stderr, "not as functions/openapi.json has it:", err)
			}}
		return azurite.ForTests(func(ports azurite.Ports) int {
			emulator = ports
			return max(m.Run(), int(min(wrong.Load(), 1)))
		})
	}())
}

// hosts are the addresses of doubles of the Functions host.
var hosts sync.Map

// notTheServices reports whether a response is not the service's own. Such a response comes from
// the Functions host, or belongs to a path that the host has rewritten, or is net/http's response
// to a header that is too large. Every response of the service has Cache-Control, except those to
// OPTIONS.
func notTheServices(r *http.Response) bool {
	_, hosted := hosts.Load(r.Request.URL.Host)
	return r.StatusCode == http.StatusRequestHeaderFieldsTooLarge ||
		hosted && (r.StatusCode >= 300 && r.Header.Get("Cache-Control") == "" ||
			strings.Contains(r.Request.URL.Path, "/../"))
}

var ctx = context.Background()

// site is one set of tables. It starts processes that serve from them.
type site struct {
	t *testing.T
	*rawtables.Tables
	lock string // the container of the reaper's lock
	app  string // the folder of the app
}

// deploy returns the folder of the app as it is deployed, without the race detector, which would
// multiply its use of memory.
func deploy(t *testing.T) string {
	t.Helper()
	dir, err := deployed()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var sites atomic.Int64

func newSite(t *testing.T) *site {
	t.Helper()
	testutil.BuildsProject(t)
	prefix := fmt.Sprintf("E%d", sites.Add(1))
	s := &site{t: t, lock: strings.ToLower(prefix) + "-locks", app: app,
		Tables: rawtables.Open(t, emulator.ConnectionString(), prefix)}
	s.Make()
	return s
}

// adminKey is the admin key of all processes.
const adminKey = "the-admin-key-of-the-tests-9f8e7d6c5b4a"

// environment returns the whole environment of a process, with the additional settings.
func (s *site) environment(connectionString string, more ...string) []string {
	return append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"),
		"GORACE=halt_on_error=1", // a race ends the process, which fails every test
		"AzureWebJobsStorage=" + connectionString,
		"SHORTURL_TABLE_NAME=" + s.Links, "URLINDEX_TABLE_NAME=" + s.Index,
		"EXPIRYINDEX_TABLE_NAME=" + s.Expiry,
		"GC_BLOB_LOCK_CONTAINER=" + s.lock,
		fmt.Sprintf("TOMBSTONE_DAYS=%d", s.TombstoneFor/(24*time.Hour)),
		"BaseUrl=https://tiney.to",
		"ADMIN_KEY=" + adminKey,
		// All tests count as one client.
		"RATE_SHORTEN_PER_MINUTE=0", "RATE_UNKNOWN_PER_MINUTE=0", "RATE_API_PER_MINUTE=0",
	}, more...)
}

// proxy starts a proxy in front of storage. It can inject faults.
func (s *site) proxy() *faultproxy.Proxy {
	p := faultproxy.Start(emulator)
	s.t.Cleanup(p.Close)
	return p
}

// hosted starts the app behind the double of the host.
func (s *site) hosted(proxy bool, connectionString string, more ...string) *funchost.Host {
	s.t.Helper()
	return s.hostedAs(funchost.Options{Proxy: proxy}, connectionString, more...)
}

func (s *site) hostedAs(opt funchost.Options, connectionString string,
	more ...string) *funchost.Host {
	s.t.Helper()
	opt.ScriptRoot, opt.Output, opt.Env = s.app, s.t.Output(),
		s.environment(connectionString, more...)
	h, err := funchost.Start(ctx, opt)
	if err != nil {
		s.t.Fatal(err)
	}
	hosts.Store(strings.TrimPrefix(h.URL(), "http://"), true)
	s.t.Cleanup(func() {
		if h.Failed() { // as after a data race
			s.t.Error("the handler has ended by itself")
		}
		h.Close()
	})
	return h
}

// process is a run of the executable without a host.
type process struct {
	cmd    *exec.Cmd
	url    string
	output testutil.Buffer
	exited chan struct{} // closed when it has been waited for
}

// start starts the executable on a free port. It does not wait until it serves.
func (s *site) start(connectionString string, more ...string) *process {
	s.t.Helper()
	port, err := freeport.Find()
	if err != nil {
		s.t.Fatal(err)
	}
	p := &process{cmd: exec.Command(filepath.Join(s.app, "handler")),
		url: fmt.Sprintf("http://127.0.0.1:%d", port), exited: make(chan struct{})}
	p.cmd.Env = s.environment(connectionString, append([]string{fmt.Sprintf("PORT=%d", port)},
		more...)...)
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	if err := p.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.exited) }()
	s.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.exited
		if s.t.Failed() {
			s.t.Logf("output of a process:\n%s", &p.output)
		}
	})
	return p
}

// standalone starts the executable and waits until it responds. If another process takes the port
// first, the executable ends, and standalone starts it again.
func (s *site) standalone(connectionString string, more ...string) *process {
	s.t.Helper()
	for attempt := 1; ; attempt++ {
		p := s.start(connectionString, more...)
		responds := false
		testutil.Eventually(s.t, "the process responds or ends", func() bool {
			_, err := testutil.Send(http.MethodGet, p.url+"/api/health", "")
			responds = err == nil
			return responds || p.ended()
		})
		if responds && !p.ended() {
			return p
		}
		if attempt == 3 {
			s.t.Fatal("the process ends as soon as it is started")
		}
	}
}

func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// stop interrupts a process, as Ctrl-C does, and waits for its end.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case <-p.exited:
	case <-time.After(time.Minute):
		t.Fatal("it does not stop")
	}
}

// request sends a request and fails the test if there is no response.
func request(t *testing.T, method, url, body string, headers ...string) testutil.Response {
	t.Helper()
	got, err := testutil.Send(method, url, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func get(t *testing.T, url string, headers ...string) testutil.Response {
	t.Helper()
	return request(t, http.MethodGet, url, "", headers...)
}

// awaitReady waits until a process has made its tables and its lock.
func awaitReady(t *testing.T, base string) {
	t.Helper()
	testutil.Eventually(t, "it is ready", func() bool {
		return get(t, base+"/api/ready").Status == 200
	})
}

type shortLink struct {
	Alias, ShortURL, LongURL   string
	CreatedAtUTC, ExpiresAtUTC time.Time
}

// shorten asks for a short link. It returns status 0 if there was no response.
func shorten(t *testing.T, base, longURL string) (shortLink, int) {
	t.Helper()
	got, err := testutil.Send(http.MethodPost, base+"/api/shorten", fmt.Sprintf(`{"longUrl":%q}`,
		longURL))
	if err != nil {
		return shortLink{}, 0
	}
	var l shortLink
	if got.Status == 200 || got.Status == 201 {
		if err := json.Unmarshal([]byte(got.Body), &l); err != nil {
			t.Error(err)
		}
	}
	return l, got.Status
}

// mustShorten asks for a short link until it gets one. A busy machine may be too slow for the
// service's five seconds, and a 503 tells the caller to repeat the request.
func mustShorten(t *testing.T, base, longURL string) (l shortLink) {
	t.Helper()
	testutil.Eventually(t, "a link is made", func() bool {
		var status int
		l, status = shorten(t, base, longURL)
		if status != 200 && status != 201 && status != 503 {
			t.Fatalf("got %d", status)
		}
		return status != 503
	})
	return l
}

// caller sends requests to a process, with one credential or none.
type caller struct {
	t           *testing.T
	base, token string
}

// send returns the response, and fails the test if there is none. The body of a PATCH is a merge
// patch, unless the headers say otherwise.
func (c caller) send(method, target, body string, headers ...string) testutil.Response {
	c.t.Helper()
	if method == http.MethodPatch {
		headers = append([]string{"Content-Type", "application/merge-patch+json"}, headers...)
	}
	if c.token != "" {
		headers = append([]string{"Authorization", "Bearer " + c.token}, headers...)
	}
	return request(c.t, method, c.base+target, body, headers...)
}

// patiently sends a request until the response is no 503, which a busy machine may cause.
func (c caller) patiently(method, target, body string, headers ...string) (got testutil.Response) {
	c.t.Helper()
	testutil.Eventually(c.t, method+" "+target, func() bool {
		got = c.send(method, target, body, headers...)
		return got.Status != http.StatusServiceUnavailable
	})
	return got
}

// must sends a request patiently. The response must have the given status, or 200 instead of 201
// since the request may have been repeated. must returns the members of the body and the headers.
func (c caller) must(status int, method, target, body string, headers ...string) map[string]any {
	c.t.Helper()
	got := c.patiently(method, target, body, headers...)
	if got.Status != status && (status != http.StatusCreated || got.Status != http.StatusOK) {
		c.t.Fatalf("%s %s: got %+v, want %d", method, target, got, status)
	}
	return members(got)
}

// members returns the members of a response's body, and its headers under their canonical names.
func members(r testutil.Response) map[string]any {
	all := map[string]any{}
	_ = json.Unmarshal([]byte(r.Body), &all) // a body that is no object has no members
	for name, values := range r.Header {
		all[name] = strings.Join(values, ", ") // a host that forwards splits some
	}
	return all
}

// matches reports whether got has every member of want with a matching value, and lists of the same
// length.
func matches(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		members, ok := got.(map[string]any)
		for name, value := range want {
			ok = ok && matches(members[name], value)
		}
		return ok
	case []any:
		list, ok := got.([]any)
		ok = ok && len(list) == len(want)
		for i := 0; ok && i < len(want); i++ {
			ok = matches(list[i], want[i])
		}
		return ok
	}
	return got == want
}

// owner makes a key for an owner, and returns a caller that sends it.
func owner(t *testing.T, base, name string) caller {
	t.Helper()
	made := caller{t, base, adminKey}.must(201, "POST", "/api/keys",
		fmt.Sprintf(`{"name":"test","owner":%q}`, name))
	key, _ := made["key"].(string)
	return caller{t, base, key}
}
