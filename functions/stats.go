package functions

import (
	"context"
	"encoding/csv"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/link"
)

const (
	defaultDays = 30 // of statistics
	topNames    = 10 // of each dimension
	allTargets  = 50 // as many as are counted
)

const (
	maxTagged = 100 // links with a tag or in a domain whose clicks are added up
	// maxTaggedCalls limits the lists of 1,000 links in which they are searched for. More would not
	// fit into the time of a request.
	maxTaggedCalls = 10
)

// statsView are the statistics of a link, or of several together, for a range of days. All members
// are always present, except that there is either an alias or an owner. Members that are not known
// for links with a tag are null.
type statsView struct {
	Alias     link.Alias   `json:"alias,omitzero"`
	Domain    link.Domain  `json:"domain,omitzero"`
	Owner     string       `json:"owner,omitzero"`
	From      string       `json:"from"`
	To        string       `json:"to"`
	Interval  string       `json:"interval"`
	Clicks    int64        `json:"clicks"`
	Bots      int64        `json:"bots"`
	Visitors  *int64       `json:"visitors"`
	AverageMs *float64     `json:"averageMs"`
	LastAt    *string      `json:"lastAtUtc"`
	Series    []bucket     `json:"series"`
	Referrers *[]namedView `json:"referrers"`
	Countries *[]namedView `json:"countries"`
	Browsers  *[]namedView `json:"browsers"`
	Systems   *[]namedView `json:"systems"`
	Devices   *[]namedView `json:"devices"`
	Sources   *[]namedView `json:"sources"`
	Targets   *[]namedView `json:"targets,omitzero"` // of a link only
}

// bucket is a day or an hour.
type bucket struct {
	At       string `json:"at"`
	Clicks   int64  `json:"clicks"`
	Bots     int64  `json:"bots"`
	Visitors *int64 `json:"visitors"` // nil for an hour, and for links with a tag
}

type namedView struct {
	Name   string `json:"name"`
	Clicks int64  `json:"clicks"`
}

// linkStats handles GET /api/links/{alias}/stats.
func (s *service) linkStats(c *call) (any, error) {
	if _, err := s.nameIn(c.r); err != nil { // a 404 comes before the query's 400
		return nil, err
	}
	query := parametersOf(c.r)
	from, to := s.days(&query)
	hourly := query.oneOf("interval", "day", "hour") == "hour"
	if err := query.err(); err != nil {
		return nil, err
	}
	l, err := s.permitted(c, s.Links.Read)
	if err != nil {
		return nil, err
	}
	days, err := s.Clicks.Days(c.ctx, l, from, to)
	if err != nil {
		return nil, err
	}
	v := viewStats(from, days, hourly)
	v.Alias, v.Domain = l.Alias(), s.Rules.DomainName(l.Name.Domain())
	return v, nil
}

// linksStats handles GET /api/stats/links: the statistics of all links of an owner together, or of
// those with a tag.
func (s *service) linksStats(c *call) (any, error) {
	query := parametersOf(c.r)
	owner := query.owner(c.who)
	tag, d := query.text("tag"), s.domainFilter(&query)
	from, to := s.days(&query)
	hourly := query.oneOf("interval", "day", "hour") == "hour"
	some := tag != "" || d != nil
	if hourly && some {
		query.wrong("interval", "interval must be day if there is a tag or a domain.")
	}
	if err := query.err(); err != nil {
		return nil, err
	}
	var v statsView
	if !some {
		days, err := s.Clicks.OwnerDays(c.ctx, owner, from, to)
		if err != nil {
			return nil, err
		}
		v = viewStats(from, days, hourly)
		v.Targets = nil
	} else {
		links, err := s.tagged(c.ctx, filter{owner: owner, tags: query.texts("tag"), domain: d})
		if err != nil {
			return nil, err
		}
		days, err := s.Clicks.LinksDays(c.ctx, links, from, to)
		if err != nil {
			return nil, err
		}
		v = viewTotals(from, days)
	}
	v.Owner = owner
	if d != nil {
		v.Domain = s.Rules.DomainName(*d)
	}
	return v, nil
}

// tagged returns all links of a filter with a tag or a domain. It returns a problem if there are
// too many.
func (s *service) tagged(ctx context.Context, f filter) (links []link.Link, err error) {
	by, have := "tag", "have this tag"
	if len(f.tags) == 0 {
		by, have = "domain", "are in this domain"
	}
	keep := f.keep(s.Now())
	for after, calls := "", 0; calls == 0 || after != ""; calls++ {
		if calls == maxTaggedCalls {
			return nil, badRequest("parameter", "Invalid parameter", fmt.Sprintf(
				"This owner has more than %d links, too many to find those that %s. Ask for "+
					"the clicks of single links instead.", calls*1000, have), by)
		}
		var found []link.Link
		found, after, err = s.Links.List(ctx, f.owner, after, maxTagged+1, keep)
		if err != nil {
			return nil, err
		}
		if links = append(links, found...); len(links) > maxTagged {
			return nil, badRequest("parameter", "Invalid parameter", fmt.Sprintf(
				"More than %d links %s. The clicks of at most %[1]d links are added up.",
				maxTagged, have), by)
		}
	}
	return links, nil
}

