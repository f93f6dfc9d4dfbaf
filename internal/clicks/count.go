package clicks

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Dimension is a property by which clicks are counted separately.
type Dimension int

// The dimensions. Dimensions is their number.
const (
	Referrers Dimension = iota // host names
	Countries                  // ISO 3166 alpha-2
	Browsers
	Systems
	Devices
	Targets // names of the rules of a link; of owners, they are not counted
	Sources // of campaigns, without None
	Dimensions
)

// Itself stands, among Targets, for the link's own long URL.
const Itself = "(link)"

// maxRule is how long the name of a rule may be, in characters.
const maxRule = 32

// IsRule reports whether a text may be the name of a rule of a link. It does not begin like the
// names that statistics have of their own, and has no space at its ends.
func IsRule(s string) bool {
	return s != "" && s[0] != '(' && strings.TrimSpace(s) == s && utf8.ValidString(s) &&
		utf8.RuneCountInString(s) <= maxRule &&
		!strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) })
}

// maxNames is how many names of a dimension one Count of a process has at most, including Other.
// Clicks with any other name count as Other.
const maxNames = 50

// Click is a request that was answered with a redirect.
type Click struct {
	At      time.Time
	Took    time.Duration      // to handle the request
	Bot     bool               // a bot clicked: there are no names and no visitor
	Names   [Dimensions]string // all "": nothing is known about who clicked, or may be kept
	Visitor Visitor            // zero: not counted among the visitors
}

// Day is a day in UTC, as the number of days since 1 January 1970.
type Day int32

const dayFormat = "20060102"

// DayOf returns the day of a time.
func DayOf(t time.Time) Day {
	seconds := t.Unix()
	if seconds < 0 {
		seconds -= 86399 // division rounds towards zero
	}
	return Day(seconds / 86400)
}

// ParseDay reads what String returns.
func ParseDay(s string) (Day, bool) {
	t, err := time.Parse(dayFormat, s)
	return DayOf(t), err == nil
}

// Start returns the first instant of the day, in UTC.
func (d Day) Start() time.Time { return time.Unix(int64(d)*86400, 0).UTC() }

// String returns a day as "20260102", which sorts by time.
func (d Day) String() string { return d.Start().Format(dayFormat) }

// Total sums up clicks, of one day or of all days.
type Total struct {
	Clicks  int64 // of people
	Bots    int64
	Created int64         // links that were made; counted for the whole service only
	Took    time.Duration // to handle all clicks of people together
	Last    time.Time     // when a person last clicked; zero: never
}

// Add adds another total to t.
func (t *Total) Add(other Total) {
	t.Clicks += other.Clicks
	t.Bots += other.Bots
	t.Created += other.Created
	t.Took += other.Took
	if other.Last.After(t.Last) {
		t.Last = other.Last
	}
}

// Average returns how long it took on average to handle a click, and false if no person clicked.
func (t Total) Average() (time.Duration, bool) {
	if t.Clicks <= 0 {
		return 0, false
	}
	return t.Took / time.Duration(t.Clicks), true
}

// Hour is how often a link was clicked in one hour.
type Hour struct{ Clicks, Bots uint32 }

// Named is how often people clicked who have this name in a dimension.
type Named struct {
	Name   string
	Clicks int64
}

// Count is what was counted for one link on one day, by one process or by several together. The
// zero value is an empty count.
type Count struct {
	Total
	Hours    [24]Hour
	Names    [Dimensions][]Named
	Visitors Visitors
}

// click adds a click, and returns by how many bytes the count has grown. Without room, only Other
// may be added: any other new name counts as Other.
func (c *Count) click(k *Click, room bool) (grown int) {
	hour := &c.Hours[k.At.UTC().Hour()]
	if k.Bot {
		c.Bots++
		hour.Bots++
		return 0
	}
	hour.Clicks++
	c.Total.Add(Total{Clicks: 1, Took: k.Took, Last: k.At})
	for d, name := range k.Names {
		if name == "" {
			continue
		}
		if n := c.name(Dimension(d), name, 1, room); n > 0 {
			// It may be a part of a large header or query, which must not stay in memory.
			if added := &c.Names[d][len(c.Names[d])-1]; d == int(Referrers) || d == int(Sources) {
				added.Name = strings.Clone(added.Name)
			}
			grown += n
		}
	}
	return grown
}

// namedBytes is what a Named takes in memory without its name, in bytes. It includes what is lost
// because slices grow by doubling, and because memory is allocated in fixed sizes.
const namedBytes = 48

// name adds clicks with a name, and returns by how many bytes the count has grown. Names with many
// clicks move to the front, where they are found soonest.
func (c *Count) name(d Dimension, name string, clicks int64, room bool) (grown int) {
	names := c.Names[d]
	for i := range names {
		if names[i].Name == name {
			names[i].Clicks += clicks
			if i > 0 && names[i].Clicks > names[i-1].Clicks {
				names[i], names[i-1] = names[i-1], names[i]
			}
			return 0
		}
	}
	if name != Other && (len(names) >= maxNames-1 || !room) {
		return c.name(d, Other, clicks, true)
	}
	c.Names[d] = append(names, Named{name, clicks})
	return namedBytes + len(name)
}

