package storage

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/telemetry"

	"github.com/dgraph-io/ristretto/v2"
)

// memoryRows is a table in memory, for what is hard to time with a real one.
type memoryRows struct {
	mu    sync.Mutex
	links map[link.Name]link.Link
	fail  error
	wait  chan struct{} // gets wait until it is closed, whatever their time limit; nil: they do not
	gets  atomic.Int64
}

func (m *memoryRows) get(_ context.Context, a link.Name) (linkRow, error) {
	m.mu.Lock()
	l, ok := m.links[a]
	fail, wait := m.fail, m.wait
	m.gets.Add(1) // the row was read
	m.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-time.After(time.Minute):
			return linkRow{}, fmt.Errorf("%w: the test has forgotten it", link.ErrUnavailable)
		}
	}
	switch {
	case fail != nil:
		return linkRow{}, fail
	case !ok:
		return linkRow{}, link.ErrNotFound
	}
	return linkRow{Link: l, etag: "1"}, nil
}

func (m *memoryRows) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

type cacheRig struct {
	*cache
	table    *memoryRows
	metrics  *telemetry.Metrics
	outdated atomic.Bool // changes of other processes are not known
	advance  func(time.Duration)
}

func newCacheRig(t testing.TB, bytes int64) *cacheRig {
	t.Helper()
	var nanoseconds atomic.Int64
	start := time.Now().UTC().Truncate(time.Second)
	r := &cacheRig{
		table:   &memoryRows{links: map[link.Name]link.Link{}},
		metrics: new(telemetry.Metrics),
		advance: func(d time.Duration) { nanoseconds.Add(int64(d)) },
	}
	config := Config{
		Cache: &CacheConfig{Bytes: bytes, Fresh: 15 * time.Minute, Negative: time.Minute,
			Stale: time.Hour},
		Timeout: 5 * time.Second, StaleWait: 2 * time.Second, Metrics: r.metrics,
		Now: func() time.Time { return start.Add(time.Duration(nanoseconds.Load())) },
	}
	var err error
	if r.cache, err = newCache(&config, r.table.get, func(context.Context, time.Time) bool {
		return !r.outdated.Load()
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.entries.(*ristretto.Cache[string, *entry]).Close)
	return r
}

// insert adds a link to the table as a create does.
func (r *cacheRig) insert(l link.Link) {
	r.table.set(func() { r.table.links[l.Name] = l })
	r.replace(linkRow{Link: l, etag: "1"}, r.now(), r.forgottenCount(l.Name))
}

// add adds a link to the table that expires after life, or never.
func (r *cacheRig) add(a link.Name, life time.Duration) link.Link {
	l := link.Link{Name: a, LongURL: "https://example.com/" + string(a)}
	if life > 0 {
		l.ExpiresAt = r.now().Add(life)
	}
	r.table.set(func() { r.table.links[a] = l })
	return l
}

// want gets a link and checks what came of it, and how often the table was read for it.
func (r *cacheRig) want(t *testing.T, a link.Name, wantErr error, reads int64) linkRow {
	t.Helper()
	before := r.table.gets.Load()
	got, err := r.get(context.Background(), a)
	if !errors.Is(err, wantErr) || err != nil && wantErr == nil {
		t.Errorf("%s: got %+v, %v, want %v", a, got, err, wantErr)
	}
	if n := r.table.gets.Load() - before; n != reads {
		t.Errorf("%s: %d reads, want %d", a, n, reads)
	}
	r.wait()
	return got
}

func TestCacheServesALinkWhileItIsFresh(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	l := r.add("abcdef", 24*time.Hour)
	if got := r.want(t, "abcdef", nil, 1); !Same(got.Link, l) {
		t.Errorf("got %+v", got)
	}
	r.advance(15*time.Minute - 1)
	if got := r.want(t, "abcdef", nil, 0); !Same(got.Link, l) || got.Stale {
		t.Errorf("got %+v", got)
	}
	r.advance(1)
	r.want(t, "abcdef", nil, 1)
	r.want(t, "abcdef", nil, 0)
	if hits, misses := r.metrics.CacheHit.Value(), r.metrics.CacheMiss.Value(); hits != 2 ||
		misses != 2 {
		t.Errorf("%d hits, %d misses", hits, misses)
	}
	if got := r.metrics.CacheBytes.Value(); got == 0 {
		t.Errorf("%d bytes", got)
	}
}

func TestCacheNeverServesALinkPastItsLife(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	l := r.add("abcdef", 5*time.Minute)
	r.want(t, "abcdef", nil, 1)
	r.table.set(func() { r.table.fail = link.ErrUnavailable })
	r.advance(5 * time.Minute)
	if got := r.want(t, "abcdef", nil, 0); !Same(got.Link, l) || !got.Expired(r.now()) {
		t.Errorf("got %+v, want the link, expired", got)
	}
	r.want(t, "abcdef", link.ErrUnavailable, 1) // and it was evicted
}

func TestCacheKeepsNotFoundForItsOwnTime(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	r.want(t, "abcdef", link.ErrNotFound, 1)
	r.advance(time.Minute - 1)
	r.want(t, "abcdef", link.ErrNotFound, 0)
	r.add("abcdef", time.Hour)
	r.want(t, "abcdef", link.ErrNotFound, 0)
	r.advance(1)
	r.want(t, "abcdef", nil, 1)
	if got := r.metrics.CacheNegativeHit.Value(); got != 2 {
		t.Errorf("%d negative hits", got)
	}
	r.advance(20 * time.Minute)
	r.table.set(func() { delete(r.table.links, "abcdef") })
	r.want(t, "abcdef", link.ErrNotFound, 1)
	r.advance(2 * time.Minute)
	r.table.set(func() { r.table.fail = link.ErrUnavailable })
	r.want(t, "abcdef", link.ErrUnavailable, 1) // a "not found" is never served stale
}

func TestCacheDoesNotKeepADisabledLink(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	l := r.add("abcdef", time.Hour)
	r.want(t, "abcdef", nil, 1)
	r.advance(16 * time.Minute)
	l.Disabled = true
	r.table.set(func() { r.table.links["abcdef"] = l })
	for range 2 {
		if got := r.want(t, "abcdef", nil, 1); !got.Disabled {
			t.Errorf("got %+v", got)
		}
	}
	r.table.set(func() { r.table.fail = link.ErrUnavailable })
	r.want(t, "abcdef", link.ErrUnavailable, 1) // nor the link that it was before
}

func TestCacheDoesNotKeepAnError(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	r.table.set(func() { r.table.fail = link.ErrUnavailable })
	r.want(t, "abcdef", link.ErrUnavailable, 1)
	r.want(t, "abcdef", link.ErrUnavailable, 1)
	r.table.set(func() { r.table.fail = nil })
	r.add("abcdef", time.Hour)
	r.want(t, "abcdef", nil, 1)
}

func TestCacheServesStaleLinksInAnOutage(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	l := r.add("abcdef", 24*time.Hour)
	r.want(t, "abcdef", nil, 1)
	r.table.set(func() { r.table.fail = link.ErrUnavailable })
	r.advance(15 * time.Minute)
	if got := r.want(t, "abcdef", nil, 1); !Same(got.Link, l) || !got.Stale {
		t.Errorf("got %+v", got)
	}
	r.want(t, "abcdef", nil, 0) // the table is left in peace for a moment
	r.advance(staleRetry)
	r.want(t, "abcdef", nil, 1)
	r.advance(time.Hour - staleRetry - 1)
	r.want(t, "abcdef", nil, 1)
	r.advance(1)
	r.want(t, "abcdef", link.ErrUnavailable, 1) // long enough
	r.table.set(func() { r.table.fail = nil })
	if got := r.want(t, "abcdef", nil, 1); got.Stale {
		t.Errorf("got %+v after the outage", got)
	}
	if got := r.metrics.CacheStaleHit.Value(); got != 4 {
		t.Errorf("%d stale hits, want 4", got)
	}
}

func TestCacheServesAStaleLinkWhereTheTableIsSlow(t *testing.T) {
	t.Parallel()
	r := newCacheRig(t, 1<<20)
	l := r.add("abcdef", 24*time.Hour)
	r.want(t, "abcdef", nil, 1)
	r.advance(16 * time.Minute)
	wait := make(chan struct{})
	r.table.set(func() { r.table.wait = wait })
	start := time.Now()
	if got := r.want(t, "abcdef", nil, 1); !Same(got.Link, l) || !got.Stale {
		t.Errorf("got %+v", got)
	}
	if took := time.Since(start); took < r.staleWait || took > 30*time.Second {
		t.Errorf("took %v, want about %v", took, r.staleWait)
	}
	r.want(t, "abcdef", nil, 0)
	close(wait) // the response comes, nobody waits for it, and it is kept all the same
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if got := r.want(t, "abcdef", nil, 0); !got.Stale {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the late response was not kept")
		}
	}
}

