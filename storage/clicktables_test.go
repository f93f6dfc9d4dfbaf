package storage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/storage"
)

// shown returns as text what statistics show of days.
func shown(days []clicks.Count) (all []string) {
	for _, c := range days {
		text := fmt.Sprint(c.Total, c.Hours, c.Visitors.Estimate())
		for d := range clicks.Dimensions {
			text += fmt.Sprint(c.Top(d, 2000))
		}
		all = append(all, text)
	}
	return all
}

// mustRollUp rolls up what is over for long enough, and puts the clock forward by a minute: for so
// long it is known which days have tables.
func (r *rig) mustRollUp() {
	r.t.Helper()
	must(r.t, patiently(func() error { return rollUp(ctx, r, r.other()) }))
	r.clock.Advance(time.Minute)
}

// wantShown checks that statistics show the same days as before.
func wantShown(t *testing.T, when string, got []clicks.Count, want []string) {
	t.Helper()
	for i, text := range shown(got) {
		if text != want[i] {
			t.Errorf("%s: day %d is\n%s\nwant\n%s", when, i, text, want[i])
		}
	}
}

// Two processes count for as long as days are shown. Rolled up days are shown as before, to the
// number of visitors, and take a call for each month.
func TestDaysOfMonths(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	last := r.today()
	first := last - 399
	r.clock.Advance(-399 * dayLong)
	l := link.Link{Name: "ab", Owner: "ann", LongURL: url1, CountedFrom: (first - 1).Start()}
	r.PutLink(l)
	p, q := r.instance(), r.instance()
	for day := first; day <= last; day++ {
		many := 3
		if day%50 == 0 {
			many = 100 // only a sketch of them is kept
		}
		for i := range many {
			click := visit(r.clock.Now().Add(time.Duration(i%9)*time.Hour), byte(i))
			click.Names[clicks.Referrers] = fmt.Sprintf("host%d.example", (i+int(day))%7)
			p.Clicks.Click(l, click)
			if i%2 == 0 {
				q.Clicks.Click(l, click) // the same visitor
				q.Clicks.Click(l, clicks.Click{At: click.At, Bot: true})
			}
		}
		r.flush(p)
		if day%10 != 0 {
			r.flush(q) // else tomorrow, as after an outage
		}
		r.clock.Advance(dayLong)
	}
	r.flush(q)
	r.clock.Advance(-dayLong)

	s := r.instance()
	ask := func(from, to clicks.Day) (days, owners []clicks.Count, links []clicks.Total) {
		t.Helper()
		owners, err := s.Clicks.OwnerDays(ctx, "ann", from, to)
		must(t, err)
		if links, err = s.Clicks.LinksDays(ctx, []link.Link{l}, from, to); err != nil {
			t.Fatal(err)
		}
		return r.days(s, l, from, to), owners, links
	}
	days, owners, links := ask(first, last)
	want, wantLinks := shown(days), links
	var wantOwners []string // who have no targets
	for _, day := range days {
		day.Names[clicks.Targets] = nil
		wantOwners = append(wantOwners, shown([]clicks.Count{day})...)
	}
	wantShown(t, "of the owner", owners, wantOwners)
	total, service := r.totals(s, l)[0], r.service(s)
	sum := int64(0)
	for i := range days {
		if sum += days[i].Clicks; days[i].Clicks != 5 && days[i].Clicks != 150 ||
			links[i].Clicks != days[i].Clicks || links[i].Bots != days[i].Bots {
			t.Errorf("day %d: got %+v, of links %+v", i, days[i].Total, links[i])
		}
	}
	if total.Clicks != sum || service.Clicks != sum {
		t.Errorf("%d clicks by day, %d in all, %d of the service", sum, total.Clicks,
			service.Clicks)
	}

	r.mustRollUp()
	if tables, _ := r.ClickTables(); len(tables) != 2 {
		t.Fatalf("these days were not rolled up: %v", tables)
	}
	r.clock.Advance(dayLong) // a roll-up is late: there are three open days
	for _, length := range []clicks.Day{400, 30, 4, 1} {
		days, owners, links := ask(last-length+1, last)
		wantShown(t, "rolled up", days, want[400-length:])
		wantShown(t, "rolled up, of the owner", owners, wantOwners[400-length:])
		if !slices.Equal(links, wantLinks[400-length:]) {
			t.Errorf("rolled up, of links: got %v, want %v", links, wantLinks[400-length:])
		}
	}
	if got := r.totals(s, l)[0]; got != total {
		t.Errorf("all since ever: got %+v, want %+v", got, total)
	}
	if got := r.service(s); got != service {
		t.Errorf("the service since ever: got %+v, want %+v", got, service)
	}
	today := r.today()
	for length, most := range map[clicks.Day]int{30: 8, 400: 20} {
		r.clock.Advance(time.Minute)
		for what, do := range map[string]func() error{
			"a link": func() error {
				_, err := s.Clicks.Days(ctx, l, today-length+1, today)
				return err
			},
			"an owner": func() error {
				_, err := s.Clicks.OwnerDays(ctx, "ann", today-length+1, today)
				return err
			},
			"several links": func() error {
				_, err := s.Clicks.LinksDays(ctx, []link.Link{l}, today-length+1, today)
				return err
			},
		} {
			r.proxy.Reset()
			err := do()
			n := len(r.proxy.Calls())
			if want := 3 + months(today-length+1, today-2); err != nil || n > most ||
				n != want && n != want+1 { // where the names of tables are not known yet
				t.Errorf("%d days of %s took %d calls, want %d and at most %d; %v", length, what, n,
					want, most, err)
			}
		}
	}

	// They are rolled up at last, and then their months go.
	r.mustRollUp()
	days, owners, _ = ask(first, last)
	wantShown(t, "all rolled up", days[1:], want[1:]) // the first one is not shown any more
	wantShown(t, "all rolled up, of the owner", owners[1:], wantOwners[1:])
	r.clock.Advance(200 * dayLong)
	r.mustRollUp()
	days, owners, links = ask(first, last)
	for i := range 200 {
		if days[i].Clicks+owners[i].Clicks+links[i].Clicks != 0 {
			t.Errorf("day %d is still shown: %+v, %+v, %+v", i, days[i].Total, owners[i].Total,
				links[i])
		}
	}
	wantShown(t, "200 days later", days[201:], want[201:])
	if _, names := r.ClickTables(); len(names) > months(r.today()-400, last) {
		t.Errorf("these months are kept: %v", names)
	}
	if got := r.totals(s, l)[0]; got != total {
		t.Errorf("200 days later: all since ever: got %+v, want %+v", got, total)
	}
}

