// Package functions holds the functions of the app, one file and one folder with its function.json each: a request
// comes in, an answer goes out. What they need from elsewhere they declare as interfaces here.
package functions

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"tiney/link"
	"tiney/telemetry"
)

// Creator makes links, for shorten. Create returns the live link of want's long URL, one that it makes if there is
// none, and says whether it made it; what it returns is durable. It may be repeated after any error.
// Errors: link.ErrDisabled, link.ErrAliasesTaken, link.ErrUnavailable.
type Creator interface {
	Create(ctx context.Context, want link.Link) (l link.Link, created bool, err error)
}

// Getter finds links, for redirect. The link it returns may be expired or disabled.
// Errors: link.ErrNotFound only if there is no such link, link.ErrDamaged, link.ErrUnavailable.
type Getter interface {
	Get(ctx context.Context, a link.Alias) (link.Link, error)
}

// Checker says, for ready, whether a part of storage answers, by an error where it does not. It returns when ctx ends.
type Checker interface {
	Check(ctx context.Context) error
}

// Config is what the functions work with. Every field is required but where it says so.
type Config struct {
	Version string // of this build, for health
	// Hosted says that the Functions host is in front: then, and only then, the reaper has an endpoint.
	Hosted         bool
	Rules          link.Rules
	RedirectMaxAge time.Duration // how long others may cache a redirect; zero: not at all

	Links interface {
		Creator
		Getter
	}
	Tables, Lock Checker
	Reaper       *Reaper

	Now     func() time.Time
	Log     *slog.Logger
	Metrics *telemetry.Metrics
	Sender  *telemetry.Sender // gets the requests, where no host reports them; nil: nobody does
}

// New returns the handler of all functions, with the routes that their function.json files give.
func New(c Config) (http.Handler, error) {
	routes, err := newRouter(map[string]answerer{
		"shorten":  &shorten{links: c.Links, rules: c.Rules, now: c.Now, metrics: c.Metrics},
		"redirect": newRedirect(c),
		"health":   &health{version: c.Version, now: c.Now},
		"ready":    &ready{checks: map[string]Checker{"tables": c.Tables, "lock": c.Lock}, log: c.Log},
		"home":     newHome(c.Rules.Base),
		"reaper":   c.Reaper,
	}, c.Hosted)
	if err != nil {
		return nil, err
	}
	return &service{routes: routes, hosted: c.Hosted, log: c.Log, sender: c.Sender}, nil
}

// answerer is one function. It answers, or returns an error before it has written anything. The context is the
// request's own, and the operation of whatever is done for it.
type answerer interface {
	answer(ctx context.Context, w http.ResponseWriter, r *http.Request) error
}

// service is the one place that every request passes: it finds the function, turns its errors into answers, and reports
// what came of it.
type service struct {
	routes *router
	hosted bool
	log    *slog.Logger
	sender *telemetry.Sender
}

// exchange is a request that is being answered: the writer of its answer, and its operation, which is handed on as a
// context beside the request, since a request with another context would be a copy.
type exchange struct {
	http.ResponseWriter
	status    int
	operation telemetry.Operation
}

func (e *exchange) WriteHeader(status int) {
	e.status = status
	e.ResponseWriter.WriteHeader(status)
}

func (e *exchange) Unwrap() http.ResponseWriter { return e.ResponseWriter }

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, f, err := s.routes.find(r)
	if name == "" {
		name = "none"
	}
	e := &exchange{ResponseWriter: w, status: http.StatusOK, operation: telemetry.Begin(r.Context(), name, r.Header, s.hosted)}
	if !s.hosted && s.sender != nil || s.log.Enabled(r.Context(), slog.LevelDebug) {
		defer s.report(e, r, time.Now())
	}
	defer s.recovered(e, r)
	if err == nil {
		err = f.answer(&e.operation, e, r)
	}
	if err != nil {
		s.fail(e, r, err)
	}
}

func (s *service) fail(e *exchange, r *http.Request, err error) {
	p := problemOf(err)
	switch {
	case errors.Is(err, link.ErrDamaged):
		s.logger(e).Error("a link's record is damaged and needs a hand", "error", err)
	case p.Status >= 500 && p.Status != http.StatusServiceUnavailable:
		s.logger(e).Error("request failed", "error", err)
	case p.Status >= 500:
		s.logger(e).Warn("storage is unavailable", "error", err)
	}
	p.write(e, r)
}

// logger adds to a line what it is found by.
func (s *service) logger(e *exchange) *slog.Logger {
	return s.log.With("function", e.operation.Name, "operation", e.operation.ID(), "invocation", e.operation.Invocation())
}

// recovered turns a panic into a 500 and a line in the log. It does not try to tell whether an answer had begun.
func (s *service) recovered(e *exchange, r *http.Request) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.logger(e).Error("panic", "panic", p, "stack", string(debug.Stack()))
	internalProblem.write(e, r)
}

// report tells of a request that has been answered. It leaves the path out but for the function that it leads to:
// people paste URLs into it.
func (s *service) report(e *exchange, r *http.Request, start time.Time) {
	took := time.Since(start)
	s.sender.Request(&e.operation, telemetry.Request{Status: e.status, Success: e.status < 500, Start: start, Duration: took, Remote: r.RemoteAddr})
	if s.log.Enabled(r.Context(), slog.LevelDebug) {
		s.logger(e).Debug("request", "method", r.Method, "status", e.status, "ms", float64(took.Microseconds())/1000)
	}
}

// setHeaders sets what every answer with a body says of itself. Nothing here may be kept by anybody unless its
// function says otherwise.
func setHeaders(w http.ResponseWriter, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}

// readBody reads a request's body, up to maxBody bytes.
func readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return nil, bodyProblem(err)
	}
	return body, nil
}

// maxBody is the longest body that is read, in bytes: the longest URL with most of its characters escaped, and some.
const maxBody = 16 << 10
