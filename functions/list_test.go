package functions_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
)

type page struct {
	Items []struct{ Alias string }
	Next  *string `json:"nextCursor"`
}

// list returns a page of a list: its aliases, and the cursor of the next page.
func (r *rig) list(who string, query url.Values) (aliases []string, next string) {
	r.t.Helper()
	w := r.as(who, "GET", "/api/links?"+query.Encode(), "")
	var p page
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 200 || p.Items == nil {
		r.t.Fatalf("%v: got %d %s, %v", query, w.Code, w.Body, err)
	}
	for _, l := range p.Items {
		aliases = append(aliases, l.Alias)
	}
	if p.Next != nil {
		next = *p.Next
	}
	return aliases, next
}

func TestList(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	for i, l := range []link.Link{
		{Name: "plain", LongURL: "https://example.com/Path"},
		{Name: "tagged", LongURL: "https://example.org/", Tags: []string{"work", "Home"},
			Title: "ΟΔΟΣ"},
		{Name: "expired", LongURL: "https://example.com/e", ExpiresAt: now},
		{Name: "disabled", LongURL: "https://example.com/d", Disabled: true},
		{Name: "deleted", LongURL: "https://example.com/x", DeletedAt: now},
		{Name: "both", LongURL: "https://example.com/b", Disabled: true, ExpiresAt: now},
	} {
		l.Owner, l.CreatedAt = "ann", now.Add(time.Duration(i)*time.Second)
		r.fake.Put(l)
	}
	r.fake.Put(link.Link{Name: "bobs", LongURL: "https://example.com/", Owner: "bob"})
	for query, want := range map[string]string{
		"":                              "both disabled expired tagged plain",
		"state=live":                    "tagged plain",
		"state=expired":                 "both expired",
		"state=disabled":                "disabled",
		"state=deleted":                 "deleted",
		"tag=work":                      "tagged",
		"tag=WORK":                      "tagged", // in any case
		"tag=work&tag=home":             "tagged",
		"tag=work&tag=other":            "",
		"tag=wor":                       "",
		"q=PLAIN":                       "plain",
		"q=path":                        "plain",
		"q=EXAMPLE.ORG":                 "tagged",
		"q=οδος":                        "tagged", // with the sigma that ends a word
		"q=nothing":                     "",
		"q=com+PATH":                    "plain", // words in any order, each somewhere
		"q=οδος+tagged++home":           "tagged",
		"q=plain+tagged":                "",
		"q=":                            "both disabled expired tagged plain",
		"q=example.com&state=live":      "plain",
		"owner=ann":                     "both disabled expired tagged plain",
		"clicks=true&unknown=1&tag=":    "both disabled expired tagged plain",
		"limit=100":                     "both disabled expired tagged plain",
		"q=example&tag=work&state=live": "tagged",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got, next := r.list("ann", values); strings.Join(got, " ") != want || next != "" {
			t.Errorf("%s: got %v, next %q, want %s", query, got, next, want)
		}
	}
	if got, _ := r.list("admin", url.Values{"owner": {"bob"}}); fmt.Sprint(got) != "[bobs]" {
		t.Errorf("an admin sees %v", got)
	}
	if got, _ := r.list("admin", nil); got != nil {
		t.Errorf("an admin has %v", got)
	}
	wantProblem(t, r.as("ann", "GET", "/api/links?owner=bob", ""), 403, "forbidden",
		"owner")
	wantProblem(t, r.as("ann", "GET", "/api/links?owner=bob&limit=x", ""), 403, "forbidden",
		"owner")
	wantJSON(t, r.as("eve", "GET", "/api/links", ""), `{"items":[],"nextCursor":null,"searched":0}`)
	// A list shows a link as GET of the link does.
	var p struct{ Items []json.RawMessage }
	if err := json.Unmarshal(r.as("ann", "GET", "/api/links?q=tagged", "").Body.Bytes(),
		&p); err != nil {
		t.Fatal(err)
	}
	if alone := strings.TrimSpace(r.as("ann", "GET", "/api/links/tagged",
		"").Body.String()); string(p.Items[0]) != alone {
		t.Errorf("listed %s, alone %s", p.Items[0], alone)
	}
}