// Days that are no longer kept are not shown, even while their tables are there.
func TestDaysThatAreNotKept(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	today := r.today()
	l := link.Link{Name: "ab", LongURL: url1}
	r.PutLink(l)
	for day := today - keepDays - 2; day < today-keepDays+2; day++ {
		for _, name := range []string{"ab", clicks.OwnerName("ann")} {
			r.putClick(day, name, "p", 1, nil)
		}
	}
	s := r.instance()
	for _, when := range []string{"at first", "rolled up"} {
		from, to := today-keepDays-3, today-keepDays+2
		days := r.days(s, l, from, to)
		owners, err := s.Clicks.OwnerDays(ctx, "ann", from, to)
		links, linksErr := s.Clicks.LinksDays(ctx, []link.Link{l}, from, to)
		if err != nil || linksErr != nil {
			t.Fatal(err, linksErr)
		}
		for i, want := range []int64{0, 0, 0, 1, 1, 0} {
			if days[i].Clicks != want || owners[i].Clicks != want || links[i].Clicks != want ||
				links[i].Bots != want {
				t.Errorf("%s, day %d: got %+v, %+v, %+v, want %d", when, i, days[i].Total,
					owners[i].Total, links[i], want)
			}
		}
		if got := r.totals(s, l)[0].Clicks; got != 4 {
			t.Errorf("%s: %d clicks since ever", when, got)
		}
		r.mustRollUp()
	}
}

