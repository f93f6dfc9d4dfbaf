package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// load is what wrk requests.
type load struct {
	path    string // requested again and again
	file    string // if not "", its lines are requested instead; see requests.lua
	fails   bool   // whether the responses are errors, as for an alias without a link
	counted string // the service's metric that counts these requests and no others
}

// file writes the lines of a load to a file, and returns its path.
func (b *bench) file(name string, lines []string) (string, error) {
	file := filepath.Join(b.dir, name)
	return file, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// put puts a server under a load for the given length, as fast as its responses come. It returns
// the requests per second, percentiles of the response times in milliseconds, and the processor
// time per request in microseconds. It skips the first skip lines of a file.
func (s *server) put(ctx context.Context, l load, length time.Duration, skip int) (values, error) {
	args := []string{"-t2", "-c32", "-d" + length.String(), "--latency", "http://" + s.address +
		l.path}
	if l.file != "" {
		args = append([]string{"-s", "internal/tools/bench/requests.lua"},
			append(args, "--", l.file, strconv.Itoa(skip))...)
	}
	used := processorTime(s.cmd.Process.Pid)
	output, err := exec.CommandContext(ctx, "wrk", args...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("wrk: %w\n%s", err, output)
	}
	v, err := read(string(output), l.fails)
	if err != nil {
		return nil, err
	}
	used = processorTime(s.cmd.Process.Pid) - used
	v["µs"] = float64(used.Microseconds()) / v["requests"]
	s.requests += v["requests"]
	return v, nil
}

var wrkOutput = regexp.MustCompile(
	`\n +50% +(\S+) *\n(?:.*\n)* +99% +(\S+) *\n +(\d+) requests in .*\n( +Socket errors: .*\n)?` +
		`(?: +Non-2xx or 3xx responses: (\d+)\n)?Requests/sec: +(\S+)\n`)

// read takes the figures from wrk's output. All responses must be errors if fails is true, and none
// otherwise.
func read(output string, fails bool) (values, error) {
	found := wrkOutput.FindStringSubmatch(output)
	if found == nil {
		return nil, fmt.Errorf("wrk has no figures:\n%s", output)
	}
	half, badHalf := time.ParseDuration(found[1])
	most, badMost := time.ParseDuration(found[2])
	requests, badCount := strconv.ParseFloat(found[3], 64)
	refused, _ := strconv.ParseFloat(found[5], 64) // 0 if the line is missing
	rate, badRate := strconv.ParseFloat(found[6], 64)
	if err := errors.Join(badHalf, badMost, badCount, badRate); err != nil {
		return nil, err
	}
	want := 0.0
	if fails {
		want = requests
	}
	if found[4] != "" || refused != want || requests == 0 {
		return nil, fmt.Errorf("%v of the responses should be errors:\n%s", want, output)
	}
	return values{"requests": requests, "req/s": rate, "p50": milliseconds(half),
		"p99": milliseconds(most)}, nil
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
