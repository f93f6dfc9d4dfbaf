package functions_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/link"
)

// withGroups makes ann and cleo members of crew, and the admin one of ops.
func withGroups(c *functions.Config) {
	c.Callers = memberships{c.Callers, map[string][]string{
		"ann": {"crew"}, "cleo": {"crew"}, "admin": {"ops"}}}
}

// teams returns a rig with groups, the links of someLinks, and "crews", which is crew's.
func teams(t testing.TB) (r *rig, token string) {
	t.Helper()
	r = newRig(t, withGroups)
	token = someLinks(t, r)
	r.fake.Put(link.Link{Name: "crews", LongURL: "https://example.com/crew", Owner: "crew",
		CreatedAt: r.clock.Now()})
	return r, token
}

func (r *rig) ownerOf(alias link.Name) string {
	r.t.Helper()
	l, err := r.fake.Read(r.t.Context(), alias)
	if err != nil {
		return err.Error()
	}
	return l.Owner
}

// namesOwners has the requests that name an owner, as OWNER, and how to tell from the response or
// the store whose links they were about. TOKEN is the claim token of "nobodys".
var namesOwners = map[string]struct {
	body string
	of   func(r *rig, w *httptest.ResponseRecorder) string
}{
	"POST /api/shorten":              {`{` + newLink + `}`, ofNew},
	"POST /api/links/bulk":           {`{"links":[{` + newLink + `}]}`, ofNew},
	"POST /api/import?owner=OWNER":   {`{"alias":"new","longUrl":"https://example.com/new"}`, ofNew},
	"GET /api/links?owner=OWNER":     {"", ofListed},
	"GET /api/export?owner=OWNER":    {"", ofListed},
	"GET /api/stats/top?owner=OWNER": {"", ofListed},
	"GET /api/stats/links?owner=OWNER": {"", func(r *rig, w *httptest.ResponseRecorder) string {
		return strings.Trim(members(r.t, w)["owner"], `"`)
	}},
	"POST /api/claims": {`{"claims":[{"alias":"nobodys","claimToken":"TOKEN"}],"owner":"OWNER"}`,
		func(r *rig, _ *httptest.ResponseRecorder) string { return r.ownerOf("nobodys") }},
}

const newLink = `"longUrl":"https://example.com/new","alias":"new","owner":"OWNER"`

func ofNew(r *rig, _ *httptest.ResponseRecorder) string { return r.ownerOf("new") }

// ofListed returns whose links a response has.
func ofListed(r *rig, w *httptest.ResponseRecorder) string {
	owners := map[string]bool{}
	for _, alias := range []link.Name{"anns", "bobs", "crews", "nobodys", "ops"} {
		if strings.Contains(w.Body.String(), fmt.Sprintf(`"alias":%q`, alias)) {
			owners[r.ownerOf(alias)] = true
		}
	}
	if len(owners) != 1 {
		return fmt.Sprint(len(owners), " owners")
	}
	for owner := range owners {
		return owner
	}
	return ""
}

