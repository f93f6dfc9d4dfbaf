package clicks

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// All is the name under which the clicks of all links together are counted. No link can have it.
const All = "*"

// Of says whose clicks a Count has: a link's, an owner's or All. A link that is replaced by another
// one with its alias, or that gets another owner, gets another Of.
type Of struct {
	Name        string // an alias, what OwnerName returns, or All
	CountedFrom Day    // the link's; DayOf(time.Time{}) if it has none, for owners and for All
	Owner       string // the link's; "": nobody
}

// always is the CountedFrom of owners and of All.
var always = DayOf(time.Time{})

// OwnerName returns the name under which the clicks of all links of an owner together are counted.
// It begins with an @, which no alias does.
func OwnerName(owner string) string {
	sum := sha256.Sum256([]byte(owner))
	return "@" + hex.EncodeToString(sum[:16])
}

const (
	stripes = 16
	// tries is how many stripes a click tries before it waits for one. So many goroutines count
	// at the same time without waiting, whichever links are clicked.
	tries = 4
	// countBytes is what a count takes in memory with its place in a map, without names, visitors
	// and what it is of, in bytes.
	countBytes = 768
	// waitingBytes is what a visitor takes in memory who waits for the key of a day, in bytes.
	waitingBytes = 128
	// begunCounts and fullBytes say when storage is asked to save: when more than this many counts
	// have begun to change, or when all counts take more than this many bytes.
	begunCounts = 10_000
	fullBytes   = 18 << 20
	// keptCounts and keptBytes are how much stays in memory after it is saved. A link whose count
	// is forgotten needs a new row when it is clicked again, and many links are clicked now and
	// then. While there are no clicks at all, only idleCounts and idleBytes stay.
	keptCounts = 20_000
	keptBytes  = 16 << 20
	idleCounts = 2_000
	idleBytes  = 2 << 20
	// maxBytes is how much memory all counts may take while nothing can be saved. New links, names
	// and visitors are dropped after that. Clicks of known links may take knownBytes more until
	// Pending adds them to what is known.
	maxBytes   = 24 << 20
	knownBytes = 4 << 20
	// maxWaiting is how many visitors may wait for the key of their day. Further ones are not
	// counted.
	maxWaiting = 1 << 15
)

// Counter counts clicks in memory until they are saved. Click, Created, HasKey and Bytes may be
// called concurrently with everything. What else it has is for one goroutine, which saves; only the
// results of one call of Pending may be used by several goroutines. The zero value is not ready;
// use NewCounter.
//
// A click is added to a fresh count of its link, in one of several stripes. Pending takes the fresh
// counts away, and adds each to the count of the link, of its owner and of All.
type Counter struct {
	// Soon receives a value when counts should be saved soon, because there are many of them, or
	// because visitors wait for a key.
	Soon chan struct{}

	stripes [stripes]stripe
	seed    maphash.Seed
	pool    sync.Pool // of *counting: fresh counts that were added to others
	keys    atomic.Pointer[map[Day]Key]
	begun   atomic.Int64 // fresh counts since Pending
	bytes   atomic.Int64
	waiting atomic.Int64 // visitors who wait for a key

	// mu guards what follows. A goroutine that holds it locks no stripe.
	mu       sync.Mutex
	counts   map[countOf]*counting
	failed   map[*Pending]struct{}
	visitors map[Day][]waiters // those that Pending found waiting for a key
	rows     uint32            // rows that were begun
}

// stripe is as large as two cache lines, so that stripes do not slow each other down.
type stripe struct {
	mu sync.Mutex
	// fresh has the fresh counts by a hash of their names. Those with the same hash are a list.
	fresh map[uint64]*counting
	last  int // how many hashes Pending took the last time
	_     [104]byte
}

type countOf struct {
	Of
	day Day
}

// counting is a count that is still going on.
type counting struct {
	of   countOf
	next *counting // only while it is fresh
	Count
	row     uint32    // 0: it is fresh
	unsaved bool      // it has changed since it was saved
	sent    bool      // a write of it was tried
	saved   int64     // the clicks and bots that are saved
	at      int64     // when it last changed, in Unix nanoseconds
	waiting []Visitor // only while it is fresh
	bytes   int
}

// waiters are visitors who wait for a key.
type waiters struct {
	of       Of
	visitors []Visitor
}

