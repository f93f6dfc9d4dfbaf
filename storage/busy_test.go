package storage_test

import (
	"cmp"
	linked "container/list"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/testing/faultproxy"
	"tiney/internal/testing/rawtables"
	"tiney/storage"
	"tiney/storage/table"
)

// A busy site has 100 million redirects a month to a million links, and four processes. The links
// that are clicked are drawn by Zipf. With -short, it is a hundredth of that.
const (
	busyLinks     = 1_000_000
	busyClicks    = 3_300_000 // a day
	busyProcesses = 4
	busyKept      = 18_000          // counts that a process keeps
	busyHosts     = 10_000          // that refer
	busyRun       = 2 * time.Minute // of the roll-up
)

func busy(n int) int {
	if testing.Short() {
		return n / 100
	}
	return n
}

// busySite is the tables of a busy site. Those of days make their rows when they are listed, and
// that of links when they are read.
type busySite struct {
	*rig
	names  []string // of the links, in the order of their rows: a hash of two digits and the alias
	places []int    // of the links in names, the most popular one first
	days   map[clicks.Day][]busyRow
	links  atomic.Int64 // reads of links
	made   atomic.Int64 // nanoseconds in which rows were made
	gate   sync.RWMutex // is locked to stop all calls
}

// busyRow is what a process has counted of a link.
type busyRow struct{ place, process, number, clicks int32 }

func newBusySite(b *testing.B) *busySite {
	s := &busySite{rig: newStatsRig(b), days: map[clicks.Day][]busyRow{}}
	s.config.Log = slog.New(slog.DiscardHandler)
	random := rand.New(rand.NewPCG(1, 2))
	for range busy(busyLinks) {
		alias := strconv.FormatUint(random.Uint64N(36*36*36*36*36*36), 36)
		sum := sha256.Sum256([]byte(alias))
		s.names = append(s.names, fmt.Sprintf("%x", sum[:1])+alias)
	}
	slices.Sort(s.names)
	s.names = slices.Compact(s.names)
	s.places = random.Perm(len(s.names))
	open := s.config.Open
	s.config.Open = func(name string) table.Table {
		day, isDay := clicks.ParseDay(strings.TrimPrefix(name, s.Clicks))
		return &busyTable{open(name), s, day, isDay}
	}
	return s
}

// put makes the table of a day with these rows.
func (s *busySite) put(day clicks.Day, rows []busyRow) {
	s.PutClicks(day.Start())
	s.days[day] = rows
}

// rows draws the rows of a day. A process that has forgotten a count begins another row.
func (s *busySite) rows(day clicks.Day) (rows []busyRow) {
	random := rand.New(rand.NewPCG(uint64(day), 1))
	zipf := rand.NewZipf(random, 1.01, 1, uint64(len(s.places)-1))
	var kept [busyProcesses]map[int]*linked.Element
	var order [busyProcesses]linked.List
	for i := range kept {
		kept[i] = map[int]*linked.Element{}
	}
	for range busy(busyClicks) {
		place, p := s.places[zipf.Uint64()], random.IntN(busyProcesses)
		if e := kept[p][place]; e != nil {
			order[p].MoveToFront(e)
			rows[e.Value.(int)].clicks++
			continue
		}
		kept[p][place] = order[p].PushFront(len(rows))
		rows = append(rows, busyRow{int32(place), int32(p), int32(len(rows)), 1})
		if order[p].Len() > busy(busyKept) {
			oldest := order[p].Remove(order[p].Back()).(int)
			delete(kept[p], int(rows[oldest].place))
		}
	}
	slices.SortFunc(rows, func(a, b busyRow) int {
		return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.process, b.process),
			cmp.Compare(a.number, b.number))
	})
	return rows
}

// key returns the partition, which has one digit, and the key of a row.
func (s *busySite) key(r busyRow) string {
	return fmt.Sprintf("%s!%s!%022d-%07d", s.names[r.place][:2], s.names[r.place][2:], r.process,
		r.number)
}

// row returns a row as a process writes it, or these properties of it.
func (s *busySite) row(day clicks.Day, r busyRow, properties []string) []byte {
	random := rand.New(rand.NewPCG(uint64(day), uint64(r.number)))
	counts := func(format string, names uint64) string {
		zipf := rand.NewZipf(random, 1.01, 1, names-1)
		count := map[string]int{}
		for range r.clicks {
			if count[fmt.Sprintf(format, 'A'+zipf.Uint64())]++; len(count) > 49 {
				break
			}
		}
		data, _ := json.Marshal(count)
		return string(data)
	}
	e := rawtables.Clicks(s.names[r.place][2:], fmt.Sprintf("%022d-%07d", r.process, r.number),
		day.Start().Add(12*time.Hour), int64(r.clicks), 0).From(busyFrom)
	var hours [24]int
	for range r.clicks {
		hours[random.IntN(24)]++
	}
	var text []string
	for hour, n := range hours {
		if n > 0 {
			text = append(text, fmt.Sprintf("[%d,%d,0]", hour, n))
		}
	}
	e["Hours"] = "[" + strings.Join(text, ",") + "]"
	if properties == nil {
		e["Referrers"] = counts("www.site%d.example", busyHosts)
		e["Countries"], e["Browsers"] = counts("C%c", 26), counts("Browser%c", 5)
		e["Systems"], e["Devices"] = counts("System%c", 5), counts("device%c", 3)
		visitors := []byte{1}
		for range min(r.clicks, 16) {
			visitors = binary.LittleEndian.AppendUint64(visitors, random.Uint64())
		}
		e["Visitors"], e["Visitors@odata.type"] = visitors, "Edm.Binary" // as base64
	} else {
		maps.DeleteFunc(e, func(name string, _ any) bool {
			return !slices.Contains(properties, name)
		})
	}
	data, _ := json.Marshal(e)
	return data
}

