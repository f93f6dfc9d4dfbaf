package counts

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/internal/telemetry"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

const (
	rollUpConcurrency = 4  // partitions of a day that are rolled up at the same time
	partitions        = 16 // of a day
	// rollUpTries is how often a group is tried that storage fails, after pauses that double, and
	// how often the rows of a link are read again that another process is writing.
	rollUpTries = 5

	// rollUpNames is how many names a group has at most in memory. It is a multiple of what one
	// call writes. Each further group takes two calls to read its totals and months.
	rollUpNames = 5 * table.MaxBatch

	saveEvery = 1000 // totals are written between two saves of the progress, at least

	rollUpPartition = "rollup"
	rollUpKey       = "progress"
)

// RollUp adds the counts of days that are over for long enough to the totals and the months of the
// links, of their owners and of clicks.All. It begins with the oldest day, and drops the day's
// table when everything is added. It also drops the tables of months that are not kept any more,
// and before all else deletes the keys of the days.
//
// A day counts once, whatever crashes and however many processes roll up at once: the totals name
// the last day that they have, a month names its days, and both are written only if they are
// unchanged. The totals of a group of links are written first, and name the month; then the month.
// RollUp deletes what it has written for a link that ends meanwhile.
//
// The end of ctx's time is no error: the next RollUp goes on. Neither is a damaged row, which is
// logged and left out. Errors: link.ErrUnavailable, or the cause of the end of ctx, both with what
// was done until then.
func (c *Clicks) RollUp(ctx context.Context) (clicks.RollUpResult, error) {
	r := &rollingUp{c: c}
	ctx = telemetry.EachCall(ctx) // there may be thousands of calls
	err := concurrent.Safely(func() error { return r.run(ctx) })
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	done := clicks.RollUpResult{Added: r.added.Load(), Damaged: r.damaged.Load(),
		Complete: err == nil}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = nil
	}
	return done, err
}

// rollUpBefore returns the oldest day that is not over for long enough.
func rollUpBefore(now time.Time) clicks.Day { return clicks.DayOf(now.Add(-rollUpAfter)) }

// rollingUp is one RollUp at work.
type rollingUp struct {
	c              *Clicks
	added, damaged atomic.Int64
	already        atomic.Int64 // names whose totals had the day
	withoutLink    atomic.Int64 // names that are no link's any more
}

func (r *rollingUp) run(ctx context.Context) error {
	days, months, err := r.c.tables.names(ctx)
	if err != nil {
		return err
	}
	now := r.c.config.Now()
	isDue := func() bool {
		return clicks.Day(r.c.keysGone.Load()) != rollUpBefore(now) ||
			len(days) > 0 && days[0] < rollUpBefore(now) ||
			len(months) > 0 && isOver(months[0], r.c.firstKept(now))
	}
	if !isDue() {
		return nil
	}
	if r.c.config.StorageClock {
		if now, err = r.c.config.State.Earlier(ctx, now); err != nil || !isDue() {
			return err
		}
	}
	before := rollUpBefore(now)
	// No more clicks of these days are written, so their keys can go, however long the rest takes.
	if err := r.c.config.State.DeleteRange(ctx, table.Range{From: keyPrefix,
		Before: keyPrefix + before.String()}, nil); err != nil {
		return err
	}
	for _, day := range days {
		if day >= before {
			break
		}
		if err := r.day(ctx, day); err != nil {
			return err
		}
	}
	// The roll-up of a day may have made a month that is not kept.
	if _, months, err = r.c.tables.names(ctx); err != nil {
		return err
	}
	for _, month := range months {
		if isOver(month, r.c.firstKept(now)) {
			if err := r.c.tables.month(month).Table.Drop(ctx); err != nil {
				return err
			}
		}
	}
	r.c.keysGone.Store(int32(before))
	return nil
}

// rollUpProgress is the row of ShortUrlsState on the wire that says how far the roll-up of a day
// is.
type rollUpProgress struct {
	PartitionKey, RowKey string
	Day                  string // "20060102"
	// Next has for each partition the hex digit of the first group that is not done, "g" if all
	// are.
	Next string
}

const (
	hexDigits = "0123456789abcdef"
	done      = 'g'
	nothing   = "0000000000000000" // is done
)

