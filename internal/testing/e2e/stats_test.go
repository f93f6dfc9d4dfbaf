package e2e

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"tiney/internal/testing/rawtables"
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

// All statistics agree with the requests that were sent.
func TestStatisticsAgree(t *testing.T) {
	t.Parallel()
	// A proxying host replaces X-Forwarded-For. The services of Azure in front of it set CLIENT-IP.
	header := map[string]string{"on its own": "X-Forwarded-For",
		"behind a host that forwards": "X-Forwarded-For", "behind a host that proxies": "Client-Ip"}
	for mode, header := range header {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			settings := []string{"CLICKS_FLUSH_SECONDS=1", "CLIENT_ADDRESS_HEADER=" + header,
				"CLIENT_ADDRESS_HOPS=1"}
			base, restart := "", func() {}
			if mode == "on its own" {
				// The first process writes its counts when it stops.
				p := s.standalone(emulator.ConnectionString(),
					append(settings, "CLICKS_FLUSH_SECONDS=300")...)
				base, restart = p.url, func() {
					p.stop(t)
					base = s.standalone(emulator.ConnectionString(), settings...).url
				}
			} else {
				base = s.hosted(strings.HasSuffix(mode, "proxies"), emulator.ConnectionString(),
					settings...).URL()
			}
			awaitReady(t, base)
			ann := owner(t, base, "ann")
			want := map[string]*linkStats{} // by alias
			sum := map[string]int{}         // clicks, as in the rows
			follow := func(alias string, times int) {
				if want[alias] == nil {
					ann.base = base
					ann.must(201, "POST", "/api/shorten",
						fmt.Sprintf(`{"longUrl":"https://example.com/%s","alias":%[1]q,`+
							`"tags":[%[1]q]}`, alias))
					want[alias] = &linkStats{}
				}
				for _, v := range visitors {
					for range times {
						headers := []string{"User-Agent", v.agent, header, "192.0.2.1, " +
							v.address}
						if v.referrer != "" {
							headers = append(headers, "Referer", v.referrer)
						}
						testutil.Eventually(t, "a redirect", func() bool {
							return get(t, base+"/"+alias, headers...).Status == 302
						})
						request(t, http.MethodHead, base+"/"+alias, "", headers...)
						get(t, base+"/"+alias, append(headers, "Sec-Purpose", "prefetch")...)
						get(t, base+"/"+alias+"+", headers...)
						if v.bot {
							want[alias].Bots++
							continue
						}
						want[alias].Clicks++
						sum[alias]++
						sum["*"]++
						for d, name := range v.names {
							of := want[alias].dimensions()[d]
							*of = count(*of, name, 1)
						}
					}
				}
				want[alias].Visitors = 4
			}
			follow("first", 3)
			follow("second", 1)
			restart()
			follow("second", 1)
			follow("third", 1)
			// On a busy machine, the clicks may be written before their visitors, or before bots.
			testutil.Eventually(t, "all clicks, bots and visitors are written", func() bool {
				rows := s.Clicked()
				for name, clicks := range sum {
					var written rawtables.Clicked
					visitors := 0
					for _, day := range rows[name] {
						written.Clicks += day.Clicks
						written.Bots += day.Bots
						visitors = max(visitors, len(day.Visitors))
					}
					of := want[name] // nil for "*"
					if int(written.Clicks) != clicks || of != nil &&
						(int(written.Bots) != of.Bots || visitors != of.Visitors) {
						return false
					}
				}
				return true
			})
			ann.base = base
			together := &linkStats{}
			for alias, want := range want {
				checkStats(t, ann, "/api/links/"+alias+"/stats", want)
				together.add(want)
			}
			testutil.Eventually(t, "the counts of all links together are written", func() bool {
				var got linkStats
				decode(t, ann, "/api/stats/links", &got)
				return got.Clicks == together.Clicks && got.Bots == together.Bots &&
					got.Visitors >= together.Visitors
			})
			checkStats(t, ann, "/api/stats/links", together)
			var ofATag linkStats
			decode(t, ann, "/api/stats/links?tag=second", &ofATag)
			if second := want["second"]; ofATag.Clicks != second.Clicks ||
				ofATag.Bots != second.Bots || len(ofATag.Series) != 30 {
				t.Errorf("with a tag: got %+v, want %+v", ofATag, second)
			}

			var top, list struct {
				AsOfUTC time.Time
				Items   []struct {
					Alias          string
					Clicks, Bots   int
					LastClickAtUTC string
				}
			}
			decode(t, ann, "/api/stats/top?window=30d&limit=2", &top)
			if len(top.Items) != 2 || top.AsOfUTC.IsZero() || top.Items[0].Alias != "first" ||
				top.Items[0].Clicks != sum["first"] || top.Items[1].Alias != "second" ||
				top.Items[1].Clicks != sum["second"] {
				t.Errorf("top links %+v, want those of %v", top.Items, sum)
			}
			decode(t, ann, "/api/links?clicks=true", &list)
			for _, l := range list.Items {
				if l.Clicks != want[l.Alias].Clicks || l.Bots != want[l.Alias].Bots ||
					l.LastClickAtUTC == "" {
					t.Errorf("listed %+v, want %+v", l, want[l.Alias])
				}
			}
			if len(list.Items) != len(want) {
				t.Errorf("%d links are listed", len(list.Items))
			}
			// They are in the order asked, without what does not exist.
			asked := []string{"third", "first"}
			list.Items = nil
			decode(t, ann, "/api/stats/clicks?alias=third,nobody,first,third", &list)
			if len(list.Items) != len(asked) {
				t.Errorf("clicks of %v: got %+v", asked, list.Items)
			}
			for i, l := range list.Items {
				if l.Alias != asked[i] || l.Clicks != want[l.Alias].Clicks ||
					l.Bots != want[l.Alias].Bots || l.LastClickAtUTC == "" {
					t.Errorf("asked for %v: got %+v, want %+v", asked, l, want[l.Alias])
				}
			}
			var service struct {
				LinksCreated, Clicks int
				AverageMs            *float64
			}
			decode(t, caller{t, base, ""}, "/api/stats", &service)
			if service.LinksCreated != len(want) || service.Clicks != sum["*"] ||
				service.AverageMs == nil || *service.AverageMs <= 0 {
				t.Errorf("the service says %+v, want %d links and %d clicks", service, len(want),
					sum["*"])
			}
		})
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

