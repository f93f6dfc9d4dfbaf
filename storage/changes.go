package storage

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/singleflight"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

const (
	// changesTrusted is how long after a successful poll cached values count as right. So a change
	// shows in every process this long after it was acknowledged, at the latest.
	changesTrusted = 15 * time.Second
	// changesOverlap is how far before the last poll the next one looks back. Clocks may differ by
	// half of it, and a read may have been under way when its link was changed.
	changesOverlap = time.Minute
	// changesKept is how long a row is kept. changesGap is how long a process may go without a poll
	// and still find all rows.
	changesKept = time.Hour
	changesGap  = 30 * time.Minute

	// A row's partition is changesPrefix and the minute of its announcement. Its key is the second,
	// "|" and the name, so that a poll reads no more than it has to.
	changesPrefix = "change|"
	changesMinute = "200601021504"
	changesSecond = "05|"
)

// changes announces what this process is about to change, as rows in ShortUrlsState. It polls for
// the rows of other processes, and evicts what they changed. A process polls only while it gets
// requests.
type changes struct {
	config      *Config
	rows        *table.Store
	subscribers []subscriber

	// All times are in Unix nanoseconds.
	asked   atomic.Int64 // when the last request came, give or take a second
	polled  atomic.Int64 // when the last successful poll began
	failed  atomic.Int64 // when the last poll failed; zero if it succeeded
	warned  atomic.Bool  // of the failure
	polling singleflight.Group
}

// subscriber keeps values in memory that other processes may change. doubt, settle and end may be
// nil.
type subscriber struct {
	prefix string                                       // of the names of its values
	forget func(name string)                            // evicts a value; name has no prefix
	doubt  func()                                       // makes all values count as stale
	settle func(context.Context)                        // reads again what must not be missing
	end    func(ctx context.Context, name string) error // its announcement is about to be deleted
}

func newChanges(config *Config, rows *table.Store) *changes {
	c := &changes{config: config, rows: rows}
	c.polled.Store(config.Now().UnixNano()) // nothing was cached before
	return c
}

func (c *changes) subscribe(s subscriber) { c.subscribers = append(c.subscribers, s) }

// of returns the subscriber of a name, which is the first one whose prefix the name has, and the
// rest of the name.
func (c *changes) of(name string) (s subscriber, rest string) {
	for _, s := range c.subscribers {
		if rest, ok := strings.CutPrefix(name, s.prefix); ok {
			return s, rest
		}
	}
	return subscriber{}, name
}

func (c *changes) forget(name string) {
	if s, rest := c.of(name); s.forget != nil {
		s.forget(rest)
	}
}

// announce announces changes by their names, at most table.MaxBatch. The caller announces before
// the first write of any of them: so a process that has read the announcement either sees the
// change, or forgets what it saw before. Several names are in one row. Otherwise every process
// would read many pages at each poll after an import. Errors: link.ErrUnavailable.
func (c *changes) announce(ctx context.Context, names ...string) error {
	now := c.config.Now().UTC()
	row := map[string]string{"PartitionKey": changesPrefix + now.Format(changesMinute),
		"RowKey": now.Format(changesSecond) + names[0]}
	if len(names) > 1 {
		id, err := c.config.newID()
		if err != nil {
			return err
		}
		row["RowKey"], row["Names"] = now.Format(changesSecond)+severalChanges+id,
			strings.Join(names, "\n")
	}
	_, err := c.rows.Write(ctx, table.Upsert, table.Encode(row), "")
	return err
}

// changeIn returns the name in the key of an announcement, or severalChanges and an id.
func changeIn(key string) string { return key[min(len(changesSecond), len(key)):] }

// current reports whether what is cached is right, but for changes of the last seconds. After an
// idle time it waits for a poll. While polls fail it returns false, and the caller has to ask the
// table.
func (c *changes) current(ctx context.Context, at time.Time) bool {
	if c.config.ChangesEvery == 0 {
		return true
	}
	now := at.UnixNano()
	if asked := c.asked.Load(); now-asked > int64(time.Second) || now < asked {
		c.asked.Store(now) // once a second only: a shared write slows down all processors
	}
	if age := now - c.polled.Load(); 0 <= age && age <= int64(changesTrusted) {
		return true
	}
	if failed := c.failed.Load(); failed != 0 && failed <= now &&
		now-failed < int64(c.config.ChangesEvery) {
		return false
	}
	polled := c.poll(ctx)
	wait := time.NewTimer(c.config.ChangesWait)
	defer wait.Stop()
	select {
	case got := <-polled:
		return got.Err == nil
	case <-wait.C:
		// If the poll succeeds at this very moment, that does no harm: the next call looks at
		// polled first.
		c.failed.Store(c.config.Now().UnixNano())
	case <-ctx.Done():
	}
	return false
}

