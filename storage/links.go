// Package storage keeps links in three Azure tables, with a cache in front of them, and has the lock of the reaper.
//
// The order of writes keeps the promises. A link is preceded by its expiry row and followed by its index row, and is
// deleted the other way round, so that whatever a crash leaves behind has an expiry row, by which the reaper finds it.
// Nothing is ever deleted or replaced but by the ETag of the very row that was read and found to be due, or that was just
// written.
package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"tiney/link"
	"tiney/telemetry"
)

// Timeout is the longest that a request waits for storage, all calls and tries of it together.
const Timeout = 5 * time.Second

// aliasTries is how many aliases are drawn for one link before the create fails.
const aliasTries = 10

// Config says where links are kept, and how. Every field is required unless it says otherwise.
type Config struct {
	Connection  Connection
	Tables      Tables
	AliasLength int          // characters of a drawn alias
	Cache       *CacheConfig // nil disables it: every read goes to the table
	Reap        ReapConfig

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
}

// Links keeps links in tables. Its methods may be called concurrently, and other processes may work on the same tables
// at the same time.
type Links struct {
	config Config
	links  *linkTable
	index  *indexTable
	expiry *expiryTable
	rows   linkRows // links, or the cache in front of it
	cache  *cache   // nil without one
}

// Open returns a Links. It makes no call yet; the tables are created when they are found missing.
func Open(config Config) (*Links, error) {
	service, err := config.Connection.tableService(config.Sender)
	if err != nil {
		return nil, err
	}
	open := func(name string) table { return table{name: name, client: service.NewClient(name)} }
	s := &Links{
		config: config,
		links:  &linkTable{open(config.Tables.Links)},
		index:  &indexTable{open(config.Tables.Index)},
		expiry: &expiryTable{open(config.Tables.Expiry)},
	}
	s.rows = s.links
	if config.Cache != nil {
		if s.cache, err = newCache(s.links, *config.Cache, config.Now, config.Metrics); err != nil {
			return nil, err
		}
		s.rows = s.cache
	}
	return s, nil
}

// Get returns the link of an alias, expired and disabled ones included: the caller decides what they are worth.
// Errors: link.ErrNotFound, link.ErrDamaged, link.ErrUnavailable.
func (s *Links) Get(ctx context.Context, a link.Alias) (link.Link, error) {
	if s.cache == nil { // the cache limits its reads itself, and a hit needs no limit
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, Timeout)
		defer cancel()
	}
	r, err := s.rows.get(ctx, a)
	if err != nil {
		return link.Link{}, exported(err)
	}
	return r.Link, nil
}

// Create makes a link like want, whose alias it draws, unless its long URL has a live one: then it returns that one,
// and created is false. However many callers, here and in other processes, want a link for one URL at the same time,
// they all get the same one, and created is true for one of them.
//
// When it returns without an error, the link is durable. After an error it is safe to repeat. It takes at most Timeout,
// and a second more to repair if the process was stopped for too long. The end of ctx does not cut it short: a client
// that disconnects leaves nothing half done.
// Errors: link.ErrDisabled, link.ErrAliasesTaken, link.ErrUnavailable.
func (s *Links) Create(ctx context.Context, want link.Link) (l link.Link, created bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), Timeout)
	defer cancel()
	c := &creation{Links: s, want: want, deadline: s.config.Now().Round(0).Add(Timeout)}
	l, err = c.create(ctx)
	if err != nil {
		return link.Link{}, false, exported(err)
	}
	return l, l.Alias == c.own.Alias, nil
}

// creation is one Create at work.
type creation struct {
	*Links
	want     link.Link
	deadline time.Time // wall clock

	own       linkRow     // the link that was inserted for want; its alias is "" until then
	ownExpiry azcore.ETag // of its expiry row, or "" if only the reaper may delete that
}

func (c *creation) create(ctx context.Context) (link.Link, error) {
	seen, err := c.index.get(ctx, c.want.LongURL)
	switch {
	case err == nil:
		if l, err := c.live(ctx, seen); !errors.Is(err, errStale) {
			return l, err
		}
	case !errors.Is(err, errGone):
		return link.Link{}, err
	}
	if err := c.insert(ctx); err != nil {
		return link.Link{}, err
	}
	return c.claim(ctx, seen)
}

// errStale: the index names no live link for this URL.
var errStale = errors.New("the index row is stale")

// live returns the link that the index row names, if it is a live one of the wanted URL. errStale: it is not.
// link.ErrDisabled: it would be, but is disabled.
func (c *creation) live(ctx context.Context, seen indexRow) (link.Link, error) {
	a, ok := link.ParseAlias(seen.alias)
	if !ok {
		return link.Link{}, errStale
	}
	r, err := c.rows.get(ctx, a)
	cached := c.cache != nil && r.etag == ""
	if cached && (errors.Is(err, link.ErrNotFound) || r.stale || err == nil && r.Expired(c.config.Now())) {
		// Before an alias is promised, the table decides in three cases: a cached "not found" may be older than the index row;
		// a cached expiry may have been extended since; and a stale link is good enough for a redirect, but not for a promise.
		// What the table says is cached, since the alias must redirect from here too.
		c.cache.forget(a)
		r, err = c.cache.refresh(ctx, a)
	}
	switch {
	case err != nil && decided(err):
		return link.Link{}, errStale
	case err != nil:
		return link.Link{}, err
	case r.LongURL != c.want.LongURL, r.Expired(c.config.Now()):
		return link.Link{}, errStale
	case r.Disabled:
		return link.Link{}, link.ErrDisabled
	}
	return r.Link, nil
}

