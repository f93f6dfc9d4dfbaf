package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"tiney/internal/link"
)

// router maps methods and paths to functions. It uses http.ServeMux only below /api/, because
// ServeMux redirects a path that is not clean, and outside of /api/ such a path must get a 404.
type router struct {
	hostAddress string              // see Config
	timers      map[string]route    // by path; the host posts to them
	paths       map[string]endpoint // fixed paths outside of /api/
	trees       []tree              // first segments with everything below them
	alias       endpoint            // any other path of one segment
	withPath    endpoint            // any other path of several segments
	api         *http.ServeMux      // its handlers are endpoints, its paths in lower case
}

// route is a function for requests.
type route struct {
	// function is the name of the function in the Functions host, and in telemetry.
	function string
	// pattern is a method and a path in lower case, as in http.ServeMux. GET includes HEAD. Without
	// a method it stands for all. In a router, routes below /api/ have only the path.
	pattern string
	serve   handlerFunc
	// limit is how long the request may wait for storage: see within. Zero: as long as its function
	// says. So redirects to cached links, which do not wait, make no timer.
	limit time.Duration
	timer bool // only the Functions host may call it
}

// endpoint has the routes of one path by method; "" stands for all other methods.
type endpoint map[string]route

// ServeHTTP is never called: http.ServeMux only says which handler it would call.
func (endpoint) ServeHTTP(http.ResponseWriter, *http.Request) {}

// tree is an endpoint for a path of one segment and everything below it.
type tree struct {
	segment string
	at      endpoint
}

// webAPI is the function for every path below /api/ that has no function of its own.
const webAPI = "web-api"

// newRouter panics, as http.ServeMux does, if two routes match the same requests and neither is
// narrower.
func newRouter(hostAddress string, routes []route) *router {
	rt := &router{hostAddress: hostAddress, timers: map[string]route{},
		paths: map[string]endpoint{}, alias: endpoint{}, withPath: endpoint{},
		api: http.NewServeMux()}
	api := map[string]endpoint{}
	for _, to := range routes {
		rt.add(api, to)
	}
	for pattern, at := range api {
		// An alias may be spelled like the last segment of a fixed path. Methods that the fixed
		// path does not have then go to the alias's routes.
		for other, of := range api {
			if covers(other, pattern) {
				for method, to := range of {
					if _, taken := at[method]; !taken {
						at[method] = to
					}
				}
			}
		}
		rt.api.Handle(pattern, at)
	}
	return rt
}

func (rt *router) add(api map[string]endpoint, to route) {
	methods := []string{""}
	method, path, ok := strings.Cut(to.pattern, " ")
	switch {
	case !ok:
		path = to.pattern
	case method == http.MethodGet:
		methods = []string{method, http.MethodHead}
	default:
		methods = []string{method}
	}
	if to.timer {
		rt.timers[path] = to
		return
	}
	segment, isTree := strings.CutSuffix(path[1:], "/{path...}")
	var at endpoint
	switch {
	case path != link.LowerASCII(path):
		panic("not in lower case: " + path)
	case isAPI(path):
		at, to.pattern = entry(api, path), path
	case path == "/{alias}":
		at = rt.alias
	case path == "/{alias}/{rest...}":
		at = rt.withPath
	case strings.Contains(segment, "{"):
		panic("only /api/ may have such a path: " + path)
	case isTree:
		if at = rt.treeOf(path); at == nil {
			at = endpoint{}
			rt.trees = append(rt.trees, tree{segment, at})
		}
	default:
		at = entry(rt.paths, path)
	}
	for _, method := range methods {
		if taken, ok := at[method]; ok {
			panic(fmt.Sprintf("%s and %s have the same route %s", taken.function, to.function,
				to.pattern))
		}
		at[method] = to
	}
}

// covers reports whether a pattern matches a fixed path.
func covers(pattern, fixed string) bool {
	if strings.Contains(fixed, "{") || strings.HasSuffix(pattern, "...}") ||
		!strings.Contains(pattern, "{") {
		return false
	}
	matches := func(a, b string) bool { return a == b || strings.HasPrefix(a, "{") }
	return slices.EqualFunc(strings.Split(pattern, "/"), strings.Split(fixed, "/"), matches)
}

// entry returns the endpoint at p, and adds one if there is none.
func entry(all map[string]endpoint, p string) endpoint {
	if all[p] == nil {
		all[p] = endpoint{}
	}
	return all[p]
}

