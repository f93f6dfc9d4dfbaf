package storage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/storage"
)

// seconds are what meets each of the operations.
var seconds = map[string]doing{
	"create":           create("", "", url1, time.Hour),
	"owner's create":   create("a", "", url1, 0),
	"create, other":    create("a", "", url2, time.Hour),
	"create, chosen":   create("b", "one", url1, time.Hour),
	"import":           importing("a", url1, time.Hour),
	"import, no owner": importing("", url1, 0),
	"another target":   setURL(url2),
	"a third target":   setURL(url3),
	"another end":      setEnd(7 * time.Hour),
	"no end":           setEnd(0),
	"delete":           deleteOne,
	"restore":          restoreOne,
	"claim":            claim("a", false),
	"another's claim":  claim("b", true),
	"transfer":         transfer("b"),
	"transfer back":    transfer("a"),
	"there and back":   both(transfer("b"), transfer("a")),
	"takedown":         takeDown,
	"disabled":         disableByAdmin,
	"an opening":       openUp,
	"openings":         times(2, openUp),
	"another maxOpens": setMaxOpens(5),
	"reap":             reap,
}

// meeting is how a second operation meets a first one at one of its calls.
type meeting string

const (
	before    meeting = "before a call"
	lost      meeting = "after a call whose response is lost"
	dies      meeting = "at a call at which the first one dies"
	late      meeting = "while a write is late that was tried again"
	lateAfter meeting = "after the first one, of which a write is late that was tried again"
	lateEnd   meeting = "after the first one, of which a write is late, and which died of that"
)

var meetings = []meeting{before, lost, dies, late, lateAfter, lateEnd}

// Each operation meets each other one at each of its calls. What they return and leave is what they
// return and leave one after the other. If the first one dies, the link is what one or both of them
// have made of it. make test tries a tenth of the pairs, make check all of them.
func TestEachPair(t *testing.T) {
	if !*inMemory || meetings == nil {
		t.Skip("its time is not real, and must not be slow")
	}
	t.Parallel()
	var plays atomic.Int64
	t.Cleanup(func() { t.Logf("%d plays", plays.Load()) })
	for name, op := range operations {
		for second, do := range seconds {
			if ofOpenings(second) && !ofOpenings(name) {
				continue // there is nothing to be opened
			}
			if testing.Short() && rand.IntN(10) > 0 {
				continue // all of them take a minute
			}
			t.Run(name+", and "+second, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					r, other := newCrashRig(t)
					p := &pair{r, other, op, do, ofOpenings(name)}
					serial := p.serial()
					for _, how := range meetings {
						r.atEachCall(how == dies, func(n int) []faultproxy.Call {
							plays.Add(1)
							return p.meet(how, n, serial)
						})
					}
				})
			})
		}
	}
}

// ofOpenings reports whether an operation of this name is about a link that was opened, or may be.
func ofOpenings(name string) bool {
	return strings.Contains(strings.ToLower(name), "open") || strings.Contains(name, "used up")
}

// pair is an operation that is met by another one.
type pair struct {
	*rig
	other  *storage.Links
	op     operation
	second doing
	opens  bool // op is about openings: a lost response may leave its outcome unknown
}

// outcome is what both return, and what they leave, whatever their aliases and times: the link
// "one", all links and counts, and the rows that lead to links that are not deleted.
type outcome struct{ first, second, one, links, leads string }

// like reports whether an outcome is like that of operations of which none meets another one. A
// link may have a row of the index that it has not there: the reaper makes one if an operation that
// broke off may have taken it away.
func (o outcome) like(serial outcome) bool {
	leads := strings.Split(o.leads, " ")
	return o.first == serial.first && o.second == serial.second && o.links == serial.links &&
		!slices.ContainsFunc(strings.Split(serial.leads, " "), func(row string) bool {
			return !slices.Contains(leads, row)
		})
}

// begin begins with an hour, by which operations go that can be repeated.
func (p *pair) begin() {
	now := p.clock.Now()
	p.clock.Advance(now.Truncate(time.Hour).Add(time.Hour).Sub(now))
	p.rig.begin(p.op, p.other)
}