// Rows of an earlier link with the alias do not count, neither those of processes nor what was
// rolled up of them.
func TestCountsOfEarlierLinks(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	today := r.today()
	for day := today - 5; day <= today; day++ {
		if day >= today-3 {
			r.putClick(day, "ab", "p", 1, countedFrom(today-3))
			r.putClick(day, "ab", "q", 10, countedFrom(today-3))
		}
		r.putClick(day, "ab", "r", 100, countedFrom(today-9))
		r.putClick(day, "ab", "s", 1000, nil)
	}
	s := r.instance()
	check := func(when string, from clicks.Day, want ...int64) {
		t.Helper()
		l := link.Link{Name: "ab", LongURL: "https://example.com/ab", CountedFrom: from.Start()}
		r.Put(r.Links, rawtables.Link(l))
		days := r.days(s, l, today-5, today)
		links, err := s.Clicks.LinksDays(ctx, []link.Link{l}, today-5, today)
		must(t, err)
		sum := int64(0)
		for i, n := range want {
			if sum += n; days[i].Clicks != n || links[i].Clicks != n {
				t.Errorf("%s, day %d: got %+v, of links %+v, want %d", when, i, days[i].Total,
					links[i], n)
			}
		}
		if got := r.totals(s, l)[0].Clicks; got != sum {
			t.Errorf("%s: %d clicks since ever, want %d", when, got, sum)
		}
		top := ""
		if sum > 0 {
			top = fmt.Sprint("ab ", sum)
		}
		if got := r.top(r.instance(), "", clicks.LastWeek, 10); got != top {
			t.Errorf("%s: the top ones are %q, want %q", when, got, top)
		}
	}
	check("at first", today-3, 0, 0, 11, 11, 11, 11)
	r.mustRollUp()
	check("rolled up", today-3, 0, 0, 11, 11, 11, 11)
	r.putClick(today, "ab", "t", 7, countedFrom(today))
	check("another link", today, 0, 0, 0, 0, 0, 7)
	check("yet another", today+1, 0, 0, 0, 0, 0, 0)
	r.clock.Advance(3 * dayLong)
	check("another link, of which a row is late", today, 0, 0, 0, 0, 0, 7)
	r.mustRollUp()
	check("another link, rolled up", today, 0, 0, 0, 0, 0, 7)
	check("yet another, before a rolled up one", today+1, 0, 0, 0, 0, 0, 0)
}

