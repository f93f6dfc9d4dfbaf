package storage

import (
	"context"
	"time"
)

// strays deletes rows that list something but lead nowhere. Such a row is inserted before what it
// leads to, so strays leaves young rows alone.
type strays struct {
	config *Config
	rows   *store
	now    time.Time // when the rows were listed, or earlier
	age    time.Duration

	asking turn
	before time.Time // rows written before this are old; zero: not known yet
}

// newStrays must be called before the rows are listed. Otherwise a process that was stopped in
// between would take young rows for old ones.
func newStrays(config *Config, rows *store, age time.Duration) *strays {
	return &strays{config: config, rows: rows, now: config.Now(), age: age, asking: newTurn()}
}

// drop deletes a row that leads nowhere, if the row is old, and reports whether it is. It is best
// effort: the next list finds the row again.
func (s *strays) drop(ctx context.Context, r listedRow) (old bool) {
	before, err := s.oldBefore(ctx)
	if old = err == nil && r.writtenAt.Before(before); old {
		_ = s.rows.delete(ctx, r.rowKey)
	}
	return old
}

func (s *strays) oldBefore(ctx context.Context) (before time.Time, err error) {
	s.asking.lock()
	defer s.asking.unlock()
	if s.before.IsZero() {
		now := s.now
		if s.config.Reap.StorageClock {
			if now, err = s.rows.earlier(ctx, now); err != nil {
				return time.Time{}, err
			}
		}
		s.before = now.Add(-s.age)
	}
	return s.before, nil
}
