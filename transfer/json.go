package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tiney/clicks"
	"tiney/link"
)

// decoder decodes one JSON object, which may yield several records. It does not set their Line.
type decoder func(data []byte, yield func(Record))

// objectLines is a format with one JSON object per line.
type objectLines struct{ decode decoder }

var objects = map[Format]objectLines{
	NDJSON: {decodeRow},
	Golink: {decodeGolink},
}

// read reads the lines of a file. start is the start of the file.
func (o objectLines) read(in io.Reader, start []byte, f Format, yield func(Record) bool) error {
	if len(start) > 0 && start[0] != '{' {
		return fileErrorf("The format %s has one JSON object a line, "+
			`and the file does not begin with "{". Choose another format.`, f)
	}
	lines := newLineReader(in)
	for begin := true; ; {
		line, number, err := lines.next()
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case line == nil:
			if !yield(Record{Line: number, Err: RecordError(tooLong)}) {
				return nil
			}
			continue
		}
		if line = bytes.Trim(line, " \t"); len(line) == 0 {
			continue
		}
		if begin && string(line) == "{" {
			return fileErrorf("The format %s has one JSON object a line, "+
				"and the file has objects that go over several.", f)
		}
		begin = false
		more := true
		decodeObject(o.decode, line, func(rec Record) {
			rec.Line = number
			more = more && yield(rec)
		})
		if !more {
			return nil
		}
	}
}

func decodeObject(decode decoder, data []byte, yield func(Record)) {
	switch {
	case !utf8.Valid(data):
		yield(Record{Err: RecordError(notUTF8)})
	case jsontext.Value(data).Kind() != '{':
		yield(Record{Err: RecordError("This is no JSON object.")})
	default:
		decode(data, yield)
	}
}

const tooLong = "The line is longer than 1 MiB and was skipped: " +
	"check whether its end or a quote is missing."

const notUTF8 = "The text is not valid UTF-8. Save the file as UTF-8."

// linkJSON is a link in our own JSON, with the members of the API.
type linkJSON struct {
	Alias      link.Alias `json:"alias"`
	ShortURL   string     `json:"shortUrl"`
	LongURL    string     `json:"longUrl"`
	CreatedAt  nullable   `json:"createdAtUtc"`
	ExpiresAt  nullable   `json:"expiresAtUtc"`
	UpdatedAt  nullable   `json:"updatedAtUtc"`
	StatusCode int        `json:"statusCode"`
	Disabled   bool       `json:"disabled"`
	Shared     any        `json:"shared"`       // written only
	DeletedAt  any        `json:"deletedAtUtc"` // written only
	Title      nullable   `json:"title"`
	Tags       []string   `json:"tags"`
	Owner      nullable   `json:"owner"`
	Clicks     int64      `json:"clicks"`
	Bots       int64      `json:"bots"`
	LastAt     nullable   `json:"lastClickAtUtc"`
	Domain     nullable   `json:"domain"`
	Forward    []string   `json:"forward"`
	Locked     bool       `json:"locked"`
}

// nullable is a text that JSON has as null if it is empty.
type nullable string

// MarshalJSONTo encodes the text.
func (n nullable) MarshalJSONTo(out *jsontext.Encoder) error {
	if n == "" {
		return out.WriteToken(jsontext.Null)
	}
	return out.WriteToken(jsontext.String(string(n)))
}

func decodeRow(data []byte, yield func(Record)) {
	var v linkJSON
	if err := json.Unmarshal(data, &v, json.MatchCaseInsensitiveNames(true)); err != nil {
		yield(Record{Err: RecordError(jsonWrong(err))})
		return
	}
	b := builder{code: string(v.Alias), short: v.ShortURL, own: true, Record: Record{
		Link: link.Link{
			LongURL:    v.LongURL,
			StatusCode: v.StatusCode,
			Disabled:   v.Disabled,
			Locked:     v.Locked,
			Title:      string(v.Title),
			Tags:       v.Tags,
			Owner:      string(v.Owner),
		},
		Domain: string(v.Domain),
		Total:  clicks.Total{Clicks: v.Clicks, Bots: v.Bots},
	}}
	b.forward(v.Forward)
	b.time(&b.Link.CreatedAt, "createdAtUtc", string(v.CreatedAt))
	b.time(&b.Link.ExpiresAt, "expiresAtUtc", string(v.ExpiresAt))
	b.time(&b.Link.UpdatedAt, "updatedAtUtc", string(v.UpdatedAt))
	b.time(&b.Total.Last, "lastClickAtUtc", string(v.LastAt))
	b.yield("longUrl", yield)
}

// unmarshal decodes an object of another program. Names may be in any case, and may occur twice.
func unmarshal(data []byte, v any) error {
	return json.Unmarshal(data, v,
		json.MatchCaseInsensitiveNames(true), jsontext.AllowDuplicateNames(true))
}

func decodeGolink(data []byte, yield func(Record)) {
	var v struct {
		Short, Long, Created string
	}
	if err := unmarshal(data, &v); err != nil {
		yield(Record{Err: RecordError(jsonWrong(err))})
		return
	}
	b := builder{code: v.Short, Record: Record{Link: link.Link{LongURL: v.Long}}}
	// golink appends both to all targets. A target without a host cannot take them here.
	if b.Link.CanForward() {
		b.Link.Forward = link.ForwardQuery | link.ForwardPath
	}
	if strings.Contains(v.Long, "{{") {
		b.fail("The target is a template, which no link can be here. " +
			"Leave it out, or write the URL that it stands for.")
	}
	b.time(&b.Link.CreatedAt, "Created", v.Created)
	b.yield("Long", yield)
}

// jsonWrong says what is wrong with an object that cannot be decoded.
func jsonWrong(err error) string {
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.As(err, &semantic) && semantic.GoType != nil:
		name := member(semantic.JSONPointer)
		return fmt.Sprintf("The member %s must be %s.", name, kindOf(semantic.GoType))
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntactic):
		return fmt.Sprintf("The member %s is there twice.", member(syntactic.JSONPointer))
	case errors.As(err, &syntactic) && errors.Is(err, io.ErrUnexpectedEOF):
		return "The JSON ends before it is complete: " +
			"check whether the line was cut, or a quote is missing."
	case errors.As(err, &syntactic):
		return fmt.Sprintf("The JSON is damaged at byte %d.", syntactic.ByteOffset+1)
	}
	return "The JSON is damaged."
}

// member returns the quoted name of a member, such as "tags/0", for the text of an error.
func member(p jsontext.Pointer) string { return quoted(strings.TrimPrefix(string(p), "/")) }

func kindOf(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	}
	return "a list"
}
