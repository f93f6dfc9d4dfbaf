package clicks

import "strings"

const (
	// maxHostName is how long a referrer may be, in bytes. A DNS name may have 253; hardly any that
	// people visit has 64.
	maxHostName = 64
	// maxAuthority bounds where the end of the host is looked for; a header may have 32 KiB.
	maxAuthority = 512
)

// Referrer returns the host of a Referer header, in lower case, without port, user information and
// trailing dot: "(direct)" where the header is empty, and Other for what is no http or https URL,
// for hosts of more than 64 bytes, and for those that have anything but ASCII letters, digits,
// hyphens and single dots: addresses of IPv6, and international names, which browsers send as
// Punycode.
//
// It allocates only where scheme or host have upper-case letters, which browsers do not send.
// Otherwise the result is a part of header and keeps all of it in memory: whoever stores it stores
// a clone.
func Referrer(header string) string {
	if header == "" {
		return "(direct)"
	}
	scheme, host, _ := strings.Cut(header[:min(len(header), len("https://")+maxAuthority)], "://")
	if scheme = strings.ToLower(scheme); scheme != "https" && scheme != "http" {
		return Other
	}
	if end := strings.IndexAny(host, `/\?#`); end >= 0 { // browsers take a backslash for a slash
		host = host[:end]
	} else if len(host) >= maxAuthority {
		return Other
	}
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
	if before == '.' { // or there is none
		return Other
	}
	return strings.ToLower(host)
}
