package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
)

// subject is one of the things that are compared.
type subject struct {
	name    string
	against string // the subject that this one is compared with: its run before this one; "" where there is none
	measure func(context.Context) (values, error)
}

// values are what one run has measured, by what it is.
type values map[string]float64

// run is one run of a subject, and the one of the other subject that it is compared with.
type run struct{ own, other values }

// results are the runs of each subject.
type results struct {
	names []string
	runs  map[string][]run
}

func (r *results) add(name, against string, v values) {
	if r.runs == nil {
		r.runs = map[string][]run{}
	}
	if !slices.Contains(r.names, name) {
		r.names = append(r.names, name)
	}
	next := run{own: v}
	if others := r.runs[against]; len(others) > 0 {
		next.other = others[len(others)-1].own
	}
	r.runs[name] = append(r.runs[name], next)
}

// join adds the runs of other subjects.
func (r *results) join(others *results) {
	for _, name := range others.names {
		for _, run := range others.runs[name] {
			r.add(name, "", run.own)
		}
	}
}

// tooLoud is how much of the processors, in percent, others may use during a run before it is run again.
const tooLoud = 10

// tries is how often a run is tried at most. The one with the least noise counts.
var tries int

// interleave runs the subjects in turns, as often as there are rounds. One may stand there more than once, to be near
// all those that are compared with it.
func interleave(ctx context.Context, rounds int, subjects []subject) (*results, error) {
	r := new(results)
	for round := range rounds {
		for _, s := range subjects {
			var best values
			for try := 0; try < tries && (try == 0 || best["others"] > tooLoud); try++ {
				quiet(ctx)
				busy := newMeter()
				v, err := s.measure(ctx)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", s.name, err)
				}
				v["others"] = busy.others()
				fmt.Fprintf(os.Stderr, "round %d of %d, %s: %v\n", round+1, rounds, s.name, v)
				if try == 0 || v["others"] < best["others"] {
					best = v
				}
			}
			r.add(s.name, s.against, best)
		}
	}
	return r, nil
}

// column is what a table shows of the values.
type column struct {
	head, value string
	digits      int
	of          func(own, other float64) float64 // where it is a comparison
	atLeast     float64                          // what it should be; zero: nobody says
	atMost      float64
	rows        []string // those that the target is for; none: all
}

func ratio(own, other float64) float64      { return own / other }
func difference(own, other float64) float64 { return own - other }

// table writes a row for each subject: the median of its runs, and the smallest and the largest in brackets. Below it
// says which targets are met.
func (r *results) table(columns []column) string {
	var out, verdicts strings.Builder
	out.WriteString("| |")
	for _, c := range columns {
		out.WriteString(" " + c.head + " |")
	}
	out.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(columns)) + "\n")
	missed := make([][]string, len(columns))
	for _, name := range r.names {
		out.WriteString("| " + name + " |")
		for i, c := range columns {
			all := c.values(r.runs[name])
			if len(all) == 0 {
				out.WriteString(" |")
				continue
			}
			m := median(all)
			fmt.Fprintf(&out, " %.*f", c.digits, m)
			if low, high := all[0], all[len(all)-1]; low != high {
				fmt.Fprintf(&out, " (%.*f–%.*f)", c.digits, low, c.digits, high)
			}
			out.WriteString(" |")
			bound := len(c.rows) == 0 || slices.Contains(c.rows, name)
			if bound && (c.atLeast != 0 && m < c.atLeast || c.atMost != 0 && m > c.atMost) {
				missed[i] = append(missed[i], fmt.Sprintf("%s (%.*f)", name, c.digits, m))
			}
		}
		out.WriteString("\n")
	}
	for i, c := range columns {
		for _, name := range c.rows {
			if len(c.values(r.runs[name])) == 0 {
				missed[i] = append(missed[i], name+" (not measured)")
			}
		}
		verdict := "met"
		if len(missed[i]) > 0 {
			verdict = "missed by " + strings.Join(missed[i], ", ")
		}
		if c.rows != nil {
			c.head += " (" + strings.Join(c.rows, "; ") + ")"
		}
		switch {
		case c.atLeast != 0:
			fmt.Fprintf(&verdicts, "- %s, at least %v: %s\n", c.head, c.atLeast, verdict)
		case c.atMost != 0:
			fmt.Fprintf(&verdicts, "- %s, at most %v: %s\n", c.head, c.atMost, verdict)
		}
	}
	if verdicts.Len() == 0 {
		return out.String()
	}
	return fmt.Sprintf("%s\nTargets, by the medians:\n\n%s", &out, &verdicts)
}

// values returns what the column shows of each run, sorted, and nothing of those that have not measured it.
func (c column) values(runs []run) []float64 {
	var all []float64
	for _, r := range runs {
		v, there := r.own[c.value]
		if c.of != nil {
			other, both := r.other[c.value]
			v, there = c.of(v, other), there && both
		}
		if there {
			all = append(all, v)
		}
	}
	slices.Sort(all)
	return all
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
