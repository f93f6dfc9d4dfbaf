package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/microsoft/ApplicationInsights-Go/appinsights/contracts"

	"tiney/internal/testing/ingest"
	"tiney/internal/testing/testutil"
)

// rig is a Sender and the endpoint that it sends to.
type rig struct {
	*Sender
	to      *ingest.Endpoint
	metrics *Metrics
	log     *testutil.Buffer
}

func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	r := &rig{to: ingest.Start(), metrics: new(Metrics), log: new(testutil.Buffer)}
	t.Cleanup(r.to.Close)
	connection, err := ParseConnection(r.to.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Connection: connection, Metrics: r.metrics, Role: "tiney", Instance: "here",
		Version:         "v1.2.3",
		SamplingPercent: 100, ClientAddress: ownAddress, Log: NewLogger(r.log, slog.LevelDebug)}
	for _, c := range change {
		c(&config)
	}
	r.Sender = Start(config)
	t.Cleanup(func() {
		r.Close(0)
		if wrong := r.to.Wrong(); len(wrong) > 0 {
			t.Errorf("the endpoint got something other than telemetry: %q", wrong)
		}
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	return r
}

func call(try int, code string, success bool) Dependency {
	return Dependency{Type: TypeTable, Target: "account.table.core.windows.net",
		Name: "GetEntity ShortUrls", ResultCode: code,
		Try: try, Success: success, Start: time.Now(), Duration: 12345678 * time.Nanosecond}
}

const (
	traceID  = "4bf92f3577b34da6a3ce929d0e0e4736"
	parentID = "00f067aa0ba902b7"
)

// from is a request whose client has the address that ownAddress finds.
func from(address string) *http.Request {
	return &http.Request{Header: headers("X-Address", address), RemoteAddr: "198.51.100.7:4711"}
}

func ownAddress(r *http.Request) netip.Addr {
	address, _ := netip.ParseAddr(r.Header.Get("X-Address"))
	return address
}

func headers(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestItemsArriveAsApplicationInsightsWantsThem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := Begin(t.Context(), "redirect", headers("traceparent", "00-"+traceID+"-"+parentID+"-01"),
		false)
	d := call(2, "503", false)
	d.ErrorCode = "ServerBusy"
	r.Dependency(&o, d)
	r.Event(&o, Event{Name: EventReaperRun,
		Properties:   map[string]string{PropertyResult: ResultDone},
		Measurements: map[string]float64{MeasurementDeleted: 3}})
	start := time.Now().Add(-time.Hour)
	r.Request(&o, Request{Status: 503, Success: false, Start: start,
		Duration: 90061500 * time.Microsecond, From: from("203.0.113.9")})
	r.metrics.CacheHit.Add(7)
	r.Close(time.Minute)

	items := map[string]ingest.Item{}
	for _, i := range r.to.Items("") {
		items[i.Data.BaseType] = i
		want := map[string]string{"ai.cloud.role": "tiney", "ai.cloud.roleInstance": "here",
			"ai.application.ver": "v1.2.3"}
		for tag, value := range want {
			if i.Tags[tag] != value {
				t.Errorf("%s has %s %q, want %q", i.Data.BaseType, tag, i.Tags[tag], value)
			}
		}
		if i.SampleRate != 100 || !strings.HasPrefix(i.Name, "Microsoft.ApplicationInsights."+
			strings.ReplaceAll(ingest.Key, "-", "")+".") {
			t.Errorf("%s has the rate %v and the name %s", i.Data.BaseType, i.SampleRate, i.Name)
		}
	}
	request, dependency, event, metric := items["RequestData"], items["RemoteDependencyData"],
		items["EventData"], items["MetricData"]
	for _, i := range []ingest.Item{request, dependency, event} {
		if i.Operation() != traceID || i.Tags["ai.operation.name"] != "redirect" {
			t.Errorf("%s is in operation %q named %q", i.Data.BaseType, i.Operation(),
				i.Tags["ai.operation.name"])
		}
	}
	if d := dependency.Data.BaseData; d.Name != "GetEntity ShortUrls" || d.Type != "Azure table" ||
		d.Target != "account.table.core.windows.net" ||
		d.ResultCode != "503" || d.Success || d.Duration != "0.00:00:00.0123456" || d.Data != "" ||
		!reflect.DeepEqual(d.Properties, map[string]string{"ErrorCode": "ServerBusy", "Try": "2"}) {
		t.Errorf("dependency %+v", d)
	}
	if d := request.Data.BaseData; d.Name != "redirect" || d.ResponseCode != "503" || d.Success ||
		d.Duration != "0.00:01:30.0615000" || d.URL != "" ||
		request.Tags["ai.location.ip"] != "203.0.113.9" ||
		request.Tags["ai.operation.parentId"] != parentID {
		t.Errorf("request %+v with %v", d, request.Tags)
	}
	if got := request.Time.Sub(start).Abs(); got > time.Second {
		t.Errorf("the request is %v away from when it was", got)
	}
	if got, want := dependency.Tags["ai.operation.parentId"],
		request.Data.BaseData.ID; got != want || len(want) != 16 {
		t.Errorf("the parent of the dependency is %q, the request %q", got, want)
	}
	if d := event.Data.BaseData; d.Name != "ReaperRun" || d.Properties["Result"] != "done" ||
		d.Measurements["Deleted"] != 3 {
		t.Errorf("event %+v", d)
	}
	if want := (ingest.Metric{Name: "cache.hit", Kind: 1, Count: 7, Value: 7, Min: 1,
		Max: 1}); len(metric.Data.BaseData.Metrics) != 1 ||
		metric.Data.BaseData.Metrics[0] != want {
		t.Errorf("metric %+v, want %+v", metric.Data.BaseData.Metrics, want)
	}
}

func TestTheHostReportsRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Hosted = true })
	const invocation = "4c1e0d7a-5a55-4f0e-9d35-0f6d3b5f9f0c"
	o := Begin(t.Context(), "redirect", headers("X-Azure-Functions-InvocationId", "forged",
		"X-Azure-Functions-InvocationId", "f, "+invocation), true)
	r.Request(&o, Request{Status: 302, Success: true, Start: time.Now()})
	r.Dependency(&o, call(1, "200", true))
	r.Close(time.Minute)
	all := r.to.Items("")
	if len(all) != 1 || all[0].Data.BaseType != "RemoteDependencyData" {
		t.Fatalf("got %+v, want one dependency", all)
	}
	if all[0].Operation() != invocation ||
		all[0].Data.BaseData.Properties["InvocationId"] != invocation {
		t.Errorf("operation %q, properties %v", all[0].Operation(), all[0].Data.BaseData.Properties)
	}
}

