package access

import (
	"hash/maphash"
	"math/bits"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Limit is one of the limits to how many requests a client may send.
type Limit int

const (
	LimitShorten  Limit = iota // requests for a link of a URL
	LimitUnknown               // look-ups of what turns out not to exist: links, and credentials
	LimitAPI                   // other calls of the API
	LimitRedirect              // requests for a redirect or a preview
	LimitProbes                // aliases of somebody else that an owner asks about by the way
	LimitGuess                 // guesses of the admin key, whatever the rates say: GuessRate
	limitCount
)

// String returns the name of the limit, as responses have it.
func (l Limit) String() string {
	return [limitCount]string{"shorten", "unknown", "api", "redirect", "probes", "guess"}[l]
}

// Window returns the time that the limit's rate is for.
func (l Limit) Window() time.Duration {
	if l == LimitProbes {
		return 24 * time.Hour
	}
	return time.Minute
}

// GuessRate is the rate of LimitGuess.
const GuessRate = 30

// Rates are how many requests a client may send within a limit's Window: so many at once, and then
// one each time that its share of Window has passed. Zero: any number.
type Rates [limitCount]int

// Client is whose requests are counted together: an owner's or, if that is "", those from an address. The addresses of a /64
// of IPv6 are one client, since whoever has one of them has all. Requests without an address are one client.
type Client struct {
	Owner   string
	Address netip.Addr
}

// Limits counts the requests of clients, by GCRA, the generic cell rate algorithm of ATM: all that it knows of a client is
// until when the requests so far take, if each takes its share of Window.
//
// They are in a table of a fixed size, 1.98 MB, that is made at the first request with a limit;
// limits by the day have one of their own, since a day's clients would fill that of the minute's. A
// client is in one of its sets, by a hash with a random seed. If that is full of clients whose time
// is not over, the one whose time is over first is forgotten, and starts anew: it may send more
// than its rate then, and nobody less. With up to 30,000 clients at once, a quarter of what there
// is room for, that befalls one in some millions.
//
// A clock that is put back holds up a client for as long as that, a Window at most. The methods may
// be called concurrently, and allocate nothing.
type Limits struct {
	rates Rates
	now   func() time.Time
	start time.Time // times are since then: so they are monotonic, if now's are
	seed  maphash.Seed

	minutes, days func() []set // for limits of such a Window
}

const (
	setCount = 7500
	setSize  = 16
)

// set is a part of the table, with a lock of its own. It has no pointers, so that the garbage collector skips it.
type set struct {
	mu      sync.Mutex
	clients [setSize]uint64 // hashes of a Limit and a Client
	until   [setSize]int64  // nanoseconds since start
}

// NewLimits returns limits, by which nobody has sent a request yet.
func NewLimits(rates Rates, now func() time.Time) *Limits {
	rates[LimitGuess] = GuessRate
	table := func() []set { return make([]set, setCount) }
	return &Limits{rates: rates, now: now, start: now(), seed: maphash.MakeSeed(),
		minutes: sync.OnceValue(table), days: sync.OnceValue(table)}
}

// Rate returns the rate of a limit.
func (l *Limits) Rate(of Limit) int { return l.rates[of] }

// Take counts a request, and returns zero; or it counts nothing, and returns how long the client has to wait until it may
// send the next one.
func (l *Limits) Take(of Limit, by Client) (wait time.Duration) {
	if l.rates[of] == 0 {
		return 0
	}
	s, client, now := l.find(of, by)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.clients[:], client)
	until := now
	if i < 0 {
		i = s.least(now, of.Window())
	} else if left := s.until[i] - now; 0 < left && left <= int64(of.Window()) {
		until = s.until[i] // else its time is over, or the clock was put back
	}
	share := l.share(of)
	if wait := until + share - now - share*int64(l.rates[of]); wait > 0 {
		return time.Duration(wait)
	}
	s.clients[i], s.until[i] = client, until+share
	return 0
}

// Return takes back a Take that returned zero, as if there had not been the request. If that was longer ago than a request's
// share, it may take back another one in its place.
func (l *Limits) Return(of Limit, by Client) {
	if l.rates[of] == 0 {
		return
	}
	s, client, _ := l.find(of, by)
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.clients[:], client); i >= 0 {
		s.until[i] -= l.share(of)
	}
}

// share returns the share of Window that a request has, in nanoseconds.
func (l *Limits) share(of Limit) int64 { return int64(of.Window()) / int64(l.rates[of]) }

// find returns the set of a client, what it is called there, and the time.
func (l *Limits) find(of Limit, by Client) (s *set, client uint64, now int64) {
	key := struct {
		limit   Limit
		owner   string
		address [16]byte // with a pointer in it, as a netip.Addr has one, maphash would allocate
	}{limit: of, owner: by.Owner}
	if by.Owner == "" {
		key.address = by.Address.As16()
		if by.Address.Is6() && !by.Address.Is4In6() {
			clear(key.address[8:])
		}
	}
	client = maphash.Comparable(l.seed, key)
	i, _ := bits.Mul64(client, setCount)
	sets := l.minutes
	if of.Window() > time.Minute {
		sets = l.days
	}
	return &sets()[i], client, int64(l.now().Sub(l.start))
}

// least returns the client who has the least to lose.
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
