package storage_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"tiney/clicks"
	"tiney/internal/faultproxy"
	"tiney/internal/rawtables"
	"tiney/internal/testutil"
	"tiney/link"
	"tiney/storage"
	"tiney/storage/table"
)

// newStatsRig makes a rig whose clock stands at half past two in the afternoon, UTC, and whose
// tables exist.
func newStatsRig(t testing.TB) *rig {
	t.Helper()
	r := newRig(t)
	r.config.Clicks = storage.ClicksConfig{Mode: clicks.ModeFull, FlushEvery: time.Second,
		KeepDays: 400}
	r.clock.Advance(r.clock.Now().Truncate(24 * time.Hour).Add(14*time.Hour +
		30*time.Minute).Sub(r.clock.Now()))
	r.Make()
	return r
}

func (r *rig) today() clicks.Day { return clicks.DayOf(r.clock.Now()) }

// visit is a click of somebody.
func visit(at time.Time, visitor byte) clicks.Click {
	return clicks.Click{At: at, Took: time.Millisecond,
		Visitor: clicks.NewVisitor(netip.AddrFrom4([4]byte{192, 0, 2, visitor}), "x"),
		Names:   [...]string{"a.example", "DE", "Chrome", "Windows", "desktop"}}
}

// flush writes what a process has counted.
func (r *rig) flush(s *storage.Links) {
	r.t.Helper()
	if err := patiently(func() error { return s.Clicks.Flush(ctx) }); err != nil {
		r.t.Fatal(err)
	}
}

// clickRow is a row of ShortUrlsClicks, as another program would write it.
func clickRow(day clicks.Day, alias, process string, n int64,
	more rawtables.Entity) rawtables.Entity {
	e := rawtables.Entity{"PartitionKey": fmt.Sprintf("%s-%.1s", day,
		fmt.Sprintf("%x", sha256.Sum256([]byte(alias)))), "RowKey": alias + "|" + process + "-1"}
	for name, value := range map[string]int64{"Clicks": n, "Bots": 1,
		"TookMicroseconds": 1000 * n} {
		e[name], e[name+"@odata.type"] = fmt.Sprint(value), "Edm.Int64"
	}
	e["LastAtUtc"], e["LastAtUtc@odata.type"] = day.Start().Add(12*time.Hour).Format(time.RFC3339),
		"Edm.DateTime"
	e["Hours"] = fmt.Sprintf("[[12,%d,1]]", n)
	for name, value := range more {
		e[name] = value
	}
	return e
}

// totalsRow is a row of ShortUrlsClickTotals.
func totalsRow(alias, through, countedFrom string, n int64) rawtables.Entity {
	e := clickRow(0, alias, "", n, nil)
	e["PartitionKey"], e["RowKey"],
		e["Through"] = rawtables.Link(link.Link{Alias: link.Alias(alias)})["PartitionKey"], alias,
		through
	if alias == clicks.All {
		e["PartitionKey"] = "xx"
	}
	delete(e, "Hours")
	if countedFrom != "" {
		e["CountedFrom"] = countedFrom
	}
	return e
}

// putAll writes rows that are not there.
func (r *rig) putAll(table string, rows []rawtables.Entity) {
	r.t.Helper()
	var all errgroup.Group
	all.SetLimit(16)
	for _, e := range rows {
		all.Go(func() error { r.Put(table, e); return nil })
	}
	_ = all.Wait()
}

func (r *rig) days(s *storage.Links, l link.Link, from, to clicks.Day) []clicks.Count {
	r.t.Helper()
	days, err := s.Clicks.Days(ctx, l, from, to)
	if err != nil {
		r.t.Fatal(err)
	}
	return days
}

