package counts

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/storage/table"
)

const (
	maxMonthNames = 1000      // names of a dimension that a day of a link has, besides clicks.Other
	maxMonthBytes = 700 << 10 // of the counts of a month; Azurite takes no row of 1 MiB
	maxValueBytes = 64 << 10  // of a property, the service's own limit
	maxUnpacked   = 16 << 20  // of the counts of a month, before they are compressed
)

// monthEntity is a row of a month's table on the wire: all days of one link.
type monthEntity struct {
	PartitionKey string
	RowKey       string
	CountedFrom  string `json:",omitzero"` // "20060102", that of the link
	// Days has the clicks and bots of each day, for statistics of many links: see packDays.
	Days     []byte
	DaysType string `json:"Days@odata.type,omitzero"`
	// Counts has the counts of each day: see packCounts. What does not fit into one property
	// follows in Counts1, Counts2 and so on.
	Counts     []byte
	CountsType string                    `json:"Counts@odata.type,omitzero"`
	More       map[string]jsontext.Value `json:",embed"`
}

// dayProperties are those of a month's row that statistics of many links need.
var dayProperties = []string{"RowKey", "CountedFrom", "Days"}

// monthCounts are the counts of one link in a month. days has a place for each day of a month,
// nil for a day without clicks.
type monthCounts struct {
	of   subject
	days [32]*clicks.Count
}

// monthOf returns the month of a day, as "200601".
func monthOf(day clicks.Day) string { return day.String()[:6] }

// isOver reports whether all days of a month are before a day.
func isOver(month string, before clicks.Day) bool { return month < monthOf(before) }

// encode returns the row. If it would be too large, it has only the most frequent names of each
// day.
func (m *monthCounts) encode() []byte {
	packed := packCounts(&m.days)
	for most := maxMonthNames / 2; len(packed) > maxMonthBytes; most /= 2 {
		for _, c := range m.days {
			if c != nil {
				keepNames(c, most)
			}
		}
		packed = packCounts(&m.days)
	}
	e := monthEntity{PartitionKey: hashOf(m.of.name), RowKey: m.of.name, CountedFrom: m.of.from,
		Days: packDays(&m.days), DaysType: table.EdmBinary, CountsType: table.EdmBinary}
	parts := slices.Collect(slices.Chunk(packed, maxValueBytes))
	e.Counts = parts[0]
	for i, part := range parts[1:] {
		if e.More == nil {
			e.More = map[string]jsontext.Value{}
		}
		name := fmt.Sprint("Counts", i+1)
		e.More[name], e.More[name+"@odata.type"] = table.Encode(part), table.Encode(table.EdmBinary)
	}
	return table.Encode(e)
}

// keepNames keeps the names of each dimension that have the most clicks.
func keepNames(c *clicks.Count, most int) {
	for d, names := range c.Names {
		if len(names) > most {
			c.Names[d] = c.Top(clicks.Dimension(d), most)
		}
	}
}

// decodeMonth reads a row of a month. Error: link.ErrDamaged.
func decodeMonth(data []byte) (m monthCounts, err error) {
	var e monthEntity
	err = json.Unmarshal(data, &e)
	m.of = subject{e.RowKey, e.CountedFrom}
	for i := 1; err == nil && e.More[fmt.Sprint("Counts", i)] != nil; i++ {
		var part []byte
		err = json.Unmarshal(e.More[fmt.Sprint("Counts", i)], &part)
		e.Counts = append(e.Counts, part...)
	}
	if err == nil {
		m.days, err = unpackCounts(e.Counts)
	}
	if err != nil {
		return m, fmt.Errorf("the month of %s: %w: %w", m.of.name, link.ErrDamaged, err)
	}
	return m, nil
}

// dayClicks are the clicks and bots of a day.
type dayClicks struct {
	day          int // of the month
	clicks, bots int64
}

// packDays returns three numbers for each day that has any clicks: the day, clicks and bots.
func packDays(days *[32]*clicks.Count) (packed []byte) {
	for day, c := range days {
		if c != nil {
			packed = binary.AppendUvarint(packed, uint64(day))
			packed = binary.AppendUvarint(packed, uint64(c.Clicks))
			packed = binary.AppendUvarint(packed, uint64(c.Bots))
		}
	}
	return packed
}

// decodeDays reads a row that has dayProperties. A corrupt row has no days.
func decodeDays(row []byte) (of subject, days []dayClicks) {
	var e struct {
		RowKey, CountedFrom string
		Days                []byte
	}
	if json.Unmarshal(row, &e) != nil {
		return subject{}, nil
	}
	u := unpacking{rest: e.Days}
	for len(u.rest) > 0 && u.err == nil {
		days = append(days, dayClicks{int(u.number()), u.count(), u.count()})
	}
	if u.err != nil {
		days = nil
	}
	return subject{e.RowKey, e.CountedFrom}, days
}

// The possible first bytes of packed counts. Counts without names of the later dimensions leave
// these out, so that a process of an earlier version, which does not know them, can read the rest.
const (
	packedPlain      = 1
	packedCompressed = 2
	packedAll        = 2 // is added for counts with names of all dimensions

	fewDimensions = clicks.Targets
)

