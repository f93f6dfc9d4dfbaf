package storage

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tiney/internal/clicks"
	"tiney/storage/table"
)

// clickTables are the tables of clicks: one for each day, which has a row for each process and link,
// and one for each month, which has a row for each link. A day's table is dropped when all that is
// in it is in the tables of months and of totals. Then only these tell of the day. So whoever needs
// both reads the day first.
//
// A flush makes the tables of days, and the roll-up those of months. Whoever only reads finds a
// table that is missing empty.
type clickTables struct {
	config *Config
	base   Table // named as the setting; it never exists

	mu     sync.Mutex
	opened map[string]*store

	oldest kept[clicks.Day]
}

func newClickTables(config *Config) *clickTables {
	return &clickTables{config: config, base: config.Open(config.Tables.Clicks),
		opened: map[string]*store{}}
}

// maxOpened is how many tables are kept open, which takes a little memory.
const maxOpened = 64

// table returns the table with this suffix, "20060102" or "200601".
func (t *clickTables) table(suffix string) *store {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.opened[suffix]
	if s == nil {
		if len(t.opened) >= maxOpened {
			clear(t.opened)
		}
		s = &store{table: t.config.Open(t.config.Tables.Clicks + suffix), timeout: t.config.Timeout}
		if day, ok := clicks.ParseDay(suffix); ok { // once it may be dropped, nobody makes it again
			s.mayCreate = func() bool { return !isLate(day, t.config.Now()) }
		}
		t.opened[suffix] = s
	}
	return s
}

func (t *clickTables) day(day clicks.Day) *store { return t.table(day.String()) }
func (t *clickTables) month(month string) *store { return t.table(month) }

// names returns the days and months that have a table, in their order. Error: link.ErrUnavailable.
func (t *clickTables) names(ctx context.Context) (days []clicks.Day, months []string, err error) {
	prefix := t.config.Tables.Clicks
	names, err := t.base.Names(ctx, prefix)
	for _, name := range names {
		suffix := name[len(prefix):]
		if day, ok := clicks.ParseDay(suffix); ok {
			days = append(days, day)
		} else if _, ok := lastDayOf(suffix); ok {
			months = append(months, suffix)
		}
	}
	slices.Sort(days)
	slices.Sort(months)
	return days, months, err
}

// open returns the first day that may have a table, as it was within the last minute. That day is
// over for long only if a roll-up is late. Error: link.ErrUnavailable.
func (t *clickTables) open(ctx context.Context) (clicks.Day, error) {
	return t.oldest.get(ctx, "", t.config, func(ctx context.Context) (clicks.Day, error) {
		days, _, err := t.names(ctx)
		// A flush may make yesterday's table at any moment.
		oldest := clicks.DayOf(t.config.Now()) - 1
		if len(days) > 0 {
			oldest = min(oldest, days[0])
		}
		return oldest, err
	})
}

// ofDay returns the keys of the rows of a name on a day.
func ofDay(name string) table.Range {
	hash := clickHash(name)
	prefix := hash[1:] + keyEnd + name
	return table.Range{Partition: hash[:1], From: prefix + keyEnd, Before: prefix + afterEnd}
}

// readDay reads rows of a day, page by page. There is false if the day has no table, or none any
// more: whatever page got is then to be forgotten. Error: link.ErrUnavailable.
func (t *clickTables) readDay(ctx context.Context, day clicks.Day, q table.Query,
	page func(rows [][]byte)) (there bool, err error) {
	err = t.day(day).table.List(ctx, q, func(rows [][]byte) error {
		page(rows)
		return nil
	})
	if errors.Is(err, table.ErrNoTable) {
		return false, nil
	}
	return err == nil, err
}

// readMonth reads the row of a name in a month, or these properties of it. It returns nil if there
// is none. Error: link.ErrUnavailable.
func (t *clickTables) readMonth(ctx context.Context, month, name string, properties ...string) (
	row []byte, etag table.ETag, err error) {
	row, etag, err = t.month(month).table.Get(ctx, clickHash(name), name, properties...)
	if errors.Is(err, table.ErrGone) || errors.Is(err, table.ErrNoTable) {
		return nil, "", nil
	}
	return row, etag, err
}

// reading returns the table as one in which nothing is created.
func (t *store) reading() *store {
	return &store{table: t.table, timeout: t.timeout, readOnly: true}
}

// firstKept returns the first day of which anything is told.
func (c *Clicks) firstKept(now time.Time) clicks.Day {
	return clicks.DayOf(now) - clicks.Day(c.config.Clicks.KeepDays)
}