// TestDaysOfALink lets three processes count.
func TestDaysOfALink(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	var processes []*storage.Links
	for range 3 {
		processes = append(processes, r.instance())
	}
	first := r.today()
	midnight := (first + 1).Start()
	for i, p := range processes {
		p.Clicks.Click("ab", visit(first.Start(), 1)) // the same visitor everywhere
		p.Clicks.Click("ab", visit(midnight.Add(-time.Nanosecond), byte(10+i)))
		p.Clicks.Click("ab", clicks.Click{At: midnight.Add(-time.Nanosecond), Bot: true})
		for _, other := range []link.Alias{"a", "abc", "ab-", "Ab", "aB"} {
			p.Clicks.Click(other, visit(first.Start(), 2))
		}
		r.flush(p)
	}
	r.clock.Advance(24 * time.Hour)
	for i, p := range processes {
		p.Clicks.Click("ab", visit(midnight.In(time.FixedZone("", 9*3600)), byte(i)))
		r.flush(p)
	}
	r.proxy.Reset()
	got := r.days(processes[0], link.Link{Alias: "ab"}, first-1, first+2)
	if n := len(r.proxy.Calls()); n != 4 {
		t.Errorf("%d calls for four days: %v", n, r.proxy.Calls())
	}
	for i, want := range []struct{ clicks, bots, visitors, firstHour, lastHour int64 }{{},
		{6, 3, 4, 3, 3}, {3, 0, 3, 3, 0}, {}} {
		d := got[i]
		if d.Clicks != want.clicks || d.Bots != want.bots ||
			d.Visitors.Estimate() != want.visitors || int64(d.Hours[0].Clicks) != want.firstHour ||
			int64(d.Hours[23].Clicks) != want.lastHour ||
			d.Took != time.Duration(want.clicks)*time.Millisecond {
			t.Errorf("day %d: got %+v and %d visitors, want %+v", i, d.Total, d.Visitors.Estimate(),
				want)
		}
		for dimension := range clicks.Dimensions {
			if top := d.Top(dimension, 10); want.clicks > 0 &&
				(len(top) != 1 || top[0].Clicks != want.clicks) {
				t.Errorf("day %d: dimension %d has %v", i, dimension, top)
			}
		}
	}
	if last := got[1].Last; !last.Equal(midnight.Add(-time.Millisecond)) {
		t.Errorf("the last click was at %v", last)
	}

	// What was counted before the alias was this link's is not its own, nor asked for.
	r.proxy.Reset()
	got = r.days(processes[0], link.Link{Alias: "ab", CountedFrom: midnight}, first-1, first+1)
	if got[1].Clicks != 0 || got[1].Visitors.Estimate() != 0 || got[2].Clicks != 3 ||
		len(r.proxy.Calls()) != 1 {
		t.Errorf("got %+v after %d calls", got, len(r.proxy.Calls()))
	}

	// Where nothing is counted any more, it is still told.
	r.config.Clicks.Mode = clicks.ModeOff
	off := r.instance()
	off.Clicks.Click("ab", visit(r.clock.Now(), 1))
	r.flush(off)
	if got := r.days(off, link.Link{Alias: "ab"}, first, first+1); got[0].Clicks != 6 ||
		got[1].Clicks != 3 {
		t.Errorf("got %+v", got)
	}
}

// TestRowsOfStrangers plants what this service never writes.
func TestRowsOfStrangers(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	today := r.today()
	good := rawtables.Entity{"Referrers": `{"a.example":2,"(direct)":1,"(other)":1,"<script>alert(1)</script>":3,"a\u0000b":4,"":5,"` + strings.Repeat("x", 65) + `":6,` +
		`"=1+1":7,"a.example\r\nSet-Cookie: x":8,"bücher.example":9,"` + strings.Repeat("y", 64) +
		`":10}`, "Countries": `{"DE":1,"\"><b>":1}`, "Devices": `{"tablet":0}`}
	rows := []rawtables.Entity{clickRow(today, "planted", "good", 5, good),
		clickRow(today, "planted", "bare", 1, rawtables.Entity{"Hours": ""})}
	for i, damage := range []rawtables.Entity{
		{"Clicks": "-1"}, {"Bots": "-1"}, {"TookMicroseconds": "-1"},
		{"Clicks": "x", "Clicks@odata.type": "Edm.String"},
		{"Clicks": 1.5, "Clicks@odata.type": "Edm.Double"},
		{"Hours": "["}, {"Hours": "[[12,-1,0]]"}, {"Hours": "[[12,4294967296,0]]"},
		{"Referrers": "[]"}, {"Countries": `{"DE":"1"}`}, {"Browsers": `{"Chrome":-1}`},
		{"Systems": "{"},
		{"Visitors": base64.StdEncoding.EncodeToString([]byte("x")),
			"Visitors@odata.type": "Edm.Binary"},
		{"LastAtUtc": "yesterday", "LastAtUtc@odata.type": "Edm.String"},
	} {
		rows = append(rows, clickRow(today, "planted", fmt.Sprint("bad", i), 100, damage))
	}
	r.putAll(r.Clicks, rows)
	s := r.instance()
	got := r.days(s, link.Link{Alias: "planted"}, today, today)[0]
	if got.Clicks != 6 || got.Bots != 2 || got.Hours[12] != (clicks.Hour{Clicks: 5, Bots: 1}) {
		t.Errorf("got %+v", got)
	}
	want := fmt.Sprint([]clicks.Named{{Name: strings.Repeat("y", 64), Clicks: 10},
		{Name: "a.example", Clicks: 2}, {Name: "(direct)", Clicks: 1}, {Name: "(other)", Clicks: 1 +
			3 + 4 + 5 + 6 + 7 + 8 + 9}})
	if top := fmt.Sprint(got.Top(clicks.Referrers, 10)); top != want {
		t.Errorf("got %s\nwant %s", top, want)
	}
	if top := fmt.Sprint(got.Top(clicks.Countries, 10)); top != "[{DE 1} {(other) 1}]" {
		t.Errorf("got %s", top)
	}
}

func (r *rig) totals(s *storage.Links, links ...link.Link) []clicks.Total {
	r.t.Helper()
	totals, err := s.Clicks.Totals(ctx, links)
	if err != nil {
		r.t.Fatal(err)
	}
	return totals
}

