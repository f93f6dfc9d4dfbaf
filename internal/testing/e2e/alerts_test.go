package e2e

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/ingest"
	"tiney/internal/testing/kql"
	"tiney/internal/testing/testutil"
	"tiney/storage"
	"tiney/storage/counts"
	"tiney/storage/memtable"
	"tiney/storage/table"
)

// alert is an alert in infra/alerts.json.
type alert struct {
	Name, Query, WindowSize, OverrideQueryTimeRange, MetricMeasureColumn, Operator string
	Threshold                                                                      float64
}

func rules(t *testing.T) (all []alert) {
	t.Helper()
	data, err := os.ReadFile("../../../infra/alerts.json")
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil || len(all) == 0 {
		t.Fatalf("no alerts: %v", err)
	}
	return all
}

// phase is telemetry of a time. Its last item arrived so long ago, and time ran so much faster
// before that: nobody waits for hours in a test. Each item stands for so many, but for one by
// default.
type phase struct {
	items  []ingest.Item
	ago    time.Duration
	faster float64
	times  int
}

// tables returns the telemetry of phases as queries see it.
func tables(t *testing.T, now time.Time, phases ...phase) map[string][]kql.Row {
	t.Helper()
	names := map[string]string{"RequestData": "requests", "EventData": "customEvents",
		"RemoteDependencyData": "dependencies", "MetricData": "customMetrics"}
	all := map[string][]kql.Row{}
	for _, p := range phases {
		if len(p.items) == 0 {
			t.Fatal("nothing arrived")
		}
		last := slices.MaxFunc(p.items, func(a, b ingest.Item) int { return a.Time.Compare(b.Time) }).Time
		for _, i := range p.items {
			before := time.Duration(float64(last.Sub(i.Time)) * p.faster)
			d, table := i.Data.BaseData, names[i.Data.BaseType]
			row := kql.Row{"timestamp": now.Add(-p.ago - before).UnixMilli(),
				"cloud_RoleInstance":  i.Tags["ai.cloud.roleInstance"],
				"application_Version": i.Tags["ai.application.ver"],
				"customDimensions":    d.Properties, "customMeasurements": d.Measurements,
				"name": d.Name, "type": d.Type, "target": d.Target,
				"resultCode": d.ResultCode + d.ResponseCode, "success": strconv.FormatBool(d.Success),
				"duration": milliseconds(t, d.Duration), "itemCount": 100 / max(i.SampleRate, 1)}
			if table == "customMetrics" {
				m := d.Metrics[0]
				row["name"], row["value"], row["valueSum"], row["valueCount"] = m.Name, m.Value, m.Value,
					m.Count
				row["valueMin"], row["valueMax"] = m.Min, m.Max
			}
			all[table] = append(all[table], slices.Repeat([]kql.Row{row}, max(p.times, 1))...)
		}
	}
	return all
}

// milliseconds converts a duration of Application Insights, d.hh:mm:ss.ffffff.
func milliseconds(t *testing.T, text string) float64 {
	t.Helper()
	if text == "" {
		return 0
	}
	var days, hours, minutes int
	var seconds float64
	if _, err := fmt.Sscanf(strings.NewReplacer(".", " ", ":", " ").Replace(text[:len(text)-1]),
		"%d %d %d", &days, &hours, &minutes); err != nil {
		t.Fatalf("duration %q: %v", text, err)
	}
	seconds, err := strconv.ParseFloat(text[strings.LastIndexByte(text, ':')+1:], 64)
	if err != nil {
		t.Fatalf("duration %q: %v", text, err)
	}
	return 1000 * (float64((days*24+hours)*3600+minutes*60) + seconds)
}

// spans are the windows and ranges of alerts.
var spans = map[string]time.Duration{"PT10M": 10 * time.Minute, "PT15M": 15 * time.Minute,
	"PT30M": 30 * time.Minute, "PT1H": time.Hour, "P1D": 24 * time.Hour}

