package formats_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"tiney/internal/formats"
	"tiney/internal/link"
)

func TestNoSuchFormat(t *testing.T) {
	for _, name := range []string{"", "CSV", "json", "csv "} {
		for _, err := range formats.Read(strings.NewReader("{}"), formats.Format(name)) {
			if !errors.Is(err, formats.ErrFormat) {
				t.Errorf("reading %q: %v", name, err)
			}
		}
	}
}

// utf16Text returns a text in UTF-16, without a byte order mark.
func utf16Text(text string, order binary.AppendByteOrder) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, unit)
	}
	return string(b)
}

// A file that is not in the format has one error, which says so.
func TestWrongFiles(t *testing.T) {
	const rows = "alias,longUrl\na,https://example.com/ü\n"
	for _, test := range []struct{ name, file, says string }{
		{"web page", "\n <!DOCTYPE html>\n<title>Sign in</title>", "web page"},
		{"web page after a byte order mark", "\ufeff<html>", "web page"},
		{"ZIP archive", "PK\x03\x04\x14\x00\x06\x00", "ZIP"},
		{"old workbook", "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "workbook"},
		{"gzip", "\x1f\x8b\x08\x00\x00\x00\x00\x00", "gzip"},
		{"PDF", "%PDF-1.7\n", "PDF"},
		{"MySQL's dump", "-- MySQL dump 10.13  Distrib 8.0.36, for Linux (x86_64)\n--\n", "SQL"},
		{"MariaDB's dump", "/*M!999999\\- enable the sandbox mode */ \n-- MariaDB dump 10.19\n",
			"SQL"},
		{"phpMyAdmin's dump",
			"-- phpMyAdmin SQL Dump\n-- version 5.2.1\n\nSET SQL_MODE = \"NO\";\n", "SQL"},
		{"PostgreSQL's dump", "--\n-- PostgreSQL database dump\n--\n\nSET statement_timeout = 0;\n",
			"SQL"},
		{"PostgreSQL's dump, no comments", "SET statement_timeout = 0;\nSET lock_timeout = 0;\n",
			"SQL"},
		{"a table of PostgreSQL's",
			"COPY public.short_urls (id, long_url) FROM stdin;\n1\thttps://a.example\n", "SQL"},
		{"SQLite's dump", "\ufeffPRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n", "SQL"},
		{"SQLite's dump, in part", "BEGIN TRANSACTION;\r\nCREATE TABLE links (id INTEGER);\r\n",
			"SQL"},
		{"a table's definition", "\n\nCREATE TABLE `yourls_url` (\n  `keyword` varchar(200)\n);\n",
			"SQL"},
		{"rows", "insert into yourls_url (keyword, url) values ('a', 'https://a.example');", "SQL"},
		{"UTF-16 without a mark, little-endian", utf16Text(rows, binary.LittleEndian), "UTF-8"},
		{"UTF-16 without a mark, big-endian", utf16Text(rows, binary.BigEndian), "UTF-8"},
		{"UTF-32, little-endian", "\xff\xfe\x00\x00a\x00\x00\x00", "UTF-8"},
		{"UTF-32, big-endian", "\x00\x00\xfe\xff\x00\x00\x00a", "UTF-8"},
	} {
		for _, f := range formats.Formats {
			wantFileError(t, test.name, f, test.file, test.says)
		}
	}
	for _, test := range []struct {
		name   string
		format formats.Format
		file   string
		says   string
	}{
		{"empty", formats.CSV, "", "empty"},
		{"blank", formats.Dub, "\r\n\r\n \n", "empty"},
		{"only a byte order mark", formats.CSV, "\ufeff", "empty"},
		{"empty", formats.NDJSON, "", "no link"},
		{"blank", formats.Golink, "\ufeff\r\n \n", "no link"},
		{"names only", formats.CSV, "alias,longUrl,title\n\n", "no link"},
		{"names without an end", formats.CSV, "alias,longUrl", "no link"},
		{"an empty list", formats.Bitly, `{"links":[]}`, "no link"},
		{"empty lists", formats.Kutt, `{"data":[]}{"data":[]}`, "no link"},
		{"an empty list alone", formats.Sink, `[]`, "no link"},
		{"empty", formats.Kutt, "", "no JSON"},
		{"JSON", formats.CSV, `{"alias":"a","longUrl":"https://example.com/"}`,
			"Choose another format"},
		{"CSV", formats.NDJSON, "alias,longUrl\na,https://example.com/\n",
			"Choose another format"},
		{"list", formats.NDJSON, `[{"alias":"a"}]`, "Choose another format"},
		{"object over several lines", formats.NDJSON, "\n{\n  \"alias\": \"a\"\n}\n",
			"go over several"},
		{"CSV", formats.Kutt, "address,target\n", "Choose another format"},
		{"another document", formats.Kutt,
			`{"items":[{"address":"a","target":"https://example.com/"}]}`, `the member "data"`},
		{"no target", formats.CSV, "alias,long URI,title\na,https://example.com/,\n", "longurl"},
		{"no alias", formats.Dub, "Destination URL,Clicks\nhttps://example.com/,1\n",
			"shortlink, link"},
		{"no names", formats.Shlink, "a,https://example.com/\n", "must name the columns"},
		{"two of one name", formats.CSV,
			"alias,longUrl,Long URL\na,https://example.com/,https://example.com/\n", "twice"},
		{"damaged names", formats.CSV, "alias,\"longUrl\nurl,x\n",
			"Line 1 must name the columns. The quote that begins in line 1 never ends"},
		{"another format", formats.Golink, "Short,Long\ndocs,https://example.com/\n",
			"Choose another format"},
		{"names too long", formats.CSV, strings.Repeat("x", 2<<20) + "\na,https://example.com\n",
			"line 1 is longer than 1 MiB"},
	} {
		wantFileError(t, test.name, test.format, test.file, test.says)
	}
}

func wantFileError(t *testing.T, name string, f formats.Format, file, says string) {
	t.Helper()
	var fails []error
	for rec, err := range formats.Read(strings.NewReader(file), f) {
		if err == nil {
			t.Errorf("%s as %s: %+v", name, f, rec)
		}
		fails = append(fails, err)
	}
	var wrong formats.FileError
	if len(fails) != 1 || !errors.As(fails[0], &wrong) || !strings.Contains(wrong.Error(), says) {
		t.Errorf("%s as %s: %q, want one FileError that says %q", name, f, fails, says)
	}
}

// A file may be damaged anywhere. Each damaged line has one error, and the other lines are read.
func TestDamage(t *testing.T) {
	const names = "alias,longUrl,title\n"
	const good = "https://example.com/"
	long := strings.Repeat("x", 3<<20)
	for _, test := range []struct {
		name   string
		format formats.Format
		file   string
		want   string // the lines that are read, and what the errors of the other lines say
	}{
		{"rows that are no links", formats.AzURLShortener, "RowKey,Url\nKEY,\n", ""},
		{"the names again, and no more", formats.CSV, names + "\ufeff" + names, ""},
		{"a list alone", formats.Kutt, `[{"address":"a","target":"` + good + `"}]`, "1 a|"},
		{"byte order mark", formats.CSV, "\ufeff" + names + "a," + good + ",\n", "2 a|"},
		{"byte order mark", formats.NDJSON, "\ufeff" + `{"alias":"a","longUrl":"` + good + `"}`,
			"1 a|"},
		{"byte order mark", formats.Kutt, "\ufeff" + `[{"address":"a","target":"` + good + `"}]`,
			"1 a|"},
		{"CR LF", formats.CSV, "alias,longUrl\r\na," + good + "\r\n\r\n\"b\",\"" + good + "\"\r\n",
			"2 a|4 b|"},
		{"CR", formats.CSV, "alias,longUrl\ra," + good + "\r\r\"b\",\"" + good + "\"\r",
			"2 a|4 b|"},
		{"CR in quotes", formats.CSV, names + "a," + good + ",\"x\ry\r\nz\"\nb," + good + ",",
			"2 a|5 b|"},
		{"CR LF", formats.NDJSON,
			"{\"longUrl\":\"" + good + "\"}\r\n\r\n{\"alias\":\"b\",\"longUrl\":\"" + good +
				"\"}\r\n", "1 |3 b|"},
		{"CR", formats.Golink,
			"{\"Short\":\"a\",\"Long\":\"" + good + "\"}\r{\"Short\":\"b\",\"Long\":\"" + good +
				"\"}\r", "1 a|2 b|"},
		{"names in any case, with spaces and blank lines before them", formats.CSV,
			"\n\n ALIAS ;Long Url;T i t l e\na;" + good + ";x,y\n", "4 a|"},
		{"spaces around names", formats.CSV, "alias, longUrl\na," + good + "\n", "2 a|"},
		{"a separator for spreadsheets", formats.CSV,
			"sep=,\n" + names + "a," + good + "\nb," + good + ",\n", "3 a|4 b|"},
		{"another one, capitals", formats.Dub,
			"\ufeffSEP=;\r\nLink;URL\r\nd/a;" + good + "?a,b\r\n", "3 a|"},
		{"one that a sheet has filled up, and again", formats.CSV,
			"sep=,,\n" + names + "a," + good + ",\nsep=,\n" + names + "b," + good + ",\n",
			"3 a|6 b|"},
		{"names that begin like SQL", formats.CSV, "Begin;Alias;Long URL\n;a;" + good + "\n",
			"2 a|"},
		{"names that begin like SQL, others", formats.CSV,
			"Set name;Alias;Long URL\n;a;" + good + "\n", "2 a|"},
		{"tabs", formats.CSV, "alias\tlongUrl\na\t" + good + "a,b;c\n", "2 a|"},
		{"no empty cells at the end", formats.CSV,
			names + "a," + good + "\r\nb," + good + ",\nc\nd," + good + "\n",
			"2 a|3 b|4 ! no longurl|5 d|"},
		{"no empty cells at the end, a last line that may be cut", formats.CSV,
			names + "a," + good + "\nb," + good, "2 a|3 ! 2 columns instead of 3: check whether " +
				"the file was cut, or end it with a line break|"},
		{"no empty cells at the end, a last line that may be cut", formats.YOURLS,
			"keyword;url;title\r\na;" + good + "\r\nb;" + good + ";\r\nc", "2 a|3 b|4 ! cut|"},
		{"a last line that has all cells", formats.CSV, names + "a," + good + "\nb," + good + ",",
			"2 a|3 b|"},
		{"no empty cells at the end, and a line break", formats.CSV,
			names + "\"a\nb\"," + good + "\nc," + good + "\n", "2 ! the quote that ends in line 3|4 c|"},
		{"too many columns", formats.CSV, names + "a," + good + ",x, y\nb," + good + ",,\n",
			"2 ! 4 columns instead of 3: put text|3 ! 4 columns|"},
		{"a line that was cut", formats.CSV, names + "a," + good + ",\nb,https://exa",
			"2 a|3 ! 2 columns|"},
		{"a mark where files were joined", formats.CSV, "\ufeff" + names + "a," + good + ",\n" +
			"\ufeff" + names + "b," + good + ",\ufeff\n\ufeff\ufeffc," + good + ",x\ufeff\n",
			"2 a|4 b|5 c|"},
		{"a mark before a quote", formats.Dub, "\ufeff\"Short link\",\"URL\"\r\n\"d/a\",\"" + good +
			"\"\r\n\ufeff\"Short link\",\"URL\"\r\n\ufeff\"d/b\",\"" + good + "\"\r\n", "2 a|4 b|"},
		{"marks where files were joined", formats.NDJSON, "\ufeff{\"alias\":\"a\",\"longUrl\":\"" +
			good + "\"}\r\n\ufeff\ufeff{\"alias\":\"b\",\"longUrl\":\"" + good + "\"}\n\ufeff\n",
			"1 a|2 b|"},
		{"marks where files were joined", formats.Kutt, "\ufeff{\"data\":[{\"address\":\"a\"," +
			"\"target\":\"" + good + "\"}]}\ufeff{\"data\":[{\"address\":\"b\\\"\\\\\"," +
			"\"target\":\"" + good + "\"}]}\r\n\ufeff [\ufeff{\"address\":\"c\",\"target\":\"" + good +
			"\"}]\ufeff", "1 a|2 b\"\\|3 c|"},
		{"a character without its mark", formats.CSV, names + "\xef\xbb," + good + ",\n", "2 ! UTF-8|"},
		{"a quote that never ends", formats.CSV,
			names + "a," + good + ",\"x\nb," + good + ",\nc," + good + ",\n",
			"2 ! The quote that begins in line 2 never ends, or text follows its end: close it, " +
				"or double it if it is part of the text. Lines 2 to 4 were not read.|"},
		{"a quote that never ends, at the end", formats.CSV, names + "a," + good + ",\"",
			"2 ! never ends|"},
		{"a quote that never ends, in a later line", formats.CSV,
			"alias,title,longUrl\na,\"x\ny\",\"" + good + "\nb,," + good + "\n",
			"2 ! begins in line 3 never ends|"},
		{"a quote that ends in another line's", formats.CSV,
			names + "a," + good + ",\"x\nb," + good + ",\nc," + good + ",\"y\"\nd," + good + ",\n",
			"2 ! Lines 2 to 4 were not read.|5 d|"},
		{"a quote that takes rows", formats.CSV,
			names + "a,\"" + good + "\nb," + good + "\"\nc," + good + ",\n",
			"2 ! check the quote that ends in line 3|4 c|"},
		{"quotes within text", formats.CSV,
			names + "a," + good + ",5\" or \"6\n" +
				"b," + good + ",\"5\" or 6\"\n" +
				"c," + good + ",\"x\" y\n" +
				"d," + good + ",5\" or \"6",
			"2 a|3 b|4 ! text follows its end: close it|5 d|"},
		{"quotes within text, behind lines in quotes", formats.CSV,
			"title,longUrl,alias,owner\n\"x\ny\"," + good + ",a,5\" z\n," + good + ",b,\n",
			"2 a|4 b|"},
		{"invalid UTF-8", formats.CSV, names + "a," + good + ",\xff\nb," + good + ",\n",
			"2 ! UTF-8|3 b|"},
		{"invalid UTF-8 in a column that is not read", formats.CSV,
			"alias,longUrl,note\na," + good + ",\xff\n", "2 ! UTF-8|"},
		{"invalid UTF-8", formats.NDJSON,
			"{\"longUrl\":\"\xff\"}\n{\"longUrl\":\"" + good + "\"}\n", "1 ! UTF-8|2 |"},
		{"invalid UTF-8", formats.Kutt,
			"[{\"address\":\"a\",\"target\":\"\xff\"},{\"address\":\"b\",\"target\":\"" + good +
				"\"}]", "1 ! UTF-8|2 b|"},
		{"NUL", formats.CSV, names + "\x00\x00\x00\x00\x00\nb," + good + ",\n",
			"2 ! no longurl|3 b|"},
		{"NUL", formats.NDJSON,
			"{\"longUrl\":\"" + good +
				"\"}\n\x00\x00\x00\n{\"longUrl\":\"\x00\"}\n{\"longUrl\":\"" + good + "\"}\n",
			"1 |2 ! no JSON object|3 ! damaged at byte 13|4 |"},
		{"a long line", formats.NDJSON,
			"{\"title\":\"" + long + "\"}\r{\"longUrl\":\"" + good + "\"}\n" + long,
			"1 ! longer than 1 MiB|2 |3 ! longer than 1 MiB|"},
		{"members of another type", formats.NDJSON,
			"{\"disabled\":1}\n{\"tags\":\"a\"}\n{\"tags\":[1]}\n{\"title\":{}}",
			`1 ! "disabled" must be true or false|2 ! "tags" must be a list|` +
				`3 ! "tags/0" must be a string|4 ! "title" must be a string|`},
		{"members of another type", formats.Golink, `{"Short":1}`,
			`1 ! "Short" must be a string|`},
		{"members of another type", formats.Bitly, `{"links":[{"tags":"a"}]}`,
			`1 ! "tags" must be a list|`},
		{"a short URL with more than a path", formats.Bitly,
			`{"links":[{"id":"http://bit.ly/a?b=/c#/d","long_url":"` + good + `"}]}`, "1 a|"},
		{"a value that is long", formats.CSV,
			"longUrl,disabled\n" + good + "," + strings.Repeat("ü", 100) + "\n",
			`2 ! "disabled" is "` + strings.Repeat("ü", 80) + `"…; it must be|`},
		{"tags with text behind a quote", formats.CSV,
			"longUrl,tags\n" + good + ",\"\"\"a\"\"b\"\n", "2 ! The tags|"},
		{"names that nothing can forward", formats.CSV,
			"alias,longUrl,forward\na," + good + ",\"query,host\"\nb," + good + ",Paths\nc," + good +
				",\" path, query \"\nd," + good + ",path path\n",
			`2 ! "query" and "path", not "query,host"|3 ! not "Paths"|4 c|5 d|`},
		{"names that nothing can forward", formats.NDJSON,
			`{"longUrl":"` + good + `","forward":["query",""]}` + "\n" +
				`{"longUrl":"` + good + `","forward":"query"}` + "\n" +
				`{"longUrl":"` + good + `","forward":null}` + "\n",
			`1 ! "query" and "path", not "query,"|2 ! "forward" must be a list|3 |`},
		{"domains of another type", formats.NDJSON,
			`{"longUrl":"` + good + `","domain":1}` + "\n", `1 ! "domain" must be a string|`},
		{"more than an object in a line", formats.NDJSON, `{"longUrl":"` + good + `"}{}`,
			"1 ! damaged at byte 35|"},
		{"half of a character", formats.NDJSON, `{"longUrl":"` + good + `","title":"\ud800"}`,
			"1 ! damaged|"},
	} {
		t.Run(string(test.format)+"/"+test.name, func(t *testing.T) {
			records := read(t, test.format, test.file)
			wants := strings.SplitAfter(test.want, "|")
			for i, rec := range records {
				want := strings.TrimSuffix(wants[min(i, len(wants)-1)], "|")
				number, says, damaged := strings.Cut(want, " ! ")
				ok := rec.Err == nil && fmt.Sprintf("%d %s", rec.Line, rec.Link.Name) == want
				if damaged {
					ok = rec.Err != nil && strings.Contains(rec.Err.Error(), says) &&
						fmt.Sprint(rec.Line) == number
				}
				if !ok {
					t.Fatalf("record %d: %.500s, want %q", i+1, describe(rec), want)
				}
			}
			if len(records) != len(wants)-1 {
				t.Errorf("%d records, want %d", len(records), len(wants)-1)
			}
			for range formats.Read(strings.NewReader(test.file), test.format) {
				break // a caller may stop at any record
			}
		})
	}
}

// A file in UTF-16 with a byte order mark is read as one in UTF-8, and what is no text in it costs
// the record.
func TestUTF16(t *testing.T) {
	for _, sample := range samples(t) {
		text := strings.TrimPrefix(sample.data, "\ufeff")
		if !utf8.ValidString(text) {
			continue // UTF-16 cannot have that
		}
		want, err := described(strings.NewReader(text), sample.format)
		if err != nil {
			t.Error(err)
		}
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			data := utf16Text("\ufeff"+text, order)
			f, rest, err := formats.Guess(iotest.OneByteReader(strings.NewReader(data)))
			if f != sample.format || err != nil {
				t.Errorf("%s, %v: guessed %q, %v", sample.file, order, f, err)
			}
			for _, r := range []io.Reader{rest, strings.NewReader(data)} {
				if got, err := described(r, sample.format); err != nil || got != want {
					t.Errorf("%s, %v: %v, read\n%s, want\n%s", sample.file, order, err, got, want)
				}
			}
		}
	}
	const good = ",https://example.com/,"
	for title, want := range map[string]string{
		"=\xd8=\x00,":  "", // half a pair, and another character
		"\x00\xdc":     "", // the other half alone
		"=\xd8=\xde":   "😽",
		"\xfd\xff":     "\ufffd", // somebody else has put it there
		"=\xd8=\xde\n": "",       // half a unit: the rest of the file is no text
		"=\xd8":        "",
	} {
		file := "\xff\xfe" + utf16Text("alias,longUrl,title\na"+good, binary.LittleEndian) + title
		var got []string
		for rec, err := range formats.Read(strings.NewReader(file), formats.CSV) {
			if err != nil {
				t.Errorf("%q: %v", title, err)
			}
			if rec.Err != nil {
				got = append(got, rec.Err.Error())
			} else {
				got = append(got, rec.Link.Title)
			}
		}
		if len(got) != 1 || want != "" && got[0] != want ||
			want == "" && !strings.HasPrefix(got[0], "The text is not UTF-8") {
			t.Errorf("%q: got %q", title, got)
		}
	}
}

