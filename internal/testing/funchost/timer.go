package funchost

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Invocation is a handler's response to a trigger other than HTTP.
type Invocation struct {
	Logs        []string
	ReturnValue any // as encoding/json decodes it; nil for null
}

// timeFormat is .NET's round-trip format, as its JSON writer trims it: the fraction has up to seven
// digits.
const timeFormat = "2006-01-02T15:04:05.9999999"

// FireTimer sends the child one invocation of the timer function, and returns its response. If the
// host could not use the response, the error says what the host would do. Only ctx limits the time.
func (h *Host) FireTimer(ctx context.Context, name string) (inv Invocation, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("funchost: timer function %q: %w", name, err)
		}
	}()
	isTimer := func(f *function) bool { return f.route == nil && strings.EqualFold(f.name, name) }
	i := slices.IndexFunc(h.script.functions, isTimer)
	if i < 0 {
		return inv, errors.New("the script root has no such timer")
	}
	f := h.script.functions[i]
	// net/http sends a reader of unknown length as chunks.
	payload := struct{ io.Reader }{strings.NewReader(timerPayload(f, time.Now().UTC()))}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "/"+f.name, payload)
	if err != nil {
		return inv, err
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set(headerVersion, hostVersion)
	req.Header.Set(headerInvocation, newGUID())
	resp, body, err := h.exchange(req)
	if err != nil {
		return inv, err
	}
	return readInvocation(resp, bytes.TrimSpace(body))
}

func timerPayload(f *function, now time.Time) string {
	// The schedule is not evaluated, so any fixed time in the past will do. The host's own last run
	// is a few milliseconds late.
	next := now.Truncate(time.Second)
	last := next.Add(-15*time.Minute + 3500*time.Microsecond)
	return fmt.Sprintf(`{"Data":{%q:{"Schedule":{"AdjustForDST":true},"ScheduleStatus":`+
		`{"Last":"%[2]s+00:00","Next":"%[3]s+00:00","LastUpdated":"%[2]s+00:00"},`+
		`"IsPastDue":false}},"Metadata":{"sys":{"MethodName":%[4]q,"UtcNow":"%[5]sZ","RandGuid":%[6]q}}}`,
		f.trigger.Name, last.Format(timeFormat), next.Format(timeFormat), f.name,
		now.Format(timeFormat), newGUID())
}

// readInvocation accepts or rejects a response as the host does.
func readInvocation(resp *http.Response, body []byte) (inv Invocation, err error) {
	// For a JSON body, Go itself guesses text/plain. The host has no formatter for that.
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	switch {
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		return inv, fmt.Errorf("the host would fail the invocation and drop its Logs: status %s, "+
			"body %q", resp.Status, body)
	case len(body) == 0 || string(body) == "null":
		return inv, fmt.Errorf("the host would hang until the function's time limit: status %s, "+
			"body %q", resp.Status, body)
	case mediaType != "application/json" && mediaType != "text/json":
		return inv, fmt.Errorf("the host would fail the invocation: Content-Type %q is not JSON",
			resp.Header.Get("Content-Type"))
	}
	if err := json.Unmarshal(body, &inv); err != nil {
		return inv, fmt.Errorf("the host would fail the invocation: body %q is not a JSON object "+
			"of Outputs, Logs and ReturnValue: %w", body, err)
	}
	return inv, nil
}
