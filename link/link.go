// Package link holds what a short link is: its alias, the long URL it stands for, its lifetime and
// states, and the rules that each of them must meet. It does no I/O; the time and the source of
// randomness are arguments.
package link

import (
	"errors"
	"time"
)

// Link is one short link, or the tombstone of one. Times are UTC and whole seconds, unless another
// program wrote them.
type Link struct {
	Alias      Alias
	LongURL    string // what the caller sent, byte for byte; "" in a tombstone
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: never
	StatusCode int       // of its redirects: 301, 302, 307 or 308; zero stands for 302
	Disabled   bool
	// somebody else than its maker was given it too; it never becomes false again
	Shared    bool
	Owner     string    // "": nobody
	DeletedAt time.Time // zero: it is not deleted
	// CountedFrom is the day on which the alias became this link's, from which on clicks are its
	// own: an alias may have been another link's before. It is set by the store. Zero: all are.
	CountedFrom time.Time
	// it comes from a cache or a copy, since its table did not respond: it may have changed
	Stale bool

	// GoneReason is why there is only a tombstone left, StateExpired or StateDeleted, and GoneAt
	// since when the alias leads nowhere. It is StateLive if this is a link.
	GoneReason State
	GoneAt     time.Time

	// The following are not known of a link that comes from a cache.
	UpdatedAt time.Time // zero: it was never edited
	Title     string
	Tags      []string
	ClaimHash string // SHA-256 of its claim token, in lower-case hex; "": there is none
	// what was counted of it before it was imported, in addition to what was counted here
	Before  Count
	Version string // another one after each change; "": it comes from a cache
}

// Count is how often a link was followed.
type Count struct {
	Clicks, Bots int64
	// of the last click of a person; zero: there was none, or it is not known when
	LastAt time.Time
}

// Imported is what became of a link that was to be imported. Created: it was made; otherwise it was
// there before. Err is the error if it is neither, and Link the link as it is.
type Imported struct {
	Link    Link
	Created bool
	Err     error
	// There is what a dry run found under the alias, the zero Link if that is damaged; nil:
	// nothing, or it did not look.
	There *Link
}

// State is what became of a link.
type State string

// The states of a link. All but StateLive lead nowhere.
const (
	StateLive     State = ""
	StateExpired  State = "expired"
	StateDisabled State = "disabled" // can be enabled again
	StateDeleted  State = "deleted"  // can be restored for a while
)

// State returns the state of a link at now. A link expires at the very instant of ExpiresAt.
func (l Link) State(now time.Time) State {
	switch {
	case l.GoneReason != StateLive:
		return l.GoneReason
	case !l.DeletedAt.IsZero():
		return StateDeleted
	case l.Expired(now):
		return StateExpired
	case l.Disabled:
		return StateDisabled
	}
	return StateLive
}

// Expired reports whether the link's life is over at now, deleted or not.
func (l Link) Expired(now time.Time) bool {
	return !l.ExpiresAt.IsZero() && !l.ExpiresAt.After(now)
}

// BarsURL reports whether its long URL gets no other link at now: the link is disabled. Who has the
// claim token of one without an owner, which only admins disable, cannot delete that away.
func (l Link) BarsURL(now time.Time) bool {
	switch l.State(now) {
	case StateDisabled:
		return true
	case StateDeleted:
		return l.Disabled && l.Owner == "" && !l.Expired(now)
	}
	return false
}

// Errors of a store of links, and of the changes that a caller asks for. Whoever returns one of
// them may wrap it with more detail.
var (
	// ErrNotFound: the store was read and holds no such link.
	ErrNotFound = errors.New("no such link")
	// ErrDisabled: the long URL's link is disabled and has not expired, so the URL gets no other
	// alias.
	ErrDisabled = errors.New("the link is disabled")
	// ErrBlocked: the long URL leads to a host that is blocked.
	ErrBlocked = errors.New("the long URL's host is blocked")
	// ErrNotBlocked: the host is not blocked itself; one above it may be.
	ErrNotBlocked = errors.New("the host is not blocked")
	// ErrAliasesTaken: every alias that was drawn for a new link was taken.
	ErrAliasesTaken = errors.New("every alias that was tried is taken")
	// ErrAliasTaken: the alias that was asked for leads elsewhere, or once did.
	ErrAliasTaken = errors.New("the alias is taken")
	// ErrConflict: the link was changed by somebody else between its read and its write.
	ErrConflict = errors.New("the link was changed meanwhile")
	// ErrForbidden: the link is another owner's.
	ErrForbidden = errors.New("the link is another owner's")
	// ErrShared: others were given the link too, so what it does for them stays.
	ErrShared = errors.New("the link is shared")
	// ErrDeleted: the link is deleted, and has to be restored first.
	ErrDeleted = errors.New("the link is deleted")
	// ErrNotDeleted: the link is not deleted, or was for longer than it can be restored.
	ErrNotDeleted = errors.New("the link cannot be restored")
	// ErrDamaged: the store holds something under this alias that is no link, such as a row without
	// a long URL.
	ErrDamaged = errors.New("the link's row is corrupt")
	// ErrPosition: no list can have returned this position.
	ErrPosition = errors.New("not a position in a list")
	// ErrUnavailable: the store did not respond, or not in time. It is unknown whether a write was
	// applied.
	ErrUnavailable = errors.New("the store of links is unavailable")
	// ErrSecondaryOnly: of the store, only the copy responds that can be read and not written.
	ErrSecondaryOnly = errors.New("only the secondary region responds")
	// ErrLockHeld: another instance is doing this work right now.
	ErrLockHeld = errors.New("another instance holds the lock")
)

// ReapResult counts what one run of the reaper did.
type ReapResult struct {
	Deleted int64 // links whose time was over; a tombstone may be left of them
	// expiry rows deleted whose link was gone or ends later, or that were of tombstones
	Dropped int64
	Failed  int64 // expiry rows that could not be handled; the next run finds them again
	// Backlog is how long ago the oldest link expired that the run knows it left behind: zero if it
	// left none, or was cut short before it saw any.
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

// ReapStats tells how the runs of the reaper went, in all processes.
type ReapStats struct {
	Last         ReapRun // the one that began last; zero: there was none
	DeletedTotal int64
	Successful   int64
	Failed       int64
	Took         time.Duration // all runs together
	Running      bool          // one is under way
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
