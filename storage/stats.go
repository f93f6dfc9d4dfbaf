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
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"

	"tiney/clicks"
	"tiney/link"
)

const (
	// keptFor is how long the counts of all links are kept in memory once they were read.
	keptFor = time.Minute
	// weekDays is how many days top links are looked for at most, and how many that are not rolled up yet totals have. The
	// reaper leaves three of them to do, at most, as long as it runs.
	weekDays = 7
	// daysAtOnce is how many days are read at the same time, clickPartitions calls each.
	daysAtOnce = 2
	// maxActive is how many links of a day are kept in memory, which takes about 90 bytes each.
	maxActive = 50_000
	// maxOwned is how many links of an owner are looked at for the top ones.
	maxOwned = 50_000
)

// Days returns what became of a link on each day from one to another, which is not before it, both included. Days before the
// link's CountedFrom are not its own, and empty. It makes one call for each of the others, or more if very many processes
// have counted. Rows that are corrupt count as none. Error: link.ErrUnavailable.
func (c *Clicks) Days(ctx context.Context, l link.Link, from, to clicks.Day) ([]clicks.Count, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	days := make([]clicks.Count, to-from+1)
	err := eachListed(ctx, len(days), func(ctx context.Context, i int) error {
		day := from + clicks.Day(i)
		if day < clicks.DayOf(l.CountedFrom) {
			return nil
		}
		var rows []*clicks.Count
		filter := fmt.Sprintf("PartitionKey eq '%s' and RowKey ge '%s|' and RowKey lt '%[2]s%s'", clickPartition(day, string(l.Alias)), l.Alias, afterBar)
		err := c.days.scan(ctx, filter, "", func(entities [][]byte) error {
			for _, data := range entities {
				if _, count, err := decodeCount(data); err == nil {
					rows = append(rows, &count)
				}
			}
			return nil
		})
		days[i].Merge(rows...)
		return err
	})
	return days, exported(err)
}

// Service returns what became of all links since ever, as it was in the tables within the last minute.
// Error: link.ErrUnavailable.
func (c *Clicks) Service(ctx context.Context) (clicks.Total, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	s, err := c.sums.get(ctx, "", c.config.Now, c.sum)
	return s.total, exported(err)
}

// Totals returns what became of each of some links since ever, but for Took. It may lack what was counted within the last
// minute, and what the reaper has not rolled up for a week. Error: link.ErrUnavailable.
func (c *Clicks) Totals(ctx context.Context, links []link.Link) ([]clicks.Total, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	today := clicks.DayOf(c.config.Now())
	s, err := c.sums.get(ctx, "", c.config.Now, c.sum)
	if err != nil {
		return nil, exported(err)
	}
	days, err := c.read(ctx, max(s.left, today-weekDays+1), today)
	if err != nil {
		return nil, exported(err)
	}
	totals := make([]clicks.Total, len(links))
	err = eachListed(ctx, len(links), func(ctx context.Context, i int) error {
		l := links[i]
		t, through, err := c.rolledUp(ctx, l)
		if err != nil {
			return err
		}
		for _, d := range days {
			if d.day <= through || d.day < clicks.DayOf(l.CountedFrom) {
				continue
			}
			n, ok := d.links[string(l.Alias)]
			if !ok && d.cut {
				one, err := c.Days(ctx, l, d.day, d.day)
				if err != nil {
					return err
				}
				t.Add(one[0].Total)
			}
			t.Add(n.total())
		}
		t.Took = 0
		totals[i] = t
		return nil
	})
	return totals, exported(err)
}

