package formats

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

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
// 1970. The number of digits shows which. Other numbers may be days, years, or dates without
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