// One operation in n is kept, and n is a whole number, because Application Insights counts a kept
// item as n items.
func TestSamplingRates(t *testing.T) {
	for percent, want := range map[int]float64{100: 100, 90: 100, 60: 50, 50: 50, 33: 100 / 3.0,
		30: 100 / 3.0, 10: 10, 7: 100 / 14.0, 1: 1} {
		s := Start(Config{Metrics: new(Metrics), SamplingPercent: percent,
			Log: slog.New(slog.DiscardHandler)})
		o := Begin(t.Context(), "f", nil, false)
		if rate, _ := s.keeps(o.sampled(s.oneOf), true); rate != want {
			t.Errorf("%d %%: a rate of %v, want %v", percent, rate, want)
		}
		if rate, kept := s.keeps(o.sampled(s.oneOf), false); rate != 100 || !kept {
			t.Errorf("%d %%: a failure has a rate of %v and is kept: %t", percent, rate, kept)
		}
		s.Close(0)
	}
}

func TestClientAddressesCanBeSwitchedOff(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.ClientAddress = nil })
	o := Begin(t.Context(), "redirect", nil, false)
	r.Request(&o, Request{Status: 302, Success: true, Start: time.Now(), From: from("203.0.113.9")})
	r.Close(time.Minute)
	if len(r.to.Items("RequestData")) != 1 || strings.Contains(r.to.Raw(), "203.0.113") ||
		strings.Contains(r.to.Raw(), "198.51.100") {
		t.Errorf("sent %s", r.to.Raw())
	}
}

