//go:build unix

// Package chaos breaks everything around the service that can be broken here, and looks whether it keeps its promises.
//
// Each round starts a few processes on a set of tables of their own. Clients shorten a few URLs, so that they collide,
// follow the links and disable some of them, and reapers run, while storage calls fail or lose their responses, processes
// are killed and stopped, storage is cut off, and the clock is put forward past expiries. The history of each URL is
// then checked against a model with porcupine, and the tables are searched for what no reaper would ever find.
package chaos

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"tiney/internal/azurite"
	"tiney/internal/faultproxy"
	"tiney/internal/rawtables"
)

var (
	duration = flag.Duration("chaos.duration", 5*time.Second, "how long to go on")
	seed     = flag.Uint64("chaos.seed", 0, "the seed of the first round; 0: take one from the time")
	nodes    = flag.Int("chaos.nodes", 2, "how many processes")
	rows     = flag.Int("chaos.rows", 10_000, "how many expired links the long tests reap; Azurite takes the longer for each, the more there are")
	long     = flag.Bool("chaos.long", false, "also run what takes minutes, since real leases and lifetimes have to run out")
)

var emulator azurite.Ports

func TestMain(m *testing.M) {
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

// tally counts what was done over all rounds.
type tally struct {
	rounds, requests, unknown, faults, kills, stops, outages, advances, reaps atomic.Int64
}

func (c *tally) String() string {
	return fmt.Sprintf("%d rounds, %d requests (%d of unknown outcome), %d faulty storage calls, %d kills, %d stops, %d outages, %d clock changes, %d reaps",
		c.rounds.Load(), c.requests.Load(), c.unknown.Load(), c.faults.Load(), c.kills.Load(), c.stops.Load(), c.outages.Load(), c.advances.Load(), c.reaps.Load())
}

// sabotage breaks what the service relies on, so that a check must find a violation.
type sabotage struct {
	fault func(faultproxy.Call) faultproxy.Fault
	found string // in the text of the violation
}

func TestHistories(t *testing.T) {
	first := *seed
	if first == 0 {
		first = uint64(time.Now().UnixNano())
	}
	var c tally
	t.Cleanup(func() { t.Logf("%v; first seed %d", &c, first) })
	for end := time.Now().Add(*duration); time.Now().Before(end); {
		s := first + uint64(c.rounds.Load())
		if violations := play(t, s, &c, nil); len(violations) > 0 {
			t.Fatalf("seed %d: %d violations:\n%s", s, len(violations), strings.Join(violations, "\n"))
		}
	}
}

// on injects a fault into an operation on the tables whose names end so, if the call's number is a multiple of every.
func on(operation, table string, every int, fault faultproxy.Fault) func(faultproxy.Call) faultproxy.Fault {
	return func(c faultproxy.Call) faultproxy.Fault {
		if c.Operation == operation && strings.HasSuffix(c.Target, table) && c.N%every == 0 {
			return fault
		}
		return faultproxy.None
	}
}

// The service keeps its promises only because storage does what it says and writes come in the order they are made.
// With that broken, the checks must find a violation, or they are worth nothing.
func TestChecksFindBrokenPromises(t *testing.T) {
	for name, broken := range map[string]sabotage{
		"expiry rows are not written before their links":      {on("InsertEntity", "ExpiryIndex", 5, faultproxy.Lie), "has no expiry row"},
		"every insert into the index wins":                    {on("InsertEntity", "UrlIndex", 1, faultproxy.Lie), "not the history of a URL with one live link"},
		"links are not written":                               {on("InsertEntity", "ShortUrls", 3, faultproxy.Lie), "is not found"},
		"stale index rows are replaced by whoever comes last": {on("UpdateEntity", "UrlIndex", 1, faultproxy.Unconditional), "not the history of a URL with one live link"},
		"no row is ever written":                              {on("InsertEntity", "", 1, faultproxy.Refuse), "although all is well"},
	} {
		t.Run(name, func(t *testing.T) {
			var c tally
			for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); { // it takes seconds on most machines
				seed := uint64(time.Now().UnixNano())
				for _, v := range play(t, seed, &c, &broken) {
					if strings.Contains(v, broken.found) {
						t.Logf("found in round %d, seed %d: %s", c.rounds.Load(), seed, v)
						return
					}
				}
			}
			t.Errorf("nothing of the kind was found: %v", &c)
		})
	}
}

