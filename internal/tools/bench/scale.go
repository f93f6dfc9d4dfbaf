package main

import (
	"cmp"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tiney/handler/app"
	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/storage"
	"tiney/storage/memtable"
	"tiney/storage/table"
)

// A busy site: 100 million redirects a month to a million links, by four processes that keep 18,000
// counts each.
const (
	busyLinks     = 1_000_000
	busyClicks    = 3_300_000 // a day
	busyProcesses = 4
	busyKept      = 18_000
	busyHosts     = 10_000 // that refer
	busyWait      = 30 * time.Millisecond
	busyKeep      = 400 // days
	rollUpTime    = 2 * time.Minute
)

// scale measures statistics of a busy site. Its tables are in memory, and each call takes a while.
func (b *bench) scale(ctx context.Context) (string, error) {
	s := newBusySite()
	var done results
	rows := len(s.days[s.today-2].rows)
	for _, measure := range []func(context.Context, *results) error{
		s.lists, s.rollUp, s.top, s.sizes} {
		if err := measure(ctx, &done); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d process rows a day of %d links; each call takes %v.\n\n",
		rows, s.active, busyWait) +
		done.table([]column{
			{head: "measured", value: "is", digits: 2},
			{head: "bound", value: "bound", digits: 1},
		}), nil
}

// within adds a row with a value and its bound.
func (r *results) within(name string, is, bound float64) {
	r.add(name+", "+verdict(is <= bound), values{"is": is, "bound": bound})
}

// busySite is the tables of a busy site. Those of days make their rows when they are listed.
type busySite struct {
	today   clicks.Day
	aliases []string // in the order of their rows
	places  []uint32 // of each link among them, by how popular it is
	days    map[clicks.Day]*busyDay
	active  int
	memory  *memtable.Service
	wait    atomic.Int64
	calls   atomic.Int64
	links   atomic.Int64 // reads of links
	gate    sync.RWMutex // is locked to stop all calls
	onBatch func(n int64)
	batches atomic.Int64
}

// busyRow is what a process has counted of a link.
type busyRow struct {
	place   uint32
	process uint8
	number  uint32
	clicks  uint32
}

func newBusySite() *busySite {
	s := &busySite{today: clicks.DayOf(time.Now()), days: map[clicks.Day]*busyDay{},
		memory: memtable.New(time.Now)}
	for _, l := range makeLinks(busyLinks, func(int) time.Time { return time.Time{} }) {
		s.aliases = append(s.aliases, string(l.Name))
	}
	byKey := map[string]string{}
	for _, a := range s.aliases {
		byKey[a] = fmt.Sprintf("%.2x", sha256.Sum256([]byte(a)))[:2] + a
	}
	popular := slices.Clone(s.aliases)
	slices.SortFunc(s.aliases, func(a, b string) int { return strings.Compare(byKey[a], byKey[b]) })
	place := map[string]uint32{}
	for i, a := range s.aliases {
		place[a] = uint32(i)
	}
	for _, a := range popular {
		s.places = append(s.places, place[a])
	}
	for day := s.today - 2; day <= s.today; day++ {
		s.days[day] = &busyDay{site: s, day: day, rows: s.rows(uint64(day))}
	}
	// On a day before that, nearly all links were clicked.
	before := &busyDay{site: s, day: s.today - 3}
	for place := range uint32(busyLinks) {
		if place%100 > 0 {
			before.rows = append(before.rows, busyRow{place, 0, 1, 1})
		}
	}
	s.days[before.day] = before
	seen := map[uint32]bool{}
	for _, r := range s.days[s.today-2].rows {
		seen[r.place] = true
	}
	s.active = len(seen)
	return s
}

// rows returns the rows of a day. A process that has forgotten a count begins another row.
func (s *busySite) rows(seed uint64) (rows []busyRow) {
	random := rand.New(rand.NewPCG(seed, 1))
	zipf := rand.NewZipf(random, 1.01, 1, busyLinks-1)
	var kept [busyProcesses]map[uint32]*list.Element
	var order [busyProcesses]list.List
	for i := range kept {
		kept[i] = map[uint32]*list.Element{}
	}
	for range busyClicks {
		place, p := s.places[zipf.Uint64()], random.IntN(busyProcesses)
		if e := kept[p][place]; e != nil {
			order[p].MoveToFront(e)
			rows[e.Value.(int)].clicks++
			continue
		}
		kept[p][place] = order[p].PushFront(len(rows))
		rows = append(rows, busyRow{place, uint8(p), uint32(len(rows)), 1})
		if order[p].Len() > busyKept {
			oldest := order[p].Remove(order[p].Back()).(int)
			delete(kept[p], rows[oldest].place)
		}
	}
	slices.SortFunc(rows, func(a, b busyRow) int {
		if a.place != b.place {
			return int(a.place) - int(b.place)
		}
		return strings.Compare(s.key(a), s.key(b))
	})
	return rows
}

