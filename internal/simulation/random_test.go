//go:build unix

package simulation

import (
	"flag"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tiney/internal/rawtables"
	"tiney/storage"
	"tiney/storage/memtable"
)

var operations = flag.Int64("simulation.operations", 2_000, "how many operations of clients to simulate")

// TestSimulation plays histories of simulated nodes, each from its seed.
func TestSimulation(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	var c tally
	begin := time.Now()
	for s := first; c.acts.Load() < *operations; s++ {
		if violations, _ := simulate(t, plan{seed: s}, &c); len(violations) > 0 {
			t.Fatalf("seed %d: %s", s, strings.Join(violations, "\n"))
		}
	}
	took := time.Since(begin)
	t.Logf("%d operations, %.0f a second: %v; first seed %d", c.acts.Load(),
		float64(c.acts.Load())/took.Seconds(), &c, first)
}

// plan is a history to simulate.
type plan struct {
	seed    uint64
	without map[int]bool // acts that are left out, by client*maxActs + their number
	skip    map[int]bool // troubles that are left out
}

const (
	maxActs    = 20
	maxClients = 4
)

// simulate plays a history, and returns what went wrong in it, and all that happened.
func simulate(t *testing.T, p plan, c *tally) (violations []string, trace string) {
	var r *round
	s := &simulation{rng: random(p.seed, 0), skip: p.skip}
	synctest.Test(t, func(t *testing.T) {
		s.service = memtable.New(s.wall)
		r = &round{t: t, count: c, prefix: "S", sim: s, client: &http.Client{Transport: s,
			Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			}},
			tables: rawtables.On(t, func(name string) storage.Table { return s.service.Table(name) }, "S"),
			tokens: map[string]string{}, etags: map[string]string{}, keys: map[string][]*key{}}
		r.quiet.off = true
		r.tables.DeletedKeep, r.tables.TombstoneFor, r.tables.Now = deletedKeep, tombstoneFor, r.latest
		s.round = r
		r.tables.Make()
		clients, nodes := 2+s.rng.IntN(maxClients-1), 2+s.rng.IntN(2)
		for i := range nodes {
			n := &node{round: r, failed: map[string][]int64{}, sim: &simulated{simulation: s, index: i,
				skew: time.Duration(s.rng.IntN(30)) * time.Second, random: chacha(p.seed, i)}}
			n.start()
			r.nodes = append(r.nodes, n)
		}
		s.quiet = true
		s.run(func() {
			for _, owner := range owners {
				r.newKey(r.nodes[0], owner)
			}
		})
		s.quiet = false
		s.run(func() {
			var all sync.WaitGroup
			for i := range clients {
				all.Go(func() {
					for rng, n := random(p.seed, uint64(1+i)), 0; n < maxActs; n++ {
						s.turn(i)
						act := rand.New(rand.NewPCG(rng.Uint64(), 0)) // the same one if others are left out
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
			r.settle()
		})
		for _, n := range r.nodes {
			n.kill()
		}
		s.run(func() { time.Sleep(10 * time.Minute) }) // what killed nodes have begun ends
	})
	r.check()
	c.rounds.Add(1)
	return r.violations, s.trace.String()
}

func chacha(seed uint64, stream int) *rand.ChaCha8 {
	var key [32]byte
	rng := random(seed, uint64(1000+stream))
	for i := range key {
		key[i] = byte(rng.Uint32())
	}
	return rand.NewChaCha8(key)
}
