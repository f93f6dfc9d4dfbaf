package functions_test

import (
	"strings"
	"testing"

	"tiney/internal/link"
)

// What a link forwards is a list of names, each of which counts once. Null and an empty list are
// nothing.
func TestForwardAsAMember(t *testing.T) {
	for value, want := range map[string]string{
		`null`:                             `[]`,
		`[]`:                               `[]`,
		`["query"]`:                        `["query"]`,
		`["path"]`:                         `["path"]`,
		`["path","query"]`:                 `["query","path"]`,
		`["query","query","path","query"]`: `["query","path"]`,
		`["Path","QUERY"]`:                 `["query","path"]`, // as .NET writes it
	} {
		wantMember(t, "forward", value, want, link.Link{Forward: link.ForwardQuery}, `["query"]`)
	}
	r := newRig(t)
	r.fake.Put(link.Link{Name: "old", LongURL: "https://example.com/old", Owner: "ann"})
	for _, value := range []string{`"query"`, `{}`, `true`, `7`, `["fragment"]`, `["ſquery"]`,
		`[""]`, `[null]`, `[1]`, `["query",true]`, `["query",["path"]]`, `["query","x"]`,
		`[" path"]`} {
		t.Run(value, func(t *testing.T) {
			r.wantRefused(t, "forward", value, "", 400, "forward", "forward")
		})
	}
	if l, _ := r.fake.Read(t.Context(), "old"); l.Forward != 0 {
		t.Errorf("changed: %+v", l)
	}
}

// Only owners may let a link forward something. It says so before what else is wrong.
func TestForwardIsTheOwners(t *testing.T) {
	r := newRig(t)
	token := someLinks(t, r)
	for body, status := range map[string]int{
		`{"longUrl":"https://example.com/","forward":["query"]}`:              401,
		`{"longUrl":"https://example.com/","forward":["x"]}`:                  401,
		`{"longUrl":"https://example.com/nobody","forward":["path","query"]}`: 401,
		`{"longUrl":"https://example.com/none","forward":[]}`:                 201,
		`{"longUrl":"https://example.com/null","forward":null}`:               201,
		`{"longUrl":"https://example.com/text","forward":"query"}`:            400,
	} {
		for _, who := range []string{"", token} {
			w := r.as(who, "POST", "/api/shorten", body)
			switch {
			case status == 401 && who == "":
				wantProblem(t, w, 401, "credentials-missing", "")
			case status == 401:
				wantProblem(t, w, 403, "owner-needed", "")
			case w.Code != status && !(w.Code == 200 && who == token):
				t.Errorf("%s: got %d %s", body, w.Code, w.Body)
			}
		}
	}
	wantProblem(t, r.as(token, "PATCH", "/api/links/nobodys", `{"forward":["query"]}`), 403,
		"owner-needed", "")
	wantProblem(t, r.as("bob", "PATCH", "/api/links/anns", `{"forward":["query"]}`), 404,
		"not-found", "")
	wantStatus(t, r.as("admin", "PATCH", "/api/links/nobodys", `{"forward":["query"]}`), 200,
		"an admin")
}

// What a shared link forwards is where it leads: only an admin may change that.
func TestForwardOfASharedLink(t *testing.T) {
	r := newRig(t)
	r.fake.Put(link.Link{Name: "shared", LongURL: "https://example.com/", Owner: "ann",
		Shared: true, Forward: link.ForwardQuery})
	for _, value := range []string{`null`, `[]`, `["path"]`, `["query","path"]`} {
		wantProblem(t, r.as("ann", "PATCH", "/api/links/shared", `{"forward":`+value+`}`), 409,
			"link-shared", "")
	}
	for _, who := range []string{"ann", "admin"} {
		w := r.as(who, "PATCH", "/api/links/shared", `{"forward":["query","query"]}`)
		if w.Code != 200 || members(t, w)["updatedAtUtc"] != "null" {
			t.Errorf("what it is already, by %s: got %d %s", who, w.Code, w.Body)
		}
	}
	wantStatus(t, r.as("admin", "PATCH", "/api/links/shared", `{"forward":[]}`), 200, "an admin")
}