func (s *busySite) key(r busyRow) string {
	a := s.aliases[r.place]
	hash := sha256.Sum256([]byte(a))
	return fmt.Sprintf("%x!%s!%022d-%07d", hash[0]&15, a, r.process, r.number)
}

// open opens a table.
func (s *busySite) open(name string) storage.Table {
	t := &busyTable{s.memory.Table(name), s, name}
	if day, ok := clicks.ParseDay(strings.TrimPrefix(name, "ShortUrlsClicks")); ok {
		if d := s.days[day]; d != nil {
			return d
		}
	}
	return t
}

// store opens a store whose clock stands at one in the morning of a day.
func (s *busySite) store(day clicks.Day) (*storage.Links, error) {
	return storage.Open(storage.Config{Open: s.open, Timeout: table.Timeout, Tables: busyNames,
		Clicks: storage.ClicksConfig{Mode: clicks.ModeOff, KeepDays: busyKeep},
		Reap:   storage.ReapConfig{PageSize: table.MaxPage, Pause: time.Second},
		Now:    func() time.Time { return day.Start().Add(time.Hour) },
		Random: rand.NewChaCha8([32]byte{}), Log: slog.New(slog.DiscardHandler)})
}

var busyNames = storage.Tables{Links: "ShortUrls", Index: "UrlIndex", Expiry: "ShortUrlsExpiryIndex",
	Owners: "ShortUrlsByOwner", Keys: "ShortUrlsKeys", State: "ShortUrlsState",
	Clicks: "ShortUrlsClicks", ClickTotals: "ShortUrlsClickTotals"}

// busyTable is a table in memory whose calls take a while.
type busyTable struct {
	storage.Table
	site *busySite
	name string
}

// called lets a call take its time.
func (s *busySite) called() {
	s.calls.Add(1)
	time.Sleep(time.Duration(s.wait.Load()))
	s.gate.RLock()
	defer s.gate.RUnlock()
}

const busyFrom = "20260101" // the CountedFrom of all links

func (t *busyTable) Get(ctx context.Context, partition, key string, properties ...string) ([]byte,
	table.ETag, error) {
	t.site.called()
	if t.name == busyNames.Links {
		t.site.links.Add(1)
		return fmt.Appendf(nil, `{"PartitionKey":%q,"RowKey":%q,"LongUrl":"https://example.com/%[2]s",`+
			`"Owner":"ann","CountedFrom":%q,"CreatedAtUtc":"2026-01-01T00:00:00Z"}`, partition, key,
			busyFrom), "e", nil
	}
	return t.Table.Get(ctx, partition, key, properties...)
}

func (t *busyTable) Batch(ctx context.Context, writes []table.Write) (bool, error) {
	t.site.called()
	if n := t.site.batches.Add(1); t.site.onBatch != nil {
		t.site.onBatch(n)
	}
	return t.Table.Batch(ctx, writes)
}

func (t *busyTable) List(ctx context.Context, q table.Query, page func([][]byte) error) error {
	t.site.called()
	return t.Table.List(ctx, q, func(rows [][]byte) error {
		err := page(rows)
		if len(rows) == table.MaxPage {
			t.site.called() // for the next one
		}
		return err
	})
}

func (t *busyTable) Names(ctx context.Context, prefix string) ([]string, error) {
	t.site.called()
	names, err := t.Table.Names(ctx, prefix)
	for day, d := range t.site.days {
		if !d.dropped.Load() {
			names = append(names, prefix+day.String())
		}
	}
	return names, err
}

// busyDay is the table of a day.
type busyDay struct {
	storage.Table // nil: only what is here is called
	site          *busySite
	day           clicks.Day
	rows          []busyRow
	dropped       atomic.Bool
}

func (d *busyDay) Name() string { return busyNames.Clicks + d.day.String() }

func (d *busyDay) Drop(context.Context) error {
	d.dropped.Store(true)
	return nil
}

func (d *busyDay) List(ctx context.Context, q table.Query, page func([][]byte) error) error {
	partition := func(r busyRow) string {
		hash := sha256.Sum256([]byte(d.site.aliases[r.place]))
		return fmt.Sprintf("%x", hash[0]>>4)
	}
	find := func(key string) int {
		i, _ := slices.BinarySearchFunc(d.rows, key, func(r busyRow, key string) int {
			return cmp.Or(strings.Compare(partition(r), q.Partition),
				strings.Compare(d.site.key(r), key))
		})
		return i
	}
	from, before := find(q.From), find(cmp.Or(q.Before, "~"))
	for {
		d.site.called()
		if d.dropped.Load() {
			return table.ErrNoTable
		}
		if err := ctx.Err(); err != nil {
			return table.Classify("QueryEntities", err)
		}
		n := min(table.MaxPage, before-from)
		rows := make([][]byte, n)
		for i := range rows {
			rows[i] = d.row(from+i, q.Properties)
		}
		if from += n; n > 0 || from == before {
			if err := page(rows); err != nil || from == before {
				return err
			}
		}
	}
}

