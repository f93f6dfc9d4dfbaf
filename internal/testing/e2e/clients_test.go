package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/testutil"
)

func TestRequestsThatAreTooLarge(t *testing.T) {
	s := newSite(t)
	p := s.standalone(emulator.ConnectionString())
	got, err := testutil.Send(http.MethodGet, p.url+"/nobody", "", "X-Large",
		strings.Repeat("x", 64<<10))
	if err != nil || got.Status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 64 KiB: %+v, %v", got, err)
	}
	// A body with a Content-Length of 1 TB is refused before all of it is read.
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /api/shorten HTTP/1.1\r\nHost: x\r\nContent-Type: "+
		"application/json\r\nContent-Length: 1000000000000\r\n\r\n")
	go func() {
		for {
			if _, err := conn.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}()
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	first := make([]byte, len("HTTP/1.1 413"))
	if _, err := io.ReadFull(conn, first); err != nil && !errors.Is(err, syscall.ECONNRESET) ||
		err == nil && string(first) != "HTTP/1.1 413" {
		t.Errorf("got %q, %v", first, err)
	}
}

// checkServes checks that a process serves as usual. Its site must have the link "warm".
func checkServes(t *testing.T, base string) {
	t.Helper()
	for target, want := range map[string]int{"/warm": 302, "/nobody": 404, "/api/health": 200} {
		caller{t, base, ""}.must(want, http.MethodGet, target, "")
	}
	mustShorten(t, base, "https://example.com/serves")
}

func TestColdLinkIsReadOnceForManyRequests(t *testing.T) {
	s := newSite(t)
	s.PutLink(link.Link{Name: "cold", LongURL: "https://example.com/cold"})
	proxy := s.proxy()
	p := s.standalone(proxy.ConnectionString())
	awaitReady(t, p.url)
	proxy.Reset()
	first, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		once.Do(func() { close(first) })
		<-release
		return faultproxy.None
	})
	var all sync.WaitGroup
	var sent, found atomic.Int64
	for range 1000 {
		all.Go(func() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			fmt.Fprint(conn, "GET /cold HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			sent.Add(1)
			response, err := io.ReadAll(conn)
			if err != nil {
				t.Error(err)
			}
			if strings.HasPrefix(string(response), "HTTP/1.1 302 ") {
				found.Add(1)
			}
		})
	}
	// The read waits until all requests are sent, but at most 0.8 s, since it would be retried
	// after 1.2 s. Requests that a slow machine sends later find the link in the cache.
	<-first
	for end := time.Now().Add(800 * time.Millisecond); sent.Load() < 1000 &&
		time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	close(release)
	all.Wait()
	reads := 0
	for _, c := range proxy.Calls() {
		if c.Operation == "GetEntity" && c.Target == s.Links {
			reads++
		}
	}
	// Right after the read, the cache may not have the link yet. On a slow machine, more requests
	// come at that time.
	if found.Load() != 1000 || reads > 50 {
		t.Errorf("%d of 1000 redirected, %d reads", found.Load(), reads)
	}
}

// The service cuts off slow clients, endless headers and data that is not HTTP. Meanwhile it serves
// others.
func TestClientsThatMisbehave(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.PutLink(link.Link{Name: "warm", LongURL: "https://example.com/warm"})
	p := s.standalone(emulator.ConnectionString())
	checkServes(t, p.url)
	address := strings.TrimPrefix(p.url, "http://")
	dial := func(t *testing.T) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	wantClosed := func(t *testing.T, conn net.Conn) {
		t.Helper()
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		_, err := io.Copy(io.Discard, conn)
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
			t.Error("still open after a minute")
		}
	}
	for name, misbehave := range map[string]func(t *testing.T){
		"a header byte by byte": func(t *testing.T) {
			conn := dial(t)
			go func() {
				for _, err := conn.Write([]byte("GET /warm HTTP/1.1\r\n")); err == nil; _,
					err = conn.Write([]byte("X: y\r\n")) {
					time.Sleep(500 * time.Millisecond)
				}
			}()
			wantClosed(t, conn)
		},
		"a body byte by byte": func(t *testing.T) {
			conn := dial(t)
			fmt.Fprint(conn, "POST /api/shorten HTTP/1.1\r\nHost: x\r\nContent-Type: "+
				"application/json\r\nContent-Length: 10000\r\n\r\n")
			go func() {
				for _, err := conn.Write([]byte("{")); err == nil; _,
					err = conn.Write([]byte(" ")) {
					time.Sleep(500 * time.Millisecond)
				}
			}()
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || response.StatusCode != http.StatusRequestTimeout {
				t.Errorf("got %v, %v, want 408", response, err)
			}
		},
		"half closed after a request": func(t *testing.T) {
			conn := dial(t)
			fmt.Fprint(conn, "GET /warm HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			// The server may respond, or may think that the client has gone. It must not keep the
			// connection open.
			wantClosed(t, conn)
		},
		"half closed within a request": func(t *testing.T) {
			conn := dial(t)
			fmt.Fprint(conn, "POST /api/shorten HTTP/1.1\r\nHost: x\r\nContent-Type: "+
				"application/json\r\nContent-Length: 100\r\n\r\n{")
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			wantClosed(t, conn)
		},
		"a header of 1 MiB": func(t *testing.T) {
			conn := dial(t)
			go fmt.Fprintf(conn, "GET /warm HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n",
				strings.Repeat("x", 1<<20))
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			// The server may close the connection before it has read the whole header. Then its
			// response is lost.
			if late, ok := err.(net.Error); ok && late.Timeout() || err == nil &&
				response.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("got %v, %v, want 431", response, err)
			}
		},
		"not HTTP": func(t *testing.T) {
			conn := dial(t)
			fmt.Fprint(conn, "\x16\x03\x01\x02\x00\x01\x00")
			wantClosed(t, conn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			misbehave(t)
			checkServes(t, p.url)
		})
	}
}
