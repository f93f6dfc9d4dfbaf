package storage

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"tiney/internal/link"
	"tiney/storage/counts"
	"tiney/storage/table"
)

// Here is what a check finds right in each table.

// changesLate is the age at which the reaper must have deleted an announcement and the row of a
// revoked key. Only complete runs delete them.
const changesLate = 2 * changesKept

func wrongLink(r table.Listed) string {
	a, ok := link.ParseName(r.Row)
	switch {
	case !ok:
		return "its RowKey is no alias"
	case r.Partition != linkPartition(a):
		return "it is not in the partition of its alias, so nobody finds it"
	}
	if _, err := decodeLink(r.Data, a, ""); err != nil {
		return "it is no link: no long URL, or a value of the wrong type"
	}
	return ""
}

// readLinks collects which rows must be there for the links.
func (c *checking) readLinks(ctx context.Context) error {
	var live prints // index keys of live links, once for each link
	err := c.scan(ctx, c.s.links.rows, linkProperties(), func(r table.Listed) bool {
		a := link.Name(r.Row)
		if r.Partition == linkPartition(a) {
			c.aliases.add(c.print(r.Row))
		}
		if wrongLink(r) != "" {
			return false
		}
		l, _ := decodeLink(r.Data, a, "")
		if c.config.Link != nil {
			c.config.Link(l.Link)
		}
		rows := c.s.rowsOf(l.Link)
		if rows.index != "" {
			c.indexed.add(c.print(r.Row, rows.index))
		}
		if l.State(c.now).LiveOrScheduled() {
			live.add(c.print(rows.index))
		}
		if rows.listed.Row != "" {
			c.owned.add(c.print(rows.listed.Partition, rows.listed.Row))
		}
		return false
	}, nil)
	sorted(c.aliases, c.indexed, c.owned, live)
	for i := range live {
		if i > 0 && live[i] == live[i-1] {
			c.done.Twins++
		}
	}
	return err
}

// checkLinks checks that each link has the rows that it needs, once those were read.
func (c *checking) checkLinks(ctx context.Context) error {
	linkOf := func(r table.Listed) linkRow {
		l, _ := decodeLink(r.Data, link.Name(r.Row), r.ETag)
		return l
	}
	err := c.check(ctx, rule{table: c.s.links.rows, properties: linkProperties(),
		wrong: wrongLink, damaged: LinkDamaged,
		fits: func(r table.Listed) bool {
			l := linkOf(r)
			return c.ends(l) && c.isListed(l) && !c.notEnded(l)
		},
		recheck: func(ctx context.Context, r table.Listed) error {
			return c.recheckLink(ctx, linkOf(r))
		},
	})
	c.expiries, c.ending, c.listed = nil, nil, nil
	return err
}

// ends reports whether a reaper will look at a link when its time is over. The expiry row of a
// deleted link or a tombstone may be for another time than its end, since the settings may have
// changed after it was written. That of a link that was over when it was imported is for a minute
// later, and that of a link that is used up for two. A reaper that comes too early adds the right
// row. The row for the end that a deleted or used up link would have had does not count if it is
// later.
func (c *checking) ends(l linkRow) bool {
	end := c.s.end(l.Link)
	if end.IsZero() || c.expiries.has(c.print(expiryKey(end, l.Name))) {
		return true
	}
	if l.DeletedAt.IsZero() && l.GoneReason == link.StateLive && !l.UsedUp() && end.After(c.now) {
		return false
	}
	rows := c.ending.count(c.print(string(l.Name)))
	for _, other := range []time.Time{l.ExpiresAt, l.EndKept} {
		// The row of the last opening may be that of the kept end, too.
		late := other.After(end) && (!other.Equal(l.EndKept) || other.After(end.Add(2*guardAfter)))
		if late && c.expiries.has(c.print(expiryKey(other, l.Name))) {
			rows--
		}
	}
	return rows > 0
}

// notEnded reports whether a link is used up and has not ended. The clock of who has opened it may
// have been ahead.
func (c *checking) notEnded(l linkRow) bool {
	return l.UsedUp() && (l.ExpiresAt.IsZero() || l.ExpiresAt.After(c.now.Add(guardAfter)))
}

