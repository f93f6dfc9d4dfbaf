// Package transfer reads and writes links as files: our own formats, and those in which other URL shorteners give their
// links out. It does no I/O but on the readers and writers that it is given.
package transfer

import (
	"errors"

	"tiney/clicks"
	"tiney/link"
)

// Record is what a file says of one link.
type Record struct {
	// Line is the physical line where the record begins, from 1, or in a JSON document the number of the entry.
	Line int
	// Link has what the file says, as it says it: no rule was applied. What it does not say is zero, StatusCode too.
	Link link.Link
	// Total is what became of the link before; Clicks, Bots and Last only.
	Total clicks.Total
	// Err is what is wrong with this record, in words for whoever sent it, and nil for nothing; the rest is zero then, but for Line.
	Err error
}

// Format is how a file says what its links are.
type Format string

// The formats. Only the first two can be written.
const (
	NDJSON         Format = "ndjson" // one JSON object a line, with the members that the API gives a link
	CSV            Format = "csv"    // the same, as columns
	Shlink         Format = "shlink"
	YOURLS         Format = "yourls"
	Kutt           Format = "kutt"
	Bitly          Format = "bitly"
	Dub            Format = "dub"
	AzURLShortener Format = "azurlshortener"
	Golink         Format = "golink"
)

// ErrFormat: there is no such format.
var ErrFormat = errors.New("there is no such format")
