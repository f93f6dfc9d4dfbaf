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
	default:
		return false
	}
	return true
}

// blocks are the changes of each host in hosts.
type blocks map[string][]write[bool]

// blocks returns what was done to hosts. A write whose response was lost may be applied once more,
// much later: then a host is blocked although somebody has ended that since.
func (r *round) blocks() blocks {
	all := blocks{}
	for _, host := range hosts {
		all[host] = []write[bool]{{value: false, call: math.MinInt64, ret: math.MinInt64}}
	}
	for _, e := range r.hosts {
		if e.op == "blocked" || e.known() && e.status >= 300 {
			continue
		}
		w := write[bool]{e.op == "block", e.call, e.done(), e.node, false}
		all[e.alias] = append(all[e.alias], w)
		if e.node.failedBetween(e.call, e.ret+1e9, stateCalls) {
			w.ret, w.perhaps = math.MaxInt64, true
			all[e.alias] = append(all[e.alias], w)
		}
	}
	return all
}

// of reports whether a request may find the host of a URL blocked, and whether it must. A node
// knows what has happened 15 seconds before. If it could not ask, it goes by what it knows.
func (b blocks) of(longURL string, e event) (may, must bool) {
	since := e.since(stateCalls)
	if since == 0 {
		e.node = nil // even what it has written itself, since it may have been killed meanwhile
	}
	for host, writes := range b {
		if covers(host, longURL) {
			values := possible(writes, e, since)
			may = may || slices.Contains(values, true)
			must = must || !slices.Contains(values, false)
		}
	}
	return may, must
}

// checkHosts checks what was said about blocked hosts, and that no link was made to one. Edits are
// checked with their links.
func (r *round) checkHosts(history []event) {
	all, times := r.blocks(), timelines(history)
	for _, e := range r.hosts {
		for host, writes := range all {
			values := possible(writes, e, e.call) // that is what the table has
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
		case "follow":
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
			may, must := all.of(u, e)
			return blocked && may || !blocked && !must
		}) {
			r.violation("%v: its host is blocked: %t\n%s", e, !blocked, text(r.hosts))
		}
	}
}