func (r *rig) service(s *storage.Links) clicks.Total {
	r.t.Helper()
	total, err := s.Clicks.Service(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	return total
}

func TestTotalsOfLinks(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	today := r.today()
	from := func(d clicks.Day) string { return d.String() }
	var rows []rawtables.Entity
	for day := today - 3; day <= today; day++ { // each a power of ten more
		n := int64(1)
		for range day - today + 3 {
			n *= 10
		}
		for _, alias := range []string{"plain", "rolled", "ahead", "again", "fresh", "plai", "a",
			clicks.All} {
			rows = append(rows, clickRow(day, alias, "p", n, nil),
				clickRow(day, alias, "q", n, nil))
		}
	}
	rows = append(rows, clickRow(today-1, "damaged", "p", 1, nil), clickRow(today, "damaged", "p",
		-1, nil))
	r.putAll(r.Clicks, rows)
	r.putAll(r.ClickTotals, []rawtables.Entity{
		totalsRow(clicks.All, from(today-2), "", 500_000),
		totalsRow("rolled", from(today-2), "", 70_000),
		totalsRow("ahead", from(today-1), from(today-9), 80_000),
		// of another link that had the alias
		totalsRow("again", from(today-2), from(today-100), 90_000),
		totalsRow("a", from(today-200), "", 60_000),
		totalsRow("damaged", "soon", "", 1),
	})
	links := []link.Link{{Alias: "plain"}, {Alias: "rolled"},
		{Alias: "ahead", CountedFrom: (today - 9).Start()},
		{Alias: "again", CountedFrom: (today - 1).Start()},
		{Alias: "fresh", CountedFrom: today.Start()}, {Alias: "a"}, {Alias: "nobody"},
		{Alias: "damaged"}}
	// A roll-up is in the midst of the day before yesterday.
	r.Put(r.State, rawtables.Entity{"PartitionKey": "rollup", "RowKey": "progress",
		"Partition": from(today-2) + "-7", "Row": "some|row"})
	want := []int64{2220, 72200, 82000, 2200, 2000, 62220, 0, 1}
	s := r.instance()
	check := func(what string, calls int) {
		t.Helper()
		r.proxy.Reset()
		got := r.totals(s, links...)
		for i, total := range got {
			if total.Clicks != want[i] || total.Took != 0 {
				t.Errorf("%s: %s has %+v, want %d clicks", what, links[i].Alias, total, want[i])
			}
		}
		if n := len(r.proxy.Calls()); n != calls && calls > 0 {
			t.Errorf("%s: %d calls, want %d", what, n, calls)
		}
	}
	// The progress, the first day after it, the sum's row and two days of it; three days of all
	// links; and a row for each.
	check("at first", 1+1+1+2+3*16+len(links))
	check("from memory", len(links))
	if got := r.totals(s, links[1])[0]; got.Bots != 1+2+2 ||
		!got.Last.Equal(today.Start().Add(12*time.Hour)) {
		t.Errorf("got %+v", got)
	}
	if got := r.service(s); got.Clicks != 502_200 || got.Took != 502_200*time.Millisecond {
		t.Errorf("the service has %+v", got)
	}

	// A day that is rolled up while it is in memory counts once.
	r.Put(r.ClickTotals, totalsRow("rolled", from(today-1), "", 70_200))
	check("after a roll-up", len(links))
	r.putAll(r.Clicks, []rawtables.Entity{clickRow(today, "plain", "new", 5, nil),
		clickRow(today, clicks.All, "new", 7, nil)})
	check("within a minute", len(links))
	r.clock.Advance(time.Minute)
	want[0] += 5
	check("a minute later", 1+1+1+2+3*16+len(links))
	if got := r.service(s).Clicks; got != 502_207 {
		t.Errorf("the service has %d", got)
	}
	// Too many links are active: those that are not in memory are read one by one, without what
	// totals do not need.
	s.Clicks.KeepMost(0)
	r.putAll(r.Clicks, []rawtables.Entity{clickRow(today, "nobody", "p", 3,
		rawtables.Entity{"Hours": "["})})
	want[6] = 3
	r.clock.Advance(time.Minute)
	check("with little memory", 1+1+1+2+3*16+len(links)+3+1+1+2+1+3+3+3)
}

// top returns the top links as "alias clicks".
func (r *rig) top(s *storage.Links, owner string, window clicks.Window, limit int) string {
	r.t.Helper()
	links, counts, err := s.Clicks.Top(ctx, owner, window, limit)
	if err != nil {
		r.t.Fatal(err)
	}
	var all []string
	for i, l := range links {
		if l.LongURL != "https://example.com/"+string(l.Alias) {
			r.t.Errorf("it is %+v", l)
		}
		all = append(all, fmt.Sprint(l.Alias, " ", counts[i]))
	}
	return strings.Join(all, ", ")
}

func hourRow(day clicks.Day, alias string, byHour map[int]int64) rawtables.Entity {
	var text []string
	var sum int64
	for hour, n := range byHour {
		text = append(text, fmt.Sprintf("[%d,%d,0]", hour, n))
		sum += n
	}
	return clickRow(day, alias, "p", sum, rawtables.Entity{"Hours": "[" + strings.Join(text, ",") +
		"]"})
}

func TestTopLinks(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t) // at 14:30
	today := r.today()
	now := r.clock.Now()
	for _, l := range []link.Link{
		{Alias: "steady", Owner: "ann"}, {Alias: "old", Owner: "ann"},
		{Alias: "edge", Owner: "bob"}, {Alias: "tie1", Owner: "bob"}, {Alias: "tie2"},
		{Alias: "disabled", Disabled: true},
		{Alias: "deleted", Owner: "ann", DeletedAt: now}, {Alias: "again", Owner: "ann"},
		{Alias: "bots", Owner: "ann"}, {Alias: "claimed", Owner: "ann"},
	} {
		l.LongURL, l.CreatedAt = "https://example.com/"+string(l.Alias), now.Add(-time.Hour)
		r.PutLink(l)
		if l.Alias == "again" { // an alias that was another link's until yesterday
			e := rawtables.Link(l)
			e["CountedFrom"] = today.String()
			r.Put(r.Links, e)
		}
		if l.Alias == "claimed" { // listed among bob's links too, by a create that was cut short
			l.Owner = "bob"
			r.Put(r.Owners, rawtables.Owner(l))
		}
	}
	r.Put(r.Links, rawtables.Link(link.Link{Alias: "gone", GoneReason: link.StateExpired,
		GoneAt: now}))
	r.putAll(r.Clicks, []rawtables.Entity{
		hourRow(today, "steady", map[int]int64{0: 1, 14: 2}), clickRow(today, "steady", "q", 3,
			nil), hourRow(today-1, "steady", map[int]int64{14: 4, 13: 100}),
		hourRow(today-1, "edge", map[int]int64{13: 1000, 14: 5, 23: 6}),
		hourRow(today-6, "edge", map[int]int64{0: 1}),
		hourRow(today-7, "edge", map[int]int64{23: 10_000}),
		hourRow(today-2, "old", map[int]int64{23: 9}),
		hourRow(today, "tie1", map[int]int64{1: 7}), hourRow(today, "tie2", map[int]int64{1: 7}),
		hourRow(today, "again", map[int]int64{1: 1}),
		hourRow(today-1, "again", map[int]int64{20: 5000}),
		hourRow(today-3, "again", map[int]int64{20: 5000}),
		hourRow(today, "disabled", map[int]int64{1: 2}),
		hourRow(today, "deleted", map[int]int64{1: 900}),
		hourRow(today, "gone", map[int]int64{1: 900}),
		hourRow(today, "unknown", map[int]int64{1: 900}),
		hourRow(today, "claimed", map[int]int64{1: 3}), clickRow(today, "bots", "p", 0, nil),
		hourRow(today, clicks.All, map[int]int64{1: 100_000}),
		hourRow(today, "no alias", map[int]int64{1: 999}), clickRow(today, "old", "bad", -5, nil),
	})
	s := r.open(withCache)
	for _, test := range []struct {
		owner  string
		window clicks.Window
		limit  int
		want   string
	}{
		{"", clicks.LastDay, 100, "edge 11, steady 10, tie1 7, tie2 7, claimed 3, disabled 2, " +
			"again 1"},
		{"", clicks.LastDay, 3, "edge 11, steady 10, tie1 7"},
		{"", clicks.LastWeek, 100, "edge 1012, steady 110, old 9, tie1 7, tie2 7, claimed 3, " +
			"disabled 2, again 1"},
		{"ann", clicks.LastWeek, 100, "steady 110, old 9, claimed 3, again 1"},
		{"ann", clicks.LastDay, 1, "steady 10"},
		{"bob", clicks.LastDay, 100, "edge 11, tie1 7"},
		{"eve", clicks.LastWeek, 100, ""},
	} {
		if got := r.top(s, test.owner, test.window, test.limit); got != test.want {
			t.Errorf("%s's %d of %s: got %s, want %s", test.owner, test.limit, test.window, got,
				test.want)
		}
	}

	// What was read before midnight is what the day before has after it.
	r.clock.Advance((today + 1).Start().Add(-time.Second).Sub(r.clock.Now()))
	for _, when := range []string{"a second before", "a second after"} {
		if got := r.top(s, "", clicks.LastDay, 3); when == "a second after" &&
			got != "tie1 7, tie2 7, steady 6" || when == "a second before" &&
			got != "tie1 7, tie2 7, edge 6" {
			t.Errorf("%s midnight: got %s", when, got)
		}
		r.clock.Advance(2 * time.Second)
	}
}

