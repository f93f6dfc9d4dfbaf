package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"
)

// connected returns both ends of a connection, the first of which is one of listener's.
func connected(t testing.TB) (*connection, net.Conn) {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	there, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { there.Close() })
	here, err := (listener{tcp.(*net.TCPListener)}).Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { here.Close() })
	return here.(*connection), there
}

const never = 10 * time.Second // what takes that long will not come

// readFails says when a read that nobody answers fails for its deadline.
func readFails(t *testing.T, c net.Conn) <-chan time.Time {
	t.Helper()
	failed := make(chan time.Time, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the read ended with %v", err)
		}
		failed <- time.Now()
	}()
	return failed
}

func TestDeadlines(t *testing.T) {
	const short, long = 50 * time.Millisecond, 300 * time.Millisecond
	hour := func() time.Time { return time.Now().Add(time.Hour) }
	tests := map[string]struct {
		before, during func(net.Conn) // the read
		after          time.Duration
	}{
		"set": {
			before: func(c net.Conn) { c.SetReadDeadline(time.Now().Add(short)) },
			after:  short,
		},
		"set for reads and writes": {
			before: func(c net.Conn) { c.SetDeadline(time.Now().Add(short)) },
			after:  short,
		},
		"moved to later before the read": {
			before: func(c net.Conn) {
				c.SetReadDeadline(time.Now().Add(short))
				c.SetReadDeadline(time.Now().Add(long))
			},
			after: long,
		},
		"moved to later during the read": {
			before: func(c net.Conn) { c.SetReadDeadline(time.Now().Add(short)) },
			during: func(c net.Conn) { c.SetReadDeadline(time.Now().Add(long)) },
			after:  short, // or long: a slow machine may be late with the move
		},
		"moved to earlier": {
			before: func(c net.Conn) {
				c.SetReadDeadline(hour())
				c.SetReadDeadline(time.Now().Add(short))
			},
			after: short,
		},
		"moved to earlier during the read": {
			before: func(c net.Conn) { c.SetReadDeadline(hour()) },
			during: func(c net.Conn) { c.SetReadDeadline(time.Now().Add(short)) },
			after:  short,
		},
		"set when none was during the read": {
			during: func(c net.Conn) { c.SetReadDeadline(time.Now().Add(short)) },
			after:  short,
		},
		"taken back and set": {
			before: func(c net.Conn) {
				c.SetReadDeadline(time.Now().Add(short))
				c.SetReadDeadline(time.Time{})
				time.Sleep(2 * short) // the timer finds nothing to do
				c.SetReadDeadline(time.Now().Add(short))
			},
			after: short,
		},
		"one that has passed": {
			before: func(c net.Conn) { c.SetReadDeadline(time.Unix(1, 0)) },
		},
		"one that has passed, while a later one waits": {
			before: func(c net.Conn) {
				c.SetReadDeadline(hour())
				c.SetReadDeadline(time.Unix(1, 0))
			},
		},
		"one that has passed during the read": {
			during: func(c net.Conn) { c.SetReadDeadline(time.Unix(1, 0)) },
		},
		"after one that has passed": {
			before: func(c net.Conn) {
				c.SetReadDeadline(time.Unix(1, 0))
				c.SetReadDeadline(time.Now().Add(short))
			},
			after: short,
		},
		"again, after it has passed": {
			before: func(c net.Conn) {
				c.SetReadDeadline(time.Now().Add(short))
				_, _ = c.Read(make([]byte, 1))
				c.SetReadDeadline(time.Now().Add(short))
			},
			after: short,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := connected(t)
			if test.before != nil {
				test.before(c)
			}
			start := time.Now()
			failed := readFails(t, c)
			if test.during != nil {
				test.during(c)
			}
			select {
			case at := <-failed:
				if took := at.Sub(start); took < test.after-10*time.Millisecond { // start is after the deadline was set
					t.Errorf("failed after %v, want %v", took, test.after)
				}
			case <-time.After(never):
				t.Error("has not failed")
			}
		})
	}
}