// Only an http or https URL can take what is forwarded. No edit may leave a link without one.
func TestForwardNeedsAnHTTPTarget(t *testing.T) {
	r := newRig(t, withSchemes)
	const mail = `"longUrl":"mailto:ann@example.com"`
	refused := func(method, target, body, kind, field string) {
		t.Helper()
		wantProblem(t, r.as("ann", method, target, body), 400, kind, field)
	}
	refused("POST", "/api/shorten", `{`+mail+`,"forward":["query"]}`, "forward", "forward")
	refused("POST", "/api/shorten", `{"longUrl":"web+x://example.com/","forward":["path"]}`,
		"forward", "forward")
	for body, status := range map[string]int{
		`{` + mail + `,"alias":"mail","forward":[]}`:                                  201,
		`{"longUrl":"HTTP://example.com/","alias":"http","forward":["query","path"]}`: 201,
	} {
		wantStatus(t, r.as("ann", "POST", "/api/shorten", body), status, body)
	}
	refused("PATCH", "/api/links/mail", `{"forward":["query"]}`, "forward", "forward")
	refused("PATCH", "/api/links/http", `{`+mail+`}`, "forward", "forward")
	refused("PATCH", "/api/links/http", `{`+mail+`,"forward":["path"]}`, "forward", "forward")
	for _, step := range []struct{ alias, body string }{
		{"mail", `{"longUrl":"https://example.com/mail","forward":["path"]}`},
		{"http", `{` + mail + `,"forward":null}`},
		{"http", `{"longUrl":"https://example.com/2"}`},
		{"http", `{"forward":["path"]}`},
	} {
		wantStatus(t, r.as("ann", "PATCH", "/api/links/"+step.alias, step.body), 200, step)
	}
}

// A request that names forward is told what its link forwards, which may be an older link.
func TestForwardOfAnOlderLink(t *testing.T) {
	r := newRig(t)
	old := link.Link{Name: "old", LongURL: "https://example.com/", Owner: "ann",
		Forward: link.ForwardPath}
	r.fake.Put(old)
	old.Name, old.Owner, old.Forward = "bobs", "bob", link.ForwardQuery
	r.fake.Put(old)
	old.Name, old.Owner = "nobodys", ""
	r.fake.Put(old)
	const url = `{"longUrl":"https://example.com/"`
	for request, want := range map[string]string{
		"ann " + url + `}`:                                  "",
		"ann " + url + `,"forward":null}`:                   "",
		"ann " + url + `,"forward":[]}`:                     `["path"]`,
		"ann " + url + `,"forward":["query"]}`:              `["path"]`,
		"bob " + url + `,"forward":["path"]}`:               `["query"]`,
		"bob " + url + `,"alias":"bobs","forward":[]}`:      `["query"]`,
		" " + url + `}`:                                     "",
		" " + url + `,"forward":[]}`:                        `["query"]`,
		"bob " + url + `,"alias":"bobs","forward":["x"]}`:   "400",
		"ann " + url + `,"alias":"bobs","forward":[]}`:      "409",
		"bob " + url + `,"alias":"bobs","forward":"query"}`: "400",
	} {
		who, body, _ := strings.Cut(request, " ")
		w := r.as(who, "POST", "/api/shorten", body)
		got, is := members(t, w)["forward"]
		switch {
		case len(want) == 3:
			if is || !strings.Contains(w.Body.String(), `"status":`+want) {
				t.Errorf("%s: got %d %s", request, w.Code, w.Body)
			}
			continue
		case w.Code != 200 || got != want || is != (want != ""):
			t.Errorf("%s: got %d %s", request, w.Code, w.Body)
		}
		if who == "" {
			continue
		}
		result := r.bulk(who, body).Results[0]
		if string(result.Link) != strings.TrimSpace(w.Body.String()) {
			t.Errorf("%s: bulk has %s, and shorten %s", request, result.Link, w.Body)
		}
	}
}
