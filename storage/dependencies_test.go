package storage_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
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
	must(t, err)
	r := newRigAt(t, newAzurite(t, emulator))
	r.sender = telemetry.Start(telemetry.Config{Connection: connection, Metrics: r.metrics,
		SamplingPercent: 100, Log: slog.New(slog.DiscardHandler)})
	r.config.Open = connect(t, r.proxy.ConnectionString(), r.sender)
	return r, e
}

// told returns the calls that were reported, as name, result code, error code, success and try.
func (r *rig) told(e *ingest.Endpoint) (all []string) {
	r.sender.Close(time.Minute)
	for _, i := range e.Items("RemoteDependencyData") {
		d := i.Data.BaseData
		call := strings.Join(strings.Fields(fmt.Sprint(d.Name, " ", d.ResultCode, " ",
			d.Properties["ErrorCode"], " ", d.Success, " ", d.Properties["Try"])), " ")
		all = append(all, strings.Replace(call, r.prefix(), "", 1))
	}
	return all
}

func TestWhatStorageAnswersIsReported(t *testing.T) {
	get := func(s *storage.Links) { _, _ = s.Get(ctx, "nobody") }
	with := func(fault faultproxy.Fault) func(*rig, *storage.Links) {
		return func(r *rig, s *storage.Links) {
			always(r.proxy, fault)
			get(s)
		}
	}
	for name, test := range map[string]struct {
		do   func(r *rig, s *storage.Links)
		want []string
	}{
		"errors that are expected": {func(r *rig, s *storage.Links) {
			l := r.create(s, "https://example.com/", 3*time.Minute)
			_, err := s.Get(ctx, l.Name)
			should(t, err)
			get(s)
			r.clock.Advance(4 * time.Minute)
			should(t, reap(ctx, r, s))
		}, []string{
			"QueryEntities ShortUrlsState 200 true",
			"GetEntity UrlIndex 404 ResourceNotFound true",
			"InsertEntity ShortUrlsExpiryIndex 201 true", "InsertEntity ShortUrls 201 true",
			"InsertEntity UrlIndex 201 true", "GetEntity ShortUrls 200 true",
			"GetEntity ShortUrls 404 ResourceNotFound true",
			"QueryEntities ShortUrlsExpiryIndex 200 true",
			"QueryEntities ShortUrlsExpiryIndex 200 true", "GetEntity ShortUrls 200 true",
			"GetEntity UrlIndex 200 true", "GetEntity ShortUrls 200 true",
			"DeleteEntity UrlIndex 204 true", "DeleteEntity ShortUrls 204 true",
			"GetEntity ShortUrlsClickTotals 404 ResourceNotFound true",
			"DeleteEntity ShortUrlsExpiryIndex 204 true",
			"QueryEntities ShortUrlsState 200 true",
		}},
		"a table that is missing": {func(r *rig, s *storage.Links) {
			r.Remove()
			get(s)
		}, []string{"GetEntity ShortUrls 404 TableNotFound true", "CreateTable ShortUrls 201 true",
			"GetEntity ShortUrls 404 ResourceNotFound true"}},
		"a table that is being deleted": {with(faultproxy.BeingDeleted),
			[]string{"GetEntity ShortUrls 409 TableBeingDeleted true",
				"CreateTable ShortUrls 409 TableBeingDeleted true"}},
		"busy": {with(faultproxy.ServerBusy),
			[]string{"GetEntity ShortUrls 503 ServerBusy false",
				"GetEntity ShortUrls 503 ServerBusy false 2",
				"GetEntity ShortUrls 503 ServerBusy false 3"}},
		"limiting": {with(faultproxy.TooManyRequests),
			[]string{"GetEntity ShortUrls 429 TooManyRequests false"}},
		"gone and back": {func(r *rig, s *storage.Links) {
			r.proxy.Before(faultproxy.Fail(1, faultproxy.Refuse))
			get(s)
		}, []string{"GetEntity ShortUrls unreachable false",
			"GetEntity ShortUrls 404 ResourceNotFound true 2"}},
		"a response that is lost": {func(r *rig, s *storage.Links) {
			r.proxy.Before(faultproxy.Fail(4, faultproxy.DropResponse))
			r.create(s, "https://example.com/", time.Hour)
		}, []string{
			"QueryEntities ShortUrlsState 200 true",
			"GetEntity UrlIndex 404 ResourceNotFound true",
			"InsertEntity ShortUrlsExpiryIndex 201 true",
			"InsertEntity ShortUrls unreachable false",
			"InsertEntity ShortUrls 409 EntityAlreadyExists true 2",
			"GetEntity ShortUrls 200 true", "InsertEntity UrlIndex 201 true",
		}},
		"frozen": {func(r *rig, s *storage.Links) {
			always(r.proxy, faultproxy.Freeze)
			_, _ = s.Get(hasty, "nobody")
		}, []string{"GetEntity ShortUrls timeout false",
			"GetEntity ShortUrls timeout false 2"}}, // the second try got all that was left
		"a caller that gives up": {func(r *rig, s *storage.Links) {
			ctx, cancel := context.WithCancel(ctx)
			r.proxy.Before(func(faultproxy.Call) faultproxy.Fault {
				cancel()
				return faultproxy.Freeze
			})
			_, _ = s.Get(ctx, "nobody")
		}, []string{"GetEntity ShortUrls canceled false"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, e := reported(t)
			r.Make()
			test.do(r, r.instance())
			if got := r.told(e); !slices.Equal(got, test.want) {
				t.Errorf("reported\n%q, want\n%q", got, test.want)
			} else if calls := r.proxy.Calls(); len(got) != len(calls) {
				t.Errorf("%d calls were made: %v", len(calls), calls)
			}
			for _, i := range e.Items("RemoteDependencyData") {
				if d := i.Data.BaseData; d.Type != telemetry.TypeTable || d.Target != "127.0.0.1" ||
					d.Duration < "0.00:00:00.0000000" {
					t.Errorf("%+v", d)
				}
			}
			for _, never := range []string{"AccountKey", "SharedKey", "sig=", "https://",
				"PartitionKey"} {
				if strings.Contains(e.Raw(), never) {
					t.Errorf("%s was sent: %s", never, e.Raw())
				}
			}
		})
	}
}
