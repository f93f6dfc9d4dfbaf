package e2e

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/testutil"
)

// An admin blocks a host, in any spelling that the Functions host lets through.
func TestHostsAreBlocked(t *testing.T) {
	for mode, start := range modes {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			for alias, longURL := range map[link.Name]string{
				"name": "https://a.EXAMPLE.com.:8443/", "umlaut": "https://xn--bcher-kva.example/",
				"six": "http://[2001:db8:0::1]/", "four": "http://0x7f.1/",
			} {
				s.PutLink(link.Link{Name: alias, LongURL: longURL})
			}
			base, hosted := start(s)
			awaitReady(t, base)
			admin, ada := caller{t, base, adminKey}, owner(t, base, "ada")
			spellings := map[link.Name]string{"name": "Example.COM.",
				"umlaut": "B%C3%9CCHER.example", "six": "[2001:DB8::1]", "four": "127.1"}
			follow := func(alias link.Name, status int) {
				t.Helper()
				if got := get(t, base+"/"+string(alias)); got.Status != status {
					t.Errorf("%s: got %+v, want %d", alias, got, status)
				}
			}
			for alias, host := range spellings {
				follow(alias, 302)
				admin.must(204, "PUT", "/api/blocked/"+host, "")
				follow(alias, 410)
			}
			if got := admin.must(200, "GET", "/api/blocked", ""); !matches(got["items"], []any{
				map[string]any{"host": "127.0.0.1"}, map[string]any{"host": "[2001:db8::1]"},
				map[string]any{"host": "example.com"},
				map[string]any{"host": "xn--bcher-kva.example"},
			}) {
				t.Errorf("got %v", got["items"])
			}
			for _, c := range []caller{{t, base, ""}, ada, admin} {
				if got := c.must(403, "POST", "/api/shorten",
					`{"longUrl":"https://bücher.example/new"}`); got["type"] !=
					"/problems/target-blocked" || got["field"] != "longUrl" {
					t.Errorf("got %v", got)
				}
			}
			ada.must(201, "POST", "/api/shorten",
				`{"longUrl":"https://example.org/","alias":"adas"}`)
			ada.must(403, "PATCH", "/api/links/adas", `{"longUrl":"http://2130706433/"}`)
			for host, status := range map[string]int{"example.com%3A80": 400, "example.com:80": 400,
				"https%3A%2F%2Fexample.com": 400, "user@example.com": 400, "[::1": 400,
				"b%25C3%25BCcher.example": 204} {
				// The Functions host lets no escaped slash or percent sign through.
				if hosted && (host[0] == 'h' || status == 204) {
					status = 404
				}
				admin.must(status, "PUT", "/api/blocked/"+host, "")
			}
			ada.must(403, "PUT", "/api/blocked/example.org", "")
			caller{t, base, ""}.must(401, "GET", "/api/blocked", "")
			for alias, host := range spellings {
				admin.must(204, "DELETE", "/api/blocked/"+host, "")
				follow(alias, 302)
				admin.must(404, "DELETE", "/api/blocked/"+host, "")
			}
		})
	}
}

// If an admin blocks a host at one process, all others block it within 15 seconds. A process that
// starts while storage responds blocks it at once. Package storage tests idle processes and
// outages, with a clock of its own.
func TestABlockedHostReachesEveryProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.PutLink(link.Link{Name: "bad", LongURL: "https://a.example.com/"})
	s.PutLink(link.Link{Name: "well", LongURL: "https://example.org/"})
	serve := func() string { return s.standalone(emulator.ConnectionString()).url }
	here, other := serve(), serve()
	for _, base := range []string{here, other} {
		if got := get(t, base+"/bad"); got.Status != 302 {
			t.Errorf("got %+v", got)
		}
	}
	admin := caller{t, here, adminKey}
	change := func(method string, status int) {
		t.Helper()
		admin.must(204, method, "/api/blocked/example.com", "")
		start := time.Now()
		known := func() bool { return get(t, other+"/bad").Status == status }
		testutil.Eventually(t, "it is known", known)
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("known after %v", took)
		}
	}
	change(http.MethodPut, 410)
	started := serve()
	for alias, status := range map[string]int{"bad": 410, "well": 302} {
		if got := get(t, started+"/"+alias); got.Status != status {
			t.Errorf("started: %s: got %+v, want %d", alias, got, status)
		}
	}
	change(http.MethodDelete, 302)
	if got := fmt.Sprint(admin.must(200, "GET", "/api/blocked", "")["items"]); got != "[]" {
		t.Errorf("got %s", got)
	}
}
