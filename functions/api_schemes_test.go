package functions_test

import (
	"strings"
	"testing"

	"tiney/functions"
	"tiney/internal/link"
)

// withSchemes lets owners shorten URLs with three further schemes.
func withSchemes(c *functions.Config) {
	c.Rules.ExtraSchemes = []string{"mailto", "tel", "web+x"}
}

// Owners may shorten URLs with the extra schemes in every way of making or editing a link. For
// others, these URLs are as wrong as all with a scheme that is none of http and https.
func TestExtraSchemes(t *testing.T) {
	r := newRig(t, withSchemes, withDomains)
	token := someLinks(t, r)
	for _, test := range []struct {
		url string
		ok  bool
	}{
		{"mailto:ann@example.com", true},
		{"MailTo:ann@example.com?subject=caf\u00e9", true},
		{"tel:+4930123", true},
		{"web+x://example.org/a?b#c", true},
		{"mailto:", false},
		{"mailto://", false},
		{"tel:12 34", false},
		{"tel:12\\\\34", false},
		{"sms:123", false},
		{"javascript:alert(1)", false},
		{"mailtoo:ann@example.com", false},
		{"web+x://tiney.to/a", false},
		{"web+x://go.example:99/a", false},
		{"web+x://ann:secret@example.org/", true},
		{"tel://+15550100", true},
		{"web+x://ann@go.example/", false},
		{"tel", false},
	} {
		body := `{"longUrl":"` + test.url + `"}`
		for _, who := range []string{"", token} {
			wantProblem(t, r.as(who, "POST", "/api/shorten", body), 400, "long-url", "longUrl")
		}
		file := `{"alias":"imported","longUrl":"` + test.url + `"}`
		want, edited := "1 201 imported", 200
		if !test.ok {
			want, edited = "1 400 imported long-url longUrl", 400
		}
		fresh := newRig(t, withSchemes, withDomains)
		someLinks(t, fresh)
		fresh.wantResults(test.url, fresh.imports("ann", "?dryRun=true", file), want)
		fresh.wantResults(test.url, fresh.imports("admin", "", file), want)
		made := fresh.as("ann", "POST", "/api/shorten", body)
		many := fresh.bulk("bob", body).Results[0]
		patched := fresh.as("ann", "PATCH", "/api/links/anns", body)
		if (made.Code == 201) != test.ok || (many.Status == 201) != test.ok ||
			patched.Code != edited {
			t.Errorf("%s: %d %s, bulk %d, PATCH %d %s", test.url, made.Code, made.Body,
				many.Status, patched.Code, patched.Body)
		}
		if !test.ok {
			wantProblem(t, made, 400, "long-url", "longUrl")
			continue
		}
		alias := strings.Trim(members(t, made)["alias"], `"`)
		if w := fresh.get("/" + alias); w.Code != 302 ||
			w.Header().Get("Location") != strings.ReplaceAll(test.url, "\u00e9", "%C3%A9") {
			t.Errorf("%s: leads to %d %v", test.url, w.Code, w.Header())
		}
	}
	for who, told := range map[string]bool{"ann": true, "": false} {
		w := r.as(who, "POST", "/api/shorten", `{"longUrl":"sms:1"}`)
		if strings.Contains(w.Body.String(), "mailto:") != told {
			t.Errorf("%q is told %s", who, w.Body)
		}
	}
}

// A link whose scheme is not allowed any more still redirects. No link is edited to it.
func TestSchemeThatIsNotAllowedAnyMore(t *testing.T) {
	r := newRig(t)
	r.fake.Put(link.Link{Name: "old", LongURL: "mailto:ann@example.com", Owner: "ann"})
	r.fake.Put(link.Link{Name: "other", LongURL: "https://example.com/", Owner: "ann"})
	if w := r.get("/old"); w.Code != 302 || w.Header().Get("Location") != "mailto:ann@example.com" {
		t.Errorf("got %d %v", w.Code, w.Header())
	}
	wantStatus(t, r.as("ann", "PATCH", "/api/links/old", `{"title":"T",`+
		`"longUrl":"mailto:ann@example.com"}`), 200, "an edit that leaves it")
	for alias, url := range map[string]string{"old": "mailto:bob@example.com",
		"other": "mailto:ann@example.com"} {
		wantProblem(t, r.as("ann", "PATCH", "/api/links/"+alias, `{"longUrl":"`+url+`"}`), 400,
			"long-url", "longUrl")
	}
	wantProblem(t, r.as("ann", "POST", "/api/shorten", `{"longUrl":"mailto:x@example.com"}`), 400,
		"long-url", "longUrl")
}