// follow polls as long as there are requests, until ctx ends.
func (c *changes) follow(ctx context.Context) {
	if c.config.ChangesEvery == 0 {
		return
	}
	ticker := time.NewTicker(c.config.ChangesEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if c.config.Now().UnixNano()-c.asked.Load() <= int64(changesTrusted) {
				<-c.poll(ctx)
			}
		}
	}
}

// poll asks for the changes since the last successful poll. Concurrent callers share one poll.
func (c *changes) poll(ctx context.Context) <-chan singleflight.Result {
	return concurrent.Share(ctx, &c.polling, "", c.config.Timeout, func(ctx context.Context) (any,
		error) {
		begin, last := c.config.Now(), time.Unix(0, c.polled.Load())
		err := concurrent.Safely(func() error { return c.ask(ctx, begin, last) })
		c.config.Metrics.ChangesPolls.Add(1)
		if err == nil {
			c.polled.Store(begin.UnixNano())
			c.failed.Store(0)
			c.warned.Store(false)
			last = begin
		} else {
			c.config.Metrics.ChangesFailed.Add(1)
			c.failed.Store(c.config.Now().UnixNano())
			if !c.warned.Swap(true) { // once per outage
				c.config.Log.Warn(telemetry.LogChangesNotPolled, "error", err)
			}
		}
		c.config.Metrics.ChangesAge.Set(int64(c.config.Now().Sub(last) / time.Second))
		return nil, err
	})
}

func (c *changes) ask(ctx context.Context, begin, last time.Time) error {
	if gap := begin.Sub(last); gap < 0 || gap > changesGap {
		// Some rows may have been dropped, so nothing that was cached until now is trusted.
		for _, s := range c.subscribers {
			if s.doubt != nil {
				s.doubt()
			}
		}
		last = begin
	}
	from := last.Add(-changesOverlap).UTC()
	minute := changesPrefix + from.Format(changesMinute)
	// The two ranges are read one after the other: for one query with "or" between them, the
	// service would read the whole table.
	for _, r := range []table.Range{{Partition: minute, From: from.Format(changesSecond)},
		{After: minute, Before: table.Beyond(changesPrefix)}} {
		if err := c.rows.List(ctx, table.Query{Range: r}, c.forgetAll); err != nil {
			return err
		}
	}
	for _, s := range c.subscribers {
		if s.settle != nil {
			s.settle(ctx)
		}
	}
	return nil
}

// forgetAll forgets what the rows of a page announce.
func (c *changes) forgetAll(page [][]byte) error {
	rows, err := c.rows.Decode(page)
	for _, r := range rows {
		name := changeIn(r.Row)
		if !strings.HasPrefix(name, severalChanges) {
			c.forget(name)
			continue
		}
		var several struct{ Names string }
		if err := json.Unmarshal(r.Data, &several); err != nil {
			return fmt.Errorf("a row of changes: %w: %w", link.ErrUnavailable, err)
		}
		for name := range strings.SplitSeq(several.Names, "\n") {
			c.forget(name)
		}
	}
	return err
}

// drop deletes the rows that no process needs any more.
func (c *changes) drop(ctx context.Context, now time.Time) error {
	before := now.Add(-changesKept).UTC().Format(changesMinute)
	dropped := table.Range{From: changesPrefix, Before: changesPrefix + before}
	return c.rows.DeleteRange(ctx, dropped, func(rows []table.Listed) error {
		for _, r := range rows {
			if s, rest := c.of(changeIn(r.Row)); s.end != nil {
				if err := s.end(ctx, rest); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// These begin the names of changes of an API key and of a blocked host. No alias has a "|".
const (
	keyChange  = "key|"
	hostChange = "host|"
)

// severalChanges stands in place of the name in a row that announces several changes. Its property
// Names has a name on each line.
const severalChanges = "several|"
