package clicks

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// rowOf identifies the row in which storage keeps a Pending.
type rowOf struct {
	Of
	day Day
	row uint32
}

// rows are the saved counts.
type rows map[rowOf]Count

func (r rows) write(p *Pending) rowOf {
	of := rowOf{p.Of, p.Day, p.Row}
	r[of] = p.Take().copy()
	return of
}

// save saves all pending counts, and tells the counter so.
func (r rows) save(c *Counter) {
	for _, p := range c.Pending() {
		r.write(p)
		p.Saved(false)
	}
}

// of returns all rows of a name, merged.
func (r rows) of(name string) *Count {
	all := new(Count)
	for of, count := range r {
		if of.Name == name {
			all.Merge(&count)
		}
	}
	return all
}

// whose returns whose clicks those of an alias without an owner are.
func whose(alias string) Of { return Of{Name: alias, CountedFrom: always} }

func (c *Counter) mustClick(t *testing.T, alias string, k Click) {
	t.Helper()
	if !c.Click(whose(alias), &k) {
		t.Fatalf("there is no room for a click of %s", alias)
	}
}

// kept returns how many counts there are besides fresh ones, without those of All.
func (c *Counter) kept() (n int) {
	for of := range c.counts {
		if of.Name != All {
			n++
		}
	}
	return n
}

// consistent compares the sums that the counter keeps with its counts.
func (c *Counter) consistent(t *testing.T) {
	t.Helper()
	var bytes, waiting, begun int
	look := func(count *counting) {
		bytes += count.bytes
		waiting += len(count.waiting)
		if count.bytes != count.size() {
			t.Errorf("a count takes %d bytes, and is said to take %d", count.size(), count.bytes)
		}
	}
	for i := range c.stripes {
		for _, count := range c.stripes[i].fresh {
			for ; count != nil; count = count.next {
				begun++
				look(count)
			}
		}
	}
	for _, count := range c.counts {
		look(count)
	}
	for p := range c.failed {
		look(p.count)
	}
	for _, all := range c.visitors {
		for _, w := range all {
			bytes += waitingBytes * len(w.visitors)
			waiting += len(w.visitors)
		}
	}
	if int64(bytes) != c.bytes.Load() || int64(waiting) != c.waiting.Load() ||
		int64(begun) != c.begun.Load() {
		t.Errorf("%d bytes, %d visitors wait, %d fresh counts; its sums say %d, %d, %d", bytes,
			waiting, begun, c.bytes.Load(), c.waiting.Load(), c.begun.Load())
	}
}

func TestCounter(t *testing.T) {
	c, saved := NewCounter(), rows{}
	c.SetKey(day, Key{1}, day)
	c.mustClick(t, "one", person(1, noon, "example.org"))
	c.mustClick(t, "one", person(2, noon))
	c.mustClick(t, "two", person(1, noon.Add(time.Minute)))
	c.mustClick(t, "two", Click{At: noon.Add(time.Hour), Bot: true, Took: time.Hour})
	c.mustClick(t, "one", person(1, noon.Add(24*time.Hour)))
	c.Created(noon, 3)
	saved.save(c)
	if got := c.Pending(); len(got) != 0 {
		t.Errorf("pending: %v", got)
	}
	for alias, want := range map[string]struct {
		clicks, bots, created,
		visitors int64
	}{"one": {3, 0, 0, 2}, "two": {1, 1, 0, 1}, All: {4, 1, 3, 0}} {
		got := saved.of(alias)
		if got.Clicks != want.clicks || got.Bots != want.bots || got.Created != want.created ||
			got.Visitors.Estimate() != want.visitors {
			t.Errorf("%s: got %+v with %d visitors, want %+v", alias, got.Total,
				got.Visitors.Estimate(), want)
		}
		if got.Names[Referrers] != nil && alias == All {
			t.Errorf("all together have names: %v", got.Names)
		}
	}
	for of := range saved {
		if of.day != day && of.day != day+1 || of.Name == "two" && of.day != day {
			t.Errorf("a row of %v", of)
		}
	}
	// Later clicks are counted in the same rows.
	before := len(saved)
	c.mustClick(t, "two", person(3, noon))
	if saved.save(c); len(saved) != before || saved.of("two").Clicks != 2 {
		t.Errorf("%d rows became %d, with %+v", before, len(saved), saved.of("two").Total)
	}
	c.consistent(t)
}

