package functions

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"tiney/telemetry"
)

// readyTimeout is how long the parts of storage have to respond.
const readyTimeout = 2 * time.Second

// ready handles GET /api/ready: whether each part of storage responds, and how fast.
type ready struct {
	parts map[string]Pinger
	log   *slog.Logger
}

type pinged struct {
	Status       string `json:"status"`
	Milliseconds int64  `json:"milliseconds"`
}

func (rd *ready) serve(ctx context.Context, w http.ResponseWriter, _ *http.Request) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var (
		all     sync.WaitGroup
		mu      sync.Mutex
		status  = "ready"
		results = map[string]pinged{}
	)
	for name, part := range rd.parts {
		all.Go(func() {
			start := time.Now()
			err := part.Ping(ctx)
			result := pinged{"ok", time.Since(start).Milliseconds()}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				rd.log.Warn(telemetry.LogNotReady, "check", name, "error", err)
				result.Status, status = "failed", "unavailable"
			}
			results[name] = result
		})
	}
	all.Wait()
	setHeaders(w, "application/json")
	if status != "ready" {
		w.Header().Set("Retry-After", unavailableProblem.header.Get("Retry-After"))
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	writeJSON(w, struct {
		Status string            `json:"status"`
		Checks map[string]pinged `json:"checks"`
	}{status, results})
	return nil
}
