package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

const reaped = 1000 // links

// timer is the body that the Functions host posts when the timer fires.
const timer = `{"Data":{"timer":{"Schedule":{"AdjustForDST":true},"ScheduleStatus":null,` +
	`"IsPastDue":false}},"Metadata":{"sys":{"MethodName":"reaper"}}}`

// reap measures how fast expired links are deleted, and how much memory the service uses for it.
func (b *bench) reap(ctx context.Context) (string, error) {
	now := time.Now()
	links := makeLinks(reaped, func(n int) time.Time {
		return now.Add(-time.Duration(1+n) * time.Minute)
	})
	t, err := b.newTables(ctx, links, false)
	if err != nil {
		return "", err
	}
	calls, err := b.calls(ctx, t, http.MethodPost, "/reaper", timer, 1)
	if err != nil {
		return "", err
	}
	var rates results
	for range b.rounds {
		t, err := b.newTables(ctx, links, false)
		if err != nil {
			return "", err
		}
		v, err := b.reapOnce(ctx, t)
		if err != nil {
			return "", err
		}
		v["calls"] = calls / reaped
		rates.add(fmt.Sprintf("%d links", reaped), v)
	}
	return fmt.Sprintf("Rounds: %d.\n\n", b.rounds) +
		rates.table([]column{
			{head: "links/s", value: "links/s"},
			{head: "CPU µs each", value: "µs", digits: 1},
			{head: "MB at most", value: "most", digits: 1},
			{head: "storage calls each", value: "calls", digits: 2},
		}), nil
}

func (b *bench) reapOnce(ctx context.Context, t *tables) (values, error) {
	s, err := b.startReady(ctx, b.service(t, true), "/api/ready")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	used, start := processorTime(s.cmd.Process.Pid), time.Now()
	if _, err := s.send(http.MethodPost, "/reaper", timer, ""); err != nil {
		return nil, err
	}
	took := time.Since(start)
	used = processorTime(s.cmd.Process.Pid) - used
	v := values{"links/s": reaped / took.Seconds(), "µs": float64(used.Microseconds()) / reaped}
	if _, v["most"], err = memory(s.cmd.Process.Pid); err != nil {
		return nil, err
	}
	if counts := s.stop(); counts["reaper.deleted"] != reaped {
		return nil, fmt.Errorf("%v of %v links were deleted", counts["reaper.deleted"], reaped)
	}
	return v, nil
}
