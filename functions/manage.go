package functions

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"tiney/internal/pages"
)

// manage handles GET and HEAD of /manage, the page on which people manage their links, and of
// /manage/{name}, a file that pages load.
func (s *service) manage(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	const prefix = "/manage/"
	if len(r.URL.Path) <= len(prefix) {
		if s.domainOf(r) != "" { // people sign in at the default domain only
			found(w, s.Rules.Base.String()+"/manage")
			return nil
		}
		by := s.Callers.SignIn(ctx)
		page := s.site.Manage(r.URL.EscapedPath(), by.Issuer, by.ClientID, by.Scopes)
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
	w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	_, _ = io.WriteString(w, a.Body)
	return nil
}
