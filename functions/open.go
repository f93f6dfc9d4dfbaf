package functions

import (
	"cmp"
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"time"

	"tiney/internal/access"
	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/pages"
	"tiney/internal/telemetry"
)

const (
	maxOpenBody = 4 << 10 // of an opening, in bytes
	// passwordWait is how long an opening waits until its password is compared.
	passwordWait = 2 * time.Second
)

// guardPage shows a browser what a guarded link asks for. wrong says what is wrong with the
// password that was sent; "": nothing is.
func (s *service) guardPage(
	w http.ResponseWriter, r *http.Request, l link.Link, status int, wrong string,
) {
	// With "no-referrer" browsers would not send the origin of this page's form either.
	w.Header().Set("Referrer-Policy", "same-origin")
	site := s.siteOf(l.Name.Domain())
	writePageUnder(w, status, site.Guard(r.URL.EscapedPath(), pages.Guarded{
		Link:     s.linkOnPage(l),
		Password: l.Password != "",
		Source:   clicks.Source(r.URL.RawQuery),
		Wrong:    wrong,
	}), pages.PolicyOfForm(s.Rules.ExtraSchemes))
}

// guard responds to a request for a guarded link, or for its preview.
func (s *service) guard(w http.ResponseWriter, r *http.Request, l link.Link) error {
	w.Header().Set("Vary", "Accept")
	if !prefers(r.Header, "text/html") {
		return guardedProblem
	}
	s.guardPage(w, r, l, http.StatusOK, "")
	return nil
}

// opening is one request to open a link.
type opening struct {
	r        *http.Request
	begun    time.Time
	password string // in NFC; "": none was sent
	form     bool   // it comes from the guard page
	compared string // the hash that the password has matched
	decision
}

// open handles POST /api/links/{alias}/open: it leads to the target of a link, also of a guarded
// one, and counts the click.
func (s *service) open(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
	o := &opening{r: r, begun: s.Now()}
	err := s.readOpening(w, o)
	if err == nil {
		ctx, cancel := within(ctx, waitTime) // however long the body took
		defer cancel()
		err = s.lead(ctx, o)
	}
	if err == nil {
		s.Metrics.RedirectFound.Add(1)
		found(w, http.StatusSeeOther, o.location)
		s.click(r, o.decision)
		return nil
	}
	p := s.problemOf(err)
	if !o.form || !prefers(r.Header, "text/html") {
		return err
	}
	if p.Type == wrongPasswordProblem.Type {
		s.guardPage(w, r, o.link, p.Status, p.Detail)
		return nil
	}
	onPage := *p // the log still gets err
	var offer pages.Offer
	if slices.Contains([]int{400, 403, 429, 503}, p.Status) {
		if name, err := s.nameIn(r); err == nil {
			offer.Again = s.Rules.ShortURL(link.Link{Name: name})
		}
	}
	onPage.form = s.siteOf(s.domainOf(r)).Problem(r.URL.EscapedPath(), p.Status, p.Title,
		cmp.Or(p.page, p.Detail), offer)
	return errors.Join(&onPage, err)
}

// readOpening reads the body of an opening.
func (s *service) readOpening(w http.ResponseWriter, o *opening) error {
	contentType, _, _ := mime.ParseMediaType(o.r.Header.Get("Content-Type"))
	o.form = contentType == "application/x-www-form-urlencoded"
	if s.foreignForm(o.r.Header) {
		return crossSiteOpenProblem
	}
	if err := s.limits.take(access.LimitRedirect, o.r); err != nil {
		return err
	}
	body, err := readBody(w, o.r, maxOpenBody)
	if err != nil {
		return err
	}
	var password string
	switch {
	case len(body) == 0:
	case o.form:
		values, err := url.ParseQuery(string(body))
		if err != nil {
			return badFormProblem
		}
		password = values.Get("password")
	case isJSON(o.r.Header.Get("Content-Type"), "application/json"):
		asked, err := decode[struct {
			Password string `json:"password"`
		}](body)
		if err != nil {
			return err
		}
		password = asked.Password
	default:
		return openTypeProblem
	}
	// What no password can be is a wrong one.
	o.password, _ = link.NormalPassword(password)
	return nil
}

