package formats

import (
	"bufio"
	"cmp"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/clicks"
	"tiney/internal/link"
)

// document is a JSON format: a list of links, alone or as a member of an object. A file may have
// several of them one after another, such as the pages of an API.
type document struct {
	member string
	decode decoder
}

var documents = map[Format]document{
	Kutt:  {"data", decodeKutt},
	Bitly: {"links", decodeBitly},
	Sink:  {"links", decodeSink},
}

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

// read reads the entries of a file. The Line of a record is the number of its entry, from 1.
func (d document) read(r io.Reader, f Format, yield func(Record) bool) error {
	in := &bounded{r: &lineFeeds{in: bufio.NewReader(r), isJSON: true}}
	in.decoder = newDecoder(in)
	entries, lists, without := 0, 0, 0
	err := d.walk(in.decoder, &lists, &without, func(data []byte) bool {
		entries++
		more := true
		decodeObject(d.decode, data, func(rec Record) {
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
			"the format %s has it as the member %q, or alone.", f, d.member)
	case without > 0:
		return fileErrorf("An object after or between the lists of links has none: perhaps an "+
			"error was saved in place of a page. Export again; the format %s has the list as the "+
			"member %q.", f, d.member)
	case entries == 0:
		return errNoLinks
	}
	return nil
}

// errStopped: the caller wants no more entries.
var errStopped = errors.New("stopped")

// walk yields the entries of all lists. It adds the number of lists to lists, and that of objects
// without one to without. Its error comes from the decoder, or is errStopped.
func (d document) walk(
	in *jsontext.Decoder, lists, without *int, yield func(data []byte) bool,
) error {
	list := func() error {
		*lists++
		if _, err := in.ReadToken(); err != nil {
			return err
		}
		for in.PeekKind() != ']' {
			data, err := in.ReadValue()
			if err != nil {
				return err
			}
			if !yield(data) {
				return errStopped
			}
		}
		_, err := in.ReadToken()
		return err
	}
	for {
		switch in.PeekKind() {
		case '[':
			if err := list(); err != nil {
				return err
			}
		case '{':
			before := *lists
			if _, err := in.ReadToken(); err != nil {
				return err
			}
			for in.PeekKind() == '"' {
				name, err := in.ReadToken()
				if err != nil {
					return err
				}
				if name.String() == d.member && in.PeekKind() == '[' {
					err = list()
				} else {
					err = in.SkipValue()
				}
				if err != nil {
					return err
				}
			}
			if _, err := in.ReadToken(); err != nil {
				return err
			}
			if *lists == before {
				*without++
			}
		default:
			if err := in.SkipValue(); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
		}
	}
}

// flag is a boolean from a program whose database may have no booleans. What stands for no value
// and the texts that parseBool takes for false are false. Any other value is true.
type flag bool

// UnmarshalJSONFrom decodes the value.
func (f *flag) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	var text scalar
	err := text.UnmarshalJSONFrom(in)
	is, ok := parseBool(string(text))
	*f = flag(is || !ok && !nothing(string(text)))
	return err
}

func decodeKutt(data []byte, yield func(Record)) {
	var v struct {
		Address     string `json:"address"`
		Link        string `json:"link"`
		Domain      string `json:"domain"`
		Target      string `json:"target"`
		Description string `json:"description"`
		ExpireIn    scalar `json:"expire_in"`
		CreatedAt   scalar `json:"created_at"`
		VisitCount  tally  `json:"visit_count"`
		Banned      flag   `json:"banned"`
		Password    flag   `json:"password"`
	}
	if err := unmarshal(data, &v); err != nil {
		yield(Record{Err: RecordError(jsonWrong(err))})
		return
	}
	b := builder{code: v.Address, short: v.Link, Record: Record{
		Link:   link.Link{LongURL: v.Target, Title: v.Description, Disabled: bool(v.Banned)},
		Domain: v.Domain,
		Total:  clicks.Total{Clicks: int64(v.VisitCount)},
	}}
	b.protected(bool(v.Password))
	b.date(&b.Link.CreatedAt, string(v.CreatedAt))
	b.end("expire_in", string(v.ExpireIn))
	b.yield("target", yield)
}

func decodeBitly(data []byte, yield func(Record)) {
	var v struct {
		ID             string `json:"id"`
		Link           string `json:"link"`
		LongURL        string `json:"long_url"`
		Title          string `json:"title"`
		CreatedAt      scalar `json:"created_at"`
		Archived       flag   `json:"archived"`
		CustomBitlinks few    `json:"custom_bitlinks"`
		Tags           few    `json:"tags"`
	}
	if err := unmarshal(data, &v); err != nil {
		yield(Record{Err: RecordError(jsonWrong(err))})
		return
	}
	b := builder{short: cmp.Or(v.ID, v.Link), custom: v.CustomBitlinks,
		Record: Record{Link: link.Link{
			LongURL: v.LongURL, Title: v.Title, Tags: v.Tags, Disabled: bool(v.Archived)}}}
	b.date(&b.Link.CreatedAt, string(v.CreatedAt))
	b.yield("long_url", yield)
}

func decodeSink(data []byte, yield func(Record)) {
	var v struct {
		Slug       string `json:"slug"`
		URL        string `json:"url"`
		Title      string `json:"title"` // of the preview
		Comment    string `json:"comment"`
		Tags       few    `json:"tags"`
		CreatedAt  scalar `json:"createdAt"`
		Expiration scalar `json:"expiration"`
		Password   flag   `json:"password"`
	}
	if err := unmarshal(data, &v); err != nil {
		yield(Record{Err: RecordError(jsonWrong(err))})
		return
	}
	b := builder{code: v.Slug, Record: Record{Link: link.Link{
		LongURL: v.URL, Title: cmp.Or(v.Comment, v.Title), Tags: v.Tags}}}
	b.protected(bool(v.Password))
	b.date(&b.Link.CreatedAt, string(v.CreatedAt))
	b.end("expiration", string(v.Expiration))
	b.yield("url", yield)
}
