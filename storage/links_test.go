package storage_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/teststore"
	"tiney/internal/testing/testutil"
	"tiney/storage"
	"tiney/storage/table"
)

func TestRowsAreInTheDocumentedFormat(t *testing.T) {
	r := newRig(t)
	// "abAB01" reads better than random letters
	r.config.Random = draws("\x24\x25\x0a\x0b\x00\x01")
	s := r.open(nil)
	l := r.create(s, "https://example.com/a", time.Hour)
	if l.Name != "abAB01" {
		t.Fatalf("alias %s", l.Name)
	}
	created, expires := l.CreatedAt.Format(time.RFC3339), l.ExpiresAt.Format(time.RFC3339)
	// printf 'https://example.com/a' | sha256sum
	const hash = "2dce0a4c50441bfccfa9caf4b58c3cba6e06c420505dd829f0436de1aa44baac"
	for table, want := range map[string]rawtables.Entity{
		r.Links: {"PartitionKey": "ab", "RowKey": "abAB01", "LongUrl": "https://example.com/a",
			"IsDisabled": false,
			// another process's clock may be behind
			"CountedFrom":  l.CreatedAt.Add(-time.Minute).Format("20060102"),
			"CreatedAtUtc": created, "CreatedAtUtc@odata.type": "Edm.DateTime",
			"ExpiresAtUtc": expires, "ExpiresAtUtc@odata.type": "Edm.DateTime"},
		r.Index: {"PartitionKey": hash[:8], "RowKey": hash, "Alias": "abAB01",
			"LongUrl":      "https://example.com/a",
			"ExpiresAtUtc": expires, "ExpiresAtUtc@odata.type": "Edm.DateTime"},
		r.Expiry: {"PartitionKey": l.ExpiresAt.Format("20060102"),
			"RowKey":            l.ExpiresAt.Format("150405") + "|abAB01",
			"AliasPartitionKey": "ab", "AliasRowKey": "abAB01", "ExpiresAtUtc": expires,
			"ExpiresAtUtc@odata.type": "Edm.DateTime"},
	} {
		rows := r.Rows(table)
		if len(rows) != 1 {
			t.Fatalf("%s has %d rows", table, len(rows))
		}
		got := rows[0]
		delete(got, "Timestamp@odata.type")
		if id := got["CreateId"]; table != r.Index &&
			(id == nil || id != r.Rows(r.Links)[0]["CreateId"]) {
			t.Errorf("%s: the id is %v", table, id)
		}
		if etag := got["ExpiryETag"]; table == r.Links && etag == nil {
			t.Errorf("%s: no ETag of the expiry row", table)
		}
		delete(got, "CreateId")
		delete(got, "ExpiryETag")
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s:\n got %v\nwant %v", table, got, want)
		}
	}
}

func TestRowsOfOtherPrograms(t *testing.T) {
	r := newRig(t)
	s := r.open(nil)
	for name, test := range map[string]struct {
		partition string
		alias     link.Name
		more      rawtables.Entity
		want      link.Link
	}{
		"all properties, and unknown ones": {"my", "MyLink", rawtables.Entity{"IsDisabled": true,
			"GoneUrl":   "nowhere",
			"CreatedBy": "somebody", "Clicks": 7, "Tags": "a,b", "StatusCode": 200,
			"CreatedAtUtc":            "2024-02-29T12:00:00.1234567Z",
			"CreatedAtUtc@odata.type": "Edm.DateTime"},
			link.Link{Disabled: true, CreatedAt: time.Date(2024, 2, 29, 12, 0, 0, 123456700,
				time.UTC)}},
		"the URL alone":             {"pl", "plain", nil, link.Link{}},
		"an alias of one character": {"xx", "q", nil, link.Link{}},
		"an alias of 32":            {"--", link.Name(strings.Repeat("-", 32)), nil, link.Link{}},
	} {
		t.Run(name, func(t *testing.T) {
			e := rawtables.Entity{"PartitionKey": test.partition, "RowKey": string(test.alias),
				"LongUrl": "https://example.com/ü"}
			for k, v := range test.more {
				e[k] = v
			}
			r.Put(r.Links, e)
			test.want.Name, test.want.LongURL = test.alias, "https://example.com/ü"
			if got, err := s.Get(ctx, test.alias); err != nil || !storage.Same(got, test.want) {
				t.Errorf("got %+v, %v, want %+v", got, err, test.want)
			}
		})
	}
	for name, e := range map[string]rawtables.Entity{
		"without a URL":           {},
		"an empty URL":            {"LongUrl": ""},
		"a URL of wrong type":     {"LongUrl": 7},
		"an expiry of wrong type": {"LongUrl": "https://example.com/", "ExpiresAtUtc": true},
		"an expiry that is no time": {"LongUrl": "https://example.com/",
			"ExpiresAtUtc": "tomorrow"},
		"a start of wrong type": {"LongUrl": "https://example.com/", "StartsAtUtc": 7},
		"a flag of wrong type":  {"LongUrl": "https://example.com/", "IsDisabled": "no"},
	} {
		t.Run(name, func(t *testing.T) {
			e["PartitionKey"], e["RowKey"] = "br", "broken"
			r.Put(r.Links, e)
			if l, err := s.Get(ctx, "broken"); !errors.Is(err, link.ErrDamaged) {
				t.Errorf("got %+v, %v, want %v", l, err, link.ErrDamaged)
			}
		})
	}
}

