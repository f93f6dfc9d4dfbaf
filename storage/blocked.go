package storage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/singleflight"

	"tiney/internal/link"
	"tiney/storage/table"
)

const (
	blockedPartition = "blocked"
	// blockedTime is how long it may take to read all blocked hosts into memory, 1,000 on a page.
	blockedTime = time.Minute
	// blockedRetry is how long requests, after the first read of the blocked hosts has failed, do
	// not wait for another one.
	blockedRetry = 5 * time.Second
)

// Blocked keeps the hosts that no link may lead to. It keeps them in rows of ShortUrlsState, and
// all of them in memory: 100,000 take 7 MB, and half as much again while one is added. Its methods
// may be called concurrently, and other processes may work on the same table at the same time.
//
// Until the hosts have been read for the first time, redirects treat no host as blocked, and writes
// wait. After that, what is known stays known while storage fails. So an outage stops no link that
// is cached.
type Blocked struct {
	config  *Config
	rows    *store
	second  *store // copy of rows in the second region; nil without one
	changes *changes

	hosts atomic.Pointer[link.Hosts] // a map is never changed, only replaced; nil: not read yet
	known atomic.Bool                // the hosts were read from rows, not only from the copy
	// when the last read of all hosts failed or took too long, in Unix nanoseconds; zero: neither
	failed atomic.Int64
	reads  singleflight.Group // reads of all hosts
	// held during a write, so that what is known here of a host is what was written last
	writing turn

	mu      sync.Mutex
	named   map[link.Host]bool // hosts that were announced as changing, and not read since
	doubted bool               // some changes may be unknown: all hosts have to be read again
	// what became known during a read of all hosts, whose pages may lack it; nil: no such read
	during map[link.Host]bool
}

func newBlocked(config *Config, rows *store, changes *changes) *Blocked {
	b := &Blocked{config: config, rows: rows, changes: changes, writing: newTurn()}
	changes.subscribe(subscriber{
		prefix: hostChange,
		forget: func(host string) { b.forget(link.Host(host)) },
		doubt:  b.doubt,
		settle: b.settle,
	})
	return b
}

// Has reports whether a long URL leads to a host that is blocked, or to one below it. It makes no
// call, with one exception: until the hosts have been read, it waits up to half a second for a read
// of them, and after a failure not again for some seconds. It knows what other processes have
// changed after 15 seconds, as long as this process gets requests.
func (b *Blocked) Has(ctx context.Context, longURL string) bool {
	if !b.known.Load() {
		now := b.config.Now().UnixNano()
		if failed := b.failed.Load(); failed == 0 || now < failed ||
			now-failed >= int64(blockedRetry) {
			if b.hosts.Load() == nil {
				b.await(ctx)
			} else { // the hosts from the copy will do meanwhile
				b.readAll(ctx)
			}
		}
	}
	hosts := b.hosts.Load()
	return hosts != nil && hosts.Cover(longURL)
}

// permit returns an error unless a link may lead to a long URL. It is for writes. They need storage
// anyway, so it waits for the hosts. It may be the first call after an idle time, so it polls for
// changes first. Errors: link.ErrBlocked, link.ErrUnavailable.
func (b *Blocked) permit(ctx context.Context, longURL string) error {
	b.changes.current(ctx, b.config.Now())
	if err := b.Read(ctx); err != nil {
		return err
	}
	if b.hosts.Load().Cover(longURL) {
		return link.ErrBlocked
	}
	return nil
}

// await reads all hosts and waits for that, half a second at most. A read that takes longer goes
// on.
func (b *Blocked) await(ctx context.Context) {
	wait := time.NewTimer(b.config.ChangesWait)
	defer wait.Stop()
	select {
	case <-b.readAll(ctx):
	case <-ctx.Done():
	case <-wait.C:
		b.failed.Store(b.config.Now().UnixNano())
	}
}

// Read reads the blocked hosts, unless they were read before. A read of their copy does not count.
// Errors: link.ErrUnavailable.
func (b *Blocked) Read(ctx context.Context) error {
	if b.known.Load() {
		return nil
	}
	select {
	case got := <-b.readAll(ctx):
		return got.Err
	case <-ctx.Done():
		return fmt.Errorf("reading the blocked hosts: %w in time: %w", link.ErrUnavailable,
			ctx.Err())
	}
}

