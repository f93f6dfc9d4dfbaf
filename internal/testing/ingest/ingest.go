// Package ingest is a double of the ingestion endpoint of Application Insights. It stores what it
// receives, and can be made to fail.
package ingest

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"time"

	"tiney/internal/testing/freeport"
)

// Key is the instrumentation key of the only resource.
const Key = "11111111-2222-3333-4444-555555555555"

// Item is an envelope as it arrived. It has the fields of all kinds of items.
type Item struct {
	Name       string
	Time       time.Time
	SampleRate float64
	IKey       string
	Tags       map[string]string
	Data       struct {
		BaseType string
		BaseData Data
	}
}

// Data is the content of an envelope.
type Data struct {
	Name, ID, Type, Target, ResultCode, ResponseCode, URL, Data, Duration string
	Success                                                               bool
	Properties                                                            map[string]string
	Measurements                                                          map[string]float64
	Metrics                                                               []Metric
}

// Metric is a pre-aggregated metric.
type Metric struct {
	Name            string
	Kind            int
	Count           int64
	Value, Min, Max float64
}

// Operation returns the id of the operation that the item belongs to.
func (i Item) Operation() string { return i.Tags["ai.operation.id"] }

// Response is the response of an endpoint that does not accept everything.
type Response struct {
	Status     int
	RetryAfter string
	// If Status is 206, Refuse returns the status of an item by its place in the batch. 200 accepts
	// the item.
	Refuse func(index int) int
}

// Endpoint is a running double.
type Endpoint struct {
	address string

	mu       sync.Mutex
	server   *httptest.Server
	items    []Item
	raw      bytes.Buffer
	posts    int
	tokens   []string
	wrong    []string
	response *Response
	frozen   chan struct{} // nil if the endpoint is not frozen
}

// Start starts a double on a free port of this machine. Nobody else gets the port while the double
// refuses connections.
func Start() *Endpoint {
	for range 5 {
		port, err := freeport.Find()
		if err != nil {
			panic(err)
		}
		e := &Endpoint{address: fmt.Sprintf("127.0.0.1:%d", port)}
		if l, err := net.Listen("tcp", e.address); err == nil {
			e.serve(l)
			return e
		}
	}
	panic("other processes take all free ports")
}

func (e *Endpoint) serve(l net.Listener) {
	e.server = &httptest.Server{Listener: l,
		Config: &http.Server{Handler: http.HandlerFunc(e.take)}}
	e.server.Start()
}

// Close ends the endpoint.
func (e *Endpoint) Close() {
	e.Heal()
	e.server.CloseClientConnections()
	e.server.Close()
}

// ConnectionString returns the connection string of the endpoint.
func (e *Endpoint) ConnectionString() string {
	return "InstrumentationKey=" + Key + ";IngestionEndpoint=http://" + e.address + "/"
}

// Authorizations returns the Authorization headers of all posts that had one.
func (e *Endpoint) Authorizations() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.tokens)
}

// Fail makes the endpoint respond with r until Heal.
func (e *Endpoint) Fail(r Response) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.response = &r
}

// Freeze makes the endpoint accept requests but send no responses until Heal.
func (e *Endpoint) Freeze() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.frozen == nil {
		e.frozen = make(chan struct{})
	}
}

// Refuse makes the endpoint refuse connections until Heal.
func (e *Endpoint) Refuse() {
	e.server.CloseClientConnections()
	e.server.Close()
}