// TestMetricsAreSentInTime checks that metrics are sent regularly, and sooner the first time.
func TestMetricsAreSentInTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	time.Sleep(2 * sendFirst) // the instance waits for its first request
	asked := time.Now()
	r.metrics.RedirectFound.Add(1)
	r.metrics.RedirectDuration.Observe(3 * time.Millisecond)
	testutil.Eventually(t, "the first request is reported", func() bool {
		return r.to.Metrics()["redirect.found"].Value == 1
	})
	// slack is for a slow machine. Metrics that miss the first sending come 11 s later, with the
	// regular one.
	const slack = 5 * time.Second
	if took := time.Since(asked); took > 5*time.Second+slack {
		t.Errorf("the first request was reported after %v", took)
	}
	asked = time.Now()
	r.metrics.RedirectFound.Add(5)
	r.metrics.RedirectDuration.Observe(1 * time.Millisecond)
	r.metrics.RedirectDuration.Observe(8 * time.Millisecond)
	testutil.Eventually(t, "the next ones are reported", func() bool {
		return r.to.Metrics()["redirect.found"].Value == 6
	})
	if took := time.Since(asked); took > 30*time.Second {
		t.Errorf("the next ones were reported after %v", took)
	}
	if want, got := (ingest.Metric{Name: "redirect.duration_ms", Kind: 1, Count: 3, Value: 12,
		Min: 1, Max: 8}), r.to.Metrics()["redirect.duration_ms"]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if posts := r.to.Posts(); posts != 2 {
		t.Errorf("%d posts, want 2: nothing may be sent if nothing was measured", posts)
	}
}

