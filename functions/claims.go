package functions

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/access"
	"tiney/internal/formats"
	"tiney/internal/link"
)

const (
	maxClaims     = 100      // in one call
	maxClaimsBody = 64 << 10 // bytes, for as many of the longest names
)

type claimRequest struct {
	Owner  *string `json:"owner"` // gets all the links
	Claims claims  `json:"claims"`
}

type claims []oneClaim

type oneClaim struct {
	Alias      string  `json:"alias"`
	Domain     *string `json:"domain"`
	Token      string  `json:"claimToken"`
	KeepExpiry bool    `json:"keepExpiry"`
}

// UnmarshalJSONFrom decodes a list up to the first claim that is too many.
func (c *claims) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	return formats.DecodeFirst(d, (*[]oneClaim)(c), maxClaims+1)
}

// claimResult is the outcome of a claim.
type claimResult string

const (
	claimDone    claimResult = "claimed"
	claimGone    claimResult = "gone"
	claimYours   claimResult = "already yours"
	claimInvalid claimResult = "invalid"
	claimLater   claimResult = "later" // the caller has asked about too many links of others
)

// errNotClaimed is the error of an edit that leaves a link as it is. The claim's result says why.
var errNotClaimed = errors.New("not claimed")

// claim handles POST /api/claims. A call that failed halfway can be repeated: the result of what it
// has claimed is then claimYours.
func (s *service) claim(c *call) (any, error) {
	body, err := decodeJSON[claimRequest](c, maxClaimsBody)
	if err != nil {
		return nil, err
	}
	if len(body.Claims) == 0 || len(body.Claims) > maxClaims {
		return nil, fieldProblem("claims", fmt.Sprintf("There must be 1 to %d claims.", maxClaims))
	}
	owner, err := ownerFor(c.who, body.Owner)
	if err != nil {
		return nil, err
	}
	type claimed struct {
		Alias  string      `json:"alias"`
		Domain string      `json:"domain"`
		Result claimResult `json:"result"`
	}
	all := make([]claimed, len(body.Claims))
	var edits []link.Edit
	var of []*claimResult // of each edit
	now := s.Now()
	for i, one := range body.Claims {
		all[i] = claimed{one.Alias, string(s.Rules.DomainName("")), claimGone}
		if one.Domain != nil {
			all[i].Domain = *one.Domain
		}
		d, err := s.domain(one.Domain)
		if err != nil {
			continue
		}
		all[i].Domain = string(s.Rules.DomainName(d))
		a, ok := link.ParseAlias(one.Alias)
		if !ok || a.Reserved() {
			continue
		}
		result := &all[i].Result
		of = append(of, result)
		edits = append(edits, link.Edit{Name: d.Name(a), Change: func(l link.Link) (link.Link,
			error) {
			switch state := l.State(now); {
			case l.Owner == owner, c.who.Is(l.Owner):
				*result = claimYours
			case l.Owner != "" || !holds(access.Hash(one.Token), l):
				*result = claimInvalid
			case !state.LiveOrScheduled(): // an owner could enable again what an admin has disabled
				*result = claimGone
			default:
				*result = claimDone
				return l.Claimed(actor(c.who, l), owner, one.KeepExpiry, now), nil
			}
			return l, errNotClaimed
		}})
	}
	edited, err := s.Links.EditAll(c.ctx, edits)
	if err != nil {
		return nil, err
	}
	var failed error
	for i, e := range edited {
		err, result := e.Err, of[i]
		switch {
		case err == nil:
			s.Metrics.LinkClaimed.Add(1)
		case errors.Is(err, errNotClaimed):
			// If the token is right, or the link is the caller's, the result reveals nothing new.
			if *result == claimInvalid && s.limits.probe(c.who, &link.Link{}) != nil {
				*result = claimLater
			}
		case errors.Is(err, link.ErrNotFound), errors.Is(err, link.ErrDamaged):
			*result = claimGone // also if it was deleted after another process had changed it
			if s.limits.probe(c.who, nil) != nil {
				*result = claimLater
			}
		default:
			failed = err
		}
	}
	return results[claimed]{all}, failed
}
