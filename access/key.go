package access

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Key is an API key as it is stored: everything but the key itself.
type Key struct {
	Hash        string // SHA-256 of the whole key, lower-case hex
	Owner, Name string
	Last4       string // the last four characters of the key, for people to tell theirs apart
	CreatedAt   time.Time
	ExpiresAt   time.Time // zero: never
	LastUsedOn  string    // the UTC day of its last use, as 2006-01-02; "" if it was never used
}

// ID is what the key is called where it is listed and revoked: the first 16 hex digits of its hash.
func (k Key) ID() string { return k.Hash[:min(16, len(k.Hash))] }

// Expired reports whether the key's life is over: one that expires now has expired.
func (k Key) Expired(now time.Time) bool { return !k.ExpiresAt.IsZero() && !k.ExpiresAt.After(now) }

// Limits of new keys.
const (
	maxKeyName  = 100 // characters, as code points
	maxKeyOwner = 200 // characters
	minKeyLife  = time.Minute

	MaxKeys = 100 // of an owner, without those that have ended
)

// InvalidKeyError says what is wrong with a key that somebody wants to make.
type InvalidKeyError struct {
	Field  string // as the API calls it
	Detail string // a sentence for who sent it
}

func (e *InvalidKeyError) Error() string { return e.Detail }

// MakeKey makes a key that ends then, or never if that is nil, and returns it with its secret, which is
// the key itself. The maker is who asks for it. A key that a key makes ends with that at the latest.
// Errors: *InvalidKeyError, or random's.
func MakeKey(
	random io.Reader, maker Caller, owner, name string, ends *time.Time, now time.Time,
) (secret string, k Key, err error) {
	now = now.UTC().Truncate(time.Second)
	k = Key{Owner: owner, Name: name, CreatedAt: now}
	switch {
	case owner == AdminOwner:
		return "", k, &InvalidKeyError{"owner", "Name the owner whose key it will be. It cannot be " + AdminOwner + ": the admin key is a setting of the service."}
	case owner == "" || owner != maker.Owner && // whom a provider may call what it likes
		(len(owner) > maxKeyOwner || !printableASCII(owner) || strings.TrimSpace(owner) != owner || owner == "*"): // * is all owners
		return "", k, &InvalidKeyError{"owner", fmt.Sprintf("The owner must have 1 to %d printable ASCII characters, without blanks at its ends, and cannot be *.", maxKeyOwner)}
	case name == "" || utf8.RuneCountInString(name) > maxKeyName || strings.ContainsFunc(name, unicode.IsControl):
		return "", k, &InvalidKeyError{"name", fmt.Sprintf("Give the key a name of 1 to %d characters, without control characters.", maxKeyName)}
	}
	if ends != nil {
		k.ExpiresAt = ends.UTC().Truncate(time.Second)
		if k.ExpiresAt.Before(now.Add(minKeyLife)) || k.ExpiresAt.Year() > 9999 { // storage has no such dates
			return "", k, &InvalidKeyError{"expiresAtUtc", fmt.Sprintf("The end must be at least %d seconds away, and before the year 10000.", int(minKeyLife/time.Second))}
		}
	}
	if end := maker.KeyEnds; !end.IsZero() && (k.ExpiresAt.IsZero() || k.ExpiresAt.After(end)) {
		k.ExpiresAt = end
	}
	if secret, err = NewKey(random); err == nil {
		k.Hash, k.Last4 = Hash(secret), secret[len(secret)-4:]
	}
	return secret, k, err
}

// A secret is a prefix and 43 characters of base62, which are 256 bits. A key ends in 6 more, a checksum that tells typos
// from keys without asking storage, and lets scanners for secrets be sure of what they found.
const (
	keyPrefix, claimPrefix     = "tny_", "tnc_"
	prefixLength, secretLength = 4, 43
	checksumLength             = 6
	unchecked                  = prefixLength + secretLength
	base62                     = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	fair                       = 256 - 256%len(base62) // bytes from here on would make the first characters likelier
)

// NewKey draws an API key from random. It fails only if random does.
func NewKey(random io.Reader) (key string, err error) {
	key, err = draw(random, keyPrefix)
	if err != nil {
		return "", err
	}
	return key + checksum(key), nil
}

// NewClaimToken draws a claim token from random. It fails only if random does.
func NewClaimToken(random io.Reader) (token string, err error) { return draw(random, claimPrefix) }

func draw(random io.Reader, prefix string) (string, error) {
	secret := append(make([]byte, 0, unchecked), prefix...)
	var bytes [secretLength]byte
	for len(secret) < unchecked {
		some := bytes[:unchecked-len(secret)]
		if _, err := io.ReadFull(random, some); err != nil {
			return "", fmt.Errorf("drawing a secret: %w", err)
		}
		for _, b := range some {
			if int(b) < fair {
				secret = append(secret, base62[int(b)%len(base62)])
			}
		}
	}
	return string(secret), nil
}

// checksum returns the CRC-32 (IEEE) of s in base62, zero-padded.
func checksum(s string) string {
	sum := crc32.ChecksumIEEE([]byte(s))
	digits := bytes.Repeat([]byte{'0'}, checksumLength)
	for i := checksumLength - 1; sum > 0; i-- {
		digits[i] = base62[sum%uint32(len(base62))]
		sum /= uint32(len(base62))
	}
	return string(digits)
}

// ParseKey returns the hash of an API key, and reports whether s is one at all: prefix, length, alphabet, checksum.
func ParseKey(s string) (hash string, ok bool) {
	if len(s) != unchecked+checksumLength || !isSecret(s[:unchecked], keyPrefix) || s[unchecked:] != checksum(s[:unchecked]) {
		return "", false
	}
	return Hash(s), true
}

// ClaimHash returns the hash of a claim token, and reports whether it has the form of one.
func ClaimHash(token string) (hash string, ok bool) {
	if !isSecret(token, claimPrefix) {
		return "", false
	}
	return Hash(token), true
}

func isSecret(s, prefix string) bool {
	drawn, ok := strings.CutPrefix(s, prefix)
	return ok && len(drawn) == secretLength && strings.Trim(drawn, base62) == ""
}

// Hash returns the SHA-256 of a secret in lower-case hex. A plain hash is right for a secret of 256 random bits, which
// nobody can guess (OWASP ASVS 5, V6.5.2).
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
