package funchost

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	whatwg "github.com/nlnwa/whatwg-url/url"
)

// HostilePaths match a POST route api/{*path}, and a forwarding host then sends them on as /reaper,
// the endpoint of a timer of that name. A constraint that excludes \ % ? # and space keeps all of
// them out.
var HostilePaths = []string{
	"/api/..%5Creaper", "/api/..%5creaper", "/API/..%5Creaper", "/api/.%5C..%5Creaper",
	"/api/%2e%2e%5Creaper",
	"/api/x%5C..%5C..%5Creaper", "/api/x/..%5C..%5Creaper", "/api/shorten%5C..%5C..%5Creaper",
	"/api/..%5C%2572eaper",
	"/api/%252e%252e/reaper", "/api/%252E%252E/reaper", "/api/.%252e/reaper",
	"/api/%252e%252e%5Creaper",
	"/api/x/%252e%252e/%252e%252e/reaper", "/api/%252e%252e/reaper%3Fcode=x%20",
	"/api/x%5C..%5C..%5Creaper%3Fy",
	"/api/..%5Creaper%20", "/api/..%5Creaper%23y", "/api/..%5Creaper%3Fy",
}

// These characters stand unescaped in a URI (RFC 3986), besides letters and digits.
const (
	unreserved = "-._~"
	pathChars  = unreserved + "!$&'()*+,;=:@/"
	uriChars   = pathChars + "?#[]"
)

var (
	encodedSlash = regexp.MustCompile(`(?i)%(2f)`)
	percent      = regexp.MustCompile(`(?i)%([0-9a-f]{2})?`)
	absoluteHTTP = regexp.MustCompile(`(?i)^(https?):[/\\]{2}([^/\\?#]*)([^?#]*)(.*)$`)
)

// requestPath returns a request's path as the host's web server reads it before it matches a route:
// percent-decoded once except for %2F, and without dot segments.
func requestPath(u *url.URL) string {
	sent := cmp.Or(u.RawPath, u.EscapedPath())
	// There is no error, since net/http rejects malformed escapes.
	path, _ := url.PathUnescape(encodedSlash.ReplaceAllString(sent, "%25$1"))
	return removeDots(path)
}

// forwardedPath returns the path that a forwarding host sends for a requestPath. The host puts the
// decoded path into a .NET Uri, which trims it and treats ? and # as delimiters.
func forwardedPath(path string) string {
	path = strings.TrimRight(path, " ")
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	return uriPath(path)
}

// absoluteURI rewrites a Location as .NET's Uri.AbsoluteUri does. It changes only absolute http and
// https URLs.
func absoluteURI(location string) string {
	m := absoluteHTTP.FindStringSubmatch(location)
	if m == nil {
		return location
	}
	// .NET's canonical form of scheme, host and port is the same as the URL standard's.
	origin, err := whatwg.Parse(m[1] + "://" + m[2])
	if err != nil {
		return location
	}
	return strings.TrimSuffix(origin.Href(false), "/") + cmp.Or(uriPath(m[3]), "/") +
		canonical(m[4])
}

// uriPath rewrites a path as .NET's Uri does.
func uriPath(path string) string {
	return removeDots(canonical(strings.ReplaceAll(path, `\`, "/")))
}

// canonical rewrites the characters of a URI as .NET's Uri does. It decodes unreserved characters,
// and encodes a bare % and characters that must not stand in a URI. It keeps the others as they
// are.
func canonical(s string) string {
	return escape(percent.ReplaceAllStringFunc(s, func(encoded string) string {
		switch c, err := url.PathUnescape(encoded); {
		case err != nil:
			return "%25"
		case escape(c, unreserved) == c:
			return c
		default:
			return encoded
		}
	}), uriChars+"%")
}

// removeDots removes the dot segments of a path (RFC 3986, section 5.2.4). It keeps percent signs
// as they are.
func removeDots(path string) string {
	return new(url.URL).ResolveReference(&url.URL{Path: path}).Path
}

// escape percent-encodes all bytes except letters, digits and those in safe.
func escape(s, safe string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte(safe, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// forwardedQuery returns a query as a forwarding host sends it. The host passes it through a
// dictionary: keys that differ only in case become one, and the values of one key are joined with
// commas.
func forwardedQuery(raw string) string {
	var keys, values []string
	for pair := range strings.SplitSeq(canonical(raw), "&") { // canonical, so decoding cannot fail
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		key, _ = url.QueryUnescape(key)
		value, _ = url.QueryUnescape(value)
		if i := slices.IndexFunc(keys, func(k string) bool {
			return strings.EqualFold(k, key)
		}); i >= 0 {
			values[i] += "," + value
		} else {
			keys, values = append(keys, key), append(values, value)
		}
	}
	const safe = unreserved + "!$()*,;@" // of .NET's UrlEncoder.Default
	for i, key := range keys {
		keys[i] = escape(key, safe) + "=" + escape(values[i], safe)
	}
	return strings.Join(keys, "&")
}
