package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/freeport"
	"tiney/internal/testing/funchost"
	"tiney/internal/testing/testutil"
)

func TestStrangersCannotFireTheTimer(t *testing.T) {
	t.Parallel()
	for _, proxy := range []bool{false, true} {
		t.Run(fmt.Sprintf("proxy %t", proxy), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.TombstoneFor = 0
			s.PutLink(link.Link{Name: "expired", LongURL: "https://example.com/",
				ExpiresAt: time.Now().Add(-time.Hour)})
			h := s.hosted(proxy, emulator.ConnectionString())
			const payload = `{"Data":{"timer":{"IsPastDue":false}},"Metadata":{}}`
			own := strings.TrimPrefix(h.HandlerURL(), "http://")
			for _, host := range []string{"tiney.to", own} {
				for _, path := range append(funchost.HostilePaths, "/reaper", "/api/reaper",
					"/api/../reaper", "/api/links/../../reaper", "/x/..%5Creaper",
					"/x/%252e%252e/reaper", "/x%5C..%5Creaper/") {
					request(t, http.MethodPost, h.URL()+path, payload, "Host", host)
					path = strings.Replace(path, "/api/", "/api/links/x%5C..%5C..%5C", 1)
					for _, method := range []string{"POST", "PATCH", "DELETE", "PUT"} {
						request(t, method, h.URL()+path, payload, "Host", host, "Authorization",
							"Bearer "+adminKey)
					}
				}
			}
			// These requests bypass the host. Only a process on the same machine could send them.
			for _, header := range [][]string{{"Host", "tiney.to"},
				{"X-Forwarded-For", "203.0.113.7"}, {"X-Ms-Invocation-Id", "1"}} {
				if got := request(t, http.MethodPost, h.HandlerURL()+"/reaper", payload,
					header...); got.Status != 404 {
					t.Errorf("%v: got %+v", header, got)
				}
			}
			s.WantRows(1, 1, 1)
			if _, err := h.FireTimer(ctx, "reaper"); err != nil {
				t.Error(err)
			}
			s.WantRows(0, 0, 0)
		})
	}
}

// A host that forwards sends the whole body before it reads the response.
func TestLargeBodiesBehindTheHost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hosted(false, emulator.ConnectionString())
	for _, mib := range []int{1, 5, 16} {
		body := strings.Repeat("x", mib<<20)
		for contentType, want := range map[string]int{"application/json": 413, "text/plain": 415} {
			if got := request(t, http.MethodPost, h.URL()+"/api/shorten", body, "Content-Type",
				contentType); got.Status != want {
				t.Errorf("%d MiB of %s: got %d %s, want %d", mib, contentType, got.Status, got.Body,
					want)
			}
		}
	}
}

func TestLocationBehindTheHost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	forwarding, proxying := s.hosted(false, emulator.ConnectionString()),
		s.hosted(true, emulator.ConnectionString())
	for longURL, rewritten := range map[string]string{
		"HTTPS://EXAMPLE.com":              "https://example.com/",
		"https://example.com:443/a/../b":   "https://example.com/b",
		"https://example.com/%41?q=%42#%":  "https://example.com/A?q=B#%25",
		"https://example.com/{}|^`\"<>":    "https://example.com/%7B%7D%7C%5E%60%22%3C%3E",
		"http://0x7f.1/":                   "http://127.0.0.1/",
		"https://example.com/%2F%20?a=b&c": "https://example.com/%2F%20?a=b&c",
	} {
		l, status := shorten(t, proxying.URL(), longURL)
		if status != 201 || l.LongURL != longURL {
			t.Fatalf("got %d %+v", status, l)
		}
		for base, want := range map[string]string{proxying.URL(): longURL,
			forwarding.URL(): rewritten} {
			req, err := http.NewRequest(http.MethodGet, base+"/"+l.Alias, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultTransport.RoundTrip(req) // a Client would parse Location
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if got := resp.Header.Get("Location"); got != want {
				t.Errorf("%q became %q, want %q", longURL, got, want)
			}
		}
	}
}

