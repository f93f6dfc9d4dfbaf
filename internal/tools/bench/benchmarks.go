package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// benchmarks runs the Go benchmarks of storage that count calls.
func (b *bench) benchmarks(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-timeout", "0", "-run", "^$", "-bench",
		"^Benchmark(List|Create|Reap|Import|Days|Top|BusySite)$", "./storage")
	cmd.Stderr = os.Stderr
	output, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, output)
	}
	return benchmarkTable(string(output)), nil
}

var benchmarkLine = regexp.MustCompile(`(?m)^Benchmark(\S+)-\d+\s+\d+\t(.*)$`)

// benchmarkTable has a row for each benchmark in the output of go test.
func benchmarkTable(output string) string {
	text := "| benchmark | measured |\n|---|---|\n"
	for _, line := range benchmarkLine.FindAllStringSubmatch(output, -1) {
		var figures []string
		for figure := range strings.SplitSeq(line[2], "\t") {
			figures = append(figures, strings.TrimSpace(figure))
		}
		text += fmt.Sprintf("| %s | %s |\n", strings.ReplaceAll(line[1], "_", " "),
			strings.Join(figures, ", "))
	}
	return text
}