// NewCounter returns a Counter that counts nothing yet.
func NewCounter() *Counter {
	c := &Counter{Soon: make(chan struct{}, 1), seed: maphash.MakeSeed(),
		counts: map[countOf]*counting{}, failed: map[*Pending]struct{}{},
		visitors: map[Day][]waiters{}}
	c.pool.New = func() any { return new(counting) }
	for i := range c.stripes {
		c.stripes[i].fresh = map[uint64]*counting{}
	}
	c.keys.Store(&map[Day]Key{})
	return c
}

// Click counts a click of a link, also for its owner and for All. It returns false, and counts
// nothing, if there is no room for the link. It does not wait for other clicks of a popular link.
func (c *Counter) Click(of Of, k *Click) bool {
	day := DayOf(k.At)
	visits := k.Visitor != (Visitor{})
	key, known := (*c.keys.Load())[day]
	var visitor uint64
	if visits && known {
		visitor = key.hash(k.Visitor)
	}
	bytes := c.bytes.Load()
	room := bytes < maxBytes
	hash := maphash.String(c.seed, of.Name)
	s := c.lock(hash)
	defer s.mu.Unlock()
	count := c.fresh(s, hash, countOf{of, day}, room)
	if count == nil {
		return false
	}
	count.at = k.At.UnixNano()
	grown := count.click(k, room)
	switch {
	case !visits || !room:
	case known:
		grown += count.Visitors.add(visitor)
	case c.waiting.Add(1) > maxWaiting:
		c.waiting.Add(-1)
	default:
		count.waiting = append(count.waiting, k.Visitor)
		grown += waitingBytes
		c.soon()
	}
	c.grow(count, grown)
	if bytes > fullBytes {
		c.soon()
	}
	return true
}

// lock locks a stripe for a hash: always the same one, except while that is locked.
func (c *Counter) lock(hash uint64) *stripe {
	for i := range uint64(tries) {
		if s := &c.stripes[(hash+i)%stripes]; s.mu.TryLock() {
			return s
		}
	}
	s := &c.stripes[hash%stripes]
	s.mu.Lock()
	return s
}

// fresh returns the fresh count in s, by the hash of its name. It begins one if there is none, and
// returns nil if there is no room for that.
func (c *Counter) fresh(s *stripe, hash uint64, of countOf, room bool) *counting {
	first := s.fresh[hash]
	for count := first; count != nil; count = count.next {
		if count.of == of {
			return count
		}
	}
	if !room && !c.roomForKnown(of) {
		return nil
	}
	of.Name = strings.Clone(of.Name) // it may be a part of a large request
	count := c.pool.Get().(*counting)
	count.of, count.next = of, first
	s.fresh[hash] = count
	c.grow(count, count.size())
	if c.begun.Add(1) > begunCounts {
		c.soon()
	}
	return count
}

func (c *Counter) roomForKnown(of countOf) bool {
	if c.bytes.Load() >= maxBytes+knownBytes {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[of] != nil
}

func (c *Counter) soon() {
	select {
	case c.Soon <- struct{}{}:
	default:
	}
}

// Created counts links that were made.
func (c *Counter) Created(at time.Time, links int64) {
	s := c.lock(0)
	defer s.mu.Unlock()
	count := c.fresh(s, 0, countOf{Of{Name: All, CountedFrom: always}, DayOf(at)}, true)
	count.Created += links
	count.at = at.UnixNano()
}

func (c *Counter) grow(count *counting, bytes int) {
	if bytes != 0 {
		count.bytes += bytes
		c.bytes.Add(int64(bytes))
	}
}

// size returns how much memory the count takes, in bytes. A fresh one includes what the count of
// its owner will take.
func (c *counting) size() int {
	bytes := c.Count.size() + len(c.of.Name) + len(c.of.Owner) + waitingBytes*len(c.waiting)
	if c.row == 0 && c.of.Owner != "" {
		bytes += countBytes
	}
	return bytes
}

// SetKey makes a day's key known. Pending counts the visitors who waited for it. SetKey forgets the
// keys of days before yesterday.
func (c *Counter) SetKey(day Day, key Key, today Day) {
	keys := maps.Clone(*c.keys.Load())
	maps.DeleteFunc(keys, func(d Day, _ Key) bool { return d < today-1 })
	keys[day] = key
	c.keys.Store(&keys)
}

// HasKey reports whether a day's key is known.
func (c *Counter) HasKey(day Day) bool {
	_, ok := (*c.keys.Load())[day]
	return ok
}

// Waiting reports whether visitors of a day waited for its key when Pending was last called.
func (c *Counter) Waiting(day Day) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.visitors[day]) > 0
}

