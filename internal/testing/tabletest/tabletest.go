// Package tabletest defines what every table.Table has to do: each rule of Azure Table storage
// that the product relies on. It runs against Azurite and against package memtable.
package tabletest

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"tiney/internal/link"
	"tiney/storage/table"
)

type suite struct {
	*testing.T
	open  func(name string) table.Table
	table table.Table
}

// row is a row on the wire.
type row map[string]any

func (r row) encode() []byte {
	data, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		panic(err)
	}
	return data
}

func newRow(partition, key string, properties ...any) row {
	r := row{"PartitionKey": partition, "RowKey": key}
	for i := 0; i < len(properties); i += 2 {
		r[properties[i].(string)] = properties[i+1]
	}
	return r
}

var tables atomic.Int64 // counts the tables of all suites

// Conform runs the suite on tables of its own, whose names begin with prefix.
func Conform(t *testing.T, open func(name string) table.Table, prefix string) {
	for _, test := range []struct {
		name string
		run  func(s *suite)
	}{
		{"a table is made and dropped", (*suite).tables},
		{"a missing table", (*suite).missing},
		{"insert", (*suite).insert},
		{"upsert", (*suite).upsert},
		{"replace and merge", (*suite).update},
		{"delete", (*suite).delete},
		{"values", (*suite).values},
		{"chosen properties", (*suite).properties},
		{"batches", (*suite).batch},
		{"ranges", (*suite).ranges},
		{"pages", (*suite).pages},
		{"rows written between pages", (*suite).between},
		{"keys", (*suite).keys},
		{"large rows", (*suite).large},
		{"the clock", (*suite).clock},
		{"an end of time", (*suite).ended},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := &suite{t, open, open(fmt.Sprintf("%s%05d", prefix, tables.Add(1)))}
			if err := s.table.Create(t.Context()); err != nil {
				t.Fatal(err)
			}
			test.run(s)
		})
	}
}

func (s *suite) ok(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// is fails the test unless the error is the wanted one; nil means none. Every error must also be
// link.ErrUnavailable.
func (s *suite) is(err, want error, what string) {
	s.Helper()
	if !errors.Is(err, want) || want != nil && !errors.Is(err, link.ErrUnavailable) {
		s.Errorf("%s: got %v, want %v", what, err, want)
	}
}

func (s *suite) put(r row) table.ETag {
	s.Helper()
	etag, err := s.write(table.Insert, r, "")
	if s.ok(err); etag == "" {
		s.Error("no ETag")
	}
	return etag
}

func (s *suite) write(kind table.Kind, r row, read table.ETag) (table.ETag, error) {
	s.Helper()
	w, err := s.table.Write(s.Context(), table.Write{Kind: kind, Row: r.encode(), Read: read})
	if w.Again {
		s.Error("it was sent more than once")
	}
	return w.ETag, err
}

func (s *suite) drop(partition, key string, read table.ETag) error {
	_, err := s.table.Write(s.Context(), table.NewDelete(partition, key, read))
	return err
}

// get returns a row and its ETag. It removes the properties that storage itself adds.
func (s *suite) get(partition, key string, properties ...string) (row, table.ETag) {
	s.Helper()
	data, etag, err := s.table.Get(s.Context(), partition, key, properties...)
	s.ok(err)
	return s.decode(data), etag
}

func (s *suite) decode(data []byte) row {
	s.Helper()
	var r row
	s.ok(json.Unmarshal(data, &r))
	for name, value := range r {
		if strings.HasPrefix(name, "odata.") || strings.HasPrefix(name, "Timestamp") ||
			value == nil {
			delete(r, name)
		}
	}
	return r
}

func (s *suite) want(partition, key string, want row) table.ETag {
	s.Helper()
	got, etag := s.get(partition, key)
	if string(got.encode()) != string(want.encode()) {
		s.Errorf("got %s, want %s", got.encode(), want.encode())
	}
	return etag
}

// list returns the keys of a query's rows as "partition/key", and the number of pages.
func (s *suite) list(q table.Query) (keys []string, pages int) {
	s.Helper()
	s.ok(s.table.List(s.Context(), q, func(page [][]byte) error {
		pages++
		for _, data := range page {
			r := s.decode(data)
			keys = append(keys, fmt.Sprint(r["PartitionKey"], "/", r["RowKey"]))
		}
		return nil
	}))
	return keys, pages
}

func (s *suite) tables() {
	ctx, name := s.Context(), s.table.Name()
	s.ok(s.table.Create(ctx)) // again
	other := s.open(name + "x")
	s.ok(other.Create(ctx))
	names, err := s.table.Names(ctx, name)
	if want := []string{name, name + "x"}; err != nil || !slices.Equal(names, want) {
		s.Errorf("got %v, %v, want %v", names, err, want)
	}
	s.put(newRow("a", "b"))
	// In Azure, names ignore case. A table is listed by the name with which it was created.
	if names, err = s.table.Names(ctx, strings.ToUpper(name)); err != nil ||
		!slices.Equal(names, []string{name, name + "x"}) {
		s.Errorf("got %v, %v in another case", names, err)
	}
	s.ok(s.table.Drop(ctx))
	s.ok(s.table.Drop(ctx)) // again
	if names, err = s.table.Names(ctx, name); err != nil ||
		!slices.Equal(names, []string{name + "x"}) {
		s.Errorf("got %v, %v after a drop", names, err)
	}
	s.recreate()
	if keys, _ := s.list(table.Query{}); keys != nil {
		s.Errorf("got %v in a new table", keys)
	}
}

// recreate creates the table that was dropped. In Azure that fails for 40 s or more, in which the
// table is not there.
func (s *suite) recreate() {
	s.Helper()
	for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		err := s.table.Create(s.Context())
		if err == nil {
			return
		}
		s.is(err, link.ErrUnavailable, "create")
		if errors.Is(err, table.ErrNoTable) || time.Since(start) > 5*time.Minute {
			s.Fatal(err)
		}
		for what, call := range s.calls(s.Context()) {
			s.is(call(), table.ErrNoTable, what)
		}
		s.ok(s.table.Drop(s.Context()))
	}
}