// lead finds out where an opening leads, in this order: the state of the link, the password, the
// target and its host, and then how often it may still lead there.
func (s *service) lead(ctx context.Context, o *opening) error {
	name, err := s.nameIn(o.r)
	if err != nil {
		return err
	}
	o.link, err = s.lookUp(ctx, o.r, name)
	if err != nil {
		return err
	}
	if err = s.unlock(ctx, o, o.link); err != nil {
		return err
	}
	choose := func() error {
		to, err := s.choose(ctx, visitor{s, o.r, false}, &o.decision)
		o.target = target{longURL: to.LongURL, location: link.Location(to.LongURL)}
		return err
	}
	if o.link.MaxOpens == 0 {
		return choose()
	}
	_, err = s.Links.Open(ctx, o.link.Name, func(l link.Link) error {
		if err := s.unlock(ctx, o, l); err != nil {
			return err
		}
		return choose()
	})
	return err
}

// unlock returns why an opening of a link leads nowhere, by the state of the link and its password.
func (s *service) unlock(ctx context.Context, o *opening, l link.Link) error {
	now := s.Now()
	o.decision = decision{link: l, at: now, took: now.Sub(o.begun)}
	if p := notLive(l, now); p != nil {
		return p
	}
	return s.comparePassword(ctx, o, l)
}

// comparePassword returns nil if an opening has the password of a link, and compares a password
// once. A wrong one counts as a guess of its address, and for its link: see access.LimitWrong.
func (s *service) comparePassword(ctx context.Context, o *opening, l link.Link) error {
	if l.Password == "" || l.Password == o.compared {
		return nil
	}
	if err := s.limits.take(access.LimitUnknown, o.r); err != nil {
		return err
	}
	if o.password == "" {
		return wrongPasswordProblem
	}
	// A try counts as a wrong one while it is compared, and not while it waits for that.
	undo, right := func() {}, false
	_, err := s.limits.try(o.r, l.Name, false)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, passwordWait)
		defer cancel()
		right, err = s.passwords.Match(ctx, l.Password, o.password, func() (err error) {
			undo, err = s.limits.try(o.r, l.Name, true)
			return err
		})
		if err != nil && ctx.Err() != nil {
			err = passwordBusyProblem
		}
	}
	switch {
	case err == nil && !right:
		return wrongPasswordProblem
	case err == nil:
		undo()
		o.compared = l.Password
	}
	s.limits.takeBack(access.LimitUnknown, o.r)
	return err
}

// try returns a problem if a link got so many wrong passwords that the client has to wait. If
// counts is set, it also counts one more, which undo undoes.
func (l *limits) try(r *http.Request, name link.Name, counts bool) (undo func(), err error) {
	all := access.Client{Owner: string(name)}
	one := access.Client{Of: string(name), Address: l.addresses.Of(r)}
	wait := l.Wait
	if counts {
		wait = l.Take
	}
	if wait(access.LimitWrong, all) == 0 {
		giveBack := func() { l.Return(access.LimitWrong, all) }
		if wait(access.LimitWrongDaily, all) == 0 {
			return func() {
				giveBack()
				l.Return(access.LimitWrongDaily, all)
			}, nil
		}
		if counts {
			giveBack()
		}
	}
	late := wait(access.LimitWrongLate, one)
	if late > 0 {
		p := limitedProblem(access.LimitWrongLate, 1, late)
		p.Detail = "This link got many wrong passwords. Try again in " + inWords(late) + "."
		return nil, p
	}
	return func() { l.Return(access.LimitWrongLate, one) }, nil
}

// fromHere reports whether a referrer is a page of this service.
func (s *service) fromHere(referrer string) bool {
	u, err := url.Parse(referrer)
	return err == nil && u.Host != "" &&
		slices.Contains(s.Rules.Origins(), u.Scheme+"://"+u.Host)
}

var (
	guardedProblem = newProblem(http.StatusForbidden, "link-guarded", "This link is guarded",
		"The short link at this address leads on only when it is opened: a browser shows a page "+
			"for that, and programs send POST /api/links/{alias}/open.")
	wrongPasswordProblem = newProblem(http.StatusForbidden, "wrong-password",
		"This is not the password",
		"The password is missing or wrong. Ask whoever gave you the link for it.").about("password")
	passwordBusyProblem = newProblem(http.StatusServiceUnavailable, "busy",
		"Try again in a moment",
		"Too many passwords are being compared at the moment. Nothing is wrong with your request: "+
			"repeat it in a few seconds.").exceeding(telemetry.LimitBusy)
	crossSiteOpenProblem = newProblem(http.StatusForbidden, "cross-site",
		"This form is another website's",
		"Another website had your browser send this form, so the link was not opened. To open it, "+
			"follow its short URL.")
	openTypeProblem = newProblem(http.StatusUnsupportedMediaType, "media-type",
		"Send a form or JSON",
		"The body must be a form or JSON with the password: send it with the header Content-Type: "+
			"application/x-www-form-urlencoded or application/json.")
)