// A proxying host sends the handler its own peer's address in X-Forwarded-For. It passes on the
// headers that Azure's front end adds.
func TestLostClientAddressesBehindTheHost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, test := range []struct {
		proxy  bool
		header string
		want   int
	}{{true, "", 1}, {true, "CLIENT-IP", 0}, {false, "", 0}} {
		var output testutil.Buffer
		h, err := funchost.Start(ctx, funchost.Options{ScriptRoot: s.app, Proxy: test.proxy,
			Output: &output, Env: s.environment(emulator.ConnectionString(),
				"CLIENT_ADDRESS_HEADER="+test.header)})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			get(t, h.URL()+"/api/health")
		}
		h.Close()
		if got := strings.Count(output.String(), telemetry.LogClientAddressLost); got != test.want {
			t.Errorf("%+v: %d lines in\n%s", test, got, &output)
		}
	}
}

// The development key is public. Still, a website whose name resolves to this machine cannot use it
// through a visitor's browser.
func TestTheDevelopmentKeyServesThisMachineAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	const key = "not-secret-and-for-development-only"
	settings := []string{"ADMIN_KEY=" + key, "BaseUrl=http://localhost:7071"}
	for mode, base := range map[string]string{
		"on its own": s.standalone(emulator.ConnectionString(), settings...).url,
		"behind a host that forwards": s.hosted(false, emulator.ConnectionString(),
			settings...).URL(),
		"behind a host that proxies": s.hosted(true, emulator.ConnectionString(),
			settings...).URL(),
	} {
		(caller{t, base, key}).must(200, "GET", "/api/blocked", "")
		got := (caller{t, base, key}).send("GET", "/api/blocked", "", "Host", "evil.example:7071")
		if got.Status != 403 || !strings.Contains(got.Body, "foreign-host") {
			t.Errorf("%s: got %+v", mode, got)
		}
	}
}

func TestHandlerThatIsKilledIsStartedAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.failures = 1
	s.PutLink(link.Link{Name: "live", LongURL: "https://example.com/"})
	h := s.hosted(true, emulator.ConnectionString())
	kill(t, h.PID())
	testutil.Eventually(t, "it redirects again", func() bool {
		return get(t, h.URL()+"/live").Status == 302
	})
}

// A killed host leaves its handler behind. The handler then finishes its requests and ends,
// although nobody reads its log any more.
func TestHandlerEndsWithItsHost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	proxy := s.proxy()
	// The shell acts as the host.
	host := exec.Command("sh", "-c", `"$0" & echo $!; wait`, filepath.Join(s.app, "handler"))
	host.Env = s.environment(proxy.ConnectionString(),
		fmt.Sprintf("FUNCTIONS_CUSTOMHANDLER_PORT=%d", port))
	stdout, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(t, pid) })
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	responds := func() bool {
		_, err := testutil.Send(http.MethodGet, base+"/api/health", "")
		return err == nil
	}
	testutil.Eventually(t, "it responds", responds)
	awaitReady(t, base)
	frozen := make(chan struct{}, 100)
	proxy.Before(func(faultproxy.Call) faultproxy.Fault {
		frozen <- struct{}{}
		return faultproxy.Freeze
	})
	var requests sync.WaitGroup
	requests.Go(func() {
		if got, err := testutil.Send(http.MethodGet, base+"/nobody", ""); err != nil ||
			got.Status != 503 {
			t.Errorf("the last request: %+v, %v", got, err)
		}
	})
	<-frozen
	if err := host.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	stdout.Close()
	testutil.Eventually(t, "it has ended", func() bool { return !responds() })
	requests.Wait()
}

// kill kills a process. The process may have ended already.
func kill(t *testing.T, pid int) {
	t.Helper()
	p, err := os.FindProcess(pid)
	if err == nil {
		err = p.Kill()
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Error(err)
	}
}