// Whole numbers are read as programs and spreadsheets write them. What is none costs the number.
func TestWholeNumbers(t *testing.T) {
	for want, texts := range map[int64][]string{
		0: {"", "0", "-0", "0.0", "NaN", "nan", "NULL", `\N`, "-1", "-1,000", "1.5", "42.5", "1,5",
			"1.234",
			"0.333", "1,2345", "12,34,567", "1,23", "1,234.5", "1,234,56", "0x10", "1e-3", "1e300",
			"Inf", "9007199254740993", "9,007,199,254,740,993", "18446744073709551617", "n/a", "many",
			"12 clicks", "٤٢", "--1", "1 2", strings.Repeat("1", 200),
			strings.Repeat("1", 100<<10), strings.Repeat("0", 100<<10)},
		1:   {"1.000", "1.", "+1", " 1 "},
		42:  {"42", "42.0", "42.00", "42,0", "42,00", "42.", "4.2e1", "4.2E+01", "0042", "42.000"},
		100: {"100", "1e2", "100,00"},
		1000: {"1000", "1,000", "1 000", "1\u00a0000", "1\u202f000", "1_000", "1'000", "1’000",
			"1,000.0", "1e3"},
		1234: {"1,234", "1 234", "1,234.00", "1'234.0", "1 234,0"},
		1234567: {"1,234,567", "1.234.567", "1.234.567,0", "1 234 567", "1234567.0", "1.234567e6",
			"1.234567E+06"},
		1 << 53: {"9007199254740992", "9007199254740992.0", "9,007,199,254,740,992"},
	} {
		for _, text := range texts {
			row, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			for format, file := range map[formats.Format]string{
				formats.CSV: "longUrl,clicks,bots\nhttps://example.com/,\"" + text + "\",\"" +
					text + "\"\n",
				formats.Dub: "link,url,clicks\nd/a,https://example.com/,\"" + text + "\"\n",
				formats.NDJSON: `{"longUrl":"https://example.com/","clicks":` + string(row) +
					`,"bots":` + string(row) + `}`,
				formats.Kutt: `[{"address":"a","target":"https://example.com/","visit_count":` +
					string(row) + `}]`,
			} {
				got := read(t, format, file)
				bots := got[0].Total.Bots
				if len(got) != 1 || got[0].Err != nil || got[0].Total.Clicks != want ||
					format.Own() && bots != want || !format.Own() && bots != 0 {
					t.Errorf("%s, %.40q: got %+v, want %d", format, text, got, want)
				}
			}
		}
	}
	for value, want := range map[string]int64{"42": 42, "42.0": 42, "4.2e1": 42, "42.5": 0, "-1": 0,
		"null": 0, "true": 0, "{}": 0, `[42]`: 0, "1.000": 1, "9007199254740993": 0,
		"1" + strings.Repeat("0", 1000): 0} {
		got := read(t, formats.NDJSON, `{"longUrl":"https://example.com/","clicks":`+value+`}`)
		if got[0].Err != nil || got[0].Total.Clicks != want {
			t.Errorf("%s: got %+v, want %d", value, got, want)
		}
	}
	// A status code is a whole number too, and what cannot be read decides something.
	for code, want := range map[string]int{"301": 301, "302.0": 302, `"307"`: 307, "NaN": 0, "": 0,
		"x":     -1,
		"302.5": -1, "-301": -1, "4294967598": -1} { // it is 302 in 32 bits
		value := code
		if code == "NaN" || code == "" || code == "x" {
			value = `"` + code + `"`
		}
		for format, file := range map[formats.Format]string{
			formats.CSV:    "longUrl,statusCode\nhttps://example.com/," + strings.Trim(code, `"`) + "\n",
			formats.NDJSON: `{"longUrl":"https://example.com/","statusCode":` + value + `}`,
		} {
			got := read(t, format, file)
			if (got[0].Err != nil) != (want < 0) || got[0].Link.StatusCode != max(0, want) {
				t.Errorf("%s, %s: got %+v, want %d", format, code, got, want)
			}
		}
	}
}

