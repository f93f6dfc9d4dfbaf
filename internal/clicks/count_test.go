package clicks

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// noon is the middle of day, a day like any other.
var (
	noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	day  = DayOf(noon)
)

// person returns a click of one of many people.
func person(i int, at time.Time, names ...string) Click {
	k := Click{At: at, Took: time.Millisecond, Visitor: visitor(i)}
	copy(k.Names[:], names)
	return k
}

func visitor(i int) Visitor {
	return NewVisitor(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}),
		"an agent")
}

// form returns the content of a Count as a text that does not depend on the order of counting.
func form(c *Count) string {
	names := [Dimensions]map[string]int64{}
	for d := range names {
		names[d] = byName(c.Names[d])
	}
	return fmt.Sprint(c.Total, c.Hours, names, c.Visitors.Estimate())
}

// byName returns the clicks of each name. It panics if a name is there twice.
func byName(names []Named) map[string]int64 {
	all := map[string]int64{}
	for _, n := range names {
		if _, twice := all[n.Name]; twice {
			panic(n.Name + " is there twice")
		}
		all[n.Name] = n.Clicks
	}
	return all
}

func sum(names []Named) (n int64) {
	for _, name := range names {
		n += name.Clicks
	}
	return n
}

func TestDay(t *testing.T) {
	for name, test := range map[string]struct{ at, want string }{
		"its first second":       {"2026-03-04T00:00:00Z", "20260304"},
		"its last nanosecond":    {"2026-03-04T23:59:59.999999999Z", "20260304"},
		"elsewhere, the day is":  {"2026-03-05T00:30:00+01:00", "20260304"},
		"elsewhere, the next is": {"2026-03-03T20:00:00-04:00", "20260304"},
		"a leap day":             {"2028-02-29T12:00:00Z", "20280229"},
	} {
		t.Run(name, func(t *testing.T) {
			at, err := time.Parse(time.RFC3339, test.at)
			if err != nil {
				t.Fatal(err)
			}
			d := DayOf(at)
			if d.String() != test.want || d.Start().After(at) || !(d + 1).Start().After(at) {
				t.Errorf("got %v, from %v", d, d.Start())
			}
			if again, ok := ParseDay(test.want); again != d || !ok {
				t.Errorf("read again: %v, %t", again, ok)
			}
		})
	}
	if d, ok := ParseDay("2026-03-04"); ok {
		t.Errorf("read %v", d)
	}
}

func TestClickIsCounted(t *testing.T) {
	var c Count
	for _, k := range []Click{
		person(1, noon, "example.org", "DE", "Firefox", "Linux", "desktop"),
		person(2, noon.Add(time.Hour), "example.org", "FR", "Firefox", "Android", "mobile"),
		{At: noon.Add(time.Minute), Took: time.Second}, // nothing about the person may be kept
		{At: noon.Add(2 * time.Hour), Took: time.Hour, Bot: true},
	} {
		c.click(&k, true)
	}
	want := Count{Total: Total{Clicks: 3, Bots: 1, Took: time.Second + 2*time.Millisecond,
		Last: noon.Add(time.Hour)}}
	want.Hours[12], want.Hours[13], want.Hours[14] = Hour{2, 0}, Hour{1, 0}, Hour{0, 1}
	want.Names = [Dimensions][]Named{{{"example.org", 2}}, {{"DE", 1}, {"FR", 1}}, {{"Firefox", 2}},
		{{"Linux", 1}, {"Android", 1}},
		{{"desktop", 1}, {"mobile", 1}}}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got %+v, want %+v", c, want)
	}
	if average, ok := c.Average(); average != (time.Second+2*time.Millisecond)/3 || !ok {
		t.Errorf("an average of %v, %t", average, ok)
	}
	if average, ok := (Total{Bots: 1, Took: time.Second}).Average(); ok {
		t.Errorf("an average of %v without a click", average)
	}
}

