package counts

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

const (
	flushConcurrency = 4 // batches of counts at the same time
	flushTime        = 30 * time.Second
	// flushBytes bounds what one batch holds; the service's own limit is 4 MiB.
	flushBytes = 3 << 20
	// lateAfter is how long after its end a day's rows are still written. Later ones count for
	// today, since the roll-up takes a day as final once rollUpAfter has passed; the hour between
	// them is for clocks that differ and calls that take long.
	lateAfter   = 23 * time.Hour
	rollUpAfter = 24 * time.Hour
	// settledAfter is how long after a write failed it has had its effect, or never will.
	settledAfter = 10 * time.Minute
	// flushPause is the shortest time between two flushes. After idleAfter without clicks, fewer
	// counts stay in memory.
	flushPause = time.Second
	idleAfter  = 30 * time.Second
	// muchFreed is how many bytes are worth returning to the system at once.
	muchFreed = 4 << 20
	// keyTime is how long counts wait for a key to be made. Without a key, the clicks are written,
	// and their visitors wait for the next flush.
	keyTime = 2 * time.Second
	// keyAhead is how long before its day a key is made, so that an outage at midnight costs no
	// visitors.
	keyAhead = time.Hour
)

// Clicks counts clicks in memory, and writes the counts to a table now and then: one row for each
// link, day and process, with everything that the process has counted. A row is always written
// whole, so that it may arrive more than once.
//
// A process that is killed loses what it has not written. An outage of more than a day loses what
// may have been written before the day was rolled up. Nothing else loses a click or counts one
// twice.
type Clicks struct {
	config  *Config
	tables  *tables // days and months
	process string  // random, new with each start

	counter  *clicks.Counter // nil: nothing is counted
	flushing concurrent.Mutex
	busy     time.Time // when the last flush began that had something to save
	saved    time.Time // when the last flush began that saved all, or that found nothing to save
	warned   bool      // once per outage

	sum      kept[clicks.Total] // of all links
	passing  concurrent.Mutex
	passes   kept[*pass]
	owned    kept[[]candidate] // links of owners, by pass
	keysGone atomic.Int32      // the keys of days before this one are deleted
}

// New returns Clicks. It makes no call.
func New(config Config) (*Clicks, error) {
	process, err := link.NewAlias(config.Random, 22, false) // 131 bits
	if err != nil {
		return nil, err
	}
	c := &Clicks{config: &config, tables: newTables(&config), process: string(process),
		flushing: concurrent.NewMutex(), saved: config.Now(),
		passing: concurrent.NewMutex(),
		// a pass may wait for those of the two other windows
		passes: kept[*pass]{limit: 3 * passTime,
			until: func(p *pass) time.Time { return p.until }}}
	if config.Mode != clicks.ModeOff {
		c.counter = clicks.NewCounter()
	}
	return c, nil
}

// Click counts a redirect to a link. It takes well below a microsecond and never waits for storage.
func (c *Clicks) Click(l link.Link, k clicks.Click) {
	if c.counter == nil {
		return
	}
	of := clicks.Of{Name: string(l.Name), CountedFrom: clicks.DayOf(l.CountedFrom), Owner: l.Owner}
	switch {
	case !c.counter.Click(of, &k):
		c.config.Metrics.ClicksDropped.Add(1)
	case k.Bot:
		c.config.Metrics.ClicksBots.Add(1)
	default:
		c.config.Metrics.ClicksCounted.Add(1)
	}
}

// Created counts links that were made.
func (c *Clicks) Created(links int) {
	if c.counter != nil {
		c.counter.Created(c.config.Now(), int64(links))
	}
}

// FlushRegularly writes the counts every FlushEvery, or earlier if they take much memory, until ctx
// ends. It makes no call while nothing is counted.
func (c *Clicks) FlushRegularly(ctx context.Context) {
	if c.counter == nil {
		return
	}
	ticker := time.NewTicker(c.config.FlushEvery)
	defer ticker.Stop()
	soon := c.counter.Soon
	for {
		select {
		case <-ctx.Done():
			// The process is stopping. App.Close saves what comes until it has ended.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.config.Timeout)
			defer cancel()
			_ = c.Flush(ctx)
			return
		case <-ticker.C:
		case <-soon:
		}
		soon = c.counter.Soon
		if err := c.Flush(ctx); err != nil {
			soon = nil // the next flush comes in its time
		}
		select {
		case <-ctx.Done():
		case <-time.After(flushPause):
		}
	}
}

