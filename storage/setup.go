package storage

import (
	"context"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
)

// Make makes the tables that do not exist yet. Errors: link.ErrUnavailable.
func (s *Links) Make(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	for _, t := range s.tables() {
		all.Go(func() error { return safely(func() error { return t.make(ctx) }) })
	}
	return all.Wait()
}

// Check reads a row from each table that is not there, which is the least that tells that all of them answer.
// Errors: link.ErrUnavailable.
func (s *Links) Check(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	for _, t := range s.tables() {
		all.Go(func() error { return safely(func() error { return t.check(ctx) }) })
	}
	return all.Wait()
}

func (s *Links) tables() []*table {
	return []*table{&s.links.table, &s.index.table, &s.expiry.table}
}

// MakeUntilDone calls make, which makes what is missing in storage, until it succeeds or ctx ends. It waits longer
// after each failure, up to half a minute: the first request that needs a missing table makes it itself, so there is
// no hurry.
func MakeUntilDone(ctx context.Context, log *slog.Logger, what string, make func(context.Context) error) {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		try, cancel := context.WithTimeout(ctx, Timeout)
		err := safely(func() error { return make(try) })
		cancel()
		if err == nil {
			log.Debug("storage is there", "what", what)
			return
		}
		if ctx.Err() != nil {
			return
		}
		log.Warn("storage cannot be used yet", "what", what, "error", err, "retry", pause.String())
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}
