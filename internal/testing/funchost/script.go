package funchost

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// script is a script root as the host understands it.
type script struct {
	root       string // absolute
	executable string
	functions  []*function // in the order in which the host tries their routes
}

type function struct {
	name    string
	trigger binding
	route   func(path string) bool // reports a match; nil for a timer
}

// binding is one entry of function.json, of any type.
type binding struct {
	Name, Type, Direction string
	AuthLevel             string
	Route                 string
	Methods               []string // nil: every method
	Schedule              string
}

var (
	functionName = regexp.MustCompile(`(?i)^[a-z][a-z0-9_-]{0,127}$`)
	bindingName  = regexp.MustCompile(`(?i)^([a-z][a-z0-9]{0,127}|\$return)$`)
)

// readScript reads and checks a script root.
func readScript(dir string) (*script, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	var host struct {
		Version       string
		CustomHandler json.RawMessage
		Extensions    struct {
			HTTP struct{ RoutePrefix *string }
		}
	}
	files := os.DirFS(root)
	if err := readJSON(files, "host.json", &host); err != nil {
		return nil, err
	}
	if host.Version != "2.0" {
		return nil, fmt.Errorf("host.json: version is %q, the host takes only \"2.0\"",
			host.Version)
	}
	if p := host.Extensions.HTTP.RoutePrefix; p == nil || *p != "" {
		return nil, errors.New("host.json: the double takes only an empty " +
			"extensions.http.routePrefix")
	}
	var handler struct {
		Description                                            struct{ DefaultExecutablePath string }
		EnableForwardingHTTPRequest, EnableProxyingHTTPRequest bool
	}
	section := json.NewDecoder(bytes.NewReader(host.CustomHandler))
	section.DisallowUnknownFields() // they are typos, or the double does not support them
	if err := section.Decode(&handler); err != nil {
		return nil, fmt.Errorf("host.json: customHandler: %w", err)
	}
	if !handler.EnableForwardingHTTPRequest || !handler.EnableProxyingHTTPRequest {
		return nil, errors.New("host.json: enableForwardingHttpRequest is for older hosts and " +
			"enableProxyingHttpRequest for newer ones: set both")
	}
	s := &script{root: root, executable: handler.Description.DefaultExecutablePath}
	if !filepath.IsAbs(s.executable) {
		s.executable = filepath.Join(root, s.executable)
	}
	if info, err := os.Stat(s.executable); err != nil || info.IsDir() {
		return nil, fmt.Errorf("host.json: defaultExecutablePath %q is not a file in the script "+
			"root", handler.Description.DefaultExecutablePath)
	}
	names, _ := fs.Glob(files, "*/function.json") // it fails only for a bad pattern
	for _, name := range names {
		f, err := readFunction(files, path.Dir(name))
		if err != nil {
			return nil, fmt.Errorf("function %q: %w", path.Dir(name), err)
		}
		s.functions = append(s.functions, f)
	}
	slices.SortFunc(s.functions, func(a, b *function) int {
		return cmp.Compare(strings.ToUpper(a.name), strings.ToUpper(b.name))
	})
	return s, nil
}

func readFunction(files fs.FS, name string) (*function, error) {
	if !functionName.MatchString(name) || strings.EqualFold(name, "host") {
		return nil, errors.New("not a valid function name")
	}
	var file struct{ Bindings []binding }
	if err := readJSON(files, name+"/function.json", &file); err != nil {
		return nil, err
	}
	f := &function{name: name}
	var kinds []string
	for _, b := range file.Bindings {
		if !bindingName.MatchString(b.Name) {
			return nil, fmt.Errorf("binding name %q: letters and digits only", b.Name)
		}
		kind := strings.ToLower(b.Type + " " + b.Direction)
		if strings.HasSuffix(kind, "trigger in") {
			f.trigger = b
		}
		kinds = append(kinds, kind)
	}
	slices.Sort(kinds)
	switch strings.Join(kinds, ", ") {
	case "http out, httptrigger in":
		return f, f.readHTTP()
	case "timertrigger in":
		// A schedule in percent signs names an app setting. Checking it is left to the host.
		if s := f.trigger.Schedule; !strings.HasPrefix(s, "%") && len(strings.Fields(s)) != 6 {
			return nil, fmt.Errorf("schedule %q has not six fields, seconds first", s)
		}
		return f, nil
	}
	return nil, fmt.Errorf("bindings %q: the double takes an httpTrigger in with an http out, or "+
		"a timerTrigger in", kinds)
}

