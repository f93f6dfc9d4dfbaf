package access

import "time"

// SetFetchLimit changes the limit of a fetch. None may be in progress.
func (a *Authenticator) SetFetchLimit(limit time.Duration) { a.provider.limit = limit }
