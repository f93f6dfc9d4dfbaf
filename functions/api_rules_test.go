package functions_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/functions"
	"tiney/internal/clicks"
	"tiney/internal/link"
)

// ruled returns the JSON of rules that lead to https://example.com/0 and so on, each with these
// members.
func ruled(rules ...string) string {
	for i, members := range rules {
		rules[i] = fmt.Sprintf(`{%s,"longUrl":"https://example.com/%d"}`, members, i)
	}
	return "[" + strings.Join(rules, ",") + "]"
}

// Rules are kept in the spelling of statistics, and each gets a name.
func TestRulesAsAMember(t *testing.T) {
	const put = `{"longUrl":"https://example.com/","alias":"made"`
	const rest = `"systems":null,"devices":null,"languages":null,"fromUtc":null,"untilUtc":null,` +
		`"percent":null,"longUrl":"https://example.com/0"}`
	long := `"name":"` + strings.Repeat("ü", 32) + `"`
	for value, want := range map[string]string{
		`null`:                                `[]`,
		`[]`:                                  `[]`,
		ruled(`"countries":["de","AT","De"]`): `[{"name":"1","countries":["DE","AT"],` + rest + `]`,
		ruled(`"name":null,"countries":["DE"],"percent":null,"languages":null,"fromUtc":null`): `[{` +
			`"name":"1","countries":["DE"],` + rest + `]`,
		ruled(long + `,"systems":["WINDOWS","ios"],"devices":["Mobile"],"languages":["pt-BR","DE"],` +
			`"fromUtc":"2030-01-01T01:00:00.5+01:00","untilUtc":"2030-01-01T00:00:01Z","percent":5e1`): `[{` +
			long + `,"countries":null,"systems":["Windows","iOS"],"devices":["mobile"],` +
			`"languages":["pt-BR","DE"],"fromUtc":"2030-01-01T00:00:00Z",` +
			`"untilUtc":"2030-01-01T00:00:01Z","percent":50,"longUrl":"https://example.com/0"}]`,
	} {
		old := link.TargetRule{Name: "x", Percent: 1, LongURL: "https://example.com/x"}
		r, edited := wantMember(t, "rules", value, want, link.Link{Rules: []link.TargetRule{old}},
			`[{"name":"x","percent":1,"longUrl":"https://example.com/x"}]`)
		again := r.as("ann", "PATCH", "/api/links/old", `{"rules":`+members(t, edited)["rules"]+`}`)
		if again.Header().Get("ETag") != edited.Header().Get("ETag") {
			t.Errorf("%s: what is sent back as it was shown changes the link", value)
		}
		found := r.as("ann", "GET", "/api/links?q=com/0", "").Body.String()
		if strings.Contains(found, `"alias":"made"`) != strings.Contains(want, "com/0") {
			t.Errorf("%s: the search finds %s", value, found)
		}
	}
	r := newRig(t)
	names := ruled(`"name":"2","percent":1`, `"percent":2`, `"name":"(","percent":3`, `"percent":4`)
	names = strings.Replace(names, `"("`, `"1"`, 1)
	made := r.as("ann", "POST", "/api/shorten", put+`,"rules":`+names+`}`)
	for _, name := range []string{"2", "3", "1", "4"} {
		if !strings.Contains(made.Body.String(), fmt.Sprintf(`{"name":%q,`, name)) {
			t.Errorf("no rule is named %s: %s", name, made.Body)
		}
	}
}

