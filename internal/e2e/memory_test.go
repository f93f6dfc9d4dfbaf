package e2e

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"tiney/internal/pack"
	"tiney/link"
)

var resident = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)

// memory returns what a process has in memory, in KiB, and 0 where the system does not tell.
func (p *process) memory(t *testing.T) int {
	t.Helper()
	if runtime.GOOS != "linux" {
		return 0
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	kib, err := strconv.Atoi(string(resident.FindSubmatch(status)[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib
}

// shipped lays the app out as it is deployed, without the race detector, which takes several times the memory.
func shipped(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := pack.Dir("../..", dir, pack.Target{OS: runtime.GOOS, Arch: runtime.GOARCH}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMemoryInStorms(t *testing.T) {
	s := newSite(t)
	s.app = shipped(t)
	s.PutLink(link.Link{Alias: "warm", LongURL: "https://example.com/warm"})
	p := s.alone(emulator.ConnectionString(), "CACHE_SIZE_MB=1")
	unknown := func(from, to int) {
		var all sync.WaitGroup
		for c := range 8 {
			all.Go(func() {
				for i := from + c; i < to; i += 8 {
					a, err := send(http.MethodGet, fmt.Sprintf("%s/unknown-%d", p.url, i), "")
					if err != nil || a.status != 404 {
						t.Errorf("got %+v, %v", a, err)
						return
					}
				}
			})
		}
		all.Wait()
	}
	atRest := p.memory(t)
	unknown(0, 4000) // fill the cache, and let the pools of connections and buffers come to their size
	stillWell(t, p.url)
	filled := p.memory(t)
	unknown(4000, 20_000)
	stillWell(t, p.url)
	overflown := p.memory(t)
	t.Logf("%d MB at rest, %d MB with 4,000 unknown aliases asked for, %d MB with 20,000", atRest>>10, filled>>10, overflown>>10)
	// What the garbage collector has not come to is a few MB either way; a connection, a goroutine or a buffer that each
	// of the 16,000 leaves behind would be more than that.
	if overflown > filled+10<<10 {
		t.Errorf("from %d to %d MB by aliases that do not fit into the cache", filled>>10, overflown>>10)
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
	stillWell(t, p.url)
	t.Logf("%d MB with %d idle connections", p.memory(t)>>10, len(conns))
	for _, conn := range conns {
		conn.Close()
	}
	stillWell(t, p.url)
}
