package functions

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"tiney/access"
	"tiney/link"
)

const (
	maxBulk     = 100
	maxBulkBody = 1 << 20 // bytes
)

// errManyTime is the error of what a request for many links did not come to.
var errManyTime = fmt.Errorf("%w: the time for the whole request is over", link.ErrUnavailable)

// bulk handles POST /api/links/bulk: many requests of shorten in one.
type bulk struct {
	*shorten
	log *slog.Logger
}

type bulkRequest struct {
	Links []jsontext.Value `json:"links"`
}

// bulkResult is the response that a link would have got in a request of its own.
type bulkResult struct {
	Status  int      `json:"status"`
	Link    *summary `json:"link,omitzero"`
	Problem *problem `json:"problem,omitzero"`
}

// serve makes one link after the other, so that each finds those before it.
func (b *bulk) serve(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
	body, err := decodeJSON[bulkRequest](w, r, maxBulkBody)
	if err != nil {
		return err
	}
	if len(body.Links) == 0 || len(body.Links) > maxBulk {
		return fieldProblem("links", fmt.Sprintf("There must be 1 to %d links.", maxBulk))
	}
	results := make([]bulkResult, len(body.Links))
	for i, of := range body.Links {
		var l link.Link
		var created bool
		wish, err := wished(decode[shortenRequest](of))
		switch {
		case err != nil:
		case ctx.Err() != nil:
			err = errManyTime
		default: // one that is begun has its full time
			l, created, _, err = b.create(context.WithoutCancel(ctx), wish, who)
		}
		results[i] = b.result(l, created, err)
	}
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Results []bulkResult `json:"results"`
	}{results})
	return nil
}

// result returns what became of one link, and counts and logs what would be counted and logged of its request.
func (b *bulk) result(l link.Link, created bool, err error) bulkResult {
	switch {
	case err != nil:
		p := problemOf(err)
		if p.Status < 500 {
			b.metrics.ShortenRejected.Add(1)
		}
		logProblem(b.log, p, err)
		return bulkResult{Status: p.Status, Problem: p}
	case created:
		return bulkResult{Status: http.StatusCreated, Link: new(summaryOf(l, b.rules.Base))}
	}
	return bulkResult{Status: http.StatusOK, Link: new(summaryOf(l, b.rules.Base))}
}