func TestWhoMayNameAnOwner(t *testing.T) {
	for request, test := range namesOwners {
		method, target, _ := strings.Cut(request, " ")
		for _, try := range []struct {
			who, owner  string
			status      int
			kind, field string
		}{
			{"ann", "ann", 200, "", ""},
			{"ann", "crew", 200, "", ""},
			{"crew", "crew", 200, "", ""}, // by a key of the group
			{"ann", "bob", 403, "forbidden", "owner"},
			{"ann", "ops", 403, "forbidden", "owner"},
			{"crew", "ann", 403, "forbidden", "owner"},
			{"admin", "bob", 200, "", ""},
			{"admin", "ops", 200, "", ""},
			{"admin", `a\u000ab`, 400, "body", "owner"},
			{"admin", strings.Repeat("x", 401), 400, "body", "owner"},
			{"", "ann", 401, "credentials-missing", ""},
			{"token", "ann", 403, "owner-needed", ""},
		} {
			r, token := teams(t)
			r.fake.Put(link.Link{Name: "ops", LongURL: "https://example.com/ops", Owner: "ops"})
			r.fake.Put(link.Link{Name: "admins", LongURL: "https://example.com/", Owner: "admin"})
			for _, alias := range []link.Name{"bobs", "crews", "anns", "ops", "nobodys"} {
				l, err := r.fake.Read(t.Context(), alias)
				if err != nil {
					t.Fatal(err)
				}
				r.clicks.Click(l, clicker(r.clock.Now(), "192.0.2.1", "a.example"))
			}
			who := strings.Replace(try.who, "token", token, 1)
			values := strings.NewReplacer("TOKEN", token, "OWNER", try.owner)
			unescaped := strings.ReplaceAll(try.owner, `\u000a`, "\n")
			target := strings.ReplaceAll(target, "OWNER", url.QueryEscape(unescaped))
			if strings.Contains(target, "top?") {
				target += "&window=30d"
			}
			w := r.as(who, method, target, values.Replace(test.body))
			if strings.HasSuffix(target, "/bulk") && w.Code == 200 {
				w = onlyResult(t, w)
			}
			if try.status == 200 {
				if got := test.of(r, w); w.Code >= 300 || got != try.owner {
					t.Errorf("%s by %s about %s: got %d %s, links of %s", request, try.who, try.owner,
						w.Code, w.Body, got)
				}
				continue
			}
			if try.kind == "body" && strings.Contains(target, "?") {
				try.kind = "parameter"
			}
			wantProblem(t, w, try.status, try.kind, try.field)
			if got := ofNew(r, w); got != link.ErrNotFound.Error() || r.ownerOf("nobodys") != "" {
				t.Errorf("%s by %s about %s did something", request, try.who, try.owner)
			}
		}
	}
}

// onlyResult returns the one result of a bulk call as a response of its own.
func onlyResult(t *testing.T, w *httptest.ResponseRecorder) *httptest.ResponseRecorder {
	t.Helper()
	var got bulkResponse
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Results) != 1 {
		t.Fatalf("%v in %s", err, w.Body)
	}
	one := httptest.NewRecorder()
	one.Header().Set("Content-Type", "application/problem+json")
	one.Header().Set("Cache-Control", w.Header().Get("Cache-Control"))
	one.WriteHeader(got.Results[0].Status)
	_, _ = one.Write(append(got.Results[0].Link, got.Results[0].Problem...))
	return one
}

// Without an owner, or with null, a request is about the caller's own links; an admin's is about
// all top links, and an admin's import keeps the owners in the file.
func TestNoOwnerIsNamed(t *testing.T) {
	r, token := teams(t)
	for _, who := range []string{"ann", "admin", "crew"} {
		body := `{"longUrl":"https://example.com/` + who + `","alias":"by-` + who + `","owner":null}`
		if w := r.as(who, "POST", "/api/shorten", body); w.Code != 201 ||
			r.ownerOf(link.Name("by-"+who)) != who {
			t.Errorf("%s: got %d %s", who, w.Code, w.Body)
		}
	}
	if w := r.shorten(`{"longUrl":"https://example.com/","owner":null}`); w.Code != 201 ||
		members(t, w)["claimToken"] == "" {
		t.Errorf("without credentials: got %d %s", w.Code, w.Body)
	}
	r.as("cleo", "POST", "/api/claims",
		`{"claims":[{"alias":"nobodys","claimToken":"`+token+`"}],"owner":null}`)
	if got := r.ownerOf("nobodys"); got != "cleo" {
		t.Errorf("claimed for %s", got)
	}
	file := line("a", "https://example.com/a", `,"owner":"bob","disabled":true,"locked":true`)
	for _, test := range []struct {
		who, query, file, owner string
		locked                  bool
	}{
		{"admin", "?", file, "bob", true},
		{"admin", "?owner=crew", file, "crew", true},
		{"admin", "?owner=crew&format=csv", "alias,longUrl\na,https://example.com/\n", "crew", false},
		{"admin", "?format=csv&owner=", "alias,longUrl,owner\na,https://example.com/,\n", "", false},
		{"ann", "?", file, "ann", false},
		{"ann", "?owner=crew", file, "crew", false},
	} {
		r, _ := teams(t)
		results := r.imports(test.who, test.query, test.file)
		l, err := r.fake.Read(t.Context(), "a")
		if err != nil || l.Owner != test.owner || l.Locked != test.locked {
			t.Errorf("%s, %s: %q, %+v, %v", test.who, test.query, results, l, err)
		}
	}
}

