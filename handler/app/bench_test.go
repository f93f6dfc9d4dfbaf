package app

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/azurite"
	"tiney/internal/rawtables"
	"tiney/link"
	"tiney/telemetry"
)

var (
	emulator azurite.Ports
	tables   atomic.Int64 // sets of them that were made
)

func TestMain(m *testing.M) {
	os.Exit(azurite.ForTests(func(ports azurite.Ports) int {
		emulator = ports
		return m.Run()
	}))
}

// cachedRedirect wires the service over real tables and without a listener, and returns a function that requests a link
// which is in the cache. Telemetry is thrown away.
func cachedRedirect(tb testing.TB, hosted, send bool) func() int {
	tb.Helper()
	raw := rawtables.Open(tb, emulator.ConnectionString(), fmt.Sprintf("E%d", tables.Add(1)))
	raw.Make()
	raw.PutLink(link.Link{Alias: "live42", LongURL: "https://example.com/a/long/path?with=a&query", ExpiresAt: time.Now().Add(time.Hour)})
	env := map[string]string{
		"AzureWebJobsStorage": emulator.ConnectionString(), "BaseUrl": "https://tiney.to",
		"SHORTURL_TABLE_NAME": raw.Links, "URLINDEX_TABLE_NAME": raw.Index, "EXPIRYINDEX_TABLE_NAME": raw.Expiry,
	}
	r := httptest.NewRequest(http.MethodGet, "/live42", nil)
	if hosted {
		env["FUNCTIONS_CUSTOMHANDLER_PORT"] = "1"
		r.Header.Set("X-Azure-Functions-InvocationId", "3c9b4f1e-0d4f-4c5e-9d1f-0a6b7c8d9e0f")
		r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	}
	if send {
		sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
		tb.Cleanup(sink.Close)
		env["APPLICATIONINSIGHTS_CONNECTION_STRING"] = "InstrumentationKey=11111111-2222-3333-4444-555555555555;IngestionEndpoint=" + sink.URL
	}
	s, err := ReadSettings(func(name string) string { return env[name] })
	if err != nil {
		tb.Fatal(err)
	}
	service, err := New(tb.Context(), s, "test", time.Now, telemetry.NewLogger(io.Discard, slog.LevelInfo))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(service.Close)
	w := &nowhere{header: http.Header{}}
	ask := func() int {
		clear(w.header)
		service.Handler.ServeHTTP(w, r)
		return w.status
	}
	for end := time.Now().Add(30 * time.Second); service.Metrics.CacheHit.Value() == 0; {
		if status := ask(); status != http.StatusFound || time.Now().After(end) {
			tb.Fatalf("a redirect got a %d, and no link is in the cache", status)
		}
	}
	return ask
}

// nowhere throws a response away.
type nowhere struct {
	header http.Header
	status int
}

func (w *nowhere) Header() http.Header         { return w.header }
func (w *nowhere) WriteHeader(status int)      { w.status = status }
func (w *nowhere) Write(p []byte) (int, error) { return len(p), nil }

func BenchmarkCachedRedirect(b *testing.B) {
	for _, hosted := range []bool{false, true} {
		for _, send := range []bool{false, true} {
			b.Run(fmt.Sprintf("hosted=%t/telemetry=%t", hosted, send), func(b *testing.B) {
				ask := cachedRedirect(b, hosted, send)
				b.ReportAllocs()
				for b.Loop() {
					ask()
				}
			})
		}
	}
}

func TestTelemetryAllocatesNothingForACachedRedirect(t *testing.T) {
	// Fewer requests than make a batch: what is allocated to send one would be counted too.
	const requests = 400
	for _, hosted := range []bool{false, true} {
		var allocations [2]float64
		for i, send := range []bool{false, true} {
			// The least of a few: what other goroutines allocate meanwhile, as for the metrics of the first two seconds, counts
			// too.
			allocations[i] = math.Inf(1)
			for range 3 {
				ask := cachedRedirect(t, hosted, send)
				allocations[i] = min(allocations[i], testing.AllocsPerRun(requests, func() { ask() }))
			}
		}
		if without, with := allocations[0], allocations[1]; with > without {
			t.Errorf("hosted %t: %v allocations with telemetry, and %v without", hosted, with, without)
		}
	}
}
