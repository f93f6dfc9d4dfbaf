package functions_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/ingest"
	"tiney/link"
	"tiney/telemetry"
)

func sender(t *testing.T, hosted bool) (*telemetry.Sender, *ingest.Endpoint) {
	t.Helper()
	e := ingest.Start()
	t.Cleanup(e.Close)
	connection, err := telemetry.ParseConnection(e.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	s := telemetry.Start(telemetry.Config{Connection: connection, Metrics: new(telemetry.Metrics), Hosted: hosted,
		SamplingPercent: 100, ClientAddresses: true, Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { s.Close(0) })
	return s, e
}

// endless reaps until it is told to stop.
type endless struct{}

func (endless) Reap(ctx context.Context) (link.Reaped, error) {
	<-ctx.Done()
	return link.Reaped{}, context.Cause(ctx)
}

func TestRunsOfTheReaperAreEvents(t *testing.T) {
	for want, c := range map[string]struct {
		lock, links error
		stopped     bool
	}{
		telemetry.ResultDone:    {},
		telemetry.ResultFailed:  {links: link.ErrUnavailable},
		telemetry.ResultHeld:    {lock: link.ErrLockHeld},
		telemetry.ResultStopped: {stopped: true},
	} {
		t.Run(want, func(t *testing.T) {
			s, e := sender(t, true)
			r := newRig(t)
			stopping, stop := context.WithCancel(t.Context())
			defer stop()
			if c.stopped {
				stop()
			}
			r.lock.fail = c.lock
			r.fake.Fail(c.links)
			rp := &functions.Reaper{Lock: r.lock, Links: r.fake, Stopping: stopping, Log: slog.New(slog.DiscardHandler), Metrics: r.metrics, Sender: s}
			if c.stopped {
				rp.Links = endless{}
			}
			operation := telemetry.Begin(t.Context(), "reaper", nil, true)
			_, err := rp.Run(&operation)
			if failed := want == telemetry.ResultFailed || want == telemetry.ResultHeld; (err != nil) != failed {
				t.Errorf("got %v", err)
			}
			s.Close(time.Minute)
			all := e.Items("EventData")
			if len(all) != 1 {
				t.Fatalf("%d events, want 1", len(all))
			}
			d := all[0].Data.BaseData
			if d.Name != "ReaperRun" || d.Properties["Result"] != want || d.Properties["Complete"] != fmt.Sprint(want == telemetry.ResultDone) ||
				all[0].Operation() != operation.ID() || all[0].Tags["ai.operation.name"] != "reaper" {
				t.Errorf("got %+v in %s", d, all[0].Operation())
			}
			for _, name := range []string{"Deleted", "Dropped", "Failed", "BacklogSeconds", "DurationMs"} {
				if _, there := d.Measurements[name]; !there {
					t.Errorf("%s is missing", name)
				}
			}
		})
	}
}

// Without the host, the handler reports each request, failures as such.
func TestRequestsAreReportedWithoutTheHost(t *testing.T) {
	s, e := sender(t, false)
	r := newRig(t, func(c *functions.Config) { c.Hosted, c.Sender = false, s })
	r.do(http.MethodGet, "/nobody", "")
	r.do(http.MethodGet, "/a/b", "")
	r.fake.Fail(link.ErrUnavailable)
	r.do(http.MethodGet, "/nobody2", "")
	r.fake.Fail(errors.New("a fault"))
	r.do(http.MethodGet, "/nobody3", "")
	s.Close(time.Minute)
	var got []string
	for _, i := range e.Items("RequestData") {
		d := i.Data.BaseData
		got = append(got, fmt.Sprint(d.Name, " ", d.ResponseCode, " ", d.Success, " ", i.Tags["ai.location.ip"]))
	}
	want := []string{"redirect 404 true 192.0.2.1", "none 404 true 192.0.2.1", "redirect 503 false 192.0.2.1", "redirect 500 false 192.0.2.1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
