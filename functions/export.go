package functions

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"time"

	"tiney/internal/clicks"
	"tiney/internal/formats"
	"tiney/internal/link"
)

const (
	maxExport   = 1000 // links in one page of an export
	exportChunk = 100  // links whose totals an export reads with one call
	allOwners   = "*"  // as owner, exports every owner's links; admins only
)

// export handles GET /api/export.
func (s *service) export(c *call) (any, error) {
	query := parametersOf(c.r)
	format := query.oneOf("format", string(formats.NDJSON), string(formats.CSV))
	use := query.text("for")
	if query.Has("for") && (use != "spreadsheet" || format != string(formats.CSV)) {
		query.wrong("for",
			"for may be spreadsheet, and only with format=csv. Leave it out otherwise.")
	}
	named := query.text("owner")
	all := named == allOwners
	f := filter{export: "all"}
	s.search(&query, &f)
	if !all {
		f.export = "owner" // another cursor than that of all: an owner may be named allOwners
		f.owner = query.owner(c.who)
	}
	f.domain = s.domainFilter(&query)
	if query.Has("state") {
		f.state = query.oneOf("state", wantLive, string(link.StateScheduled),
			string(link.StateExpired), string(link.StateDisabled))
	}
	const wrongCursor = "cursor must be that of the Link header of an export of the same links. " +
		"Leave it out to start again."
	after, ok := f.position(query.text("cursor"))
	if !ok {
		query.wrong("cursor", wrongCursor)
	}
	if all && !c.who.Admin {
		return nil, adminNeededProblem
	}
	if err := query.err(); err != nil {
		return nil, err
	}
	links, totals, next, err := s.exportPage(c.ctx, f, all, after)
	if errors.Is(err, link.ErrPosition) { // the client made up the cursor
		query.wrong("cursor", wrongCursor)
		return nil, query.problem
	}
	if err != nil {
		return nil, err
	}
	more := ""
	if next != "" {
		query := url.Values{"format": {format}, "cursor": {f.cursor(next)}, "tag": f.tags}
		if f.domain != nil {
			query.Set("domain", string(s.Rules.DomainName(*f.domain)))
		}
		given := map[string]string{"owner": named, "for": use, "q": f.q, "state": f.state}
		for name, value := range given {
			if value != "" {
				query.Set(name, value)
			}
		}
		more = s.Rules.Base.String() + "/api/export?" + query.Encode()
	}
	return written(func(w http.ResponseWriter, _ *http.Request) {
		contentType := "application/x-ndjson"
		if format == string(formats.CSV) {
			contentType = "text/csv; charset=utf-8"
		}
		setHeaders(w, contentType)
		w.Header().Set("Content-Disposition", `attachment; filename="links.`+format+`"`)
		if more != "" {
			w.Header().Set("Link", "<"+more+`>; rel="next"`)
		}
		out := formats.NewWriter(w, formats.Format(format), s.Rules, use != "")
		out.WithoutHashes = c.who.ReadOnly
		for i, l := range links {
			if err := out.Write(formats.Record{Link: l, Total: totals[i]}); err != nil {
				return // the client has disconnected
			}
		}
		_ = out.Flush()
	}), nil
}

// exportPage returns a page of the links of a filter, or of those of all owners that the filter
// would have, and their totals. It leaves out deleted links. It reads a chunk of links and their
// totals at a time, and no further chunk after half of the request's time. If the totals of a
// further chunk cannot be read, the page ends before that chunk.
func (s *service) exportPage(
	ctx context.Context, f filter, all bool, after string,
) (links []link.Link, totals []clicks.Total, next string, err error) {
	kept := f.keep(s.Now())
	list := func(after string, limit int) ([]link.Link, string, error) {
		if a, ok := s.Rules.NameOf(f.q); ok {
			links, err := s.listAlias(ctx, a, f, all)
			return links, "", err
		}
		if all {
			links, next, _, err := s.Links.All(ctx, after, limit)
			unkept := func(l link.Link) bool { return !kept(l) }
			return slices.DeleteFunc(links, unkept), next, err
		}
		return s.Links.List(ctx, f.owner, after, limit, kept)
	}
	deadline, _ := ctx.Deadline()
	half := time.Now().Add(time.Until(deadline) / 2)
	for next = after; len(links) < maxExport; {
		chunk, end, err := list(next, min(exportChunk, maxExport-len(links)))
		var chunkTotals []clicks.Total
		if err == nil {
			chunkTotals, err = s.Clicks.Totals(ctx, chunk)
		}
		if errors.Is(err, link.ErrUnavailable) && next != after {
			break
		}
		if err != nil {
			return nil, nil, "", err
		}
		links, totals, next = append(links, chunk...), append(totals, chunkTotals...), end
		if next == "" || !time.Now().Before(half) {
			break
		}
	}
	return links, totals, next, nil
}
