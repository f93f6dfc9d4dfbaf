package link

import (
	"fmt"
	"time"
)

// maxBefore is the largest number of clicks of an imported link: the largest whole number up to
// which every program reads every other one. It leaves room for the clicks that are counted here.
const maxBefore = 1 << 53

// firstDate is the first date that a link may have: lists sort by seconds since then.
var firstDate = time.Unix(0, 0).UTC()

// storable reports whether a link may have a time that a caller chose.
func storable(at time.Time) bool { return !at.Before(firstDate) && at.Year() <= 9999 }

// Imported is the result of importing one link. Link is the link as it is now. Created says that
// the import made it; otherwise it was there before. If Err is set, neither is the case.
type Imported struct {
	Link    Link
	Created bool
	Err     error
	// There is the link that a dry run found under the alias, or the zero Link if that one is
	// damaged. Nil: it found nothing, or did not look.
	There *Link
}

// Import returns a link as it is imported at now into a domain. The name of was is the alias, as a
// file has it. The link keeps its alias and its dates, but nothing that only its former service
// knew about it. It has no end unless was has one, and may already have ended. A date of creation
// or update that is later than now becomes now, and so does a missing date of creation. The error
// is always an *InvalidError.
func (r Rules) Import(was Link, domain Domain, now time.Time) (Link, error) {
	now = now.UTC().Truncate(time.Second)
	l := Link{LongURL: was.LongURL, GoneURL: was.GoneURL, Owner: was.Owner, Disabled: was.Disabled,
		Title: was.Title, Forward: was.Forward, Before: was.Before,
		Locked: was.Locked && was.Disabled}
	err := checkWords(was.Title, was.Tags)
	if err != nil {
		return Link{}, err
	}
	l.Tags = distinct(was.Tags)
	if was.Name == "" { // a second import could not find the link that the first one made
		return Link{}, &InvalidError{FieldAlias,
			"An imported link needs its alias. To have aliases drawn, shorten the URLs."}
	}
	if l.Name, l.Spelling, err = r.Choose(string(was.Name), domain); err != nil {
		return Link{}, err
	}
	if wrong := r.checkTarget(was.LongURL, true); wrong != "" {
		return Link{}, &InvalidError{FieldLongURL, wrong}
	}
	if l.Rules, err = r.checkRules(was.Rules); err != nil {
		return Link{}, err
	}
	if err = r.checkGoneURL(l); err != nil {
		return Link{}, err
	}
	if l.CreatedAt, err = pastDate(FieldCreatedAt, was.CreatedAt, now); err != nil {
		return Link{}, err
	}
	if l.CreatedAt.IsZero() {
		l.CreatedAt = now
	}
	if l.UpdatedAt, err = pastDate(FieldUpdatedAt, was.UpdatedAt, now); err != nil {
		return Link{}, err
	}
	if l.Before.LastAt, err = pastDate(FieldClicks, was.Before.LastAt, now); err != nil {
		return Link{}, err
	}
	if l.ExpiresAt = was.ExpiresAt.UTC().Truncate(time.Second); !l.ExpiresAt.IsZero() &&
		!storable(l.ExpiresAt) {
		return Link{}, &InvalidError{FieldExpiresAt,
			"The end must be from 1970 on, and before the year 10000."}
	}
	if err = l.importGuard(was.Guard, now); err != nil {
		return Link{}, err
	}
	if err = l.checkForward(); err != nil {
		return Link{}, err
	}
	l.StartsAt = was.StartsAt.UTC().Truncate(time.Second)
	if err = l.checkStart(); err != nil {
		return Link{}, err
	}
	code := int64(was.StatusCode)
	if code == 0 {
		code = DefaultStatusCode
	}
	if l.StatusCode, err = statusCode(&code); err != nil {
		return Link{}, err
	}
	if l.Owner != "" {
		if err = CheckOwner(l.Owner); err != nil {
			return Link{}, err
		}
	}
	if most := int64(maxBefore); l.Before.Clicks < 0 || l.Before.Clicks > most ||
		l.Before.Bots < 0 || l.Before.Bots > most {
		return Link{}, &InvalidError{FieldClicks,
			fmt.Sprintf("Clicks and bots must be from 0 to %d.", most)}
	}
	return l, nil
}

// pastDate returns a date of a link in whole seconds and UTC, or zero if there is none. A date that
// is later than now becomes now, because the clock of another machine may be ahead. The error is an
// *InvalidError.
func pastDate(f Field, at, now time.Time) (time.Time, error) {
	at = at.UTC().Truncate(time.Second)
	switch {
	case at.IsZero():
		return time.Time{}, nil
	case at.Before(firstDate):
		return time.Time{}, &InvalidError{f, "Dates must be from 1970 on."}
	case at.After(now):
		return now, nil
	}
	return at, nil
}