// What is wrong with rules names its place.
func TestRulesThatAreRefused(t *testing.T) {
	r := newRig(t, withSchemes)
	r.block("evil.example")
	r.fake.Put(link.Link{Name: "old", LongURL: "https://example.com/", Owner: "ann"})
	second := func(member string) string { return ruled(`"percent":50`, member) }
	to := func(longURL string) string {
		return fmt.Sprintf(`[{"percent":50,"longUrl":%q}]`, longURL)
	}
	list := func(n int, value string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(value+",", n), ",") + "]"
	}
	for value, want := range map[string]string{
		`7`: "rules", `{}`: "rules", `"x"`: "rules", `[7]`: "rules[0]", `[null]`: "rules[0].longUrl",
		`[{}]`: "rules[0].longUrl", ruled(`"name":"x"`): "rules[0]", second(`"name":""`): "rules[1]",
		`[{"percent":50}]`: "rules[0].longUrl", to(""): "rules[0].longUrl",
		to("ftp://example.com/"): "rules[0].longUrl", to("https://tiney.to/x"): "rules[0].longUrl",
		to("https://example.com/" + strings.Repeat("a", 4096)):    "rules[0].longUrl",
		to("https://a.evil.example/"):                             "403",
		second(`"countries":[]`):                                  "rules[1].countries",
		second(`"countries":"DE"`):                                "rules[1].countries",
		second(`"countries":[7]`):                                 "rules[1].countries",
		second(`"countries":["DE","UK"]`):                         "rules[1].countries",
		second(`"countries":["(unknown)"]`):                       "rules[1].countries",
		second(`"countries":` + list(51, `"DE"`)):                 "rules[1].countries",
		second(`"systems":["Windows Phone"]`):                     "rules[1].systems",
		second(`"systems":["(other)"]`):                           "rules[1].systems",
		second(`"systems":["iOſ"]`):                               "rules[1].systems",
		second(`"devices":["phone"]`):                             "rules[1].devices",
		second(`"languages":["d"]`):                               "rules[1].languages",
		second(`"languages":["*"]`):                               "rules[1].languages",
		second(`"languages":["de_AT"]`):                           "rules[1].languages",
		second(`"languages":["` + strings.Repeat("a", 36) + `"]`): "rules[1].languages",
		second(`"fromUtc":"soon"`):                                "rules[1].fromUtc",
		second(`"untilUtc":"0001-01-01T00:00:00Z"`):               "rules[1].untilUtc",
		second(`"percent":1,"name":" a"`):                         "rules[1].name",
		second(`"languages":["de-"]`):                             "rules[1].languages",
		second(`"languages":["de--AT"]`):                          "rules[1].languages",
		second(`"fromUtc":"1969-12-31T23:59:59Z"`):                "rules[1].fromUtc",
		second(`"untilUtc":7`):                                    "rules[1].untilUtc",
		second(`"untilUtc":"9999-12-31T23:59:59-01:00"`):          "rules[1].untilUtc",
		second(`"fromUtc":"2030-01-01T00:00:00Z","untilUtc":"2030-01-01T00:00:00Z"`): "rules[1]." +
			"fromUtc",
		second(`"percent":0`): "rules[1].percent", second(`"percent":100`): "rules[1].percent",
		second(`"percent":1.5`): "rules[1].percent", second(`"percent":"50"`): "rules[1].percent",
		second(`"percent":-1`): "rules[1].percent", second(`"percent":1e400`): "rules[1].percent",
		second(`"percent":1,"name":"` + strings.Repeat("ü", 33) + `"`): "rules[1].name",
		second(`"percent":1,"name":"(link)"`):                          "rules[1].name",
		second(`"percent":1,"name":"a\u0000"`):                         "rules[1].name",
		ruled(`"percent":1,"name":"a"`, `"percent":2,"name":"a"`):      "rules[1].name",
		second(`"weight":1`):                                           "rules[1].weight",
		second(`"Countries":["DE"]`):                                   "rules[1].Countries",
		list(11, `{"percent":1,"longUrl":"https://example.com/0"}`):    "rules",
		ruled(slices.Repeat([]string{`"percent":1,"languages":` +
			list(50, `"`+strings.Repeat("a", 30)+`"`)}, 8)...): "",
		`[{"percent":1,"longUrl":"https://example.com/` + strings.Repeat("a", 4000) + `"},` +
			`{"percent":1,"longUrl":"https://example.com/` + strings.Repeat("b", 4000) + `"},` +
			`{"percent":1,"longUrl":"https://example.com/` + strings.Repeat("c", 4000) + `"},` +
			`{"percent":1,"longUrl":"https://example.com/` + strings.Repeat("d", 300) + `"}]`: "rules",
	} {
		t.Run(value[:min(len(value), 80)], func(t *testing.T) {
			status, kind, field := 400, "rules", want
			switch {
			case want == "403":
				status, kind, field = 403, "target-blocked", "rules[0].longUrl"
			case strings.HasSuffix(want, "eight"), strings.HasSuffix(want, "Countries"):
				kind = "body"
			case want == "": // a value that is there often is kept once
				status = 201
			}
			if status == 201 {
				made := r.as("ann", "POST", "/api/shorten",
					`{"longUrl":"https://example.com/","alias":"made","rules":`+value+`}`)
				wantStatus(t, made, 201)
				r.as("ann", "DELETE", "/api/links/made", "")
				return
			}
			r.wantRefused(t, "rules", value, "", status, kind, field)
			got := r.importFile("ann", "", line("x", "https://example.com/", `,"rules":`+value))
			if got[0].Status != status {
				t.Errorf("imported: %+v", got)
			}
		})
	}
	w := r.as("ann", "PATCH", "/api/links/old",
		`{"goneUrl":"https://example.com/0","rules":`+ruled(`"percent":1`)+`}`)
	wantProblem(t, w, 400, "gone-url", "goneUrl")
	mail := `[{"percent":1,"longUrl":"mailto:a@example.com"}]`
	w = r.as("ann", "PATCH", "/api/links/old", `{"forward":["query"],"rules":`+mail+`}`)
	wantProblem(t, w, 400, "forward", "forward")
	if l, _ := r.fake.Read(t.Context(), "old"); l.Rules != nil || l.Forward != 0 {
		t.Errorf("changed: %+v", l)
	}
}

