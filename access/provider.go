package access

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// OIDCConfig names the OpenID Connect provider whose ID tokens are taken.
type OIDCConfig struct {
	Issuer    string // exactly as it is in the tokens
	ClientID  string // the audience that tokens must be for
	AdminRole string // who has it among the claim "roles" is an admin; "" for nobody
	// Failed is told of each time that the provider's keys could not be fetched, about every five seconds at most; nil:
	// nobody is. As long as known keys serve, no request fails. The error's text is fit for a log.
	Failed func(error)
}

// The life of a provider's keys. Ages count from the start of the fetch that they came with.
const (
	refreshAfter = 15 * time.Minute // from then on a token has them fetched anew, and is still checked with these
	trustedFor   = time.Hour        // from then on it waits for the new ones: a withdrawn key is refused by now
	keptFor      = 24 * time.Hour   // unless the provider is down; from then on these are forgotten

	unknownEvery = 30 * time.Second // between fetches for tokens of keys that are not known
	retryEvery   = 30 * time.Second // between the others, after one that failed
	retryFirst   = 5 * time.Second  // the same while no keys are known
	fetchLimit   = 5 * time.Second  // for both documents of a fetch
)

const (
	maxDocument    = 256 << 10  // bytes of a document of the provider
	maxKeys        = 64         // in the provider's set
	maxTries       = 8          // keys that a token that names none is tried with
	minRSA, maxRSA = 2048, 8192 // bits; a larger key would make each token expensive
)

// provider checks the ID tokens of one OpenID Connect provider. It asks for the provider's keys when the first token comes.
type provider struct {
	OIDCConfig
	host   string // the issuer's, with its port
	local  bool   // the issuer is on this machine, by http
	parser *jwt.Parser
	client *http.Client
	limit  time.Duration // of a fetch
	now    func() time.Time

	mu       sync.Mutex
	keys     []providerKey
	tokens   string        // the origin of the token endpoint; "" if it is not known, or none that a page may call
	known    time.Time     // when the fetch began that keys came with; zero: there are none
	tried    time.Time     // when the last fetch began
	unknown  time.Time     // when the last fetch began that an unknown key made
	fetching chan struct{} // closed when the fetch that is under way has ended; nil: there is none
	err      error         // of the last fetch that has ended
}

// providerKey is a public key of the provider.
type providerKey struct {
	kid, alg string
	key      jwt.VerificationKey
}

// CheckIssuer returns what an issuer must be like, as the end of a sentence, and nil if it is.
func CheckIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	if err != nil || u.Hostname() == "" || u.User != nil || strings.ContainsAny(issuer, "?# ") || !printableASCII(issuer) ||
		u.Scheme != "https" && !isLocal(u) {
		return errors.New("must be the https URL of an OpenID Connect provider, as its tokens have it")
	}
	return nil
}

