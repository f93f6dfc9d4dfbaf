package storage_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/storage"
	"tiney/storage/counts"
	"tiney/storage/table"
)

// newStatsRig makes a rig whose clock stands at half past two in the afternoon, UTC, and whose
// tables exist.
func newStatsRig(t testing.TB) *rig {
	t.Helper()
	r := newRig(t)
	r.config.Clicks = counts.Settings{Mode: clicks.ModeFull, FlushEvery: time.Second,
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
		Names: [clicks.Dimensions]string{"a.example", "DE", "Chrome", "Windows", "desktop", "1",
			"news"}}
}

// flush writes what a process has counted.
func (r *rig) flush(s *storage.Links) {
	r.t.Helper()
	must(r.t, patiently(func() error { return s.Clicks.Flush(ctx) }))
}

// clickRow is a row of a day, as another program would write it.
func clickRow(day clicks.Day, name, process string, n int64,
	more rawtables.Entity) rawtables.Entity {
	e := rawtables.Clicks(name, process+"-1", day.Start().Add(12*time.Hour), n, 1)
	maps.Copy(e, more)
	return e
}

// putClick writes such a row.
func (r *rig) putClick(day clicks.Day, name, process string, n int64, more rawtables.Entity) {
	r.t.Helper()
	r.PutClicks(day.Start(), clickRow(day, name, process, n, more))
}

// countedFrom is the property of rows of a link that is counted from a day on; 0: it has none.
func countedFrom(day clicks.Day) rawtables.Entity {
	if day == 0 {
		return nil
	}
	return rawtables.Entity{"CountedFrom": day.String()}
}

// totalsRow is a row of ShortUrlsClickTotals, of a link that is counted from a day on.
func totalsRow(name string, through, from clicks.Day, n int64) rawtables.Entity {
	e := rawtables.Totals(name, through.Start(), n, 1, time.Time{})
	maps.Copy(e, countedFrom(from))
	return e
}

func (r *rig) days(s *storage.Links, l link.Link, from, to clicks.Day) []clicks.Count {
	r.t.Helper()
	days, err := s.Clicks.Days(ctx, l, from, to)
	must(r.t, err)
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
	ab := link.Link{Name: "ab", CountedFrom: (first - 5).Start()}
	before := link.Link{Name: "ab", CountedFrom: (first - 9).Start()} // had the alias until today
	for i, p := range processes {
		p.Clicks.Click(before, visit(first.Start(), 3))
		p.Clicks.Click(ab, visit(first.Start(), 1)) // the same visitor everywhere
		p.Clicks.Click(ab, visit(midnight.Add(-time.Nanosecond), byte(10+i)))
		p.Clicks.Click(ab, clicks.Click{At: midnight.Add(-time.Nanosecond), Bot: true})
		for _, other := range []link.Name{"a", "abc", "ab-", "Ab", "aB"} {
			p.Clicks.Click(link.Link{Name: other, CountedFrom: ab.CountedFrom},
				visit(first.Start(), 2))
		}
		r.flush(p)
	}
	r.clock.Advance(24 * time.Hour)
	for i, p := range processes {
		p.Clicks.Click(ab, visit(midnight.In(time.FixedZone("", 9*3600)), byte(i)))
		r.flush(p)
	}
	r.proxy.Reset()
	got := r.days(processes[0], ab, first-1, first+2)
	// the first and the last day have no table, so they are looked for in their months
	calls := 1 + 3 + months(first-1, first-1)
	if months(first-1, first+2) > 1 {
		calls++
	}
	if n := len(r.proxy.Calls()); n != calls {
		t.Errorf("%d calls for four days, want %d: %v", n, calls, r.proxy.Calls())
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

	// Where nothing is counted any more, earlier counts are still shown.
	r.config.Clicks.Mode = clicks.ModeOff
	off := r.instance()
	off.Clicks.Click(ab, visit(r.clock.Now(), 1))
	r.flush(off)
	if got := r.days(off, ab, first, first+1); got[0].Clicks != 6 || got[1].Clicks != 3 {
		t.Errorf("got %+v", got)
	}
}

// months returns in how many months the days from one to another are.
func months(from, to clicks.Day) int {
	a, b := from.Start(), to.Start()
	return 12*(b.Year()-a.Year()) + int(b.Month()-a.Month()) + 1
}

// TestRowsOfStrangers plants what this service never writes.
func TestRowsOfStrangers(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	today := r.today()
	good := rawtables.Entity{"Referrers": `{"a.example":2,"(direct)":1,"(other)":1,"<script>alert(1)</script>":3,"a\u0000b":4,"":5,"` + strings.Repeat("x", 65) + `":6,` +
		`"=1+1":7,"a.example\r\nSet-Cookie: x":8,"bücher.example":9,"` + strings.Repeat("y", 64) +
		`":10}`, "Countries": `{"DE":1,"\"><b>":1}`, "Devices": `{"tablet":0}`}
	r.putClick(today, "planted", "good", 5, good)
	r.putClick(today, "planted", "bare", 1, rawtables.Entity{"Hours": ""})
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
		r.putClick(today, "planted", fmt.Sprint("bad", i), 100, damage)
	}
	s := r.instance()
	got := r.days(s, link.Link{Name: "planted"}, today, today)[0]
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
	must(r.t, err)
	return totals
}

