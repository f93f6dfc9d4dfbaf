package storage_test

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/internal/testing/azurite"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/internal/testing/teststore"
	"tiney/internal/testing/testutil"
	"tiney/storage"
	"tiney/storage/counts"
	"tiney/storage/memtable"
	"tiney/storage/table"
)

// emulator is the one Azurite of all tests here. Each test has tables of its own in it.
var emulator azurite.Ports

// parallel is how many tests in memory run at once: most of them only wait for timers.
var parallel = "32"

func TestMain(m *testing.M) {
	flag.Parse()
	if *inMemory {
		flag.Set("test.parallel", parallel)
	}
	os.Exit(azurite.ForTests(func(ports azurite.Ports) int {
		emulator = ports
		return m.Run()
	}))
}

// inMemory says where the tables of the tests are, but of those that are about the client of Azure.
var inMemory = flag.Bool("memory", true, "keep tables in memory, and not in Azurite")

// ctx gives a try as much time as its call has: on a busy machine the emulator may stand still for
// longer than a try of the product takes, and may leave an expiry row to the reaper.
var ctx = faultproxy.Patient(hasty)

// hasty leaves the tries as the product has them, for tests in which they have to run out of time.
var hasty = context.Background()

// must ends a test that cannot go on after an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// should fails a test that can go on after an error.
func should(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// slack is what a slow machine may take longer than the clock says. What is really late here is
// later than that: it waits for what nobody responds to, until the connection's own limit of ten
// seconds ends it.
const slack = 4500 * time.Millisecond

// rig is one set of tables, and the ways to it.
type rig struct {
	t     testing.TB
	proxy *faultproxy.Proxy
	place
	clock   *testutil.Clock
	metrics *telemetry.Metrics
	config  storage.Config
	sender  *telemetry.Sender // gets the calls of the rig's stores; nil: nothing does
	clicked bool              // there are clicks to be rolled up
	given   link.Name         // see giveOne
	// creates that were stopped too long, and whose second for repairs was over too early
	left              atomic.Int64
	*rawtables.Tables // around the proxy
}

// logged counts how often a message is logged.
type logged struct {
	slog.Handler
	message string
	times   *atomic.Int64
}

func (l logged) Handle(ctx context.Context, line slog.Record) error {
	if line.Message == l.message {
		l.times.Add(1)
	}
	return l.Handler.Handle(ctx, line)
}

// untilRepaired plays on new rigs until a create that was stopped too long could be repaired: on a
// machine that stands still for the second that a repair may take, it cannot, and says so.
func untilRepaired(t *testing.T, play func(r *rig) (check func())) {
	t.Helper()
	for try := 1; ; try++ {
		r := newRig(t)
		if check := play(r); r.left.Load() == 0 || try == 10 {
			check()
			return
		}
	}
}

var rigs atomic.Int64

// newRig makes a rig. Its stores reach storage through a proxy of their own, leave no tombstones,
// and do not ask for the changes of others: tests that are about that set it.
func newRig(t testing.TB) *rig {
	t.Helper()
	if *inMemory {
		return newRigAt(t, newMemory(time.Now))
	}
	return newRigAt(t, newAzurite(t, emulator))
}

// place is where the tables of a rig are.
type place struct {
	direct   func(name string) table.Table // tables that no proxy sees
	newProxy func() *faultproxy.Proxy
}

func newMemory(now func() time.Time) place {
	service := memtable.New(now)
	return place{
		direct:   service.Table,
		newProxy: func() *faultproxy.Proxy { return faultproxy.InMemory(service) },
	}
}

// newAzurite is a place in an emulator. Where tests are in memory otherwise, a test of it must not
// be parallel to them: beside busy tests, the emulator stands still for longer than calls may take.
func newAzurite(t testing.TB, ports azurite.Ports) place {
	t.Helper()
	return place{
		direct: connect(t, ports.ConnectionString(), nil),
		newProxy: func() *faultproxy.Proxy {
			p := faultproxy.Start(ports)
			t.Cleanup(p.Close)
			return p
		},
	}
}

func newRigAt(t testing.TB, where place) *rig {
	t.Helper()
	r := &rig{t: t, place: where, proxy: where.newProxy(), clock: testutil.NewClock(),
		metrics: new(telemetry.Metrics)}
	r.Tables = rawtables.On(t, r.direct, fmt.Sprintf("T%d", rigs.Add(1)))
	r.TombstoneFor, r.KeepDays, r.Now = 0, keepDays, r.clock.Now
	r.config = storage.Config{
		Open: r.through(r.proxy), Timeout: table.Timeout,
		// On a busy machine the emulator may stand still for longer than people wait.
		ChangesWait: 2 * time.Second, StaleWait: 2 * time.Second,
		Tables: storage.Tables{Links: r.Links, Index: r.Index, Expiry: r.Expiry, Owners: r.Owners,
			Keys: r.Keys, State: r.State,
			Clicks: r.Clicks, ClickTotals: r.ClickTotals},
		AliasLength: 6,
		DeletedKeep: teststore.DeletedKeep,
		Reap:        storage.ReapConfig{PageSize: 1000, Pause: time.Millisecond},
		Clicks:      counts.Settings{KeepDays: keepDays},
		Now:         r.clock.Now, Random: rand.Reader,
		Log: slog.New(logged{slog.NewTextHandler(t.Output(), nil), telemetry.LogCreateTooLate,
			&r.left}), Metrics: r.metrics,
	}
	return r
}

// through opens tables through a proxy.
func (r *rig) through(p *faultproxy.Proxy) func(name string) table.Table {
	open, err := p.Open()
	must(r.t, err)
	return open
}

const keepDays = 400 // of clicks

// leaveTombstones makes the rig's stores leave tombstones for so long.
func (r *rig) leaveTombstones(d time.Duration) { r.TombstoneFor, r.config.TombstoneFor = d, d }

// newCrashRig makes a rig for operations that break off: with tombstones, tables, and a store that
// nothing harms.
func newCrashRig(t testing.TB) (r *rig, other *storage.Links) {
	t.Helper()
	r = newRig(t)
	r.leaveTombstones(teststore.TombstoneKeep)
	r.Make()
	return r, r.other()
}

// meet makes the proxy do something right before a process's nth call, and lets the process die
// there if it is to.
func (r *rig) meet(n int, dies bool, do func()) {
	r.proxy.Before(func(call faultproxy.Call) faultproxy.Fault {
		if call.N == n {
			do()
		}
		if dies && call.N >= n {
			return faultproxy.Refuse
		}
		return faultproxy.None
	})
}

// ended waits for calls that are late, lets all calls through from now on, and returns those that
// were made until it was called.
func (r *rig) ended() []faultproxy.Call {
	calls := r.proxy.Calls()
	r.proxy.Wait()
	r.proxy.Reset()
	return calls
}

// connect opens the tables of an account, whose calls are reported to sender, if that is not nil.
func connect(t testing.TB, connectionString string,
	sender *telemetry.Sender) func(name string) table.Table {
	t.Helper()
	c, err := table.ParseConnection(func(string) string { return connectionString },
		table.TableService, "X")
	must(t, err)
	service, err := table.Open(c, sender)
	must(t, err)
	return service.Table
}

var withCache = &storage.CacheConfig{Bytes: 10 << 20, Fresh: 15 * time.Minute,
	Negative: time.Minute, Stale: time.Hour}

// open opens a store on the rig's tables; they exist, and the store knows the blocked hosts. Every
// open is another instance, as far as the tables can tell.
func (r *rig) open(cache *storage.CacheConfig) *storage.Links {
	r.t.Helper()
	config := r.config
	config.Cache = cache
	s, err := storage.Open(config)
	must(r.t, err)
	for _, start := range []func(context.Context) error{s.EnsureTables, s.Blocked.Read} {
		must(r.t, start(ctx))
	}
	r.proxy.Reset()
	return s
}

// instance opens another instance on tables that are there, without a cache.
func (r *rig) instance() *storage.Links {
	r.t.Helper()
	s, err := storage.Open(r.config)
	must(r.t, err)
	return s
}

// other opens another instance, without a cache, whose calls the proxy does not see.
func (r *rig) other() *storage.Links {
	r.t.Helper()
	defer func(through func(string) table.Table) { r.config.Open = through }(r.config.Open)
	r.config.Open = r.direct
	return r.instance()
}

// patiently repeats what storage did not respond to in time, as on a busy machine.
func patiently(do func() error) error {
	err := do()
	for end := time.Now().Add(time.Minute); errors.Is(err, link.ErrUnavailable) &&
		time.Now().Before(end); {
		err = do()
	}
	return err
}

// tooSlow reports whether an operation has failed because storage took longer than it had time for.
func tooSlow(err error, begun time.Time) bool {
	return errors.Is(err, link.ErrUnavailable) && time.Since(begun) >= table.Timeout
}

// want is a link to be made, that lives for life from the clock's now on.
func (r *rig) want(url string, life time.Duration) link.Link {
	return link.Link{LongURL: url, CreatedAt: r.clock.Now(), ExpiresAt: r.clock.Now().Add(life)}
}

func (r *rig) create(s *storage.Links, url string, life time.Duration) link.Link {
	r.t.Helper()
	return r.createIn(ctx, s, url, life)
}

func (r *rig) createIn(ctx context.Context, s *storage.Links, url string,
	life time.Duration) link.Link {
	r.t.Helper()
	l, created, err := s.Create(ctx, r.want(url, life), "")
	if err != nil || !created {
		r.t.Fatalf("Create: created %t, %v", created, err)
	}
	return l
}