// calls are the storage calls of a function, through the rig's proxy.
func (r *rig) calls(do func()) []string {
	r.proxy.Reset()
	do()
	var all []string
	for _, c := range r.proxy.Calls() {
		if morePolled(c) {
			continue
		}
		all = append(all, strings.Replace(c.Operation+" "+c.Target, r.prefix(), "", 1))
	}
	return all
}

// prefix begins the names of the rig's tables.
func (r *rig) prefix() string { return strings.TrimSuffix(r.Links, "ShortUrls") }

// morePolled reports whether a call is the second query of a poll.
func morePolled(c faultproxy.Call) bool {
	return strings.HasPrefix(c.Key, "{  change|") ||
		strings.HasPrefix(c.Key, "PartitionKey gt 'change|")
}

func TestStorageCallsPerOperation(t *testing.T) {
	r := newRig(t)
	warm, cold := r.open(withCache), r.open(withCache)
	var l link.Link
	check := func(what string, got []string, want ...string) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	const read, index = "GetEntity ShortUrls", "GetEntity UrlIndex"
	check("shorten, new URL", r.calls(func() {
		l = r.create(warm, "https://example.com/", time.Hour)
	}),
		index, "InsertEntity ShortUrlsExpiryIndex", "InsertEntity ShortUrls",
		"InsertEntity UrlIndex")
	r.cached(warm, l.Name)
	check("redirect, cached", r.calls(func() { warm.Get(ctx, l.Name) }))
	check("shorten, known URL, for the first time",
		r.calls(func() { warm.Create(ctx, r.want("https://example.com/", time.Hour), "") }),
		index, read, "UpdateEntity ShortUrls")
	r.cached(warm, l.Name)
	l.Shared = true
	for name, s := range map[string]*storage.Links{"cached": warm, "not cached": cold} {
		check("shorten, known URL, "+name, r.calls(func() {
			s.Create(ctx, r.want("https://example.com/", time.Hour), "")
		}), index, read)
	}
	check("redirect, not cached, unknown", r.calls(func() { warm.Get(ctx, "nobody") }), read)
	r.cached(warm, "nobody")

	uncached := r.open(withCache)
	got := r.calls(func() {
		release := make(chan struct{})
		r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { <-release; return faultproxy.None })
		var (
			all     sync.WaitGroup
			waiting atomic.Int64
		)
		for range 1000 {
			all.Go(func() {
				if got, err := uncached.Get(storage.WatchedContext{Context: ctx, Waiting: &waiting},
					l.Name); err != nil || !storage.Same(got, l) {
					t.Errorf("got %+v, %v", got, err)
				}
			})
		}
		testutil.Eventually(t, "all have joined the read", func() bool { return waiting.Load() == 1000 })
		close(release)
		all.Wait()
	})
	check("1000 redirects of one link at once, not cached", got, read)

	r.clock.Advance(time.Hour)
	got = r.calls(func() {
		if done, err := warm.Reap(ctx); err != nil || done.Deleted != 1 {
			t.Errorf("reaped %+v, %v", done, err)
		}
	})
	got = slices.DeleteFunc(got, func(c string) bool {
		return strings.HasPrefix(c, "QueryEntities")
	})
	check("reap, per link", got, read, index, read, "DeleteEntity UrlIndex",
		"DeleteEntity ShortUrls", "GetEntity ShortUrlsClickTotals",
		"DeleteEntity ShortUrlsExpiryIndex")
}

