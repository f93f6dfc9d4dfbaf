// Package counts keeps counts of clicks in tables: by day and process, by month, and in total.
package counts

import (
	"context"
	"io"
	"log/slog"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/table"
)

// Settings say what is counted of clicks.
type Settings struct {
	Mode       clicks.Mode
	FlushEvery time.Duration // how often the counts are written
	KeepDays   int           // how many days the counts of a day are kept
}

// Config says what is counted of clicks, and where it is kept. Every field is required.
type Config struct {
	Settings
	Open    func(name string) table.Table // opens a table; it makes no call
	Days    string                        // the prefix of the tables of days and months
	Totals  *table.Store
	State   *table.Store // the visitors' keys, and the progress of a roll-up
	Links   Links
	Timeout time.Duration // the longest that a method waits for storage, but for RollUp

	PageSize     int           // rows of a day per page of a roll-up
	StorageClock bool          // a roll-up goes by the storage service's clock if Now is ahead
	Pause        time.Duration // before a roll-up tries again; it doubles with each try

	Now     func() time.Time
	Random  io.Reader // cryptographic; safe for concurrent use
	Log     *slog.Logger
	Metrics *telemetry.Metrics
}

// Links is what counts have to know of links. A tombstone counts as no link. Errors:
// link.ErrNotFound, link.ErrDamaged, link.ErrUnavailable.
type Links interface {
	// Current reads a link from its table.
	Current(ctx context.Context, a link.Name) (link.Link, error)
	// Cached reads a link, from the cache if there is one.
	Cached(ctx context.Context, a link.Name) (link.Link, error)
	// Owned calls page with the names of an owner's links, newest first, as table.Store.List does.
	Owned(ctx context.Context, owner string, page func([]link.Name) error) error
}
