//go:build unix

package simulation

import (
	"encoding/json"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"
)

// bulk shortens a few URLs in one call. It returns an event for each.
func (r *round) bulk(n *node, k *key, rng *rand.Rand) []event {
	var call event
	var events []event
	var links []any
	for range 1 + rng.IntN(3) {
		alias := ""
		if rng.IntN(4) == 0 {
			alias = r.chosen(rng.IntN(chosen))
			call.alias += "," + alias
		}
		e, send := r.wish(k, r.someURL(rng), alias, r.someEnd(rng, n))
		events, links = append(events, e), append(links, send)
	}
	r.count.bulks.Add(1)
	got := r.do(&call, n, k, "POST", "/api/links/bulk", map[string]any{"links": links})
	r.results(call, got, events)
	return events
}

// results records what became of the links of one call.
func (r *round) results(call event, got body, events []event) {
	told := len(got.Results) == len(events)
	if call.status == 200 && !told {
		r.violation("%v: %d links, %d results", call, len(events), len(got.Results))
	}
	for i, e := range events {
		e = e.within(call)
		if told {
			e.status, e.problem = got.Results[i].Status, problem(got.Results[i].Problem)
			if e.told = got.Results[i].Link.view(); !e.known() && e.status != 503 {
				r.violation("%v", e)
			}
		}
		if e.op == "import" && (e.status == 201 || !e.known()) {
			e.told = e.change.apply(view{alias: e.alias, owner: e.by}) // the results do not say it
		}
		if call.slow() {
			call.node.mayHaveFailed(e.told.alias)
		}
		events[i] = e
		r.record(e)
	}
}

// importFile imports a few links, or tries what would become of them. It returns an event for each.
func (r *round) importFile(n *node, k *key, rng *rand.Rand) []event {
	query, op := url.Values{"format": {pick(rng, []string{"ndjson", "auto"})}}, "import"
	if rng.IntN(4) == 0 {
		query.Set("dryRun", "true")
		op = "dry run"
	}
	owner := k.acts()
	keeps := k == admin && rng.IntN(3) > 0 // the file says whose the links are
	if !keeps {
		query.Set("owner", owner)
	}
	var call event
	var events []event
	var file strings.Builder
	for range 1 + rng.IntN(3) {
		e := event{op: op, by: owner, alias: r.chosen(rng.IntN(3 * chosen))}
		if op == "dry run" && strings.Contains(call.alias, e.alias) {
			continue // the file would have it already
		}
		call.alias += "," + e.alias
		disabled := rng.IntN(4) == 0
		e.change = change{url: new(r.someURL(rng)), end: new(r.someEnd(rng, n)),
			title: new("imported"), disabled: &disabled, locked: new(disabled && k == admin)}
		send := r.in(map[string]any{"alias": e.alias, "longUrl": *e.change.url,
			"title": *e.change.title, "disabled": disabled, "locked": disabled})
		switch rng.IntN(4) {
		case 0:
			*e.change.end = 0
		case 1: // it has ended
			*e.change.end = n.clock().Add(-time.Hour).Unix()
		}
		if *e.change.end != 0 {
			send["expiresAtUtc"] = time.Unix(*e.change.end, 0).UTC()
		}
		if keeps {
			e.by = pick(rng, append([]string{"", ""}, r.owners...))
			send["owner"] = orNull(e.by)
		}
		line, _ := json.Marshal(send)
		file.Write(append(line, '\n'))
		events = append(events, e)
	}
	r.count.imports.Add(1)
	got := r.do(&call, n, k, "POST", "/api/import?"+query.Encode(), file.String())
	r.results(call, got, events)
	for i, later := range events {
		// Of several links with one alias, only the first may be made.
		if later.status == 201 && slices.ContainsFunc(events[:i], func(e event) bool {
			return e.alias == later.alias && e.problem != "target-blocked"
		}) {
			r.violation("the later link of an alias was made: %v", later)
		}
	}
	// A link without an alias is none of those that can be imported.
	var without event
	got = r.do(&without, n, k, "POST", "/api/import", `{"longUrl":"`+r.url(0)+`"}`)
	if without.status == 200 && (len(got.Results) != 1 || got.Results[0].Status != 400) {
		r.violation("a link without an alias was imported: %v", without)
	}
	return events
}

// imported handles a link of a file, or what a dry run says of it.
func (s linkState) imported(e linkEvent) []linkState {
	next := linkState{phase: made, view: e.change.apply(view{alias: e.of, owner: e.by})}
	over := next.end != 0 && next.end <= e.until
	free, gone := s.phase < made, linkState{phase: gone}
	reaped := s.phase == gone.phase || s.phase == made && s.over(e.latest)
	same := s.phase == made && s.url == next.url
	switch {
	case e.op == "import" && free && !e.known():
		return []linkState{next, {phase: tried}}
	case e.op == "import" && free && e.status == 201:
		return []linkState{next}
	case !e.known(),
		e.op == "dry run" && free && e.status == 201,
		e.status == 200 && same && s.deleted == 0 && (s.max == 0 || s.owner == e.by),
		e.problem == "alias-taken" && s.phase == tried,
		e.problem == "alias-taken" && s.phase == made && !same,
		e.problem == "alias-taken" && same && (s.deleted != 0 || s.max > 0) && s.owner != e.by,
		e.problem == "link-deleted" && same && s.deleted != 0 && s.owner == e.by && !s.locked,
		e.problem == "link-locked" && same && s.deleted != 0 && s.owner == e.by && s.locked:
		return []linkState{s}
	case e.status == 200 && over && reaped, e.problem == "alias-taken" && reaped:
		return []linkState{gone}
	}
	return nil
}