// A deadline that was taken back, or moved on again and again, fails nothing.
func TestDeadlinesThatDoNotCome(t *testing.T) {
	c, there := connected(t)
	for range 100 {
		c.SetReadDeadline(time.Now().Add(never))
		c.SetReadDeadline(time.Unix(1, 0)) // as net/http does to end a read of its own
		c.SetReadDeadline(time.Time{})
		c.SetReadDeadline(time.Now().Add(never))
	}
	c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	c.SetReadDeadline(time.Time{})
	got := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 1))
		got <- err
	}()
	time.Sleep(50 * time.Millisecond)
	if _, err := there.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
}

// The deadline of writes is another one than that of reads.
func TestDeadlineOfWrites(t *testing.T) {
	c, there := connected(t)
	c.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	failed := make(chan error, 1)
	go func() { // until the buffers of both ends are full
		var err error
		for err == nil {
			_, err = c.Write(make([]byte, 1<<20))
		}
		failed <- err
	}()
	select {
	case err := <-failed:
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(never):
		t.Fatal("has not failed")
	}
	if _, err := there.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Errorf("a read after that: %v", err)
	}
}

// Whoever sets deadlines at the same time as others, and closes, races with nobody.
func TestDeadlinesAtOnce(t *testing.T) {
	c, _ := connected(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 2000 {
				switch i % 4 {
				case 0:
					c.SetReadDeadline(time.Now().Add(time.Duration(i) * time.Microsecond))
				case 1:
					c.SetDeadline(time.Unix(1, 0))
				case 2:
					c.SetReadDeadline(time.Time{})
				default:
					c.SetDeadline(time.Now().Add(time.Hour))
				}
			}
		})
	}
	all.Wait()
	failed := readFails(t, c)
	c.SetReadDeadline(time.Now().Add(time.Millisecond))
	select {
	case <-failed:
	case <-time.After(never):
		t.Fatal("the last one has not come")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err == nil {
		time.Sleep(10 * time.Millisecond) // its timer, if there were one, finds a closed connection
	}
}

// A busy connection is cut off all the same when it falls silent, and not before.
func TestDeadlinesUnderAServer(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const limit, idle = time.Second, 1500 * time.Millisecond
	server := &http.Server{
		Handler:     http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) }),
		ReadTimeout: limit, WriteTimeout: limit, IdleTimeout: idle,
	}
	go func() { _ = server.Serve(listener{tcp.(*net.TCPListener)}) }()
	defer server.Shutdown(context.Background())
	conn, err := net.Dial("tcp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	var last time.Time
	for start := time.Now(); time.Since(start) < 2*idle; last = time.Now() { // for longer than any limit
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(in, nil)
		if err != nil || answer.StatusCode != http.StatusFound {
			t.Fatal(answer, err)
		}
	}
	if err := conn.SetReadDeadline(time.Now().Add(never)); err != nil {
		t.Fatal(err)
	}
	if _, err := in.ReadByte(); err != io.EOF {
		t.Fatalf("an idle connection ended with %v", err)
	}
	if took := time.Since(last); took < idle-50*time.Millisecond {
		t.Errorf("it ended after %v, want %v", took, idle)
	}
}

// BenchmarkDeadlines moves deadlines as net/http does for one request after another on a connection.
func BenchmarkDeadlines(b *testing.B) {
	ours, _ := connected(b)
	for name, c := range map[string]net.Conn{"deadlines=net": ours.TCPConn, "deadlines=ours": ours} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.SetReadDeadline(time.Now().Add(5 * time.Second))  // for the headers
				c.SetReadDeadline(time.Now().Add(15 * time.Second)) // for the request
				c.SetWriteDeadline(time.Now().Add(30 * time.Second))
				c.SetReadDeadline(time.Time{}) // to see whether the client goes away while it is answered
				c.SetReadDeadline(time.Unix(1, 0))
				c.SetReadDeadline(time.Time{})
				c.SetWriteDeadline(time.Time{})
				c.SetReadDeadline(time.Now().Add(2 * time.Minute)) // for the next one
			}
		})
	}
}
