package transfer

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// column is a kind of column.
type column int

const (
	target column = iota
	code          // the alias, perhaps in slashes
	short         // a short URL; its path is the alias
	custom        // further short URLs, separated by commas or spaces
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

	// True or false.
	disabled
	locked

	domain
	forward // names, separated by commas

	columns // how many there are
)

// table is a CSV format: a row of column names, then one record a row.
type table struct {
	// names are the names of each column, as normal returns them. If a file has several of them,
	// the first in this list counts.
	names [columns][]string
	// own: the format is our own. Texts are kept as they are, tags are from joinTags, and records
	// may lack an alias.
	own bool
	// bare is the order of the columns in files without column names. nil: all files have the
	// names.
	bare []column
	// skip is the alias of rows that are not links.
	skip string
	// null lists the texts that stand for no value.
	null []string
}

var tables = map[Format]table{
	CSV: {own: true, names: [columns][]string{
		target: {"longurl"}, code: {"alias"}, short: {"shorturl"},
		title: {"title"}, tags: {"tags"}, owner: {"owner"},
		created: {"createdatutc"}, expires: {"expiresatutc"}, updated: {"updatedatutc"},
		status: {"statuscode"}, disabled: {"disabled"},
		visits: {"clicks"}, bots: {"bots"}, last: {"lastclickatutc"},
		domain: {"domain"}, forward: {"forward"}, locked: {"locked"},
	}},
	Shlink: {names: [columns][]string{
		target: {"longurl"}, code: {"shortcode"}, short: {"shorturl"},
		title: {"title"}, tags: {"tags"}, created: {"createdat"}, visits: {"visits", "visitscount"},
		domain: {"domain"},
	}},
	YOURLS: {
		null: []string{"NULL"}, // phpMyAdmin's
		bare: []column{code, target, title, created, columns, visits},
		names: [columns][]string{
			target: {"url", "target"}, code: {"keyword", "source"},
			title: {"title"}, created: {"timestamp"}, visits: {"clicks", "hits"},
		},
	},
	Bitly: {names: [columns][]string{
		target: {"destinationurl", "longurl"},
		short:  {"link", "bitlink", "shortlink"}, custom: {"customlink", "customlinks"},
		title: {"title"}, tags: {"tags"},
		created: {"created", "createdat", "datecreated", "createddate"},
		visits:  {"clicks", "totalclicks", "engagements", "totalengagements"},
	}},
	Dub: {
		null: []string{"null", "undefined"}, // JavaScript's
		names: [columns][]string{
			target: {"destinationurl", "url"}, short: {"shortlink", "link"},
			title: {"title"}, tags: {"tags"}, created: {"createdat"}, expires: {"expiresat"},
			disabled: {"archived"}, visits: {"clicks"},
		},
	},
	AzURLShortener: {skip: "KEY", names: [columns][]string{
		target: {"url"}, code: {"rowkey"}, title: {"title"},
		disabled: {"isarchived"}, visits: {"clicks"},
	}},
}

// header is the row of column names of a file.
type header struct {
	fields []string     // as they are in the file
	at     [columns]int // the index of each column's field; -1: none
}

// name returns the name of a column in the file.
func (h *header) name(c column) string { return h.fields[h.at[c]] }

// normal returns a column name in lower case, without spaces, hyphens and underscores.
func normal(name string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(" \u00a0_-", r) {
			return -1
		}
		return r
	}, strings.ToLower(name))
}

