package functions

import (
	"net/http"
	"slices"
	"strings"

	"tiney/internal/clicks"
)

// click counts a redirect by the mode of the site. It keeps nothing of the request verbatim. If the
// browser asks for it (Global Privacy Control), click keeps nothing except the click itself.
func (s *service) click(r *http.Request, d decision) {
	if s.CountClicks == clicks.ModeOff {
		return
	}
	userAgent := clicks.StripHost(first(r.Header["User-Agent"]))
	agent := clicks.ParseAgent(userAgent)
	k := clicks.Click{At: d.at, Took: d.took, Bot: agent.Bot}
	private := slices.Contains(r.Header["Sec-Gpc"], "1")
	if s.CountClicks == clicks.ModeFull && !k.Bot && !private {
		address := s.Addresses.Of(r)
		referrer := first(r.Header["Referer"])
		if r.Method == http.MethodPost && s.fromHere(referrer) { // the guard page sends the form
			referrer = ""
		}
		k.Names = [clicks.Dimensions]string{
			clicks.Referrers: clicks.Referrer(referrer),
			clicks.Countries: clicks.Country(address),
			clicks.Browsers:  agent.Browser,
			clicks.Systems:   agent.System,
			clicks.Devices:   agent.Device,
			clicks.Targets:   d.rule,
			clicks.Sources:   clicks.Source(r.URL.RawQuery),
		}
		k.Visitor = clicks.NewVisitor(address, userAgent)
	}
	s.Clicks.Click(d.link, k)
}

// first returns the first value of a header. Its values are there by its canonical name, which
// Header.Get would have to find out first.
func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// prefetched reports whether a browser only prefetches or previews a link. Its user may never
// follow the link.
func prefetched(h http.Header) bool {
	for _, name := range [...]string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"} {
		for _, value := range h[name] {
			value = strings.ToLower(value)
			if strings.Contains(value, "prefetch") || strings.Contains(value, "preview") {
				return true
			}
		}
	}
	return false
}
