package functions_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/link"
)

// bulkResponse is the response of POST and PATCH /api/links/bulk.
type bulkResponse struct {
	Results []struct {
		Status        int
		ETag          string
		Link, Problem json.RawMessage
	}
}

// statuses returns the statuses of the results, with a blank behind each.
func (b bulkResponse) statuses() (all string) {
	for _, result := range b.Results {
		all += fmt.Sprint(result.Status, " ")
	}
	return all
}

// bulk sends links with the credentials of who, and returns the results.
func (r *rig) bulk(who string, links ...string) bulkResponse {
	r.t.Helper()
	return r.inBulk(who, "POST", links...)
}

// bulkEdit is bulk for edits.
func (r *rig) bulkEdit(who string, edits ...string) bulkResponse {
	r.t.Helper()
	return r.inBulk(who, "PATCH", edits...)
}

func (r *rig) inBulk(who, method string, links ...string) bulkResponse {
	r.t.Helper()
	w := r.as(who, method, "/api/links/bulk", `{"links":[`+strings.Join(links, ",")+`]}`)
	var got bulkResponse
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 ||
		len(got.Results) != len(links) || w.Header().Get("Cache-Control") != "no-store" {
		r.t.Fatalf("got %d %s, %v", w.Code, w.Body, err)
	}
	return got
}

var drawnAlias = regexp.MustCompile(`"alias":"\w+","domain":"tiney.to",` +
	`"shortUrl":"https://tiney.to/\w+"`)

// Each link gets the response that a request of its own would get after the links before it.
func TestBulkIsAsManyRequests(t *testing.T) {
	links := []string{
		`{"longUrl":"https://example.com/a"}`,
		`{"longUrl":"https://example.com/b","alias":"mine","statusCode":301,"title":"B",` +
			`"tags":["x"]}`,
		`{"longUrl":"https://example.com/a"}`,
		`{"longUrl":"https://example.com/c","alias":"mine"}`,
		`{"longUrl":"https://example.com/b","alias":"mine"}`,
		`{"longUrl":"ftp://example.com/"}`,
		`{"longUrl":"https://example.com/d","expiresInSeconds":59}`,
		`{"longUrl":"https://example.com/d","slug":"x"}`,
		`{"longUrl":7}`, `{}`, `null`, `"https://example.com/"`, `[{}]`,
		`{"longUrl":"https://example.com/disabled"}`,
		`{"longUrl":"https://example.com/ü?<&>","expiresInSeconds":60}`,
	}
	fresh := func() *rig {
		r := newRig(t)
		r.fake.Put(link.Link{Name: "off", LongURL: "https://example.com/disabled", Owner: "ann",
			Disabled: true})
		return r
	}
	one, many := fresh(), fresh()
	one.clock.Advance(many.clock.Now().Sub(one.clock.Now())) // to the same second
	got := many.bulk("ann", links...)
	statuses := ""
	for i, l := range links {
		want := one.as("ann", "POST", "/api/shorten", l)
		result := got.Results[i]
		statuses += fmt.Sprint(result.Status, " ")
		body := result.Link
		if want.Code >= 400 {
			body = result.Problem
		}
		wantBody := drawnAlias.ReplaceAllString(strings.TrimSpace(want.Body.String()), "")
		if result.Status != want.Code ||
			drawnAlias.ReplaceAllString(string(body), "") != wantBody ||
			(result.Link == nil) == (result.Problem == nil) {
			t.Errorf("%s: got %d %s %s, want %d %s", l, result.Status, result.Link, result.Problem,
				want.Code, wantBody)
		}
	}
	if statuses != "201 201 200 409 200 400 400 400 400 400 400 400 400 403 201 " {
		t.Errorf("got %s", statuses)
	}
	if one, many := one.metrics.NonZero(),
		many.metrics.NonZero(); fmt.Sprint(one) != fmt.Sprint(many) ||
		many["shorten.rejected"] != 10 {
		t.Errorf("metrics %v, want %v", many, one)
	}
	if l, err := many.fake.Read(t.Context(), "mine"); err != nil || l.Owner != "ann" ||
		l.StatusCode != 301 || l.Title != "B" || l.LongURL != "https://example.com/b" {
		t.Errorf("made %+v, %v", l, err)
	}
	if many.clicks.created != 3 {
		t.Errorf("%d links counted as made", many.clicks.created)
	}
}

