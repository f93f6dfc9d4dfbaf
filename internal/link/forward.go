package link

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Forward says what of a request a redirect appends to the long URL. It is a set of bits.
type Forward uint8

// What a redirect can append.
const (
	ForwardQuery Forward = 1 << iota
	ForwardPath
)

var forwardNames = [...]string{"query", "path"} // by bit

// Names returns what is appended, by the names in the API. It is never nil.
func (f Forward) Names() []string {
	names := []string{}
	for i, name := range forwardNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// ParseForward returns what a caller asks for, in any case, since some clients capitalise such
// names. The error is an *InvalidError.
func ParseForward(names []string) (f Forward, err error) {
	for _, name := range names {
		i := slices.Index(forwardNames[:], LowerASCII(name))
		if i < 0 {
			return 0, &InvalidError{FieldForward, fmt.Sprintf(
				"A link can forward %q and %q: send a list of one or both, or an empty one.",
				forwardNames[0], forwardNames[1])}
		}
		f |= 1 << i
	}
	return f, nil
}

// checkForward returns an error if a link forwards something and one of its targets cannot take it,
// or if it is guarded: an opening has neither path nor query. The error is an *InvalidError.
func (l Link) checkForward() error {
	if l.Forward != 0 && l.Guarded() {
		return &InvalidError{FieldForward, "A link with a password or with maxOpens forwards " +
			"nothing: leave forward empty."}
	}
	if l.Forward != 0 && slices.ContainsFunc(l.Targets(), func(longURL string) bool {
		return !Link{LongURL: longURL}.CanForward()
	}) {
		return &InvalidError{FieldForward, "Only a link to an http or https URL can forward a " +
			"query or a path: leave forward empty."}
	}
	return nil
}

// CanForward reports whether something can be appended to the long URL. Another program may have
// written any long URL.
func (l Link) CanForward() bool {
	target, ok := split(l.LongURL)
	return ok && target.authority != ""
}

// Target returns where a request for the link leads. rest is what follows the alias in the path of
// the request, as it came: "", or a slash and more. query is the query of the request. ok is false
// if there is a rest, and the link does not forward it, or may not: it could lead out of the path
// of the long URL.
//
// No request can change the scheme or the host of the long URL, or its path before the rest.
func (l Link) Target(rest, query string) (target string, ok bool) {
	forward := l.Forward
	if forward != 0 && !l.CanForward() {
		forward = 0
	}
	if rest != "" && (forward&ForwardPath == 0 || leadsOut(rest)) {
		return "", false
	}
	if forward&ForwardQuery == 0 {
		query = ""
	}
	if rest == "" && query == "" {
		return l.LongURL, true
	}
	path, fragment := l.LongURL, ""
	if i := strings.IndexByte(path, '#'); i >= 0 {
		path, fragment = path[:i], path[i:]
	}
	path, own, has := strings.Cut(path, "?")
	if rest != "" {
		path = strings.TrimSuffix(path, "/") + escapeUnsafe(rest)
	}
	if query = escapeUnsafe(query); query != "" && own != "" && !strings.HasSuffix(own, "&") {
		own += "&"
	}
	if has || query != "" {
		path += "?" + own + query
	}
	return path + fragment, true
}

// leadsOut reports whether the rest of a path begins with two slashes, or has a piece that
// browsers, proxies or servers may take for "." or "..": some decode twice, and some end a segment
// at a backslash or a semicolon.
func leadsOut(rest string) bool {
	if strings.HasPrefix(rest, "//") {
		return true
	}
	return slices.ContainsFunc(strings.FieldsFunc(unescape(unescape(rest)),
		func(r rune) bool { return strings.ContainsRune(`/\;`, r) }),
		func(piece string) bool { return piece == "." || piece == ".." })
}

// unescape decodes what is percent-encoded in s once. It leaves a % that encodes nothing.
func unescape(s string) string {
	parts := strings.Split(s, "%")
	for i, part := range parts[1:] {
		n, err := strconv.ParseUint(part[:min(2, len(part))], 16, 8)
		if err != nil || len(part) < 2 {
			parts[i+1] = "%" + part
		} else {
			parts[i+1] = string([]byte{byte(n)}) + part[2:]
		}
	}
	return strings.Join(parts, "")
}

// escapeUnsafe percent-encodes what a query or a path cannot have in a Location header, or what
// browsers and proxies read in different ways.
func escapeUnsafe(s string) string {
	return escape(s, func(c byte) bool {
		return c <= ' ' || c >= 0x7f || strings.IndexByte("#\"<>\\^`{|}", c) >= 0
	})
}

// escape percent-encodes the bytes for which unsafe is true.
func escape(s string, unsafe func(byte) bool) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; unsafe(c) {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
