package formats

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
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
	forward  // names, separated by commas
	password // what the link asks for

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
	// null lists the texts that stand for no title and no tags.
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
		null: []string{"NULL", `\N`}, // phpMyAdmin's, MySQL's
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
	Polr: {names: [columns][]string{
		target: {"longurl"}, short: {"shorturl"}, created: {"createdat"},
		disabled: {"isdisabled"}, visits: {"clicks"}, password: {"secretkey"},
	}},
}

// header is the row of column names of a file.
type header struct {
	fields []string     // as they are in the file
	at     [columns]int // the index of each column's field; -1: none
}

// name returns the name of a column in the file.
func (h *header) name(c column) string { return h.fields[h.at[c]] }

// normal returns column names in lower case, without spaces, hyphens and underscores.
func normal(fields []string) []string {
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = strings.Map(func(r rune) rune {
			if strings.ContainsRune(" \u00a0_-", r) {
				return -1
			}
			return r
		}, strings.ToLower(field))
	}
	return names
}

// header parses a row as the header. It keeps fields, and needs their normal names. Error: a
// FileError.
func (t *table) header(fields, names []string, f Format) (*header, error) {
	h := &header{fields: fields}
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
	seen := false // a row besides the column names
	for {
		row, err := rows.next()
		switch {
		case err == io.EOF && h == nil:
			return FileError("The file is empty. The first line must name the columns.")
		case err == io.EOF && !seen:
			return errNoLinks
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case row.wrong == "" && blank(row.fields):
			continue
		case h == nil && row.wrong != "":
			return fileErrorf("Line %d must name the columns. %s", row.first, row.wrong)
		case h == nil:
			if h, seen = t.bareHeader(row.fields); !seen {
				names := normal(row.fields)
				if h, err = t.header(slices.Clone(row.fields), names, f); err != nil {
					return err
				}
			}
		default:
			seen = true
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
	switch missing := len(h.fields) - len(row.fields); {
	case wrong != "":
	case missing < 0, // also if what is too much is empty: a title may be cut
		missing > 0 && (row.atEnd || row.last > row.first): // other rows may lack empty fields
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
		hint = "check whether the file was cut, or end it with a line break"
	}
	return fmt.Sprintf("There are %d columns instead of %d: %s.", len(row.fields), should, hint)
}

// record makes the records of a row.
func (t *table) record(h *header, fields []string, yield func(Record)) {
	raw := func(c column) string {
		if at := h.at[c]; 0 <= at && at < len(fields) {
			return fields[at]
		}
		return ""
	}
	text := func(c column) string {
		s := strings.Clone(raw(c)) // otherwise it would keep the row in memory
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
		return h.name(c), strings.TrimSpace(raw(c))
	}
	b := builder{short: text(short), code: text(code), own: t.own}
	if !t.own {
		b.code = strings.Trim(b.code, "/")
		b.custom = split(text(custom))
	}
	if t.skip != "" && b.code == t.skip {
		return
	}
	b.Link.LongURL, b.Link.Title, b.Link.Owner = text(target), text(title), text(owner)
	b.Domain = strings.TrimSpace(text(domain))
	b.protected(!nothing(text(password)))
	b.forward(split(text(forward)))
	b.date(&b.Link.CreatedAt, raw(created))
	b.end(value(expires))
	b.date(&b.Link.UpdatedAt, raw(updated))
	b.date(&b.Total.Last, raw(last))
	b.Total.Clicks, _ = parseWhole(raw(visits))
	b.Total.Bots, _ = parseWhole(raw(bots))
	if name, s := value(status); !nothing(s) {
		n, ok := parseWhole(s)
		if b.Link.StatusCode = int(n); !ok {
			b.fail("%s is %s; it must be 301, 302, 307 or 308.", quoted(name), quoted(s))
		}
	}
	name, s := value(disabled)
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

// split returns the first maxFew texts of a list that is separated by commas or spaces.
func split(s string) (all []string) {
	for text := range strings.FieldsFuncSeq(s, func(r rune) bool {
		return r == ',' || unicode.IsSpace(r)
	}) {
		if all = append(all, text); len(all) == maxFew {
			break
		}
	}
	return all
}

// looseTags splits the tags of other programs. They are a list in JSON, or separated by commas, or
// by bars if there are no commas. It returns the first maxFew.
func looseTags(s string) (all []string) {
	var list few
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
		if len(all) == maxFew {
			break
		}
	}
	return all
}
