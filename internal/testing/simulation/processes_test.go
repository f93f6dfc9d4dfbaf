//go:build unix

// Package simulation causes every trouble around the service that can be caused here, and checks
// whether the service keeps its promises.
//
// Clients, some of them owners, shorten a few URLs, so that they collide. They follow, edit,
// delete, restore, claim and import the links, and renew their keys. Owners let links be opened
// only so often, and clients open them. Members of a team hand links over to it and take them back.
// An admin gives links to other owners, takes them down, and blocks their hosts. Reapers run as
// well. Meanwhile, storage calls fail, lose their responses or arrive late, nodes are killed and
// stopped, storage is cut off, and time passes. Then the checks follow:
//
//   - Porcupine checks the history of each URL and of each link against a model.
//   - No list may have missed a link that its owner had all the time.
//   - A link leads at most as often as its owner has said, and is over then.
//   - What nodes may have cached is checked against the link in the last 15 seconds.
//   - The counts of clicks are checked against the redirects that were answered, and against the
//     totals of a roll-up.
//   - The tables are checked for damage that no reaper would find.
//   - When everything was ended and its time has passed, the tables must be empty.
//
// The nodes are either simulated or processes. For simulated ones, simulation_test.go decides what
// happens, by a seed, in a bubble of testing/synctest. Processes run over Azurite; see
// processes_test.go. Both use the same clients and models.
package simulation

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tiney/internal/testing/azurite"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/testutil"
)

var (
	duration = flag.Duration("simulation.duration", 5*time.Second, "how long to go on")
	// The seed is fixed, so that a failure comes from a change of the code. make chaos tries other
	// seeds.
	seed = flag.Uint64("simulation.seed", 1,
		"the seed of the first round; 0: take one from the time")
	nodes = flag.Int("simulation.nodes", 2, "how many processes")
	rows  = flag.Int("simulation.rows", 10_000,
		"how many expired links the long tests reap; Azurite takes the longer for each, the more "+
			"there are")
	long = flag.Bool("simulation.long", false,
		"also run what takes minutes, since real leases and lifetimes have to run out")
)

var emulator azurite.Ports

func TestMain(m *testing.M) {
	http.DefaultTransport = provider{http.DefaultTransport}
	if os.Getenv("NODE_STORAGE") != "" {
		fmt.Fprintln(os.Stderr, serveNode())
		os.Exit(1)
	}
	flag.Parse()
	os.Exit(azurite.ForTests(func(ports azurite.Ports) int {
		emulator = ports
		return m.Run()
	}))
}

// tally counts what happened in all rounds.
type tally struct {
	rounds, acts, requests, unknown, faults, kills, stops, outages, advances, reaps, flushes,
	rollUps, checks, repairs, clicks, lost, unchecked, bulks, imports, blocks, opens,
	opened atomic.Int64
}

func (c *tally) String() string {
	return fmt.Sprintf("%d rounds, %d requests (%d of unknown outcome), %d faulty storage calls, "+
		"%d bulks, %d imports, %d blocks, %d openings of which %d led somewhere, "+
		"%d kills, %d stops, %d outages, %d clock changes, %d reaps, %d flushes, %d roll-ups, "+
		"%d checks that mended %d rows, %d clicks saved (at most %d lost by kills), "+
		"%d objects not checked in time",
		c.rounds.Load(), c.requests.Load(), c.unknown.Load(), c.faults.Load(), c.bulks.Load(),
		c.imports.Load(), c.blocks.Load(), c.opens.Load(), c.opened.Load(), c.kills.Load(),
		c.stops.Load(), c.outages.Load(), c.advances.Load(), c.reaps.Load(), c.flushes.Load(),
		c.rollUps.Load(), c.checks.Load(), c.repairs.Load(), c.clicks.Load(), c.lost.Load(),
		c.unchecked.Load())
}

func TestHistories(t *testing.T) {
	testutil.NotShort(t)
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	var c tally
	t.Cleanup(func() { t.Logf("%v; first seed %d", &c, first) })
	for end := time.Now().Add(*duration); time.Now().Before(end); {
		s := first + uint64(c.rounds.Load())
		if violations := play(t, s, &c); len(violations) > 0 {
			t.Fatalf("seed %d: %d violations:\n%s", s, len(violations),
				strings.Join(violations, "\n"))
		}
	}
}

