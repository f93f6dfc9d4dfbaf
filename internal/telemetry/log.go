// Package telemetry measures the service: by counters in the process, under the names that charts
// and alerts use, by a structured log on stdout, and by what it sends to Application Insights.
package telemetry

import (
	"io"
	"log/slog"
	"time"
)

// NewLogger returns a logger that writes one JSON object per line to w, with times in UTC. The
// Functions host turns each line of stdout into one trace.
func NewLogger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey && len(groups) == 0 {
				a.Value = slog.StringValue(a.Value.Time().UTC().Format(time.RFC3339Nano))
			}
			return a
		},
	}))
}
