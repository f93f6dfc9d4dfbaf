package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

const (
	progressEvery = 200 * time.Millisecond
	progressWidth = 79 // characters
	barWidth      = 30
)

// progress shows the progress of a subcommand in the last line of a terminal.
type progress struct {
	w        io.Writer
	terminal bool
	size     int64 // of the input, in bytes; zero if it is not known
	begun    time.Time
	shown    time.Time
}

// newProgress returns a progress, which shows nothing if w is not a terminal.
func newProgress(w io.Writer, size int64) *progress {
	p := &progress{w: w, size: size, begun: time.Now()}
	if file, ok := w.(*os.File); ok {
		info, err := file.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// show shows how many links are done, and how many bytes are read.
func (p *progress) show(links int, read int64) {
	took := max(time.Since(p.begun), time.Millisecond) // Windows' clock may not have moved
	text := fmt.Sprintf("%d links, %.0f/s", links, float64(links)/took.Seconds())
	if p.size > 0 {
		done := min(float64(read)/float64(p.size), 1)
		n := int(done * barWidth)
		bar := strings.Repeat("=", n) + strings.Repeat(" ", barWidth-n)
		text = fmt.Sprintf("[%s] %3.0f %%  %s", bar, 100*done, text)
	}
	p.say(text)
}

// say shows a text, unless it has shown another less than progressEvery ago.
func (p *progress) say(text string) {
	if now := time.Now(); p.terminal && now.Sub(p.shown) >= progressEvery {
		p.shown = now
		fmt.Fprintf(p.w, "\r%-*.*s", progressWidth, progressWidth, text)
	}
}

// print prints a line above the progress.
func (p *progress) print(format string, args ...any) {
	p.clear()
	fmt.Fprintf(p.w, format+"\n", args...)
}

// clear removes the progress.
func (p *progress) clear() {
	if !p.shown.IsZero() {
		fmt.Fprintf(p.w, "\r%*s\r", progressWidth, "")
		p.shown = time.Time{}
	}
}