// Top returns the links that people have clicked most within a window, and how often, the first one most; at most limit of
// them, which is at least 1. They are an owner's, of whom the newest 50,000 links are looked at, or anybody's if owner is "".
// Deleted links are left out. The counts are as they were in the table within the last minute.
// Error: link.ErrUnavailable.
func (c *Clicks) Top(ctx context.Context, owner string, window clicks.Window, limit int) (links []link.Link, counts []int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	today := clicks.DayOf(c.config.Now())
	first := today - 1
	if window == clicks.LastWeek {
		first = today - weekDays + 1
	}
	days, err := c.read(ctx, first, today)
	if err != nil {
		return nil, nil, exported(err)
	}
	candidates, err := c.candidates(ctx, owner, window, days)
	if err != nil {
		return nil, nil, exported(err)
	}
	type clicked struct {
		link.Link
		clicks int64
	}
	var top []clicked
	// The candidates' own count is not larger than theirs with those who had the alias before, by which they are sorted.
	for n := limit; len(candidates) > 0 && (len(top) < limit || candidates[0].clicks > top[limit-1].clicks); n = listConcurrency {
		some := candidates[:min(n, len(candidates))]
		candidates = candidates[len(some):]
		found := make([]clicked, len(some))
		err := eachListed(ctx, len(some), func(ctx context.Context, i int) error {
			r, err := c.get(ctx, some[i].alias)
			switch {
			case err != nil && !decided(err):
				return err
			case err != nil, r.GoneReason != link.StateLive, !r.DeletedAt.IsZero(), owner != "" && r.Owner != owner:
				return nil
			}
			for _, d := range days {
				if d.day >= clicks.DayOf(r.CountedFrom) {
					found[i].clicks += d.links[string(r.Alias)].in(window)
				}
			}
			found[i].Link = r.Link
			return nil
		})
		if err != nil {
			return nil, nil, exported(err)
		}
		top = append(top, slices.DeleteFunc(found, func(f clicked) bool { return f.clicks == 0 })...)
		slices.SortFunc(top, func(a, b clicked) int { return cmp.Or(cmp.Compare(b.clicks, a.clicks), cmp.Compare(a.Alias, b.Alias)) })
		top = top[:min(len(top), limit)]
	}
	for _, t := range top {
		links, counts = append(links, t.Link), append(counts, t.clicks)
	}
	return links, counts, nil
}

// candidate is an alias that may be of a top link.
type candidate struct {
	alias  link.Alias
	clicks int64 // of whoever had the alias
}

// candidates returns all that were clicked within a window, those with the most clicks first.
func (c *Clicks) candidates(ctx context.Context, owner string, window clicks.Window, days []*activeDay) (all []candidate, err error) {
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
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.clicks, a.clicks), cmp.Compare(a.alias, b.alias))
	})
	return all, nil
}

