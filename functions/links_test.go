package functions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/link"
	"tiney/internal/testing/teststore"
	"tiney/internal/testing/testutil"
)

// An alias of 100 characters works wherever one is taken, and none of 101 does anywhere.
func TestLongestAlias(t *testing.T) {
	r := newRig(t, withDomains)
	for n, ok := range map[int]bool{33: true, link.MaxAliasLength: true, link.MaxAliasLength + 1: false} {
		a := strings.Repeat("Ab-_", 25) + "x"
		a = a[:n]
		url := func(of string) string { return `"longUrl":"https://example.com/` + of + fmt.Sprint(n) + `"` }
		for request, status := range map[string]int{
			"GET /api/aliases/" + a: 200, "GET /api/aliases/" + a + "@go.example": 200,
			"POST /api/shorten {" + url("s") + `,"alias":"` + a + `"}`: 201,
		} {
			method, rest, _ := strings.Cut(request, " ")
			target, body, _ := strings.Cut(rest, " ")
			if w := r.as("ann", method, target, body); ok && w.Code != status || !ok && w.Code != 400 {
				t.Errorf("%s: got %d %s", request, w.Code, w.Body)
			}
		}
		for _, request := range []string{"GET /" + a, "GET /" + a + "/", "GET /" + a + "+", "HEAD /" + a,
			"GET /api/links/" + a, "GET /api/links/" + a + "/qr", "GET /api/links/" + a + "/history",
			"GET /api/links/" + a + "/stats", "PATCH /api/links/" + a + ` {"title":"T"}`,
			"DELETE /api/links/" + a, "POST /api/links/" + a + "/restore",
			"GET /api/links/" + a + "@go.example/qr"} {
			method, rest, _ := strings.Cut(request, " ")
			target, body, _ := strings.Cut(rest, " ")
			if w := r.as("ann", method, target, body); ok && w.Code >= 400 || !ok && w.Code != 404 {
				t.Errorf("%s: got %d %s", request, w.Code, w.Body)
			}
		}
		made := r.bulk("ann", `{`+url("b")+`,"alias":"`+a+`","domain":"go.example"}`).Results[0]
		w := r.as("ann", "GET", "/api/stats/clicks?alias="+a+","+a+"@go.example", "")
		if ok && (made.Status != 201 || strings.Count(w.Body.String(), a) != 2) || !ok && made.Status != 400 {
			t.Errorf("%d characters: bulk %+v, clicks %d %s", n, made, w.Code, w.Body)
		}
		exported, _ := r.exported("ann", "/api/export?format=ndjson")
		has := strings.Count(strings.Join(exported, ""), `"`+a+`"`)
		fresh := newRig(t)
		got := fresh.imports("ann", "", line(a, "https://example.com/i", ""))
		if ok && (has != 2 || got[0] != "1 201 "+a) || !ok && (has != 0 || !strings.HasPrefix(got[0], "1 400")) {
			t.Errorf("%d characters: %d exported, imported %s", n, has, got)
		}
	}
}

// wantOwnersAlone checks that only owners may say this member of a link, as JSON, and of a shared
// one only an admin. It leaves the link "shared" of ann, which has the member then.
func wantOwnersAlone(t *testing.T, r *rig, member string) {
	t.Helper()
	token := someLinks(t, r)
	body, edit := `{"longUrl":"https://example.com/",`+member+`}`, `{`+member+`}`
	wantProblem(t, r.as("", "POST", "/api/shorten", body), 401, "credentials-missing", "")
	wantProblem(t, r.as(token, "POST", "/api/shorten", body), 403, "owner-needed", "")
	wantProblem(t, r.as("", "PATCH", "/api/links/nobodys", edit), 401, "credentials-missing", "")
	wantProblem(t, r.as(token, "PATCH", "/api/links/nobodys", edit), 403, "owner-needed", "")
	wantProblem(t, r.as("bob", "PATCH", "/api/links/anns", edit), 404, "not-found", "")
	r.fake.Put(link.Link{Name: "shared", LongURL: "https://example.com/s", Owner: "ann",
		Shared: true})
	wantProblem(t, r.as("ann", "PATCH", "/api/links/shared", edit), 409, "link-shared", "")
	for _, who := range []string{"admin", "ann"} { // who then changes nothing
		wantStatus(t, r.as(who, "PATCH", "/api/links/shared", edit), 200, who)
	}
}

