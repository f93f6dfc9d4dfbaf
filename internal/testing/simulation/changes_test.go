//go:build unix

package simulation

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/testutil"
)

// Within 15 seconds after a link is disabled on one process, it is gone on the others. Within the
// same time after an alias is made, it leads somewhere, even if it was requested before in vain.
// Both hold in each of 1,000 cases, whether or not the others had it cached, while all of them are
// busy.
func TestChangesArriveAtLoad(t *testing.T) {
	testutil.NotShort(t)
	t.Parallel()
	r, end := newRound(t, setup{nodes: 3, env: []string{"NODE_CHANGES=5"}}) // the default
	defer end()
	const disabled, made = 900, 100
	r.tables.PutMany(disabled, time.Now().Add(time.Hour))
	var aliases []string
	for i := range disabled {
		aliases = append(aliases, fmt.Sprintf("due%07d", i))
		// The event is the one that the link's maker would record.
		e := event{op: "shorten", status: 201,
			change: change{url: new(fmt.Sprintf("https://example.com/%d", i)), end: new(int64)},
			birth:  true}
		e.told.alias = aliases[i]
		r.record(e)
	}
	for i := range made {
		aliases = append(aliases, fmt.Sprintf("new%07d", i))
	}
	writer, others := r.nodes[0], r.nodes[1:]
	var busy atomic.Bool
	busy.Store(true)
	var load, writes sync.WaitGroup
	for i := range 2 * len(others) {
		load.Go(func() {
			for n := 0; busy.Load(); n++ {
				// The clients request only every second alias. Nobody requests the others until
				// they have changed.
				if a := n % len(aliases); a%2 == 0 {
					r.follow(others[i%len(others)], aliases[a])
				}
			}
		})
	}
	time.Sleep(time.Second) // the followed ones are cached then
	next := make(chan string)
	for range 4 {
		writes.Go(func() {
			for a := range next {
				var e event
				for !e.known() { // on a busy machine, a request may take longer than its limit
					if a[:3] == "new" {
						e = r.shorten(writer, nil, "https://example.com/"+a, a,
							time.Now().Add(time.Hour).Unix())
						continue
					}
					e = about("edit", admin, a)
					e.change.disabled = new(true)
					r.do(&e, writer, admin, "PATCH", "/api/links/"+a,
						map[string]any{"disabled": true})
					r.record(e)
				}
			}
		})
	}
	for _, i := range random(1, 1).Perm(len(aliases)) {
		next <- aliases[i]
	}
	close(next)
	writes.Wait()
	last := time.Now()
	time.Sleep(trusted - time.Since(last))
	busy.Store(false)
	load.Wait()
	for _, n := range others {
		for _, a := range aliases {
			want := 410
			if a[:3] == "new" {
				want = 302
			}
			for e := r.follow(n, a); e.status != want; e = r.follow(n, a) {
				if e.since(a) != 0 { // otherwise the machine is too busy for any promise
					t.Errorf("%v, at last", e)
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
	// This checks each request, including those before the last ones.
	r.checkTimes(r.history)
	for _, v := range r.violations[:min(len(r.violations), 5)] {
		t.Error(v)
	}
	t.Logf("%d changes in %d requests", len(aliases), r.count.requests.Load())
}

// If a process cannot ask what others have changed, because its calls fail or nobody responds, it
// asks the table for each link that it has cached. It makes exactly one call for each request.
func TestNoPollMeansReads(t *testing.T) {
	for name, fault := range map[string]faultproxy.Fault{"refused": faultproxy.Refuse,
		"frozen": faultproxy.Freeze} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, end := newRound(t, setup{nodes: 2, env: []string{"NODE_CHANGES=10"}})
			defer end()
			writer, other := r.nodes[0], r.nodes[1]
			var aliases []string
			for i := range 20 {
				aliases = append(aliases, r.shorten(writer, nil, r.url(i), "",
					time.Now().Add(time.Hour).Unix()).told.alias)
			}
			calls := func(operation, table string) int {
				return len(slices.DeleteFunc(other.proxy.Calls(), func(c faultproxy.Call) bool {
					return c.Operation != operation || c.Target != table
				}))
			}
			follow := func(when string, reads int, want func(i int) int) {
				t.Helper()
				before := calls("GetEntity", r.tables.Links)
				for i, a := range aliases {
					if e := r.follow(other, a); e.status != want(i) {
						t.Errorf("%s, link %d: %v, want %d", when, i, e, want(i))
					}
				}
				if got := calls("GetEntity", r.tables.Links) - before; got != reads {
					t.Errorf("%s: %d calls for %d links, want %d", when, got, len(aliases), reads)
				}
			}
			live := func(int) int { return 302 }
			follow("at first", len(aliases), live)
			follow("cached", 0, live)
			other.proxy.Before(faultproxy.On("QueryEntities", r.tables.State, fault))
			r.advance(trusted + time.Second)
			follow("without polls", len(aliases), live)
			follow("still without polls", len(aliases), live)
			for i := 0; i < len(aliases); i += 2 {
				if e := r.delete(writer, admin, aliases[i]); e.status != 204 {
					t.Errorf("%v", e)
				}
			}
			changed := func(i int) int { return 302 + (1-i%2)*(410-302) }
			follow("changed", len(aliases), changed)
			// A poll is tried a few times, and then not tried again for a while.
			if polls := calls("QueryEntities", r.tables.State); polls > len(aliases) {
				t.Errorf("%d polls for %d requests", polls, 3*len(aliases))
			}
			other.proxy.Before(nil)
			for range 100 { // the first request may wait for a frozen poll
				r.advance(trusted + time.Second)
				before := calls("GetEntity", r.tables.Links)
				if r.follow(other, aliases[1]); calls("GetEntity", r.tables.Links) == before {
					break
				}
			}
			follow("with polls", len(aliases)/2, changed) // deleted links are never cached
		})
	}
}
