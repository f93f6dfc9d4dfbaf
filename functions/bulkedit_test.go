package functions_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tiney/functions"
	"tiney/internal/link"
	"tiney/internal/testing/teststore"
)

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
		switch {
		case test.method == "DELETE":
			edit += `,"delete":true`
		case test.method == "POST":
			edit += `,"restore":true`
		case test.edit != "":
			edit += "," + test.edit
		}
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
		`{"alias":"anns","title":"` + strings.Repeat("x", 32<<10) + `"}`: {
			413, "body-too-large", ""},
	} {
		r := newRig(t)
		someLinks(t, r)
		before, err := r.fake.Read(t.Context(), "anns")
		if err != nil {
			t.Fatal(err)
		}
		got := r.bulkEdit("ann", edit, `{"alias":"other"}`)
		var p struct{ Type, Field string }
		refused := got.Results[0]
		if err := json.Unmarshal(refused.Problem, &p); err != nil ||
			refused.Status != want.status || p.Type != "/problems/"+want.kind ||
			p.Field != want.field || got.Results[1].Status != 404 {
			t.Errorf("%.80s: got %d %s, %v", edit, refused.Status, refused.Problem, err)
		}
		if l, err := r.fake.Read(t.Context(), "anns"); err != nil || l.Version != before.Version {
			t.Errorf("%.80s: it is %+v, %v", edit, l, err)
		}
	}
	w := newRig(t).as("ann", "PATCH", "/api/links/bulk",
		`{"links":[{"alias":"anns","rules":[{"percent":1,"percent":2}]}]}`)
	wantProblem(t, w, 400, "body", "links.0.rules[0].percent")
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

// alwaysCrossed is a store in which other edits come between, so that one that must not be repeated
// conflicts. What others find then is damaged.
type alwaysCrossed struct{ *teststore.Store }

func (alwaysCrossed) EditAll(_ context.Context, edits []link.Edit) ([]link.EditResult, error) {
	results := make([]link.EditResult, len(edits))
	for i, e := range edits {
		results[i].Err = link.ErrDamaged
		if e.Once {
			results[i].Err = link.ErrConflict
		}
	}
	return results, nil
}

func TestBulkEditsThatCrossOthers(t *testing.T) {
	r := newRig(t, func(c *functions.Config) {
		c.Links = alwaysCrossed{c.Links.(*teststore.Store)}
	})
	edits := []string{`{"alias":"one","ifMatch":"*","title":"T"}`,
		`{"alias":"one","ifMatch":"\"a\"","delete":true}`, `{"alias":"one","title":"T"}`}
	for who, want := range map[string]string{
		"ann":   "412 412 404 ", // as if a damaged link were none
		"admin": "412 412 410 ",
	} {
		if got := r.bulkEdit(who, edits...); got.statuses() != want {
			t.Errorf("%s: got %+v", who, got)
		}
	}
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
	wantOutage(t, func(r *rig) bulkResponse {
		return r.bulkEdit("ann", edits[0], `{"alias":"ann1","title":7}`)
	})
}
