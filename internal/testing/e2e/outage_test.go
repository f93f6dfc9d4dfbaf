package e2e

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/azurite"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/funchost"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
)

// outage begins a lasting fault of storage, and returns the function that ends it.
type outage func(n *network, p *faultproxy.Proxy) (end func())

func impaired(by impairment) outage {
	return func(n *network, _ *faultproxy.Proxy) func() {
		n.impaired.Store(int32(by))
		return func() { n.impaired.Store(int32(none)) }
	}
}

func faulty(fault faultproxy.Fault) outage {
	return func(_ *network, p *faultproxy.Proxy) func() {
		p.Before(func(faultproxy.Call) faultproxy.Fault { return fault })
		return p.Reset
	}
}

// outages has those of docs/reliability.md, and two more that break connections.
var outages = map[string]outage{
	"down": func(n *network, _ *faultproxy.Proxy) func() {
		n.down()
		return n.up
	},
	"slow":              impaired(slow),
	"frozen":            impaired(frozen),
	"connections reset": impaired(reset),
	"responses cut off": impaired(cutOff),
	"busy":              faulty(faultproxy.ServerBusy),
	"too many requests": faulty(faultproxy.TooManyRequests),
	"responses lost":    faulty(faultproxy.DropResponse),
}

func TestOutages(t *testing.T) {
	t.Parallel()
	for name, begin := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.TombstoneFor = 0
			p := s.proxy()
			n := newNetwork(t, p.Ports())
			h := s.hosted(true, n.connectionString(), "CACHE_DURATION_SECONDS=1")
			awaitReady(t, h.URL())
			fetch := func(target string) int { // 0: no response
				got, _ := testutil.Send(http.MethodGet, h.URL()+target, "")
				return got.Status
			}
			s.PutLink(link.Link{Name: "cold", LongURL: "https://example.com/cold"})
			s.PutLink(link.Link{Name: "warm", LongURL: "https://example.com/warm",
				ExpiresAt: time.Now().Add(time.Hour)})
			testutil.Eventually(t, "it is warm", func() bool { return fetch("/warm") == 302 })
			// The link lives long enough that even a slow machine can follow it first.
			brief := link.Link{Name: "brief", LongURL: "https://example.com/brief",
				ExpiresAt: time.Now().Add(20 * time.Second)}
			s.PutLink(brief)
			testutil.Eventually(t, "it is warm too", func() bool { return fetch("/brief") == 302 })
			before := descriptors(t, h)
			time.Sleep(1100 * time.Millisecond) // the cached links are no longer fresh then

			end := begin(n, p)
			// within repeats a request that was too slow, once the cache would ask the table again.
			// A slow machine is not slow every time, but a service that waits for too long is.
			within := func(limit time.Duration, what string, do func() int, want ...int) {
				t.Helper()
				for try := 1; ; try++ {
					start := time.Now()
					got := do()
					took := time.Since(start).Round(10 * time.Millisecond)
					t.Logf("%s: %d in %v", what, got, took)
					right := slices.Contains(want, got)
					if right && took <= limit {
						return
					}
					if !right || try == 3 {
						t.Errorf("%s: got %d in %v, want %v in %v", what, got, took, want, limit)
						return
					}
					time.Sleep(6 * time.Second)
				}
			}
			// slack is for a slow machine under the race detector. A request that hangs takes
			// longer.
			const slack = 4 * time.Second
			within(time.Second+slack, "warm redirect", func() int { return fetch("/warm") }, 302)
			within(slack, "warm redirect, again", func() int { return fetch("/warm") }, 302)
			within(slack, "health", func() int { return fetch("/api/health") }, 200)
			var all sync.WaitGroup
			all.Go(func() {
				within(5*time.Second+slack, "cold redirect", func() int { return fetch("/cold") },
					503)
			})
			all.Go(func() {
				within(5*time.Second+slack, "shorten", func() int {
					_, status := shorten(t, h.URL(), "https://example.com/during")
					return status
				}, 503)
			})
			all.Go(func() {
				within(2*time.Second+slack, "ready", func() int { return fetch("/api/ready") },
					503)
			})
			all.Go(func() {
				within(15*time.Second+slack, "reaper", func() int {
					if _, err := h.FireTimer(ctx, "reaper"); err != nil {
						return 503
					}
					return 200
				}, 503)
			})
			all.Wait()
			time.Sleep(time.Until(brief.ExpiresAt))
			within(5*time.Second+slack, "warm redirect past its expiry", func() int {
				return fetch("/brief")
			}, 410, 503)

			end()
			start := time.Now()
			testutil.Eventually(t, "all is well again", func() bool {
				_, status := shorten(t, h.URL(), "https://example.com/after")
				return (status == 201 || status == 200) && fetch("/cold") == 302 &&
					fetch("/warm") == 302 && fetch("/api/ready") == 200
			})
			if took := time.Since(start); took > 25*time.Second {
				t.Errorf("well again after %v only", took)
			}
			// If the response to taking the lease was lost in the outage, the lease would last for
			// a minute.
			s.RemoveContainer(s.lock)
			got, err := h.FireTimer(ctx, "reaper")
			if err != nil || len(got.Logs) != 1 || !strings.HasPrefix(got.Logs[0],
				"deleted 1 links") {
				t.Errorf("the reaper afterwards: %+v, %v", got, err)
			}
			for _, row := range s.Rows(s.Links) {
				if row["RowKey"] == "brief" {
					t.Error("the expired link is still there")
				}
			}
			s.WantNoLeak()
			testutil.Eventually(t, "connections are closed", func() bool {
				return descriptors(t, h) <= before+8
			})
		})
	}
}

