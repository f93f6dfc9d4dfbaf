package functions_test

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/access"
	"tiney/internal/link"
)

const secretTarget = "https://secret.example/page?q=1"

// open opens a link as a program.
func (r *rig) open(alias, body string) *httptest.ResponseRecorder {
	return r.do("POST", "/api/links/"+alias+"/open", body)
}

// submit opens a link as a browser by the form of its page.
func (r *rig) submit(alias, password string, header ...string) *httptest.ResponseRecorder {
	return r.do("POST", "/api/links/"+alias+"/open", url.Values{"password": {password}}.Encode(),
		append(header, "Content-Type", "application/x-www-form-urlencoded", "Accept", "text/html")...)
}

func (r *rig) guarded(t *testing.T, alias, members string) {
	t.Helper()
	if w := r.as("ann", "POST", "/api/shorten", fmt.Sprintf(
		`{"longUrl":%q,"alias":%q,"title":"Secret title",%s}`, secretTarget, alias, members)); w.Code != 201 {
		t.Fatalf("made %d %s", w.Code, w.Body)
	}
}

func TestGuardAsMembers(t *testing.T) {
	r := newRig(t)
	r.guarded(t, "both", `"password":"open sesame","maxOpens":2`)
	read := members(t, r.as("ann", "GET", "/api/links/both", ""))
	if read["password"] != "true" || read["maxOpens"] != "2" || read["opensLeft"] != "2" {
		t.Errorf("it is %v", read)
	}
	r.guarded(t, "plain", `"tags":[]`)
	read = members(t, r.as("ann", "GET", "/api/links/plain", ""))
	if read["password"] != "false" || read["maxOpens"] != "null" || read["opensLeft"] != "null" {
		t.Errorf("without: %v", read)
	}
	for body, want := range map[string]string{
		`{"password":"short"}`: "password",
		`{"password":""}`:      "password",
		`{"password":7}`:       "password",
		`{"password":"` + strings.Repeat("a", 129) + `"}`:           "password",
		`{"password":"with\ttab"}`:                                  "password",
		`{"maxOpens":0}`:                                            "maxOpens",
		`{"maxOpens":-1}`:                                           "maxOpens",
		`{"maxOpens":1000001}`:                                      "maxOpens",
		`{"maxOpens":1.5}`:                                          "maxOpens",
		`{"maxOpens":"5"}`:                                          "maxOpens",
		`{"maxOpens":1,"forward":["query"]}`:                        "forward",
		`{"password":"open sesame","forward":["path"]}`:             "forward",
		`{"opensLeft":1}`:                                           "opensLeft",
		`{"passwordHash":"$argon2id$v=19$m=8,t=1,p=1$YWFhYWFhYWE"}`: "passwordHash",
	} {
		for what, w := range map[string]*httptest.ResponseRecorder{
			"shorten": r.as("ann", "POST", "/api/shorten",
				`{"longUrl":"https://example.com/",`+body[1:]),
			"edit": r.as("ann", "PATCH", "/api/links/plain", body),
		} {
			if w.Code != 400 || !strings.Contains(w.Body.String(), `"field":"`+want+`"`) {
				t.Errorf("%s %s: %d %s", what, body, w.Code, w.Body)
			}
		}
	}
	// Without credentials, and with a claim token, nobody guards a link.
	for _, body := range []string{`"password":"open sesame"`, `"maxOpens":3`} {
		w := r.shorten(`{"longUrl":"https://example.com/x",` + body + `}`)
		wantProblem(t, w, 401, "credentials-missing", "")
	}
	// The history says that there was a password, and not which one.
	r.as("ann", "PATCH", "/api/links/both", `{"password":"another one","maxOpens":5}`)
	r.as("ann", "PATCH", "/api/links/both", `{"password":null,"maxOpens":null}`)
	history := r.as("ann", "GET", "/api/links/both/history", "").Body.String()
	for _, want := range []string{`{"maxOpens":2,"password":true}`, `{"maxOpens":5,"password":true}`} {
		if !strings.Contains(history, `"before":`+want) {
			t.Errorf("the history is %s, without %s", history, want)
		}
	}
	if strings.Contains(history, "argon2id") {
		t.Errorf("the history has a hash: %s", history)
	}
}

