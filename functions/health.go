package functions

import (
	"context"
	"net/http"
	"time"
)

// health handles GET /api/health: the process runs. It makes no storage call, so that the platform
// does not end instances that still serve from their cache while storage is down.
func (s *service) health(_ context.Context, w http.ResponseWriter, _ *http.Request) error {
	writeJSON(w, http.StatusOK, struct {
		Status    string `json:"status"`
		Timestamp string `json:"timestamp"`
		Version   string `json:"version"`
	}{"healthy", s.Now().UTC().Format(time.RFC3339), s.Version})
	return nil
}