func TestTopLinksFromMemory(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	today := r.today()
	var rows []rawtables.Entity
	for i := range 30 {
		alias := fmt.Sprintf("top%02d", i)
		r.PutLink(link.Link{Alias: link.Alias(alias), LongURL: "https://example.com/" + alias,
			Owner: "ann", CreatedAt: r.clock.Now()})
		rows = append(rows, clickRow(today, alias, "p", int64(100-i), nil))
	}
	r.putAll(r.Clicks, rows)
	s := r.open(withCache)
	const want = "top00 100, top01 99, top02 98"
	var all sync.WaitGroup
	for range 10 { // all at once
		all.Go(func() {
			if got := r.top(s, "", clicks.LastDay, 3); got != want {
				t.Errorf("got %s", got)
			}
		})
	}
	all.Wait()
	// The cache takes a moment to have what was read to find them.
	if queries, gets := r.callsOf("QueryEntities"), r.callsOf("GetEntity"); queries != 2*16 ||
		gets < 3 || gets > 3+10*3 {
		t.Errorf("%d queries and %d reads of links, want 32 and about 3", queries, gets)
	}
	testutil.Eventually(t, "the cache has them", func() bool {
		r.proxy.Reset()
		return r.top(s, "", clicks.LastDay, 3) == want && len(r.proxy.Calls()) == 0
	})
	r.putAll(r.Clicks, []rawtables.Entity{clickRow(today, "top29", "new", 1000, nil)})
	r.clock.Advance(time.Minute - time.Nanosecond)
	if got := r.top(s, "", clicks.LastDay, 3); got != want || len(r.proxy.Calls()) != 0 {
		t.Errorf("within a minute: got %s after %v", got, r.proxy.Calls())
	}
	if got := r.top(s, "ann", clicks.LastDay, 3); got != want || len(r.proxy.Calls()) != 1 {
		t.Errorf("an owner's: got %s after %v", got, r.proxy.Calls())
	}
	if got := r.top(s, "ann", clicks.LastDay, 3); got != want || len(r.proxy.Calls()) != 1 {
		t.Errorf("an owner's again: got %s after %v", got, r.proxy.Calls())
	}
	r.clock.Advance(time.Nanosecond)
	if got := r.top(s, "", clicks.LastDay, 1); got != "top29 1071" {
		t.Errorf("after a minute: got %s", got)
	}
	r.clock.Advance(-time.Hour) // a clock that was put back
	r.proxy.Reset()
	if r.top(s, "", clicks.LastDay, 1); r.callsOf("QueryEntities") != 32 {
		t.Errorf("%d calls", len(r.proxy.Calls()))
	}
}