// Times are read in every form that means one time. Where there is none, a date is lost, and an
// end is an error.
func TestTimes(t *testing.T) {
	for want, texts := range map[string][]string{
		"": {"", "NULL", "null", `\N`, "NaN", "NaT", "None", "undefined", "0000-00-00",
			"0000-00-00 00:00:00",
			"0000-00-00T00:00:00Z", "0001-01-01T00:00:00Z", "0001-01-01 00:00:00"},
		"2023-02-10T14:41:33Z": {"2023-02-10T14:41:33Z", "2023-02-10 14:41:33", "2023-02-10T14:41:33",
			"2023-02-10 15:41:33+01", "2023-02-10 15:41:33+0100", "2023-02-10 15:41:33+01:00",
			"2023-02-10T15:41:33+01", "2023-02-10T15:41:33+0100", "2023-02-10 15:41:33 +0100",
			"2023-02-10 15:41:33 +01:00", "2023-02-10 09:41:33-05", "2023-02-10 09:41:33 -0500",
			"2023-02-10 14:41:33 UTC", "2023-02-10 14:41:33 GMT", "2023-02-10 14:41:33Z",
			"2023-02-10 14:41:33 Z", "2023-02-10 14:41:33.123456", "2023-02-10 15:41:33.5+01",
			"2023-02-10 14:41:33.123 UTC", "2023-02-10 14:41:33.123456789 +0000 UTC",
			"Fri, 10 Feb 2023 14:41:33 GMT", "Fri, 10 Feb 2023 14:41:33 UTC",
			"Fri, 10 Feb 2023 15:41:33 +0100", "10 Feb 2023 14:41:33 GMT", "10 Feb 2023 14:41:33",
			"Fri Feb 10 2023 15:41:33 GMT+0100 (Central European Standard Time)",
			"2023/02/10 14:41:33", "2023-2-10 14:41:33", "2023-02-10 2:41:33 PM",
			"2023-02-10 02:41:33 PM", " 2023-02-10 14:41:33 ",
			"1676040093", "1676040093.0", "1676040093.75", "1676040093123", "1676040093123.0",
			"1676040093123456", "1676040093123456789"},
		"2023-02-10T14:41:00Z": {"2023-02-10 14:41", "2023-02-10T14:41", "2023-02-10T14:41Z",
			"2023-02-10 15:41+01", "2023-02-10 15:41 +0100", "2023/2/10 14:41", "2023-02-10 14:41 UTC"},
		"2023-02-10T00:00:00Z": {"2023-02-10", "2023/02/10", "2023-2-10", "2023/2/10"},
		"1973-03-03T09:46:40Z": {"100000000"},
		"3000-01-01T00:00:00Z": {"32503680000", "3000-01-01"},
		"none": {"01/02/2024", "1/2/2024", "31/12/2024", "2024-13-01", "2024-02-30", "31.12.2024",
			"01-02-2024", "20240131", "20240131120000", "202401311200", "2024", "0", "1", "45322", "45322.5",
			"1.7e9", "1.7E+09", "1676040093.1.2", "yesterday", "tomorrow", "infinity", "true", "12:00",
			"Fri, 10 Feb 2023 14:41:33 EST", "2023-02-10 14:41:33 CET", "2023-02-10 25:00:00",
			"2023-02-10 13:41:33 PM", "2023-02-10 14:41:33+99", "10000-01-01", "Sat", "-1676040093",
			strings.Repeat("1", 100<<10), strings.Repeat("2023-02-10 ", 20)},
	} {
		for _, text := range texts {
			row, err := json.Marshal(text)
			if err != nil {
				t.Fatal(err)
			}
			values := []string{string(row)}
			if text != "" && strings.Trim(text, "0123456789.") == "" && len(text) < 20 &&
				text[0] != '0' && strings.Count(text, ".") < 2 || text == "true" || text == "null" {
				values = append(values, text)
			}
			files := map[string]formats.Format{
				"longUrl,createdAtUtc,expiresAtUtc,updatedAtUtc,lastClickAtUtc\nhttps://example.com/," +
					strings.Repeat(",\""+text+"\"", 4)[1:] + "\n": formats.CSV,
				"link,url,createdAt,expiresAt\nd/a,https://example.com/,\"" + text + "\",\"" + text +
					"\"\n": formats.Dub,
			}
			for _, value := range values {
				files[`{"longUrl":"https://example.com/","createdAtUtc":`+value+`,"expiresAtUtc":`+
					value+`,"updatedAtUtc":`+value+`,"lastClickAtUtc":`+value+`}`] = formats.NDJSON
				files[`[{"slug":"a","url":"https://example.com/","createdAt":`+value+
					`,"expiration":`+value+`}]`] = formats.Sink
			}
			for file, format := range files {
				got := read(t, format, file)
				if want == "none" {
					if len(got) != 1 || got[0].Err == nil ||
						!strings.Contains(got[0].Err.Error(), "a time is written as") {
						t.Errorf("%s, an end of %.40q: %.500v", format, text, got)
					}
					file = strings.NewReplacer("expiresAt", "x", "expiration", "x").Replace(file)
					got = read(t, format, file)
				}
				l := got[0].Link
				stamps := []time.Time{l.CreatedAt}
				if want != "none" {
					stamps = append(stamps, l.ExpiresAt)
				}
				if format.Own() {
					stamps = append(stamps, l.UpdatedAt, got[0].Total.Last)
				}
				for _, at := range stamps {
					is := ""
					if !at.IsZero() {
						is = at.Format(time.RFC3339)
					}
					if got[0].Err != nil || is != strings.TrimPrefix(want, "none") {
						t.Errorf("%s, %.40q: got %q, %v, want %q", format, text, is, got[0].Err, want)
					}
				}
			}
		}
	}
	// Spreadsheets begin in 1900. No link of theirs was made then.
	got := read(t, formats.Dub, "link,url,createdAt\nd/a,https://example.com/,1900-01-00 00:00\n"+
		"d/b,https://example.com/,1899-12-30\n")
	if len(got) != 2 || got[0].Err != nil || got[1].Err != nil || !got[1].Link.CreatedAt.IsZero() {
		t.Errorf("got %+v", got)
	}
}

