package functions

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tiney/internal/access"
	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/pages"
)

// redirect handles GET and HEAD of /{alias}, and of /{alias}+, the preview. Some links forward what
// follows the alias in the path.
func (s *service) redirect(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	q := s.parse(r)
	d, err := s.decide(ctx, r, q)
	if q.preview && err != error(guardedProblem) {
		return s.preview(ctx, w, r, d, err)
	}
	if !d.at.IsZero() && !q.preview {
		s.Metrics.RedirectDuration.Observe(d.took)
	}
	if err == error(guardedProblem) {
		return s.guard(w, r, d.link)
	}
	if err != nil {
		return s.refuse(ctx, w, r, q, d, err)
	}
	s.Metrics.RedirectFound.Add(1)
	s.answer(w, r, d)
	return nil
}

// asked is what a request for a link asks for.
type asked struct {
	domain  link.Domain
	alias   link.Alias // "": the path has no valid alias
	first   string     // the first segment of the path, decoded; "" if a part of it was dropped
	rest    string     // what follows the first segment, as it came
	preview bool
}

// parse reads the path of a request. It forgives what people paste around an alias.
func (s *service) parse(r *http.Request) asked {
	q := asked{domain: s.domainOf(r), first: r.URL.Path[1:]}
	if r.URL.RawPath != "" || strings.IndexByte(q.first, '/') >= 0 {
		q.first, q.rest = splitPath(rawPath(r))
	}
	a, ok := link.ParseAlias(q.first)
	if !ok {
		pasted, cut := link.PastedAlias(q.first)
		switch {
		case cut:
			q.first, q.rest = "", ""
		case q.rest != "": // as in /https://example.com/
			pasted = q.first
		}
		pasted, q.preview = strings.CutSuffix(pasted, "+")
		a, ok = link.ParseAlias(pasted)
	}
	if ok && !a.Reserved() {
		q.alias = a
	}
	return q
}

// decision is where a request for a link leads.
type decision struct {
	link link.Link
	at   time.Time     // when the link was found
	took time.Duration // until then
	rule string        // by which it leads there, as link.For returns it; "": it has no rules
	target
}

// decide looks up the link of a request, and returns where it leads now. If the link exists, the
// decision has it even with an error. Errors: link.ErrNotFound, also if the link does not forward
// the rest of the path; link.ErrDamaged; link.ErrUnavailable; a problem.
func (s *service) decide(ctx context.Context, r *http.Request, q asked) (d decision, err error) {
	if q.alias == "" {
		return d, notFoundProblem
	}
	if err := s.limits.take(access.LimitRedirect, r); err != nil {
		return d, err
	}
	start := s.Now()
	d.link, err = s.lookUp(ctx, r, q.domain.Name(q.alias))
	d.at = s.Now()
	d.took = d.at.Sub(start)
	if err != nil {
		return d, err
	}
	if p := notLive(d.link, d.at); p != nil {
		return d, p
	}
	if d.link.Guarded() {
		if d.target, err = s.target(r, d.link, q); err == nil {
			err = guardedProblem
		}
		return d, err
	}
	to, err := s.choose(ctx, visitor{s, r, q.preview}, &d)
	if err != nil {
		return d, err
	}
	d.target, err = s.target(r, to, q)
	return d, err
}

// choose returns the link of a decision as it leads its visitor, by its rules. Error:
// linkBlockedProblem.
func (s *service) choose(ctx context.Context, v visitor, d *decision) (to link.Link, err error) {
	to = d.link
	if len(to.Rules) > 0 {
		to, d.rule = to.For(v, d.at)
	}
	if s.Blocked.Has(ctx, to.LongURL) {
		return to, linkBlockedProblem
	}
	return to, nil
}

// answer redirects a request to where its link leads, and counts the click.
func (s *service) answer(w http.ResponseWriter, r *http.Request, d decision) {
	// http.Redirect would change the URL and add a body.
	h := w.Header()
	h["Location"] = []string{d.location}
	h["Cache-Control"] = s.cacheControl(d.link, d.at)
	if s.varyDomain != nil && h["Cache-Control"][0] != noStore[0] {
		h["Vary"] = s.varyDomain
	}
	h["X-Robots-Tag"] = noIndex
	w.WriteHeader(cmp.Or(d.link.StatusCode, link.DefaultStatusCode))
	if r.Method == http.MethodGet && !prefetched(r.Header) {
		s.click(r, d)
	}
}

