package faultproxy_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tiney/internal/link"
	"tiney/internal/testing/azurite"
	"tiney/internal/testing/faultproxy"
	"tiney/storage/memtable"
	"tiney/storage/table"
)

var (
	emulator azurite.Ports
	runs     atomic.Int64
)

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "64") // the tests mostly wait for timers
	os.Exit(azurite.ForTests(func(ports azurite.Ports) int {
		emulator = ports
		return m.Run()
	}))
}

// row returns the row with the number n.
func row(n int) []byte {
	return fmt.Appendf(nil, `{"PartitionKey":"a","RowKey":"%d","Text":"x"}`, n)
}

// old returns an ETag that differs from the given one.
func old(etag table.ETag) table.ETag {
	return table.ETag(strings.Replace(string(etag), "20", "19", 1))
}

// write returns a call that makes a write. The ETag is what the write goes by.
func write(w table.Write) func(context.Context, table.Table, table.ETag) (bool, error) {
	return func(ctx context.Context, t table.Table, etag table.ETag) (bool, error) {
		w := w
		w.Read = etag
		r, err := t.Write(ctx, w)
		return r.Again, err
	}
}

// operations call every method on a table with row 1, which has the given ETag.
var operations = map[string]func(context.Context, table.Table, table.ETag) (bool, error){
	"get": func(ctx context.Context, t table.Table, _ table.ETag) (bool, error) {
		_, _, err := t.Get(ctx, "a", "1")
		return false, err
	},
	"insert":                     write(table.Write{Kind: table.Insert, Row: row(2)}),
	"insert of what is there":    write(table.Write{Kind: table.Insert, Row: row(1)}),
	"upsert":                     write(table.Write{Kind: table.Upsert, Row: row(1)}),
	"replace":                    write(table.Write{Kind: table.Replace, Row: row(1)}),
	"merge":                      write(table.Write{Kind: table.Merge, Row: row(1)}),
	"merge of what is not there": write(table.Write{Kind: table.Merge, Row: row(3)}),
	"delete":                     write(table.NewDelete("a", "1", "")),
	"merge by an old ETag": func(ctx context.Context, t table.Table, etag table.ETag) (bool,
		error) {
		return write(table.Write{Kind: table.Merge, Row: row(1)})(ctx, t, old(etag))
	},
	"batch": func(ctx context.Context, t table.Table, etag table.ETag) (bool, error) {
		return t.Batch(ctx, []table.Write{{Kind: table.Upsert, Row: row(2)},
			{Kind: table.Merge, Row: row(1), Read: etag}})
	},
	"batch by an old ETag": func(ctx context.Context, t table.Table, etag table.ETag) (bool,
		error) {
		return t.Batch(ctx, []table.Write{{Kind: table.Upsert, Row: row(2)},
			table.NewDelete("a", "1", old(etag))})
	},
	"batch of counts": func(ctx context.Context, t table.Table, _ table.ETag) (bool, error) {
		count := []byte(`{"PartitionKey":"a","RowKey":"x|ABCDEFGHIJKLMNOPQRSTUVWXYZ-1"}`)
		return t.Batch(ctx, []table.Write{{Kind: table.Upsert, Row: count}})
	},
	"list": func(ctx context.Context, t table.Table, _ table.ETag) (bool, error) {
		return false, t.List(ctx, table.Query{}, func([][]byte) error { return nil })
	},
	"create": func(ctx context.Context, t table.Table, _ table.ETag) (bool, error) {
		return false, t.Create(ctx)
	},
	"drop": func(ctx context.Context, t table.Table, _ table.ETag) (bool, error) {
		return false, t.Drop(ctx)
	},
	"clock": func(ctx context.Context, t table.Table, _ table.ETag) (bool, error) {
		_, err := t.Clock(ctx)
		return false, err
	},
}

