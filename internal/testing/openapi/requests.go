package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
)

// Choices are the choices that a test leaves to chance or to a fuzzer. They end with zeros, which
// stand for the usual choice.
type Choices []byte

// below chooses a number from 0 to n-1.
func (c *Choices) below(n int) int {
	if len(*c) == 0 {
		return 0
	}
	first := int((*c)[0])
	*c = (*c)[1:]
	return first % n
}

// rarely returns true about once in 24 times.
func (c *Choices) rarely() bool { return c.below(24) == 23 }

func choose[T any](c *Choices, from []T) T { return from[c.below(len(from))] }

// Request is a request that a document describes, or that is close to one.
type Request struct {
	Method, Target string
	Header         http.Header
	Body           string
}

type described struct {
	path
	method string
	*openapi3.Operation
}

// Request makes a request from the document. Most are valid, many are wrong in one place, and some
// are hostile. known has values for parameters, headers and members of bodies, by name. Times are
// around now.
func (d *Document) Request(c *Choices, known map[string][]string, now time.Time) Request {
	var of []described // an operation with more choices is in it more often
	for _, p := range d.paths {
		for _, method := range slices.Sorted(maps.Keys(p.item.Operations())) {
			o := p.item.GetOperation(method)
			weight := 1 + len(o.Parameters)
			if o.RequestBody != nil {
				weight += 6
			}
			of = append(of, slices.Repeat([]described{{p, method, o}}, weight)...)
		}
	}
	what := choose(c, of)
	p, o := what.path, what.Operation
	r := Request{Method: what.method, Header: http.Header{}}
	m := maker{c, known, now}
	target, query := p.name, url.Values{}
	for _, parameter := range slices.Concat(p.item.Parameters, o.Parameters) {
		is := parameter.Value
		switch text := m.text(is.Name, is.Schema.Value); {
		case is.In == openapi3.ParameterInPath:
			target = strings.ReplaceAll(target, "{"+is.Name+"}", url.PathEscape(text))
		case c.below(3) == 0 && !is.Required || c.rarely():
		case is.In == openapi3.ParameterInQuery:
			query.Add(is.Name, text)
			if c.rarely() {
				query.Add(is.Name, text)
			}
		default:
			r.Header.Add(is.Name, strings.Map(printable, text))
		}
	}
	r.Target = target
	if len(query) > 0 {
		r.Target += "?" + query.Encode()
	}
	if c.rarely() {
		r.Target = strings.SplitN(r.Target, "?", 2)[0] + "?" +
			choose(c, []string{"%zz", "limit=", "a;b", "=&=", "cursor=%00",
				"state=live&state=live"})
	}
	r.Header.Set("Accept", choose(c, []string{"*/*", "text/html", "application/json", "text/csv",
		"text/html;q=x, */*;q=0.1", ", ,"}))
	if o.RequestBody != nil {
		types := slices.Sorted(maps.Keys(o.RequestBody.Value.Content))
		is := choose(c, types)
		media := o.RequestBody.Value.Content[is]
		r.Body = m.body(is, media)
		r.Header.Set("Content-Type", strings.ReplaceAll(is, "*/*", "application/octet-stream"))
		if c.rarely() {
			r.Header.Set("Content-Type", choose(c,
				[]string{"", "text/plain", "application/json; charset=latin1", "application/json;;",
					"application/json; charset=UTF-8"}))
		}
	}
	return r
}

// printable removes characters that no header value may have: such a value is refused before it
// reaches a handler.
func printable(r rune) rune {
	if r < ' ' || r > '~' {
		return -1
	}
	return r
}

// maker makes values from schemas.
type maker struct {
	*Choices
	known map[string][]string
	now   time.Time
}

func (m maker) body(mediaType string, is *openapi3.MediaType) string {
	if mediaType == "application/x-www-form-urlencoded" {
		form := url.Values{}
		for _, name := range slices.Sorted(maps.Keys(is.Schema.Value.Properties)) {
			form.Set(name, m.text(name, is.Schema.Value.Properties[name].Value))
		}
		return form.Encode()
	}
	if is.Schema == nil { // anything
		return m.text("body", openapi3.NewStringSchema())
	}
	text, _ := json.Marshal(m.value("", is.Schema.Value)) // it has only types that JSON has
	body := string(text)
	if m.rarely() {
		body = choose(m.Choices, []string{body + "{}", body + " x", "", "\xef\xbb\xbf" + body,
			body[:len(body)/2], "[" + body + "]", strings.Replace(body, "{", `{"":0,`, 1),
			strings.Replace(body, `"`, "\"\xff", 1), strings.Repeat(`{"a":`, 5000),
			strings.Replace(body, ":", `:"\ud800",`, 1),
			strings.Replace(body, "{", `{"longUrl":"","longUrl":"",`, 1)})
	}
	return body
}

