package functions

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

func nothing(context.Context, http.ResponseWriter, *http.Request) error { return nil }

// routesOf makes a router with these routes. routes maps the name of a function to its route, or to
// its methods and route.
func routesOf(t testing.TB, routes map[string]string) (*router, error) {
	t.Helper()
	files, functions := fstest.MapFS{}, map[string]handlerFunc{}
	for name, route := range routes {
		methods, route, given := strings.Cut(route, " ")
		if !given {
			methods, route = "", methods
		}
		list := `"` + strings.ReplaceAll(methods, ",", `","`) + `"`
		if methods == "" {
			list = ""
		}
		files[name+"/function.json"] = &fstest.MapFile{Data: fmt.Appendf(nil,
			`{"bindings":[{"type":"httpTrigger","methods":[%s],"route":%q}]}`, list, route)}
		functions[name] = nothing
	}
	return newRouter(files, "", functions,
		map[string]handlerFunc{"GET /api/things/{alias}": nothing})
}

func TestRoutes(t *testing.T) {
	rt, err := routesOf(t, map[string]string{
		"home":      "/",
		"redirect":  "get,head {alias}",
		"with-path": "get,head {alias}/{*rest}",
		"list":      "get api/links",
		"create":    "post api/links",
		"read":      "get api/links/{alias:length(1,32)}",
		"restore":   "post api/links/{alias}/restore",
		"manage":    "get manage/{*path}",
		"about":     "get about/us",
		"web-api":   `api/{*path:regex(^[\w./:~+,;=@\[\]-]*$)}`,
	})
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]string{
		"GET *":                          "404",
		"GET /":                          "home",
		"GET http://go.example":          "home",
		"GET http://go.example?x":        "home",
		"POST http://go.example":         "home",
		"PURGE /":                        "home",
		"GET /abc":                       "redirect",
		"GET /API":                       "redirect",
		"GET /manage":                    "manage",
		"GET /Manage/":                   "manage",
		"GET /MANAGE/a/b":                "manage",
		"POST /manage/a":                 "405 GET",
		"GET /manage%2fa":                "manage",
		"GET /managers":                  "redirect",
		"GET /manag":                     "redirect",
		"POST /abc":                      "405 GET, HEAD",
		"GET /abc/":                      "redirect",
		"HEAD /abc/":                     "redirect",
		"POST /abc/":                     "405 GET, HEAD",
		"GET /abc%2F":                    "redirect", // one segment
		"GET /abc%2Fx":                   "redirect",
		"GET /a/b":                       "with-path",
		"HEAD /a/b/":                     "with-path",
		"GET /a%2Fb/c":                   "with-path",
		"GET /a/b%2Fc":                   "with-path",
		"GET /abc//":                     "with-path",
		"GET /abc//rest":                 "with-path",
		"GET //abc":                      "with-path",
		"GET //":                         "with-path",
		"GET /abc/../x":                  "with-path",
		"POST /a/b":                      "405 GET, HEAD",
		"OPTIONS //":                     "405 GET, HEAD",
		"GET /about/us":                  "about",
		"POST /about/us":                 "405 GET",
		"GET /about/us/":                 "with-path",
		"GET /manage//x":                 "manage",
		"GET /api/":                      "404",
		"POST /API/":                     "404",
		"GET /api//x":                    "404",
		"POST /api//x":                   "404",
		"GET /api/a!b":                   "web-api",
		"GET /api%2Fx":                   "404",
		"GET /api/links":                 "list",
		"POST /API/Links/":               "create",
		"PUT /api/links":                 "405 GET, POST, OPTIONS",
		"GET /api/links/AbC":             "read AbC",
		"GET /API/LINKS/AbC/":            "read AbC",
		"GET /api/links/A%2fB":           "read A/B",
		"POST /api/Links/AbC/RESTORE":    "restore AbC",
		"GET /api/links/AbC/restore":     "405 POST, OPTIONS",
		"DELETE /api/what/ever":          "web-api",
		"HEAD /api/things/x":             "web-api x",
		"OPTIONS /api/things/x":          "web-api",
		"GET /api/links//":               "web-api",
		"GET /api/links/../links":        "404",
		"GET /api/links/%2e%2e/restore/": "405 POST, OPTIONS",
		"GET /api/links%2FAbC":           "web-api",
		"GET /%41pi%2Flinks/abc":         "404",
		"POST /api/links/%41%2Frestore":  "405 GET, OPTIONS",
		"GET /api/lin%E2%84%AAs":         "web-api", // a Kelvin sign
	} {
		method, target, _ := strings.Cut(request, " ")
		r := httptest.NewRequest(method, target, nil)
		to, err := rt.find(r)
		got := to.function
		if p, ok := err.(*problem); ok {
			got = strings.TrimSpace(fmt.Sprint(p.Status, " ", p.header.Get("Allow")))
		} else if alias := r.PathValue("alias"); alias != "" {
			got += " " + alias
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", request, got, want)
		}
	}
}