// Under each fault, tables in memory behave like the real client.
func TestInMemory(t *testing.T) {
	t.Parallel()
	reads := []string{"get", "list", "clock"}
	for name, fault := range map[string]faultproxy.Fault{
		"none": faultproxy.None, "refuse": faultproxy.Refuse,
		"drop the response": faultproxy.DropResponse, "busy": faultproxy.ServerBusy,
		"limiting": faultproxy.TooManyRequests, "being deleted": faultproxy.BeingDeleted,
		"not found": faultproxy.NotFound, "freeze": faultproxy.Freeze,
		"an empty response": faultproxy.EmptyResponse,
		"lie":               faultproxy.Lie, "unconditional": faultproxy.Unconditional,
		"twice": faultproxy.Twice,
	} {
		for operation, do := range operations {
			isBatch := strings.HasPrefix(operation, "batch")
			switch fault { // these are for some calls only
			case faultproxy.EmptyResponse:
				if !isBatch {
					continue
				}
			case faultproxy.Twice:
				if operation != "batch of counts" {
					continue
				}
			case faultproxy.Lie:
				if slices.Contains(reads, operation) || operation == "create" ||
					operation == "drop" {
					continue
				}
			}
			for _, always := range []bool{false, true} {
				table := fmt.Sprint("Run", runs.Add(1))
				t.Run(fmt.Sprintf("%s/%s/%t", operation, name, always), func(t *testing.T) {
					t.Parallel()
					p := faultproxy.Start(emulator)
					defer p.Close()
					calls := true
					if fault == faultproxy.Refuse || fault == faultproxy.DropResponse {
						// net/http repeats a read by itself if a kept connection is closed.
						calls = !slices.Contains(reads, operation)
					}
					memory := faultproxy.InMemory(memtable.New(time.Now))
					got := play(t, memory, table, do, fault, always, calls)
					if want := play(t, p, table, do, fault, always, calls); got != want {
						t.Errorf("in memory:\n%s\nby the SDK:\n%s", got, want)
					}
				})
			}
		}
	}
}

// play makes a call under a fault, and describes the result.
func play(t *testing.T, p *faultproxy.Proxy, name string,
	do func(context.Context, table.Table, table.ETag) (bool, error), fault faultproxy.Fault,
	always, calls bool) string {
	t.Helper()
	patient := faultproxy.Patient(t.Context())
	open, err := p.Open()
	if err != nil {
		t.Fatal(err)
	}
	rows := open(name)
	if err := rows.Create(patient); err != nil {
		t.Fatal(err)
	}
	made, err := rows.Write(patient, table.Write{Row: row(1)})
	if err != nil {
		t.Fatal(err)
	}
	p.Reset()
	p.Before(func(c faultproxy.Call) faultproxy.Fault {
		if c.N == 1 || always {
			return fault
		}
		return faultproxy.None
	})
	ctx := patient
	if fault == faultproxy.Freeze {
		limit := 10 * time.Second // long enough for the emulator to respond on a busy machine
		if always {
			limit = 2 * time.Second
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(t.Context(), limit)
		defer cancel()
	}
	retried, err := do(ctx, rows, made.ETag)
	p.Wait()
	said := fmt.Sprintf("retried %t, %s;", retried, kind(err))
	for _, c := range p.Calls() {
		if !calls {
			break
		}
		said += fmt.Sprintf(" %v of %q, %d rows;", c, c.Partition, c.Rows)
	}
	p.Reset()
	keys := table.Query{Properties: []string{"RowKey"}}
	err = rows.List(patient, keys, func(page [][]byte) error {
		said += fmt.Sprintf(" %s", page)
		return nil
	})
	return said + " " + kind(err)
}

func kind(err error) string {
	for name, kind := range map[string]error{"exists": table.ErrExists,
		"no table": table.ErrNoTable,
		"changed":  table.ErrChanged, "late": context.DeadlineExceeded} {
		if errors.Is(err, kind) {
			return name
		}
	}
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, table.ErrGone):
		return "gone"
	case errors.Is(err, link.ErrUnavailable):
		return "unavailable"
	}
	return err.Error()
}
