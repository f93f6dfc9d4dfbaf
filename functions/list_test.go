package functions_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

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
	if got := strings.TrimSpace(r.as("eve", "GET", "/api/links",
		"").Body.String()); got != `{"items":[],"nextCursor":null,"searched":0}` {
		t.Errorf("an empty list is %s", got)
	}
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
	tags := func(who, query string) string {
		return strings.TrimSpace(r.as(who, "GET", "/api/tags"+query, "").Body.String())
	}
	const anns = `{"items":[{"tag":"Print","links":3},{"tag":"new","links":1},` +
		`{"tag":"old","links":1}],"complete":true}`
	for _, got := range []string{tags("ann", ""), tags("admin", "?owner=ann")} {
		if got != anns {
			t.Errorf("got %s\nwant %s", got, anns)
		}
	}
	if got := tags("eve", ""); got != `{"items":[],"complete":true}` {
		t.Errorf("without links: %s", got)
	}
	wantProblem(t, r.as("eve", "GET", "/api/tags?owner=ann", ""), 403, "forbidden", "owner")
	for i := range 1000 { // newer than all others
		r.fake.Put(link.Link{Name: link.Name(fmt.Sprint("more", i)), Owner: "ann",
			LongURL: "https://example.com/", CreatedAt: now.Add(time.Hour)})
	}
	if got := tags("ann", ""); got != `{"items":[],"complete":false}` {
		t.Errorf("of the newest 1,000 links: %s", got)
	}
	r.fake.Fail(link.ErrUnavailable)
	wantProblem(t, r.as("ann", "GET", "/api/tags", ""), 503, "storage-unavailable", "")
}
