//go:build unix

package simulation

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"tiney/internal/testing/faultproxy"
	"tiney/storage/memtable"
)

// simulation decides by a seed what happens in a round of simulated nodes: which of the waiting
// calls goes on and with which result, which client acts, how much time passes, and which node is
// stopped, killed or cut off. It runs in a bubble of testing/synctest. Each storage call parks at a
// gate. Once all goroutines wait, the simulation lets one of the parked calls go on.
//
// A stopped node must not see its timers run. So time passes in jumps: the wall clocks of all other
// nodes jump at once, and the stopped node's clock jumps when it goes on, like that of a real
// process.
type simulation struct {
	round   *round
	rng     *rand.Rand
	service *memtable.Service
	ops     sync.WaitGroup // reapers and the like, which no client waits for

	mu     sync.Mutex
	jumped time.Duration // the sum of all jumps since the start
	coming time.Duration // the length of the next jump
	parked []*parked
	came   chan struct{} // something has parked
	last   int           // the node that went on last
	acting int           // the client, reaper or the like that went on last
	others int           // the number of reapers and the like so far
	quiet  bool          // there is no more trouble
	trace  strings.Builder

	slow map[response]bool // responses that wait before their node gets them
	skip map[int]bool      // the troubles that are left out, by number
	made int               // the number of troubles so far
}

// response is the response to a node's Nth call.
type response struct {
	proxy *faultproxy.Proxy
	n     int
}

// parked is a waiting storage call, or a client before its next act.
type parked struct {
	node    *node             // the caller; nil for a client
	proxy   *faultproxy.Proxy // that of the caller's process
	call    faultproxy.Call
	frozen  bool
	slow    bool      // the call was applied, and its response waits
	since   time.Time // since when it waits, or is frozen
	due     time.Time // when a frozen call arrives at storage or gets lost
	release chan faultproxy.Fault
}

func (p *parked) String() string {
	if p.node == nil {
		return fmt.Sprintf("client %d", p.call.By)
	}
	what := p.call.Operation
	if p.slow {
		what = "response to " + what
	}
	return fmt.Sprintf("node %d %s %s %s %s", p.node.sim.index, what, p.call.Target,
		p.call.Partition, p.call.Key)
}

func (p *parked) compare(q *parked) int {
	node := func(p *parked) int {
		if p.node == nil {
			return -1
		}
		return p.node.sim.index
	}
	slow := func(p *parked) int {
		if p.slow {
			return 1
		}
		return 0
	}
	a, b := p.call, q.call
	return cmp.Or(cmp.Compare(node(p), node(q)), cmp.Compare(a.By, b.By),
		cmp.Compare(slow(p), slow(q)), cmp.Compare(a.Operation, b.Operation),
		cmp.Compare(a.Target, b.Target), cmp.Compare(a.Partition, b.Partition),
		cmp.Compare(a.Key, b.Key), cmp.Compare(a.N, b.N))
}

// lateFor is how long storage may take to apply a write that its client gives up meanwhile.
const lateFor = time.Minute

// wall returns the correct time.
func (s *simulation) wall() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.jumped)
}

// jump makes time pass for all nodes. Nothing may be under way.
func (s *simulation) jump(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jumped += by
}

// resting reports whether there is no more trouble.
func (s *simulation) resting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.quiet
}

// turn waits until a client may act.
func (s *simulation) turn(client int) { s.park(&parked{call: faultproxy.Call{By: client}}) }

// call waits until a storage call may go on, and returns its fault. A request has no proxy.
func (s *simulation) call(n *node, proxy *faultproxy.Proxy, c faultproxy.Call) faultproxy.Fault {
	return s.park(&parked{node: n, proxy: proxy, call: c})
}

// applied waits if the response to a call is slow.
func (s *simulation) applied(n *node, proxy *faultproxy.Proxy, c faultproxy.Call) {
	s.mu.Lock()
	slow := s.slow[response{proxy, c.N}]
	s.mu.Unlock()
	if slow {
		begun := s.round.real()
		s.park(&parked{node: n, proxy: proxy, call: c, slow: true})
		n.noteSlow(c, begun)
	}
}

