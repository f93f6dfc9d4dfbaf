package access_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/access"
)

// someone returns the client with this address.
func someone(address string) access.Client {
	return access.Client{Address: netip.MustParseAddr(address)}
}

// numbered returns one of many clients, each with a /48 of its own.
func numbered(i int) access.Client {
	return access.Client{Address: netip.AddrFrom16([16]byte{0x20, 0x01, byte(i >> 24),
		byte(i >> 16), byte(i >> 8), byte(i), 0, byte(i), byte(i)})}
}

// limits returns Limits with a clock that the caller may set.
func limits(rates access.Rates) (*access.Limits, *time.Time) {
	clock := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	return access.NewLimits(rates, func() time.Time { return clock }), &clock
}

func TestLimits(t *testing.T) {
	l, clock := limits(access.Rates{access.LimitShorten: 30})
	ann := someone("203.0.113.7")
	take := func(want time.Duration) {
		t.Helper()
		if got := l.Take(access.LimitShorten, ann); got != want {
			t.Errorf("has to wait %v, want %v", got, want)
		}
	}
	for range 30 {
		take(0)
	}
	take(2 * time.Second)
	*clock = clock.Add(2*time.Second - time.Nanosecond)
	take(time.Nanosecond) // refused requests do not count
	*clock = clock.Add(time.Nanosecond)
	take(0)
	take(2 * time.Second)
	*clock = clock.Add(5 * time.Second)
	take(0)
	take(0)
	take(time.Second)
	*clock = clock.Add(59 * time.Second)
	for range 30 {
		take(0)
	}
	take(2 * time.Second)
	*clock = clock.Add(24 * time.Hour) // no more than a minute's requests, however long the pause
	for range 30 {
		take(0)
	}
	take(2 * time.Second)
}

// Take agrees with a list of each client's requests, for any rate and with any other clients.
func TestLimitsAreExact(t *testing.T) {
	for _, rate := range []int{1, 7, 60, 1000, 1_000_000} {
		l, clock := limits(access.Rates{access.LimitUnknown: rate})
		share := time.Minute / time.Duration(rate)
		const clients = 5000
		until := make([]time.Time, clients)
		random := rand.New(rand.NewPCG(1, uint64(rate)))
		refused := 0
		for range 60_000 {
			*clock = clock.Add(time.Duration(random.Int64N(int64(share/10 + 1))))
			c := random.IntN(clients)
			if random.IntN(2) == 0 {
				c %= 3 // some clients ask more often
			}
			if until[c].Before(*clock) {
				until[c] = *clock
			}
			want := max(0, until[c].Add(share).Sub(*clock)-share*time.Duration(rate))
			if got := l.Take(access.LimitUnknown, numbered(c)); got != want {
				t.Fatalf("%d a minute: client %d has to wait %v, want %v", rate, c, got, want)
			}
			if want > 0 {
				refused++
			} else {
				until[c] = until[c].Add(share)
				if random.IntN(10) == 0 {
					l.Return(access.LimitUnknown, numbered(c))
					until[c] = until[c].Add(-share)
				}
			}
		}
		if rate < 1000 && refused == 0 {
			t.Errorf("%d a minute: nobody was refused", rate)
		}
	}
}

// A limit by the day counts by the day. Its clients do not displace clients of other limits.
func TestLimitsByTheDay(t *testing.T) {
	l, clock := limits(access.Rates{access.LimitProbes: 1000, access.LimitAPI: 1})
	ann := access.Client{Owner: "ann"}
	for range 1000 {
		if wait := l.Take(access.LimitProbes, ann); wait != 0 {
			t.Fatalf("has to wait %v", wait)
		}
	}
	const share = 86400 * time.Millisecond
	if wait := l.Take(access.LimitProbes, ann); wait != share {
		t.Errorf("has to wait %v", wait)
	}
	l.Take(access.LimitAPI, ann)
	for i := range 1_000_000 {
		l.Take(access.LimitProbes, access.Client{Owner: fmt.Sprint(i)})
	}
	if wait := l.Take(access.LimitAPI, ann); wait != time.Minute {
		t.Errorf("another limit: has to wait %v", wait)
	}
	if wait := l.Take(access.LimitProbes, ann); wait != share {
		t.Errorf("after many others: has to wait %v", wait)
	}
	*clock = clock.Add(share)
	if l.Take(access.LimitProbes, ann) != 0 || l.Take(access.LimitProbes, ann) != share {
		t.Error("a share later: no more than one")
	}
}

