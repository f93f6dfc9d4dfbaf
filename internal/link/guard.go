package link

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Limits of guarded links.
const (
	minPassword = 6 // characters, as code points, after NFC
	maxPassword = 128
	maxMaxOpens = 1_000_000
)

// ErrMaxOpens is an *InvalidError: a link cannot have such a MaxOpens.
var ErrMaxOpens error = &InvalidError{FieldMaxOpens, fmt.Sprintf(
	"It must be a whole number from 1 to %d, or null for no limit.", maxMaxOpens)}

// Guard is what a link asks for before it leads anywhere. The zero Guard asks for nothing.
type Guard struct {
	// Password is the hash of the link's password, as access.Passwords makes it; "": none.
	Password string
	// MaxOpens is how often the link leads anywhere, and OpensLeft how often it still does. Zero:
	// no limit.
	MaxOpens, OpensLeft int
	// EndKept is the end that a link had before it was used up. Zero: it had none, or it is not
	// used up.
	EndKept time.Time
}

// Guarded reports whether nothing but an opening tells where the link leads.
func (g Guard) Guarded() bool { return g.Password != "" || g.MaxOpens > 0 }

// UsedUp reports whether the link has led somewhere as often as it may.
func (g Guard) UsedUp() bool { return g.MaxOpens > 0 && g.OpensLeft <= 0 }

// Opened returns the link as it is after one opening at now. The last one ends it.
func (l Link) Opened(now time.Time) Link {
	if l.OpensLeft--; l.OpensLeft == 0 {
		l.EndUsedUp(now)
	}
	return l
}

// EndUsedUp ends a link that is used up. The link keeps the end that it had, or the one that it has
// kept before.
func (l *Link) EndUsedUp(now time.Time) {
	if l.EndKept.IsZero() {
		l.EndKept = l.ExpiresAt
	}
	l.ExpiresAt = now.UTC().Truncate(time.Second)
}

// NormalPassword returns a password in NFC, in which it is compared. The error is an *InvalidError.
func NormalPassword(password string) (string, error) {
	normal := norm.NFC.String(password)
	n := utf8.RuneCountInString(normal)
	if !utf8.ValidString(password) || n < minPassword || n > maxPassword ||
		strings.ContainsFunc(normal, unicode.IsControl) {
		return "", &InvalidError{FieldPassword, fmt.Sprintf(
			"The password must have %d to %d characters, and no control characters.", minPassword,
			maxPassword)}
	}
	return normal, nil
}

// setMaxOpens sets how often the link still leads anywhere; zero: no limit. A link that was used up
// gets back the end that it had. The error is an *InvalidError.
func (l *Link) setMaxOpens(n int64) error {
	if n < 0 || n > maxMaxOpens {
		return ErrMaxOpens
	}
	if l.UsedUp() {
		l.ExpiresAt, l.EndKept = l.EndKept, time.Time{}
	}
	l.MaxOpens, l.OpensLeft = int(n), int(n)
	return nil
}

// importGuard takes over the guard of an imported link. One that is used up comes in ended. The
// error is an *InvalidError.
func (l *Link) importGuard(g Guard, now time.Time) error {
	left := g.OpensLeft
	if g.MaxOpens == 0 && left != 0 || left < 0 || left > g.MaxOpens {
		return &InvalidError{FieldOpensLeft, "It must be from 0 to maxOpens, or null without it."}
	}
	l.Password = g.Password
	if err := l.setMaxOpens(int64(g.MaxOpens)); err != nil {
		return err
	}
	if l.OpensLeft = left; !l.UsedUp() {
		return nil
	}
	l.EndKept = g.EndKept.UTC().Truncate(time.Second)
	if l.ExpiresAt.IsZero() || l.ExpiresAt.After(now) {
		l.EndUsedUp(now)
	}
	if !l.EndKept.IsZero() && !storable(l.EndKept) {
		return &InvalidError{FieldExpiresAt,
			"The kept end must be from 1970 on, and before the year 10000."}
	}
	return nil
}
