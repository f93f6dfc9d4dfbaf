package formats

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/link"
)

// Writer writes records in one of our own formats. Read returns the records as they were written,
// except Shared, DeletedAt and Line; with times to the second, and in CSV with all line ends as LF.
// The alias is written in the spelling that people see.
//
// CSV is as in RFC 4180, with lines that end with LF. Tags are in one field, separated by commas. A
// tag that contains a comma or a quote, or that begins or ends with white space, is itself in
// quotes. Spreadsheets take a field that begins with =, +, - or @ for a formula, even in quotes,
// and anybody may choose a title. So Writer puts an apostrophe before a text that begins with such
// a character, also if apostrophes precede the character. Read takes one apostrophe away again.
type Writer struct {
	WithoutHashes bool // of passwords

	rules  link.Rules
	format Format
	csv    *csv.Writer
	json   *jsontext.Encoder
}

// NewWriter returns a Writer that writes to w, with the short URLs of rules. CSV is buffered until
// Flush. It has the column names even if there is no record. For a spreadsheet, it begins with a
// line that names the separator: without that line, some spreadsheets split at semicolons, and then
// a field may begin anywhere in a title or a long URL.
func NewWriter(w io.Writer, f Format, rules link.Rules, forSpreadsheet bool) *Writer {
	buffer := bufio.NewWriter(w) // csv uses it as its own
	out := &Writer{rules: rules, format: f, csv: csv.NewWriter(buffer),
		json: jsontext.NewEncoder(w, jsontext.AllowInvalidUTF8(true))}
	if f == CSV {
		if forSpreadsheet {
			_, _ = buffer.WriteString(separator + ",\n") // an error comes again at Flush
		}
		var names []string
		for _, m := range members {
			names = append(names, m.name)
		}
		_ = out.csv.Write(names)
	}
	return out
}

// Write writes a record without its Err. The error is the error of writing, or ErrFormat.
func (w *Writer) Write(rec Record) error {
	if rec.Link.StatusCode == 0 {
		rec.Link.StatusCode = link.DefaultStatusCode
	}
	switch w.format {
	case NDJSON:
		err := w.json.WriteToken(jsontext.BeginObject)
		for _, m := range members {
			err = cmp.Or(err, w.json.WriteToken(jsontext.String(m.name)),
				json.MarshalEncode(w.json, orNull(m.value(w, &rec))))
		}
		return cmp.Or(err, w.json.WriteToken(jsontext.EndObject))
	case CSV:
		fields := make([]string, len(members))
		for i, m := range members {
			fields[i] = strings.ToValidUTF8(field(m.value(w, &rec)), "\ufffd")
		}
		return w.csv.Write(fields)
	}
	return ErrFormat
}

// orNull returns the value of a member as JSON has it.
func orNull(value any) any {
	if t, ok := value.(time.Time); ok {
		value = stamp(t)
	}
	if value == "" {
		return nil
	}
	return value
}

// field returns the value of a member as CSV has it.
func field(value any) string {
	switch v := value.(type) {
	case time.Time:
		return stamp(v)
	case []string:
		return guarded(joinTags(v))
	case Rules:
		return link.EncodeTargetRules(v)
	case string:
		return guarded(v)
	}
	return fmt.Sprint(value)
}

// Flush writes the buffer.
func (w *Writer) Flush() error {
	w.csv.Flush()
	return w.csv.Error()
}

// stamp returns a time as the API writes it, or "" for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// formula reports whether spreadsheets take a field for a formula, or would do so without the
// apostrophes before it (see https://owasp.org/www-community/attacks/CSV_Injection).
func formula(s string) bool {
	s = strings.TrimLeft(s, "'")
	first, _ := utf8.DecodeRuneInString(s)
	return s != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", first)
}

// guarded changes a field so that no spreadsheet takes it for a formula. unguarded reverses this.
func guarded(s string) string {
	if formula(s) {
		return "'" + s
	}
	return s
}

func unguarded(s string) string {
	if strings.HasPrefix(s, "'") && formula(s) {
		return s[1:]
	}
	return s
}

// joinTags writes tags into one field. splitTags reads them from it.
func joinTags(tags []string) string {
	var b strings.Builder
	for i, tag := range tags {
		if i > 0 {
			b.WriteByte(',')
		}
		if tag == "" || strings.TrimSpace(tag) != tag || strings.ContainsAny(tag, `,"`) {
			tag = `"` + strings.ReplaceAll(tag, `"`, `""`) + `"`
		}
		b.WriteString(tag)
	}
	return b.String()
}

// splitTags splits a field into tags. It returns false if a quote is out of place. Spaces around
// tags are allowed, because people write them.
func splitTags(s string) (tags []string, ok bool) {
	if s = strings.TrimSpace(s); s == "" {
		return nil, true
	}
	for more := true; more; {
		tag := ""
		if s = strings.TrimLeft(s, " "); strings.HasPrefix(s, `"`) {
			var text strings.Builder
			// Each round takes a part up to the next quote. A doubled quote begins another part.
			for strings.HasPrefix(s, `"`) {
				part, rest, closed := strings.Cut(s[1:], `"`)
				if !closed {
					return nil, false
				}
				text.WriteString(part)
				if strings.HasPrefix(rest, `"`) {
					text.WriteByte('"')
				}
				s = rest
			}
			tag = text.String()
			if s = strings.TrimLeft(s, " "); s != "" && s[0] != ',' {
				return nil, false
			}
			s, more = strings.TrimPrefix(s, ","), s != ""
		} else {
			tag, s, more = strings.Cut(s, ",")
			if tag = strings.TrimSpace(tag); tag == "" {
				continue
			}
		}
		if tags = append(tags, tag); len(tags) == maxFew {
			break // the rest would not make them fewer
		}
	}
	return tags, true
}
