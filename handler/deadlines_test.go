package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"sync"
	"testing"
	"testing/synctest"
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

// mover sets deadlines of reads, where before is the one there is. It returns the first moment when a read may fail.
type mover func(c net.Conn, before time.Time) time.Time

func to(wait time.Duration) mover {
	return func(c net.Conn, _ time.Time) time.Time {
		at := time.Now().Add(wait)
		c.SetReadDeadline(at)
		return at
	}
}

func toPast(c net.Conn, _ time.Time) time.Time {
	at := time.Unix(1, 0) // as net/http does to end a read of its own
	c.SetReadDeadline(at)
	return at
}

func toNever(c net.Conn, _ time.Time) time.Time {
	c.SetReadDeadline(time.Time{})
	return time.Time{}
}

// moves are several of them, one after the other.
func moves(all ...mover) mover {
	return func(c net.Conn, at time.Time) time.Time {
		for _, move := range all {
			at = move(c, at)
		}
		return at
	}
}

func TestDeadlines(t *testing.T) {
	const short, long = 50 * time.Millisecond, 300 * time.Millisecond
	forBoth := func(c net.Conn, _ time.Time) time.Time {
		at := time.Now().Add(short)
		c.SetDeadline(at)
		return at
	}
	tests := map[string]struct{ before, during mover }{ // the read
		"set":                            {before: to(short)},
		"set for reads and writes":       {before: forBoth},
		"moved to later before the read": {before: moves(to(short), to(long))},
		"moved to later during the read": {before: to(short), during: func(c net.Conn, before time.Time) time.Time {
			after := to(long)(c, before)
			if !time.Now().Before(before) { // a slow machine is late with the move
				return before
			}
			return after
		}},
		"moved to earlier":                  {before: moves(to(time.Hour), to(short))},
		"moved to earlier during the read":  {before: to(time.Hour), during: to(short)},
		"set when none was during the read": {during: to(short)},
		"taken back and set": {before: moves(to(short), toNever, func(_ net.Conn, at time.Time) time.Time {
			time.Sleep(2 * short) // the timer finds nothing to do
			return at
		}, to(short))},
		"one that has passed":                          {before: toPast},
		"one that has passed, while a later one waits": {before: moves(to(time.Hour), toPast)},
		"one that has passed during the read":          {during: toPast},
		"after one that has passed":                    {before: moves(toPast, to(short))},
		"again, after it has passed": {before: moves(to(short), func(c net.Conn, at time.Time) time.Time {
			_, _ = c.Read(make([]byte, 1))
			return at
		}, to(short))},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := connected(t)
			var due time.Time
			if test.before != nil {
				due = test.before(c, due)
			}
			failed := readFails(t, c)
			if test.during != nil {
				due = test.during(c, due)
			}
			select {
			case at := <-failed:
				if at.Before(due) {
					t.Errorf("failed %v before the deadline", due.Sub(at))
				}
			case <-time.After(never):
				t.Error("has not failed")
			}
		})
	}
}

// noted is a deadline of no connection, which notes what would be set on one.
type noted struct {
	deadline
	on      time.Time // what the connection's own deadline would be
	applied int       // how often it would have been set
}

func newNoted() *noted {
	n := new(noted)
	n.apply = func(t time.Time) error {
		n.on = t
		n.applied++
		return nil
	}
	return n
}

func (n *noted) move(t *testing.T, at time.Time) {
	t.Helper()
	if err := n.set(at); err != nil {
		t.Fatal(err)
	}
}

// seen is what there is once nothing more happens at this moment.
func (n *noted) seen() (on, wakes time.Time, applied int) {
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.on, n.wakes, n.applied
}

