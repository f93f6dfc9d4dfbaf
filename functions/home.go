package functions

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"tiney/access"
	"tiney/link"
	"tiney/pages"
)

// home handles GET / with a page to shorten a URL, and POST / of its form, which browsers send that run no scripts. The page
// is rendered once: the Functions host asks for it every 25 ms while it waits for the handler.
type home struct {
	site    pages.Site
	page    []byte
	shorten *shorten
	limits  *limits
	post    handlerFunc
}

func newHome(site pages.Site, s *shorten, l *limits) *home {
	h := &home{site: site, page: site.Home(pages.Form{}), shorten: s, limits: l}
	h.post = s.counted(h.form)
	return h
}

func (h *home) serve(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	// With "no-referrer" browsers would keep the origin of this page's form to themselves too.
	w.Header().Set("Referrer-Policy", "same-origin")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		writePage(w, http.StatusOK, h.page)
		return nil
	case http.MethodPost:
		return h.post(ctx, w, r)
	}
	// Its function.json takes every method: to those that it did not take, the host would respond with a page of its own.
	return methodProblem("GET, HEAD, POST")
}

// form makes the link that a form asks for, by the rules of shorten, for nobody in particular. The response is the page,
// with the link or with what is wrong.
func (h *home) form(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	if h.foreign(r.Header) {
		return crossSiteProblem
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		return formTypeProblem
	}
	body, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return badRequest("body", "Invalid body", "The form is not valid: check its percent-encoding.", "")
	}
	f := pages.Form{LongURL: strings.TrimSpace(values.Get("longUrl")), Alias: strings.TrimSpace(values.Get("alias")), Lifetime: values.Get("expiresInSeconds")}
	var l link.Link
	var created bool
	if err = h.limits.take(access.LimitShorten, r, ""); err == nil { // now that there is a form to show again
		l, created, err = h.shortened(ctx, f)
	}
	if err != nil {
		p := *problemOf(err)
		f.Title, f.Detail, f.Field = p.Title, p.Detail, p.Field
		p.form = h.site.Home(f)
		return fmt.Errorf("%w: %w", &p, err)
	}
	lv := linkOnPage(l, h.site)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	writePage(w, status, h.site.Home(pages.Form{Made: &lv, New: created}))
	return nil
}

// foreign reports whether a browser sends a form that another website made: else that could make
// links, and use up the limit, of whoever visits it. Browsers that do not say so themselves
// (https://www.w3.org/TR/fetch-metadata/) name the page's origin. Host says nothing: where the
// Functions host proxies, it is the handler's own address.
func (h *home) foreign(header http.Header) bool {
	sites, origins := header.Values("Sec-Fetch-Site"), header.Values("Origin")
	if len(sites) > 0 {
		return len(sites) > 1 || sites[0] != "same-origin" && sites[0] != "none"
	}
	return len(origins) > 1 || len(origins) == 1 && origins[0] != h.shorten.rules.Base.Origin()
}

var crossSiteProblem = newProblem(http.StatusForbidden, "cross-site", "This form is another website's",
	"Another website had your browser send this form, so no link was made. "+
		"To make one, open the page of this service itself, at the address that its short URLs begin with.")

var formTypeProblem = newProblem(http.StatusUnsupportedMediaType, "media-type", "Send a form",
	"The body must be a form: send it with the header Content-Type: application/x-www-form-urlencoded. Programs use POST /api/shorten.")

// scheme is what a URL starts with. People leave it out, as browsers let them. A port follows no
// scheme.
var scheme = regexp.MustCompile(`^(?i:[a-z][a-z0-9+.-]*):(?:\D|$)`)

func (h *home) shortened(ctx context.Context, f pages.Form) (link.Link, bool, error) {
	wish := link.Wish{LongURL: f.LongURL}
	if f.LongURL != "" && !scheme.MatchString(f.LongURL) {
		wish.LongURL = "https://" + f.LongURL
	}
	if f.Alias != "" {
		wish.Alias = &f.Alias
	}
	if f.Lifetime != "" {
		seconds, err := strconv.ParseInt(f.Lifetime, 10, 64)
		if err != nil {
			return link.Link{}, false, fieldProblem("expiresInSeconds", "The lifetime must be a whole number of seconds.")
		}
		wish.End.Seconds = &seconds
	}
	l, created, _, err := h.shorten.create(ctx, wish, access.Caller{})
	if errors.Is(err, link.ErrAliasTaken) {
		taken := *aliasTakenProblem
		taken.Field = "alias"
		err = &taken
	}
	return l, created, err
}

// linkOnPage returns a link as pages show it.
func linkOnPage(l link.Link, site pages.Site) pages.Link {
	return pages.Link{Alias: string(l.Alias), ShortURL: site.Base + "/" + string(l.Alias), LongURL: l.LongURL, ASCII: link.Location(l.LongURL),
		Created: l.CreatedAt, Expires: l.ExpiresAt}
}
