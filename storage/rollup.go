package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"tiney/clicks"
	"tiney/link"
	"tiney/storage/table"
	"tiney/telemetry"
)

const (
	rollUpConcurrency = inBackground // links at the same time
	// how often the totals of a link are read again that another process is writing
	rollUpTries = 5

	rollUpPartition = "rollup"
	rollUpKey       = "progress"
)

// totalProperties are the properties of a totalEntity: sketches are large, and not needed here.
var totalProperties = []string{"PartitionKey", "RowKey", "Clicks", "Bots", "Created",
	"TookMicroseconds", "LastAtUtc"}

// totalsEntity is a row of ShortUrlsClickTotals on the wire. It is inserted only when its link is
// there.
type totalsEntity struct {
	totalEntity
	Through     string // "20060102", the last day that is in it
	CountedFrom string `json:",omitzero"` // that of the link it belongs to
}

// of reports whether the totals belong to the link with this CountedFrom, and not to one that had
// the alias before. "" is that of a link that has had its alias for ever, or whose row is damaged.
func (e *totalsEntity) of(countedFrom string) bool {
	return countedFrom == "" || e.CountedFrom == countedFrom
}

// RollUp adds what was counted on days that are over for long enough to the totals of the links,
// and to those of clicks.All. A day counts once, whatever crashes and however many processes do
// this at once: a link's totals say which day they go up to, and are written only if they are
// unchanged. It reads the counts in the order of time, a page at a time, from where the last one
// came to; and when it has come to the end, it deletes those that are not kept any more. The keys
// of these days it deletes first.
//
// The end of ctx's time is no error: the next one goes on. Neither is a damaged row, which is
// logged and left out. Errors: link.ErrUnavailable, or the cause of the end of ctx, both with what
// was done until then.
func (c *Clicks) RollUp(ctx context.Context) (clicks.RollUpResult, error) {
	r := &rollingUp{c: c}
	err := r.run(ctx)
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

// rollingUp is one RollUp at work.
type rollingUp struct {
	c              *Clicks
	progress       position // up to here, all is rolled up
	etag           table.ETag
	open           []dayCount // what was read, and is not added yet
	added, damaged atomic.Int64
}

// position is a place between the rows of ShortUrlsClicks: right after the row with this key.
type position struct{ Partition, Row string }

// dayCount is what all processes have counted of an alias on a day.
type dayCount struct {
	alias string
	day   string
	total clicks.Total
	last  position // of its last row
}

func (r *rollingUp) run(ctx context.Context) error {
	if err := r.readProgress(ctx); err != nil {
		return err
	}
	now := r.c.config.Now()
	if r.progress.Partition >= rollUpBefore(now).String() {
		return nil
	}
	if r.c.config.Reap.StorageClock {
		var err error
		if now, err = r.c.state.earlier(ctx, now); err != nil {
			return err
		}
	}
	before := rollUpBefore(now)
	if r.progress.Partition >= before.String() {
		return nil
	}
	// Nothing is written of these days any more, so their keys can go, however long the rest takes.
	err := r.c.state.deleteRange(ctx, table.Range{From: keyPrefix,
		Before: keyPrefix + before.String()}, nil)
	if err == nil {
		err = r.addDays(ctx, before)
	}
	if err == nil {
		kept := min(clicks.DayOf(now)-clicks.Day(r.c.config.Clicks.KeepDays), before)
		err = r.c.days.deleteRange(ctx, table.Range{Before: kept.String()}, nil)
	}
	if err == nil {
		err = r.advance(ctx, position{Partition: before.String()})
	}
	return err
}

// rollUpBefore returns the first day that is not over for long enough.
func rollUpBefore(now time.Time) clicks.Day { return clicks.DayOf(now.Add(-rollUpAfter)) }

// progressEntity is the row of ShortUrlsState on the wire that says how far the roll-up is: the key
// of the last row that is rolled up, or, as Partition alone, the first day that is not.
type progressEntity struct {
	PartitionKey, RowKey string
	Partition, Row       string
}

func (r *rollingUp) readProgress(ctx context.Context) error {
	data, etag, err := r.c.state.get(ctx, rollUpPartition, rollUpKey)
	if err != nil && !errors.Is(err, table.ErrGone) {
		return err
	}
	var e progressEntity
	_ = json.Unmarshal(data, &e) // without it, all is looked at once more
	r.progress, r.etag = position{e.Partition, e.Row}, etag
	return nil
}

// advance saves how far the roll-up is. Where another process has done so meanwhile, that stays:
// some is looked at twice then.
func (r *rollingUp) advance(ctx context.Context, to position) error {
	// also when the time is over
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.c.config.Timeout)
	defer cancel()
	data := encode(progressEntity{rollUpPartition, rollUpKey, to.Partition, to.Row})
	etag, _, err := r.c.state.replace(ctx, data, r.etag)
	if errors.Is(err, table.ErrChanged) { // perhaps by an earlier try of this very call
		return r.readProgress(ctx)
	}
	if err == nil {
		r.progress, r.etag = to, etag
	}
	return err
}