// calls returns one call of each method that needs the table.
func (s *suite) calls(ctx context.Context) map[string]func() error {
	data := newRow("a", "b").encode()
	write := func(kind table.Kind) func() error {
		return func() error {
			_, err := s.table.Write(ctx, table.Write{Kind: kind, Row: data, Read: table.Any})
			return err
		}
	}
	return map[string]func() error{
		"get":     func() error { _, _, err := s.table.Get(ctx, "a", "b"); return err },
		"insert":  write(table.Insert),
		"upsert":  write(table.Upsert),
		"replace": write(table.Replace),
		"merge":   write(table.Merge),
		"delete":  write(table.Delete),
		"list": func() error {
			return s.table.List(ctx, table.Query{}, func([][]byte) error { return nil })
		},
		"clock": func() error { _, err := s.table.Clock(ctx); return err },
		"batch": func() error {
			_, err := s.table.Batch(ctx, []table.Write{{Kind: table.Upsert, Row: data}})
			return err
		},
	}
}

func (s *suite) missing() {
	s.put(newRow("a", "b"))
	s.ok(s.table.Drop(s.Context()))
	for what, call := range s.calls(s.Context()) {
		s.is(call(), table.ErrNoTable, what)
	}
	s.recreate()
	s.put(newRow("a", "b"))
}

func (s *suite) insert() {
	first := s.put(newRow("a", "b", "Text", "one"))
	_, err := s.write(table.Insert, newRow("a", "b", "Text", "two"), "")
	s.is(err, table.ErrExists, "again")
	if etag := s.want("a", "b", newRow("a", "b", "Text", "one")); etag != first {
		s.Errorf("read %q, written %q", etag, first)
	}
	_, _, err = s.table.Get(s.Context(), "a", "c")
	s.is(err, table.ErrGone, "another key")
	_, _, err = s.table.Get(s.Context(), "c", "b")
	s.is(err, table.ErrGone, "another partition")
}

func (s *suite) upsert() {
	inserted, err := s.write(table.Upsert, newRow("a", "b", "One", "1", "Two", "2"), "")
	s.ok(err)
	merged, err := s.write(table.Upsert, newRow("a", "b", "Two", "two"), "")
	s.ok(err)
	etag := s.want("a", "b", newRow("a", "b", "One", "1", "Two", "two"))
	if inserted == "" || merged == "" || inserted == merged || etag != merged {
		s.Errorf("ETags %q, %q, %q", inserted, merged, etag)
	}
	same, err := s.write(table.Upsert, newRow("a", "b", "Two", "two"), "")
	if s.ok(err); same == merged {
		s.Error("a write of the same values keeps the ETag")
	}
}

