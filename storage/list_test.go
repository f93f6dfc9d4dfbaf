package storage_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/azurite"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/storage"
)

// owned writes count links of an owner, two of each second, and returns their aliases, the newest
// first.
func (r *rig) owned(owner string, count int) (aliases []link.Name) {
	r.t.Helper()
	var links, owners []rawtables.Entity
	for i := range count {
		l := link.Link{Name: link.Name(fmt.Sprintf("%s-%04d", owner, i)), Owner: owner,
			Title: fmt.Sprint(i), CreatedAt: r.clock.Now().Add(-time.Duration(i/2) * time.Second)}
		l.LongURL = "https://example.com/" + string(l.Name)
		aliases = append(aliases, l.Name)
		links, owners = append(links, rawtables.Link(l)), append(owners, rawtables.Owner(l))
	}
	r.PutAll(r.Links, links)
	r.PutAll(r.Owners, owners)
	r.proxy.Reset()
	return aliases
}

func all(link.Link) bool { return true }

func aliasesOf(links []link.Link) (aliases []link.Name) {
	for _, l := range links {
		aliases = append(aliases, l.Name)
	}
	return aliases
}

func TestListInPages(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(withCache)
	const count = 150
	made := r.owned("ann", count)
	r.owned("bob", 3)
	for _, limit := range []int{50, 100, count, 1000} {
		var listed []link.Name
		for after, page := "", 1; page == 1 || after != ""; page++ {
			r.proxy.Reset()
			links, next, err := s.List(ctx, "ann", after, limit, all)
			want := min(limit, count-len(listed))
			if last := len(listed)+want == count; err != nil || len(links) != want ||
				last != (next == "") {
				t.Fatalf("page %d of %d: got %d links, next %q, %v", page, limit, len(links), next,
					err)
			}
			if calls := r.proxy.Calls(); len(calls) != want+1 {
				t.Errorf("page %d of %d took %d calls, want %d: %v", page, limit, len(calls), want+
					1, calls)
			}
			listed, after = append(listed, aliasesOf(links)...), next
		}
		if !slices.Equal(listed, made) {
			t.Errorf("in pages of %d: got %v", limit, listed)
		}
	}
}

// tableService stands in for the service with many links of one owner, the newest first: it is
// quicker than Azurite, and returns fewer rows at a time than it is asked for, as the service may.
type tableService struct {
	links          []link.Link
	most           int    // rows at a time
	emptyFirst     bool   // the first response to each query has none
	onRead         func() // called at each read of a link
	reads, queries atomic.Int64
}

var (
	afterRow = regexp.MustCompile(`RowKey gt '(.*)'$`)
	linkRow  = regexp.MustCompile(`RowKey='(.*)'\)$`)
)

func newTableService(count int) *tableService {
	newest := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	s := &tableService{most: 1000, onRead: func() {}}
	for i := range count {
		s.links = append(s.links, link.Link{Name: link.Name(fmt.Sprintf("a%06d", i)),
			LongURL: "https://example.com/", Title: fmt.Sprint(i),
			Owner: "ann", CreatedAt: newest.Add(-time.Duration(i/2) * time.Second)})
	}
	return s
}

func (s *tableService) key(i int) string { return rawtables.Owner(s.links[i])["RowKey"].(string) }

func (s *tableService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("ETag", `W/"1"`)
	if row := linkRow.FindStringSubmatch(r.URL.Path); row != nil {
		s.reads.Add(1)
		s.onRead()
		i, _ := strconv.Atoi(row[1][1:])
		_ = json.NewEncoder(w).Encode(rawtables.Link(s.links[i]))
		return
	}
	if r.Method == http.MethodPost {
		w.WriteHeader(http.StatusNoContent) // it makes a table
		return
	}
	query := r.URL.Query()
	after := ""
	if filter := afterRow.FindStringSubmatch(query.Get("$filter")); filter != nil {
		after = filter[1]
	}
	s.queries.Add(1)
	next := query.Get("NextRowKey")
	first := sort.Search(len(s.links), func(i int) bool {
		return s.key(i) > after &&
			s.key(i) >= next
	})
	top, _ := strconv.Atoi(query.Get("$top"))
	last := min(first+min(top, s.most), len(s.links))
	if s.emptyFirst && next == "" {
		last = first
	}
	rows := []rawtables.Entity{}
	for i := first; i < last; i++ {
		row := rawtables.Owner(s.links[i])
		row["odata.etag"], row["Timestamp"] = `W/"1"`, time.Now()
		rows = append(rows, row)
	}
	if last < len(s.links) {
		w.Header().Set("x-ms-continuation-NextPartitionKey", "some")
		w.Header().Set("x-ms-continuation-NextRowKey", s.key(last))
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"value": rows})
}

