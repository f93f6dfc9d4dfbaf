package e2e

import (
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/testutil"
)

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
	t.Parallel()
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
