package browser

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"tiney/internal/testing/azurite"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/freeport"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
	"tiney/internal/tools/pack"
)

// All tests share one Azurite, one Chromium, and the app as it is laid out to be deployed.
var (
	emulator azurite.Ports
	chromium *Browser
	app      string
)

func TestMain(m *testing.M) {
	// More tabs than processors would only wait for each other, and longer for storage than the
	// service waits.
	flag.Parse()
	_ = flag.Set("test.parallel", fmt.Sprint(1+runtime.GOMAXPROCS(0))) // one of Go's own flags

	os.Exit(func() int {
		var err error
		if app, err = os.MkdirTemp("", "tiney-app-"); err == nil {
			defer os.RemoveAll(app)
			err = pack.Dir("../../..", app, pack.Target{OS: runtime.GOOS, Arch: runtime.GOARCH})
		}
		if err == nil {
			chromium, err = Start()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer chromium.Close()
		return azurite.ForTests(func(ports azurite.Ports) int {
			emulator = ports
			return m.Run()
		})
	}())
}

const adminKey = "the-admin-key-of-the-tests-9f8e7d6c5b4a"

// site is a service of its own.
type site struct {
	*rawtables.Tables                   // nil if it keeps its links in memory
	url               string            // its address, which its short URLs begin with
	storage           *faultproxy.Proxy // between the service and Azurite
	settings          []string          // the whole environment of the service's process
	output            *testutil.Buffer
}

var sites atomic.Int64

// newSite returns the site of a service whose short URLs begin with url, with these settings
// besides those of all.
func newSite(t *testing.T, url string, settings ...string) *site {
	t.Helper()
	testutil.BuildsProject(t)
	return &site{url: url, output: new(testutil.Buffer), settings: append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "BaseUrl=" + url,
		"ADMIN_KEY=" + adminKey,
		"RATE_SHORTEN_PER_MINUTE=0", "RATE_UNKNOWN_PER_MINUTE=0", "RATE_API_PER_MINUTE=0",
	}, settings...)}
}

// store makes the tables of a service that has not started yet, and its settings.
func (s *site) store(t *testing.T) {
	t.Helper()
	s.Tables = rawtables.Open(t, emulator.ConnectionString(), fmt.Sprintf("B%d", sites.Add(1)))
	s.storage = faultproxy.Start(emulator)
	t.Cleanup(s.storage.Close)
	s.Make()
	s.settings = append(s.settings, "AzureWebJobsStorage="+s.storage.ConnectionString(),
		"GC_BLOB_LOCK_CONTAINER="+strings.ToLower(s.Links)+"-locks",
		"SHORTURL_TABLE_NAME="+s.Links, "URLINDEX_TABLE_NAME="+s.Index,
		"EXPIRYINDEX_TABLE_NAME="+s.Expiry)
}

// serve starts the executable, which keeps its links in memory, for tests in which storage does not
// matter. $PORT in a setting is its port.
func serve(t *testing.T, settings ...string) *site {
	t.Helper()
	s := listen(t, settings...)
	s.settings = append(s.settings, "TABLE_CONNECTION=memory")
	s.start(t)
	return s
}

// serveStored is serve for tests in which storage matters.
func serveStored(t *testing.T, settings ...string) *site {
	t.Helper()
	s := listen(t, settings...)
	s.store(t)
	s.start(t)
	return s
}

// listen finds a port for a service.
func listen(t *testing.T, settings ...string) *site {
	t.Helper()
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, fmt.Sprintf("http://127.0.0.1:%d", port), append(settings, "PORT=$PORT")...)
	for i, setting := range s.settings {
		s.settings[i] = strings.Replace(setting, "$PORT", fmt.Sprint(port), 1)
	}
	return s
}

// start starts the executable, and waits until it is ready.
func (s *site) start(t *testing.T) {
	t.Helper()
	cmd := exec.Command(filepath.Join(app, "handler"))
	cmd.Env = s.settings
	cmd.Stdout, cmd.Stderr = s.output, s.output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("the service's output:\n%s", s.output)
		}
	})
	testutil.Eventually(t, "it is ready", func() bool {
		got, err := testutil.Send("GET", s.url+"/api/ready", "")
		return err == nil && got.Status == 200
	})
}

// down makes all of the service's storage refuse connections, or accept them again.
func (s *site) down(is bool) {
	s.storage.Before(func(faultproxy.Call) faultproxy.Fault {
		if is {
			return faultproxy.Refuse
		}
		return faultproxy.None
	})
}

// status returns the status and the Location of a response.
func (s *site) status(t *testing.T, target string) (status int, location string) {
	t.Helper()
	got, err := testutil.Send("GET", s.url+target, "")
	if err != nil {
		t.Fatal(err)
	}
	return got.Status, got.Header.Get("Location")
}