// createCalls is how many calls make a link for a URL that has none.
const createCalls = 4

func TestFaultsDuringCreateAreRetriedWithoutATrace(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faultproxy.Fault{
		"response lost": faultproxy.DropResponse, "connection closed": faultproxy.Refuse,
		"server busy": faultproxy.ServerBusy, "frozen": faultproxy.Freeze,
	} {
		for n := 1; n <= createCalls; n++ {
			t.Run(fmt.Sprintf("%s in call %d", name, n), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				s := r.open(withCache)
				r.proxy.Before(faultproxy.Fail(n, fault))
				ctx := ctx
				if fault == faultproxy.Freeze {
					ctx = hasty
				}
				l := r.createIn(ctx, s, "https://example.com/", time.Hour)
				if n == createCalls { // the index row may be late, and has a guard
					r.clock.Advance(10 * time.Minute)
					should(t, reap(ctx, r, s))
				}
				r.WantRows(1, 1, 1)
				r.WantNoLeak()
				if got := r.metrics.ShortenAliasCollision.Value(); got != 0 {
					t.Errorf("%d collisions, want none", got)
				}
				l.Shared = true
				again, created, err := r.open(nil).Create(ctx, r.want("https://example.com/",
					time.Minute), "")
				if err != nil || created || !storage.Same(again, l) {
					t.Errorf("again: %+v, created %t, %v, want %+v", again, created, err, l)
				}
			})
		}
	}
}

func TestFaultsWhileAStaleIndexRowIsReplaced(t *testing.T) {
	t.Parallel()
	// Calls: read index, read link, insert expiry row, insert link, update index.
	for n := 1; n <= 5; n++ {
		t.Run(fmt.Sprintf("response lost in call %d", n), func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s := r.open(nil)
			old := r.create(s, "https://example.com/", time.Hour)
			index := r.Rows(r.Index)[0]
			index["Note"] = "of another program"
			r.Put(r.Index, index)
			r.clock.Advance(2 * time.Hour)
			r.proxy.Reset()
			r.proxy.Before(faultproxy.Fail(n, faultproxy.DropResponse))
			l := r.create(s, "https://example.com/", time.Hour)
			if got := len(r.proxy.Calls()); got < 6 {
				t.Errorf("%d calls, the fault was not met", got)
			}
			r.WantRows(2, 1, 2)
			r.WantNoLeak()
			if index = r.Rows(r.Index)[0]; index["Alias"] != string(l.Name) ||
				index["Note"] != "of another program" {
				t.Errorf("the index row is %v", index)
			}
			if done, err := s.Reap(ctx); err != nil || done.Deleted != 1 {
				t.Errorf("reaped %+v, %v", done, err)
			}
			if _, err := s.Get(ctx, old.Name); !errors.Is(err, link.ErrNotFound) {
				t.Errorf("the old link: %v", err)
			}
			r.WantRows(1, 1, 1)
		})
	}
}

func TestStorageThatFailsForGoodDuringCreate(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]faultproxy.Fault{
		"responses lost": faultproxy.DropResponse, "connections closed": faultproxy.Refuse,
		"frozen": faultproxy.Freeze,
	} {
		for n := 1; n <= createCalls; n++ {
			t.Run(fmt.Sprintf("%s from call %d on", name, n), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				s := r.open(withCache)
				r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
					if c.N >= n {
						return fault
					}
					return faultproxy.None
				})
				start := time.Now()
				_, _, err := s.Create(hasty, r.want("https://example.com/", time.Hour), "")
				if !errors.Is(err, link.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
				if took := time.Since(start); took > table.Timeout+slack {
					t.Errorf("took %v", took)
				}
				r.proxy.Reset()
				r.WantNoLeak()
				l, _, err := s.Create(ctx, r.want("https://example.com/", 2*time.Hour), "")
				must(t, err)
				if got, err := r.open(nil).Get(ctx, l.Name); err != nil ||
					!storage.Same(got, l) {
					t.Errorf("got %+v, %v, want %+v", got, err, l)
				}
				r.clock.Advance(3 * time.Hour)
				if done, err := s.Reap(ctx); err != nil || done.Failed != 0 {
					t.Errorf("reaped %+v, %v", done, err)
				}
				r.WantRows(0, 0, 0)
			})
		}
	}
}

