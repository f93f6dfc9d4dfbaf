// Package clicks says what a click is: who clicked, by agent, referrer and country, with nothing kept as a stranger wrote
// it, and counters and sketches that merge. It has no I/O.
package clicks

// Mode says what is counted.
type Mode string

const (
	ModeFull   Mode = "full"   // clicks with their dimensions and visitors
	ModeTotals Mode = "totals" // clicks only
	ModeOff    Mode = "off"    // nothing; what was counted before is still told
)

// Other is the name of what is none of the names that are told apart.
const Other = "(other)"
