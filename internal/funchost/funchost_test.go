package funchost_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"tiney/internal/funchost"
)

// app is a script root in the making: a file's path to its content.
type app map[string]string

const (
	hostJSON = `{"version":"2.0","extensions":{"http":{"routePrefix":""}},"customHandler":{
		"description":{"defaultExecutablePath":"handler"},
		"enableForwardingHttpRequest":true,"enableProxyingHttpRequest":true}}`
	timerJSON = `{"bindings":[{"name":"timer","type":"timerTrigger","direction":"in","schedule":"0 */15 * * * *"}]}`
)

// httpJSON is the function.json of an HTTP function. Attributes go into the trigger, each with a
// comma before it.
func httpJSON(attributes string) string {
	return `{"bindings":[{"name":"req","type":"httpTrigger","direction":"in"` + attributes + `},
		{"name":"res","type":"http","direction":"out"}]}`
}

// all is one anonymous function for every path of one segment below "t", and the timers.
func all() app {
	a := app{
		"host.json":       hostJSON,
		"t/function.json": httpJSON(`,"authLevel":"anonymous","route":"t/{action}"`),
	}
	for _, name := range []string{"reaper", "empty", "nullish", "array", "broken", "plain"} {
		a[name+"/function.json"] = timerJSON
	}
	return a
}

func (a app) with(path, content string) app {
	a[path] = content
	return a
}

// write puts the script root on disk, with this test binary as its handler.
func (a app) write(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for path, content := range a {
		path = filepath.Join(root, filepath.FromSlash(path))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link(t, filepath.Join(root, "handler"))
	return root
}

func link(t *testing.T, path string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, path); err != nil {
		t.Fatal(err)
	}
}

// env is the environment that turns the test binary into a handler.
func env(mode string, more ...string) []string {
	return append([]string{childMode + "=" + mode}, more...)
}

func start(t *testing.T, a app, proxy bool, settings ...string) *funchost.Host {
	t.Helper()
	h, err := funchost.Start(t.Context(), funchost.Options{ScriptRoot: a.write(t), Env: env("serve", settings...), Proxy: proxy})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// bothModes runs a test against the older, forwarding host and the newer, proxying one.
func bothModes(t *testing.T, test func(t *testing.T, proxy bool)) {
	for name, proxy := range map[string]bool{"forward": false, "proxy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, proxy)
		})
	}
}

