package functions_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/link"
)

// A start is a time in any offset, and null is none. It must be before the end, whichever of the
// two an edit changes.
func TestStartAsAMember(t *testing.T) {
	r := newRig(t)
	for value, want := range map[string]string{
		`null`:                        `null`,
		`"2026-01-31T13:00:00+01:00"`: `"2026-01-31T12:00:00Z"`,
		`"2999-01-31T12:00:00.9Z"`:    `"2999-01-31T12:00:00Z"`,
	} {
		wantMember(t, "startsAtUtc", value, want, link.Link{StartsAt: time.Unix(1, 0)},
			`"1970-01-01T00:00:01Z"`)
	}
	ends, starts := time.Hour, r.clock.Now().Add(time.Minute)
	r.fake.Put(link.Link{Name: "old", LongURL: "https://example.com/old", Owner: "ann",
		StartsAt: starts, ExpiresAt: r.clock.Now().Add(ends)})
	end := fmt.Sprintf("%q", r.clock.Now().Add(ends).Format(time.RFC3339))
	for _, value := range []string{`""`, `"tomorrow"`, `7`, `{}`, `true`, `"1969-12-31T23:59:59Z"`,
		`"0001-01-01T00:00:00Z"`,
		`"9999-12-31T23:59:59-01:00"`, end} {
		t.Run(value, func(t *testing.T) {
			r.wantRefused(t, "startsAtUtc", value, `,"expiresAtUtc":`+end, 400, "starts-at-utc",
				"startsAtUtc")
		})
	}
	wantProblem(t, r.as("ann", "PATCH", "/api/links/old", `{"expiresInSeconds":60}`), 400,
		"starts-at-utc", "startsAtUtc")
	if l, _ := r.fake.Read(t.Context(), "old"); !l.StartsAt.Equal(starts) || l.Title != "" {
		t.Errorf("changed: %+v", l)
	}
	got := r.bulkEdit("ann", `{"alias":"old","startsAtUtc":null,"expiresInSeconds":60}`).Results[0]
	if got.Status != 200 || !strings.Contains(string(got.Link), `"startsAtUtc":null`) {
		t.Errorf("bulk: got %+v", got)
	}
}

// Only owners may let a link start later, and only an admin changes when a shared one does.
func TestStartIsTheOwners(t *testing.T) {
	r := newRig(t)
	wantOwnersAlone(t, r, `"startsAtUtc":"2030-01-01T00:00:00Z"`)
	null := `{"longUrl":"https://example.com/","startsAtUtc":null}`
	wantStatus(t, r.shorten(null), 201, "null")
	wantProblem(t, r.as("ann", "PATCH", "/api/links/shared", `{"startsAtUtc":null}`), 409,
		"link-shared", "")
}

// Before its start, a link leads nowhere. That is no click, no unknown alias and no guess. From the
// start on it leads to its long URL, from every cache.
func TestScheduled(t *testing.T) {
	for name, open := range map[string]func(...func(*functions.Config)) *rig{
		"without a cache": func(c ...func(*functions.Config)) *rig { return newRig(t, c...) },
		"with a cache": func(c ...func(*functions.Config)) *rig {
			return newRigOn(t, withCache, c...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := open(fallbacks, func(c *functions.Config) {
				c.Rates, c.RedirectMaxAge = access.Rates{access.LimitUnknown: 1}, time.Hour
			})
			starts := r.clock.Now().Add(30 * time.Minute)
			r.fake.Put(link.Link{Name: "soon", LongURL: "https://example.com/", StatusCode: 301,
				Owner: "ann", StartsAt: starts, Forward: link.ForwardPath})
			if name == "with a cache" {
				r.fake.Cache("soon")
			}
			for range 3 {
				for _, target := range []string{"/soon", "/soon+", "/soon/rest", "/soon."} {
					w := r.get(target)
					wantProblem(t, w, 404, "not-started", "")
					if w.Header().Get("Retry-After") != "" || strings.Contains(w.Body.String(),
						"example.com") {
						t.Errorf("%s: %v %s", target, w.Header(), w.Body)
					}
				}
			}
			page := r.get("/soon", "Accept", browser)
			if page.Code != 404 || !strings.Contains(page.Body.String(), "starts on "+
				starts.UTC().Format("2 January 2006 at 15:04")+" (UTC).") ||
				page.Header().Get("Cache-Control") != "no-store" ||
				page.Header().Get("Vary") != "Accept" {
				t.Errorf("the page is %d %v %s", page.Code, page.Header(), page.Body)
			}
			wantStatus(t, r.do("HEAD", "/soon", ""), 404, "HEAD")
			r.wantMetrics(map[string]float64{"redirect.gone": 11})
			before := r.fake.Calls()
			r.clock.Advance(30*time.Minute - 1)
			wantProblem(t, r.get("/soon"), 404, "not-started", "")
			r.clock.Advance(1)
			if w := r.get("/soon/rest"); w.Code != 301 ||
				w.Header().Get("Location") != "https://example.com/rest" {
				t.Errorf("started: %d %v", w.Code, w.Header())
			}
			if calls := r.fake.Calls(); name == "with a cache" && calls != before {
				t.Errorf("%d calls", calls-before)
			}
			if got := r.clicks.clicked["soon"]; len(got) != 1 {
				t.Errorf("clicks: %v", got)
			}
		})
	}
}

