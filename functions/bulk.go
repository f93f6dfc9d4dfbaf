package functions

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/access"
	"tiney/internal/formats"
	"tiney/internal/link"
)

const (
	maxBulk         = 100
	maxBulkBody     = 1 << 20 // bytes
	maxBulkEditBody = 2 << 20
	// editsAtOnce is how many links of a bulk are edited together. They share the time of one edit.
	editsAtOnce = 25
)

// errTimeUp says that manyTime was over before a link of a bulk was begun, or before the file of an
// import was read.
var errTimeUp = fmt.Errorf("%w: the time for the whole request is over", link.ErrUnavailable)

type bulkRequest struct {
	Links bulkLinks `json:"links"`
}

type bulkLinks []jsontext.Value

// UnmarshalJSONFrom decodes a list up to the first link that is too many.
func (b *bulkLinks) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return formats.DecodeFirst(d, (*[]jsontext.Value)(b), maxBulk+1)
}

// bulkResult is the response that a link would get in a request of its own.
type bulkResult[V any] struct {
	Status  int      `json:"status"`
	ETag    string   `json:"etag,omitzero"` // of an edit
	Link    *V       `json:"link,omitzero"`
	Problem *problem `json:"problem,omitzero"`
}

// inBulk handles a call for many links, whose body has up to most bytes. do returns their results.
func inBulk[V any](
	s *service, c *call, most int64, do func(requests []jsontext.Value) []bulkResult[V],
) (any, error) {
	if err := wantJSON(c.r); err != nil {
		return nil, err
	}
	data, leave, err := s.large.read(c, most)
	if err != nil {
		return nil, err
	}
	defer leave()
	body, err := decode[bulkRequest](bytes.Join(data, nil))
	if err != nil {
		return nil, err
	}
	if len(body.Links) == 0 || len(body.Links) > maxBulk {
		return nil, fieldProblem("links", fmt.Sprintf("There must be 1 to %d links.", maxBulk))
	}
	return results[bulkResult[V]]{do(body.Links)}, nil
}

// refused returns the result of a link that has an error, and logs it as a request of its own.
func refused[V any](s *service, err error) bulkResult[V] {
	p := problemOf(err)
	if p == notFoundProblem {
		p = s.notFound()
	}
	logProblem(s.Log.With("function", "bulk"), p, err)
	return bulkResult[V]{Status: p.Status, Problem: p}
}

// bulk handles POST /api/links/bulk: many requests to shorten in one. It makes the links one after
// the other, so that each request finds the links of those before it.
func (s *service) bulk(c *call) (any, error) {
	return inBulk(s, c, maxBulkBody, func(requests []jsontext.Value) []bulkResult[made] {
		all := make([]bulkResult[made], len(requests))
		for i, request := range requests {
			var l link.Link
			var created bool
			wish, err := s.parseWish(request, c.who)
			switch {
			case err != nil:
			case c.ctx.Err() != nil:
				err = errTimeUp
			default: // once begun, a create has its full time
				l, created, _, err = s.create(context.WithoutCancel(c.ctx), wish, c.who)
			}
			all[i] = s.bulkResult(s.viewMade(l, wish), created, err)
		}
		return all
	})
}

// bulkResult returns the result of one request to shorten, and counts it.
func (s *service) bulkResult(m made, created bool, err error) bulkResult[made] {
	switch {
	case err != nil:
		r := refused[made](s, err)
		if r.Status < 500 {
			s.Metrics.ShortenRejected.Add(1)
		}
		return r
	case created:
		return bulkResult[made]{Status: http.StatusCreated, Link: &m}
	}
	return bulkResult[made]{Status: http.StatusOK, Link: &m}
}

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
	return inBulk(s, c, maxBulkEditBody, func(requests []jsontext.Value) (
		all []bulkResult[linkView]) {
		for some := range slices.Chunk(requests, editsAtOnce) {
			all = append(all, s.editSome(c, some)...)
		}
		return all
	})
}

// editSome makes some edits of a bulk together.
func (s *service) editSome(c *call, requests []jsontext.Value) []bulkResult[linkView] {
	all := make([]bulkResult[linkView], len(requests))
	var callers []*callerEdit
	var edits []link.Edit
	var of []*bulkResult[linkView] // of each edit
	for i, request := range requests {
		e, err := s.parseBulkEdit(request, c.who)
		if err == nil && c.ctx.Err() != nil {
			err = errTimeUp
		}
		if err != nil {
			all[i] = refused[linkView](s, err)
			continue
		}
		callers, edits, of = append(callers, e), append(edits, e.Edit), append(of, &all[i])
	}
	// once begun, they have their full time
	done, err := s.Links.EditAll(context.WithoutCancel(c.ctx), edits)
	if err != nil {
		done = slices.Repeat([]link.EditResult{{Err: err}}, len(edits))
	}
	for i, e := range callers {
		l, err := s.edited(e, done[i])
		if err != nil {
			*of[i] = refused[linkView](s, err)
			continue
		}
		v := s.viewVersion(l)
		*of[i] = bulkResult[linkView]{Status: http.StatusOK, ETag: v.ETag, Link: &v.linkView}
	}
	return all
}

// parseBulkEdit decodes a caller's request to edit a link.
func (s *service) parseBulkEdit(body []byte, who access.Caller) (*callerEdit, error) {
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
		if change, err = s.patching(who, request.editRequest); err != nil {
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
