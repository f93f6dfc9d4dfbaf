//go:build unix

package simulation

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tiney/internal/testing/rawtables"
	"tiney/storage/memtable"
	"tiney/storage/table"
)

var shrinks = flag.Bool("simulation.shrink", true, "look for the least that makes a history fail")

var operations = flag.Int64("simulation.operations", 10_000,
	"how many operations of clients to simulate")

// TestSimulation plays histories of simulated nodes, each from its own seed. It shrinks a history
// that fails.
func TestSimulation(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	percent := debug.SetGCPercent(800) // half of the time would go into it
	var c tally
	var next atomic.Uint64
	var failed atomic.Bool
	begin := time.Now()
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		t.Logf("%d operations, %.0f a second: %v; first seed %d", c.acts.Load(),
			float64(c.acts.Load())/time.Since(begin).Seconds(), &c, first)
		if c.unchecked.Load() > max(1, c.rounds.Load()/100) {
			t.Error("the models are too slow for more than one history in a hundred")
		}
	})
	for range runtime.GOMAXPROCS(0) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			for c.acts.Load() < *operations && !failed.Load() {
				p := plan{seed: first + next.Add(1) - 1}
				if violations, _ := simulate(t, p, &c); len(violations) > 0 {
					failed.Store(true)
					t.Errorf("-simulation.seed %d: %s", p.seed, strings.Join(violations, "\n"))
					if *shrinks {
						t.Log(shrink(t, p))
					}
				}
			}
		})
	}
}

// TestReplay plays each history twice. The same things happen, except if one request makes two
// calls for the same row at once: Go's scheduler decides which of them comes first.
func TestReplay(t *testing.T) {
	var c tally
	same := 0
	for s := range uint64(20) {
		_, one := simulate(t, plan{seed: s}, &c)
		_, two := simulate(t, plan{seed: s}, &c)
		if one == two {
			same++
		} else {
			t.Logf("seed %d: the second time, other things happened, from here on:\n%s", s,
				difference(one, two))
		}
	}
	if same < 10 {
		t.Errorf("%d of 20 histories happened twice", same)
	}
}

func difference(one, two string) string {
	a, b := strings.Split(one, "\n"), strings.Split(two, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			from := max(0, i-5)
			return strings.Join(a[from:min(len(a), i+5)], "\n") + "\n---\n" +
				strings.Join(b[from:min(len(b), i+5)], "\n")
		}
	}
	return "one is longer"
}

// shrink leaves out acts and troubles as long as the history still fails. It returns the shrunk
// history.
func shrink(t *testing.T, p plan) string {
	var c tally
	fails := func(p plan) (string, bool) {
		violations, trace := simulate(t, p, &c)
		return strings.Join(violations, "\n") + "\n" + trace, len(violations) > 0
	}
	text, _ := fails(p)
	try := func(set *map[int]bool, count int) {
		for step := count / 2; step > 0; step /= 2 {
			for i := 0; i < count; i += step {
				before := *set
				*set = maps.Clone(before)
				if *set == nil {
					*set = map[int]bool{}
				}
				for n := i; n < i+step; n++ {
					(*set)[n] = true
				}
				if left, ok := fails(p); ok {
					text = left
				} else {
					*set = before
				}
			}
		}
	}
	try(&p.skip, maxTroubles)
	try(&p.without, maxActs*maxClients)
	try(&p.skip, maxTroubles)
	return fmt.Sprintf("shrunk by %d more histories, to %d acts:\n%s", c.rounds.Load(),
		maxActs*maxClients-len(p.without), text)
}

// plan is a history to simulate.
type plan struct {
	seed    uint64
	without map[int]bool // the acts to leave out, by client*maxActs + their number
	skip    map[int]bool // the troubles to leave out
}

const (
	maxActs     = 20
	maxClients  = 4
	maxTroubles = 512 // the number of troubles that can be left out
)

// simulate plays a history. It returns the violations in it, and a trace of everything that
// happened.
func simulate(t *testing.T, p plan, c *tally) (violations []string, trace string) {
	var r *round
	s := &simulation{rng: random(p.seed, 0), slow: map[response]bool{}, skip: p.skip}
	synctest.Test(t, func(t *testing.T) {
		s.came = make(chan struct{}, 1)
		s.service = memtable.New(s.wall)
		r = &round{t: t, count: c, prefix: "S", sim: s, client: &http.Client{Transport: s,
			Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			}},
			tables: rawtables.On(t, func(name string) table.Table {
				return s.service.Table(name)
			}, "S"),
			tokens: map[string]string{}, etags: map[string]string{}, owner: map[string]string{},
			keys: map[string][]*key{}}
		r.quiet.off, r.change = true, p.seed%2 == 1
		r.team, r.blocking, r.opening = p.seed/6%2 == 1, p.seed/12%2 == 1, p.seed/2%2 == 1
		switch p.seed % 3 {
		case 1:
			r.domain = domain
		case 2:
			r.anyCase = true
		}
		r.tables.DeletedKeep, r.tables.TombstoneFor, r.tables.Now = deletedKeep, tombstoneFor,
			r.latest
		s.round = r
		r.tables.Make()
		clients, nodes := 2+s.rng.IntN(maxClients-1), 2+s.rng.IntN(2)
		for i := range nodes {
			n := &node{round: r, failed: map[string][]int64{}, sim: &simulated{simulation: s,
				index: i, begun: map[*http.Request]time.Time{}, seed: p.seed,
				skew: time.Duration(s.rng.IntN(30)) * time.Second}}
			n.start()
			r.nodes = append(r.nodes, n)
		}
		s.quiet = true
		s.run(r.enrol)
		s.quiet = false
		s.run(func() {
			var all sync.WaitGroup
			for i := range clients {
				all.Go(func() {
					for rng, n := random(p.seed, uint64(1+i)), 0; n < maxActs; n++ {
						s.turn(i)
						// The act stays the same if others are left out.
						act := rand.New(rand.NewPCG(rng.Uint64(), 0))
						if !p.without[i*maxActs+n] {
							c.acts.Add(1)
							r.act(act)
						}
					}
				})
			}
			all.Wait()
		})
		s.quiet = true
		s.run(func() {
			s.ops.Wait()
			time.Sleep(10 * time.Second) // for reads that nobody waits for any more
			r.settle()
		})
		for _, n := range r.nodes {
			n.kill()
		}
		s.run(func() { time.Sleep(10 * time.Minute) }) // so that the work of killed nodes ends
	})
	r.check()
	c.rounds.Add(1)
	return r.violations, s.trace.String()
}

// seeded gives the same random bytes for the same seed and stream. Requests of a node share it.
type seeded struct {
	mu    sync.Mutex
	bytes *rand.ChaCha8
}

func (s *seeded) Read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes.Read(b)
}

func newSeeded(seed uint64, stream int) *seeded {
	var key [32]byte
	rng := random(seed, uint64(1000+stream))
	for i := range key {
		key[i] = byte(rng.Uint32())
	}
	return &seeded{bytes: rand.NewChaCha8(key)}
}
