package link

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MinTTL is the shortest lifetime of a link. The order of writes in a create relies on it: MinTTL
// is far longer than the longest create, so an expiry row is never due while its link is still
// being written.
const MinTTL = time.Minute

// Limits of links that have an owner, and of the title and tags of any link.
const (
	MaxOwnedSeconds = 100 * 365 * 86400 // the longest life, unless the link never ends
	MaxTitle        = 200               // characters, as code points
	MaxTags         = 20
	MaxTag          = 50 // characters, as code points
)

// Field is the part of a link that a rule is about, by its name in the API.
type Field string

// The fields that InvalidError names.
const (
	FieldLongURL    Field = "longUrl"
	FieldLifetime   Field = "expiresInSeconds"
	FieldExpiresAt  Field = "expiresAtUtc"
	FieldStartsAt   Field = "startsAtUtc"
	FieldGoneURL    Field = "goneUrl"
	FieldAlias      Field = "alias"
	FieldStatusCode Field = "statusCode"
	FieldTitle      Field = "title"
	FieldTags       Field = "tags"
	FieldCreatedAt  Field = "createdAtUtc"
	FieldUpdatedAt  Field = "updatedAtUtc"
	FieldOwner      Field = "owner"
	FieldClicks     Field = "clicks"
	FieldForward    Field = "forward"
	FieldRules      Field = "rules" // or "rules[1].countries", as checkRules has it
	FieldPassword   Field = "password"
	FieldMaxOpens   Field = "maxOpens"
	FieldOpensLeft  Field = "opensLeft"
	FieldDomain     Field = "domain"
)

// InvalidError says that a link breaks a rule.
type InvalidError struct {
	Field  Field
	Detail string // what the caller should do; never quotes the URL
}

func (e *InvalidError) Error() string { return string(e.Field) + ": " + e.Detail }

// Base is the start of every short URL of a service. ParseBase returns one. The zero value is not
// valid.
type Base struct {
	url    string // printable ASCII, without a trailing slash
	host   string // as the WHATWG parser writes it
	domain Domain
	origin string
}

// ParseBase parses the URL at which a service is reached. It must have the scheme http or https and
// a host, and a path if a proxy in front adds one. It must have no user name, query or fragment.
func ParseBase(raw string) (Base, error) {
	const want = "must be a URL such as https://example.com"
	if strings.ContainsAny(raw, "?#@\\ \t\r\n") {
		return Base{}, errors.New(want + ", without user name, query or fragment")
	}
	target, ok := split(raw)
	if !ok || target.authority == "" {
		return Base{}, errors.New(want)
	}
	parsed, err := target.parse()
	if err != nil || !canBeName(parsed.Hostname()) {
		return Base{}, errors.New(want + ": its host or port is not valid")
	}
	return Base{url: strings.TrimRight(Location(raw), "/"), host: parsed.Hostname(),
		domain: domainAt(string(canonical(parsed.Hostname())), parsed.Port()),
		origin: parsed.Protocol() + "//" + parsed.Host()}, nil
}

// Origin returns the origin of the base, as browsers write it in the Origin header (RFC 6454).
func (b Base) Origin() string { return b.origin }

// String returns the base without a trailing slash.
func (b Base) String() string { return b.url }

// Domain returns the name of the base's host as a domain.
func (b Base) Domain() Domain { return b.domain }

// HasPath reports whether the base has more than a host.
func (b Base) HasPath() bool {
	_, after, _ := strings.Cut(b.url, "://")
	return strings.Contains(after, "/")
}

// aliasOf returns the alias of a short URL, as NameOf does.
func (b Base) aliasOf(pasted string) (Alias, bool) {
	bare := func(url string) string {
		if target, ok := split(url); ok {
			return target.authority + target.rest
		}
		return url
	}
	base, pasted := bare(b.url)+"/", bare(pasted)
	if len(pasted) < len(base) || !strings.EqualFold(pasted[:len(base)], base) {
		return "", false
	}
	alias, _ := PastedAlias(pasted[len(base):])
	return ParseAlias(strings.TrimSuffix(alias, "/"))
}

