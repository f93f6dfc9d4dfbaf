package functions

import (
	"context"
	"net/http"

	"tiney/access"
	"tiney/clicks"
	"tiney/link"
	"tiney/transfer"
)

// Creator makes links.
type Creator interface {
	// Create returns the live link of want's owner and long URL, and makes it if there is none;
	// created says which. If want has an alias, it makes that link, or returns the one that has the
	// alias if that is live and of the same owner and long URL. If want has no owner and the link
	// was there, it becomes Shared, unless claimHash is its ClaimHash; "" is the hash of no token.
	// What it returns is durable, and it is safe to repeat after any error.
	//
	// Errors: link.ErrBlocked, link.ErrDisabled, link.ErrAliasesTaken, link.ErrAliasTaken,
	// link.ErrUnavailable.
	Create(ctx context.Context, want link.Link, claimHash string) (
		l link.Link, created bool, err error)
}

// Getter finds links, for redirects and previews, which need an answer fast.
type Getter interface {
	// Cached returns a link if it is live and cached. If stale is true, it also returns one that
	// should be looked up, and would be served if that failed.
	Cached(ctx context.Context, a link.Alias, stale bool) (l link.Link, ok bool)
	// Get returns a link, which may come from a cache, and may be expired, disabled, deleted, or a
	// tombstone.
	//
	// Errors: link.ErrNotFound only if there is no such link, link.ErrDamaged, link.ErrUnavailable.
	Get(ctx context.Context, a link.Alias) (link.Link, error)
}

// Reader reads links from the table, with all that is known of them.
type Reader interface {
	// Read's errors are link.ErrNotFound, of a tombstone too, link.ErrDamaged,
	// link.ErrUnavailable.
	Read(ctx context.Context, a link.Alias) (link.Link, error)
}

// Editor changes links.
type Editor interface {
	// Edit reads a link and writes what change makes of it. After a concurrent edit it calls change
	// again, up to five times in all, or only once if once is set. It writes nothing if change
	// returns the link as it was, or an error, which Edit then returns. It returns the link as it
	// is now, which is durable, and is safe to repeat.
	//
	// Errors: those of change, link.ErrBlocked of another long URL, link.ErrNotFound,
	// link.ErrConflict, link.ErrDamaged, link.ErrUnavailable.
	Edit(ctx context.Context, a link.Alias, once bool,
		change func(link.Link) (link.Link, error)) (link.Link, error)
	// EditAll edits several links; change gets the index. An alias that comes twice is edited in
	// this order. errs has the error of each. If err is not nil, nothing was done; it is
	// link.ErrUnavailable.
	EditAll(ctx context.Context, aliases []link.Alias,
		change func(i int, l link.Link) (link.Link, error)) (errs []error, err error)
}

// Lister lists links.
type Lister interface {
	// List returns up to limit links of an owner that keep accepts, newest first, from a position
	// on; "" is the start. next is the position to continue from, and "" at the end. One call reads
	// at most 1,000 links, so it may return fewer than there are. It returns no tombstones. A
	// client may have made up the position.
	//
	// Errors: link.ErrPosition if after can be no position, link.ErrUnavailable.
	List(ctx context.Context, owner, after string, limit int, keep func(link.Link) bool) (
		links []link.Link, next string, err error)
}

// Mover takes links out of the store and puts links in.
type Mover interface {
	// All returns links of all owners, deleted ones too, from up to limit rows of the store, from a
	// position on, as List does. damaged counts the rows that are no links.
	//
	// Errors: link.ErrPosition if after can be no position, link.ErrUnavailable.
	All(ctx context.Context, after string, limit int) (
		links []link.Link, next string, damaged int, err error)
	transfer.Importer
}

// Callers authenticates requests by their headers. The zero Caller has no credentials.
type Callers interface {
	// Caller honours access.WithoutLookup.
	//
	// Errors: access.ErrInvalid, access.ErrAmbiguous, access.ErrUnavailable.
	Caller(ctx context.Context, h http.Header) (access.Caller, error)
	// SignIn says how people sign in, for the page on which they do. It may wait some seconds for
	// their provider.
	SignIn(ctx context.Context) access.SignIn
}

