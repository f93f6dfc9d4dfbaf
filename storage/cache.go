package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/dgraph-io/ristretto/v2"
	"golang.org/x/sync/singleflight"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
)

const (
	// entryOverhead is how many bytes an entry takes besides its strings: the entry itself, and
	// what ristretto keeps for it in its map and its policy. It is the growth of the heap per entry
	// in a cache of 20,000 (TestCacheStaysWithinItsSize), with a tenth to spare.
	entryOverhead = 328
	// ristrettoOverhead is what ristretto adds to every cost.
	ristrettoOverhead = 56
	// countersPerEntry is what ristretto advises, for entries as small as a "not found".
	countersPerEntry = 10

	// staleRetry is how long after a failed read a stale link is served without another read. So an
	// outage costs a popular link one slow response now and then, and the callers do not storm the
	// table when it comes back.
	staleRetry = 5 * time.Second

	// sweepEvery is how often a full cache drops the entries that are past their staleUntil.
	sweepEvery = time.Minute
)

// cache serves links from memory, in front of the table.
//
// A hit makes no call, allocates nothing, and takes only the lock of ristretto's shard. The methods
// that only forget or replace may be called on a nil cache.
type cache struct {
	table func(context.Context, link.Name) (linkRow, error)
	// current reports whether what is cached is right, but for changes of the last seconds.
	current   func(context.Context, time.Time) bool
	config    CacheConfig
	timeout   time.Duration // of a read that callers share
	staleWait time.Duration
	now       func() time.Time
	metrics   *telemetry.Metrics

	entries entries
	reads   singleflight.Group
	swept   atomic.Int64 // when the last sweep began, in Unix nanoseconds
	doubted atomic.Int64 // what was cached until then counts as stale, in Unix nanoseconds

	// forgotten counts how often aliases were forgotten, in slots that many aliases share. A read
	// during which its alias was forgotten may have seen the link as it was before the change. Its
	// result is not cached.
	forgotten [256]atomic.Uint32
}

// entry is a link, a tombstone, or, without a long URL and a state, the knowledge that there is
// neither. Only notBefore ever changes, so that a hit needs no lock.
type entry struct {
	alias      link.Name
	spelling   link.Alias
	longURL    string
	owner      string
	createdAt  time.Time
	expiresAt  time.Time  // of a tombstone: when the link ended
	gone       link.State // why there is only a tombstone
	cachedAt   int64      // these are in Unix nanoseconds
	staleUntil int64
	// the earliest time of the next refresh after one that failed; zero if none failed
	notBefore  atomic.Int64
	statusCode int16
	forward    link.Forward
	// There is no row by a spelling with capitals, but there is one by the name in lower case, and
	// case does not matter. The entry is kept like a link: otherwise an outage would stop a popular
	// link that people spell so.
	absent  bool
	counted clicks.Day // the first day whose clicks are its own
	seldom  *seldom    // nil: it has none of that
}

// seldom is what few links have. The entries of all others do not take its room.
type seldom struct {
	startsAt time.Time
	goneURL  link.Fallback // "" if the link was taken down, which an entry does not say
	password string        // a hash
	rules    []link.TargetRule
}

const (
	seldomOverhead = 96  // bytes
	ruleOverhead   = 512 // bytes of a rule besides what it has as JSON
)

// text returns how many bytes the texts of s take.
func (s *seldom) text() int {
	return len(s.goneURL) + len(s.password) + len(s.rules)*ruleOverhead +
		5*len(link.EncodeTargetRules(s.rules))
}

// link returns the link or tombstone of the entry.
func (e *entry) link() link.Link {
	l := link.Link{Name: e.alias, Spelling: e.spelling, LongURL: e.longURL, Owner: e.owner,
		CreatedAt: e.createdAt, ExpiresAt: e.expiresAt, Forward: e.forward,
		StatusCode: int(e.statusCode), CountedFrom: e.counted.Start()}
	if e.gone != link.StateLive {
		l = link.Link{Name: e.alias, GoneReason: e.gone, GoneAt: e.expiresAt}
	}
	if e.seldom != nil {
		l.StartsAt, l.GoneURL, l.Rules = e.seldom.startsAt, e.seldom.goneURL, e.seldom.rules
		l.Password = e.seldom.password
	}
	return l
}

func (e *entry) row(stale bool) linkRow {
	r := linkRow{Link: e.link(), cached: true}
	r.Stale = stale
	return r
}

// answer is what get says by the entry.
func (e *entry) answer(stale bool) (linkRow, error) {
	if e.absent {
		return linkRow{cached: true}, link.ErrNotFound
	}
	return e.row(stale), nil
}

// isLink reports whether the entry is a link.
func (e *entry) isLink() bool { return e.longURL != "" }