// The process stands still after a call, for longer than its link would have lived, and meanwhile
// the reaper runs. TestAnOperationThatWasStoppedTooLong has it stand still before a call.
func TestACreateThatWasStoppedTooLongLeavesNothingThatNobodyReaps(t *testing.T) {
	t.Parallel()
	for n := 1; n <= createCalls; n++ {
		t.Run(fmt.Sprintf("after call %d", n), func(t *testing.T) {
			t.Parallel()
			untilRepaired(t, func(r *rig) (check func()) {
				s, reaper := r.open(nil), r.open(nil)
				r.proxy.After(func(c faultproxy.Call) {
					if c.N == n {
						r.clock.Advance(10 * time.Minute)
						should(t, reap(ctx, r, reaper))
					}
				})
				_, _, err := s.Create(ctx, r.want("https://example.com/", time.Minute), "")
				return func() {
					if !errors.Is(err, link.ErrUnavailable) {
						t.Errorf("got %v, want %v", err, link.ErrUnavailable)
					}
					r.proxy.Reset()
					r.WantNoLeak()
					r.clock.Advance(time.Hour)
					should(t, reap(ctx, r, reaper))
					r.WantRows(0, 0, 0)
				}
			})
		})
	}
}

// The process stops in a write for so long that its link has expired and the reaper has been there
// when the write arrives, and then gets no response either.
func TestAWriteThatArrivesMuchTooLateIsRepaired(t *testing.T) {
	t.Parallel()
	for n := 3; n <= createCalls; n++ { // the link, the index row
		t.Run(fmt.Sprintf("call %d", n), func(t *testing.T) {
			t.Parallel()
			untilRepaired(t, func(r *rig) (check func()) {
				s, reaper := r.open(nil), r.open(nil)
				r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
					if c.N != n {
						return faultproxy.None
					}
					r.clock.Advance(10 * time.Minute)
					should(t, reap(ctx, r, reaper))
					// From here on responses are lost, for as long as the SDK tries; what comes
					// after that gets through.
					lost := len(r.proxy.Calls())
					r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
						if c.N <= lost+2 {
							return faultproxy.Refuse
						}
						return faultproxy.None
					})
					return faultproxy.DropResponse
				})
				_, _, err := s.Create(ctx, r.want("https://example.com/", time.Minute), "")
				return func() {
					if !errors.Is(err, link.ErrUnavailable) {
						t.Errorf("got %v, want %v", err, link.ErrUnavailable)
					}
					r.proxy.Reset()
					r.WantNoLeak()
					for range 2 { // an index row that may be late has a guard
						should(t, reap(ctx, r, reaper))
						r.clock.Advance(10 * time.Minute)
					}
					r.WantRows(0, 0, 0)
				}
			})
		})
	}
}

// A write of a create arrives much too late, after a reaper has looked for it. The reaper has found
// no link for an expiry row, and is about to delete that row. Or it is ending the link, and has
// found no row of the index. Found by internal/testing/simulation.
func TestAReaperMeetsAWriteThatArrivesTooLate(t *testing.T) {
	t.Parallel()
	for _, indexed := range []bool{false, true} {
		t.Run(fmt.Sprintf("the index row: %t", indexed), func(t *testing.T) {
			t.Parallel()
			untilRepaired(t, func(r *rig) (check func()) {
				late, deletes := r.Links, r.Expiry
				if indexed {
					late, deletes = r.Index, r.Links
				}
				s, reaper := r.open(nil), r.open(nil)
				reached, goOn := make(chan struct{}), make(chan struct{})
				reaped := make(chan error, 1)
				r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
					switch {
					case c.Operation == "InsertEntity" && c.Target == late:
						r.clock.Advance(10 * time.Minute)
						go func() { reaped <- reap(ctx, r, reaper) }()
						<-reached
					case c.Operation == "DeleteEntity" && c.Target == deletes:
						close(reached)
						<-goOn
					}
					return faultproxy.None
				})
				_, _, err := s.Create(ctx, r.want("https://example.com/", time.Minute), "")
				close(goOn)
				should(t, <-reaped)
				return func() {
					if !errors.Is(err, link.ErrUnavailable) {
						t.Errorf("got %v, want %v", err, link.ErrUnavailable)
					}
					r.proxy.Reset()
					r.WantNoLeak()
					r.clock.Advance(5 * time.Minute) // the guard of the index row is due
					should(t, reap(ctx, r, reaper))
					r.WantRows(0, 0, 0)
				}
			})
		})
	}
}

