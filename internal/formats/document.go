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

// readLists reads a JSON document: a list of links, alone or as a member of an object. A file may
// have several of them one after another, such as the pages of an API. The Line of a record is the
// number of its entry, from 1.
func (o *object) readLists(r io.Reader, f Format, yield func(Record) bool) error {
	in := &bounded{r: &lineFeeds{in: bufio.NewReader(r), isJSON: true}}
	in.decoder = newDecoder(in)
	entries, lists, without := 0, 0, 0
	err := o.walk(in.decoder, &lists, &without, func(data []byte) bool {
		entries++
		more := true
		o.records(data, func(rec Record) {
			rec.Line, rec.Entry = entries, true
			more = more && yield(rec)
		})
		return more
	})
	switch {
	case errors.Is(err, errStopped):
		return nil
	case errors.Is(in.err, errEntryTooLong):
		return fileErrorf("Entry %d of the list is longer than 1 MiB, or the JSON is damaged "+
			"there. It and what follows was not read.", entries+1)
	case in.err != nil:
		return in.err
	case err != nil:
		return fileErrorf("The JSON is damaged in or after entry %d of the list, at byte %d, "+
			"or ends there before it is complete. What follows was not read.",
			entries+1, in.decoder.InputOffset())
	case lists == 0:
		return fileErrorf("The JSON has no list of links: "+
			"the format %s has it as the member %q, or alone.", f, o.list)
	case without > 0:
		return fileErrorf("An object after or between the lists of links has none: perhaps an "+
			"error was saved in place of a page. Export again; the format %s has the list as the "+
			"member %q.", f, o.list)
	case entries == 0:
		return errNoLinks
	}
	return nil
}

// errStopped: the caller wants no more entries.
var errStopped = errors.New("stopped")

// walk yields the entries of all lists. It adds the number of lists to lists, and that of objects
// without one to without. Its error comes from the decoder, or is errStopped.
func (o *object) walk(
	in *jsontext.Decoder, lists, without *int, yield func(data []byte) bool,
) error {
	name := ""  // of the member that comes next
	before := 0 // the number of lists before this object
	for {
		var err error
		within, read := in.StackIndex(in.StackDepth())
		switch next := in.PeekKind(); {
		case within == '[' && next != ']':
			var data []byte
			if data, err = in.ReadValue(); err == nil && !yield(data) {
				return errStopped
			}
		case within == '{' && read%2 == 0 && next == '"':
			var token jsontext.Token
			token, err = in.ReadToken()
			name = token.String()
		case next == '[' && (within == 0 || name == o.list):
			*lists++
			_, err = in.ReadToken()
		case within == 0 && next == '{':
			before = *lists
			_, err = in.ReadToken()
		case next == ']', next == '}':
			if _, err = in.ReadToken(); err == nil && next == '}' && before == *lists {
				*without++
			}
		default:
			if err = in.SkipValue(); err == io.EOF {
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}
