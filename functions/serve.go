package functions

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"tiney/internal/access"
	"tiney/internal/link"
	"tiney/internal/telemetry"
)

// statusWriter is the writer of a response. It records the status. It holds the operation in order
// to save an allocation.
type statusWriter struct {
	http.ResponseWriter
	status    int // 0 until the header is written
	operation telemetry.Operation
}

func (w *statusWriter) WriteHeader(status int) {
	if status >= 200 { // a lower status is informational; the final one follows
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

// ServeHTTP calls the function of a request, responds with its error, and reports the result.
func (s *service) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &statusWriter{
		ResponseWriter: rw,
		operation:      telemetry.Begin(r.Context(), "none", r.Header, s.hosted),
	}
	if !s.hosted && s.Sender != nil || s.Log.Enabled(r.Context(), slog.LevelDebug) {
		defer s.report(w, r, time.Now())
	}
	defer s.recoverPanic(w, r)
	if s.strictTransport != nil && (len(s.plain) == 0 || !s.plain[s.domainOf(r)]) {
		w.Header()["Strict-Transport-Security"] = s.strictTransport
	}
	if s.hosted && !s.forwardingKnown.Load() {
		s.noteForwarding(w, r)
	}
	to, err := s.routes.match(r)
	if to.function != "" {
		w.operation.Name = to.function
	}
	if s.LocalOnly && !s.toThisMachine(r) {
		err = foreignHostProblem
	}
	if err == nil {
		ctx := context.Context(&w.operation)
		if to.limit > 0 {
			var cancel context.CancelFunc
			ctx, cancel = within(ctx, to.limit)
			defer cancel()
		}
		err = to.serve(ctx, w, r)
	}
	if err != nil {
		s.fail(w, r, err)
	}
}

// toThisMachine reports whether a request names this machine. A website can make its own name
// resolve to this machine (DNS rebinding), and browsers then send that name. There are no public
// names below localhost: browsers resolve it to this machine (RFC 6761). A host that proxies puts
// its own name into Host, and the name that the client sent into X-Forwarded-Host.
func (s *service) toThisMachine(r *http.Request) bool {
	names := []string{r.Host}
	if s.hosted {
		names = append(names, r.Header.Values("X-Forwarded-Host")...)
	}
	foreign := func(name string) bool {
		if last := s.lastLocal.Load(); last != nil && *last == name {
			return false
		}
		d, ok := link.ParseDomain(name)
		u := &url.URL{Host: string(d)}
		if !ok || !access.IsLoopback(u) && !strings.HasSuffix(u.Hostname(), ".localhost") {
			return true
		}
		own := strings.Clone(name) // name may be a part of a large request
		s.lastLocal.Store(&own)
		return false
	}
	return !slices.ContainsFunc(names, foreign)
}

// These are limits on how much of a request's body is read only to be discarded, in bytes.
const (
	maxDrain      = maxImportBytes
	maxHostDrain  = 100 << 20 // behind a host that forwards; its own limit
	maxSelfDrains = 256 << 10 // by net/http itself
)

func (s *service) fail(w *statusWriter, r *http.Request, err error) {
	p := s.problemOf(err)
	if p.limit != "" {
		s.Metrics.LimitRefused(p.limit).Add(1)
	}
	logProblem(s.logger(w), p, err)
	// A client that is still sending when the connection closes may lose the response. A Functions
	// host reads the response only after it has sent the whole body. A host that forwards has read
	// the body before, up to its own limit.
	switch {
	case s.hosted && !proxied(w, r):
		_, _ = io.CopyN(io.Discard, r.Body, maxHostDrain)
	case s.hosted:
		_, _ = io.CopyN(io.Discard, r.Body, maxDrain)
	case r.Header.Get("Expect") != "": // the client waits for leave to send
	case r.ContentLength < 0 || r.ContentLength > maxSelfDrains:
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex() // otherwise net/http closes the connection too early
		// Close the connection after that. Otherwise a body that comes too late would be taken for
		// the next request.
		w.Header().Set("Connection", "close")
		defer func() {
			_ = control.Flush()
			_, _ = io.CopyN(io.Discard, r.Body, maxDrain)
		}()
	}
	p.write(w, r, s.site)
}

// logProblem logs the error behind a problem, if operators need to know about it.
func logProblem(log *slog.Logger, p *problem, err error) {
	switch {
	case errors.Is(err, errNotTheHost):
		log.Warn(telemetry.LogTimerRefused, "error", err)
	case errors.Is(err, link.ErrDamaged):
		log.Error(telemetry.LogLinkCorrupt, "error", err)
	case p.Status == http.StatusUnauthorized:
		log.Debug("credentials refused", "error", err) // helps to set up a provider
	case p == uncheckedProblem && !errors.Is(err, link.ErrUnavailable):
		log.Warn(telemetry.LogProviderUnavailable, "error", err)
	case p.limit == telemetry.LimitBusy, p == computingProblem:
	case p.Status == http.StatusServiceUnavailable:
		log.Warn(telemetry.LogStorageUnavailable, "error", err)
	case p.Status >= 500:
		log.Error(telemetry.LogRequestFailed, "error", err)
	}
}

// logger returns a logger with correlation IDs.
func (s *service) logger(w *statusWriter) *slog.Logger {
	return s.Log.With("function", w.operation.Name, "operation", w.operation.ID(),
		"invocation", w.operation.Invocation())
}

// recoverPanic turns a panic into a log line and a 500. If part of the response has been written,
// it aborts the connection instead, so that the client does not take the part for the whole.
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
	internalProblem.write(w, r, s.site)
}

