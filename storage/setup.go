package storage

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"tiney/telemetry"
)

// EnsureTables creates the tables that do not exist yet. Errors: link.ErrUnavailable.
func (s *Links) EnsureTables(ctx context.Context) error {
	// One after the other: nobody waits for it, and each connection costs memory, also at rest.
	return s.eachTable(ctx, 1, (*table).ensure)
}

// Ping asks each table for a row that cannot exist, the cheapest way to tell that all of them respond.
// Errors: link.ErrSecondaryOnly, link.ErrUnavailable.
func (s *Links) Ping(ctx context.Context) error {
	if s.second != nil {
		return s.second.ping(ctx, s.ping)
	}
	return s.ping(ctx)
}

func (s *Links) ping(ctx context.Context) error { return s.eachTable(ctx, -1, (*table).ping) }

func (s *Links) eachTable(ctx context.Context, atOnce int, do func(*table, context.Context) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(atOnce)
	for _, t := range []*table{&s.links.table, &s.index.table, &s.expiry.table, &s.owners.table, s.Keys.table, s.state, s.Clicks.days, s.Clicks.totals} {
		all.Go(func() error { return safely(func() error { return do(t, ctx) }) })
	}
	return exported(all.Wait())
}

// EnsureWithRetry calls ensure, which creates what is missing in storage, until it succeeds or ctx ends. It waits longer
// after each failure, up to half a minute. There is no hurry: the first request that misses a table creates it itself.
func EnsureWithRetry(ctx context.Context, log *slog.Logger, what string, ensure func(context.Context) error) {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		try, cancel := context.WithTimeout(ctx, Timeout)
		err := safely(func() error { return ensure(try) })
		cancel()
		if err == nil {
			log.Debug("storage is ready", "what", what)
			return
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn(telemetry.LogStorageNotReady, "what", what, "error", err, "retry", pause.String())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}
