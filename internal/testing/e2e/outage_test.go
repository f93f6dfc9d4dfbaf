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

// outage is a lasting fault of storage.
type outage struct {
	// begin begins the outage, and returns the function that ends it.
	begin func(n *network, p *faultproxy.Proxy) (end func())
	// partial says that some calls get through. So a single call may succeed or fail.
	partial bool
}

func impaired(by impairment) outage {
	return outage{begin: func(n *network, _ *faultproxy.Proxy) func() {
		n.impaired.Store(int32(by))
		return func() { n.impaired.Store(int32(none)) }
	}}
}

func faulty(fault faultproxy.Fault) outage {
	return outage{begin: func(_ *network, p *faultproxy.Proxy) func() {
		p.Before(func(faultproxy.Call) faultproxy.Fault { return fault })
		return p.Reset
	}}
}

var outages = map[string]outage{
	"down": {begin: func(n *network, _ *faultproxy.Proxy) func() {
		n.down()
		return n.up
	}},
	"slow":              impaired(slow),
	"frozen":            impaired(frozen),
	"connections reset": impaired(reset),
	"responses cut off": impaired(cutOff),
	"busy":              faulty(faultproxy.ServerBusy),
	"too many requests": faulty(faultproxy.TooManyRequests),
	"responses lost":    faulty(faultproxy.DropResponse),
	"flapping": {partial: true, begin: func(n *network, _ *faultproxy.Proxy) func() {
		stop := make(chan struct{})
		var flaps sync.WaitGroup
		flaps.Go(func() {
			for up := true; ; up = !up {
				select {
				case <-stop:
					if !up {
						n.up()
					}
					return
				case <-time.After(200 * time.Millisecond):
				}
				if up {
					n.down()
				} else {
					n.up()
				}
			}
		})
		return func() { close(stop); flaps.Wait() }
	}},
}

