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

func BenchmarkFind(b *testing.B) {
	rt, err := newRouter(map[string]answerer{"shorten": named("shorten"), "redirect": named("redirect"), "health": named("health"),
		"ready": named("ready"), "home": named("home"), "reaper": named("reaper")}, true)
	if err != nil {
		b.Fatal(err)
	}
	for _, test := range []struct{ name, method, path, function string }{
		{"alias", http.MethodGet, "/6GV88b", "redirect"},
		{"fixed path", http.MethodPost, "/api/shorten", "shorten"},
		{"unknown path", http.MethodGet, "/no/such/path", ""},
	} {
		b.Run(test.name, func(b *testing.B) {
			r := httptest.NewRequest(test.method, test.path, nil)
			b.ReportAllocs()
			for b.Loop() {
				if name, _, _ := rt.find(r); name != test.function {
					b.Fatal(name)
				}
			}
		})
	}
}

func BenchmarkDecodeShorten(b *testing.B) {
	for _, test := range []struct{ name, body string }{
		{"URL", `{"longUrl":"https://example.com/a/long/path?with=a&query"}`},
		{"URL and life", `{"longUrl":"https://example.com/a/long/path?with=a&query","expiresInSeconds":3600}`},
		{"long URL", `{"longUrl":"https://example.com/` + strings.Repeat("x", 4000) + `","expiresInSeconds":3600}`},
	} {
		b.Run(test.name, func(b *testing.B) {
			body := []byte(test.body)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := decodeShorten(body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
