//go:build unix

package simulation

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"tiney/internal/clicks"
	"tiney/internal/testing/rawtables"
	"tiney/storage"
)

// settle ends all faults, checks what the round has left, ends all links and checks again.
func (r *round) settle() {
	for _, n := range r.nodes {
		n.clean.Store(true)
	}
	for _, n := range r.nodes {
		if status, body := n.control("idle"); status != 200 {
			r.violation("a node does not come to rest: %d %s", status, body)
		}
		n.proxy.Wait()
	}
	r.unblock()
	// After that, cached entries are not trusted any more.
	r.advance(2 * time.Minute)
	// If a link was renewed while the reaper was about to end it, and storage failed at that
	// moment, the rows that lead to it may be lost. The next run writes them again.
	if status, body := r.nodes[0].control("reap"); status != 200 {
		r.violation("the reaper fails although all is well: %d %s", status, body)
	}
	r.succeed()
	known := r.agree()
	r.checkClicks()
	for _, n := range r.nodes {
		if n.sim != nil {
			break
		}
		// There are a few goroutines for each connection. Requests that hang would leave hundreds
		// over a round.
		_, body := n.control("goroutines")
		if left, err := strconv.Atoi(body); err != nil || left > 150 {
			r.violation("%s goroutines are left at rest", body)
		}
	}
	r.settled = slices.Clone(r.history)
	r.rollUp()
	r.end(known)
	r.tables.Remove()
}

// check checks the history of a settled round.
func (r *round) check() {
	history := r.settled
	history = append(history, r.births(history)...)
	history = append(history, attempts(history)...)
	r.checkTimes(history)
	r.checkLists(history)
	r.checkKeys()
	r.checkHosts(history)
	r.checkLinks(history)
	r.checkSlots(history)
}

// succeed checks that all writes succeed. The models accept a 503, even from each request.
func (r *round) succeed() {
	r.importShared()
	for i, k := range r.lastKeys() {
		n := r.nodes[i%len(r.nodes)]
		made := r.shorten(n, nil, r.url(urls+i), "", n.clock().Add(time.Hour).Unix())
		a := made.told.alias
		r.mu.Lock()
		token := r.tokens[a]
		r.mu.Unlock()
		claim := about("claim", k, a)
		claim.token, claim.change.owner = true, new(k.acts())
		got := r.do(&claim, n, k, "POST", "/api/claims", k.to(map[string]any{"claims": []any{
			r.in(map[string]any{"alias": a, "claimToken": token})}}))
		if len(got.Results) == 1 {
			claim.problem = got.Results[0].Result
		}
		r.record(claim)
		edit := about("edit", k, a)
		edit.change.title = new("the last title")
		r.do(&edit, n, k, "PATCH", "/api/links/"+a, map[string]any{"title": "the last title"})
		r.record(edit)
		r.openOut(i, k, a)
		deleted := r.delete(n, k, a)
		restored := r.restore(n, k, a)
		given := about("edit", admin, a)
		given.change.owner = &r.owners[0]
		r.do(&given, n, admin, "PATCH", "/api/links/"+a, map[string]any{"owner": r.owners[0]})
		r.record(given)
		past := r.past(n, admin, a, false)
		rng := random(1, uint64(i))
		for _, e := range slices.Concat(r.bulk(n, k, rng), r.importFile(n, k, rng)) {
			if !e.known() {
				r.violation("%v, although all is well", e)
			}
		}
		if made.status != 201 || claim.problem != "claimed" || edit.status != 200 ||
			deleted.status != 204 || restored.status != 200 || given.status != 200 ||
			past.status != 200 {
			r.violation("not all succeeds although all is well:\n%s",
				text([]event{made, claim, edit, deleted, restored, given, past}))
		}
	}
}

// openOut checks that a link leads exactly as often as its owner has said, whichever node is asked,
// and gets its end back.
func (r *round) openOut(i int, k *key, a string) {
	const opens = 3
	of := func(n int) *node { return r.nodes[(i+n)%len(r.nodes)] }
	all := []event{r.setMaxOpens(of(0), k, a, opens)}
	want := []int{200}
	for n := range opens + 1 {
		all = append(all, r.open(of(n), a))
		want = append(want, 303)
	}
	want[len(want)-1] = 410
	for range r.nodes {
		all = append(all, r.follow(of(len(all)), a))
		want = append(want, 410)
	}
	all = append(all, r.setMaxOpens(of(1), k, a, 1), r.follow(of(2), a), r.setMaxOpens(of(0), k, a, 0))
	want = append(want, 200, 403, 200)
	for n, e := range all {
		if e.status != want[n] {
			r.violation("openings are not counted, although all is well:\n%s", text(all))
			return
		}
	}
}

