package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/table"
)

const (
	reapsPartition = "reaper"
	reapsKey       = "statistics"
	reapsTries     = 5
	// reapsKnown is how many runs are told apart: more than there are between two tries of one
	// process to save one.
	reapsKnown = 100
	reapsID    = 8 // characters of a run's id: 47 bits
)

// Reaps keeps statistics of the runs of the reaper, in one row for all processes.
type Reaps struct {
	config *Config
	rows   *store

	saving  turn
	unsaved []reapRun
}

func newReaps(config *Config, rows *store) *Reaps {
	return &Reaps{config: config, rows: rows, saving: newTurn()}
}

// reapRun is a run, and the random id by which it is known again if the response to a write was
// lost.
type reapRun struct {
	link.ReapRun
	id string
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
	RunIDs               string    `json:"RunIds"` // of the last ones, with spaces between them
}

func encodeReaps(s link.ReapStats, ids []string) []byte {
	e := reapsEntity{PartitionKey: reapsPartition, RowKey: reapsKey, LastDeleted: s.Last.Deleted,
		LastDeletedType: edmInt64,
		DeletedTotal:    s.DeletedTotal, DeletedTotalType: edmInt64, Successful: s.Successful,
		SuccessfulType: edmInt64,
		Failed:         s.Failed, FailedType: edmInt64, Milliseconds: s.Took.Milliseconds(),
		MillisecondsType: edmInt64, RunIDs: strings.Join(ids, " ")}
	e.LastAt, e.LastAtType = dateTime(s.Last.At)
	return encode(e)
}

// Stats returns what was saved. Errors: link.ErrUnavailable.
func (s *Reaps) Stats(ctx context.Context) (link.ReapStats, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	stats, _, _, err := s.read(ctx)
	return stats, err
}

// read returns what was saved, and of which runs the last of it is. Without a row the ETag is "".
func (s *Reaps) read(ctx context.Context) (stats link.ReapStats, ids []string, etag table.ETag,
	err error) {
	data, etag, err := s.rows.get(ctx, reapsPartition, reapsKey)
	if errors.Is(err, table.ErrGone) {
		return stats, nil, "", nil
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
	}, strings.Fields(e.RunIDs), etag, err
}

// Record adds a run, once. What cannot be saved now is saved with the next one. The end of ctx does
// not cut it short.
func (s *Reaps) Record(ctx context.Context, run link.ReapRun) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.Timeout)
	defer cancel()
	s.saving.lock()
	defer s.saving.unlock()
	err := table.Safely(func() error {
		id, err := s.config.newID()
		if err != nil {
			return err // it is not counted, rather than twice
		}
		s.unsaved = append(s.unsaved, reapRun{run, id[:reapsID]})
		return s.save(ctx)
	})
	if err != nil {
		s.config.Log.Warn(telemetry.LogReapStatsNotSaved, "runs", len(s.unsaved), "error", err)
	}
}

func (s *Reaps) save(ctx context.Context) error {
	for range reapsTries {
		stats, ids, etag, err := s.read(ctx)
		if err != nil {
			return err
		}
		s.unsaved = slices.DeleteFunc(s.unsaved, func(r reapRun) bool {
			return slices.Contains(ids, r.id)
		})
		if len(s.unsaved) == 0 {
			return nil // an earlier try was applied
		}
		for _, r := range s.unsaved {
			ids = append(ids, r.id)
			stats.Add(r.ReapRun)
		}
		data := encodeReaps(stats, ids[max(len(ids)-reapsKnown, 0):])
		if _, _, err = s.rows.replace(ctx, data, etag); err == nil {
			s.unsaved = nil
			return nil
		}
		if !errors.Is(err, table.ErrChanged) {
			return err
		}
	}
	return table.ErrChanged
}