func (s *simulation) park(p *parked) faultproxy.Fault {
	p.release = make(chan faultproxy.Fault, 1)
	s.mu.Lock()
	p.since = time.Now().Add(s.jumped)
	s.parked = append(s.parked, p)
	s.mu.Unlock()
	select {
	case s.came <- struct{}{}:
	default:
	}
	return <-p.release
}

// run runs a script, and decides what happens meanwhile. If product code holds a mutex across a
// call, all goroutines wait, but testing/synctest does not see that. Then the test times out.
func (s *simulation) run(script func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		script()
	}()
	for {
		synctest.Wait()
		select {
		case <-done:
			return
		default:
		}
		if !s.step() { // all goroutines wait for a timer
			select {
			case <-s.came:
			case <-done:
			case <-s.nextDue():
			}
		}
	}
}

// step lets one thing happen. It reports whether anything did.
func (s *simulation) step() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jumped += s.coming + time.Millisecond // a call takes a millisecond
	s.coming = 0
	now := time.Now().Add(s.jumped)
	stopped := s.stopped()
	slices.SortFunc(s.parked, (*parked).compare)
	var ready []*parked
	for _, p := range s.parked {
		switch {
		case p.frozen && (s.quiet || !p.due.After(now)):
			s.arrive(p)
			return true
		case p.node != nil && p.node.sim.stops > 0:
		case p.slow && (s.quiet || s.rng.IntN(40) == 0):
			s.let(p, faultproxy.None)
			return true
		case !p.frozen && !p.slow:
			ready = append(ready, p)
		}
	}
	if stopped != nil {
		if stopped.sim.stops--; len(ready) == 0 || stopped.sim.stops == 0 || s.quiet {
			stopped.sim.stops = 0
			s.say("node %d goes on\n", stopped.sim.index)
			return true
		}
	}
	if len(ready) == 0 {
		return false
	}
	next := ready[s.rng.IntN(len(ready))]
	if s.rng.IntN(3) > 0 { // mostly the same node goes on
		for _, p := range ready {
			if p.node != nil && p.node.sim.index == s.last {
				next = p
				break
			}
		}
	}
	if next.node == nil || next.call.Operation == request || s.quiet {
		s.let(next, faultproxy.None)
		return true
	}
	s.last = next.node.sim.index
	s.meet(next, stopped != nil)
	return true
}

func (s *simulation) stopped() *node {
	for _, n := range s.round.nodes {
		if n.sim.stops > 0 {
			return n
		}
	}
	return nil
}

// say adds to the trace, until the round is being settled.
func (s *simulation) say(format string, args ...any) {
	if !s.quiet {
		fmt.Fprintf(&s.trace, format, args...)
	}
}

// let lets a parked call or client go on.
func (s *simulation) let(p *parked, fault faultproxy.Fault) {
	s.parked = slices.DeleteFunc(s.parked, func(q *parked) bool { return p == q })
	s.say("%v: %d\n", p, fault)
	if fault != faultproxy.None && p.call.Operation != request {
		s.note(p)
	}
	if p.node == nil || p.call.Operation == request {
		s.acting = p.call.By
	}
	p.release <- fault
}

// note tells the models that a call may have failed.
func (s *simulation) note(p *parked) {
	p.node.faults.Lock()
	defer p.node.faults.Unlock()
	s.mu.Unlock() // since node.note asks for the time
	p.node.note(p.call)
	s.mu.Lock()
}

// arrives decides whether a late call is applied.
func (s *simulation) arrives() faultproxy.Fault {
	if s.rng.IntN(2) == 0 {
		return faultproxy.Refuse
	}
	return faultproxy.None
}

// trouble numbers the next trouble, and reports whether it is to be made. Shrinking leaves some
// out.
func (s *simulation) trouble() bool {
	s.made++
	return !s.skip[s.made]
}