// Pending is a count whose latest clicks are not saved. A link, an owner or All may have several of
// one day during the life of a process. Each has another Row.
//
// A row may be overwritten only while no earlier write of it can still arrive. So a failed write is
// repeated unchanged, and later clicks are counted in another row. Counting also goes on in another
// row after a write that needed several tries.
type Pending struct {
	Of
	Day      Day
	Row      uint32
	FailedAt time.Time // when its last write failed, which may still take effect; zero: none failed

	counter *Counter
	count   *counting
}

// Pending returns all counts that have changed since they were saved. Counts with a failed write
// come first. Within each group, they are in the order in which their rows were begun. The results
// of earlier calls must not be used any more.
func (c *Counter) Pending() []*Pending {
	fresh := c.takeFresh()
	c.mu.Lock()
	defer c.mu.Unlock()
	owners := map[string]string{} // their names
	for _, hashes := range fresh {
		for _, count := range hashes {
			for count != nil {
				next := count.next
				count.next = nil
				c.add(count, owners)
				count = next
			}
		}
	}
	c.admit(owners)
	byRow := func(a, b *Pending) int { return cmp.Compare(a.Row, b.Row) }
	failed := slices.SortedFunc(maps.Keys(c.failed), byRow)
	var others []*Pending
	for _, count := range c.counts {
		if count.unsaved {
			others = append(others, &Pending{Of: count.of.Of, Day: count.of.day, Row: count.row,
				counter: c, count: count})
		}
	}
	slices.SortFunc(others, byRow)
	return append(failed, others...)
}

// takeFresh takes the fresh counts out of all stripes.
func (c *Counter) takeFresh() (fresh [stripes]map[uint64]*counting) {
	c.begun.Store(0)
	for i := range c.stripes {
		s := &c.stripes[i]
		empty := make(map[uint64]*counting, s.last) // probably as many come again
		s.mu.Lock()
		fresh[i], s.fresh = s.fresh, empty
		s.mu.Unlock()
		s.last = len(fresh[i])
	}
	return fresh
}

// add adds a fresh count to the counts of its link, its owner and All.
func (c *Counter) add(fresh *counting, owners map[string]string) {
	of := fresh.of
	c.grow(fresh, -fresh.bytes)
	if of.Name != All {
		all := c.count(countOf{Of{Name: All, CountedFrom: always}, of.day}, fresh.at)
		all.Total.Add(fresh.Total)
		all.addHours(&fresh.Count)
	}
	if of.Owner != "" {
		// Many links may have rules of the same name, which have nothing else in common.
		targets := fresh.Names[Targets]
		fresh.Names[Targets] = nil
		c.fold(c.count(ownerOf(of, owners), fresh.at), &fresh.Count)
		fresh.Names[Targets] = targets
	}
	if len(fresh.waiting) > 0 {
		c.visitors[of.day] = append(c.visitors[of.day], waiters{of.Of, fresh.waiting})
		c.bytes.Add(waitingBytes * int64(len(fresh.waiting)))
		fresh.waiting = nil
	}
	if c.counts[of] == nil {
		c.begin(fresh)
		fresh.unsaved = true
		return
	}
	c.fold(c.count(of, fresh.at), &fresh.Count)
	fresh.reset()
	c.pool.Put(fresh)
}

func ownerOf(of countOf, owners map[string]string) countOf {
	name, ok := owners[of.Owner]
	if !ok {
		name = OwnerName(of.Owner)
		owners[of.Owner] = name
	}
	return countOf{Of{Name: name, CountedFrom: always}, of.day}
}

// begin makes a count the one that counts go on in.
func (c *Counter) begin(count *counting) {
	c.rows++
	count.row = c.rows
	c.counts[count.of] = count
	c.grow(count, count.size()-count.bytes)
}

// count returns a count, which changes. It begins one if there is none.
func (c *Counter) count(of countOf, at int64) *counting {
	count := c.counts[of]
	if count == nil {
		count = &counting{of: of}
		c.begin(count)
	}
	count.unsaved, count.at = true, max(count.at, at)
	return count
}

// fold adds a count to another. Without room, names and visitors are dropped.
func (c *Counter) fold(count *counting, other *Count) {
	c.grow(count, count.fold(other, c.bytes.Load() < maxBytes))
}

// reset makes a count fresh again. It keeps the memory of its names, unless that is so large that
// the next count would take more than size says.
func (c *counting) reset() {
	names := c.Names
	*c = counting{}
	for d := range names {
		if cap(names[d]) <= 2 {
			clear(names[d])
			c.Names[d] = names[d][:0]
		}
	}
}

