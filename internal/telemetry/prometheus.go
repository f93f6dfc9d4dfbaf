package telemetry

import (
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/VictoriaMetrics/metrics"
)

// buckets are the upper bounds of durations, in seconds: from a redirect that is cached to the
// longest run of the reaper.
var buckets = []float64{.0001, .0005, .001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60,
	300}

// Prometheus returns the handler of GET /metrics. It serves every measurement since the start of
// the process, and those of the Go runtime and the process, in Prometheus' text format
// (https://prometheus.io/docs/instrumenting/exposition_formats/). Take does not reset them.
// Prometheus must be called once, before anything is measured.
func (m *Metrics) Prometheus() http.Handler {
	metrics.ExposeMetadata(true)
	histograms := metrics.NewSet()
	for _, of := range m.all() {
		if d, ok := of.metric.(*Distribution); ok {
			d.histogram = histograms.NewPrometheusHistogramExt(prometheusName(of.name), buckets)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		m.writeValues(w)
		histograms.WritePrometheus(w)
		metrics.WriteGoMetrics(w)
		metrics.WriteProcMetrics(w)
		metrics.WriteFDMetrics(w)
	})
	return mux
}

// writeValues writes counters and gauges.
func (m *Metrics) writeValues(w io.Writer) {
	for _, of := range m.all() {
		name := prometheusName(of.name)
		switch v := of.metric.(type) {
		case *Counter:
			name += "_total"
			if of.limit != "" {
				name += fmt.Sprintf("{limit=%q}", of.limit)
			}
			if of.limit == "" || of.limit == Limits[0] { // this writes the type, once a name
				metrics.WriteCounterUint64(w, name, uint64(v.Value()))
			} else {
				fmt.Fprintf(w, "%s %d\n", name, v.Value())
			}
		case *Gauge:
			metrics.WriteGaugeFloat64(w, name, float64(v.Value()))
		}
	}
}

// prometheusName returns a name that ends in its unit, which is the second for all times.
func prometheusName(name string) string {
	name = "tiney_" + strings.ReplaceAll(name, ".", "_")
	for _, unit := range []string{"_ms", "_s"} {
		if before, ok := strings.CutSuffix(name, unit); ok {
			return before + "_seconds"
		}
	}
	return name
}
