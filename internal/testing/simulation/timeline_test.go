//go:build unix

package simulation

import (
	"slices"
)

// timeline is everything that was written to one link, by all who have changed it.
type timeline struct {
	made              []write[bool]
	url, rule, owner  []write[string]
	end, starts       []write[int64]
	max               []write[int]
	opened            int64 // when it may have been opened first, in real Unix nanoseconds; 0: never
	disabled, deleted []write[bool]
}

// write is a value that was written at some time between call and ret. Both are real, in Unix
// nanoseconds.
type write[T any] struct {
	value     T
	call, ret int64
	node      *node
	perhaps   bool // it may never have been made, so it does not hide others
}

// possible returns the values that the response to a request may show. It must show all that was
// acknowledged before since, and all that its own node has acknowledged.
func possible[T any](writes []write[T], e event, since int64) (values []T) {
	for _, w := range writes {
		overwritten := slices.ContainsFunc(writes, func(later write[T]) bool {
			return !later.perhaps && later.call > w.ret &&
				(later.ret < since || later.node == e.node && later.ret < e.call)
		})
		if w.call <= e.ret && !overwritten {
			values = append(values, w.value)
		}
	}
	return values
}

// timelines returns the timeline of each link, by alias.
func timelines(history []event) map[string]*timeline {
	all := map[string]*timeline{}
	for _, e := range history {
		alias, ret := e.alias, e.done()
		if e.op == "shorten" && alias == "" {
			alias = e.told.alias
		}
		t := all[alias]
		if t == nil {
			t = new(timeline)
			all[alias] = t
		}
		if e.op == "open" && (e.status == 303 || !e.known()) && (t.opened == 0 || e.call < t.opened) {
			t.opened = e.call
		}
		if e.known() && e.status >= 300 || e.op == "claim" && e.known() && e.problem != "claimed" {
			continue
		}
		c := e.change
		switch e.op {
		case "shorten", "import":
			if e.status == 200 || alias == "" {
				continue
			}
			disabled := c.disabled != nil && *c.disabled
			t.made = append(t.made, write[bool]{true, e.call, ret, e.node, false})
			t.owner = append(t.owner, write[string]{e.by, e.call, ret, e.node, false})
			t.starts = append(t.starts, write[int64]{0, e.call, ret, e.node, false})
			t.max = append(t.max, write[int]{0, e.call, ret, e.node, false})
			t.rule = append(t.rule, write[string]{"", e.call, ret, e.node, false})
			t.disabled = append(t.disabled, write[bool]{disabled, e.call, ret, e.node, false})
			t.deleted = append(t.deleted, write[bool]{false, e.call, ret, e.node, false})
		case "delete", "restore":
			t.deleted = append(t.deleted, write[bool]{e.op == "delete", e.call, ret, e.node, false})
			continue
		case "claim":
			if !e.keep {
				c.end = new(int64)
			}
		case "edit":
		default:
			continue
		}
		if c.url != nil {
			t.url = append(t.url, write[string]{*c.url, e.call, ret, e.node, false})
		}
		if c.end != nil {
			t.end = append(t.end, write[int64]{*c.end, e.call, ret, e.node, false})
		}
		if c.starts != nil {
			t.starts = append(t.starts, write[int64]{*c.starts, e.call, ret, e.node, false})
		}
		if c.max != nil {
			t.max = append(t.max, write[int]{*c.max, e.call, ret, e.node, false})
		}
		if c.rule != nil {
			t.rule = append(t.rule, write[string]{*c.rule, e.call, ret, e.node, false})
		}
		if c.owner != nil {
			t.owner = append(t.owner, write[string]{*c.owner, e.call, ret, e.node, false})
		}
		if c.disabled != nil {
			t.disabled = append(t.disabled, write[bool]{*c.disabled, e.call, ret, e.node, false})
		}
	}
	for _, e := range history {
		if e.op != "shorten" || e.choice() || e.by != "" {
			continue
		}
		for alias, t := range all {
			if has(t.owner, "") && (alias == e.told.alias && e.told.end >= *e.change.end ||
				has(t.url, *e.change.url) && (!e.known() || e.mayHaveGiven(alias, history))) {
				t.end = append(t.end, write[int64]{*e.change.end, e.call, e.done(), e.node, true})
			}
		}
	}
	return all
}

// guarded reports whether a response may find that the link can be opened only so often, and free
// whether it may find that it leads everybody.
func (t *timeline) guarded(e event, since int64) (guarded, free bool) {
	for _, n := range possible(t.max, e, since) {
		guarded, free = guarded || n > 0, free || n == 0
	}
	return guarded, free
}

// usedUp reports whether a link may have been opened as often as it could, at some time before a
// response.
func (t *timeline) usedUp(e event) bool {
	guarded, _ := t.guarded(e, 0)
	return guarded && t.opened != 0 && t.opened <= e.ret
}

// since returns the time before which acknowledged writes must show in the response to a request,
// in real Unix nanoseconds. A node trusts its cached entries for 15 seconds by its own clock. If a
// read fails, it uses them for as long as it can; then since returns 0, which requires no write to
// show.
func (e event) since(reads ...string) int64 {
	if e.node.failedBetween(max(e.call-int64(retried), e.jump), e.ret+1e9, reads...) {
		return 0
	}
	return max(e.call-int64(trusted), e.jump)
}