func TestRoutesThatAreRefused(t *testing.T) {
	for name, routes := range map[string]map[string]string{
		"twice":                 {"a": "get api/x", "b": "get api/x"},
		"a tree twice":          {"a": "get x/{*p}", "b": "get X/{*q}"},
		"two free segments":     {"a": "get {a}", "b": "get {b}"},
		"a name outside of api": {"a": "get a/{b}"},
		"a catch-all at root":   {"a": "get {*path}"},
		"two of several":        {"a": "get {a}/{*p}", "b": "get {b}/{*q}"},
		"a longer free path":    {"a": "get {a}/{b}/{*p}"},
		"a deep catch-all":      {"a": "get a/b/{*path}"},
		"upper case":            {"a": "get api/Links"},
	} {
		if _, err := routesOf(t, routes); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, pattern := range []string{"GET /api/myLinks", "get stats/x", "GET /stats/x", "/api/mine",
		"GET /api/health"} {
		const file = `{"bindings":[{"type":"httpTrigger","methods":["get"],"route":"api/health"}]}`
		files := fstest.MapFS{"health/function.json": &fstest.MapFile{Data: []byte(file)}}
		if _, err := newRouter(files, "", map[string]handlerFunc{"health": nothing},
			map[string]handlerFunc{pattern: nothing}); err == nil {
			t.Errorf("%s: accepted", pattern)
		}
	}
}

// FuzzFind: paths of one segment lead to redirect, and those of several to with-path, if no other
// route takes them. A POST leads to neither. Only the host reaches the timer. A path value is the
// segment at the place that it has in its route.
func FuzzFind(f *testing.F) {
	for _, target := range []string{"/", "/abc", "/manage/x", "/MANAGE", "/api/shorten",
		"/API/Links/aB%2Fc/", "/reaper", "//", "/api//health", "/a/b", "/%41pi%2Flinks/x",
		"/api/links/%41%2Frestore", "/abc/", "/abc//", "//abc", "/abc%2Fx", "/%2F ",
		"/api/"} {
		f.Add(target)
	}
	rt, err := routesOf(f, map[string]string{"home": "/", "redirect": "get {alias}",
		"with-path": "get {alias}/{*rest}",
		"manage":    "get manage/{*path}", "read": "get api/links/{alias}",
		"restore": "post api/links/{alias}/restore"})
	if err != nil {
		f.Fatal(err)
	}
	rt.hostAddress, rt.timers = "127.0.0.1:49152",
		map[string]route{"/reaper": {function: "reaper", serve: nothing}}
	oneSegment := regexp.MustCompile(`^/[^/]+/?$`)
	f.Fuzz(func(t *testing.T, target string) {
		for _, method := range []string{"GET", "POST"} {
			u, err := url.ParseRequestURI(target)
			if err != nil || !strings.HasPrefix(u.Path, "/") {
				return
			}
			r := httptest.NewRequest(method, "/", nil)
			r.URL = u
			to, err := rt.find(r)
			if err == nil && (to.serve == nil || to.function == "reaper") {
				t.Fatalf("%s %q led to %q", method, target, to.function)
			}
			if p := u.Path; err == nil && p != "/" && rt.treeOf(p) == nil && !isAPI(p) {
				want := "with-path"
				if oneSegment.MatchString(cmp.Or(u.RawPath, u.EscapedPath())) {
					want = "redirect"
				}
				if method == "POST" || to.function != want {
					t.Fatalf("%s %q led to %q, want %q", method, target, to.function, want)
				}
			}
			if alias := r.PathValue("alias"); alias != "" {
				if segment, err := url.PathUnescape(strings.Split(u.EscapedPath(),
					"/")[3]); err != nil || segment != alias {
					t.Fatalf("%q has the alias %q", target, alias)
				}
			}
		}
	})
}

func BenchmarkFind(b *testing.B) {
	rt, err := routesOf(b, map[string]string{"redirect": "get {alias}",
		"manage": "get manage/{*path}", "shorten": "post api/shorten", "home": "/"})
	if err != nil {
		b.Fatal(err)
	}
	for _, test := range []struct{ name, method, path, function string }{
		{"alias", "GET", "/6GV88b", "redirect"},
		{"fixed path", "POST", "/api/shorten", "shorten"},
		{"unknown path", "GET", "/no/such/path", ""},
	} {
		b.Run(test.name, func(b *testing.B) {
			r := httptest.NewRequest(test.method, test.path, nil)
			b.ReportAllocs()
			for b.Loop() {
				if to, _ := rt.find(r); to.function != test.function {
					b.Fatal(to.function)
				}
			}
		})
	}
}

func BenchmarkDecodeJSON(b *testing.B) {
	for _, test := range []struct{ name, body string }{
		{"URL", `{"longUrl":"https://example.com/a/long/path?with=a&query"}`},
		{"URL and lifetime", `{"longUrl":"https://example.com/a/long/path?with=a&query",` +
			`"expiresInSeconds":3600}`},
		{"long URL", `{"longUrl":"https://example.com/` + strings.Repeat("x", 4000) +
			`","expiresInSeconds":3600}`},
	} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("POST", "/api/shorten", strings.NewReader(test.body))
				r.Header.Set("Content-Type", "application/json")
				if _, err := decodeJSON[shortenRequest](nil, r, maxBody); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
