package functions_test

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"tiney/clicks"
	"tiney/functions"
	"tiney/link"
)

// clicker returns a click of a visitor.
func clicker(at time.Time, address, referrer string) clicks.Click {
	return clicks.Click{At: at, Took: 1500 * time.Microsecond,
		Visitor: clicks.NewVisitor(netip.MustParseAddr(address), "x"),
		Names:   [...]string{referrer, "DE", "Chrome", "Windows", "desktop"}}
}

// putClicked stores a link of ann's, made on the clock's day, and counts clicks on it.
func (r *rig) putClicked(ks ...clicks.Click) {
	r.fake.Put(link.Link{Alias: "abcdef", LongURL: "https://example.com/", Owner: "ann",
		CreatedAt: r.clock.Now()})
	for _, k := range ks {
		r.clicks.Click(link.Link{Alias: "abcdef"}, k)
	}
}

func day(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }

func TestStats(t *testing.T) {
	r := newRig(t)
	today := day(r.clock.Now())
	yesterday := today.Add(-24 * time.Hour)
	slow := clicker(today.Add(time.Hour+700*time.Millisecond), "192.0.2.2", "(direct)")
	slow.Took = 3 * time.Millisecond
	r.putClicked(
		clicker(yesterday.Add(-time.Nanosecond), "192.0.2.1", "before.example"),
		clicker(yesterday, "192.0.2.1", "a.example"),
		clicker(yesterday.Add(24*time.Hour-time.Nanosecond), "192.0.2.1", "a.example"),
		clicks.Click{At: yesterday, Bot: true},
		clicker(today, "192.0.2.1", "(direct)"), slow,
		clicker(today.Add(24*time.Hour), "192.0.2.1", "after.example"),
	)
	from, to := yesterday.Format(time.DateOnly), today.Format(time.DateOnly)
	query := "?from=" + from + "&to=" + to
	want := fmt.Sprintf(`{"alias":"abcdef","from":%q,"to":%q,"interval":"day","clicks":4,`+
		`"bots":1,"visitors":3,"averageMs":1.875,"lastAtUtc":"%sT01:00:00Z",`+
		`"series":[{"at":"%sT00:00:00Z","clicks":2,"bots":1,"visitors":1},{"at":"%sT00:00:00Z",`+
		`"clicks":2,"bots":0,"visitors":2}],`+
		`"referrers":[{"name":"(direct)","clicks":2},{"name":"a.example","clicks":2}],`+
		`"countries":[{"name":"DE","clicks":4}],`+
		`"browsers":[{"name":"Chrome","clicks":4}],"systems":[{"name":"Windows","clicks":4}],`+
		`"devices":[{"name":"desktop","clicks":4}]}`, from, to, to, from, to)
	w := r.as("ann", "GET", "/api/links/abcdef/stats"+query, "")
	if got := strings.TrimSpace(w.Body.String()); w.Code != 200 || got != want {
		t.Errorf("got %d %s\nwant %s", w.Code, got, want)
	}
	for name, want := range map[string]string{"Content-Type": "application/json", "Vary": "Accept",
		"Cache-Control": "no-store"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}

	var hourly struct {
		Interval         string
		Clicks, Visitors int64
		Series           []struct {
			At           time.Time
			Clicks, Bots int64
			Visitors     *int64
		}
	}
	w = r.as("ann", "GET", "/api/links/abcdef/stats"+query+"&interval=hour", "")
	if err := json.Unmarshal(w.Body.Bytes(), &hourly); err != nil || hourly.Interval != "hour" ||
		hourly.Clicks != 4 || hourly.Visitors != 3 || len(hourly.Series) != 48 {
		t.Fatalf("got %d %s, %v", w.Code, w.Body, err)
	}
	clicked := map[int]int64{0: 1, 23: 1, 24: 1, 25: 1}
	for i, h := range hourly.Series {
		if want := yesterday.Add(time.Duration(i) * time.Hour); !h.At.Equal(want) ||
			h.Clicks != clicked[i] || h.Visitors != nil || (h.Bots == 1) != (i == 0) {
			t.Errorf("hour %d is %+v, want %d clicks at %v", i, h, clicked[i], want)
		}
	}
}

