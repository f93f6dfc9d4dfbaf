package transfer_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tiney/transfer"
)

var update = flag.Bool("update", false, "write what is read into testdata")

type sample struct {
	file   string
	format transfer.Format
	data   string
}

// samples returns the sample files. Their names begin with the format.
func samples(t testing.TB) (all []sample) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if filepath.Ext(file) == ".golden" {
			continue
		}
		name := filepath.Base(file)
		format, err := transfer.ParseFormat(name[:strings.IndexAny(name, "-.")])
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sample{file, format, string(data)})
	}
	return all
}

// Each format has sample files, which were written from its description and contain the awkward
// cases. The expected records are in a file beside each sample.
func TestSamples(t *testing.T) {
	seen := map[transfer.Format]bool{}
	for _, sample := range samples(t) {
		format, file := sample.format, sample.file
		seen[format] = true
		t.Run(filepath.Base(file), func(t *testing.T) {
			var b strings.Builder
			for _, rec := range read(t, format, sample.data) {
				b.WriteString(describe(rec))
			}
			if *update {
				if err := os.WriteFile(file+".golden", []byte(b.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden, err := os.ReadFile(file + ".golden")
			if err != nil {
				t.Fatal(err)
			}
			if b.String() != string(golden) {
				t.Errorf("read\n%s, want\n%s", b.String(), golden)
			}
		})
	}
	for _, format := range transfer.Formats {
		if !seen[format] {
			t.Errorf("there is no sample of %s", format)
		}
	}
}

// describe returns a record without its zero values.
func describe(rec transfer.Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d:", rec.Line)
	l := rec.Link
	text := func(name, s string) {
		if s != "" {
			fmt.Fprintf(&b, " %s=%q", name, s)
		}
	}
	moment := func(name string, at time.Time) {
		if !at.IsZero() {
			fmt.Fprintf(&b, " %s=%s", name, at.Format(time.RFC3339Nano))
		}
	}
	number := func(name string, n int64) {
		if n != 0 {
			fmt.Fprintf(&b, " %s=%d", name, n)
		}
	}
	if rec.Err != nil {
		text("error", rec.Err.Error())
	}
	text("alias", string(l.Name))
	text("target", l.LongURL)
	moment("created", l.CreatedAt)
	moment("expires", l.ExpiresAt)
	moment("updated", l.UpdatedAt)
	number("status", int64(l.StatusCode))
	if l.Disabled {
		b.WriteString(" disabled")
	}
	if l.Locked {
		b.WriteString(" locked")
	}
	text("title", l.Title)
	if l.Tags != nil {
		fmt.Fprintf(&b, " tags=%q", l.Tags)
	}
	text("owner", l.Owner)
	text("domain", rec.Domain)
	if l.Forward != 0 {
		fmt.Fprintf(&b, " forward=%q", l.Forward.Names())
	}
	number("clicks", rec.Total.Clicks)
	number("bots", rec.Total.Bots)
	moment("last", rec.Total.Last)
	return b.String() + "\n"
}
