package storage

import (
	"context"

	"golang.org/x/sync/errgroup"

	"tiney/storage/table"
)

// EnsureTables creates the tables that do not exist yet. Errors: link.ErrUnavailable.
func (s *Links) EnsureTables(ctx context.Context) error {
	// The tables are created one after the other: no request waits for that, and each connection
	// costs memory, even at rest.
	return s.eachTable(ctx, 1, (*store).ensure)
}

// Ping asks each table for a row that cannot exist. That is the cheapest way to tell that all of
// them respond. Errors: link.ErrSecondaryOnly, link.ErrUnavailable.
func (s *Links) Ping(ctx context.Context) error {
	if s.second != nil {
		return s.second.ping(ctx, s.ping)
	}
	return s.ping(ctx)
}

func (s *Links) ping(ctx context.Context) error { return s.eachTable(ctx, -1, (*store).ping) }

func (s *Links) eachTable(ctx context.Context, atOnce int,
	do func(*store, context.Context) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(atOnce)
	for _, t := range []*store{s.links.rows, s.index.rows, s.expiry.rows, s.owners.rows,
		s.Keys.rows, s.state, s.Clicks.totals} {
		all.Go(func() error { return table.Safely(func() error { return do(t, ctx) }) })
	}
	return all.Wait()
}
