package memtable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/tabletest"
	"tiney/storage/memtable"
	"tiney/storage/table"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	service := memtable.New(time.Now)
	tabletest.Conform(t, service.Table, "Conform")
}

func TestConformanceWithSlowDrops(t *testing.T) {
	t.Parallel()
	service := memtable.New(time.Now)
	service.DropTakes = 100 * time.Millisecond
	tabletest.Conform(t, service.Table, "Conform")
}

func TestDropTakes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	service := memtable.New(func() time.Time { return now })
	service.DropTakes = time.Minute
	rows := service.Table("Rows")
	for range 2 {
		if err := errors.Join(rows.Drop(t.Context()), rows.Create(t.Context()),
			rows.Drop(t.Context())); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute - 1)
		if err := rows.Drop(t.Context()); err != nil { // again, which changes nothing
			t.Error(err)
		}
		if err := rows.Create(t.Context()); !errors.Is(err, link.ErrUnavailable) ||
			errors.Is(err, table.ErrNoTable) {
			t.Errorf("created too early: %v", err)
		}
		if _, _, err := rows.Get(t.Context(), "a", "b"); !errors.Is(err, table.ErrNoTable) {
			t.Errorf("got %v", err)
		}
		now = now.Add(1)
	}
}

func newTable(t *testing.T) *memtable.Table {
	t.Helper()
	rows := memtable.New(time.Now).Table("Rows").(*memtable.Table)
	if err := rows.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	return rows
}

// row returns a row with these members besides its keys.
func row(partition, key, members string) []byte {
	if members != "" {
		members = "," + members
	}
	return fmt.Appendf(nil, `{"PartitionKey":%q,"RowKey":%q%s}`, partition, key, members)
}

