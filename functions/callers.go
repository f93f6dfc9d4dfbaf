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
type callers struct {
	Callers
	metrics *telemetry.Metrics
}

// anyone returns a function for callers with valid credentials and for those without.
func (c *callers) anyone(serve callerFunc) handlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
		who, err := c.Caller(ctx, r.Header)
		if errors.Is(err, access.ErrInvalid) {
			c.metrics.SigninsRefused.Add(1)
		}
		if err != nil {
			return err
		}
		return serve(ctx, w, r, who)
	}
}

// holders returns a function for owners and for holders of a claim token.
func (c *callers) holders(serve callerFunc) handlerFunc {
	return c.anyone(func(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
		if who.Owner == "" && who.ClaimHash == "" {
			return noCredentialsProblem
		}
		return serve(ctx, w, r, who)
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