func TestNoSumIsLostUnderConcurrency(t *testing.T) {
	t.Parallel()
	metrics := new(Metrics)
	const each, workers = 20000, 8
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range each {
				metrics.RedirectFound.Add(1)
				metrics.RedirectDuration.Observe(time.Duration(1+i%10) * time.Millisecond)
				metrics.CacheBytes.Set(int64(i))
			}
		})
	}
	stop := make(chan struct{})
	var taken []Sample
	var taking sync.WaitGroup
	taking.Go(func() { // as often as possible
		for {
			taken = append(taken, metrics.Take()...)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	all.Wait()
	close(stop)
	taking.Wait()
	sum := map[string]Sample{}
	for _, s := range append(taken, metrics.Take()...) {
		if s.Count < 1 || s.Min > s.Max {
			t.Errorf("a window of %+v", s)
		}
		s.Sum += sum[s.Name].Sum
		s.Count += sum[s.Name].Count
		sum[s.Name] = s
	}
	if got := sum["redirect.found"]; got.Count != workers*each || got.Sum != workers*each {
		t.Errorf("redirect.found %+v", got)
	}
	if got := sum["redirect.duration_ms"]; got.Count != workers*each ||
		math.Abs(got.Sum-workers*each*5.5) > 1e-3 {
		t.Errorf("redirect.duration_ms %+v", got)
	}
}

// Of the calls of two operations one in ten is kept, whether their operation is or not.
func TestSamplingOfEachCall(t *testing.T) {
	t.Parallel()
	const calls, percent = 5000, 10
	r := newRig(t, func(c *Config) { c.SamplingPercent = percent })
	kept := Operation{Context: t.Context(), Name: "kept", spanID: 10}
	left := Operation{Context: t.Context(), Name: "left", spanID: 11}
	for range calls {
		for _, o := range []*Operation{&kept, &left} {
			r.Dependency(EachCall(o), call(1, "200", true))
		}
	}
	for range 100 {
		r.Dependency(EachCall(&left), call(1, "503", false))
	}
	r.Dependency(&kept, call(1, "200", true))
	r.Dependency(&left, call(1, "200", true))
	r.Close(time.Minute)
	got, failures := map[string]int{}, 0
	for _, i := range r.to.Items("RemoteDependencyData") {
		switch rate := i.SampleRate; {
		case i.Data.BaseData.Success && rate == percent:
			got[i.Tags["ai.operation.name"]]++
		case !i.Data.BaseData.Success && rate == 100:
			failures++
		default:
			t.Errorf("%+v has the rate %v", i.Data.BaseData, rate)
		}
	}
	if failures != 100 {
		t.Errorf("%d failures, want all 100", failures)
	}
	got["kept"]-- // the one that is sampled with its operation
	deviation := math.Sqrt(calls * percent * (100 - percent) / 100 / 100)
	for _, name := range []string{"kept", "left"} {
		if n := float64(got[name]); math.Abs(n-calls*percent/100) > 5*deviation {
			t.Errorf("%v calls of %s were kept, want %d give or take %v", n, name,
				calls*percent/100, 5*deviation)
		}
	}
}

// The operations have three calls each, some of which fail, and 10 % of them are kept. All come
// with the same traceparent. A client can choose that header, but must not choose what is kept.
func TestSamplingKeepsWholeOperationsAndTheirWeight(t *testing.T) {
	t.Parallel()
	const operations, percent = 20000, 10
	r := newRig(t, func(c *Config) { c.SamplingPercent = percent })
	failed := 0
	forged := headers("traceparent", "00-"+traceID+"-"+parentID+"-01")
	for n := range operations {
		o := Begin(t.Context(), "shorten", forged, false)
		for range 3 {
			r.Dependency(&o, call(1, "201", true))
		}
		if n%100 == 0 {
			failed++
			r.Dependency(&o, call(1, "503", false))
		}
		r.Request(&o, Request{Status: 201, Success: true, Start: time.Now()})
		for len(r.queue) > queueSize/2 {
			time.Sleep(time.Millisecond)
		}
	}
	r.Close(time.Minute)
	if dropped := r.metrics.TelemetryDropped.Value(); dropped != 0 {
		t.Fatalf("%d items were dropped", dropped)
	}
	type operation struct{ calls, failures, requests int }
	kept := map[string]*operation{}
	var weight, failures float64
	for _, i := range r.to.Items("") {
		id := i.Tags["ai.operation.parentId"] // the parent of its calls
		switch i.Data.BaseType {
		case "MetricData", "EventData":
			continue
		case "RequestData":
			id = i.Data.BaseData.ID
		}
		if kept[id] == nil {
			kept[id] = new(operation)
		}
		o := kept[id]
		switch {
		case i.Data.BaseType == "RequestData":
			o.requests++
		case i.Data.BaseData.Success:
			o.calls++
			weight += 100 / i.SampleRate
		default:
			o.failures++
			failures += 100 / i.SampleRate
		}
	}
	whole := 0
	for id, o := range kept {
		switch {
		case o.calls == 3 && o.requests == 1:
			whole++
		case o.calls != 0 || o.requests != 0:
			t.Errorf("operation %s was kept in part: %+v", id, *o)
		}
	}
	if failures != float64(failed) {
		t.Errorf("%v failures, want all %d", failures, failed)
	}
	// The tolerance is five standard deviations of a binomial distribution.
	deviation := math.Sqrt(operations * percent * (100 - percent) / 100 / 100)
	if got, want := float64(whole),
		float64(operations*percent)/100; math.Abs(got-want) > 5*deviation {
		t.Errorf("%v operations were kept, want %v give or take %v", got, want, 5*deviation)
	}
	if want, around := 3.0*operations, 5*3*deviation*100/percent; math.Abs(weight-want) > around {
		t.Errorf("the calls weigh %v, want %v give or take %v", weight, want, around)
	}
}

var faults = map[string]func(*ingest.Endpoint){
	"refusing": (*ingest.Endpoint).Refuse,
	"frozen":   (*ingest.Endpoint).Freeze,
	"429":      func(e *ingest.Endpoint) { e.Fail(ingest.Response{Status: 429}) },
	"500":      func(e *ingest.Endpoint) { e.Fail(ingest.Response{Status: 500}) },
	"402":      func(e *ingest.Endpoint) { e.Fail(ingest.Response{Status: 402}) },
	"403":      func(e *ingest.Endpoint) { e.Fail(ingest.Response{Status: 403}) },
}

// Whatever the endpoint does, handing items over stays quick and memory stays bounded. Once the
// endpoint has recovered, the metrics are complete, and every item that did not arrive is counted.
func TestAFailingEndpointHarmsNobody(t *testing.T) {
	const items = 60000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	goroutines := runtime.NumGoroutine()
	rigs := map[string]*rig{}
	var all sync.WaitGroup
	for name, fail := range faults {
		r := newRig(t)
		rigs[name] = r
		fail(r.to)
		all.Go(func() {
			o := Begin(t.Context(), "redirect", nil, false)
			var longest time.Duration
			for i := range items {
				start := time.Now()
				r.metrics.RedirectFound.Add(1)
				r.Dependency(&o, call(1, "200", true))
				longest = max(longest, time.Since(start))
				if i%(items/30) == 0 {
					time.Sleep(100 * time.Millisecond)
				}
			}
			// Waiting for the endpoint would take longer: ten seconds if it is frozen.
			if longest > 8*time.Second {
				t.Errorf("%s: handing over took %v", name, longest)
			}
		})
	}
	all.Wait()
	runtime.GC()
	runtime.ReadMemStats(&after)
	// This is the growth for all cases together, with their endpoints.
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 20<<20 {
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
	if more := runtime.NumGoroutine() - goroutines; more > 20*len(faults) {
		t.Errorf("%d more goroutines", more)
	}
	for name, r := range rigs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r.to.Heal()
			testutil.Eventually(t, "all metrics arrive", func() bool {
				return r.to.Metrics()["redirect.found"].Value == items
			})
			r.Close(time.Minute)
			if got, dropped := len(r.to.Items("RemoteDependencyData")),
				int(r.metrics.TelemetryDropped.Value()); got+dropped != items ||
				got < queueSize-queueReserve {
				t.Errorf("%d arrived and %d were dropped, of %d", got, dropped, items)
			}
			if got := r.to.Metrics()["telemetry.dropped"].Value; int64(
				got) != r.metrics.TelemetryDropped.Value() {
				t.Errorf("telemetry.dropped is %v at the endpoint, and %d here", got,
					r.metrics.TelemetryDropped.Value())
			}
			if log := r.log.String(); !strings.Contains(log, "telemetry cannot be delivered") ||
				!strings.Contains(log, "delivered again") {
				t.Errorf("logged %s", log)
			}
		})
	}
}

