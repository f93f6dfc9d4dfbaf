// Package funchost is a small double of the Azure Functions host (v4) for custom handlers. It
// starts a handler the way the host does, sends it HTTP requests and timer invocations the way the
// host does, and kills it the way the host does, so that end-to-end tests need no host installed.
//
// It differs from the host on purpose in two ways: what would put one function in error fails
// [Start], and a child that dies stays down until [Host.Restart]. Requests then get the host's 500
// at once, without its retries. The host's own pages (the root's landing page, /admin) are absent.
package funchost

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tiney/internal/freeport"
)

const (
	hostVersion = "4.1037.0.0"

	readyInterval = 25 * time.Millisecond // the host's polling interval
	readyTimeout  = 30 * time.Second      // the host's patience
	// portAttempts bounds the ports tried for one child.
	portAttempts = 5
	// interruptTimeout bounds the wait for a child that ignores SIGINT.
	interruptTimeout = 10 * time.Second
	// pipeDelay bounds the wait for the child's output to end when a grandchild holds its pipe open.
	pipeDelay = 2 * time.Second
	// tailSize is how much of a child's last output an error carries, in bytes.
	tailSize = 4 << 10
)

// Options says what to host.
type Options struct {
	// ScriptRoot is the directory that holds host.json and one folder for each function.
	ScriptRoot string
	// Env is the complete environment of the child but for what the host adds. App settings that
	// override host.json are read from it too. Nil means os.Environ().
	Env []string
	// Launcher is the command that starts the executable, such as wine for one that was built for
	// Windows. Nil starts the executable itself, as the host does.
	Launcher []string
	// Proxy selects the newer host, which honours enableProxyingHttpRequest. False is an older one,
	// which ignores it and forwards.
	Proxy bool
	// Output receives the child's stdout and stderr, one Write at a time. Nil discards them.
	Output io.Writer
}

// Host is a running host with one custom handler as its child. Its methods may be called
// concurrently.
type Host struct {
	script  *script
	command []string // the launcher and the executable
	env     []string
	proxy   bool
	output  io.Writer

	transport *http.Transport
	client    *http.Client // follows redirects only without enableForwardingHttpRequest
	server    *http.Server
	url       string

	// lifecycle is held by whatever starts or stops a child, so that there is never more than one.
	lifecycle sync.Mutex
	closed    bool
	child     atomic.Pointer[child] // the latest one, alive or not; never nil after Start
}

// Start reads the script root, starts the handler, waits until it answers HTTP (30 s at most) and
// serves on a loopback port of its own. Cancelling ctx ends the wait; it has no effect once Start
// has returned. The caller must Close the Host.
func Start(ctx context.Context, opt Options) (*Host, error) {
	env := opt.Env
	if env == nil {
		env = os.Environ()
	}
	s, err := readScript(opt.ScriptRoot, env)
	if err != nil {
		return nil, fmt.Errorf("funchost: %w", err)
	}
	h := &Host{
		script:  s,
		command: append(slices.Clone(opt.Launcher), s.executable),
		env:     env,
		proxy:   opt.Proxy && s.proxying,
		output:  opt.Output,
		// Without DisableCompression Go would ask the child for gzip in the client's name.
		transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256},
	}
	h.client = &http.Client{Transport: h.transport}
	if s.forwarding {
		h.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("funchost: %w", err)
	}
	h.url = "http://" + listener.Addr().String()
	if err := h.startChild(ctx); err != nil {
		listener.Close()
		return nil, err
	}
	h.server = &http.Server{Handler: http.HandlerFunc(h.serve), ErrorLog: discard}
	go h.server.Serve(listener)
	return h, nil
}

var discard = log.New(io.Discard, "", 0)

// URL returns the public base URL, without a trailing slash. It stays the same across Restart.
func (h *Host) URL() string { return h.url }

// HandlerURL returns the child's own base URL, without a trailing slash, to reach it around the host.
func (h *Host) HandlerURL() string { return "http://" + h.child.Load().addr }

// PID returns the process id of the latest child, which may have ended.
func (h *Host) PID() int { return h.child.Load().cmd.Process.Pid }

// Kill ends the child with SIGKILL and waits for its end. It is how the host stops a handler: there
// is no SIGTERM before it and no grace.
func (h *Host) Kill() {
	h.lifecycle.Lock()
	defer h.lifecycle.Unlock()
	h.kill(h.child.Load())
}

