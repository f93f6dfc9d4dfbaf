package main

import (
	"fmt"
	"slices"
	"strings"
)

// values are the results of one run, by name.
type values map[string]float64

// results are the runs for each row.
type results struct {
	names []string
	runs  map[string][]values
}

func (r *results) add(name string, v values) {
	if r.runs == nil {
		r.runs = map[string][]values{}
	}
	if r.runs[name] == nil {
		r.names = append(r.names, name)
	}
	r.runs[name] = append(r.runs[name], v)
}

// column shows one value in a table.
type column struct {
	head, value     string
	digits          int
	atLeast, atMost float64  // the target, if not zero
	rows            []string // the rows that have the target; nil: all
}

// table writes a row for each name, with the median of its runs. If a column has a target, its head
// names the target, and each cell also has the smallest and the largest value, and whether the
// median meets the target.
func (r *results) table(columns []column) string {
	head, line := "| |", "|---|"
	rows := make([]string, len(r.names))
	for i, name := range r.names {
		rows[i] = "| " + name + " |"
	}
	for _, c := range columns {
		head += " " + c.head
		switch {
		case c.atLeast != 0:
			head += fmt.Sprintf(", at least %v", c.atLeast)
		case c.atMost != 0:
			head += fmt.Sprintf(", at most %v", c.atMost)
		}
		head += " |"
		line += "---:|"
		for i, name := range r.names {
			if runs := r.sorted(name, c.value); len(runs) != 0 {
				rows[i] += " " + c.cell(name, runs)
			}
			rows[i] += " |"
		}
	}
	return strings.Join(append([]string{head, line}, rows...), "\n") + "\n"
}

// cell returns the text of a column in a row with these runs.
func (c column) cell(name string, runs []float64) string {
	low, high := runs[0], runs[len(runs)-1]
	median := (runs[(len(runs)-1)/2] + runs[len(runs)/2]) / 2
	text := fmt.Sprintf("%.*f", c.digits, median)
	if c.atLeast == 0 && c.atMost == 0 {
		return text
	}
	if low != high {
		text += fmt.Sprintf(" (%.*f–%.*f)", c.digits, low, c.digits, high)
	}
	if c.rows != nil && !slices.Contains(c.rows, name) {
		return text
	}
	if median < c.atLeast || c.atMost != 0 && median > c.atMost {
		return text + ", **missed**"
	}
	return text + ", met"
}

// sorted returns the named value of all runs of a row that have it, in ascending order.
func (r *results) sorted(name, value string) (all []float64) {
	for _, v := range r.runs[name] {
		if x, ok := v[value]; ok {
			all = append(all, x)
		}
	}
	slices.Sort(all)
	return all
}

// loadColumns show what server.put returns.
var loadColumns = []column{
	{head: "requests/s", value: "req/s"},
	{head: "p50 ms", value: "p50", digits: 2},
	{head: "p99 ms", value: "p99", digits: 2},
	{head: "CPU µs each", value: "µs", digits: 1},
}