// row returns a row as the service writes it, or these properties of it.
func (d *busyDay) row(i int, properties []string) []byte {
	r := d.rows[i]
	key := d.site.key(r)
	hash := sha256.Sum256([]byte(d.site.aliases[r.place]))
	head := fmt.Appendf(nil, `{"PartitionKey":"%x","RowKey":%q,"CountedFrom":%q,"Clicks":"%d",`+
		`"Bots":"0","TookMicroseconds":"%d","LastAtUtc":"%sT12:00:00Z"`, hash[0]>>4, key, busyFrom,
		r.clicks, 900*r.clicks, d.day.Start().Format(time.DateOnly))
	random := rand.New(rand.NewPCG(uint64(d.day), uint64(i)))
	hours := map[int]int{}
	for range r.clicks {
		hours[random.IntN(24)]++
	}
	text := func(name string, value any) {
		data, _ := json.Marshal(value)
		head = fmt.Appendf(head, ",%q:%q", name, data)
	}
	if properties != nil {
		if slices.Contains(properties, "Hours") {
			var all [][3]int
			for hour, n := range hours {
				all = append(all, [3]int{hour, n, 0})
			}
			text("Hours", all)
		}
		return append(head, '}')
	}
	var all [][3]int
	for hour, n := range hours {
		all = append(all, [3]int{hour, n, 0})
	}
	text("Hours", all)
	for name, form := range map[string]struct {
		format string
		count  uint64
	}{"Referrers": {"www.site%d.example", busyHosts}, "Countries": {"C%c", 26},
		"Browsers": {"Browser%d", 5}, "Systems": {"System%d", 5}, "Devices": {"device%d", 3}} {
		zipf := rand.NewZipf(random, 1.01, 1, form.count-1)
		names := map[string]int{}
		for range r.clicks {
			n := zipf.Uint64()
			if name == "Countries" {
				n += 'A'
			}
			if names[fmt.Sprintf(form.format, n)]++; len(names) > 49 {
				break
			}
		}
		text(name, names)
	}
	visitors := make([]byte, 1, 1+8*16)
	visitors[0] = 1
	for range min(r.clicks, 16) {
		visitors = binary.LittleEndian.AppendUint64(visitors, random.Uint64())
	}
	return fmt.Appendf(head, `,"Visitors":%q}`, base64.StdEncoding.EncodeToString(visitors))
}

// lists reads the clicks of 50 links, with three days that are not rolled up.
func (s *busySite) lists(ctx context.Context, done *results) error {
	s.wait.Store(int64(busyWait))
	store, err := s.store(s.today)
	if err != nil {
		return err
	}
	var links []link.Link
	from, _ := time.Parse("20060102", busyFrom)
	for _, place := range s.places[:50] {
		links = append(links, link.Link{Name: link.Name(s.aliases[place]), CountedFrom: from})
	}
	s.calls.Store(0)
	begin := time.Now()
	_, err = store.Clicks.Totals(ctx, links)
	done.within("clicks of 50 links in a list, with four open days, s", time.Since(begin).Seconds(), 0.5)
	done.add("calls for them", values{"is": float64(s.calls.Load())})
	return err
}

// rollUp rolls up a day after the day before it.
func (s *busySite) rollUp(ctx context.Context, done *results) error {
	s.wait.Store(0)
	if err := s.rolled(ctx, s.today-1, time.Hour, nil); err != nil {
		return err
	}
	s.wait.Store(int64(busyWait))
	s.calls.Store(0)
	s.links.Store(0)
	live := func() float64 {
		s.gate.Lock() // what is allocated during a collection counts as live
		defer s.gate.Unlock()
		time.Sleep(time.Second)
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1e6
	}
	before := live()
	var most float64
	s.batches.Store(0)
	s.onBatch = func(n int64) {
		if n%1000 == 500 {
			most = max(most, live())
		}
	}
	runs := 0
	begin := time.Now()
	err := s.rolled(ctx, s.today, rollUpTime, &runs)
	took := time.Since(begin)
	s.onBatch = nil
	// The tables themselves grow meanwhile.
	grown := max(live()-before, 0)
	done.within("roll-up of a day, calls but for new links", float64(s.calls.Load()-s.links.Load()),
		15_000)
	done.within("roll-up of a day, runs of two minutes", float64(runs), 3)
	done.within("roll-up of a day, MB", most-before-grown/2, 60)
	done.add("roll-up of a day, s", values{"is": took.Seconds()})
	done.add("roll-up of a day, reads of new links", values{"is": float64(s.links.Load())})
	return err
}

