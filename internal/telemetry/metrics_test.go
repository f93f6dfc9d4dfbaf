package telemetry_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/internal/telemetry"
)

func TestSnapshotNamesEveryMeasurementOnce(t *testing.T) {
	var m telemetry.Metrics
	m.CacheHit.Add(2)
	m.CacheBytes.Set(400)
	m.CacheBytes.Set(300)
	seen := map[string]telemetry.Sample{}
	for _, s := range m.Snapshot() {
		name := s.Name + s.Limit
		if _, twice := seen[name]; twice {
			t.Errorf("%s is there twice", name)
		}
		seen[name] = s
	}
	if want := reflect.TypeFor[telemetry.Metrics]().NumField() - 1 +
		len(telemetry.Limits); len(seen) != want {
		t.Errorf("%d measurements, want %d", len(seen), want)
	}
	m.LimitRefused("api").Add(2)
	m.LimitRefused(telemetry.LimitBusy).Add(1)
	if got := m.NonZero()["limit.refused"]; got != 3 {
		t.Errorf("limit.refused = %v, want the sum of all limits, 3", got)
	}
	if got := seen["cache.hit"].Sum; got != 2 {
		t.Errorf("cache.hit = %v, want 2", got)
	}
	if got := seen["cache.bytes"].Sum; got != 300 {
		t.Errorf("cache.bytes = %v, want the last value, 300", got)
	}
}

func TestDistributionUnderConcurrency(t *testing.T) {
	var m telemetry.Metrics
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 1000 {
				m.RedirectDuration.Observe(time.Duration(1+i*1000+j) * time.Millisecond)
			}
		})
	}
	all.Wait()
	for _, s := range m.Snapshot() {
		if s.Name != "redirect.duration_ms" {
			continue
		}
		want := telemetry.Sample{Name: s.Name, Count: 8000, Sum: 8000 * 8001 / 2, Min: 1, Max: 8000}
		if s != want {
			t.Errorf("got %+v, want %+v", s, want)
		}
	}
}

func TestLogIsOneJSONObjectALine(t *testing.T) {
	var out bytes.Buffer
	log := telemetry.NewLogger(&out, slog.LevelInfo)
	log.Debug("not shown")
	log.Info("two\nlines", "n", 1)
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 1 {
		t.Fatalf("%d lines, want 1: %q", len(lines), out.String())
	}
	var line struct {
		Time  string
		Level string
		Msg   string
		N     int
	}
	if err := json.Unmarshal([]byte(lines[0]), &line); err != nil {
		t.Fatal(err)
	}
	if line.Msg != "two\nlines" || line.Level != "INFO" || line.N != 1 ||
		!strings.HasSuffix(line.Time, "Z") {
		t.Errorf("got %+v", line)
	}
}