// wantMember checks that a new link of ann gets a value of a member, as JSON, and shows it as want.
// An edit does the same to old, which has the member as before in its history. It returns the
// response of the edit, and the rig with the links "made" and "old".
func wantMember(
	t *testing.T, member, value, want string, old link.Link, before string,
) (r *rig, edited *httptest.ResponseRecorder) {
	t.Helper()
	r = newRig(t)
	edit := fmt.Sprintf(`{%q:%s}`, member, value)
	made := r.as("ann", "POST", "/api/shorten",
		`{"longUrl":"https://example.com/","alias":"made",`+edit[1:])
	shown, is := members(t, made)[member]
	if made.Code != 201 || is != (value != "null") || is && shown != want {
		t.Errorf("%s: made %d %s", value, made.Code, made.Body)
	}
	if got := members(t, r.as("ann", "GET", "/api/links/made", ""))[member]; got != want {
		t.Errorf("%s: made with %s, want %s", value, got, want)
	}
	old.Name, old.LongURL, old.Owner = "old", "https://example.com/old", "ann"
	r.fake.Put(old)
	was := members(t, r.as("ann", "GET", "/api/links/old", ""))[member]
	other := r.as("ann", "PATCH", "/api/links/old", `{"title":"T"}`)
	if got := members(t, other)[member]; got != was {
		t.Errorf("an edit of the title: %s is %s, and was %s", member, got, was)
	}
	edited = r.as("ann", "PATCH", "/api/links/old", edit)
	if got := members(t, edited)[member]; edited.Code != 200 || got != want {
		t.Errorf("%s: edited %d %s", value, edited.Code, edited.Body)
	}
	history := r.as("ann", "GET", "/api/links/old/history", "").Body.String()
	if want != was && !strings.Contains(history, fmt.Sprintf(`"before":{%q:%s}`, member, before)) {
		t.Errorf("the history is %s", history)
	}
	return r, edited
}

// wantRefused checks that nothing gives ann a link with a value of a member, as JSON, or her link
// "old" that value. more are the further members of a new link.
func (r *rig) wantRefused(
	t *testing.T, member, value, more string, status int, kind, field string,
) {
	t.Helper()
	edit := fmt.Sprintf(`%q:%s`, member, value)
	made := `{"longUrl":"https://example.com/","alias":"made",` + edit + more + `}`
	wantProblem(t, r.as("ann", "POST", "/api/shorten", made), status, kind, field)
	wantProblem(t, r.as("ann", "PATCH", "/api/links/old", `{`+edit+`}`), status, kind, field)
	for _, got := range []bulkResponse{r.bulk("ann", made),
		r.bulkEdit("ann", `{"alias":"old",`+edit+`}`)} {
		if p := string(got.Results[0].Problem); got.Results[0].Status != status ||
			!strings.Contains(p, fmt.Sprintf(`"field":%q`, field)) {
			t.Errorf("bulk: got %+v", got)
		}
	}
}

// someLinks stores the links "anns" and "bobs", and the links "nobodys" and "tokenless" without an
// owner. "nobodys" has a claim token. "claimed" is bob's, with the token still in its row.
func someLinks(t testing.TB, r *rig) (token string) {
	t.Helper()
	token, hash := claimToken(t)
	now := r.clock.Now()
	r.fake.Put(link.Link{Name: "anns", LongURL: "https://example.com/ann", Owner: "ann",
		CreatedAt: now, ExpiresAt: now.Add(time.Hour), StatusCode: 301, Title: "Ann's <title>",
		Tags: []string{"b", "a"}})
	r.fake.Put(link.Link{Name: "bobs", LongURL: "https://example.com/bob", Owner: "bob",
		CreatedAt: now})
	r.fake.Put(link.Link{Name: "nobodys", LongURL: "https://example.com/nobody", CreatedAt: now,
		ExpiresAt: now.Add(time.Hour), ClaimHash: hash})
	r.fake.Put(link.Link{Name: "tokenless", LongURL: "https://example.com/tokenless",
		CreatedAt: now})
	r.fake.Put(link.Link{Name: "claimed", LongURL: "https://example.com/claimed", CreatedAt: now,
		Owner: "bob", ClaimHash: hash})
	return token
}

// members returns the members of a JSON object, each as JSON.
func members(t testing.TB, w *httptest.ResponseRecorder) map[string]string {
	t.Helper()
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(w.Body.Bytes(), &raw); err != nil {
		t.Fatalf("%v in %d %s", err, w.Code, w.Body)
	}
	all := map[string]string{}
	for name, value := range raw {
		all[name] = string(value)
	}
	return all
}

func TestALink(t *testing.T) {
	r := newRig(t)
	token := someLinks(t, r)
	created := r.clock.Now().Format(time.RFC3339)
	ends := r.clock.Now().Add(time.Hour).Format(time.RFC3339)
	for _, test := range []struct{ who, alias, want string }{
		{"ann", "anns", `{"alias":"anns","domain":"tiney.to","shortUrl":"https://tiney.to/anns",` +
			`"longUrl":"https://example.com/ann","createdAtUtc":"` + created + `",` +
			`"expiresAtUtc":"` + ends +
			`","updatedAtUtc":null,"statusCode":301,"forward":[],"disabled":false,"shared":false,` +
			`"locked":false,"deletedAtUtc":null,"title":"Ann's <title>","tags":["b","a"],` +
			`"owner":"ann","startsAtUtc":null,"goneUrl":null,"rules":[],"password":false,` +
			`"maxOpens":null,"opensLeft":null}`},
		{token, "nobodys", `{"alias":"nobodys","domain":"tiney.to",` +
			`"shortUrl":"https://tiney.to/nobodys",` +
			`"longUrl":"https://example.com/nobody","createdAtUtc":"` + created + `",` +
			`"expiresAtUtc":"` + ends +
			`","updatedAtUtc":null,"statusCode":302,"forward":[],"disabled":false,"shared":false,` +
			`"locked":false,"deletedAtUtc":null,"title":null,"tags":[],"owner":null,` +
			`"startsAtUtc":null,"goneUrl":null,"rules":[],"password":false,` +
			`"maxOpens":null,"opensLeft":null}`},
	} {
		wantJSON(t, r.as(test.who, "GET", "/api/links/"+test.alias, ""), test.want)
	}
}

