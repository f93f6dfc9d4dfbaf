package rawtables

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Day returns the name of the table with the clicks of a day.
func (r *Tables) Day(at time.Time) string { return r.Clicks + at.UTC().Format(day) }

// Month returns the name of the table with the clicks of a month.
func (r *Tables) Month(at time.Time) string { return r.Clicks + at.UTC().Format("200601") }

// ClickTables returns the names of the tables of days and months that are there.
func (r *Tables) ClickTables() (days, months []string) {
	r.t.Helper()
	names, err := r.open(r.Clicks).Names(patient, r.Clicks)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range names {
		switch suffix := strings.TrimPrefix(name, r.Clicks); len(suffix) {
		case len(day):
			days = append(days, name)
		case len("200601"):
			months = append(months, name)
		}
	}
	return days, months
}

// hash returns the first two hex digits of the SHA-256 of the alias in a name, or of another name.
func hash(name string) string {
	if i := strings.IndexByte(name, '@'); i > 0 {
		name = name[:i]
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:])[:2]
}

// Clicks returns the row with the clicks that a process has counted under a name: an alias, or "*".
// It belongs into a table of Day. Each click took a millisecond, the last one was at the given
// time.
func Clicks(name, process string, at time.Time, clicks, bots int64) Entity {
	e := Entity{"PartitionKey": hash(name)[:1], "RowKey": hash(name)[1:] + "!" + name + "!" +
		process}
	e.counts(clicks, bots, at)
	e["Hours"] = fmt.Sprintf("[[%d,%d,%d]]", at.UTC().Hour(), clicks, bots)
	return e
}

// From adds to a row of clicks or totals the day from which its link is counted, if there is one.
func (e Entity) From(countedFrom time.Time) Entity {
	if !countedFrom.IsZero() {
		e["CountedFrom"] = countedFrom.UTC().Format(day)
	}
	return e
}

// PutClicks writes rows of processes to the table of a day, which it makes.
func (r *Tables) PutClicks(at time.Time, rows ...Entity) {
	r.t.Helper()
	r.put(r.Day(at), rows)
}

// PutMonth writes rows of links to the table of a month, which it makes.
func (r *Tables) PutMonth(at time.Time, rows ...Entity) {
	r.t.Helper()
	r.put(r.Month(at), rows)
}

func (r *Tables) put(table string, rows []Entity) {
	r.t.Helper()
	if err := r.open(table).Create(patient); err != nil {
		r.t.Fatal(err)
	}
	for _, e := range rows {
		r.Put(table, e)
	}
}

// Totals returns the row of all clicks on an alias up to the day of through. The last click was at
// through. It names no months.
func Totals(alias string, through time.Time, clicks, bots int64, countedFrom time.Time) Entity {
	e := Entity{"PartitionKey": hash(alias), "RowKey": alias,
		"Through": through.UTC().Format(day)}
	e.counts(clicks, bots, through)
	return e.From(countedFrom)
}

// Rolled returns the row of a name in a month, with the clicks of one day. It belongs into a table
// of Month.
func Rolled(name string, at time.Time, clicks, bots int64) Entity {
	e := Entity{"PartitionKey": hash(name), "RowKey": name}
	numbers := func(all ...int64) (packed []byte) {
		for _, n := range all {
			packed = binary.AppendUvarint(packed, uint64(n))
		}
		return packed
	}
	day := int64(at.UTC().Day())
	// 1: it is not compressed. No links were made, each click took a millisecond, there are no
	// visitors, one hour, and no names of five dimensions.
	counts := append([]byte{1}, numbers(day, clicks, bots, 0, 1000*clicks, at.UnixMilli(), 0,
		1, int64(at.UTC().Hour()), clicks, bots, 0, 0, 0, 0, 0)...)
	for property, value := range map[string][]byte{"Days": numbers(day, clicks, bots),
		"Counts": counts} {
		e[property] = base64.StdEncoding.EncodeToString(value)
		e[property+"@odata.type"] = "Edm.Binary"
	}
	return e
}

func (e Entity) counts(clicks, bots int64, last time.Time) {
	for name, n := range map[string]int64{"Clicks": clicks, "Bots": bots,
		"TookMicroseconds": 1000 * clicks} {
		e[name], e[name+"@odata.type"] = fmt.Sprint(n), "Edm.Int64"
	}
	e.time("LastAtUtc", last)
}

