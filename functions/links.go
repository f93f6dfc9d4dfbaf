package functions

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"tiney/internal/access"
	"tiney/internal/clicks"
	"tiney/internal/link"
)

// linkView is a link as its owner sees it. All members are always present.
type linkView struct {
	summary
	UpdatedAt  *string  `json:"updatedAtUtc"`
	StatusCode int      `json:"statusCode"`
	Forward    []string `json:"forward"`
	Disabled   bool     `json:"disabled"`
	Shared     bool     `json:"shared"`
	Locked     bool     `json:"locked"`
	DeletedAt  *string  `json:"deletedAtUtc"`
	Title      *string  `json:"title"`
	Tags       []string `json:"tags"`
	Owner      *string  `json:"owner"`
	*clicksView
}

// clicksView has the totals of a link. A list has it if the request asks for it. The zero value,
// whose members are null, says that they cannot be read at the moment.
type clicksView struct {
	Clicks *int64  `json:"clicks"`
	Bots   *int64  `json:"bots"`
	LastAt *string `json:"lastClickAtUtc"`
}

func viewTotal(t clicks.Total) *clicksView {
	return &clicksView{&t.Clicks, &t.Bots, formatTime(t.Last)}
}

func (s *service) viewLink(l link.Link) linkView {
	return linkView{
		summary:    s.summarize(l),
		UpdatedAt:  formatTime(l.UpdatedAt),
		StatusCode: cmp.Or(l.StatusCode, link.DefaultStatusCode),
		Forward:    l.Forward.Names(),
		Disabled:   l.Disabled,
		Shared:     l.Shared,
		Locked:     l.Locked,
		DeletedAt:  formatTime(l.DeletedAt),
		Title:      orNull(l.Title),
		Tags:       l.Tags,
		Owner:      orNull(l.Owner),
	}
}

// respondLink responds with a link and its ETag.
func (s *service) respondLink(w http.ResponseWriter, l link.Link) error {
	setHeaders(w, "application/json")
	w.Header().Set("ETag", etagOf(l.Version))
	writeJSON(w, s.viewLink(l))
	return nil
}

// nameIn returns the name of the link in a request's path.
func (s *service) nameIn(r *http.Request) (link.Name, error) {
	a, ok := s.Rules.ParseName(r.PathValue("alias"))
	if !ok {
		return "", notFoundProblem
	}
	return a, nil
}

// permit returns an error unless a link is the caller's. The holder of the claim token of a link
// without an owner may read, delete and restore the link. The other routes are for owners only. To
// owners, a link of somebody else is as if there were none, so that they cannot find out which
// aliases exist. Holders of tokens are told, but find few; see holders.
func permit(who access.Caller, l link.Link) error {
	switch {
	case who.Admin,
		who.Is(l.Owner),
		l.Owner == "" && holds(who.ClaimHash, l):
		return nil
	case who.Owner != "":
		return link.ErrNotFound
	}
	return link.ErrForbidden
}

// actor returns a caller as the actor of a change of a link.
func actor(who access.Caller, l link.Link) link.Actor {
	return link.Actor{By: who.Owner, Admin: who.Admin, Own: who.Is(l.Owner)}
}

// holds reports whether claimHash is the hash of the link's claim token. A link whose token is void
// has no hash.
func holds(claimHash string, l link.Link) bool {
	return claimHash != "" && claimHash == l.ClaimHash
}

// permitted returns the link that a request's path names, if it is the caller's.
func (s *service) permitted(
	ctx context.Context, r *http.Request, who access.Caller,
) (link.Link, error) {
	return s.permittedBy(ctx, r, who, s.Links.Read)
}

// permittedBy is permitted with another way to read the link.
func (s *service) permittedBy(
	ctx context.Context, r *http.Request, who access.Caller,
	read func(context.Context, link.Name) (link.Link, error),
) (link.Link, error) {
	a, err := s.nameIn(r)
	if err != nil {
		return link.Link{}, err
	}
	l, err := read(ctx, a)
	if err == nil {
		err = permit(who, l)
	}
	return l, hideDamage(who, err)
}

// hideDamage lets a damaged link be as if there were none, to owners: it has no owner any more.
func hideDamage(who access.Caller, err error) error {
	if errors.Is(err, link.ErrDamaged) && who.Owner != "" && !who.Admin {
		return fmt.Errorf("%w: %w", notFoundProblem, err)
	}
	return err
}

// readLink handles GET /api/links/{alias}.
func (s *service) readLink(
	ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller,
) error {
	l, err := s.permitted(ctx, r, who)
	if err != nil {
		return err
	}
	if etag := etagOf(l.Version); notModified(r, etag) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("ETag", etag)
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return s.respondLink(w, l)
}

// changeView is one change of a link's history.
type changeView struct {
	At     *string        `json:"at"`
	By     *string        `json:"by"`
	What   link.Event     `json:"what"`
	Before jsontext.Value `json:"before"`
}

// linkHistory handles GET /api/links/{alias}/history.
func (s *service) linkHistory(
	ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller,
) error {
	l, err := s.permittedBy(ctx, r, who, s.Links.History)
	if err != nil {
		return err
	}
	items := make([]changeView, len(l.History))
	for i, c := range l.History {
		items[i] = changeView{formatTime(c.At), orNull(c.By), c.What, c.Before}
	}
	setHeaders(w, "application/json")
	writeJSON(w, struct {
		Items []changeView `json:"items"`
	}{items})
	return nil
}

// deleteLink handles DELETE /api/links/{alias}.
func (s *service) deleteLink(
	ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller,
) error {
	now := s.Now()
	if _, err := s.changeLink(ctx, r, who, func(l link.Link) (link.Link, error) {
		return l.Deleted(actor(who, l), now)
	}); err != nil {
		return err
	}
	noContent(w)
	return nil
}

// restoreLink handles POST /api/links/{alias}/restore.
func (s *service) restoreLink(
	ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller,
) error {
	now := s.Now()
	l, err := s.changeLink(ctx, r, who, func(l link.Link) (link.Link, error) {
		return l.Restored(actor(who, l), s.DeletedKeep, now)
	})
	if err != nil {
		return err
	}
	return s.respondLink(w, l)
}

// changeLink changes the link that a request's path names, if it is the caller's and matches
// If-Match. It returns the link as it is now.
func (s *service) changeLink(
	ctx context.Context, r *http.Request, who access.Caller,
	change func(link.Link) (link.Link, error),
) (link.Link, error) {
	a, err := s.nameIn(r)
	if err != nil {
		return link.Link{}, err
	}
	lines := r.Header.Values("If-Match")
	expected := etags{any: true}
	if lines != nil {
		if expected, err = parseETags(lines); err != nil {
			return link.Link{}, err
		}
	}
	wrote := false
	l, err := s.Links.Edit(ctx, a, lines != nil, func(l link.Link) (link.Link, error) {
		wrote = false
		if err := permit(who, l); err != nil {
			return l, err
		}
		if !expected.match(etagOf(l.Version)) {
			return l, preconditionProblem
		}
		changed, err := change(l)
		wrote = err == nil && changed.Changed(l)
		return changed, err
	})
	if lines != nil && errors.Is(err, link.ErrConflict) {
		return link.Link{}, preconditionProblem // it matched, and has changed since
	}
	if err == nil && wrote {
		s.Metrics.LinkEdited.Add(1)
	}
	return l, hideDamage(who, err)
}
