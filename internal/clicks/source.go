package clicks

import (
	"net/url"
	"strings"
)

// None stands, among Sources, for clicks without a source. No Click has it as a name: it is what
// Sources lack of Referrers, so that links that nobody gives a source take no room for it.
const None = "(none)"

const (
	maxSource   = 64 // bytes
	sourceBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."
)

// Source returns the value of the first parameter utm_source of a query, as ParseSource does. The
// result may be a part of query.
func Source(query string) string {
	for parameter := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(parameter, "=")
		if name != "utm_source" { // most are not
			if name, err := url.QueryUnescape(name); err != nil || name != "utm_source" {
				continue
			}
		}
		source, err := url.QueryUnescape(value)
		if err != nil {
			return Other
		}
		return ParseSource(source)
	}
	return ""
}

// ParseSource returns a source in lower case, and Other for one that has more than 64 characters,
// or others than ASCII letters, digits, hyphens, underscores and dots.
func ParseSource(text string) string {
	if len(text) > maxSource || strings.Trim(text, sourceBytes) != "" {
		return Other
	}
	return strings.ToLower(text)
}
