//go:build unix

package simulation

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/testutil"
)

// noTombstones makes the reaper leave nothing of links.
const noTombstones = "NODE_TOMBSTONE_DAYS=0"

// needsLong skips tests that wait for real lifetimes and leases to end, or that work through many
// rows. `make chaos` runs them.
func needsLong(t *testing.T) {
	if !*long {
		t.Skip("takes minutes: make chaos runs it")
	}
}

// A process is stopped after it has written a link's expiry row, before the link itself. It is
// woken when the link's life is over and another process has reaped the row.
func TestLongStoppedCreator(t *testing.T) {
	needsLong(t)
	t.Parallel()
	r, end := newRound(t, setup{env: []string{noTombstones}})
	defer end()
	creator, other := r.nodes[0], r.nodes[1]
	var once sync.Once
	stopped := make(chan struct{})
	creator.proxy.After(func(c faultproxy.Call) {
		if c.Operation == "InsertEntity" && c.Target == r.tables.Expiry {
			once.Do(func() { creator.signal(syscall.SIGSTOP); close(stopped) })
		}
	})
	status := make(chan int, 1)
	r.client.Timeout = 5 * time.Minute
	go func() {
		got, err := r.client.Post(*creator.url.Load()+"/api/shorten", "application/json",
			strings.NewReader(`{"longUrl":"https://example.com/stopped","expiresInSeconds":60}`))
		if err != nil {
			status <- 0
			return
		}
		got.Body.Close()
		status <- got.StatusCode
	}()
	select {
	case <-stopped:
	case got := <-status:
		t.Fatalf("the create ended with %d before it was stopped", got)
	}
	time.Sleep(2 * time.Minute)
	if code, body := other.control("reap"); code != 200 {
		t.Errorf("reap: %d %s", code, body)
	}
	if rows := r.tables.Rows(r.tables.Expiry); len(rows) != 0 {
		t.Errorf("the expiry row was not reaped: %v", rows)
	}
	creator.signal(syscall.SIGCONT)
	if got := <-status; got != 503 {
		t.Errorf("got %d, want 503", got)
	}
	creator.proxy.Wait()
	// The signal takes a moment. In that time, the process may come as far as writing its link.
	// Then it sends the link when it is woken, and writes its expiry row again.
	r.tables.WantNoLeak()
	if code, body := other.control("reap"); code != 200 {
		t.Errorf("reap: %d %s", code, body)
	}
	r.tables.WantRows(0, 0, 0)
}

// A process is stopped in the middle of a reap for longer than its lease lasts. Meanwhile, another
// process does the work.
func TestLongStoppedReaper(t *testing.T) {
	needsLong(t)
	t.Parallel()
	r, end := newRound(t, setup{env: []string{noTombstones}})
	defer end()
	past := time.Now().Add(-24 * time.Hour)
	for i := range 40 {
		r.tables.PutLink(link.Link{Name: link.Name(fmt.Sprintf("due%d", i)),
			LongURL: fmt.Sprintf("https://example.com/%d", i), ExpiresAt: past})
	}
	live := link.Link{Name: "live", LongURL: "https://example.com/live",
		ExpiresAt: time.Now().Add(time.Hour)}
	r.tables.PutLink(live)
	stale, other := r.nodes[0], r.nodes[1]
	var once sync.Once
	stopped := make(chan struct{})
	stale.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == "DeleteEntity" && c.Target == r.tables.Links {
			once.Do(func() { stale.signal(syscall.SIGSTOP); close(stopped) })
		}
		return faultproxy.None
	})
	r.client.Timeout = 5 * time.Minute
	ended := make(chan int, 1)
	go func() {
		status, err := stale.fireTimer()
		if err != nil {
			t.Error(err)
		}
		ended <- status
	}()
	select {
	case <-stopped:
	case status := <-ended:
		t.Fatalf("the first reaper ended with %d before it deleted a link", status)
	}
	time.Sleep(65 * time.Second)
	if code, err := other.fireTimer(); code != 200 || err != nil {
		t.Errorf("the other reaper: %d, %v", code, err)
	}
	// One of the expired links gets a second life before the first reaper wakes up.
	again := link.Link{Name: "due0", LongURL: "https://example.com/0",
		ExpiresAt: time.Now().Add(time.Hour)}
	r.tables.PutLink(again)
	stale.signal(syscall.SIGCONT)
	// The first reaper finds that its rows have changed, or that it has lost its lease.
	if status := <-ended; status != 200 && status != 503 {
		t.Errorf("the reaper that was stopped: got %d", status)
	}
	r.tables.WantRows(2, 2, 2)
	r.tables.WantNoLeak()
	for _, a := range []string{"live", "due0"} {
		got, err := r.client.Get(*other.url.Load() + "/" + a)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != http.StatusFound {
			t.Errorf("%s: got %d", a, got.StatusCode)
		}
	}
}

