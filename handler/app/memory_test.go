package app

import (
	"io"
	"log/slog"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/telemetry"
)

// A service in memory does all that one with storage does, without any other setting.
func TestInMemory(t *testing.T) {
	given := map[string]string{}
	s, err := ReadSettings(InMemory(func(name string) string { return given[name] }))
	if err != nil {
		t.Fatal(err)
	}
	var later atomic.Int64
	now := func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	service, err := New(t.Context(), s, "test", now, telemetry.NewLogger(io.Discard, slog.LevelInfo))
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	call := func(method, target, body string, status int, want string) {
		t.Helper()
		r := httptest.NewRequest(method, "http://localhost:7071"+target, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+developmentKey)
		w := httptest.NewRecorder()
		service.Handler.ServeHTTP(w, r)
		if got := w.Header().Get("Location") + w.Body.String(); w.Code != status ||
			!strings.Contains(got, want) {
			t.Errorf("%s %s: got %d %s", method, target, w.Code, got)
		}
	}
	call("GET", "/api/ready", "", 200, `"storage":"memory"`)
	call("GET", "/", "", 200, "keeps everything in memory")
	call("POST", "/api/shorten", `{"longUrl":"https://example.com/","alias":"first",`+
		`"expiresInSeconds":3600}`, 201, `"alias":"first"`)
	call("GET", "/first", "", 302, "https://example.com/")
	call("PATCH", "/api/links/first", `{"longUrl":"https://example.com/2"}`, 200, "example.com/2")
	call("GET", "/first", "", 302, "https://example.com/2")
	call("GET", "/api/links", "", 200, `"alias":"first"`)
	if err := service.Links.Clicks.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	call("GET", "/api/links/first/stats", "", 200, `"alias":"first"`)

	later.Store(int64(2 * time.Hour))
	if _, err := service.Reaper.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if got := service.Metrics.ReaperDeleted.Value(); got != 1 {
		t.Errorf("%d links were reaped", got)
	}
	call("GET", "/first", "", 410, "")
	call("GET", "/api/admin/cleanup/stats", "", 200, `"running":false`)
}
