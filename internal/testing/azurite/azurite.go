// Package azurite starts Azurite, the storage emulator, for `make run` and for the tests.
//
// The emulator itself is the npm package that package-lock.json beside this file pins; `make
// azurite` installs it.
package azurite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"tiney/internal/testing/freeport"
)

// The account that every Azurite has. Its key is public and documented.
const (
	Account = "devstoreaccount1"
	Key     = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)

// Ports are the loopback ports of one Azurite server.
type Ports struct{ Blob, Queue, Table int }

// DefaultPorts are the ports that UseDevelopmentStorage=true stands for.
var DefaultPorts = Ports{Blob: 10000, Queue: 10001, Table: 10002}

// FreePorts finds three ports that nobody listens on. Another process may take one before Azurite
// does; Start then fails and says so.
func FreePorts() (Ports, error) {
	var free [3]int
	for i := range free {
		var err error
		if free[i], err = freeport.Find(); err != nil {
			return Ports{}, err
		}
	}
	return Ports{Blob: free[0], Queue: free[1], Table: free[2]}, nil
}

// ConnectionString returns the connection string of an Azurite on these ports.
func (p Ports) ConnectionString() string {
	return fmt.Sprintf("DefaultEndpointsProtocol=http;AccountName=%[1]s;AccountKey=%[2]s;"+
		"BlobEndpoint=http://127.0.0.1:%[3]d/%[1]s;QueueEndpoint=http://127.0.0.1:%[4]d/%[1]s;"+
		"TableEndpoint=http://127.0.0.1:%[5]d/%[1]s;",
		Account, Key, p.Blob, p.Queue, p.Table)
}

// Server is a running Azurite.
type Server struct {
	Ports
	cmd    *exec.Cmd
	exited chan struct{}
}

// Start runs Azurite on the given ports, and returns when it accepts connections, usually within
// about a second. Azurite keeps its data in the folder location, or in memory if location is empty.
// Its output goes to output.
func Start(ctx context.Context, ports Ports, location string, output io.Writer) (*Server, error) {
	script, err := script()
	if err != nil {
		return nil, err
	}
	args := []string{script, "--silent", "--disableTelemetry",
		"--blobHost", "127.0.0.1", "--queueHost", "127.0.0.1", "--tableHost", "127.0.0.1",
		"--blobPort", fmt.Sprint(ports.Blob), "--queuePort", fmt.Sprint(ports.Queue), "--tablePort",
		fmt.Sprint(ports.Table)}
	if location == "" {
		args = append(args, "--inMemoryPersistence")
	} else {
		args = append(args, "--location", location)
	}
	for _, port := range []int{ports.Blob, ports.Queue, ports.Table} {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return nil, fmt.Errorf("azurite needs port %d, and something else has it: %w", port,
				err)
		}
		l.Close()
	}
	// Run node itself rather than npx: a SIGTERM to npx would leave the real process behind.
	cmd := exec.Command("node", args...)
	cmd.Stdout, cmd.Stderr = output, output
	OwnGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting Azurite: %w", err)
	}
	s := &Server{Ports: ports, cmd: cmd, exited: make(chan struct{})}
	go func() { cmd.Wait(); close(s.exited) }()
	for _, port := range []int{ports.Blob, ports.Table} {
		if err := s.listening(ctx, port); err != nil {
			s.Stop()
			return nil, err
		}
	}
	return s, nil
}

func (s *Server) listening(ctx context.Context, port int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return conn.Close()
		}
		select {
		case <-s.exited:
			return errors.New("azurite ended as soon as it was started")
		case <-ctx.Done():
			return fmt.Errorf("azurite does not listen on port %d: %w", port, err)
		case <-time.After(25 * time.Millisecond):
		}
	}
}

// Exited returns a channel that is closed when Azurite has ended, by Stop or by itself.
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Stop ends Azurite with SIGTERM, so that it keeps its data, and returns when it has ended. It
// kills Azurite after 10 s, and at once on Windows, which has no SIGTERM.
func (s *Server) Stop() {
	if s.cmd.Process.Signal(syscall.SIGTERM) == nil {
		select {
		case <-s.exited:
		case <-time.After(10 * time.Second):
		}
	}
	s.cmd.Process.Kill()
	<-s.exited
}

// StartAnywhere is Start on free ports, with the data in memory. If another process takes one of
// the ports at the last moment, it tries other ports, up to three times in all.
func StartAnywhere(ctx context.Context) (*Server, error) {
	var failed error
	for range 3 {
		ports, err := FreePorts()
		if err != nil {
			return nil, err
		}
		s, err := Start(ctx, ports, "", io.Discard)
		if err == nil {
			return s, nil
		}
		failed = err
	}
	return nil, failed
}

// ForTests starts an Azurite of its own, runs body and stops Azurite again. It returns body's exit
// code, for a TestMain. If Azurite does not start, it returns 1 and writes a line to stderr, since
// no test passes without one. A worker of the fuzzer, which is killed at its end and would leave
// Azurite running, gets none.
func ForTests(body func(Ports) int) int {
	if slices.Contains(os.Args, "-test.fuzzworker") {
		return body(Ports{})
	}
	s, err := StartAnywhere(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer s.Stop()
	return body(s.Ports)
}

// script finds the installed Azurite from any folder of the project.
func script() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("not inside the project: no go.mod in this folder or above it")
		}
		dir = parent
	}
	script := filepath.Join(dir, filepath.FromSlash(
		"internal/testing/azurite/node_modules/azurite/dist/src/azurite.js"))
	if _, err := os.Stat(script); err != nil {
		return "", fmt.Errorf("azurite is not installed; run `make azurite` first (%w)", err)
	}
	return script, nil
}
