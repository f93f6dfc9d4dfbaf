package functions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"

	"tiney/link"
)

// reap handles the timer trigger of the reaper, to which the Functions host posts when it is time.
// To the host, an error is a failed invocation.
func (s *service) reap(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var invocation struct {
		Data struct{ Timer struct{ IsPastDue bool } }
	}
	// Not decodeJSON: each version of the host sends more fields.
	if err := json.Unmarshal(body, &invocation, json.MatchCaseInsensitiveNames(true)); err != nil {
		return badRequest("body", "Invalid body",
			"The body must be a timer's invocation, as the Functions host sends it.", "")
	}
	if invocation.Data.Timer.IsPastDue {
		s.Log.Info("reaper: this run is late, an earlier one was missed")
	}
	// A run may take minutes, for which the server's time limits are too short; when the one for
	// reading is over, the context ends.
	conn := http.NewResponseController(w)
	never := time.Time{}
	if err := errors.Join(conn.SetReadDeadline(never), conn.SetWriteDeadline(never)); err != nil {
		return fmt.Errorf("lifting the time limits for a run of the reaper: %w", err)
	}
	summary, err := s.Reaper.Run(ctx)
	if err != nil && !errors.Is(err, link.ErrLockHeld) {
		return err
	}
	setHeaders(w, "application/json")
	// After an empty body or null, the host would wait until its time limit. Each of Logs becomes a
	// trace.
	writeJSON(w, struct {
		Outputs     struct{}
		Logs        []string
		ReturnValue any
	}{Logs: []string{summary}})
	return nil
}
