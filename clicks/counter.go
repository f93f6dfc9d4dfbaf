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

// All is in place of an alias for what became of all links together. No link can have it.
const All = "*"

const (
	shards = 16
	// countBytes is what a count takes in memory with its alias and its place in a map, but for names and visitors.
	countBytes = 640
	// fullCounts and fullBytes are when storage is asked to save what was counted, and then to forget the oldest of it; keptCounts
	// and keptBytes are what may stay, so that links that are clicked now and then need no new row each time; and maxBytes is what
	// it may take while nothing can be saved. All that is new after that is dropped.
	fullCounts = 10_000
	fullBytes  = 10 << 20
	keptCounts = 5_000
	keptBytes  = 6 << 20
	maxBytes   = 20 << 20
	// maxWaiting is how many visitors may wait for the key of their day.
	maxWaiting = 1 << 16
)

// Counter counts clicks in memory, until they are saved. Its methods may be called concurrently, but for Pending and what
// is done with its result: one goroutine saves. The zero value is not ready: see NewCounter.
type Counter struct {
	// Soon is sent to when what was counted should be saved soon: there is a lot of it, or visitors wait for a key.
	Soon chan struct{}

	shards  [shards]shard
	seed    maphash.Seed
	keys    atomic.Pointer[map[Day]Key]
	counts  atomic.Int64
	bytes   atomic.Int64
	waiting atomic.Int64  // visitors
	rows    atomic.Uint32 // that were begun
}

type shard struct {
	mu     sync.Mutex
	counts map[countOf]*counting
}

type countOf struct {
	alias string
	day   Day
}

// counting is a count that is going on.
type counting struct {
	Count
	row            uint32
	changed, saved uint32 // how often it changed, until now and until it was saved
	at             int64  // when it last changed, in Unix nanoseconds
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

// Click counts a click of a link, and of all links together. It returns false if there is no room for that.
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
	if c.bytes.Load() > fullBytes || c.counts.Load() > fullCounts {
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

// count returns the count of an alias on the day of at, which is about to change, or nil if there is none and no room.
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

// SetKey makes a day's key known, and those of days before yesterday forgotten.
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

// admit counts the visitors that waited for their day's key. Without a key they are forgotten.
func (c *Counter) admit(count *counting, key *Key) {
	for _, v := range count.waiting {
		if key != nil {
			c.grow(count, count.Visitors.add(key.hash(v)))
		}
	}
	c.waiting.Add(-int64(len(count.waiting)))
	count.waiting = nil
}

// Pending is the count of one alias and day, of which the last clicks are not saved. One alias and day may have several in
// the life of a process, one after the other, and Row tells them apart.
type Pending struct {
	Alias string
	Day   Day
	Row   uint32

	shard *shard
	count *counting
	taken uint32
}

// Pending returns all counts that changed since they were saved.
func (c *Counter) Pending() []*Pending {
	var all []*Pending
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for of, count := range s.counts {
			if count.changed != count.saved {
				all = append(all, &Pending{Alias: of.alias, Day: of.day, Row: count.row, shard: s, count: count})
			}
		}
		s.mu.Unlock()
	}
	return all
}

// Take returns a copy of the count as it is now.
func (p *Pending) Take() Count {
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	p.taken = p.count.changed
	return p.count.copy()
}

// Saved says that what Take returned is saved.
func (p *Pending) Saved() {
	p.shard.mu.Lock()
	defer p.shard.mu.Unlock()
	p.count.saved = p.taken
}

// Move moves what is not saved of a count, whose saved state is given, to the day of at.
func (c *Counter) Move(p *Pending, saved *Count, at time.Time) {
	s := p.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	lacking := p.count.lacks(saved, at)
	c.drop(s, countOf{p.Alias, p.Day})
	if lacking.Total == (Total{Last: lacking.Last}) {
		return
	}
	today := c.count(s, p.Alias, at, true)
	for d := range lacking.Names {
		for _, n := range lacking.Names[d] {
			c.grow(today, today.name(Dimension(d), n.Name, n.Clicks, true))
		}
		lacking.Names[d] = nil
	}
	before := today.Visitors.bytes
	today.Merge(&lacking)
	c.grow(today, today.Visitors.bytes-before)
}

// Forget forgets what is saved: what is of days before today, and of today the counts that changed the longest ago, as far as
// they take more memory than they may.
func (c *Counter) Forget(today Day) {
	type idle struct {
		countOf
		shard *shard
		at    int64
	}
	var all []idle
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		for of, count := range s.counts {
			switch {
			case count.changed != count.saved:
			case of.day < today:
				c.drop(s, of)
			default:
				all = append(all, idle{of, s, count.at})
			}
		}
		s.mu.Unlock()
	}
	if c.counts.Load() <= keptCounts && c.bytes.Load() <= keptBytes {
		return
	}
	slices.SortFunc(all, func(a, b idle) int { return cmp.Compare(a.at, b.at) })
	for _, i := range all {
		if c.counts.Load() <= keptCounts && c.bytes.Load() <= keptBytes {
			return
		}
		i.shard.mu.Lock()
		if count := i.shard.counts[i.countOf]; count.changed == count.saved {
			c.drop(i.shard, i.countOf)
		}
		i.shard.mu.Unlock()
	}
}

func (c *Counter) drop(s *shard, of countOf) {
	count := s.counts[of]
	c.admit(count, nil)
	c.counts.Add(-1)
	c.bytes.Add(-int64(count.bytes))
	delete(s.counts, of)
}
