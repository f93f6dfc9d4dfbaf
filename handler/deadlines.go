package main

import (
	"errors"
	"net"
	"sync"
	"time"
)

// listener accepts connections whose deadlines cost next to nothing to move.
//
// net/http moves a connection's deadlines four times for each request: for the headers, the request, the answer and the
// wait for the next one. Each time a timer of the runtime is taken out of its heap and put back, and together that costs
// as much as all that a cached redirect does besides net/http (docs/decisions/0002-deadlines-and-collections.md).
type listener struct{ *net.TCPListener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	conn := &connection{TCPConn: c}
	conn.read.apply = c.SetReadDeadline
	conn.write.apply = c.SetWriteDeadline
	return conn, nil
}

// connection is a TCP connection with deadlines of the other kind. They mean the same.
type connection struct {
	*net.TCPConn
	read, write deadline
}

func (c *connection) SetReadDeadline(t time.Time) error  { return c.read.set(t) }
func (c *connection) SetWriteDeadline(t time.Time) error { return c.write.set(t) }

func (c *connection) SetDeadline(t time.Time) error {
	return errors.Join(c.read.set(t), c.write.set(t))
}

func (c *connection) Close() error {
	c.read.close()
	c.write.close()
	return c.TCPConn.Close()
}

// deadline is when reads or writes of a connection are to fail. Moving it to later, which is nearly always, leaves the
// timer as it is: that one comes too early, sees that, and is set once more. So a busy connection has its timer set once
// in the time of its shortest limit, and not with each request.
type deadline struct {
	apply func(time.Time) error // sets the deadline of the connection itself

	mu     sync.Mutex
	timer  *time.Timer
	at     time.Time // when reads or writes are to fail; zero: never
	wakes  time.Time // when the timer does; zero: it is not set
	passed bool      // the connection's own deadline is one that has passed: reads or writes fail
	closed bool
}

func (d *deadline) set(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return net.ErrClosed
	}
	d.at = t
	early := !t.IsZero() && (d.wakes.IsZero() || t.Before(d.wakes)) // else the timer comes in time
	if early && time.Until(t) <= 0 {
		d.passed = true
		return d.apply(t)
	}
	if d.passed {
		d.passed = false
		if err := d.apply(time.Time{}); err != nil {
			return err
		}
	}
	if early {
		d.wake(t)
	}
	return nil
}

func (d *deadline) wake(t time.Time) {
	d.wakes = t
	if d.timer == nil {
		d.timer = time.AfterFunc(time.Until(t), d.woken)
		return
	}
	d.timer.Reset(time.Until(t))
}

// woken may come at any time, even for a deadline that has been moved since: what counts is the one that there is.
func (d *deadline) woken() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wakes = time.Time{}
	switch {
	case d.at.IsZero() || d.passed || d.closed:
	case time.Until(d.at) > 0:
		d.wake(d.at)
	default:
		d.passed = true
		_ = d.apply(d.at) // fails on a closed connection only
	}
}

func (d *deadline) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.timer != nil {
		d.timer.Stop()
	}
}
