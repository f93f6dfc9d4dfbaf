package functions

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tiney/link"
	"tiney/telemetry"
)

// redirect handles GET and HEAD /{alias}.
type redirect struct {
	links   Getter
	maxAge  time.Duration
	now     func() time.Time
	metrics *telemetry.Metrics
}

func (rd *redirect) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Path[1:]
	a, ok := link.ParseAlias(name)
	if !ok && wellKnown(w, name) {
		return nil
	}
	if !ok {
		a, ok = link.ParseAlias(strings.TrimRight(name, punctuation))
	}
	ok = ok && !a.Reserved()
	var l link.Link
	err := error(notFoundProblem)
	start := rd.now()
	if ok {
		l, err = rd.links.Get(ctx, a)
	}
	now := rd.now()
	rd.metrics.RedirectDuration.Observe(now.Sub(start))
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
	if expired := l.Expired(now); expired || l.Disabled {
		rd.metrics.RedirectGone.Add(1)
		if expired {
			return expiredProblem
		}
		return disabledProblem
	}
	rd.metrics.RedirectFound.Add(1)
	// Not http.Redirect, which would change the URL and add a body.
	h := w.Header()
	h["Location"] = []string{link.Location(l.LongURL)}
	h["Cache-Control"] = rd.cacheControl(l, now)
	w.WriteHeader(http.StatusFound)
	return nil
}

// punctuation is what follows a link in a sentence, and is pasted with it.
const punctuation = ".,;:!?)]}'\""

// noStore is the value of a header, shared by all responses: not to be written to.
var noStore = []string{"no-store"}

// cacheControl returns how long a cache in front may keep a redirect: never past the link's expiry.
func (rd *redirect) cacheControl(l link.Link, now time.Time) []string {
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
