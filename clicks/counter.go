package clicks

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// All, as an alias, stands for all links together. No link can have it.
const All = "*"

const (
	shards = 16
	// countBytes is what a count takes in memory with its alias and its place in a map, without
	// names and visitors, in bytes.
	countBytes = 640
	// changedCounts and fullBytes say when storage is asked to save: when more than this many
	// counts have begun to change, or when all counts take more than this many bytes.
	changedCounts = 10_000
	fullBytes     = 18 << 20
	// keptCounts and keptBytes are how much stays in memory after it is saved. A link whose count
	// is forgotten needs a new row when it is clicked again, and many links are clicked now and
	// then. While there are no clicks at all, only idleCounts and idleBytes stay.
	keptCounts = 20_000
	keptBytes  = 16 << 20
	idleCounts = 2_000
	idleBytes  = 2 << 20
	// maxBytes is how much memory all counts may take while nothing can be saved. New aliases,
	// names and visitors are dropped after that.
	maxBytes = 24 << 20
	// maxWaiting is how many visitors may wait for the key of their day. Further ones are not
	// counted.
	maxWaiting = 1 << 16
)

// Counter counts clicks in memory until they are saved. Its methods may be called concurrently,
// except Pending and whatever is done with its results: only one goroutine saves. The zero value is
// not ready; use NewCounter.
type Counter struct {
	// Soon receives a value when counts should be saved soon, because there are many of them, or
	// because visitors wait for a key.
	Soon chan struct{}

	shards  [shards]shard
	seed    maphash.Seed
	keys    atomic.Pointer[map[Day]Key]
	counts  atomic.Int64
	changed atomic.Int64 // counts that have begun to change since Pending
	bytes   atomic.Int64
	waiting atomic.Int64  // visitors who wait for a key
	rows    atomic.Uint32 // rows that were begun
}

type shard struct {
	mu     sync.Mutex
	counts map[countOf]*counting
	failed []*Pending
}

type countOf struct {
	alias string
	day   Day
}

// counting is a count that is still going on.
type counting struct {
	Count
	row uint32
	// changed is how often the count has changed so far, and saved how often it had when it was
	// last saved. If saved is 0, its row was never written.
	changed, saved uint64
	at             int64 // when it last changed, in Unix nanoseconds
	waiting        []Visitor
	bytes          int
}

// NewCounter returns a Counter that counts nothing yet.
func NewCounter() *Counter {
	c := &Counter{Soon: make(chan struct{}, 1), seed: maphash.MakeSeed()}
	for i := range c.shards {
		c.shards[i].counts = map[countOf]*counting{}
	}
	c.keys.Store(&map[Day]Key{})
	return c
}

// Click counts a click of a link, and adds it to the count of all links together. It returns false,
// and counts nothing, if there is no room for the link.
func (c *Counter) Click(alias string, k *Click) bool {
	s := c.shard(alias)
	s.mu.Lock()
	defer s.mu.Unlock()
	room := c.bytes.Load() < maxBytes
	count := c.count(s, alias, k.At, room)
	if count == nil {
		return false
	}
	c.grow(count, count.click(k, room))
	if k.Visitor != (Visitor{}) && room {
		c.visit(count, k)
	}
	c.count(s, All, k.At, true).click(&Click{At: k.At, Took: k.Took, Bot: k.Bot}, true)
	if c.bytes.Load() > fullBytes || c.changed.Load() > changedCounts {
		c.soon()
	}
	return true
}

func (c *Counter) soon() {
	select {
	case c.Soon <- struct{}{}:
	default:
	}
}

// Created counts links that were made.
func (c *Counter) Created(at time.Time, links int64) {
	s := &c.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	c.count(s, All, at, true).Created += links
}

func (c *Counter) shard(alias string) *shard {
	return &c.shards[maphash.String(c.seed, alias)%shards]
}

// count returns the count of an alias on the day of at, and notes that it changes. It begins a
// count if there is none, and returns nil if there is no room for that.
func (c *Counter) count(s *shard, alias string, at time.Time, room bool) *counting {
	of := countOf{alias, DayOf(at)}
	count := s.counts[of]
	if count == nil {
		if !room {
			return nil
		}
		of.alias = strings.Clone(alias)
		count = &counting{row: c.rows.Add(1)}
		s.counts[of] = count
		c.counts.Add(1)
		c.grow(count, countBytes)
	}
	if count.changed == count.saved {
		c.changed.Add(1)
	}
	count.changed++
	count.at = at.UnixNano()
	return count
}

