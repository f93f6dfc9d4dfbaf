package transfer_test

import (
	"errors"
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

// The format of each sample is guessed from its content.
func TestGuess(t *testing.T) {
	for _, sample := range samples(t) {
		f, rest, err := transfer.Guess(strings.NewReader(sample.data))
		if err != nil || f != sample.format {
			t.Errorf("%s: guessed %q, %v", sample.file, f, err)
			continue
		}
		n, m := 0, len(read(t, f, sample.data))
		for range transfer.Read(rest, f) {
			n++
		}
		if n != m {
			t.Errorf("%s: %d of %d records are left to read", sample.file, n, m)
		}
	}
	for data, want := range map[string]transfer.Format{
		"":                                   transfer.NDJSON,
		" \n":                                transfer.NDJSON,
		"sep=;\nShort Code;Long URL\n":       transfer.Shlink,
		`[{"target":"https://e.example/"}]`:  transfer.Kutt,
		`[{"id":"bit.ly/a","long_url":"x"}]`: transfer.Bitly,
		`{"links":[]}`:                       transfer.Bitly,
		`{"x":{"longUrl":1},"Short":"a","Long":"b"}`:          transfer.Golink,
		`[{"slug":"a","url":"x"}]`:                            transfer.Sink,
		`{"links":[{"id":1,"url":"x","slug":"a"}]}`:           transfer.Sink,
		`{"v":[{"slug":1}],"links":[{"slug":"a"}]}`:           transfer.Sink,
		`{"links":[{"id":"b/a","long_url":"x"}]}`:             transfer.Bitly,
		`{"links":[1,{"slug":"a"}]}`:                          transfer.Bitly,
		`{"links":[{"target":"x"}]}`:                          transfer.Bitly,
		`{"total":1,"data":[{"x":1}]}`:                        transfer.Kutt,
		`{"data":[{"slug":"a"`:                                transfer.Kutt,
		"Short link,Destination URL,Clicks,Created at,Tags\n": transfer.Dub,
		"Short link,Destination URL\n":                        transfer.Dub,
		"Link,Destination URL,Title,Tags,Clicks\n":            transfer.Bitly,
		"Bitlink,Long URL,Title,Tags,Created,Engagements\n":   transfer.Bitly,
		"short_url,long_url,clicks,is_disabled,created_at\n":  transfer.Polr,
		"shortUrl,longUrl\n":                                  transfer.CSV,
		"alias,longUrl,clicks\n":                              transfer.CSV,
		"shortCode,longUrl\n":                                 transfer.Shlink,
		"keyword,url,title\n":                                 transfer.YOURLS,
		"RowKey,Url,Title,Clicks\n":                           transfer.AzURLShortener,
		`[[{"slug":"a"}]]`:                                    "",
		"link":                                                "",
		`{"target":"x"}`:                                      "",
		`{"longUrl`:                                           "",
		`[`:                                                   "",
		"<html>":                                              "",
		"PK\x03\x04":                                          "",
	} {
		f, _, err := transfer.Guess(strings.NewReader(data))
		var file transfer.FileError
		if f != want || (want == "") != errors.As(err, &file) {
			t.Errorf("%q: guessed %q, %v", data, f, err)
		}
	}
}