// A create that was stopped for too long writes its guard although its expiry row gets no response.
// Otherwise the row of the index that it has just written would stay: its link is gone. Found by
// internal/testing/simulation.
func TestTheGuardOfAStoppedCreateDoesNotWait(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, reaper := r.open(nil), r.open(nil)
	r.Make()
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		switch {
		case c.Operation == "InsertEntity" && c.Target == r.Index:
			r.clock.Advance(10 * time.Minute)
			r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
				if c.Operation == "UpdateEntity" && c.Target == r.Expiry {
					return faultproxy.Freeze
				}
				return faultproxy.None
			})
			should(t, reap(ctx, r, reaper))
		}
		return faultproxy.None
	})
	if _, _, err := s.Create(ctx, r.want("https://example.com/", time.Minute), ""); !errors.Is(err,
		link.ErrUnavailable) {
		t.Errorf("got %v, want %v", err, link.ErrUnavailable)
	}
	r.proxy.Reset()
	r.clock.Advance(5 * time.Minute) // the guard is due
	should(t, reap(ctx, r, reaper))
	r.WantNoLeak()
}

// The first try of inserting a link gets stuck on its way, the second one succeeds, another
// instance wins the race for the URL, and when the link has been taken back, the first try arrives.
func TestATryThatArrivesAfterItsLinkWasTakenBack(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, other := r.open(nil), r.open(nil)
	arrive, arrived := make(chan struct{}), make(chan struct{})
	var inserts atomic.Int64
	r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation != "InsertEntity" || c.Target != r.Links {
			return faultproxy.None
		}
		switch inserts.Add(1) {
		case 1:
			<-arrive
			defer close(arrived)
			return faultproxy.DropResponse
		case 2:
			if _, created, err := other.Create(ctx, r.want("https://example.com/", time.Hour),
				""); err != nil || !created {
				t.Errorf("created %t, %v", created, err)
			}
		}
		return faultproxy.None
	})
	if _, created, err := s.Create(hasty, r.want("https://example.com/", 2*time.Hour),
		""); err != nil || created {
		t.Errorf("created %t, %v, want the other's link", created, err)
	}
	close(arrive)
	<-arrived
	r.proxy.Wait()
	r.WantNoLeak()
	r.clock.Advance(3 * time.Hour)
	should(t, reap(ctx, r, s))
	r.WantRows(0, 0, 0)
}

func TestACachedExpiryIsNotBelievedByCreate(t *testing.T) {
	r := newRig(t)
	s := r.open(withCache)
	l := r.create(s, "https://example.com/", 5*time.Minute)
	r.cached(s, l.Name)
	l.ExpiresAt = l.ExpiresAt.Add(time.Hour) // by another hand
	r.PutLink(l)
	r.clock.Advance(6 * time.Minute)
	l.Shared = true
	if got, created, err := s.Create(ctx, r.want("https://example.com/", time.Hour),
		""); err != nil || created || !storage.Same(got, l) {
		t.Errorf("got %+v, created %t, %v, want %+v", got, created, err, l)
	}
}

// What another instance has changed is cached here as it was, for seconds. A create must not go by
// that.
func TestACachedLinkOfAnOwnerIsNotBelievedByCreate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		owner  string // of the link before the change
		change doing
		url    string // that owner a asks for afterwards
		same   bool   // and is given the link
		err    error
	}{
		"edited":     {"a", setURL(url2), url2, true, nil},
		"claimed":    {"", claim("a", false), url1, true, nil},
		"deleted":    {"a", deleteOne, url1, false, nil},
		"moved away": {"a", setURL(url2), url1, false, nil},
		"disabled": {"a", edit(func(_ time.Time, l link.Link) (link.Link, error) {
			l.Disabled = true
			return l, nil
		}),
			url1, false, link.ErrDisabled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			s, other := r.open(withCache), r.other()
			there(test.owner, url1, time.Hour)(r, other)
			r.cached(s, "one")
			must(t, test.change(ctx, r, other))
			l, created, err := s.Create(ctx, r.wish("a", "", test.url, 0), "")
			if !errors.Is(err, test.err) || err == nil &&
				(created == test.same || (l.Name == "one") != test.same) {
				t.Errorf("got %+v, created %t, %v", l, created, err)
			}
		})
	}
}

