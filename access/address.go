package access

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// Addresses tells whose address a request comes from.
type Addresses struct {
	Header string // a list, to whose end each proxy adds the address that it got the request from
	Hops   int    // how many proxies may be believed; 0: the address is the connection's
	Hosted bool   // the connection is the Functions host's
}

// Of returns the address of a request's client: the entry of the outermost proxy that may be believed, which is the Hops-th
// from the right, several header lines being one list. If there is no such entry or it is no address, it is the address
// of the connection, and the zero Addr if that has none. An IPv4 address in an IPv6 one is an IPv4 address, and no address
// has a zone. It is personal data, and belongs in no log.
//
// Behind the Functions host, a loopback, private or link-local address is that of the host or of
// the platform, which all clients would share, and the address is the zero Addr.
//
// An empty entry counts like any other: else what a client wrote could move to where a proxy's entry should be.
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

// entry reads the list from its end, no further than it has to, and returns "" if it is too short.
func (a Addresses) entry(h http.Header) string {
	if a.Hops == 0 {
		return ""
	}
	lines, left := h.Values(a.Header), a.Hops
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

// maxAddress is longer than any address with brackets and port, so that nothing long is parsed.
const maxAddress = 64

// parseAddress reads an address that may have a port, and brackets around IPv6. It returns the zero Addr for anything else.
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
	} else if colon := strings.IndexByte(host, ':'); colon >= 0 && colon == strings.LastIndexByte(host, ':') {
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
