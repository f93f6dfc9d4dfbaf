package storage_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/teststore"
	"tiney/storage"
)

// former is a link of another service, made a year ago.
func (r *rig) former(owner string, a link.Name, url string) link.Link {
	l := r.wish(owner, a, url, 0)
	l.CreatedAt = r.clock.Now().AddDate(-1, 0, 0)
	return l
}

// imports imports links, and returns what became of each: "made", "there", or its error.
func imports(s *storage.Links, links ...link.Link) (what []string) {
	return whatOf(importPatiently(s, links))
}

// importPatiently imports, and repeats what storage did not respond to in time, as on a busy
// machine.
func importPatiently(s *storage.Links, links []link.Link) (done []link.Imported) {
	_ = patiently(func() error {
		again := s.Import(ctx, links)
		var slow error
		for i := range again {
			if done != nil && done[i].Created && !again[i].Created {
				again[i] = done[i]
			}
			if errors.Is(again[i].Err, link.ErrUnavailable) {
				slow = again[i].Err
			}
		}
		done = again
		return slow
	})
	return done
}

func whatOf(done []link.Imported) (what []string) {
	for _, d := range done {
		switch {
		case d.Err != nil:
			what = append(what, d.Err.Error())
		case d.Created:
			what = append(what, "made")
		default:
			what = append(what, "there")
		}
	}
	return what
}

func (r *rig) wantSame(what, got, want any) {
	r.t.Helper()
	if !reflect.DeepEqual(got, want) {
		r.t.Errorf("%s: got %v\nwant %v", what, got, want)
	}
}

// rows returns all rows of links, without what differs from one run to the next: of several links
// of one URL that have no owner, the index names any.
func (r *rig) rows() (all []string) {
	r.t.Helper()
	for name, table := range map[string]string{"link": r.Links, "index": r.Index,
		"expiry": r.Expiry, "owner": r.Owners} {
		for _, e := range r.Rows(table) {
			if e["OldIndexKey"] != nil {
				continue // a guard that is left to the reaper
			}
			for _, random := range []string{"CreateId", "ExpiryETag"} {
				delete(e, random)
			}
			if name == "index" {
				e = rawtables.Entity{"RowKey": e["RowKey"]}
			}
			all = append(all, fmt.Sprint(name, e))
		}
	}
	slices.Sort(all)
	return all
}

func TestImport(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	full := r.former("a", "Full_-1", url1)
	full.UpdatedAt, full.ExpiresAt = r.clock.Now().Add(-time.Hour), r.clock.Now().Add(time.Hour)
	full.StatusCode, full.Disabled, full.Title, full.Tags = 308, true, "a title", []string{"x"}
	full.Before = link.Count{Clicks: 5e9, Bots: 3, LastAt: r.clock.Now().Add(-time.Minute)}
	links := []link.Link{full, r.former("", "free", url1), r.former("", "second", url1),
		r.former("b", "owned", url1)}
	r.wantSame("first", imports(s, links...), []string{"made", "made", "made", "made"})
	got, err := s.Read(ctx, "Full_-1")
	full.Version, full.CountedFrom = got.Version, got.CountedFrom
	if err != nil || !reflect.DeepEqual(got, full) {
		t.Errorf("got %+v, %v, want %+v", got, err, full)
	}
	// One of those without an owner is in the index, and is what their URL gets.
	r.WantRows(4, 1, 1)
	if l, created, err := s.Create(ctx, r.wish("", "", url1, time.Hour), ""); err != nil ||
		created || l.Name != "free" && l.Name != "second" {
		t.Errorf("got %+v, created %t, %v", l, created, err)
	}
	if l, _, err := s.List(ctx, "a", "", 10, all); err != nil ||
		len(l) != 1 || l[0].Name != "Full_-1" {
		t.Errorf("its owner sees %v, %v", l, err)
	}
	before := r.rows()
	r.wantSame("again", imports(s, links...), []string{"there", "there", "there", "there"})
	r.wantSame("rows after the second import", r.rows(), before)
	r.endAll(r.other())
}