// text returns a value for a parameter.
func (m maker) text(name string, is *openapi3.Schema) string {
	return fmt.Sprint(m.value(name, is))
}

// hostile are values that no program expects.
var hostile = []any{nil, "", "\x00", strings.Repeat("ä", 5000), -1, 0, 1e300, 1.5, true, []any{},
	map[string]any{}, []any{[]any{[]any{nil}}}, map[string]any{"a": "b"},
	"../../../etc/passwd", "'; DROP TABLE ShortUrls; --", "javascript:alert(1)", "%2e%2e%2f",
	"\u202e\U0001f600", "https://a:b@c/", "http://[::1", "https://xn--/", "2026-02-30",
	"9999-12-31T23:59:59-23:59"}

func (m maker) value(name string, is *openapi3.Schema) any {
	if m.rarely() {
		return choose(m.Choices, hostile)
	}
	if known := m.known[name]; len(known) > 0 && m.below(4) > 0 {
		return choose(m.Choices, known)
	}
	if len(is.AnyOf) > 0 {
		is = choose(m.Choices, is.AnyOf).Value
	}
	if len(is.Enum) > 0 {
		return choose(m.Choices, is.Enum)
	}
	types := is.Type.Slice()
	switch choose(m.Choices, types) {
	case "object":
		return m.object(is)
	case "array":
		least, most := int64(is.MinItems), int64(3)
		if is.MaxItems != nil {
			most = int64(*is.MaxItems)
		}
		list := make([]any, max(m.size(least, most), 0))
		for i := range list {
			list[i] = m.value("", is.Items.Value)
		}
		return list
	case "integer", "number":
		least, most := int64(0), int64(1e6)
		if is.Min != nil {
			least = int64(*is.Min)
		}
		if is.Max != nil {
			most = int64(*is.Max)
		}
		return m.size(least, most)
	case "boolean":
		return m.below(2) == 1
	case "null":
		return nil
	}
	return m.string(is)
}

// size returns a size. It is mostly within the limits, and often equal to one of them.
func (m maker) size(least, most int64) int64 {
	switch m.below(8) {
	case 0:
		return least
	case 1:
		return most
	case 2:
		return most + 1
	case 3:
		return least - 1
	}
	return least + int64(m.below(256))%(min(most-least, 20)+1)
}

func (m maker) object(is *openapi3.Schema) any {
	object := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(is.Properties)) {
		// A valid link has at most one kind of end, so optional members are rare.
		if required := slices.Contains(is.Required, name); required && !m.rarely() || !required &&
			m.below(4) == 3 {
			object[name] = m.value(name, is.Properties[name].Value)
		}
	}
	if m.rarely() {
		object[choose(m.Choices, []string{"x", "", "\x00", "__proto__",
			strings.Repeat("x", 200)})] = choose(m.Choices, hostile)
	}
	return object
}

func (m maker) string(is *openapi3.Schema) string {
	switch is.Format {
	case "date-time", "date":
		seconds := choose(m.Choices, []int64{3600, 60, 59, 0, -3600, 86400 * 30, 86400 * 400,
			86400 * 365 * 101, 86400 * 365 * 8000})
		at := time.Unix(m.now.Unix()+seconds, 0).UTC()
		if is.Format == "date" {
			return at.Format(time.DateOnly)
		}
		return at.In(time.FixedZone("", choose(m.Choices, []int{0, 3600, -9000}))).Format(
			time.RFC3339)
	}
	start, alphabet := "", choose(m.Choices, []string{"abcXYZ019", "abc-_",
		"aä\U0001f600<>&\"'%+# ;", "\t\n\u0085\u200b"})
	if strings.Contains(is.Pattern, "*:") { // a scheme
		start, alphabet = choose(m.Choices, []string{"https://example.com/",
			"HTTP://example.com:8080/?", "https://b\u00fccher.example/", "http://127.1/",
			"https://tiney.to/", "ftp://example.com/", "mailto:ann@example.com"}),
			choose(m.Choices, []string{"abcXYZ019", "ä\U0001f600", "<>\"'%+#;{}|^`", " \\"})
	}
	most := int64(40)
	if is.MaxLength != nil {
		most = int64(*is.MaxLength)
	}
	letters := []rune(alphabet)
	text := []rune(start)
	for n := m.size(int64(is.MinLength), most); int64(len(text)) < n; {
		text = append(text, letters[m.below(len(letters))])
	}
	return string(text)
}
