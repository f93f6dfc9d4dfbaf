package access

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Limit is a limit on how many requests a client may send.
type Limit int

const (
	LimitShorten  Limit = iota // requests to shorten a URL
	LimitUnknown               // look-ups of links and credentials that do not exist
	LimitAPI                   // other calls of the API
	LimitRedirect              // requests for a redirect or a preview
	LimitProbes                // aliases of other owners in calls for many links
	LimitGuess                 // guesses of the admin key
	// wrong passwords of a link in a minute and in a day, and of an address after that
	LimitWrong
	LimitWrongDaily
	LimitWrongLate
	limitCount
)

// String returns the name of the limit in responses. LimitWrong and LimitWrongDaily have none: past
// them, LimitWrongLate refuses.
func (l Limit) String() string {
	return [limitCount]string{"shorten", "unknown", "api", "redirect", "probes", "guess", "", "",
		"password-late"}[l]
}

// Window returns the time for which the rate of the limit is given.
func (l Limit) Window() time.Duration {
	switch l {
	case LimitProbes, LimitWrongDaily:
		return 24 * time.Hour
	case LimitWrongLate:
		return 30 * time.Second
	}
	return time.Minute
}

// fixedRates are those that nobody sets.
var fixedRates = Rates{LimitGuess: 30, LimitWrong: 20, LimitWrongDaily: 500, LimitWrongLate: 1}

// Rates are how many requests a client may send at once, by Limit. It may send another one whenever
// a share of the limit's Window, Window divided by the rate, has passed. Zero: no limit.
type Rates [limitCount]int

// Client is an owner and the owner that it acts for or, if Owner is "", an address. A request
// counts for both owners. Otherwise a person could use the limits of all groups that they make keys
// for.
//
// All addresses of an IPv6 /64 are one client, because one machine may use them all. The clients of
// a /48, which one customer may have, may together send wideFactor times as many requests. Requests
// without an address are one client.
type Client struct {
	Owner   string
	ActsFor string // "" or Owner: nobody else
	Address netip.Addr
	Of      string // what an address counts for; "": everything
}

// wideFactor is by how many times the rate of an IPv6 /48 is greater than that of a client.
const wideFactor = 16

// bucket is what counts requests at a rate.
type bucket struct {
	of      Limit
	owner   string   // or what the address counts for
	address [16]byte // not netip.Addr, because its pointer would make maphash allocate
	wide    int      // by how many times the rate is greater
}

// buckets returns the buckets in which a client's request counts. The second may be the zero
// bucket, which counts nothing.
func (c Client) buckets(of Limit) (all [2]bucket) {
	switch {
	case c.Owner != "":
		all[0] = bucket{of: of, owner: c.Owner, wide: 1}
		if c.ActsFor != "" && c.ActsFor != c.Owner {
			all[1] = bucket{of: of, owner: c.ActsFor, wide: 1}
		}
	case c.Address.Is6() && !c.Address.Is4In6():
		all[0] = bucket{of: of, owner: c.Of, address: c.Address.As16(), wide: 1}
		clear(all[0].address[8:])
		all[1] = all[0]
		all[1].wide = wideFactor
		clear(all[1].address[6:])
	default:
		all[0] = bucket{of: of, owner: c.Of, address: c.Address.As16(), wide: 1}
	}
	return all
}

// Limits counts the requests of clients by GCRA, the generic cell rate algorithm of ATM. For each
// bucket it keeps one time: the time at which its requests so far are over, if each takes its share
// of Window.
//
// The table has a fixed size, 1.98 MB, and is made at the first request with a limit. Limits by the
// day have a table of their own, because the clients of a day would fill the table of the minute. A
// hash with a random seed maps a client to a set of the table. If the set is full of clients whose
// time is not over, Limits forgets the client whose time is over first. That client may then exceed
// its rate; no client is refused wrongly. With up to 30,000 times at once, a quarter of the table,
// it forgets one in some millions.
//
// If the clock is put back, a client waits that much longer, but at most a Window. The methods may
// be called concurrently, and do not allocate.
type Limits struct {
	rates Rates
	now   func() time.Time
	start time.Time // times count from here, so they are monotonic if those of now are
	seed  maphash.Seed

	minutes, days func() []set // the tables, by Window
}