// Each test has the statuses of GET, PATCH, DELETE and restore, in this order, each on a new link.
// A link changes only if the status is a 2xx.
func TestPermissions(t *testing.T) {
	stranger, _ := claimToken(t)
	for _, test := range []struct {
		who, alias string
		want       string
	}{
		{"ann", "anns", "200 200 204 200"},
		{"admin", "anns", "200 200 204 200"},
		{"bob", "anns", "404 404 404 404"},
		{"holder", "anns", "403 403 403 403"},
		{"", "anns", "401 401 401 401"},
		{"holder", "nobodys", "200 403 204 200"},
		{"admin", "nobodys", "200 200 204 200"},
		{"ann", "nobodys", "404 404 404 404"},
		{stranger, "nobodys", "403 403 403 403"},
		{"", "nobodys", "401 401 401 401"},
		{"ann", "tokenless", "404 404 404 404"},
		{"holder", "tokenless", "403 403 403 403"},
		{"holder", "claimed", "403 403 403 403"},
		{"ann", "unknown", "404 404 404 404"},
		{"admin", "unknown", "404 404 404 404"},
		{"holder", "unknown", "404 403 404 404"},
		{"", "unknown", "401 401 401 401"},
		{"ann", "a.b", "404 404 404 404"},
		{"ann", "api", "404 404 404 404"},
		{"ann", "tombstone", "404 404 404 404"},
	} {
		var got []string
		for _, method := range []string{"GET", "PATCH", "DELETE", "POST"} {
			r := newRig(t)
			token := someLinks(t, r)
			r.fake.Put(link.Link{Name: "tombstone", GoneReason: link.StateExpired,
				GoneAt: r.clock.Now()})
			who := test.who
			if who == "holder" {
				who = token
			}
			target := "/api/links/" + test.alias
			if method == "POST" {
				if l, err := r.fake.Read(t.Context(), link.Name(test.alias)); err == nil {
					l.DeletedAt = r.clock.Now() // not by an admin, who takes links down
					r.fake.Put(l)
				}
				target += "/restore"
			}
			edits := r.metrics.LinkEdited.Value()
			before, _ := r.fake.Read(t.Context(), link.Name(test.alias))
			w := r.as(who, method, target, `{"title":"another"}`)
			after, _ := r.fake.Read(t.Context(), link.Name(test.alias))
			got = append(got, fmt.Sprint(w.Code))
			switch w.Code {
			case 403:
				kind := "forbidden"
				if strings.HasPrefix(who, "tnc_") && method == "PATCH" {
					kind = "owner-needed"
				}
				wantProblem(t, w, 403, kind, "")
			case 404:
				wantProblem(t, w, 404, "not-found", "")
			}
			counted, edited := r.metrics.LinkEdited.Value() > edits, after.Version != before.Version
			if want := w.Code < 300 && method != "GET"; edited != want || counted != want {
				t.Errorf("%s %s by %q: edited %t, counted %t", method, target, test.who, edited,
					counted)
			}
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%q, %s: got %s, want %s", test.who, test.alias, got, test.want)
		}
	}
}