// rolled rolls up all that is due on a day, in runs of at most so long.
func (s *busySite) rolled(ctx context.Context, day clicks.Day, limit time.Duration,
	runs *int) error {
	store, err := s.store(day)
	for err == nil {
		if runs != nil {
			*runs++
		}
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		rolled, failed := store.Clicks.RollUp(ctx)
		if err = failed; rolled.Complete {
			break
		}
	}
	return err
}

// top looks for the top links of a week on one processor, while a client follows a cached link.
func (s *busySite) top(ctx context.Context, done *results) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	env := map[string]string{"AzureWebJobsStorage": "UseDevelopmentStorage=true"}
	settings, err := app.ReadSettings(func(name string) string { return env[name] })
	if err != nil {
		return err
	}
	settings.Storage.Open = s.open
	service, err := app.New(ctx, settings, "bench", time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	request := httptest.NewRequest("GET", "/"+s.aliases[s.places[0]], nil)
	follow := func(until <-chan struct{}) float64 {
		begin := time.Now()
		for n := 0; ; n++ {
			select {
			case <-until:
				return float64(n) / time.Since(begin).Seconds()
			default:
				service.Handler.ServeHTTP(httptest.NewRecorder(), request)
			}
		}
	}
	after := func(d time.Duration) <-chan struct{} {
		until := make(chan struct{})
		time.AfterFunc(d, func() { close(until) })
		return until
	}
	follow(after(time.Second)) // caches the link
	alone := follow(after(10 * time.Second))
	ended := make(chan struct{})
	begin := time.Now()
	var took time.Duration
	go func() {
		defer close(ended)
		for { // a call waits for a few seconds at most
			_, _, _, err = service.Links.Clicks.Top(ctx, "", nil, clicks.LastWeek, 10)
			if took = time.Since(begin); err == nil || took > 2*rollUpTime+time.Minute {
				return
			}
		}
	}()
	beside := follow(ended)
	done.within("top of 7 days, in the background, s", took.Seconds(), 300)
	done.within("redirects lost meanwhile, %", 100*(1-beside/alone), 10)
	return err
}

// sizes rolls up a month of a 256th of the links, and adds up what is kept.
func (s *busySite) sizes(ctx context.Context, done *results) error {
	const month, part = 30, 256
	s.wait.Store(0)
	s.memory = memtable.New(time.Now)
	perDay := 0.0
	s.days = map[clicks.Day]*busyDay{}
	first, _ := clicks.ParseDay("20270601")
	for i := range month {
		day := first + clicks.Day(i)
		d := &busyDay{site: s, day: day}
		for _, r := range s.rows(uint64(day)) {
			if strings.HasPrefix(fmt.Sprintf("%x", sha256.Sum256([]byte(s.aliases[r.place]))),
				"00") {
				d.rows = append(d.rows, r)
			}
		}
		s.days[day] = d
		for i := range d.rows {
			perDay += azureSize(d.row(i, nil)) / month
		}
	}
	if err := s.rolled(ctx, first+month+2, time.Hour, nil); err != nil {
		return err
	}
	size := func(name string) (sum float64, err error) {
		err = s.memory.Table(name).List(ctx, table.Query{ETags: true}, func(rows [][]byte) error {
			for _, row := range rows {
				sum += azureSize(row)
			}
			return nil
		})
		return sum, err
	}
	months, err := size(busyNames.Clicks + "202706")
	if err != nil {
		return err
	}
	totals, err := size(busyNames.ClickTotals)
	done.within(fmt.Sprintf("kept in %d days, GB", busyKeep),
		part*(months*busyKeep/month+totals+3*perDay)/1e9, 15)
	done.add("of which months, GB", values{"is": part * months * busyKeep / month / 1e9})
	done.add("and process rows of three days, GB", values{"is": part * 3 * perDay / 1e9})
	return err
}

// azureSize returns what a row takes by Azure's formula, in bytes.
func azureSize(data []byte) float64 {
	var row map[string]any
	if err := json.Unmarshal(data, &row); err != nil {
		panic(err) // it was written by this program
	}
	size := 4 + 2*len(row["PartitionKey"].(string)) + 2*len(row["RowKey"].(string))
	for name, value := range row {
		text, isText := value.(string)
		switch kind := row[name+"@odata.type"]; {
		case strings.Contains(name, "odata."), name == "PartitionKey", name == "RowKey",
			name == "Timestamp":
			continue
		case kind == "Edm.Binary", name == "Visitors":
			size += 4 + base64.StdEncoding.DecodedLen(len(text))
		case kind != nil, !isText, name == "Clicks", name == "Bots", name == "TookMicroseconds":
			size += 8
		default:
			size += 4 + 2*len(text)
		}
		size += 8 + 2*len(name)
	}
	return float64(size)
}
