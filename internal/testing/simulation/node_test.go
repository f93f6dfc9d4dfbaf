//go:build unix

package simulation

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tiney/handler/app"
	"tiney/internal/telemetry"
	"tiney/internal/testing/faultproxy"
	"tiney/storage"
)

const (
	// hostAddress is the address at which a node expects the Functions host to reach it. The node
	// really listens elsewhere.
	hostAddress = "127.0.0.1:1"

	adminKey     = "the-admin-key-of-the-histories-of-chaos"
	deletedKeep  = 90 * time.Second // short enough to end within a round
	tombstoneFor = 24 * time.Hour
	// checkAge is more than the 6 seconds that a write of the service may take, including its
	// repair.
	checkAge = 7 * time.Second
	// trusted is how old a node's cached entries may be, by its own clock.
	trusted = 15 * time.Second
	// retried is how long after a failed read a node may use its cached entry without asking again,
	// by its own clock.
	retried = 5 * time.Second
	// waits is a little less than a request waits for news of blocked hosts.
	waits = 400 * time.Millisecond
)

// settingsOf returns the settings of a node.
func settingsOf(connectionString, prefix, pageSize string) (app.Settings, error) {
	env := map[string]string{
		"FUNCTIONS_CUSTOMHANDLER_PORT": "1", // see hostAddress; nothing runs on a schedule
		"BaseUrl":                      "https://tiney.to",
		"DOMAINS":                      domain,
		"AzureWebJobsStorage":          connectionString,
		"SHORTURL_TABLE_NAME":          prefix + "ShortUrls",
		"URLINDEX_TABLE_NAME":          prefix + "UrlIndex",
		"EXPIRYINDEX_TABLE_NAME":       prefix + "ShortUrlsExpiryIndex",
		"CACHE_SIZE_MB":                "1", "GC_MAX_SECONDS": "60", "GC_PAGE_SIZE": pageSize,
		"ADMIN_KEY":   adminKey,
		"OIDC_ISSUER": issuer, "OIDC_CLIENT_ID": clientID, "OIDC_GROUPS_CLAIM": "groups",
		"CLICKS_FLUSH_SECONDS": "1", "RATE_SHORTEN_PER_MINUTE": "0", "RATE_UNKNOWN_PER_MINUTE": "0",
		"RATE_API_PER_MINUTE":  "0",
		"CHANGES_SECONDS":      cmp.Or(os.Getenv("NODE_CHANGES"), "1"),
		"DELETED_KEEP_SECONDS": seconds(deletedKeep),
		"TOMBSTONE_DAYS":       cmp.Or(os.Getenv("NODE_TOMBSTONE_DAYS"), "1"),
	}
	return app.ReadSettings(func(name string) string { return env[name] })
}

// serveNode runs a process of the service. Its clock can be advanced, and it has endpoints for the
// test beside those of the functions. It runs until it is killed.
func serveNode() error {
	var offset atomic.Int64
	start, err := strconv.ParseInt(os.Getenv("NODE_CLOCK"), 10, 64)
	if err != nil {
		return err
	}
	offset.Store(start)
	now := func() time.Time { return time.Now().Add(time.Duration(offset.Load())) }
	prefix := os.Getenv("NODE_TABLES")
	pageSize := "10" // small, so that a round's few rows take several pages
	if os.Getenv("NODE_BIG_PAGES") != "" {
		pageSize = "1000"
	}
	settings, err := settingsOf(os.Getenv("NODE_STORAGE"), prefix, pageSize)
	if err != nil {
		return err
	}
	// Without NODE_STORAGE_CLOCK, the node uses only the test's clock.
	settings.Storage.Reap.StorageClock = os.Getenv("NODE_STORAGE_CLOCK") != ""
	node, err := app.New(context.Background(), settings, "chaos", now,
		telemetry.NewLogger(os.Stderr, slog.LevelError))
	if err != nil {
		return err
	}
	mux := muxOf(node, &offset)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	// On a machine that is busy with other tests, this may fail at first.
	for node.Links.EnsureTables(context.Background()) != nil {
		time.Sleep(time.Second)
	}
	go node.Links.FollowChanges(context.Background())
	go node.Links.Clicks.FlushRegularly(context.Background())
	fmt.Println(listener.Addr())
	return http.Serve(listener, mux)
}

