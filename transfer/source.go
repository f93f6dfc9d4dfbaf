package transfer

import (
	"bufio"
	"bytes"
	"io"
	"regexp"
	"sync"
)

const (
	// maxRecord is the longest record that is read, in bytes. Our own records have at most some 50
	// KB, with every character escaped. Records of other programs may have more columns.
	maxRecord = 1 << 20
	// startSize is how much of a file is looked at to find out what it is, in bytes.
	startSize = 64 << 10
)

// open returns a reader of a file without its byte order mark, and the start of the file without
// leading white space. The error is a FileError or the error of reading.
func open(r io.Reader) (in *bufio.Reader, start []byte, err error) {
	in = bufio.NewReaderSize(r, startSize)
	start, err = in.Peek(startSize)
	if err != nil && err != io.EOF {
		return nil, nil, err
	}
	if not := notText(start); not != "" {
		return nil, nil, FileError(not)
	}
	const byteOrderMark = "\xef\xbb\xbf"
	if rest, marked := bytes.CutPrefix(start, []byte(byteOrderMark)); marked {
		start = rest
		_, _ = in.Discard(len(byteOrderMark)) // it is in the buffer
	}
	start = bytes.TrimLeft(start, " \t\r\n")
	switch {
	case bytes.HasPrefix(start, []byte("<")):
		return nil, nil, FileError("The file is a web page or XML. " +
			"Perhaps a sign-in page was saved instead of the export: export the links again.")
	case sql().Match(start):
		return nil, nil, FileError("The file is SQL. Export the links as CSV or JSON instead; " +
			"a table as CSV, with the names of its columns in the first line.")
	}
	return in, start, nil
}

// sql matches the start of dumps of MySQL, MariaDB, phpMyAdmin, PostgreSQL and SQLite.
var sql = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?i:--\s|/\*|(insert|replace)\s+(ignore\s+)?(into\s|\x60)` +
		`|(create|drop|alter|lock)\s+(table|database|schema)` +
		`|copy\s+\S+\s*\([\w"]+,|pragma\s|(begin|start)(\s+transaction)?;\s*[\r\n]` +
		`|set\s+(@|names\s|\w+\s*=)|use\s+\x60)`)
})

// signatures are the first bytes of files that people mistake for exports.
var signatures = []struct{ start, is string }{
	{"\xff\xfe", utf16},
	{"\xfe\xff", utf16},
	{"PK\x03\x04", "The file is a ZIP archive or a workbook. Unpack it, " +
		"or save the sheet as CSV (UTF-8)."},
	{"\xd0\xcf\x11\xe0", "The file is a workbook. Save the sheet as CSV (UTF-8)."},
	{"\x1f\x8b", "The file is compressed with gzip. Unpack it first."},
	{"%PDF-", "The file is a PDF. Export the links as CSV or JSON."},
}

const utf16 = "The file is UTF-16. Save it as UTF-8."

// notText says what a file is if it is not text in UTF-8, or returns "" if it is.
func notText(data []byte) string {
	for _, s := range signatures {
		if bytes.HasPrefix(data, []byte(s.start)) {
			return s.is
		}
	}
	if len(data) < 4 {
		return ""
	}
	// Files of every format begin with ASCII characters. In UTF-16, every other byte of those is
	// zero.
	first, second := data[0] == 0, data[1] == 0
	if first != second && first == (data[2] == 0) && second == (data[3] == 0) {
		return utf16
	}
	return ""
}

// lineFeeds reads from r, and replaces each CR LF and each CR by LF.
type lineFeeds struct {
	r  io.Reader
	cr bool // the last byte of r was CR
}

func (l *lineFeeds) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	text := p[:0]
	for _, c := range p[:n] {
		switch {
		case c == '\r':
			text = append(text, '\n')
		case c != '\n' || !l.cr:
			text = append(text, c)
		}
		l.cr = c == '\r'
	}
	return len(text), err
}

type lineReader struct {
	in     *bufio.Reader
	line   []byte
	number int
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReader(&lineFeeds{r: r})}
}

// next returns the next line and its number, from 1. The line is valid until the next call. It is
// nil if it is longer than maxRecord. The error is the error of reading.
func (l *lineReader) next() (line []byte, number int, err error) {
	l.number++
	l.line = l.line[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		if len(l.line) <= maxRecord {
			l.line = append(l.line, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(l.line) == 0, err != nil && err != io.EOF:
			return nil, l.number, err
		case len(l.line) > maxRecord:
			return nil, l.number, nil
		}
		return bytes.TrimSuffix(l.line, []byte("\n")), l.number, nil
	}
}