func TestCacheReadsOnceForAllWhoWait(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	l := r.add("abcdef", time.Hour)
	wait := make(chan struct{})
	r.table.set(func() { r.table.wait = wait })
	impatient, giveUp := context.WithCancel(context.Background())
	gaveUp := make(chan error, 1)
	go func() {
		_, err := r.get(impatient, "abcdef")
		gaveUp <- err
	}()
	for r.table.gets.Load() == 0 {
		runtime.Gosched()
	}
	var (
		all     sync.WaitGroup
		waiting atomic.Int64
	)
	for range 100 {
		all.Go(func() {
			ctx := WatchedContext{context.Background(), &waiting}
			if got, err := r.get(ctx, "abcdef"); err != nil || !Same(got.Link, l) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	// one that came after the response might come before ristretto shows it, and read again
	for waiting.Load() < 100 {
		runtime.Gosched()
	}
	giveUp()
	if err := <-gaveUp; !errors.Is(err, link.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("the one that gave up got %v", err)
	}
	close(wait)
	all.Wait()
	if got := r.table.gets.Load(); got != 1 {
		t.Errorf("%d reads, want 1", got)
	}
}

// A read that began before the insert of a link and ends after it must not leave "not found" in
// place of the link.
func TestCacheKeepsALinkOverAnOlderNotFound(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	wait := make(chan struct{})
	r.table.set(func() { r.table.wait = wait })
	read := make(chan error, 1)
	go func() {
		_, err := r.get(context.Background(), "abcdef")
		read <- err
	}()
	for r.table.gets.Load() == 0 {
		runtime.Gosched()
	}
	l := link.Link{Name: "abcdef", LongURL: "https://example.com/"}
	r.insert(l)
	r.wait()
	close(wait)
	if err := <-read; !errors.Is(err, link.ErrNotFound) {
		t.Errorf("the read got %v", err)
	}
	r.wait()
	if got := r.want(t, "abcdef", nil, 0); !Same(got.Link, l) {
		t.Errorf("got %+v", got)
	}
}

// Ristretto sets a new key a moment after it is told to; a link that is inserted in that moment
// must be served all the same.
func TestCacheKeepsALinkRightAfterANotFound(t *testing.T) {
	r := newCacheRig(t, 10<<20)
	for i := range 200 {
		l := link.Link{Name: link.Name(fmt.Sprintf("a%d", i)), LongURL: "https://example.com/"}
		if _, err := r.get(context.Background(), l.Name); !errors.Is(err, link.ErrNotFound) {
			t.Fatalf("got %v", err)
		}
		r.insert(l)
		r.wait()
		if got, err := r.get(context.Background(), l.Name); err != nil ||
			!Same(got.Link, l) {
			t.Fatalf("after %d: got %+v, %v", i, got, err)
		}
	}
}

func TestCacheTurnsAPanicOfARefreshIntoAnError(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	r.cache.table = func(context.Context, link.Name) (linkRow, error) { panic("in the SDK") }
	if _, err := r.get(context.Background(), "abcdef"); err == nil || !strings.Contains(err.Error(),
		"in the SDK") {
		t.Errorf("got %v", err)
	}
}

func TestCacheWritesThroughAndForgets(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	l := link.Link{Name: "abcdef", LongURL: "https://example.com/",
		ExpiresAt: r.now().Add(time.Hour)}
	r.want(t, "abcdef", link.ErrNotFound, 1)
	r.insert(l)
	r.wait()
	r.want(t, "abcdef", nil, 0)
	r.table.set(func() { delete(r.table.links, "abcdef") })
	r.forget("abcdef")
	r.wait()
	r.want(t, "abcdef", link.ErrNotFound, 1)
}

// While changes of others are not known, the table decides, and what is cached is for outages only.
func TestCacheAsksTheTableWhileChangesAreNotKnown(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	l := r.add("abcdef", time.Hour)
	short := r.add("short", time.Minute)
	r.want(t, "abcdef", nil, 1)
	r.want(t, "short", nil, 1)
	r.want(t, "nobody", link.ErrNotFound, 1)
	r.outdated.Store(true)
	for range 2 {
		r.want(t, "abcdef", nil, 1)
		r.want(t, "nobody", link.ErrNotFound, 1)
	}
	l.LongURL += "/edited"
	short.ExpiresAt = short.ExpiresAt.Add(time.Hour) // by another process
	r.table.set(func() { r.table.links["abcdef"], r.table.links["short"] = l, short })
	if got := r.want(t, "abcdef", nil, 1); !Same(got.Link, l) {
		t.Errorf("got %+v, want %+v", got, l)
	}
	r.advance(time.Minute)
	if got := r.want(t, "short", nil, 1); !Same(got.Link, short) {
		t.Errorf("an expiry that is out of date is believed: %+v", got)
	}
	r.table.set(func() { r.table.fail = link.ErrUnavailable })
	if got := r.want(t, "abcdef", nil, 1); !Same(got.Link, l) || !got.Stale {
		t.Errorf("in an outage: got %+v", got)
	}
	r.want(t, "nobody", link.ErrUnavailable, 1)
	r.table.set(func() { r.table.fail = nil })
	r.outdated.Store(false)
	r.want(t, "abcdef", nil, 0)
}

func TestCacheDoubtsWhatItHasUntilItAsks(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	l := r.add("abcdef", time.Hour)
	r.want(t, "abcdef", nil, 1)
	r.want(t, "nobody", link.ErrNotFound, 1)
	r.doubt()
	r.advance(1)
	r.table.set(func() { r.table.fail = link.ErrUnavailable })
	if got := r.want(t, "abcdef", nil, 1); !Same(got.Link, l) || !got.Stale {
		t.Errorf("in an outage: got %+v", got)
	}
	r.want(t, "nobody", link.ErrUnavailable, 1)
	r.advance(staleRetry)
	r.table.set(func() { r.table.fail = nil })
	for _, reads := range []int64{1, 0} {
		r.want(t, "abcdef", nil, reads)
		r.want(t, "nobody", link.ErrNotFound, reads)
	}
}

func TestCacheKeepsATombstoneAsLongAsNotFound(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	tomb := link.Link{Name: "abcdef", GoneReason: link.StateDeleted,
		GoneAt: r.now().Add(-time.Hour)}
	r.table.set(func() { r.table.links["abcdef"] = tomb })
	for _, reads := range []int64{1, 0} {
		if got := r.want(t, "abcdef", nil, reads); !Same(got.Link, tomb) {
			t.Errorf("got %+v, want %+v", got, tomb)
		}
	}
	r.advance(time.Minute)
	r.want(t, "abcdef", nil, 1)
	r.table.set(func() { r.table.fail = link.ErrUnavailable })
	r.advance(time.Minute)
	r.want(t, "abcdef", link.ErrUnavailable, 1) // it is not served stale either
}

// A deleted link can be restored, so it is asked for each time.
func TestCacheDoesNotKeepADeletedLink(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	l := r.add("abcdef", time.Hour)
	l.DeletedAt = r.now()
	r.table.set(func() { r.table.links["abcdef"] = l })
	for range 2 {
		if got := r.want(t, "abcdef", nil, 1); got.State(r.now()) != link.StateDeleted {
			t.Errorf("got %+v", got)
		}
	}
}

// A read that began before its alias was forgotten is neither cached nor joined by whoever comes
// after that.
func TestCacheForgetsWhatIsUnderWay(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	old := r.add("abcdef", time.Hour)
	wait := make(chan struct{})
	r.table.set(func() { r.table.wait = wait })
	read := make(chan linkRow, 1)
	go func() {
		got, _ := r.get(context.Background(), "abcdef")
		read <- got
	}()
	for r.table.gets.Load() == 0 {
		runtime.Gosched()
	}
	edited := old
	edited.LongURL += "/edited"
	r.table.set(func() { r.table.links["abcdef"], r.table.wait = edited, nil })
	r.forget("abcdef")
	if got := r.want(t, "abcdef", nil, 1); !Same(got.Link, edited) {
		t.Errorf("got %+v, want %+v", got, edited)
	}
	close(wait)
	if got := <-read; !Same(got.Link, old) {
		t.Errorf("the older read got %+v", got)
	}
	r.wait()
	if got := r.want(t, "abcdef", nil, 0); !Same(got.Link, edited) {
		t.Errorf("got %+v, want %+v", got, edited)
	}
}

// The alias is forgotten in the very moment between the look whether it was, and the caching of
// what was read.
func TestCacheForgetsInTheLastMoment(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	r.add("abcdef", time.Hour)
	clock, looks := r.cache.now, 0
	r.cache.now = func() time.Time { // put asks for the time
		if looks++; looks == 2 {
			r.forget("abcdef")
		}
		return clock()
	}
	r.want(t, "abcdef", nil, 1)
	if looks < 2 {
		t.Fatalf("the time was asked for %d times: adapt this test", looks)
	}
	r.want(t, "abcdef", nil, 1)
	r.want(t, "abcdef", nil, 0)
}

func TestAFullCacheUnderWritesKeepsServing(t *testing.T) {
	r := newCacheRig(t, 1<<20)
	popular := r.add("popular", 24*time.Hour)
	r.want(t, "popular", nil, 1)
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					r.put(link.Name(fmt.Sprintf("w%d-%d", w, i)), linkRow{}, r.now())
				}
			}
		})
	}
	for range 20_000 {
		if got, err := r.get(context.Background(), "popular"); err != nil ||
			!Same(got.Link, popular) {
			t.Fatalf("got %+v, %v", got, err)
		}
	}
	close(stop)
	writers.Wait()
}

