package storage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"tiney/clicks"
	"tiney/link"
)

// maxClickRow is what a row of counts takes at most, in bytes: five times 50 names, a sketch, and
// the rest.
const maxClickRow = 64 << 10

// totalEntity is what rows of counts and of totals have on the wire.
type totalEntity struct {
	PartitionKey string
	RowKey       string
	Clicks       int64     `json:",string"`
	ClicksType   string    `json:"Clicks@odata.type,omitzero"`
	Bots         int64     `json:",string"`
	BotsType     string    `json:"Bots@odata.type,omitzero"`
	Created      int64     `json:",string,omitzero"` // links
	CreatedType  string    `json:"Created@odata.type,omitzero"`
	Took         int64     `json:"TookMicroseconds,string"`
	TookType     string    `json:"TookMicroseconds@odata.type,omitzero"`
	LastAt       time.Time `json:"LastAtUtc,omitzero"`
	LastAtType   string    `json:"LastAtUtc@odata.type,omitzero"`
}

func newTotalEntity(partition, key string, t clicks.Total) totalEntity {
	e := totalEntity{PartitionKey: partition, RowKey: key, Clicks: t.Clicks, ClicksType: edmInt64,
		Bots: t.Bots, BotsType: edmInt64,
		Took: t.Took.Microseconds(), TookType: edmInt64}
	if t.Created != 0 {
		e.Created, e.CreatedType = t.Created, edmInt64
	}
	e.LastAt, e.LastAtType = dateTime(t.Last.Truncate(time.Millisecond))
	return e
}

func (e *totalEntity) total() clicks.Total {
	return clicks.Total{Clicks: e.Clicks, Bots: e.Bots, Created: e.Created,
		Took: time.Duration(e.Took) * time.Microsecond, Last: e.LastAt.UTC()}
}

// countEntity is a row of ShortUrlsClicks on the wire. Its texts are JSON: so other programs can
// read them.
type countEntity struct {
	totalEntity
	Hours        string `json:",omitzero"` // [[hour,clicks,bots], …]
	Referrers    string `json:",omitzero"` // {name: clicks, …}, as the following
	Countries    string `json:",omitzero"`
	Browsers     string `json:",omitzero"`
	Systems      string `json:",omitzero"`
	Devices      string `json:",omitzero"`
	Visitors     []byte `json:",omitzero"` // see clicks.Visitors
	VisitorsType string `json:"Visitors@odata.type,omitzero"`
}

func (e *countEntity) dimensions() [clicks.Dimensions]*string {
	return [...]*string{clicks.Referrers: &e.Referrers, clicks.Countries: &e.Countries,
		clicks.Browsers: &e.Browsers,
		clicks.Systems:  &e.Systems, clicks.Devices: &e.Devices}
}

// clickPartitions is over how many partitions the counts of a day are spread.
const clickPartitions = 16

// clickPartition returns the partition of an alias on a day.
func clickPartition(day clicks.Day, alias string) string {
	sum := sha256.Sum256([]byte(alias))
	return day.String() + "-" + hex.EncodeToString(sum[:1])[:1]
}

func encodeCount(partition, key string, c *clicks.Count) []byte {
	e := countEntity{totalEntity: newTotalEntity(partition, key, c.Total)}
	var hours [][3]uint32
	for hour, h := range c.Hours {
		if h != (clicks.Hour{}) {
			hours = append(hours, [3]uint32{uint32(hour), h.Clicks, h.Bots})
		}
	}
	if hours != nil {
		e.Hours = string(encode(hours))
	}
	for d, text := range e.dimensions() {
		if len(c.Names[d]) > 0 {
			byName := map[string]int64{}
			for _, n := range c.Names[d] {
				byName[n.Name] = n.Clicks
			}
			*text = string(encode(byName))
		}
	}
	if e.Visitors = c.Visitors.Encode(); e.Visitors != nil {
		e.VisitorsType = edmBinary
	}
	return encode(e)
}

// decodeCount reads a row of ShortUrlsClicks. Error: link.ErrDamaged.
func decodeCount(data []byte) (alias string, c clicks.Count, err error) {
	var e countEntity
	damaged := func(err error) (string, clicks.Count, error) {
		return "", clicks.Count{}, fmt.Errorf("the count %s %s: %w: %w", e.PartitionKey, e.RowKey,
			link.ErrDamaged, err)
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return damaged(err)
	}
	alias, _, _ = strings.Cut(e.RowKey, "|")
	c.Total = e.total()
	if c.Clicks < 0 || c.Bots < 0 || c.Created < 0 || c.Took < 0 {
		return damaged(errNegative)
	}
	if c.Hours, err = decodeHours(e.Hours); err != nil {
		return damaged(err)
	}
	for d, text := range e.dimensions() {
		if c.Names[d], err = decodeNames(*text); err != nil {
			return damaged(err)
		}
	}
	if c.Visitors, err = clicks.DecodeVisitors(e.Visitors); err != nil {
		return damaged(err)
	}
	return alias, c, nil
}

var errNegative = errors.New("a negative number")

func decodeHours(text string) (hours [24]clicks.Hour, err error) {
	if text == "" {
		return hours, nil
	}
	var all [][3]uint32
	err = json.Unmarshal([]byte(text), &all)
	for _, h := range all {
		if h[0] < uint32(len(hours)) {
			hours[h[0]] = clicks.Hour{Clicks: h[1], Bots: h[2]}
		}
	}
	return hours, err
}

// decodeNames reads the names of a dimension. Whatever else has written the row, all of them are
// fit to be shown: what no Click can have is Other.
func decodeNames(text string) (names []clicks.Named, err error) {
	if text == "" {
		return nil, nil
	}
	var byName map[string]int64
	if err := json.Unmarshal([]byte(text), &byName); err != nil {
		return nil, err
	}
	other := clicks.Named{Name: clicks.Other}
	for name, n := range byName {
		switch {
		case n < 0:
			return nil, errNegative
		case name == clicks.Other || !clicks.IsName(name):
			other.Clicks += n
		default:
			names = append(names, clicks.Named{Name: name, Clicks: n})
		}
	}
	if other.Clicks > 0 {
		names = append(names, other)
	}
	return names, nil
}
