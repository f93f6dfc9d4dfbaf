package functions

import (
	"context"
	"net/http"
	"time"
)

// health answers GET /api/health: the process runs. It makes no storage call, so an outage of storage does not make
// the platform take instances away that still serve from their cache.
type health struct {
	version string
	now     func() time.Time
}

func (h *health) answer(_ context.Context, w http.ResponseWriter, _ *http.Request) error {
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Status    string `json:"status"`
		Timestamp string `json:"timestamp"`
		Version   string `json:"version"`
	}{"healthy", h.now().UTC().Format(time.RFC3339), h.version})
	return nil
}