type round struct {
	t      *testing.T
	count  *tally
	tables *rawtables.Tables
	prefix string
	env    []string // of all nodes, beside the variables of each one
	nodes  []*node
	client *http.Client
	quiet  quiet       // read-locked during a request, and locked where there must be none
	sim    *simulation // nil if the nodes are processes
	// Some histories are of links of another domain. In others, case does not matter, and one node
	// is asked in capitals.
	domain  string
	anyCase bool
	// In others, links are changed more often than followed, and there are few links at a time.
	change bool
	team   bool // in others, some owners are a team and its members
	owners []string
	// In others, hosts are blocked.
	blocking bool
	// In others, links are opened that may be opened only so often.
	opening bool

	mu         sync.Mutex
	history    []event
	settled    []event // the history when everything was settled
	hosts      []event // the changes of blocked hosts, and lists of them
	refused    []event // what was refused because of a blocked host
	uses       []use
	aliases    []string          // those that a response told of, in order
	guarded    []string          // those of links whose openings were set, in order
	tokens     map[string]string // the claim tokens, by alias
	owner      map[string]string // the owner that a response told of last, by alias
	etags      map[string]string // the last known ETags, by alias
	keys       map[string][]*key // by owner, the newest last
	runs       []*run
	violations []string
}

// domain is the domain of all nodes besides the default one.
const domain = "go.example"

// name returns the name of the link of an alias.
func (r *round) name(alias string) string {
	if r.anyCase {
		alias = strings.ToLower(alias)
	}
	if r.domain != "" {
		alias += "@" + r.domain
	}
	return alias
}

// in adds the domain to what is sent.
func (r *round) in(send map[string]any) map[string]any {
	if r.domain != "" {
		send["domain"] = r.domain
	}
	return send
}

// spelled returns a path as it is sent to a node.
func (r *round) spelled(path string, n *node) string {
	const links = "/api/links/"
	start, rest := "/", ""
	switch {
	case strings.HasPrefix(path, links) && path != links+"bulk":
		start = links
	case strings.Contains(path[1:], "/"):
		return path
	}
	alias, more, has := strings.Cut(path[len(start):], "/")
	if has {
		rest = "/" + more
	}
	if r.anyCase && n == r.nodes[len(r.nodes)-1] {
		alias = strings.ToUpper(alias)
	}
	if r.domain != "" && start == links {
		alias += "@" + r.domain
	}
	return start + alias + rest
}

