package link

import (
	"fmt"
	"strings"
	"time"
)

// maxOwner is the longest owner of an imported link, in characters: as long as that of somebody who
// signs in can be, a host name, a bar and 255 characters.
const maxOwner = 512

// maxBefore is the largest count of an imported link, which leaves room for what is added here.
const maxBefore = 1e15

// firstDate is the first one that a link may have: lists sort by seconds since then.
var firstDate = time.Unix(0, 0).UTC()

// Import returns a link as it is imported at now: as it was, with its alias and its dates, and
// without what only its former service knew of it. It has no end unless it says so, and may have
// ended. What was created or updated later than now was so now, and without a date of creation,
// too. The error is always an *InvalidError.
func (r Rules) Import(was Link, now time.Time) (Link, error) {
	now = now.UTC().Truncate(time.Second)
	l := Link{LongURL: was.LongURL, Owner: was.Owner, Disabled: was.Disabled, Title: was.Title,
		Before: was.Before}
	err := checkWords(was.Title, was.Tags)
	if err != nil {
		return Link{}, err
	}
	l.Tags = distinct(was.Tags)
	if was.Alias == "" { // a second import could not find what the first one has made
		return Link{}, &InvalidError{FieldAlias,
			"An imported link needs its alias. To have aliases drawn, shorten the URLs."}
	}
	if l.Alias, err = chosenAlias(string(was.Alias)); err != nil {
		return Link{}, err
	}
	if wrong := r.checkTarget(was.LongURL); wrong != "" {
		return Link{}, &InvalidError{FieldLongURL, wrong}
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
		(l.ExpiresAt.Before(firstDate) || l.ExpiresAt.Year() > 9999) {
		return Link{}, &InvalidError{FieldExpiresAt,
			"The end must be from 1970 on, and before the year 10000."}
	}
	code := int64(was.StatusCode)
	if code == 0 {
		code = DefaultStatusCode
	}
	if l.StatusCode, err = statusCode(&code); err != nil {
		return Link{}, err
	}
	if len(l.Owner) > maxOwner || strings.ContainsFunc(
		l.Owner, func(r rune) bool { return r < ' ' || r > '~' }) {
		return Link{}, &InvalidError{FieldOwner,
			fmt.Sprintf("The owner may have at most %d characters, all of them printable ASCII.",
				maxOwner)}
	}
	if most := int64(maxBefore); l.Before.Clicks < 0 || l.Before.Clicks > most ||
		l.Before.Bots < 0 || l.Before.Bots > most {
		return Link{}, &InvalidError{FieldClicks,
			fmt.Sprintf("Clicks and bots must be from 0 to %d.", most)}
	}
	return l, nil
}

// pastDate returns a date of a link, whole seconds in UTC, or zero. One that is later than now is
// now: another machine's clock may be ahead.
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
