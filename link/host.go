package link

import (
	"errors"
	"net/netip"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Host is a host in the one spelling that stands for all of them: a name in lower case and
// punycode, without dots at its end; an IPv4 address of four decimal numbers, in place of the IPv6
// address that it is mapped into too; any other IPv6 address in brackets, as RFC 5952 writes it.
type Host string

// BlockedHost is a host to which, and to all below which, no link may lead.
type BlockedHost struct {
	Host      Host
	CreatedAt time.Time // zero: not known
}

// ParseHost returns the host that a browser takes a spelling for. It reports false if that is no
// host, or has a user name, a port or a path; and for a name with a *, which no host on the
// internet has: who writes that means all hosts below another.
func ParseHost(spelled string) (Host, bool) {
	switch {
	case !utf8.ValidString(spelled), strings.ContainsAny(spelled, `/\?#@*`),
		strings.ContainsFunc(spelled, func(r rune) bool {
			return unicode.IsSpace(r) ||
				unicode.IsControl(r)
		}),
		strings.Contains(spelled, ":") &&
			(spelled[0] != '[' || strings.IndexByte(spelled, ']') != len(spelled)-1),
		strings.LastIndexByte(spelled, '[') > 0:
		return "", false
	}
	return hostAt(spelled)
}

// HostOf returns the host that Location leads a browser to, and "" if it leads to none. A long URL
// that keeps the rules always has one. Another program may have written anything: of that, what a
// browser would complete to an http or https URL with a host counts as one, such as
// https:\example.com; what has another scheme or none, no valid host, or one of more than 253
// characters, has no host.
func HostOf(longURL string) Host {
	if host := plainHost(longURL); host != "" {
		return host
	}
	const slashes = `/\`
	scheme, rest, _ := strings.Cut(longURL, ":")
	if !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		if rest = longURL; len(rest) < 2 || strings.Trim(rest[:2], slashes) != "" {
			return ""
		}
	}
	rest = strings.TrimLeft(rest, slashes)
	if end := strings.IndexAny(rest, slashes+"?#"); end >= 0 {
		rest = rest[:end]
	}
	host, _ := hostAt(rest[strings.LastIndexByte(rest, '@')+1:])
	return host
}

// plainHost returns the host of a URL in which it can be read off, as in most, and else "". It
// allocates nothing.
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
	if after != "" && after[0] == ':' { // a port, or else a password follows
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
		// With another label behind it is no address, and the parser returns the characters that
		// browsers read one from.
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

// browserHost returns the host that a browser connects to, of an authority without a user name. The
// error says why it connects to none, or that the parser cannot tell.
func browserHost(authority string) (string, error) {
	p := parts{scheme: "http", authority: authority}
	host, err := p.host()
	switch {
	case err != nil:
		return "", err
	case len(host) > maxHost+1: // one for a trailing dot
		return "", errTooLong
	case strings.Trim(host, ".") == "", p.misread(host):
		return "", errMisread
	}
	return host, nil
}

var errMisread = errors.New("browsers take the host for another one, or for none")

// canonical returns a host that the parser has written.
func canonical(host string) Host {
	if strings.HasPrefix(host, "[") {
		if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && a.Is4In6() {
			return Host(a.Unmap().String())
		}
	}
	return Host(strings.TrimRight(host, "."))
}

// Hosts are hosts that stand for themselves and for all below them.
type Hosts map[Host]struct{}

// Cover reports whether a long URL leads to one of the hosts, or below one.
func (hs Hosts) Cover(longURL string) bool {
	if len(hs) == 0 {
		return false
	}
	// Nothing is below an address: what follows a dot of it is never in hs, since the last label of
	// a name is no number.
	for rest := string(HostOf(longURL)); rest != ""; _, rest, _ = strings.Cut(rest, ".") {
		if _, ok := hs[Host(rest)]; ok {
			return true
		}
	}
	return false
}
