package functions_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/link"
)

// known is the link that benchmarks request.
var known = link.Link{Alias: "live42", LongURL: "https://example.com/a/long/path?with=a&query"}

func newBenchRig(tb testing.TB) *rig {
	tb.Helper()
	r := newRig(tb, func(c *functions.Config) {
		c.Log,
			c.StrictTransport = slog.New(slog.DiscardHandler), time.Hour
	})
	l := known
	l.CreatedAt, l.ExpiresAt = r.clock.Now(), r.clock.Now().Add(time.Hour)
	r.fake.Put(l)
	return r
}

// nowhere discards a response.
type nowhere struct{ header http.Header }

func (w nowhere) Header() http.Header         { return w.header }
func (w nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (w nowhere) WriteHeader(int)             {}

// BenchmarkServeHTTP measures a whole request without the server and the store. The store is a fake
// whose links are as fast to read as cached ones.
func BenchmarkServeHTTP(b *testing.B) {
	for _, test := range []struct {
		name, method, path, body string
		status                   int
	}{
		{"redirect", "GET", "/live42", "", http.StatusFound},
		{"unknown alias", "GET", "/nobody", "", http.StatusNotFound},
		{"impossible alias", "GET", "/wp-login.php", "", http.StatusNotFound},
		{"known URL", "POST", "/api/shorten", `{"longUrl":"` + known.LongURL + `"}`, http.StatusOK},
		{"bad URL", "POST", "/api/shorten", `{"longUrl":"ftp://example.com"}`,
			http.StatusBadRequest},
		{"health", "GET", "/api/health", "", http.StatusOK},
	} {
		b.Run(test.name, func(b *testing.B) {
			r := newBenchRig(b)
			body := strings.NewReader(test.body)
			req := httptest.NewRequest(test.method, test.path, nil)
			req.Body, req.ContentLength = io.NopCloser(body), int64(len(test.body))
			req.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			if r.ServeHTTP(w, req); w.Code != test.status {
				b.Fatalf("got %d", w.Code)
			}
			nowhere := nowhere{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				body.Reset(test.body)
				clear(nowhere.header)
				r.ServeHTTP(nowhere, req)
			}
		})
	}
}

func TestARedirectAllocatesLittle(t *testing.T) {
	r := newBenchRig(t)
	req := httptest.NewRequest("GET", "/live42", nil)
	w := nowhere{http.Header{}}
	// One allocation holds the request's operation, the other one the value of Location.
	if n := testing.AllocsPerRun(1000, func() { clear(w.header); r.ServeHTTP(w, req) }); n > 2 {
		t.Errorf("%v allocations, of at most 2", n)
	}
	if got := w.header.Get("Location"); got != known.LongURL {
		t.Errorf("leads to %q", got)
	}
}
