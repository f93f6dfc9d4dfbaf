package main

import (
	"fmt"
	"slices"
	"strings"
)

// values are what one run has measured, by name.
type values map[string]float64

// results are the runs of each row.
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

// column is a value as a table shows it.
type column struct {
	head, value     string
	digits          int
	atLeast, atMost float64  // the target, if not zero
	rows            []string // those with the target; none: all
}

// table writes a row for each name: the median of its runs, with the smallest and the largest in
// brackets. Below it are the targets and whether they are met.
func (r *results) table(columns []column) string {
	head, line, targets := "| |", "| --- |", ""
	rows := make([]string, len(r.names))
	for i, name := range r.names {
		rows[i] = "| " + name + " |"
	}
	for _, c := range columns {
		head += " " + c.head + " |"
		line += " ---: |"
		var missed []string
		for i, name := range r.names {
			runs := r.sorted(name, c.value)
			if len(runs) == 0 {
				rows[i] += " |"
				continue
			}
			low, high := runs[0], runs[len(runs)-1]
			median := (runs[(len(runs)-1)/2] + runs[len(runs)/2]) / 2
			rows[i] += fmt.Sprintf(" %.*f", c.digits, median)
			if low != high {
				rows[i] += fmt.Sprintf(" (%.*f–%.*f)", c.digits, low, c.digits, high)
			}
			rows[i] += " |"
			if (c.rows == nil || slices.Contains(c.rows, name)) &&
				(median < c.atLeast || c.atMost != 0 && median > c.atMost) {
				missed = append(missed, fmt.Sprintf("%s (%.*f)", name, c.digits, median))
			}
		}
		if c.atLeast == 0 && c.atMost == 0 {
			continue
		}
		bound, limit, verdict := "at least", c.atLeast, "met"
		if c.atMost != 0 {
			bound, limit = "at most", c.atMost
		}
		if missed != nil {
			verdict = "missed by " + strings.Join(missed, ", ")
		}
		if c.rows != nil {
			c.head += " (" + strings.Join(c.rows, "; ") + ")"
		}
		targets += fmt.Sprintf("- %s, %s %v: %s\n", c.head, bound, limit, verdict)
	}
	text := strings.Join(append([]string{head, line}, rows...), "\n") + "\n"
	if targets != "" {
		text += "\nTargets, by the medians:\n\n" + targets
	}
	return text
}

// sorted returns a value of all runs of a row that have it.
func (r *results) sorted(name, value string) (all []float64) {
	for _, v := range r.runs[name] {
		if x, ok := v[value]; ok {
			all = append(all, x)
		}
	}
	slices.Sort(all)
	return all
}