// sound reports whether the row is as a process writes it.
func (p *rollUpProgress) sound() bool {
	_, ok := clicks.ParseDay(p.Day)
	return ok && len(p.Next) == partitions && strings.Trim(p.Next, hexDigits+string(done)) == ""
}

// day rolls up a day, and drops its table.
func (r *rollingUp) day(ctx context.Context, day clicks.Day) error {
	data, _, err := r.c.config.State.Get(ctx, rollUpPartition, rollUpKey)
	if err != nil && !errors.Is(err, table.ErrGone) {
		return err
	}
	var progress rollUpProgress
	if json.Unmarshal(data, &progress) != nil || !progress.sound() || progress.Day != day.String() {
		progress.Next = nothing // what is done already is only looked at once more
	}
	var next nextGroups
	for i, group := range progress.Next {
		next[i].Store(group)
	}
	begun := r.added.Load()
	save := func() error { // if another process is further, some groups are looked at twice
		// Also when the time is over.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.c.config.Timeout)
		defer cancel()
		row := rollUpProgress{rollUpPartition, rollUpKey, day.String(), next.String()}
		_, err := r.c.config.State.Write(ctx, table.Upsert, table.Encode(row), "")
		return err
	}
	var saved atomic.Int64
	saved.Store(begun)
	err = concurrent.Each(ctx, partitions, rollUpConcurrency, func(ctx context.Context,
		i int) error {
		err := r.partition(ctx, day, hexDigits[i:i+1], &next[i])
		if n := r.added.Load(); err == nil && n > saved.Load()+saveEvery {
			saved.Store(n)
			err = save()
		}
		return err
	})
	if err == nil {
		err = r.c.tables.day(day).Table.Drop(ctx)
	}
	if err != nil {
		return errors.Join(err, save())
	}
	r.c.config.Log.Info("reaper: a day of clicks is rolled up", "day", day, "added",
		r.added.Load()-begun, "already", r.already.Load(), "withoutLink", r.withoutLink.Load(),
		"damaged", r.damaged.Load())
	return nil
}

// nextGroups has the first group of each partition that is not done: see rollUpProgress.Next.
type nextGroups [partitions]atomic.Int32

func (n *nextGroups) String() (text string) {
	for i := range n {
		text += string(n[i].Load())
	}
	return text
}

// partition rolls up a partition of a day from its next group on.
func (r *rollingUp) partition(ctx context.Context, day clicks.Day, partition string,
	next *atomic.Int32) error {
	pause := r.c.config.Pause
	for tries := 1; ; tries++ {
		before := next.Load()
		err := r.groups(ctx, day, partition, next)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if next.Load() != before {
			tries, pause = 1, r.c.config.Pause
		}
		if tries == rollUpTries {
			return err
		}
		// Another process may be writing the same rows, or storage may be throttling.
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause *= 2
	}
}

// groups reads the rows of a partition once, and rolls up one group after the other.
func (r *rollingUp) groups(ctx context.Context, day clicks.Day, partition string,
	next *atomic.Int32) error {
	first := next.Load()
	if first == done {
		return nil
	}
	g := &rollUpGroup{r: r, day: day, hash: partition + string(first)}
	q := table.Query{Range: table.Range{Partition: partition, From: string(first) + keyEnd},
		PageSize: r.c.config.PageSize}
	var failed error
	err := r.c.tables.day(day).Table.List(ctx, q, func(page [][]byte) error {
		for _, row := range page {
			var keys struct{ PartitionKey, RowKey string }
			_ = json.Unmarshal(row, &keys)
			of, count, err := decodeCount(row)
			group, name, ok := countName(keys.RowKey)
			if err != nil || !ok || hashOf(name) != keys.PartitionKey+group {
				r.leaveOut(keys.PartitionKey, keys.RowKey, cmp.Or(err, errElsewhere))
				continue
			}
			if hash := hashOf(name); hash != g.hash || g.isFull(name) {
				if failed = g.write(ctx); failed != nil {
					return table.ErrEnough
				}
				next.Store(rune(hash[1]))
				g = &rollUpGroup{r: r, day: day, hash: hash}
			}
			g.add(of, &count)
		}
		return nil
	})
	switch {
	case failed != nil:
		return failed
	case errors.Is(err, table.ErrNoTable): // another process has rolled up the day
	case err != nil:
		return err
	default:
		if err := g.write(ctx); err != nil {
			return err
		}
	}
	next.Store(done)
	return nil
}

