package functions

import (
	"encoding/hex"
	"errors"
	"fmt"
	"image/color"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tiney/internal/access"
	"tiney/internal/clicks"
	"tiney/internal/link"
)

// parameters are the parameters of a query. problem is about the first that is wrong. refused is
// why the caller may not name the owner.
type parameters struct {
	url.Values
	problem *problem
	refused error
}

// parametersOf returns the parameters of a request. Unknown ones are ignored.
func parametersOf(r *http.Request) parameters {
	values, err := url.ParseQuery(r.URL.RawQuery)
	p := parameters{Values: values}
	if err != nil {
		p.wrong("",
			"The query is not valid: check its percent-encoding, and separate parameters by &.")
	}
	return p
}

// err returns why the parameters are refused, or nil.
func (p *parameters) err() error {
	if p.refused != nil || p.problem == nil {
		return p.refused
	}
	return p.problem
}

func (p *parameters) wrong(name, detail string) {
	if p.problem == nil {
		p.problem = badRequest("parameter", "Invalid parameter", detail, name)
	}
}

// oneOf returns a parameter, which must be one of values. The first value is the default.
func (p *parameters) oneOf(name string, values ...string) string {
	given := p.Values[name]
	if len(given) == 0 {
		return values[0]
	}
	for _, value := range values {
		if len(given) == 1 && given[0] == value {
			return value
		}
	}
	p.wrong(name, name+" must be one of "+strings.Join(values, ", ")+".")
	return values[0]
}

// color returns a parameter with a colour as rrggbb.
func (p *parameters) color(name string, byDefault color.RGBA) color.RGBA {
	if !p.Has(name) {
		return byDefault
	}
	rgb, err := hex.DecodeString(p.text(name))
	if err != nil || len(rgb) != 3 {
		p.wrong(name, name+" must be a colour as six hexadecimal digits, such as 1a2b3c.")
		return byDefault
	}
	return color.RGBA{rgb[0], rgb[1], rgb[2], 255}
}

// text returns a parameter, and "" if it is not given.
func (p *parameters) text(name string) string {
	if len(p.Values[name]) > 1 {
		p.wrong(name, name+" may be given once.")
	}
	return p.Get(name)
}

// texts returns the values of a parameter that may be given several times, without empty ones.
func (p *parameters) texts(name string) []string {
	return slices.DeleteFunc(slices.Clone(p.Values[name]), func(text string) bool {
		return text == ""
	})
}

// Limits of searches. A list compares each word with megabytes of links.
const (
	maxSearch      = 200 // characters, as code points, of several words; one may be a long URL
	maxSearchWords = 20  // different ones
	maxSearchTags  = 20
)

// search sets what the parameters q and tag search a list by. A short URL as q is not compared with
// anything, and may have a long query behind it.
func (s *service) search(p *parameters, f *filter) {
	f.q, f.tags = p.text("q"), p.texts("tag")
	if _, isLink := s.Rules.NameOf(f.q); !isLink {
		f.words = slices.Compact(slices.Sorted(strings.FieldsSeq(fold(f.q))))
	}
	switch words := len(f.words); {
	case words > maxSearchWords,
		words > 1 && utf8.RuneCountInString(f.q) > maxSearch,
		words == 1 && len(f.words[0]) > link.MaxLongURLBytes:
		p.wrong("q", fmt.Sprintf("q may have at most %d different words, and %d characters; one "+
			"word may be a URL of at most %d bytes.", maxSearchWords, maxSearch,
			link.MaxLongURLBytes))
	}
	if len(f.tags) > maxSearchTags {
		p.wrong("tag", fmt.Sprintf("tag may be given at most %d times.", maxSearchTags))
	}
}

// domainFilter returns the domain that a list is to be limited to; nil if there is none. The
// service need not have it any more.
func (s *service) domainFilter(query *parameters) *link.Domain {
	text := query.text("domain")
	if !query.Has("domain") {
		return nil
	}
	d, _, ok := s.Rules.Domain(text)
	if !ok {
		query.wrong("domain", "domain must be a host such as "+string(s.Rules.DomainName(""))+".")
	}
	return &d
}

// owner returns the owner that a query names, or the caller. See ownerFor.
func (p *parameters) owner(who access.Caller) string {
	text := p.text("owner")
	if text == "" {
		return who.Owner
	}
	owner, err := ownerFor(who, &text)
	var invalid *link.InvalidError
	if errors.As(err, &invalid) {
		p.wrong("owner", invalid.Detail)
	} else {
		p.refused = err
	}
	return owner
}

func (p *parameters) integer(name string, byDefault, low, high int) int {
	given := p.Values[name]
	if len(given) == 0 {
		return byDefault
	}
	n, err := strconv.Atoi(given[0])
	if err != nil || n < low || n > high || len(given) > 1 {
		p.wrong(name, fmt.Sprintf("%s must be a whole number from %d to %d.", name, low, high))
		return byDefault
	}
	return n
}

// day returns a parameter that is a day or a time on that day, in UTC. given is false if it is
// missing.
func (p *parameters) day(name string) (d clicks.Day, given bool) {
	text := p.text(name)
	if !p.Has(name) {
		return 0, false
	}
	at, err := time.Parse(time.DateOnly, text)
	if err != nil {
		at, err = time.Parse(time.RFC3339, text)
	}
	if year := at.UTC().Year(); err != nil || year < 1 || year > 9999 {
		p.wrong(name, name+" must be a day such as 2026-01-31, or a time such as "+
			"2026-01-31T12:00:00Z; a + in it has to be sent as %2B.")
	}
	return clicks.DayOf(at), true
}