// serial returns what comes of them one after the other.
func (p *pair) serial() (all []outcome) {
	for _, alone := range []bool{false, true} {
		p.begin()
		var first error
		if !alone {
			first = p.op.do(ctx, p.rig, p.other)
		}
		second := p.second(ctx, p.rig, p.other)
		all = append(all, p.end(first, second))
	}
	p.begin()
	second := p.second(ctx, p.rig, p.other)
	return append(all, p.end(p.op.do(ctx, p.rig, p.other), second))
}

// end returns the outcome, once rows that were left behind have been put in order, and ends all.
func (p *pair) end(first, second error) outcome {
	p.proxy.Wait()
	p.proxy.Reset()
	for range 2 {
		p.clock.Advance(10 * time.Minute)
		should(p.t, reap(ctx, p.rig, p.other))
	}
	p.clock.Advance(2 * time.Hour) // lists delete what leads nowhere
	should(p.t, both(list("a"), list("b"))(ctx, p.rig, p.other))
	o := p.left()
	o.first, o.second = fmt.Sprint(first), fmt.Sprint(second)
	p.endAll(p.other)
	return o
}

func (p *pair) left() (o outcome) {
	var links, leads []string
	lives := map[any]bool{}
	for _, row := range p.Rows(p.Links) {
		lives[row["RowKey"]] = row["DeletedAtUtc"] == nil
		text := fmt.Sprint(row["LongUrl"], row["Owner"], row["Title"], row["GoneReason"],
			row["Locked"], row["OpensLeft"], row["DeletedAtUtc"] != nil,
			row["ExpiresAtUtc"] != nil, row["ExpiresAtUtcKept"] != nil)
		if links = append(links, text); row["RowKey"] == "one" {
			o.one = text
		}
	}
	links = append(links, p.counted()...)
	for _, row := range p.Rows(p.Index) {
		if lives[row["Alias"]] {
			leads = append(leads, fmt.Sprint(row["RowKey"]))
		}
	}
	for _, row := range p.Rows(p.Owners) {
		leads = append(leads, fmt.Sprint(row["PartitionKey"]))
	}
	slices.Sort(links)
	o.links, o.leads = strings.Join(links, "\n"), strings.Join(leads, " ")
	return o
}

// meet plays both once, and returns the calls of the first one.
func (p *pair) meet(how meeting, n int, serial []outcome) []faultproxy.Call {
	s := p.instance()
	p.begin()
	var second error
	met, held := false, false
	meet := func() { second, met = p.second(ctx, p.rig, p.other), true }
	arrive := make(chan struct{})
	p.proxy.Before(func(c faultproxy.Call) faultproxy.Fault {
		switch {
		case c.N == n && how == before:
			meet()
		case c.N == n && how == lost:
			return faultproxy.DropResponse
		case c.N == n+1 && how == lost:
			meet()
		case c.N == n && how == dies:
			meet()
			return faultproxy.Refuse
		case c.N == n && (how == late || how == lateAfter || how == lateEnd) && !reads(c):
			held = true
			<-arrive
		case c.N == n+2 && how == late && held: // n+1 is the retry
			meet()
		case c.N > n && (how == dies || how == lateEnd):
			return faultproxy.Refuse
		}
		return faultproxy.None
	})
	life := ctx
	switch how {
	case dies:
		life = dying
	case late, lateAfter, lateEnd:
		life = hasty
	}
	first := p.op.do(life, p.rig, s)
	if held {
		if !met {
			meet()
		}
		p.clock.Advance(50 * time.Second)
	}
	close(arrive)
	calls := p.proxy.Calls()
	got := p.end(first, second)
	// Where the first one dies, it may have done nothing. Where a write is late, the link of a
	// create that took it back may come again.
	less := how == dies || how == late || how == lateEnd ||
		p.opens && errors.Is(first, link.ErrUnavailable)
	ok := slices.ContainsFunc(serial, func(o outcome) bool {
		return got.like(o) || less && got.one == o.one && got.second == o.second
	})
	if met && !ok {
		p.t.Fatalf("%s: they met at call %d of %v:\n%q\nand not one of\n%q", how, n, calls, got,
			serial)
	}
	return calls
}