// Polr and people write an alias where others have the short URL.
func TestAliasAsShortURL(t *testing.T) {
	for short, want := range map[string]string{"docs": "docs", "a-b_C": "a-b_C",
		"https://s.example/docs": "docs", "s.example/docs": "docs", "/docs/": "docs",
		"s.example/a/b?c#d": "a/b",
		"s.example":         "",
		"https://s.example": "", "localhost:7071": "", "": ""} {
		for format, file := range map[formats.Format]string{
			formats.Polr:   "short_url,long_url,secret_key\n" + short + ",https://example.com/,\n",
			formats.Shlink: "shortUrl,longUrl\n" + short + ",https://example.com/\n",
			formats.Bitly:  `[{"id":"` + short + `","long_url":"https://example.com/"}]`,
		} {
			got := read(t, format, file)
			if len(got) != 1 || (got[0].Err != nil) != (want == "") ||
				string(got[0].Link.Name) != want {
				t.Errorf("%s, %q: got %+v, want %q", format, short, got, want)
			}
		}
	}
}

// A file that cannot be read to its end is read up to the failure.
func TestFileIsReadInPart(t *testing.T) {
	const a = `{"address":"a","target":"https://example.com/"}`
	const rows = "alias,longUrl\na,https://example.com/\n\na,https://example.com/\n\n"
	long := strings.Repeat("x", 2<<20)
	for _, test := range []struct {
		name   string
		format formats.Format
		file   string
		says   string
	}{
		{"no comma", formats.Kutt, `{"data":[` + a + `,` + a + ` ` + a + `]}`, "after entry 3"},
		{"cut", formats.Kutt, `{"data":[` + a + `,` + a + `,{"address":"b","tar`, "after entry 3"},
		{"not closed", formats.Kutt, `{"data":[` + a + `,` + a, "after entry 3"},
		{"a long entry", formats.Kutt,
			`{"data":[` + a + `,` + a + `,{"address":"` + long + `"},` + a + `]}`,
			"Entry 3 of the list is longer than 1 MiB"},
		{"something else behind", formats.Kutt, `{"data":[` + a + `,` + a + `]}<html>`,
			"after entry 3"},
		{"an error in place of a page", formats.Kutt, `{"data":[` + a + `]}{"error":"Too many ` +
			`requests"}{"data":[` + a + `]}`, "in place of a page"},
		{"a long line", formats.CSV, rows + long + "\n" + rows, "line 6 is longer"},
		{"a long line, then the end", formats.CSV, rows + long, "line 6 is longer"},
		{"a long line in quotes", formats.CSV, rows + `"` + long + `",x` + "\n",
			"line 6 is longer"},
		{"many columns", formats.CSV, rows + strings.Repeat(",", 1<<17) + "\n", "65,536 columns"},
		{"a quote that never ends, before more than a record can hold", formats.CSV,
			rows + `b,"x` + "\n" + strings.Repeat("b,https://example.com/\n", 50_000),
			"line 6 is longer"},
	} {
		t.Run(string(test.format)+"/"+test.name, func(t *testing.T) {
			n := 0
			var fail error
			for rec, err := range formats.Read(strings.NewReader(test.file), test.format) {
				if err != nil {
					fail = err
				} else if n++; rec.Err != nil {
					t.Errorf("%+v", rec)
				}
			}
			var wrong formats.FileError
			if n != 2 || !errors.As(fail, &wrong) || !strings.Contains(wrong.Error(), test.says) {
				t.Errorf("%d records, then %v", n, fail)
			}
		})
	}
}

