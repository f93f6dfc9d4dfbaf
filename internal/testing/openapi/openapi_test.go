package openapi_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"tiney/internal/testing/openapi"
)

// The linter's recommended rules hold, except for the exceptions in .redocly.lint-ignore.yaml.
func TestLint(t *testing.T) {
	const linter = "node_modules/@redocly/cli/bin/cli.js"
	if _, err := os.Stat(linter); err != nil {
		t.Fatalf("the linter is not installed; run `make openapi` first (%v)", err)
	}
	lint := func(document string) (string, error) {
		cmd := exec.Command("node", linter, "lint", "--config", "redocly.yaml", "--format",
			"stylish", document)
		cmd.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off",
			"REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const file = "../../../functions/openapi.json"
	if out, err := lint(file); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	// A rule that is a warning by default fails too.
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	worse := t.TempDir() + "/openapi.json"
	if err := os.WriteFile(worse, []byte(strings.Replace(string(text), `"operationId": "shorten",`,
		"", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := lint(worse); err == nil || !strings.Contains(out, "operation-operationId") {
		t.Errorf("a document without an operationId: %v\n%s", err, out)
	}
}

func TestCheck(t *testing.T) {
	d, err := openapi.Load("../../..")
	if err != nil {
		t.Fatal(err)
	}
	const (
		short = `{"alias":"abc","domain":"tiney.to","shortUrl":"https://tiney.to/abc",` +
			`"longUrl":"https://example.com/","createdAtUtc":"2026-11-22T03:48:36Z",` +
			`"expiresAtUtc":null}`
		missing = `{"type":"/problems/not-found","title":"t","status":404,"detail":"d"}`
		method  = `{"type":"/problems/method","title":"t","status":405,"detail":"d"}`
		asked   = `{"longUrl":"https://example.com/"}`
	)
	text, json, problem, page := "text/plain", "application/json", "application/problem+json",
		"text/html; charset=utf-8"
	for _, test := range []struct {
		name, request, sent string
		status              int
		header              []string
		got                 string
		wrong               string // part of the error; "" for none
	}{
		{"a link", "POST /api/shorten", asked, 200, []string{"Content-Type", json}, short, ""},
		{"a path in another case", "POST /API/Shorten/", asked, 200, []string{"Content-Type", json},
			short, ""},
		{"a new link without Location", "POST /api/shorten", asked, 201,
			[]string{"Content-Type", json}, short, "Location"},
		{"a short URL that is none", "POST /api/shorten", asked, 200,
			[]string{"Content-Type", json}, strings.Replace(short, "https://tiney.to", "", 1),
			"shortUrl"},
		{"a member too many", "POST /api/shorten", asked, 200, []string{"Content-Type", json},
			strings.Replace(short, "{", `{"id":1,`, 1), "id"},
		{"a member too few", "POST /api/shorten", asked, 200, []string{"Content-Type", json},
			strings.Replace(short, `"alias":"abc",`, "", 1), "alias"},
		{"no time", "POST /api/shorten", asked, 200, []string{"Content-Type", json},
			strings.Replace(short, "T03:48:36Z", "", 1), "createdAtUtc"},
		{"another type", "POST /api/shorten", asked, 200, []string{"Content-Type", text}, short,
			text},
		{"a status that it has not", "POST /api/shorten", asked, 202,
			[]string{"Content-Type", json}, short, "202"},
		{"a request that should fail", "POST /api/shorten", `{"longUrl":"//example.com"}`, 200,
			[]string{"Content-Type", json}, short, "the request succeeded"},
		{"a header that it has not", "POST /api/shorten", asked, 200, []string{"Content-Type", json,
			"X-Cost", "1"}, short, "X-Cost"},
		{"a redirect", "GET /abc", "", 301, []string{"Location", "https://example.com/",
			"Cache-Control", "no-store", "X-Robots-Tag", "noindex"}, "", ""},
		{"a redirect with a path behind the alias", "GET /abc/x/y", "", 302, []string{"Location",
			"https://example.com/x/y", "Cache-Control", "no-store", "X-Robots-Tag", "noindex"}, "",
			""},
		{"a redirect with a slash behind the alias", "HEAD /abc/", "", 302, []string{"Location",
			"https://example.com/", "Cache-Control", "no-store", "X-Robots-Tag", "noindex"}, "", ""},
		{"a redirect that leads nowhere", "GET /abc", "", 308, []string{"Cache-Control", "no-store",
			"X-Robots-Tag", "noindex"}, "", "Location"},
		{"a redirect with a body", "GET /abc", "", 302, []string{"Location", "https://example.com/",
			"Cache-Control", "no-store", "X-Robots-Tag", "noindex"}, "x", "body"},
		{"a look at a link", "HEAD /abc", "", 404, []string{"Content-Type", problem}, "", ""},
		{"a look at a list", "HEAD /api/links", "", 200, []string{"Content-Type", json}, "", ""},
		{"a preview", "GET /abc+", "", 200, []string{"Content-Type", json}, short, ""},
		{"a page", "GET /abc+", "", 200, []string{"Content-Type", page}, "<p>", ""},
		{"a link that is called as a path", "HEAD /api/%6Cinks/bulk", "", 404,
			[]string{"Content-Type", problem}, "", ""},
		{"nothing there", "GET /a/b/c", "", 404, []string{"Content-Type", problem}, missing, ""},
		{"something where the document has nothing", "GET /api/b/c", "", 200,
			[]string{"Content-Type", json}, "{}", "no GET"},
		{"a kind of problem that it has not", "GET /a/b/c", "", 404,
			[]string{"Content-Type", problem}, strings.Replace(missing, "not-", "un", 1), "type"},
		{"a wrong method", "PUT /api/shorten", "", 405, []string{"Content-Type", problem, "Allow",
			"POST, OPTIONS"}, method, ""},
		{"a wrong method, without Allow", "PUT /api/shorten", "", 405,
			[]string{"Content-Type", problem}, method, "no PUT"},
		{"OPTIONS", "OPTIONS /api/shorten", "", 204, []string{"Allow", "POST, OPTIONS"}, "", ""},
	} {
		method, target, _ := strings.Cut(test.request, " ")
		r := httptest.NewRequest(method, target, strings.NewReader(test.sent))
		r.Header.Set("Content-Type", json)
		header := http.Header{}
		for i := 0; i < len(test.header); i += 2 {
			header.Set(test.header[i], test.header[i+1])
		}
		err := d.Check(r, []byte(test.sent), test.status, header, []byte(test.got))
		if (err == nil) != (test.wrong == "") || err != nil && !strings.Contains(err.Error(),
			test.wrong) {
			t.Errorf("%s: got %v, want %q", test.name, err, test.wrong)
		}
	}
}