// callsOf counts the calls of an operation.
func (r *rig) callsOf(operation string) (n int) {
	for _, c := range r.proxy.Calls() {
		if c.Operation == operation {
			n++
		}
	}
	return n
}

// What is deleted after the top links were found is not told any more.
func TestTopLinksThatAreDeleted(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	var rows []rawtables.Entity
	for i, alias := range []string{"first", "second", "third"} {
		r.PutLink(link.Link{Alias: link.Alias(alias), LongURL: "https://example.com/" + alias,
			Owner: "ann", CreatedAt: r.clock.Now()})
		rows = append(rows, clickRow(r.today(), alias, "p", int64(10-i), nil))
	}
	r.putAll(r.Clicks, rows)
	s := r.open(withCache)
	if got := r.top(s, "ann", clicks.LastDay, 2); got != "first 10, second 9" {
		t.Errorf("got %s", got)
	}
	remove := func(l link.Link) (link.Link, error) { l.DeletedAt = r.clock.Now(); return l, nil }
	if err := patiently(func() error {
		_, err := s.Edit(ctx, "first", false, remove)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	r.proxy.Reset()
	if got := r.top(s, "ann", clicks.LastDay, 2); got != "second 9" || len(r.proxy.Calls()) != 1 {
		t.Errorf("deleted: got %s after %v", got, r.proxy.Calls())
	}
	r.clock.Advance(time.Minute)
	if got := r.top(s, "ann", clicks.LastDay, 2); got != "second 9, third 8" {
		t.Errorf("a minute later: got %s", got)
	}
}

// Answers that are too many to be kept are found anew.
func TestManyTopLinks(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	s := r.open(withCache)
	for limit := range 1000 {
		r.top(s, "", clicks.LastDay, limit+1)
	}
	r.proxy.Reset()
	for range 2 {
		r.top(s, "ann", clicks.LastDay, 1)
	}
	if n := len(r.proxy.Calls()); n != 2 {
		t.Errorf("%d calls, want one each", n)
	}
}

// What has many clicks and no link any more ends the search, not the storage account.
func TestTopLinksAmongDeletedOnes(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	r.PutLink(link.Link{Alias: "last", LongURL: "https://example.com/last",
		CreatedAt: r.clock.Now()})
	s := r.open(withCache)
	for i := range 1100 {
		for range 2 {
			s.Clicks.Click(link.Alias(fmt.Sprintf("gone%04d", i)), visit(r.clock.Now(), 1))
		}
	}
	s.Clicks.Click("last", visit(r.clock.Now(), 1))
	r.flush(s)
	r.proxy.Reset()
	var links []link.Link
	err := patiently(func() (err error) {
		links, _, err = s.Clicks.Top(ctx, "", clicks.LastDay, 1)
		return err
	})
	if n := r.callsOf("GetEntity"); err != nil || len(links) != 0 || n < 1000 || n > 1000+32 {
		t.Errorf("got %v, %v after %d reads of links", links, err, n)
	}
}

// Of a day on which too many links were clicked, those count that were clicked most.
func TestTopLinksOfABusyDay(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	today := r.today()
	var rows []rawtables.Entity
	most := map[string][]string{} // of each partition, those with the most clicks
	for i := range 200 {
		alias := fmt.Sprintf("busy%03d", i)
		r.PutLink(link.Link{Alias: link.Alias(alias), LongURL: "https://example.com/" + alias,
			CreatedAt: r.clock.Now()})
		row := clickRow(today, alias, "p", 1, nil)
		rows = append(rows, row)
		p := fmt.Sprint(row["PartitionKey"])
		if i%10 == 9 { // its second row makes it one of the first
			rows = append(rows, clickRow(today, alias, "q", int64(1000-i), nil))
			most[p] = append(most[p], fmt.Sprint(alias, " ", 1001-i))
		}
	}
	// Ties are the first ones by alias.
	for i := range 200 {
		alias := fmt.Sprintf("busy%03d", i)
		p := fmt.Sprint(clickRow(today, alias, "p", 1, nil)["PartitionKey"])
		if i%10 != 9 && len(most[p]) < 3 {
			most[p] = append(most[p], alias+" 1")
		}
	}
	r.putAll(r.Clicks, rows)
	r.putAll(r.Clicks, []rawtables.Entity{clickRow(today, clicks.All, "p", 10_000, nil)})
	s := r.other()
	s.Clicks.KeepMost(3)
	want := map[string]bool{}
	for _, aliases := range most {
		for _, text := range aliases[:min(len(aliases), 3)] {
			want[text] = true
		}
	}
	for text := range strings.SplitSeq(r.top(s, "", clicks.LastDay, 100), ", ") {
		if !want[text] {
			t.Errorf("got %s", text)
		}
		delete(want, text)
	}
	if len(want) > 0 {
		t.Errorf("there is none of %v", want)
	}
}

func TestTheServiceSinceEver(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	today := r.today()
	s := r.instance()
	if got := r.service(s); got != (clicks.Total{}) || len(r.proxy.Calls()) != 3 {
		t.Errorf("a new one has %+v after %v", got, r.proxy.Calls())
	}
	r.clock.Advance(time.Minute)
	s.Clicks.Created(3)
	s.Clicks.Created(1)
	s.Clicks.Click("ab", visit(r.clock.Now(), 1))
	s.Clicks.Click("abc", visit(r.clock.Now(), 1))
	s.Clicks.Click("ab", clicks.Click{At: r.clock.Now(), Bot: true})
	r.flush(s)
	want := clicks.Total{Clicks: 2, Bots: 1, Created: 4, Took: 2 * time.Millisecond,
		Last: r.clock.Now().Truncate(time.Millisecond)}
	r.proxy.Reset()
	if got := r.service(s); got != want || len(r.proxy.Calls()) != 4 {
		t.Errorf("got %+v after %v, want %+v", got, r.proxy.Calls(), want)
	}
	if got := r.service(s); got != want || len(r.proxy.Calls()) != 4 {
		t.Errorf("again: got %+v after %v", got, r.proxy.Calls())
	}

	// A day that is in the sum counts once, whether the roll-up has come to its end or not.
	rolled := totalsRow(clicks.All, today.String(), "", 2)
	rolled["Created"], rolled["Created@odata.type"] = "4", "Edm.Int64"
	r.Put(r.ClickTotals, rolled)
	for _, progress := range []string{today.String() + "-f", (today + 1).String()} {
		r.Put(r.State, rawtables.Entity{"PartitionKey": "rollup", "RowKey": "progress",
			"Partition": progress, "Row": "x"})
		r.clock.Advance(24 * time.Hour)
		if got := r.service(s); got.Clicks != 2 || got.Created != 4 {
			t.Errorf("rolled up until %s: got %+v", progress, got)
		}
	}
	// A service at rest reads no days of its rest.
	r.clock.Advance(30 * 24 * time.Hour)
	r.proxy.Reset()
	if got := r.service(s); got.Clicks != 2 || len(r.proxy.Calls()) != 3 {
		t.Errorf("at rest: got %+v after %v", got, r.proxy.Calls())
	}
	// What the reaper has left for weeks is told too.
	r.putAll(r.Clicks, []rawtables.Entity{clickRow(today+12, clicks.All, "p", 5, nil)})
	r.clock.Advance(time.Minute)
	r.proxy.Reset()
	if got := r.service(s); got.Clicks != 7 || len(r.proxy.Calls()) != 3+21 {
		t.Errorf("got %+v after %d calls", got, len(r.proxy.Calls()))
	}
}

// ask asks for all that statistics tell.
func ask(ctx context.Context, s *storage.Links, today clicks.Day) map[string]func() error {
	l := link.Link{Alias: "ab"}
	return map[string]func() error{
		"Days": func() error {
			_, err := s.Clicks.Days(ctx, l, today-1, today)
			return err
		},
		"Totals": func() error {
			_,
				err := s.Clicks.Totals(ctx, []link.Link{l})
			return err
		},
		"Top": func() error {
			_, _, err := s.Clicks.Top(ctx, "", clicks.LastDay, 1)
			return err
		},
		"an owner's Top": func() error {
			_, _, err := s.Clicks.Top(ctx, "ann", clicks.LastWeek, 1)
			return err
		},
		"Service": func() error { _, err := s.Clicks.Service(ctx); return err },
	}
}

// TestStatisticsWithoutStorage: what fails says so, in time, and is not kept.
func TestStatisticsWithoutStorage(t *testing.T) {
	t.Parallel()
	for _, fault := range []faultproxy.Fault{faultproxy.Refuse, faultproxy.Freeze,
		faultproxy.ServerBusy} {
		r := newStatsRig(t)
		r.PutLink(link.Link{Alias: "ab", LongURL: "https://example.com/"})
		r.putAll(r.Clicks, []rawtables.Entity{clickRow(r.today(), "ab", "p", 1, nil)})
		s := r.instance()
		r.proxy.Before(faultproxy.On("", "", fault))
		var all sync.WaitGroup
		for name, do := range ask(hasty, s, r.today()) {
			all.Go(func() {
				begun := time.Now()
				if err := do(); !errors.Is(err, link.ErrUnavailable) {
					t.Errorf("fault %d: %s returns %v", fault, name, err)
				}
				if took := time.Since(begun); took > table.Timeout+slack {
					t.Errorf("fault %d: %s took %v", fault, name, took)
				}
			})
		}
		all.Wait()
		r.proxy.Before(nil)
		for name, do := range ask(ctx, s, r.today()) {
			if err := patiently(do); err != nil {
				t.Errorf("fault %d: %s returns %v afterwards", fault, name, err)
			}
		}
	}
}

// One call that fails leaves nothing half read.
func TestStatisticsThatFailOnce(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	r.PutLink(link.Link{Alias: "ab", LongURL: "https://example.com/ab"})
	r.putAll(r.Clicks, []rawtables.Entity{clickRow(r.today(), "ab", "p", 1, nil)})
	for n := 1; n <= 33; n++ {
		s := r.instance()
		r.proxy.Reset()
		r.proxy.Before(faultproxy.Fail(n, faultproxy.TooManyRequests))
		if _, _, err := s.Clicks.Top(ctx, "", clicks.LastDay, 1); !errors.Is(err,
			link.ErrUnavailable) {
			t.Fatalf("call %d: got %v", n, err)
		}
		r.proxy.Before(nil)
		if got := r.top(s, "", clicks.LastDay, 1); got != "ab 1" {
			t.Errorf("call %d: got %s afterwards", n, got)
		}
	}
}

// A caller that gives up does not fail the others.
func TestStatisticsNobodyWaitsFor(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	r.putAll(r.Clicks, []rawtables.Entity{clickRow(r.today(), clicks.All, "p", 5, nil)})
	s := r.instance()
	reached, release := make(chan struct{}, 100), make(chan struct{})
	r.proxy.Before(func(faultproxy.Call) faultproxy.Fault {
		reached <- struct{}{}
		<-release
		return faultproxy.None
	})
	leaving, leave := context.WithCancel(ctx)
	left := make(chan error, 1)
	go func() {
		_, err := s.Clicks.Service(leaving)
		left <- err
	}()
	<-reached
	got := make(chan clicks.Total, 1)
	go func() {
		total, err := s.Clicks.Service(ctx)
		if err != nil {
			t.Error(err)
		}
		got <- total
	}()
	leave()
	if err := <-left; !errors.Is(err, link.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("who left got %v", err)
	}
	close(release)
	if total := <-got; total.Clicks != 5 {
		t.Errorf("got %+v", total)
	}
	if n := len(r.proxy.Calls()); n != 4 {
		t.Errorf("%d calls, want 4", n)
	}
}

// thirtyDays are the rows of a link that 20 processes count on each of 30 days.
func thirtyDays(from clicks.Day) (rows []rawtables.Entity) {
	var hours, referrers []string
	for hour := range 24 {
		hours = append(hours, fmt.Sprintf("[%d,4,1]", hour))
	}
	for i := range 50 {
		referrers = append(referrers, fmt.Sprintf(`"host%02d.example":2`, i))
	}
	visitors := make([]byte, 1+8*16)
	visitors[0] = 1
	for day := from; day < from+30; day++ {
		for p := range 20 {
			rows = append(rows, clickRow(day, "busy", fmt.Sprint("ABCDEFGHIJKLMNOPQRSTUVWXY", p),
				100, rawtables.Entity{
					"Hours": "[" + strings.Join(hours, ",") + "]", "Referrers": "{" +
						strings.Join(referrers, ",") + "}",
					"Visitors":            base64.StdEncoding.EncodeToString(visitors),
					"Visitors@odata.type": "Edm.Binary",
				}))
		}
	}
	return rows
}

func TestThirtyDaysTakeThirtyCalls(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	today := r.today()
	r.putAll(r.Clicks, thirtyDays(today-29))
	s := r.instance()
	days := r.days(s, link.Link{Alias: "busy"}, today-29, today)
	var all clicks.Count
	for i := range days {
		all.Merge(&days[i])
	}
	if all.Clicks != 30*20*100 || len(all.Names[clicks.Referrers]) != 50 ||
		len(r.proxy.Calls()) != 30 {
		t.Errorf("%d clicks and %d referrers after %d calls", all.Clicks,
			len(all.Names[clicks.Referrers]), len(r.proxy.Calls()))
	}
}

// One row has names that another has too, and both together have more than are told apart.
func TestManyNamesOfADay(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	referrers := func(from, to int) rawtables.Entity {
		var names []string
		for i := from; i < to; i++ {
			names = append(names, fmt.Sprintf(`"h%04d.example":%d`, i, 1+i/1000))
		}
		return rawtables.Entity{"Referrers": "{" + strings.Join(names, ",") + "}"}
	}
	r.putAll(r.Clicks, []rawtables.Entity{clickRow(r.today(), "ab", "p", 800, referrers(0, 800)),
		clickRow(r.today(), "ab", "q", 800, referrers(700, 1500))})
	names := r.days(r.other(), link.Link{Alias: "ab"}, r.today(),
		r.today())[0].Names[clicks.Referrers]
	// 500 hosts have two clicks by their number and 100 by both rows; 400 of the others are told
	// apart.
	if len(names) != 1001 || names[0] != (clicks.Named{Name: "h0700.example", Clicks: 2}) ||
		names[599].Clicks != 2 || names[999] != (clicks.Named{Name: "h0399.example", Clicks: 1}) ||
		names[1000] != (clicks.Named{Name: clicks.Other, Clicks: 500}) {
		t.Errorf("%d names: %v", len(names), names)
	}
}

// TestDaysInPages has more rows of a day than a page holds.
func TestDaysInPages(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	var rows []rawtables.Entity
	for i := range 1001 {
		rows = append(rows, clickRow(r.today(), "ab", fmt.Sprintf("p%04d", i), 1,
			rawtables.Entity{"Referrers": `{"a.example":1}`}))
	}
	r.putAll(r.Clicks, rows)
	s := r.instance()
	r.proxy.Reset()
	day := r.days(s, link.Link{Alias: "ab"}, r.today(), r.today())[0]
	if day.Clicks != 1001 || day.Hours[12].Clicks != 1001 ||
		fmt.Sprint(day.Names[clicks.Referrers]) != "[{a.example 1001}]" ||
		len(r.proxy.Calls()) != 2 {
		t.Errorf("got %+v after %d calls", day, len(r.proxy.Calls()))
	}
}

// TestDaysAtOnce holds eight days back, and leaves others time to be asked for.
func TestDaysAtOnce(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	s := r.open(nil)
	reached, release := make(chan struct{}, 30), make(chan struct{})
	r.proxy.Before(func(call faultproxy.Call) faultproxy.Fault {
		if call.Operation == "QueryEntities" {
			reached <- struct{}{}
			<-release
		}
		return faultproxy.None
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = s.Clicks.Days(ctx, link.Link{Alias: "ab"}, r.today()-29, r.today()) // in time or not
	}()
	for range 8 {
		<-reached
	}
	for range 20 {
		_, _ = s.Read(ctx, "ab")
	}
	if n := len(reached); n > 0 {
		t.Errorf("%d days at once", 8+n)
	}
	close(release)
	<-done
}

// BenchmarkDays is of a link that 20 processes count on each of 30 days.
func BenchmarkDays(b *testing.B) {
	r := newStatsRig(b)
	from := r.today() - 29
	r.putAll(r.Clicks, thirtyDays(from))
	s := r.other()
	for b.Loop() {
		if _, err := s.Clicks.Days(ctx, link.Link{Alias: "busy"}, from, from+29); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkManyLinks is of ten thousand links that were clicked yesterday and today.
func BenchmarkManyLinks(b *testing.B) {
	r := newStatsRig(b)
	today := r.today()
	var rows []rawtables.Entity
	page := make([]link.Link, 100)
	for i := range 10_000 {
		l := link.Link{Alias: link.Alias(fmt.Sprintf("link%04d", i)),
			LongURL: "https://example.com/"}
		if i < len(page) {
			r.PutLink(l)
			page[i] = l
		}
		for _, day := range []clicks.Day{today - 1, today} {
			rows = append(rows, clickRow(day, string(l.Alias), "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
				int64(10_000-i), nil))
		}
	}
	r.putAll(r.Clicks, rows)
	measure := func(name string, cold bool, do func(s *storage.Links) error) {
		s := r.other()
		if err := do(s); err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if cold {
					r.clock.Advance(time.Minute)
				}
				if err := do(s); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	top := func(s *storage.Links) error {
		links, _, err := s.Clicks.Top(ctx, "", clicks.LastDay, 10)
		if len(links) != 10 {
			b.Fatalf("%d links", len(links))
		}
		return err
	}
	totals := func(s *storage.Links) error {
		_, err := s.Clicks.Totals(ctx, page)
		return err
	}
	service := func(s *storage.Links) error {
		_, err := s.Clicks.Service(ctx)
		return err
	}
	measure("top", true, top)
	measure("top from memory", false, top)
	measure("totals of 100", true, totals)
	measure("totals of 100 from memory", false, totals)
	measure("service", true, service)
}
