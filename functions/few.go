package functions

import (
	"net/http"
	"sync"

	"tiney/access"
	"tiney/telemetry"
)

const (
	// fewAtOnce is how many calls that take megabytes may run at once, imports and bulks together.
	// The last place is kept for admins.
	fewAtOnce = 4
	// maxFewBytes is how many bytes the bodies of all such calls may have together, also while they
	// arrive. Room for the last import is kept for admins.
	maxFewBytes = 64 << 20
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
// that send slowly take none. Each owner may have one call in progress; read refuses further ones
// before it reads their body. Without an error, leave has to end the call.
func (f *few) read(
	w http.ResponseWriter, r *http.Request, most int64, who access.Caller,
) (body []byte, leave func(), err error) {
	size := roomFor(r, most)
	if !f.enter(size, who) {
		return nil, nil, busyProblem
	}
	places := 0
	leave = func() { f.leave(size, places, who) }
	defer func() {
		if places == 0 {
			leave()
		}
	}()
	switch body, err = readBody(w, r, most); {
	case err != nil:
	case f.place(who):
		places = 1
	default:
		err = busyProblem
	}
	return body, leave, err
}

func (f *few) enter(size int64, who access.Caller) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := int64(maxImportBytes)
	if who.Admin {
		kept = 0
	}
	if f.owners[who.Owner] || f.owners[who.ActsFor] || f.bytes+size > maxFewBytes-kept {
		return false
	}
	f.owners[who.Owner] = true
	if who.ActsFor != "" {
		f.owners[who.ActsFor] = true
	}
	f.bytes += size
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

func (f *few) leave(size int64, places int, who access.Caller) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.owners, who.Owner)
	delete(f.owners, who.ActsFor)
	f.bytes -= size
	f.running -= places
}

var busyProblem = newProblem(http.StatusServiceUnavailable, "busy", "Too many of these at once",
	"Of the calls for many links each owner may have one at a time, and all owners together few; "+
		"QR codes are drawn a few at a time. "+
		"Nothing is wrong with this one: repeat it in a few seconds.").
	past(telemetry.LimitBusy)