func TestImportMeetsWhatIsThere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.leaveTombstones(teststore.TombstoneKeep)
	s := r.open(nil)
	taken, deleted := link.ErrAliasTaken.Error(), link.ErrDeleted.Error()
	for _, l := range []link.Link{r.wish("a", "live", url1, 0),
		r.wish("a", "gone", url1, time.Hour), r.wish("a", "deleted", url1, 0),
		r.wish("a", "disabled", url1, 0)} {
		if _, _, err := s.Create(ctx, l, ""); err != nil {
			t.Fatal(err)
		}
	}
	r.clock.Advance(2 * time.Hour)
	must(t, reap(ctx, r, s))
	for a, change := range map[link.Name]func(l *link.Link){
		"deleted":  func(l *link.Link) { l.DeletedAt = r.clock.Now() },
		"disabled": func(l *link.Link) { l.Disabled = true },
	} {
		if _, err := s.Edit(ctx, a, false, func(l link.Link) (link.Link, error) {
			change(&l)
			return l, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	r.Put(r.Links, rawtables.Entity{"PartitionKey": "da", "RowKey": "damaged"})
	links := []link.Link{
		r.former("b", "live", url1), r.former("b", "live", url2), r.former("a", "gone", url1),
		r.former("a", "deleted", url1),
		r.former("a", "disabled", url1), r.former("a", "damaged", url1),
		r.former("a", "new", url1), r.former("b", "new", url1), r.former("a", "new", url2),
		r.former("a", "New", url2),
	}
	want := []string{"there", taken, taken, deleted, "there", taken, "made", "there", taken, "made"}
	before := r.rows()
	made := map[link.Name]uint64{}
	tried := s.TryImport(ctx, links, made)
	r.wantSame("tried", whatOf(tried), want)
	// a tombstone and a damaged row have none
	for i, owner := range []string{"a", "a", "", "a", "a", ""} {
		if there := tried[i].There; there == nil || there.Owner != owner {
			t.Errorf("%s: found %+v, want a link of %q", links[i].Name, there, owner)
		}
	}
	for i, d := range tried[6:] {
		if d.There != nil {
			t.Errorf("%s: found %+v", links[6+i].Name, d.There)
		}
	}
	r.wantSame("tried later", whatOf(s.TryImport(ctx, links[6:], made)),
		[]string{"there", "there", taken, "there"})
	r.wantSame("rows after trying", r.rows(), before)
	r.wantSame("done", imports(s, links...), want)
	if l, err := s.Read(ctx, "live"); err != nil || l.Owner != "a" {
		t.Errorf("got %+v, %v", l, err)
	}
}

// A link to a blocked host is not imported.
func TestImportOfABlockedHost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	host, _ := link.ParseHost("example.com")
	must(t, s.Blocked.Add(ctx, host))
	links := []link.Link{r.former("a", "one", "https://www.EXAMPLE.com./"),
		r.former("a", "two", "https://example.org/")}
	want := []string{"longUrl: " + link.ErrBlocked.Error(), "made"}
	r.wantSame("tried", whatOf(s.TryImport(ctx, links, map[link.Name]uint64{})), want)
	r.wantSame("done", imports(s, links...), want)
	r.WantRows(1, 0, 0)
}

// A link that had ended is imported as one, and ends as any other.
func TestImportOfWhatHasEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.leaveTombstones(teststore.TombstoneKeep)
	s := r.open(nil)
	past, soon := r.former("a", "past", url1), r.former("", "soon", url2)
	past.ExpiresAt, soon.ExpiresAt = r.clock.Now().Add(-time.Hour),
		r.clock.Now().Add(10*time.Second)
	r.wantSame("first", imports(s, past, soon), []string{"made", "made"})
	r.wantSame("again", imports(s, past, soon), []string{"there", "there"})
	r.clock.Advance(time.Minute)
	if done, err := s.Reap(ctx); err != nil || done.Deleted+done.Dropped != 0 {
		t.Errorf("too early: %+v, %v", done, err)
	}
	r.clock.Advance(2 * time.Second)
	if done, err := s.Reap(ctx); err != nil || done.Deleted != 2 {
		t.Errorf("got %+v, %v", done, err)
	}
	for _, l := range []link.Link{past, soon} {
		if got, err := s.Get(ctx, l.Name); err != nil || got.GoneReason != link.StateExpired ||
			!got.GoneAt.Equal(l.ExpiresAt) {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	// The file that they are in can be imported again. A link that has not ended is none of those
	// that have.
	before := r.rows()
	lasting := r.former("", "soon", url2)
	want := []string{"there", "there", link.ErrAliasTaken.Error()}
	r.wantSame("tried when they are gone", whatOf(s.TryImport(ctx, []link.Link{past, soon, lasting},
		map[link.Name]uint64{})), want)
	r.wantSame("imported when they are gone", imports(s, past, soon, lasting), want)
	r.wantSame("rows when they are gone", r.rows(), before)
	r.endAll(r.other())
}

// What was counted before the import is kept by an edit, and what is counted here is added to it,
// rolled up or not.
func TestImportedClicks(t *testing.T) {
	t.Parallel()
	r := newStatsRig(t)
	s := r.open(nil)
	l := r.former("a", "one", url1)
	l.Before = link.Count{Clicks: 100, Bots: 10, LastAt: r.clock.Now().Add(-time.Hour)}
	imports(s, l)
	total := func(clicks, bots int64) {
		t.Helper()
		r.clock.Advance(time.Minute) // what was read is kept so long
		l, err := s.Read(ctx, "one")
		got, totalErr := s.Clicks.Totals(ctx, []link.Link{l})
		if err != nil || totalErr != nil || got[0].Clicks != clicks || got[0].Bots != bots ||
			got[0].Last.IsZero() {
			t.Errorf("got %+v, %v, %v, want %d and %d", got, err, totalErr, clicks, bots)
		}
	}
	total(100, 10)
	must(t, setURL(url2)(ctx, r, s))
	edited, err := s.Read(ctx, "one")
	must(t, err)
	s.Clicks.Click(edited, visit(r.clock.Now(), 1))
	r.flush(s)
	// of a link that had the alias before
	r.putClick(r.today()-1, "one", "old", 7, nil)
	total(101, 10)
	imports(s, r.former("a", "one", url2)) // changes nothing
	r.clock.Advance(3 * dayLong)
	must(t, rollUp(ctx, r, s))
	total(101, 10)
	if service, err := s.Clicks.Service(ctx); err != nil || service.Clicks != 1 {
		t.Errorf("the service: %+v, %v", service, err)
	}
}

// many is a file of 120 links: with owners and ends and without, two of an alias now and then.
func (r *rig) many() (links []link.Link) {
	for i := range 120 {
		l := r.former([]string{"", "a", "b"}[i%3], link.Name(fmt.Sprintf("m%d", i)),
			fmt.Sprintf("https://example.com/%d", i%100))
		if i%4 == 0 {
			l.ExpiresAt = r.clock.Now().Add(time.Duration(i+2) * time.Hour)
		}
		if again(i) {
			l.Name, l.LongURL = links[i-20].Name, links[i-20-i/60].LongURL
		}
		l.Before.Clicks = int64(i)
		links = append(links, l)
	}
	return links
}

// again reports whether the alias of a link was there before in many.
func again(i int) bool { return i%30 == 29 }

// Several processes import the same at the same time: each link is made once, and nothing is there
// twice. It is not parallel to other tests: so many links at once are slow enough.
func TestImportsAtOnce(t *testing.T) {
	r, other := newCrashRig(t)
	links := r.many()
	var all errgroup.Group
	results := make([][]link.Imported, 2)
	for i := range results {
		s := r.instance()
		all.Go(func() error {
			results[i] = importPatiently(s, links)
			return nil
		})
	}
	_ = all.Wait()
	for i := range links {
		made := 0
		for _, done := range results {
			if done[i].Created {
				made++
			}
			if err := done[i].Err; err != nil && (!errors.Is(err, link.ErrAliasTaken) ||
				!again(i)) {
				t.Errorf("link %d: %v", i, err)
			}
		}
		if made > 1 {
			t.Errorf("link %d was made %d times", i, made)
		}
	}
	r.WantNoLeak()
	if n := len(r.Rows(r.Links)); n != 116 {
		t.Errorf("%d links", n)
	}
	r.wantSame("again", slices.Contains(imports(other, links...), "made"), false)
}

// A process is killed in the middle of a file. Another one that imports the file again leaves what
// one that was not killed does.
func TestImportKilledAndRunAgain(t *testing.T) {
	t.Parallel()
	unharmed, s := newCrashRig(t)
	links := unharmed.many()
	results := imports(s, links...)
	want := unharmed.rows()
	for n := 1; ; n = 2*n + 1 {
		r, other := newCrashRig(t)
		r.proxy.Before(kill(n))
		r.instance().Import(dying, links)
		calls := len(r.proxy.Calls())
		for i, what := range imports(other, links...) {
			if what != results[i] && (what != "there" || results[i] != "made") {
				t.Errorf("killed before call %d: link %d is %s, want %s", n, i, what, results[i])
			}
		}
		r.clock.Advance(2 * time.Hour) // lists delete rows that lead nowhere, once they are an hour old
		must(t, both(list("a"), list("b"))(ctx, r, other))
		got := r.rows()
		for _, row := range got {
			if !slices.Contains(want, row) {
				t.Errorf("killed before call %d: left %s", n, row)
			}
		}
		if len(got) != len(want) {
			t.Errorf("killed before call %d: left %d rows, want %d", n, len(got), len(want))
		}
		r.WantNoLeak()
		if calls < n {
			break
		}
	}
}

// When the time of an import is over it begins nothing more, and says so of each link.
func TestImportStops(t *testing.T) {
	t.Parallel()
	r, other := newCrashRig(t)
	stopped, stop := context.WithCancelCause(ctx)
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.N == 20 {
			stop(errors.New("enough"))
		}
		return faultproxy.None
	})
	links := r.many()
	failed := 0
	for _, d := range r.instance().Import(stopped, links) {
		if errors.Is(d.Err, link.ErrUnavailable) && strings.Contains(d.Err.Error(), "enough") {
			failed++
		}
	}
	if rows := len(r.Rows(r.Links)); failed < 60 || rows == 0 || rows+failed > len(links) {
		t.Errorf("%d links were made, and %d not", rows, failed)
	}
	r.wantSame("again", slices.Contains(imports(other, links...), link.ErrUnavailable.Error()),
		false)
	r.WantNoLeak()
}

// A process that has cached that there is no such link learns of it.
func TestImportIsTold(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.config.ChangesEvery = 5 * time.Second
	here, there := r.open(withCache), r.open(withCache)
	if _, err := there.Get(ctx, "one"); !errors.Is(err, link.ErrNotFound) {
		t.Fatal(err)
	}
	imports(here, r.former("a", "one", url1))
	r.clock.Advance(16 * time.Second)
	r.cached(there, "nobody") // it has polled: after a slow poll it would ask the table anyway
	if l, err := there.Get(ctx, "one"); err != nil || l.LongURL != url1 {
		t.Errorf("got %+v, %v", l, err)
	}
}