// match returns the route of a request. Its errors are problems. With an error, the route has only
// the name of the function, or is zero.
func (rt *router) match(r *http.Request) (route, error) {
	p := cmp.Or(r.URL.Path, "/") // an absolute URL without a path, such as http://go.example
	if r.Method == http.MethodPost && rt.hostAddress != "" {
		if timer, ok := rt.timers[p]; ok {
			return timer, rt.fromHost(r)
		}
	}
	at, ok := rt.paths[p]
	switch {
	case ok:
	case rt.treeOf(p) != nil:
		at = rt.treeOf(p)
	case isAPI(p):
		at = rt.matchAPI(r)
	case isSegment(cmp.Or(r.URL.RawPath, p)): // an escaped slash separates no segments
		at = rt.alias
	case strings.HasPrefix(p, "/"):
		at = rt.withPath
	}
	switch {
	case len(at) == 0 && isAPI(p):
		return route{}, nothingHereProblem
	case len(at) == 0:
		return route{}, notFoundProblem
	}
	to, ok := at[r.Method]
	if !ok {
		to, ok = at[""]
	}
	if ok {
		if isAPI(p) {
			setPathValues(r, to.pattern)
		}
		return to, nil
	}
	methods := slices.Sorted(maps.Keys(at))
	to = route{function: at[methods[0]].function}
	if !isAPI(p) {
		return to, methodProblem(strings.Join(methods, ", "))
	}
	allow := strings.Join(append(methods, http.MethodOptions), ", ")
	if r.Method != http.MethodOptions {
		return to, methodProblem(allow)
	}
	to.serve = func(_ context.Context, w http.ResponseWriter, _ *http.Request) error {
		allowed(w, allow)
		return nil
	}
	return to, nil
}

// allowed responds to OPTIONS.
func allowed(w http.ResponseWriter, methods string) {
	w.Header().Set("Allow", methods)
	w.WriteHeader(http.StatusNoContent)
}

// treeOf returns the endpoint of the tree that contains a path, or nil if there is none. It ignores
// case.
func (rt *router) treeOf(p string) endpoint {
	for _, t := range rt.trees {
		end := 1 + len(t.segment)
		if len(p) >= end && strings.EqualFold(p[1:end], t.segment) &&
			(len(p) == end || p[end] == '/') {
			return t.at
		}
	}
	return nil
}

// errNotTheHost means that a client has posted to a timer.
var errNotTheHost = errors.New("the request is not the Functions host's own")

// fromHost returns an error if a request comes from a client, and not from the Functions host
// itself. A host that forwards removes dot segments after it has matched a route, so a client can
// make it post to a timer's path. The first defence is that no route with POST matches such a path.
// fromHost is the second.
func (rt *router) fromHost(r *http.Request) error {
	switch {
	case r.Host != rt.hostAddress:
		return fmt.Errorf("%w: wrong Host: %w", errNotTheHost, notFoundProblem)
	case r.Header["X-Forwarded-For"] != nil, r.Header[proxyHeader] != nil:
		return fmt.Errorf("%w: it was forwarded: %w", errNotTheHost, notFoundProblem)
	case r.Header["Origin"] != nil:
		return fmt.Errorf("%w: it is a web page's: %w", errNotTheHost, notFoundProblem)
	}
	return nil
}

// setPathValues sets the path values of r, except the value of a catch-all.
func setPathValues(r *http.Request, pattern string) {
	if !strings.Contains(pattern, "{") {
		return
	}
	segments := strings.Split(r.URL.EscapedPath(), "/")
	for i, name := range strings.Split(pattern, "/") {
		if name, ok := strings.CutPrefix(name, "{"); ok && !strings.HasSuffix(name, "...}") {
			value, _ := url.PathUnescape(segments[i]) // matchAPI has unescaped it without an error
			r.SetPathValue(strings.TrimSuffix(name, "}"), value)
		}
	}
}

// matchAPI returns the endpoint of a path below /api/. Like the host, it ignores case and a slash
// at the end.
func (rt *router) matchAPI(r *http.Request) endpoint {
	escaped := strings.TrimSuffix(r.URL.EscapedPath(), "/")
	lower := link.LowerASCII(escaped) // escaped, because an escaped slash separates no segments
	path, err := url.PathUnescape(lower)
	if err != nil {
		return nil
	}
	u := &url.URL{Path: path, RawPath: lower}
	h, _ := rt.api.Handler(&http.Request{Method: r.Method, URL: u})
	at, _ := h.(endpoint) // nil: not found, or a redirect to a clean path
	return at
}

// isAPI reports whether a path begins with /api/, where responses are for programs.
func isAPI(p string) bool { return len(p) >= 5 && strings.EqualFold(p[:5], "/api/") }

// isSegment reports whether a path has one segment. Like the host, it ignores a slash at the end.
func isSegment(p string) bool {
	p = strings.TrimSuffix(p, "/")
	return len(p) > 1 && p[0] == '/' && strings.IndexByte(p[1:], '/') < 0
}
