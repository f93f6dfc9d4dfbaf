package e2e

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/testutil"
)

// scene is one process with its tables, and the callers that send requests to it.
type scene struct {
	*site
	anyone, owner caller
}

// with returns the scene for a subtest.
func (s scene) with(t *testing.T) scene {
	s.anyone.t, s.owner.t = t, t
	return s
}

// want sends a request without credentials. It fails the test unless the response has this status,
// and has contains in its body. It repeats the request after a 503, which a busy machine may cause;
// a link may have been made by then.
func (s scene) want(status int, contains, method, target, body string,
	headers ...string) (got testutil.Response) {
	s.anyone.t.Helper()
	again := false
	testutil.Eventually(s.anyone.t, method+" "+target, func() bool {
		got = s.anyone.send(method, target, body, headers...)
		again = again || got.Status == 503
		return got.Status != 503
	})
	if got.Status != status && !(again && status == 201 && got.Status == 200) ||
		!strings.Contains(got.Body, contains) {
		s.anyone.t.Fatalf("%s %s %.200s: got %d %.500s, want %d with %q", method, target, body,
			got.Status, got.Body, status, contains)
	}
	return got
}

// make makes a link. The link must be new.
func (s scene) make(body string) (l shortLink) {
	s.anyone.t.Helper()
	got := s.want(201, `"shortUrl":"https://tiney.to/`, "POST", "/api/shorten", body)
	if err := json.Unmarshal([]byte(got.Body), &l); err != nil {
		s.anyone.t.Fatal(err)
	}
	return l
}

// of returns the request body that asks for a link of a URL.
func of(longURL string) string {
	body, _ := json.Marshal(map[string]string{"longUrl": longURL}) // a text is always JSON
	return string(body)
}

// atOnce makes n links concurrently, and returns their aliases.
func (s scene) atOnce(n int, name string) map[string]bool {
	s.anyone.t.Helper()
	aliases := make([]string, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			longURL := fmt.Sprintf("https://example.com/%s/%d", name, i)
			l, status := shorten(s.anyone.t, s.anyone.base, longURL)
			for tries := 1; status == 503 && tries < 10; tries++ {
				l, status = shorten(s.anyone.t, s.anyone.base, longURL)
			}
			if aliases[i] = l.Alias; status != 200 && status != 201 {
				s.anyone.t.Errorf("got %d", status)
			}
		})
	}
	all.Wait()
	return distinct(s.anyone.t, aliases)
}

// inARow makes n links, one after the other, and returns their aliases.
func (s scene) inARow(n int, name string) map[string]bool {
	s.anyone.t.Helper()
	aliases := make([]string, n)
	for i := range aliases {
		aliases[i] = s.make(of(fmt.Sprintf("https://example.com/%s/%d", name, i))).Alias
	}
	return distinct(s.anyone.t, aliases)
}

func distinct(t *testing.T, aliases []string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, a := range aliases {
		all[a] = true
	}
	if len(all) != len(aliases) {
		t.Errorf("%d aliases of %d links", len(all), len(aliases))
	}
	return all
}

// leads checks that an alias redirects to a URL.
func (s scene) leads(alias, location string) {
	s.anyone.t.Helper()
	if got := s.want(302, "", "GET", "/"+alias, "").Header.Get("Location"); got != location {
		s.anyone.t.Errorf("Location %q, want %q", got, location)
	}
}

// person has the headers of a browser whose clicks count.
var person = []string{"User-Agent",
	"Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0"}