// Members do with a group's links what owners do with theirs.
func TestMembers(t *testing.T) {
	for _, test := range []struct {
		who    string
		status int // of all requests, but for successes
	}{{"ann", 0}, {"cleo", 0}, {"crew", 0}, {"admin", 0}, {"bob", 404}} {
		r, _ := teams(t)
		for _, request := range []string{"GET ", "GET /stats", "GET /history", "PATCH ", "DELETE ",
			"POST /restore"} {
			method, rest, _ := strings.Cut(request, " ")
			w := r.as(test.who, method, "/api/links/crews"+rest, `{"title":"x"}`)
			if test.status != 0 {
				wantProblem(t, w, test.status, "not-found", "")
			} else if w.Code >= 300 {
				t.Errorf("%s by %s: got %d %s", request, test.who, w.Code, w.Body)
			}
		}
		w := r.as(test.who, "GET", "/api/stats/clicks?alias=crews", "")
		if found := strings.Contains(w.Body.String(), `"crews"`); found != (test.status == 0) {
			t.Errorf("clicks for %s: %s", test.who, w.Body)
		}
	}
	// Dry runs and claims that name links of one's groups ask nothing about others.
	r := newRig(t, withGroups, func(c *functions.Config) {
		c.Rates = access.Rates{access.LimitProbes: 1}
	})
	r.fake.Put(link.Link{Name: "crews", LongURL: "https://example.com/", Owner: "crew"})
	for range 3 {
		r.wantResults("a dry run", r.imports("ann", "?dryRun=true",
			line("crews", "https://example.com/", "")), "1 200 crews")
		if w := r.as("ann", "POST", "/api/claims",
			`{"claims":[{"alias":"crews","claimToken":"x"}]}`); !strings.Contains(w.Body.String(),
			"already yours") {
			t.Errorf("a claim: %s", w.Body)
		}
	}
}

