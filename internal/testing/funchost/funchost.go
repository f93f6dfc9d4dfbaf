// Package funchost is a small double of the Azure Functions host (v4) for custom handlers, so that
// end-to-end tests need no host installed. It starts a handler, sends it HTTP requests and timer
// invocations, and kills it as the host does.
//
// The double differs from the host on purpose:
//
//   - [Start] fails on an error that would disable just one function, and on a host.json that needs
//     more than the double supports.
//   - App settings do not override host.json.
//   - A timer's response that would make the host wait for the function's time limit is an error at
//     once.
//   - A child that ends by itself stays down until [Host.Restart], so that tests see it. The host
//     starts it again, and ends at the third failure within 30 minutes.
//   - A proxied request is sent once. The host sends it again for 1.9 s if the connection is refused.
//   - /admin is absent.
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
	"net/url"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tiney/internal/testing/freeport"
)

const (
	hostVersion = "4.1037.0.0"

	readyInterval = 25 * time.Millisecond // the host's
	readyTimeout  = 30 * time.Second      // the host's
	maxStarts     = 3                     // the host's
	// pipeDelay is the wait for the end of a dead child's output, which a grandchild may hold open.
	pipeDelay = 2 * time.Second
	tailSize  = 4 << 10 // bytes of a child's last output that an error carries
)

// Options configures a Host.
type Options struct {
	// ScriptRoot is the directory that holds host.json and one folder for each function.
	ScriptRoot string
	// Env is the complete environment of the child, except for the variables that the host adds.
	Env []string
	// Launcher is the command that starts the executable, such as wine. Nil starts the executable
	// itself, as the host does.
	Launcher []string
	// Proxy selects a newer host, which proxies requests. False selects an older one, which
	// forwards them.
	Proxy bool
	// FrontEnd puts Azure's front end before the host. It adds the header X-WAWS-Unencoded-URL,
	// with path and query as they came, to every request, in place of a client's own.
	FrontEnd bool
	// Output receives the child's stdout and stderr, one Write at a time. Nil discards them.
	Output io.Writer
}

// Host is a running host with one custom handler as its child. Its methods may be called
// concurrently.
type Host struct {
	opt    Options
	script *script

	transport *http.Transport
	server    *http.Server
	url       string

	lifecycle sync.Mutex            // held while a child is started or stopped, so that there is at most one
	child     atomic.Pointer[child] // the latest one, alive or not; never nil after Start
}

// Start reads the script root, starts the handler and waits until it responds to HTTP (at most 30
// s). Then it serves on a loopback port of its own. Cancelling ctx ends the wait; it has no effect
// once Start has returned. The caller must Close the Host.
func Start(ctx context.Context, opt Options) (*Host, error) {
	s, err := readScript(opt.ScriptRoot)
	if err != nil {
		return nil, fmt.Errorf("funchost: %w", err)
	}
	h := &Host{
		opt:    opt,
		script: s,
		// Without DisableCompression, Go would ask the child for gzip although the client did not.
		// The host's HTTP client closes idle connections after a minute.
		transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256,
			IdleConnTimeout: time.Minute},
	}
	// The host's limits are 32 KiB of headers and 8 KiB for the request line. net/http counts both
	// together and adds 4 KiB.
	h.server = &http.Server{Handler: http.HandlerFunc(h.serve), MaxHeaderBytes: (32 + 8 - 4) << 10,
		ErrorLog: discard}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("funchost: %w", err)
	}
	h.url = "http://" + listener.Addr().String()
	h.lifecycle.Lock()
	defer h.lifecycle.Unlock()
	if err := h.startChild(ctx); err != nil {
		listener.Close()
		return nil, err
	}
	go h.server.Serve(listener)
	return h, nil
}

var discard = log.New(io.Discard, "", 0)

// URL returns the public base URL, without a trailing slash. It stays the same across Restart.
func (h *Host) URL() string { return h.url }

// HandlerURL returns the child's own base URL, without a trailing slash. Requests to it bypass the
// host.
func (h *Host) HandlerURL() string { return "http://" + h.child.Load().addr }

// PID returns the process id of the latest child, which may have ended.
func (h *Host) PID() int { return h.child.Load().cmd.Process.Pid }

// Failed reports whether the latest child has ended by itself.
func (h *Host) Failed() bool {
	h.lifecycle.Lock()
	defer h.lifecycle.Unlock()
	c := h.child.Load()
	return !c.alive() && !c.stopped
}

// Kill ends the child with SIGKILL, waits for its end and leaves it down. The host stops a handler
// like this, with no SIGTERM first and no grace period.
func (h *Host) Kill() {
	h.lifecycle.Lock()
	defer h.lifecycle.Unlock()
	h.kill(h.child.Load())
}