// client sends what it is told and shows what it gets: no redirects, no compression of its own.
var client = &http.Client{
	Transport:     &http.Transport{DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

type answer struct {
	*http.Response
	body string
}

// do sends a request whose headers are given as alternating names and values; repeats add up. It
// may be called from any goroutine: on error it fails the test and returns an empty answer.
func do(t *testing.T, method, url string, body io.Reader, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Error(err)
		return answer{new(http.Response), ""}
	}
	for pair := range slices.Chunk(headers, 2) {
		if pair[0] == "Host" {
			req.Host = pair[1]
		}
		req.Header.Add(pair[0], pair[1])
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Error(err)
		return answer{new(http.Response), ""}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return answer{resp, string(b)}
}

// echo sends a request to the child's echo and returns what the child saw.
func echo(t *testing.T, h *funchost.Host, method, query string, body io.Reader, headers ...string) seen {
	t.Helper()
	a := do(t, method, h.URL()+"/t/echo"+query, body, headers...)
	var s seen
	if err := json.Unmarshal([]byte(a.body), &s); err != nil {
		t.Errorf("status %s, body %q: %v", a.Status, a.body, err)
	}
	return s
}

func TestChildThatExits(t *testing.T) {
	t.Parallel()
	_, err := funchost.Start(t.Context(), funchost.Options{ScriptRoot: all().write(t), Env: env("exit")})
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "no storage configured") {
		t.Errorf("error %v carries neither the exit nor the last output", err)
	}
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	// The child's own words say when it is up; it never listens.
	_, err := funchost.Start(ctx, funchost.Options{ScriptRoot: all().write(t), Env: env("mute"), Output: writerFunc(cancel)})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) { f(); return len(p), nil }

func TestChildEnvironment(t *testing.T) {
	t.Parallel()
	root := all().write(t)
	h, err := funchost.Start(t.Context(), funchost.Options{ScriptRoot: root, Env: env("serve", "SETTING=from settings", "FUNCTIONS_CUSTOMHANDLER_PORT=1")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	s := echo(t, h, "GET", "", nil)
	if s.Dir != root {
		t.Errorf("working directory %s, want %s", s.Dir, root)
	}
	for _, want := range []string{
		"SETTING=from settings",
		"FUNCTIONS_APP_ROOT_PATH=" + root,
		"WEBSITE_HOSTNAME=" + strings.TrimPrefix(h.URL(), "http://"),
		"FUNCTIONS_CUSTOMHANDLER_PORT=" + h.HandlerURL()[strings.LastIndex(h.HandlerURL(), ":")+1:],
	} {
		if !slices.Contains(s.Env, want) {
			t.Errorf("no %s in %q", want, s.Env)
		}
	}
	if !slices.ContainsFunc(s.Env, func(v string) bool {
		return guid.MatchString(strings.TrimPrefix(v, "FUNCTIONS_CUSTOMHANDLER_WORKER_ID="))
	}) {
		t.Errorf("no worker id in %q", s.Env)
	}
}

func TestLauncher(t *testing.T) {
	t.Parallel()
	h, err := funchost.Start(t.Context(), funchost.Options{ScriptRoot: all().write(t), Env: env("serve"), Launcher: []string{"env", "LAUNCHED=yes"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	for range 2 {
		if s := echo(t, h, "GET", "", nil); !slices.Contains(s.Env, "LAUNCHED=yes") {
			t.Errorf("started without the launcher: %q", s.Env)
		}
		if err := h.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

var guid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func TestOutput(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h, err := funchost.Start(t.Context(), funchost.Options{ScriptRoot: all().write(t), Env: env("serve"), Output: &out})
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	for _, want := range []string{"to stdout", "to stderr"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("output %q lacks %q", out.String(), want)
		}
	}
}

func TestKillAndRestart(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, proxy bool) {
		h := start(t, all(), proxy)
		url, handler, pid := h.URL(), h.HandlerURL(), h.PID()
		do(t, "GET", h.URL()+"/t/echo", nil)
		h.Kill()
		h.Kill() // of a dead child: nothing happens
		if a := do(t, "GET", h.URL()+"/t/echo", nil); a.StatusCode != 500 || a.body != "" {
			t.Errorf("while the child is down: status %s, body %q", a.Status, a.body)
		}
		if a := do(t, "GET", h.URL()+"/nowhere/at/all", nil); a.StatusCode != 404 {
			t.Errorf("unknown path while the child is down: %s", a.Status)
		}
		if _, err := h.FireTimer(t.Context(), "reaper"); err == nil {
			t.Error("a dead child ran a timer")
		}
		for range 2 { // from dead, then from alive
			if err := h.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
			if a := do(t, "GET", h.URL()+"/t/echo", nil); a.StatusCode != 200 {
				t.Errorf("after the restart: %s", a.Status)
			}
		}
		if h.URL() != url || h.HandlerURL() == handler || h.PID() == pid {
			t.Errorf("after the restart: %s %s %d, before: %s %s %d", h.URL(), h.HandlerURL(), h.PID(), url, handler, pid)
		}
		if a := do(t, "GET", h.HandlerURL()+"/t/echo", nil); a.StatusCode != 200 {
			t.Errorf("around the host: %s", a.Status)
		}
	})
}

// A child that dies by itself is down too, and what it was answering is a 500.
func TestChildCrash(t *testing.T) {
	t.Parallel()
	bothModes(t, func(t *testing.T, proxy bool) {
		h := start(t, all(), proxy)
		if a := do(t, "GET", h.URL()+"/t/crash", nil); a.StatusCode != 500 {
			t.Errorf("status %s", a.Status)
		}
		if a := do(t, "GET", h.URL()+"/t/echo", nil); a.StatusCode != 500 {
			t.Errorf("afterwards: status %s", a.Status)
		}
	})
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	h := start(t, all(), false)
	for range 2 { // the second time it is dead and its code is still known
		if code, err := h.Interrupt(); code != 7 || err != nil {
			t.Errorf("exit code %d, %v", code, err)
		}
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	h := start(t, all(), false)
	h.Close()
	h.Close()
	for _, url := range []string{h.URL(), h.HandlerURL()} {
		if resp, err := client.Get(url); err == nil {
			resp.Body.Close()
			t.Errorf("%s still answers", url)
		}
	}
	if err := h.Restart(t.Context()); err == nil {
		t.Error("a closed host restarted")
	}
}

func TestHostsSideBySide(t *testing.T) {
	t.Parallel()
	a, b := start(t, all(), true), start(t, all(), false)
	var wg sync.WaitGroup
	for i, h := range []*funchost.Host{a, b, a, b} {
		wg.Go(func() {
			for n := range 5 {
				query := fmt.Sprintf("?n=%d-%d", i, n)
				if s := echo(t, h, "GET", query, nil); s.URI != "/t/echo"+query || !strings.HasSuffix(h.HandlerURL(), s.Port) {
					t.Errorf("%s asked for %s, got %+v", h.URL(), query, s)
				}
			}
		})
	}
	wg.Wait()
	a.Close()
	if got := do(t, "GET", b.URL()+"/t/echo", nil).StatusCode; got != 200 {
		t.Errorf("one host's end reached the other: %d", got)
	}
}
