package functions

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"tiney/internal/access"
	"tiney/internal/link"
	"tiney/internal/pages"
)

// home handles GET / with a page to shorten a URL, and POST / with the page's form, which browsers
// send if scripts are off.
func (s *service) home(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	d := s.domainOf(r)
	// The Functions host asks for this page by itself, to see whether the handler responds. It must
	// not follow a redirect to another website, every 25 ms while it starts.
	elsewhere := s.HomeURL != "" && !(s.hosted && r.Header[invocationHeader] == nil)
	methods := "GET, HEAD, POST, OPTIONS"
	if elsewhere {
		methods = "GET, HEAD, OPTIONS"
	}
	switch {
	case r.Method == http.MethodOptions: // proxies ask so whether the service is there
		allowed(w, methods)
		return nil
	case elsewhere:
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			return methodProblem(methods)
		}
		found(w, http.StatusFound, s.HomeURL.Location("", s.Rules.DomainName(d)))
		return nil
	}
	// With "no-referrer" browsers would not send the origin of this page's form either.
	w.Header().Set("Referrer-Policy", "same-origin")
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		page := s.homePage
		if longURL := r.URL.Query().Get("longUrl"); d != "" || longURL != "" {
			page = s.siteOf(d).Home(pages.Form{LongURL: longURL})
		}
		writePage(w, http.StatusOK, page)
		return nil
	case http.MethodPost:
		return s.countRejected(s.shortenForm)(ctx, w, r)
	}
	// The function.json of home takes every method, because the host responds to any other method
	// with a page of its own.
	return methodProblem(methods)
}

// shortenForm makes the link that a form asks for, by the rules of shorten, as a caller without
// credentials. The response is the page, with the link or with what is wrong.
func (s *service) shortenForm(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	if s.foreignForm(r.Header) {
		return crossSiteProblem
	}
	contentType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if contentType != "application/x-www-form-urlencoded" {
		return formTypeProblem
	}
	body, err := readBody(w, r, maxBody)
	if err != nil {
		return err
	}
	values, err := url.ParseQuery(string(body))
	if err != nil {
		return badFormProblem
	}
	f := pages.Form{
		LongURL:  strings.TrimSpace(values.Get("longUrl")),
		Alias:    strings.TrimSpace(values.Get("alias")),
		Lifetime: values.Get("expiresInSeconds"),
	}
	var l link.Link
	var created bool
	d := s.domainOf(r)
	site := s.siteOf(d)
	ctx, cancel := within(ctx, waitTime)
	defer cancel()
	// The limit comes after the form is read, so that the page can show the form again.
	if err = s.limits.take(access.LimitShorten, r); err == nil {
		l, created, err = s.createFromForm(ctx, d, f)
	}
	if err != nil {
		p := *problemOf(err)
		f.Title, f.Detail, f.Field = p.Title, p.Detail, p.Field
		p.form = site.Home(f)
		return fmt.Errorf("%w: %w", &p, err)
	}
	lv := s.linkOnPage(l)
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	writePage(w, status, site.Home(pages.Form{Made: &lv, New: created}))
	return nil
}

// foreignForm reports whether a form comes from another website. That website could otherwise have
// its visitors make links and use up their limits. Browsers say so in Sec-Fetch-Site
// (https://www.w3.org/TR/fetch-metadata/), or else name the page's origin. The Host header does not
// help: behind a Functions host that proxies, it is the handler's own address.
func (s *service) foreignForm(header http.Header) bool {
	if sites := header.Values("Sec-Fetch-Site"); len(sites) > 0 {
		return len(sites) > 1 || sites[0] != "same-origin" && sites[0] != "none"
	}
	return s.foreignOrigin(header)
}

// foreignOrigin reports whether a request has an Origin that is not the service's own.
func (s *service) foreignOrigin(header http.Header) bool {
	origins := header.Values("Origin")
	return len(origins) > 1 || len(origins) == 1 && !slices.Contains(s.Rules.Origins(), origins[0])
}

var crossSiteProblem = newProblem(http.StatusForbidden, "cross-site",
	"This form is another website's",
	"Another website had your browser send this form, so no link was made. "+
		"To make one, open the page of this service itself, "+
		"at the address that its short URLs begin with.")

