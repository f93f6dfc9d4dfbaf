package functions

import (
	"net/http"
	"net/url"
	"strings"

	"tiney/internal/access"
	"tiney/internal/link"
)

// target is where a request for a link leads.
type target struct {
	longURL, location string // as pages and as a redirect have it
	rest, query       string // of the request, behind the alias, as they came
}

// target returns where a request for a link leads. It ignores a rest of a slash and punctuation, as
// people paste it. Any other rest that the link does not forward counts as an unknown alias.
// Errors: link.ErrNotFound in that case, tooLongProblem, the problem of a client that has to wait.
func (s *service) target(r *http.Request, l link.Link, q asked) (target, error) {
	if l.Forward == 0 && q.rest == "" { // as most do
		return target{longURL: l.LongURL, location: link.Location(l.LongURL)}, nil
	}
	to := target{rest: q.rest, query: r.URL.RawQuery}
	if l.Forward != 0 && s.hosted {
		// A Functions host changes paths and queries. Azure's front end gives them as they came.
		if sent := r.Header["X-Waws-Unencoded-Url"]; len(sent) == 1 && strings.HasPrefix(sent[0], "/") {
			path, query, _ := strings.Cut(sent[0], "?")
			if name, rest := splitPath(path); name == q.first {
				to.rest, to.query = rest, query
			}
		}
	}
	if l.Forward&link.ForwardPath == 0 {
		behind, _ := url.PathUnescape(to.rest)
		if behind, _ = link.PastedAlias(behind); behind == "/" {
			to.rest = ""
		}
	}
	var ok bool
	if to.longURL, ok = l.Target(to.rest, to.query); !ok {
		if err := s.limits.take(access.LimitUnknown, r); err != nil {
			return to, err
		}
		return to, link.ErrNotFound
	}
	to.location = link.Location(to.longURL)
	if l.Forward != 0 && len(to.location) > link.MaxLocationBytes {
		return to, tooLongProblem
	}
	return to, nil
}

// rawPath returns the path of a request as it came.
func rawPath(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	if _, after, is := strings.Cut(path, "://"); is && path[0] != '/' { // as proxies send it
		_, after, _ = strings.Cut(after, "/")
		path = "/" + after
	}
	if !strings.HasPrefix(path, "/") {
		return r.URL.EscapedPath()
	}
	return path
}

// splitPath returns the first segment of a path, decoded, and what follows it, as it came. A slash
// at the end of the segment alone does not count.
func splitPath(raw string) (first, rest string) {
	first = raw[1:]
	if i := strings.IndexByte(first, '/'); i >= 0 {
		first, rest = first[:i], first[i:]
	}
	if rest == "/" {
		rest = ""
	}
	first, _ = url.PathUnescape(first) // the server has decoded it without an error
	return first, rest
}
