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
	"sync/atomic"
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
	name string
	// length is the whole time. A run takes a tenth of it unless -full is set.
	length                        time.Duration
	both, create, follow, readers int  // the numbers of users who do that
	ramp                          bool // they arrive one by one; otherwise all at once
	hurry                         bool // they do not pause
}

var phases = []phase{
	{name: "0 to 50 users", length: 60 * time.Second, both: 50, ramp: true},
	{name: "50 users", length: 120 * time.Second, both: 50},
	{name: "100 users", length: 30 * time.Second, both: 100},
	{name: "50 again", length: 30 * time.Second, both: 50},
	{name: "20 users", length: 300 * time.Second, both: 20},
	{name: "10 create, 40 follow, 5 read statistics", length: 60 * time.Second, create: 10,
		follow: 40, readers: 5},
	{name: "50 who do not wait", length: 30 * time.Second, both: 50, hurry: true},
}

// thresholds must hold while users pause. The one for requests/s is for users who do not pause: 50
// users who pause make only 40 requests a second.
var thresholds = []struct {
	name, value  string
	digits       int
	below, above float64 // either
}{
	{name: "p50 ms", value: "p50", digits: 1, below: 100},
	{name: "p95 ms", value: "p95", digits: 1, below: 500},
	{name: "p99 ms", value: "p99", digits: 1, below: 1000},
	{name: "mean of creates, ms", value: "create", digits: 1, below: 2000},
	{name: "mean of redirects, ms", value: "follow", digits: 1, below: 500},
	{name: "errors, %", value: "errors", digits: 2, below: 1},
	{name: "requests/s", value: "req/s", above: 100},
}

// users measures a service under the load of people who wait between two requests.
func (b *bench) users(ctx context.Context) (string, error) {
	links := makeLinks(followedLinks, func(int) time.Time { return time.Now().AddDate(0, 0, 30) })
	t, err := b.newTables(ctx, links, false)
	if err != nil {
		return "", err
	}
	people, err := useragents.People(".")
	if err != nil {
		return "", err
	}
	s, err := b.startReady(ctx, b.service(t, true), "/api/ready")
	if err != nil {
		return "", err
	}
	defer s.stop()
	crowd := &crowd{server: s, people: people}
	for _, l := range links {
		crowd.aliases = append(crowd.aliases, string(l.Name))
	}
	share := 10
	if b.full {
		share = 1
	}
	waiting, hurrying := make([]values, 0, len(phases)), values(nil)
	var names []string // of the phases of users who wait
	for _, p := range phases {
		v := crowd.play(ctx, p, p.length/time.Duration(share))
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		if p.hurry {
			hurrying = v
		} else {
			waiting, names = append(waiting, v), append(names, p.name)
		}
	}
	return fmt.Sprintf("One run, each phase in 1/%d of its time.\n\n%s", share,
		usersTable(names, waiting, hurrying)), nil
}

// usersTable has a row for each threshold. It shows the worst value among the phases with pauses,
// the name of that phase, and the value of the users who do not pause.
func usersTable(names []string, waiting []values, hurrying values) string {
	text := "| | to hold | worst phase of users who wait | 50 who do not wait |\n" +
		"| --- | --- | ---: | ---: |\n"
	for _, t := range thresholds {
		last := fmt.Sprintf("%.*f", t.digits, hurrying[t.value])
		if t.above != 0 {
			text += fmt.Sprintf("| %s | above %v: %s | | %s |\n", t.name, t.above,
				verdict(hurrying[t.value] > t.above), last)
			continue
		}
		worst := 0
		for i, v := range waiting {
			if v[t.value] > waiting[worst][t.value] {
				worst = i
			}
		}
		most := waiting[worst][t.value]
		text += fmt.Sprintf("| %s | below %v: %s | %.*f (%s) | %s |\n", t.name, t.below,
			verdict(most < t.below), t.digits, most, names[worst], last)
	}
	return text
}

func verdict(met bool) string {
	if met {
		return "met"
	}
	return "**missed**"
}

// crowd is the users of a service.
type crowd struct {
	server *server
	people []useragents.Person

	mu      sync.Mutex
	aliases []string // of links that can be followed
	took    map[string][]time.Duration
	errors  int
	urls    atomic.Int64
}

// play lets users come and go during one phase, and returns what they measured.
func (c *crowd) play(ctx context.Context, p phase, length time.Duration) values {
	c.took, c.errors = map[string][]time.Duration{}, 0
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var all sync.WaitGroup
	n := p.both + p.create + p.follow + p.readers
	for i := range n {
		var late time.Duration
		switch {
		case p.ramp:
			late = length * time.Duration(i) / time.Duration(n)
		case !p.hurry: // otherwise all would arrive at the same moment
			late = rand.N(mostPause)
		}
		all.Go(func() {
			for pause := late; wait(ctx, pause); {
				switch {
				case i < p.create, i < p.create+p.both && rand.Float64() < creating:
					c.create()
				case i < p.create+p.both+p.follow:
					c.ask("follow", http.MethodGet, "/"+c.alias(), "")
				default:
					c.ask("read", http.MethodGet, "/api/links/"+c.alias()+"/stats", "")
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
		v[kind] = milliseconds(sum) / float64(len(durations))
	}
	if len(took) == 0 { // interrupted
		return nil
	}
	slices.Sort(took)
	for name, percent := range map[string]int{"p50": 50, "p95": 95, "p99": 99} {
		v[name] = milliseconds(took[len(took)*percent/100])
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

func (c *crowd) alias() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.aliases[rand.IntN(len(c.aliases))]
}

// create makes a link. From then on, users follow it like the others.
func (c *crowd) create() {
	var made struct{ Alias string }
	text := c.ask("create", http.MethodPost, "/api/shorten", body(followedLinks+int(c.urls.Add(1))))
	if text != nil && json.Unmarshal(text, &made) == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.aliases = append(c.aliases, made.Alias)
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
