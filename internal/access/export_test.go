package access

import "time"

// SetFetchLimit changes the time limit of a fetch. No fetch may be in progress.
func (a *Authenticator) SetFetchLimit(limit time.Duration) { a.provider.limit = limit }

// What only tests outside of the package need.
var (
	IsGroup  = isGroup
	ParseKey = keyHash
)
