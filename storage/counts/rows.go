package counts

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/storage/table"
)

// maxRow is what a row of counts takes at most, in bytes: seven times 50 names, a sketch, and
// the rest.
const maxRow = 64 << 10

// usualRow is what most rows of counts take at most, in bytes.
const usualRow = 1 << 10

// subject says whose clicks a row counts: those of a link, of all links of an owner, or of all
// links together. It is comparable.
type subject struct {
	name string // an alias, clicks.OwnerName of an owner, or clicks.All
	// from is the CountedFrom of the link, as "20060102": an earlier link that had the alias has
	// another one. It is "" for a link that has none, for owners and for all links together.
	from string
}

func subjectOf(l link.Link) subject { return subject{string(l.Name), fromDay(l.CountedFrom)} }

// fromDay returns the CountedFrom of a link as rows have it.
func fromDay(countedFrom time.Time) string {
	if countedFrom.IsZero() {
		return ""
	}
	return clicks.DayOf(countedFrom).String()
}

// several reports whether it is an owner or all links, whose counts have no end.
func (s subject) several() bool {
	return s.name == clicks.All || len(s.name) == ownerNameLength && s.name[0] == '@'
}

const ownerNameLength = 1 + 32

// hashOf returns the first two hex digits of the hash by which the counts of a name are spread
// over partitions. PartitionKeys of totals and months have both, those of a day only the first.
func hashOf(name string) string {
	if i := strings.IndexByte(name, '@'); i > 0 { // links are spread by their aliases alone
		name = name[:i]
	}
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:1])
}

// keyEnd ends the parts of a row's key. It sorts before every character of a name, so that the rows
// of a day have the order of the totals. afterEnd is the character that sorts right after it.
const (
	keyEnd   = "!"
	afterEnd = `"`
)

// countKey returns the key of a row of a day, and countName the name in it.
func countKey(name, process string, row uint32) string {
	return hashOf(name)[1:] + keyEnd + name + keyEnd + process + "-" +
		strconv.FormatUint(uint64(row), 10)
}

func countName(key string) (group, name string, ok bool) {
	group, rest, _ := strings.Cut(key, keyEnd)
	name, _, ok = strings.Cut(rest, keyEnd)
	return group, name, ok
}