func TestBulkBodies(t *testing.T) {
	const one = `{"longUrl":"https://example.com/"}`
	list := func(n int) string { return `{"links":[` + strings.Repeat(one+",", n-1) + one + `]}` }
	padded := func(size int) string { return list(1) + strings.Repeat(" ", size-len(list(1))) }
	for name, test := range map[string]struct {
		body   string
		status int
		kind   string
		field  string
	}{
		"one":       {list(1), 200, "", ""},
		"a hundred": {list(100), 200, "", ""},
		"1 MiB":     {padded(1 << 20), 200, "", ""},
		"more":      {list(101), 400, "body", "links"},
		"none":      {`{"links":[]}`, 400, "body", "links"},
		"null":      {`{"links":null}`, 400, "body", "links"},
		"no list":   {`{}`, 400, "body", "links"},
		"a link":    {one, 400, "body", "longUrl"},
		"an object": {`{"links":{}}`, 400, "body", "links"},
		"a list":    {`[` + one + `]`, 400, "body", ""},
		"a field twice": {`{"links":[` + one + `,{"longUrl":"a","longUrl":"b"}]}`, 400, "body",
			"links.1.longUrl"},
		"not JSON":       {`{"links":[` + one + `,}`, 400, "body", "links"},
		"a byte more":    {padded(1<<20 + 1), 413, "body-too-large", ""},
		"no JSON at all": {"", 400, "body", ""},
	} {
		r := newRig(t)
		w := r.as("ann", "POST", "/api/links/bulk", test.body)
		if test.kind == "" {
			if w.Code != test.status {
				t.Errorf("%s: got %d %s", name, w.Code, w.Body)
			}
			continue
		}
		t.Run(name, func(t *testing.T) { wantProblem(t, w, test.status, test.kind, test.field) })
		if r.fake.Calls() != 0 {
			t.Errorf("%s: something was made", name)
		}
	}
	r := newRig(t)
	wantProblem(t, r.as("ann", "POST", "/api/links/bulk", list(1), "Content-Type", "text/plain"),
		415, "media-type", "")
}

// The limits count one call as one request, however many links it has.
func TestBulkIsOneRequest(t *testing.T) {
	r := newRig(t, func(c *functions.Config) { c.Rates = access.Rates{1, 1, 2, 1} })
	for i := range 2 {
		r.bulk("ann", fmt.Sprintf(`{"longUrl":"https://example.com/%d"}`, i), `{"longUrl":"no"}`,
			`{}`)
	}
	wantLimited(t, r.as("ann", "POST", "/api/links/bulk", "not read"), "api", 2, 30)
}

// A link that storage does not make, or does not make in time, has a 503 of its own beside the
// results of the links that were made.
func TestBulkInAnOutage(t *testing.T) {
	var links []string
	for i := range 10 {
		links = append(links, fmt.Sprintf(`{"longUrl":"https://example.com/%d"}`, i))
	}
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRig(t, 3*time.Second) // for the look-up of the key, and for each link
		for _, status := range []string{"201 ", "200 "} {
			begun := time.Now()
			got := r.bulk("ann", links...).statuses()
			if took := time.Since(begun); got != strings.Repeat(status, 6)+
				strings.Repeat("503 ", 4) || took != 21*time.Second {
				t.Errorf("slow: got %s after %v", got, took)
			}
		}
	})
	r := newRig(t)
	r.fake.Fail(fmt.Errorf("a cause: %w", link.ErrUnavailable))
	got := r.bulk("ann", links[0], `{"longUrl":"no"}`)
	if got.statuses() != "503 400 " ||
		!strings.Contains(string(got.Results[0].Problem), "/problems/storage-unavailable") ||
		strings.Contains(string(got.Results[0].Problem), "cause") ||
		strings.Count(r.log.String(), "a cause") != 1 {
		t.Errorf("down: got %+v, and logged %s", got, r.log)
	}
}