func (c *Counter) grow(count *counting, bytes int) {
	if bytes != 0 {
		count.bytes += bytes
		c.bytes.Add(int64(bytes))
	}
}

func (c *Counter) visit(count *counting, k *Click) {
	if key, ok := (*c.keys.Load())[DayOf(k.At)]; ok {
		c.grow(count, count.Visitors.add(key.hash(k.Visitor)))
		return
	}
	if c.waiting.Add(1) > maxWaiting {
		c.waiting.Add(-1)
		return
	}
	count.waiting = append(count.waiting, k.Visitor)
	c.soon()
}

// SetKey makes a day's key known and counts the visitors who waited for it. It forgets the keys of
// days before yesterday.
func (c *Counter) SetKey(day Day, key Key, today Day) {
	keys := maps.Clone(*c.keys.Load())
	maps.DeleteFunc(keys, func(d Day, _ Key) bool { return d < today-1 })
	keys[day] = key
	c.keys.Store(&keys)
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for of, count := range s.counts {
			if of.day == day && count.waiting != nil {
				c.admit(count, &key)
				count.changed++
			}
		}
		s.mu.Unlock()
	}
}

// HasKey reports whether a day's key is known.
func (c *Counter) HasKey(day Day) bool {
	_, ok := (*c.keys.Load())[day]
	return ok
}

// Waiting reports whether visitors of a day wait for its key.
func (c *Counter) Waiting(day Day) bool {
	if c.waiting.Load() == 0 {
		return false
	}
	for i := range c.shards {
		if c.shards[i].waiting(day) {
			return true
		}
	}
	return false
}

func (s *shard) waiting(day Day) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for of, count := range s.counts {
		if of.day == day && count.waiting != nil {
			return true
		}
	}
	return false
}

// admit counts the visitors who waited for their day's key. If key is nil, it forgets them.
func (c *Counter) admit(count *counting, key *Key) {
	for _, v := range count.waiting {
		if key != nil {
			c.grow(count, count.Visitors.add(key.hash(v)))
		}
	}
	c.waiting.Add(-int64(len(count.waiting)))
	count.waiting = nil
}

// Pending is the count of one alias and day whose latest clicks are not saved. An alias and day may
// have several during the life of a process. Row tells them apart.
//
// A row may be overwritten only while no earlier write of it can still arrive. So a failed write is
// repeated unchanged, and later clicks are counted in another row. Counting also goes on in another
// row after a write that needed several tries.
type Pending struct {
	Alias    string
	Day      Day
	Row      uint32
	FailedAt time.Time // when its last write failed, which may still take effect; zero: none failed

	counter *Counter
	shard   *shard
	count   *counting
	copy    Count // what Take returned
	taken   uint64
}

// Pending returns all counts that have changed since they were saved. Counts with a failed write
// come first. Within each group, they are in the order in which their rows were begun.
func (c *Counter) Pending() []*Pending {
	c.changed.Store(0)
	var all []*Pending
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		all = append(all, s.failed...)
		s.mu.Unlock()
	}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for of, count := range s.counts {
			if count.changed != count.saved {
				all = append(all, &Pending{Alias: of.alias, Day: of.day, Row: count.row, counter: c,
					shard: s, count: count})
			}
		}
		s.mu.Unlock()
	}
	slices.SortFunc(all, func(a, b *Pending) int {
		return cmp.Or(cmp.Compare(a.turn(), b.turn()), cmp.Compare(a.Row, b.Row))
	})
	return all
}

// turn is 0 for a count with a failed write, and 1 for others.
func (p *Pending) turn() int {
	if p.FailedAt.IsZero() {
		return 1
	}
	return 0
}

// Take returns the count to be saved now. The caller must not change it.
func (p *Pending) Take() *Count {
	if !p.FailedAt.IsZero() {
		return &p.copy
	}
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	p.taken, p.copy = p.count.changed, p.count.copy()
	return &p.copy
}

// Written reports whether anything was written to the row, or may have been.
func (p *Pending) Written() bool {
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	return p.count.saved != 0 || !p.FailedAt.IsZero()
}

