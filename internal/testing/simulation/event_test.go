//go:build unix

package simulation

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// event is a request of a client with its response.
type event struct {
	// op is shorten, follow, open, read, list, history, edit, delete, restore, claim, import or dry
	// run.
	op     string
	by     string   // an owner, "admin", or "" for nobody; for shorten and import, the link's owner
	groups []string // of a member
	token  bool     // the link's claim token was presented
	alias  string   // the link's; for shorten, the chosen alias or ""
	change change   // for shorten and import, the wanted link
	match  string   // If-Match
	keep   bool     // for claim: keep the link's end

	node        *node
	run         *run  // the node's process; nil: it was not the same all the time
	call, ret   int64 // real, in Unix nanoseconds
	jump        int64 // the node's jump when the request was sent
	from, until int64 // the node's clock at the request and at the response, in Unix seconds
	latest      int64 // the latest of all clocks at the response

	sent    string   // the request's body
	status  int      // 0: no response
	problem string   // the kind of problem, or the result of a claim
	told    view     // the link in the response
	listed  []string // for list: the aliases in all pages
	past    []past   // for history: the newest change first
	last    bool     // the link has not been changed since
	etag    string
	target  string // for follow and open
	again   bool   // of an edit: it may have been written once more: see attempts
	// birth marks an added shorten: a response told of its link, but none told that it made the
	// link.
	birth bool
	late  bool    // of a birth: the index may name its link later than a response told of it
	ends  []int64 // of a birth: earlier ends with which the link may have been made
}

// within returns the event of one link of a call for several links.
func (e event) within(call event) event {
	e.node, e.run, e.jump, e.call, e.ret = call.node, call.run, call.jump, call.call, call.ret
	e.from, e.until, e.latest, e.sent = call.from, call.until, call.latest, call.sent
	e.status, e.problem = call.status, call.problem
	return e
}

// known reports whether the response tells the outcome of the request. Otherwise the request may
// have taken effect, or may take effect later.
func (e event) known() bool { return 200 <= e.status && e.status < 500 }

// is reports whether an owner is the caller or a group of the caller.
func (e event) is(owner string) bool {
	return owner != "" && (e.by == owner || slices.Contains(e.groups, owner))
}

// choice reports whether the event is a shorten with a chosen alias.
func (e event) choice() bool { return e.op == "shorten" && e.alias != "" }

// done returns the time by which the request has certainly taken effect, if it ever does.
func (e event) done() int64 {
	if e.known() {
		return e.ret
	}
	return math.MaxInt64
}

// view is a link as a response describes it. Times are in Unix seconds; zero means never.
type view struct {
	alias, url, rule, gone, owner, title, tags string // rule leads everybody there
	end, starts, deleted                       int64
	max, left                                  int // openings; 0, 0: as many as people want
	disabled, shared, locked                   bool
}

// change is what a request wants to change in a link. nil fields stay as they are.
type change struct {
	url, rule, gone, title, tags, owner *string
	end, starts                         *int64 // 0: never, and at once
	max                                 *int   // openings from now on; 0: no limit
	disabled, locked                    *bool  // locked only by a file
}

func (c change) apply(v view) view {
	set(&v.url, c.url)
	set(&v.title, c.title)
	set(&v.tags, c.tags)
	set(&v.end, c.end)
	set(&v.starts, c.starts)
	set(&v.gone, c.gone)
	set(&v.rule, c.rule)
	set(&v.disabled, c.disabled)
	set(&v.locked, c.locked)
	set(&v.owner, c.owner)
	set(&v.max, c.max)
	set(&v.left, c.max)
	return v
}

func set[T any](to *T, value *T) {
	if value != nil {
		*to = *value
	}
}

// partition returns the partition in which a link is stored.
func partition(alias string) string { return strings.ToLower(alias[:min(2, len(alias))]) }

// slow reports whether the request took so long that the node may have given up a try of a call.
func (e event) slow() bool { return e.ret-e.call > int64(900*time.Millisecond) }

