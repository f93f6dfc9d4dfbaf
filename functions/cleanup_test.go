package functions_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/link"
)

// told is a reaper with given statistics.
type told struct {
	run
	stats link.ReapStats
	err   error
}

func (t told) Stats(context.Context) (link.ReapStats, error) { return t.stats, t.err }

func TestCleanupStats(t *testing.T) {
	const target = "/api/admin/cleanup/stats"
	for want, stats := range map[string]link.ReapStats{
		`{"lastRunAtUtc":null,"deletedTotal":0,"lastDeleted":0,"successfulRuns":0,"failedRuns":0,` +
			`"averageMs":null,"running":true}`: {Running: true},
		`{"lastRunAtUtc":"2026-11-22T10:15:00Z","deletedTotal":9,"lastDeleted":2,` +
			`"successfulRuns":2,"failedRuns":1,"averageMs":500,"running":false}`: {
			Last: link.ReapRun{At: time.Date(2026, 11, 22, 10, 15, 0, 0, time.UTC),
				Took: time.Second, Deleted: 2},
			DeletedTotal: 9, Successful: 2, Failed: 1, Took: 1500 * time.Millisecond,
		},
	} {
		r := newRig(t, func(c *functions.Config) { c.Reaper = told{stats: stats} })
		w := r.as("admin", "GET", target, "")
		if got := strings.TrimSpace(w.Body.String()); w.Code != 200 || got != want ||
			w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("got %d %v %s, want %s", w.Code, w.Header(), got, want)
		}
	}
	r := newRig(t, func(c *functions.Config) {
		c.Reaper = told{err: fmt.Errorf("secret: %w", link.ErrUnavailable)}
	})
	wantProblem(t, r.as("admin", "GET", target, ""), 503, "storage-unavailable", "")
	wantProblem(t, r.as("ann", "GET", target, ""), 403, "admin-needed", "")
}
