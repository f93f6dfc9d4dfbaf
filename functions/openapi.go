package functions

import (
	_ "embed"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"tiney/internal/link"
)

// openAPIDocument describes the API as OpenAPI 3.1. Its base URL and version are placeholders.
//
//go:embed openapi.json
var openAPIDocument string

// newDocument returns the document of a site, made at the first call, because few processes need
// it.
func newDocument(base link.Base, version string) func() (text, etag string) {
	return sync.OnceValues(func() (text, etag string) {
		text = describe(openAPIDocument, base, version)
		return text, etagOf(text)
	})
}

// describe replaces the placeholders in a description of the API.
func describe(text string, base link.Base, version string) string {
	return strings.NewReplacer("https://short.example", base.String(),
		`"short.example"`, strconv.Quote(string(base.Domain())),
		`"version": "0"`, `"version": `+strconv.Quote(version)).Replace(text)
}

// openAPI handles GET /api/openapi.json.
func (s *service) openAPI(*call) (any, error) {
	text, etag := s.document()
	return written(func(w http.ResponseWriter, r *http.Request) {
		setHeaders(w, "application/json")
		h := w.Header()
		h.Set("ETag", etag)
		h.Set("Cache-Control", "public, max-age=300") // seconds; the next version may change it
		if notModified(r, etag) {
			h.Del("Content-Type")
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = io.WriteString(w, text)
	}), nil
}
