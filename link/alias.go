package link

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// MaxAliasLength is the longest alias, in characters, all of them ASCII.
const MaxAliasLength = 32

// Alias is the name of a short link: 1 to 32 characters of A-Z, a-z, 0-9, "-" and "_", case-sensitive.
type Alias string

// ParseAlias reports whether s can be an alias at all, and is cheap enough to stand before every storage call.
func ParseAlias(s string) (Alias, bool) {
	if len(s) == 0 || len(s) > MaxAliasLength {
		return "", false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return "", false
		}
	}
	return Alias(s), true
}

// reserved are paths of this service and of the Functions host.
var reserved = []string{"api", "manage", "admin", "runtime"}

// Reserved reports whether no link may have this alias. Case does not matter, as it does not in the host's routes.
func (a Alias) Reserved() bool {
	return slices.ContainsFunc(reserved, func(r string) bool { return len(a) == len(r) && strings.EqualFold(string(a), r) })
}

const aliasAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// NewAlias draws an alias of length characters (1 to MaxAliasLength) of 0-9A-Za-z from random, each equally likely.
// It fails only if random does.
func NewAlias(random io.Reader, length int) (Alias, error) {
	for {
		a, err := drawAlias(random, length)
		if err != nil || !a.Reserved() {
			return a, err
		}
	}
}

func drawAlias(random io.Reader, length int) (Alias, error) {
	// 248 is the largest multiple of 62 in a byte. Taking bytes from 248 up modulo 62 as well would make the first
	// eight characters likelier than the others, so those bytes are drawn again.
	const fair = 256 - 256%len(aliasAlphabet)
	alias := make([]byte, 0, MaxAliasLength)
	var draw [MaxAliasLength]byte
	for len(alias) < length {
		some := draw[:length-len(alias)]
		if _, err := io.ReadFull(random, some); err != nil {
			return "", fmt.Errorf("drawing an alias: %w", err)
		}
		for _, b := range some {
			if int(b) < fair {
				alias = append(alias, aliasAlphabet[int(b)%len(aliasAlphabet)])
			}
		}
	}
	return Alias(alias), nil
}