// addDays adds the counts of all days before one.
func (r *rollingUp) addDays(ctx context.Context, before clicks.Day) error {
	from := r.progress
	ranges := []table.Range{{After: from.Partition, Before: before.String()}}
	if from.Row != "" {
		ranges = slices.Insert(ranges, 0, table.Range{Partition: from.Partition, After: from.Row})
	}
	for _, rows := range ranges {
		q := table.Query{Range: rows, Properties: totalProperties,
			PageSize: r.c.config.Reap.PageSize}
		if err := r.c.days.list(ctx, q, func(page [][]byte) error {
			return r.page(ctx, page)
		}); err != nil {
			return err
		}
	}
	return r.add(ctx, r.open)
}

// page adds the counts of a page of rows, but for those of the last alias and day, of which the
// next page may have more.
func (r *rollingUp) page(ctx context.Context, page [][]byte) error {
	for _, data := range page {
		var e totalEntity
		if err := e.decode(data); err != nil {
			r.leaveOut(e.PartitionKey, e.RowKey, err)
			continue
		}
		alias, _, _ := strings.Cut(e.RowKey, "|")
		day, ok := partitionDay(e.PartitionKey)
		if !ok {
			continue // another program's row
		}
		at := position{e.PartitionKey, e.RowKey}
		if n := len(r.open); n == 0 || r.open[n-1].alias != alias ||
			r.open[n-1].last.Partition != at.Partition {
			r.open = append(r.open, dayCount{alias: alias, day: day.String()})
		}
		count := &r.open[len(r.open)-1]
		count.total.Add(e.total())
		count.last = at
	}
	if len(r.open) == 0 {
		return nil
	}
	last := len(r.open) - 1
	whole := r.open[:last]
	r.open = slices.Clone(r.open[last:])
	return r.add(ctx, whole)
}

func (r *rollingUp) leaveOut(partition, row string, err error) {
	r.damaged.Add(1)
	r.c.config.Log.Error(telemetry.LogClicksCorrupt, "partition", partition, "row", row, "error",
		err)
}

// add adds counts, which are in the order of the table. It stops at the first alias that fails, and
// moves the progress up to that one: its days have to be added in their order.
func (r *rollingUp) add(ctx context.Context, counts []dayCount) error {
	type work struct {
		first int // index of its first day
		days  []dayCount
		done  bool
	}
	var aliases []*work
	byAlias := map[string]*work{}
	for i, c := range counts {
		w := byAlias[c.alias]
		if w == nil {
			w = &work{first: i}
			byAlias[c.alias] = w
			aliases = append(aliases, w)
		}
		w.days = append(w.days, c)
	}
	all, going := errgroup.WithContext(ctx)
	all.SetLimit(rollUpConcurrency)
	for _, w := range aliases {
		all.Go(func() error {
			err := going.Err()
			if err == nil {
				err = table.Safely(func() error { return r.addTo(ctx, w.days) })
			}
			w.done = err == nil
			return err
		})
	}
	err := all.Wait()
	done := len(counts)
	for _, w := range aliases {
		if !w.done {
			done = w.first // aliases are in the order of their first days
			break
		}
	}
	if done == 0 {
		return err
	}
	return errors.Join(err, r.advance(ctx, counts[done-1].last))
}

// addTo adds days of one alias to its totals, unless it has no link.
func (r *rollingUp) addTo(ctx context.Context, days []dayCount) error {
	if days[0].alias == clicks.All {
		_, err := r.addAll(ctx, days, "")
		return err
	}
	a, ok := link.ParseAlias(days[0].alias)
	if !ok {
		return nil // another program's row
	}
	l, err := r.c.links.get(ctx, a)
	switch {
	case errors.Is(err, link.ErrNotFound):
		return r.c.dropTotals(ctx, a) // of a roll-up that was killed when the link went
	case err != nil && !decided(err):
		return err
	case l.GoneReason != link.StateLive:
		return nil
	}
	countedFrom := dayCounted(l.Link)
	inserted, err := r.addAll(ctx, days, countedFrom)
	if err != nil || !inserted {
		return err
	}
	// The reaper may have been about to remove the link, and have found no totals.
	l, err = r.c.links.get(ctx, a)
	switch {
	case err != nil && !decided(err):
		return err
	case errors.Is(err, link.ErrNotFound), l.GoneReason != link.StateLive,
		dayCounted(l.Link) != countedFrom:
		return r.c.dropTotals(ctx, a)
	}
	return nil
}

