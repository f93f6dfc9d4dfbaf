package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/azurite"
	"tiney/internal/testing/useragents"
	"tiney/storage/table"
)

const (
	visitedLinks = 100_000
	visits       = 100_000 // that are drawn, and then sent over and over
	visitTime    = 20 * time.Second
	visitRest    = time.Minute // until the counts are saved, and most of them forgotten
)

// clicks measures the cost of counting clicks: on one cached link, and on many links under requests
// that resemble real traffic.
func (b *bench) clicks(ctx context.Context) (string, error) {
	expires := time.Now().AddDate(0, 0, 30)
	links := makeLinks(visitedLinks, func(int) time.Time { return expires })
	t, err := b.newTables(ctx, links, true)
	if err != nil {
		return "", err
	}
	one, err := b.visits("one", links[:1], 1_000)
	if err != nil {
		return "", err
	}
	many, err := b.visits("many", links, visits)
	if err != nil {
		return "", err
	}
	without := subject{noClicks, b.service(t, true, noClicks),
		load{file: one, counted: "cache.hit"}}
	with := subject{"CLICKS=full", b.service(t, true), load{file: one, counted: "cache.hit"}}

	var rates, life results
	for range b.rounds {
		if err := b.takeTurns(ctx, &rates, "/"+string(links[0].Name),
			[]subject{without, with}); err != nil {
			return "", err
		}
	}
	for _, mode := range []string{noClicks, "CLICKS=full"} {
		v, err := b.visited(ctx, t, mode, many)
		if err != nil {
			return "", fmt.Errorf("%s: %w", mode, err)
		}
		life.add(mode, v)
	}
	return fmt.Sprintf("One link. Rounds: %d, of %d turns.\n\n", b.rounds, turns) +
		rates.table([]column{
			{head: "requests/s", value: "req/s"},
			{head: "p50 ms", value: "p50", digits: 2},
			{head: "p99 ms", value: "p99", digits: 2},
			{head: "CPU µs each", value: "µs", digits: 1},
			{head: "requests/s, to " + noClicks, value: "req/s to first", digits: 3, atLeast: 0.97,
				rows: []string{with.name}},
		}) +
		fmt.Sprintf("\n%d links. One run of %v each, and %v of rest after clicks.\n\n",
			visitedLinks, visitTime, visitRest) +
		life.table([]column{
			{head: "requests/s", value: "req/s"},
			{head: "p50 ms", value: "p50", digits: 2},
			{head: "p99 ms", value: "p99", digits: 2},
			{head: "CPU µs each", value: "µs", digits: 1},
			{head: "MB before", value: "before", digits: 1},
			{head: "MB at most", value: "most", digits: 1},
			{head: "MB after", value: "after", digits: 1, atMost: 55, rows: []string{with.name}},
			{head: "calls", value: "batches"},
			{head: "rows", value: "rows"},
		}), nil
}

// visits writes a file of requests for links, as people and bots send them. One in 100 is a bot's.
// A few links get most of the requests, and so do a few of the referring sites. Each request has an
// address of its own.
func (b *bench) visits(name string, links []link.Link, count int) (file string, err error) {
	people, err := useragents.People(".")
	if err != nil {
		return "", err
	}
	bots, err := useragents.Bots(".")
	if err != nil {
		return "", err
	}
	random := rand.New(rand.NewPCG(3, 4))
	popular := rand.NewZipf(random, 1.01, 1, uint64(len(links)-1))
	sites := make([]string, 1000)
	for i := range sites {
		sites[i] = fmt.Sprintf("https://%s.example/news", fmt.Sprintf("%016x", random.Uint64())[:4+
			random.IntN(12)])
	}
	known := rand.NewZipf(random, 1.01, 1, uint64(len(sites)-1))
	lines := make([]string, count)
	for i := range lines {
		agent := people[random.IntN(len(people))].UserAgent
		if i%100 == 0 {
			agent = bots[random.IntN(len(bots))]
		}
		address := netip.AddrFrom4([4]byte{byte(1 + random.IntN(220)), byte(random.IntN(256)),
			byte(random.IntN(256)), byte(random.IntN(256))})
		lines[i] = strings.Join([]string{"/" + string(links[popular.Uint64()].Name), agent,
			sites[known.Uint64()], address.String()}, "\t")
	}
	return b.file(name, lines)
}

// visited measures a service under the requests in file, and counts the click rows that it writes.
func (b *bench) visited(ctx context.Context, t *tables, mode, file string) (values, error) {
	of := *t
	of[6] += strings.TrimPrefix(mode, "CLICKS=") // a table that has only this service's rows
	storage, batches, stop := b.countBatches()
	defer stop()
	s, err := b.startReady(ctx, b.service(&of, true, mode, "AzureWebJobsStorage="+storage),
		"/api/ready")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	before, _, err := memory(s.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	v, err := s.put(ctx, load{file: file}, visitTime, 0)
	if err != nil {
		return nil, err
	}
	if mode != noClicks {
		time.Sleep(visitRest)
	}
	v["before"] = before
	if v["after"], v["most"], err = memory(s.cmd.Process.Pid); err != nil {
		return nil, err
	}
	counts, err := s.stopCounted("redirect.found")
	if err != nil {
		return nil, err
	}
	v["batches"] = float64(batches.Load())
	clicks := 0.0
	if v["rows"], clicks, err = b.savedClicks(ctx, of[6]); err != nil {
		return nil, err
	}
	if counted := counts["clicks.counted"] + counts["clicks.bots"]; counted != clicks {
		return nil, fmt.Errorf("%v clicks were counted, and the table has %v", counted, clicks)
	}
	return v, nil
}

// savedClicks returns the number of rows in the tables of days, and the sum of the clicks in the
// links' rows.
func (b *bench) savedClicks(ctx context.Context, prefix string) (rows, clicks float64, err error) {
	open, err := azurite.Tables(b.storage.ConnectionString())
	if err != nil {
		return 0, 0, err
	}
	days, err := open(prefix).Names(ctx, prefix+"2")
	for _, day := range days {
		if err != nil {
			break
		}
		err = open(day).List(ctx, table.Query{}, func(page [][]byte) error {
			for _, data := range page {
				var row struct {
					RowKey       string
					Clicks, Bots int64 `json:",string"`
				}
				if err := json.Unmarshal(data, &row); err != nil {
					return err
				}
				rows++
				if _, name, _ := strings.Cut(row.RowKey, "!"); name[0] != '*' && name[0] != '@' {
					clicks += float64(row.Clicks + row.Bots)
				}
			}
			return nil
		})
	}
	return rows, clicks, err
}

// countBatches starts a proxy in front of the tables that counts the batches; only a flush sends
// them. It returns the connection string of the proxy.
func (b *bench) countBatches() (connectionString string, batches *atomic.Int64, stop func()) {
	batches = new(atomic.Int64)
	forward := &httputil.ReverseProxy{
		Transport: client.Transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", b.storage.Table)})
			if strings.HasSuffix(r.In.URL.Path, "/$batch") {
				batches.Add(1)
			}
		},
	}
	proxy := httptest.NewServer(forward)
	ports := azurite.Ports{Blob: b.storage.Blob, Queue: b.storage.Queue,
		Table: proxy.Listener.Addr().(*net.TCPAddr).Port}
	return ports.ConnectionString(), batches, proxy.Close
}
