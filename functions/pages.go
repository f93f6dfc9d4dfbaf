package functions

import (
	"cmp"
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
	a, current, ok := pages.Find(r.URL.Path[len(prefix):])
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

// writePage responds with a page. The page may call these origins besides the service's own.
func writePage(w http.ResponseWriter, status int, page []byte, origins ...string) {
	setHeaders(w, "text/html; charset=utf-8")
	h := w.Header()
	h.Set("Content-Security-Policy", pages.PolicyWith(origins...))
	if h.Get("Referrer-Policy") == "" {
		h.Set("Referrer-Policy", "no-referrer")
	}
	// Otherwise a website that has opened a page could lead it elsewhere while its user signs in.
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Content-Length", strconv.Itoa(len(page)))
	w.WriteHeader(status)
	_, _ = w.Write(page)
}

// writeProblemPage responds with a problem as a page.
func writeProblemPage(w http.ResponseWriter, r *http.Request, p *problem, site pages.Site) {
	page := p.form
	if page == nil {
		page = site.Problem(r.URL.EscapedPath(), p.Status, p.Title, cmp.Or(p.page, p.Detail),
			p.offer)
	}
	writePage(w, p.Status, page)
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
