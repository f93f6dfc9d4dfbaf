package link

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	whatwg "github.com/nlnwa/whatwg-url/url"
	"golang.org/x/net/idna"
)

// Limits of a long URL, in bytes. MaxLocationBytes limits its ASCII form, so that proxies and
// browsers accept the Location header of a redirect.
const (
	MaxLongURLBytes  = 4096
	MaxLocationBytes = 8192
)

const (
	// maxAuthority is the length of the longest authority that is parsed, in bytes. The time to
	// convert punycode grows with the square of a label's length.
	maxAuthority = 1024
	// maxHost is the longest name that DNS can look up, in bytes (RFC 1035).
	maxHost = 253
)

// checkTarget returns what is wrong with longURL as the target of a link, in words for the caller.
// It returns "" if nothing is wrong. A link that is owned may have an extra scheme.
func (r Rules) checkTarget(longURL string, owned bool) string {
	switch {
	case longURL == "":
		return "The URL is missing: send the one to shorten, such as https://example.com/page."
	case len(longURL) > MaxLongURLBytes:
		return fmt.Sprintf("The URL is %d bytes long; at most %d are accepted.", len(longURL),
			MaxLongURLBytes)
	case !utf8.ValidString(longURL):
		return "The URL is not valid UTF-8."
	}
	for _, c := range longURL {
		switch {
		case unicode.IsSpace(c) || unicode.IsControl(c):
			return fmt.Sprintf("The URL contains white space or a control character (%U); "+
				"percent-encode it.", c)
		case c == '\\':
			return "The URL contains a backslash; write / or %5C."
		}
	}
	target, ok := split(longURL)
	extra := false
	if !ok && owned {
		target, extra = r.splitExtra(longURL)
	}
	switch {
	case extra && target.empty():
		return "The URL ends after its scheme."
	case !ok && !extra:
		return "The URL must start with http:// or https://" + r.extraWords(owned) + "."
	case target.authority == "" &&
		(ok || slices.Contains(hostSchemes, LowerASCII(target.scheme))):
		return "The URL has no host."
	case extra: // apps have rules of their own for what they open
		return r.checkHostAndLength(HostOf(longURL), longURL)
	case strings.Contains(target.authority, "@"):
		return "The URL contains a user name or password; remove everything before the @ and the " +
			"@ itself."
	// The parser below accepts any number of brackets around an IPv6 address. The standard allows
	// only one pair.
	case strings.Count(target.authority, "[") > 1 || strings.Count(target.authority, "]") > 1:
		return "The URL's host has too many brackets."
	}
	host, err := browserHost(target.authority)
	switch {
	case errors.Is(err, errTooLong):
		return fmt.Sprintf("The URL's host is too long: a domain name has at most %d characters.",
			maxHost)
	case err != nil:
		// The message omits the parser's own error, which quotes the URL and could reach a log.
		return "The URL is not valid for a browser: check its host and port."
	}
	h := canonical(host)
	if h == "http" || h == "https" || strings.HasSuffix(target.authority, ":") &&
		strings.HasPrefix(target.rest, "//") {
		return "The URL has its scheme twice, or one without its colon: it must start with " +
			"http:// or https:// once."
	}
	if c, is := markIn(host); is {
		return fmt.Sprintf("The URL's host contains a mark that no domain can have (%U): remove "+
			"it, and any others around the URL.", c)
	}
	return r.checkHostAndLength(h, longURL)
}

// markIn returns the first punctuation that no domain can have in a host that the parser has
// written. Such a mark is pasted together with a URL.
func markIn(host string) (rune, bool) {
	// The last ones belong to words: in Catalan, Japanese, Hebrew and Tibetan (RFC 5892, 2.6).
	const allowed = "-_.:[]" + "·・׳״་"
	readable, _ := idna.Punycode.ToUnicode(host)
	for _, c := range readable {
		// Unicode takes a backtick, which stands around code, for a symbol.
		if (unicode.IsPunct(c) || c == '`') && !strings.ContainsRune(allowed, c) {
			return c, true
		}
	}
	return 0, false
}

// checkHostAndLength returns what is wrong with a long URL that leads to a host, or "".
func (r Rules) checkHostAndLength(h Host, longURL string) string {
	if r.own(h) {
		return "The URL leads to the host of this URL shortener itself; send the URL that the " +
			"link should lead to."
	}
	if len(Location(longURL)) > MaxLocationBytes {
		return fmt.Sprintf("The URL is longer than %d bytes once it is percent-encoded.",
			MaxLocationBytes)
	}
	return ""
}

// hostSchemes are schemes after which browsers read a host without slashes too, besides http and
// https.
var hostSchemes = []string{"ftp", "ws", "wss"}

