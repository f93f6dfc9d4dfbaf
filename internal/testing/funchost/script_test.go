package funchost_test

import (
	"testing"

	"tiney/internal/testing/funchost"
)

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
