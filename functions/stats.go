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

const (
	defaultDays = 30 // of a link's statistics
	topNames    = 10 // of each dimension
)

// statsView are the statistics of a link for a range of days. All members are always present.
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
	Visitors *int64 `json:"visitors"` // nil for an hour
}

type namedView struct {
	Name   string `json:"name"`
	Clicks int64  `json:"clicks"`
}

// linkStats handles GET /api/links/{alias}/stats.
func (s *service) linkStats(
	ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller,
) error {
	if _, err := aliasOf(r); err != nil { // a 404 comes before the query's 400
		return err
	}
	query := parametersOf(r)
	from, to := s.days(&query)
	hourly := query.oneOf("interval", "day", "hour") == "hour"
	if query.problem != nil {
		return query.problem
	}
	l, err := s.permitted(ctx, r, who)
	if err != nil {
		return err
	}
	days, err := s.Statistics.Days(ctx, l, from, to)
	if err != nil {
		return err
	}
	w.Header().Set("Vary", "Accept")
	v := viewStats(l.Alias, from, days, hourly)
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
func (s *service) days(query *parameters) (from, to clicks.Day) {
	from, fromGiven := query.day("from")
	to, toGiven := query.day("to")
	today := clicks.DayOf(s.Now())
	if !toGiven {
		to = today
	}
	byDefault := clicks.Day(min(defaultDays, s.CountsKept)) - 1
	if !fromGiven {
		from = to - byDefault
	}
	first := clicks.DayOf(time.Time{}) // of the year 1; earlier days have no RFC 3339 form
	switch {
	case to > today+1: // tomorrow may have begun by the clock of the client
		query.wrong("to", "to must not be after tomorrow (UTC).")
	case from < first:
		query.wrong("to", fmt.Sprintf("to must be %s or later, unless there is a from.",
			(first+byDefault).Start().Format(time.DateOnly)))
	case from > to && toGiven:
		query.wrong("from", "from must not be after to.")
	case from > to:
		query.wrong("from", "from must not be after today (UTC).")
	case int(to-from) >= s.CountsKept:
		query.wrong("from", fmt.Sprintf(
			"There may be at most %d days from the one to the other.", s.CountsKept))
	}
	return from, to
}

// viewStats returns the view of days. The first of them is from.
func viewStats(a link.Alias, from clicks.Day, days []clicks.Count, hourly bool) statsView {
	to := from + clicks.Day(len(days)-1)
	v := statsView{
		Alias:    a,
		From:     from.Start().Format(time.DateOnly),
		To:       to.Start().Format(time.DateOnly),
		Interval: "day",
	}
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
				v.Series = append(v.Series, bucket{
					At:     at(start.Add(time.Duration(hour) * time.Hour)),
					Clicks: int64(h.Clicks),
					Bots:   int64(h.Bots),
				})
			}
		} else {
			v.Series = append(v.Series, bucket{at(start), days[i].Clicks, days[i].Bots, &visitors})
		}
		days[i].Visitors = clicks.Visitors{} // cannot be merged: each day has its own key
		each[i] = &days[i]
	}
	all.Merge(each...)
	v.Clicks, v.Bots = all.Clicks, all.Bots
	v.AverageMs, v.LastAt = milliseconds(all.Total), formatTime(all.Last)
	for d, names := range map[clicks.Dimension]*[]namedView{
		clicks.Referrers: &v.Referrers,
		clicks.Countries: &v.Countries,
		clicks.Browsers:  &v.Browsers,
		clicks.Systems:   &v.Systems,
		clicks.Devices:   &v.Devices,
	} {
		*names = []namedView{}
		for _, n := range all.Top(d, topNames) {
			*names = append(*names, namedView(n))
		}
	}
	return v
}

func at(t time.Time) string { return t.Format(time.RFC3339) }

// milliseconds returns how long the handling of a click took on average. Without clicks it returns
// nil, which becomes null.
func milliseconds(t clicks.Total) *float64 {
	average, ok := t.Average()
	if !ok {
		return nil
	}
	return new(float64(average.Microseconds()) / 1000)
}

// writeSeries writes a series as CSV (RFC 4180). The series has only times and numbers, so that no
// spreadsheet finds a formula. writeSeries ignores errors: they mean that the client has
// disconnected.
func writeSeries(w http.ResponseWriter, series []bucket) {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	_ = out.Write([]string{"at", "clicks", "bots", "visitors"})
	for _, b := range series {
		visitors := ""
		if b.Visitors != nil {
			visitors = strconv.FormatInt(*b.Visitors, 10)
		}
		_ = out.Write([]string{
			b.At, strconv.FormatInt(b.Clicks, 10), strconv.FormatInt(b.Bots, 10), visitors})
	}
	out.Flush()
}

// topLinks handles GET /api/stats/top.
func (s *service) topLinks(
	ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller,
) error {
	query := parametersOf(r)
	window := query.oneOf("window", string(clicks.LastDay), string(clicks.LastWeek))
	limit := query.integer("limit", 10, 1, 100)
	if query.problem != nil {
		return query.problem
	}
	links, counts, err := s.Statistics.Top(ctx, managedOwner(who), clicks.Window(window), limit)
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
		items[i] = clicked{l.Alias, s.Rules.Base.ShortURL(l.Alias), l.LongURL, counts[i]}
	}
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Window string    `json:"window"`
		Items  []clicked `json:"items"`
	}{window, items})
	return nil
}

// serviceStats handles GET /api/stats.
func (s *service) serviceStats(
	ctx context.Context, w http.ResponseWriter, _ *http.Request, _ access.Caller,
) error {
	total, err := s.Statistics.Service(ctx)
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