// open opens a store on the service.
func (s *tableService) open(r *rig) *storage.Links {
	r.t.Helper()
	server := httptest.NewServer(s)
	r.t.Cleanup(server.Close)
	r.config.Open = connect(r.t, azurite.Ports{Table: server.Listener.Addr().(*net.TCPAddr).Port}.ConnectionString(), nil)
	return r.instance()
}

// However many rows the service returns at a time and however slow this machine is, each link is
// listed once, in order, and no call reads more than it may.
func TestListOfManyLinks(t *testing.T) {
	const count = 1100
	for name, test := range map[string]struct {
		limit      int
		every      int // this many are kept, the others are not
		most       int
		emptyFirst bool
	}{
		"no filter":                            {1000, 1, 1000, false},
		"more than there can be":               {5000, 1, 1000, false},
		"every second one, few rows at a time": {100, 2, 7, false},
		"few, no rows at first":                {3, 500, 1000, true},
		"none":                                 {50, count + 1, 1000, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.config.Now = time.Now // so that it looks no further than it gets in time
			fake := newTableService(count)
			fake.most, fake.emptyFirst = test.most, test.emptyFirst
			s := fake.open(r)
			keep := func(l link.Link) bool {
				i, _ := strconv.Atoi(l.Title)
				return (i+1)%test.every == 0
			}
			var listed []link.Name
			for after, pages := "", 0; pages == 0 || after != ""; pages++ {
				fake.reads.Store(0)
				links, next, err := s.List(ctx, "ann", after, test.limit, keep)
				if err != nil || next != "" && next <= after || len(links) > test.limit {
					t.Fatalf("page %d: got %d links, next %q, %v", pages, len(links), next, err)
				}
				if reads := fake.reads.Load(); reads > 1000 {
					t.Errorf("page %d took %d reads", pages, reads)
				}
				listed, after = append(listed, aliasesOf(links)...), next
			}
			kept := slices.DeleteFunc(slices.Clone(
				fake.links), func(l link.Link) bool { return !keep(l) })
			if !slices.Equal(listed, aliasesOf(kept)) {
				t.Errorf("got %v", listed)
			}
		})
	}
}

// If storage is slow, a list returns what it has found rather than nothing.
func TestListLooksNoFurtherThanItGetsInTime(t *testing.T) {
	r := newRig(t)
	fake := newTableService(300)
	s := fake.open(r)
	fake.onRead = func() { r.clock.Advance(20 * time.Millisecond) }
	links, next, err := s.List(ctx, "ann", "",
		100, func(l link.Link) bool { return l.Title == "3" || l.Title == "299" })
	if err != nil || len(links) != 1 || next != fake.key(int(fake.reads.Load())-1) ||
		next == fake.key(299) {
		t.Errorf("got %v, %q, %v after %d reads", aliasesOf(links), next, err, fake.reads.Load())
	}
	fake.onRead = func() {}
	links, next, err = s.List(ctx, "ann", next,
		100, func(l link.Link) bool { return l.Title == "3" || l.Title == "299" })
	if err != nil || len(links) != 1 || next != "" {
		t.Errorf("got %v, %q, %v", aliasesOf(links), next, err)
	}
}

// If comparing links takes long, a list ends with its time, too, and goes on from there.
func TestListComparesNoLongerThanItsTime(t *testing.T) {
	r := newRig(t)
	r.config.Now, r.config.Timeout = time.Now, time.Second
	s := newTableService(300).open(r)
	compared := 0
	keep := func(link.Link) bool {
		if compared++; compared == 3 {
			time.Sleep(1100 * time.Millisecond)
		}
		return true
	}
	links, next, err := s.List(ctx, "ann", "", 100, keep)
	if err != nil || len(links) != 3 || compared != 3 || next == "" {
		t.Fatalf("got %v, %q, %v after %d", aliasesOf(links), next, err, compared)
	}
	more, _, err := s.List(ctx, "ann", next, 100, keep)
	if err != nil || len(more) != 100 || slices.Contains(aliasesOf(more), links[2].Name) {
		t.Errorf("then got %v, %v", aliasesOf(more), err)
	}
}