// isListed reports whether its owner's list has a link. It is also true if the link has no owner,
// or if a reaper is about to look at the link.
func (c *checking) isListed(l linkRow) bool {
	row := c.s.rowsOf(l.Link).listed
	return row.Row == "" || c.listed.has(c.print(row.Partition, row.Row)) ||
		c.due.has(c.print(string(l.Name)))
}

func (c *checking) recheckLink(ctx context.Context, l linkRow) error {
	row := table.Key{Partition: linkPartition(l.Name), Row: string(l.Name), ETag: l.etag}
	rows := c.s.rowsOf(l.Link)
	// needs reports the link if it lacks a row.
	needs := func(t *table.Store, needed table.Key, damage Damage, detail string,
		repair func(context.Context) error) error {
		_, _, err := t.Get(ctx, needed.Partition, needed.Row)
		if !errors.Is(err, table.ErrGone) {
			return err
		}
		now, there, _, err := c.link(ctx, l.Name)
		if err != nil || !there || now.etag != l.etag {
			return err // the link was ended or edited between the two reads
		}
		return c.found(ctx, damage, c.s.links.rows, row, repair, "%s", detail)
	}
	if !c.ends(l) {
		partition, key := expiryKey(rows.end, l.Name)
		if err := needs(c.s.expiry.rows, table.Key{Partition: partition, Row: key},
			LinkWithoutExpiry, "it has no expiry row for its end, "+rows.end.Format(time.RFC3339),
			func(ctx context.Context) error {
				// If the link has another end by now, the reaper drops the row.
				_, err := c.s.expiry.put(ctx, rows.end, l.Name)
				return err
			}); err != nil {
			return err
		}
	}
	if !c.isListed(l) {
		if err := needs(c.s.owners.rows, rows.listed, LinkNotListed, "its owner's list lacks it",
			func(ctx context.Context) error {
				return c.s.owners.put(ctx, rows.listed, l.createID)
			}); err != nil {
			return err
		}
	}
	if !c.notEnded(l) {
		return nil
	}
	return c.found(ctx, LinkNotEnded, c.s.links.rows, row, func(ctx context.Context) error {
		return c.s.endUsedUp(ctx, l)
	}, "it was opened as often as it may be, and has not ended")
}

// endUsedUp ends a link that is used up, as its last opening should have done.
func (s *Links) endUsedUp(ctx context.Context, l linkRow) error {
	next, err := l, error(nil)
	next.EndUsedUp(s.config.Now())
	if next.openID, err = s.config.newID(); err != nil {
		return err
	}
	if _, err := s.expiry.put(ctx, s.soon(guardAfter), l.Name); err != nil {
		return err
	}
	again, err := s.links.open(ctx, l.etag, next)
	if again && errors.Is(err, table.ErrChanged) {
		err = s.tell(ctx, l, next)
	}
	return err
}

func wrongIndex(r table.Listed) string {
	if len(r.Row) != hashLength || strings.Trim(r.Row, "0123456789abcdef") != "" ||
		r.Partition != indexPartition(r.Row) {
		return "its keys are not those of a hash, so nobody finds it"
	}
	return ""
}

func indexedAlias(r table.Listed) string {
	var e indexEntity
	_ = json.Unmarshal(r.Data, &e) // a row that does not parse names no alias
	return e.Alias
}

func (c *checking) checkIndex(ctx context.Context) error {
	err := c.check(ctx, rule{table: c.s.index.rows,
		properties: []string{"PartitionKey", "RowKey", "Timestamp", "Alias"},
		wrong:      wrongIndex, damaged: IndexDamaged,
		fits: func(r table.Listed) bool {
			print := c.print(indexedAlias(r), r.Row)
			return c.indexed.has(print) || c.guards.has(print)
		}, recheck: c.recheckIndex})
	c.indexed, c.guards = nil, nil
	return err
}

func (c *checking) recheckIndex(ctx context.Context, r table.Listed) error {
	t := c.s.index.rows
	a, ok := link.ParseName(indexedAlias(r))
	if !ok {
		return c.found(ctx, IndexWithoutLink, t, r.Key, drop(t, r), "it names no alias")
	}
	l, there, judge, err := c.link(ctx, a)
	remove := func(ctx context.Context) error {
		if err := drop(t, r)(ctx); err != nil {
			return err
		}
		// An edit may have given the link this URL just before, and have relied on the row.
		now, err := c.s.read(ctx, a)
		if err == nil && now.DeletedAt.IsZero() && indexKey(now.Link) == r.Row {
			return c.s.claimGuarded(ctx, now.Link)
		}
		if decided(err) {
			err = nil
		}
		return err
	}
	switch {
	case !judge:
		return err
	case !there || l.GoneReason != link.StateLive:
		return c.found(ctx, IndexWithoutLink, t, r.Key, remove,
			"it names %s, and there is no such link", a)
	case indexKey(l.Link) != r.Row:
		return c.found(ctx, IndexOfAnother, t, r.Key, remove,
			"it names %s, a link of another URL or owner", a)
	}
	return nil
}