// The old expiry row of a claimed link goes last: as long as it is there, the reaper mends what the
// claim did not get done.
func TestAClaimThatDidNotEnterTheIndex(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(nil)
	there("", url1, time.Hour)(r, s)
	r.proxy.Before(faultproxy.On("InsertEntity", r.Index, faultproxy.ServerBusy))
	must(t, claim("a", false)(ctx, r, s))
	r.proxy.Reset()
	r.clock.Advance(time.Hour)
	must(t, reap(ctx, r, s))
	if l, created, err := s.Create(ctx, r.wish("a", "", url1, 0), ""); err != nil || created ||
		l.Name != "one" {
		t.Errorf("its owner is given %+v, created %t, %v", l, created, err)
	}
	r.WantNoLeak()
}

func TestACreateThatIsTooLateDoesNotTakeBackWhatOthersWereTold(t *testing.T) {
	r := newRig(t)
	s, other := r.open(nil), r.open(nil)
	var told link.Link
	r.proxy.After(func(c faultproxy.Call) {
		if c.Operation != "InsertEntity" || c.Target != r.Index {
			return
		}
		// The index names the link, and before its own process goes on, another one returns it.
		var created bool
		var err error
		if told, created, err = other.Create(ctx, r.want("https://example.com/", time.Hour),
			""); err != nil || created {
			t.Errorf("created %t, %v", created, err)
		}
		r.clock.Advance(table.Timeout + time.Second)
	})
	if _, _, err := s.Create(ctx, r.want("https://example.com/", time.Hour), ""); !errors.Is(err,
		link.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
	if got, err := other.Get(ctx, told.Name); err != nil || !storage.Same(got, told) {
		t.Errorf("got %+v, %v, want %+v", got, err, told)
	}
	r.WantRows(1, 1, 1)
	r.WantNoLeak()
}

func TestACallerThatHangsUpLeavesNothingHalfDone(t *testing.T) {
	for n := 1; n <= createCalls; n++ {
		r := newRig(t)
		s := r.open(nil)
		gone, hangUp := context.WithCancel(ctx)
		r.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
			if c.N == n {
				hangUp()
			}
			return faultproxy.None
		})
		if _, created, err := s.Create(gone, r.want("https://example.com/", time.Hour),
			""); err != nil || !created {
			t.Errorf("call %d: created %t, %v", n, created, err)
		}
		r.WantRows(1, 1, 1)
	}
}

func TestConcurrentCreatesOnTwoInstances(t *testing.T) {
	r := newRig(t)
	instances := []*storage.Links{r.open(withCache), r.open(withCache)}
	inTime := true // no create can have come to its time limit
	for round := range 3 {
		url := fmt.Sprintf("https://example.com/%d", round)
		start := time.Now()
		teststore.CreateAtOnce(t, 64, func(i int) (link.Link, bool, error) {
			return instances[i%2].Create(ctx, r.want(url, time.Hour), "")
		})
		inTime = inTime && time.Since(start) < table.Timeout
		if index := len(r.Rows(r.Index)); index != round+1 {
			t.Errorf("%d index rows, want %d", index, round+1)
		}
		if inTime { // else what was taken back may be left to the reaper
			r.WantRows(round+1, round+1, round+1)
		}
	}
	r.WantNoLeak()
	r.clock.Advance(2 * time.Hour)
	should(t, reap(ctx, r, instances[0]))
	r.WantRows(0, 0, 0)
}

func TestConcurrentReplacementsOfAStaleIndexRow(t *testing.T) {
	r := newRig(t)
	instances := []*storage.Links{r.open(withCache), r.open(withCache)}
	r.create(instances[0], "https://example.com/", time.Hour)
	r.clock.Advance(2 * time.Hour)
	start := time.Now()
	teststore.CreateAtOnce(t, 32, func(i int) (link.Link, bool, error) {
		if i == 16 {
			should(t, reap(ctx, r, instances[0]))
		}
		return instances[i%2].Create(ctx, r.want("https://example.com/", time.Hour), "")
	})
	inTime := time.Since(start) < table.Timeout
	should(t, reap(ctx, r, instances[1]))
	if inTime {
		r.WantRows(1, 1, 1)
	}
	r.WantNoLeak()
	r.clock.Advance(2 * time.Hour)
	should(t, reap(ctx, r, instances[1]))
	r.WantRows(0, 0, 0)
}

