package functions

import (
	"context"
	"net/http"
	"sync"

	"tiney/access"
	"tiney/telemetry"
)

// fewAtOnce is how many calls that take megabytes may run at once, imports and bulks together.
const fewAtOnce = 4

// few limits the calls that take megabytes, so that together they do not exhaust the instance's
// memory.
type few struct {
	mu     sync.Mutex
	owners map[string]bool // those with a call in progress
}

// let returns a function that serves one call of each owner at a time, and fewAtOnce of all owners.
// It refuses other calls before it reads their body.
func (f *few) let(serve callerFunc) callerFunc {
	return func(
		ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller,
	) error {
		if !f.enter(who.Owner) {
			return busyProblem
		}
		defer f.leave(who.Owner)
		return serve(ctx, w, r, who)
	}
}

func (f *few) enter(owner string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.owners[owner] || len(f.owners) == fewAtOnce {
		return false
	}
	f.owners[owner] = true
	return true
}

func (f *few) leave(owner string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.owners, owner)
}

var busyProblem = newProblem(http.StatusServiceUnavailable, "busy", "Too many of these at once",
	"Of the calls for many links each owner may have one at a time, and all owners together few; "+
		"QR codes are drawn a few at a time. "+
		"Nothing is wrong with this one: repeat it in a few seconds.").
	past(telemetry.LimitBusy)
