package functions

import (
	"errors"
	"strings"

	"tiney/internal/link"
)

// freeAlias handles GET /api/aliases/{alias}: whether a new link may have this alias, as alias or
// as alias@domain. Soon after, somebody may have taken it all the same.
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
	// By the very spelling, which an older row may have, and else in any case.
	l, err := s.Links.Get(c.ctx, d.Name(link.Alias(alias)))
	there := &l // also if it has ended, or is damaged or a tombstone, which have no owner
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
