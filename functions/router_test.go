package functions

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

func nothing(context.Context, http.ResponseWriter, *http.Request) error { return nil }

// routesOf makes a router of these patterns, by function.
func routesOf(patterns map[string]string) *router {
	var routes []route
	for function, pattern := range patterns {
		routes = append(routes, route{function: function, pattern: pattern, serve: nothing})
	}
	return newRouter("", routes)
}

func TestRoutes(t *testing.T) {
	rt := routesOf(map[string]string{
		"home":      "/",
		"redirect":  "GET /{alias}",
		"with-path": "GET /{alias}/{rest...}",
		"list":      "GET /api/links",
		"create":    "POST /api/links",
		"read":      "GET /api/links/{alias}",
		"restore":   "POST /api/links/{alias}/restore",
		"thing":     "GET /api/things/{alias}",
		"manage":    "GET /manage/{path...}",
		"about":     "GET /about/us",
		"web-api":   "/api/{path...}",
	})
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
		"POST /manage/a":                 "405 GET, HEAD",
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
		"POST /about/us":                 "405 GET, HEAD",
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
		"PUT /api/links":                 "405 GET, HEAD, POST, OPTIONS",
		"GET /api/links/AbC":             "read AbC",
		"GET /API/LINKS/AbC/":            "read AbC",
		"GET /api/links/A%2fB":           "read A/B",
		"POST /api/Links/AbC/RESTORE":    "restore AbC",
		"GET /api/links/AbC/restore":     "405 POST, OPTIONS",
		"DELETE /api/what/ever":          "web-api",
		"HEAD /api/things/x":             "thing x",
		"OPTIONS /api/things/x":          "thing",
		"GET /api/links//":               "web-api",
		"GET /api/links/../links":        "404",
		"GET /api/links/%2e%2e/restore/": "405 POST, OPTIONS",
		"GET /api/links%2FAbC":           "web-api",
		"GET /%41pi%2Flinks/abc":         "404",
		"POST /api/links/%41%2Frestore":  "405 GET, HEAD, OPTIONS",
		"GET /api/lin%E2%84%AAs":         "web-api", // a Kelvin sign
	} {
		method, target, _ := strings.Cut(request, " ")
		r := httptest.NewRequest(method, target, nil)
		to, err := rt.match(r)
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
	for name, routes := range map[string][]string{
		"twice":                 {"GET /api/x", "GET /api/x"},
		"two alike":             {"GET /api/{a}", "GET /api/{b}"},
		"a tree twice":          {"GET /x/{path...}", "GET /x/{path...}"},
		"a name outside of api": {"GET /a/{b}"},
		"a catch-all at root":   {"GET /{path...}"},
		"upper case":            {"GET /api/Links"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("accepted")
				}
			}()
			var all []route
			for _, pattern := range routes {
				all = append(all, route{pattern: pattern, serve: nothing})
			}
			newRouter("", all)
		})
	}
}

// The Functions host matches requests by the function.json files. They have the same routes, and
// the timer has the same time.
func TestFunctionFiles(t *testing.T) {
	folders, err := filepath.Glob("*/function.json")
	if err != nil || len(folders) == 0 {
		t.Fatal(folders, err)
	}
	want := map[string][]string{}
	for _, to := range (&service{}).all() {
		switch method, path, _ := strings.Cut(to.pattern, " "); {
		case to.timer:
			want[to.function] = []string{fmt.Sprintf("0 */%d * * * *", int(ReapEvery.Minutes()))}
		case slices.Contains([]string{"/favicon.ico", "/robots.txt", "/opensearch.xml"}, path),
			strings.HasPrefix(path, "/.well-known/"),
			to.function == webAPI && path != "": // by a route with parameters
		case method == "GET":
			want[to.function] = []string{path, "get", "head"}
		case path == "":
			want[to.function] = []string{to.pattern}
		default:
			want[to.function] = []string{path, strings.ToLower(method)}
		}
	}
	got := map[string][]string{}
	parameter := regexp.MustCompile(`\{(\*?)(\w+)[^}]*\}`)
	for _, file := range folders {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var function struct {
			Bindings []struct {
				Type, Route, Schedule string
				Methods               []string
			}
		}
		if err := json.Unmarshal(data, &function, json.MatchCaseInsensitiveNames(true)); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		trigger, name := function.Bindings[0], filepath.Dir(file)
		if trigger.Type == "timerTrigger" {
			got[name] = []string{trigger.Schedule}
			continue
		}
		path := parameter.ReplaceAllStringFunc("/"+strings.Trim(trigger.Route, "/"),
			func(found string) string {
				m := parameter.FindStringSubmatch(found)
				return "{" + m[2] + strings.Repeat("...", len(m[1])) + "}"
			})
		got[name] = append([]string{path}, trigger.Methods...)
	}
	for name := range maps.Keys(got) {
		if !slices.Equal(got[name], want[name]) {
			t.Errorf("%s/function.json has %q, the code %q", name, got[name], want[name])
		}
	}
	if len(got) != len(want) {
		t.Errorf("the files have %d functions, the code %d", len(got), len(want))
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
	rt := routesOf(map[string]string{"home": "/", "redirect": "GET /{alias}",
		"with-path": "GET /{alias}/{rest...}",
		"manage":    "GET /manage/{path...}", "read": "GET /api/links/{alias}",
		"restore": "POST /api/links/{alias}/restore"})
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
			to, err := rt.match(r)
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
	rt := routesOf(map[string]string{"redirect": "GET /{alias}",
		"manage": "GET /manage/{path...}", "shorten": "POST /api/shorten", "home": "/"})
	for _, test := range []struct{ name, method, path, function string }{
		{"alias", "GET", "/6GV88b", "redirect"},
		{"fixed path", "POST", "/api/shorten", "shorten"},
		{"unknown path", "GET", "/no/such/path", ""},
	} {
		b.Run(test.name, func(b *testing.B) {
			r := httptest.NewRequest(test.method, test.path, nil)
			b.ReportAllocs()
			for b.Loop() {
				if to, _ := rt.match(r); to.function != test.function {
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
				c := &call{ctx: b.Context(), r: r}
				if _, err := decodeJSON[shortenRequest](c, maxBody); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