func TestRetryAfterIsMinded(t *testing.T) {
	for _, c := range []struct {
		asked    string
		min, max time.Duration
	}{
		{"", 700 * time.Millisecond, time.Second},
		{"7", 7 * time.Second, 7 * time.Second},
		{"86400", longestAsked, longestAsked},
		{time.Now().Add(4 * time.Minute).UTC().Format(http.TimeFormat), 2 * time.Minute,
			4 * time.Minute},
		{"nonsense", 700 * time.Millisecond, time.Second},
	} {
		e := ingest.Start()
		e.Fail(ingest.Response{Status: 429, RetryAfter: c.asked})
		connection, err := ParseConnection(e.ConnectionString())
		if err != nil {
			t.Fatal(err)
		}
		to := newEndpoint(connection.endpoint, nil)
		got := to.post([]*contracts.Envelope{contracts.NewEnvelope()})
		if pause := got.pause(1); got.status != 429 || pause < c.min || pause > c.max {
			t.Errorf("%q: %d, and a pause of %v", c.asked, got.status, pause)
		}
		to.close()
		e.Close()
	}
	if pause := (result{err: errors.New("down")}).pause(1000); pause > longestPause {
		t.Errorf("a pause of %v", pause)
	}
}

// If a batch is accepted in part, only the items that may be accepted later are sent again.
func TestABatchThatIsTakenInPart(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Hosted = true })
	var once sync.Once
	r.to.Fail(ingest.Response{Status: 206, Refuse: func(index int) int {
		switch {
		case index == 1:
			return 400
		case index == 2 || index == 3:
			once.Do(r.to.Heal) // the whole next batch is accepted
			return []int{429, 500}[index-2]
		}
		return 200
	}})
	for n := range 6 {
		o := Begin(t.Context(), fmt.Sprint("f", n), nil, true)
		r.Dependency(&o, call(1, "200", true))
	}
	testutil.Eventually(t, "the rest arrives", func() bool {
		return len(r.to.Items("RemoteDependencyData")) == 5
	})
	r.Close(time.Minute)
	var got []string
	for _, i := range r.to.Items("RemoteDependencyData") {
		got = append(got, i.Tags["ai.operation.name"])
	}
	if want := []string{"f0", "f4", "f5", "f2", "f3"}; !reflect.DeepEqual(got, want) {
		t.Errorf("arrived %v, want %v", got, want)
	}
	if got := r.to.Metrics()["telemetry.dropped"].Value; got != 1 {
		t.Errorf("telemetry.dropped %v, want 1", got)
	}
}