func (s *suite) update() {
	old := s.put(newRow("a", "b", "One", "1", "Two", "2"))
	merged, err := s.write(table.Merge, newRow("a", "b", "Two", "two"), old)
	s.ok(err)
	s.want("a", "b", newRow("a", "b", "One", "1", "Two", "two"))
	replaced, err := s.write(table.Replace, newRow("a", "b", "Three", "3"), merged)
	s.ok(err)
	if etag := s.want("a", "b", newRow("a", "b", "Three", "3")); etag != replaced {
		s.Errorf("read %q, written %q", etag, replaced)
	}
	for what, kind := range map[string]table.Kind{"merge": table.Merge, "replace": table.Replace} {
		_, err = s.write(kind, newRow("a", "b", "Four", "4"), old)
		s.is(err, table.ErrChanged, what+" by an old ETag")
		_, err = s.write(kind, newRow("a", "b", "Four", "4"), "")
		s.is(err, table.ErrChanged, what+" without an ETag")
		_, err = s.write(kind, newRow("a", "c"), old)
		s.is(err, table.ErrChanged, what+" of a row that is not there")
		_, err = s.write(kind, newRow("a", "c"), table.Any)
		s.is(err, table.ErrChanged, what+" of any row that is not there")
	}
	s.want("a", "b", newRow("a", "b", "Three", "3"))
	_, err = s.write(table.Merge, newRow("a", "b", "Five", "5"), table.Any)
	s.is(err, nil, "merge by any ETag")
	s.want("a", "b", newRow("a", "b", "Three", "3", "Five", "5"))
}

func (s *suite) delete() {
	old := s.put(newRow("a", "b"))
	_, err := s.write(table.Upsert, newRow("a", "b", "One", "1"), "")
	s.ok(err)
	s.is(s.drop("a", "b", old), table.ErrChanged, "by an old ETag")
	s.is(s.drop("a", "b", ""), table.ErrChanged, "without an ETag")
	_, etag := s.get("a", "b")
	s.is(s.drop("a", "b", etag), nil, "as it was read")
	s.is(s.drop("a", "b", etag), nil, "once more")
	again := s.put(newRow("a", "b"))
	if s.is(s.drop("a", "b", etag), table.ErrChanged,
		"a new row by the ETag of an old one"); again == etag {
		s.Error("a new row has the ETag of an old one")
	}
	s.is(s.drop("a", "b", table.Any), nil, "by any ETag")
}

func (s *suite) values() {
	const at = "2026-11-23T12:34:56.1234567Z"
	r := newRow("a", "b", "Text", "a \"text\"\n<é> 漢字 𝄞", "Empty", "", "Yes", true, "No", false,
		"Int", 1<<31-1, "Long", "9007199254740993", "Long@odata.type", "Edm.Int64",
		"At", at, "At@odata.type", "Edm.DateTime", "Bytes", "AAEC/w==", "Bytes@odata.type",
		"Edm.Binary",
		"Half", 0.5)
	etag := s.put(r)
	s.want("a", "b", r)
	got, _ := s.get("a", "b")
	_, err := s.write(table.Replace, got, etag)
	s.ok(err)
	s.want("a", "b", r)
	_, err = s.write(table.Upsert, newRow("a", "b", "Text", nil, "Int", 2), "")
	s.ok(err)
	r["Int"] = 2
	s.want("a", "b", r) // null changes nothing
	_, err = s.write(table.Upsert, newRow("a", "b", "Long", "no number"), "")
	s.ok(err)
	r["Long"] = "no number"
	delete(r, "Long@odata.type")
	s.want("a", "b", r) // a new value has a new type
	// A whole number of type Double stays a Double.
	s.ok(s.drop("a", "b", table.Any))
	_, err = s.table.Write(s.Context(), table.Write{
		Row: []byte(`{"PartitionKey":"a","RowKey":"b","D":3.0,"D@odata.type":"Edm.Double"}`)})
	s.ok(err)
	_, err = s.table.Batch(s.Context(), []table.Write{{Kind: table.Insert,
		Row: []byte(`{"PartitionKey":"a","RowKey":"c","D":3.0,"D@odata.type":"Edm.Double"}`)}})
	s.ok(err)
	for _, key := range []string{"b", "c"} {
		data, _, err := s.table.Get(s.Context(), "a", key)
		if s.ok(err); !strings.Contains(string(data), `"D":3.0`) {
			s.Errorf("got %s", data)
		}
	}
}

