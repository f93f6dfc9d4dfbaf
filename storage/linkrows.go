package storage

import (
	"time"

	"tiney/internal/link"
	"tiney/storage/table"
)

// linkRows are the rows that belong to a link or a tombstone in its present state, beside its own
// row.
type linkRows struct {
	end    time.Time // the time of its expiry row; zero: it has none
	listed table.Key // its row in its owner's list, without an ETag; zero: it has none
	index  string    // the key by which the index may lead to it; "": the index must not
}

// rowsOf is the one place that says which rows belong to a link. Creates and imports insert them
// before the link. Edits write those of the new state before the link, and delete those of the old
// one after it, but for the expiry row of a link that is deleted or used up: it may get its end
// back. The reaper deletes them, and a check looks for them. The tests have their own list.
func (s *Links) rowsOf(l link.Link) linkRows {
	r := linkRows{end: s.end(l)}
	if l.GoneReason == link.StateLive {
		r.index = indexKey(l)
		if l.Owner != "" {
			r.listed = table.Key{Partition: ownerPartition(l.Owner), Row: ownerKey(l)}
		}
	}
	return r
}

// end returns when the reaper has to look at a link or a tombstone, because its time in its present
// state is over. Zero means never.
func (s *Links) end(l link.Link) time.Time {
	switch {
	case l.GoneReason == link.StateDeleted:
		return l.GoneAt.Add(s.config.DeletedKeep + s.config.TombstoneFor)
	case l.GoneReason != link.StateLive:
		return l.GoneAt.Add(s.config.TombstoneFor)
	case !l.DeletedAt.IsZero():
		return l.DeletedAt.Add(s.config.DeletedKeep)
	}
	return l.ExpiresAt
}

// dueAt returns when the expiry row of a link that is about to be written is due. That is at the
// link's end, but not before the write is over: otherwise a reaper would find the link as it was
// before. Zero means never.
func (s *Links) dueAt(l link.Link) time.Time {
	end := s.end(l)
	if soon := s.soon(link.MinTTL); !end.IsZero() && end.Before(soon) {
		return soon
	}
	return end
}

// soon returns the first whole second that is more than d away.
func (s *Links) soon(d time.Duration) time.Time {
	return s.config.Now().Add(d).Truncate(time.Second).Add(time.Second)
}

// settleTime: a create that saw a link deleted or expired may still run this long after the link
// was restored or extended. If clocks are right, it ends after Timeout.
const settleTime = 2 * time.Minute

// unsettled reports whether a link was edited, and so perhaps renewed, within the last settleTime.
func unsettled(l link.Link, now time.Time) bool { return now.Sub(l.UpdatedAt) < settleTime }