// insert inserts the wanted link under a fresh alias, its expiry row before it.
func (c *creation) insert(ctx context.Context) error {
	for range aliasTries {
		a, err := link.NewAlias(c.config.Random, c.config.AliasLength)
		if err != nil {
			return err
		}
		l := c.want
		l.Alias = a
		if err = c.insertAs(ctx, l); !errors.Is(err, errExists) {
			return err
		}
		c.config.Metrics.ShortenAliasCollision.Add(1)
	}
	return link.ErrAliasesTaken
}

// insertAs inserts one link with its expiry row. errExists: the alias is taken, and nothing is left behind but perhaps
// an expiry row that may be another link's, which the reaper drops.
func (c *creation) insertAs(ctx context.Context, l link.Link) error {
	if err := c.inTime(); err != nil {
		return err
	}
	c.ownExpiry = ""
	var err error
	if !l.ExpiresAt.IsZero() {
		if c.ownExpiry, err = c.expiry.insert(ctx, l); err != nil {
			return err
		}
	}
	// A crash here leaves an expiry row without a link, which the reaper drops when its time has come.
	if err := c.inTime(); err != nil {
		return err
	}
	c.own, err = c.rows.insert(ctx, l)
	c.own.Link = l
	if late := c.inTime(); late != nil {
		c.repair(ctx)
		return late
	}
	if c.own.retried {
		// An earlier try that is stuck on its way may still be applied after this create has undone the insert.
		c.ownExpiry = ""
	}
	if errors.Is(err, errExists) {
		c.dropExpiry(ctx)
	}
	return err
}

// claim makes the index name the inserted link and returns that. If the index has come to name another live link, it
// undoes the insert and returns that link instead.
func (c *creation) claim(ctx context.Context, seen indexRow) (link.Link, error) {
	for {
		// A crash here leaves a link that nobody was told of. It expires like any other.
		if err := c.inTime(); err != nil {
			return link.Link{}, err
		}
		err := c.index.put(ctx, c.own.Link, seen)
		if late := c.inTime(); late != nil {
			c.repair(ctx)
			return link.Link{}, late
		}
		if err == nil {
			return c.own.Link, nil
		}
		if !errors.Is(err, errChanged) {
			// The index may name the link or not. The link stays: the next caller finds it there, or it expires.
			return link.Link{}, err
		}
		seen, err = c.index.get(ctx, c.want.LongURL)
		if errors.Is(err, errGone) {
			seen = indexRow{} // the reaper has deleted the stale one
			continue
		}
		if err != nil {
			return link.Link{}, err
		}
		if seen.alias == string(c.own.Alias) {
			return c.own.Link, nil // an earlier try was applied, and its response lost
		}
		winner, err := c.live(ctx, seen)
		if errors.Is(err, errStale) {
			continue
		}
		if err == nil || errors.Is(err, link.ErrDisabled) {
			c.undo(ctx)
		}
		return winner, err
	}
}

// undo deletes the own link, and its expiry row after it, so that a crash in between leaves no link without one. It is
// best effort: if it fails, the reaper deletes them in their time.
func (c *creation) undo(ctx context.Context) {
	if err := c.rows.delete(ctx, c.own); err != nil {
		c.config.Log.Warn(telemetry.LogLinkLeft, "alias", c.own.Alias, "error", err)
		return
	}
	c.dropExpiry(ctx)
}

// repair is for a process that was stopped in the middle of a write for longer than a create may take: the write may have
// been applied after the reaper was there, even if it returned an error. Others may have found the link by its index row and told their
// callers of it, so it is not undone. It gets its expiry row again; and if it was already reaped, the orphaned index
// row is deleted.
func (c *creation) repair(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	failed := func(left string, err error) {
		c.config.Log.Error(telemetry.LogCreateTooLate, "left", left, "alias", c.own.Alias, "error", err)
	}
	if !c.own.ExpiresAt.IsZero() {
		if _, err := c.expiry.insert(ctx, c.own.Link); err != nil && !errors.Is(err, errExists) {
			failed("a link without its expiry row", err)
		}
	}
	if _, err := c.links.get(ctx, c.own.Alias); !errors.Is(err, link.ErrNotFound) {
		return
	}
	index, err := c.index.get(ctx, c.want.LongURL)
	if err == nil && index.alias == string(c.own.Alias) {
		err = c.index.delete(ctx, c.want.LongURL, index)
	}
	if err != nil && !errors.Is(err, errGone) {
		failed("an index row without its link", err)
	}
}

func (c *creation) dropExpiry(ctx context.Context) {
	if c.ownExpiry == "" {
		return
	}
	partition, key := expiryKey(c.own.Link)
	err := c.expiry.delete(ctx, expiryRow{partition: partition, key: key, etag: c.ownExpiry})
	if err != nil {
		c.config.Log.Warn(telemetry.LogExpiryRowLeft, "alias", c.own.Alias, "error", err)
	}
}

// inTime returns an error if the create must not write any more. The context's deadline alone would not do: a process
// that was stopped and resumed may send a write before its timers run.
func (c *creation) inTime() error {
	// Round(0) leaves wall clock time: the monotonic clock stands still while a machine is suspended.
	if now := c.config.Now().Round(0); now.After(c.deadline) {
		return fmt.Errorf("%w: the create took longer than %v", link.ErrUnavailable, Timeout)
	}
	return nil
}
