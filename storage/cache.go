package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dgraph-io/ristretto/v2"
	"golang.org/x/sync/singleflight"

	"tiney/link"
	"tiney/telemetry"
)

// CacheConfig says how much is cached and for how long. A zero duration disables that use.
type CacheConfig struct {
	Bytes    int64         // bound on the cost of all entries, which is their size in memory
	Fresh    time.Duration // how long a link is served without asking the table
	Negative time.Duration // the same for "not found"
	Stale    time.Duration // how much longer a link is served while the table does not respond
}

const (
	// entryOverhead is what an entry costs in memory besides the bytes of its strings: the entry itself and what
	// ristretto keeps for it in its map and its policy. Measured as the growth of the heap per entry in a cache of 20,000
	// (TestCacheStaysWithinItsSize), with a tenth to spare; ristretto adds 56 of its own to every cost.
	entryOverhead = 344
	// countersPerEntry is ristretto's advice, for entries as small as a "not found" is.
	countersPerEntry = 10

	// staleWait is how long a caller waits for the table if there is a stale link to serve instead: to somebody who follows
	// a link, a table that takes longer is as good as down.
	staleWait = time.Second
	// staleRetry is how long a stale link is served without asking the table again after the table failed. So an outage
	// costs a popular link one slow response now and then, and the table is not stormed when it comes back.
	staleRetry = 5 * time.Second

	// sweepEvery is how often a full cache drops the entries past their staleUntil.
	sweepEvery = time.Minute
)

// cache serves links from memory, in front of the table.
//
// A hit takes no lock but that of ristretto's shard, makes no call and allocates nothing.
type cache struct {
	table   linkRows
	config  CacheConfig
	now     func() time.Time
	metrics *telemetry.Metrics

	entries *ristretto.Cache[string, *entry] // never closed: a Set during a Close panics, and the cache lives as long as the process
	reads   singleflight.Group
	swept   atomic.Int64 // when the last sweep began, in Unix nanoseconds
}

// entry does not change but for notBefore, so that a hit needs no lock. A zero link stands for "not found".
type entry struct {
	alias      link.Alias
	link       link.Link
	freshUntil time.Time
	staleUntil time.Time
	notBefore  atomic.Int64 // the earliest time of the next refresh after one failed, in Unix nanoseconds; zero: none failed
}

