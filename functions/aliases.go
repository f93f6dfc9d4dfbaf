package functions

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"tiney/internal/access"
	"tiney/internal/link"
)

// freeAlias handles GET /api/aliases/{alias}: whether a new link may have this alias, as alias or
// as alias@domain. Soon after, somebody may have taken it all the same.
func (s *service) freeAlias(
	ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller,
) error {
	alias, named, is := strings.Cut(r.PathValue("alias"), "@")
	var given *string
	if is {
		given = &named
	}
	d, err := s.domain(given)
	if err != nil {
		return err
	}
	if _, _, err := s.Rules.Choose(alias, d); err != nil {
		return err
	}
	// By the very spelling, which an older row may have, and else in any case.
	l, err := s.Links.Get(ctx, d.Name(link.Alias(alias)))
	there := &l // also if it has ended, or is damaged or a tombstone, which have no owner
	switch {
	case errors.Is(err, link.ErrNotFound):
		there, err = nil, nil
	case err != nil && !errors.Is(err, link.ErrDamaged):
		return err
	}
	if limited := s.limits.probe(who, there); limited != nil {
		return limited
	}
	if err != nil {
		return err
	}
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Free bool `json:"free"`
	}{there == nil})
	return nil
}