// owned returns those of the clicked that are listed among an owner's links.
func (c *Clicks) owned(ctx context.Context, owner string, clicked map[string]int64) (map[string]int64, error) {
	own, listed := map[string]int64{}, 0
	err := c.owners.scan(ctx, fmt.Sprintf("PartitionKey eq '%s'", ownerPartition(owner)), "RowKey", func(entities [][]byte) error {
		for _, data := range entities {
			var e struct{ RowKey string }
			_ = json.Unmarshal(data, &e) // another program's row lists nothing
			_, alias, _ := strings.Cut(e.RowKey, "|")
			if n, ok := clicked[alias]; ok {
				own[alias] = n
			}
		}
		if listed += len(entities); listed >= maxOwned {
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
	if err != nil && !errors.Is(err, errGone) {
		return s, err
	}
	var e progressEntity
	_ = json.Unmarshal(data, &e) // without it, nothing is known to be rolled up
	if day, ok := partitionDay(e.Partition); ok {
		s.left = max(s.left, day)
	}
	rows, err := c.days.rows(ctx, fmt.Sprintf("PartitionKey ge '%s'", s.left), 1)
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

// rolledUp reads the totals of a link, and the last day that is in them. A row that is corrupt, or of another link that had
// the alias before, counts as none.
func (c *Clicks) rolledUp(ctx context.Context, l link.Link) (t clicks.Total, through clicks.Day, err error) {
	const none = math.MinInt32
	e, _, err := c.readTotals(ctx, string(l.Alias))
	if err != nil && !errors.Is(err, errGone) && !errors.Is(err, link.ErrDamaged) {
		return t, none, err
	}
	through, ok := clicks.ParseDay(e.Through)
	if err != nil || !ok || !e.of(dayCounted(l)) {
		return t, none, nil
	}
	return e.total(), through, nil
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

// read returns the counts of each day from one to another, both included, from memory as far as they were read within the
// last minute.
func (c *Clicks) read(ctx context.Context, from, to clicks.Day) ([]*activeDay, error) {
	read := make([]*activeDay, max(to-from+1, 0))
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(daysAtOnce)
	for i := range read {
		all.Go(func() (err error) {
			day := from + clicks.Day(i)
			read[i], err = c.perDay.get(ctx, day.String(), c.config.Now, func(ctx context.Context) (*activeDay, error) { return c.readDay(ctx, day) })
			return err
		})
	}
	return read, all.Wait()
}

// readDay reads the counts of a day.
func (c *Clicks) readDay(ctx context.Context, day clicks.Day) (*activeDay, error) {
	// Of yesterday, the hours count that are in the last 24, and the one in which they begin. What was read before midnight
	// as of today has all hours.
	columns, since := "RowKey,Clicks,Bots,LastAtUtc", 0
	if now := c.config.Now(); day == clicks.DayOf(now)-1 {
		columns, since = columns+",Hours", now.UTC().Hour()
	}
	partitions := make([]map[string]activeLink, clickPartitions)
	all, ctx := errgroup.WithContext(ctx)
	for h := range partitions {
		partitions[h] = map[string]activeLink{}
		all.Go(func() error {
			return safely(func() error {
				return c.days.scan(ctx, fmt.Sprintf("PartitionKey eq '%s-%x'", day, h), columns, func(entities [][]byte) error {
					for _, data := range entities {
						addActive(partitions[h], data, since)
					}
					return nil
				})
			})
		})
	}
	if err := all.Wait(); err != nil {
		return nil, err
	}
	d := &activeDay{day: day, links: map[string]activeLink{}}
	for _, links := range partitions {
		delete(links, clicks.All)
		d.add(links, maxActive/clickPartitions)
	}
	return d, nil
}

// addActive adds a row to the counts of its link. One that is corrupt counts as none.
func addActive(links map[string]activeLink, data []byte, since int) {
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
	n, ok := links[alias]
	if !ok {
		alias = strings.Clone(alias) // or the whole key stays in memory
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
	links[alias] = activeLink{n.clicks + e.Clicks, n.bots + e.Bots, n.recent + recent, max(n.last, e.LastAt.Unix())}
}

// add adds those of some links that were clicked most.
func (d *activeDay) add(links map[string]activeLink, most int) {
	aliases := slices.Collect(maps.Keys(links))
	if len(aliases) > most {
		d.cut = true
		slices.SortFunc(aliases, func(a, b string) int { return cmp.Compare(links[b].clicks, links[a].clicks) })
		aliases = aliases[:most]
	}
	for _, alias := range aliases {
		d.links[alias] = links[alias]
	}
}

// kept keeps what was read for a minute. All who ask for the same at the same time share one read, and one who gives up does
// not end it. What has failed is not kept. The zero value is ready for use.
type kept[T any] struct {
	reading singleflight.Group
	mu      sync.Mutex
	values  map[string]keptValue[T]
}

type keptValue[T any] struct {
	value T
	at    time.Time // when its read began
}

func (k *kept[T]) get(ctx context.Context, key string, now func() time.Time, read func(context.Context) (T, error)) (value T, err error) {
	k.mu.Lock()
	v, ok := k.values[key]
	k.mu.Unlock()
	if age := now().Sub(v.at); ok && age >= 0 && age < keptFor {
		return v.value, nil
	}
	result := k.reading.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
		defer cancel()
		v := keptValue[T]{at: now()}
		err := safely(func() (err error) {
			v.value, err = read(ctx)
			return err
		})
		if err == nil {
			k.keep(key, v)
		}
		return v.value, err
	})
	select {
	case got := <-result:
		value, _ = got.Val.(T)
		return value, got.Err
	case <-ctx.Done():
		return value, fmt.Errorf("reading statistics: %w in time: %w", link.ErrUnavailable, ctx.Err())
	}
}

func (k *kept[T]) keep(key string, v keptValue[T]) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.values == nil {
		k.values = map[string]keptValue[T]{}
	}
	k.values[key] = v
	time.AfterFunc(keptFor, func() { // nobody may ask again, and it is large
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.values[key].at == v.at {
			delete(k.values, key)
		}
	})
}