// readAll reads all hosts. Concurrent callers share one read.
func (b *Blocked) readAll(ctx context.Context) <-chan singleflight.Result {
	return b.reads.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), blockedTime)
		defer cancel()
		b.mu.Lock()
		b.during, b.doubted = map[link.Host]bool{}, false
		b.mu.Unlock()
		// Without the copy, every process that starts while the first region is down would redirect
		// to blocked hosts.
		copied := time.AfterFunc(secondaryAfter, func() { b.readCopy(ctx) })
		hosts, err := b.readFrom(ctx, b.rows)
		if copied.Stop() && err != nil {
			b.readCopy(ctx)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if err == nil {
			hosts = with(hosts, b.during)
			b.hosts.Store(&hosts)
			b.known.Store(true)
			b.failed.Store(0)
		} else {
			b.doubted = true
			b.failed.Store(b.config.Now().UnixNano())
		}
		b.during = nil
		return nil, err
	})
}

// readCopy reads the hosts from the second region, if they are not known yet. The hosts that the
// first region returns replace them.
func (b *Blocked) readCopy(ctx context.Context) {
	if b.second == nil || b.hosts.Load() != nil {
		return
	}
	// the read from the first region may end meanwhile, and its context with it
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.config.Timeout)
	defer cancel()
	if hosts, err := b.readFrom(ctx, b.second); err == nil {
		b.hosts.CompareAndSwap(nil, &hosts)
	}
}

func (b *Blocked) readFrom(ctx context.Context, t *store) (link.Hosts, error) {
	hosts := link.Hosts{}
	err := table.Safely(func() error {
		return scanBlocked(ctx, t, []string{"RowKey"}, func(e blockedEntity) {
			hosts[link.Host(e.RowKey)] = struct{}{}
		})
	})
	return hosts, err
}

// scanBlocked calls do for the row of each host, with these properties.
func scanBlocked(ctx context.Context, t *store, properties []string, do func(blockedEntity)) error {
	q := table.Query{Range: table.Range{Partition: blockedPartition}, Properties: properties}
	return t.list(ctx, q, func(page [][]byte) error {
		for _, data := range page {
			var e blockedEntity
			if err := json.Unmarshal(data, &e); err != nil {
				return fmt.Errorf("a blocked host: %w: %w", link.ErrUnavailable, err)
			}
			do(e)
		}
		return nil
	})
}

// forget notes that a process, this one or another, has announced a change of a host.
func (b *Blocked) forget(h link.Host) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.named == nil {
		b.named = map[link.Host]bool{}
	}
	b.named[h] = true
}

// doubt notes that there may be changes that this process does not know.
func (b *Blocked) doubt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.doubted = true
}

// settle reads what has changed: host by host, or all hosts if that takes no more calls. It is part
// of a poll. An error makes that poll a failed one, so that the next poll names these hosts again.
// A read of all hosts may go on after settle has returned; if it fails, the next poll repeats it.
// As long as no request has needed the hosts, there is nothing to do.
func (b *Blocked) settle(ctx context.Context) error {
	b.mu.Lock()
	hosts, named := b.hosts.Load(), slices.Collect(maps.Keys(b.named))
	b.named = nil
	if len(named) > 0 && (hosts == nil || len(named) > len(*hosts)/table.MaxPage) {
		// also during a read of all hosts: it may have begun before these hosts were changed
		b.doubted = true
	}
	doubted := b.doubted
	b.mu.Unlock()
	switch {
	case hosts == nil:
		return nil
	case doubted:
		b.await(ctx)
		return nil
	}
	there := make([]bool, len(named))
	err := eachListed(ctx, len(named), func(ctx context.Context, i int) error {
		_, _, err := b.rows.get(ctx, blockedPartition, string(named[i]))
		if there[i] = err == nil; errors.Is(err, table.ErrGone) {
			err = nil
		}
		return err
	})
	if err != nil {
		return err
	}
	blocked := map[link.Host]bool{}
	for i, h := range named {
		blocked[h] = there[i]
	}
	b.learn(blocked)
	return nil
}

