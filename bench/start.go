package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"tiney/internal/pack"
)

const (
	startsInARow = 4               // of one subject in one round
	restAfter    = 2 * time.Second // how long after its first answer a process is at rest
	pollPause    = 50 * time.Microsecond

	// manyRedirects go to links that are a little more than the cache has room for.
	manyRedirects = 1_000_000
	manyLinks     = 21_000
	manyRounds    = 3
	cacheSize     = 10 << 20 // the default of CACHE_SIZE_MB
)

// startUp measures how long a process takes from its start to its first answer, and its memory: at rest, and with a full
// cache after a million redirects; and the executable.
func (b *bench) startUp(ctx context.Context) (string, error) {
	starts, err := b.starts(ctx)
	if err != nil {
		return "", err
	}
	inits, err := b.initializations(ctx)
	if err != nil {
		return "", err
	}
	many, err := b.fullCache(ctx)
	if err != nil {
		return "", err
	}
	size, err := sizeOfExecutable(filepath.Join(b.dir, "app"))
	if err != nil {
		return "", err
	}
	return starts + "\n" + inits + "\n" + many + "\n" + size, nil
}

func (b *bench) starts(ctx context.Context) (string, error) {
	ofService := func(hosted bool) func() (*service, error) {
		return func() (*service, error) { return b.prepare(ctx, hosted) }
	}
	subjects := []subject{
		{bareRow, "", measureStarts(ctx, func() (*service, error) {
			address, err := freeAddress()
			return &service{cmd: exec.CommandContext(ctx, b.bare, address, "/"+b.alias, longURL), address: address}, err
		})},
		{"on its own", bareRow, measureStarts(ctx, ofService(false))},
		{"behind the host", bareRow, measureStarts(ctx, ofService(true))},
	}
	r, err := interleave(ctx, b.rounds, subjects)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d rounds of %d starts each; a round's time is the median of its starts.\n\n", b.rounds, startsInARow) + r.table([]column{
		{head: "ms to the first answer", value: "ms", digits: 1, atMost: 15},
		{head: "ms more than bare", value: "ms", digits: 1, of: difference},
		{head: "of it until it listens", value: "listens", digits: 1},
		{head: "ms between two tries", value: "poll", digits: 2},
		{head: "MB at rest", value: "MB", digits: 1, atMost: 14},
		{head: "CPU % of others", value: "others"},
	}), nil
}

// measureStarts starts a process a few times and looks at the memory of the last one.
func measureStarts(ctx context.Context, prepare func() (*service, error)) func(context.Context) (values, error) {
	return func(context.Context) (values, error) {
		all := map[string][]float64{}
		for n := 1; ; n++ {
			s, err := prepare()
			if err != nil {
				return nil, err
			}
			took, err := s.firstAnswer(ctx)
			if err != nil {
				return nil, err
			}
			for name, ms := range took {
				all[name] = append(all[name], ms)
			}
			if n < startsInARow {
				s.stop()
				continue
			}
			defer s.stop()
			v := values{}
			for name, ms := range all {
				slices.Sort(ms)
				v[name] = median(ms)
			}
			time.Sleep(restAfter)
			v["MB"], _, err = memory(s.cmd.Process.Pid)
			return v, err
		}
	}
}

