package functions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"tiney/internal/link"
)

// ReapEvery is how often the reaper runs: at the full hour, and so on.
const ReapEvery = 15 * time.Minute

// reap handles the timer trigger of the reaper. The Functions host posts to it when it is time. The
// host takes an error for a failed invocation.
func (s *service) reap(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var invocation struct {
		Data struct{ Timer struct{ IsPastDue bool } }
	}
	// decodeJSON would refuse the fields that each version of the host adds.
	if err := json.Unmarshal(body, &invocation, json.MatchCaseInsensitiveNames(true)); err != nil {
		return badRequest("body", "Invalid body",
			"The body must be a timer's invocation, as the Functions host sends it.", "")
	}
	if invocation.Data.Timer.IsPastDue {
		s.Log.Info("reaper: this run is late, an earlier one was missed")
	}
	// A run may take minutes, and the server's time limits are shorter. When the time limit for
	// reading is over, the context ends.
	conn := http.NewResponseController(w)
	never := time.Time{}
	if err := errors.Join(conn.SetReadDeadline(never), conn.SetWriteDeadline(never)); err != nil {
		return fmt.Errorf("lifting the time limits for a run of the reaper: %w", err)
	}
	summary, err := s.Reaper.Run(ctx)
	if err != nil && !errors.Is(err, link.ErrLockHeld) {
		return err
	}
	// If the body were empty or null, the host would wait until its time limit. Each entry of Logs
	// becomes a trace.
	writeJSON(w, http.StatusOK, struct {
		Outputs     struct{}
		Logs        []string
		ReturnValue any
	}{Logs: []string{summary}})
	return nil
}

// reaperStats handles GET /api/admin/cleanup/stats: how the runs of the reaper went.
func (s *service) reaperStats(c *call) (any, error) {
	stats, err := s.Reaper.Stats(c.ctx)
	if err != nil {
		return nil, err
	}
	var average *int64
	if runs := stats.Successful + stats.Failed; runs > 0 {
		average = new(stats.Took.Milliseconds() / runs)
	}
	return struct {
		LastRunAt      *string `json:"lastRunAtUtc"`
		DeletedTotal   int64   `json:"deletedTotal"`
		LastDeleted    int64   `json:"lastDeleted"`
		SuccessfulRuns int64   `json:"successfulRuns"`
		FailedRuns     int64   `json:"failedRuns"`
		AverageMs      *int64  `json:"averageMs"`
		Running        bool    `json:"running"`
	}{formatTime(stats.Last.At), stats.DeletedTotal, stats.Last.Deleted,
		stats.Successful, stats.Failed, average, stats.Running}, nil
}
