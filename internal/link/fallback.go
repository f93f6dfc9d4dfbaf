package link

import (
	"errors"
	"fmt"
	"strings"
)

// Fallback is a URL to which people are sent where no link leads anywhere. {alias} and {domain} in
// its path, query or fragment stand for what was asked for.
type Fallback string

const (
	aliasPlace  = "{alias}"
	domainPlace = "{domain}"
)

// ParseFallback parses a Fallback, which must not lead to the service itself. It may have {alias}
// only if alias is set.
func (r Rules) ParseFallback(raw string, alias bool) (Fallback, error) {
	target, _ := split(raw)
	if strings.Contains(target.authority, aliasPlace) ||
		strings.Contains(target.authority, domainPlace) {
		return "", errors.New("may have {alias} and {domain} in its path, query or fragment only")
	}
	if wrong := r.checkTarget(raw, false); wrong != "" {
		return "", errors.New("must be a URL such as https://example.com/: " + wrong)
	}
	if _, err := ParseBase(target.scheme + "://" + target.authority); err != nil {
		return "", err
	}
	if !alias && strings.Contains(raw, aliasPlace) {
		return "", errors.New("may not have {alias}: no alias was asked for")
	}
	rest := strings.NewReplacer(aliasPlace, "", domainPlace, "").Replace(raw)
	if strings.ContainsAny(rest, "{}") { // most likely a name in another spelling
		return "", errors.New("may have {alias} and {domain} in braces, nothing else. " +
			"For a brace, write %7B or %7D")
	}
	f := Fallback(raw)
	longest := f.Location(Alias(strings.Repeat("a", MaxAliasLength)),
		Domain(strings.Repeat("d", maxHost)+":65535"))
	if len(longest) > MaxLocationBytes {
		return "", fmt.Errorf("may have at most %d bytes with the longest alias and domain in it",
			MaxLocationBytes)
	}
	return f, nil
}

// Location returns the URL for a request for an alias, in ASCII.
func (f Fallback) Location(a Alias, d Domain) string {
	encode := func(s string) string {
		return escape(s, func(c byte) bool {
			return !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
				strings.IndexByte("-._~", c) >= 0)
		})
	}
	return Location(strings.NewReplacer(aliasPlace, encode(string(a)),
		domainPlace, encode(string(d))).Replace(string(f)))
}
