package functions

import (
	"context"
	"net/http"

	"tiney/access"
)

// cleanup handles /api/admin/cleanup.
type cleanup struct{ reaper Runner }

// stats handles GET /api/admin/cleanup/stats: how the runs of the reaper went.
func (c *cleanup) stats(ctx context.Context, w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
	s, err := c.reaper.Stats(ctx)
	if err != nil {
		return err
	}
	var average *int64
	if runs := s.Successful + s.Failed; runs > 0 {
		ms := s.Took.Milliseconds() / runs
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
	}{formatTime(s.Last.At), s.DeletedTotal, s.Last.Deleted, s.Successful, s.Failed, average, s.Running})
	return nil
}