// Monthly returns the clicks of people of each name, by the days in the tables of months, as
// "20060102".
func (r *Tables) Monthly() map[string]map[string]int64 {
	r.t.Helper()
	all := map[string]map[string]int64{}
	_, months := r.ClickTables()
	for _, table := range months {
		for _, e := range r.Rows(table) {
			name := e.text("RowKey")
			if e.text("PartitionKey") != hash(name) {
				r.t.Errorf("%v is not where it belongs", e)
			}
			packed, err := base64.StdEncoding.DecodeString(e.text("Days"))
			if err != nil {
				r.t.Error(err)
			}
			if all[name] == nil {
				all[name] = map[string]int64{}
			}
			var numbers [3]uint64 // the day, clicks, bots
			for len(packed) > 0 {
				for i := range numbers {
					n, size := binary.Uvarint(packed)
					if size <= 0 {
						r.t.Fatalf("%v cannot be unpacked", e)
					}
					numbers[i], packed = n, packed[size:]
				}
				all[name][strings.TrimPrefix(table, r.Clicks)+
					fmt.Sprintf("%02d", numbers[0])] = int64(numbers[1])
			}
		}
	}
	return all
}

// Clicked is the content of the rows of days for one name and day, summed over all processes.
type Clicked struct {
	Rows                  int
	Clicks, Bots, Created int64
	Hours                 [24][2]int64 // clicks of people, and of bots
	Referrers             map[string]int64
	Visitors              map[uint64]bool // hashes, from rows with few enough visitors to keep each
	Sketches              int             // rows with so many visitors that they have only a sketch
}

// Clicked returns the clicks of each alias, under "*" those of all aliases, and under "@" and a
// hash those of an owner, by day as "20060102". It fails the test if a row is in the wrong place or
// contradicts itself.
func (r *Tables) Clicked() map[string]map[string]*Clicked {
	r.t.Helper()
	all := map[string]map[string]*Clicked{}
	days, _ := r.ClickTables()
	for _, table := range days {
		day := strings.TrimPrefix(table, r.Clicks)
		for _, e := range r.Rows(table) {
			key := strings.Split(e.text("RowKey"), "!")
			if len(key) != 3 || e.text("PartitionKey")+key[0] != hash(key[1]) {
				r.t.Errorf("%v is not where it belongs", e)
				continue
			}
			name := key[1]
			process, n, _ := strings.Cut(key[2], "-")
			if _, err := strconv.Atoi(n); err != nil || process == "" {
				r.t.Errorf("%v is of no process", e)
			}
			if all[name] == nil {
				all[name] = map[string]*Clicked{}
			}
			c := all[name][day]
			if c == nil {
				c = &Clicked{Referrers: map[string]int64{}, Visitors: map[uint64]bool{}}
				all[name][day] = c
			}
			if !c.add(e) {
				r.t.Errorf("%v is at odds with itself", e)
			}
		}
	}
	return all
}

// add adds a row, and reports whether the row's parts add up to its sums.
func (c *Clicked) add(e Entity) (whole bool) {
	number := func(name string) int64 {
		n, err := strconv.ParseInt(e.text(name), 10, 64)
		whole = whole && (e[name] == nil || err == nil &&
			e.text(name+"@odata.type") == "Edm.Int64" && n >= 0)
		return n
	}
	whole = e["Clicks"] != nil && e["Bots"] != nil && e["TookMicroseconds"] != nil
	clicks, bots := number("Clicks"), number("Bots")
	c.Rows++
	c.Clicks += clicks
	c.Bots += bots
	c.Created += number("Created")
	var hours [][3]int64
	_ = json.Unmarshal([]byte(e.text("Hours")), &hours)
	for _, h := range hours {
		c.Hours[h[0]][0] += h[1]
		c.Hours[h[0]][1] += h[2]
		clicks -= h[1]
		bots -= h[2]
	}
	var referrers map[string]int64
	_ = json.Unmarshal([]byte(e.text("Referrers")), &referrers)
	for name, n := range referrers {
		c.Referrers[name] += n
	}
	visitors, err := base64.StdEncoding.DecodeString(e.text("Visitors"))
	switch {
	case err != nil || len(visitors) == 0:
	case visitors[0] == 1:
		for hashes := visitors[1:]; len(hashes) >= 8; hashes = hashes[8:] {
			c.Visitors[binary.LittleEndian.Uint64(hashes)] = true
		}
	default:
		c.Sketches++
	}
	return whole && clicks == 0 && bots == 0 && err == nil
}
