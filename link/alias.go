package link

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"tiney/internal/random"
)

// MaxAliasLength is the length of the longest alias, in characters. All characters are ASCII.
const MaxAliasLength = 32

// Name is the name of a short link: 1 to 32 characters of A-Z, a-z, 0-9, "-" and "_",
// case-sensitive.
type Name string

// ParseAlias returns s as an alias, and reports whether s can be one at all. It is cheap enough to
// be called before every storage call.
func ParseAlias(s string) (Name, bool) {
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
	return Name(s), true
}

// reserved are paths of this service and of the Functions host.
var reserved = []string{"api", "manage", "admin", "runtime"}

// Reserved reports whether no link may have this alias. It ignores case, as the host's routes do.
func (a Name) Reserved() bool {
	return slices.ContainsFunc(reserved, func(r string) bool {
		return len(a) == len(r) &&
			strings.EqualFold(string(a), r)
	})
}

// NewAlias draws an alias of length characters (1 to MaxAliasLength) of 0-9A-Za-z from source. All
// characters are equally likely. It fails only if source fails.
func NewAlias(source io.Reader, length int) (Name, error) {
	for {
		text, err := random.Text(source, random.Base62, length)
		if err != nil {
			return "", fmt.Errorf("drawing an alias: %w", err)
		}
		if a := Name(text); !a.Reserved() {
			return a, nil
		}
	}
}
