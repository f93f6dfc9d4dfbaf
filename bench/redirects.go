package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// The rows of redirects.
const (
	bareRow     = "bare net/http"
	tunedRow    = "bare net/http, GOGC=400"
	nginxRow    = "nginx, return 302"
	ownRow      = "cached, on its own"
	hostedRow   = "cached, behind the host"
	negativeRow = "no such link, cached"
	missRow     = "not cached: one read"
	mixedRow    = "80 % cached, 20 % new links"
)

// redirects measures what the service does in a second, beside what its platform and the machine can do.
func (b *bench) redirects(ctx context.Context) (string, error) {
	walk, err := b.makeWalk(ctx, int(linksWalked*(time.Second+b.length).Seconds()))
	if err != nil {
		return "", err
	}
	defer walk.drop(ctx)
	nginx := findNginx()
	var notes []string
	if nginx == "" {
		notes = append(notes, "nginx is not installed (Debian, Ubuntu: apt-get install nginx-light), so it is not compared.")
	}
	r := new(results)
	for round := range b.rounds {
		fmt.Fprintf(os.Stderr, "round %d of %d\n", round+1, b.rounds)
		if err := b.takeTurns(ctx, r, nginx); err != nil {
			return "", err
		}
	}
	others, err := interleave(ctx, b.rounds, []subject{
		loaded(missRow, "", walk.start, walk.load),
		loaded(mixedRow, "", func(ctx context.Context) (*service, error) { return b.start(ctx, false) }, b.mixed),
	})
	if err != nil {
		return "", err
	}
	r.join(others)

	head := fmt.Sprintf("%d rounds with fresh processes; in each, %d turns of a second, or one of %v for the last two. %s, %d connections.",
		b.rounds, b.turns(), b.length, b.generator(), b.connections)
	text := strings.Join(append([]string{head}, notes...), "\n") + "\n\n"
	if b.file != "" {
		picture := plot{
			title: "Requests answered in a second",
			bars:  bars(r, "req/s", []string{bareRow, tunedRow, nginxRow}),
			notes: append([]string{"Median, smallest and largest of " + head, "Measured on " + measuredOn() + "."}, notes...),
		}
		name, err := picture.write(b.file)
		if err != nil {
			return "", err
		}
		text += "![The first column of the table as bars](" + name + ")\n\n"
	}
	for _, kind := range kinds {
		for _, run := range r.runs[mixedRow] {
			r.add("– "+kind, "", values{"req/s": run.own[kind+" req/s"], "p50": run.own[kind+" p50"], "p99": run.own[kind+" p99"]})
		}
	}
	cached := []string{ownRow, hostedRow}
	return text + r.table([]column{
		{head: "requests/s", value: "req/s"},
		{head: "p50 ms", value: "p50", digits: 2},
		{head: "p99 ms", value: "p99", digits: 2},
		{head: "CPU µs each", value: "µs", digits: 1},
		{head: "MB then", value: "MB", digits: 1},
		{head: "requests/s, to bare net/http", value: "req/s", digits: 3, of: ratio, atLeast: 0.95, rows: cached},
		{head: "p99, to bare net/http", value: "p99", digits: 3, of: ratio, atMost: 1.15, rows: cached},
		{head: "CPU, to bare net/http", value: "µs", digits: 3, of: ratio},
		{head: "CPU % of others", value: "others"},
	}), nil
}

// turns is how often each of those that take turns has its second in a round.
func (b *bench) turns() int { return max(1, int(b.length.Seconds())) }

