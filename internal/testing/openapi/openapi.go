// Package openapi checks HTTP exchanges against functions/openapi.json. Nothing that ships imports
// it.
//
// A linter checks the document itself. package-lock.json beside this file pins the linter, and
// `make openapi` installs it.
package openapi

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// Document is functions/openapi.json. Unlike the document, it allows responses no members other
// than the described ones, so that every member has a description.
type Document struct {
	*openapi3.T
	paths   []path
	nothing *openapi3.Operation // responses for a missing path or method
}

// path is one of the document's paths. The groups of the pattern are its parameters.
type path struct {
	name    string
	item    *openapi3.PathItem
	pattern *regexp.Regexp
}

func init() {
	for _, mediaType := range []string{"text/html", "image/svg+xml", "application/x-ndjson"} {
		openapi3filter.RegisterBodyDecoder(mediaType, openapi3filter.PlainBodyDecoder)
	}
	table := openapi3filter.RegisteredBodyDecoder("text/csv")
	openapi3filter.RegisterBodyDecoder("text/csv", func(body io.Reader, h http.Header,
		s *openapi3.SchemaRef, encoding openapi3filter.EncodingFn) (any, error) {
		file, err := io.ReadAll(body)
		if err != nil {
			return nil, err
		}
		file = bytes.TrimPrefix(file, []byte("sep=,\n")) // one column, unlike the following lines
		return table(bytes.NewReader(file), h, s, encoding)
	})
	openapi3.DefineStringFormatValidator("uri", openapi3.NewCallbackValidator(func(s string) error {
		if u, err := url.Parse(s); err != nil || !u.IsAbs() || u.Host == "" {
			return fmt.Errorf("%q is no URL", s)
		}
		return nil
	}))
}