// importShared imports a link without an owner of a URL that has none. Shorten has to give it. The
// model of a URL does not know in most rounds whether the place in the index was free.
func (r *round) importShared() {
	n, url, end := r.nodes[0], r.url(9), r.nodes[0].clock().Add(time.Hour).Unix()
	e := event{op: "import", alias: r.chosen(9), change: change{url: &url, end: &end}}
	line, _ := json.Marshal(r.in(map[string]any{"alias": e.alias, "longUrl": url,
		"expiresAtUtc": time.Unix(end, 0).UTC()}))
	call := event{alias: e.alias}
	events := []event{e}
	got := r.do(&call, n, admin, "POST", "/api/import", string(line))
	r.results(call, got, events)
	given := r.shorten(n, nil, url, "", end)
	if events[0].status != 201 || given.status != 200 || given.told.alias != e.alias {
		r.violation("shorten does not give the link that was imported:\n%s",
			text([]event{events[0], given}))
	}
}

// unblock ends the blocks of all hosts.
func (r *round) unblock() {
	n := r.nodes[0]
	for _, host := range hosts {
		if e := r.block(n, "unblock", host); e.status != 204 && e.status != 404 {
			r.violation("%v, although all is well", e)
		}
	}
	if e := r.listHosts(n); e.status != 200 || e.listed != nil {
		r.violation("%v, although all hosts are free", e)
	}
}

func (r *round) advance(by time.Duration) {
	if r.sim != nil {
		r.sim.jump(by)
		return
	}
	for _, n := range r.nodes {
		n.advance(by)
	}
}

// agree checks that all nodes agree on everything that exists, and returns the aliases.
func (r *round) agree() []string {
	all := r.lastKeys()
	for _, k := range all {
		for _, n := range r.nodes {
			if _, complete := r.list(n, k); !complete {
				r.violation("the links of %s cannot be listed although all is well", k.owner)
			}
		}
	}
	// Rows of lists that lead nowhere are young: see end.
	for _, leak := range r.tables.Leaks(storage.ListedWithoutLink) {
		r.violation("%s", leak)
	}
	// The repair ends what crashes have left to the reaper.
	_, _ = r.nodes[0].control("check")
	for _, left := range r.tables.Check(storage.ListedWithoutLink) {
		r.violation("after a repair: %s", left)
	}
	// Each URL gets a link, has one, or is reported as disabled. The result is the same from every
	// node.
	for u := range urls {
		for _, k := range append(all, nil) {
			told := map[string]bool{}
			from := r.earliest()
			for _, n := range r.nodes {
				e := r.shorten(n, k, r.url(u), "", n.clock().Add(time.Hour).Unix())
				if !e.known() {
					r.violation("%v, although all is well", e)
				}
				told[fmt.Sprint(e.told.alias, e.status == 403)] = true
			}
			// A link that ends just now is still live for nodes whose clocks are behind.
			if len(told) != 1 && !r.endsBetween(r.url(u), from, r.latest()) {
				r.violation("the nodes do not agree on the alias of %s: %v", r.url(u), told)
			}
		}
	}
	r.mu.Lock()
	known := slices.Clone(r.aliases)
	r.mu.Unlock()
	listed := map[string]bool{}
	for _, k := range all {
		items, _ := r.list(r.nodes[0], k)
		for _, item := range items {
			listed[item.Alias] = true
		}
	}
	for _, a := range known {
		for _, n := range r.nodes {
			if e := r.follow(n, a); !e.known() {
				r.violation("%v, although all is well", e)
			}
		}
		e := r.read(r.nodes[0], admin, a)
		if e.status != 200 && e.status != 404 {
			r.violation("%v, although all is well", e)
		}
		if want := e.told.owner != "" && e.told.deleted == 0; want != listed[a] {
			r.violation("%+v is listed: %t", e.told, listed[a])
		}
		if past := r.past(r.nodes[0], admin, a, true); past.status != e.status {
			r.violation("%v, and its history: %d", e, past.status)
		}
	}
	r.guardless()
	for _, left := range r.tables.Check(storage.ListedWithoutLink) {
		r.violation("when all guards have ended: %s", left)
	}
	return known
}

// guardless lets all guards end.
func (r *round) guardless() {
	for range 2 { // a reaper may have renewed a guard
		r.advance(3 * time.Minute)
		if status, body := r.nodes[0].control("reap"); status != 200 {
			r.violation("the reaper fails although all is well: %d %s", status, body)
		}
	}
}

