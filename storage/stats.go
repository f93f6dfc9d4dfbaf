package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"tiney/clicks"
	"tiney/link"
	"tiney/storage/table"
)

const (
	// weekDays is how many days top links are looked for at most, and how many that are not rolled
	// up yet totals have. The reaper leaves three of them to do, at most, as long as it runs.
	weekDays = 7
	// daysAtOnce is how many days are read at the same time, clickPartitions calls each.
	daysAtOnce = 2
	// linkDaysAtOnce is how many days of one link are read at the same time, each a page of up to 4
	// MiB.
	linkDaysAtOnce = 8
	// maxDayNames is how many names of a dimension are told apart in a day of a link.
	maxDayNames = 1000
	// maxActive is how many links of a day are kept in memory, which takes about 90 bytes each.
	maxActive = 50_000
	// maxOwned is how many links of an owner are looked at for the top ones.
	maxOwned = 50_000
	// maxMissed is how many links that turn out deleted, or another owner's, are read in the search
	// for top ones.
	maxMissed = 1000
)

// activeProperties are those of a row that statistics of many links need.
var activeProperties = []string{"RowKey", "Clicks", "Bots", "LastAtUtc"}

// Days returns what became of a link on each day from one to another, which is not before it, both
// included. Days before the link's CountedFrom are not its own, and empty. It makes one call for
// each of the others, or more if very many processes have counted. Of each dimension of a day, the
// 1,000 names with the most clicks or so are told apart, the rest is clicks.Other. Rows that are
// corrupt count as none. Error: link.ErrUnavailable.
func (c *Clicks) Days(ctx context.Context, l link.Link, from, to clicks.Day) ([]clicks.Count,
	error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	days := make([]clicks.Count, to-from+1)
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(linkDaysAtOnce)
	for i := range days {
		if day := from + clicks.Day(i); day >= clicks.DayOf(l.CountedFrom) {
			all.Go(func() error {
				return table.Safely(func() error {
					return c.readDayOf(ctx, l.Alias, day, &days[i])
				})
			})
		}
	}
	return days, all.Wait()
}

// readDayOf adds up what became of an alias on a day.
func (c *Clicks) readDayOf(ctx context.Context, a link.Alias, day clicks.Day,
	sum *clicks.Count) error {
	return c.days.list(ctx, table.Query{Range: dayRange(day, a)}, func(page [][]byte) error {
		var rows []*clicks.Count
		for _, data := range page {
			if _, count, err := decodeCount(data); err == nil {
				rows = append(rows, &count)
			}
		}
		sum.Merge(rows...)
		for d, names := range sum.Names {
			if len(names) > maxDayNames {
				sum.Names[d] = sum.Top(clicks.Dimension(d), maxDayNames)
			}
		}
		return nil
	})
}

// dayRange is the rows of an alias on a day.
func dayRange(day clicks.Day, a link.Alias) table.Range {
	prefix := string(a) + "|"
	return table.Range{Partition: clickPartition(day, string(a)), From: prefix,
		Before: beyond(prefix)}
}

// Service returns what became of all links since ever, as it was in the tables within the last
// minute. Error: link.ErrUnavailable.
func (c *Clicks) Service(ctx context.Context) (clicks.Total, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	s, err := c.sums.get(ctx, "", c.config, c.sum)
	return s.total, err
}

// Totals returns what became of each of some links since ever, but for Took, and what was counted
// of them before they were imported. It may lack what was counted within the last minute, and what
// the reaper has not rolled up for a week. Error: link.ErrUnavailable.
func (c *Clicks) Totals(ctx context.Context, links []link.Link) ([]clicks.Total, error) {
	return c.totalsOf(ctx, links, func(context.Context) (totalsReader, error) {
		return c.rolledUp,
			nil
	})
}

// totalsReader returns what is rolled up of a link, and the last day that is in it.
type totalsReader func(ctx context.Context, l link.Link) (clicks.Total, clicks.Day, error)

