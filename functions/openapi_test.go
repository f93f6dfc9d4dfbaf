package functions_test

import (
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tiney/functions"
	"tiney/internal/openapi"
	"tiney/link"
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
	if w := newRig(t).do("GET", "/api/openapi.json", "", "If-None-Match", etag); w.Code != 200 {
		t.Errorf("another document: got %d", w.Code)
	}
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
	behind := regexp.MustCompile(`"([A-Z]+ /api/[^"]+)": `).FindAllStringSubmatch(string(source),
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
