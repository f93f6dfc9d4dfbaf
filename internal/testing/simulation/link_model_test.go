//go:build unix

package simulation

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// linkState is the state of an alias.
type linkState struct {
	phase phase
	view         // deleted is the earliest possible time
	endBy int64  // of a link that is used up: the latest possible end; end is the earliest one
	kept  int64  // of a link that is used up: the end that it had
	past  string // its history: see remember
	until int64  // the latest possible time at which it was deleted
	etag  string // "" if no response told of it
	seen  int    // how many responses have told of it
}

type phase int

const (
	never phase = iota // there is no link
	tried              // the same, but a failed request may have left rows that take the alias
	made
	gone    // reaped
	checked // all that a response told of has happened
)

// linkModel is what the API promises of one link. Each request sees the effects of those before it.
// Edits change what they name and nothing else, and each is in the link's history. It also says who
// may do what.
var linkModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{linkState{}} },
	Step: func(state, input, _ any) []any {
		var next []any
		for _, n := range state.(linkState).step(input.(linkEvent)) {
			next = append(next, n)
		}
		return next
	},
}

// linkEvent is an event in the history of one link.
type linkEvent struct {
	event
	of    string // the link's alias
	whole []past // the longest history that a response told of
	ended bool   // whole has all changes
	// blocked and free: the host of the URL that an edit asks for may be so.
	blocked, free bool
	tells         map[string]int // how many responses tell of each ETag
}

// step returns the possible states after an event. A history that was told later says which changes
// there were. Without it, there would be too many orders of requests of unknown outcome. For the
// same reason, one that changes nothing has to come after the end.
func (s linkState) step(e linkEvent) (possible []linkState) {
	switch {
	case e.op == "end":
		return []linkState{{phase: checked}}
	case s.phase == checked && e.known():
		return nil
	case s.phase == checked:
		return []linkState{s}
	}
	for _, next := range s.any(e) {
		if next.etag == "" {
			next.seen = 0
		}
		n := strings.Count(next.past, "\n")
		switch {
		case s.etag != "" && next.etag != s.etag && s.seen < e.tells[s.etag]:
			// It cannot have changed between two responses that tell of one ETag.
		case next.past == s.past, n == 0, len(e.whole) == maxPast, n > len(e.whole) && !e.ended,
			n <= len(e.whole) && e.whole[len(e.whole)-n].is(strings.SplitN(next.past, "\n", 2)[0]):
			possible = append(possible, next)
		}
	}
	if !e.known() {
		possible = slices.DeleteFunc(possible, func(next linkState) bool { return next == s })
	}
	return possible
}

func (s linkState) any(e linkEvent) []linkState {
	switch {
	case e.op == "import", e.op == "dry run":
		return s.imported(e)
	case e.op == "open", e.op == "follow":
		return s.lead(e)
	case e.op == "shorten" && (e.choice() || e.status == 201):
		return s.create(e)
	case e.op == "shorten":
		return s.share(e)
	case !e.known():
		next, _, _ := s.apply(e.event, false)
		if e.again && (next.max != s.max || next.left != s.left) {
			return []linkState{s} // openings are never set twice
		}
		return []linkState{next}
	case e.problem == "conflict":
		return []linkState{s} // others were faster, many times in a row
	}
	var all []linkState
	for _, late := range []bool{false, true} {
		next, status, problem := s.apply(e.event, late)
		if status == 200 && e.op == "edit" && next.url != s.url {
			if e.blocked && e.problem == "target-blocked" {
				return []linkState{s}
			}
			if !e.free {
				continue
			}
		}
		if status != e.status || problem != e.problem {
			continue
		}
		if next, ok := next.as(e.event); ok && !slices.Contains(all, next) {
			all = append(all, next)
		}
	}
	// The reaper, or a transfer, may have come between the request's read and its write.
	met := e.status == 412 && e.match != ""
	if met && (s.phase == gone || s.phase == made && !e.is(s.owner) && e.by != "admin") {
		all = append(all, s)
	}
	if (e.status == 404 || e.problem == "gone" || met) && s.phase == made && s.over(e.latest) {
		all = append(all, linkState{phase: gone})
	}
	return all
}

