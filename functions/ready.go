package functions

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"
)

// readyTimeout is how long the parts of storage have to answer.
const readyTimeout = 2 * time.Second

// ready answers GET /api/ready: whether each part of storage answers, and how fast.
type ready struct {
	checks map[string]Checker
	log    *slog.Logger
}

// checkSafely turns a panic into an error: in this goroutine it would end the process.
func checkSafely(ctx context.Context, c Checker) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return c.Check(ctx)
}

type checked struct {
	Status       string `json:"status"`
	Milliseconds int64  `json:"milliseconds"`
}

func (rd *ready) answer(ctx context.Context, w http.ResponseWriter, _ *http.Request) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var (
		all     sync.WaitGroup
		mu      sync.Mutex
		status  = "ready"
		results = map[string]checked{}
	)
	for name, check := range rd.checks {
		all.Go(func() {
			start := time.Now()
			err := checkSafely(ctx, check)
			result := checked{"ok", time.Since(start).Milliseconds()}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				rd.log.Warn("not ready", "check", name, "error", err)
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
		Status string             `json:"status"`
		Checks map[string]checked `json:"checks"`
	}{status, results})
	return nil
}
