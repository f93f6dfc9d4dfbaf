package telemetry

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/microsoft/ApplicationInsights-Go/appinsights"
	"github.com/microsoft/ApplicationInsights-Go/appinsights/contracts"
)

const (
	// sendEvery is the interval at which metrics and items are sent. The Functions host kills the
	// process without warning, and then the telemetry of at most this interval is lost.
	sendEvery = 15 * time.Second
	// sendFirst is the same until the first request has been counted, because an instance may not
	// live as long as sendEvery.
	sendFirst = 2 * time.Second
	// queueSize is how many items may wait to be sent. One takes about half a kilobyte.
	queueSize = 2048
	// queueReserve is the part of the queue that is reserved for events and failures, so that a
	// flood of successes leaves room for them.
	queueReserve = 256
	// batchSize is how many items are sent at once, besides the metrics. They are sent as soon as
	// this many are waiting.
	batchSize = 500
	// sendPause is the least time between two batches, so that a flood of items leaves the
	// processor to the requests.
	sendPause = 250 * time.Millisecond
	// floodPause is the same while items are being dropped. Which items arrive is then a matter of
	// chance, and sending more of them would not be worth the processor time that requests would
	// lose.
	floodPause = time.Second
)

// Config is what a Sender works with. Every field is required unless it says otherwise.
type Config struct {
	Connection Connection
	// Credential gives tokens for Application Insights. If it is nil, only the instrumentation key
	// is sent.
	Credential azcore.TokenCredential
	Metrics    *Metrics
	Role       string // the name of the app
	Instance   string // the name of this instance of the app
	Version    string // of this build
	// Hosted says that the Functions host is in front and reports the requests. Otherwise the
	// Sender reports them.
	Hosted bool
	// SamplingPercent is the percentage of operations that are kept, 1 to 100. It is rounded to one
	// operation in n, because Application Insights counts exactly only if n is a whole number.
	// Calls of EachCall are kept one in n.
	SamplingPercent int
	// ClientAddress returns the address of the client that a request carries. Nil: requests carry
	// none.
	ClientAddress func(*http.Request) netip.Addr
	Log           *slog.Logger
}

// Sender sends metrics, dependencies, requests and events to Application Insights.
//
// Its methods, except Close, neither wait nor fail: an item that finds no room is dropped and
// counted. One goroutine builds the items and sends one batch at a time, so that memory is bounded
// whatever the endpoint does. Metrics that cannot be sent are not dropped: Metrics continues to sum
// them up.
//
// A nil Sender is valid and sends nothing.
type Sender struct {
	config  Config
	context *appinsights.TelemetryContext
	queue   chan item
	wake    chan struct{} // a full batch is waiting
	oneOf   uint64        // one operation in so many is kept
	outages outages
	to      *endpoint

	closing sync.Once
	stop    chan struct{} // closed: run sends what is left, and ends
	done    chan struct{} // closed: run has ended
}

// Start starts a Sender.
func Start(config Config) *Sender {
	s := &Sender{
		config:  config,
		context: newContext(config),
		queue:   make(chan item, queueSize),
		wake:    make(chan struct{}, 1),
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
		oneOf:   uint64(max(1, math.Round(100/float64(config.SamplingPercent)))),
		to:      newEndpoint(config.Connection.endpoint, config.Credential),
	}
	go s.run()
	return s
}

// newContext returns the data that all items have in common.
func newContext(config Config) *appinsights.TelemetryContext {
	c := appinsights.NewTelemetryContext(config.Connection.key)
	c.Tags.Cloud().SetRole(config.Role)
	c.Tags.Cloud().SetRoleInstance(config.Instance)
	c.Tags.Application().SetVer(config.Version)
	c.Tags.Internal().SetSdkVersion("tiney:" + config.Version)
	return c
}

// Close sends what is left and ends the Sender. When the given time is over, it gives up. Items
// that come later are lost.
func (s *Sender) Close(within time.Duration) {
	if s == nil {
		return
	}
	s.closing.Do(func() { close(s.stop) })
	select {
	case <-s.done:
	case <-time.After(within):
		s.to.cancel()
	}
}

// run sends metrics and items when they are due, until the Sender is closed.
func (s *Sender) run() {
	defer close(s.done)
	defer func() {
		if p := recover(); p != nil {
			s.config.Log.Error(LogTelemetryStopped, "panic", p, "stack", string(debug.Stack()))
		}
	}()
	defer s.to.close()
	every, taken, sent, dropped := sendFirst, time.Now(), time.Now(), int64(0)
	for {
		pause := sendPause
		if now := s.config.Metrics.TelemetryDropped.Value(); now > dropped {
			pause, dropped = floodPause, now
		}
		stopping := s.wait(taken.Add(every), sent.Add(pause))
		var batch []*contracts.Envelope
		if now := time.Now(); stopping || now.Sub(taken) >= every {
			taken = now
			for _, sample := range s.config.Metrics.Take() {
				if strings.HasPrefix(sample.Name, "redirect.") || strings.HasPrefix(sample.Name,
					"shorten.") {
					every = sendEvery
				}
				batch = append(batch, s.metric(sample, now))
			}
		}
		for range min(len(s.queue), batchSize) {
			batch = append(batch, s.envelope(<-s.queue))
		}
		s.deliver(batch)
		sent = time.Now()
		if stopping && (len(s.queue) == 0 || s.to.ctx.Err() != nil) {
			return
		}
	}
}

