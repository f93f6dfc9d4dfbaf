package formats

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"tiney/internal/link"
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

// protected refuses the record if its link asks for a password.
func (b *builder) protected(is bool) {
	if is {
		b.fail("The link asks for a password, which no link can here: it would lead everybody to " +
			"its target. Take the password away, or leave it out.")
	}
}

// date sets a date in the past. One that cannot be read costs the date, and not the link.
func (b *builder) date(dst *time.Time, text string) {
	if t, ok := parseTime(text); ok && t.Unix() >= 0 {
		*dst = t
	}
}

// end sets when the link ends, as the file says under this name. If that cannot be read, it is an
// error, because the link would never end.
func (b *builder) end(name, text string) {
	if nothing(text) {
		return
	}
	t, ok := parseTime(text)
	if !ok {
		b.fail("%s is %s; a time is written as 2030-01-31T12:00:00Z or 2030-01-31 12:00:00.",
			quoted(name), quoted(text))
	}
	b.Link.ExpiresAt = t
}

// bool sets whether the link is disabled or locked, as the file says under this name.
func (b *builder) bool(dst *bool, name, text string) {
	is, ok := parseBool(text)
	if !nothing(text) && !ok {
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
	if b.Link.LongURL == "" {
		b.fail("There is no %s, which is where the link leads to.", target)
	}
	if len(b.custom) > maxCustom {
		b.fail("There are more than %d custom short URLs.", maxCustom)
	}
	aliases := b.aliases()
	if len(aliases) == 0 && !b.own {
		b.fail("There is no alias: neither a short code nor a short URL with a path.")
	}
	if b.Err != nil {
		wrong := Record{Err: b.Err}
		if len(aliases) > 0 {
			wrong.Link.Name = aliases[0]
		}
		yield(wrong)
		return
	}
	if !b.own {
		b.Link.Title, b.Link.Tags = fit(b.Link.Title, link.MaxTitle), fitAll(b.Link.Tags)
	}
	if len(b.Link.Tags) == 0 {
		b.Link.Tags = nil
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
	var runes []rune
	for words := range strings.FieldsFuncSeq(text, unicode.IsControl) {
		if len(runes) > 0 {
			runes = append(runes, ' ')
		}
		for _, r := range words {
			if len(runes) >= most {
				return strings.TrimSpace(string(runes[:most]))
			}
			runes = append(runes, r)
		}
	}
	return strings.TrimSpace(string(runes))
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
// scheme, and its host: then it is the path. The whole path is the alias; its last segment alone
// would be another alias.
func pathOf(short string) string {
	if !strings.ContainsAny(short, "/.:?#") {
		return short
	}
	if _, after, ok := strings.Cut(short, "://"); ok {
		short = after
	}
	if i := strings.IndexAny(short, "?#"); i >= 0 {
		short = short[:i]
	}
	_, path, _ := strings.Cut(short, "/")
	return strings.Trim(path, "/")
}

// nothing reports whether a text stands for no value: in databases, JavaScript, Python or pandas.
func nothing(text string) bool {
	switch strings.ToLower(text) {
	case "", "null", `\n`, "undefined", "none", "nan", "nat":
		return true
	}
	return strings.HasPrefix(text, "0000-00-00") // MySQL's date
}

// parseBool parses true or false in the ways that programs write them, ignoring case.
func parseBool(text string) (is, ok bool) {
	switch strings.ToLower(text) {
	case "true", "yes", "1", "1.0", "t":
		return true, true
	case "false", "no", "0", "0.0", "f":
		return false, true
	}
	return false, false
}

const (
	maxWhole = 1 << 53 // the largest whole number that every program can have read
	maxValue = 100     // no number or time is longer, in bytes
)

// wholes matches whole numbers in groups of three digits, or with decimals that are zero. Of
// several readings the first one counts: 1,000 is a thousand, and 1.000 is one, as programs write
// it.
var wholes = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^\+?(\d{1,3}(?:,\d{3})+|\d{1,3}(?:\.\d{3}){2,}` +
		`|\d{1,3}(?:[ \x{a0}\x{2009}\x{202f}'’]\d{3})+|\d+)(?:[.,]0*)?$`)
})

// parseWhole parses a whole number from 0 to maxWhole, in the ways that programs and spreadsheets
// write it.
func parseWhole(text string) (int64, bool) {
	if text = strings.TrimSpace(text); text == "" || len(text) > maxValue {
		return 0, false
	}
	if n, err := strconv.ParseInt(text, 10, 54); err == nil && n >= 0 { // most are so
		return n, true
	}
	if digits := wholes().FindStringSubmatch(text); digits != nil {
		n, err := strconv.ParseInt(strings.Map(func(r rune) rune {
			if r < '0' || '9' < r {
				return -1
			}
			return r
		}, digits[1]), 10, 64)
		if err != nil || n > maxWhole {
			return 0, false
		}
		return n, true
	}
	f, err := strconv.ParseFloat(text, 64) // such as 1e3
	if err != nil || f < 0 || f > maxWhole || f != math.Trunc(f) {
		return 0, false
	}
	return int64(f), true
}

// dates and zones are the forms of times in files, besides RFC 3339. Times without a zone are UTC.
// No form has numbers for both day and month in another order than ISO 8601 has them.
var (
	dates = []string{
		"2006-1-2 15:04:05",
		"2006-1-2T15:04:05",
		"2006-1-2 15:04", // spreadsheets
		"2006-1-2T15:04",
		"2006-1-2 3:04:05 PM",
		"2006-1-2",
		"2 Jan 2006 15:04:05",     // RFC 1123
		"Mon Jan 2 2006 15:04:05", // JavaScript
	}
	zones = []string{"", "Z07:00", "Z0700", "Z07"}
)

// separators replaces separators in times by those of dates and zones.
var separators = strings.NewReplacer("/", "-", " GMT", "", " UTC", "", " Z", "Z", " +", "+",
	" -", "-")

// parseTime parses a time, to the second.
func parseTime(text string) (time.Time, bool) {
	if text = strings.TrimSpace(text); text == "" || len(text) > maxValue {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t, err = looseTime(text)
	}
	t = t.UTC().Truncate(time.Second)
	return t, err == nil && 1 <= t.Year() && t.Year() <= 9999 // an offset may lead out of these
}

// looseTime parses a time in another form than RFC 3339.
func looseTime(text string) (t time.Time, err error) {
	whole, fraction, _ := strings.Cut(text, ".")
	if strings.Trim(whole+fraction, "0123456789") == "" {
		return sinceEpoch(whole)
	}
	if before, after, ok := strings.Cut(text, ", "); ok && len(before) == len("Mon") {
		text = after
	}
	text, _, _ = strings.Cut(text, " (") // the name of a zone
	text = separators.Replace(text)
	for _, date := range dates {
		for _, zone := range zones {
			if t, err = time.Parse(date+zone, text); err == nil {
				return t, nil
			}
		}
	}
	return time.Time{}, err
}

// sinceEpoch parses a number of seconds, or of milliseconds, microseconds or nanoseconds, since
// 1970. The number of digits tells which. Other numbers may be days, years, or dates without
// separators.
func sinceEpoch(whole string) (time.Time, error) {
	unit := int64(0)
	switch len(whole) {
	case 9, 10, 11:
		unit = 1
	case 13:
		unit = 1e3
	case 16:
		unit = 1e6
	case 19:
		unit = 1e9
	default:
		return time.Time{}, strconv.ErrRange
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	return time.Unix(n/unit, 0), err
}
