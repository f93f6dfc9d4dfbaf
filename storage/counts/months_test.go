package counts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/storage/memtable"
	"tiney/storage/table"
)

// shown returns as text what statistics show of the days of a month.
func shown(days *[32]*clicks.Count) string {
	var all strings.Builder
	for day, c := range days {
		if c != nil {
			fmt.Fprintln(&all, day, c.Total, c.Hours, c.Names, c.Visitors.Estimate())
		}
	}
	return all.String()
}

// aMonth is a month in which three days have clicks, and everything else that a day may have.
func aMonth(names int) *monthCounts {
	m := &monthCounts{of: subject{"one", "20260102"}}
	for _, day := range []int{1, 17, 31} {
		c := &clicks.Count{Total: clicks.Total{Clicks: int64(1000 * day), Bots: 7, Created: 3,
			Took: time.Duration(day) * time.Microsecond,
			Last: time.Date(2026, 1, day, 23, 59, 59, 999e6, time.UTC)},
			Visitors: clicks.CountedVisitors(int64(day))}
		c.Hours[0], c.Hours[23] = clicks.Hour{Clicks: 1, Bots: 2}, clicks.Hour{Clicks: math.MaxUint32}
		for d := range c.Names {
			for i := range names {
				// some of them are those of another day or dimension
				c.Names[d] = append(c.Names[d], clicks.Named{Name: fmt.Sprint("name", i, day*d%3),
					Clicks: int64(1 + i*day)})
			}
			c.Names[d] = append(c.Names[d], clicks.Named{Name: clicks.Other, Clicks: 1 << 40})
		}
		m.days[day] = c
	}
	// only a bot has clicked; and nothing has, which processes do not write
	m.days[2], m.days[3] = &clicks.Count{Total: clicks.Total{Bots: 1}}, &clicks.Count{}
	return m
}

func TestMonthsAreReadAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*monthCounts{"empty": {of: subject{"*", ""}}, "small": aMonth(0),
		"compressed": aMonth(300)} {
		want := shown(&m.days)
		data := m.encode()
		got, err := decodeMonth(data)
		if err != nil || got.of != m.of || shown(&got.days) != want {
			t.Errorf("%s: got %v, %v:\n%s\nwant\n%s", name, got.of, err, shown(&got.days), want)
		}
		of, days := decodeDays(data)
		if of != m.of {
			t.Errorf("%s: the days are those of %v", name, of)
		}
		left := m.days
		for _, d := range days {
			if c := left[d.day]; c == nil || c.Clicks != d.clicks || c.Bots != d.bots {
				t.Errorf("%s: got %+v", name, d)
			}
			left[d.day] = nil
		}
		if left != [32]*clicks.Count{} {
			t.Errorf("%s: without the days %v", name, left)
		}
	}
	for day, want := range map[string]string{"20260131": "20260131", "20240201": "20240229",
		"20261231": "20261231"} {
		d, _ := clicks.ParseDay(day)
		last, _ := clicks.ParseDay(want)
		if month := monthOf(d); isOver(month, last) || !isOver(month, last+1) {
			t.Errorf("the month of %s does not end with %s", day, want)
		}
	}
}

// largeMonth is a month whose names cannot be compressed, each day with a thousand of its own in
// each dimension. The first ones have the most clicks.
func largeMonth() *monthCounts {
	m := &monthCounts{of: subject{"one", ""}}
	rng := rand.New(rand.NewPCG(1, 2))
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-"
	for day := 1; day < len(m.days); day++ {
		c := &clicks.Count{Total: clicks.Total{Clicks: 1e6}}
		for d := range c.Names {
			for i := range maxMonthNames {
				name := make([]byte, 64)
				if d == int(clicks.Targets) {
					name = name[:32] // characters, as a rule may have
				}
				for j := range name {
					name[j] = letters[rng.IntN(len(letters))]
				}
				c.Names[d] = append(c.Names[d], clicks.Named{Name: string(name),
					Clicks: int64(maxMonthNames - i)})
			}
		}
		m.days[day] = c
	}
	return m
}

// A month that would be too large for a row keeps the most frequent names, and all sums.
func TestLargeMonth(t *testing.T) {
	t.Parallel()
	m, whole := largeMonth(), largeMonth()
	data := m.encode()
	got, err := decodeMonth(data)
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for day, c := range got.days {
		if day == 0 {
			continue
		}
		for d, names := range c.Names {
			sum := int64(0)
			for i, n := range names {
				if sum += n.Clicks; i < len(names)-1 && n != whole.days[day].Names[d][i] {
					t.Errorf("day %d, dimension %d: name %d is %v", day, d, i, n)
				}
			}
			if last := names[len(names)-1].Name; sum != maxMonthNames*(maxMonthNames+1)/2 ||
				last != clicks.Other || kept > 0 && len(names) != kept {
				t.Errorf("day %d, dimension %d: %d clicks with %d names, the last %s", day, d, sum,
					len(names), last)
			}
			kept = len(names)
		}
	}
	if kept < 10 { // a day has 5 times 64 bytes for each name, and a month 700 KB
		t.Errorf("only %d names were kept", kept)
	}
	var row map[string]any
	if err := json.Unmarshal(data, &row); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for name, value := range row {
		if row[name+"@odata.type"] == table.EdmBinary {
			var part []byte
			if err := json.Unmarshal(table.Encode(value), &part); err != nil || len(part) > 64<<10 {
				t.Errorf("%s has %d bytes, %v", name, len(part), err)
			}
			sum += len(part)
		}
	}
	if sum > 700<<10+1<<10 || sum < 64<<10 {
		t.Errorf("%d bytes", sum)
	}
	months := memtable.New(time.Now).Table("months") // has the limits of the service
	if err := months.Create(context.Background()); err != nil {
		t.Fatal(err)
	}
	if _, err := months.Write(context.Background(), table.Write{Row: data}); err != nil {
		t.Error(err)
	}
}