func TestNamesAreBounded(t *testing.T) {
	var c Count
	for i := range 10_000 {
		k := person(i, noon, fmt.Sprintf("%d.example", i), "DE")
		c.click(&k, true)
	}
	if got := c.Names[Referrers]; len(got) != maxNames || sum(got) != 10_000 ||
		byName(got)[Other] != 10_000-(maxNames-1) {
		t.Errorf("%d names of %d clicks, %d of them %s", len(got), sum(got), byName(got)[Other],
			Other)
	}
	if got := c.Names[Countries]; !reflect.DeepEqual(got, []Named{{"DE", 10_000}}) {
		t.Errorf("countries: %v", got)
	}
	// Without room, only Other is added.
	k := person(0, noon, "0.example", "FR")
	if c.click(&k, false); !reflect.DeepEqual(c.Names[Countries],
		[]Named{{"DE", 10_000}, {Other, 1}}) || byName(c.Names[Referrers])["0.example"] != 2 {
		t.Errorf("without room: %v", c.Names)
	}
}

// The most frequent names come to be found first.
func TestFrequentNamesMoveToTheFront(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	var c, other Count
	for range 3000 {
		k := person(0, noon, fmt.Sprintf("%d.example", min(rng.IntN(30), rng.IntN(30))))
		if c.click(&k, true); rng.IntN(2) == 0 {
			other.click(&k, true)
		}
	}
	inOrder := func(c *Count) bool {
		return slices.IsSortedFunc(c.Names[Referrers][:5], func(a, b Named) int {
			return int(b.Clicks - a.Clicks)
		})
	}
	if !inOrder(&c) {
		t.Errorf("clicked: %v", c.Names[Referrers])
	}
	// 0.example was clicked most, and is found last in what it is added to.
	into := Count{Names: [Dimensions][]Named{{{"x", 1}, {"y", 1}, {"0.example", 1}}}}
	for range 2 {
		into.fold(&other, true)
	}
	if into.Names[Referrers][0].Name != "0.example" {
		t.Errorf("added: %v", into.Names[Referrers])
	}
}

// A name may be a part of a header of 32 KiB. The header must not stay in memory with it.
func TestNamesAreCopied(t *testing.T) {
	header := strings.Repeat("example.org", 1000)
	var c Count
	c.click(&Click{At: noon, Names: [Dimensions]string{Referrers: header[:11]}}, true)
	if got := c.Names[Referrers][0].Name; got != "example.org" ||
		unsafe.StringData(got) == unsafe.StringData(header) {
		t.Errorf("%q is a part of what was sent", got)
	}
}

// randomCount counts up to a few hundred clicks.
func randomCount(rng *rand.Rand, key *Key) *Count {
	c := new(Count)
	for range rng.IntN(300) {
		k := person(rng.IntN(400), noon.Add(time.Duration(rng.IntN(11*3600))*time.Second),
			fmt.Sprintf("%d.example", rng.IntN(80)), "DE")
		k.Bot = rng.IntN(4) == 0
		if c.click(&k, true); !k.Bot {
			c.Visitors.add(key.hash(k.Visitor))
		}
	}
	c.Created = int64(rng.IntN(3))
	return c
}

// merged merges counts one by one.
func merged(counts ...*Count) *Count {
	all := new(Count)
	for _, c := range counts {
		all.Merge(c)
	}
	return all
}

func TestMergeHasNoOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		a, b, c := randomCount(rng, new(Key)), randomCount(rng, new(Key)),
			randomCount(rng, new(Key))
		before := form(a)
		want := form(merged(a, b, c))
		together := new(Count)
		together.Merge(a, b, c)
		for name, got := range map[string]string{
			"the other way round": form(merged(c, b, a)),
			"all at once":         form(together),
			"two first":           form(merged(merged(a, b), c)),
			"two last":            form(merged(a, merged(b, c))),
			"twice from a copy":   form(merged(new(a.copy()), b, c, new(Count))),
		} {
			if got != want {
				t.Errorf("%s: got\n%s, want\n%s", name, got, want)
			}
		}
		if form(a) != before {
			t.Error("what was merged has changed")
		}
	}
}

func TestCopySharesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	c := randomCount(rng, new(Key))
	n, before := c.copy(), form(c)
	n.Merge(randomCount(rng, new(Key)))
	if form(c) != before || form(&n) == before {
		t.Error("a count has changed with its copy")
	}
}

