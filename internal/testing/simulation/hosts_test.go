//go:build unix

package simulation

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
)

// hosts are those that the admin blocks in some rounds: that of the URL that is shortened most, and
// one above the hosts of all URLs.
var hosts = []string{"0.example.com", "example.com"}

// covers reports whether a block of a host holds for a URL.
func covers(host, longURL string) bool {
	of, _, _ := strings.Cut(strings.TrimPrefix(longURL, "https://"), "/")
	return of == host || strings.HasSuffix(of, "."+host)
}

// block blocks a host, or ends that.
func (r *round) block(n *node, op, host string) event {
	e := event{op: op, by: admin.owner, alias: host}
	method := map[string]string{"block": "PUT", "unblock": "DELETE"}[op]
	r.do(&e, n, admin, method, "/api/blocked/"+host, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts = append(r.hosts, e)
	return e
}

// listHosts lists the hosts that are blocked.
func (r *round) listHosts(n *node) event {
	e := event{op: "blocked", by: admin.owner}
	for _, item := range r.do(&e, n, admin, "GET", "/api/blocked", nil).Items {
		e.listed = append(e.listed, item.Host)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts = append(r.hosts, e)
	return e
}

// changeHosts sometimes blocks a host, and ends that soon. It reports whether it did anything.
func (r *round) changeHosts(n *node, rng *rand.Rand) bool {
	op, host := "", pick(rng, hosts)
	r.mu.Lock()
	for _, e := range r.hosts {
		if e.alias == host && e.op != "blocked" {
			op = e.op
		}
	}
	r.mu.Unlock()
	switch p := rng.IntN(40); {
	case p == 0:
		r.listHosts(n)
	case p < 6 && op == "block":
		r.block(n, "unblock", host)
	case p < 3:
		r.count.blocks.Add(1)
		r.block(n, "block", host)
		// The node knows that at once. Other edits seldom come while a host is blocked.
		a := r.someAlias(rng)
		r.follow(n, a) // so that the edit begins later than the block has ended
		e := about("edit", admin, a)
		e.change.url = new(r.url(0))
		r.do(&e, n, admin, "PATCH", "/api/links/"+a, map[string]any{"longUrl": r.url(0)})
		r.record(e)
	default:
		return false
	}
	return true
}

// blocks returns what was done to a host. A write whose response was lost may be applied once more,
// much later: then a host is blocked although somebody has ended that since. Where a node cannot
// ask others, only the same process knows what it has written.
func (r *round) blocks(host string, e event, since int64) []write[bool] {
	all := []write[bool]{{value: false, call: math.MinInt64, ret: math.MinInt64}}
	for _, h := range r.hosts {
		if h.alias != host || h.op == "blocked" || h.known() && h.status >= 300 {
			continue
		}
		w := write[bool]{h.op == "block", h.call, h.done(), h.node, false}
		if since == 0 && (h.run != e.run || e.run == nil) {
			w.node = nil
		}
		all = append(all, w)
		if h.node.failedBetween(h.call, h.ret+1e9, stateWrites) {
			w.ret, w.perhaps = math.MaxInt64, true
			all = append(all, w)
		}
	}
	return all
}

// blocked reports whether a request may find the host of a URL blocked, and whether it must. A node
// knows what has happened 15 seconds before.
func (r *round) blocked(longURL string, e event) (may, must bool) {
	since := e.since(stateReads)
	for _, host := range hosts {
		if covers(host, longURL) {
			values := possible(r.blocks(host, e, since), e, since)
			may = may || slices.Contains(values, true)
			must = must || !slices.Contains(values, false)
		}
	}
	return may, must
}

// checkHosts checks what was said about blocked hosts, and that no link was made to one. Edits are
// checked with their links.
func (r *round) checkHosts(history []event) {
	times := timelines(history)
	for _, e := range r.hosts {
		for _, host := range hosts {
			values := possible(r.blocks(host, e, e.call), e, e.call) // that is what the table has
			listed := slices.Contains(e.listed, host)
			if e.op == "blocked" && e.status == 200 && !slices.Contains(values, listed) ||
				e.alias == host && e.status == 404 && !slices.Contains(values, false) {
				r.violation("%v: that is not what was done to %s:\n%s", e, host, text(r.hosts))
			}
		}
	}
	for _, e := range slices.Concat(history, r.refused) {
		blocked := strings.HasSuffix(e.problem, "-blocked")
		var urls []string
		switch e.op {
		case "shorten", "import", "dry run":
			if blocked || (e.status == 200 || e.status == 201) && !e.birth {
				urls = append(urls, *e.change.url)
			}
		case "follow", "open":
			if blocked {
				urls = possible(times[e.alias].url, e, e.since(e.alias, partition(e.alias)))
			} else if e.target != "" {
				urls = append(urls, e.target)
			}
		}
		if urls == nil {
			continue
		}
		if !slices.ContainsFunc(urls, func(u string) bool {
			may, must := r.blocked(u, e)
			return blocked && may || !blocked && !must
		}) {
			r.violation("%v: its host is blocked: %t\n%s", e, !blocked, text(r.hosts))
		}
	}
}
