package functions

import (
	"context"
	"errors"
	"net/http"
	"time"

	"tiney/access"
	"tiney/link"
	"tiney/telemetry"
)

// links handles what is below /api/links, but for QR codes, and /api/claims.
type links struct {
	store interface {
		Reader
		Editor
		Lister
	}
	limits     *limits
	statistics Statistics
	rules      link.Rules
	keep       time.Duration // how long a deleted link can be restored
	now        func() time.Time
	metrics    *telemetry.Metrics
}

// linkView is a link as its owner sees it. All members are always there.
type linkView struct {
	summary
	UpdatedAt  *string  `json:"updatedAtUtc"`
	StatusCode int      `json:"statusCode"`
	Disabled   bool     `json:"disabled"`
	Shared     bool     `json:"shared"`
	DeletedAt  *string  `json:"deletedAtUtc"`
	Title      *string  `json:"title"`
	Tags       []string `json:"tags"`
	Owner      *string  `json:"owner"`
	*clicksView
}

// clicksView is what became of a link since ever, for whoever asks for it.
type clicksView struct {
	Clicks int64   `json:"clicks"`
	Bots   int64   `json:"bots"`
	LastAt *string `json:"lastClickAtUtc"`
}

func (ls *links) view(l link.Link) linkView {
	v := linkView{summary: summaryOf(l, ls.rules.Base), UpdatedAt: formatTime(l.UpdatedAt), StatusCode: l.StatusCode, Disabled: l.Disabled,
		Shared: l.Shared, DeletedAt: formatTime(l.DeletedAt), Title: orNull(l.Title), Tags: l.Tags, Owner: orNull(l.Owner)}
	if v.StatusCode == 0 {
		v.StatusCode = link.DefaultStatusCode
	}
	return v
}

// respond responds with a link and its ETag.
func (ls *links) respond(w http.ResponseWriter, l link.Link) error {
	setHeaders(w, "application/json")
	w.Header().Set("ETag", etagOf(l))
	writeJSON(w, ls.view(l))
	return nil
}

// aliasOf returns the alias in a request's path, which may be that of a link.
func aliasOf(r *http.Request) (link.Alias, error) {
	a, ok := link.ParseAlias(r.PathValue("alias"))
	if !ok || a.Reserved() {
		return "", notFoundProblem
	}
	return a, nil
}

// permit returns an error unless a link is the caller's. Who holds the claim token of a link without an owner may read,
// delete and restore it; routes for more than that are for owners only.
func permit(who access.Caller, l link.Link) error {
	switch {
	case who.Admin, who.Owner != "" && who.Owner == l.Owner, l.Owner == "" && holds(who.ClaimHash, l):
		return nil
	}
	return link.ErrForbidden
}

// holds reports whether a claim token with this hash is the link's. A link whose token is void has none.
func holds(claimHash string, l link.Link) bool { return claimHash != "" && claimHash == l.ClaimHash }

// read handles GET /api/links/{alias}.
func (ls *links) read(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
	a, err := aliasOf(r)
	if err != nil {
		return err
	}
	l, err := ls.store.Read(ctx, a)
	if err == nil {
		err = permit(who, l)
	}
	if err != nil {
		return err
	}
	if tags, err := parseETags(r.Header.Values("If-None-Match")); err == nil && tags.matchWeakly(etagOf(l)) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("ETag", etagOf(l))
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	return ls.respond(w, l)
}

// delete handles DELETE /api/links/{alias}.
func (ls *links) delete(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
	now := ls.now()
	if _, err := ls.change(ctx, r, who, func(l link.Link) (link.Link, error) { return l.Deleted(who.Admin, now) }); err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// restore handles POST /api/links/{alias}/restore.
func (ls *links) restore(ctx context.Context, w http.ResponseWriter, r *http.Request, who access.Caller) error {
	now := ls.now()
	l, err := ls.change(ctx, r, who, func(l link.Link) (link.Link, error) { return l.Restored(ls.keep, now) })
	if err != nil {
		return err
	}
	return ls.respond(w, l)
}

// change changes the link of a request's path, if it is the caller's and what If-Match expects. It returns the link as it
// is now.
func (ls *links) change(ctx context.Context, r *http.Request, who access.Caller, apply func(link.Link) (link.Link, error)) (link.Link, error) {
	a, err := aliasOf(r)
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
	l, err := ls.store.Edit(ctx, a, lines != nil, func(l link.Link) (link.Link, error) {
		wrote = false
		if err := permit(who, l); err != nil {
			return l, err
		}
		if !expected.match(etagOf(l)) {
			return l, preconditionProblem
		}
		changed, err := apply(l)
		wrote = err == nil && changed.Changed(l)
		return changed, err
	})
	if lines != nil && errors.Is(err, link.ErrConflict) {
		return link.Link{}, preconditionProblem // it is not any more what it was when it matched
	}
	if err == nil && wrote {
		ls.metrics.LinkEdited.Add(1)
	}
	return l, err
}
