package storage

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"tiney/internal/link"
	"tiney/storage/concurrent"
	"tiney/storage/table"
)

// Damage is a kind of damage that Check finds. docs/operations.md says what each kind means, what a
// repair does, and what harm the damage does.
type Damage string

// The kinds of damage. A link may also be a deleted one or a tombstone.
const (
	LinkWithoutExpiry Damage = "link-without-expiry"
	LinkNotListed     Damage = "link-not-listed"
	LinkNotEnded      Damage = "link-not-ended"
	LinkDamaged       Damage = "link-damaged"
	IndexWithoutLink  Damage = "index-without-link"
	IndexOfAnother    Damage = "index-of-another-link"
	IndexDamaged      Damage = "index-damaged"
	ExpiryWithoutLink Damage = "expiry-without-link"
	ExpiryDamaged     Damage = "expiry-damaged"
	ListedWithoutLink Damage = "listed-without-link"
	KeyDamaged        Damage = "key-damaged"
	KeyRevoked        Damage = "key-revoked"
	ChangeOld         Damage = "change-old"
	VisitorKeyOld     Damage = "visitor-key-old"
	StateDamaged      Damage = "state-damaged"
	ClicksOld         Damage = "clicks-old"
	ClicksDamaged     Damage = "clicks-damaged"
	TotalsWithoutLink Damage = "totals-without-link"
	TotalsDamaged     Damage = "totals-damaged"
	MonthWithoutLink  Damage = "month-without-link"
	MonthDamaged      Damage = "month-damaged"
)

// CheckConfig says what Check does.
type CheckConfig struct {
	Repair bool
	// MinAge is the age at which a row is judged, by the clock of the storage service. A younger
	// one may be part of an operation that is under way. Zero judges all rows, which is right while
	// no process writes.
	MinAge time.Duration
	Found  func(Finding)                  // is called with each finding, one call at a time
	Read   func(table string, rows int64) // is called with the rows read of a table; may be nil
	// Link is called with each link and tombstone that can be read, one call of it or of Found at a
	// time. May be nil.
	Link func(link.Link)
}

// Finding is a damaged row.
type Finding struct {
	Damage                Damage
	Table, Partition, Row string
	Detail                string // for people; quotes no long URL
	Mended                bool   // by a repair
	// why a repair failed; nil if none was tried
	Err error
}

// CheckResult sums up a check.
type CheckResult struct {
	Rows map[string]int64 // of each table, by its name
	// rows that looked damaged, but were not judged: they, or the rows they belong to, were younger
	// than MinAge
	Young                 int64
	Found, Mended, Failed int64
	// Strays is how many of Found are left to the next lists of their owners.
	Strays int64
	// Overdue is the number of expiry rows that are due and that no reaper has handled yet.
	// OldestDue is when the first of them was due.
	Overdue   int64
	OldestDue time.Time
	// Twins is the number of live links beside another one of the same URL and owner. That is no
	// damage: one of them may have a chosen alias, or come from a create that broke off before it
	// responded. No row says which.
	Twins int64
}

