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

// Timer says how an invocation of a timer differs from an ordinary one.
type Timer struct {
	// PastDue sets IsPastDue: a run was missed while the host was down.
	PastDue bool
	// NullStatus sends null for ScheduleStatus.
	NullStatus bool
	// FirstRun sends a ScheduleStatus without a last run, whose times carry no offset
	// ("0001-01-01T00:00:00"). NullStatus overrides it.
	FirstRun bool
}

// Invocation is what a handler answered to a trigger other than HTTP.
type Invocation struct {
	Logs        []string
	ReturnValue any // as encoding/json decodes it; nil for null
}

// scheduleStatus holds its times as text, because the host does not always write an offset.
type scheduleStatus struct{ Last, Next, LastUpdated string }

type timerInfo struct {
	Schedule       struct{ AdjustForDST bool }
	ScheduleStatus *scheduleStatus
	IsPastDue      bool
}

type timerPayload struct {
	Data     map[string]timerInfo // by the trigger binding's name
	Metadata struct {
		Sys struct{ MethodName, UtcNow, RandGuid string } `json:"sys"`
	}
}

const (
	// timeFormat is .NET's round-trip format as its JSON writer trims it: up to seven digits.
	timeFormat = "2006-01-02T15:04:05.9999999"
	firstRun   = "0001-01-01T00:00:00"
)

// FireTimer runs the timer function once, on time. See FireTimerWith.
func (h *Host) FireTimer(ctx context.Context, function string) (Invocation, error) {
	return h.FireTimerWith(ctx, function, Timer{})
}

// FireTimerWith sends the child one invocation of the timer function and returns its answer. The
// error says what the host would make of an answer that it cannot use. There is no time limit but
// ctx.
func (h *Host) FireTimerWith(ctx context.Context, function string, timer Timer) (Invocation, error) {
	inv, err := h.fire(ctx, function, timer)
	if err != nil {
		return Invocation{}, fmt.Errorf("funchost: timer function %q: %w", function, err)
	}
	return inv, nil
}

func (h *Host) fire(ctx context.Context, name string, timer Timer) (Invocation, error) {
	i := slices.IndexFunc(h.script.functions, func(f *function) bool {
		return strings.EqualFold(f.name, name) && f.trigger.is("timerTrigger")
	})
	if i < 0 {
		return Invocation{}, errors.New("the script root has no such timer")
	}
	f, c := h.script.functions[i], h.child.Load()
	if !c.alive() {
		return Invocation{}, errors.New("the child is down")
	}
	body, err := json.Marshal(newTimerPayload(f, timer, time.Now().UTC()))
	if err != nil {
		return Invocation{}, err
	}
	// A reader of unknown length goes out chunked, as the host may send it.
	reader := struct{ io.Reader }{bytes.NewReader(body)}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.addr+"/"+f.name, reader)
	if err != nil {
		return Invocation{}, err
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	req.Header.Set("User-Agent", userAgent)
	req.Header.Set(headerVersion, hostVersion)
	req.Header.Set(headerInvocation, newGUID())
	resp, err := h.client.Do(req)
	if err != nil {
		return Invocation{}, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return Invocation{}, err
	}
	return readInvocation(resp, answer)
}

func newTimerPayload(f *function, timer Timer, now time.Time) timerPayload {
	info := timerInfo{IsPastDue: timer.PastDue}
	info.Schedule.AdjustForDST = true
	switch next := now.Truncate(time.Second); {
	case timer.NullStatus:
	case timer.FirstRun:
		info.ScheduleStatus = &scheduleStatus{Last: firstRun, Next: next.Format(timeFormat) + "+00:00", LastUpdated: firstRun}
	default:
		// The schedule is not evaluated: any fixed time back will do, and the host's own last run
		// is some milliseconds late.
		last := next.Add(-15*time.Minute+3500*time.Microsecond).Format(timeFormat) + "+00:00"
		info.ScheduleStatus = &scheduleStatus{Last: last, Next: next.Format(timeFormat) + "+00:00", LastUpdated: last}
	}
	payload := timerPayload{Data: map[string]timerInfo{f.trigger.Name: info}}
	payload.Metadata.Sys.MethodName = f.name
	payload.Metadata.Sys.UtcNow = now.Format(timeFormat) + "Z"
	payload.Metadata.Sys.RandGuid = newGUID()
	return payload
}

// readInvocation judges an answer as the host does.
func readInvocation(resp *http.Response, body []byte) (Invocation, error) {
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return Invocation{}, fmt.Errorf("the host would fail the invocation and drop its Logs: status %s, body %q", resp.Status, body)
	}
	body = bytes.TrimSpace(body)
	if len(body) == 0 || string(body) == "null" {
		return Invocation{}, fmt.Errorf("the host would hang until the function's time limit: body %q", body)
	}
	// Go's own guess for a JSON body is text/plain, for which the host has no formatter.
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if mediaType != "application/json" && mediaType != "text/json" {
		return Invocation{}, fmt.Errorf("the host would fail the invocation: Content-Type %q is not JSON", resp.Header.Get("Content-Type"))
	}
	var inv Invocation
	if err := json.Unmarshal(body, &inv); err != nil {
		return Invocation{}, fmt.Errorf("the host would fail the invocation: body %q is not a JSON object of Outputs, Logs and ReturnValue: %w", body, err)
	}
	return inv, nil
}