// It makes no difference if a file is read byte by byte, or if its end comes together with the last
// bytes. An error of reading is returned, and never taken for the end of the file.
func TestReaders(t *testing.T) {
	broken := errors.New("the connection was closed")
	for _, sample := range samples(t) {
		format := sample.format
		first, rest, _ := strings.Cut(strings.ReplaceAll(sample.data, "\n", "\r\n"), "\r\n")
		// This is more than the start that shows what the file is.
		first += strings.Repeat("\r\n", 40_000)
		data := first + rest
		want, err := described(strings.NewReader(data), format)
		if err != nil {
			t.Error(err)
		}
		for how, r := range map[string]io.Reader{
			"byte by byte":  iotest.OneByteReader(strings.NewReader(data)),
			"with its end":  iotest.DataErrReader(strings.NewReader(data)),
			"half and half": iotest.HalfReader(strings.NewReader(data)),
			"in two parts": io.MultiReader(
				strings.NewReader(data[:1]), strings.NewReader(data[1:])),
		} {
			if got, err := described(r, format); err != nil || got != want {
				t.Errorf("%s, %s: %v, read\n%s, want\n%s", sample.file, how, err, got, want)
			}
		}
		cuts := []int{0, 1}
		for cut := len(first); cut < len(data)-2; cut += 1 + len(rest)/12 {
			cuts = append(cuts, cut)
		}
		for _, cut := range cuts {
			r := io.MultiReader(strings.NewReader(data[:cut]), iotest.ErrReader(broken))
			if got, err := described(r, format); err != broken || !strings.HasPrefix(want, got) {
				t.Errorf("%s, broken after %d bytes: %v, read\n%s, want the start of\n%s",
					sample.file, cut, err, got, want)
			}
		}
		for rec, err := range formats.Read(strings.NewReader(data), format) {
			if rec.Line == 0 || err != nil {
				t.Errorf("%s: %+v, %v", sample.file, rec, err)
			}
			break
		}
	}
}