// descriptors returns the number of files and connections that the host's process has open. It
// returns 0 on systems without /proc.
func descriptors(t *testing.T, h *funchost.Host) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", h.PID()))
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}

func TestStorageDownAtStart(t *testing.T) {
	t.Parallel()
	ports, err := azurite.FreePorts()
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	p := s.standalone(ports.ConnectionString())
	for target, want := range map[string]int{"/": 200, "/api/health": 200, "/favicon.ico": 204,
		"/a.b": 404, "/nobody": 503, "/api/ready": 503} {
		if got := get(t, p.url+target); got.Status != want || want == 503 &&
			got.Header.Get("Retry-After") == "" {
			t.Errorf("%s: got %+v, want %d", target, got, want)
		}
	}
	if got := request(t, http.MethodPost, p.url+"/api/shorten",
		`{"longUrl":"https://example.com/"}`); got.Status != 503 ||
		got.Header.Get("Retry-After") != "5" {
		t.Errorf("shorten: got %+v", got)
	}
	storage, err := azurite.Start(ctx, ports, "", io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer storage.Stop()
	var l shortLink
	testutil.Eventually(t, "a link is made after storage came up", func() (made bool) {
		var status int
		l, status = shorten(t, p.url, "https://example.com/")
		return status == 201 || status == 200 // 200 if a first response was lost
	})
	if got := get(t, p.url+"/"+l.Alias); got.Status != 302 {
		t.Errorf("got %+v", got)
	}
	testutil.Eventually(t, "the container for the lock is made", func() bool {
		return get(t, p.url+"/api/ready").Status == 200
	})
}

func TestStorageUnreachable(t *testing.T) {
	t.Parallel()
	for name, connection := range map[string]string{
		"no such host": "AccountName=a;AccountKey=YQ==;TableEndpoint=https://tables.invalid/a;" +
			"BlobEndpoint=https://blobs.invalid/a",
		"TLS not spoken": strings.ReplaceAll(emulator.ConnectionString(), "Endpoint=http://",
			"Endpoint=https://"),
		"wrong key": strings.ReplaceAll(emulator.ConnectionString(), azurite.Key, "YQ=="),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newSite(t).standalone(connection)
			for target, want := range map[string]int{"/": 200, "/api/health": 200, "/nobody": 503,
				"/api/ready": 503} {
				if got := get(t, p.url+target); got.Status != want {
					t.Errorf("%s: got %+v, want %d", target, got, want)
				}
			}
			if _, status := shorten(t, p.url, "https://example.com/"); status != 503 {
				t.Errorf("shorten: got %d", status)
			}
			if log := p.output.String(); strings.Contains(log, "YQ==") ||
				strings.Contains(log, azurite.Key) || strings.Contains(log, "example.com") {
				t.Errorf("a key or a long URL is in the log:\n%s", log)
			}
		})
	}
}

func TestStorageDeleted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	h := s.hosted(false, emulator.ConnectionString())
	l, anyone := mustShorten(t, h.URL(), "https://example.com/"), caller{t, h.URL(), ""}
	awaitReady(t, h.URL())
	s.Remove()
	s.RemoveContainer(s.lock)
	anyone.must(302, "GET", "/"+l.Alias, "") // it is cached
	anyone.must(404, "GET", "/nobody", "")
	if _, err := h.FireTimer(ctx, "reaper"); err != nil {
		t.Errorf("the reaper: %v", err)
	}
	mustShorten(t, h.URL(), "https://example.com/2")
	anyone.must(200, "GET", "/api/ready", "")
	s.WantRows(1, 1, 1)
}

