package link

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"tiney/internal/random"
)

// MaxAliasLength is the length of the longest alias, in characters. All characters are ASCII.
const MaxAliasLength = 100

// Alias is the part of a short URL that says which link is meant: 1 to 100 characters of A-Z, a-z,
// 0-9, "-" and "_".
type Alias string

// ParseAlias returns s as an alias, and reports whether s can be one at all. It is cheap enough to
// be called before every storage call.
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

// PastedAlias returns what may be an alias in a text that people pasted as one. White space and
// invisible characters around it go, and punctuation behind it: no alias has them. From the first
// "?", "#" or "&" on everything goes, as in "abc&gt;"; cut says so.
func PastedAlias(s string) (alias string, cut bool) {
	if i := strings.IndexAny(s, "?#&"); i >= 0 {
		s, cut = s[:i], true
	}
	return strings.TrimRightFunc(strings.TrimLeftFunc(s, Invisible), func(r rune) bool {
		return Invisible(r) || strings.ContainsRune("~>`|", r) ||
			unicode.IsPunct(r) && !strings.ContainsRune("-_/", r)
	}), cut
}

// Invisible reports whether a character is white space, or one that shows nothing.
func Invisible(r rune) bool {
	return unicode.IsSpace(r) || unicode.In(r, unicode.Z, unicode.Cf,
		unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// Lower returns the alias in lower case.
func (a Alias) Lower() Alias { return Alias(LowerASCII(string(a))) }

// LowerASCII returns s with the letters A to Z in lower case. It returns s itself if s has none.
func LowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// reserved are paths of this service and of the Functions host.
var reserved = []string{"api", "manage", "admin", "runtime"}

// Reserved reports whether no link may have this alias. It ignores case, as the host's routes do.
func (a Alias) Reserved() bool {
	return slices.ContainsFunc(reserved, func(r string) bool {
		return len(a) == len(r) &&
			strings.EqualFold(string(a), r)
	})
}

// NewAlias draws an alias of length characters (1 to MaxAliasLength) of 0-9A-Za-z from source, or
// of 0-9a-z if lower is set. All characters are equally likely. It fails only if source fails.
func NewAlias(source io.Reader, length int, lower bool) (Alias, error) {
	alphabet := random.Base62
	if lower {
		alphabet = random.Base36
	}
	for {
		text, err := random.Text(source, alphabet, length)
		if err != nil {
			return "", fmt.Errorf("drawing an alias: %w", err)
		}
		if a := Alias(text); !a.Reserved() {
			return a, nil
		}
	}
}
