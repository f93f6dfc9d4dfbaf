package storage

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/singleflight"

	"tiney/link"
	"tiney/storage/table"
	"tiney/telemetry"
)

const (
	// changesTrusted is how old the last poll may be for what is cached to count as right: so a
	// change shows in every process this long after it was acknowledged, at the latest.
	changesTrusted = 15 * time.Second
	// changesOverlap is how far before the last poll the next one looks back: clocks may differ by
	// half of it, and a read may have been under way when its link was changed.
	changesOverlap = time.Minute
	// changesKept is how long a row is kept, and changesGap how long a process may go without a
	// poll and still find all of them.
	changesKept = time.Hour
	changesGap  = 30 * time.Minute

	changesPrefix = "change|"
	changesMinute = "200601021504"
)

// changes tells other processes what this one is about to change, by rows in ShortUrlsState, and
// forgets what others have changed. A process polls only while it gets requests.
type changes struct {
	config      *Config
	rows        *store
	subscribers []subscriber

	// the last request, give or take a second; these are in Unix nanoseconds
	asked   atomic.Int64
	polled  atomic.Int64 // when the last successful poll began
	failed  atomic.Int64 // when the last poll failed; zero if it succeeded
	warned  atomic.Bool  // of the failure
	polling singleflight.Group
}

// subscriber keeps in memory what other processes may change. Its doubt and settle may be nil.
type subscriber struct {
	prefix string // of the names that are its own
	// forgets what is known by a name, which is given without the prefix
	forget func(name string)
	doubt  func()                      // makes all that is known count as stale
	settle func(context.Context) error // reads what is to be known again at once
}

func newChanges(config *Config, rows *store) *changes {
	c := &changes{config: config, rows: rows}
	c.polled.Store(config.Now().UnixNano()) // nothing that is older is cached
	return c
}

func (c *changes) subscribe(s subscriber) { c.subscribers = append(c.subscribers, s) }

// forget has the subscriber of a name forget what is known by it: the first one that has its
// prefix.
func (c *changes) forget(name string) {
	for _, s := range c.subscribers {
		if rest, ok := strings.CutPrefix(name, s.prefix); ok {
			s.forget(rest)
			return
		}
	}
}

// tell announces changes, which must be done before the first write of any of them: so a process
// that has read the row either sees the change, or forgets what it saw before. Several are in one
// row, else an import would have every process read many pages at each poll; table.MaxBatch names
// at most. Errors: link.ErrUnavailable.
func (c *changes) tell(ctx context.Context, names ...string) error {
	row := map[string]string{"PartitionKey": changesPrefix +
		c.config.Now().UTC().Format(changesMinute), "RowKey": names[0]}
	if len(names) > 1 {
		id, err := c.config.newID()
		if err != nil {
			return err
		}
		row["RowKey"], row["Names"] = severalChanges+id, strings.Join(names, "\n")
	}
	_, err := c.rows.upsert(ctx, encode(row))
	return err
}

// current reports whether what is cached is right now, but for changes of the last seconds. After
// an idle time, it waits for a poll. While polls fail it returns false, and the caller has to ask
// the table.
func (c *changes) current(ctx context.Context, at time.Time) bool {
	if c.config.ChangesEvery == 0 {
		return true
	}
	now := at.UnixNano()
	if asked := c.asked.Load(); now-asked > int64(time.Second) || now < asked {
		c.asked.Store(now) // not each time: the processors would pass it to and fro
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
		// if it succeeded at this very moment, polled is looked at first
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
	return shared(ctx, &c.polling, "", c.config.Timeout, func(ctx context.Context) (any, error) {
		begin, last := c.config.Now(), time.Unix(0, c.polled.Load())
		err := table.Safely(func() error { return c.ask(ctx, begin, last) })
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
		// Some rows may have been dropped. Nothing that was cached until now is trusted again.
		for _, s := range c.subscribers {
			if s.doubt != nil {
				s.doubt()
			}
		}
		last = begin
	}
	from := last.Add(-changesOverlap).UTC().Format(changesMinute)
	q := table.Query{Range: table.Range{From: changesPrefix + from, Before: beyond(changesPrefix)}}
	if err := c.rows.list(ctx, q, func(page [][]byte) error {
		rows, err := c.rows.decode(page)
		for _, r := range rows {
			if !strings.HasPrefix(r.key, severalChanges) {
				c.forget(r.key)
				continue
			}
			var several struct{ Names string }
			if err := json.Unmarshal(r.data, &several); err != nil {
				return fmt.Errorf("a row of changes: %w: %w", link.ErrUnavailable, err)
			}
			for name := range strings.SplitSeq(several.Names, "\n") {
				c.forget(name)
			}
		}
		return err
	}); err != nil {
		return err
	}
	for _, s := range c.subscribers {
		if s.settle != nil {
			if err := s.settle(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// drop deletes the rows that are older than any process may need.
func (c *changes) drop(ctx context.Context, now time.Time) error {
	before := now.Add(-changesKept).UTC().Format(changesMinute)
	return c.rows.deleteRange(ctx, table.Range{From: changesPrefix, Before: changesPrefix + before})
}

// The names of changes of an API key and of a blocked host begin with these, as no alias can.
const (
	keyChange  = "key|"
	hostChange = "host|"
)

// severalChanges begins the key of a row whose property Names has the names of several changes, one
// on each line.
const severalChanges = "several|"
