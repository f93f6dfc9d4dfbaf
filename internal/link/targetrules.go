package link

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/clicks"
)

// Limits of the rules of a link.
const (
	MaxTargetRules  = 10
	MaxRuleValues   = 50       // of one condition
	maxTargetsBytes = 12 << 10 // of all rules as EncodeTargetRules writes them
)

// TargetRule decides where a link leads for some of its visitors: those for whom all of its
// conditions hold. A condition that is not set holds for everybody. Its JSON is that of the API,
// without what is not set.
type TargetRule struct {
	Name      string     `json:"name,omitzero"`      // by which statistics count it
	Countries []string   `json:"countries,omitzero"` // the visitor's is one of clicks.CountryNames
	Systems   []string   `json:"systems,omitzero"`   // clicks.SystemNames
	Devices   []string   `json:"devices,omitzero"`   // clicks.DeviceNames
	Languages []string   `json:"languages,omitzero"` // such as "de", which holds for "de-AT" too
	From      *time.Time `json:"fromUtc,omitzero"`   // inclusive
	Until     *time.Time `json:"untilUtc,omitzero"`  // exclusive
	Percent   Percent    `json:"percent,omitzero"`   // of those for whom all else holds
	LongURL   string     `json:"longUrl,omitzero"`
}

// Percent is a share of visitors, from 1 to 99. Zero: all of them.
type Percent int8

// UnmarshalJSON decodes a whole number in any notation, or null.
func (p *Percent) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseFloat(string(data), 64)
	switch *p = Percent(n); {
	case string(data) == "null":
	case err != nil, n < 1, n > 99, float64(*p) != n:
		return errors.New("not a whole number from 1 to 99")
	}
	return nil
}

// Visitor is who asks for a link with rules. Only what a rule asks for is called.
type Visitor interface {
	Country() string
	System() string
	Device() string
	Language() string // "": none
	// Draw reports whether the visitor is among so many percent, at random.
	Draw(Percent) bool
}

// For returns the link as it is for a visitor at now: its long URL is that of the first rule that
// holds. rule is the name of that rule, or clicks.Itself if none holds.
func (l Link) For(v Visitor, now time.Time) (_ Link, rule string) {
	for i := range l.Rules {
		if r := &l.Rules[i]; r.holds(v, now) {
			l.LongURL = r.LongURL
			return l, cmp.Or(r.Name, clicks.Other)
		}
	}
	return l, clicks.Itself
}

func (t *TargetRule) holds(v Visitor, now time.Time) bool {
	return (t.From == nil || !now.Before(*t.From)) && (t.Until == nil || now.Before(*t.Until)) &&
		(len(t.Countries) == 0 || slices.Contains(t.Countries, v.Country())) &&
		(len(t.Systems) == 0 || slices.Contains(t.Systems, v.System())) &&
		(len(t.Devices) == 0 || slices.Contains(t.Devices, v.Device())) &&
		(len(t.Languages) == 0 || t.speaks(v.Language())) &&
		(t.Percent == 0 || v.Draw(t.Percent))
}

// speaks reports whether one of the languages of the rule is this one, or a wider one (RFC 4647,
// 3.3.1).
func (t *TargetRule) speaks(language string) bool {
	return slices.ContainsFunc(t.Languages, func(wide string) bool {
		n := len(wide)
		return len(language) >= n && strings.EqualFold(language[:n], wide) &&
			(len(language) == n || language[n] == '-')
	})
}

// Targets returns all URLs to which the link may lead, its own first, each once.
func (l Link) Targets() []string {
	targets := []string{l.LongURL}
	for _, r := range l.Rules {
		if !slices.Contains(targets, r.LongURL) {
			targets = append(targets, r.LongURL)
		}
	}
	return targets
}

// EncodeTargetRules returns the rules as they are stored: a JSON list, or "" if there are none.
func EncodeTargetRules(rules []TargetRule) string {
	if len(rules) == 0 {
		return ""
	}
	return string(toJSON(rules))
}

func sameRules(a, b []TargetRule) bool { return EncodeTargetRules(a) == EncodeTargetRules(b) }

// ParseTargetRules reads what EncodeTargetRules returned. Another program may have written the
// text, so ParseTargetRules leaves out rules that it cannot read, or not all of: without a
// condition that is not known here, a rule would lead others, too.
func ParseTargetRules(text string) (rules []TargetRule) {
	if text == "" { // as of most links
		return nil
	}
	var list []jsontext.Value
	_ = json.Unmarshal([]byte(text), &list, jsontext.AllowInvalidUTF8(true))
	for _, item := range list {
		var r TargetRule
		if json.Unmarshal(item, &r, json.RejectUnknownMembers(true)) != nil ||
			!strings.Contains(r.LongURL, ":") || !r.conditional() {
			continue
		}
		if !clicks.IsRule(r.Name) {
			r.Name = ""
		}
		// The offset of a time may move it into a year that cannot be written again.
		if utc(r.From, time.Nanosecond) && utc(r.Until, time.Nanosecond) {
			rules = append(rules, r)
		}
	}
	return rules
}

// utc moves a time to UTC and cuts it to a unit, unless it is nil. It returns false if no row can
// have it then.
func utc(at *time.Time, unit time.Duration) bool {
	if at == nil {
		return true
	}
	*at = at.UTC().Truncate(unit)
	return at.Year() >= 0 && at.Year() <= 9999
}