var badFormProblem = badRequest("body", "Invalid body",
	"The form is not valid: check its percent-encoding.", "")

var formTypeProblem = newProblem(http.StatusUnsupportedMediaType, "media-type", "Send a form",
	"The body must be a form: send it with the header Content-Type: "+
		"application/x-www-form-urlencoded. Programs use POST /api/shorten.")

// scheme matches the scheme at the start of a URL, and what is most likely one without its colon.
// People leave the scheme out, as browsers let them. A colon before a digit introduces a port, so
// it ends no scheme.
var scheme = regexp.MustCompile(`^(?i:[a-z][a-z0-9+.-]*:(?:\D|$)|[\w+-]*//)`)

// completed returns a pasted URL as browsers complete it.
func completed(pasted string) string {
	longURL := unwrapped(pasted)
	if longURL != "" && !scheme.MatchString(longURL) {
		return "https://" + longURL
	}
	return longURL
}

var addressInBrackets = regexp.MustCompile(`^\[(?i:[\da-f.]*:[\da-f:.]*)\]`)

// unwrapped returns a text without the white space, invisible characters, quotes and brackets
// around it. A closing mark goes only with its opening one: some URLs end in one. The script of the
// page does the same.
func unwrapped(s string) string {
	quote := func(r rune) bool {
		return unicode.In(r, unicode.Pi, unicode.Pf) || strings.ContainsRune("‚„\"'`＂＇", r)
	}
	ends := func(r rune) bool {
		return unicode.IsSpace(r) || strings.ContainsRune(".,;:!?…。，、！？；：", r)
	}
	for range 8 { // more are never pasted, and each takes time
		s = strings.TrimFunc(s, link.Invisible)
		opening, size := utf8.DecodeRuneInString(s)
		if !quote(opening) && !unicode.Is(unicode.Ps, opening) && opening != '<' && opening != '＜' ||
			addressInBrackets.MatchString(s) {
			return s
		}
		s = s[size:]
		inside := strings.TrimRightFunc(s, ends)
		closing, size := utf8.DecodeLastRuneInString(inside)
		closes := quote(opening) && quote(closing)
		if !quote(opening) && (unicode.Is(unicode.Pe, closing) || closing == '>' || closing == '＞') {
			next := closing - opening // in Unicode, pairs of brackets are neighbours, or nearly
			closes = (next == 1 || next == 2) &&
				strings.Count(inside, string(closing)) > strings.Count(inside, string(opening))
		}
		if closes {
			s = inside[:len(inside)-size]
		}
	}
	return s
}

// siteOf returns what the pages of a domain know about the service.
func (s *service) siteOf(d link.Domain) pages.Site {
	site := s.site
	if d != "" {
		site.Domain, site.Main, site.Base = string(d), site.Base, s.Rules.BaseOf(d)
		site.OwnersOnly = s.OwnersOnly || s.DomainsOwnersOnly
	}
	return site
}

func (s *service) createFromForm(
	ctx context.Context, d link.Domain, f pages.Form,
) (l link.Link, created bool, err error) {
	if s.OwnersOnly {
		return l, false, noCredentialsProblem
	}
	wish := link.Wish{LongURL: completed(f.LongURL), Domain: d}
	if alias := unwrapped(f.Alias); alias != "" {
		wish.Alias = &alias
	}
	if f.Lifetime != "" {
		seconds, err := strconv.ParseInt(f.Lifetime, 10, 64)
		if err != nil {
			return l, false, fieldProblem("expiresInSeconds",
				"The lifetime must be a whole number of seconds.")
		}
		wish.End.Seconds = &seconds
	}
	l, created, _, err = s.create(ctx, wish, access.Caller{})
	if errors.Is(err, link.ErrAliasTaken) {
		taken := *aliasTakenProblem
		taken.Field = "alias"
		err = &taken
	}
	return l, created, err
}

// linkOnPage returns a link as pages show it.
func (s *service) linkOnPage(l link.Link) pages.Link {
	return pages.Link{
		Alias:    string(l.Alias()),
		Name:     string(l.Name.Domain().Name(l.Alias())),
		ShortURL: s.Rules.ShortURL(l),
		LongURL:  l.LongURL,
		ASCII:    link.ASCII(l.LongURL),
		Created:  l.CreatedAt,
		Expires:  l.ExpiresAt,
	}
}