// busyFrom is the CountedFrom of all links.
var busyFrom = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// busyTable is a table of a busy site. The table below it, in memory, has no rows if it is that of
// links or of a day.
type busyTable struct {
	table.Table
	site  *busySite
	day   clicks.Day
	isDay bool
}

func (t *busyTable) Get(ctx context.Context, partition, key string, properties ...string) ([]byte,
	table.ETag, error) {
	row, etag, err := t.Table.Get(ctx, partition, key, properties...)
	if t.Name() == t.site.Links {
		t.site.links.Add(1)
		row, err = json.Marshal(rawtables.Link(link.Link{Name: link.Name(key), LongURL: url1,
			Owner: "ann", CreatedAt: busyFrom, CountedFrom: busyFrom}))
	}
	return row, cmp.Or(etag, "e"), err
}

func (t *busyTable) List(ctx context.Context, q table.Query, page func([][]byte) error) error {
	if !t.isDay {
		return t.Table.List(ctx, q, page)
	}
	all := t.site.days[t.day]
	find := func(key string) int {
		i, _ := slices.BinarySearchFunc(all, q.Partition+key, func(r busyRow, key string) int {
			return strings.Compare(t.site.key(r), key)
		})
		return i
	}
	rest := all[find(q.From):find(cmp.Or(q.Before, "~"))]
	for {
		if err := t.Table.List(ctx, q, func([][]byte) error { return nil }); err != nil {
			return err // of the call for a page
		}
		begin := time.Now()
		var rows [][]byte
		for _, r := range rest[:min(table.MaxPage, len(rest))] {
			rows = append(rows, t.site.row(t.day, r, q.Properties))
		}
		t.site.made.Add(int64(time.Since(begin)))
		rest = rest[len(rows):]
		if err := page(rows); err != nil || len(rest) == 0 {
			return err
		}
	}
}

// begin lets each call take so long, and counts from zero.
func (s *busySite) begin(callTime time.Duration) {
	s.links.Store(0)
	s.made.Store(0)
	s.proxy.Reset()
	s.proxy.Before(func(faultproxy.Call) faultproxy.Fault {
		s.gate.RLock()
		defer s.gate.RUnlock()
		time.Sleep(callTime)
		return faultproxy.None
	})
}

func (s *busySite) calls() float64 { return float64(len(s.proxy.Calls())) }

// written returns how many rows batches had.
func (s *busySite) written() (rows float64) {
	for _, call := range s.proxy.Calls() {
		rows += float64(call.Rows)
	}
	return rows
}

// on returns a store whose clock stands at one in the morning of a day.
func (s *busySite) on(day clicks.Day) *storage.Links {
	s.config.Now = func() time.Time { return day.Start().Add(time.Hour) }
	return s.instance()
}

// rollUp rolls up all that is due on a day, and returns how many runs that takes.
func (s *busySite) rollUp(day clicks.Day) (runs float64) {
	store := s.on(day)
	for {
		runs++
		ctx, cancel := context.WithTimeout(ctx, busyRun)
		done, err := store.Clicks.RollUp(ctx)
		cancel()
		if err != nil || done.Damaged > 0 {
			s.t.Fatal(done, err)
		}
		if done.Complete {
			return runs
		}
	}
}