// learn notes which of some hosts are blocked now.
func (b *Blocked) learn(blocked map[link.Host]bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.during != nil {
		maps.Copy(b.during, blocked)
	}
	if hosts := b.hosts.Load(); hosts != nil {
		next := with(*hosts, blocked)
		b.hosts.Store(&next)
	}
}

// with returns hosts after some of them were blocked or unblocked: a copy, if that changes
// anything. It removes from blocked what changes nothing.
func with(hosts link.Hosts, blocked map[link.Host]bool) link.Hosts {
	maps.DeleteFunc(blocked, func(h link.Host, is bool) bool {
		_,
			was := hosts[h]
		return was == is
	})
	if len(blocked) == 0 {
		return hosts
	}
	next := maps.Clone(hosts)
	for h, is := range blocked {
		if is {
			next[h] = struct{}{}
		} else {
			delete(next, h)
		}
	}
	return next
}

// Add blocks a host and all hosts below it. When it returns without an error, the block is durable
// and known here, and within 15 seconds every process knows it. It is safe to repeat. A client that
// disconnects does not cut it short. Errors: link.ErrUnavailable.
func (b *Blocked) Add(ctx context.Context, h link.Host) error {
	return b.write(ctx, func(ctx context.Context, d deadline) error {
		if err := b.tell(ctx, d, h); err != nil {
			return err
		}
		// A crash here leaves a change that was announced and not made.
		e := blockedEntity{PartitionKey: blockedPartition, RowKey: string(h)}
		e.CreatedAt, e.CreatedAtType = dateTime(b.config.Now().Truncate(time.Second))
		_, _, err := b.rows.insert(ctx, encode(e))
		if errors.Is(err, table.ErrExists) {
			err = nil // the host was blocked already, and keeps its time
		}
		if err == nil {
			b.learn(map[link.Host]bool{h: true})
		}
		return err
	})
}

// Remove ends the block of a host, as durably as Add. A block of a host above it stays.
// Errors: link.ErrNotBlocked, link.ErrUnavailable.
func (b *Blocked) Remove(ctx context.Context, h link.Host) error {
	return b.write(ctx, func(ctx context.Context, d deadline) error {
		_, etag, err := b.rows.get(ctx, blockedPartition, string(h))
		if errors.Is(err, table.ErrGone) {
			b.learn(map[link.Host]bool{h: false}) // an earlier Remove may have got no response
			return link.ErrNotBlocked
		}
		if err == nil {
			err = b.tell(ctx, d, h)
		}
		if err == nil {
			// By its ETag, or a try that arrives late would end a later block.
			err = b.rows.delete(ctx, rowKey{blockedPartition, string(h), etag})
		}
		if err == nil {
			b.learn(map[link.Host]bool{h: false})
		}
		return err
	})
}

func (b *Blocked) write(ctx context.Context, do func(context.Context, deadline) error) error {
	d, ctx, cancel := b.config.startWrite(ctx)
	defer cancel()
	b.writing.lock()
	defer b.writing.unlock()
	return do(ctx, d)
}

// tell announces a change to other processes, which look for the announcement for about a minute.
// It returns an error if the time for the change is over.
func (b *Blocked) tell(ctx context.Context, d deadline, h link.Host) error {
	if err := b.changes.announce(ctx, hostChange+string(h)); err != nil {
		return err
	}
	return d.inTime()
}

// List returns the blocked hosts as they are in the table, sorted by name. Errors:
// link.ErrUnavailable.
func (b *Blocked) List(ctx context.Context) (all []link.BlockedHost, err error) {
	ctx, cancel := context.WithTimeout(ctx, b.config.Timeout)
	defer cancel()
	err = scanBlocked(ctx, b.rows, []string{"RowKey", "CreatedAtUtc"}, func(e blockedEntity) {
		all = append(all, link.BlockedHost{Host: link.Host(e.RowKey), CreatedAt: e.CreatedAt.UTC()})
	})
	return all, err
}

// blockedEntity is a row of ShortUrlsState on the wire. Its RowKey is the host: every character of
// a host is allowed in a key.
type blockedEntity struct {
	PartitionKey  string
	RowKey        string
	CreatedAt     time.Time `json:"CreatedAtUtc,omitzero"`
	CreatedAtType string    `json:"CreatedAtUtc@odata.type,omitzero"`
}
