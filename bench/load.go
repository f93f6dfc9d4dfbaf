package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"
)

// tally is what a load generator has seen: how long the redirects took, and how many were none.
type tally struct {
	took   []time.Duration
	failed int
	err    error // of the last one that failed
}

func (t *tally) add(more tally) {
	t.took = append(t.took, more.took...)
	t.failed += more.failed
	if more.err != nil {
		t.err = more.err
	}
}

// percentile is in milliseconds.
func (t *tally) percentile(p float64) float64 {
	slices.Sort(t.took)
	return float64(t.took[int(float64(len(t.took)-1)*p/100)]) / float64(time.Millisecond)
}

// connection asks for one thing again and again, or for what it is told to. It is net/http's client without all that
// this needs not, for that one would take more of the processors than the service.
type connection struct {
	address string
	request []byte
	status  int // of the answer, or it is an error
	conn    net.Conn
	in      *bufio.Reader
}

func newConnection(address, path string) *connection {
	c := &connection{address: address, status: http.StatusFound}
	c.ask(path)
	return c
}

// ask says what get asks for.
func (c *connection) ask(path string) {
	c.request = []byte("GET " + path + " HTTP/1.1\r\nHost: tiney.to\r\n\r\n")
}

var (
	protocol      = []byte("HTTP/1.1 ")
	contentLength = []byte("Content-Length: ") // as net/http and nginx write it
)

func (c *connection) get() (err error) {
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	if c.conn == nil {
		if c.conn, err = net.Dial("tcp", c.address); err != nil {
			return err
		}
		c.in = bufio.NewReader(c.conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return err
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return err
	}
	body := 0
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first {
			status, ok := bytes.CutPrefix(line, protocol)
			if !ok || !bytes.HasPrefix(status, strconv.AppendInt(nil, int64(c.status), 10)) {
				return fmt.Errorf("answered with %q", line)
			}
		}
		if length, ok := bytes.CutPrefix(line, contentLength); ok {
			if body, err = strconv.Atoi(string(bytes.TrimSpace(length))); err != nil {
				return err
			}
		}
		if len(bytes.TrimSpace(line)) == 0 {
			_, err := c.in.Discard(body)
			return err
		}
	}
}

func (c *connection) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// together runs a piece of a load on each of the connections.
func (b *bench) together(s *service, piece func(n int, c *connection) tally) tally {
	var (
		mu  sync.Mutex
		all tally
		run sync.WaitGroup
	)
	for n := range b.connections {
		run.Go(func() {
			c := newConnection(s.address, s.path)
			c.status = s.status
			defer c.close()
			t := piece(n, c)
			mu.Lock()
			defer mu.Unlock()
			all.add(t)
		})
	}
	run.Wait()
	return all
}

func (t *tally) get(c *connection, since time.Time) {
	if err := c.get(); err != nil {
		t.failed, t.err = t.failed+1, err
		return
	}
	t.took = append(t.took, time.Since(since))
}

// steady asks at the given rate, whether or not the answers keep up. Where a connection still waits for an answer when
// its next request is due, that one's time is counted from when it was due: a service that stands still makes all wait
// that would have come meanwhile. Where it sleeps, it is counted from when it wakes, since it is not the service that
// wakes it late.
func (b *bench) steady(ctx context.Context, s *service, length time.Duration) tally {
	start, every := time.Now(), time.Second/time.Duration(b.rate)
	return b.together(s, func(n int, c *connection) (t tally) {
		for due := start.Add(every * time.Duration(n)); due.Sub(start) < length && ctx.Err() == nil; due = due.Add(every * time.Duration(b.connections)) {
			since := due
			if early := time.Until(due); early > 0 {
				time.Sleep(early)
				since = time.Now()
			}
			t.get(c, since)
		}
		return t
	})
}

