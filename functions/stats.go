package functions

import (
	"context"
	"encoding/csv"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"tiney/access"
	"tiney/clicks"
	"tiney/link"
)

// stats handles what tells of clicks, but for those in lists.
type stats struct {
	links      Reader
	statistics Statistics
	base       link.Base
	kept       int // for how many days there are counts
	now        func() time.Time
}

const (
	byDefault = 30 // days of a link's statistics
	topNames  = 10 // that are told of each dimension
)

// statsView is what became of a link in a range of days. All members are always there.
type statsView struct {
	Alias     link.Alias  `json:"alias"`
	From      string      `json:"from"`
	To        string      `json:"to"`
	Interval  string      `json:"interval"`
	Clicks    int64       `json:"clicks"`
	Bots      int64       `json:"bots"`
	Visitors  int64       `json:"visitors"`
	AverageMs *float64    `json:"averageMs"`
	LastAt    *string     `json:"lastAtUtc"`
	Series    []bucket    `json:"series"`
	Referrers []namedView `json:"referrers"`
	Countries []namedView `json:"countries"`
	Browsers  []namedView `json:"browsers"`
	Systems   []namedView `json:"systems"`
	Devices   []namedView `json:"devices"`
}

// bucket is a day or an hour.
type bucket struct {
	At       string `json:"at"`
	Clicks   int64  `json:"clicks"`
	Bots     int64  `json:"bots"`
	Visitors *int64 `json:"visitors"` // nil of an hour
}

type namedView struct {
	Name   string `json:"name"`
	Clicks int64  `json:"clicks"`
}

// link handles GET /api/links/{alias}/stats.
func (s *stats) link(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
	a, err := aliasOf(r)
	if err != nil {
		return err
	}
	query := parametersOf(r)
	from, to := s.days(&query)
	hourly := query.oneOf("interval", "day", "hour") == "hour"
	if query.problem != nil {
		return query.problem
	}
	l, err := s.links.Read(ctx, a)
	if err == nil {
		err = permit(who, l)
	}
	if err != nil {
		return err
	}
	days, err := s.statistics.Days(ctx, l, from, to)
	if err != nil {
		return err
	}
	w.Header().Set("Vary", "Accept")
	v := viewOf(a, from, days, hourly)
	if prefers(r.Header, "text/csv") {
		setHeaders(w, "text/csv; charset=utf-8")
		writeSeries(w, v.Series)
		return nil
	}
	setHeaders(w, "application/json")
	writeJSON(w, v)
	return nil
}

// days returns the range of days that a query asks for.
func (s *stats) days(query *parameters) (from, to clicks.Day) {
	from, fromGiven := query.day("from")
	to, toGiven := query.day("to")
	if !toGiven {
		to = clicks.DayOf(s.now())
	}
	if !fromGiven {
		from = to - clicks.Day(min(byDefault, s.kept)) + 1
	}
	switch {
	case from > to && toGiven:
		query.wrong("from", "from must not be after to.")
	case from > to:
		query.wrong("from", "from must not be after today (UTC).")
	case int(to-from) >= s.kept:
		query.wrong("from", fmt.Sprintf("There may be at most %d days from the one to the other.", s.kept))
	}
	return from, to
}

// viewOf returns what is told of days, the first of which is from.
func viewOf(a link.Alias, from clicks.Day, days []clicks.Count, hourly bool) statsView {
	v := statsView{Alias: a, From: from.Start().Format(time.DateOnly), To: (from + clicks.Day(len(days)-1)).Start().Format(time.DateOnly), Interval: "day"}
	if hourly {
		v.Interval = "hour"
	}
	var all clicks.Count
	each := make([]*clicks.Count, len(days))
	for i := range days {
		start := (from + clicks.Day(i)).Start()
		visitors := days[i].Visitors.Estimate()
		v.Visitors += visitors
		if hourly {
			for hour, h := range days[i].Hours {
				v.Series = append(v.Series, bucket{At: at(start.Add(time.Duration(hour) * time.Hour)), Clicks: int64(h.Clicks), Bots: int64(h.Bots)})
			}
		} else {
			v.Series = append(v.Series, bucket{at(start), days[i].Clicks, days[i].Bots, &visitors})
		}
		days[i].Visitors = clicks.Visitors{} // each day has its own key: nobody is known again on another one
		each[i] = &days[i]
	}
	all.Merge(each...)
	v.Clicks, v.Bots, v.AverageMs, v.LastAt = all.Clicks, all.Bots, milliseconds(all.Total), formatTime(all.Last)
	for d, names := range map[clicks.Dimension]*[]namedView{clicks.Referrers: &v.Referrers, clicks.Countries: &v.Countries,
		clicks.Browsers: &v.Browsers, clicks.Systems: &v.Systems, clicks.Devices: &v.Devices} {
		*names = []namedView{}
		for _, n := range all.Top(d, topNames) {
			*names = append(*names, namedView(n))
		}
	}
	return v
}

func at(t time.Time) string { return t.Format(time.RFC3339) }

// milliseconds returns how long the handling of a click took, and nil, for null, without clicks.
func milliseconds(t clicks.Total) *float64 {
	average, ok := t.Average()
	if !ok {
		return nil
	}
	return new(float64(average.Microseconds()) / 1000)
}

// writeSeries writes a series as CSV (RFC 4180). There is nothing but times and numbers in it, so that no spreadsheet finds a
// formula. An error means that the client has disconnected.
func writeSeries(w http.ResponseWriter, series []bucket) {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	_ = out.Write([]string{"at", "clicks", "bots", "visitors"})
	for _, b := range series {
		visitors := ""
		if b.Visitors != nil {
			visitors = strconv.FormatInt(*b.Visitors, 10)
		}
		_ = out.Write([]string{b.At, strconv.FormatInt(b.Clicks, 10), strconv.FormatInt(b.Bots, 10), visitors})
	}
	out.Flush()
}

// top handles GET /api/stats/top.
func (s *stats) top(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
	query := parametersOf(r)
	window := query.oneOf("window", string(clicks.LastDay), string(clicks.LastWeek))
	limit := query.integer("limit", 10, 1, 100)
	if query.problem != nil {
		return query.problem
	}
	owner := who.Owner
	if who.Admin {
		owner = ""
	}
	links, counts, err := s.statistics.Top(ctx, owner, clicks.Window(window), limit)
	if err != nil {
		return err
	}
	type clicked struct {
		Alias    link.Alias `json:"alias"`
		ShortURL string     `json:"shortUrl"`
		LongURL  string     `json:"longUrl"`
		Clicks   int64      `json:"clicks"`
	}
	items := make([]clicked, len(links))
	for i, l := range links {
		items[i] = clicked{l.Alias, s.base.ShortURL(l.Alias), l.LongURL, counts[i]}
	}
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Window string    `json:"window"`
		Items  []clicked `json:"items"`
	}{window, items})
	return nil
}

// service handles GET /api/stats.
func (s *stats) service(ctx context.Context, w http.ResponseWriter, _ *http.Request, _ access.Caller) error {
	total, err := s.statistics.Service(ctx)
	if err != nil {
		return err
	}
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Created   int64    `json:"linksCreated"`
		Clicks    int64    `json:"clicks"`
		AverageMs *float64 `json:"averageMs"`
	}{total.Created, total.Clicks, milliseconds(total)})
	return nil
}
