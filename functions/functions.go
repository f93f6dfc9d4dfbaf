// Package functions responds to requests: one file per function or route, and a folder with a function.json for each
// function that the Functions host knows. What it needs from other packages it declares as interfaces.
package functions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"tiney/access"
	"tiney/clicks"
	"tiney/link"
	"tiney/pages"
	"tiney/telemetry"
	"tiney/transfer"
)

// Creator makes links, for shorten. Create returns the live link that want's owner has of its long URL, one that it makes
// if there is none, and whether it made it; what it returns is durable. If want has an alias, it makes that link, or returns
// the one that the same owner has under that alias, if it is live and of the same long URL. A caller without an owner who is
// given a link that was there makes it Shared, unless presented, the hash of a claim token or "", is its ClaimHash.
// It is safe to repeat after any error.
// Errors: link.ErrBlocked, link.ErrDisabled, link.ErrAliasesTaken, link.ErrAliasTaken, link.ErrUnavailable.
type Creator interface {
	Create(ctx context.Context, want link.Link, presented string) (l link.Link, created bool, err error)
}

// Getter finds links, for redirects and previews, which need an answer fast.
type Getter interface {
	// Cached returns a link if it is live and to be had without looking it up; if stale is true, also one that should be looked
	// up, and would be served if that failed.
	Cached(ctx context.Context, a link.Alias, stale bool) (l link.Link, ok bool)
	// Get returns a link, which may come from a cache, and may be expired, disabled, deleted, or a tombstone.
	// Errors: link.ErrNotFound only if there is no such link, link.ErrDamaged, link.ErrUnavailable.
	Get(ctx context.Context, a link.Alias) (link.Link, error)
}

// Reader reads links as they are in the table, with all that is known of them.
// Errors: link.ErrNotFound, of a tombstone too, link.ErrDamaged, link.ErrUnavailable.
type Reader interface {
	Read(ctx context.Context, a link.Alias) (link.Link, error)
}

// Editor changes links.
type Editor interface {
	// Edit reads a link, and writes what change makes of it, which is durable on return. Where another edit came between,
	// it calls change again, up to five times in all, or only once if once is set. It writes nothing if change returns an
	// error, which is then Edit's, or the link as it was. It returns the link as it is now, and is safe to repeat.
	// Errors: those of change, link.ErrBlocked of another long URL, link.ErrNotFound, link.ErrConflict, link.ErrDamaged,
	// link.ErrUnavailable.
	Edit(ctx context.Context, a link.Alias, once bool, change func(link.Link) (link.Link, error)) (link.Link, error)
	// EditAll edits several links, an alias that comes twice in this order; change gets the index. errs has the error of
	// each. If err is not nil, nothing was done; it is link.ErrUnavailable.
	EditAll(ctx context.Context, aliases []link.Alias, change func(i int, l link.Link) (link.Link, error)) (errs []error, err error)
}

// Lister lists the links of an owner, newest first: up to limit of those that keep is true of, after a position, "" being
// the start. next is the position to continue from, and "" at the end. A position may be anybody's invention. One call reads
// 1,000 links at most, so it may return fewer than there are; it returns no tombstones.
// Errors: link.ErrPosition if after can be no position, link.ErrUnavailable.
type Lister interface {
	List(ctx context.Context, owner, after string, limit int, keep func(link.Link) bool) (links []link.Link, next string, err error)
}

// Mover takes links out of the store and puts links in.
type Mover interface {
	// All returns links of all owners, deleted ones too, from up to limit rows of the store after a position, "" being the
	// start. next is the position to continue from, and "" at the end. A position may be anybody's invention. Damaged is how
	// many of the rows are no links. Errors: link.ErrPosition if after can be no position, link.ErrUnavailable.
	All(ctx context.Context, after string, limit int) (links []link.Link, next string, damaged int, err error)
	transfer.Importer
}

// Callers tells who sends a request, by its headers. The zero Caller is anyone.
type Callers interface {
	// Caller honours access.WithoutLookup. Errors: access.ErrInvalid, access.ErrAmbiguous, access.ErrUnavailable.
	Caller(ctx context.Context, h http.Header) (access.Caller, error)
	// SignIn says how people sign in, for the page that lets them. It may wait some seconds for their provider.
	SignIn(ctx context.Context) access.SignIn
}