func TestStatsWithoutClicks(t *testing.T) {
	r := newRig(t)
	r.putClicked()
	today := day(r.clock.Now()).Format(time.DateOnly)
	want := `"interval":"day","clicks":0,"bots":0,"visitors":0,"averageMs":null,"lastAtUtc":null,` +
		`"series":[{"at":"` + today +
		`T00:00:00Z","clicks":0,"bots":0,"visitors":0}],"referrers":[],"countries":[],` +
		`"browsers":[],"systems":[],"devices":[]}`
	if w := r.as("ann", "GET", "/api/links/abcdef/stats?from="+today, ""); w.Code != 200 ||
		!strings.HasSuffix(w.Body.String(), want+"\n") {
		t.Errorf("got %d %s\nwant … %s", w.Code, w.Body, want)
	}
}

func TestTenNamesAndTheRest(t *testing.T) {
	r := newRig(t)
	var all []clicks.Click
	for i := range 13 {
		for range 20 - i {
			all = append(all, clicker(r.clock.Now(), "192.0.2.1", fmt.Sprintf("host%02d.example",
				i)))
		}
	}
	r.putClicked(all...)
	var got struct {
		Referrers []struct {
			Name   string
			Clicks int
		}
	}
	w := r.as("ann", "GET", "/api/links/abcdef/stats", "")
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Referrers) != 11 {
		t.Fatalf("got %d %s, %v", w.Code, w.Body, err)
	}
	if first, last := got.Referrers[0], got.Referrers[10]; first.Name != "host00.example" ||
		first.Clicks != 20 || last.Name != "(other)" || last.Clicks != 10+9+8 {
		t.Errorf("got %+v", got.Referrers)
	}
}