// Load reads the document and validates it, including its examples. root is the project's folder.
func Load(root string) (*Document, error) {
	doc, err := openapi3.NewLoader().LoadFromFile(filepath.Join(root, "functions", "openapi.json"))
	if err != nil {
		return nil, err
	}
	if err := doc.Validate(context.Background()); err != nil {
		return nil, err
	}
	closed := false
	err = doc.WalkSchemas(func(_ string, s *openapi3.SchemaRef) error {
		// Clients take other values, and so may come to know more of them. The service has these.
		if values, ok := s.Value.Extensions["x-values"].([]any); ok {
			s.Value.Enum = values
			if s.Value.Type.Includes("null") {
				s.Value.Enum = append(slices.Clone(values), nil)
			}
		}
		if more := &s.Value.AdditionalProperties; len(s.Value.Properties) > 0 && more.Has == nil &&
			more.Schema == nil {
			more.Has = &closed
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	d := &Document{T: doc, nothing: &openapi3.Operation{Responses: openapi3.NewResponses(
		openapi3.WithStatus(http.StatusNotFound, doc.Components.Responses["NotFoundPage"]),
		// It is a problem as well.
		openapi3.WithStatus(http.StatusMethodNotAllowed, doc.Components.Responses["NotFound"]),
		openapi3.WithStatus(http.StatusNoContent,
			&openapi3.ResponseRef{Value: &openapi3.Response{}}))}}
	for name, item := range doc.Paths.Map() {
		for _, o := range item.Operations() {
			if o.RequestBody != nil {
				open(o.RequestBody.Value.Content)
			}
			for _, response := range o.Responses.Map() {
				open(response.Value.Content)
			}
		}
		pattern := regexp.MustCompile(`\\\{(\w+)\\\}`).ReplaceAllString(regexp.QuoteMeta(name),
			`(?P<$1>[^/]+)`)
		// Parameters of OpenAPI have one segment, and this one has more.
		pattern = strings.Replace(pattern, "(?P<rest>[^/]+)", "(?P<rest>.+)", 1)
		if strings.HasPrefix(name, "/{alias}") {
			pattern += "/?"
		}
		d.paths = append(d.paths, path{name, item, regexp.MustCompile("^" + pattern + "$")})
	}
	// Paths with longer fixed parts come first.
	slices.SortFunc(d.paths, func(a, b path) int { return cmp.Compare(fixed(b), fixed(a)) })
	return d, nil
}

// open removes the schemas of contents that may be anything, since the library would decode these.
func open(content openapi3.Content) {
	for _, media := range content {
		if media.Schema != nil && media.Schema.Value.Format == "binary" {
			media.Schema = nil
		}
	}
}

// fixed returns the length of the fixed part of a path.
func fixed(p path) int { return len(regexp.MustCompile(`\{\w+\}`).ReplaceAllString(p.name, "")) }

// general are the headers that a response may have without a description in the document.
var general = []string{"Cache-Control", "Connection", "Content-Length", "Content-Security-Policy",
	"Content-Type", "Cross-Origin-Opener-Policy",
	"Date", "Referrer-Policy", "Strict-Transport-Security", "Vary", "X-Content-Type-Options"}

// Check returns an error unless the document has the response to a request. If the request
// succeeded, the document must also allow the request. sent and got are the two bodies; sent is nil
// if it is not known.
func (d *Document) Check(r *http.Request, sent []byte, status int, header http.Header,
	got []byte) error {
	p, parameters := d.find(r.Method, r.URL.EscapedPath())
	operation := operationOf(p.item, r.Method)
	known := operation != nil
	if !known {
		operation = d.nothing
		if status != http.StatusNotFound && (p.name == "" || header.Get("Allow") == "") {
			return fmt.Errorf("the document has no %s for this path", r.Method)
		}
	}
	response := operation.Responses.Status(status)
	if response == nil {
		return fmt.Errorf("%s has no response %d", operation.OperationID, status)
	}
	for name := range header {
		if !slices.Contains(general, name) && (known || name != "Allow") &&
			!describes(response.Value, name) {
			return fmt.Errorf("response %d of %s has no header %s", status, operation.OperationID,
				name)
		}
	}
	if len(got) > 0 && len(response.Value.Content) == 0 {
		return fmt.Errorf("response %d of %s has no body", status, operation.OperationID)
	}
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: parameters,
		Route: &routers.Route{Spec: d.T, Path: p.name, PathItem: p.item, Method: r.Method,
			Operation: operation},
		Options: &openapi3filter.Options{SkipSettingDefaults: true,
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if known && status < 300 {
		if b := operation.RequestBody; b != nil && (sent == nil || b.Value.Content["*/*"] != nil ||
			slices.Contains([]string{"bulkShorten", "bulkEdit", "claimLinks"},
				operation.OperationID)) {
			// Either the body is not known, or the response reports what is wrong with a part of
			// it.
			input.Options.ExcludeRequestBody = true
		}
		body := r.Body
		r.Body = io.NopCloser(bytes.NewReader(sent))
		err := openapi3filter.ValidateRequest(context.Background(), input)
		if r.Body = body; err != nil {
			return fmt.Errorf("the request succeeded, but breaks the document: %w", err)
		}
	}
	// The library does not check some statuses, nor responses to HEAD. It does check them as a 200
	// to GET.
	as := *input.Route
	as.Operation = &openapi3.Operation{Responses: openapi3.NewResponses(
		openapi3.WithStatus(http.StatusOK, response))}
	return openapi3filter.ValidateResponse(context.Background(),
		&openapi3filter.ResponseValidationInput{
			RequestValidationInput: &openapi3filter.RequestValidationInput{
				Request: &http.Request{Method: http.MethodGet}, Route: &as},
			Status: http.StatusOK, Header: header,
			Body:    io.NopCloser(bytes.NewReader(got)),
			Options: &openapi3filter.Options{ExcludeResponseBody: r.Method == http.MethodHead},
		})
}

// describes reports whether a response has a header, whatever the case of its name.
func describes(r *openapi3.Response, name string) bool {
	for known := range r.Headers {
		if http.CanonicalHeaderKey(known) == name {
			return true
		}
	}
	return false
}

// operationOf returns the operation of a method, or nil if there is none. HEAD uses the operation
// of GET.
func operationOf(item *openapi3.PathItem, method string) *openapi3.Operation {
	o := item.GetOperation(method)
	if o == nil && method == http.MethodHead {
		o = item.Get
	}
	return o
}

// find returns the document's path that matches a request's path, and the values of its parameters.
// If several match, one that has the method comes first, since a link's alias may equal a part of
// another path.
func (d *Document) find(method, p string) (found path, parameters map[string]string) {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		if plain, err := url.PathUnescape(s); err == nil { // else it is escaped correctly already
			segments[i] = url.PathEscape(plain)
		}
	}
	p = strings.Join(segments, "/")
	if lower := strings.ToLower(p); strings.HasPrefix(lower, "/api/") ||
		strings.HasPrefix(lower, "/manage") {
		p = strings.TrimSuffix(lower, "/") // case and a final slash do not matter there
	}
	found.item = &openapi3.PathItem{}
	for _, known := range d.paths {
		values := known.pattern.FindStringSubmatch(p)
		has := operationOf(known.item, method) != nil
		rest := strings.HasPrefix(p, "/api/") && strings.HasPrefix(known.name, "/{alias}")
		if values == nil || found.name != "" && !has || rest {
			continue
		}
		found, parameters = known, map[string]string{}
		for i, name := range known.pattern.SubexpNames()[1:] {
			parameters[name], _ = url.PathUnescape(values[i+1])
		}
		if has {
			break
		}
	}
	return found, parameters
}

// Transport checks each exchange against the document, and reports those that break it.
type Transport struct {
	http.RoundTripper
	*Document
	// Skip says which responses are not the service's.
	Skip func(*http.Response) bool
	// Report is called with each error that Check finds.
	Report func(error)
}

// RoundTrip sends a request. It returns the error of the transport, or of reading the request's
// body again.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	got, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	resp.Body = io.NopCloser(io.MultiReader(bytes.NewReader(got), failing{err}))
	if err != nil || t.Skip(resp) {
		return resp, nil
	}
	var sent []byte
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		if sent, err = io.ReadAll(body); err != nil {
			return nil, err
		}
	}
	if err := t.Check(r, sent, resp.StatusCode, resp.Header, got); err != nil {
		t.Report(fmt.Errorf("%s %s: %d: %w", r.Method, r.URL.Path, resp.StatusCode, err))
	}
	return resp, nil
}

// failing is a reader that fails with err, or ends if err is nil.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, cmp.Or(f.err, io.EOF) }