func (s *suite) properties() {
	s.put(newRow("a", "b", "One", "1", "Two", "2", "Long", "3", "Long@odata.type", "Edm.Int64"))
	got, _ := s.get("a", "b", "Two", "None")
	if string(got.encode()) != `{"Two":"2"}` {
		s.Errorf("got %s", got.encode())
	}
	got, _ = s.get("a", "b", "RowKey", "Long")
	if string(got.encode()) != `{"Long":"3","Long@odata.type":"Edm.Int64","RowKey":"b"}` {
		s.Errorf("got %s", got.encode())
	}
	for etags, want := range map[bool]string{
		false: `{"Long":"3","RowKey":"b","Two":"2"}`, // types come only with ETags
		true:  `{"Long":"3","Long@odata.type":"Edm.Int64","RowKey":"b","Two":"2"}`,
	} {
		q := table.Query{Properties: []string{"RowKey", "Two", "None", "Long"}, ETags: etags}
		s.ok(s.table.List(s.Context(), q, func(page [][]byte) error {
			for _, data := range page {
				if got := s.decode(data).encode(); string(got) != want {
					s.Errorf("ETags %t: got %s", etags, data)
				}
				if has := strings.Contains(string(data), `"odata.etag":"W/`); has != etags {
					s.Errorf("ETags %t: got %s", etags, data)
				}
			}
			return nil
		}))
	}
}

func (s *suite) batch() {
	ctx := s.Context()
	first, second := s.put(newRow("a", "1")), s.put(newRow("a", "2", "One", "1"))
	write := func(kind table.Kind, read table.ETag, r row) table.Write {
		return table.Write{Kind: kind, Row: r.encode(), Read: read}
	}
	retried, err := s.table.Batch(ctx, []table.Write{
		table.NewDelete("a", "1", first),
		write(table.Merge, second, newRow("a", "2", "Two", "2")),
		write(table.Upsert, "", newRow("a", "3", "Three", "3")),
		write(table.Insert, "", newRow("a", "4")),
	})
	if s.ok(err); retried {
		s.Error("retried")
	}
	s.want("a", "2", newRow("a", "2", "One", "1", "Two", "2"))
	_, third := s.get("a", "3")
	_, err = s.table.Batch(ctx, []table.Write{write(table.Replace, third,
		newRow("a", "3", "New", "3"))})
	s.ok(err)
	s.want("a", "3", newRow("a", "3", "New", "3"))

	upsert := write(table.Upsert, "", newRow("a", "9"))
	for what, test := range map[string]struct {
		write table.Write
		want  error
	}{
		"an old ETag":         {table.NewDelete("a", "3", third), table.ErrChanged},
		"a row that is gone":  {table.NewDelete("a", "1", first), table.ErrGone},
		"a row that is there": {write(table.Insert, "", newRow("a", "4")), table.ErrExists},
		"a missing row":       {write(table.Merge, table.Any, newRow("a", "7")), table.ErrGone},
		// Not tested is a row of another partition: Azure and memtable refuse it, but Azurite does
		// not.
		"the same row": {write(table.Upsert, "", newRow("a", "9", "X", "x")),
			link.ErrUnavailable},
		"a delete without ETag":  {table.NewDelete("a", "4", ""), link.ErrUnavailable},
		"a merge without ETag":   {write(table.Merge, "", newRow("a", "4")), link.ErrUnavailable},
		"a replace without ETag": {write(table.Replace, "", newRow("a", "4")), link.ErrUnavailable},
		"a row without keys": {table.Write{Kind: table.Upsert, Row: []byte(`{"X":"x"}`)},
			link.ErrUnavailable},
	} {
		_, err := s.table.Batch(ctx, []table.Write{upsert, test.write})
		s.is(err, test.want, what)
	}
	if keys, _ := s.list(table.Query{}); fmt.Sprint(keys) != "[a/2 a/3 a/4]" {
		s.Errorf("after batches that failed: %v", keys)
	}
	var many []table.Write
	for i := range table.MaxBatch + 1 {
		many = append(many, write(table.Upsert, "", newRow("many", fmt.Sprint(i))))
	}
	_, err = s.table.Batch(ctx, many)
	s.is(err, link.ErrUnavailable, "too many")
	_, err = s.table.Batch(ctx, many[1:])
	s.is(err, nil, "as many as can be")
}