// If a response is not what it should be, no item arrives twice, and lost items are counted.
func TestOddAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		respond func(http.ResponseWriter, *http.Request)
		arrives bool // the batch arrives with this response
		refused int64
	}{
		"taken, and the response breaks off": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("{"))
		}, true, 0},
		"taken, without a word": {func(http.ResponseWriter, *http.Request) {}, true, 0},
		"a login page": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/login", http.StatusFound)
		}, false, 0},
		"in part, and not JSON": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(206)
			w.Write([]byte("<html>"))
		}, true, 2},
		"in part, and of another batch": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(206)
			w.Write([]byte(`{"itemsReceived":7,"itemsAccepted":0,` +
				`"errors":[{"index":0,"statusCode":500}]}`))
		}, true, 2},
		"in part, and nothing said of the rest": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(206)
			w.Write([]byte(`{"itemsReceived":2,"itemsAccepted":0,"errors":[]}`))
		}, true, 2},
		"in part, and one item named often": {func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(206)
			w.Write([]byte(`{"itemsReceived":2,"itemsAccepted":1,"errors":[` +
				strings.Repeat(`{"index":0,"statusCode":400},`, 99) +
				`{"index":-1,"statusCode":500}]}`))
		}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var posts atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				if posts.Add(1) == 1 || r.URL.Path == "/login" {
					c.respond(w, r)
				}
			}))
			t.Cleanup(server.Close)
			to := newEndpoint(server.URL, nil)
			t.Cleanup(to.close)
			batch := []*contracts.Envelope{contracts.NewEnvelope(), contracts.NewEnvelope()}
			got := to.post(batch)
			again, refused := got.sort(batch)
			if (len(again) == 0) != c.arrives || int64(refused) != c.refused || posts.Load() != 1 {
				t.Errorf("%s: %d again, %d refused, want %d; %d posts", got, len(again), refused,
					c.refused, posts.Load())
			}
		})
	}
}

// A connection may die silently, as behind a firewall. The next try then uses another connection.
// With HTTP/2, it would not.
func TestATryThatIsNeverAnsweredEnds(t *testing.T) {
	t.Parallel()
	var posts atomic.Int64
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter,
		r *http.Request) {
		if r.ProtoMajor != 1 {
			t.Errorf("the batch came by %s", r.Proto)
		}
		if posts.Add(1) == 1 {
			_, _ = io.Copy(io.Discard, r.Body)
			<-r.Context().Done()
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	to := newEndpoint(server.URL, nil)
	t.Cleanup(to.close)
	trusting := server.Client().Transport.(*http.Transport)
	to.client.Transport.(*http.Transport).TLSClientConfig = trusting.TLSClientConfig
	start := time.Now()
	for range 2 {
		got := to.post([]*contracts.Envelope{contracts.NewEnvelope()})
		if first := posts.Load() == 1; first == got.ok() {
			t.Errorf("post %d: %s", posts.Load(), got)
		}
	}
	if took := time.Since(start); took > 2*tryTimeout {
		t.Errorf("two tries took %v", took)
	}
}

// A flood of successes does not push out failures and events.
func TestAFloodLeavesRoomForEventsAndFailures(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	o := Begin(t.Context(), "redirect", nil, false)
	const rare = 50
	for range rare {
		for range 1000 {
			r.Request(&o, Request{Status: 302, Success: true, Start: time.Now()})
		}
		r.Request(&o, Request{Status: 500, Start: time.Now()})
		r.Event(&o, Event{Name: EventReaperRun})
		time.Sleep(20 * time.Millisecond)
	}
	r.Close(time.Minute)
	failed := 0
	for _, i := range r.to.Items("RequestData") {
		if !i.Data.BaseData.Success {
			failed++
		}
	}
	if events := len(r.to.Items("EventData")); events != rare || failed != rare {
		t.Errorf("%d events and %d failures arrived, of %d each", events, failed, rare)
	}
	if r.metrics.TelemetryDropped.Value() == 0 {
		t.Error("that was no flood")
	}
}

// After a burst, the items are sent one batch after the other, and do not wait for the next
// metrics. After the first request of an instance, metrics are sent every quarter of a minute, so
// three batches would take three times as long.
func TestABurstIsSentAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.metrics.RedirectFound.Add(1)
	testutil.Eventually(t, "the first request is reported", func() bool {
		return r.to.Metrics()["redirect.found"].Value == 1
	})
	o := Begin(t.Context(), "redirect", nil, false)
	const burst = queueSize - queueReserve
	start := time.Now()
	for range burst {
		r.Request(&o, Request{Status: 302, Success: true, Start: time.Now()})
	}
	testutil.Eventually(t, "nearly all has arrived", func() bool {
		return len(r.to.Items("RequestData")) > burst-batchSize
	})
	if took := time.Since(start); took > 2*sendEvery {
		t.Errorf("it took %v", took)
	}
}