func TestLimitsTellClientsApart(t *testing.T) {
	for name, test := range map[string]struct {
		a, b access.Client
		same bool
	}{
		"IPv4":                  {someone("203.0.113.7"), someone("203.0.113.8"), false},
		"IPv4 mapped into IPv6": {someone("203.0.113.7"), someone("::ffff:203.0.113.7"), true},
		"mapped, and others": {someone("::ffff:203.0.113.7"), someone("::ffff:203.0.113.8"),
			false},
		"a /64":               {someone("2001:db8::1"), someone("2001:db8::ffff:0:0:9"), true},
		"the next /64":        {someone("2001:db8::1"), someone("2001:db8:0:1::1"), false},
		"a zone":              {someone("fe80::1"), someone("fe80::1%eth0"), true},
		"no address":          {access.Client{}, access.Client{}, true},
		"no address, and one": {access.Client{}, someone("0.0.0.0"), false},
		"owners":              {access.Client{Owner: "ann"}, access.Client{Owner: "ben"}, false},
		"an owner, and anyone": {access.Client{Owner: "203.0.113.7"}, someone("203.0.113.7"),
			false},
		"a group's key, and its maker": {access.Client{Owner: "crew", ActsFor: "ann"},
			access.Client{Owner: "ann"}, true},
		"a maker, and a group's key": {access.Client{Owner: "ann", ActsFor: "ann"},
			access.Client{Owner: "crew", ActsFor: "ann"}, true},
		"keys of two groups, by one": {access.Client{Owner: "crew", ActsFor: "ann"},
			access.Client{Owner: "ops", ActsFor: "ann"}, true},
		"keys of one group, by two": {access.Client{Owner: "crew", ActsFor: "ann"},
			access.Client{Owner: "crew", ActsFor: "ben"}, true},
		"a group's key, and one that acts for it": {access.Client{Owner: "crew", ActsFor: "ann"},
			access.Client{Owner: "crew"}, true},
		"a group's key, and somebody else": {access.Client{Owner: "crew", ActsFor: "ann"},
			access.Client{Owner: "ben", ActsFor: "ben"}, false},
		"an owner, anywhere": {access.Client{Owner: "ann",
			Address: netip.MustParseAddr("203.0.113.7")}, access.Client{Owner: "ann"}, true},
	} {
		l, _ := limits(access.Rates{access.LimitAPI: 1})
		if l.Take(access.LimitAPI, test.a) != 0 {
			t.Errorf("%s: the first request is refused", name)
		}
		if same := l.Take(access.LimitAPI, test.b) != 0; same != test.same {
			t.Errorf("%s: the same client: %t", name, same)
		}
	}
}

// The clients of an IPv6 /48 together may send 16 times as much as one of them.
func TestLimitsOfANetwork(t *testing.T) {
	l, clock := limits(access.Rates{access.LimitUnknown: 2, access.LimitAPI: 2,
		access.LimitProbes: 1_000_000})
	client := func(network, i int) access.Client {
		return someone(fmt.Sprintf("2001:db8:%x:%x::1", network, i))
	}
	for i := range 16 {
		for range 2 {
			if wait := l.Take(access.LimitUnknown, client(1, i)); wait != 0 {
				t.Fatalf("client %d has to wait %v", i, wait)
			}
		}
		if wait := l.Take(access.LimitUnknown, client(1, i)); wait != 30*time.Second {
			t.Fatalf("client %d has to wait %v", i, wait)
		}
	}
	const share = 30 * time.Second / 16
	for i := range 100 { // what is refused does not count
		if wait := l.Take(access.LimitUnknown, client(1, 16+i%3)); wait != share {
			t.Fatalf("a further client has to wait %v", wait)
		}
	}
	if l.Take(access.LimitUnknown, client(2, 0)) != 0 ||
		l.Take(access.LimitUnknown, someone("203.0.113.7")) != 0 ||
		l.Take(access.LimitAPI, client(1, 0)) != 0 {
		t.Error("another network or limit is refused")
	}
	l.Return(access.LimitUnknown, client(1, 3))
	if l.Take(access.LimitUnknown, client(1, 16)) != 0 ||
		l.Take(access.LimitUnknown, client(1, 16)) != share {
		t.Error("what was taken back gives no place, or more than one")
	}
	*clock = clock.Add(2 * share)
	if l.Take(access.LimitUnknown, client(1, 16)) != 0 ||
		l.Take(access.LimitUnknown, client(1, 16)) == 0 ||
		l.Take(access.LimitUnknown, client(1, 17)) != 0 {
		t.Error("after two shares of the network: not one for each of two clients")
	}
	for i := range 10_000 { // the greatest rate has shares, too
		if wait := l.Take(access.LimitProbes, client(3, i)); wait != 0 {
			t.Fatalf("by the day: has to wait %v", wait)
		}
	}
}

