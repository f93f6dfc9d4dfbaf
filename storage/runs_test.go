package storage_test

import (
	"errors"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/rawtables"
	"tiney/storage"
)

// wantStats checks what was saved of runs that took a second each.
func (r *rig) wantStats(want link.ReapStats) {
	r.t.Helper()
	want.Last.Took, want.Last.Failed = 0, false // that is not saved
	if got, err := r.other().Reaps.Stats(ctx); err != nil || got != want {
		r.t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func (r *rig) run(deleted int64, failed bool) link.ReapRun {
	r.clock.Advance(time.Minute)
	return link.ReapRun{At: r.clock.Now(), Took: time.Second, Deleted: deleted, Failed: failed}
}

func TestRunsAreRecorded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, other := r.instance(), r.other()
	r.wantStats(link.ReapStats{})
	first := r.run(5, false)
	s.Reaps.Record(ctx, first)
	r.wantStats(link.ReapStats{Last: first, DeletedTotal: 5, Successful: 1, Took: time.Second})
	second := r.run(1<<40, true)
	other.Reaps.Record(ctx, second)
	s.Reaps.Record(ctx, first) // late
	r.wantStats(link.ReapStats{Last: second, DeletedTotal: 1<<40 + 10, Successful: 2, Failed: 1,
		Took: 3 * time.Second})
	r.Put(r.State, rawtables.Entity{"PartitionKey": "reaper", "RowKey": "statistics",
		"FailedRuns": "x"})
	if _, err := s.Reaps.Stats(ctx); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("a damaged row: %v", err)
	}
}

// No run counts twice, whatever becomes of the calls that save it, and those after it count. One
// whose response is lost may be missing.
func TestRunsCountAtMostOnce(t *testing.T) {
	t.Parallel()
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, other := newCrashRig(t)
			s := r.instance()
			var want link.ReapStats
			for n, met := 1, true; met && !t.Failed(); n++ {
				run := r.run(int64(n), n%2 == 0)
				r.proxy.Before(way.fault(n))
				s.Reaps.Record(lifeOf(way.dies), run)
				met = len(r.proxy.Calls()) >= n
				r.ended()
				if got, err := other.Reaps.Stats(ctx); err != nil {
					t.Fatal(err)
				} else if got.Successful+got.Failed > want.Successful+want.Failed {
					want.Add(run)
				}
				r.wantStats(want)
				for _, s := range []*storage.Links{other, s} {
					run := r.run(100, false)
					want.Add(run)
					s.Reaps.Record(ctx, run)
				}
				r.wantStats(want)
			}
		})
	}
	t.Run("two at once", func(t *testing.T) {
		t.Parallel()
		r, other := newCrashRig(t)
		var want link.ReapStats
		for n, met := 1, true; met && !t.Failed(); n++ {
			run := r.run(int64(n), false)
			r.meet(n, false, func() {
				want.Add(run)
				other.Reaps.Record(ctx, run)
			})
			want.Add(run)
			r.instance().Reaps.Record(ctx, run)
			met = len(r.proxy.Calls()) >= n
			r.proxy.Reset()
			r.wantStats(want)
		}
	})
}
