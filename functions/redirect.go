package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tiney/internal/access"
	"tiney/internal/clicks"
	"tiney/internal/link"
)

// redirect handles GET and HEAD /{alias}, and /{alias}+, the preview. More of a path may follow,
// which some links forward.
func (s *service) redirect(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	name, rest := r.URL.Path[1:], ""
	if r.URL.RawPath != "" || strings.IndexByte(name, '/') >= 0 {
		name, rest = splitPath(rawPath(r))
	}
	a, ok := link.ParseAlias(name)
	if !ok {
		if rest == "" && wellKnown(w, name) {
			return nil
		}
		pasted, cut := link.PastedAlias(name)
		switch {
		case cut:
			name, rest = "", ""
		case rest != "": // as in /https://example.com/
			pasted = name
		}
		if alias, is := strings.CutSuffix(pasted, "+"); is {
			return s.preview(ctx, w, r, alias, name, rest)
		}
		a, ok = link.ParseAlias(pasted)
	}
	ok = ok && !a.Reserved()
	if ok {
		if err := s.limits.take(access.LimitRedirect, r); err != nil {
			return err
		}
	}
	var l link.Link
	var d link.Domain
	err := error(notFoundProblem)
	start := s.Now()
	if ok {
		d = s.domainOf(r)
		l, err = s.find(ctx, r, d, a)
	}
	now := s.Now()
	took := now.Sub(start)
	s.Metrics.RedirectDuration.Observe(took)
	switch {
	case !ok:
		s.Metrics.RedirectNotFound.Add(1)
		return err
	case errors.Is(err, link.ErrNotFound):
		s.Metrics.RedirectNotFound.Add(1)
		return s.unknown(w, r, d, a, rest)
	case errors.Is(err, link.ErrDamaged):
		s.Metrics.RedirectGone.Add(1)
		return err
	case err != nil:
		return err
	}
	if err := s.gone(ctx, l, now); err != nil {
		s.Metrics.RedirectGone.Add(1)
		if ended(l, now) && s.fallBack(w, r, s.GoneURL, d, a) {
			return nil
		}
		return err
	}
	var location string
	if rest == "" && l.Forward == 0 { // as most do
		location = link.Location(l.LongURL)
	} else {
		to, err := s.target(r, l, name, rest)
		switch {
		case errors.Is(err, link.ErrNotFound):
			s.Metrics.RedirectNotFound.Add(1)
			return s.unknown(w, r, d, a, rest)
		case err != nil:
			return err
		}
		location = to.location
	}
	s.Metrics.RedirectFound.Add(1)
	// http.Redirect would change the URL and add a body.
	h := w.Header()
	h["Location"] = []string{location}
	h["Cache-Control"] = s.cacheControl(l, now)
	if s.varyDomain != nil && h["Cache-Control"][0] != noStore[0] {
		h["Vary"] = s.varyDomain
	}
	h["X-Robots-Tag"] = noIndex
	w.WriteHeader(cmp.Or(l.StatusCode, link.DefaultStatusCode))
	if r.Method == http.MethodGet && !prefetched(r.Header) {
		s.click(r, l, now, took)
	}
	return nil
}

// find returns the link of an alias. If a client has asked for too many aliases that do not exist,
// find looks up no alias for it; the client still gets cached links.
func (s *service) find(
	ctx context.Context, r *http.Request, d link.Domain, a link.Alias,
) (l link.Link, err error) {
	if l, ok := s.cached(ctx, d, a); ok {
		return l, nil
	}
	name := d.Name(a)
	if s.CountClicks == clicks.ModeFull {
		clicks.PrepareCountries() // while the link is read
	}
	lookedUp := false
	err = s.limits.guess(r, func() (err error) {
		lookedUp = true
		l, err = s.Links.Get(ctx, name)
		return err
	})
	if !lookedUp { // the client may share its address with one that guesses
		if l, ok := s.Links.Cached(ctx, name, true); ok {
			return l, nil
		}
		// If the link is cached in lower case, one read tells whether an older row has this very
		// spelling. That is no guess: below the limit it does not count as one.
		if lower := name.Lower(); s.Rules.AnyCase && lower != name {
			if _, ok := s.Links.Cached(ctx, lower, true); ok {
				return s.Links.Get(ctx, name)
			}
		}
	}
	return l, err
}

// prefetched reports whether a browser only prefetches or previews a link. Its user may never
// follow the link.
func prefetched(h http.Header) bool {
	for _, name := range [...]string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"} {
		for _, value := range h[name] {
			value = strings.ToLower(value)
			if strings.Contains(value, "prefetch") || strings.Contains(value, "preview") {
				return true
			}
		}
	}
	return false
}

