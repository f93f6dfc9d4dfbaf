package access

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"time"
)

// SignIn is what a page needs to sign people in with the provider. It is zero if there is no
// provider.
type SignIn struct {
	Issuer, ClientID, Scopes string
	// Origins are the origins that the page calls: the origin of the issuer, and the origin of the
	// token endpoint if it differs, as with Entra External ID.
	Origins []string
}

// signInLimit is how long a page waits for the provider. If the provider is down, people cannot
// sign in.
const signInLimit = 2 * time.Second

// SignIn says how people sign in. It asks the provider, unless the provider has responded before,
// because only the provider's metadata name its token endpoint.
func (a *Authenticator) SignIn(ctx context.Context) SignIn {
	p := a.provider
	if p == nil {
		return SignIn{}
	}
	p.mu.Lock()
	var fetched <-chan struct{}
	if p.known.IsZero() {
		fetched = p.fetch(p.now(), &p.tried, retryFirst)
	}
	p.mu.Unlock()
	if fetched != nil {
		ctx, cancel := context.WithTimeout(ctx, signInLimit)
		defer cancel()
		select {
		case <-fetched:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := SignIn{Issuer: p.Issuer, ClientID: p.ClientID, Scopes: p.Scopes}
	for _, origin := range []string{p.origin(p.Issuer), p.tokens} {
		if origin != "" && !slices.Contains(s.Origins, origin) {
			s.Origins = append(s.Origins, origin)
		}
	}
	return s
}

// plainHost matches hosts, with or without a port, that are safe in a header. Hosts of URLs may
// have commas and semicolons, which are not.
var plainHost = regexp.MustCompile(`^[A-Za-z0-9.:\[\]-]+$`)

// origin returns the origin of a URL if the URL is secure and the origin is safe in a header, and
// "" otherwise.
func (p *provider) origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || !plainHost.MatchString(u.Host) || !p.secure(u) {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
