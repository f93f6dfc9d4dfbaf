// Package access authenticates requests by API key, by ID token of an OpenID Connect provider, by
// the admin key and by the claim token of a link. It also finds the addresses of clients, and
// limits how many requests each client may send.
package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Caller is the sender of a request. The zero Caller has no credentials.
type Caller struct {
	Owner     string   // "" for none
	ActsFor   string   // see Key.ActsFor; "": Owner
	Groups    []string // the groups that an ID token names, as owners
	Admin     bool
	Name      string    // the key's name or a name from the ID token, for people; "" for none
	ClaimHash string    // the hash of the caller's claim token; "" for none
	KeyEnds   time.Time // when the caller's API key ends; zero: never, or there is none
	ReadOnly  bool      // the caller's API key may only read
}

// Is reports whether an owner is the caller or a group of the caller. It is false for "".
func (c Caller) Is(owner string) bool {
	return owner != "" && (c.Owner == owner || slices.Contains(c.Groups, owner))
}

// Client returns the client for which requests of an owner count.
func (c Caller) Client() Client { return Client{Owner: c.Owner, ActsFor: c.ActsFor} }

// groupMark follows the provider's host in a group's owner. No person's owner has it there.
const groupMark = "|group|"

// isGroup reports whether an owner is a group.
func isGroup(owner string) bool {
	host, _, _ := strings.Cut(owner, "|")
	return strings.HasPrefix(owner[len(host):], groupMark)
}

// AdminOwner is the owner of the admin key. This owner can have no other key.
const AdminOwner = "admin"

// Errors of Caller and of keys. Errors that wrap them are for the log, and quote no credential.
var (
	// ErrInvalid: the credential is malformed, unknown, expired, revoked, or in the wrong header.
	ErrInvalid = errors.New("the credential is not valid")
	// ErrAmbiguous: there are two credentials, or two lines of one.
	ErrAmbiguous = errors.New("there is more than one credential")
	// ErrGuess accompanies ErrInvalid or ErrAmbiguous: the credential is not the admin key and has
	// the form of no other credential, so it may be a guess of the admin key.
	ErrGuess = errors.New("it may be a guess of the admin key")
	// ErrScope: the access token is valid, but lacks the scope of this service.
	ErrScope = errors.New("the token lacks the scope of this service")
	// ErrUnavailable: the credential cannot be looked up or checked now.
	ErrUnavailable = errors.New("the credential cannot be checked now")
	// ErrUnknownKey: no key has this hash.
	ErrUnknownKey = errors.New("there is no such key")
	// ErrTooManyKeys: the owner has MaxKeys keys that have not ended.
	ErrTooManyKeys = fmt.Errorf("the owner has %d keys that have not ended; revoke one", MaxKeys)
)

// Keys finds API keys.
type Keys interface {
	// Key returns the key with this hash. In a context from WithoutLookup it returns only a cached
	// key. The error is ErrUnknownKey, or any other error if the key could not be looked up.
	Key(ctx context.Context, hash string) (Key, error)
}

// Config says which credentials are accepted besides API keys and claim tokens.
type Config struct {
	AdminKey string      // one that CheckAdminKey accepts; "" for none
	OIDC     *OIDCConfig // nil: no sign-in
}

// Authenticator authenticates requests. It is safe for concurrent use.
type Authenticator struct {
	adminKey *[sha256.Size]byte // its hash; nil for none
	keys     Keys
	provider *provider // nil for none
	now      func() time.Time
}

// New makes no call: the Authenticator asks the provider when the first ID token comes.
func New(c Config, keys Keys, now func() time.Time) *Authenticator {
	a := &Authenticator{keys: keys, now: now}
	if c.AdminKey != "" {
		sum := sha256.Sum256([]byte(c.AdminKey))
		a.adminKey = &sum
	}
	if c.OIDC != nil {
		a.provider = newProvider(*c.OIDC, now)
	}
	return a
}

// maxCredential is the longest credential, in bytes. Entra's ID tokens with 200 groups have 10 KiB.
// Tokens with long names of groups have more. The limit of all headers is 32 KiB.
const maxCredential = 24 << 10

// CheckAdminKey returns an error if a key cannot be the admin key. The text of the error completes
// a sentence.
func CheckAdminKey(key string) error {
	different := map[rune]bool{}
	for _, r := range key {
		different[r] = true
	}
	if len(key) < 32 || len(key) > 1024 || len(different) < 8 || different[' '] ||
		!printableASCII(key) {
		return errors.New("must be 32 to 1,024 printable ASCII characters without spaces, " +
			"at least 8 of them different")
	}
	return nil
}

func printableASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

type withoutLookup struct{}

// WithoutLookup returns a context in which Caller looks up no API key. It then returns
// ErrUnavailable for a key that is not cached.
func WithoutLookup(ctx context.Context) context.Context {
	return context.WithValue(ctx, withoutLookup{}, true)
}