// endsBetween reports whether a link of a URL ends between two times.
func (r *round) endsBetween(url string, from, until time.Time) bool {
	return slices.ContainsFunc(r.tables.Rows(r.tables.Links), func(row rawtables.Entity) bool {
		text, _ := row["ExpiresAtUtc"].(string)
		end, err := time.Parse(time.RFC3339, text)
		return err == nil && row["LongUrl"] == url && !end.Before(from) && !end.After(until)
	})
}

// lastKeys returns a valid key of each owner.
func (r *round) lastKeys() []*key {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := []*key{admin}
	for _, owner := range r.owners {
		keys = append(keys, r.keys[owner][len(r.keys[owner])-1])
	}
	return keys
}

// end ends all links and keys, and checks whether anything is left when their time has passed.
func (r *round) end(known []string) {
	n := r.nodes[0]
	var live []string // the others' tombstones are over
	for _, a := range known {
		if e := r.read(n, admin, a); e.status == 200 && e.told.deleted == 0 {
			live = append(live, a)
		}
	}
	for _, k := range r.lastKeys() {
		items, _ := r.list(n, k)
		for _, item := range items {
			if e := r.delete(n, k, item.Alias); e.status != 204 && !(e.problem == "link-shared" &&
				item.Shared || e.problem == "link-locked" && item.Locked) {
				r.violation("%v: its owner cannot delete it", e)
			}
		}
	}
	for _, a := range known {
		if e := r.delete(n, admin, a); e.status != 204 && e.status != 404 {
			r.violation("%v: the admin cannot delete it", e)
		}
	}
	reap := func() {
		for _, n := range r.nodes {
			if status, body := n.control("reap"); status != 200 {
				r.violation("reap: %d %s", status, body)
			}
		}
	}
	look := func(aliases []string, when string, want int) {
		for i, a := range aliases {
			var e event
			if r.do(&e, r.nodes[i%len(r.nodes)], nil, "GET", "/"+a, nil); e.status != want {
				r.violation("%s, %s: got %d, want %d", a, when, e.status, want)
			}
		}
	}
	r.advance(2 * time.Hour)
	reap()
	look(live, "a tombstone", 410)
	for _, k := range r.lastKeys() {
		r.list(n, k) // this deletes rows that lead nowhere
	}
	var e event
	for _, item := range r.do(&e, n, admin, "GET", "/api/keys", nil).Items {
		if status := r.revoke(n, admin, &key{id: item.ID}); status != 204 {
			r.violation("a key cannot be revoked: %d", status)
		}
	}
	r.advance(48 * time.Hour)
	reap()
	look(known, "forgotten", 404)
	for _, table := range []string{r.tables.Links, r.tables.Index, r.tables.Expiry, r.tables.Owners,
		r.tables.Keys, r.tables.State, r.tables.ClickTotals} {
		for _, row := range r.tables.Rows(table) {
			if name := row["RowKey"].(string); row["PartitionKey"] == "rollup" ||
				name == clicks.All || strings.HasPrefix(name, "@") {
				continue // how far the roll-up is, and the totals of several links together
			}
			r.violation("left in %s when all was over: %v", table, row)
		}
	}
}

// rollUp lets time pass until all days so far can be rolled up. Then it rolls them up by two nodes
// at once, and checks the totals.
func (r *round) rollUp() {
	saved := r.saved()
	r.advance(49 * time.Hour)
	var all sync.WaitGroup
	for _, n := range r.nodes[:min(2, len(r.nodes))] {
		all.Go(func() {
			if status, body := n.control("rollup"); status != 200 {
				r.violation("the roll-up fails although all is well: %d %s", status, body)
			}
		})
	}
	all.Wait()
	r.checkTotals(saved)
}

// hashSeed makes hashes of states of the models.
var hashSeed = maphash.MakeSeed()

// linearizable checks the history of one object against its model.
func (r *round) linearizable(model porcupine.NondeterministicModel, history []porcupine.Operation,
	of string, events func() []event) {
	model.Hash = func(state any) uint64 { return maphash.Comparable(hashSeed, state) }
	switch porcupine.CheckOperationsTimeout(model.ToModel(), history, 20*time.Second) {
	case porcupine.Illegal:
		r.violation("this is not the history of %s:\n%s", of, text(events()))
	case porcupine.Unknown:
		// Many requests of unknown outcome have too many orders to try all of them.
		r.count.unchecked.Add(1)
	}
}