func TestListHasLinksAsTheyAre(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, other := r.open(withCache), r.open(withCache)
	owners := []string{"ann", "o'brien' or 'x' eq 'x", "東京|\\/#?%"}
	for i, owner := range owners {
		want := r.want("https://example.com/", time.Hour)
		want.Owner, want.Title, want.Tags = owner, "A 'title' "+owner, []string{"a", "東京"}
		if i == 0 {
			want.ExpiresAt = time.Time{}
		}
		l, _, err := s.Create(ctx, want, "")
		must(t, err)
		if _, err := other.Get(ctx, l.Name); err != nil {
			t.Fatal(err)
		}
		edited, err := s.Edit(ctx, l.Name, false, func(l link.Link) (link.Link, error) {
			l.DeletedAt = r.clock.Now()
			return l, nil
		})
		must(t, err)
		got, next, err := other.List(ctx, owner, "", 50, all)
		if err != nil || next != "" || len(got) != 1 || got[0].Version != edited.Version ||
			got[0].DeletedAt.IsZero() || got[0].Title != want.Title ||
			!slices.Equal(got[0].Tags, want.Tags) || got[0].Owner != owner ||
			got[0].Name != l.Name {
			t.Errorf("got %+v, %q, %v, want %+v", got, next, err, edited)
		}
	}
	if got, next, err := s.List(ctx, "nobody", "", 50, all); err != nil || next != "" ||
		len(got) != 0 {
		t.Errorf("nobody has %+v, %q, %v", got, next, err)
	}
}

func TestListFromAPositionThatSomebodyMadeUp(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	made := r.owned("ann", 4)
	r.owned("bob", 4)
	for after, want := range map[string]struct {
		links int
		err   error
	}{
		"0": {4, nil}, "|": {0, nil}, "z": {0, nil}, "0000000000|a": {4, nil},
		"9999999999|a":                   {0, nil},
		"' or RowKey gt '":               {4, nil},
		"'' or PartitionKey ne '":        {4, nil},
		"9' or PartitionKey gt '":        {0, nil},
		"9')) or (RowKey gt ''":          {0, nil},
		"9'''":                           {0, nil},
		"東京 🗝":                           {0, nil},
		"&$top=1#/\\?%27%00":             {4, nil},
		strings.Repeat("9", 1024):        {0, nil},
		strings.Repeat("9", 1025):        {0, link.ErrPosition},
		"9\x00":                          {0, link.ErrPosition},
		"9\n":                            {0, link.ErrPosition},
		"9\x7f":                          {0, link.ErrPosition},
		"9\xff":                          {0, link.ErrPosition},
		strings.Repeat("x'", 512) + "\n": {0, link.ErrPosition},
	} {
		r.proxy.Reset()
		links, next, err := s.List(ctx, "ann", after, 50, all)
		if !errors.Is(err, want.err) || err != nil && want.err == nil || len(links) != want.links ||
			next != "" || err == nil && want.links > 0 && !slices.Equal(aliasesOf(links), made) {
			t.Errorf("after %q: got %v, %q, %v", after, aliasesOf(links), next, err)
		}
		if calls := r.proxy.Calls(); err != nil && len(calls) > 0 {
			t.Errorf("after %q: got the calls %v", after, calls)
		}
	}
}

// strayRows puts rows that lead to no link of ann's into her list.
func (r *rig) strayRows() (strays []rawtables.Entity) {
	r.t.Helper()
	now := r.clock.Now()
	stray := func(l link.Link) {
		l.CreatedAt = now
		row := rawtables.Owner(l)
		r.Put(r.Owners, row)
		strays = append(strays, row)
	}
	stray(link.Link{Name: "nowhere", Owner: "ann"})
	stray(link.Link{Name: "no alias'", Owner: "ann"})
	stray(link.Link{Name: "tombstone", Owner: "ann"})
	r.Put(r.Links, rawtables.Link(link.Link{Name: "tombstone", GoneAt: now,
		GoneReason: link.StateExpired}))
	stray(link.Link{Name: "bobs", Owner: "ann"})
	r.Put(r.Links, rawtables.Link(link.Link{Name: "bobs", LongURL: "https://example.com/",
		Owner: "bob", CreatedAt: now}))
	stray(link.Link{Name: "nobodys", Owner: "ann"})
	r.Put(r.Links, rawtables.Link(link.Link{Name: "nobodys", LongURL: "https://example.com/",
		CreatedAt: now}))
	stray(link.Link{Name: "repeated", Owner: "ann"})
	repeated := link.Link{Name: "repeated", LongURL: "https://example.com/", Owner: "ann",
		CreatedAt: now.Add(time.Second)}
	r.Put(r.Links, rawtables.Link(repeated))
	r.Put(r.Owners, rawtables.Owner(repeated))
	damaged := link.Link{Name: "damaged", Owner: "ann", CreatedAt: now}
	r.Put(r.Links, rawtables.Link(damaged))
	r.Put(r.Owners, rawtables.Owner(damaged))
	r.proxy.Reset()
	return strays
}

