package transfer

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"tiney/link"
)

// maxCustom is how many other short URLs an entry may have.
const maxCustom = 100

// builder makes the records of one entry of a file.
type builder struct {
	Record
	code   string   // the alias itself, or "" if short has it
	short  string   // the short URL
	custom []string // other short URLs with the same target
	own    bool     // the format is our own: records may lack an alias, and nothing is cut
}

// fail sets the error of the record, unless the record has one.
func (b *builder) fail(format string, args ...any) {
	if b.Err == nil {
		b.Err = RecordError(fmt.Sprintf(format, args...))
	}
}

// time sets a time that the file has under this name.
func (b *builder) time(dst *time.Time, name, text string) {
	if text == "" {
		return
	}
	t, ok := parseTime(text)
	if !ok {
		b.fail("%s is %s; a time is written as 2030-01-31T12:00:00Z or 2030-01-31 12:00:00.",
			quoted(name), quoted(text))
	}
	*dst = t
}

// count sets a number of clicks that the file has under this name.
func (b *builder) count(dst *int64, name, text string) {
	if text == "" {
		return
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		b.fail("%s is %s; it must be a whole number, without separators.",
			quoted(name), quoted(text))
	}
	*dst = n
}

// bool sets whether the link is disabled or locked, as the file says under this name.
func (b *builder) bool(dst *bool, name, text string) {
	is, ok := parseBool(text)
	if text != "" && !ok {
		b.fail("%s is %s; it must be true or false.", quoted(name), quoted(text))
	}
	*dst = is
}

// forward sets what the link forwards, by the names in the file.
func (b *builder) forward(names []string) {
	var err error
	if b.Link.Forward, err = link.ParseForward(names); err != nil {
		b.fail(`What is forwarded may be "query" and "path", not %s.`,
			quoted(strings.Join(names, ",")))
	}
}

// yield yields the record once for each of its aliases. Only the first one has the clicks. target
// is the name of the column or member with the target.
func (b *builder) yield(target string, yield func(Record)) {
	switch {
	case b.Link.LongURL == "":
		b.fail("There is no %s, which is where the link leads to.", target)
	case b.Total.Clicks < 0 || b.Total.Bots < 0:
		b.fail("Clicks cannot be negative.")
	}
	if len(b.custom) > maxCustom {
		b.fail("There are %d custom short URLs; there may be %d at most.", len(b.custom), maxCustom)
	}
	if b.Err != nil {
		yield(Record{Err: b.Err})
		return
	}
	if !b.own {
		b.Link.Title, b.Link.Tags = fit(b.Link.Title, link.MaxTitle), fitAll(b.Link.Tags)
	}
	if len(b.Link.Tags) == 0 {
		b.Link.Tags = nil
	}
	aliases := b.aliases()
	if len(aliases) == 0 && !b.own {
		yield(Record{Err: RecordError(
			"There is no alias: neither a short code nor a short URL with a path.")})
		return
	}
	if len(aliases) == 0 {
		yield(b.Record)
		return
	}
	for i, a := range aliases {
		rec := b.Record
		rec.Link.Name = a
		if i > 0 {
			rec.Total.Clicks, rec.Total.Bots, rec.Total.Last = 0, 0, time.Time{}
		}
		yield(rec)
	}
}

// fit returns a text of another program, without control characters and cut to most characters.
func fit(text string, most int) string {
	text = strings.Join(strings.FieldsFunc(text, unicode.IsControl), " ")
	runes := 0
	for i := range text {
		if runes++; runes > most {
			text = text[:i]
			break
		}
	}
	return strings.TrimSpace(text)
}

// fitAll returns the first tags of another program, as many as a link may have, each once and made
// fit.
func fitAll(tags []string) (all []string) {
	for _, tag := range tags {
		if len(all) == link.MaxTags {
			break
		}
		if tag = fit(tag, link.MaxTag); tag != "" && !slices.Contains(all, tag) {
			all = append(all, tag)
		}
	}
	return all
}

// aliases returns the aliases of the entry, each once.
func (b *builder) aliases() (aliases []link.Name) {
	seen := map[link.Name]bool{"": true}
	add := func(code string) {
		if a := link.Name(code); !seen[a] {
			seen[a] = true
			aliases = append(aliases, a)
		}
	}
	if b.code != "" {
		add(b.code)
	} else {
		add(pathOf(b.short))
	}
	for _, short := range b.custom {
		add(pathOf(short))
	}
	return aliases
}

// pathOf returns the path of a short URL without the slashes at its ends. The URL may lack its
// scheme. The whole path is the alias; its last segment alone would be another alias.
func pathOf(short string) string {
	if _, after, ok := strings.Cut(short, "://"); ok {
		short = after
	}
	if i := strings.IndexAny(short, "?#"); i >= 0 {
		short = short[:i]
	}
	_, path, _ := strings.Cut(short, "/")
	return strings.Trim(path, "/")
}

// parseBool parses true or false in the ways that programs write them, ignoring case.
func parseBool(text string) (is, ok bool) {
	switch strings.ToLower(text) {
	case "true", "yes", "1", "t":
		return true, true
	case "false", "no", "0", "f":
		return false, true
	}
	return false, false
}

// layouts are the forms of times in files, besides RFC 3339. Times without a zone are UTC.
var layouts = []string{
	time.DateTime,
	"2006-01-02T15:04:05-0700", // Bitly
	"2006-01-02T15:04:05",
	"2006-01-02 15:04", // spreadsheets
	time.DateOnly,
}

// parseTime parses a time, to the second. It returns the zero time for the date by which MySQL says
// that there is none.
func parseTime(text string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, text)
	for i := 0; err != nil && i < len(layouts); i++ {
		t, err = time.Parse(layouts[i], text)
	}
	if err != nil {
		return time.Time{}, text == "0000-00-00 00:00:00"
	}
	t = t.UTC().Truncate(time.Second)
	return t, 1 <= t.Year() && t.Year() <= 9999 // an offset may lead out of these years
}