// An item has the time at which something happened, not the time at which it was sent.
func TestItemsKeepTheirTime(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.to.Refuse()
	o := Begin(t.Context(), "reaper", nil, false)
	happened := time.Now()
	r.Event(&o, Event{Name: EventReaperRun})
	r.Dependency(&o, call(1, "200", true))
	r.Request(&o, Request{Success: true, Start: happened})
	handed := time.Now()
	time.Sleep(3 * time.Second)
	r.to.Heal()
	r.Close(time.Minute)
	all := r.to.Items("")
	if len(all) != 3 {
		t.Fatalf("%d items arrived, want 3", len(all))
	}
	for _, i := range all {
		if i.Time.Before(happened.Truncate(time.Microsecond)) || i.Time.After(handed) {
			t.Errorf("%s is of %v, and it happened between %v and %v", i.Data.BaseType, i.Time,
				happened, handed)
		}
	}
}

// If the process stops just after an outage, what is left is tried once more.
func TestStoppingAfterAnOutageTriesOnceMore(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.to.Fail(ingest.Response{Status: 503, RetryAfter: "60"})
	r.metrics.RedirectFound.Add(10)
	testutil.Eventually(t, "it has failed", func() bool { return r.to.Posts() > 0 })
	time.Sleep(200 * time.Millisecond)
	r.to.Heal()
	r.Close(time.Minute)
	if got := r.to.Metrics()["redirect.found"].Value; got != 10 {
		t.Errorf("redirect.found %v, want 10", got)
	}
}

func TestABatchThatIsRefusedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.to.Fail(ingest.Response{Status: 400})
	o := Begin(t.Context(), "f", nil, false)
	r.Dependency(&o, call(1, "200", true))
	testutil.Eventually(t, "it is refused", func() bool {
		return r.metrics.TelemetryDropped.Value() == 1
	})
	r.to.Heal()
	r.Close(time.Minute)
	if got := r.to.Items("RemoteDependencyData"); len(got) != 0 {
		t.Errorf("arrived: %v", got)
	}
	if got := r.to.Metrics()["telemetry.dropped"].Value; got != 1 {
		t.Errorf("telemetry.dropped %v, want 1", got)
	}
}

func TestCloseReturnsInTime(t *testing.T) {
	for name, fail := range faults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			fail(r.to)
			o := Begin(t.Context(), "f", nil, false)
			for range queueSize {
				r.Dependency(&o, call(1, "200", true))
			}
			time.Sleep(500 * time.Millisecond) // it is sending now
			start := time.Now()
			r.Close(time.Second)
			// Without a limit, a frozen endpoint would take ten seconds or more.
			if took := time.Since(start); took > 8*time.Second {
				t.Errorf("closing took %v", took)
			}
			testutil.Eventually(t, "it has ended", func() bool {
				select {
				case <-r.done:
					return true
				default:
					return false
				}
			})
			r.Close(time.Second)
			// Items that come too late are lost, and do no harm.
			for range 2 * queueSize {
				r.Dependency(&o, call(1, "200", true))
				r.Event(&o, Event{Name: EventReaperRun})
				r.Request(&o, Request{Status: 200})
			}
		})
	}
}

func TestWithoutASenderNothingHappens(t *testing.T) {
	var s *Sender
	o := Begin(t.Context(), "f", nil, false)
	s.Dependency(&o, call(1, "500", false))
	s.Event(context.Background(), Event{})
	s.Request(&o, Request{})
	s.Close(time.Second)
}

func TestReportingARequestAllocatesNothing(t *testing.T) {
	for _, oneOf := range []uint64{1, 10} {
		const runs = 1000
		// The items of this Sender stay in the queue, because sending, which another goroutine
		// does, allocates.
		s := &Sender{config: Config{Metrics: new(Metrics), ClientAddress: ownAddress}, oneOf: oneOf,
			queue: make(chan item, 2*runs+2+queueReserve)}
		h := headers("traceparent", "00-"+traceID+"-"+parentID+"-01")
		request := from("203.0.113.9")
		if n := testing.AllocsPerRun(runs, func() {
			o := Begin(context.Background(), "redirect", h, false)
			s.Request(&o, Request{Status: 302, Success: true, Duration: time.Millisecond,
				From: request})
			o = Begin(context.Background(), "redirect", nil, false)
			s.Request(&o, Request{Status: 302, Success: true, Duration: time.Millisecond,
				From: request})
		}); n != 0 {
			t.Errorf("one of %d: %v allocations", oneOf, n)
		}
		if len(s.queue) == 0 {
			t.Errorf("one of %d: nothing is queued", oneOf)
		}
	}
}
