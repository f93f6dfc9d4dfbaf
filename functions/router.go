package functions

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
)

// functionFiles are the function.json files: what the Functions host reads for its routes, this handler reads for its
// own, so that the two cannot differ.
//
//go:embed */function.json
var functionFiles embed.FS

// binding is one of a function.json's bindings, as far as it matters here.
type binding struct {
	Type     string
	Route    string
	Methods  []string
	Schedule string
}

// bindings returns the bindings of a function.
func bindings(function string) ([]binding, error) {
	data, err := functionFiles.ReadFile(path.Join(function, "function.json"))
	if err != nil {
		return nil, err
	}
	var file struct{ Bindings []binding }
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("%s/function.json: %w", function, err)
	}
	return file.Bindings, nil
}

// router finds functions by path. It is not http.ServeMux, since that one redirects a path that is not clean to a
// clean one, and here a path that is no alias is a 404; and since there are few routes, all of them a fixed path or
// one free segment.
type router struct {
	paths   map[string]route
	segment route // for any other path of one segment
}

type route struct {
	function string
	methods  []string // upper case
	answerer
}

// newRouter routes to the given functions. A timer's function is reached by its name, and only where the Functions
// host is in front to fire it.
func newRouter(functions map[string]answerer, hosted bool) (*router, error) {
	rt := &router{paths: map[string]route{}}
	for name, f := range functions {
		all, err := bindings(name)
		if err != nil {
			return nil, err
		}
		for _, b := range all {
			switch b.Type {
			case "httpTrigger":
				if len(b.Methods) == 0 {
					return nil, fmt.Errorf("function %s: name the methods that it takes", name)
				}
				var methods []string
				for _, m := range b.Methods {
					methods = append(methods, strings.ToUpper(m))
				}
				if err := rt.add(b.Route, route{name, methods, f}); err != nil {
					return nil, err
				}
			case "timerTrigger":
				if !hosted {
					continue
				}
				if err := rt.add(name, route{name, []string{http.MethodPost}, f}); err != nil {
					return nil, err
				}
			}
		}
	}
	return rt, nil
}

func (rt *router) add(template string, to route) error {
	p := "/" + strings.Trim(template, "/")
	free := strings.HasPrefix(p, "/{") && strings.IndexByte(p, '}') == len(p)-1
	_, taken := rt.paths[p]
	switch {
	case strings.ContainsAny(p, "{}") && !free:
		return fmt.Errorf("function %s: route %q is neither a fixed path nor one free segment", to.function, template)
	case taken || free && rt.segment.answerer != nil:
		return fmt.Errorf("function %s: route %q is another function's too", to.function, template)
	case free:
		rt.segment = to
	default:
		rt.paths[p] = to
	}
	return nil
}

// find returns the function for a request. The error is a problem to answer with.
func (rt *router) find(r *http.Request) (string, answerer, error) {
	p := r.URL.Path
	to, ok := rt.paths[p]
	if isSegment(p) && !(ok && slices.Contains(to.methods, r.Method)) {
		to, ok = rt.segment, true // a timer's name is an alias too, for anybody but the host
	}
	switch {
	case !ok:
		return "", nil, notFoundProblem
	case !slices.Contains(to.methods, r.Method):
		return to.function, nil, methodProblem(to.methods)
	}
	return to.function, to.answerer, nil
}

func isSegment(p string) bool {
	return len(p) > 1 && p[0] == '/' && strings.IndexByte(p[1:], '/') < 0
}
