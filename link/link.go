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

// The answers of a store of links that are not links. Whoever returns one of them may wrap it with more detail.
var (
	// ErrNotFound: the store was read and holds no such link.
	ErrNotFound = errors.New("no such link")
	// ErrDisabled: the long URL's link is disabled and has not expired, so the URL gets no other alias.
	ErrDisabled = errors.New("the link is disabled")
	// ErrAliasesTaken: every alias that was tried for a new link was taken.
	ErrAliasesTaken = errors.New("every alias that was tried is taken")
	// ErrDamaged: the store holds something under this alias that is no link, such as one without a long URL.
	ErrDamaged = errors.New("the link's record is damaged")
	// ErrUnavailable: the store did not answer, or not in time. Whether a write was applied is unknown.
	ErrUnavailable = errors.New("the store of links is unavailable")
	// ErrLockHeld: another instance is doing this work right now.
	ErrLockHeld = errors.New("another instance holds the lock")
)

// Reaped counts what one run of the reaper did.
type Reaped struct {
	Deleted int64 // expired links deleted
	Dropped int64 // expiry rows deleted whose link was gone or had been given a later expiry
	Failed  int64 // expiry rows that could not be handled; the next run meets them again
	// Backlog is how long the oldest expired link that the run left behind had been expired, as far as it knows: zero
	// where it left none, or was cut short before it saw any.
	Backlog time.Duration
	// Complete says that the run reached the end of what had expired; false where its time limit cut it short.
	Complete bool
}