// flatOut asks as fast as the answers come, and returns the requests a second and the percentiles of their times.
func (b *bench) flatOut(ctx context.Context, s *service, length time.Duration) (values, error) {
	if b.wrk != "" {
		return b.flatOutWithWrk(ctx, s, length)
	}
	end := time.Now().Add(length)
	t := b.together(s, func(_ int, c *connection) (t tally) {
		for now := time.Now(); now.Before(end) && ctx.Err() == nil; now = time.Now() {
			t.get(c, now)
		}
		return t
	})
	return t.values(ctx, length)
}

func (t *tally) values(ctx context.Context, length time.Duration) (values, error) {
	if t.failed > 0 || ctx.Err() != nil {
		return nil, fmt.Errorf("%d requests failed: %w", t.failed, errors.Join(t.err, ctx.Err()))
	}
	if len(t.took) == 0 {
		return nil, errors.New("no request was answered in time")
	}
	n := float64(len(t.took))
	return values{"requests": n, "req/s": n / length.Seconds(), "p50": t.percentile(50), "p99": t.percentile(99)}, nil
}

var (
	wrkCount   = regexp.MustCompile(`(\d+) requests in`)
	wrkRate    = regexp.MustCompile(`Requests/sec: +([\d.]+)`)
	wrkHalf    = regexp.MustCompile(`50% +(\S+)`)
	wrkLongest = regexp.MustCompile(`99% +(\S+)`)
	wrkErrors  = regexp.MustCompile(`Socket errors: .*`)
	wrkRefused = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
)

func (b *bench) flatOutWithWrk(ctx context.Context, s *service, length time.Duration) (values, error) {
	said, err := exec.CommandContext(ctx, b.wrk, "-t2", "-c"+strconv.Itoa(b.connections), "-d"+strconv.Itoa(int(max(1, length.Seconds())))+"s", "--latency", s.url+s.path).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("wrk: %w\n%s", err, said)
	}
	if wrong := wrkErrors.Find(said); wrong != nil {
		return nil, fmt.Errorf("wrk: %s", wrong)
	}
	v := values{}
	for name, form := range map[string]*regexp.Regexp{"requests": wrkCount, "req/s": wrkRate, "p50": wrkHalf, "p99": wrkLongest} {
		text := form.FindSubmatch(said)
		if text == nil {
			return nil, fmt.Errorf("wrk said:\n%s", said)
		}
		if took, err := time.ParseDuration(string(text[1])); err == nil {
			v[name] = float64(took) / float64(time.Millisecond)
		} else if v[name], err = strconv.ParseFloat(string(text[1]), 64); err != nil {
			return nil, err
		}
	}
	refused, wanted := 0.0, 0.0
	if text := wrkRefused.FindSubmatch(said); text != nil {
		if refused, err = strconv.ParseFloat(string(text[1]), 64); err != nil {
			return nil, err
		}
	}
	if s.status >= http.StatusBadRequest {
		wanted = v["requests"]
	}
	if refused != wanted {
		return nil, fmt.Errorf("wrk: %v of %v answers were none of 2xx and 3xx, and %v should have been", refused, v["requests"], wanted)
	}
	return v, nil
}

// throughput is flatOut after a second of the same to warm up, with what the server has used of the processors for a
// request.
func (b *bench) throughput(ctx context.Context, s *service) (values, error) {
	return measured(s, b.length, func(length time.Duration) (values, error) { return b.flatOut(ctx, s, length) })
}

func measured(s *service, length time.Duration, load func(time.Duration) (values, error)) (values, error) {
	if _, err := load(time.Second); err != nil {
		return nil, err
	}
	return timed(s, func() (values, error) { return load(length) })
}

// timed adds to what a load has measured what the server has used of the processors for a request.
func timed(s *service, load func() (values, error)) (values, error) {
	before := processorTime(s.cmd.Process.Pid)
	v, err := load()
	if err != nil {
		return nil, err
	}
	used := processorTime(s.cmd.Process.Pid) - before
	v["µs"] = float64(used.Microseconds()) / v["requests"]
	return v, nil
}

// generator says what flatOut uses.
func (b *bench) generator() string {
	if b.wrk == "" {
		return "a load generator of its own, as wrk is not installed,"
	}
	return "wrk -t2"
}
