package link

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxOwner is the length of the longest owner, in characters, as code points. The owner of a person
// who signs in is a host name, a bar and up to 255 characters.
const MaxOwner = 400

// CheckOwner returns an error if a text cannot be an owner. The error is an *InvalidError.
func CheckOwner(owner string) error {
	if !IsPrintable(owner, MaxOwner) {
		return &InvalidError{FieldOwner, fmt.Sprintf(
			"An owner has 1 to %d characters, all of them printable.", MaxOwner)}
	}
	return nil
}

// IsPrintable reports whether a text has 1 to most characters of any script, all of them printable.
func IsPrintable(text string, most int) bool {
	return text != "" && utf8.RuneCountInString(text) <= most &&
		!strings.ContainsFunc(text, func(r rune) bool {
			return r == utf8.RuneError || !unicode.IsPrint(r) // the former for invalid UTF-8 too
		})
}