func TestIndexRowsThatNameNoLiveLinkAreReplaced(t *testing.T) {
	for name, alias := range map[string]any{
		"a link that is gone": "nobody", "a link of another URL": "other",
		"no possible alias": "a/b", "nothing": nil, "a damaged link": "broken",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := r.open(withCache)
			r.Put(r.Links, rawtables.Link(link.Link{Name: "other",
				LongURL: "https://example.com/other"}))
			r.Put(r.Links, rawtables.Entity{"PartitionKey": "br", "RowKey": "broken"})
			r.create(s, "https://example.com/", time.Hour)
			index := r.Rows(r.Index)[0]
			index["Alias"] = alias
			r.Put(r.Index, index)
			l := r.create(s, "https://example.com/", time.Hour)
			if index := r.Rows(r.Index); len(index) != 1 || index[0]["Alias"] != string(l.Name) {
				t.Errorf("the index is %v, want %s in it", index, l.Name)
			}
		})
	}
}

func TestACachedNotFoundIsNotBelievedByCreate(t *testing.T) {
	r := newRig(t)
	s, elsewhere := r.open(withCache), r.open(nil)
	if _, err := s.Get(ctx, "theOne"); !errors.Is(err, link.ErrNotFound) {
		t.Fatal(err)
	}
	r.cached(s, "theOne")
	r.create(elsewhere, "https://example.com/", time.Hour)
	// The other instance drew the very alias that this one was asked for.
	row := r.Rows(r.Links)[0]
	r.Drop(r.Links, row)
	row["PartitionKey"], row["RowKey"] = "th", "theOne"
	r.Put(r.Links, row)
	index := r.Rows(r.Index)[0]
	index["Alias"] = "theOne"
	r.Put(r.Index, index)

	got, created, err := s.Create(ctx, r.want("https://example.com/", time.Hour), "")
	if err != nil || created || got.Name != "theOne" {
		t.Errorf("got %+v, created %t, %v, want theOne", got, created, err)
	}
	// Whoever was given the alias here has to be redirected from here.
	if got, err := s.Get(ctx, "theOne"); err != nil || got.LongURL != "https://example.com/" {
		t.Errorf("the cache still says: %+v, %v", got, err)
	}
}

func TestSlowStorageIsNotDown(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(withCache)
	l := r.create(r.open(nil), "https://example.com/", time.Hour)
	r.proxy.Before(func(faultproxy.Call) faultproxy.Fault {
		time.Sleep(3 * time.Second)
		return faultproxy.None
	})
	if got, err := s.Get(hasty, l.Name); err != nil || got.LongURL != l.LongURL {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAnExpiryRowThatIsThereMakesItsAliasTaken(t *testing.T) {
	r := newRig(t)
	r.config.Random = draws("aaaaaa", "aaaaaa", "bbbbbb")
	s := r.open(nil)
	first := r.create(s, "https://example.com/1", time.Hour)
	// Only the expiry row is left, as of a create on another instance that has not come to its link
	// yet.
	r.Drop(r.Links, rawtables.Link(first))
	second := r.create(s, "https://example.com/2", time.Hour) // for the same second
	if second.Name == first.Name {
		t.Errorf("%s was given to a second link", first.Name)
	}
	if got := r.metrics.ShortenAliasCollision.Value(); got != 1 {
		t.Errorf("%d collisions, want 1", got)
	}
	r.WantRows(1, 2, 2)
}

func TestTablesAreMadeWhenTheyAreMissing(t *testing.T) {
	r := newRig(t)
	s, err := storage.Open(r.config)
	must(t, err)
	if _, err := s.Get(ctx, "nobody"); !errors.Is(err, link.ErrNotFound) {
		t.Errorf("before there is a table: %v", err)
	}
	if done, err := s.Reap(ctx); err != nil || !done.Complete {
		t.Errorf("reaped %+v, %v", done, err)
	}
	l := r.create(s, "https://example.com/", time.Hour)
	r.Remove()
	if done, err := s.Reap(ctx); err != nil || !done.Complete {
		t.Errorf("reaped %+v, %v", done, err)
	}
	if _, err := s.Get(ctx, l.Name); !errors.Is(err, link.ErrNotFound) {
		t.Errorf("the table was deleted: %v", err)
	}
	r.create(s, "https://example.com/", time.Hour)
	if err := s.EnsureTables(ctx); err != nil {
		t.Errorf("making what is there: %v", err)
	}
}

func TestATableThatIsBeingDeleted(t *testing.T) {
	r := newRig(t)
	s, err := storage.Open(r.config)
	must(t, err)
	for _, operation := range []string{"CreateTable", ""} { // "": calls for its rows, too
		r.proxy.Before(faultproxy.On(operation, "", faultproxy.BeingDeleted))
		if _, err := s.Get(ctx, "nobody"); !errors.Is(err, link.ErrUnavailable) ||
			errors.Is(err, link.ErrNotFound) {
			t.Errorf("get: %v", err)
		}
		if _, _, err := s.Create(ctx, r.want("https://example.com/", time.Hour), ""); !errors.Is(
			err, link.ErrUnavailable) {
			t.Errorf("create: %v", err)
		}
		if _, err := s.Reap(ctx); !errors.Is(err, link.ErrUnavailable) {
			t.Errorf("reap: %v", err)
		}
	}
	r.proxy.Reset()
	r.create(s, "https://example.com/", time.Hour)
}

func TestNobodyWaitsLongerForATableThanForARow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s, err := storage.Open(r.config)
	must(t, err)
	r.proxy.Before(faultproxy.On("CreateTable", "", faultproxy.Freeze))
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			time.Sleep(time.Duration(2*i) * time.Second)
			start := time.Now()
			if _, err := s.Get(hasty, "nobody"); !errors.Is(err, link.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
			if took := time.Since(start); took > table.Timeout+slack {
				t.Errorf("took %v", took)
			}
		})
	}
	all.Wait()
}