// A short URL in q stands for its alias, and finding it takes one read. The list still has only
// links of one owner that pass its other filters.
func TestListOfAShortURL(t *testing.T) {
	r := newRig(t)
	r.fake.Put(link.Link{Name: "menu", LongURL: "https://example.com/menu", Owner: "ann",
		Tags: []string{"print"}})
	r.fake.Put(link.Link{Name: "menu-2", LongURL: "https://example.com/?of=tiney.to/menu",
		Owner: "ann"})
	r.fake.Put(link.Link{Name: "gone", LongURL: "https://example.com/gone", Owner: "ann",
		DeletedAt: r.clock.Now()})
	for _, test := range []struct{ who, query, want string }{
		{"ann", "q=https://tiney.to/menu", "[menu]"},
		{"ann", "q=Tiney.to/menu&tag=print&state=live", "[menu]"},
		{"ann", "q=tiney.to/menu&tag=other", "[]"},
		{"ann", "q=tiney.to/Menu", "[]"},
		{"ann", "q=tiney.to/nobody", "[]"},
		{"ann", "q=tiney.to/gone", "[]"},
		{"ann", "q=tiney.to/gone&state=deleted", "[gone]"},
		{"bob", "q=tiney.to/menu", "[]"},
		{"admin", "q=tiney.to/menu", "[]"},
		{"admin", "q=tiney.to/menu&owner=ann", "[menu]"},
	} {
		values, err := url.ParseQuery(test.query)
		if err != nil {
			t.Fatal(err)
		}
		calls := r.fake.Calls()
		got, next := r.list(test.who, values)
		if fmt.Sprint(got) != test.want || next != "" || r.fake.Calls() != calls+1 {
			t.Errorf("%s, %s: %v, next %q, %d calls", test.who, test.query, got, next,
				r.fake.Calls()-calls)
		}
	}
	r.fake.Fail(link.ErrDamaged)
	if got, _ := r.list("ann", url.Values{"q": {"tiney.to/menu"}}); got != nil {
		t.Errorf("a damaged row is %v", got)
	}
	r.fake.Fail(link.ErrUnavailable)
	wantProblem(t, r.as("ann", "GET", "/api/links?q=tiney.to/menu", ""), 503, "storage-unavailable",
		"")
}

func TestPages(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	var want []string
	for i := range 1005 {
		a := fmt.Sprintf("a%04d", 1004-i)
		want = append(want, a)
		r.fake.Put(link.Link{Name: link.Name(a), LongURL: "https://example.com/" + a,
			Owner: "ann", CreatedAt: now.Add(-time.Duration(i) * time.Second)})
	}
	for _, limit := range []string{"", "1", "7", "100"} {
		query := url.Values{}
		size := 50
		if limit != "" {
			query.Set("limit", limit)
			_, _ = fmt.Sscan(limit, &size)
		}
		var got []string
		for {
			some, next := r.list("ann", query)
			if len(some) > size || next != "" && len(some) < size {
				t.Fatalf("limit %s: %d on a page", limit, len(some))
			}
			got = append(got, some...)
			if next == "" {
				break
			}
			query.Set("cursor", next)
		}
		if !slices.Equal(got, want) {
			t.Errorf("limit %s: %d links, or not in their order", limit, len(got))
		}
	}
	// One call reads 1,000 links; the match is further on.
	query := url.Values{"q": {"a0002"}}
	some, next := r.list("ann", query)
	if some != nil || next == "" {
		t.Fatalf("got %v, next %q", some, next)
	}
	query.Set("cursor", next)
	if some, next = r.list("ann", query); fmt.Sprint(some) != "[a0002]" || next != "" {
		t.Errorf("got %v, next %q", some, next)
	}
}

func TestListsThatAreRefused(t *testing.T) {
	r := newRig(t)
	for i := range 3 {
		for _, owner := range []string{"ann", "bob"} {
			r.fake.Put(link.Link{Name: link.Name(fmt.Sprint(owner, i)),
				LongURL: "https://example.com/", Owner: owner, Tags: []string{"t"}})
		}
	}
	_, cursor := r.list("ann", url.Values{"limit": {"1"}})
	if _, err := base64.RawURLEncoding.DecodeString(cursor); err != nil || cursor == "" {
		t.Fatalf("cursor %q: %v", cursor, err)
	}
	got, _ := r.list("ann", url.Values{"limit": {"2"}, "cursor": {cursor}})
	if fmt.Sprint(got) != "[ann1 ann2]" {
		t.Errorf("another limit: got %v", got)
	}
	for query, field := range map[string]string{
		"limit=0":                                "limit",
		"limit=101":                              "limit",
		"limit=":                                 "limit",
		"limit=1&limit=2":                        "limit",
		"state=all":                              "state",
		"state=":                                 "state",
		"q=a&q=b":                                "q",
		"cursor=x":                               "cursor",
		"cursor=AAAAAAAAAAAAAAAA":                "cursor",
		"cursor=" + cursor + "=":                 "cursor",
		"cursor=" + cursor + "A":                 "cursor",
		"cursor=" + cursor + "&q=x":              "cursor",
		"cursor=" + cursor + "&tag=t":            "cursor",
		"cursor=" + cursor + "&state=live":       "cursor",
		"cursor=" + cursor + "&cursor=" + cursor: "cursor",
		"q=%zz":                                  "",
	} {
		wantProblem(t, r.as("ann", "GET", "/api/links?"+query, ""), 400, "parameter", field)
	}
	wantProblem(t, r.as("bob", "GET", "/api/links?cursor="+cursor, ""), 400, "parameter", "cursor")
	// the store refuses the position in a made-up cursor
	r.fake.Fail(link.ErrPosition)
	wantProblem(t, r.as("ann", "GET", "/api/links?cursor="+cursor, ""), 400, "parameter", "cursor")
	r.fake.Fail(nil)
	got, _ = r.list("admin", url.Values{"owner": {"ann"}, "cursor": {cursor}})
	if fmt.Sprint(got) != "[ann1 ann2]" {
		t.Errorf("an admin who lists the same: got %v", got)
	}
}

