package storage_test

import (
	"fmt"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
)

// callTime is how long each storage call takes in these benchmarks. So their times say how many
// calls wait for one another, on a busy machine too.
const callTime = 30 * time.Millisecond

// slow lets each call of the rig take its time, and forgets the calls so far.
func (r *rig) slow() {
	r.proxy.Reset()
	r.proxy.Before(func(faultproxy.Call) faultproxy.Fault {
		time.Sleep(callTime)
		return faultproxy.None
	})
}

// benchmark measures what handles so many items each time. It reports the calls and the time of
// each item.
func (r *rig) benchmark(b *testing.B, items int, do func() error) {
	b.Helper()
	r.slow()
	for b.Loop() {
		if err := do(); err != nil {
			b.Fatal(err)
		}
	}
	n := float64(b.N * items)
	b.ReportMetric(float64(len(r.proxy.Calls()))/n, "calls")
	b.ReportMetric(b.Elapsed().Seconds()*1000/n, "ms")
	b.ReportMetric(0, "ns/op") // hides it
}

// BenchmarkList is of a page of 50 of an owner's 1,000 links.
func BenchmarkList(b *testing.B) {
	r := newRig(b)
	r.Make()
	for i := range 1000 {
		l := r.want(fmt.Sprintf("https://example.com/%d", i), time.Hour)
		l.Name, l.Owner = link.Name(fmt.Sprintf("link%04d", i)), "ann"
		r.PutLink(l)
	}
	s := r.instance()
	r.benchmark(b, 1, func() error {
		links, _, err := s.List(ctx, "ann", "", 50, all)
		if len(links) != 50 {
			b.Fatalf("%d links", len(links))
		}
		return err
	})
}

// BenchmarkCreate is of links for new URLs, and for one whose link is cached.
func BenchmarkCreate(b *testing.B) {
	for _, name := range []string{"new", "known"} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b)
			r.Make()
			s := r.open(withCache)
			r.create(s, url1, time.Hour)
			_, _, _ = s.Create(ctx, r.want(url1, time.Hour), "") // the link is shared from now on
			s.WaitForCache()
			urls := 0
			r.benchmark(b, 1, func() error {
				url := url1
				if name == "new" {
					urls++
					url = fmt.Sprintf("https://example.com/new/%d", urls)
				}
				_, created, err := s.Create(ctx, r.want(url, time.Hour), "")
				if created != (url != url1) {
					b.Fatalf("created %t", created)
				}
				return err
			})
		})
	}
}

// BenchmarkReap is of each of 1,000 links that have ended.
func BenchmarkReap(b *testing.B) {
	r, _ := newCrashRig(b) // it leaves tombstones
	s := r.instance()
	r.benchmark(b, 1000, func() error {
		b.StopTimer()
		r.Remove()
		r.Make()
		r.PutMany(1000, r.clock.Now().Add(-time.Hour))
		b.StartTimer()
		done, err := s.Reap(ctx)
		if done.Deleted != 1000 {
			b.Fatal(done)
		}
		return err
	})
}

// BenchmarkImport is of each of 1,000 links. A third have no owner, and a quarter end.
func BenchmarkImport(b *testing.B) {
	r := newRig(b)
	r.Make()
	s := r.instance()
	links := make([]link.Link, 1000)
	made := 0
	r.benchmark(b, len(links), func() error {
		for i := range links {
			made++
			l := link.Link{Name: link.Name(fmt.Sprintf("i%06d", made)), CreatedAt: r.clock.Now(),
				LongURL: fmt.Sprintf("https://example.com/%d", made)}
			if i%3 > 0 {
				l.Owner = "ann"
			}
			if i%4 == 0 {
				l.ExpiresAt = l.CreatedAt.AddDate(0, 0, 1+i%300)
			}
			links[i] = l
		}
		for _, done := range s.Import(ctx, links) {
			if done.Err != nil {
				return done.Err
			}
		}
		return nil
	})
}

// BenchmarkDays is of a link that 20 processes count on each of 30 days.
func BenchmarkDays(b *testing.B) {
	r := newStatsRig(b)
	from := r.today() - 29
	busy := link.Link{Name: "busy", LongURL: url1}
	r.PutLink(busy)
	r.putBusyDays(from)
	s := r.instance()
	for _, name := range []string{"of processes", "rolled up"} {
		if name == "rolled up" {
			if err := rollUp(ctx, r, r.other()); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(name, func(b *testing.B) {
			r.benchmark(b, 1, func() error {
				_, err := s.Clicks.Days(ctx, busy, from, from+29)
				return err
			})
		})
	}
}

// BenchmarkTop is of ten thousand links that were clicked yesterday and today.
func BenchmarkTop(b *testing.B) {
	r := newStatsRig(b)
	today := r.today()
	for _, day := range []clicks.Day{today - 1, today} {
		var rows []rawtables.Entity
		for i := range 10_000 {
			l := link.Link{Name: link.Name(fmt.Sprintf("link%04d", i)),
				LongURL: "https://example.com/"}
			if i < 100 {
				r.PutLink(l)
			}
			rows = append(rows, clickRow(day, string(l.Name), "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
				int64(10_000-i), nil))
		}
		r.PutClicks(day.Start())
		r.PutAll(r.Day(day.Start()), rows)
	}
	r.benchmark(b, 1, func() error {
		s := r.instance() // it has kept nothing
		links, _, _, err := s.Clicks.Top(ctx, "", nil, clicks.LastDay, 10)
		if len(links) != 10 {
			b.Fatalf("%d links", len(links))
		}
		return err
	})
}