// takeTurns starts all that is compared with bare net/http, and that one, and has them answer for a second at a time, each
// of them right after bare net/http. The machine's speed changes within seconds: neighbours of a second have the same one.
func (b *bench) takeTurns(ctx context.Context, r *results, nginx string) error {
	type server struct {
		name  string
		start func(context.Context) (*service, error)
		*service
	}
	servers := []*server{
		{name: bareRow, start: func(ctx context.Context) (*service, error) { return b.startBare(ctx) }},
		{name: tunedRow, start: func(ctx context.Context) (*service, error) { return b.startBare(ctx, "GOGC=400") }},
		{name: ownRow, start: func(ctx context.Context) (*service, error) { return b.start(ctx, false) }},
		{name: hostedRow, start: func(ctx context.Context) (*service, error) { return b.start(ctx, true) }},
		{name: negativeRow, start: func(ctx context.Context) (*service, error) {
			s, err := b.start(ctx, false)
			if err == nil {
				s.path, s.status = "/nobody", http.StatusNotFound // the first answer comes from the table, those after it do not
			}
			return s, err
		}},
	}
	if nginx != "" {
		servers = slices.Insert(servers, 1, &server{name: nginxRow, start: func(ctx context.Context) (*service, error) {
			return b.startNginx(ctx, nginx)
		}})
	}
	for _, s := range servers {
		var err error
		if s.service, err = s.start(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		defer s.stop()
		if _, err := b.flatOut(ctx, s.service, time.Second); err != nil { // to warm up
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	turn := func(s *server, against string) error {
		busy := newMeter()
		v, err := timed(s.service, func() (values, error) { return b.flatOut(ctx, s.service, time.Second) })
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		v["others"] = busy.others()
		if s.name != nginxRow { // whose memory is its workers'
			v["MB"], _, err = memory(s.cmd.Process.Pid)
		}
		r.add(s.name, against, v)
		return err
	}
	for range b.turns() {
		quiet(ctx)
		for _, s := range servers[1:] {
			if err := errors.Join(turn(servers[0], ""), turn(s, bareRow)); err != nil {
				return err
			}
		}
	}
	return nil
}

// loaded is a subject that is a fresh server under a load.
func loaded(name, against string, start func(context.Context) (*service, error), load func(context.Context, *service) (values, error)) subject {
	return subject{name, against, func(ctx context.Context) (values, error) {
		s, err := start(ctx)
		if err != nil {
			return nil, err
		}
		defer s.stop()
		return load(ctx, s)
	}}
}

// linksWalked is how many links there are for each second of a walk: more than Azurite reads in one.
const linksWalked = 3000

// walk asks for links that the cache does not hold: each one once, of tables of their own. The process is a fresh one
// each time, and so the links can be the same.
type walk struct {
	*bench
	*tables
	count int
}

func (b *bench) makeWalk(ctx context.Context, count int) (*walk, error) {
	t, err := newTables(ctx, b.emulator.ConnectionString())
	if err != nil {
		return nil, err
	}
	return &walk{b, t, count}, t.put(count, alive, t.insert(ctx), t.links) // redirects need no other rows
}

func (w *walk) start(ctx context.Context) (*service, error) {
	return w.startOn(ctx, false, w.tables)
}

// load goes through the links with a load generator of its own, which wrk would need a script for. The reads before the
// measured ones leave the service with connections to the table.
func (w *walk) load(ctx context.Context, s *service) (values, error) {
	var next atomic.Int64
	return measured(s, w.length, func(length time.Duration) (values, error) {
		start := time.Now()
		all := w.together(s, func(_ int, c *connection) (t tally) {
			for now := start; now.Sub(start) < length && ctx.Err() == nil; now = time.Now() {
				i := int(next.Add(1)) - 1
				if i >= w.count {
					break // the links are used up before the time is, and the rate is what was until then
				}
				c.ask("/" + string(aliasOf(i)))
				t.get(c, now)
			}
			return t
		})
		return all.values(ctx, time.Since(start))
	})
}

// kinds are the kinds of requests of a mixed load.
var kinds = []string{"the redirects of these", "the new links of these"}

// mixed sends four redirects that are cached and then a URL that is new, over and over on each connection.
func (b *bench) mixed(ctx context.Context, s *service) (values, error) {
	return measured(s, b.length, func(length time.Duration) (values, error) {
		tallies := make([][2]tally, b.connections)
		start := time.Now()
		b.together(s, func(n int, c *connection) (none tally) {
			// Each connection is at another place of the five, so that the new links do not come in waves.
			for i, now := n, start; now.Sub(start) < length && ctx.Err() == nil; i, now = i+1, time.Now() {
				if i%5 == 4 {
					c.shorten(fmt.Sprintf("https://example.com/mixed/%d/%d/%d", start.UnixNano(), n, i))
					c.status = http.StatusCreated
					tallies[n][1].get(c, now)
				} else {
					c.ask(s.path)
					c.status = s.status
					tallies[n][0].get(c, now)
				}
			}
			return none
		})
		took := time.Since(start)
		var all tally
		var each [2]tally
		for _, t := range tallies {
			for kind := range each {
				each[kind].add(t[kind])
				all.add(t[kind])
			}
		}
		v, err := all.values(ctx, took)
		for kind, name := range kinds {
			one, failed := each[kind].values(ctx, took)
			if err = errors.Join(err, failed); err != nil {
				return nil, err
			}
			for what, value := range one {
				v[name+" "+what] = value
			}
		}
		return v, nil
	})
}

// shorten says that get asks for a link to a URL.
func (c *connection) shorten(longURL string) {
	body := `{"longUrl":"` + longURL + `"}`
	c.request = fmt.Appendf(nil, "POST /api/shorten HTTP/1.1\r\nHost: tiney.to\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}