// A wish for a guarded link is another wish than one for its URL alone.
func TestGuardedLinksAreNotTheURLsOwn(t *testing.T) {
	r := newRig(t)
	shorten := func(further string) map[string]string {
		t.Helper()
		w := r.as("ann", "POST", "/api/shorten", `{"longUrl":"https://example.com/"`+further+`}`)
		got := members(t, w)
		got["code"] = fmt.Sprint(w.Code)
		return got
	}
	first := shorten(``)
	guarded := shorten(`,"password":"open sesame"`)
	if guarded["code"] != "201" || guarded["alias"] == first["alias"] ||
		guarded["password"] != "true" {
		t.Errorf("got %v", guarded)
	}
	if again := shorten(``); again["alias"] != first["alias"] || again["code"] != "200" {
		t.Errorf("without a guard: %v", again)
	}
	name := strings.Trim(first["alias"], `"`)
	r.as("ann", "PATCH", "/api/links/"+name, `{"password":"open sesame","maxOpens":3}`)
	if same := shorten(`,"password":"open sesame","maxOpens":3`); same["alias"] != first["alias"] ||
		same["code"] != "200" || same["password"] != "true" || same["maxOpens"] != "3" {
		t.Errorf("the same guard: %v", same)
	}
	for _, other := range []string{`,"password":"open sesame","maxOpens":4`, `,"maxOpens":3`,
		`,"password":"open sesam3","maxOpens":3`, `,"password":"open sesame"`} {
		if got := shorten(other); got["code"] != "201" || got["alias"] == first["alias"] {
			t.Errorf("%s: %v", other, got)
		}
	}
	shorten(`,"alias":"plain"`)
	if got := shorten(`,"alias":"plain","password":"open sesame"`); got["code"] != "200" ||
		got["password"] != "false" || got["maxOpens"] != "null" {
		t.Errorf("a 200 of a link without the guard that was asked for: %v", got)
	}
	if got := shorten(``); got["alias"] != first["alias"] || got["password"] != "true" ||
		got["maxOpens"] != "3" {
		t.Errorf("a 200 of a guarded link: %v", got)
	}
}

// Nothing tells where a guarded link leads before it is opened.
func TestGuardPage(t *testing.T) {
	r := newRig(t, withSchemes)
	r.guarded(t, "pass", `"password":"open sesame"`)
	r.guarded(t, "few", `"maxOpens":1`)
	r.block("secret.example")
	secret := regexp.MustCompile(`(?i)secret|ann\b`)
	for _, alias := range []string{"pass", "few"} {
		for _, path := range []string{"/" + alias, "/" + alias + "+", "/" + alias + "?utm_source=News"} {
			w := r.get(path, "Accept", "text/html")
			body := w.Body.String()
			if w.Code != 200 || w.Header().Get("Cache-Control") != "no-store" ||
				secret.MatchString(body+fmt.Sprint(w.Header())) ||
				!strings.Contains(w.Header().Get("Content-Security-Policy"),
					"form-action 'self' http: https: mailto:") ||
				w.Header().Get("Referrer-Policy") != "same-origin" {
				t.Errorf("%s: %d %v %s", path, w.Code, w.Header(), body)
			}
			action := `action="./api/links/` + alias + `/open"`
			if strings.Contains(path, "?") {
				action = `action="./api/links/` + alias + `/open?utm_source=news"`
			}
			if !strings.Contains(body, action) ||
				strings.Contains(body, "required") != (alias == "pass") {
				t.Errorf("%s: the page is %s", path, body)
			}
			p := r.get(path)
			wantProblem(t, p, 403, "link-guarded", "")
			if secret.MatchString(p.Body.String()) {
				t.Errorf("%s: the problem is %s", path, p.Body)
			}
		}
		wantProblem(t, r.get("/"+alias+"/rest"), 404, "not-found", "")
	}
	wantProblem(t, r.open("pass", `{"password":"wrong one"}`), 403, "wrong-password", "password")
	wantProblem(t, r.open("pass", `{"password":"open sesame"}`), 410, "link-blocked", "")
	wantProblem(t, r.open("few", ``), 410, "link-blocked", "")
	if left := members(t, r.as("ann", "GET", "/api/links/few", ""))["opensLeft"]; left != "1" {
		t.Errorf("a blocked one was opened: %s left", left)
	}
}