func (r *rig) service(s *storage.Links) clicks.Total {
	r.t.Helper()
	total, err := s.Clicks.Service(ctx)
	must(r.t, err)
	return total
}

func TestTotalsOfLinks(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	today := r.today()
	n := int64(1)
	for day := today - 3; day <= today; day++ { // each ten times as many as before
		for alias, from := range map[string]clicks.Day{"plain": 0, "rolled": 0, "ahead": today - 9,
			"again": today - 1, "fresh": today, "plai": 0, "a": 0, clicks.All: 0} {
			for _, process := range []string{"p", "q"} {
				r.putClick(day, alias, process, n, countedFrom(from))
			}
			// of another link that had the alias
			r.putClick(day, alias, "r", 5*n, countedFrom(today-100))
		}
		n *= 10
	}
	r.putClick(today-1, "damaged", "p", 1, nil)
	r.putClick(today, "damaged", "p", -1, nil)
	r.PutAll(r.ClickTotals, []rawtables.Entity{
		totalsRow(clicks.All, today-2, 0, 500_000),
		totalsRow("rolled", today-2, 0, 70_000),
		totalsRow("ahead", today-1, today-9, 80_000),
		totalsRow("again", today-2, today-100, 90_000),
		totalsRow("a", today-200, 0, 60_000),
	})
	damaged := totalsRow("damaged", today, 0, 1)
	damaged["Through"] = "soon"
	r.Put(r.ClickTotals, damaged)
	links := []link.Link{{Name: "plain"}, {Name: "rolled"},
		{Name: "ahead", CountedFrom: (today - 9).Start()},
		{Name: "again", CountedFrom: (today - 1).Start()},
		{Name: "fresh", CountedFrom: today.Start()}, {Name: "a"}, {Name: "nobody"},
		{Name: "damaged"}}
	want := []int64{2222, 72200, 82000, 2200, 2000, 62222, 0, 1}
	// Of each link a row of totals, and four days; of two of them there are fewer.
	const calls = 8*5 - 2 - 3
	s := r.instance()
	check := func(what string, calls int) {
		t.Helper()
		r.proxy.Reset()
		got := r.totals(s, links...)
		for i, total := range got {
			if total.Clicks != want[i] || total.Took != 0 {
				t.Errorf("%s: %s has %+v, want %d clicks", what, links[i].Name, total, want[i])
			}
		}
		if n := len(r.proxy.Calls()); n != calls {
			t.Errorf("%s: %d calls, want %d", what, n, calls)
		}
	}
	check("at first", 1+calls)
	check("when it knows the days", calls)
	if got := r.totals(s, links[1])[0]; got.Bots != 1+2+2 ||
		!got.Last.Equal(today.Start().Add(12*time.Hour)) {
		t.Errorf("got %+v", got)
	}
	if got := r.service(s); got.Clicks != 502_200 || got.Took != 502_200*time.Millisecond {
		t.Errorf("the service has %+v", got)
	}
	before := link.Link{Name: "again", CountedFrom: (today - 100).Start()}
	if got := r.totals(s, before)[0].Clicks; got != 90_000+5*(100+1000) {
		t.Errorf("the link before has %d", got)
	}

	// A day that is rolled up meanwhile counts once, whether its table is there or not.
	r.Put(r.ClickTotals, totalsRow("rolled", today-1, 0, 70_200))
	check("after a roll-up", calls)
	r.DropTable(r.Day((today - 3).Start()))
	r.DropTable(r.Day((today - 2).Start()))
	want[0], want[5] = 2200, 62200
	check("without two days", calls)
	r.putClick(today, "plain", "new", 5, nil)
	r.putClick(today, clicks.All, "new", 7, nil)
	want[0] += 5
	check("at once", calls)
	if got := r.service(s).Clicks; got != 502_200 {
		t.Errorf("within a minute: the service has %d", got)
	}
	r.clock.Advance(time.Minute)
	check("a minute later", 1+8*3-1)
	if got := r.service(s).Clicks; got != 502_207 {
		t.Errorf("the service has %d", got)
	}
}

