package functions

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"tiney/internal/access"
	"tiney/internal/link"
	"tiney/internal/telemetry"
)

// limits refuses requests of clients that send too many.
type limits struct {
	*access.Limits
	addresses access.Addresses
	log       *slog.Logger
	unlimited atomic.Bool // a request had no address to count it by
}

// take counts a request by address. It returns a problem if the address has sent too many. It lets
// in requests without an address: they come from different clients, which would shut each other out
// if they counted as one.
func (l *limits) take(of access.Limit, r *http.Request) error {
	if l.Rate(of) == 0 {
		return nil
	}
	address := l.addresses.Of(r)
	if !address.IsValid() {
		if !l.unlimited.Swap(true) {
			l.log.Warn(telemetry.LogClientAddressMissing)
		}
		return nil
	}
	return l.takeFor(of, access.Client{Address: address})
}

// takeFor is take for a client that is known.
func (l *limits) takeFor(of access.Limit, client access.Client) error {
	if wait := l.Take(of, client); wait > 0 {
		return limitedProblem(of, l.Rate(of), wait)
	}
	return nil
}

// takeBack undoes a take.
func (l *limits) takeBack(of access.Limit, r *http.Request) {
	if address := l.addresses.Of(r); address.IsValid() {
		l.Return(of, access.Client{Address: address})
	}
}

// guess calls lookUp, and counts the request as a guess if that returns link.ErrNotFound. The
// request also counts while lookUp runs. Otherwise a client could send any number of requests at
// once.
func (l *limits) guess(r *http.Request, lookUp func() error) error {
	if err := l.take(access.LimitUnknown, r); err != nil {
		return err
	}
	err := lookUp()
	if !errors.Is(err, link.ErrNotFound) {
		l.takeBack(access.LimitUnknown, r)
	}
	return err
}

// probe counts an alias that an owner asks about, if another owner has it. there is the link with
// the alias; nil if the alias is free. probe returns a problem if the owner has asked about too
// many. A free alias gets the same problem, because otherwise the problem would reveal that an
// alias is taken.
func (l *limits) probe(who access.Caller, there *link.Link) error {
	if who.Admin || there != nil && who.Is(there.Owner) {
		return nil
	}
	client := who.Client()
	if wait := l.Take(access.LimitProbes, client); wait > 0 {
		p := limitedProblem(access.LimitProbes, l.Rate(access.LimitProbes), wait)
		p.Detail = "Many of the aliases that you have asked about are somebody else's. " +
			"Ask about this one again in " + inWords(wait) + "."
		return p
	}
	if there == nil {
		l.Return(access.LimitProbes, client)
	}
	return nil
}

// wholeSeconds rounds a wait up.
func wholeSeconds(wait time.Duration) int { return int((wait + time.Second - 1) / time.Second) }

func inWords(wait time.Duration) string {
	if seconds := wholeSeconds(wait); seconds != 1 {
		return fmt.Sprintf("%d seconds", seconds)
	}
	return "1 second"
}

// limitedProblem returns the problem of a client that has to wait. The headers are those of
// draft-ietf-httpapi-ratelimit-headers-10.
func limitedProblem(of access.Limit, rate int, wait time.Duration) *problem {
	seconds := wholeSeconds(wait)
	return newProblem(http.StatusTooManyRequests, "rate-limited", "Too many requests",
		"Too many requests came from you, or from your network, in a short time. "+
			"Nothing is wrong with this one: repeat it in "+inWords(wait)+".").
		with("Retry-After", strconv.Itoa(seconds)).
		with("RateLimit-Policy",
			fmt.Sprintf(`"%s";q=%d;w=%d`, of, rate, int(of.Window().Seconds()))).
		with("RateLimit", fmt.Sprintf(`"%s";r=0;t=%d`, of, seconds)).
		exceeding(of.String())
}