// meet lets a call go on, or makes trouble for it or around it.
func (s *simulation) meet(p *parked, stopped bool) {
	n := p.node
	draw, length := s.rng.Float64(), s.rng.Float64()
	stoodStill := n.sim.stoodStill(time.Now().Add(s.jumped))
	if stoodStill && 0.04 <= draw && draw < 0.115 {
		draw = 1 // the node is neither stopped again nor killed, and storage does not fail it
	}
	if draw >= 0.22 || !s.trouble() {
		fault := faultproxy.None
		if n.sim.cut > 0 && !stoodStill {
			n.sim.cut--
			fault = faultproxy.Refuse
		}
		s.let(p, fault)
		return
	}
	switch {
	case draw < 0.04:
		s.let(p, faultproxy.DropResponse)
	case draw < 0.06:
		s.let(p, faultproxy.Refuse)
	case draw < 0.07:
		s.let(p, faultproxy.ServerBusy)
	case draw < 0.085 && !stopped:
		s.freeze(p, length)
		s.note(p)
	case draw < 0.10 && !stopped:
		n.sim.stops, n.sim.stoppedAt = 5+s.rng.IntN(60), s.jumped
		s.coming = time.Duration(float64(time.Second) * math.Pow(2400, length)) // to 40 minutes
		s.thaw(s.coming)
		s.say("node %d is stopped for %v\n", n.sim.index, s.coming)
		s.round.count.stops.Add(1)
	case draw < 0.107:
		s.say("node %d is killed\n", n.sim.index)
		s.round.count.kills.Add(1)
		s.killed(n)
	case draw < 0.115:
		s.round.count.outages.Add(1)
		n.sim.cut = 1 + s.rng.IntN(20)
		s.let(p, faultproxy.Refuse)
	case draw < 0.135 && !stopped:
		s.coming = time.Duration(float64(time.Second) * math.Pow(300, length))
		s.thaw(s.coming)
		s.say("%v pass\n", s.coming)
		s.round.count.advances.Add(1)
	case draw < 0.175:
		what := []string{"reap", "reap", "flush", "rollup", "check"}[int(length*5)]
		other := s.round.nodes[s.rng.IntN(len(s.round.nodes))]
		s.say("node %d: %s\n", other.sim.index, what)
		s.others++
		s.acting = maxClients + s.others
		s.ops.Go(func() {
			switch what {
			case "reap":
				s.round.count.reaps.Add(1)
				other.control(what)
			case "flush":
				s.round.count.flushes.Add(1)
				other.flush()
			case "rollup":
				s.round.count.rollUps.Add(1)
				other.control(what)
			case "check":
				other.check(20 * time.Minute)
			}
		})
	default:
		s.slow[response{p.proxy, p.call.N}] = true
		s.let(p, faultproxy.None)
	}
}

// freeze keeps a call on its way to storage, for less than lateFor. The draw decides for how long.
func (s *simulation) freeze(p *parked, draw float64) {
	p.frozen, p.since = true, time.Now().Add(s.jumped)
	p.due = p.since.Add(time.Duration(float64(lateFor) * math.Pow(draw, 4))) // a third: < 1 s
	s.say("%v: frozen for %v\n", p, p.due.Sub(p.since))
}

// arrive makes a frozen call arrive or get lost. A stopped node gets the response when it goes on.
func (s *simulation) arrive(p *parked) {
	fault := s.arrives()
	if p.node.sim.stops > 0 {
		fault = faultproxy.None
		s.slow[response{p.proxy, p.call.N}] = true
	}
	s.let(p, fault)
}

// thaw makes those frozen calls arrive that would be late by lateFor after a jump of time. A
// process that stands still may send a call after that, so other calls wait. Those that have waited
// during such a jump before arrive as well: their process has sent them since, or given them up.
func (s *simulation) thaw(jump time.Duration) {
	now := time.Now().Add(s.jumped)
	for _, p := range slices.Clone(s.parked) {
		age := now.Sub(p.since)
		switch {
		case p.node == nil || p.slow || p.call.Operation == request:
		case p.frozen && age+jump >= lateFor, !p.frozen && age >= lateFor:
			s.arrive(p)
		}
	}
}

// nextDue returns a channel that is ready when the next frozen call is due.
func (s *simulation) nextDue() <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	var next time.Time
	for _, p := range s.parked {
		if p.frozen && (next.IsZero() || p.due.Before(next)) {
			next = p.due
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(next.Sub(time.Now().Add(s.jumped)))
}

// killed kills a node in the middle of its calls, and starts it again. Its calls that are on their
// way to storage may still arrive.
func (s *simulation) killed(n *node) {
	for _, p := range s.parked {
		if p.node == n && p.call.Operation != request && !p.frozen && !p.slow {
			s.freeze(p, s.rng.Float64())
		}
	}
	n.sim.stops = 0
	s.mu.Unlock()
	defer s.mu.Lock()
	n.kill()
	n.start()
}
