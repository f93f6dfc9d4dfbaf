package functions

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"tiney/access"
	"tiney/link"
)

// maxClaims is how many links one call can claim.
const maxClaims = 100

type claimRequest struct {
	Claims []struct {
		Alias      string `json:"alias"`
		Token      string `json:"claimToken"`
		KeepExpiry bool   `json:"keepExpiry"`
	} `json:"claims"`
}

// claimed is what became of one claim.
type claimed struct {
	Alias  string `json:"alias"`
	Result string `json:"result"`
}

// later is the result of a claim of which nothing may be told yet.
const later = "later"

// Why a link is not claimed.
var (
	errGone    = errors.New("gone")
	errYours   = errors.New("already yours")
	errInvalid = errors.New("invalid")
)

// claim handles POST /api/claims. Where it fails in the middle, it can be repeated: what has been claimed is already yours.
func (ls *links) claim(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
	body, err := decodeJSON[claimRequest](w, r, maxBody)
	if err != nil {
		return err
	}
	if len(body.Claims) == 0 || len(body.Claims) > maxClaims {
		return fieldProblem("claims", fmt.Sprintf("There must be 1 to %d claims.", maxClaims))
	}
	results := make([]claimed, len(body.Claims))
	var aliases []link.Alias
	var of []int // the claims of aliases
	for i, c := range body.Claims {
		results[i] = claimed{c.Alias, errGone.Error()}
		if a, ok := link.ParseAlias(c.Alias); ok && !a.Reserved() {
			aliases, of = append(aliases, a), append(of, i)
		}
	}
	now := ls.now()
	errs, err := ls.store.EditAll(ctx, aliases, func(i int, l link.Link) (link.Link, error) {
		c := body.Claims[of[i]]
		switch state := l.State(now); {
		case l.Owner == who.Owner:
			return l, errYours
		case l.Owner != "" || !holds(access.Hash(c.Token), l):
			return l, errInvalid
		case state != link.StateLive: // an owner could enable again what an admin has disabled
			return l, errGone
		}
		return l.Claimed(who.Owner, c.KeepExpiry, now), nil
	})
	if err != nil {
		return err
	}
	var failed error
	for i, err := range errs {
		result := &results[of[i]].Result
		switch {
		case err == nil:
			ls.metrics.LinkClaimed.Add(1)
			*result = "claimed"
		case errors.Is(err, errYours):
			*result = err.Error()
		case errors.Is(err, errInvalid):
			*result = err.Error()
			if ls.limits.probe(who, &link.Link{}) != nil { // somebody else's
				*result = later
			}
		case errors.Is(err, link.ErrNotFound), errors.Is(err, link.ErrDamaged):
			if ls.limits.probe(who, nil) != nil {
				*result = later
			}
		case errors.Is(err, errGone): // so the token is right
		default:
			failed = err
		}
	}
	if failed != nil {
		return failed
	}
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Results []claimed `json:"results"`
	}{results})
	return nil
}
