package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"tiney/internal/memtables"
	"tiney/link"
	"tiney/storage"
	"tiney/telemetry"
)

// inMemory makes tables in a table service of the test's own.
func inMemory(t *testing.T) (*memtables.Service, *tables) {
	t.Helper()
	double := memtables.Start()
	t.Cleanup(double.Close)
	made, err := newTables(context.Background(), double.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	return double, made
}

// callsSince returns the calls that were made since others were counted, but for those that make tables.
func callsSince(double *memtables.Service, before map[string]int) map[string]int {
	calls := double.Calls()
	for name, n := range before {
		calls[name] -= n
	}
	delete(calls, "CreateTable")
	return calls
}

// startRaw serves the raw side on some tables.
func startRaw(t *testing.T, on *tables) *service {
	t.Helper()
	routes, err := rawSide(func(name string) string {
		return map[string]string{"TABLE_CONNECTION": on.connection, "SHORTURL_TABLE_NAME": on.links,
			"URLINDEX_TABLE_NAME": on.index, "EXPIRYINDEX_TABLE_NAME": on.expiry}[name]
	})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(routes)
	t.Cleanup(server.Close)
	return &service{url: server.URL}
}

// openStorage opens what the service does the same with.
func openStorage(t *testing.T, on *tables) *storage.Links {
	t.Helper()
	c, err := storage.ParseConnection(func(string) string { return on.connection }, storage.TableService, "X")
	if err != nil {
		t.Fatal(err)
	}
	s, err := storage.Open(storage.Config{
		Connection: c, LinkTable: on.links, IndexTable: on.index, ExpiryTable: on.expiry, AliasLength: 6,
		ReapLimit: time.Minute, ReapPageSize: 1000, StorageClock: true,
		Now: time.Now, Random: rand.Reader, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Metrics: new(telemetry.Metrics),
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// More than one day and one page, and batches that are not full.
const dueLinks = 1150

func TestBothSidesReapByTheSameCalls(t *testing.T) {
	ctx := context.Background()
	double, on := inMemory(t)
	var seen [2]map[string]int
	for i, reap := range []func() (complete bool, err error){
		func() (bool, error) { return fire(ctx, startRaw(t, on)) },
		func() (bool, error) {
			done, err := openStorage(t, on).Reap(ctx)
			if want := (link.ReapResult{Deleted: dueLinks, Complete: true}); done != want {
				t.Errorf("the service has done %+v, want %+v", done, want)
			}
			return done.Complete, err
		},
	} {
		if err := on.seed(dueLinks, double.Insert); err != nil {
			t.Fatal(err)
		}
		before := double.Calls()
		if complete, err := reap(); err != nil || !complete {
			t.Fatalf("complete: %t, %v", complete, err)
		}
		if left := double.Rows(); left > 0 {
			t.Fatalf("%d rows are left", left)
		}
		seen[i] = callsSince(double, before)
	}
	if !maps.Equal(seen[0], seen[1]) {
		t.Errorf("the raw side calls %v, the service %v", seen[0], seen[1])
	}
}

func TestTheRawSideMakesALinkAsTheServiceDoes(t *testing.T) {
	ctx := context.Background()
	double, on := inMemory(t)
	raw := startRaw(t, on)
	var seen []map[string]int
	shorten := func(want int) (alias string) {
		before := double.Calls()
		status, said, err := raw.send(http.MethodPost, "/api/shorten", shortenBody(1, true))
		var answer struct{ Alias string }
		if err != nil || status != want || json.Unmarshal(said, &answer) != nil {
			t.Fatalf("%d %s %v", status, said, err)
		}
		seen = append(seen, callsSince(double, before))
		return answer.Alias
	}
	made := shorten(http.StatusCreated)
	if again := shorten(http.StatusOK); again != made {
		t.Errorf("the URL has the aliases %q and %q", made, again)
	}
	var body struct {
		LongURL          string
		ExpiresInSeconds int
	}
	if err := json.Unmarshal([]byte(shortenBody(1, true)), &body); err != nil {
		t.Fatal(err)
	}

	// The service finds it, as if it had made it.
	s := openStorage(t, on)
	l, created, err := s.Create(ctx, link.Link{LongURL: body.LongURL, CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)})
	life := l.ExpiresAt.Sub(l.CreatedAt)
	if err != nil || created || string(l.Alias) != made || l.LongURL != body.LongURL || life != time.Duration(body.ExpiresInSeconds)*time.Second {
		t.Errorf("created %t, %+v, %v", created, l, err)
	}
	before := double.Calls()
	if _, created, err := s.Create(ctx, link.Link{LongURL: body.LongURL + "2", CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)}); err != nil || !created {
		t.Fatalf("created %t, %v", created, err)
	}
	if calls := callsSince(double, before); !maps.Equal(calls, seen[0]) {
		t.Errorf("a new URL: the raw side calls %v, the service %v", seen[0], calls)
	}
}

func TestLinksThatAreDueAreSpread(t *testing.T) {
	now := time.Date(2026, 3, 4, 0, 0, 1, 0, time.UTC)
	aliases, partitions, days := map[link.Alias]bool{}, map[string]int{}, map[string]int{}
	const all = 100_000
	for n := range all {
		l := due(n, now)
		if _, ok := link.ParseAlias(string(l.Alias)); !ok || len(l.Alias) != 6 || !l.Expired(now) {
			t.Fatalf("link %d is %+v", n, l)
		}
		aliases[l.Alias] = true
		partitions[string(l.Alias[:2])]++
		days[l.ExpiresAt.Format(time.DateOnly)]++
	}
	if len(aliases) != all {
		t.Errorf("%d aliases for %d links", len(aliases), all)
	}
	if most := slices.Max(slices.Collect(maps.Values(partitions))); most > 2*all/(36*36) {
		t.Errorf("one partition has %d of %d links", most, all)
	}
	if last := "2025-11-24"; len(days) != all/1000 || days[last] != 1000 || days["2026-03-03"] != 1000 {
		t.Errorf("%d days, with %d links on the last one, %s", len(days), days[last], last)
	}
}

func TestURLsToShortenAreTaken(t *testing.T) {
	base, err := link.ParseBase("https://tiney.to")
	if err != nil {
		t.Fatal(err)
	}
	rules := link.Rules{Base: base, DefaultTTL: time.Hour, MaxTTL: 90 * 24 * time.Hour}
	for _, long := range []bool{false, true} {
		seen := map[string]bool{}
		for n := range 1000 {
			var body struct {
				LongURL          string `json:"longUrl"`
				ExpiresInSeconds int64  `json:"expiresInSeconds"`
			}
			if err := json.Unmarshal([]byte(shortenBody(n, long)), &body); err != nil {
				t.Fatal(err)
			}
			if _, err := rules.New(body.LongURL, &body.ExpiresInSeconds, time.Now()); err != nil {
				t.Fatal(err)
			}
			seen[body.LongURL] = true
			if length := len(body.LongURL); long != (length > 1970 && length <= 2000) {
				t.Fatalf("a URL of %d characters", length)
			}
		}
		if len(seen) != 1000 {
			t.Errorf("%d URLs of 1000", len(seen))
		}
	}
}
