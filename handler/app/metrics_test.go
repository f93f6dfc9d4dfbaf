package app

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tiney/internal/telemetry"
)

// Metrics are served on one's own only. Behind the host, one line says so.
func TestPrometheusIsForAProcessOnItsOwn(t *testing.T) {
	for _, test := range []struct {
		given  pairs
		served bool
		lines  int
	}{
		{pairs{}, false, 0},
		{pairs{"METRICS_ADDRESS", ":9464"}, true, 0},
		{pairs{"METRICS_ADDRESS", "[::1]:9464", "FUNCTIONS_CUSTOMHANDLER_PORT", "5000"}, false, 1},
	} {
		s, err := ReadSettings(environment(test.given...))
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		a, err := New(t.Context(), s, "test", time.Now, telemetry.NewLogger(&log, slog.LevelInfo))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(log.String(), telemetry.LogMetricsNotServed); got != test.lines ||
			(a.Prometheus != nil) != test.served {
			t.Errorf("%v: served: %t, log:\n%s", test.given, a.Prometheus != nil, &log)
		}
	}
}
