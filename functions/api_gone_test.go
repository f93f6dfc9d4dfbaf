package functions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/link"
)

// A goneUrl is written as GONE_URL is, and leads elsewhere than the link.
func TestGoneURLAsAMember(t *testing.T) {
	for value, want := range map[string]string{
		`null`: `null`,
		`""`:   `null`,
		`"HTTPS://ü.example/{domain}?a={alias}"`: `"HTTPS://ü.example/{domain}?a={alias}"`,
	} {
		older := link.Link{Name: "older", LongURL: "https://example.com/older", Owner: "ann",
			GoneURL: "https://example.com/gone"}
		const gone = `"https://example.com/gone"`
		r, _ := wantMember(t, "goneUrl", value, want, older, gone)
		r.fake.Put(older)
		again := r.as("ann", "POST", "/api/shorten",
			`{"longUrl":"https://example.com/older","goneUrl":`+value+`}`)
		shown, is := members(t, again)["goneUrl"]
		if again.Code != 200 || is != (value != "null") || is && shown != gone {
			t.Errorf("%s: an older link is %d %s", value, again.Code, again.Body)
		}
	}
	r := newRig(t, withSchemes)
	r.block("evil.example")
	r.fake.Put(link.Link{Name: "old", LongURL: "https://example.com/", Owner: "ann"})
	for value, want := range map[string]string{
		`7`: "", `{}`: "", `"example.com"`: "", `"mailto:ann@example.com"`: "",
		`"https://tiney.to/x"`: "", `"https://{alias}.example/"`: "", `"https://a.example/{x}"`: "",
		`"https://ann@a.example/"`: "", `"https://example.com/"`: "",
		`"https://a.evil.example/{alias}"`: "403",
	} {
		t.Run(value, func(t *testing.T) {
			status, kind := 400, "gone-url"
			if want != "" {
				status, kind = 403, "target-blocked"
			}
			r.wantRefused(t, "goneUrl", value, "", status, kind, "goneUrl")
			if value[0] != '"' {
				return
			}
			got := r.importFile("ann", "", line("x", "https://example.com/", `,"goneUrl":`+value))
			if got[0].Status != status || got[0].Problem.Field != "goneUrl" {
				t.Errorf("imported: %+v", got)
			}
		})
	}
	r.as("ann", "PATCH", "/api/links/old", `{"goneUrl":"https://example.com/2"}`)
	w := r.as("ann", "PATCH", "/api/links/old", `{"longUrl":"https://example.com/2"}`)
	wantProblem(t, w, 400, "gone-url", "goneUrl")
	if l, _ := r.fake.Read(t.Context(), "old"); l.GoneURL != "https://example.com/2" ||
		l.LongURL != "https://example.com/" {
		t.Errorf("changed: %+v", l)
	}
}

// Only owners may say where their links lead after their end, and of a shared one only an admin.
func TestGoneURLIsTheOwners(t *testing.T) {
	r := newRig(t)
	wantOwnersAlone(t, r, `"goneUrl":"https://example.com/gone"`)
	if w := r.get("/shared+"); w.Code != 200 || strings.Contains(w.Body.String(), "gone") {
		t.Errorf("the preview says %d %s", w.Code, w.Body)
	}
}

// A goneUrl is where browsers are sent from a link that has ended, and from its tombstone. Nobody
// is sent to a blocked host, or where the owner wants of a link that was taken down.
func TestGoneURLIsFollowed(t *testing.T) {
	r := newRigOn(t, withCache, fallbacks)
	now := r.clock.Now()
	r.block("evil.example")
	const own, shared = "https://own.example/{domain}?{alias}", "https://gone.example/#"
	const to = "https://own.example/tiney.to?"
	for a, test := range map[link.Name]struct {
		l    link.Link
		want string // "": a page
	}{
		"expired": {link.Link{ExpiresAt: now}, to + "expired"},
		"cached":  {link.Link{ExpiresAt: now.Add(time.Minute)}, to + "cached"},
		"deleted": {link.Link{DeletedAt: now, Owner: "ann"}, to + "deleted"},
		"tomb":    {link.Link{GoneReason: link.StateExpired, GoneAt: now}, to + "tomb"},
		"down":    {link.Link{DeletedAt: now, Locked: true, Owner: "ann"}, shared + "down"},
		"off":     {link.Link{ExpiresAt: now, Disabled: true, Locked: true}, shared + "off"},
		"evil":    {link.Link{ExpiresAt: now, GoneURL: "https://a.evil.example/"}, ""},
		"none":    {link.Link{ExpiresAt: now, GoneURL: "nowhere"}, shared + "none"},
		"is-off":  {link.Link{Disabled: true}, ""},
		"soon":    {link.Link{StartsAt: now.Add(time.Hour)}, ""},
	} {
		t.Run(string(a), func(t *testing.T) {
			l := test.l
			if l.Name = a; l.GoneURL == "" {
				l.GoneURL = own
			}
			if l.GoneReason == link.StateLive {
				l.LongURL = "https://example.com/" + string(a)
			}
			r.fake.Put(l)
			if a == "cached" {
				r.fake.Cache(a)
				r.clock.Advance(time.Minute)
			}
			calls := r.fake.Calls()
			w := r.get("/"+string(a), "Accept", browser)
			wantLocation(t, string(a), w, test.want)
			if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Vary") != "Accept" {
				t.Errorf("%v", w.Header())
			}
			if a == "cached" && r.fake.Calls() != calls {
				t.Error("it was read again")
			}
			status := 410
			if a == "soon" {
				status = 404
			}
			wantStatus(t, r.get("/"+string(a)), status, "a program")
			wantStatus(t, r.get("/"+string(a)+"+", "Accept", browser), status, "the preview")
		})
	}
	r = newRig(t, func(c *functions.Config) { c.GoneURL = "" })
	r.fake.Put(link.Link{Name: "expired", LongURL: "https://example.com/", ExpiresAt: now,
		GoneURL: own})
	wantLocation(t, "without GONE_URL", r.get("/expired", "Accept", browser),
		to+"expired")
}

// Assistants have what other programs have.
func TestGoneURLByAssistants(t *testing.T) {
	r := newRig(t)
	r.calls("ann", "shorten", `{"longUrl":"https://example.com/","alias":"made",`+
		`"startsAtUtc":"2999-01-01T00:00:00Z"}`)
	r.calls("ann", "editLink", `{"alias":"made","goneUrl":"https://example.com/gone"}`)
	l, err := r.fake.Read(t.Context(), "made")
	if err != nil || l.StartsAt.Year() != 2999 || l.GoneURL != "https://example.com/gone" {
		t.Errorf("got %+v, %v", l, err)
	}
	found, _ := r.calls("ann", "listLinks", `{"state":"scheduled"}`)
	if text := fmt.Sprint(found); !strings.Contains(text, `https://example.com/gone`) {
		t.Errorf("listed %s", text)
	}
}
