package e2e

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/testutil"
)

// The default limits hold in every way to run the service.
func TestLimits(t *testing.T) {
	t.Parallel()
	header := map[string]string{"on its own": "X-Forwarded-For",
		"behind a host that forwards": "X-Forwarded-For", "behind a host that proxies": "Client-Ip"}
	for mode, header := range header {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			settings := []string{"RATE_SHORTEN_PER_MINUTE=", "RATE_UNKNOWN_PER_MINUTE=",
				"RATE_API_PER_MINUTE=", "CLIENT_ADDRESS_HEADER=" + header, "CLIENT_ADDRESS_HOPS=1"}
			base := ""
			if mode == "on its own" {
				base = s.standalone(emulator.ConnectionString(), settings...).url
			} else {
				base = s.hosted(strings.HasSuffix(mode, "proxies"), emulator.ConnectionString(),
					settings...).URL()
			}
			awaitReady(t, base)
			start := time.Now()
			const url = `{"longUrl":"https://example.com/"}`
			var last testutil.Response
			made := 0
			for last.Status != 429 && made < 60 {
				last = request(t, "POST", base+"/api/shorten", url, header,
					fmt.Sprintf("198.51.100.%d, 203.0.113.7", made))
				if last.Status != 429 {
					made++
				}
			}
			if most := 31 + int(time.Since(start)/(2*time.Second)); made < 30 || made > most {
				t.Errorf("one client was answered %d times, want 30 to %d", made, most)
			}
			for name, want := range map[string]string{"Retry-After": "2",
				"Ratelimit-Policy": `"shorten";q=30;w=60`, "Ratelimit": `"shorten";r=0;t=2`,
				"Content-Type": problem} {
				if got := last.Header.Get(name); got != want && got != strings.ReplaceAll(want, "2",
					"1") {
					t.Errorf("%s: got %q, want %q", name, got, want)
				}
			}
			if !strings.Contains(last.Body, `"type":"/problems/rate-limited"`) {
				t.Errorf("got %s", last.Body)
			}
			if got := request(t, "POST", base+"/api/shorten", url, header,
				"203.0.113.8"); got.Status != 200 && got.Status != 503 {
				t.Errorf("another client got %+v", got)
			}
			if got := (caller{t, base, adminKey}).send("POST", "/api/shorten", url, header,
				"203.0.113.7"); got.Status == 429 {
				t.Errorf("an owner got %+v", got)
			}
		})
	}
}

// A flood of requests for unknown aliases from one client makes no more storage calls than its
// limit allows. The requests of others are answered.
func TestAFloodOfUnknownAliases(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	proxy := s.proxy()
	base := s.standalone(proxy.ConnectionString(), "RATE_UNKNOWN_PER_MINUTE=60",
		"CLIENT_ADDRESS_HOPS=1").url
	awaitReady(t, base)
	made := mustShorten(t, base, "https://example.com/")
	var reads, found, refused atomic.Int64
	proxy.After(func(c faultproxy.Call) {
		if c.Operation == "GetEntity" && c.Target == s.Links {
			reads.Add(1)
		}
	})
	start := time.Now()
	var flood sync.WaitGroup
	for g := range 16 {
		flood.Go(func() {
			for i := range 100 {
				got, err := testutil.Send("GET", fmt.Sprintf("%s/f%d_%d", base, g, i), "",
					"X-Forwarded-For", fmt.Sprintf("198.51.100.%d,203.0.113.7", i))
				switch {
				case err != nil || got.Status != 404 && got.Status != 429:
					t.Errorf("got %+v, %v", got, err)
				case got.Status == 404:
					found.Add(1)
				default:
					refused.Add(1)
				}
			}
		})
	}
	flood.Wait()
	// On a busy machine, some look-ups may be tried twice.
	if most := 61 + int64(time.Since(start)/time.Second); reads.Load() > most+most/2 ||
		found.Load() > min(most, reads.Load()) {
		t.Errorf("%d look-ups, %d not found and %d refused; want %d of the first at most",
			reads.Load(), found.Load(), refused.Load(), most)
	}
	if got := get(t, base+"/"+made.Alias, "X-Forwarded-For", "203.0.113.7"); got.Status != 302 {
		t.Errorf("a cached link is %d", got.Status)
	}
	if got := get(t, base+"/nobody", "X-Forwarded-For", "203.0.113.8"); got.Status != 404 {
		t.Errorf("another client got %d", got.Status)
	}
}

// An owner who asks about many aliases learns of only a few of other owners' aliases.
func TestAliasesOfOthersAreNotToldWithoutEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	base := s.standalone(emulator.ConnectionString(), "RATE_PROBES_PER_DAY=3").url
	awaitReady(t, base)
	ann, bob := owner(t, base, "ann"), owner(t, base, "bob")
	for _, c := range []struct {
		of    caller
		alias string
	}{{ann, "anns"}, {bob, "bob1"}, {bob, "bob2"}, {bob, "bob3"}, {bob, "bob4"}} {
		c.of.must(201, "POST", "/api/shorten",
			fmt.Sprintf(`{"longUrl":"https://example.com/%s","alias":%[1]q}`, c.alias))
	}
	var lines strings.Builder
	for _, alias := range []string{"free1", "bob1", "anns", "bob2", "bob3", "bob4", "free2",
		"anns"} {
		fmt.Fprintf(&lines, `{"alias":%q,"longUrl":"https://example.com/anns"}`+"\n", alias)
	}
	tries := func(want ...float64) {
		t.Helper()
		var got []float64
		for _, r := range ann.must(200, "POST", "/api/import?dryRun=true",
			lines.String())["results"].([]any) {
			got = append(got, r.(map[string]any)["status"].(float64))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	tries(201, 409, 200, 409, 409, 429, 429, 200)
	tries(429, 429, 200, 429, 429, 429, 429, 200)
	made := (caller{t: t, base: base}).must(201, "POST", "/api/shorten",
		`{"longUrl":"https://example.com/"}`)
	claims := fmt.Sprintf(`{"claims":[{"alias":"bob1","claimToken":"x"},`+
		`{"alias":"free1","claimToken":"x"},{"alias":"anns","claimToken":"x"},`+
		`{"alias":%q,"claimToken":%q}]}`, made["alias"], made["claimToken"])
	if got := ann.must(200, "POST", "/api/claims", claims)["results"]; !matches(got,
		[]any{map[string]any{"result": "later"},
			map[string]any{"result": "later"}, map[string]any{"result": "already yours"},
			map[string]any{"result": "claimed"}}) {
		t.Errorf("got %v", got)
	}
}