// Interrupt sends SIGINT, as Ctrl-C under func start does, waits for the child's end and returns its
// exit code, -1 if a signal ended it. A child that outlives it by ten seconds is killed, an error.
func (h *Host) Interrupt() (int, error) {
	h.lifecycle.Lock()
	defer h.lifecycle.Unlock()
	c := h.child.Load()
	if err := c.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return 0, fmt.Errorf("funchost: interrupt: %w", err)
	}
	select {
	case <-c.done:
		return c.cmd.ProcessState.ExitCode(), nil
	case <-time.After(interruptTimeout):
		h.kill(c)
		return 0, fmt.Errorf("funchost: the child was still running %v after SIGINT", interruptTimeout)
	}
}

// Restart kills the child if it is alive, starts a new one on a new port and waits until that one
// is ready. On error the host stays up with no child.
func (h *Host) Restart(ctx context.Context) error {
	h.lifecycle.Lock()
	defer h.lifecycle.Unlock()
	if h.closed {
		return errors.New("funchost: restart of a closed host")
	}
	h.kill(h.child.Load())
	return h.startChild(ctx)
}

// Close kills the child and stops serving. It may be called more than once.
func (h *Host) Close() {
	h.lifecycle.Lock()
	defer h.lifecycle.Unlock()
	h.closed = true
	h.kill(h.child.Load())
	h.server.Close()
}

// child is one process of the handler.
type child struct {
	cmd  *exec.Cmd
	addr string
	done chan struct{} // closed when the process has been waited for
}

func (c *child) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// kill needs no error: all that can be wrong is that the process has ended already.
func (h *Host) kill(c *child) {
	c.cmd.Process.Kill()
	<-c.done
	h.transport.CloseIdleConnections()
}

// startChild publishes a new child once it is ready; until then requests see the old, dead one.
func (h *Host) startChild(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		port, err := freeport.Find()
		if err != nil {
			return fmt.Errorf("funchost: %w", err)
		}
		c, err := h.spawn(ctx, port)
		if err == nil {
			h.child.Store(c)
			return nil
		}
		// Somebody may have taken the port before the child did. That is no fault of the child's.
		if !errors.Is(err, errExited) || freeport.IsFree(port) || attempt == portAttempts {
			return fmt.Errorf("funchost: %w", err)
		}
	}
}

var errExited = errors.New("the handler exited before it was ready")

// spawn starts a child and waits until it is ready.
func (h *Host) spawn(ctx context.Context, port int) (*child, error) {
	c := &child{
		cmd:  exec.Command(h.command[0], h.command[1:]...),
		addr: loopback(port),
		done: make(chan struct{}),
	}
	c.cmd.Dir = h.script.root
	c.cmd.Env = append(h.env[:len(h.env):len(h.env)],
		"FUNCTIONS_CUSTOMHANDLER_PORT="+strconv.Itoa(port),
		"FUNCTIONS_CUSTOMHANDLER_WORKER_ID="+newGUID(),
		"FUNCTIONS_APP_ROOT_PATH="+h.script.root,
		"WEBSITE_HOSTNAME="+strings.TrimPrefix(h.url, "http://"), // as the Core Tools have it
	)
	out := &output{w: h.output}
	c.cmd.Stdout, c.cmd.Stderr = out, out
	c.cmd.WaitDelay = pipeDelay
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the handler: %w", err)
	}
	go func() {
		c.cmd.Wait()
		close(c.done)
	}()
	if err := h.waitReady(ctx, c); err != nil {
		h.kill(c)
		return nil, fmt.Errorf("%w; last output: %q", err, out.tail)
	}
	return c, nil
}

func (h *Host) waitReady(ctx context.Context, c *child) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("it did not answer within %v", readyTimeout))
	defer cancel()
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	for {
		answered := h.ping(ctx, c)
		select {
		case <-c.done:
			return fmt.Errorf("%w: %v", errExited, c.cmd.ProcessState)
		default:
		}
		if answered {
			return nil
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the handler: %w", context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// ping reports whether the child answers HTTP; any status counts.
func (h *Host) ping(ctx context.Context, c *child) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.addr+"/", nil)
	if err != nil {
		return false
	}
	resp, err := h.transport.RoundTrip(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return true
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// newGUID returns a random UUID, version 4.
func newGUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// output passes a child's output on and remembers the end of it. It needs no lock: os/exec writes
// from one goroutine when stdout and stderr are the same writer, and the tail is read after the
// child's end.
type output struct {
	w    io.Writer // may be nil
	tail []byte
}

// Write never fails: an error here would break the child's pipe and with it the child.
func (o *output) Write(p []byte) (int, error) {
	o.tail = append(o.tail, p...)
	o.tail = o.tail[max(0, len(o.tail)-tailSize):]
	if o.w != nil {
		o.w.Write(p)
	}
	return len(p), nil
}
