package functions_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
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
	for method, test := range map[string]struct {
		one, unknown string // a link, and its member that the call itself does not have
		most         int    // bytes
		status       string // of the result
		otherType    string
	}{
		"POST":  {`{"longUrl":"https://example.com/"}`, "longUrl", 1 << 20, "20", "text/plain"},
		"PATCH": {`{"alias":"anns"}`, "alias", 2 << 20, "200", "application/merge-patch+json"},
	} {
		list := func(n int) string {
			return `{"links":[` + strings.Repeat(test.one+",", n-1) + test.one + `]}`
		}
		padded := func(size int) string { return list(1) + strings.Repeat(" ", size-len(list(1))) }
		send := func(body string, header ...string) (w *httptest.ResponseRecorder, calls int) {
			r := newRig(t)
			someLinks(t, r)
			before := r.fake.Calls()
			w = r.as("ann", method, "/api/links/bulk", body, header...)
			return w, r.fake.Calls() - before
		}
		for name, body := range map[string]string{"one": list(1), "a hundred": list(100),
			"the most bytes": padded(test.most)} {
			w, _ := send(body)
			if w.Code != 200 || strings.Count(w.Body.String(), `"status":`+test.status) !=
				strings.Count(body, test.one) {
				t.Errorf("%s %s: got %d %.500s", method, name, w.Code, w.Body)
			}
		}
		for name, refused := range map[string]struct {
			body        string
			status      int
			kind, field string
		}{
			"more":          {list(101), 400, "body", "links"},
			"none":          {`{"links":[]}`, 400, "body", "links"},
			"null":          {`{"links":null}`, 400, "body", "links"},
			"no list":       {`{}`, 400, "body", "links"},
			"a link":        {test.one, 400, "body", test.unknown},
			"an object":     {`{"links":{}}`, 400, "body", "links"},
			"a list":        {`[` + test.one + `]`, 400, "body", ""},
			"a field twice": {`{"links":[{},{"a":"a","a":"b"}]}`, 400, "body", "links.1.a"},
			"not JSON":      {`{"links":[` + test.one + `,}`, 400, "body", "links"},
			"a byte more":   {padded(test.most + 1), 413, "body-too-large", ""},
			"nothing":       {"", 400, "body", ""},
		} {
			t.Run(method+" "+name, func(t *testing.T) {
				w, calls := send(refused.body)
				wantProblem(t, w, refused.status, refused.kind, refused.field)
				if calls != 0 {
					t.Error("the store was asked")
				}
			})
		}
		w, _ := send(list(1), "Content-Type", test.otherType)
		wantProblem(t, w, 415, "media-type", "")
	}
}

// The limits count one call as one request, however many links it has.
func TestBulkIsOneRequest(t *testing.T) {
	r := newRig(t, func(c *functions.Config) { c.Rates = access.Rates{1, 1, 2, 1} })
	for _, who := range []string{"ann", "bob"} {
		for i := range 2 {
			if who == "ann" {
				r.bulk(who, fmt.Sprintf(`{"longUrl":"https://example.com/%d"}`, i),
					`{"longUrl":"no"}`, `{}`)
			} else {
				r.bulkEdit(who, `{"alias":"one"}`, `{"alias":"two","delete":true}`, `{}`)
			}
		}
		for _, method := range []string{"POST", "PATCH"} {
			wantLimited(t, r.as(who, method, "/api/links/bulk", "not read"), "api", 2, 30)
		}
	}
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
	wantOutage(t, func(r *rig) bulkResponse { return r.bulk("ann", links[0], `{"longUrl":"no"}`) })
}

// wantOutage checks the results of two links, of which the second is wrong, while storage is down.
func wantOutage(t *testing.T, bulk func(*rig) bulkResponse) {
	t.Helper()
	r := newRig(t)
	r.fake.Fail(fmt.Errorf("a cause: %w", link.ErrUnavailable))
	got := bulk(r)
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
