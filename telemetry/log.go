// Package telemetry is what the service measures and how it tells: counters held in the process under the names that
// charts and alerts use, a structured log on stdout, and what goes to Application Insights.
package telemetry

import (
	"io"
	"log/slog"
	"time"
)

// NewLogger returns a logger that writes one JSON object a line to w, times in UTC. The Functions host takes each
// line of stdout for one trace.
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