// Only owners may have rules, and of a shared link only an admin changes them.
func TestRulesAreTheOwners(t *testing.T) {
	wantOwnersAlone(t, newRig(t), `"rules":`+ruled(`"percent":1`))
}

const (
	iPhone = "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 " +
		"(KHTML, like Gecko) Version/18.0 Mobile/15E148 Safari/604.1"
	windowsBot = "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko; " +
		"compatible; Googlebot/2.1; +http://www.google.com/bot.html) Chrome/142.0.0.0 Safari/537.36"
	ofGermany, ofAmerica = "84.128.0.1", "8.8.8.8"
)

// The first rule whose conditions all hold decides, and the link's own URL without one.
func TestRulesDecide(t *testing.T) {
	from := func(address string) []string { return []string{"X-Forwarded-For", address} }
	by := func(agent string) []string { return []string{"User-Agent", agent} }
	in := func(lines ...string) (header []string) {
		for _, line := range lines {
			header = append(header, "Accept-Language", line)
		}
		return header
	}
	de := ruled(`"languages":["de"]`)
	for name, test := range map[string]struct {
		rules  string
		header []string // besides those of Chrome on Windows, in Germany
		want   string   // the number of the rule; "": none
	}{
		"a country":            {ruled(`"countries":["AT","DE"]`), nil, "0"},
		"another country":      {ruled(`"countries":["AT"]`), nil, ""},
		"a country by address": {ruled(`"countries":["US"]`), from(ofAmerica), "0"},
		"no country":           {ruled(`"countries":["DE"]`), from("10.0.0.1"), ""},
		"a system":             {ruled(`"systems":["Windows"]`), nil, "0"},
		"a system behind":      {ruled(`"systems":["iOS"]`), by(iPhone + host), "0"},
		"another system":       {ruled(`"systems":["iOS","Linux"]`), nil, ""},
		"a device":             {ruled(`"devices":["desktop"]`), nil, "0"},
		"another device":       {ruled(`"devices":["desktop"]`), by(iPhone), ""},
		"a bot has no system":  {ruled(`"systems":["Windows"]`), by(windowsBot), ""},
		"a bot has no device":  {ruled(`"devices":["desktop"]`), by(windowsBot), ""},
		"an unread language":   {de, in("de_DE, de;q=0.9"), "0"},
		"a language that is cut": {de, in("en;q=0.5," +
			strings.Repeat(" ", 1<<10-len("en;q=0.5,de")) + "de;q=0.1"), ""},
		"a bot has a country": {ruled(`"countries":["DE"]`), by("curl/8"), "0"},
		"all conditions": {ruled(`"countries":["DE"],"systems":["iOS"]`, `"countries":["DE"]`), nil,
			"1"},
		"the first":             {ruled(`"countries":["DE"]`, `"systems":["Windows"]`), nil, "0"},
		"the second":            {ruled(`"countries":["AT"]`, `"systems":["Windows"]`), nil, "1"},
		"a language":            {de, in("de"), "0"},
		"a narrower language":   {de, in("DE-at"), "0"},
		"a wider language":      {ruled(`"languages":["de-AT"]`), in("de"), ""},
		"a longer language":     {de, in("den"), ""},
		"the first language":    {de, in("en, de"), ""},
		"the heaviest language": {de, in("en;q=0.5, de;q=0.9"), "0"},
		"languages in lines":    {de, in("en;q=0.5", "de"), "0"},
		"no weight":             {de, in("de;q=0, en;q=x, fr;q=2, it;q=-1"), ""},
		"an unread entry":       {de, in("en;q=x, de;q=0.001"), "0"},
		"any language":          {de, in("*, de;q=0.5"), ""},
		"a star at last":        {de, in("de;q=0.5, *;q=0.1"), "0"},
		"no language":           {de, nil, ""},
		"from now":              {ruled(`"fromUtc":"NOW"`), nil, "0"},
		"from later":            {ruled(`"fromUtc":"NEXT"`), nil, ""},
		"until later":           {ruled(`"untilUtc":"NEXT"`), nil, "0"},
		"until now":             {ruled(`"untilUtc":"NOW"`), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRigOn(t, withCache, func(c *functions.Config) {
				c.CountClicks, c.RedirectMaxAge = clicks.ModeTotals, time.Hour
			})
			now := r.clock.Now().UTC().Truncate(time.Second)
			rules := strings.NewReplacer("NOW", now.Format(time.RFC3339), "NEXT",
				now.Add(time.Second).Format(time.RFC3339)).Replace(test.rules)
			if w := r.as("ann", "POST", "/api/shorten", `{"longUrl":"https://example.com/",`+
				`"alias":"abc","rules":`+rules+`}`); w.Code != 201 {
				t.Fatalf("got %d %s", w.Code, w.Body)
			}
			header := []string{"User-Agent", chrome, "X-Forwarded-For", ofGermany}
			for range 2 { // from the table and from the cache
				w := r.get("/abc", append(header, test.header...)...)
				wantLocation(t, name, w, "https://example.com/"+test.want)
				if got := w.Header().Get("Cache-Control"); got != "no-store" {
					t.Errorf("the redirect may be kept: %s", got)
				}
				preview := r.get("/abc+", append(header, test.header...)...)
				if got := members(t, preview)["longUrl"]; got != `"https://example.com/`+test.want+`"` {
					t.Errorf("the preview says %s", preview.Body)
				}
			}
		})
	}
}