// Keys keeps API keys. What Create and Revoke did is durable on return.
type Keys interface {
	// Create adds a key, unless its owner has access.MaxKeys that have not ended.
	//
	// Errors: access.ErrTooManyKeys, link.ErrUnavailable; after the latter the key may be stored,
	// but its secret is lost.
	Create(ctx context.Context, k access.Key) error
	// List returns the keys of an owner, of all owners if it is "", newest first.
	//
	// Error: link.ErrUnavailable.
	List(ctx context.Context, owner string) ([]access.Key, error)
	// Revoke deletes the key with this id, if it is owner's; any owner's if owner is "".
	//
	// Errors: access.ErrUnknownKey, link.ErrForbidden, link.ErrUnavailable.
	Revoke(ctx context.Context, id, owner string) error
}

// BlockChecker tells which long URLs are blocked.
type BlockChecker interface {
	// Has reports whether a long URL leads to a blocked host or to one below it. It is fast while
	// no host is blocked, and waits for storage only until the hosts were read once.
	Has(ctx context.Context, longURL string) bool
}

// Blocklist keeps the hosts that no link may lead to; a host blocks those below it. What Add and
// Remove did is durable on return, and in effect here; other processes follow within 15 seconds.
type Blocklist interface {
	// Add blocks a host, also one that is blocked already. Error: link.ErrUnavailable.
	Add(ctx context.Context, h link.Host) error
	// Remove unblocks a host. Errors: link.ErrNotBlocked, link.ErrUnavailable.
	Remove(ctx context.Context, h link.Host) error
	// List returns the hosts, sorted by name. Error: link.ErrUnavailable.
	List(ctx context.Context) ([]link.BlockedHost, error)
}

// Clicks counts clicks and new links. It neither waits for storage nor fails.
type Clicks interface {
	Click(a link.Alias, k clicks.Click)
	Created(links int)
}

// LinkTotals reads the totals of links, for lists and exports. They may be a minute old.
//
// Error: link.ErrUnavailable.
type LinkTotals interface {
	// Totals returns the clicks and bots of each link since it was made, and the last click.
	Totals(ctx context.Context, links []link.Link) ([]clicks.Total, error)
	// TotalsOfAll does the same for links that one call of Mover.All has returned.
	TotalsOfAll(ctx context.Context, links []link.Link) ([]clicks.Total, error)
}

// Statistics reads what was counted of links, as of the last time that it was saved.
//
// Error: link.ErrUnavailable.
type Statistics interface {
	// Days returns the counts of a link for each day from one to another, both included; to is not
	// before from. They leave out what an earlier link had under the same alias.
	Days(ctx context.Context, l link.Link, from, to clicks.Day) ([]clicks.Count, error)
	// Top returns up to limit links of an owner, of all owners if it is "", with the most clicks
	// within a window, and their clicks, most first. They leave out deleted links, and may be a
	// minute old.
	Top(ctx context.Context, owner string, window clicks.Window, limit int) (
		links []link.Link, counts []int64, err error)
	// Service returns the totals of all links together. They may be a minute old.
	Service(ctx context.Context) (clicks.Total, error)
}

// Pinger checks whether a part of storage responds.
type Pinger interface {
	// Ping returns an error if it does not. It returns when ctx ends, and does not panic.
	Ping(ctx context.Context) error
}

// Runner runs the reaper.
type Runner interface {
	// Run runs it once, for the timer trigger, and returns a summary for people. The error is
	// link.ErrLockHeld if another instance is reaping, which is no failure.
	Run(ctx context.Context) (summary string, err error)
	// Stats returns the statistics of the runs of all instances. Error: link.ErrUnavailable.
	Stats(ctx context.Context) (link.ReapStats, error)
}