func TestCheck(t *testing.T) {
	r := newRig(t)
	s := r.open(nil)
	should(t, s.Ping(ctx))
	r.proxy.Before(faultproxy.On("", r.Index, faultproxy.Refuse))
	if err := s.Ping(ctx); !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("one table fails: %v", err)
	}
}

func TestNoStorage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(withCache)
	for name, fault := range map[string]faultproxy.Fault{
		"closed": faultproxy.Refuse, "frozen": faultproxy.Freeze, "busy": faultproxy.ServerBusy,
	} {
		t.Run(name, func(t *testing.T) {
			r.proxy.Before(func(faultproxy.Call) faultproxy.Fault { return fault })
			start := time.Now()
			_, err := s.Get(hasty, "nobody")
			if !errors.Is(err, link.ErrUnavailable) || errors.Is(err, link.ErrNotFound) {
				t.Errorf("got %v", err)
			}
			if strings.Contains(err.Error(), "127.0.0.1") && strings.Contains(err.Error(),
				"http://") {
				t.Errorf("%q quotes a URL", err)
			}
			if took := time.Since(start); took > table.Timeout+slack {
				t.Errorf("took %v", took)
			}
		})
	}
}

// Cached returns live links only, and makes no call for any.
func TestWhatIsCached(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	s := r.open(withCache)
	live, short := r.create(s, "https://example.com/live", 24*time.Hour),
		r.create(s, "https://example.com/short", time.Minute)
	other := r.create(r.other(), "https://example.com/other", time.Hour)
	if _, err := s.Get(ctx, "nobody"); !errors.Is(err, link.ErrNotFound) {
		t.Error(err)
	}
	cached := func(store *storage.Links, a link.Name, want bool) {
		t.Helper()
		before := len(r.proxy.Calls())
		l, ok := store.Cached(ctx, a, false)
		if made := r.proxy.Calls()[before:]; ok != want || ok && l.Name != a || len(made) != 0 {
			t.Errorf("%s: got %+v, %t, by the calls %v, want %t", a, l, ok, made, want)
		}
	}
	s.WaitForCache()
	cached(s, live.Name, true)
	cached(s, short.Name, true)
	cached(s, other.Name, false)
	cached(s, "nobody", false)
	cached(r.instance(), live.Name, false) // which has no cache
	r.clock.Advance(time.Minute)
	cached(s, short.Name, false)
	r.clock.Advance(withCache.Fresh - time.Minute - time.Second)
	cached(s, live.Name, true)
	r.clock.Advance(time.Second)
	cached(s, live.Name, false)
	if l, ok := s.Cached(ctx, live.Name, true); !ok || l.LongURL != live.LongURL {
		t.Errorf("stale, got %+v, %t", l, ok)
	}
	if l, ok := s.Cached(ctx, short.Name, true); ok {
		t.Errorf("expired and stale, got %+v", l)
	}
	if _, err := s.Get(ctx, live.Name); err != nil {
		t.Error(err)
	}
	s.WaitForCache()
	cached(s, live.Name, true)
	if _, err := s.Edit(ctx, live.Name, false, func(l link.Link) (link.Link, error) {
		return l.Deleted(link.Actor{Admin: true}, r.clock.Now())
	}); err != nil {
		t.Error(err)
	}
	cached(s, live.Name, false)
}