// Of what keeps a link from leading somewhere, its start comes last but for a blocked host.
func TestStatesBeforeAStart(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	r.block("evil.example")
	for kind, l := range map[string]link.Link{
		"link-deleted":  {DeletedAt: now, ExpiresAt: now, Disabled: true},
		"link-expired":  {ExpiresAt: now, Disabled: true},
		"link-disabled": {Disabled: true},
		"not-started":   {LongURL: "https://evil.example/"},
	} {
		l.Name, l.StartsAt, l.Owner = "abc", now.Add(time.Hour), "ann"
		if l.LongURL == "" {
			l.LongURL = "https://example.com/"
		}
		r.fake.Put(l)
		status := 410
		if kind == "not-started" {
			status = 404
		}
		wantProblem(t, r.get("/abc"), status, kind, "")
	}
	r.clock.Advance(time.Hour)
	r.fake.Put(link.Link{Name: "abc", LongURL: "https://evil.example/", StartsAt: r.clock.Now()})
	wantProblem(t, r.get("/abc"), 410, "link-blocked", "")
}

// Where shorten has a start and no alias, it makes a link of its own, unless the link of the URL
// has the same start. With an alias, and without a start, a scheduled link will do as a live one.
func TestShortenWithAStart(t *testing.T) {
	r := newRig(t)
	const url, start = `{"longUrl":"https://example.com/"`, `,"startsAtUtc":"2999-01-01T00:00:00Z"`
	var starts string // of the last one that was made
	made := func(body string, status int) (alias string) {
		t.Helper()
		w := r.as("ann", "POST", "/api/shorten", body)
		starts = members(t, w)["startsAtUtc"]
		if w.Code != status {
			t.Errorf("%s: got %d %s", body, w.Code, w.Body)
		}
		if status < 300 && starts == "" && strings.Contains(body, "startsAtUtc") {
			t.Errorf("%s: got %s", body, w.Body)
		}
		return strings.Trim(members(t, w)["alias"], `"`)
	}
	first := made(url+start+`}`, 201)
	second := made(url+start+`}`, 201)
	plain := made(url+`}`, 201)
	if first == second || second == plain || made(url+`}`, 200) != plain || starts != "" {
		t.Errorf("made %s, %s and %s, which starts %s", first, second, plain, starts)
	}
	// The link of the URL becomes a scheduled one.
	r.as("ann", "PATCH", "/api/links/"+plain, `{"startsAtUtc":"2999-01-01T00:00:00Z"}`)
	if got := made(url+start+`}`, 200); got != plain {
		t.Errorf("the same start: got %s, want %s", got, plain)
	}
	if got := made(url+`}`, 200); got != plain || starts != `"2999-01-01T00:00:00Z"` {
		t.Errorf("no start: got %s, which starts %s, want %s", got, starts, plain)
	}
	if got := made(url+`,"startsAtUtc":"2030-01-01T00:00:00Z"}`, 201); got == plain {
		t.Error("another start: got the same link")
	}
	r.as("ann", "PATCH", "/api/links/"+plain, `{"disabled":true}`)
	made(url+start+`}`, 403)
	made(url+`,"startsAtUtc":"2030-01-01T00:00:00Z"}`, 201)
	made(url+`,"alias":"mine"`+start+`}`, 201)
	if got := made(url+`,"alias":"mine"}`, 200); got != "mine" {
		t.Errorf("by its alias: got %s", got)
	}
	w := r.as("ann", "POST", "/api/shorten",
		url+`,"alias":"mine","startsAtUtc":"2030-01-01T00:00:00Z"}`)
	if got := members(t, w)["startsAtUtc"]; w.Code != 200 || got != `"2999-01-01T00:00:00Z"` {
		t.Errorf("another start by its alias: got %d %s", w.Code, w.Body)
	}
}

// Lists and exports know scheduled links, which are not live ones. A file keeps the start, and
// where a link leads after its end.
func TestScheduledLinksInListsAndFiles(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	for i, l := range []link.Link{
		{Name: "live", StartsAt: now},
		{Name: "scheduled", StartsAt: now.Add(time.Hour), GoneURL: "https://example.com/{alias}"},
		{Name: "disabled", StartsAt: now.Add(time.Hour), Disabled: true},
	} {
		l.LongURL, l.Owner = "https://example.com/"+string(l.Name), "ann"
		l.CreatedAt = now.Add(time.Duration(i) * time.Second)
		r.fake.Put(l)
	}
	for state, want := range map[string]string{"": "disabled scheduled live", "live": "live",
		"scheduled": "scheduled", "disabled": "disabled"} {
		query := url.Values{}
		if state != "" {
			query.Set("state", state)
		}
		if got, _ := r.list("ann", query); strings.Join(got, " ") != want {
			t.Errorf("%q: got %v, want %s", state, got, want)
		}
		lines, _ := r.exported("ann", "/api/export?"+query.Encode())
		if len(lines) != len(strings.Fields(want)) {
			t.Errorf("%q: exported %q", state, lines)
		}
	}
	for _, format := range []string{"ndjson", "csv"} {
		file, _ := r.exported("ann", "/api/export?format="+format)
		other := newRig(t)
		other.clock.Advance(r.clock.Now().Sub(other.clock.Now()))
		if got := other.imports("bob", "?format="+format, strings.Join(file, "")); len(got) != 3 {
			t.Errorf("%s: imported %v", format, got)
		}
		l, err := other.fake.Read(t.Context(), "scheduled")
		if err != nil || !l.StartsAt.Equal(now.Add(time.Hour).Truncate(time.Second)) ||
			l.GoneURL != "https://example.com/{alias}" {
			t.Errorf("%s: imported %+v, %v", format, l, err)
		}
	}
	got := r.importFile("ann", "", line("x", "https://example.com/x",
		`,"startsAtUtc":"2030-01-01T00:00:00Z","expiresAtUtc":"2030-01-01T00:00:00Z"`))
	if got[0].Status != 400 || got[0].Problem.Field != "startsAtUtc" {
		t.Errorf("a start at the end: %+v", got)
	}
}
