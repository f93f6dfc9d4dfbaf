package formats

import (
	"bytes"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// Guess returns the format that the start of a file is of, and a reader of the whole file. It goes
// by the names of columns and members. Of several formats that have them all it returns the one
// that knows most of them, and that has them as its first names. An empty file is NDJSON. Errors: a
// FileError, or the error of r.
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
		f = guessJSON(newDecoder(bytes.NewReader(start)))
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
			if _, bare := t.bareHeader(row.fields); bare {
				return f
			}
			h, err := t.header(row.fields, f)
			if err != nil {
				continue
			}
			known := 0
			for c, at := range h.at {
				if at >= 0 {
					known += 10 - slices.Index(t.names[c], normal(row.fields[at]))
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
var marks = map[string]Format{"longUrl": NDJSON, "Long": Golink, "target": Kutt, "long_url": Bitly,
	"slug": Sink, "shortLink": Dub}

// guessJSON returns the format of a JSON file by the members of its first object, or of the first
// one in its list. It returns "" if these tell nothing.
func guessJSON(in *jsontext.Decoder) Format {
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
		if ok && list == (objects[f].list != "") {
			return f
		}
		has := func(f Format) bool { _, ok := objects[f]; return ok && objects[f].list == name }
		if at := slices.IndexFunc(Formats, has); at >= 0 && !list && in.PeekKind() == '[' {
			if f := guessJSON(in); has(f) {
				return f
			}
			return Formats[at]
		}
		if in.SkipValue() != nil {
			return ""
		}
	}
	return ""
}