// To owners, a link of somebody else is as if there were none, whatever they ask and however.
func TestLinksOfOthersAreAsIfThereWereNone(t *testing.T) {
	skipIfRaced(t)
	at := testutil.NewClock().Now()
	there := map[string]link.Link{
		"live": {Owner: "bob"}, "expired": {Owner: "bob", ExpiresAt: at.Add(-time.Hour)},
		"disabled": {Owner: "bob", Disabled: true}, "deleted": {Owner: "bob", DeletedAt: at},
		"taken down": {Owner: "bob", Disabled: true, Locked: true},
		"shared":     {Owner: "bob", Shared: true, Tags: []string{"t"}, Title: "T"},
		"nobody's":   {}, "a group's": {Owner: "crew"}, "the admin's": {Owner: "admin"},
	}
	all := 0
	for route, of := range apiRoutes {
		method, path, _ := strings.Cut(route, " ")
		rest, ok := strings.CutPrefix(path, "/api/links/abcdef")
		if !ok || of == "public" {
			continue
		}
		var requests [][]string // query, body, headers
		for _, query := range []string{"", "?from=2026-01-01", "?interval=hour", "?interval=x"} {
			for _, body := range []string{"", "{}", `{"title":"T"}`, `{"owner":"ann"}`,
				`{"owner":"bob"}`, `{"longUrl":"ftp://x"}`, `{"longUrl":"https://evil.example/"}`,
				`{"expiresInSeconds":60}`, `{"disabled":true}`, `{"x":1}`, `{`} {
				for i, header := range [][]string{{}, {"If-Match", `"x"`}, {"If-Match", "*"},
					{"If-Match", "x"}, {"If-None-Match", "*"}, {"Accept", "text/csv"}} {
					if query != "" && rest != "/stats" || body != "" && method != "PATCH" ||
						i > 1 && len(body) > 2 {
						continue
					}
					requests = append(requests, append([]string{query, body}, header...))
				}
			}
		}
		for _, request := range requests {
			for name, who := range map[string]string{"an owner": "ann", "a key that reads": "reader",
				"a group's key": "ops"} {
				if who != "ann" && len(request) > 2 {
					continue
				}
				answer := func(l *link.Link) string {
					r := newRig(t, func(c *functions.Config) {
						c.Rates = access.Rates{access.LimitUnknown: 1, access.LimitAPI: 1,
							access.LimitProbes: 1}
					})
					r.block("evil.example")
					r.putKey(who, access.Key{Owner: who, ReadOnly: who == "reader"})
					if l != nil {
						r.fake.Put(*l)
					}
					calls := r.fake.Calls()
					var responses []string
					for range 2 { // the second is past the limit of all calls
						w := r.as(who, method, path+request[0], request[1], request[2:]...)
						responses = append(responses, fmt.Sprint(w.Code, w.Header(), w.Body))
					}
					// What any client may ask for is not counted for the address, either.
					responses = append(responses, r.get("/nobody").Body.String())
					return fmt.Sprintln(responses, r.fake.Calls()-calls, r.metrics.NonZero(),
						redacted(r.log.String()))
				}
				want := answer(nil)
				for state, l := range there {
					l.Name, l.LongURL, l.CreatedAt = "abcdef", "https://example.com/", at
					all++
					if got := answer(&l); got != want {
						t.Errorf("%s %q by %s, %s:\n%s\nwithout a link:\n%s", route, request, name,
							state, got, want)
					}
				}
			}
		}
	}
	if all < 1000 {
		t.Errorf("tried %d requests only", all)
	}
}

// redacted returns a log without what differs in each request.
func redacted(log string) string {
	return regexp.MustCompile(`"(time|operation|ms)":("[^"]*"|[0-9.e-]+)`).ReplaceAllString(log, "")
}

func TestPatch(t *testing.T) {
	now := testutil.NewClock().Now()
	soon := now.Add(2 * time.Hour).Format(time.RFC3339)
	for name, test := range map[string]struct {
		body string
		want map[string]string // members that change, besides updatedAtUtc
	}{
		"nothing": {`{}`, nil},
		"what is so already": {`{"longUrl":"https://example.com/ann","statusCode":301,` +
			`"disabled":false,"title":"Ann's <title>","tags":["b","a"]}`, nil},
		"another URL": {`{"longUrl":"https://example.com/new"}`,
			map[string]string{"longUrl": `"https://example.com/new"`}},
		"an end": {`{"expiresAtUtc":"` + soon + `"}`,
			map[string]string{"expiresAtUtc": `"` + soon + `"`}},
		"a lifetime": {`{"expiresInSeconds":7200}`,
			map[string]string{"expiresAtUtc": `"` + soon + `"`}},
		"no end": {`{"expiresAtUtc":null}`,
			map[string]string{"expiresAtUtc": "null"}},
		"no lifetime": {`{"expiresInSeconds":null}`,
			map[string]string{"expiresAtUtc": "null"}},
		"a status code": {`{"statusCode":308}`, map[string]string{"statusCode": "308"}},
		"the usual status code": {`{"statusCode":null}`,
			map[string]string{"statusCode": "302"}},
		"disabled":       {`{"disabled":true}`, map[string]string{"disabled": "true"}},
		"a title":        {`{"title":"ü"}`, map[string]string{"title": `"ü"`}},
		"no title":       {`{"title":null}`, map[string]string{"title": "null"}},
		"an empty title": {`{"title":""}`, map[string]string{"title": "null"}},
		"tags": {`{"tags":["x","y","x"]}`,
			map[string]string{"tags": `["x","y"]`}},
		"no tags":               {`{"tags":null}`, map[string]string{"tags": "[]"}},
		"an empty list of tags": {`{"tags":[]}`, map[string]string{"tags": "[]"}},
		"several, with white space": {" {\n\"title\": null, \"disabled\":true}\n",
			map[string]string{"title": "null", "disabled": "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.clock.Advance(now.Sub(r.clock.Now()))
			someLinks(t, r)
			before := r.as("ann", "GET", "/api/links/anns", "")
			w := r.as("ann", "PATCH", "/api/links/anns", test.body, "Content-Type",
				"application/merge-patch+json; charset=utf-8")
			want := members(t, before)
			for member, value := range test.want {
				want[member] = value
				want["updatedAtUtc"] = `"` + now.Format(time.RFC3339) + `"`
			}
			if got := members(t, w); w.Code != 200 || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %d %s, want %v", w.Code, w.Body, want)
			}
			same := w.Header().Get("ETag") == before.Header().Get("ETag")
			if same != (test.want == nil) {
				t.Errorf("ETag %s after %s", w.Header().Get("ETag"), before.Header().Get("ETag"))
			}
			if edited := r.metrics.LinkEdited.Value() == 1; edited != (test.want != nil) {
				t.Errorf("counted %t as an edit", edited)
			}
			after := r.as("ann", "GET", "/api/links/anns", "")
			if after.Body.String() != w.Body.String() ||
				after.Header().Get("ETag") != w.Header().Get("ETag") {
				t.Errorf("read %v %s, edited %v %s", after.Header(), after.Body, w.Header(), w.Body)
			}
		})
	}
}

func TestPatchesThatAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		body   string
		status int
		kind   string
		field  string
	}{
		"empty":           {"", 400, "body", ""},
		"a list":          {`[]`, 400, "body", ""},
		"not JSON":        {`{`, 400, "body", ""},
		"unknown field":   {`{"name":"x"}`, 400, "body", "name"},
		"alias":           {`{"alias":"x"}`, 400, "body", "alias"},
		"owner":           {`{"owner":"bob"}`, 403, "forbidden", "owner"},
		"owner null":      {`{"owner":null}`, 400, "body", "owner"},
		"twice":           {`{"title":"x","title":"y"}`, 400, "body", "title"},
		"no URL":          {`{"longUrl":null}`, 400, "long-url", "longUrl"},
		"a bad URL":       {`{"longUrl":"https://TINEY.to/"}`, 400, "long-url", "longUrl"},
		"URL a number":    {`{"longUrl":1}`, 400, "long-url", "longUrl"},
		"disabled null":   {`{"disabled":null}`, 400, "body", "disabled"},
		"disabled a text": {`{"disabled":"true"}`, 400, "body", "disabled"},
		"both ends": {`{"expiresAtUtc":"2099-01-01T00:00:00Z","expiresInSeconds":60}`, 400,
			"expires-at-utc", "expiresAtUtc"},
		"both ends null": {`{"expiresAtUtc":null,"expiresInSeconds":null}`, 400,
			"expires-at-utc", "expiresAtUtc"},
		"one of two null": {`{"expiresInSeconds":60,"expiresAtUtc":null}`, 400, "expires-at-utc",
			"expiresAtUtc"},
		"end in the past": {`{"expiresAtUtc":"2020-01-01T00:00:00Z"}`, 400, "expires-at-utc",
			"expiresAtUtc"},
		"end too late": {`{"expiresAtUtc":"9999-12-31T23:59:59Z"}`, 400, "expires-at-utc",
			"expiresAtUtc"},
		"end a day": {`{"expiresAtUtc":"2099-01-01"}`, 400, "expires-at-utc",
			"expiresAtUtc"},
		"lifetime too short": {`{"expiresInSeconds":59}`, 400, "expires-in-seconds",
			"expiresInSeconds"},
		"lifetime a text": {`{"expiresInSeconds":"60"}`, 400, "expires-in-seconds",
			"expiresInSeconds"},
		"status code":      {`{"statusCode":200}`, 400, "status-code", "statusCode"},
		"a line break":     {`{"title":"a\nb"}`, 400, "title", "title"},
		"a tag of nothing": {`{"tags":[""]}`, 400, "tags", "tags"},
		"a tag a number":   {`{"tags":["a",7]}`, 400, "tags", "tags.1"},
		"too large": {`{"title":"` + strings.Repeat("x", 32<<10) + `"}`, 413,
			"body-too-large", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			someLinks(t, r)
			before := r.as("ann", "GET", "/api/links/anns", "")
			wantProblem(t, r.as("ann", "PATCH", "/api/links/anns", test.body), test.status,
				test.kind, test.field)
			if after := r.as("ann", "GET", "/api/links/anns",
				""); after.Header().Get("ETag") != before.Header().Get("ETag") {
				t.Error("it was written")
			}
		})
	}
	r := newRig(t)
	someLinks(t, r)
	w := r.as("ann", "PATCH", "/api/links/anns", "title=x", "Content-Type",
		"application/x-www-form-urlencoded")
	wantProblem(t, w, 415, "media-type", "")
	if got := w.Header().Get("Accept-Patch"); got != "application/merge-patch+json, "+
		"application/json" {
		t.Errorf("Accept-Patch %q", got)
	}
	wantStatus(t, r.do("POST", "/api/shorten", `{"longUrl":"https://example.com/"}`, "Content-Type",
		"application/merge-patch+json"), 415, "shorten takes a patch")
}

