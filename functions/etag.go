package functions

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"tiney/link"
)

// etagOf returns the entity tag of a link: a strong one, since another version is another response. It is a hash because
// it tells nobody how links are stored.
func etagOf(l link.Link) string {
	sum := sha256.Sum256([]byte(l.Version))
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// etags are those of an If-Match or If-None-Match.
type etags struct {
	any  bool     // *
	list []string // as they were sent
}

var etagsProblem = badRequest("if-match", "Unreadable If-Match",
	`If-Match must be * or a list of entity tags, such as "33a64df551425fcc", with their quotes.`, "")

// parseETags parses the lines of an If-Match or If-None-Match header, which are one list (RFC 9110, sections 8.8.3 and
// 13.1.1). Tags may hold commas; empty elements count for nothing.
func parseETags(lines []string) (etags, error) {
	rest := strings.Join(lines, ",")
	if strings.Trim(rest, " \t") == "*" {
		return etags{any: true}, nil
	}
	var tags etags
	for {
		if rest = strings.TrimLeft(rest, " \t,"); rest == "" {
			break
		}
		opaque, _ := strings.CutPrefix(rest, "W/")
		if !strings.HasPrefix(opaque, `"`) {
			return etags{}, etagsProblem
		}
		length := strings.IndexByte(opaque[1:], '"')
		if length < 0 || strings.ContainsFunc(opaque[1:length+1], func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			return etags{}, etagsProblem
		}
		after := opaque[length+2:]
		tags.list = append(tags.list, rest[:len(rest)-len(after)])
		if rest = strings.TrimLeft(after, " \t"); rest != "" && rest[0] != ',' {
			return etags{}, etagsProblem
		}
	}
	if tags.list == nil {
		return etags{}, etagsProblem
	}
	return tags, nil
}

// match compares strongly, as If-Match asks: a weak tag is never the current one.
func (e etags) match(tag string) bool { return e.any || slices.Contains(e.list, tag) }

// matchWeakly compares weakly, as If-None-Match asks.
func (e etags) matchWeakly(tag string) bool {
	return e.match(tag) || slices.Contains(e.list, "W/"+tag)
}