// A reaper's memory is limited by a page of rows, no matter how many rows are due.
func TestLongBacklog(t *testing.T) {
	needsLong(t)
	r, end := newRound(t, setup{env: []string{"NODE_BIG_PAGES=yes", noTombstones}})
	defer end()
	r.client.Timeout = time.Hour
	n := r.nodes[0]
	at := time.Now().Add(-24 * time.Hour)
	peak := map[int]int{}
	for _, count := range []int{1000, *rows} {
		r.tables.PutMany(count, at)
		n.kill()
		n.start() // so that its memory is empty
		start := time.Now()
		for runs, left := 0, count; left > 0; runs++ {
			if runs == 60 {
				t.Fatalf("%d of %d are left after an hour", left, count)
			}
			// A run is limited to a minute. The next run continues.
			code, body := n.control("reap")
			if code != 200 {
				t.Fatalf("reap: %d %s", code, body)
			}
			left = len(r.tables.Rows(r.tables.Expiry))
		}
		peak[count] = testutil.Memory(t, n.cmd.Process.Pid, "VmHWM")
		t.Logf("%d links reaped in %v, with at most %d MB in memory", count,
			time.Since(start).Round(time.Second), peak[count]>>10)
		r.tables.WantRows(0, 0, 0)
	}
	if growth := peak[*rows] - peak[1000]; growth > 10<<10 {
		t.Errorf("%d MB more for %d links than for 1000", growth>>10, *rows)
	}
}

// The clock of one process jumps an hour ahead and back. Its responses about links follow its
// clock. Nothing is lost.
func TestClockJumps(t *testing.T) {
	r, end := newRound(t, setup{env: []string{"NODE_STORAGE_CLOCK=yes"}})
	defer end()
	n, other := r.nodes[0], r.nodes[1]
	long := link.Link{Name: "long", LongURL: "https://example.com/long",
		ExpiresAt: time.Now().Add(3 * time.Hour)}
	short := link.Link{Name: "short", LongURL: "https://example.com/short",
		ExpiresAt: time.Now().Add(30 * time.Minute)}
	r.tables.PutLink(long)
	r.tables.PutLink(short)
	want := func(when string, n *node, alias string, want int) {
		t.Helper()
		got, err := r.client.Get(*n.url.Load() + "/" + alias)
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != want {
			t.Errorf("%s, %s: got %d, want %d", when, alias, got.StatusCode, want)
		}
	}
	for _, a := range []string{"long", "short"} {
		want("at first", n, a, 302)
	}
	n.advance(time.Hour)
	want("an hour ahead", n, "long", 302)
	want("an hour ahead", n, "short", 410)
	want("an hour ahead, elsewhere", other, "short", 302)
	n.advance(-2 * time.Hour)
	for _, a := range []string{"long", "short"} {
		want("an hour behind", n, a, 302)
	}
	for _, jump := range []struct {
		name string
		by   time.Duration
	}{{"an hour behind", 0}, {"an hour ahead", 2 * time.Hour}} {
		n.advance(jump.by)
		got, err := r.client.Post(*n.url.Load()+"/api/shorten", "application/json",
			strings.NewReader(fmt.Sprintf(
				`{"longUrl":"https://example.com/%s","expiresInSeconds":10800}`,
				url.PathEscape(jump.name))))
		if err != nil {
			t.Fatal(err)
		}
		got.Body.Close()
		if got.StatusCode != 201 {
			t.Errorf("shorten %s: got %d", jump.name, got.StatusCode)
		}
		// If its own clock is ahead, the reaper uses another clock.
		if status, err := n.fireTimer(); status != 200 || err != nil {
			t.Errorf("reaper %s: got %d, %v", jump.name, status, err)
		}
	}
	r.tables.WantRows(4, 4, 4)
	r.tables.WantNoLeak()
}
