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
	UpdatedAt  *string    `json:"updatedAtUtc"`
	StatusCode int        `json:"statusCode"`
	Forward    []string   `json:"forward"`
	Disabled   bool       `json:"disabled"`
	Shared     bool       `json:"shared"`
	Locked     bool       `json:"locked"`
	DeletedAt  *string    `json:"deletedAtUtc"`
	Title      *string    `json:"title"`
	Tags       []string   `json:"tags"`
	Owner      *string    `json:"owner"`
	StartsAt   *string    `json:"startsAtUtc"`
	GoneURL    *string    `json:"goneUrl"`
	Rules      []ruleView `json:"rules"`
	Password   bool       `json:"password"`
	MaxOpens   *int       `json:"maxOpens"`
	OpensLeft  *int       `json:"opensLeft"`
	*clicksView
}

// clicksView has the totals of a link. A list has it if the request asks for it. All members of the
// zero value are null: the totals cannot be read now.
type clicksView struct {
	Clicks *int64  `json:"clicks"`
	Bots   *int64  `json:"bots"`
	LastAt *string `json:"lastClickAtUtc"`
}

func viewTotal(t clicks.Total) *clicksView {
	return &clicksView{&t.Clicks, &t.Bots, formatTime(t.Last)}
}

func (s *service) viewLink(l link.Link) linkView {
	v := linkView{
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
		StartsAt:   formatTime(l.StartsAt),
		GoneURL:    orNull(string(l.GoneURL)),
		Rules:      viewRules(l.Rules),
		Password:   l.Password != "",
		MaxOpens:   orNull(l.MaxOpens),
	}
	if l.MaxOpens > 0 {
		v.OpensLeft = &l.OpensLeft
	}
	return v
}

// versioned is a link with its ETag, which HTTP has as a header.
type versioned struct {
	ETag string `json:"etag"`
	linkView
}

func (s *service) viewVersion(l link.Link) versioned {
	return versioned{etagOf(l.Version), s.viewLink(l)}
}

func (v versioned) respond(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", v.ETag)
	if (r.Method == http.MethodGet || r.Method == http.MethodHead) && notModified(r, v.ETag) &&
		v.MaxOpens == nil { // openings do not change its ETag
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusNotModified)
		return
	}
	writeJSON(w, http.StatusOK, v.linkView)
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
// without an owner may read, delete and restore the link. The other routes are for owners only. An
// owner gets ErrNotFound for a link of somebody else, and so does not learn which aliases exist.
// The holder of a token gets ErrForbidden, but may guess few aliases; see holders.
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

// permitted returns the link that the path of a call names, if it is the caller's. read is
// s.Links.Read or s.Links.History.
func (s *service) permitted(
	c *call, read func(context.Context, link.Name) (link.Link, error),
) (link.Link, error) {
	a, err := s.nameIn(c.r)
	if err != nil {
		return link.Link{}, err
	}
	l, err := read(c.ctx, a)
	if err == nil {
		err = permit(c.who, l)
	}
	return l, hideDamage(c.who, err)
}

// hideDamage makes a damaged link one that does not exist, for owners: its owner is not known.
func hideDamage(who access.Caller, err error) error {
	if errors.Is(err, link.ErrDamaged) && who.Owner != "" && !who.Admin {
		return fmt.Errorf("%w: %w", notFoundProblem, err)
	}
	return err
}

// readLink handles GET /api/links/{alias}.
func (s *service) readLink(c *call) (any, error) {
	l, err := s.permitted(c, s.Links.Read)
	return s.viewVersion(l), err
}

// changeView is one change of a link's history.
type changeView struct {
	At     *string        `json:"at"`
	By     *string        `json:"by"`
	What   link.Event     `json:"what"`
	Before jsontext.Value `json:"before"`
}

// linkHistory handles GET /api/links/{alias}/history.
func (s *service) linkHistory(c *call) (any, error) {
	l, err := s.permitted(c, s.Links.History)
	return listOf(l.History, func(c link.Change) changeView {
		return changeView{formatTime(c.At), orNull(c.By), c.What, c.Before}
	}), err
}

// deleteLink handles DELETE /api/links/{alias}.
func (s *service) deleteLink(c *call) (any, error) {
	_, err := s.changeLink(c, s.deleting(c.who))
	return nil, err
}

// restoreLink handles POST /api/links/{alias}/restore.
func (s *service) restoreLink(c *call) (any, error) {
	l, err := s.changeLink(c, s.restoring(c.who))
	return s.viewVersion(l), err
}

// changeFunc returns what a link is to become.
type changeFunc func(link.Link) (link.Link, error)

func (s *service) deleting(who access.Caller) changeFunc {
	now := s.Now()
	return func(l link.Link) (link.Link, error) { return l.Deleted(actor(who, l), now) }
}

func (s *service) restoring(who access.Caller) changeFunc {
	now := s.Now()
	return func(l link.Link) (link.Link, error) {
		return l.Restored(actor(who, l), s.DeletedKeep, now)
	}
}

// changeLink edits the link in the path of a call, if it is the caller's and matches If-Match. It
// returns the link after the edit.
func (s *service) changeLink(c *call, change changeFunc) (link.Link, error) {
	a, err := s.nameIn(c.r)
	if err != nil {
		return link.Link{}, err
	}
	var expected *etags
	if lines := c.r.Header.Values("If-Match"); lines != nil {
		tags, err := parseETags(lines)
		if err != nil {
			return link.Link{}, err
		}
		expected = &tags
	}
	e := editFor(c.who, a, expected, change)
	l, err := s.Links.Edit(c.ctx, a, e.Once, e.Change)
	return s.edited(e, link.EditResult{Link: l, Err: err})
}

// callerEdit is an edit for a caller.
type callerEdit struct {
	link.Edit
	who     access.Caller
	version string // that Change got
}

// editFor returns an edit that changes a link only if it is the caller's and has one of the tags
// that are expected; nil: any.
func editFor(who access.Caller, a link.Name, expected *etags, change changeFunc) *callerEdit {
	e := &callerEdit{who: who}
	e.Edit = link.Edit{Name: a, Once: expected != nil, Change: func(l link.Link) (link.Link,
		error) {
		e.version = l.Version
		if err := permit(who, l); err != nil {
			return l, err
		}
		if expected != nil && !expected.match(etagOf(l.Version)) {
			return l, preconditionProblem
		}
		return change(l)
	}}
	return e
}

// edited returns the outcome of an edit for its caller, and counts it.
func (s *service) edited(e *callerEdit, r link.EditResult) (link.Link, error) {
	if e.Once && errors.Is(r.Err, link.ErrConflict) {
		return link.Link{}, preconditionProblem // it matched, and has changed since
	}
	if r.Err == nil && r.Link.Version != e.version {
		s.Metrics.LinkEdited.Add(1)
	}
	return r.Link, hideDamage(e.who, r.Err)
}