// scenarios are the tests that another design of a URL shortener lists, by their groups and names
// there. here says where this service answers differently.
var scenarios = []struct {
	name, here string
	run        func(s scene)
}{
	{"status/health", "", func(s scene) {
		s.want(200, `"status":"healthy"`, "GET", "/api/health", "")
	}},
	{"status/root", "the root is a page; the version is in health", func(s scene) {
		s.want(200, "<title>tiney", "GET", "/", "")
		s.want(200, `"version":"`, "GET", "/api/health", "")
	}},

	{"create/basic", "", func(s scene) {
		l := s.make(of("https://example.com/basic"))
		if l.LongURL != "https://example.com/basic" || l.ShortURL != "https://tiney.to/"+l.Alias ||
			time.Since(l.CreatedAtUTC) > time.Minute || !l.ExpiresAtUTC.After(l.CreatedAtUTC) {
			s.anyone.t.Errorf("got %+v", l)
		}
	}},
	{"create/chosen code", "", func(s scene) {
		const body = `{"longUrl":"https://example.com/chosen","alias":"chosen-1"}`
		if l := s.make(body); l.Alias != "chosen-1" {
			s.anyone.t.Errorf("got %+v", l)
		}
		s.want(409, "/problems/alias-taken", "POST", "/api/shorten", body)
	}},
	{"create/with expiry in seconds", "", func(s scene) {
		l := s.make(`{"longUrl":"https://example.com/seconds","expiresInSeconds":3600}`)
		if l.ExpiresAtUTC.Sub(l.CreatedAtUTC) != time.Hour {
			s.anyone.t.Errorf("got %+v", l)
		}
	}},
	{"create/with expiry as a date", "", func(s scene) {
		end := time.Now().Add(48 * time.Hour).Truncate(time.Second)
		if l := s.make(fmt.Sprintf(`{"longUrl":"https://example.com/date","expiresAtUtc":%q}`,
			end.Format(time.RFC3339))); !l.ExpiresAtUTC.Equal(end) {
			s.anyone.t.Errorf("got %+v, want an end at %s", l, end)
		}
	}},
	{"create/malformed URL", "", func(s scene) {
		s.want(400, `"field":"longUrl"`, "POST", "/api/shorten", of("not a url"))
	}},
	{"create/empty URL", "", func(s scene) {
		s.want(400, `"field":"longUrl"`, "POST", "/api/shorten", of(""))
	}},
	{"create/missing URL", "", func(s scene) {
		s.want(400, `"field":"longUrl"`, "POST", "/api/shorten", "{}")
	}},
	{"create/the same URL twice", "the second is a 200, with the first one's link", func(s scene) {
		l := s.make(of("https://example.com/twice"))
		s.want(200, fmt.Sprintf(`"alias":%q`, l.Alias), "POST", "/api/shorten",
			of("https://example.com/twice"))
	}},

	{"read/details by alias",
		"only its owner, or who has its claim token, may read a link", func(s scene) {
			made := s.owner.must(201, "POST", "/api/shorten", of("https://example.com/details"))
			read := s.owner.must(200, "GET", "/api/links/"+made["alias"].(string), "")
			for _, name := range []string{"alias", "shortUrl", "longUrl", "createdAtUtc",
				"expiresAtUtc"} {
				if read[name] != made[name] {
					s.anyone.t.Errorf("%s is %v, and was %v", name, read[name], made[name])
				}
			}
			s.want(401, "credentials-missing", "GET", "/api/links/"+made["alias"].(string), "")
		}},
	{"read/redirect", "", func(s scene) {
		s.leads(s.make(of("https://example.com/redirect")).Alias, "https://example.com/redirect")
	}},
	{"read/unknown", "", func(s scene) {
		s.want(404, "/problems/not-found", "GET", "/unknown1", "")
	}},
	{"read/expired", "", func(s scene) {
		s.PutLink(link.Link{Name: "expired1", LongURL: "https://example.com/expired",
			ExpiresAt: time.Now().Add(-time.Minute)})
		s.want(410, "/problems/link-expired", "GET", "/expired1", "")
	}},

	{"statistics/clicks, created, last access",
		"the link says when it was made, and its statistics the rest", func(s scene) {
			made := s.owner.must(201, "POST", "/api/shorten", of("https://example.com/seen"))
			alias := made["alias"].(string)
			s.want(302, "", "GET", "/"+alias, "", person...)
			testutil.Eventually(s.anyone.t, "the click counts", func() bool {
				stats := s.owner.must(200, "GET", "/api/links/"+alias+"/stats", "")
				last, _ := stats["lastAtUtc"].(string)
				at, err := time.Parse(time.RFC3339, last)
				return stats["clicks"] == 1.0 && err == nil && time.Since(at) < time.Hour
			})
			if read := s.owner.must(200, "GET", "/api/links/"+alias,
				""); read["createdAtUtc"] != made["createdAtUtc"] || made["createdAtUtc"] == nil {
				s.anyone.t.Errorf("got %v, and %v was made", read, made)
			}
		}},
	{"statistics/clicks count up",
		"a click counts once it is flushed; bots count apart", func(s scene) {
			alias := s.owner.must(201, "POST", "/api/shorten",
				of("https://example.com/counted"))["alias"].(string)
			for n := 5; n <= 10; n += 5 {
				for range 5 {
					s.want(302, "", "GET", "/"+alias, "", person...)
				}
				var got any
				testutil.Eventually(s.anyone.t, fmt.Sprintf("%d clicks count", n), func() bool {
					got = s.owner.must(200, "GET", "/api/links/"+alias+"/stats", "")["clicks"]
					return got == float64(n)
				})
			}
		}},

	{"delete/delete", "", func(s scene) {
		alias := s.owner.must(201, "POST", "/api/shorten",
			of("https://example.com/deleted"))["alias"].(string)
		s.leads(alias, "https://example.com/deleted")
		s.owner.must(204, "DELETE", "/api/links/"+alias, "")
		s.want(410, "/problems/link-deleted", "GET", "/"+alias, "")
	}},
	{"delete/unknown", "", func(s scene) {
		s.owner.must(404, "DELETE", "/api/links/unknown1", "")
	}},

	{"validation/javascript:", "", func(s scene) {
		s.want(400, `"field":"longUrl"`, "POST", "/api/shorten", of("javascript:alert(1)"))
	}},
	{"validation/data:", "", func(s scene) {
		s.want(400, `"field":"longUrl"`, "POST", "/api/shorten",
			of("data:text/html,<script>alert(1)</script>"))
	}},
	{"validation/file:", "", func(s scene) {
		s.want(400, `"field":"longUrl"`, "POST", "/api/shorten", of("file:///etc/passwd"))
	}},
	{"validation/SQL in an alias", "", func(s scene) { s.nothing("'; DROP TABLE ShortUrls; --") }},
	{"validation/../../../etc/passwd as alias",
		"", func(s scene) { s.nothing("../../../etc/passwd") }},

	{"expiry/alive before",
		"the shortest life is a minute, so the link is put into the table", func(s scene) {
			s.PutLink(link.Link{Name: "alive1", LongURL: "https://example.com/alive",
				ExpiresAt: time.Now().Add(time.Minute)})
			s.leads("alive1", "https://example.com/alive")
		}},
	{"expiry/gone after its time", "likewise", func(s scene) {
		s.PutLink(link.Link{Name: "short1", LongURL: "https://example.com/short",
			ExpiresAt: time.Now().Add(3 * time.Second)})
		testutil.Eventually(s.anyone.t, "the link expires", func() bool {
			got := s.anyone.send("GET", "/short1", "")
			return got.Status == 410 && strings.Contains(got.Body, "/problems/link-expired")
		})
	}},

	{"integrity/URL kept as sent", "", func(s scene) {
		const longURL = "HTTPS://Example.com:443/a/../b//%7e?B=2&a=1&a=#Frag<x>"
		l := s.make(of(longURL))
		if l.LongURL != longURL {
			s.anyone.t.Errorf("got %q", l.LongURL)
		}
		s.leads(l.Alias, longURL)
	}},
	{"integrity/50 aliases distinct", "", func(s scene) { s.inARow(50, "distinct") }},
	{"integrity/query kept", "", func(s scene) {
		const longURL = "https://example.com/search?q=a+b%20c&lang=de&q=%C3%BC&empty="
		s.leads(s.make(of(longURL)).Alias, longURL)
	}},
	{"integrity/non-ASCII paths", "Location is the ASCII form; what is kept is not", func(s scene) {
		l := s.make(of("https://bücher.example/straße/日本"))
		if l.LongURL != "https://bücher.example/straße/日本" {
			s.anyone.t.Errorf("got %q", l.LongURL)
		}
		s.leads(l.Alias, "https://xn--bcher-kva.example/stra%C3%9Fe/%E6%97%A5%E6%9C%AC")
	}},

	{"aliases/format", "always 6, by ALIAS_LENGTH", func(s scene) {
		for alias := range s.inARow(10, "format") {
			if len(alias) != 6 || strings.Trim(alias,
				"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") != "" {
				s.anyone.t.Errorf("%q is no alias of 6 letters and digits", alias)
			}
		}
	}},
	{"aliases/20 concurrent creates", "", func(s scene) { s.atOnce(20, "concurrent") }},
	{"aliases/30 in a row", "", func(s scene) { s.inARow(30, "row") }},
	{"aliases/1,000 in a row, 20 different first characters", "", func(s scene) {
		// Storage would take most of the time.
		s.anyone.base = s.standalone("", "TABLE_CONNECTION=memory").url
		first := map[byte]bool{}
		for alias := range s.inARow(1000, "thousand") {
			first[alias[0]] = true
		}
		if len(first) < 20 {
			s.anyone.t.Errorf("%d different first characters", len(first))
		}
	}},

	{"edges/2,000 characters", "", func(s scene) { s.long(2000) }},
	{"edges/4,096 characters", "", func(s scene) { s.long(4096) }},
	{"edges/10 in parallel", "", func(s scene) { s.atOnce(10, "parallel") }},
	{"edges/empty body", "", func(s scene) {
		s.want(400, "/problems/body", "POST", "/api/shorten", "")
	}},
	{"edges/text/plain", "", func(s scene) {
		s.want(415, "/problems/media-type", "POST", "/api/shorten", of("https://example.com/plain"),
			"Content-Type", "text/plain")
	}},
}

