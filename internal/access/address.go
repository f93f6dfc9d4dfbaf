package access

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// Addresses finds the addresses of clients.
type Addresses struct {
	// Header is the canonical name of a header with a list. Each proxy appends the address from
	// which it got the request.
	Header string
	Hops   int  // how many proxies are trusted; 0: the address is the connection's
	Hosted bool // the connection is the Functions host's
}

// Of returns the address of a request's client. That is the entry of the outermost trusted proxy,
// the Hops-th from the right; several header lines are one list. If there is no such entry or it is
// not an address, Of returns the address of the connection, or the zero Addr if the connection has
// none. It unmaps IPv4-mapped IPv6 addresses, and drops zones. An address is personal data and must
// not be logged.
//
// Behind the Functions host, a loopback, private or link-local address belongs to the host or the
// platform, and all clients share it. Of then returns the zero Addr.
//
// An empty entry counts like any other. Otherwise a client could move its own text to the place of
// a proxy's entry.
func (a Addresses) Of(r *http.Request) netip.Addr {
	address := parseAddress(a.entry(r.Header))
	if !address.IsValid() {
		address = parseAddress(r.RemoteAddr)
	}
	if a.Hosted && (address.IsLoopback() || address.IsPrivate() || address.IsLinkLocalUnicast()) {
		return netip.Addr{}
	}
	return address
}

// entry returns the Hops-th entry from the right, or "" if the list is too short.
func (a Addresses) entry(h http.Header) string {
	if a.Hops == 0 {
		return ""
	}
	lines, left := h[a.Header], a.Hops
	for i := len(lines) - 1; i >= 0; i-- {
		for line, more := lines[i], true; more; left-- {
			comma := strings.LastIndexByte(line, ',')
			if left == 1 {
				return line[comma+1:]
			}
			line, more = line[:max(comma, 0)], comma >= 0
		}
	}
	return ""
}

// maxAddress is longer than any address with brackets and port. Longer text is not parsed.
const maxAddress = 64

// parseAddress parses an address. It may have a port, and brackets around IPv6. It returns the zero
// Addr for anything else.
func parseAddress(text string) netip.Addr {
	host := strings.Trim(text, " \t")
	if host == "" || len(host) > maxAddress {
		return netip.Addr{}
	}
	port := ""
	if host[0] == '[' {
		end := strings.LastIndexByte(host, ']')
		if end < 0 {
			return netip.Addr{}
		}
		host, port = host[1:end], host[end+1:]
	} else if strings.Count(host, ":") == 1 {
		colon := strings.IndexByte(host, ':')
		host, port = host[:colon], host[colon:]
	}
	if digits, ok := strings.CutPrefix(port, ":"); ok {
		if _, err := strconv.ParseUint(digits, 10, 16); err != nil {
			return netip.Addr{}
		}
	} else if port != "" {
		return netip.Addr{}
	}
	address, _ := netip.ParseAddr(host)
	return address.Unmap().WithZone("")
}
