package functions

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"tiney/internal/access"
)

// OAuth says how assistants sign their users in. Without an Issuer they need an API key.
type OAuth struct {
	Issuer string   // of the access tokens
	Scope  string   // that they must have; "": none
	Scopes []string // that are asked for
}

const metadataPath = "/.well-known/oauth-protected-resource"

// resource handles the metadata of the endpoint for assistants (RFC 9728): by them, an assistant
// that got a 401 finds out who signs its user in.
func (s *service) resource(_ context.Context, w http.ResponseWriter, _ *http.Request) error {
	if !s.MCP || s.OAuth.Issuer == "" {
		return notFoundProblem
	}
	w.Header().Set("Access-Control-Allow-Origin", "*")
	writeJSON(w, http.StatusOK, struct {
		Resource string   `json:"resource"`
		Servers  []string `json:"authorization_servers"`
		Methods  []string `json:"bearer_methods_supported"`
		Scopes   []string `json:"scopes_supported"`
	}{s.Rules.Base.String() + mcpPath, []string{s.OAuth.Issuer}, []string{"header"}, s.OAuth.Scopes})
	return nil
}

// challenged returns a function whose 401s say where the metadata are. They are those of the
// default domain, whatever was asked: an assistant compares the resource with what its user typed.
func (s *service) challenged(serve handlerFunc) handlerFunc {
	if s.OAuth.Issuer == "" {
		return serve
	}
	metadata := fmt.Sprintf("resource_metadata=%q", s.Rules.Base.String()+metadataPath+mcpPath)
	return func(ctx context.Context, w http.ResponseWriter, r *http.Request) error {
		err := serve(ctx, w, r)
		if err == nil || problemOf(err).Status != http.StatusUnauthorized {
			return err
		}
		p := *problemOf(err)
		p.header = p.header.Clone()
		scheme, parameters, _ := strings.Cut(p.header.Get("WWW-Authenticate"), " ")
		if parameters != "" {
			parameters = ", " + parameters
		}
		return fmt.Errorf("%w: %w", p.with("WWW-Authenticate", scheme+" "+metadata+parameters), err)
	}
}

// scopeProblem is that of access tokens without the scope of this service (RFC 6750, 3.1).
func scopeProblem(scope string) error {
	return fmt.Errorf("%w: %w", newProblem(http.StatusForbidden, "insufficient-scope",
		"This token may not do this",
		"The access token lacks the scope of this service. Let its program ask for the scope "+
			scope+".").
		with("WWW-Authenticate", fmt.Sprintf(`Bearer error="insufficient_scope", scope=%q`, scope)),
		access.ErrScope)
}