// endless is a file that has a start and then repeats a text. It is never in memory as a whole.
func endless(start, again string, size int64) io.Reader {
	rest := &repeated{text: strings.Repeat(again, 1+64<<10/len(again))}
	return io.MultiReader(strings.NewReader(start), io.LimitReader(rest, size))
}

type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (n int, err error) {
	for n < len(p) {
		m := copy(p[n:], r.text[r.at:])
		n, r.at = n+m, (r.at+m)%len(r.text)
	}
	return n, nil
}

// Memory does not grow with the file, whatever the file has.
func TestMemory(t *testing.T) {
	const size = 100 << 20 // of files that could be in memory as a whole
	const part = 20 << 20
	row := "a,https://example.com/" + strings.Repeat("x", 1000) + ",\n"
	entry := `{"address":"a","target":"https://example.com/` + strings.Repeat("x", 1000) + `"},`
	for _, test := range []struct {
		name   string
		format formats.Format
		file   io.Reader
		least  int // records
		fails  bool
	}{
		{"a line of 100 MB", formats.CSV, endless("alias,longUrl,title\na,b,", "x", size), 0,
			true},
		{"a line of 100 MB in quotes", formats.CSV,
			endless("alias,longUrl,title\na,b,\"", `x""`, size), 0, true},
		{"a line of 100 MB", formats.NDJSON, endless(`{"title":"`, "x", size), 1, false},
		{"a column's name of 100 MB", formats.CSV, endless("", "x", size), 0, true},
		{"blank lines before the names", formats.CSV, endless("", "\r\n", part), 0, true},
		{"blank lines", formats.CSV, endless("alias,longUrl\n", "\r\n", part), 0, true},
		{"100 MB of columns", formats.CSV, endless("alias,longUrl,title\n", ",", size), 0, true},
		{"100 MB of quotes", formats.CSV, endless("alias,longUrl,title\n", "\"", size), 0, true},
		{"rows", formats.CSV, endless("alias,longUrl,title\n", row, part), 15_000, false},
		{"rows in a quote", formats.CSV, endless("alias,longUrl,title\na,b,\"", row, part), 0,
			true},
		{"an entry of 100 MB", formats.Kutt, endless(`{"data":[{"address":"`, "x", size), 0, true},
		{"another member that is long", formats.Kutt, endless(`{"other":[1`, ",1", part), 0, true},
		{"entries", formats.Kutt, endless(`{"data":[`, entry, part), 15_000, true},
		{"100 MB of brackets", formats.Kutt, endless("", "[", size), 0, true},
		{"100 MB of white space", formats.Kutt, endless("", " ", size), 0, true},
	} {
		t.Run(string(test.format)+"/"+test.name, func(t *testing.T) {
			file := &weighed{r: test.file}
			file.weigh()
			before := file.most
			n := 0
			var fail error
			for _, err := range formats.Read(file, test.format) {
				if fail = err; err == nil {
					n++
				}
			}
			if n < test.least || (fail != nil) != test.fails {
				t.Errorf("%d records, then %v", n, fail)
			}
			if grown := file.most - before; grown > 4<<20 {
				t.Errorf("takes %d KiB", grown>>10)
			}
		})
	}
}

