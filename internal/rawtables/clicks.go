package rawtables

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// Clicked is the content of the rows of ShortUrlsClicks for one alias and day, summed over all
// processes.
type Clicked struct {
	Rows                  int
	Clicks, Bots, Created int64
	Hours                 [24][2]int64 // clicks of people, and of bots
	Referrers             map[string]int64
	Visitors              map[uint64]bool // hashes, from rows with few enough visitors to keep each
	Sketches              int             // rows with so many visitors that they have only a sketch
}

// Clicked returns the clicks of each alias, and under "*" those of all aliases, by day as the rows
// write it ("20260102"). It fails the test if a row is in the wrong place or contradicts itself.
func (r *Tables) Clicked() map[string]map[string]*Clicked {
	r.t.Helper()
	all := map[string]map[string]*Clicked{}
	for _, e := range r.Rows(r.Clicks) {
		alias, rest, _ := strings.Cut(e.text("RowKey"), "|")
		day, _, _ := strings.Cut(e.text("PartitionKey"), "-")
		sum := sha256.Sum256([]byte(alias))
		process, n, _ := strings.Cut(rest, "-")
		_, err := time.Parse("20060102", day)
		if _, noNumber := strconv.Atoi(n); err != nil || noNumber != nil || process == "" ||
			e.text("PartitionKey") != day+"-"+hex.EncodeToString(sum[:])[:1] {
			r.t.Errorf("%v is not where it belongs", e)
		}
		if all[alias] == nil {
			all[alias] = map[string]*Clicked{}
		}
		c := all[alias][day]
		if c == nil {
			c = &Clicked{Referrers: map[string]int64{}, Visitors: map[uint64]bool{}}
			all[alias][day] = c
		}
		if !c.add(e) {
			r.t.Errorf("%v is at odds with itself", e)
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
