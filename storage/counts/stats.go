package counts

import (
	"context"
	"errors"
	"sync"

	"github.com/go-json-experiment/json"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

// daysAtOnce is how many days and months of one link are read at the same time. A page of a day may
// have 4 MiB.
const daysAtOnce = 8

// Days returns the counts of a link on each day from one to another, which is not before it, both
// included. Clicks of an earlier link with the alias are not in them, and days that are not kept
// are empty. It makes one call for each month, one for each day that is not rolled up, or more if
// very many processes have counted, and one for the names of the tables. Of each dimension of a day
// it returns about 1,000 names with the most clicks, and the rest as clicks.Other. Corrupt rows
// count as none. Error: link.ErrUnavailable.
func (c *Clicks) Days(ctx context.Context, l link.Link, from, to clicks.Day) ([]clicks.Count,
	error) {
	return c.days(ctx, subjectOf(l), from, to)
}

// OwnerDays is Days for all links of an owner together. A click counts for the owner that the
// redirect saw.
func (c *Clicks) OwnerDays(ctx context.Context, owner string, from, to clicks.Day) ([]clicks.Count,
	error) {
	return c.days(ctx, subject{name: clicks.OwnerName(owner)}, from, to)
}

func (c *Clicks) days(ctx context.Context, of subject, from, to clicks.Day) ([]clicks.Count,
	error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	open, err := c.tables.open(ctx)
	if err != nil {
		return nil, err
	}
	days := make([]clicks.Count, to-from+1)
	r := c.newDayReader(from, to, open, daysAtOnce)
	err = r.read(ctx, func(ctx context.Context, day clicks.Day) (there bool, err error) {
		q := table.Query{Range: rowsOfDay(of.name)}
		days[day-from], there, err = readDay(ctx, c.tables, day, q,
			func(sum *clicks.Count, page [][]byte) {
				var counts []*clicks.Count
				for _, row := range page {
					if whose, count, err := decodeCount(row); err == nil && whose == of {
						counts = append(counts, &count)
					}
				}
				sum.Merge(counts...)
				keepNames(sum, maxMonthNames)
			})
		return there, err
	}, func(ctx context.Context, month string) error {
		row, _, err := c.tables.readMonth(ctx, month, of.name)
		if m, corrupt := decodeMonth(row); corrupt == nil && m.of == of {
			for n, count := range m.days {
				if day, ok := r.missing(month, n); ok && count != nil {
					days[day-from] = *count
				}
			}
		}
		return err
	})
	return days, err
}

// LinksDays returns the clicks and bots of some links together on each day from one to another, as
// Days does. It makes as many calls for each link. Error: link.ErrUnavailable.
func (c *Clicks) LinksDays(ctx context.Context, links []link.Link, from, to clicks.Day) (
	[]clicks.Total, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	open, err := c.tables.open(ctx)
	if err != nil {
		return nil, err
	}
	sums := make([]clicks.Total, to-from+1)
	var mu sync.Mutex
	add := func(day clicks.Day, clicks, bots int64) {
		mu.Lock()
		defer mu.Unlock()
		sums[day-from].Clicks += clicks
		sums[day-from].Bots += bots
	}
	err = concurrent.Each(ctx, len(links), concurrent.InRequest, func(ctx context.Context,
		i int) error {
		of := subjectOf(links[i])
		r := c.newDayReader(from, to, open, 1) // since many links are read at once
		return r.read(ctx, func(ctx context.Context, day clicks.Day) (bool, error) {
			total, there, err := c.readTotal(ctx, day, of)
			add(day, total.Clicks, total.Bots)
			return there, err
		}, func(ctx context.Context, month string) error {
			row, _, err := c.tables.readMonth(ctx, month, of.name, dayProperties...)
			whose, days := decodeDays(row)
			for _, d := range days {
				if day, ok := r.missing(month, d.day); ok && whose == of {
					add(day, d.clicks, d.bots)
				}
			}
			return err
		})
	})
	return sums, err
}

// readTotal reads the totals of a day.
func (c *Clicks) readTotal(ctx context.Context, day clicks.Day, of subject) (t clicks.Total,
	there bool, err error) {
	q := table.Query{Range: rowsOfDay(of.name), Properties: totalProperties}
	return readDay(ctx, c.tables, day, q, func(t *clicks.Total, page [][]byte) {
		for _, row := range page {
			var e totalEntity
			if json.Unmarshal(row, &e) == nil && e.sound() == nil && e.CountedFrom == of.from {
				t.Add(e.total())
			}
		}
	})
}

// Service returns the total of all links since the start, as the tables had it within the last
// minute. Error: link.ErrUnavailable.
func (c *Clicks) Service(ctx context.Context) (clicks.Total, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	return c.sum.get(ctx, "", c.config, func(ctx context.Context) (clicks.Total, error) {
		return c.totalOf(ctx, subject{name: clicks.All})
	})
}

// Totals returns the total of each of some links since it was made, but for Took, and with what
// was counted before it was imported. For each link it makes a call for each day that is not rolled
// up, and one more. Error: link.ErrUnavailable.
func (c *Clicks) Totals(ctx context.Context, links []link.Link) ([]clicks.Total, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	totals := make([]clicks.Total, len(links))
	err := concurrent.Each(ctx, len(links), concurrent.InRequest, func(ctx context.Context,
		i int) error {
		l := links[i]
		t, err := c.totalOf(ctx, subjectOf(l))
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

// totalOf returns the total of all days. Totals that are corrupt, or those of an earlier link with
// the alias, count as none.
func (c *Clicks) totalOf(ctx context.Context, of subject) (clicks.Total, error) {
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
	e, _, err := c.readTotals(ctx, of.name)
	if err != nil && !errors.Is(err, table.ErrGone) && !errors.Is(err, link.ErrDamaged) {
		return clicks.Total{}, err
	}
	sum := clicks.Total{}
	through, ok := clicks.ParseDay(e.Through)
	if ok = ok && err == nil && e.CountedFrom == of.from; ok {
		sum = e.total()
	}
	for i, day := range days {
		if !ok || open+clicks.Day(i) > through {
			sum.Add(day)
		}
	}
	return sum, nil
}

// readTotals reads the totals of a name. table.ErrGone: there are none. Error: link.ErrDamaged.
func (c *Clicks) readTotals(ctx context.Context, name string) (t totalsEntity, etag table.ETag,
	err error) {
	data, etag, err := c.config.Totals.Get(ctx, hashOf(name), name)
	if err == nil {
		t, err = decodeTotals(data)
	}
	return t, etag, err
}
