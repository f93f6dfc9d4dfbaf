//go:build unix

package chaos

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"tiney/functions"
	"tiney/link"
	"tiney/storage"
	"tiney/telemetry"
)

// serveNode is a process of the service: the rooms as the handler puts them together, but with a clock that can be put
// forward, and three ways in for the test beside those of the functions. It ends when it is killed.
func serveNode() error {
	var offset, running atomic.Int64
	start, err := strconv.ParseInt(os.Getenv("NODE_CLOCK"), 10, 64)
	if err != nil {
		return err
	}
	offset.Store(start)
	now := func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	log := telemetry.NewLogger(os.Stderr, slog.LevelError)
	metrics := new(telemetry.Metrics)
	connection, err := storage.ParseConnection(os.Getenv, storage.TableService, "NODE_STORAGE")
	if err != nil {
		return err
	}
	prefix := os.Getenv("NODE_TABLES")
	pageSize := 10 // small, so that a round's few rows take several pages
	if os.Getenv("NODE_BIG_PAGES") != "" {
		pageSize = 1000
	}
	links, err := storage.Open(storage.Config{
		Connection: connection,
		LinkTable:  prefix + "ShortUrls", IndexTable: prefix + "UrlIndex", ExpiryTable: prefix + "ShortUrlsExpiryIndex",
		AliasLength: 6,
		Cache:       &storage.CacheConfig{Bytes: 1 << 20, Fresh: 15 * time.Minute, Negative: time.Minute, Stale: time.Hour},
		ReapLimit:   time.Minute, ReapPageSize: pageSize,
		StorageClock: os.Getenv("NODE_STORAGE_CLOCK") != "", // else the test's clock is the only one
		Now:          now, Random: rand.Reader, Log: log, Metrics: metrics,
	})
	if err != nil {
		return err
	}
	base, err := link.ParseBase("https://tiney.to")
	if err != nil {
		return err
	}
	lock, err := storage.OpenLock(connection, "locks", prefix, log, nil)
	if err != nil {
		return err
	}
	handler, err := functions.New(functions.Config{
		Version: "chaos", Hosted: true,
		Rules: link.Rules{Base: base, DefaultTTL: time.Hour, MaxTTL: 24 * time.Hour},
		Links: links, Tables: links, Lock: lock,
		Reaper: &functions.Reaper{Lock: lock, Links: links, Stopping: context.Background(), Log: log, Metrics: metrics},
		Now:    now, Log: log, Metrics: metrics,
	})
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
		done, err := links.Reap(r.Context())
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
		handler.ServeHTTP(w, r)
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	if err := links.Make(context.Background()); err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	return http.Serve(listener, mux)
}
