package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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

	"tiney/internal/azurite"
	"tiney/internal/faultproxy"
	"tiney/internal/freeport"
	"tiney/internal/funchost"
	"tiney/internal/pack"
	"tiney/internal/rawtables"
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

// stillWell checks that a process answers as if nothing were the matter.
func stillWell(t *testing.T, base string) {
	t.Helper()
	for target, want := range map[string]int{"/warm": 302, "/nobody": 404, "/api/health": 200} {
		if got := must(t, http.MethodGet, base+target, ""); got.status != want {
			t.Errorf("%s: got %+v, want %d", target, got, want)
		}
	}
	if _, status := shorten(t, base, "https://example.com/well"); status != 201 && status != 200 {
		t.Errorf("shorten: got %d", status)
	}
}

// stopProcess stops a process as a terminal does, and waits until it has ended.
func stopProcess(t *testing.T, p *process) {
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