// live reports whether the link leads somewhere at the time now, or will once it starts.
func (s linkState) live(now int64) bool {
	return s.phase == made && s.deleted == 0 && !s.disabled && !s.used() &&
		(s.end == 0 || s.end > now)
}

// used reports whether the link was opened as often as it could be.
func (s linkState) used() bool { return s.max > 0 && s.left == 0 }

// opened returns the state after an opening. The last one ends the link.
func (s linkState) opened(e event) linkState {
	if s.left--; s.left == 0 {
		s.kept, s.end, s.endBy = s.end, e.from, e.until
	}
	return s
}

// lead handles an opening of a link, or a request for it that does not lead anywhere. What a node
// may have cached is checked by checkTimes: links that can be opened only so often never are.
func (s linkState) lead(e linkEvent) []linkState {
	free := s.phase == made && s.max == 0
	can := s.live(e.from) && s.starts <= e.until
	switch {
	case !e.known() && s.live(e.from) && s.max > 0:
		return []linkState{s, s.opened(e.event)}
	case !e.known(), free,
		e.problem == "link-guarded" && can,
		e.problem == "link-blocked" && can,
		e.status == 410 && (s.phase == gone || s.phase == made && (s.used() || s.deleted != 0 ||
			s.disabled || s.end != 0 && s.end <= e.until || s.over(e.latest))),
		e.status == 404 && (s.phase != made || s.starts > e.from || s.over(e.latest)):
		return []linkState{s}
	case e.status == 303 && can && (e.target == s.rule || s.rule == "" && e.target == s.url):
		return []linkState{s.opened(e.event)}
	}
	return nil
}

// over reports whether the link's time is over, so that it may have been reaped.
func (s linkState) over(now int64) bool {
	if s.deleted != 0 {
		return s.deleted+int64(deletedKeep.Seconds()) <= now
	}
	return s.end != 0 && s.end <= now
}

// as returns the state with what the response adds to it. It reports whether the response describes
// a link in that state.
func (s linkState) as(e event) (linkState, bool) {
	if e.status != 200 || e.op == "claim" {
		return s, true
	}
	if e.op == "history" {
		return s, s.remembers(e.past)
	}
	if s.deleted != 0 && s.deleted <= e.told.deleted && e.told.deleted <= s.until {
		s.deleted, s.until = e.told.deleted, e.told.deleted
	}
	if s.endBy != 0 && s.end <= e.told.end && e.told.end <= s.endBy {
		s.end, s.endBy = e.told.end, e.told.end
	}
	if e.told.shared && !s.shared && s.owner == "" && e.writeMayHaveFailed() {
		// The write was applied, and others were given the link before the service looked at what
		// had become of its write.
		s = s.marked()
	}
	if e.op != "read" && e.told.max == s.max && e.told.left < s.left && e.writeMayHaveFailed() {
		// Likewise, others have opened the link.
		if e.told.left == 0 {
			e.told.end = s.end
		}
		e.told.left = s.left
	}
	known := s.etag == "" || e.etag == "" || s.etag == e.etag
	if e.etag != s.etag && e.etag != "" {
		s.etag, s.seen = e.etag, 0
	}
	if e.etag != "" {
		s.seen++
	}
	return s, known && s.view == e.told
}

// create handles a request for this alias, or the request that drew it.
func (s linkState) create(e linkEvent) []linkState {
	free := s.phase == never || s.phase == tried
	same := s.phase == made && e.by != "" && s.owner == e.by && s.url == *e.change.url
	next := linkState{phase: made, view: e.change.apply(view{alias: e.of, owner: e.by})}
	switch {
	case !e.known() && free:
		return []linkState{next, {phase: tried}}
	case !e.known(),
		e.status == 200 && same && s.live(e.from) && s.end == e.told.end,
		e.status == 409 && s.phase != never && !(same && s.live(e.latest)):
		return []linkState{s}
	case e.status == 201 && free:
		all := []linkState{next}
		for _, end := range e.ends {
			next.end = end
			all = append(all, next)
		}
		return all
	}
	return nil
}

