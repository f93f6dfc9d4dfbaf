package telemetry

// Names of what is sent to Application Insights. The names of metrics are in metrics.go. Charts,
// alerts and docs use these names, and a test compares them with the lists below.
const (
	// EventReaperRun is one run of the reaper, by Result.
	EventReaperRun = "ReaperRun"
	// EventStorageUnavailable: storage has failed several calls in a row.
	EventStorageUnavailable = "StorageUnavailable"
	// EventStorageRecovered: storage responds again.
	EventStorageRecovered = "StorageRecovered"

	// PropertyResult is the result of a run: one of Results.
	PropertyResult = "Result"
	// PropertyComplete is "true" if a run handled all links that were due.
	PropertyComplete = "Complete"
	// PropertyTarget is the host name of a storage service.
	PropertyTarget = "Target"
	// PropertyOperation names a storage call, such as "GetEntity ShortUrls".
	PropertyOperation = "Operation"
	// PropertyResultCode is the HTTP status of a storage call, or one of "timeout", "canceled",
	// "unreachable" and "no token".
	PropertyResultCode = "ResultCode"
	// ResultCanceled is the result code of a call that its caller canceled.
	ResultCanceled = "canceled"
	// ResultTimeout is the result code of a call without a response in time.
	ResultTimeout = "timeout"
	// ResultNoToken is the result code of a call that was not sent, because the identity gave no
	// token for it.
	ResultNoToken = "no token"
	// ResultUnreachable is the result code of a call that got no connection, or lost it.
	ResultUnreachable = "unreachable"
	// PropertyErrorCode is the storage service's own error code, such as "ServerBusy".
	PropertyErrorCode = "ErrorCode"
	// PropertyInvocationID is the Functions host's invocation ID.
	PropertyInvocationID = "InvocationId"
	// PropertyLimit is the limit of a refused request: one of Limits.
	PropertyLimit = "Limit"
	// PropertyTry is the number of the try of a storage call. First tries have no such property.
	PropertyTry = "Try"

	// MeasurementDeleted is how many links a run of the reaper deleted.
	MeasurementDeleted = "Deleted"
	// MeasurementDropped is how many expiry rows without a link a run deleted.
	MeasurementDropped = "Dropped"
	// MeasurementFailed is how many links a run could not delete.
	MeasurementFailed = "Failed"
	// MeasurementBacklog is how many seconds ago the oldest link that a run left behind expired.
	MeasurementBacklog = "BacklogSeconds"
	// MeasurementDuration is how long a run took, in milliseconds.
	MeasurementDuration = "DurationMs"
	// MeasurementOutage is how long storage failed, in seconds.
	MeasurementOutage = "OutageSeconds"
	// MeasurementFailedCalls is how many calls failed meanwhile. Each try counts.
	MeasurementFailedCalls = "FailedCalls"

	// TypeTable and TypeBlob are the types of dependencies, as Application Insights names them.
	TypeTable = "Azure table"
	TypeBlob  = "Azure blob"

	// ResultDone is the result of a run that reached its end or its time limit.
	ResultDone = "done"
	// ResultFailed is the result of a run that an error cut short.
	ResultFailed = "failed"
	// ResultHeld is the result of a run that did nothing, because another instance was reaping.
	ResultHeld = "held"
	// ResultStopped is the result of a run that ended with its process.
	ResultStopped = "stopped"
)

// All names that are sent, by kind.
var (
	Events     = []string{EventReaperRun, EventStorageUnavailable, EventStorageRecovered}
	Properties = []string{PropertyResult, PropertyComplete, PropertyTarget, PropertyOperation,
		PropertyResultCode, PropertyErrorCode, PropertyInvocationID, PropertyLimit, PropertyTry}
	Measurements = []string{MeasurementDeleted, MeasurementDropped, MeasurementFailed,
		MeasurementBacklog, MeasurementDuration, MeasurementOutage, MeasurementFailedCalls}
	Types   = []string{TypeTable, TypeBlob}
	Results = []string{ResultDone, ResultFailed, ResultHeld, ResultStopped}
)
