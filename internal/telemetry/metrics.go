package telemetry

import (
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

// Metrics are all measurements of one process, under the names in the tags. The zero value is
// ready. All methods except Take may be called concurrently.
type Metrics struct {
	CacheHit         Counter `name:"cache.hit"`          // links served from the cache while fresh
	CacheNegativeHit Counter `name:"cache.negative_hit"` // "not found" served from the cache
	CacheStaleHit    Counter `name:"cache.stale_hit"`    // stale links served, since storage failed
	CacheMiss        Counter `name:"cache.miss"`         // lookups that had to wait for storage
	CacheEvicted     Counter `name:"cache.evicted"`      // entries that made room for others
	CacheBytes       Gauge   `name:"cache.bytes"`        // cost of what the cache holds, in bytes

	RedirectFound     Counter      `name:"redirect.found"`
	RedirectNotFound  Counter      `name:"redirect.not_found"` // also impossible aliases
	RedirectGone      Counter      `name:"redirect.gone"`      // expired, disabled or not started
	RedirectSecondary Counter      `name:"redirect.secondary"` // read from the secondary region
	RedirectDuration  Distribution `name:"redirect.duration_ms"`

	ShortenCreated        Counter `name:"shorten.created"`
	ShortenDeduplicated   Counter `name:"shorten.deduplicated"`
	ShortenRejected       Counter `name:"shorten.rejected"` // every 4xx
	ShortenAliasCollision Counter `name:"shorten.alias_collision"`

	SigninsRefused Counter `name:"signin.refused"` // requests whose credentials are not valid
	LinkEdited     Counter `name:"link.edited"`    // links changed: edits, deletes and restores
	LinkClaimed    Counter `name:"link.claimed"`

	ChangesPolls  Counter `name:"changes.polls"`  // polls for changes of others
	ChangesFailed Counter `name:"changes.failed"` // polls that failed
	// ChangesAge is set at each poll: the seconds since the start of the last poll that succeeded,
	// or since the process started.
	ChangesAge Gauge `name:"changes.age_s"`

	ClicksCounted Counter      `name:"clicks.counted"` // of people
	ClicksBots    Counter      `name:"clicks.bots"`
	ClicksDropped Counter      `name:"clicks.dropped"`  // without room while none could be saved
	ClicksFlush   Distribution `name:"clicks.flush_ms"` // of writes of counted clicks
	// ClicksAge is set at each of these writes: the seconds since counted clicks were last saved,
	// or zero if they are now.
	ClicksAge Gauge `name:"clicks.age_s"`

	ReaperDeleted    Counter      `name:"reaper.deleted"`
	ReaperFailed     Counter      `name:"reaper.failed"`
	ReaperDuration   Distribution `name:"reaper.duration_ms"`
	ReaperBacklogAge Gauge        `name:"reaper.backlog_age_s"` // seconds

	// TelemetryDropped counts items that found no room in the queue, or that Application Insights
	// refused.
	TelemetryDropped Counter `name:"telemetry.dropped"`
	ProcessStarted   Counter `name:"process.started"` // one per process

	// limitRefused counts requests of clients that have sent too many, by the place of the limit in
	// Limits.
	limitRefused [8]Counter
}

// Sample is one measurement: the number of values, and their sum, minimum and maximum. The values
// of a counter are ones. A gauge has one value, the last. Durations are in milliseconds.
type Sample struct {
	Name     string
	Limit    string // one of Limits, if it is of requests past a limit
	Count    int64
	Sum      float64
	Min, Max float64
}

// Snapshot returns every measurement since the start of the process, in a fixed order.
func (m *Metrics) Snapshot() []Sample { return m.samples(metric.total) }

// NonZero returns the sums that are not zero, by name.
func (m *Metrics) NonZero() map[string]float64 {
	sums := map[string]float64{}
	for _, s := range m.Snapshot() {
		if s.Sum != 0 {
			sums[s.Name] += s.Sum
		}
	}
	return sums
}

// Take returns the measurements since the last Take, without those that have no value. Only one
// goroutine may call it.
func (m *Metrics) Take() []Sample {
	return slices.DeleteFunc(m.samples(metric.take), func(s Sample) bool { return s.Count == 0 })
}

func (m *Metrics) samples(of func(metric) Sample) (samples []Sample) {
	for _, n := range m.all() {
		s := of(n.metric)
		s.Name, s.Limit = n.name, n.limit
		samples = append(samples, s)
	}
	return samples
}

// named is a measurement under its name.
type named struct {
	name  string
	limit string // one of Limits, if it is of requests past a limit
	metric
}

// LimitBusy names the refusal of a large call while too many are running.
const LimitBusy = "busy"

// Limits are the names of the limits past which requests are refused. All but LimitBusy are of
// access.Limit.
var Limits = []string{"shorten", "unknown", "api", "redirect", "probes", "guess", "password-late",
	LimitBusy}

// LimitRefused returns the counter of a limit, by its name in Limits.
func (m *Metrics) LimitRefused(limit string) *Counter {
	return &m.limitRefused[slices.Index(Limits, limit)]
}

// metric is one measurement.
type metric interface {
	total() Sample // since the start
	take() Sample  // since the last take
}

// all returns all measurements, in the order of the fields.
func (m *Metrics) all() (all []named) {
	fields := reflect.ValueOf(m).Elem()
	for i := range fields.NumField() {
		if name := fields.Type().Field(i).Tag.Get("name"); name != "" {
			all = append(all, named{name, "", fields.Field(i).Addr().Interface().(metric)})
		}
	}
	for i := range m.limitRefused {
		all = append(all, named{"limit.refused", Limits[i], &m.limitRefused[i]})
	}
	return all
}

// Counter only goes up.
type Counter struct {
	n     atomic.Int64
	taken int64 // n at the last take
}

// Add counts n more.
func (c *Counter) Add(n int64) { c.n.Add(n) }

// Value returns the count since the start of the process.
func (c *Counter) Value() int64 { return c.n.Load() }

func (c *Counter) total() Sample { return ones(c.Value()) }

func (c *Counter) take() Sample {
	before := c.taken
	c.taken = c.Value()
	return ones(c.taken - before)
}

func ones(n int64) Sample {
	if n == 0 {
		return Sample{}
	}
	return Sample{Count: n, Sum: float64(n), Min: 1, Max: 1}
}

// Gauge holds the last value it was set to.
type Gauge struct {
	n   atomic.Int64
	set atomic.Bool // since the last take
}

// Set replaces the value.
func (g *Gauge) Set(n int64) {
	g.n.Store(n)
	g.set.Store(true)
}

// Value returns the last value set.
func (g *Gauge) Value() int64 { return g.n.Load() }

func (g *Gauge) total() Sample {
	n := float64(g.Value())
	return Sample{Count: 1, Sum: n, Min: n, Max: n}
}

func (g *Gauge) take() Sample {
	if !g.set.Swap(false) {
		return Sample{}
	}
	return g.total()
}

// Distribution sums up durations; its samples are in milliseconds. A negative duration counts as
// zero.
type Distribution struct {
	mu           sync.Mutex
	all, untaken durations // since the start, and since the last take

	histogram *metrics.PrometheusHistogram // nil unless METRICS_ADDRESS is set
}

// Observe adds one duration.
func (d *Distribution) Observe(t time.Duration) {
	t = max(t, 0)
	d.mu.Lock()
	d.all.add(t)
	d.untaken.add(t)
	d.mu.Unlock()
	if d.histogram != nil {
		d.histogram.Update(t.Seconds())
	}
}

func (d *Distribution) total() Sample {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.all.sample()
}

func (d *Distribution) take() Sample {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.untaken.sample()
	d.untaken = durations{}
	return s
}

type durations struct {
	count                  int64
	sum, shortest, longest time.Duration
}

func (d *durations) add(t time.Duration) {
	if d.count == 0 || t < d.shortest {
		d.shortest = t
	}
	d.longest = max(d.longest, t)
	d.sum += t
	d.count++
}

func (d *durations) sample() Sample {
	return Sample{Count: d.count, Sum: milliseconds(d.sum), Min: milliseconds(d.shortest),
		Max: milliseconds(d.longest)}
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
