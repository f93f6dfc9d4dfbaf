package transfer

import (
	"context"
	"time"

	"tiney/link"
)

// Importer imports links as they are. Of several with one alias the first comes first. A link that
// is there and has the same long URL stays as it is. When ctx has ended, no other link is begun.
// Errors of a link: link.ErrBlocked, link.ErrAliasTaken, link.ErrDeleted, link.ErrUnavailable.
type Importer interface {
	// Import makes what it returns durable, and is safe to repeat after any error.
	Import(ctx context.Context, links []link.Link) []link.Imported
	// TryImport returns what Import would, and what is there, and only reads. Made has what earlier
	// calls would have made, and is added to.
	TryImport(ctx context.Context, links []link.Link, made map[link.Alias]uint64) []link.Imported
}

// Import turns records into links, and imports them.
type Import struct {
	Links  Importer
	Rules  link.Rules
	Owner  string // of all links, unless KeepOwners
	DryRun bool   // makes nothing, and keeps some 80 bytes of each link in memory
	// KeepOwners lets the records say who owns the links.
	KeepOwners bool

	made map[link.Alias]uint64 // by the dry run
}

// Result is what became of one record.
type Result struct {
	Line    int
	Alias   link.Alias // "" if the record has none, or one that is not valid
	Created bool       // the link was made; else it was there, or Err says why not
	// Err is a RecordError, a *link.InvalidError, or an error of Importer.
	Err error
}

// Add imports records at now. The results are in their order; those with link.ErrUnavailable can be
// imported again.
func (im *Import) Add(ctx context.Context, records []Record, now time.Time) []Result {
	results := make([]Result, len(records))
	var links []link.Link
	var pending []*Result // of the links
	for i, record := range records {
		result := &results[i]
		result.Line = record.Line
		if _, ok := link.ParseAlias(string(record.Link.Alias)); ok {
			result.Alias = record.Link.Alias
		}
		l, err := im.link(record, now)
		if err != nil {
			result.Err = err
			continue
		}
		links, pending = append(links, l), append(pending, result)
	}
	for i, done := range im.add(ctx, links) {
		pending[i].Created, pending[i].Err = done.Created, done.Err
	}
	return results
}

func (im *Import) add(ctx context.Context, links []link.Link) []link.Imported {
	if !im.DryRun {
		return im.Links.Import(ctx, links)
	}
	if im.made == nil {
		im.made = map[link.Alias]uint64{}
	}
	return im.Links.TryImport(ctx, links, im.made)
}

// link returns the link that a record is to become.
func (im *Import) link(record Record, now time.Time) (link.Link, error) {
	if record.Err != nil {
		return link.Link{}, record.Err
	}
	l := record.Link
	l.Before = link.Count{
		Clicks: record.Total.Clicks, Bots: record.Total.Bots, LastAt: record.Total.Last}
	if !im.KeepOwners {
		l.Owner = im.Owner
	}
	return im.Rules.Import(l, now)
}