// Moving a deadline to later touches neither the timer nor the connection. That is what it is for.
func TestDeadlineMovedToLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Minute
		n := newNoted()
		n.move(t, time.Now().Add(limit))
		_, first, _ := n.seen()
		var at time.Time
		for range 10_000 {
			time.Sleep(time.Millisecond)
			at = time.Now().Add(limit)
			n.move(t, at)
			if _, wakes, _ := n.seen(); !wakes.Equal(first) {
				t.Fatalf("the timer was to wake at %v, and now at %v", first, wakes)
			}
		}
		time.Sleep(time.Until(at) - time.Nanosecond) // past the timer's first time
		if _, _, applied := n.seen(); applied != 0 {
			t.Errorf("the connection's own deadline was set %d times before it had come", applied)
		}
		time.Sleep(time.Nanosecond)
		if on, _, applied := n.seen(); applied != 1 || !on.Equal(at) {
			t.Errorf("it came, and was set %d times, as %v, want once, %v", applied, on, at)
		}
	})
}

// A closed deadline has no timer left, and takes no other.
func TestDeadlineClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNoted()
		n.move(t, time.Now().Add(time.Minute))
		n.close()
		if n.timer.Stop() {
			t.Error("the timer ran on")
		}
		for _, at := range []time.Time{{}, time.Unix(1, 0), time.Now().Add(time.Second)} {
			if err := n.set(at); !errors.Is(err, net.ErrClosed) {
				t.Errorf("set to %v: %v", at, err)
			}
		}
		if n.timer.Stop() {
			t.Error("the timer runs again")
		}
		time.Sleep(time.Hour)
		if _, _, applied := n.seen(); applied != 0 {
			t.Errorf("the connection's own deadline was set %d times", applied)
		}
	})
}

// Whatever came before, a connection fails from the moment on that was set last, and at no other time.
func TestDeadlineHistories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(1000) {
			random := rand.New(rand.NewPCG(seed, 0))
			upTo := func(most int) time.Duration { return time.Duration(random.IntN(most+1)) * time.Millisecond }
			n := newNoted()
			var at time.Time
			for step := range 50 {
				time.Sleep(upTo(20)) // what comes next may be at the very moment of the timer
				for range random.IntN(3) {
					switch random.IntN(4) {
					case 0:
						at = time.Time{}
					case 1:
						at = time.Now().Add(-upTo(20))
					default:
						at = time.Now().Add(upTo(40))
					}
					n.move(t, at)
				}
				on, _, _ := n.seen()
				passed := func(at time.Time) bool { return !at.IsZero() && !time.Now().Before(at) }
				if fails, want := passed(on), passed(at); fails != want {
					t.Fatalf("seed %d, step %d: fails: %v, want %v", seed, step, fails, want)
				}
			}
			n.close()
		}
	})
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
	for _, set := range []func(time.Time) error{c.SetDeadline, c.SetReadDeadline, c.SetWriteDeadline} {
		all.Go(func() {
			var err error
			for end := time.Now().Add(never); err == nil && time.Now().Before(end); {
				err = set(time.Now().Add(time.Millisecond))
			}
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("set on a closed connection: %v", err)
			}
		})
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	all.Wait()
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
	for start := time.Now(); time.Since(start) < 2*idle; { // for longer than any limit
		last = time.Now()
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
	if took := time.Since(last); took < idle { // it was set after that
		t.Errorf("it ended after %v, want %v", took, idle)
	}
}

// BenchmarkDeadlines moves deadlines as net/http does for one request after another on a connection.
func BenchmarkDeadlines(b *testing.B) {
	ours, _ := connected(b)
	for _, by := range []struct {
		name string
		net.Conn
	}{{"net", ours.TCPConn}, {"ours", ours}} {
		b.Run(by.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				by.SetReadDeadline(time.Now().Add(5 * time.Second))  // for the headers
				by.SetReadDeadline(time.Now().Add(15 * time.Second)) // for the request
				by.SetWriteDeadline(time.Now().Add(30 * time.Second))
				by.SetReadDeadline(time.Time{}) // to see whether the client goes away while it is answered
				by.SetReadDeadline(time.Unix(1, 0))
				by.SetReadDeadline(time.Time{})
				by.SetWriteDeadline(time.Time{})
				by.SetReadDeadline(time.Now().Add(2 * time.Minute)) // for the next one
			}
		})
	}
}
