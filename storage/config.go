package storage

import (
	"io"
	"log/slog"
	"time"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/counts"
	"tiney/storage/table"
)

// Config says where links are kept, and how. Every field is required unless it says otherwise.
type Config struct {
	Tables Tables
	Open   func(name string) table.Table // opens a table; it makes no call
	// opens the copy of a table in the account's second region, which is read if the first region
	// fails; nil: there is no copy
	OpenCopy func(name string) table.Table
	// Timeout is the longest that a method waits for storage, for all its calls and tries together.
	// A method waits for less if its context has less time left.
	Timeout     time.Duration
	AliasLength int          // characters of a drawn alias
	AnyCase     bool         // the case of aliases does not matter; see link.Rules
	Cache       *CacheConfig // nil: no cache, and every read goes to the table
	Reap        ReapConfig
	Clicks      counts.Settings

	// StaleWait is how long a caller waits for the table if there is a stale link, or a key, to
	// serve instead. To somebody who follows a link, a table that takes longer is as good as down.
	StaleWait time.Duration

	DeletedKeep time.Duration // how long a deleted link can be restored
	// how long a tombstone stays after its link's time; zero: there are no tombstones
	TombstoneFor time.Duration
	ChangesEvery time.Duration // how often to ask for other processes' changes; zero: never
	ChangesWait  time.Duration // how long a request waits for them, as part of its time

	Now     func() time.Time
	Random  io.Reader // cryptographic; safe for concurrent use
	Log     *slog.Logger
	Metrics *telemetry.Metrics
}

// Tables are the names of the tables.
type Tables struct {
	Links  string // "ShortUrls"
	Index  string // "UrlIndex"
	Expiry string // "ShortUrlsExpiryIndex"
	Owners string // "ShortUrlsByOwner"
	Keys   string // "ShortUrlsKeys"
	State  string // "ShortUrlsState"

	Clicks      string // "ShortUrlsClicks", which a day or a month follows in each name
	ClickTotals string // "ShortUrlsClickTotals"
}

// CacheConfig says how much is cached, and for how long. A zero duration disables that use of the
// cache.
type CacheConfig struct {
	Bytes    int64         // bound on the cost of all entries, which is their size in memory
	Fresh    time.Duration // how long a link is served without asking the table
	Negative time.Duration // how long "not found" is served without asking the table
	Stale    time.Duration // how much longer a link is served while the table does not respond
	Exact    bool          // drop nothing to make room; for simulations
}

// ReapConfig bounds the work of the reaper.
type ReapConfig struct {
	Buffer   time.Duration // how long past its expiry a link is kept; zero is fine
	PageSize int           // expiry rows, or rows of clicks, per page, at most 1000
	// StorageClock makes Reap go by the storage service's clock if Now is ahead of it: what it
	// deletes is gone for good, and the clock of a machine can be wrong.
	StorageClock bool
	// Pause is how long the roll-up waits before it tries again what storage has failed. It doubles
	// with each try.
	Pause time.Duration
}

// newID returns a random id by which a write is recognised later.
func (c *Config) newID() (string, error) {
	id, err := link.NewAlias(c.Random, 22, false) // 131 bits
	return string(id), err
}