// A month without rules and sources is as it was before there were any, so that an earlier version
// of the service reads it.
func TestMonthOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	for _, names := range []int{0, 300} {
		m := aMonth(names)
		with := packCounts(&m.days)[0]
		for _, c := range m.days {
			if c != nil {
				c.Names[clicks.Targets], c.Names[clicks.Sources] = nil, nil
			}
		}
		packed := packCounts(&m.days)
		days, err := unpackCounts(packed)
		if err != nil || shown(&days) != shown(&m.days) {
			t.Errorf("%d names: it is another month: %v", names, err)
		}
		if without := packed[0]; without > packedCompressed || with <= packedCompressed {
			t.Errorf("%d names: begins with %d, and %d with them", names, without, with)
		}
	}
}

// A month that is as large as allowed keeps all of its names, in more than one property.
func TestMonthInSeveralProperties(t *testing.T) {
	t.Parallel()
	m := largeMonth()
	clear(m.days[2:]) // 7,000 names of 32 or 64 bytes
	want := shown(&m.days)
	data := m.encode()
	if got, err := decodeMonth(data); err != nil || shown(&got.days) != want {
		t.Errorf("it is another month: %v", err)
	}
	if !bytes.Contains(data, []byte(`"Counts5"`)) {
		t.Error("all is in the first properties")
	}
	for _, lost := range []string{"Counts", "Counts1", "Counts5"} {
		without := bytes.Replace(data, []byte(`"`+lost+`":`), []byte(`"Lost":`), 1)
		if _, err := decodeMonth(without); !errors.Is(err, link.ErrDamaged) {
			t.Errorf("without %s: %v", lost, err)
		}
	}
}

// Whatever counts are packed, they are unpacked or refused; and what was unpacked is unpacked from
// what is packed for it.
func FuzzUnpackCounts(f *testing.F) {
	for _, m := range []*monthCounts{{}, aMonth(0), aMonth(1), aMonth(50)} {
		packed := packCounts(&m.days)
		f.Add(packed)
		f.Add(packed[:len(packed)/2])
		if kind := packed[0]; kind == packedCompressed || kind == packedCompressed+packedAll {
			plain, err := decompress(packed[1:])
			if err != nil {
				f.Fatal(err)
			}
			f.Add(append([]byte{kind - 1}, plain...))
		}
	}
	late := packing{packed: []byte{packedPlain}} // a click in the year 144683
	late.numbers(1, 1, 0, 0, 0, 1<<52, 0, 0, 0, 0, 0, 0, 0)
	for _, seed := range [][]byte{late.packed, {}, {0}, {3, 1}, {1, 0}, {1, 32}, {2}, {2, 1, 2, 3},
		{1, 128},
		{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},           // a second day that breaks off
		{1, 1, 0, 0, 0, 0, 0, 0, 1, 24, 1, 1, 0, 0, 0, 0, 0},    // hour 24
		{1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 'x', 1, 0, 0, 0},   // a name that did not come first
		{1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1, '<', 1, 0, 0, 0},   // no name
		{1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 200, 1, 'x', 1, 0, 0}, // a name longer than the rest
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, packed []byte) {
		days, err := unpackCounts(packed)
		if err != nil {
			return
		}
		again, err := unpackCounts(packCounts(&days))
		if err != nil || shown(&again) != shown(&days) {
			t.Fatalf("%v:\n%s\nis packed and unpacked as\n%s", err, shown(&days), shown(&again))
		}
		for _, c := range days {
			if c == nil {
				continue
			}
			for d, names := range c.Names {
				for _, n := range names {
					if !clicks.IsName(clicks.Dimension(d), n.Name) || n.Clicks < 0 {
						t.Fatalf("%+v is no name", n)
					}
				}
			}
			if _, err := json.Marshal(c.Last); err != nil || c.Clicks < 0 || c.Bots < 0 ||
				c.Created < 0 || c.Took < 0 || c.Visitors.Estimate() < 0 {
				t.Fatalf("%+v cannot be shown: %v", c.Total, err)
			}
		}
	})
}

// Whatever a row of a month holds, it is decoded or called damaged; and what was decoded is decoded
// from what is written for it.
func FuzzDecodeMonth(f *testing.F) {
	for _, m := range []*monthCounts{{}, aMonth(0), aMonth(50)} {
		f.Add(m.encode())
	}
	for _, seed := range []string{`{}`, `{"Counts":"AQ=="}`, `{"RowKey":"one","Counts":"x"}`,
		`{"Counts":"AQ==","Counts1":"IA=="}`, `{"Counts":"AQ==","Counts1":7}`,
		`{"Counts":"AQ==","Counts2":7,"Other":{"a":[1]}}`, `[]`, ``} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, days := decodeDays(data)
		for _, d := range days {
			if d.clicks < 0 || d.bots < 0 {
				t.Fatalf("%+v", d)
			}
		}
		m, err := decodeMonth(data)
		if err != nil {
			if !errors.Is(err, link.ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		written := m.encode() // which cuts m, if it is too large
		again, err := decodeMonth(written)
		if err != nil || again.of != m.of || shown(&again.days) != shown(&m.days) {
			t.Fatalf("%v:\n%s\nis written and read as\n%s", err, shown(&m.days), shown(&again.days))
		}
	})
}
