// Package link holds what a short link is: its alias, the long URL it stands for, its lifetime, and the rules that
// each of them must meet. It does no I/O; the time and the source of randomness are arguments.
package link

import (
	"errors"
	"time"
)

// Link is one short link. Times are UTC and whole seconds.
type Link struct {
	Alias     Alias
	LongURL   string // what the caller sent, byte for byte
	CreatedAt time.Time
	ExpiresAt time.Time // zero: never
	Disabled  bool
	CreatedBy string // empty: not recorded
}

// Expired reports whether the link's life is over at now. A link expires at the very instant of ExpiresAt.
func (l Link) Expired(now time.Time) bool {
	return !l.ExpiresAt.IsZero() && !l.ExpiresAt.After(now)
}

// Errors of a store of links. Whoever returns one of them may wrap it with more detail.
var (
	// ErrNotFound: the store was read and holds no such link.
	ErrNotFound = errors.New("no such link")
	// ErrDisabled: the long URL's link is disabled and has not expired, so the URL gets no other alias.
	ErrDisabled = errors.New("the link is disabled")
	// ErrAliasesTaken: every alias that was drawn for a new link was taken.
	ErrAliasesTaken = errors.New("every alias that was tried is taken")
	// ErrAliasTaken: the alias that was asked for leads elsewhere, or once did.
	ErrAliasTaken = errors.New("the alias is taken")
	// ErrConflict: the link was changed by somebody else between its read and its write.
	ErrConflict = errors.New("the link was changed meanwhile")
	// ErrForbidden: the link is another owner's.
	ErrForbidden = errors.New("the link is another owner's")
	// ErrDamaged: the store holds something under this alias that is no link, such as a row without a long URL.
	ErrDamaged = errors.New("the link's row is corrupt")
	// ErrUnavailable: the store did not respond, or not in time. It is unknown whether a write was applied.
	ErrUnavailable = errors.New("the store of links is unavailable")
	// ErrLockHeld: another instance is doing this work right now.
	ErrLockHeld = errors.New("another instance holds the lock")
)

// ReapResult counts what one run of the reaper did.
type ReapResult struct {
	Deleted int64 // expired links deleted
	Dropped int64 // expiry rows deleted whose link was gone or had been given a later expiry
	Failed  int64 // expiry rows that could not be handled; the next run finds them again
	// Backlog is how long ago the oldest link expired that the run knows it left behind: zero if it left none, or was cut
	// short before it saw any.
	Backlog time.Duration
	// Complete is true if the run handled all that had expired, and false if it was cut short.
	Complete bool
}