// An owner has the clicks of their links together, also after a claim, for the owner that the
// redirect saw, and keeps them when a link has ended.
func TestOwnerDays(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	day := r.today()
	one := link.Link{Name: "one", Owner: "ann", LongURL: url1}
	two := link.Link{Name: "two", Owner: "ann", LongURL: url2, ExpiresAt: r.clock.Now().
		Add(2 * dayLong)}
	three := link.Link{Name: "three", LongURL: url3}
	bobs := link.Link{Name: "bobs", Owner: "bob", LongURL: url1}
	for _, l := range []link.Link{one, two, three, bobs} {
		r.PutLink(l)
	}
	s, p := r.instance(), r.instance()
	click := func(l link.Link, hour int, visitor byte) {
		for _, process := range []*storage.Links{s, p} {
			process.Clicks.Click(l, visit(day.Start().Add(time.Duration(hour)*time.Hour), visitor))
		}
	}
	click(one, 1, 1)
	click(two, 1, 1) // the same visitor
	click(two, 2, 2)
	click(three, 3, 3)
	click(bobs, 4, 4)
	r.flush(s)
	unclaimed := three
	three.Owner = "ann"
	r.PutLink(three)
	click(three, 5, 5)
	click(unclaimed, 6, 6) // by an instance that has not learnt of it
	s.Clicks.Click(three, clicks.Click{At: day.Start(), Bot: true})
	r.flush(s)
	r.flush(p)
	check := func(when string) {
		t.Helper()
		for owner, want := range map[string]struct {
			clicks, bots, visitors int64
			hours                  []int
		}{"ann": {8, 1, 3, []int{1, 1, 2, 5}}, "bob": {2, 0, 1, []int{4}}, "eve": {}, "": {}} {
			days, err := s.Clicks.OwnerDays(ctx, owner, day, day)
			must(t, err)
			var hours [24]clicks.Hour
			hours[0].Bots = uint32(want.bots)
			for _, hour := range want.hours {
				hours[hour].Clicks += 2
			}
			if got := days[0]; got.Clicks != want.clicks || got.Bots != want.bots ||
				got.Visitors.Estimate() != want.visitors || got.Hours != hours ||
				want.clicks > 0 && fmt.Sprint(got.Names[clicks.Countries]) !=
					fmt.Sprintf("[{DE %d}]", want.clicks) {
				t.Errorf("%s, %q: got %+v, %d visitors", when, owner, got, got.Visitors.Estimate())
			}
		}
		// It has what came to it before its claim, too.
		if got := r.days(s, three, day, day)[0]; got.Clicks != 6 || got.Bots != 1 {
			t.Errorf("%s: the claimed link has %+v", when, got.Total)
		}
	}
	check("at first")
	r.clock.Advance(2 * dayLong)
	r.mustRollUp()
	check("rolled up")
	r.clock.Advance(dayLong)
	must(t, reap(ctx, r, r.other()))
	check("a link has ended")
	if got := r.days(s, two, day, day)[0]; got.Clicks != 0 {
		t.Errorf("the link that has ended has %+v", got.Total)
	}
}

// Several links together have the sum of the days of each, which takes as many calls for each.
func TestDaysOfSeveralLinks(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	today := r.today()
	from := today - 9
	var links []link.Link
	for i := range 40 {
		l := link.Link{Name: link.Name(fmt.Sprint("link", i)), LongURL: url1,
			CountedFrom: (from - clicks.Day(i%2)).Start()}
		links = append(links, l)
		r.PutLink(l)
		for day := from; day <= today; day++ {
			if i != 7 { // this one has no clicks
				r.putClick(day, string(l.Name), "p", int64(i), countedFrom(from-clicks.Day(i%2)))
				r.putClick(day, string(l.Name), "q", 100, countedFrom(from-clicks.Day(i%2)))
			}
		}
	}
	s := r.instance()
	for _, when := range []string{"at first", "rolled up"} {
		r.proxy.Reset()
		got, err := s.Clicks.LinksDays(ctx, links, from, today)
		must(t, err)
		calls := len(r.proxy.Calls())
		want := make([]clicks.Total, len(got))
		for _, l := range links {
			for i, day := range r.days(s, l, from, today) {
				want[i].Clicks += day.Clicks
				want[i].Bots += day.Bots
			}
		}
		if !slices.Equal(got, want) || got[0].Clicks != 39*40/2-7+39*100 || got[9].Bots != 2*39 {
			t.Errorf("%s: got %v, want %v", when, got, want)
		}
		if n := 1 + 40*10; when == "at first" && calls != n {
			t.Errorf("%s: %d calls, want %d", when, calls, n)
		}
		if n := 1 + 40*(2+months(from, today-2)); when != "at first" && calls != n {
			t.Errorf("%s: %d calls, want %d", when, calls, n)
		}
		r.mustRollUp()
	}
	if got, err := s.Clicks.LinksDays(ctx, nil, from, today); err != nil || len(got) != 10 {
		t.Errorf("of none: got %v, %v", got, err)
	}
}

