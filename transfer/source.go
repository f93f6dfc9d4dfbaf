package transfer

import (
	"bytes"
	"io"
	"regexp"
)

const (
	// maxRecord is the longest record that is read, in bytes. The longest of our own has some 50 KB, with every character of it
	// escaped; other programs have columns that are not read.
	maxRecord = 1 << 20
	// firstWindow is the size of the buffer unless records are longer.
	firstWindow = 64 << 10
)

// source is a window onto a file. It grows to maxRecord at most.
type source struct {
	r     io.Reader
	buf   []byte
	start int   // of what is not consumed
	line  int   // the physical line that begins at start, from 1
	err   error // of r, after buf; io.EOF at its end
}

// data returns what is in the window; last is true if the file ends with it.
func (s *source) data() (data []byte, last bool) { return s.buf[s.start:], s.err == io.EOF }

// more reads until the window has at least twice what it had, so that looking through it again from its start takes no more
// than twice the time. It returns false if the window is full, or nothing is left to be read.
func (s *source) more() bool {
	pending := len(s.buf) - s.start
	if s.err != nil || pending >= maxRecord {
		return false
	}
	size := max(cap(s.buf), firstWindow)
	for size < 2*pending {
		size *= 2
	}
	if size > cap(s.buf) {
		s.buf = append(make([]byte, 0, size), s.buf[s.start:]...)
	} else {
		s.buf = s.buf[:copy(s.buf[:cap(s.buf)], s.buf[s.start:])]
	}
	s.start = 0
	n, err := io.ReadAtLeast(s.r, s.buf[pending:size], max(pending, 1))
	if err == io.ErrUnexpectedEOF && n < max(pending, 1) {
		err = io.EOF
	}
	s.buf, s.err = s.buf[:pending+n], err
	return n > 0
}

// consume takes n bytes of the window, which hold so many ends of lines.
func (s *source) consume(n, lines int) {
	s.start += n
	s.line += lines
}

// open reads the beginning of the file and returns its first byte that is not white space, 0 if there is none.
func (s *source) open() (first byte, err error) {
	for {
		data, last := s.data()
		if text := bytes.TrimLeft(data, " \t\r\n"); last || len(text) >= maxStart || len(data) >= firstWindow {
			break
		}
		if !s.more() && s.err != io.EOF {
			return 0, s.err
		}
	}
	data, _ := s.data()
	if not := notText(data); not != "" {
		return 0, FileError(not)
	}
	if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) { // a byte order mark
		s.start += 3
		data = data[3:]
	}
	if data = bytes.TrimLeft(data, " \t\r\n"); len(data) > 0 {
		first = data[0]
	}
	if first == '<' {
		return 0, FileError("The file is a web page or XML. Perhaps a sign-in page was saved instead of the export: export the links again.")
	}
	if sql.Match(data) {
		return 0, errSQL
	}
	return first, nil
}

// maxStart is how many bytes of a file, without white space before them, tell what it is.
const maxStart = 64

// sql matches how the dumps of MySQL, MariaDB, phpMyAdmin, PostgreSQL and SQLite begin.
var sql = regexp.MustCompile(`^(?i:--\s|/\*|(insert|replace)\s+(ignore\s+)?(into\s|\x60)` +
	`|(create|drop|alter|lock)\s+(table|database|schema)` +
	`|copy\s+\S+\s*\([\w"]+,|pragma\s|(begin|start)(\s+transaction)?;\s*[\r\n]` +
	`|set\s+(@|names\s|\w+\s*=)|use\s+\x60)`)

const errSQL = FileError("The file is SQL. Export the links as CSV or JSON instead; a table as CSV, " +
	"with the names of its columns in the first line.")

// signatures are how files begin that people take for exports.
var signatures = []struct{ start, is string }{
	{"\xff\xfe", utf16},
	{"\xfe\xff", utf16},
	{"PK\x03\x04", "The file is a ZIP archive or a workbook. Unpack it, or save the sheet as CSV (UTF-8)."},
	{"\xd0\xcf\x11\xe0", "The file is a workbook. Save the sheet as CSV (UTF-8)."},
	{"\x1f\x8b", "The file is compressed with gzip. Unpack it first."},
	{"%PDF-", "The file is a PDF. Export the links as CSV or JSON."},
}

const utf16 = "The file is UTF-16. Save it as UTF-8."

// notText returns what a file is instead of text in UTF-8, or "".
func notText(data []byte) string {
	for _, s := range signatures {
		if bytes.HasPrefix(data, []byte(s.start)) {
			return s.is
		}
	}
	// Any of our formats begins with ASCII.
	if len(data) >= 4 && (data[0] == 0) == (data[2] == 0) && (data[1] == 0) == (data[3] == 0) && (data[0] == 0) != (data[1] == 0) {
		return utf16
	}
	return ""
}

// eol returns where the first line of data ends, and where the next one begins; next is 0 if data does not tell. A line ends
// with LF, CR LF or CR.
func eol(data []byte, last bool) (end, next int) {
	end = bytes.IndexAny(data, "\r\n") // both at once: to look for one of them past the other would look through the window for each line
	switch {
	case end < 0 && last:
		return len(data), len(data)
	case end < 0:
		return len(data), 0
	case bytes.HasPrefix(data[end:], []byte("\r\n")):
		return end, end + 2
	case data[end] == '\r' && end+1 == len(data) && !last:
		return end, 0 // LF may follow
	}
	return end, end + 1
}

// ends counts the ends of lines in data.
func ends(data []byte) int {
	n := bytes.Count(data, []byte("\n"))
	if crs := bytes.Count(data, []byte("\r")); crs > 0 {
		n += crs - bytes.Count(data, []byte("\r\n"))
	}
	return n
}

// skipLine passes over the line at the window's start, however long it is. The error is that of reading.
func (s *source) skipLine() error {
	for {
		data, last := s.data()
		if end, next := eol(data, last); next > 0 || last {
			s.consume(next, 1)
			return nil
		} else {
			s.start += end // a CR at its end stays
		}
		if !s.more() && s.err != io.EOF {
			return s.err
		}
	}
}

// nextLine returns the next line without its end, and its number; it is valid until the next call. A line that is longer than
// maxRecord is nil. It returns io.EOF at the end, and the error of reading.
func (s *source) nextLine() (line []byte, number int, err error) {
	for {
		data, last := s.data()
		number = s.line
		end, next := eol(data, last)
		switch {
		case next > 0:
			s.consume(next, 1)
			return data[:end:end], number, nil
		case last:
			return nil, number, io.EOF
		case len(data) >= maxRecord:
			return nil, number, s.skipLine()
		}
		if !s.more() && s.err != io.EOF {
			return nil, number, s.err
		}
	}
}

const tooLong = "The line is longer than 1 MiB and was skipped: check whether its end or a quote is missing."
