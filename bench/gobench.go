package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// goBenchmark is what go test says of one benchmark, by its units.
type goBenchmark struct {
	name   string
	values values
}

// runGoBenchmark runs a Go benchmark of a package, by its name without "Benchmark", and returns what go test says.
func runGoBenchmark(ctx context.Context, name, in string, more ...string) (string, error) {
	args := append([]string{"test", "-run", "^$", "-bench", "^Benchmark" + name + "$"}, more...)
	said, err := exec.CommandContext(ctx, "go", append(args, in)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, said)
	}
	return string(said), nil
}

var benchmarkLine = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.+)$`)

// goBenchmarks reads the figures from what go test says: at least one benchmark's, and each with all of the units.
func goBenchmarks(said string, units ...string) ([]goBenchmark, error) {
	var all []goBenchmark
	for _, line := range benchmarkLine.FindAllStringSubmatch(said, -1) {
		v, fields := values{}, strings.Fields(line[2])
		for i := 0; i+1 < len(fields); i += 2 {
			n, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, err
			}
			v[fields[i+1]] = n
		}
		for _, unit := range units {
			if _, ok := v[unit]; !ok {
				return nil, fmt.Errorf("no %s in %q", unit, line[0])
			}
		}
		all = append(all, goBenchmark{line[1], v})
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("go test said:\n%s", said)
	}
	return all, nil
}
