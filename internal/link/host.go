package link

import (
	"errors"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Host is a host in its canonical spelling. A name is in lower case and punycode, without dots at
// its end. An IPv4 address has four decimal numbers; an IPv6 address that maps an IPv4 address is
// written as that address. Any other IPv6 address is in brackets, as RFC 5952 writes it.
type Host string

// BlockedHost is a host that no link may lead to. The same goes for all hosts below it.
type BlockedHost struct {
	Host      Host
	CreatedAt time.Time // zero: not known
}

// ParseHost returns the host that a browser understands by a spelling. It reports false if the
// spelling is not a host, or has a user name, a port or a path. It also reports false for a name
// with punctuation that no domain can have, such as a *, which people write to mean all hosts below
// another one.
func ParseHost(spelled string) (Host, bool) {
	switch {
	case !utf8.ValidString(spelled), strings.ContainsAny(spelled, `/\?#@`),
		strings.ContainsFunc(spelled, func(r rune) bool {
			return unicode.IsSpace(r) ||
				unicode.IsControl(r)
		}),
		strings.Contains(spelled, ":") &&
			(spelled[0] != '[' || strings.IndexByte(spelled, ']') != len(spelled)-1),
		strings.LastIndexByte(spelled, '[') > 0:
		return "", false
	}
	host, ok := hostAt(spelled)
	if _, marked := markIn(string(host)); marked {
		return "", false
	}
	return host, ok
}

// HostOf returns the host that the Location of longURL leads a browser to, and "" if it leads to
// none. A long URL that keeps the rules always has a host. Another program may have written
// anything else. If a browser would complete that to an http or https URL with a host, as it does
// with https:\example.com, HostOf returns the host. It returns "" if the URL has another scheme and
// no // behind it, or no scheme, or if its host is invalid or has more than 253 characters.
func HostOf(longURL string) Host {
	if host := plainHost(longURL); host != "" {
		return host
	}
	if !utf8.ValidString(longURL) {
		longURL = percentEncode(longURL) // as Location does
	}
	const slashes = `/\`
	scheme, rest, _ := strings.Cut(longURL, ":")
	switch {
	case len(longURL) >= 2 && strings.Trim(longURL[:2], slashes) == "":
		rest = longURL
	case !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") &&
		(!strings.HasPrefix(rest, "//") || strings.ContainsAny(scheme, slashes+"?#")):
		return ""
	}
	rest = strings.TrimLeft(rest, slashes)
	if end := strings.IndexAny(rest, slashes+"?#"); end >= 0 {
		rest = rest[:end]
	}
	host, _ := hostAt(rest[strings.LastIndexByte(rest, '@')+1:])
	return host
}

// plainHost returns the host of a URL if the URL spells it in its canonical form, as most URLs do,
// and "" otherwise. It allocates nothing.
func plainHost(longURL string) Host {
	rest, ok := strings.CutPrefix(longURL, "https://")
	if !ok {
		if rest, ok = strings.CutPrefix(longURL, "http://"); !ok {
			return ""
		}
	}
	label, end := 0, 0 // where the last label begins and ends
	for ; end < len(rest); end++ {
		c := rest[end]
		if c == '.' {
			label = end + 1
		} else if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			break
		}
	}
	if label == end || rest[label] < 'a' { // it may be an address
		return ""
	}
	after := rest[end:]
	if after != "" && after[0] == ':' { // a port or, if anything but digits follows, a password
		after = strings.TrimLeft(after[1:], "0123456789")
	}
	if after != "" && !strings.ContainsRune("/?#", rune(after[0])) {
		return ""
	}
	return Host(rest[:end])
}

// hostAt returns the host of an authority without a user name.
func hostAt(authority string) (Host, bool) {
	host, err := browserHost(authority)
	if errors.Is(err, errMisread) {
		// With another label appended, the host is not an address, so the parser returns the
		// characters from which browsers read an address.
		name, _, _ := strings.Cut(authority, ":")
		if host, err = browserHost(name + ".x"); err == nil {
			host, err = browserHost(strings.TrimSuffix(host, ".x"))
		}
	}
	if err != nil {
		return "", false
	}
	if strings.HasSuffix(host, "..") { // without these dots it may be an address
		return hostAt(strings.TrimRight(host, "."))
	}
	return canonical(host), true
}

// browserHost returns the host that a browser connects to for an authority without a user name. The
// error says why the browser connects to none, or that the parser does not know the host.
func browserHost(authority string) (string, error) {
	p := parts{scheme: "http", authority: authority}
	host, err := p.host()
	switch {
	case err != nil:
		return "", err
	case len(strings.TrimSuffix(host, ".")) > maxHost:
		return "", errTooLong
	case strings.Trim(host, ".") == "", p.misread(host):
		return "", errMisread
	}
	return host, nil
}

var errMisread = errors.New("browsers take the host for another one, or for none")

// canBeName reports whether DNS can have a name that the parser has written (RFC 1035): no label is
// empty or has more than 63 characters. Addresses keep this too.
func canBeName(host string) bool {
	host = strings.TrimSuffix(host, ".")
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
	}
	return len(host) <= maxHost
}

// canonical returns the canonical spelling of a host that the parser has written.
func canonical(host string) Host {
	if strings.HasPrefix(host, "[") {
		if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && a.Is4In6() {
			return Host(a.Unmap().String())
		}
	}
	return Host(strings.TrimRight(host, "."))
}

// Hosts is a set of hosts. Each stands for itself and for all hosts below it.
type Hosts map[Host]struct{}

// Cover reports whether a long URL leads to one of the hosts, or below one.
func (hs Hosts) Cover(longURL string) bool {
	if len(hs) == 0 {
		return false
	}
	// No host is below an address. The text after a dot of an address is never in hs, because the
	// last label of a name is never a number.
	for rest := string(HostOf(longURL)); rest != ""; _, rest, _ = strings.Cut(rest, ".") {
		if _, ok := hs[Host(rest)]; ok {
			return true
		}
	}
	return false
}
