package functions_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// FuzzBodies: whatever a client sends to a route that reads a body, the response is valid JSON. If
// the body is refused, the response is a problem. The status is never a 5xx.
func FuzzBodies(f *testing.F) {
	for _, body := range []string{
		`{"longUrl":"https://example.com/","alias":"mine",` +
			`"expiresAtUtc":"2099-01-01T00:00:00+09:00","statusCode":308,"title":"t","tags":["a"]}`,
		`{"longUrl":"https://example.com/","expiresInSeconds":6e1}`,
		`{"longUrl":null,"disabled":null,"expiresAtUtc":null,"statusCode":null,"title":null,` +
			`"tags":null}`,
		`{"disabled":true,"title":"\ud83d\ude00","tags":["a","a"]}`,
		`{"claims":[{"alias":"nobodys","claimToken":"tnc_x","keepExpiry":true},{"alias":"a/b"}]}`,
		`{"name":"a key","owner":"ann","expiresAtUtc":"2099-01-01T00:00:00Z"}`,
		`{"name":"a key","owner":{"tags":[1]}}`,
		`{}{}`,
	} {
		for route := range byte(4) {
			f.Add(route, route%2 == 0, "", []byte(body))
		}
	}
	f.Fuzz(func(t *testing.T, route byte, admin bool, match string, body []byte) {
		r := newRig(t)
		someLinks(t, r)
		who := "ann"
		if admin {
			who = "admin"
		}
		method, target := "POST", []string{"/api/shorten", "/api/links/anns", "/api/claims",
			"/api/keys"}[route%4]
		if route%4 == 1 {
			method = "PATCH"
		}
		var header []string
		if match != "" {
			header = []string{"If-Match", match}
		}
		w := r.as(who, method, target, string(body), header...)
		var got struct {
			Type   string
			Status int
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%v in %d %s", err, w.Code, w.Body)
		}
		problem := strings.HasPrefix(got.Type, "/problems/") && got.Status == w.Code &&
			w.Header().Get("Content-Type") == "application/problem+json"
		switch {
		case w.Code >= 500, w.Code >= 400 != problem, w.Code >= 300 && w.Code < 400:
			t.Fatalf("got %d %s", w.Code, w.Body)
		case w.Code < 300 && !json.Valid(body):
			t.Fatalf("accepted %q", body)
		}
	})
}