// checkLists checks that no list has missed a link that its owner had all the time.
func (r *round) checkLists(history []event) {
	all := timelines(history)
	for _, e := range history {
		if e.op != "list" {
			continue
		}
		for alias, t := range all {
			only := func(writes []write[string], value string) bool {
				return !slices.ContainsFunc(possible(writes, e, e.call), func(v string) bool {
					return v != value
				})
			}
			if slices.ContainsFunc(t.made, func(w write[bool]) bool { return w.ret < e.call }) &&
				only(t.owner, e.by) && !slices.Contains(possible(t.deleted, e, e.call), true) &&
				!slices.ContainsFunc(possible(t.end, e, e.call), func(end int64) bool {
					return end != 0 && end <= e.latest
				}) && !t.usedUp(e) && !slices.Contains(e.listed, alias) {
				r.violation("the list of %s lacks %s:\n%s", e.by, alias,
					r.describe(alias, history))
			}
			if slices.Contains(e.listed, alias) && !slices.Contains(possible(t.owner, e, e.call),
				e.by) {
				r.violation("the list of %s has %s:\n%s", e.by, alias, r.describe(alias, history))
			}
		}
	}
}

// checkTimes checks responses about links that nodes may have cached. Each property must be one
// that the link had within the last 15 seconds. A link whose time is over must never lead anywhere.
func (r *round) checkTimes(history []event) {
	all := timelines(history)
	for _, e := range history {
		alias, since, leads, target, owner := e.alias, int64(0), false, e.target, []string(nil)
		switch {
		case e.op == "follow", e.op == "open":
			since = e.since(alias, partition(alias))
			leads = 300 <= e.status && e.status < 400 || e.problem == "link-blocked"
		case e.op == "shorten" && e.status == 200 && alias == "":
			// The response is a promise, which the service does not give for an entry that may be
			// out of date.
			alias, since, leads, target, owner = e.told.alias, e.since(), true, e.told.url,
				[]string{e.by}
		default:
			continue
		}
		t := all[alias]
		ends := possible(t.end, e, since)
		alive := func(end int64) bool { return end == 0 || end > e.from }
		over := func(end int64) bool { return end != 0 && end <= e.latest }
		started := func(start int64) bool { return start <= e.latest }
		switch {
		case leads:
			urls := possible(t.url, e, since)
			rules := []string{""} // one leads everybody elsewhere, to a host that is never blocked
			if e.op != "shorten" {
				rules = possible(t.rule, e, since)
			}
			ok := (slices.Contains(rules, "") &&
				(e.problem == "link-blocked" || slices.Contains(urls, target)) ||
				target != "" && slices.Contains(rules, target)) &&
				slices.Contains(possible(t.disabled, e, since), false) &&
				slices.Contains(possible(t.deleted, e, since), false) &&
				(owner == nil || slices.Contains(possible(t.owner, e, since), owner[0]))
			if !ok {
				r.violation("%v: that is out of date\n%s", e, r.describe(alias, history))
			}
			if _, free := t.guarded(e, since); e.op == "follow" && !free {
				r.violation("%v: it has to be opened\n%s", e, r.describe(alias, history))
			}
			if e.op != "shorten" && !slices.ContainsFunc(possible(t.starts, e, since), started) {
				r.violation("%v: that is before its start\n%s", e, r.describe(alias, history))
			}
			if !slices.ContainsFunc(ends, alive) {
				r.violation("%v: that is past its end\n%s", e, r.describe(alias, history))
			}
		case e.problem == "link-guarded":
			if guarded, _ := t.guarded(e, since); !guarded || e.op != "follow" {
				r.violation("%v: it leads everybody\n%s", e, r.describe(alias, history))
			}
		case e.status == 410:
			if !slices.ContainsFunc(ends, over) && !t.usedUp(e) &&
				!slices.Contains(possible(t.disabled, e, since), true) &&
				!slices.Contains(possible(t.deleted, e, since), true) {
				r.violation("%v: it is gone, and should live\n%s", e, r.describe(alias, history))
			}
		case e.problem == "not-started":
			if !slices.ContainsFunc(possible(t.starts, e, since), func(start int64) bool {
				return start > e.from
			}) {
				r.violation("%v: it has started\n%s", e, r.describe(alias, history))
			}
		case e.status == 404:
			if slices.ContainsFunc(t.made, func(w write[bool]) bool { return w.ret < since }) {
				r.violation("%v: it is not found, and should be\n%s", e, r.describe(alias, history))
			}
		case e.status != 503 && e.status != 0:
			r.violation("%v", e)
		}
	}
}

// checkKeys checks that a key is refused after it was revoked, and not before.
func (r *round) checkKeys() {
	r.mu.Lock()
	uses := slices.Clone(r.uses)
	r.mu.Unlock()
	for _, u := range uses {
		switch e := u.event; {
		case e.status == 401 && (u.key.revoking == 0 || u.key.revoking > e.ret):
			r.violation("%v: the key was refused, and nobody has revoked it", e)
		case e.status != 401 && e.status != 503 && e.status != 0 && u.key.revoked != 0 &&
			u.key.revoked < e.since(keyReads):
			r.violation("%v: the key was accepted although it was revoked", e)
		}
	}
}