// totalEntity is what rows of counts and of totals have on the wire.
type totalEntity struct {
	PartitionKey string
	RowKey       string
	CountedFrom  string    `json:",omitzero"` // "20060102", that of the link
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

// totalProperties are the properties of a totalEntity.
var totalProperties = []string{"PartitionKey", "RowKey", "CountedFrom", "Clicks", "Bots", "Created",
	"TookMicroseconds", "LastAtUtc"}

func newTotalEntity(partition, key, from string, t clicks.Total) totalEntity {
	e := totalEntity{PartitionKey: partition, RowKey: key, CountedFrom: from,
		Clicks: t.Clicks, ClicksType: table.EdmInt64, Bots: t.Bots, BotsType: table.EdmInt64,
		Took: t.Took.Microseconds(), TookType: table.EdmInt64}
	if t.Created != 0 {
		e.Created, e.CreatedType = t.Created, table.EdmInt64
	}
	e.LastAt, e.LastAtType = table.DateTime(t.Last.Truncate(time.Millisecond))
	return e
}

func (e *totalEntity) total() clicks.Total {
	return clicks.Total{Clicks: e.Clicks, Bots: e.Bots, Created: e.Created,
		Took: time.Duration(e.Took) * time.Microsecond, Last: e.LastAt.UTC()}
}

// sound returns an error if the row has a value that no process can have written. A year past 9999
// could not be written again.
func (e *totalEntity) sound() error {
	if e.Clicks < 0 || e.Bots < 0 || e.Created < 0 || e.Took < 0 || e.LastAt.UTC().Year() > 9999 {
		return errNotCounted
	}
	return nil
}

var errNotCounted = errors.New("a negative number, or a time that is too late")

// totalsEntity is a row of ShortUrlsClickTotals on the wire: all that is rolled up of one link. It
// is inserted only when its link is there.
type totalsEntity struct {
	totalEntity
	Through string // "20060102", the last day that is in it
	Months  string // "200601 200602", the months that may have a row of the link
}

// decodeTotals reads a row of ShortUrlsClickTotals. Error: link.ErrDamaged.
func decodeTotals(data []byte) (t totalsEntity, err error) {
	if err = json.Unmarshal(data, &t); err == nil {
		err = t.sound()
	}
	if err != nil {
		return t, fmt.Errorf("the totals of %s: %w: %w", t.RowKey, link.ErrDamaged, err)
	}
	return t, nil
}

// add adds a day. The totals then name its month.
func (t *totalsEntity) add(of subject, day clicks.Day, total clicks.Total) {
	if t.CountedFrom != of.from { // of an earlier link
		*t = totalsEntity{}
	}
	sum := t.total()
	sum.Add(total)
	t.totalEntity = newTotalEntity(hashOf(of.name), of.name, of.from, sum)
	t.Through = day.String()
	if month := monthOf(day); !strings.Contains(t.Months, month) {
		t.Months = strings.TrimPrefix(t.Months+" "+month, " ")
	}
}

// countEntity is a row of a day on the wire: what one process has counted. Its texts are JSON, so
// that other programs can read them.
type countEntity struct {
	totalEntity
	Hours        string `json:",omitzero"` // [[hour,clicks,bots], …]
	Referrers    string `json:",omitzero"` // {name: clicks, …}, as the following
	Countries    string `json:",omitzero"`
	Browsers     string `json:",omitzero"`
	Systems      string `json:",omitzero"`
	Devices      string `json:",omitzero"`
	Targets      string `json:",omitzero"`
	Sources      string `json:",omitzero"`
	Visitors     []byte `json:",omitzero"` // see clicks.Visitors
	VisitorsType string `json:"Visitors@odata.type,omitzero"`
}

func (e *countEntity) dimensions() [clicks.Dimensions]*string {
	return [...]*string{clicks.Referrers: &e.Referrers, clicks.Countries: &e.Countries,
		clicks.Browsers: &e.Browsers,
		clicks.Systems:  &e.Systems, clicks.Devices: &e.Devices,
		clicks.Targets: &e.Targets, clicks.Sources: &e.Sources}
}

// dimensionNames are the properties of a countEntity by dimension.
var dimensionNames = [clicks.Dimensions]string{clicks.Referrers: "Referrers",
	clicks.Countries: "Countries", clicks.Browsers: "Browsers", clicks.Systems: "Systems",
	clicks.Devices: "Devices", clicks.Targets: "Targets", clicks.Sources: "Sources"}

// encodeCount returns a row of a day, as package json would write a countEntity. It writes the JSON
// itself, because a flush makes thousands of rows, and package json takes several times as long.
func encodeCount(partition, key, from string, c *clicks.Count) []byte {
	e := newTotalEntity(partition, key, from, c.Total)
	r := append(make(countRow, 0, usualRow), '{')
	r.text("PartitionKey", e.PartitionKey)
	r.text("RowKey", e.RowKey)
	if e.CountedFrom != "" {
		r.text("CountedFrom", e.CountedFrom)
	}
	r.number("Clicks", e.Clicks)
	r.number("Bots", e.Bots)
	if e.Created != 0 {
		r.number("Created", e.Created)
	}
	r.number("TookMicroseconds", e.Took)
	if !e.LastAt.IsZero() {
		r.typed("LastAtUtc", e.LastAt.Format(time.RFC3339Nano), e.LastAtType)
	}
	text := appendHours(make([]byte, 0, usualRow/2), c)
	if len(text) > 0 {
		r.name("Hours")
		r, _ = jsontext.AppendQuote(r, text)
	}
	for d, names := range c.Names {
		if text = appendNames(text[:0], names); len(text) > 0 {
			r.name(dimensionNames[d])
			r, _ = jsontext.AppendQuote(r, text)
		}
	}
	if visitors := c.Visitors.Encode(); visitors != nil {
		r.typed("Visitors", base64.StdEncoding.EncodeToString(visitors), table.EdmBinary)
	}
	return append(r, '}')
}

// countRow is the JSON of a row that is being written, without its last brace.
type countRow []byte

// name begins a property.
func (r *countRow) name(property string) {
	if len(*r) > 1 {
		*r = append(*r, ',')
	}
	*r = append(append(append(*r, '"'), property...), `":`...)
}

func (r *countRow) text(property, value string) {
	r.name(property)
	*r, _ = jsontext.AppendQuote(*r, value) // invalid UTF-8 is replaced
}

// typed adds a property that has a type of its own on the wire.
func (r *countRow) typed(property, value, kind string) {
	r.text(property, value)
	r.text(property+"@odata.type", kind)
}

func (r *countRow) number(property string, n int64) {
	r.typed(property, strconv.FormatInt(n, 10), table.EdmInt64)
}

// appendHours appends the hours of a countEntity as JSON to an empty text, or nothing if no hour
// has any clicks.
func appendHours(text []byte, c *clicks.Count) []byte {
	for _, h := range clickedHours(c) {
		text = fmt.Appendf(text, ",[%d,%d,%d]", h[0], h[1], h[2])
	}
	return enclose('[', text, ']')
}

// appendNames appends the names of a countEntity as JSON to an empty text, or nothing if there are
// none.
func appendNames(text []byte, names []clicks.Named) []byte {
	for _, n := range names {
		text, _ = jsontext.AppendQuote(append(text, ','), n.Name)
		text = strconv.AppendInt(append(text, ':'), n.Clicks, 10)
	}
	return enclose('{', text, '}')
}

// enclose puts items, each with a comma before it, between two brackets, unless there are none.
func enclose(open byte, items []byte, end byte) []byte {
	if len(items) > 0 {
		items[0] = open
		items = append(items, end)
	}
	return items
}

// clickedHours returns the hour, clicks and bots of each hour that has any.
func clickedHours(c *clicks.Count) (hours [][3]uint32) {
	for hour, h := range c.Hours {
		if h != (clicks.Hour{}) {
			hours = append(hours, [3]uint32{uint32(hour), h.Clicks, h.Bots})
		}
	}
	return hours
}

// decodeCount reads a row of a day. Error: link.ErrDamaged.
func decodeCount(data []byte) (of subject, c clicks.Count, err error) {
	var e countEntity
	if err = json.Unmarshal(data, &e); err == nil {
		err = e.sound()
	}
	if err == nil {
		c.Hours, err = decodeHours(e.Hours)
	}
	for d, text := range e.dimensions() {
		if err == nil {
			c.Names[d], err = decodeNames(clicks.Dimension(d), *text)
		}
	}
	if err == nil {
		c.Visitors, err = clicks.DecodeVisitors(e.Visitors)
	}
	if err != nil {
		return subject{}, clicks.Count{}, fmt.Errorf("the count %s %s: %w: %w", e.PartitionKey,
			e.RowKey, link.ErrDamaged, err)
	}
	c.Total = e.total()
	_, name, _ := countName(e.RowKey)
	return subject{name, e.CountedFrom}, c, nil
}

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

// decodeNames reads the names of a dimension. All of them can be shown, even if another program has
// written the row: what no Click can have is Other.
func decodeNames(d clicks.Dimension, text string) (names []clicks.Named, err error) {
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
			return nil, errNotCounted
		case name == clicks.Other || !clicks.IsName(d, name):
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