// A day is rolled up before any call of a reading, or a roll-up dies right before it drops the
// day's table and another one drops it later: the reading returns the same.
func TestADayIsRolledUpWhileItIsRead(t *testing.T) {
	t.Parallel()
	l := link.Link{Name: "ab", Owner: "ann", LongURL: "https://example.com/ab"}
	count := 1001 // more than a page has
	if !*inMemory {
		count = 2 // or it takes minutes
	}
	plant := func(r *rig, name string) {
		r.Remove()
		r.Make()
		r.PutLink(l)
		today := r.today()
		r.Put(r.ClickTotals, totalsRow(name, today-3, 0, 1000))
		r.PutMonth((today - 3).Start(), rawtables.Rolled(name, (today-3).Start(), 1000, 1))
		r.PutClicks((today - 2).Start())
		var rows []rawtables.Entity
		for i := range count {
			rows = append(rows, clickRow(today-2, name, fmt.Sprintf("p%04d", i), 1, nil))
		}
		r.PutAll(r.Day((today - 2).Start()), rows)
		r.putClick(today-1, name, "p", 1e5, nil)
		r.putClick(today, name, "p", 1e6, nil)
	}
	type reading func(s *storage.Links, today clicks.Day) (any, error)
	for what, test := range map[string]struct {
		name string // of the rows that are read
		read reading
	}{
		"Days": {"ab", func(s *storage.Links, today clicks.Day) (any, error) {
			days, err := s.Clicks.Days(ctx, l, today-2, today)
			return shown(days), err
		}},
		"OwnerDays": {clicks.OwnerName("ann"), func(s *storage.Links, today clicks.Day) (any,
			error) {
			days, err := s.Clicks.OwnerDays(ctx, "ann", today-2, today)
			return shown(days), err
		}},
		"LinksDays": {"ab", func(s *storage.Links, today clicks.Day) (any, error) {
			return s.Clicks.LinksDays(ctx, []link.Link{l}, today-2, today)
		}},
		"Totals": {"ab", func(s *storage.Links, _ clicks.Day) (any, error) {
			return s.Clicks.Totals(ctx, []link.Link{l})
		}},
		"Service": {clicks.All, func(s *storage.Links, _ clicks.Day) (any, error) {
			return s.Clicks.Service(ctx)
		}},
		"Top": {"ab", func(s *storage.Links, _ clicks.Day) (any, error) {
			_, counts, _, err := s.Clicks.Top(ctx, "ann", nil, clicks.LastWeek, 1)
			return counts, err
		}},
	} {
		for _, dies := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, the first roll-up dies: %t", what, dies), func(t *testing.T) {
				t.Parallel()
				r := newStatsRig(t)
				way := r.newProxy() // of the first roll-up
				way.Before(faultproxy.On("DeleteTable", "", faultproxy.Refuse))
				through := r.config.Open
				r.config.Open = r.through(way)
				first := r.instance()
				r.config.Open = through
				other := r.other()
				want := ""
				var calls []faultproxy.Call // if no day is rolled up meanwhile
				for n := 0; n <= len(calls); n++ {
					// A pass has many calls. Before those for the days that are not rolled up, it
					// is the same as before the next one.
					if n > 0 && what == "Top" && slices.Contains([]string{r.Day(r.day(-1)),
						r.Day(r.day(0))}, calls[n-1].Target) {
						continue
					}
					plant(r, test.name)
					r.proxy.Reset()
					r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
						switch {
						case c.N == n && dies:
							if err := rollUp(dying, r, first); err == nil {
								t.Error("it has dropped the table")
							}
						case c.N == n || c.N == n+1 && dies && n > 0:
							should(t, rollUp(ctx, r, other))
						}
						return faultproxy.None
					})
					got, err := test.read(r.instance(), r.today())
					if err != nil {
						t.Errorf("call %d: %v", n, err)
					}
					if text := fmt.Sprint(got); n == 0 {
						want, calls = text, r.proxy.Calls()
					} else if text != want {
						t.Errorf("call %d of %v: got %s, want %s", n, calls, text, want)
					}
				}
				if !strings.Contains(want, "1000000") &&
					!strings.Contains(want, fmt.Sprint(1_101_000+count)) ||
					len(calls) < 4 {
					t.Errorf("got %s after %v", want, calls)
				}
			})
		}
	}
}
