package link

import (
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Domain names a host that has aliases of its own: the host in lower case and punycode, without a
// dot at its end, and its port unless that is 80 or 443. "" is the default domain, which is the
// host of the service's Base.
type Domain string

// ParseDomain returns the domain that people mean by a spelling, such as "Go.Example:8080". It
// reports false if the spelling is not a host, or has more than a host and a port.
func ParseDomain(spelled string) (Domain, bool) {
	host, port := splitPort(spelled)
	if port != "" {
		n, err := strconv.ParseUint(port[1:], 10, 16)
		if err != nil || n == 0 {
			return "", false
		}
		port = strconv.FormatUint(n, 10)
	}
	parsed, ok := ParseHost(host)
	d := domainAt(string(parsed), port)
	return d, ok && d.wellFormed()
}

// splitPort splits an authority without a user name before the colon of its port. port is "" if
// there is no colon.
func splitPort(authority string) (host, port string) {
	if i := strings.LastIndexByte(authority, ':'); i > strings.LastIndexByte(authority, ']') {
		return authority[:i], authority[i:]
	}
	return authority, ""
}

// domainAt returns the domain of a canonical host and a port, which may be "".
func domainAt(host, port string) Domain {
	if port == "" || port == "80" || port == "443" {
		return Domain(host)
	}
	return Domain(host + ":" + port)
}

// HostDomain returns the domain of a Host header in its canonical spelling, as far as clients send
// another one: browsers send hosts in punycode. It allocates nothing if host has no capitals.
func HostDomain(host string) Domain {
	host = strings.TrimSuffix(strings.TrimSuffix(host, ":80"), ":443")
	name, port := splitPort(host)
	if bare := strings.TrimSuffix(name, "."); bare != name {
		host = bare + port
	}
	return Domain(LowerASCII(host))
}

// wellFormed reports whether a domain has only characters that domains have. A row's key may have
// all of them.
func (d Domain) wellFormed() bool {
	if len(d) == 0 || len(d) > maxHost+len(":65535") {
		return false
	}
	for i := range len(d) {
		switch c := d[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', strings.IndexByte(".-_:[]", c) >= 0:
		default:
			return false
		}
	}
	return true
}

// Name is what a link is kept under: its alias and, unless it is of the default domain, "@" and its
// domain. If case does not matter, the alias of a link that was made since is in lower case.
//
// A new link whose alias is not drawn yet has a name without an alias.
type Name string

// Name returns the name of the link that has an alias in the domain.
func (d Domain) Name(a Alias) Name {
	if d == "" {
		return Name(a)
	}
	return Name(string(a) + "@" + string(d))
}

// ParseName returns s as a name, and reports whether s can be one at all.
func ParseName(s string) (Name, bool) {
	alias, domain, is := strings.Cut(s, "@")
	_, ok := ParseAlias(alias)
	return Name(s), ok && (!is || Domain(domain).wellFormed())
}

// Alias returns the alias in the name.
func (n Name) Alias() Alias {
	alias, _, _ := strings.Cut(string(n), "@")
	return Alias(alias)
}

// Domain returns the domain in the name.
func (n Name) Domain() Domain {
	_, domain, _ := strings.Cut(string(n), "@")
	return Domain(domain)
}

// Lower returns the name with its alias in lower case; domains are in lower case.
func (n Name) Lower() Name { return Name(LowerASCII(string(n))) }

// Bases returns the domains of the service with their bases: the default one first, then the others
// by their names.
func (r Rules) Bases() iter.Seq2[Domain, Base] {
	return func(yield func(Domain, Base) bool) {
		if !yield("", r.Base) {
			return
		}
		for _, d := range slices.Sorted(maps.Keys(r.Domains)) {
			if !yield(d, r.Domains[d]) {
				return
			}
		}
	}
}

// Domain returns the domain that a caller means by a spelling. configured reports whether the
// service has it. ok reports whether it can be one at all.
func (r Rules) Domain(spelled string) (d Domain, configured, ok bool) {
	if d, ok = ParseDomain(spelled); !ok {
		return "", false, false
	}
	if d == r.Base.domain {
		d = ""
	}
	return d, r.Has(d), true
}

// Has reports whether the service has a domain.
func (r Rules) Has(d Domain) bool {
	_, has := r.Domains[d]
	return has || d == ""
}

// DomainAdvice lists the domains of the service, for callers.
func (r Rules) DomainAdvice() string {
	var names []string
	for _, base := range r.Bases() {
		names = append(names, string(base.domain))
	}
	return "This service has no such domain. It has: " + strings.Join(names, ", ") + "."
}

// DomainName returns the name of a domain, also that of the default one.
func (r Rules) DomainName(d Domain) Domain {
	if d == "" {
		return r.Base.domain
	}
	return d
}

// BaseOf returns the start of the short URLs of a domain, without a trailing slash. The service
// need not have the domain any more.
func (r Rules) BaseOf(d Domain) string {
	if d == "" {
		return r.Base.url
	}
	if base, ok := r.Domains[d]; ok {
		return base.url
	}
	scheme, _, _ := strings.Cut(r.Base.url, "://")
	return scheme + "://" + string(d)
}

// ShortURL returns the short URL of a link.
func (r Rules) ShortURL(l Link) string {
	return r.BaseOf(l.Name.Domain()) + "/" + string(l.Alias())
}

// ParseName returns the name of the link that a caller means by a spelling such as "alias" or
// "alias@Go.Example". It reports false if no link can have it.
func (r Rules) ParseName(spelled string) (Name, bool) {
	alias, domain, is := strings.Cut(spelled, "@")
	a, ok := ParseAlias(alias)
	if !ok || a.Reserved() {
		return "", false
	}
	if !is {
		return Name(a), true
	}
	d, _, ok := r.Domain(domain)
	if !ok {
		return "", false
	}
	return d.Name(a), true
}

// NameOf returns the name of the link of a short URL as people paste it: with either scheme or
// without one, with its host in any case, and with a slash, a query or a fragment behind it. It
// reports false for any other text.
func (r Rules) NameOf(pasted string) (Name, bool) {
	for d, base := range r.Bases() {
		if a, ok := base.aliasOf(pasted); ok {
			return d.Name(a), true
		}
	}
	return "", false
}

// Origins returns the origins of the service's pages, as browsers write them in the Origin header
// (RFC 6454).
func (r Rules) Origins() (origins []string) {
	for _, base := range r.Bases() {
		origins = append(origins, base.origin)
	}
	return origins
}

// own reports whether a host is one of the service's own.
func (r Rules) own(h Host) bool {
	for _, base := range r.Bases() {
		if h == canonical(base.host) {
			return true
		}
	}
	return slices.Contains(r.OtherHosts, h)
}