// wait waits until the metrics are due, or until a full batch of items is waiting and soonest has
// passed. It reports whether the Sender is being closed.
func (s *Sender) wait(metrics, soonest time.Time) (stopping bool) {
	at := metrics
	if len(s.queue) >= batchSize {
		at = soonest
	}
	for {
		select {
		case <-s.stop:
			return true
		case <-s.wake:
			if soonest.Before(at) {
				at = soonest
			}
		case <-time.After(time.Until(at)):
			return false
		}
	}
}

// deliver sends a batch until the endpoint has accepted or refused it, or the Sender is closed.
func (s *Sender) deliver(batch []*contracts.Envelope) {
	for failures, last := 0, false; len(batch) > 0; {
		got := s.to.post(batch)
		if failures > 0 && got.ok() {
			s.config.Log.Info("telemetry is delivered again", "failures", failures)
			failures = 0
		}
		again, refused := got.sort(batch)
		if refused > 0 {
			s.config.Metrics.TelemetryDropped.Add(int64(refused))
			s.config.Log.Warn(LogTelemetryRefused, "items", refused, "of", len(batch), "result",
				got.String())
		}
		if batch = again; len(batch) == 0 {
			return
		}
		if last {
			s.config.Metrics.TelemetryDropped.Add(int64(len(batch)))
			return
		}
		if failures == 0 {
			s.config.Log.Warn(LogTelemetryDelayed, "result", got.String())
		}
		failures++
		select {
		case <-time.After(got.pause(failures)):
		case <-s.stop:
			last = true
		}
	}
}

// item is something that waits to be sent. It is a value that keeps nothing of its request in
// memory.
type item struct {
	origin
	rate       float64 // sampling rate in percent
	request    Request
	dependency Dependency
	event      Event
}

// origin is what an item says about its operation.
type origin struct {
	name       string
	id         [idSize]byte
	idLength   int
	parent     [16]byte // zero: none
	span       uint64
	invocation string
}

// Request is a request that got its response, or a run of a timer's function.
type Request struct {
	Status   int // the HTTP status; 0 if there is none
	Success  bool
	Start    time.Time
	Duration time.Duration
	// From is the request itself, and nil for a timer's function. It is read before Sender.Request
	// returns.
	From   *http.Request
	client netip.Addr
}

// Dependency is a call to another service.
type Dependency struct {
	Type       string // TypeTable or TypeBlob
	Target     string // host name
	Name       string // the name of the operation
	ResultCode string
	ErrorCode  string // the service's own, or ""
	Try        int    // counted from 1
	Success    bool
	Start      time.Time
	Duration   time.Duration
}

// Event is something that happened. The caller must not use its maps afterwards.
type Event struct {
	Name         string
	Time         time.Time // zero: now
	Properties   map[string]string
	Measurements map[string]float64
}

// Request reports a request, unless the Functions host reports it.
func (s *Sender) Request(o *Operation, r Request) {
	if s == nil || s.config.Hosted {
		return
	}
	rate, kept := s.keeps(o.sampled(s.oneOf), r.Success)
	if !kept {
		return
	}
	if r.From != nil && s.config.ClientAddress != nil {
		r.client = s.config.ClientAddress(r.From)
	}
	r.From = nil
	_, parent, _ := o.traceparent()
	s.put(&item{origin: originOf(o, parent), rate: rate, request: r})
}

// Dependency reports a call to another service, made with ctx.
func (s *Sender) Dependency(ctx context.Context, d Dependency) {
	if s == nil {
		return
	}
	o := operationOf(ctx)
	sampled := o.sampled(s.oneOf)
	if s.oneOf > 1 && ctx.Value(eachCallKey{}) != nil {
		sampled = rand.Uint64N(s.oneOf) == 0
	}
	if rate, kept := s.keeps(sampled, d.Success); kept {
		s.put(&item{origin: originOf(o, o.parent()), rate: rate, dependency: d})
	}
	if event, happened := s.outages.observe(d, time.Now()); happened {
		s.Event(ctx, event)
	}
}

// Event reports an event as part of the operation that ctx belongs to.
func (s *Sender) Event(ctx context.Context, e Event) {
	if s != nil && s.hasRoom(false) {
		if e.Time.IsZero() {
			e.Time = time.Now()
		}
		o := operationOf(ctx)
		s.put(&item{origin: originOf(o, o.parent()), rate: 100, event: e})
	}
}

