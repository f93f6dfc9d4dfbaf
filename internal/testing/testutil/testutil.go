// Package testutil has what the tests of several packages share.
package testutil

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// NotShort leaves a slow test to make check.
func NotShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow: make check runs it")
	}
}

// Eventually waits until condition holds, and fails the test if it does not within two minutes.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// Clock is a clock that stands still unless a test advances it.
type Clock struct {
	mu sync.Mutex
	at time.Time
}

// NewClock returns a clock that stands at a whole second near the real time. The time must be near,
// since a storage service has a clock of its own.
func NewClock() *Clock { return &Clock{at: time.Now().UTC().Truncate(time.Second)} }

// Now returns the clock's time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// Advance puts the clock forward.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// Buffer keeps data that one goroutine writes while others read it, such as the output of a running
// process.
type Buffer struct {
	mu   sync.Mutex
	data bytes.Buffer // not embedded: its ReadFrom would bypass the lock
}

func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.Write(p)
}

func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.data.String()
}

// Client follows no redirects.
var Client = &http.Client{
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	Timeout:       time.Minute,
}

// Response is an HTTP response. Its body was read.
type Response struct {
	Status int
	Header http.Header
	Body   string
}

// Send sends a request with Client. Headers are alternating names and values. A POST has the
// Content-Type of JSON unless they set another one.
func Send(method, url, body string, headers ...string) (Response, error) {
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	for pair := range slices.Chunk(headers, 2) {
		if pair[0] == "Host" {
			req.Host = pair[1]
		}
		req.Header.Set(pair[0], pair[1])
	}
	resp, err := Client.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	return Response{resp.StatusCode, resp.Header, string(data)}, err
}

// BuildsProject reads the folders of the project, three levels above the test's own. So a change of
// any file invalidates the test's cached result. `go test` does not know of an executable that a
// test builds and starts, and would report the cached result of an older one. It does not notice
// what a TestMain reads.
func BuildsProject(t testing.TB) {
	t.Helper()
	if err := readFolders(); err != nil {
		t.Fatal(err)
	}
}

var readFolders = sync.OnceValue(func() error { // once for all tests of a package
	const root = "../../.."
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == root || !d.IsDir() {
			return err
		}
		if name := d.Name(); name == "node_modules" || name == "build" || name[0] == '.' {
			return fs.SkipDir
		}
		return nil
	})
})

// Memory returns a figure of a process's memory, such as VmRSS, in KiB. It returns 0 on systems
// without /proc.
func Memory(t testing.TB, pid int, figure string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil && runtime.GOOS != "linux" {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kib int
		if _, err := fmt.Sscanf(line, figure+": %d kB", &kib); err == nil {
			return kib
		}
	}
	t.Fatalf("/proc/%d/status has no %s", pid, figure)
	return 0
}
