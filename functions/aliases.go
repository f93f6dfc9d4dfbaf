package functions

import (
	"errors"
	"strings"

	"tiney/internal/link"
)

// freeAlias handles GET /api/aliases/{alias}: whether a new link may have this alias, as alias or
// as alias@domain. Another caller may take the alias right after the response.
func (s *service) freeAlias(c *call) (any, error) {
	alias, named, is := strings.Cut(c.r.PathValue("alias"), "@")
	var given *string
	if is {
		given = &named
	}
	d, err := s.domain(given)
	if err != nil {
		return nil, err
	}
	if _, _, err := s.Rules.Choose(alias, d); err != nil {
		return nil, err
	}
	// An older row may have this very spelling. Otherwise case may not matter.
	l, err := s.Links.Get(c.ctx, d.Name(link.Alias(alias)))
	there := &l // also an ended or damaged link, or a tombstone; the latter two have no owner
	switch {
	case errors.Is(err, link.ErrNotFound):
		there, err = nil, nil
	case err != nil && !errors.Is(err, link.ErrDamaged):
		return nil, err
	}
	if limited := s.limits.probe(c.who, there); limited != nil {
		return nil, limited
	}
	if err != nil {
		return nil, err
	}
	return struct {
		Free bool `json:"free"`
	}{there == nil}, nil
}