// Rules are the limits that a service can set for its links.
type Rules struct {
	Base       Base
	Domains    map[Domain]Base // those besides the default one, which is Base
	OtherHosts []Host          // other hosts of this service, which no link may lead to either
	DefaultTTL time.Duration   // lifetime of a link without an owner if the caller asks for none
	MaxTTL     time.Duration   // longest lifetime of a link without an owner; limits DefaultTTL
	// AnyCase says that the case of aliases does not matter. New links then have names in lower
	// case.
	AnyCase bool
	// ExtraSchemes are the schemes besides http and https that links of owners may have, in lower
	// case.
	ExtraSchemes []string
}

// End says when a link is to end. At most one of its fields is set. The zero End leaves the
// decision to the rules.
type End struct {
	Seconds *int64 // from now
	At      *time.Time
}

// Wish is a new link that a caller asks for.
type Wish struct {
	LongURL    string
	Owner      string // "": nobody
	Domain     Domain
	Alias      *string // nil: one is drawn
	End        End
	StartsAt   *time.Time // nil: it does not say; a zero time: at once
	GoneURL    *string    // nil: it does not say; "": none
	StatusCode *int64     // nil: 302
	Forward    []string
	Rules      []TargetRule // nil: it does not say
	Password   *string      // a hash; nil: it does not say; "": none
	MaxOpens   *int64       // nil: it does not say; zero: no limit
	Title      string
	Tags       []string
}

// New makes the link that a caller asks for at now. Its name has no alias if one is to be drawn.
// The error is always an *InvalidError.
func (r Rules) New(w Wish, now time.Time) (Link, error) {
	l := Link{Name: w.Domain.Name(""), LongURL: w.LongURL, Owner: w.Owner,
		CreatedAt: now.UTC().Truncate(time.Second)}
	if wrong := r.checkTarget(w.LongURL, w.Owner != ""); wrong != "" {
		return Link{}, &InvalidError{FieldLongURL, wrong}
	}
	var err error
	if w.Alias != nil {
		if l.Name, l.Spelling, err = r.Choose(*w.Alias, w.Domain); err != nil {
			return Link{}, err
		}
	}
	if l.ExpiresAt, err = r.end(w.End, w.Owner != "", l.CreatedAt); err != nil {
		return Link{}, err
	}
	if w.StartsAt != nil {
		l.StartsAt = w.StartsAt.UTC().Truncate(time.Second)
	}
	if err = l.checkStart(); err != nil {
		return Link{}, err
	}
	if l.Rules, err = r.checkRules(w.Rules); err != nil {
		return Link{}, err
	}
	if w.GoneURL != nil {
		l.GoneURL = Fallback(*w.GoneURL)
	}
	if err = r.checkGoneURL(l); err != nil {
		return Link{}, err
	}
	if l.StatusCode, err = statusCode(w.StatusCode); err != nil {
		return Link{}, err
	}
	if w.Password != nil {
		l.Password = *w.Password
	}
	if w.MaxOpens != nil {
		if err = l.setMaxOpens(*w.MaxOpens); err != nil {
			return Link{}, err
		}
	}
	if l.Forward, err = ParseForward(w.Forward); err == nil {
		err = l.checkForward()
	}
	if err != nil {
		return Link{}, err
	}
	if err := checkWords(w.Title, w.Tags); err != nil {
		return Link{}, err
	}
	l.Title, l.Tags = w.Title, distinct(w.Tags)
	return l, nil
}

// Choose returns the name of a link with the alias that a caller has chosen, and the alias as it is
// spelled, unless the name has it so. The error is an *InvalidError.
func (r Rules) Choose(chosen string, d Domain) (n Name, spelling Alias, err error) {
	a, ok := ParseAlias(chosen)
	if !ok || a.Reserved() {
		return "", "", &InvalidError{FieldAlias,
			fmt.Sprintf(`An alias has 1 to %d of the characters A-Z, a-z, 0-9, "-" and "_", `+
				`and is none of: %s.`, MaxAliasLength, strings.Join(reserved, ", "))}
	}
	if n = d.Name(a); r.AnyCase && a.Lower() != a {
		n, spelling = n.Lower(), a
	}
	return n, spelling, nil
}