// packCounts returns the counts of a month: numbers as uvarints, and a name where it first occurs.
// Where it occurs again, its number in the order of names stands instead. Large counts are
// compressed.
func packCounts(days *[32]*clicks.Count) []byte {
	dimensions, kind := fewDimensions, byte(0)
	if slices.ContainsFunc(days[:], func(c *clicks.Count) bool {
		return c != nil && len(c.Names[clicks.Targets])+len(c.Names[clicks.Sources]) > 0
	}) {
		dimensions, kind = clicks.Dimensions, packedAll
	}
	p := packing{packed: []byte{packedPlain + kind}, names: map[string]int{}}
	for day, c := range days {
		if c == nil {
			continue
		}
		last := uint64(0)
		if !c.Last.IsZero() {
			last = uint64(c.Last.UnixMilli())
		}
		p.numbers(uint64(day), uint64(c.Clicks), uint64(c.Bots), uint64(c.Created),
			uint64(c.Took.Microseconds()), last, uint64(c.Visitors.Estimate()))
		hours := clickedHours(c)
		p.numbers(uint64(len(hours)))
		for _, h := range hours {
			p.numbers(uint64(h[0]), uint64(h[1]), uint64(h[2]))
		}
		for _, names := range c.Names[:dimensions] {
			p.numbers(uint64(len(names)))
			for _, n := range names {
				p.name(n.Name)
				p.numbers(uint64(n.Clicks))
			}
		}
	}
	// What could not be unpacked stays too large for a row, so that encode leaves names out.
	if len(p.packed) < 256 || len(p.packed) >= maxUnpacked {
		return p.packed
	}
	return compress(packedCompressed+kind, p.packed[1:])
}

// unpackCounts reads what packCounts has returned. It refuses what cannot be shown.
func unpackCounts(packed []byte) (days [32]*clicks.Count, err error) {
	u := unpacking{rest: packed}
	kind, dimensions := u.byte(), fewDimensions
	if kind > packedAll {
		kind, dimensions = kind-packedAll, clicks.Dimensions
	}
	switch kind {
	case packedPlain:
	case packedCompressed:
		if u.rest, err = decompress(u.rest); err != nil {
			return days, err
		}
	default:
		return days, errPacked
	}
	for len(u.rest) > 0 && u.err == nil {
		day := u.number()
		if day >= uint64(len(days)) || days[day] != nil {
			return days, errPacked
		}
		c := &clicks.Count{}
		days[day] = c
		c.Clicks, c.Bots, c.Created = u.count(), u.count(), u.count()
		c.Took = time.Duration(u.count()) * time.Microsecond
		if last := u.count(); last > 0 {
			c.Last = time.UnixMilli(last).UTC()
		}
		if c.Last.Year() > 9999 {
			return days, errPacked
		}
		c.Visitors = clicks.CountedVisitors(u.count())
		for range u.length() {
			hour := u.number()
			if hour >= uint64(len(c.Hours)) {
				return days, errPacked
			}
			c.Hours[hour] = clicks.Hour{Clicks: uint32(u.number()), Bots: uint32(u.number())}
		}
		for d := range dimensions {
			for range u.length() {
				c.Names[d] = append(c.Names[d], clicks.Named{Name: u.name(d), Clicks: u.count()})
			}
		}
	}
	return days, u.err
}

// packing appends to packed. Names are at most 128 bytes long.
type packing struct {
	packed []byte
	names  map[string]int // the number of each
}

func (p *packing) numbers(all ...uint64) {
	for _, n := range all {
		p.packed = binary.AppendUvarint(p.packed, n)
	}
}

func (p *packing) name(name string) {
	at, known := p.names[name]
	if known {
		p.numbers(uint64(at))
		return
	}
	p.numbers(uint64(len(p.names)), uint64(len(name)))
	p.packed = append(p.packed, name...)
	p.names[name] = len(p.names)
}

var errPacked = fmt.Errorf("counts that cannot be unpacked")

// unpacking reads what packing has written. After an error, everything that it reads is zero.
type unpacking struct {
	rest  []byte
	names []string
	err   error
}

func (u *unpacking) byte() byte {
	if len(u.rest) == 0 {
		u.err = errPacked
		return 0
	}
	b := u.rest[0]
	u.rest = u.rest[1:]
	return b
}

func (u *unpacking) number() uint64 {
	n, size := binary.Uvarint(u.rest)
	if u.err != nil || size <= 0 {
		u.err = errPacked
		return 0
	}
	u.rest = u.rest[size:]
	return n
}

// count reads a number that other programs could not have made too large to add up.
func (u *unpacking) count() int64 {
	n := u.number()
	if n >= 1<<53 {
		u.err = errPacked
		return 0
	}
	return int64(n)
}

// length reads the number of items that follow, each of at least a byte.
func (u *unpacking) length() int {
	n := u.number()
	if n > uint64(len(u.rest)) {
		u.err = errPacked
		return 0
	}
	return int(n)
}

// name reads a name of a dimension.
func (u *unpacking) name(d clicks.Dimension) string {
	at := u.number()
	if u.err == nil && at == uint64(len(u.names)) {
		n := u.length()
		u.names = append(u.names, string(u.rest[:n]))
		u.rest = u.rest[n:]
	}
	if u.err != nil || at >= uint64(len(u.names)) || !clicks.IsName(d, u.names[at]) {
		u.err = errPacked
		return ""
	}
	return u.names[at]
}

// compressors keeps what compresses, since each takes much memory.
var compressors = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestSpeed) // the level is valid
	return w
}}

func compress(kind byte, data []byte) []byte {
	out := bytes.NewBuffer([]byte{kind})
	w := compressors.Get().(*flate.Writer)
	defer compressors.Put(w)
	w.Reset(out)
	_, _ = w.Write(data) // a buffer takes everything
	_ = w.Close()
	return out.Bytes()
}

var decompressors = sync.Pool{New: func() any { return flate.NewReader(nil) }}

func decompress(data []byte) ([]byte, error) {
	r := decompressors.Get().(io.ReadCloser)
	defer decompressors.Put(r)
	_ = r.(flate.Resetter).Reset(bytes.NewReader(data), nil) // it never fails
	all, err := io.ReadAll(io.LimitReader(r, maxUnpacked))
	if err != nil || len(all) == maxUnpacked {
		return nil, errPacked
	}
	return all, nil
}
