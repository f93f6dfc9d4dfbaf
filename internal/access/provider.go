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

	"tiney/internal/telemetry"
)

// OIDCConfig names the OpenID Connect provider whose tokens are accepted.
type OIDCConfig struct {
	Issuer   string // exactly as it is in the tokens; CheckIssuer accepts it
	ClientID string // the audience of ID tokens; never ""
	// APIAudience is the audience of access tokens (RFC 9068), which other programs get for their
	// users. "": none are accepted.
	APIAudience string
	APIScope    string // that access tokens must have; "": they need none
	// SubjectClaim is the claim that names the owner; "": sub.
	SubjectClaim string
	AdminRole    string // in the claim "roles", makes a person an admin; "": no role does
	// GroupsClaim is the claim with the groups that a person belongs to; "": there are no groups.
	GroupsClaim string
	Scopes      string // what signing in asks for, separated by spaces
	// Lost, unless nil, gets a message for the log when something of the provider is left out, once
	// for each reason.
	Lost func(message, reason string)
	// Failed, unless nil, gets the error if the provider's keys could not be fetched, at most about
	// every five seconds. The text of the error is fit for a log. No request fails while the known
	// keys serve.
	Failed func(error)
}

// The life of a provider's keys. Their age counts from the start of the fetch that brought them.
const (
	refreshAfter = 15 * time.Minute // then a token starts a fetch, and is checked with the old keys
	trustedFor   = time.Hour        // then a token waits for the fetch; withdrawn keys are refused
	keptFor      = 24 * time.Hour   // then keys are forgotten, even if the provider is down

	unknownEvery = 30 * time.Second // between fetches for tokens of unknown keys
	retryEvery   = 30 * time.Second // between other fetches, after one that failed
	retryFirst   = 5 * time.Second  // the same while no keys are known
	fetchLimit   = 5 * time.Second  // for both documents of a fetch together
)

const (
	maxDocument    = 256 << 10  // bytes of a document of the provider
	maxKeys        = 64         // in the provider's set
	maxTries       = 8          // keys to try for a token that names no key
	minRSA, maxRSA = 2048, 8192 // bits; a larger key would make each token expensive
)

// provider checks the ID tokens of an OpenID Connect provider. It first fetches the provider's keys
// when the first token comes.
type provider struct {
	OIDCConfig
	host   string // the host and port of the issuer
	local  bool   // the issuer is on this machine, and has an http URL
	parser *jwt.Parser
	client *http.Client
	limit  time.Duration // of a fetch
	now    func() time.Time
	lost   sync.Map // what Lost was called with

	mu       sync.Mutex
	keys     []providerKey
	tokens   string        // the origin of the token endpoint; "" if a page cannot call it
	known    time.Time     // when the fetch of the keys began; zero before the first success
	tried    time.Time     // when the last fetch began
	unknown  time.Time     // when the last fetch for an unknown key began
	fetching chan struct{} // closed at the end of the fetch in progress; nil without one
	err      error         // of the last fetch that has ended
}

// providerKey is a public key of the provider.
type providerKey struct {
	kid, alg string
	key      jwt.VerificationKey
}

// CheckIssuer returns an error if an issuer is not valid. The text of the error completes a
// sentence.
func CheckIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	if err != nil || u.Hostname() == "" || u.User != nil || u.Scheme != "https" && !isLocal(u) ||
		strings.ContainsAny(issuer, "?# ") || !printableASCII(issuer) {
		return errors.New(
			"must be the https URL of an OpenID Connect provider, as its tokens have it")
	}
	return nil
}

