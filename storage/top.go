package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/go-json-experiment/json"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/table"
)

const (
	// passTime is how long a pass over all clicked links may take.
	passTime = 15 * time.Minute
	// keptPasses is how many times as long as it took the result of a pass is kept, if that is
	// longer than keptFor. So the passes of a window take at most a tenth of an instance's time.
	keptPasses = 10
	// mostClicked is how many links a pass keeps by name: more than Top returns, since some turn
	// out deleted.
	mostClicked = 1000
	// maxOwned is how many links of an owner are looked at for the top ones.
	maxOwned = 50_000
)

// Top returns the links that people have clicked most within a window, and how often, the first one
// most; at most limit of them, which is at least 1. They are the owner's, of which the newest
// 50,000 are looked at, or those of all owners if owner is "". If domain is not nil, they are links
// of that domain; only the 1,000 most clicked links are looked at then. They are as they were at
// asOf; those that were deleted since are left out.
//
// One pass over all links that were clicked in the window answers for all owners. It runs in the
// background, and its result is kept for a minute, or for ten times as long as it took. Top waits
// for it no longer than the config's Timeout. Error: link.ErrUnavailable; clicks.ErrComputing if
// the pass takes longer, and a later call finds its result.
func (c *Clicks) Top(ctx context.Context, owner string, domain *link.Domain, window clicks.Window,
	limit int) (links []link.Link, counts []int64, asOf time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	p, err := c.tops.get(ctx, window, c)
	if err != nil {
		return nil, nil, asOf, err
	}
	candidates := p.most
	if owner != "" {
		key := fmt.Sprintf("%s|%d|%s", window, p.asOf.UnixNano(), owner)
		if candidates, err = c.tops.owned.get(ctx, key, c.config, func(ctx context.Context) (
			[]candidate, error) {
			return c.ownedBy(ctx, owner, p)
		}); err != nil {
			return nil, nil, asOf, err
		}
	}
	if domain != nil {
		candidates = slices.DeleteFunc(slices.Clone(candidates), func(l candidate) bool {
			return l.alias.Domain() != *domain
		})
	}
	for n := limit; len(candidates) > 0 && len(links) < limit; n = listConcurrency {
		some := candidates[:min(len(candidates), n)]
		candidates = candidates[len(some):]
		found := make([]link.Link, len(some))
		if err := eachListed(ctx, len(some), func(ctx context.Context, i int) (err error) {
			found[i], err = c.live(ctx, some[i].alias, owner)
			return err
		}); err != nil {
			return nil, nil, asOf, err
		}
		for i, l := range found {
			if l.Name != "" && clicks.DayOf(l.CountedFrom) == some[i].from && len(links) < limit {
				links, counts = append(links, l), append(counts, some[i].clicks)
			}
		}
	}
	return links, counts, p.asOf, nil
}

// live reads a link, from the cache if there is one. One that is deleted, or not the owner's, has
// no alias.
func (c *Clicks) live(ctx context.Context, a link.Name, owner string) (link.Link, error) {
	r, err := c.get(ctx, a)
	switch {
	case err != nil && !decided(err):
		return link.Link{}, err
	case err != nil, r.GoneReason != link.StateLive, !r.DeletedAt.IsZero(),
		owner != "" && r.Owner != owner:
		return link.Link{}, nil
	}
	return r.Link, nil
}

// candidate is a link that may be among the top ones.
type candidate struct {
	alias  link.Name
	from   clicks.Day // the CountedFrom of the link
	clicks int64
}

// compare sorts those with the most clicks first.
func (c candidate) compare(other candidate) int {
	return cmp.Or(cmp.Compare(other.clicks, c.clicks), cmp.Compare(c.alias, other.alias))
}

