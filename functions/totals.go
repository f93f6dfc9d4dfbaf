package functions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"tiney/internal/access"
	"tiney/internal/link"
)

const (
	maxAliases      = 100  // in one call for their clicks
	maxAliasesBytes = 4000 // of all of them together
	readsAtOnce     = 25
)

// linkTotals handles GET /api/stats/clicks: the totals of some links.
func (s *service) linkTotals(c *call) (any, error) {
	query := parametersOf(c.r)
	text := query.text("alias")
	named := strings.Split(text, ",")
	if text == "" || len(text) > maxAliasesBytes || len(named) > maxAliases {
		query.wrong("alias", fmt.Sprintf("alias must be 1 to %d aliases with commas between them, "+
			"of at most %d bytes in all.", maxAliases, maxAliasesBytes))
	}
	if err := query.err(); err != nil {
		return nil, err
	}
	links, err := s.readAll(c.ctx, c.who, named)
	if err != nil {
		return nil, err
	}
	totals, err := s.Clicks.Totals(c.ctx, links)
	if err != nil {
		return nil, err
	}
	type item struct {
		Alias  link.Alias  `json:"alias"`
		Domain link.Domain `json:"domain"`
		*clicksView
	}
	items := make([]item, len(links))
	for i, l := range links {
		items[i] = item{l.Alias(), s.Rules.DomainName(l.Name.Domain()), viewTotal(totals[i])}
	}
	return list[item]{items}, nil
}

// readAll returns the links with these aliases, each once, in the order of the aliases. It leaves
// out links that are unknown, damaged or not the caller's.
func (s *service) readAll(
	ctx context.Context, who access.Caller, named []string,
) ([]link.Link, error) {
	var aliases []link.Name
	for _, name := range named {
		a, ok := s.Rules.ParseName(name)
		if ok && !slices.Contains(aliases, a) {
			aliases = append(aliases, a)
		}
	}
	found := make([]link.Link, len(aliases))
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(readsAtOnce)
	for i, a := range aliases {
		reads.Go(func() error {
			l, err := s.Links.Read(ctx, a)
			switch {
			case errors.Is(err, link.ErrNotFound), errors.Is(err, link.ErrDamaged):
				return nil
			case err != nil:
				return err
			case permit(who, l) == nil:
				found[i] = l
			}
			return nil
		})
	}
	err := reads.Wait()
	seen := map[link.Name]bool{"": true}
	return slices.DeleteFunc(found, func(l link.Link) bool { // one alias may have two spellings
		is := seen[l.Name]
		seen[l.Name] = true
		return is
	}), err
}