func TestCacheStaysWithinItsSize(t *testing.T) {
	heap := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	for name, entry := range map[string]func(r *cacheRig, i int){
		"unknown aliases": func(r *cacheRig, i int) {
			r.put(link.Name(fmt.Sprintf("n%07d", i)), linkRow{}, r.now())
		},
		"short links": func(r *cacheRig, i int) {
			a := link.Name(fmt.Sprintf("s%07d", i))
			r.put(a, linkRow{Link: link.Link{Name: a, LongURL: strings.Repeat("x", 60),
				ExpiresAt: r.now().Add(24 * time.Hour)}}, r.now())
		},
		"short links of many ends": func(r *cacheRig, i int) { // as if they came over ten minutes
			a := link.Name(fmt.Sprintf("e%07d", i))
			r.put(a, linkRow{Link: link.Link{Name: a, LongURL: strings.Repeat("x", 60),
				ExpiresAt: r.now().Add(time.Minute + time.Duration(i)*6*time.Millisecond)}},
				r.now())
		},
		"long links": func(r *cacheRig, i int) {
			a := link.Name(fmt.Sprintf("l%07d", i))
			r.put(a, linkRow{Link: link.Link{Name: a, LongURL: strings.Repeat("x", 4000),
				ExpiresAt: r.now().Add(24 * time.Hour)}}, r.now())
		},
	} {
		t.Run(name, func(t *testing.T) {
			const size = 4 << 20
			before := heap()
			r := newCacheRig(t, size)
			empty := heap() - before
			for i := range 40_000 {
				entry(r, i)
				if i%1000 == 0 {
					r.wait() // ristretto drops what comes faster than it can take
				}
			}
			r.wait()
			used := heap() - before - empty
			cost := r.entries.MaxCost() - r.entries.RemainingCost()
			t.Logf("heap %d KiB for a cost of %d KiB; %d KiB while empty", used>>10, cost>>10,
				empty>>10)
			if cost < size*9/10 {
				t.Errorf("a cost of %d is not a full cache", cost)
			}
			if used > size*21/20 {
				t.Errorf("%d bytes in memory, of at most %d", used, size)
			}
			runtime.KeepAlive(r)
		})
	}
}

