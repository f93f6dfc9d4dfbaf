package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"tiney/internal/testing/faultproxy"
)

const (
	knownURLs = 500    // few enough for any cache
	newURLs   = 40_000 // more than are shortened in one run
)

// body returns a request for the link of a URL. The links expire on many different days. Each day
// is a partition of the expiry rows, and Azurite searches a whole partition for a row.
func body(n int) string {
	return fmt.Sprintf(`{"longUrl":%q,"expiresInSeconds":%d}`, longURL(n), (1+n%89)*24*60*60)
}

// shorten measures how fast links are created and found again.
func (b *bench) shorten(ctx context.Context) (string, error) {
	links := makeLinks(knownURLs, func(n int) time.Time { return time.Now().AddDate(0, 0, 1+n%89) })
	var bodies []string
	for n := range knownURLs + newURLs {
		bodies = append(bodies, body(n))
	}
	known, err := b.file("known", bodies[:knownURLs])
	if err != nil {
		return "", err
	}
	fresh, err := b.file("new", bodies[knownURLs:])
	if err != nil {
		return "", err
	}
	var rates results
	for _, row := range []struct {
		name, file, counted string
		skip                int
		// request is the number of the request for one URL whose calls are counted. At the second
		// one, the cache may not have the link yet.
		request int
	}{
		{"new", fresh, "shorten.created", newURLs / 2, 1},
		{"known", known, "shorten.deduplicated", 0, 3},
	} {
		t, err := b.newTables(ctx, nil, false)
		if err != nil {
			return "", err
		}
		calls, err := b.calls(ctx, t, http.MethodPost, "/api/shorten", bodies[0], row.request)
		if err != nil {
			return "", err
		}
		for range b.rounds {
			t, err := b.newTables(ctx, links, false)
			if err != nil {
				return "", err
			}
			v, err := b.once(ctx, subject{row.name, b.service(t, true),
				load{file: row.file, counted: row.counted}}, row.skip)
			if err != nil {
				return "", fmt.Errorf("%s: %w", row.name, err)
			}
			v["calls"] = calls
			rates.add(row.name, v)
		}
	}
	return fmt.Sprintf("Rounds: %d, of %v.\n\n", b.rounds, storageTime) + rates.table([]column{
		{head: "requests/s", value: "req/s"},
		{head: "p50 ms", value: "p50", digits: 2},
		{head: "p99 ms", value: "p99", digits: 2},
		{head: "CPU µs each", value: "µs", digits: 1},
		{head: "storage calls each", value: "calls"},
	}), nil
}

// calls sends equal requests to a service whose tables nobody else uses. It returns the number of
// storage calls that the last request makes.
func (b *bench) calls(ctx context.Context, t *tables, method, path, body string,
	requests int) (n float64, err error) {
	proxy := faultproxy.Start(b.storage)
	defer proxy.Close()
	s, err := b.startReady(ctx, b.service(t, true, "AzureWebJobsStorage="+proxy.ConnectionString()),
		"/api/ready")
	if err != nil {
		return 0, err
	}
	defer s.stop()
	for range requests {
		time.Sleep(50 * time.Millisecond) // the cache stores a link shortly after it was read
		proxy.Reset()
		if _, err := s.send(method, path, body, ""); err != nil {
			return 0, err
		}
	}
	for _, call := range proxy.Calls() {
		// The calls of the start and the polls for changes belong to no request.
		if !strings.HasPrefix(call.Operation, "Create") && (call.Operation != "QueryEntities" ||
			call.Target != t[5]) {
			n++
		}
	}
	return n, nil
}