// live returns how many MB are in use. It stops all calls: what is allocated during a collection
// counts as in use.
func (s *busySite) live() float64 {
	s.gate.Lock()
	defer s.gate.Unlock()
	time.Sleep(time.Second)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// BenchmarkBusySite measures statistics of a busy site, on a day whose three days before are not
// rolled up.
func BenchmarkBusySite(b *testing.B) {
	s := newBusySite(b)
	today := s.today()
	for day := today - 2; day <= today; day++ {
		s.put(day, s.rows(day))
	}
	var before []busyRow // a day on which nearly all links were clicked
	for place := range s.names {
		if place%100 > 0 {
			before = append(before, busyRow{int32(place), 0, 1, 1})
		}
	}
	s.put(today-3, before)
	b.Run("clicks of a list", s.benchmarkList)
	b.Run("roll-up", s.benchmarkRollUp)
	b.Run("top of 7 days", s.benchmarkTop)
	b.Run("400 days", benchmarkKept)
}

// benchmarkList reads the clicks of 50 links.
func (s *busySite) benchmarkList(b *testing.B) {
	var links []link.Link
	for _, place := range s.places[:50] {
		links = append(links, link.Link{Name: link.Name(s.names[place][2:]),
			CountedFrom: busyFrom})
	}
	s.begin(callTime)
	for b.Loop() {
		if _, err := s.on(s.today()).Clicks.Totals(ctx, links); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(s.calls()/float64(b.N), "calls")
	b.ReportMetric(b.Elapsed().Seconds()*1000/float64(b.N), "ms")
	b.ReportMetric(0, "ns/op")
}

// benchmarkRollUp rolls up a day after the day before it. It does so once. The tables are in the
// same memory, and grow with each row that is written.
func (s *busySite) benchmarkRollUp(b *testing.B) {
	s.begin(0)
	s.rollUp(s.today() - 1)
	s.begin(callTime)
	type sample struct{ live, written float64 }
	samples := []sample{{live: s.live()}}
	ended, sampled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sampled)
		for {
			select {
			case <-ended:
				return
			case <-time.After(5 * time.Second):
				samples = append(samples, sample{s.live(), s.written()})
			}
		}
	}()
	begin := time.Now()
	runs := s.rollUp(s.today())
	took := time.Since(begin)
	close(ended)
	<-sampled
	perRow := (s.live() - samples[0].live) / s.written()
	most := 0.0
	for _, at := range samples {
		most = max(most, at.live-samples[0].live-perRow*at.written)
	}
	b.ReportMetric(s.calls()-float64(s.links.Load()), "calls")
	b.ReportMetric(float64(s.links.Load()), "reads-of-new-links")
	b.ReportMetric(runs, "runs-of-2-minutes")
	b.ReportMetric(most, "MB")
	b.ReportMetric(took.Seconds(), "s")
	b.ReportMetric(0, "ns/op")
}

// benchmarkTop looks for the top links of a week, in the background on one processor. What share of
// the processor that takes is lost to redirects. What it takes to make rows is left out.
func (s *busySite) benchmarkTop(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	store := s.on(s.today())
	s.begin(callTime)
	used, begin := processorTime(), time.Now()
	for { // a call waits for a few seconds at most
		_, _, _, err := store.Clicks.Top(ctx, "", nil, clicks.LastWeek, 10)
		if err == nil {
			break
		}
		if !errors.Is(err, clicks.ErrComputing) {
			b.Fatal(err)
		}
	}
	took := time.Since(begin).Seconds()
	made := time.Duration(s.made.Load()).Seconds()
	b.ReportMetric(s.calls(), "calls")
	b.ReportMetric(took-made, "s")
	b.ReportMetric(100*(processorTime()-used-made)/(took-made), "%-of-a-processor")
	b.ReportMetric(0, "ns/op")
}

// processorTime returns how many seconds of processor time this process has used.
func processorTime() (seconds float64) {
	runtime.GC() // or the figures are old
	all := []metrics.Sample{{Name: "/cpu/classes/user:cpu-seconds"},
		{Name: "/cpu/classes/gc/total:cpu-seconds"}}
	metrics.Read(all)
	for _, sample := range all {
		seconds += sample.Value.Float64()
	}
	return seconds
}

// benchmarkKept rolls up a month of a 256th of the links, and adds up what is kept of 400 days, by
// Azure's formula of sizes.
func benchmarkKept(b *testing.B) {
	const month, part = 30, 256
	s := newBusySite(b)
	perDay := 0.0
	first, _ := clicks.ParseDay("20270601")
	for day := first; day < first+month; day++ {
		rows := slices.DeleteFunc(s.rows(day), func(r busyRow) bool {
			return s.names[r.place][:2] != "00"
		})
		s.put(day, rows)
		for _, r := range rows {
			perDay += azureSize(s.row(day, r, nil)) / month
		}
	}
	s.rollUp(first + month + 2)
	size := func(name string) (sum float64) {
		err := s.direct(name).List(ctx, table.Query{ETags: true}, func(rows [][]byte) error {
			for _, row := range rows {
				sum += azureSize(row)
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		return part * sum / 1e9
	}
	months := size(s.Month(first.Start())) * keepDays / month
	open := part * 3 * perDay / 1e9
	b.ReportMetric(months+size(s.ClickTotals)+open, "GB")
	b.ReportMetric(months, "GB-of-months")
	b.ReportMetric(open, "GB-of-three-days")
	b.ReportMetric(0, "ns/op")
}

// azureSize returns what a row takes by Azure's formula, in bytes.
func azureSize(data []byte) float64 {
	var row rawtables.Entity
	if err := json.Unmarshal(data, &row); err != nil {
		panic(err) // a test has made it
	}
	size := 4
	for name, value := range row {
		text, isText := value.(string)
		kind := row[name+"@odata.type"]
		switch {
		case strings.Contains(name, "odata."), name == "Timestamp":
			continue
		case name == "PartitionKey", name == "RowKey":
			size += 2 * len(text)
			continue
		case kind == "Edm.Binary":
			size += 4 + base64.StdEncoding.DecodedLen(len(text))
		case isText && kind == nil:
			size += 4 + 2*len(text)
		default:
			size += 8
		}
		size += 8 + 2*len(name)
	}
	return float64(size)
}
