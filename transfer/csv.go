package transfer

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// column is what a column of a file can say.
type column int

const (
	target column = iota
	code          // the alias, perhaps in slashes
	short         // a short URL, of which the alias is the path
	custom        // more of them, apart from each other by commas or spaces
	title
	tags
	owner
	// Times.
	created
	expires
	updated
	last
	// Whole numbers.
	status
	visits
	bots

	disabled // true or false

	columns // how many there are
)

// table is a format of one record a row, below a row of the columns' names.
type table struct {
	// names are those that a column goes by, in lower case and without spaces; the first that is there is taken.
	names [columns][]string
	// own: what is in a field comes back as it was, tags are as joinTags writes them, and no alias is needed.
	own bool
	// bare is the columns' order if the file may lack their names.
	bare []column
	// skip is the alias of rows that are no links.
	skip string
	// null is what a field has if there is no value.
	null []string
}

var tables = map[Format]table{
	CSV: {own: true, names: [columns][]string{target: {"longurl"}, code: {"alias"}, short: {"shorturl"}, created: {"createdatutc"},
		expires: {"expiresatutc"}, updated: {"updatedatutc"}, status: {"statuscode"}, disabled: {"disabled"}, title: {"title"},
		tags: {"tags"}, owner: {"owner"}, visits: {"clicks"}, bots: {"bots"}, last: {"lastclickatutc"}}},
	Shlink: {names: [columns][]string{target: {"longurl"}, code: {"shortcode"}, short: {"shorturl"}, created: {"createdat"},
		title: {"title"}, tags: {"tags"}, visits: {"visits", "visitscount"}}},
	YOURLS: {null: []string{"NULL"}, // phpMyAdmin's
		bare: []column{code, target, title, created, columns, visits}, names: [columns][]string{target: {"url", "target"},
			code: {"keyword", "source"}, created: {"timestamp"}, title: {"title"}, visits: {"clicks", "hits"}}},
	Bitly: {names: [columns][]string{target: {"destinationurl", "longurl"}, short: {"link", "bitlink", "shortlink"},
		custom: {"customlink", "customlinks"}, created: {"created", "createdat", "datecreated", "createddate"}, title: {"title"}, tags: {"tags"},
		visits: {"clicks", "totalclicks", "engagements", "totalengagements"}}},
	Dub: {null: []string{"null", "undefined"}, // JavaScript's
		names: [columns][]string{target: {"destinationurl", "url"}, short: {"shortlink", "link"}, created: {"createdat"},
			expires: {"expiresat"}, disabled: {"archived"}, title: {"title"}, tags: {"tags"}, visits: {"clicks"}}},
	AzURLShortener: {skip: "KEY", names: [columns][]string{target: {"url"}, code: {"rowkey"}, disabled: {"isarchived"}, title: {"title"},
		visits: {"clicks"}}},
}

// maxColumns bounds what is kept of a row.
const maxColumns = 1000

// header is the row of a file's columns.
type header struct {
	fields [][]byte     // as they are in the file
	at     [columns]int // which field it is; -1: none
}

// name returns what a file calls one of its columns.
func (h *header) name(c column) string { return string(h.fields[h.at[c]]) }