// What a client cannot send for the one reason does not count for the other.
func TestLimitsOfWhoActs(t *testing.T) {
	l, clock := limits(access.Rates{access.LimitAPI: 4})
	take := func(owner, actsFor string, want time.Duration) {
		t.Helper()
		if got := l.Take(access.LimitAPI,
			access.Client{Owner: owner, ActsFor: actsFor}); got != want {
			t.Errorf("%s for %s has to wait %v, want %v", owner, actsFor, got, want)
		}
	}
	const share = 15 * time.Second
	for i := range 4 { // with 200 groups, one still sends no more
		take(fmt.Sprint("group", i), "ann", 0)
	}
	for i := range 200 {
		take(fmt.Sprint("group", i), "ann", share)
	}
	take("ann", "", share)
	for i := range 4 {
		for range 3 {
			take(fmt.Sprint("group", i), "ben"+fmt.Sprint(i), 0)
		}
		take(fmt.Sprint("group", i), "cleo", share)
	}
	for range 4 { // none of those was counted
		take("cleo", "cleo", 0)
	}
	take("cleo", "", share)
	l.Return(access.LimitAPI, access.Client{Owner: "group0", ActsFor: "ann"})
	take("group0", "ann", 0)
	take("group0", "ann", share)
	*clock = clock.Add(share)
	take("group9", "ann", 0)
	take("group9", "ann", share)
}

func TestLimitsAreApart(t *testing.T) {
	l, _ := limits(access.Rates{1, 1, 1, 0})
	ann := someone("203.0.113.7")
	names := ""
	for _, limit := range []access.Limit{access.LimitShorten, access.LimitUnknown,
		access.LimitAPI} {
		names += limit.String() + " "
		if l.Take(limit, ann) != 0 || l.Take(limit, ann) != time.Minute {
			t.Errorf("%v is not a limit of its own", limit)
		}
	}
	for range 1000 {
		if l.Take(access.LimitRedirect, ann) != 0 {
			t.Fatal("refused without a limit")
		}
	}
	if names += access.LimitRedirect.String() + " " +
		access.LimitProbes.String(); names != "shorten unknown api redirect probes" {
		t.Errorf("they are called %s", names)
	}
}

// A request that is taken back does not count; the client may be forgotten or unknown.
func TestLimitsTakenBack(t *testing.T) {
	l, clock := limits(access.Rates{access.LimitUnknown: 2})
	ann := someone("203.0.113.7")
	l.Return(access.LimitUnknown, ann)
	l.Return(access.LimitRedirect, ann)
	for range 100 {
		if l.Take(access.LimitUnknown, ann) != 0 {
			t.Fatal("what was taken back counts")
		}
		l.Return(access.LimitUnknown, ann)
	}
	l.Take(access.LimitUnknown, ann)
	*clock = clock.Add(time.Hour)
	l.Return(access.LimitUnknown, ann)
	taken := 0
	for taken < 10 && l.Take(access.LimitUnknown, ann) == 0 {
		taken++
	}
	if taken != 2 {
		t.Error("what was taken back an hour later gives more than the rate")
	}
}

func TestLimitsOfAClockThatGoesBack(t *testing.T) {
	for _, back := range []time.Duration{time.Second, 59 * time.Second, time.Hour,
		100 * 365 * 24 * time.Hour} {
		l, clock := limits(access.Rates{access.LimitShorten: 30})
		ann := someone("203.0.113.7")
		*clock = clock.Add(time.Hour)
		for range 30 {
			l.Take(access.LimitShorten, ann)
		}
		*clock = clock.Add(-back)
		if wait := l.Take(access.LimitShorten, ann); wait > time.Minute {
			t.Errorf("%v back: has to wait %v", back, wait)
		} else {
			*clock = clock.Add(wait)
		}
		if wait := l.Take(access.LimitShorten, ann); wait != 0 {
			t.Errorf("%v back: still has to wait %v", back, wait)
		}
		if wait := l.Take(access.LimitShorten, someone("203.0.113.8")); wait != 0 {
			t.Errorf("%v back: somebody else has to wait %v", back, wait)
		}
	}
}

