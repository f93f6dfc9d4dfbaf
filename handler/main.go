// Handler is the executable: an Azure Functions custom handler that shortens URLs, or the same
// service on its own. With arguments it is a tool for the same tables.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"tiney/functions"
	"tiney/handler/app"
	"tiney/internal/telemetry"
)

// version is set by the build.
var version = "development"

func main() {
	// The Functions host ends its handler without a signal that the handler could catch. These two
	// signals come from a terminal, a container or systemd. The first one lets requests drain, and
	// another one ends the process at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	args, getenv, welcome := os.Args[1:], os.Getenv, io.Discard
	// The Functions host passes no arguments. Even if it did, a process that it starts must serve.
	if os.Getenv("FUNCTIONS_CUSTOMHANDLER_PORT") != "" {
		args = nil
	}
	if len(args) == 1 && (args[0] == "-memory" || args[0] == "--memory") {
		args, getenv, welcome = nil, app.InMemory(os.Getenv), os.Stderr // stdout is for the log
	}
	if len(args) > 0 {
		os.Exit(command(ctx, args, os.Getenv, os.Stdin, os.Stdout, os.Stderr))
	}
	if err := run(ctx, getenv, bounded(os.Getenv, os.Stdout), welcome); err != nil {
		// The log goes to stdout. The host shows text on stderr as an error.
		fmt.Fprintln(os.Stderr, "tiney cannot run:", err)
		os.Exit(1)
	}
}

const (
	// drainTimeout is how long requests have to finish when the process stops.
	drainTimeout = 10 * time.Second
	// headerTimeout is how long a client may take to send a request's headers.
	headerTimeout = 5 * time.Second
	// maxHeader is the limit for a request's headers, in bytes. A credential may take 24 KiB of it.
	// Without one, browsers and proxies send at most half of it.
	maxHeader = 32 << 10
	// parentInterval is how often a process behind the Functions host checks that the host is
	// alive.
	parentInterval = time.Second
)

// run serves until ctx ends, and then finishes the requests that are in progress. Stdout gets the
// log, and welcome gets a text for people that says what to do.
func run(ctx context.Context, getenv func(string) string, stdout, welcome io.Writer) error {
	parent := os.Getppid()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := app.ReadSettings(getenv)
	if err != nil {
		return err
	}
	log := telemetry.NewLogger(stdout, s.LogLevel)
	a, err := app.New(ctx, s, version, time.Now, log)
	if err != nil {
		return err
	}
	defer a.Close()

	listener, err := net.Listen("tcp", s.Address)
	if err != nil {
		return fmt.Errorf("cannot listen on %s; another process may have it, "+
			"and PORT and LISTEN_ADDRESS choose another: %w", s.Address, err)
	}
	failed := make(chan error, 2)
	if a.Prometheus != nil {
		metrics, err := net.Listen("tcp", s.MetricsAddress)
		if err != nil {
			listener.Close()
			return fmt.Errorf("cannot listen on %s; another process, or this one, may have it, "+
				"and METRICS_ADDRESS chooses another: %w", s.MetricsAddress, err)
		}
		server := newServer(a.Prometheus, false, log)
		defer server.Close() // last, so that Prometheus may read what a drain counts
		go func() { failed <- server.Serve(metrics) }()
	}
	log.Info("listening", "address", listener.Addr().String(),
		"baseUrl", s.Functions.Rules.Base.String(), "hosted", s.Hosted(), "version", version)
	key := ""
	if s.Functions.LocalOnly { // then it is the public one
		key = s.Access.AdminKey
	}
	fmt.Fprint(welcome, app.Welcome(s.Functions.Rules.Base.String(), key))
	server := newServer(a.Handler, s.Hosted(), log)
	go func() { failed <- server.Serve(listener) }()

	// The background work ends with ctx, while requests still drain.
	var background sync.WaitGroup
	background.Go(func() { a.Background(ctx) })
	// Windows is left out: there a process keeps its parent's id, and the host ends its children.
	if s.Hosted() && runtime.GOOS != "windows" {
		// Nobody reads the log after the host has ended. A write to it must not end this process
		// before it has drained.
		signal.Ignore(syscall.SIGPIPE)
		background.Go(func() {
			if orphaned(ctx, parent, os.Getppid) {
				log.Warn(telemetry.LogHostEnded)
				cancel()
			}
		})
	}

	select {
	case err := <-failed:
		cancel()
		background.Wait() // or counts would be lost
		return err
	case <-ctx.Done():
	}
	log.Info("stopping", "atMost", drainTimeout.String())
	drain, stopped := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer stopped()
	if err := server.Shutdown(drain); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	background.Wait()
	log.Info("stopped", "metrics", a.Metrics.NonZero())
	return nil
}

// newServer returns the HTTP server with its time limits.
func newServer(handler http.Handler, hosted bool, log *slog.Logger) *http.Server {
	server := &http.Server{
		// Not by ReadTimeout, which on a new connection includes the time before the request.
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Body != http.NoBody {
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(functions.BodyTime))
			}
			handler.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerTimeout,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	if hosted {
		// Under load the host opens connections that it uses only later. Here one that it has not
		// used yet is kept as long as one that is idle: longer than the host keeps either. If this
		// process closed one just as the host sends a request on it, the client would get a 500.
		server.ReadHeaderTimeout = server.IdleTimeout
	}
	return server
}

// orphaned waits until the process has another parent than had, and returns true. It returns false
// if ctx ends before. It exists because a Functions host that is killed leaves its handler running
// and listening.
func orphaned(ctx context.Context, had int, parent func() int) bool {
	ticker := time.NewTicker(parentInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
			if parent() != had {
				return true
			}
		}
	}
}
