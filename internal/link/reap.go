package link

import "time"

// ReapResult counts what one run of the reaper did.
type ReapResult struct {
	Deleted int64 // links that had expired; they may leave a tombstone
	// Dropped counts deleted expiry rows whose link was gone or ends later, or that belonged to
	// tombstones.
	Dropped int64
	Failed  int64 // expiry rows that could not be handled; the next run finds them again
	// Backlog is how long ago the oldest link expired among those that the run knows it left
	// behind. It is zero if the run left none, or was cut short before it saw any.
	Backlog time.Duration
	// Complete is true if the run handled all that had expired, and false if it was cut short.
	Complete bool
}

// ReapRun is one run of the reaper, as its statistics count it.
type ReapRun struct {
	At      time.Time // when it began
	Took    time.Duration
	Deleted int64
	Failed  bool
}

// ReapStats are the statistics of the reaper's runs, in all processes.
type ReapStats struct {
	Last         ReapRun // the run that began last; zero: there was none
	DeletedTotal int64
	Successful   int64
	Failed       int64
	Took         time.Duration // all runs together
	Running      bool          // a run is under way
}

// Add counts a run.
func (s *ReapStats) Add(r ReapRun) {
	if !r.At.Before(s.Last.At) {
		s.Last = r
	}
	s.DeletedTotal += r.Deleted
	s.Took += r.Took
	if r.Failed {
		s.Failed++
	} else {
		s.Successful++
	}
}
