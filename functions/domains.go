package functions

import (
	"net/http"

	"tiney/internal/link"
)

// domainOf returns the domain that a request is for. It is the default domain if the request names
// no other one, or names it in more than one way.
func (s *service) domainOf(r *http.Request) link.Domain {
	if len(s.hosts) == 1 {
		return ""
	}
	host := r.Host
	header := s.DomainHeader
	if header == "" && s.hosted && host == s.HostAddress { // a Functions host that proxies
		header = "X-Forwarded-Host"
	}
	if header != "" {
		values := r.Header[header]
		if len(values) != 1 {
			return ""
		}
		host = values[0]
	}
	d, ok := s.hosts[link.Domain(host)]
	if !ok {
		d = s.hosts[link.HostDomain(host)]
	}
	return d
}

// domain returns the domain that a request names. Without one, it is the default domain.
func (s *service) domain(given *string) (link.Domain, error) {
	if given == nil {
		return "", nil
	}
	d, configured, _ := s.Rules.Domain(*given)
	if !configured {
		return "", fieldProblem("domain", s.Rules.DomainAdvice())
	}
	return d, nil
}

// listDomains handles GET /api/domains.
func (s *service) listDomains(*call) (any, error) {
	type domain struct {
		Domain  link.Domain `json:"domain"`
		BaseURL string      `json:"baseUrl"`
		Default bool        `json:"default"`
	}
	var all list[domain]
	for d, base := range s.Rules.Bases() {
		all.Items = append(all.Items, domain{base.Domain(), base.String(), d == ""})
	}
	return all, nil
}