// firing evaluates alerts on the telemetry of phases as Azure does: each over its window or, if it
// has one, its own range. It returns what those that fire measure, and what the others do.
func firing(t *testing.T, alerts []alert, all map[string][]kql.Row, now time.Time) (fires,
	quiet map[string]kql.Row) {
	t.Helper()
	var queries []kql.Query
	for _, a := range alerts {
		span := spans[cmp.Or(a.OverrideQueryTimeRange, a.WindowSize)]
		if span == 0 {
			t.Fatalf("%s: this test does not know its window", a.Name)
		}
		queries = append(queries, kql.Query{Name: a.Name, Text: a.Query,
			Since: now.Add(-span).UnixMilli()})
	}
	results, err := kql.Evaluate("../../..", queries, now, all)
	if err != nil {
		t.Fatal(err)
	}
	fires, quiet = map[string]kql.Row{}, map[string]kql.Row{}
	for i, a := range alerts {
		if len(results[i]) != 1 {
			t.Fatalf("%s selects %v", a.Name, results[i])
		}
		row := results[i][0]
		measured, ok := row[a.MetricMeasureColumn].(float64)
		switch {
		case !ok:
			t.Fatalf("%s measures %v", a.Name, row)
		case a.Operator == "GreaterThan" && measured > a.Threshold,
			a.Operator == "LessThan" && measured < a.Threshold:
			fires[a.Name] = row
		case a.Operator == "GreaterThan", a.Operator == "LessThan":
			quiet[a.Name] = row
		default:
			t.Fatalf("%s: operator %s", a.Name, a.Operator)
		}
	}
	return fires, quiet
}

// faults are the faults of alerts. A function below makes each happen in the service, and returns
// what the service has sent of it.
var faults = map[string]struct {
	happens func(*testing.T) []phase
	alerts  []string
}{
	"storage fails":   {storageFails, []string{"redirects-failing", "storage-unavailable"}},
	"storage is slow": {storageIsSlow, []string{"redirects-slow"}},
	"no timer":        {noTimer, []string{"reaper-not-run"}},
	"links stay":      {linksStay, []string{"reaper-behind"}},
	"no cache":        {noCache, []string{"cache-collapsed"}},
	"changes fail":    {changesFail, []string{"changes-failing"}},
	"wrong keys":      {wrongKeys, []string{"signins-refused"}},
	"clicks stay":     {clicksStay, []string{"clicks-not-saved"}},
	"crashes":         {crashes, []string{"crash-loop"}},
}

// TestAlertsFire makes the fault of each alert happen, and finds the alert's query above its
// threshold in what the service has sent of it.
func TestAlertsFire(t *testing.T) {
	testutil.NotShort(t)
	t.Parallel()
	alerts := map[string]alert{}
	for _, a := range rules(t) {
		alerts[a.Name] = a
	}
	for name, fault := range faults {
		var of []alert
		for _, name := range fault.alerts {
			of = append(of, alerts[name])
			delete(alerts, name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			phases, now := fault.happens(t), time.Now()
			_, quiet := firing(t, of, tables(t, now, phases...), now)
			for alert, row := range quiet {
				t.Errorf("%s does not fire: it measures %v", alert, row)
			}
		})
	}
	for alert := range alerts {
		t.Errorf("no test makes the fault of %s happen", alert)
	}
}

// No alert fires while all is well.
func TestAlertsAreQuiet(t *testing.T) {
	testutil.NotShort(t)
	t.Parallel()
	s, e, setting := newMonitoredSite(t)
	p := s.standalone(emulator.ConnectionString(), setting, "CLICKS_FLUSH_SECONDS=1")
	testutil.Eventually(t, "the first run of the reaper is over", func() bool {
		return strings.Contains(p.output.String(), "reaper: done")
	})
	mix(t, s, p.url)
	testutil.Eventually(t, "an instance asks for changes and saves clicks", func() bool {
		m := e.Metrics()
		return m["changes.polls"].Count > 0 && m["clicks.flush_ms"].Count > 0
	})
	p.stop(t)
	now := time.Now()
	all := tables(t, now, phase{items: e.Items(""), faster: 10})
	for _, name := range []string{"requests", "dependencies", "customMetrics", "customEvents"} {
		if len(all[name]) == 0 {
			t.Errorf("nothing in %s", name)
		}
	}
	fires, _ := firing(t, rules(t), all, now)
	for alert, row := range fires {
		t.Errorf("%s fires: it measures %v", alert, row)
	}
}