// admit counts the visitors who waited for a key that is known now.
func (c *Counter) admit(owners map[string]string) {
	for day, all := range c.visitors {
		key, ok := (*c.keys.Load())[day]
		if !ok {
			continue
		}
		c.forgetWaiting(day)
		for _, w := range all {
			var other Count
			for _, v := range w.visitors {
				other.Visitors.add(key.hash(v))
			}
			of := countOf{w.of, day}
			c.fold(c.count(of, 0), &other)
			if w.of.Owner != "" {
				c.fold(c.count(ownerOf(of, owners), 0), &other)
			}
		}
	}
}

func (c *Counter) forgetWaiting(day Day) {
	n := 0
	for _, w := range c.visitors[day] {
		n += len(w.visitors)
	}
	delete(c.visitors, day)
	c.waiting.Add(-int64(n))
	c.bytes.Add(-waitingBytes * int64(n))
}

// Take returns the count to be saved now. The caller must not change it. It stays the same until
// Pending or Move is called.
func (p *Pending) Take() *Count { return &p.count.Count }

// Sent reports whether a write of the row was tried, with success or without.
func (p *Pending) Sent() bool {
	p.counter.mu.Lock()
	defer p.counter.mu.Unlock()
	return p.count.sent
}

// Saved says that the count that Take returned is saved. retried says that the write needed several
// tries, so an earlier one may still arrive.
func (p *Pending) Saved(retried bool) {
	p.counter.mu.Lock()
	defer p.counter.mu.Unlock()
	if retried || !p.FailedAt.IsZero() {
		p.drop()
		return
	}
	p.count.unsaved, p.count.sent = false, true
	p.count.saved = p.count.Clicks + p.count.Bots
}

// Failed says that a write failed at this time. The count that Take returned may be saved, now or
// later.
func (p *Pending) Failed(at time.Time) {
	p.counter.mu.Lock()
	defer p.counter.mu.Unlock()
	if p.FailedAt.IsZero() {
		p.count.sent = true
		delete(p.counter.counts, p.count.of)
		p.counter.failed[p] = struct{}{}
	}
	p.FailedAt = at
}

// Drop forgets a count that can no longer be saved. It returns how many clicks of people and bots
// are lost, unless a write that has failed was applied.
func (p *Pending) Drop() (lost int64) {
	p.counter.mu.Lock()
	defer p.counter.mu.Unlock()
	p.drop()
	return p.count.Clicks + p.count.Bots - p.count.saved
}

func (p *Pending) drop() {
	if p.FailedAt.IsZero() {
		delete(p.counter.counts, p.count.of)
	} else {
		delete(p.counter.failed, p)
	}
	p.counter.grow(p.count, -p.count.bytes)
}

// Move moves the unsaved part of a count to the day of at. saved is the state that was saved. What
// is moved is not added to owners and to All, whose own counts are moved like others.
func (c *Counter) Move(p *Pending, saved *Count, at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
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
	today := c.count(countOf{p.Of, DayOf(at)}, at.UnixNano())
	c.grow(today, today.fold(&lacking, true))
}

// Forget forgets counts that are saved: all counts of days before today, and the counts of today
// that changed longest ago, until the rest takes no more memory than it may. The limit is lower
// while there are no clicks, which idle says. It forgets visitors of days before yesterday who wait
// for a key.
func (c *Counter) Forget(today Day, idle bool) {
	maxCounts, maxBytes := keptCounts, int64(keptBytes)
	if idle {
		maxCounts, maxBytes = idleCounts, idleBytes
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for day := range c.visitors {
		if day < today-1 {
			c.forgetWaiting(day)
		}
	}
	few := func() bool {
		return len(c.counts)+len(c.failed) <= maxCounts && c.bytes.Load() <= maxBytes
	}
	forget := func(count *counting) {
		delete(c.counts, count.of)
		c.grow(count, -count.bytes)
	}
	var all []*counting
	for _, count := range c.counts {
		switch {
		case count.unsaved:
		case count.of.day < today:
			forget(count)
		default:
			all = append(all, count)
		}
	}
	if few() {
		return
	}
	slices.SortFunc(all, func(a, b *counting) int { return cmp.Compare(a.at, b.at) })
	for _, count := range all {
		if few() {
			return
		}
		forget(count)
	}
}

// Bytes returns how much memory all counts take, in bytes.
func (c *Counter) Bytes() int64 { return c.bytes.Load() }
