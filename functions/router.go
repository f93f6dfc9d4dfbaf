package functions

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/robfig/cron/v3"

	"tiney/internal/link"
)

// functionFiles are the function.json files. This handler and the Functions host read the routes
// from the same files, so that their routes cannot differ.
//
//go:embed */function.json
var functionFiles embed.FS

// binding is one of the bindings of a function.json, with the members that matter here.
type binding struct {
	Type     string   `json:"type"`
	Route    string   `json:"route"`
	Methods  []string `json:"methods"`
	Schedule string   `json:"schedule"`
}

// bindings returns the bindings of a function.
func bindings(files fs.FS, function string) ([]binding, error) {
	data, err := fs.ReadFile(files, path.Join(function, "function.json"))
	if err != nil {
		return nil, err
	}
	var file struct {
		Bindings []binding `json:"bindings"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%s/function.json: %w", function, err)
	}
	return file.Bindings, nil
}

// Schedule returns the schedule of a timer's function. As in the Functions host, it has six fields,
// the first for seconds.
func Schedule(function string) (cron.Schedule, error) {
	all, err := bindings(functionFiles, function)
	if err != nil {
		return nil, err
	}
	for _, b := range all {
		if b.Type == "timerTrigger" {
			const fields = cron.Second | cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow
			return cron.NewParser(fields).Parse(b.Schedule)
		}
	}
	return nil, fmt.Errorf("%s/function.json has no timer", function)
}

// router finds functions by method and path. It uses http.ServeMux only below /api/, because
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

// route is the function that a request leads to.
type route struct {
	function string
	serve    handlerFunc
	pattern  string        // below /api/, the path with the names of its parameters
	limit    time.Duration // see waiting; zero for a timer, whose function has a limit of its own
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

// manyLinks are the patterns of requests that make many links.
var manyLinks = []string{"POST /api/links/bulk", "POST /api/import"}

// webAPI is the function for every path below /api/ that has no function of its own.
const webAPI = "web-api"

// newRouter routes to functions by their name, and to those behind the function web-api by their
// method and path. It panics, as http.ServeMux does, if two routes below /api/ match the same paths
// and neither is narrower.
func newRouter(
	files fs.FS, hostAddress string, functions, behind map[string]handlerFunc,
) (*router, error) {
	rt := &router{
		hostAddress: hostAddress,
		timers:      map[string]route{},
		paths:       map[string]endpoint{},
		api:         http.NewServeMux(),
	}
	api := map[string]endpoint{}
	for name, serve := range functions {
		all, err := bindings(files, name)
		if err != nil {
			return nil, err
		}
		for _, b := range all {
			switch b.Type {
			case "httpTrigger":
				err = rt.add(api, b, route{function: name, serve: serve, limit: waitTime})
			case "timerTrigger":
				rt.timers["/"+name] = route{function: name, serve: serve}
			}
			if err != nil {
				return nil, err
			}
		}
	}
	for pattern, serve := range behind {
		method, path, _ := strings.Cut(pattern, " ")
		b := binding{Route: path, Methods: []string{method}}
		if method == http.MethodGet {
			b.Methods = append(b.Methods, http.MethodHead)
		}
		if !isAPI(path) || method == "" {
			return nil, fmt.Errorf("%q must be a method and a path below /api/", pattern)
		}
		limit := waitTime
		if slices.Contains(manyLinks, pattern) {
			limit = manyTime
		}
		if err := rt.add(api, b, route{function: webAPI, serve: serve, limit: limit}); err != nil {
			return nil, err
		}
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
	return rt, nil
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

// These match the route of a tree, and the route of an alias with a path behind it.
var (
	treeRoute     = regexp.MustCompile(`^/([^/{}]+)/\{\*\w+\}$`)
	withPathRoute = regexp.MustCompile(`^/\{\w+\}/\{\*\w+\}$`)
)

// routeParameter matches {name}, {name:constraint} and {*name:constraint} in a function.json.
var routeParameter = regexp.MustCompile(`\{(\*?)(\w+)[^}]*\}`)

func (rt *router) add(api map[string]endpoint, b binding, to route) error {
	p := "/" + strings.Trim(b.Route, "/")
	free := p != "/" && routeParameter.FindString(p) == p[1:]
	var at endpoint
	switch {
	case strings.HasPrefix(link.LowerASCII(p), "/api/"):
		p = routeParameter.ReplaceAllStringFunc(p, func(parameter string) string {
			m := routeParameter.FindStringSubmatch(parameter)
			return "{" + m[2] + strings.Repeat("...", len(m[1])) + "}"
		})
		if p != link.LowerASCII(p) {
			return fmt.Errorf("function %s: route %q must be in lower case", to.function, b.Route)
		}
		at, to.pattern = entry(api, p), p
	case free && !strings.Contains(p, "*"):
		if rt.alias == nil {
			rt.alias = endpoint{}
		}
		at = rt.alias
	case withPathRoute.MatchString(p):
		if rt.withPath == nil {
			rt.withPath = endpoint{}
		}
		at = rt.withPath
	case treeRoute.MatchString(p):
		segment := treeRoute.FindStringSubmatch(p)[1]
		if at = rt.treeOf("/" + segment); at == nil {
			at = endpoint{}
			rt.trees = append(rt.trees, tree{segment, at})
		}
	case strings.Contains(p, "{"):
		return fmt.Errorf("function %s: outside of /api/, route %q must be a fixed path, "+
			"or one segment, free or fixed, with or without all below it", to.function, b.Route)
	default:
		at = entry(rt.paths, p)
	}
	methods := b.Methods
	if len(methods) == 0 {
		methods = []string{""}
	}
	for _, method := range methods {
		method = strings.ToUpper(method)
		if taken, ok := at[method]; ok {
			return fmt.Errorf("functions %s and %s have the same route %q",
				taken.function, to.function, b.Route)
		}
		at[method] = to
	}
	return nil
}

// entry returns the endpoint at p, and adds one if there is none.
func entry(all map[string]endpoint, p string) endpoint {
	if all[p] == nil {
		all[p] = endpoint{}
	}
	return all[p]
}

// find returns the route of a request. Its errors are problems. With an error, the route has only
// the name of the function, or is zero.
func (rt *router) find(r *http.Request) (route, error) {
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
		at = rt.findAPI(r)
	case isSegment(cmp.Or(r.URL.RawPath, p)): // an escaped slash separates no segments
		at = rt.alias
	case strings.HasPrefix(p, "/"):
		at = rt.withPath
	}
	switch {
	case at == nil && isAPI(p):
		return route{}, nothingHereProblem
	case at == nil:
		return route{}, notFoundProblem
	}
	to, ok := at[r.Method]
	if !ok {
		to, ok = at[""]
	}
	if ok {
		setPathValues(r, to.pattern)
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
			value, _ := url.PathUnescape(segments[i]) // findAPI has unescaped it without an error
			r.SetPathValue(strings.TrimSuffix(name, "}"), value)
		}
	}
}

// findAPI finds the endpoint of a path below /api/. Like the host, it ignores case and a slash at
// the end.
func (rt *router) findAPI(r *http.Request) endpoint {
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