// Keys keeps API keys. What Create and Revoke did is durable on return.
type Keys interface {
	// Create adds a key, unless its owner has access.MaxKeys that have not ended. Errors:
	// access.ErrTooManyKeys, link.ErrUnavailable; then the key may be there, but nobody has it.
	Create(ctx context.Context, k access.Key) error
	// List returns the keys of an owner, of all owners if it is "", newest first. Error: link.ErrUnavailable.
	List(ctx context.Context, owner string) ([]access.Key, error)
	// Revoke deletes the key with this id, if it is owner's; anybody's if owner is "".
	// Errors: access.ErrUnknownKey, link.ErrForbidden, link.ErrUnavailable.
	Revoke(ctx context.Context, id, owner string) error
}

// Blocked keeps the hosts to which, and to all below which, no link may lead. What Add and Remove did is durable on return, and
// known here; other processes know it within 15 seconds.
type Blocked interface {
	// Has reports whether a long URL leads to such a host. It costs next to nothing where none is blocked, and waits for storage
	// only until the hosts were read once.
	Has(ctx context.Context, longURL string) bool
	// Add blocks a host, also one that is blocked already. Error: link.ErrUnavailable.
	Add(ctx context.Context, h link.Host) error
	// Remove ends the block of a host. Errors: link.ErrNotBlocked, link.ErrUnavailable.
	Remove(ctx context.Context, h link.Host) error
	// List returns the hosts in the order of their names. Error: link.ErrUnavailable.
	List(ctx context.Context) ([]link.BlockedHost, error)
}

// Clicks counts what became of links. It neither waits for storage nor fails.
type Clicks interface {
	Click(a link.Alias, k clicks.Click)
	Created(links int)
}

// Statistics tells what was counted of links, as of the last time that it was saved. Error of all: link.ErrUnavailable.
type Statistics interface {
	// Days returns what became of a link on each day from one to another, which is not before it, both included. What was
	// counted before the alias was this link's is left out.
	Days(ctx context.Context, l link.Link, from, to clicks.Day) ([]clicks.Count, error)
	// Totals returns the clicks and bots of each of some links since ever, and the last click. They may be a minute old.
	Totals(ctx context.Context, links []link.Link) ([]clicks.Total, error)
	// TotalsOfAll does the same, of links that Mover.All has returned together.
	TotalsOfAll(ctx context.Context, links []link.Link) ([]clicks.Total, error)
	// Top returns up to limit of the links that were clicked most within a window, and how often, the first one most: an
	// owner's, anybody's if owner is "". Deleted ones are left out. They may be a minute old.
	Top(ctx context.Context, owner string, window clicks.Window, limit int) (links []link.Link, counts []int64, err error)
	// Service returns what became of all links since ever. It may be a minute old.
	Service(ctx context.Context) (clicks.Total, error)
}

// Pinger checks, for ready, whether a part of storage responds; an error says that it does not. It returns when ctx ends,
// and does not panic.
type Pinger interface {
	Ping(ctx context.Context) error
}

// Runner runs the reaper.
type Runner interface {
	// Run runs it once, for the timer trigger, and says in words what it did. The error is link.ErrLockHeld if another
	// instance is reaping, which is no failure.
	Run(ctx context.Context) (summary string, err error)
	// Stats tells how the runs of all instances went. Error: link.ErrUnavailable.
	Stats(ctx context.Context) (link.ReapStats, error)
}

// Config is what the functions work with. Every field is required unless it says otherwise.
type Config struct {
	Version string // of this build, for health
	// HostAddress is the address at which the Functions host reaches this process, such as "127.0.0.1:49152". It is "" if
	// there is no host; then the timer triggers have no endpoint.
	HostAddress    string
	Rules          link.Rules
	RedirectMaxAge time.Duration // how long caches in front may keep a redirect; zero: not at all
	// StrictTransport is for how long browsers are told to use https alone for the host of an https
	// base; zero: not at all.
	StrictTransport time.Duration

	LocalOnly   bool          // only requests to a name of this machine get anything but a 403
	OwnersOnly  bool          // only owners may shorten
	DeletedKeep time.Duration // how long a deleted link can be restored
	PublicStats bool          // anyone may ask for the statistics of the whole service, not only an admin

	Addresses access.Addresses // whose address a request comes from
	Rates     access.Rates     // how many requests each client may send

	CountClicks clicks.Mode // what is counted of them
	CountsKept  int         // for how many days the counts of each day are kept

	Callers    Callers
	Keys       Keys
	Blocked    Blocked
	Clicks     Clicks
	Statistics Statistics
	Links      interface {
		Creator
		Getter
		Reader
		Editor
		Lister
		Mover
	}
	Tables, Lock Pinger
	Reaper       Runner

	Now     func() time.Time
	Random  io.Reader // a cryptographic source, for keys and claim tokens
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	Sender  *telemetry.Sender // gets the requests if no host reports them; nil disables it
}

