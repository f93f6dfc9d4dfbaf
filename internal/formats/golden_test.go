package formats_test

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tiney/internal/formats"
	"tiney/internal/link"
)

var update = flag.Bool("update", false, "write what is read into testdata")

type sample struct {
	file   string
	format formats.Format
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
		format := formats.Format(name[:strings.IndexAny(name, "-.")])
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
	seen := map[formats.Format]bool{}
	for _, sample := range samples(t) {
		format, file := sample.format, sample.file
		seen[format] = true
		t.Run(filepath.Base(file), func(t *testing.T) {
			got, err := described(strings.NewReader(sample.data), format)
			if err == nil && *update {
				err = os.WriteFile(file+".golden", []byte(got), 0o644)
			}
			if err != nil {
				t.Fatal(err)
			}
			golden, err := os.ReadFile(file + ".golden")
			if err != nil {
				t.Fatal(err)
			}
			if got != string(golden) {
				t.Errorf("read\n%s, want\n%s", got, golden)
			}
		})
	}
	for _, format := range formats.Formats {
		if !seen[format] {
			t.Errorf("there is no sample of %s", format)
		}
	}
}

// described describes the records of a file, up to its error.
func described(r io.Reader, f formats.Format) (string, error) {
	var all strings.Builder
	for rec, err := range formats.Read(r, f) {
		if err != nil {
			return all.String(), err
		}
		all.WriteString(describe(rec))
	}
	return all.String(), nil
}

// describe returns a record without its zero values.
func describe(rec formats.Record) string {
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
	moment("starts", l.StartsAt)
	if l.Rules != nil {
		fmt.Fprintf(&b, " rules=%s", link.EncodeTargetRules(l.Rules))
	}
	text("gone", string(l.GoneURL))
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
	if rec.Left != 0 {
		fmt.Fprintf(&b, " left=%q", rec.Left.Words())
	}
	return b.String() + "\n"
}

// The format of each sample is guessed from its content.
func TestGuess(t *testing.T) {
	for _, sample := range samples(t) {
		f, rest, err := formats.Guess(strings.NewReader(sample.data))
		if err != nil || f != sample.format {
			t.Errorf("%s: guessed %q, %v", sample.file, f, err)
			continue
		}
		n, m := 0, len(read(t, f, sample.data))
		for range formats.Read(rest, f) {
			n++
		}
		if n != m {
			t.Errorf("%s: %d of %d records are left to read", sample.file, n, m)
		}
	}
	for data, want := range map[string]formats.Format{
		"":                                   formats.NDJSON,
		" \n":                                formats.NDJSON,
		"sep=;\nShort Code;Long URL\n":       formats.Shlink,
		`[{"target":"https://e.example/"}]`:  formats.Kutt,
		`[{"id":"bit.ly/a","long_url":"x"}]`: formats.Bitly,
		`{"links":[]}`:                       formats.Bitly,
		`{"x":{"longUrl":1},"Short":"a","Long":"b"}`:          formats.Golink,
		`[{"slug":"a","url":"x"}]`:                            formats.Sink,
		`{"links":[{"id":1,"url":"x","slug":"a"}]}`:           formats.Sink,
		`{"v":[{"slug":1}],"links":[{"slug":"a"}]}`:           formats.Sink,
		`{"links":[{"id":"b/a","long_url":"x"}]}`:             formats.Bitly,
		`{"links":[1,{"slug":"a"}]}`:                          formats.Bitly,
		`{"links":[{"target":"x"}]}`:                          formats.Bitly,
		`{"total":1,"data":[{"x":1}]}`:                        formats.Kutt,
		`{"data":[{"slug":"a"`:                                formats.Kutt,
		"Short link,Destination URL,Clicks,Created at,Tags\n": formats.Dub,
		"Short link,Destination URL\n":                        formats.Dub,
		"Link,Destination URL,Title,Tags,Clicks\n":            formats.Bitly,
		"Bitlink,Long URL,Title,Tags,Created,Engagements\n":   formats.Bitly,
		"short_url,long_url,clicks,is_disabled,created_at\n":  formats.Polr,
		"shortUrl,longUrl\n":                                  formats.CSV,
		"alias,longUrl,clicks\n":                              formats.CSV,
		"shortCode,longUrl\n":                                 formats.Shlink,
		"keyword,url,title\n":                                 formats.YOURLS,
		"RowKey,Url,Title,Clicks\n":                           formats.AzURLShortener,
		`[[{"slug":"a"}]]`:                                    "",
		"link":                                                "",
		`{"target":"x"}`:                                      "",
		`{"longUrl`:                                           "",
		`[`:                                                   "",
		"<html>":                                              "",
		"PK\x03\x04":                                          "",
	} {
		f, _, err := formats.Guess(strings.NewReader(data))
		var file formats.FileError
		if f != want || (want == "") != errors.As(err, &file) {
			t.Errorf("%q: guessed %q, %v", data, f, err)
		}
	}
}
