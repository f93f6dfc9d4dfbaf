package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLogFilesAreBounded: behind IIS, log files take only a limited part of the disk.
func TestLogFilesAreBounded(t *testing.T) {
	home := t.TempDir()
	folder := filepath.Join(home, "LogFiles")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	var want []string
	add := func(name string, age time.Duration, stays bool) {
		t.Helper()
		path := filepath.Join(folder, name)
		at := time.Now().Add(-age)
		if err := os.WriteFile(path, []byte("old\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		if stays {
			want = append(want, name)
		}
	}
	for n := range keptLogFiles + 3 {
		add(fmt.Sprintf("tiney_%02d.log", n), time.Duration(n+1)*time.Hour, n < keptLogFiles)
	}
	add("eventlog.xml", 1000*time.Hour, true) // the platform's own
	add("tiney_now.log", 2000*time.Hour, true)
	own := filepath.Join(folder, "tiney_now.log")
	stdout, err := os.OpenFile(own, os.O_RDWR|os.O_TRUNC, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	if err := os.Chtimes(own, time.Time{}, time.Now().Add(-2000*time.Hour)); err != nil {
		t.Fatal(err)
	}

	env := map[string]string{"HOME": home}
	getenv := func(name string) string { return env[name] }
	if w := bounded(getenv, stdout); w != stdout {
		t.Errorf("without IIS, the log goes to %v", w)
	}
	env["HTTP_PLATFORM_PORT"] = "5000"
	w := bounded(getenv, stdout)
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("it leaves %q, want %q", got, want)
	}

	line := strings.Repeat("x", 1023) + "\n"
	longest := int64(0)
	for n := range maxLogFile/len(line)*2 + 100 {
		if _, err := fmt.Fprintf(w, "%08d %s", n, line[9:]); err != nil {
			t.Fatal(err)
		}
		if n%1000 == 0 {
			info, err := stdout.Stat()
			if err != nil {
				t.Fatal(err)
			}
			longest = max(longest, info.Size())
		}
	}
	text, err := os.ReadFile(own)
	if err != nil || longest > maxLogFile || longest < maxLogFile/2 || len(text) != 100*len(line) ||
		!strings.HasPrefix(string(text), "00020480 x") {
		t.Errorf("the file had up to %d bytes, and has %d in the end: %.20s (%v)", longest,
			len(text), text, err)
	}
}