// end returns the time at which a link is to end, and zero for never, which only a link with an
// owner may have. The error is an *InvalidError.
func (r Rules) end(e End, owned bool, now time.Time) (time.Time, error) {
	const low = int64(MinTTL / time.Second)
	high := int64(MaxOwnedSeconds)
	if !owned {
		high = int64(r.MaxTTL / time.Second)
	}
	longest := time.Duration(high) * time.Second
	switch {
	case e.Seconds != nil:
		if *e.Seconds < low || *e.Seconds > high {
			return time.Time{}, &InvalidError{FieldLifetime,
				fmt.Sprintf("The lifetime must be a whole number of seconds from %d to %d.", low,
					high)}
		}
		return now.Add(time.Duration(*e.Seconds) * time.Second), nil
	case e.At != nil:
		at := e.At.UTC().Truncate(time.Second)
		if at.Before(now.Add(MinTTL)) {
			return time.Time{}, &InvalidError{FieldExpiresAt,
				fmt.Sprintf("The end must be at least %d seconds away.", low)}
		}
		if at.After(now.Add(longest)) {
			return time.Time{}, &InvalidError{FieldExpiresAt,
				fmt.Sprintf("The end may be at most %d seconds away.", high)}
		}
		return at, nil
	case owned:
		return time.Time{}, nil
	}
	return now.Add(min(r.DefaultTTL, r.MaxTTL)), nil
}

// checkStart returns an error if a link cannot start when it is to. A start may be past. The end of
// a link that is used up is not the one that it is to have. The error is an *InvalidError.
func (l Link) checkStart() error {
	switch {
	case l.StartsAt.IsZero():
		return nil
	case !storable(l.StartsAt):
		return &InvalidError{FieldStartsAt,
			"The start must be from 1970 on, and before the year 10000."}
	case !l.ExpiresAt.IsZero() && !l.UsedUp() && !l.StartsAt.Before(l.ExpiresAt):
		return &InvalidError{FieldStartsAt, "The start must be before the end."}
	}
	return nil
}

// checkGoneURL returns an error if a link cannot have its gone URL. The error is an *InvalidError.
func (r Rules) checkGoneURL(l Link) error {
	switch _, err := r.ParseFallback(string(l.GoneURL), true); {
	case l.GoneURL == "":
		return nil
	case err != nil:
		return &InvalidError{FieldGoneURL, "It " + strings.TrimSuffix(err.Error(), ".") + "."}
	case slices.Contains(l.Targets(), string(l.GoneURL)):
		return &InvalidError{FieldGoneURL, "It must differ from where the link leads before its end."}
	}
	return nil
}

func statusCode(asked *int64) (int, error) {
	if asked == nil {
		return DefaultStatusCode, nil
	}
	code := int(*asked)
	if int64(code) != *asked || !ValidStatusCode(code) { // an int may have only 32 bits
		return 0, &InvalidError{FieldStatusCode, "The status code must be 301, 302, 307 or 308."}
	}
	return code, nil
}

// DefaultStatusCode is the status code of a link's redirects unless it has another one.
const DefaultStatusCode = 302

// ValidStatusCode reports whether a link may redirect with this status code.
func ValidStatusCode(code int) bool { return slices.Contains([]int{301, 302, 307, 308}, code) }

func checkWords(title string, tags []string) error {
	if wrong := checkText("The title", title, MaxTitle); wrong != "" {
		return &InvalidError{FieldTitle, wrong}
	}
	if len(tags) > MaxTags {
		return &InvalidError{FieldTags, fmt.Sprintf("There may be at most %d tags.", MaxTags)}
	}
	for _, tag := range tags {
		wrong := checkText("A tag", tag, MaxTag)
		if tag == "" {
			wrong = "A tag must not be empty."
		}
		if wrong != "" {
			return &InvalidError{FieldTags, wrong}
		}
	}
	return nil
}

func checkText(what, text string, most int) string {
	switch {
	case utf8.RuneCountInString(text) > most:
		return fmt.Sprintf("%s may have at most %d characters.", what, most)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		return what + " must be valid UTF-8 without control characters."
	}
	return ""
}

// distinct returns the tags without repetitions, in the order in which they were given.
func distinct(tags []string) []string {
	var once []string
	for _, tag := range tags {
		if !slices.Contains(once, tag) {
			once = append(once, tag)
		}
	}
	return once
}
