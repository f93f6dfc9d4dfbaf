package functions_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tiney/functions"
	"tiney/internal/link"
	"tiney/storage"
)

// newAnyCaseRig makes a rig for which the case of aliases does not matter.
func newAnyCaseRig(t *testing.T, change ...func(*functions.Config)) *rig {
	return newRigOn(t, func(c *storage.Config) { c.AnyCase = true },
		append(change, func(c *functions.Config) { c.Rules.AnyCase = true })...)
}

// Every path and every body takes an alias in any case, and shows it as its maker chose it.
func TestAliasesInAnyCase(t *testing.T) {
	r := newAnyCaseRig(t, withDomains)
	for domain, at := range map[string]string{"tiney.to": "", "go.example": "@Go.Example"} {
		w := r.as("ann", "POST", "/api/shorten",
			`{"longUrl":"https://example.com/","alias":"My-Link_9","domain":"`+domain+`"}`)
		wantLink(t, w, 201, "My-Link_9", domain)
		if got, want := w.Header().Get("Location"), shortURLs[domain]+"My-Link_9"; got != want {
			t.Errorf("Location %s", got)
		}
		name := link.Name(strings.ToLower("my-link_9" + at))
		if l, err := r.fake.Read(t.Context(), name); err != nil || l.Name != name {
			t.Errorf("it is kept as %+v, %v", l, err)
		}
		for _, spelled := range []string{"My-Link_9", "my-link_9", "MY-LINK_9", "mY-lINK_9"} {
			path := "/api/links/" + spelled + at
			wantLink(t, r.as("ann", "GET", path, ""), 200, "My-Link_9", domain)
			wantLink(t, r.as("ann", "PATCH", path, `{"title":"`+spelled+`"}`), 200, "My-Link_9",
				domain)
			if w := r.as("ann", "GET", path+"/stats", ""); w.Code != 200 ||
				members(t, w)["alias"] != `"My-Link_9"` {
				t.Errorf("statistics: %d %s", w.Code, w.Body)
			}
			wantStatus(t, r.as("ann", "DELETE", path, ""), 204)
			wantLink(t, r.as("ann", "POST", path+"/restore", ""), 200, "My-Link_9", domain)
			wantStatus(t, r.get(path+"/qr"), 200, "QR code")
			wantStatus(t, r.get("/"+spelled, "Host", domain), 302, spelled)
			wantLink(t, r.get("/"+spelled+"+", "Host", domain), 200, "My-Link_9", domain)
			// A choice of the same alias finds it, for its owner and URL.
			body := `{"longUrl":"https://example.com/%s","domain":"` + domain + `","alias":"` +
				spelled + `"}`
			wantLink(t, r.as("ann", "POST", "/api/shorten", fmt.Sprintf(body, "")), 200,
				"My-Link_9", domain)
			wantProblem(t, r.as("ann", "POST", "/api/shorten", fmt.Sprintf(body, "2")), 409,
				"alias-taken", "")
			wantProblem(t, r.as("bob", "POST", "/api/shorten", fmt.Sprintf(body, "")), 409,
				"alias-taken", "")
			// A short URL in a list stands for its alias; any other text is a part of it.
			for _, q := range []string{strings.ToUpper(domain) + "/" + spelled, spelled} {
				w := r.as("ann", "GET", "/api/links?domain="+domain+"&q="+q, "")
				if !strings.Contains(w.Body.String(), `"alias":"My-Link_9","domain":"`+domain) {
					t.Errorf("%s: listed %s", q, w.Body)
				}
			}
		}
	}
	w := r.as("ann", "GET", "/api/stats/clicks?alias=MY-LINK_9,my-link_9,my-link_9@go.example,"+
		"My-Link_9@go.example", "")
	wantJSON(t, w, `{"items":[`+
		`{"alias":"My-Link_9","domain":"tiney.to","clicks":0,"bots":4,"lastClickAtUtc":null},`+
		`{"alias":"My-Link_9","domain":"go.example","clicks":0,"bots":4,"lastClickAtUtc":null}]}`)
	lines, _ := r.exported("ann", "/api/export?domain=tiney.to")
	if len(lines) != 1 || !strings.HasPrefix(lines[0], `{"alias":"My-Link_9",`) {
		t.Errorf("exported %q", lines)
	}
}

// Two spellings in one call are one alias.
func TestSpellingsInOneCall(t *testing.T) {
	r := newAnyCaseRig(t)
	token, hash := claimToken(t)
	r.fake.Put(link.Link{Name: "free", Spelling: "Free", LongURL: "https://example.com/",
		ClaimHash: hash})
	claims := fmt.Sprintf(`{"claims":[{"alias":"FREE","claimToken":%q},{"alias":"free",`+
		`"claimToken":%[1]q}]}`, token)
	w := r.as("ann", "POST", "/api/claims", claims)
	wantJSON(t, w, `{"results":[{"alias":"FREE","domain":"tiney.to","result":"claimed"},`+
		`{"alias":"free","domain":"tiney.to","result":"already yours"}]}`)
	made := r.bulk("ann", `{"longUrl":"https://example.com/1","alias":"Bulk"}`,
		`{"longUrl":"https://example.com/1","alias":"BULK"}`,
		`{"longUrl":"https://example.com/2","alias":"bulk"}`)
	for i, status := range []int{201, 200, 409} {
		got := made.Results[i]
		if got.Status != status ||
			status < 300 && !strings.Contains(string(got.Link), `"alias":"Bulk"`) {
			t.Errorf("bulk %d: got %d %s", i, got.Status, got.Link)
		}
	}
	file := line("Moved", "https://example.com/1", "") +
		line("mOVED", "https://example.com/1", "") + line("moved", "https://example.com/2", "")
	r.wantResults("imported", r.imports("ann", "", file), "1 201 Moved", "2 200 mOVED",
		"3 409 moved alias-taken")
	wantLink(t, r.as("ann", "GET", "/api/links/MOVED", ""), 200, "Moved", "tiney.to")
}