// respond responds with the statistics, as JSON or CSV.
func (v statsView) respond(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	if prefers(r.Header, "text/csv") {
		setHeaders(w, "text/csv; charset=utf-8")
		writeSeries(w, v.Series)
		return
	}
	writeJSON(w, http.StatusOK, v)
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

// newStats returns the view of a number of days without clicks. The first of them is from.
func newStats(from clicks.Day, days int) statsView {
	return statsView{
		From:     from.Start().Format(time.DateOnly),
		To:       (from + clicks.Day(days-1)).Start().Format(time.DateOnly),
		Interval: "day",
	}
}

// viewStats returns the view of days. The first of them is from.
func viewStats(from clicks.Day, days []clicks.Count, hourly bool) statsView {
	v := newStats(from, len(days))
	if hourly {
		v.Interval = "hour"
	}
	var all clicks.Count
	var visitors int64
	each := make([]*clicks.Count, len(days))
	for i := range days {
		start := (from + clicks.Day(i)).Start()
		ofDay := days[i].Visitors.Estimate()
		visitors += ofDay
		if hourly {
			for hour, h := range days[i].Hours {
				v.Series = append(v.Series, bucket{
					At:     at(start.Add(time.Duration(hour) * time.Hour)),
					Clicks: int64(h.Clicks),
					Bots:   int64(h.Bots),
				})
			}
		} else {
			v.Series = append(v.Series, bucket{at(start), days[i].Clicks, days[i].Bots, &ofDay})
		}
		days[i].Visitors = clicks.Visitors{} // cannot be merged: each day has its own key
		each[i] = &days[i]
	}
	all.Merge(each...)
	v.Clicks, v.Bots, v.Visitors = all.Clicks, all.Bots, &visitors
	v.AverageMs, v.LastAt = milliseconds(all.Total), formatTime(all.Last)
	top := func(d clicks.Dimension, most int) *[]namedView {
		names := []namedView{}
		for _, n := range all.Top(d, most) {
			names = append(names, namedView(n))
		}
		return &names
	}
	v.Referrers, v.Countries = top(clicks.Referrers, topNames),
		top(clicks.Countries, topNames)
	v.Browsers, v.Systems = top(clicks.Browsers, topNames), top(clicks.Systems, topNames)
	v.Devices, v.Targets = top(clicks.Devices, topNames), top(clicks.Targets, allTargets)
	none := clicks.Named{Name: clicks.None}
	for _, n := range all.Names[clicks.Referrers] { // which each click has that may have a source
		none.Clicks += n.Clicks
	}
	for _, n := range all.Names[clicks.Sources] {
		none.Clicks -= n.Clicks
	}
	if none.Clicks > 0 {
		all.Names[clicks.Sources] = append(all.Names[clicks.Sources], none)
	}
	v.Sources = top(clicks.Sources, topNames)
	return v
}

// viewTotals returns the view of days that have only counts of clicks and bots.
func viewTotals(from clicks.Day, days []clicks.Total) statsView {
	v := newStats(from, len(days))
	for i, t := range days {
		v.Clicks += t.Clicks
		v.Bots += t.Bots
		start := (from + clicks.Day(i)).Start()
		v.Series = append(v.Series, bucket{At: at(start), Clicks: t.Clicks, Bots: t.Bots})
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

// windows are the times that links may be ordered by the clicks of.
var windows = []string{string(clicks.LastDay), string(clicks.LastWeek), string(clicks.LastMonth)}

// clicked is a link and its clicks within a window.
type clicked struct {
	linkView
	Clicks int64 `json:"clicks"`
}

// topLinks handles GET /api/stats/top.
func (s *service) topLinks(c *call) (any, error) {
	query := parametersOf(c.r)
	window := query.oneOf("window", windows...)
	limit := query.integer("limit", 10, 1, 100)
	d := s.domainFilter(&query)
	owner := query.owner(c.who)
	if c.who.Admin && query.Get("owner") == "" {
		owner = "" // all
	}
	if err := query.err(); err != nil {
		return nil, err
	}
	links, counts, asOf, err := s.Clicks.Top(c.ctx, owner, d, clicks.Window(window), limit)
	if err != nil {
		return nil, err
	}
	items := make([]clicked, len(links))
	for i, l := range links {
		items[i] = clicked{s.viewLink(l), counts[i]}
	}
	return struct {
		Window string `json:"window"`
		AsOf   string `json:"asOfUtc"`
		list[clicked]
	}{window, at(asOf.UTC()), list[clicked]{items}}, nil
}

// serviceStats handles GET /api/stats.
func (s *service) serviceStats(c *call) (any, error) {
	total, err := s.Clicks.Service(c.ctx)
	return struct {
		Created   int64    `json:"linksCreated"`
		Clicks    int64    `json:"clicks"`
		AverageMs *float64 `json:"averageMs"`
	}{total.Created, total.Clicks, milliseconds(total)}, err
}
