package formats

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// table is a CSV format: a row of column names, then one record a row.
type table struct {
	names columnNames
	// own: the format is our own. Texts are kept as they are, and tags are from joinTags.
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
	CSV: {own: true, names: ownNames()},
	Shlink: {names: columnNames{
		target: {"longurl"}, code: {"shortcode"}, short: {"shorturl"},
		title: {"title"}, tags: {"tags"}, created: {"createdat"}, visits: {"visits", "visitscount"},
		domain: {"domain"}, limit: {"maxvisits"},
	}},
	YOURLS: {
		null: []string{"NULL", `\N`}, // phpMyAdmin's, MySQL's
		bare: []column{code, target, title, created, columns, visits},
		names: columnNames{
			target: {"url", "target"}, code: {"keyword", "source"},
			title: {"title"}, created: {"timestamp"}, visits: {"clicks", "hits"},
		},
	},
	Bitly: {names: columnNames{
		target: {"destinationurl", "longurl"},
		short:  {"link", "bitlink", "shortlink"}, custom: {"customlink", "customlinks"},
		title: {"title"}, tags: {"tags"},
		created: {"created", "createdat", "datecreated", "createddate"},
		visits:  {"clicks", "totalclicks", "engagements", "totalengagements"},
	}},
	Dub: {
		null: []string{"null", "undefined"}, // JavaScript's
		names: columnNames{
			target: {"destinationurl", "url"}, short: {"shortlink", "link"},
			title: {"title"}, tags: {"tags"}, created: {"createdat"}, updated: {"updatedat"},
			expires: {"expiresat"}, disabled: {"archived"}, visits: {"clicks"},
		},
	},
	AzURLShortener: {skip: "KEY", names: columnNames{
		target: {"url"}, code: {"rowkey"}, title: {"title"}, created: {"createddate"},
		disabled: {"isarchived"}, visits: {"clicks"}, schedules: {"schedulespropertyraw"},
	}},
	Polr: {names: columnNames{
		target: {"longurl"}, short: {"shorturl"}, created: {"createdat"},
		disabled: {"isdisabled"}, visits: {"clicks"}, password: {"secretkey"}, owner: {"creator"},
	}},
}

// header is the row of column names of a file.
type header struct {
	fields []string     // as they are in the file
	at     [columns]int // the index of each column's field; -1: none
}

// header parses a row as the header. It keeps fields. Error: a FileError.
func (t *table) header(fields []string, f Format) (*header, error) {
	h := &header{fields: fields}
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = normal(field)
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

// rows reads the rows of a file. start is the start of the file.
func (t *table) rows(in io.Reader, start []byte, f Format) nextRecords {
	rows := newRowReader(in, start)
	var h *header
	return func() ([]Record, error) {
		for {
			row, err := rows.next()
			switch {
			case err == io.EOF && h == nil:
				return nil, FileError("The file is empty. The first line must name the columns.")
			case err != nil:
				return nil, err
			case row.wrong == "" && blank(row.fields):
				continue
			case h != nil:
				return t.records(h, row), nil
			case row.wrong != "":
				return nil, fileErrorf("Line %d must name the columns. %s", row.first, row.wrong)
			}
			bare := false
			if h, bare = t.bareHeader(row.fields); bare {
				return t.records(h, row), nil
			}
			if h, err = t.header(slices.Clone(row.fields), f); err != nil {
				return nil, err
			}
		}
	}
}

// separator begins the line that names the separator of the file to spreadsheets. That line is not
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

// records returns the records of a row.
func (t *table) records(h *header, row row) []Record {
	at, wrong := Record{Line: row.first}, row.wrong
	switch missing := len(h.fields) - len(row.fields); {
	case wrong != "":
	case missing < 0, // also if what is too much is empty: a title may be cut
		missing > 0 && (row.atEnd || row.last > row.first): // other rows may lack empty fields
		wrong = uneven(row, len(h.fields))
	case slices.Equal(row.fields, h.fields): // the header again, in concatenated files
		return nil
	case slices.ContainsFunc(row.fields, func(s string) bool { return !utf8.ValidString(s) }):
		wrong = notUTF8
	default:
		return t.undamaged(h, at, row.fields)
	}
	at.Err = RecordError(wrong)
	return []Record{at}
}

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

// undamaged returns the records of a row that has no damage, at the Line of at.
func (t *table) undamaged(h *header, at Record, fields []string) []Record {
	e := entry{Record: at, own: t.own}
	for c, at := range h.at {
		if at < 0 {
			continue
		}
		e.names[c] = h.fields[at]
		if at < len(fields) {
			e.texts[c] = t.text(column(c), fields[at])
		}
	}
	if t.skip != "" && e.texts[code] == t.skip {
		return nil
	}
	e.custom, e.forward = split(e.texts[custom]), split(e.texts[forward])
	if !t.own {
		e.tags = looseTags(e.texts[tags])
	} else if all, ok := splitTags(e.texts[tags]); ok {
		e.tags = all
	} else {
		e.fail(`The tags are not separated by commas, or a quote is missing: ` +
			`one with a comma in it is written as "a,b".`)
	}
	return e.records(t.names[target][0])
}

// text returns the text of a field.
func (t *table) text(c column, field string) string {
	s := strings.Clone(field) // otherwise it would keep the row in memory
	switch {
	case t.own:
		if s = unguarded(s); c < created {
			return s
		}
	case c >= title && slices.Contains(t.null, s): // an alias may be spelled so
		return ""
	case c == code:
		return strings.Trim(strings.TrimSpace(s), "/")
	}
	return strings.TrimSpace(s)
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

// few are the first maxFew texts of a list in JSON.
type few []string

// UnmarshalJSONFrom decodes the list.
func (f *few) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	return DecodeFirst(in, (*[]string)(f), maxFew)
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