// Flush writes the counts that are not written yet. Counts that cannot be written now are left for
// the next Flush. Errors: link.ErrUnavailable.
func (c *Clicks) Flush(ctx context.Context) error {
	if c.counter == nil {
		return nil
	}
	c.flushing.Lock()
	defer c.flushing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	operation := telemetry.Begin(ctx, "clicks", nil, true)
	begin := c.config.Now()
	today := clicks.DayOf(begin)
	idle := len(c.counter.Pending()) == 0 && !c.counter.Waiting(today) &&
		!c.counter.Waiting(today-1)
	var err error
	if !idle {
		c.busy = begin
		err = concurrent.Safely(func() error { return c.flush(&operation, begin) })
	}
	before, resting := c.counter.Bytes(), begin.Sub(c.busy) >= idleAfter
	c.counter.Forget(today, resting)
	if resting && before-c.counter.Bytes() > muchFreed {
		// a process at rest allocates so little that the next collection may be minutes away
		debug.FreeOSMemory()
	}
	if err == nil {
		c.saved, c.warned = begin, false
	} else if !c.warned && !errors.Is(ctx.Err(),
		context.Canceled) { // a stop, after which the last flush follows
		c.warned = true
		c.config.Log.Warn(telemetry.LogClicksNotSaved, "error", err)
	}
	if !idle { // an idle process sends no metrics
		c.config.Metrics.ClicksFlush.Observe(c.config.Now().Sub(begin))
		c.config.Metrics.ClicksAge.Set(int64(max(begin.Sub(c.saved), 0) / time.Second))
	}
	return err
}

func (c *Clicks) flush(ctx context.Context, now time.Time) error {
	keys := c.makeKeys(ctx, now) // without one, visitors wait, and the clicks do not
	pending := c.counter.Pending()
	saved := c.saveInTime(ctx, pending, now)
	var moved error
	if slices.ContainsFunc(pending, func(p *clicks.Pending) bool { return isLate(p.Day, now) }) {
		if moved = c.moveLate(ctx, pending, now); saved == nil {
			saved = c.saveInTime(ctx, c.counter.Pending(), now)
		}
	}
	return errors.Join(saved, moved, keys)
}

// saveInTime writes the counts that are not late.
func (c *Clicks) saveInTime(ctx context.Context, pending []*clicks.Pending, now time.Time) error {
	partitions := map[string][]*clicks.Pending{} // by day and partition
	for _, p := range pending {
		if !isLate(p.Day, now) {
			at := p.Day.String() + hashOf(p.Name)[:1]
			partitions[at] = append(partitions[at], p)
		}
	}
	var all errgroup.Group // one that fails does not keep others from being written
	all.SetLimit(flushConcurrency)
	for _, at := range slices.Sorted(maps.Keys(partitions)) {
		all.Go(func() error {
			return concurrent.Safely(func() error { return c.save(ctx, partitions[at]) })
		})
	}
	return all.Wait()
}

// save writes counts of one partition of a day.
func (c *Clicks) save(ctx context.Context, pending []*clicks.Pending) error {
	day, partition := pending[0].Day, hashOf(pending[0].Name)[:1]
	for len(pending) > 0 {
		// The process may have been stopped for long.
		if ctx.Err() != nil || isLate(day, c.config.Now()) {
			return fmt.Errorf("the counts of %s: %w in time", day, link.ErrUnavailable)
		}
		rows := c.batch(partition, pending)
		again, err := c.tables.day(day).UpsertBatch(ctx, rows)
		if errors.Is(err, table.ErrNoTable) && !again {
			return err // the day has become late meanwhile, and nothing of this was written
		}
		for _, p := range pending[:len(rows)] {
			if err != nil {
				p.Failed(c.config.Now())
			} else {
				p.Saved(again)
			}
		}
		if err != nil {
			return err
		}
		pending = pending[len(rows):]
	}
	return nil
}