// Check reads all tables. It finds rows that break a promise, which no crash may leave, and rows
// that a crash leaves to the reaper or to lists. It may repair them while other processes serve,
// edit and reap: it reads once more what looks damaged, and each of its writes carries the ETag of
// that reading, or adds a row that does no harm if it is not needed. So it may be stopped at any
// point.
//
// It keeps only fingerprints of 8 bytes of what it reads, at most 8 for each link.
//
// Errors: link.ErrUnavailable, or the cause of the end of ctx, both with what was found until then.
// The text of the error says if a table is missing, which Check does not create.
func (s *Links) Check(ctx context.Context, config CheckConfig) (CheckResult, error) {
	if err := s.tablesExist(ctx); err != nil {
		return CheckResult{}, err
	}
	now, err := s.reapTime(ctx)
	if err != nil {
		return CheckResult{}, err
	}
	c := &checking{s: s, config: config, now: now, seed: maphash.MakeSeed(),
		done: CheckResult{Rows: map[string]int64{}}}
	for _, step := range []func(context.Context) error{c.readLinks, c.checkExpiry, c.checkOwners,
		c.checkLinks, c.checkIndex, c.checkCounts, c.checkKeys, c.checkState} {
		if err = step(ctx); err != nil {
			break
		}
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return c.done, err
}

func (s *Links) tablesExist(ctx context.Context) error {
	var mu sync.Mutex
	var missing []string
	err := s.eachTable(ctx, -1, func(t *table.Store, ctx context.Context) error {
		err := t.Reading().List(ctx, table.Query{PageSize: 1},
			func([][]byte) error { return table.ErrEnough })
		if errors.Is(err, table.ErrNoTable) {
			mu.Lock()
			defer mu.Unlock()
			missing = append(missing, t.Table.Name())
			return nil
		}
		return err
	})
	if err == nil && missing != nil {
		slices.Sort(missing)
		err = fmt.Errorf("these tables do not exist: %s. Look at the settings that name them; a "+
			"start of the service makes what is missing",
			strings.Join(missing, ", "))
	}
	return err
}

// checking is one Check at work.
type checking struct {
	s      *Links
	config CheckConfig
	now    time.Time
	seed   maphash.Seed

	aliases  prints // of links
	indexed  prints // aliases of links with their index keys
	owned    prints // keys of rows that owners' lists must have
	expiries prints // keys of expiry rows
	due      prints // aliases of expiry rows that are due
	ending   prints // aliases of expiry rows, once for each row
	guards   prints // aliases with the index keys of their guards
	listed   prints // keys of rows of owners' lists

	mu   sync.Mutex
	done CheckResult
}

// prints is a multiset of fingerprints. It must be sorted between the last add and the first has or
// count.
type prints []uint64

func sorted(all ...prints) {
	for _, p := range all {
		slices.Sort(p)
	}
}

func (p *prints) add(print uint64)     { *p = append(*p, print) }
func (p prints) has(print uint64) bool { _, ok := slices.BinarySearch(p, print); return ok }

// count returns how often a fingerprint was added.
func (p prints) count(print uint64) (n int) {
	for i, _ := slices.BinarySearch(p, print); i < len(p) && p[i] == print; i++ {
		n++
	}
	return n
}

// print returns the fingerprint of some texts. Where two fingerprints are the same, damage is
// overlooked: the chance is the number of rows in 2^64. None is made up, since a row that is
// missing among the prints is looked up in its table.
func (c *checking) print(texts ...string) uint64 {
	var h maphash.Hash
	h.SetSeed(c.seed)
	for _, text := range texts {
		h.WriteString(text)
		h.WriteByte(0)
	}
	return h.Sum64()
}

// rule says what is right in a table.
type rule struct {
	table      *table.Store
	properties []string // that are read of each row; none: all
	// wrong says what is wrong with a row in itself, which is then damaged. It cannot be repaired,
	// since its right content is unknown.
	wrong   func(table.Listed) string
	damaged Damage
	note    func(table.Listed) // is called once with each row; may be nil
	// fits reports whether a row fits to the others that were read. If not, the row is read again,
	// and recheck reports what is wrong by what the tables say now. Both may be nil.
	fits    func(table.Listed) bool
	recheck func(context.Context, table.Listed) error
}

// check reads a table, and reports the rows that break its rule.
func (c *checking) check(ctx context.Context, rule rule) error {
	suspicious := func(r table.Listed) bool {
		if rule.note != nil {
			rule.note(r)
		}
		return rule.wrong(r) != "" || rule.fits != nil && !rule.fits(r) && c.old(r)
	}
	return c.scan(ctx, rule.table, rule.properties, suspicious, func(ctx context.Context,
		r table.Listed) error {
		data, etag, err := rule.table.Get(ctx, r.Partition, r.Row)
		if err != nil {
			if errors.Is(err, table.ErrGone) {
				err = nil
			}
			return err
		}
		rows, err := rule.table.Decode([][]byte{data})
		if err != nil {
			return err
		}
		r = rows[0]
		r.ETag = etag
		switch what := rule.wrong(r); {
		case !c.old(r):
			return nil
		case what != "":
			return c.found(ctx, rule.damaged, rule.table, r.Key, nil, "%s", what)
		case rule.fits != nil && !rule.fits(r):
			return rule.recheck(ctx, r)
		}
		return nil
	})
}

// scan reads a table, with the named properties, or all if there are none. It calls look for each
// row that see returns true for.
func (c *checking) scan(ctx context.Context, t *table.Store, properties []string,
	see func(table.Listed) bool, look func(context.Context, table.Listed) error) error {
	rows := int64(0)
	defer func() { c.done.Rows[t.Table.Name()] = rows }() // set, not added: links are read twice
	return t.Table.List(ctx, table.Query{Properties: properties}, func(listed [][]byte) error {
		page, err := t.Decode(listed)
		if err != nil {
			return err
		}
		all, looking := errgroup.WithContext(ctx)
		all.SetLimit(concurrent.InBackground)
		for _, r := range page {
			if see(r) {
				all.Go(func() error {
					return concurrent.Safely(func() error { return look(looking, r) })
				})
			}
		}
		err = all.Wait()
		if rows += int64(len(page)); c.config.Read != nil {
			c.config.Read(t.Table.Name(), rows)
		}
		return err
	})
}

// old reports whether a row may be judged, and counts it if not.
func (c *checking) old(r table.Listed) bool {
	if c.config.MinAge == 0 || r.WrittenAt.Before(c.now.Add(-c.config.MinAge)) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done.Young++
	return false
}

// link reads a link that seems to be damaged, or to which such a row leads. there reports whether
// it exists, and judge whether that and what it says may be judged.
func (c *checking) link(ctx context.Context, a link.Name) (l linkRow, there, judge bool,
	err error) {
	data, etag, err := c.s.links.rows.Get(ctx, linkPartition(a), string(a))
	if errors.Is(err, table.ErrGone) {
		return l, false, true, nil
	}
	if err != nil {
		return l, false, false, err
	}
	if l, err = decodeLink(data, a, etag); err != nil {
		return l, true, false, nil // a damaged link does not say which rows belong to it
	}
	rows, err := c.s.links.rows.Decode([][]byte{data})
	return l, true, err == nil && c.old(rows[0]), err
}

var errMeanwhile = errors.New("another process has changed it meanwhile; check again")

// found reports a damaged row, and repairs it if the config says so and repair is not nil. It
// returns only the error of ctx.
func (c *checking) found(ctx context.Context, damage Damage, t *table.Store, row table.Key,
	repair func(context.Context) error, detail string, args ...any) error {
	f := Finding{Damage: damage, Table: t.Table.Name(), Partition: row.Partition, Row: row.Row,
		Detail: fmt.Sprintf(detail, args...)}
	if c.config.Repair && repair != nil {
		if f.Err = repair(ctx); errors.Is(f.Err, table.ErrChanged) {
			f.Err = errMeanwhile
		}
		f.Mended = f.Err == nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done.Found++
	if f.Mended {
		c.done.Mended++
	}
	if f.Err != nil {
		c.done.Failed++
	}
	if damage == ListedWithoutLink && repair != nil && !f.Mended && f.Err == nil {
		c.done.Strays++
	}
	c.config.Found(f)
	return ctx.Err()
}

// drop returns the repair that deletes a row as it was read.
func drop(t *table.Store, r table.Listed) func(context.Context) error {
	return func(ctx context.Context) error { return t.Delete(ctx, r.Key) }
}
