package storage

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"

	"tiney/link"
	"tiney/telemetry"
)

// madeRows is a table that has every link that is asked for, and holds none: what the heap grows by is the cache alone.
type madeRows struct{ linkRows }

var longURLTail = strings.Repeat("x", 60)

func (madeRows) get(_ context.Context, a link.Alias) (row, error) {
	a = link.Alias(strings.Clone(string(a))) // as a row that was read has its own
	return row{Link: link.Link{Alias: a, LongURL: "https://example.com/" + longURLTail, ExpiresAt: time.Now().Add(24 * time.Hour)}, etag: "1"}, nil
}

// zipf draws count of n things, of which the k-th is drawn in proportion to 1/k^s: by the inverse of the sums, as
// math/rand's own takes no exponent of 1. Which of the n is the k-th is left to chance by whoever asks.
func zipf(random *rand.Rand, n int, s float64, count int) []int32 {
	sums := make([]float64, n)
	var sum float64
	for k := range sums {
		sum += math.Pow(float64(k+1), -s)
		sums[k] = sum
	}
	drawn := make([]int32, count)
	for i := range drawn {
		drawn[i] = int32(sort.SearchFloat64s(sums, random.Float64()*sum))
	}
	return drawn
}

func TestZipfDrawsInProportion(t *testing.T) {
	const count = 1_000_000
	seen := make([]float64, 100)
	for _, k := range zipf(rand.New(rand.NewPCG(1, 2)), len(seen), 1, count) {
		seen[k]++
	}
	var harmonic float64
	for k := range seen {
		harmonic += 1 / float64(k+1)
	}
	for _, k := range []int{0, 1, 9, 99} {
		want := count / float64(k+1) / harmonic
		if math.Abs(seen[k]-want) > 5*math.Sqrt(want) { // of what chance does, five times the usual
			t.Errorf("the one of rank %d was drawn %.0f times, want %.0f", k+1, seen[k], want)
		}
	}
}

const (
	zipfExponent = 1.0
	zipfGets     = 2_000_000 // to fill the cache, and once more to measure
)

// BenchmarkCacheGrowth reads links of a Zipf distribution through caches of 10 and of 100 MB, from a thousand to a
// million of them, one after the other and as fast as it can: nothing grows old meanwhile.
//
//	go test -run '^$' -bench CacheGrowth -benchtime 1x ./storage
func BenchmarkCacheGrowth(b *testing.B) {
	for _, mb := range []int64{10, 100} {
		for _, links := range []int{1_000, 10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("links=%d/MB=%d", links, mb), func(b *testing.B) {
				random := rand.New(rand.NewPCG(uint64(links), uint64(mb)))
				aliases := make([]link.Alias, links)
				for i := range aliases {
					aliases[i] = link.Alias(fmt.Sprintf("%06d", i))
				}
				drawn := zipf(random, links, zipfExponent, 2*zipfGets)
				for b.Loop() {
					measureCacheGrowth(b, mb<<20, aliases, drawn)
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

func measureCacheGrowth(b *testing.B, bytes int64, aliases []link.Alias, drawn []int32) {
	b.Helper()
	heap := func() float64 {
		runtime.GC()
		runtime.GC() // what the first one has found to be finalized goes with the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	metrics := new(telemetry.Metrics)
	before := heap()
	c, err := newCache(madeRows{}, CacheConfig{Bytes: bytes, Fresh: time.Hour, Negative: time.Minute, Stale: time.Hour}, time.Now, metrics)
	if err != nil {
		b.Fatal(err)
	}
	defer c.entries.Close()
	empty := heap()
	get := func(all []int32) {
		for _, k := range all {
			if _, err := c.get(context.Background(), aliases[k]); err != nil {
				b.Fatal(err)
			}
		}
	}
	get(drawn[:zipfGets])
	hits, evicted, start := metrics.CacheHit.Value(), metrics.CacheEvicted.Value(), time.Now()
	get(drawn[zipfGets:])
	took := time.Since(start)
	c.entries.Wait()
	full := heap()
	var held float64
	for _, a := range aliases {
		if _, ok := c.entries.Get(string(a)); ok {
			held++
		}
	}
	if held == 0 {
		b.Fatal("the cache holds nothing")
	}
	b.ReportMetric(float64(metrics.CacheHit.Value()-hits)/zipfGets, "hit-ratio")
	b.ReportMetric(float64(metrics.CacheEvicted.Value()-evicted)/zipfGets, "evicted/get")
	b.ReportMetric(held, "held")
	b.ReportMetric((full-empty)/held, "B/link")
	b.ReportMetric((full-before)/(1<<20), "heap-MB")
	b.ReportMetric(float64(took.Nanoseconds())/zipfGets, "ns/get")
	runtime.KeepAlive(drawn)
}
