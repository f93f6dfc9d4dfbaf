package formats

import (
	"bufio"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// bounded reads from r. It fails if the decoder has returned no token or value for maxRecord bytes.
type bounded struct {
	r       io.Reader
	decoder *jsontext.Decoder
	read    int64
	err     error // of r
}

var errEntryTooLong = errors.New("an entry is too long")

func (b *bounded) Read(p []byte) (int, error) {
	left := b.decoder.InputOffset() + maxRecord - b.read
	if left <= 0 {
		b.err = errEntryTooLong
		return 0, b.err
	}
	n, err := b.r.Read(p[:min(int64(len(p)), left)])
	b.read += int64(n)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// newDecoder returns a decoder that splits a document. Errors within an entry are found later, when
// the entry is decoded.
func newDecoder(r io.Reader) *jsontext.Decoder {
	return jsontext.NewDecoder(r, jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true))
}

// entries reads a JSON document: a list of links, alone or as a member of an object. A file may
// have several of them one after another, such as the pages of an API. The Line of a record is the
// number of its entry, from 1.
func (o *object) entries(r io.Reader, f Format) nextRecords {
	in := &bounded{r: &lineFeeds{in: bufio.NewReader(r), isJSON: true}}
	in.decoder = newDecoder(in)
	all := lists{in: in.decoder, member: o.list}
	at := Record{Entry: true}
	return func() ([]Record, error) {
		at.Line++
		data, err := all.next()
		switch {
		case err == nil:
			return o.records(at, data), nil
		case errors.Is(in.err, errEntryTooLong):
			err = fileErrorf("Entry %d of the list is longer than 1 MiB, or the JSON is damaged "+
				"there. It and what follows was not read.", at.Line)
		case in.err != nil:
			err = in.err
		case err != io.EOF:
			err = fileErrorf("The JSON is damaged in or after entry %d of the list, at byte %d, "+
				"or ends there before it is complete. What follows was not read.",
				at.Line, in.decoder.InputOffset())
		case all.count == 0:
			err = fileErrorf("The JSON has no list of links: "+
				"the format %s has it as the member %q, or alone.", f, o.list)
		case all.without:
			err = fileErrorf("An object after or between the lists of links has none: perhaps an "+
				"error was saved in place of a page. Export again; the format %s has the list as "+
				"the member %q.", f, o.list)
		}
		return nil, err
	}
}

// lists reads the entries of all lists of links in a document.
type lists struct {
	in      *jsontext.Decoder
	member  string // that has a list
	name    string // of the member that comes next
	count   int    // of lists so far
	before  int    // count before this object
	without bool   // an object had no list
}

// next returns the next entry. The error comes from the decoder, which is io.EOF at the end.
func (l *lists) next() ([]byte, error) {
	for {
		var err error
		within, read := l.in.StackIndex(l.in.StackDepth())
		switch next := l.in.PeekKind(); {
		case within == '[' && next != ']':
			return l.in.ReadValue()
		case within == '{' && read%2 == 0 && next == '"':
			var token jsontext.Token
			token, err = l.in.ReadToken()
			l.name = token.String()
		case next == '[' && (within == 0 || l.name == l.member):
			l.count++
			_, err = l.in.ReadToken()
		case within == 0 && next == '{':
			l.before = l.count
			_, err = l.in.ReadToken()
		case next == ']', next == '}':
			_, err = l.in.ReadToken()
			l.without = l.without || next == '}' && l.before == l.count
		default:
			err = l.in.SkipValue()
		}
		if err != nil {
			return nil, err
		}
	}
}