// In the end, what was saved is what was counted, whichever writes fail, and however late a try
// takes effect.
func TestEveryWriteMayFailOrArriveLate(t *testing.T) {
	const days = 3
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c, saved := NewCounter(), rows{}
		type try struct {
			of    rowOf
			count Count
		}
		var late []try
		arrive := func() {
			i := rng.IntN(len(late))
			saved[late[i].of] = late[i].count
			late = slices.Delete(late, i, i+1)
		}
		all := new(Count)
		want := map[string]*Count{All: all}
		click := func() {
			of := whose(fmt.Sprint("a", rng.IntN(4)))
			names := []string{of.Name}
			if of.Name != "a0" {
				of.Owner = fmt.Sprint("o", rng.IntN(2)) // a link may get another one
				names = append(names, OwnerName(of.Owner))
			}
			k := person(rng.IntN(10), noon.Add(time.Duration(rng.IntN(days)*24)*time.Hour),
				fmt.Sprint(rng.IntN(4)))
			if !c.Click(of, &k) {
				t.Fatal("there is no room")
			}
			for _, name := range names {
				if want[name] == nil {
					want[name] = new(Count)
				}
				want[name].click(&k, true)
				want[name].Visitors.add((&Key{}).hash(k.Visitor))
			}
			all.click(&Click{At: k.At, Took: k.Took}, true)
		}
		for range 40 {
			for range rng.IntN(8) {
				click()
			}
			for _, p := range c.Pending() {
				write := try{rowOf{p.Of, p.Day, p.Row}, p.Take().copy()}
				if rng.IntN(2) == 0 {
					click() // meanwhile
				}
				switch rng.IntN(6) {
				case 0: // no write is tried
				case 1: // no response; perhaps applied
					if rng.IntN(2) == 0 {
						saved[write.of] = write.count
					}
					p.Failed(noon)
				case 2: // no response; applied later
					late = append(late, write)
					p.Failed(noon)
				case 3: // applied at the second try; the first one arrives later
					late = append(late, write)
					saved[write.of] = write.count
					p.Saved(true)
				default:
					saved[write.of] = write.count
					p.Saved(false)
				}
			}
			for len(late) > 0 && rng.IntN(3) == 0 {
				arrive()
			}
			switch rng.IntN(10) {
			case 0:
				// visitors of yesterday may still wait for their key
				c.Forget(day+Day(rng.IntN(2)), false)
			case 1:
				c.SetKey(day+Day(rng.IntN(days)), Key{}, day) // here all days have the same key
			}
			c.consistent(t)
		}
		for d := range Day(days) {
			c.SetKey(day+d, Key{}, day)
		}
		saved.save(c)
		for len(late) > 0 {
			arrive()
		}
		for name, want := range want {
			if got := form(saved.of(name)); got != form(want) {
				t.Fatalf("seed %d, %s: got\n%s, want\n%s", seed, name, got, form(want))
			}
		}
		if c.consistent(t); len(c.Pending()) != 0 {
			t.Fatalf("seed %d: something is pending when all is saved", seed)
		}
	}
}

