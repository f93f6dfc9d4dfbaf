package e2e

import (
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"tiney/internal/link"
	"tiney/internal/testing/testutil"
)

// Three processes serve. While they are busy, one is killed and one is asked to stop. The third is
// asked to stop after that. A stopped process loses no click. A killed one loses at most the clicks
// since it last wrote its counts.
func TestClicksOfProcessesThatEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	// Each of the first three links is followed on one process only.
	links := []link.Name{"killed", "stopped", "idle", "shared"}
	for _, a := range links {
		s.PutLink(link.Link{Name: a, LongURL: "https://example.com/"})
	}
	saved := func(alias link.Name) (n int64) {
		for _, c := range s.Clicked()[string(alias)] {
			n += c.Clicks
		}
		return n
	}
	p := [3]*process{
		s.standalone(emulator.ConnectionString(), "CLICKS_FLUSH_SECONDS=1"),
		s.standalone(emulator.ConnectionString(), "CLICKS_FLUSH_SECONDS=300"),
		s.standalone(emulator.ConnectionString(), "CLICKS_FLUSH_SECONDS=300"),
	}
	type outcome struct{ answered, unknown atomic.Int64 }
	var own, shared [3]outcome
	send := func(i int, a link.Name, n *outcome) bool {
		got, err := testutil.Send(http.MethodGet, p[i].url+"/"+string(a), "", "User-Agent",
			visitors[2].agent)
		switch {
		case err != nil:
			n.unknown.Add(1)
		case got.Status == 302:
			n.answered.Add(1)
		case got.Status != 503:
			t.Errorf("%s: got %+v", a, got)
		}
		return err == nil
	}
	follow := func(i int) bool {
		return send(i, links[i], &own[i]) && send(i, "shared", &shared[i])
	}
	for i, p := range p {
		awaitReady(t, p.url)
		for range 20 {
			follow(i)
		}
	}
	testutil.Eventually(t, "the process that will be killed has saved its counts", func() bool {
		return saved("killed") == own[0].answered.Load()
	})
	flushed := own[0].answered.Load()
	var clients sync.WaitGroup
	for i := range 2 {
		for range 3 {
			clients.Go(func() {
				for follow(i) {
				}
			})
		}
	}
	testutil.Eventually(t, "they are busy", func() bool {
		return own[0].answered.Load() > 100 && own[1].answered.Load() > 100
	})
	for i, signal := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		if err := p[i].cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		<-p[i].exited
	}
	clients.Wait()
	if code := p[1].cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("the process that was stopped has ended with %d", code)
	}
	follow(2)
	p[2].stop(t)

	var least, most int64
	check := func(a link.Name, from, to int64) {
		t.Helper()
		n := saved(a)
		if n < from || n > to {
			t.Errorf("%s: %d clicks saved, want %d to %d", a, n, from, to)
		}
		least, most = least+from, most+to
	}
	check("killed", flushed, own[0].answered.Load()+own[0].unknown.Load())
	var of outcome // the clicks on the shared link at the processes that were not killed
	for i := 1; i < 3; i++ {
		check(links[i], own[i].answered.Load(), own[i].answered.Load()+own[i].unknown.Load())
		of.answered.Add(shared[i].answered.Load())
		of.unknown.Add(shared[i].unknown.Load())
	}
	check("shared", of.answered.Load(), of.answered.Load()+of.unknown.Load()+
		shared[0].answered.Load()+shared[0].unknown.Load())
	check("*", least, most)
	t.Logf("%d clicks are saved; lost with the process that was killed: %d of %d", saved("*"),
		own[0].answered.Load()-saved("killed"), own[0].answered.Load())
}