func (r *round) violation(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

var prefixes atomic.Int64

// setup says how a round begins. The zero setup begins a round without faults.
type setup struct {
	seed  uint64
	count *tally   // nil: nothing is counted
	nodes int      // 0: the number in the flag
	env   []string // settings for all nodes
}

// newRound makes tables and starts nodes on them. It also returns a function that ends the nodes.
func newRound(t *testing.T, s setup) (r *round, end func()) {
	prefix := fmt.Sprintf("C%d", prefixes.Add(1))
	r = &round{t: t, count: s.count, prefix: prefix, env: s.env,
		tables: rawtables.Open(t, emulator.ConnectionString(), prefix),
		client: &http.Client{
			Timeout: 20 * time.Second,
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
			Transport: &http.Transport{MaxIdleConnsPerHost: 16},
		},
		tokens: map[string]string{}, etags: map[string]string{}, owner: map[string]string{},
		keys: map[string][]*key{}}
	if r.count == nil {
		r.count = new(tally)
	}
	r.team, r.blocking, r.opening = s.seed%2 == 1, s.seed%4 < 2, s.seed%8 < 4
	r.tables.DeletedKeep, r.tables.TombstoneFor = deletedKeep, tombstoneFor
	r.tables.Now = r.latest
	for i := range cmp.Or(s.nodes, *nodes) {
		n := &node{round: r, proxy: faultproxy.Start(emulator), rng: random(s.seed, uint64(100+i)),
			failed: map[string][]int64{}}
		n.proxy.Before(n.fault)
		n.clean.Store(true)
		n.start()
		r.nodes = append(r.nodes, n)
	}
	return r, func() {
		for _, n := range r.nodes {
			n.kill()
			n.proxy.Close()
		}
		r.client.CloseIdleConnections()
	}
}

// random returns one of a round's streams of random numbers.
func random(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// play plays one round, and returns the violations in it.
func play(t *testing.T, seed uint64, count *tally) []string {
	r, end := newRound(t, setup{seed: seed, count: count})
	defer end()
	r.enrol()
	for _, owner := range r.owners {
		if len(r.keys[owner]) == 0 {
			return append(r.violations, "no key can be made although all is well")
		}
	}
	for _, n := range r.nodes {
		n.clean.Store(false)
	}
	ctx, stop := context.WithCancel(context.Background())
	var clients, trouble sync.WaitGroup
	trouble.Go(func() { r.makeTrouble(ctx, random(seed, 0), kinds) })
	const acts = 40
	for i := range 8 {
		clients.Go(func() {
			for rng, n := random(seed, uint64(1+i)), 0; n < acts; n++ {
				r.act(rng)
			}
		})
	}
	clients.Wait()
	stop()
	trouble.Wait()
	r.settle()
	r.check()
	count.rounds.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.violations
}

// kinds is the number of kinds of trouble. The first kindsNow of them leave the clocks alone. The
// next one is a repair.
const kinds, kindsNow = 8, 5

// makeTrouble causes trouble for one process after another until ctx ends. At the end, all of them
// run.
func (r *round) makeTrouble(ctx context.Context, rng *rand.Rand, kinds int) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(20+rng.IntN(100)) * time.Millisecond):
		}
		n := r.nodes[rng.IntN(len(r.nodes))]
		trouble := rng.IntN(kinds)
		switch trouble {
		case 0:
			r.count.kills.Add(1)
			n.kill()
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			n.clean.Store(true) // so that it can make its tables
			n.start()
			n.clean.Store(false)
		case 1:
			r.count.stops.Add(1)
			n.signal(syscall.SIGSTOP)
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
			n.signal(syscall.SIGCONT)
		case 2:
			r.count.outages.Add(1)
			n.cut.Store(true)
			time.Sleep(time.Duration(100+rng.IntN(400)) * time.Millisecond)
			n.cut.Store(false)
		case 3:
			r.count.reaps.Add(1)
			n.control("reap")
		case 4:
			r.count.flushes.Add(1)
			n.flush()
		case 5:
			if rng.IntN(3) > 0 {
				continue // a repair takes long
			}
			r.quiet.Lock()
			// Existing rows become old enough for the repair. It meets the requests that come after
			// that.
			time.Sleep(checkAge)
			r.quiet.Unlock()
			n.check(checkAge)
		default:
			// The clocks are advanced one after the other. So they differ for a moment, but by less
			// than the promises allow. Nothing is under way then, and no poll either, since time
			// would pass too fast for that call alone.
			r.count.advances.Add(1)
			by := trusted + time.Duration(1+rng.IntN(10))*time.Second
			for _, i := range rng.Perm(len(r.nodes)) {
				r.quiet.Lock()
				r.nodes[i].proxy.Wait()
				r.nodes[i].advance(by)
				r.quiet.Unlock()
				time.Sleep(time.Duration(rng.IntN(50)) * time.Millisecond)
			}
		}
	}
}

// real returns the time that all clocks are compared with, in Unix nanoseconds.
func (r *round) real() int64 {
	if r.sim != nil {
		return r.sim.wall().UnixNano()
	}
	return time.Now().UnixNano()
}

// quiet can keep requests from being under way during an operation. A simulation does not need it.
type quiet struct {
	sync.RWMutex
	off bool
}

func (q *quiet) lock(lock func()) {
	if !q.off {
		lock()
	}
}

func (q *quiet) RLock()   { q.lock(q.RWMutex.RLock) }
func (q *quiet) RUnlock() { q.lock(q.RWMutex.RUnlock) }
func (q *quiet) Lock()    { q.lock(q.RWMutex.Lock) }
func (q *quiet) Unlock()  { q.lock(q.RWMutex.Unlock) }

// latest returns the latest time on any node's clock.
func (r *round) latest() time.Time { return slices.MaxFunc(r.clocks(), time.Time.Compare) }

// earliest returns the earliest time on any node's clock.
func (r *round) earliest() time.Time { return slices.MinFunc(r.clocks(), time.Time.Compare) }

func (r *round) clocks() []time.Time {
	var at []time.Time
	for _, n := range r.nodes {
		at = append(at, n.clock())
	}
	return at
}
