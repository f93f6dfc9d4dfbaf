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

// Creator makes links.
type Creator interface {
	// Create returns the live link of want's owner and long URL, and makes it if there is none.
	// created reports whether it made the link. If want has an alias, Create makes a link with that
	// alias, or returns the link that has the alias if it is live and has the same owner and long
	// URL. If want has no owner and the link existed, the link becomes Shared, unless claimHash is
	// its ClaimHash; "" is the hash of no token. The returned link is durable. Create is safe to
	// repeat after any error.
	//
	// Errors: link.ErrBlocked, link.ErrDisabled, link.ErrAliasesTaken, link.ErrAliasTaken,
	// link.ErrUnavailable.
	Create(ctx context.Context, want link.Link, claimHash string) (
		l link.Link, created bool, err error)
}

// Getter finds links for redirects and previews, which need a fast answer.
type Getter interface {
	// Cached returns a link if it is live and cached. If stale is true, it also returns a link that
	// should be looked up again, and that is served if the look-up fails. It does not keep the name.
	Cached(ctx context.Context, a link.Name, stale bool) (l link.Link, ok bool)
	// Get returns a link. The link may come from a cache, and may be expired, disabled, deleted, or
	// a tombstone.
	//
	// Errors: link.ErrNotFound only if there is no such link, link.ErrDamaged, link.ErrUnavailable.
	Get(ctx context.Context, a link.Name) (link.Link, error)
}

// Reader reads links from the table, with everything that is known about them.
type Reader interface {
	// Read returns a link without its history. Errors: link.ErrNotFound, also for a tombstone,
	// link.ErrDamaged, link.ErrUnavailable.
	Read(ctx context.Context, a link.Name) (link.Link, error)
	// History returns a link with its history. Its errors are those of Read.
	History(ctx context.Context, a link.Name) (link.Link, error)
}

// Editor changes links.
type Editor interface {
	// Edit reads a link and writes the link that change returns. After a concurrent edit it calls
	// change again, up to 20 times in all, or only once if once is set. It writes nothing if
	// change returns the link as it was. If change returns an error, Edit writes nothing and
	// returns that error. It returns the link as it is now, which is durable. Edit is safe to
	// repeat.
	//
	// Errors: the errors of change, link.ErrBlocked for another long URL, link.ErrNotFound,
	// link.ErrConflict, link.ErrDamaged, link.ErrUnavailable.
	Edit(ctx context.Context, a link.Name, once bool,
		change func(link.Link) (link.Link, error)) (link.Link, error)
	// EditAll edits several links; change gets the index of the alias. Edits of the same alias keep
	// their order. errs has the error of each edit. If err is not nil, nothing was done; err is
	// link.ErrUnavailable.
	EditAll(ctx context.Context, aliases []link.Name,
		change func(i int, l link.Link) (link.Link, error)) (errs []error, err error)
}

// Lister lists links.
type Lister interface {
	// List returns up to limit links of an owner that keep accepts, newest first. It starts at the
	// position after; "" is the start of the list. next is the position to continue from, and "" at
	// the end. One call reads at most 1,000 links, so it may return fewer than there are. It
	// returns no tombstones. after may be made up by a client.
	//
	// Errors: link.ErrPosition if after can be no position, link.ErrUnavailable.
	List(ctx context.Context, owner, after string, limit int, keep func(link.Link) bool) (
		links []link.Link, next string, err error)
}

// Mover takes links out of the store and puts links in.
type Mover interface {
	// All returns the links of all owners, also deleted ones, from up to limit rows of the store.
	// after and next are positions, as for List. damaged counts the rows that are not links.
	//
	// Errors: link.ErrPosition if after can be no position, link.ErrUnavailable.
	All(ctx context.Context, after string, limit int) (
		links []link.Link, next string, damaged int, err error)
	formats.Importer
}

// Callers authenticates requests by their headers. The zero Caller has no credentials.
type Callers interface {
	// Caller honours access.WithoutLookup.
	//
	// Errors: access.ErrInvalid, access.ErrAmbiguous, access.ErrUnavailable.
	Caller(ctx context.Context, h http.Header) (access.Caller, error)
	// SignIn tells the sign-in page how people sign in. It may wait some seconds for their
	// provider.
	SignIn(ctx context.Context) access.SignIn
}

