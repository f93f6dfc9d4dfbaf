package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"tiney/internal/link"
)

// checkServes checks that a process serves as usual. Its site must have the link "warm".
func checkServes(t *testing.T, base string) {
	t.Helper()
	for target, want := range map[string]int{"/warm": 302, "/nobody": 404, "/api/health": 200} {
		caller{t, base, ""}.must(want, http.MethodGet, target, "")
	}
	mustShorten(t, base, "https://example.com/serves")
}

// The service cuts off endless headers and bodies, and data that is not HTTP. Meanwhile it serves
// others. Package main tests how long a client may take.
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
		"a body of 1 TB": func(t *testing.T) {
			conn := dial(t)
			fmt.Fprint(conn, "POST /api/shorten HTTP/1.1\r\nHost: x\r\nContent-Type: "+
				"application/json\r\nContent-Length: 1000000000000\r\n\r\n")
			go func() {
				for err := error(nil); err == nil; _, err = conn.Write(make([]byte, 4096)) {
				}
			}()
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			// The server closes the connection while it comes, so its response may be lost.
			response, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err == nil && response.StatusCode != http.StatusRequestEntityTooLarge ||
				err != nil && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("got %v, %v, want 413", response, err)
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