// A link may have the alias "bulk", like the path of these calls. It is edited by its name with its
// domain.
func TestALinkCalledBulk(t *testing.T) {
	r := newRig(t)
	for _, a := range []link.Name{"bulk", "BULK"} {
		r.fake.Put(link.Link{Name: a, LongURL: "https://example.com/" + string(a), Owner: "ann"})
		path := "/api/links/" + string(a)
		if w := r.as("ann", "GET", path, ""); w.Code != 200 ||
			!strings.Contains(w.Body.String(), `"alias":"`+string(a)+`"`) {
			t.Errorf("%s: got %d %s", a, w.Code, w.Body)
		}
		wantProblem(t, r.as("ann", "PATCH", path, `{"title":"T"}`), 400, "body", "title")
		if w := r.as("ann", "PATCH", path+"@tiney.to", `{"title":"T"}`); w.Code != 200 ||
			!strings.Contains(w.Body.String(), `"alias":"`+string(a)+`"`) {
			t.Errorf("%s: got %d %s", a, w.Code, w.Body)
		}
		if got := r.bulkEdit("ann", `{"alias":"`+string(a)+`","title":"U"}`); got.statuses() !=
			"200 " || !strings.Contains(string(got.Results[0].Link), `"title":"U"`) {
			t.Errorf("%s: got %+v", a, got)
		}
		if w := r.as("ann", "POST", path+"/",
			`{"links":[{"longUrl":"https://example.com/new"}]}`); w.Code != 200 ||
			!strings.Contains(w.Body.String(), `"results":`) {
			t.Errorf("%s: got %d %s", a, w.Code, w.Body)
		}
		w := r.as("ann", "PUT", path, "")
		if got := w.Header().Get("Allow"); w.Code != 405 ||
			got != "DELETE, GET, HEAD, PATCH, POST, OPTIONS" {
			t.Errorf("%s: got %d, Allow %s", a, w.Code, got)
		}
	}
	if w := r.as("ann", "POST", "/api/links/other", ""); w.Code != 405 ||
		strings.Contains(w.Header().Get("Allow"), "POST") {
		t.Errorf("another link: got %d %v", w.Code, w.Header())
	}
}

// Each link gets the response that a request of its own would get after those before it. A delete
// responds with the link.
func TestBulkEditIsAsManyRequests(t *testing.T) {
	now := time.Now()
	fresh := func() *rig {
		r := newRig(t, withDomains, withGroups)
		someLinks(t, r)
		for _, l := range []link.Link{{Name: "crews", Owner: "crew"}, {Name: "one", Owner: "ann"},
			{Name: "menu@go.example", Owner: "ann"}, {Name: "shared", Owner: "ann", Shared: true},
			{Name: "locked", Owner: "ann", Disabled: true, Locked: true},
			{Name: "deleted", Owner: "ann", DeletedAt: now}} {
			l.LongURL, l.CreatedAt = "https://example.com/"+string(l.Alias()), now
			r.fake.Put(l)
		}
		return r
	}
	one, many := fresh(), fresh()
	one.clock.Advance(many.clock.Now().Sub(one.clock.Now())) // to the same second
	tests := []struct {
		name, method, edit string // "": it is refused without a request of its own
		status             int
	}{
		{"anns", "PATCH", `"longUrl":"https://example.com/2","title":"T","tags":["x"]`, 200},
		{"anns", "PATCH", `"title":null,"statusCode":301,"forward":["query"]`, 200}, // in order
		{"one", "PATCH", ``, 200}, // changes nothing
		{"crews", "PATCH", `"disabled":true`, 200},
		{"menu@go.example", "PATCH", `"expiresInSeconds":3600`, 200},
		{"menu@GO.example:443", "PATCH", `"owner":"crew"`, 200},
		{"bobs", "PATCH", `"title":"T"`, 404},
		{"nobody", "DELETE", ``, 404},
		{"one", "PATCH", `"longUrl":"ftp://example.com/"`, 400},
		{"one", "PATCH", `"longUrl":null`, 400},
		{"one", "PATCH", `"slug":"x"`, 400},
		{"one", "PATCH", `"title":7`, 400},
		{"one", "PATCH", `"domain":"go.example"`, 400},
		{"one", "PATCH", `"owner":"bob"`, 403},
		{"shared", "PATCH", `"disabled":true`, 409},
		{"locked", "PATCH", `"disabled":false`, 403},
		{"deleted", "PATCH", `"title":"T"`, 409},
		{"deleted", "POST", ``, 200},
		{"deleted", "PATCH", `"title":"T"`, 200},
		{"one", "POST", ``, 409},
		{"one", "DELETE", ``, 204},
		{"one", "DELETE", ``, 204}, // again
		{"shared", "DELETE", ``, 409},
	}
	var edits []string
	for _, test := range tests {
		edit := fmt.Sprintf(`{"alias":%q`, test.name)
		if test.edit != "" {
			edit += "," + test.edit
		}
		edit += map[string]string{"DELETE": `,"delete":true`, "POST": `,"restore":true`}[test.method]
		edits = append(edits, edit+"}")
	}
	got := many.bulkEdit("ann", edits...)
	for i, test := range tests {
		path, body := "/api/links/"+test.name, "{"+test.edit+"}"
		if test.method == "POST" {
			path += "/restore"
		}
		want := one.as("ann", test.method, path, body)
		wantBody := want.Body.String()
		if want.Code != test.status {
			t.Errorf("%s %s %s: got %d %s", test.method, path, body, want.Code, want.Body)
		}
		if want.Code == 204 {
			test.status = 200
			wantBody = many.as("ann", "GET", path, "").Body.String()
		}
		result := got.Results[i]
		if string(result.Link)+string(result.Problem) != strings.TrimSpace(wantBody) ||
			result.Status != test.status || (result.ETag == "") != (result.Status >= 400) {
			t.Errorf("%s: got %d %s %s %s, want %d %s", edits[i], result.Status, result.ETag,
				result.Link, result.Problem, test.status, wantBody)
		}
	}
	if one, many := one.metrics.NonZero(), many.metrics.NonZero(); fmt.Sprint(one) !=
		fmt.Sprint(many) || many["link.edited"] != 8 {
		t.Errorf("metrics %v, want %v", many, one)
	}
}

