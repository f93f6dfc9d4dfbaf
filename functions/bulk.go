package functions

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/formats"
	"tiney/internal/link"
)

const (
	maxBulk     = 100
	maxBulkBody = 1 << 20 // bytes
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
type bulkResult struct {
	Status  int      `json:"status"`
	ETag    string   `json:"etag,omitzero"` // of an edited link
	Link    any      `json:"link,omitzero"`
	Problem *problem `json:"problem,omitzero"`
}

// inBulk handles a call for many links, whose body has up to most bytes. do returns their results.
func (s *service) inBulk(
	c *call, most int64, do func(requests []jsontext.Value) []bulkResult,
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
	return results[bulkResult]{do(body.Links)}, nil
}

// bulkProblem returns the result of a link that has an error, and logs it as a request of its own.
func (s *service) bulkProblem(err error) bulkResult {
	p := s.problemOf(err)
	logProblem(s.Log.With("function", "bulk"), p, err)
	return bulkResult{Status: p.Status, Problem: p}
}

// bulk handles POST /api/links/bulk: many requests to shorten in one. It makes the links one after
// the other, so that each request finds the links of those before it.
func (s *service) bulk(c *call) (any, error) {
	return s.inBulk(c, maxBulkBody, func(requests []jsontext.Value) []bulkResult {
		all := make([]bulkResult, len(requests))
		for i, request := range requests {
			var l link.Link
			var created bool
			wish, err := s.parseWish(c.ctx, request, c.who)
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
func (s *service) bulkResult(m made, created bool, err error) bulkResult {
	switch {
	case err != nil:
		r := s.bulkProblem(err)
		if r.Status < 500 {
			s.Metrics.ShortenRejected.Add(1)
		}
		return r
	case created:
		return bulkResult{Status: http.StatusCreated, Link: m}
	}
	return bulkResult{Status: http.StatusOK, Link: m}
}