// marked returns the state of a link that others than its maker have. For one that can be opened
// only so often, that is no other version.
func (s linkState) marked() linkState {
	if !s.shared && s.max == 0 {
		s.etag = ""
	}
	s.shared = true
	return s
}

// share handles a request that was given this link, or may have been. After that, others than the
// link's maker have it, perhaps with a later end.
func (s linkState) share(e linkEvent) []linkState {
	end := *e.change.end
	if e.known() && e.by == "" && e.told.end != 0 && 10*(end-e.told.end) > end-e.from {
		return nil // it ends much too early for the caller
	}
	all := []linkState{s}
	if s.phase == made && s.owner == "" && e.by == "" && s.url == *e.change.url {
		s = s.marked()
		all[0] = s
		// A later end than this one was given by others, while the link was looked at again.
		if s.live(e.from) && e.extends(s.end) && (!e.known() || e.told.end >= end) {
			later := s
			later.end, later.etag = end, ""
			later.past = later.remember(e.event, s)
			had := strings.Contains(s.past, fmt.Sprintf(" %d %d ", end, end))
			if e.known() && e.told.end == end && !had { // else it may be cached with an end that it had before
				all = nil
			}
			all = append(all, later)
		}
	}
	if e.known() && (s.phase < made || s.phase == made && e.by != "" && (s.owner != e.by ||
		s.url != *e.change.url || s.disabled || s.deleted != 0 || s.used())) {
		return nil // an owner is given what the table says
	}
	return all
}

// extends reports whether a shorten may give a link a later end.
func (e event) extends(end int64) bool {
	return end != 0 && *e.change.end > end && 10*(*e.change.end-end) > *e.change.end-e.until-1
}

// apply returns the state after a request, and the response to it. If late, the times in it are as
// late as possible, otherwise as early as possible.
func (s linkState) apply(e event, late bool) (next linkState, status int, problem string) {
	next = s
	now, deleted := e.from, s.until
	if late {
		now, deleted = e.until, s.deleted
	}
	switch permitted := e.by == "admin" || e.is(s.owner) || e.token && s.owner == ""; {
	case e.op == "claim":
		return s.claim(e, now)
	case e.change.owner != nil && e.by != "admin" && !e.is(*e.change.owner):
		return s, 403, "forbidden"
	case s.phase != made, !permitted && e.by != "":
		return s, 404, "not-found"
	case !permitted:
		return s, 403, "forbidden"
	case e.match != "" && e.match != s.etag:
		return s, 412, "precondition"
	}
	// Nobody but an admin changes what an admin has taken down.
	locked := s.locked && e.by != "admin"
	takesDown := e.by == "admin" && (s.owner != "admin" ||
		e.change.owner != nil && *e.change.owner != "admin")
	switch e.op {
	case "edit":
		if next.view = e.change.apply(s.view); e.change.max != nil && s.used() {
			if e.change.end == nil {
				next.end = s.kept
			}
			next.kept, next.endBy = 0, 0
		}
		starts := next.starts
		if late && next.endBy != 0 {
			starts -= next.endBy - next.end // it has to be before the latest possible end
		}
		earlier := next.end != 0 && (s.end == 0 || next.end < s.end)
		if e.change.disabled != nil {
			next.locked = next.disabled && (s.locked || takesDown)
		}
		switch {
		case locked:
			return s, 403, "link-locked"
		case s.deleted != 0:
			return s, 409, "link-deleted"
		case e.change.end != nil && next.used():
			return s, 400, "max-opens"
		case e.change.end != nil && next.end != 0 && next.end != s.end && next.end < now+60:
			return s, 400, "expires-at-utc"
		case (next.starts != s.starts || next.end != s.end) && !next.used() && next.end != 0 &&
			starts >= next.end:
			return s, 400, "starts-at-utc"
		case s.shared && e.by != "admin" && (next.url != s.url || earlier ||
			next.disabled != s.disabled || next.starts != s.starts || next.gone != s.gone ||
			next.rule != s.rule || next.max != s.max || next.left != s.left):
			return s, 409, "link-shared"
		}
	case "delete":
		status = 204
		next.locked = s.locked || takesDown
		switch {
		case s.deleted != 0: // an admin may still take it down
		case locked:
			return s, 403, "link-locked"
		case s.shared && e.by != "admin":
			return s, 409, "link-shared"
		default:
			next.deleted, next.until = e.from, e.until
		}
	case "restore":
		switch {
		case locked:
			return s, 403, "link-locked"
		case s.deleted == 0 || deleted+int64(deletedKeep.Seconds()) <= now:
			return s, 409, "link-not-deleted"
		}
		next.deleted, next.until, next.locked = 0, 0, s.locked && s.disabled
	}
	if next != s {
		next.etag, next.past = "", next.remember(e, s)
	}
	return next, max(status, 200), ""
}

