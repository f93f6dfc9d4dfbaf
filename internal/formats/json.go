package formats

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/link"
)

// object is a JSON format: an object for each link. The objects are one a line, or in a list.
type object struct {
	own    bool   // the format is our own
	list   string // the member that has the list, if it does not stand alone; "": one object a line
	target string // the member with the target
	names  columnNames
	// also changes an entry that was read; nil: it does nothing.
	also func(*entry)
}

var objects = map[Format]object{
	NDJSON: {own: true, target: "longUrl", names: ownNames()},
	Golink: {target: "Long", names: columnNames{
		target: {"long"}, code: {"short"}, created: {"created"}, owner: {"owner"},
	}, also: fromGolink},
	Kutt: {list: "data", target: "target", names: columnNames{
		target: {"target"}, code: {"address"}, short: {"link"}, domain: {"domain"},
		title: {"description"}, created: {"createdat"}, expires: {"expirein"},
		visits: {"visitcount"}, disabled: {"banned"}, password: {"password"},
	}},
	Bitly: {list: "links", target: "long_url", names: columnNames{
		target: {"longurl"}, short: {"id", "link"}, custom: {"custombitlinks"},
		title: {"title"}, tags: {"tags"}, created: {"createdat"}, disabled: {"archived"},
	}},
	Dub: {list: "links", target: "url", names: columnNames{
		target: {"url"}, short: {"shortlink"}, domain: {"domain"}, title: {"title"}, tags: {"tags"},
		created: {"createdat"}, updated: {"updatedat"}, expires: {"expiresat"}, gone: {"expiredurl"},
		visits: {"clicks"}, last: {"lastclicked"}, disabled: {"archived", "disabledat"},
		password: {"password"}, ios: {"ios"}, android: {"android"}, countries: {"geo"},
		variants: {"testvariants"},
	}},
	Sink: {list: "links", target: "url", names: columnNames{
		target: {"url"}, code: {"slug"}, title: {"comment", "title"}, // title: of the preview
		tags: {"tags"}, created: {"createdat"}, updated: {"updatedat"}, expires: {"expiration"},
		password: {"password"}, query: {"redirectwithquery"}, ios: {"apple"}, android: {"google"},
		countries: {"geo"},
	}, also: fromSink},
}

// fromSink makes a link forward the query if Sink appends it.
func fromSink(e *entry) {
	if e.texts[query] != "" && (link.Link{LongURL: e.texts[target]}).CanForward() {
		e.forward = link.ForwardQuery.Names()
	}
}

// fromGolink makes a link forward what golink appends to all targets, and refuses targets that only
// golink understands.
func fromGolink(e *entry) {
	switch long := e.texts[target]; {
	case strings.Contains(long, "{{"):
		e.fail("The target is a template, which no link can be here. " +
			"Leave it out, or write the URL that it stands for.")
	case strings.HasPrefix(long, "/"):
		e.fail("The target %s is a path, which golink takes for another of its links. "+
			"Write the whole URL that it stands for.", quoted(long))
	}
	// A target without a host cannot take what is appended here.
	if (link.Link{LongURL: e.texts[target]}).CanForward() {
		e.forward = (link.ForwardQuery | link.ForwardPath).Names()
	}
}

// lines reads a file with one object a line. start is the start of the file.
func (o *object) lines(in io.Reader, start []byte, f Format) (nextRecords, error) {
	if len(start) > 0 && start[0] != '{' {
		return nil, fileErrorf("The format %s has one JSON object a line, "+
			`and the file does not begin with "{". Choose another format.`, f)
	}
	if string(bytes.TrimRight(firstLine(start), " \t")) == "{" {
		return nil, fileErrorf("The format %s has one JSON object a line, "+
			"and the file has objects that go over several.", f)
	}
	lines := newLineReader(in)
	return func() ([]Record, error) {
		for {
			line, number, err := lines.next()
			switch at := (Record{Line: number}); {
			case err != nil:
				return nil, err
			case line == nil:
				at.Err = RecordError(tooLong)
				return []Record{at}, nil
			default:
				if line = bytes.Trim(line, " \t"); len(line) > 0 {
					return o.records(at, line), nil
				}
			}
		}
	}, nil
}

// records returns the records of an object, which is at the Line and Entry of at.
func (o *object) records(at Record, data []byte) []Record {
	wrong := ""
	in := objectReader{object: o, entry: entry{Record: at, own: o.own}}
	switch {
	case !utf8.Valid(data):
		wrong = notUTF8
	case jsontext.Value(data).Kind() != '{':
		wrong = "This is no JSON object."
	default:
		// The decoder would keep all names to find those that are there twice, and an object may
		// have thousands of members that are not read.
		err := json.Unmarshal(data, &in, jsontext.AllowDuplicateNames(true))
		if err == nil {
			if o.also != nil {
				o.also(&in.entry)
			}
			return in.entry.records(o.target)
		}
		wrong = jsonWrong(err)
	}
	at.Err = RecordError(wrong)
	return []Record{at}
}

const tooLong = "The line is longer than 1 MiB and was skipped: " +
	"check whether its end or a quote is missing."

const notUTF8 = "The text is not UTF-8. Save the file as UTF-8, in Excel as \"CSV UTF-8\", " +
	"and import it again."

// objectReader reads the members of an object into an entry.
type objectReader struct {
	*object
	entry entry
	ranks [columns]int // of the names in the entry, as find returns them
}