// mayHaveGiven reports whether a shorten may have written a link for its caller, and then given
// another one: storage may not have responded, or the link may have left the index meanwhile, by a
// change or about its end.
func (e event) mayHaveGiven(alias string, history []event) bool {
	return e.slow() || e.node.failedBetween(e.call, e.ret+1e9, writesOf(partition(alias)), alias) ||
		slices.ContainsFunc(history, func(w event) bool {
			return w.alias == alias && (w.writes() || w.op == "open") && w.call <= e.ret &&
				e.call <= w.done() ||
				w.told.alias == alias && e.from-60 <= w.told.end && w.told.end <= e.latest+60
		})
}

// writeMayHaveFailed reports whether storage may not have responded to a write of the link.
func (e event) writeMayHaveFailed() bool {
	return e.node.failedBetween(e.call, e.ret+1e9, writesOf(partition(e.alias)), e.alias)
}

func (e event) String() string {
	clock := func(at int64) string { return time.Unix(at, 0).UTC().Format(time.TimeOnly) }
	return fmt.Sprintf("%s to %s: %s %s by %q, token %t, if %q, %s -> %d %s %s%s %+v",
		clock(e.from), clock(e.until),
		e.op, e.alias, e.by, e.token, e.match, e.sent, e.status, e.problem, e.etag, e.target,
		e.told) + e.more()
}

func (e event) more() string {
	if e.past == nil && e.listed == nil {
		return ""
	}
	return fmt.Sprintf(" %+v %v", e.past, e.listed)
}

// births returns the events that made the links that no response told of at first. A request
// without a response has made such a link, or one that lost a race for the index and could not take
// its own link back.
func (r *round) births(history []event) []event {
	first, named := map[string]event{}, map[string]bool{}
	for _, e := range history {
		a := e.told.alias
		if f, ok := first[a]; a != "" && (!ok || e.ret < f.ret) {
			first[a] = e
		}
		if e.op == "import" || e.op == "shorten" && (e.choice() || e.status == 201) {
			named[cmp.Or(e.alias, a)] = true
		}
	}
	var births []event
	for a, e := range first {
		if named[a] {
			continue
		}
		birth := e
		birth.op, birth.status, birth.alias, birth.birth = "shorten", 201, "", true
		birth.change = change{url: &e.told.url, end: &e.told.end}
		if e.op != "shorten" {
			birth.by, birth.late = e.told.owner, true
		}
		birth.call = e.ret
		for _, made := range history {
			if made.op != "shorten" || made.choice() || made.told.alias == a || made.status == 201 ||
				made.by != birth.by || *made.change.url != e.told.url {
				continue
			}
			switch end := *made.change.end; {
			case end == e.told.end:
				birth.call = min(birth.call, made.call)
			case birth.by == "" && end < e.told.end: // others have asked for a later end since
				birth.call, birth.ends = min(birth.call, made.call), append(birth.ends, end)
			}
		}
		if birth.call == e.ret {
			r.violation("nobody has made this link: %v", e)
		}
		births = append(births, birth)
	}
	return births
}

// attempts returns effects that changes may have had besides those in their responses. If storage
// did not respond to a write, the service cannot know whether the write was applied and then
// overwritten. So it writes again.
func attempts(history []event) (more []event) {
	for _, e := range history {
		switch e.op {
		case "edit", "delete", "restore", "claim", "open":
			if e.writeMayHaveFailed() {
				e.status, e.problem, e.etag, e.told, e.again = 0, "", "", view{}, true
				more = append(more, e)
			}
		}
	}
	return more
}

// describe returns the history of a link as text.
func (r *round) describe(alias string, history []event) string {
	return text(slices.DeleteFunc(slices.Clone(history), func(e event) bool {
		return e.alias != alias && e.told.alias != alias
	}))
}

func text(history []event) string {
	slices.SortFunc(history, func(a, b event) int { return int(a.call - b.call) })
	var b strings.Builder
	for _, e := range history {
		fmt.Fprintf(&b, "  %7.1f-%7.1f ms: %v\n", float64(e.call-history[0].call)/1e6,
			float64(e.ret-history[0].call)/1e6, e)
	}
	return b.String()
}
