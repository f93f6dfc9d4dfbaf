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
)

// Links keeps links in tables. Its methods may be called concurrently, and other processes may work
// on the same tables at the same time.
type Links struct {
	Keys    *Keys // API keys of owners
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

// Open returns a Links. It makes no call yet. The tables are created when they are found missing.
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
	if s.Clicks, err = newClicks(s, open(config.Tables.ClickTotals)); err != nil {
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

// FollowChanges asks for the changes of other processes as long as this process gets requests,
// until ctx ends. Without it, some requests have to wait for a poll.
func (s *Links) FollowChanges(ctx context.Context) { s.changes.follow(ctx) }

// EnsureTables creates the tables that do not exist yet. Errors: link.ErrUnavailable.
func (s *Links) EnsureTables(ctx context.Context) error {
	// The tables are created one after the other: no request waits for that, and each connection
	// costs memory, even at rest.
	return s.eachTable(ctx, 1, (*store).ensure)
}

// Ping asks each table for a row that cannot exist. That is the cheapest way to find out that
// all of them respond. Errors: link.ErrSecondaryOnly, link.ErrUnavailable.
func (s *Links) Ping(ctx context.Context) error {
	if s.second != nil {
		return s.second.ping(ctx, s.ping)
	}
	return s.ping(ctx)
}

func (s *Links) ping(ctx context.Context) error { return s.eachTable(ctx, -1, (*store).ping) }

func (s *Links) eachTable(ctx context.Context, atOnce int,
	do func(*store, context.Context) error) error {
	tables := []*store{s.links.rows, s.index.rows, s.expiry.rows, s.owners.rows, s.Keys.rows,
		s.state, s.Clicks.totals}
	return concurrently(ctx, len(tables), atOnce, func(ctx context.Context, i int) error {
		return do(tables[i], ctx)
	})
}