func TestListDropsOldRowsThatLeadNowhere(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before func(r *rig) // the first list
		during func(r *rig, strays []rawtables.Entity) func(faultproxy.Call)
		left   int // of the rows that lead nowhere
	}{
		"old rows":               {before: func(r *rig) { r.clock.Advance(2 * time.Hour) }},
		"young rows":             {before: func(r *rig) {}, left: 6},
		"rows of almost an hour": {before: func(r *rig) { r.clock.Advance(59 * time.Minute) }, left: 6},
		"a process that was stopped after it had read young rows": {
			before: func(r *rig) {},
			during: func(r *rig, _ []rawtables.Entity) func(faultproxy.Call) {
				return func(c faultproxy.Call) {
					if c.Operation == "QueryEntities" {
						r.clock.Advance(2 * time.Hour)
					}
				}
			},
			left: 6,
		},
		"rows that are written anew meanwhile": {
			before: func(r *rig) { r.clock.Advance(2 * time.Hour) },
			during: func(r *rig, strays []rawtables.Entity) func(faultproxy.Call) {
				return func(c faultproxy.Call) {
					if c.Operation == "QueryEntities" {
						for _, row := range strays {
							r.Put(r.Owners, row)
						}
					}
				}
			},
			left: 6,
		},
		"a clock that is ahead of that of storage": {
			before: func(r *rig) { r.clock.Advance(2 * time.Hour) },
			left:   6,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.config.Reap.StorageClock = strings.HasPrefix(name, "a clock")
			s := r.open(nil)
			strays := r.strayRows()
			test.before(r)
			if test.during != nil {
				r.proxy.After(test.during(r, strays))
			}
			for range 2 {
				links, next, err := s.List(ctx, "ann", "", 50, all)
				if err != nil || next != "" || fmt.Sprint(aliasesOf(links)) != "[repeated]" {
					t.Errorf("got %v, %q, %v", aliasesOf(links), next, err)
				}
				if got, want := len(r.Rows(r.Owners)), test.left+2; got != want {
					t.Errorf("%d rows are left, want %d: %v", got, want, r.Rows(r.Owners))
				}
				if test.during != nil {
					break
				}
			}
		})
	}
}

// A page is not shorter for rows that lead nowhere, and goes on after them.
func TestListPastRowsThatLeadNowhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	r.strayRows()
	r.clock.Advance(-time.Hour)
	made := r.owned("ann", 3)
	r.clock.Advance(2 * time.Hour)
	links, next, err := s.List(ctx, "ann", "", 2, all)
	if err != nil || next == "" ||
		fmt.Sprint(aliasesOf(links)) != fmt.Sprint([]link.Name{"repeated", made[0]}) {
		t.Errorf("got %v, %q, %v", aliasesOf(links), next, err)
	}
	links, next, err = s.List(ctx, "ann", next, 2, all)
	if err != nil || next != "" || !slices.Equal(aliasesOf(links), made[1:]) {
		t.Errorf("got %v, %q, %v", aliasesOf(links), next, err)
	}
}

// A list and a create at the same time: the row is there, and its link is on the way.
func TestListWhileALinkIsMade(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, other := r.open(nil), r.open(nil)
	var once sync.Once
	r.proxy.After(func(c faultproxy.Call) {
		if c.Operation == "InsertEntity" && c.Target == r.Owners {
			once.Do(func() {
				if links, _, err := other.List(ctx, "ann", "", 50, all); err != nil ||
					len(links) != 0 {
					t.Errorf("got %+v, %v", links, err)
				}
			})
		}
	})
	want := r.want("https://example.com/", time.Hour)
	want.Owner = "ann"
	l, _, err := s.Create(ctx, want, "")
	must(t, err)
	r.proxy.Reset()
	r.clock.Advance(2 * time.Hour)
	if links, _, err := other.List(ctx, "ann", "", 50, all); err != nil || len(links) != 1 ||
		links[0].Name != l.Name {
		t.Errorf("got %+v, %v", links, err)
	}
}

