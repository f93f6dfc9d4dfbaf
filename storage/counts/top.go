package counts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/go-json-experiment/json"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

const (
	// passTime is how long a pass over all clicked links may take.
	passTime = 15 * time.Minute
	// keptPasses is how many times as long as it took the result of a pass is kept, if that is
	// longer than keptFor. So the passes of a window take at most a tenth of an instance's time.
	keptPasses = 10
	// mostClicked is how many links a pass keeps by name: more than Top returns, since some have
	// been deleted.
	mostClicked = 1000
	// maxOwned is how many links of an owner are searched for the top ones.
	maxOwned = 50_000
)

// Top returns up to limit (at least 1) links with the most clicks of people in a window, most
// first, and their clicks, as of asOf. Links that were deleted since are left out. It searches the
// newest 50,000 links of the owner, or the links of all owners if owner is "". If domain is not
// nil, it returns only links of that domain, out of the 1,000 most clicked ones.
//
// One pass over all links that were clicked in the window serves all owners. It runs in the
// background, and its result is kept for a minute, or for ten times as long as it took. Top waits
// for it no longer than the config's Timeout. Error: link.ErrUnavailable; clicks.ErrComputing if
// the pass takes longer, and a later call finds its result.
func (c *Clicks) Top(ctx context.Context, owner string, domain *link.Domain, window clicks.Window,
	limit int) (links []link.Link, counts []int64, asOf time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	p, err := c.passOf(ctx, window)
	if err != nil {
		return nil, nil, asOf, err
	}
	candidates := p.most
	if owner != "" {
		key := fmt.Sprintf("%s|%d|%s", window, p.asOf.UnixNano(), owner)
		if candidates, err = c.owned.get(ctx, key, c.config, func(ctx context.Context) (
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
	for n := limit; len(candidates) > 0 && len(links) < limit; n = concurrent.InRequest {
		some := candidates[:min(len(candidates), n)]
		candidates = candidates[len(some):]
		found := make([]link.Link, len(some))
		if err := concurrent.Each(ctx, len(some), concurrent.InRequest, func(ctx context.Context,
			i int) (err error) {
			found[i], err = c.linkOfOwner(ctx, some[i].alias, owner)
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

// InWindow returns what each of some links has had in a window. It knows only the clicks of people,
// counts as Top does, and has the same errors.
func (c *Clicks) InWindow(ctx context.Context, links []link.Link, window clicks.Window) (
	[]clicks.Total, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	p, err := c.passOf(ctx, window)
	if err != nil {
		return nil, err
	}
	totals := make([]clicks.Total, len(links))
	for i, l := range links {
		if of, ok := p.clicksOf(string(l.Name)); ok && of.from == clicks.DayOf(l.CountedFrom) {
			totals[i].Clicks = int64(of.clicks)
		}
	}
	return totals, nil
}

// passOf returns the result of a pass that is fresh enough, or waits for one until ctx ends. Its
// errors are those of Top.
func (c *Clicks) passOf(ctx context.Context, window clicks.Window) (*pass, error) {
	p, err := c.passes.get(ctx, string(window), c.config, func(ctx context.Context) (*pass, error) {
		return c.pass(ctx, window)
	})
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", clicks.ErrComputing, err)
	}
	return p, err
}

// linkOfOwner reads a link from its table. owner "": of any owner. The result has no alias if the
// link is deleted, or is not the owner's; the cache, if there is one, knows of most such links.
func (c *Clicks) linkOfOwner(ctx context.Context, a link.Name, owner string) (l link.Link,
	err error) {
	for _, read := range []func(context.Context, link.Name) (link.Link, error){
		c.config.Links.Cached, c.config.Links.Current} {
		l, err = read(ctx, a)
		switch {
		case errors.Is(err, link.ErrNotFound), errors.Is(err, link.ErrDamaged):
			return link.Link{}, nil
		case err != nil:
			return link.Link{}, err
		case !l.DeletedAt.IsZero(), owner != "" && l.Owner != owner:
			return link.Link{}, nil
		}
	}
	return l, nil
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
	err = c.config.Links.Owned(ctx, owner, func(names []link.Name) error {
		for _, a := range names {
			if l, ok := p.clicksOf(string(a)); ok {
				own = append(own, candidate{a, l.from, int64(l.clicks)})
			}
		}
		if listed += len(names); listed >= maxOwned {
			return table.ErrEnough
		}
		return nil
	})
	slices.SortFunc(own, candidate.compare)
	return own[:min(len(own), mostClicked)], err
}

// pass is the result of a pass over all links that were clicked in a window.
type pass struct {
	asOf    time.Time     // when it began
	until   time.Time     // when there has to be another pass
	clicked []clickedLink // in the order of their hashes
	most    []candidate   // the links that were clicked most
}

// clickedLink is a link that was clicked. There may be millions, so their names are not kept.
type clickedLink struct {
	hash   uint64 // of the alias
	from   clicks.Day
	clicks uint32
}

func (p *pass) clicksOf(name string) (clickedLink, bool) {
	i, ok := slices.BinarySearchFunc(p.clicked, xxhash.Sum64String(name),
		func(l clickedLink, hash uint64) int { return cmp.Compare(l.hash, hash) })
	if !ok {
		return clickedLink{}, false
	}
	return p.clicked[i], true
}

// pass makes a pass, and logs if that fails, since its callers may have given up.
func (c *Clicks) pass(ctx context.Context, window clicks.Window) (p *pass, err error) {
	c.passing.Lock() // one pass at a time
	defer c.passing.Unlock()
	// There may be thousands of calls.
	ctx, cancel := context.WithTimeout(telemetry.EachCall(ctx), passTime)
	defer cancel()
	begin := c.config.Now()
	err = concurrent.Safely(func() (err error) {
		p, err = c.readClicked(ctx, window, begin)
		return err
	})
	if err != nil {
		c.config.Log.Warn(telemetry.LogTopNotRead, "error", err)
		return nil, fmt.Errorf("the links that were clicked most: %w: %w", link.ErrUnavailable, err)
	}
	end := c.config.Now()
	p.until = end.Add(max(keptFor, keptPasses*end.Sub(begin)))
	return p, nil
}

// readClicked reads all links that were clicked in a window, one partition after the other and one
// page at a time: there may be thousands of pages, and requests are to lose little of the
// processor.
func (c *Clicks) readClicked(ctx context.Context, window clicks.Window, now time.Time) (*pass,
	error) {
	p := &pass{asOf: now}
	today := clicks.DayOf(now)
	from := today - 1
	switch window {
	case clicks.LastWeek:
		from = today - 6
	case clicks.LastMonth:
		from = today - 29
	}
	days, _, err := c.tables.names(ctx)
	if err != nil {
		return nil, err
	}
	r := c.newDayReader(from, today, append(days, today)[0], 1)
	for h := range partitions {
		links, partition := clicksByAlias{}, hexDigits[h:h+1]
		if err := r.read(ctx, func(ctx context.Context, day clicks.Day) (bool, error) {
			q := table.Query{Range: table.Range{Partition: partition},
				Properties: []string{"RowKey", "CountedFrom", "Clicks"}}
			since := 0
			if window == clicks.LastDay && day < today {
				// Of yesterday, the hours count that are in the last 24, and the one in which they
				// begin.
				q.Properties, since = append(q.Properties, "Hours"), now.UTC().Hour()
			}
			ofDay, there, err := readDay(ctx, c.tables, day, q,
				func(links *clicksByAlias, page [][]byte) {
					for _, row := range page {
						links.add(clicksOf(row, since))
					}
				})
			for alias, l := range ofDay {
				links.add(subject{alias, l.from}, l.clicks)
			}
			return there, err
		}, func(ctx context.Context, month string) error {
			q := table.Query{Range: table.Range{From: partition, Before: partition + "g"},
				Properties: dayProperties}
			err := c.tables.month(month).Table.List(ctx, q, func(page [][]byte) error {
				for _, row := range page {
					of, days := decodeDays(row)
					n := int64(0)
					for _, d := range days {
						if _, ok := r.missing(month, d.day); ok {
							n += d.clicks
						}
					}
					links.add(of, n)
				}
				return nil
			})
			if errors.Is(err, table.ErrNoTable) {
				return nil
			}
			return err
		}); err != nil {
			return nil, err
		}
		p.add(links)
	}
	slices.SortFunc(p.clicked, func(a, b clickedLink) int { return cmp.Compare(a.hash, b.hash) })
	return p, nil
}

// clicksByAlias has the clicks of the newest link of each alias.
type clicksByAlias map[string]clicksFrom

type clicksFrom struct {
	from   string // the CountedFrom of the link
	clicks int64
}

func (links *clicksByAlias) add(of subject, n int64) {
	if of.several() || n <= 0 {
		return
	}
	if *links == nil {
		*links = clicksByAlias{}
	}
	l, ok := (*links)[of.name]
	switch {
	case !ok || of.from > l.from: // what is there is of an earlier link
		(*links)[strings.Clone(of.name)] = clicksFrom{of.from, n} // or the whole key stays in memory
	case of.from == l.from:
		(*links)[of.name] = clicksFrom{l.from, l.clicks + n}
	}
}

// clicksOf returns the clicks in a row of a day, from an hour on. A corrupt row has none.
func clicksOf(row []byte, since int) (of subject, n int64) {
	var e struct {
		RowKey, CountedFrom, Hours string
		Clicks                     int64 `json:",string"`
	}
	if json.Unmarshal(row, &e) != nil {
		return of, 0
	}
	_, name, _ := countName(e.RowKey)
	of = subject{name, e.CountedFrom}
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

// add adds the links of a partition.
func (p *pass) add(links clicksByAlias) {
	for name, l := range links {
		a, ok := link.ParseName(name)
		if !ok {
			continue // another program's row
		}
		from, ok := clicks.ParseDay(l.from)
		if !ok {
			from = clicks.DayOf(time.Time{})
		}
		p.clicked = append(p.clicked, clickedLink{xxhash.Sum64String(name), from,
			uint32(min(l.clicks, 1<<32-1))})
		p.most = append(p.most, candidate{a, from, l.clicks})
		if len(p.most) >= 2*mostClicked {
			p.cut()
		}
	}
	p.cut()
}

func (p *pass) cut() {
	slices.SortFunc(p.most, candidate.compare)
	p.most = p.most[:min(len(p.most), mostClicked)]
}