func TestSharedLinks(t *testing.T) {
	r := newRig(t)
	token := someLinks(t, r)
	share := func(alias link.Name) {
		l, err := r.fake.Read(t.Context(), alias)
		if err != nil {
			t.Fatal(err)
		}
		l.Shared = true
		r.fake.Put(l)
	}
	share("anns")
	share("nobodys")
	for _, body := range []string{`{"longUrl":"https://example.com/new"}`,
		`{"expiresInSeconds":60}`, `{"disabled":true}`, `{"title":"lost","disabled":true}`} {
		wantProblem(t, r.as("ann", "PATCH", "/api/links/anns", body), 409, "link-shared", "")
	}
	wantProblem(t, r.as("ann", "DELETE", "/api/links/anns", ""), 409, "link-shared", "")
	wantProblem(t, r.as(token, "DELETE", "/api/links/nobodys", ""), 409, "link-shared", "")
	for _, body := range []string{`{"expiresAtUtc":null}`, `{"statusCode":307}`,
		`{"title":"new","disabled":false}`} {
		if w := r.as("ann", "PATCH", "/api/links/anns", body); w.Code != 200 ||
			members(t, w)["shared"] != "true" {
			t.Errorf("%s: got %d %s", body, w.Code, w.Body)
		}
	}
	wantStatus(t, r.as("admin", "PATCH", "/api/links/anns", `{"disabled":true}`), 200, "an admin")
	wantStatus(t, r.as("admin", "DELETE", "/api/links/nobodys", ""), 204, "an admin")
	// That the admin took it down says more than that others were given it.
	wantProblem(t, r.as("ann", "PATCH", "/api/links/anns", `{"disabled":false}`), 403, "link-locked",
		"")
	wantProblem(t, r.as("ann", "DELETE", "/api/links/anns", ""), 403, "link-locked", "")
}

// The first other caller that gets a link makes it shared. Its maker, with the claim token, does
// not.
func TestSharing(t *testing.T) {
	r := newRig(t)
	const body = `{"longUrl":"https://example.com/"}`
	first := members(t, r.shorten(body))
	token, target := strings.Trim(first["claimToken"], `"`), "/api/links/"+
		strings.Trim(first["alias"], `"`)
	shared := func(want string) {
		t.Helper()
		if got := members(t, r.as("admin", "GET", target, ""))["shared"]; got != want {
			t.Errorf("shared is %s, want %s", got, want)
		}
	}
	if w := r.as(token, "POST", "/api/shorten", body); w.Code != 200 ||
		strings.Contains(w.Body.String(), "claimToken") {
		t.Errorf("its maker: got %d %s", w.Code, w.Body)
	}
	shared("false")
	if w := r.as("ann", "POST", "/api/shorten", body); w.Code != 201 || len(members(t, w)) != 6 {
		t.Errorf("an owner: got %d %s", w.Code, w.Body)
	}
	shared("false")
	stranger, _ := claimToken(t)
	wantStatus(t, r.as(stranger, "POST", "/api/shorten", body), 200, "somebody else")
	shared("true")
}

func TestChosenAliases(t *testing.T) {
	r := newRig(t)
	body := func(url string) string {
		return `{"longUrl":"https://example.com/` + url +
			`","alias":"Mine"}`
	}
	made := r.as("ann", "POST", "/api/shorten", body("a"))
	if w := made; w.Code != 201 || w.Header().Get("Location") != "https://tiney.to/Mine" ||
		members(t, w)["expiresAtUtc"] != "null" {
		t.Fatalf("got %d %v %s", w.Code, w.Header(), w.Body)
	}
	if again := r.as("ann", "POST", "/api/shorten", body("a")); again.Code != 200 ||
		again.Body.String() != made.Body.String() {
		t.Errorf("again: got %d %s", again.Code, again.Body)
	}
	for _, who := range []string{"", "bob", "admin"} {
		wantProblem(t, r.as(who, "POST", "/api/shorten", body("a")), 409, "alias-taken", "")
	}
	wantProblem(t, r.as("ann", "POST", "/api/shorten", body("b")), 409, "alias-taken", "")
	r.wantMetrics(map[string]float64{"shorten.created": 1, "shorten.deduplicated": 1,
		"shorten.rejected": 4})
}

func TestDeleteAndRestore(t *testing.T) {
	r := newRig(t)
	someLinks(t, r)
	wantProblem(t, r.as("ann", "POST", "/api/links/anns/restore", ""), 409, "link-not-deleted", "")
	for range 2 {
		if w := r.as("ann", "DELETE", "/api/links/anns", ""); w.Code != 204 || w.Body.Len() != 0 {
			t.Errorf("got %d %s", w.Code, w.Body)
		}
	}
	if n := r.metrics.LinkEdited.Value(); n != 1 {
		t.Errorf("%d edits, of a delete and a repeated one", n)
	}
	wantProblem(t, r.get("/anns"), 410, "link-deleted", "")
	wantProblem(t, r.as("ann", "PATCH", "/api/links/anns", `{"title":"x"}`), 409, "link-deleted",
		"")
	if got := members(t, r.as("ann", "GET", "/api/links/anns", ""))["deletedAtUtc"]; got != `"`+
		r.clock.Now().Format(time.RFC3339)+`"` {
		t.Errorf("deleted at %s", got)
	}
	r.clock.Advance(time.Hour) // past the end of the link
	w := r.as("ann", "POST", "/api/links/anns/restore", "")
	if w.Code != 200 || members(t, w)["deletedAtUtc"] != "null" || w.Header().Get("ETag") == "" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	wantProblem(t, r.get("/anns"), 410, "link-expired", "")
	r.as("bob", "DELETE", "/api/links/bobs", "")
	r.clock.Advance(teststore.DeletedKeep)
	wantProblem(t, r.as("bob", "POST", "/api/links/bobs/restore", ""), 409, "link-not-deleted", "")
}

