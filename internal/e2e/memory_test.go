package e2e

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"tiney/internal/faultproxy"
	"tiney/internal/pack"
	"tiney/internal/testutil"
	"tiney/link"
)

// deployed lays the app out as it is deployed, without the race detector, which takes several times the memory.
func deployed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := pack.Dir("../..", dir, pack.Target{OS: runtime.GOOS, Arch: runtime.GOARCH}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMemoryIsBounded(t *testing.T) {
	s := newSite(t)
	s.app = deployed(t)
	s.PutLink(link.Link{Alias: "warm", LongURL: "https://example.com/warm"})
	proxy := s.proxy()
	proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == "GetEntity" && c.Partition == "un" {
			return faultproxy.NotFound // as Azurite says too, which takes ten times as long for it
		}
		return faultproxy.None
	})
	p := s.standalone(proxy.ConnectionString(), "CACHE_SIZE_MB=1")
	memory := func() int { return testutil.Memory(t, p.cmd.Process.Pid, "VmRSS") }
	unknown := func(from, to int) {
		var all sync.WaitGroup
		for c := range 8 {
			all.Go(func() {
				for i := from + c; i < to; i += 8 {
					got, err := testutil.Send(http.MethodGet, fmt.Sprintf("%s/unknown-%d", p.url, i), "")
					if err != nil || got.Status != 404 {
						t.Errorf("got %+v, %v", got, err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	atRest := memory()
	unknown(0, 3000) // fills the cache, and the pools of connections and buffers
	checkServes(t, p.url)
	filled := memory()
	unknown(3000, 9000)
	checkServes(t, p.url)
	overfilled := memory()
	t.Logf("%d MB at rest, %d MB after 3,000 unknown aliases, %d MB after 9,000", atRest>>10, filled>>10, overfilled>>10)
	// Garbage that is not collected yet is a few MB either way. A connection, a goroutine or a buffer left behind by each
	// of the 6,000 would be more.
	if overfilled > filled+10<<10 {
		t.Errorf("from %d to %d MB by aliases that do not fit into the cache", filled>>10, overfilled>>10)
	}

	const many = 10_000
	conns := make([]net.Conn, 0, many)
	for range many {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			if len(conns) < 1000 {
				t.Fatalf("after %d connections: %v", len(conns), err)
			}
			// As many as the system lets one process open; some are needed for what comes next.
			for _, conn := range conns[len(conns)-50:] {
				conn.Close()
			}
			conns = conns[:len(conns)-50]
			break
		}
		conns = append(conns, conn)
	}
	checkServes(t, p.url)
	t.Logf("%d MB with %d idle connections", memory()>>10, len(conns))
	for _, conn := range conns {
		conn.Close()
	}
	checkServes(t, p.url)
}