// Searches are short. A short URL with a long query behind it is none.
func TestSearchesHaveLimits(t *testing.T) {
	r := newRig(t)
	r.fake.Put(link.Link{Name: "anns", LongURL: "https://example.com/", Owner: "ann"})
	words := func(n int) (all string) {
		for i := range n {
			all += fmt.Sprint(" w", i)
		}
		return all
	}
	tags := func(n int) url.Values { return url.Values{"tag": slices.Repeat([]string{"t"}, n)} }
	for _, test := range []struct {
		query url.Values
		field string // "" if it is accepted
	}{
		{url.Values{"q": {strings.Repeat("ü", 200)}}, ""},
		{url.Values{"q": {strings.Repeat("ü", 2048)}}, ""}, // as a URL may be
		{url.Values{"q": {strings.Repeat("ü", 2048) + "x"}}, "q"},
		{url.Values{"q": {" https://example.com/" + strings.Repeat("x", 4076) + " "}}, ""},
		{url.Values{"q": {"https://example.com/" + strings.Repeat("x", 4077)}}, "q"},
		{url.Values{"q": {"a " + strings.Repeat("ü", 198)}}, ""},
		{url.Values{"q": {"a " + strings.Repeat("ü", 199)}}, "q"},
		{url.Values{"q": {strings.Repeat("a ", 100)}}, ""}, // one word
		{url.Values{"q": {strings.Repeat("a A ", 50)}}, ""},
		{url.Values{"q": {words(20)}}, ""},
		{url.Values{"q": {words(21)}}, "q"},
		{url.Values{"q": {words(21) + words(21)}}, "q"},
		{url.Values{"q": {strings.Repeat("x y ", 5000)}}, "q"},
		{url.Values{"q": {"https://tiney.to/anns?" + strings.Repeat("x", 300)}}, ""},
		{url.Values{"q": {"tiney.to/anns#" + strings.Repeat(".", 4000)}}, ""},
		{url.Values{"q": {"example.org/anns?" + strings.Repeat("x", 300)}}, ""},
		{tags(20), ""},
		{tags(21), "tag"},
		{url.Values{"tag": append(make([]string, 30), "t")}, ""}, // empty ones do not count
	} {
		for _, path := range []string{"/api/links?", "/api/export?"} {
			w := r.as("ann", "GET", path+test.query.Encode(), "")
			if test.field != "" {
				wantProblem(t, w, 400, "parameter", test.field)
			} else if w.Code != 200 {
				t.Errorf("%s%v: got %d %s", path, test.query, w.Code, w.Body)
			}
		}
	}
	if got, _ := r.list("ann", url.Values{"q": {"anns example.com ANNS"}}); len(got) != 1 {
		t.Errorf("words that are there: got %q", got)
	}
}

// A list says how many links it looked at: all up to the last one that it has.
func TestListSaysHowManyLinksItSearched(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	for i := range 1200 {
		l := link.Link{Name: link.Name(fmt.Sprintf("l%04d", i)), LongURL: "https://example.com/",
			Owner: "ann", CreatedAt: now.Add(-time.Duration(i) * time.Second)}
		if i%400 == 7 {
			l.Tags = []string{"rare"}
		}
		r.fake.Put(l)
	}
	for query, want := range map[string]int{"": 50, "tag=rare": 1000, "tag=rare&limit=2": 408,
		"q=https://tiney.to/l0007": 1, "q=tiney.to/unknown": 0} {
		var p struct{ Searched int }
		w := r.as("ann", "GET", "/api/links?"+query, "")
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Searched != want {
			t.Errorf("%s: searched %d (%v), want %d", query, p.Searched, err, want)
		}
	}
}

