package funchost

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// script is a script root as the host understands it.
type script struct {
	root       string // absolute
	executable string
	forwarding bool
	proxying   bool
	functions  []*function // in the order in which their routes are tried
}

type function struct {
	name    string
	trigger binding
	// route holds the segments of an HTTP trigger's whole path, prefix included. A segment in
	// braces matches any one segment.
	route []string
}

// binding is one entry of function.json, of any type.
type binding struct {
	Name, Type, Direction string
	AuthLevel             string
	Route                 string
	Methods               []string // nil: every method
	Schedule              string
}

func (b binding) is(kind string) bool { return strings.EqualFold(b.Type, kind) }

// hostJSON is the part of host.json that the double acts on, or refuses because it does not.
type hostJSON struct {
	Version       string
	CustomHandler *struct {
		Description struct {
			DefaultExecutablePath, DefaultWorkerPath, WorkingDirectory string
			Arguments, WorkerArguments                                 []string
		}
		EnableForwardingHTTPRequest bool
		EnableProxyingHTTPRequest   bool
		Port                        json.RawMessage
		HTTP                        struct{ Routes []json.RawMessage }
	}
	Extensions struct {
		HTTP struct{ RoutePrefix *string }
	}
}

var (
	functionName  = regexp.MustCompile(`(?i)^[a-z][a-z0-9_-]{0,127}$`)
	bindingName   = regexp.MustCompile(`^([a-zA-Z][a-zA-Z0-9]{0,127}|\$return)$`)
	routeVariable = regexp.MustCompile(`^\{[a-zA-Z_][a-zA-Z0-9_]*\}$`)
)

// readScript reads and checks a script root. Where the host would only put one function in error
// and go on, readScript refuses the lot: a test wants to hear of it.
func readScript(dir string, env []string) (*script, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var host hostJSON
	if err := readJSON(filepath.Join(root, "host.json"), &host); err != nil {
		return nil, err
	}
	if host.Version != "2.0" {
		return nil, fmt.Errorf("host.json: version is %q, the host takes only \"2.0\"", host.Version)
	}
	if host.CustomHandler == nil {
		return nil, errors.New("host.json: no customHandler section")
	}
	if err := host.override(env); err != nil {
		return nil, err
	}
	handler, description := host.CustomHandler, host.CustomHandler.Description
	if len(description.Arguments)+len(description.WorkerArguments) > 0 || handler.Port != nil ||
		description.DefaultWorkerPath+description.WorkingDirectory != "" {
		return nil, errors.New("host.json: customHandler: the double knows no arguments, workerArguments, " +
			"defaultWorkerPath, workingDirectory or port")
	}

	s := &script{root: root, forwarding: handler.EnableForwardingHTTPRequest, proxying: handler.EnableProxyingHTTPRequest}
	prefix := "api"
	if p := host.Extensions.HTTP.RoutePrefix; p != nil {
		prefix = *p
	}
	if s.functions, err = readFunctions(root, prefix); err != nil {
		return nil, err
	}
	if len(handler.HTTP.Routes) > 0 {
		if len(s.functions) > 0 {
			return nil, fmt.Errorf("host.json: customHandler.http.routes cannot stand beside function.json files: function %q has one", s.functions[0].name)
		}
		return nil, errors.New("host.json: customHandler.http.routes: the double knows function.json only")
	}
	s.executable, err = findExecutable(root, description.DefaultExecutablePath, env)
	return s, err
}

// override applies the app settings that stand in for values of host.json.
func (h *hostJSON) override(env []string) error {
	for _, setting := range env {
		name, value, _ := strings.Cut(setting, "=")
		var err error
		switch strings.ToLower(name) {
		case "azurefunctionsjobhost__customhandler__description__defaultexecutablepath":
			h.CustomHandler.Description.DefaultExecutablePath = value
		case "azurefunctionsjobhost__customhandler__enableforwardinghttprequest":
			h.CustomHandler.EnableForwardingHTTPRequest, err = strconv.ParseBool(value)
		case "azurefunctionsjobhost__customhandler__enableproxyinghttprequest":
			h.CustomHandler.EnableProxyingHTTPRequest, err = strconv.ParseBool(value)
		case "azurefunctionsjobhost__extensions__http__routeprefix":
			h.Extensions.HTTP.RoutePrefix = &value
		}
		if err != nil {
			return fmt.Errorf("app setting %s: %w", name, err)
		}
	}
	return nil
}

// findExecutable follows the host: below the script root if the file is there, else on PATH, and
// never with a guessed suffix.
func findExecutable(root, name string, env []string) (string, error) {
	if name == "" {
		return "", errors.New("host.json: customHandler.description.defaultExecutablePath is empty")
	}
	if filepath.IsAbs(name) {
		return name, nil
	}
	joined := filepath.Join(root, name)
	if _, err := os.Stat(joined); err == nil {
		return joined, nil
	}
	if filepath.Base(name) == name {
		for _, dir := range filepath.SplitList(lookup(env, "PATH")) {
			if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
				return found, nil
			}
		}
	}
	return "", fmt.Errorf("host.json: defaultExecutablePath %q is neither in the script root nor on PATH", name)
}