func TestOpen(t *testing.T) {
	r := newRig(t)
	r.guarded(t, "pass", `"password":"Åpne sesam"`)
	for _, right := range []string{"Åpne sesam", "A\u030apne sesam"} { // in NFD
		for _, w := range []*httptest.ResponseRecorder{r.submit("pass", right),
			r.open("pass", fmt.Sprintf(`{"password":%q}`, right))} {
			if w.Code != 303 || w.Header().Get("Location") != secretTarget ||
				w.Header().Get("Cache-Control") != "no-store" {
				t.Errorf("%q: %d %v", right, w.Code, w.Header())
			}
		}
	}
	for _, wrong := range []string{"", "åpne sesam", "x", strings.Repeat("x", 3000)} {
		w := r.submit("pass", wrong)
		if body := w.Body.String(); w.Code != 403 || !strings.Contains(body, `aria-invalid="true"`) ||
			strings.Contains(body, "secret") {
			t.Errorf("%q: %d %s", wrong, w.Code, w.Body)
		}
		wantProblem(t, r.open("pass", fmt.Sprintf(`{"password":%q}`, wrong)), 403, "wrong-password",
			"password")
	}
	r.guarded(t, "plain", `"tags":[]`)
	if w := r.open("plain", ""); w.Code != 303 || w.Header().Get("Location") != secretTarget {
		t.Errorf("a link without a guard: %d", w.Code)
	}
	wantProblem(t, r.open("missing", ""), 404, "not-found", "")
	wantProblem(t, r.open("pass", `{"password":7}`), 400, "password", "password")
	wantProblem(t, r.open("pass", `{"other":"7"}`), 400, "body", "other")
	wantProblem(t, r.open("pass", strings.Repeat(" ", 5000)), 413, "body-too-large", "")
	foreign := r.submit("pass", "Åpne sesam", "Sec-Fetch-Site", "cross-site")
	if foreign.Code != 403 || foreign.Header().Get("Location") != "" {
		t.Errorf("a foreign form: %d", foreign.Code)
	}
	// A browser gets pages for errors, also where the owner sends those who come too late.
	r.as("ann", "PATCH", "/api/links/pass", `{"goneUrl":"https://gone.example/"}`)
	r.as("ann", "DELETE", "/api/links/pass", "")
	if w := r.submit("pass", "Åpne sesam"); w.Code != 410 ||
		!strings.Contains(w.Body.String(), "This link has been deleted") {
		t.Errorf("a deleted one: %d %s", w.Code, w.Body)
	}
}