// A process starts while the account's own region is down. It redirects by the copy in the second
// region, and its readiness says so.
func TestRegionIsDown(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	second, err := azurite.StartAnywhere(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(second.Stop)
	copies := rawtables.Open(t, second.ConnectionString(), strings.TrimSuffix(s.Links, "ShortUrls"))
	copies.Make()
	for alias, longURL := range map[link.Name]string{"well": "https://example.org/",
		"bad": "https://example.com/"} {
		s.PutLink(link.Link{Name: alias, LongURL: longURL})
		copies.PutLink(link.Link{Name: alias, LongURL: longURL})
	}
	s.PutLink(link.Link{Name: "young", LongURL: "https://example.org/young"})
	copies.Put(copies.State, rawtables.Entity{"PartitionKey": "blocked", "RowKey": "example.com"})
	p := s.proxy()
	p.Before(func(faultproxy.Call) faultproxy.Fault { return faultproxy.Freeze })
	base := s.standalone(p.ConnectionString(), fmt.Sprintf("TABLE_SECONDARY=http://127.0.0.1:%d/%s",
		second.Table, azurite.Account), "REDIRECT_MAX_AGE_SECONDS=600").url
	// follow repeats a request that a busy machine was too slow for.
	follow := func(alias string, status int, caching string) {
		t.Helper()
		testutil.Eventually(t, fmt.Sprintf("%s is %d in time", alias, status), func() bool {
			begin := time.Now()
			got := get(t, base+"/"+alias)
			return got.Status == status && time.Since(begin) <= 6*time.Second &&
				(status != 302 || got.Header.Get("Cache-Control") == caching)
		})
	}
	follow("well", 302, "no-store")
	follow("bad", 410, "")
	follow("young", 503, "")
	if got := (caller{t, base, ""}).patiently("GET", "/api/ready", ""); got.Status != 200 ||
		!strings.Contains(got.Body, `"status":"degraded"`) ||
		!strings.Contains(got.Body, `"tables":{"status":"secondary"`) {
		t.Errorf("ready: got %+v", got)
	}
	p.Reset()
	testutil.Eventually(t, "the first region is read again", func() bool {
		return get(t, base+"/bad").Status == 302 && get(t, base+"/young").Status == 302 &&
			get(t, base+"/well").Header.Get("Cache-Control") != "no-store"
	})
}

// While storage takes connections and never responds, each route and each tool says so in time.
// Those that need no storage respond as ever. A request waits for five seconds in all, and a sixth
// one for repairs after a write. A request for many links starts no more links after 20 seconds.
func TestEveryCallWhileStorageHangs(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	n := newNetwork(t, s.proxy().Ports())
	p := s.standalone(n.connectionString())
	awaitReady(t, p.url)
	ann, bob := owner(t, p.url, "ann"), owner(t, p.url, "bob")
	ann.must(200, "GET", "/api/me", "") // so that the key is cached
	bob.must(200, "GET", "/api/me", "")
	n.impaired.Store(int32(frozen))
	time.Sleep(1100 * time.Millisecond) // readiness is known for a second
	idle := []string{"showHome", "showManagePage", "getAsset", "getFavicon", "getRobots",
		"getOpenSearch", "getProtectedResource", "getProtectedResourceOfMcp", "getQrCode",
		"listDomains", "callMcp", "getCaller", "getHealth", "getOpenApi"}
	var all sync.WaitGroup
	for _, c := range everyCall(t) {
		all.Go(func() {
			token, limit := adminKey, 6*time.Second
			switch c.name {
			case "bulkShorten": // one of these at a time is an owner's
				token, limit = ann.token, 26*time.Second
			case "bulkEdit":
				token, limit = bob.token, 26*time.Second
			case "importLinks":
				limit = 26 * time.Second
			}
			begun := time.Now()
			got, err := c.send(p.url, token)
			took := time.Since(begun)
			silent := got.Body == "" && got.Status != http.StatusNoContent && c.method != "HEAD"
			right := got.Status == 503
			switch {
			case strings.HasPrefix(c.name, "tool "):
				right = got.Status == 200 && strings.Contains(got.Body, `"isError":true`) &&
					strings.Contains(got.Body, "does not respond")
			case slices.Contains(idle, c.name):
				right = got.Status < 500
			case limit > 6*time.Second:
				right = strings.Contains(got.Body, "storage-unavailable")
			}
			// More time is for a slow machine under the race detector.
			if err != nil || silent || !right || took > limit+4*time.Second {
				t.Errorf("%s: %d after %v, %v: %.300s", c.name, got.Status, took, err, got.Body)
			}
		})
	}
	all.Wait()
}
