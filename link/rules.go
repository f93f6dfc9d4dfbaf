package link

import (
	"errors"
	"fmt"
	"strings"
	"time"

	whatwg "github.com/nlnwa/whatwg-url/url"
)

// MinTTL is the shortest life of a link. The order of writes in a create rests on it: it is far longer than the
// longest create, so an expiry row is never due while its link is still on its way.
const MinTTL = time.Minute

// Fields of a request to shorten, as Invalid names them.
const (
	FieldLongURL = "longUrl"
	FieldTTL     = "expiresInSeconds"
)

// Invalid is the error of a request that breaks a rule.
type Invalid struct {
	Field  string // FieldLongURL or FieldTTL
	Detail string // what to do about it, for the caller; quotes nothing of the URL
}

func (e *Invalid) Error() string { return e.Field + ": " + e.Detail }

// Base is the start of every short URL of a service. The zero Base is of no use; ParseBase makes one.
type Base struct {
	url  string // without a slash at its end, printable ASCII
	host string // as the WHATWG parser writes it
}

// ParseBase reads the setting that names where the service is to be reached: an http or https URL with a host, and a
// path where a proxy in front adds one; no user name, query or fragment.
func ParseBase(raw string) (Base, error) {
	const want = "must be a URL such as https://example.com"
	if strings.ContainsAny(raw, "?#@\\ \t\r\n") {
		return Base{}, errors.New(want + ", without user name, query or fragment")
	}
	target, ok := split(raw)
	if !ok || target.authority == "" {
		return Base{}, errors.New(want)
	}
	parsed, err := whatwg.Parse(raw)
	if err != nil || parsed.Hostname() == "" {
		return Base{}, errors.New(want + ": its host or port is not valid")
	}
	return Base{url: strings.TrimRight(Location(raw), "/"), host: parsed.Hostname()}, nil
}

// String returns the base without a slash at its end.
func (b Base) String() string { return b.url }

// ShortURL returns the URL that leads to the link of this alias.
func (b Base) ShortURL(a Alias) string { return b.url + "/" + string(a) }

// Rules are what a new link must meet besides what holds for all.
type Rules struct {
	Base       Base
	DefaultTTL time.Duration // the life of a link for which none was asked
	MaxTTL     time.Duration // the longest life that may be asked for
}

// New makes the link that a caller asked for at now; its alias is still to be drawn. ttlSeconds is nil where the
// caller asked for no particular life. The error is always an *Invalid.
func (r Rules) New(longURL string, ttlSeconds *int64, now time.Time) (Link, error) {
	if wrong := checkTarget(longURL, r.Base); wrong != "" {
		return Link{}, &Invalid{Field: FieldLongURL, Detail: wrong}
	}
	ttl := min(r.DefaultTTL, r.MaxTTL)
	if ttlSeconds != nil {
		low, high := int64(MinTTL/time.Second), int64(r.MaxTTL/time.Second)
		if *ttlSeconds < low || *ttlSeconds > high {
			return Link{}, &Invalid{Field: FieldTTL, Detail: fmt.Sprintf("expiresInSeconds must be a whole number from %d to %d.", low, high)}
		}
		ttl = time.Duration(*ttlSeconds) * time.Second
	}
	created := now.UTC().Truncate(time.Second)
	return Link{LongURL: longURL, CreatedAt: created, ExpiresAt: created.Add(ttl)}, nil
}
