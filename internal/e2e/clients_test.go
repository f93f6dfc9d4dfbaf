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

	"tiney/internal/faultproxy"
	"tiney/link"
)

func TestRequestsThatAreTooMuch(t *testing.T) {
	s := newSite(t)
	p := s.alone(emulator.ConnectionString())
	got, err := send(http.MethodGet, p.url+"/nobody", "", "X-Much", strings.Repeat("x", 64<<10))
	if err != nil || got.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 64 KiB: %+v, %v", got, err)
	}
	// A body that says it is endless is refused without being read to its end.
	conn, err := net.Dial("tcp", strings.TrimPrefix(p.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "POST /api/shorten HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000000000\r\n\r\n")
	go func() {
		for {
			if _, err := conn.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	}()
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	first := make([]byte, len("HTTP/1.1 413"))
	if _, err := io.ReadFull(conn, first); err != nil && !errors.Is(err, syscall.ECONNRESET) || err == nil && string(first) != "HTTP/1.1 413" {
		t.Errorf("got %q, %v", first, err)
	}
}

// stormed starts a process that has a warm link.
func stormed(t *testing.T) (*site, *process) {
	s := newSite(t)
	s.PutLink(link.Link{Alias: "warm", LongURL: "https://example.com/warm"})
	p := s.alone(emulator.ConnectionString())
	stillWell(t, p.url)
	return s, p
}

func TestOneColdLinkIsReadOnceForAThousandRequests(t *testing.T) {
	s := newSite(t)
	s.PutLink(link.Link{Alias: "cold", LongURL: "https://example.com/cold"})
	proxy := s.proxy()
	p := s.alone(proxy.ConnectionString())
	eventually(t, "it is ready", func() bool { return must(t, http.MethodGet, p.url+"/api/ready", "").status == 200 })
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
			said, err := io.ReadAll(conn)
			if err != nil {
				t.Error(err)
			}
			if strings.HasPrefix(string(said), "HTTP/1.1 302 ") {
				found.Add(1)
			}
		})
	}
	// Not until all are sent: the first read would be tried again after 1.4 s. Who comes later finds the link cached.
	<-first
	for end := time.Now().Add(time.Second); sent.Load() < 1000 && time.Now().Before(end); { // all, unless the machine is slow
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
	// All but the last few were there before the answer; those that come right after it may find it not cached yet, and a
	// slow machine has more of them.
	if found.Load() != 1000 || reads > 50 {
		t.Errorf("%d of 1000 redirected, %d reads", found.Load(), reads)
	}
}

// Behind slow clients, endless bodies and headers, and thousands of connections that say nothing, others are served.
func TestClientsThatMisbehave(t *testing.T) {
	_, p := stormed(t)
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
	// closed says whether the other side ends the connection in time.
	closed := func(conn net.Conn, within time.Duration) bool {
		conn.SetReadDeadline(time.Now().Add(within))
		_, err := io.Copy(io.Discard, conn)
		timeout, ok := err.(net.Error)
		return !ok || !timeout.Timeout()
	}
	for name, misbehave := range map[string]func(t *testing.T){
		"a header byte by byte": func(t *testing.T) {
			conn := dial(t)
			go func() {
				for _, err := conn.Write([]byte("GET /warm HTTP/1.1\r\n")); err == nil; _, err = conn.Write([]byte("X: y\r\n")) {
					time.Sleep(500 * time.Millisecond)
				}
			}()
			if !closed(conn, time.Minute) {
				t.Error("still open after a minute")
			}
		},
		"a body byte by byte": func(t *testing.T) {
			conn := dial(t)
			fmt.Fprint(conn, "POST /api/shorten HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n")
			go func() {
				for _, err := conn.Write([]byte("{")); err == nil; _, err = conn.Write([]byte(" ")) {
					time.Sleep(500 * time.Millisecond)
				}
			}()
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || answer.StatusCode != http.StatusRequestTimeout {
				t.Errorf("got %v, %v, want 408", answer, err)
			}
		},
		"half closed after a request": func(t *testing.T) {
			conn := dial(t)
			fmt.Fprint(conn, "GET /warm HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			// The server takes it for a client that has gone, or answers; it must not hold on to it.
			if !closed(conn, time.Minute) {
				t.Error("still open after a minute")
			}
		},
		"half closed in a request": func(t *testing.T) {
			conn := dial(t)
			fmt.Fprint(conn, "POST /api/shorten HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
			if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if !closed(conn, time.Minute) {
				t.Error("still open after a minute")
			}
		},
		"a header of 1 MiB": func(t *testing.T) {
			conn := dial(t)
			go fmt.Fprintf(conn, "GET /warm HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 1<<20))
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
			// The server may close the connection with the header half read, and take its answer with it.
			if late, ok := err.(net.Error); ok && late.Timeout() || err == nil && answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
				t.Errorf("got %v, %v, want 431", answer, err)
			}
		},
		"not HTTP": func(t *testing.T) {
			conn := dial(t)
			fmt.Fprint(conn, "\x16\x03\x01\x02\x00\x01\x00")
			if !closed(conn, time.Minute) {
				t.Error("still open after a minute")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			misbehave(t)
			stillWell(t, p.url)
		})
	}
}
