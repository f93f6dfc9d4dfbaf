package functions

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

type named string

func (named) answer(context.Context, http.ResponseWriter, *http.Request) error { return nil }

// Whatever a route's template is, a request finds the function that it was added for, or none.
func FuzzRoutes(f *testing.F) {
	for _, seed := range [][2]string{{"api/shorten", "/api/shorten"}, {"{alias}", "/abc"}, {"/", "/"}, {"a/{b}", "/a/b"}, {"{a}{b}", "/x"}, {"", "//"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, template, path string) {
		rt := &router{paths: map[string]route{}}
		if err := rt.add(template, route{"f", []string{"GET"}, named("f")}); err != nil {
			return
		}
		if err := rt.add(template, route{"g", []string{"GET"}, named("g")}); err == nil {
			t.Fatalf("%q was taken twice", template)
		}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path = path
		name, to, err := rt.find(r)
		if (err == nil) != (to != nil) || err == nil && name != "f" {
			t.Fatalf("%q for %q: %q, %v, %v", path, template, name, to, err)
		}
		free := strings.HasPrefix(strings.Trim(template, "/"), "{")
		if fixed := "/" + strings.Trim(template, "/"); err == nil && !free && path != fixed {
			t.Fatalf("%q found %q", path, fixed)
		}
	})
}
