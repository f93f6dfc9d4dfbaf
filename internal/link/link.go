// Package link holds what a short link is: its alias, the long URL it stands for, its lifetime and
// states, and the rules that each of them must meet. It does no I/O; the time and the source of
// randomness are arguments.
package link

import (
	"cmp"
	"errors"
	"time"
)

// Link is one short link, or the tombstone of one. Times are UTC and whole seconds, unless another
// program wrote them.
type Link struct {
	Name Name
	// Spelling is the alias as its maker chose it, if case does not matter and it differs from the
	// alias in Name.
	Spelling   Alias
	LongURL    string // what the caller sent, byte for byte; "" in a tombstone
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: never
	StartsAt   time.Time // zero: it leads somewhere from the beginning
	StatusCode int       // of its redirects: 301, 302, 307 or 308; zero means 302
	Forward    Forward   // what redirects append to where they lead
	// Rules say where the link leads for some of its visitors, in the order in which they are
	// tried. It leads to LongURL where none of them holds. Others may share them: they never
	// change.
	Rules    []TargetRule
	Disabled bool
	Owner    string // "": nobody
	// GoneURL is where browsers are sent once the link has ended. "": to where the service says. A
	// tombstone has it too.
	GoneURL Fallback
	Guard   // what it asks for before it leads anywhere
	// Locked says that an admin has taken the link down. Only an admin can end that.
	Locked    bool
	DeletedAt time.Time // zero: it is not deleted
	// CountedFrom is the day on which this link got its alias. Clicks count for this link from that
	// day on, because the alias may have belonged to another link before. The store sets it. Zero:
	// all clicks count.
	CountedFrom time.Time
	// Stale says that the link comes from a cache or a copy because its table did not respond. The
	// link may have changed since.
	Stale bool

	// GoneReason is why only a tombstone is left: StateExpired or StateDeleted. It is StateLive if
	// this is a link. GoneAt is the time from which on the alias leads nowhere.
	GoneReason State
	GoneAt     time.Time

	// The following fields are not known if the link comes from a cache.
	UpdatedAt time.Time // zero: it was never edited
	// Shared says that somebody other than its maker was given the link too. It never becomes false
	// again.
	Shared    bool
	Title     string
	Tags      []string
	ClaimHash string // SHA-256 of its claim token, in lower-case hex; "": there is none
	// Before counts clicks before the link was imported. Clicks here are counted in addition.
	Before Count
	// History is set only in what a store's History returns, and in an edit.
	History History
	Version string // differs after each change; "": it comes from a cache
}

// Alias returns the alias as people see it.
func (l Link) Alias() Alias { return cmp.Or(l.Spelling, l.Name.Alias()) }

// Count is how often a link was followed.
type Count struct {
	Clicks, Bots int64
	// LastAt is when a person last clicked. Zero: never, or the time is not known.
	LastAt time.Time
}

// State says whether a link leads anywhere, and why not.
type State string

// The states of a link. Only a link in StateLive leads anywhere.
const (
	StateLive     State = ""
	StateExpired  State = "expired"
	StateDisabled State = "disabled" // can be enabled again
	StateDeleted  State = "deleted"  // can be restored for a while
	// StateScheduled is that of a link before StartsAt. Nothing happens at that time: each process
	// goes by its clock.
	StateScheduled State = "scheduled"
)

// LiveOrScheduled reports whether a link in this state leads somewhere, or will by itself. The
// index names such links.
func (s State) LiveOrScheduled() bool { return s == StateLive || s == StateScheduled }

// State returns the state of a link at now. A link expires at the very instant of ExpiresAt, and
// leads somewhere from that of StartsAt on.
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
	case l.StartsAt.After(now):
		return StateScheduled
	}
	return StateLive
}

// Expired reports whether the link has expired at now, even if it is deleted too. One that is used
// up has, whatever its end is by other clocks.
func (l Link) Expired(now time.Time) bool {
	return l.UsedUp() || !l.ExpiresAt.IsZero() && !l.ExpiresAt.After(now)
}

// Errors of a store of links, and of changes that a caller asks for. A function that returns one of
// them may wrap it with more detail.
var (
	// ErrNotFound: the store was read and holds no such link.
	ErrNotFound = errors.New("no such link")
	// ErrDisabled: the long URL's link is disabled, so the URL gets no other alias.
	ErrDisabled = errors.New("the link is disabled")
	// ErrLocked: an admin has taken the link down, so only an admin changes it.
	ErrLocked = errors.New("the link was taken down")
	// ErrBlocked: a URL of the link leads to a host that is blocked. It is a *BlockedError.
	ErrBlocked = errors.New("the host is blocked")
	// ErrNotBlocked: the host itself is not blocked. A host above it may be.
	ErrNotBlocked = errors.New("the host is not blocked")
	// ErrAliasesTaken: every alias that was drawn for a new link was taken.
	ErrAliasesTaken = errors.New("every alias that was tried is taken")
	// ErrAliasTaken: the requested alias leads elsewhere, or once did.
	ErrAliasTaken = errors.New("the alias is taken")
	// ErrConflict: somebody else changed the link between its read and its write.
	ErrConflict = errors.New("the link was changed meanwhile")
	// ErrForbidden: the link belongs to another owner.
	ErrForbidden = errors.New("the link is another owner's")
	// ErrShared: others were given the link too, so what it does for them must not change.
	ErrShared = errors.New("the link is shared")
	// ErrDeleted: the link is deleted and must be restored first.
	ErrDeleted = errors.New("the link is deleted")
	// ErrNotDeleted: the link is not deleted, or was deleted too long ago to be restored.
	ErrNotDeleted = errors.New("the link cannot be restored")
	// ErrDamaged: the store has something under this alias that is not a link, such as a row
	// without a long URL.
	ErrDamaged = errors.New("the link's row is corrupt")
	// ErrPosition: this is not a position that a list can have returned.
	ErrPosition = errors.New("not a position in a list")
	// ErrUnavailable: the store did not respond in time. It is unknown whether a write was applied.
	ErrUnavailable = errors.New("the store of links is unavailable")
	// ErrSecondaryOnly: only the secondary copy of the store responds. It can be read but not
	// written.
	ErrSecondaryOnly = errors.New("only the secondary region responds")
	// ErrLockHeld: another instance is doing this work right now.
	ErrLockHeld = errors.New("another instance holds the lock")
)

// BlockedError is an ErrBlocked that names the URL.
type BlockedError struct{ Field Field }

func (e *BlockedError) Error() string { return string(e.Field) + ": " + ErrBlocked.Error() }

// Unwrap returns ErrBlocked.
func (e *BlockedError) Unwrap() error { return ErrBlocked }
