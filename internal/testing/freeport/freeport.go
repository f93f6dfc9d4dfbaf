// Package freeport finds ports for servers that start later, in another process, or that stop and
// start again.
//
// The system may choose the same port for two sockets, as soon as nobody listens on it. So these
// ports are below the range that Linux, macOS and Windows choose from. A process gets the same port
// again only after it has looked at all the others, 12,000 in all.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
)

const first, count = 20000, 12000

// last is the number of the last port looked at. It starts anywhere in the range, so that processes
// seldom meet.
var last atomic.Uint32

func init() { last.Store(rand.Uint32N(count)) }

// Find returns a port of 127.0.0.1 that nobody listens on. Another process may take it before it is
// used, so callers that can should then try another one. Find fails after 100 ports in use.
func Find() (int, error) {
	for range 100 {
		if port := first + int(last.Add(1)%count); isFree(port) {
			return port, nil
		}
	}
	return 0, errors.New("no free port found")
}

// isFree reports whether somebody could listen on the port.
func isFree(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
