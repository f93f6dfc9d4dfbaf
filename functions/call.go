package functions

import (
	"context"
	"net/http"
	"time"

	"tiney/internal/access"
)

const (
	// waitTime is how long a request waits for storage, for all its calls together.
	waitTime = 5 * time.Second
	// manyTime is the time after which a request for many links begins no further link. Each link
	// has a waitTime of its own. With that, and a second to repair, the response is written within
	// the server's 30 s.
	manyTime = 20 * time.Second
)

// within returns a context for storage that ends after a time.
//
// It does not end when the client disconnects. Otherwise a stranger could break off requests to ask
// for any number of aliases: a look-up that does not end counts for no limit, and its link is
// cached all the same. And it would look as if storage failed.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

// apiFunc is a function of the API. It returns what to respond, which respond writes, or an error.
type apiFunc func(c *call) (result any, err error)

// call is a request to the API.
type call struct {
	ctx    context.Context // ends when the time of the call is over
	cancel context.CancelFunc
	w      http.ResponseWriter // only to read the body; see respond
	r      *http.Request
	who    access.Caller
}

// read reads the body of a call, up to most bytes, without a byte order mark. The time of the call
// stands still while the client sends the body. The error is a problem.
func (c *call) read(most int64) ([]byte, error) {
	begun := time.Now()
	body, err := readBody(c.w, c.r, most)
	end, _ := c.ctx.Deadline()
	c.end()
	end = end.Add(time.Since(begun))
	c.ctx, c.cancel = context.WithDeadline(context.WithoutCancel(c.ctx), end)
	return body, err
}

// readJSON is read, and refuses a body whose Content-Type is not JSON.
func (c *call) readJSON(most int64) ([]byte, error) {
	if err := wantJSON(c.r); err != nil {
		return nil, err
	}
	return c.read(most)
}

// decodeJSON is readJSON and decode.
func decodeJSON[T any](c *call, most int64) (v T, err error) {
	body, err := c.readJSON(most)
	if err != nil {
		return v, err
	}
	return decode[T](body)
}

// end ends the context of a call.
func (c *call) end() {
	if c.cancel != nil {
		c.cancel()
	}
}

// responder is a result that is more than JSON with the status 200.
type responder interface {
	respond(w http.ResponseWriter, r *http.Request)
}

// respond writes the result of an apiFunc: a 204 for nil, and JSON unless it is a responder.
func respond(w http.ResponseWriter, r *http.Request, result any) {
	switch result := result.(type) {
	case nil:
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNoContent)
	case responder:
		result.respond(w, r)
	default:
		writeJSON(w, http.StatusOK, result)
	}
}

// written is a responder of a single function.
type written func(w http.ResponseWriter, r *http.Request)

func (f written) respond(w http.ResponseWriter, r *http.Request) { f(w, r) }

// created is the result of a call that has made something.
type created struct {
	view     any
	location string // "": it has no address
}

func (c created) respond(w http.ResponseWriter, _ *http.Request) {
	if c.location != "" {
		w.Header().Set("Location", c.location)
	}
	writeJSON(w, http.StatusCreated, c.view)
}

// list is a whole list.
type list[T any] struct {
	Items []T `json:"items"`
}

// listOf returns the list of the views of all.
func listOf[T, V any](all []T, view func(T) V) list[V] {
	items := make([]V, len(all))
	for i, one := range all {
		items[i] = view(one)
	}
	return list[V]{items}
}

// results are the outcomes of the parts of a call.
type results[T any] struct {
	Results []T `json:"results"`
}