// What is wrong with one link has a field of that link, and leaves the others.
func TestBulkEditsThatAreRefused(t *testing.T) {
	for edit, want := range map[string]struct {
		status      int
		kind, field string
	}{
		`{}`:                           {400, "alias", "alias"},
		`{"alias":""}`:                 {400, "alias", "alias"},
		`{"alias":null,"title":"T"}`:   {400, "alias", "alias"},
		`{"alias":"a b"}`:              {400, "alias", "alias"},
		`{"alias":"api"}`:              {400, "alias", "alias"},
		`{"alias":"anns@"}`:            {400, "alias", "alias"},
		`{"alias":7}`:                  {400, "alias", "alias"},
		`{"alias":"anns","delete":1}`:  {400, "body", "delete"},
		`{"alias":"anns","restore":1}`: {400, "body", "restore"},
		`{"alias":"anns","delete":true,"restore":true}`:              {400, "body", "delete"},
		`{"alias":"anns","delete":true,"title":null}`:                {400, "body", "delete"},
		`{"alias":"anns","restore":true,"longUrl":"https://a.com/"}`: {400, "body", "restore"},
		`{"alias":"anns","ifMatch":"abc","title":"T"}`:               {400, "if-match", "ifMatch"},
		`{"alias":"anns","ifMatch":"","delete":true}`:                {400, "if-match", "ifMatch"},
		`{"alias":"anns","ifMatch":7}`:                               {400, "body", "ifMatch"},
		`{"alias":"anns","ifMatch":"\"abc\"","title":"T"}`:           {412, "precondition", ""},
		`{"alias":"anns","ifMatch":"\"abc\"","delete":true}`:         {412, "precondition", ""},
		`{"alias":"bobs","ifMatch":"*","title":"T"}`:                 {404, "not-found", ""},
		`null`:   {400, "body", ""},
		`"anns"`: {400, "body", ""},
		`[{}]`:   {400, "body", ""},
		`{"alias":"anns","title":"` + strings.Repeat("x", 16<<10) + `"}`: {413, "body-too-large", ""},
	} {
		r := newRig(t)
		someLinks(t, r)
		before, err := r.fake.Read(t.Context(), "anns")
		if err != nil {
			t.Fatal(err)
		}
		got := r.bulkEdit("ann", edit, `{"alias":"other"}`)
		var p struct{ Type, Field string }
		if err := json.Unmarshal(got.Results[0].Problem, &p); err != nil ||
			got.Results[0].Status != want.status || p.Type != "/problems/"+want.kind ||
			p.Field != want.field || got.Results[1].Status != 404 {
			t.Errorf("%.80s: got %d %s, %v", edit, got.Results[0].Status, got.Results[0].Problem, err)
		}
		if l, err := r.fake.Read(t.Context(), "anns"); err != nil || l.Version != before.Version {
			t.Errorf("%.80s: it is %+v, %v", edit, l, err)
		}
	}
}

// An edit with ifMatch is done to the link as it was read, or not at all. Results have the tags for
// that.
func TestBulkEditsOfLinksAsTheyWereRead(t *testing.T) {
	r := newRig(t)
	someLinks(t, r)
	matching := func(tag, edit string) string {
		return fmt.Sprintf(`{"alias":"anns","ifMatch":%q,%s}`, tag, edit)
	}
	first := r.as("ann", "GET", "/api/links/anns", "").Header().Get("ETag")
	got := r.bulkEdit("ann", matching(first, `"title":"1"`), matching(first, `"title":"2"`),
		matching("*", `"title":"3"`), `{"alias":"anns","ifMatch":null,"delete":false,"title":"4"}`)
	if got.statuses() != "200 412 200 200 " {
		t.Errorf("got %+v", got)
	}
	fourth := got.Results[3].ETag
	got = r.bulkEdit("ann", matching(`"x", W/`+fourth, `"delete":true`))
	if got.statuses() != "200 " {
		t.Errorf("got %+v", got)
	}
	got = r.bulkEdit("ann", matching(fourth, `"restore":true`),
		matching(got.Results[0].ETag, `"restore":true`))
	if l, err := r.fake.Read(t.Context(), "anns"); got.statuses() != "412 200 " || err != nil ||
		l.Title != "4" || !l.DeletedAt.IsZero() {
		t.Errorf("got %+v, %+v, %v", got, l, err)
	}
}

