//go:build unix

package simulation

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// slot is the place in the index of a URL and an owner, or of a URL and nobody.
type slot struct{ url, owner string }

// slotState is the link in a slot, which the next shorten of the URL gets. The zero slotState means
// that the URL has none.
type slotState struct {
	alias    string
	end      int64
	left     int64 // the earliest time at which it may have been deleted; 0: it was not
	disabled bool
	guarded  bool // it could be opened only so often: it may be used up since
}

// over reports whether the link's time may be over by some clock, so that a reaper may have removed
// it.
func (s slotState) over(latest int64) bool {
	return s.guarded || s.end != 0 && s.end <= latest || s.left != 0 && s.left+
		int64(deletedKeep.Seconds()) <= latest
}

// vacant reports whether a shorten may find no live link in the slot.
func (s slotState) vacant(latest int64) bool {
	return s.alias == "" || s.left != 0 || s.over(latest)
}

// slotModel is what shorten promises. For each owner, and for nobody, a URL has one link at a time
// that shorten makes and gives. The link stays until it ends, or is edited, claimed or deleted. A
// 201 comes only if there is none. A link that enters in another way, by an edit, a transfer, a
// claim or a restore, may take a free place.
//
// Other checks cover what responses other than a 201 say about the link itself: see timeline.
func slotModel(s slot) porcupine.NondeterministicModel {
	return porcupine.NondeterministicModel{
		Init: func() []any { return []any{slotState{}} },
		Step: func(state, input, _ any) []any {
			var next []any
			for _, n := range s.step(state.(slotState), input.(slotEvent)) {
				next = append(next, n)
			}
			return next
		},
	}
}

// slotEvent is an event with facts from other events.
type slotEvent struct {
	event
	entered  bool // its link may have entered the index in another way than by a shorten
	disabled bool // some link that may be in the slot was disabled at some time
	rivals   bool // a link but its own may have entered the index so
}

// slots returns the history of each slot: the shortens of its URL and owner, and the changes of the
// links that they gave.
func slots(history []event) map[slot][]slotEvent {
	parts, in, changed := map[slot][]slotEvent{}, map[slot]map[string]bool{}, map[string]bool{}
	for _, e := range history {
		s, ok := e.slot()
		if ok {
			if in[s] == nil {
				in[s] = map[string]bool{}
			}
			in[s][e.told.alias] = true
		}
		if (!ok || e.op == "import") && e.writes() {
			// A link with a chosen alias enters the index too, if a reaper finds a row that another
			// create of the alias has left.
			changed[e.alias] = true
		}
	}
	times := timelines(history)
	for alias, t := range times {
		// A shorten that extends a link puts it into the index once more, perhaps much later.
		changed[alias] = changed[alias] || slices.ContainsFunc(t.end, func(w write[int64]) bool {
			return w.perhaps
		})
	}
	for s, aliases := range in {
		disabled, enter := false, map[string]bool{}
		for alias, t := range times {
			if changed[alias] && has(t.url, s.url) && has(t.owner, s.owner) {
				enter[alias], disabled = true, disabled || has(t.disabled, true)
			}
		}
		for _, e := range history {
			of, ok := e.slot()
			if ok && of == s || e.op != "shorten" && e.writes() && aliases[e.alias] {
				parts[s] = append(parts[s], slotEvent{e, changed[e.told.alias], disabled,
					len(enter) > 1 || len(enter) == 1 && !enter[e.alias]})
			}
		}
	}
	return parts
}

// slot returns the slot of a shorten that drew an alias, was given the existing link, or was
// refused because of that link. A link without an owner that is imported enters the index, too.
func (e event) slot() (s slot, ok bool) {
	if e.op == "import" && e.status == 201 && e.by == "" {
		return slot{*e.change.url, ""}, true
	}
	if e.op != "shorten" || e.choice() || !e.known() {
		return slot{}, false // an unknown one counts once a response tells of its link: see births
	}
	return slot{*e.change.url, e.by}, true
}

func has[T comparable](writes []write[T], value T) bool {
	return slices.ContainsFunc(writes, func(w write[T]) bool { return w.value == value })
}

