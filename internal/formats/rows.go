package formats

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

// maxSeparators is how many separators a row may have, including those in text. Each may begin a
// field, for which csv.Reader needs 40 bytes.
const maxSeparators = 1 << 16

// row is a row of a CSV file.
type row struct {
	fields      []string // valid until the next row is read
	first, last int      // lines
	atEnd       bool     // the file ends without a line end behind the row
	wrong       string   // why it has no fields, or ""
}

// rowReader reads the rows of a CSV file. Its csv.Reader reads the file through it. So it has the
// text of the current row, and can bound the text, count its lines, and read it again.
type rowReader struct {
	in    io.Reader
	comma rune
	csv   *csv.Reader

	text   bytes.Buffer // what was read of the file since the end of the last row
	offset int64        // where text begins in the file, in bytes
	line   int          // the line where text begins, from 1
	err    error        // of reading, except io.EOF

	lazy  *csv.Reader
	again bytes.Buffer // rows for lazy
}

func newRowReader(r io.Reader, start []byte) *rowReader {
	rows := &rowReader{in: &lineFeeds{in: bufio.NewReader(r)}, comma: separatorOf(start), line: 1}
	rows.csv = rows.parser(rows)
	rows.csv.ReuseRecord = true
	rows.lazy = rows.parser(&rows.again)
	rows.lazy.LazyQuotes = true
	return rows
}

// separatorOf returns the separator of a file: the most frequent of comma, semicolon and tab in its
// first line, outside of quotes. Spreadsheets with decimal commas write semicolons.
func separatorOf(start []byte) rune {
	var counts [256]int
	quoted := false
	for _, c := range firstLine(start) {
		if c == '"' {
			quoted = !quoted
		}
		if !quoted {
			counts[c]++
		}
	}
	best := ','
	for _, c := range ";\t" {
		if counts[c] > counts[best] {
			best = c
		}
	}
	return best
}

func firstLine(start []byte) []byte {
	if end := bytes.IndexAny(start, "\r\n"); end >= 0 {
		return start[:end]
	}
	return start
}

func (r *rowReader) parser(in io.Reader) *csv.Reader {
	parser := csv.NewReader(in)
	parser.Comma, parser.FieldsPerRecord = r.comma, -1
	return parser
}

// Read reads the file for the csv.Reader.
func (r *rowReader) Read(p []byte) (int, error) {
	r.skipBlank()
	text := r.text.Bytes()
	if len(text) >= maxRecord || bytes.Count(text, []byte{byte(r.comma)}) >= maxSeparators {
		r.err = fileErrorf("The row that begins in line %d is longer than 1 MiB, or has more than "+
			"65,536 columns: check whether a quote is missing. Nothing from there on was read.",
			r.line)
	}
	if r.err != nil {
		return 0, r.err
	}
	n, err := r.in.Read(p)
	r.text.Write(p[:n])
	if err != io.EOF {
		r.err = err
	}
	return n, err
}

// skipBlank takes the blank lines at the start of the text, because csv.Reader skips them. There
// may be any number of them.
func (r *rowReader) skipBlank() {
	text := r.text.Bytes()
	r.take(len(text) - len(bytes.TrimLeft(text, "\n")))
}

// take removes n bytes from the start of the text, and returns them.
func (r *rowReader) take(n int) []byte {
	taken := r.text.Next(n)
	r.offset += int64(n)
	r.line += bytes.Count(taken, []byte("\n"))
	return taken
}

// next returns the next row. The error is io.EOF, the error of reading, or a FileError.
func (r *rowReader) next() (row, error) {
	fields, err := r.csv.Read()
	if r.err != nil {
		return row{}, r.err
	}
	r.skipBlank()
	next := row{fields: fields, first: r.line}
	text := r.take(int(r.csv.InputOffset() - r.offset))
	next.atEnd = !bytes.HasSuffix(text, []byte("\n"))
	next.last = next.first + bytes.Count(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	var malformed *csv.ParseError
	if !errors.As(err, &malformed) {
		return next, err
	}
	quote := next.first + strings.Count(strings.Join(fields, ""), "\n")
	if next.first == next.last || errors.Is(err, csv.ErrBareQuote) {
		// Some programs neither double the quotes within a text nor put the text into quotes.
		// LazyQuotes can read that. It is safe within one line: if a quote never ends, the last
		// field contains the end of the line.
		r.again.Write(text)
		r.again.WriteByte('\n')
		if next.fields, err = r.lazy.Read(); err != nil {
			return row{}, err
		}
		if !strings.HasSuffix(next.fields[len(next.fields)-1], "\n") {
			return next, nil
		}
	}
	next.wrong = fmt.Sprintf("The quote that begins in line %d never ends, "+
		"or text follows its end: close it, or double it if it is part of the text.", quote)
	if next.last > next.first {
		next.wrong += fmt.Sprintf(" Lines %d to %d were not read.", next.first, next.last)
	}
	return next, nil
}
