package app

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/robfig/cron/v3"

	"tiney/access"
	"tiney/functions"
	"tiney/reaper"
	"tiney/storage"
	"tiney/storage/lock"
	"tiney/storage/table"
	"tiney/telemetry"
)

// flushAgain is how long the last clicks wait for the next try to save them.
const flushAgain = 200 * time.Millisecond

// lastTelemetry is how long sending the rest of the telemetry may take.
const lastTelemetry = 3 * time.Second

// App is the whole service except its listener.
type App struct {
	Handler http.Handler
	Links   *storage.Links
	Lock    *lock.Lock
	Reaper  *reaper.Reaper
	Metrics *telemetry.Metrics

	schedule cron.Schedule // of the reaper; nil behind the Functions host, which has its own
	now      func() time.Time
	log      *slog.Logger
	sender   *telemetry.Sender // nil without telemetry
}

// New wires the service. It makes no storage call yet. What runs in the background ends with ctx; version is that of the
// build. The caller must Close the App.
func New(ctx context.Context, s Settings, version string, now func() time.Time, log *slog.Logger) (a *App, err error) {
	a = &App{Metrics: new(telemetry.Metrics), now: now, log: log}
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
	if !s.Hosted() {
		if a.schedule, err = functions.Schedule("reaper"); err != nil {
			return nil, err
		}
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
	if a.Lock, err = lock.Open(s.Lock); err != nil {
		return nil, fmt.Errorf("GC_BLOB_LOCK_CONNECTION or AzureWebJobsStorage: %w", err)
	}
	a.Reaper = &reaper.Reaper{Lock: a.Lock, Links: a.Links, Clicks: a.Links.Clicks, Runs: a.Links.Reaps, Limit: s.ReapLimit, Stopping: ctx,
		Log: log, Metrics: a.Metrics, Sender: a.sender}
	who := s.Access
	if who.OIDC != nil {
		provider := *who.OIDC
		provider.Failed = func(err error) { log.Warn(telemetry.LogProviderUnavailable, "error", err) }
		who.OIDC = &provider
	}
	callers, err := access.New(who, a.Links.Keys, now)
	if err != nil {
		return nil, fmt.Errorf("ADMIN_KEY or OIDC_ISSUER: %w", err)
	}
	f := s.Functions
	f.Version, f.Now, f.Log, f.Metrics, f.Sender = version, now, log, a.Metrics, a.sender
	f.Links, f.Tables, f.Lock, f.Reaper = a.Links, a.Links, a.Lock, a.Reaper
	f.Callers, f.Keys, f.Blocked, f.Clicks, f.Random = callers, a.Links.Keys, a.Links.Blocked, a.Links.Clicks, random
	f.Statistics, f.CountClicks, f.CountsKept = a.Links.Clicks, s.Storage.Clicks.Mode, s.Storage.Clicks.KeepDays
	if a.Handler, err = functions.New(f); err != nil {
		return nil, err
	}
	return a, nil
}

// Background does what runs beside the requests until New's ctx ends: it creates what is missing in storage, asks what other
// processes have changed and, without the Functions host, reaps by the schedule.
func (a *App) Background() {
	starting := telemetry.Begin(a.Reaper.Stopping, "start", nil, a.schedule == nil)
	var all sync.WaitGroup
	all.Go(func() { ensureWithRetry(&starting, a.log, "tables", a.Links.EnsureTables) })
	all.Go(func() { ensureWithRetry(&starting, a.log, "blocked hosts", a.Links.Blocked.Read) })
	all.Go(func() { ensureWithRetry(&starting, a.log, "lock", a.Lock.Ensure) })
	all.Go(func() { a.Links.FollowChanges(a.Reaper.Stopping) })
	all.Go(func() { a.Links.Clicks.FlushRegularly(a.Reaper.Stopping) })
	if a.schedule != nil {
		all.Go(func() { a.Reaper.RunOnSchedule(a.schedule, a.now) })
	}
	all.Wait()
}

// Close saves the clicks that are not saved, and sends the telemetry that is left, for at most a few seconds each.
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