// writes reports whether the request may have changed a link or its place in the index.
func (e event) writes() bool {
	switch e.op {
	case "follow", "open", "read", "list", "history", "dry run":
		return false
	case "claim": // its first write is to the index, and is taken back if the claim fails
		return !e.known() || e.problem == "claimed" || e.problem == "gone"
	}
	return e.status < 300 || !e.known() ||
		e.op == "restore" && (e.problem == "conflict" || e.status == 412)
}

func (s slot) step(at slotState, e slotEvent) []slotState {
	vacant := at.vacant(e.latest)
	if _, enters := e.slot(); !enters || e.op == "import" && !vacant {
		return s.change(at, e)
	}
	made := slotState{alias: e.told.alias, end: *e.change.end, disabled: e.told.disabled}
	switch {
	case e.op == "import":
		if made.end != 0 && made.end <= e.until || e.rivals || at.alias != "" && at.left == 0 {
			return []slotState{made, at} // its end was over, or the place was not free
		}
		return []slotState{made}
	case e.birth && vacant:
		all := []slotState{made, at} // at: the process died before the link entered the index
		for _, end := range e.ends {
			all = append(all, slotState{alias: made.alias, end: end})
		}
		return all
	case e.status == 200 && at.alias == e.told.alias && e.by == "" && e.extends(at.end) &&
		e.told.end == *e.change.end:
		later := at
		later.end = e.told.end
		return []slotState{later, at} // at: it was cached with an end that it had before
	case e.birth, e.status == 403 && (at.alias != "" && at.disabled || vacant && e.disabled),
		e.status == 200 && at.alias == e.told.alias:
		return []slotState{at}
	case e.status == 201 && vacant:
		return []slotState{made}
	case e.status == 200 && vacant && e.entered:
		// at: a node may not know yet that the link was claimed
		return []slotState{{alias: e.told.alias, end: e.told.end}, at}
	}
	return nil
}

// change returns the possible states of the slot after a link was changed.
func (s slot) change(at slotState, e slotEvent) []slotState {
	if at.alias != e.alias {
		return []slotState{at}
	}
	next, gone := at, slotState{}
	switch e.op {
	case "delete":
		if next.left == 0 {
			next.left = e.from
		}
		return []slotState{next}
	case "claim":
		if e.problem == "claimed" || !e.known() {
			return []slotState{gone}
		}
		return []slotState{at, gone}
	case "restore":
		if e.known() && e.status >= 300 {
			return []slotState{at}
		}
		if next.left = 0; at.left != 0 && e.rivals {
			return []slotState{next, gone} // another link came while this one was deleted
		}
	case "edit":
		v := e.change.apply(view{url: s.url, owner: s.owner, end: at.end, disabled: at.disabled})
		if e.known() {
			v = e.told
		}
		if v.url != s.url || v.owner != s.owner {
			return []slotState{gone}
		}
		next.end, next.disabled = v.end, v.disabled
		next.guarded = at.guarded || v.max > 0
	}
	if at.over(e.latest) { // a reaper may have removed it already
		return []slotState{next, gone}
	}
	return []slotState{next}
}

// checkSlots checks the history of each slot.
func (r *round) checkSlots(history []event) {
	for s, part := range slots(history) {
		var operations []porcupine.Operation
		for _, e := range part {
			o := operation(e.event, e)
			if e.late {
				o.Return = e.call + aYear
			}
			operations = append(operations, o)
		}
		r.linearizable(slotModel(s), operations,
			"a URL with one live link at a time", func() []event {
				var events []event
				for _, e := range part {
					events = append(events, e.event)
				}
				return events
			})
	}
}

// aYear is longer than a history, in nanoseconds.
const aYear = int64(365 * 24 * time.Hour)

// operation returns an event for porcupine. A request of unknown outcome may take effect later.
func operation(e event, input any) porcupine.Operation {
	o := porcupine.Operation{Input: input, Call: e.call, Return: e.ret}
	if !e.known() {
		o.Return = e.ret + aYear
	}
	return o
}
