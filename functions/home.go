package functions

import (
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"html"
	"io"
	"net/http"
	"strconv"
	"strings"

	"tiney/link"
)

//go:embed home.html home.css home.js page.html
var pageFiles embed.FS

var (
	homePage    = mustRead("home.html")
	problemPage = mustRead("page.html")
	style       = mustRead("home.css")
	script      = mustRead("home.js")
)

func mustRead(name string) string {
	data, err := pageFiles.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// pagePolicy allows a page its own inline style and script and requests to this service, and nothing else.
var pagePolicy = strings.Join([]string{
	"default-src 'none'",
	"style-src " + hashSource(style),
	"script-src " + hashSource(script),
	"connect-src 'self'",
	"base-uri 'none'",
	"form-action 'none'",
	"frame-ancestors 'none'",
}, "; ")

func hashSource(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// home handles GET / with a page that says what this is, and a form to try it. It is rendered once: the Functions host
// asks for it every 25 ms while it waits for the handler.
type home struct{ page []byte }

func newHome(base link.Base) *home {
	return &home{page: []byte(fill(homePage, "Base", base.String()))}
}

// fill replaces the names in a page, which stand between tags only, by texts, and inserts its style and script.
// html/template would do the same, but can call any method by its name, and so keeps all exported methods of all types in
// the executable: a quarter of its size, and a fifth of the process's memory at rest.
func fill(page string, namesAndTexts ...string) string {
	with := []string{"{{.Style}}", style, "{{.Script}}", script}
	for i := 0; i < len(namesAndTexts); i += 2 {
		with = append(with, "{{."+namesAndTexts[i]+"}}", html.EscapeString(namesAndTexts[i+1]))
	}
	return strings.NewReplacer(with...).Replace(page)
}

func (h *home) serve(_ context.Context, w http.ResponseWriter, r *http.Request) error {
	// Its function.json takes every method: to those that it did not take, the host would respond with a page of its own.
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return methodProblem("GET, HEAD")
	}
	pageHeaders(w)
	w.Header().Set("Content-Length", strconv.Itoa(len(h.page)))
	_, _ = w.Write(h.page)
	return nil
}

// writePage writes a problem as a page.
func writePage(w http.ResponseWriter, p *problem) {
	pageHeaders(w)
	w.WriteHeader(p.Status)
	_, _ = io.WriteString(w, fill(problemPage, "Title", p.Title, "Detail", cmp.Or(p.page, p.Detail), "Status", strconv.Itoa(p.Status)))
}

func pageHeaders(w http.ResponseWriter) {
	setHeaders(w, "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy)
	w.Header().Set("Referrer-Policy", "no-referrer")
}