// weighed measures the heap after every 512 KiB that are read of r, and past 4 MiB after every 8
// MiB.
type weighed struct {
	r    io.Reader
	read int
	most uint64 // the largest heap, in bytes
}

func (w *weighed) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	step := 8 << 20
	if w.read < 4<<20 {
		step = 512 << 10
	}
	if (w.read+n)/step > w.read/step {
		w.weigh()
	}
	w.read += n
	return n, err
}

func (w *weighed) weigh() {
	runtime.GC() // frees windows that have grown since, and records that were read
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	w.most = max(w.most, now.HeapAlloc)
}

// TestTime: reading takes time in proportion to the file's size. With any of these files, a reader
// that scans the same bytes again and again takes minutes.
func TestTime(t *testing.T) {
	const size = 4 << 20 // the most of an import over the API
	filled := func(start, again string) string {
		return start + strings.Repeat(again, (size-len(start))/len(again))
	}
	var list strings.Builder
	for i := range 120_000 {
		fmt.Fprintf(&list, `,"/%03s"`, strconv.FormatInt(int64(i), 36))
	}
	custom := `{"id":"b/a","long_url":"https://example.com/","custom_bitlinks":["/a"` +
		list.String() + "]}"
	tags := "https://example.com/," + strings.Repeat(`"`, 1<<20-102) + "\n"
	for _, test := range []struct {
		name    string
		format  formats.Format
		file    string
		records int
		says    string // the error of each record
	}{
		{"CR after a long line", formats.NDJSON, filled("{"+strings.Repeat("x", 600<<10), "\r"), 1,
			"damaged"},
		{"CR after a long line", formats.CSV,
			filled("longUrl,tags\r"+strings.Repeat("x", 600<<10), "\r"), 1,
			""},
		{"damaged lines that end with CR", formats.CSV, filled("longUrl\r", "\"\"x\r"),
			(size - 8) / 4, "text follows its end"},
		{"blank lines", formats.NDJSON, filled("{}", "\n"), 1, "no longUrl"},
		{"blank rows", formats.CSV, filled("longUrl\nx\n", "\n"), 1, ""},
		{"custom links", formats.Bitly, "[" + custom + "," + custom + "," + custom + "]", 3,
			"more than 100 custom short URLs"},
		{"custom links", formats.Bitly,
			"Link,Destination URL,Custom Links\n" +
				filled("b/a,https://example.com/,", "/b ")[:1<<20-100] + "\n", 1,
			"custom short URLs"},
		{"marks", formats.CSV, filled("longUrl\nx\n", "\n\ufeff"), 1, ""},
		{"marks", formats.Kutt, filled(`[1]`, "\ufeff"), 1, "no JSON object"},
		{"a list of one page each", formats.Sink, filled("[1]", "[]\ufeff"), 1, "no JSON object"},
		{"numbers", formats.NDJSON,
			`{"longUrl":"x","clicks":1` + strings.Repeat("0", 1<<20-100) + "}", 1, ""},
		{"quotes", formats.CSV, "longUrl,tags\n" + tags + tags + tags, 3, ""},
	} {
		t.Run(string(test.format)+"/"+test.name, func(t *testing.T) {
			done := make(chan int, 1)
			go func() {
				n := 0
				for rec, err := range formats.Read(strings.NewReader(test.file), test.format) {
					n++
					says := ""
					if rec.Err != nil {
						says = rec.Err.Error()
					}
					if err != nil || (says == "") != (test.says == "") ||
						!strings.Contains(says, test.says) {
						t.Errorf("got %.500s, %v, want %q", describe(rec), err, test.says)
						break
					}
				}
				done <- n
			}()
			select {
			case <-time.After(20 * time.Second):
				t.Fatal("takes longer than 20 s")
			case n := <-done:
				if n != test.records {
					t.Errorf("%d records, want %d", n, test.records)
				}
			}
		})
	}
}