// growth returns by how many bytes f makes the memory of the process grow.
func growth(f func()) int64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	return int64(after.HeapAlloc) - int64(before.HeapAlloc)
}

func TestLimitsOfAMillionClients(t *testing.T) {
	idle, _ := limits(access.Rates{30, 60, 300, 0})
	if got := growth(func() {
		for i := range 1000 {
			idle.Take(access.LimitRedirect, numbered(i))
		}
	}); got > 10_000 {
		t.Errorf("without a limit it takes %d bytes", got)
	}
	l, _ := limits(access.Rates{30, 60, 300, 0})
	if got := growth(func() {
		for i := range 1_000_000 {
			for _, limit := range []access.Limit{access.LimitShorten, access.LimitUnknown,
				access.LimitAPI} {
				if l.Take(limit, numbered(i)) != 0 {
					t.Fatalf("%v: client %d is refused for what others do", limit, i)
				}
			}
		}
	}); got > 2_000_000 {
		t.Errorf("a million clients take %d bytes", got)
	} else {
		t.Logf("a million clients take %d bytes", got)
	}
	runtime.KeepAlive(idle)
	runtime.KeepAlive(l)
}

// A flood from countless addresses does not free a client that is past its limit.
func TestLimitsOfAFullTable(t *testing.T) {
	l, clock := limits(access.Rates{access.LimitShorten: 30})
	ann := someone("203.0.113.7")
	for l.Take(access.LimitShorten, ann) == 0 {
	}
	for i := range 1_000_000 {
		l.Take(access.LimitShorten, numbered(i))
	}
	if wait := l.Take(access.LimitShorten, ann); wait != 2*time.Second {
		t.Errorf("has to wait %v", wait)
	}
	*clock = clock.Add(2 * time.Second)
	if l.Take(access.LimitShorten, ann) != 0 || l.Take(access.LimitShorten, ann) != 2*time.Second {
		t.Error("is not held to its rate any more")
	}
}

func TestLimitsOfManyAtOnce(t *testing.T) {
	l, _ := limits(access.Rates{access.LimitShorten: 100, access.LimitUnknown: 100})
	var taken, all atomic.Int64
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for i := range 100 {
				if l.Take(access.LimitShorten, access.Client{Owner: "ann"}) == 0 {
					taken.Add(1)
				}
				if l.Take(access.LimitUnknown, access.Client{Owner: fmt.Sprint(g)}) == 0 {
					all.Add(1)
				}
				l.Take(access.LimitUnknown, numbered(i))
				l.Return(access.LimitUnknown, numbered(i))
			}
		})
	}
	wg.Wait()
	if taken.Load() != 100 || all.Load() != 32*100 {
		t.Errorf("one client may send %d, want 100; 32 clients %d, want 3,200", taken.Load(),
			all.Load())
	}
}

func TestALimitAllocatesNothing(t *testing.T) {
	l, _ := limits(access.Rates{30, 60, 300, 0})
	clients := []access.Client{someone("203.0.113.7"), someone("2001:db8::1"),
		{Owner: "login.example|ann"}, {Owner: "login.example|group|ops", ActsFor: "login.example|ann"},
		{}}
	l.Take(access.LimitAPI, clients[0]) // makes the table
	if n := testing.AllocsPerRun(1000, func() {
		for _, c := range clients {
			l.Take(access.LimitUnknown, c)
			l.Return(access.LimitUnknown, c)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkLimits(b *testing.B) {
	clients := make([]access.Client, 1<<20)
	for i := range clients {
		clients[i] = numbered(i)
	}
	for name, count := range map[string]int{"one client": 1, "a thousand": 1000,
		"a million": 1 << 20} {
		l := access.NewLimits(access.Rates{access.LimitShorten: 30}, time.Now)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l.Take(access.LimitShorten, clients[i%count])
			}
		})
		b.Run(name+", from several goroutines", func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := rand.IntN(count); pb.Next(); i++ {
					l.Take(access.LimitShorten, clients[i%count])
				}
			})
		})
	}
}
