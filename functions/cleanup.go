package functions

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