// readHTTP checks the trigger of an HTTP function and fills in the host's defaults.
func (f *function) readHTTP() (err error) {
	f.trigger.AuthLevel = strings.ToLower(cmp.Or(f.trigger.AuthLevel, "function"))
	// Only a missing route defaults to the name. "/" is the root.
	template := strings.Trim(cmp.Or(f.trigger.Route, f.name), "/")
	for _, reserved := range []string{"admin", "runtime"} {
		if strings.HasPrefix(strings.ToLower(template), reserved) {
			return fmt.Errorf("route %q conflicts with the built-in routes below %s", template,
				reserved)
		}
	}
	f.route, err = compileRoute(template)
	return err
}

var variable = regexp.MustCompile(`(?i)\{(\*?)[a-z_][a-z0-9_]*(?::regex\(([^{}]*)\))?\}`)

// compileRoute returns a function that reports whether a path matches the route template.
func compileRoute(template string) (func(path string) bool, error) {
	var constraints []*regexp.Regexp // one for each group of the expression
	expression, literals, rest := "(?is)^", "", strings.TrimSuffix("/"+template, "/")
	for _, v := range variable.FindAllStringSubmatch(template, -1) {
		literal, after, _ := strings.Cut(rest, v[0])
		rest = after
		catchAll, constraint := v[1] != "", v[2]
		value := "([^/]+)"
		switch {
		case catchAll && rest != "":
			return nil, fmt.Errorf("route %q: a catch-all stands at the end", template)
		// The first segment of a catch-all is not empty; the others may be.
		case catchAll && constraint == "":
			literal, value = strings.TrimSuffix(literal, "/"), "(?:/([^/].*))?"
		case catchAll: // a constraint fails without a value
			value = "([^/].*)"
		}
		// In .NET, \w includes all letters and digits of Unicode. The replacement is valid only
		// inside a character class.
		compiled, err := regexp.Compile("(?i)" + strings.ReplaceAll(constraint, `\w`,
			`\p{L}\p{Mn}\p{Nd}\p{Pc}`))
		if err != nil {
			return nil, fmt.Errorf("route %q: %w", template, err)
		}
		constraints = append(constraints, compiled)
		expression += regexp.QuoteMeta(literal) + value
		literals += literal
	}
	if strings.ContainsAny(literals+rest, "{}*?") {
		return nil, fmt.Errorf("route %q: the double knows {name} and {*name}, alone or with a "+
			"regex", template)
	}
	compiled := regexp.MustCompile(expression + regexp.QuoteMeta(rest) + "$")
	return func(path string) bool {
		values := compiled.FindStringSubmatch(strings.TrimSuffix(path, "/"))
		for i := 1; i < len(values); i++ {
			if !constraints[i-1].MatchString(values[i]) {
				return false
			}
		}
		return values != nil
	}, nil
}

// find returns the function that takes the request, or nil. If routes overlap, the order of
// function names decides, not how specific the routes are.
func (s *script) find(method, path string) *function {
	sameMethod := func(m string) bool { return strings.EqualFold(m, method) }
	for _, f := range s.functions {
		if f.route != nil && (f.trigger.Methods == nil || slices.ContainsFunc(f.trigger.Methods,
			sameMethod)) && f.route(path) {
			return f
		}
	}
	return nil
}

func readJSON(files fs.FS, name string, v any) error {
	b, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%s: %w", path.Base(name), err)
	}
	return nil
}