func TestRangesOfStats(t *testing.T) {
	r := newRig(t)
	r.putClicked()
	in := func(days int) string {
		return day(r.clock.Now()).AddDate(0, 0, days).Format(time.DateOnly)
	}
	for _, test := range []struct{ from, to, wantFrom, wantTo string }{
		{"", "", in(-29), in(0)},
		{in(-3), "", in(-3), in(0)},
		{in(0), "", in(0), in(0)},
		{"", in(-3), in(-32), in(-3)},
		{"", in(1), in(-28), in(1)},
		{"", "0001-01-30", "0001-01-01", "0001-01-30"},
		{"2026-01-31", "2026-01-31", "2026-01-31", "2026-01-31"},
		{in(-398), in(1), in(-398), in(1)}, // 400 days
		{"2026-01-31T23:59:59.999Z", "2026-02-01T00:00:00Z", "2026-01-31", "2026-02-01"},
		{"2026-02-01T00:30:00+01:00", "2026-01-31T23:30:00-01:00", "2026-01-31", "2026-02-01"},
		{"1969-12-31T12:00:00Z", "1970-01-01", "1969-12-31", "1970-01-01"},
		{"0001-01-01", "0001-01-02", "0001-01-01", "0001-01-02"},
	} {
		query := url.Values{}
		for name, value := range map[string]string{"from": test.from, "to": test.to} {
			if value != "" {
				query.Set(name, value)
			}
		}
		w := r.as("ann", "GET", "/api/links/abcdef/stats?"+query.Encode(), "")
		var got struct {
			From, To string
			Series   []struct{ At time.Time }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 ||
			got.From != test.wantFrom || got.To != test.wantTo {
			t.Errorf("%+v: got %d %.100s, %v", test, w.Code, w.Body, err)
			continue
		}
		first, last := got.Series[0].At, got.Series[len(got.Series)-1].At
		if first.Format(time.DateOnly) != test.wantFrom ||
			last.Format(time.DateOnly) != test.wantTo ||
			last.Sub(first) != time.Duration(len(got.Series)-1)*24*time.Hour {
			t.Errorf("%+v: %d days from %v to %v", test, len(got.Series), first, last)
		}
	}
	for query, field := range map[string]string{
		"from=":                           "from",
		"from=yesterday":                  "from",
		"from=2026-02-30":                 "from",
		"from=2026-1-1":                   "from",
		"from=20260101":                   "from",
		"from=1767225600":                 "from",
		"from=2026-01-01T00:00:00":        "from",
		"from=2026-01-01T00:00:00+1:00":   "from", // a + is a space
		"from=0000-12-31":                 "from",
		"from=9999-12-31T23:00:00-01:00":  "from",
		"from=2026-01-01&from=2026-01-01": "from",
		"to=":                             "to",
		"to=2026-13-01":                   "to",
		"to=" + in(2):                     "to",
		"to=9999-12-31":                   "to",
		"from=9999-12-31&to=9999-12-31":   "to",
		"to=0001-01-01":                   "to",
		"to=0001-01-29":                   "to",
		"from=2026-02-01&to=2026-01-31":   "from",
		"from=" + in(1):                   "from",
		"from=" + in(-400):                "from", // 401 days
		"interval=week":                   "interval",
		"interval=":                       "interval",
		"from=%zz":                        "",
	} {
		wantProblem(t, r.as("ann", "GET", "/api/links/abcdef/stats?"+query, ""), 400, "parameter",
			field)
	}
	// The default range is no longer than the time for which counts are kept.
	r = newRig(t, func(c *functions.Config) { c.CountsKept = 7 })
	r.putClicked()
	if w := r.as("ann", "GET", "/api/links/abcdef/stats", ""); w.Code != 200 ||
		!strings.Contains(w.Body.String(), `"from":"`+in(-6)+`"`) {
		t.Errorf("got %d %.100s", w.Code, w.Body)
	}
}

func TestStatsAsCSV(t *testing.T) {
	r := newRig(t)
	today := day(r.clock.Now())
	r.putClicked(clicker(today, "192.0.2.1", "=cmd|'/c calc'!A1"),
		clicker(today, "192.0.2.2", "a.example"), clicks.Click{At: today, Bot: true})
	path := "/api/links/abcdef/stats?from=" + today.Format(time.DateOnly)
	w := r.as("ann", "GET", path, "", "Accept", "text/csv")
	if want := "at,clicks,bots,visitors\r\n" + today.Format(time.DateOnly) +
		"T00:00:00Z,2,1,2\r\n"; w.Code != 200 || w.Body.String() != want {
		t.Errorf("got %d %q, want %q", w.Code, w.Body, want)
	}
	for name, want := range map[string]string{"Content-Type": "text/csv; charset=utf-8",
		"Vary": "Accept", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("%s %q, want %q", name, got, want)
		}
	}
	rows, err := csv.NewReader(r.as("ann", "GET", path+"&interval=hour", "", "Accept",
		"text/csv").Body).ReadAll()
	if err != nil || len(rows) != 25 || strings.Join(rows[1], ",") != today.Format(time.DateOnly)+
		"T00:00:00Z,2,1," {
		t.Errorf("got %d rows, %v", len(rows), err)
	}
	for accept, want := range map[string]string{
		"":                                 "application/json",
		"*/*":                              "application/json",
		"text/*":                           "application/json",
		"text/csv;q=0":                     "application/json",
		"application/json, text/csv;q=0.9": "application/json",
		"text/csv, */*;q=0.1":              "text/csv; charset=utf-8",
		"TEXT/CSV; charset=utf-8":          "text/csv; charset=utf-8",
	} {
		if got := r.as("ann", "GET", path, "", "Accept",
			accept).Header().Get("Content-Type"); got != want {
			t.Errorf("Accept %q: got %s, want %s", accept, got, want)
		}
	}
	wantProblem(t, r.as("ann", "GET", path+"&interval=x", "", "Accept", "text/csv"), 400,
		"parameter", "interval")
}

