package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tiney/internal/testing/freeport"
)

// server is a process that is measured.
type server struct {
	cmd      *exec.Cmd
	address  string
	log      bytes.Buffer // its stdout
	requests float64      // of all loads
}

// command is how to start a server that listens on a port of 127.0.0.1.
type command func(port string) *exec.Cmd

// adminKey is the credential for the requests that need one.
const adminKey = "the-admin-key-of-the-bench-1a2b3c4d"

// service runs the service with the given tables, either on its own or as if it were behind the
// Functions host. There is no real host, since it would take a share of the processors.
func (b *bench) service(t *tables, hosted bool, more ...string) command {
	return func(port string) *exec.Cmd {
		variable := "PORT"
		if hosted {
			variable = "FUNCTIONS_CUSTOMHANDLER_PORT"
		}
		cmd := exec.Command(b.executable)
		cmd.Env = []string{variable + "=" + port, "AzureWebJobsStorage=" +
			b.storage.ConnectionString(), "BaseUrl=https://tiney.to", "ADMIN_KEY=" + adminKey,
			// The whole load comes from one client.
			"RATE_SHORTEN_PER_MINUTE=0", "RATE_UNKNOWN_PER_MINUTE=0", "RATE_API_PER_MINUTE=0"}
		for i, setting := range tableSettings {
			cmd.Env = append(cmd.Env, setting+"="+t[i])
		}
		cmd.Env = append(cmd.Env, more...)
		return cmd
	}
}

// bareHTTP runs internal/tools/bench/bare, which redirects from a path.
func (b *bench) bareHTTP(path string) command {
	return func(port string) *exec.Cmd {
		return exec.Command(b.bare, "127.0.0.1:"+port, path, longURL(0))
	}
}

// nginxSettings keep all of nginx's files in its folder. Like the other servers, nginx then limits
// no connection and writes no log.
const nginxSettings = `daemon off;
worker_processes auto;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 1024; }
http {
	access_log off;
	keepalive_requests 1000000000;
	client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
	server {
		listen 127.0.0.1:%s;
		location / { return 302 %q; }
	}
}
`

func (b *bench) nginx() command {
	return func(port string) *exec.Cmd {
		settings := filepath.Join(b.dir, "nginx.conf")
		if err := os.WriteFile(settings, fmt.Appendf(nil, nginxSettings, port, longURL(0)),
			0o600); err != nil {
			return &exec.Cmd{Err: err}
		}
		return exec.Command("nginx", "-p", b.dir, "-c", settings)
	}
}

// start starts a server. The caller must stop it.
func (b *bench) start(c command) (*server, error) {
	port, err := freeport.Find()
	if err != nil {
		return nil, err
	}
	s := &server{cmd: c(strconv.Itoa(port)), address: fmt.Sprintf("127.0.0.1:%d", port)}
	s.cmd.Stdout, s.cmd.Stderr = &s.log, os.Stderr
	return s, s.cmd.Start()
}

// startReady starts a server, and returns when it is ready according to wait.
func (b *bench) startReady(ctx context.Context, c command, path string) (*server, error) {
	s, err := b.start(c)
	if err == nil {
		if err = s.wait(ctx, path, 10*time.Millisecond); err != nil {
			s.stop()
		}
	}
	return s, err
}

// wait returns when a GET of the path succeeds or is redirected. It pauses between two attempts.
func (s *server) wait(ctx context.Context, path string, pause time.Duration) (err error) {
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) &&
		ctx.Err() == nil; time.Sleep(pause) {
		var conn net.Conn
		// While nobody listens, a dial costs less than a request.
		if conn, err = net.Dial("tcp", s.address); err != nil {
			continue
		}
		conn.Close()
		if _, err = s.send(http.MethodGet, path, "", ""); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%s does not serve %s: %w", s.cmd.Path, path, errors.Join(err, ctx.Err()))
}

// client follows no redirects. Its timeout is long because a reap may take a while.
var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Transport:     &http.Transport{MaxIdleConnsPerHost: 128},
	Timeout:       5 * time.Minute,
}

// send sends one request and returns the body of the response. It sets the User-Agent unless
// userAgent is "". A status of 400 or more is an error.
func (s *server) send(method, path, body, userAgent string) ([]byte, error) {
	r, err := http.NewRequest(method, "http://"+s.address+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if strings.HasPrefix(path, "/api/links") || strings.HasPrefix(path, "/api/stats") {
		r.Header.Set("Authorization", "Bearer "+adminKey)
	}
	if userAgent != "" {
		r.Header.Set("User-Agent", userAgent)
	}
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: %s\n%s", method, path, response.Status, text)
	}
	return text, err
}

// stop ends the process if it still runs, and returns the metrics in the last line of its log. Only
// the service writes metrics.
func (s *server) stop() map[string]float64 {
	client.CloseIdleConnections()
	if s.cmd.ProcessState == nil {
		// A kill of nginx would leave its workers behind.
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
	}
	log := bytes.TrimSpace(s.log.Bytes())
	var last struct{ Metrics map[string]float64 }
	_ = json.Unmarshal(log[bytes.LastIndexByte(log, '\n')+1:], &last)
	return last.Metrics
}

// stopCounted is stop with a check that the loads measured what they should. The service must have
// counted nearly all of their requests under the given metric; the first ones may fill the cache.
// Other servers count nothing.
func (s *server) stopCounted(metric string) (map[string]float64, error) {
	counts := s.stop()
	if metric != "" && counts[metric] < 0.99*s.requests {
		return nil, fmt.Errorf("of %v requests, only %v count as %s: %v", s.requests,
			counts[metric], metric, counts)
	}
	return counts, nil
}
