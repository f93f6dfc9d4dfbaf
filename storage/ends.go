package storage

import (
	"time"

	"tiney/link"
)

// end returns when the reaper has to look at a link, or at a tombstone, because its time in this
// state is over, and zero for never.
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

// due returns when the row by which a link ends is due, if the link is about to be written: at its
// end, but not before that write is over, or a reaper would find the link as it was. Zero: never.
func (s *Links) due(l link.Link) time.Time {
	end := s.end(l)
	if soon := s.soon(link.MinTTL); !end.IsZero() && end.Before(soon) {
		return soon
	}
	return end
}

// soon returns the first whole second that is further away than d.
func (s *Links) soon(d time.Duration) time.Time {
	return s.config.Now().Add(d).Truncate(time.Second).Add(time.Second)
}

// settles is how long after a restore or an extension a create may still be at work that found the
// link deleted or expired: for Timeout, if clocks are right.
const settles = 2 * time.Minute

// unsettled reports whether a link was edited, and so perhaps renewed, within that time.
func unsettled(l link.Link, now time.Time) bool { return now.Sub(l.UpdatedAt) < settles }
