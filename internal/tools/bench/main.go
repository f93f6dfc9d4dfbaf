// Bench measures the service, and compares it with bare net/http and nginx. It measures redirects,
// clicks, a load of users and the start, and runs the Go benchmarks of storage.
//
//	go run ./internal/tools/bench -only redirects -rounds 3
//	go run ./internal/tools/bench -write docs/performance.md
//
// Compared servers take turns, and the tables show medians and ranges. So a machine that slows down
// for a while favours none of them. Bench needs wrk and Linux: it reads from /proc what a process
// has used. It compares nginx if that is installed.
package main

import (
	"archive/zip"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"tiney/internal/testing/azurite"
	"tiney/internal/tools/pack"
)

// bench is the state that all parts share.
type bench struct {
	rounds int
	// dir is a folder for this run. It has the executables of the service, "handler", and of
	// internal/tools/bench/bare.
	dir     string
	storage azurite.Ports // each part has an emulator of its own
}

func main() {
	b := new(bench)
	flag.IntVar(&b.rounds, "rounds", 4,
		"how often everything is measured that is not done in one run")
	only := flag.String("only", "redirects,clicks,users,storage,start", "the `parts` to run")
	file := flag.String("write", "", "also put the tables into this `file`, between its markers")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The proxy of clicks keeps as many connections as the service does.
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 128
	if err := b.run(ctx, strings.Split(*only, ","), *file); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context, only []string, file string) error {
	parts := map[string]func(context.Context) (string, error){
		"redirects": b.redirects, "clicks": b.clicks, "users": b.users, "storage": b.benchmarks,
		"start": b.starts,
	}
	if i := slices.IndexFunc(only, func(name string) bool { return parts[name] == nil }); i >= 0 {
		return fmt.Errorf("there is no part %q", only[i])
	}
	var err error
	if b.dir, err = os.MkdirTemp("", "tiney-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := b.build(ctx); err != nil {
		return err
	}
	for _, name := range only {
		fmt.Fprintln(os.Stderr, "measuring", name)
		others, start := otherTime(), time.Now()
		table, err := b.measure(ctx, parts[name])
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		all := time.Since(start) * time.Duration(runtime.NumCPU())
		others = max(0, otherTime()-others) * 100 / all
		text := fmt.Sprintf("%s, %s, other load %d %%.\n\n%s",
			time.Now().UTC().Format(time.DateOnly), machine(), others, table)
		fmt.Printf("\n## %s\n\n%s", name, text)
		if file != "" {
			if err := write(file, name, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure measures a part with an emulator that has no tables yet.
func (b *bench) measure(ctx context.Context, part func(context.Context) (string, error)) (string,
	error) {
	emulator, err := azurite.StartAnywhere(ctx)
	if err != nil {
		return "", err
	}
	defer emulator.Stop()
	b.storage = emulator.Ports
	return part(ctx)
}

func (b *bench) build(ctx context.Context) error {
	// The package is unpacked as for a deployment, in small pieces. After one large write, Linux
	// may keep an executable in large pages, and count all of it as memory of its process, used or
	// not.
	file := filepath.Join(b.dir, "package.zip")
	target := pack.Target{OS: runtime.GOOS, Arch: runtime.GOARCH}
	if err := pack.Zip(".", file, target); err != nil {
		return err
	}
	zipped, err := zip.OpenReader(file)
	if err != nil {
		return err
	}
	defer zipped.Close()
	if err := os.CopyFS(b.dir, zipped); err != nil {
		return err
	}
	// The flags are the same as the service's.
	build := exec.CommandContext(ctx, "go", "build", "-o", filepath.Join(b.dir, "bare"),
		"-trimpath", "-ldflags", "-s -w", "tiney/internal/tools/bench/bare")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, output)
	}
	return nil
}

// write replaces the text between the markers of a part in a file.
func write(file, part, text string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- bench "+part+" -->\n", "<!-- end of "+part+" -->\n"
	before, rest, found := strings.Cut(string(data), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s lacks the line %q, or %q after it", file, begin, end)
	}
	return os.WriteFile(file, []byte(before+begin+"\n"+text+"\n"+end+after), 0o644)
}