var errElsewhere = errors.New("it is not in the place of its name")

func (r *rollingUp) leaveOut(partition, row string, err error) {
	r.damaged.Add(1)
	r.c.config.Log.Error(telemetry.LogClicksCorrupt, "partition", partition, "row", row, "error",
		err)
}

// rollUpGroup has the counts of a day under names whose hashes have the same first two digits:
// their totals are in one partition, and so are their rows of a month. Many names are split into
// several groups, since a day of a busy site has more than memory is to hold.
type rollUpGroup struct {
	r     *rollingUp
	day   clicks.Day
	hash  string // the two digits
	names []*dayCount
}

// dayCount has the counts of a name on a day, summed over all processes.
type dayCount struct {
	name string
	// of has the counts of the link, and of earlier links with the name.
	of map[subject]*clicks.Count

	totals     totalsEntity // the zero value if there are none
	totalsETag table.ETag
	month      monthCounts // the zero value if there is none
	monthETag  table.ETag

	totalsDamaged, monthDamaged error

	chosen            subject // whose count is added; the zero value if none is
	toTotals, toMonth bool    // whether they lack it
	recheck           bool    // read the link again when everything is written
}

// add adds a row. Rows come in the order of their names.
func (g *rollUpGroup) add(of subject, count *clicks.Count) {
	if n := len(g.names); n == 0 || g.names[n-1].name != of.name {
		g.freeSketches()
		g.names = append(g.names, &dayCount{name: of.name, of: map[subject]*clicks.Count{}})
	}
	d := g.names[len(g.names)-1]
	if sum := d.of[of]; sum != nil {
		sum.Merge(count)
		keepNames(sum, maxMonthNames)
	} else {
		d.of[of] = count
	}
}

// isFull reports whether a row of this name belongs into another group.
func (g *rollUpGroup) isFull(name string) bool {
	return len(g.names) >= rollUpNames && g.names[len(g.names)-1].name != name
}

// freeSketches frees the sketches of the last name, which are large. Months have only the number of
// visitors.
func (g *rollUpGroup) freeSketches() {
	if n := len(g.names); n > 0 {
		for _, count := range g.names[n-1].of {
			count.Visitors = clicks.CountedVisitors(count.Visitors.Estimate())
		}
	}
}

// write adds the counts to the rows that lack them. After a crash at any point, it may be repeated.
func (g *rollUpGroup) write(ctx context.Context) error {
	g.freeSketches()
	totals, months := g.r.c.config.Totals, g.r.c.tables.month(monthOf(g.day))
	if err := g.read(ctx, totals, func(d *dayCount, r table.Listed) {
		d.totals, d.totalsDamaged = decodeTotals(r.Data)
		d.totalsETag = r.ETag
	}); err != nil {
		return err
	}
	if err := g.read(ctx, months, func(d *dayCount, r table.Listed) {
		d.month, d.monthDamaged = decodeMonth(r.Data)
		d.monthETag = r.ETag
	}); err != nil {
		return err
	}
	if err := g.each(ctx, g.choose); err != nil {
		return err
	}
	if err := g.replace(ctx, totals, func(d *dayCount) ([]byte, table.ETag) {
		if !d.toTotals {
			return nil, ""
		}
		d.totals.add(d.chosen, g.day, d.of[d.chosen].Total)
		return table.Encode(d.totals), d.totalsETag
	}); err != nil {
		return err
	}
	if err := g.replace(ctx, months, func(d *dayCount) ([]byte, table.ETag) {
		if !d.toMonth {
			return nil, ""
		}
		if d.month.of != d.chosen { // of an earlier link
			d.month = monthCounts{of: d.chosen}
		}
		d.month.days[g.day.Start().Day()] = d.of[d.chosen]
		return d.month.encode(), d.monthETag
	}); err != nil {
		return err
	}
	return g.each(ctx, g.recheckLink)
}