// A share is drawn anew for each request and rule, for bots as for people, and not in previews.
func TestRulesDraw(t *testing.T) {
	r := newRig(t)
	r.as("ann", "POST", "/api/shorten", `{"longUrl":"https://example.com/","alias":"abc","rules":`+
		ruled(`"percent":50`, `"percent":50`)+`}`)
	led := map[string]int{}
	const tries = 400
	for range tries {
		led[r.get("/abc", "User-Agent", "curl/8").Header().Get("Location")]++
	}
	// Each bound is more than six standard deviations away.
	if a, b, rest := led["https://example.com/0"], led["https://example.com/1"],
		led["https://example.com/"]; a < 140 || a > 260 || b < 48 || rest < 48 || a+b+rest != tries {
		t.Errorf("50 and 50 percent lead to %v", led)
	}
	for range 20 {
		preview := members(t, r.get("/abc+"))
		if preview["longUrl"] != `"https://example.com/"` || preview["targets"] !=
			`["https://example.com/","https://example.com/0","https://example.com/1"]` {
			t.Fatalf("the preview says %v", preview)
		}
	}
	page := r.get("/abc+", "Accept", browser).Body.String()
	for _, target := range []string{"https://example.com/0", "https://example.com/1"} {
		if !strings.Contains(page, target) {
			t.Errorf("the preview's page lacks %s", target)
		}
	}
	r.fake.Put(link.Link{Name: "plain", LongURL: "https://example.com/p"})
	if got := members(t, r.get("/plain+"))["targets"]; got != `["https://example.com/p"]` {
		t.Errorf("the preview of a plain link says %s", got)
	}
}

