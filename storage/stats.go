package storage

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/storage/table"
)

// daysAtOnce is how many days and months of one link are read at the same time. A page of a day may
// have 4 MiB.
const daysAtOnce = 8

// Days returns what became of a link on each day from one to another, which is not before it, both
// included. What an earlier link with the alias got is not in it, and days that are not kept are
// empty. It makes one call for each month, one for each day that is not rolled up, or more if very
// many processes have counted, and one that tells which days these are. Of each dimension of a day,
// about 1,000 names with the most clicks are told apart, the rest is clicks.Other. Rows that are
// corrupt count as none. Error: link.ErrUnavailable.
func (c *Clicks) Days(ctx context.Context, l link.Link, from, to clicks.Day) ([]clicks.Count,
	error) {
	return c.days(ctx, countedLink(l), from, to)
}

// OwnerDays is Days for all links of an owner together. A click counts for the owner that the
// redirect saw.
func (c *Clicks) OwnerDays(ctx context.Context, owner string, from, to clicks.Day) ([]clicks.Count,
	error) {
	return c.days(ctx, counted{name: clicks.OwnerName(owner)}, from, to)
}

func (c *Clicks) days(ctx context.Context, of counted, from, to clicks.Day) ([]clicks.Count,
	error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	r, err := c.readRange(ctx, from, to)
	if err != nil {
		return nil, err
	}
	days := make([]clicks.Count, to-from+1)
	err = r.each(ctx, func(ctx context.Context, day clicks.Day) (there bool, err error) {
		sum := &days[day-from]
		q := table.Query{Range: ofDay(of.name)}
		there, err = c.tables.readDay(ctx, day, q, func(page [][]byte) {
			var counts []*clicks.Count
			for _, row := range page {
				if whose, count, err := decodeCount(row); err == nil && whose == of {
					counts = append(counts, &count)
				}
			}
			sum.Merge(counts...)
			keepNames(sum, maxMonthNames)
		})
		if !there {
			*sum = clicks.Count{}
		}
		return there, err
	}, func(ctx context.Context, month string) error {
		row, _, err := c.tables.readMonth(ctx, month, of.name)
		if row == nil {
			return err
		}
		m, err := decodeMonth(row)
		if err != nil || m.of != of {
			return nil
		}
		for n, count := range m.days {
			if day, ok := r.over(month, n); ok && count != nil {
				days[day-from] = *count
			}
		}
		return nil
	})
	return days, err
}

// LinksDays returns the clicks and bots of some links together on each day from one to another, as
// Days does. It makes as many calls for each link. Error: link.ErrUnavailable.
func (c *Clicks) LinksDays(ctx context.Context, links []link.Link, from, to clicks.Day) (
	[]clicks.Total, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	sums := make([]clicks.Total, to-from+1)
	var mu sync.Mutex
	err := eachListed(ctx, len(links), func(ctx context.Context, i int) (err error) {
		of := countedLink(links[i])
		r, err := c.readRange(ctx, from, to)
		if err != nil {
			return err
		}
		r.atOnce = 1 // since many links are read at once
		days := make([]clicks.Total, len(sums))
		err = r.each(ctx, func(ctx context.Context, day clicks.Day) (there bool, err error) {
			total, there, err := c.readTotal(ctx, day, of)
			days[day-from] = total
			return there, err
		}, func(ctx context.Context, month string) error {
			row, _, err := c.tables.readMonth(ctx, month, of.name, dayProperties...)
			if row == nil {
				return err
			}
			whose, packed := decodeDays(row)
			_ = unpackDays(packed, func(d dayClicks) { // what is corrupt counts as none
				if day, ok := r.over(month, d.day); ok && whose == of {
					days[day-from] = clicks.Total{Clicks: d.clicks, Bots: d.bots}
				}
			})
			return nil
		})
		mu.Lock()
		defer mu.Unlock()
		for i, day := range days {
			sums[i].Clicks += day.Clicks
			sums[i].Bots += day.Bots
		}
		return err
	})
	return sums, err
}

// decodeDays reads a row that has dayProperties. A row that cannot be read counts for nobody.
func decodeDays(row []byte) (of counted, packed []byte) {
	var e struct {
		RowKey, CountedFrom string
		Days                []byte
	}
	if json.Unmarshal(row, &e) != nil {
		return counted{}, nil
	}
	return counted{e.RowKey, e.CountedFrom}, e.Days
}

// daysRead are the days of a range, while they are read.
type daysRead struct {
	from clicks.Day
	// there says which days were read from a table of their own. The others are in a month.
	there       []bool
	first, open clicks.Day // that are told, and that may have a table
	atOnce      int        // how many days or months are read at the same time
}

func (c *Clicks) readRange(ctx context.Context, from, to clicks.Day) (*daysRead, error) {
	open, err := c.tables.open(ctx)
	return &daysRead{from: from, there: make([]bool, to-from+1),
		first: c.firstKept(c.config.Now()), open: open, atOnce: daysAtOnce}, err
}

