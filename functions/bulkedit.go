package functions

import (
	"context"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/access"
	"tiney/internal/link"
)

const (
	maxBulkEditBody = 2 << 20 // bytes
	// editsAtOnce is how many links of a bulk are edited together. They share the time of one edit.
	editsAtOnce = 25
)

// bulkEditRequest is a patch of a link, or its delete or restore.
type bulkEditRequest struct {
	Alias   string  `json:"alias"` // or alias@domain
	IfMatch *string `json:"ifMatch"`
	Delete  bool    `json:"delete"`
	Restore bool    `json:"restore"`
	editRequest
}

// bulkEdit handles PATCH /api/links/bulk: many edits in one, those of the same link in their order.
func (s *service) bulkEdit(c *call) (any, error) {
	return s.inBulk(c, maxBulkEditBody, func(requests []jsontext.Value) (all []bulkResult) {
		for some := range slices.Chunk(requests, editsAtOnce) {
			all = append(all, s.editSome(c, some)...)
		}
		return all
	})
}

// editSome makes some edits of a bulk together.
func (s *service) editSome(c *call, requests []jsontext.Value) []bulkResult {
	all := make([]bulkResult, len(requests))
	begun := make([]*callerEdit, len(requests)) // nil: it is refused
	var edits []link.Edit
	for i, request := range requests {
		e, err := s.parseBulkEdit(c.ctx, request, c.who)
		if err == nil && c.ctx.Err() != nil {
			err = errTimeUp
		}
		if err != nil {
			all[i] = s.bulkProblem(err)
			continue
		}
		begun[i], edits = e, append(edits, e.Edit)
	}
	// once begun, they have their full time
	edited, err := s.Links.EditAll(context.WithoutCancel(c.ctx), edits)
	if err != nil {
		edited = slices.Repeat([]link.EditResult{{Err: err}}, len(edits))
	}
	for i, e := range begun {
		if e == nil {
			continue
		}
		l, err := s.edited(e, edited[0])
		edited = edited[1:]
		if err != nil {
			all[i] = s.bulkProblem(err)
			continue
		}
		v := s.viewVersion(l)
		all[i] = bulkResult{Status: http.StatusOK, ETag: v.ETag, Link: v.linkView}
	}
	return all
}

// parseBulkEdit decodes a caller's request to edit a link.
func (s *service) parseBulkEdit(
	ctx context.Context, body []byte, who access.Caller,
) (*callerEdit, error) {
	if len(body) > maxBody {
		return nil, tooLargeProblem(maxBody)
	}
	request, err := decode[bulkEditRequest](body)
	if err != nil {
		return nil, err
	}
	a, ok := s.Rules.ParseName(request.Alias)
	if !ok {
		return nil, fieldProblem("alias", "Name the link by its alias, or by alias@domain.")
	}
	const alone = "This goes with alias and ifMatch alone: a link is either edited, deleted or " +
		"restored."
	edits := request.editRequest != editRequest{}
	var change changeFunc
	switch {
	case request.Delete && (edits || request.Restore):
		return nil, fieldProblem("delete", alone)
	case request.Restore && edits:
		return nil, fieldProblem("restore", alone)
	case request.Delete:
		change = s.deleting(who)
	case request.Restore:
		change = s.restoring(who)
	default:
		if change, err = s.patching(ctx, who, request.editRequest); err != nil {
			return nil, err
		}
	}
	var expected *etags
	if request.IfMatch != nil {
		tags, err := parseETags([]string{*request.IfMatch})
		if err != nil {
			p := *etagsProblem
			return nil, p.about("ifMatch")
		}
		expected = &tags
	}
	return editFor(who, a, expected, change), nil
}