// What a visitor gets to must not be blocked, whatever else the link leads to.
func TestRulesAndBlockedHosts(t *testing.T) {
	r := newRig(t)
	r.fake.Put(link.Link{Name: "own", LongURL: "https://evil.example/", Rules: []link.TargetRule{
		{Name: "1", Countries: []string{"DE"}, LongURL: "https://example.com/"}}})
	r.fake.Put(link.Link{Name: "rule", LongURL: "https://example.com/", Rules: []link.TargetRule{
		{Name: "1", Countries: []string{"DE"}, LongURL: "https://evil.example/"}}})
	r.block("evil.example")
	for _, at := range []struct{ alias, good, bad string }{
		{"own", ofGermany, ofAmerica}, {"rule", ofAmerica, ofGermany}} {
		w := r.get("/"+at.alias, "X-Forwarded-For", at.good)
		wantLocation(t, at.alias, w, "https://example.com/")
		for _, path := range []string{"/" + at.alias, "/" + at.alias + "+"} {
			wantProblem(t, r.get(path, "X-Forwarded-For", at.bad), 410, "link-blocked", "")
		}
		preview := r.get("/"+at.alias+"+", "X-Forwarded-For", at.good)
		if got := members(t, preview)["targets"]; got != `["https://example.com/"]` {
			t.Errorf("the preview of %s says %s", at.alias, preview.Body)
		}
	}
}

// What is forwarded is appended to the target that was chosen.
func TestRulesForward(t *testing.T) {
	r := newRig(t)
	r.as("ann", "POST", "/api/shorten", `{"longUrl":"https://example.com/","alias":"abc",`+
		`"forward":["query","path"],"rules":`+ruled(`"countries":["DE"]`)+`}`)
	w := r.get("/abc/a?b=c", "X-Forwarded-For", ofGermany)
	wantLocation(t, "by a rule", w, "https://example.com/0/a?b=c")
	wantLocation(t, "by none", r.get("/abc/a?b=c"), "https://example.com/a?b=c")
	preview := members(t, r.get("/abc+/a?b=c"))
	if preview["targets"] != `["https://example.com/","https://example.com/0"]` {
		t.Errorf("the preview says %v", preview)
	}
}

// Clicks count by the names of the rules that led them, unless the visitor or the mode forbids it.
func TestRulesInStatistics(t *testing.T) {
	for mode, want := range map[clicks.Mode]string{
		clicks.ModeFull:   `[{"name":"here","clicks":2},{"name":"(link)","clicks":1}]`,
		clicks.ModeTotals: `[]`,
	} {
		r := newRig(t, func(c *functions.Config) { c.CountClicks = mode })
		r.as("ann", "POST", "/api/shorten", `{"longUrl":"https://example.com/","alias":"abc",`+
			`"rules":`+ruled(`"name":"here","countries":["DE"]`)+`}`)
		for _, header := range [][]string{{"X-Forwarded-For", ofGermany},
			{"X-Forwarded-For", ofGermany}, {"X-Forwarded-For", ofAmerica},
			{"X-Forwarded-For", ofGermany, "Sec-GPC", "1"},
			{"X-Forwarded-For", ofGermany, "User-Agent", "curl/8"}} {
			r.get("/abc", append([]string{"User-Agent", chrome}, header...)...)
		}
		stats := members(t, r.as("ann", "GET", "/api/links/abc/stats", ""))
		if stats["targets"] != want || stats["clicks"] != "4" {
			t.Errorf("%s: the statistics are %v", mode, stats)
		}
		if _, is := members(t, r.as("ann", "GET", "/api/stats/links", ""))["targets"]; is {
			t.Errorf("%s: statistics of all links have targets", mode)
		}
	}
}