// IsLoopback reports whether a URL stays on this machine.
func IsLoopback(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// isLocal reports whether a URL stays on this machine by http, which is as good as https there.
func isLocal(u *url.URL) bool { return u.Scheme == "http" && IsLoopback(u) }

func newProvider(c OIDCConfig, now func() time.Time) (*provider, error) {
	if err := CheckIssuer(c.Issuer); err != nil {
		return nil, fmt.Errorf("the issuer %w", err)
	}
	if c.ClientID == "" {
		return nil, errors.New("the client ID must not be empty")
	}
	u, _ := url.Parse(c.Issuer)
	p := &provider{OIDCConfig: c, host: strings.ToLower(u.Host), local: isLocal(u), limit: fetchLimit, now: now,
		// A redirect might lead anywhere, and no provider needs one: it says itself where its keys are.
		client: &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	p.parser = p.newParser()
	return p, nil
}

// keysFor returns the provider's keys for alg that are called kid, or if that is "" any of them. It returns ErrInvalid if
// there is none, and ErrUnavailable if the provider cannot be asked whether there is.
func (p *provider) keysFor(ctx context.Context, kid, alg string) ([]jwt.VerificationKey, error) {
	if fetched := p.ensure(kid, alg); fetched != nil {
		select {
		case <-fetched:
		case <-ctx.Done(): // which ends this caller's wait, and not the fetch
			return nil, fmt.Errorf("%w: waiting for the provider's keys: %w", ErrUnavailable, ctx.Err())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch found := p.find(kid, alg); {
	case len(found) > 0:
		return found, nil
	case p.err != nil:
		return nil, fmt.Errorf("%w: fetching the provider's keys: %w", ErrUnavailable, p.err)
	default:
		return nil, fmt.Errorf("%w: the provider has no such key as the token's", ErrInvalid)
	}
}

// ensure forgets keys that are too old, and begins a fetch if one is due. It returns what has to be waited for, or nil if
// what is known will do.
func (p *provider) ensure(kid, alg string) (fetched <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	switch age := now.Sub(p.known); {
	case age >= keptFor: // as it is if there never were any
		p.keys = nil
		return p.fetch(now, &p.tried, retryFirst)
	case len(p.find(kid, alg)) == 0:
		return p.fetch(now, &p.unknown, unknownEvery)
	case age >= trustedFor:
		return p.fetch(now, &p.tried, retryEvery)
	case age >= refreshAfter:
		p.fetch(now, &p.tried, retryEvery)
	}
	return nil
}

// find expects p.mu to be held.
func (p *provider) find(kid, alg string) (found []jwt.VerificationKey) {
	for _, k := range p.keys {
		if k.alg == alg && (kid == "" || kid == k.kid) && len(found) < maxTries {
			found = append(found, k.key)
		}
	}
	return found
}

// fetch begins a fetch, unless there is one, or the last of its kind began less than every ago. It returns the one that
// is under way, or nil, and expects p.mu to be held.
func (p *provider) fetch(now time.Time, last *time.Time, every time.Duration) <-chan struct{} {
	if p.fetching == nil && now.Sub(*last) >= every {
		*last, p.tried, p.fetching = now, now, make(chan struct{})
		go p.refresh(now)
	}
	return p.fetching
}

// refresh fetches the keys for all who wait, whoever of them gives up.
func (p *provider) refresh(began time.Time) {
	ctx, cancel := context.WithTimeout(context.Background(), p.limit)
	defer cancel()
	keys, tokens, err := p.download(ctx)
	if err != nil && p.Failed != nil {
		p.Failed(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err = err; err == nil {
		p.keys, p.tokens, p.known = keys, tokens, began
	}
	close(p.fetching)
	p.fetching = nil
}

// download finds the provider's keys, and the origin of its token endpoint, by OpenID Connect Discovery 1.0. What is not as
// it has to be is an error, and so as good as no response.
func (p *provider) download(ctx context.Context) (keys []providerKey, tokens string, err error) {
	var discovery struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
		Tokens string `json:"token_endpoint"`
	}
	if err := p.get(ctx, strings.TrimSuffix(p.Issuer, "/")+"/.well-known/openid-configuration", &discovery); err != nil {
		return nil, "", fmt.Errorf("the discovery document: %w", err)
	}
	if discovery.Issuer != p.Issuer {
		return nil, "", errors.New("the discovery document is not of the issuer of the settings, to the letter")
	}
	if u, err := url.Parse(discovery.Keys); err != nil || u.Hostname() == "" || u.Scheme != "https" && !(p.local && isLocal(u)) {
		return nil, "", errors.New("the discovery document's jwks_uri is no https URL")
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := p.get(ctx, discovery.Keys, &set); err != nil {
		return nil, "", fmt.Errorf("the set of keys: %w", err)
	}
	if set.Keys == nil || len(set.Keys) > maxKeys {
		return nil, "", fmt.Errorf("the set of keys has no list of keys, or one of more than %d", maxKeys)
	}
	for _, raw := range set.Keys {
		if k, ok := parseKey(raw); ok {
			keys = append(keys, k)
		}
	}
	return keys, p.origin(discovery.Tokens), nil
}

// get reads a JSON document of the provider. No error quotes the address, which the provider may have chosen.
func (p *provider) get(ctx context.Context, address string, document any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return errors.New("its address is no URL")
	}
	resp, err := p.client.Do(req)
	if err != nil {
		if quoting, ok := errors.AsType[*url.Error](err); ok {
			err = quoting.Err
		}
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("the response's status is %d", resp.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	if err != nil {
		return err
	}
	if len(data) > maxDocument {
		return fmt.Errorf("it is larger than %d bytes", maxDocument)
	}
	if json.Unmarshal(data, document) != nil {
		return errors.New("it is not of the JSON that it should be")
	}
	return nil
}

// parseKey reads a JSON Web Key (RFC 7517). Sets hold keys for other purposes too: one that is of no use here is not ok.
func parseKey(raw []byte) (_ providerKey, ok bool) {
	var k struct {
		Type       string    `json:"kty"`
		ID         string    `json:"kid"`
		Use        string    `json:"use"`
		Operations []string  `json:"key_ops"`
		Algorithm  string    `json:"alg"`
		Curve      string    `json:"crv"`
		N          base64url `json:"n"`
		E          base64url `json:"e"`
		X          base64url `json:"x"`
		Y          base64url `json:"y"`
	}
	if json.Unmarshal(raw, &k) != nil || k.Use != "" && k.Use != "sig" || k.Operations != nil && !slices.Contains(k.Operations, "verify") {
		return providerKey{}, false
	}
	parsed := providerKey{kid: k.ID}
	switch {
	case k.Type == "RSA":
		n, e := new(big.Int).SetBytes(k.N), new(big.Int).SetBytes(k.E)
		if n.BitLen() < minRSA || n.BitLen() > maxRSA || e.BitLen() < 2 || e.BitLen() > 31 { // an int may have 32 bits
			return providerKey{}, false
		}
		parsed.alg, parsed.key = "RS256", &rsa.PublicKey{N: n, E: int(e.Int64())}
	case k.Type == "EC" && k.Curve == "P-256":
		point, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, k.X, k.Y))
		if err != nil {
			return providerKey{}, false
		}
		parsed.alg, parsed.key = "ES256", point
	}
	return parsed, parsed.key != nil && (k.Algorithm == "" || k.Algorithm == parsed.alg)
}

// base64url is a number of a JSON Web Key: its big-endian bytes in base64url without padding.
type base64url []byte

// UnmarshalText implements encoding.TextUnmarshaler.
func (b *base64url) UnmarshalText(text []byte) (err error) {
	*b, err = base64.RawURLEncoding.AppendDecode(nil, text)
	return err
}