// header parses a row as the header. Error: a FileError.
func (t *table) header(fields []string, f Format) (*header, error) {
	h := &header{fields: slices.Clone(fields)}
	var names []string
	for _, field := range fields {
		names = append(names, normal(field))
	}
	for c := range columns {
		h.at[c] = -1
		for _, name := range t.names[c] {
			if h.at[c] = slices.Index(names, name); h.at[c] >= 0 {
				break
			}
		}
		if at := h.at[c]; at >= 0 && slices.Contains(names[at+1:], names[at]) {
			return nil, fileErrorf("The column %s is there twice.", quoted(fields[at]))
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
	has := quoted(strings.Join(fields, ", "))
	return nil, fileErrorf("The first line must name the columns, and the one %s is not there: "+
		"it has %s. Is the format %s?", missing, has, f)
}

// listed returns the names of some columns.
func (t *table) listed(cs ...column) string {
	var names []string
	for _, c := range cs {
		names = append(names, t.names[c]...)
	}
	return strings.Join(names, ", ")
}

// bareHeader returns the header of a file without column names, and reports whether the file has
// none, because its first row is a record.
func (t *table) bareHeader(fields []string) (*header, bool) {
	if t.bare == nil || len(fields) != len(t.bare) {
		return nil, false
	}
	h := &header{fields: make([]string, len(fields))}
	for c := range columns {
		if h.at[c] = slices.Index(t.bare, c); h.at[c] >= 0 {
			h.fields[h.at[c]] = t.names[c][0]
		}
	}
	_, isTime := parseTime(fields[h.at[created]])
	return h, isTime && strings.Contains(fields[h.at[target]], "://")
}

// read reads the rows of a file. start is the start of the file.
func (t *table) read(in io.Reader, start []byte, f Format, yield func(Record) bool) error {
	rows := newRowReader(in, start)
	var h *header
	for {
		row, err := rows.next()
		switch {
		case err == io.EOF && h == nil:
			return FileError("The file is empty. The first line must name the columns.")
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case row.wrong == "" && blank(row.fields):
			continue
		case h == nil && row.wrong != "":
			return fileErrorf("Line %d must name the columns. %s", row.first, row.wrong)
		case h == nil:
			bare := false
			if h, bare = t.bareHeader(row.fields); !bare {
				if h, err = t.header(row.fields, f); err != nil {
					return err
				}
			}
		}
		more := true
		t.records(h, row, func(rec Record) {
			rec.Line = row.first
			more = more && yield(rec)
		})
		if !more {
			return nil
		}
	}
}

// separator begins the line that tells spreadsheets which separator the file has. That line is not
// a record.
const separator = "sep="

// blank reports whether a row is empty or is the line with separator.
func blank(fields []string) bool {
	if strings.EqualFold(fields[0], separator) {
		fields = fields[1:]
	}
	for _, field := range fields {
		if strings.TrimSpace(field) != "" {
			return false
		}
	}
	return true
}

// records makes the records of a row.
func (t *table) records(h *header, row row, yield func(Record)) {
	wrong := row.wrong
	switch {
	case wrong != "":
	case len(row.fields) != len(h.fields): // also if the extra ones are empty: a title may be cut
		wrong = uneven(row, len(h.fields))
	case slices.Equal(row.fields, h.fields): // the header again, in concatenated files
		return
	case slices.ContainsFunc(row.fields, notValid):
		wrong = notUTF8
	default:
		t.record(h, row.fields, yield)
		return
	}
	yield(Record{Err: RecordError(wrong)})
}

func notValid(text string) bool { return !utf8.ValidString(text) }

// uneven says what is wrong with a row that has the wrong number of fields.
func uneven(row row, should int) string {
	hint := "put text that has a separator in it into quotes"
	switch {
	case row.last > row.first:
		hint = fmt.Sprintf("check the quote that ends in line %d", row.last)
	case len(row.fields) < should:
		hint = "check whether the line was cut"
	}
	return fmt.Sprintf("There are %d columns instead of %d: %s.", len(row.fields), should, hint)
}

// record makes the records of a row that has all columns.
func (t *table) record(h *header, fields []string, yield func(Record)) {
	text := func(c column) string {
		if h.at[c] < 0 {
			return ""
		}
		s := strings.Clone(fields[h.at[c]]) // otherwise it would keep the row in memory
		switch {
		case c >= title && slices.Contains(t.null, s): // an alias may be spelled so
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
		if s = strings.TrimSpace(fields[h.at[c]]); slices.Contains(t.null, s) {
			s = ""
		}
		return h.name(c), s
	}
	b := builder{short: text(short), code: text(code), own: t.own}
	if !t.own {
		b.code = strings.Trim(b.code, "/")
		b.custom = strings.Fields(strings.ReplaceAll(text(custom), ",", " "))
	}
	if t.skip != "" && b.code == t.skip {
		return
	}
	b.Link.LongURL, b.Link.Title, b.Link.Owner = text(target), text(title), text(owner)
	b.Domain = strings.TrimSpace(text(domain))
	b.forward(strings.FieldsFunc(text(forward),
		func(r rune) bool { return r == ',' || r == ' ' }))
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
	name, s = value(disabled)
	b.bool(&b.Link.Disabled, name, s)
	name, s = value(locked)
	b.bool(&b.Link.Locked, name, s)
	if t.own {
		var ok bool
		if b.Link.Tags, ok = splitTags(text(tags)); !ok {
			b.fail(`The tags are not separated by commas, or a quote is missing: ` +
				`one with a comma in it is written as "a,b".`)
		}
	} else {
		b.Link.Tags = looseTags(text(tags))
	}
	b.yield(t.names[target][0], yield)
}

// looseTags splits the tags of other programs. They are a list in JSON, or separated by commas, or
// by bars if there are no commas.
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
