package storage

import (
	"cmp"
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
	"tiney/storage/concurrent"
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
// all of them in memory: 100,000 take 7 MB, twice as much while they are read again, and half as
// much again while one is added. Its methods may be called concurrently, and other processes may
// work on the same table at the same time.
//
// Until the hosts have been read for the first time, redirects treat no host as blocked but those
// that this process has blocked, and writes wait. After that, what is known stays known while
// storage fails. So an outage stops no link that is cached.
type Blocked struct {
	config  *Config
	rows    *table.Store
	second  *table.Store // copy of rows in the second region; nil without one
	changes *changes

	hosts  atomic.Pointer[link.Hosts] // a map is never changed, only replaced
	known  atomic.Bool                // the hosts were read from rows
	copied atomic.Bool                // they were read from the copy
	// hosts may lack a change: one was announced since the last read of them began, or that read
	// has failed
	stale atomic.Bool
	// when the last read failed or took too long, in Unix nanoseconds; zero: neither
	failed atomic.Int64
	reads  singleflight.Group
	// held during a write, so that what is known here of a host is what was written last
	writing concurrent.Mutex

	mu      sync.Mutex // held while hosts or what follows are replaced
	reading bool       // from rows
	// what this process has changed during a read, whose pages may lack it, or before the first
	// read has ended
	own []hostChanged
}

type hostChanged struct {
	host    link.Host
	blocked bool
}

func newBlocked(config *Config, rows *table.Store, changes *changes) *Blocked {
	b := &Blocked{config: config, rows: rows, changes: changes, writing: concurrent.NewMutex()}
	b.hosts.Store(&link.Hosts{})
	doubt := func() { b.stale.Store(true) }
	changes.subscribe(subscriber{
		prefix: hostChange,
		forget: func(string) { doubt() },
		doubt:  doubt,
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
		since := b.config.Now().UnixNano() - b.failed.Load()
		switch recently := 0 <= since && since < int64(blockedRetry); {
		case recently:
		case !b.copied.Load():
			b.await(ctx)
		default: // the hosts from the copy will do meanwhile
			b.readAll(ctx)
		}
	}
	return b.hosts.Load().Cover(longURL)
}

// permit returns an error unless a link may lead wherever next does and was does not. It is for
// writes. They need storage anyway, so it waits for hosts that are not known, or of which a change
// was announced. It may be the first call after an idle time, so it polls for changes first.
// Errors: link.ErrBlocked, link.ErrUnavailable.
func (b *Blocked) permit(ctx context.Context, was, next link.Link) error {
	before := was.Targets()
	added := map[link.Field]string{}
	if next.LongURL != was.LongURL {
		added[link.FieldLongURL] = next.LongURL
	}
	if next.GoneURL != was.GoneURL {
		added[link.FieldGoneURL] = string(next.GoneURL)
	}
	for i, r := range next.Rules {
		if !slices.Contains(before, r.LongURL) {
			added[link.RuleField(i, "longUrl")] = r.LongURL
		}
	}
	if len(added) == 0 {
		return nil
	}
	b.changes.current(ctx, b.config.Now())
	if err := b.Read(ctx); err != nil {
		return err
	}
	hosts := b.hosts.Load()
	for _, field := range slices.Sorted(maps.Keys(added)) { // so that the first is always the same
		if hosts.Cover(added[field]) {
			return &link.BlockedError{Field: field}
		}
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

// Read reads the blocked hosts, unless they are known. A read of their copy does not count. If they
// are stale, Read waits until they are not. Errors: link.ErrUnavailable.
func (b *Blocked) Read(ctx context.Context) error {
	b.mu.Lock()
	current := b.known.Load() && !b.stale.Load() && !b.reading
	b.mu.Unlock()
	if current {
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

// readAll reads all hosts until they are known and not stale. So it reads them once more if a
// change was announced meanwhile: the pages that were read before may lack it. Concurrent callers
// share one read.
func (b *Blocked) readAll(ctx context.Context) <-chan singleflight.Result {
	return b.reads.DoChan("", func() (any, error) {
		var err error
		for err == nil && (!b.known.Load() || b.stale.Load()) {
			err = b.readOnce(ctx)
		}
		// A poll that finds an announcement right here still joins this read. The hosts stay stale,
		// and the next poll reads them.
		return nil, err
	})
}

func (b *Blocked) readOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), blockedTime)
	defer cancel()
	b.mu.Lock()
	b.reading = true
	before := len(b.own)
	b.mu.Unlock()
	b.stale.Store(false)
	// Without the copy, every process that starts while the first region is down would redirect to
	// blocked hosts.
	copied := time.AfterFunc(secondaryAfter, func() { b.readCopy(ctx) })
	hosts, err := b.readFrom(ctx, b.rows)
	if copied.Stop() && err != nil {
		b.readCopy(ctx)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.replace(hosts, b.own[before:])
		b.known.Store(true)
		b.failed.Store(0)
	} else {
		b.stale.Store(true)
		b.failed.Store(b.config.Now().UnixNano())
	}
	if b.reading = false; b.known.Load() {
		b.own = nil
	}
	return err
}

// replace takes hosts that were read, with these changes.
func (b *Blocked) replace(hosts link.Hosts, own []hostChanged) {
	for _, c := range own {
		if c.blocked {
			hosts[c.host] = struct{}{}
		} else {
			delete(hosts, c.host)
		}
	}
	b.hosts.Store(&hosts)
}

// readCopy reads the hosts from the second region, if they are not known yet. The hosts that the
// first region returns replace them.
func (b *Blocked) readCopy(ctx context.Context) {
	if b.second == nil || b.known.Load() || b.copied.Load() {
		return
	}
	// the read from the first region may end meanwhile, and its context with it
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.config.Timeout)
	defer cancel()
	hosts, err := b.readFrom(ctx, b.second)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && !b.known.Load() {
		b.replace(hosts, b.own)
		b.copied.Store(true)
	}
}

func (b *Blocked) readFrom(ctx context.Context, t *table.Store) (link.Hosts, error) {
	hosts := link.Hosts{}
	err := concurrent.Safely(func() error {
		return scanBlocked(ctx, t, []string{"RowKey"}, func(e blockedEntity) {
			hosts[link.Host(e.RowKey)] = struct{}{}
		})
	})
	return hosts, err
}

// scanBlocked calls do for the row of each host, with these properties.
func scanBlocked(ctx context.Context, t *table.Store, properties []string,
	do func(blockedEntity)) error {
	q := table.Query{Range: table.Range{Partition: blockedPartition}, Properties: properties}
	return t.List(ctx, q, func(page [][]byte) error {
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

// settle reads the hosts if they are stale. It is part of a poll, and fails none: while a read
// fails, what is known stays, and each later poll repeats the read. A read that takes longer than
// half a second goes on after settle has returned. As long as no request has needed the hosts,
// there is nothing to do.
func (b *Blocked) settle(ctx context.Context) {
	if b.stale.Load() && (b.known.Load() || b.copied.Load()) {
		b.await(ctx)
	}
}

// learn notes what this process has made of a host.
func (b *Blocked) learn(h link.Host, blocked bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change := hostChanged{h, blocked}
	if b.reading || !b.known.Load() {
		b.own = append(b.own, change)
	}
	b.replace(maps.Clone(*b.hosts.Load()), []hostChanged{change})
}

// Add blocks a host and all hosts below it. When it returns without an error, the block is durable
// and known here, and within 15 seconds every process knows it. It is safe to repeat. A client that
// disconnects does not cut it short. Errors: link.ErrUnavailable.
func (b *Blocked) Add(ctx context.Context, h link.Host) error {
	return b.write(ctx, h, func(ctx context.Context) error {
		e := blockedEntity{PartitionKey: blockedPartition, RowKey: string(h)}
		e.CreatedAt, e.CreatedAtType = table.DateTime(b.config.Now().Truncate(time.Second))
		_, err := b.rows.Write(ctx, table.Insert, table.Encode(e), "")
		if errors.Is(err, table.ErrExists) {
			err = nil // the host was blocked already, and keeps its time
		}
		if err == nil {
			b.learn(h, true)
		}
		return err
	})
}

// Remove ends the block of a host, as durably as Add. A block of a host above it stays.
// Errors: link.ErrNotBlocked, link.ErrUnavailable.
func (b *Blocked) Remove(ctx context.Context, h link.Host) error {
	return b.write(ctx, h, func(ctx context.Context) error {
		_, etag, err := b.rows.Get(ctx, blockedPartition, string(h))
		if errors.Is(err, table.ErrGone) {
			b.learn(h, false) // an earlier Remove may have got no response
			return link.ErrNotBlocked
		}
		if err == nil {
			// By its ETag, or a try that arrives late would end a later block.
			err = b.rows.Delete(ctx,
				table.Key{Partition: blockedPartition, Row: string(h), ETag: etag})
		}
		if err == nil {
			b.learn(h, false)
		}
		return err
	})
}

// write announces a change of a host and makes it. Other processes look for the announcement for
// about a minute. A crash in between leaves a change that was announced and not made. If the
// process stands still in between, others have looked too early, so write announces the change once
// more.
func (b *Blocked) write(ctx context.Context, h link.Host,
	change func(context.Context) error) error {
	d, ctx, cancel := b.config.startWrite(ctx)
	defer cancel()
	b.writing.Lock()
	defer b.writing.Unlock()
	announce := func(ctx context.Context) error {
		return b.changes.announce(ctx, hostChange+string(h))
	}
	if err := cmp.Or(announce(ctx), d.inTime()); err != nil {
		return err
	}
	err := change(ctx)
	if d.inTime() != nil {
		ctx, cancel := lateTime(ctx)
		defer cancel()
		err = cmp.Or(err, announce(ctx))
	}
	return err
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