// proxied reports whether a request comes through a Functions host that proxies. Such a host
// repeats the id of the invocation in a header of its own. Through a host that forwards, a client
// can send that header, but cannot guess the id.
func proxied(w *statusWriter, r *http.Request) bool {
	id := w.operation.Invocation()
	return id != "" && strings.EqualFold(r.Header.Get(proxyHeader), id)
}

const proxyHeader = "X-Ms-Invocation-Id"

// invocationHeader is a header that a Functions host adds to each request that it passes on.
const invocationHeader = "X-Azure-Functions-Invocationid"

// noteForwarding logs once which defects the kind of the Functions host causes here. A
// host that forwards rewrites Location, and appends its name to the client's User-Agent; the host's
// own requests have only that name. A host that proxies replaces X-Forwarded-For by the address of
// its own peer, which is the same for all clients.
func (s *service) noteForwarding(w *statusWriter, r *http.Request) {
	const name = "Azure-Functions-Host/"
	agent := r.UserAgent()
	own := r.Header.Get(invocationHeader) == "" || strings.HasPrefix(agent, name)
	if own || s.forwardingKnown.Swap(true) {
		return
	}
	lost := s.Addresses.Hops > 0 && strings.EqualFold(s.Addresses.Header, "X-Forwarded-For")
	switch proxies := proxied(w, r); {
	case proxies && lost:
		s.Log.Warn(telemetry.LogClientAddressLost)
	case !proxies && strings.Contains(agent, " "+name):
		s.Log.Warn(telemetry.LogLocationRewritten)
	}
}

// report reports a handled request to telemetry and the log. It names the function and not the
// path, because people paste URLs into paths.
func (s *service) report(w *statusWriter, r *http.Request, start time.Time) {
	took := time.Since(start)
	s.Sender.Request(&w.operation, telemetry.Request{
		Status: w.status, Success: w.status < 500, Start: start, Duration: took, From: r})
	if s.Log.Enabled(r.Context(), slog.LevelDebug) {
		s.logger(w).Debug("request", "method", methodName(r.Method), "status", w.status,
			"ms", float64(took.Microseconds())/1000)
	}
}

// methodName returns a method for the log. It hides unknown methods, because a client may send any
// word as a method.
func methodName(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

// setHeaders sets the headers that every response with a body has. It forbids caching; a function
// may then allow it.
func setHeaders(w http.ResponseWriter, contentType string) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
}
