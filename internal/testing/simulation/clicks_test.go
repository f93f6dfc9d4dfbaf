//go:build unix

package simulation

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/testutil"
)

// browser is the User-Agent that all clients send.
const browser = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"

// run is one process of a node, from its start to its end. It has the redirects that clients got
// from it, by alias.
type run struct {
	killed atomic.Bool

	mu       sync.Mutex
	answered map[string]int64
	unknown  map[string]int64 // requests without a response
	flushed  map[string]int64 // those answered before a flush began that saved all of them
}

func (r *round) newRun() *run {
	n := &run{answered: map[string]int64{}, unknown: map[string]int64{},
		flushed: map[string]int64{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs = append(r.runs, n)
	return n
}

// clicked records the response to a GET of an alias. A status of 0 means no response.
func (n *run) clicked(alias string, status int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case status == 0:
		n.unknown[alias]++
	case 300 <= status && status < 400:
		n.answered[alias]++
	}
}

// flush makes a node save its counts, and reports whether it succeeded.
func (n *node) flush() bool {
	run := n.run.Load()
	run.mu.Lock()
	answered := maps.Clone(run.answered)
	run.mu.Unlock()
	status, _ := n.control("flush")
	if status != 200 || n.run.Load() != run {
		return false
	}
	run.mu.Lock()
	defer run.mu.Unlock()
	run.flushed = answered
	return true
}

// checkClicks saves the counts of all nodes, which must be at rest, and checks them. A click that
// was answered is counted exactly once, unless its process was killed before its next flush. A
// click without a response is counted at most once.
func (r *round) checkClicks() {
	for _, n := range r.nodes {
		if !n.flush() {
			r.violation("a node cannot save its counts although all is well")
			return
		}
	}
	most, least := map[string]int64{}, map[string]int64{}
	add := func(to map[string]int64, counts map[string]int64) {
		for alias, n := range counts {
			to[alias] += n
			to["*"] += n // all links together; the service counts them separately
		}
	}
	for _, run := range r.runs {
		add(most, run.answered)
		add(most, run.unknown)
		if run.killed.Load() {
			add(least, run.flushed)
		} else {
			add(least, run.answered)
		}
	}
	saved, owners := r.saved(), int64(0)
	for alias, n := range saved {
		if strings.HasPrefix(alias, "@") { // all links of an owner together
			owners += n
		} else if n > most[alias] {
			r.violation("%d clicks of %s were saved, of at most %d", n, alias, most[alias])
		}
	}
	if owners > most["*"] {
		r.violation("%d clicks of owners were saved, of at most %d of all", owners, most["*"])
	}
	for alias, n := range least {
		if saved[alias] < n {
			r.violation("%d clicks of %s were saved, of at least %d", saved[alias], alias, n)
		}
	}
	r.count.clicks.Add(saved["*"])
	r.count.lost.Add(most["*"] - saved["*"])
}

// saved returns the clicks in the tables of days, by alias, owner, and "*".
func (r *round) saved() map[string]int64 {
	saved := map[string]int64{}
	for name, days := range r.tables.Clicked() {
		for _, c := range days {
			saved[name] += c.Clicks
		}
	}
	return saved
}

// checkTotals checks that the roll-up has moved what was saved to the totals and to the months, and
// that no table of a day is left. A link that is gone has neither.
func (r *round) checkTotals(saved map[string]int64) {
	want, totals, months := map[string]int64{}, map[string]int64{}, map[string]int64{}
	live := map[string]bool{}
	for _, row := range r.tables.Rows(r.tables.Links) {
		live[row["RowKey"].(string)] = row["GoneReason"] == nil
	}
	for name, n := range saved {
		if live[name] || name == clicks.All || strings.HasPrefix(name, "@") {
			want[name] = n
		}
	}
	for _, row := range r.tables.Rows(r.tables.ClickTotals) {
		totals[row["RowKey"].(string)], _ = strconv.ParseInt(row["Clicks"].(string), 10, 64)
	}
	for name, days := range r.tables.Monthly() {
		for _, n := range days {
			months[name] += n
		}
	}
	if !maps.Equal(want, totals) || !maps.Equal(want, months) {
		r.violation("the totals are %v, the months have %v, and the days had %v", totals, months,
			want)
	}
	if days, _ := r.tables.ClickTables(); len(days) > 0 {
		r.violation("these days are left: %v", days)
	}
}

// Three processes count clicks on a few links and roll them up. Meanwhile, their calls fail or
// arrive late, and the processes are killed and stopped.
func TestClicksAreExact(t *testing.T) {
	testutil.NotShort(t)
	t.Parallel()
	const links = 5
	var c tally
	seed := uint64(time.Now().UnixNano())
	r, end := newRound(t, setup{nodes: 3, count: &c, seed: seed})
	defer end()
	r.tables.PutMany(links, time.Now().Add(100*time.Hour))
	for _, n := range r.nodes {
		n.clean.Store(false)
		n.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
			if f := n.fault(c); f != faultproxy.None || c.Rows == 0 || n.clean.Load() {
				return f
			}
			switch c.N % 5 { // few calls write counts, so more of them fail
			case 0:
				return faultproxy.DropResponse
			case 1:
				return faultproxy.Refuse
			case 2:
				// The call arrives after another try was made, or after the process was killed.
				time.Sleep(2 * time.Second)
			}
			return faultproxy.None
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	var clients, trouble sync.WaitGroup
	trouble.Go(func() { r.makeTrouble(ctx, random(seed, 0), kindsNow) })
	for i := range 6 {
		clients.Go(func() {
			for rng, until := random(seed, uint64(1+i)),
				time.Now().Add(*duration); time.Now().Before(until); {
				n := pick(rng, r.nodes)
				if n.down.Load() {
					continue
				}
				r.follow(n, fmt.Sprintf("due%07d", rng.IntN(links)))
				time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
			}
		})
	}
	clients.Wait()
	stop()
	trouble.Wait()
	rest := func() {
		for _, n := range r.nodes {
			n.clean.Store(true)
			if status, body := n.control("idle"); status != 200 {
				t.Errorf("a node does not come to rest: %d %s", status, body)
			}
			n.proxy.Wait()
		}
	}
	rest()
	r.checkClicks()
	saved := r.saved()
	r.advance(49 * time.Hour) // the day ended long enough ago
	ctx, stop = context.WithCancel(context.Background())
	for _, n := range r.nodes {
		n.clean.Store(false)
		clients.Go(func() {
			for range 5 {
				c.rollUps.Add(1)
				n.control("rollup")
			}
		})
	}
	trouble.Go(func() { r.makeTrouble(ctx, random(seed, 10), kindsNow) })
	clients.Wait()
	stop()
	trouble.Wait()
	rest()
	if status, body := r.nodes[0].control("rollup"); status != 200 {
		t.Errorf("the roll-up fails although all is well: %d %s", status, body)
	}
	r.checkTotals(saved)
	for _, v := range r.violations {
		t.Error(v)
	}
	t.Log(&c)
}
