package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// plot is a picture of horizontal bars, the longer the better.
type plot struct {
	title string
	bars  []bar
	notes []string // one a line, below the bars
}

// bar is a median, with the smallest and the largest.
type bar struct {
	name              string
	low, median, high float64
	other             bool // not ours, and drawn in another colour
}

// bars are those of a value of all subjects, in their order.
func bars(r *results, value string, others []string) []bar {
	var all []bar
	for _, name := range r.names {
		if v := (column{value: value}).values(r.runs[name]); len(v) > 0 {
			all = append(all, bar{name, v[0], median(v), v[len(v)-1], slices.Contains(others, name)})
		}
	}
	return all
}

// write puts the picture beside a file, under its name, and returns the picture's name.
func (p plot) write(beside string) (string, error) {
	file := strings.TrimSuffix(beside, filepath.Ext(beside)) + ".svg"
	return filepath.Base(file), os.WriteFile(file, p.svg(), 0o644)
}

// The picture, in units that are pixels where it is not scaled.
const (
	plotWidth = 800
	plotLeft  = 230 // where bars begin; their names are left of it
	plotRight = 690 // where the longest whisker ends at most; its figure is right of it
	plotTop   = 60
	plotRow   = 34
	plotAxis  = 46 // what the figures of the axis have, below the bars
	plotLine  = 18 // what a note has
)

// plotStyle is for a light page and a dark one. The picture brings its background with it, since what a reader prefers
// is not always what the page around it does.
const plotStyle = `
	text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328 }
	.title { font-size: 16px; font-weight: 600 }
	.small { font-size: 11px; fill: #59636e }
	.page { fill: #ffffff }
	.grid { stroke: #d1d9e0 }
	.ours { fill: #4393e6 }
	.other { fill: #afb8c1 }
	.whisker { stroke: #1f2328; stroke-width: 1.5; fill: none }
	@media (prefers-color-scheme: dark) {
		text { fill: #f0f6fc }
		.small { fill: #9198a1 }
		.page { fill: #0d1117 }
		.grid { stroke: #3d444d }
		.ours { fill: #1f6feb }
		.other { fill: #656c76 }
		.whisker { stroke: #f0f6fc }
	}
`

func (p plot) svg() []byte {
	longest := 0.0
	for _, b := range p.bars {
		longest = max(longest, b.high)
	}
	step := gridStep(longest)
	at := func(value float64) float64 { return plotLeft + value/max(longest, 1)*(plotRight-plotLeft) }
	end := plotTop + plotRow*len(p.bars)
	height := end + plotAxis + plotLine*len(p.notes)

	var out bytes.Buffer
	write := func(format string, args ...any) {
		for i, arg := range args {
			if text, ok := arg.(string); ok {
				args[i] = escaped(text)
			}
		}
		fmt.Fprintf(&out, format+"\n", args...)
	}
	write(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">`, plotWidth, height)
	write(`<title id="title">%s</title>`, p.title)
	var said []string
	for _, b := range p.bars {
		said = append(said, b.String())
	}
	write(`<desc id="desc">%s. %s</desc>`, strings.Join(said, "; "), strings.Join(p.notes, " "))
	out.WriteString("<style>" + plotStyle + "</style>\n")
	write(`<rect class="page" width="%d" height="%d" rx="6"/>`, plotWidth, height)
	write(`<text class="title" x="16" y="32">%s</text>`, p.title)
	for value := 0.0; value <= longest; value += step {
		write(`<line class="grid" x1="%.1f" x2="%.1[1]f" y1="%d" y2="%d"/>`, at(value), plotTop-4, end+4)
		write(`<text class="small" x="%.1f" y="%d" text-anchor="middle">%s</text>`, at(value), end+20, thousands(value))
	}
	for i, b := range p.bars {
		top, middle := plotTop+plotRow*i+6, plotTop+plotRow*i+plotRow/2
		class := "ours"
		if b.other {
			class = "other"
		}
		write(`<g><title>%s</title>`, b.String())
		write(`<text x="%d" y="%d" text-anchor="end">%s</text>`, plotLeft-10, middle+5, b.name)
		write(`<rect class="%s" x="%d" y="%d" width="%.1f" height="%d"/>`, class, plotLeft, top, at(b.median)-plotLeft, plotRow-12)
		write(`<path class="whisker" d="M%.1f %d V%d M%.1[1]f %[4]d H%.1[5]f M%.1[5]f %[2]d V%[3]d"/>`, at(b.low), middle-5, middle+5, middle, at(b.high))
		write(`<text x="%.1f" y="%d">%s</text></g>`, at(b.high)+8, middle+5, thousands(b.median))
	}
	for i, note := range p.notes {
		write(`<text class="small" x="16" y="%d">%s</text>`, end+plotAxis+plotLine*i, note)
	}
	out.WriteString("</svg>\n")
	return out.Bytes()
}

func (b bar) String() string {
	return fmt.Sprintf("%s: %s (%s to %s)", b.name, thousands(b.median), thousands(b.low), thousands(b.high))
}

// gridStep is 1, 2 or 5 of a power of ten, so that there are four to ten steps up to the longest bar.
func gridStep(longest float64) float64 {
	if longest <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(longest)))
	switch leading := longest / power; {
	case leading < 2:
		return power / 5
	case leading < 5:
		return power / 2
	}
	return power
}

// thousands writes a whole number with commas.
func thousands(value float64) string {
	digits := fmt.Sprintf("%.0f", value)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// escaped is text for XML.
func escaped(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text)) // a Builder takes all that is written
	return out.String()
}