// IsLoopback reports whether a URL stays on this machine.
func IsLoopback(u *url.URL) bool {
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// isLocal reports whether a URL stays on this machine and is http, which is as good as https there.
func isLocal(u *url.URL) bool { return u.Scheme == "http" && IsLoopback(u) }

// secure reports whether a URL is https, or is local if the issuer is local too.
func (p *provider) secure(u *url.URL) bool { return u.Scheme == "https" || p.local && isLocal(u) }

func newProvider(c OIDCConfig, now func() time.Time) *provider {
	u, _ := url.Parse(c.Issuer)
	// A redirect might lead anywhere, and no provider needs one.
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p := &provider{
		OIDCConfig: c,
		host:       strings.ToLower(u.Host),
		local:      isLocal(u),
		limit:      fetchLimit,
		now:        now,
		client:     &http.Client{CheckRedirect: noRedirect},
	}
	p.parser = p.newParser()
	return p
}

// keysFor returns the provider's keys for alg with this kid, or with any kid if kid is "". It
// returns ErrInvalid if there is no such key, and ErrUnavailable if the provider is down, so that
// this is not known.
func (p *provider) keysFor(ctx context.Context, kid, alg string) ([]jwt.VerificationKey, error) {
	if fetched := p.ensure(kid, alg); fetched != nil {
		select {
		case <-fetched:
		case <-ctx.Done(): // the fetch goes on
			return nil, fmt.Errorf("%w: waiting for the provider's keys: %w",
				ErrUnavailable, ctx.Err())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch found := p.matching(kid, alg); {
	case len(found) > 0:
		return found, nil
	case p.err != nil:
		return nil, fmt.Errorf("%w: fetching the provider's keys: %w", ErrUnavailable, p.err)
	default:
		return nil, fmt.Errorf("%w: the provider has no such key as the token's", ErrInvalid)
	}
}

// ensure forgets keys that are too old, and begins a fetch if one is due. The caller must wait for
// fetched, unless it is nil.
func (p *provider) ensure(kid, alg string) (fetched <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	switch age := now.Sub(p.known); {
	case age >= keptFor: // or there are no keys
		p.keys = nil
		return p.fetch(now, &p.tried, retryFirst)
	case len(p.matching(kid, alg)) == 0:
		return p.fetch(now, &p.unknown, unknownEvery)
	case age >= trustedFor:
		return p.fetch(now, &p.tried, retryEvery)
	case age >= refreshAfter:
		p.fetch(now, &p.tried, retryEvery)
	}
	return nil
}

// matching returns the known keys for a token. The caller holds p.mu.
func (p *provider) matching(kid, alg string) (found []jwt.VerificationKey) {
	for _, k := range p.keys {
		if k.alg == alg && (kid == "" || kid == k.kid) && len(found) < maxTries {
			found = append(found, k.key)
		}
	}
	return found
}

// fetch begins a fetch, unless one is in progress or the last of its kind began less than every
// ago. It returns the fetch in progress, or nil. The caller holds p.mu.
func (p *provider) fetch(now time.Time, last *time.Time, every time.Duration) <-chan struct{} {
	if p.fetching == nil && now.Sub(*last) >= every {
		*last, p.tried, p.fetching = now, now, make(chan struct{})
		go p.refresh(now)
	}
	return p.fetching
}

// refresh fetches the keys for all waiting callers. It goes on if some of them give up.
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

// download fetches the provider's keys, and the origin of its token endpoint, by OpenID Connect
// Discovery 1.0. An invalid document is an error, like a missing response.
func (p *provider) download(ctx context.Context) (keys []providerKey, tokens string, err error) {
	var discovery struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
		Tokens string `json:"token_endpoint"`
	}
	metadata := strings.TrimSuffix(p.Issuer, "/") + "/.well-known/openid-configuration"
	if err := p.get(ctx, metadata, &discovery); err != nil {
		return nil, "", fmt.Errorf("the discovery document: %w", err)
	}
	if discovery.Issuer != p.Issuer {
		return nil, "", errors.New(
			"the discovery document is not of the issuer of the settings, to the letter")
	}
	if u, err := url.Parse(discovery.Keys); err != nil || u.Hostname() == "" || !p.secure(u) {
		return nil, "", errors.New("the discovery document's jwks_uri is no https URL")
	}
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := p.get(ctx, discovery.Keys, &set); err != nil {
		return nil, "", fmt.Errorf("the set of keys: %w", err)
	}
	if set.Keys == nil || len(set.Keys) > maxKeys {
		return nil, "", fmt.Errorf("the set of keys has no list of keys, or one of more than %d",
			maxKeys)
	}
	for _, raw := range set.Keys {
		switch k, wrong := parseKey(raw); {
		case k.key != nil:
			keys = append(keys, k)
		case wrong != "":
			p.lose(telemetry.LogProviderKeyLost, fmt.Sprintf("the key %.50q %s", k.kid, wrong))
		}
	}
	return keys, p.origin(discovery.Tokens), nil
}

// get reads a JSON document of the provider. No error quotes the address, because the provider may
// have chosen it.
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

// parseKey parses a JSON Web Key (RFC 7517). Without a key in its result, the key cannot check ID
// tokens. wrong then says why; it is "" for a key that is for something else than signatures.
func parseKey(raw []byte) (parsed providerKey, wrong string) {
	var k struct {
		Type       string   `json:"kty"`
		ID         string   `json:"kid"`
		Use        string   `json:"use"`
		Operations []string `json:"key_ops"`
		Algorithm  string   `json:"alg"`
		Curve      string   `json:"crv"`
		N          string   `json:"n"`
		E          string   `json:"e"`
		X          string   `json:"x"`
		Y          string   `json:"y"`
	}
	if json.Unmarshal(raw, &k) != nil {
		return providerKey{kid: k.ID}, "is not of the JSON that it should be"
	}
	parsed.kid = k.ID
	n, e, x, y := number(k.N), number(k.E), number(k.X), number(k.Y)
	kind := k.Type
	if kind == "EC" {
		kind += " " + k.Curve
	}
	switch kind {
	case "RSA":
		parsed.alg = "RS256"
	case "EC P-256":
		parsed.alg = "ES256"
	}
	switch {
	case k.Use == "enc", k.Operations != nil && !slices.Contains(k.Operations, "sign") &&
		!slices.Contains(k.Operations, "verify"):
	case k.Use != "" && k.Use != "sig":
		wrong = fmt.Sprintf("is for the use %.20q, and not for sig", k.Use)
	case k.Operations != nil && !slices.Contains(k.Operations, "verify"):
		wrong = "is not to verify, by its key_ops"
	case parsed.alg == "":
		wrong = fmt.Sprintf("is of the kind %.20q: only RSA and EC P-256 are known here", kind)
	case k.Algorithm != "" && k.Algorithm != parsed.alg:
		wrong = fmt.Sprintf("is for %.20q: only RS256 and ES256 are known here", k.Algorithm)
	case k.Type == "RSA" && (n == nil || e == nil), k.Type == "EC" && (x == nil || y == nil):
		wrong = "has a number that is not in base64url"
	case k.Type == "RSA" && (n.BitLen() < minRSA || n.BitLen() > maxRSA):
		wrong = fmt.Sprintf("has %d bits, and not %d to %d", n.BitLen(), minRSA, maxRSA)
	case k.Type == "RSA" && (e.BitLen() < 2 || e.BitLen() > 31): // an int may have 32 bits
		wrong = "has an exponent of 1, or of more than 31 bits"
	case k.Type == "RSA":
		parsed.key = &rsa.PublicKey{N: n, E: int(e.Int64())}
	case x.BitLen() > 256 || y.BitLen() > 256:
		wrong = "has a coordinate of more than 256 bits"
	default:
		uncompressed := make([]byte, 65)
		uncompressed[0] = 4
		x.FillBytes(uncompressed[1:33])
		y.FillBytes(uncompressed[33:])
		point, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), uncompressed)
		if err != nil {
			return parsed, "is no point of its curve"
		}
		parsed.key = point
	}
	return parsed, wrong
}

// number returns a number of a JSON Web Key, or nil. It should be big-endian, in base64url without
// padding. Some providers pad it, use standard base64, leave out zeros in front, or add one.
func number(text string) *big.Int {
	text = strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(text, "="))
	octets, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(octets) == 0 {
		return nil
	}
	return new(big.Int).SetBytes(octets)
}
