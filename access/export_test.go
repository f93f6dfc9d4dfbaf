package access

import "time"

// SetFetchLimit changes how long the provider has for its keys, while nobody asks it for them.
func (a *Authenticator) SetFetchLimit(limit time.Duration) { a.provider.limit = limit }