const (
	setCount = 7500
	setSize  = 16
)

// set is a part of the table, with a lock of its own. It has no pointers, so that the garbage
// collector skips it.
type set struct {
	mu      sync.Mutex
	clients [setSize]uint64 // hashes of buckets
	until   [setSize]int64  // nanoseconds since start
}

// NewLimits returns Limits that have counted no request.
func NewLimits(rates Rates, now func() time.Time) *Limits {
	for of, rate := range fixedRates {
		rates[of] = cmp.Or(rate, rates[of])
	}
	table := func() []set { return make([]set, setCount) }
	return &Limits{rates: rates, now: now, start: now(), seed: maphash.MakeSeed(),
		minutes: sync.OnceValue(table), days: sync.OnceValue(table)}
}

// Rate returns the rate of a limit.
func (l *Limits) Rate(of Limit) int { return l.rates[of] }

// Take counts a request and returns zero. If the client has to wait, Take counts nothing and
// returns how long.
func (l *Limits) Take(of Limit, by Client) (wait time.Duration) {
	if l.rates[of] == 0 {
		return 0
	}
	all := by.buckets(of)
	if wait = l.take(all[0], true); wait > 0 || all[1].wide == 0 {
		return wait
	}
	if wait = l.take(all[1], true); wait > 0 {
		l.giveBack(all[0])
	}
	return wait
}

// Wait returns what Take would, and counts nothing.
func (l *Limits) Wait(of Limit, by Client) (wait time.Duration) {
	if l.rates[of] == 0 {
		return 0
	}
	for _, b := range by.buckets(of) {
		if b.wide > 0 {
			wait = max(wait, l.take(b, false))
		}
	}
	return wait
}

func (l *Limits) take(b bucket, counts bool) (wait time.Duration) {
	s, client, now := l.locate(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	window := b.of.Window()
	i := slices.Index(s.clients[:], client)
	until := now
	if i < 0 {
		i = s.least(now, max(window, time.Minute)) // others of the table have that
	} else if left := s.until[i] - now; 0 < left && left <= int64(window) {
		until = s.until[i] // otherwise its time is over, or the clock was put back
	}
	rate, share := l.share(b)
	if wait := until + share - now - share*rate; wait > 0 {
		return time.Duration(wait)
	}
	if counts {
		s.clients[i], s.until[i] = client, until+share
	}
	return 0
}

// Return undoes a Take that returned zero. If that Take was longer ago than a request's share,
// Return may undo a later one instead.
func (l *Limits) Return(of Limit, by Client) {
	if l.rates[of] == 0 {
		return
	}
	for _, b := range by.buckets(of) {
		if b.wide > 0 {
			l.giveBack(b)
		}
	}
}

func (l *Limits) giveBack(b bucket) {
	s, client, _ := l.locate(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.clients[:], client); i >= 0 {
		_, share := l.share(b)
		s.until[i] -= share
	}
}

// share returns the rate of a bucket, and the share of Window that one request takes, in
// nanoseconds.
func (l *Limits) share(b bucket) (rate, share int64) {
	rate = int64(l.rates[b.of]) * int64(b.wide)
	return rate, int64(b.of.Window()) / rate
}

// locate returns the set of a bucket, its hash, and the time.
func (l *Limits) locate(b bucket) (s *set, client uint64, now int64) {
	client = maphash.Comparable(l.seed, b)
	i, _ := bits.Mul64(client, setCount)
	sets := l.minutes
	if b.of.Window() > time.Minute {
		sets = l.days
	}
	return &sets()[i], client, int64(l.now().Sub(l.start))
}

// least returns the index of the client that loses least if it is forgotten.
func (s *set) least(now int64, window time.Duration) (least int) {
	for i, until := range s.until {
		if until-now > int64(window) { // the clock was put back
			return i
		}
		if until < s.until[least] {
			least = i
		}
	}
	return least
}