// New returns the handler of all functions, with the routes of the function.json files and those behind web-api.
func New(c Config) (http.Handler, error) {
	limit := &limits{Limits: access.NewLimits(c.Rates, c.Now), addresses: c.Addresses, log: c.Log}
	ask := &callers{Callers: c.Callers, limits: limit, metrics: c.Metrics}
	create := &shorten{links: c.Links, rules: c.Rules, ownersOnly: c.OwnersOnly, now: c.Now, random: c.Random, clicks: c.Clicks, metrics: c.Metrics}
	site := pages.Site{Base: c.Rules.Base.String(), OwnersOnly: c.OwnersOnly, DefaultTTL: min(c.Rules.DefaultTTL, c.Rules.MaxTTL), MaxTTL: c.Rules.MaxTTL,
		Keep: c.DeletedKeep}
	ls := &links{store: c.Links, limits: limit, statistics: c.Statistics, rules: c.Rules, keep: c.DeletedKeep,
		now: c.Now, metrics: c.Metrics}
	ks := &keys{keys: c.Keys, now: c.Now, random: c.Random}
	bs := &blocked{c.Blocked}
	st := &stats{links: c.Links, statistics: c.Statistics, base: c.Rules.Base, kept: c.CountsKept, now: c.Now}
	ex := &exporting{links: c.Links, statistics: c.Statistics, base: c.Rules.Base, now: c.Now}
	im := &importing{links: c.Links, rules: c.Rules, limits: limit, clicks: c.Clicks, now: c.Now,
		log: c.Log}
	large := &few{owners: map[string]bool{}}
	serviceStats := ask.anyone(st.service)
	if !c.PublicStats {
		serviceStats = ask.admins(st.service)
	}
	routes, err := newRouter(functionFiles, c.HostAddress, map[string]handlerFunc{
		"shorten": create.counted(ask.limited(access.LimitShorten, create.serve)),
		"redirect": (&redirect{links: c.Links, blocked: c.Blocked, base: c.Rules.Base, site: site, maxAge: c.RedirectMaxAge, limits: limit, clicks: c.Clicks, counted: c.CountClicks,
			addresses: c.Addresses, now: c.Now, metrics: c.Metrics}).serve,
		"health": (&health{version: c.Version, now: c.Now}).serve,
		"ready": (&ready{parts: map[string]Pinger{"tables": c.Tables, "lock": c.Lock}, limits: limit,
			now: c.Now, log: c.Log}).serve,
		"home":   newHome(site, create, limit).serve,
		"manage": (&manage{site: site, callers: c.Callers}).serve,
		"reaper": (&timer{reaper: c.Reaper, log: c.Log}).serve,
		webAPI:   notFound,
	}, map[string]handlerFunc{
		"GET /api/links/{alias}/qr":       ask.public(newQR(c.Rules.Base).serve),
		"GET /api/openapi.json":           ask.anyone(newOpenAPI(c.Rules.Base, c.Version).serve),
		"GET /api/me":                     ask.anyone(me),
		"GET /api/links":                  ask.owners(ls.list),
		"POST /api/links/bulk":            ask.owners(large.let((&bulk{create, c.Log.With("function", "bulk")}).serve)),
		"GET /api/links/{alias}":          ask.holders(ls.read),
		"PATCH /api/links/{alias}":        ask.owners(ls.edit),
		"DELETE /api/links/{alias}":       ask.holders(ls.delete),
		"POST /api/links/{alias}/restore": ask.holders(ls.restore),
		"GET /api/links/{alias}/stats":    ask.holders(st.link),
		"GET /api/stats/top":              ask.owners(st.top),
		"GET /api/stats":                  serviceStats,
		"POST /api/claims":                ask.owners(ls.claim),
		"GET /api/export":                 ask.owners(ex.serve),
		"POST /api/import":                ask.owners(large.let(im.serve)),
		"POST /api/keys":                  ask.owners(ks.create),
		"GET /api/keys":                   ask.owners(ks.list),
		"DELETE /api/keys/{id}":           ask.owners(ks.revoke),
		"PUT /api/blocked/{host}":         ask.admins(bs.add),
		"DELETE /api/blocked/{host}":      ask.admins(bs.remove),
		"GET /api/blocked":                ask.admins(bs.list),
		"GET /api/admin/cleanup/stats":    ask.admins((&cleanup{reaper: c.Reaper}).stats),
	})
	if err != nil {
		return nil, err
	}
	var strictTransport []string
	if c.StrictTransport > 0 && strings.HasPrefix(c.Rules.Base.Origin(), "https:") {
		strictTransport = []string{fmt.Sprintf("max-age=%d", int64(c.StrictTransport.Seconds()))}
	}
	return &service{routes: routes, strictTransport: strictTransport, hosted: c.HostAddress != "",
		localOnly: c.LocalOnly, addresses: c.Addresses, log: c.Log, metrics: c.Metrics, sender: c.Sender}, nil
}