// nothing checks that an invalid alias leads to a 404, however it is sent, and that asking for it
// changes nothing.
func (s scene) nothing(alias string) {
	s.anyone.t.Helper()
	l := s.make(of("https://example.com/?before=" + url.QueryEscape(alias)))
	before := len(s.Rows(s.Links))
	s.want(404, "/problems/not-found", "GET", "/"+url.PathEscape(alias), "")
	s.want(404, "/problems/not-found", "GET", "/"+strings.ReplaceAll(alias, " ", "%20"), "")
	// Texts can always be encoded as JSON.
	body, _ := json.Marshal(map[string]string{"longUrl": "https://example.com/", "alias": alias})
	s.want(400, `"field":"alias"`, "POST", "/api/shorten", string(body))
	if after := len(s.Rows(s.Links)); after != before {
		s.anyone.t.Errorf("%d links, and %d before", after, before)
	}
	s.leads(l.Alias, l.LongURL)
}

// long checks that a URL of the given number of characters gets a link.
func (s scene) long(length int) {
	s.anyone.t.Helper()
	longURL := "https://example.com/"
	longURL += strings.Repeat("a", length-len(longURL))
	s.leads(s.make(of(longURL)).Alias, longURL)
}

func TestScenarios(t *testing.T) {
	t.Parallel()
	site := newSite(t)
	base := site.standalone(emulator.ConnectionString(), "CLICKS_FLUSH_SECONDS=1").url
	awaitReady(t, base)
	s := scene{site: site, anyone: caller{t, base, ""}, owner: owner(t, base, "ann")}
	for _, test := range scenarios {
		t.Run(test.name, func(t *testing.T) {
			if test.here != "" {
				t.Log("here:", test.here)
			}
			test.run(s.with(t))
		})
	}
	if got := s.want(200, "", "GET", "/api/ready", ""); !strings.Contains(got.Body,
		`"status":"ready"`) {
		t.Errorf("got %s", got.Body)
	}
}