// dayCounted returns the first day whose clicks are a link's own, "" for all. Of a damaged row it
// is "".
func dayCounted(l link.Link) string {
	if l.CountedFrom.IsZero() {
		return ""
	}
	return clicks.DayOf(l.CountedFrom).String()
}

// addAll adds the days that are not in the totals yet, from countedFrom on. Inserted: there may
// have been no totals before.
func (r *rollingUp) addAll(ctx context.Context, days []dayCount, countedFrom string) (inserted bool,
	err error) {
	alias := days[0].alias
	for range rollUpTries {
		t, etag, err := r.c.readTotals(ctx, alias)
		if errors.Is(err, link.ErrDamaged) {
			r.leaveOut(linkPartition(link.Alias(alias)), alias, err)
			return false, nil
		} else if err != nil && !errors.Is(err, table.ErrGone) {
			return inserted, err
		}
		if !t.of(countedFrom) {
			if t.CountedFrom > countedFrom {
				return inserted, nil // the alias is another link's by now
			}
			t = totalsEntity{} // of an earlier link
		}
		total, added := t.total(), int64(0)
		for _, d := range days {
			if d.day > t.Through && d.day >= countedFrom {
				total.Add(d.total)
				t.Through = d.day
				added++
			}
		}
		if added == 0 {
			return inserted, nil
		}
		t.totalEntity = newTotalEntity(linkPartition(link.Alias(alias)), alias, total)
		if countedFrom != "" {
			t.CountedFrom = countedFrom
		}
		inserted = inserted || etag == ""
		if _, _, err = r.c.totals.replace(ctx, encode(t), etag); err == nil {
			r.added.Add(added)
			return inserted, nil
		}
		if !errors.Is(err, table.ErrChanged) {
			return inserted, err
		}
		// Another process was faster, or an earlier try of this very call: the totals tell.
	}
	return inserted, fmt.Errorf("the totals of %s: %w", alias, table.ErrChanged)
}

// readTotals reads the totals of an alias. table.ErrGone: there are none, so the ETag is "". Error:
// link.ErrDamaged.
func (c *Clicks) readTotals(ctx context.Context, alias string) (t totalsEntity, etag table.ETag,
	err error) {
	data, etag, err := c.totals.get(ctx, linkPartition(link.Alias(alias)), alias)
	if err != nil {
		return t, "", err
	}
	if t, err = decodeTotals(data); err != nil {
		return t, etag, fmt.Errorf("the totals of %s: %w: %w", alias, link.ErrDamaged, err)
	}
	return t, etag, nil
}

// decodeTotals reads a row of ShortUrlsClickTotals.
func decodeTotals(data []byte) (t totalsEntity, err error) {
	if err = t.decode(data); err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		return totalsEntity{}, err
	}
	return t, nil
}

// decode reads what all rows of clicks have.
func (e *totalEntity) decode(data []byte) error {
	err := json.Unmarshal(data, e)
	// the latter could not be written again
	if err == nil && (e.Clicks < 0 || e.Bots < 0 || e.LastAt.UTC().Year() > 9999) {
		err = link.ErrDamaged
	}
	return err
}

// dropTotals deletes the totals of an alias, unless they are those of its link. An insert of totals
// is followed by a look whether the link is still there, so that none are left of a link that is
// gone.
func (c *Clicks) dropTotals(ctx context.Context, a link.Alias) error {
	t, etag, err := c.readTotals(ctx, string(a))
	if errors.Is(err, table.ErrGone) {
		return nil
	} else if err != nil && !errors.Is(err, link.ErrDamaged) {
		return err
	}
	// After the totals: those of a link that was made since are inserted later, and have another
	// ETag.
	l, err := c.links.get(ctx, a)
	switch {
	case err != nil && !decided(err):
		return err
	case !errors.Is(err, link.ErrNotFound) && l.GoneReason == link.StateLive &&
		t.of(dayCounted(l.Link)):
		return nil
	}
	return c.totals.delete(ctx, rowKey{linkPartition(a), string(a), etag})
}