// A link with capitals that was made while case mattered has its own spelling only, and is found
// first. Another spelling of it can be chosen for another link.
func TestOlderAliasesWithCapitals(t *testing.T) {
	r := newAnyCaseRig(t)
	r.fake.Put(link.Link{Name: "Old", LongURL: "https://example.com/old", Owner: "ann"})
	r.fake.Put(link.Link{Name: "plain", LongURL: "https://example.com/plain", Owner: "ann"})
	shorten := func(who, alias, target string) int {
		return r.as(who, "POST", "/api/shorten", `{"longUrl":"https://example.com/`+target+
			`","alias":"`+alias+`"}`).Code
	}
	where := func(alias string) string { return r.get("/" + alias).Header().Get("Location") }
	wantLink(t, r.as("ann", "GET", "/api/links/Old", ""), 200, "Old", "tiney.to")
	for alias, want := range map[string]string{"Old": "false", "old": "true", "OLD": "true",
		"oLd@TINEY.to": "true", "Old@tiney.to": "false", "plain": "false", "Plain": "false",
		"PLAIN@tiney.to": "false", "None": "true"} {
		if got := members(t, r.as("ann", "GET", "/api/aliases/"+alias, ""))["free"]; got != want {
			t.Errorf("%s is free: %s, want %s", alias, got, want)
		}
	}
	wantLink(t, r.as("ann", "GET", "/api/links/PLAIN", ""), 200, "plain", "tiney.to")
	for _, alias := range []string{"old", "OLD", "oLd"} {
		wantProblem(t, r.as("ann", "GET", "/api/links/"+alias, ""), 404, "not-found", "")
		wantProblem(t, r.get("/"+alias), 404, "not-found", "")
	}
	if got := []int{shorten("ann", "Old", "old"), shorten("ann", "Old", "other"),
		shorten("bob", "Old", "old"), shorten("ann", "Plain", "other"),
		shorten("bob", "oLD", "new"), shorten("bob", "Old", "new"),
		shorten("bob", "OLD", "new")}; !slices.Equal(got,
		[]int{200, 409, 409, 409, 201, 409, 200}) {
		t.Errorf("got %v", got)
	}
	for alias, target := range map[string]string{"Old": "old", "old": "new", "oLD": "new",
		"OLD": "new"} {
		if got := where(alias); got != "https://example.com/"+target {
			t.Errorf("%s leads to %s", alias, got)
		}
	}
	wantLink(t, r.as("bob", "GET", "/api/links/old", ""), 200, "oLD", "tiney.to")
	wantStatus(t, r.as("ann", "DELETE", "/api/links/Old", ""), 204)
	wantProblem(t, r.get("/Old"), 410, "link-deleted", "")
	if got := where("OLD"); got != "https://example.com/new" {
		t.Errorf("the other leads to %s", got)
	}
}

func TestDrawnAliasesInAnyCase(t *testing.T) {
	r := newAnyCaseRig(t)
	lower := regexp.MustCompile(`^"[0-9a-z]{6}"$`)
	for i := range 100 {
		w := r.shorten(fmt.Sprintf(`{"longUrl":"https://example.com/%d"}`, i))
		if got := members(t, w)["alias"]; w.Code != 201 || !lower.MatchString(got) {
			t.Errorf("drew %s", got)
		}
	}
}

// The text of a 404 says whether case matters. Only the letters of ASCII have a case.
func TestCaseInTexts(t *testing.T) {
	for matters, r := range map[bool]*rig{true: newRig(t), false: newAnyCaseRig(t)} {
		r.fake.Put(link.Link{Name: "k", LongURL: "https://example.com/", Owner: "ann"})
		for _, w := range []string{r.get("/nobody").Body.String(), r.get("/a.b").Body.String(),
			r.get("/no@alias").Body.String(),
			r.get("/nobody", "Accept", "text/html").Body.String(),
			r.get("/nobody+").Body.String(),
			r.as("ann", "GET", "/api/links/nobody", "").Body.String()} {
			if strings.Contains(w, "letters differ") != matters ||
				strings.Contains(w, "make no difference") == matters {
				t.Errorf("case matters is %t: %s", matters, w)
			}
		}
		status := 302
		if matters {
			status = 404
		}
		wantStatus(t, r.get("/K"), status, matters)
		wantProblem(t, r.get("/%E2%84%AA"), 404, "not-found", "") // the Kelvin sign
		wantProblem(t, r.as("ann", "GET", "/api/links/%E2%84%AA", ""), 404, "not-found", "")
		wantProblem(t, r.as("ann", "POST", "/api/shorten",
			`{"longUrl":"https://example.com/1","alias":"\u212a"}`), 400, "alias", "alias")
	}
}
