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
	path    string // again and again
	file    string // if not "", its lines instead; see requests.lua
	fails   bool   // whether the status is an error, as it is if there is no such link
	counted string // the metric of the service that counts these requests and no others
}

// file writes the lines of a load.
func (b *bench) file(name string, lines []string) (string, error) {
	file := filepath.Join(b.dir, name)
	return file, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// put puts a server under a load, as fast as its responses come, and returns the requests a second,
// percentiles of their milliseconds, and the microseconds of the processors that the server has
// used for each. Of a file, skip lines are left out at first.
func (s *server) put(ctx context.Context, l load, length time.Duration, skip int) (values, error) {
	args := []string{"-t2", "-c32", "-d" + length.String(), "--latency", "http://" + s.address +
		l.path}
	if l.file != "" {
		args = append([]string{"-s", "bench/requests.lua"},
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
	refused, _ := strconv.ParseFloat(found[5], 64) // not there: none
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
