package functions

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"tiney/internal/link"
)

// notLive returns the problem of a link that is not live, and nil for any other link.
func notLive(l link.Link, now time.Time) *problem {
	switch state := l.State(now); state {
	case link.StateLive:
		return nil
	case link.StateScheduled:
		return notStarted(l)
	default:
		return goneProblem(l, state)
	}
}

// ended reports whether a link is over for good.
func ended(l link.Link, now time.Time) bool {
	state := l.State(now)
	return state == link.StateExpired || state == link.StateDeleted
}

// goneProblem returns the problem of a link that is not live. The page says when the link ended.
func goneProblem(l link.Link, state link.State) *problem {
	if state == link.StateDisabled {
		return disabledProblem
	}
	p, what, since := expiredProblem, "came to the end of its life", l.ExpiresAt
	if state == link.StateDeleted {
		p, what, since = deletedProblem, "was deleted", l.DeletedAt
	}
	if l.GoneReason != link.StateLive {
		since = l.GoneAt
	}
	_, advice, _ := strings.Cut(p.Detail, ". ")
	dated := *p
	dated.page = fmt.Sprintf("The short link at this address %s on %s (UTC). %s",
		what, since.UTC().Format("2 January 2006"), advice)
	return &dated
}

// notStarted returns the problem of a link before its start, which the page names.
func notStarted(l link.Link) *problem {
	dated := *notStartedProblem
	dated.page = fmt.Sprintf("The short link at this address starts on %s (UTC). Come back then.",
		l.StartsAt.UTC().Format("2 January 2006 at 15:04"))
	return &dated
}

// isGone reports whether an error of decide is the problem of a link that exists but is not live.
func isGone(err error) bool {
	p, ok := err.(*problem)
	return ok && (p.Status == http.StatusGone || p.Type == notStartedProblem.Type)
}
