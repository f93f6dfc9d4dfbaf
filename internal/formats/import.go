package formats

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"tiney/internal/link"
)

// Importer imports links as they are. Links with the same alias are imported in order. A link that
// already exists with the same long URL stays as it is. After ctx has ended, the Importer begins no
// further link. Errors of a link: link.ErrBlocked, link.ErrAliasTaken, link.ErrDeleted,
// link.ErrLocked, link.ErrUnavailable.
type Importer interface {
	// Import imports links. What it returns is durable. Import is safe to repeat after any error.
	Import(ctx context.Context, links []link.Link) []link.Imported
	// TryImport returns what Import would return, and for each alias the link that has it. It only
	// reads. made has the links that earlier calls would have made, and TryImport adds to it.
	TryImport(ctx context.Context, links []link.Link,
		made map[link.Name]uint64) []link.Imported
}

// Import turns records into links, and imports them.
type Import struct {
	Links  Importer
	Rules  link.Rules
	Format Format // of the records
	Owner  string // the owner of all links, unless KeepOwners
	// KeepOwners lets the records say who owns the links.
	KeepOwners bool
	// Domain is the domain of all links. nil: the records say which.
	Domain *link.Domain
	// Admin is set if an admin imports. Then records in our own formats may have domains that the
	// service does not have any more, links may be taken down.
	Admin  bool
	DryRun bool // makes nothing, but keeps some 80 bytes per link in memory

	made map[link.Name]uint64 // by the dry run
}

const maxNamed = 1000 // bytes of an alias in a Result

// Result is the outcome of one record.
type Result struct {
	Line    int
	Entry   bool        // as in Record
	Alias   link.Alias  // as the record has it, even if it is not valid; "": none, or a very long one
	Domain  link.Domain // "" also if the record has one that is not valid
	Created bool        // the link was made; if not, it existed or Err says why not
	Left    Left        // what does not come along; without Err
	// Err is a RecordError, a *link.InvalidError, or an error of Importer.
	Err error
}

// Add imports records at the time now. The results are in the order of the records. Records whose
// result has link.ErrUnavailable can be imported again.
func (im *Import) Add(ctx context.Context, records []Record, now time.Time) []Result {
	results := make([]Result, len(records))
	var links []link.Link
	var pending []*Result // the results of links
	for i, record := range records {
		result := &results[i]
		result.Line, result.Entry = record.Line, record.Entry
		if name := string(record.Link.Name); len(name) <= maxNamed && utf8.ValidString(name) {
			result.Alias = link.Alias(name)
		}
		d, err := im.domain(record)
		result.Domain = d
		var l link.Link
		if err == nil {
			l, result.Left, err = im.link(record, d, now)
		}
		if err != nil {
			result.Err = err
			continue
		}
		links, pending = append(links, l), append(pending, result)
	}
	for i, done := range im.add(ctx, links) {
		if pending[i].Created, pending[i].Err = done.Created, done.Err; done.Err != nil {
			pending[i].Left = 0
		}
	}
	return results
}

func (im *Import) add(ctx context.Context, links []link.Link) []link.Imported {
	if !im.DryRun {
		return im.Links.Import(ctx, links)
	}
	if im.made == nil {
		im.made = map[link.Name]uint64{}
	}
	return im.Links.TryImport(ctx, links, im.made)
}

// link returns the link to import for a record, in its domain, and what does not come along. What
// is wrong with a rule of another program, or with where its link leads after its end, costs no
// more than that.
func (im *Import) link(record Record, d link.Domain, now time.Time) (link.Link, Left, error) {
	l, left := record.Link, record.Left
	l.Before = link.Count{
		Clicks: record.Total.Clicks, Bots: record.Total.Bots, LastAt: record.Total.Last}
	if !im.KeepOwners {
		if l.Owner != "" && l.Owner != im.Owner {
			left |= leftOwner
		}
		l.Owner = im.Owner
	}
	l.Locked = l.Locked && im.Admin
	if !im.Format.Own() {
		if l.Rules = im.Rules.FitRules(l); len(l.Rules) < len(record.Link.Rules) {
			left |= ofRules(record.Link.Rules)
		}
	}
	fit, err := im.Rules.Import(l, d, now)
	var wrong *link.InvalidError
	if errors.As(err, &wrong) && wrong.Field == link.FieldGoneURL && !im.Format.Own() {
		l.GoneURL = ""
		left |= leftGone
		fit, err = im.Rules.Import(l, d, now)
	}
	if err != nil {
		left = 0
	}
	return fit, left, err
}

// domain returns the domain of a record. The error is that of the record, or an *InvalidError.
func (im *Import) domain(record Record) (link.Domain, error) {
	switch {
	case record.Err != nil:
		return "", record.Err
	case im.Domain != nil:
		return *im.Domain, nil
	case record.Domain == "":
		return "", nil
	}
	d, configured, ok := im.Rules.Domain(record.Domain)
	switch {
	case configured, ok && im.Admin && im.Format.Own():
		return d, nil
	case !im.Format.Own(): // of a program that had a domain of its own
		return "", nil
	}
	return "", &link.InvalidError{Field: link.FieldDomain, Detail: im.Rules.DomainAdvice()}
}
