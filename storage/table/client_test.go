package table

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"tiney/internal/telemetry"
	"tiney/internal/testing/ingest"
)

// noToken is an identity that is refused, in words that are nobody else's business.
type noToken struct{}

func (noToken) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	return azcore.AccessToken{}, &azidentity.AuthenticationFailedError{RawResponse: &http.Response{
		StatusCode: 400,
		Body:       io.NopCloser(strings.NewReader("a secret")),
		Request:    &http.Request{},
	}}
}

// A call that fails before it is sent is reported too, or an identity without a token would look
// like peace.
func TestCallsWithoutATokenAreReported(t *testing.T) {
	e := ingest.Start()
	t.Cleanup(e.Close)
	to, err := telemetry.ParseConnection(e.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	sender := telemetry.Start(telemetry.Config{Connection: to, Metrics: new(telemetry.Metrics),
		SamplingPercent: 100, Log: slog.New(slog.DiscardHandler)})
	service, err := Open(Connection{tables: "https://account.table.core.windows.net",
		identity: noToken{}}, sender)
	if err != nil {
		t.Fatal(err)
	}
	links := service.Table("ShortUrls")
	for range 3 {
		_, _, err = links.Get(t.Context(), "p", "k")
		if err == nil || !strings.Contains(err.Error(), "no token for the identity (status 400)") ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v", err)
		}
	}
	sender.Close(time.Minute)
	calls := e.Items("RemoteDependencyData")
	if len(calls) != 3 {
		t.Fatalf("%d calls were reported, want 3", len(calls))
	}
	if d := calls[0].Data.BaseData; d.Name != "GetEntity ShortUrls" ||
		d.ResultCode != telemetry.ResultNoToken || d.Success ||
		d.Target != "account.table.core.windows.net" {
		t.Errorf("got %+v", d)
	}
	if events := e.Items("EventData"); len(events) != 1 ||
		events[0].Data.BaseData.Name != telemetry.EventStorageUnavailable {
		t.Errorf("events: %+v", events)
	}
}
