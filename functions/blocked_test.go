package functions_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tiney/internal/link"
)

// block blocks a host.
func (r *rig) block(host link.Host) {
	r.t.Helper()
	if err := r.fake.Blocked.Add(r.t.Context(), host); err != nil {
		r.t.Fatal(err)
	}
}

func TestBlockedHosts(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now().Format(time.RFC3339)
	want := func(list ...string) {
		t.Helper()
		for i, host := range list {
			list[i] = fmt.Sprintf(`{"host":%q,"createdAtUtc":%q}`, host, now)
		}
		wantJSON(t, r.as("admin", "GET", "/api/blocked", ""),
			`{"items":[`+strings.Join(list, ",")+`]}`)
	}
	done := func(method, host string) {
		t.Helper()
		if w := r.as("admin", method, "/api/blocked/"+host, ""); w.Code != 204 ||
			w.Body.Len() != 0 || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: got %d %v %s", method, host, w.Code, w.Header(), w.Body)
		}
	}
	want()
	for _, host := range []string{"EXAMPLE.com.", "example.com/", "b%C3%BCcher.example",
		"xn--bcher-kva.example", "0x7f.1", "[::ffff:127.0.0.1]", "[2001:DB8::1]",
		"%5B2001%3Adb8%3A%3A1%5D"} {
		done("PUT", host)
	}
	want("127.0.0.1", "[2001:db8::1]", "example.com", "xn--bcher-kva.example")
	for _, host := range []string{"example.com:80", "example.com%3A80", "user@example.com",
		"https%3A%2F%2Fexample.com", "example.com%2Fpath", "a%20b", "*.example.com", "::1",
		"1.2.3.256", "%FF"} {
		for _, method := range []string{"PUT", "DELETE"} {
			wantProblem(t, r.as("admin", method, "/api/blocked/"+host, ""), 400, "host", "")
		}
	}
	// these are other paths of the API
	for _, host := range []string{"example.com/path", "https://example.com", "a/../example.com"} {
		wantProblem(t, r.as("admin", "PUT", "/api/blocked/"+host, ""), 404, "not-found", "")
	}
	done("DELETE", "BÜCHER.example")
	done("DELETE", "2130706433")
	for _, host := range []string{"127.0.0.1", "a.example.com", "com"} {
		wantProblem(t, r.as("admin", "DELETE", "/api/blocked/"+host, ""), 404, "not-found", "")
	}
	want("[2001:db8::1]", "example.com")

	r.fake.Fail(fmt.Errorf("secret: %w", link.ErrUnavailable))
	for request := range apiRoutes {
		method, target, _ := strings.Cut(request, " ")
		if !strings.HasPrefix(target, "/api/blocked") {
			continue
		}
		wantProblem(t, r.as("admin", method, target, ""), 503, "storage-unavailable", "")
		wantProblem(t, r.as("ann", method, target, ""), 403, "admin-needed", "")
	}
}

func TestLinksToBlockedHosts(t *testing.T) {
	const bad, good = "https://a.example.com/", "https://example.org/"
	r := newRig(t)
	r.fake.Put(link.Link{Name: "nobodys", LongURL: bad})
	r.fake.Put(link.Link{Name: "anns", LongURL: bad, Owner: "ann"})
	r.fake.Put(link.Link{Name: "deleted", LongURL: bad + "deleted", DeletedAt: r.clock.Now()})
	r.fake.Put(link.Link{Name: "well", LongURL: good, Owner: "ann"})
	block := func(method string) {
		t.Helper()
		if w := r.as("admin", method, "/api/blocked/Example.COM", ""); w.Code != 204 {
			t.Fatalf("got %d %s", w.Code, w.Body)
		}
	}
	block("PUT")
	for _, target := range []string{"/nobodys", "/anns", "/anns.", "/anns+"} {
		w := r.get(target)
		wantProblem(t, w, 410, "link-blocked", "")
		if w.Header().Get("Location") != "" || strings.Contains(w.Body.String(), "a.example.com") {
			t.Errorf("%s: got %v %s", target, w.Header(), w.Body)
		}
		if w := r.get(target, "Accept", "text/html"); w.Code != 410 ||
			!strings.Contains(w.Body.String(), "have blocked") {
			t.Errorf("%s: the page is %d %s", target, w.Code, w.Body)
		}
	}
	wantProblem(t, r.get("/deleted"), 410, "link-deleted", "")
	for who, body := range map[string]string{
		"": `{"longUrl":"` + bad + `"}`, "ann": `{"longUrl":"` + bad + `"}`,
		"admin": `{"longUrl":"HTTPS://EXAMPLE.COM./new"}`, "ben": `{"longUrl":"` + bad +
			`","alias":"bens"}`,
	} {
		wantProblem(t, r.as(who, "POST", "/api/shorten", body), 403, "target-blocked", "longUrl")
	}
	form := r.do("POST", "/", "longUrl=example.com", "Content-Type",
		"application/x-www-form-urlencoded")
	if form.Code != 403 || !strings.Contains(form.Body.String(),
		`id="url-error">The people who run this service have blocked`) {
		t.Errorf("the form: got %d %s", form.Code, form.Body)
	}
	r.wantMetrics(map[string]float64{"redirect.gone": 7, "shorten.rejected": 5})

	wantProblem(t, r.as("ann", "PATCH", "/api/links/well", `{"longUrl":"`+bad+`"}`), 403,
		"target-blocked", "longUrl")
	for _, request := range []string{
		`PATCH /api/links/anns {"longUrl":"` + bad + `","title":"the same"}`,
		`PATCH /api/links/anns {"disabled":true}`, `PATCH /api/links/anns {"disabled":false}`,
		"GET /api/links/anns ", "DELETE /api/links/anns ", "POST /api/links/anns/restore ",
		`PATCH /api/links/anns {"longUrl":"` + good + `"}`,
	} {
		method, rest, _ := strings.Cut(request, " ")
		target, body, _ := strings.Cut(rest, " ")
		if w := r.as("ann", method, target, body); w.Code != 200 && w.Code != 204 {
			t.Errorf("%s: got %d %s", request, w.Code, w.Body)
		}
	}
	for _, target := range []string{"/anns", "/well"} {
		if w := r.get(target); w.Header().Get("Location") != good {
			t.Errorf("%s: got %d %v", target, w.Code, w.Header())
		}
	}
	block("DELETE")
	if w := r.get("/nobodys"); w.Header().Get("Location") != bad {
		t.Errorf("not blocked any more: got %d %v", w.Code, w.Header())
	}
	wantStatus(t, r.shorten(`{"longUrl":"`+bad+`"}`), 200, "not blocked any more")
}
