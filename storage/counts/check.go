package counts

import (
	"context"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"tiney/internal/clicks"
	"tiney/internal/link"
	"tiney/storage/table"
)

// Kind is a kind of tables of counts.
type Kind int

// The kinds of tables of counts.
const (
	Totals Kind = iota // one row for each name
	Months             // one row for each name
	Days               // a row for each name and process
)

// Checked is a table of counts, and what a check has to know of it.
type Checked struct {
	Kind Kind
	Rows *table.Store // in which nothing is created
	// Old says what is wrong if a roll-up should have dropped the table, else it is "".
	Old string
	// Wrong says what is wrong with a row in itself, or returns "".
	Wrong func(table.Listed) string
}

// late is how many days after its day a table must have been rolled up and dropped.
const late = 4

// Checked returns the tables of counts that are there. Error: link.ErrUnavailable.
func (c *Clicks) Checked(ctx context.Context, now time.Time) ([]Checked, error) {
	all := []Checked{{Totals, c.config.Totals, "", wrongTotals}}
	days, months, err := c.tables.names(ctx)
	for _, month := range months {
		t := Checked{Months, c.tables.month(month).Reading(), "", wrongMonth}
		if isOver(month, c.firstKept(now)-late) {
			t.Old = "its month is older than CLICKS_KEEP_DAYS, as this process has it"
		}
		all = append(all, t)
	}
	for _, day := range days {
		t := Checked{Days, c.tables.day(day).Reading(), "", wrongDay}
		if day < clicks.DayOf(now)-late {
			t.Old = "its day is not rolled up"
		}
		all = append(all, t)
	}
	return all, err
}

// OfSeveral reports whether a row of totals or of a month is that of an owner or of all links,
// whose counts have no end.
func OfSeveral(row string) bool { return subject{name: row}.several() }

// wrongPlace says what is wrong with the keys of a row of totals or of a month.
func wrongPlace(r table.Listed) string {
	if _, ok := link.ParseName(r.Row); !ok && !OfSeveral(r.Row) || r.Partition != hashOf(r.Row) {
		return "it is not in the place of a name, so nobody finds it"
	}
	return ""
}

func wrongTotals(r table.Listed) string {
	if _, err := decodeTotals(r.Data); err != nil {
		return "it has a value that is no number, or no time"
	}
	return wrongPlace(r)
}

func wrongMonth(r table.Listed) string {
	if _, err := decodeMonth(r.Data); err != nil {
		return "its counts cannot be read"
	}
	return wrongPlace(r)
}

func wrongDay(r table.Listed) string {
	group, name, ok := countName(r.Row)
	if !ok || r.Partition+group != hashOf(name) {
		return "it is not in the place of its name, so it is counted nowhere"
	}
	if _, _, err := decodeCount(r.Data); err != nil {
		return "its counts cannot be read"
	}
	return ""
}

// WrongState reports whether a row of the table of state is a damaged one of counts.
func WrongState(r table.Listed) bool {
	var progress rollUpProgress
	return r.Partition == rollUpPartition &&
		(json.Unmarshal(r.Data, &progress) != nil || !progress.sound())
}

// KeyIsOld reports whether a partition of the table of state has a visitors' key that a roll-up
// must have deleted. Only complete roll-ups delete them.
func KeyIsOld(partition string, now time.Time) bool {
	const age = 24*time.Hour + rollUpAfter + 24*time.Hour // since the day began
	return strings.HasPrefix(partition, keyPrefix) &&
		partition < keyPrefix+clicks.DayOf(now.Add(-age)).String()
}