// node is a process, with its own way to storage.
type node struct {
	round *round
	proxy *faultproxy.Proxy
	cut   atomic.Bool // storage is cut off
	clean atomic.Bool // no faults any more
	rng   *rand.Rand  // of the proxy's faults
	rngMu sync.Mutex

	mu  sync.Mutex // held while the process changes
	cmd *exec.Cmd
	url atomic.Pointer[string]

	// The process's clock is ahead of the real one by at least behind and at most ahead.
	behind, ahead atomic.Int64
}

type round struct {
	t        *testing.T
	count    *tally
	tables   *rawtables.Tables
	prefix   string
	sabotage *sabotage // nil for none
	nodes    []*node
	client   *http.Client

	mu           sync.Mutex
	history      []porcupine.Operation
	owner        map[string]string    // alias → URL, by every response that named both
	promised     map[string]time.Time // alias → expiry, of links that were acknowledged
	told         map[string]bool      // aliases that so far were only found, and whose 201 is to come
	acknowledged []string             // the aliases of promised, in order
	disabled     map[string]bool      // aliases that somebody has begun to disable
	violations   []string
}

func (r *round) violation(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

func (r *round) found(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.violations, func(v string) bool { return strings.Contains(v, text) })
}

var prefixes atomic.Int64

// newRound makes tables and starts nodes on them, and returns what ends them again.
func newRound(t *testing.T, seed uint64, count *tally, broken *sabotage) (r *round, end func()) {
	prefix := fmt.Sprintf("C%d", prefixes.Add(1))
	r = &round{t: t, count: count, prefix: prefix, sabotage: broken,
		tables: rawtables.Open(t, emulator.ConnectionString(), prefix),
		client: &http.Client{
			Timeout:       20 * time.Second,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Transport:     &http.Transport{MaxIdleConnsPerHost: 16},
		},
		owner: map[string]string{}, told: map[string]bool{}, promised: map[string]time.Time{}, disabled: map[string]bool{}}
	for i := range *nodes {
		n := &node{round: r, proxy: faultproxy.Start(emulator), rng: random(seed, uint64(100+i))}
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

// random is one of the streams of random numbers of a round.
func random(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

// play plays one round and returns what went wrong in it.
func play(t *testing.T, seed uint64, count *tally, broken *sabotage) []string {
	r, end := newRound(t, seed, count, broken)
	defer end()
	for _, n := range r.nodes {
		n.clean.Store(false)
	}
	ctx, stop := context.WithCancel(context.Background())
	var clients, trouble sync.WaitGroup
	trouble.Go(func() { r.makeTrouble(ctx, random(seed, 0)) })
	acts := 40
	if broken != nil {
		acts = 20 // porcupine may take long over an illegal history
	}
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
	count.rounds.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.violations
}

// fault decides what becomes of a storage call.
func (n *node) fault(c faultproxy.Call) faultproxy.Fault {
	if broken := n.round.sabotage; broken != nil {
		if f := broken.fault(c); f != faultproxy.None {
			return f
		}
	}
	if n.clean.Load() {
		return faultproxy.None
	}
	f := faultproxy.None
	if n.cut.Load() {
		f = faultproxy.Refuse
	} else {
		n.rngMu.Lock()
		p := n.rng.Float64()
		n.rngMu.Unlock()
		switch {
		case p < 0.02:
			f = faultproxy.DropResponse
		case p < 0.035:
			f = faultproxy.Refuse
		case p < 0.045:
			f = faultproxy.ServerBusy
		case p < 0.046:
			f = faultproxy.Freeze
		}
	}
	if f != faultproxy.None {
		n.round.count.faults.Add(1)
	}
	return f
}

// start starts the node's process with its clock where it was.
func (n *node) start() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.behind.Store(n.ahead.Load())
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "NODE_STORAGE="+n.proxy.ConnectionString(), "NODE_TABLES="+n.round.prefix, "GORACE=halt_on_error=1", fmt.Sprintf("NODE_CLOCK=%d", n.ahead.Load()))
	cmd.Stderr = n.round.t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		n.round.t.Error(err)
		return
	}
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		n.round.t.Errorf("a node did not start: %v", err)
	}
	url := "http://" + strings.TrimSpace(address)
	n.cmd = cmd
	n.url.Store(&url)
}

