// Package storage keeps links, API keys and blocked hosts in Azure tables, with a cache in front of the links, and has the
// lock of the reaper.
//
// The order of writes keeps the promises. Each state of a link is preceded by the expiry row that will end it, and a link
// is followed by its index row; it is deleted the other way round. So whatever a crash leaves behind has an expiry row, by
// which the reaper finds it. No link or index row is ever deleted or replaced but by the ETag of the very row that was read
// and found to be due, or that was just written.
//
// A change of a link is announced before it is made, so that other processes forget what they have cached of it.
package storage

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"tiney/link"
	"tiney/telemetry"
)

// Timeout is the longest that a method waits for storage, all calls and tries of it together. It waits
// for less if its context has less time left.
const Timeout = 5 * time.Second

// Config says where links are kept, and how. Every field is required unless it says otherwise.
type Config struct {
	Connection  Connection
	Tables      Tables
	AliasLength int          // characters of a drawn alias
	Cache       *CacheConfig // nil disables it: every read goes to the table
	Secondary   *Connection  // of the copy in the account's second region, which is read if the first one fails; nil: none
	Reap        ReapConfig
	Clicks      ClicksConfig

	DeletedKeep  time.Duration // how long a deleted link can be restored
	TombstoneFor time.Duration // how long an alias still leads nowhere after its link's time; zero: not at all
	ChangesEvery time.Duration // how often other processes' changes are asked for; zero: never

	Now     func() time.Time
	Random  io.Reader // cryptographic; safe for concurrent use
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	Sender  *telemetry.Sender // gets the calls to storage as dependencies; nil disables it
}

// Tables are the names of the tables.
type Tables struct {
	Links  string // "ShortUrls"
	Index  string // "UrlIndex"
	Expiry string // "ShortUrlsExpiryIndex"
	Owners string // "ShortUrlsByOwner"
	Keys   string // "ShortUrlsKeys"
	State  string // "ShortUrlsState"

	Clicks      string // "ShortUrlsClicks"
	ClickTotals string // "ShortUrlsClickTotals"
}

// Links keeps links in tables. Its methods may be called concurrently, and other processes may work on the same tables
// at the same time.
type Links struct {
	Keys    *Keys // of the owners
	Blocked *Blocked
	Clicks  *Clicks
	Reaps   *Reaps

	config  Config
	links   *linkTable
	index   *indexTable
	expiry  *expiryTable
	owners  *ownerTable
	state   *table
	cache   *cache // nil without one
	changes *changes
	second  *secondary // nil without one
}

// Open returns a Links. It makes no call yet; the tables are created when they are found missing.
func Open(config Config) (*Links, error) {
	service, err := config.Connection.tableService(config.Sender)
	if err != nil {
		return nil, err
	}
	open := func(name string) table { return table{name: name, client: service.NewClient(name)} }
	state := open(config.Tables.State)
	s := &Links{
		config: config,
		links:  &linkTable{open(config.Tables.Links)},
		index:  &indexTable{open(config.Tables.Index)},
		expiry: &expiryTable{open(config.Tables.Expiry)},
		owners: &ownerTable{open(config.Tables.Owners)},
		state:  &state,
	}
	s.changes = &changes{table: s.state, every: config.ChangesEvery, now: config.Now, log: config.Log, metrics: config.Metrics,
		forget: s.forgetChange, doubt: s.doubt, newID: s.newID}
	s.changes.polled.Store(config.Now().UnixNano()) // nothing that is older is cached
	s.Blocked = &Blocked{table: s.state, changes: s.changes, now: config.Now}
	s.changes.settle = s.Blocked.settle
	days, totals := open(config.Tables.Clicks), open(config.Tables.ClickTotals)
	s.Clicks = newClicks(s, &days, &totals)
	s.Reaps = &Reaps{table: s.state, log: config.Log}
	keys := open(config.Tables.Keys)
	s.Keys = newKeys(&keys, config, s.changes)
	if config.Cache != nil {
		if s.cache, err = newCache(s.links.get, s.changes.current, *config.Cache, config.Now, config.Metrics); err != nil {
			return nil, err
		}
	}
	if config.Secondary != nil {
		copies, err := config.Secondary.tableService(config.Sender)
		if err != nil {
			return nil, err
		}
		copied := func(name string) table { return table{name: name, client: copies.NewClient(name), readOnly: true} }
		blocked := copied(config.Tables.State)
		s.Blocked.second = &blocked
		s.second = &secondary{links: &linkTable{copied(config.Tables.Links)}, cache: s.cache, now: config.Now, log: config.Log, metrics: config.Metrics}
	}
	return s, nil
}

// FollowChanges asks for the changes of other processes as long as this one gets requests, until ctx ends. Without it, some
// requests have to wait for that.
func (s *Links) FollowChanges(ctx context.Context) { s.changes.follow(ctx) }

// Cached returns the link of an alias if it is cached, and is live and right, but for changes of the last seconds; or, if stale
// is true, as right as if storage were down. It may lack what Link says a cache leaves out. It makes no call, unless nobody has
// asked for a while what other processes have changed.
func (s *Links) Cached(ctx context.Context, a link.Alias, stale bool) (l link.Link, ok bool) {
	if s.cache == nil {
		return link.Link{}, false
	}
	if e := s.cache.hit(ctx, a); e != nil {
		return e.link(), true
	}
	if stale {
		if e := s.cache.stale(ctx, a); e != nil {
			return e.row(true).Link, true
		}
	}
	return link.Link{}, false
}

