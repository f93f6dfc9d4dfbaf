package formats

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

	"tiney/internal/clicks"
	"tiney/internal/link"
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
		case err == io.EOF && begin:
			return errNoLinks
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		case line == nil:
			begin = false
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

const notUTF8 = "The text is not UTF-8. Save the file as UTF-8, in Excel as \"CSV UTF-8\", " +
	"and import it again."

// linkJSON is a link in our own JSON, with the members of the API.
type linkJSON struct {
	Alias      link.Alias `json:"alias"`
	ShortURL   string     `json:"shortUrl"`
	LongURL    string     `json:"longUrl"`
	CreatedAt  scalar     `json:"createdAtUtc"`
	ExpiresAt  scalar     `json:"expiresAtUtc"`
	UpdatedAt  scalar     `json:"updatedAtUtc"`
	StatusCode statusCode `json:"statusCode"`
	Disabled   bool       `json:"disabled"`
	Shared     unread     `json:"shared"`
	DeletedAt  unread     `json:"deletedAtUtc"`
	Title      nullable   `json:"title"`
	Tags       few        `json:"tags"`
	Owner      nullable   `json:"owner"`
	Clicks     tally      `json:"clicks"`
	Bots       tally      `json:"bots"`
	LastAt     scalar     `json:"lastClickAtUtc"`
	Domain     nullable   `json:"domain"`
	Forward    few        `json:"forward"`
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

// scalar is a text that JSON has as null if it is empty, and that other programs may write as a
// number or a boolean. A list or an object is "[" or "{", which nothing can be read from.
type scalar string

// MarshalJSONTo encodes the text.
func (s scalar) MarshalJSONTo(out *jsontext.Encoder) error {
	return nullable(s).MarshalJSONTo(out)
}

// UnmarshalJSONFrom decodes the value.
func (s *scalar) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	switch kind := in.PeekKind(); kind {
	case '[', '{':
		*s = scalar(kind.String())
		return in.SkipValue()
	case 'n':
		*s = ""
		return in.SkipValue()
	}
	token, err := in.ReadToken()
	*s = scalar(token.String())
	return err
}

// tally is a number of clicks. What cannot be read is zero.
type tally int64

// UnmarshalJSONFrom decodes the number.
func (n *tally) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	var text scalar
	err := text.UnmarshalJSONFrom(in)
	whole, _ := parseWhole(string(text))
	*n = tally(whole)
	return err
}

// statusCode is a status code, or zero for none.
type statusCode int

// UnmarshalJSONFrom decodes the number.
func (c *statusCode) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	var text scalar
	if err := text.UnmarshalJSONFrom(in); err != nil {
		return err
	}
	n, ok := parseWhole(string(text))
	if *c = statusCode(n); !ok && !nothing(string(text)) {
		return errKind
	}
	return nil
}

// errKind: the value is not of the kind that the member has.
var errKind = errors.New("a value of another kind")

// maxFew is how many texts of a list are kept: one more than any list may have.
const maxFew = maxCustom + 1

// few are the first maxFew texts of a list.
type few []string

// UnmarshalJSONFrom decodes the list.
func (f *few) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	return DecodeFirst(in, (*[]string)(f), maxFew)
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

// unread is the value of a member that is written, and never read.
type unread struct{ value any }

// MarshalJSONTo encodes the value.
func (u unread) MarshalJSONTo(out *jsontext.Encoder) error {
	return json.MarshalEncode(out, u.value)
}

// UnmarshalJSONFrom skips the value.
func (unread) UnmarshalJSONFrom(in *jsontext.Decoder) error { return in.SkipValue() }

func decodeRow(data []byte, yield func(Record)) {
	var v linkJSON
	// To find names that are there twice, a decoder keeps all. Long lines, which have thousands of
	// members of others, may have them twice.
	if err := json.Unmarshal(data, &v, json.MatchCaseInsensitiveNames(true),
		jsontext.AllowDuplicateNames(len(data) > startSize)); err != nil {
		yield(Record{Err: RecordError(jsonWrong(err))})
		return
	}
	b := builder{code: string(v.Alias), short: v.ShortURL, own: true, Record: Record{
		Link: link.Link{
			LongURL:    v.LongURL,
			StatusCode: int(v.StatusCode),
			Disabled:   v.Disabled,
			Locked:     v.Locked,
			Title:      string(v.Title),
			Tags:       v.Tags,
			Owner:      string(v.Owner),
		},
		Domain: string(v.Domain),
		Total:  clicks.Total{Clicks: int64(v.Clicks), Bots: int64(v.Bots)},
	}}
	b.forward(v.Forward)
	b.date(&b.Link.CreatedAt, string(v.CreatedAt))
	b.end("expiresAtUtc", string(v.ExpiresAt))
	b.date(&b.Link.UpdatedAt, string(v.UpdatedAt))
	b.date(&b.Total.Last, string(v.LastAt))
	b.yield("longUrl", yield)
}

// unmarshal decodes an object of another program. Names may be in any case, and may occur twice.
func unmarshal(data []byte, v any) error {
	return json.Unmarshal(data, v,
		json.MatchCaseInsensitiveNames(true), jsontext.AllowDuplicateNames(true))
}

func decodeGolink(data []byte, yield func(Record)) {
	var v struct {
		Short, Long string
		Created     scalar
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
	switch {
	case strings.Contains(v.Long, "{{"):
		b.fail("The target is a template, which no link can be here. " +
			"Leave it out, or write the URL that it stands for.")
	case strings.HasPrefix(v.Long, "/"):
		b.fail("The target %s is a path, which golink takes for another of its links. "+
			"Write the whole URL that it stands for.", quoted(v.Long))
	}
	b.date(&b.Link.CreatedAt, string(v.Created))
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
