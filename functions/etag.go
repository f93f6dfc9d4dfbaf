package functions

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// etagOf returns the strong entity tag of a version of a response. It is a hash, so that it does
// not reveal how links are stored.
func etagOf(version string) string {
	sum := sha256.Sum256([]byte(version))
	return `"` + hex.EncodeToString(sum[:8]) + `"`
}

// notModified reports whether a request has the current ETag in its If-None-Match.
func notModified(r *http.Request, etag string) bool {
	tags, err := parseETags(r.Header.Values("If-None-Match"))
	return err == nil && tags.match(etag)
}

// etags are the entity tags of an If-Match or If-None-Match header.
type etags struct {
	any  bool     // *
	list []string // verbatim
}

var etagsProblem = badRequest("if-match", "Unreadable If-Match",
	`If-Match must be * or a list of entity tags, such as "33a64df551425fcc", with their quotes.`,
	"")

const etagPattern = `(?:W/)?"[^\x00-\x20"\x7f]*"`

// etagList matches a list of entity tags. Its elements may be empty.
var (
	oneETag  = regexp.MustCompile(etagPattern)
	etagList = regexp.MustCompile(`^[ \t,]*(?:` + etagPattern + `[ \t]*(?:,[ \t,]*|$))+$`)
)

// parseETags parses the lines of an If-Match or If-None-Match header, which are one list (RFC 9110,
// sections 8.8.3 and 13.1.1). Tags may contain commas.
func parseETags(lines []string) (etags, error) {
	list := strings.Join(lines, ",")
	switch {
	case strings.Trim(list, " \t") == "*":
		return etags{any: true}, nil
	case !etagList.MatchString(list):
		return etags{}, etagsProblem
	}
	return etags{list: oneETag.FindAllString(list, -1)}, nil
}

// codings matches what proxies that compress a response put behind its tag, such as the -gzip of
// Apache and the --gzip of Jetty.
var codings = regexp.MustCompile(
	`^([-;:.+_/]+(?i:x-gzip|gzip|deflate|br|brotli|zstd|compress|dcb|dcz|df|identity))+$`)

// match reports whether one of the tags is the tag of the current version, as it is or as a proxy
// has changed it: made weak, or with the name of a coding. RFC 9110 has If-Match compare strongly,
// because a weak tag may stand for other bytes. Here a tag names a version, whatever its bytes.
func (e etags) match(tag string) bool {
	return e.any || slices.ContainsFunc(e.list, func(given string) bool {
		given = strings.TrimPrefix(given, "W/")
		suffix, ok := strings.CutPrefix(given, strings.TrimSuffix(tag, `"`))
		return given == tag || ok && codings.MatchString(strings.TrimSuffix(suffix, `"`))
	})
}