func TestTheServiceSinceEver(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	today := r.today()
	s := r.instance()
	// The names of tables, yesterday, today, and the totals.
	const calls = 1 + 2 + 1
	if got := r.service(s); got != (clicks.Total{}) || len(r.proxy.Calls()) != calls {
		t.Errorf("a new one has %+v after %v", got, r.proxy.Calls())
	}
	r.clock.Advance(time.Minute)
	s.Clicks.Created(3)
	s.Clicks.Created(1)
	ab := link.Link{Name: "ab", Owner: "ann"}
	s.Clicks.Click(ab, visit(r.clock.Now(), 1))
	s.Clicks.Click(link.Link{Name: "abc"}, visit(r.clock.Now(), 1))
	s.Clicks.Click(ab, clicks.Click{At: r.clock.Now(), Bot: true})
	r.flush(s)
	want := clicks.Total{Clicks: 2, Bots: 1, Created: 4, Took: 2 * time.Millisecond,
		Last: r.clock.Now().Truncate(time.Millisecond)}
	r.proxy.Reset()
	if got := r.service(s); got != want || len(r.proxy.Calls()) != calls {
		t.Errorf("got %+v after %v, want %+v", got, r.proxy.Calls(), want)
	}
	if got := r.service(s); got != want || len(r.proxy.Calls()) != calls {
		t.Errorf("again: got %+v after %v", got, r.proxy.Calls())
	}

	// A day that is in the sum counts once, also while its table is there.
	rolled := totalsRow(clicks.All, today, 0, 2)
	rolled["Created"], rolled["Created@odata.type"] = "4", "Edm.Int64"
	r.Put(r.ClickTotals, rolled)
	r.clock.Advance(48 * time.Hour)
	if got := r.service(s); got.Clicks != 2 || got.Created != 4 {
		t.Errorf("before the table is dropped: got %+v", got)
	}
	r.DropTable(r.Day(today.Start()))
	r.clock.Advance(time.Minute)
	if got := r.service(s); got.Clicks != 2 || got.Created != 4 {
		t.Errorf("after the table is dropped: got %+v", got)
	}
	// A service at rest reads no days of its rest.
	r.clock.Advance(30 * 24 * time.Hour)
	r.proxy.Reset()
	if got := r.service(s); got.Clicks != 2 || len(r.proxy.Calls()) != calls {
		t.Errorf("at rest: got %+v after %v", got, r.proxy.Calls())
	}
	// Days that the reaper has left for weeks are shown too.
	r.putClick(today+12, clicks.All, "p", 5, nil)
	r.clock.Advance(time.Minute)
	r.proxy.Reset()
	if got := r.service(s); got.Clicks != 7 || len(r.proxy.Calls()) != 1+21+1 {
		t.Errorf("got %+v after %d calls", got, len(r.proxy.Calls()))
	}
}

