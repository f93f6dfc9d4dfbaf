package functions

import (
	"context"
	"errors"
	"net/http"

	"tiney/internal/access"
	"tiney/internal/link"
)

// Only the wrappers in this file read credentials. A route gets its caller from its wrapper, and so
// cannot forget to check it; a route without a wrapper ignores credentials. The router has already
// refused paths and methods that do not exist, without a look-up.
//
// The wrappers also count calls for the limits: the calls of owners by owner, all others by
// address.

// anyone returns a function for callers that have valid credentials or none.
func (s *service) anyone(serve apiFunc) handlerFunc {
	return s.limited(access.LimitAPI, serve)
}

// limited is anyone, with another limit for callers that are not owners.
func (s *service) limited(others access.Limit, serve apiFunc) handlerFunc {
	return s.identified(others, func(c *call) (any, error) {
		if c.who.ReadOnly && c.r.Method != http.MethodGet && c.r.Method != http.MethodHead {
			return nil, readOnlyProblem
		}
		return serve(c)
	})
}

// identified is limited without its check of read-only keys: serve has to refuse what they must not
// do.
func (s *service) identified(others access.Limit, serve apiFunc) handlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
		who, err := s.caller(ctx, r)
		if err != nil {
			return err
		}
		if who.Owner != "" {
			err = s.limits.takeFor(access.LimitAPI, who.Client())
		} else {
			err = s.limits.take(others, r)
		}
		if err != nil {
			return err
		}
		c := &call{ctx: ctx, w: w, r: r, who: who}
		defer c.end()
		result, err := serve(c)
		if err != nil {
			return err
		}
		respond(w, r, result)
		return nil
	}
}

// public returns a function that ignores credentials, and so is limited by address only.
func (s *service) public(serve handlerFunc) handlerFunc {
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
		if err := s.limits.take(access.LimitAPI, r); err != nil {
			return err
		}
		return serve(ctx, w, r)
	}
}

// caller authenticates a request. Refused credentials count towards LimitUnknown. Once an address
// has sent too many of them, it may use only credentials that need no look-up. Credentials that may
// be guesses of the admin key also count towards LimitGuess, which never refuses correct
// credentials.
func (s *service) caller(ctx context.Context, r *http.Request) (access.Caller, error) {
	tooMany := s.limits.take(access.LimitUnknown, r)
	if tooMany != nil {
		ctx = access.WithoutLookup(ctx)
	}
	who, err := s.Callers.Caller(ctx, r.Header)
	if errors.Is(err, access.ErrGuess) {
		if tooMany := s.limits.take(access.LimitGuess, r); tooMany != nil {
			return who, tooMany
		}
	}
	invalid := errors.Is(err, access.ErrInvalid)
	switch {
	case tooMany != nil && (invalid || errors.Is(err, access.ErrUnavailable)):
		return who, tooMany
	case invalid:
		s.Metrics.SigninsRefused.Add(1)
	case tooMany == nil:
		s.limits.takeBack(access.LimitUnknown, r)
	}
	if errors.Is(err, access.ErrScope) {
		err = scopeProblem(s.OAuth.Scope)
	}
	return who, err
}

// holders returns a function for owners and for holders of a claim token. A client can make up a
// token to probe for aliases, so aliases that it does not find count towards LimitUnknown.
func (s *service) holders(serve apiFunc) handlerFunc {
	return s.anyone(func(c *call) (result any, err error) {
		switch {
		case c.who.Owner != "":
			return serve(c)
		case c.who.ClaimHash != "":
			err = s.limits.guess(c.r, func() error {
				result, err = serve(c)
				return err
			})
			return result, err
		}
		return nil, noCredentialsProblem
	})
}

// owners returns a function for owners only.
func (s *service) owners(serve apiFunc) handlerFunc {
	return s.anyone(func(c *call) (any, error) {
		if err := needOwner(c.who); err != nil {
			return nil, err
		}
		return serve(c)
	})
}

// admins returns a function for admins only.
func (s *service) admins(serve apiFunc) handlerFunc {
	return s.owners(func(c *call) (any, error) {
		if !c.who.Admin {
			return nil, adminNeededProblem
		}
		return serve(c)
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

// ownerFor returns the owner that a request names, or the caller if it names none. Callers may name
// themselves and their groups, and an admin may name anybody.
func ownerFor(who access.Caller, named *string) (string, error) {
	switch {
	case named == nil:
		return who.Owner, nil
	case who.Owner == "":
		return "", needOwner(who)
	case who.Is(*named):
		return *named, nil
	case !who.Admin:
		return "", foreignOwnerProblem
	case !access.ValidOwner(*named):
		return "", &link.InvalidError{Field: link.FieldOwner, Detail: access.OwnerAdvice}
	}
	return *named, nil
}

// me handles GET /api/me: who the caller is.
func me(c *call) (any, error) {
	who := c.who
	if who.Owner == "" {
		return struct {
			Owner *string `json:"owner"`
		}{}, nil
	}
	return struct {
		Owner  string   `json:"owner"`
		Groups []string `json:"groups"`
		Admin  bool     `json:"admin"`
		Name   *string  `json:"name"`
		Access string   `json:"access"`
	}{who.Owner, who.Groups, who.Admin, orNull(who.Name), accessOf(who.ReadOnly)}, nil
}
