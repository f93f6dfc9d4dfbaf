package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tiney/handler/app"
	"tiney/internal/telemetry"
	"tiney/internal/testing/freeport"
	"tiney/internal/testing/testutil"
)

func TestOrphaned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		parent := func() int {
			if time.Since(start) < time.Minute {
				return 7
			}
			return 1
		}
		if !orphaned(t.Context(), 7, parent) || time.Since(start) > time.Minute+2*parentInterval {
			t.Errorf("found out after %v", time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if orphaned(ctx, 7, func() int { return 7 }) {
			t.Error("the parent was there all the time")
		}
	})
}

// A first try needs no setting. It serves on this machine and says how. Its reaper runs, and a stop
// is as with storage. Metrics are apart.
func TestInMemory(t *testing.T) {
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	base := fmt.Sprintf("http://localhost:%d", port)
	metrics, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	other, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", metrics)
	env := map[string]string{"PORT": strconv.Itoa(port), "METRICS_ADDRESS": address}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	logged, welcomed := io.Pipe()
	var log testutil.Buffer
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, app.InMemory(func(name string) string { return env[name] }), &log, welcomed)
	}()
	welcome := make([]byte, 4096)
	n, err := logged.Read(welcome)
	if err != nil || !strings.Contains(string(welcome[:n]), base+"/manage") ||
		!strings.Contains(string(welcome[:n]), "\n  not-secret-and-for-development-only\n") {
		t.Errorf("the welcome is %q, %v", welcome[:n], err)
	}
	r, err := http.Post(base+"/api/shorten", "application/json",
		strings.NewReader(`{"longUrl":"https://example.com/","alias":"first"}`))
	if err != nil || r.StatusCode != http.StatusCreated {
		t.Fatalf("got %v, %v", r, err)
	}
	r.Body.Close()
	for target, status := range map[string]int{address + "/metrics": 200, address + "/": 404,
		strings.TrimPrefix(base, "http://") + "/metrics": 404} {
		r, err := http.Get("http://" + target)
		if err != nil || r.StatusCode != status {
			t.Fatalf("%s: got %v, %v", target, r, err)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body.Close()
		if status == 200 && !strings.Contains(string(body), "\ntiney_shorten_created_total 1\n") {
			t.Errorf("metrics are %s", body)
		}
	}
	// The port of the metrics is taken by now.
	err = run(ctx, app.InMemory(func(name string) string {
		return map[string]string{"PORT": strconv.Itoa(other), "METRICS_ADDRESS": address}[name]
	}), io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "METRICS_ADDRESS chooses another") {
		t.Errorf("on a port that is taken: %v", err)
	}
	testutil.Eventually(t, "the first run of the reaper is over", func() bool {
		return strings.Contains(log.String(), `"msg":"reaper: done"`)
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if got := strings.Count(log.String(), telemetry.LogMemory); got != 1 ||
		strings.Count(log.String(), `"level":"WARN"`) != 1 ||
		strings.Contains(log.String(), `"level":"ERROR"`) ||
		!strings.Contains(log.String(), `"msg":"stopped"`) {
		t.Errorf("%d lines say so in\n%s", got, &log)
	}
}

// pipes is a listener whose connections are in memory, so that they keep to the clock of synctest.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p.conns; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}
func (p pipes) Close() error   { close(p.conns); return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A host may send its first request long after it has opened the connection. A client may take its
// time for the body only.
func TestTimeLimitsOfAServer(t *testing.T) {
	for name, test := range map[string]struct {
		hosted       bool
		before, body time.Duration // before the headers, and between them and the body
		want         int           // 0: the connection is closed
	}{
		"at once":                    {false, 0, 0, 200},
		"late":                       {false, 6 * time.Second, 0, 0},
		"a slow body":                {false, 4 * time.Second, 14 * time.Second, 200},
		"a body that is too slow":    {false, 4 * time.Second, 16 * time.Second, 408},
		"a host, late":               {true, 119 * time.Second, 14 * time.Second, 200},
		"a host, and a slow client":  {true, 119 * time.Second, 16 * time.Second, 408},
		"a host without any request": {true, 121 * time.Second, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if _, err := io.ReadAll(r.Body); err != nil {
						w.WriteHeader(http.StatusRequestTimeout)
					}
				}), test.hosted, slog.New(slog.DiscardHandler))
				listener := pipes{make(chan net.Conn)}
				go server.Serve(listener)
				defer server.Close()
				var sending sync.WaitGroup
				defer sending.Wait()
				conn, served := net.Pipe()
				defer conn.Close()
				listener.conns <- served
				sending.Go(func() {
					time.Sleep(test.before)
					_, _ = io.WriteString(conn,
						"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n")
					time.Sleep(test.body)
					_, _ = io.WriteString(conn, "body")
				})
				got := 0
				if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
					got = resp.StatusCode
				}
				if got != test.want {
					t.Errorf("got %d, want %d", got, test.want)
				}
			})
		})
	}
}