// firstAnswer starts the process and asks for / until it answers. What it returns is in milliseconds: how long it took
// altogether, until it listened, and how far apart two of the tries were.
func (s *service) firstAnswer(ctx context.Context) (values, error) {
	start := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	failed := func(err error) (values, error) {
		s.stop()
		return nil, fmt.Errorf("the first answer: %w", err)
	}
	last := start
	for {
		try := time.Now()
		conn, err := net.Dial("tcp", s.address)
		if err != nil {
			if ctx.Err() != nil || try.Sub(start) > 30*time.Second {
				return failed(errors.Join(err, ctx.Err()))
			}
			last = try
			time.Sleep(pollPause)
			continue
		}
		defer conn.Close()
		_ = conn.SetDeadline(try.Add(30 * time.Second))
		if _, err := conn.Write([]byte("GET / HTTP/1.1\r\nHost: tiney.to\r\n\r\n")); err != nil {
			return failed(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return failed(err)
		}
		answer.Body.Close()
		end := time.Now()
		ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
		return values{"ms": ms(end.Sub(start)), "listens": ms(try.Sub(start)), "poll": ms(try.Sub(last))}, nil
	}
}

// initializations lists the packages whose initialization takes longest, which is before main begins.
func (b *bench) initializations(ctx context.Context) (string, error) {
	const starts, longest, all = 15, 10, "all packages"
	took := map[string][]float64{}
	for range starts {
		s, err := b.prepare(ctx, true, "GODEBUG=inittrace=1")
		if err != nil {
			return "", err
		}
		var said bytes.Buffer
		s.cmd.Stderr = &said
		if _, err := s.firstAnswer(ctx); err != nil {
			return "", err
		}
		s.stop() // and with that, nobody writes to said any more
		of := initTimes(said.String())
		var sum float64
		for name, µs := range of {
			took[name] = append(took[name], µs)
			sum += µs
		}
		took[all] = append(took[all], sum)
	}
	for _, µs := range took {
		slices.Sort(µs)
	}
	names := slices.SortedFunc(maps.Keys(took), func(a, b string) int {
		return cmp.Or(cmp.Compare(median(took[b]), median(took[a])), strings.Compare(a, b))
	})
	if len(names) <= longest {
		return "", fmt.Errorf("GODEBUG=inittrace=1 tells of %d packages only", len(names))
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%d starts behind the host with GODEBUG=inittrace=1, %d packages.\n\n| initialization | µs |\n| --- | ---: |\n", starts, len(names)-1)
	for _, name := range names[:longest+1] { // the first one is the sum
		fmt.Fprintf(&out, "| %s | %.0f (%.0f–%.0f) |\n", name, median(took[name]), took[name][0], took[name][len(took[name])-1])
	}
	return out.String(), nil
}

var initLine = regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock,`)

// initTimes reads the microseconds that packages took from what GODEBUG=inittrace=1 makes the runtime say.
func initTimes(said string) map[string]float64 {
	times := map[string]float64{}
	for _, line := range initLine.FindAllStringSubmatch(said, -1) {
		if ms, err := strconv.ParseFloat(line[2], 64); err == nil {
			times[line[1]] = ms * 1000
		}
	}
	return times
}

// fullCache measures the memory of a process whose cache is full, after a million redirects.
func (b *bench) fullCache(ctx context.Context) (string, error) {
	t, err := newTables(ctx, b.emulator.ConnectionString())
	if err != nil {
		return "", err
	}
	if err := t.put(manyLinks, alive, t.insert(ctx), t.links); err != nil { // redirects need no other rows
		return "", err
	}
	defer t.drop(ctx)
	rounds := min(b.rounds, manyRounds)
	r, err := interleave(ctx, rounds, []subject{{"behind the host", "", func(ctx context.Context) (values, error) {
		return b.manyRedirects(ctx, t)
	}}})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d rounds of %d redirects each, round and round over %d links, over %d connections.\n\n", rounds, manyRedirects, manyLinks, b.connections) +
		r.table([]column{
			{head: "MB after", value: "MB", digits: 1, atMost: 45},
			{head: "MB at most", value: "most", digits: 1},
			{head: "MB in the cache, as it counts", value: "cache", digits: 1},
			{head: "hit ratio", value: "hits", digits: 3},
			{head: "CPU % of others", value: "others"},
		}), nil
}

func (b *bench) manyRedirects(ctx context.Context, t *tables) (values, error) {
	s, err := b.prepare(ctx, true, t.settings()...)
	if err != nil {
		return nil, err
	}
	var logged bytes.Buffer
	s.cmd.Stdout = &logged
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	stopped := false
	defer func() {
		if !stopped {
			s.stop()
		}
	}()
	var next atomic.Int64
	load := b.together(s, func(_ int, c *connection) (t tally) {
		for i := next.Add(1); i <= manyRedirects && ctx.Err() == nil; i = next.Add(1) {
			c.ask("/" + string(aliasOf(int(i%manyLinks))))
			if err := c.get(); err != nil {
				t.failed, t.err = t.failed+1, err
				return t
			}
		}
		return t
	})
	if err := errors.Join(load.err, ctx.Err()); err != nil {
		return nil, fmt.Errorf("%d redirects failed: %w", load.failed, err)
	}
	v := values{}
	if v["MB"], v["most"], err = memory(s.cmd.Process.Pid); err != nil {
		return nil, err
	}
	// A process that is asked to stop says what it has counted.
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return nil, err
	}
	stopped = true
	if err := s.cmd.Wait(); err != nil {
		return nil, err
	}
	counted, err := lastCounts(logged.String())
	if err != nil {
		return nil, err
	}
	v["cache"] = counted["cache.bytes"] / (1 << 20)
	v["hits"] = counted["cache.hit"] / (counted["cache.hit"] + counted["cache.miss"])
	if counted["redirect.found"] != manyRedirects || counted["cache.bytes"] < cacheSize*0.95 {
		return nil, fmt.Errorf("that was not a million redirects with a full cache: %v", counted)
	}
	return v, nil
}

// lastCounts reads the metrics in the last line of the service's log.
func lastCounts(log string) (map[string]float64, error) {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	var last struct{ Metrics map[string]float64 }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Metrics == nil {
		return nil, fmt.Errorf("the log does not end with metrics: %q", lines[len(lines)-1])
	}
	return last.Metrics, nil
}

// sizeOfExecutable looks at the executable of the package for Linux.
func sizeOfExecutable(dir string) (string, error) {
	if err := pack.Dir(".", dir, pack.Target{OS: "linux", Arch: "amd64"}); err != nil {
		return "", err
	}
	file, err := os.Stat(filepath.Join(dir, "handler"))
	if err != nil {
		return "", err
	}
	const most = 15.0
	mb, verdict := float64(file.Size())/1e6, "met"
	if mb > most {
		verdict = "missed"
	}
	return fmt.Sprintf("The executable for linux/amd64, stripped: %.1f MB of a million bytes each. Target, at most %v: %s.\n", mb, most, verdict), nil
}