// LookupAllowed reports whether a context allows look-ups: whether it is not from WithoutLookup.
func LookupAllowed(ctx context.Context) bool { return ctx.Value(withoutLookup{}) == nil }

// Caller returns the sender of a request with these headers. Its errors wrap ErrInvalid, ErrScope,
// ErrAmbiguous or ErrUnavailable.
func (a *Authenticator) Caller(ctx context.Context, h http.Header) (Caller, error) {
	authorization, apiKey := h.Values("Authorization"), h.Values("X-Api-Key")
	if len(authorization) == 1 && isBasic(authorization[0]) {
		authorization = nil
	}
	switch {
	case len(authorization)+len(apiKey) == 0:
		return Caller{}, nil
	case len(authorization)+len(apiKey) > 1:
		return Caller{}, ErrAmbiguous
	case len(apiKey) == 1:
		return a.secret(ctx, apiKey[0], false)
	}
	scheme, token, _ := strings.Cut(authorization[0], " ")
	if strings.EqualFold(scheme, "Bearer") {
		return a.secret(ctx, strings.TrimLeft(token, " "), true)
	}
	// A host that forwards joins two lines into one. In a single line, commas separate parameters,
	// as in Digest.
	_, more, _ := strings.Cut(authorization[0], ",")
	for part := range strings.SplitSeq(more, ",") {
		scheme, _, ok := strings.Cut(strings.TrimLeft(part, " "), " ")
		if ok && !strings.ContainsAny(scheme, `="`) {
			return Caller{}, ErrAmbiguous
		}
	}
	return Caller{}, fmt.Errorf("%w: its scheme is not Bearer", ErrInvalid)
}

// isBasic reports whether a line is of the scheme Basic (RFC 7617) and has no API key. Such a line
// is ignored: it is for a proxy that asks for a password and passes it on. A client that sends an
// API key in it expects to be signed in.
func isBasic(line string) bool {
	scheme, text, _ := strings.Cut(line, " ")
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimLeft(text, " "))
	return strings.EqualFold(scheme, "Basic") && err == nil &&
		!strings.Contains(string(decoded), keyPrefix)
}

// secret returns the caller that presents s. If bearer is true, s may also be an ID token or a
// claim token.
func (a *Authenticator) secret(ctx context.Context, s string, bearer bool) (Caller, error) {
	switch {
	case len(s) > maxCredential:
		return Caller{}, fmt.Errorf("%w: it is longer than %d bytes", ErrInvalid, maxCredential)
	case a.isAdminKey(s): // checked first, because it may look like an API key or two lines
		return Caller{Owner: AdminOwner, Admin: true}, nil
	case strings.Contains(s, ","): // a host that forwards joins two lines so
		return Caller{}, fmt.Errorf("%w: %w", ErrAmbiguous, ErrGuess)
	case strings.HasPrefix(s, keyPrefix):
		return a.keyOwner(ctx, s)
	case !bearer:
		return Caller{}, fmt.Errorf("%w: %w: it is no API key", ErrInvalid, ErrGuess)
	case strings.HasPrefix(s, claimPrefix):
		hash, ok := ClaimHash(s)
		if !ok {
			return Caller{}, fmt.Errorf("%w: %w: the claim token is malformed",
				ErrInvalid, ErrGuess)
		}
		return Caller{ClaimHash: hash}, nil
	case a.provider == nil:
		return Caller{}, fmt.Errorf("%w: %w: it is no API key, "+
			"and there is no provider of ID tokens", ErrInvalid, ErrGuess)
	default:
		return a.provider.caller(ctx, s)
	}
}

func (a *Authenticator) isAdminKey(s string) bool {
	if a.adminKey == nil {
		return false
	}
	// All hashes have the same length, and the comparison takes constant time, so the time reveals
	// nothing.
	sum := sha256.Sum256([]byte(s))
	return subtle.ConstantTimeCompare(sum[:], a.adminKey[:]) == 1
}

func (a *Authenticator) keyOwner(ctx context.Context, s string) (Caller, error) {
	hash, ok := keyHash(s)
	if !ok {
		return Caller{}, fmt.Errorf("%w: %w: the API key is malformed", ErrInvalid, ErrGuess)
	}
	key, err := a.keys.Key(ctx, hash)
	switch {
	case errors.Is(err, ErrUnknownKey):
		return Caller{}, fmt.Errorf("%w: the API key is unknown", ErrInvalid)
	case err != nil:
		return Caller{}, fmt.Errorf("%w: looking up the API key: %w", ErrUnavailable, err)
	case key.Owner == "":
		// Without an owner, the caller would count as one without credentials.
		return Caller{}, fmt.Errorf("%w: the API key's row has no owner", ErrInvalid)
	case key.Expired(a.now()):
		return Caller{}, fmt.Errorf("%w: the API key has expired", ErrInvalid)
	}
	return Caller{Owner: key.Owner, ActsFor: key.ActsFor, Name: key.Name,
		KeyEnds: key.ExpiresAt, ReadOnly: key.ReadOnly}, nil
}
