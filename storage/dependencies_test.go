package storage_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tiney/internal/telemetry"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/ingest"
	"tiney/storage"
)

// reported is a rig whose storage calls are reported, and where to.
func reported(t *testing.T) (*rig, *ingest.Endpoint) {
	t.Helper()
	e := ingest.Start()
	t.Cleanup(e.Close)
	connection, err := telemetry.ParseConnection(e.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	r := newRigAt(t, newAzurite(t, emulator))
	r.sender = telemetry.Start(telemetry.Config{Connection: connection, Metrics: r.metrics,
		SamplingPercent: 100, Log: slog.New(slog.DiscardHandler)})
	r.config.Open = connect(t, r.proxy.ConnectionString(), r.sender)
	return r, e
}

// wantCalls ends the reports and compares them, as name, result code, error code, success and try.
func wantCalls(t *testing.T, r *rig, e *ingest.Endpoint, kind string, want ...string) {
	t.Helper()
	r.sender.Close(time.Minute)
	var got []string
	for _, i := range e.Items("RemoteDependencyData") {
		d := i.Data.BaseData
		got = append(got, strings.Join(strings.Fields(fmt.Sprint(d.Name, " ", d.ResultCode, " ",
			d.Properties["ErrorCode"], " ", d.Success, " ", d.Properties["Try"])), " "))
		if d.Type != kind || d.Target != "127.0.0.1" || d.Duration < "0.00:00:00.0000000" {
			t.Errorf("%+v", d)
		}
	}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("reported\n%q, want\n%q", got, want)
	}
	if calls := r.proxy.Calls(); len(got) != len(calls) {
		t.Errorf("%d calls were made: %v", len(calls), calls)
	}
	for _, never := range []string{"AccountKey", "SharedKey", "sig=", "https://", "PartitionKey"} {
		if strings.Contains(e.Raw(), never) {
			t.Errorf("%s was sent: %s", never, e.Raw())
		}
	}
}

func TestWhatStorageAnswersIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(t *testing.T, r *rig, s *storage.Links)
		want func(r *rig) []string
	}{
		"errors that are expected": {
			func(t *testing.T, r *rig, s *storage.Links) {
				l := r.create(s, "https://example.com/", 3*time.Minute)
				if _, err := s.Get(ctx, l.Name); err != nil {
					t.Error(err)
				}
				if _, err := s.Get(ctx, "nobody"); err == nil {
					t.Error("found")
				}
				r.clock.Advance(4 * time.Minute)
				if _, err := s.Reap(ctx); err != nil {
					t.Error(err)
				}
			},
			func(r *rig) []string {
				return []string{
					"QueryEntities " + r.State + " 200 true", "GetEntity " + r.Index +
						" 404 ResourceNotFound true",
					"InsertEntity " + r.Expiry + " 201 true", "InsertEntity " + r.Links +
						" 201 true", "InsertEntity " + r.Index + " 201 true",
					"GetEntity " + r.Links + " 200 true", "GetEntity " + r.Links +
						" 404 ResourceNotFound true",
					"QueryEntities " + r.Expiry + " 200 true", "QueryEntities " + r.Expiry +
						" 200 true",
					"GetEntity " + r.Links + " 200 true", "GetEntity " + r.Index + " 200 true",
					"GetEntity " + r.Links + " 200 true", "DeleteEntity " + r.Index + " 204 true",
					"DeleteEntity " + r.Links + " 204 true",
					"GetEntity " + r.ClickTotals + " 404 ResourceNotFound true", "DeleteEntity " +
						r.Expiry + " 204 true",
					"QueryEntities " + r.State + " 200 true",
				}
			},
		},
		"a table that is missing": {
			func(t *testing.T, r *rig, s *storage.Links) {
				r.Remove()
				if _, err := s.Get(ctx, "nobody"); err == nil {
					t.Error("found")
				}
			},
			func(r *rig) []string {
				return []string{"GetEntity " + r.Links + " 404 TableNotFound true", "CreateTable " +
					r.Links + " 201 true", "GetEntity " + r.Links + " 404 ResourceNotFound true"}
			},
		},
		"a table that is being deleted": {
			func(t *testing.T, r *rig, s *storage.Links) {
				r.proxy.Before(faultproxy.On("", "", faultproxy.BeingDeleted))
				if _, err := s.Get(ctx, "nobody"); err == nil {
					t.Error("found")
				}
			},
			func(r *rig) []string {
				return []string{"GetEntity " + r.Links + " 409 TableBeingDeleted true",
					"CreateTable " + r.Links + " 409 TableBeingDeleted true"}
			},
		},
		"busy": {
			func(t *testing.T, r *rig, s *storage.Links) {
				r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { return faultproxy.ServerBusy })
				_, _ = s.Get(ctx, "nobody")
			},
			func(r *rig) []string {
				get := "GetEntity " + r.Links
				return []string{get + " 503 ServerBusy false", get + " 503 ServerBusy false 2",
					get + " 503 ServerBusy false 3"}
			},
		},
		"limiting": {
			func(t *testing.T, r *rig, s *storage.Links) {
				r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { return faultproxy.TooManyRequests })
				_, _ = s.Get(ctx, "nobody")
			},
			func(r *rig) []string {
				return []string{"GetEntity " + r.Links +
					" 429 TooManyRequests false"}
			},
		},
		"gone and back": {
			func(t *testing.T, r *rig, s *storage.Links) {
				r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
					if c.N == 1 {
						return faultproxy.Refuse
					}
					return faultproxy.None
				})
				_, _ = s.Get(ctx, "nobody")
			},
			func(r *rig) []string {
				return []string{"GetEntity " + r.Links + " unreachable false", "GetEntity " +
					r.Links + " 404 ResourceNotFound true 2"}
			},
		},
		"a response that is lost": {
			func(t *testing.T, r *rig, s *storage.Links) {
				r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
					if c.N == 4 {
						return faultproxy.DropResponse
					}
					return faultproxy.None
				})
				r.create(s, "https://example.com/", time.Hour)
			},
			func(r *rig) []string {
				return []string{
					"QueryEntities " + r.State + " 200 true", "GetEntity " + r.Index +
						" 404 ResourceNotFound true", "InsertEntity " + r.Expiry + " 201 true",
					"InsertEntity " + r.Links + " unreachable false", "InsertEntity " + r.Links +
						" 409 EntityAlreadyExists true 2", "GetEntity " + r.Links + " 200 true",
					"InsertEntity " + r.Index + " 201 true",
				}
			},
		},
		"frozen": {
			func(t *testing.T, r *rig, s *storage.Links) {
				r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { return faultproxy.Freeze })
				_, _ = s.Get(hasty, "nobody")
			},
			func(r *rig) []string {
				get := "GetEntity " + r.Links
				// the second try got all that was left
				return []string{get + " timeout false", get + " timeout false 2"}
			},
		},
		"a caller that gives up": {
			func(t *testing.T, r *rig, s *storage.Links) {
				ctx, cancel := context.WithCancel(ctx)
				r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { cancel(); return faultproxy.Freeze })
				_, _ = s.Get(ctx, "nobody")
			},
			func(r *rig) []string { return []string{"GetEntity " + r.Links + " canceled false"} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, e := reported(t)
			r.Make()
			s, err := storage.Open(r.config)
			if err != nil {
				t.Fatal(err)
			}
			c.do(t, r, s)
			wantCalls(t, r, e, telemetry.TypeTable, c.want(r)...)
		})
	}
}
