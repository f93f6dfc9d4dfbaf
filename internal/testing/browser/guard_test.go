package browser

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"tiney/internal/testing/testutil"
)

// A guarded link opens by its page, with scripts and without them, and the browser follows to
// another website under the page's Content-Security-Policy.
func TestGuardPage(t *testing.T) {
	t.Parallel()
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<title>there</title><p id=there>You are there"))
	}))
	defer target.Close()
	there := strings.Replace(target.URL, "127.0.0.1", "there.test", 1)
	s := serve(t, "CLICKS_FLUSH_SECONDS=1")
	ada := s.keyOf(t, "ada")
	s.as(t, ada, "POST", "/api/shorten", `{"alias":"both","longUrl":"`+there+
		`/secret","title":"Secret","password":"open sesame","maxOpens":2}`)
	s.as(t, ada, "POST", "/api/shorten", `{"alias":"once","longUrl":"`+there+
		`/secret","maxOpens":1}`)
	for _, scripts := range []bool{true, false} {
		p := chromium.New(t)
		p.Width(390)
		if !scripts {
			p.NoScripts()
		}
		if status := p.Open(s.url + "/both?utm_source=News"); status != 200 {
			t.Errorf("the page is %d", status)
		}
		if scripts {
			p.Check("a guarded link")
			p.Dark(true)
			p.Check("a guarded link, dark")
			look(t, p, "guard-dark")
			p.Dark(false)
			look(t, p, "guard")
			p.wantFocus("password")
			p.Press("wrong one" + kb.Enter)
			p.Await("#wrong", "The password is missing or wrong")
			p.wantFocus("password")
			p.Check("a wrong password")
		}
		p.Fill("#password", "open sesame")
		p.Click("button")
		p.Await("#there", "You are there")
	}
	p := chromium.New(t)
	p.Open(s.url + "/once")
	p.Await("h1", "Open this link?")
	p.Check("a link that opens once")
	p.Click("button")
	p.Await("#there", "You are there")
	p.Open(s.url + "/once")
	p.Await("h1", "This link has expired")
	testutil.Eventually(t, "the openings are counted", func() bool {
		stats := s.as(t, ada, "GET", "/api/links/both/stats", "")
		return stats["bots"] == 2.0 // headless ones are
	})
}

// The form of a link sets what a link asks for, changes it and takes it away. It never has the
// password that the link has.
func TestManageGuard(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ada := s.keyOf(t, "ada")
	p := s.manage(t, ada)
	p.GoTo("#/new", "#link-title", "New link")
	p.wantFocus("longUrl")
	p.Press("https://example.com/")
	p.Fill("#alias", "guarded")
	p.Click("#options summary")
	p.Fill("#password", "short")
	p.Click("#save")
	p.Await("#password-error", "6 to 128 characters")
	p.wantFocus("password")
	p.Check("a password that is too short")
	p.Fill("#password", "open sesame")
	p.Fill("#maxOpens", "2")
	p.Click("#save")
	p.Await("#link-about", "asks for a password · 2 of 2 openings left")
	p.edit()
	p.AwaitTrue(find("#maxOpens") + `.value === "2"`)
	if p.Value("#password") != "" || Eval[bool](p, find("#discard")+".checkVisibility()") {
		t.Error("the form has the password, or something to discard")
	}
	p.Check("the form of a guarded link")
	p.Width(320)
	p.Check("the form of a guarded link, narrow")
	p.Width(1100)
	for range 2 {
		got, err := testutil.Send("POST", s.url+"/api/links/guarded/open",
			`{"password":"open sesame"}`, "Content-Type", "application/json")
		if err != nil || got.Status != 303 {
			t.Fatalf("opened %+v %v", got, err)
		}
	}
	p.GoTo("#/", "#list-rows", "Password · 0 left")
	p.Check("a list with a guarded link")
	p.openLink("guarded")
	p.Await("#link-about", "0 of 2 openings left")
	p.Fill("#maxOpens", "3")
	p.Click("#password-off")
	p.Click("#save")
	p.Await("#toast", "Saved")
	p.Await("#link-about", "3 of 3 openings left")
	if about := p.Text("#link-about"); strings.Contains(about, "password") {
		t.Errorf("the link is %s", about)
	}
	if Eval[bool](p, find("#password-drop")+".checkVisibility()") {
		t.Error("there is a password to take away")
	}
	if got := s.as(t, ada, "GET", "/api/links/guarded", ""); got["password"] != false ||
		got["opensLeft"] != 3.0 || got["expiresAtUtc"] != nil {
		t.Errorf("the link is %v", got)
	}
}