// ownedBy returns those of an owner's links that were clicked, those with the most clicks first.
func (c *Clicks) ownedBy(ctx context.Context, owner string, p *pass) (own []candidate, err error) {
	listed := 0
	q := table.Query{Range: table.Range{Partition: ownerPartition(owner)},
		Properties: []string{"RowKey"}}
	err = c.owners.rows.list(ctx, q, func(page [][]byte) error {
		for _, data := range page {
			var e struct{ RowKey string }
			_ = json.Unmarshal(data, &e) // another program's row lists nothing
			_, name, _ := strings.Cut(e.RowKey, "|")
			if a, ok := link.ParseName(name); ok {
				if l, ok := p.find(name); ok {
					own = append(own, candidate{a, l.from, int64(l.clicks)})
				}
			}
		}
		if listed += len(page); listed >= maxOwned {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	slices.SortFunc(own, candidate.compare)
	return own[:min(len(own), mostClicked)], err
}

// tops are the results of passes, by window.
type tops struct {
	passing mutex // one pass at a time
	mu      sync.Mutex
	done    map[clicks.Window]*pass
	running map[clicks.Window]chan struct{} // is closed when the pass ends
	owned   kept[[]candidate]
}

// pass is the result of a pass over all links that were clicked in a window.
type pass struct {
	asOf    time.Time     // when it began
	until   time.Time     // when it has to be made again
	clicked []clickedLink // in the order of their hashes
	most    []candidate   // the links that were clicked most
}

// clickedLink is a link that was clicked. There may be millions, so their names are not kept.
type clickedLink struct {
	hash   uint64 // of the alias
	from   clicks.Day
	clicks uint32
}

func (p *pass) find(name string) (clickedLink, bool) {
	i, ok := slices.BinarySearchFunc(p.clicked, xxhash.Sum64String(name),
		func(l clickedLink, hash uint64) int { return cmp.Compare(l.hash, hash) })
	if !ok {
		return clickedLink{}, false
	}
	return p.clicked[i], true
}

// get returns the result of a pass. It starts a pass unless there is one, and waits for it until
// ctx ends.
func (t *tops) get(ctx context.Context, window clicks.Window, c *Clicks) (*pass, error) {
	t.mu.Lock()
	now := c.config.Now()
	if p := t.done[window]; p != nil && !now.Before(p.asOf) && now.Before(p.until) {
		t.mu.Unlock()
		return p, nil
	}
	running := t.running[window]
	if running == nil {
		running = make(chan struct{})
		if t.done == nil {
			t.done, t.running = map[clicks.Window]*pass{}, map[clicks.Window]chan struct{}{}
		}
		delete(t.done, window) // it takes memory
		t.running[window] = running
		go t.run(context.WithoutCancel(ctx), window, c, running)
	}
	t.mu.Unlock()
	select {
	case <-running:
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w: %w", clicks.ErrComputing, link.ErrUnavailable, ctx.Err())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.done[window]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("the links that were clicked most: %w", link.ErrUnavailable)
}

func (t *tops) run(ctx context.Context, window clicks.Window, c *Clicks, ended chan struct{}) {
	t.passing.lock()
	defer t.passing.unlock()
	// There may be thousands of calls.
	ctx, cancel := context.WithTimeout(telemetry.EachCall(ctx), passTime)
	defer cancel()
	begin := c.config.Now()
	var p *pass
	err := table.Safely(func() (err error) {
		p, err = c.pass(ctx, window, begin)
		return err
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		end := c.config.Now()
		p.until = end.Add(max(keptFor, keptPasses*end.Sub(begin)))
		t.done[window] = p
		time.AfterFunc(p.until.Sub(end), func() { // nobody may ask for it again
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.done[window] == p {
				delete(t.done, window)
			}
		})
	} else {
		c.config.Log.Warn(telemetry.LogTopNotRead, "error", err)
	}
	delete(t.running, window)
	close(ended)
}

// pass reads all links that were clicked in a window, one partition after the other and one page at
// a time: there may be thousands of pages, and requests are to lose little of the processor.
func (c *Clicks) pass(ctx context.Context, window clicks.Window, now time.Time) (*pass, error) {
	p := &pass{asOf: now}
	today := clicks.DayOf(now)
	first := today - 1
	switch window {
	case clicks.LastWeek:
		first = today - 6
	case clicks.LastMonth:
		first = today - 29
	}
	first = max(first, c.firstKept(now))
	days, _, err := c.tables.names(ctx)
	if err != nil {
		return nil, err
	}
	days = slices.DeleteFunc(days, func(d clicks.Day) bool { return d < first || d > today })
	for h := range clickPartitions {
		part := &partPass{c: c, partition: hexDigits[h : h+1], window: window, now: now,
			links: map[string]*partLink{}}
		if err := part.read(ctx, first, today, days); err != nil {
			return nil, err
		}
		part.addTo(p)
	}
	slices.SortFunc(p.clicked, func(a, b clickedLink) int { return cmp.Compare(a.hash, b.hash) })
	return p, nil
}

// partPass is a pass over one partition.
type partPass struct {
	c         *Clicks
	partition string
	window    clicks.Window
	now       time.Time
	links     map[string]*partLink
}

// partLink is what is known of the newest link that has an alias.
type partLink struct {
	from   string
	clicks int64
}

func (p *partPass) add(of counted, n int64) {
	if of.several() || n <= 0 {
		return
	}
	l := p.links[of.name]
	if l == nil {
		l = &partLink{from: of.from}
		p.links[strings.Clone(of.name)] = l // or the whole key stays in memory
	}
	switch {
	case of.from > l.from: // what is there is of an earlier link
		*l = partLink{of.from, n}
	case of.from == l.from:
		l.clicks += n
	}
}

// read reads the days that have a table, and then the others from their months.
func (p *partPass) read(ctx context.Context, first, today clicks.Day, days []clicks.Day) error {
	read := map[clicks.Day]bool{}
	for _, day := range days {
		got := partPass{links: map[string]*partLink{}}
		properties, since := []string{"RowKey", "CountedFrom", "Clicks"}, 0
		if p.window == clicks.LastDay && day < today {
			// Of yesterday, the hours count that are in the last 24, and the one in which they
			// begin.
			properties, since = append(properties, "Hours"), p.now.UTC().Hour()
		}
		q := table.Query{Range: table.Range{Partition: p.partition}, Properties: properties}
		there, err := p.c.tables.readDay(ctx, day, q, func(page [][]byte) {
			for _, row := range page {
				got.add(clicksOf(row, since))
			}
		})
		if err != nil {
			return err
		}
		if read[day] = there; there {
			for name, l := range got.links {
				p.add(counted{name, l.from}, l.clicks)
			}
		}
	}
	last := ""
	for day := first; day <= today; day++ {
		month := monthOf(day)
		if read[day] || month == last {
			continue
		}
		last = month
		q := table.Query{Range: table.Range{From: p.partition, Before: p.partition + "g"},
			Properties: dayProperties}
		err := p.c.tables.month(month).table.List(ctx, q, func(page [][]byte) error {
			for _, row := range page {
				of, packed := decodeDays(row)
				n := int64(0)
				_ = unpackDays(packed, func(d dayClicks) { // a corrupt row counts as none
					day, ok := clicks.ParseDay(fmt.Sprintf("%s%02d", month, d.day))
					if ok && first <= day && day <= today && !read[day] {
						n += d.clicks
					}
				})
				p.add(of, n)
			}
			return nil
		})
		if err != nil && !errors.Is(err, table.ErrNoTable) {
			return err
		}
	}
	return nil
}

// clicksOf returns the clicks of a row of a day since an hour. A corrupt row has none.
func clicksOf(row []byte, since int) (of counted, n int64) {
	var e struct {
		RowKey, CountedFrom, Hours string
		Clicks                     int64 `json:",string"`
	}
	if json.Unmarshal(row, &e) != nil {
		return of, 0
	}
	_, name, _ := countName(e.RowKey)
	of = counted{name, e.CountedFrom}
	if since == 0 {
		return of, e.Clicks
	}
	hours, err := decodeHours(e.Hours)
	if err != nil {
		return of, 0
	}
	for _, h := range hours[since:] {
		n += int64(h.Clicks)
	}
	return of, n
}

// addTo adds the links of the partition to the result.
func (p *partPass) addTo(all *pass) {
	for name, l := range p.links {
		a, ok := link.ParseName(name)
		if !ok {
			continue // another program's row
		}
		from, ok := clicks.ParseDay(l.from)
		if !ok {
			from = clicks.DayOf(time.Time{})
		}
		all.clicked = append(all.clicked, clickedLink{xxhash.Sum64String(name), from,
			uint32(min(l.clicks, 1<<32-1))})
		all.most = append(all.most, candidate{a, from, l.clicks})
		if len(all.most) >= 2*mostClicked {
			all.cut()
		}
	}
	all.cut()
}

func (p *pass) cut() {
	slices.SortFunc(p.most, candidate.compare)
	p.most = p.most[:min(len(p.most), mostClicked)]
}
