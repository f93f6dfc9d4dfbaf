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

// table writes a row for each name: the median of its runs. Where there is a target, the head says
// so, and the smallest and the largest value follow, and whether the median meets it.
func (r *results) table(columns []column) string {
	head, line := "| |", "| --- |"
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
		line += " ---: |"
		for i, name := range r.names {
			if runs := r.sorted(name, c.value); len(runs) != 0 {
				rows[i] += " " + c.cell(name, runs)
			}
			rows[i] += " |"
		}
	}
	return strings.Join(append([]string{head, line}, rows...), "\n") + "\n"
}

// cell is what a column has in a row with these runs.
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
	return text + ", " + verdict(median >= c.atLeast && (c.atMost == 0 || median <= c.atMost))
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