// Saved says that the count that Take returned is saved. retried says that the write needed several
// tries, so an earlier one may still arrive.
func (p *Pending) Saved(retried bool) {
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	switch {
	case !p.FailedAt.IsZero():
		p.drop()
	case retried:
		p.leave()
	default:
		p.count.saved = p.taken
	}
	p.copy = Count{}
}

// Failed says that a write failed at this time. Nobody knows whether the count that Take returned
// is saved, or still will be.
func (p *Pending) Failed(at time.Time) {
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	if p.FailedAt.IsZero() {
		p.leave()
		p.count = &counting{Count: p.copy}
		p.counter.counts.Add(1)
		p.counter.measure(p.count)
		p.shard.failed = append(p.shard.failed, p)
	}
	p.FailedAt = at
}

// leave moves what was counted since Take to a new row, in which counting goes on.
func (p *Pending) leave() {
	count := p.count
	if count.changed == p.taken && count.waiting == nil {
		p.drop()
		return
	}
	count.Count = count.lacks(&p.copy)
	count.row, count.saved = p.counter.rows.Add(1), 0
	if count.changed == p.taken {
		// There is nothing to write until the key of the waiting visitors is known.
		count.saved = count.changed
	}
	p.counter.measure(count)
}

// drop forgets a count.
func (p *Pending) drop() {
	if p.FailedAt.IsZero() {
		p.counter.drop(p.shard, countOf{p.Alias, p.Day})
		return
	}
	p.shard.failed = slices.DeleteFunc(p.shard.failed, func(f *Pending) bool { return f == p })
	p.counter.forget(p.count)
}

// Move moves the unsaved part of a count to the day of at. saved is the state that was saved.
func (c *Counter) Move(p *Pending, saved *Count, at time.Time) {
	s := p.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	lacking := p.count.lacks(saved)
	p.drop()
	if lacking.Clicks == 0 && lacking.Bots == 0 && lacking.Created == 0 {
		return
	}
	if saved.Clicks > 0 {
		lacking.Visitors = Visitors{} // the saved ones cannot be subtracted
	}
	lacking.Hours = [24]Hour{}
	lacking.Hours[at.UTC().Hour()] = Hour{uint32(lacking.Clicks), uint32(lacking.Bots)}
	today := c.count(s, p.Alias, at, true)
	for d, names := range lacking.Names {
		for _, n := range names {
			today.name(Dimension(d), n.Name, n.Clicks, true)
		}
		lacking.Names[d] = nil
	}
	today.Merge(&lacking)
	c.measure(today)
}

// Forget forgets counts that are saved: all counts of days before today, and the counts of today
// that changed longest ago, until the rest takes no more memory than it may. The limit is lower
// while there are no clicks, which idle says. Counts of yesterday with visitors who wait for its
// key are treated as counts of today.
func (c *Counter) Forget(today Day, idle bool) {
	maxCounts, maxBytes := int64(keptCounts), int64(keptBytes)
	if idle {
		maxCounts, maxBytes = idleCounts, idleBytes
	}
	few := func() bool { return c.counts.Load() <= maxCounts && c.bytes.Load() <= maxBytes }
	type saved struct {
		countOf
		shard *shard
		at    int64
	}
	var all []saved
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for of, count := range s.counts {
			switch {
			case count.changed != count.saved:
			case of.day < today-1, of.day < today && count.waiting == nil:
				c.drop(s, of)
			default:
				all = append(all, saved{of, s, count.at})
			}
		}
		s.mu.Unlock()
	}
	if few() {
		return
	}
	slices.SortFunc(all, func(a, b saved) int { return cmp.Compare(a.at, b.at) })
	for _, i := range all {
		if few() {
			return
		}
		i.shard.mu.Lock()
		if count := i.shard.counts[i.countOf]; count.changed == count.saved {
			c.drop(i.shard, i.countOf)
		}
		i.shard.mu.Unlock()
	}
}

// Bytes returns how much memory all counts take, in bytes.
func (c *Counter) Bytes() int64 { return c.bytes.Load() }

func (c *Counter) drop(s *shard, of countOf) {
	count := s.counts[of]
	c.admit(count, nil)
	c.forget(count)
	delete(s.counts, of)
}

func (c *Counter) forget(count *counting) {
	c.counts.Add(-1)
	c.grow(count, -count.bytes)
}

// measure updates the size of a count that has changed as a whole.
func (c *Counter) measure(count *counting) { c.grow(count, count.size()-count.bytes) }
