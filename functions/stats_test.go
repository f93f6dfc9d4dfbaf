package functions_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tiney/functions"
	"tiney/internal/clicks"
	"tiney/internal/link"
)

// clicker returns a click of a visitor.
func clicker(at time.Time, address, referrer string) clicks.Click {
	return clicks.Click{At: at, Took: 1500 * time.Microsecond,
		Visitor: clicks.NewVisitor(netip.MustParseAddr(address), "x"),
		Names:   [clicks.Dimensions]string{referrer, "DE", "Chrome", "Windows", "desktop"}}
}

// putClicked stores a link of ann's, made on the clock's day, and counts clicks on it.
func (r *rig) putClicked(ks ...clicks.Click) {
	l := link.Link{Name: "abcdef", LongURL: "https://example.com/", Owner: "ann",
		CreatedAt: r.clock.Now()}
	r.fake.Put(l)
	for _, k := range ks {
		r.clicks.Click(l, k)
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
	want := fmt.Sprintf(`{"alias":"abcdef","domain":"tiney.to","from":%q,"to":%q,`+
		`"interval":"day","clicks":4,`+
		`"bots":1,"visitors":3,"averageMs":1.875,"lastAtUtc":"%sT01:00:00Z",`+
		`"series":[{"at":"%sT00:00:00Z","clicks":2,"bots":1,"visitors":1},{"at":"%sT00:00:00Z",`+
		`"clicks":2,"bots":0,"visitors":2}],`+
		`"referrers":[{"name":"(direct)","clicks":2},{"name":"a.example","clicks":2}],`+
		`"countries":[{"name":"DE","clicks":4}],`+
		`"browsers":[{"name":"Chrome","clicks":4}],"systems":[{"name":"Windows","clicks":4}],`+
		`"devices":[{"name":"desktop","clicks":4}],"sources":[{"name":"(none)","clicks":4}],`+
		`"targets":[]}`, from, to, to, from, to)
	w := r.as("ann", "GET", "/api/links/abcdef/stats"+query, "")
	wantJSON(t, w, want)
	if got := w.Header().Get("Vary"); got != "Accept" {
		t.Errorf("Vary %q", got)
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

// Sources are those of the short URL's query, of a link and of all together, unless the visitor or
// the mode forbids it.
func TestSources(t *testing.T) {
	for mode, want := range map[clicks.Mode]string{
		clicks.ModeFull: `[{"name":"news","clicks":2},{"name":"(none)","clicks":1},` +
			`{"name":"(other)","clicks":1}]`,
		clicks.ModeTotals: `[]`,
	} {
		r := newRig(t, func(c *functions.Config) { c.CountClicks = mode })
		r.fake.Put(link.Link{Name: "abcdef", LongURL: "https://example.com/", Owner: "ann"})
		for query, header := range map[string][]string{"?utm_source=NEWS": nil,
			"?a=b&utm_source=news": nil, "?utm_source=a%20b": nil, "": nil,
			"?utm_source=private": {"Sec-GPC", "1"}, "?utm_source=bot": {"User-Agent", "curl/8"}} {
			r.get("/abcdef"+query, append([]string{"User-Agent", chrome}, header...)...)
		}
		for _, path := range []string{"/api/links/abcdef/stats", "/api/stats/links"} {
			if got := members(t, r.as("ann", "GET", path, "")); got["sources"] != want ||
				got["clicks"] != "5" {
				t.Errorf("%s: %s says %v", mode, path, got)
			}
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
		`"browsers":[],"systems":[],"devices":[],"sources":[],"targets":[]}`
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
	r.fake.Put(link.Link{Name: "nobodys", LongURL: "https://example.com/2", ClaimHash: hash})
	r.fake.Put(link.Link{Name: "deleted", LongURL: "https://example.com/3", Owner: "ann",
		DeletedAt: r.clock.Now()})
	r.fake.Put(link.Link{Name: "gone", GoneReason: link.StateExpired})
	for request, want := range map[string]int{
		"ann /api/links/abcdef/stats": 200, "admin /api/links/abcdef/stats": 200,
		"bob /api/links/abcdef/stats": 404, token + " /api/links/abcdef/stats": 403,
		token + " /api/links/nobodys/stats": 200, other + " /api/links/nobodys/stats": 403,
		"ann /api/links/nobodys/stats": 404, "admin /api/links/nobodys/stats": 200,
		"ann /api/links/deleted/stats": 200, "ann /api/links/gone/stats": 404,
		"ann /api/links/unknown/stats": 404, "ann /api/links/a.b/stats": 404,
		"ann /api/links/admin/stats":   404,
		"ann /API/links/abcdef/STATS/": 200, "ann /api/links/ABCDEF/stats": 404,
	} {
		who, target, _ := strings.Cut(request, " ")
		wantStatus(t, r.as(who, "GET", target, ""), want, request)
	}
}

// Clicks of all links of an owner count together, and for the owner that the link had at the time.
func TestStatsOfAnOwner(t *testing.T) {
	r := newRig(t)
	today := day(r.clock.Now())
	yesterday := today.Add(-24 * time.Hour)
	moved := link.Link{Name: "moved", LongURL: "https://example.com/", Owner: "ann"}
	r.fake.Put(moved)
	r.putClicked(clicker(yesterday.Add(-time.Nanosecond), "192.0.2.1", "before.example"),
		clicker(yesterday, "192.0.2.1", "a.example"), clicks.Click{At: yesterday, Bot: true})
	r.clicks.Click(moved, clicker(today, "192.0.2.1", "b.example"))
	moved.Owner = "bob"
	r.fake.Put(moved)
	r.clicks.Click(moved, clicker(today, "192.0.2.1", "c.example"))

	from, to := yesterday.Format(time.DateOnly), today.Format(time.DateOnly)
	want := fmt.Sprintf(`{"owner":"ann","from":%q,"to":%q,"interval":"day","clicks":2,`+
		`"bots":1,"visitors":2,"averageMs":1.5,"lastAtUtc":"%sT00:00:00Z",`+
		`"series":[{"at":"%sT00:00:00Z","clicks":1,"bots":1,"visitors":1},`+
		`{"at":"%[2]sT00:00:00Z","clicks":1,"bots":0,"visitors":1}],`+
		`"referrers":[{"name":"a.example","clicks":1},{"name":"b.example","clicks":1}],`+
		`"countries":[{"name":"DE","clicks":2}],`+
		`"browsers":[{"name":"Chrome","clicks":2}],"systems":[{"name":"Windows","clicks":2}],`+
		`"devices":[{"name":"desktop","clicks":2}],"sources":[{"name":"(none)","clicks":2}]}`,
		from, to, to, from)
	for request, want := range map[string]string{
		"ann":             want,
		"ann owner=ann":   want,
		"ann tag=":        want,
		"admin owner=ann": want,
		"bob":             `{"owner":"bob",`,
		"admin":           `{"owner":"admin",`, // who has no clicks
	} {
		who, query, _ := strings.Cut(request, " ")
		w := r.as(who, "GET", "/api/stats/links?from="+from+"&"+query, "")
		if got := strings.TrimSpace(w.Body.String()); w.Code != 200 ||
			!strings.HasPrefix(got, want) || w.Header().Get("Vary") != "Accept" ||
			strings.Contains(got, `"clicks":2`) != strings.Contains(want, `"ann"`) {
			t.Errorf("%s: got %d %v %s\nwant %s", request, w.Code, w.Header(), got, want)
		}
	}
	w := r.as("ann", "GET", "/api/stats/links?interval=hour&from="+from, "", "Accept", "text/csv")
	if rows := strings.Split(w.Body.String(), "\r\n"); len(rows) != 1+48+1 ||
		rows[1] != from+"T00:00:00Z,1,1," {
		t.Errorf("got %d %q", w.Code, rows)
	}
	if w := r.as("ann", "GET", "/api/stats/links", ""); strings.Count(w.Body.String(),
		`"at"`) != 30 {
		t.Errorf("by default: got %d %s", w.Code, w.Body)
	}
	wantProblem(t, r.as("ann", "GET", "/api/stats/links?owner=bob&from=x", ""), 403, "forbidden",
		"owner")
	for query, field := range map[string]string{"from=x": "from", "to=x": "to",
		"interval=week": "interval", "owner=ann&owner=ann": "owner", "tag=a&tag=b": "tag",
		"tag=a&interval=hour": "interval"} {
		wantProblem(t, r.as("ann", "GET", "/api/stats/links?"+query, ""), 400, "parameter", field)
	}
}

// Of links with a tag, only clicks and bots are known.
func TestStatsOfATag(t *testing.T) {
	r := newRig(t)
	today := day(r.clock.Now())
	put := func(a, owner, tag string, change ...func(*link.Link)) {
		l := link.Link{Name: link.Name(a), LongURL: "https://example.com/", Owner: owner,
			Tags: []string{"other", tag}, CreatedAt: today.Add(-time.Hour)}
		for _, c := range change {
			c(&l)
		}
		r.fake.Put(l)
		r.clicks.Click(l, clicker(today, "192.0.2.1", "a.example"))
		r.clicks.Click(l, clicks.Click{At: today, Bot: true})
	}
	put("live", "ann", "work")
	put("disabled", "ann", "work", func(l *link.Link) { l.Disabled = true })
	put("expired", "ann", "work", func(l *link.Link) { l.ExpiresAt = today })
	put("deleted", "ann", "work", func(l *link.Link) { l.DeletedAt = today })
	put("spelled", "ann", "Work")
	put("bobs", "bob", "work")
	date := today.Format(time.DateOnly)
	path := "/api/stats/links?from=" + date + "&tag=work"
	want := func(clicks int) string {
		return fmt.Sprintf(`{"owner":"ann","from":%q,"to":%[1]q,"interval":"day","clicks":%d,`+
			`"bots":%[2]d,"visitors":null,"averageMs":null,"lastAtUtc":null,`+
			`"series":[{"at":"%[1]sT00:00:00Z","clicks":%[2]d,"bots":%[2]d,"visitors":null}],`+
			`"referrers":null,"countries":null,"browsers":null,"systems":null,"devices":null,`+
			`"sources":null}`,
			date, clicks)
	}
	for request, want := range map[string]string{
		"ann ":              want(4),
		"admin &owner=ann":  want(4),
		"ann &interval=day": want(4),
	} {
		who, query, _ := strings.Cut(request, " ")
		wantJSON(t, r.as(who, "GET", path+query, ""), want, request)
	}
	w := r.as("ann", "GET", path, "", "Accept", "text/csv")
	if want := "at,clicks,bots,visitors\r\n" + date + "T00:00:00Z,4,4,\r\n"; w.Body.String() != want {
		t.Errorf("got %d %q, want %q", w.Code, w.Body, want)
	}
	w = r.as("ann", "GET", strings.Replace(path, "tag=work", "tag=none", 1), "")
	wantJSON(t, w, want(0), "a tag that no link has")
	wantProblem(t, r.as("bob", "GET", path+"&owner=ann", ""), 403, "forbidden", "owner")

	// More than 1,000 newer links fill the first page of the list. 100 links are not too many.
	for i := range 1100 {
		put(fmt.Sprint("many", i), "ann", "nothing", func(l *link.Link) { l.CreatedAt = today })
	}
	for i := range 96 {
		put(fmt.Sprint("work", i), "ann", "work")
	}
	wantJSON(t, r.as("ann", "GET", path, ""), want(100))
	put("hundredAndFirst", "ann", "work")
	wantProblem(t, r.as("ann", "GET", path, ""), 400, "parameter", "tag")

	r.fake.Fail(link.ErrUnavailable)
	wantProblem(t, r.as("ann", "GET", path, ""), 503, "storage-unavailable", "")
}

func TestClicksOfSomeLinks(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	r.putClicked(clicker(now, "192.0.2.1", "a.example"), clicks.Click{At: now, Bot: true})
	for _, l := range []link.Link{
		{Name: "imported", Owner: "ann", Before: link.Count{Clicks: 7, Bots: 2, LastAt: now}},
		{Name: "deleted", Owner: "ann", DeletedAt: now},
		{Name: "bobs", Owner: "bob"},
		{Name: "nobodys"},
		{Name: "tomb", GoneReason: link.StateDeleted, GoneAt: now},
	} {
		l.LongURL = "https://example.com/"
		r.fake.Put(l)
	}
	at := now.Format(time.RFC3339)
	abcdef := `{"alias":"abcdef","domain":"tiney.to","clicks":1,"bots":1,"lastClickAtUtc":"` +
		at + `"}`
	imported := `{"alias":"imported","domain":"tiney.to","clicks":7,"bots":2,"lastClickAtUtc":"` +
		at + `"}`
	none := func(a string) string {
		return `{"alias":"` + a + `","domain":"tiney.to","clicks":0,"bots":0,"lastClickAtUtc":null}`
	}
	for request, want := range map[string]string{
		"ann abcdef":                                        abcdef,
		"ann imported,abcdef":                               imported + "," + abcdef,
		"ann abcdef%2Cimported":                             abcdef + "," + imported,
		"ann deleted,abcdef":                                none("deleted") + "," + abcdef,
		"ann abcdef,imported,abcdef":                        abcdef + "," + imported,
		"ann unknown,bobs,nobodys,tomb":                     "",
		"ann a.b,,admin,abcdef,%00,Abcdef":                  abcdef,
		"bob abcdef,bobs":                                   none("bobs"),
		"admin nobodys,bobs,unknown":                        none("nobodys") + "," + none("bobs"),
		"ann " + strings.Repeat("abcdef,", 99) + "imported": abcdef + "," + imported,
		"ann " + strings.Repeat("x", 4000-7) + ",abcdef":    abcdef,
		"ann ,": "",
	} {
		who, aliases, _ := strings.Cut(request, " ")
		wantJSON(t, r.as(who, "GET", "/api/stats/clicks?alias="+aliases, ""),
			`{"items":[`+want+`]}`, request)
	}
	for _, query := range []string{"", "alias=", "alias=a&alias=b",
		"alias=" + strings.Repeat("a,", 100) + "a", "alias=" + strings.Repeat("x", 4001)} {
		wantProblem(t, r.as("ann", "GET", "/api/stats/clicks?"+query, ""), 400, "parameter",
			"alias")
	}
	r.fake.Fail(link.ErrDamaged)
	if w := r.as("ann", "GET", "/api/stats/clicks?alias=abcdef", ""); w.Body.String() !=
		`{"items":[]}`+"\n" {
		t.Errorf("a damaged row: got %d %s", w.Code, w.Body)
	}
	r.fake.Fail(link.ErrUnavailable)
	w := r.as("ann", "GET", "/api/stats/clicks?alias=abcdef", "")
	wantProblem(t, w, 503, "storage-unavailable", "")
	if w.Header().Get("Retry-After") == "" {
		t.Error("it does not say when to come back")
	}
}

// Top links are whole links, although a cache has them without their titles and tags.
func TestTopLinks(t *testing.T) {
	r := newRigOn(t, withCache)
	now := r.clock.Now()
	owners := []string{"ann", "bob", "ann", "ann"}
	for i, owner := range owners {
		l := link.Link{Name: link.Name(fmt.Sprint("top", i)),
			LongURL: "https://example.com/?<" + owner, Owner: owner, UpdatedAt: now,
			Title: "Top " + fmt.Sprint(i), Tags: []string{"print"}}
		r.fake.Put(l)
		r.fake.Cache(l.Name)
		at := now.AddDate(0, 0, []int{0, -3, -3, -20}[i])
		for range 4 - i {
			r.clicks.Click(l, clicker(at, "192.0.2.1", "a.example"))
		}
	}
	answer := func(window string, links ...int) string {
		items := make([]string, len(links))
		for i, n := range links {
			items[i] = fmt.Sprintf(`{"alias":"top%d","domain":"tiney.to",`+
				`"shortUrl":"https://tiney.to/top%[1]d","longUrl":"https://example.com/?<%s",`+
				`"createdAtUtc":null,"expiresAtUtc":null,"updatedAtUtc":%[4]q,"statusCode":302,`+
				`"forward":[],"disabled":false,"shared":false,"locked":false,`+
				`"deletedAtUtc":null,"title":"Top %[1]d","tags":["print"],"owner":%[2]q,`+
				`"startsAtUtc":null,"goneUrl":null,"rules":[],`+
				`"password":false,"maxOpens":null,"opensLeft":null,"clicks":%[3]d}`, n, owners[n], 4-n,
				now.Format(time.RFC3339))
		}
		return fmt.Sprintf(`{"window":%q,"asOfUtc":%q,"items":[%s]}`, window,
			now.Format(time.RFC3339), strings.Join(items, ","))
	}
	for request, want := range map[string]string{
		"ann":                         answer("24h", 0),
		"bob":                         answer("24h"),
		"ann ?window=7d":              answer("7d", 0, 2),
		"ann ?window=30d":             answer("30d", 0, 2, 3),
		"ann ?window=7d&limit=1":      answer("7d", 0),
		"admin ?limit=100&window=7d":  answer("7d", 0, 1, 2),
		"admin ?limit=100&window=30d": answer("30d", 0, 1, 2, 3),
	} {
		who, query, _ := strings.Cut(request, " ")
		wantJSON(t, r.as(who, "GET", "/api/stats/top"+query, ""), want, request)
	}
	tool, _ := r.calls("ann", "getTopLinks", `{"window":"7d"}`)
	if items, _ := tool.StructuredContent["items"].([]any); len(items) != 2 ||
		items[1].(map[string]any)["title"] != "Top 2" {
		t.Errorf("the tool: %+v", tool)
	}
	for query, field := range map[string]string{
		"window=1h": "window", "window=": "window", "window=7D": "window",
		"window=7d&window=24h": "window",
		"limit=0":              "limit", "limit=101": "limit", "limit=x": "limit",
		"limit=1&limit=1": "limit",
	} {
		wantProblem(t, r.as("ann", "GET", "/api/stats/top?"+query, ""), 400, "parameter", field)
	}
	// Until the links are known, clients come back. That is no failure of storage.
	r.clicks.top = fmt.Errorf("%w: %w", clicks.ErrComputing, link.ErrUnavailable)
	w := r.as("ann", "GET", "/api/stats/top", "")
	wantProblem(t, w, 503, "computing", "")
	if w.Header().Get("Retry-After") == "" || strings.Contains(r.log.String(), "WARN") {
		t.Errorf("got %v, logged %s", w.Header(), r.log)
	}
	r.clicks.top = errors.New("a fault")
	wantProblem(t, r.as("ann", "GET", "/api/stats/top", ""), 500, "internal", "")
}

func TestStatsOfTheService(t *testing.T) {
	r := newRig(t)
	const none = `{"linksCreated":0,"clicks":0,"averageMs":null}`
	wantJSON(t, r.get("/api/stats"), none)
	r.putClicked(clicker(r.clock.Now(), "192.0.2.1", "a.example"),
		clicker(r.clock.Now().Add(-999*24*time.Hour), "192.0.2.1", "a.example"))
	r.clicks.Created(3)
	r.clock.Advance(time.Minute) // for so long, what was read counts
	for _, who := range []string{"", "ann", "admin"} {
		wantJSON(t, r.as(who, "GET", "/api/stats", ""),
			`{"linksCreated":3,"clicks":2,"averageMs":1.5}`, who)
	}

	r = newRig(t, func(c *functions.Config) { c.PublicStats = false })
	token, _ := claimToken(t)
	wantProblem(t, r.get("/api/stats"), 401, "credentials-missing", "")
	wantProblem(t, r.as(token, "GET", "/api/stats", ""), 403, "owner-needed", "")
	wantProblem(t, r.as("ann", "GET", "/api/stats", ""), 403, "admin-needed", "")
	wantJSON(t, r.as("admin", "GET", "/api/stats", ""), none)
}

func TestListsWithClicks(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	r.putClicked(clicker(now, "192.0.2.1", "a.example"), clicker(now.Add(-time.Hour), "192.0.2.1",
		"a.example"), clicks.Click{At: now, Bot: true})
	r.fake.Put(link.Link{Name: "older", LongURL: "https://example.com/2", Owner: "ann",
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
	items := strings.Split(strings.TrimSuffix(plain, `}],"nextCursor":null,"searched":2}`), "},{")
	want := items[0] + `,"clicks":2,"bots":1,"lastClickAtUtc":"` + now.Format(time.RFC3339) +
		`"},{` + items[1] + `,"clicks":0,"bots":0,"lastClickAtUtc":null}],"nextCursor":null,"searched":2}`
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

// A list does not wait long for the totals of its links, and does without them.
func TestListsWithoutTheirClicks(t *testing.T) {
	const null = `,"clicks":null,"bots":null,"lastClickAtUtc":null}],"nextCursor":null,"searched":1}` +
		"\n"
	for name, totals := range map[string]func(context.Context) error{
		"they cannot be read": func(context.Context) error {
			return fmt.Errorf("%w: it is down", link.ErrUnavailable)
		},
		"they are slow": slow(time.Hour).call,
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.putClicked(clicker(r.clock.Now(), "192.0.2.1", "a.example"))
			r.clicks.totals = totals
			begun := time.Now()
			w := r.as("ann", "GET", "/api/links?clicks=true", "")
			if took := time.Since(begun); w.Code != 200 || took > 3*time.Second ||
				!strings.HasSuffix(w.Body.String(), null) {
				t.Errorf("%s: got %d %s after %v", name, w.Code, w.Body, took)
			}
			if w := r.as("ann", "GET", "/api/links", ""); strings.Contains(w.Body.String(),
				"clicks") {
				t.Errorf("%s: got %s without asking for clicks", name, w.Body)
			}
		})
	}
	r := newRig(t)
	r.putClicked()
	r.clicks.totals = func(context.Context) error { return errors.New("a fault") }
	wantProblem(t, r.as("ann", "GET", "/api/links?clicks=true", ""), 500, "internal", "")
}

func TestStatsWithoutStorage(t *testing.T) {
	r := newRig(t)
	r.putClicked()
	r.fake.Put(link.Link{Name: "tagged", LongURL: "https://example.com/2", Owner: "ann",
		Tags: []string{"x"}})
	r.fake.FailClicks(link.ErrUnavailable)
	for _, target := range []string{"/api/links/abcdef/stats", "/api/stats", "/api/stats/links",
		"/api/stats/links?tag=x", "/api/stats/clicks?alias=abcdef", "/api/export"} {
		wantProblem(t, r.as("ann", "GET", target, ""), 503, "storage-unavailable", "")
	}
}
