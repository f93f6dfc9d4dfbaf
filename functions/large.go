package functions

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"tiney/internal/access"
	"tiney/internal/telemetry"
)

const (
	// maxLargeCalls is how many large calls may run at once, imports and bulks together. The last
	// place is kept for admins.
	maxLargeCalls = 4
	// maxLargeBytes is how many bytes the bodies of all large calls may have together, also while
	// they arrive. Room for the last import is kept for admins.
	maxLargeBytes = 24 << 20
	// firstChunk is how many bytes a request may send at any speed. The rest has to arrive at 50 KB
	// a second, in chunks of up to maxChunk, which count towards maxLargeBytes.
	firstChunk, maxChunk, chunkTime = 4 << 10, 128 << 10, 2600 * time.Millisecond
)

// largeCalls limits the calls that take megabytes, so that together they do not exhaust the
// instance's memory.
type largeCalls struct {
	mu      sync.Mutex
	owners  map[string]bool // of the calls in progress; both Owner and ActsFor of each
	bytes   int64           // of the bodies of these calls
	running int             // how many of them have their body
}

// largeCall is what one of the calls in progress has taken.
type largeCall struct {
	all  *largeCalls
	who  access.Caller
	room int64 // of bytes
	runs bool
}

// read reads the body of a call. The call gets its place when the body is complete, so a client
// that sends slowly takes none, and what a client only announces takes no room. Each owner may have
// one call in progress; read refuses further ones before it reads their body. The caller must call
// leave at the end, unless there is an error.
func (l *largeCalls) read(c *call, most int64) (body net.Buffers, leave func(), err error) {
	large := &largeCall{all: l, who: c.who}
	if !large.enter() {
		return nil, nil, busyProblem
	}
	defer func() {
		if !large.runs {
			large.leave()
		}
	}()
	control, end := http.NewResponseController(c.w), time.Now().Add(BodyTime)
	defer func() { _ = control.SetReadDeadline(end) }()
	err = receive(c.w, c.r, most, func(in io.Reader) error {
		for size, left := int64(firstChunk), most+1; ; size = min(2*size, maxChunk, left) {
			if body != nil {
				if !large.take(size) {
					return busyProblem
				}
				_ = control.SetReadDeadline(time.Now().Add(min(chunkTime, time.Until(end))))
			}
			chunk := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
			_, err := io.CopyN(chunk, in, size)
			body, left = append(body, chunk.Bytes()), left-size
			if err != nil {
				return err
			}
		}
	})
	if err == nil {
		body[0] = bytes.TrimPrefix(body[0], byteOrderMark)
		if !large.run() {
			err = busyProblem
		}
	}
	return body, large.leave, err
}

// enter lets a call begin, unless its owner has one in progress.
func (c *largeCall) enter() bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	if c.all.owners[c.who.Owner] || c.all.owners[c.who.ActsFor] {
		return false
	}
	c.all.owners[c.who.Owner] = true
	if c.who.ActsFor != "" {
		c.all.owners[c.who.ActsFor] = true
	}
	return true
}

// take takes room for more of the body, if there is enough.
func (c *largeCall) take(room int64) bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	most := int64(maxLargeBytes)
	if !c.who.Admin {
		most -= maxImportBytes
	}
	if c.all.bytes+room > most {
		return false
	}
	c.all.bytes += room
	c.room += room
	return true
}

// run gives a call its place, if there is one.
func (c *largeCall) run() bool {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	most := maxLargeCalls
	if !c.who.Admin {
		most--
	}
	if c.all.running >= most {
		return false
	}
	c.all.running++
	c.runs = true
	return true
}

// leave ends a call, and gives back what it has taken.
func (c *largeCall) leave() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	delete(c.all.owners, c.who.Owner)
	delete(c.all.owners, c.who.ActsFor)
	c.all.bytes -= c.room
	if c.runs {
		c.all.running--
	}
}

var busyProblem = newProblem(http.StatusServiceUnavailable, "busy", "Too many of these at once",
	"Of the calls for many links each owner may have one at a time, and all owners together few; "+
		"QR codes are drawn a few at a time. "+
		"Nothing is wrong with this one: repeat it in a few seconds.").
	exceeding(telemetry.LimitBusy)