func TestWhoMaySeeStats(t *testing.T) {
	r := newRig(t)
	token, hash := claimToken(t)
	other, _ := claimToken(t)
	r.putClicked(clicker(r.clock.Now(), "192.0.2.1", "a.example"))
	r.fake.Put(link.Link{Alias: "nobodys", LongURL: "https://example.com/2", ClaimHash: hash})
	r.fake.Put(link.Link{Alias: "deleted", LongURL: "https://example.com/3", Owner: "ann",
		DeletedAt: r.clock.Now()})
	r.fake.Put(link.Link{Alias: "gone", GoneReason: link.StateExpired})
	for request, want := range map[string]int{
		"ann /api/links/abcdef/stats": 200, "admin /api/links/abcdef/stats": 200,
		"bob /api/links/abcdef/stats": 403, token + " /api/links/abcdef/stats": 403,
		token + " /api/links/nobodys/stats": 200, other + " /api/links/nobodys/stats": 403,
		"ann /api/links/nobodys/stats": 403, "admin /api/links/nobodys/stats": 200,
		"ann /api/links/deleted/stats": 200, "ann /api/links/gone/stats": 404,
		"ann /api/links/unknown/stats": 404, "ann /api/links/a.b/stats": 404,
		"ann /api/links/admin/stats":   404,
		"ann /API/links/abcdef/STATS/": 200, "ann /api/links/ABCDEF/stats": 404,
	} {
		who, target, _ := strings.Cut(request, " ")
		if w := r.as(who, "GET", target, ""); w.Code != want {
			t.Errorf("%s: got %d %s, want %d", request, w.Code, w.Body, want)
		}
	}
}

func TestTopLinks(t *testing.T) {
	r := newRig(t)
	for i, owner := range []string{"ann", "bob", "ann"} {
		r.clicks.top = append(r.clicks.top, link.Link{Alias: link.Alias(fmt.Sprint("top", i)),
			LongURL: "https://example.com/?<" + owner, Owner: owner})
	}
	const first = `{"alias":"top0","shortUrl":"https://tiney.to/top0",` +
		`"longUrl":"https://example.com/?<ann","clicks":3}`
	for request, want := range map[string]string{
		"ann": `{"window":"24h","items":[` + first + `]}`,
		"bob": `{"window":"24h","items":[]}`,
		"ann ?window=7d": `{"window":"7d","items":[` + first +
			`,{"alias":"top2","shortUrl":"https://tiney.to/top2",` +
			`"longUrl":"https://example.com/?<ann","clicks":1}]}`,
		"ann ?window=7d&limit=1": `{"window":"7d","items":[` + first + `]}`,
		"admin ?limit=100&window=7d": `{"window":"7d","items":[` + first +
			`,{"alias":"top1","shortUrl":"https://tiney.to/top1",` +
			`"longUrl":"https://example.com/?<bob","clicks":2},` +
			`{"alias":"top2","shortUrl":"https://tiney.to/top2",` +
			`"longUrl":"https://example.com/?<ann","clicks":1}]}`,
	} {
		who, query, _ := strings.Cut(request, " ")
		w := r.as(who, "GET", "/api/stats/top"+query, "")
		if got := strings.TrimSpace(w.Body.String()); w.Code != 200 || got != want ||
			w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s: got %d %v %s\nwant %s", request, w.Code, w.Header(), got, want)
		}
	}
	for query, field := range map[string]string{
		"window=1h": "window", "window=": "window", "window=7D": "window",
		"window=7d&window=24h": "window",
		"limit=0":              "limit", "limit=101": "limit", "limit=x": "limit",
		"limit=1&limit=1": "limit",
	} {
		wantProblem(t, r.as("ann", "GET", "/api/stats/top?"+query, ""), 400, "parameter", field)
	}
}