func TestTransfer(t *testing.T) {
	long := strings.Repeat("ü", 400)
	for name, test := range map[string]struct {
		who, alias, owner string // owner is JSON
		status            int
		kind, field       string
	}{
		"to a group":             {"ann", "anns", `"crew"`, 200, "", ""},
		"from a group":           {"ann", "crews", `"ann"`, 200, "", ""},
		"by another member":      {"cleo", "crews", `"cleo"`, 200, "", ""},
		"to another's group":     {"ann", "anns", `"ops"`, 403, "forbidden", "owner"},
		"to another member":      {"ann", "crews", `"cleo"`, 403, "forbidden", "owner"},
		"to somebody else":       {"ann", "anns", `"bob"`, 403, "forbidden", "owner"},
		"to nobody, by \"\"":     {"ann", "anns", `""`, 403, "forbidden", "owner"},
		"to nobody":              {"ann", "anns", `null`, 400, "body", "owner"},
		"to a number":            {"ann", "anns", `7`, 400, "body", "owner"},
		"by a group's key":       {"crew", "crews", `"ann"`, 403, "forbidden", "owner"},
		"to a group by its key":  {"crew", "anns", `"crew"`, 404, "not-found", ""},
		"to oneself":             {"bob", "crews", `"bob"`, 404, "not-found", ""},
		"by its claim token":     {"token", "nobodys", `"ann"`, 403, "owner-needed", ""},
		"without credentials":    {"", "anns", `"ann"`, 401, "credentials-missing", ""},
		"of an unknown link":     {"ann", "unknown", `"crew"`, 404, "not-found", ""},
		"by an admin":            {"admin", "anns", `"bob"`, 200, "", ""},
		"by an admin to a group": {"admin", "bobs", `"ops"`, 200, "", ""},
		"of an anonymous one":    {"admin", "nobodys", `"bob"`, 200, "", ""},
		"of nobody's to nobody":  {"admin", "nobodys", `null`, 400, "body", "owner"},
		"to a long owner":        {"admin", "anns", `"` + long + `"`, 200, "", ""},
		"to a longer owner":      {"admin", "anns", `"` + long + `x"`, 400, "body", "owner"},
		"to a line break":        {"admin", "anns", `"a\nb"`, 400, "body", "owner"},
		"of a deleted link":      {"bob", "deleted", `"bob"`, 409, "link-deleted", ""},
		"of an expired link":     {"ann", "expired", `"crew"`, 200, "", ""},
		"of a disabled link":     {"ann", "off", `"crew"`, 200, "", ""},
	} {
		r, token := teams(t)
		now := r.clock.Now()
		for _, l := range []link.Link{{Name: "deleted", Owner: "bob", DeletedAt: now},
			{Name: "expired", Owner: "ann", ExpiresAt: now.Add(-time.Second)},
			{Name: "off", Owner: "ann", Disabled: true}} {
			l.LongURL = "https://example.com/" + string(l.Name)
			r.fake.Put(l)
		}
		if before, err := r.fake.Read(t.Context(), link.Name(test.alias)); err == nil {
			before.Shared = test.who != "bob" // which keeps nobody from giving it away
			r.fake.Put(before)
		}
		target := "/api/links/" + test.alias
		before := r.as("admin", "GET", target, "")
		who := strings.Replace(test.who, "token", token, 1)
		w := r.as(who, "PATCH", target, `{"owner":`+test.owner+`}`)
		after := r.as("admin", "GET", target, "")
		if test.status != 200 {
			wantProblem(t, w, test.status, test.kind, test.field)
			if after.Body.String() != before.Body.String() {
				t.Errorf("%s: it was %s, and is %s", name, before.Body, after.Body)
			}
			continue
		}
		want := members(t, before)
		want["owner"], want["updatedAtUtc"] = test.owner, `"`+now.Format(time.RFC3339)+`"`
		if got := members(t, w); w.Code != 200 || fmt.Sprint(got) != fmt.Sprint(want) ||
			after.Body.String() != w.Body.String() ||
			after.Header().Get("ETag") == before.Header().Get("ETag") {
			t.Errorf("%s: got %d %s, then %s, want %v", name, w.Code, w.Body, after.Body, want)
		}
		wantProblem(t, r.as(token, "GET", target, ""), 403, "forbidden", "")
		if now, _ := r.list("admin", url.Values{"q": {"tiney.to/" + test.alias},
			"owner": {strings.Trim(test.owner, `"`)}}); len(now) != 1 {
			t.Errorf("%s: its new owner lists %q", name, now)
		}
	}
}

