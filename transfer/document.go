package transfer

import (
	"errors"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"tiney/clicks"
	"tiney/link"
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

// read reads the entries of a file. The Line of a record is the number of its entry, from 1.
func (d document) read(r io.Reader, f Format, yield func(Record) bool) error {
	in := &bounded{r: r}
	// Errors within an entry are found later, when the entry is decoded.
	in.decoder = jsontext.NewDecoder(in,
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	entries, lists, without := 0, 0, 0
	err := d.walk(in.decoder, &lists, &without, func(data []byte) bool {
		entries++
		more := true
		decodeObject(d.decode, data, func(rec Record) {
			rec.Line = entries
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

// flag is a boolean from a program whose database may have no booleans. null, "" and the texts that
// parseBool takes for false are false. Any other value is true.
type flag bool

// UnmarshalJSON decodes the value.
func (f *flag) UnmarshalJSON(data []byte) error {
	text := strings.Trim(string(data), `"`)
	is, ok := parseBool(text)
	*f = flag(is || !ok && text != "" && text != "null")
	return nil
}

func decodeKutt(data []byte, yield func(Record)) {
	var v struct {
		Address     string `json:"address"`
		Link        string `json:"link"`
		Domain      string `json:"domain"`
		Target      string `json:"target"`
		Description string `json:"description"`
		ExpireIn    string `json:"expire_in"`
		CreatedAt   string `json:"created_at"`
		VisitCount  int64  `json:"visit_count"`
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
		Total:  clicks.Total{Clicks: v.VisitCount},
	}}
	if v.Password {
		b.fail("The link asks for a password, which no link can here: it would lead everybody to " +
			"its target. Take the password away, or leave it out.")
	}
	b.time(&b.Link.CreatedAt, "created_at", v.CreatedAt)
	b.time(&b.Link.ExpiresAt, "expire_in", v.ExpireIn)
	b.yield("target", yield)
}

func decodeBitly(data []byte, yield func(Record)) {
	var v struct {
		ID             string   `json:"id"`
		Link           string   `json:"link"`
		LongURL        string   `json:"long_url"`
		Title          string   `json:"title"`
		CreatedAt      string   `json:"created_at"`
		Archived       flag     `json:"archived"`
		CustomBitlinks []string `json:"custom_bitlinks"`
		Tags           []string `json:"tags"`
	}
	if err := unmarshal(data, &v); err != nil {
		yield(Record{Err: RecordError(jsonWrong(err))})
		return
	}
	b := builder{short: v.ID, custom: v.CustomBitlinks, Record: Record{Link: link.Link{
		LongURL: v.LongURL, Title: v.Title, Tags: v.Tags, Disabled: bool(v.Archived)}}}
	if b.short == "" {
		b.short = v.Link
	}
	b.time(&b.Link.CreatedAt, "created_at", v.CreatedAt)
	b.yield("long_url", yield)
}
