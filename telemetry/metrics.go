// Package telemetry is what the service measures and how it tells: counters held in the process under the names that
// charts and alerts use, and a structured log on stdout.
package telemetry

import (
	"math"
	"sync/atomic"
	"time"
)

// Metrics are all measurements of one process. The zero value is ready; every method may be called concurrently.
type Metrics struct {
	CacheHit         Counter // links served from the cache while fresh
	CacheNegativeHit Counter // "not found" served from the cache
	CacheStaleHit    Counter // links served past their freshness because storage failed
	CacheMiss        Counter // look-ups that had to wait for storage
	CacheEvicted     Counter // entries that made room for others
	CacheBytes       Gauge   // cost of what the cache holds, in bytes

	RedirectFound    Counter
	RedirectNotFound Counter // unknown aliases, impossible ones included
	RedirectGone     Counter // expired or disabled
	RedirectDuration Distribution

	ShortenCreated        Counter
	ShortenDeduplicated   Counter
	ShortenRejected       Counter // every 4xx
	ShortenAliasCollision Counter

	ReaperDeleted    Counter
	ReaperFailed     Counter
	ReaperDuration   Distribution
	ReaperBacklogAge Gauge // seconds
}

// Sample is the state of one measurement. A counter has Sum only, and a gauge has its value there.
type Sample struct {
	Name     string
	Count    int64
	Sum      float64
	Min, Max float64
}

// Snapshot returns every measurement since the start of the process, in a fixed order.
func (m *Metrics) Snapshot() []Sample {
	return []Sample{
		m.CacheHit.sample("cache.hit"),
		m.CacheNegativeHit.sample("cache.negative_hit"),
		m.CacheStaleHit.sample("cache.stale_hit"),
		m.CacheMiss.sample("cache.miss"),
		m.CacheEvicted.sample("cache.evicted"),
		m.CacheBytes.sample("cache.bytes"),
		m.RedirectFound.sample("redirect.found"),
		m.RedirectNotFound.sample("redirect.not_found"),
		m.RedirectGone.sample("redirect.gone"),
		m.RedirectDuration.sample("redirect.duration_ms"),
		m.ShortenCreated.sample("shorten.created"),
		m.ShortenDeduplicated.sample("shorten.deduplicated"),
		m.ShortenRejected.sample("shorten.rejected"),
		m.ShortenAliasCollision.sample("shorten.alias_collision"),
		m.ReaperDeleted.sample("reaper.deleted"),
		m.ReaperFailed.sample("reaper.failed"),
		m.ReaperDuration.sample("reaper.duration_ms"),
		m.ReaperBacklogAge.sample("reaper.backlog_age_s"),
	}
}

// Counter only goes up.
type Counter struct{ n atomic.Int64 }

// Add counts n more.
func (c *Counter) Add(n int64) { c.n.Add(n) }

// Value returns the count since the start of the process.
func (c *Counter) Value() int64 { return c.n.Load() }

func (c *Counter) sample(name string) Sample { return Sample{Name: name, Sum: float64(c.Value())} }

// Gauge holds the last value it was set to.
type Gauge struct{ n atomic.Int64 }

// Set replaces the value.
func (g *Gauge) Set(n int64) { g.n.Store(n) }

// Value returns the last value set.
func (g *Gauge) Value() int64 { return g.n.Load() }

func (g *Gauge) sample(name string) Sample { return Sample{Name: name, Sum: float64(g.Value())} }

// Distribution sums up durations that are not negative, without keeping them; its samples are in milliseconds. A
// sample that is taken while an observation is made may hold a part of it.
type Distribution struct {
	count, sum, longest atomic.Int64
	// margin is what the shortest one leaves up to math.MaxInt64, so that zero means "none yet" here too.
	margin atomic.Int64
}

// Observe adds one duration.
func (d *Distribution) Observe(t time.Duration) {
	d.sum.Add(int64(t))
	raise(&d.longest, int64(t))
	raise(&d.margin, math.MaxInt64-int64(t))
	d.count.Add(1)
}

func (d *Distribution) sample(name string) Sample {
	s := Sample{Name: name, Count: d.count.Load(), Sum: milliseconds(d.sum.Load()), Max: milliseconds(d.longest.Load())}
	if margin := d.margin.Load(); margin != 0 {
		s.Min = milliseconds(math.MaxInt64 - margin)
	}
	return s
}

// raise sets n to v where v is the larger one.
func raise(n *atomic.Int64, v int64) {
	for old := n.Load(); v > old; old = n.Load() {
		if n.CompareAndSwap(old, v) {
			return
		}
	}
}

func milliseconds(nanoseconds int64) float64 {
	return float64(nanoseconds) / float64(time.Millisecond)
}
