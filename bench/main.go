// Bench measures redirects beside what the platform and the machine can do, links made and reaped beside the storage SDK
// alone, the start, and what grows with the links; and the service beside itself: what telemetry costs, and what an
// ingestion endpoint that fails does to redirects.
//
//	go run ./bench -only cost -rounds 3
//	go run ./bench -write docs/performance.md
//
// What is compared is run in turns, A B C A B C …, each time in a fresh process, and reported by medians and spread, so
// that a machine that gets slower or has other work for a while does not favour anybody. It runs on Linux alone, whose
// /proc says what a process has used.
package main

import (
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

	"tiney/internal/azurite"
	"tiney/internal/pack"
)

// bench is what all parts share.
type bench struct {
	rounds      int
	length      time.Duration // of one measurement of throughput
	connections int
	reapRounds  int // against a table service in memory
	faultRounds int
	faultLength time.Duration
	rate        int // redirects a second
	shortens    int // links made a second beside them
	mostLinks   int // in the largest tables

	executable string
	emulator   azurite.Ports
	alias      string // of the link that redirects are measured with
	wrk        string // where it is; "" where it is not
	bare       string // the executable of a bare net/http server
	dir        string // for what is of use only while this runs
	file       string // where the tables go to; "" where they are only printed
}

func main() {
	if os.Getenv(rawVariable) != "" {
		fmt.Fprintln(os.Stderr, "bench, raw:", serveRaw())
		os.Exit(1)
	}
	b := new(bench)
	flag.IntVar(&b.rounds, "rounds", 5, "rounds of everything but the faults")
	flag.DurationVar(&b.length, "time", 5*time.Second, "how long one measurement of throughput goes on")
	flag.IntVar(&b.connections, "connections", 32, "connections of the load generator")
	flag.IntVar(&b.reapRounds, "reap-rounds", 2, "rounds of reaps of up to 100,000 links")
	flag.IntVar(&b.faultRounds, "fault-rounds", 3, "rounds of the faults")
	flag.DurationVar(&b.faultLength, "fault-time", time.Minute, "how long the endpoint fails")
	flag.IntVar(&b.rate, "rate", 2000, "redirects a second while it fails")
	flag.IntVar(&b.shortens, "shortens", 20, "links made a second while it fails")
	flag.IntVar(&b.mostLinks, "most-links", 30_000, "links in the largest tables of growth, three rows each")
	flag.DurationVar(&patience, "patience", 10*time.Minute, "how long to wait, all in all, for others to leave the machine alone")
	flag.IntVar(&tries, "tries", 3, "how often to try a run that others disturb")
	var names []string
	for _, p := range b.parts() {
		names = append(names, p.name)
	}
	only := flag.String("only", strings.Join(names, ","), "the `parts` to run")
	flag.StringVar(&b.file, "write", "", "put the tables into this `file` too, between its marks, and a plot beside it")
	flag.Parse()

	// Everything that is started ends with ctx.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx, strings.Split(*only, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// part is one table.
type part struct {
	name    string
	measure func(context.Context) (string, error)
}

func (b *bench) parts() []part {
	return []part{
		{"redirects", b.redirects}, {"shorten", b.shorten}, {"reap", b.reap}, {"start", b.startUp}, {"growth", b.growth},
		{"cost", b.cost}, {"allocations", b.allocations}, {"faults", b.faults},
	}
}

func (b *bench) run(ctx context.Context, only []string) error {
	parts := b.parts()
	for _, name := range only {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("there is no part %q", name)
		}
	}
	dir, err := os.MkdirTemp("", "tiney-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := pack.Dir(".", dir, pack.Target{OS: runtime.GOOS, Arch: runtime.GOARCH}); err != nil {
		return err
	}
	b.dir, b.executable = dir, filepath.Join(dir, "handler")
	b.wrk, _ = exec.LookPath("wrk")
	if err := b.buildBare(ctx); err != nil {
		return err
	}
	emulator, err := azurite.StartAnywhere(ctx)
	if err != nil {
		return err
	}
	defer emulator.Stop()
	b.emulator = emulator.Ports
	if err := b.makeLink(ctx); err != nil {
		return err
	}
	for _, p := range parts {
		if !slices.Contains(only, p.name) {
			continue
		}
		table, err := p.measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		text := fmt.Sprintf("Measured on %s.\n\n%s", measuredOn(), table)
		fmt.Printf("\n## %s\n\n%s", p.name, text)
		if b.file != "" {
			if err := replace(b.file, p.name, text); err != nil {
				return err
			}
		}
	}
	return nil
}

// replace puts text between the marks of a part in a file.
func replace(file, part, text string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- bench "+part+" -->\n", "<!-- end of "+part+" -->\n"
	before, rest, found := strings.Cut(string(data), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no place for a table: no line %q, or none %q after it", file, strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return os.WriteFile(file, []byte(before+begin+"\n"+text+"\n"+end+after), 0o644)
}
