package formats

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"regexp"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// maxRecord is the longest record that is read, in bytes. Our own records have at most some 50
	// KB, with every character escaped. Records of other programs may have more columns.
	maxRecord = 1 << 20
	// startSize is how much of a file is looked at to find out what it is, in bytes.
	startSize = 64 << 10
)

// byteOrderMark may begin a file in UTF-8, and so any of several that were joined.
const byteOrderMark = "\xef\xbb\xbf"

// open returns a reader of a file as UTF-8, and the start of the file without byte order mark and
// leading white space. The error is a FileError or the error of reading.
func open(r io.Reader) (in *bufio.Reader, start []byte, err error) {
	in = bufio.NewReaderSize(r, startSize)
	start, err = in.Peek(startSize)
	not := notText(start)
	for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
		if not == "" && len(start) > 1 && order.Uint16(start) == '\ufeff' {
			in = bufio.NewReaderSize(&utf16Reader{in: in, order: order}, startSize)
			start, err = in.Peek(startSize)
			break
		}
	}
	switch {
	case err != nil && err != io.EOF:
		return nil, nil, err
	case not != "":
		return nil, nil, FileError(not)
	}
	start = bytes.TrimLeft(start, " \t\r\n\ufeff")
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
	{"\xff\xfe\x00\x00", unmarked},
	{"\x00\x00\xfe\xff", unmarked},
	{"PK\x03\x04", "The file is a ZIP archive or a workbook. Unpack it, " +
		"or save the sheet as CSV (UTF-8)."},
	{"\xd0\xcf\x11\xe0", "The file is a workbook. Save the sheet as CSV (UTF-8)."},
	{"\x1f\x8b", "The file is compressed with gzip. Unpack it first."},
	{"%PDF-", "The file is a PDF. Export the links as CSV or JSON."},
}

const unmarked = "The file is UTF-32, or UTF-16 without a byte order mark. Save it as UTF-8."

// notText says what a file is if it is not text that can be read, or returns "" if it is.
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
		return unmarked
	}
	return ""
}

// utf16Reader reads UTF-16 as UTF-8. What is no character becomes a byte that UTF-8 cannot have.
// So the record is refused.
type utf16Reader struct {
	in    *bufio.Reader
	order binary.ByteOrder
	err   error  // of in
	text  []byte // decoded, and not returned yet
}

func (u *utf16Reader) Read(p []byte) (int, error) {
	for len(u.text) < 4096 && u.err == nil {
		u.next()
	}
	n := copy(p, u.text)
	u.text = u.text[:copy(u.text, u.text[n:])]
	if len(u.text) > 0 {
		return n, nil
	}
	return n, u.err
}

// next decodes a character.
func (u *utf16Reader) next() {
	var b []byte
	b, u.err = u.in.Peek(4)
	n, char := min(2, len(b)), rune(-1)
	if n == 2 {
		char = rune(u.order.Uint16(b))
	}
	if utf16.IsSurrogate(char) {
		char = -1
		if len(b) == 4 {
			pair := utf16.DecodeRune(rune(u.order.Uint16(b)), rune(u.order.Uint16(b[2:])))
			if pair != utf8.RuneError {
				n, char = 4, pair
			}
		}
	}
	switch {
	case char >= 0:
		u.text = utf8.AppendRune(u.text, char)
	case n > 0:
		u.text = append(u.text, 0xff)
	}
	if len(b) > n { // what is left comes before the error
		u.err = nil
	}
	_, _ = u.in.Discard(n)
}

// lineFeeds reads from in, and replaces each CR LF and each CR by LF. It leaves out byte order
// marks at the start of lines, and in JSON outside of strings.
type lineFeeds struct {
	in     *bufio.Reader
	isJSON bool

	cr      bool // the last byte of in was CR
	within  bool // the next byte is none that a byte order mark is left out before
	escaped bool // in a string of JSON, the last byte was a backslash that escapes the next one
}

func (l *lineFeeds) Read(p []byte) (int, error) {
	for {
		n, err := l.in.Read(p)
		text := p[:0]
		for i := 0; i < n; i++ {
			c := p[i]
			if c == byteOrderMark[0] && !l.within && l.marked(p[i:n]) {
				i += len(byteOrderMark) - 1
				continue
			}
			lf := c == '\n' && l.cr // of CR LF
			if l.cr = c == '\r'; l.cr {
				c = '\n'
			}
			if !lf {
				text = append(text, c)
				l.follow(c)
			}
		}
		if len(text) > 0 || err != nil || len(p) == 0 {
			return len(text), err
		}
	}
}

// marked reports whether a byte order mark begins with rest, which is what has been read of in. The
// part of the mark that has not been read yet is skipped.
func (l *lineFeeds) marked(rest []byte) bool {
	if len(rest) >= len(byteOrderMark) {
		return bytes.HasPrefix(rest, []byte(byteOrderMark))
	}
	more, _ := l.in.Peek(len(byteOrderMark) - len(rest)) // an error comes again
	if string(rest)+string(more) != byteOrderMark {
		return false
	}
	_, _ = l.in.Discard(len(more))
	return true
}

// follow notes a byte that is returned.
func (l *lineFeeds) follow(c byte) {
	switch {
	case c == '\n', !l.isJSON:
		l.within, l.escaped = c != '\n', false
	case l.escaped:
		l.escaped = false
	case c == '"':
		l.within = !l.within
	default:
		l.escaped = c == '\\' && l.within
	}
}

type lineReader struct {
	in     *bufio.Reader
	line   []byte
	number int
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{in: bufio.NewReader(&lineFeeds{in: bufio.NewReader(r)})}
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
