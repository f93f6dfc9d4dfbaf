package functions_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/link"
	"tiney/internal/testing/teststore"
)

func TestClaims(t *testing.T) {
	r := newRig(t)
	token, hash := claimToken(t)
	now := r.clock.Now()
	for _, l := range []link.Link{
		{Name: "free", ClaimHash: hash, Shared: true},
		{Name: "kept", ClaimHash: hash},
		{Name: "plain", ClaimHash: hash},
		{Name: "disabled", ClaimHash: hash, Disabled: true},
		{Name: "deleted", ClaimHash: hash, DeletedAt: now},
		{Name: "expired", ClaimHash: hash, ExpiresAt: now},
		{Name: "tokenless"},
		{Name: "anns", Owner: "ann"},
		{Name: "annsDeleted", Owner: "ann", DeletedAt: now},
		{Name: "bobs", Owner: "bob", ClaimHash: hash},
		{Name: "tombstone", GoneReason: link.StateExpired, GoneAt: now},
	} {
		if l.GoneReason == link.StateLive {
			l.LongURL, l.CreatedAt = "https://example.com/"+string(l.Name), now
		}
		if l.ExpiresAt.IsZero() {
			l.ExpiresAt = now.Add(time.Hour)
		}
		r.fake.Put(l)
	}
	var claims, want []string
	for _, c := range []struct{ alias, token, more, result string }{
		{"free", token, "", "claimed"},
		{"free", token, "", "already yours"},
		{"kept", token, `,"keepExpiry":true`, "claimed"},
		{"plain", token, `,"keepExpiry":false`, "claimed"},
		{"disabled", token, "", "gone"}, // otherwise its new owner could undo what an admin did
		{"deleted", token, "", "gone"},
		{"deleted", "tnc_wrong", "", "invalid"},
		{"expired", token, "", "gone"},
		{"tokenless", token, "", "invalid"},
		{"tokenless", "", "", "invalid"},
		{"anns", "whatever", "", "already yours"},
		{"annsDeleted", "", "", "already yours"},
		{"bobs", token, "", "invalid"},
		{"tombstone", token, "", "gone"},
		{"unknown", token, "", "gone"},
		{"no/alias", token, "", "gone"},
		{"API", token, "", "gone"},
		{"", token, "", "gone"},
		{"ü\\u0000", token, "", "gone"},
	} {
		claims = append(claims, fmt.Sprintf(`{"alias":"%s","claimToken":"%s"%s}`, c.alias, c.token,
			c.more))
		want = append(want, fmt.Sprintf(`{"alias":"%s","domain":"tiney.to","result":"%s"}`,
			c.alias, c.result))
	}
	body := `{"claims":[` + strings.Join(claims, ",") + `]}`
	wantJSON(t, r.as("ann", "POST", "/api/claims", body),
		`{"results":[`+strings.Join(want, ",")+`]}`)
	r.wantMetrics(map[string]float64{"link.claimed": 3})
	for alias, expires := range map[string]string{"free": "null", "plain": "null", "kept": `"` +
		now.Add(time.Hour).Format(time.RFC3339) + `"`} {
		got := members(t, r.as("ann", "GET", "/api/links/"+alias, ""))
		if got["owner"] != `"ann"` || got["expiresAtUtc"] != expires ||
			got["shared"] != fmt.Sprint(alias == "free") {
			t.Errorf("%s: %v", alias, got)
		}
		// the token is void
		wantProblem(t, r.as(token, "GET", "/api/links/"+alias, ""), 403, "forbidden", "")
	}
	// Only the owner of a claimed link gets it for its URL.
	wantStatus(t, r.shorten(`{"longUrl":"https://example.com/free"}`), 201)
	if w := r.as("ann", "POST", "/api/shorten",
		`{"longUrl":"https://example.com/free"}`); w.Code != 200 ||
		members(t, w)["alias"] != `"free"` {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
}

func TestClaimsThatAreRefused(t *testing.T) {
	many := func(n int) string {
		token, _ := claimToken(t)
		return `{"claims":[` + strings.TrimSuffix(strings.Repeat(`{"alias":"`+
			strings.Repeat("a", link.MaxAliasLength)+`","domain":"`+
			strings.Repeat("d.", 125)+`xyz:65535","claimToken":"`+token+`","keepExpiry":false},`, n), ",") +
			`]}`
	}
	r := newRig(t)
	wantStatus(t, r.as("ann", "POST", "/api/claims", many(100)), 200, "a hundred")
	for name, test := range map[string]struct {
		body   string
		status int
		kind   string
		field  string
	}{
		"none":           {`{"claims":[]}`, 400, "body", "claims"},
		"no list":        {`{}`, 400, "body", "claims"},
		"null":           {`{"claims":null}`, 400, "body", "claims"},
		"too many":       {many(101), 400, "body", "claims"},
		"too large":      {many(200), 413, "body-too-large", ""},
		"a claim a text": {`{"claims":["abc"]}`, 400, "body", "claims.0"},
		"alias a number": {`{"claims":[{"alias":1}]}`, 400, "body", "claims.0.alias"},
		"unknown field": {`{"claims":[{"alias":"a","token":"x"}]}`, 400, "body",
			"claims.0.token"},
		"keepExpiry a text": {`{"claims":[{"alias":"a","keepExpiry":"no"}]}`, 400, "body",
			"claims.0.keepExpiry"},
	} {
		t.Run(name, func(t *testing.T) {
			wantProblem(t, r.as("ann", "POST", "/api/claims", test.body), test.status, test.kind,
				test.field)
		})
	}
}

// failing is a store in which the last of several edits fails.
type failing struct {
	*teststore.Store
	with error
}

func (f failing) EditAll(ctx context.Context, edits []link.Edit) ([]link.EditResult, error) {
	edited, err := f.Store.EditAll(ctx, edits[:len(edits)-1])
	return append(edited, link.EditResult{Err: f.with}), err
}

// If storage fails in the middle, the call fails and can be repeated.
func TestClaimsThatFailInTheMiddle(t *testing.T) {
	token, hash := claimToken(t)
	body := fmt.Sprintf(`{"claims":[{"alias":"first","claimToken":%q},{"alias":"second",`+
		`"claimToken":%q}]}`, token, token)
	for _, test := range []struct {
		err    error
		status int
		kind   string
	}{
		{link.ErrUnavailable, 503, "storage-unavailable"},
		{link.ErrConflict, 409, "conflict"},
		{errors.New("something unknown"), 500, "internal"},
		{link.ErrDamaged, 200, ""}, // a damaged link does not stop the others
	} {
		store := &failing{with: test.err}
		r := newRig(t, func(c *functions.Config) {
			store.Store = c.Links.(*teststore.Store)
			c.Links = store
		})
		r.fake.Put(link.Link{Name: "first", LongURL: "https://example.com/1", ClaimHash: hash})
		r.fake.Put(link.Link{Name: "second", LongURL: "https://example.com/2", ClaimHash: hash})
		w := r.as("ann", "POST", "/api/claims", body)
		if test.status == 200 {
			wantJSON(t, w, `{"results":[{"alias":"first","domain":"tiney.to","result":"claimed"},`+
				`{"alias":"second","domain":"tiney.to","result":"gone"}]}`)
		} else {
			wantProblem(t, w, test.status, test.kind, "")
		}
		r.wantMetrics(map[string]float64{"link.claimed": 1})
	}
}