// Clicks come while counts are saved, forgotten and moved, and keys are made. In the end, each
// click for which Click returned true is once in the saved rows of its link, its owner and All.
func TestClicksWhileSaving(t *testing.T) {
	const aliases, clickers, each = 50, 8, 10_000
	c, saved := NewCounter(), rows{}
	var clicking sync.WaitGroup
	var clicked [clickers]map[Of]int64
	for i := range clickers {
		clicked[i] = map[Of]int64{}
		clicking.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 7))
			for n := range each {
				of := whose("popular")
				if n%2 == 0 {
					of.Name = fmt.Sprint(rng.IntN(aliases))
					of.CountedFrom += Day(rng.IntN(2))
				}
				if owner := rng.IntN(3); owner > 0 {
					of.Owner = fmt.Sprint("owner", owner)
				}
				k := person(n, noon.Add(time.Duration(rng.IntN(2)*24)*time.Hour), fmt.Sprint(n%60))
				if c.Click(of, &k) {
					clicked[i][of]++
				}
				c.Created(noon, 1)
			}
		})
	}
	var done atomic.Bool
	go func() { clicking.Wait(); done.Store(true) }()
	rng := rand.New(rand.NewPCG(8, 9))
	moved := rows{}
	for n := 0; !done.Load() || len(c.Pending()) > 0; n++ {
		pending := c.Pending()
		if n%50 == 9 { // move the unsaved clicks of the first day to the second
			for _, p := range pending {
				if p.Day == day {
					there := saved[rowOf{p.Of, p.Day, p.Row}]
					c.Move(p, &there, noon.Add(24*time.Hour))
				}
			}
			continue
		}
		var saving sync.WaitGroup
		for part := range slices.Chunk(pending, 20) {
			outcome := rng.IntN(4)
			for _, p := range part {
				of := saved.write(p)
				if outcome == 1 {
					moved[of] = saved[of] // an older try, which arrives last
				}
			}
			saving.Go(func() {
				for _, p := range part {
					switch outcome {
					case 0:
						p.Failed(noon)
					case 1:
						p.Saved(true)
					default:
						p.Saved(false)
					}
				}
			})
		}
		saving.Wait()
		switch {
		case n%10 == 3:
			c.Forget(day+1, false)
		case n == 20:
			c.SetKey(day, Key{1}, day)
		case n == 25:
			c.SetKey(day+1, Key{2}, day)
		}
	}
	for of, count := range moved {
		saved[of] = count
	}
	want, got := map[Of]int64{}, map[Of]int64{}
	for i := range clicked {
		for of, n := range clicked[i] {
			want[of] += n
			want[whose(All)] += n
			if of.Owner != "" {
				want[whose(OwnerName(of.Owner))] += n
			}
		}
	}
	apart := new(Count) // the counts of links
	for of, count := range saved {
		got[of.Of] += count.Clicks
		if of.Name == All {
			continue
		}
		if sum(count.Names[Referrers]) != count.Clicks {
			t.Errorf("%v: %d clicks with names of %d", of, sum(count.Names[Referrers]),
				count.Clicks)
		}
		if of.Name[0] != '@' {
			apart.Merge(&count)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("saved %v\nwant %v", got, want)
	}
	all := saved.of(All)
	if all.Created != clickers*each || all.Hours != apart.Hours || all.Took != apart.Took {
		t.Errorf("%d links were made, want %d; took %v or %v, at\n%v or\n%v", all.Created,
			clickers*each, all.Took, apart.Took, all.Hours, apart.Hours)
	}
	c.consistent(t)
}

// one returns the only pending count of a name.
func (c *Counter) one(t *testing.T, name string) *Pending {
	t.Helper()
	var found *Pending
	for _, p := range c.Pending() {
		if p.Name != name {
			continue
		}
		if found != nil {
			t.Fatalf("%s is pending twice", name)
		}
		found = p
	}
	if found == nil {
		t.Fatalf("%s is not pending", name)
	}
	return found
}

func TestOwnerName(t *testing.T) {
	if got := OwnerName("abc"); got != "@ba7816bf8f01cfea414140de5dae2223" {
		t.Errorf("got %s", got)
	}
}

