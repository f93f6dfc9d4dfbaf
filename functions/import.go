package functions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"tiney/access"
	"tiney/link"
	"tiney/telemetry"
	"tiney/transfer"
)

const (
	maxImport      = 1000    // records at a time
	maxImportBytes = 4 << 20 // of a body
)

// importing handles POST /api/import.
type importing struct {
	links  Importer
	rules  link.Rules
	limits *limits
	clicks Clicks
	now    func() time.Time
	log    *slog.Logger
}

func (im *importing) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
	query := parametersOf(r)
	format := transfer.Format(query.oneOf("format", formatNames()...))
	dryRun := query.oneOf("dryRun", "false", "true") == "true"
	if query.problem != nil {
		return query.problem
	}
	body, err := readBody(w, r, maxImportBytes)
	if err != nil {
		return err
	}
	var records []transfer.Record
	for record, err := range transfer.Read(&timedReader{ctx, bytes.NewReader(body)}, format) {
		if err != nil && ctx.Err() != nil {
			return errManyTime
		}
		if err != nil {
			return badRequest("file", "This file cannot be read", err.Error(), "")
		}
		if records = append(records, record); len(records) > maxImport {
			return badRequest("file", "Too many lines", fmt.Sprintf("One import may have at most %d links. Send the rest in further ones.", maxImport), "")
		}
	}
	in := NewImport(im.links, im.rules, who, format, dryRun)
	in.limits = im.limits
	results, made, unavailable := in.Add(ctx, records, im.now())
	if unavailable != nil {
		im.log.Warn(telemetry.LogStorageUnavailable, "function", "import", "error", unavailable)
	}
	if made > 0 && !dryRun {
		im.clicks.Created(made)
	}
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Results []ImportResult `json:"results"`
	}{results})
	return nil
}

// timedReader is r until ctx has ended, whose error it returns then. It hands out little at a time, because a file may have no
// records in megabytes.
type timedReader struct {
	ctx context.Context
	r   io.Reader
}

func (t *timedReader) Read(p []byte) (int, error) {
	if err := t.ctx.Err(); err != nil {
		return 0, err
	}
	return t.r.Read(p[:min(len(p), 64<<10)])
}

// formatNames returns the names of all formats, the default first.
func formatNames() (names []string) {
	for _, f := range transfer.Formats {
		names = append(names, string(f))
	}
	return names
}

// Import turns records into links, and imports them for somebody: each record as if it were a request of its own.
type Import struct {
	links Importer
	rules link.Rules
	who   access.Caller
	owned bool                  // the records say who owns the links
	made  map[link.Alias]uint64 // nil: it is no dry run

	limits *limits // of what a dry run tells; nil: it tells all
}

// NewImport returns an Import of a file of this format. The links become those of who, unless that is an admin and the format
// one of our own: then they have the owners that the file says, or none. A dry run makes nothing, and keeps some 80 bytes of
// each link in memory.
func NewImport(links Importer, rules link.Rules, who access.Caller, f transfer.Format, dryRun bool) *Import {
	im := &Import{links: links, rules: rules, who: who, owned: who.Admin && f.Own()}
	if dryRun {
		im.made = map[link.Alias]uint64{}
	}
	return im
}

// ImportResult is what became of one record.
type ImportResult struct {
	Line    int        `json:"line"`
	Status  int        `json:"status"` // 201: the link was made, 200: it was there; else that of the problem
	Alias   link.Alias `json:"alias,omitempty"`
	Problem *problem   `json:"problem,omitempty"`
}

// String says what became of the record, in words for people.
func (r ImportResult) String() string {
	if r.Problem == nil {
		return fmt.Sprintf("line %d: %s: %d", r.Line, r.Alias, r.Status)
	}
	name := ""
	if r.Alias != "" {
		name = string(r.Alias) + ": "
	}
	return fmt.Sprintf("line %d: %s%s: %s", r.Line, name, r.Problem.Title, r.Problem.Detail)
}

// Add imports some of the records at now. The results are in their order. Made is how many links it has made, or would have; the
// error is that of a link that storage did not respond for: those have 503, and can be imported again.
func (im *Import) Add(ctx context.Context, records []transfer.Record, now time.Time) (results []ImportResult, made int, unavailable error) {
	results = make([]ImportResult, len(records))
	var links []link.Link
	var of []int // the indices of their records
	for i, record := range records {
		results[i].Line = record.Line
		l, err := im.link(record, now)
		if err != nil {
			results[i].refuse(record.Link.Alias, err)
			continue
		}
		links, of = append(links, l), append(of, i)
	}
	var done []link.Imported
	if im.made != nil {
		done = im.links.TryImport(ctx, links, im.made)
		if im.limits != nil {
			im.hide(done)
		}
	} else {
		done = im.links.Import(ctx, links)
	}
	for n, d := range done {
		r := &results[of[n]]
		r.Alias = links[n].Alias
		switch {
		case d.Err != nil:
			r.refuse(links[n].Alias, d.Err)
			if errors.Is(d.Err, link.ErrUnavailable) {
				unavailable = d.Err
			}
		case d.Created:
			r.Status = http.StatusCreated
			made++
		default:
			r.Status = http.StatusOK
		}
	}
	return results, made, unavailable
}

// hide replaces what a dry run may not tell of aliases that are not the caller's.
func (im *Import) hide(done []link.Imported) {
	for i, d := range done {
		if errors.Is(d.Err, link.ErrBlocked) || errors.Is(d.Err, link.ErrUnavailable) {
			continue // which says nothing of the alias
		}
		if err := im.limits.probe(im.who, d.There); err != nil {
			done[i] = link.Imported{Err: err}
		}
	}
}

func (r *ImportResult) refuse(a link.Alias, err error) {
	if _, ok := link.ParseAlias(string(a)); ok { // else it is of any length
		r.Alias = a
	}
	r.Problem = problemOf(err)
	r.Status = r.Problem.Status
}

// link returns the link that a record is to become.
func (im *Import) link(record transfer.Record, now time.Time) (link.Link, error) {
	if record.Err != nil {
		return link.Link{}, badRequest("record", "This record cannot be read", record.Err.Error(), "")
	}
	l := record.Link
	l.Before = link.Count{Clicks: record.Total.Clicks, Bots: record.Total.Bots, LastAt: record.Total.Last}
	if !im.owned {
		l.Owner = im.who.Owner
	}
	return im.rules.Import(l, now)
}
