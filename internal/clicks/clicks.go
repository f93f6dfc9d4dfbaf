// Package clicks defines what a click is: who clicked, by agent, referrer and country. It keeps no
// text as a stranger wrote it. Its counters and its sketches of visitors can be merged. It does no
// I/O.
package clicks

import "errors"

// Mode says what is counted.
type Mode string

const (
	ModeFull   Mode = "full"   // clicks with their dimensions and visitors
	ModeTotals Mode = "totals" // clicks only
	ModeOff    Mode = "off"    // nothing; earlier counts are still shown
)

// Window is the period in which the links with the most clicks are searched for.
type Window string

const (
	LastDay   Window = "24h" // the last 24 hours, and all of the hour in which they began
	LastWeek  Window = "7d"  // today, in UTC, and the six days before
	LastMonth Window = "30d" // today, in UTC, and the 29 days before
)

// ErrComputing is returned while the links with the most clicks are being searched for. It is a
// link.ErrUnavailable too: a later call may find them.
var ErrComputing = errors.New("the links with the most clicks are not known yet")

// Other stands for all names that are not counted separately.
const Other = "(other)"

// RollUpResult says what one roll-up of clicks did.
type RollUpResult struct {
	Added    int64 // days of links that were added to their totals
	Damaged  int64 // rows that could not be read and were left out
	Complete bool  // all days that are over are rolled up; if false, the next roll-up continues
}
