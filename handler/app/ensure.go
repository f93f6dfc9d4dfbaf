package app

import (
	"context"
	"log/slog"
	"time"

	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

// oneAtATime has a capacity of one and is full during each try. Tries at the same time would need
// more connections, which take memory even at rest.
type oneAtATime chan struct{}

// ensure calls try, which creates what is missing in storage, or reads what is needed at first,
// until it succeeds or ctx ends. It waits longer after each failure, up to half a minute. There is
// no hurry, because a request that finds a table missing creates it.
func (t oneAtATime) ensure(
	ctx context.Context, log *slog.Logger, what string, try func(context.Context) error,
) {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		t <- struct{}{}
		once, cancel := context.WithTimeout(ctx, table.Timeout)
		err := concurrent.Safely(func() error { return try(once) })
		cancel()
		<-t
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