// keeps reports whether an item is kept, and at which sampling rate in percent. Failures are kept
// at 100 %, whether they are sampled or not. An item that finds no room is not kept, and is counted
// as dropped.
func (s *Sender) keeps(sampled, success bool) (rate float64, kept bool) {
	if !success {
		return 100, s.hasRoom(false)
	}
	return 100 / float64(s.oneOf), sampled && s.hasRoom(true)
}

// hasRoom reports whether there is room in the queue for an item, and counts it as dropped if there
// is none. It is called before the item is made, so that a flood takes little processor time.
func (s *Sender) hasRoom(success bool) bool {
	room := cap(s.queue) - len(s.queue)
	if success {
		room -= queueReserve
	}
	if room <= 0 {
		s.config.Metrics.TelemetryDropped.Add(1)
	}
	return room > 0
}

func originOf(o *Operation, parent string) origin {
	from := origin{name: o.Name, span: o.spanID, invocation: o.Invocation()}
	from.idLength = len(o.appendID(from.id[:0]))
	copy(from.parent[:], parent)
	return from
}

// put queues an item. If another goroutine has taken the last room since hasRoom, it counts the
// item as dropped.
func (s *Sender) put(i *item) {
	select {
	case s.queue <- *i:
		if len(s.queue) >= batchSize {
			select {
			case s.wake <- struct{}{}:
			default:
			}
		}
	default:
		s.config.Metrics.TelemetryDropped.Add(1)
	}
}

// envelope turns an item into one of Application Insights.
func (s *Sender) envelope(i item) *contracts.Envelope {
	var out appinsights.Telemetry
	switch {
	case i.event.Name != "":
		event := appinsights.NewEventTelemetry(i.event.Name)
		if i.event.Properties != nil {
			event.Properties = i.event.Properties
		}
		event.Measurements, event.Timestamp = i.event.Measurements, i.event.Time
		out = event
	case i.dependency.Type != "":
		d := i.dependency
		dependency := appinsights.NewRemoteDependencyTelemetry(d.Name, d.Type, d.Target, d.Success)
		dependency.MarkTime(d.Start, d.Start.Add(d.Duration))
		dependency.Id, dependency.ResultCode = string(appendHex(nil, rand.Uint64())), d.ResultCode
		if d.ErrorCode != "" {
			dependency.Properties[PropertyErrorCode] = d.ErrorCode
		}
		if d.Try > 1 {
			dependency.Properties[PropertyTry] = strconv.Itoa(d.Try)
		}
		out = dependency
	default:
		r := i.request
		// The URL is left out, because people paste long URLs after the slash.
		request := appinsights.NewRequestTelemetry("", "", r.Duration, strconv.Itoa(r.Status))
		request.MarkTime(r.Start, r.Start.Add(r.Duration))
		request.Name, request.Success, request.Id = i.name, r.Success,
			string(appendHex(nil, i.span))
		if r.client.IsValid() {
			request.Tags.Location().SetIp(r.client.String())
		}
		out = request
	}
	if i.invocation != "" {
		out.GetProperties()[PropertyInvocationID] = i.invocation
	}
	tags := contracts.ContextTags(out.ContextTags())
	tags.Operation().SetId(string(i.id[:i.idLength]))
	tags.Operation().SetName(i.name)
	if i.parent != ([16]byte{}) {
		tags.Operation().SetParentId(string(i.parent[:]))
	}
	return s.envelop(out, i.rate)
}

// metric turns a sample into an item of Application Insights.
func (s *Sender) metric(sample Sample, now time.Time) *contracts.Envelope {
	out := appinsights.NewAggregateMetricTelemetry(sample.Name)
	out.Value, out.Count, out.Min, out.Max = sample.Sum, int(sample.Count), sample.Min, sample.Max
	out.Timestamp = now
	if sample.Limit != "" {
		out.Properties[PropertyLimit] = sample.Limit
	}
	return s.envelop(out, 100)
}

// envelop wraps an item as the SDK's client does, except that the client always sets a sampling
// rate of 100. Application Insights takes the rate from the envelope and derives itemCount from it,
// in its own charts too.
func (s *Sender) envelop(from appinsights.Telemetry, rate float64) *contracts.Envelope {
	data := contracts.NewData()
	content := from.TelemetryData()
	data.BaseType, data.BaseData = content.BaseType(), content

	envelope := contracts.NewEnvelope()
	envelope.Name = content.EnvelopeName(strings.ReplaceAll(s.config.Connection.key, "-", ""))
	envelope.IKey = s.config.Connection.key
	envelope.Time = from.Time().UTC().Format("2006-01-02T15:04:05.000000Z")
	envelope.SampleRate = rate
	envelope.Data = data
	envelope.Tags = from.ContextTags()
	for key, value := range s.context.Tags {
		envelope.Tags[key] = value
	}
	return envelope
}
