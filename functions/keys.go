package functions

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"tiney/access"
	"tiney/link"
)

// keys handles /api/keys.
type keys struct {
	keys   Keys
	now    func() time.Time
	random io.Reader
}

type keyRequest struct {
	Name      string     `json:"name"`
	Owner     *string    `json:"owner"`
	ExpiresAt *time.Time `json:"expiresAtUtc"`
}

// keyView is a key as it is listed.
type keyView struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	Owner      string  `json:"owner"`
	CreatedAt  *string `json:"createdAtUtc"`
	ExpiresAt  *string `json:"expiresAtUtc"`
	LastUsedOn *string `json:"lastUsedOn"` // a day
	Last4      string  `json:"last4"`
}

func viewKey(k access.Key) keyView {
	return keyView{k.ID(), k.Name, k.Owner, formatTime(k.CreatedAt), formatTime(k.ExpiresAt), orNull(k.LastUsedOn), k.Last4}
}

// create handles POST /api/keys.
func (ks *keys) create(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
	body, err := decodeJSON[keyRequest](w, r, maxBody)
	if err != nil {
		return err
	}
	owner := who.Owner
	if body.Owner != nil {
		owner = *body.Owner
	}
	if owner != who.Owner && !who.Admin {
		return link.ErrForbidden
	}
	secret, k, err := access.MakeKey(ks.random, who, owner, body.Name, body.ExpiresAt, ks.now())
	var invalid *access.InvalidKeyError
	if errors.As(err, &invalid) {
		return fieldProblem(invalid.Field, invalid.Detail)
	}
	if err != nil {
		return err
	}
	if err := ks.keys.Create(ctx, k); err != nil {
		return err
	}
	setHeaders(w, "application/json")
	w.WriteHeader(http.StatusCreated)
	writeJSON(w, struct {
		keyView
		Key string `json:"key"` // never again
	}{viewKey(k), secret})
	return nil
}

// list handles GET /api/keys.
func (ks *keys) list(ctx context.Context, w http.ResponseWriter, _ *http.Request, who access.Caller) error {
	found, err := ks.keys.List(ctx, ofWhom(who))
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

// revoke handles DELETE /api/keys/{id}.
func (ks *keys) revoke(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
	if err := ks.keys.Revoke(ctx, r.PathValue("id"), ofWhom(who)); err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// ofWhom returns whose keys a caller may see and revoke: "" for everybody's.
func ofWhom(who access.Caller) string {
	if who.Admin {
		return ""
	}
	return who.Owner
}