// A link that takes over an alias, or that gets another owner, does not go on in an earlier row.
func TestAnotherLinkGetsAnotherRow(t *testing.T) {
	c, saved := NewCounter(), rows{}
	link := Of{Name: "a", CountedFrom: day - 1, Owner: "one"}
	other, given := link, link
	other.CountedFrom++
	given.Owner = "two"
	for _, of := range []Of{link, other, link, given} {
		if !c.Click(of, &Click{At: noon}) {
			t.Fatal("there is no room")
		}
	}
	seen := map[uint32]bool{}
	for _, p := range c.Pending() {
		if seen[p.Row] {
			t.Errorf("row %d is there twice", p.Row)
		}
		seen[p.Row] = true
		saved.write(p)
		p.Saved(false)
	}
	got := map[Of]int64{}
	for of, count := range saved {
		got[of.Of] += count.Clicks
	}
	if want := map[Of]int64{link: 2, other: 1, given: 1, whose(OwnerName("one")): 3,
		whose(OwnerName("two")): 1, whose(All): 4}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFailedWritesComeFirst(t *testing.T) {
	c := NewCounter()
	for i := range 50 {
		c.mustClick(t, fmt.Sprint(i), Click{At: noon})
	}
	for i, p := range c.Pending() {
		if i%3 == 0 {
			p.Failed(noon)
		}
	}
	for i := range 50 {
		c.mustClick(t, fmt.Sprint(i), Click{At: noon})
	}
	pending := c.Pending()
	if failed := slices.IndexFunc(pending, func(p *Pending) bool {
		return p.FailedAt.IsZero()
	}); failed != 17 {
		t.Errorf("%d counts with a failed write are first, want 17", failed)
	}
	for i, p := range pending[1:] {
		if last := pending[i]; p.Row < last.Row && last.FailedAt.IsZero() == p.FailedAt.IsZero() {
			t.Errorf("row %d comes after %d", p.Row, last.Row)
		}
	}
}

func TestSent(t *testing.T) {
	c := NewCounter()
	click := func(want bool) *Pending {
		t.Helper()
		c.mustClick(t, "a", Click{At: noon})
		p := c.one(t, "a")
		if p.Take(); p.Sent() != want {
			t.Errorf("row %d: sent is %t", p.Row, !want)
		}
		return p
	}
	click(false) // taken, but not sent
	click(false).Saved(false)
	click(true).Saved(true)
	p := click(false) // in a row of its own
	p.Failed(noon)
	if !p.Sent() {
		t.Error("a failed write was not sent")
	}
	for _, p := range c.Pending() {
		if p.Name == "a" {
			p.Saved(false)
		}
	}
	click(false)
}

func TestDrop(t *testing.T) {
	c := NewCounter()
	for _, fail := range []bool{false, true} {
		c.mustClick(t, "a", Click{At: noon})
		p := c.one(t, "a")
		if fail {
			p.Failed(noon)
		}
		p.Drop()
		for _, p := range c.Pending() {
			if p.Name == "a" {
				t.Errorf("a dropped count is pending: %+v", p)
			}
		}
		c.consistent(t)
	}
}

// A click does not wait while the stripe of its link is locked.
func TestClickTakesAnotherStripe(t *testing.T) {
	c, saved := NewCounter(), rows{}
	c.mustClick(t, "a", Click{At: noon})
	for i := range c.stripes {
		if s := &c.stripes[i]; len(s.fresh) > 0 {
			s.mu.Lock()
			c.mustClick(t, "a", Click{At: noon})
			s.mu.Unlock()
			break
		}
	}
	saved.save(c)
	if got := saved.of("a"); len(saved) != 2 || got.Clicks != 2 {
		t.Errorf("%d rows, with %d clicks", len(saved), got.Clicks)
	}
}

// When nothing can be saved any more, links that are known are counted a while longer.
func TestKnownLinksHaveRoom(t *testing.T) {
	c := NewCounter()
	c.mustClick(t, "known", Click{At: noon})
	c.Pending()
	click := func(alias string) bool { return c.Click(whose(alias), &Click{At: noon}) }
	c.bytes.Add(maxBytes)
	if click("new") || !click("known") || !click("known") {
		t.Error("a new link is counted, or a known one is not")
	}
	c.Pending()
	if c.bytes.Add(knownBytes); click("known") {
		t.Error("there is always room for known links")
	}
	c.bytes.Add(-maxBytes - knownBytes)
	if got := c.one(t, "known").Take(); got.Clicks != 3 {
		t.Errorf("%d clicks, want 3", got.Clicks)
	}
	c.consistent(t)
}

func TestMove(t *testing.T) {
	tomorrow := noon.Add(25 * time.Hour)
	of := whose("a")
	of.Owner = "owner"
	click := func(c *Counter, k Click) {
		if !c.Click(of, &k) {
			t.Fatal("there is no room")
		}
	}
	start := func(clicks int) (c *Counter, saved rows) {
		c, saved = NewCounter(), rows{}
		c.SetKey(day, Key{1}, day)
		for i := range clicks {
			click(c, person(i, noon, fmt.Sprint(i%60), "DE"))
		}
		return c, saved
	}
	move := func(c *Counter, saved rows) {
		for _, p := range c.Pending() {
			if of := (rowOf{p.Of, p.Day, p.Row}); p.Day == day {
				if _, there := saved[of]; there && !p.Sent() {
					t.Error("a row that is there was not sent")
				}
				count := saved[of]
				c.Move(p, &count, tomorrow)
			}
		}
		c.consistent(t)
		saved.save(c)
	}
	want := func(t *testing.T, saved rows, clicks, late, visitors int64) {
		t.Helper()
		var today Count
		for of, count := range saved {
			if of.Name == "a" && of.day == day+1 {
				today.Merge(&count)
			}
		}
		if got := saved.of("a"); got.Clicks != clicks || sum(got.Names[Referrers]) != clicks ||
			sum(got.Names[Countries]) != clicks {
			t.Errorf("%d clicks with %d referrers and %d countries, want %d", got.Clicks,
				sum(got.Names[Referrers]), sum(got.Names[Countries]), clicks)
		}
		if today.Clicks != late || today.Hours[13].Clicks != uint32(late) ||
			today.Visitors.Estimate() != visitors {
			t.Errorf("%d clicks moved, %v, with %d visitors; want %d with %d", today.Clicks,
				today.Hours, today.Visitors.Estimate(), late, visitors)
		}
		for _, name := range []string{All, OwnerName("owner")} {
			if all := saved.of(name); all.Clicks != clicks {
				t.Errorf("%s: %d clicks, want %d", name, all.Clicks, clicks)
			}
		}
	}
	t.Run("what was never saved", func(t *testing.T) {
		c, saved := start(10)
		move(c, saved)
		want(t, saved, 10, 10, 10)
	})
	t.Run("what was saved before", func(t *testing.T) {
		c, saved := start(10)
		saved.save(c)
		for i := range 100 {
			click(c, person(i, noon, fmt.Sprint(i%60), "DE"))
		}
		move(c, saved)
		want(t, saved, 110, 100, 0) // the saved visitors cannot be subtracted
	})
	for name, applied := range map[string]bool{"a write that was not applied": false,
		"a write that was applied": true} {
		t.Run(name, func(t *testing.T) {
			c, saved := start(10)
			for _, p := range c.Pending() {
				if applied {
					saved.write(p)
				}
				p.Take()
				p.Failed(noon)
			}
			late, visitors := int64(4), int64(1) // clicks since the failed write
			for range late {
				click(c, person(1, noon, "x", "FR"))
			}
			if !applied {
				late, visitors = late+10, 10
			}
			move(c, saved)
			want(t, saved, 14, late, visitors)
		})
	}
	t.Run("to a count that is there", func(t *testing.T) {
		c, saved := start(3)
		click(c, person(9, tomorrow, "0", "DE"))
		move(c, saved)
		want(t, saved, 4, 4, 3) // tomorrow has no key yet
	})
}

func TestForget(t *testing.T) {
	c := NewCounter()
	c.SetKey(day, Key{1}, day)
	click := func(i int, at time.Time) { c.mustClick(t, fmt.Sprint(i), Click{At: at}) }
	const many = keptCounts + 1000
	for i := range many {
		click(i, noon.Add(time.Duration(i)*time.Second/100))
	}
	select {
	case <-c.Soon:
	default:
		t.Error("nobody is told that there is a lot")
	}
	c.Pending()
	c.Forget(day, false)
	if c.kept() != many {
		t.Errorf("what is not saved was forgotten: %d of %d are left", c.kept(), many)
	}
	saved := rows{}
	saved.save(c)
	c.Forget(day, false)
	if len(c.counts) != keptCounts {
		t.Errorf("%d are left, want %d", len(c.counts), keptCounts)
	}
	for of := range c.counts {
		if n := 0; of.Name != All {
			if fmt.Sscan(of.Name, &n); n < many-keptCounts {
				t.Fatalf("%d is kept, but was last clicked before others that are forgotten", n)
			}
		}
	}
	// A link that is clicked again gets a new row, and its old row stays.
	click(0, noon)
	saved.save(c)
	if got := saved.of("0"); got.Clicks != 2 {
		t.Errorf("%d clicks, want 2", got.Clicks)
	}
	c.mustClick(t, "waits", person(1, noon.Add(24*time.Hour)))
	saved.save(c)
	c.Forget(day+1, false)
	if c.kept() != 1 {
		t.Errorf("%d are left of the day before", c.kept()-1)
	}
	if c.Forget(day+2, false); !c.Waiting(day + 1) {
		t.Error("a visitor of yesterday waits no more")
	}
	if c.Forget(day+3, false); c.kept() != 0 || c.Waiting(day+1) || c.waiting.Load() != 0 {
		t.Error("a visitor waits for a key that is not made any more")
	}
	c.consistent(t)
}

func TestVisitorsWaitForTheirKey(t *testing.T) {
	c, saved := NewCounter(), rows{}
	c.mustClick(t, "a", person(1, noon))
	select {
	case <-c.Soon:
	default:
		t.Error("nobody is told that a key is needed")
	}
	saved.save(c)
	c.mustClick(t, "a", person(2, noon))
	c.mustClick(t, "a", person(1, noon.Add(24*time.Hour)))
	c.Pending()
	if got := saved.of("a"); got.Clicks != 1 || got.Visitors.Estimate() != 0 || !c.Waiting(day) ||
		!c.Waiting(day+1) || c.Waiting(day-1) {
		t.Errorf("saved without a key: %+v, %d visitors", got.Total, got.Visitors.Estimate())
	}
	c.SetKey(day, Key{1}, day)
	c.mustClick(t, "a", person(3, noon))
	saved.save(c)
	if got := saved.of("a"); got.Clicks != 4 || got.Visitors.Estimate() != 3 || c.Waiting(day) ||
		!c.Waiting(day+1) || !c.HasKey(day) || c.HasKey(day+1) {
		t.Errorf("with a key: %+v, %d visitors", got.Total, got.Visitors.Estimate())
	}
	// Two processes with the same key recognise the same visitor.
	other := NewCounter()
	other.SetKey(day, Key{1}, day)
	other.mustClick(t, "a", person(2, noon))
	more := rows{}
	more.save(other)
	if got := merged(saved.of("a"), more.of("a")); got.Visitors.Estimate() != 3 {
		t.Errorf("%d visitors of two processes, want 3", got.Visitors.Estimate())
	}
	c.SetKey(day+2, Key{3}, day+2)
	if c.HasKey(day) || !c.HasKey(day+2) {
		t.Error("the key of a day that is over is kept")
	}
	// No more than maxWaiting visitors wait, however many come.
	for i := range maxWaiting + 1000 {
		c.mustClick(t, "a", person(i, noon.Add(24*time.Hour)))
	}
	if got := c.waiting.Load(); got != maxWaiting {
		t.Errorf("%d wait, want %d", got, maxWaiting)
	}
	c.consistent(t)
}

// heap returns how many bytes of the heap are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// The size that the counter states is close to what counts take in memory. They take at most 10 %
// more, and at least half of it.
func TestMemoryIsMeasured(t *testing.T) {
	name := func(i, length int) string { return fmt.Sprintf("%0*d", length, i) }
	for title, test := range map[string]struct {
		aliases int
		click   func(c *Counter, alias string, i int)
	}{
		"one click": {20_000, func(c *Counter, alias string, _ int) {
			c.Click(whose(alias), &Click{At: noon})
		}},
		"one person": {15_000, func(c *Counter, alias string, i int) {
			c.Click(whose(alias), new(person(i, noon, "example.org", "DE", "Firefox", "Linux", "desktop")))
		}},
		"all names, long": {200, func(c *Counter, alias string, i int) {
			for n := range maxNames {
				c.Click(whose(alias), new(person(i, noon, name(n, 64), name(n, 50), name(n, 33),
					name(n, 40), name(n, 17))))
			}
		}},
		"some names, short": {1000, func(c *Counter, alias string, i int) {
			for n := range 20 {
				c.Click(whose(alias), new(person(i, noon, name(n, 15), name(n, 2))))
			}
		}},
		"few visitors":          {5000, people(fewVisitors)},
		"a small sketch":        {1000, people(100)},
		"a sketch of a list":    {60, people(1500)},
		"a sketch of registers": {15, people(8000)},
	} {
		t.Run(title, func(t *testing.T) {
			before := heap()
			c := NewCounter()
			c.SetKey(day, Key{1}, day)
			look := func(counts string) {
				used, said := heap()-before, c.bytes.Load()
				t.Logf("%s: %d bytes each, and %d are said", counts, used/int64(test.aliases),
					said/int64(test.aliases))
				if said > maxBytes {
					t.Fatal("that is more than there is room for")
				}
				if used > said*11/10 || used < said/2 {
					t.Errorf("%s: %d KiB in memory, and %d KiB are said", counts, used>>10,
						said>>10)
				}
			}
			for i := range test.aliases {
				test.click(c, fmt.Sprintf("alias%d", i), i)
			}
			look("fresh")
			c.Pending()
			look("known")
			for i := range test.aliases {
				test.click(c, fmt.Sprintf("alias%d", i), i)
			}
			c.Pending()
			look("clicked again")
			runtime.KeepAlive(c)
		})
	}
}

// A fresh count that is used again takes no more memory for its names than it says.
func TestManyNamesAreNotKeptForOthers(t *testing.T) {
	var c counting
	for i := range maxNames {
		k := person(i, noon, fmt.Sprint(i), "DE")
		c.click(&k, true)
	}
	c.reset()
	if cap(c.Names[Referrers]) != 0 || cap(c.Names[Countries]) == 0 || c.Clicks != 0 {
		t.Errorf("places for %d referrers and %d countries, and %d clicks",
			cap(c.Names[Referrers]), cap(c.Names[Countries]), c.Clicks)
	}
}

// An alias may be a part of a large request, which must not stay in memory.
func TestAliasesAreCopied(t *testing.T) {
	c, request := NewCounter(), strings.Repeat("a", 32<<10)
	c.mustClick(t, request[:7], Click{At: noon})
	if p := c.one(t, "aaaaaaa"); unsafe.StringData(p.Name) == unsafe.StringData(request) {
		t.Errorf("%q is a part of what was sent", p.Name)
	}
}

func TestSaveSoonWhenMemoryIsFull(t *testing.T) {
	c := NewCounter()
	for _, test := range []struct {
		bytes int64
		soon  bool
	}{{0, false}, {fullBytes, true}} {
		c.bytes.Add(test.bytes)
		c.mustClick(t, "a", Click{At: noon})
		if len(c.Soon) == 1 != test.soon {
			t.Errorf("with %d bytes, it is %t that counts should be saved soon", c.Bytes(),
				!test.soon)
		}
	}
}

// people returns a function that clicks an alias once for each of so many people.
func people(many int) func(c *Counter, alias string, _ int) {
	return func(c *Counter, alias string, _ int) {
		for i := range many {
			c.Click(whose(alias), new(person(i, noon)))
		}
	}
}

// Nothing that strangers send makes memory grow beyond its limit. Click reports that there is no
// room for a click, and links that are known are still counted.
func TestMemoryIsBounded(t *testing.T) {
	for name, test := range map[string]struct {
		many  int
		key   bool
		alias func(i int) string
		names func(k *Click, i int)
		most  int64 // of the heap, in MiB
	}{
		"referrers and visitors of one alias": {1_000_000,
			true, func(int) string { return "one" }, func(k *Click, i int) {
				k.Names[Referrers] = strconv.Itoa(i)
			}, 1},
		"aliases": {1_000_000, false, func(i int) string {
			return "alias" +
				strconv.Itoa(i)
		}, func(*Click, int) {}, 27},
		"referrers, visitors and aliases": {300_000,
			true, func(i int) string { return strconv.Itoa(i % 10_000) }, func(k *Click, i int) {
				k.Names[Referrers], k.Names[Countries] = strings.Repeat("a", 50)+strconv.Itoa(i),
					strconv.Itoa(i%250)
			}, 27},
		"aliases and owners": {1_000_000, true, strconv.Itoa, func(k *Click, i int) {
			k.Names[Referrers] = strconv.Itoa(i)
		}, 27},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			c := NewCounter()
			of := func(i int) Of {
				of := whose(test.alias(i))
				if name == "aliases and owners" {
					of.Owner = of.Name
				}
				return of
			}
			if test.key {
				c.SetKey(day, Key{1}, day)
			}
			var counted int64
			for i := range test.many {
				k := person(i, noon)
				if test.names(&k, i); c.Click(of(i), &k) {
					counted++
				}
			}
			used := heap() - before
			t.Logf("%d clicks counted of %d, in %d KiB; %d KiB are said", counted, test.many,
				used>>10, c.bytes.Load()>>10)
			if used > test.most<<20 {
				t.Errorf("%d KiB in memory, want at most %d MiB", used>>10, test.most)
			}
			if k := person(1, noon, "example.org"); !c.Click(of(0), &k) {
				t.Error("what is known is not counted any more")
			}
			c.Pending()
			if used := heap() - before; used > test.most<<20 {
				t.Errorf("%d KiB in memory when they are pending, want at most %d MiB", used>>10,
					test.most)
			}
			saved := rows{}
			if saved.save(c); saved.of(All).Clicks != counted+1 {
				t.Errorf("%d clicks saved, want %d", saved.of(All).Clicks, counted+1)
			}
			c.SetKey(day, Key{1}, day)
			saved.save(c)
			c.Forget(day, false)
			if len(c.counts) > keptCounts || c.bytes.Load() > keptBytes {
				t.Errorf("%d counts of %d bytes are left", len(c.counts), c.bytes.Load())
			}
			if k := person(1, noon, "example.org"); !c.Click(whose("new"), &k) {
				t.Error("there is no room when all is saved")
			}
			c.consistent(t)
		})
	}
}

