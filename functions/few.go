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
	// fewAtOnce is how many calls that take megabytes may run at once, imports and bulks together.
	// The last place is kept for admins.
	fewAtOnce = 4
	// maxFewBytes is how many bytes the bodies of all such calls may have together, also while they
	// arrive. Room for the last import is kept for admins.
	maxFewBytes = 24 << 20
	// firstChunk is what any request may send. What follows it has to arrive at 50 KB a second, in
	// chunks that take room.
	firstChunk, maxChunk, chunkTime = 4 << 10, 128 << 10, 2600 * time.Millisecond
)

// few limits the calls that take megabytes, so that together they do not exhaust the instance's
// memory.
type few struct {
	mu      sync.Mutex
	owners  map[string]bool // those with a call in progress, and those for whom they act
	bytes   int64           // of the bodies of these calls
	running int             // how many of them have their body
}

// read reads the body of a call, and gives the call a place once the body is there, so that clients
// that send slowly take none. What a client only announces takes no room. Each owner may have one
// call in progress; read refuses further ones before it reads their body. Without an error, leave
// has to end the call.
func (f *few) read(
	w http.ResponseWriter, r *http.Request, most int64, who access.Caller,
) (body net.Buffers, leave func(), err error) {
	if !f.enter(who) {
		return nil, nil, busyProblem
	}
	room, runs := int64(0), false
	leave = func() { f.leave(room, runs, who) }
	defer func() {
		if !runs {
			leave()
		}
	}()
	control, end := http.NewResponseController(w), time.Now().Add(BodyTime)
	defer func() { _ = control.SetReadDeadline(end) }()
	err = receive(w, r, most, func(in io.Reader) error {
		for size, left := int64(firstChunk), most+1; ; size = min(2*size, maxChunk, left) {
			if body != nil {
				if !f.take(size, who) {
					return busyProblem
				}
				room += size
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
		if runs = f.place(who); !runs {
			err = busyProblem
		}
	}
	return body, leave, err
}

func (f *few) enter(who access.Caller) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owners[who.Owner] || f.owners[who.ActsFor] {
		return false
	}
	f.owners[who.Owner] = true
	if who.ActsFor != "" {
		f.owners[who.ActsFor] = true
	}
	return true
}

func (f *few) take(room int64, who access.Caller) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes+room > maxFewBytes || f.bytes+room > maxFewBytes-maxImportBytes && !who.Admin {
		return false
	}
	f.bytes += room
	return true
}

func (f *few) place(who access.Caller) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == fewAtOnce || f.running == fewAtOnce-1 && !who.Admin {
		return false
	}
	f.running++
	return true
}

func (f *few) leave(room int64, ran bool, who access.Caller) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.owners, who.Owner)
	delete(f.owners, who.ActsFor)
	f.bytes -= room
	if ran {
		f.running--
	}
}

var busyProblem = newProblem(http.StatusServiceUnavailable, "busy", "Too many of these at once",
	"Of the calls for many links each owner may have one at a time, and all owners together few; "+
		"QR codes are drawn a few at a time. "+
		"Nothing is wrong with this one: repeat it in a few seconds.").
	past(telemetry.LimitBusy)
