package link

import (
	"errors"
	"fmt"
	"strings"
	"time"

	whatwg "github.com/nlnwa/whatwg-url/url"
)

// MinTTL is the shortest lifetime of a link. The order of writes in a create relies on it: it is far longer than the
// longest create, so an expiry row is never due while its link is still being written.
const MinTTL = time.Minute

// Field is a part of a link that a rule is about.
type Field int

// The fields that InvalidError names.
const (
	FieldLongURL Field = iota
	FieldLifetime
)

func (f Field) String() string { return [...]string{"long URL", "lifetime"}[f] }

// InvalidError is the error of a link that breaks a rule.
type InvalidError struct {
	Field  Field
	Detail string // what to do about it, for the caller; quotes nothing of the URL
}

func (e *InvalidError) Error() string { return e.Field.String() + ": " + e.Detail }

// Base is the start of every short URL of a service. ParseBase returns one; the zero value is not valid.
type Base struct {
	url  string // without a trailing slash, printable ASCII
	host string // as the WHATWG parser writes it
}

// ParseBase parses the URL that a service is reached by: http or https with a host, and a path if a proxy in front adds
// one; no user name, query or fragment.
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

// String returns the base without a trailing slash.
func (b Base) String() string { return b.url }

// ShortURL returns the URL that leads to the link of this alias.
func (b Base) ShortURL(a Alias) string { return b.url + "/" + string(a) }

// Rules are the limits of new links that a service can set.
type Rules struct {
	Base       Base
	DefaultTTL time.Duration // lifetime of a link if the caller asks for none
	MaxTTL     time.Duration // longest lifetime, DefaultTTL included
}

// New makes the link that a caller asks for at now; its alias is still to be drawn. ttlSeconds is nil if the caller
// asks for no particular lifetime. The error is always an *InvalidError.
func (r Rules) New(longURL string, ttlSeconds *int64, now time.Time) (Link, error) {
	if wrong := checkTarget(longURL, r.Base); wrong != "" {
		return Link{}, &InvalidError{FieldLongURL, wrong}
	}
	ttl := min(r.DefaultTTL, r.MaxTTL)
	if ttlSeconds != nil {
		low, high := int64(MinTTL/time.Second), int64(r.MaxTTL/time.Second)
		if *ttlSeconds < low || *ttlSeconds > high {
			return Link{}, &InvalidError{FieldLifetime, fmt.Sprintf("The lifetime must be a whole number of seconds from %d to %d.", low, high)}
		}
		ttl = time.Duration(*ttlSeconds) * time.Second
	}
	created := now.UTC().Truncate(time.Second)
	return Link{LongURL: longURL, CreatedAt: created, ExpiresAt: created.Add(ttl)}, nil
}
