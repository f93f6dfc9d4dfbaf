package counts

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/clicks"
	"tiney/storage/table"
)

// A row is what package json writes: processes of other versions, and other programs, read it.
func TestRowsOfDays(t *testing.T) {
	at := time.Date(2026, 11, 29, 23, 4, 5, 678_912_345, time.UTC)
	full := clicks.Count{Total: clicks.Total{Clicks: 12, Bots: 1 << 40, Created: 3,
		Took: 1234567 * time.Nanosecond, Last: at}}
	full.Hours[0], full.Hours[23] = clicks.Hour{Clicks: 1}, clicks.Hour{Clicks: 11, Bots: 1 << 31}
	for d := range full.Names {
		full.Names[d] = []clicks.Named{{Name: "(other)", Clicks: 7}, {Name: "a.example", Clicks: 1}}
	}
	full.Names[clicks.Targets] = []clicks.Named{{Name: `"quoted" \ <b>`, Clicks: 2},
		{Name: "Grüße 🎉", Clicks: 10}}
	counter := clicks.NewCounter()
	counter.SetKey(clicks.DayOf(at), clicks.Key{1}, clicks.DayOf(at))
	counter.Click(clicks.Of{Name: "one"}, &clicks.Click{At: at,
		Visitor: clicks.NewVisitor(netip.MustParseAddr("192.0.2.1"), "")})
	for _, p := range counter.Pending() {
		if p.Name == "one" {
			full.Visitors = p.Take().Visitors
		}
	}
	for _, c := range []clicks.Count{full, {}, {Total: clicks.Total{Bots: 1}}} {
		e := countEntity{totalEntity: newTotalEntity("a", "b!one!p-1", "20260102", c.Total)}
		if hours := clickedHours(&c); hours != nil {
			e.Hours = string(table.Encode(hours))
		}
		for d, text := range e.dimensions() {
			byName := map[string]int64{}
			for _, n := range c.Names[d] {
				byName[n.Name] = n.Clicks
			}
			if len(byName) > 0 {
				names, err := json.Marshal(byName, json.Deterministic(true))
				if err != nil {
					t.Fatal(err)
				}
				*text = string(names)
			}
		}
		if e.Visitors = c.Visitors.Encode(); e.Visitors != nil {
			e.VisitorsType = table.EdmBinary
		}
		got, want := jsontext.Value(encodeCount("a", "b!one!p-1", "20260102", &c)),
			jsontext.Value(table.Encode(e))
		of, decoded, err := decodeCount(got)
		if got.Canonicalize() != nil || want.Canonicalize() != nil || !bytes.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		c.Took, c.Last = c.Took.Truncate(time.Microsecond), c.Last.Truncate(time.Millisecond)
		if err != nil || of != (subject{"one", "20260102"}) || decoded.Total != c.Total ||
			decoded.Hours != c.Hours || decoded.Visitors.Estimate() != c.Visitors.Estimate() {
			t.Errorf("read as %v, %+v, %v", of, decoded, err)
		}
	}
}
