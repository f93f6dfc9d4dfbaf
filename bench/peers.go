package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// longURL is where the link leads that redirects are measured with.
const longURL = "https://example.com/a/long/path?with=a&query"

// bareArgument makes this executable a bare net/http server, which is a process of its own to be measured.
const bareArgument = "bare"

// beBare is that server where the executable was started as it.
func beBare() {
	if len(os.Args) == 5 && os.Args[1] == bareArgument {
		fmt.Fprintln(os.Stderr, bare(os.Args[2], map[string]string{os.Args[3]: os.Args[4]}))
		os.Exit(1)
	}
}

// bare redirects as the least that can be called a shortener does: it looks the path up in a map. It has no limits, no
// cache, no counters and no expiry.
func bare(address string, links map[string]string) error {
	return http.ListenAndServe(address, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to, ok := links[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusFound)
	}))
}

func (b *bench) startBare(ctx context.Context) (*service, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return b.startPeer(func(address string) (*exec.Cmd, error) {
		return exec.CommandContext(ctx, self, bareArgument, address, "/"+b.alias, longURL), nil
	})
}

// findNginx says where nginx is; "" where it is not. Debian has it where only root's PATH leads.
func findNginx() string {
	for _, name := range []string{"nginx", "/usr/sbin/nginx"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// nginxSettings keep it to its folder and to one address. It may use a connection for as long as the others do, which
// have no limit, and writes no log, as they do not.
const nginxSettings = `daemon off;
worker_processes auto;
pid nginx.pid;
error_log stderr crit;
events { worker_connections 1024; }
http {
	access_log off;
	keepalive_requests 1000000000;
	client_body_temp_path body;
	proxy_temp_path proxy;
	fastcgi_temp_path fastcgi;
	uwsgi_temp_path uwsgi;
	scgi_temp_path scgi;
	server {
		listen %s;
		location / { return 302 %q; }
	}
}
`

func (b *bench) startNginx(ctx context.Context, nginx string) (*service, error) {
	return b.startPeer(func(address string) (*exec.Cmd, error) {
		settings := filepath.Join(b.dir, "nginx.conf")
		if err := os.WriteFile(settings, fmt.Appendf(nil, nginxSettings, address, longURL), 0o600); err != nil {
			return nil, err
		}
		cmd := exec.CommandContext(ctx, nginx, "-p", b.dir, "-c", settings)
		// Killed, it would leave its workers behind.
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		return cmd, nil
	})
}

// startPeer starts another server than the service, and returns when it redirects.
func (b *bench) startPeer(command func(address string) (*exec.Cmd, error)) (*service, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &service{address: l.Addr().String(), url: "http://" + l.Addr().String(), path: "/" + b.alias, status: http.StatusFound}
	l.Close()
	if s.cmd, err = command(s.address); err != nil {
		return nil, err
	}
	s.cmd.Stderr = os.Stderr
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	c := newConnection(s.address, s.path)
	defer c.close()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := c.get()
		if err == nil {
			return s, nil
		}
		if time.Now().After(end) {
			s.stop()
			return nil, fmt.Errorf("%s does not redirect: %w", s.cmd.Path, err)
		}
	}
}