// A transfer takes the URL along: it is the new owner's link that shorten finds.
func TestTransferAndShorten(t *testing.T) {
	r, _ := teams(t)
	tag := r.as("ann", "GET", "/api/links/anns", "").Header().Get("ETag")
	wantProblem(t, r.as("ann", "PATCH", "/api/links/anns", `{"owner":"crew"}`, "If-Match", `"x"`),
		412, "precondition", "")
	if w := r.as("ann", "PATCH", "/api/links/anns", `{"owner":"ann"}`); w.Code != 200 ||
		w.Header().Get("ETag") != tag {
		t.Errorf("to its owner: got %d %s", w.Code, w.Header())
	}
	w := r.as("ann", "PATCH", "/api/links/anns", `{"owner":"crew","title":null}`, "If-Match", tag)
	if got := members(t, w); w.Code != 200 || got["owner"] != `"crew"` || got["title"] != "null" {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	const body = `{"longUrl":"https://example.com/ann"`
	if w := r.as("cleo", "POST", "/api/shorten", body+`,"owner":"crew"}`); w.Code != 200 ||
		members(t, w)["alias"] != `"anns"` {
		t.Errorf("for the new owner: got %d %s", w.Code, w.Body)
	}
	wantStatus(t, r.as("ann", "POST", "/api/shorten", body+`}`), 201, "for the former owner")
}

func TestHistory(t *testing.T) {
	r, token := teams(t)
	at := func() string { return r.clock.Now().Format(time.RFC3339) }
	var deletedAt string
	ends := r.clock.Now().Add(time.Hour).Format(time.RFC3339) // of nobodys
	want := map[string][]string{}                             // by alias, the newest last
	for _, do := range []struct{ who, method, target, body, want string }{
		{"cleo", "PATCH", "crews", `{"title":"One","tags":["a"],"longUrl":"https://example.com/2"}`,
			`"by":"cleo","what":"edited","before":{"longUrl":"https://example.com/crew",` +
				`"tags":[],"title":null}`},
		{"cleo", "PATCH", "crews", `{"title":"One"}`, ""}, // changes nothing
		{"bob", "PATCH", "crews", `{"title":"Two"}`, ""},  // is refused
		{"crew", "PATCH", "crews", `{"forward":["query"],"statusCode":301,"disabled":true,` +
			`"expiresInSeconds":3600}`, `"by":"crew","what":"edited","before":{"disabled":false,` +
			`"expiresAtUtc":null,"forward":[],"statusCode":302}`},
		{"ann", "DELETE", "crews", "",
			`"by":"ann","what":"deleted","before":{"deletedAtUtc":null}`},
		{"ann", "DELETE", "crews", "", ""},
		{"cleo", "POST", "crews/restore", "",
			`"by":"cleo","what":"restored","before":{"deletedAtUtc":"AT"}`},
		{"admin", "PATCH", "crews", `{"disabled":false}`,
			`"by":"admin","what":"edited","before":{"disabled":true}`},
		{"admin", "PATCH", "crews", `{"owner":"bob","title":null}`,
			`"by":"admin","what":"transferred","before":{"owner":"crew","title":"One"}`},
		{token, "DELETE", "nobodys", "",
			`"by":null,"what":"deleted","before":{"deletedAtUtc":null}`},
		{token, "POST", "nobodys/restore", "",
			`"by":null,"what":"restored","before":{"deletedAtUtc":"AT"}`},
	} {
		alias, _, _ := strings.Cut(do.target, "/")
		r.clock.Advance(time.Minute)
		r.as(do.who, do.method, "/api/links/"+do.target, do.body)
		if do.want != "" {
			if do.method == "DELETE" {
				deletedAt = at()
			}
			want[alias] = append(want[alias], `{"at":"`+at()+`",`+
				strings.ReplaceAll(do.want, "AT", deletedAt)+`}`)
		}
	}
	r.as("cleo", "POST", "/api/claims",
		`{"claims":[{"alias":"nobodys","claimToken":"`+token+`"}],"owner":"crew"}`)
	want["nobodys"] = append(want["nobodys"], `{"at":"`+at()+`","by":"cleo","what":"claimed",`+
		`"before":{"expiresAtUtc":"`+ends+`","owner":null}}`)
	for _, test := range []struct{ who, alias string }{{"bob", "crews"}, {"admin", "crews"},
		{"ann", "nobodys"}, {"ann", "anns"}} {
		var items []string
		for _, item := range want[test.alias] {
			items = append([]string{item}, items...)
		}
		wantJSON(t, r.as(test.who, "GET", "/api/links/"+test.alias+"/history", ""),
			`{"items":[`+strings.Join(items, ",")+`]}`, test.alias)
	}
	r.fake.Put(link.Link{Name: "tombstone", GoneReason: link.StateExpired, GoneAt: r.clock.Now()})
	for _, alias := range []string{"unknown", "tombstone", "a.b"} {
		wantProblem(t, r.as("ann", "GET", "/api/links/"+alias+"/history", ""), 404, "not-found", "")
	}
	wantProblem(t, r.as("cleo", "GET", "/api/links/crews/history", ""), 404, "not-found", "")
}

// What an admin took down stays down, whatever its owner and others try. Then an admin ends that.
func TestTakedown(t *testing.T) {
	const (
		down    = "/api/links/down"
		off, on = `{"disabled":true}`, `{"disabled":false}`
		u       = "https://example.com/down"
	)
	type step struct{ who, method, target, body string }
	disable, enable := step{"admin", "PATCH", down, off}, step{"admin", "PATCH", down, on}
	remove, restore := step{"admin", "DELETE", down, ""}, step{"admin", "POST", down + "/restore", ""}
	for name, test := range map[string]struct {
		owner   string // of the link; "": nobody, and its claim token acts
		down    []step
		deleted bool
		up      []step // the last one ends it
	}{
		"disabled":            {"ann", []step{disable}, false, []step{enable}},
		"disabled, a group's": {"crew", []step{disable}, false, []step{enable}},
		"disabled, nobody's":  {"", []step{disable}, false, []step{enable}},
		"deleted":             {"ann", []step{remove}, true, []step{restore}},
		"deleted, a group's":  {"crew", []step{remove}, true, []step{restore}},
		"deleted, nobody's":   {"", []step{remove}, true, []step{restore}},
		"deleted after its owner": {"ann", []step{{"ann", "DELETE", down, ""}, remove}, true,
			[]step{restore}},
		"disabled after its owner": {"ann", []step{{"ann", "PATCH", down, off}, disable}, false,
			[]step{enable}},
		"both": {"ann", []step{disable, remove}, true, []step{restore, enable}},
		"by a transfer too": {"bob", []step{disable, {"admin", "PATCH", down, `{"owner":"ann"}`}},
			false, []step{enable}},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := teams(t)
			token, hash := claimToken(t)
			now := r.clock.Now()
			owner, who := test.owner, test.owner
			switch test.owner {
			case "":
				who = token
			case "bob":
				owner, who = "ann", "ann"
			}
			for _, l := range []link.Link{
				{Name: "elsewhere", LongURL: "https://example.com/elsewhere", Owner: owner},
				{Name: "free", LongURL: u, ClaimHash: hash},
				{Name: "down", LongURL: u, Owner: test.owner},
			} {
				l.CreatedAt, l.ExpiresAt = now, now.Add(time.Hour)
				if l.Owner == "" {
					l.ClaimHash = hash
				}
				r.fake.Put(l)
			}
			for _, s := range test.down {
				if w := r.as(s.who, s.method, s.target, s.body); w.Code >= 300 {
					t.Fatalf("%+v: got %d %s", s, w.Code, w.Body)
				}
			}
			if got := members(t, r.as("admin", "GET", down, "")); got["locked"] != "true" {
				t.Errorf("it is %v", got)
			}
			before := r.as("admin", "GET", down, "").Body.String()
			r.wantTakenDown(owner, who, token, u, test.deleted)
			if after := r.as("admin", "GET", down, "").Body.String(); after != before {
				t.Errorf("it was %s, and is %s", before, after)
			}
			// Others get links of their own of that URL, but cannot change this one.
			for _, stranger := range []string{"bob", "cleo"} {
				if stranger == "cleo" && owner == "crew" {
					continue
				}
				wantProblem(t, r.as(stranger, "PATCH", down, on), 404, "not-found", "")
				wantProblem(t, r.as(stranger, "DELETE", down, ""), 404, "not-found", "")
				if w := r.as(stranger, "POST", "/api/shorten", `{"longUrl":"`+u+`"}`); w.Code > 201 {
					t.Errorf("%s: got %d %s", stranger, w.Code, w.Body)
				}
			}
			for i, s := range test.up {
				w := r.as(s.who, s.method, s.target, s.body)
				if ended := i == len(test.up)-1; w.Code != 200 ||
					members(t, w)["locked"] != fmt.Sprint(!ended) {
					t.Errorf("%+v: got %d %s", s, w.Code, w.Body)
				}
			}
			wantStatus(t, r.get("/down"), 302, "it does not lead there again")
			wantStatus(t, r.as(who, "DELETE", down, ""), 204, "it is not its owner's again")
			wantStatus(t, r.as(who, "POST", down+"/restore", ""), 200,
				"it is not its owner's again")
		})
	}
}

