package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/reaper"
	"tiney/internal/telemetry"
	"tiney/storage"
	"tiney/storage/lock"
	"tiney/storage/memtable"
	"tiney/storage/table"
)

// flushAgain is the pause between two tries to save the last clicks.
const flushAgain = 200 * time.Millisecond

// lastTelemetry is how long it may take to send the rest of the telemetry.
const lastTelemetry = 3 * time.Second

// App is the whole service except its listener.
type App struct {
	Handler http.Handler
	// Prometheus is the handler of GET /metrics; nil if the settings name no address for it.
	Prometheus http.Handler
	Links      *storage.Links
	Lock       Lock
	Reaper     *reaper.Reaper
	Metrics    *telemetry.Metrics

	hosted bool // behind the Functions host, whose timer runs the reaper
	now    func() time.Time
	log    *slog.Logger
	sender *telemetry.Sender // nil without telemetry
}

// Lock is the lock of the reaper, and its part of storage.
type Lock interface {
	reaper.Locker
	functions.Pinger
	// Ensure creates what the lock needs, unless it is there.
	Ensure(ctx context.Context) error
}

// New wires the service. version names the build. New makes no storage call. Runs of the reaper end
// with ctx. The caller must Close the App.
func New(
	ctx context.Context, s Settings, version string, now func() time.Time, log *slog.Logger,
) (a *App, err error) {
	a = &App{Metrics: new(telemetry.Metrics), hosted: s.Hosted(), now: now, log: log}
	switch {
	case s.MetricsAddress != "" && s.Hosted():
		log.Warn(telemetry.LogMetricsNotServed)
	case s.MetricsAddress != "":
		a.Prometheus = a.Metrics.Prometheus()
	}
	a.Metrics.ProcessStarted.Add(1)
	if s.Telemetry != nil {
		c := *s.Telemetry
		c.Metrics, c.Version, c.Log = a.Metrics, version, log
		a.sender = telemetry.Start(c)
		defer func() {
			if err != nil {
				a.Close()
			}
		}()
	}
	if s.Functions.Memory {
		log.Warn(telemetry.LogMemory)
		service := memtable.New(now)
		s.Storage.Open = service.Table
	}
	if err = s.OpenTables(a.sender); err != nil {
		return nil, err
	}
	random := s.Storage.Random
	if random == nil {
		random = rand.Reader
	}
	tables := s.Storage
	tables.Now, tables.Random, tables.Log, tables.Metrics = now, random, log, a.Metrics
	if a.Links, err = storage.Open(tables); err != nil {
		return nil, err
	}
	s.Lock.Log, s.Lock.Sender = log, a.sender
	if s.Functions.Memory {
		a.Lock = new(lock.Local)
	} else if a.Lock, err = lock.Open(s.Lock); err != nil {
		return nil, fmt.Errorf("GC_BLOB_LOCK_CONNECTION or AzureWebJobsStorage: %w", err)
	}
	a.Reaper = &reaper.Reaper{
		Lock:     a.Lock,
		Links:    a.Links,
		Clicks:   a.Links.Clicks,
		Runs:     a.Links.Reaps,
		Limit:    s.ReapLimit,
		Stopping: ctx,
		Log:      log,
		Metrics:  a.Metrics,
		Sender:   a.sender,
	}
	who := s.Access
	if who.OIDC != nil {
		provider := *who.OIDC
		provider.Failed = func(err error) {
			log.Warn(telemetry.LogProviderUnavailable, "error", err)
		}
		provider.Lost = func(message, reason string) { log.Warn(message, "reason", reason) }
		who.OIDC = &provider
	}
	a.Handler = functions.New(functions.Config{
		Settings: s.Functions,
		Links:    a.Links,
		Keys:     a.Links.Keys,
		Blocked:  a.Links.Blocked,
		Clicks:   a.Links.Clicks,
		Version:  version,
		Callers:  access.New(who, a.Links.Keys, now),
		Reaper:   a.Reaper,
		Tables:   a.Links,
		Lock:     a.Lock,
		Now:      now,
		Random:   random,
		Log:      log,
		Metrics:  a.Metrics,
		Sender:   a.sender,
	})
	return a, nil
}

// Background does all work besides requests until ctx ends. It creates what is missing in storage,
// follows the changes of other processes and saves clicks. Without the Functions host it also runs
// the reaper on its schedule, until New's ctx ends.
func (a *App) Background(ctx context.Context) {
	starting := telemetry.Begin(ctx, "start", nil, a.hosted)
	var all sync.WaitGroup
	tries := make(oneAtATime, 1)
	all.Go(func() { tries.ensure(&starting, a.log, "blocked hosts", a.Links.Blocked.Read) })
	all.Go(func() { tries.ensure(&starting, a.log, "tables", a.Links.EnsureTables) })
	all.Go(func() { tries.ensure(&starting, a.log, "lock", a.Lock.Ensure) })
	all.Go(func() { a.Links.FollowChanges(ctx) })
	all.Go(func() { a.Links.Clicks.FlushRegularly(ctx) })
	if !a.hosted {
		all.Go(func() { a.Reaper.RunRegularly(functions.ReapEvery, a.now) })
	}
	all.Wait()
}

// Close saves the unsaved clicks and sends the rest of the telemetry, for at most a few seconds
// each.
func (a *App) Close() {
	if a.Links != nil {
		ctx, cancel := context.WithTimeout(context.Background(), table.Timeout)
		defer cancel()
		for a.Links.Clicks.Flush(ctx) != nil && ctx.Err() == nil {
			time.Sleep(flushAgain)
		}
	}
	a.sender.Close(lastTelemetry)
}
