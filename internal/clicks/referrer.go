package clicks

import "strings"

const (
	// maxHostName is how long a referrer may be, in bytes. A DNS name may have 253, but hardly any
	// name that people visit has 64.
	maxHostName = 64
	// maxAuthority is how many bytes are searched for the end of the host. A header may have 32
	// KiB.
	maxAuthority = 512
)

// endsAuthority has the bytes that may follow a host. Browsers take a backslash for a slash.
var endsAuthority = [256]bool{'/': true, '\\': true, '?': true, '#': true}

// Referrer returns the host of a Referer header, in lower case, without port, user information and
// trailing dot. It returns "(direct)" if the header is empty. It returns Other if the header is not
// an http or https URL, if the host has more than 64 bytes, or if the host has anything but ASCII
// letters, digits, hyphens and single dots. So IPv6 addresses and international names are Other,
// but browsers send international names as Punycode.
//
// It allocates only if the scheme or the host has upper-case letters, which browsers do not send.
// Otherwise the result is a part of header and keeps all of it in memory, so a caller that
// stores the result must clone it.
func Referrer(header string) string {
	if header == "" {
		return "(direct)"
	}
	header = header[:min(len(header), len("https://")+maxAuthority)]
	host, secure := strings.CutPrefix(header, "https://") // nearly always
	if !secure {
		var scheme string
		scheme, host, _ = strings.Cut(header, "://")
		if scheme = strings.ToLower(scheme); scheme != "https" && scheme != "http" {
			return Other
		}
	}
	end := 0
	for end < len(host) && !endsAuthority[host[end]] {
		end++
	}
	if end >= maxAuthority {
		return Other
	}
	host = host[:end]
	host = host[strings.LastIndexByte(host, '@')+1:]
	host, port, _ := strings.Cut(host, ":")
	host = strings.TrimSuffix(host, ".")
	if len(host) > maxHostName || strings.Trim(port, "0123456789") != "" {
		return Other
	}
	before := byte('.')
	for i := range len(host) {
		switch c := host[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '.' &&
			before != '.':
			before = c
		default:
			return Other
		}
	}
	if before == '.' { // it ends in a dot, or is empty
		return Other
	}
	return strings.ToLower(host)
}