func storageFails(t *testing.T) []phase {
	s, e, setting := newMonitoredSite(t)
	proxy := s.proxy()
	p := s.standalone(proxy.ConnectionString(), setting, "CACHE_ENABLED=false")
	awaitReady(t, p.url)
	s.PutLink(link.Link{Name: "live", LongURL: "https://example.com/"})
	proxy.Before(func(faultproxy.Call) faultproxy.Fault { return faultproxy.Refuse })
	// A second here stands for forty.
	end := time.Now().Add(9 * time.Second)
	for n := 0; n < 25 || time.Now().Before(end); n++ {
		time.Sleep(100 * time.Millisecond)
		if got := get(t, p.url+"/live"); got.Status != http.StatusServiceUnavailable {
			t.Fatalf("without storage: %d", got.Status)
		}
	}
	p.cmd.Process.Signal(os.Interrupt) // what it still holds cannot be saved
	<-p.exited
	return []phase{{items: e.Items(""), faster: 40}}
}

func storageIsSlow(t *testing.T) []phase {
	s, e, setting := newMonitoredSite(t)
	proxy := s.proxy()
	p := s.standalone(proxy.ConnectionString(), setting, "CACHE_ENABLED=false")
	awaitReady(t, p.url)
	s.PutLink(link.Link{Name: "live", LongURL: "https://example.com/"})
	for range 100 {
		get(t, p.url+"/live")
	}
	var mu sync.Mutex
	frozen := 0
	proxy.Before(func(c faultproxy.Call) faultproxy.Fault { // every first try takes too long
		mu.Lock()
		defer mu.Unlock()
		if c.Target == s.Links && frozen < 8 {
			frozen++
			return faultproxy.Freeze
		}
		return faultproxy.None
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { get(t, p.url+"/live") })
	}
	all.Wait()
	p.stop(t)
	return []phase{{items: e.Items(""), faster: 1}}
}

func noTimer(t *testing.T) []phase {
	s, e, setting := newMonitoredSite(t)
	h := s.hosted(true, emulator.ConnectionString(), setting)
	get(t, h.URL()+"/nobody")
	testutil.Eventually(t, "telemetry arrives", func() bool { return len(e.Items("")) > 0 })
	return []phase{{items: e.Items(""), faster: 1}}
}

func linksStay(t *testing.T) []phase {
	s, e, setting := newMonitoredSite(t)
	s.PutLink(link.Link{Name: "old", LongURL: "https://example.com/",
		ExpiresAt: time.Now().Add(-48 * time.Hour)})
	proxy := s.proxy()
	proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Target == s.Links && c.Operation != "GetEntity" && c.Operation != "QueryEntities" {
			return faultproxy.ServerBusy
		}
		return faultproxy.None
	})
	p := s.standalone(proxy.ConnectionString(), setting)
	testutil.Eventually(t, "the reaper's run is over", func() bool {
		return strings.Contains(p.output.String(), "reaper: ") && len(e.Items("EventData")) > 0
	})
	p.stop(t)
	return []phase{{items: e.Items(""), faster: 1}}
}

func noCache(t *testing.T) []phase {
	s, e, setting := newMonitoredSite(t)
	s.PutLink(link.Link{Name: "live", LongURL: "https://example.com/"})
	follow := func(n int, alias func(i int) string) []ingest.Item {
		before := len(e.Items(""))
		p := s.standalone(emulator.ConnectionString(), setting, "CLICKS=off")
		awaitReady(t, p.url)
		var all sync.WaitGroup
		for part := range 8 {
			all.Go(func() {
				for i := range n / 8 {
					get(t, p.url+"/"+alias(part*n/8+i))
				}
			})
		}
		all.Wait()
		p.stop(t)
		return e.Items("")[before:]
	}
	earlier := follow(1040, func(int) string { return "live" })
	now := follow(208, func(i int) string { return fmt.Sprintf("guess%d", i) })
	return []phase{{earlier, 2 * time.Hour, 1, 10}, {now, 0, 1, 5}}
}

