package counts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"tiney/internal/clicks"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

// tables are the tables of clicks: one for each day, which has a row for each process and
// link, and one for each month, which has a row for each link. A day's table is dropped when all
// that is in it is in the tables of months and of totals. From then on only those have the day. So
// readers read days before months and totals.
//
// A flush makes the tables of days, and the roll-up those of months. Reading a missing table
// returns no rows.
type tables struct {
	config *Config
	base   table.Table // named as the setting; it never exists

	mu     sync.Mutex
	opened map[string]*table.Store

	oldest kept[clicks.Day]
}

func newTables(config *Config) *tables {
	return &tables{config: config, base: config.Open(config.Days),
		opened: map[string]*table.Store{}}
}

// maxOpened is how many tables are kept open, which takes a little memory.
const maxOpened = 64

// table returns the table with this suffix, "20060102" or "200601".
func (t *tables) table(suffix string) *table.Store {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.opened[suffix]
	if s == nil {
		if len(t.opened) >= maxOpened {
			clear(t.opened)
		}
		s = &table.Store{Table: t.config.Open(t.config.Days + suffix), Timeout: t.config.Timeout}
		if day, ok := clicks.ParseDay(suffix); ok { // once it may be dropped, it is not made again
			s.MayCreate = func() bool { return !isLate(day, t.config.Now()) }
		}
		t.opened[suffix] = s
	}
	return s
}

func (t *tables) day(day clicks.Day) *table.Store { return t.table(day.String()) }
func (t *tables) month(month string) *table.Store { return t.table(month) }

// names returns the days and months that have a table, oldest first. Error: link.ErrUnavailable.
func (t *tables) names(ctx context.Context) (days []clicks.Day, months []string, err error) {
	prefix := t.config.Days
	names, err := t.base.Names(ctx, prefix)
	for _, name := range names {
		suffix := name[len(prefix):]
		if day, ok := clicks.ParseDay(suffix); ok {
			days = append(days, day)
		} else if _, ok := clicks.ParseDay(suffix + "01"); ok {
			months = append(months, suffix)
		}
	}
	slices.Sort(days)
	slices.Sort(months)
	return days, months, err
}

// open returns the oldest day that may have a table, as of the last minute. It is at most two days
// ago, unless a roll-up is late. Error: link.ErrUnavailable.
func (t *tables) open(ctx context.Context) (clicks.Day, error) {
	return t.oldest.get(ctx, "", t.config, func(ctx context.Context) (clicks.Day, error) {
		days, _, err := t.names(ctx)
		// A flush may make yesterday's table at any moment.
		return slices.Min(append(days, clicks.DayOf(t.config.Now())-1)), err
	})
}

// rowsOfDay returns the range of the rows of a name in a day's table.
func rowsOfDay(name string) table.Range {
	hash := hashOf(name)
	prefix := hash[1:] + keyEnd + name
	return table.Range{Partition: hash[:1], From: prefix + keyEnd, Before: prefix + afterEnd}
}

// readDay returns what add makes of the rows of a day, page by page. there is false, and the sum
// zero, if the day has no table, or none any more. Error: link.ErrUnavailable.
func readDay[T any](ctx context.Context, t *tables, day clicks.Day, q table.Query,
	add func(sum *T, rows [][]byte)) (sum T, there bool, err error) {
	err = t.day(day).Table.List(ctx, q, func(rows [][]byte) error {
		add(&sum, rows)
		return nil
	})
	if errors.Is(err, table.ErrNoTable) {
		return *new(T), false, nil // without the pages that came before the table was dropped
	}
	return sum, err == nil, err
}

// readMonth reads the row of a name in a month, or these properties of it. It returns nil if there
// is none. Error: link.ErrUnavailable.
func (t *tables) readMonth(ctx context.Context, month, name string, properties ...string) (
	row []byte, etag table.ETag, err error) {
	row, etag, err = t.month(month).Table.Get(ctx, hashOf(name), name, properties...)
	if errors.Is(err, table.ErrGone) || errors.Is(err, table.ErrNoTable) {
		return nil, "", nil
	}
	return row, etag, err
}

// firstKept returns the oldest day that statistics show.
func (c *Clicks) firstKept(now time.Time) clicks.Day {
	return clicks.DayOf(now) - clicks.Day(c.config.KeepDays)
}

// dayReader reads a range of days: first those that have a table, and then the others from their
// months. A roll-up that comes in between has written the month before it drops the day's table.
type dayReader struct {
	first  clicks.Day
	there  []bool     // by day from first on: it was read from a table of its own
	open   clicks.Day // the first day that may have a table
	atOnce int        // how many days or months are read at the same time
}

// newDayReader returns a reader of the days from one to another that are kept.
func (c *Clicks) newDayReader(from, to, open clicks.Day, atOnce int) *dayReader {
	first := max(from, c.firstKept(c.config.Now()))
	return &dayReader{first, make([]bool, max(to-first+1, 0)), open, atOnce}
}

// read calls day for each day that may have a table, and then month for each month with days that
// had none, which missing returns.
func (r *dayReader) read(ctx context.Context,
	day func(context.Context, clicks.Day) (there bool, err error),
	month func(ctx context.Context, month string) error) error {
	begin := max(r.open, r.first)
	n := int(r.first-begin) + len(r.there)
	if err := concurrent.Each(ctx, n, r.atOnce, func(ctx context.Context, i int) (err error) {
		d := begin + clicks.Day(i)
		r.there[d-r.first], err = day(ctx, d)
		return err
	}); err != nil {
		return err
	}
	var months []string
	for i, there := range r.there {
		if !there {
			months = append(months, monthOf(r.first+clicks.Day(i)))
		}
	}
	months = slices.Compact(months)
	return concurrent.Each(ctx, len(months), r.atOnce, func(ctx context.Context, i int) error {
		return month(ctx, months[i])
	})
}

// missing returns a day of a month. ok: it is in the range, and had no table.
func (r *dayReader) missing(month string, dayOfMonth int) (day clicks.Day, ok bool) {
	day, ok = clicks.ParseDay(fmt.Sprintf("%s%02d", month, dayOfMonth))
	i := int(day - r.first)
	return day, ok && 0 <= i && i < len(r.there) && !r.there[i]
}
