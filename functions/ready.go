package functions

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"tiney/link"
	"tiney/telemetry"
)

const (
	// readyTimeout is how long the parts of storage have to respond.
	readyTimeout = 2 * time.Second
	// readyFor is how long a result is used again. Anybody may ask, and each check takes several storage calls.
	readyFor = time.Second
)

// ready handles GET /api/ready: whether each part of storage responds, and how fast.
type ready struct {
	parts  map[string]Pinger
	limits *limits
	now    func() time.Time
	log    *slog.Logger

	checking singleflight.Group
	last     readiness // guarded by checking
}

// readiness is the response.
type readiness struct {
	Status string            `json:"status"`
	Checks map[string]pinged `json:"checks"`
	// Addresses is "missing" if a request came without its client's address, by which it would have
	// been limited.
	Addresses string `json:"addresses,omitempty"`
	at        time.Time
}

type pinged struct {
	Status       string `json:"status"`
	Milliseconds int64  `json:"milliseconds"`
}

func (rd *ready) serve(ctx context.Context, w http.ResponseWriter, _ *http.Request) error {
	// Shared; one caller's cancellation must not fail the others.
	result, _, _ := rd.checking.Do("", func() (any, error) {
		if now := rd.now(); rd.last.at.IsZero() || now.Sub(rd.last.at) >= readyFor {
			rd.last = rd.check(context.WithoutCancel(ctx), now)
		}
		return rd.last, nil
	})
	is := result.(readiness)
	if rd.limits.unlimited.Load() {
		is.Addresses = "missing"
	}
	setHeaders(w, "application/json")
	if is.Status == "unavailable" {
		w.Header().Set("Retry-After", unavailableProblem.header.Get("Retry-After"))
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	writeJSON(w, is)
	return nil
}

func (rd *ready) check(ctx context.Context, now time.Time) readiness {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var (
		all sync.WaitGroup
		mu  sync.Mutex
	)
	is := readiness{Status: "ready", Checks: map[string]pinged{}, at: now}
	for name, part := range rd.parts {
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
				if rd.last.Checks[name].Status != result.Status { // once per outage, however often somebody asks
					rd.log.Warn(telemetry.LogNotReady, "check", name, "error", err)
				}
			}
			is.Checks[name] = result
		})
	}
	all.Wait()
	for _, result := range is.Checks {
		switch {
		case result.Status == "secondary": // links are redirected to, which matters most, though the lock may fail
			is.Status = "degraded"
		case result.Status == "failed" && is.Status == "ready":
			is.Status = "unavailable"
		}
	}
	return is
}
