package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"tiney/internal/testing/ingest"
	"tiney/internal/testing/testutil"
)

// identity is a credential that returns the current token, or an error if that is empty.
type identity struct {
	mu     sync.Mutex
	token  string
	scopes []string
}

func (i *identity) set(token string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.token = token
}

func (i *identity) GetToken(_ context.Context,
	options policy.TokenRequestOptions) (azcore.AccessToken, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.scopes = append(i.scopes, options.Scopes...)
	if i.token == "" {
		return azcore.AccessToken{}, errors.New(
			"the identity is not there yet\njson message bytes were: a-secret-token")
	}
	return azcore.AccessToken{Token: i.token, ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// TestTokens checks that each batch is sent with the current token, and waits while there is none.
func TestTokens(t *testing.T) {
	t.Parallel()
	i := new(identity)
	r := newRig(t, func(c *Config) { c.Credential = i })
	o := Begin(t.Context(), "redirect", nil, false)
	r.Event(&o, Event{Name: EventReaperRun})
	testutil.Eventually(t, "a try without a token", func() bool {
		return strings.Contains(r.log.String(), LogTelemetryDelayed)
	})
	i.set("first-secret")
	testutil.Eventually(t, "the event arrives", func() bool {
		return len(r.to.Items("EventData")) == 1
	})
	i.set("second-secret")
	r.Event(&o, Event{Name: EventReaperRun})
	testutil.Eventually(t, "the next one arrives", func() bool {
		return len(r.to.Items("EventData")) == 2
	})
	i.set("third-secret")
	r.to.Fail(ingest.Response{Status: http.StatusUnauthorized})
	r.Event(&o, Event{Name: EventReaperRun})
	r.Close(time.Minute)
	if got, want := slices.Compact(r.to.Authorizations()), []string{"Bearer first-secret",
		"Bearer second-secret", "Bearer third-secret"}; !slices.Equal(got, want) {
		t.Errorf("the endpoint got %q, want %q", got, want)
	}
	if slices.ContainsFunc(i.scopes, func(scope string) bool {
		return scope != "https://monitor.azure.com//.default"
	}) {
		t.Errorf("tokens for %q", i.scopes)
	}
	log := r.log.String()
	if !strings.Contains(log, "no token: the identity is not there yet") ||
		!strings.Contains(log, "status 401") {
		t.Errorf("the log does not say what was wrong: %s", log)
	}
	if strings.Contains(log, "secret") {
		t.Errorf("the log has a token: %s", log)
	}
}

// TestManagedIdentity checks that a token is requested in the way that App Service offers:
// https://learn.microsoft.com/azure/app-service/overview-managed-identity#rest-endpoint-reference
func TestManagedIdentity(t *testing.T) {
	var asked string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.Query().Get("resource") + " " + r.URL.Query().Get("client_id") + " " +
			r.Header.Get("X-Identity-Header")
		// The token expires so soon that it is not cached.
		_, _ = fmt.Fprintf(w, `{"access_token":"a-token","expires_on":"%d",`+
			`"resource":"https://monitor.azure.com/","token_type":"Bearer"}`, time.Now().Unix()+60)
	}))
	defer server.Close()
	t.Setenv("IDENTITY_ENDPOINT", server.URL)
	t.Setenv("IDENTITY_HEADER", "header")
	to := Connection{endpoint: "https://ingestion.example"}
	for _, test := range []struct{ given, want string }{
		{"Authorization=AAD", "https://monitor.azure.com/  header"},
		{" ClientId=an-id ; authorization=aad;", "https://monitor.azure.com/ an-id header"},
	} {
		credential, err := ParseAuthentication(test.given, to)
		if err != nil {
			t.Fatal(err)
		}
		token, err := credential.GetToken(t.Context(),
			policy.TokenRequestOptions{Scopes: []string{ingestionScope}})
		if err != nil || token.Token != "a-token" || asked != test.want {
			t.Errorf("%s: asked for %q, got %v; want %q", test.given, asked, err, test.want)
		}
	}
	for given, says := range map[string]string{"secret": "Authorization=AAD",
		"ClientId=secret": "Authorization=AAD", "Authorization=secret": "Authorization=AAD"} {
		if _, err := ParseAuthentication(given, to); err == nil || !strings.Contains(err.Error(),
			says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want an error about %s", given, err, says)
		}
	}
	if _, err := ParseAuthentication("Authorization=AAD",
		Connection{endpoint: "http://ingestion.example"}); err == nil ||
		!strings.Contains(err.Error(), "https") {
		t.Errorf("a token goes over http: %v", err)
	}
}