// totalsOf returns totals. Those that are rolled up are read by what prepare returns.
func (c *Clicks) totalsOf(ctx context.Context, links []link.Link,
	prepare func(context.Context) (totalsReader, error)) ([]clicks.Total, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	today := clicks.DayOf(c.config.Now())
	s, err := c.sums.get(ctx, "", c.config, c.sum)
	if err != nil {
		return nil, err
	}
	days, err := c.read(ctx, max(s.left, today-weekDays+1), today)
	if err != nil {
		return nil, err
	}
	// after the days: one that is rolled up in between is in their Through
	read, err := prepare(ctx)
	if err != nil {
		return nil, err
	}
	totals := make([]clicks.Total, len(links))
	err = eachListed(ctx, len(links), func(ctx context.Context, i int) error {
		l := links[i]
		t, through, err := read(ctx, l)
		if err != nil {
			return err
		}
		t.Add(clicks.Total{Clicks: l.Before.Clicks, Bots: l.Before.Bots, Last: l.Before.LastAt})
		for _, d := range days {
			if d.day <= through || d.day < clicks.DayOf(l.CountedFrom) {
				continue
			}
			n, ok := d.links[string(l.Alias)]
			if !ok && d.cut {
				one := activeDay{links: map[string]activeLink{}}
				if err := c.days.list(ctx, table.Query{Range: dayRange(d.day, l.Alias),
					Properties: activeProperties}, one.adding(0, 1)); err != nil {
					return err
				}
				n = one.links[string(l.Alias)]
			}
			t.Add(n.total())
		}
		t.Took = 0
		totals[i] = t
		return nil
	})
	return totals, err
}

