package funchost_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tiney/internal/funchost"
)

func TestStartRefuses(t *testing.T) {
	t.Parallel()
	anonymous := httpJSON(`,"authLevel":"anonymous"`)
	two := strings.Replace(anonymous, `"bindings":[`, `"bindings":[{"name":"q","type":"queue","direction":"out"},`, 1)
	tests := []struct {
		name string
		app  app
		want string
	}{
		{"no host.json", app{}, "host.json"},
		{"malformed host.json", app{"host.json": "{"}, "host.json"},
		{"no version", app{"host.json": strings.Replace(hostJSON, `"version":"2.0",`, "", 1)}, "version"},
		{"no custom handler", app{"host.json": `{"version":"2.0"}`}, "customHandler"},
		{"no executable named", app{"host.json": strings.Replace(hostJSON, `"handler"`, `""`, 1)}, "defaultExecutablePath"},
		{"executable nowhere", app{"host.json": strings.Replace(hostJSON, `"handler"`, `"elsewhere"`, 1)}, `"elsewhere"`},
		{"arguments", app{"host.json": strings.Replace(hostJSON, `"description":{`, `"description":{"arguments":["x"],`, 1)}, "arguments"},
		{"routes beside function.json", all().with("host.json",
			strings.Replace(hostJSON, `"customHandler":{`, `"customHandler":{"http":{"routes":[{"route":"{*all}"}]},`, 1)), `function "array"`},
		{"malformed function.json", all().with("bad/function.json", "["), `function "bad"`},
		{"function name with a dot", all().with("a.b/function.json", anonymous), `function "a.b"`},
		{"function name with a digit first", all().with("1st/function.json", anonymous), `function "1st"`},
		{"function name host", all().with("Host/function.json", anonymous), `function "Host"`},
		{"binding name with an underscore", all().with("f/function.json", strings.Replace(anonymous, `"req"`, `"my_req"`, 1)), `function "f": binding name "my_req"`},
		{"unknown direction", all().with("f/function.json", strings.Replace(anonymous, `"out"`, `"up"`, 1)), `function "f": binding "res": unknown direction "up"`},
		{"trigger goes out", all().with("f/function.json", strings.Replace(anonymous, `"in"`, `"out"`, 1)), `function "f": binding "req": direction`},
		{"no trigger", all().with("f/function.json", `{"bindings":[]}`), `function "f": 0 triggers`},
		{"two triggers", all().with("f/function.json", strings.Replace(anonymous, `"http",`, `"timerTrigger",`, 1)), `function "f"`},
		{"trigger of another type", all().with("f/function.json", strings.Replace(timerJSON, "timerT", "queueT", 1)), `"queueTrigger"`},
		{"http out lacks its direction", all().with("f/function.json", strings.Replace(anonymous, `,"direction":"out"`, "", 1)), `function "f": only exactly one`},
		{"two outputs", all().with("f/function.json", two), `function "f": only exactly one`},
		{"no output", all().with("f/function.json", `{"bindings":[{"name":"r","type":"httpTrigger","direction":"in"}]}`), `function "f": only exactly one`},
		{"admin route", all().with("f/function.json", httpJSON(`,"route":"/Admin/x"`)), `function "f": route "/Admin/x"`},
		{"runtime route", all().with("f/function.json", httpJSON(`,"route":"runtimes"`)), `function "f": route "runtimes"`},
		{"catch-all route", all().with("f/function.json", httpJSON(`,"route":"{*rest}"`)), `function "f": route "{*rest}"`},
		{"five fields", all().with("f/function.json", strings.Replace(timerJSON, "0 */15", "*/15", 1)), `function "f": schedule`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h, err := funchost.Start(t.Context(), funchost.Options{ScriptRoot: tt.app.write(t), Env: env("serve")})
			if err == nil {
				h.Close()
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not name %q", err, tt.want)
			}
		})
	}
}

func TestStartReadsDirectChildrenOnly(t *testing.T) {
	t.Parallel()
	h := start(t, all().with("lib/deep/function.json", "not read"), false)
	if got := do(t, "GET", h.URL()+"/t/echo", nil).StatusCode; got != 200 {
		t.Errorf("status %d", got)
	}
}

func TestExecutable(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	link(t, filepath.Join(bin, "tiney-on-path"))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const override = "AzureFunctionsJobHost__customHandler__description__defaultExecutablePath="
	tests := []struct {
		name     string
		settings []string
	}{
		{"below the script root", nil},
		{"on PATH", []string{"PATH=/nowhere:" + bin, override + "tiney-on-path"}},
		{"absolute", []string{override + self}},
		{"app setting in another case", []string{"PATH=" + bin, strings.ToUpper(override) + "tiney-on-path"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			start(t, all(), false, tt.settings...)
		})
	}
}

