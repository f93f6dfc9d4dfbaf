package functions

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"tiney/internal/pages"
)

// gzipped matches an Accept-Encoding that takes gzip, as browsers send it. Others get plain files.
var gzipped = regexp.MustCompile(`(?i)(?:^|,)\s*gzip\s*(?:,|$)`)

// takesGzip reports whether the response is to be compressed, and sets the headers that say so.
func takesGzip(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Add("Vary", "Accept-Encoding")
	is := gzipped.MatchString(strings.Join(r.Header.Values("Accept-Encoding"), ","))
	if is {
		w.Header().Set("Content-Encoding", "gzip")
	}
	return is
}

// manage handles GET and HEAD of /manage, the page on which people manage their links, and of
// /manage/{name}, a file that pages load.
func (s *service) manage(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	const prefix = "/manage/"
	if len(r.URL.Path) <= len(prefix) {
		if s.domainOf(r) != "" { // people sign in at the default domain only
			found(w, http.StatusFound, s.Rules.Base.String()+"/manage")
			return nil
		}
		by := s.Callers.SignIn(ctx)
		page := s.site.Manage(r.URL.EscapedPath(), by.Issuer, by.ClientID, by.Scopes)
		if takesGzip(w, r) {
			page = []byte(pages.Gzip(string(page)))
		}
		writePage(w, http.StatusOK, page, by.Origins...)
		return nil
	}
	if r.URL.Path == prefix+"manifest.webmanifest" {
		setHeaders(w, "application/manifest+json")
		_, _ = w.Write(s.siteOf(s.domainOf(r)).Manifest())
		return nil
	}
	a, current, ok := pages.AssetAt(r.URL.Path[len(prefix):])
	if !ok {
		return notFoundProblem
	}
	setHeaders(w, a.Type)
	// A part of a page can do nothing by itself.
	w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	if current {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	body := a.Body
	if a.Gzip != "" && takesGzip(w, r) {
		body = a.Gzip
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = io.WriteString(w, body)
	return nil
}
