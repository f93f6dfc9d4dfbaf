package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tiney/access"
	"tiney/clicks"
	"tiney/link"
	"tiney/pages"
	"tiney/telemetry"
)

// redirect handles GET and HEAD /{alias}, and with a + at the end, the preview.
type redirect struct {
	links   Getter
	blocked Blocked
	base    link.Base
	site    pages.Site
	maxAge  time.Duration
	now     func() time.Time
	metrics *telemetry.Metrics

	limits    *limits
	clicks    Clicks
	counted   clicks.Mode
	addresses access.Addresses
	prepare   sync.Once
}

func (rd *redirect) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Path[1:]
	a, ok := link.ParseAlias(name)
	if !ok {
		if wellKnown(w, name) {
			return nil
		}
		if name, is := strings.CutSuffix(name, "+"); is {
			return rd.preview(ctx, w, r, name)
		}
		a, ok = link.ParseAlias(strings.TrimRight(name, punctuation))
	}
	ok = ok && !a.Reserved()
	if ok {
		if err := rd.limits.take(access.LimitRedirect, r, ""); err != nil {
			return err
		}
	}
	var l link.Link
	err := error(notFoundProblem)
	start := rd.now()
	if ok {
		rd.prepare.Do(rd.prepareCountries)
		l, err = rd.find(ctx, r, a)
	}
	now := rd.now()
	took := now.Sub(start)
	rd.metrics.RedirectDuration.Observe(took)
	switch {
	case !ok || errors.Is(err, link.ErrNotFound):
		rd.metrics.RedirectNotFound.Add(1)
		return err
	case errors.Is(err, link.ErrDamaged):
		rd.metrics.RedirectGone.Add(1)
		return err
	case err != nil:
		return err
	}
	if err := rd.gone(ctx, l, now); err != nil {
		rd.metrics.RedirectGone.Add(1)
		return err
	}
	rd.metrics.RedirectFound.Add(1)
	// Not http.Redirect, which would change the URL and add a body.
	h := w.Header()
	h["Location"] = []string{link.Location(l.LongURL)}
	h["Cache-Control"] = rd.cacheControl(l, now)
	h["X-Robots-Tag"] = noIndex
	w.WriteHeader(cmp.Or(l.StatusCode, link.DefaultStatusCode))
	if rd.counted != clicks.ModeOff && r.Method == http.MethodGet && !prefetched(r.Header) {
		rd.clicks.Click(a, rd.click(r, now, took))
	}
	return nil
}

// find returns the link of an alias. One that is not cached is not looked up for a client who has asked for too many that do
// not exist.
func (rd *redirect) find(ctx context.Context, r *http.Request, a link.Alias) (l link.Link, err error) {
	if l, ok := rd.links.Cached(ctx, a, false); ok {
		return l, nil
	}
	lookedUp := false
	err = rd.limits.guess(r, func() (err error) {
		lookedUp = true
		l, err = rd.links.Get(ctx, a)
		return err
	})
	if !lookedUp { // a popular link goes on even for whoever shares an address with somebody who guesses
		if l, ok := rd.links.Cached(ctx, a, true); ok {
			return l, nil
		}
	}
	return l, err
}

// prepareCountries has the table of countries decoded while the first link is read. A process that redirects nobody needs no
// table, and no memory for it.
func (rd *redirect) prepareCountries() {
	if rd.counted == clicks.ModeFull {
		go clicks.Country(netip.Addr{})
	}
}

// prefetched reports whether a browser only prepares for, or shows a preview to, somebody who may never follow the link.
func prefetched(h http.Header) bool {
	for _, name := range [...]string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"} {
		for _, value := range h[name] {
			if value = strings.ToLower(value); strings.Contains(value, "prefetch") || strings.Contains(value, "preview") {
				return true
			}
		}
	}
	return false
}

