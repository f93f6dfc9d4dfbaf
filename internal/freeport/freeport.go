// Package freeport finds ports for servers that start later, in another process, or that stop and
// start again.
//
// A port that the system has chosen for one socket it may choose for the next one, as soon as
// nobody listens on it. So these are below the range that Linux, macOS and Windows choose from, and
// the same process is given one of them again only after it has looked at all the others, 12,000 in
// all.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
)

const first, count = 20000, 12000

// last is how many were looked at, from anywhere in the range on, so that processes seldom meet.
var last atomic.Uint32

func init() { last.Store(rand.Uint32N(count)) }

// Find returns a port of 127.0.0.1 that nobody listens on. Another process may take it before it is
// used: whoever can should try another one then.
func Find() (int, error) {
	for range 100 {
		if port := first + int(last.Add(1)%count); IsFree(port) {
			return port, nil
		}
	}
	return 0, errors.New("no free port found")
}

// IsFree says whether somebody could listen on the port.
func IsFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
