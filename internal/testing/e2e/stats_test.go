package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	"tiney/internal/testing/testutil"
)

// visitors are the clients that follow links. Each has the names that the statistics must show.
var visitors = []struct {
	agent, referrer, address string
	bot                      bool
	names                    [5]string // referrer, country, browser, system, device
}{
	{"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) " +
		"Chrome/142.0.0.0 Safari/537.36", "", "84.128.0.1", false,
		[5]string{"(direct)", "DE", "Chrome", "Windows", "desktop"}},
	{"Mozilla/5.0 (iPhone; CPU iPhone OS 18_7 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like " +
		"Gecko) Version/26.0 Mobile/15E148 Safari/604.1", "https://www.example.org/page?secret=1",
		"2a00:1450:4001::1", false,
		[5]string{"www.example.org", "US", "Safari", "iOS", "mobile"}},
	{"Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
		"https://news.example/", "193.99.144.80:4711", false,
		[5]string{"news.example", "DE", "Firefox", "Linux", "desktop"}},
	{"Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
		"javascript:alert(1)", "10.1.2.3", false,
		[5]string{"(other)", "(unknown)", "Firefox", "Linux", "desktop"}},
	{agent: "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
		address: "66.249.66.1", bot: true},
	{agent: "curl/8.5.0", address: "84.128.0.1", bot: true},
}

type namedClicks struct {
	Name   string
	Clicks int
}

type linkStats struct {
	Clicks, Bots, Visitors int
	AverageMs              *float64
	Series                 []struct {
		At           string
		Clicks, Bots int
	}
	Referrers, Countries, Browsers, Systems, Devices []namedClicks
}

// All statistics agree with the requests that were sent, also if the process that got them stopped
// before it wrote its counts.
func TestStatisticsAgree(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	settings := []string{"CLICKS_FLUSH_SECONDS=1", "CLIENT_ADDRESS_HOPS=1"}
	p := s.standalone(emulator.ConnectionString(), append(settings, "CLICKS_FLUSH_SECONDS=300")...)
	ann := owner(t, p.url, "ann")
	want := map[string]*linkStats{}
	follow := func(alias string, times int) {
		if want[alias] == nil {
			ann.must(201, "POST", "/api/shorten", fmt.Sprintf(
				`{"longUrl":"https://example.com/%s","alias":%[1]q,"tags":[%[1]q]}`, alias))
			want[alias] = &linkStats{Visitors: 4}
		}
		for _, v := range visitors {
			for range times {
				headers := []string{"User-Agent", v.agent, "X-Forwarded-For", "192.0.2.1, " +
					v.address}
				if v.referrer != "" {
					headers = append(headers, "Referer", v.referrer)
				}
				ann.must(302, "GET", "/"+alias, "", headers...)
				for _, no := range []string{"HEAD /" + alias, "GET /" + alias + "+"} {
					method, target, _ := strings.Cut(no, " ")
					ann.must(map[string]int{"HEAD": 302, "GET": 200}[method], method, target, "",
						headers...)
				}
				if v.bot {
					want[alias].Bots++
					continue
				}
				want[alias].Clicks++
				for d, name := range v.names {
					of := want[alias].dimensions()[d]
					*of = count(*of, name, 1)
				}
			}
		}
	}
	follow("first", 3)
	follow("second", 1)
	p.stop(t)
	ann.base = s.standalone(emulator.ConnectionString(), settings...).url
	follow("second", 1)
	together := &linkStats{}
	for alias, want := range want {
		together.add(want)
		checkStats(t, ann, "/api/links/"+alias+"/stats", want)
	}
	checkStats(t, ann, "/api/stats/links?interval=hour", together)
	var ofATag linkStats
	decode(t, ann, "/api/stats/links?tag=first", &ofATag)
	if first := want["first"]; ofATag.Clicks != first.Clicks || ofATag.Bots != first.Bots {
		t.Errorf("with a tag: got %+v, want %+v", ofATag, first)
	}
	var top struct {
		Items []struct {
			Alias  string
			Clicks int
		}
	}
	decode(t, ann, "/api/stats/top?window=30d&limit=1", &top)
	if len(top.Items) != 1 || top.Items[0].Alias != "first" || top.Items[0].Clicks != 12 {
		t.Errorf("top links %+v", top.Items)
	}
	var service struct {
		LinksCreated, Clicks int
		AverageMs            *float64
	}
	decode(t, ann, "/api/stats", &service)
	if service.LinksCreated != 2 || service.Clicks != together.Clicks ||
		service.AverageMs == nil || *service.AverageMs <= 0 {
		t.Errorf("the service says %+v", service)
	}
}

func (s *linkStats) dimensions() [5]*[]namedClicks {
	return [...]*[]namedClicks{&s.Referrers, &s.Countries, &s.Browsers, &s.Systems, &s.Devices}
}

// add adds the statistics of a link, which the same people followed. So its visitors are no others.
func (s *linkStats) add(other *linkStats) {
	s.Clicks += other.Clicks
	s.Bots += other.Bots
	s.Visitors = max(s.Visitors, other.Visitors)
	for d, names := range other.dimensions() {
		for _, n := range *names {
			of := s.dimensions()[d]
			*of = count(*of, n.Name, n.Clicks)
		}
	}
}

func count(names []namedClicks, name string, clicks int) []namedClicks {
	for i := range names {
		if names[i].Name == name {
			names[i].Clicks += clicks
			return names
		}
	}
	return append(names, namedClicks{name, clicks})
}

// decode gets target as the caller c, and decodes the response into v.
func decode(t *testing.T, c caller, target string, v any) {
	t.Helper()
	got := c.patiently(http.MethodGet, target, "")
	if err := json.Unmarshal([]byte(got.Body), v); err != nil || got.Status != 200 {
		t.Fatalf("%s: got %+v, %v", target, got, err)
	}
}

// checkStats compares the statistics at a path with the expected ones, once they are written.
// Clicks may be written before their visitors, or before bots.
func checkStats(t *testing.T, c caller, path string, want *linkStats) {
	t.Helper()
	var got linkStats
	testutil.Eventually(t, path, func() bool {
		got = linkStats{}
		decode(t, c, path, &got)
		return got.Clicks == want.Clicks && got.Bots == want.Bots && got.Visitors >= want.Visitors
	})
	clicks, bots, days := 0, 0, map[string]bool{}
	for _, b := range got.Series {
		clicks, bots = clicks+b.Clicks, bots+b.Bots
		if b.Clicks > 0 {
			days[b.At[:len("2026-01-31")]] = true
		}
	}
	if clicks != want.Clicks || bots != want.Bots ||
		len(days) == 1 && got.Visitors != want.Visitors {
		t.Errorf("%s: got %+v, want %+v", path, got, want)
	}
	if got.AverageMs == nil || *got.AverageMs <= 0 {
		t.Errorf("%s: on average %v", path, got.AverageMs)
	}
	for d, names := range got.dimensions() {
		shown, real := map[string]int{}, map[string]int{}
		for _, n := range *names {
			shown[n.Name] = n.Clicks
		}
		for _, n := range *want.dimensions()[d] {
			real[n.Name] = n.Clicks
		}
		if !maps.Equal(shown, real) {
			t.Errorf("%s: %v, want %v", path, shown, real)
		}
	}
}
