package e2e

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/faultproxy"
	"tiney/internal/funchost"
	"tiney/link"
)

// killAt kills a host's process at its nth call on rows, before it reaches storage or after it was applied.
func killAt(p *faultproxy.Proxy, h *funchost.Host, n int64, after bool) {
	p.Reset()
	var seen atomic.Int64
	kill := func(c faultproxy.Call) bool {
		onRows := strings.HasSuffix(c.Operation, "Entity") || c.Operation == "SubmitTransaction"
		if !onRows || seen.Add(1) != n {
			return false
		}
		h.Kill()
		return true
	}
	if after {
		p.After(func(c faultproxy.Call) { kill(c) })
		return
	}
	p.Before(func(c faultproxy.Call) faultproxy.Fault {
		if kill(c) {
			return faultproxy.Refuse
		}
		return faultproxy.None
	})
}

func TestKilledAtEveryStorageCallOfCreate(t *testing.T) {
	for _, replace := range []bool{false, true} {
		calls := 4
		if replace {
			calls = 5 // the stale index row's link is read too
		}
		for n := 1; n <= calls; n++ {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("replacing=%t, call %d, after=%t", replace, n, after), func(t *testing.T) {
					t.Parallel()
					s := newSite(t)
					if replace {
						s.PutLink(link.Link{Alias: "stale", LongURL: "https://example.com/page", ExpiresAt: time.Now().Add(-time.Hour)})
					}
					p := s.proxy()
					h := s.hosted(false, p.ConnectionString())
					kept := mustShorten(t, h.URL(), "https://example.com/kept")
					killAt(p, h, int64(n), after)
					lost, status := shorten(t, h.URL(), "https://example.com/page")
					if status == 201 {
						t.Errorf("acknowledged by a process that was killed: %+v", lost)
					}
					p.Reset()
					s.WantNoLeak()
					if err := h.Restart(ctx); err != nil {
						t.Fatal(err)
					}
					again := mustShorten(t, h.URL(), "https://example.com/page")
					for _, l := range []shortLink{kept, again} {
						if got := get(t, h.URL()+"/"+l.Alias); got.Status != 302 || got.Header.Get("Location") != l.LongURL {
							t.Errorf("%s: got %+v", l.Alias, got)
						}
					}
					s.Age(40 * 24 * time.Hour)
					s.WantNoLeak()
					if _, err := h.FireTimer(ctx, "reaper"); err != nil {
						t.Error(err)
					}
					s.WantRows(0, 0, 0)
				})
			}
		}
	}
}

func TestKilledAtEveryStorageCallOfReap(t *testing.T) {
	// One read for the time, two reads and two deletes for each of the three links that are due, and a delete and a batch
	// for their expiry rows of two days.
	for n := 1; n <= 15; n++ {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d, after=%t", n, after), func(t *testing.T) {
				t.Parallel()
				s := newSite(t)
				at := time.Now().Add(-10 * 24 * time.Hour)
				due := []link.Link{
					{Alias: "due", LongURL: "https://example.com/due", ExpiresAt: at},
					{Alias: "dueToo", LongURL: "https://example.com/due/too", ExpiresAt: at},
					{Alias: "dueBefore", LongURL: "https://example.com/due/before", ExpiresAt: at.Add(-24 * time.Hour)},
				}
				for _, l := range due {
					s.PutLink(l)
				}
				p := s.proxy()
				h := s.hosted(false, p.ConnectionString())
				live := mustShorten(t, h.URL(), "https://example.com/live")
				killAt(p, h, int64(n), after)
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
				s.RemoveContainer(s.lock) // and the lease of the killed process, instead of waiting a minute for its end
				if _, err := h.FireTimer(ctx, "reaper"); err != nil {
					t.Error(err)
				}
				s.WantRows(1, 1, 1)
				if got := get(t, h.URL()+"/"+live.Alias); got.Status != 302 {
					t.Errorf("the live link: %+v", got)
				}
				for _, l := range due {
					if got := get(t, h.URL()+"/"+string(l.Alias)); got.Status != 404 {
						t.Errorf("the expired link %s: %+v", l.Alias, got)
					}
				}
			})
		}
	}
}