// click returns what is kept of a request that was answered with a redirect. Nothing of it is kept as it was sent.
func (rd *redirect) click(r *http.Request, at time.Time, took time.Duration) clicks.Click {
	k := clicks.Click{At: at, Took: took}
	userAgent := clicks.StripHost(r.UserAgent())
	agent := clicks.ParseAgent(userAgent)
	k.Bot = agent.Bot
	if k.Bot || rd.counted != clicks.ModeFull || slices.Contains(r.Header["Sec-Gpc"], "1") { // who asks for it is not told apart
		return k
	}
	address := rd.addresses.Of(r)
	k.Names = [clicks.Dimensions]string{clicks.Referrers: clicks.Referrer(r.Referer()), clicks.Countries: clicks.Country(address),
		clicks.Browsers: agent.Browser, clicks.Systems: agent.System, clicks.Devices: agent.Device}
	k.Visitor = clicks.NewVisitor(address, userAgent)
	return k
}

// preview shows where a link leads, as a page or as JSON. It is no redirect, so it is not measured as one.
func (rd *redirect) preview(ctx context.Context, w http.ResponseWriter, r *http.Request, name string) error {
	a, ok := link.ParseAlias(name)
	if !ok || a.Reserved() {
		return notFoundProblem
	}
	if err := rd.limits.take(access.LimitRedirect, r, ""); err != nil {
		return err
	}
	l, err := rd.find(ctx, r, a)
	if err != nil {
		return err
	}
	if err := rd.gone(ctx, l, rd.now()); err != nil {
		return err
	}
	w.Header().Set("Vary", "Accept")
	if prefers(r.Header, "text/html") {
		writePage(w, http.StatusOK, rd.site.Preview(linkOnPage(l, rd.site)))
		return nil
	}
	setHeaders(w, "application/json")
	writeJSON(w, summaryOf(l, rd.base))
	return nil
}

// gone returns the problem of a link that leads nowhere, or not where it should, and nil of one that does.
func (rd *redirect) gone(ctx context.Context, l link.Link, now time.Time) error {
	if state := l.State(now); state != link.StateLive {
		return goneProblem(l, state)
	}
	if rd.blocked.Has(ctx, l.LongURL) {
		return linkBlockedProblem
	}
	return nil
}

// goneProblem returns the problem of a link that leads nowhere. Its page also says since when, if that is known.
func goneProblem(l link.Link, state link.State) *problem {
	if state == link.StateDisabled {
		return disabledProblem
	}
	p, what, since := expiredProblem, "came to the end of its life", l.ExpiresAt
	if state == link.StateDeleted {
		p, what, since = deletedProblem, "was deleted", l.DeletedAt
	}
	if l.GoneReason != link.StateLive {
		since = l.GoneAt
	}
	if since.IsZero() {
		return p
	}
	_, advice, _ := strings.Cut(p.Detail, ". ")
	dated := *p
	dated.page = fmt.Sprintf("The short link at this address %s on %s (UTC). %s", what, since.UTC().Format("2 January 2006"), advice)
	return &dated
}

// punctuation is what follows a link in a sentence, and is pasted with it.
const punctuation = ".,;:!?)]}'\""

// Values of headers, shared by all responses: not to be written to.
var (
	noStore = []string{"no-store"}
	noIndex = []string{"noindex"} // a search engine is to list the target, not the short link
)

// cacheControl returns how long a cache in front may keep a redirect: never past the link's expiry, and not at all if the link
// may have changed.
func (rd *redirect) cacheControl(l link.Link, now time.Time) []string {
	if l.Stale {
		return noStore
	}
	age := rd.maxAge
	if age > 0 && !l.ExpiresAt.IsZero() {
		age = min(age, l.ExpiresAt.Sub(now))
	}
	if age < time.Second {
		return noStore
	}
	return []string{"public, max-age=" + strconv.FormatInt(int64(age/time.Second), 10)}
}

// wellKnown handles two names that browsers and crawlers request by themselves, and that are no aliases.
func wellKnown(w http.ResponseWriter, name string) bool {
	switch name {
	case "favicon.ico":
		w.Header().Set("Cache-Control", "public, max-age=86400")
		w.WriteHeader(http.StatusNoContent)
	case "robots.txt":
		// Links stay open to crawlers: they make the previews that chat programs show.
		setHeaders(w, "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "public, max-age=86400")
		_, _ = w.Write([]byte("User-agent: *\nDisallow: /api/\n"))
	default:
		return false
	}
	return true
}