// each calls do for each name, some of them at the same time.
func (g *rollUpGroup) each(ctx context.Context,
	do func(context.Context, *dayCount) error) error {
	return concurrent.Each(ctx, len(g.names), concurrent.InBackground, func(ctx context.Context,
		i int) error {
		return do(ctx, g.names[i])
	})
}

// read calls found with the rows of the names in a table. It reads their range, or, once that has
// taken more pages than there are names, one row after the other.
func (g *rollUpGroup) read(ctx context.Context, t *table.Store,
	found func(*dayCount, table.Listed)) error {
	if len(g.names) == 0 {
		return nil
	}
	byName := map[string]*dayCount{}
	for _, d := range g.names {
		byName[d.name] = d
	}
	q := table.Query{ETags: true, Range: table.Range{Partition: g.hash, From: g.names[0].name,
		Before: g.names[len(g.names)-1].name + keyEnd}}
	pages, last := 0, ""
	err := t.Table.List(ctx, q, func(page [][]byte) error {
		rows, err := t.Decode(page)
		for _, r := range rows {
			if d := byName[r.Row]; d != nil {
				found(d, r)
			}
			last = r.Row
		}
		if pages++; err == nil && pages > len(g.names) {
			err = table.ErrEnough
		}
		return err
	})
	if errors.Is(err, table.ErrNoTable) {
		return nil
	}
	if !errors.Is(err, table.ErrEnough) {
		return err
	}
	for _, d := range g.names {
		if d.name <= last {
			continue
		}
		row, etag, err := t.Table.Get(ctx, g.hash, d.name)
		if errors.Is(err, table.ErrGone) {
			continue
		}
		if err != nil {
			return err
		}
		key := table.Key{Partition: g.hash, Row: d.name, ETag: etag}
		found(d, table.Listed{Key: key, Data: row})
	}
	return nil
}

// choose decides which count is added to which rows. It reads the link only if the totals are not
// there, or are those of another link.
func (g *rollUpGroup) choose(ctx context.Context, d *dayCount) error {
	for _, damaged := range []error{d.totalsDamaged, d.monthDamaged} {
		if damaged != nil {
			g.r.leaveOut(g.hash, d.name, damaged)
		}
	}
	own := subject{d.name, d.totals.CountedFrom}
	known := d.totalsETag != "" && d.of[own] != nil
	if !own.several() && (!known || len(d.of) > 1) {
		is, err := g.r.c.linkOf(ctx, d.name)
		switch {
		case err != nil:
			return err
		case is != damagedLink:
			own = is
		case !known && len(d.of) == 1: // a damaged link does not say which count is its own
			for own = range d.of {
			}
		}
	}
	if d.of[own] == nil { // all counts are those of links that are gone
		g.r.withoutLink.Add(1)
		if d.monthETag != "" && d.of[d.month.of] != nil {
			return g.r.c.takeAway(ctx, d.month.of, monthOf(g.day))
		}
		return nil
	}
	d.chosen = own
	known = d.totalsETag != "" && d.totals.CountedFrom == own.from
	d.toTotals = d.totalsDamaged == nil && (!known || d.totals.Through < g.day.String())
	d.toMonth = d.monthDamaged == nil && (d.month.of != own || d.month.days[g.day.Start().Day()] == nil)
	if known && !d.toTotals {
		g.r.already.Add(1)
	}
	// The link may have ended before its first totals were written; the reaper found none then. Or
	// a roll-up that was killed has not rechecked it.
	d.recheck = !own.several() && (!known || !d.toTotals)
	return nil
}

// damagedLink is what linkOf returns for a link that cannot be read.
var damagedLink = subject{"", "damaged"}

// linkOf returns the link that has a name, the zero value if there is none.
func (c *Clicks) linkOf(ctx context.Context, name string) (subject, error) {
	a, ok := link.ParseName(name)
	if !ok {
		return subject{}, nil // another program's row
	}
	l, err := c.config.Links.Current(ctx, a)
	switch {
	case errors.Is(err, link.ErrDamaged):
		return damagedLink, nil
	case errors.Is(err, link.ErrNotFound):
		return subject{}, nil
	}
	return subjectOf(l), err
}