// cacheHits are the two responses that the cache gives without a call, of a cache that has them.
var cacheHits = []struct {
	name  string
	alias link.Name
	want  error
}{
	{"link", "abcdef", nil},
	{"no such link", "nobody", link.ErrNotFound},
}

func newHitRig(t testing.TB) *cacheRig {
	t.Helper()
	r := newCacheRig(t, 1<<20)
	r.add("abcdef", time.Hour)
	for _, hit := range cacheHits {
		if _, err := r.get(context.Background(), hit.alias); !errors.Is(err, hit.want) {
			t.Fatal(err)
		}
	}
	r.wait()
	return r
}

func TestACacheHitAllocatesNothing(t *testing.T) {
	for _, hit := range cacheHits {
		t.Run(hit.name, func(t *testing.T) {
			r := newHitRig(t)
			reads := r.table.gets.Load()
			if n := testing.AllocsPerRun(1000, func() {
				_, _ = r.get(context.Background(), hit.alias)
			}); n != 0 {
				t.Errorf("%v allocations", n)
			}
			if n := r.table.gets.Load() - reads; n != 0 {
				t.Errorf("the table was read %d times", n)
			}
		})
	}
}

func BenchmarkCacheHit(b *testing.B) {
	for _, hit := range cacheHits {
		b.Run(hit.name, func(b *testing.B) {
			r := newHitRig(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.get(context.Background(), hit.alias); err != hit.want {
					b.Fatal(err)
				}
			}
		})
	}
}

