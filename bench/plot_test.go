package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// element is what an SVG consists of.
type element struct {
	name       string
	attributes map[string]string
	text       string
}

func (e element) number(t *testing.T, name string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(e.attributes[name], 64)
	if err != nil {
		t.Fatalf("%s of %+v: %v", name, e, err)
	}
	return n
}

// elements parses all of an SVG.
func elements(t *testing.T, svg []byte) (all []element) {
	t.Helper()
	var open []int
	for d := xml.NewDecoder(bytes.NewReader(svg)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			e := element{token.Name.Local, map[string]string{}, ""}
			for _, a := range token.Attr {
				e.attributes[a.Name.Local] = a.Value
			}
			open, all = append(open, len(all)), append(all, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if len(open) > 0 {
				all[open[len(open)-1]].text += string(token)
			}
		}
	}
}

func TestPlot(t *testing.T) {
	p := plot{
		title: "Fast & <faster>", notes: []string{`5 rounds, "quiet"`, "two cores"},
		bars: []bar{{"theirs", 90000, 100000, 120000, true}, {"ours, <b>", 45000, 50000, 60000, false}, {"slow", 5, 6, 7, false}},
	}
	var rects []element
	var whiskers, texts []string
	byID := map[string]string{}
	var height float64
	for _, e := range elements(t, p.svg()) {
		byID[e.attributes["id"]] = e.text
		switch {
		case e.name == "svg":
			box := strings.Fields(e.attributes["viewBox"])
			height, _ = strconv.ParseFloat(box[3], 64)
			if e.attributes["role"] != "img" || e.attributes["aria-labelledby"] != "title desc" {
				t.Errorf("what reads it aloud is not told what it is: %v", e.attributes)
			}
		case e.name == "rect" && e.attributes["class"] != "page":
			rects = append(rects, e)
		case e.name == "path":
			whiskers = append(whiskers, e.attributes["d"])
		case e.name == "text":
			texts = append(texts, e.text)
			if y := e.number(t, "y"); y <= 0 || y >= height {
				t.Errorf("%q is outside of the picture, at %v of %v", e.text, y, height)
			}
		}
	}
	if byID["title"] != p.title || !strings.Contains(byID["desc"], "theirs: 100,000 (90,000 to 120,000)") || !strings.Contains(byID["desc"], p.notes[0]) {
		t.Errorf("its title is %q, its description %q", byID["title"], byID["desc"])
	}
	if len(rects) != 3 || len(whiskers) != 3 {
		t.Fatalf("%d bars and %d whiskers, want 3 each", len(rects), len(whiskers))
	}
	ends := regexp.MustCompile(`^M([\d.]+) .* H([\d.]+) `)
	perUnit := rects[0].number(t, "width") / p.bars[0].median
	for i, r := range rects {
		b := p.bars[i]
		near := func(what string, got, value float64) {
			if want := value * perUnit; math.Abs(got-want) > 0.11 { // written with one digit
				t.Errorf("%s of %s is at %v, want %v", what, b.name, got, want)
			}
		}
		near("the median", r.number(t, "width"), b.median)
		if i > 0 && r.number(t, "y") < rects[i-1].number(t, "y")+rects[i-1].number(t, "height") {
			t.Errorf("%s covers the bar before it", b.name)
		}
		if want := map[bool]string{true: "other", false: "ours"}[b.other]; r.attributes["class"] != want {
			t.Errorf("%s is drawn as %s", b.name, r.attributes["class"])
		}
		d := ends.FindStringSubmatch(whiskers[i])
		if d == nil {
			t.Fatalf("the whisker of %s is %q", b.name, whiskers[i])
		}
		low, _ := strconv.ParseFloat(d[1], 64)
		high, _ := strconv.ParseFloat(d[2], 64)
		near("the smallest", low-r.number(t, "x"), b.low)
		near("the largest", high-r.number(t, "x"), b.high)
	}
	for _, want := range []string{"theirs", "ours, <b>", "100,000", "50,000", "6", "two cores", p.notes[0], p.title} {
		if !strings.Contains("\n"+strings.Join(texts, "\n")+"\n", "\n"+want+"\n") {
			t.Errorf("%q does not stand in it", want)
		}
	}
}

func TestPlotOfNothing(t *testing.T) {
	elements(t, plot{}.svg())
	elements(t, plot{bars: []bar{{name: "nothing"}}}.svg())
}

func TestPlotStandsBesideItsFile(t *testing.T) {
	dir := t.TempDir()
	name, err := plot{}.write(filepath.Join(dir, "figures.of.today.md"))
	if err != nil {
		t.Fatal(err)
	}
	if name != "figures.of.today.svg" {
		t.Errorf("it is called %q", name)
	}
	if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
		t.Error(err)
	}
}

func TestGridStep(t *testing.T) {
	for longest, want := range map[float64]float64{0: 1, 7: 1, 10: 2, 1999: 200, 2000: 500, 49000: 5000, 99000: 10000, 212000: 50000} {
		if got := gridStep(longest); math.Abs(got-want) > 1e-9*want {
			t.Errorf("up to %v in steps of %v, want %v", longest, got, want)
		}
	}
}

func TestThousands(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 999.4: "999", 999.5: "1,000", 12345: "12,345", 1234567: "1,234,567"} {
		if got := thousands(value); got != want {
			t.Errorf("%v is written %s, want %s", value, got, want)
		}
	}
}

func TestBars(t *testing.T) {
	r := new(results)
	for _, rate := range []float64{30, 10, 20} {
		r.add("a", "", values{"req/s": rate})
	}
	r.add("b", "", values{"p50": 1})
	got := bars(r, "req/s", []string{"a"})
	if want := (bar{"a", 10, 20, 30, true}); len(got) != 1 || got[0] != want {
		t.Errorf("got %v, want %v alone", got, want)
	}
}
