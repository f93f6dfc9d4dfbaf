package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// longURL is where the link leads that redirects are measured with.
const longURL = "https://example.com/a/long/path?with=a&query"

// buildBare builds the bare net/http server of bench/bare, as the service is built.
func (b *bench) buildBare(ctx context.Context) error {
	b.bare = filepath.Join(b.dir, "bare")
	build := exec.CommandContext(ctx, "go", "build", "-o", b.bare, "-trimpath", "-ldflags", "-s -w", "tiney/bench/bare")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, said)
	}
	return nil
}

func (b *bench) startBare(ctx context.Context, more ...string) (*service, error) {
	return b.startPeer(func(address string) (*exec.Cmd, error) {
		cmd := exec.CommandContext(ctx, b.bare, address, "/"+b.alias, longURL)
		cmd.Env = append(os.Environ(), more...)
		return cmd, nil
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
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	s := &service{address: address, url: "http://" + address, path: "/" + b.alias, status: http.StatusFound}
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
