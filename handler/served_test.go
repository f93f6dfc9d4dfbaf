package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"tiney/internal/faultproxy"
	"tiney/internal/rawtables"
	"tiney/link"
)

// BenchmarkServedRedirect is a cached redirect as a client sees it: the whole process, as main runs it behind the
// Functions host, on loopback, with clients that keep their connections. `make profile` looks at it; what the clients
// do is found under the name of this function, and they allocate nothing.
func BenchmarkServedRedirect(b *testing.B) {
	proxy := faultproxy.Start(emulator)
	b.Cleanup(proxy.Close)
	tables := rawtables.Open(b, emulator.ConnectionString(), fmt.Sprintf("E%d", sites.Add(1)))
	tables.Make()
	tables.PutLink(link.Link{Alias: "live42", LongURL: "https://example.com/a/long/path?with=a&query", ExpiresAt: time.Now().Add(time.Hour)})
	address := serve(b, map[string]string{
		"AzureWebJobsStorage": proxy.ConnectionString(), "BaseUrl": "https://tiney.to",
		"SHORTURL_TABLE_NAME": tables.Links, "URLINDEX_TABLE_NAME": tables.Index, "EXPIRYINDEX_TABLE_NAME": tables.Expiry,
		"GC_BLOB_LOCK_CONTAINER": strings.ToLower(tables.Links),
	})
	reads := func() (n int) {
		for _, call := range proxy.Calls() {
			if call.Operation == "GetEntity" && call.Target == tables.Links {
				n++
			}
		}
		return n
	}
	// The cache takes a link a moment after it was read.
	warm, err := dial(address)
	if err != nil {
		b.Fatal(err)
	}
	defer warm.conn.Close()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		before := reads()
		if err := warm.ask(); err != nil {
			b.Fatal(err)
		}
		if before > 0 && reads() == before {
			break
		}
		if time.Now().After(end) {
			b.Fatal("the link does not come into the cache")
		}
	}
	before := reads()
	// In a benchmark of its own, so that the process is started once, however often this is repeated.
	b.Run("keep-alive", func(b *testing.B) {
		b.SetParallelism(16)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			c, err := dial(address)
			if err != nil {
				b.Error(err)
				return
			}
			defer c.conn.Close()
			for pb.Next() {
				if err := c.ask(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	if n := reads() - before; n > 0 {
		b.Errorf("the table was read %d times", n)
	}
}

// serve runs the process in this one until the benchmark ends, and returns where it listens.
func serve(b *testing.B, env map[string]string) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	_, env["FUNCTIONS_CUSTOMHANDLER_PORT"], _ = net.SplitHostPort(address)
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(running, func(name string) string { return env[name] }, io.Discard) }()
	b.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return address
		} else if time.Now().After(end) {
			b.Fatal(err)
		}
	}
}

// keptConn asks for one link again and again on one connection. It is no http.Client, which costs more than what is
// measured here.
type keptConn struct {
	conn    net.Conn
	answers *bufio.Reader
}

func dial(address string) (*keptConn, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return &keptConn{conn, bufio.NewReader(conn)}, nil
}

var (
	request   = []byte("GET /live42 HTTP/1.1\r\nHost: tiney.to\r\nX-Azure-Functions-InvocationId: 3c9b4f1e-0d4f-4c5e-9d1f-0a6b7c8d9e0f\r\n\r\n")
	found     = []byte("HTTP/1.1 302 Found\r\n")
	endOfHead = []byte("\r\n")
)

func (c *keptConn) ask() error {
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	line, err := c.answers.ReadSlice('\n')
	if err == nil && !bytes.Equal(line, found) {
		return fmt.Errorf("answered with %q", line)
	}
	for err == nil && !bytes.Equal(line, endOfHead) { // and no body comes after it
		line, err = c.answers.ReadSlice('\n')
	}
	return err
}
