package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"tiney/internal/testing/useragents"
)

const (
	followedLinks = 1000
	// Each user pauses for a time in this range between two requests, except in a hurrying phase.
	leastPause, mostPause = 500 * time.Millisecond, 2 * time.Second
	creating              = 0.2 // share of creates among the requests of users who do both
)

// phase is one part of the load: a number of users for a length of time.
type phase struct {
	length                        time.Duration
	both, create, follow, readers int  // the numbers of users who do that
	ramp                          bool // they arrive one by one; otherwise all at once
	hurry                         bool // they do not pause
}

// The last phase is the one in a hurry.
var phases = []phase{
	{length: 6 * time.Second, both: 50, ramp: true},
	{length: 12 * time.Second, both: 50},
	{length: 3 * time.Second, both: 100},
	{length: 3 * time.Second, both: 50},
	{length: 30 * time.Second, both: 20},
	{length: 6 * time.Second, create: 10, follow: 40, readers: 5},
	{length: 3 * time.Second, both: 50, hurry: true},
}

// users measures a service under the load of people who wait between two requests.
func (b *bench) users(ctx context.Context) (string, error) {
	paths, err := b.putLinks(ctx, followedLinks)
	if err != nil {
		return "", err
	}
	people, err := useragents.People(".")
	if err != nil {
		return "", err
	}
	s, err := b.start(ctx, subject{name: "users", command: b.service(true)}, "/api/ready")
	if err != nil {
		return "", err
	}
	defer s.stop()
	crowd := &crowd{server: s, people: people, paths: paths}
	worst, v := values{}, values(nil)
	for _, p := range phases {
		if v = crowd.play(ctx, p); ctx.Err() != nil {
			return "", ctx.Err()
		}
		for name, x := range v {
			if !p.hurry {
				worst[name] = max(worst[name], x)
			}
		}
	}
	delete(worst, "req/s") // 50 users who pause make only 40 requests a second
	var r results
	waiting := []string{"worst phase of users who wait"}
	r.add(waiting[0], worst)
	r.add("50 who do not wait", v)
	return "One run.\n\n" + r.table([]column{
		{head: "p50 ms", value: "p50", digits: 1, atMost: 100, rows: waiting},
		{head: "p95 ms", value: "p95", digits: 1, atMost: 500, rows: waiting},
		{head: "p99 ms", value: "p99", digits: 1, atMost: 1000, rows: waiting},
		{head: "mean of creates, ms", value: "create", digits: 1, atMost: 2000, rows: waiting},
		{head: "mean of redirects, ms", value: "follow", digits: 1, atMost: 500, rows: waiting},
		{head: "errors, %", value: "errors", digits: 2, atMost: 1, rows: waiting},
		{head: "requests/s", value: "req/s", atLeast: 100},
	}), nil
}

// crowd is the users of a service.
type crowd struct {
	server *server
	people []useragents.Person

	mu     sync.Mutex
	paths  []string // of links that can be followed
	took   map[string][]time.Duration
	errors int
}

// play lets users come and go during one phase, and returns what they measured.
func (c *crowd) play(ctx context.Context, p phase) values {
	c.took, c.errors = map[string][]time.Duration{}, 0
	ctx, cancel := context.WithTimeout(ctx, p.length)
	defer cancel()
	var all sync.WaitGroup
	n := p.both + p.create + p.follow + p.readers
	for i := range n {
		var late time.Duration
		switch {
		case p.ramp:
			late = p.length * time.Duration(i) / time.Duration(n)
		case !p.hurry: // otherwise all would arrive at the same moment
			late = rand.N(mostPause)
		}
		all.Go(func() {
			for pause := late; wait(ctx, pause); {
				switch {
				case i < p.create, i < p.create+p.both && rand.Float64() < creating:
					c.create()
				case i < p.create+p.both+p.follow:
					c.ask("follow", http.MethodGet, c.path(), "")
				default:
					c.ask("read", http.MethodGet, "/api/links"+c.path()+"/stats", "")
				}
				if pause = leastPause + rand.N(mostPause-leastPause); p.hurry {
					pause = 0
				}
			}
		})
	}
	start := time.Now()
	all.Wait()
	v := values{}
	var took []time.Duration
	for kind, durations := range c.took {
		took = append(took, durations...)
		var sum time.Duration
		for _, d := range durations {
			sum += d
		}
		v[kind] = 1000 * sum.Seconds() / float64(len(durations))
	}
	if len(took) == 0 { // interrupted
		return nil
	}
	slices.Sort(took)
	for name, percent := range map[string]int{"p50": 50, "p95": 95, "p99": 99} {
		v[name] = 1000 * took[len(took)*percent/100].Seconds()
	}
	v["errors"] = 100 * float64(c.errors) / float64(len(took))
	v["req/s"] = float64(len(took)) / time.Since(start).Seconds()
	return v
}

// wait waits for pause, and reports whether ctx is still active after it.
func wait(ctx context.Context, pause time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pause):
		return ctx.Err() == nil
	}
}

func (c *crowd) path() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paths[rand.IntN(len(c.paths))]
}

// create makes a link. From then on, users follow it like the others. The links end on many days:
// each day is a partition of the expiry rows, and Azurite searches a whole partition for a row.
func (c *crowd) create() {
	n := rand.IntN(100_000_000) // hardly ever twice
	text := c.ask("create", http.MethodPost, "/api/shorten", fmt.Sprintf(
		`{"longUrl":%q,"expiresInSeconds":%d}`, longURL(n), (1+n%89)*24*60*60))
	var made struct{ Alias string }
	if text != nil && json.Unmarshal(text, &made) == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.paths = append(c.paths, "/"+made.Alias)
	}
}

// ask sends a request as somebody's browser. It returns the body of the response, or nil if the
// response is an error.
func (c *crowd) ask(kind, method, path, body string) []byte {
	start := time.Now()
	text, err := c.server.send(method, path, body, c.people[rand.IntN(len(c.people))].UserAgent)
	took := time.Since(start)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.took[kind] = append(c.took[kind], took)
	if err == nil {
		return text
	}
	if c.errors++; c.errors == 1 {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
	return nil
}