// lookup returns the value a child started with env would see: the last one wins.
func lookup(env []string, name string) (value string) {
	for _, setting := range env {
		if n, v, _ := strings.Cut(setting, "="); n == name {
			value = v
		}
	}
	return value
}

// readFunctions reads the direct children of root that hold a function.json.
func readFunctions(root, prefix string) ([]*function, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var functions []*function
	for _, entry := range entries {
		var file struct{ Bindings []binding }
		switch err := readJSON(filepath.Join(root, entry.Name(), "function.json"), &file); {
		case errors.Is(err, fs.ErrNotExist), !isDir(filepath.Join(root, entry.Name())):
			continue
		case err != nil:
			return nil, fmt.Errorf("function %q: %w", entry.Name(), err)
		}
		f, err := newFunction(entry.Name(), prefix, file.Bindings)
		if err != nil {
			return nil, fmt.Errorf("function %q: %w", entry.Name(), err)
		}
		functions = append(functions, f)
	}
	slices.SortFunc(functions, func(a, b *function) int {
		return cmp.Compare(strings.ToUpper(a.name), strings.ToUpper(b.name))
	})
	return functions, nil
}

func newFunction(name, prefix string, bindings []binding) (*function, error) {
	if !functionName.MatchString(name) || strings.EqualFold(name, "host") {
		return nil, errors.New("not a valid function name")
	}
	var triggers, in, out []binding
	for _, b := range bindings {
		if !bindingName.MatchString(b.Name) {
			return nil, fmt.Errorf("binding name %q: letters and digits only", b.Name)
		}
		isTrigger := strings.HasSuffix(strings.ToLower(b.Type), "trigger")
		direction := strings.ToLower(b.Direction)
		if isTrigger && direction != "in" {
			return nil, fmt.Errorf("binding %q: direction of a trigger is \"in\", not %q", b.Name, b.Direction)
		}
		switch direction {
		case "in", "":
			in = append(in, b)
		case "out":
			out = append(out, b)
		case "inout":
			in, out = append(in, b), append(out, b)
		default:
			return nil, fmt.Errorf("binding %q: unknown direction %q", b.Name, b.Direction)
		}
		if isTrigger {
			triggers = append(triggers, b)
		}
	}
	if len(triggers) != 1 {
		return nil, fmt.Errorf("%d triggers, the host takes exactly one", len(triggers))
	}
	f := &function{name: name, trigger: triggers[0]}
	switch {
	case f.trigger.is("httpTrigger"):
		if len(in) != 1 || len(out) != 1 || !out[0].is("http") {
			return nil, errors.New("only exactly one httpTrigger in and one http out is forwarded as a request")
		}
		return f, f.readHTTP(prefix)
	case f.trigger.is("timerTrigger"):
		if len(bindings) != 1 {
			return nil, errors.New("the double knows no other binding beside a timerTrigger")
		}
		// A schedule in percent signs names an app setting and is left to the host.
		if s := f.trigger.Schedule; !strings.HasPrefix(s, "%") && len(strings.Fields(s)) != 6 {
			return nil, fmt.Errorf("schedule %q has not six fields, seconds first", s)
		}
		return f, nil
	default:
		return nil, fmt.Errorf("the double knows no trigger of type %q", f.trigger.Type)
	}
}

// readHTTP checks the trigger of an HTTP function, fills in the host's defaults and sets f.route.
func (f *function) readHTTP(prefix string) error {
	t := &f.trigger
	t.AuthLevel = strings.ToLower(cmp.Or(t.AuthLevel, "function"))
	// Only a missing route falls back to the name: "/" is the root.
	route := strings.Trim(cmp.Or(t.Route, f.name), "/")
	for _, reserved := range []string{"admin", "runtime"} {
		if strings.HasPrefix(strings.ToLower(route), reserved) {
			return fmt.Errorf("route %q conflicts with the built-in routes below %s", t.Route, reserved)
		}
	}
	f.route = append(segments(strings.Trim(prefix, "/")), segments(route)...)
	for _, segment := range f.route {
		if segment == "" || strings.ContainsAny(segment, "{}*?") && !routeVariable.MatchString(segment) {
			return fmt.Errorf("route %q: the double knows literal and {name} segments only", t.Route)
		}
	}
	return nil
}

func (f *function) takes(method string) bool {
	return f.trigger.Methods == nil ||
		slices.ContainsFunc(f.trigger.Methods, func(m string) bool { return strings.EqualFold(m, method) })
}

// find returns the function that answers the request, or nil. The order of function names decides
// between routes that overlap, not how specific they are.
func (s *script) find(r *http.Request) *function {
	path := strings.TrimSuffix(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for _, f := range s.functions {
		if f.trigger.is("httpTrigger") && f.takes(r.Method) && slices.EqualFunc(f.route, segments(path), segmentMatches) {
			return f
		}
	}
	return nil
}

func segmentMatches(template, escaped string) bool {
	if template[0] == '{' {
		return escaped != ""
	}
	segment, err := url.PathUnescape(escaped)
	return err == nil && strings.EqualFold(template, segment)
}

// segments splits a path without its outer slashes; the root has none.
func segments(path string) []string {
	if path == "" {
		return []string{}
	}
	return strings.Split(path, "/")
}

func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}