// splitExtra is split for a URL with an extra scheme, which may have no authority.
func (r Rules) splitExtra(longURL string) (parts, bool) {
	scheme, rest, ok := strings.Cut(longURL, ":")
	if !ok || !slices.Contains(r.ExtraSchemes, LowerASCII(scheme)) {
		return parts{}, false
	}
	target := parts{scheme: scheme, rest: rest}
	if after, has := strings.CutPrefix(rest, "//"); has {
		target.authority, target.rest = cutAuthority(after)
	}
	return target, true
}

// extraWords lists the extra schemes, for a caller who may use them.
func (r Rules) extraWords(owned bool) string {
	if !owned || len(r.ExtraSchemes) == 0 {
		return ""
	}
	return ", or with one of " + strings.Join(r.ExtraSchemes, ":, ") + ":"
}

// Location returns the ASCII form of a long URL for the Location header: the URL itself if it is
// printable ASCII. Otherwise its host is in punycode, and all other non-ASCII characters are
// percent-encoded as UTF-8. The result is printable ASCII for any input, because another program
// may have written the row.
func Location(longURL string) string {
	if visibleASCII(longURL) {
		return longURL
	}
	target, ok := split(longURL)
	if !ok || visibleASCII(target.authority) {
		return percentEncode(longURL)
	}
	host, err := target.host()
	if err != nil || !visibleASCII(host) {
		return percentEncode(longURL) // browsers accept a percent-encoded host too
	}
	_, port := splitPort(target.authority)
	host += port
	return target.scheme + "://" + percentEncode(host) + percentEncode(target.rest)
}

// ASCII returns the Location of a long URL with the host as a browser reads it, for people: a host
// may be spelled in percent-encoding, or an address as one number.
func ASCII(longURL string) string {
	location := Location(longURL)
	target, ok := split(location)
	name, port := splitPort(target.authority)
	host := string(HostOf(location))
	if !ok || host == "" || strings.Contains(name, "@") ||
		strings.EqualFold(strings.TrimRight(name, "."), host) {
		return location
	}
	return target.scheme + "://" + host + port + target.rest
}

// parts are the pieces of an http or https URL, unchanged.
type parts struct {
	scheme, authority, rest string
}

// empty reports whether nothing after the scheme leads anywhere. A query does, as in
// mailto:?subject=news, which has no address (RFC 6068).
func (p parts) empty() bool {
	rest, _, _ := strings.Cut(p.rest, "#")
	path, query, _ := strings.Cut(rest, "?")
	return strings.Trim(p.authority+path, "/") == "" && !strings.Contains(query, "=")
}

func split(longURL string) (parts, bool) {
	scheme, after, ok := strings.Cut(longURL, "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return parts{}, false
	}
	target := parts{scheme: scheme}
	target.authority, target.rest = cutAuthority(after)
	return target, true
}

// cutAuthority splits what follows the // of a URL behind its authority.
func cutAuthority(after string) (authority, rest string) {
	if end := strings.IndexAny(after, "/?#"); end >= 0 {
		return after[:end], after[end:]
	}
	return after, ""
}

// capitalSharpS matches what the parser converts to ss. Browsers convert it to ß, which is another
// domain.
var capitalSharpS = regexp.MustCompile(`ẞ|(?i:%e1%ba%9e)`)

// host returns the host that a browser connects to, without the port.
func (p parts) host() (string, error) {
	parsed, err := p.parse()
	if err != nil {
		return "", err
	}
	return parsed.Hostname(), nil
}

// parse parses only the scheme and the authority. The rest cannot make a URL invalid, and would
// cost the parser 100 ns and an allocation per character.
func (p parts) parse() (*whatwg.Url, error) {
	if len(p.authority) > maxAuthority {
		return nil, errTooLong
	}
	authority := p.authority
	if strings.ContainsAny(authority, "%ẞ") { // the pattern is slow, and takes 32 KB for its work
		authority = capitalSharpS.ReplaceAllString(authority, "ß")
	}
	return whatwg.Parse(p.scheme + "://" + authority)
}

var errTooLong = errors.New("the host is too long")

// misread reports whether the parser and browsers understand different hosts by the authority. The
// parser reads a number with a sign as an address, and drops an empty punycode label.
func (p parts) misread(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil &&
		strings.Trim(p.authority, "0123456789abcdefABCDEFxX.:") != "" {
		return true
	}
	return slices.ContainsFunc(strings.FieldsFunc(
		p.authority, func(r rune) bool { return strings.ContainsRune(".。．｡:", r) }),
		func(label string) bool { return strings.EqualFold(label, "xn--") })
}

// visibleASCII reports whether s has only printable ASCII characters and no spaces.
func visibleASCII(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}
	return true
}

// percentEncode escapes every byte that is not printable ASCII.
func percentEncode(s string) string {
	return escape(s, func(c byte) bool { return c <= ' ' || c >= 0x7f })
}