// conditional reports whether the rule has a condition.
func (t *TargetRule) conditional() bool {
	return len(t.Countries)+len(t.Systems)+len(t.Devices)+len(t.Languages)+int(t.Percent) > 0 ||
		t.From != nil || t.Until != nil
}

// checkRules returns rules that a caller asks for as a link keeps them: words in the spelling of
// statistics, and each with a name. The error is an *InvalidError. Its field says which rule is
// wrong, counted from 0.
func (r Rules) checkRules(asked []TargetRule) ([]TargetRule, error) {
	if len(asked) == 0 {
		return nil, nil
	}
	if len(asked) > MaxTargetRules {
		return nil, &InvalidError{FieldRules,
			fmt.Sprintf("A link may have at most %d rules.", MaxTargetRules)}
	}
	rules := slices.Clone(asked)
	var names []string
	for i := range rules {
		if field, wrong := r.checkRule(&rules[i]); wrong != "" {
			return nil, &InvalidError{RuleField(i, field), wrong}
		}
		if name := rules[i].Name; name != "" {
			if slices.Contains(names, name) {
				return nil, &InvalidError{RuleField(i, "name"),
					"Another rule of this link has this name."}
			}
			names = append(names, name)
		}
	}
	for i := range rules {
		for n := 1; rules[i].Name == ""; n++ {
			if name := strconv.Itoa(n); !slices.Contains(names, name) {
				rules[i].Name = name
				names = append(names, name)
			}
		}
	}
	if len(EncodeTargetRules(rules)) > maxTargetsBytes {
		return nil, &InvalidError{FieldRules, fmt.Sprintf("All rules of a link together may have "+
			"at most %d bytes as JSON.", maxTargetsBytes)}
	}
	return rules, nil
}

// FitRules returns those rules of a link that it may have. Of more or longer ones than a link may
// have, it returns the first.
func (r Rules) FitRules(l Link) (fit []TargetRule) {
	for _, rule := range l.Rules {
		_, wrong := r.checkRule(&rule)
		if wrong != "" || l.Forward != 0 && !(Link{LongURL: rule.LongURL}).CanForward() {
			continue
		}
		more, err := r.checkRules(append(fit, rule))
		if err != nil {
			break
		}
		fit = more
	}
	return fit
}

// RuleField returns the place of a member of a rule, or of the rule itself.
func RuleField(i int, member string) Field {
	return Field(strings.TrimSuffix(fmt.Sprintf("%s[%d].%s", FieldRules, i, member), "."))
}

// checkRule brings a rule into the form in which it is kept. It returns what is wrong with it, in
// words for the caller, and the member with that; wrong is "" if nothing is.
func (r Rules) checkRule(t *TargetRule) (member, wrong string) {
	if t.Name != "" && !clicks.IsRule(t.Name) {
		return "name", `A name has 1 to 32 printable characters, no space at its ends, and does not begin with "(".`
	}
	for _, list := range []struct {
		member string
		values *[]string
		known  []string
		words  string
	}{
		{"countries", &t.Countries, clicks.CountryNames,
			"countries by their codes of two letters, such as DE"},
		{"systems", &t.Systems, clicks.SystemNames, strings.Join(clicks.SystemNames, ", ")},
		{"devices", &t.Devices, clicks.DeviceNames, strings.Join(clicks.DeviceNames, ", ")},
		{"languages", &t.Languages, nil, "languages such as de or pt-BR"},
	} {
		if *list.values == nil {
			continue
		}
		values, ok := fromWords(*list.values, list.known)
		if !ok {
			return list.member, fmt.Sprintf("Name 1 to %d of these: %s.", MaxRuleValues, list.words)
		}
		*list.values = values
	}
	for i, at := range []*time.Time{t.From, t.Until} {
		if !utc(at, time.Second) || at != nil && !storable(*at) {
			return []string{"fromUtc", "untilUtc"}[i],
				"It must be from 1970 on, and before the year 10000."
		}
	}
	if t.From != nil && t.Until != nil && !t.From.Before(*t.Until) {
		return "fromUtc", "It must be before untilUtc."
	}
	if wrong := r.checkTarget(t.LongURL, true); wrong != "" {
		return "longUrl", wrong
	}
	if !t.conditional() {
		return "", "A rule needs a condition besides its longUrl: countries, systems, devices, " +
			"languages, fromUtc, untilUtc or percent."
	}
	return "", ""
}

// fromWords returns values as known has them, each once, and false if one is not known or there are
// none or too many. If nothing is known, they are languages.
func fromWords(values, known []string) ([]string, bool) {
	if len(values) == 0 || len(values) > MaxRuleValues {
		return nil, false
	}
	var words []string
	for _, value := range values {
		if known != nil {
			i := slices.IndexFunc(known, func(k string) bool {
				return len(k) == len(value) && strings.EqualFold(k, value)
			})
			if i < 0 {
				return nil, false
			}
			value = known[i]
		} else if !IsLanguage(value) {
			return nil, false
		}
		words = append(words, value)
	}
	return distinct(words), true
}

// IsLanguage reports whether a text has the form of a language such as "pt-BR" (RFC 5646, without
// its rules for the parts).
func IsLanguage(s string) bool {
	return len(s) >= 2 && len(s) <= 35 && strings.Trim(s, languageBytes) == "" &&
		!strings.Contains("-"+s+"-", "--")
}

const languageBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-"