func TestIfMatch(t *testing.T) {
	for name, test := range map[string]struct {
		header []string // TAG stands for the link's own, OPAQUE for what it has between its quotes
		status int
	}{
		"its tag":                 {[]string{"TAG"}, 200},
		"any":                     {[]string{"*"}, 200},
		"in a list":               {[]string{`"x", "a,b" ,TAG`}, 200},
		"in a second line":        {[]string{`"x"`, "TAG"}, 200},
		"another":                 {[]string{`"x"`}, 412},
		"weak":                    {[]string{"W/TAG"}, 200},
		"weak, and another":       {[]string{`W/TAG,"x"`}, 200},
		"weak, another":           {[]string{`W/"x"`}, 412},
		"compressed by Apache":    {[]string{`"OPAQUE-gzip"`}, 200},
		"compressed by Jetty":     {[]string{`"OPAQUE--gzip"`}, 200},
		"compressed, with a ;":    {[]string{`"OPAQUE;gzip"`}, 200},
		"compressed, and weak":    {[]string{`W/"OPAQUE-br"`}, 200},
		"compressed, and another": {[]string{`"x", "OPAQUE-zstd"`}, 200},
		"compressed twice":        {[]string{`"OPAQUE-br-gzip"`}, 200},
		"deflated":                {[]string{`"OPAQUE-deflate"`}, 200},
		"in capitals":             {[]string{`"OPAQUE-GZIP"`}, 200},
		"another, compressed":     {[]string{`"0123456789abcdef-gzip"`}, 412},
		"no coding behind it":     {[]string{`"OPAQUE-1"`}, 412},
		"more behind the coding":  {[]string{`"OPAQUE-gzip1"`}, 412},
		"nothing before a coding": {[]string{`"-gzip"`}, 412},
		"a coding without a sign": {[]string{`"OPAQUEgzip"`}, 412},
		"just a sign":             {[]string{`"OPAQUE-"`}, 412},
		"in front of it":          {[]string{`"gzip-OPAQUE"`}, 412},
		"null, of a page":         {[]string{"null"}, 400},
		"its tag without quotes":  {[]string{"0123456789abcdef"}, 400},
		"half a tag":              {[]string{`"x`}, 400},
		"any, and one":            {[]string{`*, "x"`}, 400},
		"nothing":                 {[]string{""}, 400},
		"commas":                  {[]string{", ,"}, 400},
		"no comma between":        {[]string{`"x" "y"`}, 400},
		"a space in a tag":        {[]string{`"x y"`}, 400},
		"something after the tag": {[]string{`"x"y`}, 400},
		"a small w":               {[]string{`w/"x"`}, 400},
	} {
		for _, method := range []string{"PATCH", "DELETE", "POST"} {
			r := newRig(t)
			someLinks(t, r)
			target, want := "/api/links/anns", test.status
			if method == "POST" {
				r.as("ann", "DELETE", target, "")
			}
			tag := r.as("ann", "GET", target, "").Header().Get("ETag")
			switch {
			case method == "POST":
				target += "/restore"
			case method == "DELETE" && want == 200:
				want = 204
			}
			req := httptest.NewRequest(method, target, strings.NewReader(`{"title":"new"}`))
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("X-Api-Key", r.keys.of["ann"])
			for _, line := range test.header {
				req.Header.Add("If-Match", strings.NewReplacer("TAG", tag, "OPAQUE",
					strings.Trim(tag, `"`)).Replace(line))
			}
			w := r.send(req)
			if w.Code != want {
				t.Errorf("%s, %s: got %d %s, want %d", name, method, w.Code, w.Body, want)
			}
			switch want {
			case 412:
				wantProblem(t, w, 412, "precondition", "")
			case 400:
				wantProblem(t, w, 400, "if-match", "")
			}
		}
	}
	r := newRig(t)
	someLinks(t, r)
	wantProblem(t, r.as("ann", "PATCH", "/api/links/unknown", `{}`, "If-Match", "*"), 404,
		"not-found", "")
	wantProblem(t, r.as("bob", "PATCH", "/api/links/anns", `{}`, "If-Match", `"x"`), 404,
		"not-found", "")
	r.as("ann", "DELETE", "/api/links/anns", "")
	wantProblem(t, r.as("ann", "DELETE", "/api/links/anns", "", "If-Match", `"x"`), 412,
		"precondition", "")
	wantProblem(t, r.as("ann", "PATCH", "/api/links/anns", `{}`, "If-Match", "*"), 409,
		"link-deleted", "")
}