// find returns the column of a member, and the place of the name among the names of that column.
// Names may be in any case. It returns columns for other members.
func (o *object) find(name string) (column, int) {
	name = normal(name)
	for c, names := range o.names {
		if rank := slices.Index(names, name); rank >= 0 {
			return column(c), rank
		}
	}
	return columns, 0
}

// UnmarshalJSONFrom decodes an object.
func (r *objectReader) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if _, err := in.ReadToken(); err != nil {
		return err
	}
	for in.PeekKind() == '"' {
		token, err := in.ReadToken()
		if err != nil {
			return err
		}
		name := token.String()
		c, rank := r.find(name)
		if c == columns {
			if err := in.SkipValue(); err != nil {
				return err
			}
			continue
		}
		e := &r.entry
		if r.own && e.names[c] != "" {
			return RecordError(fmt.Sprintf("The member %s is there twice.", quoted(name)))
		}
		var text string
		switch c {
		case tags:
			err = r.readTags(in)
		case custom:
			err = DecodeFirst(in, &e.custom, maxFew)
		case forward:
			err = DecodeFirst(in, &e.forward, maxFew)
		case countries:
			err = e.readCountries(in)
		case target, code, short, title, owner, gone, domain, hash, ios, android:
			err = json.UnmarshalDecode(in, &text)
		case disabled, locked, query:
			text, err = r.flag(in)
		case password: // a text is one whatever it says, such as 0
			if in.PeekKind() != '"' {
				text, err = r.flag(in)
			} else if err = json.UnmarshalDecode(in, &text); text != "" {
				text = "true"
			}
		case rules, variants:
			var value jsontext.Value
			value, err = in.ReadValue()
			text = string(value)
		default:
			text, err = scalar(in)
		}
		if err != nil {
			return err
		}
		if e.texts[c] == "" || text != "" && rank <= r.ranks[c] {
			e.names[c], e.texts[c], r.ranks[c] = name, text, rank
		}
	}
	_, err := in.ReadToken()
	return err
}

// readTags decodes the tags. Those of another program may be objects with a name.
func (r *objectReader) readTags(in *jsontext.Decoder) error {
	if r.own {
		return DecodeFirst(in, &r.entry.tags, maxFew)
	}
	var all []tagName
	err := DecodeFirst(in, &all, maxFew)
	r.entry.tags = r.entry.tags[:0]
	for _, tag := range all {
		r.entry.tags = append(r.entry.tags, string(tag))
	}
	return err
}

// tagName is the name of a tag.
type tagName string

// UnmarshalJSONFrom decodes the name, or an object that has it.
func (t *tagName) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	if in.PeekKind() != '{' {
		return json.UnmarshalDecode(in, (*string)(t))
	}
	var tag struct {
		Name string `json:"name"`
	}
	err := json.UnmarshalDecode(in, &tag)
	*t = tagName(tag.Name)
	return err
}

// flag decodes a boolean. The database of another program may have no booleans. So of its values,
// those that stand for no value and those that parseBool takes for false are false, and any other
// is true.
func (r *objectReader) flag(in *jsontext.Decoder) (string, error) {
	if r.own {
		var is bool
		err := json.UnmarshalDecode(in, &is)
		return strconv.FormatBool(is), err
	}
	text, err := scalar(in)
	is, ok := parseBool(text)
	if ok && !is || nothing(text) {
		return "", err
	}
	return "true", err
}

// scalar decodes a string, a number or a boolean as its text, and null as "". A list or an object
// is "[" or "{", which nothing can be read from.
func scalar(in *jsontext.Decoder) (string, error) {
	switch kind := in.PeekKind(); kind {
	case '[', '{':
		return kind.String(), in.SkipValue()
	case 'n':
		return "", in.SkipValue()
	}
	token, err := in.ReadToken()
	return token.String(), err
}

// DecodeFirst decodes the first elements of a list, up to most, or null. It skips the others: a
// list of megabytes may have hundreds of thousands.
func DecodeFirst[T any](in *jsontext.Decoder, list *[]T, most int) error {
	if in.PeekKind() != '[' {
		return json.UnmarshalDecode(in, list)
	}
	_, err := in.ReadToken()
	for *list = (*list)[:0]; err == nil && in.PeekKind() != ']'; {
		if len(*list) == most {
			err = in.SkipValue()
			continue
		}
		var element T
		err = json.UnmarshalDecode(in, &element)
		*list = append(*list, element)
	}
	if err == nil {
		_, err = in.ReadToken()
	}
	return err
}

// jsonWrong says what is wrong with an object that cannot be decoded.
func jsonWrong(err error) string {
	var wrong RecordError
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &wrong):
		return string(wrong)
	case errors.As(err, &syntactic) && errors.Is(err, io.ErrUnexpectedEOF):
		return "The JSON ends before it is complete: " +
			"check whether the line was cut, or a quote is missing."
	case errors.As(err, &syntactic):
		return fmt.Sprintf("The JSON is damaged at byte %d.", syntactic.ByteOffset+1)
	case errors.As(err, &semantic) && semantic.GoType != nil:
		kind := "a list"
		switch semantic.GoType.Kind() {
		case reflect.String:
			kind = "a string"
		case reflect.Bool:
			kind = "true or false"
		}
		name := strings.TrimPrefix(string(semantic.JSONPointer), "/") // such as "tags/0"
		return fmt.Sprintf("The member %s must be %s.", quoted(name), kind)
	}
	return "The JSON is damaged."
}
