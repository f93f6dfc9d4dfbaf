package e2e

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/funchost"
	"tiney/internal/testing/testutil"
)

func TestReaperCatchesUp(t *testing.T) {
	t.Parallel()
	backlog := func(s *site) {
		s.TombstoneFor = 0
		for d := range 10 {
			for i := range 5 {
				s.PutLink(link.Link{Name: link.Name(fmt.Sprintf("due-%d-%d", d, i)),
					LongURL:   fmt.Sprintf("https://example.com/%d/%d", d, i),
					ExpiresAt: time.Now().Add(-time.Duration(d)*24*time.Hour - time.Minute)})
			}
		}
		s.PutLink(link.Link{Name: "forever", LongURL: "https://example.com/forever"})
		s.PutLink(link.Link{Name: "live", LongURL: "https://example.com/live",
			ExpiresAt: time.Now().Add(time.Hour)})
	}
	t.Run("behind the host", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		backlog(s)
		h := s.hosted(true, emulator.ConnectionString())
		for _, timer := range []funchost.Timer{{PastDue: true}, {NullStatus: true},
			{FirstRun: true}} {
			if got, err := h.FireTimerWith(ctx, "reaper", timer); err != nil ||
				len(got.Logs) != 1 || !strings.HasPrefix(got.Logs[0], "deleted ") {
				t.Errorf("got %+v, %v", got, err)
			}
			s.WantRows(2, 2, 1)
		}
	})
	t.Run("on its own", func(t *testing.T) {
		t.Parallel()
		s := newSite(t)
		backlog(s)
		p := s.standalone(emulator.ConnectionString())
		testutil.Eventually(t, "the first run is over", func() bool {
			return strings.Contains(p.output.String(), `"msg":"reaper: done","deleted":50`)
		})
		s.WantRows(2, 2, 1)
	})
}

// In memory, timers run and a stop saves clicks as with storage, and nothing is left of either.
func TestInMemory(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	p := s.standalone("", "TABLE_CONNECTION=memory")
	if got := get(t, p.url+"/api/ready"); got.Status != 200 ||
		!strings.Contains(got.Body, `"storage":"memory"`) {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	ann := owner(t, p.url, "ann")
	ann.must(201, "POST", "/api/shorten", `{"longUrl":"https://example.com/","alias":"first"}`)
	if got := get(t, p.url+"/first"); got.Header.Get("Location") != "https://example.com/" {
		t.Errorf("got %d %s", got.Status, got.Body)
	}
	testutil.Eventually(t, "the first run of the reaper is over", func() bool {
		return strings.Contains(p.output.String(), `"msg":"reaper: done"`)
	})
	p.stop(t)
	log := p.output.String()
	if strings.Count(log, `"level":"WARN"`) != 1 || strings.Contains(log, `"level":"ERROR"`) ||
		!strings.Contains(log, `"msg":"stopped"`) || p.cmd.ProcessState.ExitCode() != 0 {
		t.Errorf("it ended with %v and\n%s", p.cmd.ProcessState, log)
	}
	p = s.standalone("", "TABLE_CONNECTION=memory")
	if got := get(t, p.url+"/first"); got.Status != 404 {
		t.Errorf("another process has the link: got %d", got.Status)
	}
}

func TestStopFinishesRequests(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			proxy := s.proxy()
			p := s.standalone(proxy.ConnectionString())
			awaitReady(t, p.url)
			reached, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			proxy.Reset()
			proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
				if c.Operation == "InsertEntity" && c.Target == s.Links {
					once.Do(func() { close(reached); <-release })
				}
				return faultproxy.None
			})
			done := make(chan int, 1)
			go func() {
				_, status := shorten(t, p.url, "https://example.com/")
				done <- status
			}()
			<-reached
			if err := p.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, "it accepts no more connections", func() bool {
				conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
				if err == nil {
					conn.Close()
				}
				return err != nil
			})
			close(release)
			if status := <-done; status != 201 {
				t.Errorf("the request in flight got %d, want 201", status)
			}
			<-p.exited
			if code := p.cmd.ProcessState.ExitCode(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			if !strings.Contains(p.output.String(), `"shorten.created":1`) {
				t.Errorf("the last line has no counts:\n%s", &p.output)
			}
			s.WantRows(1, 1, 1)
		})
	}
}

func TestStartFails(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := newSite(t)
	for name, test := range map[string]struct {
		connection string
		more       []string
		output     []string
	}{
		"two settings are wrong": {emulator.ConnectionString(),
			[]string{"ALIAS_LENGTH=2", "CACHE_SIZE_MB=no"}, []string{"these settings are wrong",
				"ALIAS_LENGTH must be", "CACHE_SIZE_MB must be"}},
		"no storage is given": {"", nil, []string{"AzureWebJobsStorage is required"}},
		"the port is taken": {emulator.ConnectionString(),
			[]string{"PORT=" + strings.Split(taken.Addr().String(), ":")[1]},
			[]string{"cannot listen on 127.0.0.1:", "PORT"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := s.start(test.connection, test.more...)
			<-p.exited
			if code := p.cmd.ProcessState.ExitCode(); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			for _, text := range test.output {
				if !strings.Contains(p.output.String(), text) {
					t.Errorf("the output lacks %q:\n%s", text, &p.output)
				}
			}
		})
	}
}