func TestIfNoneMatch(t *testing.T) {
	r := newRig(t)
	someLinks(t, r)
	tag := r.as("ann", "GET", "/api/links/anns", "").Header().Get("ETag")
	opaque := strings.Trim(tag, `"`)
	for header, status := range map[string]int{tag: 304, "W/" + tag: 304, "*": 304, `"x", ` +
		tag: 304, `"x"`: 200, "unreadable": 200, `W/"` + opaque + `-gzip"`: 304,
		`"` + opaque + `;br"`: 304, `"` + opaque + `-x"`: 200} {
		w := r.as("ann", "GET", "/api/links/anns", "", "If-None-Match", header)
		if w.Code != status || w.Header().Get("ETag") != tag ||
			(w.Body.Len() == 0) != (status == 304) {
			t.Errorf("%s: got %d %v %s", header, w.Code, w.Header(), w.Body)
		}
	}
	wantProblem(t, r.as("bob", "GET", "/api/links/anns", "", "If-None-Match", "*"), 404,
		"not-found", "")
}

// crossed is a store in which other edits of a link come during an edit, as many as others says.
type crossed struct {
	*teststore.Store
	others int
}

func (c *crossed) Edit(ctx context.Context, a link.Name, once bool,
	change func(link.Link) (link.Link, error)) (link.Link, error) {
	return c.Store.Edit(ctx, a, once, func(l link.Link) (link.Link, error) {
		if c.others > 0 {
			c.others--
			if _, err := c.Store.Edit(ctx, a, true, func(l link.Link) (link.Link, error) {
				l.Tags = append(l.Tags, "other")
				return l, nil
			}); err != nil {
				return l, err
			}
		}
		return change(l)
	})
}

func TestEditsThatCross(t *testing.T) {
	for _, test := range []struct {
		others int
		match  string // TAG stands for the link's own
		status int
		kind   string
	}{
		{0, "TAG", 200, ""},
		{19, "", 200, ""},
		{20, "", 409, "conflict"},
		{1, "TAG", 412, "precondition"},
		{1, "*", 412, "precondition"}, // an edit with If-Match is never repeated
	} {
		store := &crossed{}
		r := newRig(t, func(c *functions.Config) {
			store.Store = c.Links.(*teststore.Store)
			c.Links = store
		})
		someLinks(t, r)
		var header []string
		if test.match != "" {
			tag := r.as("ann", "GET", "/api/links/anns", "").Header().Get("ETag")
			header = []string{"If-Match", strings.ReplaceAll(test.match, "TAG", tag)}
		}
		store.others = test.others
		w := r.as("ann", "PATCH", "/api/links/anns", `{"title":"mine"}`, header...)
		if test.status == 200 {
			if got := members(t, w); w.Code != 200 || got["title"] != `"mine"` ||
				strings.Count(got["tags"], "other") != test.others {
				t.Errorf("%+v: got %d %s", test, w.Code, w.Body)
			}
		} else {
			wantProblem(t, w, test.status, test.kind, "")
		}
		if n := r.metrics.LinkEdited.Value(); (n == 1) != (test.status == 200) {
			t.Errorf("%+v: %d edits", test, n)
		}
	}
}

func TestLinksWhileStorageFails(t *testing.T) {
	for request, who := range apiRoutes {
		if who == "public" || who == "admins" || strings.HasSuffix(request, "/openapi.json") ||
			strings.HasSuffix(request, "/me") || strings.HasSuffix(request, "/domains") ||
			strings.Contains(request, "/keys") ||
			strings.Contains(request, "/api/stats") ||
			// these have a result for each link
			strings.HasSuffix(request, "/bulk") || strings.HasSuffix(request, "/import") ||
			strings.HasSuffix(request, "/mcp") { // and this has a result for each message
			continue
		}
		method, target, _ := strings.Cut(request, " ")
		body := `{"longUrl":"https://example.com/"}`
		if strings.HasSuffix(target, "claims") {
			body = `{"claims":[{"alias":"abcdef","claimToken":"x"}]}`
		}
		for err, want := range map[error]struct {
			status int
			kind   string
		}{
			link.ErrUnavailable: {503, "storage-unavailable"},
			link.ErrDamaged:     {410, "link-damaged"},
		} {
			r := newRig(t)
			r.fake.Fail(fmt.Errorf("with a secret: %w", err))
			w := r.as("ann", method, target, body)
			if err == link.ErrDamaged && strings.Contains(target, "/abcdef") &&
				!strings.Contains(target, "/aliases/") {
				// To owners it is as if there were none.
				wantProblem(t, w, 404, "not-found", "")
				if !strings.Contains(r.log.String(), "with a secret") {
					t.Errorf("%s: logged %s", request, r.log)
				}
				w = r.as("admin", method, target, body)
			}
			wantProblem(t, w, want.status, want.kind, "")
			if strings.Contains(w.Body.String(), "secret") ||
				!strings.Contains(r.log.String(), "with a secret") {
				t.Errorf("%s: got %s, logged %s", request, w.Body, r.log)
			}
		}
	}
}