// A saved count, together with what it lacks, makes up the whole count.
func TestLacks(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		c := randomCount(rng, new(Key))
		saved := c.copy()
		c.Merge(randomCount(rng, new(Key)))
		lacking := c.lacks(&saved)
		want := form(c)
		if got := form(merged(&saved, &lacking)); got != want {
			t.Errorf("got\n%s, want\n%s", got, want)
		}
		for d, names := range lacking.Names {
			if slices.ContainsFunc(names, func(n Named) bool { return n.Clicks <= 0 }) {
				t.Errorf("dimension %d: %v", d, names)
			}
		}
	}
}

func TestTop(t *testing.T) {
	var c Count
	c.Names[Referrers] = []Named{{"b", 2}, {Other, 100}, {"a", 2}, {"most", 1 << 40}, {"least", 1}}
	for name, test := range map[string]struct {
		n    int
		want []Named
	}{
		"fewer than there are": {2, []Named{{"most", 1 << 40}, {"a", 2}, {Other, 103}}},
		"all but the rest": {4, []Named{{"most", 1 << 40}, {"a", 2}, {"b", 2}, {"least", 1},
			{Other, 100}}},
		"all": {5, []Named{{"most", 1 << 40}, {"a", 2}, {"b", 2}, {"least", 1},
			{Other, 100}}},
	} {
		t.Run(name, func(t *testing.T) {
			before := slices.Clone(c.Names[Referrers])
			if got := c.Top(Referrers, test.n); !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if !reflect.DeepEqual(c.Names[Referrers], before) {
				t.Error("the count has changed")
			}
		})
	}
	if got := c.Top(Devices, 10); len(got) != 0 {
		t.Errorf("of nothing: %v", got)
	}
}

// Counting, merging, subtracting and listing the most frequent names never lose a click or count it
// twice, whatever the names are.
func FuzzNames(f *testing.F) {
	f.Add("a,b,a", "b,c", 1)
	f.Add(",(other),(other)", "\x00,\xff,é", 0)
	f.Add(strings.Repeat("x,", 49)+"y,(other),z", "y", 49)
	f.Fuzz(func(t *testing.T, one, two string, n int) {
		count := func(text string) *Count {
			c := new(Count)
			for _, name := range strings.Split(text, ",") {
				c.click(&Click{At: noon, Names: [Dimensions]string{Referrers: name,
					Devices: "mobile"}}, true)
			}
			if len(c.Names[Referrers]) > maxNames {
				t.Errorf("%d names", len(c.Names[Referrers]))
			}
			return c
		}
		a, b := count(one), count(two)
		all := merged(a, b)
		named := sum(a.Names[Referrers]) + sum(b.Names[Referrers])
		if got := sum(all.Names[Referrers]); got != named || sum(all.Names[Devices]) != all.Clicks {
			t.Errorf("%d named clicks of %d", got, named)
		}
		if !maps.Equal(byName(all.Names[Referrers]), byName(merged(b, a).Names[Referrers])) {
			t.Error("the order matters")
		}
		lacking := all.lacks(a)
		if !maps.Equal(byName(lacking.Names[Referrers]), byName(b.Names[Referrers])) ||
			lacking.Clicks != b.Clicks {
			t.Errorf("it lacks %v, want %v", lacking.Names, b.Names)
		}
		top := all.Top(Referrers, max(n, 0)%60)
		if sum(top) != named || len(top) > max(n, 0)%60+1 {
			t.Errorf("%d names for %d clicks of %d", len(top), sum(top), named)
		}
	})
}

func BenchmarkMerge(b *testing.B) {
	count := func(process, visitors int) *Count {
		c := new(Count)
		for i := range visitors {
			k := person(i, noon, fmt.Sprintf("%d.example", i*(process+1)%60), fmt.Sprint(i%50),
				"Firefox", "Linux", "desktop")
			c.click(&k, true)
			c.Visitors.add(new(Key).hash(k.Visitor))
		}
		return c
	}
	for _, visitors := range []int{10, 1000, 20_000} {
		b.Run(fmt.Sprintf("20 processes with %d visitors each", visitors), func(b *testing.B) {
			var counts []*Count
			for process := range 20 {
				counts = append(counts, count(process, visitors))
			}
			b.ReportAllocs()
			for b.Loop() {
				merged(counts...)
			}
		})
	}
}