// Texts of other programs are cut to what a link may have. Texts in our own formats are not cut.
func TestWordsAreCut(t *testing.T) {
	const target = "https://example.com/"
	long, cutTitle := strings.Repeat("雪", link.MaxTitle+1), strings.Repeat("雪", link.MaxTitle)
	tags := []string{"news", "a\tb", "", "news", " ", strings.Repeat("é", link.MaxTag+1)}
	for i := range 2 * link.MaxTags {
		tags = append(tags, fmt.Sprint(i))
	}
	asJSON := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	cutTags := slices.Concat([]string{"news", "a b", strings.Repeat("é", link.MaxTag)},
		tags[6:6+link.MaxTags-3])
	for _, test := range []struct {
		name   string
		format formats.Format
		file   string
		title  string
		tags   []string
	}{
		{"a long title", formats.Dub, "link,url,title\nd/a," + target + "," + long + "\n",
			cutTitle, nil},
		{"control characters", formats.YOURLS,
			"keyword,url,title\na," + target + ",\"One\r\ntwo\x1b\"\n", "One two", nil},
		{"nothing else", formats.YOURLS,
			"keyword,url,title\na," + target + ",\"\u0085\x00\"\n", "", nil},
		{"tags", formats.Dub,
			"link,url,tags\nd/a," + target + ",\"" + strings.Join(tags, ",") + "\"\n", "", cutTags},
		{"tags", formats.Shlink,
			"shortCode,longUrl,tags\na," + target + "," + strings.Join(tags, "|") + "\n",
			"", cutTags},
		{"all", formats.Bitly, asJSON([]any{map[string]any{
			"id": "b/a", "long_url": target, "title": long + "\n", "tags": tags}}),
			cutTitle, cutTags},
		{"a long description", formats.Kutt, asJSON([]any{map[string]any{
			"address": "a", "target": target, "description": long}}), cutTitle, nil},
		{"our own", formats.CSV, "longUrl,title,tags\n" + target + "," + long + "," + long + "\n",
			long, []string{long}},
		{"our own", formats.NDJSON, asJSON(map[string]any{
			"longUrl": target, "title": "\x1b", "tags": tags}), "\x1b", tags},
	} {
		got := read(t, test.format, test.file)
		if len(got) != 1 || got[0].Err != nil ||
			got[0].Link.Title != test.title || !slices.Equal(got[0].Link.Tags, test.tags) {
			t.Errorf("%s, %s: got %v, want %q, %q",
				test.format, test.name, got, test.title, test.tags)
		}
	}
}

// A link of Bitly may have as many custom links as an entry may have. Duplicates become one record.
func TestCustomLinks(t *testing.T) {
	var links []string
	for i := range 101 {
		links = append(links, fmt.Sprintf("b/c%d", i/2))
	}
	for n, want := range map[int]string{100: "51 records", 101: "There are more than 100 custom"} {
		records := read(t, formats.Bitly, "Link,Destination URL,Custom Links\n"+
			"b/a,https://example.com/,"+strings.Join(links[:n], " ")+"\n")
		got := fmt.Sprintf("%d records", len(records))
		if err := records[0].Err; err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%d custom links: %s, want %s", n, got, want)
		}
	}
}

// FuzzRead: no file makes a reader panic, or yield a record that the comment of Record excludes.
func FuzzRead(f *testing.F) {
	for _, sample := range samples(f) {
		f.Add(sample.data, uint8(slices.Index(formats.Formats, sample.format)))
	}
	f.Fuzz(func(t *testing.T, data string, format uint8) {
		f := formats.Formats[int(format)%len(formats.Formats)]
		lines := 1
		for _, end := range []string{"\n", "\r", ","} { // entries of a document count as lines
			lines += strings.Count(data, end)
		}
		line, ended := 0, false
		for rec, err := range formats.Read(strings.NewReader(data), f) {
			shares := f == formats.Bitly && rec.Err == nil
			switch {
			case ended:
				t.Fatal("something follows an error")
			case err != nil:
				ended = true
				continue
			case rec.Line < line || rec.Line == line && !shares || rec.Line > lines:
				t.Fatalf("line %d after %d of %d", rec.Line, line, lines)
			case rec.Err != nil && !reflect.DeepEqual(rec, formats.Record{Line: rec.Line,
				Entry: rec.Entry, Link: link.Link{Name: rec.Link.Name}, Err: rec.Err}):
				t.Fatalf("%+v", rec)
			case rec.Err != nil && len(rec.Err.Error()) > 1000:
				t.Fatalf("an error of %d bytes", len(rec.Err.Error()))
			case rec.Err == nil && (rec.Link.LongURL == "" ||
				rec.Total.Clicks < 0 || rec.Total.Bots < 0):
				t.Fatalf("%+v", rec)
			case rec.Link.Name == "" && rec.Err == nil && !f.Own():
				t.Fatal("there is no alias")
			case rec.Err == nil && !f.Own():
				was := link.Link{Name: "a", LongURL: "https://example.com/",
					Title: rec.Link.Title, Tags: rec.Link.Tags, Rules: (link.Rules{}).FitRules(rec.Link)}
				if _, err := (link.Rules{}).Import(was, "", time.Now()); err != nil {
					t.Fatalf("%+v: %v", rec, err)
				}
			}
			line = rec.Line
		}
	})
}

// BenchmarkRead reads links, and reports how many it reads per second.
func BenchmarkRead(b *testing.B) {
	const n = 1000
	records := make([]formats.Record, n)
	for i := range records {
		records[i] = full
	}
	entry := `{"address":"docs","created_at":"2024-05-06T07:08:09.123Z",` +
		`"description":"The docs","expire_in":null,"link":"https://kutt.example.com/docs",` +
		`"target":"https://example.com/docs","visit_count":99},`
	kutt := `{"data":[` + strings.TrimSuffix(strings.Repeat(entry, n), ",") + `]}`
	golink := strings.Repeat(`{"Short":"docs","Long":"https://example.com/docs",`+
		`"Created":"2022-05-31T13:04:44.741457796-07:00","Owner":"ann@example.com"}`+"\n", n)
	dub := "Short link,Destination URL,Clicks,Created at,Tags,Archived\n" +
		strings.Repeat("https://dub.sh/launch,https://example.com/launch?utm_source=x,1024,"+
			"2025-06-07T08:09:10.000Z,\"marketing, eu\",false\n", n)
	for _, test := range []struct {
		format formats.Format
		file   string
	}{
		{formats.NDJSON, write(b, formats.NDJSON, records...)},
		{formats.CSV, write(b, formats.CSV, records...)},
		{formats.Kutt, kutt},
		{formats.Golink, golink},
		{formats.Dub, dub},
	} {
		b.Run(string(test.format), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(test.file)))
			for b.Loop() {
				got := 0
				for rec, err := range formats.Read(strings.NewReader(test.file), test.format) {
					if got++; err != nil || rec.Err != nil {
						b.Fatal(rec, err)
					}
				}
				if got != n {
					b.Fatal(got)
				}
			}
			b.ReportMetric(float64(b.N*n)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, f := range []formats.Format{formats.NDJSON, formats.CSV} {
		b.Run(string(f), func(b *testing.B) {
			b.ReportAllocs()
			w := formats.NewWriter(io.Discard, f, rules, false)
			for b.Loop() {
				if err := w.Write(full); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