func (s *suite) ranges() {
	for _, key := range []string{"a/-", "a/B", "a/_", "a/a", "a/a!", "a/a'b", "a/ab", "b/1",
		"b|x/1", "b}/1", "c/1"} {
		partition, row, _ := strings.Cut(key, "/")
		s.put(newRow(partition, row))
	}
	for _, test := range []struct {
		r    table.Range
		want string
	}{
		{table.Range{}, "a/- a/B a/_ a/a a/a! a/a'b a/ab b/1 b|x/1 b}/1 c/1"},
		{table.Range{Partition: "a"}, "a/- a/B a/_ a/a a/a! a/a'b a/ab"},
		{table.Range{Partition: "a", From: "a"}, "a/a a/a! a/a'b a/ab"},
		{table.Range{Partition: "a", After: "a"}, "a/a! a/a'b a/ab"},
		{table.Range{Partition: "a", After: "a'b"}, "a/ab"},
		{table.Range{Partition: "a", Before: "a"}, "a/- a/B a/_"},
		{table.Range{Partition: "a", From: "B", Before: "a!"}, "a/B a/_ a/a"},
		{table.Range{Partition: "b"}, "b/1"},
		{table.Range{Partition: "none"}, ""},
		{table.Range{From: "b"}, "b/1 b|x/1 b}/1 c/1"},
		{table.Range{After: "b"}, "b|x/1 b}/1 c/1"},
		{table.Range{From: "b|", Before: "b}"}, "b|x/1"},
		{table.Range{Before: "b"}, "a/- a/B a/_ a/a a/a! a/a'b a/ab"},
		{table.Range{After: "a", Before: "c"}, "b/1 b|x/1 b}/1"},
		{table.Range{After: "a", Before: "a"}, ""},
	} {
		keys, _ := s.list(table.Query{Range: test.r})
		if got := strings.Join(keys, " "); got != test.want {
			s.Errorf("%+v: got %s, want %s", test.r, got, test.want)
		}
	}
}

func (s *suite) pages() {
	const count = 2*table.MaxPage + 1
	var want []string
	for first := 0; first < count; first += table.MaxBatch {
		var writes []table.Write
		for i := first; i < min(first+table.MaxBatch, count); i++ {
			key := fmt.Sprintf("%05d", i)
			want = append(want, "a/"+key)
			writes = append(writes, table.Write{Kind: table.Upsert, Row: newRow("a", key).encode()})
		}
		_, err := s.table.Batch(s.Context(), writes)
		s.ok(err)
	}
	for size, atLeast := range map[int]int{0: 3, 700: 3, table.MaxPage: 3} {
		keys, pages := s.list(table.Query{PageSize: size})
		if !slices.Equal(keys, want) || pages < atLeast {
			s.Errorf("pages of %d: got %d rows in %d pages, want %d", size, len(keys), pages, count)
		}
	}
	stop := errors.New("enough")
	pages := 0
	err := s.table.List(s.Context(), table.Query{PageSize: 10}, func(page [][]byte) error {
		if pages++; len(page) > 10 {
			s.Errorf("%d rows on a page", len(page))
		}
		return stop
	})
	if !errors.Is(err, stop) || pages != 1 {
		s.Errorf("%v after %d pages, want the page's own error after one", err, pages)
	}
}

// between writes before and after the position of a listing. The listing goes on by key.
func (s *suite) between() {
	for _, key := range []string{"b", "d", "f", "h"} {
		s.put(newRow("a", key))
	}
	var keys []string
	s.ok(s.table.List(s.Context(), table.Query{PageSize: 2}, func(page [][]byte) error {
		for _, data := range page {
			keys = append(keys, fmt.Sprint(s.decode(data)["RowKey"]))
		}
		if len(keys) == 2 {
			s.put(newRow("a", "a"))
			s.put(newRow("a", "g"))
			s.ok(s.drop("a", "d", table.Any))
			s.ok(s.drop("a", "h", table.Any))
		}
		return nil
	}))
	if got := strings.Join(keys, ""); got != "bdfg" {
		s.Errorf("got %s", got)
	}
}