func (e *entry) expired(now time.Time) bool {
	return e.isLink() && !e.expiresAt.IsZero() && !e.expiresAt.After(now)
}

// entries is what a cache needs of ristretto.
type entries interface {
	Get(alias string) (*entry, bool)
	Set(alias string, e *entry, cost int64) bool
	Del(alias string)
	IterValues(each func(*entry) (stop bool))
	RemainingCost() int64
	MaxCost() int64
}

func newCache(config *Config, table func(context.Context, link.Name) (linkRow, error),
	current func(context.Context, time.Time) bool) (*cache, error) {
	c := &cache{table: table, current: current, config: *config.Cache, timeout: config.Timeout,
		staleWait: config.StaleWait,
		now:       config.Now, metrics: config.Metrics}
	if config.Cache.Exact {
		c.entries = &exactEntries{}
		return c, nil
	}
	all, err := ristretto.NewCache(&ristretto.Config[string, *entry]{
		MaxCost: c.config.Bytes,
		NumCounters: max(c.config.Bytes/(entryOverhead+ristrettoOverhead), 100) *
			countersPerEntry,
		BufferItems: 64,
		OnEvict: func(i *ristretto.Item[*entry]) {
			// An entry past its staleUntil would not have been served any more.
			if i.Value != nil && c.now().UnixNano() < i.Value.staleUntil {
				c.metrics.CacheEvicted.Add(1)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache: %w", err)
	}
	// The cache is never closed: a Set during a Close panics, and it lives as long as the process.
	c.entries = all
	return c, nil
}

// exactEntries are entries that stay until they are deleted. A simulator needs them, since
// ristretto drops entries at random, and its goroutines never end.
type exactEntries struct{ all sync.Map }

func (e *exactEntries) Get(alias string) (*entry, bool) {
	v, ok := e.all.Load(alias)
	if !ok {
		return nil, false
	}
	return v.(*entry), true
}

func (e *exactEntries) Set(alias string, v *entry, _ int64) bool {
	e.all.Store(alias, v)
	return true
}
func (e *exactEntries) Del(alias string)                    { e.all.Delete(alias) }
func (e *exactEntries) IterValues(func(*entry) (stop bool)) {}
func (e *exactEntries) RemainingCost() int64                { return math.MaxInt64 }
func (e *exactEntries) MaxCost() int64                      { return math.MaxInt64 }

// hit returns the entry of a live or scheduled link that can be served from memory, or nil. Most
// redirects need nothing else, and it makes none of the copies that get makes.
func (c *cache) hit(ctx context.Context, a link.Name) *entry {
	now := c.now()
	if !c.current(ctx, now) {
		return nil
	}
	e, ok := c.entries.Get(string(a))
	if !ok || !e.isLink() || e.expired(now) || e.cachedAt <= c.doubted.Load() {
		return nil
	}
	if age := now.UnixNano() - e.cachedAt; age < 0 || age >= int64(c.config.Fresh) {
		return nil
	}
	c.metrics.CacheHit.Add(1)
	return e
}

// stale returns the entry of a live or scheduled link that could be served if the table did not
// respond, or nil.
func (c *cache) stale(ctx context.Context, a link.Name) *entry {
	now := c.now()
	e, ok := c.entries.Get(string(a))
	if !ok || !e.isLink() || e.expired(now) || now.UnixNano() >= e.staleUntil ||
		// the link may have been changed, and the table can be asked
		e.cachedAt <= c.doubted.Load() && c.current(ctx, now) {
		return nil
	}
	c.metrics.CacheStaleHit.Add(1)
	return e
}

// absent reports whether it is known that there is no row by a spelling with capitals. If stale is
// true, that may have to be read again.
func (c *cache) absent(a link.Name, stale bool) bool {
	e, ok := c.entries.Get(string(a))
	if !ok || !e.absent {
		return false
	}
	now := c.now().UnixNano()
	return stale && now < e.staleUntil ||
		now-e.cachedAt < int64(c.config.Fresh) && e.cachedAt > c.doubted.Load()
}

// putAbsent caches that there was no row by a spelling with capitals at a time, unless the name was
// forgotten since forgottenCount returned forgotten.
func (c *cache) putAbsent(a link.Name, at time.Time, forgotten uint32) {
	if c != nil && !c.absent(a, false) {
		c.entries.Del(string(a)) // see forget
		c.putUnlessForgotten(a, linkRow{absent: true}, at, forgotten)
	}
}

// get serves a link from memory, or reads it.
func (c *cache) get(ctx context.Context, a link.Name) (linkRow, error) {
	now := c.now()
	current := c.current(ctx, now)
	e, ok := c.entries.Get(string(a))
	if !ok {
		return c.read(ctx, a, nil)
	}
	age := now.UnixNano() - e.cachedAt
	// An age below zero means that the clock was put back.
	current = current && e.cachedAt > c.doubted.Load() && age > -int64(time.Second)
	switch {
	case current && e.expired(now):
		// The table can say nothing new, unless the link was extended. The next call asks.
		c.entries.Del(string(a))
		c.metrics.CacheHit.Add(1)
		return e.row(false), nil
	case !e.isLink() && !e.absent && (!current || age >= int64(c.config.Negative)):
		return c.read(ctx, a, nil)
	case e.gone != link.StateLive:
		c.metrics.CacheHit.Add(1)
		return e.row(false), nil
	case !e.isLink() && !e.absent:
		c.metrics.CacheNegativeHit.Add(1)
		return linkRow{cached: true}, link.ErrNotFound
	case current && age < int64(c.config.Fresh):
		c.metrics.CacheHit.Add(1)
		return e.answer(false)
	case now.UnixNano() >= e.staleUntil:
		return c.read(ctx, a, nil)
	}
	// All callers wait for the first read, since the table may well respond. Once that has failed,
	// one caller tries again every staleRetry, and the others do not wait for it.
	notBefore := e.notBefore.Load()
	if notBefore == 0 || now.UnixNano() >= notBefore && e.notBefore.CompareAndSwap(notBefore,
		now.Add(staleRetry).UnixNano()) {
		return c.read(ctx, a, e)
	}
	c.metrics.CacheStaleHit.Add(1)
	return e.answer(true)
}

// read asks the table, and serves old if the table does not respond. old may be nil.
func (c *cache) read(ctx context.Context, a link.Name, old *entry) (linkRow, error) {
	result := concurrent.Share(ctx, &c.reads, string(a), c.timeout,
		func(ctx context.Context) (linkRow, error) { return c.refresh(ctx, a) })
	var enough <-chan time.Time
	if old != nil {
		enough = time.After(c.staleWait)
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
		err = fmt.Errorf("reading link %s: %w within %v", a, link.ErrUnavailable, c.staleWait)
	case <-ctx.Done():
		// The caller has given up, which does not mean that the table fails.
		c.metrics.CacheMiss.Add(1)
		return linkRow{}, fmt.Errorf("reading link %s: %w in time: %w", a, link.ErrUnavailable,
			ctx.Err())
	}
	now := c.now()
	if old == nil || old.expired(now) {
		c.metrics.CacheMiss.Add(1)
		return linkRow{}, err
	}
	old.notBefore.Store(now.Add(staleRetry).UnixNano())
	c.metrics.CacheStaleHit.Add(1)
	return old.answer(true)
}

// refresh reads the table and caches the result, unless the alias was forgotten or replaced
// meanwhile.
func (c *cache) refresh(ctx context.Context, a link.Name) (linkRow, error) {
	forgotten, at := c.slot(a).Load(), c.now()
	r, err := c.table(ctx, a)
	if err == nil || errors.Is(err, link.ErrNotFound) { // then r is zero
		c.putUnlessForgotten(a, r, at, forgotten)
	}
	return r, err
}

// putUnlessForgotten is put, unless the alias was forgotten since forgottenCount returned
// forgotten.
func (c *cache) putUnlessForgotten(a link.Name, r linkRow, at time.Time, forgotten uint32) {
	if c.slot(a).Load() != forgotten {
		return
	}
	c.put(a, r, at)
	if c.slot(a).Load() != forgotten { // between the first look and the put
		c.entries.Del(string(a))
	}
}

// forgottenCount returns how often an alias was forgotten, or another alias of its slot.
func (c *cache) forgottenCount(a link.Name) uint32 {
	if c == nil {
		return 0
	}
	return c.slot(a).Load()
}

func (c *cache) slot(a link.Name) *atomic.Uint32 {
	return &c.forgotten[xxhash.Sum64String(string(a))%uint64(len(c.forgotten))]
}

// put caches the result of a read or write that began at a time. A zero row means "not found". It
// is that time, not the present, that counts for its age: the process may have stood still since,
// and have missed announcements of changes.
func (c *cache) put(a link.Name, r linkRow, at time.Time) { c.putAt(a, r, at, 0) }

// putStale caches a link of the secondary as one that is already stale: the next caller gets it at
// once, and the table is asked again after staleRetry. If the alias was forgotten since
// forgottenCount returned forgotten, it does nothing.
func (c *cache) putStale(a link.Name, r linkRow, forgotten uint32) {
	if c != nil && r.LongURL != "" && c.slot(a).Load() == forgotten {
		now := c.now()
		c.putAt(a, r, now.Add(-c.config.Fresh), now.Add(staleRetry).UnixNano())
	}
}

// putAt caches what was read at a time. Where that is stale, the table is not asked again before
// notBefore, in Unix nanoseconds.
func (c *cache) putAt(a link.Name, r linkRow, at time.Time, notBefore int64) {
	now := c.now()
	e := &entry{
		// A clone, since the alias itself would keep the whole request in memory.
		alias: link.Name(strings.Clone(string(a))), spelling: r.Spelling, longURL: r.LongURL,
		owner: r.Owner, forward: r.Forward, absent: r.absent,
		createdAt: r.CreatedAt, expiresAt: r.ExpiresAt,
		gone: r.GoneReason, statusCode: int16(r.StatusCode),
		counted:  clicks.DayOf(r.CountedFrom),
		cachedAt: at.UnixNano(), staleUntil: at.Add(c.config.Fresh + c.config.Stale).UnixNano(),
	}
	e.notBefore.Store(notBefore)
	if r.Locked {
		r.GoneURL = ""
	}
	if !r.StartsAt.IsZero() || r.GoneURL != "" || r.Password != "" || r.Rules != nil {
		e.seldom = &seldom{r.StartsAt, r.GoneURL, r.Password, r.Rules}
	}
	if e.gone != link.StateLive {
		e.expiresAt = r.GoneAt
	}
	if !e.isLink() && !e.absent {
		e.staleUntil = at.Add(c.config.Negative).UnixNano()
	}
	dead := e.expired(now) || now.UnixNano() >= e.staleUntil
	if e.isLink() && !e.expiresAt.IsZero() &&
		e.expiresAt.Before(now.Add(c.config.Fresh+c.config.Stale)) {
		e.staleUntil = e.expiresAt.UnixNano()
	}

	// A disabled or deleted link is not cached, so that it works at once when it is enabled or
	// restored. Nor is one with MaxOpens, of which only its row says whether it leads anywhere.
	if dead || r.MaxOpens > 0 || r.Disabled || !r.DeletedAt.IsZero() {
		c.entries.Del(string(a))
		return
	}
	// ristretto's time to live is not used. ristretto keeps a list for every five seconds in which
	// entries expire, and frees none before that time: where many links pass through the cache, the
	// lists outgrow the entries. get does not serve an entry past its staleUntil, and sweep drops
	// it when others need the room.
	text := int64(2*len(a) + len(e.spelling) + len(e.longURL) + len(e.owner))
	if e.seldom != nil {
		text += seldomOverhead + int64(e.seldom.text())
	}
	cost := entryOverhead + text*9/8 // Go's allocator rounds up, by an eighth at most
	if c.entries.RemainingCost() < cost+ristrettoOverhead {
		c.sweep(now)
	}
	c.entries.Set(string(a), e, cost)
	c.metrics.CacheBytes.Set(c.entries.MaxCost() - c.entries.RemainingCost())
}

// sweep drops the entries that are past their staleUntil. ristretto alone would keep them for days:
// it admits a new entry only if that is asked for more often than the one that it would evict, dead
// or not.
func (c *cache) sweep(now time.Time) {
	last := c.swept.Load()
	if now.UnixNano()-last < int64(sweepEvery) || !c.swept.CompareAndSwap(last, now.UnixNano()) {
		return
	}
	go func() { // a large cache takes a while
		var dead []link.Name
		c.entries.IterValues(func(e *entry) (stop bool) {
			if now.UnixNano() >= e.staleUntil {
				dead = append(dead, e.alias)
			}
			return false
		})
		for _, a := range dead { // a link that was read again meanwhile is read once more
			c.entries.Del(string(a))
		}
	}()
}

// replace caches a link as a write that began at a time has left it, in place of what is cached or
// is being read. If the alias was forgotten since forgottenCount returned forgotten, which was
// before the write, a later change may have overtaken the response. Then nothing is cached.
func (c *cache) replace(r linkRow, at time.Time, forgotten uint32) {
	if c != nil {
		c.forget(r.Name)
		c.putUnlessForgotten(r.Name, r, at, forgotten+1)
	}
}

// forget evicts what is cached for an alias, and keeps a read that is under way from being cached.
// Later callers do not join that read. In ristretto the Set of a new key takes effect a moment
// later, and a second Set within that moment is lost. A Del between the two makes the second one
// count.
func (c *cache) forget(a link.Name) {
	if c != nil {
		c.slot(a).Add(1)
		c.reads.Forget(string(a))
		c.entries.Del(string(a))
	}
}

// doubt makes all that is cached count as stale.
func (c *cache) doubt() {
	if c != nil {
		c.doubted.Store(c.now().UnixNano())
	}
}
