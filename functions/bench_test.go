package functions_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/storage"
)

// known is the link that benchmarks request.
var known = link.Link{Name: "live42", LongURL: "https://example.com/a/long/path?with=a&query"}

func newBenchRig(tb testing.TB, change ...func(*functions.Config)) *rig {
	tb.Helper()
	r := newRigOn(tb, func(c *storage.Config) {
		withCache(c)
		c.Cache.Negative = time.Minute
	}, append(change, func(c *functions.Config) {
		c.Log, c.StrictTransport = slog.New(slog.DiscardHandler), time.Hour
	})...)
	l := known
	l.CreatedAt, l.ExpiresAt = r.clock.Now(), r.clock.Now().Add(time.Hour)
	r.fake.Put(l)
	r.fake.Cache(l.Name)
	return r
}

// nowhere discards a response.
type nowhere struct{ header http.Header }

func (w nowhere) Header() http.Header         { return w.header }
func (w nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (w nowhere) WriteHeader(int)             {}

// BenchmarkServeHTTP measures a whole request without the server. What it reads is cached, or in
// memory.
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
			if w := r.send(req); w.Code != test.status {
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

// counting counts clicks as storage does.
type counting struct {
	functions.Clicks
	counter *clicks.Counter
}

func (*counting) Created(int) {}

func newCounting(now time.Time) *counting {
	c := &counting{counter: clicks.NewCounter()}
	c.counter.SetKey(clicks.DayOf(now), clicks.Key{1}, clicks.DayOf(now))
	return c
}

func (c *counting) Click(l link.Link, k clicks.Click) {
	c.counter.Click(clicks.Of{Name: string(l.Name), CountedFrom: clicks.DayOf(l.CountedFrom),
		Owner: l.Owner}, &k)
}

// BenchmarkClick measures what counting adds to a redirect to a cached link, for visitors with a
// usual variety of headers.
func BenchmarkClick(b *testing.B) {
	var addresses, agents, referers []string
	for i := range 5000 {
		addresses = append(addresses, fmt.Sprintf("84.128.%d.%d:4711", i>>8, i&255))
	}
	for i := range 50 {
		agents = append(agents, strings.Replace(chrome, "142", strconv.Itoa(100+i), 1)+host)
		referers = append(referers, fmt.Sprintf("https://www.example%d.com/search?q=%[1]d", i%20))
	}
	for _, mode := range []clicks.Mode{clicks.ModeOff, clicks.ModeTotals, clicks.ModeFull} {
		b.Run("clicks="+string(mode), func(b *testing.B) {
			r := newBenchRig(b, func(c *functions.Config) {
				c.CountClicks, c.Clicks = mode, newCounting(c.Now())
			})
			req := httptest.NewRequest("GET", "/live42", nil)
			address, agent, referer := []string{""}, []string{""}, []string{""}
			req.Header["X-Forwarded-For"], req.Header["User-Agent"] = address, agent
			req.Header["Referer"] = referer
			nowhere := nowhere{http.Header{}}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				address[0], agent[0] = addresses[i%len(addresses)], agents[i%len(agents)]
				referer[0] = referers[i%len(referers)]
				clear(nowhere.header)
				r.ServeHTTP(nowhere, req)
			}
		})
	}
}

func TestARedirectAllocatesLittle(t *testing.T) {
	r := newBenchRig(t, func(c *functions.Config) { c.Clicks = newCounting(c.Now()) })
	req := httptest.NewRequest("GET", "/live42", nil)
	req.Header.Set("User-Agent", chrome+host)
	req.Header.Set("Referer", "https://example.com/")
	req.Header.Set("X-Forwarded-For", "84.128.0.1:4711")
	w := nowhere{http.Header{}}
	// One allocation holds the request's operation, the other one the value of Location.
	if n := testing.AllocsPerRun(1000, func() { clear(w.header); r.ServeHTTP(w, req) }); n > 2 {
		t.Errorf("%v allocations, of at most 2", n)
	}
	if got := w.header.Get("Location"); got != known.LongURL {
		t.Errorf("leads to %q", got)
	}
}
