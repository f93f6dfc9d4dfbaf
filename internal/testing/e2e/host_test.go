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

// A host that forwards sends the whole body before it reads the response, and changes Location.
// Under `func start`, the base URL is the host's own if it is not set.
func TestBehindAHostThatForwards(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hosted(false, emulator.ConnectionString(), "BaseUrl=")
	for contentType, want := range map[string]int{"application/json": 413, "text/plain": 415} {
		if got := request(t, http.MethodPost, h.URL()+"/api/shorten", strings.Repeat("x", 16<<20),
			"Content-Type", contentType); got.Status != want {
			t.Errorf("16 MiB of %s: got %d %s, want %d", contentType, got.Status, got.Body, want)
		}
	}
	l := mustShorten(t, h.URL(), "HTTPS://EXAMPLE.com:443/a/../%41?q=%42#%")
	if l.ShortURL != h.URL()+"/"+l.Alias {
		t.Errorf("got %+v, want a short URL at %s", l, h.URL())
	}
	if got := get(t, h.URL()+"/"+l.Alias).Header.Get("Location"); got !=
		"https://example.com/A?q=B#%25" {
		t.Errorf("it leads to %q", got)
	}
}

// A killed host leaves its handler behind. The handler then finishes its requests and ends,
// although its log has no reader any more. It also serves if host.json gives it arguments.
func TestHandlerEndsWithItsHost(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	proxy := s.proxy()
	// The shell acts as the host.
	host := exec.Command("sh", "-c", `"$0" keys list & echo $!; wait`, filepath.Join(s.app, "handler"))
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