// Restart kills the child if it is alive, starts a new one on a new port and waits until it is
// ready. On an error, the host stays up without a child.
func (h *Host) Restart(ctx context.Context) error {
	h.lifecycle.Lock()
	defer h.lifecycle.Unlock()
	h.kill(h.child.Load())
	return h.startChild(ctx)
}

// Close kills the child and stops serving. It may be called more than once.
func (h *Host) Close() {
	h.lifecycle.Lock()
	defer h.lifecycle.Unlock()
	h.kill(h.child.Load())
	h.server.Close()
}

// child is one process of the handler.
type child struct {
	cmd     *exec.Cmd
	addr    string
	stopped bool          // by a method of Host; guarded by Host.lifecycle
	done    chan struct{} // closed when the process has been waited for
}

func (c *child) alive() bool {
	select {
	case <-c.done:
		return false
	default:
		return true
	}
}

// kill ignores the error of Process.Kill, since the only possible one is that the process has
// ended.
func (h *Host) kill(c *child) {
	c.stopped = true
	c.cmd.Process.Kill()
	<-c.done
	h.transport.CloseIdleConnections()
}

// startChild makes a new child the current one once it is ready. Until then, requests see the old,
// dead one.
func (h *Host) startChild(ctx context.Context) error {
	for try := 1; ; try++ {
		c, err := h.spawn(ctx)
		if err == nil {
			h.child.Store(c)
			return nil
		}
		// Another process may have taken the port first. Every child gets a new port.
		if !errors.Is(err, errFailed) || try == maxStarts {
			return fmt.Errorf("funchost: %w", err)
		}
	}
}

var errFailed = errors.New("the handler failed before it was ready")

// spawn starts a child and waits until it is ready.
func (h *Host) spawn(ctx context.Context) (*child, error) {
	number, err := freeport.Find()
	if err != nil {
		return nil, err
	}
	port, id := strconv.Itoa(number), newGUID()
	command := append(slices.Clone(h.opt.Launcher), h.script.executable)
	c := &child{
		cmd:  exec.Command(command[0], command[1:]...),
		addr: net.JoinHostPort("127.0.0.1", port),
		done: make(chan struct{}),
	}
	c.cmd.Dir = h.script.root
	c.cmd.Env = append(slices.Clone(h.opt.Env),
		"FUNCTIONS_CUSTOMHANDLER_PORT="+port, "FUNCTIONS_CUSTOMHANDLER_WORKER_ID="+id,
		"FUNCTIONS_HTTPWORKER_PORT="+port, "FUNCTIONS_HTTPWORKER_ID="+id,
		"FUNCTIONS_APP_ROOT_PATH="+h.script.root,
		"WEBSITE_HOSTNAME="+strings.TrimPrefix(h.url, "http://"), // as the Core Tools set it
	)
	out := &output{w: h.opt.Output}
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
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("no response within %v",
		readyTimeout))
	defer cancel()
	for {
		ready := h.ping(ctx, c)
		switch {
		case !c.alive() && c.cmd.ProcessState.Success():
			return errors.New("the handler exited before it was ready")
		case !c.alive():
			return fmt.Errorf("%w: %v", errFailed, c.cmd.ProcessState)
		case ready:
			return nil
		}
		select {
		case <-c.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the handler: %w", context.Cause(ctx))
		case <-time.After(readyInterval):
		}
	}
}

// ping reports whether the child responds to HTTP, with any status.
func (h *Host) ping(ctx context.Context, c *child) bool {
	req := http.Request{URL: &url.URL{Scheme: "http", Host: c.addr, Path: "/"},
		Header: http.Header{}}
	resp, err := h.transport.RoundTrip(req.WithContext(ctx))
	if err == nil {
		resp.Body.Close()
	}
	return err == nil
}

// send sends a request to the latest child.
func (h *Host) send(req *http.Request) (*http.Response, error) {
	c := h.child.Load()
	if !c.alive() { // another process may listen on the child's port by now
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("the child is down")}
	}
	req.URL.Scheme, req.URL.Host = "http", c.addr
	return h.transport.RoundTrip(req)
}

// exchange sends a request to the latest child, and reads the whole response.
func (h *Host) exchange(req *http.Request) (*http.Response, []byte, error) {
	resp, err := h.send(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp, body, err
}

// newGUID returns a random UUID, version 4.
func newGUID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// output passes on a child's output and keeps the end of it. It needs no lock: os/exec writes from
// one goroutine if stdout and stderr are the same writer, and the tail is read after the child's
// end.
type output struct {
	w    io.Writer // may be nil
	tail []byte
}

// Write never fails, since an error would break the child's pipe, and so the child.
func (o *output) Write(p []byte) (int, error) {
	o.tail = append(o.tail, p...)
	o.tail = o.tail[max(0, len(o.tail)-tailSize):]
	if o.w != nil {
		o.w.Write(p)
	}
	return len(p), nil
}