// click counts a redirect by the mode of the site. It keeps nothing of the request verbatim. If the
// browser asks for it (Global Privacy Control), click keeps nothing except the click itself.
func (s *service) click(r *http.Request, l link.Link, at time.Time, took time.Duration) {
	if s.CountClicks == clicks.ModeOff {
		return
	}
	userAgent := clicks.StripHost(first(r.Header["User-Agent"]))
	agent := clicks.ParseAgent(userAgent)
	k := clicks.Click{At: at, Took: took, Bot: agent.Bot}
	private := slices.Contains(r.Header["Sec-Gpc"], "1")
	if s.CountClicks == clicks.ModeFull && !k.Bot && !private {
		address := s.Addresses.Of(r)
		k.Names = [clicks.Dimensions]string{
			clicks.Referrers: clicks.Referrer(first(r.Header["Referer"])),
			clicks.Countries: clicks.Country(address),
			clicks.Browsers:  agent.Browser,
			clicks.Systems:   agent.System,
			clicks.Devices:   agent.Device,
		}
		k.Visitor = clicks.NewVisitor(address, userAgent)
	}
	s.Clicks.Click(l, k)
}

// first returns the first value of a header. Its values are there by its canonical name, which
// Header.Get would have to find out first.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// preview shows where a link leads, as a page or as JSON. first and rest are as for target. Metrics
// do not count it as a redirect.
func (s *service) preview(
	ctx context.Context, w http.ResponseWriter, r *http.Request, alias, first, rest string,
) error {
	a, ok := link.ParseAlias(alias)
	if !ok || a.Reserved() {
		return notFoundProblem
	}
	if err := s.limits.take(access.LimitRedirect, r); err != nil {
		return err
	}
	l, err := s.find(ctx, r, s.domainOf(r), a)
	if err != nil {
		return err
	}
	if err := s.gone(ctx, l, s.Now()); err != nil {
		return err
	}
	to, err := s.target(r, l, first, rest)
	if err != nil {
		return err
	}
	l.LongURL = to.longURL
	w.Header().Set("Vary", "Accept")
	if prefers(r.Header, "text/html") {
		lv := s.linkOnPage(l)
		if lv.Asked = to.rest; l.Forward&link.ForwardQuery != 0 && to.query != "" {
			lv.Asked += "?" + to.query
		}
		lv.Asked = link.Location(lv.Asked) // in ASCII
		writePage(w, http.StatusOK, s.site.Preview(r.URL.EscapedPath(), lv))
		return nil
	}
	setHeaders(w, "application/json")
	writeJSON(w, made{s.summarize(l), new(l.Forward.Names())})
	return nil
}

// gone returns the problem of a link that is not live or is blocked, and nil for any other link.
func (s *service) gone(ctx context.Context, l link.Link, now time.Time) error {
	if state := l.State(now); state != link.StateLive {
		return goneProblem(l, state)
	}
	if s.Blocked.Has(ctx, l.LongURL) {
		return linkBlockedProblem
	}
	return nil
}

// ended reports whether a link is over for good.
func ended(l link.Link, now time.Time) bool {
	state := l.State(now)
	return state == link.StateExpired || state == link.StateDeleted
}

// goneProblem returns the problem of a link that is not live. If it is known since when, the page
// says so.
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
	dated.page = fmt.Sprintf("The short link at this address %s on %s (UTC). %s",
		what, since.UTC().Format("2 January 2006"), advice)
	return &dated
}

// These header values are shared by all responses and must not be modified.
var (
	noStore = []string{"no-store"}
	noIndex = []string{"noindex"} // search engines should list the target, not the short link
)

// cacheControl returns how long a cache in front may keep a redirect: never past the link's expiry,
// and not at all if the link may have changed, or if the redirect depends on the query, which may
// not be part of the cache's key.
func (s *service) cacheControl(l link.Link, now time.Time) []string {
	if l.Stale || l.Forward != 0 {
		return noStore
	}
	age := s.RedirectMaxAge
	if age > 0 && !l.ExpiresAt.IsZero() {
		age = min(age, l.ExpiresAt.Sub(now))
	}
	if age < time.Second {
		return noStore
	}
	return []string{"public, max-age=" + strconv.FormatInt(int64(age/time.Second), 10)}
}

// wellKnown handles two names that are not aliases, and that browsers and crawlers request on their
// own.
func wellKnown(w http.ResponseWriter, name string) bool {
	switch name {
	case "favicon.ico":
		w.Header().Set("Cache-Control", "public, max-age=86400")
		w.WriteHeader(http.StatusNoContent)
	case "robots.txt":
		// Links stay open to crawlers, which make the previews that chat programs show.
		setHeaders(w, "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "public, max-age=86400")
		_, _ = w.Write([]byte("User-agent: *\nDisallow: /api/\n"))
	default:
		return false
	}
	return true
}
