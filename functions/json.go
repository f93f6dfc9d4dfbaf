package functions

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/formats"
	"tiney/internal/link"
)

// maxBody is the longest body that is read, in bytes: the longest URL with most of its characters
// escaped, the longest rules, and a little more.
const maxBody = 32 << 10

// BodyTime is how long a client may take to send a request's body.
const BodyTime = 15 * time.Second

// readBody reads a request's body, up to most bytes, without a byte order mark. The error is a
// problem.
func readBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	var body bytes.Buffer // grows by what arrives: clients may announce a body that never comes
	err := receive(w, r, most, func(in io.Reader) error {
		_, err := body.ReadFrom(in)
		return err
	})
	return bytes.TrimPrefix(body.Bytes(), byteOrderMark), err
}

var byteOrderMark = []byte("\ufeff")

// receive calls read with a request's body, up to most bytes. The error is a problem.
func receive(
	w http.ResponseWriter, r *http.Request, most int64, read func(io.Reader) error,
) error {
	codings := strings.Join(r.Header.Values("Content-Encoding"), ",")
	for coding := range strings.SplitSeq(codings, ",") {
		if coding = strings.TrimSpace(coding); coding != "" &&
			!strings.EqualFold(coding, "identity") {
			return codingProblem
		}
	}
	err := read(http.MaxBytesReader(w, r.Body, most))
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil, err == io.EOF:
		return nil
	case err == error(busyProblem):
		return err
	case errors.As(err, &tooLarge):
		return tooLargeProblem(most)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return timeoutProblem
	}
	return badRequest("body", "The body is not complete",
		"The body ended before it was complete. Send the request again.", "")
}

func tooLargeProblem(most int64) *problem {
	return newProblem(http.StatusRequestEntityTooLarge, "body-too-large",
		"The body is too large", fmt.Sprintf("The body may have at most %d bytes.", most))
}

// wantJSON returns a problem unless the Content-Type of a body is JSON.
func wantJSON(r *http.Request) error {
	// A host that forwards drops the Content-Type of an empty body. Then the problem is the body.
	if r.ContentLength != 0 && !isJSON(r.Header.Get("Content-Type"), "application/json") {
		return mediaTypeProblem
	}
	return nil
}

// decode decodes one JSON object. It refuses invalid UTF-8, and names that are unknown, repeated or
// in another case. The error is a problem.
func decode[T any](body []byte) (v T, err error) {
	if jsontext.Value(body).Kind() != '{' {
		return v, notObjectProblem
	}
	if tooDeep(body) {
		return v, tooDeepProblem
	}
	if err := json.Unmarshal(body, &v, json.RejectUnknownMembers(true)); err != nil {
		return v, jsonProblem(err)
	}
	return v, nil
}

// maxDepth is how deep objects and lists may be nested. The decoder takes some hundred bytes for
// each level.
const maxDepth = 32

// tooDeep reports whether JSON is nested deeper than maxDepth.
func tooDeep(text []byte) bool {
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			inString = !inString
		case inString && c == '\\':
			i++
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > maxDepth {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}

var tooDeepProblem = badRequest("body", "Invalid JSON",
	fmt.Sprintf("Objects and lists are nested in more than %d levels.", maxDepth), "")

// jsonProblem returns the problem of a body that cannot be decoded. It names the wrong field, if a
// single field is wrong.
func jsonProblem(err error) *problem {
	var semantic *json.SemanticError
	var syntactic *jsontext.SyntacticError
	switch {
	case errors.Is(err, json.ErrUnknownName) && errors.As(err, &semantic):
		return badRequest("body", "Unknown field",
			"This field is not known; names are case-sensitive.", fieldName(semantic.JSONPointer))
	case errors.As(err, &semantic):
		return fieldProblem(fieldName(semantic.JSONPointer),
			"This field must be "+kindName(semantic.GoType)+".")
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntactic):
		return badRequest("body", "Duplicate field",
			"This field is there twice; send it once.", fieldName(syntactic.JSONPointer))
	case errors.Is(err, io.ErrUnexpectedEOF): // the whole body is incomplete
	case errors.As(err, &syntactic) && syntactic.JSONPointer != "":
		return badRequest("body", "Invalid JSON",
			"The value of this field is not valid JSON. Check quotes, escapes and line breaks; "+
				`text must be UTF-8, and a \ud800 to \udfff escape needs its other half.`,
			fieldName(syntactic.JSONPointer))
	}
	return notObjectProblem
}

