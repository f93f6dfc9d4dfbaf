package funchost_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"tiney/internal/testing/funchost"
)

// app is the content of a script root, as files by path.
type app map[string]string

const (
	hostJSON = `{"version":"2.0","extensions":{"http":{"routePrefix":""}},"customHandler":{
		"description":{"defaultExecutablePath":"handler"},
		"enableForwardingHttpRequest":true,"enableProxyingHttpRequest":true}}`
	timerJSON = `{"bindings":[{"name":"timer","type":"timerTrigger","direction":"in",` +
		`"schedule":"0 */15 * * * *"}]}`
)

// httpJSON returns the function.json of an HTTP function. attributes are more members of the
// trigger, each with a comma before it.
func httpJSON(attributes string) string {
	return `{"bindings":[{"name":"req","type":"httpTrigger","direction":"in"` + attributes + `},
		{"name":"res","type":"http","direction":"out"}]}`
}

// all returns an app with a timer, and one anonymous function for every path of one segment below
// "t".
func all() app {
	return app{
		"host.json":            hostJSON,
		"reaper/function.json": timerJSON,
		"t/function.json":      httpJSON(`,"authLevel":"anonymous","route":"t/{action}"`),
	}
}

func (a app) with(path, content string) app {
	a[path] = content
	return a
}

// write writes the script root to disk, with this test binary as its handler, and returns its path.
func (a app) write(t *testing.T) string {
	t.Helper()
	self, err := os.Executable()
	files := fstest.MapFS{}
	for path, content := range a {
		content = strings.ReplaceAll(content, `"handler"`, strconv.Quote(self))
		files[path] = &fstest.MapFile{Data: []byte(content)}
	}
	root := t.TempDir()
	if err := errors.Join(err, os.CopyFS(root, files)); err != nil {
		t.Fatal(err)
	}
	return root
}

// env returns the environment that turns the test binary into a handler.
func env(mode string, more ...string) []string {
	return append([]string{childMode + "=" + mode}, more...)
}

// start starts a host of the app. Its handler serves unless opt.Env says otherwise.
func start(t *testing.T, a app, opt funchost.Options) *funchost.Host {
	t.Helper()
	opt.ScriptRoot = a.write(t)
	if opt.Env == nil {
		opt.Env = env("serve")
	}
	h, err := funchost.Start(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// bothModes runs a test against the older, forwarding host and the newer, proxying one.
func bothModes(t *testing.T, test func(t *testing.T, proxy bool)) {
	t.Parallel()
	for name, proxy := range map[string]bool{"forward": false, "proxy": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, proxy)
		})
	}
}

// transport sends requests and returns responses unchanged: it follows no redirects and adds no
// compression.
var transport = &http.Transport{DisableCompression: true}

type response struct {
	*http.Response
	body string
}

// do sends a request. headers are alternating names and values; a repeated name adds a value.
func do(t *testing.T, method, url string, body io.Reader, headers ...string) response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for pair := range slices.Chunk(headers, 2) {
		req.Header.Add(pair[0], pair[1])
	}
	req.Host = req.Header.Get("Host")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return response{resp, string(b)}
}

// arrived sends a request, and returns what the child saw of it.
func arrived(t *testing.T, h *funchost.Host, method, target string, body io.Reader,
	headers ...string) seen {
	t.Helper()
	a := do(t, method, h.URL()+target, body, headers...)
	var echoed struct{ ReturnValue seen }
	if err := json.Unmarshal([]byte(a.body), &echoed); err != nil {
		t.Fatalf("%s %s: status %s, body %q: %v", method, target, a.Status, a.body, err)
	}
	return echoed.ReturnValue
}

const guid = `[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}`

func matches(pattern, s string) bool {
	return regexp.MustCompile("^" + pattern + "$").MatchString(s)
}

func TestChildEnvironment(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	launcher, launched := []string{"env", "LAUNCHED=yes"}, "LAUNCHED=yes"
	if runtime.GOOS == "windows" { // it has no such program
		launcher, launched = nil, ".*"
	}
	h := start(t, all(), funchost.Options{
		Env:      env("serve", "SETTING=from settings", "FUNCTIONS_CUSTOMHANDLER_PORT=1"),
		Launcher: launcher,
		Output:   &out,
	})
	for range 2 {
		s := arrived(t, h, "GET", "/t/echo", nil)
		environment := strings.Join(s.Env, "\n")
		_, port, _ := strings.Cut(h.HandlerURL(), "http://127.0.0.1:")
		for _, want := range []string{
			launched, "SETTING=from settings",
			"FUNCTIONS_APP_ROOT_PATH=" + regexp.QuoteMeta(s.Dir),
			"WEBSITE_HOSTNAME=" + strings.TrimPrefix(h.URL(), "http://"),
			"FUNCTIONS_CUSTOMHANDLER_PORT=" + port, "FUNCTIONS_CUSTOMHANDLER_WORKER_ID=" + guid,
			"FUNCTIONS_HTTPWORKER_PORT=" + port, "FUNCTIONS_HTTPWORKER_ID=" + guid,
		} {
			if !matches("(?s)(.*\n)?"+want+"(\n.*)?", environment) {
				t.Errorf("no %s in\n%s", want, environment)
			}
		}
		if err := h.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	h.Close()
	if !strings.Contains(out.String(), "to stdout\n") || !strings.Contains(out.String(),
		"to stderr\n") {
		t.Errorf("output %q", out.String())
	}
}
