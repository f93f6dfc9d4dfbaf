package app

import (
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/telemetry"
	"tiney/storage/memtable"
)

// variant is a way to run the service. Telemetry is discarded.
type variant struct {
	hosted, telemetry bool
	clicks            clicks.Mode
}

func (v variant) String() string {
	return fmt.Sprintf("hosted=%t/telemetry=%t/clicks=%s", v.hosted, v.telemetry, v.clicks)
}

// cachedRedirect wires the service with tables in memory and no listener. It returns a function
// that requests a cached link as a browser does. The day's key for visitors is already known.
func cachedRedirect(tb testing.TB, v variant) func() int {
	tb.Helper()
	env := map[string]string{
		"AzureWebJobsStorage": "UseDevelopmentStorage=true", "BaseUrl": "https://tiney.to",
		"ADMIN_KEY": ownKey, "CLICKS": string(v.clicks), "CLIENT_ADDRESS_HOPS": "1",
	}
	r := httptest.NewRequest(http.MethodGet, "/live42", nil)
	r.Header.Set("User-Agent", "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 "+
		"(KHTML, like Gecko) Chrome/141.0.0.0 Safari/537.36")
	r.Header.Set("Referer", "https://www.example.org/news/today?page=2")
	r.Header.Set("X-Forwarded-For", "198.51.100.7, 203.0.113.42:50123")
	if v.hosted {
		env["FUNCTIONS_CUSTOMHANDLER_PORT"] = "1"
		r.Header.Set("X-Azure-Functions-InvocationId", "3c9b4f1e-0d4f-4c5e-9d1f-0a6b7c8d9e0f")
		r.Header.Set("Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	}
	if v.telemetry {
		sink := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
		}))
		tb.Cleanup(sink.Close)
		env["APPLICATIONINSIGHTS_CONNECTION_STRING"] = "InstrumentationKey=" +
			"11111111-2222-3333-4444-555555555555;IngestionEndpoint=" + sink.URL
	}
	s, err := ReadSettings(func(name string) string { return env[name] })
	if err != nil {
		tb.Fatal(err)
	}
	memory := memtable.New(time.Now)
	s.Storage.Open = memory.Table
	service, err := New(tb.Context(), s, "test", time.Now, telemetry.NewLogger(io.Discard,
		slog.LevelInfo))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(service.Close)
	w := &nowhere{header: http.Header{}}
	shorten := httptest.NewRequest(http.MethodPost, "/api/shorten", strings.NewReader(
		`{"longUrl":"https://example.com/a/long/path?with=a&query","alias":"live42"}`))
	shorten.Header.Set("Content-Type", "application/json")
	shorten.Header.Set("Authorization", "Bearer "+ownKey)
	if service.Handler.ServeHTTP(w, shorten); w.status != http.StatusCreated {
		tb.Fatalf("shorten got a %d", w.status)
	}
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
	if err := service.Links.Clicks.Flush(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return ask
}

// nowhere discards a response.
type nowhere struct {
	header http.Header
	status int
}

func (w *nowhere) Header() http.Header         { return w.header }
func (w *nowhere) WriteHeader(status int)      { w.status = status }
func (w *nowhere) Write(p []byte) (int, error) { return len(p), nil }

func BenchmarkCachedRedirect(b *testing.B) {
	for _, hosted := range []bool{false, true} {
		for _, v := range []variant{{hosted, false, clicks.ModeOff},
			{hosted, false, clicks.ModeTotals}, {hosted, false, clicks.ModeFull},
			{hosted, true, clicks.ModeFull}} {
			b.Run(v.String(), func(b *testing.B) {
				ask := cachedRedirect(b, v)
				b.ReportAllocs()
				for b.Loop() {
					ask()
				}
			})
		}
	}
}

// allocations returns how often a cached redirect allocates. It returns the minimum of a few tries,
// because allocations of other goroutines count too, such as those for the metrics of the first two
// seconds.
func allocations(t *testing.T, v variant) float64 {
	// Fewer requests than fill a batch of telemetry: the allocations of sending it would count too.
	const requests = 400
	least := math.Inf(1)
	for range 3 {
		ask := cachedRedirect(t, v)
		least = min(least, testing.AllocsPerRun(requests, func() { ask() }))
	}
	return least
}

func TestTelemetryAllocatesNothingForACachedRedirect(t *testing.T) {
	for _, hosted := range []bool{false, true} {
		without, with := allocations(t, variant{hosted, false, clicks.ModeFull}),
			allocations(t, variant{hosted, true, clicks.ModeFull})
		if with > without {
			t.Errorf("hosted %t: %v allocations with telemetry, and %v without", hosted, with,
				without)
		}
	}
}

func TestClicksAllocateAtMostOnceForACachedRedirect(t *testing.T) {
	for _, hosted := range []bool{false, true} {
		without := allocations(t, variant{hosted, false, clicks.ModeOff})
		for _, mode := range []clicks.Mode{clicks.ModeTotals, clicks.ModeFull} {
			if with := allocations(t, variant{hosted, false, mode}); with > without+1 {
				t.Errorf("hosted %t: %v allocations with clicks=%s, and %v without", hosted, with,
					mode, without)
			}
		}
	}
}
