package functions

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"tiney/internal/link"
	"tiney/internal/telemetry"
)

const (
	// readyTimeout is how long the parts of storage have to respond.
	readyTimeout = 2 * time.Second
	// readyFor is how long a result is served again, because any client may ask, and each check
	// makes several storage calls.
	readyFor = time.Second
)

// checks are the checks of storage. Requests share them.
type checks struct {
	running singleflight.Group
	last    readiness // guarded by running
}

// readiness is the response, and when it was made.
type readiness struct {
	Status string            `json:"status"`
	Checks map[string]pinged `json:"checks"`
	// Addresses is "missing" if a request was not limited because it had no client's address.
	Addresses string `json:"addresses,omitempty"`
	Storage   string `json:"storage,omitempty"` // "memory" if this process keeps everything itself
	at        time.Time
}

type pinged struct {
	Status       string `json:"status"`
	Milliseconds int64  `json:"milliseconds"`
}

// ready handles GET /api/ready: whether each part of storage responds, and how fast.
func (s *service) ready(ctx context.Context, w http.ResponseWriter, _ *http.Request) error {
	result, _, _ := s.checks.running.Do("", func() (any, error) {
		last := &s.checks.last
		if now := s.Now(); last.at.IsZero() || now.Sub(last.at) >= readyFor {
			// One caller's cancellation must not fail the others.
			*last = s.check(context.WithoutCancel(ctx), now)
		}
		return *last, nil
	})
	is := result.(readiness)
	if s.limits.unlimited.Load() {
		is.Addresses = "missing"
	}
	if s.Memory {
		is.Storage = "memory"
	}
	status := http.StatusOK
	if is.Status == "unavailable" {
		w.Header().Set("Retry-After", unavailableProblem.header.Get("Retry-After"))
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, is)
	return nil
}

func (s *service) check(ctx context.Context, now time.Time) readiness {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var (
		all sync.WaitGroup
		mu  sync.Mutex
	)
	is := readiness{Status: "ready", Checks: map[string]pinged{}, at: now}
	for name, part := range map[string]Pinger{"tables": s.Tables, "lock": s.Lock} {
		all.Go(func() {
			start := time.Now()
			err := part.Ping(ctx)
			result := pinged{"ok", time.Since(start).Milliseconds()}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				result.Status = "failed"
				if errors.Is(err, link.ErrSecondaryOnly) {
					result.Status = "secondary"
				}
				if s.checks.last.Checks[name].Status != result.Status { // once per outage
					s.Log.Warn(telemetry.LogNotReady, "check", name, "error", err)
				}
			}
			is.Checks[name] = result
		})
	}
	all.Wait()
	for _, result := range is.Checks {
		switch {
		case result.Status == "secondary": // redirects, which matter most, work; the lock may fail
			is.Status = "degraded"
		case result.Status == "failed" && is.Status == "ready":
			is.Status = "unavailable"
		}
	}
	return is
}