func (s *suite) keys() {
	for _, key := range []string{"-", "a b", "key|x", "%41", "+", "a'b", "''", "é",
		"*:@&=$,;(){}[]<>~`!^", strings.Repeat("x", 500)} {
		s.put(newRow(key, key, "Value", key))
		if got, etag := s.get(key, key); got["Value"] != key || got["RowKey"] != key {
			s.Errorf("got %v for %s", got, key)
		} else {
			s.ok(s.drop(key, key, etag))
		}
		row := newRow(key, key, "Value", key).encode()
		for _, kind := range []table.Kind{table.Insert, table.Upsert, table.Replace, table.Merge} {
			w := table.Write{Kind: kind, Row: row}
			if kind >= table.Replace {
				w.Read = table.Any
			}
			_, err := s.table.Batch(s.Context(), []table.Write{w})
			s.ok(err)
		}
		_, etag := s.get(key, key)
		_, err := s.table.Batch(s.Context(), []table.Write{table.NewDelete(key, key, etag)})
		s.ok(err)
	}
	if keys, _ := s.list(table.Query{}); keys != nil {
		s.Errorf("batches wrote to the rows %q", keys)
	}
	for _, key := range []string{"a/b", `a\b`, "a#b", "a?b", "a\nb",
		strings.Repeat("x", table.MaxKey+1)} {
		if _, err := s.write(table.Insert, newRow("a", key), ""); err == nil {
			s.Errorf("%q is taken for a key", key)
		}
	}
	s.put(newRow("Case", "a"))
	s.put(newRow("case", "A"))
	s.put(newRow("case", "a"))
}

func (s *suite) large() {
	text := strings.Repeat("x", 30_000)
	s.put(newRow("a", "b", "Text", text))
	if got, _ := s.get("a", "b"); got["Text"] != text {
		s.Error("a long text comes back otherwise")
	}
	sized := func(count int, property string, typed ...any) row {
		r := newRow("a", "c", typed...)
		for i := range count {
			r[fmt.Sprint("P", i)] = property
		}
		return r
	}
	binary := func(size int) row {
		return sized(1, base64.StdEncoding.EncodeToString(make([]byte, size)), "P0@odata.type",
			"Edm.Binary")
	}
	for what, test := range map[string]struct {
		row  row
		fits bool
	}{
		// Azurite takes fewer emojis than Azure.
		"64 KiB of text":            {sized(1, strings.Repeat("x", 32<<10)), true},
		"more text":                 {sized(1, strings.Repeat("x", 32<<10+1)), false},
		"64 KiB of escaped text":    {sized(1, strings.Repeat("\n", 32<<10)), true},
		"64 KiB of bytes":           {binary(64 << 10), true},
		"more bytes":                {binary(64<<10 + 1), false},
		"1 MB":                      {sized(17, text), true},
		"more than 1 MiB, as bytes": {sized(36, text), false},
	} {
		_, err := s.write(table.Upsert, test.row, "")
		if test.fits {
			s.is(err, nil, what)
			_ = s.drop("a", "c", table.Any)
		} else {
			s.is(err, link.ErrUnavailable, what)
		}
	}
}

func (s *suite) clock() {
	before := time.Now().Add(-time.Minute)
	at, err := s.table.Clock(s.Context())
	if s.ok(err); at.Before(before) || at.After(before.Add(2*time.Minute)) || at.Nanosecond() != 0 {
		s.Errorf("got %v", at)
	}
	s.put(newRow("a", "b"))
	data, _, err := s.table.Get(s.Context(), "a", "b")
	s.ok(err)
	var r struct{ Timestamp time.Time }
	if s.ok(json.Unmarshal(data, &r)); r.Timestamp.Before(before) ||
		r.Timestamp.After(before.Add(2*time.Minute)) {
		s.Errorf("written at %v", r.Timestamp)
	}
}

func (s *suite) ended() {
	canceled, cancel := context.WithCancel(s.Context())
	cancel()
	late, cancel := context.WithDeadline(s.Context(), time.Now())
	defer cancel()
	for ctx, want := range map[context.Context]error{canceled: context.Canceled,
		late: context.DeadlineExceeded} {
		calls := s.calls(ctx)
		calls["create"] = func() error { return s.table.Create(ctx) }
		calls["drop"] = func() error { return s.table.Drop(ctx) }
		calls["names"] = func() error { _, err := s.table.Names(ctx, "X"); return err }
		for what, call := range calls {
			err := call()
			s.is(err, link.ErrUnavailable, what)
			s.is(err, want, what)
		}
	}
	if keys, _ := s.list(table.Query{}); keys != nil {
		s.Errorf("written after the end: %v", keys)
	}
}
