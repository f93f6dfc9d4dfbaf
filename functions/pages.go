package functions

import (
	"cmp"
	"context"
	"net/http"
	"strconv"

	"tiney/pages"
)

// manage handles GET and HEAD /manage/{name}: a file that pages load.
func manage(_ context.Context, w http.ResponseWriter, r *http.Request) error {
	const prefix = "/manage/"
	if len(r.URL.Path) <= len(prefix) {
		return notFoundProblem
	}
	a, current, ok := pages.Find(r.URL.Path[len(prefix):])
	if !ok {
		return notFoundProblem
	}
	setHeaders(w, a.Type)
	if current {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(a.Body)))
	_, _ = w.Write(a.Body)
	return nil
}

// writePage responds with a page.
func writePage(w http.ResponseWriter, status int, page []byte) {
	setHeaders(w, "text/html; charset=utf-8")
	h := w.Header()
	h.Set("Content-Security-Policy", pages.Policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Length", strconv.Itoa(len(page)))
	w.WriteHeader(status)
	_, _ = w.Write(page)
}

// writeProblemPage responds with a problem as a page.
func writeProblemPage(w http.ResponseWriter, r *http.Request, p *problem) {
	page := p.form
	if page == nil {
		page = pages.Problem(r.URL.EscapedPath(), p.Status, p.Title, cmp.Or(p.page, p.Detail))
	}
	writePage(w, p.Status, page)
}
