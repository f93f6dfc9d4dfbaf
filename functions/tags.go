package functions

import (
	"cmp"
	"slices"

	"tiney/internal/link"
)

// taggedLinks is a tag, spelled as on the newest link that has it, and how many links have it.
type taggedLinks struct {
	Tag   string `json:"tag"`
	Links int    `json:"links"`
}

// listTags handles GET /api/tags: the tags of an owner's newest links, most used first.
func (s *service) listTags(c *call) (any, error) {
	query := parametersOf(c.r)
	owner := query.owner(c.who)
	if err := query.err(); err != nil {
		return nil, err
	}
	tags := []taggedLinks{}
	at := map[string]int{}
	_, next, err := s.Links.List(c.ctx, owner, "", maxSearched, func(l link.Link) bool {
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
		return nil, err
	}
	slices.SortStableFunc(tags, func(a, b taggedLinks) int { return cmp.Compare(b.Links, a.Links) })
	return struct {
		Items    []taggedLinks `json:"items"`
		Complete bool          `json:"complete"`
	}{tags, next == ""}, nil
}