// Keys keeps API keys. Changes by Create and Revoke are durable when they return.
type Keys interface {
	// Create adds a key, unless its owner has access.MaxKeys that have not ended.
	//
	// Errors: access.ErrTooManyKeys, link.ErrUnavailable; after the latter the key may be stored,
	// but its secret is lost.
	Create(ctx context.Context, k access.Key) error
	// List returns the keys of these owners, newest first. If owners is nil, it returns all keys.
	//
	// Error: link.ErrUnavailable.
	List(ctx context.Context, owners []string) ([]access.Key, error)
	// Revoke deletes the key with this id, if it belongs to one of owners. If owners is nil, the key
	// may belong to any owner.
	//
	// Errors: access.ErrUnknownKey, link.ErrForbidden, link.ErrUnavailable.
	Revoke(ctx context.Context, id string, owners []string) error
}

// BlockChecker tells which long URLs are blocked.
type BlockChecker interface {
	// Has reports whether a long URL leads to a blocked host or to one below it. It is fast while
	// no host is blocked. It waits for storage only until the hosts have been read once.
	Has(ctx context.Context, longURL string) bool
}

// Blocklist keeps the hosts that no link may lead to; a host blocks those below it. Changes by Add
// and Remove are durable when they return, and are then in effect in this process; other processes
// follow within 15 seconds.
type Blocklist interface {
	// Add blocks a host, which may be blocked already. Error: link.ErrUnavailable.
	Add(ctx context.Context, h link.Host) error
	// Remove unblocks a host. Errors: link.ErrNotBlocked, link.ErrUnavailable.
	Remove(ctx context.Context, h link.Host) error
	// List returns the hosts, sorted by name. Error: link.ErrUnavailable.
	List(ctx context.Context) ([]link.BlockedHost, error)
}

// Clicks counts clicks and new links. It neither waits for storage nor fails.
type Clicks interface {
	// Click counts a click on a link, and on all links of the link's owner. The link may come from
	// a cache.
	Click(l link.Link, k clicks.Click)
	Created(links int)
}

// LinkTotals reads the totals of links, for lists and exports.
type LinkTotals interface {
	// Totals returns the clicks and bots of each link since it was made, and the last click. It has
	// the totals of all the links, or fails. It returns when the deadline of ctx is over, and waits
	// for as long as ctx allows.
	//
	// Error: link.ErrUnavailable.
	Totals(ctx context.Context, links []link.Link) ([]clicks.Total, error)
}

// Statistics reads the counts of links as they were last saved. Ranges of days include their first
// and last day, and to is not before from. The results have one element for each day. Clicks of an
// earlier link with the same alias count nowhere.
//
// Error: link.ErrUnavailable.
type Statistics interface {
	// Days returns the counts of a link.
	Days(ctx context.Context, l link.Link, from, to clicks.Day) ([]clicks.Count, error)
	// OwnerDays returns the counts of all links of an owner together. A click belongs to the owner
	// that the link had at the time.
	OwnerDays(ctx context.Context, owner string, from, to clicks.Day) ([]clicks.Count, error)
	// LinksDays returns the clicks and bots of these links together. There are at most 100 links,
	// and may be none.
	LinksDays(ctx context.Context, links []link.Link, from, to clicks.Day) ([]clicks.Total, error)
	// Top returns up to limit links of an owner, or of all owners if owner is "", and of a domain
	// unless that is nil, that have the most clicks within a window, and their clicks, most first.
	// It leaves out deleted links. The clicks are those of asOf. They are counted in the background
	// when Top is called, which then waits for them for a few seconds. After that it returns
	// clicks.ErrComputing until they are counted.
	Top(ctx context.Context, owner string, domain *link.Domain, window clicks.Window,
		limit int) (links []link.Link, counts []int64, asOf time.Time, err error)
	// Service returns the totals of all links together. They may be a minute old.
	Service(ctx context.Context) (clicks.Total, error)
}

// Pinger checks whether a part of storage responds.
type Pinger interface {
	// Ping returns an error if the part does not respond. It returns when ctx ends, and does not
	// panic.
	Ping(ctx context.Context) error
}

// Runner runs the reaper.
type Runner interface {
	// Run runs the reaper once, for the timer trigger, and returns a summary for people. The error
	// is link.ErrLockHeld if another instance is reaping; that is not a failure.
	Run(ctx context.Context) (summary string, err error)
	// Stats returns the statistics of the runs of all instances. Error: link.ErrUnavailable.
	Stats(ctx context.Context) (link.ReapStats, error)
}
