// Package openapi checks HTTP exchanges against functions/openapi.json. Nothing that ships imports
// it.
//
// The document itself is checked by the linter that package-lock.json beside this file pins; `make
// openapi` installs it.
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

// Document is functions/openapi.json. It is stricter about responses than the document is: they
// have no other members than those that it names, so that none goes without a description.
type Document struct {
	*openapi3.T
	paths   []path
	nothing *openapi3.Operation // responses where there is nothing, or nothing for the method
}

// path is one of the document's paths. Its parameters are the groups of the pattern.
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
		file = bytes.TrimPrefix(file, []byte("sep=,\n")) // one column; what follows has more
		return table(bytes.NewReader(file), h, s, encoding)
	})
	openapi3.DefineStringFormatValidator("uri", openapi3.NewCallbackValidator(func(s string) error {
		if u, err := url.Parse(s); err != nil || !u.IsAbs() || u.Host == "" {
			return fmt.Errorf("%q is no URL", s)
		}
		return nil
	}))
}

// Load reads the document and validates it, its examples too. root is the project's folder.
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
		// a problem too
		openapi3.WithStatus(http.StatusMethodNotAllowed, doc.Components.Responses["NotFound"]),
		openapi3.WithStatus(http.StatusNoContent,
			&openapi3.ResponseRef{Value: &openapi3.Response{}}))}}
	for name, item := range doc.Paths.Map() {
		pattern := regexp.MustCompile(`\\\{(\w+)\\\}`).ReplaceAllString(regexp.QuoteMeta(name),
			`(?P<$1>[^/]+)`)
		d.paths = append(d.paths, path{name, item, regexp.MustCompile("^" + pattern + "$")})
	}
	// The more of a path is fixed, the earlier it counts.
	slices.SortFunc(d.paths, func(a, b path) int { return cmp.Compare(fixed(b), fixed(a)) })
	return d, nil
}

// fixed returns how much of a path is fixed.
func fixed(p path) int { return len(regexp.MustCompile(`\{\w+\}`).ReplaceAllString(p.name, "")) }

// general are the headers that a response may have without a description.
var general = []string{"Cache-Control", "Connection", "Content-Length", "Content-Security-Policy",
	"Content-Type", "Cross-Origin-Opener-Policy",
	"Date", "Referrer-Policy", "Strict-Transport-Security", "Vary", "X-Content-Type-Options"}

// Check returns an error unless the document has the response to a request, and, if that was a
// success, the request. sent and got are their bodies; sent may be nil if it is not known.
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
			slices.Contains([]string{"bulkShorten", "claimLinks"}, operation.OperationID)) {
			// it is not known, or what is wrong with a part of it is in the response
			input.Options.ExcludeRequestBody = true
		}
		body := r.Body
		r.Body = io.NopCloser(bytes.NewReader(sent))
		err := openapi3filter.ValidateRequest(context.Background(), input)
		if r.Body = body; err != nil {
			return fmt.Errorf("the request succeeded, but breaks the document: %w", err)
		}
	}
	// The library does not look at some statuses, nor at responses to HEAD; under another name it
	// does.
	as := *input.Route
	as.Operation = &openapi3.Operation{Responses: openapi3.NewResponses(
		openapi3.WithStatus(http.StatusOK, response))}
	return openapi3filter.ValidateResponse(context.Background(),
		&openapi3filter.ResponseValidationInput{
			RequestValidationInput: &openapi3filter.RequestValidationInput{Request: &http.Request{Method: http.MethodGet}, Route: &as},
			Status:                 http.StatusOK, Header: header,
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

// operationOf returns the operation of a method, and nil if there is none. That of GET is for HEAD
// too.
func operationOf(item *openapi3.PathItem, method string) *openapi3.Operation {
	o := item.GetOperation(method)
	if o == nil && method == http.MethodHead {
		o = item.Get
	}
	return o
}

// find returns the document's path that a request's path is, and the values of its parameters. Of
// several, one that has the method goes first: a link may be called as a path is.
func (d *Document) find(method, p string) (found path, parameters map[string]string) {
	segments := strings.Split(p, "/")
	for i, s := range segments {
		if plain, err := url.PathUnescape(s); err == nil { // else it is escaped as it has to be
			segments[i] = url.PathEscape(plain)
		}
	}
	p = strings.Join(segments, "/")
	if lower := strings.ToLower(p); strings.HasPrefix(lower, "/api/") ||
		strings.HasPrefix(lower, "/manage") {
		p = strings.TrimSuffix(lower, "/") // neither matters there
	}
	found.item = &openapi3.PathItem{}
	for _, known := range d.paths {
		values := known.pattern.FindStringSubmatch(p)
		has := operationOf(known.item, method) != nil
		if values == nil || found.name != "" && !has {
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

// Transport checks each exchange that it makes, and fails those that break the document.
type Transport struct {
	http.RoundTripper
	*Document
	// Skip says which exchanges are not the service's.
	Skip func(*http.Response) bool
	// Report gets what is wrong.
	Report func(error)
}

// RoundTrip sends a request. The error is that of the transport, or what is wrong with the
// exchange.
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

// failing is a reader that fails, or ends if it has no error.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, cmp.Or(f.err, io.EOF) }
