package funchost_test

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tiney/internal/funchost"
)

func TestTimer(t *testing.T) {
	t.Parallel()
	h := start(t, all(), false)
	const (
		text = `"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,7})?`
		zero = `"0001-01-01T00:00:00"`
		tail = `}},"Metadata":{"sys":{"MethodName":"reaper","UtcNow":` + text + `Z","RandGuid":"[0-9a-f-]{36}"}}}$`
		head = `^{"Data":{"timer":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":`
	)
	tests := []struct {
		name  string
		timer funchost.Timer
		want  string
	}{
		{"on time", funchost.Timer{}, `{"Last":` + text + `\+00:00","Next":` + text + `\+00:00","LastUpdated":` + text + `\+00:00"},"IsPastDue":false`},
		{"past due", funchost.Timer{PastDue: true}, `{.*},"IsPastDue":true`},
		{"null status", funchost.Timer{NullStatus: true}, `null,"IsPastDue":false`},
		{"first run", funchost.Timer{FirstRun: true}, `{"Last":` + zero + `,"Next":` + text + `\+00:00","LastUpdated":` + zero + `},"IsPastDue":false`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			inv, err := h.FireTimerWith(t.Context(), "reaper", tt.timer)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(inv.Logs, []string{"swept", "done"}) {
				t.Errorf("logs %q", inv.Logs)
			}
			var s seen
			if err := json.Unmarshal([]byte(inv.ReturnValue.(string)), &s); err != nil {
				t.Fatal(err)
			}
			if !regexp.MustCompile(head + tt.want + tail).MatchString(s.Body) {
				t.Errorf("payload %s", s.Body)
			}
			if s.Method != "POST" || s.URI != "/reaper" || s.ContentLength != -1 || s.Header.Get("Content-Type") != "application/json; charset=utf-8" ||
				!guid.MatchString(s.Header.Get("X-Azure-Functions-InvocationId")) {
				t.Errorf("request %+v", s)
			}
		})
	}
}

func TestTimerRefuses(t *testing.T) {
	t.Parallel()
	h := start(t, all(), false)
	for function, want := range map[string]string{
		"unheard": "no such timer",
		"t":       "no such timer", // an HTTP function
		"empty":   "hang",
		"nullish": "hang",
		"array":   "JSON object",
		"broken":  "drop its Logs",
		"plain":   "Content-Type",
	} {
		t.Run(function, func(t *testing.T) {
			_, err := h.FireTimer(t.Context(), function)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), function) {
				t.Errorf("error %v, want one with %q", err, want)
			}
		})
	}
}
