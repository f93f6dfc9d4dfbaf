package access

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tiney/internal/link"
	"tiney/internal/random"
)

// Key is an API key as it is stored: everything except the key itself.
type Key struct {
	Hash        string // SHA-256 of the whole key, lower-case hex
	Owner, Name string
	CreatedBy   string // the owner who made it; "" if that is not known
	// ActsFor is a second owner: limits count the key's requests for both. It is the key's maker,
	// or the ActsFor of the maker's own key. "": none, because an admin made the key.
	ActsFor    string
	Last4      string // the last four characters of the key, by which people tell their keys apart
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero: never
	LastUsedOn string    // the UTC day of its last use, as 2006-01-02; "" if it was never used
	ReadOnly   bool      // it changes nothing
}

// ID names the key in lists and for Revoke. It is the first 16 hex digits of the key's hash.
func (k Key) ID() string { return k.Hash[:min(16, len(k.Hash))] }

// Expired reports whether the key has expired. A key that expires now has expired.
func (k Key) Expired(now time.Time) bool { return !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(now) }

// Limits of new keys.
const (
	maxKeyName = 100 // characters, as code points
	minKeyLife = time.Minute
	// maxGroupKeyLife makes members renew a group's keys, which outlive their maker's membership.
	maxGroupKeyLife = 365 * 24 * time.Hour

	MaxKeys = 100 // how many keys that have not ended an owner may have
)

// InvalidKeyError says what is wrong with a new key.
type InvalidKeyError struct {
	Field  string // its name in the API
	Detail string // a sentence for the caller
}

func (e *InvalidKeyError) Error() string { return e.Detail }

// MakeKey makes a key for an owner. The key ends at ends, or never if ends is nil. It never ends
// later than the key that maker uses. A group's key ends within a year. secret is the key itself.
//
// Errors: *InvalidKeyError, or an error of source.
func MakeKey(
	source io.Reader, maker Caller, owner, name string, ends *time.Time, now time.Time,
) (secret string, k Key, err error) {
	now = now.UTC().Truncate(time.Second)
	k = Key{Owner: owner, CreatedBy: maker.Owner, Name: name, CreatedAt: now}
	if !maker.Admin {
		k.ActsFor = cmp.Or(maker.ActsFor, maker.Owner)
	}
	wrong := func(field, format string, a ...any) (string, Key, error) {
		return "", k, &InvalidKeyError{field, fmt.Sprintf(format, a...)}
	}
	switch {
	case owner == AdminOwner:
		return wrong("owner", "Name the owner whose key it will be. It cannot be "+AdminOwner+
			": the admin key is a setting of the service.")
	case !maker.Is(owner) && !ValidOwner(owner): // makers and their groups may have any name
		return "", k, &InvalidKeyError{"owner", OwnerAdvice}
	case name == "" || utf8.RuneCountInString(name) > maxKeyName,
		strings.ContainsFunc(name, unicode.IsControl):
		return wrong("name", "Give the key a name of 1 to %d characters, "+
			"without control characters.", maxKeyName)
	}
	if ends != nil {
		k.ExpiresAt = ends.UTC().Truncate(time.Second)
		// Storage has no dates beyond the year 9999.
		if k.ExpiresAt.Before(now.Add(minKeyLife)) || k.ExpiresAt.Year() > 9999 {
			return wrong("expiresAtUtc", "The end must be at least %d seconds away, "+
				"and before the year 10000.", int(minKeyLife/time.Second))
		}
	}
	latest := []time.Time{maker.KeyEnds}
	if isGroup(owner) {
		latest = append(latest, now.Add(maxGroupKeyLife))
	}
	for _, end := range latest {
		if !end.IsZero() && (k.ExpiresAt.IsZero() || k.ExpiresAt.After(end)) {
			k.ExpiresAt = end
		}
	}
	if secret, err = NewKey(source); err == nil {
		k.Hash, k.Last4 = Hash(secret), secret[len(secret)-4:]
	}
	return secret, k, err
}

// OwnerAdvice says which owners are valid, for callers.
var OwnerAdvice = fmt.Sprintf("The owner must have 1 to %d printable characters, "+
	"without blanks at its ends, and cannot be *.", link.MaxOwner)

// ValidOwner reports whether an admin may name an owner that is neither the admin nor a group of
// the admin. "*" is not valid, because it stands for all owners.
func ValidOwner(owner string) bool {
	return link.CheckOwner(owner) == nil && strings.TrimSpace(owner) == owner && owner != "*"
}

// A secret is a prefix and 43 characters of base62, which hold 256 bits. A key has 6 more
// characters, a checksum. With it, a typo needs no look-up, and scanners for secrets can be sure of
// a match.
const (
	keyPrefix, claimPrefix     = "tny_", "tnc_"
	prefixLength, secretLength = 4, 43
	checksumLength             = 6
	unchecked                  = prefixLength + secretLength
)

// NewKey draws an API key from source. It fails only if source does.
func NewKey(source io.Reader) (key string, err error) {
	key, err = draw(source, keyPrefix)
	if err != nil {
		return "", err
	}
	return key + checksum(key), nil
}

// NewClaimToken draws a claim token from source. It fails only if source does.
func NewClaimToken(source io.Reader) (token string, err error) { return draw(source, claimPrefix) }

func draw(source io.Reader, prefix string) (string, error) {
	secret, err := random.Text(source, random.Base62, secretLength)
	if err != nil {
		return "", fmt.Errorf("drawing a secret: %w", err)
	}
	return prefix + secret, nil
}

// checksum returns the CRC-32 (IEEE) of s in base62, zero-padded.
func checksum(s string) string {
	sum := crc32.ChecksumIEEE([]byte(s))
	digits := bytes.Repeat([]byte{'0'}, checksumLength)
	for i := checksumLength - 1; sum > 0; i-- {
		digits[i] = random.Base62[sum%uint32(len(random.Base62))]
		sum /= uint32(len(random.Base62))
	}
	return string(digits)
}

// keyHash returns the hash of an API key. ok reports whether s has the form of one: prefix,
// length, alphabet, checksum.
func keyHash(s string) (hash string, ok bool) {
	if len(s) != unchecked+checksumLength || !isSecret(s[:unchecked], keyPrefix) ||
		s[unchecked:] != checksum(s[:unchecked]) {
		return "", false
	}
	return Hash(s), true
}

// ClaimHash returns the hash of a claim token. ok reports whether token has the form of one.
func ClaimHash(token string) (hash string, ok bool) {
	if !isSecret(token, claimPrefix) {
		return "", false
	}
	return Hash(token), true
}

func isSecret(s, prefix string) bool {
	drawn, ok := strings.CutPrefix(s, prefix)
	return ok && len(drawn) == secretLength && strings.Trim(drawn, random.Base62) == ""
}

// Hash returns the SHA-256 of a secret in lower-case hex. A plain hash is enough for 256 random
// bits (OWASP ASVS 5, V6.5.2).
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
