package functions

import (
	"context"
	"net/http"
	"strconv"

	"tiney/internal/pages"
)

// writePage responds with a page. The page may call these origins besides the service's own.
func writePage(w http.ResponseWriter, status int, page []byte, origins ...string) {
	writePageUnder(w, status, page, pages.PolicyWith(origins...))
}

// writePageUnder responds with a page under a Content-Security-Policy.
func writePageUnder(w http.ResponseWriter, status int, page []byte, policy string) {
	setHeaders(w, "text/html; charset=utf-8")
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	if h.Get("Referrer-Policy") == "" {
		h.Set("Referrer-Policy", "no-referrer")
	}
	// Otherwise a website that has opened a page could lead it elsewhere while its user signs in.
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Content-Length", strconv.Itoa(len(page)))
	w.WriteHeader(status)
	_, _ = w.Write(page)
}

// favicon handles GET /favicon.ico, which browsers ask for on their own.
func favicon(_ context.Context, w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Cache-Control", "public, max-age=86400")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// robots handles GET /robots.txt. Links stay open to crawlers, which make the previews that chat
// programs show.
func robots(_ context.Context, w http.ResponseWriter, _ *http.Request) error {
	setHeaders(w, "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "public, max-age=86400")
	_, _ = w.Write([]byte("User-agent: *\nDisallow: /api/\n"))
	return nil
}

// openSearch handles GET /opensearch.xml: browsers offer to open an alias of the domain that was
// asked from their address bar.
func (s *service) openSearch(_ context.Context, w http.ResponseWriter, r *http.Request) error {
	setHeaders(w, "application/opensearchdescription+xml")
	w.Header().Set("Cache-Control", "public, max-age=86400")
	if s.varyDomain != nil {
		w.Header()["Vary"] = s.varyDomain
	}
	_, _ = w.Write(s.siteOf(s.domainOf(r)).OpenSearch())
	return nil
}