func (s linkState) claim(e event, now int64) (next linkState, status int, result string) {
	next = s
	switch {
	case s.phase != made:
		return s, 200, "gone"
	case s.owner == *e.change.owner || e.is(s.owner):
		return s, 200, "already yours"
	case s.owner != "" || !e.token:
		return s, 200, "invalid"
	case !s.live(now): // also a disabled one, or its new owner could undo what an admin did
		return s, 200, "gone"
	}
	next.owner, next.etag = *e.change.owner, ""
	if !e.keep {
		next.end = 0
	}
	next.past = next.remember(e, s)
	return next, 200, "claimed"
}

// past is a change in a link's history, as a response tells of it.
type past struct {
	at               int64
	by, what, before string // before is JSON, without the time of a deletion
	deleted          int64  // when the link was deleted that was restored
	end              int64  // that it had before; 0: it has not changed
}

// noEnd is the end in a history that a link did not have.
const noEnd = -1

// maxPast is how many changes a history has at most.
const maxPast = 50

// remember returns the history of a link after an event has changed it. It has a line for each
// change, the newest first.
func (s linkState) remember(e event, was linkState) string {
	before, what := map[string]any{}, map[string]string{"edit": "edited", "delete": "deleted",
		"restore": "restored", "claim": "claimed", "shorten": "edited"}[e.op]
	if s.url != was.url {
		before["longUrl"] = was.url
	}
	var end, endBy int64
	if s.end != was.end {
		end = cmp.Or(was.end, noEnd)
		endBy = cmp.Or(was.endBy, end)
	}
	if s.starts != was.starts {
		before["startsAtUtc"] = nil
		if was.starts != 0 {
			before["startsAtUtc"] = time.Unix(was.starts, 0).UTC()
		}
	}
	if s.gone != was.gone {
		before["goneUrl"] = orNull(was.gone)
	}
	if s.rule != was.rule {
		before["rules"] = rulesTo(was.rule)
	}
	if s.max != was.max || s.left != was.left {
		before["maxOpens"] = numberOrNull(was.max)
	}
	if s.disabled != was.disabled {
		before["disabled"] = was.disabled
	}
	if s.title != was.title {
		before["title"] = orNull(was.title)
	}
	if s.tags != was.tags {
		before["tags"] = strings.Fields(was.tags)
	}
	if s.owner != was.owner {
		before["owner"] = orNull(was.owner)
		if e.op == "edit" {
			what = "transferred"
		}
	}
	var deleted, until int64
	if s.deleted != was.deleted {
		if deleted, until = was.deleted, was.until; deleted == 0 {
			before["deletedAtUtc"] = nil
		}
	}
	data, _ := json.Marshal(before)
	line := fmt.Sprintf("%q %s %d %d %d %d %d %d %s\n", e.by, what, e.from, e.until, deleted, until,
		end, endBy, data)
	lines := strings.SplitAfterN(line+was.past, "\n", maxPast+1)
	return strings.Join(lines[:min(len(lines), maxPast)], "")
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// remembers reports whether a response has shown the link's history.
func (s linkState) remembers(told []past) bool {
	lines := strings.Split(s.past, "\n")
	if lines = lines[:len(lines)-1]; len(lines) != len(told) {
		return false
	}
	for i, p := range told {
		if !p.is(lines[i]) {
			return false
		}
	}
	return true
}

// is reports whether a change in a response is that of a line of remember.
func (p past) is(line string) bool {
	f := strings.SplitN(line, " ", 9)
	between := func(from string, at int64, until string) bool {
		least, _ := strconv.ParseInt(from, 10, 64)
		most, _ := strconv.ParseInt(until, 10, 64)
		return least <= at && at <= most
	}
	return f[0] == strconv.Quote(p.by) && f[1] == p.what && f[8] == p.before &&
		between(f[2], p.at, f[3]) && between(f[4], p.deleted, f[5]) && between(f[6], p.end, f[7])
}

// ofGuarded returns an opening of a link, or a request for it, as it counts for the history of a
// link that could be opened only so often, and whether it does. A node that may have the link
// cached from before that may say what was right then.
func (e event) ofGuarded(t *timeline) (event, bool) {
	if !slices.ContainsFunc(t.max, func(w write[int]) bool { return w.value > 0 }) {
		return e, false
	}
	since := e.since(e.alias, partition(e.alias))
	_, free := t.guarded(e, since)
	switch opened := e.op == "open" && (e.status == 303 || !e.known()); {
	case !opened && (e.status != 410 && e.problem != "link-guarded" || since == 0):
		return e, false
	case !opened || free:
		e.call = min(e.call, since)
	}
	return e, true
}

// links returns the history of each link.
func links(history []event) map[string][]event {
	parts, of := map[string][]event{}, map[string]map[string]bool{}
	times := timelines(history)
	for _, e := range history {
		if e.op == "follow" || e.op == "open" {
			if e, counts := e.ofGuarded(times[e.alias]); counts {
				parts[e.alias] = append(parts[e.alias], e)
			}
			continue
		}
		a := e.alias
		if e.op == "shorten" && a == "" {
			a = e.told.alias
		}
		if a == "" {
			continue
		}
		parts[a] = append(parts[a], e)
		if of[e.told.url] == nil {
			of[e.told.url] = map[string]bool{}
		}
		of[e.told.url][a] = true
	}
	for _, e := range history {
		if e.op != "shorten" || e.alias != "" || e.by != "" {
			continue
		}
		given := e.told.alias
		known := e.known()
		e.status, e.told = 0, view{}
		for a := range of[*e.change.url] {
			// It may have been given this link. Or it may have marked this link as shared without
			// getting a response from storage, and then have been given another link. Or it was
			// given this link, and has given it a later end twice: the index had moved meanwhile,
			// so it began anew, and somebody else had set an earlier end in between.
			if !known || a != given && e.mayHaveGiven(a, history) ||
				a == given && slices.ContainsFunc(history, func(w event) bool {
					return w.alias == a && w.op == "edit" && w.change.end != nil &&
						w.call <= e.ret && e.call <= w.done()
				}) {
				parts[a] = append(parts[a], e)
			}
		}
	}
	return parts
}

// checkLinks checks the history of each link.
func (r *round) checkLinks(history []event) {
	for alias, part := range links(history) {
		var operations []porcupine.Operation
		var told event
		tells, last := map[string]int{}, int64(0)
		for _, e := range part {
			last = max(last, e.ret)
			if e.status == 200 && e.etag != "" {
				tells[e.etag]++
			}
			if len(e.past) >= len(told.past) && e.op == "history" && e.status == 200 {
				told = e
			}
		}
		for _, e := range part {
			of := linkEvent{event: e, of: alias, whole: told.past, ended: told.last, tells: tells}
			if e.op == "edit" && e.change.url != nil {
				may, must := r.blocked(*e.change.url, e)
				of.blocked, of.free = may, !must
			}
			operations = append(operations, operation(e, of))
		}
		end := porcupine.Operation{Input: linkEvent{event: event{op: "end"}}, Call: last + 1, Return: last + 1}
		r.linearizable(linkModel, append(operations, end), "a link", func() []event { return part })
	}
}
