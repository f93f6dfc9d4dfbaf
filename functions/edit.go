package functions

import (
	"context"
	"net/http"
	"time"

	"tiney/access"
	"tiney/link"
)

const mergePatch = "application/merge-patch+json"

type editRequest struct {
	LongURL    optional[string]    `json:"longUrl"`
	Seconds    optional[integer]   `json:"expiresInSeconds"`
	ExpiresAt  optional[time.Time] `json:"expiresAtUtc"`
	StatusCode optional[integer]   `json:"statusCode"`
	Disabled   optional[bool]      `json:"disabled"`
	Title      optional[string]    `json:"title"`
	Tags       optional[[]string]  `json:"tags"`
}

// edit handles PATCH /api/links/{alias}.
func (ls *links) edit(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
	if r.ContentLength != 0 && !isJSON(r.Header.Get("Content-Type"), mergePatch, "application/json") {
		return patchTypeProblem
	}
	body, err := decodeObject[editRequest](w, r, maxBody)
	if err != nil {
		return err
	}
	patch, err := body.patch()
	if err != nil {
		return err
	}
	now := ls.now()
	l, err := ls.change(ctx, r, who, func(l link.Link) (link.Link, error) { return ls.rules.Edit(l, patch, who.Admin, now) })
	if err != nil {
		return err
	}
	return ls.respond(w, l)
}

// patch returns what the request asks for. What is null is taken away: then a link has no title, no tags, the usual status
// code, and no end.
func (b editRequest) patch() (link.Patch, error) {
	p := link.Patch{LongURL: b.LongURL.value, Disabled: b.Disabled.value}
	switch {
	case b.LongURL.given && p.LongURL == nil:
		return p, fieldProblem("longUrl", "A link needs a long URL: it must not be null.")
	case b.Disabled.given && p.Disabled == nil:
		return p, fieldProblem("disabled", "This field must be true or false, not null.")
	case b.Seconds.given && b.ExpiresAt.given:
		return p, twoEndsProblem
	case b.Seconds.given:
		p.End = &link.End{Seconds: (*int64)(b.Seconds.value)}
	case b.ExpiresAt.given:
		p.End = &link.End{At: b.ExpiresAt.value}
	}
	if b.StatusCode.given {
		p.StatusCode = orDefault((*int64)(b.StatusCode.value), link.DefaultStatusCode)
	}
	if b.Title.given {
		p.Title = orDefault(b.Title.value, "")
	}
	if b.Tags.given {
		p.Tags = orDefault(b.Tags.value, nil)
	}
	return p, nil
}

func orDefault[T any](value *T, byDefault T) *T {
	if value == nil {
		return &byDefault
	}
	return value
}
