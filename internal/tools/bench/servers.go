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

	"tiney/internal/testing/azurite"
	"tiney/internal/testing/freeport"
)

// subject is what is measured: a server under a load.
type subject struct {
	name string
	command
	load
}

// command is how to start a server that listens on a port of 127.0.0.1.
type command func(port string) *exec.Cmd

// load is what wrk requests.
type load struct {
	path    string // requested again and again
	file    string // if not "", its lines are requested instead; see requests.lua
	fails   bool   // whether the responses are errors, as for an alias without a link
	counted string // the service's metric that counts these requests and no others
}

// server is a process that is measured.
type server struct {
	subject
	cmd      *exec.Cmd
	address  string
	log      bytes.Buffer // its stdout
	requests float64      // of all loads
}

// adminKey is the credential for the requests that need one.
const adminKey = "the-admin-key-of-the-bench-1a2b3c4d"

// service runs the service, either on its own or as if it were behind the Functions host. There is
// no real host, since it would take a share of the processors.
func (b *bench) service(hosted bool, more ...string) command {
	return func(port string) *exec.Cmd {
		variable := "PORT"
		if hosted {
			variable = "FUNCTIONS_CUSTOMHANDLER_PORT"
		}
		cmd := exec.Command(filepath.Join(b.dir, "handler"))
		cmd.Env = append([]string{variable + "=" + port, "AzureWebJobsStorage=" +
			b.storage.ConnectionString(), "BaseUrl=https://tiney.to", "ADMIN_KEY=" + adminKey,
			// The whole load comes from one client.
			"RATE_SHORTEN_PER_MINUTE=0", "RATE_UNKNOWN_PER_MINUTE=0", "RATE_API_PER_MINUTE=0"},
			more...)
		return cmd
	}
}

// bareHTTP runs internal/tools/bench/bare, which redirects from / and a path. More may be "alike".
func (b *bench) bareHTTP(path string, more ...string) command {
	return func(port string) *exec.Cmd {
		return exec.Command(filepath.Join(b.dir, "bare"), append([]string{"127.0.0.1:" + port,
			path, longURL(0)}, more...)...)
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

func (b *bench) nginx(port string) *exec.Cmd {
	settings := filepath.Join(b.dir, "nginx.conf")
	if err := os.WriteFile(settings, fmt.Appendf(nil, nginxSettings, port, longURL(0)),
		0o600); err != nil {
		return &exec.Cmd{Err: err}
	}
	return exec.Command("nginx", "-p", b.dir, "-c", settings)
}

// start starts a server, and returns when a GET of the path succeeds or is redirected. The caller
// must stop it.
func (b *bench) start(ctx context.Context, of subject, path string) (*server, error) {
	port, err := freeport.Find()
	if err != nil {
		return nil, err
	}
	s := &server{subject: of, cmd: of.command(strconv.Itoa(port)),
		address: fmt.Sprintf("127.0.0.1:%d", port)}
	s.cmd.Stdout, s.cmd.Stderr = &s.log, os.Stderr
	azurite.OwnGroup(s.cmd) // for processorTime
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end) && ctx.Err() == nil; {
		var conn net.Conn
		// While nobody listens, a dial costs less than a request.
		if conn, err = net.Dial("tcp", s.address); err != nil {
			time.Sleep(50 * time.Microsecond)
			continue
		}
		conn.Close()
		if _, err = s.send(http.MethodGet, path, "", ""); err == nil {
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("%s does not serve %s: %w", s.name, path, errors.Join(err, ctx.Err()))
}

// client follows no redirects.
var client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       time.Minute,
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
	if strings.HasPrefix(path, "/api/links") {
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

// put puts a server under its load for the given length, as fast as its responses come. It returns
// the requests per second, percentiles of the response times in milliseconds, and the processor
// time per request in microseconds. It goes on with a file behind the lines of the last load, in
// which one thread may have sent more than the other.
func (s *server) put(ctx context.Context, length time.Duration) (values, error) {
	args := []string{"-t2", "-c32", "-d" + length.String(), "-s",
		"internal/tools/bench/requests.lua", "http://" + s.address + s.path}
	if s.file != "" {
		args = append(args, "--", s.file, fmt.Sprint(100+int(1.25*s.requests)))
	}
	used := processorTime(s.cmd.Process.Pid)
	output, err := exec.CommandContext(ctx, "wrk", args...).CombinedOutput()
	used = processorTime(s.cmd.Process.Pid) - used
	v := values{}
	if err == nil { // the last line is requests.lua's
		err = json.Unmarshal(output[max(0, bytes.LastIndexByte(output, '{')):], &v)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: wrk: %w\n%s", s.name, err, output)
	}
	want := 0.0
	if s.fails {
		want = v["requests"]
	}
	if v["failed"] != 0 || v["refused"] != want || v["requests"] == 0 {
		return nil, fmt.Errorf("%s: not all responses are as they should be:\n%s", s.name, output)
	}
	v["µs"] = float64(used.Microseconds()) / v["requests"]
	s.requests += v["requests"]
	return v, nil
}

// stop ends the process if it still runs, and returns the metrics in the last line of its log. Only
// the service writes metrics.
func (s *server) stop() values {
	client.CloseIdleConnections()
	if s.cmd.ProcessState == nil {
		// A kill of nginx would leave its workers behind.
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		_ = s.cmd.Wait()
	}
	log := bytes.TrimSpace(s.log.Bytes())
	var last struct{ Metrics values }
	_ = json.Unmarshal(log[bytes.LastIndexByte(log, '\n')+1:], &last)
	return last.Metrics
}

// stopCounted is stop with a check that the load measured what it should. The service must have
// counted nearly all requests under the load's metric; the first ones may fill the cache.
func (s *server) stopCounted() (values, error) {
	counts := s.stop()
	if s.counted != "" && counts[s.counted] < 0.99*s.requests {
		return nil, fmt.Errorf("%s: of %v requests, only %v count as %s: %v", s.name, s.requests,
			counts[s.counted], s.counted, counts)
	}
	return counts, nil
}

// file writes the lines of a load to a file, and returns its path.
func (b *bench) file(name string, lines []string) (string, error) {
	file := filepath.Join(b.dir, name)
	return file, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}
