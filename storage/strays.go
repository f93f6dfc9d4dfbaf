package storage

import (
	"context"
	"time"
)

// strays deletes rows that list something but lead nowhere. Such a row is inserted before what it
// leads to, so strays leaves a row alone that is younger than guardAfter.
type strays struct {
	config *Config
	rows   *store
	now    time.Time // when the rows were listed, or earlier

	asking turn
	before time.Time // rows written before this are old; zero: not known yet
}

// newStrays must be called before the rows are listed. Otherwise a process that was stopped in
// between would take young rows for old ones.
func newStrays(config *Config, rows *store) *strays {
	return &strays{config: config, rows: rows, now: config.Now(), asking: newTurn()}
}

// drop deletes a row that leads nowhere, if the row is old, and reports whether it is. It is best
// effort: the next list finds the row again.
func (s *strays) drop(ctx context.Context, r listedRow) (old bool) {
	old, _ = s.tryDrop(ctx, r)
	return old
}

// tryDrop is drop, but returns an error if the row may still be there.
func (s *strays) tryDrop(ctx context.Context, r listedRow) (old bool, err error) {
	before, err := s.oldBefore(ctx)
	if old = err == nil && r.writtenAt.Before(before); old {
		err = s.rows.delete(ctx, r.rowKey)
	}
	return old, err
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
		s.before = now.Add(-guardAfter)
	}
	return s.before, nil
}
