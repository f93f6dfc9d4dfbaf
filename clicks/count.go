package clicks

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Dimension is what clicks are told apart by.
type Dimension int

// The dimensions, and how many there are.
const (
	Referrers Dimension = iota // host names
	Countries                  // ISO 3166 alpha-2
	Browsers
	Systems
	Devices
	Dimensions
)

// maxNames is how many names of a dimension are told apart in one Count of a process; the clicks of
// the rest are those of Other.
const maxNames = 50

// Click is a request that was answered with a redirect.
type Click struct {
	At      time.Time
	Took    time.Duration      // what it took to handle it
	Bot     bool               // a bot's: it has no names and no visitor
	Names   [Dimensions]string // all "": nothing is known of who clicked, or is to be kept
	Visitor Visitor            // zero: not to be told apart from others
}

// Day is a day, UTC: the number of days since 1 January 1970.
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

// Total is what is known of clicks of all days.
type Total struct {
	Clicks  int64 // of people
	Bots    int64
	Created int64         // links that were made; of the whole service only
	Took    time.Duration // the handling of all clicks together
	Last    time.Time     // of the last click of a person; zero: there was none
}

// Add adds what another total has.
func (t *Total) Add(other Total) {
	t.Clicks += other.Clicks
	t.Bots += other.Bots
	t.Created += other.Created
	t.Took += other.Took
	if other.Last.After(t.Last) {
		t.Last = other.Last
	}
}

// Average returns how long the handling of a click took, and false if there was no click.
func (t Total) Average() (time.Duration, bool) {
	if t.Clicks <= 0 {
		return 0, false
	}
	return t.Took / time.Duration(t.Clicks), true
}

// Hour is how often a link was clicked in an hour.
type Hour struct{ Clicks, Bots uint32 }

// Named is how often people clicked whom a dimension has this name for.
type Named struct {
	Name   string
	Clicks int64
}

// Count is what became of one link on one day, as one process saw it, or as several did together.
// The zero value counts nothing.
type Count struct {
	Total
	Hours    [24]Hour
	Names    [Dimensions][]Named
	Visitors Visitors
}

// click adds a click, and returns by how many bytes the count has grown. Without room it does not
// grow: a name that is new counts as Other then.
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
		if name != "" {
			grown += c.name(Dimension(d), name, 1, room)
		}
	}
	return grown
}

// of a Named in a slice that grows by doubling, and what is lost where memory comes in sizes,
// without its name
const namedBytes = 48

func (c *Count) name(d Dimension, name string, clicks int64, room bool) (grown int) {
	names := c.Names[d]
	for i := range names {
		if names[i].Name == name {
			names[i].Clicks += clicks
			return 0
		}
	}
	if name != Other && (len(names) >= maxNames-1 || !room) {
		return c.name(d, Other, clicks, true)
	}
	// what a header has may be part of something large
	c.Names[d] = append(names, Named{strings.Clone(name), clicks})
	return namedBytes + len(name)
}

// Merge adds what other counts have, of the same day or of others.
func (c *Count) Merge(others ...*Count) {
	for _, other := range others {
		c.Total.Add(other.Total)
		for i, h := range other.Hours {
			c.Hours[i].Clicks += h.Clicks
			c.Hours[i].Bots += h.Bots
		}
		c.Visitors.Merge(&other.Visitors)
	}
	for d := range c.Names {
		at := map[string]int{} // of many counts, there may be many names together
		for i, n := range c.Names[d] {
			at[n.Name] = i
		}
		for _, other := range others {
			for _, n := range other.Names[d] {
				if i, ok := at[n.Name]; ok {
					c.Names[d][i].Clicks += n.Clicks
					continue
				}
				at[n.Name] = len(c.Names[d])
				c.Names[d] = append(c.Names[d], n)
			}
		}
	}
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

// lacks returns what c counts and saved, an earlier state of it, does not. Visitors cannot be taken
// away, so it has all of them, and shares them with c.
func (c *Count) lacks(saved *Count) Count {
	n := Count{Total: Total{Clicks: c.Clicks - saved.Clicks, Bots: c.Bots - saved.Bots,
		Created: c.Created - saved.Created,
		Took:    c.Took - saved.Took, Last: c.Last}, Visitors: c.Visitors}
	for i, h := range c.Hours {
		n.Hours[i] = Hour{h.Clicks - saved.Hours[i].Clicks, h.Bots - saved.Hours[i].Bots}
	}
	for d, names := range c.Names {
		for _, name := range names {
			i := slices.IndexFunc(saved.Names[d], func(have Named) bool { return have.Name == name.Name })
			if i >= 0 {
				name.Clicks -= saved.Names[d][i].Clicks
			}
			if name.Clicks > 0 {
				n.Names[d] = append(n.Names[d], name)
			}
		}
	}
	return n
}

// size returns what the count takes in memory, in bytes.
func (c *Count) size() int {
	bytes := countBytes + c.Visitors.bytes
	for _, names := range c.Names {
		for _, n := range names {
			bytes += namedBytes + len(n.Name)
		}
	}
	return bytes
}

// Top returns the names of a dimension with the most clicks, at most n of them, and those of the
// rest as Other, at the end.
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

// IsName reports whether a text may be a name of some dimension. What is in a table, another
// program may have written.
func IsName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			strings.IndexByte(".- ()", c) >= 0:
		default:
			return false
		}
	}
	return s != "" && len(s) <= maxHostName
}
