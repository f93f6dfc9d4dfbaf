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
	"strings"
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
}

// New returns the handler of all functions, with the routes that their function.json files give.
func New(c Config) (http.Handler, error) {
	home, err := newHome(c.Rules.Base)
	if err != nil {
		return nil, err
	}
	routes, err := newRouter(map[string]answerer{
		"shorten":  &shorten{links: c.Links, rules: c.Rules, now: c.Now, metrics: c.Metrics},
		"redirect": newRedirect(c),
		"health":   &health{version: c.Version, now: c.Now},
		"ready":    &ready{checks: map[string]Checker{"tables": c.Tables, "lock": c.Lock}, log: c.Log},
		"home":     home,
		"reaper":   c.Reaper,
	}, c.Hosted)
	if err != nil {
		return nil, err
	}
	return &service{routes: routes, log: c.Log}, nil
}

// answerer is one function. It answers, or returns an error before it has written anything.
type answerer interface {
	answer(w http.ResponseWriter, r *http.Request) error
}

// service is the one place that every request passes: it finds the function, and turns its errors into answers.
type service struct {
	routes *router
	log    *slog.Logger
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name, f, err := s.routes.find(r)
	if s.log.Enabled(r.Context(), slog.LevelDebug) {
		watched := &watchedWriter{ResponseWriter: w, status: http.StatusOK}
		w = watched
		defer s.logRequest(r, name, watched, time.Now())
	}
	defer s.recovered(w, r, name)
	if err == nil {
		err = f.answer(w, r)
	}
	if err != nil {
		s.fail(w, r, name, err)
	}
}

func (s *service) fail(w http.ResponseWriter, r *http.Request, function string, err error) {
	p := problemOf(err)
	switch {
	case errors.Is(err, link.ErrDamaged):
		s.log.Error("a link's record is damaged and needs a hand", "function", function, "error", err)
	case p.Status >= 500 && p.Status != http.StatusServiceUnavailable:
		s.log.Error("request failed", "function", function, "error", err)
	case p.Status >= 500:
		s.log.Warn("storage is unavailable", "function", function, "error", err)
	}
	p.write(w, r)
}

// recovered turns a panic into a 500 and a line in the log. It does not try to tell whether an answer had begun.
func (s *service) recovered(w http.ResponseWriter, r *http.Request, function string) {
	p := recover()
	if p == nil {
		return
	}
	if p == http.ErrAbortHandler {
		panic(p)
	}
	s.log.Error("panic", "function", function, "panic", p, "stack", string(debug.Stack()))
	internalProblem.write(w, r)
}

// logRequest leaves the path out but for the function that it leads to: people paste URLs into it.
func (s *service) logRequest(r *http.Request, function string, w *watchedWriter, start time.Time) {
	var invocation string
	if all := r.Header.Values("X-Azure-Functions-InvocationId"); len(all) > 0 {
		// The host's own stands last; an older host puts it on the line of one that the client forged.
		invocation = all[len(all)-1]
		invocation = strings.TrimSpace(invocation[strings.LastIndexByte(invocation, ',')+1:])
	}
	s.log.Debug("request", "function", function, "method", r.Method, "status", w.status,
		"ms", float64(time.Since(start).Microseconds())/1000, "invocation", invocation)
}

type watchedWriter struct {
	http.ResponseWriter
	status int
}

func (w *watchedWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

func (w *watchedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

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
