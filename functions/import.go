package functions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"tiney/internal/access"
	"tiney/internal/formats"
	"tiney/internal/link"
	"tiney/internal/telemetry"
)

// auto, as format, asks to detect the format.
const auto = "auto"

const (
	maxImport      = 1000    // records at a time
	maxImportBytes = 4 << 20 // of a body
)

// importLinks handles POST /api/import.
func (s *service) importLinks(c *call) (any, error) {
	query := parametersOf(c.r)
	format := formats.Format(query.oneOf("format", append(formatNames(), auto)...))
	d := s.domainFilter(&query)
	if d != nil && !s.Rules.Has(*d) {
		query.wrong("domain", s.Rules.DomainAdvice())
	}
	dryRun := query.oneOf("dryRun", "false", "true") == "true"
	owner := query.owner(c.who)
	if err := query.err(); err != nil {
		return nil, err
	}
	body, leave, err := s.large.read(c, maxImportBytes)
	if err != nil {
		return nil, err
	}
	defer leave()
	var records []formats.Record
	var file io.Reader = &timedReader{c.ctx, &body}
	if format == auto {
		if format, file, err = formats.Guess(file); err != nil {
			return nil, badRequest("file", "The format cannot be guessed", err.Error(), "format")
		}
	}
	for record, err := range formats.Read(file, format) {
		if err != nil && c.ctx.Err() != nil {
			return nil, errTimeUp
		}
		if err != nil {
			return nil, badRequest("file", "This file cannot be read", err.Error(), "")
		}
		if records = append(records, record); len(records) > maxImport {
			detail := fmt.Sprintf(
				"One import may have at most %d links. Send the rest in further ones.", maxImport)
			return nil, badRequest("file", "Too many lines", detail, "")
		}
	}
	in := formats.Import{
		Links:      &probing{s.Links, s.limits, c.who},
		Rules:      s.Rules,
		Format:     format,
		Domain:     d,
		Owner:      owner,
		KeepOwners: c.who.Admin && format.Own() && query.Get("owner") == "",
		DryRun:     dryRun,
		Admin:      c.who.Admin,
	}
	all := make([]importResult, len(records))
	made := 0
	var unavailable error
	for i, done := range in.Add(c.ctx, records, s.Now()) {
		all[i] = importResult{Line: done.Line, Alias: done.Alias,
			Domain: s.Rules.DomainName(done.Domain), Status: http.StatusOK, Left: done.Left.Words()}
		switch {
		case done.Err != nil:
			all[i].Problem = importProblem(done.Err)
			all[i].Status = all[i].Problem.Status
			if errors.Is(done.Err, link.ErrUnavailable) {
				unavailable = done.Err
			}
		case done.Created:
			all[i].Status = http.StatusCreated
			made++
		}
	}
	if unavailable != nil {
		s.Log.Warn(telemetry.LogStorageUnavailable, "function", "import", "error", unavailable)
	}
	if made > 0 && !dryRun {
		s.Clicks.Created(made)
	}
	return struct {
		Format formats.Format `json:"format"`
		results[importResult]
	}{format, results[importResult]{all}}, nil
}

// importResult is the outcome of one record.
type importResult struct {
	Line    int         `json:"line"`
	Status  int         `json:"status"` // 201: made, 200: already there; else the problem's
	Alias   link.Alias  `json:"alias,omitempty"`
	Domain  link.Domain `json:"domain"`
	Left    []string    `json:"left"` // of formats.LeftWords
	Problem *problem    `json:"problem,omitempty"`
}

// importProblem returns the problem of an error of an import.
func importProblem(err error) *problem {
	var damaged formats.RecordError
	if errors.As(err, &damaged) {
		return badRequest("record", "This record cannot be read", damaged.Error(), "")
	}
	return problemOf(err)
}

// ImportProblem describes an error of an import in the words of the API.
func ImportProblem(err error) string {
	p := importProblem(err)
	return p.Title + ": " + p.Detail
}

// probing limits how many aliases of other owners a caller can find by dry runs.
type probing struct {
	formats.Importer
	limits *limits
	who    access.Caller
}

func (p *probing) TryImport(
	ctx context.Context, links []link.Link, made map[link.Name]uint64,
) []link.Imported {
	done := p.Importer.TryImport(ctx, links, made)
	for i, d := range done {
		if errors.Is(d.Err, link.ErrBlocked) || errors.Is(d.Err, link.ErrUnavailable) {
			continue // these errors say nothing about the alias
		}
		if err := p.limits.probe(p.who, d.There); err != nil {
			done[i] = link.Imported{Err: err}
		}
	}
	return done
}

// timedReader reads from r until ctx ends, and then returns the error of ctx. It reads little at a
// time, because megabytes of a file may hold no record.
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
	for _, f := range formats.Formats {
		names = append(names, string(f))
	}
	return names
}
