package telemetry

// The messages of warnings and errors in the log. docs/operations.md says what to do about each,
// and queries search for them. So each message is a constant, and a test of infra compares the docs
// and the queries with the constants of this file. Details that differ from line to line are in the
// line's attributes.
const (
	// LogMemory: TABLE_CONNECTION is memory.
	LogMemory = "everything is kept in memory, and is gone when this process stops"
	// LogMetricsNotServed: METRICS_ADDRESS is set behind the Functions host.
	LogMetricsNotServed = "METRICS_ADDRESS has no effect behind the Functions host"
	// LogStorageUnavailable: a request got a 503.
	LogStorageUnavailable = "storage is unavailable"
	// LogStorageNotReady: the tables or the lock's container could not be created at the start. The
	// process tries again.
	LogStorageNotReady = "storage is not ready yet"
	// LogNotReady: a check of /api/ready failed.
	LogNotReady = "not ready"
	// LogRequestFailed: a request got a 500.
	LogRequestFailed = "request failed"
	// LogPanic: a request got a 500, and the program has a bug.
	LogPanic = "panic"
	// LogLinkCorrupt: a row of the table of links has no valid long URL.
	LogLinkCorrupt = "link row is corrupt; repair it by hand"
	// LogLinkNotReaped: an expired link is left for the next run of the reaper.
	LogLinkNotReaped = "an expired link could not be reaped"
	// LogBatchRefused: a batch of expiry rows is deleted row by row instead.
	LogBatchRefused = "expiry rows could not be deleted in one call; deleting them one by one"
	// LogReaperFailed: a run of the reaper ended before its time limit, and before it had seen all
	// links that are due.
	LogReaperFailed = "reaper: the run was cut short"
	// LogClicksNotRolledUp: days that are over are still missing from the totals of links. The next
	// run of the reaper continues.
	LogClicksNotRolledUp = "reaper: clicks could not be rolled up; the next run continues"
	// LogClicksCorrupt: a row of clicks or of their totals cannot be read.
	LogClicksCorrupt = "a row of clicks is corrupt, and left out of the totals"
	// LogTopNotRead: the links that were clicked most could not be found. The next request for them
	// tries again.
	LogTopNotRead = "the links that were clicked most could not be read"
	// LogReapStatsNotSaved: storage failed, or the response of the write was lost.
	LogReapStatsNotSaved = "reaper: the statistics may lack this run"
	// LogCreateTooLate: the process was suspended in the middle of a create, and could not repair
	// what that left behind.
	LogCreateTooLate = "a create was stopped for too long and may have left an inconsistent row"
	// LogLinkLeft: a create that lost a race could not delete its link.
	LogLinkLeft = "an unused link is left to the reaper"
	// LogExpiryRowLeft: a create that lost a race could not delete its expiry row.
	LogExpiryRowLeft = "an unused expiry row is left to the reaper"
	// LogEditLeft: an edit was made, but rows that are no longer needed could not be deleted.
	LogEditLeft = "an edit left rows to the reaper"
	// LogIndexRowLate: a create got no response for its index row in time, and could not guard that
	// row.
	LogIndexRowLate = "an index row may be late, and has no guard"
	// LogSecondary: links that are not cached come from the copy until the primary responds again.
	LogSecondary = "the primary region fails; reading links from the secondary"
	// LogChangesNotPolled: every redirect reads the table until a poll succeeds again.
	LogChangesNotPolled = "changes of other processes cannot be asked for"
	// LogClicksNotSaved: counted clicks stay in memory until they can be saved.
	LogClicksNotSaved = "clicks could not be saved; trying again"
	// LogProviderUnavailable: the keys for checking ID tokens cannot be fetched.
	LogProviderUnavailable = "the sign-in provider does not respond, or not as it should"
	// LogGroupsLost: a person may lack rights of a group. It is logged once for each reason.
	LogGroupsLost = "groups of an ID token are left out"
	// LogRolesLost: a person may lack the rights of an admin. It is logged once for each reason.
	LogRolesLost = "roles of an ID token are left out"
	// LogProviderKeyLost: tokens by this key are refused. It is logged once for each key.
	LogProviderKeyLost = "a key of the sign-in provider cannot be used"
	// LogKeyUseNotSaved: the list of API keys may show an older day.
	LogKeyUseNotSaved = "the day of a key's last use was not saved"
	// LogLockNotReleased: the lease on the lock's blob runs out by itself.
	LogLockNotReleased = "the lock could not be released; its lease expires within a minute"
	// LogTelemetryDelayed: the ingestion endpoint cannot be reached or is busy.
	LogTelemetryDelayed = "telemetry cannot be delivered; trying again"
	// LogTelemetryRefused: the ingestion endpoint has refused some items. They are lost.
	LogTelemetryRefused = "Application Insights has refused telemetry"
	// LogTelemetryStopped: the goroutine that sends telemetry has panicked.
	LogTelemetryStopped = "no more telemetry is sent"
	// LogLocationRewritten: the Functions host forwards requests instead of proxying them.
	LogLocationRewritten = "this Functions host forwards requests, and rewrites the Location of " +
		"redirects"
	// LogClientAddressLost: the Functions host proxies requests, and replaces the header that
	// CLIENT_ADDRESS_HEADER names.
	LogClientAddressLost = "this Functions host replaces X-Forwarded-For, and all clients seem " +
		"to have one address"
	// LogClientAddressMissing: a request came through the Functions host without an address that
	// can be its client's.
	LogClientAddressMissing = "requests come without their client's address, and are not limited " +
		"by it"
	// LogTimerRefused: somebody other than the Functions host has posted to a timer's endpoint.
	LogTimerRefused = "a request to the timer's endpoint was refused"
	// LogHostEnded: the process has lost its parent, and ends too.
	LogHostEnded = "the Functions host has ended; stopping"
)
