package functions_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/link"
	"tiney/internal/telemetry"
)

// runs is a reaper with given statistics.
type runs struct {
	run
	stats link.ReapStats
	err   error
}

func (r runs) Stats(context.Context) (link.ReapStats, error) { return r.stats, r.err }

func TestCleanupStats(t *testing.T) {
	const target = "/api/admin/cleanup/stats"
	for want, stats := range map[string]link.ReapStats{
		`{"lastRunAtUtc":null,"deletedTotal":0,"lastDeleted":0,"successfulRuns":0,"failedRuns":0,` +
			`"averageMs":null,"running":true}`: {Running: true},
		`{"lastRunAtUtc":"2026-11-22T10:15:00Z","deletedTotal":9,"lastDeleted":2,` +
			`"successfulRuns":2,"failedRuns":1,"averageMs":500,"running":false}`: {
			Last: link.ReapRun{At: time.Date(2026, 11, 22, 10, 15, 0, 0, time.UTC),
				Took: time.Second, Deleted: 2},
			DeletedTotal: 9, Successful: 2, Failed: 1, Took: 1500 * time.Millisecond,
		},
	} {
		r := newRig(t, func(c *functions.Config) { c.Reaper = runs{stats: stats} })
		wantJSON(t, r.as("admin", "GET", target, ""), want)
	}
	r := newRig(t, func(c *functions.Config) {
		c.Reaper = runs{err: fmt.Errorf("secret: %w", link.ErrUnavailable)}
	})
	wantProblem(t, r.as("admin", "GET", target, ""), 503, "storage-unavailable", "")
	wantProblem(t, r.as("ann", "GET", target, ""), 403, "admin-needed", "")
}

const timerPayload = `{"Data":{"timer":{"Schedule":{"AdjustForDST":true},
  "ScheduleStatus":%s,"IsPastDue":%t}},
 "Metadata":{"sys":{"MethodName":"reaper","UtcNow":"2026-09-01T03:15:00.0101234Z",
  "RandGuid":"4c1e0d7a-5a55-4f0e-9d35-0f6d3b5f9f0c"}}}`

// serve runs the functions behind a real server, because the timer lifts a connection's time
// limits.
func (r *rig) serve() string {
	s := httptest.NewServer(r)
	r.t.Cleanup(s.Close)
	return s.URL
}

// fire posts to the timer as the Functions host does.
func (r *rig) fire(url, body string, header ...string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequest("POST", url+"/reaper", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Host = hostAddress
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(got)
}

func TestTimer(t *testing.T) {
	var summary string
	var failure error
	r := newRig(t, func(c *functions.Config) {
		c.Reaper = run(func(context.Context) (string, error) { return summary, failure })
	})
	url := r.serve()
	for _, test := range []struct {
		summary  string
		failure  error
		schedule string
		late     bool
		status   int
	}{
		{"deleted 3 links", nil, "null", true, 200},
		{"deleted 0 links", nil, `{"Last":"0001-01-01T00:00:00",` +
			`"Next":"2026-09-01T03:15:00+00:00","LastUpdated":"0001-01-01T00:00:00"}`, false, 200},
		{"another instance is reaping", link.ErrLockHeld, "null", false, 200},
		{"", link.ErrUnavailable, "null", false, 503}, // an invocation that failed
	} {
		summary, failure = test.summary, test.failure
		status, body := r.fire(url, fmt.Sprintf(timerPayload, test.schedule, test.late))
		want := `{"Outputs":{},"Logs":["` + test.summary + `"],"ReturnValue":null}` + "\n"
		if status != test.status || status == 200 && body != want {
			t.Errorf("%s, %v: got %d %s", test.summary, test.failure, status, body)
		}
	}
	if got := strings.Count(r.log.String(), "this run is late"); got != 1 {
		t.Errorf("%d lines of late runs in %s", got, r.log)
	}
	if status, body := r.fire(url, "what"); status != 400 {
		t.Errorf("no invocation: got %d %s", status, body)
	}
}

func TestTimerRespondsToTheHostAlone(t *testing.T) {
	r := newRig(t, func(c *functions.Config) {
		c.Reaper = run(func(context.Context) (string, error) { t.Error("it ran"); return "", nil })
	})
	url := r.serve()
	for _, header := range [][]string{
		{"Host", "tiney.to"},
		{"Host", "127.0.0.1"},
		{"X-Forwarded-For", "203.0.113.7"},
		{"X-Ms-Invocation-Id", invocation},
		{"Origin", "https://example.com"},
	} {
		if status, body := r.fire(url, fmt.Sprintf(timerPayload, "null", false),
			header...); status != 404 {
			t.Errorf("%v: got %d %s", header, status, body)
		}
	}
	if got := strings.Count(r.log.String(), telemetry.LogTimerRefused); got != 5 {
		t.Errorf("%d lines in %s", got, r.log)
	}
	alone := newRig(t, func(c *functions.Config) { c.HostAddress = "" })
	wantProblem(t, alone.do("POST", "/reaper", fmt.Sprintf(timerPayload, "null", false)), 405,
		"method", "")
}

func TestTimerOutlivesTheServersTimeLimits(t *testing.T) {
	r := newRig(t, func(c *functions.Config) {
		c.Reaper = run(func(ctx context.Context) (string, error) {
			select {
			case <-time.After(2 * time.Second):
				return "ran", nil
			case <-ctx.Done():
				return "", context.Cause(ctx)
			}
		})
	})
	s := httptest.NewUnstartedServer(r)
	s.Config.ReadTimeout, s.Config.WriteTimeout = time.Second, time.Second
	s.Start()
	defer s.Close()
	if status, body := r.fire(s.URL, fmt.Sprintf(timerPayload, "null", false)); status != 200 {
		t.Errorf("got %d %s", status, body)
	}
}

// unlimited is a response on a connection whose time limits can be lifted.
type unlimited struct{ *httptest.ResponseRecorder }

func (unlimited) SetReadDeadline(time.Time) error  { return nil }
func (unlimited) SetWriteDeadline(time.Time) error { return nil }

func FuzzTimerPayload(f *testing.F) {
	f.Add([]byte(fmt.Sprintf(timerPayload, "null", true)))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"Data":{"timer":null}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		r := newRig(t)
		w := unlimited{httptest.NewRecorder()}
		req := httptest.NewRequest("POST", "http://"+hostAddress+"/reaper", bytes.NewReader(body))
		r.ServeHTTP(w, req)
		if !slices.Contains([]int{200, 400, 413}, w.Code) || !json.Valid(body) && w.Code == 200 {
			t.Fatalf("%q: got %d %s", body, w.Code, w.Body)
		}
	})
}