// Heal ends the effects of Fail, Freeze and Refuse.
func (e *Endpoint) Heal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.response = nil
	if e.frozen != nil {
		close(e.frozen)
		e.frozen = nil
	}
	if c, err := net.DialTimeout("tcp", e.address, time.Second); err == nil {
		c.Close()
		return
	}
	for range 100 { // another connection may use the port for a moment
		if l, err := net.Listen("tcp", e.address); err == nil {
			e.serve(l)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	panic("cannot listen on " + e.address + " again")
}

func (e *Endpoint) take(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	e.mu.Lock()
	response, frozen := e.response, e.frozen
	e.posts++
	if token := r.Header.Get("Authorization"); token != "" {
		e.tokens = append(e.tokens, token)
	}
	e.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler) // a frozen request never gets a response
	}
	status, refuse := http.StatusOK, func(int) int { return 200 }
	if response != nil {
		status = response.Status
		if response.Refuse != nil {
			refuse = response.Refuse
		}
	}
	type refusal struct {
		Index      int    `json:"index"`
		StatusCode int    `json:"statusCode"`
		Message    string `json:"message"`
	}
	var said struct {
		ItemsReceived int       `json:"itemsReceived"`
		ItemsAccepted int       `json:"itemsAccepted"`
		Errors        []refusal `json:"errors"`
	}
	if status == http.StatusOK || status == http.StatusPartialContent {
		lines, err := e.decode(r, body)
		said.ItemsReceived = len(lines)
		var taken []Item
		for n, line := range lines {
			if code := refuse(n); code != 200 {
				said.Errors = append(said.Errors, refusal{n, code, "as told"})
			} else {
				taken = append(taken, line)
			}
		}
		said.ItemsAccepted = len(taken)
		e.mu.Lock()
		e.items = append(e.items, taken...)
		if err != nil {
			status = http.StatusBadRequest
			e.wrong = append(e.wrong, err.Error())
		}
		e.mu.Unlock()
	}
	if response != nil && response.RetryAfter != "" {
		w.Header().Set("Retry-After", response.RetryAfter)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(said)
}

// decode reads a batch as Application Insights does. It is strict enough to find mistakes in a
// batch.
func (e *Endpoint) decode(r *http.Request, body []byte) ([]Item, error) {
	// Only version 2.1 of the API accepts a token, and it accepts nothing without one.
	path := "/v2/track"
	if r.Header.Get("Authorization") != "" {
		path = "/v2.1/track"
	}
	if r.Method != http.MethodPost || r.URL.Path != path ||
		r.Header.Get("Content-Type") != "application/x-json-stream" {
		return nil, fmt.Errorf("%s %s %s", r.Method, r.URL, r.Header.Get("Content-Type"))
	}
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		if body, err = io.ReadAll(unpacked); err != nil {
			return nil, err
		}
	}
	e.mu.Lock()
	e.raw.Write(body)
	e.mu.Unlock()
	var items []Item
	for d := json.NewDecoder(bytes.NewReader(body)); ; {
		var item Item
		err := d.Decode(&item)
		if err == io.EOF {
			return items, nil
		}
		if err != nil {
			return nil, err
		}
		if item.IKey != Key {
			return nil, fmt.Errorf("iKey %q", item.IKey)
		}
		items = append(items, item)
	}
}

// Items returns the items of a kind that were accepted so far, such as "RemoteDependencyData". The
// kind "" stands for all of them.
func (e *Endpoint) Items(kind string) []Item {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []Item
	for _, i := range e.items {
		if kind == "" || i.Data.BaseType == kind {
			all = append(all, i)
		}
	}
	return all
}

// Posts returns how many requests have arrived.
func (e *Endpoint) Posts() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.posts
}

// Raw returns everything that was sent, uncompressed, except for batches that were refused as a
// whole.
func (e *Endpoint) Raw() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.raw.String()
}

// Wrong returns what was wrong with batches that Application Insights would not accept.
func (e *Endpoint) Wrong() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.wrong
}

// Metrics returns the sums of all metrics so far, by name.
func (e *Endpoint) Metrics() map[string]Metric {
	all := map[string]Metric{}
	for _, i := range e.Items("MetricData") {
		for _, m := range i.Data.BaseData.Metrics {
			sum, there := all[m.Name]
			if !there {
				sum = Metric{Name: m.Name, Kind: m.Kind, Min: m.Min, Max: m.Max}
			}
			sum.Count += m.Count
			sum.Value += m.Value
			sum.Min, sum.Max = min(sum.Min, m.Min), max(sum.Max, m.Max)
			all[m.Name] = sum
		}
	}
	return all
}