func TestRouting(t *testing.T) {
	t.Parallel()
	anonymous := func(attributes string) string { return httpJSON(`,"authLevel":"anonymous"` + attributes) }
	h := start(t, app{
		"host.json":            hostJSON,
		"Alias/function.json":  anonymous(`,"route":"{alias}","methods":["get","HEAD"]`),
		"alpha/function.json":  anonymous(`,"route":"beta","methods":["get"]`), // "Alias" shadows it
		"aaa/function.json":    anonymous(`,"route":"first","methods":["post"]`),
		"api/function.json":    anonymous(`,"route":"API/shorten/{id}"`),
		"named/function.json":  anonymous(`,"methods":["put"]`),
		"root/function.json":   anonymous(`,"route":"/"`),
		"locked/function.json": httpJSON(`,"route":"locked/default"`),
		"admin1/function.json": httpJSON(`,"route":"locked/admin","authLevel":"admin"`),
		"reaper/function.json": timerJSON,
	}, true)
	tests := []struct {
		name, method, path string
		want               int
	}{
		{"root", "GET", "/", 200},
		{"root by any method", "PROPFIND", "/", 200},
		{"variable", "GET", "/abc", 200},
		{"variable with a trailing slash", "GET", "/abc/", 200},
		{"variable holds an escaped slash", "GET", "/a%2Fb", 200},
		{"method in another case", "HEAD", "/abc", 200},
		{"wrong method", "DELETE", "/abc", 404},
		{"wrong method on a shadowed route", "POST", "/beta", 404},
		{"wrong method goes on to the next route", "GET", "/first", 200},
		{"literal in another case", "POST", "/api/SHORTEN/x", 200},
		{"literal with escapes", "POST", "/%61pi/shorten/x", 200},
		{"empty segment is no value", "GET", "/api/shorten//", 404},
		{"too few segments", "GET", "/api/shorten", 404},
		{"too many segments", "GET", "/api/shorten/x/y", 404},
		{"route left out", "PUT", "/named", 200},
		{"timer from outside", "POST", "/reaper", 404},
		{"authLevel left out", "GET", "/locked/default", 401},
		{"authLevel admin", "GET", "/locked/admin", 401},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			a := do(t, tt.method, h.URL()+tt.path, nil)
			if a.StatusCode != tt.want {
				t.Errorf("status %d, want %d", a.StatusCode, tt.want)
			}
			if a.StatusCode != 200 && (a.body != "" || a.Header.Get("Content-Type") != "") {
				t.Errorf("the host's own answer has a body: %q %q", a.Header, a.body)
			}
		})
	}
}

// The order of function names decides, whatever the templates.
func TestFirstNameWins(t *testing.T) {
	t.Parallel()
	routes := func(first, second string) app {
		return app{
			"host.json":           hostJSON,
			"aaa/function.json":   httpJSON(`,"route":"x/` + first + `","authLevel":"anonymous"`),
			"Bbb/function.json":   httpJSON(`,"route":"x/` + second + `","authLevel":"function"`), // case plays no part
			"notes/readme.json":   "",
			"not-a-function.json": "",
		}
	}
	for _, tt := range []struct{ name, first, second string }{
		{"literal first", "literal", "{variable}"},
		{"variable first", "{variable}", "literal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := start(t, routes(tt.first, tt.second), false)
			if got := do(t, "GET", h.URL()+"/x/literal", nil).StatusCode; got != 200 {
				t.Errorf("the second function answered: %d", got)
			}
		})
	}
}

func TestRoutePrefix(t *testing.T) {
	t.Parallel()
	withoutPrefix := strings.Replace(hostJSON, `"extensions":{"http":{"routePrefix":""}},`, "", 1)
	tests := []struct {
		name, host, setting, path string
	}{
		{"default", withoutPrefix, "A=B", "/api/t/echo"},
		{"two segments", strings.Replace(hostJSON, `"routePrefix":""`, `"routePrefix":"v1/x"`, 1), "A=B", "/v1/x/t/echo"},
		{"app setting", withoutPrefix, "AzureFunctionsJobHost__extensions__http__routePrefix=", "/t/echo"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := start(t, all().with("host.json", tt.host), true, tt.setting)
			if a := do(t, "GET", h.URL()+tt.path, nil); a.StatusCode != 200 {
				t.Errorf("status %d", a.StatusCode)
			}
			if a := do(t, "GET", h.URL()+"/elsewhere/t/echo", nil); a.StatusCode != 404 {
				t.Errorf("status %d without the prefix", a.StatusCode)
			}
		})
	}
}
