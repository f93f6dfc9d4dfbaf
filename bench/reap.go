package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"tiney/internal/memtables"
)

// reap measures how fast expired links are taken away, and the memory that it takes, beside the same calls by the SDK
// alone: against Azurite, and against a table service in memory that leaves more of the time to what is measured.
func (b *bench) reap(ctx context.Context) (string, error) {
	real, err := interleave(ctx, b.rounds, b.reapers([]int{1000}, false))
	if err != nil {
		return "", err
	}
	columns := []column{
		{head: "links/s", value: "links/s"},
		{head: "CPU µs each", value: "µs", digits: 1},
		{head: "MB at most", value: "most", digits: 1},
		{head: "links/s, to the raw SDK", value: "links/s", digits: 3, of: ratio, atLeast: 0.9},
		{head: "CPU, to the raw SDK", value: "µs", digits: 3, of: ratio},
		{head: "CPU % of others", value: "others"},
	}
	text := fmt.Sprintf("Against Azurite, %d rounds.\n\n%s\n", b.rounds, real.table(columns))

	large, err := interleave(ctx, b.reapRounds, b.reapers([]int{1000, 10_000, 100_000}, true))
	if err != nil {
		return "", err
	}
	columns = append(columns[:5:5],
		column{head: "MB more than for 1,000", value: "grown", digits: 1, atMost: 10},
		column{head: "calls", value: "calls"},
		column{head: "calls, less the raw SDK's", value: "calls", of: difference, atMost: 0.5},
		columns[5])
	return text + fmt.Sprintf("Against the table service in memory, %d rounds.\n\n%s", b.reapRounds, large.table(columns)), nil
}

// reapers are the two sides for each of some numbers of links.
func (b *bench) reapers(sizes []int, memory bool) (subjects []subject) {
	var least float64 // what the service has held at most for the smallest number
	for _, links := range sizes {
		name := thousands(float64(links))
		subjects = append(subjects,
			subject{name + " links, raw SDK", "", func(ctx context.Context) (values, error) {
				return b.reapOnce(ctx, links, true, memory)
			}},
			subject{name + " links", name + " links, raw SDK", func(ctx context.Context) (values, error) {
				v, err := b.reapOnce(ctx, links, false, memory)
				if err != nil {
					return nil, err
				}
				if links == sizes[0] {
					least = v["most"]
				} else {
					v["grown"] = v["most"] - least
				}
				return v, nil
			}})
	}
	return subjects
}

// reapOnce has one side reap links in tables of its own.
func (b *bench) reapOnce(ctx context.Context, links int, raw, inMemory bool) (v values, err error) {
	var double *memtables.Service
	connection := b.emulator.ConnectionString()
	if inMemory {
		double = memtables.Start()
		defer double.Close()
		connection = double.ConnectionString()
	}
	t, err := newTables(ctx, connection)
	if err != nil {
		return nil, err
	}
	insert := t.insert(ctx)
	if inMemory {
		insert = double.Insert
	}
	if err := t.seed(links, insert); err != nil {
		return nil, err
	}
	s, err := b.startOn(ctx, raw, t)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	var before map[string]int
	if inMemory {
		before = double.Calls()
	}
	used, start := processorTime(s.cmd.Process.Pid), time.Now()
	for complete := false; !complete; { // a run that has used up its time leaves the rest to the next one
		if complete, err = fire(ctx, s); err != nil {
			return nil, err
		}
	}
	took := time.Since(start)
	used = processorTime(s.cmd.Process.Pid) - used
	v = values{"links/s": float64(links) / took.Seconds(), "µs": float64(used.Microseconds()) / float64(links)}
	if _, v["most"], err = memory(s.cmd.Process.Pid); err != nil {
		return nil, err
	}
	if !inMemory {
		if err := t.empty(ctx); err != nil {
			return nil, err
		}
		return v, t.drop(ctx)
	}
	if left := double.Rows(); left > 0 {
		return nil, fmt.Errorf("%d rows are left", left)
	}
	for operation, calls := range double.Calls() {
		v["calls"] += float64(calls - before[operation])
	}
	return v, nil
}

// fire posts what the Functions host does when it is time for a reap, and says whether the run came to its end.
func fire(ctx context.Context, s *service) (complete bool, err error) {
	const invocation = `{"Data":{"timer":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":null,"IsPastDue":false}},"Metadata":{"sys":{"MethodName":"reaper"}}}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/reaper", strings.NewReader(invocation))
	if err != nil {
		return false, err
	}
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	answer, err := (&http.Client{Transport: client.Transport}).Do(r) // a run takes minutes
	if err != nil {
		return false, err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(answer.Body)
	if err != nil {
		return false, err
	}
	if answer.StatusCode != http.StatusOK || !bytes.Contains(said, []byte("deleted ")) {
		return false, fmt.Errorf("a reap was answered with %d: %s", answer.StatusCode, said)
	}
	return bytes.Contains(said, []byte("complete: true")), nil
}
