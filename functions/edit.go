package functions

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/access"
	"tiney/internal/formats"
	"tiney/internal/link"
)

const mergePatch = "application/merge-patch+json"

type editRequest struct {
	LongURL    optional[string]         `json:"longUrl"`
	Seconds    optional[integer]        `json:"expiresInSeconds"`
	ExpiresAt  optional[time.Time]      `json:"expiresAtUtc"`
	StartsAt   optional[time.Time]      `json:"startsAtUtc"`
	GoneURL    optional[string]         `json:"goneUrl"`
	StatusCode optional[integer]        `json:"statusCode"`
	Forward    optional[forwarded]      `json:"forward"`
	Rules      optional[formats.Rules]  `json:"rules"`
	Password   optional[string]         `json:"password"`
	MaxOpens   optional[integer]        `json:"maxOpens"`
	Disabled   optional[bool]           `json:"disabled"`
	Title      optional[string]         `json:"title"`
	Tags       optional[tags]           `json:"tags"`
	Domain     optional[jsontext.Value] `json:"domain"` // undecoded: any value is wrong
	Owner      optional[string]         `json:"owner"`
}

// editLink handles PATCH /api/links/{alias}.
func (s *service) editLink(c *call) (any, error) {
	contentType := c.r.Header.Get("Content-Type")
	if c.r.ContentLength != 0 && !isJSON(contentType, mergePatch, "application/json") {
		return nil, patchTypeProblem
	}
	body, err := c.read(maxBody)
	if err != nil {
		return nil, err
	}
	request, err := decode[editRequest](body)
	if err != nil {
		return nil, err
	}
	change, err := s.patching(c.ctx, c.who, request)
	if err != nil {
		return nil, err
	}
	l, err := s.changeLink(c, change)
	return s.viewVersion(l), err
}

// patching returns the change that a caller asks for. It hashes a password as long as ctx allows.
func (s *service) patching(
	ctx context.Context, who access.Caller, request editRequest,
) (changeFunc, error) {
	patch, err := request.patch()
	if err != nil {
		return nil, err
	}
	if _, err := ownerFor(who, patch.Owner); err != nil {
		return nil, err
	}
	now := s.Now()
	if patch.Password != nil && *patch.Password != "" {
		hash, err := s.passwords.Hash(ctx, *patch.Password)
		if err != nil {
			return nil, passwordBusyProblem
		}
		patch.Password = &hash
	}
	return func(l link.Link) (link.Link, error) {
		by := actor(who, l)
		// An admin who disables a link and gives it to somebody else takes it down.
		by.Own = by.Own && (patch.Owner == nil || who.Is(*patch.Owner))
		return s.Rules.Edit(l, patch, by, now)
	}, nil
}

// patch returns the changes that the request asks for, with a password in NFC. A null removes the
// title, the tags, the rules, the gone URL, the password, the limit of openings, the start or the
// end, and resets the status code to the default.
func (b editRequest) patch() (link.Patch, error) {
	p := link.Patch{
		LongURL:    b.LongURL.value,
		StartsAt:   b.StartsAt.or(time.Time{}),
		GoneURL:    b.GoneURL.or(""),
		StatusCode: (*int64)(b.StatusCode.or(link.DefaultStatusCode)),
		Forward:    (*[]string)(b.Forward.or(nil)),
		Rules:      (*[]link.TargetRule)(b.Rules.or(nil)),
		Password:   b.Password.or(""),
		MaxOpens:   (*int64)(b.MaxOpens.or(0)),
		Disabled:   b.Disabled.value,
		Title:      b.Title.or(""),
		Tags:       (*[]string)(b.Tags.or(nil)),
		Owner:      b.Owner.value,
	}
	switch {
	case b.LongURL.given && p.LongURL == nil:
		return p, fieldProblem("longUrl", "A link needs a long URL: it must not be null.")
	case b.Disabled.given && p.Disabled == nil:
		return p, fieldProblem("disabled", "This field must be true or false, not null.")
	case b.Domain.given:
		return p, fieldProblem("domain", "A link does not change its domain: leave this field "+
			"out, or make a link in the other domain.")
	case b.Owner.given && p.Owner == nil:
		return p, fieldProblem("owner", "A link cannot lose its owner: name another owner, or "+
			"leave this field out.")
	case b.Seconds.given && b.ExpiresAt.given:
		return p, twoEndsProblem
	case isZero(b.StartsAt.value):
		return p, zeroStartProblem
	case b.Seconds.given:
		p.End = &link.End{Seconds: (*int64)(b.Seconds.value)}
	case b.ExpiresAt.given:
		p.End = &link.End{At: b.ExpiresAt.value}
	}
	if b.Password.value != nil {
		password, err := link.NormalPassword(*b.Password.value)
		if err != nil {
			return p, err
		}
		p.Password = &password
	}
	return p, checkMaxOpens(b.MaxOpens.value)
}

// isZero reports whether a time was sent that stands for none in the store. Some programs send it
// for one that is not set.
func isZero(at *time.Time) bool { return at != nil && at.IsZero() }

var zeroStartProblem = fieldProblem("startsAtUtc", "The start must be from 1970 on, and before "+
	"the year 10000: send null for a link that leads somewhere at once.")