// readExpiry reads an expiry row.
func readExpiry(r table.Listed) expiryRow {
	e := decodeExpired([][]byte{r.Data})[0]
	e.Key = r.Key
	return e
}

func wrongExpiry(r table.Listed) string {
	e := readExpiry(r)
	a, ok := link.ParseName(string(e.alias))
	partition, key := expiryKey(e.expiresAt, a)
	switch {
	case !ok:
		return "it names no alias, and makes each run of the reaper fail once it is due"
	case e.expiresAt.IsZero():
		return "it has no time, and makes each run of the reaper fail once its key is due"
	case r.Partition != partition || r.Row != key:
		return "its keys are not those of its time and alias"
	}
	return ""
}

func (c *checking) checkExpiry(ctx context.Context) error {
	t := c.s.expiry.rows
	err := c.check(ctx, rule{table: t, wrong: wrongExpiry, damaged: ExpiryDamaged,
		note: c.noteExpiry,
		fits: func(r table.Listed) bool {
			e := readExpiry(r)
			byNow := c.now // rows that are due are left to the reaper
			if len(e.keys) > 0 {
				// The link of a guard may have ended, or its create have been undone.
				byNow = byNow.Add(lookAgainAfter)
			}
			return !e.expiresAt.After(byNow) || c.aliases.has(c.print(string(e.alias)))
		},
		recheck: func(ctx context.Context, r table.Listed) error {
			d, reaping := &dueRow{expiryRow: readExpiry(r)}, &reaping{s: c.s}
			if _, there, _, err := c.link(ctx, d.alias); there || err != nil {
				return err
			}
			return c.found(ctx, ExpiryWithoutLink, t, r.Key, func(ctx context.Context) error {
				seen, err := reaping.readGuarded(ctx, d)
				if err == nil {
					err = reaping.dropStale(ctx, d, seen)
				}
				if err == nil {
					err = c.s.Clicks.Drop(ctx, d.alias)
				}
				if err != nil {
					return err
				}
				return c.s.expiry.rows.Delete(ctx, d.Key)
			}, "there is no link %s", d.alias)
		}})
	sorted(c.expiries, c.ending, c.guards, c.due)
	return err
}

func (c *checking) noteExpiry(r table.Listed) {
	e := readExpiry(r)
	c.expiries.add(c.print(r.Partition, r.Row))
	c.ending.add(c.print(string(e.alias)))
	for _, key := range e.keys {
		c.guards.add(c.print(string(e.alias), key))
	}
	if wrongExpiry(r) != "" {
		return
	}
	if !e.expiresAt.After(c.now) {
		c.due.add(c.print(string(e.alias)))
	}
	if !e.expiresAt.After(c.now.Add(-c.s.config.Reap.Buffer)) {
		c.done.Overdue++
		if c.done.OldestDue.IsZero() || e.expiresAt.Before(c.done.OldestDue) {
			c.done.OldestDue = e.expiresAt
		}
	}
}

func (c *checking) checkOwners(ctx context.Context) error {
	err := c.check(ctx, rule{table: c.s.owners.rows,
		properties: []string{"PartitionKey", "RowKey", "Timestamp"},
		wrong:      func(table.Listed) string { return "" },
		note:       func(r table.Listed) { c.listed.add(c.print(r.Partition, r.Row)) },
		fits: func(r table.Listed) bool {
			// A younger row may belong to a create or a transfer that stands still.
			young := c.config.MinAge > 0 && r.WrittenAt.After(c.now.Add(-strayAfter))
			return young || c.owned.has(c.print(r.Partition, r.Row))
		}, recheck: c.recheckOwner})
	sorted(c.listed)
	c.owned = nil
	return err
}