func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

func (n *node) signal(s os.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.cmd.Process.Signal(s)
}

// from and until are bounds of the node's clock now.
func (n *node) from() time.Time  { return time.Now().Add(time.Duration(n.behind.Load())) }
func (n *node) until() time.Time { return time.Now().Add(time.Duration(n.ahead.Load())) }

// advance puts the node's clock forward.
func (n *node) advance(by time.Duration) {
	n.ahead.Add(int64(by))
	if status, _ := n.control("advance?by=" + by.String()); status != 200 {
		return // it is being killed; the next process starts with the new time
	}
	n.behind.Store(n.ahead.Load())
}

func (n *node) control(what string) (int, string) {
	got, err := n.round.client.Post(*n.url.Load()+"/control/"+what, "", nil)
	if err != nil {
		return 0, err.Error()
	}
	defer got.Body.Close()
	body, _ := io.ReadAll(got.Body)
	return got.StatusCode, string(body)
}

// fireTimer runs the reaper under the lock, as the Functions host does.
func (n *node) fireTimer() (int, error) {
	req, err := http.NewRequest(http.MethodPost, *n.url.Load()+"/reaper", strings.NewReader(`{}`))
	if err != nil {
		return 0, err
	}
	req.Host = hostAddress
	got, err := n.round.client.Do(req)
	if err != nil {
		return 0, err
	}
	got.Body.Close()
	return got.StatusCode, nil
}

// makeTrouble does something to one process after the other until ctx ends, and leaves all of them running.
func (r *round) makeTrouble(ctx context.Context, rng *rand.Rand) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(20+rng.IntN(100)) * time.Millisecond):
		}
		n := r.nodes[rng.IntN(len(r.nodes))]
		trouble := rng.IntN(6)
		if r.sabotage != nil && trouble < 4 {
			continue // only lifetimes end: requests without a response make a violation harder to find
		}
		switch trouble {
		case 0:
			r.count.kills.Add(1)
			n.kill()
			time.Sleep(time.Duration(rng.IntN(100)) * time.Millisecond)
			n.clean.Store(true) // so that it gets to its tables
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
		default:
			// One after the other, so that their clocks differ for a moment: by less than what the promises allow.
			r.count.advances.Add(1)
			by := time.Duration(1+rng.IntN(40)) * time.Second
			for _, n := range r.nodes {
				n.advance(by)
			}
		}
	}
}

// act is one thing that a client does.
func (r *round) act(rng *rand.Rand) {
	n := r.nodes[rng.IntN(len(r.nodes))]
	r.count.requests.Add(1)
	switch p := rng.IntN(100); {
	case p < 60:
		ttls := []time.Duration{time.Minute, 90 * time.Second, time.Hour}
		r.shorten(n, r.url(rng.IntN(urls)), ttls[rng.IntN(len(ttls))])
	case p < 97:
		if a, ok := r.someAlias(rng); ok {
			r.follow(n, a)
		}
	default:
		if a, ok := r.someAlias(rng); ok {
			r.disable(a)
		}
	}
}

func (r *round) someAlias(rng *rand.Rand) (string, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.acknowledged) == 0 {
		return "", false
	}
	return r.acknowledged[rng.IntN(len(r.acknowledged))], true
}