// each reads the days that may have a table, and then the months of those that had none: what is
// rolled up in between is in its month. readDay returns false if there is no table.
func (r *daysRead) each(ctx context.Context,
	readDay func(context.Context, clicks.Day) (there bool, err error),
	readMonth func(ctx context.Context, month string) error) error {
	begin := max(r.open, r.first, r.from)
	all, going := errgroup.WithContext(ctx)
	all.SetLimit(r.atOnce)
	for i := range r.there {
		if day := r.from + clicks.Day(i); day >= begin {
			all.Go(func() error {
				return table.Safely(func() (err error) {
					r.there[i], err = readDay(going, day)
					return err
				})
			})
		}
	}
	if err := all.Wait(); err != nil {
		return err
	}
	all, going = errgroup.WithContext(ctx)
	all.SetLimit(r.atOnce)
	last := ""
	for i, there := range r.there {
		day := r.from + clicks.Day(i)
		if month := monthOf(day); !there && day >= r.first && month != last {
			last = month
			all.Go(func() error {
				return table.Safely(func() error { return readMonth(going, month) })
			})
		}
	}
	return all.Wait()
}

// over returns a day of a month. ok reports whether it is in the range and to be taken from the
// month.
func (r *daysRead) over(month string, dayOfMonth int) (day clicks.Day, ok bool) {
	day, ok = clicks.ParseDay(fmt.Sprintf("%s%02d", month, dayOfMonth))
	i := int(day - r.from)
	return day, ok && day >= r.first && 0 <= i && i < len(r.there) && !r.there[i]
}

// readTotal reads the totals of a day.
func (c *Clicks) readTotal(ctx context.Context, day clicks.Day, of counted) (t clicks.Total,
	there bool, err error) {
	q := table.Query{Range: ofDay(of.name), Properties: totalProperties}
	there, err = c.tables.readDay(ctx, day, q, func(page [][]byte) {
		for _, row := range page {
			var e totalEntity
			if json.Unmarshal(row, &e) == nil && e.sound() == nil && e.CountedFrom == of.from {
				t.Add(e.total())
			}
		}
	})
	if !there {
		t = clicks.Total{}
	}
	return t, there, err
}

// Service returns what became of all links since ever, as it was in the tables within the last
// minute. Error: link.ErrUnavailable.
func (c *Clicks) Service(ctx context.Context) (clicks.Total, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	return c.sum.get(ctx, "", c.config, func(ctx context.Context) (clicks.Total, error) {
		return c.totalOf(ctx, counted{name: clicks.All})
	})
}

// Totals returns what became of each of some links since ever, but for Took, and what was counted
// of them before they were imported. For each link it makes a call for each day that is not rolled
// up, and one more. Error: link.ErrUnavailable.
func (c *Clicks) Totals(ctx context.Context, links []link.Link) ([]clicks.Total, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	totals := make([]clicks.Total, len(links))
	err := eachListed(ctx, len(links), func(ctx context.Context, i int) error {
		l := links[i]
		t, err := c.totalOf(ctx, countedLink(l))
		t.Add(clicks.Total{Clicks: l.Before.Clicks, Bots: l.Before.Bots, Last: l.Before.LastAt})
		t.Took = 0
		totals[i] = t
		return err
	})
	if err != nil {
		return nil, err
	}
	return totals, nil
}

// totalOf returns all that was counted.
func (c *Clicks) totalOf(ctx context.Context, of counted) (clicks.Total, error) {
	today := clicks.DayOf(c.config.Now())
	open, err := c.tables.open(ctx)
	if err != nil {
		return clicks.Total{}, err
	}
	if from, ok := clicks.ParseDay(of.from); ok {
		open = max(open, from)
	}
	days := make([]clicks.Total, max(today-open+1, 0))
	for i := range days {
		if days[i], _, err = c.readTotal(ctx, open+clicks.Day(i), of); err != nil {
			return clicks.Total{}, err
		}
	}
	// After the days: what is rolled up in between is in Through.
	t, through, err := c.rolledUp(ctx, of)
	for i, day := range days {
		if open+clicks.Day(i) > through {
			t.Add(day)
		}
	}
	return t, err
}

// notRolledUp is before every day.
const notRolledUp clicks.Day = math.MinInt32

// rolledUp reads the totals, and the last day that is in them. A row that is corrupt, or of another
// link that had the alias before, counts as none.
func (c *Clicks) rolledUp(ctx context.Context, of counted) (clicks.Total, clicks.Day, error) {
	e, _, err := c.readTotals(ctx, of.name)
	through, ok := clicks.ParseDay(e.Through)
	switch {
	case errors.Is(err, table.ErrGone), errors.Is(err, link.ErrDamaged):
		return clicks.Total{}, notRolledUp, nil
	case err != nil, !ok, e.CountedFrom != of.from:
		return clicks.Total{}, notRolledUp, err
	}
	return e.total(), through, nil
}

// readTotals reads the totals of a name. table.ErrGone: there are none. Error: link.ErrDamaged.
func (c *Clicks) readTotals(ctx context.Context, name string) (t totalsEntity, etag table.ETag,
	err error) {
	data, etag, err := c.totals.get(ctx, clickHash(name), name)
	if err == nil {
		t, err = decodeTotals(data)
	}
	return t, etag, err
}