// On all cores at once: what they share shows here.
func BenchmarkCacheHitInParallel(b *testing.B) {
	r := newHitRig(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := r.get(context.Background(), "abcdef"); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// What has come to its end makes room, however often it was asked for, and however much room a full
// cache has left.
func TestCacheMakesRoomForTheLiving(t *testing.T) {
	t.Parallel()
	for left := range int64(8) {
		t.Run(fmt.Sprint(left), func(t *testing.T) {
			t.Parallel()
			testRoomForTheLiving(t, left*ristrettoOverhead)
		})
	}
}

func testRoomForTheLiving(t *testing.T, more int64) {
	const links = 1000 // a little less than there is room for
	r := newCacheRig(t, links*450+more)
	pass := func(generation string) (hits int64) {
		before := r.metrics.CacheHit.Value()
		for i := range links {
			a := link.Name(fmt.Sprintf("%s%05d", generation, i))
			if _, err := r.get(context.Background(), a); err != nil {
				t.Fatal(err)
			}
			if i%100 == 0 {
				r.wait() // ristretto drops what comes faster than it can take
			}
		}
		r.wait()
		return r.metrics.CacheHit.Value() - before
	}
	for _, generation := range []string{"a", "b"} {
		for i := range links {
			r.add(link.Name(fmt.Sprintf("%s%05d", generation, i)), 0)
		}
		pass(generation)
		for end := time.Now().Add(10 * time.Second); r.dead() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d links that are dead are left", r.dead())
			}
		}
		r.wait()
		pass(generation)
		if hits := pass(generation); hits < links*9/10 {
			t.Errorf("%d hits for %d links of generation %s", hits, links, generation)
		}
		for range 20 {
			pass(generation) // they become popular
		}
		r.advance(2 * time.Hour)
	}
}

func (r *cacheRig) dead() (n int) {
	r.entries.IterValues(func(e *entry) bool {
		if r.now().UnixNano() >= e.staleUntil {
			n++
		}
		return false
	})
	return n
}

// A link that was changed while the copy of it was read is not cached as the copy has it.
func TestCacheTakesNothingOfTheSecondaryThatHasChanged(t *testing.T) {
	for _, changed := range []bool{false, true} {
		r := newCacheRig(t, 1<<20)
		forgotten := r.forgottenCount("abcdef")
		if changed {
			r.forget("abcdef")
		}
		r.putStale("abcdef", linkRow{Link: link.Link{Name: "abcdef",
			LongURL: "https://example.com/"}}, forgotten)
		r.wait()
		if _, there := r.entries.Get("abcdef"); there == changed {
			t.Errorf("changed %t: cached %t", changed, there)
		}
	}
}
