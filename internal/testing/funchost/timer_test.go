package funchost_test

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"testing"

	"tiney/internal/testing/funchost"
)

func TestTimerRequest(t *testing.T) {
	t.Parallel()
	h := start(t, all(), funchost.Options{})
	const (
		text  = `"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,7})?`
		zoned = text + `\+00:00"`
	)
	inv, err := h.FireTimer(t.Context(), "reaper")
	if err != nil || !slices.Equal(inv.Logs, []string{"swept", "done"}) {
		t.Fatalf("logs %q, %v", inv.Logs, err)
	}
	var s seen
	encoded, _ := json.Marshal(inv.ReturnValue)
	if err := json.Unmarshal(encoded, &s); err != nil {
		t.Fatal(err)
	}
	if !matches(`{"Data":{"timer":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":{"Last":`+
		zoned+`,"Next":`+zoned+`,"LastUpdated":`+zoned+`},"IsPastDue":false}},"Metadata":{"sys":`+
		`{"MethodName":"reaper","UtcNow":`+text+`Z","RandGuid":"`+guid+`"}}}`, s.Body) {
		t.Errorf("payload %s", s.Body)
	}
	if s.Method != "POST" || s.URI != "/reaper" || "http://"+s.Host != h.HandlerURL() ||
		!slices.Equal(s.TransferEncoding, []string{"chunked"}) {
		t.Errorf("request %+v", s)
	}
	id := s.Header.Get("X-Azure-Functions-InvocationId")
	want := http.Header{
		"Content-Type":                   {"application/json; charset=utf-8"},
		"User-Agent":                     {"Azure-Functions-Host/4.1037.0.0"},
		"X-Azure-Functions-Hostversion":  {"4.1037.0.0"},
		"X-Azure-Functions-Invocationid": {id},
	}
	if !matches(guid, id) || !reflect.DeepEqual(s.Header, want) {
		t.Errorf("headers %v, want %v", s.Header, want)
	}
}