// Get returns the link of an alias, or its tombstone, whatever its state: the caller decides what it is worth. It may be
// cached, as that of Cached.
// Errors: link.ErrNotFound, link.ErrDamaged, link.ErrUnavailable.
func (s *Links) Get(ctx context.Context, a link.Alias) (link.Link, error) {
	if s.cache == nil { // the cache limits its reads itself
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, Timeout)
		defer cancel()
		s.changes.current(ctx, s.config.Now()) // for the blocked hosts
	}
	get := s.get
	if s.second != nil {
		get = func(ctx context.Context, a link.Alias) (linkRow, error) { return s.second.get(ctx, a, s.get) }
	}
	r, err := get(ctx, a)
	if err != nil {
		return link.Link{}, exported(err)
	}
	return r.Link, nil
}

// Read returns the link of an alias from its table, whatever its state. A tombstone counts as no link.
// Errors: link.ErrNotFound, link.ErrDamaged, link.ErrUnavailable.
func (s *Links) Read(ctx context.Context, a link.Alias) (link.Link, error) {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	r, err := s.read(ctx, a)
	return r.Link, exported(err)
}

// get reads from the cache, if there is one.
func (s *Links) get(ctx context.Context, a link.Alias) (linkRow, error) {
	if s.cache == nil {
		return s.links.get(ctx, a)
	}
	return s.cache.get(ctx, a)
}

// read reads a link, and no tombstone, from the table.
func (s *Links) read(ctx context.Context, a link.Alias) (linkRow, error) {
	r, err := s.links.get(ctx, a)
	if err == nil && r.GoneReason != link.StateLive {
		return linkRow{}, link.ErrNotFound
	}
	return r, err
}

// end returns when the reaper has to look at a link, or at a tombstone, because its time in this state is over, and zero
// for never.
func (s *Links) end(l link.Link) time.Time {
	switch {
	case l.GoneReason == link.StateDeleted:
		return l.GoneAt.Add(s.config.DeletedKeep + s.config.TombstoneFor)
	case l.GoneReason != link.StateLive:
		return l.GoneAt.Add(s.config.TombstoneFor)
	case !l.DeletedAt.IsZero():
		return l.DeletedAt.Add(s.config.DeletedKeep)
	}
	return l.ExpiresAt
}

// writing is an operation that writes links, with the time until which it may.
type writing struct {
	*Links
	deadline
}

// write begins an operation that writes. It ends in the time that ctx has left, but a client that
// disconnects does not cut it short, which would leave things half done.
func (s *Links) write(ctx context.Context) (writing, context.Context, context.CancelFunc) {
	d, ctx, cancel := startWrite(ctx, s.config.Now)
	return writing{s, d}, ctx, cancel
}

// deadline is the time until which an operation may write.
type deadline struct {
	at  time.Time // wall clock
	now func() time.Time
}

func startWrite(ctx context.Context, now func() time.Time) (deadline, context.Context, context.CancelFunc) {
	left := Timeout
	if end, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(end))
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	return deadline{now().Round(0).Add(left), now}, ctx, cancel
}

// inTime returns an error if the operation must not write any more. The context's deadline alone would not do: a process
// that was stopped and resumed may send a write before its timers run.
func (d deadline) inTime() error {
	// Round(0) leaves wall clock time: the monotonic clock stands still while a machine is suspended.
	if now := d.now().Round(0); now.After(d.at) {
		return fmt.Errorf("%w: the time for it is over", link.ErrUnavailable)
	}
	return nil
}

// stopped reports whether the process stood still in the middle of the operation, for so long that a
// reaper may have come between two of its writes. Those whose time is merely over need no repair.
func (d deadline) stopped() bool { return d.now().Round(0).After(d.at.Add(stoppedAfter)) }

// stoppedAfter, with Timeout and the half minute between clocks, is less than a link's shortest life.
const stoppedAfter = 15 * time.Second

// due returns when the row by which a link ends is due, if the link is about to be written: at its end,
// but not before that write is over, or a reaper would find the link as it was. Zero: never.
func (s *Links) due(l link.Link) time.Time {
	end := s.end(l)
	if soon := s.soon(link.MinTTL); !end.IsZero() && end.Before(soon) {
		return soon
	}
	return end
}

// soon returns the first whole second that is further away than d.
func (s *Links) soon(d time.Duration) time.Time {
	return s.config.Now().Add(d).Truncate(time.Second).Add(time.Second)
}

// guardAfter is when a guard is due: after the Timeout of its operation, the minute in which storage may
// still apply a try that was given up, and the half minute by which the reaper's clock may be ahead.
const guardAfter = 2 * time.Minute

// guard makes the reaper look at a link, and at the rows of the index with these keys, one or two, once
// the writes that follow are over. Who has made these deletes the row, unless one of them may be late.
func (s *Links) guard(ctx context.Context, a link.Alias, keys ...string) (rowKey, error) {
	e := newExpiry(s.soon(guardAfter), a)
	e.OldIndexKey, e.NewIndexKey = keys[0], keys[len(keys)-1]
	return s.expiry.insertFree(ctx, e)
}

// endsSoon reports whether a reaper may end a link before a guard is due: it may have looked for a row of
// the index just before that was inserted.
func (s *Links) endsSoon(l link.Link) bool {
	end := s.end(l)
	return !end.IsZero() && end.Before(s.config.Now().Add(guardAfter))
}

// newID returns a random id, by which a write is known again.
func (s *Links) newID() (string, error) {
	id, err := link.NewAlias(s.config.Random, 22) // 131 bits
	return string(id), err
}