// However many open a link at once, it leads as often as it may, ends, and can be given more.
func TestMaxOpens(t *testing.T) {
	r := newRig(t)
	r.guarded(t, "few", `"maxOpens":7,"expiresInSeconds":864000`)
	end := members(t, r.as("ann", "GET", "/api/links/few", ""))["expiresAtUtc"]
	openAll := func(callers int) int64 {
		var led atomic.Int64
		var all sync.WaitGroup
		for range callers {
			all.Go(func() {
				if w := r.open("few", ""); w.Code == 303 {
					led.Add(1)
				} else if w.Code != 410 {
					t.Errorf("got %d %s", w.Code, w.Body)
				}
			})
		}
		all.Wait()
		return led.Load()
	}
	etag := r.as("ann", "GET", "/api/links/few", "").Header().Get("ETag")
	if n := openAll(3); n != 3 {
		t.Errorf("it led %d times of 3", n)
	}
	read := r.as("ann", "GET", "/api/links/few", "")
	if now := read.Header().Get("ETag"); now != etag || members(t, read)["opensLeft"] != "4" {
		t.Errorf("openings changed the ETag from %s to %s, or %s", etag, now, read.Body)
	}
	if n := openAll(20); n != 4 {
		t.Errorf("it led %d times of 4", n)
	}
	for path, kind := range map[string]string{"/few": "link-expired", "/few+": "link-expired"} {
		wantProblem(t, r.get(path), 410, kind, "")
	}
	wantProblem(t, r.as("ann", "PATCH", "/api/links/few", `{"expiresInSeconds":600}`), 400,
		"max-opens", "maxOpens")
	w := r.as("ann", "PATCH", "/api/links/few", `{"title":"x"}`)
	if w.Code != 200 || members(t, w)["opensLeft"] != "0" {
		t.Errorf("another title: %d %s", w.Code, w.Body)
	}
	w = r.as("ann", "PATCH", "/api/links/few", `{"maxOpens":2}`)
	if got := members(t, w); got["expiresAtUtc"] != end || got["opensLeft"] != "2" {
		t.Errorf("given more: %s, want the end %s", w.Body, end)
	}
	if n := openAll(5); n != 2 {
		t.Errorf("it led %d times of 2", n)
	}
	w = r.as("ann", "PATCH", "/api/links/few", `{"maxOpens":1,"expiresInSeconds":600}`)
	if got := members(t, w); w.Code != 200 || got["expiresAtUtc"] == end {
		t.Errorf("a new end: %s", w.Body)
	}
	r.open("few", "")
	w = r.as("ann", "PATCH", "/api/links/few", `{"maxOpens":null,"expiresAtUtc":null}`)
	if got := members(t, w); got["expiresAtUtc"] != "null" || got["opensLeft"] != "null" {
		t.Errorf("no limit: %s", w.Body)
	}
	wantStatus(t, r.get("/few"), 302, "without a guard")
	r.as("ann", "PATCH", "/api/links/few", `{"maxOpens":1}`)
	r.open("few", "")
	r.clock.Advance(10 * time.Minute)
	if _, err := r.fake.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantProblem(t, r.as("ann", "GET", "/api/links/few", ""), 404, "not-found", "")
	wantProblem(t, r.open("few", ""), 410, "link-expired", "")
}

// A rule is drawn once for an opening, also for one that is counted.
func TestPercentOfOpenings(t *testing.T) {
	r := newRig(t)
	r.guarded(t, "few", `"maxOpens":1000,"rules":[{"percent":50,"longUrl":"https://evil.example/"}]`)
	r.block("evil.example")
	led := 0
	for range 400 {
		if w := r.open("few", ""); w.Code == 303 {
			led++
		}
	}
	if led < 140 || led > 260 { // six times the standard deviation
		t.Errorf("a rule of 50 %% let %d of 400 through", led)
	}
}

// Many right passwords at once are no wrong ones.
func TestRightPasswordsAtOnce(t *testing.T) {
	r := newRig(t)
	r.guarded(t, "pass", `"password":"open sesame"`)
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			if w := r.open("pass", `{"password":"open sesame"}`); w.Code != 303 && w.Code != 503 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
	all.Wait()
}

// Wrong passwords are limited by address, and of one link for all addresses together.
func TestWrongPasswordsAreLimited(t *testing.T) {
	skipIfRaced(t)
	r := newRig(t, func(c *functions.Config) { c.Rates[access.LimitUnknown] = 50 })
	r.guarded(t, "pass", `"password":"open sesame"`)
	const wrong, right = `{"password":"no sesame"}`, `{"password":"open sesame"}`
	for i := range 20 {
		if i%2 == 0 {
			if w := r.open("pass", right); w.Code != 303 {
				t.Fatalf("right, %d: %d %s", i, w.Code, w.Body)
			}
		}
		wantProblem(t, r.open("pass", wrong), 403, "wrong-password", "password")
	}
	// Each address has one try now.
	wantProblem(t, r.open("pass", wrong), 403, "wrong-password", "password")
	wantProblem(t, r.open("pass", wrong), 429, "rate-limited", "")
	wantProblem(t, r.open("pass", right), 429, "rate-limited", "")
	r.clock.Advance(31 * time.Second)
	for range 3 {
		wantStatus(t, r.open("pass", right), 303, "after half a minute")
	}
}