func TestTags(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	for i, tags := range [][]string{{"new", "Print"}, {"print"}, {"print", "old"}, {"gone"}} {
		l := link.Link{Name: link.Name(fmt.Sprint("l", i)), LongURL: "https://example.com/",
			Owner: "ann", Tags: tags, CreatedAt: now.Add(-time.Duration(i) * time.Second)}
		if tags[0] == "gone" {
			l.DeletedAt = now
		}
		r.fake.Put(l)
	}
	want := func(who, query, tags string) {
		t.Helper()
		wantJSON(t, r.as(who, "GET", "/api/tags"+query, ""), tags)
	}
	const anns = `{"items":[{"tag":"Print","links":3},{"tag":"new","links":1},` +
		`{"tag":"old","links":1}],"complete":true}`
	want("ann", "", anns)
	want("admin", "?owner=ann", anns)
	want("eve", "", `{"items":[],"complete":true}`)
	wantProblem(t, r.as("eve", "GET", "/api/tags?owner=ann", ""), 403, "forbidden", "owner")
	for i := range 1000 { // newer than all others
		r.fake.Put(link.Link{Name: link.Name(fmt.Sprint("more", i)), Owner: "ann",
			LongURL: "https://example.com/", CreatedAt: now.Add(time.Hour)})
	}
	want("ann", "", `{"items":[],"complete":false}`) // of the newest 1,000 links
	r.fake.Fail(link.ErrUnavailable)
	wantProblem(t, r.as("ann", "GET", "/api/tags", ""), 503, "storage-unavailable", "")
}

// ordered is a list in an order.
type ordered struct {
	Items []struct {
		Alias        string
		Clicks, Bots *int64
		LastAt       *string `json:"lastClickAtUtc"`
	}
	Next     *string `json:"nextCursor"`
	Searched int
	Complete *bool
}

// aliases returns the aliases of the list, each with its clicks if it has them.
func (o ordered) aliases() string {
	var all []string
	for _, l := range o.Items {
		if l.Clicks != nil {
			l.Alias += fmt.Sprint(":", *l.Clicks)
		}
		all = append(all, l.Alias)
	}
	return strings.Join(all, " ")
}