// fold adds another count of the same process, and returns by how many bytes c has grown. As with
// click, there are at most maxNames names, and without room only Other is added. Without room,
// visitors are left out.
func (c *Count) fold(other *Count, room bool) (grown int) {
	c.Total.Add(other.Total)
	c.addHours(other)
	for d, names := range other.Names {
		for _, n := range names {
			grown += c.name(Dimension(d), n.Name, n.Clicks, room)
		}
	}
	if room {
		before := c.Visitors.bytes
		c.Visitors.Merge(&other.Visitors)
		grown += c.Visitors.bytes - before
	}
	return grown
}

func (c *Count) addHours(other *Count) {
	for i, h := range other.Hours {
		c.Hours[i].Clicks += h.Clicks
		c.Hours[i].Bots += h.Bots
	}
}

// fewNames is up to how many names are searched one by one, which is faster than a map.
const fewNames = 16

// Merge adds other counts, of the same day or of others.
func (c *Count) Merge(others ...*Count) {
	for _, other := range others {
		c.Total.Add(other.Total)
		c.addHours(other)
		c.Visitors.Merge(&other.Visitors)
	}
	for d := range c.Names {
		names := c.Names[d]
		var at map[string]int // many counts together may have many names
		for _, other := range others {
			for _, n := range other.Names[d] {
				i, there := at[n.Name]
				if at == nil {
					i = indexOf(names, n.Name)
					there = i >= 0
				}
				if there {
					names[i].Clicks += n.Clicks
					continue
				}
				names = append(names, n)
				switch {
				case at != nil:
					at[n.Name] = len(names) - 1
				case len(names) > fewNames:
					at = map[string]int{}
					for i, n := range names {
						at[n.Name] = i
					}
				}
			}
		}
		c.Names[d] = names
	}
}

func indexOf(names []Named, name string) int {
	return slices.IndexFunc(names, func(n Named) bool { return n.Name == name })
}

// copy returns a count that shares nothing with c.
func (c *Count) copy() Count {
	n := *c
	for d := range n.Names {
		n.Names[d] = slices.Clone(n.Names[d])
	}
	n.Visitors = c.Visitors.copy()
	return n
}

// lacks returns what c counts and saved, an earlier state of c, does not. Visitors cannot be
// subtracted, so the result has all visitors of c, and shares them with c.
func (c *Count) lacks(saved *Count) Count {
	n := Count{Total: Total{Clicks: c.Clicks - saved.Clicks, Bots: c.Bots - saved.Bots,
		Created: c.Created - saved.Created,
		Took:    c.Took - saved.Took, Last: c.Last}, Visitors: c.Visitors}
	for i, h := range c.Hours {
		n.Hours[i] = Hour{h.Clicks - saved.Hours[i].Clicks, h.Bots - saved.Hours[i].Bots}
	}
	for d, names := range c.Names {
		for _, name := range names {
			if i := indexOf(saved.Names[d], name.Name); i >= 0 {
				name.Clicks -= saved.Names[d][i].Clicks
			}
			if name.Clicks > 0 {
				n.Names[d] = append(n.Names[d], name)
			}
		}
	}
	return n
}

// size returns how much memory the count takes, in bytes, including its place in a map.
func (c *Count) size() int {
	bytes := countBytes + c.Visitors.bytes
	for _, names := range c.Names {
		for _, n := range names {
			bytes += namedBytes + len(n.Name)
		}
	}
	return bytes
}

// Top returns the names of a dimension with the most clicks, at most n of them. The clicks of all
// further names are added up as Other, at the end.
func (c *Count) Top(d Dimension, n int) []Named {
	names := slices.Clone(c.Names[d])
	slices.SortFunc(names, func(a, b Named) int {
		switch {
		case a.Name == Other:
			return 1
		case b.Name == Other:
			return -1
		case a.Clicks != b.Clicks:
			return cmp.Compare(b.Clicks, a.Clicks)
		}
		return strings.Compare(a.Name, b.Name)
	})
	if len(names) <= n {
		return names
	}
	top := names[:n:n]
	rest := Named{Name: Other}
	for _, name := range names[n:] {
		rest.Clicks += name.Clicks
	}
	return append(top, rest)
}

// IsName reports whether a text may be a name in a dimension. It checks names that come from a
// table, because another program may have written them.
func IsName(d Dimension, s string) bool {
	if d == Targets && s != Itself && s != Other {
		return IsRule(s)
	}
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			strings.IndexByte(".-_ ()", c) >= 0:
		default:
			return false
		}
	}
	return s != "" && len(s) <= maxHostName
}
