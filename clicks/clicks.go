// Package clicks says what a click is: who clicked, by agent, referrer and country, with nothing
// kept as a stranger wrote it, and counters and sketches that merge. It has no I/O.
package clicks

// Mode says what is counted.
type Mode string

const (
	ModeFull   Mode = "full"   // clicks with their dimensions and visitors
	ModeTotals Mode = "totals" // clicks only
	ModeOff    Mode = "off"    // nothing; what was counted before is still told
)

// Window is how far back the links with the most clicks are looked for.
type Window string

const (
	LastDay  Window = "24h" // the last 24 hours, and the hour in which they began from its start on
	LastWeek Window = "7d"  // today, UTC, and the six days before
)

// Other is the name of what is none of the names that are told apart.
const Other = "(other)"

// RollUpResult says what one roll-up of clicks did.
type RollUpResult struct {
	Added    int64 // days of links that were added to totals
	Damaged  int64 // rows that cannot be read, and were left out
	Complete bool  // whether all days that are over are rolled up; if not, the next one goes on
}
