// Package faultproxy stands between the service and Azurite in tests. It records the storage calls,
// and can do to them what a network or a storage service can do but Azurite never does.
package faultproxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"tiney/internal/testing/azurite"
	"tiney/storage/memtable"
)

// Call is one storage call on the wire; a retry is a call of its own.
type Call struct {
	N         int    // 1 for the first since the last Reset
	Operation string // as the service's documentation names it, such as "GetEntity"
	Target    string // the table, or the blob's container
	Partition string // of the row that the URL names, or of a batch; an insert's URL names none
	Rows      int    // the number of rows in a batch; 0 for other calls
	Bytes     int    // the size of the body
	Key       string // of the row, in memory only; of a query: which rows
	By        int    // who makes it; in memory only: see By
}

func (c Call) String() string { return fmt.Sprintf("%d %s %s", c.N, c.Operation, c.Target) }

// Fault is what the proxy does to a call.
type Fault int

const (
	None            Fault = iota
	Refuse                // it is not passed on, and the connection is closed
	DropResponse          // it is passed on and applied; its response is lost with the connection
	ServerBusy            // it is not passed on; the response is a 503 as Azure words it
	TooManyRequests       // the same with a 429 and a Retry-After of ten seconds
	BeingDeleted          // the same with a 409: the table is being deleted, and cannot be made yet
	NotFound              // the same with a 404: there is no such row
	Freeze                // it is not passed on, and gets no response while the client waits
	EmptyResponse         // it is passed on and applied; its response arrives without a body

	// The next ones are no faults of a storage service. They break guarantees that the service
	// relies on. With one of them in force, a test that looks for broken promises must find one.

	Lie           // it is not passed on, and gets a response as if it had been applied
	Unconditional // it is passed on without the ETag that it is conditional on
	// A batch of counts is passed on, and then again as if another process had counted the same.
	Twice
)

// Proxy is a proxy in front of one Azurite, or of tables in memory.
type Proxy struct {
	tables, blobs *httptest.Server
	ports         azurite.Ports
	memory        *memtable.Service // used instead of an Azurite; nil for an Azurite

	mu      sync.Mutex
	passing int       // the number of calls on their way
	idle    sync.Cond // signals that passing is 0
	n       int
	calls   []Call
	before  func(Call) Fault
	after   func(Call)
	failure func(Call) error // in memory only
}

// Start starts a proxy in front of the Azurite on the given ports. Close ends it.
func Start(target azurite.Ports) *Proxy {
	p := newProxy()
	p.tables = httptest.NewServer(p.forward(fmt.Sprintf("127.0.0.1:%d", target.Table), tableCall))
	p.blobs = httptest.NewServer(p.forward(fmt.Sprintf("127.0.0.1:%d", target.Blob), blobCall))
	p.ports = azurite.Ports{
		Blob:  p.blobs.Listener.Addr().(*net.TCPAddr).Port,
		Table: p.tables.Listener.Addr().(*net.TCPAddr).Port, Queue: target.Queue,
	}
	return p
}

func newProxy() *Proxy {
	p := &Proxy{}
	p.idle.L = &p.mu
	return p
}

// ConnectionString returns the connection string that leads through the proxy.
func (p *Proxy) ConnectionString() string { return p.ports.ConnectionString() }

// Ports returns the proxy's own ports.
func (p *Proxy) Ports() azurite.Ports { return p.ports }

// Close ends the proxy and all connections through it.
func (p *Proxy) Close() {
	if p.memory != nil {
		return
	}
	for _, s := range []*httptest.Server{p.tables, p.blobs} {
		s.CloseClientConnections()
		s.Close()
	}
}

// Before sets a function that sees every call before it is passed on, and decides what happens to
// it. nil removes the function.
func (p *Proxy) Before(f func(Call) Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = f
}

// After sets a function that sees every call after it was applied, before its response goes to the
// client. nil removes the function.
func (p *Proxy) After(f func(Call)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.after = f
}

// FailAs sets a function that sees every call in memory that no other fault befalls. Its error, if
// it returns one, is the call's error, and the call is not passed on. nil removes the function.
func (p *Proxy) FailAs(f func(Call) error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure = f
}

// Reset forgets the calls so far, and all functions.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n, p.calls, p.before, p.after, p.failure = 0, nil, nil, nil, nil
}

// Wait returns when no call is on its way to storage. Calls of a killed client may be on their way
// after its end.
func (p *Proxy) Wait() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.passing > 0 {
		p.idle.Wait()
	}
}

// Calls returns the calls since the last Reset.
func (p *Proxy) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Call(nil), p.calls...)
}

// Fail returns a function for Before that applies fault to the nth call.
func Fail(n int, fault Fault) func(Call) Fault {
	return func(c Call) Fault {
		if c.N == n {
			return fault
		}
		return None
	}
}

// On returns a function for Before that applies fault to the calls of an operation on a target. ""
// stands for any operation or any target.
func On(operation, target string, fault Fault) func(Call) Fault {
	return func(c Call) Fault {
		if (operation == "" || c.Operation == operation) && (target == "" || c.Target == target) {
			return fault
		}
		return None
	}
}

// begin records a call, numbers it, and decides what happens to it.
func (p *Proxy) begin(call *Call) (fault Fault, after func(Call)) {
	p.mu.Lock()
	p.passing++
	p.n++
	call.N = p.n
	p.calls = append(p.calls, *call)
	before, after := p.before, p.after
	p.mu.Unlock()
	if before != nil {
		fault = before(*call)
	}
	if after == nil {
		after = func(Call) {}
	}
	return fault, after
}

func (p *Proxy) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.passing--; p.passing == 0 {
		p.idle.Broadcast()
	}
}

