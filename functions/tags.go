package functions

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"tiney/internal/access"
	"tiney/internal/link"
)

// maxTagLinks is of how many links of an owner the tags are counted.
const maxTagLinks = 1000

// taggedLinks is a tag, spelled as on the newest link that has it, and how many links have it.
type taggedLinks struct {
	Tag   string `json:"tag"`
	Links int    `json:"links"`
}

// listTags handles GET /api/tags: the tags of an owner's newest links, most used first.
func (s *service) listTags(
	ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller,
) error {
	query := parametersOf(r)
	owner, err := query.owner(who)
	switch {
	case err != nil:
		return err
	case query.problem != nil:
		return query.problem
	}
	tags := []taggedLinks{}
	at := map[string]int{}
	_, next, err := s.Links.List(ctx, owner, "", maxTagLinks, func(l link.Link) bool {
		if !l.DeletedAt.IsZero() {
			return false
		}
		for _, tag := range l.Tags {
			i, ok := at[fold(tag)]
			if !ok {
				i = len(tags)
				at[fold(tag)], tags = i, append(tags, taggedLinks{Tag: tag})
			}
			tags[i].Links++
		}
		return false // the links themselves need no memory
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(tags, func(a, b taggedLinks) int { return cmp.Compare(b.Links, a.Links) })
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Items    []taggedLinks `json:"items"`
		Complete bool          `json:"complete"`
	}{tags, next == ""})
	return nil
}
