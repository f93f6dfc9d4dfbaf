package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

const (
	reapsPartition = "reaper"
	reapsKey       = "statistics"
	reapsTries     = 5
)

// Reaps keeps statistics of the runs of the reaper, in one row for all processes.
type Reaps struct {
	config *Config
	rows   *table.Store
}

// reapsEntity is the row of ShortUrlsState on the wire.
type reapsEntity struct {
	PartitionKey, RowKey string
	LastAt               time.Time `json:"LastRunAtUtc,omitzero"`
	LastAtType           string    `json:"LastRunAtUtc@odata.type,omitzero"`
	LastDeleted          int64     `json:",string"`
	LastDeletedType      string    `json:"LastDeleted@odata.type"`
	DeletedTotal         int64     `json:",string"`
	DeletedTotalType     string    `json:"DeletedTotal@odata.type"`
	Successful           int64     `json:"SuccessfulRuns,string"`
	SuccessfulType       string    `json:"SuccessfulRuns@odata.type"`
	Failed               int64     `json:"FailedRuns,string"`
	FailedType           string    `json:"FailedRuns@odata.type"`
	Milliseconds         int64     `json:",string"` // of all runs together
	MillisecondsType     string    `json:"Milliseconds@odata.type"`
}

func encodeReaps(s link.ReapStats) []byte {
	e := reapsEntity{PartitionKey: reapsPartition, RowKey: reapsKey, LastDeleted: s.Last.Deleted,
		LastDeletedType: table.EdmInt64,
		DeletedTotal:    s.DeletedTotal, DeletedTotalType: table.EdmInt64, Successful: s.Successful,
		SuccessfulType: table.EdmInt64,
		Failed:         s.Failed, FailedType: table.EdmInt64, Milliseconds: s.Took.Milliseconds(),
		MillisecondsType: table.EdmInt64}
	e.LastAt, e.LastAtType = table.DateTime(s.Last.At)
	return table.Encode(e)
}

// Stats returns what was saved. Errors: link.ErrUnavailable.
func (s *Reaps) Stats(ctx context.Context) (link.ReapStats, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	stats, _, err := s.read(ctx)
	return stats, err
}

// read returns what was saved. Without a row the ETag is "".
func (s *Reaps) read(ctx context.Context) (stats link.ReapStats, etag table.ETag, err error) {
	data, etag, err := s.rows.Get(ctx, reapsPartition, reapsKey)
	if errors.Is(err, table.ErrGone) {
		return stats, "", nil
	}
	var e reapsEntity
	if err == nil {
		if err = json.Unmarshal(data, &e); err != nil {
			err = fmt.Errorf("the statistics of the reaper: %w: %w", link.ErrUnavailable, err)
		}
	}
	return link.ReapStats{
		Last:         link.ReapRun{At: e.LastAt.UTC(), Deleted: e.LastDeleted},
		DeletedTotal: e.DeletedTotal, Successful: e.Successful,
		Failed: e.Failed, Took: time.Duration(e.Milliseconds) * time.Millisecond,
	}, etag, err
}

// Record adds a run. The end of ctx does not cut it short. If storage fails, or the response to the
// write is lost, the statistics may lack the run; no run counts twice.
func (s *Reaps) Record(ctx context.Context, run link.ReapRun) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Timeout)
	defer cancel()
	if err := concurrent.Safely(func() error { return s.add(ctx, run) }); err != nil {
		s.config.Log.Warn(telemetry.LogReapStatsNotSaved, "error", err)
	}
}

func (s *Reaps) add(ctx context.Context, run link.ReapRun) error {
	for range reapsTries {
		stats, etag, err := s.read(ctx)
		if err != nil {
			return err
		}
		stats.Add(run)
		r, err := s.rows.Put(ctx, encodeReaps(stats), etag)
		if !errors.Is(err, table.ErrChanged) || r.Again { // an earlier try may have been applied
			return err
		}
	}
	return table.ErrChanged
}
