// Package formats imports links, and reads and writes them as files. It writes formats of its own,
// and also reads the formats that other URL shorteners export.
package formats

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"tiney/internal/clicks"
	"tiney/internal/link"
)

// Record is one link of a file.
type Record struct {
	// Line is the line on which the record begins, from 1, or with Entry the number of the entry in
	// a JSON document. It never decreases. A Bitly link with several aliases becomes several
	// records with the same Line.
	Line  int
	Entry bool
	// Link has the values of the file, before any rule is applied. It has a long URL. Its Name is
	// the alias alone, which need not be valid. Values that the file does not have are zero,
	// including StatusCode. Times are UTC and whole seconds. Only our own formats may lack the
	// alias. In the formats of others, the owner is a name that only their program knows.
	Link link.Link
	// Domain is the domain as the file spells it. "": the file names none, or the default one.
	// Writer takes the domain from the name of Link instead.
	Domain string
	// Total has the clicks before the export. Only Clicks, Bots and Last are set.
	Total clicks.Total
	// Left is what the record does not have of the link in the file.
	Left Left
	// Err is a RecordError or nil. With an error, all other fields are zero, except Line, Entry,
	// and the name if it is known.
	Err error
}

// Format is the format of a file.
type Format string

// The formats. Only NDJSON and CSV can be written.
const (
	NDJSON         Format = "ndjson" // one JSON object per line, with the members of the API
	CSV            Format = "csv"    // the same as columns
	Shlink         Format = "shlink"
	YOURLS         Format = "yourls"
	Kutt           Format = "kutt"
	Bitly          Format = "bitly"
	Dub            Format = "dub"
	AzURLShortener Format = "azurlshortener"
	Golink         Format = "golink"
	Sink           Format = "sink"
	Polr           Format = "polr"
)

// Formats are all formats that can be read.
var Formats = []Format{NDJSON, CSV, Shlink, YOURLS, Kutt, Bitly, Dub, AzURLShortener, Golink,
	Sink, Polr}

// Own reports whether the format is one of our own. Our own formats can be written, and have
// owners.
func (f Format) Own() bool { return f == NDJSON || f == CSV }

// ErrFormat: there is no such format.
var ErrFormat = errors.New("there is no such format")

// FileError says to users why a file or the rest of it cannot be read.
type FileError string

func (e FileError) Error() string { return string(e) }

// errNoLinks ends a file that has no record, not even one that is skipped.
const errNoLinks = FileError("There is no link in this file. Export the links again.")

func fileErrorf(format string, args ...any) error {
	return FileError(fmt.Sprintf(format, args...))
}

// RecordError says to users what is wrong with one record.
type RecordError string

func (e RecordError) Error() string { return string(e) }

// quoted returns text from a file for use in an error, in quotes and cut to 80 characters.
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

// Read reads the records of a file. Its memory does not grow with the file. A damaged record has
// Err, and reading goes on after it. Blank lines are not records. An error ends the sequence. It is
// an error of r, a FileError, or ErrFormat.
func Read(r io.Reader, f Format) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		next, err := reader(r, f)
		for entries := 0; err == nil; entries++ {
			var records []Record
			records, err = next()
			for _, rec := range records {
				if !yield(rec, nil) {
					return
				}
			}
			if err == io.EOF && entries == 0 {
				err = errNoLinks
			}
		}
		if err != io.EOF {
			yield(Record{}, err)
		}
	}
}

// nextRecords returns the records of the next line, row or entry of a file, which may be none. It
// returns io.EOF at the end of the file.
type nextRecords func() ([]Record, error)

func reader(r io.Reader, f Format) (nextRecords, error) {
	table, isTable := tables[f]
	object, hasObjects := objects[f]
	if !isTable && !hasObjects {
		return nil, ErrFormat
	}
	in, start, err := open(r)
	if err != nil {
		return nil, err
	}
	isJSON := bytes.HasPrefix(start, []byte("{")) || bytes.HasPrefix(start, []byte("["))
	switch {
	case hasObjects && object.list == "":
		return object.lines(in, start, f)
	case hasObjects && isJSON:
		return object.entries(in, f), nil
	case isJSON:
		return nil, fileErrorf("The file is JSON, and the format %s is CSV. "+
			"Choose another format, or export the links as CSV.", f)
	case isTable:
		return table.rows(in, start, f), nil
	}
	return nil, fileErrorf("The file is no JSON document, as the format %s is. "+
		"Choose another format.", f)
}