// 100,000 links are clicked within ten minutes, and the counts are saved every ten seconds.
func TestMemoryOfManyLinks(t *testing.T) {
	const links, flushes = 100_000, 60
	before := heap()
	var most int64
	c := NewCounter()
	c.SetKey(day, Key{1}, day)
	flush := func() {
		for _, p := range c.Pending() {
			p.Take()
			p.Saved(false)
		}
		c.Forget(day, false)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for n := range flushes {
		for i := range 2 * links / flushes { // each link once, and some others
			alias := n*links/flushes + i
			if i > links/flushes {
				alias = rng.IntN(links)
			}
			c.mustClick(t, fmt.Sprintf("a%05d", alias),
				person(rng.IntN(1000), noon.Add(time.Duration(n)*10*time.Second), "example.org",
					"DE", "Firefox", "Linux", "desktop"))
		}
		most = max(most, heap()-before)
		flush()
	}
	c.Forget(day, true)
	after := heap() - before
	t.Logf("at most %d KiB more, and %d KiB in the end", most>>10, after>>10)
	if most > 40<<20 {
		t.Errorf("%d MiB more, want at most 40", most>>20)
	}
	if after > 6<<20 {
		t.Errorf("%d MiB are left while there are no clicks, of which %d are kept", after>>20,
			idleBytes>>20)
	}
	if c.Forget(day+1, false); len(c.counts) != 0 || c.bytes.Load() != 0 {
		t.Errorf("%d counts of %d bytes are left of the day before", len(c.counts),
			c.bytes.Load())
	}
	runtime.KeepAlive(c)
}

func BenchmarkClick(b *testing.B) {
	for name, test := range map[string]struct{ aliases, parallel int }{"one alias": {1, 1},
		"10,000 aliases": {10_000, 1}, "one alias, in parallel": {1, 8},
		"10,000 aliases, in parallel": {10_000, 8}} {
		b.Run(name, func(b *testing.B) {
			c := NewCounter()
			c.SetKey(day, Key{1}, day)
			aliases := make([]string, test.aliases)
			var people []Click
			for i := range 100 {
				people = append(people, person(i, noon, fmt.Sprintf("%d.example", i%30), "DE",
					"Firefox", "Linux", "desktop"))
			}
			for i := range aliases {
				aliases[i] = fmt.Sprint("alias", i)
				for n := range people[:30] {
					c.Click(whose(aliases[i]), &people[n])
				}
			}
			b.ReportAllocs()
			b.SetParallelism(test.parallel)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					c.Click(whose(aliases[i*7%len(aliases)]), &people[i%30])
				}
			})
		})
	}
}

