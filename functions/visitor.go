package functions

import (
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"tiney/internal/clicks"
	"tiney/internal/link"
)

// visitor is a client as the rules of a link see it.
type visitor struct {
	s       *service
	r       *http.Request
	preview bool // nothing is drawn
}

// Country returns the country of the client's address.
func (v visitor) Country() string { return clicks.Country(v.s.Addresses.Of(v.r)) }

// System returns the operating system by the User-Agent. A bot has none.
func (v visitor) System() string { return v.agent().System }

// Device returns the kind of device by the User-Agent. A bot has none.
func (v visitor) Device() string { return v.agent().Device }

func (v visitor) agent() clicks.Agent {
	return clicks.ParseAgent(clicks.StripHost(first(v.r.Header["User-Agent"])))
}

// Draw draws anew for each call.
func (v visitor) Draw(percent link.Percent) bool {
	return !v.preview && rand.N(100) < int(percent)
}

// maxLanguages is how many bytes of Accept-Language are read. Browsers send some 100.
const maxLanguages = 1 << 10

// Language returns the language of Accept-Language with the highest weight, or the first of those
// (RFC 9110, 12.5.4). It returns "" if that is *, or if there is none.
func (v visitor) Language() string {
	lines := strings.Join(v.r.Header["Accept-Language"], ",")
	if len(lines) > maxLanguages {
		lines = lines[:strings.LastIndexByte(lines[:maxLanguages], ',')+1]
	}
	best, most := "", 0.0
	for part := range strings.SplitSeq(lines, ",") {
		language, params, weighted := strings.Cut(part, ";")
		q := 1.0
		if weighted {
			name, value, _ := strings.Cut(params, "=")
			var err error
			q, err = strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil || !strings.EqualFold(strings.TrimSpace(name), "q") || !(q <= 1) {
				continue
			}
		}
		language = strings.TrimSpace(language)
		if q > most && (language == "*" || link.IsLanguage(language)) {
			best, most = language, q
		}
	}
	if best == "*" {
		return ""
	}
	return best
}

// ruleView is a rule as responses show it. All members are always present.
type ruleView struct {
	Name      string    `json:"name"`
	Countries *[]string `json:"countries"`
	Systems   *[]string `json:"systems"`
	Devices   *[]string `json:"devices"`
	Languages *[]string `json:"languages"`
	From      *string   `json:"fromUtc"`
	Until     *string   `json:"untilUtc"`
	Percent   *int      `json:"percent"`
	LongURL   string    `json:"longUrl"`
}

// viewRules never returns nil.
func viewRules(rules []link.TargetRule) []ruleView {
	views := make([]ruleView, len(rules))
	for i, r := range rules {
		views[i] = ruleView{Name: r.Name, Countries: listOrNull(r.Countries),
			Systems: listOrNull(r.Systems), Devices: listOrNull(r.Devices),
			Languages: listOrNull(r.Languages), Percent: orNull(int(r.Percent)), LongURL: r.LongURL}
		if r.From != nil {
			views[i].From = formatTime(*r.From)
		}
		if r.Until != nil {
			views[i].Until = formatTime(*r.Until)
		}
	}
	return views
}

// listOrNull returns a list for a response: nil, which becomes null, if there is none.
func listOrNull(list []string) *[]string {
	if list == nil {
		return nil
	}
	return &list
}