// refuse counts a request that leads nowhere, and returns its problem. It sends browsers to the
// page that the operator has for unknown aliases, or that their owner or the operator has for links
// that have ended, if there is one.
func (s *service) refuse(
	ctx context.Context, w http.ResponseWriter, r *http.Request, q asked, d decision, err error,
) error {
	switch {
	case q.alias == "":
		s.Metrics.RedirectNotFound.Add(1)
	case errors.Is(err, link.ErrNotFound):
		s.Metrics.RedirectNotFound.Add(1)
		if !s.fallBack(w, r, s.UnknownURL, q) {
			return s.offer(q)
		}
		return nil
	case isGone(err) || errors.Is(err, link.ErrDamaged):
		s.Metrics.RedirectGone.Add(1)
		if ended(d.link, d.at) && s.fallBack(w, r, s.goneURL(ctx, d.link), q) {
			return nil
		}
	}
	return err
}

// goneURL returns where browsers are sent from a link that has ended. "": they see a page. The
// owner of a link that was taken down has no say in it.
func (s *service) goneURL(ctx context.Context, l link.Link) link.Fallback {
	switch {
	case l.GoneURL == "", l.Locked:
		return s.GoneURL
	case s.Blocked.Has(ctx, string(l.GoneURL)):
		return ""
	}
	return l.GoneURL
}

// offer returns the problem of an alias that leads nowhere. Its page offers to make the link.
func (s *service) offer(q asked) error {
	p := s.problemOf(notFoundProblem)
	if q.rest != "" {
		return p
	}
	offer := *p
	offer.offer = pages.Offer{Alias: string(q.alias)}
	if q.domain != "" {
		offer.offer.Domain, offer.offer.Main = string(q.domain), s.Rules.Base.String()
	}
	return &offer
}

// fallBack sends a browser to a fallback, and reports whether it did. Programs get a problem
// instead.
func (s *service) fallBack(
	w http.ResponseWriter, r *http.Request, to link.Fallback, q asked,
) bool {
	if to == "" {
		return false
	}
	w.Header().Set("Vary", "Accept")
	if !prefers(r.Header, "text/html") {
		return false
	}
	found(w, http.StatusFound, to.Location(q.alias, s.Rules.DomainName(q.domain)))
	return true
}

// lookUp returns the link of a name. A client that has asked for too many aliases that do not exist
// gets only cached links.
func (s *service) lookUp(
	ctx context.Context, r *http.Request, name link.Name,
) (l link.Link, err error) {
	if l, ok := s.Links.Cached(ctx, name, false); ok {
		return l, nil
	}
	ctx, cancel := within(ctx, waitTime)
	defer cancel()
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
		// If the link is cached in lower case, an older row may still have this very spelling. To
		// look for that is no guess: below the limit it does not count as one.
		if lower := name.Lower(); s.Rules.AnyCase && lower != name {
			if _, ok := s.Links.Cached(ctx, lower, true); ok {
				return s.Links.Get(ctx, name)
			}
		}
	}
	return l, err
}

// These header values are shared by all responses and must not be modified.
var (
	noStore = []string{"no-store"}
	noIndex = []string{"noindex"} // search engines should list the target, not the short link
)

// cacheControl returns the header Cache-Control of a redirect. A cache in front never keeps it past
// the link's expiry. It keeps no redirect of a link that may have changed, and none that depends on
// the visitor or on the query, which may not be part of the cache's key.
func (s *service) cacheControl(l link.Link, now time.Time) []string {
	if l.Stale || l.Forward != 0 || len(l.Rules) > 0 {
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

// found redirects, and lets nobody cache that.
func found(w http.ResponseWriter, status int, to string) {
	h := w.Header()
	h["Location"] = []string{to}
	h["Cache-Control"] = noStore
	h["X-Robots-Tag"] = noIndex
	w.WriteHeader(status)
}
