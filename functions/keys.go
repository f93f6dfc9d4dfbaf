package functions

import (
	"errors"
	"time"

	"tiney/internal/access"
	"tiney/internal/link"
)

type keyRequest struct {
	Name      string     `json:"name"`
	Owner     *string    `json:"owner"`
	ExpiresAt *time.Time `json:"expiresAtUtc"`
	Access    string     `json:"access"`
}

// What a key may do, in requests and responses.
const (
	accessWrite = "write" // everything
	accessRead  = "read"  // change nothing
)

func accessOf(readOnly bool) string {
	if readOnly {
		return accessRead
	}
	return accessWrite
}

// keyView is a key as lists show it.
type keyView struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	Owner      string  `json:"owner"`
	CreatedBy  *string `json:"createdBy"`
	CreatedAt  *string `json:"createdAtUtc"`
	ExpiresAt  *string `json:"expiresAtUtc"`
	LastUsedOn *string `json:"lastUsedOn"` // a day
	Last4      string  `json:"last4"`
	Access     string  `json:"access"`
}

func viewKey(k access.Key) keyView {
	return keyView{k.ID(), k.Name, k.Owner, orNull(k.CreatedBy), formatTime(k.CreatedAt),
		formatTime(k.ExpiresAt), orNull(k.LastUsedOn), k.Last4, accessOf(k.ReadOnly)}
}

// createKey handles POST /api/keys.
func (s *service) createKey(c *call) (any, error) {
	body, err := decodeJSON[keyRequest](c, maxBody)
	if err != nil {
		return nil, err
	}
	body.Access = link.LowerASCII(body.Access)
	if body.Access != "" && body.Access != accessWrite && body.Access != accessRead {
		return nil, fieldProblem("access", "access must be write (default) or read.")
	}
	owner, err := ownerFor(c.who, body.Owner)
	if err != nil {
		return nil, err
	}
	secret, k, err := access.MakeKey(s.Random, c.who, owner, body.Name, body.ExpiresAt, s.Now())
	var invalid *access.InvalidKeyError
	if errors.As(err, &invalid) {
		return nil, fieldProblem(invalid.Field, invalid.Detail)
	}
	if err != nil {
		return nil, err
	}
	k.ReadOnly = body.Access == accessRead
	if err := s.Keys.Create(c.ctx, k); err != nil {
		return nil, err
	}
	return created{view: struct {
		keyView
		Key string `json:"key"` // no later response has it
	}{viewKey(k), secret}}, nil
}

// listKeys handles GET /api/keys.
func (s *service) listKeys(c *call) (any, error) {
	found, err := s.Keys.List(c.ctx, managedOwners(c.who))
	return listOf(found, viewKey), err
}

// revokeKey handles DELETE /api/keys/{id}.
func (s *service) revokeKey(c *call) (any, error) {
	return nil, s.Keys.Revoke(c.ctx, c.r.PathValue("id"), managedOwners(c.who))
}

// managedOwners returns the owners whose keys a caller manages: the caller and the caller's groups.
// For an admin it returns nil, which stands for all owners.
func managedOwners(who access.Caller) []string {
	if who.Admin {
		return nil
	}
	return append([]string{who.Owner}, who.Groups...)
}