// batch returns the rows of as many counts as one call takes. Counts whose last write failed come
// first, and alone: until it succeeds no other is tried, so that an outage makes no count continue
// in more than one further row.
func (c *Clicks) batch(partition string, pending []*clicks.Pending) (rows [][]byte) {
	size := 0
	for _, p := range pending[:min(len(pending), table.MaxBatch)] {
		if size >= flushBytes-maxRow || p.FailedAt.IsZero() != pending[0].FailedAt.IsZero() {
			break
		}
		rows = append(rows, encodeCount(partition, countKey(p.Name, c.process, p.Row),
			fromDay(p.CountedFrom.Start()), p.Take()))
		size += len(rows[len(rows)-1])
	}
	return rows
}

// isLate reports whether counts of a day may not be written to its table any more.
func isLate(day clicks.Day, now time.Time) bool {
	return !now.Before((day + 1).Start().Add(lateAfter))
}

// moveLate moves counts of days that are late to today. Where a write was sent before, only its row
// shows what is saved. Once the day is rolled up, that row is gone, and what may have been saved is
// dropped.
func (c *Clicks) moveLate(ctx context.Context, pending []*clicks.Pending, now time.Time) error {
	var failed error
	for _, p := range pending {
		if !isLate(p.Day, now) {
			continue
		}
		if now.Sub(p.FailedAt) < settledAfter {
			failed = fmt.Errorf("the counts of %s: a write of them may be under way: %w", p.Day,
				link.ErrUnavailable)
			continue
		}
		var saved clicks.Count
		if p.Sent() {
			data, _, err := c.tables.day(p.Day).Table.Get(ctx, hashOf(p.Name)[:1],
				countKey(p.Name, c.process, p.Row))
			if err == nil {
				_, saved, err = decodeCount(data)
			}
			switch {
			case errors.Is(err, table.ErrGone): // in a table that is there
			case errors.Is(err, table.ErrNoTable), errors.Is(err, link.ErrDamaged):
				lost := p.Drop()
				if !(subject{name: p.Name}).several() { // the sums lose the same clicks
					c.config.Metrics.ClicksDropped.Add(lost)
				}
				continue
			case err != nil:
				return err
			}
		}
		c.counter.Move(p, &saved, now)
	}
	return failed
}

const (
	keyPrefix = "salt|"
	keyRow    = "key"
)

// makeKeys gives the counter the key of today, that of tomorrow from keyAhead before it on, and
// that of yesterday if visitors still wait for it.
func (c *Clicks) makeKeys(ctx context.Context, now time.Time) error {
	if c.config.Mode != clicks.ModeFull {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, keyTime)
	defer cancel()
	today := clicks.DayOf(now)
	for day := today - 1; day <= clicks.DayOf(now.Add(keyAhead)); day++ {
		if c.counter.HasKey(day) || day < today && (isLate(day, now) || !c.counter.Waiting(day)) {
			continue
		}
		key, err := c.key(ctx, day)
		if err != nil {
			return err
		}
		c.counter.SetKey(day, key, today)
	}
	return nil
}

// key returns the key of a day. The first process that needs it makes it.
func (c *Clicks) key(ctx context.Context, day clicks.Day) (key clicks.Key, err error) {
	partition := keyPrefix + day.String()
	data, _, err := c.config.State.Get(ctx, partition, keyRow)
	if errors.Is(err, table.ErrGone) {
		if _, err := io.ReadFull(c.config.Random, key[:]); err != nil {
			return key, err
		}
		_, err = c.config.State.Write(ctx, table.Insert,
			table.Encode(map[string]string{"PartitionKey": partition, "RowKey": keyRow,
				"Key": hex.EncodeToString(key[:])}), "")
		// ErrExists: by another process, or by an earlier try of this very call
		if err == nil || errors.Is(err, table.ErrExists) {
			data, _, err = c.config.State.Get(ctx, partition, keyRow)
		}
	}
	if err != nil {
		return key, err
	}
	var e struct{ Key string }
	_ = json.Unmarshal(data, &e) // what is no row has no key
	if decoded, err := hex.DecodeString(e.Key); err != nil || copy(key[:], decoded) != len(key) {
		return key, fmt.Errorf("the key of %s: %w", day, link.ErrUnavailable)
	}
	return key, nil
}
