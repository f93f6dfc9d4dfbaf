package telemetry_test

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/internal/telemetry"
)

var (
	kindLine   = regexp.MustCompile(`^# TYPE ([a-z][a-z0-9_]*) (counter|gauge|histogram|summary)$`)
	sampleLine = regexp.MustCompile(`^([a-z][a-z0-9_]*)(\{\w+="[^"{}]+"(?:, \w+="[^"{}]+")*\})? (\S+)$`)
)

// scrape reads metrics as Prometheus does: values by name and bucket, and the kinds of metrics.
func scrape(t *testing.T, h http.Handler) (values map[string]float64, kinds map[string]string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != 200 || w.Header().Get("Content-Type") !=
		"text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("got %d, %v", w.Code, w.Header())
	}
	values, kinds = map[string]float64{}, map[string]string{}
	now := "" // the metric that the last TYPE was of
	for line := range strings.Lines(w.Body.String()) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "# HELP ") {
			continue
		}
		if m := kindLine.FindStringSubmatch(line); m != nil {
			if kinds[m[1]] != "" {
				t.Errorf("%s is there twice", m[1])
			}
			now, kinds[m[1]] = m[1], m[2]
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("not Prometheus' format: %s", line)
			continue
		}
		value, err := strconv.ParseFloat(m[3], 64)
		part := strings.TrimPrefix(m[1], now)
		histogram := kinds[now] == "histogram" &&
			(part == "_bucket" || part == "_sum" || part == "_count")
		ours := strings.HasPrefix(now, "tiney_")
		if err != nil || ours && (part != "" && !histogram ||
			(kinds[now] == "counter") != strings.HasSuffix(now, "_total")) {
			t.Errorf("after the TYPE of %s %s: %s", kinds[now], now, line)
		}
		values[m[1]+m[2]] = value
	}
	return values, kinds
}

func TestPrometheus(t *testing.T) {
	var m telemetry.Metrics
	h := m.Prometheus()
	want := func(wanted map[string]float64) {
		t.Helper()
		got, _ := scrape(t, h)
		for name, value := range wanted {
			if got[name] != value {
				t.Errorf("%s is %v, want %v", name, got[name], value)
			}
		}
	}
	_, kinds := scrape(t, h)
	for _, s := range m.Snapshot() {
		name := "tiney_" + strings.ReplaceAll(s.Name, ".", "_")
		before, isDuration := strings.CutSuffix(name, "_ms")
		age, isAge := strings.CutSuffix(name, "_s")
		switch {
		case isDuration && kinds[before+"_seconds"] == "histogram":
		case isAge && kinds[age+"_seconds"] == "gauge":
		case kinds[name+"_total"] == "counter", kinds[name] == "gauge":
		default:
			t.Errorf("%s is not there", s.Name)
		}
	}
	for _, own := range []string{"go_goroutines", "go_memstats_heap_inuse_bytes"} {
		if kinds[own] != "gauge" {
			t.Errorf("%s is not there", own)
		}
	}

	m.RedirectFound.Add(2)
	m.CacheBytes.Set(300)
	m.ChangesAge.Set(7)
	m.RedirectDuration.Observe(2 * time.Millisecond)
	m.RedirectDuration.Observe(400 * time.Second)
	m.RedirectDuration.Observe(-1)
	m.LimitRefused("api").Add(4)
	all := map[string]float64{
		`tiney_limit_refused_total{limit="api"}`: 4, `tiney_limit_refused_total{limit="busy"}`: 0,
		"tiney_redirect_found_total": 2, "tiney_redirect_gone_total": 0,
		"tiney_cache_bytes": 300, "tiney_changes_age_seconds": 7,
		"tiney_redirect_duration_seconds_count": 3, "tiney_redirect_duration_seconds_sum": 400.002,
		`tiney_redirect_duration_seconds_bucket{le="0.0001"}`: 1,
		`tiney_redirect_duration_seconds_bucket{le="0.001"}`:  1,
		`tiney_redirect_duration_seconds_bucket{le="0.005"}`:  2,
		`tiney_redirect_duration_seconds_bucket{le="300"}`:    2,
		`tiney_redirect_duration_seconds_bucket{le="+Inf"}`:   3,
	}
	want(all)
	m.Take() // to Application Insights
	want(all)
	m.CacheBytes.Set(200)
	all["tiney_cache_bytes"] = 200
	m.RedirectFound.Add(1)
	all["tiney_redirect_found_total"] = 3
	m.Take()
	want(all)
}

func TestPrometheusServesNothingElse(t *testing.T) {
	h := new(telemetry.Metrics).Prometheus()
	for request, status := range map[string]int{"GET /metrics": 200, "HEAD /metrics": 200,
		"POST /metrics": 405, "GET /": 404, "GET /metrics/": 404, "GET /debug/pprof/": 404} {
		method, path, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if w.Code != status {
			t.Errorf("%s: got %d", request, w.Code)
		}
	}
}

// Whoever reads while others count and take sees no counter fall.
func TestPrometheusCountersNeverFall(t *testing.T) {
	var m telemetry.Metrics
	h := m.Prometheus()
	var counting, reading sync.WaitGroup
	done := make(chan struct{})
	counting.Go(func() {
		for range 20_000 {
			m.RedirectFound.Add(1)
			m.RedirectDuration.Observe(time.Millisecond)
		}
	})
	counting.Go(func() {
		for range 1000 {
			m.Take()
		}
	})
	for range 2 {
		reading.Go(func() {
			last := map[string]float64{}
			for {
				select {
				case <-done:
					return
				default:
				}
				now, kinds := scrape(t, h)
				for name, value := range now {
					counts := kinds[name] == "counter" || strings.Contains(name, "_seconds_bucket") ||
						strings.HasSuffix(name, "_count")
					if counts && strings.HasPrefix(name, "tiney_") && value < last[name] {
						t.Errorf("%s fell from %v to %v", name, last[name], value)
					}
				}
				last = now
			}
		})
	}
	counting.Wait()
	close(done)
	reading.Wait()
}