// handlerFunc is one function. It responds, or returns an error before it has written anything. The context is that of
// the request and of its operation; it is passed beside the request, because a request with another context is a copy.
type handlerFunc func(ctx context.Context, w http.ResponseWriter, r *http.Request) error

func notFound(context.Context, http.ResponseWriter, *http.Request) error { return nothingHereProblem }

// service handles every request: it finds the function, turns its error into a response, and reports the result.
type service struct {
	routes    *router
	hosted    bool
	localOnly bool
	addresses access.Addresses
	// strictTransport is the header Strict-Transport-Security, which all responses share; nil for
	// none.
	strictTransport []string
	log             *slog.Logger
	metrics         *telemetry.Metrics
	sender          *telemetry.Sender

	forwardingKnown atomic.Bool // set once it is known whether the host forwards or proxies
}

// statusWriter is the writer of a response. It remembers the status, and holds the operation and the
// context to save allocations.
type statusWriter struct {
	http.ResponseWriter
	status    int // 0 until the header is written
	operation telemetry.Operation
	waiting   waiting
}

func (w *statusWriter) WriteHeader(status int) {
	if status >= 200 { // else it is informational, and the final one follows
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (s *service) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &statusWriter{ResponseWriter: rw, operation: telemetry.Begin(r.Context(), "none", r.Header, s.hosted)}
	if !s.hosted && s.sender != nil || s.log.Enabled(r.Context(), slog.LevelDebug) {
		defer s.report(w, r, time.Now())
	}
	defer s.recoverPanic(w, r)
	if s.strictTransport != nil {
		w.Header()["Strict-Transport-Security"] = s.strictTransport
	}
	if s.hosted && !s.forwardingKnown.Load() {
		s.noteForwarding(w, r)
	}
	to, err := s.routes.find(r)
	if to.function != "" {
		w.operation.Name = to.function
	}
	if s.localOnly && !s.toThisMachine(r) {
		err = foreignHostProblem
	}
	if err == nil {
		ctx := context.Context(&w.operation)
		if to.limit > 0 {
			w.waiting.begin(ctx, to.limit)
			defer w.waiting.stop()
			ctx = &w.waiting
		}
		err = to.serve(ctx, w, r)
	}
	if err != nil {
		s.fail(w, r, err)
	}
}

// toThisMachine reports whether a request was sent to a name of this machine. A browser names
// another one if whoever runs that has its name lead here (DNS rebinding). A host that proxies puts
// its own name in Host, and the client's in the other header.
func (s *service) toThisMachine(r *http.Request) bool {
	names := []string{r.Host}
	if s.hosted {
		names = append(names, r.Header.Values("X-Forwarded-Host")...)
	}
	foreign := func(name string) bool { return !access.IsLoopback(&url.URL{Host: name}) }
	return !slices.ContainsFunc(names, foreign)
}

// How much is read of a request's body only to be thrown away, in bytes.
const (
	maxDrain      = maxImportBytes
	maxHostDrain  = 100 << 20 // behind a host that forwards, whose own limit this is
	maxSelfDrains = 256 << 10 // by net/http itself
)

func (s *service) fail(w *statusWriter, r *http.Request, err error) {
	p := problemOf(err)
	if p.Status == http.StatusTooManyRequests || p == busyProblem {
		s.metrics.LimitRefused.Add(1)
	}
	logProblem(s.logger(w), p, err)
	// A client that is still sending when the connection closes may never get to read the response.
	// A host reads it only when it has sent the whole body: one that forwards has read that before,
	// of up to its own limit.
	switch {
	case s.hosted && !proxied(w, r):
		_, _ = io.CopyN(io.Discard, r.Body, maxHostDrain)
	case s.hosted:
		_, _ = io.CopyN(io.Discard, r.Body, maxDrain)
	case r.Header.Get("Expect") != "": // the client asks before it sends
	case r.ContentLength < 0 || r.ContentLength > maxSelfDrains:
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex() // else net/http has the connection closed before
		// Then, or what comes of a body after the time for it would be taken for the next request.
		w.Header().Set("Connection", "close")
		defer func() {
			_ = control.Flush()
			_, _ = io.CopyN(io.Discard, r.Body, maxDrain)
		}()
	}
	p.write(w, r)
}

// logProblem logs an error that has become a problem, if it is one that somebody has to know of.
func logProblem(log *slog.Logger, p *problem, err error) {
	switch {
	case errors.Is(err, errNotTheHost):
		log.Warn(telemetry.LogTimerRefused, "error", err)
	case errors.Is(err, link.ErrDamaged):
		log.Error(telemetry.LogLinkCorrupt, "error", err)
	case p.Status == http.StatusUnauthorized:
		log.Debug("credentials refused", "error", err) // why, for who sets up a provider
	case p == uncheckedProblem && !errors.Is(err, link.ErrUnavailable):
		log.Warn(telemetry.LogProviderUnavailable, "error", err)
	case p == busyProblem:
	case p.Status == http.StatusServiceUnavailable:
		log.Warn(telemetry.LogStorageUnavailable, "error", err)
	case p.Status >= 500:
		log.Error(telemetry.LogRequestFailed, "error", err)
	}
}

// logger returns a logger with correlation IDs.
func (s *service) logger(w *statusWriter) *slog.Logger {
	return s.log.With("function", w.operation.Name, "operation", w.operation.ID(), "invocation", w.operation.Invocation())
}

// recoverPanic turns a panic into a log line and a 500. If a part of the response is written, it aborts the connection,
// so that nobody takes the part for the whole.
func (s *service) recoverPanic(w *statusWriter, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.logger(w).Error(telemetry.LogPanic, "panic", p, "stack", string(debug.Stack()))
	if w.status != 0 {
		w.status = http.StatusInternalServerError // for the report
		panic(http.ErrAbortHandler)
	}
	internalProblem.write(w, r)
}

// proxied reports whether a request comes by a Functions host that proxies. Such a host gives the id of the invocation in
// a header of its own too; through a host that forwards, a client can send that header, but not guess the id.
func proxied(w *statusWriter, r *http.Request) bool {
	id := w.operation.Invocation()
	return id != "" && strings.EqualFold(r.Header.Get(proxyHeader), id)
}

const proxyHeader = "X-Ms-Invocation-Id"

// noteForwarding logs once what the kind of the Functions host means. One that forwards rewrites Location, and appends its
// name to the client's User-Agent; in the host's own requests that name is all there is. One that proxies replaces
// X-Forwarded-For by its own peer's address, which is the same for all clients.
func (s *service) noteForwarding(w *statusWriter, r *http.Request) {
	const name = "Azure-Functions-Host/"
	agent := r.UserAgent()
	if r.Header.Get("X-Azure-Functions-Invocationid") == "" || strings.HasPrefix(agent, name) || s.forwardingKnown.Swap(true) {
		return
	}
	switch proxies := proxied(w, r); {
	case proxies && s.addresses.Hops > 0 && strings.EqualFold(s.addresses.Header, "X-Forwarded-For"):
		s.log.Warn(telemetry.LogClientAddressLost)
	case !proxies && strings.Contains(agent, " "+name):
		s.log.Warn(telemetry.LogLocationRewritten)
	}
}

// report tells telemetry and the log of a request that has been handled. It names the function and leaves out the path:
// people paste URLs into it.
func (s *service) report(w *statusWriter, r *http.Request, start time.Time) {
	took := time.Since(start)
	s.sender.Request(&w.operation, telemetry.Request{Status: w.status, Success: w.status < 500, Start: start, Duration: took, From: r})
	if s.log.Enabled(r.Context(), slog.LevelDebug) {
		s.logger(w).Debug("request", "method", methodName(r.Method), "status", w.status, "ms", float64(took.Microseconds())/1000)
	}
}

// methodName returns a method for the log. A client may send any word.
func methodName(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// setHeaders sets the headers that every response with a body has. Nobody may cache it unless its function says
// otherwise.
func setHeaders(w http.ResponseWriter, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}