// wantTakenDown checks that who cannot change the link "down" of the owner, which was taken down,
// in any way. Its URL is not barred: shorten goes by the index.
func (r *rig) wantTakenDown(owner, who, token, url string, deleted bool) {
	t := r.t.(*testing.T)
	t.Helper()
	const down = "/api/links/down"
	named := `{"longUrl":"` + url + `"`
	if owner == "crew" {
		named += `,"owner":"crew"`
	}
	if owner != "" {
		for _, body := range []string{`{"title":"x"}`, `{"disabled":false}`, `{"disabled":true}`,
			`{"expiresAtUtc":null}`, `{"longUrl":"https://example.com/else"}`,
			`{"owner":"` + owner + `"}`, `{}`} {
			wantProblem(t, r.as(who, "PATCH", down, body), 403, "link-locked", "")
		}
		if owner == "ann" {
			wantProblem(t, r.as(who, "PATCH", down, `{"owner":"crew"}`), 403, "link-locked", "")
		}
		for _, query := range []string{"?owner=" + owner + "&dryRun=true", "?owner=" + owner} {
			there := "2 200 down"
			if deleted {
				there = "2 403 down link-locked"
			}
			r.wantResults("import", r.imports(who, query, line("fresh", url, "")+
				line("down", url, `,"disabled":false`)), "1 201 fresh", there)
		}
		w := r.as(who, "POST", "/api/claims", `{"owner":"`+owner+`","claims":[`+
			`{"alias":"free","claimToken":"`+token+`"},{"alias":"down","claimToken":"`+token+`"}]}`)
		if got := w.Body.String(); !strings.Contains(got, `"free","domain":"tiney.to","result":"claimed"`) ||
			!strings.Contains(got, `"down","domain":"tiney.to","result":"already yours"`) {
			t.Errorf("claims: %d %s", w.Code, got)
		}
		for _, body := range []string{`{"longUrl":"` + url + `"}`,
			`{"longUrl":"https://example.com/elsewhere"}`} {
			wantStatus(t, r.as(who, "PATCH", "/api/links/elsewhere", body), 200,
				"an edit of another link")
		}
	} else if w := r.as("ann", "POST", "/api/claims",
		`{"claims":[{"alias":"down","claimToken":"`+token+`"}]}`); !strings.Contains(
		w.Body.String(), `"gone"`) {
		t.Errorf("a claim: %d %s", w.Code, w.Body)
	}
	wantProblem(t, r.as(who, "POST", down+"/restore", ""), 403, "link-locked", "")
	if w := r.as(who, "DELETE", down, ""); deleted && w.Code != 204 {
		t.Errorf("a repeated DELETE: %d %s", w.Code, w.Body)
	} else if !deleted {
		wantProblem(t, w, 403, "link-locked", "")
	}
	if w := r.as(who, "POST", "/api/shorten", named+`}`); deleted && w.Code > 201 {
		t.Errorf("another link of the URL: %d %s", w.Code, w.Body)
	} else if !deleted {
		wantProblem(t, w, 403, "target-disabled", "")
	}
	if owner != "" {
		wantStatus(t, r.as(who, "POST", "/api/shorten", named+`,"alias":"chosen"}`), 201,
			"a chosen alias")
	}
	wantStatus(t, r.get("/down"), 410, "it leads somewhere")
}

