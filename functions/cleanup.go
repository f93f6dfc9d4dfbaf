package functions

import (
	"context"
	"net/http"

	"tiney/internal/access"
)

// reaperStats handles GET /api/admin/cleanup/stats: how the runs of the reaper went.
func (s *service) reaperStats(
	ctx context.Context, w http.ResponseWriter, _ *http.Request, _ access.Caller,
) error {
	stats, err := s.Reaper.Stats(ctx)
	if err != nil {
		return err
	}
	var average *int64
	if runs := stats.Successful + stats.Failed; runs > 0 {
		ms := stats.Took.Milliseconds() / runs
		average = &ms
	}
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		LastRunAt      *string `json:"lastRunAtUtc"`
		DeletedTotal   int64   `json:"deletedTotal"`
		LastDeleted    int64   `json:"lastDeleted"`
		SuccessfulRuns int64   `json:"successfulRuns"`
		FailedRuns     int64   `json:"failedRuns"`
		AverageMs      *int64  `json:"averageMs"`
		Running        bool    `json:"running"`
	}{formatTime(stats.Last.At), stats.DeletedTotal, stats.Last.Deleted,
		stats.Successful, stats.Failed, average, stats.Running})
	return nil
}
