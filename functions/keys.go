package functions

import (
	"context"
	"errors"
	"net/http"
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
func (s *service) createKey(
	ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller,
) error {
	body, err := decodeJSON[keyRequest](w, r, maxBody)
	if err != nil {
		return err
	}
	body.Access = link.LowerASCII(body.Access)
	if body.Access != "" && body.Access != accessWrite && body.Access != accessRead {
		return fieldProblem("access", "access must be write (default) or read.")
	}
	owner, err := ownerFor(who, body.Owner)
	if err != nil {
		return err
	}
	secret, k, err := access.MakeKey(s.Random, who, owner, body.Name, body.ExpiresAt, s.Now())
	var invalid *access.InvalidKeyError
	if errors.As(err, &invalid) {
		return fieldProblem(invalid.Field, invalid.Detail)
	}
	if err != nil {
		return err
	}
	k.ReadOnly = body.Access == accessRead
	if err := s.Keys.Create(ctx, k); err != nil {
		return err
	}
	setHeaders(w, "application/json")
	w.WriteHeader(http.StatusCreated)
	writeJSON(w, struct {
		keyView
		Key string `json:"key"` // no later response has it
	}{viewKey(k), secret})
	return nil
}

// listKeys handles GET /api/keys.
func (s *service) listKeys(
	ctx context.Context, w http.ResponseWriter, _ *http.Request, who access.Caller,
) error {
	found, err := s.Keys.List(ctx, managedOwners(who))
	if err != nil {
		return err
	}
	items := make([]keyView, len(found))
	for i, k := range found {
		items[i] = viewKey(k)
	}
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Items []keyView `json:"items"`
	}{items})
	return nil
}

// revokeKey handles DELETE /api/keys/{id}.
func (s *service) revokeKey(
	ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller,
) error {
	if err := s.Keys.Revoke(ctx, r.PathValue("id"), managedOwners(who)); err != nil {
		return err
	}
	noContent(w)
	return nil
}

// managedOwners returns the owners whose keys a caller manages: the caller and the caller's groups.
// For an admin it returns nil, which stands for all owners.
func managedOwners(who access.Caller) []string {
	if who.Admin {
		return nil
	}
	return append([]string{who.Owner}, who.Groups...)
}
