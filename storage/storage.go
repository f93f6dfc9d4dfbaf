// Package storage keeps links, API keys, blocked hosts and clicks in tables, with a cache in front
// of the links.
//
// The order of writes keeps the promises. An operation writes the expiry row that will end a state
// of a link before it writes that state, and it writes the index row after the link. Deletes go the
// other way round. So whatever a crash leaves behind has an expiry row, by which the reaper finds
// it. A link or an index row is deleted or replaced only by the ETag of the very row that was read
// and found to be due, or that was just written.
//
// A process announces a change of a link before it makes the change, so that other processes forget
// what they have cached of the link.
package storage

import (
	"context"

	"tiney/internal/link"
	"tiney/storage/concurrent"
	"tiney/storage/counts"
	"tiney/storage/table"
)

// Links keeps links in tables. Its methods may be called concurrently, and other processes may work
// on the same tables at the same time.
type Links struct {
	Keys    *Keys // API keys of owners
	Blocked *Blocked
	Clicks  *counts.Clicks
	Reaps   *Reaps

	config  *Config
	links   *linkTable
	index   *indexTable
	expiry  *expiryTable
	owners  *ownerTable
	state   *table.Store
	tables  []*table.Store // all that are opened by name
	cache   *cache         // nil without one
	changes *changes
	turns   turns
	second  *secondary // nil without one
}

// Open returns a Links. It makes no call yet. The tables are created when they are found missing.
func Open(config Config) (*Links, error) {
	var all []*table.Store
	open := func(name string) *table.Store {
		t := &table.Store{Table: config.Open(name), Timeout: config.Timeout}
		all = append(all, t)
		return t
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
		Reaps:   &Reaps{&config, state},
	}
	s.Keys = newKeys(&config, open(config.Tables.Keys), s.changes)
	s.Blocked = newBlocked(&config, state, s.changes)
	var err error
	if config.Cache != nil {
		if s.cache, err = newCache(&config, s.links.get, s.changes.current); err != nil {
			return nil, err
		}
		s.changes.subscribe(subscriber{ // last, because every name has its empty prefix
			forget: func(alias string) { s.cache.forget(link.Name(alias)) },
			doubt:  s.cache.doubt,
		})
	}
	if s.Clicks, err = counts.New(counts.Config{Settings: config.Clicks, Open: config.Open,
		Days: config.Tables.Clicks, Totals: open(config.Tables.ClickTotals), State: state,
		Links: known{s}, Timeout: config.Timeout, PageSize: config.Reap.PageSize,
		StorageClock: config.Reap.StorageClock, Pause: config.Reap.Pause, Now: config.Now,
		Random: config.Random, Log: config.Log, Metrics: config.Metrics}); err != nil {
		return nil, err
	}
	s.tables = all
	if config.OpenCopy != nil {
		copied := func(name string) *table.Store {
			return &table.Store{Table: config.OpenCopy(name), Timeout: config.Timeout,
				ReadOnly: true}
		}
		s.Blocked.second = copied(config.Tables.State)
		s.second = &secondary{config: &config, links: &linkTable{copied(config.Tables.Links)},
			cache: s.cache}
	}
	return s, nil
}

// FollowChanges asks for the changes of other processes as long as this process gets requests,
// until ctx ends. Without it, some requests have to wait for a poll.
func (s *Links) FollowChanges(ctx context.Context) { s.changes.follow(ctx) }

// EnsureTables creates the tables that do not exist yet. Errors: link.ErrUnavailable.
func (s *Links) EnsureTables(ctx context.Context) error {
	// The tables are created one after the other: no request waits for that, and each connection
	// costs memory, even at rest.
	return s.eachTable(ctx, 1, (*table.Store).Ensure)
}

// Ping asks each table for a row that cannot exist. That is the cheapest way to find out that
// all of them respond. Errors: link.ErrSecondaryOnly, link.ErrUnavailable.
func (s *Links) Ping(ctx context.Context) error {
	if s.second != nil {
		return s.second.ping(ctx, s.ping)
	}
	return s.ping(ctx)
}

func (s *Links) ping(ctx context.Context) error { return s.eachTable(ctx, -1, (*table.Store).Ping) }

func (s *Links) eachTable(ctx context.Context, atOnce int,
	do func(*table.Store, context.Context) error) error {
	return concurrent.Each(ctx, len(s.tables), atOnce, func(ctx context.Context, i int) error {
		return do(s.tables[i], ctx)
	})
}
