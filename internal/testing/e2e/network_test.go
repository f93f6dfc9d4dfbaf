package e2e

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/testing/azurite"
)

// impairment is what the network does to the responses of storage.
type impairment int32

const (
	none   impairment = iota
	slow              // data comes 5 s later
	frozen            // data does not come
	reset             // the connection is reset
	cutOff            // the connection ends after 100 bytes
)

// network is the network between a process and storage.
type network struct {
	t        *testing.T
	ports    azurite.Ports
	target   azurite.Ports
	impaired atomic.Int32

	mu        sync.Mutex
	listeners []net.Listener
	open      map[net.Conn]bool
}

// newNetwork makes a network that leads to the Azurite on the ports to.
func newNetwork(t *testing.T, to azurite.Ports) *network {
	t.Helper()
	from, err := azurite.FreePorts()
	if err != nil {
		t.Fatal(err)
	}
	n := &network{t: t, ports: from, target: to, open: map[net.Conn]bool{}}
	n.up()
	t.Cleanup(n.down)
	return n
}

func (n *network) connectionString() string {
	return azurite.Ports{Table: n.ports.Table, Blob: n.ports.Blob}.ConnectionString()
}

// up starts to listen. It tries again for a while, since another connection may use a port for a
// moment.
func (n *network) up() {
	for from, to := range map[int]int{n.ports.Table: n.target.Table, n.ports.Blob: n.target.Blob} {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", from))
		for range 100 {
			if err == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
			listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", from))
		}
		if err != nil {
			n.t.Error(err)
			return
		}
		n.mu.Lock()
		n.listeners = append(n.listeners, listener)
		n.mu.Unlock()
		go n.serve(listener, fmt.Sprintf("127.0.0.1:%d", to))
	}
}

// down closes all connections, and takes no new ones.
func (n *network) down() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.listeners {
		l.Close()
	}
	n.listeners = nil
	for c := range n.open {
		c.Close()
	}
}

func (n *network) serve(listener net.Listener, target string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		storage, err := net.Dial("tcp", target)
		if err != nil {
			client.Close()
			continue
		}
		n.mu.Lock()
		n.open[client], n.open[storage] = true, true
		n.mu.Unlock()
		go n.pass(storage, client, false)
		go n.pass(client, storage, true)
	}
}

// pass copies data from one connection to the other, until one of them is closed.
func (n *network) pass(to, from net.Conn, impaired bool) {
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, c := range []net.Conn{to, from} {
			c.Close()
			delete(n.open, c)
		}
	}()
	buffer := make([]byte, 32<<10)
	for {
		count, err := from.Read(buffer)
		by := none
		if impaired {
			by = impairment(n.impaired.Load())
		}
		switch by {
		case slow:
			time.Sleep(5 * time.Second)
		case frozen:
			for impairment(n.impaired.Load()) == frozen {
				time.Sleep(10 * time.Millisecond)
			}
		case reset:
			_ = to.(*net.TCPConn).SetLinger(0)
			return
		case cutOff:
			_, _ = to.Write(buffer[:min(count, 100)])
			return
		}
		if _, err2 := to.Write(buffer[:count]); err != nil || err2 != nil {
			return
		}
	}
}
