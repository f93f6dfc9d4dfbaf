// Package storage keeps links, API keys and blocked hosts in Azure tables, with a cache in front of
// the links, and has the lock of the reaper.
//
// The order of writes keeps the promises. Each state of a link is preceded by the expiry row that
// will end it, and a link is followed by its index row; it is deleted the other way round. So
// whatever a crash leaves behind has an expiry row, by which the reaper finds it. No link or index
// row is ever deleted or replaced but by the ETag of the very row that was read and found to be
// due, or that was just written.
//
// A change of a link is announced before it is made, so that other processes forget what they have
// cached of it.
package storage

import (
	"context"
	"io"
	"log/slog"
	"time"

	"tiney/link"
	"tiney/telemetry"
)

// Config says where links are kept, and how. Every field is required unless it says otherwise.
type Config struct {
	Tables Tables
	Open   func(name string) Table // opens a table; it makes no call
	// the same in the account's second region, which is read if the first one fails; nil: there is
	// none
	OpenCopy func(name string) Table
	// Timeout is the longest that a method waits for storage, all calls and tries of it together.
	// It waits for less if its context has less time left.
	Timeout     time.Duration
	AliasLength int          // characters of a drawn alias
	Cache       *CacheConfig // nil disables it: every read goes to the table
	Reap        ReapConfig
	Clicks      ClicksConfig

	// StaleWait is how long a caller waits for the table if there is a stale link, or a key, to
	// serve instead: to somebody who follows a link, a table that takes longer is as good as down.
	StaleWait time.Duration

	DeletedKeep time.Duration // how long a deleted link can be restored
	// how long an alias still leads nowhere after its link's time; zero: not at all
	TombstoneFor time.Duration
	ChangesEvery time.Duration // how often other processes' changes are asked for; zero: never
	ChangesWait  time.Duration // how long a request waits for that, of all the time that it has

	Now     func() time.Time
	Random  io.Reader // cryptographic; safe for concurrent use
	Log     *slog.Logger
	Metrics *telemetry.Metrics
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

// Links keeps links in tables. Its methods may be called concurrently, and other processes may work
// on the same tables at the same time.
type Links struct {
	Keys    *Keys // of the owners
	Blocked *Blocked
	Clicks  *Clicks
	Reaps   *Reaps

	config  *Config
	links   *linkTable
	index   *indexTable
	expiry  *expiryTable
	owners  *ownerTable
	state   *store
	cache   *cache // nil without one
	changes *changes
	second  *secondary // nil without one
}

// Open returns a Links. It makes no call yet; the tables are created when they are found missing.
func Open(config Config) (*Links, error) {
	open := func(name string) *store {
		return &store{table: config.Open(name),
			timeout: config.Timeout}
	}
	state := open(config.Tables.State)
	s := &Links{
		config:  &config,
		links:   &linkTable{open(config.Tables.Links)},
		index:   &indexTable{open(config.Tables.Index)},
		expiry:  &expiryTable{open(config.Tables.Expiry)},
		owners:  &ownerTable{open(config.Tables.Owners)},
		state:   state,
		changes: newChanges(&config, state),
		Reaps:   newReaps(&config, state),
	}
	s.Keys = newKeys(&config, open(config.Tables.Keys), s.changes)
	s.Blocked = newBlocked(&config, state, s.changes)
	var err error
	if config.Cache != nil {
		if s.cache, err = newCache(&config, s.links.get, s.changes.current); err != nil {
			return nil, err
		}
		s.changes.subscribe(subscriber{ // the last one, since all names have its prefix
			forget: func(alias string) { s.cache.forget(link.Alias(alias)) },
			doubt:  s.cache.doubt,
		})
	}
	if s.Clicks, err = newClicks(s, open(config.Tables.Clicks),
		open(config.Tables.ClickTotals)); err != nil {
		return nil, err
	}
	if config.OpenCopy != nil {
		copied := func(name string) *store {
			return &store{table: config.OpenCopy(name), timeout: config.Timeout, readOnly: true}
		}
		s.Blocked.second = copied(config.Tables.State)
		s.second = &secondary{config: &config, links: &linkTable{copied(config.Tables.Links)},
			cache: s.cache}
	}
	return s, nil
}

// FollowChanges asks for the changes of other processes as long as this one gets requests, until
// ctx ends. Without it, some requests have to wait for that.
func (s *Links) FollowChanges(ctx context.Context) { s.changes.follow(ctx) }

// newID returns a random id, by which a write is known again.
func (c *Config) newID() (string, error) {
	id, err := link.NewAlias(c.Random, 22) // 131 bits
	return string(id), err
}
