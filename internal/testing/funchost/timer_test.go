package funchost_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tiney/internal/testing/funchost"
)

func TestTimerRequest(t *testing.T) {
	t.Parallel()
	h := start(t, all(), funchost.Options{Traceparent: true})
	const (
		text  = `"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,7})?`
		zoned = text + `\+00:00"`
		zero  = `"0001-01-01T00:00:00\+00:00"`
		tail  = `}},"Metadata":{"sys":{"MethodName":"reaper","UtcNow":` + text + `Z","RandGuid":"` +
			guid + `"}}}`
		head = `{"Data":{"timer":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":`
	)
	tests := []struct {
		name  string
		timer funchost.Timer
		want  string
	}{
		{"on time", funchost.Timer{}, `{"Last":` + zoned + `,"Next":` + zoned + `,"LastUpdated":` +
			zoned + `},"IsPastDue":false`},
		{"past due", funchost.Timer{PastDue: true}, `{.*},"IsPastDue":true`},
		{"null status", funchost.Timer{NullStatus: true}, `null,"IsPastDue":false`},
		{"first run", funchost.Timer{FirstRun: true}, `{"Last":` + zero + `,"Next":` + zoned +
			`,"LastUpdated":` + zero + `},"IsPastDue":false`},
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
			encoded, _ := json.Marshal(inv.ReturnValue)
			if err := json.Unmarshal(encoded, &s); err != nil {
				t.Fatal(err)
			}
			if !matches(head+tt.want+tail, s.Body) {
				t.Errorf("payload %s", s.Body)
			}
			if s.Method != "POST" || s.URI != "/reaper" || "http://"+s.Host != h.HandlerURL() ||
				!slices.Equal(s.TransferEncoding, []string{"chunked"}) {
				t.Errorf("request %+v", s)
			}
			id, trace := s.Header.Get("X-Azure-Functions-InvocationId"), s.Header.Get("Traceparent")
			if !matches(guid, id) || !matches(traceparent, trace) {
				t.Errorf("invocation id %q, traceparent %q", id, trace)
			}
			want := http.Header{
				"Content-Type":                   {"application/json; charset=utf-8"},
				"User-Agent":                     {"Azure-Functions-Host/4.1037.0.0"},
				"X-Azure-Functions-Hostversion":  {"4.1037.0.0"},
				"X-Azure-Functions-Invocationid": {id}, "Traceparent": {trace},
			}
			if !reflect.DeepEqual(s.Header, want) {
				t.Errorf("headers %v, want %v", s.Header, want)
			}
		})
	}
}

func TestTimerResponse(t *testing.T) {
	t.Parallel()
	h := start(t, all(), funchost.Options{})
	for function, want := range map[string]string{
		"least":     "",
		"unheard":   "no such timer",
		"t":         "no such timer", // an HTTP function
		"empty":     "hang",
		"nothing":   "hang",
		"nullish":   "hang",
		"array":     "JSON object",
		"numbers":   "Logs",
		"broken":    "drop its Logs",
		"plaintext": "Content-Type",
	} {
		switch _, err := h.FireTimer(t.Context(), function); {
		case want == "" && err != nil:
			t.Errorf("%s: %v", function, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), function)):
			t.Errorf("%s: error %v, want one with %q", function, err, want)
		}
	}
}