func TestOrdersOfAList(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	for i, of := range []struct {
		alias   link.Name
		ends    time.Duration // 0: never
		clicked map[int]int   // how often on this many days before
		before  int64         // clicks of another service
	}{
		{"first", 3 * time.Hour, map[int]int{0: 1, 3: 5}, 0},
		{"second", 0, map[int]int{20: 9}, 0},
		{"third", time.Hour, nil, 0},
		{"fourth", 0, map[int]int{0: 1, 20: 3}, 0},
		{"fifth", 3 * time.Hour, map[int]int{0: 3}, 8},
		{"sixth", 0, nil, 0},
		{"deleted", time.Minute, map[int]int{0: 10}, 0},
	} {
		l := link.Link{Name: of.alias, Owner: "ann", Before: link.Count{Clicks: of.before},
			LongURL: "https://example.com/" + string(of.alias), Tags: []string{"odd"},
			CreatedAt: now.AddDate(0, 0, -30).Add(time.Duration(i) * time.Second)}
		if i%2 == 1 {
			l.Tags = []string{"even"}
		}
		if of.ends > 0 {
			l.ExpiresAt = now.Add(of.ends)
		}
		if of.alias == "deleted" {
			l.DeletedAt = now
		}
		r.fake.Put(l)
		for days, n := range of.clicked {
			for range n {
				r.clicks.Click(l, clicker(now.AddDate(0, 0, -days), "192.0.2.1", "a.example"))
			}
		}
	}
	r.fake.Put(link.Link{Name: "bobs", Owner: "bob", LongURL: "https://example.com/bob"})
	for query, want := range map[string]string{
		"order=newest":                     "sixth fifth fourth third second first",
		"order=oldest":                     "first second third fourth fifth sixth",
		"order=ends":                       "third fifth first sixth fourth second",
		"order=clicks":                     "fifth:11 second:9 first:6 fourth:4 sixth:0 third:0",
		"order=24h":                        "fifth:3 fourth:1 first:1 sixth:0 third:0 second:0",
		"order=7d":                         "first:6 fifth:3 fourth:1 sixth:0 third:0 second:0",
		"order=30d":                        "second:9 first:6 fourth:4 fifth:3 sixth:0 third:0",
		"order=oldest&limit=2":             "first second",
		"order=clicks&limit=2":             "fifth:11 second:9",
		"order=7d&limit=1&clicks=true":     "first:6",
		"order=clicks&clicks=false":        "fifth:11 second:9 first:6 fourth:4 sixth:0 third:0",
		"order=ends&clicks=true&limit=2":   "third:0 fifth:11",
		"order=oldest&tag=even":            "second fourth sixth",
		"order=30d&q=f+com":                "first:6 fourth:4 fifth:3",
		"order=ends&state=deleted":         "deleted",
		"order=24h&state=deleted":          "deleted:10",
		"order=clicks&q=tiney.to/fifth":    "fifth:11",
		"order=7d&q=tiney.to/bobs":         "",
		"order=oldest&domain=go.example":   "",
		"order=oldest&cursor=&owner=ann":   "first second third fourth fifth sixth",
		"order=newest&clicks=true&limit=1": "sixth:0",
	} {
		var got ordered
		w := r.as("ann", "GET", "/api/links?"+query, "")
		err := json.Unmarshal(w.Body.Bytes(), &got)
		newest := strings.Contains(query, "newest")
		if w.Code != 200 || err != nil || got.aliases() != want || got.Items == nil ||
			(got.Complete == nil) != newest || !newest && (!*got.Complete || got.Next != nil) {
			t.Errorf("%s: got %d %s, %v\nwant %s", query, w.Code, w.Body, err, want)
		}
		allTime := strings.Contains(query, "order=clicks") || strings.Contains(query,
			"clicks=true") && !strings.Contains(query, "order=7d")
		if want != "" && strings.Contains(w.Body.String(), "lastClickAtUtc") != allTime {
			t.Errorf("%s: got %s", query, w.Body)
		}
	}
	got, _ := r.list("admin", url.Values{"order": {"oldest"}, "owner": {"bob"}})
	if fmt.Sprint(got) != "[bobs]" {
		t.Errorf("an admin sees %v", got)
	}
	if got, _ := r.list("admin", url.Values{"order": {"7d"}}); got != nil {
		t.Errorf("an admin has %v", got)
	}
	tool, _ := r.calls("ann", "listLinks", `{"order":"ends","limit":1}`)
	if items, _ := tool.StructuredContent["items"].([]any); len(items) != 1 ||
		items[0].(map[string]any)["alias"] != "third" ||
		tool.StructuredContent["complete"] != true {
		t.Errorf("the tool: %+v", tool)
	}
	_, cursor := r.list("ann", url.Values{"limit": {"1"}})
	if got, _ := r.list("ann", url.Values{"order": {"newest"}, "cursor": {cursor},
		"limit": {"1"}}); fmt.Sprint(got) != "[fifth]" {
		t.Errorf("the next page is %v", got)
	}
	for query, field := range map[string]string{
		"order=": "order", "order=Newest": "order", "order=1h": "order",
		"order=7d&order=7d": "order", "order=oldest&cursor=" + cursor: "cursor",
		"order=7d&cursor=x": "cursor",
	} {
		wantProblem(t, r.as("ann", "GET", "/api/links?"+query, ""), 400, "parameter", field)
	}
	r.clicks.top = fmt.Errorf("%w: %w", clicks.ErrComputing, link.ErrUnavailable)
	wantProblem(t, r.as("ann", "GET", "/api/links?order=24h", ""), 503, "computing", "")
	r.clicks.totals = func(context.Context) error { return link.ErrUnavailable }
	wantProblem(t, r.as("ann", "GET", "/api/links?order=clicks", ""), 503, "storage-unavailable",
		"")
}

// Links that are not among the newest 1,000 are in no order.
func TestOrdersOfManyLinks(t *testing.T) {
	r := newRig(t)
	now := r.clock.Now()
	put := func(i int) {
		r.fake.Put(link.Link{Name: link.Name(fmt.Sprintf("l%04d", i)), Owner: "ann",
			LongURL: "https://example.com/", CreatedAt: now.Add(-time.Duration(i) * time.Second)})
	}
	for i := range 1000 {
		put(i)
	}
	for _, complete := range []bool{true, false} {
		for _, order := range []string{"oldest", "ends", "clicks", "24h"} {
			var got ordered
			w := r.as("ann", "GET", "/api/links?limit=1&order="+order, "")
			first := map[bool]string{true: "l0999", false: "l0000"}[order == "oldest"]
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || len(got.Items) != 1 ||
				got.Items[0].Alias != first || got.Searched != 1000 || *got.Complete != complete {
				t.Errorf("%s: got %d %s, %v", order, w.Code, w.Body, err)
			}
		}
		put(1000)
	}
}
