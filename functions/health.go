package functions

import (
	"context"
	"net/http"
	"time"
)

// health handles GET /api/health: the process runs. It makes no storage call, so that the platform does not end
// instances in an outage of storage while they still serve from their cache.
type health struct {
	version string
	now     func() time.Time
}

func (h *health) serve(_ context.Context, w http.ResponseWriter, _ *http.Request) error {
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Status    string `json:"status"`
		Timestamp string `json:"timestamp"`
		Version   string `json:"version"`
	}{"healthy", h.now().UTC().Format(time.RFC3339), h.version})
	return nil
}
