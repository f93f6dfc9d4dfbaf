package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/internal/testing/azurite"
	"tiney/storage"
	"tiney/storage/table"
)

const (
	statsDays      = 30
	statsProcesses = 20     // that have counted clicks on the link, each day
	statsClicks    = 100    // that each of them has counted
	statsAsked     = 50     // the number of requests
	activeLinks    = 10_000 // that were clicked today
)

// stats measures how long the service takes to read statistics.
func (b *bench) stats(ctx context.Context) (string, error) {
	links := makeLinks(activeLinks, func(int) time.Time { return time.Now().AddDate(0, 0, 30) })
	t, err := b.newTables(ctx, links, true)
	if err != nil {
		return "", err
	}
	var saves errgroup.Group
	saves.SetLimit(8)
	now := time.Now()
	for n := range statsDays * statsProcesses {
		saves.Go(func() error {
			return b.saveClicks(ctx, t, links[:1], statsClicks, now.AddDate(0, 0, -n%statsDays))
		})
	}
	saves.Go(func() error { return b.saveClicks(ctx, t, links, 1, now) })
	if err := saves.Wait(); err != nil {
		return "", err
	}
	store, err := b.openStore(t, now)
	if err != nil {
		return "", err
	}
	if done, err := store.Clicks.RollUp(ctx); err != nil || !done.Complete {
		return "", fmt.Errorf("the roll-up: %+v: %w", done, err)
	}

	var waits, tops results
	for _, row := range []struct {
		to         *results
		name, path string
		times, of  int // the number of requests, and how many of the last ones are measured
	}{
		{&waits, fmt.Sprintf("%d processes a day", statsProcesses), "/api/links/" +
			string(links[0].Name) + "/stats", statsAsked, statsAsked},
		{&tops, "first", "/api/stats/top", 1, 1},
		{&tops, "within a minute", "/api/stats/top", statsAsked, statsAsked - 1},
	} {
		calls, err := b.calls(ctx, t, http.MethodGet, row.path, "", row.times)
		if err != nil {
			return "", err
		}
		for range b.rounds {
			s, err := b.startReady(ctx, b.service(t, true), "/api/ready")
			if err != nil {
				return "", err
			}
			took, err := s.ask(row.path, row.times)
			s.stop()
			if err != nil {
				return "", err
			}
			took = took[row.times-row.of:]
			slices.Sort(took)
			row.to.add(row.name, values{"p50": milliseconds(took[row.of/2]), "calls": calls})
		}
	}
	return fmt.Sprintf("Rounds: %d. Statistics of %d days of a link:\n\n", b.rounds, statsDays) +
		waits.table([]column{
			{head: "p50 ms", value: "p50", digits: 1, atMost: 150},
			{head: "storage calls each", value: "calls", atMost: 8},
		}) + fmt.Sprintf("\nTop links of the last 24 hours, of %d:\n\n", activeLinks) +
		tops.table([]column{
			{head: "p50 ms", value: "p50", digits: 1, atMost: 2000},
			{head: "storage calls each", value: "calls"},
		}), nil
}

// ask gets a path several times, and returns how long each request has taken.
func (s *server) ask(path string, times int) (took []time.Duration, err error) {
	for range times {
		start := time.Now()
		if _, err := s.send(http.MethodGet, path, "", ""); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
	}
	return took, nil
}

// openStore opens the tables as a process does whose clock stands still.
func (b *bench) openStore(t *tables, at time.Time) (*storage.Links, error) {
	open, err := azurite.Tables(b.storage.ConnectionString())
	if err != nil {
		return nil, err
	}
	return storage.Open(storage.Config{
		Open: open, Timeout: table.Timeout,
		Tables: storage.Tables{Links: t[0], Index: t[1], Expiry: t[2], Owners: t[3], Keys: t[4],
			State: t[5], Clicks: t[6], ClickTotals: t[7]},
		Clicks: storage.ClicksConfig{Mode: clicks.ModeFull, KeepDays: 400},
		Reap:   storage.ReapConfig{PageSize: table.MaxPage, Pause: time.Second},
		Now:    func() time.Time { return at }, Random: rand.Reader,
		Log: slog.New(slog.DiscardHandler), Metrics: new(telemetry.Metrics),
	})
}

// saveClicks acts as one process. It counts the given number of clicks on each link, all at the
// same time and each by a visitor of its own, and saves them.
func (b *bench) saveClicks(ctx context.Context, t *tables, links []link.Link, count int,
	at time.Time) error {
	process, err := b.openStore(t, at)
	if err != nil {
		return err
	}
	var address [4]byte
	_, _ = rand.Read(address[:]) // it never fails
	for i := range count {
		for _, l := range links {
			binary.BigEndian.PutUint32(address[:], binary.BigEndian.Uint32(address[:])+1)
			process.Clicks.Click(l, clicks.Click{At: at, Took: time.Millisecond,
				Names: [...]string{fmt.Sprintf("www.site%d.example", i%30), "DE", "Chrome",
					"Windows", "desktop"},
				Visitor: clicks.NewVisitor(netip.AddrFrom4(address), "")})
		}
	}
	return process.Clicks.Flush(ctx)
}
