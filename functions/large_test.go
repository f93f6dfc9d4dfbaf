package functions_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/testing/teststore"
	"tiney/internal/testing/testutil"
)

// upload begins a call of who with a body of which nothing arrives. send sends more of the body.
// end sends rest, ends the body, and returns the status.
func (r *rig) upload(who, target string, length int64) (send func(string), end func(string) int) {
	r.as(who, "GET", "/api/me", "") // makes the key
	body, client := net.Pipe()
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
		r.ServeHTTP(onConn{w, body}, req)
		_ = body.Close() // as net/http does
	}()
	synctest.Wait()
	send = func(text string) { _, _ = io.WriteString(client, text) }
	return send, func(rest string) int {
		send(rest)
		_ = client.Close()
		<-done
		return w.Code
	}
}

// onConn is a response on a connection whose time limits can be set.
type onConn struct {
	*httptest.ResponseRecorder
	net.Conn
}

func (c onConn) Write(p []byte) (int, error) { return c.ResponseRecorder.Write(p) }

const oneBulk = `{"links":[{"longUrl":"https://example.com/"}]}`

// Calls whose body does not arrive take nothing from others, whatever they announce.
func TestIdleUploadsBlockNobody(t *testing.T) {
	uploads := 100
	if raced {
		uploads = 25
	}
	for _, test := range []struct {
		target string
		length int64
	}{
		{"/api/import", -1}, {"/api/import", 4 << 20},
		{"/api/links/bulk", 1 << 20}, {"/api/links/bulk", 1 << 40},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(c *functions.Config) { c.HostAddress = "" })
			var ends []func(string) int
			for i := range uploads {
				send, end := r.upload(fmt.Sprint("owner", i), test.target, test.length)
				send("\ufeff ")
				ends = append(ends, end)
			}
			for _, who := range []string{"cleo", "admin"} {
				for _, target := range []string{"/api/links/bulk", "/api/import"} {
					if w := r.as(who, "POST", target, oneBulk); w.Code != 200 {
						t.Errorf("%+v: %s got %d", test, who, w.Code)
					}
				}
			}
			for _, end := range ends {
				if code := end(oneBulk); code != 200 {
					t.Errorf("%+v: a slow one got %d", test, code)
				}
			}
		})
	}
}

// The bodies on their way have a limit together, of which an admin's share is kept. A body that
// stops to arrive gives back its room.
func TestHeldUploadsGiveBackTheirRoom(t *testing.T) {
	for target, test := range map[string]struct{ size, most, blank int }{
		"/api/import":     {4<<20 - 1, 5, 200},
		"/api/links/bulk": {1<<20 - 1, 20, 400},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(c *functions.Config) { c.HostAddress = "" })
			var sends []func(string)
			var ends []func(string) int
			held := strings.Repeat(" ", test.size)
			for i := range test.most {
				send, end := r.upload(fmt.Sprint("owner", i), target, -1)
				send(held)
				sends, ends = append(sends, send), append(ends, end)
			}
			w := r.as("cleo", "POST", "/api/import", held)
			wantProblem(t, w, 503, "busy", "")
			if w.Header().Get("Retry-After") == "" || r.metrics.LimitRefused("busy").Value() != 1 {
				t.Errorf("%s: got %v", target, w.Header())
			}
			wantStatus(t, r.as("cleo", "POST", "/api/import", oneBulk), 200, target)
			admins := strings.Repeat(" ", 4<<20-len(oneBulk)) + oneBulk
			wantStatus(t, r.as("admin", "POST", "/api/import", admins), 200, target)
			if code := ends[0](""); code != test.blank {
				t.Errorf("%s: a blank one got %d", target, code)
			}
			wantStatus(t, r.as("cleo", "POST", target, held), test.blank, target)
			time.Sleep(3 * time.Second)
			for i := range test.most {
				if i > 0 {
					sends[i](" ")
				}
				_, end := r.upload(fmt.Sprint("other", i), target, -1)
				if code := end(held); code != test.blank {
					t.Errorf("%s: after them, got %d", target, code)
				}
			}
			for _, end := range ends[1:] {
				if code := end(""); code != 408 {
					t.Errorf("%s: one that stopped to arrive got %d", target, code)
				}
			}
		})
	}
}

// A body may take its time, if it arrives at 50 KB a second, but not for ever.
func TestSlowUploads(t *testing.T) {
	for want, wait := range map[int]time.Duration{200: 100, 408: 150} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, func(c *functions.Config) { c.HostAddress = "" })
			send, end := r.upload("ann", "/api/import", 4<<20)
			for range 130 {
				send(strings.Repeat(" ", 6000))
				time.Sleep(wait * time.Millisecond)
			}
			if code := end("x"); code != want {
				t.Errorf("with %d ms between parts, got %d", wait, code)
			}
		})
	}
}

// The time limit holds on a connection too, and a response comes before it is closed.
func TestHeldUploadOnAConnection(t *testing.T) {
	testutil.NotShort(t)
	r := newRig(t, func(c *functions.Config) { c.HostAddress = "" })
	r.as("ann", "GET", "/api/me", "") // makes the key
	s := httptest.NewServer(r)
	defer s.Close()
	conn, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	fmt.Fprintf(conn, "POST /api/import HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\n"+
		"Content-Length: 4000000\r\n\r\n%s", r.keys.of["ann"], strings.Repeat(" ", 1<<20))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 408 {
		t.Fatalf("got %+v, %v", resp, err)
	}
	wantStatus(t, r.as("ann", "POST", "/api/links/bulk", oneBulk), 200, "after it")
}

// An owner sends one at a time, and so does one who acts for owners.
func TestOneUploadOfAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *functions.Config) { c.HostAddress = "" })
		for who, key := range map[string]access.Key{
			"crew": {Owner: "crew", ActsFor: "ann"}, "ops": {Owner: "ops", ActsFor: "ann"},
			"crew2": {Owner: "crew", ActsFor: "ben"}} {
			r.putKey(who, key)
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
			_, end := r.upload(of.idle, "/api/links/bulk", -1)
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
			c.Links = slowStore{c.Links.(*teststore.Store), slow(time.Second)}
		})
		const file, let, busy = "no file", 400, 503
		_, late := r.upload("late", "/api/import", -1)
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
				_, end := r.upload(who, "/api/links/bulk", -1)
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
		wantStatus(t, r.as("late", "POST", "/api/import", file), let, "in the end")
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
		w := r.send(req)
		if w.Code != http.StatusBadRequest {
			t.Errorf("a body that breaks off got %d", w.Code)
		}
		wantStatus(t, r.as("ann", "POST", "/api/links/bulk", oneBulk), 200, i)
	}
}