// muxOf serves a node's functions, and endpoints for the test.
func muxOf(node *app.App, offset *atomic.Int64) http.Handler {
	var running atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/control/advance", func(_ http.ResponseWriter, r *http.Request) {
		by, err := time.ParseDuration(r.URL.Query().Get("by"))
		if err == nil {
			offset.Add(int64(by))
		}
	})
	// It reaps without the lock, so that reapers meet.
	mux.HandleFunc("/control/reap", func(w http.ResponseWriter, r *http.Request) {
		done, err := node.Links.Reap(r.Context())
		if err != nil || done.Failed > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		fmt.Fprintf(w, "%+v %v", done, err)
	})
	mux.HandleFunc("/control/flush", func(w http.ResponseWriter, r *http.Request) {
		if err := node.Links.Clicks.Flush(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
	mux.HandleFunc("/control/rollup", func(w http.ResponseWriter, r *http.Request) {
		if done, err := node.Links.Clicks.RollUp(r.Context()); err != nil || !done.Complete {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "%+v %v", done, err)
		}
	})
	// It repairs damage of at least the given age by the real clock, or all damage if the age is
	// zero.
	mux.HandleFunc("/control/check", func(w http.ResponseWriter, r *http.Request) {
		age, _ := time.ParseDuration(r.URL.Query().Get("age"))
		if age > 0 {
			age += time.Duration(offset.Load())
		}
		done, err := node.Links.Check(r.Context(), storage.CheckConfig{Repair: true, MinAge: age,
			Found: func(f storage.Finding) { fmt.Fprintf(w, "%+v\n", f) }})
		fmt.Fprintf(w, "%+v %v", done, err)
	})
	mux.HandleFunc("/control/goroutines", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, runtime.NumGoroutine())
	})
	mux.HandleFunc("/control/idle", func(http.ResponseWriter, *http.Request) {
		for running.Load() > 0 {
			time.Sleep(time.Millisecond)
		}
	})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		node.Handler.ServeHTTP(w, r)
	})
	return mux
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// node is a process with its own connection to storage.
type node struct {
	round *round
	proxy *faultproxy.Proxy
	cut   atomic.Bool // storage is cut off
	clean atomic.Bool // there are no more faults
	down  atomic.Bool // nobody listens

	sim *simulated // nil if the node is a process

	mu  sync.Mutex // held while the process changes
	cmd *exec.Cmd
	url atomic.Pointer[string]
	run atomic.Pointer[run] // the run since its last start

	ahead atomic.Int64 // how far its clock is ahead of the real one, in nanoseconds
	// jump is when the clock was last advanced by more than trusted, or when the process started.
	// It is real, in Unix nanoseconds.
	jump atomic.Int64

	faults sync.Mutex
	rng    *rand.Rand // of the proxy's faults
	// failed has the times when calls failed, or may have failed, by partition or by alias. They
	// are real, in Unix nanoseconds.
	failed map[string][]int64
}

// fault decides what happens to a storage call.
func (n *node) fault(c faultproxy.Call) faultproxy.Fault {
	if n.clean.Load() {
		return faultproxy.None
	}
	n.faults.Lock()
	defer n.faults.Unlock()
	f := faultproxy.None
	switch p := n.rng.Float64(); {
	case n.cut.Load():
		f = faultproxy.Refuse
	case p < 0.02:
		f = faultproxy.DropResponse
	case p < 0.035:
		f = faultproxy.Refuse
	case p < 0.045:
		f = faultproxy.ServerBusy
	case p < 0.046:
		f = faultproxy.Freeze
	}
	if f != faultproxy.None {
		n.note(c)
	}
	return f
}

