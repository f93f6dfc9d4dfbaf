package funchost_test

import (
	"strings"
	"testing"

	"tiney/internal/testing/funchost"
)

func TestStartRejectsScriptRoot(t *testing.T) {
	t.Parallel()
	anonymous := httpJSON(`,"authLevel":"anonymous"`)
	host := func(old, new string) app {
		return all().with("host.json", strings.Replace(hostJSON, old, new, 1))
	}
	function := func(name, content string) app { return all().with(name+"/function.json", content) }
	route := func(r string) app { return function("f", httpJSON(`,"route":"`+r+`"`)) }
	tests := []struct {
		name string
		app  app
		want string
	}{
		{"no host.json", app{}, "host.json"},
		{"no version", host(`"version":"2.0",`, ""), "version"},
		{"route prefix left out", host(`"routePrefix":""`, ""), "routePrefix"},
		{"no custom handler", host(`"customHandler"`, `"handler"`), "customHandler"},
		{"no proxying", host(`"enableProxyingHttpRequest":true`,
			`"enableProxyingHttpRequest":false`), "enableProxyingHttpRequest"},
		{"no forwarding", host(`"enableForwardingHttpRequest":true,`, ""),
			"enableForwardingHttpRequest"},
		{"malformed function.json", function("bad", "["), `function "bad"`},
		{"function name with a dot", function("a.b", anonymous), `function "a.b"`},
		{"binding name with an underscore",
			function("f", strings.Replace(anonymous, `"req"`, `"my_req"`, 1)),
			`function "f": binding name "my_req"`},
		{"trigger goes out", function("f", strings.Replace(anonymous, `"in"`, `"out"`, 1)),
			`function "f": bindings`},
		{"five fields", function("f", strings.Replace(timerJSON, "0 */15", "*/15", 1)),
			`function "f": schedule`},
		{"admin route", route("/Admin/x"), `function "f": route "Admin/x"`},
		{"catch-all in the middle", route("{*rest}/x"), `function "f": route "{*rest}/x"`},
		{"optional variable", route("x/{id?}"), `function "f": route "x/{id?}"`},
		{"malformed constraint", route("{id:regex([)}"), `function "f": route "{id:regex([)}"`},
	}
	for _, tt := range tests {
		h, err := funchost.Start(t.Context(), funchost.Options{ScriptRoot: tt.app.write(t),
			Env: env("serve")})
		if err == nil {
			h.Close()
			t.Errorf("%s: accepted", tt.name)
		} else if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %q does not name %q", tt.name, err, tt.want)
		}
	}
}

func TestRouting(t *testing.T) {
	t.Parallel()
	anonymous := func(attributes string) string {
		return httpJSON(`,"authLevel":"anonymous"` + attributes)
	}
	h := start(t, app{
		"host.json":              hostJSON,
		"lib/deep/function.json": "not read: it is not in a direct child of the root",
		"aaa/function.json":      anonymous(`,"route":"first","methods":["post"]`),
		"alias/function.json":    anonymous(`,"route":"{alias}","methods":["get","HEAD"]`),
		// It comes after "alias": the order ignores case.
		"Beta/function.json":          httpJSON(`,"route":"beta"`),
		"api/function.json":           anonymous(`,"route":"API/shorten/{id}"`),
		"named/function.json":         anonymous(`,"methods":["put"]`),
		"root/function.json":          anonymous(`,"route":"/","methods":["get"]`),
		"locked/function.json":        httpJSON(`,"route":"locked/default"`),
		"rest/function.json":          anonymous(`,"route":"rest/{*path}"`),
		"expression/function.json":    anonymous(`,"route":"c/regex/{n:regex(^[a-f]+$)}/end"`),
		"expressionAll/function.json": anonymous(`,"route":"c/all/{*n:regex(^[\\w./-]*$)}"`),
		"reaper/function.json":        timerJSON,
	}, funchost.Options{Proxy: true})
	tests := []struct {
		name, method, path string
		want               int
	}{
		{"root", "GET", "/", 200},
		{"variable", "GET", "/abc", 200},
		{"variable with a trailing slash", "GET", "/abc/", 200},
		{"variable holds an escaped slash", "GET", "/a%2Fb", 200},
		{"method in another case", "HEAD", "/abc", 200},
		{"wrong method", "DELETE", "/abc", 404},
		{"first name wins", "GET", "/beta", 200},
		{"second name takes what is left", "POST", "/beta", 401},
		{"wrong method goes on to the next route", "GET", "/first", 200},
		{"no methods", "PROPFIND", "/api/shorten/x", 200},
		{"literal in another case", "POST", "/api/SHORTEN/x", 200},
		{"literal with escapes", "POST", "/%61pi/shorten/x", 200},
		{"dot segments", "POST", "/x/../api/%2e/shorten/x", 200},
		{"empty segment is no value", "GET", "/api/shorten//", 404},
		{"too few segments", "GET", "/api/shorten", 404},
		{"too many segments", "GET", "/api/shorten/x/y", 404},
		{"route left out", "PUT", "/named", 200},
		{"timer from outside", "POST", "/reaper", 404},
		{"authLevel left out", "GET", "/locked/default", 401},
		{"catch-all", "PATCH", "/rest/a/b//c", 200},
		{"catch-all in another case with a trailing slash", "PATCH", "/REST/", 200},
		{"catch-all wants a slash", "PATCH", "/resty", 404},
		{"regex in another case", "GET", "/c/regex/ABC/end", 200},
		{"regex: no match", "GET", "/c/regex/xyz/end", 404},
		{"regex of a catch-all", "GET", "/c/all/m%C3%BCnchen.example/x-1", 200},
		{"regex of a catch-all: no match", "GET", "/c/all/a%5Cb", 404},
		{"regex of a catch-all without a value", "GET", "/c/all", 404},
	}
	for _, tt := range tests {
		a := do(t, tt.method, h.URL()+tt.path, nil)
		if a.StatusCode != tt.want {
			t.Errorf("%s: status %d, want %d", tt.name, a.StatusCode, tt.want)
		}
		if a.StatusCode != 200 && (a.body != "" || a.Header.Get("Content-Type") != "") {
			t.Errorf("%s: the host's own response has a body: %q %q", tt.name, a.Header, a.body)
		}
	}
}

func TestHomePage(t *testing.T) {
	bothModes(t, func(t *testing.T, proxy bool) {
		root := all().with("root/function.json",
			httpJSON(`,"authLevel":"anonymous","route":"/","methods":["get"]`))
		h := start(t, root, funchost.Options{Proxy: proxy})
		if s := arrived(t, h, "GET", "/", nil); s.URI != "/" {
			t.Errorf("the function's own method: %+v", s)
		}
		if a := do(t, "POST", h.URL()+"/", nil); a.StatusCode != 200 ||
			a.Header.Get("Content-Type") != "text/html" || !strings.Contains(a.body, "<title>") {
			t.Errorf("another method: status %s, headers %v, body %q", a.Status, a.Header, a.body)
		}
		h = start(t, root, funchost.Options{Proxy: proxy,
			Env: env("serve", "AzureWebJobsDisableHomepage=true")})
		if a := do(t, "POST", h.URL()+"/", nil); a.StatusCode != 204 {
			t.Errorf("home page disabled: status %s, body %q", a.Status, a.body)
		}
	})
}