// replace writes rows if they are as they were read, as many in one call as it takes. row returns
// nil if nothing is to be written. table.ErrChanged, table.ErrExists: another process works on the
// same rows, or an earlier try of this call was applied.
func (g *rollUpGroup) replace(ctx context.Context, t *table.Store,
	row func(*dayCount) ([]byte, table.ETag)) error {
	var batch []table.Write
	size := 0
	write := func() error {
		if len(batch) == 0 {
			return nil
		}
		_, err := t.Batch(ctx, batch)
		if err == nil && t == g.r.c.config.Totals {
			g.r.added.Add(int64(len(batch)))
		}
		batch, size = nil, 0
		return err
	}
	for _, d := range g.names {
		data, read := row(d)
		if data == nil {
			continue
		}
		if len(batch) == table.MaxBatch || size+len(data) > flushBytes {
			if err := write(); err != nil {
				return err
			}
		}
		w := table.Write{Kind: table.Replace, Row: data, Read: read}
		if read == "" {
			w.Kind = table.Insert
		}
		batch, size = append(batch, w), size+len(data)
	}
	return write()
}

// recheckLink takes away what was written for a link that has ended since.
func (g *rollUpGroup) recheckLink(ctx context.Context, d *dayCount) error {
	if !d.recheck {
		return nil
	}
	is, err := g.r.c.linkOf(ctx, d.name)
	if err != nil || is == d.chosen || is == damagedLink {
		return err
	}
	return g.r.c.takeAway(ctx, d.chosen, monthOf(g.day))
}

// takeAway deletes the rolled up counts of a link that is gone: the row of a month, those that its
// totals name, and then the totals.
func (c *Clicks) takeAway(ctx context.Context, of subject, month string) error {
	if err := c.dropMonth(ctx, of, month); err != nil {
		return err
	}
	t, etag, err := c.readTotals(ctx, of.name)
	if errors.Is(err, table.ErrGone) || err == nil && t.CountedFrom != of.from {
		return nil
	}
	if err != nil {
		return err
	}
	return c.dropTotals(ctx, t, etag)
}

// dropTotals deletes the months that totals name, and then the totals.
func (c *Clicks) dropTotals(ctx context.Context, t totalsEntity, etag table.ETag) error {
	for month := range strings.FieldsSeq(t.Months) {
		if _, ok := clicks.ParseDay(month + "01"); ok {
			if err := c.dropMonth(ctx, subject{t.RowKey, t.CountedFrom}, month); err != nil {
				return err
			}
		}
	}
	return c.config.Totals.Delete(ctx,
		table.Key{Partition: t.PartitionKey, Row: t.RowKey, ETag: etag})
}

// dropMonth deletes the row of a month, unless it is of another link.
func (c *Clicks) dropMonth(ctx context.Context, of subject, month string) error {
	row, etag, err := c.tables.readMonth(ctx, month, of.name, "RowKey", "CountedFrom")
	if row == nil {
		return err
	}
	if whose, _ := decodeDays(row); whose != of {
		return nil
	}
	err = c.tables.month(month).Reading().Delete(ctx,
		table.Key{Partition: hashOf(of.name), Row: of.name, ETag: etag})
	if errors.Is(err, table.ErrNoTable) {
		return nil
	}
	return err
}

// dropCounts deletes the rolled up counts of a link that is gone: the months that its totals name,
// and then the totals, so that another try finds what this one leaves. It deletes nothing of a link
// that has the alias by now. The expiry row of the link must be deleted after this.
func (c *Clicks) Drop(ctx context.Context, a link.Name) error {
	t, etag, damaged := c.readTotals(ctx, string(a))
	if errors.Is(damaged, table.ErrGone) {
		return nil
	} else if damaged != nil && !errors.Is(damaged, link.ErrDamaged) {
		return damaged
	}
	// After the totals: those of a link that was made since are inserted later, and have another
	// ETag.
	is, err := c.linkOf(ctx, string(a))
	if err != nil || is == (subject{string(a), t.CountedFrom}) || is == damagedLink ||
		damaged != nil && is != (subject{}) {
		return err
	}
	t.PartitionKey, t.RowKey = hashOf(string(a)), string(a) // also of a damaged row
	return c.dropTotals(ctx, t, etag)
}