// What Azure refuses and Azurite takes, or the other way round.
func TestRefused(t *testing.T) {
	t.Parallel()
	rows := newTable(t)
	many := func(count int) string {
		var all []string
		for i := range count {
			all = append(all, fmt.Sprintf(`"P%d":%d`, i, i))
		}
		return strings.Join(all, ",")
	}
	for members, fits := range map[string]bool{
		`"P":"9007199254740993","P@odata.type":"Edm.Int64"`:        true,
		`"P":"x","P@odata.type":"Edm.Int64"`:                       false,
		`"P":7,"P@odata.type":"Edm.Int64"`:                         false,
		`"P":"1601-01-01T00:00:00Z","P@odata.type":"Edm.DateTime"`: true,
		`"P":"1600-12-31T00:00:00Z","P@odata.type":"Edm.DateTime"`: false,
		`"P":"soon","P@odata.type":"Edm.DateTime"`:                 false,
		`"P":"AA==","P@odata.type":"Edm.Binary"`:                   true,
		`"P":"!!","P@odata.type":"Edm.Binary"`:                     false,
		`"P":"NaN","P@odata.type":"Edm.Double"`:                    true,
		`"P":"x","P@odata.type":"Edm.Other"`:                       false,
		`"P":"` + strings.Repeat("😀", 16<<10) + `"`:                true,
		`"P":"` + strings.Repeat("😀", 16<<10+1) + `"`:              false,
		`"P":"` + strings.Repeat(`\ud83d\ude00`, 16<<10) + `"`:     true,
		`"P":{}`:          false,
		`"P":[]`:          false,
		`"P":1,"P":2`:     false,
		`"a b":1`:         false,
		`"":1`:            false,
		`"P":1`:           true,
		many(252):         true,
		many(253):         false,
		`"P":"unfinished`: false,
	} {
		_, err := rows.Write(t.Context(), table.Write{Kind: table.Upsert, Row: row("a", "b", members)})
		if fits && err != nil || !fits && !errors.Is(err, link.ErrUnavailable) {
			t.Errorf("%.80s: %v", members, err)
		}
		if _, err := rows.Write(t.Context(), table.NewDelete("a", "b", table.Any)); err != nil {
			t.Fatal(err)
		}
	}

	wide := func(count int) string { // so many texts, whose characters take two bytes each
		var all []string
		for i := range count {
			all = append(all, fmt.Sprintf(`"P%d":%q`, i, strings.Repeat("x", 30_000)))
		}
		return strings.Join(all, ",")
	}
	upserts := func(count int, members string) (batch []table.Write) {
		for i := range count {
			batch = append(batch, table.Write{Kind: table.Upsert,
				Row: row("a", fmt.Sprint(i), members)})
		}
		return batch
	}
	for what, test := range map[string]struct {
		batch []table.Write
		fits  bool
	}{
		"nothing": {nil, false},
		"two partitions": {append(upserts(1, ""), table.Write{Kind: table.Upsert,
			Row: row("b", "b", "")}), false},
		"1 MB":             {upserts(1, wide(17)), true},
		"more than 1 MiB":  {upserts(1, wide(18)), false},
		"4 MB together":    {upserts(8, wide(17)), true},
		"more than 4 MiB":  {upserts(9, wide(17)), false},
		"a hundred rows":   {upserts(table.MaxBatch, ""), true},
		"one row too many": {upserts(table.MaxBatch+1, ""), false},
	} {
		_, err := rows.Batch(t.Context(), test.batch)
		if test.fits && err != nil || !test.fits && !errors.Is(err, link.ErrUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	err := rows.List(t.Context(), table.Query{PageSize: table.MaxPage +
		1}, func(page [][]byte) error {
		t.Errorf("%d rows", len(page))
		return nil
	})
	if !errors.Is(err, link.ErrUnavailable) {
		t.Errorf("a page that is too large: %v", err)
	}
}

// Rows come back as they were sent, even if the caller has changed the slices since.
func TestRowsAreKept(t *testing.T) {
	t.Parallel()
	rows := newTable(t)
	const members = `"Half":"x\ud83dy","Number":1e3,"Text":"\u003ca\u003e"` // in the order of names
	sent := row("a", "b", members)
	if _, err := rows.Write(t.Context(), table.Write{Row: sent}); err != nil {
		t.Fatal(err)
	}
	clear(sent)
	for range 2 {
		got, _, err := rows.Get(t.Context(), "a", "b")
		if err != nil || !strings.Contains(string(got), members) {
			t.Errorf("got %s, %v", got, err)
		}
		clear(got)
	}
}

// Writes in any order, compared with a map.
func TestOrder(t *testing.T) {
	t.Parallel()
	rows := newTable(t)
	random := rand.New(rand.NewPCG(1, 2))
	there := map[string]bool{}
	name := func() string { return fmt.Sprintf("%d/%04d", random.IntN(3), random.IntN(4000)) }
	check := func() {
		var want, got []string
		from, before := name(), name()
		partition, first, _ := strings.Cut(from, "/")
		_, last, _ := strings.Cut(before, "/")
		for key := range there {
			if key >= from && key < partition+"/"+last {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		q := table.Query{Range: table.Range{Partition: partition, From: first, Before: last},
			Properties: []string{"PartitionKey", "RowKey"}, PageSize: 1 +
				random.IntN(table.MaxPage)}
		err := rows.List(t.Context(), q, func(page [][]byte) error {
			for _, data := range page {
				var p, k string
				data = []byte(strings.NewReplacer(`"`, " ", ":", " ", ",",
					" ").Replace(string(data)))
				if _, err := fmt.Sscanf(string(data), "{ PartitionKey   %s   RowKey   %s }", &p,
					&k); err != nil {
					return err
				}
				got = append(got, p+"/"+k)
			}
			return nil
		})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%+v: got %d rows, %v, want %d", q, len(got), err, len(want))
		}
	}
	for i := range 30_000 {
		key := name()
		partition, k, _ := strings.Cut(key, "/")
		var err error
		if there[key] = i < 10_000 || random.IntN(3) == 0; there[key] { // more and more, then fewer
			_, err = rows.Write(t.Context(), table.Write{Kind: table.Upsert, Row: row(partition, k, "")})
		} else {
			_, err = rows.Write(t.Context(), table.NewDelete(partition, k, table.Any))
			delete(there, key)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%1000 == 0 {
			check()
		}
	}
}

// Of writers at once of the same row as it was read, one wins.
func TestConcurrentWrites(t *testing.T) {
	t.Parallel()
	rows := newTable(t)
	made, err := rows.Write(t.Context(), table.Write{Row: row("a", "b", "")})
	if err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 16)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			_, errs[i] = rows.Write(context.Background(), table.Write{Kind: table.Merge,
				Row: row("a", "b", ""), Read: made.ETag})
		})
	}
	all.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else if !errors.Is(err, table.ErrChanged) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d writers have won", won)
	}
}