func TestOutages(t *testing.T) {
	t.Parallel()
	for name, o := range outages {
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
			// The link lives long enough that even a slow machine can follow it first.
			brief := link.Link{Name: "brief", LongURL: "https://example.com/brief",
				ExpiresAt: time.Now().Add(10 * time.Second)}
			s.PutLink(brief)
			if fetch("/warm") != 302 || fetch("/brief") != 302 {
				t.Fatal("not warm")
			}
			before := descriptors(t, h)
			time.Sleep(1100 * time.Millisecond) // the cached links are no longer fresh then

			end := o.begin(n, p)
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
			orElse := func(want int, partial ...int) []int {
				if o.partial {
					return append(partial, want)
				}
				return []int{want}
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
					orElse(503, 302)...)
			})
			all.Go(func() {
				within(5*time.Second+slack, "shorten", func() int {
					_, status := shorten(t, h.URL(), "https://example.com/during")
					return status
				}, orElse(503, 201, 200)...)
			})
			all.Go(func() {
				within(2*time.Second+slack, "ready", func() int { return fetch("/api/ready") },
					orElse(503, 200)...)
			})
			all.Go(func() {
				within(15*time.Second+slack, "reaper", func() int {
					if _, err := h.FireTimer(ctx, "reaper"); err != nil {
						return 503
					}
					return 200
				}, orElse(503, 200)...)
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
				"deleted 1 links") && !(o.partial && strings.HasPrefix(got.Logs[0],
				"deleted 0 links")) {
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

// Storage that takes three seconds for each call counts as slow, not as down. No other test runs at
// the same time: a busy emulator would use up the rest of the five seconds.
func TestSlowStorage(t *testing.T) {
	s := newSite(t)
	s.PutLink(link.Link{Name: "cold", LongURL: "https://example.com/cold"})
	p := s.proxy()
	process := s.standalone(p.ConnectionString())
	p.Before(func(faultproxy.Call) faultproxy.Fault {
		time.Sleep(3 * time.Second)
		return faultproxy.None
	})
	var status int
	for range 3 { // the machine itself may be busy
		if status = get(t, process.url+"/cold").Status; status == 302 {
			return
		}
	}
	t.Errorf("got %d", status)
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
	l, status := shorten(t, h.URL(), "https://example.com/")
	if status != 201 {
		t.Fatalf("got %d", status)
	}
	awaitReady(t, h.URL())
	s.Remove()
	s.RemoveContainer(s.lock)
	if got := get(t, h.URL()+"/"+l.Alias); got.Status != 302 {
		t.Errorf("the cached link: %+v", got)
	}
	if got := get(t, h.URL()+"/nobody"); got.Status != 404 {
		t.Errorf("an unknown link: %+v", got)
	}
	if _, err := h.FireTimer(ctx, "reaper"); err != nil {
		t.Errorf("the reaper: %v", err)
	}
	if _, status := shorten(t, h.URL(), "https://example.com/2"); status != 201 {
		t.Errorf("shorten: %d", status)
	}
	if got := get(t, h.URL()+"/api/ready"); got.Status != 200 {
		t.Errorf("ready: %+v", got)
	}
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
	follow := func(alias string, status int, caching string) {
		t.Helper()
		begin := time.Now()
		got := get(t, base+"/"+alias)
		if took := time.Since(begin); got.Status != status || status == 302 &&
			got.Header.Get("Cache-Control") != caching || took > 6*time.Second {
			t.Errorf("%s: got %+v after %v, want %d", alias, got, took, status)
		}
	}
	follow("well", 302, "no-store")
	follow("bad", 410, "")
	follow("young", 503, "")
	if got := get(t, base+"/api/ready"); got.Status != 200 ||
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

// A request waits for slow storage for five seconds in all: for its key, its links and their
// statistics together. A sixth second is for repairs after a write. A request for many links starts
// no more links after 20 seconds.
func TestSlowStorageIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	for _, each := range []time.Duration{2 * time.Second, 3 * time.Second} {
		t.Run(each.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			p := s.proxy()
			process := s.standalone(p.ConnectionString())
			const one, slack = `{"longUrl":"https://example.com/"}`, 1500 * time.Millisecond
			requests := []struct {
				who, method, target, body string
				limit                     time.Duration
			}{
				{"", "GET", "/cold", "", 5 * time.Second},
				{"", "POST", "/api/shorten", one, 6 * time.Second},
				{"owner", "POST", "/api/shorten", one, 6 * time.Second},
				{"owner", "GET", "/api/links", "", 5 * time.Second},
				{"owner", "GET", "/api/links?clicks=true&q=example", "", 5 * time.Second},
				{"owner", "GET", "/api/links/OWN/stats", "", 5 * time.Second},
				{"owner", "PATCH", "/api/links/OWN", `{"title":"T"}`, 6 * time.Second},
				{"owner", "GET", "/api/stats/links", "", 5 * time.Second},
				{"owner", "GET", "/api/stats/links?tag=t", "", 5 * time.Second},
				{"owner", "GET", "/api/stats/clicks?alias=OWN,nobody", "", 5 * time.Second},
				{"owner", "GET", "/api/stats/top", "", 5 * time.Second},
				{"owner", "GET", "/api/export", "", 5 * time.Second},
				{"admin", "GET", "/api/export?owner=*", "", 5 * time.Second},
				{"admin", "GET", "/api/stats", "", 5 * time.Second},
				{"admin", "GET", "/api/blocked", "", 5 * time.Second},
				{"owner", "GET", "/api/keys", "", 5 * time.Second},
				{"owner", "POST", "/api/keys", `{"name":"N"}`, 6 * time.Second},
				{"owner", "POST", "/api/claims", `{"claims":[{"alias":"cold","claimToken":"no"}]}`,
					6 * time.Second},
				{"owner", "POST", "/api/links/bulk", `{"links":[` + strings.Repeat(one+",", 9) +
					one + `]}`, 26 * time.Second},
				{"owner", "POST", "/api/import",
					`{"longUrl":"https://example.com/","alias":"imported"}`, 26 * time.Second},
			}
			s.PutLink(link.Link{Name: "cold", LongURL: "https://example.com/cold"})
			// Each request has a key that the process does not know yet.
			callers := make([]caller, len(requests))
			for i, r := range requests {
				callers[i] = caller{t, process.url, map[string]string{"admin": adminKey}[r.who]}
				if r.who != "owner" {
					continue
				}
				name := fmt.Sprintf("owner%d", i)
				callers[i] = owner(t, process.url, name)
				s.PutLink(link.Link{
					Name: link.Name(fmt.Sprintf("own%d", i)), LongURL: "https://example.com/",
					Owner: name, CreatedAt: time.Now(),
				})
			}
			p.Before(func(faultproxy.Call) faultproxy.Fault {
				time.Sleep(each)
				return faultproxy.None
			})
			var all sync.WaitGroup
			for i, r := range requests {
				all.Go(func() {
					target := strings.ReplaceAll(r.target, "OWN", fmt.Sprintf("own%d", i))
					begun := time.Now()
					got := callers[i].send(r.method, target, r.body)
					took := time.Since(begun).Round(10 * time.Millisecond)
					t.Logf("%s %s: %d after %v", r.method, target, got.Status, took)
					if took > r.limit+slack || got.Status >= 400 && got.Status != 503 ||
						got.Status == 503 && got.Header.Get("Retry-After") == "" {
						t.Errorf("%s %s: got %+v after %v", r.method, target, got, took)
					}
				})
			}
			all.Wait()
		})
	}
}
