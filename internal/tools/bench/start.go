package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

const (
	startsARound = 2
	restAfter    = 2 * time.Second // a process is at rest this long after its first response
)

// starts measures how long a process takes from its start to its first response, its memory at
// rest, and the size of its executable.
func (b *bench) starts(ctx context.Context) (string, error) {
	var r results
	for range startsARound * b.rounds {
		var bare float64
		for _, of := range []subject{
			{name: "bare net/http", command: b.bareHTTP("/")},
			{name: "on its own", command: b.service(false)},
			{name: "behind the host", command: b.service(true)},
		} {
			v, err := b.startOnce(ctx, of)
			if err != nil {
				return "", err
			}
			if bare == 0 {
				bare = v["ms"]
			} else {
				v["ms more"] = v["ms"] - bare
			}
			r.add(of.name, v)
		}
	}
	service := []string{"on its own", "behind the host"}
	return fmt.Sprintf("Starts of each: %d.\n\n", startsARound*b.rounds) +
		r.table([]column{
			{head: "ms to the first response", value: "ms", digits: 1, atMost: 10, rows: service},
			{head: "ms more than bare net/http", value: "ms more", digits: 1},
			{head: "MB at rest", value: "MB", digits: 1, atMost: 15.5, rows: service},
			{head: "of them its own", value: "own", digits: 1},
			{head: "MB of the executable", value: "size", digits: 1, atMost: 15.5, rows: service},
		}), nil
}

func (b *bench) startOnce(ctx context.Context, of subject) (values, error) {
	start := time.Now()
	s, err := b.start(ctx, of, "/")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	v := values{"ms": 1000 * time.Since(start).Seconds()}
	time.Sleep(restAfter)
	v["MB"], v["own"] = s.memory("VmRSS"), s.memory("RssAnon")
	file, err := os.Stat(s.cmd.Path)
	if err != nil {
		return nil, err
	}
	v["size"] = float64(file.Size()) / 1e6
	return v, nil
}
