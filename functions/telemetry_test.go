package functions_test

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/internal/testing/ingest"
)

func sender(t *testing.T, hosted bool) (*telemetry.Sender, *ingest.Endpoint) {
	t.Helper()
	e := ingest.Start()
	t.Cleanup(e.Close)
	connection, err := telemetry.ParseConnection(e.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	s := telemetry.Start(telemetry.Config{Connection: connection, Metrics: new(telemetry.Metrics),
		Hosted:          hosted,
		SamplingPercent: 100, ClientAddress: access.Addresses{Header: "Client-Ip", Hops: 1}.Of,
		Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { s.Close(0) })
	return s, e
}

// Without the host, the handler reports each request, and marks failures.
func TestRequestsAreReportedWithoutTheHost(t *testing.T) {
	s, e := sender(t, false)
	r := newRig(t, func(c *functions.Config) { c.HostAddress, c.Sender = "", s })
	r.get("/nobody")
	r.get("/api//b", "Client-Ip", "203.0.113.9:4711", "X-Forwarded-For", "6.6.6.6")
	r.fake.Fail(link.ErrUnavailable)
	r.get("/nobody2")
	r.fake.Fail(errors.New("a fault"))
	r.get("/nobody3")
	s.Close(time.Minute)
	var got []string
	for _, i := range e.Items("RequestData") {
		d := i.Data.BaseData
		got = append(got, fmt.Sprint(d.Name, " ", d.ResponseCode, " ", d.Success, " ",
			i.Tags["ai.location.ip"]))
	}
	want := []string{"redirect 404 true 192.0.2.1", "none 404 true 203.0.113.9",
		"redirect 503 false 192.0.2.1", "redirect 500 false 192.0.2.1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