func (c *checking) recheckOwner(ctx context.Context, r table.Listed) error {
	t := c.s.owners.rows
	if a, ok := listedName(r.Row); ok {
		l, there, judge, err := c.link(ctx, a)
		listed := c.s.rowsOf(l.Link).listed
		if !judge || there && listed.Partition == r.Partition && listed.Row == r.Row {
			return err
		}
	}
	repair := drop(t, r)
	if len(r.Partition) != len(ownerPartition("")) {
		repair = nil // another program's row
	}
	return c.found(ctx, ListedWithoutLink, t, r.Key, repair,
		"no link of this owner belongs to it")
}

// checkCounts checks the tables of counts. Totals and months of a link that has just ended are left
// to the reaper.
func (c *checking) checkCounts(ctx context.Context) error {
	all, err := c.s.Clicks.Checked(ctx, c.now)
	for _, t := range all {
		if err == nil && t.Old != "" {
			err = c.found(ctx, ClicksOld, t.Rows, table.Key{}, nil, "%s", t.Old)
		}
		if err == nil {
			damages := countsDamages[t.Kind]
			err = c.check(ctx, rule{table: t.Rows, wrong: t.Wrong, damaged: damages.damaged,
				fits: func(r table.Listed) bool {
					return damages.withoutLink == "" || counts.OfSeveral(r.Row) ||
						c.aliases.has(c.print(r.Row)) || c.due.has(c.print(r.Row))
				},
				recheck: func(ctx context.Context, r table.Listed) error {
					if _, there, _, err := c.link(ctx, link.Name(r.Row)); there || err != nil {
						return err
					}
					return c.found(ctx, damages.withoutLink, t.Rows, r.Key, drop(t.Rows, r),
						"there is no such link")
				}})
		}
		if errors.Is(err, table.ErrNoTable) { // a roll-up has dropped it meanwhile
			err = nil
		}
	}
	c.aliases, c.due = nil, nil
	return err
}

// countsDamages are the damages of tables of counts. The rows of a day need no link.
var countsDamages = map[counts.Kind]struct{ damaged, withoutLink Damage }{
	counts.Totals: {TotalsDamaged, TotalsWithoutLink},
	counts.Months: {MonthDamaged, MonthWithoutLink},
	counts.Days:   {ClicksDamaged, ""},
}

func wrongKey(r table.Listed) string {
	if len(r.Row) != hashLength || r.Partition != keysPartition {
		return "its keys are not those of a hash, so nobody finds it"
	}
	if key, revoked := decodeKey(r.Data, r.Row); key.Owner == "" && revoked.IsZero() {
		return "it has no owner, so nobody can use the key"
	}
	return ""
}

func (c *checking) checkKeys(ctx context.Context) error {
	t := c.s.Keys.rows
	return c.check(ctx, rule{table: t, wrong: wrongKey, damaged: KeyDamaged,
		fits: func(r table.Listed) bool {
			_, revoked := decodeKey(r.Data, r.Row)
			return revoked.IsZero() || revoked.After(c.now.Add(-changesLate))
		},
		recheck: func(ctx context.Context, r table.Listed) error {
			return c.found(ctx, KeyRevoked, t, r.Key, drop(t, r),
				"it only keeps the place of a revoked key")
		}})
}

func (c *checking) checkState(ctx context.Context) error {
	changes := changesPrefix + c.now.Add(-changesLate).UTC().Format(changesMinute)
	t := c.s.state
	return c.check(ctx, rule{table: t, wrong: wrongState, damaged: StateDamaged,
		fits: func(r table.Listed) bool {
			return !counts.KeyIsOld(r.Partition, c.now) &&
				(!strings.HasPrefix(r.Partition, changesPrefix) || r.Partition >= changes)
		},
		recheck: func(ctx context.Context, r table.Listed) error {
			damage, detail := ChangeOld, "no process needs it any more"
			if counts.KeyIsOld(r.Partition, c.now) {
				damage, detail = VisitorKeyOld,
					"the visitor key of a past day could still identify visitors"
			}
			return c.found(ctx, damage, t, r.Key, drop(t, r), "%s", detail)
		}})
}

func wrongState(r table.Listed) string {
	var err error
	switch r.Partition {
	case reapsPartition:
		err = json.Unmarshal(r.Data, &reapsEntity{})
	case blockedPartition:
		err = json.Unmarshal(r.Data, &blockedEntity{})
	}
	if err != nil || counts.WrongState(r) {
		return "it has a value that is no number, time or day"
	}
	return ""
}