func TestStatsOfTheService(t *testing.T) {
	r := newRig(t)
	get := func(who string) string {
		t.Helper()
		w := r.as(who, "GET", "/api/stats", "")
		if w.Code != 200 || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%q: got %d %v", who, w.Code, w.Header())
		}
		return strings.TrimSpace(w.Body.String())
	}
	if got, want := get(""), `{"linksCreated":0,"clicks":0,"averageMs":null}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	r.putClicked(clicker(r.clock.Now(), "192.0.2.1", "a.example"),
		clicker(r.clock.Now().Add(-999*24*time.Hour), "192.0.2.1", "a.example"))
	r.clicks.Created(3)
	for _, who := range []string{"", "ann", "admin"} {
		if got, want := get(who), `{"linksCreated":3,"clicks":2,"averageMs":1.5}`; got != want {
			t.Errorf("%q: got %s, want %s", who, got, want)
		}
	}

	r = newRig(t, func(c *functions.Config) { c.PublicStats = false })
	token, _ := claimToken(t)
	wantProblem(t, r.get("/api/stats"), 401, "credentials-missing", "")
	wantProblem(t, r.as(token, "GET", "/api/stats", ""), 403, "owner-needed", "")
	wantProblem(t, r.as("ann", "GET", "/api/stats", ""), 403, "admin-needed", "")
	get("admin")
}

func TestListsWithClicks(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	r.putClicked(clicker(now, "192.0.2.1", "a.example"), clicker(now.Add(-time.Hour), "192.0.2.1",
		"a.example"), clicks.Click{At: now, Bot: true})
	r.fake.Put(link.Link{Alias: "older", LongURL: "https://example.com/2", Owner: "ann",
		CreatedAt: now.Add(-time.Hour)})
	list := func(query string) string {
		t.Helper()
		w := r.as("ann", "GET", "/api/links?"+query, "")
		if w.Code != 200 {
			t.Errorf("%s: got %d %s", query, w.Code, w.Body)
		}
		return strings.TrimSpace(w.Body.String())
	}
	plain := list("")
	if list("clicks=false") != plain || strings.Contains(plain, "clicks") {
		t.Errorf("without: %s", plain)
	}
	items := strings.Split(strings.TrimSuffix(plain, `}],"nextCursor":null}`), "},{")
	want := items[0] + `,"clicks":2,"bots":1,"lastClickAtUtc":"` + now.Format(time.RFC3339) +
		`"},{` + items[1] + `,"clicks":0,"bots":0,"lastClickAtUtc":null}],"nextCursor":null}`
	if got := list("clicks=true"); got != want {
		t.Errorf("with: %s\nwant %s", got, want)
	}
	// A cursor is valid with and without clicks.
	_, cursor := r.list("ann", url.Values{"limit": {"1"}, "clicks": {"true"}})
	if got, _ := r.list("ann", url.Values{"cursor": {cursor}}); fmt.Sprint(got) != "[older]" {
		t.Errorf("got %v", got)
	}
	for _, value := range []string{"", "1", "True", "yes", "true&clicks=true"} {
		wantProblem(t, r.as("ann", "GET", "/api/links?clicks="+value, ""), 400, "parameter",
			"clicks")
	}
}

func TestStatsWithoutStorage(t *testing.T) {
	r := newRig(t)
	r.putClicked()
	r.clicks.fail = link.ErrUnavailable
	for _, target := range []string{"/api/links/abcdef/stats", "/api/stats/top", "/api/stats",
		"/api/links?clicks=true"} {
		wantProblem(t, r.as("ann", "GET", target, ""), 503, "storage-unavailable", "")
	}
	if w := r.as("ann", "GET", "/api/links", ""); w.Code != 200 {
		t.Errorf("got %d", w.Code)
	}
}
