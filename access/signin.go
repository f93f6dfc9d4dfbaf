package access

import (
	"context"
	"net/url"
	"regexp"
	"slices"
	"time"
)

// SignIn is what a page has to know to sign people in with the provider. The zero SignIn: there is none.
type SignIn struct {
	Issuer, ClientID string
	// Origins are those that the page calls: the issuer's, and that of the provider's token endpoint if it is another one,
	// as that of Entra External ID is.
	Origins []string
}

// signInLimit is how long a page waits for the provider. One that does not respond signs nobody in either.
const signInLimit = 2 * time.Second

// SignIn says how people sign in. It asks the provider, unless that has responded before: only its metadata tell where its
// token endpoint is.
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
	s := SignIn{Issuer: p.Issuer, ClientID: p.ClientID}
	for _, origin := range []string{p.origin(p.Issuer), p.tokens} {
		if origin != "" && !slices.Contains(s.Origins, origin) {
			s.Origins = append(s.Origins, origin)
		}
	}
	return s
}

// plainHost is a host, perhaps with a port, that can stand in a header: URLs may have commas and semicolons in theirs.
var plainHost = regexp.MustCompile(`^[A-Za-z0-9.:\[\]-]+$`)

// origin returns the origin of an https URL, or of an http URL of this machine if the issuer is one too, and else "".
func (p *provider) origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || !plainHost.MatchString(u.Host) || u.Scheme != "https" && !(p.local && isLocal(u)) {
		return ""
	}
	return u.Scheme + "://" + u.Host
}
