package transfer

import (
	"bytes"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Guess returns the format that the start of a file is of, and a reader of the whole file. It goes by
// the names of columns and members. Of several formats that have them all it returns the one that
// knows most of them. An empty file is NDJSON. Errors: a FileError, or the error of r.
func Guess(r io.Reader) (Format, io.Reader, error) {
	in, start, err := open(r)
	if err != nil {
		return "", nil, err
	}
	var f Format
	switch {
	case len(start) == 0:
		f = NDJSON
	case start[0] == '{', start[0] == '[':
		f = guessJSON(start)
	default:
		f = guessTable(start)
	}
	if f == "" {
		var names []string
		for _, f := range Formats {
			names = append(names, string(f))
		}
		return "", nil, fileErrorf("The file is of no format that is known by its column names or "+
			"members. Choose one of %s.", strings.Join(names, ", "))
	}
	return f, in, nil
}

// guessTable returns the format of a CSV file by its first row, or "".
func guessTable(start []byte) (best Format) {
	rows := newRowReader(bytes.NewReader(start), start)
	most := 0
	for {
		row, err := rows.next()
		if err != nil || row.wrong != "" {
			return ""
		}
		if blank(row.fields) {
			continue
		}
		for _, f := range Formats {
			t := tables[f] // of a format in JSON: one that no row is of
			h, bare := t.bareHeader(row.fields)
			if !bare {
				if h, err = t.header(row.fields, f); err != nil {
					continue
				}
			}
			known := 0
			for _, at := range h.at {
				if at >= 0 {
					known++
				}
			}
			if known > most {
				best, most = f, known
			}
		}
		return best
	}
}

// marks are members that only the JSON of one format has.
var marks = map[string]Format{"longUrl": NDJSON, "Long": Golink, "target": Kutt, "long_url": Bitly}

// guessJSON returns the format of a JSON file by the members of its first object, or "".
func guessJSON(start []byte) Format {
	in := jsontext.NewDecoder(bytes.NewReader(start), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
	list := in.PeekKind() == '['
	if list {
		_, _ = in.ReadToken()
	}
	if in.PeekKind() != '{' {
		return ""
	}
	_, _ = in.ReadToken()
	for in.PeekKind() == '"' {
		token, err := in.ReadToken()
		if err != nil {
			return ""
		}
		name := token.String()
		f, ok := marks[name]
		if _, lines := objects[f]; ok && list != lines {
			return f
		}
		for f, d := range documents {
			if !list && name == d.member && in.PeekKind() == '[' {
				return f
			}
		}
		if in.SkipValue() != nil {
			return ""
		}
	}
	return ""
}
