package functions_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/link"
	"tiney/internal/testing/openapi"
)

func loadOpenAPI(t testing.TB) *openapi.Document {
	t.Helper()
	d, err := openapi.Load("..")
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestOpenAPI(t *testing.T) {
	base, err := link.ParseBase("http://localhost:7071/s")
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, func(c *functions.Config) { c.Rules.Base = base })
	w := r.get("/api/openapi.json")
	var got struct {
		OpenAPI string
		Info    struct{ Version string }
		Servers []struct{ URL string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if w.Code != 200 || got.OpenAPI != "3.1.0" || got.Info.Version != "v1.2.3" ||
		len(got.Servers) != 1 || got.Servers[0].URL != "http://localhost:7071/s" {
		t.Errorf("got %d %+v", w.Code, got)
	}
	if strings.Contains(w.Body.String(), "short.example") {
		t.Error("it has URLs of another service")
	}
	etag := w.Header().Get("ETag")
	if w.Header().Get("Content-Type") != "application/json" ||
		w.Header().Get("Cache-Control") != "public, max-age=300" || len(etag) != 18 {
		t.Errorf("got %v", w.Header())
	}
	w = r.get("/API/OpenAPI.json/", "If-None-Match", `"x", W/`+etag)
	if w.Code != 304 || w.Body.Len() > 0 || w.Header().Get("ETag") != etag {
		t.Errorf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	wantStatus(t, newRig(t).do("GET", "/api/openapi.json", "", "If-None-Match", etag), 200,
		"another document")
}

// samples replaces the parameters of paths, as in apiRoutes, by values.
var samples = strings.NewReplacer("{alias}", "abcdef", "{id}", "0123456789abcdef", "{host}",
	"example.com", "{name}", "x", "{rest}", "x/y")

// The document has exactly the routes that exist, with their methods.
func TestOpenAPIHasEveryRoute(t *testing.T) {
	d := loadOpenAPI(t)
	r := newRig(t)
	routes := map[string]bool{} // below /api/, as apiRoutes has them
	for path, item := range d.Paths.Map() {
		var want []string
		if path == "/api/links/bulk" { // a link may have the alias "bulk"
			want = []string{"GET", "HEAD", "PATCH", "DELETE"}
		}
		for method := range item.Operations() {
			want = append(want, method)
			if method == "GET" {
				want = append(want, "HEAD")
			}
			if strings.HasPrefix(path, "/api/") {
				routes[method+" "+samples.Replace(path)] = true
			}
		}
		if strings.HasPrefix(path, "/api/") || path == "/" {
			want = append(want, "OPTIONS")
		}
		slices.Sort(want)
		got := strings.Split(r.do(http.MethodTrace, samples.Replace(path),
			"").Header().Get("Allow"), ", ")
		slices.Sort(got)
		if !slices.Equal(got, slices.Compact(want)) {
			t.Errorf("%s takes %q, and in the document %q", path, got, want)
		}
	}
	for route := range apiRoutes {
		if !routes[route] {
			t.Errorf("the document lacks %s", route)
		}
	}
	for route := range routes {
		if apiRoutes[route] == "" {
			t.Errorf("apiRoutes lacks %s", route)
		}
	}
	source, err := os.ReadFile("functions.go")
	if err != nil {
		t.Fatal(err)
	}
	behind := regexp.MustCompile(`pattern: "([A-Z]+ /api/[^"]+)"`).FindAllStringSubmatch(string(source),
		-1)
	if len(behind) < 16 {
		t.Fatalf("found only %q in the code", behind)
	}
	for _, m := range behind {
		if !routes[samples.Replace(m[1])] {
			t.Errorf("the document lacks %s", m[1])
		}
	}
	files, err := filepath.Glob("*/function.json")
	if err != nil || len(files) < 7 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// Paths below a first segment are checked above.
		if m := regexp.MustCompile(`"route": "/?([^"*]*)"`).FindSubmatch(text); m != nil &&
			d.Paths.Value("/"+string(m[1])) == nil {
			t.Errorf("the document lacks /%s", m[1])
		}
	}
}

// FuzzOpenAPI: the response to a request as the document describes it is one that the document has,
// and never a 5xx.
func FuzzOpenAPI(f *testing.F) {
	d := loadOpenAPI(f)
	for seed := range 100 {
		data := make([]byte, 2000)
		random := rand.NewChaCha8([32]byte{byte(seed)})
		_, _ = random.Read(data)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newRig(t, withDomains, withGroups)
		token := someLinks(t, r)
		known := map[string][]string{"alias": {"anns", "bobs", "nobodys", "tokenless", "claimed",
			"anns@Tiney.To", "anns@go.example"},
			"domain":   {"tiney.to", "go.example", "old.example"},
			"If-Match": {"*"}, "claimToken": {token},
			"longUrl": {"https://example.com/ann", "https://example.com/nobody"},
			"owner":   {"ann", "bob", "crew", "*"},
			"from":    {"2026-01-31", r.clock.Now().Format(time.RFC3339), "2026-02-30"},
			"to":      {r.clock.Now().Format(time.DateOnly), "2026-01-31T12:00:00+01:00"},
			// bodies of an import
			"body": {`{"alias":"imported","longUrl":"https://example.com/"}`,
				"alias,longUrl\nanns,https://example.com/ann\nother,x\n"}}
		choices := openapi.Choices(data)
		for range 100 {
			if len(choices) == 0 {
				return
			}
			who := []string{"", "ann", "ann", "ann", "admin", "admin", token, "tny_x"}[choices[0]%8]
			choices = choices[1:]
			q := d.Request(&choices, known, r.clock.Now())
			var header []string
			for name := range q.Header {
				header = append(header, name, q.Header.Get(name))
			}
			w := r.as(who, q.Method, q.Target, q.Body, header...)
			if w.Code >= 500 {
				t.Fatalf("%q as %q: got %d %s", q, who, w.Code, w.Body)
			}
			req := httptest.NewRequest(q.Method, q.Target, nil)
			req.Header = q.Header
			sent := []byte(strings.TrimPrefix(q.Body, "\ufeff"))
			if err := d.Check(req, sent, w.Code, w.Result().Header,
				w.Body.Bytes()); err != nil {
				t.Fatalf("%q as %q: %v\n%d %v %.500s", q, who, err, w.Code, w.Header(), w.Body)
			}
			// Later requests may be about what this one made.
			for _, m := range learnt.FindAllStringSubmatch(w.Body.String()[:min(w.Body.Len(),
				4096)], -1) {
				name := strings.Replace(m[1], "nextCursor", "cursor", 1)
				known[name] = append(known[name], m[2])
			}
			if tag := w.Header().Get("ETag"); tag != "" {
				known["If-Match"], known["If-None-Match"] = append(known["If-Match"], tag),
					append(known["If-None-Match"], tag)
			}
		}
	})
}

var learnt = regexp.MustCompile(`"(alias|claimToken|id|nextCursor)":"([^"]+)"`)

// Generators of clients make classes without members, values that nobody can send, or errors that
// nobody can read, of the forms that this test looks for. Values that answers may get more of are
// no enum: a client that was made before would fail.
func TestOpenAPIForGeneratedClients(t *testing.T) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	// walk calls see for each object in part, and in what it refers to, but for headers.
	var walk func(at string, part any, see func(at string, object map[string]any))
	walk = func(at string, part any, see func(string, map[string]any)) {
		switch part := part.(type) {
		case []any:
			for _, value := range part {
				walk(at, value, see)
			}
		case map[string]any:
			see(at, part)
			if to, ok := part["$ref"].(string); ok {
				var target any = document
				for name := range strings.SplitSeq(strings.TrimPrefix(to, "#/"), "/") {
					target = target.(map[string]any)[name]
				}
				walk(to, target, see)
			}
			for name, value := range part {
				if !slices.Contains([]string{"headers", "example", "examples"}, name) {
					walk(at+"/"+name, value, see)
				}
			}
		}
	}
	known := map[string]bool{} // enums of requests
	answers := map[string]string{}
	note := func(in func(enum, at string)) func(string, map[string]any) {
		return func(at string, object map[string]any) {
			if enum, ok := object["enum"].([]any); ok {
				in(strings.Trim(fmt.Sprint(enum), "[]"), at)
			}
		}
	}
	for path, of := range document["paths"].(map[string]any) {
		for method, operation := range of.(map[string]any) {
			at := method + " " + path
			if method == "parameters" {
				continue
			}
			o := operation.(map[string]any)
			walk(at, []any{o["parameters"], o["requestBody"]},
				note(func(enum, _ string) { known[enum] = true }))
			walk(at, o["responses"], note(func(enum, at string) { answers[enum] = at }))
		}
	}
	for enum, at := range answers {
		if !known[enum] {
			t.Errorf("%s: an enum of an answer that no request has: %s", at, enum)
		}
	}
	seen := map[string]int{}
	walk("", document, func(at string, object map[string]any) {
		for _, name := range []string{"anyOf", "oneOf", "allOf"} {
			if object[name] != nil {
				t.Errorf("%s has %s", at, name)
			}
		}
		enum, _ := object["enum"].([]any)
		for _, value := range enum {
			if _, ok := value.(string); !ok || object["type"] != "string" {
				t.Errorf("%s: an enum of %v has %v", at, object["type"], value)
			}
		}
		values, _ := object["x-values"].([]any)
		for _, value := range values {
			word := strings.TrimPrefix(fmt.Sprint(value), "/problems/")
			if _, ok := value.(string); ok {
				word = "`" + word + "`"
			}
			if description, _ := object["description"].(string); !strings.Contains(description,
				word) && !strings.HasSuffix(at, "/schema") {
				t.Errorf("%s does not describe %s", at, word)
			}
			seen["values"]++
		}
		if pattern, ok := object["pattern"].(string); ok && strings.Contains(pattern, `\p`) {
			t.Errorf("%s: not all languages know %s", at, pattern)
		}
		contents, _ := object["content"].(map[string]any)
		for mediaType, content := range contents {
			schema, _ := content.(map[string]any)["schema"].(map[string]any)
			isText := strings.HasSuffix(mediaType, "+json") || mediaType == "text/html" ||
				mediaType == "text/plain" || strings.HasSuffix(mediaType, "urlencoded") ||
				contents["application/json"] != nil
			if schema == nil || (schema["format"] == "binary") == isText {
				t.Errorf("%s: %s is %v", at, mediaType, schema)
			}
			if schema["format"] == "binary" {
				seen["binary"]++
			}
		}
		if object["x-ms-primary-error-message"] == true {
			seen["message"]++
		}
	})
	if seen["values"] < 80 || seen["binary"] < 6 || seen["message"] == 0 {
		t.Errorf("found only %v", seen)
	}
}