// BenchmarkClickAndSave measures a click of one of many links, with its part of saving them every
// 50,000 clicks.
func BenchmarkClickAndSave(b *testing.B) {
	for _, owners := range []int{0, 1000} {
		b.Run(fmt.Sprintf("owners=%d", owners), func(b *testing.B) {
			c := NewCounter()
			c.SetKey(day, Key{1}, day)
			rng := rand.New(rand.NewPCG(1, 2))
			zipf := rand.NewZipf(rng, 1.1, 1, 100_000)
			var clicked []Of
			var people []Click
			for i := range 1 << 16 {
				link := int(zipf.Uint64())
				of := whose(fmt.Sprint("alias", link))
				if owners > 0 {
					of.Owner = fmt.Sprint("owner", link%owners)
				}
				clicked = append(clicked, of)
				people = append(people, person(rng.IntN(100_000), noon.Add(time.Duration(i)),
					fmt.Sprintf("%d.example", rng.IntN(30)), "DE", "Firefox", "Linux", "desktop"))
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				i := n * 12345 % len(clicked)
				c.Click(clicked[i], &people[n%len(people)])
				if n++; n%50_000 == 0 {
					for _, p := range c.Pending() {
						p.Take()
						p.Saved(false)
					}
					c.Forget(day, false)
				}
			}
		})
	}
}

// A click allocates nothing if both the link and the visitor are known.
func TestClickAllocatesNothing(t *testing.T) {
	c := NewCounter()
	c.SetKey(day, Key{1}, day)
	k, bot := person(1, noon, "example.org", "DE", "Firefox", "Linux", "desktop"),
		Click{At: noon, Bot: true}
	for name, click := range map[string]func(){
		"a person's": func() { c.Click(whose("a"), &k) },
		"of a link with an owner": func() {
			c.Click(Of{Name: "a", Owner: "o"}, &k)
		},
		"a bot's": func() { c.Click(whose("a"), &bot) },
	} {
		click()
		if n := testing.AllocsPerRun(1000, click); n != 0 {
			t.Errorf("%s click: %v allocations", name, n)
		}
	}
}

func BenchmarkPending(b *testing.B) {
	c := NewCounter()
	c.SetKey(day, Key{1}, day)
	for i := range 10_000 {
		k := person(i, noon, "example.org", "DE", "Firefox", "Linux", "desktop")
		c.Click(whose(fmt.Sprint("alias", i)), &k)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, p := range c.Pending() {
			p.Take()
		}
	}
}