// note records a fault. The caller holds n.faults.
func (n *node) note(c faultproxy.Call) {
	n.round.count.faults.Add(1)
	name := c.Partition
	switch {
	case c.Target == n.round.tables.Keys:
		name = keyReads
	case c.Target == n.round.tables.State:
		if name = stateWrites; c.Operation == "QueryEntities" || c.Operation == "GetEntity" {
			name = stateReads
		}
	case c.Operation == "UpdateEntity":
		name = writesOf(c.Partition)
	}
	n.failed[name] = append(n.failed[name], n.round.real())
}

// noteSlow records that a read of blocked hosts was slow. Redirects go by what the node knew until
// the read ends.
func (n *node) noteSlow(c faultproxy.Call, begun int64) {
	if c.Target != n.round.tables.State || c.Operation != "QueryEntities" {
		return
	}
	n.faults.Lock()
	defer n.faults.Unlock()
	for at := begun + int64(waits); at < n.round.real(); at += int64(retried) {
		n.failed[stateReads] = append(n.failed[stateReads], at)
	}
}

// keyReads is the name under which failed has all reads of keys. stateReads and stateWrites are
// those of announcements and blocked hosts.
const keyReads, stateReads, stateWrites = "keys", "state", "writes of state"

// writesOf returns the name under which failed has writes of links in a partition. The partition's
// own name is for reads.
func writesOf(partition string) string { return "writes of " + partition }

// failedBetween reports whether calls under one of the names may have failed between two times. The
// times are real, in Unix nanoseconds.
func (n *node) failedBetween(from, until int64, names ...string) bool {
	n.faults.Lock()
	defer n.faults.Unlock()
	for _, name := range names {
		if slices.ContainsFunc(n.failed[name], func(at int64) bool {
			return from <= at && at <= until
		}) {
			return true
		}
	}
	return false
}

// mayHaveFailed records that a request took so long that the node may have given up one of its
// calls.
func (n *node) mayHaveFailed(names ...string) {
	n.faults.Lock()
	defer n.faults.Unlock()
	for _, name := range names {
		n.failed[name] = append(n.failed[name], n.round.real())
	}
}

// start starts the node's process. Its clock goes on from where it was.
func (n *node) start() {
	if n.sim != nil {
		n.startSimulated()
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), n.round.env...), "NODE_STORAGE="+
		n.proxy.ConnectionString(), "NODE_TABLES="+n.round.prefix,
		"GORACE=halt_on_error=1", fmt.Sprintf("NODE_CLOCK=%d", n.ahead.Load()))
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
	n.run.Store(n.round.newRun())
	n.url.Store(&url)
	n.jump.Store(time.Now().UnixNano())
	n.down.Store(false)
}

func (n *node) kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down.Store(true)
	n.run.Load().killed.Store(true)
	if n.sim != nil {
		n.sim.kill()
		return
	}
	_ = n.cmd.Process.Kill()
	_ = n.cmd.Wait()
}

func (n *node) signal(s os.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	_ = n.cmd.Process.Signal(s)
}

// clock returns the time of the node's clock.
func (n *node) clock() time.Time {
	if n.sim != nil {
		return n.sim.now()
	}
	return time.Now().Add(time.Duration(n.ahead.Load()))
}

// advance moves the node's clock forward. No request may be under way.
func (n *node) advance(by time.Duration) {
	if status, body := n.control("advance?by=" + by.String()); status != 200 {
		n.round.t.Errorf("a clock cannot be advanced: %d %s", status, body)
	}
	n.ahead.Add(int64(by))
	if by > trusted {
		n.jump.Store(time.Now().UnixNano())
	}
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

// check repairs all damage of at least the given age.
func (n *node) check(age time.Duration) {
	_, body := n.control("check?age=" + age.String())
	n.round.count.checks.Add(1)
	n.round.count.repairs.Add(int64(strings.Count(body, "Mended:true")))
}

// fireTimer runs the reaper with the lock, as the Functions host does.
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
