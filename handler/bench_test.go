package main

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/rawtables"
	"tiney/link"
	"tiney/storage"
	"tiney/telemetry"
)

// cachedRedirect wires the rooms as run does, over real tables and without a listener, and returns what answers a
// request for a link that is in the cache. Telemetry goes where nothing is done with it.
func cachedRedirect(tb testing.TB, hosted, send bool) func() int {
	tb.Helper()
	tables := rawtables.Open(tb, emulator.ConnectionString(), fmt.Sprintf("E%d", sites.Add(1)))
	tables.Make()
	tables.PutLink(link.Link{Alias: "live42", LongURL: "https://example.com/a/long/path?with=a&query", ExpiresAt: time.Now().Add(time.Hour)})
	env := map[string]string{
		"AzureWebJobsStorage": emulator.ConnectionString(), "BaseUrl": "https://tiney.to",
		"SHORTURL_TABLE_NAME": tables.Links, "URLINDEX_TABLE_NAME": tables.Index, "EXPIRYINDEX_TABLE_NAME": tables.Expiry,
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
	s, err := readSettings(func(name string) string { return env[name] })
	if err != nil {
		tb.Fatal(err)
	}
	log, metrics := telemetry.NewLogger(io.Discard, slog.LevelInfo), new(telemetry.Metrics)
	var sender *telemetry.Sender
	if send {
		s.telemetry.Metrics, s.telemetry.Version, s.telemetry.Log = metrics, version, log
		sender = telemetry.Start(*s.telemetry)
		tb.Cleanup(func() { sender.Close(time.Second) })
	}
	links, err := storage.Open(storage.Config{
		Connection: s.tables,
		LinkTable:  s.linkTable, IndexTable: s.indexTable, ExpiryTable: s.expiryTable,
		AliasLength: s.aliasLength, Cache: s.cache, ReapLimit: s.reapLimit, ReapPageSize: s.reapPageSize,
		Now: time.Now, Random: rand.Reader, Log: log, Metrics: metrics, Sender: sender,
	})
	if err != nil {
		tb.Fatal(err)
	}
	lock, err := storage.OpenLock(s.lock, s.lockContainer, s.lockBlob, log, sender)
	if err != nil {
		tb.Fatal(err)
	}
	handler, err := functions.New(functions.Config{
		Version: version, Hosted: s.hosted, Rules: s.rules,
		Links: links, Tables: links, Lock: lock,
		Reaper: &functions.Reaper{Lock: lock, Links: links, Stopping: tb.Context(), Log: log, Metrics: metrics, Sender: sender},
		Now:    time.Now, Log: log, Metrics: metrics, Sender: sender,
	})
	if err != nil {
		tb.Fatal(err)
	}
	w := &nowhere{header: http.Header{}}
	ask := func() int {
		clear(w.header)
		handler.ServeHTTP(w, r)
		return w.status
	}
	for end := time.Now().Add(30 * time.Second); metrics.CacheHit.Value() == 0; {
		if status := ask(); status != http.StatusFound || time.Now().After(end) {
			tb.Fatalf("a redirect was answered with %d, and no link is in the cache", status)
		}
	}
	return ask
}

// nowhere is an answer that nobody gets.
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