func (r *round) record(in request, call time.Time, out response) {
	o := porcupine.Operation{Input: in, Call: call.UnixNano(), Output: out, Return: time.Now().UnixNano()}
	if !in.disable && !out.known() {
		r.count.unknown.Add(1)
		o.Return = call.Add(time.Hour).UnixNano() // it may take effect later
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.history = append(r.history, o)
}

// urls is how many URLs a round's clients shorten.
const urls = 3

func (r *round) url(i int) string { return fmt.Sprintf("https://example.com/%s/%d", r.prefix, i) }

func (r *round) shorten(n *node, url string, ttl time.Duration) response {
	in, call := request{url: url, ttl: ttl, from: n.from()}, time.Now()
	out := func() response {
		got, err := r.client.Post(*n.url.Load()+"/api/shorten", "application/json",
			strings.NewReader(fmt.Sprintf(`{"longUrl":%q,"expiresInSeconds":%d}`, url, ttl/time.Second)))
		if err != nil {
			return response{}
		}
		defer got.Body.Close()
		var l struct {
			Alias        string
			LongURL      string
			ExpiresAtUTC time.Time
		}
		if err := json.NewDecoder(got.Body).Decode(&l); err != nil {
			return response{} // killed in the middle of its response
		}
		if (got.StatusCode == 200 || got.StatusCode == 201) && l.LongURL != url {
			r.violation("shorten of %s returned a link to %s", url, l.LongURL)
		}
		return response{got.StatusCode, l.Alias, l.ExpiresAtUTC}
	}()
	in.until = n.until()
	r.record(in, call, out)
	switch out.status {
	case 200, 201:
		r.mu.Lock()
		if other, ok := r.owner[out.alias]; ok && other != url {
			r.violations = append(r.violations, fmt.Sprintf("alias %s was %s and is %s", out.alias, other, url))
		}
		if _, known := r.owner[out.alias]; known && out.status == 201 && !r.told[out.alias] {
			r.violations = append(r.violations, fmt.Sprintf("alias %s was made twice", out.alias))
		}
		if _, known := r.owner[out.alias]; !known {
			r.acknowledged = append(r.acknowledged, out.alias)
		}
		// Another caller may have been told of it, with 200, before the one that made it was, with 201.
		r.told[out.alias] = out.status == 200 && (r.told[out.alias] || r.owner[out.alias] == "")
		r.owner[out.alias] = url
		r.promised[out.alias] = out.expiresAt
		r.mu.Unlock()
	case 0, 403, 503:
	default:
		r.violation("shorten of %s: %+v", url, out)
	}
	return out
}

// latest is the latest time on any node's clock.
func (r *round) latest() time.Time {
	at := r.nodes[0].until()
	for _, n := range r.nodes[1:] {
		if until := n.until(); until.After(at) {
			at = until
		}
	}
	return at
}

// follow follows a link that was acknowledged, and returns the status.
func (r *round) follow(n *node, alias string) int {
	from := n.from()
	got, err := r.client.Get(*n.url.Load() + "/" + alias)
	if err != nil {
		return 0
	}
	got.Body.Close()
	latest := r.latest()
	r.mu.Lock()
	url, expires, disabled := r.owner[alias], r.promised[alias], r.disabled[alias]
	r.mu.Unlock()
	dead := !expires.After(latest)
	switch got.StatusCode {
	case 302:
		if location := got.Header.Get("Location"); location != url {
			r.violation("%s leads to %s instead of %s", alias, location, url)
		}
		if !expires.After(from) {
			r.violation("%s redirects at %v, past its expiry at %v", alias, from, expires)
		}
	case 410:
		if !dead && !disabled {
			r.violation("%s is gone at %v, and should live until %v", alias, latest, expires)
		}
	case 404:
		if !dead {
			r.violation("%s is not found at %v, and should live until %v", alias, latest, expires)
		}
	case 503:
	default:
		r.violation("%s: got %d", alias, got.StatusCode)
	}
	return got.StatusCode
}

// disable disables a link in the table, by another hand.
func (r *round) disable(alias string) {
	r.mu.Lock()
	url := r.owner[alias]
	r.disabled[alias] = true
	r.mu.Unlock()
	call := time.Now()
	r.tables.Disable(alias)
	r.record(request{url: url, disable: true, alias: alias}, call, response{})
}

// settle ends all faults and looks at what the round has left.
func (r *round) settle() {
	for _, n := range r.nodes {
		n.clean.Store(true)
	}
	for _, n := range r.nodes {
		if status, body := n.control("idle"); status != 200 {
			r.violation("a node does not come to rest: %d %s", status, body)
		}
		n.proxy.Wait()
	}
	// All is well now, so each URL gets a link, or has one, or is told that it is disabled: the same from every node.
	for u := range urls {
		aliases := map[string]bool{}
		for _, n := range r.nodes {
			out := r.shorten(n, r.url(u), time.Hour)
			if !out.known() {
				r.violation("shorten of %s: got %d although all is well", r.url(u), out.status)
			}
			aliases[out.alias] = true
		}
		if len(aliases) != 1 && !aliases[""] { // a 403 of one node, where another has the link cached, names none
			r.violation("the nodes do not agree on the alias of %s: %v", r.url(u), aliases)
		}
	}
	r.mu.Lock()
	history := slices.Clone(r.history)
	promised := map[string]time.Time{}
	for a, expires := range r.promised {
		promised[a] = expires
	}
	r.mu.Unlock()
	for _, leak := range r.tables.Leaks() {
		r.violation("%s", leak)
	}
	for a := range promised {
		for _, n := range r.nodes {
			// All is well again, so a live link must redirect, but for a stale moment of the cache.
			if status := r.follow(n, a); status == 503 || status == 0 {
				r.violation("%s: got %d although all is well", a, status)
			}
		}
	}
	for _, n := range r.nodes {
		// A few for each connection; requests that hang would leave hundreds over a round.
		_, body := n.control("goroutines")
		if left, err := strconv.Atoi(body); err != nil || left > 150 {
			r.violation("%s goroutines are left at rest", body)
		}
	}
	for _, n := range r.nodes {
		n.advance(48 * time.Hour)
	}
	for _, n := range r.nodes {
		if status, body := n.control("reap"); status != 200 {
			r.violation("reap: %d %s", status, body)
		}
	}
	for _, table := range []string{r.tables.Links, r.tables.Index, r.tables.Expiry} {
		for _, row := range r.tables.Rows(table) {
			r.violation("left in %s when all was over: %v", table, row)
		}
	}
	r.tables.Remove()
	patience := time.Minute
	if r.sabotage != nil {
		patience = 10 * time.Second // another round may find it sooner
	}
	for _, part := range urlModel.Partition(history) {
		if r.sabotage != nil && r.found(r.sabotage.found) {
			return
		}
		switch porcupine.CheckOperationsTimeout(urlModel.ToModel(), part, patience) {
		case porcupine.Illegal:
			r.violation("this is not the history of a URL with one live link at a time:\n%s", describe(part))
		case porcupine.Unknown:
			r.violation("a history of %d operations took too long to check", len(part))
		}
	}
}

func describe(history []porcupine.Operation) string {
	var b strings.Builder
	start := history[0].Call
	for _, o := range history {
		start = min(start, o.Call)
	}
	for _, o := range history {
		in, out := o.Input.(request), o.Output.(response)
		fmt.Fprintf(&b, "  %7.1f-%7.1f ms: ", float64(o.Call-start)/1e6, float64(o.Return-start)/1e6)
		if in.disable {
			fmt.Fprintf(&b, "disable %s\n", in.alias)
			continue
		}
		fmt.Fprintf(&b, "shorten for %v at %s to %s -> %d %s until %s\n", in.ttl, in.from.Format(time.TimeOnly), in.until.Format(time.TimeOnly),
			out.status, out.alias, out.expiresAt.Format(time.TimeOnly))
	}
	return b.String()
}
