package functions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"tiney/link"
)

// timer handles the timer trigger of the reaper: the Functions host posts to it when it is time. To the host, an error
// is a failed invocation.
type timer struct {
	reaper Runner
	log    *slog.Logger
}

func (t *timer) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	var invocation struct {
		Data struct{ Timer struct{ IsPastDue bool } }
	}
	// Not decodeJSON: what the host sends has more fields from version to version.
	if err := json.Unmarshal(body, &invocation); err != nil {
		return badRequest("body", "Invalid body", "The body must be a timer's invocation, as the Functions host sends it.", "")
	}
	if invocation.Data.Timer.IsPastDue {
		t.log.Info("reaper: this run is late, an earlier one was missed")
	}
	// A run may take minutes. The server's time limits are for requests, and the one for reading would end the context.
	conn := http.NewResponseController(w)
	if err := errors.Join(conn.SetReadDeadline(time.Time{}), conn.SetWriteDeadline(time.Time{})); err != nil {
		return fmt.Errorf("lifting the time limits for a run of the reaper: %w", err)
	}
	summary, err := t.reaper.Run(ctx)
	if err != nil && !errors.Is(err, link.ErrLockHeld) {
		return err
	}
	setHeaders(w, "application/json")
	// If the body were empty or null, the host would wait until its time limit. Each of Logs becomes a trace.
	writeJSON(w, struct {
		Outputs     struct{}
		Logs        []string
		ReturnValue any
	}{Logs: []string{summary}})
	return nil
}