func newCache(table linkRows, config CacheConfig, now func() time.Time, metrics *telemetry.Metrics) (*cache, error) {
	entries, err := ristretto.NewCache(&ristretto.Config[string, *entry]{
		MaxCost:     config.Bytes,
		NumCounters: max(config.Bytes/entryOverhead, 100) * countersPerEntry,
		BufferItems: 64,
		OnEvict: func(i *ristretto.Item[*entry]) {
			// An entry past its end counts as none.
			if i.Value != nil && now().Before(i.Value.staleUntil) {
				metrics.CacheEvicted.Add(1)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	return &cache{table: table, config: config, now: now, metrics: metrics, entries: entries}, nil
}

// get serves a link from memory, or reads it.
func (c *cache) get(ctx context.Context, a link.Alias) (linkRow, error) {
	e, ok := c.entries.Get(string(a))
	if !ok {
		return c.read(ctx, a, nil)
	}
	now := c.now()
	switch {
	case e.link.Alias == "" && now.Before(e.freshUntil):
		c.metrics.CacheNegativeHit.Add(1)
		return linkRow{}, link.ErrNotFound
	case e.link.Alias == "":
		return c.read(ctx, a, nil)
	case e.link.Expired(now):
		// The table can say nothing new about it, unless it was given more time; the next call asks.
		c.entries.Del(string(a))
		c.metrics.CacheHit.Add(1)
		return linkRow{Link: e.link}, nil
	case now.Before(e.freshUntil):
		c.metrics.CacheHit.Add(1)
		return linkRow{Link: e.link}, nil
	case !now.Before(e.staleUntil):
		return c.read(ctx, a, nil)
	}
	// All who come while the table is asked for the first time wait for it, as it may well respond. Once it has failed, one
	// caller every staleRetry tries again, and the others do not wait for that.
	notBefore := e.notBefore.Load()
	if notBefore == 0 || now.UnixNano() >= notBefore && e.notBefore.CompareAndSwap(notBefore, now.Add(staleRetry).UnixNano()) {
		return c.read(ctx, a, e)
	}
	c.metrics.CacheStaleHit.Add(1)
	return linkRow{Link: e.link, stale: true}, nil
}

// read asks the table, once for all who want the same link at the same time, and serves old (which may be nil) if the
// table does not respond.
func (c *cache) read(ctx context.Context, a link.Alias, old *entry) (linkRow, error) {
	result := c.reads.DoChan(string(a), func() (any, error) {
		// Shared; one caller's cancellation must not fail the others.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
		defer cancel()
		var r linkRow
		err := safely(func() (err error) {
			r, err = c.refresh(ctx, a)
			return err
		})
		return r, err
	})
	var enough <-chan time.Time
	if old != nil {
		timer := time.NewTimer(staleWait)
		defer timer.Stop()
		enough = timer.C
	}
	var err error
	select {
	case got := <-result:
		if got.Err == nil || decided(got.Err) {
			c.metrics.CacheMiss.Add(1)
			return got.Val.(linkRow), got.Err
		}
		err = got.Err
	case <-enough:
		err = fmt.Errorf("reading link %s: %w within %v", a, link.ErrUnavailable, staleWait)
	case <-ctx.Done():
		// The caller has given up, which does not mean that the table fails.
		c.metrics.CacheMiss.Add(1)
		return linkRow{}, fmt.Errorf("reading link %s: %w in time: %w", a, link.ErrUnavailable, ctx.Err())
	}
	now := c.now()
	if old == nil || old.link.Expired(now) {
		c.metrics.CacheMiss.Add(1)
		return linkRow{}, err
	}
	old.notBefore.Store(now.Add(staleRetry).UnixNano())
	c.metrics.CacheStaleHit.Add(1)
	return linkRow{Link: old.link, stale: true}, nil
}

// refresh reads the table and caches what it says, but no "not found" over a link that was inserted while the read was on
// its way.
func (c *cache) refresh(ctx context.Context, a link.Alias) (linkRow, error) {
	start := c.now()
	r, err := c.table.get(ctx, a)
	switch {
	case err == nil:
		c.put(a, r.Link)
	case errors.Is(err, link.ErrNotFound):
		if e, ok := c.entries.Get(string(a)); !ok || e.link.Alias == "" || e.freshUntil.Add(-c.config.Fresh).Before(start) {
			c.put(a, link.Link{})
		}
	}
	return r, err
}

// put caches a link, or "not found" if it is zero, in place of what was cached for the alias.
func (c *cache) put(a link.Alias, l link.Link) {
	now := c.now()
	e := &entry{alias: l.Alias, link: l, freshUntil: now.Add(c.config.Fresh)}
	e.staleUntil = e.freshUntil.Add(c.config.Stale)
	if l.Alias == "" {
		e.alias = link.Alias(strings.Clone(string(a))) // or the entry would keep the whole request in memory
		e.freshUntil = now.Add(c.config.Negative)
		e.staleUntil = e.freshUntil
	}
	if !l.ExpiresAt.IsZero() && e.staleUntil.After(l.ExpiresAt) {
		e.staleUntil = l.ExpiresAt
	}

	// A disabled link is not cached, so that enabling it shows at once.
	if l.Disabled || !now.Before(e.staleUntil) {
		c.entries.Del(string(a))
		return
	}
	// Without ristretto's time to live: it keeps a list for every five seconds in which entries expire, and frees none before
	// that time, so that with many links passing through the lists outgrow the entries. An entry past its end is not served
	// (see get), and is swept out when others need the room.
	text := int64(2*len(a) + len(l.LongURL) + len(l.CreatedBy))
	cost := entryOverhead + text*9/8 // Go's allocator rounds up, by an eighth at most
	if c.entries.RemainingCost() < cost {
		c.sweep(now)
	}
	c.entries.Set(string(a), e, cost)
	c.metrics.CacheBytes.Set(c.entries.MaxCost() - c.entries.RemainingCost())
}

// sweep drops the entries past their staleUntil. Ristretto alone would keep them for days: it admits a new entry only if it
// is asked for more often than the one that it would evict, dead or not.
func (c *cache) sweep(now time.Time) {
	last := c.swept.Load()
	if now.UnixNano()-last < int64(sweepEvery) || !c.swept.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	go func() { // a large cache takes a while, and nobody waits for it
		var dead []link.Alias
		c.entries.IterValues(func(e *entry) (stop bool) {
			if !now.Before(e.staleUntil) {
				dead = append(dead, e.alias)
			}
			return false
		})
		for _, a := range dead { // one that was renewed meanwhile is read once more
			c.entries.Del(string(a))
		}
	}()
}

// insert writes through: the table first, which alone decides the result.
func (c *cache) insert(ctx context.Context, l link.Link) (linkRow, error) {
	r, err := c.table.insert(ctx, l)
	if err == nil {
		c.forget(l.Alias)
		c.put(l.Alias, r.Link)
	}
	return r, err
}

// forget evicts what is cached for an alias, or about to be. In ristretto the Set of a new key takes effect a moment later,
// and a second Set within that moment is lost; a Del between the two makes the second one count.
func (c *cache) forget(a link.Alias) { c.entries.Del(string(a)) }

// delete evicts first, so that a link whose row is being deleted is not served meanwhile, and once more afterwards,
// because a read may have come between.
func (c *cache) delete(ctx context.Context, r linkRow) error {
	c.forget(r.Alias)
	defer c.forget(r.Alias)
	return c.table.delete(ctx, r)
}
