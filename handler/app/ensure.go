package app

import (
	"context"
	"log/slog"
	"time"

	"tiney/storage/table"
	"tiney/telemetry"
)

// ensureWithRetry calls ensure, which creates what is missing in storage, until it succeeds or ctx
// ends. It waits longer after each failure, up to half a minute. There is no hurry, because a
// request that finds a table missing creates it.
func ensureWithRetry(
	ctx context.Context, log *slog.Logger, what string, ensure func(context.Context) error,
) {
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		try, cancel := context.WithTimeout(ctx, table.Timeout)
		err := table.Safely(func() error { return ensure(try) })
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
