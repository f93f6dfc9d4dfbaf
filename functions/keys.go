package functions

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tiney/access"
	"tiney/link"
)

// Limits of API keys.
const (
	maxKeyName  = 100 // characters, as code points
	maxKeyOwner = 200 // characters
	minKeyLife  = time.Minute
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
	body, err := decodeJSON[keyRequest](w, r)
	if err != nil {
		return err
	}
	k, err := newKey(body, who, ks.now().UTC().Truncate(time.Second))
	if err != nil {
		return err
	}
	secret, err := access.NewKey(ks.random)
	if err != nil {
		return err
	}
	k.Hash, k.Last4 = access.Hash(secret), secret[len(secret)-4:]
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

// newKey returns the key that a request asks for, still without its secret.
func newKey(body keyRequest, who access.Caller, now time.Time) (access.Key, error) {
	k := access.Key{Name: body.Name, Owner: who.Owner, CreatedAt: now}
	if body.Owner != nil {
		k.Owner = *body.Owner
	}
	switch {
	case k.Owner != who.Owner && !who.Admin:
		return k, link.ErrForbidden
	case k.Owner == access.AdminOwner:
		return k, fieldProblem("owner", "Name the owner whose key it will be. It cannot be "+access.AdminOwner+": the admin key is a setting of the service.")
	case k.Owner != who.Owner && // whom a provider may call what it likes
		(k.Owner == "" || len(k.Owner) > maxKeyOwner || strings.ContainsFunc(k.Owner, func(r rune) bool { return r < ' ' || r > '~' })):
		return k, fieldProblem("owner", fmt.Sprintf("The owner must have 1 to %d printable ASCII characters.", maxKeyOwner))
	case k.Name == "" || utf8.RuneCountInString(k.Name) > maxKeyName || strings.ContainsFunc(k.Name, unicode.IsControl):
		return k, fieldProblem("name", fmt.Sprintf("Give the key a name of 1 to %d characters, without control characters.", maxKeyName))
	case body.ExpiresAt == nil:
		return k, nil
	}
	k.ExpiresAt = body.ExpiresAt.UTC().Truncate(time.Second)
	if k.ExpiresAt.Before(now.Add(minKeyLife)) || k.ExpiresAt.Year() > 9999 { // storage has no such dates
		return k, fieldProblem("expiresAtUtc", fmt.Sprintf("The end must be at least %d seconds away, and before the year 10000.", int(minKeyLife/time.Second)))
	}
	return k, nil
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