// What is an admin's own, or a group's of theirs, is not taken down by them.
func TestAdminsOwnLinksAreNotTakenDown(t *testing.T) {
	r, _ := teams(t)
	for _, owner := range []string{"admin", "ops"} {
		target := "/api/links/of-" + owner
		r.fake.Put(link.Link{Name: link.Name("of-" + owner), LongURL: "https://example.com/",
			Owner: owner})
		w := r.as("admin", "PATCH", target, `{"disabled":true}`)
		if w.Code != 200 || members(t, w)["locked"] != "false" {
			t.Errorf("%s: got %d %s", owner, w.Code, w.Body)
		}
		r.as("admin", "DELETE", target, "")
		wantStatus(t, r.as(owner, "POST", target+"/restore", ""), 200, owner)
		// A link that an admin disables and gives away is taken down.
		for given, locked := range map[string]string{"ops": "false", "ann": "true"} {
			w := r.as("admin", "PATCH", target, `{"owner":"`+given+`","disabled":true}`)
			if w.Code != 200 || members(t, w)["locked"] != locked {
				t.Errorf("%s, given to %s: got %d %s", owner, given, w.Code, w.Body)
			}
			r.as("admin", "PATCH", target, `{"owner":"`+owner+`","disabled":false}`)
		}
	}
}