// normal returns a column's name without regard to case, spaces and hyphens.
func normal(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \u00a0_-", r) {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// header returns which field has which column.
func (t *table) header(fields [][]byte, f Format) (*header, error) {
	h := &header{}
	var names []string
	for _, field := range fields {
		h.fields = append(h.fields, bytes.Clone(field))
		names = append(names, normal(string(field)))
	}
	for c := range columns {
		h.at[c] = -1
		for _, name := range t.names[c] {
			if h.at[c] >= 0 {
				break
			}
			if h.at[c] = slices.Index(names, name); h.at[c] >= 0 && slices.Contains(names[h.at[c]+1:], name) {
				return nil, FileError(fmt.Sprintf("The column %s is there twice.", quoted(h.name(c))))
			}
		}
	}
	var missing string
	switch {
	case h.at[target] < 0:
		missing = "of the targets (" + t.listed(target) + ")"
	case h.at[code] < 0 && h.at[short] < 0 && h.at[custom] < 0 && !t.own:
		missing = "of the aliases (" + t.listed(code, short, custom) + ")"
	default:
		return h, nil
	}
	return nil, FileError(fmt.Sprintf("The first line must name the columns, and the one %s is not there: it has %s. Is the format %s?",
		missing, quoted(string(bytes.Join(fields, []byte(", ")))), f))
}

// listed returns the names that some columns go by.
func (t *table) listed(cs ...column) string {
	var names []string
	for _, c := range cs {
		names = append(names, t.names[c]...)
	}
	return strings.Join(names, ", ")
}

// bareHeader returns the columns of a file that begins with its first record, if it does.
func (t *table) bareHeader(fields [][]byte) (*header, bool) {
	if t.bare == nil || len(fields) != len(t.bare) {
		return nil, false
	}
	h := &header{fields: make([][]byte, len(fields))}
	for c := range columns {
		h.at[c] = slices.Index(t.bare, c)
	}
	for c, i := range h.at {
		if i >= 0 {
			h.fields[i] = []byte(t.names[c][0])
		}
	}
	_, isTime := parseTime(string(fields[h.at[created]]))
	return h, isTime && bytes.Contains(fields[h.at[target]], []byte("://"))
}

// read reads the rows of a file.
func (t *table) read(s *source, f Format, yield func(Record) bool) error {
	rows, err := newRowReader(s)
	if err != nil {
		return err
	}
	var h *header
	for {
		fields, number, err := rows.next()
		switch {
		case err == io.EOF && h == nil:
			return FileError("The file is empty. The first line must name the columns.")
		case err == io.EOF:
			return nil
		case h == nil && isWrong(err):
			return FileError(fmt.Sprintf("Line %d must name the columns. %s", number, err))
		case isWrong(err):
			if !yield(Record{Line: number, Err: err}) {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		if blank(fields) || strings.EqualFold(string(fields[0]), separator) && blank(fields[1:]) {
			continue
		}
		if h == nil {
			bare := false
			if h, bare = t.bareHeader(fields); !bare {
				if h, err = t.header(fields, f); err != nil {
					return err
				}
				continue
			}
		}
		if len(fields) != len(h.fields) { // more would be a cut title, even if what is in excess is empty
			if !yield(Record{Line: number, Err: rows.uneven(len(h.fields))}) {
				return nil
			}
			continue
		}
		if slices.EqualFunc(fields, h.fields, bytes.Equal) {
			continue // several files were put together
		}
		more := true
		t.record(h, fields, func(rec Record) {
			rec.Line = number
			more = more && yield(rec)
		})
		if !more {
			return nil
		}
	}
}

func isWrong(err error) bool {
	_, ok := err.(wrong)
	return ok
}

// separator begins the line that tells spreadsheets what separates the fields. It is no record.
const separator = "sep="

func blank(fields [][]byte) bool {
	return !slices.ContainsFunc(fields, func(field []byte) bool { return len(bytes.TrimSpace(field)) > 0 })
}

// record makes the records of a row.
func (t *table) record(h *header, fields [][]byte, yield func(Record)) {
	for _, field := range fields {
		if !utf8.Valid(field) {
			yield(Record{Err: wrong(notUTF8)})
			return
		}
	}
	text := func(c column) string {
		if h.at[c] < 0 {
			return ""
		}
		s := string(fields[h.at[c]])
		switch {
		case c >= title && slices.Contains(t.null, s): // an alias may be called so
			return ""
		case !t.own:
			return strings.TrimSpace(s)
		case c == target || c == short: // no formula begins like a URL
			return s
		}
		return unguarded(s)
	}
	value := func(c column) (name, s string) {
		if h.at[c] < 0 {
			return "", ""
		}
		if s = strings.TrimSpace(string(fields[h.at[c]])); slices.Contains(t.null, s) {
			s = ""
		}
		return h.name(c), s
	}
	b := builder{short: text(short), code: text(code), own: t.own}
	if !t.own {
		b.code = strings.Trim(b.code, "/")
		b.custom = strings.FieldsFunc(text(custom), func(r rune) bool { return r == ',' || r == ' ' })
	}
	if t.skip != "" && b.code == t.skip {
		return
	}
	b.Link.LongURL, b.Link.Title, b.Link.Owner = text(target), text(title), text(owner)
	name, s := value(created)
	b.time(&b.Link.CreatedAt, name, s)
	name, s = value(expires)
	b.time(&b.Link.ExpiresAt, name, s)
	name, s = value(updated)
	b.time(&b.Link.UpdatedAt, name, s)
	name, s = value(last)
	b.time(&b.Total.Last, name, s)
	name, s = value(visits)
	b.count(&b.Total.Clicks, name, s)
	name, s = value(bots)
	b.count(&b.Total.Bots, name, s)
	if name, s = value(status); s != "" {
		var err error
		if b.Link.StatusCode, err = strconv.Atoi(s); err != nil {
			b.fail("%s is %s; it must be 301, 302, 307 or 308.", quoted(name), quoted(s))
		}
	}
	if name, s = value(disabled); s != "" {
		var ok bool
		if b.Link.Disabled, ok = parseBool(s); !ok {
			b.fail("%s is %s; it must be true or false.", quoted(name), quoted(s))
		}
	}
	if t.own {
		var ok bool
		if b.Link.Tags, ok = splitTags(text(tags)); !ok {
			b.fail(`The tags are not separated by commas, or a quote is missing: one with a comma in it is written as "a,b".`)
		}
	} else {
		b.Link.Tags = looseTags(text(tags))
	}
	b.yield(t.names[target][0], yield)
}

// looseTags splits the tags of other programs: at commas, or at bars where there are none. They may
// be a list in JSON, too.
func looseTags(s string) (all []string) {
	var list []string
	if strings.HasPrefix(s, "[") && json.Unmarshal([]byte(s), &list) == nil {
		return list
	}
	separator := ","
	if !strings.Contains(s, ",") {
		separator = "|"
	}
	for tag := range strings.SplitSeq(s, separator) {
		if tag = strings.TrimSpace(tag); tag != "" {
			all = append(all, tag)
		}
	}
	return all
}

// rowReader splits a file into rows (RFC 4180). What is damaged costs no more than the line where it is: after a quote that
// never ends, reading goes on with the next line.
type rowReader struct {
	*source
	delimiter byte
	fields    [][]byte
	lines     int // of the row that was returned last
}

// newRowReader returns a reader of the rows of s. They are separated by what is there most, outside of quotes, in the first
// line that is not blank: commas, semicolons (of spreadsheets where a comma is a decimal one) or tabs.
func newRowReader(s *source) (*rowReader, error) {
	var line []byte
	for {
		data, last := s.data()
		data = bytes.TrimLeft(data, " \r\n")
		end, next := eol(data, last)
		if line = data[:end]; next > 0 || last || !s.more() && s.err == nil {
			break
		}
		if s.err != nil && s.err != io.EOF {
			return nil, s.err
		}
	}
	counts := map[byte]int{}
	inQuotes := false
	for _, c := range line {
		if c == '"' {
			inQuotes = !inQuotes
		}
		if !inQuotes {
			counts[c]++
		}
	}
	best := byte(',')
	for _, c := range []byte(";\t") {
		if counts[c] > counts[best] {
			best = c
		}
	}
	return &rowReader{source: s, delimiter: best}, nil
}

// next returns the fields of the next row, valid until the next call, and the line where it begins. The error is io.EOF, that
// of reading, or what is wrong with the row.
func (r *rowReader) next() (fields [][]byte, number int, err error) {
	for {
		data, last := r.data()
		number = r.line
		if len(data) == 0 && last {
			return nil, number, io.EOF
		}
		row := splitRow(data, r.delimiter, last, r.fields[:0])
		r.fields = row.fields
		switch {
		case row.wrong != "":
			return nil, number, r.damaged(row)
		case row.length > 0:
			r.lines = row.lines
			r.consume(row.length, row.lines)
			return row.fields, number, nil
		case len(data) >= maxRecord:
			row.wrong = neverEnds
			if _, next := eol(data, last); next == 0 {
				row.wrong, row.quote = tooLong, -1
			}
			return nil, number, r.damaged(row)
		}
		if !r.more() && r.err != io.EOF {
			return nil, number, r.err
		}
	}
}

const neverEnds = "The quote that begins here never ends: close it, or double it if it is part of the text."

// damaged passes over a row up to the end of the line where its last quote began, and returns what is wrong with it. The error
// may be that of reading, too.
func (r *rowReader) damaged(row row4180) error {
	text := row.wrong
	if row.quote > 0 {
		text = fmt.Sprintf("%s (It is in line %d.)", text, r.line+row.quote)
	}
	for range max(row.quote, 0) + 1 {
		if err := r.skipLine(); err != nil {
			return err
		}
	}
	return wrong(text)
}

// uneven returns what is wrong with the row that was returned last, which has not as many fields as there should be.
func (r *rowReader) uneven(should int) error {
	hint := "put text that has a separator in it into quotes"
	switch {
	case r.lines > 1:
		hint = fmt.Sprintf("check the quote that ends in line %d", r.line-1)
	case len(r.fields) < should:
		hint = "check whether the line was cut"
	}
	return wrongf("There are %d columns instead of %d: %s.", len(r.fields), should, hint)
}

// row4180 is what splitRow found.
type row4180 struct {
	fields [][]byte
	length int    // in bytes, with the end of its line; 0: the data does not hold it whole
	lines  int    // how many lines end within it
	wrong  string // what is wrong with it
	quote  int    // how many lines after the row's first the last quoted field began; -1: none did
}

// splitRow splits the row at the start of data, which is not empty, and appends its fields to fields. They are parts of data
// where that is possible.
func splitRow(data []byte, delimiter byte, last bool, fields [][]byte) (row row4180) {
	row.fields, row.quote = fields, -1
	i, lines := 0, 0
	for {
		var field []byte
		if i < len(data) && data[i] == '"' {
			row.quote = lines
			begin, doubled := i+1, false
			for i = begin; ; {
				end := bytes.IndexByte(data[i:], '"')
				if end < 0 || i+end+1 == len(data) && !last {
					if last {
						row.wrong = neverEnds
					}
					return row
				}
				if i += end + 1; i == len(data) || data[i] != '"' {
					break
				}
				doubled = true
				i++
			}
			field = data[begin : i-1]
			lines += ends(field)
			if doubled {
				field = bytes.ReplaceAll(field, []byte(`""`), []byte(`"`))
			}
			if i < len(data) && data[i] != delimiter && data[i] != '\n' && data[i] != '\r' {
				row.wrong = "There is text after a closing quote: double the quotes that are part of a text."
				return row
			}
		} else {
			begin := i
			for i < len(data) && data[i] != delimiter && data[i] != '\n' && data[i] != '\r' {
				i++
			}
			field = data[begin:i]
		}
		row.fields = append(row.fields, field)
		switch {
		case len(row.fields) > maxColumns:
			row.wrong = "There are more than 1,000 columns."
			return row
		case i == len(data) && !last:
			return row
		case i == len(data):
			row.length, row.lines = i, lines+1
			return row
		case data[i] == delimiter:
			i++
			continue
		}
		if data[i] == '\r' {
			if i+1 == len(data) && !last {
				return row
			}
			if i+1 < len(data) && data[i+1] == '\n' {
				i++
			}
		}
		row.length, row.lines = i+1, lines+1
		return row
	}
}