// decode gets target as the caller c, and decodes the response into v unless v is nil.
func decode(t *testing.T, c caller, target string, v any, headers ...string) testutil.Response {
	t.Helper()
	var got testutil.Response
	testutil.Eventually(t, target, func() bool {
		got = c.send(http.MethodGet, target, "", headers...)
		return got.Status != http.StatusServiceUnavailable
	})
	if got.Status != 200 {
		t.Fatalf("%s: got %+v", target, got)
	}
	if v != nil {
		if err := json.Unmarshal([]byte(got.Body), v); err != nil {
			t.Fatalf("%s: %v in %s", target, err, got.Body)
		}
	}
	return got
}

// checkStats compares the statistics at a path by day, by hour and as CSV with the expected ones.
func checkStats(t *testing.T, c caller, path string, want *linkStats) {
	t.Helper()
	for interval, buckets := range map[string]int{"day": 30, "hour": 720} {
		var got linkStats
		decode(t, c, path+"?interval="+interval, &got)
		clicks, bots, days := 0, 0, map[string]bool{}
		for _, b := range got.Series {
			clicks, bots = clicks+b.Clicks, bots+b.Bots
			if b.Clicks > 0 {
				days[b.At[:len("2026-01-31")]] = true
			}
		}
		if got.Clicks != want.Clicks || got.Bots != want.Bots || clicks != want.Clicks ||
			bots != want.Bots || len(got.Series) != buckets || len(days) == 1 &&
			got.Visitors != want.Visitors {
			t.Errorf("%s by %s: got %+v, want %+v", path, interval, got, want)
		}
		if got.AverageMs == nil || *got.AverageMs <= 0 {
			t.Errorf("%s by %s: on average %v", path, interval, got.AverageMs)
		}
		for d, names := range got.dimensions() {
			told, real := map[string]int{}, map[string]int{}
			for _, n := range *names {
				told[n.Name] = n.Clicks
			}
			for _, n := range *want.dimensions()[d] {
				real[n.Name] = n.Clicks
			}
			if !maps.Equal(told, real) {
				t.Errorf("%s by %s: %v, want %v", path, interval, told, real)
			}
		}
		table := decode(t, c, path+"?interval="+interval, nil, "Accept", "text/csv")
		rows, err := csv.NewReader(strings.NewReader(table.Body)).ReadAll()
		if err != nil || len(rows) != 1+buckets ||
			table.Header.Get("Content-Type") != "text/csv; charset=utf-8" {
			t.Fatalf("%s by %s: %d rows, %v, %v", path, interval, len(rows), table.Header, err)
		}
		clicks = 0
		for _, row := range rows[1:] {
			n, err := strconv.Atoi(row[1])
			if err != nil {
				t.Error(err)
			}
			clicks += n
		}
		if clicks != want.Clicks {
			t.Errorf("%s by %s, as CSV: %d clicks, want %d", path, interval, clicks, want.Clicks)
		}
	}
}
