package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tiney/internal/testing/testutil"
)

// Every process knows of a change a few seconds later, long before its cached entries would be read
// again.
func TestChangesReachEveryProcess(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	ada := owner(t, s.standalone(emulator.ConnectionString(), "CHANGES_SECONDS=1").url, "ada")
	other := caller{t, s.standalone(emulator.ConnectionString(), "CHANGES_SECONDS=1").url, ada.token}
	// becomes waits until the other process responds with this status and Location. It asks often
	// enough that the process keeps polling.
	becomes := func(what string, status int, location string) {
		t.Helper()
		start := time.Now()
		testutil.Eventually(t, what, func() bool {
			got := get(t, other.base+"/travels")
			return got.Status == status && got.Header.Get("Location") == location
		})
		t.Logf("%s: known after %v", what, time.Since(start).Round(10*time.Millisecond))
	}
	becomes("it is not there yet", 404, "")
	made := caller{t: t, base: ada.base}.must(201, "POST", "/api/shorten",
		`{"longUrl":"https://example.com/1","alias":"travels"}`)
	becomes("a chosen alias", 302, "https://example.com/1")
	claim := fmt.Sprintf(`{"claims":[{"alias":"travels","claimToken":%q}]}`, made["claimToken"])
	ada.must(200, "POST", "/api/claims", claim)
	testutil.Eventually(t, "a claim: the link has no end any more", func() bool {
		return other.must(200, "GET", "/travels+", "", "Accept",
			"application/json")["expiresAtUtc"] == nil
	})
	for _, change := range []struct {
		method, target, body string
		status               int
		location             string
	}{
		{"PATCH", "", `{"longUrl":"https://example.com/2"}`, 302, "https://example.com/2"},
		{"PATCH", "", `{"disabled":true}`, 410, ""},
		{"PATCH", "", `{"disabled":false,"statusCode":307}`, 307, "https://example.com/2"},
		{"DELETE", "", "", 410, ""},
		{"POST", "/restore", "", 307, "https://example.com/2"},
		{"PUT", "/api/blocked/example.com", "", 410, ""},
		{"DELETE", "/api/blocked/example.com", "", 307, "https://example.com/2"},
	} {
		as, target := ada, "/api/links/travels"+change.target
		if strings.HasPrefix(change.target, "/api/") {
			as.token, target = adminKey, change.target
		}
		testutil.Eventually(t, "the change is made", func() bool {
			got := as.send(change.method, target, change.body)
			if got.Status >= 300 && got.Status != 409 && got.Status != 503 { // 409: it was made before
				t.Fatalf("%+v: got %+v", change, got)
			}
			return got.Status != 503
		})
		becomes(change.method+change.target+" "+change.body, change.status, change.location)
	}
	if got := other.send("GET", "/api/me", ""); got.Status != 200 {
		t.Errorf("the key before it is revoked: %+v", got)
	}
	key := ada.must(200, "GET", "/api/keys", "")["items"].([]any)[0].(map[string]any)
	ada.must(204, "DELETE", "/api/keys/"+key["id"].(string), "")
	if got := ada.send("GET", "/api/me", ""); got.Status != 401 {
		t.Errorf("the key where it was revoked: %+v", got)
	}
	testutil.Eventually(t, "a revoked key is refused elsewhere", func() bool {
		return other.send("GET", "/api/me", "").Status == 401
	})
}