// fieldName returns the name of a field for people: "a.0.b" for "/a/0/b", and "rules[0].b" for
// "/rules/0/b". It keeps three levels, counted from rules if they are there, and maxFieldName
// bytes, which suffice for every valid request, and cuts off what a hostile body adds.
func fieldName(p jsontext.Pointer) string {
	var tokens []string
	most := 3
	for token := range p.Tokens() {
		if token == string(link.FieldRules) && len(tokens) == 2 {
			most = 5 // in a call for many links
		}
		if tokens = append(tokens, token); len(tokens) == most {
			break
		}
	}
	if i := slices.Index(tokens, string(link.FieldRules)); i >= 0 && i+1 < len(tokens) {
		tokens = slices.Replace(tokens, i, i+2, fmt.Sprintf("%s[%s]", tokens[i], tokens[i+1]))
	}
	name := strings.Join(tokens, ".")
	return strings.ToValidUTF8(name[:min(len(name), maxFieldName)], "")
}

const maxFieldName = 100

// kindName returns which JSON value a Go type is decoded from.
func kindName(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[time.Time]():
		return "a time such as 2030-01-31T12:00:00Z"
	case reflect.TypeFor[link.Percent]():
		return "a whole number from 1 to 99"
	case reflect.TypeFor[forwarded]():
		return `a list with "query", "path" or both`
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Int64:
		return "a whole number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// integer is a whole number in any notation, such as 60.0 and 6e1. It is clamped to ±2⁵³, far
// beyond any limit here.
type integer int64

// UnmarshalJSON decodes a number.
func (i *integer) UnmarshalJSON(data []byte) error {
	f, err := strconv.ParseFloat(string(data), 64) // refuses strings, null and so on
	if f != math.Trunc(f) || err != nil && !errors.Is(err, strconv.ErrRange) {
		return errors.New("not a whole number")
	}
	*i = integer(max(-1<<53, min(f, 1<<53)))
	return nil
}

// forwarded has the names of what a link forwards. If one of them is not a text, the whole list is
// wrong.
type forwarded []string

// UnmarshalJSON decodes a list, or null.
func (f *forwarded) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, (*[]string)(f)) != nil {
		return errors.New("not a list of texts")
	}
	return nil
}

// isJSON reports whether a Content-Type is one of kinds, in UTF-8.
func isJSON(contentType string, kinds ...string) bool {
	kind, params, err := mime.ParseMediaType(contentType)
	charset, given := params["charset"]
	return err == nil && slices.Contains(kinds, kind) &&
		(!given || slices.Contains([]string{"utf-8", "utf8"}, strings.ToLower(charset)))
}

// tags are the tags of a link. It decodes up to the first that is too many.
type tags []string

// UnmarshalJSONFrom decodes a list, or null.
func (t *tags) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return formats.DecodeFirst(d, (*[]string)(t), link.MaxTags+1)
}

// optional is a member of a JSON merge patch (RFC 7396), in which null differs from a missing
// member.
type optional[T any] struct {
	given bool
	value *T // nil for null
}

// UnmarshalJSONFrom decodes the value.
func (o *optional[T]) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	o.given = true
	return json.UnmarshalDecode(d, &o.value)
}

// or returns the value, byDefault for null, and nil for a missing member.
func (o optional[T]) or(byDefault T) *T {
	if o.given && o.value == nil {
		return &byDefault
	}
	return o.value
}

// jsonOptions are the options for responses.
var jsonOptions = json.JoinOptions(jsontext.AllowInvalidUTF8(true), json.Deterministic(true))

// writeJSON responds with v as one line of JSON. JSON must be able to represent v. It ignores
// errors: they mean that the client has disconnected.
func writeJSON(w http.ResponseWriter, status int, v any) {
	setHeaders(w, "application/json")
	w.WriteHeader(status)
	if json.MarshalWrite(w, v, jsonOptions) == nil {
		_, _ = io.WriteString(w, "\n")
	}
}

// orNull returns a text or a number for a response: nil, which becomes null, if it is zero.
func orNull[T comparable](v T) *T {
	if v == *new(T) {
		return nil
	}
	return &v
}

// formatTime returns a time for a response: nil, which becomes null, if it is zero.
func formatTime(t time.Time) *string {
	if t.IsZero() {
		return nil
	}
	s := t.UTC().Format(time.RFC3339)
	return &s
}
