package e2e

import (
	"net/http"
	"strings"
	"testing"

	"tiney/internal/link"
	"tiney/internal/testing/funchost"
	"tiney/internal/testing/testutil"
)

// Domains and forwarding, on its own and behind every kind of host. What a host changes in paths
// and queries arrives as it was sent if the platform's front end repeats it.
func TestDomainsAndForwardingInEveryMode(t *testing.T) {
	t.Parallel()
	const both = link.ForwardQuery | link.ForwardPath
	settings := []string{"DOMAINS=go.example, http://go.example:8080", "ALIAS_CASE=insensitive",
		"RAW_URL_HEADER=X-WAWS-Unencoded-URL", "UNKNOWN_URL=https://unknown.example/{domain}/{alias}",
		"EXTRA_SCHEMES=mailto"}
	const query = "/docs?a=1&a=2&b=x+y&c"
	const path = "/docs/a%2Fb/%2Bc?x"
	for name, mode := range map[string]struct {
		proxy, frontEnd bool
		query, path     string // what follows the long URLs
	}{
		"on its own":                  {false, false, "?a=1&a=2&b=x+y&c", "/a%2Fb/%2Bc?x"},
		"behind a host that forwards": {false, false, "?a=1,2&b=x%20y&c=", "/a%2Fb/+c?x="},
		"behind a host that forwards, with a front end": {false, true, "?a=1&a=2&b=x+y&c",
			"/a%2Fb/%2Bc?x"},
		"behind a host that proxies": {true, false, "?a=1&a=2&b=x+y&c", "/a%252Fb/+c?x"},
		"behind a host that proxies, with a front end": {true, true, "?a=1&a=2&b=x+y&c",
			"/a%2Fb/%2Bc?x"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			for _, l := range []link.Link{
				{Name: "docs", Spelling: "Docs", LongURL: "https://main.example/p", Forward: both},
				{Name: "docs@go.example", LongURL: "https://go.test/p", Forward: both},
				{Name: "docs@go.example:8080", LongURL: "https://port.test/p", Forward: both},
				{Name: "Old@go.example", LongURL: "https://old.example/"},
			} {
				s.PutLink(l)
			}
			var base string
			if name == "on its own" {
				base = s.standalone(emulator.ConnectionString(), settings...).url
			} else {
				h, err := funchost.Start(ctx, funchost.Options{ScriptRoot: s.app, Proxy: mode.proxy,
					FrontEnd: mode.frontEnd, Output: t.Output(),
					Env: s.environment(emulator.ConnectionString(), settings...)})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(h.Close)
				base = h.URL()
			}
			location := func(target string, headers ...string) string {
				var got testutil.Response
				testutil.Eventually(t, target, func() bool {
					got = request(t, http.MethodGet, base+target, "", headers...)
					return got.Status != http.StatusServiceUnavailable
				})
				if got.Status != http.StatusFound {
					t.Errorf("%s %v: got %d %s", target, headers, got.Status, got.Body)
				}
				return got.Header.Get("Location")
			}
			for host, to := range map[string]string{"tiney.to": "https://main.example/p",
				"other.example": "https://main.example/p", "GO.example.:443": "https://go.test/p",
				"go.example:8080": "https://port.test/p"} {
				for _, target := range []struct{ sent, follows string }{{query, mode.query},
					{path, mode.path}, {"/docs", ""}, {"/DOCS/", ""}, {strings.Replace(query, "docs",
						"dOcs", 1), mode.query}} {
					if got := location(target.sent, "Host", host); got != to+target.follows {
						t.Errorf("%s of %s leads to %s, want %s", target.sent, host, got,
							to+target.follows)
					}
				}
			}
			if got := location("/Old", "Host", "go.example"); got != "https://old.example/" {
				t.Errorf("a row with capitals leads to %s", got)
			}
			for target, host := range map[string]string{"/nothing": "go.example",
				"/nothing/rest?x": "go.example:8080"} {
				want := "https://unknown.example/" + strings.Replace(host, ":", "%3A", 1) + "/nothing"
				if got := location(target, "Host", host, "Accept", "text/html"); got != want {
					t.Errorf("%s leads to %s, want %s", target, got, want)
				}
			}
			// Through the API, and back as a file.
			ann := owner(t, base, "ann")
			made := ann.must(201, "POST", "/api/shorten", `{"longUrl":"mailto:a@example.com",`+
				`"alias":"Mail","domain":"Go.Example"}`)
			if made["shortUrl"] != "https://go.example/Mail" || made["domain"] != "go.example" {
				t.Errorf("made %v", made)
			}
			if got := location("/mAIL", "Host", "go.example"); got != "mailto:a@example.com" {
				t.Errorf("it leads to %s", got)
			}
			for _, name := range []string{"mail@go.example", "MAIL@GO.example:443", "Mail%40go.example"} {
				if got := ann.must(200, "GET", "/api/links/"+name, ""); got["alias"] != "Mail" {
					t.Errorf("%s is %v", name, got)
				}
			}
			file := ann.send("GET", "/api/export?domain=go.example", "")
			if !strings.Contains(file.Body, `"domain":"go.example"`) ||
				strings.Count(file.Body, "\n") != 1 {
				t.Errorf("exported %s", file.Body)
			}
		})
	}
}
