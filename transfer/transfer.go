// Package transfer reads and writes links as files: our own formats, and those in which other URL shorteners give their
// links out. It does no I/O but on the readers and writers that it is given.
package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"tiney/clicks"
	"tiney/link"
)

// Record is what a file says of one link.
type Record struct {
	// Line is the physical line where the record begins, from 1, or in a JSON document the number of the entry. It never
	// decreases; a link of Bitly's that has several aliases is several records of one line.
	Line int
	// Link has what the file says, as it says it: no rule was applied, but it always has a long URL. What it does not say is
	// zero, StatusCode too. Times are UTC and whole seconds. Only our own formats give it an owner, and may give it no alias.
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

// Formats are all formats that can be read.
var Formats = []Format{NDJSON, CSV, Shlink, YOURLS, Kutt, Bitly, Dub, AzURLShortener, Golink}

// Own reports whether the format is one of our own, which can be written too, and says who owns a link.
func (f Format) Own() bool { return f == NDJSON || f == CSV }

// ErrFormat: there is no such format.
var ErrFormat = errors.New("there is no such format")

// ParseFormat returns the format of this name. Error: ErrFormat.
func ParseFormat(name string) (Format, error) {
	if f := Format(name); slices.Contains(Formats, f) {
		return f, nil
	}
	return "", ErrFormat
}

// FileError is what is wrong with a file as a whole, in words for whoever sent it: it is in no such format, or is damaged so
// that the rest of it cannot be read.
type FileError string

func (e FileError) Error() string { return string(e) }

// RecordError is what is wrong with one record, in words for the user who sent it.
type RecordError string

func (e RecordError) Error() string { return string(e) }

// quoted returns what a file says for an error's text, which is not to grow with it.
func quoted(text string) string {
	const most = 80
	runes := 0
	for i := range text {
		if runes++; runes > most {
			return fmt.Sprintf("%q…", text[:i])
		}
	}
	return fmt.Sprintf("%q", text)
}

// Read reads the records of a file, in memory that does not grow with it. A record that is damaged has Err, and reading goes
// on after it; blank lines are no records. The error ends it: that of reading r, a FileError, or ErrFormat.
func Read(r io.Reader, f Format) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		if err := read(r, f, func(rec Record) bool { return yield(rec, nil) }); err != nil {
			yield(Record{}, err)
		}
	}
}

// read hands the records to yield, until it returns false.
func read(r io.Reader, f Format, yield func(Record) bool) error {
	table, isTable := tables[f]
	lines, isLines := objects[f]
	document, isDocument := documents[f]
	if !isTable && !isLines && !isDocument {
		return ErrFormat
	}
	in, start, err := open(r)
	if err != nil {
		return err
	}
	isJSON := bytes.HasPrefix(start, []byte("{")) || bytes.HasPrefix(start, []byte("["))
	switch {
	case isLines:
		return lines.read(in, start, f, yield)
	case isDocument && isJSON:
		return document.read(in, f, yield)
	case isJSON:
		return FileError(fmt.Sprintf("The file is JSON, and the format %s is CSV. "+
			"Choose another format, or export the links as CSV.", f))
	case isTable:
		return table.read(in, start, f, yield)
	}
	return FileError(fmt.Sprintf(
		"The file is no JSON document, as the format %s is. Choose another format.", f))
}
