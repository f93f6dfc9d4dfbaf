package functions

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"unsafe"

	"tiney/internal/access"
	"tiney/internal/link"
	"tiney/internal/pages"
)

// domainOf returns the domain that a request is for. It is the default domain if the request names
// no other one, or names it in more than one way.
func (s *service) domainOf(r *http.Request) link.Domain {
	if len(s.hosts) == 1 {
		return ""
	}
	host := r.Host
	header := s.DomainHeader
	if header == "" && s.hosted && host == s.HostAddress { // a Functions host that proxies
		header = "X-Forwarded-Host"
	}
	if header != "" {
		values := r.Header[header]
		if len(values) != 1 {
			return ""
		}
		host = values[0]
	}
	d, ok := s.hosts[link.Domain(host)]
	if !ok {
		d = s.hosts[link.HostDomain(host)]
	}
	return d
}

// nameBuffers hold names of links while they are looked up in the cache.
var nameBuffers = sync.Pool{New: func() any { return new([link.MaxNameLength]byte) }}

// cached returns the link of an alias in a domain, if it is cached and fresh. It allocates nothing:
// Cached does not keep the name.
func (s *service) cached(ctx context.Context, d link.Domain, a link.Alias) (link.Link, bool) {
	if d == "" {
		return s.Links.Cached(ctx, link.Name(a), false)
	}
	buffer := nameBuffers.Get().(*[link.MaxNameLength]byte)
	defer nameBuffers.Put(buffer)
	name := append(append(append(buffer[:0], a...), '@'), d...)
	return s.Links.Cached(ctx, link.Name(unsafe.String(&name[0], len(name))), false)
}

// listDomains handles GET /api/domains.
func (s *service) listDomains(
	_ context.Context, w http.ResponseWriter, _ *http.Request, _ access.Caller,
) error {
	type domain struct {
		Domain  link.Domain `json:"domain"`
		BaseURL string      `json:"baseUrl"`
		Default bool        `json:"default"`
	}
	var items []domain
	for d, base := range s.Rules.Bases() {
		items = append(items, domain{base.Domain(), base.String(), d == ""})
	}
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Items []domain `json:"items"`
	}{items})
	return nil
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

// target is where a request for a link leads.
type target struct {
	longURL, location string // as pages and as a redirect have it
	rest, query       string // what the request came with behind the alias, as it came
}

// target returns where a request for a link leads. first is the first segment of its path, or "" if
// part of that does not count, and rest what follows it. A rest that the link does not forward
// counts as an unknown alias, unless it is what people paste behind a slash. Errors:
// link.ErrNotFound in that case, tooLongProblem, the problem of a client that has to wait.
func (s *service) target(r *http.Request, l link.Link, first, rest string) (target, error) {
	to := target{rest: rest, query: r.URL.RawQuery}
	if l.Forward != 0 && s.hosted && s.RawURLHeader != "" {
		// A Functions host changes paths and queries. The platform's front end gives them as they
		// came.
		if sent := r.Header[s.RawURLHeader]; len(sent) == 1 && strings.HasPrefix(sent[0], "/") {
			path, query, _ := strings.Cut(sent[0], "?")
			if name, rest := splitPath(path); name == first {
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

// notFound returns the problem of an alias that is not there. It says whether case matters.
func (s *service) notFound() *problem {
	if s.Rules.AnyCase {
		return anyCaseProblem
	}
	return notFoundProblem
}

// unknown responds to a request for an alias that leads nowhere. It sends a browser to UnknownURL
// if there is one. Otherwise it returns a problem, whose page offers to make the link.
func (s *service) unknown(
	w http.ResponseWriter, r *http.Request, d link.Domain, a link.Alias, rest string,
) error {
	if s.fallBack(w, r, s.UnknownURL, d, a) {
		return nil
	}
	p := s.notFound()
	if rest == "" {
		offer := *p
		offer.offer = pages.Offer{Alias: string(a)}
		if d != "" {
			offer.offer.Domain, offer.offer.Main = string(d), s.Rules.Base.String()
		}
		p = &offer
	}
	return p
}

// fallBack sends a browser to a fallback, and reports whether it did. Programs get a problem
// instead.
func (s *service) fallBack(
	w http.ResponseWriter, r *http.Request, to link.Fallback, d link.Domain, a link.Alias,
) bool {
	if to == "" {
		return false
	}
	w.Header().Set("Vary", "Accept")
	if !prefers(r.Header, "text/html") {
		return false
	}
	found(w, to.Location(a, s.Rules.DomainName(d)))
	return true
}

// found redirects for the moment.
func found(w http.ResponseWriter, to string) {
	h := w.Header()
	h["Location"] = []string{to}
	h["Cache-Control"] = noStore
	h["X-Robots-Tag"] = noIndex
	w.WriteHeader(http.StatusFound)
}