// ask asks for each statistic.
func ask(ctx context.Context, s *storage.Links, today clicks.Day) map[string]func() error {
	l := link.Link{Name: "ab"}
	return map[string]func() error{
		"Days": func() error {
			_, err := s.Clicks.Days(ctx, l, today-1, today)
			return err
		},
		"OwnerDays": func() error {
			_, err := s.Clicks.OwnerDays(ctx, "ann", today-1, today)
			return err
		},
		"LinksDays": func() error {
			_, err := s.Clicks.LinksDays(ctx, []link.Link{l}, today-1, today)
			return err
		},
		"Totals": func() error {
			_, err := s.Clicks.Totals(ctx, []link.Link{l})
			return err
		},
		"Top": func() error {
			_, _, _, err := s.Clicks.Top(ctx, "", nil, clicks.LastDay, 1)
			return err
		},
		"an owner's Top": func() error {
			_, _, _, err := s.Clicks.Top(ctx, "ann", nil, clicks.LastWeek, 1)
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
		r.PutLink(link.Link{Name: "ab", LongURL: "https://example.com/"})
		r.putClick(r.today(), "ab", "p", 1, nil)
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
	r.PutLink(link.Link{Name: "ab", Owner: "ann", LongURL: "https://example.com/ab"})
	for _, day := range []clicks.Day{r.today() - 1, r.today()} {
		r.putClick(day, "ab", "p", 1, nil)
	}
	r.proxy.Reset()
	for name := range ask(ctx, nil, 0) {
		met := 0
		for n := 1; ; n++ {
			s := r.instance()
			r.proxy.Before(faultproxy.Fail(n, faultproxy.TooManyRequests))
			err := ask(ctx, s, r.today())[name]()
			if len(r.proxy.Calls()) < n {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				break
			}
			met++
			r.proxy.Reset()
			if !errors.Is(err, link.ErrUnavailable) {
				t.Errorf("%s, call %d: got %v", name, n, err)
			}
			if err := ask(ctx, s, r.today())[name](); err != nil {
				t.Errorf("%s, call %d: got %v afterwards", name, n, err)
			}
			if got := r.days(s, link.Link{Name: "ab"}, r.today()-1, r.today()); got[0].Clicks != 1 ||
				got[1].Clicks != 1 {
				t.Errorf("%s, call %d: got %v afterwards", name, n, got)
			}
			r.proxy.Reset()
		}
		if r.proxy.Reset(); met < 3 {
			t.Errorf("%s: only %d calls failed", name, met)
		}
	}
}

// A caller that gives up does not fail the others.
func TestStatisticsWithoutTheFirstCaller(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	r.putClick(r.today(), clicks.All, "p", 5, nil)
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
		should(t, err)
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

// putBusyDays writes the rows of a link that 20 processes count on each of 30 days.
func (r *rig) putBusyDays(from clicks.Day) {
	r.t.Helper()
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
		var rows []rawtables.Entity
		for p := range 20 {
			rows = append(rows, clickRow(day, "busy", fmt.Sprint("ABCDEFGHIJKLMNOPQRSTUVWXY", p),
				100, rawtables.Entity{
					"Hours": "[" + strings.Join(hours, ",") + "]", "Referrers": "{" +
						strings.Join(referrers, ",") + "}",
					"Visitors":            base64.StdEncoding.EncodeToString(visitors),
					"Visitors@odata.type": "Edm.Binary",
				}))
		}
		r.PutClicks(day.Start())
		r.PutAll(r.Day(day.Start()), rows)
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
	r.putClick(r.today(), "ab", "p", 800, referrers(0, 800))
	r.putClick(r.today(), "ab", "q", 800, referrers(700, 1500))
	names := r.days(r.other(), link.Link{Name: "ab"}, r.today(),
		r.today())[0].Names[clicks.Referrers]
	// 500 hosts have two clicks by their number and 100 by both rows; 400 of the others keep their
	// names.
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
	r.PutClicks(r.clock.Now())
	r.PutAll(r.Day(r.clock.Now()), rows)
	s := r.instance()
	r.proxy.Reset()
	day := r.days(s, link.Link{Name: "ab"}, r.today(), r.today())[0]
	if day.Clicks != 1001 || day.Hours[12].Clicks != 1001 ||
		fmt.Sprint(day.Names[clicks.Referrers]) != "[{a.example 1001}]" ||
		len(r.proxy.Calls()) != 1+2 {
		t.Errorf("got %+v after %d calls", day, len(r.proxy.Calls()))
	}
}

// TestDaysAtOnce holds eight days back, and leaves others time to be asked for.
func TestDaysAtOnce(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	s := r.open(nil)
	r.PutClicks((r.today() - 29).Start()) // so all days may have a table
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
		_, _ = s.Clicks.Days(ctx, link.Link{Name: "ab"}, r.today()-29, r.today()) // in time or not
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
