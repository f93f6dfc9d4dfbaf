package functions

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"tiney/access"
	"tiney/link"
)

// openAPIDocument describes all that the service responds to, as OpenAPI 3.1. Its base URL and version are placeholders.
//
//go:embed openapi.json
var openAPIDocument string

// openAPI handles GET /api/openapi.json. The document is made at the first request: few processes are asked for it.
type openAPI struct {
	document func() (text, etag string)
}

func newOpenAPI(base link.Base, version string) *openAPI {
	return &openAPI{sync.OnceValues(func() (text, etag string) {
		text = strings.NewReplacer("https://short.example", base.String(), `"version": "0"`, `"version": `+strconv.Quote(version)).Replace(openAPIDocument)
		sum := sha256.Sum256([]byte(text))
		return text, `"` + hex.EncodeToString(sum[:8]) + `"`
	})}
}

func (o *openAPI) serve(_ context.Context, w http.ResponseWriter, r *http.Request, _ access.Caller) error {
	text, etag := o.document()
	setHeaders(w, "application/json")
	h := w.Header()
	h.Set("ETag", etag)
	h.Set("Cache-Control", "public, max-age=300") // seconds; another version of the service may have another document
	if tags, err := parseETags(r.Header.Values("If-None-Match")); err == nil && tags.matchWeakly(etag) {
		h.Del("Content-Type")
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h.Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = io.WriteString(w, text)
	return nil
}