func wrongKeys(t *testing.T) []phase {
	s, e, setting := newMonitoredSite(t)
	p := s.standalone(emulator.ConnectionString(), setting)
	for n := range 101 {
		get(t, p.url+"/api/me", "X-Api-Key", fmt.Sprintf("tny_%040d", n))
	}
	p.stop(t)
	return []phase{{items: e.Items(""), faster: 1}}
}

func crashes(t *testing.T) []phase {
	s, e, setting := newMonitoredSite(t)
	for n := range 6 {
		p := s.standalone(emulator.ConnectionString(), setting, "WEBSITE_INSTANCE_ID=one")
		testutil.Eventually(t, "its start arrives", func() bool {
			return e.Metrics()["process.started"].Value == float64(n+1)
		})
		p.cmd.Process.Kill()
		<-p.exited
	}
	return []phase{{items: e.Items(""), faster: 20}}
}

// minutes runs a store in memory for so many minutes of a clock of its own, calls each in each, and
// returns what was sent of it. Calls with the fault fail.
func minutes(t *testing.T, n int, fails func(faultproxy.Call) bool, each func(*storage.Links)) (
	items []ingest.Item,
) {
	t.Helper()
	start := time.Now().UTC().Truncate(24 * time.Hour).Add(time.Hour)
	now := start
	clock := func() time.Time { return now }
	proxy := faultproxy.InMemory(memtable.New(clock))
	open, err := proxy.Open()
	if err != nil {
		t.Fatal(err)
	}
	metrics := new(telemetry.Metrics)
	store, err := storage.Open(storage.Config{Open: open, Timeout: table.Timeout, AliasLength: 6,
		Tables: storage.Tables{Links: "Links", Index: "Index", Expiry: "Expiry", Owners: "Owners",
			Keys: "Keys", State: "State", Clicks: "Clicks", ClickTotals: "Totals"},
		Cache: &storage.CacheConfig{Bytes: 1 << 20, Fresh: time.Hour, Negative: time.Hour,
			Stale: time.Hour},
		Clicks:       counts.Settings{Mode: clicks.ModeFull, FlushEvery: time.Hour, KeepDays: 400},
		ChangesEvery: 5 * time.Second, ChangesWait: time.Second, StaleWait: time.Second, Now: clock,
		Random: rand.Reader, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Metrics: metrics})
	if err == nil {
		err = store.EnsureTables(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if fails(c) {
			return faultproxy.ServerBusy
		}
		return faultproxy.None
	})
	for minute := range n {
		now = start.Add(time.Duration(minute+1) * time.Minute)
		each(store)
		e := ingest.Start()
		connection, err := telemetry.ParseConnection(e.ConnectionString())
		if err != nil {
			t.Fatal(err)
		}
		telemetry.Start(telemetry.Config{Connection: connection, Metrics: metrics, Role: "tiney",
			Instance: "one", SamplingPercent: 100, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		}).Close(10 * time.Second)
		for _, i := range e.Items("") {
			i.Time = now
			items = append(items, i)
		}
		e.Close()
	}
	return items
}

func changesFail(t *testing.T) []phase {
	items := minutes(t, 14, func(c faultproxy.Call) bool { return c.Target == "State" },
		func(store *storage.Links) { _, _ = store.Get(context.Background(), "nobody") })
	return []phase{{items: items, faster: 1}}
}

func clicksStay(t *testing.T) []phase {
	items := minutes(t, 14, func(c faultproxy.Call) bool {
		return strings.HasPrefix(c.Target, "Clicks")
	}, func(store *storage.Links) {
		store.Clicks.Click(link.Link{Name: "live", LongURL: "https://example.com/"},
			clicks.Click{At: time.Now().UTC().Truncate(24 * time.Hour).Add(time.Hour)})
		_ = store.Clicks.Flush(context.Background())
	})
	return []phase{{items: items, faster: 1}}
}
