package functions

import (
	"context"
	"net/http"
	"time"

	"tiney/internal/access"
	"tiney/internal/clicks"
	"tiney/internal/formats"
	"tiney/internal/link"
)

// Links keeps links. Package storage says what each method promises. Besides the errors that are
// named here, each may return link.ErrUnavailable; those of one link also link.ErrDamaged.
type Links interface {
	// Create makes a link, or returns the live one of the same owner and long URL. Errors:
	// link.ErrBlocked, link.ErrDisabled, link.ErrAliasesTaken, link.ErrAliasTaken.
	Create(ctx context.Context, want link.Link, claimHash string) (
		l link.Link, created bool, err error)
	// Cached returns a live or scheduled link from memory. If stale is true, the link may be one
	// that is only good enough if the store does not respond. It does not keep the name.
	Cached(ctx context.Context, a link.Name, stale bool) (l link.Link, ok bool)
	// Get returns a link or a tombstone, perhaps from a cache. Error: link.ErrNotFound.
	Get(ctx context.Context, a link.Name) (link.Link, error)
	// Read returns a link as it is now, without its history. Error: link.ErrNotFound.
	Read(ctx context.Context, a link.Name) (link.Link, error)
	// History is Read with the history.
	History(ctx context.Context, a link.Name) (link.Link, error)
	// Edit writes what change makes of a link. After a concurrent edit it tries again, unless once
	// is set. Errors: those of change, link.ErrBlocked, link.ErrNotFound, link.ErrConflict.
	Edit(ctx context.Context, a link.Name, once bool,
		change func(link.Link) (link.Link, error)) (link.Link, error)
	// Open takes one of the openings that a link has left, if permit allows it, which may be called
	// more than once. After link.ErrUnavailable, one may be used up. Errors: those of permit,
	// link.ErrNotFound.
	Open(ctx context.Context, a link.Name, permit func(link.Link) error) (link.Link, error)
	// Indexed returns the link that the index names for the long URL and the owner of l. Error:
	// link.ErrNotFound.
	Indexed(ctx context.Context, l link.Link) (link.Link, error)
	// EditAll makes several edits, those of one link in their order. If err is not nil, nothing was
	// done.
	EditAll(ctx context.Context, edits []link.Edit) (edited []link.EditResult, err error)
	// List returns up to limit links of an owner that keep accepts, newest first, from a position
	// on. One call reads at most 1,000 links, so it may return fewer than there are. Error:
	// link.ErrPosition.
	List(ctx context.Context, owner, after string, limit int, keep func(link.Link) bool) (
		links []link.Link, next string, err error)
	// All returns the links of all owners, also deleted ones, from up to limit rows. damaged counts
	// the rows that are not links. Error: link.ErrPosition.
	All(ctx context.Context, after string, limit int) (
		links []link.Link, next string, damaged int, err error)
	formats.Importer
}

// Keys keeps API keys. A nil list of owners stands for all of them. Each method may return
// link.ErrUnavailable.
type Keys interface {
	Create(ctx context.Context, k access.Key) error // access.ErrTooManyKeys
	List(ctx context.Context, owners []string) ([]access.Key, error)
	// Revoke may return access.ErrUnknownKey or link.ErrForbidden.
	Revoke(ctx context.Context, id string, owners []string) error
}

// Blocked keeps the hosts that no link may lead to. A host blocks those below it.
type Blocked interface {
	// Has reports whether a long URL leads to a blocked host. It waits for the store only until the
	// hosts have been read once.
	Has(ctx context.Context, longURL string) bool
	Add(ctx context.Context, h link.Host) error    // link.ErrUnavailable
	Remove(ctx context.Context, h link.Host) error // link.ErrNotBlocked, link.ErrUnavailable
	List(ctx context.Context) ([]link.BlockedHost, error)
}

// Clicks counts clicks and new links, and reads what was counted. Ranges of days include their
// first and last day, and results have one element for each. Each method that reads may return
// link.ErrUnavailable.
type Clicks interface {
	// Click and Created neither wait for the store nor fail. The link may come from a cache.
	Click(l link.Link, k clicks.Click)
	Created(links int)
	// Totals returns what each of the links has had since it was made. It waits for as long as ctx
	// allows.
	Totals(ctx context.Context, links []link.Link) ([]clicks.Total, error)
	Days(ctx context.Context, l link.Link, from, to clicks.Day) ([]clicks.Count, error)
	// OwnerDays returns the counts of all links that an owner had at the time.
	OwnerDays(ctx context.Context, owner string, from, to clicks.Day) ([]clicks.Count, error)
	// LinksDays returns the sums of up to 100 links.
	LinksDays(ctx context.Context, links []link.Link, from, to clicks.Day) ([]clicks.Total, error)
	// Top returns the links of an owner ("": of all) and of a domain (nil: of any) with the most
	// clicks within a window, as of a time. Error: clicks.ErrComputing until they are counted.
	Top(ctx context.Context, owner string, domain *link.Domain, window clicks.Window,
		limit int) (links []link.Link, counts []int64, asOf time.Time, err error)
	// InWindow returns what each of the links has had within a window, of which only Clicks is
	// known. Error: clicks.ErrComputing.
	InWindow(ctx context.Context, links []link.Link, window clicks.Window) ([]clicks.Total, error)
	// Service returns the totals of all links together. They may be a minute old.
	Service(ctx context.Context) (clicks.Total, error)
}

// Callers authenticates requests by their headers. The zero Caller has no credentials.
type Callers interface {
	// Caller honours access.WithoutLookup. Errors: access.ErrInvalid, access.ErrAmbiguous,
	// access.ErrUnavailable.
	Caller(ctx context.Context, h http.Header) (access.Caller, error)
	// SignIn says how people sign in. It may wait some seconds for their provider.
	SignIn(ctx context.Context) access.SignIn
}

// Pinger checks whether a part of storage responds.
type Pinger interface {
	// Ping returns an error if the part does not respond before ctx ends.
	Ping(ctx context.Context) error
}

// Runner runs the reaper.
type Runner interface {
	// Run runs the reaper once, and returns a summary for people. Error: link.ErrLockHeld if
	// another instance is reaping, which is no failure.
	Run(ctx context.Context) (summary string, err error)
	// Stats returns the statistics of the runs of all instances. Error: link.ErrUnavailable.
	Stats(ctx context.Context) (link.ReapStats, error)
}
