// Handler is the custom handler of an Azure Functions app that shortens URLs, and the same service on its own where
// there is no Functions host.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"tiney/functions"
	"tiney/storage"
	"tiney/telemetry"
)

// version is set by the build.
var version = "development"

func main() {
	// The Functions host kills without a signal; these two come from a terminal, a container or systemd. The first
	// one drains, and a second one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	keepHeadroom(liveHeap)
	if err := run(ctx, os.Getenv, os.Stdout); err != nil {
		// The log goes to stdout. What is written to stderr, the host shows as an error.
		fmt.Fprintln(os.Stderr, "tiney cannot run:", err)
		os.Exit(1)
	}
}

const (
	// drainTimeout is how long requests that run at a stop have to finish.
	drainTimeout = 10 * time.Second
	// lastTelemetry is how long the telemetry that is left may take after that.
	lastTelemetry = 3 * time.Second
	// maxHeader is the limit for a request's headers, in bytes. Browsers and proxies stay within half of it.
	maxHeader = 32 << 10
)

// run is the process: it serves until ctx ends, and then finishes what is under way.
func run(ctx context.Context, getenv func(string) string, stdout io.Writer) error {
	s, err := readSettings(getenv)
	if err != nil {
		return err
	}
	log := telemetry.NewLogger(stdout, s.logLevel)
	metrics := new(telemetry.Metrics)
	metrics.ProcessStarted.Add(1)
	var sender *telemetry.Sender
	if s.telemetry != nil {
		s.telemetry.Metrics, s.telemetry.Version, s.telemetry.Log = metrics, version, log
		sender = telemetry.Start(*s.telemetry)
		defer sender.Close(lastTelemetry)
	}

	links, err := storage.Open(storage.Config{
		Connection: s.tables,
		LinkTable:  s.linkTable, IndexTable: s.indexTable, ExpiryTable: s.expiryTable,
		AliasLength: s.aliasLength,
		Cache:       s.cache,
		ReapBuffer:  s.reapBuffer, ReapLimit: s.reapLimit, ReapPageSize: s.reapPageSize, StorageClock: true,
		Now: time.Now, Random: rand.Reader, Log: log, Metrics: metrics, Sender: sender,
	})
	if err != nil {
		return fmt.Errorf("TABLE_CONNECTION or AzureWebJobsStorage: %w", err)
	}
	lock, err := storage.OpenLock(s.lock, s.lockContainer, s.lockBlob, log, sender)
	if err != nil {
		return fmt.Errorf("GC_BLOB_LOCK_CONNECTION or AzureWebJobsStorage: %w", err)
	}
	reaper := &functions.Reaper{Lock: lock, Links: links, Stopping: ctx, Log: log, Metrics: metrics, Sender: sender}
	handler, err := functions.New(functions.Config{
		Version: version, Hosted: s.hosted, Rules: s.rules, RedirectMaxAge: s.redirectMaxAge,
		Links: links, Tables: links, Lock: lock, Reaper: reaper,
		Now: time.Now, Log: log, Metrics: metrics, Sender: sender,
	})
	if err != nil {
		return err
	}

	tcp, err := net.Listen("tcp", s.address)
	if err != nil {
		return fmt.Errorf("cannot listen on %s; another process may have it, and PORT and LISTEN_ADDRESS choose another: %w", s.address, err)
	}
	log.Info("listening", "address", tcp.Addr().String(), "baseUrl", s.rules.Base.String(), "hosted", s.hosted, "version", version)

	// What runs beside the requests ends with ctx, while they drain.
	var running sync.WaitGroup
	starting := telemetry.Begin(ctx, "start", nil, s.hosted)
	running.Go(func() { storage.MakeUntilDone(&starting, log, "tables", links.Make) })
	running.Go(func() { storage.MakeUntilDone(&starting, log, "lock", lock.Make) })
	failed := make(chan error, 2)
	if !s.hosted {
		running.Go(func() {
			if err := reaper.RunOnSchedule(time.Now); err != nil {
				failed <- err
			}
		})
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       15 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() { failed <- server.Serve(listener{tcp.(*net.TCPListener)}) }()

	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	log.Info("stopping", "atMost", drainTimeout.String())
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := server.Shutdown(drain); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	running.Wait()
	log.Info("stopped", "metrics", counts(metrics))
	return nil
}

// counts are the measurements that are not zero, for the last line of the log.
func counts(metrics *telemetry.Metrics) map[string]float64 {
	all := map[string]float64{}
	for _, sample := range metrics.Snapshot() {
		if sample.Sum != 0 {
			all[sample.Name] = sample.Sum
		}
	}
	return all
}
