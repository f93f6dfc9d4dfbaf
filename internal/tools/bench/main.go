// Bench measures the service, and compares it with bare net/http and nginx. It measures redirects,
// clicks, statistics, a load of users, links created, listed, reaped and imported, and the start.
//
//	go run ./internal/tools/bench -only redirects -rounds 3
//	go run ./internal/tools/bench -write docs/performance.md
//
// Compared servers take turns, and the tables show medians and ranges. So a machine that slows down
// for a while favours none of them. Bench needs wrk, and Linux: it reads from /proc what a process
// has used.
package main

import (
	"archive/zip"
	"context"
	"flag"
	"fmt"
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
	full   bool
	// dir is a folder for this run. It has the executables of the service and of
	// internal/tools/bench/bare.
	dir, executable, bare string
	storage               azurite.Ports
	tables                int // created so far
}

func main() {
	b := new(bench)
	flag.IntVar(&b.rounds, "rounds", 4,
		"how often everything is measured that is not done in one run")
	flag.BoolVar(&b.full, "full", false,
		"give each phase of the part users its whole time, which takes ten minutes more, and "+
			"import ten times as many links")
	only := flag.String("only", "redirects,clicks,stats,scale,users,shorten,list,reap,import,start",
		"the `parts` to run")
	file := flag.String("write", "", "also put the tables into this `file`, between its markers")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx, strings.Split(*only, ","), *file); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func (b *bench) run(ctx context.Context, only []string, file string) error {
	parts := map[string]func(context.Context) (string, error){
		"redirects": b.redirects, "clicks": b.clicks, "users": b.users, "stats": b.stats,
		"shorten": b.shorten, "list": b.list, "reap": b.reap, "import": b.imports,
		"start": b.starts, "scale": b.scale,
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
	emulator, err := azurite.StartAnywhere(ctx)
	if err != nil {
		return err
	}
	defer emulator.Stop()
	b.storage = emulator.Ports
	for _, name := range only {
		fmt.Fprintln(os.Stderr, "measuring", name)
		others, start := otherTime(), time.Now()
		table, err := parts[name](ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		others = max(0, otherTime()-others) * 100 / time.Since(start) / time.Duration(
			runtime.NumCPU())
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

func (b *bench) build(ctx context.Context) error {
	// The package is unpacked as for a deployment, in small pieces. After one large write, Linux may
	// keep an executable in large pages, and count all of it as memory of its process, used or not.
	file := filepath.Join(b.dir, "package.zip")
	if err := pack.Zip(".", file, pack.Target{OS: runtime.GOOS,
		Arch: runtime.GOARCH}); err != nil {
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
	b.executable, b.bare = filepath.Join(b.dir, "handler"), filepath.Join(b.dir, "bare")
	// The flags are the same as the service's.
	build := exec.CommandContext(ctx, "go", "build", "-o", b.bare, "-trimpath", "-ldflags", "-s -w",
		"tiney/internal/tools/bench/bare")
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
