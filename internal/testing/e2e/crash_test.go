package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/funchost"
	"tiney/internal/testing/testutil"
	"tiney/storage"
)

// killAfter kills a host's process after storage has applied its nth call on rows.
func killAfter(p *faultproxy.Proxy, h *funchost.Host, n int64) {
	p.Reset()
	var seen atomic.Int64
	p.After(func(c faultproxy.Call) {
		onRows := strings.HasSuffix(c.Operation, "Entity") || c.Operation == "SubmitTransaction"
		if onRows && seen.Add(1) == n {
			h.Kill()
		}
	})
}

// Package storage tests kills at every call. These tests have one kill in the middle of each order
// of writes. They show that the executable, its host and real storage keep the same guarantees.

func TestKilledInTheMiddleOfAReap(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.TombstoneFor = 0
	at := time.Now().Add(-10 * 24 * time.Hour)
	due := []link.Link{
		{Name: "due", LongURL: "https://example.com/due", ExpiresAt: at},
		{Name: "dueToo", LongURL: "https://example.com/due/too", ExpiresAt: at},
		{Name: "dueBefore", LongURL: "https://example.com/due/before",
			ExpiresAt: at.Add(-24 * time.Hour)},
	}
	for _, l := range due {
		s.PutLink(l)
	}
	p := s.proxy()
	h := s.hosted(false, p.ConnectionString())
	live := mustShorten(t, h.URL(), "https://example.com/live")
	// The run makes 25 calls or so: four of the roll-up, one for the time, six for each link, and
	// one for the expiry rows of each of two days.
	killAfter(p, h, 14)
	if _, err := h.FireTimer(ctx, "reaper"); err == nil {
		t.Error("the run ended although its process was killed")
	}
	p.Reset()
	s.WantNoLeak()
	if err := h.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	got, err := h.FireTimer(ctx, "reaper")
	if err != nil || len(got.Logs) != 1 || got.Logs[0] != "another instance is reaping" {
		t.Errorf("while the lease stands: %+v, %v", got, err)
	}
	// Removing the container removes the killed process's lease, which would end after a minute.
	s.RemoveContainer(s.lock)
	if _, err := h.FireTimer(ctx, "reaper"); err != nil {
		t.Error(err)
	}
	s.WantRows(1, 1, 1)
	if got := get(t, h.URL()+"/"+live.Alias); got.Status != 302 {
		t.Errorf("the live link: %+v", got)
	}
	for _, l := range due {
		if got := get(t, h.URL()+"/"+string(l.Name)); got.Status != 404 {
			t.Errorf("the expired link %s: %+v", l.Name, got)
		}
	}
}

// change is a request of an owner that makes several storage calls. $NEW stands for a text. $ALIAS
// and $TOKEN stand for the alias and the claim token of a link that exists before. Its owner or
// nobody has made that link.
type change struct {
	link                 string // the body of the shorten that makes the link; "" for no link
	nobodys              bool   // whether the link has no owner
	method, target, body string
	kill                 int64 // kill the process after this call on rows
	repeated             []int // the allowed statuses of the repeated request
}

var changes = map[string]change{
	"shorten": {method: "POST", target: "/api/shorten",
		body: `{"longUrl":"https://example.com/$NEW","expiresInSeconds":3600}`,
		kill: 4, repeated: []int{200, 201}},
	"move": {link: `{"longUrl":"https://example.com/$NEW"}`,
		method: "PATCH", target: "/api/links/$ALIAS",
		body: `{"longUrl":"https://example.com/$NEW/moved"}`, kill: 7, repeated: []int{200}},
	"claim": {link: `{"longUrl":"https://example.com/$NEW"}`, nobodys: true,
		method: "POST", target: "/api/claims",
		body: `{"claims":[{"alias":"$ALIAS","claimToken":"$TOKEN"}]}`, kill: 6,
		repeated: []int{200}},
	"key": {method: "POST", target: "/api/keys", body: `{"name":"$NEW"}`, kill: 1,
		repeated: []int{201}},
}

// Nothing leaks if a process is killed during a request. The link is as it was before, or as the
// request would leave it, and the request can be repeated.
func TestKilledInTheMiddleOfAChange(t *testing.T) {
	t.Parallel()
	for name, c := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			s.TombstoneFor = 0 // so that no rows are left at the end
			p := s.proxy()
			h := s.hosted(false, p.ConnectionString())
			ada := owner(t, h.URL(), "ada")
			stands := map[string]string{"NEW": "new"}
			in := func(text string) string {
				return os.Expand(text, func(name string) string { return stands[name] })
			}
			if c.link != "" {
				maker := ada
				if c.nobodys {
					maker.token = ""
				}
				made := maker.must(201, "POST", "/api/shorten", in(c.link))
				stands["ALIAS"], stands["TOKEN"] = fmt.Sprint(made["alias"]),
					fmt.Sprint(made["claimToken"])
			}
			ada.must(200, "GET", "/api/me", "") // so that the key is cached
			killAfter(p, h, c.kill)
			got, err := testutil.Send(c.method, h.URL()+in(c.target), in(c.body),
				"Content-Type", "application/json", "Authorization", "Bearer "+ada.token)
			p.Reset()
			if err == nil && got.Status < 300 {
				t.Errorf("it makes fewer than %d storage calls: %+v", c.kill, got)
			}
			p.Wait()
			s.WantNoLeak(storage.ListedWithoutLink) // lists drop such rows
			if err := h.Restart(ctx); err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, "it is repeated", func() bool {
				got = ada.send(c.method, in(c.target), in(c.body))
				return got.Status != 503
			})
			if !slices.Contains(c.repeated, got.Status) {
				t.Errorf("killed after call %d, and repeated: got %+v, want %v", c.kill, got,
					c.repeated)
			}
			s.WantNoLeak(storage.ListedWithoutLink)
			// The list includes a claimed link.
			for _, item := range ada.must(200, "GET", "/api/links?limit=100", "")["items"].([]any) {
				ada.must(204, "DELETE", "/api/links/"+item.(map[string]any)["alias"].(string), "")
			}
			s.Age(100 * 365 * 24 * time.Hour)
			s.RemoveContainer(s.lock) // with the lease that a killed process may have taken
			if _, err := h.FireTimer(ctx, "reaper"); err != nil {
				t.Error(err)
			}
			s.WantRows(0, 0, 0)
		})
	}
}
