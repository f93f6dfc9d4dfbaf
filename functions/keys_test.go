package functions_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/link"
	"tiney/internal/testing/testutil"
)

func TestKeys(t *testing.T) {
	r := newRig(t)
	ends := r.clock.Now().Add(time.Minute)
	w := r.as("admin", "POST", "/api/keys", `{"name":"Ann's laptop","owner":"ann","expiresAtUtc":"`+
		ends.In(time.FixedZone("", 3600)).Format("2006-01-02T15:04:05.9Z07:00")+`"}`)
	got := members(t, w)
	key := strings.Trim(got["key"], `"`)
	hash := access.Hash(key)
	if w.Code != 201 || !strings.HasPrefix(key, "tny_") || w.Header().Get("Cache-Control") != "no-store" {
		t.Fatalf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	today := r.clock.Now().Format(time.DateOnly)
	listed := `{"id":"` + hash[:16] + `","name":"Ann's laptop","owner":"ann","createdBy":"admin","createdAtUtc":"` +
		r.clock.Now().Format(time.RFC3339) +
		`","expiresAtUtc":"` + ends.Format(time.RFC3339) + `","lastUsedOn":null,"last4":"` +
		key[len(key)-4:] + `","access":"write"`
	if want := listed + `,"key":"` + key + "\"}\n"; w.Body.String() != want {
		t.Errorf("got %s, want %s", w.Body, want)
	}
	if w := r.as(key, "GET", "/api/me", ""); members(t, w)["owner"] != `"ann"` {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	// The day of its use is saved in the background.
	used := `{"items":[` + strings.Replace(listed, "null", `"`+today+`"`, 1) + "}]}\n"
	testutil.Eventually(t, "the key was used", func() bool {
		w = r.as(key, "GET", "/api/keys", "")
		return w.Body.String() != `{"items":[`+listed+"}]}\n"
	})
	if w.Code != 200 || w.Body.String() != used {
		t.Errorf("got %d %s, want %s", w.Code, w.Body, used)
	}
	if strings.Contains(r.log.String(), key) {
		t.Error("the key is in the log")
	}

	// Owners make keys for themselves, and see their own; an admin sees all.
	second := members(t, r.as(key, "POST", "/api/keys", `{"name":"2","expiresAtUtc":null}`))
	if second["owner"] != `"ann"` {
		t.Errorf("got %v", second)
	}
	wantStatus(t, r.as(key, "POST", "/api/keys", `{"name":"3","owner":"ann"}`), 201)
	r.putKey("bob", access.Key{Owner: "bob", LastUsedOn: "2126-11-22"})
	ids := regexp.MustCompile(`"id":"[0-9a-f]{16}"`)
	for who, n := range map[string]int{key: 3, "bob": 1, "admin": 4} {
		w := r.as(who, "GET", "/api/keys", "")
		if len(ids.FindAllString(w.Body.String(), -1)) != n {
			t.Errorf("%s sees %s, want %d", who, w.Body, n)
		}
	}
	w = r.as("bob", "GET", "/api/keys", "")
	if !strings.Contains(w.Body.String(), `"lastUsedOn":"2126-11-22"`) {
		t.Errorf("got %s", w.Body)
	}

	// A revoked key is refused.
	target := "/api/keys/" + hash[:16]
	wantProblem(t, r.as("bob", "DELETE", target, ""), 403, "forbidden", "")
	if w := r.as(key, "DELETE", target, ""); w.Code != 204 || w.Body.Len() != 0 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	wantProblem(t, r.as(key, "GET", "/api/me", ""), 401, "credentials-invalid", "")
	wantProblem(t, r.as("admin", "DELETE", target, ""), 404, "not-found", "")
	wantStatus(t, r.as("admin", "DELETE", "/api/keys/"+strings.Trim(second["id"], `"`),
		""), 204, "an admin")
	for _, id := range []string{"x", "0123456789ABCDEF", "0123456789abcdef0", "..%2f..",
		"0123456789abcde%00"} {
		wantProblem(t, r.as("admin", "DELETE", "/api/keys/"+id, ""), 404, "not-found", "")
	}
	r.fake.FailKeys(link.ErrUnavailable)
	for _, request := range []string{"GET /api/keys", "POST /api/keys", "DELETE " + target} {
		method, target, _ := strings.Cut(request, " ")
		wantProblem(t, r.as("admin", method, target, `{"name":"x","owner":"ann"}`), 503,
			"storage-unavailable", "")
	}
}

// A key cannot make a key that outlives it.
func TestAKeyOfAKeyEndsWithIt(t *testing.T) {
	skipIfRaced(t)
	r := newRig(t)
	ends := r.clock.Now().Add(time.Hour)
	end := func(who, asked string) string {
		t.Helper()
		w := r.as(who, "POST", "/api/keys", `{"name":"x"`+asked+`}`)
		if w.Code != 201 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
		return strings.Trim(members(t, w)["expiresAtUtc"], `"`)
	}
	at := func(t time.Time) string { return t.Format(time.RFC3339) }
	asking := func(t time.Time) string { return `,"expiresAtUtc":"` + at(t) + `"` }
	key := strings.Trim(members(t, r.as("admin", "POST", "/api/keys", `{"name":"x","owner":"ann"`+
		asking(ends)+`}`))["key"], `"`)
	for _, test := range []struct{ who, asked, want string }{
		{key, "", at(ends)},
		{key, `,"expiresAtUtc":null`, at(ends)},
		{key, asking(ends), at(ends)},
		{key, asking(ends.Add(time.Second)), at(ends)},
		{key, asking(ends.Add(-time.Second)), at(ends.Add(-time.Second))},
		{"bob", "", "null"}, // made with a key that never ends
		{"bob", asking(ends), at(ends)},
	} {
		if got := end(test.who, test.asked); got != test.want {
			t.Errorf("%s, asking for%s: it ends at %s, want %s", test.who, test.asked, got,
				test.want)
		}
	}
	// A key with less than minKeyLife left can still make a key that ends with it.
	r.clock.Advance(time.Hour - time.Second)
	if got := end(key, ""); got != at(ends) {
		t.Errorf("it ends at %s, want %s", got, at(ends))
	}
	for i := range access.MaxKeys {
		r.putKey("cleo", access.Key{Owner: "cleo", Name: fmt.Sprint(i)})
	}
	wantProblem(t, r.as("admin", "POST", "/api/keys", `{"name":"x","owner":"cleo"}`), 409,
		"too-many-keys", "")
}

// memberships are callers that belong to groups, by their owners.
type memberships struct {
	functions.Callers
	of map[string][]string
}

func (m memberships) Caller(ctx context.Context, h http.Header) (access.Caller, error) {
	who, err := m.Callers.Caller(ctx, h)
	who.Groups = m.of[who.Owner]
	return who, err
}

// A group's key belongs to all who are in the group at the time.
func TestKeysOfGroups(t *testing.T) {
	const ops, sales = "login.example|group|ops", "login.example|group|sales"
	of := map[string][]string{"ann": {ops, sales}, "bob": {ops}, "cleo": {sales}}
	r := newRig(t, func(c *functions.Config) { c.Callers = memberships{c.Callers, of} })
	made := func(who, body string) (key, id string) {
		t.Helper()
		w := r.as(who, "POST", "/api/keys", body)
		if w.Code != 201 {
			t.Fatalf("%s: got %d %s", who, w.Code, w.Body)
		}
		got := members(t, w)
		if got["createdBy"] != `"`+who+`"` {
			t.Errorf("%s has made %v", who, got)
		}
		return strings.Trim(got["key"], `"`), strings.Trim(got["id"], `"`)
	}
	for _, who := range []string{"ann", "bob", "cleo"} { // makes their own key
		if w := r.as(who, "GET", "/api/me", ""); w.Code != 200 || members(t, w)["groups"] !=
			`["`+strings.Join(of[who], `","`)+`"]` {
			t.Errorf("%s: got %s", who, w.Body)
		}
	}
	key, id := made("ann", `{"name":"1","owner":"`+ops+`"}`)
	r.clock.Advance(time.Second)
	_, second := made("cleo", `{"name":"2","owner":"`+sales+`","expiresAtUtc":null}`)
	r.clock.Advance(time.Second)
	_, third := made("admin", `{"name":"3","owner":"`+ops+`"}`)
	for _, owner := range []string{ops, "ann", ""} {
		wantProblem(t, r.as("cleo", "POST", "/api/keys", `{"name":"x","owner":"`+owner+`"}`), 403,
			"forbidden", "owner")
	}

	// The newest is first, whoever's it is. The rig's own keys have no time and no maker.
	ids := regexp.MustCompile(`"id":"([0-9a-f]{16})","name":"[123]"`)
	wantListed := func(who string, want ...string) {
		t.Helper()
		var got []string
		for _, m := range ids.FindAllStringSubmatch(r.as(who, "GET", "/api/keys", "").Body.String(),
			-1) {
			got = append(got, m[1])
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s sees %q, want %q", who, got, want)
		}
	}
	wantListed("ann", third, second, id)
	wantListed("bob", third, id)
	wantListed("cleo", second)
	wantListed(key, third, id) // the group's own
	wantListed("dora")
	wantListed("admin", third, second, id)

	// Its key is the group, which belongs to no group.
	w := r.as(key, "GET", "/api/me", "")
	if got := members(t, w); got["owner"] != `"`+ops+`"` || got["groups"] != "[]" {
		t.Errorf("got %s", w.Body)
	}

	// Who has left has no part in it. The key works on.
	of["ann"] = []string{sales}
	wantListed("ann", second)
	wantProblem(t, r.as("ann", "DELETE", "/api/keys/"+id, ""), 403, "forbidden", "")
	wantProblem(t, r.as("ann", "POST", "/api/keys", `{"name":"x","owner":"`+ops+`"}`), 403,
		"forbidden", "owner")
	wantStatus(t, r.as(key, "GET", "/api/me", ""), 200)
	wantStatus(t, r.as("bob", "DELETE", "/api/keys/"+id, ""), 204, "another member")
	wantProblem(t, r.as(key, "GET", "/api/me", ""), 401, "credentials-invalid", "")
	wantListed("bob", third)
	r.clock.Advance(365 * 24 * time.Hour)
	if w := r.as("bob", "GET", "/api/keys", ""); !strings.Contains(w.Body.String(),
		`"expiresAtUtc":"`+r.clock.Now().Format(time.RFC3339)) {
		t.Errorf("the third does not end now: %s", w.Body)
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	r := newRig(t)
	in59, in60 := r.clock.Now().Add(60*time.Second-time.Millisecond), r.clock.Now().Add(time.Minute)
	for name, test := range map[string]struct {
		who, body   string
		status      int
		kind, field string
	}{
		"longest name": {"ann", `{"name":"` + strings.Repeat("東", 100) + `"}`, 201, "", ""},
		"earliest end": {"ann", `{"name":"x","expiresAtUtc":"` + in60.Format(time.RFC3339) +
			`"}`, 201, "", ""},
		"longest owner": {"admin", `{"name":"x","owner":"` + strings.Repeat("ü", 400) + `"}`,
			201, "", ""},
		"all owners":         {"admin", `{"name":"x","owner":"*"}`, 400, "body", "owner"},
		"owner and a space":  {"admin", `{"name":"x","owner":"ann "}`, 400, "body", "owner"},
		"owner with a space": {"admin", `{"name":"x","owner":"Ann Lee"}`, 201, "", ""},
		"null owner":         {"ann", `{"name":"x","owner":null}`, 201, "", ""},
		"no name":            {"ann", `{}`, 400, "body", "name"},
		"empty name":         {"ann", `{"name":""}`, 400, "body", "name"},
		"null name":          {"ann", `{"name":null}`, 400, "body", "name"},
		"name too long": {"ann", `{"name":"` + strings.Repeat("é", 101) + `"}`, 400, "body",
			"name"},
		"name of two lines":    {"ann", `{"name":"a\nb"}`, 400, "body", "name"},
		"name a number":        {"ann", `{"name":7}`, 400, "body", "name"},
		"somebody else":        {"ann", `{"name":"x","owner":"bob"}`, 403, "forbidden", "owner"},
		"nobody":               {"ann", `{"name":"x","owner":""}`, 403, "forbidden", "owner"},
		"the admin, by owner":  {"ann", `{"name":"x","owner":"admin"}`, 403, "forbidden", "owner"},
		"an admin, no owner":   {"admin", `{"name":"x"}`, 400, "body", "owner"},
		"an admin, null owner": {"admin", `{"name":"x","owner":null}`, 400, "body", "owner"},
		"an admin, itself":     {"admin", `{"name":"x","owner":"admin"}`, 400, "body", "owner"},
		"an admin, nobody":     {"admin", `{"name":"x","owner":""}`, 400, "body", "owner"},
		"owner too long": {"admin", `{"name":"x","owner":"` + strings.Repeat("x", 401) + `"}`,
			400, "body", "owner"},
		"owner not printable": {"admin", `{"name":"x","owner":"a\u200b"}`, 400, "body", "owner"},
		"owner of two lines":  {"admin", `{"name":"x","owner":"a\nb"}`, 400, "body", "owner"},
		"own, by a long name": {strings.Repeat("s", 500), `{"name":"x"}`, 201, "", ""},
		"end too early": {"ann", `{"name":"x","expiresAtUtc":"` +
			in59.Format(time.RFC3339Nano) + `"}`, 400, "expires-at-utc", "expiresAtUtc"},
		"end in year 10000": {"ann", `{"name":"x","expiresAtUtc":"9999-12-31T23:59:59-01:00"}`,
			400, "expires-at-utc", "expiresAtUtc"},
		"end a number": {"ann", `{"name":"x","expiresAtUtc":1}`, 400, "expires-at-utc",
			"expiresAtUtc"},
		"unknown field": {"ann", `{"name":"x","admin":true}`, 400, "body", "admin"},
		"no object":     {"ann", `"x"`, 400, "body", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := r.as(test.who, "POST", "/api/keys", test.body)
			if wantStatus(t, w, test.status); test.status != 201 {
				wantProblem(t, w, test.status, test.kind, test.field)
			}
		})
	}
	wantProblem(t, r.as("ann", "POST", "/api/keys", "name=x", "Content-Type", "text/plain"), 415,
		"media-type", "")
}
