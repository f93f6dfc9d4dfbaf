package functions_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tiney/access"
	"tiney/functions"
	"tiney/internal/linkstest"
)

// upload begins a call of who with a body of which nothing arrives. end sends rest, ends the body,
// and returns the status.
func (r *rig) upload(who, target string, length int64) (end func(rest string) int) {
	r.as(who, "GET", "/api/me", "") // makes the key
	body, client := io.Pipe()
	req := httptest.NewRequest("POST", target, body)
	req.ContentLength = length
	req.Header.Set("Content-Type", "application/json")
	secret := r.keys.of[who]
	if who == "admin" {
		secret = adminKey
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	w := httptest.NewRecorder()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ServeHTTP(w, req)
		_ = body.Close() // as net/http does
	}()
	synctest.Wait()
	return func(rest string) int {
		_, _ = io.WriteString(client, rest)
		_ = client.Close()
		<-done
		return w.Code
	}
}

const oneBulk = `{"links":[{"longUrl":"https://example.com/"}]}`

// Calls whose body does not arrive take no places from others. Their bodies together have a limit,
// of which an admin's share is kept.
func TestIdleUploadsBlockFew(t *testing.T) {
	for target, room := range map[string]struct{ length, most int64 }{
		"/api/import":     {-1, 15},
		"/api/links/bulk": {-1, 60},
		"/api/import?q":   {4 << 20, 15},
		"/api/import?x":   {1 << 40, 15}, // is refused later
		"/api/import?z":   {1 << 20, 60},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(c *functions.Config) { c.HostAddress = "" })
			var ends []func(string) int
			for i := range room.most {
				if code := r.as("cleo", "POST", "/api/links/bulk",
					oneBulk).Code; i < 15 && code != 200 {
					t.Fatalf("%s: with %d idle ones, another call got %d", target, i, code)
				}
				ends = append(ends, r.upload(fmt.Sprint("owner", i), target, room.length))
			}
			w := r.as("cleo", "POST", "/api/import", oneBulk)
			wantProblem(t, w, 503, "busy", "")
			if w.Header().Get("Retry-After") == "" || r.metrics.LimitRefused("busy").Value() < 1 {
				t.Errorf("%s: got %v", target, w.Header())
			}
			for _, target := range []string{"/api/links/bulk", "/api/import"} {
				if w := r.as("admin", "POST", target, oneBulk); w.Code != 200 {
					t.Errorf("with %d idle ones, an admin got %d", room.most, w.Code)
				}
			}
			for _, end := range ends {
				end("")
			}
			for i := range 15 { // everything that was taken is back
				ends[i] = r.upload(fmt.Sprint("owner", i), "/api/import", -1)
			}
			for _, end := range ends[:15] {
				if code := end(`{"longUrl":"https://example.com/"}`); code != 200 {
					t.Errorf("%s: a slow one got %d", target, code)
				}
			}
		})
	}
}

// An owner sends one at a time, and so does one who acts for owners.
func TestOneUploadOfAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *functions.Config) { c.HostAddress = "" })
		for who, key := range map[string]access.Key{
			"crew": {Owner: "crew", ActsFor: "ann"}, "ops": {Owner: "ops", ActsFor: "ann"},
			"crew2": {Owner: "crew", ActsFor: "ben"}} {
			secret := unknownKey(t)
			key.Hash = access.Hash(secret)
			r.keys.of[who], r.keys.all = secret, append(r.keys.all, key)
		}
		const busy, let = 503, 200
		for _, of := range []struct {
			idle string
			want map[string]int
		}{
			{"ann", map[string]int{"ann": busy, "crew": busy, "ops": busy, "crew2": let, "ben": let}},
			{"crew", map[string]int{"ann": busy, "crew": busy, "ops": busy, "crew2": busy, "ben": let}},
			{"crew2", map[string]int{"ann": let, "crew": busy, "ops": let, "crew2": busy, "ben": busy}},
			{"admin", map[string]int{"ann": let, "crew": let, "admin": busy}},
		} {
			end := r.upload(of.idle, "/api/links/bulk", -1)
			for who, want := range of.want {
				for _, target := range []string{"/api/links/bulk", "/api/import"} {
					if w := r.as(who, "POST", target, oneBulk); w.Code != want {
						t.Errorf("while %s sends, %s got %d, want %d", of.idle, who, w.Code, want)
					}
				}
			}
			if got := end(oneBulk); got != 200 {
				t.Errorf("%s got %d", of.idle, got)
			}
			for who := range of.want {
				if w := r.as(who, "POST", "/api/links/bulk", oneBulk); w.Code != 200 {
					t.Errorf("after %s, %s got %d", of.idle, who, w.Code)
				}
			}
		}
	})
}

// Few calls run at once, and one place is kept for admins.
func TestFewRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *functions.Config) {
			c.HostAddress = ""
			c.Links = slowStore{c.Links.(*linkstest.Fake), slow(time.Second)}
		})
		const file, let, busy = "no file", 400, 503
		late := r.upload("late", "/api/import", -1)
		for _, round := range []struct {
			running       []string
			others, admin int
		}{
			{[]string{"ann", "ben"}, let, let},
			{[]string{"ann", "ben", "cleo"}, busy, let},
			{[]string{"ann", "ben", "admin"}, busy, busy}, // one call of an owner at a time
		} {
			var all sync.WaitGroup
			for _, who := range round.running {
				end := r.upload(who, "/api/links/bulk", -1)
				all.Go(func() {
					if code := end(oneBulk); code != 200 {
						t.Errorf("%s of %v got %d", who, round.running, code)
					}
				})
			}
			synctest.Wait()
			for who, want := range map[string]int{"dora": round.others, "admin": round.admin} {
				if w := r.as(who, "POST", "/api/import", file); w.Code != want {
					t.Errorf("while %v run, %s got %d, want %d", round.running, who, w.Code, want)
				}
			}
			if late != nil && round.others == busy {
				if code := late(file); code != busy {
					t.Errorf("one whose body came late got %d", code)
				}
				late = nil
			}
			all.Wait()
		}
		if w := r.as("late", "POST", "/api/import", file); w.Code != let {
			t.Errorf("in the end got %d", w.Code)
		}
	})
}

// Calls that fail in any way give back what they have taken.
func TestFailedUploadsGiveBackTheirPlace(t *testing.T) {
	r := newRig(t)
	for i, body := range []string{"", "{", `{"links":[]}`, strings.Repeat(" ", 5<<20),
		strings.Repeat("x", 4<<20), `{"links":[{}]}`} {
		for range 20 {
			r.as("ann", "POST", "/api/links/bulk", body)
			r.as("ann", "POST", "/api/links/bulk", body, "Content-Type", "text/plain")
			r.as("ann", "POST", "/api/import", body)
			r.as("ann", "POST", "/api/import?format=nonsense", body)
			r.as("ann", "POST", "/api/import?format=csv", body)
		}
		req := httptest.NewRequest("POST", "/api/import", io.MultiReader(
			bytes.NewReader(nil), failingReader{}))
		req.Header.Set("X-Api-Key", r.keys.of["ann"])
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		if w.Code != http.StatusBadRequest {
			t.Errorf("a body that breaks off got %d", w.Code)
		}
		if w := r.as("ann", "POST", "/api/links/bulk", oneBulk); w.Code != 200 {
			t.Errorf("after %d: got %d %s", i, w.Code, w.Body)
		}
	}
}
