package formats

import (
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/clicks"
	"tiney/internal/link"
)

// maxTargets is how many rules of another program are kept. Those of them that no link may have
// here leave room for others, and a file of megabytes may have hundreds of thousands.
const maxTargets = 2 * link.MaxTargetRules

// otherRules sets the rules of a link of another program: those for iOS, for Android and for
// countries, or its schedules.
func (e *entry) otherRules() {
	var all []link.TargetRule
	if url := e.texts[ios]; url != "" {
		all = append(all, link.TargetRule{Systems: []string{"iOS"}, LongURL: url})
	}
	if url := e.texts[android]; url != "" {
		all = append(all, link.TargetRule{Systems: []string{"Android"}, LongURL: url})
	}
	all = append(all, e.byCountry()...)
	all = append(all, e.bySchedule()...)
	if text := e.texts[variants]; !nothing(text) && text != "[]" {
		e.Left |= leftRules
	}
	if len(all) > maxTargets {
		e.Left |= ofRules(all)
		all = slices.Clone(all[:maxTargets])
	}
	e.Link.Rules = all
}

// countryTarget is where a link leads in one country.
type countryTarget struct{ country, url string }

// readCountries decodes an object of targets by country. Of several for a country, the last one
// counts, as in JavaScript.
func (e *entry) readCountries(in *jsontext.Decoder) error {
	if in.PeekKind() != '{' {
		text, err := scalar(in)
		if !nothing(text) {
			e.Left |= leftRules
		}
		return err
	}
	_, err := in.ReadToken()
	for err == nil && in.PeekKind() == '"' {
		var name jsontext.Token
		if name, err = in.ReadToken(); err != nil {
			return err
		}
		t := countryTarget{country: strings.ToUpper(name.String())}
		if t.url, err = scalar(in); t.url == "" {
			continue
		}
		at := slices.IndexFunc(e.countries, func(c countryTarget) bool { return c.country == t.country })
		switch {
		case at >= 0:
			e.countries[at] = t
		case slices.Contains(clicks.CountryNames, t.country):
			e.countries = append(e.countries, t)
		default:
			e.Left |= leftRules
		}
	}
	if err == nil {
		_, err = in.ReadToken()
	}
	return err
}

// byCountry returns the rules by country: one for all countries with the same target, if it may
// name so many.
func (e *entry) byCountry() (all []link.TargetRule) {
	at := map[string]int{} // the last rule of each target
	for _, t := range e.countries {
		i, ok := at[t.url]
		if !ok || len(all[i].Countries) == link.MaxRuleValues {
			i = len(all)
			at[t.url] = i
			all = append(all, link.TargetRule{LongURL: t.url})
		}
		all[i].Countries = append(all[i].Countries, t.country)
	}
	return all
}

// schedule is when AzUrlShortener leads elsewhere: from Start to End, at the times of Cron.
type schedule struct{ Start, End, AlternativeURL, Cron string }

// maxSchedules is more schedules than a property of a table can have.
const maxSchedules = 1000

// bySchedule returns the rules for the schedules of AzUrlShortener, by their start, as they are
// tried there. A rule has no rhythm, so only schedules without one come along. Of a damaged list,
// none does.
func (e *entry) bySchedule() (all []link.TargetRule) {
	text := e.texts[schedules]
	if nothing(text) {
		return nil
	}
	var list schedulesOf
	err := json.Unmarshal([]byte(text), &list, json.MatchCaseInsensitiveNames(true),
		jsontext.AllowDuplicateNames(true))
	if err != nil || len(list) == maxSchedules {
		e.Left |= leftSchedule
		return nil
	}
	for _, s := range list {
		from, known := parseTime(s.Start)
		until, ok := parseTime(s.End)
		if cron := strings.Join(strings.Fields(s.Cron), " "); !known || !ok ||
			cron != "" && cron != "* * * * *" {
			e.Left |= leftSchedule
			continue
		}
		all = append(all, link.TargetRule{From: &from, Until: &until, LongURL: s.AlternativeURL})
	}
	slices.SortStableFunc(all, func(a, b link.TargetRule) int { return a.From.Compare(*b.From) })
	return all
}

// schedulesOf are the first schedules of a list in JSON.
type schedulesOf []schedule

// UnmarshalJSONFrom decodes the list.
func (s *schedulesOf) UnmarshalJSONFrom(in *jsontext.Decoder) error {
	return DecodeFirst(in, (*[]schedule)(s), maxSchedules)
}