func (p *Proxy) forward(target string, name func(*http.Request) (operation,
	target string)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		call := Call{Bytes: len(body)}
		call.Operation, call.Target = name(r)
		call.Key = r.URL.Query().Get("$filter")
		if m := partitionKey.FindStringSubmatch(r.URL.Path); m != nil {
			call.Partition = m[1]
		}
		if call.Operation == batch {
			rows := batchRow.FindAllSubmatch(body, -1)
			if call.Rows = len(rows); call.Rows > 0 {
				call.Target = string(rows[0][1])
				call.Partition, _ = url.PathUnescape(string(rows[0][2]))
			}
		}
		fault, after := p.begin(&call)
		defer p.done()
		switch fault {
		case Refuse:
			panic(http.ErrAbortHandler)
		case Freeze:
			<-r.Context().Done()
			panic(http.ErrAbortHandler)
		case ServerBusy, TooManyRequests, BeingDeleted, NotFound:
			code, status := "ServerBusy", http.StatusServiceUnavailable
			switch fault {
			case TooManyRequests:
				code, status = "TooManyRequests", http.StatusTooManyRequests
				w.Header().Set("Retry-After", "10")
			case BeingDeleted:
				code, status = "TableBeingDeleted", http.StatusConflict
			case NotFound:
				code, status = "ResourceNotFound", http.StatusNotFound
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("x-ms-error-code", code)
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"odata.error":{"code":%q,"message":{"lang":"en-US",`+
				`"value":"Try again later."}}}`, code)
			return
		case Lie:
			if call.Operation == batch {
				w.WriteHeader(http.StatusAccepted)
				fmt.Fprintf(w, "--batchresponse_0\r\nContent-Type: multipart/mixed; "+
					"boundary=changesetresponse_0\r\n\r\n%s--changesetresponse_0--\r\n"+
					"--batchresponse_0--\r\n",
					strings.Repeat("--changesetresponse_0\r\nContent-Type: "+
						"application/http\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n\r\n", call.Rows))
				return
			}
			w.Header().Set("ETag", `W/"datetime'2026-01-01T00%3A00%3A00.0000000Z'"`)
			w.WriteHeader(http.StatusNoContent)
			return
		}
		// The request's own context would cancel a call whose client was killed. A real network
		// would not.
		if fault == Unconditional && call.Operation == batch {
			body = batchIfMatch.ReplaceAll(body, []byte("${1}*"))
		}
		out, err := http.NewRequest(r.Method, "http://"+target+r.URL.RequestURI(),
			bytes.NewReader(body))
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		out.Header = r.Header.Clone()
		if fault == Unconditional && out.Header.Get("If-Match") != "" {
			out.Header.Set("If-Match", "*")
		}
		if fault == Twice {
			again := out.Clone(out.Context())
			other := countRow.ReplaceAll(body, []byte("${1}0"))
			again.Body, again.ContentLength = io.NopCloser(bytes.NewReader(other)),
				int64(len(other))
			if resp, err := http.DefaultTransport.RoundTrip(again); err == nil {
				resp.Body.Close()
			}
		}
		resp, err := http.DefaultTransport.RoundTrip(out)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || fault == DropResponse {
			panic(http.ErrAbortHandler)
		}
		after(call)
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		if fault == EmptyResponse {
			w.Header().Del("Content-Length")
			text = nil
		}
		w.WriteHeader(resp.StatusCode)
		w.Write(text)
	})
}

var partitionKey = regexp.MustCompile(`PartitionKey='([^']*)'`)

// batch is the operation of a call that names its table and its rows only in its body.
const batch = "SubmitTransaction"

var (
	batchRow = regexp.MustCompile(
		`(?m)^[A-Z]+ \S+/([A-Za-z0-9]+)\(PartitionKey='([^']*)',RowKey='[^']*'\)`)
	// countRow matches the process and the number at the end of a row's key.
	countRow     = regexp.MustCompile(`([A-Z2-7]{26}-[0-9]+)`)
	batchIfMatch = regexp.MustCompile(`(?m)^(If-Match: )[^\r\n]+`)
)

var entityPath = regexp.MustCompile(`^/[^/]+/([A-Za-z0-9]+)(\(.*\))?$`)

func tableCall(r *http.Request) (operation, target string) {
	if strings.HasSuffix(r.URL.Path, "/$batch") {
		return batch, "" // see its body
	}
	m := entityPath.FindStringSubmatch(r.URL.Path)
	if m == nil {
		return r.Method, r.URL.Path
	}
	target = m[1]
	switch {
	case target == "Tables" && r.Method == http.MethodDelete:
		return "DeleteTable", strings.Trim(m[2], "(')")
	case target == "Tables" && r.Method == http.MethodGet:
		return "QueryTables", ""
	case target == "Tables":
		return "CreateTable", ""
	case r.Method == http.MethodPost:
		return "InsertEntity", target
	case r.Method == http.MethodDelete:
		return "DeleteEntity", target
	case r.Method != http.MethodGet:
		return "UpdateEntity", target
	case strings.Contains(m[2], "PartitionKey"):
		return "GetEntity", target
	}
	return "QueryEntities", target
}

func blobCall(r *http.Request) (operation, target string) {
	parts := strings.SplitN(strings.Trim(r.URL.Path, "/"), "/", 3)
	if len(parts) > 1 {
		target = parts[1]
	}
	query := r.URL.Query()
	switch {
	case query.Get("comp") == "lease":
		action := r.Header.Get("x-ms-lease-action")
		return strings.ToUpper(action[:1]) + action[1:] + "Lease", target
	case query.Get("restype") == "container" && r.Method == http.MethodPut:
		return "CreateContainer", target
	case query.Get("restype") == "container":
		return "GetContainer", target
	case r.Method == http.MethodPut:
		return "PutBlob", target
	}
	return r.Method, target
}