func TestFaultsDuringAList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	made := r.owned("ann", 40)
	for name, fault := range map[string]faultproxy.Fault{
		"response lost": faultproxy.DropResponse, "connection closed": faultproxy.Refuse,
		"server busy": faultproxy.ServerBusy,
	} {
		for _, n := range []int{1, 2, 41} {
			r.proxy.Reset()
			r.proxy.Before(faultproxy.Fail(n, fault))
			links, next, err := s.List(ctx, "ann", "", 40, all)
			if err != nil || next != "" || !slices.Equal(aliasesOf(links), made) {
				t.Errorf("%s at call %d: got %v, %q, %v", name, n, aliasesOf(links), next, err)
			}
		}
		for _, target := range []string{r.Links, r.Owners} {
			r.proxy.Reset()
			r.proxy.Before(faultproxy.On("", target, faultproxy.Refuse))
			if links, next, err := s.List(ctx, "ann", "", 40, all); !errors.Is(err,
				link.ErrUnavailable) || len(links) > 0 || next != "" {
				t.Errorf("%s for good on %s: got %v, %q, %v", name, target, aliasesOf(links), next,
					err)
			}
		}
	}
	// A row that cannot be dropped is no reason to fail.
	r.proxy.Reset()
	r.Put(r.Owners, rawtables.Owner(link.Link{Name: "nowhere", Owner: "ann",
		CreatedAt: r.clock.Now()}))
	r.clock.Advance(2 * time.Hour)
	r.proxy.Before(faultproxy.On("DeleteEntity", "", faultproxy.Refuse))
	if links, _, err := s.List(ctx, "ann", "", 40, all); err != nil ||
		!slices.Equal(aliasesOf(links), made) {
		t.Errorf("got %v, %v", aliasesOf(links), err)
	}
}

func TestListIsNewestFirst(t *testing.T) { eachWay(t, testList) }

func testList(t *testing.T, start starter) {
	const url = "https://example.com/"
	t.Run("an owner's links are listed, newest first", func(t *testing.T) {
		s, clock, want := start(t)
		var made []link.Name
		for i := range 7 {
			if i%3 != 0 { // some are made in the same second
				clock.Advance(time.Second)
			}
			w := owned(want(fmt.Sprint(url, i), time.Hour), "a")
			w.Title = fmt.Sprint("title ", i)
			made = append(made, s.create(t, w).Name)
		}
		s.create(t, owned(want(url, 0), "b"))
		s.create(t, want(url, time.Hour))

		list := func(owner string, limit int, keep func(link.Link) bool) (listed []link.Link) {
			t.Helper()
			for after, pages := "", 0; pages == 0 || after != ""; pages++ {
				links, next, err := s.List(t.Context(), owner, after, limit, keep)
				if err != nil || len(links) > limit || pages > 10 {
					t.Fatalf("page %d: got %d links, %q, %v", pages, len(links), next, err)
				}
				listed, after = append(listed, links...), next
			}
			return listed
		}
		for _, limit := range []int{1, 2, 6, 7, 8, 100} {
			listed := list("a", limit, all)
			var aliases []link.Name
			for i, l := range listed {
				aliases = append(aliases, l.Name)
				if i > 0 && l.CreatedAt.After(listed[i-1].CreatedAt) {
					t.Errorf("%d a page: %s is newer than the one before it", limit, l.Name)
				}
				if read, err := s.Read(t.Context(), l.Name); err != nil ||
					!reflect.DeepEqual(read, l) {
					t.Errorf("listed %+v, read %+v, %v", l, read, err)
				}
			}
			if slices.Sort(aliases); !slices.Equal(aliases, slices.Sorted(slices.Values(made))) {
				t.Errorf("%d a page: %v", limit, aliases)
			}
		}
		if some := list("a", 2, func(l link.Link) bool { return l.Title > "title 3" }); len(
			some) != 3 {
			t.Errorf("of three, these are kept: %+v", some)
		}
		if none := list("c", 10, all); len(none) != 0 {
			t.Errorf("somebody without links has %+v", none)
		}
		clock.Advance(2 * time.Hour)
		if expired := list("a", 10, all); len(expired) != 7 {
			t.Errorf("%d are left once they have expired", len(expired))
		}
		if _, err := s.Reap(t.Context()); err != nil {
			t.Fatal(err)
		}
		if reaped := list("a", 10, all); len(reaped) != 0 {
			t.Errorf("tombstones are listed: %+v", reaped)
		}
	})
}