// A password costs memory, so the memory that many of them take at once is bounded.
func TestPasswordsAtOnceTakeLittleMemory(t *testing.T) {
	r := newRig(t, func(c *functions.Config) { c.Rates = access.Rates{} })
	r.guarded(t, "pass", `"password":"open sesame"`)
	const most = 100 << 20 // bytes; with what the process has without it, less than 150 MB
	var took uint64
	for range 3 { // what other tests have left may count, too
		var led atomic.Int64
		took = heapOf(80, func() {
			switch w := r.open("pass", `{"password":"open sesame"}`); w.Code {
			case 303:
				led.Add(1)
			default: // their time was over before their turn came
				wantProblem(t, w, 503, "busy", "")
			}
		})
		if led.Load() == 0 {
			t.Error("none was opened")
		}
		if took <= most {
			return
		}
	}
	t.Errorf("%d MB more", took>>20)
}

// A guarded link is exported with its hash, and comes in again with it.
func TestGuardedLinksMove(t *testing.T) {
	r := newRig(t)
	r.guarded(t, "both", `"password":"open sesame","maxOpens":3`)
	r.open("both", `{"password":"open sesame"}`)
	r.guarded(t, "used", `"maxOpens":1,"expiresInSeconds":864000`)
	r.open("used", "")
	for _, format := range []string{"ndjson", "csv"} {
		file := r.as("ann", "GET", "/api/export?format="+format, "").Body.String()
		other := newRig(t)
		results := other.importFile("ann", "?format="+format, file)
		if len(results) != 2 || results[0].Status != 201 || results[1].Status != 201 {
			t.Fatalf("%s: imported %+v of %s", format, results, file)
		}
		for alias, want := range map[string]link.Guard{"both": {MaxOpens: 3, OpensLeft: 2},
			"used": {MaxOpens: 1}} {
			was, _ := r.fake.Read(t.Context(), link.Name(alias))
			l, err := other.fake.Read(t.Context(), link.Name(alias))
			if err != nil || l.MaxOpens != want.MaxOpens || l.OpensLeft != want.OpensLeft ||
				l.Guard != was.Guard || !l.ExpiresAt.Equal(was.ExpiresAt) {
				t.Errorf("%s: %s came in as %+v, was %+v (%v)", format, alias, l, was, err)
			}
		}
		wantStatus(t, other.open("both", `{"password":"open sesame"}`), 303, format)
	}
	// Nobody else learns by an import where it leads.
	for _, query := range []string{"", "?dryRun=true"} {
		got := r.importFile("bob", query, line("both", secretTarget, ""))
		if got[0].Status != 409 {
			t.Errorf("%s: another's guess of a target: %+v", query, got[0])
		}
	}
	for member, want := range map[string]string{
		`"password":true`:            "passwordHash",
		`"passwordHash":"x"`:         "passwordHash",
		`"maxOpens":2,"opensLeft":3`: "opensLeft",
		`"opensLeft":3`:              "opensLeft",
		`"maxOpens":0`:               "maxOpens",
		`"password":false,"passwordHash":"` + costly + `"`: "passwordHash",
		`"maxOpens":2000000`:                 "maxOpens",
		`"maxOpens":-1`:                      "maxOpens",
		`"passwordHash":"` + costly + `"`:    "passwordHash",
		`"maxOpens":1,"forward":["query"]`:   "forward",
		`"maxOpens":1,"opensLeft":"several"`: "opensLeft",
	} {
		got := r.importFile("ann", "", line("x", "https://example.com/", ","+member))
		if got[0].Status != 400 || !strings.Contains(got[0].Problem.Field+got[0].Problem.Detail, want) {
			t.Errorf("%s: %+v", member, got[0])
		}
	}
}

const costly = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHRzb21l$" +
	"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
