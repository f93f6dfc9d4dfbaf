//go:build unix

package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"tiney/handler/app"
	"tiney/telemetry"
)

// hostAddress is where a node takes the Functions host to reach it. It listens elsewhere.
const hostAddress = "127.0.0.1:1"

// serveNode is a process of the service with a clock that can be advanced, and with endpoints for the test beside those of
// the functions. It ends when it is killed.
func serveNode() error {
	var offset, running atomic.Int64
	start, err := strconv.ParseInt(os.Getenv("NODE_CLOCK"), 10, 64)
	if err != nil {
		return err
	}
	offset.Store(start)
	now := func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	prefix := os.Getenv("NODE_TABLES")
	pageSize := "10" // small, so that a round's few rows take several pages
	if os.Getenv("NODE_BIG_PAGES") != "" {
		pageSize = "1000"
	}
	env := map[string]string{
		"FUNCTIONS_CUSTOMHANDLER_PORT": "1", // see hostAddress; nothing runs by a schedule
		"BaseUrl":                      "https://tiney.to",
		"AzureWebJobsStorage":          os.Getenv("NODE_STORAGE"),
		"SHORTURL_TABLE_NAME":          prefix + "ShortUrls", "URLINDEX_TABLE_NAME": prefix + "UrlIndex",
		"EXPIRYINDEX_TABLE_NAME": prefix + "ShortUrlsExpiryIndex",
		"CACHE_SIZE_MB":          "1", "GC_MAX_SECONDS": "60", "GC_PAGE_SIZE": pageSize,
	}
	settings, err := app.ReadSettings(func(name string) string { return env[name] })
	if err != nil {
		return err
	}
	settings.Storage.Reap.StorageClock = os.Getenv("NODE_STORAGE_CLOCK") != "" // else the test's clock is the only one
	node, err := app.New(context.Background(), settings, "chaos", now, telemetry.NewLogger(os.Stderr, slog.LevelError))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/control/advance", func(_ http.ResponseWriter, r *http.Request) {
		by, err := time.ParseDuration(r.URL.Query().Get("by"))
		if err == nil {
			offset.Add(int64(by))
		}
	})
	// Without the lock, so that reapers meet.
	mux.HandleFunc("/control/reap", func(w http.ResponseWriter, r *http.Request) {
		done, err := node.Links.Reap(r.Context())
		if err != nil || done.Failed > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(w, "%+v %v", done, err)
	})
	mux.HandleFunc("/control/goroutines", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, runtime.NumGoroutine()) })
	mux.HandleFunc("/control/idle", func(http.ResponseWriter, *http.Request) {
		for running.Load() > 0 {
			time.Sleep(time.Millisecond)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		node.Handler.ServeHTTP(w, r)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := node.Links.EnsureTables(context.Background()); err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return http.Serve(listener, mux)
}