func TestBulkEditBodies(t *testing.T) {
	const one = `{"alias":"anns"}`
	list := func(n int) string { return `{"links":[` + strings.Repeat(one+",", n-1) + one + `]}` }
	padded := func(size int) string { return list(1) + strings.Repeat(" ", size-len(list(1))) }
	for name, test := range map[string]struct {
		body   string
		status int
		kind   string
		field  string
	}{
		"a hundred":   {list(100), 200, "", ""},
		"2 MiB":       {padded(2 << 20), 200, "", ""},
		"more":        {list(101), 400, "body", "links"},
		"none":        {`{"links":[]}`, 400, "body", "links"},
		"a link":      {one, 400, "body", "alias"},
		"not JSON":    {`{"links":[` + one + `,}`, 400, "body", "links"},
		"a byte more": {padded(2<<20 + 1), 413, "body-too-large", ""},
	} {
		r := newRig(t)
		someLinks(t, r)
		w := r.as("ann", "PATCH", "/api/links/bulk", test.body)
		if test.kind != "" {
			t.Run(name, func(t *testing.T) { wantProblem(t, w, test.status, test.kind, test.field) })
		} else if w.Code != test.status || strings.Count(w.Body.String(), `"status":200`) !=
			strings.Count(test.body, "alias") {
			t.Errorf("%s: got %d %.500s", name, w.Code, w.Body)
		}
	}
	r := newRig(t)
	wantProblem(t, r.as("ann", "PATCH", "/api/links/bulk", list(1), "Content-Type",
		"application/merge-patch+json"), 415, "media-type", "")
}

func TestBulkEditIsOneRequest(t *testing.T) {
	r := newRig(t, func(c *functions.Config) { c.Rates = access.Rates{1, 1, 2, 1} })
	for range 2 {
		r.bulkEdit("ann", `{"alias":"one"}`, `{"alias":"two","delete":true}`, `{}`)
	}
	wantLimited(t, r.as("ann", "PATCH", "/api/links/bulk", "not read"), "api", 2, 30)
}

// An owner's bulk edit waits for none of their other large calls.
func TestOneBulkEditOfAnOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *functions.Config) { c.HostAddress = "" })
		_, end := r.upload("ann", "/api/links/bulk", -1)
		wantProblem(t, r.as("ann", "PATCH", "/api/links/bulk", `{"links":[{"alias":"one"}]}`), 503,
			"busy", "")
		if got := r.bulkEdit("bob", `{"alias":"one"}`); got.statuses() != "404 " {
			t.Errorf("somebody else got %+v", got)
		}
		end(oneBulk)
		if got := r.bulkEdit("ann", `{"alias":"one"}`); got.statuses() != "404 " {
			t.Errorf("after it: got %+v", got)
		}
	})
}

// A link that storage does not edit, or not in time, has a 503 of its own. Some links are edited
// at once, and no more are begun after 20 seconds.
func TestBulkEditInAnOutage(t *testing.T) {
	var edits []string
	for range 100 {
		edits = append(edits, `{"alias":"ann1","title":"T"}`)
	}
	synctest.Test(t, func(t *testing.T) {
		r := newSlowRig(t, 7*time.Second) // for the look-up of the key, and for some links together
		begun := time.Now()
		got := r.bulkEdit("ann", edits...).statuses()
		if took := time.Since(begun); got != strings.Repeat("200 ", 50)+
			strings.Repeat("503 ", 50) || took != 21*time.Second {
			t.Errorf("slow: got %s after %v", got, took)
		}
	})
	r := newRig(t)
	r.fake.Fail(fmt.Errorf("a cause: %w", link.ErrUnavailable))
	got := r.bulkEdit("ann", edits[0], `{"alias":"ann1","title":7}`)
	if got.statuses() != "503 400 " ||
		!strings.Contains(string(got.Results[0].Problem), "/problems/storage-unavailable") ||
		strings.Contains(string(got.Results[0].Problem), "cause") ||
		strings.Count(r.log.String(), "a cause") != 1 {
		t.Errorf("down: got %+v, and logged %s", got, r.log)
	}
}
