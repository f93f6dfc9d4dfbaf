package functions

import (
	"context"
	"errors"
	"net/http"

	"tiney/access"
	"tiney/telemetry"
)

// callerFunc is a handlerFunc to which it matters who is asking.
type callerFunc func(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error

// callers is the one place where credentials are looked at. A route learns of its caller by what it is wrapped in here, and
// so cannot forget to ask; one that is not wrapped ignores credentials. Paths and methods that do not exist are refused
// before, without a look-up.
//
// It is also where calls are counted: those of owners by owner, and all others by address.
type callers struct {
	Callers
	limits  *limits
	metrics *telemetry.Metrics
}

// anyone returns a function for callers with valid credentials and for those without.
func (c *callers) anyone(serve callerFunc) handlerFunc { return c.limited(access.LimitAPI, serve) }

// limited is anyone with another limit for callers who are no owners.
func (c *callers) limited(others access.Limit, serve callerFunc) handlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
		who, err := c.caller(ctx, r)
		if err != nil {
			return err
		}
		limit := others
		if who.Owner != "" {
			limit = access.LimitAPI
		}
		if err := c.limits.take(limit, r, who.Owner); err != nil {
			return err
		}
		return serve(ctx, w, r, who)
	}
}

// public returns a function that ignores credentials, and so counts by address only.
func (c *callers) public(serve handlerFunc) handlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
		if err := c.limits.take(access.LimitAPI, r, ""); err != nil {
			return err
		}
		return serve(ctx, w, r)
	}
}

// caller tells who sends a request. Credentials that are refused count as unknown. From an address that
// has sent too many of them, only those are taken that can be checked without a look-up. Those that may be
// guesses of the admin key have a limit of their own besides, which refuses none that is right.
func (c *callers) caller(ctx context.Context, r *http.Request) (access.Caller, error) {
	tooMany := c.limits.take(access.LimitUnknown, r, "")
	if tooMany != nil {
		ctx = access.WithoutLookup(ctx)
	}
	who, err := c.Caller(ctx, r.Header)
	if errors.Is(err, access.ErrGuess) {
		if tooMany := c.limits.take(access.LimitGuess, r, ""); tooMany != nil {
			return who, tooMany
		}
	}
	invalid := errors.Is(err, access.ErrInvalid)
	switch {
	case tooMany != nil && (invalid || errors.Is(err, access.ErrUnavailable)):
		return who, tooMany
	case invalid:
		c.metrics.SigninsRefused.Add(1)
	case tooMany == nil:
		c.limits.takeBack(access.LimitUnknown, r)
	}
	return who, err
}

// holders returns a function for owners and for holders of a claim token. Anybody can invent one, and find out by it which
// aliases there are, so what it does not find counts.
func (c *callers) holders(serve callerFunc) handlerFunc {
	return c.anyone(func(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
		switch {
		case who.Owner != "":
			return serve(ctx, w, r, who)
		case who.ClaimHash != "":
			return c.limits.guess(r, func() error { return serve(ctx, w, r, who) })
		}
		return noCredentialsProblem
	})
}

// owners returns a function for owners only.
func (c *callers) owners(serve callerFunc) handlerFunc {
	return c.anyone(func(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
		if err := needOwner(who); err != nil {
			return err
		}
		return serve(ctx, w, r, who)
	})
}

// admins returns a function for admins only.
func (c *callers) admins(serve callerFunc) handlerFunc {
	return c.owners(func(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
		if !who.Admin {
			return adminNeededProblem
		}
		return serve(ctx, w, r, who)
	})
}

// needOwner returns an error unless the caller is an owner.
func needOwner(who access.Caller) error {
	switch {
	case who.Owner != "":
		return nil
	case who.ClaimHash != "":
		return ownerNeededProblem
	}
	return noCredentialsProblem
}

// me handles GET /api/me: who the service takes the caller for.
func me(_ context.Context, w http.ResponseWriter, _ *http.Request, who access.Caller) error {
	setHeaders(w, "application/json")
	if who.Owner == "" {
		writeJSON(w, struct {
			Owner *string `json:"owner"`
		}{})
		return nil
	}
	writeJSON(w, struct {
		Owner string  `json:"owner"`
		Admin bool    `json:"admin"`
		Name  *string `json:"name"`
	}{who.Owner, who.Admin, orNull(who.Name)})
	return nil
}