// Top returns the links that people have clicked most within a window, and how often, the first one
// most; at most limit of them, which is at least 1. They are the owner's, of which the newest
// 50,000 are looked at, or those of all owners if owner is "". Of each day, the 50,000 links that
// were clicked most are looked at. Which links they are, and their counts, is kept for a minute;
// those that were deleted since are left out, without others in their place. Error:
// link.ErrUnavailable.
func (c *Clicks) Top(ctx context.Context, owner string, window clicks.Window,
	limit int) (links []link.Link, counts []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	today := clicks.DayOf(c.config.Now())
	key := fmt.Sprintf("%s|%s|%d|%s", today, window, limit, owner)
	top, err := c.tops.get(ctx, key, c.config, func(ctx context.Context) ([]candidate, error) {
		return c.top(ctx, owner, window, limit, today)
	})
	if err != nil {
		return nil, nil, err
	}
	found := make([]link.Link, len(top))
	err = eachListed(ctx, len(top), func(ctx context.Context, i int) (err error) {
		found[i], err = c.live(ctx, top[i].alias, owner)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for i, l := range found {
		if l.Alias != "" {
			links, counts = append(links, l), append(counts, top[i].clicks)
		}
	}
	return links, counts, nil
}

// top returns the aliases of the top links, and the clicks of the links.
func (c *Clicks) top(ctx context.Context, owner string, window clicks.Window, limit int,
	today clicks.Day) (top []candidate, err error) {
	first := today - 1
	if window == clicks.LastWeek {
		first = today - weekDays + 1
	}
	days, err := c.read(ctx, first, today)
	if err != nil {
		return nil, err
	}
	candidates, err := c.candidates(ctx, owner, window, days)
	if err != nil {
		return nil, err
	}
	missed := 0
	// The candidates' own count is not larger than theirs with those who had the alias before, by
	// which they are sorted.
	for n := limit; len(candidates) > 0 && missed < maxMissed &&
		(len(top) < limit || candidates[0].clicks > top[limit-1].clicks); n = listConcurrency {
		some := candidates[:min(n, len(candidates))]
		candidates = candidates[len(some):]
		found := make([]candidate, len(some))
		err := eachListed(ctx, len(some), func(ctx context.Context, i int) error {
			l, err := c.live(ctx, some[i].alias, owner)
			if err != nil || l.Alias == "" {
				return err
			}
			found[i].alias = l.Alias
			for _, d := range days {
				if d.day >= clicks.DayOf(l.CountedFrom) {
					found[i].clicks += d.links[string(l.Alias)].in(window)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if f.clicks > 0 {
				top = append(top, f)
			} else {
				missed++
			}
		}
		slices.SortFunc(top, candidate.compare)
		top = top[:min(len(top), limit)]
	}
	return top, nil
}

// live reads a link, from the cache if there is one. One that is deleted, or not the owner's, has
// no alias.
func (c *Clicks) live(ctx context.Context, a link.Alias, owner string) (link.Link, error) {
	r, err := c.get(ctx, a)
	switch {
	case err != nil && !decided(err):
		return link.Link{}, err
	case err != nil, r.GoneReason != link.StateLive, !r.DeletedAt.IsZero(), owner != "" &&
		r.Owner != owner:
		return link.Link{}, nil
	}
	return r.Link, nil
}

// candidate is an alias that may be of a top link.
type candidate struct {
	alias  link.Alias
	clicks int64 // of all links that had the alias, until the link is read
}

// compare sorts those with the most clicks first.
func (c candidate) compare(other candidate) int {
	return cmp.Or(cmp.Compare(other.clicks, c.clicks), cmp.Compare(c.alias, other.alias))
}

// candidates returns all that were clicked within a window, those with the most clicks first.
func (c *Clicks) candidates(ctx context.Context, owner string, window clicks.Window,
	days []*activeDay) (all []candidate, err error) {
	clicked := map[string]int64{}
	for _, d := range days {
		for alias, n := range d.links {
			if n := n.in(window); n > 0 {
				clicked[alias] += n
			}
		}
	}
	if owner != "" {
		if clicked, err = c.owned(ctx, owner, clicked); err != nil {
			return nil, err
		}
	}
	for name, n := range clicked {
		if a, ok := link.ParseAlias(name); ok {
			all = append(all, candidate{a, n})
		}
	}
	slices.SortFunc(all, candidate.compare)
	return all, nil
}

// owned returns those of the clicked that are listed among an owner's links.
func (c *Clicks) owned(ctx context.Context, owner string,
	clicked map[string]int64) (map[string]int64, error) {
	own, listed := map[string]int64{}, 0
	q := table.Query{Range: table.Range{Partition: ownerPartition(owner)},
		Properties: []string{"RowKey"}}
	err := c.owners.rows.list(ctx, q, func(page [][]byte) error {
		for _, data := range page {
			var e struct{ RowKey string }
			_ = json.Unmarshal(data, &e) // another program's row lists nothing
			_, alias, _ := strings.Cut(e.RowKey, "|")
			if n, ok := clicked[alias]; ok {
				own[alias] = n
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
	return own, err
}

// summed is what is known of all links together.
type summed struct {
	total clicks.Total
	left  clicks.Day // the first day with anything that may not be rolled up
}

// sum reads it.
func (c *Clicks) sum(ctx context.Context) (s summed, err error) {
	// Before any totals are read: a day that is rolled up in between is in their Through.
	today := clicks.DayOf(c.config.Now())
	s.left = today - clicks.Day(c.config.Clicks.KeepDays)
	data, _, err := c.state.get(ctx, rollUpPartition, rollUpKey)
	if err != nil && !errors.Is(err, table.ErrGone) {
		return s, err
	}
	var e progressEntity
	_ = json.Unmarshal(data, &e) // without it, nothing is known to be rolled up
	if day, ok := partitionDay(e.Partition); ok {
		s.left = max(s.left, day)
	}
	rows, err := c.days.first(ctx, table.Range{From: s.left.String()}, 1)
	if err != nil {
		return s, err
	}
	if len(rows) == 0 {
		s.left = today + 1
	} else if day, ok := partitionDay(rows[0].partition); ok {
		s.left = day
	}
	all := link.Link{Alias: clicks.All}
	total, through, err := c.rolledUp(ctx, all)
	if err != nil {
		return s, err
	}
	s.total = total
	if from := max(s.left, through+1); from <= today {
		days, err := c.Days(ctx, all, from, today)
		if err != nil {
			return s, err
		}
		for i := range days {
			s.total.Add(days[i].Total)
		}
	}
	return s, nil
}

// partitionDay returns the day of a partition of ShortUrlsClicks.
func partitionDay(partition string) (clicks.Day, bool) {
	day, _, _ := strings.Cut(partition, "-")
	return clicks.ParseDay(day)
}

// rolledUp reads the totals of a link, and the last day that is in them. A row that is corrupt, or
// of another link that had the alias before, counts as none.
func (c *Clicks) rolledUp(ctx context.Context, l link.Link) (t clicks.Total, through clicks.Day,
	err error) {
	e, _, err := c.readTotals(ctx, string(l.Alias))
	if err != nil && !errors.Is(err, table.ErrGone) && !errors.Is(err, link.ErrDamaged) {
		return t, notRolledUp, err
	}
	t, through = e.rolledUp(l)
	return t, through, nil
}

// notRolledUp is before every day.
const notRolledUp clicks.Day = math.MinInt32

// rolledUp returns what the row has of a link: nothing, if it is the zero row or of another link
// that had the alias before.
func (e *totalsEntity) rolledUp(l link.Link) (t clicks.Total, through clicks.Day) {
	through, ok := clicks.ParseDay(e.Through)
	if !ok || !e.of(dayCounted(l)) {
		return t, notRolledUp
	}
	return e.total(), through
}

// activeDay is what became of all links on one day.
type activeDay struct {
	day   clicks.Day
	links map[string]activeLink
	cut   bool // there are too many: only those that were clicked most are here
}

// activeLink is what became of one link, without what statistics of many links do not need.
type activeLink struct {
	clicks, bots int64
	recent       int64 // clicks of the last 24 hours
	last         int64 // Unix time
}

// in returns the clicks of the day that are in a window.
func (n activeLink) in(window clicks.Window) int64 {
	if window == clicks.LastDay {
		return n.recent
	}
	return n.clicks
}

func (n activeLink) total() clicks.Total {
	t := clicks.Total{Clicks: n.clicks, Bots: n.bots}
	if n.last > 0 {
		t.Last = time.Unix(n.last, 0).UTC()
	}
	return t
}

// read returns the counts of each day from one to another, both included, from memory as far as
// they were read within the last minute.
func (c *Clicks) read(ctx context.Context, from, to clicks.Day) ([]*activeDay, error) {
	read := make([]*activeDay, max(to-from+1, 0))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(daysAtOnce)
	for i := range read {
		all.Go(func() (err error) {
			day := from + clicks.Day(i)
			read[i], err = c.perDay.get(ctx, day.String(),
				c.config, func(ctx context.Context) (*activeDay, error) {
					return c.readDay(ctx, day)
				})
			return err
		})
	}
	return read, all.Wait()
}

// readDay reads the counts of a day.
func (c *Clicks) readDay(ctx context.Context, day clicks.Day) (*activeDay, error) {
	// Of yesterday, the hours count that are in the last 24, and the one in which they begin. What
	// was read before midnight as of today has all hours.
	properties, since := activeProperties, 0
	if now := c.config.Now(); day == clicks.DayOf(now)-1 {
		properties, since = append(slices.Clone(properties), "Hours"), now.UTC().Hour()
	}
	partitions := make([]activeDay, clickPartitions)
	all, ctx := errgroup.WithContext(ctx)
	for h := range partitions {
		p := &partitions[h]
		p.links = map[string]activeLink{}
		all.Go(func() error {
			return table.Safely(func() error {
				q := table.Query{Range: table.Range{Partition: fmt.Sprintf("%s-%x", day, h)},
					Properties: properties}
				return c.days.list(ctx, q, p.adding(since, c.mostActive))
			})
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	d := &activeDay{day: day, links: map[string]activeLink{}}
	for _, p := range partitions {
		p.cutTo(c.mostActive)
		maps.Copy(d.links, p.links)
		d.cut = d.cut || p.cut
	}
	return d, nil
}

// adding returns a function that adds rows of a partition, in their order, to the counts of their
// links. Not many more than twice most links are kept. Rows that are corrupt count as none.
func (d *activeDay) adding(since, most int) func(page [][]byte) error {
	return func(page [][]byte) error {
		for _, data := range page {
			d.add(data, since, most)
		}
		return nil
	}
}

func (d *activeDay) add(data []byte, since, most int) {
	var e struct {
		RowKey       string
		Clicks, Bots int64     `json:",string"`
		LastAt       time.Time `json:"LastAtUtc"`
		Hours        string
	}
	if json.Unmarshal(data, &e) != nil || e.Clicks < 0 || e.Bots < 0 {
		return
	}
	alias, _, _ := strings.Cut(e.RowKey, "|")
	if alias == clicks.All {
		return
	}
	recent := e.Clicks
	if since > 0 {
		hours, err := decodeHours(e.Hours)
		if err != nil {
			return
		}
		recent = 0
		for _, h := range hours[since:] {
			recent += int64(h.Clicks)
		}
	}
	n, ok := d.links[alias]
	if !ok {
		// all of them are complete: the rows of an alias follow each other
		if len(d.links) >= 2*most {
			d.cutTo(most)
		}
		alias = strings.Clone(alias) // or the whole key stays in memory
	}
	d.links[alias] = activeLink{n.clicks + e.Clicks, n.bots + e.Bots, n.recent + recent,
		max(n.last, e.LastAt.Unix())}
}

// cutTo leaves the links that were clicked most; of those clicked as often, the first ones by
// alias.
func (d *activeDay) cutTo(most int) {
	if len(d.links) <= most {
		return
	}
	d.cut = true
	aliases := slices.SortedFunc(maps.Keys(d.links), func(a, b string) int {
		return cmp.Or(cmp.Compare(d.links[b].clicks, d.links[a].clicks), cmp.Compare(a, b))
	})
	for _, alias := range aliases[most:] {
		delete(d.links, alias)
	}
}
