package e2e

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/testutil"
)

func TestMemoryIsBounded(t *testing.T) {
	testutil.NotShort(t)
	s := newSite(t)
	s.app = deploy(t)
	s.PutLink(link.Link{Name: "warm", LongURL: "https://example.com/warm"})
	proxy := s.proxy()
	proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == "GetEntity" && c.Partition == "un" {
			return faultproxy.NotFound // Azurite says the same, but takes ten times as long
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
					got, err := testutil.Send(http.MethodGet, fmt.Sprintf("%s/unknown-%d", p.url,
						i), "")
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
	unknown(0, 3000) // this fills the cache, and the pools of connections and buffers
	checkServes(t, p.url)
	filled := memory()
	unknown(3000, 9000)
	checkServes(t, p.url)
	overfilled := memory()
	t.Logf("%d MB at rest, %d MB after 3,000 unknown aliases, %d MB after 9,000", atRest>>10,
		filled>>10, overfilled>>10)
	// Garbage that is not collected yet makes a few MB of difference. If each of the 6,000 requests
	// left a connection, a goroutine or a buffer behind, the difference would be larger.
	if overfilled > filled+10<<10 {
		t.Errorf("from %d to %d MB by aliases that do not fit into the cache", filled>>10,
			overfilled>>10)
	}

	const many = 10_000
	conns := make([]net.Conn, 0, many)
	for range many {
		conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			if len(conns) < 1000 {
				t.Fatalf("after %d connections: %v", len(conns), err)
			}
			// The system lets one process open no more. Some connections are needed for the next
			// steps.
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

// However many imports and bulk requests come at once, only a few run at a time. The others
// get a Retry-After.
func TestManyLargeCallsTakeLittleMemory(t *testing.T) {
	testutil.NotShort(t)
	const many = 60 // more would take the race detector longer than a body may take
	var lines, links strings.Builder
	path := strings.Repeat("x", 3850)
	for i := range 1000 {
		fmt.Fprintf(&lines, `{"alias":"large-%d","longUrl":"https://example.com/%s"}`+"\n", i, path)
	}
	for i := range 100 {
		fmt.Fprintf(&links, `,{"longUrl":"https://example.com/%s%d"%6000s}`, path, i, "")
	}
	calls := map[string]string{"/api/import?dryRun=true": lines.String(),
		"/api/links/bulk": `{"links":[` + links.String()[1:] + `]}`}
	s := newSite(t)
	s.app = deploy(t)
	proxy := s.proxy()
	proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == "GetEntity" && c.Target == s.Links {
			// Azurite says the same, but takes ten times as long.
			return faultproxy.NotFound
		}
		return faultproxy.None
	})
	const most = 80 << 10 // KiB: in a container of 64 MiB, which need not hold all of the program
	p := s.standalone(proxy.ConnectionString(), "GOMEMLIMIT=56MiB")
	awaitReady(t, p.url)
	var callers []caller // each owner makes two of the calls
	for i := range many / 2 {
		callers = append(callers, owner(t, p.url, fmt.Sprintf("owner-%d", i)))
	}
	for target, body := range calls {
		var all sync.WaitGroup
		var done, refused atomic.Int64
		for i := range many {
			all.Go(func() {
				switch got, err := sendAll(p.url, target, callers[i/2].token, body); {
				case err != nil:
					t.Errorf("%s: %v", target, err)
				case got.Status == 200:
					done.Add(1)
				case got.Status == 503 && got.Header.Get("Retry-After") == "5" &&
					strings.Contains(got.Body, "/problems/busy"):
					refused.Add(1)
				case got.Status == 503 && strings.Contains(got.Body,
					"/problems/credentials-unchecked"):
					// While it handled 100 large bodies, the emulator took too long for the
					// look-up of a key.
				default:
					t.Errorf("%s: got %+v", target, got)
				}
			})
		}
		all.Wait()
		peak := testutil.Memory(t, p.cmd.Process.Pid, "VmHWM")
		t.Logf("%s, %d bytes: %d done, %d refused, %d MB", target, len(body), done.Load(),
			refused.Load(), peak>>10)
		if peak >= most || done.Load() == 0 || refused.Load() == 0 {
			t.Errorf("%s: %d done, %d refused, %d MB", target, done.Load(), refused.Load(),
				peak>>10)
		}
		callers[0].must(200, "POST", "/api/links/bulk",
			`{"links":[{"longUrl":"https://example.com/after"}]}`)
	}
}

// sendAll sends a request as the simplest clients do: it sends all of it before it reads the
// response.
func sendAll(base, target, token, body string) (testutil.Response, error) {
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		return testutil.Response{}, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: tiney.to\r\nAuthorization: Bearer "+
		"%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n",
		target, token, len(body))
	if _, err := io.WriteString(conn, head+body); err != nil {
		return testutil.Response{}, fmt.Errorf("not all could be sent: %w", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return testutil.Response{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return testutil.Response{Status: resp.StatusCode, Header: resp.Header, Body: string(data)}, err
}
