package link

import (
	"slices"
	"time"
)

// Patch is an edit of a link that a caller asks for. A nil field leaves that part of the link
// unchanged.
type Patch struct {
	LongURL    *string
	End        *End       // the zero End: never
	StartsAt   *time.Time // a zero time: at once
	GoneURL    *string    // "": none
	StatusCode *int64
	Forward    *[]string
	Rules      *[]TargetRule
	Password   *string // a hash; "": none
	MaxOpens   *int64  // zero: no limit
	Disabled   *bool
	Title      *string
	Tags       *[]string
	Owner      *string // Edit does not check whether the actor may name it
}

// Edit is one of several edits.
type Edit struct {
	Name Name
	// Once: if another edit comes between, give up. An opening of the link is no edit.
	Once bool
	// Change returns what the link is to become. It may be called more than once.
	Change func(Link) (Link, error)
}

// EditResult is what became of an Edit.
type EditResult struct {
	Link Link
	Err  error // nil: it was edited
}

// Actor is who changes a link.
type Actor struct {
	By    string // the owner who acts; "": the holder of the link's claim token
	Admin bool
	Own   bool // the link belongs to By or to a group of theirs
}

// takesDown reports whether the actor takes a link down by disabling or deleting it.
func (a Actor) takesDown() bool { return a.Admin && !a.Own }

// Edit returns the link as it is after a patch at now. Only admins may change where a shared link
// leads, also after its end, what it forwards and when it starts, disable or enable it, or make it
// end earlier. Only they may change a link that was taken down. An admin who disables somebody
// else's link takes it down, and an admin who enables a link ends that. An edit that changes
// nothing returns the link as it was.
// Errors: *InvalidError, ErrLocked, ErrDeleted, ErrShared.
func (r Rules) Edit(l Link, p Patch, by Actor, now time.Time) (Link, error) {
	switch {
	case l.Locked && !by.Admin:
		return Link{}, ErrLocked
	case l.State(now) == StateDeleted:
		return Link{}, ErrDeleted
	}
	edited := l
	if p.LongURL != nil && *p.LongURL != l.LongURL {
		if wrong := r.checkTarget(*p.LongURL, true); wrong != "" {
			return Link{}, &InvalidError{FieldLongURL, wrong}
		}
		edited.LongURL = *p.LongURL
	}
	now = now.UTC().Truncate(time.Second)
	var err error
	// Times that other programs wrote may have fractions of a second, which no response shows. A
	// caller who sends such a time back as it was shown changes nothing.
	sameSecond := func(a, b time.Time) bool {
		return a.Truncate(time.Second).Equal(b.Truncate(time.Second))
	}
	if p.MaxOpens != nil {
		if err = edited.setMaxOpens(*p.MaxOpens); err != nil {
			return Link{}, err
		}
	}
	if p.End != nil && (p.End.At == nil || !sameSecond(*p.End.At, l.ExpiresAt)) {
		if edited.UsedUp() {
			return Link{}, &InvalidError{FieldMaxOpens, "The link was opened as often as it may " +
				"be: send maxOpens too, how often it may be opened from now on, or null."}
		}
		if edited.ExpiresAt, err = r.end(*p.End, true, now); err != nil {
			return Link{}, err
		}
	}
	if p.StartsAt != nil && !sameSecond(*p.StartsAt, l.StartsAt) {
		edited.StartsAt = p.StartsAt.UTC().Truncate(time.Second)
	}
	if !edited.StartsAt.Equal(l.StartsAt) || !edited.ExpiresAt.Equal(l.ExpiresAt) {
		if err = edited.checkStart(); err != nil {
			return Link{}, err
		}
	}
	if p.Rules != nil {
		if edited.Rules, err = r.checkRules(*p.Rules); err != nil {
			return Link{}, err
		}
	}
	if p.GoneURL != nil {
		edited.GoneURL = Fallback(*p.GoneURL)
	}
	retargeted := !slices.Equal(edited.Targets(), l.Targets())
	if edited.GoneURL != l.GoneURL || retargeted {
		if err = r.checkGoneURL(edited); err != nil {
			return Link{}, err
		}
	}
	if p.StatusCode != nil {
		if edited.StatusCode, err = statusCode(p.StatusCode); err != nil {
			return Link{}, err
		}
	}
	if p.Forward != nil {
		if edited.Forward, err = ParseForward(*p.Forward); err != nil {
			return Link{}, err
		}
	}
	if p.Password != nil {
		edited.Password = *p.Password
	}
	if edited.Forward != l.Forward || retargeted || edited.Guarded() != l.Guarded() {
		if err = edited.checkForward(); err != nil {
			return Link{}, err
		}
	}
	if p.Disabled != nil {
		edited.Disabled = *p.Disabled
		edited.Locked = edited.Disabled && (l.Locked || by.takesDown())
	}
	what := Edited
	if p.Owner != nil && *p.Owner != l.Owner {
		if err = CheckOwner(*p.Owner); err != nil {
			return Link{}, err
		}
		what, edited.Owner, edited.ClaimHash = Transferred, *p.Owner, ""
	}
	if p.Title != nil {
		err = checkWords(*p.Title, nil)
		edited.Title = *p.Title
	}
	if p.Tags != nil && err == nil {
		if err = checkWords("", *p.Tags); err == nil {
			edited.Tags = distinct(*p.Tags)
		}
	}
	if err != nil {
		return Link{}, err
	}
	earlier := !edited.ExpiresAt.IsZero() &&
		(l.ExpiresAt.IsZero() || edited.ExpiresAt.Before(l.ExpiresAt))
	if l.Shared && !by.Admin && (edited.LongURL != l.LongURL || earlier ||
		edited.Disabled != l.Disabled || edited.Forward != l.Forward ||
		!sameRules(edited.Rules, l.Rules) || edited.Guard != l.Guard ||
		!edited.StartsAt.Equal(l.StartsAt) || edited.GoneURL != l.GoneURL) {
		return Link{}, ErrShared
	}
	return changed(l, edited, by, what, now), nil
}

// Deleted returns the link as it is after it has been deleted at now. A link that is already
// deleted stays as it is, but an admin can still take it down. Only an admin may delete a shared
// link. Errors: ErrLocked, ErrShared.
func (l Link) Deleted(by Actor, now time.Time) (Link, error) {
	already := l.State(now) == StateDeleted
	deleted := l
	switch {
	case by.takesDown():
		deleted.Locked = true
	case already:
		return l, nil
	case l.Locked && !by.Admin:
		return Link{}, ErrLocked
	case l.Shared && !by.Admin:
		return Link{}, ErrShared
	}
	if !already {
		deleted.DeletedAt = now.UTC().Truncate(time.Second)
	}
	return changed(l, deleted, by, Deleted, now), nil
}

// Restored returns the link as it is after it has been restored at now, which is possible until
// keep after it was deleted. A link that was taken down stays taken down if it is also disabled.
// Errors: ErrLocked, ErrNotDeleted.
func (l Link) Restored(by Actor, keep time.Duration, now time.Time) (Link, error) {
	switch {
	case l.Locked && !by.Admin:
		return Link{}, ErrLocked
	case l.State(now) != StateDeleted || !l.DeletedAt.Add(keep).After(now):
		return Link{}, ErrNotDeleted
	}
	restored := l
	restored.DeletedAt, restored.Locked = time.Time{}, l.Locked && l.Disabled
	return changed(l, restored, by, Restored, now), nil
}

// Claimed returns the link as it is after an owner has taken it over at now. Its claim token is
// void then, and it never expires unless keepExpiry is set.
func (l Link) Claimed(by Actor, owner string, keepExpiry bool, now time.Time) Link {
	claimed := l
	claimed.Owner, claimed.ClaimHash = owner, ""
	if !keepExpiry {
		claimed.ExpiresAt = time.Time{}
	}
	return changed(l, claimed, by, Claimed, now)
}

// Extended returns the link as it is after it was given to a caller without credentials who asked
// for a later end at now.
func (l Link) Extended(end, now time.Time) Link {
	extended := l
	extended.ExpiresAt = end
	return changed(l, extended, Actor{}, Edited, now)
}

// EndsEarly reports whether the link ends more than a tenth of the time too early for a caller who
// asks at now for a link until end.
func (l Link) EndsEarly(end, now time.Time) bool {
	return !l.ExpiresAt.IsZero() && end.Sub(l.ExpiresAt) > end.Sub(now)/10
}

// Changed reports whether l differs from was in anything that Edit, Deleted, Restored, Claimed and
// Extended can change.
func (l Link) Changed(was Link) bool {
	return len(was.before(l)) > 0 || l.ClaimHash != was.ClaimHash || l.Locked != was.Locked
}
